//! Old logs: a directory of whole logs for each released version of the format, which every later version opens.
//!
//! `tests/formats/v1` was written by the first version. Nothing in it is ever changed: where this test fails, the code is
//! wrong. Each case is a home, and `expected.json`, which says what a reader and an owner make of it.
//! `SESSIONLOG_WRITE_GOLDEN=1 cargo test -p sessionlog --test formats` writes the cases that do not exist yet. A new
//! version of segments, frames or records gets a directory of its own, written by it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic"
)]

mod formats_support;
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use formats_support::{described, dir, golden, keep, load, resume, sessions};
use serde_json::{Value, json};
use sessionlog::codec::event::{CompactionTrigger, Effect, Event, MessageRange, NewEvent, Role, TurnOutcome};
use sessionlog::codec::ids::{KindNo, MessageNo, NodeId, Position, SessionId};
use sessionlog::codec::record::Envelope;
use sessionlog::codec::registry::{EVENTS, kind};
use sessionlog::log::{Batch, LogDir, NewRecord, Recovering, SegmentName};
use sessionlog::projections::rewind::RewindTo;
use sessionlog::storage::SimStorage;
use sessionlog::{
    CallResult, ChildResult, Compaction, Delegation, Durability, ErrorKind, ForkOptions, ForkPoint,
    LogOptions, Message, NewSession, Session, StoreOptions, ViewPolicy, Work,
};
use support::content;
use support::tree::{bound, open_with};

/// Writes a case that does not exist yet.
type Write = fn(&Path);

/// What version 2 brought.
#[cfg(feature = "compression")]
const CASES_2: &[(&str, Write)] = &[("compressed", compressed), ("compressed-damaged", compressed_damaged)];

const CASES: &[(&str, Write)] = &[
    ("every-kind", every_kind),
    ("torn", torn),
    ("fork", fork),
    ("redacted", redacted),
    ("damaged", damaged),
];

fn store(storage: &SimStorage) -> sessionlog::Store {
    open_with(storage, StoreOptions { views: ViewPolicy::Off, ..StoreOptions::default() })
}

fn create(storage: &SimStorage, id: u8) -> Session {
    let new = NewSession { id: Some(SessionId([id; 16])), ..NewSession::new("kept").model("model-1") };
    store(storage).create("/work/app", new).unwrap()
}

/// A conversation with calls, an agent, a compaction and a rewind.
fn talk(session: &Session) {
    session.prompt(Message::user("Why does the test fail?")).unwrap();
    let asked = Message::assistant("I look.").call("c1", "read", "{}").call("c2", "delegate", "{}");
    let asked = session.append(asked).unwrap();
    let read = session.start_call(asked.call(0), Effect::Pure).unwrap();
    read.finish(CallResult::succeeded("line ".repeat(200))).unwrap();
    let call = session.work().unwrap().into_iter().find_map(|work| match work {
        Work::Call(call) => Some(call),
        _ => None,
    });
    drop(call.unwrap().delegate(Delegation::inner("worker", "Look around.")).unwrap());
    let Some(Work::Begin(child)) = session.work().unwrap().into_iter().next() else { panic!() };
    child.begin(bound(), vec![Message::system("Be brief.")]).unwrap();
    session.append_to(NodeId(1), Message::assistant("Nothing here.")).unwrap();
    let settle = session.work().unwrap().into_iter().find_map(|work| match work {
        Work::Settle(end) => Some(end),
        _ => None,
    });
    settle.unwrap().settle(ChildResult::completed("Nothing there.")).unwrap();
    session.append(Message::assistant("It is the parser.")).unwrap();
    session.end_turn(TurnOutcome::Completed).unwrap();
}

fn compaction(kept: u64) -> Compaction {
    Compaction {
        compaction_id: "c1".into(),
        summary: "We looked for a failing test.".into(),
        summary_role: Role::User,
        kept: vec![MessageRange { first: MessageNo(kept), last: MessageNo(kept) }],
        replaced: vec![MessageRange { first: MessageNo(1), last: MessageNo(kept - 1) }],
        tokens: (Some(900), Some(80)),
        trigger: CompactionTrigger::Manual,
        model: None,
        usage: None,
    }
}

