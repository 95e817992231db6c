//! What is found in a hurt log, exactly: each way of hurting one, and what it costs.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog_codec::frame::{self, FRAME_MAGIC, Frame, FrameFields};
use sessionlog_codec::ids::{Epoch, KindNo, NodeId, SchemaVersion, Timestamp};
use sessionlog_codec::limits::FRAME_HEADER_LEN;
use sessionlog_codec::record::Envelope;

use super::builder::LogBuilder;
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

fn frames(bytes: &[u8]) -> Vec<Range<usize>> {
    let salt = SegmentHeader::decode(bytes).unwrap().salt;
    let (mut places, mut at) = (Vec::new(), SEGMENT_HEADER_LEN);
    while let Ok(frame) = Frame::decode(&bytes[at..], salt) {
        let end = (at + frame.header().frame_len()).min(bytes.len());
        places.push(at..end);
        at = end;
    }
    places
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

#[test]
fn what_is_no_segment_is_left_out_and_named() {
    let made = made();
    let strange = [
        ("00000000000000000001 (conflicted copy).seg", "a copy that another program made"),
        ("00000000000000000001.seg~", "a copy that another program made"),
        ("00000000000000000001.seg.bak", "a copy that another program made"),
        ("Conflict of 2", "a copy that another program made"),
        ("notes.txt", "it does not have the name of a segment"),
    ];
    for (name, _) in strange {
        made.put(name, vec![1; 40]);
    }
    made.storage.create_dir(&made.dir.segments.join("00000000000000000500.seg")).unwrap();
    let survey = survey(&made.dir, &mut |_| {}).unwrap();
    let found: BTreeMap<&str, &str> =
        survey.left_out.iter().map(|left| (left.file.as_str(), left.why.as_str())).collect();
    assert_eq!(found.len(), 6, "{found:#?}");
    for (name, why) in strange {
        assert!(found[name].starts_with(why), "{name}: {}", found[name]);
    }
    assert_eq!(found["00000000000000000500.seg"], "it is not a regular file; links are not followed");
    assert_eq!(walked(&survey.layout(None).unwrap()), whole());
}

/// A crash in the creation of a segment: all before it was durable, so nothing may be missing there.
#[test]
fn a_segment_that_was_begun_proves_that_all_before_it_was_durable() {
    for len in [0, 10, SEGMENT_HEADER_LEN] {
        let made = made();
        made.put("00000000000000000019.seg", vec![0; len]);
        let survey = made.survey();
        assert_eq!(survey.begun, Some(Position(LAST + 1)));
        let why = "creating this segment did not finish; no record was in it";
        assert_eq!(survey.left_out, [LeftOut { file: "00000000000000000019.seg".into(), why: why.into() }]);
        let layout = survey.layout(None).unwrap();
        assert_eq!((walked(&layout), layout.witnessed), (whole(), Position(LAST)));
        // What is torn before it was acknowledged.
        let last = made.names().len() - 2;
        made.change(last, |bytes| bytes.truncate(bytes.len() - 9));
        assert_eq!(made.layout().spans[0].loss, acknowledged(LAST - 1..LAST + 1));
    }
    // With something behind the header it is no creation that did not finish.
    let made = made();
    made.put("00000000000000000019.seg", vec![0; SEGMENT_HEADER_LEN + 1]);
    assert_eq!(made.survey().begun, None);
    let span = made.layout().spans.pop().unwrap();
    assert_eq!(
        (span.file.as_str(), span.found.as_str()),
        ("00000000000000000019.seg", "there are only zero bytes")
    );
}

#[test]
fn a_single_file_that_was_begun_is_no_log() {
    let storage = SimStorage::new();
    let made = Made { dir: dir_at(&storage, "x"), storage };
    made.put("00000000000000000001.seg", vec![0; 20]);
    let survey = made.survey();
    assert_eq!((survey.begun, survey.files.len(), survey.left_out.len()), (None, 1, 0));
    let error = survey.layout(None).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::NotFound, "salvage.nothing"));
}

