//! A file system in memory that loses power, tears writes, fails the n-th call and lists what was called.
//!
//! Everything is deterministic: the same calls and the same seeds give the same disk.

mod call;
mod image;
mod state;
#[cfg(test)]
mod tests;
mod watch;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use call::{Call, CallKind, Fault, FaultError, Repeat};

use sessionlog_codec::ids::Timestamp;

use super::{Access, DirEntry, Lock, LockError, Locked, Storage, StorageFile, Watch};
use call::Injected;
use image::{Cached, DirOp, Image, NodeId};
use state::{Node, State, View, to_u64};

/// What `write` returns for a handle that was opened for reading (`EBADF`).
const BAD_HANDLE: i32 = 9;

/// How a [`SimStorage`] crashes.
///
/// In every mode, handles and locks from before are dead afterwards: operations on them return an error of kind
/// [`Other`](io::ErrorKind::Other), and the locks are free. Armed faults are gone; the capacity and the list of calls
/// stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrashMode {
    /// The power goes, and nothing survives but what was synced.
    LoseAll,
    /// The process is killed: the system still has everything. What was not synced before still is not, so that a
    /// later loss of power may lose it.
    KeepAll,
    /// The power goes, and the seed decides about what was not synced.
    ///
    /// Any of a file's writes may be kept, lost or torn, whatever their order. In a torn write every sector of 512
    /// bytes has the new bytes, what was there before, or zeros; bytes outside of a write never change. A change of
    /// length may be kept or lost without the bytes that made it.
    ///
    /// Any change of a directory may be kept or lost, whatever the order: so a file that was synced is not there if
    /// the change that created its name was lost. A rename within a directory is atomic. A rename between two is not:
    /// afterwards the file may have both names, or none.
    Seeded(u64),
}

/// The simulated storage. A clone is another process on the same machine: it shares files, locks, faults and calls.
///
/// The root is `/` and the current directory too, so `a/b` and `/a/b` are one file. Paths with `..` are refused.
/// There are no links, FIFOs or permissions.
///
/// After a sync failed, what it should have made durable is still read, but no later sync will write it: it is lost at
/// the next loss of power, unless a seed keeps it.
#[derive(Clone, Default)]
pub struct SimStorage {
    state: Arc<Mutex<State>>,
}

/// What tests do to it.
impl SimStorage {
    /// An empty disk without limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Crashes it.
    pub fn crash(&self, mode: CrashMode) {
        self.state().crash(mode);
    }

    /// A copy that crashed, with an empty list of calls and no faults; the original goes on. For looking at what a
    /// crash between two calls leaves.
    #[must_use]
    pub fn power_cut(&self, mode: CrashMode) -> Self {
        let mut state = self.state().clone();
        state.calls.clear();
        state.woken = Arc::default();
        state.crash(mode);
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Arms a fault. Several may be armed; each counts the calls that it matches from now on.
    pub fn fail(&self, fault: Fault) {
        self.state().faults.arm(fault);
    }

    /// How many faults are armed: one that happens once is gone when it happened.
    pub fn armed_faults(&self) -> usize {
        self.state().faults.count()
    }

    /// Disarms all faults.
    pub fn clear_faults(&self) {
        self.state().faults = call::Faults::default();
    }

    /// Limits the bytes of all files that have a name, holes included.
    ///
    /// A write beyond it writes what fits and returns [`StorageFull`](io::ErrorKind::StorageFull) (`ENOSPC`);
    /// `set_len` beyond it does nothing and returns the same.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// The calls since the start or the last [`take_calls`](Self::take_calls), also those that failed, but not those
    /// on handles from before a crash.
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// The same, and empties the list.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    /// A file's content as calls see it; `None` if there is no such file.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.state();
        let id = state.resolve(path.as_ref(), View::Current).ok()?;
        Some(state.file(id).ok()?.current.0.clone())
    }

    /// A file's content as [`CrashMode::LoseAll`] would leave it; `None` if it would not be there.
    pub fn durable_file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.state();
        let id = state.resolve(path.as_ref(), View::Durable).ok()?;
        Some(state.file(id).ok()?.durable().0)
    }

    /// Creates a file or replaces its content, durable at once, with the directories that lead to it. Not a call.
    ///
    /// # Errors
    ///
    /// If the path can't be a file's.
    pub fn put_file(&self, path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) -> io::Result<()> {
        self.state().put(path.as_ref(), bytes.into())
    }

    /// Changes a file's content, durable at once: as a bad disk does, or somebody with an editor. Not a call. Nothing
    /// of the file is un-synced afterwards.
    ///
    /// # Errors
    ///
    /// If there is no such file.
    pub fn corrupt(&self, path: impl AsRef<Path>, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut state = self.state();
        let id = state.resolve(path.as_ref(), View::Current)?;
        let file = state.file_mut(id)?;
        let mut image = file.current.clone();
        change(&mut image.0);
        file.replace(image);
        Ok(())
    }

    /// The paths of all files as calls see them, sorted and without a leading `/`.
    pub fn files(&self) -> Vec<PathBuf> {
        let state = self.state();
        let all = state.walk();
        all.into_iter().filter(|(_, id)| !state.is_dir(*id)).map(|(path, _)| path).collect()
    }

    /// The disk is whole between two calls, so a test that panicked in between does no harm.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, state: &State, node: NodeId, path: &Path, access: Access) -> SimFile {
        SimFile { storage: self.clone(), generation: state.generation, node, path: path.to_owned(), access }
    }
}

