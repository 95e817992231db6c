//! The simulated disk: inodes, the tree of names, locks, and what was called.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar};

use sessionlog_codec::ids::Timestamp;

use super::CrashMode;
use super::call::{Call, CallKind, Faults, Injected};
use super::image::{Cached, DirImage, DirOp, FileImage, FileOp, NodeId, Rng};
use crate::storage::{DirEntry, EntryKind};

/// The inode of the root directory.
const ROOT: NodeId = 0;
/// The longest file in bytes. Simulated files are in memory, holes included.
const MAX_FILE_LEN: usize = 1 << 30;
/// The system's error numbers, the same on all Unix systems.
const ENOSPC: i32 = 28;
const EFBIG: i32 = 27;

/// An inode.
#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Cached<FileImage>),
    Dir(Cached<DirImage>),
}

/// Which of a directory's names to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// What calls see.
    Current,
    /// What survives a loss of power for certain.
    Durable,
}

/// Everything behind the lock of a `SimStorage`.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// How many crashes there were: a handle with another number is dead.
    pub(super) generation: u64,
    pub(super) calls: Vec<Call>,
    pub(super) faults: Faults,
    pub(super) capacity: Option<u64>,
    pub(super) locks: BTreeSet<NodeId>,
    /// How many hold each lock that is shared.
    pub(super) shared_locks: BTreeMap<NodeId, u32>,
    /// The times that files were given: now, and as a loss of power leaves them.
    times: BTreeMap<NodeId, (Timestamp, Timestamp)>,
    /// How many calls changed something in a directory; and whom that wakes.
    changes: BTreeMap<PathBuf, u64>,
    pub(super) woken: Arc<Condvar>,
    nodes: BTreeMap<NodeId, Node>,
    next_node: NodeId,
}

impl Default for State {
    fn default() -> Self {
        Self {
            generation: 0,
            calls: Vec::new(),
            faults: Faults::default(),
            capacity: None,
            locks: BTreeSet::new(),
            shared_locks: BTreeMap::new(),
            times: BTreeMap::new(),
            changes: BTreeMap::new(),
            woken: Arc::default(),
            nodes: BTreeMap::from([(ROOT, Node::Dir(Cached::new()))]),
            next_node: ROOT + 1,
        }
    }
}

impl State {
    /// Lists a call and lets the faults see it.
    pub(super) fn begin(&mut self, call: Call) -> Result<(), Injected> {
        let checked = self.faults.check(&call);
        // No system tells of syncs.
        if call.changes_disk()
            && !matches!(call.kind(), CallKind::SyncData | CallKind::SyncAll | CallKind::SyncDir)
        {
            let to = match &call {
                Call::Rename { to, .. } | Call::HardLink { to, .. } => Some(to.as_path()),
                _ => None,
            };
            for path in [Some(call.path()), to].into_iter().flatten() {
                let dir = Self::spelled(path.parent().unwrap_or(path));
                let changes = self.changes.entry(dir).or_default();
                *changes = changes.saturating_add(1);
            }
            self.woken.notify_all();
        }
        self.calls.push(call);
        checked
    }

    /// A path as one of its spellings.
    pub(super) fn spelled(path: &Path) -> PathBuf {
        components(path).unwrap_or_default().into_iter().collect()
    }

    /// How often something in a directory changed. A crash changes everything.
    pub(super) fn changes_in(&self, dir: &Path) -> u64 {
        self.changes.get(dir).copied().unwrap_or(0).saturating_add(self.generation)
    }

    pub(super) fn crash(&mut self, mode: CrashMode) {
        self.generation += 1;
        self.woken.notify_all();
        self.locks.clear();
        self.shared_locks.clear();
        self.faults = Faults::default();
        match mode {
            CrashMode::KeepAll => return,
            CrashMode::LoseAll => self.nodes.values_mut().for_each(|node| node.lose_power(None)),
            CrashMode::Seeded(seed) => {
                let mut rng = Rng::new(seed);
                self.nodes.values_mut().for_each(|node| node.lose_power(Some(&mut rng)));
            }
        }
        self.times.values_mut().for_each(|(now, durable)| *now = *durable);
        let reachable: BTreeSet<_> = self.walk().into_iter().map(|(_, id)| id).collect();
        self.nodes.retain(|id, _| *id == ROOT || reachable.contains(id));
    }

    /// When a file was touched: of one that never was, the beginning of time.
    pub(super) fn modified(&self, id: NodeId) -> Timestamp {
        self.times.get(&id).map_or(Timestamp(0), |(now, _)| *now)
    }

