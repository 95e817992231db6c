//! The catalog makes a listing faster and changes nothing about it: absent, full, outdated, damaged or in use. Reports like
//! T11 and T17 are of lists that lived in a second store, which failed to write once and was never right again.

#![cfg(feature = "catalog")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

use std::io::Write;
use std::path::{Path, PathBuf};

use sessionlog::codec::event::{Effect, FinalStatus, NodeBound, TitleOrigin, TurnOutcome};
use sessionlog::codec::ids::SessionId;
use sessionlog::{
    CatalogPolicy, ChildResult, Delegated, Delegation, Durability, ForkOptions, ForkPoint, LogOptions,
    Message, NewSession, Session, Store, StoreOptions, Work,
};

const SESSIONS: usize = 40;

fn store(home: &Path) -> Store {
    let log = LogOptions { segment_len: 512, fill_len: 512 };
    let durability = Durability::Buffered;
    Store::open_with(home, StoreOptions { log, durability, ..StoreOptions::default() }).unwrap()
}

/// A session of some kind: with children, forked, finished, titled, many segments long, or left open.
fn grow(store: &Store, workspace: &Path, number: usize) -> Option<Session> {
    let session = store.create(workspace, NewSession::new(format!("goal {number}"))).unwrap();
    for turn in 0..=number % 5 {
        session.prompt(Message::user(format!("prompt {turn} {}", "word ".repeat(60)))).unwrap();
        session.append(Message::assistant("I look.").call("c", "run", "{}").model("m1")).unwrap();
        let Some(Work::Call(call)) = session.work().unwrap().into_iter().next() else { panic!() };
        if number.is_multiple_of(3) {
            let delegation = Delegation::external("oracle", "Tell me.");
            assert!(matches!(call.delegate(delegation).unwrap(), Delegated::Child(_)));
            let Some(Work::Ask(request)) = session.work().unwrap().into_iter().next() else { panic!() };
            let agent = request.bind(bound()).unwrap();
            agent.said(Message::assistant("Hm.")).unwrap();
            agent.settle(ChildResult::completed("42")).unwrap();
        } else {
            drop(call.start(Effect::Mutating).unwrap());
        }
        session.append(Message::assistant("Done.")).unwrap();
        session.end_turn(TurnOutcome::Completed).unwrap();
    }
    match number % 4 {
        0 => drop(session.finish(FinalStatus::Completed).unwrap()),
        1 => {
            session.set_title(format!("title {number}"), TitleOrigin::Person).unwrap();
            session.close().unwrap();
        }
        2 => drop(session.fork(ForkPoint::Head, ForkOptions::default()).unwrap()),
        _ => return Some(session),
    }
    None
}

fn bound() -> NodeBound {
    let (api_mode, candidate, conversation_id, profile_hash) = (None, None, None, None);
    NodeBound { model: "m2".to_owned(), api_mode, candidate, conversation_id, profile_hash }
}

/// The listing with the catalog is the one without; twice, since the first may have filled it.
#[track_caller]
fn check(store: &Store) -> usize {
    let without = format!("{:#?}", store.reader().list().unwrap());
    for _ in 0..2 {
        assert_eq!(format!("{:#?}", store.list().unwrap()), without);
    }
    store.reader().list().unwrap().len()
}

fn catalog(home: &Path) -> PathBuf {
    home.join("index/catalog")
}

#[test]
fn a_listing_is_the_same_whatever_becomes_of_the_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let store = store(&home);
    let mut open: Vec<Session> =
        (0..SESSIONS).filter_map(|number| grow(&store, dir.path(), number)).collect();
    let rows = check(&store);
    assert!(rows > SESSIONS && catalog(&home).is_dir());

    // Sessions go on, are retitled, let go of, and resumed.
    for (number, session) in open.iter().enumerate() {
        session.append(Message::user(format!("more {number}"))).unwrap();
    }
    check(&store);
    let gone: SessionId = open.pop().unwrap().id();
    let ids: Vec<SessionId> = open.iter().map(Session::id).collect();
    drop(open);
    check(&store);
    for id in &ids {
        let (session, _) = store.resume(*id).unwrap();
        session.set_title("again", TitleOrigin::Person).unwrap();
        session.close().unwrap();
    }
    check(&store);
    let place = store.reader().session(gone).unwrap().place().clone();
    std::fs::remove_dir_all(&place.dir).unwrap();
    let fewer = check(&store);
    assert!(fewer < rows);

    // A damaged end of a log is a row with its issue, each time.
    let segment = last_segment(&store, ids[0]);
    let bytes = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &bytes[..bytes.len() / 2]).unwrap();
    check(&store);
    std::fs::write(&segment, bytes).unwrap();
    check(&store);
}