/// The files and their lengths; contents would drown a failed assertion.
impl fmt::Debug for SimStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let files = state.walk().into_iter();
        f.write_str("SimStorage ")?;
        f.debug_map()
            .entries(files.filter_map(|(path, id)| Some((path, state.file(id).ok()?.current.0.len()))))
            .finish()
    }
}

impl Storage for SimStorage {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        let mut state = self.state();
        state.begin(Call::Create { path: path.to_owned() })?;
        let (dir, name) = state.place(path)?;
        if state.lookup(dir, &name)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let node = state.create(dir, name, Node::File(Cached::new()))?;
        Ok(Arc::new(self.handle(&state, node, path, Access::ReadWrite)))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        let mut state = self.state();
        state.begin(Call::Open { path: path.to_owned(), access })?;
        let node = state.resolve(path, View::Current)?;
        refuse_dir(&state, node)?;
        Ok(Arc::new(self.handle(&state, node, path, access)))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Call::CreateDir { path: path.to_owned() })?;
        match state.resolve(path, View::Current) {
            Ok(found) if state.is_dir(found) => Ok(()),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => {
                let (dir, name) = state.place(path)?;
                state.create(dir, name, Node::Dir(Cached::new())).map(drop)
            }
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut state = self.state();
        state.begin(Call::List { path: dir.to_owned() })?;
        let names = &state.dir(state.resolve(dir, View::Current)?)?.current.0;
        Ok(names.iter().map(|(name, id)| state.describe(name, *id)).collect())
    }

    fn entry(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        let mut state = self.state();
        state.begin(Call::Stat { path: path.to_owned() })?;
        match state.resolve(path, View::Current) {
            Ok(id) => Ok(Some(state.describe(path.file_name().unwrap_or(path.as_os_str()), id))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Call::HardLink { from: from.to_owned(), to: to.to_owned() })?;
        let (from_dir, from_name) = state.place(from)?;
        let (to_dir, to_name) = state.place(to)?;
        let node = state.lookup(from_dir, &from_name)?.ok_or(io::ErrorKind::NotFound)?;
        state.file(node)?;
        if state.lookup(to_dir, &to_name)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.dir_mut(to_dir)?.apply(DirOp::Link(to_name, node));
        Ok(())
    }

    fn link_count(&self, path: &Path) -> io::Result<Option<u64>> {
        let mut state = self.state();
        state.begin(Call::Stat { path: path.to_owned() })?;
        let node = state.resolve(path, View::Current)?;
        let names = state.walk().iter().filter(|(_, id)| *id == node).count();
        Ok(Some(crate::num::to_u64(names)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Call::Rename { from: from.to_owned(), to: to.to_owned() })?;
        state.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Call::Remove { path: path.to_owned() })?;
        let (dir, name) = state.place(path)?;
        let node = state.lookup(dir, &name)?.ok_or(io::ErrorKind::NotFound)?;
        state.file(node)?;
        state.dir_mut(dir)?.apply(DirOp::Unlink(name));
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Call::Remove { path: path.to_owned() })?;
        let (dir, name) = state.place(path)?;
        let node = state.lookup(dir, &name)?.ok_or(io::ErrorKind::NotFound)?;
        if !state.dir(node)?.current.0.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.dir_mut(dir)?.apply(DirOp::Unlink(name));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        let begun = state.begin(Call::SyncDir { path: dir.to_owned() });
        let id = state.resolve(dir, View::Current)?;
        let names = state.dir_mut(id)?;
        finish_sync(names, begun)
    }

    fn try_lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        let mut state = self.state();
        state.begin(Call::Lock { path: path.to_owned() }).map_err(|fault| LockError::Io(fault.error))?;
        let node = open_or_create(&mut state, path).map_err(LockError::Io)?;
        if state.shared_locks.contains_key(&node) || !state.locks.insert(node) {
            return Err(LockError::Held);
        }
        let file = self.handle(&state, node, path, Access::ReadWrite);
        Ok(Box::new(SimLock { file, sharing: Sharing::Alone }))
    }

    fn try_lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        let mut state = self.state();
        state.begin(Call::Lock { path: path.to_owned() }).map_err(|fault| LockError::Io(fault.error))?;
        let node = open_or_create(&mut state, path).map_err(LockError::Io)?;
        if state.locks.contains(&node) {
            return Err(LockError::Held);
        }
        let holders = state.shared_locks.entry(node).or_default();
        *holders = holders.saturating_add(1);
        let file = self.handle(&state, node, path, Access::ReadWrite);
        Ok(Box::new(SimLock { file, sharing: Sharing::Shared }))
    }

    fn modified(&self, path: &Path) -> io::Result<Option<Timestamp>> {
        let mut state = self.state();
        state.begin(Call::Stat { path: path.to_owned() })?;
        let node = state.resolve(path, View::Current)?;
        Ok(Some(state.modified(node)))
    }

    fn touch(&self, path: &Path, at: Timestamp) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Call::Touch { path: path.to_owned() })?;
        let node = state.resolve(path, View::Current)?;
        refuse_dir(&state, node)?;
        state.touch(node, at);
        Ok(())
    }

    fn watch(&self, dir: &Path) -> io::Result<Option<Box<dyn Watch>>> {
        let state = self.state();
        state.dir(state.resolve(dir, View::Current)?)?;
        Ok(Some(Box::new(watch::SimWatch::new(self.clone(), &state, dir))))
    }

    /// `None` only if a fault of kind [`CallKind::Stat`] is due, or for something that can't be a lock file.
    fn is_locked(&self, path: &Path) -> Option<Locked> {
        let mut state = self.state();
        state.begin(Call::Stat { path: path.to_owned() }).ok()?;
        match state.resolve(path, View::Current) {
            Ok(node) if state.is_dir(node) => None,
            Ok(node) => Some(if state.locks.contains(&node) { Locked::Held } else { Locked::Free }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Locked::Free),
            Err(_) => None,
        }
    }
}

