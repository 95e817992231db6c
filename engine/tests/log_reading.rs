//! What a reader gives of a log that is hurt in one place, from every position: each record that is there, once and in order;
//! each place where records are missing, with its bytes, its positions and what was found there; and how the log ends.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sessionlog::ErrorKind;
use sessionlog::log::{
    Durability, Gap, LogReader, LogSize, LogWriter, ReadItem, SegmentName, TailState, TornTail,
};
use sessionlog::storage::{Call, CallKind, Fault, FaultError, SimStorage};
use sessionlog_codec::footer::FooterEntry;
use sessionlog_codec::ids::{LogId, Position};
use sessionlog_codec::limits::SEGMENT_HEADER_LEN;
use sessionlog_codec::segment::SegmentHeader;
use support::hooked::Hooked;
use support::patched::{from_the_future, header_error, insert, seal, why, with_header, with_index};
use support::sample::{SMALL, Sample, Segment, append_groups};
use support::{Logged, Seen, batch, create, dir, dir_on, disk, options, read, read_on};

type Files = Vec<(SegmentName, Vec<u8>)>;

const BEHIND: &str = "the segments behind this one are missing";
const BEFORE: &str = "the segments before this one are missing";

fn name(first: u64) -> SegmentName {
    SegmentName(Position(first))
}

/// Where the `nth` frame is, up to the next one.
fn place(segment: &Segment, nth: usize) -> Range<usize> {
    segment.frames[nth].start()..segment.frames[nth].end
}

fn gap(segment: u64, bytes: Range<usize>, first: u64, last: Option<u64>, explanation: &str) -> Gap {
    Gap {
        segment: name(segment),
        offset: u64::try_from(bytes.start).unwrap(),
        len: u64::try_from(bytes.len()).unwrap(),
        first: Position(first),
        last: last.map(Position),
        explanation: explanation.to_owned(),
    }
}

/// The records that no gap is about.
fn without(log: &[Logged], gaps: &[Gap]) -> Vec<Logged> {
    let is_in =
        |gap: &Gap, it: &Logged| gap.first <= it.position && gap.last.is_none_or(|l| it.position <= l);
    log.iter().filter(|it| !gaps.iter().any(|gap| is_in(gap, it))).cloned().collect()
}

/// What is read from each of these positions on is what is expected, less what is before it.
fn assert_read_from(
    froms: Range<u64>,
    files: &Files,
    log: &[Logged],
    gaps: &[Gap],
    tail: &TailState,
    what: &str,
) {
    let storage = Sample::disk_with(files);
    for from in froms {
        let seen = read(&storage, Position(from)).unwrap();
        let records = log.iter().filter(|it| it.position.0 >= from).cloned().collect();
        let gaps = gaps.iter().filter(|gap| gap.last.is_none_or(|last| last.0 >= from)).cloned().collect();
        assert_eq!(seen, Seen { records, gaps, tail: tail.clone() }, "{what}, from {from}");
    }
}

fn assert_read(files: &Files, log: &[Logged], gaps: &[Gap], tail: &TailState, what: &str) {
    let end = log.last().map_or(0, |it| it.position.0);
    assert_read_from(0..end + 3, files, &without(log, gaps), gaps, tail, what);
}

#[test]
fn a_hurt_frame_costs_its_own_records() {
    let sample = Sample::closed();
    for (nth, segment) in sample.segments.iter().enumerate().take(4) {
        let mut first = segment.name.0.0;
        for (frame, at) in segment.frames.iter().enumerate() {
            // The magic, a field, the body.
            for byte in [0, 20, 84] {
                let files = sample.with(nth, |bytes| bytes[at.start() + byte] ^= 4);
                let text = why(&files[nth].1, at.start());
                let lost = gap(segment.name.0.0, place(segment, frame), first, Some(at.next.0 - 1), &text);
                let gaps = if at.is_footer { vec![] } else { vec![lost] };
                let what = format!("segment {nth}, frame {frame}, byte {byte}");
                assert_read(&files, &sample.log, &gaps, &TailState::Clean, &what);
            }
            first = at.next.0;
        }
    }
}

#[test]
fn what_is_missing_in_a_sealed_segment_is_told_with_its_place() {
    let sample = Sample::closed();
    let third = &sample.segments[2];
    let (second, last, footer) = (place(third, 1), place(third, 2), place(third, 3));
    let whole = 0..third.bytes.len();
    let hurt = |at: &[usize]| sample.with(2, |bytes| at.iter().for_each(|at| bytes[at + 20] ^= 4));
    let told = |files: Files, gaps: &[Gap], what: &str| {
        assert_read(&files, &sample.log, gaps, &TailState::Clean, what);
    };

    let files = hurt(&[second.start, last.start]);
    let text = why(&files[2].1, second.start);
    told(files, &[gap(9, second.start..last.end, 10, Some(13), &text)], "two frames beside each other");

    let files = hurt(&[second.start, footer.start]);
    let text = why(&files[2].1, second.start);
    told(files, &[gap(9, second.clone(), 10, Some(12), &text)], "a frame and the index");

    let files = hurt(&[last.start, footer.start]);
    let text = why(&files[2].1, last.start);
    told(files, &[gap(9, last.start..footer.end, 13, Some(13), &text)], "the last frame and the index");

    let files = hurt(&[third.frames[0].start(), last.start]);
    let texts = [third.frames[0].start(), last.start].map(|at| why(&files[2].1, at));
    let gaps =
        [gap(9, place(third, 0), 9, Some(9), &texts[0]), gap(9, last.clone(), 13, Some(13), &texts[1])];
    told(files, &gaps, "two frames with one between");

    told(sample.with(2, |bytes| bytes[footer.end - 1] ^= 1), &[], "the locator");
    told(sample.with(2, |bytes| bytes.truncate(footer.start)), &[], "no index");

    let cut = gap(9, last.start..last.start, 13, Some(13), BEHIND);
    told(sample.with(2, |bytes| bytes.truncate(last.start)), &[cut], "cut between two frames");

    let files = sample.with(2, |bytes| bytes.truncate(last.start + 90));
    let text = why(&files[2].1, last.start);
    told(files, &[gap(9, last.start..last.start + 90, 13, Some(13), &text)], "cut in a frame");

    let gone = gap(9, second.start..second.start, 10, Some(12), "records are missing");
    told(sample.with(2, |bytes| drop(bytes.drain(second.clone()))), &[gone], "a frame that was taken out");

    for nth in 0..4 {
        let segment = &sample.segments[nth];
        let files = sample.with(nth, |bytes| bytes[40] ^= 1);
        let next = sample.segments[nth + 1].name.0.0;
        let first = segment.name.0.0;
        let text = header_error(&files[nth].1);
        told(
            files,
            &[gap(first, 0..segment.bytes.len(), first, Some(next - 1), &text)],
            "a segment's header",
        );
    }

    let files = sample.with(1, |bytes| *bytes = third.bytes.clone());
    let text = "its header says it starts at position 9";
    told(files, &[gap(6, whole, 6, Some(8), text)], "another place's segment");
}

