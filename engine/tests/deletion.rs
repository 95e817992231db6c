//! Deleting and forgetting whole sessions: whole or not at all, whenever power is lost, and nothing rises again.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::path::PathBuf;

use sessionlog::codec::event::{ArchiveFate, TurnOutcome};
use sessionlog::codec::ids::SessionId;
use sessionlog::log::Severity;
use sessionlog::projections::memory::{MemoryQuery, QueryVector};
use sessionlog::storage::{CrashMode, Fault, FaultError, Repeat, SimStorage, Storage};
use sessionlog::{ErrorKind, ForkOptions, ForkPoint, Message, NewSession, Session, Store};
use support::tree::open;

const SECRET: &str = "xyzzy-plugh";

fn talk(session: &Session, word: &str) {
    session.prompt(Message::user(format!("Say {word}."))).unwrap();
    session.append(Message::assistant(format!("{word}, {word} and {word}."))).unwrap();
    session.end_turn(TurnOutcome::Completed).unwrap();
}

/// Two sessions of one workspace, closed: the first is full of the secret.
fn two(storage: &SimStorage) -> [SessionId; 2] {
    let store = open(storage);
    [SECRET, "harmless"].map(|word| {
        let session = store.create("/w", NewSession::new(format!("about {word}"))).unwrap();
        for _ in 0..6 {
            talk(&session, word);
        }
        session.close().unwrap();
        session_id(&store, word)
    })
}

fn session_id(store: &Store, word: &str) -> SessionId {
    let rows = store.reader().list().unwrap();
    rows.iter().find(|row| row.title.as_ref().is_some_and(|it| it.contains(word))).unwrap().root
}

fn files_with(storage: &SimStorage, text: &str) -> Vec<String> {
    let holds = |bytes: Vec<u8>| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let files = storage.files().into_iter();
    let found = files.filter(|path| storage.read_file(path).is_some_and(holds));
    found.map(|path| path.display().to_string()).collect()
}

/// How often the secret is found in the workspace of a session.
fn hits(store: &Store, id: SessionId) -> u64 {
    let workspace = store.reader().session(id).unwrap().place().workspace.clone();
    store.reader().memory(&workspace).search(&MemoryQuery::of_text(SECRET)).unwrap().total
}

#[track_caller]
fn check_whole(store: &Store, id: SessionId) {
    assert!(!store.reader().was_deleted(b"/w", id).unwrap(), "it is there, and is said to be deleted");
    let verified = store.reader().session(id).unwrap().verify().unwrap();
    let wrong: Vec<_> = verified.all().filter(|finding| finding.severity > Severity::Note).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let (session, _) = store.resume(id).unwrap();
    assert_eq!(session.summary().unwrap().messages, 12);
}

#[track_caller]
fn check_gone(store: &Store, id: SessionId) {
    assert!(store.reader().was_deleted(b"/w", id).unwrap());
    assert!(store.reader().list().unwrap().iter().all(|row| row.root != id));
    assert_eq!(store.resume(id).unwrap_err().kind(), ErrorKind::NotFound);
    let again = NewSession { id: Some(id), ..NewSession::new("again") };
    assert_eq!(store.create("/w", again).unwrap_err().code(), "session.deleted");
}

fn remove(
    store: &Store,
    id: SessionId,
    archive: ArchiveFate,
) -> sessionlog::Result<sessionlog::DeletionPlan> {
    match archive {
        ArchiveFate::Kept => store.delete(id),
        ArchiveFate::Erased => store.forget(id),
    }
}

