//! Views are what the log says, and cost what is new: they grow at their end, are made anew where they are not what is
//! remembered of them, and never for nothing. A view that is made anew at each turn is a session that takes a minute to resume;
//! one that is believed too long shows a turn that was lost.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

#[path = "support/tree.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod tree;

use std::collections::BTreeSet;
use std::path::PathBuf;

use sessionlog::codec::event::{MessageExtended, NewEvent, Part, TurnOutcome};
use sessionlog::codec::ids::{MessageNo, NodeId};
use sessionlog::log::Durability;
use sessionlog::projections::views::Dialect;
use sessionlog::storage::{Call, CallKind, CrashMode, Fault, FaultError, SimStorage, Storage};
use sessionlog::{Message, NewSession, Session, Store, StoreOptions, ViewPolicy};

fn path(session: &Session, name: &str) -> PathBuf {
    session.place().dir.join(name)
}

/// The transcript as the log gives it: that of a view that is made from nothing.
fn from_the_log(storage: &SimStorage, session: &Session, options: &StoreOptions) -> Vec<u8> {
    let copy = storage.power_cut(CrashMode::KeepAll);
    for name in ["transcript.jsonl", ".meta.json", "cost.json"] {
        if copy.read_file(path(session, name)).is_some() {
            copy.remove_file(&path(session, name)).unwrap();
        }
    }
    let (anew, _) = tree::open_with(&copy, *options).resume(session.id()).unwrap();
    copy.read_file(path(&anew, "transcript.jsonl")).unwrap()
}

fn transcript(storage: &SimStorage, session: &Session) -> Vec<u8> {
    storage.read_file(path(session, "transcript.jsonl")).unwrap()
}

fn turn(session: &Session, text: &str) {
    session.start_turn().unwrap();
    session.append(Message::user(text)).unwrap();
    session.append(Message::assistant("done")).unwrap();
    session.end_turn(TurnOutcome::Completed).unwrap();
}

/// What was written into the transcript, and whether another file took its place.
fn written(storage: &SimStorage, session: &Session) -> (u64, bool) {
    let (file, anew) = (path(session, "transcript.jsonl"), path(session, "transcript.jsonl.tmp"));
    let calls = storage.take_calls();
    let grown = calls.iter().filter_map(|call| match call {
        Call::Write { path, len, .. } if *path == file => Some(*len),
        _ => None,
    });
    (grown.sum(), calls.iter().any(|call| call.kind() == CallKind::Create && call.path() == anew))
}

fn begun(storage: &SimStorage, options: &StoreOptions) -> (Store, Session) {
    let store = tree::open_with(storage, *options);
    let session = store.create("/w", NewSession::new("views")).unwrap();
    turn(&session, "the first");
    storage.take_calls();
    (store, session)
}

#[test]
fn a_view_grows_by_what_is_new() {
    let (storage, options) = (SimStorage::new(), StoreOptions::default());
    let (store, mut session) = begun(&storage, &options);
    for nth in 0..6 {
        let before = transcript(&storage, &session);
        turn(&session, &format!("turn {nth}"));
        let after = transcript(&storage, &session);
        assert!(after.starts_with(&before) && after.len() > before.len());
        let grown = u64::try_from(after.len() - before.len()).unwrap();
        assert_eq!(written(&storage, &session), (grown, false), "turn {nth}");
        assert_eq!(after, from_the_log(&storage, &session, &options));
        if nth % 2 == 1 {
            // Another owner goes on with the same file.
            let id = session.id();
            session.close().unwrap();
            let (next, report) = store.resume(id).unwrap();
            session = next;
            assert_eq!(report.rebuilt_views, [] as [String; 0]);
            assert_eq!(written(&storage, &session), (0, false), "turn {nth}");
        }
    }
}

/// Beyond what is hashed when a session is opened, it is synced: opening costs the same however long the view is.
#[test]
fn a_long_view_is_synced_and_only_its_end_is_read() {
    let (storage, options) = (SimStorage::new(), StoreOptions::default());
    let (store, session) = begun(&storage, &options);
    for _ in 0..4 {
        turn(&session, &"long ".repeat(20_000));
    }
    let (file, id) = (path(&session, "transcript.jsonl"), session.id());
    let len = transcript(&storage, &session).len();
    let syncs = storage
        .take_calls()
        .into_iter()
        .filter(|call| call.kind() == CallKind::SyncData && call.path() == file);
    assert_eq!(syncs.count(), 1, "one each 256 KiB");
    assert_eq!(transcript(&storage, &session), from_the_log(&storage, &session, &options));
    session.close().unwrap();
    storage.take_calls();
    let (session, report) = store.resume(id).unwrap();
    assert_eq!(report.rebuilt_views, [] as [String; 0]);
    let read: u64 = storage
        .take_calls()
        .iter()
        .filter_map(|call| match call {
            Call::Read { path, offset, .. } if *path == file => Some(u64::try_from(len).unwrap() - offset),
            _ => None,
        })
        .sum();
    assert!(read <= 256 << 10, "{read}");
    // Somebody's change in its end is noticed, whatever its length.
    session.close().unwrap();
    storage.corrupt(&file, |bytes| bytes[len - 3] ^= 1).unwrap();
    let (session, report) = store.resume(id).unwrap();
    assert_eq!(report.rebuilt_views, ["transcript.jsonl"]);
    assert_eq!(transcript(&storage, &session), from_the_log(&storage, &session, &options));
}