#[test]
fn missing_segments_are_told_where_they_should_be() {
    let sample = Sample::closed();
    let len = |nth: usize| sample.segments[nth].bytes.len();
    let end = |nth: usize| len(nth)..len(nth);
    let told = |missing: &[usize], gaps: &[Gap], log: &[Logged]| {
        let mut files = sample.files();
        for nth in missing.iter().rev() {
            files.remove(*nth);
        }
        assert_read(&files, log, gaps, &TailState::Clean, &format!("without {missing:?}"));
    };
    told(&[0], &[gap(6, 0..0, 1, Some(5), BEFORE)], &sample.log);
    told(&[0, 1], &[gap(9, 0..0, 1, Some(8), BEFORE)], &sample.log);
    told(&[0, 1, 2, 3], &[gap(18, 0..0, 1, Some(17), BEFORE)], &sample.log);
    told(&[1], &[gap(1, end(0), 6, Some(8), BEHIND)], &sample.log);
    told(&[1, 2], &[gap(1, end(0), 6, Some(13), BEHIND)], &sample.log);
    told(&[3], &[gap(9, end(2), 14, Some(17), BEHIND)], &sample.log);
    told(&[0, 2], &[gap(6, 0..0, 1, Some(5), BEFORE), gap(6, end(1), 9, Some(13), BEHIND)], &sample.log);
    // Nothing tells of a last one.
    told(&[4], &[], &sample.log[..17]);
}

/// A stranger's records in a conversation would be sent to a model as if they had been said in it.
#[test]
fn a_segment_of_another_log_is_not_read() {
    let sample = Sample::closed();
    let storage = disk();
    let stranger = LogWriter::create(dir(&storage), sample.options, LogId([9; 16])).unwrap();
    append_groups(&stranger, SMALL);
    let foreign: Vec<_> = storage.files().iter().map(|path| storage.read_file(path).unwrap()).collect();
    assert_eq!(foreign.len(), 5);
    let text = "it belongs to another log (09090909-0909-0909-0909-090909090909)";
    for (nth, strange) in foreign.iter().enumerate().skip(1) {
        let files = sample.with(nth, |bytes| bytes.clone_from(strange));
        let (first, len) = (sample.segments[nth].name.0.0, strange.len());
        let next = sample.segments.get(nth + 1).map(|next| next.name.0.0 - 1);
        let tail = if next.is_some() { TailState::Clean } else { TailState::Damaged };
        let gaps = [gap(first, 0..len, first, next, text)];
        let there = without(&sample.log, &gaps);
        assert_read_from(
            0..next.map_or(22, |next| next + 1),
            &files,
            &there,
            &gaps,
            &tail,
            &format!("{nth}"),
        );
    }
    // The last one, of another place.
    let files = sample.with(4, |bytes| bytes.clone_from(&sample.segments[3].bytes));
    let len = sample.segments[3].bytes.len();
    let lost = gap(18, 0..len, 18, None, "its header says it starts at position 14");
    assert_read(&files, &sample.log, &[lost], &TailState::Damaged, "another place's segment");

    // Behind a fork's own segment comes no segment of the log that it was forked from.
    let fork = |bytes: &mut Vec<u8>| {
        with_header(bytes, |header| {
            header.forked_from = Some(header.log_id);
            header.log_id = LogId([9; 16]);
        });
    };
    assert_read(&sample.with(4, fork), &sample.log, &[], &TailState::Clean, "a fork");
    let (first, len) = (18, sample.segments[4].bytes.len());
    let text = "it belongs to another log (07070707-0707-0707-0707-070707070707)";
    let lost = gap(first, 0..len, first, None, text);
    assert_read(&sample.with(3, fork), &sample.log, &[lost], &TailState::Damaged, "behind a fork");
}

/// What a newer version wrote is not missing: a gap would send its owner to a salvage that nothing needs.
#[test]
fn what_a_newer_version_wrote_ends_the_reading_and_is_no_gap() {
    let sample = Sample::closed();
    for (nth, segment) in sample.segments.iter().enumerate() {
        let files = sample.with(nth, |bytes| from_the_future(bytes));
        let tail = TailState::Newer(header_error(&files[nth].1));
        let (first, next) = (segment.name.0.0, sample.segments.get(nth + 1).map_or(22, |next| next.name.0.0));
        let before = &sample.log[..usize::try_from(first - 1).unwrap()];
        assert_read_from(0..next, &files, before, &[], &tail, &format!("segment {nth}"));
        if nth < 4 {
            assert_read_from(next..22, &files, &sample.log, &[], &TailState::Clean, &format!("behind {nth}"));
        }
        let mut first = first;
        for frame in segment.frames.iter().filter(|frame| !frame.is_footer) {
            let files = sample.with(nth, |bytes| _ = insert(bytes, frame.start(), 5));
            let tail = TailState::Newer(why(&files[nth].1, frame.start()));
            let before = &sample.log[..usize::try_from(first - 1).unwrap()];
            let what = format!("segment {nth} from byte {}", frame.start());
            assert_read_from(0..next, &files, before, &[], &tail, &what);
            // One that may be skipped is, also where the index says that records are in it.
            let files = sample.with(nth, |bytes| _ = insert(bytes, frame.start(), 0x85));
            assert_read(&files, &sample.log, &[], &TailState::Clean, &what);
            first = frame.next.0;
        }
    }
}

