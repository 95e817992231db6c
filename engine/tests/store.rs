//! Homes and the sessions in them: what is created where, who may own it, how it is found.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "of small numbers"
)]

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use sessionlog::codec::event::{Effect, FinalStatus};
use sessionlog::codec::ids::{IdempotencyKey, Position, SessionId, Timestamp};
use sessionlog::projections::Status;
use sessionlog::storage::{CallKind, CrashMode, Fault, FaultError, SimStorage};
use sessionlog::store::WorkspaceHash;
use sessionlog::{
    CallResult, Clock, Durability, ErrorKind, Message, NewSession, ResumeOptions, Store, StoreOptions,
    StoreReader,
};

fn open(home: &Path) -> Store {
    Store::open(home).unwrap()
}

#[test]
fn a_home_is_created_where_nothing_is_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("a/b/home");
    open(&home);
    open(&home);
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert_eq!(StoreReader::open(&empty).unwrap_err().kind(), ErrorKind::NotFound);
    open(&empty);

    let foreign = dir.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("thesis.txt"), "important").unwrap();
    let before: Vec<_> =
        std::fs::read_dir(&foreign).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for error in [Store::open(&foreign).unwrap_err(), StoreReader::open(&foreign).unwrap_err()] {
        assert_eq!((error.kind(), error.code()), (ErrorKind::Invalid, "home.foreign"), "{error}");
    }
    let after: Vec<_> =
        std::fs::read_dir(&foreign).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(before, after);

    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert_eq!(Store::open(&file).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(StoreReader::open(dir.path().join("nothing")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_home_without_its_marker_is_known_by_its_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let id = {
        let session = open(&home).create(dir.path(), NewSession::default()).unwrap();
        let id = session.id();
        session.close().unwrap();
        id
    };
    std::fs::remove_file(home.join(".sessionlog")).unwrap();
    assert_eq!(StoreReader::open(&home).unwrap().list().unwrap()[0].id, id.to_string());
    open(&home).resume(id).unwrap().0.close().unwrap();
}

#[cfg(unix)]
#[test]
fn everything_is_private_and_where_the_layout_says() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let workspace = dir.path().join("work");
    std::fs::create_dir(&workspace).unwrap();
    let session = open(&home).create(&workspace, NewSession::default()).unwrap();
    session.append(Message::user("x")).unwrap();
    session.refresh_views().unwrap();
    let canonical = workspace.canonicalize().unwrap();
    let hash = WorkspaceHash::of(&canonical);
    let workspace_dir = home.join("workspaces").join(hash.as_str());
    assert_eq!(
        std::fs::read(workspace_dir.join("path.txt")).unwrap(),
        canonical.as_os_str().as_encoded_bytes()
    );
    let session_dir = workspace_dir.join("sessions").join(session.id().to_string());
    for name in ["owner.lock", "log/00000000000000000001.seg", ".meta.json", "transcript.jsonl", "cost.json"]
    {
        let mode = std::fs::metadata(session_dir.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    for path in [&home, &workspace_dir, &session_dir, &session_dir.join("log")] {
        assert_eq!(
            std::fs::metadata(path).unwrap().permissions().mode() & 0o777,
            0o700,
            "{}",
            path.display()
        );
    }
}

/// Reports of sessions that "merged" because their ids were made of the second they began in.
#[test]
fn a_thousand_sessions_of_one_second_are_a_thousand_sessions() {
    #[derive(Debug)]
    struct Stopped;
    impl Clock for Stopped {
        fn now(&self) -> Timestamp {
            Timestamp(1_764_500_000_000_000)
        }
    }
    let storage = Arc::new(SimStorage::new());
    let options = StoreOptions { durability: Durability::Buffered, ..StoreOptions::default() };
    let store = Store::open_on(storage, Arc::new(Stopped), "home", options).unwrap();
    let ids: HashSet<_> = (0..1000)
        .map(|_| {
            let session = store.create("/w", NewSession::default()).unwrap();
            let id = session.id();
            session.close().unwrap();
            id
        })
        .collect();
    assert_eq!(ids.len(), 1000);
    let rows = store.reader().list().unwrap();
    assert_eq!(rows.len(), 1000);
    // All share one display id, so it names none of them; each has its own id.
    let error = store.reader().find(&rows[0].display_id).unwrap_err();
    assert_eq!(error.code(), "session.ambiguous");
    assert_eq!(store.reader().find(&rows[7].id).unwrap().id, rows[7].id);
}

#[test]
fn a_session_is_found_by_whatever_names_it_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("home"));
    let fixed = |id: &str| NewSession { id: Some(id.parse().unwrap()), ..NewSession::default() };
    let first = "0197b4a2-7c1e-7000-8000-000000000001";
    for id in [first, "0197b4a2-7c1e-7000-8000-000000000002", "1197b4a2-7c1e-7000-8000-000000000003"] {
        store.create(dir.path(), fixed(id)).unwrap().close().unwrap();
    }
    let reader = store.reader();
    assert_eq!(reader.find("1").unwrap().id, "1197b4a2-7c1e-7000-8000-000000000003");
    assert_eq!(reader.find(first).unwrap().id, first);
    assert_eq!(reader.find(&first.to_uppercase()).unwrap().id, first);
    assert_eq!(reader.find("0197").unwrap_err().kind(), ErrorKind::Invalid);
    for nothing in ["", "2", "../0197", "\0", &"a".repeat(4096), "0197b4a2-7c1e-7000-8000-00000000000x"] {
        let error = reader.find(nothing).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid), "{nothing:?}");
        assert!(error.to_string().len() < 400, "{nothing:?}");
    }
    assert_eq!(store.create(dir.path(), fixed(first)).unwrap_err().code(), "session.exists");
    assert_eq!(
        store.resume("2197b4a2-7c1e-7000-8000-000000000003".parse().unwrap()).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn other_tools_are_refused_unless_nobody_asks() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("home"));
    let new = NewSession { tool_registry_hash: Some("aa".to_owned()), ..NewSession::default() };
    let session = store.create(dir.path(), new).unwrap();
    let id = session.id();
    session.close().unwrap();
    let offering = |hash: &str| ResumeOptions { tool_registry_hash: Some(hash.to_owned()) };
    assert_eq!(store.resume_with(id, &offering("bb")).unwrap_err().code(), "session.tools");
    store.resume_with(id, &offering("aa")).unwrap().0.close().unwrap();
    store.resume(id).unwrap().0.close().unwrap();
}

