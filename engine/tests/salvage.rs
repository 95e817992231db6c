//! A hurt session is saved into a new home: every whole frame is in it, at its position and with its bytes; nothing is
//! invented; what comes out verifies, can be resumed and shows legal contexts; and the hurt one is not changed by a byte.
//!
//! `SESSIONLOG_SALVAGES=20000 SESSIONLOG_SEED=3 cargo test -p sessionlog --test salvage --release` for a long search.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic"
)]

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use sessionlog::codec::RawBytes;
use sessionlog::codec::event::{
    AgentKind, CallStarted, Effect, HostEvent, NewEvent, NodeOpened, TurnCause, TurnOutcome, TurnStarted,
};
use sessionlog::codec::footer::LOCATOR_LEN;
use sessionlog::codec::frame::{Frame, FrameFields, KIND_FOOTER, encode};
use sessionlog::codec::ids::{
    Digest, Epoch, FormatVersion, InvocationId, KindNo, MessageNo, NodeId, Position, SessionId, TurnNo,
};
use sessionlog::codec::record::{Envelope, Payload};
use sessionlog::codec::registry::kind;
use sessionlog::codec::segment::SegmentHeader;
use sessionlog::log::{ReadItem, Severity};
use sessionlog::projections::rewind::RewindTo;
use sessionlog::projections::{TreeState, validate_pairing};
use sessionlog::session::{FirstRecord, Salvage};
use sessionlog::storage::{CrashMode, Fault, FaultError, Repeat, SimStorage, Storage};
use sessionlog::{
    CallResult, Durability, Error, ErrorKind, ForkOptions, ForkPoint, Message, NewSession, Session, Store,
    StoreOptions, StoreReader,
};
use support::Rng;
use support::tree::open;

const SEGMENT_HEADER: usize = 128;

// --- Sessions to be hurt.

struct Recorded {
    storage: SimStorage,
    id: SessionId,
    is_fork: bool,
}

fn say(session: &Session, rng: &mut Rng) {
    let odd = ["plain", "", "\u{2028}\0", "\"}]", "漢字 🎉"];
    let text = format!("{} {}", odd[rng.index(odd.len())], "word ".repeat(1 + rng.index(30)));
    session.append(Message::user(text)).unwrap();
}

