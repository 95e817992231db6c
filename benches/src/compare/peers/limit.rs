//! The physical limit: the messages' bytes, encoded before the clock starts, written to a file that is filled with zeros
//! already. No index, no checksum, no name: nothing that one could use.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

use super::{Peer, Promise, Store, Writer};
use crate::Result;
use crate::data::{self, Message};

pub(super) const PEERS: &[Peer] = &[
    Peer {
        name: "limit",
        promise: Promise::Durable,
        open: |dir| Ok(Box::new(Limit::open(dir, Sync::Each)?)),
    },
    Peer {
        name: "limit-group",
        promise: Promise::Durable,
        open: |dir| Ok(Box::new(Limit::open(dir, Sync::Group)?)),
    },
    Peer {
        name: "limit-buffered",
        promise: Promise::Written,
        open: |dir| Ok(Box::new(Limit::open(dir, Sync::Never)?)),
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    /// A file for each session, synced with each commit.
    Each,
    /// One file for all sessions, synced once for all commits that wait.
    Group,
    Never,
}

struct Limit {
    dir: PathBuf,
    sync: Sync,
    group: Group,
    /// Where each message of a session ends, in bytes: written beside it at the end.
    ends: Mutex<BTreeMap<u64, Vec<u64>>>,
}

impl Limit {
    fn open(dir: &Path, sync: Sync) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let group =
            Group { file: create(&dir.join("group"))?, state: Mutex::default(), synced: Condvar::new() };
        Ok(Self { dir: dir.to_owned(), sync, group, ends: Mutex::default() })
    }

    fn path(&self, session: u64, kind: &str) -> PathBuf {
        self.dir.join(format!("{session}.{kind}"))
    }

    /// The messages from the `first`-th on, counted by `first` from how many there are.
    fn read(&self, session: u64, first: impl FnOnce(usize) -> usize) -> Result<Vec<Message>> {
        let ends = std::fs::read(self.path(session, "ends"))?;
        let ends: Vec<usize> =
            ends.chunks_exact(8).map(|end| usize::from_le_bytes(end.try_into().unwrap())).collect();
        let first = first(ends.len());
        let mut start = first.checked_sub(1).map_or(0, |before| ends[before]);
        let file = File::open(self.path(session, "bytes"))?;
        let (mut messages, mut buffer) = (Vec::with_capacity(ends.len() - first), Vec::new());
        // A megabyte or so at a time, so that what is decoded is still in the processor's cache.
        let mut rest = &ends[first..];
        while !rest.is_empty() {
            let count = rest.iter().take_while(|end| **end - start <= 1 << 20).count().max(1);
            buffer.resize(rest[count - 1] - start, 0);
            file.read_exact_at(&mut buffer, u64::try_from(start)?)?;
            let mut at = 0;
            for end in &rest[..count] {
                messages.push(data::decode(&buffer[at..end - start])?);
                at = end - start;
            }
            start = rest[count - 1];
            rest = &rest[count..];
        }
        Ok(messages)
    }
}

fn create(path: &Path) -> Result<File> {
    Ok(OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?)
}

fn fill(file: &File, from: u64, to: u64) -> Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut at = from;
    while at < to {
        let len = usize::try_from(to - at)?.min(zeros.len());
        file.write_all_at(&zeros[..len], at)?;
        at += u64::try_from(len)?;
    }
    Ok(file.sync_all()?)
}

impl Store for Limit {
    fn begin(&self, session: u64, messages: &[Message]) -> Result<Box<dyn Writer + '_>> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for message in messages {
            bytes.extend(data::encode(message)?);
            ends.push(bytes.len());
        }
        let len = u64::try_from(bytes.len())?;
        let file = match self.sync {
            Sync::Group => {
                let mut state = self.group.state.lock().unwrap_or_else(PoisonError::into_inner);
                fill(&self.group.file, state.filled, state.filled + len)?;
                state.filled += len;
                None
            }
            Sync::Each | Sync::Never => {
                let file = create(&self.path(session, "bytes"))?;
                fill(&file, 0, len)?;
                Some(file)
            }
        };
        File::open(&self.dir)?.sync_all()?;
        let kept = ends.iter().map(|end| u64::try_from(*end)).collect::<std::result::Result<_, _>>()?;
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).insert(session, kept);
        Ok(Box::new(LimitWriter { limit: self, file, bytes, ends, sent: 0, next: 0 }))
    }

    fn load(&self, session: u64) -> Result<Vec<Message>> {
        self.read(session, |_| 0)
    }

    fn tail(&self, session: u64, n: usize) -> Result<Vec<Message>> {
        self.read(session, |count| count.saturating_sub(n))
    }

    fn close(self: Box<Self>) -> Result<()> {
        for (session, ends) in self.ends.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let bytes: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
            std::fs::write(self.path(*session, "ends"), bytes)?;
        }
        Ok(())
    }
}

struct LimitWriter<'a> {
    limit: &'a Limit,
    file: Option<File>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    sent: usize,
    next: usize,
}

impl Writer for LimitWriter<'_> {
    fn append(&mut self, messages: &[Message]) -> Result<()> {
        self.next += messages.len();
        let end = self.ends[self.next - 1];
        let bytes = &self.bytes[self.sent..end];
        match &self.file {
            Some(file) => {
                file.write_all_at(bytes, u64::try_from(self.sent)?)?;
                if self.limit.sync == Sync::Each {
                    file.sync_data()?;
                }
            }
            None => self.limit.group.append(bytes)?,
        }
        self.sent = end;
        Ok(())
    }
}

/// One file for all: the first that finds nobody syncing writes all that waits, and syncs once.
struct Group {
    file: File,
    state: Mutex<GroupState>,
    synced: Condvar,
}

#[derive(Default)]
struct GroupState {
    waiting: Vec<u8>,
    at: u64,
    filled: u64,
    /// Commits that were queued, and that are durable.
    queued: u64,
    durable: u64,
    leading: bool,
}

impl Group {
    fn append(&self, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.extend_from_slice(bytes);
        state.queued += 1;
        let mine = state.queued;
        while state.durable < mine {
            if state.leading {
                state = self.synced.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.leading = true;
            let (group, at, upto) = (std::mem::take(&mut state.waiting), state.at, state.queued);
            state.at += u64::try_from(group.len())?;
            drop(state);
            self.file.write_all_at(&group, at)?;
            self.file.sync_data()?;
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.durable = upto;
            state.leading = false;
            self.synced.notify_all();
        }
        Ok(())
    }
}
