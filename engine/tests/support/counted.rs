//! The real file system, with its calls counted.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sessionlog::storage::{
    Access, DirEntry, Lock, LockError, Locked, OsStorage, Storage, StorageFile, Watch,
};

#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) calls: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CountedFile {
    inner: Arc<dyn StorageFile>,
    calls: Arc<AtomicU64>,
}

impl Counted {
    fn call(&self) -> OsStorage {
        self.calls.fetch_add(1, Ordering::SeqCst);
        OsStorage
    }

    fn file(&self, inner: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(CountedFile { inner, calls: Arc::clone(&self.calls) })
    }
}

impl CountedFile {
    fn call(&self) -> &dyn StorageFile {
        self.calls.fetch_add(1, Ordering::SeqCst);
        &*self.inner
    }
}

impl Storage for Counted {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(self.call().create_new(path)?))
    }
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(self.call().open(path, access)?))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call().create_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.call().list(dir)
    }
    fn entry(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        self.call().entry(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call().hard_link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call().rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call().remove_file(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.call().remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.call().sync_dir(dir)
    }
    fn try_lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        self.call().try_lock(path)
    }
    fn is_locked(&self, path: &Path) -> Option<Locked> {
        self.call().is_locked(path)
    }
    fn watch(&self, dir: &Path) -> io::Result<Option<Box<dyn Watch>>> {
        self.call().watch(dir)
    }
}

impl StorageFile for CountedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.call().read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.call().write_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.call().sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.call().sync_all()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.call().set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.call().len()
    }
}
