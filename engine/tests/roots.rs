//! The list of roots: of all workspaces, whatever is broken; and what is said about them besides.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![cfg(unix)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use sessionlog::codec::ids::SessionId;
use sessionlog::storage::{CrashMode, Fault, FaultError, Repeat, SimStorage, Storage};
use sessionlog::{
    ErrorKind, ForkOptions, ForkPoint, Message, NewSession, Registered, RootRow, Roots, Store, StoreReader,
    WorkspaceHash, WorkspaceName, WorkspaceState,
};
use support::tree::{open, try_open_with};

struct Place {
    dir: tempfile::TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("home")).unwrap();
        Self { dir, store }
    }

    /// A directory of code. Its path is the one spelling of it.
    fn workspace(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path.canonicalize().unwrap()
    }

    fn session(&self, workspace: &Path, goal: &str) -> SessionId {
        let session = self.store.create(workspace, NewSession::new(goal)).unwrap();
        session.append(Message::user(goal)).unwrap();
        let id = session.id();
        session.close().unwrap();
        id
    }

    fn home(&self, below: &str) -> PathBuf {
        self.dir.path().join("home").join(below)
    }
}

#[track_caller]
fn row(roots: &Roots, id: SessionId) -> &RootRow {
    roots.rows.iter().find(|row| row.session.root == id).unwrap()
}

fn hash_of(path: &Path) -> WorkspaceHash {
    WorkspaceHash::of(path)
}

#[test]
fn roots_of_all_workspaces_are_one_list() {
    let place = Place::new();
    let (one, two) = (place.workspace("one"), place.workspace("two"));
    let a = place.session(&one, "first");
    let b = place.session(&two, "second");
    let fork = place.store.fork(b, ForkPoint::Head, ForkOptions::default()).unwrap();
    fork.append(Message::user("third")).unwrap();
    let roots = place.store.roots().unwrap();
    assert_eq!(roots.issues, []);
    assert_eq!(roots.rows.len(), 3);
    let paths =
        [row(&roots, a), row(&roots, b), row(&roots, fork.id())].map(|row| row.workspace.path.clone());
    assert_eq!(paths, [one, two.clone(), two]);
    assert_eq!(row(&roots, fork.id()).session.forked.unwrap().session, b);
    assert_eq!(roots.rows[0].session.root, fork.id(), "the newest activity first");
    for row in &roots.rows {
        assert_eq!((row.workspace.state, &row.workspace.begun), (WorkspaceState::Present, &None));
        assert!(row.hidden.is_none() && row.session.issue.is_none() && row.workspace.issue.is_none());
    }
    let read = StoreReader::open(place.home("")).unwrap().roots().unwrap();
    assert_eq!(read.rows.len(), 3);
    assert!(!place.home("user").exists(), "looking wrote nothing");
}

#[test]
fn of_a_hundred_one_is_broken_and_ninety_nine_are_fine() {
    let place = Place::new();
    let workspace = place.workspace("w");
    let ids: Vec<_> = (0..100).map(|nth| place.session(&workspace, &format!("goal {nth}"))).collect();
    let log = place.home(&format!("workspaces/{}/sessions/{}/log", hash_of(&workspace), ids[37]));
    let segment = fs::read_dir(log).unwrap().next().unwrap().unwrap().path();
    fs::write(segment, b"this was a log").unwrap();
    // What else can be wrong in a home.
    let other = place.workspace("other");
    place.session(&other, "in a broken workspace");
    let sessions = place.home(&format!("workspaces/{}/sessions", hash_of(&other)));
    fs::remove_dir_all(&sessions).unwrap();
    fs::write(&sessions, b"").unwrap();
    fs::write(place.home("workspaces/notes.txt"), b"").unwrap();
    let link = sessionlog::new_session_id();
    let mine = place.home(&format!("workspaces/{}/sessions", hash_of(&workspace)));
    std::os::unix::fs::symlink("/nowhere", mine.join(link.to_string())).unwrap();
    for roots in [place.store.roots().unwrap(), place.store.reader().roots().unwrap()] {
        assert_eq!(roots.rows.len(), 100);
        let broken: Vec<_> = roots.rows.iter().filter(|row| row.session.issue.is_some()).collect();
        assert_eq!(broken.iter().map(|row| row.session.root).collect::<Vec<_>>(), [ids[37]]);
        assert_eq!(broken[0].workspace.path, workspace, "what can be told of it is");
        let issues: Vec<_> = roots.issues.iter().map(|issue| issue.place.as_str()).collect();
        let expected = [
            format!("workspaces/{}", hash_of(&other)),
            format!("workspaces/{}/sessions/{link}", hash_of(&workspace)),
            "workspaces/notes.txt".to_owned(),
        ];
        assert_eq!(issues.len(), 3, "{issues:?}");
        assert!(expected.iter().all(|place| issues.contains(&place.as_str())), "{issues:?}");
    }
}