/// Whatever becomes of it while its owner works: the next refresh makes it what the log says.
#[test]
fn a_view_that_is_not_what_is_remembered_is_made_anew() {
    for (what, change) in [
        (
            "cut",
            (|storage, file| storage.corrupt(file, |bytes| bytes.truncate(20)).unwrap())
                as fn(&SimStorage, &PathBuf),
        ),
        ("longer", |storage, file| storage.corrupt(file, |bytes| bytes.push(b'\n')).unwrap()),
        ("gone", |storage, file| storage.remove_file(file).unwrap()),
    ] {
        let (storage, options) = (SimStorage::new(), StoreOptions::default());
        let (_store, session) = begun(&storage, &options);
        change(&storage, &path(&session, "transcript.jsonl"));
        turn(&session, "the next");
        assert!(written(&storage, &session).1, "{what}");
        assert_eq!(transcript(&storage, &session), from_the_log(&storage, &session, &options), "{what}");
        // Once.
        turn(&session, "another");
        assert!(!written(&storage, &session).1, "{what}");
    }
}

/// A host that wants another dialect gets it, and is not told that something was wrong.
#[test]
fn a_view_in_another_dialect_is_made_anew_without_a_complaint() {
    let (storage, options) = (SimStorage::new(), StoreOptions::default());
    let (_store, session) = begun(&storage, &options);
    let id = session.id();
    let seed = transcript(&storage, &session);
    session.close().unwrap();
    let options = StoreOptions { dialect: Dialect::Recursive08, ..options };
    let store = tree::open_with(&storage, options);
    let (session, report) = store.resume(id).unwrap();
    assert_eq!(report.rebuilt_views, [] as [String; 0]);
    let other = transcript(&storage, &session);
    assert_ne!(other, seed);
    assert_eq!(other, from_the_log(&storage, &session, &options));
}

/// A write that fails leaves nobody knows what in the file. The next refresh does not go on behind it.
#[test]
fn a_view_whose_write_failed_is_made_anew() {
    let kinds = [(CallKind::Write, 0), (CallKind::Write, 7), (CallKind::Open, 0), (CallKind::Stat, 0)];
    for (kind, written) in kinds {
        let (storage, options) = (SimStorage::new(), StoreOptions::default());
        let (_store, session) = begun(&storage, &options);
        let file = path(&session, "transcript.jsonl");
        storage.fail(Fault::new(kind, FaultError::EIO).on(file).written(written));
        turn(&session, "the second");
        assert_eq!(storage.armed_faults(), 0, "{kind:?}");
        turn(&session, "the third");
        assert_eq!(transcript(&storage, &session), from_the_log(&storage, &session, &options), "{kind:?}");
    }
}

/// What a process was killed in the middle of stands beside the view, and is in nobody's way.
#[test]
fn what_a_killed_owner_left_is_in_nobodys_way() {
    let (storage, options) = (SimStorage::new(), StoreOptions::default());
    let (store, session) = begun(&storage, &options);
    let id = session.id();
    for name in ["transcript.jsonl.tmp", ".meta.json.tmp", "cost.json.tmp"] {
        storage.put_file(path(&session, name), vec![b'x'; 100_000]).unwrap();
    }
    let file = path(&session, "transcript.jsonl");
    session.close().unwrap();
    storage.remove_file(&file).unwrap();
    let (session, _) = store.resume(id).unwrap();
    turn(&session, "the next");
    assert_eq!(transcript(&storage, &session), from_the_log(&storage, &session, &options));
    let meta = storage.read_file(path(&session, ".meta.json")).unwrap();
    let meta: serde_json::Value = serde_json::from_slice(&meta).unwrap();
    assert_eq!(meta["message_count"], 4);
}