fn last_segment(store: &Store, id: SessionId) -> PathBuf {
    let log = store.reader().session(id).unwrap().place().dir.join("log");
    let mut segments: Vec<PathBuf> =
        std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    segments.pop().unwrap()
}

/// Every file of the database in every bad state; then the whole of it something else.
#[test]
fn a_damaged_catalog_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let store = store(&home);
    (0..SESSIONS).for_each(|number| drop(grow(&store, dir.path(), number)));
    check(&store);
    let files = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_file()).collect()
    };
    for file in files(&catalog(&home)) {
        // A catalog that is made anew has other files.
        let Ok(whole) = std::fs::read(&file) else { continue };
        let half = whole[..whole.len() / 2].to_vec();
        let zeros = vec![0; whole.len()];
        let noise = (0..4096_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let mut flipped = whole.clone();
        let middle = flipped.len() / 2;
        if let Some(byte) = flipped.get_mut(middle) {
            *byte ^= 0x40;
        }
        for bad in [Vec::new(), half, zeros, noise, flipped] {
            std::fs::write(&file, bad).unwrap();
            check(&store);
        }
    }
    std::fs::remove_dir_all(catalog(&home)).unwrap();
    std::fs::write(catalog(&home), b"not a directory").unwrap();
    check(&store);
    check(&store);
}

#[test]
fn a_catalog_in_use_or_forbidden_makes_it_slower_only() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let store = store(&home);
    (0..SESSIONS).for_each(|number| drop(grow(&store, dir.path(), number)));
    check(&store);
    let held = std::fs::File::options().read(true).write(true).open(catalog(&home).join("db")).unwrap();
    held.try_lock().unwrap();
    check(&store);
    assert!(!home.join("index/catalog.damaged").exists(), "one in use is not damaged");
    drop(held);
    check(&store);
    let off = StoreOptions { catalog: CatalogPolicy::Off, ..StoreOptions::default() };
    std::fs::remove_dir_all(home.join("index")).unwrap();
    assert_eq!(Store::open_with(&home, off).unwrap().list().unwrap().len(), check(&store));
    std::fs::remove_dir_all(home.join("index")).unwrap();
    Store::open_with(&home, off).unwrap().list().unwrap();
    assert!(!home.join("index").exists());
}

/// A row is used as long as its log ends where it did, in a directory that is as it was: that is all that is looked at.
#[test]
fn a_row_is_taken_from_the_catalog_and_not_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let store = store(&home);
    (0..SESSIONS).for_each(|number| drop(grow(&store, dir.path(), number)));
    let before = format!("{:?}", store.list().unwrap());
    let long = store
        .reader()
        .places()
        .unwrap()
        .into_iter()
        .find(|place| std::fs::read_dir(place.dir.join("log")).unwrap().count() > 3);
    let first = long.unwrap().dir.join("log").join("00000000000000000001.seg");
    let len = usize::try_from(std::fs::metadata(&first).unwrap().len()).unwrap();
    std::fs::File::options().write(true).open(&first).unwrap().write_all(&vec![0xff; len]).unwrap();
    assert_eq!(format!("{:?}", store.list().unwrap()), before);
    assert_ne!(format!("{:?}", store.reader().list().unwrap()), before);
}

/// A title is taken from a prompt, and a database keeps what it had written before.
#[test]
fn what_was_erased_is_not_in_the_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let store = store(&home);
    (0..SESSIONS).for_each(|number| drop(grow(&store, dir.path(), number)));
    let session = store.create(dir.path(), NewSession::default()).unwrap();
    let said = session.prompt(Message::user("xyzzy-plugh")).unwrap();
    check(&store);
    let holds = || {
        let found =
            std::process::Command::new("grep").args(["-ra", "xyzzy-plugh"]).arg(&home).output().unwrap();
        !found.stdout.is_empty()
    };
    assert!(holds());
    session.redact(&std::collections::BTreeSet::from([said.position]), "because").unwrap();
    assert!(!holds());
    check(&store);
    assert!(!holds());
}
