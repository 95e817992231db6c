//! Rebuilds the seeds of the targets that read whole logs and sessions, from the golden files, the importers' fixtures and a
//! session made here: `cargo run --manifest-path fuzz/Cargo.toml --example seeds` from the repository's root.
//!
//! All of them are made up. A file whose name begins with `found-` is not from here: it is what a fuzzer found, reduced.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog::codec::event::{CompactionTrigger, Effect, MessageRange, Role, TitleOrigin, TurnOutcome};
use sessionlog::codec::ids::{MessageNo, NodeId, Position, Timestamp};
use sessionlog::log::ReadItem;
use sessionlog::projections::rewind::RewindTo;
use sessionlog::storage::SimStorage;
use sessionlog::{
    CallResult, Clock, Compaction, Delegation, Durability, Message, NewSession, Store, StoreOptions, Work,
};
use sessionlog_codec::ids::SessionId;
use sessionlog_codec::record::{Envelope, Payload};
use sessionlog_codec::registry::EVENTS;

#[allow(dead_code, reason = "the targets read what is spelled here")]
#[path = "../fuzz_targets/support/script.rs"]
mod script;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn seed(target: &str, name: &str, bytes: &[u8]) {
    let dir = root().join("fuzz/seeds").join(target);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(name), bytes).unwrap();
}

fn golden(name: &str) -> Vec<u8> {
    fs::read(root().join("codec/tests/golden/v1").join(name)).unwrap()
}

/// One record of every kind, by the golden files of one form.
fn every_kind(form: &str) -> Vec<u8> {
    let spell = |&(kind, name, schema): &(_, &str, _)| {
        let payload = golden(&format!("{kind}-{name}.{form}.bin"));
        script::spell(&Envelope::new(NodeId::ROOT, kind, schema, Timestamp(0)), &payload, false)
    };
    EVENTS.iter().flat_map(spell).collect()
}

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp(1_764_500_000_000_000)
    }
}

/// The records of a session with a bit of everything, frame by frame.
fn session() -> Vec<u8> {
    let storage = SimStorage::new();
    let options = StoreOptions { durability: Durability::Sync, ..StoreOptions::default() };
    let store = Store::open_on(Arc::new(storage), Arc::new(Still), "home", options).unwrap();
    let id = SessionId(*b"\x0f\x1e\x2d\x3c\0\0\x70\0\x80\0\0\0\0\0\0\xf0");
    let new = NewSession { id: Some(id), ..NewSession::new("a seed").model("model-1") };
    let session = store.create("/w", new).unwrap();
    session.set_title("Seed", TitleOrigin::Person).unwrap();
    session.prompt(Message::user("Why does it fail?")).unwrap();
    let asked = Message::assistant("I look.").call("a", "read", "{}").call("b", "delegate", "{}");
    let asked = session.append(asked).unwrap();
    session.start_call(asked.call(0), Effect::Pure).unwrap().finish(CallResult::succeeded("text")).unwrap();
    let call = session.work().unwrap().into_iter().find_map(|work| match work {
        Work::Call(call) => Some(call),
        _ => None,
    });
    drop(call.unwrap().delegate(Delegation::inner("worker", "do it")).unwrap());
    session.append_to(NodeId(1), Message::user("do it")).unwrap();
    session.append_to(NodeId(1), Message::assistant("done")).unwrap();
    session.end_turn(TurnOutcome::Interrupted).unwrap();
    let one = MessageRange { first: MessageNo(2), last: MessageNo(2) };
    let compaction = Compaction {
        compaction_id: "c".into(),
        summary: "We looked.".into(),
        summary_role: Role::User,
        kept: vec![one],
        replaced: Vec::new(),
        tokens: (None, None),
        trigger: CompactionTrigger::Manual,
        model: None,
        usage: None,
    };
    session.compact(compaction).unwrap();
    session.append(Message::user("And now?")).unwrap();
    let back = session.plan_rewind(NodeId::ROOT, RewindTo::AfterMessage(MessageNo(1))).unwrap();
    session.rewind(&back).unwrap();
    let mut script = Vec::new();
    let spelled = session.reader().log().read(Position(1), &mut |item| {
        if let ReadItem::Record(record) = item
            && let Payload::Present(payload) = record.payload
        {
            script.extend(script::spell(&record.envelope, payload, false));
        }
        ControlFlow::Continue(())
    });
    spelled.unwrap();
    script
}