#[test]
fn the_end_of_a_log_is_torn_hurt_or_half_created() {
    // One segment: the records 1, 2, 3, 4 and 5, and then 6, 7, 8, 9 and 10 in four frames that were written together.
    let sample = Sample::wide();
    let segment = sample.last_segment();
    let starts: Vec<usize> = segment.frames.iter().map(|frame| frame.start()).collect();
    let used = segment.bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let (len, count) = (segment.bytes.len(), sample.log.len());
    assert!(starts.len() == 8 && count == 10 && len > used + 8, "{starts:?}");
    let hurt = |frames: &[usize]| {
        sample.with(0, |bytes| frames.iter().for_each(|nth| bytes[starts[*nth] + 20] ^= 4))
    };
    for (nth, kept) in [(4, 5), (5, 6), (6, 7), (7, 8)] {
        let files = hurt(&[nth]);
        let torn = TornTail {
            offset: u64::try_from(starts[nth]).unwrap(),
            len: u64::try_from(used - starts[nth]).unwrap(),
            later_frames: 7 - nth,
            error: why(&files[0].1, starts[nth]),
        };
        let what = format!("torn at frame {nth}");
        assert_read_from(0..13, &files, &sample.log[..kept], &[], &TailState::Torn(torn), &what);
    }
    for (nth, first, last) in [(0, 1, 1), (1, 2, 2), (2, 3, 3), (3, 4, 5)] {
        let files = hurt(&[nth]);
        let text = why(&files[0].1, starts[nth]);
        let lost = gap(1, starts[nth]..starts[nth + 1], first, Some(last), &text);
        assert_read(&files, &sample.log, &[lost], &TailState::Clean, &format!("hurt at frame {nth}"));
    }
    let files = hurt(&[3, 7]);
    let texts = [3, 7].map(|nth: usize| why(&files[0].1, starts[nth]));
    let gaps =
        [gap(1, starts[3]..starts[4], 4, Some(5), &texts[0]), gap(1, starts[7]..len, 9, None, &texts[1])];
    assert_read(&files, &sample.log, &gaps, &TailState::Damaged, "hurt in the middle and at the end");
    let files = sample.with(0, |bytes| bytes[40] ^= 1);
    let lost = gap(1, 0..len, 1, None, &header_error(&files[0].1));
    assert_read(&files, &sample.log, &[lost], &TailState::Damaged, "the only header hurt");

    let sample = Sample::closed();
    for bytes in [vec![], vec![0; 100], vec![0; SEGMENT_HEADER_LEN]] {
        let mut files = sample.files();
        files.push((name(20), bytes.clone()));
        assert_read(&files, &sample.log, &[], &TailState::HalfCreated, "the next segment");
        files.remove(4);
        let len = sample.segments[3].bytes.len();
        let lost = gap(14, len..len, 18, Some(19), BEHIND);
        assert_read(&files, &sample.log, &[lost], &TailState::HalfCreated, "and the one before is missing");
        assert_read(&vec![(name(1), bytes)], &[], &[], &TailState::HalfCreated, "the first segment");
    }
    let mut files = sample.files();
    let bytes = vec![0; SEGMENT_HEADER_LEN + 1];
    let lost = gap(20, 0..bytes.len(), 20, None, &header_error(&bytes));
    files.push((name(20), bytes));
    assert_read(&files, &sample.log, &[lost], &TailState::Damaged, "a header that was whole once");
}

/// An index is there to be quick with. One that is wrong, with checksums that hold, must not take records away.
#[test]
fn an_index_that_lies_costs_no_record() {
    let sample = Sample::closed();
    let third = &sample.segments[2];
    let mut places = vec![0, 8, SEGMENT_HEADER_LEN, third.bytes.len(), usize::MAX];
    places.extend(third.frames.iter().map(|frame| frame.start()));
    for entry in 0..5 {
        for place in &places {
            let lie = u32::try_from(*place).unwrap_or(u32::MAX);
            let files =
                sample.with(2, |bytes| with_index(bytes, |entries| entries[entry].frame_offset = lie));
            let what = format!("record {} at byte {lie}", entry + 9);
            assert_read(&files, &sample.log, &[], &TailState::Clean, &what);
        }
    }
    for len in [1, 4, 6, 20] {
        let files = sample.with(2, |bytes| {
            with_index(bytes, |entries| entries.resize(len, entries[0]));
        });
        assert_read(&files, &sample.log, &[], &TailState::Clean, &format!("{len} entries"));
    }
    // A segment that stands where another one belongs has an index that is right.
    for (place, first) in [(1, 7), (1, 8), (2, 10), (3, 15)] {
        let mut files = sample.files();
        let named = files[place].0.0.0;
        files[place].0 = name(first);
        let len = files[place].1.len();
        let next = files[place + 1].0.0.0 - 1;
        let before = files[place - 1].clone();
        let text = format!("its header says it starts at position {named}");
        let end = before.1.len();
        let gaps = [
            gap(before.0.0.0, end..end, named, Some(first - 1), BEHIND),
            gap(first, 0..len, first, Some(next), &text),
        ];
        assert_read(&files, &sample.log, &gaps, &TailState::Clean, &format!("{named} as {first}"));
    }
}

fn reads(storage: &SimStorage) -> Vec<(SegmentName, Range<u64>)> {
    let calls = storage.take_calls().into_iter();
    let reads = calls.filter_map(|call| match call {
        Call::Read { path, offset, len } => {
            let name = SegmentName::parse(path.file_name()?.to_str()?)?;
            Some((name, offset..offset + len))
        }
        _ => None,
    });
    reads.collect()
}

