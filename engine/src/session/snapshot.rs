//! Snapshots: the folds of a session at a position, so that opening it costs what came since, not its history.
//!
//! Two files take turns, so that one is whole while the other is written. They are not synced: each is bound to a place
//! in the log by position and chain hash, and one that is torn, old, of another version or another log's is not used.
//! Whatever is wrong with them, the log is folded whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sessionlog_codec::stored;

use super::erasure::remove_if_there;
use super::folds::Folds;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Cursor, DurableEnd, LogReader};
use crate::num::to_usize;
use crate::storage::{Access, Storage};

/// The version of the folds. It goes up with every change of what a fold keeps or means: a snapshot of another version is
/// not used.
const VERSION: u16 = 1;

const DIR: &str = "snapshots";
const NAMES: [&str; 2] = ["0.snapshot", "1.snapshot"];

/// The longest snapshot that is written or read, in bytes. A session whose folds are longer is folded whole.
const LEN_MAX: u64 = 16 << 20;

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

#[derive(Serialize, Deserialize)]
struct Snapshot {
    end: DurableEnd,
    folds: Folds,
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
        let mut found: Vec<(usize, Snapshot)> = Vec::new();
        for (file, name) in NAMES.iter().enumerate() {
            match self.read(name) {
                Ok(Some(snapshot)) => found.push((file, snapshot)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(file = %self.path(name).display(), %error, "a snapshot is not used");
                }
            }
        }
        found.sort_by_key(|(_, snapshot)| std::cmp::Reverse(snapshot.end.mark.next));
        for (file, Snapshot { end, folds }) in found {
            if let Some(cursor) = log.cursor_behind(&end.mark)? {
                return Ok(Some(Loaded { end, cursor, folds, file }));
            }
            tracing::warn!(file = %self.dir.display(), "a snapshot is of what the log does not have any more");
        }
        Ok(None)
    }

    fn read(&self, name: &str) -> Result<Option<Snapshot>> {
        let path = self.path(name);
        let file = match self.storage.open(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("opening", &path, error)),
        };
        let len = file.len().map_err(|e| Error::io("measuring", &path, e))?;
        if len > LEN_MAX {
            let message = format!("{} is {len} bytes long, more than any snapshot", path.display());
            return Err(Error::new(ErrorKind::Corrupt, "snapshot.damaged", message));
        }
        let mut bytes = vec![0; to_usize(len)];
        let read = file.read_at(&mut bytes, 0).map_err(|e| Error::io("reading", &path, e))?;
        bytes.truncate(read);
        stored::decode(VERSION, &bytes).map(Some).map_err(|error| Error::decode(&path, 0, error))
    }

    /// Writes the folds as of the log's end, over the older one of the two files.
    ///
    /// # Errors
    /// `Io` or `Full` if it can't be written: then there is the one before, or none. `Invalid` if the folds are too long.
    pub(crate) fn write(&self, end: DurableEnd, folds: Folds, newest: Option<usize>) -> Result<usize> {
        let bytes = stored::encode(VERSION, &Snapshot { end, folds })?;
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
            .and_then(|()| file.set_len(crate::num::to_u64(bytes.len())))
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
