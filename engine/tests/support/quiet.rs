//! A file system that says of every file how long it was left alone, for what believes files by that.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sessionlog::storage::{
    Access, DirEntry, Lock, LockError, Locked, OsStorage, Stamp, Storage, StorageFile,
};

/// The real file system, where every file has been quiet for long (or changed just now, if it is told so), with the openings
/// of segments counted. Its stamps can be kept as they are, as a loss of power may leave them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quiet {
    pub(crate) opened: Arc<AtomicU64>,
    pub(crate) is_young: Arc<AtomicBool>,
    kept: Arc<Mutex<Option<BTreeMap<PathBuf, Stamp>>>>,
}

impl Quiet {
    pub(crate) fn keep_stamps(&self) {
        *self.kept.lock().unwrap() = Some(BTreeMap::new());
    }
}

impl Storage for Quiet {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        OsStorage.create_new(path)
    }
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        self.opened.fetch_add(u64::from(path.extension().is_some_and(|it| it == "seg")), Ordering::SeqCst);
        OsStorage.open(path, access)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        OsStorage.create_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        OsStorage.list(dir)
    }
    fn entry(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        OsStorage.entry(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.hard_link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        OsStorage.remove_file(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        OsStorage.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        OsStorage.sync_dir(dir)
    }
    fn try_lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        OsStorage.try_lock(path)
    }
    fn is_locked(&self, path: &Path) -> Option<Locked> {
        OsStorage.is_locked(path)
    }
    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let quiet = Duration::from_secs(if self.is_young.load(Ordering::SeqCst) { 0 } else { 3600 });
        let now = OsStorage.stamp(path)?.map(|stamp| Stamp { quiet, ..stamp });
        Ok(match (&mut *self.kept.lock().unwrap(), now) {
            (Some(kept), Some(now)) => Some(*kept.entry(path.to_owned()).or_insert(now)),
            (_, now) => now,
        })
    }
    fn native_path(&self, path: &Path) -> Option<PathBuf> {
        OsStorage.native_path(path)
    }
}