/// The last page of a long conversation is asked for each time somebody looks at it.
#[test]
fn the_end_of_a_segment_is_read_without_what_is_before_it() {
    let storage = disk();
    let writer = create(&storage, options(30_000, 0));
    for tag in 0..25 {
        writer.append(batch(tag, &[3000]), Durability::Sync).unwrap();
    }
    writer.close().unwrap();
    let reader = LogReader::new(dir(&storage));
    let mut places = Vec::new();
    reader.index(&mut |at, entry, name| places.push((at.0, u64::from(entry.frame_offset), name))).unwrap();
    let last = places.last().unwrap().2;
    let sealed = places.iter().filter(|(.., name)| *name != last);
    assert!(sealed.clone().any(|(at, ..)| *at > 15), "{places:?}");
    for (at, offset, name) in sealed {
        storage.take_calls();
        assert_eq!(read(&storage, Position(*at)).unwrap().records[0].position, Position(*at));
        let read: Vec<_> = reads(&storage).into_iter().filter(|(read, _)| read == name).collect();
        let is_needed = |bytes: &Range<u64>| bytes.end <= 4096 || bytes.start >= *offset;
        assert!(*at == name.0.0 || read.iter().all(|(_, bytes)| is_needed(bytes)), "{at}: {read:?}");
        // What is wanted whole is read by one read.
        assert!(*at != name.0.0 || read.len() == 1, "{at}: {read:?}");
    }
    storage.take_calls();
    assert_eq!(read(&storage, Position(1)).unwrap().records.len(), 25);
    assert_eq!(reads(&storage).len(), storage.files().len());
}

/// Whoever has enough gets nothing more, neither records nor gaps, and nothing more is read for them.
#[test]
fn a_reader_that_has_enough_gets_no_more() {
    let sample = Sample::closed();
    let files = sample.with(0, |bytes| bytes[sample.segments[0].frames[1].start() + 20] ^= 4);
    let storage = Sample::disk_with(&files);
    let items = |most: usize| {
        let mut items = Vec::new();
        let mut visit = |item: ReadItem<'_>| {
            items.push(match item {
                ReadItem::Record(record) => record.position.0,
                ReadItem::Gap(gap) => 1000 + gap.first.0,
            });
            if items.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        LogReader::new(dir(&storage)).read(Position(1), &mut visit).unwrap();
        items
    };
    let all: Vec<u64> = [1, 1002].into_iter().chain(5..=19).collect();
    assert_eq!(items(usize::MAX), all);
    for most in 1..all.len() {
        storage.take_calls();
        assert_eq!(items(most), all[..most]);
        let segment = sample.segments.iter().rev().find(|it| it.name.0.0 <= all[most - 1] % 1000).unwrap();
        assert_eq!(reads(&storage).last().unwrap().0, segment.name, "{most}");
    }
}

/// A segment vanishes between the listing and the reading: recovery removes the last one if its creation did not finish, and
/// no other. A log of one segment is gone with it.
#[test]
fn a_segment_that_vanishes_is_half_created_if_it_is_the_last_of_several() {
    let sample = Sample::closed();
    let gone = Fault::new(CallKind::Open, FaultError::Kind(std::io::ErrorKind::NotFound));
    for count in 1..=5 {
        for nth in 0..count {
            let storage = Sample::disk_with(&sample.files()[..count]);
            storage.fail(gone.clone().on(Sample::path(sample.segments[nth].name)));
            let seen = read(&storage, Position(1));
            if nth + 1 == count && count > 1 {
                let next = usize::try_from(sample.segments[nth].name.0.0).unwrap();
                let (records, gaps) = (sample.log[..next - 1].to_vec(), vec![]);
                assert_eq!(seen.unwrap(), Seen { records, gaps, tail: TailState::HalfCreated });
            } else {
                let error = seen.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NotFound, "{nth} of {count}: {error}");
            }
            storage.clear_faults();
            for kind in [CallKind::Open, CallKind::Read] {
                storage.fail(Fault::new(kind, FaultError::EIO).on(Sample::path(sample.segments[nth].name)));
                assert_eq!(read(&storage, Position(1)).unwrap_err().kind(), ErrorKind::Io);
            }
        }
    }
    let error = read(&disk(), Position(1)).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::NotFound, "log.missing"));
    assert!(error.to_string().contains("log/segments holds no log"), "{error}");
}

/// A log whose only segment reads first as the first of `versions`, and so on: the bytes of the next one are put in its place
/// in the middle of a read. They are the same from the middle on.
fn changing(versions: &[Vec<u8>]) -> (Seen, usize) {
    let storage = Sample::disk_with(&[(name(1), versions[0].clone())]);
    let read = Arc::new(AtomicUsize::new(0));
    let coming = Arc::new(Mutex::new(versions[1..].to_vec()));
    let hook = {
        let (storage, read) = (storage.clone(), Arc::clone(&read));
        move |kind| {
            assert_eq!(kind, CallKind::Read);
            read.fetch_add(1, Ordering::SeqCst);
            let mut coming = coming.lock().unwrap();
            if !coming.is_empty() {
                storage.put_file(Sample::path(name(1)), coming.remove(0)).unwrap();
            }
        }
    };
    let seen =
        read_on(dir_on(Arc::new(Hooked { inner: storage, hook: Arc::new(hook) })), Position(1)).unwrap();
    (seen, read.load(Ordering::SeqCst))
}

/// A writer may fill a place that was read already, and then one that was not: that looks like damage, and is none.
#[test]
fn damage_is_believed_when_it_is_seen_twice_in_one_place() {
    let sample = Sample::wide();
    let segment = sample.last_segment();
    let hurt = |at: usize| {
        let mut bytes = segment.bytes.clone();
        assert!(at + 20 < bytes.len() / 2);
        bytes[at + 20] ^= 4;
        bytes
    };
    let (header, one, two) = (hurt(20), hurt(segment.frames[0].start()), hurt(segment.frames[1].start()));
    let whole = segment.bytes.clone();
    let lost_all = gap(1, 0..whole.len(), 1, None, &header_error(&header));
    let lost = |bytes: &[u8], nth: usize| {
        let at = u64::try_from(nth + 1).unwrap();
        gap(1, place(segment, nth), at, Some(at), &why(bytes, segment.frames[nth].start()))
    };
    let (first, second) = (lost(&one, 0), lost(&two, 1));
    let cases = [
        (vec![&whole], vec![], TailState::Clean, 1),
        (vec![&one, &whole], vec![], TailState::Clean, 2),
        (vec![&header, &whole], vec![], TailState::Clean, 2),
        (vec![&one, &two, &whole], vec![], TailState::Clean, 3),
        (vec![&header, &one, &whole], vec![], TailState::Clean, 3),
        (vec![&one, &one, &whole], vec![first.clone()], TailState::Clean, 2),
        (vec![&one, &two, &two], vec![second], TailState::Clean, 3),
        (vec![&two, &one], vec![first], TailState::Clean, 3),
        (vec![&header, &header, &whole], vec![lost_all], TailState::Damaged, 2),
    ];
    for (nth, (versions, gaps, tail, looks)) in cases.into_iter().enumerate() {
        let versions: Vec<_> = versions.into_iter().cloned().collect();
        let records = without(&sample.log, &gaps);
        assert_eq!(changing(&versions), (Seen { records, gaps, tail }, looks), "case {nth}");
    }
}

