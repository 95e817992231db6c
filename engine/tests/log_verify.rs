//! What the check of a log finds: of each way to hurt one, exactly what is wrong, how bad it is, where, and which records it
//! concerns; and of a log that is whole, nothing. Somebody decides by it whether to salvage, to restore or to go on.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::ops::Range;

use sessionlog::ErrorKind;
use sessionlog::log::{Finding, LogReader, LogVerification, LogWriter, SegmentName, Severity};
use sessionlog::storage::{CallKind, Fault, FaultError};
use sessionlog_codec::frame::Frame;
use sessionlog_codec::ids::{Digest, Epoch, LogId, Position, SegmentNo};
use sessionlog_codec::limits::SEGMENT_HEADER_LEN;
use sessionlog_codec::segment::SegmentHeader;
use support::patched::{from_the_future, header_error, insert, seal, why, with_header, with_index};
use support::sample::{Left, Sample, append_groups};
use support::{LOG, dir, disk, open};

type Files = Vec<(SegmentName, Vec<u8>)>;

const CHAIN_OF_SEGMENT: &str = "its header names another chain hash than the segment before it ends with";
const CHAIN_OF_FRAME: &str =
    "its chain hash does not follow from the frame before it: something was changed on purpose";
const UNSEALED: &str = "a segment follows it, but it has no footer: its end is hurt or missing";

fn name(first: u64) -> SegmentName {
    SegmentName(Position(first))
}

fn verify(files: &Files) -> LogVerification {
    LogReader::new(dir(&Sample::disk_with(files))).verify().unwrap()
}

