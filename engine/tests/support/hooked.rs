//! A storage that lets a test act at the moment of a call.

use std::io;
use std::path::Path;
use std::sync::Arc;

use sessionlog::storage::{
    Access, CallKind, DirEntry, Lock, LockError, Locked, SimStorage, Storage, StorageFile,
};

/// Called before each call that changes something, and in the middle of each read that is longer than a fencing check.
pub(crate) type Hook = Arc<dyn Fn(CallKind) + Send + Sync>;

pub(crate) struct Hooked {
    pub(crate) inner: SimStorage,
    pub(crate) hook: Hook,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

struct HookedFile {
    inner: Arc<dyn StorageFile>,
    hook: Hook,
}

impl std::fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Hooked {
    fn file(&self, inner: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(HookedFile { inner, hook: Arc::clone(&self.hook) })
    }
}

impl Storage for Hooked {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        (self.hook)(CallKind::Create);
        Ok(self.file(self.inner.create_new(path)?))
    }
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(self.inner.open(path, access)?))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        (self.hook)(CallKind::CreateDir);
        self.inner.create_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }
    fn entry(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        self.inner.entry(path)
    }
    fn link_count(&self, path: &Path) -> io::Result<Option<u64>> {
        self.inner.link_count(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.hook)(CallKind::HardLink);
        self.inner.hard_link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.hook)(CallKind::Rename);
        self.inner.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        (self.hook)(CallKind::Remove);
        self.inner.remove_file(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        (self.hook)(CallKind::Remove);
        self.inner.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        (self.hook)(CallKind::SyncDir);
        self.inner.sync_dir(dir)
    }
    fn try_lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        self.inner.try_lock(path)
    }
    fn is_locked(&self, path: &Path) -> Option<Locked> {
        self.inner.is_locked(path)
    }
}

impl StorageFile for HookedFile {
    /// As the system reads: not in one moment.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if buf.len() <= 8 {
            return self.inner.read_at(buf, offset);
        }
        let middle = buf.len() / 2;
        let (front, back) = buf.split_at_mut(middle);
        let read = self.inner.read_at(front, offset)?;
        (self.hook)(CallKind::Read);
        if read < middle {
            return Ok(read);
        }
        Ok(read + self.inner.read_at(back, offset + u64::try_from(middle).unwrap())?)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        (self.hook)(CallKind::Write);
        self.inner.write_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        (self.hook)(CallKind::SyncData);
        self.inner.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        (self.hook)(CallKind::SyncAll);
        self.inner.sync_all()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        (self.hook)(CallKind::SetLen);
        self.inner.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}