#[test]
fn how_a_workspace_stands_is_told() {
    let place = Place::new();
    let names = ["gone", "mute", "empty", "liar"];
    let paths = names.map(|name| place.workspace(name));
    let ids: Vec<_> = paths.iter().map(|path| place.session(path, "x")).collect();
    let unknown = place.store.create_foreign(b"", NewSession::new("from elsewhere")).unwrap().id();
    let path_file = |nth: usize| place.home(&format!("workspaces/{}/path.txt", hash_of(&paths[nth])));
    fs::remove_dir(&paths[0]).unwrap();
    fs::remove_file(path_file(1)).unwrap();
    fs::write(path_file(2), b"").unwrap();
    fs::write(path_file(3), b"/somewhere/else").unwrap();
    let roots = place.store.roots().unwrap();
    let told = |id| {
        let workspace = &row(&roots, id).workspace;
        (workspace.state.word(), workspace.issue.is_some())
    };
    let expected = [("missing", false), ("unnamed", true), ("unnamed", true), ("mismatched", true)];
    assert_eq!(ids.iter().map(|id| told(*id)).collect::<Vec<_>>(), expected);
    assert_eq!(told(unknown), ("unnamed", false), "nothing is wrong where nothing was known");
    // Whatever it was, it can be said where it is.
    let now = place.workspace("now");
    for path in &paths {
        let done = place.store.reattach(&WorkspaceName::Hash(hash_of(path)), &now).unwrap();
        assert_eq!(done.sessions.len(), 1);
    }
    let roots = place.store.roots().unwrap();
    for id in ids {
        let workspace = &row(&roots, id).workspace;
        assert_eq!((workspace.state, &workspace.issue), (WorkspaceState::Moved, &None));
        assert_eq!(workspace.path, now);
    }
}