    pub(super) fn touch(&mut self, id: NodeId, at: Timestamp) {
        self.times.entry(id).or_insert((Timestamp(0), Timestamp(0))).0 = at;
    }

    pub(super) fn sync_time(&mut self, id: NodeId) {
        if let Some((now, durable)) = self.times.get_mut(&id) {
            *durable = *now;
        }
    }

    pub(super) fn unlock_shared(&mut self, id: NodeId) {
        let left = self.shared_locks.get(&id).map_or(0, |holders| holders.saturating_sub(1));
        match left {
            0 => self.shared_locks.remove(&id),
            left => self.shared_locks.insert(id, left),
        };
    }

    /// Paths and inodes of everything but the root, sorted by path. A directory that a crash left with two names is
    /// listed under both, and walked once.
    pub(super) fn walk(&self) -> Vec<(PathBuf, NodeId)> {
        let mut found = Vec::new();
        let mut walked = BTreeSet::from([ROOT]);
        let mut todo = vec![(PathBuf::new(), ROOT)];
        while let Some((path, id)) = todo.pop() {
            let Some(Node::Dir(dir)) = self.nodes.get(&id) else { continue };
            for (name, child) in &dir.current.0 {
                let path = path.join(name);
                found.push((path.clone(), *child));
                if self.is_dir(*child) && walked.insert(*child) {
                    todo.push((path, *child));
                }
            }
        }
        found.sort();
        found
    }

    /// The inode at `path`.
    pub(super) fn resolve(&self, path: &Path, view: View) -> io::Result<NodeId> {
        self.follow(&components(path)?, view)
    }

    /// The directory that `path` is in, and its name there.
    pub(super) fn place(&self, path: &Path) -> io::Result<(NodeId, OsString)> {
        let names = components(path)?;
        let (name, parents) = names.split_last().ok_or(io::ErrorKind::ResourceBusy)?;
        let dir = self.follow(parents, View::Current)?;
        self.dir(dir)?;
        Ok((dir, (*name).to_owned()))
    }

    /// What `name` is in a directory, if anything.
    pub(super) fn lookup(&self, dir: NodeId, name: &OsStr) -> io::Result<Option<NodeId>> {
        Ok(self.dir(dir)?.current.0.get(name).copied())
    }

    pub(super) fn is_dir(&self, id: NodeId) -> bool {
        matches!(self.nodes.get(&id), Some(Node::Dir(_)))
    }

