//! Snapshots: the folds of a session at a position, so that opening it costs what came since, not its history.
//!
//! Two files take turns, so that one is whole while the other is written. They are not synced: each is bound to a place
//! in the log by position and chain hash, and one that is torn, old, of another version or another log's is not used.
//! Whatever is wrong with them, the log is folded whole.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | the length of the place, little endian |
//! | 4.. | the place in the log, as a [stored value](sessionlog_codec::stored) |
//! | .. | its chain hash again, and the folds, as another one |
//!
//! The place comes first and is read by itself: whoever wants the end of a transcript needs no folds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sessionlog_codec::ids::Digest;
use sessionlog_codec::stored;

use super::erasure::remove_if_there;
use super::folds::Folds;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Cursor, DurableEnd, LogReader};
use crate::num::{to_u64, to_usize};
use crate::storage::{Access, Storage, StorageFile};

/// The version of the folds. It goes up with every change of what a fold keeps or means: a snapshot of another version is
/// not used.
const VERSION: u16 = 2;

const DIR: &str = "snapshots";
const NAMES: [&str; 2] = ["0.snapshot", "1.snapshot"];

/// The longest snapshot that is written or read, in bytes. A session whose folds are longer is folded whole.
const LEN_MAX: u64 = 16 << 20;

/// How much of a file is read to find out which place it is of, in bytes: most places are shorter.
const PLACE_READ: usize = 4 << 10;
/// The longest place, in bytes.
const PLACE_LEN_MAX: usize = 64 << 10;
const LEN_LEN: usize = 4;

/// When a session's folds are kept beside its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotPolicy {
    /// Never: opening a session reads all of its log.
    Off,
    /// At the end of a turn and at close, as soon as there are so many records since the last time.
    Every {
        /// The records.
        records: u64,
        /// How many of the newest messages of each conversation stay known. An event about an older one makes the session
        /// read its log whole, once.
        messages: u64,
    },
}

impl Default for SnapshotPolicy {
    fn default() -> Self {
        Self::Every { records: 1024, messages: 64 }
    }
}

impl SnapshotPolicy {
    /// Whether it is time, that many records after the last snapshot.
    pub(super) fn is_due(self, since: u64, moment: Moment) -> bool {
        match (self, moment) {
            (Self::Off, _) => false,
            (Self::Every { records, .. }, Moment::TurnEnd) => since >= records,
            // Whoever does not say where turns end is not left without.
            (Self::Every { records, .. }, Moment::Append) => since >= records.saturating_mul(4),
            // The next one to open it is spared that much.
            (Self::Every { records, .. }, Moment::Close) => since >= records.div_ceil(4),
        }
    }
}

/// When it is considered to take a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Append,
    TurnEnd,
    Close,
}

/// The folds, with the place that they are of: a file that is half of one snapshot and half of another is none.
#[derive(Serialize, Deserialize)]
struct Bound {
    chain: Digest,
    folds: Folds,
}

/// A snapshot's file, of which only the place was read.
struct Opened {
    no: usize,
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    end: DurableEnd,
    /// Where the folds begin, and how long the file is.
    folds: (u64, u64),
}

/// The snapshots of one session.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
}

impl Snapshots {
    pub(crate) fn of(storage: &Arc<dyn Storage>, session: &Path) -> Self {
        Self { storage: Arc::clone(storage), dir: session.join(DIR) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The newest folds that the log bears out.
    ///
    /// # Errors
    /// `Io` if the log can't be read. Whatever is wrong with a snapshot is no error.
    pub(crate) fn load(&self, log: &LogReader) -> Result<Option<Loaded>> {
        for opened in self.newest_first() {
            let Some(cursor) = cursor_behind(log, &opened)? else { continue };
            match opened.folds() {
                Ok(folds) => return Ok(Some(Loaded { end: opened.end, cursor, folds, file: opened.no })),
                Err(error) => not_used(&opened.path, &error),
            }
        }
        Ok(None)
    }

    /// The newest place that the log bears out, without the folds, and what gives what came behind it.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(crate) fn end(&self, log: &LogReader) -> Result<Option<(DurableEnd, Cursor)>> {
        for opened in self.newest_first() {
            if let Some(cursor) = cursor_behind(log, &opened)? {
                return Ok(Some((opened.end, cursor)));
            }
        }
        Ok(None)
    }

    /// The files that can be read, the newest place first.
    fn newest_first(&self) -> Vec<Opened> {
        let mut found = Vec::new();
        for (no, name) in NAMES.iter().enumerate() {
            match self.open(no, name) {
                Ok(opened) => found.extend(opened),
                Err(error) => not_used(&self.path(name), &error),
            }
        }
        found.sort_by_key(|opened| std::cmp::Reverse(opened.end.mark.next));
        found
    }

    fn open(&self, no: usize, name: &str) -> Result<Option<Opened>> {
        let path = self.path(name);
        let file = match self.storage.open(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("opening", &path, error)),
        };
        let len = file.len().map_err(|e| Error::io("measuring", &path, e))?;
        let damaged = |message| Err(Error::new(ErrorKind::Corrupt, "snapshot.damaged", message));
        if len > LEN_MAX {
            return damaged(format!("{} is {len} bytes long, more than any snapshot", path.display()));
        }
        let mut bytes = read(&path, &*file, 0, PLACE_READ)?;
        let place_len = bytes.first_chunk().map_or(0, |len| to_usize(u32::from_le_bytes(*len).into()));
        if place_len > PLACE_LEN_MAX {
            return damaged(format!("{} has a place of {place_len} bytes, more than any", path.display()));
        }
        let place = LEN_LEN..place_len.saturating_add(LEN_LEN);
        if bytes.len() < place.end {
            bytes = read(&path, &*file, 0, place.end)?;
        }
        let stored = bytes.get(place.clone()).unwrap_or_default();
        let end = stored::decode(VERSION, stored).map_err(|error| Error::decode(&path, 0, error))?;
        Ok(Some(Opened { no, path, file, end, folds: (to_u64(place.end), len) }))
    }