#[test]
fn a_deleted_session_is_gone_and_its_neighbour_is_not() {
    let storage = SimStorage::new();
    let [gone, stays] = two(&storage);
    let store = open(&storage);
    let before = storage.files();
    let plan = store.reader().plan_deletion(gone).unwrap();
    assert_eq!((plan.messages, plan.conversations, plan.is_there), (12, 1, true));
    assert!(plan.bytes > 1000 && plan.title.as_ref().unwrap().contains(SECRET) && plan.forks.is_empty());
    assert_eq!(storage.files(), before, "a preview changes nothing");
    let done = store.delete(gone).unwrap();
    assert_eq!(done, plan);
    check_gone(&store, gone);
    check_gone(&open(&storage), gone);
    check_whole(&store, stays);
    assert!(storage.files().iter().all(|path| !path.to_string_lossy().contains("deleted")));
    assert_eq!(store.delete(gone).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn what_is_owned_is_refused() {
    let storage = SimStorage::new();
    let [id, _] = two(&storage);
    let store = open(&storage);
    let (session, _) = store.resume(id).unwrap();
    for archive in [ArchiveFate::Kept, ArchiveFate::Erased] {
        assert_eq!(remove(&open(&storage), id, archive).unwrap_err().kind(), ErrorKind::Locked);
    }
    session.append(Message::user("I am still here.")).unwrap();
    session.close().unwrap();
    store.delete(id).unwrap();
    check_gone(&store, id);
}

#[test]
fn after_forgetting_no_byte_is_left() {
    let storage = SimStorage::new();
    let [gone, stays] = two(&storage);
    let store = open(&storage);
    // What somebody exported into the home, by name and by content, and what is somebody else's.
    let export = format!("home/exports/{gone}.md");
    storage.put_file(&export, format!("# {SECRET}")).unwrap();
    storage.put_file("home/export.md", format!("session: {gone}\n{SECRET}")).unwrap();
    storage.put_file("home/notes.txt", "mine").unwrap();
    let plan = store.reader().plan_forgetting(gone).unwrap();
    let exports: Vec<_> = plan.exports.iter().map(|path| path.display().to_string()).collect();
    assert_eq!(exports, ["home/export.md", &export]);
    assert!(!files_with(&storage, SECRET).is_empty());
    assert_eq!(store.forget(gone).unwrap(), plan);
    assert_eq!(files_with(&storage, SECRET), [""; 0]);
    assert_eq!(storage.read_file("home/notes.txt").unwrap(), b"mine");
    check_gone(&store, gone);
    check_whole(&store, stays);
}

#[test]
fn a_fork_keeps_the_history_it_began_with() {
    let storage = SimStorage::new();
    let [id, _] = two(&storage);
    let store = open(&storage);
    let fork = store.fork(id, ForkPoint::Head, ForkOptions::default()).unwrap();
    let fork_id = fork.id();
    fork.close().unwrap();
    assert_eq!(store.reader().plan_forgetting(id).unwrap().forks, [fork_id]);
    store.forget(id).unwrap();
    check_gone(&store, id);
    check_whole(&store, fork_id);
}

/// Power is lost at each call in turn, and everything fails from there on: the session is there as it was, or gone for good,
/// and nothing is left of the way there once somebody opens the store.
#[test]
fn a_loss_of_power_at_any_call_leaves_all_or_nothing() {
    let whole = SimStorage::new();
    let [id, stays] = two(&whole);
    for archive in [ArchiveFate::Kept, ArchiveFate::Erased] {
        let (mut undone, mut done) = (0, 0);
        for nth in 0..=remove_calls(&whole, id, archive) {
            for mode in [CrashMode::LoseAll, CrashMode::Seeded(nth)] {
                let storage = whole.power_cut(CrashMode::KeepAll);
                let store = open(&storage);
                storage.fail(Fault::any(FaultError::EIO).after(nth).repeat(Repeat::Always));
                let acknowledged = remove(&store, id, archive).is_ok();
                drop(store);
                let storage = storage.power_cut(mode);
                let store = open(&storage);
                let left = storage.files().iter().any(|path| {
                    let path = path.to_string_lossy();
                    path.contains("deleted") || path.contains(&format!("deletions/{id}"))
                });
                assert!(!left, "call {nth}: {:?}", storage.files());
                if store.reader().session(id).is_ok() {
                    assert!(!acknowledged, "call {nth}: it came back");
                    check_whole(&store, id);
                    let archive = format!("/archive/{id}");
                    let kept =
                        storage.files().into_iter().find(|path| path.to_string_lossy().contains(&archive));
                    assert_eq!(kept, None, "call {nth}: nothing is kept of what is there");
                    undone += 1;
                } else {
                    check_gone(&store, id);
                    if archive == ArchiveFate::Erased {
                        assert_eq!(files_with(&storage, SECRET), [""; 0], "call {nth}");
                    }
                    done += 1;
                }
                check_whole(&store, stays);
            }
        }
        assert!(undone > 10 && done > 10, "{undone} {done}");
    }
}

/// The same of what is kept of a deleted session, once that is to be forgotten too.
#[test]
fn a_loss_of_power_at_any_call_leaves_all_of_an_archive_or_nothing() {
    let whole = SimStorage::new();
    let [id, stays] = two(&whole);
    open(&whole).delete(id).unwrap();
    let hits = |store: &Store| hits(store, stays);
    let before = hits(&open(&whole));
    assert!(before > 0);
    let (mut undone, mut done) = (0, 0);
    for nth in 0..=remove_calls(&whole, id, ArchiveFate::Erased) {
        let storage = whole.power_cut(CrashMode::KeepAll);
        let store = open(&storage);
        storage.fail(Fault::any(FaultError::EIO).after(nth).repeat(Repeat::Always));
        let acknowledged = store.forget(id).is_ok();
        drop(store);
        let storage =
            storage.power_cut(if nth % 2 == 0 { CrashMode::LoseAll } else { CrashMode::Seeded(nth) });
        let store = open(&storage);
        check_gone(&store, id);
        check_whole(&store, stays);
        let path = |path: &PathBuf| path.to_string_lossy().contains(&format!("deletions/{id}"));
        assert!(!storage.files().iter().any(path), "call {nth}");
        if hits(&store) == 0 {
            assert_eq!(files_with(&storage, SECRET), [""; 0], "call {nth}");
            done += 1;
        } else {
            assert!(!acknowledged, "call {nth}: it came back");
            assert_eq!(hits(&store), before, "call {nth}");
            undone += 1;
        }
    }
    assert!(undone > 10 && done > 10, "{undone} {done}");
}

/// How many calls a removal makes.
fn remove_calls(whole: &SimStorage, id: SessionId, archive: ArchiveFate) -> u64 {
    let storage = whole.power_cut(CrashMode::KeepAll);
    let store = open(&storage);
    storage.take_calls();
    remove(&store, id, archive).unwrap();
    storage.take_calls().len().try_into().unwrap()
}

/// Each call fails once and the rest goes on: an error leaves the session as it was or gone, and trying again gets through.
#[test]
fn an_error_at_any_call_can_be_tried_again() {
    let whole = SimStorage::new();
    let [id, stays] = two(&whole);
    for archive in [ArchiveFate::Kept, ArchiveFate::Erased] {
        for nth in 0..remove_calls(&whole, id, archive) {
            let storage = whole.power_cut(CrashMode::KeepAll);
            let store = open(&storage);
            storage.fail(Fault::any(FaultError::EIO).after(nth));
            if remove(&store, id, archive).is_err() {
                storage.clear_faults();
                match remove(&open(&storage), id, archive) {
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "call {nth}: {error}"),
                }
            }
            storage.clear_faults();
            let store = open(&storage);
            check_gone(&store, id);
            check_whole(&store, stays);
        }
    }
}

/// A store that another process opened before a deletion began is not ahead of it.
#[test]
fn a_writer_that_comes_late_finds_nothing() {
    let storage = SimStorage::new();
    let [id, _] = two(&storage);
    let late = open(&storage);
    open(&storage).delete(id).unwrap();
    check_gone(&late, id);
    assert_eq!(
        late.fork(id, ForkPoint::Head, ForkOptions::default()).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

/// Power is lost at each call of a deletion in turn, and a host that opened the store before begins a session, or a fork, of
/// the same id: it gets none once the old one is gone, and what is kept of that is not lost over it.
#[test]
fn an_id_is_not_used_again_while_its_session_is_going() {
    let whole = SimStorage::new();
    let [id, stays] = two(&whole);
    let hits = |store: &Store| hits(store, stays);
    let before = hits(&open(&whole));
    for nth in 0..remove_calls(&whole, id, ArchiveFate::Kept) {
        let storage = whole.power_cut(CrashMode::KeepAll);
        let host = open(&storage);
        let store = open(&storage);
        storage.fail(Fault::any(FaultError::EIO).after(nth).repeat(Repeat::Always));
        drop(store.delete(id));
        storage.clear_faults();
        let again = NewSession { id: Some(id), ..NewSession::new("again") };
        assert_eq!(host.create("/w", again).unwrap_err().kind(), ErrorKind::Conflict, "call {nth}");
        let options = ForkOptions { id: Some(id), ..ForkOptions::default() };
        let refused = host.fork(stays, ForkPoint::Head, options).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "call {nth}");
        let store = open(&storage);
        if store.reader().session(id).is_ok() {
            check_whole(&store, id);
        } else {
            check_gone(&store, id);
        }
        assert_eq!(hits(&store), before, "call {nth}");
        assert!(
            storage.files().iter().all(|path| !path.to_string_lossy().contains(".deleted")),
            "call {nth}"
        );
    }
}

/// Something else in the place of a deletion's note is said, and harms nothing.
#[test]
fn what_is_no_note_is_named() {
    let storage = SimStorage::new();
    let [id, _] = two(&storage);
    let store = open(&storage);
    storage.put_file(format!("home/deletions/{id}.json/file"), *b"what is this").unwrap();
    let refused = store.delete(id).unwrap_err();
    assert_eq!((refused.kind(), refused.code()), (ErrorKind::Invalid, "deletion.foreign"));
    assert!(refused.to_string().contains(&format!("{id}.json")), "{refused}");
    check_whole(&store, id);
}

/// What is kept elsewhere in the home of a session: vectors of its records, its place among the roots, what a crash tore of the
/// logs that say so, forks and archives that were never finished, and files that somebody put between ours.
#[test]
fn what_is_elsewhere_in_the_home_is_forgotten_too() {
    let storage = SimStorage::new();
    let ids @ [gone, stays] = two(&storage);
    let store = open(&storage);
    let place = store.reader().session(gone).unwrap().place().clone();
    let workspace = format!("home/workspaces/{}", place.workspace);
    let memory = store.memory(&place.workspace);
    for id in ids {
        let found = memory.search(&MemoryQuery { limit: 100, ..MemoryQuery::default() }).unwrap();
        let record = found.hits.iter().find(|hit| hit.id.session == id).unwrap();
        memory.attach_vector(record.id, "m", &[1.0, 0.0]).unwrap();
        store.unregister(id, if id == gone { SECRET } else { "kept" }).unwrap();
    }
    assert!(!files_with(&storage, &gone.to_string()).is_empty());
    let put = |path: &str, text: String| {
        let path = PathBuf::from(path);
        for dir in path.parent().unwrap().ancestors().collect::<Vec<_>>().into_iter().rev().skip(1) {
            storage.create_dir(dir).unwrap();
        }
        storage.put_file(&path, text).unwrap();
    };
    let (torn, raw) = (format!("{workspace}/workspace/quarantine"), "home/user/quarantine/raw.torn");
    put(&format!("{torn}/ours.torn"), format!("{gone} {SECRET}"));
    put(&format!("{torn}/other.torn"), format!("{stays}"));
    put(raw, String::new());
    storage.put_file(raw, [b"..".as_slice(), &gone.0, SECRET.as_bytes()].concat()).unwrap();
    put(&format!("{workspace}/sessions/{stays}/log.forking/1.seg"), SECRET.to_owned());
    put(&format!("{workspace}/archive/{gone}.new/log/1.seg"), SECRET.to_owned());
    let between = ["", "sessions/", "archive/", "artifacts/", "index/", "workspace/"];
    for dir in between {
        put(&format!("{workspace}/{dir}copy of it.md"), format!("{gone} {SECRET}"));
        put(&format!("{workspace}/{dir}mine.md"), "mine".to_owned());
    }
    for dir in ["", "user/", "index/"] {
        put(&format!("home/{dir}copy of it.md"), format!("{gone} {SECRET}"));
    }
    let plan = store.reader().plan_forgetting(gone).unwrap();
    assert_eq!(plan.exports.len(), 9, "{:#?}", plan.exports);
    assert!(plan.exports.is_sorted());
    store.forget(gone).unwrap();
    for storage in [storage.clone(), storage.power_cut(CrashMode::LoseAll)] {
        assert_eq!(files_with(&storage, SECRET), [""; 0]);
        let raw = |path: &String| {
            let bytes = storage.read_file(path).unwrap();
            bytes.windows(16).any(|window| window == gone.0)
        };
        let names: Vec<_> =
            storage.files().iter().map(|path| path.display().to_string()).filter(raw).collect();
        assert!(
            names.iter().all(|path| path.contains("/workspace/log/")),
            "it says that it is deleted: {names:?}"
        );
        assert_eq!(files_with(&storage, &gone.to_string()), [""; 0]);
        let store = open(&storage);
        let vectors = |session| {
            let vector = QueryVector { model: "m".to_owned(), components: vec![1.0, 0.0], weight: 1.0 };
            let near = MemoryQuery { vector: Some(vector), limit: 100, ..MemoryQuery::default() };
            let found = store.memory(&place.workspace).search(&near).unwrap();
            found.hits.iter().filter(|hit| hit.id.session == session).count()
        };
        assert_eq!((vectors(gone), vectors(stays)), (0, 1));
        check_whole(&store, stays);
    }
    for dir in between {
        assert_eq!(storage.read_file(format!("{workspace}/{dir}mine.md")).unwrap(), b"mine");
    }
    assert!(storage.read_file(format!("{torn}/other.torn")).is_some());
}
