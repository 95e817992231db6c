//! What the tests of the log share: a storage to start from, batches whose content tells which they are, and reading.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod counted;
pub(crate) mod hooked;
pub(crate) mod patched;
pub(crate) mod quiet;
pub(crate) mod recall;
pub(crate) mod sample;
pub(crate) mod tree;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog::Result;
use sessionlog::log::{
    Batch, Gap, LogDir, LogOptions, LogReader, LogRecovery, LogWriter, NewRecord, ReadItem, Recovering,
    TailState,
};
use sessionlog::storage::{CallKind, SimStorage, Storage};
use sessionlog_codec::ids::{IdempotencyKey, KindNo, LogId, NodeId, Position, SchemaVersion, Timestamp};
use sessionlog_codec::record::{Criticality, Envelope, Payload, TimeOrigin};

pub(crate) const LOG: LogId = LogId([7; 16]);
pub(crate) const SEGMENTS: &str = "log/segments";
pub(crate) const QUARANTINE: &str = "log/quarantine";

/// splitmix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(crate) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(u64::try_from(bound).unwrap())).unwrap()
    }
}

/// A record as it was appended or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) position: Position,
    pub(crate) envelope: Envelope,
    pub(crate) payload: Vec<u8>,
}

/// A disk with the (durable) directories that a log lives in.
pub(crate) fn disk() -> SimStorage {
    let storage = SimStorage::new();
    for (path, parent) in [("log", "."), (SEGMENTS, "log")] {
        storage.create_dir(Path::new(path)).unwrap();
        storage.sync_dir(Path::new(parent)).unwrap();
    }
    storage.take_calls();
    storage
}

pub(crate) fn dir(storage: &SimStorage) -> LogDir {
    dir_on(Arc::new(storage.clone()))
}

pub(crate) fn dir_on(storage: Arc<dyn Storage>) -> LogDir {
    LogDir { storage, segments: SEGMENTS.into(), quarantine: QUARANTINE.into() }
}

pub(crate) fn options(segment_len: u64, fill_len: u64) -> LogOptions {
    LogOptions { segment_len, fill_len }
}

pub(crate) fn create(storage: &SimStorage, options: LogOptions) -> LogWriter {
    LogWriter::create(dir(storage), options, LOG).unwrap()
}

pub(crate) fn open(storage: &SimStorage, options: LogOptions) -> Result<(LogWriter, LogRecovery)> {
    Recovering::open(dir(storage), options, Position::START)?.finish()
}

/// Records of these payload lengths, different for every tag, with every envelope field used by some.
pub(crate) fn records(tag: u64, lens: &[usize]) -> Vec<NewRecord> {
    let record = |(nth, len): (usize, &usize)| {
        let nth = u64::try_from(nth).unwrap();
        let number = u32::try_from((tag + nth) % 5).unwrap();
        let envelope = Envelope {
            node: NodeId(number),
            kind: KindNo(u16::try_from(20 + tag % 9).unwrap()),
            schema: SchemaVersion(1),
            timestamp: Timestamp(i64::try_from(tag * 1000 + nth).unwrap()),
            time_origin: if tag.is_multiple_of(3) { TimeOrigin::Estimated } else { TimeOrigin::Clock },
            criticality: if tag.is_multiple_of(4) {
                Criticality::MustUnderstand
            } else {
                Criticality::Ignorable
            },
            cause: tag.is_multiple_of(2).then_some(Position(tag)),
            key: nth.is_multiple_of(2).then(|| IdempotencyKey([u8::try_from(tag % 251).unwrap(); 16])),
        };
        let mut rng = Rng(tag << 20 | nth);
        let payload = (0..*len).map(|_| u8::try_from(1 + rng.below(255)).unwrap()).collect();
        NewRecord { envelope, payload }
    };
    lens.iter().enumerate().map(record).collect()
}

pub(crate) fn batch(tag: u64, lens: &[usize]) -> Batch {
    Batch::new(records(tag, lens)).unwrap()
}

/// What [`batch`] becomes at a position.
pub(crate) fn logged(first: Position, tag: u64, lens: &[usize]) -> Vec<Logged> {
    let records = records(tag, lens).into_iter().zip(first.0..);
    let place = |(NewRecord { envelope, payload }, position)| Logged {
        position: Position(position),
        envelope,
        payload,
    };
    records.map(place).collect()
}

/// All that a reader came across.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) records: Vec<Logged>,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) tail: TailState,
}

pub(crate) fn read_on(dir: LogDir, from: Position) -> Result<Seen> {
    let (mut records, mut gaps) = (Vec::new(), Vec::new());
    let tail = LogReader::new(dir).read(from, &mut |item| {
        match item {
            ReadItem::Record(record) => {
                let Payload::Present(payload) = record.payload else { panic!("a redacted payload") };
                records.push(Logged {
                    position: record.position,
                    envelope: record.envelope,
                    payload: payload.to_vec(),
                });
            }
            ReadItem::Gap(gap) => gaps.push(gap),
        }
        ControlFlow::Continue(())
    })?;
    Ok(Seen { records, gaps, tail })
}

pub(crate) fn read(storage: &SimStorage, from: Position) -> Result<Seen> {
    read_on(dir(storage), from)
}

/// The records of a log that has no gap.
pub(crate) fn all(storage: &SimStorage) -> Vec<Logged> {
    let seen = read(storage, Position(1)).unwrap();
    assert_eq!(seen.gaps, []);
    seen.records
}

/// Every file and its bytes.
pub(crate) fn content(storage: &SimStorage) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = storage.files();
    files.into_iter().map(|path| (path.clone(), storage.read_file(&path).unwrap())).collect()
}

/// The segment that a file stands for, if it is compressed; else the file's bytes.
pub(crate) fn unpacked(bytes: Vec<u8>) -> Vec<u8> {
    #[cfg(feature = "compression")]
    if let Ok(head) = sessionlog_codec::packed::PackedHead::decode(&bytes) {
        let mut segment = head.header.to_vec();
        for block in &head.blocks {
            let start = usize::try_from(block.stored_offset).unwrap();
            let stored = &bytes[start..start + block.stored_len];
            segment.extend(zstd::bulk::decompress(stored, block.len).unwrap());
        }
        return segment;
    }
    bytes
}

/// The last of `items`, as a position; [`Position::START`] if there is none.
pub(crate) fn last(items: &[Logged]) -> Position {
    items.last().map_or(Position::START, |record| record.position)
}

pub(crate) fn is_sync(kind: CallKind) -> bool {
    matches!(kind, CallKind::SyncData | CallKind::SyncAll | CallKind::SyncDir)
}
