//! Artifacts of a session that is forked into another workspace, or saved into another home: they are there, durable, before anything there names them,
//! however they come: by a second name, as a copy, or as what the other workspace had already.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

#[path = "support/shelf.rs"]
mod shelf;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sessionlog::codec::ids::Digest;
use sessionlog::storage::{Call, CallKind, CrashMode, Fault, FaultError, Repeat, SimStorage, Storage};
use sessionlog::store::{WorkspaceHash, canonical};
use sessionlog::{CallResult, ForkOptions, ForkPoint, GcOptions, NewArtifact, NewSession, Session, Store};
use shelf::{Hand, blob_path, check_named, named, new_session, run_call, store_on};

const LEN: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A second name for the file.
    Linked,
    /// The file system has no second names.
    Copied,
    /// The other workspace has the same content.
    There,
    /// The other workspace has the same content, and it is hurt.
    HurtThere,
    /// Somebody wrote the same content in the other workspace, and was killed before its name was durable.
    KilledThere,
    /// This process did, and the sync of the directory failed: nobody knows what a later one that says `Ok` is worth.
    DoubtfulThere,
}

const WAYS: [Way; 6] =
    [Way::Linked, Way::Copied, Way::There, Way::HurtThere, Way::KilledThere, Way::DoubtfulThere];

fn long() -> String {
    "x".repeat(LEN)
}

fn elsewhere() -> PathBuf {
    let other = WorkspaceHash::of(&canonical(Path::new("/elsewhere")));
    blob_path("home", &other, &Digest::of(long().as_bytes()))
}

fn at_home(content: &str) -> PathBuf {
    blob_path("home", &shelf::workspace(), &Digest::of(content.as_bytes()))
}

/// A session whose log names one artifact, and how things stand in the other workspace.
fn prepared(way: Way) -> (SimStorage, Hand, Store, Session) {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let store = store_on(&storage, &clock);
    let session = new_session(&store);
    run_call(&session, CallResult::succeeded(long())).unwrap();
    if !matches!(way, Way::Linked | Way::Copied) {
        let other = store.create("/elsewhere", NewSession::new("other")).unwrap();
        let shelf = elsewhere().parent().unwrap().to_owned();
        if matches!(way, Way::KilledThere | Way::DoubtfulThere) {
            // So that the directories are there, and durable.
            other.artifacts().put(NewArtifact::new("x", long())).unwrap();
            storage.remove_file(&elsewhere()).unwrap();
            storage.sync_dir(&shelf).unwrap();
        }
        match way {
            Way::KilledThere => {
                let file = storage.create_new(&elsewhere()).unwrap();
                file.write_at(long().as_bytes(), 0).unwrap();
                file.sync_all().unwrap();
            }
            Way::DoubtfulThere => {
                storage.fail(Fault::new(CallKind::SyncDir, FaultError::EIO).on(shelf));
                other.artifacts().put(NewArtifact::new("x", long())).unwrap_err();
            }
            _ => drop(other.artifacts().put(NewArtifact::new("x", long())).unwrap()),
        }
        other.close().unwrap();
    }
    if way == Way::HurtThere {
        storage.corrupt(elsewhere(), |bytes| bytes[LEN / 2] ^= 1).unwrap();
    }
    (storage, clock, store, session)
}

fn refuse_links(storage: &SimStorage, way: Way) {
    if way == Way::Copied {
        // EXDEV. The log's segments may be linked.
        for content in [long(), "d".repeat(LEN)] {
            let fault = Fault::new(CallKind::HardLink, FaultError::Errno(18)).repeat(Repeat::Always);
            storage.fail(fault.on(at_home(&content)));
        }
    }
}

fn fork(session: &Session) -> sessionlog::Result<Session> {
    session
        .fork(ForkPoint::Head, ForkOptions { workspace: Some("/elsewhere".into()), ..ForkOptions::default() })
}

/// Power is lost at every call of the fork, and once it is done.
#[test]
fn what_a_fork_names_is_there_whenever_power_is_lost() {
    for way in WAYS {
        let (mut at, mut named_after) = (0, 0);
        loop {
            let (storage, clock, _store, session) = prepared(way);
            refuse_links(&storage, way);
            storage.fail(Fault::any(FaultError::EIO).after(at).repeat(Repeat::Always));
            let done = fork(&session).map(|fork| fork.id());
            for mode in (0..6).map(CrashMode::Seeded).chain([CrashMode::LoseAll, CrashMode::KeepAll]) {
                let after = storage.power_cut(mode);
                let store = store_on(&after, &clock);
                if let Ok(fork) = &done {
                    let (fork, _) = store.resume(*fork).unwrap();
                    assert_eq!(named(&fork.reader()).len(), 1, "{way:?}, {mode:?} at {at}");
                    named_after += 1;
                }
                assert_eq!(check_named(&store).len(), 1, "{way:?}, {mode:?} at {at}");
            }
            // Once nothing of the fork is left for the fault: what comes later is the closing of sessions.
            if done.is_ok() && at > 60 {
                break;
            }
            at += 1;
        }
        assert!(named_after > 0, "{way:?}");
    }
}

