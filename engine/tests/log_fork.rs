//! Forks of logs: shared segments, one copied part, and nothing of the origin ever changed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sessionlog::log::{
    Durability, ForkPoint, LogDir, LogOptions, LogReader, LogWriter, Recovering, SegmentName, Severity,
    TailState,
};
use sessionlog::storage::{Call, CallKind, CrashMode, Fault, FaultError, Repeat, SimStorage, Storage};
use sessionlog::{ErrorKind, Result};
use sessionlog_codec::frame::{self, Frame, KIND_RECORDS};
use sessionlog_codec::ids::{Digest, Epoch, LogId, Position};
use sessionlog_codec::limits::SEGMENT_HEADER_LEN;
use sessionlog_codec::segment::{self, SegmentHeader};
use support::hooked::Hooked;
use support::sample::{SMALL, append_groups};
use support::{
    LOG, Logged, SEGMENTS, batch, content, create, dir, disk, is_sync, last, logged, options, read_on,
};

const FIRST: (u64, &[usize]) = (900, &[20, 6]);

/// The place of another log on the same disk.
fn place_on(storage: Arc<dyn Storage>, name: &str) -> LogDir {
    let home = PathBuf::from(name);
    LogDir { storage, segments: home.join("segments"), quarantine: home.join("quarantine") }
}

fn place(storage: &SimStorage, name: &str) -> LogDir {
    storage.create_dir(Path::new(name)).unwrap();
    storage.sync_dir(Path::new(".")).unwrap();
    place_on(Arc::new(storage.clone()), name)
}

