//! The index of memory is derived: whatever becomes of it, or of the logs below it, a search gives what reading the logs gives.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![cfg(feature = "search")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sessionlog::codec::ids::Position;
use sessionlog::projections::memory::{MemoryQuery, MemorySort, RecordId};
use sessionlog::storage::{OsStorage, Storage};
use sessionlog::store::WorkspaceHash;
use sessionlog::{FoundBy, IndexPolicy, Message, Session, Store};
use support::quiet::Quiet;
use support::recall::{Workspace, texts};

const INDEX: &str = "index/memory.sqlite";

fn talk(session: &Session, texts: &[&str]) {
    for text in texts {
        session.append(Message::user(*text)).unwrap();
    }
}

/// Two sessions with a known word, and an index of them that is closed.
fn indexed() -> Workspace {
    let workspace = Workspace::new();
    for goal in ["first", "second"] {
        let session = workspace.session(goal);
        talk(&session, &["the needle", "some hay", "more hay and a needle"]);
        session.close().unwrap();
    }
    assert_eq!(workspace.find("needle").len(), 4);
    workspace
}

#[test]
fn whatever_becomes_of_the_file_the_answers_are_the_same() {
    let workspace = indexed();
    let (file, query) = (workspace.in_workspace(INDEX), MemoryQuery::of_text("needle hay"));
    let expected = workspace.search(&query);
    let sound = fs::read(&file).unwrap();
    let beside = |name: &str| file.with_file_name(format!("memory.sqlite{name}"));
    let check = |what: &str, by: FoundBy| {
        let found = workspace.search_anyhow(&query);
        assert_eq!((texts(&found), found.by), (texts(&expected), by), "{what}");
    };
    fs::remove_file(&file).unwrap();
    check("removed", FoundBy::Index);
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
    check("removed with its directory", FoundBy::Index);
    for len in [0, 1, 99, 100, 4096, sound.len() / 2, sound.len() - 1] {
        fs::write(&file, &sound[..len]).unwrap();
        check(&format!("cut at {len}"), FoundBy::Index);
    }
    for (at, len) in [(0, 16), (16, 4), (100, 64), (4096, 4096), (8192, 200), (sound.len() - 4096, 4096)] {
        let mut garbage = sound.clone();
        garbage[at..at + len].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31).wrapping_add(7));
        fs::write(&file, &garbage).unwrap();
        check(&format!("garbage at {at}"), FoundBy::Index);
    }
    fs::write(&file, "not a database at all, but longer than a header of one would be".repeat(10)).unwrap();
    check("a text", FoundBy::Index);
    fs::write(beside("-wal"), "garbage").unwrap();
    check("garbage beside it", FoundBy::Index);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    check("a directory in its place", FoundBy::Scan);
    fs::remove_dir(&file).unwrap();
    #[cfg(unix)]
    {
        let elsewhere = workspace.home().join("elsewhere");
        fs::write(&elsewhere, &sound).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
        check("a link in its place", FoundBy::Scan);
        assert_eq!(fs::read(&elsewhere).unwrap(), sound);
        fs::remove_file(&file).unwrap();
    }
    check("nothing again", FoundBy::Index);
}

#[test]
fn rows_that_are_wrong_are_noticed_where_they_matter() {
    for sql in [
        "UPDATE record SET position = position + 100",
        "UPDATE record SET place = place - 1",
        "DELETE FROM record WHERE id % 2 = 0",
        "UPDATE record SET kind = 'dream'",
        "UPDATE log SET chain = x'00'",
        "UPDATE log SET next = -1",
        "UPDATE state SET mark = x'00', fold = x''; UPDATE log SET stamp = NULL",
        "DELETE FROM state; UPDATE log SET stamp = NULL",
        "DELETE FROM log",
        "DROP TABLE record",
        "PRAGMA user_version = 7",
        "PRAGMA application_id = 7",
        "DELETE FROM meta",
    ] {
        let workspace = indexed();
        let connection = rusqlite::Connection::open(workspace.in_workspace(INDEX)).unwrap();
        connection.execute_batch(sql).unwrap();
        drop(connection);
        let found = workspace.search_anyhow(&MemoryQuery::of_text("needle"));
        assert_eq!(found.total, 4, "{sql}");
        assert_eq!(workspace.search_anyhow(&MemoryQuery::of_text("needle")).by, FoundBy::Index, "{sql}");
    }
}