/// A hurt header costs no record: the salt of the frames tells which segment it is, whatever the file is called.
#[test]
fn a_hurt_header_costs_nothing() {
    for nth in 0..made().names().len() {
        let made = made();
        let name = made.names()[nth].to_string();
        made.change(nth, |bytes| bytes[9] ^= 1);
        let survey = made.survey();
        let number = SegmentNo(to_u64(nth));
        assert_eq!(survey.identified(&survey.files[nth]), Some((LOG, number)));
        let span = made.span();
        assert_eq!((span.file.clone(), span.offset, span.loss), (name.clone(), 0, Loss::Nothing));
        assert_eq!(span.len, to_u64(SEGMENT_HEADER_LEN));
        assert_eq!(Some(&span.found), survey.files[nth].header_error.as_ref());
        let layout = made.layout();
        assert_eq!(records(&layout), whole(), "{nth}");
        // A copy under another name is no other segment.
        made.put("00000000000000000700.seg", made.bytes(nth));
        let layout = made.layout();
        let why = format!("a copy of {name}: both are segment {number}");
        assert_eq!(layout.left_out, [LeftOut { file: "00000000000000000700.seg".into(), why }]);
        assert_eq!(records(&layout), whole(), "{nth}");
    }
}

/// Two files of one segment: the one that is where it belongs is taken, and else the one that has more.
#[test]
fn of_two_copies_the_better_one_is_taken() {
    let made = made();
    let name = made.names()[1].to_string();
    made.put("00000000000000000700.seg", made.bytes(1));
    let why = format!("a copy of {name}: both are segment 1");
    assert_eq!(made.layout().left_out, [LeftOut { file: "00000000000000000700.seg".into(), why }]);
    // Neither is where it belongs.
    let made = self::made();
    let (bytes, second) = (made.bytes(1), made.frames(1)[1].clone());
    made.storage.remove_file(&made.path(1)).unwrap();
    made.put("00000000000000000700.seg", bytes[..second.start].to_vec());
    made.put("00000000000000000701.seg", bytes);
    let layout = made.layout();
    let why = "a copy of 00000000000000000701.seg: both are segment 1".to_owned();
    assert_eq!(layout.left_out, [LeftOut { file: "00000000000000000700.seg".into(), why }]);
    assert_eq!(walked(&layout), whole());
}

#[test]
fn a_file_that_holds_nothing_costs_its_records() {
    for (content, found) in [
        (Vec::new(), "the file is empty"),
        (vec![0; 500], "there are only zero bytes"),
        (vec![b'x'; 500], "neither a segment's header nor any whole frame"),
    ] {
        let made = made();
        let (lost, name, len) = (made.positions(1), made.names()[1].to_string(), to_u64(content.len()));
        made.change(1, |bytes| *bytes = content);
        let span = made.span();
        assert_eq!((span.file, span.offset, span.len, span.loss), (name, 0, len, acknowledged(lost.clone())));
        assert_eq!(span.found, found);
        assert_eq!(walked(&made.layout()), without(lost.clone()));
        assert_eq!(span.loss.records(), lost.end - lost.start);
    }
}