fn log_id(name: &str) -> LogId {
    let mut id = [0; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    LogId(id)
}

/// Forks a log into a place of that name, with [`FIRST`] as its first own frame.
fn fork(from: &LogDir, point: ForkPoint, to: &LogDir, opts: LogOptions) -> Result<LogWriter> {
    let (at, epoch, chain, writer) = try_fork(from, point, to, opts)?;
    assert_eq!((writer.next(), writer.epoch()), (Position(at.0 + 3), epoch));
    assert_eq!(writer.durable(), Position(at.0 + 2));
    let same = LogReader::new(to.clone()).plan_fork(ForkPoint::At(at), LOG).unwrap();
    assert_eq!(same.chain(), chain, "up to the fork both logs have the same hashes");
    Ok(writer)
}

fn try_fork(
    from: &LogDir,
    point: ForkPoint,
    to: &LogDir,
    opts: LogOptions,
) -> Result<(Position, Epoch, Digest, LogWriter)> {
    let name = to.segments.parent().unwrap().to_str().unwrap();
    let plan = LogReader::new(from.clone()).plan_fork(point, log_id(name))?;
    let (at, epoch, chain) = (plan.at(), plan.epoch(), plan.chain());
    Ok((at, epoch, chain, plan.carry_out(to.clone(), opts, &batch(FIRST.0, FIRST.1))?))
}

/// What a fork of `log` at a position begins with.
fn prefix(log: &[Logged], at: Position) -> Vec<Logged> {
    let mut expected: Vec<_> = log.iter().take_while(|record| record.position <= at).cloned().collect();
    expected.extend(logged(Position(at.0 + 1), FIRST.0, FIRST.1));
    expected
}

/// A log is whole, and holds exactly these records.
fn check(dir: &LogDir, expected: &[Logged], what: &str) {
    let seen = read_on(dir.clone(), Position(1)).unwrap();
    assert_eq!((&seen.records[..], &seen.gaps), (expected, &vec![]), "{what}");
    let verified = LogReader::new(dir.clone()).verify().unwrap();
    let bad: Vec<_> = verified.findings.iter().filter(|f| f.severity > Severity::Note).collect();
    assert!(bad.is_empty(), "{what}: {bad:#?}");
    assert_eq!((verified.last, verified.records), (last(expected), last(expected).0), "{what}");
    let mut indexed = 0;
    LogReader::new(dir.clone())
        .index(&mut |position, entry, _| {
            indexed += 1;
            let record = &expected[usize::try_from(position.0).unwrap() - 1];
            assert_eq!((entry.kind, entry.node), (record.envelope.kind, record.envelope.node), "{what}");
        })
        .unwrap();
    assert_eq!(indexed, expected.len(), "{what}");
}

/// Goes on in a fork and takes it over twice: it is a log like any other.
fn live(writer: LogWriter, dir: &LogDir, opts: LogOptions, mut expected: Vec<Logged>, what: &str) {
    for tag in 50..56 {
        let receipt = writer.append(batch(tag, &[70, 2]), Durability::Sync).unwrap();
        expected.extend(logged(receipt.first, tag, &[70, 2]));
    }
    let epoch = writer.epoch();
    drop(writer);
    for _ in 0..2 {
        let (writer, report) =
            Recovering::open(dir.clone(), opts, Position::START).unwrap().finish().unwrap();
        assert_eq!((report.last, report.cut, report.removed), (last(&expected), None, None), "{what}");
        assert!(writer.epoch() > epoch, "{what}");
        writer.close().unwrap();
    }
    check(dir, &expected, what);
}

/// Segments of a log that has frames of one and of several records, and where its frames end.
fn origin(storage: &SimStorage, opts: LogOptions) -> (Vec<Logged>, Vec<Position>) {
    let writer = create(storage, opts);
    let log = append_groups(&writer, SMALL);
    writer.close().unwrap();
    let mut next = 1;
    let ends = SMALL.iter().flat_map(|group| group.iter()).map(|lens| {
        next += u64::try_from(lens.len()).unwrap();
        Position(next - 1)
    });
    (log, ends.collect())
}

fn files_of(storage: &SimStorage, under: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    content(storage).into_iter().filter(|(path, _)| path.starts_with(under)).collect()
}

#[test]
fn every_position_is_the_prefix_or_inside_a_frame() {
    let opts = options(512, 512);
    let storage = disk();
    let (log, ends) = origin(&storage, opts);
    let before = files_of(&storage, "log");
    assert!(before.len() > 2, "several segments");
    let (mut shared, mut starts_empty, mut copies_first) = (0, 0, 0);
    for wanted in 1..=last(&log).0 {
        let what = format!("at {wanted}");
        let to = place(&storage, &format!("f{wanted}"));
        storage.take_calls();
        let forked = fork(&dir(&storage), ForkPoint::At(Position(wanted)), &to, opts);
        let writer = match forked {
            Ok(writer) => writer,
            Err(error) => {
                assert_eq!((error.kind(), error.code()), (ErrorKind::Invalid, "fork.inside_frame"), "{what}");
                assert!(!ends.contains(&Position(wanted)), "{what}");
                let after = ends.iter().find(|end| end.0 > wanted).unwrap();
                let before = ends.iter().rev().find(|end| end.0 < wanted);
                let named = before.map_or(format!("fork at position {after}"), |b| format!("{b} or {after}"));
                assert!(error.to_string().ends_with(&named), "{error}");
                assert!(storage.calls().iter().all(|call| !call.changes_disk()), "{what}");
                continue;
            }
        };
        assert!(ends.contains(&Position(wanted)), "{what}");
        let links = storage.take_calls().iter().filter(|call| call.kind() == CallKind::HardLink).count();
        shared += links;
        let own = LogReader::new(to.clone()).verify().unwrap();
        assert_eq!(own.log_id, Some(log_id(&format!("f{wanted}"))), "{what}");
        let segments: Vec<_> = files_of(&storage, &format!("f{wanted}")).into_iter().collect();
        let header = SegmentHeader::decode(&segments.last().unwrap().1).unwrap();
        assert_eq!((header.forked_from, segments.len()), (Some(LOG), links + 1), "{what}");
        // Where the header of a segment is hurt, its salt tells salvage which one it is.
        assert_eq!(header.salt, segment::salt(header.log_id, header.segment_no), "{what}");
        starts_empty += usize::from(header.first_position.0 == wanted + 1);
        copies_first += usize::from(links == 0);
        check(&to, &prefix(&log, Position(wanted)), &what);
        // Forks of the fork, at positions before and behind its own beginning.
        for earlier in ends.iter().filter(|end| end.0 <= wanted) {
            let inner = place(&storage, &format!("g{wanted}.{earlier}"));
            let inner_writer = fork(&to, ForkPoint::At(*earlier), &inner, opts).unwrap();
            let what = format!("{what}, then at {earlier}");
            live(inner_writer, &inner, opts, prefix(&log, *earlier), &what);
        }
        let inner = place(&storage, &format!("h{wanted}"));
        let inner_writer = fork(&to, ForkPoint::Head, &inner, opts).unwrap();
        let mut expected = prefix(&log, Position(wanted));
        expected = prefix(&expected, last(&expected));
        live(inner_writer, &inner, opts, expected, &what);
        live(writer, &to, opts, prefix(&log, Position(wanted)), &what);
    }
    assert!(shared > 10 && starts_empty > 0 && copies_first > 0, "{shared} {starts_empty} {copies_first}");
    assert_eq!(files_of(&storage, "log"), before, "nobody changed the origin");
    let error = fork(&dir(&storage), ForkPoint::At(Position(999)), &place(&storage, "x"), opts).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Invalid, "fork.behind_end"));
    let error = fork(&dir(&storage), ForkPoint::At(Position(0)), &place(&storage, "x"), opts).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Invalid, "fork.empty"));
    let error = fork(&place(&storage, "y"), ForkPoint::Head, &place(&storage, "x"), opts).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// Each byte of the origin hurt in turn: a fork before it is whole, one behind it is refused.
