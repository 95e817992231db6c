//! What each operation of the log asks of the storage: counted for an append, listed call by call for the rest, so that
//! a change of what is synced when is seen in review.
//!
//! `SESSIONLOG_WRITE_SCRIPTS=1 cargo test -p sessionlog --test log_budget` writes the listings anew.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::fmt::Write;

use sessionlog::log::{Durability, LogWriter};
use sessionlog::storage::{Call, CallKind, Fault, FaultError, SimStorage};
use sessionlog_codec::ids::Position;
use support::{QUARANTINE, SEGMENTS, batch, create, disk, open, options, read};

fn count(calls: &[Call], kind: CallKind) -> usize {
    calls.iter().filter(|call| call.kind() == kind).count()
}

/// One write and one sync; the reads are the looks at whether somebody else wrote here, and whether somebody took over.
fn assert_sync_append(calls: &[Call], what: &str) {
    assert_eq!(count(calls, CallKind::Write), 1, "{what}: {calls:?}");
    assert_eq!(count(calls, CallKind::SyncData), 1, "{what}: {calls:?}");
    assert_eq!(count(calls, CallKind::Read), 2, "{what}: {calls:?}");
    assert_eq!(calls.len(), 4, "{what}: {calls:?}");
    assert_eq!(calls[2].kind(), CallKind::SyncData, "{what}");
}

#[test]
fn sync_append_is_one_write_and_one_sync() {
    for fill_len in [0, 4096, 1 << 20] {
        let storage = disk();
        let writer = create(&storage, options(8 << 20, fill_len));
        let (mut grew, mut fitted) = (0, 0);
        for tag in 0..40 {
            storage.take_calls();
            let before = len(&storage);
            let lens = [[10, 0].as_slice(), &[3000], &[200, 200, 200]][usize::try_from(tag % 3).unwrap()];
            writer.append(batch(tag, lens), Durability::Sync).unwrap();
            assert_sync_append(&storage.take_calls(), &format!("fill {fill_len}, append {tag}"));
            *if len(&storage) > before { &mut grew } else { &mut fitted } += 1;
        }
        // By default once, with the records that a session begins with: not for its first hundred messages.
        let expected = match fill_len {
            0 => grew == 40,
            4096 => grew > 2 && fitted > 20,
            _ => grew == 1,
        };
        assert!(expected, "fill {fill_len}: {grew}, {fitted}");
    }
}

fn len(storage: &SimStorage) -> usize {
    storage.read_file(storage.files().last().unwrap()).unwrap().len()
}

/// Thousands of sessions are a few messages long: each takes one step that is enough for it, not the longest one. A long one
/// grows in long steps.
#[test]
fn a_session_of_some_messages_takes_little_room() {
    let storage = disk();
    let writer = create(&storage, options(4 << 20, 1 << 20));
    let grown = |payload: usize| {
        writer.append(batch(1, &[payload]), Durability::Sync).unwrap();
        len(&storage)
    };
    assert_eq!(grown(100), (256 << 10) + 4096);
    assert_eq!(grown(80_000), (256 << 10) + 4096);
    let four_times = grown(250_000);
    assert!((4 * 330_000..4 * 340_000).contains(&four_times), "{four_times}");
    let most = grown(four_times);
    assert!((four_times + (1 << 20)..four_times + (3 << 19)).contains(&most), "{most}");
    // No zeros are written behind the place where a segment is sealed.
    grown((1 << 20) + 8192);
    assert_eq!(grown((1 << 20) + 8192), 4 << 20);
    grown(1 << 20);
    assert_eq!(storage.files().len(), 1);
    assert_eq!((grown(100), storage.files().len()), ((1 << 20) + 4096, 2));
}