/// A file that is open.
#[derive(Debug)]
struct SimFile {
    storage: SimStorage,
    generation: u64,
    node: NodeId,
    path: PathBuf,
    access: Access,
}

impl SimFile {
    /// The disk, unless it crashed since the file was opened.
    fn live(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.storage.state();
        if state.generation == self.generation {
            Ok(state)
        } else {
            Err(io::Error::other("handle from before the crash"))
        }
    }

    fn sync(&self, call: Call) -> io::Result<()> {
        let mut state = self.live()?;
        let begun = state.begin(call);
        finish_sync(state.file_mut(self.node)?, begun)
    }
}

impl StorageFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.live()?;
        state.begin(Call::Read { path: self.path.clone(), offset, len: to_u64(buf.len()) })?;
        Ok(state.file(self.node)?.current.read(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.live()?;
        if buf.is_empty() {
            // No system call either.
            return Ok(());
        }
        let begun = state.begin(Call::Write { path: self.path.clone(), offset, len: to_u64(buf.len()) });
        if self.access == Access::Read {
            return Err(io::Error::from_raw_os_error(BAD_HANDLE));
        }
        match begun {
            Ok(()) => state.write(self.node, buf, offset),
            Err(fault) => {
                let before = buf.get(..fault.written).unwrap_or(buf);
                state.write(self.node, before, offset)?;
                Err(fault.error)
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(Call::SyncData { path: self.path.clone() })
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(Call::SyncAll { path: self.path.clone() })?;
        self.live()?.sync_time(self.node);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.live()?;
        state.begin(Call::SetLen { path: self.path.clone(), len })?;
        if self.access == Access::Read {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        state.set_len(self.node, len)
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.live()?;
        state.begin(Call::Stat { path: self.path.clone() })?;
        Ok(to_u64(state.file(self.node)?.current.0.len()))
    }
}

/// A lock that is held.
#[derive(Debug)]
struct SimLock {
    file: SimFile,
    sharing: Sharing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Alone,
    Shared,
}

impl Lock for SimLock {
    fn write_text(&self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_at(text.as_bytes(), 0)
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        // After a crash, the lock may be somebody else's.
        if let Ok(mut state) = self.file.live() {
            match self.sharing {
                Sharing::Alone => {
                    state.locks.remove(&self.file.node);
                }
                Sharing::Shared => state.unlock_shared(self.file.node),
            }
        }
    }
}

/// Syncs, or fails to: then what was pending is given up.
fn finish_sync<I: Image>(synced: &mut Cached<I>, begun: Result<(), Injected>) -> io::Result<()> {
    match begun {
        Ok(()) => {
            synced.sync();
            Ok(())
        }
        Err(fault) => {
            synced.fail_sync();
            Err(fault.error)
        }
    }
}

fn open_or_create(state: &mut State, path: &Path) -> io::Result<NodeId> {
    match state.resolve(path, View::Current) {
        Ok(found) => refuse_dir(state, found).map(|()| found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (dir, name) = state.place(path)?;
            state.create(dir, name, Node::File(Cached::new()))
        }
        Err(error) => Err(error),
    }
}

fn refuse_dir(state: &State, node: NodeId) -> io::Result<()> {
    if state.is_dir(node) {
        let message = "not a regular file but a directory";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}