#[test]
fn damage_before_the_position_is_refused_and_behind_it_does_not_matter() {
    let opts = options(512, 0);
    let storage = disk();
    let (log, ends) = origin(&storage, opts);
    for (path, pristine) in files_of(&storage, "log") {
        let name = SegmentName::parse(path.file_name().unwrap().to_str().unwrap()).unwrap();
        for offset in (0..pristine.len()).step_by(7) {
            let hurt = storage.power_cut(CrashMode::KeepAll);
            hurt.corrupt(&path, |bytes| bytes[offset] ^= 0x5a).unwrap();
            let before = files_of(&hurt, "log");
            let (mut sound, mut refused) = (0, 0);
            for end in &ends {
                let to = place(&hurt, &format!("f{end}"));
                match fork(&dir(&hurt), ForkPoint::At(*end), &to, opts) {
                    Ok(_) => {
                        assert_eq!(refused, 0, "{name} byte {offset}: whole behind what is hurt, at {end}");
                        check(&to, &prefix(&log, *end), &format!("{name} byte {offset} at {end}"));
                        sound += 1;
                    }
                    Err(error) => {
                        assert_eq!(
                            error.kind(),
                            ErrorKind::Corrupt,
                            "{name} byte {offset} at {end}: {error:?}"
                        );
                        refused += 1;
                    }
                }
            }
            let at = ends.iter().filter(|end| end.0 < name.0.0).count();
            assert!(sound >= at, "{name} byte {offset}: what is hurt lies behind it");
            // Padding alone is covered by nothing.
            let padding = LogReader::new(dir(&hurt)).verify().unwrap();
            assert!(refused > 0 || padding.findings.is_empty() || sound == ends.len(), "{name} {offset}");
            assert_eq!(files_of(&hurt, "log"), before);
        }
    }
}

#[test]
fn a_torn_tail_is_not_taken_over() {
    let opts = options(8 << 20, 0);
    let storage = disk();
    let (log, ends) = origin(&storage, opts);
    let path = dir(&storage).segment_path(SegmentName(Position(1)));
    storage.corrupt(&path, |bytes| bytes.truncate(bytes.len() - 9)).unwrap();
    let before = files_of(&storage, "log");
    let kept = ends[ends.len() - 2];
    let error = fork(&dir(&storage), ForkPoint::At(last(&log)), &place(&storage, "a"), opts).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(error.to_string().contains(&format!("fork at position {kept}")), "{error}");
    for (name, point) in [("b", ForkPoint::Head), ("c", ForkPoint::At(kept))] {
        let to = place(&storage, name);
        drop(fork(&dir(&storage), point, &to, opts).unwrap());
        check(&to, &prefix(&log, kept), name);
    }
    assert_eq!(files_of(&storage, "log"), before);
}

