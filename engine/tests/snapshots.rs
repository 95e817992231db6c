//! Opening a session from a snapshot is opening it from its log: whatever is asked of it, whatever became of the snapshot's
//! files. Reports of this kind are of caches that were believed: an index that disagreed with its log, a resume that showed
//! yesterday's state.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sessionlog::codec::event::{CompactionTrigger, Effect, Role, TurnOutcome};
use sessionlog::codec::ids::{CallRef, IdempotencyKey, MessageNo, NodeId, SessionId, ToolIndex};
use sessionlog::log::Severity;
use sessionlog::projections::rewind::RewindTo;
use sessionlog::session::Compaction;
use sessionlog::storage::{Access, Call, CrashMode, SimStorage, Storage};
use sessionlog::{CallResult, ErrorKind, Message, NewSession, Session, SnapshotPolicy, Store, StoreOptions};
use support::tree::open;

const ROOT: NodeId = NodeId::ROOT;

/// Turns of a prompt, a call, its result and an answer; compacted now and then.
fn work(session: &Session, turns: std::ops::Range<usize>) {
    for turn in turns {
        session.prompt(Message::user(format!("do {turn}"))).unwrap();
        let asked = session.append(Message::assistant("I look.").call("c", "read", "{}")).unwrap();
        let call = session.start_call(asked.call(0), Effect::Pure).unwrap();
        call.finish(CallResult::succeeded(format!("found {turn}"))).unwrap();
        session.append(Message::assistant(format!("done {turn}"))).unwrap();
        if turn % 7 == 6 {
            compact(session);
        }
        session.end_turn(TurnOutcome::Completed).unwrap();
    }
}

fn compact(session: &Session) {
    let last = session.context().unwrap().iter().filter_map(|message| message.message_no).max().unwrap();
    let range = |first: u64, last: u64| sessionlog::codec::event::MessageRange {
        first: MessageNo(first),
        last: MessageNo(last),
    };
    session
        .compact(Compaction {
            compaction_id: String::new(),
            summary: format!("up to {last}"),
            summary_role: Role::User,
            kept: vec![range(last.0, last.0)],
            replaced: vec![range(1, last.0 - 1)],
            tokens: (Some(1000), Some(10)),
            trigger: CompactionTrigger::Manual,
            model: None,
            usage: None,
        })
        .unwrap();
}

fn recorded(turns: usize) -> (SimStorage, SessionId) {
    let storage = SimStorage::new();
    let session = open(&storage).create("/w", NewSession::new("long")).unwrap();
    work(&session, 0..turns);
    let id = session.id();
    session.close().unwrap();
    (storage, id)
}

fn dir(storage: &SimStorage, id: SessionId) -> PathBuf {
    open(storage).reader().session(id).unwrap().place().dir.join("snapshots")
}

/// All that a session tells, as text.
fn told(session: &Session) -> String {
    format!(
        "{:#?}\n{:#?}\n{:#?}\n{:?}",
        session.context().unwrap(),
        session.summary().unwrap(),
        session.open_calls().unwrap(),
        session.last()
    )
}

/// Resumes a copy of the disk without its snapshots.
fn told_by_the_log(storage: &SimStorage, id: SessionId) -> String {
    let copy = storage.power_cut(CrashMode::KeepAll);
    let snapshots = dir(&copy, id);
    for file in copy.list(&snapshots).unwrap() {
        copy.remove_file(&snapshots.join(file.name)).unwrap();
    }
    let (session, report) = open(&copy).resume(id).unwrap();
    assert_eq!(report.snapshot, None);
    told(&session)
}

#[test]
fn a_session_is_opened_from_its_snapshot() {
    let (storage, id) = recorded(40);
    let expected = told_by_the_log(&storage, id);
    let (session, report) = open(&storage).resume(id).unwrap();
    let snapshot = report.snapshot.unwrap();
    assert!(snapshot.0 + 16 > report.last.0, "{snapshot} of {}", report.last);
    assert_eq!(told(&session), expected);
    // It goes on, and so does the next one.
    work(&session, 40..50);
    session.close().unwrap();
    let expected = told_by_the_log(&storage, id);
    assert_eq!(told(&open(&storage).resume(id).unwrap().0), expected);
}