fn log_dir(storage: &SimStorage, session: &Session) -> LogDir {
    let dir = &session.place().dir;
    LogDir {
        storage: std::sync::Arc::new(storage.clone()),
        segments: dir.join("log"),
        quarantine: dir.join("quarantine"),
    }
}

/// Every event of the registry in one log, across segments, closed in order: the fork of a session, so that it has been
/// forked too. Events that no law lets in by themselves are written below the laws.
fn every_kind(case: &Path) {
    let storage = SimStorage::new();
    let session = create(&storage, 0xa1);
    talk(&session);
    session.compact(compaction(3)).unwrap();
    session.append(Message::user("And now?")).unwrap();
    let back = session.plan_rewind(NodeId::ROOT, RewindTo::AfterMessage(MessageNo(3))).unwrap();
    session.rewind(&back).unwrap();
    let fork_id = SessionId([0xa2; 16]);
    let fork = session.fork(ForkPoint::Head, ForkOptions { id: Some(fork_id), ..ForkOptions::default() });
    let fork = fork.unwrap();
    session.close().unwrap();
    let mut there = BTreeSet::from([kind::SessionClosed, kind::SessionFinished]);
    let seen = |session: &Session| -> BTreeSet<KindNo> {
        let mut kinds = BTreeSet::new();
        session.reader().log().index(&mut |_, entry, _| kinds.extend([entry.kind])).unwrap();
        kinds
    };
    there.extend(seen(&fork));
    let mut unlawful = Vec::new();
    for &(number, name, schema) in EVENTS.iter().filter(|(number, ..)| !there.contains(number)) {
        let mut event = golden(number, name);
        // What these name would be erased by the next owner.
        match &mut event {
            Event::Redacted(redacted) => redacted.positions.clear(),
            Event::NodeDeleted(deleted) => (deleted.child, deleted.descendants) = (NodeId(99), Vec::new()),
            _ => {}
        }
        if let Err(error) =
            fork.append_batch(vec![NewEvent::now(NodeId::ROOT, event.clone())], Durability::Sync)
        {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            unlawful.push((number, schema, event.encode().unwrap()));
        }
    }
    let dir = log_dir(&storage, &fork);
    fork.finish(sessionlog::codec::event::FinalStatus::Completed).unwrap();
    let options = LogOptions { segment_len: 2048, fill_len: 512 };
    let (writer, _) = Recovering::open(dir, options, Position::START).unwrap().finish().unwrap();
    for (number, schema, payload) in unlawful {
        println!("below the laws: {number}");
        let time = sessionlog::codec::ids::Timestamp(1_764_500_000_000_000);
        let envelope = Envelope::new(NodeId::ROOT, number, schema, time);
        writer.append(Batch::new(vec![NewRecord { envelope, payload }]).unwrap(), Durability::Sync).unwrap();
    }
    writer.close().unwrap();
    let (fork, _) = store(&storage).resume(fork_id).unwrap();
    let every: BTreeSet<KindNo> = EVENTS.iter().map(|(number, ..)| *number).collect();
    assert_eq!(seen(&fork), every, "a kind is missing");
    fork.close().unwrap();
    keep(case, &storage, &[&fork_id.to_string()]);
}

/// Power went while a frame was written.
fn torn(case: &Path) {
    let storage = SimStorage::new();
    let session = create(&storage, 0xb1);
    talk(&session);
    let asked = session.append(Message::assistant("Once more.").call("c9", "run", "{}")).unwrap();
    drop(session.start_call(asked.call(0), Effect::Mutating).unwrap());
    let (_, len) = last_segment(&storage, &session);
    session.append(Message::user("cut off ".repeat(20))).unwrap();
    // What was appended last is there by half, and zeros behind it, up to where the file had grown.
    let lost = storage.power_cut(sessionlog::storage::CrashMode::KeepAll);
    let (path, end) = last_segment(&storage, &session);
    let file_len = storage.read_file(&path).unwrap().len();
    assert!(len < end, "a new segment was begun");
    lost.corrupt(&path, |bytes| bytes[len + (end - len) / 2..file_len].fill(0)).unwrap();
    keep(case, &lost, &[&session.id().to_string()]);
}