type Entry = (Position, FooterEntry, SegmentName);

/// What the index of a log should say of the frames that are not left out.
fn entries(sample: &Sample, is_there: impl Fn(usize, usize) -> bool) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut records = sample.log.iter();
    for (nth, segment) in sample.segments.iter().enumerate() {
        for (frame, at) in segment.frames.iter().enumerate() {
            let mut of_frame = records.clone().take_while(|it| it.position < at.next);
            let offset = u32::try_from(at.start()).unwrap();
            for record in of_frame.by_ref() {
                records.next();
                if is_there(nth, frame) {
                    entries.push((record.position, FooterEntry::of(&record.envelope, offset), segment.name));
                }
            }
        }
    }
    entries
}

#[test]
fn an_index_names_each_record_that_can_be_read() {
    let sample = Sample::closed();
    let starts: Vec<usize> = sample.segments[2].frames.iter().map(|frame| frame.start()).collect();
    let end = sample.segments[2].bytes.len();
    let last = sample.segments[4].frames[0].start();
    let check = |files: Files, expected: &[Entry], is_marked: bool, what: &str| {
        let storage = Sample::disk_with(&files);
        let reader = LogReader::new(dir(&storage));
        let mut found = Vec::new();
        let indexed = reader.index(&mut |at, entry, name| found.push((at, entry, name))).unwrap();
        assert_eq!(found, expected, "{what}");
        let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        assert_eq!(indexed.bytes, u64::try_from(bytes).unwrap(), "{what}");
        assert_eq!((indexed.mark.is_some(), &indexed.mark), (is_marked, &reader.mark().unwrap()), "{what}");
        if let Some(mark) = &indexed.mark {
            assert!(mark.next.0 == 20 && reader.is_at(mark).unwrap(), "{what}");
        }
    };
    let all = entries(&sample, |_, _| true);
    assert_eq!(all.len(), 19);
    let with = |at: usize| sample.with(2, |bytes| bytes[at] ^= 1);
    check(sample.files(), &all, true, "whole");
    check(with(starts[3] + 20), &all, true, "the footer hurt");
    check(with(end - 1), &all, true, "the locator hurt");
    check(sample.with(2, |bytes| bytes.truncate(starts[3])), &all, true, "without a footer");
    check(with(starts[1] + 20), &all, true, "a frame that the footer knows");
    check(with(40), &entries(&sample, |nth, _| nth != 2), true, "a header hurt");
    let both = sample.with(2, |bytes| [starts[1], starts[3]].iter().for_each(|at| bytes[at + 20] ^= 1));
    check(both, &entries(&sample, |nth, frame| (nth, frame) != (2, 1)), true, "a frame and the footer hurt");
    let torn = sample.with(4, |bytes| bytes[last + 20] ^= 1);
    check(torn, &entries(&sample, |nth, _| nth < 4), false, "torn, with a whole frame behind");
    let hurt = sample.with(4, |bytes| bytes[40] ^= 1);
    check(hurt, &entries(&sample, |nth, _| nth < 4), false, "the last header hurt");
    let wide = Sample::wide();
    let third = wide.segments[0].frames[3].start();
    let hurt = wide.with(0, |bytes| bytes[third + 20] ^= 1);
    check(hurt, &entries(&wide, |_, frame| frame != 3), false, "damage in the last segment");
    // What can't be read is never an index with less in it.
    let storage = Sample::disk_with(&sample.files());
    storage.take_calls();
    LogReader::new(dir(&storage)).index(&mut |_, _, _| ()).unwrap();
    let count = storage.take_calls().iter().filter(|call| call.kind() == CallKind::Read).count();
    for after in 0..count {
        storage.fail(Fault::new(CallKind::Read, FaultError::EIO).after(u64::try_from(after).unwrap()));
        let failed = LogReader::new(dir(&storage)).index(&mut |_, _, _| ()).unwrap_err();
        assert_eq!((failed.kind(), storage.armed_faults()), (ErrorKind::Io, 0), "read {after}");
    }
}

#[test]
fn a_frame_is_read_from_where_the_index_says_and_from_nowhere_else() {
    let sample = Sample::closed();
    let storage = Sample::disk_with(&sample.files());
    let reader = LogReader::new(dir(&storage));
    let mut places = Vec::new();
    let indexed = reader.index(&mut |at, entry, name| places.push((at, entry.frame_offset, name))).unwrap();
    let frame = |offset: u32, segment: SegmentName, from_index: bool| {
        let mut positions = Vec::new();
        let mut visit = |record: sessionlog_codec::record::Record<'_>| positions.push(record.position);
        let read = if from_index {
            reader.read_indexed_frame(&indexed, segment, offset, &mut visit)
        } else {
            reader.read_frame(segment, offset, &mut visit)
        };
        read.map(|()| positions)
    };
    for (_, offset, segment) in &places {
        let expected: Vec<_> =
            places.iter().filter(|it| (&it.1, &it.2) == (offset, segment)).map(|it| it.0).collect();
        for from_index in [false, true] {
            assert_eq!(frame(*offset, *segment, from_index).unwrap(), expected);
        }
    }
    let assert_hurt = |offset: u32, segment: SegmentName, from_index: bool, at: u32| {
        let error = frame(offset, segment, from_index).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Corrupt, "log.damaged"));
        let place = format!("damage in {} from byte {at};", Sample::path(segment).display());
        assert!(error.to_string().contains(&place), "{error}, not {place}");
    };
    for segment in [name(9), name(18)] {
        for from_index in [false, true] {
            for offset in [129, 5000, u32::MAX] {
                assert_hurt(offset, segment, from_index, offset);
            }
        }
    }
    // Of the last segment, what was read for the index is not read again.
    for segment in &sample.segments {
        storage.corrupt(Sample::path(segment.name), |bytes| bytes.fill(0xee)).unwrap();
    }
    storage.take_calls();
    assert_eq!(frame(128, name(18), true).unwrap(), [Position(18)]);
    assert_eq!(reads(&storage), []);
    assert_hurt(128, name(18), false, 0);
    assert_hurt(128, name(9), true, 0);
}