/// A crash in sealing leaves zeros behind the footer, which the origin's next owner may cut off: such a file is not shared.
#[test]
fn a_segment_that_does_not_end_in_its_locator_is_copied() {
    let opts = options(512, 0);
    let storage = disk();
    let (log, _) = origin(&storage, opts);
    let first = dir(&storage).segment_path(SegmentName(Position(1)));
    let whole = storage.read_file(&first).unwrap();
    storage.corrupt(&first, |bytes| bytes.extend([0; 64])).unwrap();
    let to = place(&storage, "f");
    storage.take_calls();
    drop(fork(&dir(&storage), ForkPoint::Head, &to, opts).unwrap());
    let linked: Vec<_> =
        storage.calls().into_iter().filter(|call| call.kind() == CallKind::HardLink).collect();
    assert!(!linked.is_empty() && linked.iter().all(|call| call.path() != first), "{linked:?}");
    assert_eq!(storage.read_file(to.segment_path(SegmentName(Position(1)))).unwrap(), whole);
    check(&to, &prefix(&log, last(&log)), "copied");
}

/// Sealed and not followed yet: its owner may still take the footer back, so the file is not shared.
#[test]
fn a_sealed_segment_is_shared_once_the_next_one_is_begun() {
    let opts = options(512, 0);
    let storage = disk();
    let (log, _) = origin(&storage, opts);
    let names: Vec<_> = files_of(&storage, SEGMENTS).into_keys().collect();
    let next = SegmentName::parse(names[1].file_name().unwrap().to_str().unwrap()).unwrap().0;
    for name in &names[1..] {
        storage.remove_file(name).unwrap();
    }
    let end = Position(next.0 - 1);
    for (name, point) in [("f", ForkPoint::Head), ("g", ForkPoint::At(end))] {
        let to = place(&storage, name);
        storage.take_calls();
        let writer = fork(&dir(&storage), point, &to, opts).unwrap();
        assert!(storage.calls().iter().all(|call| call.kind() != CallKind::HardLink));
        live(writer, &to, opts, prefix(&log, end), name);
    }
}

#[test]
fn where_links_are_refused_the_fork_is_a_copy() {
    let opts = options(512, 512);
    // EPERM, EXDEV, EMLINK, ENOTSUP.
    for errno in [1, 18, 31, 95] {
        for (repeat, what) in [(Repeat::Always, "all"), (Repeat::Once, "one")] {
            let storage = disk();
            let (log, ends) = origin(&storage, opts);
            let before = files_of(&storage, "log");
            for end in &ends {
                storage.fail(Fault::new(CallKind::HardLink, FaultError::Errno(errno)).repeat(repeat));
                let to = place(&storage, &format!("f{end}"));
                let writer = fork(&dir(&storage), ForkPoint::At(*end), &to, opts).unwrap();
                storage.clear_faults();
                live(writer, &to, opts, prefix(&log, *end), &format!("{errno} {what} {end}"));
            }
            assert_eq!(files_of(&storage, "log"), before);
        }
    }
}

/// A footer may be of a later owner than all frames before it; the fork's owner is later still.
#[test]
fn the_epoch_of_a_fork_is_later_than_all_that_it_shares() {
    let opts = options(512, 0);
    let storage = disk();
    let writer = create(&storage, opts);
    let first = writer.append(batch(1, &[450]), Durability::Sync).unwrap();
    drop(writer);
    let (writer, _) = support::open(&storage, opts).unwrap();
    writer.append(batch(2, &[3]), Durability::Sync).unwrap();
    let plan = LogReader::new(dir(&storage)).plan_fork(ForkPoint::At(first.last), log_id("f")).unwrap();
    assert_eq!(plan.epoch(), Epoch(3));
    let to = place(&storage, "f");
    let writer = fork(&dir(&storage), ForkPoint::At(first.last), &to, opts).unwrap();
    live(writer, &to, opts, prefix(&logged(Position(1), 1, &[450]), first.last), "sealed by another owner");
}