    /// Writes the folds as of the log's end, over the older one of the two files.
    ///
    /// # Errors
    /// `Io` or `Full` if it can't be written: then there is the one before, or none. `Invalid` if the folds are too long.
    pub(crate) fn write(&self, end: DurableEnd, folds: Folds, newest: Option<usize>) -> Result<usize> {
        let place = stored::encode(VERSION, &end)?;
        let place_len = u32::try_from(place.len()).unwrap_or(u32::MAX);
        let mut bytes = place_len.to_le_bytes().to_vec();
        bytes.extend_from_slice(&place);
        bytes.extend_from_slice(&stored::encode(VERSION, &Bound { chain: end.mark.chain, folds })?);
        if bytes.len() > to_usize(LEN_MAX) {
            return Err(Error::invalid("snapshot.length", "the folds are longer than a snapshot may be"));
        }
        let file_no = newest.map_or(0, |newest| newest.wrapping_add(1) % NAMES.len());
        let path = self.path(NAMES.get(file_no).copied().unwrap_or_default());
        self.storage.create_dir(&self.dir).map_err(|e| Error::io("creating", &self.dir, e))?;
        let file = match self.storage.open(&path, Access::ReadWrite) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.storage.create_new(&path),
            other => other,
        };
        let file = file.map_err(|e| Error::io("opening", &path, e))?;
        file.write_at(&bytes, 0)
            .and_then(|()| file.set_len(to_u64(bytes.len())))
            .map_err(|e| Error::io("writing", &path, e))?;
        Ok(file_no)
    }

    /// Removes both, durably: they hold what must not be found any more.
    ///
    /// # Errors
    /// `Io` if one may still be there.
    pub(crate) fn discard(&self) -> Result<()> {
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("snapshots_outlive_erasure") {
            return Ok(());
        }
        let mut removed = false;
        for name in NAMES {
            removed |= remove_if_there(&*self.storage, &self.path(name))?;
        }
        if removed { self.storage.sync_dir(&self.dir).map_err(|e| Error::sync(&self.dir, e)) } else { Ok(()) }
    }
}

impl Opened {
    fn folds(&self) -> Result<Folds> {
        let (at, len) = self.folds;
        let bytes = read(&self.path, &*self.file, at, to_usize(len.saturating_sub(at)))?;
        let bound: Bound =
            stored::decode(VERSION, &bytes).map_err(|error| Error::decode(&self.path, at, error))?;
        if bound.chain != self.end.mark.chain {
            let message = format!("{}: the folds are of another place in the log", self.path.display());
            return Err(Error::new(ErrorKind::Corrupt, "snapshot.damaged", message));
        }
        Ok(bound.folds)
    }
}

fn cursor_behind(log: &LogReader, opened: &Opened) -> Result<Option<Cursor>> {
    let cursor = log.cursor_behind(&opened.end.mark)?;
    if cursor.is_none() {
        let file = opened.path.display();
        tracing::warn!(%file, "a snapshot is of what the log does not have any more");
    }
    Ok(cursor)
}

fn not_used(path: &Path, error: &Error) {
    tracing::warn!(file = %path.display(), %error, "a snapshot is not used");
}

fn read(path: &Path, file: &dyn StorageFile, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, offset).map_err(|e| Error::io("reading", path, e))?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Folds that the log bears out.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Where the log ended then.
    pub(crate) end: DurableEnd,
    /// Gives what came behind them.
    pub(crate) cursor: Cursor,
    pub(crate) folds: Folds,
    pub(crate) file: usize,
}
