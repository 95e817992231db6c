//! Whole homes as they are kept in `tests/formats`, and what this version makes of them, as text.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sessionlog::codec::event::{Event, Part};
use sessionlog::codec::ids::Position;
use sessionlog::codec::record::Payload;
use sessionlog::codec::registry::name_of;
use sessionlog::log::{ReadItem, TailState};
use sessionlog::projections::{EntryBody, TreeState};
use sessionlog::storage::SimStorage;
use sessionlog::{RecoveryReport, SessionReader, Store, StoreReader};

use crate::support::tree::open;

/// The homes of one format version.
pub(crate) fn dir(version: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "formats", version].iter().collect()
}

/// Every file below a directory, by its path in it.
fn files(dir: &Path, below: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(dir.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            files(dir, &path, found);
        } else {
            let bytes = fs::read(entry.path()).unwrap();
            found.insert(path, bytes);
        }
    }
}

/// A copy of a kept home, on a disk in memory.
pub(crate) fn load(case: &Path) -> SimStorage {
    let mut kept = BTreeMap::new();
    files(case, Path::new("home"), &mut kept);
    let storage = SimStorage::new();
    for (path, bytes) in kept {
        storage.put_file(path, bytes).unwrap();
    }
    storage
}

/// Keeps a home: what a reader needs of it, and no more.
pub(crate) fn keep(case: &Path, storage: &SimStorage, sessions: &[&str]) {
    for path in storage.files() {
        let text = path.to_str().unwrap();
        let is_kept = !text.contains("/sessions/") || sessions.iter().any(|id| text.contains(id));
        if is_kept && !text.ends_with("owner.lock") {
            let target = case.join(&path);
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::write(target, storage.read_file(&path).unwrap()).unwrap();
        }
    }
}

pub(crate) fn reader(storage: &SimStorage) -> StoreReader {
    StoreReader::open_on(std::sync::Arc::new(storage.clone()), "home").unwrap()
}

/// The sessions of a home, in the order of their ids.
pub(crate) fn sessions(storage: &SimStorage) -> Vec<SessionReader> {
    let store = reader(storage);
    let mut places = store.places().unwrap();
    places.sort_by_key(|place| place.id);
    places.into_iter().map(|place| store.session_at(place)).collect()
}

/// The records of a log, a line each: all that a chain hash covers, and whether the payload is there.
pub(crate) fn records(reader: &SessionReader) -> (Vec<String>, TailState) {
    let mut lines = Vec::new();
    let read = reader.log().read(Position(1), &mut |item| {
        lines.push(match item {
            ReadItem::Record(record) => {
                let envelope = &record.envelope;
                let name = name_of(envelope.kind).unwrap_or("?");
                let there = if matches!(record.payload, Payload::Present(_)) { "there" } else { "erased" };
                let cause = envelope.cause.map_or(String::new(), |cause| format!(" cause {cause}"));
                format!(
                    "{} node {} kind {} {name} v{} time {} {:?} {:?}{cause} {there} {}",
                    record.position,
                    envelope.node,
                    envelope.kind,
                    envelope.schema,
                    envelope.timestamp.0,
                    envelope.time_origin,
                    envelope.criticality,
                    record.payload.digest(),
                )
            }
            ReadItem::Gap(gap) => format!("gap {} to {:?} at {}", gap.first, gap.last, gap.offset),
        });
        ControlFlow::Continue(())
    });
    (lines, read.unwrap())
}

fn part(part: &Part) -> String {
    match part {
        Part::Text(text) => format!("text {text:?}"),
        Part::Raw(bytes) => format!("raw {} bytes", bytes.0.len()),
        other => format!("{other:?}"),
    }
}

fn entry(body: &EntryBody) -> String {
    match body {
        EntryBody::Message(message) => {
            let parts: Vec<_> = message.parts.iter().map(part).collect();
            format!("{:?}: {} calls {}", message.role, parts.join(", "), message.tool_calls.len())
        }
        EntryBody::Result(result, _) => {
            let parts: Vec<_> = result.parts.iter().map(part).collect();
            format!("result of {} {:?}: {}", result.call, result.outcome, parts.join(", "))
        }
        other => format!("{other:?}").chars().take_while(|c| c.is_alphanumeric()).collect(),
    }
}

fn conversations(tree: &TreeState) -> Value {
    let told = tree.nodes().map(|node| {
        let transcript = tree.transcript(node).into_iter();
        let transcript: Vec<_> =
            transcript.map(|line| format!("{} {}", line.position, entry(&line.body))).collect();
        let context: Vec<_> = tree
            .context(node)
            .iter()
            .map(|message| {
                let parts: Vec<_> = message.parts.iter().map(part).collect();
                let calls: Vec<_> = message.tool_calls.iter().map(|call| call.call_id.clone()).collect();
                format!("{} {:?}: {} {calls:?}", message.position, message.role, parts.join(", "))
            })
            .collect();
        (node.to_string(), json!({ "transcript": transcript, "context": context }))
    });
    told.collect()
}

/// What a reader makes of a session. Words that people read are left out: they may be said better some day.
pub(crate) fn described(reader: &SessionReader) -> Value {
    let (records, tail) = records(reader);
    let verified = reader.verify().unwrap();
    let findings: Vec<_> = verified
        .all()
        .map(|it| {
            let file = it.file.file_name().unwrap_or_default().to_string_lossy();
            let positions = (it.first.map(|first| first.0), it.last.map(|last| last.0));
            format!("{:?} {} {file} {}+{} {positions:?}", it.severity, it.code, it.offset, it.len)
        })
        .collect();
    let tree = reader.tree(Position(u64::MAX)).unwrap();
    json!({
        "records": records,
        "tail": format!("{tail:?}").chars().take_while(|c| c.is_alphanumeric()).collect::<String>(),
        "segments": verified.log.segments,
        "last": verified.log.last.0,
        "chain": verified.log.chain.to_string(),
        "events": verified.events,
        "unknown": verified.unknown_events,
        "findings": findings,
        "title": reader.summary().unwrap().title(),
        "conversations": conversations(&tree),
    })
}

fn resumed(report: &RecoveryReport) -> Value {
    json!({
        "previous end": format!("{:?}", report.previous_end),
        "epoch": report.epoch.0,
        "last": report.last.0,
        "cut": report.cut.as_ref().map(|cut| (cut.tail.offset, cut.tail.len)),
        "unknown calls": report.unknown_calls.len(),
        "not started": report.not_started_calls.len(),
        "interrupted turns": report.interrupted_turns.len(),
    })
}

/// What a resume on a copy makes of a session, and whether all that was read before is still read.
pub(crate) fn resume(storage: &SimStorage, reader: &SessionReader) -> Value {
    let (before, _) = records(reader);
    let store: Store = open(storage);
    match store.resume(reader.place().id) {
        Ok((session, report)) => {
            let (after, _) = records(&session.reader());
            assert_eq!(after[..before.len()], before, "a resume takes nothing away");
            resumed(&report)
        }
        Err(error) => json!({ "error": format!("{:?}", error.kind()), "code": error.code() }),
    }
}

/// The event of a golden file of the codec.
pub(crate) fn golden(kind: sessionlog::codec::ids::KindNo, name: &str) -> Event {
    let file = format!("../codec/tests/golden/v1/{kind}-{name}.typical.bin");
    let bytes = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    Event::decode(kind, sessionlog::codec::ids::SchemaVersion(1), Payload::Present(&bytes)).unwrap()
}