#[test]
fn the_size_is_that_of_the_files() {
    let sample = Sample::closed();
    let storage = Sample::disk_with(&sample.files());
    let bytes = u64::try_from(sample.segments.iter().map(|it| it.bytes.len()).sum::<usize>()).unwrap();
    let size = LogReader::new(dir(&storage)).size().unwrap();
    assert_eq!(size, LogSize { segments: 5, compressed: 0, bytes, unpacked_bytes: bytes });
    assert_eq!(LogReader::new(dir(&disk())).size().unwrap_err().kind(), ErrorKind::NotFound);
}

/// A chain that does not hold is for an owner to refuse and for a check to tell. Each record is there.
#[test]
fn a_broken_chain_costs_a_reader_nothing() {
    let sample = Sample::closed();
    for nth in [2, 4] {
        let at = sample.segments[nth].frames[0].start();
        let files = sample.with(nth, |bytes| {
            bytes[at + 44] ^= 1;
            seal(bytes, at);
        });
        assert_read(&files, &sample.log, &[], &TailState::Clean, &format!("segment {nth}"));
    }
}

/// A compressed segment is read block by block: a hurt block costs the frames that have a byte in it, a hurt head costs nothing
/// while its copy is whole.
#[cfg(feature = "compression")]
mod packed {
    use sessionlog::log::{Finding, Severity};
    use sessionlog_codec::packed::{self, PackedBlock, PackedHead};

    use super::*;

    /// The segment compressed into blocks of at most so many bytes.
    fn pack(segment: &Segment, block_len: usize) -> Vec<u8> {
        let starts: Vec<usize> = segment.frames.iter().map(|frame| frame.start()).collect();
        let mut at = SEGMENT_HEADER_LEN;
        let blocks = packed::cut(segment.bytes.len(), &starts, block_len).into_iter().map(|len| {
            at += len;
            (len, zstd::bulk::compress(&segment.bytes[at - len..at], 1).unwrap())
        });
        let blocks: Vec<_> = blocks.collect();
        let header = SegmentHeader::decode(&segment.bytes).unwrap();
        let own = segment.bytes.first_chunk().unwrap();
        packed::encode(&header, own, segment.frames.last().unwrap().next, &blocks).unwrap()
    }

    /// The log with its sealed segments compressed.
    fn packed(sample: &Sample, block_len: usize) -> Files {
        let mut files = sample.files();
        for (file, segment) in files.iter_mut().zip(&sample.segments).take(4) {
            file.1 = pack(segment, block_len);
        }
        files
    }

    fn findings(files: &Files) -> Vec<Finding> {
        LogReader::new(dir(&Sample::disk_with(files))).verify().unwrap().findings
    }

    /// One byte of a file, from its end if it is negative.
    fn flipped(files: &Files, nth: usize, ats: &[isize]) -> Files {
        let mut files = files.clone();
        let len = files[nth].1.len();
        for at in ats {
            let at = if *at < 0 { len - at.unsigned_abs() } else { at.unsigned_abs() };
            files[nth].1[at] ^= 4;
        }
        files
    }

    /// What is wrong with a block of a file.
    fn block_error(block: &PackedBlock, file: &[u8]) -> String {
        let start = usize::try_from(block.stored_offset).unwrap();
        let stored = &file[start..file.len().min(start + block.stored_len)];
        format!(
            "the compressed block at byte {start} of the file, {} bytes, is hurt: {}. It holds bytes {} to {} of the segment",
            block.stored_len,
            block.check(stored).unwrap_err(),
            block.offset,
            block.offset + block.len
        )
    }

    #[test]
    fn a_compressed_log_is_counted_and_read_as_the_plain_one() {
        let sample = Sample::closed();
        let plain: usize = sample.segments.iter().map(|it| it.bytes.len()).sum();
        // The last of them has heads that are longer than what is read to begin with.
        for block_len in [10_000, 300, 64, 2] {
            let files = packed(&sample, block_len);
            let stored: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
            let reader = LogReader::new(dir(&Sample::disk_with(&files)));
            let (bytes, unpacked_bytes) = (u64::try_from(stored).unwrap(), u64::try_from(plain).unwrap());
            let size = LogSize { segments: 5, compressed: 4, bytes, unpacked_bytes };
            assert_eq!(reader.size().unwrap(), size);
            let found = reader.verify().unwrap();
            assert_eq!((found.findings, found.bytes, found.unpacked_bytes), (vec![], bytes, unpacked_bytes));
            assert_eq!((found.segments, found.frames, found.records), (5, 13, 19));
            assert_read(&files, &sample.log, &[], &TailState::Clean, &format!("blocks of {block_len}"));
            let mut index = Vec::new();
            let indexed = reader.index(&mut |at, entry, name| index.push((at, entry, name))).unwrap();
            assert_eq!((index, indexed.bytes), (entries(&sample, |_, _| true), bytes));
            let all: Vec<_> = (1..=19).map(Position).collect();
            let mut found = Vec::new();
            reader.read_at(&all, &mut |record| found.push(record.position)).unwrap();
            assert_eq!(found, all);
            for segment in &sample.segments {
                let mut first = segment.name.0;
                for frame in segment.frames.iter().filter(|frame| !frame.is_footer) {
                    let mut found = Vec::new();
                    let offset = u32::try_from(frame.start()).unwrap();
                    reader
                        .read_frame(segment.name, offset, &mut |record| found.push(record.position))
                        .unwrap();
                    assert_eq!(found, (first.0..frame.next.0).map(Position).collect::<Vec<_>>());
                    first = frame.next;
                }
            }
        }
    }