/// Each frame of each segment in turn: what it held is lost, whole, and nothing else; the index tells what it was.
#[test]
fn a_hurt_frame_costs_itself() {
    for nth in 0..made().names().len() - 1 {
        for (at, place) in made().frames(nth).into_iter().enumerate() {
            let made = made();
            let bytes = made.bytes(nth);
            let salt = SegmentHeader::decode(&bytes).unwrap().salt;
            let fields = Frame::decode(&bytes[place.clone()], salt).unwrap().header().fields.clone();
            made.change(nth, |bytes| bytes[place.start + FRAME_HEADER_LEN + 3] ^= 1);
            let hurt = made.bytes(nth);
            let expected = Frame::decode(&hurt[place.start..], salt).unwrap_err().to_string();
            let span = made.span();
            assert_eq!(
                (span.file.clone(), span.offset),
                (made.names()[nth].to_string(), to_u64(place.start))
            );
            if fields.kind != frame::KIND_RECORDS {
                assert_eq!(span.loss, Loss::Nothing);
                continue;
            }
            assert_eq!((to_u64(place.len()), &expected), (span.len, &span.found));
            let lost = fields.first_position.0..fields.next_position().0;
            assert_eq!(span.loss, acknowledged(lost.clone()));
            let layout = made.layout();
            assert_eq!(walked(&layout), without(lost.clone()), "segment {nth}, frame {at}");
            let mut told = 0;
            let visit = &mut |item: Item<'_>| {
                if let Item::Span { known, .. } = item {
                    for position in 1..=LAST {
                        let entry = known(Position(position)).map(|entry| entry.kind);
                        told += usize::from(lost.contains(&position) && entry.is_some());
                        let tag = (position - 1) / 3 * 2 + u64::from((position - 1) % 3 > 0);
                        assert!(entry.is_none_or(|kind| u64::from(kind.0) == 20 + tag), "{position}");
                    }
                }
                Ok(())
            };
            layout.walk(&mut |_| {}, visit).unwrap();
            assert_eq!(told, usize::try_from(lost.end - lost.start).unwrap());
        }
    }
}

/// The index of a sealed segment is no loss, hurt or not there; a segment that is cut before it has lost what else was cut.
#[test]
fn an_index_costs_nothing() {
    let made = made();
    let index = frames(&made.bytes(1)).pop().unwrap();
    made.change(1, |bytes| bytes[index.start + FRAME_HEADER_LEN + 1] ^= 1);
    let (span, bytes) = (made.span(), made.bytes(1));
    assert_eq!((span.offset, span.loss), (to_u64(index.start), Loss::Nothing));
    assert_eq!(span.len, to_u64(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1 - index.start));
    assert_eq!(records(&made.layout()), whole());
    // Where the file does not end in its locator, the index is believed all the same.
    let made = self::made();
    let len = made.bytes(1).len();
    made.change(1, |bytes| bytes[len - 2] ^= 1);
    let span = made.span();
    assert_eq!(
        (span.offset, span.len, span.loss),
        (to_u64(index.end), to_u64(len - index.end), Loss::Nothing)
    );
    let made = self::made();
    made.change(1, |bytes| bytes.truncate(index.start));
    let span = made.span();
    assert_eq!((span.offset, span.len, span.loss), (to_u64(index.start), 0, Loss::Nothing));
    assert_eq!(span.found, "the index at its end is missing");
    let made = self::made();
    let (cut, lost) = (made.frames(1)[1].start, made.positions(1));
    made.change(1, |bytes| bytes.truncate(cut));
    let span = made.span();
    assert_eq!(
        (span.offset, span.len, span.found.as_str()),
        (to_u64(cut), 0, "the bytes of these records are not there")
    );
    assert_eq!(span.loss.positions().unwrap().1, Position(lost.end - 1));
}

#[test]
fn missing_segments_are_named_by_the_one_behind_them() {
    for (nth, found) in [
        (0, "the segments before this one are missing".to_owned()),
        (1, format!("the segments between {} and this one are missing", made().names()[0])),
    ] {
        let made = made();
        let (lost, behind) = (made.positions(nth), made.names()[nth + 1].to_string());
        made.storage.remove_file(&made.path(nth)).unwrap();
        let span = made.span();
        assert_eq!((span.file, span.offset, span.len, &span.found), (behind, 0, 0, &found));
        assert_eq!(span.loss, acknowledged(lost.clone()));
        assert_eq!(walked(&made.layout()), without(lost));
    }
}