#[test]
fn a_key_appends_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("home"));
    let session = store.create(dir.path(), NewSession::default()).unwrap();
    let id = session.id();
    let key = IdempotencyKey([7; 16]);
    let first = session.append(Message::user("once").key(key)).unwrap();
    assert_eq!(session.append(Message::user("once").key(key)).unwrap().message_no, first.message_no);
    session.close().unwrap();
    // A host that does not know whether its append came through says it again after the crash.
    let (session, _) = store.resume(id).unwrap();
    let again = session.append(Message::user("once").key(key)).unwrap();
    assert_eq!((again.message_no, again.receipt.first), (first.message_no, first.receipt.first));
    assert_eq!(session.transcript().unwrap().len(), 1);
}

#[test]
fn a_broken_session_is_a_row_and_the_others_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let store = open(&home);
    let mut ids = Vec::new();
    for n in 0..5 {
        let session = store.create(dir.path(), NewSession::new(format!("goal {n}"))).unwrap();
        ids.push((session.id(), session.place().dir.clone()));
        session.close().unwrap();
    }
    let segment = |n: usize| ids[n].1.join("log/00000000000000000001.seg");
    std::fs::write(segment(0), b"not a segment at all, but long enough to have been one").unwrap();
    std::fs::remove_file(segment(1)).unwrap();
    let mut bytes = std::fs::read(segment(2)).unwrap();
    bytes[300] ^= 1;
    std::fs::write(segment(2), bytes).unwrap();

    let rows = store.reader().list().unwrap();
    assert_eq!(rows.len(), 5);
    let row = |n: usize| rows.iter().find(|row| row.root == ids[n].0).unwrap();
    assert!(row(0).issue.is_some() && row(1).issue.is_some() && row(2).issue.is_some());
    assert_eq!(row(3).title.as_deref(), Some("goal 3"));
    assert_eq!(row(3).issue, None);
    for n in [0, 1, 2] {
        let error = store.resume(ids[n].0).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound), "{n}: {error:?}");
    }
    store.resume(ids[4].0).unwrap().0.close().unwrap();
}

#[cfg(unix)]
#[test]
fn links_inside_a_home_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let store = open(&home);
    let session = store.create(dir.path(), NewSession::default()).unwrap();
    let (id, place) = (session.id(), session.place().dir.clone());
    session.close().unwrap();
    let outside = dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::rename(place.join("owner.lock"), outside.join("precious")).unwrap();
    std::fs::write(outside.join("precious"), "precious").unwrap();
    std::os::unix::fs::symlink(outside.join("precious"), place.join("owner.lock")).unwrap();
    assert!(store.resume(id).is_err());
    assert_eq!(std::fs::read_to_string(outside.join("precious")).unwrap(), "precious");
    std::fs::rename(&place, outside.join("moved")).unwrap();
    std::os::unix::fs::symlink(outside.join("moved"), &place).unwrap();
    assert_eq!(store.resume(id).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(store.reader().list().unwrap().is_empty());
}