    pub(super) fn file(&self, id: NodeId) -> io::Result<&Cached<FileImage>> {
        match self.nodes.get(&id) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn file_mut(&mut self, id: NodeId) -> io::Result<&mut Cached<FileImage>> {
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn dir(&self, id: NodeId) -> io::Result<&Cached<DirImage>> {
        match self.nodes.get(&id) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn dir_mut(&mut self, id: NodeId) -> io::Result<&mut Cached<DirImage>> {
        match self.nodes.get_mut(&id) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// A new inode, which has no name yet.
    pub(super) fn add(&mut self, node: Node) -> NodeId {
        let id = self.next_node;
        self.next_node += 1;
        self.nodes.insert(id, node);
        id
    }

    /// A new inode with a name, which is not durable yet.
    pub(super) fn create(&mut self, dir: NodeId, name: OsString, node: Node) -> io::Result<NodeId> {
        let id = self.add(node);
        self.dir_mut(dir)?.apply(DirOp::Link(name, id));
        Ok(id)
    }

    /// What a listing says of an inode.
    pub(super) fn describe(&self, name: &OsStr, id: NodeId) -> DirEntry {
        let (kind, len) = match self.nodes.get(&id) {
            Some(Node::File(file)) => (EntryKind::File, to_u64(file.current.0.len())),
            _ => (EntryKind::Dir, 0),
        };
        DirEntry { name: name.to_owned(), kind, len }
    }

    /// Renames as the system does, including what it refuses.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, from_name) = self.place(from)?;
        let (to_dir, to_name) = self.place(to)?;
        let node = self.lookup(from_dir, &from_name)?.ok_or(io::ErrorKind::NotFound)?;
        let (from_names, to_names) = (components(from)?, components(to)?);
        if from_names.len() < to_names.len() && to_names.starts_with(&from_names) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if to_names.len() < from_names.len() && from_names.starts_with(&to_names) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        if let Some(replaced) = self.lookup(to_dir, &to_name)? {
            if replaced == node {
                return Ok(());
            }
            match (self.is_dir(node), self.dir(replaced)) {
                (true, Err(error)) => return Err(error),
                (false, Ok(_)) => return Err(io::ErrorKind::IsADirectory.into()),
                (true, Ok(dir)) if !dir.current.0.is_empty() => {
                    return Err(io::ErrorKind::DirectoryNotEmpty.into());
                }
                _ => {}
            }
        }
        if from_dir == to_dir {
            self.dir_mut(from_dir)?.apply(DirOp::Rename(from_name, to_name, node));
        } else {
            self.dir_mut(to_dir)?.apply(DirOp::Link(to_name, node));
            self.dir_mut(from_dir)?.apply(DirOp::Unlink(from_name));
        }
        Ok(())
    }

    /// Writes what the disk has room for; an error if that is not all.
    pub(super) fn write(&mut self, id: NodeId, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = offset.saturating_add(bytes.len());
        let growth = self.growth(id, end)?;
        let missing = usize::try_from(growth.saturating_sub(self.room())).unwrap_or(usize::MAX);
        let fits = bytes.get(..bytes.len().saturating_sub(missing)).unwrap_or_default();
        if !fits.is_empty() {
            self.file_mut(id)?.apply(FileOp::Write { offset, bytes: fits.to_vec() });
        }
        if missing > 0 { Err(io::Error::from_raw_os_error(ENOSPC)) } else { Ok(()) }
    }

    /// Sets a file's length, if the disk has room for it.
    pub(super) fn set_len(&mut self, id: NodeId, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if self.growth(id, len)? > self.room() {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        self.file_mut(id)?.apply(FileOp::SetLen(len));
        Ok(())
    }

    /// Creates or replaces a file, durably, with the directories that lead to it.
    pub(super) fn put(&mut self, path: &Path, bytes: Vec<u8>) -> io::Result<()> {
        let names = components(path)?;
        let (name, parents) = names.split_last().ok_or(io::ErrorKind::ResourceBusy)?;
        let mut dir = ROOT;
        for parent in parents {
            dir = self.link_durably(dir, parent, Node::Dir(Cached::new()))?;
        }
        let file = self.link_durably(dir, name, Node::File(Cached::new()))?;
        self.file_mut(file)?.replace(FileImage(bytes));
        Ok(())
    }

    /// The inode that has the name, or `new`; under that name for good.
    fn link_durably(&mut self, dir: NodeId, name: &OsStr, new: Node) -> io::Result<NodeId> {
        let id = match self.lookup(dir, name)? {
            Some(id) => id,
            None => self.add(new),
        };
        self.dir_mut(dir)?.apply_durably(DirOp::Link(name.to_owned(), id));
        Ok(id)
    }

    fn follow(&self, names: &[&OsStr], view: View) -> io::Result<NodeId> {
        names.iter().try_fold(ROOT, |dir, name| {
            let dir = self.dir(dir)?;
            let known = match view {
                View::Current => Cow::Borrowed(&dir.current),
                View::Durable => Cow::Owned(dir.durable()),
            };
            known.0.get(*name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    /// By how many bytes a file grows if it is to end at `end`.
    fn growth(&self, id: NodeId, end: usize) -> io::Result<u64> {
        if end > MAX_FILE_LEN {
            return Err(io::Error::from_raw_os_error(EFBIG));
        }
        Ok(to_u64(end.saturating_sub(self.file(id)?.current.0.len())))
    }

    /// How many bytes the disk still takes.
    fn room(&self) -> u64 {
        let Some(capacity) = self.capacity else { return u64::MAX };
        let files: BTreeSet<_> = self.walk().into_iter().map(|(_, id)| id).collect();
        let used = files.iter().filter_map(|id| self.file(*id).ok()).map(|file| to_u64(file.current.0.len()));
        capacity.saturating_sub(used.sum())
    }
}

impl Node {
    fn lose_power(&mut self, chance: Option<&mut Rng>) {
        match self {
            Self::File(file) => file.lose_power(chance),
            Self::Dir(dir) => dir.lose_power(chance),
        }
    }
}

/// A length as the trait counts it.
pub(super) fn to_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// The names that lead to `path` from the root, which is the current directory too.
fn components(path: &Path) -> io::Result<Vec<&OsStr>> {
    if path.as_os_str().is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                let message = format!("{}: not a path that the simulation takes", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
    }
    Ok(names)
}