/// At the end of a log that is cut anywhere in its last frame, nothing proves that this was acknowledged; with the beginning of a
/// next segment behind it, everything does.
#[test]
fn a_torn_end_is_a_loss_only_if_something_proves_it() {
    let made = made();
    let last = made.names().len() - 1;
    let place = made.frames(last).pop().unwrap();
    let first = Position(LAST - 1);
    for cut in [place.start + 1, place.start + 70, place.end - 8] {
        let made = self::made();
        made.change(last, |bytes| bytes.truncate(cut));
        let span = made.span();
        assert_eq!((span.offset, span.loss), (to_u64(place.start), Loss::TornTail { first }), "cut at {cut}");
        assert_eq!((span.loss.positions(), span.loss.records()), (None, 0));
        made.put("00000000000000000019.seg", Vec::new());
        let span = made.span();
        assert_eq!((span.offset, span.loss), (to_u64(place.start), acknowledged(first.0..LAST + 1)));
    }
    // Cut between two frames, nothing is there to be lost; the next segment proves it all the same.
    let made = self::made();
    made.change(last, |bytes| bytes.truncate(place.start));
    assert_eq!(made.layout().spans, []);
    made.put("00000000000000000019.seg", Vec::new());
    let span = made.span();
    assert_eq!((span.offset, span.len, span.loss), (to_u64(place.start), 0, acknowledged(first.0..LAST + 1)));
    // Zeros behind the last frame are space that was not used yet.
    let made = self::made();
    made.change(last, |bytes| bytes.resize(bytes.len() + 4096, 0));
    assert_eq!(made.layout().spans, []);
}

/// Records that were never synced, with a torn one among them: what stands behind it is whole, and nothing proves anything.
#[test]
fn what_nothing_proves_is_told_as_such() {
    let made = made_with(LOG, 1, Durability::Buffered);
    assert!(made.names().len() == 2, "longer segments where nobody syncs");
    let place = made.frames(1)[0].clone();
    let first = made.positions(1).start;
    let next =
        Frame::decode(&made.bytes(1)[place.clone()], SegmentHeader::decode(&made.bytes(1)).unwrap().salt)
            .unwrap()
            .header()
            .fields
            .next_position()
            .0;
    made.change(1, |bytes| bytes[place.start + FRAME_HEADER_LEN + 3] ^= 1);
    let layout = made.layout();
    let lost = Loss::Unproven { first: Position(first), last: Position(next - 1) };
    assert_eq!((layout.spans.len(), layout.spans[0].loss), (1, lost));
    assert_eq!(layout.unproven_records(), LAST + 1 - next);
    assert_eq!(walked(&layout), without(first..next));
}

/// Frames that stand twice, or in another order: each record once, in order.
#[test]
fn frames_that_stand_twice_are_taken_once() {
    let made = made();
    let places = made.frames(0);
    made.change(0, |bytes| {
        let (first, second) = (bytes[places[0].clone()].to_vec(), bytes[places[1].clone()].to_vec());
        bytes.splice(places[0].start..places[1].end, [second, first].concat());
    });
    assert_eq!(walked(&made.layout()), whole());
    let made = self::made();
    made.change(0, |bytes| {
        let first = bytes[places[0].clone()].to_vec();
        let end = places.last().unwrap().start;
        bytes.splice(end..end, first);
    });
    let layout = made.layout();
    assert_eq!(layout.repeated, 1);
    assert_eq!(records(&layout), whole());
    // The same frame in another segment's file.
    let made = self::made();
    let (bytes, end) = (made.bytes(0), made.frames(1).pop().unwrap().start);
    made.change(1, |other| drop(other.splice(end..end, bytes[places[0].clone()].to_vec())));
    assert_eq!(records(&made.layout()), whole());
}

/// CRC-32/ISO-HDLC that goes on from the checksum `seed`.
fn crc32(seed: u32, bytes: &[u8]) -> u32 {
    let step = |register: u32, _| (register >> 1) ^ if register & 1 == 1 { 0xedb8_8320 } else { 0 };
    !bytes.iter().fold(!seed, |register, byte| (0..8).fold(register ^ u32::from(*byte), step))
}