    #[test]
    fn a_hurt_block_costs_the_frames_that_are_in_it() {
        let sample = Sample::closed();
        for (block_len, nth) in [(10_000, 0), (300, 1), (64, 1), (64, 2), (20, 2)] {
            let whole = packed(&sample, block_len);
            let segment = &sample.segments[nth];
            let head = PackedHead::decode(&whole[nth].1).unwrap();
            // Padding is covered by nothing, and nothing is lost with it; nor with what looks as hurt bytes do.
            let is_covered = |block: &&PackedBlock| {
                let mut covered = segment.frames.iter().flat_map(|frame| &frame.covered);
                covered.any(|bytes| bytes.start < block.range().end && block.offset < bytes.end)
                    && segment.bytes[block.range()].iter().any(|byte| *byte != 0xff)
            };
            for block in head.blocks.iter().filter(is_covered) {
                let at = isize::try_from(block.stored_offset).unwrap();
                let files = flipped(&whole, nth, &[at + 3]);
                let text = block_error(block, &files[nth].1);
                let what = format!("{text}, blocks of {block_len}");
                let is_hurt = |frame: &&support::sample::FrameAt| {
                    frame.start() < block.range().end && block.offset < frame.end
                };
                let hurt: Vec<_> = segment.frames.iter().filter(is_hurt).collect();
                let (start, end) = (hurt[0].start(), hurt[hurt.len() - 1].end);
                let before = segment.frames.iter().rfind(|frame| frame.end <= start);
                let first = before.map_or(segment.name.0, |frame| frame.next);
                let next = hurt[hurt.len() - 1].next;
                let gap = gap(segment.name.0.0, start..end, first.0, Some(next.0 - 1), &text);
                let gaps = if first == next { vec![] } else { vec![gap] };
                assert_read(&files, &sample.log, &gaps, &TailState::Clean, &what);
                let found = findings(&files);
                let told = (found[0].severity, found[0].code, found[0].offset, found[0].len);
                let bytes = (u64::try_from(start).unwrap(), u64::try_from(end - start).unwrap());
                assert_eq!(told, (Severity::Lost, "frame.damaged", bytes.0, bytes.1), "{what}");
                assert_eq!(found[0].explanation, format!("{} bytes are hurt: {text}", end - start));
                // Who asks for one frame is told of the block too, and of no other.
                let storage = Sample::disk_with(&files);
                let reader = LogReader::new(dir(&storage));
                for frame in segment.frames.iter().filter(|frame| !frame.is_footer) {
                    let offset = u32::try_from(frame.start()).unwrap();
                    let read = reader.read_frame(segment.name, offset, &mut |_| ());
                    assert_eq!(read.is_err(), is_hurt(&frame), "{what}: {read:?}");
                    if let Err(error) = read {
                        let path = Sample::path(segment.name);
                        let message =
                            format!("{}: {text}; run `logdump verify` for the whole picture", path.display());
                        assert_eq!((error.code(), error.to_string()), ("log.damaged", message));
                    }
                }
                // The index of a segment is of its footer, if that is whole, else of the frames that are.
                let mut index = Vec::new();
                reader.index(&mut |at, entry, name| index.push((at, entry, name))).unwrap();
                let is_lost = |frame: usize| is_hurt(&&segment.frames[frame]);
                let footer = segment.frames.len() - 1;
                assert_eq!(
                    index,
                    entries(&sample, |it, frame| it != nth || !is_lost(footer) || !is_lost(frame))
                );
            }
        }
    }

    /// The last block is cut with what is behind it, or grew.
    #[test]
    fn the_end_of_a_compressed_file_is_checked() {
        let sample = Sample::closed();
        let whole = packed(&sample, 300);
        let (bytes, head) = (&whole[2].1, PackedHead::decode(&whole[2].1).unwrap());
        let copy = bytes.len() - 16 - head.encoded_len();
        let text = format!(
            "from byte {copy} of the file: the copy of the head is hurt; nothing is lost while the first one is whole"
        );
        let mut longer = whole.clone();
        longer[2].1.push(0);
        let mut cases = vec![longer];
        for len in [bytes.len() - 1, bytes.len() - 16, copy + 1, copy] {
            let mut files = whole.clone();
            files[2].1.truncate(len);
            cases.push(files);
        }
        let copied = isize::try_from(bytes.len() - copy).unwrap();
        cases.extend([-1, -5, -16, -17, -copied, 200 - copied].map(|at| flipped(&whole, 2, &[at])));
        for (nth, files) in cases.iter().enumerate() {
            let found = findings(files);
            let told: Vec<_> = found.iter().map(|it| (it.severity, it.code, it.offset, it.len)).collect();
            let len = u64::try_from(files[2].1.len()).unwrap();
            assert_eq!(told, [(Severity::Warning, "segment.head", 0, len)], "case {nth}");
            assert_eq!(
                (&found[0].file, &found[0].explanation),
                (&Sample::path(name(9)), &text),
                "case {nth}"
            );
            assert_read(files, &sample.log, &[], &TailState::Clean, &format!("case {nth}"));
        }
        let mut files = whole.clone();
        files[2].1.truncate(copy - 1);
        let footer = head.blocks.last().unwrap();
        let cut = block_error(footer, &files[2].1);
        assert!(cut.contains("length of a block at byte 0: expected"), "{cut}");
        assert_eq!(findings(&files)[1].explanation, format!("{} bytes are hurt: {cut}", footer.len));
        assert_read(&files, &sample.log, &[], &TailState::Clean, "the index is cut");
    }

    #[test]
    fn a_hurt_head_costs_nothing_while_its_copy_is_whole() {
        let sample = Sample::closed();
        for block_len in [300, 2] {
            let whole = packed(&sample, block_len);
            // The magic, the version, and a field of the header before the head; the head's magic, its length, a field, the
            // segment's own header, a block.
            for at in [0, 10, 40, 128, 136, 152, 200, 300] {
                let files = flipped(&whole, 2, &[at]);
                let error = match PackedHead::decode(&files[2].1) {
                    Ok(head) => head.outer_error.unwrap(),
                    Err(error) => error,
                };
                let text = format!("the head of the compressed file is hurt, and its copy was used: {error}");
                let found = findings(&files);
                let told: Vec<_> = found.iter().map(|it| (it.severity, it.code, it.offset, it.len)).collect();
                let len = u64::try_from(files[2].1.len()).unwrap();
                assert_eq!(told, [(Severity::Warning, "segment.head", 0, len)], "byte {at}");
                assert_eq!(found[0].explanation, text, "byte {at}");
                assert_read(&files, &sample.log, &[], &TailState::Clean, &format!("byte {at}"));
                let size = |files: &Files| LogReader::new(dir(&Sample::disk_with(files))).size().unwrap();
                assert_eq!(size(&files), size(&whole), "byte {at}");
            }
        }
    }