#[test]
fn a_moved_workspace_is_attached_to_where_it_is() {
    let place = Place::new();
    let old = place.workspace("old");
    let ids = [place.session(&old, "a"), place.session(&old, "b")];
    place.store.unregister(ids[1], "done with").unwrap();
    fs::rename(&old, place.dir.path().join("new")).unwrap();
    let new = place.workspace("new");
    assert_eq!(row(&place.store.roots().unwrap(), ids[0]).workspace.state, WorkspaceState::Missing);

    let name = WorkspaceName::Path(old.clone());
    let log = place.home("user/log");
    let before = fs::read(fs::read_dir(&log).unwrap().next().unwrap().unwrap().path()).unwrap();
    let planned = place.store.reader().reattachment(&name, &new).unwrap();
    let after = fs::read(fs::read_dir(&log).unwrap().next().unwrap().unwrap().path()).unwrap();
    assert_eq!(before, after, "a preview writes nothing");
    let done = place.store.reattach(&name, &new).unwrap();
    assert_eq!(planned, done);
    assert_eq!((done.sessions.len(), done.already), (2, 0));
    assert!(done.sessions.iter().all(|it| it.from == old));
    for again in [&name, &WorkspaceName::Path(new.clone()), &WorkspaceName::Hash(hash_of(&old))] {
        let again = place.store.reattach(again, &new).unwrap();
        assert_eq!((again.sessions.len(), again.already), (0, 2), "repeated, it changes nothing");
    }

    // A session that is begun at the new path has a directory of its own, and is shown with the others.
    let newer = place.session(&new, "c");
    let roots = place.store.roots().unwrap();
    for id in [ids[0], ids[1], newer] {
        assert_eq!(row(&roots, id).workspace.path, new);
        assert_eq!(row(&roots, id).session.workspace, new.to_str().unwrap());
    }
    assert_eq!(row(&roots, ids[0]).workspace.state, WorkspaceState::Moved);
    assert_eq!(row(&roots, ids[0]).workspace.begun.as_ref(), Some(&old));
    assert_eq!(row(&roots, ids[0]).workspace.hash, hash_of(&old));
    assert_eq!(row(&roots, newer).workspace.hash, hash_of(&new));
    assert_eq!(row(&roots, ids[1]).hidden.as_ref().unwrap().reason, "done with", "hidden ones stay so");
    let listed = place.store.list().unwrap();
    assert!(listed.iter().all(|row| row.workspace == new.to_str().unwrap()), "every listing shows it");
    assert_eq!(place.store.reader().find(&ids[0].to_string()).unwrap().workspace, new.to_str().unwrap());

    // So does a fork of one that was moved: it is begun where its workspace is.
    let fork = place.store.fork(ids[0], ForkPoint::Head, ForkOptions::default()).unwrap();
    let found = row(&place.store.roots().unwrap(), fork.id()).workspace.clone();
    assert_eq!((found.hash, found.path), (hash_of(&new), new.clone()));
    fork.close().unwrap();

    // The last one wins; by its path, all that is shown under it is meant.
    let third = place.workspace("third");
    let moved = place.store.reattach(&WorkspaceName::Path(new.clone()), &third).unwrap();
    assert_eq!(moved.sessions.len(), 4);
    let roots = place.store.roots().unwrap();
    assert!(roots.rows.iter().all(|row| row.workspace.path == third));
    // Back to where it began: as if it had never been attached.
    place.store.reattach(&WorkspaceName::Hash(hash_of(&new)), &new).unwrap();
    let row = row(&place.store.roots().unwrap(), newer).workspace.clone();
    assert_eq!((row.path, row.begun, row.state), (new, None, WorkspaceState::Present));
}