#[test]
fn one_that_is_held_by_somebody_is_done_without() {
    let workspace = indexed();
    let session = workspace.session("third");
    talk(&session, &["a third needle"]);
    let mut connection = rusqlite::Connection::open(workspace.in_workspace(INDEX)).unwrap();
    let held = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let found = workspace.search_anyhow(&MemoryQuery::of_text("needle"));
    assert_eq!((found.total, found.by), (5, FoundBy::Scan));
    drop(held);
    assert_eq!(workspace.search(&MemoryQuery::of_text("needle")).total, 5);
}

#[test]
fn what_is_erased_is_not_found_not_even_by_an_index_from_before() {
    let workspace = Workspace::new();
    let session = workspace.session("try");
    talk(&session, &["keep the needle", "the secret needle", "and hay"]);
    let secret = workspace.search(&MemoryQuery::of_text("secret"));
    let before = fs::read(workspace.in_workspace(INDEX)).unwrap();
    session.redact(&BTreeSet::from([secret.hits[0].id.position]), "asked to").unwrap();
    let bytes =
        |path: PathBuf| fs::read(path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains("secret"));
    for name in ["", "-wal", "-shm"] {
        assert!(!bytes(workspace.in_workspace(format!("{INDEX}{name}"))), "{name}");
    }
    assert_eq!(workspace.find("secret"), Vec::<String>::new());
    assert_eq!(workspace.find("needle"), ["keep the needle"]);
    fs::remove_file(workspace.in_workspace(INDEX)).unwrap();
    fs::write(workspace.in_workspace(INDEX), before).unwrap();
    let one = MemoryQuery { limit: 1, sort: MemorySort::Oldest, ..MemoryQuery::of_text("needle") };
    assert_eq!(workspace.search(&one).total, 1, "also where it is not among those that are read");
    assert_eq!(workspace.find("secret"), Vec::<String>::new());
    assert_eq!(workspace.find("needle"), ["keep the needle"]);
}

#[test]
fn a_log_that_was_cut_or_made_anew_is_read_anew() {
    let workspace = indexed();
    let session = workspace.session("third");
    let (id, dir) = (session.id(), workspace.in_workspace("sessions").join(session.id().to_string()));
    talk(&session, &["before the copy"]);
    session.close().unwrap();
    let copy = copy_of(&dir.join("log"));
    let (session, _) = workspace.store.resume(id).unwrap();
    talk(&session, &["lost needle one", "lost needle two"]);
    session.close().unwrap();
    assert_eq!(workspace.find("lost").len(), 2);
    let lost = copy_of(&dir.join("log"));
    // Restored from a copy, and gone on with otherwise. What is found is not all read, which would show what is missing.
    let one = MemoryQuery { limit: 1, sort: MemorySort::Oldest, ..MemoryQuery::of_text("needle") };
    assert_eq!(workspace.search(&one).total, 6);
    restore(&dir.join("log"), &copy);
    assert_eq!(workspace.search(&one).total, 4);
    restore(&dir.join("log"), &lost);
    assert_eq!(workspace.search(&one).total, 6);
    restore(&dir.join("log"), &copy);
    let (session, _) = workspace.store.resume(id).unwrap();
    talk(&session, &["other one", "other two", "other three"]);
    assert_eq!(workspace.search(&one).total, 4);
    assert_eq!(workspace.find("lost").len(), 0);
    assert_eq!(workspace.find("other").len(), 3);
    session.close().unwrap();
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(workspace.find("other").len(), 0);
    assert_eq!(workspace.find("needle").len(), 4);
}

