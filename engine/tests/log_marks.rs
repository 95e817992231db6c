//! Marks: what is derived from a log (a view, an index, a row of a listing, the last page) is bound to the place where the log
//! ended, and is believed as long as the log has that place. Believed for too long, it shows what is not there any more; not
//! believed, each listing reads whole logs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::ops::ControlFlow;
use std::ops::Range;

use sessionlog::ErrorKind;
use sessionlog::log::{
    Cursor, Durability, DurableEnd, ForkPoint, LogReader, LogWriter, ReadItem, Recovering,
};
use sessionlog::storage::{CallKind, CrashMode, Fault, FaultError, SimStorage};
use sessionlog_codec::ids::{LogId, Position};
use support::patched::frames;
use support::{LOG, all, batch, create, dir, disk, open, options};

fn log(storage: &SimStorage) -> LogReader {
    LogReader::new(dir(storage))
}

/// Appends a batch and gives the end of the log then.
fn appended(writer: &LogWriter, tag: u64, lens: &[usize]) -> DurableEnd {
    writer.append(batch(tag, lens), Durability::Sync).unwrap();
    writer.durable_end().unwrap()
}

/// Both marks of the same place are the same, and each is the log's as long as nothing follows: in the same segment, behind a
/// roll, over short frames and long ones.
#[test]
fn a_mark_is_of_one_place() {
    let storage = disk();
    let writer = create(&storage, options(20_000, 4096));
    let mut before: Vec<DurableEnd> = Vec::new();
    for tag in 0..30 {
        let end = appended(
            &writer,
            tag,
            [[10, 20].as_slice(), &[3000], &[9000]][usize::try_from(tag % 3).unwrap()],
        );
        assert_eq!(log(&storage).mark().unwrap().as_ref(), Some(&end.mark), "{tag}");
        assert!(log(&storage).is_at(&end.mark).unwrap(), "{tag}");
        for old in &before {
            assert!(!log(&storage).is_at(&old.mark).unwrap(), "{} after {}", old.mark.next, end.mark.next);
        }
        before.push(end);
    }
    assert!(storage.files().len() > 3);
    writer.close().unwrap();
    assert!(log(&storage).is_at(&before.last().unwrap().mark).unwrap(), "unused space was given back");
    let (writer, _) = open(&storage, options(20_000, 4096)).unwrap();
    assert!(log(&storage).is_at(&before.last().unwrap().mark).unwrap(), "written anew as it was");
    // What is not durable has no end; what is torn has no mark.
    writer.append(batch(40, &[5]), Durability::Buffered).unwrap();
    assert_eq!(
        (writer.durable_end(), log(&storage).is_at(&before.last().unwrap().mark).unwrap()),
        (None, false)
    );
    writer.sync().unwrap();
    let end = writer.durable_end().unwrap();
    storage.corrupt(storage.files().last().unwrap(), |bytes| bytes.extend([0xee; 16])).unwrap();
    assert_eq!(log(&storage).mark().unwrap(), None);
    drop((writer, end));
}

/// Sealed and empty, a segment more: the log ends at the same record, at another place.
#[test]
fn a_mark_is_of_no_segment_that_another_one_follows() {
    let storage = disk();
    let writer = create(&storage, options(600, 0));
    let mut end = appended(&writer, 0, &[100]);
    for tag in 1..20 {
        let files = storage.files();
        writer.enqueue(batch(tag, &[100]), writer.next(), Durability::Sync).unwrap().wait().unwrap();
        if storage.files() != files {
            // The power goes before the first record of the new segment is there.
            let path = storage.files().pop().unwrap();
            storage.corrupt(&path, |bytes| bytes.truncate(128)).unwrap();
            assert!(!log(&storage).is_at(&end.mark).unwrap());
            return;
        }
        end = writer.durable_end().unwrap();
    }
    panic!("it never rolled");
}

/// A log that was cut, made anew or put back from a copy is another one; one that is gone is none. One that can't be read is
/// neither: who took an error for a change would read each log of the store again.
#[test]
fn a_mark_is_of_one_log() {
    let opts = options(8 << 20, 0);
    let storage = disk();
    let writer = create(&storage, opts);
    writer.append(batch(1, &[50]), Durability::Sync).unwrap();
    let one = writer.durable_end().unwrap();
    let copy = storage.power_cut(CrashMode::KeepAll);
    let two = appended(&writer, 2, &[50]);
    assert!(log(&copy).is_at(&one.mark).unwrap() && !log(&copy).is_at(&two.mark).unwrap());
    let (other, _) = open(&copy, opts).unwrap();
    let three = appended(&other, 3, &[50]);
    assert_eq!((two.mark.next, log(&copy).is_at(&two.mark).unwrap()), (three.mark.next, false));
    assert!(log(&copy).cursor_behind(&two.mark).unwrap().is_none());
    for kind in [CallKind::Open, CallKind::Read, CallKind::Stat] {
        storage.fail(Fault::new(kind, FaultError::EIO));
        assert_eq!(log(&storage).is_at(&two.mark).unwrap_err().kind(), ErrorKind::Io, "{kind:?}");
        storage.clear_faults();
    }
    for kind in [CallKind::Open, CallKind::Read] {
        storage.fail(Fault::new(kind, FaultError::EIO));
        assert_eq!(log(&storage).cursor_behind(&two.mark).unwrap_err().kind(), ErrorKind::Io, "{kind:?}");
        storage.clear_faults();
    }
    for file in storage.files() {
        storage.corrupt(&file, |bytes| bytes.truncate(0)).unwrap();
    }
    assert!(!log(&storage).is_at(&two.mark).unwrap());
    let empty = disk();
    assert!(!log(&empty).is_at(&two.mark).unwrap());
    assert!(log(&empty).cursor_behind(&two.mark).unwrap().is_none());
}