/// Checksums can be made to fit by whoever changes a record; the chain can't.
#[test]
fn a_record_that_was_changed_on_purpose_is_not_taken_over() {
    let opts = options(512, 0);
    let storage = disk();
    let (log, ends) = origin(&storage, opts);
    let (mut refused, mut sound) = (0, 0);
    for (path, bytes) in files_of(&storage, "log") {
        let header = SegmentHeader::decode(&bytes).unwrap();
        let mut at = SEGMENT_HEADER_LEN;
        while let Ok(frame) = Frame::decode(&bytes[at..], header.salt) {
            let (fields, len) = (frame.header().fields.clone(), frame.header().frame_len());
            if fields.kind != KIND_RECORDS {
                break;
            }
            let records: Vec<_> =
                frame.records().iter().map(|record| (record.envelope.clone(), record.payload)).collect();
            let mut changed = Vec::new();
            frame::encode(&mut changed, header.salt, &Digest([9; 32]), fields.clone(), &records).unwrap();
            let storage = storage.power_cut(CrashMode::KeepAll);
            storage.corrupt(&path, |bytes| bytes[at..at + len].copy_from_slice(&changed)).unwrap();
            for end in &ends {
                let to = place(&storage, &format!("f{end}"));
                let done = fork(&dir(&storage), ForkPoint::At(*end), &to, opts).map(drop);
                if *end < fields.first_position {
                    done.unwrap();
                    check(&to, &prefix(&log, *end), "before it");
                    sound += 1;
                } else {
                    assert_eq!(done.unwrap_err().kind(), ErrorKind::Corrupt, "{at} {end}");
                    refused += 1;
                }
            }
            at += len;
        }
    }
    assert!(refused > 50 && sound > 50, "{refused} {sound}");
}

/// A long part is sealed at once: forks of the fork share it, and write no more than what is new.
#[test]
fn a_long_copy_is_sealed_and_shared_by_later_forks() {
    let opts = LogOptions::default();
    let storage = disk();
    let writer = create(&storage, opts);
    let mut expected = Vec::new();
    for tag in 0..40 {
        let receipt = writer.append(batch(tag, &[5000]), Durability::Buffered).unwrap();
        expected.extend(logged(receipt.first, tag, &[5000]));
    }
    writer.sync().unwrap();
    let before = files_of(&storage, "log");
    let mut from = dir(&storage);
    for nth in 0..6 {
        let to = place(&storage, &format!("f{nth}"));
        storage.take_calls();
        drop(fork(&from, ForkPoint::Head, &to, opts).unwrap());
        let written = written(&storage.take_calls());
        let at_most = if nth == 0 { 250_000 } else { 65_536 + 1024 };
        assert!(written < at_most, "fork {nth} wrote {written} bytes");
        expected = prefix(&expected, last(&expected));
        check(&to, &expected, "sealed");
        let segments = files_of(&storage, &format!("f{nth}"));
        assert_eq!(segments.len(), 2, "{:?}", segments.keys());
        from = to;
    }
    assert_eq!(files_of(&storage, "log"), before);
}

fn written(calls: &[Call]) -> u64 {
    calls.iter().map(|call| if let Call::Write { len, .. } = call { *len } else { 0 }).sum()
}

/// A torn tail in the fork's own segment is cut by its next owner; nothing that is shared is touched.
#[test]
fn what_is_torn_in_a_fork_is_cut_in_the_fork() {
    let opts = options(512, 512);
    let storage = disk();
    let (log, ends) = origin(&storage, opts);
    let before = files_of(&storage, "log");
    for end in &ends {
        let to = place(&storage, &format!("f{end}"));
        let writer = fork(&dir(&storage), ForkPoint::At(*end), &to, opts).unwrap();
        writer.append(batch(60, &[90]), Durability::Sync).unwrap();
        drop(writer);
        let own = files_of(&storage, to.segments.to_str().unwrap()).into_keys().next_back().unwrap();
        storage
            .corrupt(&own, |bytes| {
                let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
                bytes.truncate(used - 8);
                bytes.extend([0; 100]);
            })
            .unwrap();
        let (writer, report) = Recovering::open(to.clone(), opts, Position::START).unwrap().finish().unwrap();
        assert!(report.cut.is_some(), "{end}");
        live(writer, &to, opts, prefix(&log, *end), &format!("cut at {end}"));
        assert_eq!(files_of(&storage, "log"), before, "{end}");
    }
}