/// A few records of all lengths, some of which share a frame.
fn records() -> Vec<u8> {
    let spell = |(nth, (len, joins)): (u16, &(usize, bool))| {
        let kind = if nth == 3 { 9_999 } else { 20 + nth };
        let envelope = Envelope::new(
            NodeId(u32::from(nth % 3)),
            sessionlog_codec::ids::KindNo(kind),
            sessionlog_codec::ids::SchemaVersion(1),
            Timestamp(0),
        );
        script::spell(&envelope, &vec![b'x'; *len], *joins)
    };
    let lens =
        [(5, false), (40, true), (0, false), (300, false), (17, true), (9, true), (100, false), (64, false)];
    (0..).zip(&lens).flat_map(spell).collect()
}

/// Changes of a real snapshot, which the target makes itself: none, one byte near each end, and an end too early.
fn derived() {
    for (name, changes) in [
        ("real", vec![]),
        ("mark", vec![0, 3, 1, 9]),
        ("folds", vec![0, 200, 1, 255]),
        ("short", vec![0, 90, 0]),
    ] {
        seed("snapshot", name, &[&[2], changes.as_slice()].concat());
    }
    seed("catalog_row", "zeros", &[&[1], [0; 200].as_slice()].concat());
    seed("catalog_row", "raw", &[0, 1, 0, 0, 0, 0, 0]);
}

fn logs() {
    let file = golden("00000000000000000001.seg");
    let whole = |prefix: u8, bytes: &[u8]| [&[prefix], bytes].concat();
    let records = records();
    for target in ["segment", "logdump"] {
        seed(target, "raw-golden", &whole(0, &file));
        seed(target, "raw-torn", &whole(0, &file[..900]));
    }
    seed("segment", "sound", &[&[1, 0], records.as_slice()].concat());
    for change in 0..7_u8 {
        let forged = [1, 1, 1, 1, 0, change, 1, 0, 0x83, 0, 0];
        seed("segment", &format!("forged-{change}"), &[&forged, records.as_slice()].concat());
        let damaged = [1, 1, 0, 200, 0, change % 5, 9, 0, 0, 0, 0];
        seed("segment", &format!("damaged-{change}"), &[&damaged, records.as_slice()].concat());
    }
    let compressed = fs::read(root().join("codec/tests/golden/v2/00000000000000000001.seg")).unwrap();
    for target in ["packed", "segment", "logdump"] {
        seed(target, "raw-compressed", &whole(0, &compressed));
    }
    for (name, changes) in [("sound", 0_u8), ("changed", 1), ("changed-twice", 2)] {
        let forged = vec![1; usize::from(changes)];
        let places = [200, 0, 2, 1, 7, 0, 0, 0].repeat(usize::from(changes));
        let head = [&[1, 20, changes], forged.as_slice(), &[1], places.as_slice()].concat();
        seed("packed", name, &[head.as_slice(), &records.repeat(4)].concat());
    }
    seed("logdump", "every-kind-typical", &whole(1, &every_kind("typical")));
    seed("logdump", "every-kind-min", &whole(1, &every_kind("min")));
    seed("logdump", "session", &whole(1, &session()));
    for power in 0..4_u8 {
        let twice = records.repeat(2);
        seed("recovery", &format!("power-{power}"), &[&[0xaa, 0, power], twice.as_slice()].concat());
        let change = [power, 1, 120, 0, power, 3, 3, 3].repeat(5);
        seed("recovery", &format!("damage-{power}"), &[&[0x10, 1, 0], change.as_slice(), &twice].concat());
    }
}

/// The files of one session, divided as the importers' targets divide them; a name of nothing is no file.
fn fixture(target: &str, name: &str, files: &[&str]) {
    let read = |file: &&str| match *file {
        "" => Vec::new(),
        file => fs::read(root().join("tools/tests/fixtures").join(file)).unwrap(),
    };
    seed(target, name, &files.iter().map(read).collect::<Vec<_>>().join(&0xff));
}

