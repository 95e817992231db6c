//! The seam to the outside: everything the engine does to files goes through [`Storage`].
//!
//! [`OsStorage`] is the real file system. `SimStorage` (feature `sim`) is one that loses power, tears writes,
//! fails the n-th call and lists what was called, so that the rules of durability can be tested and counted.
//!
//! What the engine assumes of a `Storage`, and nothing more: after `sync_data` (or `sync_all`) returned `Ok`, the
//! bytes written before it and the file's length survive a loss of power; after `sync_dir` returned `Ok`, the names
//! created, renamed and removed in that directory before it do. A write may be torn anywhere, and bytes that were
//! not synced may be there, be missing, or be zero. A byte that was synced is not changed by a later write elsewhere.
//! After a sync failed, nothing is known of the bytes that it should have made durable.

mod os;
#[cfg(any(test, feature = "sim"))]
mod sim;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sessionlog_codec::ids::Timestamp;

pub use os::OsStorage;
#[cfg(any(test, feature = "sim"))]
pub use sim::{Call, CallKind, CrashMode, Fault, FaultError, Repeat, SimStorage};

/// What a file was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only: no call on the handle may change a byte.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// What a directory entry is. Symbolic links are never followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link, FIFO, socket or device: never opened by the engine.
    Other,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name within the directory.
    pub name: std::ffi::OsString,
    /// What it is.
    pub kind: EntryKind,
    /// Length in bytes, of a file.
    pub len: u64,
}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another handle holds it.
    Held,
    /// The lock could not be tried.
    Io(io::Error),
}

/// A lock, held until it is dropped.
pub trait Lock: Send + Sync + Debug {
    /// Replaces the lock file's text, which is read by people and by error messages only.
    fn write_text(&self, text: &str) -> io::Result<()>;
}

/// An open file.
pub trait StorageFile: Send + Sync + Debug {
    /// Reads up to `buf.len()` bytes at `offset`; fewer (or 0) only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `buf` at `offset`, as one system call where the system takes it whole. On an error any part
    /// may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the bytes and the length durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
    /// Makes the bytes and all metadata durable (`fsync`).
    fn sync_all(&self) -> io::Result<()>;
    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A file system.
///
/// Directories are created with mode 0700 and files with mode 0600. `open` refuses anything that is not a regular
/// file (a symbolic link, a FIFO, a directory) with [`io::ErrorKind::InvalidInput`], without blocking.
pub trait Storage: Send + Sync + Debug {
    /// Creates a file that must not exist yet, for reading and writing.
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>>;
    /// Opens an existing regular file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>>;
    /// Creates a directory; it is no error if it exists. Its parent must exist.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Lists a directory, sorted by name.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// What is at `path`, without following a link; `None` if nothing.
    fn entry(&self, path: &Path) -> io::Result<Option<DirEntry>>;
    /// Gives a regular file a second name, which must not be taken. Both names are the same file from then on.
    ///
    /// Fails where the file system has no such thing or the names are on different ones.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames a file, replacing what is at `to`; or a directory, where nothing may be at `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file, or a link without following it.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive lock of `path` without waiting, creating the file if it is missing.
    fn try_lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError>;
    /// Takes a lock of `path` that others may share, without waiting, creating the file if it is missing: nobody has the
    /// exclusive one at the same time. A storage that has no such lock takes the exclusive one.
    fn try_lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        self.try_lock(path)
    }
    /// Whether somebody holds the lock of `path` alone, found without taking it; `None` where that can't be known.
    fn is_locked(&self, path: &Path) -> Option<Locked>;
    /// Watches a directory: for changes of its files and of their names, and for its own end. `None` where the system tells of
    /// none. What changes after it returned is told; so who looks at the files after it returned misses nothing.
    fn watch(&self, dir: &Path) -> io::Result<Option<Box<dyn Watch>>> {
        let _ = dir;
        Ok(None)
    }
    /// How many names the regular file at `path` has; `None` where that can't be known.
    fn link_count(&self, path: &Path) -> io::Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }
    /// What tells at little cost whether a file or a directory changed since a look before; `None` where that can't be known.
    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let _ = path;
        Ok(None)
    }
    /// When the regular file at `path` was last written, or what [`touch`](Self::touch) said; `None` where that can't be known.
    fn modified(&self, path: &Path) -> io::Result<Option<Timestamp>> {
        let _ = path;
        Ok(None)
    }
    /// Says that the regular file at `path` was last written at a time. Durable with its next `sync_all`.
    fn touch(&self, path: &Path, at: Timestamp) -> io::Result<()> {
        let _ = (path, at);
        Ok(())
    }
    /// Where `path` is for libraries that open files themselves; `None` if they would not find it there.
    fn native_path(&self, path: &Path) -> Option<PathBuf> {
        let _ = path;
        None
    }
}

/// What the file system says of a file or a directory without opening it. Two that are equal are of the same thing, unchanged,
/// if the first one was [quiet](Self::quiet) for longer than the system's clock of files needs to tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Which file of its file system.
    pub file: u64,
    /// Length in bytes.
    pub len: u64,
    /// When its bytes (or names) changed last, in nanoseconds since 1970.
    pub modified: i64,
    /// When anything about it changed last, its names and rights too, in nanoseconds since 1970; 0 where the system does not
    /// say.
    pub changed: i64,
    /// How long ago that was when it was looked at. Zero if it lies in the future.
    pub quiet: Duration,
}

/// Tells of changes in a directory.
pub trait Watch: Send + Debug {
    /// Waits until something changed since the last call returned, or since the watch was made; at most for `timeout`. May
    /// return early, and for changes that mean nothing.
    fn wait(&mut self, timeout: Duration) -> Woken;
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Something changed.
    Changed,
    /// The time is over.
    TimedOut,
}

/// Whether a lock is held, as seen by somebody who does not take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// Some process holds it.
    Held,
    /// No process on this machine holds it.
    Free,
}