/// The bytes that a resume and its context read do not grow with the session.
#[test]
fn opening_costs_the_same_however_long_the_session_is() {
    let read = |turns: usize| {
        let (storage, id) = recorded(turns);
        storage.take_calls();
        let (session, _) = open(&storage).resume(id).unwrap();
        assert!(session.context().unwrap().len() < 60);
        session.summary().unwrap();
        let of_views = |path: &Path| path.extension().is_some_and(|extension| extension == "jsonl");
        let read = |call: &Call| match call {
            // Views are looked at as far as they were not synced.
            Call::Read { path, len, .. } if !of_views(path) => *len,
            _ => 0,
        };
        storage.take_calls().iter().map(read).sum::<u64>()
    };
    let look = |turns: usize| {
        let (storage, id) = recorded(turns);
        let reader = open(&storage).reader().session(id).unwrap();
        let cost = |look: &dyn Fn()| {
            storage.take_calls();
            look();
            let read = |call: &Call| if let Call::Read { len, .. } = call { *len } else { 0 };
            storage.take_calls().iter().map(read).sum::<u64>()
        };
        [
            cost(&|| assert_eq!(reader.newest(ROOT, 20).unwrap().len(), 20)),
            cost(&|| drop(reader.summary().unwrap())),
            cost(&|| drop(reader.context(ROOT).unwrap())),
        ]
    };
    let (short, long) = (look(20), look(300));
    for (short, long) in short.iter().zip(&long) {
        assert!(*long < short * 3 / 2, "{short} bytes after 20 turns, {long} after 300");
    }
    // Behind the same number of turns since the last compaction.
    let (short, long) = (read(20), read(300));
    assert!(long < short * 3 / 2, "{short} bytes after 20 turns, {long} after 300");
}

#[test]
fn what_is_left_out_is_read_when_somebody_asks() {
    let (storage, id) = recorded(40);
    let old = MessageNo(2);
    // A rewind to long ago.
    let (session, report) = open(&storage).resume(id).unwrap();
    assert!(report.snapshot.is_some());
    let plan = session.plan_rewind(ROOT, RewindTo::AfterMessage(MessageNo(4))).unwrap();
    session.rewind(&plan).unwrap();
    let after = told(&session);
    drop(session);
    assert_eq!(told_by_the_log(&storage, id).contains("do 1"), after.contains("do 1"));
    let (session, _) = open(&storage).resume(id).unwrap();
    assert_eq!(session.context().unwrap().len(), 5, "two prompts, a call with its result, an answer");
    session.undo(ROOT).unwrap();
    drop(session);
    // A call that was answered long ago is not answered again, and its refusal says so.
    let (session, report) = open(&storage).resume(id).unwrap();
    assert!(report.snapshot.is_some());
    let call = CallRef { message_no: old, tool_index: ToolIndex(0) };
    let by = (sessionlog::codec::event::Resolver::Person, String::new());
    let refused = session.resolve_call(ROOT, call, CallResult::succeeded("x"), by).unwrap_err();
    assert_eq!(refused.code(), "append.law");
    session.ledger(|ledger| assert!(ledger.call(ROOT, call).is_some())).unwrap();
    assert_eq!(session.transcript().unwrap().iter().filter(|entry| entry.is_message()).count(), 40 * 4);
}

fn key() -> IdempotencyKey {
    IdempotencyKey([7; 16])
}