fn imports() {
    for (name, number) in [
        ("parallel-calls", 1),
        ("rewind", 2),
        ("compaction", 3),
        ("sidechain-in-file", 4),
        ("glued-and-torn", 6),
        ("titles-and-notices", 7),
    ] {
        let file = format!("claude-code/{name}/0f1e2d3c-0000-4000-8000-00000000000{number}.jsonl");
        fixture("import_claude", name, &[&file]);
    }
    let agents = "claude-code/agents/0f1e2d3c-0000-4000-8000-000000000005";
    let of = |file: &str| format!("{agents}/subagents/{file}");
    let files = [
        format!("{agents}.jsonl"),
        of("agent-aa01.jsonl"),
        of("agent-aa02.jsonl"),
        of("agent-aa02.meta.json"),
        of("workflows/wf_1/journal.jsonl"),
    ];
    fixture("import_claude", "agents", &files.each_ref().map(String::as_str));
    let whole = "recursive/whole/2026-11-30T11-00-00Z-home-dev-demo";
    let files = ["transcript.jsonl", ".meta.json", "cost.json", "checkpoints.jsonl"];
    let files = files.map(|file| format!("{whole}/{file}"));
    fixture("import_recursive", "whole", &files.each_ref().map(String::as_str));
    fixture("import_recursive", "torn", &["recursive/torn/transcript.jsonl"]);
    fixture("import_recursive", "document", &["", "", "", "", "recursive/session-file.json"]);
    fixture("import_recursive", "transcript", &["", "", "", "", "recursive/transcript-file.json"]);
    fixture("import_recursive", "bare", &["", "", "", "", "", "recursive/bare-messages.jsonl"]);
    let dir = |name: &str, end: u8| format!("q/{name}/sessions/0f1e2d3c-0000-4000-8000-0000000000{end:x}");
    fixture("import_q", "v1", &["q/v1-text-and-tool/session.json"]);
    for (name, end) in [("v2-parts", 0xa2), ("replay-and-affinity", 0xa4)] {
        fixture("import_q", name, &[&format!("{}/session.json", dir(name, end))]);
    }
    for (name, end, delegate) in [
        ("delegates", 0xa3, "delegates/c0ffee00-0000-4000-8000-000000000001"),
        ("cleared-then-delegated", 0xa6, "delegates/c0ffee00-0000-4000-8000-000000000001"),
    ] {
        let of = |file: &str| format!("{}/{file}", dir(name, end));
        let (session, state) =
            (format!("{delegate}/session.json"), format!("{delegate}/delegation-state.json"));
        let files = [of("session.json"), of("delegations.json"), of(&session), of(&state)];
        let [main, bookmarks, child, state] = files.each_ref().map(String::as_str);
        fixture("import_q", name, &[main, bookmarks, "", child, state]);
    }
    let of = |file: &str| format!("{}/{file}", dir("unknown-fields", 0xa5));
    let delegate = "delegates/c0ffee00-0000-4000-8000-000000000005";
    let files = [
        of("session.json"),
        of("delegations.json"),
        of("plan-execution.json"),
        of(&format!("{delegate}/session.json")),
        of(&format!("{delegate}/delegation-state.json")),
    ];
    fixture("import_q", "unknown-fields", &files.each_ref().map(String::as_str));
}

fn lives() {
    // See `Life::step` for what the numbers are.
    let life: &[u8] = &[
        0, 0, 0, 3, 0x30, 6, 0, 0, 7, 0, 0, 7, 0, 0, 14, 0, 0, 4, 3, 0, 9, 2, 0, 0, 0, 10, 1, 0, 11, 12, 11,
        13, 15,
    ];
    seed("model", "a-bit-of-everything", life);
    let buffered: Vec<u8> = std::iter::once(1).chain(life[1..].iter().copied()).collect();
    seed("model", "buffered", &buffered);
    seed("model", "calls", &[0, 3, 0x30, 6, 0, 0, 6, 1, 0, 14, 1, 7, 0, 0, 13, 6, 0, 0, 15]);
    seed(
        "model",
        "back-and-forth",
        &[0, 0, 0, 0, 0, 0, 0, 10, 1, 0, 0, 0, 10, 2, 0, 11, 11, 10, 0, 0, 12, 11, 11, 11],
    );
    seed("model", "compacted", &[0, 0, 0, 3, 0, 0, 0, 9, 2, 0, 3, 0, 9, 1, 0, 10, 1, 0, 11, 9, 0, 0, 14, 0]);
    seed(
        "model",
        "crashes",
        &[1, 0, 0, 14, 0, 3, 0x20, 14, 1, 6, 0, 0, 14, 7, 0, 0, 0, 0, 14, 11, 13, 14, 22, 15],
    );
}

fn main() {
    logs();
    derived();
    imports();
    lives();
}