#[derive(Debug)]
struct Ticking(std::sync::atomic::AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp(1_764_500_000_000_000 + self.0.fetch_add(1_000_000, std::sync::atomic::Ordering::Relaxed))
    }
}

fn simulated(storage: &SimStorage) -> sessionlog::Result<Store> {
    let clock = Arc::new(Ticking(std::sync::atomic::AtomicI64::new(0)));
    let log = sessionlog::LogOptions { segment_len: 512, fill_len: 512 };
    let options = StoreOptions { log, ..StoreOptions::default() };
    Store::open_on(Arc::new(storage.clone()), clock, "home", options)
}

const ID: SessionId = SessionId([0x17; 16]);

/// A run that ends at the first call that fails; what it got acknowledged is counted.
fn run(storage: &SimStorage) -> u64 {
    let new = NewSession { id: Some(ID), ..NewSession::new("goal") };
    let created = simulated(storage).and_then(|store| store.create("/w", new));
    let Ok(session) = created else { return 0 };
    let mut acknowledged = 0;
    let mut go = || -> sessionlog::Result<()> {
        for n in 0..6 {
            session.append(Message::user(format!("prompt {n}")))?;
            acknowledged += 1;
            let asked = session.append(Message::assistant("calling").call("c", "run", "{}"))?;
            acknowledged += 1;
            session.start_call(asked.call(0), Effect::Mutating)?.finish(CallResult::succeeded("done"))?;
            acknowledged += 1;
        }
        Ok(())
    };
    let done = go();
    if done.is_ok() {
        session.finish(FinalStatus::Completed).ok();
    } else {
        // The process dies with the failed call.
        std::mem::forget(session);
    }
    acknowledged
}

/// Loses power before the n-th call that changes the disk, for every n, and looks at every kind of loss.
#[test]
fn power_can_go_at_any_call() {
    let whole = SimStorage::new();
    run(&whole);
    let changes = whole.calls().iter().filter(|call| call.changes_disk()).count();
    assert!(changes > 60, "{changes}");
    for stop in 0..changes {
        let storage = SimStorage::new();
        let acknowledged = fail_from(&storage, stop);
        for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Seeded(stop as u64)] {
            let after = storage.power_cut(mode);
            check_after_crash(&after, acknowledged, stop);
        }
    }
}

/// Runs until the `stop`-th change of the disk, from which on every change fails.
fn fail_from(storage: &SimStorage, stop: usize) -> u64 {
    use sessionlog::storage::Repeat;
    let kinds = [
        CallKind::Create,
        CallKind::Write,
        CallKind::SyncData,
        CallKind::SyncAll,
        CallKind::SetLen,
        CallKind::Rename,
        CallKind::Remove,
        CallKind::SyncDir,
        CallKind::CreateDir,
    ];
    // Find the stop-th change of an undisturbed run, then fail that kind from its own count on, and all others too.
    let probe = SimStorage::new();
    run(&probe);
    let calls: Vec<_> = probe.calls().into_iter().filter(sessionlog::storage::Call::changes_disk).collect();
    for kind in kinds {
        let before = calls[..stop].iter().filter(|call| call.kind() == kind).count();
        storage.fail(Fault::new(kind, FaultError::EIO).after(before as u64).repeat(Repeat::Always));
    }
    run(storage)
}

fn check_after_crash(storage: &SimStorage, acknowledged: u64, stop: usize) {
    let store = simulated(storage).unwrap();
    let rows = store.reader().list().unwrap();
    assert!(rows.len() <= 1);
    if acknowledged == 0 {
        // Whatever its creation left, the id is still good for a session: to resume or to create.
        let again = match store.resume(ID) {
            Ok((session, _)) => session,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                store.create("/w", NewSession { id: Some(ID), ..NewSession::default() }).unwrap()
            }
            Err(error) => panic!("stop {stop}: {error:?}"),
        };
        again.finish(FinalStatus::Completed).unwrap();
        assert_eq!(store.reader().session(ID).unwrap().verify().unwrap().worst(), None);
        return;
    }
    let row = rows.first().unwrap_or_else(|| panic!("stop {stop}: the session is gone"));
    assert!(row.messages >= acknowledged, "stop {stop}: {} of {acknowledged} messages", row.messages);
    let (session, report) = store.resume(row.root).unwrap_or_else(|error| panic!("stop {stop}: {error:?}"));
    assert!(report.unknown_calls.len() <= 1);
    session.append(Message::user("going on")).unwrap();
    session.finish(FinalStatus::Completed).unwrap();
    let reader = store.reader().session(row.root).unwrap();
    let check = reader.verify().unwrap();
    assert_eq!(check.worst(), None, "stop {stop}: {:?}", check.all().collect::<Vec<_>>());
    assert_eq!(reader.status(&reader.summary().unwrap()), Status::Completed);
    let last = reader.log().verify().unwrap().last;
    assert!(last > Position(0));
}