/// What a cursor gives from now on.
fn rest(cursor: &mut Cursor) -> Vec<Position> {
    let mut positions = Vec::new();
    cursor
        .advance(&mut |item| {
            let ReadItem::Record(record) = item else { panic!("{item:?}") };
            positions.push(record.position);
            ControlFlow::Continue(())
        })
        .unwrap();
    positions
}

#[test]
fn a_cursor_behind_a_mark_gives_what_is_behind_it() {
    let storage = disk();
    let writer = create(&storage, options(900, 0));
    let ends: Vec<_> = (0..20).map(|tag| appended(&writer, tag, &[60, 70])).collect();
    for end in &ends {
        let mut cursor = log(&storage).cursor_behind(&end.mark).unwrap().unwrap();
        assert_eq!(cursor.durable(), Position(end.mark.next.0 - 1));
        assert_eq!(rest(&mut cursor), (end.mark.next.0..=40).map(Position).collect::<Vec<_>>());
    }
}

/// The last page of a conversation, read by one read from where its first record stands. Hurt, it is an error: never a page
/// with a record less.
#[test]
fn the_newest_records_are_whole_or_an_error() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 0));
    for tag in 0..10 {
        writer.append(batch(tag, &[40, 50]), Durability::Sync).unwrap();
    }
    let end = writer.durable_end().unwrap();
    assert_eq!(end.first_recent(), Position(1));
    let read_range = |storage: &SimStorage, range: Range<u64>| {
        let (mut positions, range) = (Vec::new(), Position(range.start)..Position(range.end));
        let read = log(storage).read_recent(&end, range, &mut |record| positions.push(record.position.0));
        read.map(|()| positions)
    };
    let read = |storage: &SimStorage, from| read_range(storage, from..21);
    for from in 1..=20 {
        assert_eq!(read(&storage, from).unwrap(), (from..=20).collect::<Vec<_>>());
        // Also what ends before the log does, be it in the middle of a frame.
        for until in from + 1..21 {
            assert_eq!(read_range(&storage, from..until).unwrap(), (from..until).collect::<Vec<_>>());
        }
    }
    for from in [0, 21] {
        assert_eq!(read(&storage, from).unwrap_err().code(), "log.not_recent", "{from}");
    }
    let path = storage.files().pop().unwrap();
    let len = storage.read_file(&path).unwrap().len();
    for at in (200..len - 8).step_by(7) {
        let hurt = storage.power_cut(CrashMode::KeepAll);
        hurt.corrupt(&path, |bytes| bytes[at] ^= 0x40).unwrap();
        match read(&hurt, 1) {
            // In the padding between two frames.
            Ok(positions) => assert_eq!(positions.len(), 20, "byte {at}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}"),
        }
    }
    // A write that went to the wrong place: a whole frame, and not the one that belongs there.
    let change = |bytes: &mut Vec<u8>| {
        let places = frames(bytes);
        let third = bytes[places[3].clone()].to_vec();
        bytes.splice(places[4].clone(), third);
    };
    storage.corrupt(&path, change).unwrap();
    let error = read(&storage, 1).unwrap_err();
    assert!(error.to_string().ends_with("a frame is missing"), "{error}");
    // Only the newest of a long segment, and of a segment that was begun behind others.
    let storage = disk();
    let writer = create(&storage, options(40_000, 0));
    for tag in 0..1000 {
        writer.append(batch(tag, &[1]), Durability::Buffered).unwrap();
    }
    writer.sync().unwrap();
    let end = writer.durable_end().unwrap();
    let first = end.first_recent().0;
    assert!(first > 1 && first < 1000, "{first}");
    let mut positions = Vec::new();
    log(&storage)
        .read_recent(&end, Position(first)..end.mark.next, &mut |record| positions.push(record.position.0))
        .unwrap();
    assert_eq!(positions, (first..=1000).collect::<Vec<_>>());
}

/// The chain hash at a position is the same whoever says it: a fork keeps it for ever as the proof of where it came from.
#[test]
fn the_chain_is_the_same_from_every_side() {
    let storage = disk();
    let opts = options(700, 0);
    let writer = create(&storage, opts);
    let ends: Vec<_> = (0..15).map(|tag| appended(&writer, tag, &[80])).collect();
    for end in &ends {
        let at = Position(end.mark.next.0 - 1);
        let plan = log(&storage).plan_fork(ForkPoint::At(at), LogId([9; 16])).unwrap();
        assert_eq!((plan.at(), plan.chain()), (at, end.mark.chain));
    }
    let recovering = Recovering::open(dir(&storage), opts, Position::START).unwrap();
    assert_eq!(recovering.chain(), ends.last().unwrap().mark.chain);
    assert_eq!(writer.log_id(), LOG);
    assert_eq!(all(&storage).len(), 15);
}

/// A snapshot is of what the session has folded, and that is what was queued. Bound to an end before it, the records in between
/// would be folded twice by the next owner.
#[test]
fn there_is_no_end_while_something_is_queued() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 0));
    let end = appended(&writer, 0, &[40]);
    let ticket = writer.enqueue(batch(1, &[50]), writer.next(), Durability::Sync).unwrap();
    assert_eq!(writer.durable_end(), None);
    ticket.wait().unwrap();
    assert_eq!(writer.durable_end().unwrap().mark.next, Position(end.mark.next.0 + 1));
    writer.append(batch(2, &[50]), Durability::Buffered).unwrap();
    assert_eq!(writer.durable_end(), None, "not durable");
    writer.close().unwrap();
    assert_eq!(writer.durable_end(), None, "somebody else may own it now");
}