/// The segments before a snapshot are counted and not looked into: a missing one keeps everybody from writing, a hurt one is
/// found by who reads it.
#[test]
fn what_is_before_a_snapshot_is_counted() {
    let (storage, id) = recorded(40);
    let log = open(&storage).reader().session(id).unwrap().place().dir.join("log");
    let second = log.join(&storage.list(&log).unwrap()[1].name);
    let gone = storage.power_cut(CrashMode::KeepAll);
    gone.remove_file(&second).unwrap();
    let refused = open(&gone).resume(id).unwrap_err();
    assert_eq!((refused.kind(), refused.code()), (ErrorKind::Corrupt, "log.damaged"), "{refused}");
    let hurt = storage.power_cut(CrashMode::KeepAll);
    let file = hurt.open(&second, Access::ReadWrite).unwrap();
    file.write_at(b"not what was written", 200).unwrap();
    let (session, report) = open(&hurt).resume(id).unwrap();
    assert!(report.snapshot.is_some());
    session.append(Message::user("on")).unwrap();
    assert_eq!(session.ledger(|_| ()).unwrap_err().code(), "log.damaged");
    assert!(session.reader().verify().unwrap().all().any(|finding| finding.severity == Severity::Lost));
}

#[test]
fn a_key_is_known_behind_a_snapshot() {
    let storage = SimStorage::new();
    let session = open(&storage).create("/w", NewSession::new("keys")).unwrap();
    let key = key();
    let first = session.append(Message::user("once").key(key)).unwrap();
    work(&session, 0..20);
    let id = session.id();
    session.close().unwrap();
    let (session, report) = open(&storage).resume(id).unwrap();
    assert!(report.snapshot.is_some());
    assert_eq!(session.append(Message::user("once").key(key)).unwrap().position, first.position);
}

/// Every byte of both files, flipped, cut off, or of another session: the log is read, or the other file.
#[test]
fn a_snapshot_that_is_hurt_is_not_believed() {
    let (storage, id) = recorded(12);
    let expected = told_by_the_log(&storage, id);
    let files = storage.list(&dir(&storage, id)).unwrap();
    assert_eq!(files.len(), 2);
    for file in files {
        let path = dir(&storage, id).join(&file.name);
        for at in (0..file.len).step_by(97).chain([0, 1, 2, 3, 4, 5, 6, 7, 8, file.len - 1]) {
            let hurt = storage.power_cut(CrashMode::KeepAll);
            let handle = hurt.open(&path, Access::ReadWrite).unwrap();
            let mut byte = [0];
            handle.read_at(&mut byte, at).unwrap();
            handle.write_at(&[byte[0] ^ 0x10], at).unwrap();
            assert_eq!(told(&open(&hurt).resume(id).unwrap().0), expected, "byte {at}");
            let cut = storage.power_cut(CrashMode::KeepAll);
            cut.open(&path, Access::ReadWrite).unwrap().set_len(at).unwrap();
            assert_eq!(told(&open(&cut).resume(id).unwrap().0), expected, "cut at {at}");
        }
    }
}

/// A write over the older file that was cut off can leave its beginning and the other's end, each with a checksum that is right.
#[test]
fn the_place_of_one_and_the_folds_of_another_are_no_snapshot() {
    let (storage, id) = recorded(12);
    let expected = told_by_the_log(&storage, id);
    let paths = ["0.snapshot", "1.snapshot"].map(|name| dir(&storage, id).join(name));
    let files = paths.clone().map(|path| storage.read_file(path).unwrap());
    let split = |file: &[u8]| 4 + u32::from_le_bytes(file[..4].try_into().unwrap()) as usize;
    for (place, folds) in [(0, 1), (1, 0)] {
        let (place, folds) = (&files[place], &files[folds]);
        let mixed = [&place[..split(place)], &folds[split(folds)..]].concat();
        let hurt = storage.power_cut(CrashMode::KeepAll);
        hurt.put_file(&paths[0], mixed).unwrap();
        hurt.remove_file(&paths[1]).unwrap();
        let (session, report) = open(&hurt).resume(id).unwrap();
        assert_eq!((told(&session), report.snapshot), (expected.clone(), None));
    }
}