/// Puts a frame of another kind behind the first one of a segment.
fn add_frame(made: &Made, nth: usize, kind: u8) {
    made.change(nth, |bytes| {
        let salt = SegmentHeader::decode(bytes).unwrap().salt;
        let place = frames(bytes)[0].clone();
        let next = Frame::decode(&bytes[place.clone()], salt).unwrap().header().fields.next_position();
        let mut other = bytes[place.clone()].to_vec();
        other[4] = kind;
        other[16..24].copy_from_slice(&next.0.to_le_bytes());
        let crc = crc32(salt, &other[..FRAME_HEADER_LEN - 4]);
        other[FRAME_HEADER_LEN - 4..FRAME_HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
        bytes.splice(place.end..place.end, other);
    });
}

/// Of what a newer version wrote, what may be skipped is counted, and the rest is not taken apart by us.
#[test]
fn newer_frames_are_skipped_or_left_to_the_newer_version() {
    let made = made();
    add_frame(&made, 0, 0x90);
    let layout = made.layout();
    assert_eq!((layout.skipped, layout.repeated), (1, 0));
    assert_eq!(records(&layout), whole());
    let made = self::made();
    add_frame(&made, 0, 0x03);
    let error = survey(&made.dir, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains(&made.names()[0].to_string()), "{error}");
}

/// Of the directory of another log, a segment under a free name: it is not taken in, and is told.
#[test]
fn a_segment_of_another_log_is_left_out() {
    let other = LogId([9; 16]);
    let made = made();
    let stranger = made_with(other, 2, Durability::Sync);
    made.put("00000000000000000700.seg", stranger.bytes(0));
    let survey = made.survey();
    assert_eq!(survey.lineages().unwrap(), [BTreeSet::from([LOG]), BTreeSet::from([other])]);
    let layout = survey.layout(Some(&BTreeSet::from([LOG]))).unwrap();
    let why = format!("a segment of another log ({other})");
    assert_eq!(layout.left_out, [LeftOut { file: "00000000000000000700.seg".into(), why }]);
    assert_eq!(walked(&layout), whole());
    // Its header hurt too, and right behind the last segment by its positions: the chain does not lead there.
    let stranger = made_with(other, 2, Durability::Sync);
    let made = self::made();
    made.storage.remove_file(&made.path(1)).unwrap();
    made.put(&stranger.names()[1].to_string(), stranger.bytes(1));
    made.change(1, |bytes| bytes[9] ^= 1);
    let layout = made.layout();
    let why = "its header is hurt, and its frames do not follow from the segment before it";
    assert_eq!(layout.left_out, [LeftOut { file: stranger.names()[1].to_string(), why: why.into() }]);
    let made = self::made();
    made.put("00000000099999999999.seg", vec![b'x'; 700]);
    let why = "its header is hurt, and its name is too far from the other segments' to be right";
    assert_eq!(
        made.layout().left_out,
        [LeftOut { file: "00000000099999999999.seg".into(), why: why.into() }]
    );
}

/// A segment of another copy of the same log: every frame is whole, and the chain tells that they were mixed.
#[test]
fn where_the_chain_breaks_is_told() {
    let (made, copy) = (made(), made_with(LOG, 2, Durability::Sync));
    let (bytes, lost) = (copy.bytes(1), made.positions(1));
    assert_eq!(copy.names(), made.names());
    made.change(1, |there| *there = bytes);
    let layout = made.layout();
    let breaks = |position: u64| if position == lost.start || position == lost.end { "!" } else { "" };
    let expected: Vec<_> = (1..=LAST).map(|position| format!("{}{position}", breaks(position))).collect();
    assert_eq!(walked(&layout), expected.join(" "));
}

#[test]
fn what_is_changed_while_it_is_read_is_an_error() {
    let made = made();
    let layout = made.layout();
    let place = made.frames(1)[0].clone();
    made.change(1, |bytes| bytes[place.start + FRAME_HEADER_LEN + 3] ^= 1);
    let error = layout.walk(&mut |_| {}, &mut |_| Ok(())).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, "salvage.changed"));
    assert!(error.to_string().contains(&made.names()[1].to_string()), "{error}");
}