fn copy_of(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn restore(dir: &Path, copy: &[(PathBuf, Vec<u8>)]) {
    fs::remove_dir_all(dir).unwrap();
    fs::create_dir(dir).unwrap();
    for (path, bytes) in copy {
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn a_hurt_log_costs_what_is_hurt() {
    let workspace = indexed();
    let session = workspace.session("third");
    talk(&session, &["alpha needle", "beta needle", "gamma needle"]);
    session.close().unwrap();
    let log = workspace
        .in_workspace("sessions")
        .join(workspace.search(&MemoryQuery::of_text("beta")).hits[0].id.session.to_string());
    let segment = copy_of(&log.join("log")).remove(0);
    let mut bytes = segment.1;
    let at = bytes.windows(4).position(|window| window == b"beta").unwrap();
    bytes[at] ^= 1;
    fs::write(&segment.0, bytes).unwrap();
    fs::remove_file(workspace.in_workspace(INDEX)).unwrap();
    assert_eq!(workspace.find("beta").len(), 0);
    assert_eq!(workspace.find("needle").len(), 6);
}

#[test]
fn the_archive_of_a_deleted_session_is_found_and_of_a_forgotten_one_nothing() {
    let workspace = indexed();
    let session = workspace.session("xyzzy goal");
    workspace.turn(&session, "xyzzy asked", ["run", r#"{"word":"xyzzy"}"#, "xyzzy result"], "xyzzy answer");
    session.tag(vec!["plugh".to_owned()], vec![]).unwrap();
    let id = session.id();
    session.close().unwrap();
    let before = workspace.search(&MemoryQuery::of_text("xyzzy"));
    assert_eq!(before.total, 5);
    let first = before.hits[0].id;
    workspace.memory().attach_vector(first, "m", &[1.0, 0.0]).unwrap();
    workspace.store.delete(id).unwrap();
    assert!(!workspace.in_workspace("sessions").join(id.to_string()).exists());
    let behind = workspace.search(&MemoryQuery::of_text("xyzzy"));
    assert_eq!(behind.hits, before.hits, "the same records, by the same names");
    let page = workspace.memory().read(first, 0, 1000).unwrap();
    assert_eq!(page.record.text, before.hits[0].excerpt.text);
    let vector = sessionlog::projections::memory::QueryVector {
        model: "m".to_owned(),
        components: vec![1.0, 0.0],
        weight: 1.0,
    };
    let near = MemoryQuery { vector: Some(vector), ..MemoryQuery::default() };
    assert_eq!(workspace.search(&near).hits[0].id, first);
    workspace.store.forget(id).unwrap();
    assert_eq!(workspace.search(&MemoryQuery::of_text("xyzzy")).total, 0);
    assert_eq!(workspace.search(&near).total, 0);
    assert_eq!(workspace.find("needle").len(), 4);
    let mut dirs = vec![workspace.home()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                dirs.push(entry);
            } else {
                let bytes = fs::read(&entry).unwrap();
                assert!(!bytes.windows(5).any(|window| window == b"xyzzy"), "{}", entry.display());
            }
        }
    }
}

#[test]
fn a_session_that_is_there_and_archived_is_found_once() {
    let workspace = indexed();
    let session = workspace.session("xyzzy");
    let (id, dir) = (session.id(), workspace.in_workspace("sessions").join(session.id().to_string()));
    talk(&session, &["xyzzy again"]);
    session.close().unwrap();
    let copy = copy_of(&dir.join("log"));
    workspace.store.delete(id).unwrap();
    assert_eq!(workspace.find("xyzzy").len(), 2);
    // As a crash leaves it before the deletion is decided.
    fs::create_dir_all(dir.join("log")).unwrap();
    restore(&dir.join("log"), &copy);
    assert_eq!(workspace.find("xyzzy").len(), 2);
    assert_eq!(workspace.find("needle").len(), 4);
}

#[test]
fn many_may_search_and_index_at_once() {
    let workspace = indexed();
    // While it is held open, no other file is the same one.
    let first = fs::File::open(workspace.in_workspace(INDEX)).unwrap();
    let sessions: Vec<Session> = (0..4).map(|nth| workspace.session(&format!("goal {nth}"))).collect();
    let said = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for session in &sessions {
            scope.spawn(|| {
                for nth in 0..25 {
                    session.append(Message::user(format!("needle {nth}"))).unwrap();
                    said.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let before = said.load(Ordering::SeqCst);
                    let found = workspace.memory().search(&MemoryQuery::of_text("needle")).unwrap();
                    assert!(found.total >= before + 4, "{} of {before}", found.total);
                    if before == 100 {
                        break;
                    }
                }
            });
        }
    });
    assert_eq!(workspace.search(&MemoryQuery::of_text("needle")).total, 104);
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let last = fs::metadata(workspace.in_workspace(INDEX)).unwrap();
        assert_eq!(first.metadata().unwrap().ino(), last.ino(), "nobody had to make it anew");
    }
}

