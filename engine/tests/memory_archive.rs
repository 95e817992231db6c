//! The archive of a deleted session: whenever power is lost, each of its records is found once, in the session or in the archive.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::collections::BTreeSet;

use sessionlog::codec::event::{Effect, TurnOutcome};
use sessionlog::codec::ids::{NodeId, SessionId};
use sessionlog::log::LogDir;
use sessionlog::log::LogReader;
use sessionlog::projections::memory::{MemoryQuery, MemorySort};
use sessionlog::storage::{CrashMode, Fault, FaultError, Repeat, SimStorage};
use sessionlog::store::WorkspaceHash;
use sessionlog::{CallResult, MemoryHit, Message, NewSession, Session, Store};
use support::tree::open;

/// Two sessions of one workspace, closed. The first has records of many kinds, one of them erased, one taken back.
fn two(storage: &SimStorage) -> ([SessionId; 2], WorkspaceHash) {
    let store = open(storage);
    let ids = ["xyzzy", "harmless"].map(|word| {
        let session = store.create("/w", NewSession::new(format!("about {word}"))).unwrap();
        fill(&session, word);
        let id = session.id();
        session.close().unwrap();
        id
    });
    (ids, store.reader().places().unwrap().remove(0).workspace)
}

fn fill(session: &Session, word: &str) {
    session.prompt(Message::user(format!("Say {word}."))).unwrap();
    let said = session
        .append(Message::assistant(word).call("c", "run", format!("{{\"word\":\"{word}\"}}")))
        .unwrap();
    session
        .start_call(said.call(0), Effect::Pure)
        .unwrap()
        .finish(CallResult::succeeded(word.repeat(300)))
        .unwrap();
    session.append(Message::assistant(format!("{word}, {word} and {word}."))).unwrap();
    session.end_turn(TurnOutcome::Completed).unwrap();
    let erased = session.append(Message::user(format!("{word} to be erased"))).unwrap();
    let taken_back = session.append(Message::user(format!("{word} to be taken back"))).unwrap();
    session.withdraw(NodeId::ROOT, taken_back.message_no, "no").unwrap();
    session.redact(&BTreeSet::from([erased.position]), "asked to").unwrap();
    session.tag(vec!["nightly".to_owned()], vec![]).unwrap();
}

fn all(store: &Store, hash: &WorkspaceHash) -> Vec<MemoryHit> {
    let query = MemoryQuery { limit: 100, sort: MemorySort::Oldest, ..MemoryQuery::default() };
    let found = store.memory(hash).search(&query).unwrap();
    assert_eq!(found.unread, []);
    found.hits
}

#[test]
fn each_record_is_found_once_whenever_power_is_lost() {
    let whole = SimStorage::new();
    let ([id, _], hash) = two(&whole);
    let expected = all(&open(&whole), &hash);
    assert!(expected.iter().any(|hit| hit.tags == ["nightly"]));
    let storage = whole.power_cut(CrashMode::KeepAll);
    let store = open(&storage);
    storage.take_calls();
    store.delete(id).unwrap();
    let calls = u64::try_from(storage.take_calls().len()).unwrap();
    let (mut before, mut behind) = (0, 0);
    for nth in 0..=calls {
        for mode in [CrashMode::LoseAll, CrashMode::Seeded(nth)] {
            let storage = whole.power_cut(CrashMode::KeepAll);
            let store = open(&storage);
            storage.fail(Fault::any(FaultError::EIO).after(nth).repeat(Repeat::Always));
            drop(store.delete(id));
            drop(store);
            let storage = storage.power_cut(mode);
            // As a reader sees it, before anybody finishes anything.
            let reader =
                sessionlog::StoreReader::open_on(std::sync::Arc::new(storage.clone()), "home").unwrap();
            let query = MemoryQuery { limit: 100, sort: MemorySort::Oldest, ..MemoryQuery::default() };
            assert_eq!(reader.memory(&hash).search(&query).unwrap().hits, expected, "call {nth}");
            let store = open(&storage);
            assert_eq!(all(&store, &hash), expected, "call {nth}");
            if store.reader().session(id).is_ok() {
                before += 1;
                store.delete(id).unwrap();
                assert_eq!(all(&store, &hash), expected, "call {nth}, once more");
            } else {
                behind += 1;
            }
        }
    }
    assert!(before > 10 && behind > 10, "{before} {behind}");
}

#[test]
fn an_archive_is_a_log_of_its_own_and_holds_what_is_to_be_found() {
    let storage = SimStorage::new();
    let ([id, _], hash) = two(&storage);
    let store = open(&storage);
    let count = all(&store, &hash).iter().filter(|hit| hit.id.session == id).count();
    store.delete(id).unwrap();
    let segments = format!("home/workspaces/{hash}/archive/{id}/log").into();
    let dir = LogDir { storage: std::sync::Arc::new(storage), segments, quarantine: "none".into() };
    let log = LogReader::new(dir);
    let verified = log.verify().unwrap();
    assert!(verified.findings.is_empty(), "{:?}", verified.findings);
    let mut records = 0;
    log.index(&mut |_, entry, _| {
        assert_eq!(entry.kind, sessionlog::codec::registry::kind::MemoryArchived);
        records += 1;
    })
    .unwrap();
    assert_eq!(records, count);
}