/// A fork has segments of two logs; what the origin wrote behind the fork is not its own.
#[test]
fn a_fork_is_both_logs_up_to_where_it_began() {
    let fork_id = LogId([8; 16]);
    let made = made();
    let target = dir_at(&made.storage, "f");
    made.storage.remove_dir(&target.segments).unwrap();
    let at = Position(made.positions(1).end - 1);
    let plan = LogReader::new(made.dir.clone()).plan_fork(ForkPoint::At(at), fork_id).unwrap();
    let own = Batch::new(vec![NewRecord { envelope: envelope(40), payload: vec![3; 30] }]).unwrap();
    let writer = plan.carry_out(target.clone(), OPTIONS, &own).unwrap();
    for _ in 0..4 {
        let more = NewRecord { envelope: envelope(41), payload: vec![4; 300] };
        writer.append(Batch::new(vec![more]).unwrap(), Durability::Sync).unwrap();
    }
    writer.close().unwrap();
    let fork = Made { storage: made.storage.clone(), dir: target };
    let both = BTreeSet::from([LOG, fork_id]);
    let expected: Vec<_> = (1..=at.0 + 5).map(|position| position.to_string()).collect();
    let check = |fork: &Made, what: &str| {
        let survey = fork.survey();
        assert_eq!(survey.lineages().unwrap(), std::slice::from_ref(&both), "{what}");
        let layout = survey.layout(Some(&both)).unwrap();
        assert_eq!(records(&layout), expected.join(" "), "{what}");
        layout
    };
    check(&fork, "whole");
    let behind = made.bytes(2);
    fork.put("00000000000000000700.seg", behind);
    let layout = check(&fork, "with a segment of the origin");
    let why = format!("a segment of the log that this one was forked from ({LOG}), behind the fork");
    assert_eq!(layout.left_out, [LeftOut { file: "00000000000000000700.seg".into(), why }]);
    fork.storage.remove_file(&fork.dir.segments.join("00000000000000000700.seg")).unwrap();
    // The header that names the origin is hurt: the chain leads there.
    let first = fork.names().iter().position(|name| name.0 > at).unwrap();
    assert!(fork.names().len() > first + 1, "another segment of the fork says whose salt it is");
    fork.change(first, |bytes| bytes[9] ^= 1);
    assert!(fork.survey().files[first].header.is_none());
    check(&fork, "with a hurt header");
}

/// The log with the most frames is the one that a directory is of.
#[test]
fn the_log_with_the_most_frames_comes_first() {
    let (few, many) = (LogId([1; 16]), LogId([9; 16]));
    for (there, other) in [(few, many), (many, few)] {
        let made = made_with(there, 1, Durability::Sync);
        let stranger = made_with(other, 2, Durability::Sync);
        made.put("00000000000000000700.seg", stranger.bytes(0));
        assert_eq!(made.survey().lineages().unwrap()[0], BTreeSet::from([there]));
    }
}

/// A position that is far away can't be the next one: marking all between would fill a disk.
#[test]
fn a_span_has_its_limit() {
    let made = made();
    let header = SegmentHeader::decode(&made.bytes(0)).unwrap();
    let (number, far) = (SegmentNo(90), Position(1 << 25));
    let salt = segment::salt(LOG, number);
    let header = SegmentHeader { segment_no: number, first_position: far, salt, ..header };
    let mut bytes = header.encode().to_vec();
    let fields = FrameFields::records(far, Epoch(1), Position(far.0 - 1));
    frame::encode(&mut bytes, salt, &header.previous, fields, &[(envelope(20), vec![1; 9])]).unwrap();
    made.put(&SegmentName(far).to_string(), bytes);
    assert_eq!(made.survey().layout(None).unwrap_err().kind(), ErrorKind::Corrupt);
}