fn ask(session: &Session, rng: &mut Rng) {
    let calls = rng.index(3);
    let mut message = Message::assistant("I will look.");
    for nth in 0..calls {
        message = message.call(format!("call_{}_{nth}", rng.next()), "read", r#"{"path":"a"}"#);
    }
    let asked = session.append(message).unwrap();
    for nth in 0..calls {
        if rng.below(5) == 0 {
            continue;
        }
        let running = session.start_call(asked.call(u32::try_from(nth).unwrap()), Effect::Mutating).unwrap();
        if rng.below(6) > 0 {
            running.finish(CallResult::succeeded("x".repeat(rng.index(200)))).unwrap();
        } else {
            std::mem::forget(running);
        }
    }
}

fn delegate(session: &Session, rng: &mut Rng) {
    let asked = session
        .append(Message::assistant("Over to you.").call(format!("d{}", rng.next()), "delegate", "{}"))
        .unwrap();
    let child = session.ledger(sessionlog::projections::Ledger::next_node).unwrap();
    let opened = NodeOpened {
        child,
        invocation_id: InvocationId([u8::try_from(child.0).unwrap(); 16]),
        parent: NodeId::ROOT,
        call: Some(asked.call(0)),
        call_id: None,
        agent: "explorer".into(),
        kind: AgentKind::Inner,
        prompt: "Look around.".into(),
        description: None,
        working_directory: None,
        run_id: None,
        depth: 1,
        source_id: None,
    };
    session.append_batch(vec![NewEvent::now(NodeId::ROOT, opened)], Durability::Sync).unwrap();
    if rng.below(2) == 0 {
        let started = TurnStarted { turn: TurnNo(1), cause: TurnCause::User };
        session.append_batch(vec![NewEvent::now(child, started)], Durability::Sync).unwrap();
    }
    session.append_to(child, Message::user("Look around.")).unwrap();
    let answer = session.append_to(child, Message::assistant("Nothing.").call("c", "read", "{}")).unwrap();
    if rng.below(2) == 0 {
        let started = CallStarted {
            call: answer.call(0),
            call_id: "c".into(),
            name: "read".into(),
            effect: Effect::Mutating,
            attempt: 1,
            arguments_digest: Digest::of(b"{}"),
            step_id: None,
        };
        session.append_batch(vec![NewEvent::now(child, started)], Durability::Sync).unwrap();
    }
}

fn record(seed: u64) -> Recorded {
    let storage = SimStorage::new();
    let mut rng = Rng(seed);
    let store = open(&storage);
    let mut session = store.create("/w", NewSession::new("hurt me")).unwrap();
    let mut id = session.id();
    let mut is_fork = false;
    for _ in 0..15 + rng.index(25) {
        match rng.below(14) {
            0..=3 => say(&session, &mut rng),
            4..=7 => ask(&session, &mut rng),
            8 => delegate(&session, &mut rng),
            9 => drop(session.start_turn()),
            10 => drop(session.end_turn(TurnOutcome::Completed)),
            11 => {
                if let Ok(plan) =
                    session.plan_rewind(NodeId::ROOT, RewindTo::AfterMessage(MessageNo(1 + rng.below(5))))
                {
                    session.rewind(&plan).unwrap();
                }
            }
            12 => {
                session.close().unwrap();
                session = store.resume(id).unwrap().0;
            }
            _ if rng.below(4) == 0 => {
                let fork = session.fork(ForkPoint::Head, ForkOptions::default()).unwrap();
                id = fork.id();
                is_fork = true;
                session = fork;
            }
            _ => say(&session, &mut rng),
        }
    }
    if rng.below(2) == 0 {
        session.close().unwrap();
        return Recorded { storage, id, is_fork };
    }
    std::mem::forget(session);
    Recorded { storage: storage.power_cut(CrashMode::KeepAll), id, is_fork }
}

// --- What the files hold, found without the engine.

type Stored = (Envelope, Vec<u8>);

struct OracleFrame {
    file: PathBuf,
    bytes: Vec<u8>,
    records: Vec<(Position, Stored)>,
}

fn log_dir(reader: &StoreReader, id: SessionId) -> PathBuf {
    reader.session(id).unwrap().place().dir.join("log")
}

fn segments(storage: &SimStorage, dir: &std::path::Path) -> Vec<PathBuf> {
    storage.list(dir).unwrap().iter().map(|entry| dir.join(&entry.name)).collect()
}

fn oracle(storage: &SimStorage, files: &[PathBuf]) -> Vec<OracleFrame> {
    let mut frames = Vec::new();
    for file in files {
        let bytes = storage.read_file(file).unwrap();
        let salt = SegmentHeader::decode(&bytes).unwrap().salt;
        let mut at = SEGMENT_HEADER;
        while let Ok(frame) = Frame::decode(&bytes[at.min(bytes.len())..], salt) {
            let len = 80 + frame.header().body_len;
            if frame.header().fields.kind != KIND_FOOTER {
                let records = frame.records().iter().map(|record| {
                    let Payload::Present(payload) = record.payload else { panic!("redacted") };
                    (record.position, (record.envelope.clone(), payload.to_vec()))
                });
                let (file, bytes) = (file.clone(), bytes[at..at + len].to_vec());
                frames.push(OracleFrame { file, bytes, records: records.collect() });
                at += len.next_multiple_of(8);
            } else {
                at += len.next_multiple_of(8) + LOCATOR_LEN;
            }
        }
    }
    frames
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

// --- Damage.

fn damage(storage: &SimStorage, files: &[PathBuf], rng: &mut Rng) -> String {
    let file = &files[rng.index(files.len())];
    let change = |storage: &SimStorage, change: &mut dyn FnMut(&mut Vec<u8>)| {
        if storage.read_file(file).is_some() {
            storage.corrupt(file, |bytes| change(bytes)).unwrap();
        }
    };
    let name = file.file_name().unwrap().to_string_lossy().into_owned();
    let len = storage.read_file(file).map_or(0, |bytes| bytes.len());
    if len < 200 {
        return String::new();
    }
    let at = rng.index(len);
    let run = 1 + rng.index(300);
    match rng.below(9) {
        0 | 1 => {
            change(storage, &mut |bytes| bytes[at] ^= 0x10);
            format!("flip {name} {at}")
        }
        2 => {
            change(storage, &mut |bytes| bytes[at..(at + run).min(len)].fill(0));
            format!("zero {name} {at}+{run}")
        }
        3 => {
            change(storage, &mut |bytes| bytes.truncate(at));
            format!("cut {name} {at}")
        }
        4 => {
            storage.remove_file(file).unwrap();
            format!("delete {name}")
        }
        5 => {
            let (a, b) = (rng.index(len / 64) * 64, rng.index(len / 64) * 64);
            change(storage, &mut |bytes| {
                for nth in 0..64 {
                    bytes.swap(a + nth, b + nth);
                }
            });
            format!("swap {name} {a} {b}")
        }
        6 => {
            let garbage: Vec<u8> = (0..run).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
            change(storage, &mut |bytes| drop(bytes.splice(at..at, garbage.clone())));
            format!("insert {name} {at}+{run}")
        }
        7 => {
            change(storage, &mut |bytes| drop(bytes.drain(at..(at + run).min(len))));
            format!("take out {name} {at}+{run}")
        }
        _ => {
            change(storage, &mut |bytes| bytes[..SEGMENT_HEADER].fill(0xee));
            format!("header {name}")
        }
    }
}

fn content(storage: &SimStorage) -> BTreeMap<PathBuf, Vec<u8>> {
    storage.files().into_iter().map(|path| (path.clone(), storage.read_file(path).unwrap())).collect()
}

// --- The law.

fn read_all(store: &StoreReader, id: SessionId) -> BTreeMap<Position, Stored> {
    let mut records = BTreeMap::new();
    let reader = store.session(id).unwrap();
    reader
        .log()
        .read(Position(1), &mut |item| {
            let ReadItem::Record(record) = item else { panic!("{item:?}") };
            let Payload::Present(payload) = record.payload else { panic!("redacted") };
            records.insert(record.position, (record.envelope, payload.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    records
}

fn contexts_are_legal(store: &StoreReader, id: SessionId) {
    let tree: TreeState = store.session(id).unwrap().tree(Position(u64::MAX)).unwrap();
    for node in tree.nodes().collect::<Vec<_>>() {
        validate_pairing(&tree.context(node)).unwrap();
    }
}

fn saved(storage: &SimStorage) -> Store {
    support::tree::try_open_at(storage, "saved", StoreOptions::default()).unwrap()
}

fn salvage(storage: &SimStorage, id: SessionId) -> Result<Salvage, Error> {
    let salvage = open(storage).reader().session(id)?.plan_salvage(&mut |_| {})?;
    salvage.carry_out("saved".as_ref(), &mut |_| {})?;
    Ok(salvage)
}

/// One session and its damage, against the law. What was done is told if it breaks.
fn judge(recorded: &Recorded, seed: u64) {
    let storage = recorded.storage.power_cut(CrashMode::KeepAll);
    let id = recorded.id;
    let dir = log_dir(&open(&storage).reader(), id);
    let files = segments(&storage, &dir);
    let frames = oracle(&storage, &files);
    let mut rng = Rng(seed);
    let done: Vec<String> = (0..1 + rng.below(4)).map(|_| damage(&storage, &files, &mut rng)).collect();
    let what = format!("seed {seed}: {}", done.join(", "));
    let before = content(&storage);
    let after = |file: &PathBuf| storage.read_file(file).unwrap_or_default();
    let whole: Vec<&OracleFrame> =
        frames.iter().filter(|frame| contains(&after(&frame.file), &frame.bytes)).collect();

    let salvage = match salvage(&storage, id) {
        Ok(salvage) => salvage,
        Err(error) => {
            assert!(error.kind() == ErrorKind::NotFound && whole.is_empty(), "{what}: {error:?}");
            return;
        }
    };
    let report = salvage.report();
    // Of a fork, the segment that names its origin may be gone: nothing tells then that the others are its own.
    let stranger = |frame: &OracleFrame| {
        let name = frame.file.file_name().unwrap().to_string_lossy();
        let why = report.left_out.iter().find(|left| left.file == name).map(|left| left.why.as_str());
        recorded.is_fork && why.is_some_and(|why| why.starts_with("a segment of another log"))
    };
    let whole: Vec<&OracleFrame> = whole.into_iter().filter(|frame| !stranger(frame)).collect();
    for (path, bytes) in &before {
        assert_eq!(storage.read_file(path).as_ref(), Some(bytes), "{what}: {} changed", path.display());
    }
    let store = saved(&storage);
    let found = read_all(&store.reader(), id);
    for (position, record) in whole.iter().flat_map(|frame| &frame.records) {
        assert_eq!(found.get(position), Some(record), "{what}: position {position}\n{report:#?}");
    }
    let original: BTreeMap<Position, &Stored> = frames
        .iter()
        .flat_map(|frame| &frame.records)
        .map(|(position, record)| (*position, record))
        .collect();
    let made: Vec<KindNo> = found
        .iter()
        .filter(|(position, record)| original.get(position) != Some(record))
        .map(|(_, (envelope, _))| envelope.kind)
        .collect();
    let first = usize::from(report.first_record == FirstRecord::Made);
    assert_eq!(made.iter().filter(|made| **made == kind::SessionCreated).count(), first, "{what}");
    assert_eq!(made.iter().filter(|made| **made == kind::GapMarked).count(), made.len() - first, "{what}");
    assert_eq!(u64::try_from(made.len()).unwrap(), report.missing_records(), "{what}\n{report:#?}");
    assert!(found.keys().map(|position| position.0).eq(1..=u64::try_from(found.len()).unwrap()), "{what}");

    let verified = store.reader().session(id).unwrap().verify().unwrap();
    assert!(verified.worst() <= Some(Severity::Warning), "{what}: {:#?}", verified.findings);
    assert!(verified.log.findings.is_empty(), "{what}: {:#?}", verified.log.findings);
    contexts_are_legal(&store.reader(), id);
    if report.other_identity.is_some() {
        assert_eq!(store.resume(id).unwrap_err().code(), "session.identity", "{what}");
        return;
    }
    let (session, _) = store.resume(id).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    session.append(Message::user("and on it goes")).unwrap();
    session.work().unwrap_or_else(|error| panic!("{what}: {error:?}"));
    validate_pairing(&session.context().unwrap()).unwrap();
    session.close().unwrap();
    contexts_are_legal(&store.reader(), id);
    let verified = store.reader().session(id).unwrap().verify().unwrap();
    assert!(verified.worst() <= Some(Severity::Warning), "{what}: {:#?}", verified.findings);
}

#[test]
fn whatever_is_whole_is_saved_and_nothing_is_invented() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (count, seed) = (number("SESSIONLOG_SALVAGES", 300), number("SESSIONLOG_SEED", 0));
    let mut recorded = record(seed);
    for nth in 0..count {
        if nth % 10 == 9 {
            recorded = record(seed.wrapping_add(nth));
        }
        judge(&recorded, seed.wrapping_add(nth).wrapping_mul(0x9e37_79b9));
    }
}

// --- Crashes, and what is refused.

fn hurt_session() -> (SimStorage, SessionId) {
    let recorded = record(11);
    let (storage, id) = (recorded.storage, recorded.id);
    let files = segments(&storage, &log_dir(&open(&storage).reader(), id));
    storage.corrupt(&files[1], |bytes| bytes[300] ^= 1).unwrap();
    (storage, id)
}

/// Wherever it fails or power is lost, the hurt session is as it was, and there is no log in the new home that is not whole.
/// Once it has returned, the new home survives a loss of power.
#[test]
fn a_salvage_that_is_cut_short_is_no_log() {
    let (hurt, id) = hurt_session();
    let whole = {
        let storage = hurt.power_cut(CrashMode::KeepAll);
        salvage(&storage, id).unwrap();
        read_all(&saved(&storage.power_cut(CrashMode::LoseAll)).reader(), id)
    };
    let mut failed = 0;
    for nth in 0..400 {
        let storage = hurt.power_cut(CrashMode::KeepAll);
        let before = content(&storage);
        let plan = open(&storage).reader().session(id).unwrap().plan_salvage(&mut |_| {}).unwrap();
        storage.fail(Fault::any(FaultError::EIO).after(nth).repeat(Repeat::Always));
        let done = plan.carry_out("saved".as_ref(), &mut |_| {});
        storage.clear_faults();
        if done.is_ok() {
            break;
        }
        failed += 1;
        for mode in [CrashMode::KeepAll, CrashMode::LoseAll, CrashMode::Seeded(nth)] {
            let storage = storage.power_cut(mode);
            let files = content(&storage);
            // Views are not synced by whoever makes them.
            let mut log = before.iter().filter(|(path, _)| path.iter().any(|part| part == "log"));
            assert!(log.all(|(path, bytes)| files.get(path) == Some(bytes)), "call {nth} {mode:?}");
            let in_place =
                |path: &&PathBuf| path.starts_with("saved") && path.iter().any(|part| part == "log");
            if files.keys().any(|path| in_place(&path)) {
                assert_eq!(read_all(&saved(&storage).reader(), id), whole, "call {nth} {mode:?}");
            }
        }
        // It is not gone on with: another directory is asked for.
        if !storage.list("saved".as_ref()).unwrap_or_default().is_empty() {
            let again = plan.carry_out("saved".as_ref(), &mut |_| {}).unwrap_err();
            assert_eq!(again.code(), "salvage.not_empty");
        }
        plan.carry_out("elsewhere".as_ref(), &mut |_| {}).unwrap();
    }
    assert!(failed > 20, "{failed}");
}

/// A session that somebody owns is not saved under its owner's hands.
#[test]
fn an_owned_session_is_refused() {
    let storage = SimStorage::new();
    let session = open(&storage).create("/w", NewSession::new("live")).unwrap();
    let error = session.reader().plan_salvage(&mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
}

/// What a newer version wrote is saved by that version: a copy without it would be a loss.
#[test]
fn a_newer_segment_is_left_to_the_newer_version() {
    let (storage, id) = hurt_session();
    let files = segments(&storage, &log_dir(&open(&storage).reader(), id));
    storage
        .corrupt(&files[2], |bytes| {
            let header = SegmentHeader::decode(bytes).unwrap();
            let newer = SegmentHeader { reader: FormatVersion(9), ..header };
            bytes[..SEGMENT_HEADER].copy_from_slice(&newer.encode());
        })
        .unwrap();
    let before = content(&storage);
    assert_eq!(salvage(&storage, id).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(content(&storage), before);
}

/// A fork keeps its inherited records, whichever log's segments they are in, and is still the fork.
#[test]
fn a_fork_is_saved_with_what_it_inherited() {
    let storage = SimStorage::new();
    let store = open(&storage);
    let parent = store.create("/w", NewSession::new("parent")).unwrap();
    for nth in 0..60 {
        parent.append(Message::user(format!("inherited {nth} {}", "x".repeat(60)))).unwrap();
    }
    let fork = parent.fork(ForkPoint::Head, ForkOptions::default()).unwrap();
    fork.append(Message::user("own")).unwrap();
    let id = fork.id();
    fork.close().unwrap();
    parent.close().unwrap();
    let files = segments(&storage, &log_dir(&store.reader(), id));
    storage.corrupt(&files[1], |bytes| bytes[400] ^= 1).unwrap();
    let salvage = salvage(&storage, id).unwrap();
    assert_eq!(salvage.report().other_identity, None);
    assert_eq!(salvage.report().missing_records(), 1);
    let (session, _) = saved(&storage).resume(id).unwrap();
    let summary = session.summary().unwrap();
    assert!(summary.forked.is_some());
    assert_eq!(summary.session_id, Some(id));
}

/// A frame of a log that is quoted in a message of the same log is content, also where the frame around it is hurt.
#[test]
fn a_quoted_frame_is_content() {
    let storage = SimStorage::new();
    let store = open(&storage);
    let session = store.create("/w", NewSession::new("quote")).unwrap();
    let id = session.id();
    session.append(Message::user("before")).unwrap();
    let files = segments(&storage, &log_dir(&store.reader(), id));
    let frames = oracle(&storage, &files);
    // What a tool printed that read the segment, and a forged frame for a position to come.
    let bytes = storage.read_file(&files[0]).unwrap();
    let salt = SegmentHeader::decode(&bytes).unwrap().salt;
    let mut quoted = frames.last().unwrap().bytes.clone();
    quoted.resize(quoted.len() + 1000, b' ');
    let forged = {
        let mut out = Vec::new();
        let (envelope, payload) = frames.last().unwrap().records[0].1.clone();
        let last = frames.last().unwrap().records[0].0;
        let fields = FrameFields::records(Position(last.0 + 1), Epoch(1), last);
        encode(&mut out, salt, &Digest([7; 32]), fields, &[(envelope, payload)]).unwrap();
        out
    };
    quoted.extend_from_slice(&forged);
    let event = HostEvent { namespace: "t".into(), name: "t".into(), data: RawBytes(quoted), source: None };
    session.append_batch(vec![NewEvent::now(NodeId::ROOT, event)], Durability::Sync).unwrap();
    session.append(Message::user("after")).unwrap();
    session.close().unwrap();
    let hurt = oracle(&storage, &files).into_iter().find(|frame| frame.bytes.len() > 1000).unwrap();
    assert_eq!(hurt.file, files[0]);
    let whole = storage.read_file(&hurt.file).unwrap();
    let at = whole.windows(80).position(|window| window == &hurt.bytes[..80]).unwrap();
    storage.corrupt(&hurt.file, |bytes| bytes[at + 90] ^= 1).unwrap();
    let salvage = salvage(&storage, id).unwrap();
    assert_eq!(salvage.report().missing_records(), 1, "{:#?}", salvage.report());
    let found = read_all(&saved(&storage).reader(), id);
    assert_eq!(found[&hurt.records[0].0].0.kind, kind::GapMarked);
    assert_eq!(salvage.report().spans.len(), 1);
}