#[test]
fn a_group_is_one_write_and_one_sync() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 4096));
    storage.take_calls();
    let tickets: Vec<_> = (0..20)
        .map(|tag| {
            let durability = [Durability::Sync, Durability::Turn, Durability::Buffered][tag % 3];
            let tag = u64::try_from(tag).unwrap();
            writer.enqueue(batch(tag, &[10, 20]), writer.next(), durability).unwrap()
        })
        .collect();
    assert_eq!(storage.calls(), []);
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    assert_sync_append(&storage.take_calls(), "20 batches");
    assert_eq!(writer.durable(), Position(40));
}

#[test]
fn what_is_not_synced_costs_no_sync() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 1 << 20));
    writer.append(batch(0, &[10]), Durability::Sync).unwrap();
    storage.take_calls();
    for durability in [Durability::Turn, Durability::Buffered] {
        writer.append(batch(1, &[10]), durability).unwrap();
        let calls = storage.take_calls();
        assert_eq!((calls.len(), count(&calls, CallKind::Write)), (1, 1), "{calls:?}");
    }
    assert_eq!(writer.durable(), Position(1));
    writer.sync().unwrap();
    let calls = storage.take_calls();
    // And the look at whether somebody took over.
    assert_eq!((calls.len(), count(&calls, CallKind::SyncData)), (2, 1), "{calls:?}");
    assert_eq!(writer.durable(), Position(3));
    writer.sync().unwrap();
    assert_eq!(storage.take_calls(), []);
}

/// Compares the calls since the last time with a listing.
struct Script {
    text: String,
}

impl Script {
    fn step(&mut self, storage: &SimStorage, what: &str) {
        writeln!(self.text, "# {what}").unwrap();
        for call in storage.take_calls() {
            writeln!(self.text, "{call}").unwrap();
        }
    }