fn build(storage: &SimStorage, records: u64) -> Result<LogId> {
    let dir = LogDir::below(&(Arc::new(storage.clone()) as Arc<dyn Storage>), Path::new("new"));
    let mut builder = LogBuilder::begin(dir, OPTIONS, LOG)?;
    for nth in 0..records {
        assert_eq!(builder.next(), Position(1 + 2 * nth));
        // An ownership that is earlier than the one before it, where frames of two copies are mixed.
        let epoch = Epoch(if nth == 5 { 2 } else { 1 + nth });
        builder.frame(epoch, &[(envelope(20), vec![1; 90]), (envelope(21), vec![2; 20])])?;
    }
    builder.finish()
}

/// A log that is longer than a segment is one of several, sealed and followed, and has nothing wrong.
#[test]
fn what_is_built_is_a_log_like_any_other() {
    let storage = SimStorage::new();
    storage.create_dir(Path::new("new")).unwrap();
    storage.sync_dir(Path::new(".")).unwrap();
    assert_eq!(build(&storage, 12).unwrap(), LOG);
    let storage = storage.power_cut(CrashMode::LoseAll);
    let dir = LogDir::below(&(Arc::new(storage.clone()) as Arc<dyn Storage>), Path::new("new"));
    let reader = LogReader::new(dir.clone());
    let verified = reader.verify().unwrap();
    assert_eq!((verified.findings, verified.last, verified.records), (vec![], Position(24), 24));
    let built = Made { storage, dir };
    let mut epochs = Vec::new();
    for nth in 0..built.names().len() {
        let bytes = built.bytes(nth);
        let header = SegmentHeader::decode(&bytes).unwrap();
        assert!(bytes.len() < 1_200 && header.segment_no.0 == to_u64(nth));
        assert_eq!(header.salt, segment::salt(LOG, header.segment_no));
        for place in frames(&bytes) {
            let fields = Frame::decode(&bytes[place], header.salt).unwrap().header().fields.clone();
            epochs.push(fields.epoch.0);
            assert!(fields.kind != frame::KIND_RECORDS || fields.synced.0 + 1 == fields.first_position.0);
        }
    }
    // The last of each segment is that of its index.
    assert_eq!(epochs, [1, 2, 3, 3, 4, 5, 5, 5, 7, 7, 8, 9, 9, 10, 11, 11, 12]);
    assert_eq!(built.layout().spans, []);
}

#[test]
fn nothing_is_built_over_anything() {
    for there in ["new/log", "new/log.salvaging"] {
        let storage = SimStorage::new();
        for dir in ["new", there] {
            storage.create_dir(Path::new(dir)).unwrap();
        }
        let error = build(&storage, 3).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, "log.exists"));
        assert!(error.to_string().contains(there), "{error}");
    }
}

/// Power is lost at each call: there is no log, or a whole one, and once it was said to be there it is.
#[test]
fn a_log_is_built_whole_or_not_at_all() {
    let mut cut = 0;
    for nth in 0.. {
        let storage = SimStorage::new();
        storage.create_dir(Path::new("new")).unwrap();
        storage.sync_dir(Path::new(".")).unwrap();
        storage.fail(Fault::any(FaultError::EIO).after(nth).repeat(Repeat::Always));
        let done = build(&storage, 12).is_ok();
        for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Seeded(nth)] {
            let storage = storage.power_cut(mode);
            let dir = LogDir::below(&(Arc::new(storage) as Arc<dyn Storage>), Path::new("new"));
            match LogReader::new(dir).verify() {
                Ok(verified) => assert_eq!((verified.findings, verified.records), (vec![], 24), "call {nth}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "call {nth}: {error}");
                    assert!(!done, "call {nth}, {mode:?}");
                }
            }
        }
        if done {
            break;
        }
        cut += 1;
    }
    assert!(cut > 15, "{cut}");
}

#[test]
fn a_magic_that_begins_twice_is_found() {
    let made = made();
    let place = made.frames(0)[1].clone();
    // The first byte of a frame's mark, before the frame itself.
    made.change(0, |bytes| drop(bytes.splice(place.start..place.start, [FRAME_MAGIC[0]; 3])));
    let layout = made.layout();
    assert_eq!(records(&layout), whole());
    assert_eq!((layout.spans.len(), layout.spans[0].len), (1, 3));
}