/// A snapshot of records that a loss of power took, whose positions and bytes others have now, of the same lengths.
#[test]
fn a_snapshot_of_what_was_lost_is_not_believed() {
    let (storage, id) = recorded(12);
    let other = storage.power_cut(CrashMode::KeepAll);
    let live = |storage: &SimStorage, word: &str| {
        let (session, _) = open(storage).resume(id).unwrap();
        for turn in 10..50 {
            session.append(Message::user(format!("{word} life {turn}"))).unwrap();
        }
        session.close().unwrap();
    };
    live(&storage, "first");
    live(&other, "other");
    let expected = told_by_the_log(&other, id);
    for file in storage.list(&dir(&storage, id)).unwrap() {
        copy(&storage, &other, &dir(&storage, id).join(&file.name));
    }
    let (session, report) = open(&other).resume(id).unwrap();
    assert_eq!((told(&session), report.snapshot), (expected, None));
}

fn copy(from: &SimStorage, to: &SimStorage, path: &Path) {
    let source = from.open(path, Access::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(source.len().unwrap()).unwrap()];
    source.read_at(&mut bytes, 0).unwrap();
    drop(to.remove_file(path));
    to.create_new(path).unwrap().write_at(&bytes, 0).unwrap();
}

/// What was redacted is in no snapshot, at no moment at which power is lost.
#[test]
fn what_was_redacted_is_in_no_snapshot() {
    let storage = SimStorage::new();
    let session = open(&storage).create("/w", NewSession::new("goal")).unwrap();
    let said = session.prompt(Message::user("the password is hunter2")).unwrap();
    work(&session, 0..10);
    assert!(in_snapshots(&storage, session.id(), b"hunter2"), "a summary tells the first prompt");
    session.redact(&BTreeSet::from([said.position]), "secret").unwrap();
    assert!(!in_snapshots(&storage, session.id(), b"hunter2"));
    work(&session, 10..20);
    let id = session.id();
    session.close().unwrap();
    assert!(!in_snapshots(&storage, id, b"hunter2"));
    assert!(open(&storage).resume(id).unwrap().1.snapshot.is_some());
}

fn in_snapshots(storage: &SimStorage, id: SessionId, word: &[u8]) -> bool {
    let dir = dir(storage, id);
    storage.list(&dir).unwrap().into_iter().any(|file| {
        let mut bytes = vec![0; usize::try_from(file.len).unwrap()];
        storage.open(&dir.join(file.name), Access::Read).unwrap().read_at(&mut bytes, 0).unwrap();
        bytes.windows(word.len()).any(|window| window == word)
    })
}

#[test]
fn a_full_disk_takes_no_snapshot_and_no_message() {
    let (storage, id) = recorded(12);
    let (session, _) = open(&storage).resume(id).unwrap();
    // A file that is no directory is in the way.
    let snapshots = dir(&storage, id);
    for file in storage.list(&snapshots).unwrap() {
        storage.remove_file(&snapshots.join(file.name)).unwrap();
    }
    storage.rename(&snapshots, &snapshots.with_file_name("elsewhere")).unwrap();
    storage.create_new(&snapshots).unwrap();
    work(&session, 12..24);
    session.close().unwrap();
    assert_eq!(open(&storage).resume(id).unwrap().1.snapshot, None);
}

#[test]
fn off_is_off() {
    let storage = SimStorage::new();
    let clock = std::sync::Arc::new(sessionlog::SystemClock);
    let options = StoreOptions { snapshots: SnapshotPolicy::Off, ..StoreOptions::default() };
    let store = Store::open_on(std::sync::Arc::new(storage.clone()), clock, "home", options).unwrap();
    let session = store.create("/w", NewSession::new("none")).unwrap();
    work(&session, 0..300);
    let dir = session.place().dir.join("snapshots");
    session.close().unwrap();
    assert_eq!(storage.entry(&dir).unwrap(), None);
    assert_eq!(storage.list(&dir).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(ErrorKind::NotFound, store.resume(sessionlog::new_session_id()).unwrap_err().kind());
}