/// The last segment of a session and where its last frame ends.
fn last_segment(storage: &SimStorage, session: &Session) -> (std::path::PathBuf, usize) {
    let log = session.place().dir.join("log");
    let path = storage.files().into_iter().rfind(|path| path.starts_with(&log)).unwrap();
    let bytes = storage.read_file(&path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    (path, end)
}

/// A session, a fork of it in the middle, and a fork of that one at its head.
fn fork(case: &Path) {
    let storage = SimStorage::new();
    let session = create(&storage, 0xc1);
    talk(&session);
    let middle = session.last();
    session.append(Message::user("On this side.".repeat(100))).unwrap();
    let options = |id: u8| ForkOptions { id: Some(SessionId([id; 16])), ..ForkOptions::default() };
    let fork = session.fork(ForkPoint::At(middle), options(0xc2)).unwrap();
    fork.append(Message::user("On the other side.")).unwrap();
    let second = fork.fork(ForkPoint::Head, options(0xc3)).unwrap();
    second.append(Message::user("On a third one.")).unwrap();
    let ids = [session.id(), fork.id(), second.id()].map(|id| id.to_string());
    for session in [session, fork, second] {
        session.close().unwrap();
    }
    keep(case, &storage, &ids.each_ref().map(String::as_str));
}

/// A message was redacted, and a child deleted.
fn redacted(case: &Path) {
    let storage = SimStorage::new();
    let session = create(&storage, 0xd1);
    let secret = session.append(Message::user("My password is hunter2.")).unwrap();
    talk(&session);
    session.redact(&BTreeSet::from([secret.receipt.first]), "asked for").unwrap();
    session.delete_child(NodeId(1), "a person").unwrap();
    session.append(Message::user("Go on.")).unwrap();
    let id = session.id().to_string();
    session.close().unwrap();
    let holds = |path: &std::path::PathBuf| {
        storage.read_file(path).unwrap().windows(7).any(|window| window == b"hunter2")
    };
    assert!(!storage.files().iter().any(holds), "it is still there");
    keep(case, &storage, &[&id]);
}

/// A byte of an early message rotted.
fn damaged(case: &Path) {
    let storage = SimStorage::new();
    let session = create(&storage, 0xe1);
    talk(&session);
    let (dir, id) = (log_dir(&storage, &session), session.id().to_string());
    session.close().unwrap();
    storage
        .corrupt(dir.segment_path(SegmentName(Position(1))), |bytes| {
            let text = b"I look.";
            let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
            bytes[at] ^= 0x20;
        })
        .unwrap();
    keep(case, &storage, &[&id]);
}

/// A closed session, its sealed segments compressed in small blocks.
#[cfg(feature = "compression")]
fn compressed_session(id: u8) -> (SimStorage, String, LogDir) {
    use sessionlog::{Compression, Packing};
    let storage = SimStorage::new();
    let packing = Packing { block_len: 512, least_saved: 0, least_percent: 0 };
    let compression = Compression::With(packing);
    let options = StoreOptions { views: ViewPolicy::Off, compression, ..StoreOptions::default() };
    let new = NewSession { id: Some(SessionId([id; 16])), ..NewSession::new("kept").model("model-1") };
    let session = open_with(&storage, options).create("/work/app", new).unwrap();
    talk(&session);
    session.append(Message::user("And a long one. ".repeat(200))).unwrap();
    session.append(Message::user("And a short one.")).unwrap();
    let (dir, id) = (log_dir(&storage, &session), session.id().to_string());
    session.close().unwrap();
    (storage, id, dir)
}

#[cfg(feature = "compression")]
fn compressed(case: &Path) {
    let (storage, id, _) = compressed_session(0xf1);
    keep(case, &storage, &[&id]);
}

/// A byte of a block rotted.
#[cfg(feature = "compression")]
fn compressed_damaged(case: &Path) {
    use sessionlog::codec::packed::PackedHead;
    let (storage, id, dir) = compressed_session(0xf2);
    storage
        .corrupt(dir.segment_path(SegmentName(Position(1))), |bytes| {
            let block = PackedHead::decode(bytes).unwrap().blocks[1].clone();
            bytes[usize::try_from(block.stored_offset).unwrap() + 10] ^= 0x20;
        })
        .unwrap();
    keep(case, &storage, &[&id]);
}

/// What this version makes of a case: of each session as a reader, and as its owner on a copy.
fn outcome(case: &Path) -> Value {
    let storage = load(case);
    let before = content(&storage);
    let mut told = serde_json::Map::new();
    for reader in sessions(&storage) {
        let as_read = described(&reader);
        assert_eq!(content(&storage), before, "a reader changed something");
        let copy = load(case);
        let of_copy = sessions(&copy).into_iter().find(|it| it.place() == reader.place()).unwrap();
        let as_owner = resume(&copy, &of_copy);
        if as_owner.get("error").is_some() {
            let logs = |storage: &SimStorage| {
                let mut files = content(storage);
                files.retain(|path, _| !path.ends_with("owner.lock"));
                files
            };
            assert_eq!(logs(&copy), before, "a refusal changed something");
        }
        told.insert(reader.place().id.to_string(), json!({ "read": as_read, "resumed": as_owner }));
    }
    Value::Object(told)
}

#[test]
fn logs_of_version_1_open_as_they_always_did() {
    open_as_ever("v1", CASES);
}

#[cfg(feature = "compression")]
#[test]
fn logs_of_version_2_open_as_they_always_did() {
    open_as_ever("v2", CASES_2);
    let storage = load(&dir("v2").join("compressed"));
    let is_packed =
        |path: &&std::path::PathBuf| sessionlog::codec::packed::is_packed(&storage.read_file(path).unwrap());
    assert!(storage.files().iter().filter(is_packed).count() > 1);
}

fn open_as_ever(version: &str, cases: &[(&str, Write)]) {
    let root = dir(version);
    for (name, write) in cases {
        let case = root.join(name);
        let expected = case.join("expected.json");
        if !case.exists() && std::env::var_os("SESSIONLOG_WRITE_GOLDEN").is_some() {
            write(&case);
            let text = serde_json::to_string_pretty(&outcome(&case)).unwrap();
            fs::write(&expected, text + "\n").unwrap();
        }
        let text = fs::read_to_string(&expected)
            .unwrap_or_else(|error| panic!("{}: {error}; see the top of this file", expected.display()));
        let expected: Value = serde_json::from_str(&text).unwrap();
        let found = outcome(&case);
        for (id, found) in found.as_object().unwrap() {
            assert_eq!(expected[id]["resumed"], found["resumed"], "{name} {id}");
            for (what, found) in found["read"].as_object().unwrap() {
                assert_eq!(&expected[id]["read"][what], found, "{name} {id} {what}");
            }
        }
        assert_eq!(expected, found, "{name}");
    }
    let kept = fs::read_dir(&root).unwrap().count();
    assert_eq!(kept, cases.len(), "every directory is a case");
}

#[test]
fn every_event_of_the_registry_is_in_a_kept_log() {
    let storage = load(&dir("v1").join("every-kind"));
    let mut kinds = BTreeSet::new();
    for reader in sessions(&storage) {
        reader.log().index(&mut |_, entry, _| kinds.extend([entry.kind])).unwrap();
        assert!(reader.verify().unwrap().log.segments > 3, "across several segments");
    }
    // An event that came later is in the directory of the version that brought it.
    let first: BTreeSet<KindNo> =
        EVENTS.iter().filter(|(.., schema)| schema.0 == 1).map(|(number, ..)| *number).collect();
    assert_eq!(kinds, first);
}