#[test]
fn nothing_is_attached_to_what_is_not_there() {
    let place = Place::new();
    let workspace = place.workspace("w");
    place.session(&workspace, "a");
    let name = WorkspaceName::Path(workspace.clone());
    let nowhere = place.store.reattach(&name, &place.dir.path().join("typo")).unwrap_err();
    assert_eq!((nowhere.kind(), nowhere.code()), (ErrorKind::Invalid, "workspace.missing"));
    for unknown in [WorkspaceName::Path("/nobody".into()), WorkspaceName::Hash(hash_of(Path::new("/nobody")))]
    {
        let error = place.store.reattach(&unknown, &workspace).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::NotFound, "workspace.unknown"));
    }
    assert_eq!(
        place.store.unregister(sessionlog::new_session_id(), "x").unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn a_hidden_root_is_hidden_until_it_is_listed_again() {
    let place = Place::new();
    let id = place.session(&place.workspace("w"), "a");
    assert_eq!(place.store.register(id).unwrap(), Registered::Already);
    assert_eq!(place.store.unregister(id, "old").unwrap(), Registered::Now);
    assert_eq!(place.store.unregister(id, "again").unwrap(), Registered::Already);
    assert_eq!(row(&place.store.roots().unwrap(), id).hidden.as_ref().unwrap().reason, "old");
    // It is only not shown.
    assert_eq!(place.store.list().unwrap().len(), 1);
    place.store.resume(id).unwrap().0.close().unwrap();
    assert_eq!(place.store.register(id).unwrap(), Registered::Now);
    let roots = place.store.roots().unwrap();
    assert!(row(&roots, id).hidden.is_none());
    assert_eq!(row(&roots, id).workspace.state, WorkspaceState::Present);
}

#[test]
fn several_at_once_lose_nothing() {
    let place = Place::new();
    let (old, new) = (place.workspace("old"), place.workspace("new"));
    let ids: Vec<_> = (0..8).map(|nth| place.session(&old, &nth.to_string())).collect();
    std::thread::scope(|scope| {
        for id in &ids {
            let home = place.home("");
            scope.spawn(move || Store::open(home).unwrap().unregister(*id, "at once").unwrap());
        }
        for _ in 0..2 {
            let (home, old, new) = (place.home(""), old.clone(), new.clone());
            scope
                .spawn(move || Store::open(home).unwrap().reattach(&WorkspaceName::Path(old), &new).unwrap());
        }
    });
    let roots = place.store.roots().unwrap();
    for id in ids {
        let row = row(&roots, id);
        assert!(row.hidden.is_some(), "an attachment did not list it again");
        assert_eq!(row.workspace.path, new);
    }
}

#[test]
fn a_hurt_users_log_hides_nothing_and_fails_no_list() {
    let place = Place::new();
    let ids = [place.session(&place.workspace("w"), "a"), place.session(&place.workspace("w"), "b")];
    for id in ids {
        place.store.unregister(id, "old").unwrap();
    }
    let segment = fs::read_dir(place.home("user/log")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&segment).unwrap();
    // Within the first of several frames: acknowledged data.
    bytes[200] ^= 0xff;
    fs::write(segment, bytes).unwrap();
    let roots = place.store.roots().unwrap();
    assert!(roots.rows.iter().all(|row| row.hidden.is_none()));
    assert_eq!(roots.issues.len(), 1);
    assert_eq!(roots.issues[0].place, "user/log");
    assert_eq!(place.store.list().unwrap().len(), 2);
    assert_eq!(place.store.register(ids[0]).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Power is lost before each call to the disk while a workspace is attached and a root hidden: it is as it was, or done,
/// and what was acknowledged is done; repeating it finishes it.
#[test]
fn a_loss_of_power_leaves_a_registration_undecided_or_done() {
    let (mut undecided, mut done) = (0, 0);
    for stop in 0.. {
        let storage = SimStorage::new();
        storage.create_dir(Path::new("/new")).unwrap();
        let store = open(&storage);
        let session = store.create("/old", NewSession::new("a")).unwrap();
        let id = session.id();
        session.close().unwrap();
        storage.fail(Fault::any(FaultError::EIO).after(stop).repeat(Repeat::Always));
        let hid = store.unregister(id, "old");
        let attached = store.reattach(&WorkspaceName::Path("/old".into()), Path::new("/new"));
        let finished = hid.is_ok() && attached.is_ok();
        storage.clear_faults();
        for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Seeded(stop)] {
            let after = storage.power_cut(mode);
            let store = try_open_with(&after, sessionlog::StoreOptions::default()).unwrap();
            let roots = store.roots().unwrap();
            assert_eq!(roots.issues, []);
            let found = row(&roots, id);
            assert!(hid.is_err() || found.hidden.is_some(), "stop {stop} {mode:?}");
            assert!(attached.is_err() || found.workspace.path == Path::new("/new"), "stop {stop} {mode:?}");
            if found.hidden.is_some() {
                done += 1;
            } else {
                undecided += 1;
            }
            store.unregister(id, "old").unwrap();
            store.reattach(&WorkspaceName::Hash(hash_of(Path::new("/old"))), Path::new("/new")).unwrap();
            let found = row(&store.roots().unwrap(), id).clone();
            assert!(found.hidden.is_some());
            assert_eq!(found.workspace.path, Path::new("/new"));
        }
        if finished {
            break;
        }
    }
    assert!(undecided > 10 && done > 10, "{undecided} {done}");
}

/// Power was lost after the file was made and before its text was written: it stayed empty for good.
#[test]
fn a_workspace_whose_path_was_lost_learns_it_again() {
    let mut empty = 0;
    for stop in 0.. {
        let storage = SimStorage::new();
        let store = open(&storage);
        storage.fail(Fault::any(FaultError::EIO).after(stop).repeat(Repeat::Always));
        let created = store.create("/work", NewSession::new("a")).map(|session| session.id());
        storage.clear_faults();
        let after = storage.power_cut(CrashMode::KeepAll);
        let file = Path::new("home/workspaces").join(hash_of(Path::new("/work")).as_str()).join("path.txt");
        empty += usize::from(after.read_file(&file).is_some_and(|bytes| bytes.is_empty()));
        let id = open(&after).create("/work", NewSession::new("b")).unwrap().id();
        assert_eq!(after.read_file(&file).unwrap(), b"/work");
        let roots = open(&after).roots().unwrap();
        assert_eq!(row(&roots, id).workspace.issue, None);
        if created.is_ok() {
            break;
        }
    }
    assert!(empty > 0);
}
