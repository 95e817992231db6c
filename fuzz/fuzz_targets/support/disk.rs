//! A log on a disk in memory.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog::log::{LogDir, LogOptions, LogReader, ReadItem};
use sessionlog::storage::{SimStorage, Storage};
use sessionlog_codec::ids::{Digest, LogId, Position};
use sessionlog_codec::record::Envelope;

pub const LOG: LogId = LogId([7; 16]);
pub const SEGMENTS: &str = "log/segments";
pub const QUARANTINE: &str = "log/quarantine";
/// Small, so that a short input makes several segments.
pub const OPTIONS: LogOptions = LogOptions { segment_len: 1024, fill_len: 256 };

/// A disk with the directories that a log lives in.
pub fn disk() -> SimStorage {
    let storage = SimStorage::new();
    for (path, parent) in [("log", "."), (SEGMENTS, "log")] {
        storage.create_dir(Path::new(path)).unwrap();
        storage.sync_dir(Path::new(parent)).unwrap();
    }
    storage
}

pub fn dir(storage: &SimStorage) -> LogDir {
    LogDir { storage: Arc::new(storage.clone()), segments: SEGMENTS.into(), quarantine: QUARANTINE.into() }
}

/// Every file and its bytes.
pub fn content(storage: &SimStorage) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = storage.files();
    files.into_iter().map(|path| (path.clone(), storage.read_file(&path).unwrap())).collect()
}

/// A record as it is read: all that a chain hash covers.
pub type Read = (Position, Envelope, Digest);

/// The records of a log, and how many gaps it has; `None` if it can't be read.
pub fn records(storage: &SimStorage) -> Option<(Vec<Read>, usize)> {
    let (mut records, mut gaps) = (Vec::new(), 0);
    let read = LogReader::new(dir(storage)).read(Position(1), &mut |item| {
        match item {
            ReadItem::Record(record) => {
                records.push((record.position, record.envelope, record.payload.digest()));
            }
            ReadItem::Gap(_) => gaps += 1,
        }
        ControlFlow::Continue(())
    });
    read.ok().map(|_| (records, gaps))
}