/// A view that shows buffered messages, and a loss of power that takes them: the next owner's view does not show them, also
/// when as many were said since, and however many owners came and went.
#[test]
fn what_was_lost_is_in_no_view() {
    for owners in [1, 2, 70] {
        let storage = SimStorage::new();
        let options = StoreOptions { durability: Durability::Buffered, ..StoreOptions::default() };
        let (_store, session) = begun(&storage, &options);
        let id = session.id();
        session.close().unwrap();
        let (session, _) = tree::open_with(&storage, options).resume(id).unwrap();
        session.append(Message::user("lost")).unwrap();
        session.refresh_views().unwrap();
        let (file, meta) = (path(&session, "transcript.jsonl"), path(&session, ".meta.json"));
        let shown = [storage.read_file(&file).unwrap(), storage.read_file(&meta).unwrap()];
        assert!(String::from_utf8_lossy(&shown[0]).contains("lost"));
        // The views happen to reach the disk, and the record does not.
        let after = storage.power_cut(CrashMode::LoseAll);
        std::mem::forget(session);
        let quiet = StoreOptions { views: ViewPolicy::Off, ..options };
        for nth in 0..owners {
            let (session, _) = tree::open_with(&after, quiet).resume(id).unwrap();
            session.append(Message::user(format!("said {nth}"))).unwrap();
            session.close().unwrap();
        }
        after.put_file(&file, shown[0].clone()).unwrap();
        after.put_file(&meta, shown[1].clone()).unwrap();
        let (session, _) = tree::open_with(&after, options).resume(id).unwrap();
        let now = transcript(&after, &session);
        assert!(!String::from_utf8_lossy(&now).contains("lost"), "{owners} owners");
        assert_eq!(now, from_the_log(&after, &session, &options), "{owners} owners");
    }
}

/// A later piece of a message that is shown already: the line is not what it was.
#[test]
fn a_piece_that_comes_later_is_in_the_line_of_its_message() {
    let (storage, options) = (SimStorage::new(), StoreOptions::default());
    let (_store, session) = begun(&storage, &options);
    let piece = MessageExtended {
        message_no: MessageNo(2),
        parts: vec![Part::text("and more")],
        tool_calls: Vec::new(),
        stop_reason: None,
        usage: None,
        source: None,
    };
    session.append_batch(vec![NewEvent::now(NodeId::ROOT, piece)], Durability::Sync).unwrap();
    turn(&session, "the next");
    let text = String::from_utf8(transcript(&storage, &session)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[1].contains("done") && lines[1].contains("and more"), "{text}");
    assert_eq!(text.as_bytes(), from_the_log(&storage, &session, &options));
}

/// What was erased while nobody could make the views is in no view that is made later.
#[test]
fn what_was_erased_is_in_no_view() {
    for policy in [ViewPolicy::Keep, ViewPolicy::AtClose, ViewPolicy::Off] {
        let (storage, options) = (SimStorage::new(), StoreOptions::default());
        let (_store, session) = begun(&storage, &options);
        let id = session.id();
        let secret = session.append(Message::user("secret")).unwrap().position;
        session.refresh_views().unwrap();
        let names = ["transcript.jsonl", ".meta.json"];
        let files = names.map(|name| path(&session, name));
        let shown = files.clone().map(|file| storage.read_file(file).unwrap());
        assert!(String::from_utf8_lossy(&shown[0]).contains("secret"));
        session.close().unwrap();
        let redacting = StoreOptions { views: policy, ..options };
        let (session, _) = tree::open_with(&storage, redacting).resume(id).unwrap();
        session.redact(&BTreeSet::from([secret]), "asked for").unwrap();
        for file in &files {
            let there = storage.read_file(file).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&there).contains("secret"), "{policy:?}");
            assert_eq!(there.is_empty(), policy == ViewPolicy::Off, "{policy:?}");
        }
        session.close().unwrap();
        // Somebody puts the old ones back.
        files.iter().zip(shown).for_each(|(file, bytes)| storage.put_file(file, bytes).unwrap());
        let (session, _) = tree::open_with(&storage, options).resume(id).unwrap();
        let now = transcript(&storage, &session);
        assert!(!String::from_utf8_lossy(&now).contains("secret"), "{policy:?}");
        assert_eq!(now, from_the_log(&storage, &session, &options), "{policy:?}");
        // And then it is gone on with.
        let (next, _) = {
            session.close().unwrap();
            tree::open_with(&storage, options).resume(id).unwrap()
        };
        storage.take_calls();
        turn(&next, "the next");
        assert!(!written(&storage, &next).1, "{policy:?}");
    }
}

#[test]
fn views_are_kept_when_the_host_wants_them() {
    for (policy, in_between, at_the_end) in
        [(ViewPolicy::Keep, true, true), (ViewPolicy::AtClose, false, true), (ViewPolicy::Off, false, false)]
    {
        let storage = SimStorage::new();
        let options = StoreOptions { views: policy, ..StoreOptions::default() };
        let (_store, session) = begun(&storage, &options);
        let files = ["transcript.jsonl", ".meta.json", "cost.json"].map(|name| path(&session, name));
        session.refresh_views().unwrap();
        let there = |file: &PathBuf| storage.read_file(file).is_some();
        assert!(files.iter().all(|file| there(file) == in_between), "{policy:?}");
        session.close().unwrap();
        assert!(files.iter().all(|file| there(file) == at_the_end), "{policy:?}");
        assert!(!storage.files().iter().any(|file| file.to_string_lossy().ends_with(".tmp")));
    }
}