/// What this binary is run as, when it runs itself.
const ROLE: &str = "SESSIONLOG_MEMORY_ROLE";

#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (home, hash) = role.split_once('|').unwrap();
    let memory = Store::open(home).unwrap().memory(&WorkspaceHash::parse(hash).unwrap());
    for _ in 0..20 {
        assert_eq!(memory.search(&MemoryQuery::of_text("needle")).unwrap().total, 150);
    }
}

#[test]
fn processes_make_one_index_together() {
    let workspace = Workspace::new();
    for nth in 0..50 {
        let session = workspace.session(&format!("goal {nth}"));
        talk(&session, &["a needle", "another needle", "needle again"]);
        session.close().unwrap();
    }
    let role = format!("{}|{}", workspace.home().display(), workspace.hash);
    let run = || {
        let program = std::env::current_exe().unwrap();
        Command::new(program).args(["--exact", "role"]).env(ROLE, &role).output()
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..3).map(|_| scope.spawn(run)).collect();
        for other in others {
            let done = other.join().unwrap().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        }
    });
    assert_eq!(workspace.search(&MemoryQuery::of_text("needle")).total, 150);
}

#[test]
fn a_log_whose_files_are_as_they_were_is_not_opened() {
    let quiet = Quiet::default();
    let opened = Arc::clone(&quiet.opened);
    let workspace = Workspace::on(Arc::new(quiet));
    // No space is left behind what they end with: they were closed.
    let open: Vec<Session> = (0..40).map(|nth| workspace.session(&format!("goal {nth}"))).collect();
    let ids: Vec<_> = open.iter().map(Session::id).collect();
    for session in open {
        session.close().unwrap();
    }
    let search = || {
        let before = opened.load(Ordering::SeqCst);
        let found = workspace.memory().search(&MemoryQuery::of_text("needle")).unwrap();
        assert_eq!(found.by, FoundBy::Index);
        (found.total, opened.load(Ordering::SeqCst) - before)
    };
    search();
    assert_eq!(search(), (0, 0));
    let id = RecordId { session: ids[7], position: Position(1), part: 0 };
    let segment = workspace.in_workspace(format!("sessions/{}/log/{:020}.seg", id.session, 1));
    let stamp = |path: &Path| OsStorage.stamp(path).unwrap().unwrap().modified;
    let session = workspace.store.resume(ids[7]).unwrap().0;
    let before = stamp(&segment);
    // Until the clock of files has ticked, which is why a file has to have been quiet.
    let mut said = 0;
    while stamp(&segment) == before {
        talk(&session, &["needle"]);
        said += 1;
    }
    let (total, opened) = search();
    assert_eq!(total, said);
    assert!((1..20).contains(&opened), "{opened} openings, for one of 40 logs and the hits in it");
    let off = workspace.memory().with_index(IndexPolicy::Off);
    assert_eq!(off.search(&MemoryQuery::of_text("needle")).unwrap().total, said);
}

/// A frame that is written into space that was there is on disk before the file's times are: after a loss of power the log may
/// be longer, and its file look as it did. So a file that does not end with its last frame proves nothing.
#[test]
fn a_log_with_space_left_is_looked_at() {
    let quiet = Quiet::default();
    let opened = Arc::clone(&quiet.opened);
    let workspace = Workspace::on(Arc::new(quiet));
    let session = workspace.session("left open");
    talk(&session, &["needle"]);
    let segment = workspace.in_workspace(format!("sessions/{}/log/{:020}.seg", session.id(), 1));
    assert!(fs::read(segment).unwrap().ends_with(&[0; 64]), "no space is left");
    let openings = || {
        let before = opened.load(Ordering::SeqCst);
        assert_eq!(workspace.memory().search(&MemoryQuery::of_text("nothing")).unwrap().by, FoundBy::Index);
        opened.load(Ordering::SeqCst) - before
    };
    openings();
    assert!(openings() > 0);
    session.close().unwrap();
    openings();
    assert_eq!(openings(), 0);
}