/// A crash at every call that changes the disk: there is a whole fork or none, and the origin is as it was.
#[test]
fn a_crash_at_every_call_leaves_a_whole_fork_or_none() {
    for segment_len in [512, 8 << 20] {
        let opts = options(segment_len, 512);
        let base = disk();
        let (log, _) = origin(&base, opts);
        place(&base, "f");
        let before = files_of(&base, "log");
        let moments = Arc::new(Mutex::new(Vec::new()));
        let hook = {
            let (inner, moments) = (base.clone(), Arc::clone(&moments));
            move |kind| {
                if kind != CallKind::Read {
                    let modes = [CrashMode::KeepAll, CrashMode::LoseAll];
                    let seeded = (0..24).map(CrashMode::Seeded);
                    let cut = modes.into_iter().chain(seeded).map(|mode| (mode, inner.power_cut(mode)));
                    moments.lock().unwrap().push(cut.collect::<Vec<_>>());
                }
            }
        };
        let hooked: Arc<dyn Storage> = Arc::new(Hooked { inner: base.clone(), hook: Arc::new(hook) });
        let from = LogDir { storage: Arc::clone(&hooked), ..dir(&base) };
        let writer = fork(&from, ForkPoint::Head, &place_on(hooked, "f"), opts).unwrap();
        drop(writer);
        let mut moments = std::mem::take(&mut *moments.lock().unwrap());
        assert!(moments.iter().flatten().count() > 150);
        // And after it returned: it is durable.
        moments.push(vec![(CrashMode::LoseAll, base.power_cut(CrashMode::LoseAll))]);
        let count = moments.len();
        let mut outcomes = [0, 0];
        for (call, cuts) in moments.into_iter().enumerate() {
            for (mode, storage) in cuts {
                let what = format!("segments of {segment_len}, call {call}, {mode:?}");
                assert_eq!(files_of(&storage, "log"), before, "{what}");
                check(&dir(&storage), &log, &what);
                let to = place_on(Arc::new(storage.clone()), "f");
                let expected = prefix(&log, last(&log));
                match Recovering::open(to.clone(), opts, Position::START).and_then(Recovering::finish) {
                    Ok((writer, report)) => {
                        assert_eq!(
                            (report.last, report.previous_epoch),
                            (last(&expected), Epoch(2)),
                            "{what}"
                        );
                        live(writer, &to, opts, expected, &what);
                        outcomes[0] += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NotFound, "{what}: {error:?}");
                        assert!(call < count - 1, "{what}: it was acknowledged");
                        // What is left is in nobody's way: not at another place, and not at the same one.
                        for to in [place(&storage, "other"), to] {
                            let writer = fork(&dir(&storage), ForkPoint::Head, &to, opts).unwrap();
                            live(writer, &to, opts, expected.clone(), &what);
                        }
                        outcomes[1] += 1;
                    }
                }
                assert_eq!(files_of(&storage, "log"), before, "{what}");
            }
        }
        assert!(outcomes.iter().all(|count| *count > 10), "{outcomes:?}");
    }
}

