//! What is found in a hurt log, exactly: each way of hurting one, and what it costs.

mod building;
mod files;
#[path = "../../../tests/support/patched.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod patched;
mod pieces;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog_codec::frame::{self, FRAME_MAGIC, Frame, FrameFields};
use sessionlog_codec::ids::{Epoch, KindNo, NodeId, SchemaVersion, Timestamp};
use sessionlog_codec::limits::FRAME_HEADER_LEN;
use sessionlog_codec::record::Envelope;

use self::patched::{frames, insert};
use super::*;
use crate::log::{Batch, Durability, ForkPoint, LogOptions, LogReader, LogWriter, NewRecord};
use crate::storage::{CrashMode, Fault, FaultError, Repeat, SimStorage, Storage};

const LOG: LogId = LogId([7; 16]);
const OPTIONS: LogOptions = LogOptions { segment_len: 600, fill_len: 0 };

fn envelope(kind: u16) -> Envelope {
    Envelope::new(NodeId::ROOT, KindNo(kind), SchemaVersion(1), Timestamp(1))
}

/// A log, closed: 12 frames of one record and of two, in several segments.
struct Made {
    storage: SimStorage,
    dir: LogDir,
}

fn dir_at(storage: &SimStorage, name: &str) -> LogDir {
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let dir = LogDir::below(&shared, Path::new(name));
    for made in [Path::new(name), &dir.segments] {
        storage.create_dir(made).unwrap();
    }
    dir
}

fn made_with(log_id: LogId, fill: u8, durability: Durability) -> Made {
    let storage = SimStorage::new();
    let dir = dir_at(&storage, "x");
    let writer = LogWriter::create(dir.clone(), OPTIONS, log_id).unwrap();
    for tag in 0..12_u16 {
        let record =
            |nth: u16| NewRecord { envelope: envelope(20 + tag), payload: vec![fill; usize::from(90 + nth)] };
        let batch = Batch::new((0..1 + tag % 2).map(record).collect()).unwrap();
        writer.append(batch, durability).unwrap();
    }
    writer.close().unwrap();
    Made { storage, dir }
}

fn made() -> Made {
    made_with(LOG, 1, Durability::Sync)
}

/// The last record of a log that was made.
const LAST: u64 = 18;

impl Made {
    fn names(&self) -> Vec<SegmentName> {
        let list = self.dir.list().unwrap();
        list.into_iter().map(|(name, _)| name).collect()
    }

    fn path(&self, nth: usize) -> PathBuf {
        self.dir.segment_path(self.names()[nth])
    }

    fn change(&self, nth: usize, change: impl FnOnce(&mut Vec<u8>)) {
        self.storage.corrupt(self.path(nth), change).unwrap();
    }

    fn bytes(&self, nth: usize) -> Vec<u8> {
        self.storage.read_file(self.path(nth)).unwrap()
    }

    /// Where the frames of a segment are, its index last.
    fn frames(&self, nth: usize) -> Vec<Range<usize>> {
        frames(&self.bytes(nth))
    }

    /// The positions of a segment.
    fn positions(&self, nth: usize) -> Range<u64> {
        let names = self.names();
        names[nth].0.0..names.get(nth + 1).map_or(LAST + 1, |name| name.0.0)
    }

    fn put(&self, name: &str, bytes: Vec<u8>) {
        self.storage.put_file(self.dir.segments.join(name), bytes).unwrap();
    }

    fn survey(&self) -> Survey {
        let mut read = 0;
        let found = survey(&self.dir, &mut |bytes| read += bytes).unwrap();
        let all: usize = (0..self.names().len()).map(|nth| self.bytes(nth).len()).sum();
        assert_eq!(read, to_u64(all), "all that is read is told");
        found
    }

    fn layout(&self) -> Layout {
        self.survey().layout(None).unwrap()
    }

    /// The one span that is lost.
    fn span(&self) -> LostSpan {
        let mut spans = self.layout().spans;
        assert_eq!(spans.len(), 1, "{spans:#?}");
        spans.remove(0)
    }
}

/// The positions of all records that are there, those of lost spans in brackets, and where the chain breaks.
fn walked(layout: &Layout) -> String {
    let mut told = Vec::new();
    layout
        .walk(&mut |_| {}, &mut |item| {
            match item {
                Item::Frame { frame, link, .. } => {
                    let positions = frame.records().iter().map(|record| record.position.to_string());
                    let positions: Vec<_> = positions.collect();
                    let broken = if link == Link::Broken { "!" } else { "" };
                    told.push(format!("{broken}{}", positions.join(" ")));
                }
                Item::Span { span, .. } => told.push(match span.loss.positions() {
                    Some((first, last)) => format!("[{first}-{last}]"),
                    None => "[]".to_owned(),
                }),
            }
            Ok(())
        })
        .unwrap();
    told.join(" ")
}

/// The same without spans that cost nothing.
fn records(layout: &Layout) -> String {
    let told = walked(layout);
    told.split(' ').filter(|item| *item != "[]").collect::<Vec<_>>().join(" ")
}

fn whole() -> String {
    (1..=LAST).map(|position| position.to_string()).collect::<Vec<_>>().join(" ")
}

/// The text of all that is there but some, in brackets.
fn without(lost: Range<u64>) -> String {
    let place = format!("[{}-{}]", lost.start, lost.end - 1);
    let told = (1..=LAST).filter_map(|position| match position {
        position if position == lost.start => Some(place.clone()),
        position if lost.contains(&position) => None,
        position => Some(position.to_string()),
    });
    told.collect::<Vec<_>>().join(" ")
}

fn acknowledged(lost: Range<u64>) -> Loss {
    Loss::Acknowledged { first: Position(lost.start), last: Position(lost.end - 1) }
}

#[test]
fn of_a_healthy_log_nothing_is_missing() {
    let made = made();
    assert!(made.names().len() > 3);
    let survey = made.survey();
    assert_eq!((survey.left_out.len(), survey.begun), (0, None));
    for (nth, file) in survey.files.iter().enumerate() {
        assert_eq!(file.next(), Position(made.positions(nth).end));
        assert_eq!((file.len, to_u64(file.len)), (made.bytes(nth).len(), file.stored_len));
        assert_eq!(survey.identified(file), Some((LOG, SegmentNo(to_u64(nth)))));
        assert!(file.holes.is_empty() && file.header_error.is_none());
    }
    let layout = made.layout();
    assert_eq!(walked(&layout), whole());
    assert_eq!((layout.spans.len(), layout.repeated, layout.skipped), (0, 0, 0));
    assert_eq!(layout.witnessed, Position(made.names().last().unwrap().0.0.max(LAST - 2)));
    assert_eq!(layout.unproven_records(), 0);
    assert_eq!(survey.lineages().unwrap(), [BTreeSet::from([LOG])]);
    let sizes: usize = (0..made.names().len()).map(|nth| made.bytes(nth).len()).sum();
    assert_eq!(layout.bytes(), to_u64(sizes));
    let mut read = 0;
    layout.walk(&mut |bytes| read += bytes, &mut |_| Ok(())).unwrap();
    assert_eq!(read, layout.bytes(), "a progress bar comes to its end");
}