    fn compare(&self, name: &str) {
        let path = format!("{}/tests/support/scripts/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("SESSIONLOG_WRITE_SCRIPTS").is_some() {
            std::fs::write(&path, &self.text).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(self.text == expected, "{path} lists\n{expected}\nbut this happened:\n{}", self.text);
    }
}

/// Who does not wait for the disk does not wait for it because a segment is full, which it has to be synced for.
#[test]
fn a_buffered_append_does_not_wait_for_a_roll() {
    let storage = disk();
    let writer = create(&storage, options(1000, 0));
    let segments = || storage.files().len();
    let mut tag = 0;
    let mut append = |durability| {
        tag += 1;
        writer.append(batch(tag, &[100]), durability).unwrap();
    };
    while len(&storage) < 2700 {
        storage.take_calls();
        append(Durability::Buffered);
        let calls = storage.take_calls();
        assert!(
            calls.iter().all(|call| matches!(call.kind(), CallKind::Read | CallKind::Write)),
            "{calls:?}"
        );
    }
    assert_eq!(segments(), 1);
    // Who waits for it anyway seals the segment.
    append(Durability::Sync);
    assert_eq!(segments(), 2);
    // But not for ever.
    (0..15).for_each(|_| append(Durability::Buffered));
    assert_eq!(segments(), 3);
    let longest = storage.files().iter().map(|path| storage.read_file(path).unwrap().len()).max().unwrap();
    assert!(longest < 6000, "{longest} bytes, with the footer");
}

#[test]
fn script_of_writing() {
    let storage = disk();
    let mut script = Script { text: String::new() };
    let writer = create(&storage, options(600, 4096));
    script.step(&storage, "create");
    let append = |tag, durability| writer.append(batch(tag, &[100]), durability).map(|_| ());
    append(1, Durability::Sync).unwrap();
    script.step(&storage, "append, Sync: the file grows");
    append(2, Durability::Sync).unwrap();
    script.step(&storage, "append, Sync: it is long enough already");
    append(3, Durability::Buffered).unwrap();
    script.step(&storage, "append, Buffered: the segment is long enough now");
    append(4, Durability::Sync).unwrap();
    script.step(&storage, "append, Sync: the segment is sealed, the next one begun");
    append(5, Durability::Turn).unwrap();
    script.step(&storage, "append, Turn");
    writer.sync().unwrap();
    script.step(&storage, "sync");
    append(6, Durability::Buffered).unwrap();
    storage.take_calls();
    storage.fail(Fault::new(CallKind::Create, FaultError::EIO));
    append(8, Durability::Sync).unwrap_err();
    script.step(&storage, "append, Sync: sealed, but the next segment can't be created");
    storage.fail(Fault::new(CallKind::Write, FaultError::ENOSPC).written(50));
    append(8, Durability::Sync).unwrap_err();
    script.step(&storage, "again: its header can't be written");
    append(8, Durability::Sync).unwrap();
    script.step(&storage, "again: what the attempt before left is used");
    storage.fail(Fault::new(CallKind::Write, FaultError::ENOSPC).written(50));
    append(9, Durability::Sync).unwrap_err();
    script.step(&storage, "append, Sync: there is no room for it");
    append(9, Durability::Sync).unwrap();
    script.step(&storage, "again");
    writer.close().unwrap();
    script.step(&storage, "close");
    script.compare("writing");
}

#[test]
fn script_of_recovery() {
    let storage = disk();
    let mut script = Script { text: String::new() };
    let written = options(400, 4096);
    let writer = create(&storage, written);
    for tag in 0..4 {
        writer.append(batch(tag, &[100]), Durability::Sync).unwrap();
    }
    drop(writer);
    storage.take_calls();
    drop(open(&storage, written).unwrap());
    script.step(&storage, "open: two segments, the last one whole");
    let last = storage.files().pop().unwrap();
    storage.corrupt(&last, |bytes| bytes[400] ^= 1).unwrap();
    let (writer, report) = open(&storage, written).unwrap();
    assert_eq!(report.last, Position(3));
    script.step(&storage, "open: a torn tail");
    writer.append(batch(5, &[200]), Durability::Sync).unwrap();
    storage.fail(Fault::new(CallKind::Write, FaultError::EIO).after(1).written(60));
    writer.append(batch(6, &[300]), Durability::Sync).unwrap_err();
    drop(writer);
    storage.take_calls();
    let (_, report) = open(&storage, written).unwrap();
    assert!(report.removed.is_some());
    script.step(&storage, "open: the last segment half created");
    read(&storage, Position(1)).unwrap();
    script.step(&storage, "read without a lock");
    script.compare("recovery");
    assert!(script.text.contains(QUARANTINE) && script.text.contains(SEGMENTS));
}

/// Everything that opening changes is durable when it returns, in this order: copy, cut.
#[test]
fn a_cut_is_copied_before_it_is_made() {
    let storage = disk();
    let writer = create(&storage, options(1 << 20, 0));
    writer.append(batch(1, &[100]), Durability::Sync).unwrap();
    writer.append(batch(2, &[100]), Durability::Sync).unwrap();
    let close = |writer: LogWriter| writer.close().unwrap();
    close(writer);
    let path = storage.files().pop().unwrap();
    storage.corrupt(&path, |bytes| *bytes.last_mut().unwrap() ^= 1).unwrap();
    storage.corrupt(&path, |bytes| bytes[400] ^= 1).unwrap();
    storage.take_calls();
    open(&storage, options(1 << 20, 0)).unwrap();
    let calls = storage.take_calls();
    let at = |wanted: &dyn Fn(&Call) -> bool| calls.iter().position(wanted).unwrap();
    let cut = at(&|call| call.kind() == CallKind::Rename);
    let copied = at(&|call| call.kind() == CallKind::SyncAll && call.path().starts_with(QUARANTINE));
    let named = at(&|call| call.kind() == CallKind::SyncDir && call.path().ends_with("quarantine"));
    assert!(copied < cut && named < cut);
    // The new file is whole before it takes its place, and has it for good afterwards.
    let written = at(&|call| call.kind() == CallKind::SyncAll && call.path().starts_with(SEGMENTS));
    assert!(written < cut);
    assert!(
        calls[cut..]
            .iter()
            .any(|call| call.kind() == CallKind::SyncDir && call.path() == std::path::Path::new(SEGMENTS))
    );
}