/// Every call of a fork fails in turn: nothing is left at its place, its space is given back, and the next attempt works.
#[test]
fn a_fork_that_fails_leaves_nothing() {
    let opts = options(512, 512);
    for error in [FaultError::EIO, FaultError::ENOSPC] {
        for nth in 0.. {
            let storage = disk();
            let (log, _) = origin(&storage, opts);
            let to = place(&storage, "f");
            let before = content(&storage);
            storage.take_calls();
            storage.fail(Fault::any(error).after(nth));
            let done = try_fork(&dir(&storage), ForkPoint::Head, &to, opts);
            if storage.armed_faults() > 0 {
                assert!(nth > 20, "{nth}");
                break;
            }
            let what = format!("call {nth}: {:?}", done.as_ref().err());
            assert_eq!(files_of(&storage, "log"), before_log(&before), "{what}");
            let calls = storage.take_calls();
            let renamed = calls.iter().any(|call| call.kind() == CallKind::Rename);
            match done {
                // A link that was refused, or the check at the end.
                Ok(_) => check(&to, &prefix(&log, last(&log)), &what),
                Err(failed) => {
                    assert!(matches!(failed.kind(), ErrorKind::Io | ErrorKind::Full), "{what}");
                    let at_end = calls.last().is_some_and(|call| is_sync(call.kind())) && renamed;
                    if !at_end && storage.entry(&to.segments).unwrap().is_none() {
                        assert_eq!(content(&storage), before, "{what}");
                        drop(fork(&dir(&storage), ForkPoint::Head, &to, opts).unwrap());
                    }
                    check(&to, &prefix(&log, last(&log)), &what);
                }
            }
        }
    }
}

fn before_log(before: &BTreeMap<PathBuf, Vec<u8>>) -> BTreeMap<PathBuf, Vec<u8>> {
    before.iter().filter(|(path, _)| path.starts_with("log")).map(|(p, b)| (p.clone(), b.clone())).collect()
}

/// The links between segments are checked across the border, in both directions.
#[test]
fn the_border_is_checked_like_any_other() {
    let opts = options(512, 0);
    let storage = disk();
    let (log, _) = origin(&storage, opts);
    let to = place(&storage, "f");
    drop(fork(&dir(&storage), ForkPoint::Head, &to, opts).unwrap());
    let own = files_of(&storage, "f").into_keys().next_back().unwrap();
    let change = |change: &dyn Fn(&mut SegmentHeader)| {
        let storage = storage.power_cut(CrashMode::KeepAll);
        storage
            .corrupt(&own, |bytes| {
                let mut header = SegmentHeader::decode(bytes).unwrap();
                change(&mut header);
                bytes[..128].copy_from_slice(&header.encode());
            })
            .unwrap();
        let to = place_on(Arc::new(storage), "f");
        let verified = LogReader::new(to.clone()).verify().unwrap();
        let lost = verified.findings.iter().any(|finding| finding.severity == Severity::Lost);
        let opened = Recovering::open(to.clone(), opts, Position::START).map(drop).map_err(|e| e.kind());
        let fork = LogReader::new(to).plan_fork(ForkPoint::Head, LOG).map(drop).map_err(|e| e.kind());
        (lost, opened, fork)
    };
    let refused = (true, Err(ErrorKind::Corrupt), Err(ErrorKind::Corrupt));
    assert_eq!(change(&|_| {}), (false, Ok(()), Ok(())));
    assert_eq!(change(&|header| header.forked_from = None), refused);
    assert_eq!(change(&|header| header.forked_from = Some(LogId([3; 16]))), refused);
    assert_eq!(change(&|header| header.previous.0[0] ^= 1), refused);
    assert_eq!(change(&|header| header.segment_no.0 += 1), refused);
    // A copy of the first segment goes on from its origin's genesis hash, and from no other one.
    let single = place(&storage, "s");
    drop(fork(&dir(&storage), ForkPoint::At(Position(1)), &single, opts).unwrap());
    check(&single, &prefix(&log, Position(1)), "single");
    let path = single.segment_path(SegmentName(Position(1)));
    storage
        .corrupt(&path, |bytes| {
            let header = SegmentHeader { forked_from: None, ..SegmentHeader::decode(bytes).unwrap() };
            bytes[..128].copy_from_slice(&header.encode());
        })
        .unwrap();
    let verified = LogReader::new(single.clone()).verify().unwrap();
    assert_eq!(verified.findings[0].code, "chain.broken", "{verified:?}");
    let refused = Recovering::open(single.clone(), opts, Position::START).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert_eq!(read_on(single, Position(1)).unwrap().tail, TailState::Clean);
}
