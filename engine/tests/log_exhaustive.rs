//! Small logs, damaged in every way there is: each byte cut, each bit flipped, each sector zeroed or swapped, each file
//! missing, foreign or half created. What must come of each is worked out from what was written, without the engine.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use sessionlog::ErrorKind;
use sessionlog::log::{Durability, LogReader, LogWriter, Recovering, SegmentName, TailState};
use sessionlog::storage::SimStorage;
use sessionlog_codec::ids::{LogId, Position};
use sessionlog_codec::limits::SEGMENT_HEADER_LEN;
use support::sample::{Depth, Expected, Left, Sample, append_groups};
use support::{LOG, batch, content, dir, disk, last, open, options, read};

fn samples() -> [(&'static str, Sample); 4] {
    [
        ("closed", Sample::small(0, Left::Closed)),
        ("open", Sample::small(1 << 20, Left::Open)),
        ("sealed", Sample::small(0, Left::Sealed)),
        ("wide", Sample::wide()),
    ]
}

/// Every byte of the last segment; of the wide one, those near the borders of frames and some between.
fn places(name: &str, sample: &Sample) -> Vec<usize> {
    let segment = sample.last_segment();
    let near = |at: usize| segment.frames.iter().any(|frame| at.abs_diff(frame.end) <= 4);
    (0..segment.bytes.len()).filter(|at| name != "wide" || at % 61 == 0 || near(*at)).collect()
}

#[test]
fn samples_are_what_they_are_for() {
    for (name, sample) in samples() {
        let footers = sample.segments.iter().filter(|segment| segment.frames.last().unwrap().is_footer);
        let sealed = footers.count();
        let zeros = sample.last_segment().bytes.len() - sample.last_segment().frames.last().unwrap().end;
        match name {
            "closed" => assert_eq!((sample.segments.len(), sealed, zeros), (5, 4, 0)),
            "open" => assert!(sample.segments.len() == 5 && sealed == 4 && zeros > 0, "{zeros}"),
            "sealed" => assert_eq!((sample.segments.len(), sealed, zeros), (5, 5, 0)),
            _ => assert!(sample.segments.len() == 1 && sample.segments[0].bytes.len() > 3000),
        }
        sample.check(
            &sample.files(),
            Some(&Expected::Recovers(last(&sample.log), Vec::new())),
            &format!("{name}, whole"),
        );
    }
}

#[test]
fn last_segment_cut_at_every_byte() {
    for (name, sample) in samples() {
        for len in places(name, &sample) {
            let files = sample.with(sample.segments.len() - 1, |bytes| bytes.truncate(len));
            let expected = sample.expected(&files.last().unwrap().1);
            sample.check(&files, Some(&expected), &format!("{name}, cut at {len}"));
        }
    }
}

/// As a file system leaves a file whose length reached the disk and whose bytes did not.
#[test]
fn last_segment_zero_from_every_byte_on() {
    for (name, sample) in samples() {
        for start in places(name, &sample) {
            let files = sample.with(sample.segments.len() - 1, |bytes| bytes[start..].fill(0));
            let expected = sample.expected(&files.last().unwrap().1);
            sample.check(&files, Some(&expected), &format!("{name}, zero from {start}"));
        }
    }
}

#[test]
fn every_bit_of_the_last_segment_flipped() {
    for (name, sample) in samples().into_iter().filter(|(name, _)| *name != "wide") {
        for bit in 0..sample.last_segment().bytes.len() * 8 {
            let files = sample.with(sample.segments.len() - 1, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            let expected = sample.expected(&files.last().unwrap().1);
            // A bit of padding is covered by nothing, and nothing is lost with it.
            let padding = files.last().unwrap().1 != sample.last_segment().bytes
                && expected == Expected::Recovers(last(&sample.log), Vec::new());
            let what = format!("{name}, byte {} bit {}", bit / 8, bit % 8);
            sample.check_to(Depth::of_case(bit), &files, (!padding).then_some(&expected), &what);
        }
    }
}

/// Sealed segments are not read again at every opening: what is hurt in their middle is told by the reader.
#[test]
fn every_bit_of_the_sealed_segments_flipped() {
    let sample = Sample::small(0, Left::Closed);
    // The first and one between: the others are as that one.
    for nth in 0..2 {
        let segment = &sample.segments[nth];
        let footer = segment.frames.last().unwrap();
        for bit in 0..segment.bytes.len() * 8 {
            let at = bit / 8;
            let files = sample.with(nth, |bytes| bytes[at] ^= 1 << (bit % 8));
            let vital = at < SEGMENT_HEADER_LEN || footer.covered.iter().any(|range| range.contains(&at));
            let expected = if vital {
                Expected::Refuses(ErrorKind::Corrupt)
            } else {
                Expected::Recovers(last(&sample.log), Vec::new())
            };
            let depth = if bit % 64 == at % 8 { Depth::Reopen } else { Depth::Open };
            sample.check_to(
                depth,
                &files,
                Some(&expected),
                &format!("segment {nth}, byte {at} bit {}", bit % 8),
            );
        }
    }
}

#[test]
fn every_sector_zeroed() {
    for (name, sample) in samples() {
        for nth in 0..sample.segments.len() {
            for sector in [64, 512] {
                for start in (0..sample.segments[nth].bytes.len()).step_by(sector) {
                    let files = sample.with(nth, |bytes| {
                        let end = bytes.len().min(start + sector);
                        bytes[start..end].fill(0);
                    });
                    let is_last = nth == sample.segments.len() - 1;
                    let expected = is_last.then(|| sample.expected(&files[nth].1));
                    let what = format!("{name}, segment {nth}, {sector} bytes from {start} zeroed");
                    sample.check(&files, expected.as_ref(), &what);
                }
            }
        }
    }
}

/// The sectors of a group that was not acknowledged may come in any order, and then it is cut.
#[test]
fn every_pair_of_sectors_of_the_last_group_swapped() {
    for (name, sample) in samples() {
        let segment = sample.last_segment();
        let newest = segment.frames.iter().map(|frame| frame.synced).max().unwrap();
        let group = segment.frames.iter().find(|frame| frame.synced == newest).unwrap().start();
        for sector in [64, 512] {
            let starts: Vec<_> =
                (0..segment.bytes.len() / sector).map(|nth| nth * sector).filter(|at| *at >= group).collect();
            let pairs = starts.iter().flat_map(|a| starts.iter().map(move |b| (*a, *b)));
            for (case, (a, b)) in pairs.filter(|(a, b)| a < b).enumerate() {
                let files = sample.with(sample.segments.len() - 1, |bytes| {
                    for byte in 0..sector {
                        bytes.swap(a + byte, b + byte);
                    }
                });
                let what = format!("{name}, {sector} bytes at {a} and {b} swapped");
                let expected = sample.expected(&files.last().unwrap().1);
                assert!(matches!(expected, Expected::Recovers(..)), "{what}");
                sample.check_to(Depth::of_case(case), &files, Some(&expected), &what);
            }
        }
    }
}

#[test]
fn next_segment_half_created() {
    for (name, sample) in samples() {
        let next = SegmentName(Position(last(&sample.log).0 + 1));
        let header = sample.last_segment().bytes[..SEGMENT_HEADER_LEN].to_vec();
        let all = Expected::Recovers(last(&sample.log), Vec::new());
        for len in 0..=SEGMENT_HEADER_LEN {
            for bytes in [vec![0; len], header[..len.min(SEGMENT_HEADER_LEN - 1)].to_vec()] {
                let mut files = sample.files();
                files.push((next, bytes));
                sample.check(&files, Some(&all), &format!("{name}, {len} bytes of the next segment"));
            }
        }
        // Frames follow a header only once it is durable: a header that is zero then was hurt later.
        let mut files = sample.files();
        files.push((next, vec![0; 512]));
        sample.check(&files, Some(&Expected::Refuses(ErrorKind::Corrupt)), &format!("{name}, zeros"));
    }
}

/// The next segment is created when all before it is durable, so its name alone is a witness.
#[test]
fn name_of_a_half_created_segment_is_a_witness() {
    let sample = Sample::small(0, Left::Closed);
    let end = last(&sample.log).0;
    let hurt = sample.with(sample.segments.len() - 1, |bytes| bytes.truncate(bytes.len() - 20));
    assert!(matches!(sample.expected(&hurt.last().unwrap().1), Expected::Recovers(..)));
    let mut files = hurt;
    files.push((SegmentName(Position(end + 1)), vec![]));
    sample.check(&files, Some(&Expected::Refuses(ErrorKind::Corrupt)), "the last record is missing");
}

#[test]
fn half_created_log_is_none() {
    let header = Sample::wide().segments[0].bytes[..SEGMENT_HEADER_LEN].to_vec();
    for len in 0..SEGMENT_HEADER_LEN {
        for bytes in [vec![0; len], header[..len].to_vec()] {
            let storage = Sample::disk_with(&[(SegmentName(Position(1)), bytes)]);
            let before = content(&storage);
            let error = open(&storage, options(512, 0)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{len}");
            assert_eq!(read(&storage, Position(1)).unwrap().tail, TailState::HalfCreated);
            assert_eq!(content(&storage), before);
        }
    }
    let storage = disk();
    assert_eq!(open(&storage, options(512, 0)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(read(&storage, Position(1)).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn segment_missing() {
    for (name, sample) in samples().into_iter().filter(|(name, _)| *name != "wide") {
        for nth in 0..sample.segments.len() {
            let mut files = sample.files();
            files.remove(nth);
            let expected = if nth == sample.segments.len() - 1 {
                Expected::Recovers(Position(sample.segments[nth].name.0.0 - 1), Vec::new())
            } else {
                Expected::Refuses(ErrorKind::Corrupt)
            };
            sample.check(&files, Some(&expected), &format!("{name}, segment {nth} missing"));
        }
    }
}

#[test]
fn segments_of_another_log_or_place_are_refused() {
    let sample = Sample::small(0, Left::Closed);
    let storage = disk();
    let stranger = LogWriter::create(dir(&storage), sample.options, LogId([9; 16])).unwrap();
    append_groups(&stranger, &[&[&[5]], &[&[40, 0, 3], &[17]], &[&[9, 30]], &[&[100], &[3]], &[&[1, 2, 3]]]);
    for nth in 0..2 {
        let name = sample.segments[nth].name;
        let foreign = storage.read_file(Sample::path(name)).unwrap();
        let files = sample.with(nth, |bytes| *bytes = foreign);
        let disk = Sample::disk_with(&files);
        let before = content(&disk);
        assert_eq!(open(&disk, sample.options).unwrap_err().kind(), ErrorKind::Corrupt, "segment {nth}");
        assert_eq!(content(&disk), before);
        if nth > 0 {
            // What comes first says which log it is.
            sample.check(&files, Some(&Expected::Refuses(ErrorKind::Corrupt)), "foreign");
            let first = read(&disk, name.0).unwrap().records[0].position;
            assert_eq!(first, sample.segments[nth + 1].name.0, "a foreign segment was read");
        }
    }
    for (from, to) in [(0, 1), (1, 0), (2, 1), (1, 2), (3, 2), (2, 3)] {
        let files = sample.with(to, |bytes| *bytes = sample.segments[from].bytes.clone());
        let disk = Sample::disk_with(&files);
        assert_eq!(open(&disk, sample.options).unwrap_err().kind(), ErrorKind::Corrupt, "{from} as {to}");
        read(&disk, Position(1)).unwrap();
    }
}

/// Whoever replaces records by others whose checksums are right is found out by the chain.
#[test]
fn bytes_of_a_twin_are_refused() {
    let twins = [1, 501].map(|tag| {
        let storage = disk();
        let writer = LogWriter::create(dir(&storage), options(700, 0), LOG).unwrap();
        for nth in 0..8 {
            writer.append(batch(tag + nth, &[100]), Durability::Sync).unwrap();
        }
        let paths = storage.files();
        paths.into_iter().map(|path| (path.clone(), storage.read_file(path).unwrap())).collect::<Vec<_>>()
    });
    assert!(twins[0].len() == 3 && twins[0].iter().zip(&twins[1]).all(|(a, b)| a.1.len() == b.1.len()));
    let frames = SEGMENT_HEADER_LEN..twins[0][2].1.len();
    for (nth, range) in [(0, 0..twins[0][0].1.len()), (1, 0..twins[0][1].1.len()), (2, frames)] {
        let storage = disk();
        for (path, bytes) in &twins[0] {
            storage.put_file(path, bytes.clone()).unwrap();
        }
        let (path, bytes) = &twins[1][nth];
        storage.corrupt(path, |all| all[range.clone()].copy_from_slice(&bytes[range])).unwrap();
        let before = content(&storage);
        assert_eq!(open(&storage, options(700, 0)).unwrap_err().kind(), ErrorKind::Corrupt, "segment {nth}");
        assert_eq!(content(&storage), before);
        let found = LogReader::new(dir(&storage)).verify().unwrap();
        assert!(found.findings.iter().any(|finding| finding.code == "chain.broken"), "{nth}: {found:#?}");
    }
}

#[test]
fn something_else_with_a_segments_name_is_refused() {
    use sessionlog::storage::Storage;
    let sample = Sample::small(0, Left::Closed);
    let mut files = sample.files();
    let (name, _) = files.pop().unwrap();
    let storage = Sample::disk_with(&files);
    storage.create_dir(&Sample::path(name)).unwrap();
    assert_eq!(open(&storage, sample.options).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(read(&storage, Position(1)).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn witness_from_outside() {
    let sample = Sample::small(1 << 20, Left::Open);
    for len in 0..sample.last_segment().bytes.len() {
        let files = sample.with(sample.segments.len() - 1, |bytes| bytes.truncate(len));
        let Expected::Recovers(end, _) = sample.expected(&files.last().unwrap().1) else { continue };
        let storage = Sample::disk_with(&files);
        let before = content(&storage);
        for witnessed in 0..=last(&sample.log).0 + 1 {
            let opened = Recovering::open(dir(&storage), sample.options, Position(witnessed));
            match opened {
                Ok(recovering) => {
                    assert!(witnessed <= end.0, "cut at {len}, {witnessed} witnessed, {end} there");
                    assert_eq!(recovering.assessment().last(), end);
                }
                Err(error) => {
                    assert!(witnessed > end.0, "cut at {len}, {witnessed} witnessed, {end} there");
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                }
            }
            assert_eq!(content(&storage), before);
        }
    }
}

fn check_every_start(storage: &SimStorage, what: &str) {
    let whole = read(storage, Position(1)).unwrap();
    let end = last(&whole.records).0 + 2;
    for from in 0..=end {
        let seen = read(storage, Position(from)).unwrap();
        let expected: Vec<_> =
            whole.records.iter().filter(|record| record.position.0 >= from).cloned().collect();
        assert_eq!(seen.records, expected, "{what}, from {from}");
        let gaps = whole.gaps.iter().filter(|gap| gap.last.is_none_or(|last| last.0 >= from));
        let gaps: Vec<_> = gaps.cloned().collect();
        assert_eq!(seen.gaps, gaps, "{what}, from {from}");
        assert_eq!(seen.tail, whole.tail, "{what}, from {from}");
    }
}

#[test]
fn reads_from_every_position() {
    for (name, sample) in samples() {
        check_every_start(&Sample::disk_with(&sample.files()), name);
        for nth in 0..sample.segments.len() {
            for frame in &sample.segments[nth].frames {
                let files = sample.with(nth, |bytes| bytes[frame.start() + 20] ^= 4);
                let what = format!("{name}, segment {nth} hurt at {}", frame.start());
                check_every_start(&Sample::disk_with(&files), &what);
            }
            let mut files = sample.files();
            files.remove(nth);
            if !files.is_empty() {
                check_every_start(&Sample::disk_with(&files), &format!("{name}, segment {nth} missing"));
            }
        }
    }
}

/// A reader that had enough gets no more.
#[test]
fn reading_stops_where_it_is_told_to() {
    use std::ops::ControlFlow;
    let sample = Sample::small(0, Left::Closed);
    let storage = Sample::disk_with(&sample.files());
    for wanted in 1..=sample.log.len() {
        let mut seen = 0;
        let mut visit = |_: sessionlog::log::ReadItem<'_>| {
            seen += 1;
            if seen == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        LogReader::new(dir(&storage)).read(Position(1), &mut visit).unwrap();
        assert_eq!(seen, wanted);
    }
}

/// The index of a log is the index of what a reader reads.
#[test]
fn index_agrees_with_reading() {
    for (name, sample) in samples() {
        let nth = sample.segments.len() - 1;
        let hurt = sample.last_segment().frames.iter().map(|frame| frame.start() + 30);
        let cases = hurt.map(|at| sample.with(nth, |bytes| bytes[at] ^= 1)).chain([sample.files()]);
        for (case, files) in cases.enumerate() {
            let storage = Sample::disk_with(&files);
            let reader = LogReader::new(dir(&storage));
            let mut indexed = Vec::new();
            reader.index(&mut |position, entry, segment| indexed.push((position, entry, segment))).unwrap();
            let read = read(&storage, Position(1)).unwrap().records;
            let positions: Vec<_> = indexed.iter().map(|(position, ..)| *position).collect();
            let expected: Vec<_> = read.iter().map(|record| record.position).collect();
            assert_eq!(positions, expected, "{name}, case {case}");
            for ((position, entry, segment), record) in indexed.iter().zip(&read) {
                assert_eq!((entry.kind, entry.node), (record.envelope.kind, record.envelope.node));
                let mut frame = Vec::new();
                reader
                    .read_frame(*segment, entry.frame_offset, &mut |record| frame.push(record.position))
                    .unwrap();
                assert!(frame.contains(position), "{name}, case {case}");
            }
        }
    }
}

/// Damage of everything at once, where only the laws are known.
#[test]
fn garbage_never_panics() {
    let sample = Sample::small(0, Left::Closed);
    let mut rng = support::Rng(1);
    for round in 0..300 {
        let mut files = sample.files();
        for _ in 0..=rng.below(3) {
            let nth = rng.index(files.len());
            let bytes = &mut files[nth].1;
            let (start, len) = (rng.index(bytes.len()), 1 + rng.index(200));
            let end = bytes.len().min(start + len);
            for byte in &mut bytes[start..end] {
                *byte = u8::try_from(rng.below(256)).unwrap();
            }
        }
        sample.check(&files, None, &format!("round {round}"));
    }
    let storage = Sample::disk_with(&sample.files());
    let (writer, _) = open(&storage, sample.options).unwrap();
    writer.append(batch(5, &[1]), Durability::Sync).unwrap();
}