/// Reports of sessions that could not be opened after the disk had been full once, and of messages that were reported as
/// failed and came back later.
#[test]
fn a_full_disk_refuses_what_does_not_fit_and_keeps_the_rest() {
    let storage = SimStorage::new();
    let store = simulated(&storage).unwrap();
    let session = store.create("/w", NewSession::default()).unwrap();
    let id = session.id();
    storage.set_capacity(Some(24 << 10));
    let mut kept = Vec::new();
    let refused = (0..).map(|n| format!("message {n} {}", "x".repeat(900))).find_map(|text| {
        let result = session.append(Message::user(text.clone()));
        result.map(|_| kept.push(text)).err()
    });
    assert_eq!(refused.unwrap().kind(), ErrorKind::Full);
    assert!(kept.len() > 3, "{}", kept.len());

    // The handle is usable once there is room, without opening anything again.
    storage.set_capacity(None);
    kept.push("after".to_owned());
    session.append(Message::user("after")).unwrap();
    let texts = |session: &sessionlog::Session| -> Vec<String> {
        let context = session.context().unwrap();
        context.iter().map(|message| format!("{:?}", message.parts)).collect()
    };
    let expected: Vec<_> = kept
        .iter()
        .map(|text| format!("{:?}", [sessionlog::codec::event::Part::text(text.as_str())]))
        .collect();
    assert_eq!(texts(&session), expected);
    std::mem::forget(session);
    storage.crash(CrashMode::LoseAll);
    let (session, _) = simulated(&storage).unwrap().resume(id).unwrap();
    assert_eq!(texts(&session), expected);
}

/// A directory that another process has just made, and not yet made durable, is no ground to stand on.
/// An append failed, and the log could not be read when its state was to be folded anew: from then on the session kept no
/// views. (Seed 1005557 of the schedules.)
#[test]
fn views_survive_a_failed_append_and_a_failed_read() {
    let storage = SimStorage::new();
    let session = simulated(&storage).unwrap().create("/w", NewSession::new("goal")).unwrap();
    session.append(Message::user("first")).unwrap();
    storage.fail(Fault::new(CallKind::Write, FaultError::EIO));
    assert_eq!(session.append(Message::user("lost")).unwrap_err().kind(), ErrorKind::Io);
    storage.fail(Fault::new(CallKind::Read, FaultError::EIO));
    assert_eq!(session.start_turn().unwrap_err().kind(), ErrorKind::Io);
    session.append(Message::user("second")).unwrap();
    let view = session.place().dir.join("transcript.jsonl");
    session.close().unwrap();
    let view = String::from_utf8(storage.read_file(view).unwrap()).unwrap();
    assert!(view.contains("first") && view.contains("second") && !view.contains("lost"), "{view}");
}

#[test]
fn a_directory_of_somebody_elses_is_made_durable_too() {
    use sessionlog::storage::Storage;
    let storage = SimStorage::new();
    let store = simulated(&storage).unwrap();
    let hash = WorkspaceHash::of(Path::new("/w"));
    let workspace = Path::new("home/workspaces").join(hash.as_str());
    storage.create_dir(&workspace).unwrap();
    storage.create_dir(&workspace.join("sessions")).unwrap();
    let session = store.create_foreign(b"/w", NewSession::default()).unwrap();
    session.append(Message::user("acknowledged")).unwrap();
    std::mem::forget(session);
    storage.crash(CrashMode::LoseAll);
    assert_eq!(simulated(&storage).unwrap().reader().list().unwrap()[0].messages, 1);
}

/// Whoever opens a home that is there syncs nothing, so what another process had made of it and not come to sync has to be made
/// durable before a session in it is acknowledged.
#[test]
fn a_home_of_somebody_elses_is_made_durable_before_a_session_is() {
    use sessionlog::storage::{Call, Storage};
    let storage = SimStorage::new();
    drop(simulated(&storage).unwrap());
    // As if its creator had been stopped between the directory and the sync.
    let (home, workspaces) = (Path::new("home"), Path::new("home/workspaces"));
    storage.remove_dir(workspaces).unwrap();
    storage.sync_dir(home).unwrap();
    storage.create_dir(workspaces).unwrap();
    storage.take_calls();
    let store = simulated(&storage).unwrap();
    assert!(storage.take_calls().iter().all(|call| !matches!(call, Call::SyncDir { .. })), "opening syncs");
    let session = store.create_foreign(b"/w", NewSession::default()).unwrap();
    session.append(Message::user("acknowledged")).unwrap();
    std::mem::forget(session);
    storage.crash(CrashMode::LoseAll);
    assert_eq!(simulated(&storage).unwrap().reader().list().unwrap()[0].messages, 1);
}