/// A finding in the segment of a name.
fn finding(
    (severity, code): (Severity, &'static str),
    segment: u64,
    bytes: Range<usize>,
    positions: impl Into<Option<(u64, Option<u64>)>>,
    text: impl Into<String>,
) -> Finding {
    let positions = positions.into();
    Finding {
        severity,
        code,
        file: Sample::path(name(segment)),
        offset: u64::try_from(bytes.start).unwrap(),
        len: u64::try_from(bytes.len()).unwrap(),
        first: positions.map(|(first, _)| Position(first)),
        last: positions.and_then(|(_, last)| last).map(Position),
        explanation: text.into(),
    }
}

fn lost(code: &'static str) -> (Severity, &'static str) {
    (Severity::Lost, code)
}

fn assert_found(files: &Files, expected: &[Finding], what: &str) {
    assert_eq!(verify(files).findings, expected, "{what}");
}

/// The chain hash of the last frame of records.
fn chain(segment: &[u8]) -> Digest {
    let header = SegmentHeader::decode(segment).unwrap();
    let (mut at, mut chain) = (SEGMENT_HEADER_LEN, header.previous);
    while let Ok(frame) = Frame::decode(segment.get(at..).unwrap_or_default(), header.salt) {
        chain = frame.header().chain;
        at += frame.header().frame_len();
    }
    chain
}

#[test]
fn a_whole_log_is_counted_and_nothing_is_found() {
    for (sample, segments, frames, records) in [
        (Sample::closed(), 5, 13, 19),
        (Sample::small(0, Left::Sealed), 5, 14, 20),
        (Sample::small(4096, Left::Open), 5, 13, 19),
        (Sample::wide(), 1, 8, 10),
    ] {
        let bytes = u64::try_from(sample.segments.iter().map(|it| it.bytes.len()).sum::<usize>()).unwrap();
        let last = sample.last_segment();
        let used = last.frames.last().unwrap().end;
        let zeros = used..last.bytes.len();
        let mut findings = Vec::new();
        if !zeros.is_empty() {
            let text = format!(
                "{} bytes at the end are not used yet (the session is open, or was not closed)",
                zeros.len()
            );
            let kind = (Severity::Note, "space.unused");
            findings.push(finding(kind, last.name.0.0, zeros, None, text));
        }
        let expected = LogVerification {
            segments,
            frames,
            records,
            bytes,
            unpacked_bytes: bytes,
            last: Position(records),
            chain: chain(&last.bytes),
            log_id: Some(LOG),
            findings,
        };
        assert_eq!(verify(&sample.files()), expected);
        // Opened again, and closed.
        let storage = Sample::disk_with(&sample.files());
        open(&storage, sample.options).unwrap().0.close().unwrap();
        assert_eq!(LogReader::new(dir(&storage)).verify().unwrap().findings, []);
    }
    // Behind a sealed segment, one without a record.
    let mut files = Sample::small(0, Left::Sealed).files();
    let before = SegmentHeader::decode(&files[4].1).unwrap();
    let header = SegmentHeader {
        segment_no: before.segment_no.next().unwrap(),
        first_position: Position(21),
        previous: chain(&files[4].1),
        ..before
    };
    files.push((name(21), header.encode().to_vec()));
    let found = verify(&files);
    assert_eq!((found.findings, found.last, found.chain), (vec![], Position(20), header.previous));
    assert_eq!(LogReader::new(dir(&disk())).verify().unwrap_err().kind(), ErrorKind::NotFound);
}

/// What can't be read is not taken for anything.
#[test]
fn an_error_of_the_disk_is_no_finding() {
    let sample = Sample::closed();
    for segment in &sample.segments {
        for kind in [CallKind::Open, CallKind::Read] {
            let storage = Sample::disk_with(&sample.files());
            storage.fail(Fault::new(kind, FaultError::EIO).on(Sample::path(segment.name)));
            assert_eq!(LogReader::new(dir(&storage)).verify().unwrap_err().kind(), ErrorKind::Io);
        }
    }
}

#[test]
fn what_was_being_created_is_repairable_and_empty() {
    let sample = Sample::closed();
    let header = sample.segments[0].bytes[..SEGMENT_HEADER_LEN].to_vec();
    let mut torn = sample.segments[0].bytes[..200].to_vec();
    torn[150] ^= 1;
    let mut zeros = header.clone();
    zeros.resize(700, 0);
    let whole = "the session's creation did not finish: no record was ever acknowledged";
    let kind = (Severity::Repairable, "log.half_created");
    for bytes in [vec![], vec![0; 100], vec![0; SEGMENT_HEADER_LEN], header, torn, zeros] {
        let len = bytes.len();
        let found = verify(&vec![(name(1), bytes)]);
        let count = u64::try_from(len).unwrap();
        assert_eq!((found.segments, found.bytes, found.unpacked_bytes), (1, count, count));
        assert_eq!((found.frames, found.records, found.last), (0, 0, Position(0)));
        assert_eq!(found.findings, [finding(kind, 1, 0..len, None, whole)], "{len}");
    }
    let text = "creating this segment did not finish; the next owner removes it. No record was in it";
    let kind = (Severity::Repairable, "segment.half_created");
    for bytes in [vec![], vec![0; 100], vec![0; SEGMENT_HEADER_LEN]] {
        let mut files = sample.files();
        let len = bytes.len();
        files.push((name(20), bytes));
        let found = verify(&files);
        let total = u64::try_from(files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()).unwrap();
        assert_eq!((found.segments, found.bytes, found.unpacked_bytes), (6, total, total));
        assert_eq!((found.frames, found.records, found.last), (13, 19, Position(19)));
        let unfinished = finding(kind, 20, 0..len, None, text);
        assert_eq!(found.findings, std::slice::from_ref(&unfinished));
        // Its name says that all before it was durable.
        let end = sample.segments[4].bytes.len();
        let start = sample.segments[4].frames[1].start();
        files[4].1.truncate(start);
        let gap = finding(
            lost("segment.gap"),
            18,
            start..start,
            (19, Some(19)),
            "positions 19 to 19 are missing at its end",
        );
        assert_found(&files, &[gap, unfinished.clone()], "cut before it");
        files[4].1 = sample.segments[4].bytes.clone();
        files[4].1[start + 20] ^= 4;
        let text = format!("{} bytes are hurt: {}", end - start, why(&files[4].1, start));
        let hurt = finding(lost("frame.damaged"), 18, start..end, (19, None), text);
        let text = "positions 19 to 19 are missing at its end";
        let gap = finding(lost("segment.gap"), 18, end..end, (19, Some(19)), text);
        assert_found(&files, &[hurt, gap, unfinished], "hurt before it");
    }
}

#[test]
fn a_torn_end_is_repairable_and_told_with_where_the_log_goes_on() {
    let sample = Sample::wide();
    let segment = sample.last_segment();
    let used = segment.bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for (nth, next, frames) in [(4, 6, 4), (5, 7, 5), (7, 9, 7)] {
        let start = segment.frames[nth].start();
        let files = sample.with(0, |bytes| bytes[start + 20] ^= 4);
        let text = format!(
            "the log ends in {} bytes that nothing proves to have been acknowledged ({}): an append that is under way or \
             was cut short. The next owner keeps them in quarantine and goes on from position {next}",
            used - start,
            why(&files[0].1, start)
        );
        let found = verify(&files);
        let kind = (Severity::Repairable, "tail.torn");
        assert_eq!(found.findings, [finding(kind, 1, start..used, None, text)], "frame {nth}");
        assert_eq!((found.frames, found.records, found.last), (frames, next - 1, Position(next - 1)));
        assert_eq!(found.chain, chain(&segment.bytes[..start]));
    }
}

/// Where nothing is lost, an index that is wrong is told; where something is, it is wrong of necessity.
#[test]
fn an_index_that_lies_is_told_where_nothing_is_lost() {
    let sample = Sample::closed();
    let third = &sample.segments[2];
    let (second, footer) = (third.frames[1].start(), third.frames[3].start());
    let index = footer..third.bytes.len() - 8;
    let wrong = "the segment's index does not match its records; it can be rebuilt from them";
    let wrong = finding((Severity::Warning, "footer.wrong"), 9, index, None, wrong);
    let lie = |bytes: &mut Vec<u8>| with_index(bytes, |entries| entries[0].frame_offset = 264);
    assert_found(&sample.with(2, lie), std::slice::from_ref(&wrong), "an index that lies");
    let files = sample.with(2, |bytes| {
        lie(bytes);
        insert(bytes, second, 0x89);
    });
    let skipped = "a frame of kind 137 that this version skips";
    let skipped = finding((Severity::Note, "frame.skipped"), 9, 264..360, None, skipped);
    let later = |it: &Finding| Finding { offset: it.offset + 96, ..it.clone() };
    assert_found(&files, &[skipped, later(&wrong)], "a note and an index that lies");
    let mut files = sample.with(2, lie);
    files.remove(0);
    let gap = finding(lost("segment.missing"), 6, 0..0, (1, Some(5)), "1 segments before it are missing");
    assert_found(&files, &[gap], "something else is lost");
}

#[test]
fn damage_of_frames_is_told_with_what_is_missing() {
    let sample = Sample::closed();
    let third = &sample.segments[2];
    let place = |nth: usize| third.frames[nth].start()..third.frames[nth].end;
    let (second, last, footer) = (place(1), place(2), place(3));
    let end = third.bytes.len();
    let index = footer.start..end - 8;
    let hurt = |at: usize| {
        let files = sample.with(2, |bytes| bytes[at + 20] ^= 4);
        let text = why(&files[2].1, at);
        (files, move |range: Range<usize>, first: u64| {
            let text = format!("{} bytes are hurt: {text}", range.len());
            finding(lost("frame.damaged"), 9, range, (first, None), text)
        })
    };
    let missing = |range: Range<usize>, first: u64, last: u64| {
        let text = format!("positions {first} to {last} are missing before this frame");
        finding(lost("frame.gap"), 9, range, (first, Some(last)), text)
    };
    let (files, damaged) = hurt(second.start);
    assert_found(&files, &[damaged(second.clone(), 10), missing(last.clone(), 10, 12)], "a frame");
    let found = verify(&files);
    assert_eq!((found.frames, found.records, found.last), (12, 16, Position(19)));
    assert_eq!(found.chain, chain(&sample.segments[4].bytes));

    let gap = "it starts at position 14, but 13 comes next";
    let behind = finding(lost("segment.gap"), 14, 0..0, (13, Some(13)), gap);
    let (files, damaged) = hurt(last.start);
    let expected = [damaged(last.clone(), 13), missing(index.clone(), 13, 13), behind.clone()];
    assert_found(&files, &expected, "the last frame");

    let (files, damaged) = hurt(footer.start);
    let unsealed = |at: usize| finding(lost("segment.unsealed"), 9, at..at, None, UNSEALED);
    assert_found(&files, &[damaged(footer.clone(), 14), unsealed(end)], "the index");

    let files = sample.with(2, |bytes| bytes[end - 1] ^= 1);
    let text = format!("{} bytes are hurt: a footer without its locator", footer.len());
    let damaged = finding(lost("frame.damaged"), 9, footer.clone(), (14, None), text);
    assert_found(&files, &[damaged, unsealed(end)], "the locator");

    let files = sample.with(2, |bytes| bytes.truncate(footer.start));
    assert_found(&files, &[unsealed(footer.start)], "without an index");
    let files = sample.with(2, |bytes| bytes.truncate(last.start));
    assert_found(&files, &[unsealed(last.start), behind], "cut");

    let files = sample.with(2, |bytes| drop(bytes.drain(second.clone())));
    let moved = second.start..second.start + last.len();
    assert_found(&files, &[missing(moved, 10, 12)], "a frame that was taken out");

    let files = sample.with(2, |bytes| {
        bytes[footer.start + 44] ^= 1;
        seal(bytes, footer.start);
    });
    let text = "the footer names another chain hash than the frame before it";
    assert_found(&files, &[finding(lost("chain.broken"), 9, index, None, text)], "the footer's chain");

    // Wide: the damage is in the middle of the segment that is written to.
    let sample = Sample::wide();
    let place = |nth: usize| sample.segments[0].frames[nth].start()..sample.segments[0].frames[nth].end;
    let files = sample.with(0, |bytes| bytes[place(3).start + 20] ^= 4);
    let text = format!("{} bytes are hurt: {}", place(3).len(), why(&files[0].1, place(3).start));
    let mut expected = verify(&sample.files()).findings;
    let text_of_gap = "positions 4 to 5 are missing before this frame";
    expected.insert(0, finding(lost("frame.damaged"), 1, place(3), (4, None), text));
    expected.insert(1, finding(lost("frame.gap"), 1, place(4), (4, Some(5)), text_of_gap));
    assert_found(&files, &expected, "the last segment");
}

/// Whoever replaces records by others, with checksums that are right, is found out.
#[test]
fn a_chain_that_does_not_hold_is_told_where_it_breaks() {
    let sample = Sample::closed();
    let third = &sample.segments[2];
    let frame = |nth: usize, first: u64| {
        let range = third.frames[nth].start()..third.frames[nth].end;
        finding(lost("chain.broken"), 9, range, (first, None), CHAIN_OF_FRAME)
    };
    let files = sample.with(2, |bytes| {
        bytes[third.frames[1].start() + 44] ^= 1;
        seal(bytes, third.frames[1].start());
    });
    assert_found(&files, &[frame(1, 10), frame(2, 13)], "a frame's hash");
    let files = sample.with(2, |bytes| {
        bytes[third.frames[2].start() + 44] ^= 1;
        seal(bytes, third.frames[2].start());
    });
    let footer = third.frames[3].start()..third.frames[3].end - 8;
    let text = "the footer names another chain hash than the frame before it";
    let footer = finding(lost("chain.broken"), 9, footer, None, text);
    let next = finding(lost("chain.broken"), 14, 0..0, None, CHAIN_OF_SEGMENT);
    assert_found(&files, &[frame(2, 13), footer, next], "the hash of the last frame");
    let files = sample.with(2, |bytes| with_header(bytes, |header| header.previous.0[0] ^= 1));
    let link = finding(lost("chain.broken"), 9, 0..0, None, CHAIN_OF_SEGMENT);
    assert_found(&files, &[link, frame(0, 9)], "a header's hash");
    let files = sample.with(0, |bytes| with_header(bytes, |header| header.previous.0[0] ^= 1));
    let text = "its header names another chain hash than the log's first one";
    let link = finding(lost("chain.broken"), 1, 0..0, None, text);
    let first = finding(lost("chain.broken"), 1, 128..256, (1, None), CHAIN_OF_FRAME);
    assert_found(&files, &[link, first], "the first header's hash");
    // An owner that wrote on after another one had taken over.
    let files = sample.with(2, |bytes| {
        with_header(bytes, |header| header.epoch = Epoch(7));
        for nth in [0, 2] {
            let at = third.frames[nth].start();
            bytes[at + 24..at + 32].copy_from_slice(&[7_u64, 6][nth / 2].to_le_bytes());
            seal(bytes, at);
        }
        let at = third.frames[1].start();
        bytes[at + 24..at + 32].copy_from_slice(&8_u64.to_le_bytes());
        seal(bytes, at);
    });
    let found: Vec<_> =
        verify(&files).findings.into_iter().filter(|finding| finding.code == "frame.fenced").collect();
    let text = |epoch: u64| format!("an owner (epoch {epoch}) wrote it after another (8) had taken over");
    let range = third.frames[2].start()..third.frames[2].end;
    let footer = third.frames[3].start()..third.frames[3].end - 8;
    let expected = [
        finding(lost("frame.fenced"), 9, range, (13, None), text(6)),
        finding(lost("frame.fenced"), 9, footer, (14, None), text(1)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn segments_that_do_not_follow_each_other_are_told() {
    let sample = Sample::closed();
    let gap = |at: u64, next: u64| {
        let text = format!("it starts at position {at}, but {next} comes next");
        finding(lost("segment.gap"), at, 0..0, (next, Some(at - 1)), text)
    };
    for (missing, expected) in [
        (
            vec![0],
            finding(lost("segment.missing"), 6, 0..0, (1, Some(5)), "1 segments before it are missing"),
        ),
        (
            vec![1, 0],
            finding(lost("segment.missing"), 9, 0..0, (1, Some(8)), "2 segments before it are missing"),
        ),
        (vec![1], gap(9, 6)),
        (vec![2, 1], gap(14, 6)),
        (vec![3], gap(18, 14)),
    ] {
        let mut files = sample.files();
        for nth in &missing {
            files.remove(*nth);
        }
        assert_found(&files, &[expected], &format!("without {missing:?}"));
    }
    for nth in 0..5 {
        let (first, len) = (sample.segments[nth].name.0.0, sample.segments[nth].bytes.len());
        let files = sample.with(nth, |bytes| bytes[40] ^= 1);
        let text = format!(
            "the segment's header is hurt, so none of its frames can be trusted: {}",
            header_error(&files[nth].1)
        );
        let header = finding(lost("segment.header"), first, 0..len, None, text);
        assert_found(&files, &[header], "a header");
    }
    // Its number alone.
    let files = sample.with(4, |bytes| with_header(bytes, |header| header.segment_no = SegmentNo(5)));
    let text = "it starts at position 18, but 18 comes next";
    assert_found(&files, &[finding(lost("segment.gap"), 18, 0..0, (18, Some(17)), text)], "a number");
    // Its name alone.
    let mut files = sample.files();
    files[2].0 = name(8);
    let text = "its name and its header disagree: 8 and 9";
    assert_found(&files, &[finding(lost("segment.name"), 8, 0..832, None, text)], "a name");
}

#[test]
fn a_segment_of_another_log_is_told_and_one_of_a_fork_is_its_own() {
    let sample = Sample::closed();
    let other = LogId([9; 16]);
    let storage = disk();
    let stranger = LogWriter::create(dir(&storage), sample.options, other).unwrap();
    append_groups(&stranger, &[&[&[5]], &[&[40, 0, 3], &[17]], &[&[9, 30]], &[&[100], &[3]]]);
    let foreign = storage.read_file(Sample::path(name(6))).unwrap();
    let files = sample.with(1, |bytes| bytes.clone_from(&foreign));
    let foreign = |at: u64, log: LogId| {
        let text = format!("it belongs to another log ({log})");
        finding(lost("segment.foreign"), at, 0..0, None, text)
    };
    let chain = |at: u64| finding(lost("chain.broken"), at, 0..0, None, CHAIN_OF_SEGMENT);
    assert_found(&files, &[foreign(6, other), chain(6), foreign(9, LOG), chain(9)], "another log's");
    assert_eq!(verify(&files).log_id, Some(LOG));

    let fork = |bytes: &mut Vec<u8>, of: LogId| {
        with_header(bytes, |header| (header.log_id, header.forked_from) = (other, Some(of)));
    };
    let found = verify(&sample.with(4, |bytes| fork(bytes, LOG)));
    assert_eq!((found.findings, found.log_id), (vec![], Some(other)));
    let found = verify(&sample.with(4, |bytes| fork(bytes, LogId([8; 16]))));
    assert_eq!((found.findings, found.log_id), (vec![foreign(18, other)], Some(LOG)));
    let found = verify(&sample.with(3, |bytes| fork(bytes, LOG)));
    assert_eq!((found.findings, found.log_id), (vec![foreign(18, LOG)], Some(other)));
    // The first segment that a fork copied begins the chain of the log that it was copied from.
    let one = vec![sample.files()[4].clone()];
    assert_eq!(verify(&one).findings.len(), 1);
    let first = Sample::wide().with(0, |bytes| fork(bytes, LOG));
    let found = verify(&first);
    assert_eq!(
        (found.findings.iter().map(|it| it.code).collect::<Vec<_>>(), found.log_id),
        (vec!["space.unused"], Some(other))
    );
    let first = Sample::wide().with(0, |bytes| fork(bytes, LogId([8; 16])));
    let text = "its header names another chain hash than the log's first one";
    assert_eq!(verify(&first).findings[0], finding(lost("chain.broken"), 1, 0..0, None, text));
}

/// What a newer version wrote is there. Who was told that it is lost would salvage a log that nothing is wrong with.
#[test]
fn what_a_newer_version_wrote_is_not_lost() {
    let sample = Sample::closed();
    for (nth, segment) in sample.segments.iter().enumerate() {
        let first = segment.name.0.0;
        let files = sample.with(nth, |bytes| from_the_future(bytes));
        let text = format!("a newer version wrote it: {}", header_error(&files[nth].1));
        let newer = finding((Severity::Warning, "segment.newer"), first, 0..segment.bytes.len(), None, text);
        assert_found(&files, &[newer], &format!("segment {nth}"));
        for frame in segment.frames.iter().filter(|frame| !frame.is_footer) {
            let at = frame.start();
            let mut files = sample.with(nth, |bytes| _ = insert(bytes, at, 5));
            let text = format!("a newer version wrote from here on: {}", why(&files[nth].1, at));
            let newer = finding((Severity::Warning, "frame.newer"), first, at..at, None, text);
            let what = format!("segment {nth} from byte {at}");
            assert_found(&files, std::slice::from_ref(&newer), &what);
            if nth == 4 {
                files.push((name(20), vec![]));
                let text =
                    "creating this segment did not finish; the next owner removes it. No record was in it";
                let unfinished =
                    finding((Severity::Repairable, "segment.half_created"), 20, 0..0, None, text);
                assert_found(&files, &[newer, unfinished], &what);
            }
        }
    }
}