/// However it came: it is whole, it is the fork's own, and a collection that begins at once leaves it.
#[test]
fn each_way_gives_the_fork_its_own() {
    for way in WAYS {
        let (storage, clock, store, session) = prepared(way);
        refuse_links(&storage, way);
        clock.forward(10 * shelf::HOUR);
        let now = clock.read();
        storage.take_calls();
        let fork = fork(&session).unwrap();
        let calls = storage.take_calls();
        let shelf = elsewhere().parent().unwrap().to_owned();
        let written = |call: &Call| call.kind() == CallKind::Create && call.path().starts_with(&shelf);
        let is_written_anew = matches!(way, Way::Copied | Way::HurtThere | Way::DoubtfulThere);
        assert_eq!(calls.iter().any(written), is_written_anew, "{way:?}");
        assert!(storage.modified(&elsewhere()).unwrap() >= Some(now), "{way:?}: as young as the fork");
        shelf::delete(&storage, session.id());
        let nothing = GcOptions { grace: Duration::ZERO, ..GcOptions::default() };
        session.artifacts().gc(&nothing).unwrap();
        assert_eq!(fork.artifacts().gc(&nothing).unwrap().dropped, [], "{way:?}");
        assert_eq!(check_named(&store).len(), 1, "{way:?}");
    }
}

/// What an artifact was derived from may be collected by now. The fork has the rest.
#[test]
fn what_an_artifact_was_derived_from_may_be_missing() {
    for way in [Way::Linked, Way::Copied] {
        let (storage, _, store, session) = prepared(way);
        let parent = session.artifacts().put(NewArtifact::new("base", "p".repeat(LEN))).unwrap();
        let derived = NewArtifact::new("derived", "d".repeat(LEN)).parent(parent.digest);
        let derived = session.artifacts().put(derived).unwrap();
        run_call(&session, CallResult::succeeded("d".repeat(LEN))).unwrap();
        storage.remove_file(&at_home(&"p".repeat(LEN))).unwrap();
        refuse_links(&storage, way);
        let fork = fork(&session).unwrap();
        assert_eq!(check_named(&store).len(), 2, "{way:?}");
        let there = fork.artifacts();
        assert_eq!(there.read().inspect(&derived.digest).unwrap().parents, [parent.digest]);
        assert_eq!(there.read().inspect(&parent.digest).unwrap_err().code(), "artifact.missing");
    }
}

/// A copy of a hurt session has what the session names, as far as it is whole; nothing else goes along, and nothing of the old
/// home is changed.
#[test]
fn what_a_saved_copy_names_is_there() {
    let (storage, clock, store, session) = prepared(Way::Linked);
    session.artifacts().put(NewArtifact::new("put", "put and not named")).unwrap();
    let hurt = "h".repeat(LEN);
    run_call(&session, CallResult::succeeded(hurt.clone())).unwrap();
    let other = new_session(&store);
    other.artifacts().put(NewArtifact::new("other", "another session's")).unwrap();
    other.close().unwrap();
    let id = session.id();
    session.close().unwrap();
    storage.corrupt(at_home(&hurt), |bytes| bytes[7] ^= 1).unwrap();
    let before: Vec<_> = storage.files().into_iter().map(|path| (storage.read_file(&path), path)).collect();
    let salvage = store.reader().session(id).unwrap().plan_salvage(&mut |_| {}).unwrap();
    salvage.carry_out("saved".as_ref(), &mut |_| {}).unwrap();
    assert!(before.iter().all(|(bytes, path)| storage.read_file(path) == *bytes));
    for storage in [storage.clone(), storage.power_cut(CrashMode::LoseAll)] {
        let saved =
            Store::open_on(Arc::new(storage), Arc::new(clock.clone()), "saved", shelf::options()).unwrap();
        let there = saved.reader().artifacts(&shelf::workspace());
        let listed: Vec<Digest> = there.list().unwrap().into_iter().map(|entry| entry.digest).collect();
        assert_eq!(listed, [Digest::of(long().as_bytes())]);
        assert_eq!(there.inspect(&Digest::of(long().as_bytes())).unwrap().len, 1_000);
        let (session, _) = saved.resume(id).unwrap();
        assert_eq!(named(&session.reader()).len(), 2);
    }
}
