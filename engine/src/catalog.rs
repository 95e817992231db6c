//! The catalog: what a listing says of each session, so that thousands are listed without reading an index of each.
//!
//! It is derived and disposable. Each row is bound to where its log ended and to what the file system said of the log then, and
//! is used only while both are so: see `log/stamp.rs` for when the second is enough.
//! The database (sled) is opened for moments, with a bounded wait, since one process at a time may have it. If it is absent,
//! held by another process, damaged or broken in any way, the listing is slower and the same: a damaged one is moved aside
//! and made anew. It never holds anything that the logs do not.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::NodeStatus;
use sessionlog_codec::ids::{NodeId, Position, SessionId, Timestamp};
use sessionlog_codec::stored;
use sessionlog_projections::Lifecycle;

use crate::log::{LogMark, LogStamp};

/// The version of a row's layout. 1: the first; 2: with what the file system said of the log, and whether its end is sound.
/// Rows of another version are made anew, as any row that can't be read.
const ROW_VERSION: u16 = 2;
/// How often the database is tried while another process has it, and how long is waited in between.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(15);
/// Bytes that the database may keep in memory.
const CACHE_LEN: u64 = 8 << 20;

/// What is known of one session tree, and of which log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CatalogEntry {
    pub(crate) mark: LogMark,
    /// What the file system said of the log before it was read, if it said anything.
    pub(crate) seen: Option<Seen>,
    /// The version of this crate that found every record of the log's last segment to be one that it reads.
    pub(crate) ends_well_for: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) lifecycle: Lifecycle,
    /// The root's row, then those of its children.
    pub(crate) rows: Vec<CatalogRow>,
}

/// What the file system said of a log before an entry was made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Seen {
    /// As long as it says the same, the entry is right.
    Proof(LogStamp),
    /// As soon as it says something else, the entry is made anew. Until then, the log's end is looked at.
    Hint(LogStamp),
}

/// A row without what has to be judged anew each time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CatalogRow {
    pub(crate) id: String,
    pub(crate) display_id: String,
    pub(crate) node: NodeId,
    pub(crate) parent: Option<String>,
    pub(crate) forked: Option<(SessionId, Position)>,
    pub(crate) title: Option<String>,
    pub(crate) messages: u64,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) last_activity: Option<Timestamp>,
    pub(crate) model: Option<String>,
    pub(crate) agent: Option<String>,
    /// How a child ended.
    pub(crate) settled: Option<NodeStatus>,
}

/// A row decoded and encoded again; `None` if it is none. For fuzzing.
#[cfg(feature = "sim")]
#[doc(hidden)]
#[must_use]
pub fn recode_row(bytes: &[u8]) -> Option<Vec<u8>> {
    let entry: CatalogEntry = stored::decode(ROW_VERSION, bytes).ok()?;
    stored::encode(ROW_VERSION, &entry).ok()
}

/// The open database, for any number of threads. Dropping it lets others have it.
#[derive(Debug)]
pub(crate) struct Catalog {
    path: PathBuf,
    database: Option<sled::Db>,
    /// Set by the first failure: from then on it knows nothing, and at its end its files are moved away.
    failed: AtomicBool,
}

impl Catalog {
    /// Opens the catalog in `dir`, creating it if there is none; `None` if it can't be had now.
    pub(crate) fn open(dir: &Path) -> Option<Self> {
        let path = dir.join("catalog");
        for attempt in 0..TRIES {
            if attempt > 0 {
                std::thread::sleep(PAUSE);
            }
            let config = sled::Config::new()
                .path(&path)
                .cache_capacity(CACHE_LEN)
                .flush_every_ms(None)
                .print_profile_on_drop(false);
            match catch_unwind(AssertUnwindSafe(|| config.open())) {
                Ok(Ok(database)) => {
                    return Some(Self { path, database: Some(database), failed: AtomicBool::new(false) });
                }
                Ok(Err(sled::Error::Io(error))) if is_held(&error) => {}
                // It can be read at best, and that is not enough.
                Ok(Err(sled::Error::Io(error))) if is_forbidden(&error) => return None,
                failed => {
                    let why = failed.map_or_else(|_| "it panicked".to_owned(), describe);
                    tracing::warn!(catalog = %path.display(), why, "the catalog is damaged and is made anew");
                    set_aside(&path);
                }
            }
        }
        None
    }

    /// What is known of the sessions whose ids are in a range, in order; `None` of one whose entry is odd, which is made anew.
    pub(crate) fn scan(
        &self,
        range: (Bound<SessionId>, Bound<SessionId>),
    ) -> Vec<(SessionId, Option<CatalogEntry>)> {
        let (first, last) = (range.0.map(|id| id.0), range.1.map(|id| id.0));
        let found = self.guarded(|database| {
            let mut found = Vec::new();
            for item in database.range::<[u8; 16], _>((first, last)) {
                let (key, value) = item?;
                match <[u8; 16]>::try_from(&*key) {
                    Ok(id) => found.push((SessionId(id), stored::decode(ROW_VERSION, &value).ok())),
                    Err(_) => drop(database.remove(key)?),
                }
            }
            Ok(found)
        });
        found.unwrap_or_default()
    }

    pub(crate) fn put(&self, session: SessionId, entry: &CatalogEntry) {
        if let Ok(value) = stored::encode(ROW_VERSION, entry) {
            self.guarded(|database| database.insert(session.0, value));
        }
    }

    /// Forgets a session.
    pub(crate) fn remove(&self, session: SessionId) {
        self.guarded(|database| database.remove(session.0));
    }

    /// Does something with the database, unless something failed before.
    fn guarded<T>(&self, act: impl FnOnce(&sled::Db) -> sled::Result<T>) -> Option<T> {
        let database = self.database.as_ref().filter(|_| !self.failed.load(Ordering::Relaxed))?;
        let why = match catch_unwind(AssertUnwindSafe(|| act(database))) {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it panicked".to_owned(),
        };
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(catalog = %self.path.display(), why, "the catalog failed and is made anew");
        }
        None
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        let database = self.database.take();
        // Its threads end with it; a panic among them is no reason to fail a listing.
        drop(catch_unwind(AssertUnwindSafe(|| drop(database))));
        if *self.failed.get_mut() {
            set_aside(&self.path);
        }
    }
}

fn is_held(error: &std::io::Error) -> bool {
    // sled wraps the error of the lock in one of kind `Other`.
    error.kind() == std::io::ErrorKind::WouldBlock || error.to_string().contains("lock")
}

fn is_forbidden(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem)
}

fn describe(opened: sled::Result<sled::Db>) -> String {
    opened.err().map_or_else(String::new, |error| error.to_string())
}

/// Moves a damaged database away, in place of the one that was moved away before.
fn set_aside(path: &Path) {
    let aside = path.with_extension("damaged");
    let gone = match std::fs::metadata(&aside) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(&aside),
        Ok(_) => std::fs::remove_file(&aside),
        Err(_) => Ok(()),
    };
    if let Err(error) = gone.and_then(|()| std::fs::rename(path, &aside)) {
        tracing::warn!(catalog = %path.display(), %error, "the damaged catalog could not be moved away");
    }
}