    #[test]
    fn without_a_head_the_segment_is_lost_and_no_other() {
        let sample = Sample::closed();
        let whole = packed(&sample, 300);
        // The head, and the locator of its copy or the copy.
        for ats in [[150, -1], [150, -9], [150, -17], [150, -60]] {
            let files = flipped(&whole, 2, &ats);
            let len = files[2].1.len();
            let error = PackedHead::decode(&files[2].1).unwrap_err();
            let text = format!("a compressed segment that can't be opened: {error}");
            let lost = gap(9, SEGMENT_HEADER_LEN..len, 9, Some(13), &text);
            assert_read(&files, &sample.log, &[lost], &TailState::Clean, &format!("{ats:?}"));
            let found = findings(&files);
            let told: Vec<_> = found.iter().map(|it| (it.code, it.offset, it.len)).collect();
            let len = u64::try_from(len).unwrap();
            let expected =
                [("frame.damaged", 128, len - 128), ("segment.unsealed", len, 0), ("segment.gap", 0, 0)];
            assert_eq!(told, expected, "{ats:?}");
            assert_eq!(found[0].explanation, format!("{} bytes are hurt: {text}", len - 128));
            assert_eq!((found[2].first, found[2].last), (Some(Position(9)), Some(Position(13))));
            let storage = Sample::disk_with(&files);
            let reader = LogReader::new(dir(&storage));
            let failed = reader.read_frame(name(9), 128, &mut |_| ()).unwrap_err();
            assert!(failed.to_string().contains(&format!(": {text}; run")), "{failed}");
            let mut index = Vec::new();
            reader.index(&mut |at, entry, name| index.push((at, entry, name))).unwrap();
            assert_eq!(index, entries(&sample, |nth, _| nth != 2));
            assert_eq!(reader.size().unwrap().compressed, 4);
        }
        let files = flipped(&whole, 2, &[40, 150, -1]);
        let len = files[2].1.len();
        let lost = gap(9, 0..len, 9, Some(13), &header_error(&files[2].1));
        assert_read(&files, &sample.log, &[lost], &TailState::Clean, "not even a header");
    }

    /// Whoever lost the segment behind it has a compressed one at the end. What is compressed was durable.
    #[test]
    fn at_the_end_of_a_log_a_hurt_block_is_damage() {
        let sample = Sample::closed();
        let whole = packed(&sample, 64)[..4].to_vec();
        let log = &sample.log[..17];
        assert_eq!(findings(&whole), []);
        assert_read(&whole, log, &[], &TailState::Clean, "whole");
        let segment = &sample.segments[3];
        let head = PackedHead::decode(&whole[3].1).unwrap();
        let hurt = |frames: &[usize]| {
            let of_frame = |nth: &usize| {
                let at = segment.frames[*nth].start();
                head.blocks.iter().find(|block| block.range().contains(&at)).unwrap()
            };
            let blocks: Vec<_> = frames.iter().map(of_frame).collect();
            let ats: Vec<_> =
                blocks.iter().map(|block| isize::try_from(block.stored_offset).unwrap() + 3).collect();
            let files = flipped(&whole, 3, &ats);
            let texts: Vec<_> = blocks.iter().map(|block| block_error(block, &files[3].1)).collect();
            (files, texts)
        };
        let (files, texts) = hurt(&[1]);
        let lost = gap(14, place(segment, 1), 15, Some(15), &texts[0]);
        assert_read(&files, log, &[lost], &TailState::Clean, "a frame");
        let (files, texts) = hurt(&[2, 3]);
        let lost = gap(14, segment.frames[2].start()..segment.bytes.len(), 16, None, &texts[0]);
        assert_read(&files, log, &[lost], &TailState::Damaged, "the last frame and the index");
        let told: Vec<_> = findings(&files).into_iter().map(|it| (it.code, it.first, it.last)).collect();
        let (first, last) = (Some(Position(16)), Some(Position(17)));
        assert_eq!(told, [("frame.damaged", first, None), ("segment.gap", first, last)]);
        // No record is in the index.
        let (files, _) = hurt(&[3]);
        let seen = read(&Sample::disk_with(&files), Position(1)).unwrap();
        assert!(
            seen.records == log && seen.gaps.is_empty() && matches!(seen.tail, TailState::Torn(_)),
            "{seen:?}"
        );
        let files = flipped(&whole, 3, &[150, -1]);
        let error = PackedHead::decode(&files[3].1).unwrap_err();
        let text = format!("a compressed segment that can't be opened: {error}");
        let lost = gap(14, SEGMENT_HEADER_LEN..files[3].1.len(), 14, None, &text);
        assert_read(&files, log, &[lost], &TailState::Damaged, "both heads");
        let told: Vec<_> = findings(&files).into_iter().map(|it| (it.code, it.first, it.last)).collect();
        let first = Some(Position(14));
        assert_eq!(told, [("frame.damaged", first, None), ("segment.gap", first, first)]);
    }

    /// A compressed segment says which log it is of, to whoever reads on behind it.
    #[test]
    fn behind_a_compressed_segment_comes_no_other_log() {
        let sample = Sample::closed();
        let mut files = packed(&sample, 300);
        with_header(&mut files[4].1, |header| header.log_id = LogId([9; 16]));
        let text = "it belongs to another log (09090909-0909-0909-0909-090909090909)";
        let lost = gap(18, 0..files[4].1.len(), 18, None, text);
        assert_read(&files, &sample.log, &[lost], &TailState::Damaged, "another log's");
    }

    #[test]
    fn an_error_of_the_disk_is_no_damage_of_a_block() {
        let sample = Sample::closed();
        let files = packed(&sample, 300);
        let storage = Sample::disk_with(&files);
        for from in [1, 10, 12, 13] {
            storage.take_calls();
            read(&storage, Position(from)).unwrap();
            for after in 0..reads(&storage).len() {
                storage
                    .fail(Fault::new(CallKind::Read, FaultError::EIO).after(u64::try_from(after).unwrap()));
                let failed = read(&storage, Position(from)).unwrap_err();
                assert_eq!(
                    (failed.kind(), storage.armed_faults()),
                    (ErrorKind::Io, 0),
                    "{from}, read {after}"
                );
            }
        }
    }
}
