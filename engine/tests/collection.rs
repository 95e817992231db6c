//! Collecting artifacts: what is named stays, whoever names it; what is not goes; and no crash makes one of the other.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

#[path = "support/shelf.rs"]
mod shelf;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use sessionlog::artifacts::{ArchiveRoots, GcRun, KeptFor, Tally};
use sessionlog::codec::RawBytes;
use sessionlog::codec::event::*;
use sessionlog::codec::ids::*;
use sessionlog::codec::record::{Envelope, Payload};
use sessionlog::codec::registry::kind;
use sessionlog::log::{Batch, LogDir, LogOptions, LogReader, LogWriter, NewRecord, ReadItem};
use sessionlog::projections::artifact::stored;
use sessionlog::storage::{
    Access, Call, CallKind, CrashMode, DirEntry, Fault, FaultError, Lock, LockError, Locked, Repeat,
    SimStorage, Storage, StorageFile,
};
use sessionlog::{
    Artifacts, CallResult, Durability, ErrorKind, GcOptions, GcReport, Message, NewArtifact, NewSession,
    Session, Store,
};
use shelf::{
    HOUR, Hand, blob_path, check_named, delete, files, named, new_session, run_call, store_on, there,
    try_store_on, workspace,
};

const NO_GRACE: GcOptions =
    GcOptions { grace: Duration::ZERO, archive: ArchiveRoots::Pin, run: GcRun::Collect };

fn put(artifacts: &Artifacts, content: &str) -> ArtifactReceipt {
    artifacts.put(NewArtifact::new("text", content)).unwrap()
}

fn file(receipt: ArtifactReceipt) -> Part {
    let source = MediaSource::Artifact(receipt);
    Part::File(Media { source, media_type: None, name: None, detail: None, extra: None })
}

fn record(session: &Session, node: NodeId, event: impl Into<Event>) {
    session.append_batch(vec![NewEvent::now(node, event)], Durability::Sync).unwrap();
}

fn kept(report: &GcReport) -> BTreeMap<KeptFor, u64> {
    report.kept.iter().map(|(why, tally)| (*why, tally.count)).collect()
}

/// What a deletion leaves of a session.
fn archive(storage: &SimStorage, id: SessionId, digest: &Digest) {
    let dir = PathBuf::from(format!("home/workspaces/{}/archive", workspace()));
    for made in [dir.clone(), dir.join(id.to_string()), dir.join(id.to_string()).join("log")] {
        storage.create_dir(&made).unwrap();
        storage.sync_dir(made.parent().unwrap()).unwrap();
    }
    let log = LogDir {
        storage: Arc::new(storage.clone()),
        segments: dir.join(id.to_string()).join("log"),
        quarantine: dir.join(id.to_string()).join("quarantine"),
    };
    let archived: Event = MemoryArchived {
        record_id: "r".into(),
        kind: "result".into(),
        session_id: id,
        node: NodeId::ROOT,
        position: Position(3),
        at: Timestamp(0),
        record: RawBytes(format!("{{\"artifacts\":[\"{digest}\"]}}").into_bytes()),
    }
    .into();
    let (kind, schema) = archived.kind();
    let envelope = Envelope::new(NodeId::ROOT, kind, schema, Timestamp(0));
    let batch = Batch::new(vec![NewRecord { envelope, payload: archived.encode().unwrap() }]).unwrap();
    let writer = LogWriter::create(log, LogOptions::default(), LogId([7; 16])).unwrap();
    writer.append(batch, Durability::Sync).unwrap();
    writer.close().unwrap();
}

/// The bookmark of a child that nobody's call waits for.
fn delegated(child: NodeId) -> NodeOpened {
    NodeOpened {
        child,
        invocation_id: InvocationId([7; 16]),
        parent: NodeId::ROOT,
        call: None,
        call_id: None,
        agent: "worker".into(),
        kind: AgentKind::External,
        prompt: "Do.".into(),
        description: None,
        working_directory: None,
        run_id: None,
        depth: 1,
        source_id: None,
    }
}

#[test]
fn each_reason_to_stay_is_enough_and_is_counted() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let store = store_on(&storage, &clock);
    let session = new_session(&store);
    let artifacts = session.artifacts();
    let names = ["message", "child", "slot", "host", "archived", "leased", "base", "derived", "nobody's"];
    let digests: BTreeMap<&str, ArtifactReceipt> =
        names.iter().filter(|name| **name != "derived").map(|name| (*name, put(&artifacts, name))).collect();
    let of = |name: &str| digests[name].clone();
    let derived = NewArtifact::new("derived", "derived").parent(of("base").digest);
    let derived = artifacts.put(derived).unwrap();

    session.start_turn().unwrap();
    let said = session.append(Message::user("See.").part(file(of("message"))).part(file(derived))).unwrap();
    session.clear("run 2").unwrap();
    // A child that ended, and nobody has told its parent.
    let child = session.ledger(sessionlog::projections::Ledger::next_node).unwrap();
    record(&session, NodeId::ROOT, delegated(child));
    let parts = stored(of("child")).to_vec();
    record(&session, child, NodeSettled { status: NodeStatus::Completed, reason: None, parts });
    let request = RawBytes(format!("{{\"evidence\":[\"{}\"]}}", of("slot").digest).into_bytes());
    record(
        &session,
        NodeId::ROOT,
        LearnSlotPending { segment_id: "s".into(), slot: 0, key: "k".into(), request },
    );
    let text = format!("the report is {} here", of("host").digest);
    session.append(Message::user(text)).unwrap();
    let gone = new_session(&store);
    run_call(&gone, CallResult::succeeded("archived")).unwrap();
    archive(&storage, gone.id(), &of("archived").digest);
    let until = Timestamp(clock.read().0 + 3 * HOUR);
    let lease = artifacts.lease(&[of("leased").digest], until).unwrap();
    clock.forward(2 * HOUR);
    let young = put(&artifacts, "young");

    let before = storage.files();
    let preview = artifacts.gc(&GcOptions { run: GcRun::DryRun, ..GcOptions::default() }).unwrap();
    assert_eq!(storage.files(), before);
    let expected = BTreeMap::from([
        (KeptFor::Session, 3),
        (KeptFor::ChildResult, 1),
        (KeptFor::Learning, 1),
        (KeptFor::Archive, 1),
        (KeptFor::Lease, 1),
        (KeptFor::Lineage, 1),
        (KeptFor::Grace, 1),
    ]);
    assert_eq!(kept(&preview), expected);
    let report = artifacts.gc(&GcOptions::default()).unwrap();
    assert_eq!(kept(&report), expected);
    assert_eq!(report.dropped.iter().map(|it| it.digest).collect::<Vec<_>>(), [of("nobody's").digest]);
    assert_eq!(
        (&report.dropped, report.before, report.after),
        (&preview.dropped, preview.before, preview.after)
    );
    assert_eq!(report.before.bytes - report.after.bytes, "nobody's".len() as u64);
    assert!(!there(&storage).contains(&of("nobody's").digest));

    // One after the other they go: the lease by its release, the young one with time, the archived one if it is not to pin.
    artifacts.release(&lease).unwrap();
    clock.forward(2 * HOUR);
    let report = artifacts.gc(&GcOptions { archive: ArchiveRoots::DontPin, ..GcOptions::default() }).unwrap();
    let dropped: BTreeSet<_> = report.dropped.iter().map(|it| it.digest).collect();
    assert_eq!(dropped, BTreeSet::from([of("leased").digest, young.digest, of("archived").digest]));
    // A withdrawn message is history, which is kept.
    record(&session, NodeId::ROOT, MessageWithdrawn { message_no: said.message_no, reason: "x".into() });
    assert_eq!(artifacts.gc(&NO_GRACE).unwrap().dropped, []);
    delete(&storage, session.id());
    assert_eq!(artifacts.gc(&NO_GRACE).unwrap().dropped.len(), 6);
    assert!(there(&storage).is_empty());
}

#[test]
fn an_expired_lease_keeps_nothing() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let session = new_session(&store_on(&storage, &clock));
    let artifacts = session.artifacts();
    let base = put(&artifacts, "base");
    let derived = artifacts.put(NewArtifact::new("d", "derived").parent(base.digest)).unwrap();
    let until = Timestamp(clock.read().0 + HOUR);
    artifacts.lease(&[derived.digest], until).unwrap();
    assert_eq!(artifacts.gc(&NO_GRACE).unwrap().dropped, []);
    clock.forward(HOUR);
    assert_eq!(artifacts.gc(&NO_GRACE).unwrap().dropped.len(), 2);
    for (digests, until) in [(vec![], until), (vec![base.digest], clock.read())] {
        assert_eq!(artifacts.lease(&digests, until).unwrap_err().kind(), ErrorKind::Invalid);
    }
    let until = Timestamp(clock.read().0 + HOUR);
    assert_eq!(artifacts.lease(&[base.digest], until).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_log_that_cant_be_read_whole_lets_nothing_go() {
    let prepare = || {
        let (storage, clock) = (SimStorage::new(), Hand::new());
        let store = store_on(&storage, &clock);
        let session = new_session(&store);
        for number in 0..40 {
            session.append(Message::user(format!("message {number} of some length"))).unwrap();
        }
        put(&session.artifacts(), "nobody's");
        clock.forward(2 * HOUR);
        (storage, store, session)
    };
    let (storage, store, session) = prepare();
    let id = session.id();
    session.close().unwrap();
    let artifacts = store.artifacts(&workspace());
    let log = storage
        .files()
        .into_iter()
        .find(|path| path.to_string_lossy().contains(&format!("{id}/log/0")))
        .unwrap();
    storage.corrupt(&log, |bytes| bytes[400] ^= 0x10).unwrap();
    for options in [GcOptions::default(), GcOptions { run: GcRun::DryRun, ..GcOptions::default() }] {
        let error = artifacts.gc(&options).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Corrupt, "gc.log_hurt"));
        assert!(error.to_string().contains(&id.to_string()), "{error}");
    }
    assert_eq!(there(&storage).len(), 1);

    let (storage, _, session) = prepare();
    let newer = UnknownEvent { kind: KindNo(9_999), schema: SchemaVersion(1), payload: RawBytes(vec![1, 2]) };
    record(&session, NodeId::ROOT, Event::Unknown(newer));
    let error = session.artifacts().gc(&GcOptions::default()).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, "gc.log_newer"));
    assert_eq!(there(&storage).len(), 1);

    // The workspace's own log holds the leases.
    let (storage, store, session) = prepare();
    let log =
        storage.files().into_iter().find(|path| path.to_string_lossy().contains("/workspace/log/0")).unwrap();
    for number in 0..20 {
        put(&session.artifacts(), &format!("another {number}"));
    }
    storage.corrupt(&log, |bytes| bytes[300] ^= 0x10).unwrap();
    drop(store);
    let error =
        store_on(&storage, &Hand::new()).artifacts(&workspace()).gc(&GcOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(there(&storage).len(), 21);
}

/// A put that was cut off leaves a file that is nobody's.
#[test]
fn what_was_half_written_goes_after_the_grace_period() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let session = new_session(&store_on(&storage, &clock));
    put(&session.artifacts(), "whole");
    let digest = Digest::of(b"half");
    let shelf = blob_path("home", &workspace(), &digest).parent().unwrap().to_owned();
    storage.create_dir(&shelf).unwrap();
    let path = shelf.join(format!("{digest}.0197.new"));
    storage.put_file(&path, *b"ha").unwrap();
    storage.touch(&path, clock.read()).unwrap();
    let strange = shelf.join("notes.txt");
    storage.put_file(&strange, *b"somebody's").unwrap();
    assert_eq!(session.artifacts().gc(&GcOptions::default()).unwrap().unfinished, Tally::default());
    clock.forward(2 * HOUR);
    let report = session.artifacts().gc(&GcOptions::default()).unwrap();
    assert_eq!(report.unfinished, Tally { count: 1, bytes: 2 });
    assert_eq!(files(&storage), [strange], "what is not ours is left alone");
    assert!(report.gc_id.is_some());
}

/// Every call of a collection fails from its n-th on, and then power goes: nothing that is named is gone, and the next
/// collection ends what this one began.
#[test]
fn a_collection_can_be_cut_off_anywhere() {
    let prepare = || {
        let (storage, clock) = (SimStorage::new(), Hand::new());
        let store = store_on(&storage, &clock);
        let session = new_session(&store);
        for number in 0..3 {
            run_call(&session, CallResult::succeeded(format!("named {number} {}", "x".repeat(80)))).unwrap();
            let base = put(&session.artifacts(), &format!("base {number}"));
            let derived = NewArtifact::new("d", format!("derived {number}")).parent(base.digest);
            let derived = session.artifacts().put(derived).unwrap();
            if number == 0 {
                session.append(Message::user("See.").part(file(derived))).unwrap();
            }
        }
        clock.forward(2 * HOUR);
        (storage, clock, session)
    };
    let (storage, _, session) = prepare();
    assert_eq!(session.artifacts().gc(&GcOptions::default()).unwrap().dropped.len(), 4);
    let left = there(&storage);
    assert_eq!(left.len(), 5);
    let mut cut = 0;
    for at in 0.. {
        let (storage, clock, session) = prepare();
        storage.fail(Fault::any(FaultError::EIO).after(at).repeat(Repeat::Always));
        let result = session.artifacts().gc(&GcOptions::default());
        std::mem::forget(session);
        for mode in (0..4).map(CrashMode::Seeded).chain([CrashMode::LoseAll, CrashMode::KeepAll]) {
            let after = storage.power_cut(mode);
            let store = store_on(&after, &clock);
            assert!(there(&after).is_superset(&left), "call {at}, {mode:?}");
            check_named(&store);
            let report = store.artifacts(&workspace()).gc(&GcOptions::default()).unwrap();
            assert_eq!(there(&after), left, "call {at}, {mode:?}: {report:?}");
            let again = store.artifacts(&workspace()).gc(&GcOptions::default()).unwrap();
            assert_eq!((again.dropped, again.unfinished), (vec![], Tally::default()));
        }
        match result {
            Ok(_) => break,
            Err(_) => cut += 1,
        }
    }
    assert!(cut > 60, "{cut}");
}

/// Coming back to content counts as putting it.
#[test]
fn a_put_of_what_is_there_begins_its_grace_period_anew() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let store = store_on(&storage, &clock);
    let session = new_session(&store);
    let base = put(&session.artifacts(), "base");
    session.artifacts().put(NewArtifact::new("d", "derived").parent(base.digest)).unwrap();
    clock.forward(2 * HOUR);
    put(&session.artifacts(), "derived");
    let report = session.artifacts().gc(&GcOptions::default()).unwrap();
    assert_eq!(kept(&report), BTreeMap::from([(KeptFor::Lineage, 1), (KeptFor::Grace, 1)]));
    clock.forward(2 * HOUR);
    assert_eq!(session.artifacts().gc(&GcOptions::default()).unwrap().dropped.len(), 2);
}

/// A storage that lets something happen before one of its calls.
struct Interrupted {
    inner: SimStorage,
    /// Calls whose path ends so, after so many of them.
    at: (&'static str, AtomicU64),
    happens: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Interrupted {
    fn call(&self, path: &Path) -> &SimStorage {
        let is_due = path.to_string_lossy().contains(self.at.0)
            && self.at.1.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                == Ok(1);
        if is_due {
            let happens = self.happens.lock().unwrap().take();
            happens.unwrap()();
        }
        &self.inner
    }
}

impl Storage for Interrupted {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.call(path).create_new(path)
    }
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        self.call(path).open(path, access)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call(path).create_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.call(dir).list(dir)
    }
    fn entry(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        self.inner.entry(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(to).hard_link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(to).rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call(path).remove_file(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.call(dir).remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)?;
        self.call(&dir.join("synced"));
        Ok(())
    }
    fn try_lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        self.inner.try_lock(path)
    }
    fn try_lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        self.inner.try_lock_shared(path)
    }
    fn is_locked(&self, path: &Path) -> Option<Locked> {
        self.inner.is_locked(path)
    }
    fn modified(&self, path: &Path) -> io::Result<Option<Timestamp>> {
        self.inner.modified(path)
    }
    fn touch(&self, path: &Path, at: Timestamp) -> io::Result<()> {
        self.inner.touch(path, at)
    }
}

fn interrupted(
    storage: &SimStorage,
    clock: &Hand,
    at: (&'static str, u64),
    happens: impl FnOnce() + Send + 'static,
) -> Store {
    let at = (at.0, AtomicU64::new(at.1));
    let storage = Interrupted { inner: storage.clone(), at, happens: Mutex::new(Some(Box::new(happens))) };
    Store::open_on(Arc::new(storage), Arc::new(clock.clone()), "home", shelf::options()).unwrap()
}

/// Content that nothing named when a collection looked is named before it removes anything.
#[test]
fn what_is_named_while_a_collection_looks_stays() {
    let comes_back: [fn(&Session, ArtifactReceipt); 4] = [
        |session, _| {
            run_call(session, CallResult::succeeded("old ".repeat(50))).unwrap();
        },
        |session, old| {
            session.append(Message::user("See.").part(file(old))).unwrap();
        },
        |session, old| drop(session.artifacts().lease(&[old.digest], Timestamp(i64::MAX)).unwrap()),
        |session, old| {
            let derived = NewArtifact::new("d", "derived from the old one").parent(old.digest);
            let derived = session.artifacts().put(derived).unwrap();
            session.append(Message::user("See.").part(file(derived))).unwrap();
        },
    ];
    for (way, comes_back) in comes_back.into_iter().enumerate() {
        let (storage, clock) = (SimStorage::new(), Hand::new());
        let session = new_session(&store_on(&storage, &clock));
        let old = put(&session.artifacts(), &"old ".repeat(50));
        let base = NewArtifact::new("base", "what the old one came from");
        let base = session.artifacts().put(base).unwrap();
        session.artifacts().put(NewArtifact::new("text", "old ".repeat(50)).parent(base.digest)).unwrap();
        put(&session.artifacts(), "nobody's");
        clock.forward(2 * HOUR);
        let named = old.clone();
        let kept = Arc::new(Mutex::new(Some(session)));
        let session = Arc::clone(&kept);
        // The archive is looked for when the logs of the sessions have been read.
        let happens = move || comes_back(session.lock().unwrap().as_ref().unwrap(), named);
        let store = interrupted(&storage, &clock, ("archive", 1), happens);
        let report = store.artifacts(&workspace()).gc(&GcOptions::default()).unwrap();
        let left = there(&storage);
        assert!(left.contains(&old.digest) && left.contains(&base.digest), "way {way}: {report:?}");
        assert_eq!(report.dropped.len(), 1, "way {way}: nobody's");
        assert!(report.kept[&KeptFor::Touched].count >= 2);
        check_named(&store);
        drop(kept);
    }
}

/// The kinds of what the workspace's log says, and the payloads.
fn said(storage: &SimStorage) -> Vec<(KindNo, Vec<u8>)> {
    let dir = PathBuf::from(format!("home/workspaces/{}/workspace", workspace()));
    let (segments, quarantine) = (dir.join("log"), dir.join("quarantine"));
    let mut said = Vec::new();
    LogReader::new(LogDir { storage: Arc::new(storage.clone()), segments, quarantine })
        .read(Position(1), &mut |item| {
            let ReadItem::Record(record) = item else { panic!("{item:?}") };
            let Payload::Present(payload) = record.payload else { panic!("{record:?}") };
            said.push((record.envelope.kind, payload.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    said
}

/// What is missing was never lost unsaid, and a loss of power does not bring it back.
#[test]
fn what_a_collection_removes_is_said_first_and_gone_for_good() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let session = new_session(&store_on(&storage, &clock));
    run_call(&session, CallResult::succeeded("named ".repeat(50))).unwrap();
    let gone = ["one", "three"].map(|content| put(&session.artifacts(), content).digest);
    let half = blob_path("home", &workspace(), &gone[0]).with_file_name(format!("{}.0197.new", gone[0]));
    storage.put_file(&half, *b"ha").unwrap();
    storage.touch(&half, clock.read()).unwrap();
    storage.sync_dir(half.parent().unwrap()).unwrap();
    clock.forward(2 * HOUR);
    storage.take_calls();
    let report = session.artifacts().gc(&GcOptions::default()).unwrap();
    let tally = |count, bytes| Tally { count, bytes };
    assert_eq!((report.before, report.after, report.unfinished), (tally(4, 310), tally(1, 300), tally(1, 2)));
    let calls = storage.take_calls();
    let first = |kind, part: &str| {
        let is = |call: &Call| call.kind() == kind && call.path().to_string_lossy().contains(part);
        calls.iter().position(is).unwrap()
    };
    assert!(first(CallKind::Write, "/workspace/log/") < first(CallKind::Remove, "/artifacts/"));
    let mut said = said(&storage);
    assert_eq!(said.pop().unwrap().0, kind::GcRan);
    let (what, payload) = said.pop().unwrap();
    assert_eq!(what, kind::ArtifactDropped);
    let names = |digest: &Digest| payload.windows(32).any(|window| window == digest.0);
    assert!(gone.iter().all(names));
    assert_eq!(files(&storage).len(), 1);
    assert_eq!(files(&storage.power_cut(CrashMode::LoseAll)), files(&storage));
}

/// Somebody comes back to what was half written, and to all that was to go: then nothing goes, and nothing is said to have.
#[test]
fn what_is_touched_while_a_collection_looks_stays() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let session = new_session(&store_on(&storage, &clock));
    let old = put(&session.artifacts(), "old");
    let path = blob_path("home", &workspace(), &old.digest);
    let half = path.with_file_name(format!("{}.0197.new", old.digest));
    storage.put_file(&half, *b"ha").unwrap();
    storage.touch(&half, clock.read()).unwrap();
    clock.forward(2 * HOUR);
    let before = said(&storage).len();
    let (touched, now) = (storage.clone(), clock.read());
    let happens = move || [&path, &half].into_iter().for_each(|path| touched.touch(path, now).unwrap());
    let store = interrupted(&storage, &clock, ("archive", 1), happens);
    let report = store.artifacts(&workspace()).gc(&GcOptions::default()).unwrap();
    assert_eq!((report.dropped, report.unfinished), (vec![], Tally::default()));
    assert_eq!(files(&storage).len(), 2);
    let kinds: Vec<KindNo> = said(&storage).into_iter().skip(before).map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [kind::GcRan]);
}

/// A collection begins between a result's content and the record that names it: it waits for that.
#[test]
fn a_collection_waits_for_who_is_about_to_name_something() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let shelf = blob_path("home", &workspace(), &Digest::of("x".repeat(100).as_bytes()));
    let shelf = format!("{}/synced", shelf.parent().unwrap().display());
    let collecting = Arc::new(Mutex::new(None));
    let (disk, hand, handle) = (storage.clone(), clock.clone(), Arc::clone(&collecting));
    let happens = move || {
        let tried = |disk: &SimStorage| {
            let calls = disk.calls().into_iter();
            calls
                .filter(|call| call.kind() == CallKind::Lock && call.path().ends_with("artifacts/lock"))
                .count()
        };
        let before = tried(&disk);
        let store = store_on(&disk, &hand);
        let thread = std::thread::spawn(move || store.artifacts(&workspace()).gc(&NO_GRACE).unwrap());
        *handle.lock().unwrap() = Some(thread);
        while tried(&disk) == before {
            std::thread::yield_now();
        }
    };
    let store = interrupted(&storage, &clock, (Box::leak(shelf.into_boxed_str()), 1), happens);
    let session = new_session(&store);
    run_call(&session, CallResult::succeeded("x".repeat(100))).unwrap();
    let report = collecting.lock().unwrap().take().unwrap().join().unwrap();
    assert_eq!(report.dropped, []);
    assert_eq!(check_named(&store).len(), 1);
}

/// Sessions work while artifacts are collected again and again, without grace: what they name is there.
#[test]
fn work_and_collections_side_by_side_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let open = || Store::open_with(path.join("home"), shelf::options()).unwrap();
    let over = AtomicBool::new(false);
    let (dropped, hash) = (Mutex::new(0), {
        let session = open().create(path, NewSession::new("first")).unwrap();
        session.place().workspace.clone()
    });
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                scope.spawn(move || {
                    let session = open().create(path, NewSession::new("try")).unwrap();
                    for number in 0..40 {
                        // The same few contents again and again; every second one is named by nobody.
                        let content = format!("content {} {}", number % 5, "x".repeat(100));
                        if (number + worker) % 2 == 0 {
                            run_call(&session, CallResult::succeeded(content)).unwrap();
                        } else {
                            let nobodys = format!("nobody's {number} {worker}");
                            session.artifacts().put(NewArtifact::new("x", nobodys)).unwrap();
                        }
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                let artifacts = open().artifacts(&hash);
                while !over.load(Ordering::SeqCst) {
                    *dropped.lock().unwrap() += artifacts.gc(&NO_GRACE).unwrap().dropped.len();
                }
            });
        }
        for worker in workers {
            worker.join().unwrap();
        }
        over.store(true, Ordering::SeqCst);
    });
    assert_eq!(check_named(&open()).len(), 5);
    assert!(*dropped.lock().unwrap() > 10);
}

#[derive(Clone, Debug)]
enum Step {
    /// A host puts a content, derived from others.
    Put(usize, Vec<usize>),
    /// A tool's result has it.
    Result(usize, usize),
    /// A message names it.
    Mention(usize, usize),
    Lease(usize, i64),
    Release(usize),
    Delete(usize),
    Forward(i64),
    Collect(i64),
}

#[derive(Clone, Debug)]
enum Happening {
    Ordinary(Step),
    /// The disk fails from the n-th call on, and then power goes.
    Crash(Step, u64, Option<u64>),
}

const CONTENTS: usize = 6;
const SESSIONS: usize = 3;
const MINUTE: i64 = HOUR / 60;

fn step() -> impl Strategy<Value = Step> {
    let content = 0..CONTENTS;
    prop_oneof![
        4 => (content.clone(), prop::collection::vec(content.clone(), 0..3)).prop_map(|(it, from)| Step::Put(it, from)),
        3 => (0..SESSIONS, content.clone()).prop_map(|(who, it)| Step::Result(who, it)),
        2 => (0..SESSIONS, content.clone()).prop_map(|(who, it)| Step::Mention(who, it)),
        2 => (content, 1..180_i64).prop_map(|(it, minutes)| Step::Lease(it, minutes)),
        1 => (0..4_usize).prop_map(Step::Release),
        1 => (0..SESSIONS).prop_map(Step::Delete),
        2 => (1..100_i64).prop_map(Step::Forward),
        4 => prop_oneof![Just(0), Just(60)].prop_map(Step::Collect),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => step().prop_map(Happening::Ordinary),
        1 => (step(), 0..60_u64, prop::option::of(any::<u64>())).prop_map(|(step, at, seed)| Happening::Crash(step, at, seed)),
    ]
}

fn content(number: usize) -> String {
    format!("content {number} {}", "y".repeat(100))
}

fn digest(number: usize) -> Digest {
    Digest::of(content(number).as_bytes())
}

/// What is known for certain, and what may be besides.
#[derive(Debug, Default)]
struct Oracle {
    parents: BTreeMap<Digest, BTreeSet<Digest>>,
    maybe_parents: BTreeMap<Digest, BTreeSet<Digest>>,
    /// When somebody came to each for the last time: surely, at most.
    touched: BTreeMap<Digest, (i64, i64)>,
    leases: Vec<(sessionlog::artifacts::Lease, Digest)>,
    /// Leases that may be: their grant or release was cut off.
    maybe_leased: BTreeMap<Digest, i64>,
}

fn closure(
    from: impl IntoIterator<Item = Digest>,
    parents: &BTreeMap<Digest, BTreeSet<Digest>>,
) -> BTreeSet<Digest> {
    let mut found = BTreeSet::new();
    let mut todo: Vec<_> = from.into_iter().collect();
    while let Some(digest) = todo.pop() {
        if found.insert(digest) {
            todo.extend(parents.get(&digest).into_iter().flatten().copied());
        }
    }
    found
}

struct World {
    storage: SimStorage,
    clock: Hand,
    store: Store,
    sessions: Vec<Option<Session>>,
    oracle: Oracle,
}

impl World {
    fn new() -> Self {
        let (storage, clock) = (SimStorage::new(), Hand::new());
        let store = store_on(&storage, &clock);
        let sessions = (0..SESSIONS).map(|_| Some(new_session(&store))).collect();
        Self { storage, clock, store, sessions, oracle: Oracle::default() }
    }

    /// `Ok(false)`: it was refused, and is not done.
    fn act(&mut self, step: &Step) -> sessionlog::Result<bool> {
        let artifacts = self.store.artifacts(&workspace());
        let session = |who: &usize| self.sessions[*who].as_ref();
        let refused = |error: sessionlog::Error| match error.kind() {
            ErrorKind::NotFound if error.code() == "artifact.missing" => Ok(false),
            _ => Err(error),
        };
        match step {
            Step::Put(it, from) => {
                let new = from
                    .iter()
                    .fold(NewArtifact::new("text", content(*it)), |new, from| new.parent(digest(*from)));
                artifacts.put(new).map(|_| true).or_else(refused)
            }
            Step::Result(who, it) => {
                let Some(session) = session(who) else { return Ok(false) };
                run_call(session, CallResult::succeeded(content(*it))).map(|_| true)
            }
            Step::Mention(who, it) => {
                let Some(session) = session(who) else { return Ok(false) };
                let receipt = ArtifactReceipt {
                    digest: digest(*it),
                    len: content(*it).len() as u64,
                    media_type: None,
                    preview: String::new(),
                };
                session.append(Message::user("See.").part(file(receipt))).map(|_| true).or_else(refused)
            }
            Step::Lease(it, minutes) => {
                let until = Timestamp(self.clock.read().0 + minutes * MINUTE);
                match artifacts.lease(&[digest(*it)], until) {
                    Ok(lease) => {
                        self.oracle.leases.push((lease, digest(*it)));
                        Ok(true)
                    }
                    Err(error) => refused(error),
                }
            }
            Step::Release(which) => {
                let Some((lease, _)) = self.oracle.leases.get(*which) else { return Ok(false) };
                artifacts.release(lease).map(|()| true)
            }
            Step::Delete(who) => {
                if let Some(session) = self.sessions[*who].take() {
                    delete(&self.storage, session.id());
                    std::mem::forget(session);
                }
                Ok(true)
            }
            Step::Forward(minutes) => {
                self.clock.forward(minutes * MINUTE);
                Ok(true)
            }
            Step::Collect(minutes) => {
                let grace = Duration::from_secs(60 * u64::try_from(*minutes).unwrap());
                artifacts.gc(&GcOptions { grace, ..GcOptions::default() }).map(|_| true)
            }
        }
    }

    fn touch(&mut self, digests: impl IntoIterator<Item = Digest>, sure: bool) {
        let now = self.clock.read().0;
        let digests: Vec<_> = digests.into_iter().collect();
        for digest in closure(digests.iter().copied(), &self.oracle.maybe_parents) {
            self.oracle.touched.entry(digest).or_insert((i64::MIN, now)).1 = now;
        }
        if sure {
            for digest in closure(digests, &self.oracle.parents) {
                self.oracle.touched.entry(digest).or_insert((now, now)).0 = now;
            }
        }
    }

    fn note(&mut self, step: &Step, sure: bool) {
        match step {
            Step::Put(it, from) => {
                let from: BTreeSet<_> = from.iter().map(|from| digest(*from)).collect();
                self.oracle.maybe_parents.entry(digest(*it)).or_default().extend(&from);
                if sure {
                    self.oracle.parents.entry(digest(*it)).or_default().extend(&from);
                }
                self.touch([digest(*it)].into_iter().chain(from), sure);
            }
            Step::Result(_, it) | Step::Mention(_, it) => self.touch([digest(*it)], sure),
            Step::Lease(it, minutes) => {
                self.touch([digest(*it)], sure);
                if !sure {
                    let until = self.clock.read().0 + minutes * MINUTE;
                    let known = self.oracle.maybe_leased.entry(digest(*it)).or_insert(until);
                    *known = until.max(*known);
                }
            }
            Step::Release(which) => {
                if *which < self.oracle.leases.len() {
                    let (lease, digest) = self.oracle.leases.remove(*which);
                    if !sure {
                        let known = self.oracle.maybe_leased.entry(digest).or_insert(lease.until.0);
                        *known = lease.until.0.max(*known);
                    }
                }
            }
            Step::Delete(_) | Step::Forward(_) | Step::Collect(_) => {}
        }
    }

    /// What must be there, and what may be: by what the logs of the sessions say, read on their own.
    fn expected(&self, grace: i64) -> (BTreeSet<Digest>, BTreeSet<Digest>) {
        let now = self.clock.read().0;
        let reader = self.store.reader();
        let mut named_now = BTreeSet::new();
        for place in reader.places().unwrap() {
            let session = reader.session_at(place);
            if session.log().size().is_ok() {
                named_now.extend(named(&session).into_iter().map(|receipt| receipt.digest));
            }
        }
        let leased =
            self.oracle.leases.iter().filter(|(lease, _)| lease.until.0 > now).map(|(_, digest)| *digest);
        let mut sure: BTreeSet<_> = named_now.iter().copied().chain(leased).collect();
        let mut maybe = sure.clone();
        for (digest, (surely, at_most)) in &self.oracle.touched {
            // Some microseconds go by in each step.
            if grace > 0 && *surely > now - grace * MINUTE + 1_000_000 {
                sure.insert(*digest);
            }
            if grace > 0 && *at_most > now - grace * MINUTE - 1_000_000 {
                maybe.insert(*digest);
            }
        }
        maybe.extend(
            self.oracle.maybe_leased.iter().filter(|(_, until)| **until > now).map(|(digest, _)| *digest),
        );
        (closure(sure, &self.oracle.parents), closure(maybe, &self.oracle.maybe_parents))
    }

    fn crash(&mut self, seed: Option<u64>) {
        let mode = seed.map_or(CrashMode::LoseAll, CrashMode::Seeded);
        let after = self.storage.power_cut(mode);
        let ids: Vec<_> = self.sessions.iter().map(|session| session.as_ref().map(Session::id)).collect();
        self.sessions.drain(..).for_each(std::mem::forget);
        self.storage = after;
        self.store = try_store_on(&self.storage, &self.clock).unwrap();
        self.sessions = ids.into_iter().map(|id| id.map(|id| self.store.resume(id).unwrap().0)).collect();
        // When a file was touched may be forgotten.
        self.oracle.touched.values_mut().for_each(|times| times.0 = i64::MIN);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn what_must_stay_stays_and_what_may_go_goes(happenings in prop::collection::vec(happening(), 1..40)) {
        let mut world = World::new();
        for happening in &happenings {
            match happening {
                Happening::Ordinary(step) => {
                    let now_there = there(&world.storage);
                    let done = world.act(step);
                    let done = done.unwrap_or_else(|error| panic!("{step:?}: {error:?}"));
                    if done {
                        world.note(step, true);
                    }
                    if let Step::Collect(grace) = step {
                        let (must, may) = world.expected(*grace);
                        let left = there(&world.storage);
                        let lost: Vec<_> = now_there.intersection(&must).filter(|it| !left.contains(it)).collect();
                        prop_assert!(lost.is_empty(), "{:?} lost", lost);
                        let stayed: Vec<_> = left.difference(&may).collect();
                        prop_assert!(stayed.is_empty(), "{:?} stayed", stayed);
                        // What is collected is forgotten, where it came from too.
                        world.oracle.parents.retain(|digest, _| left.contains(digest));
                        world.oracle.maybe_parents.retain(|digest, _| left.contains(digest));
                    }
                }
                Happening::Crash(step, at, seed) => {
                    if matches!(step, Step::Delete(_)) {
                        continue;
                    }
                    let now_there = there(&world.storage);
                    world.storage.fail(Fault::any(FaultError::EIO).after(*at).repeat(Repeat::Always));
                    let leases = world.oracle.leases.len();
                    drop(world.act(step));
                    world.storage.clear_faults();
                    if world.oracle.leases.len() == leases || matches!(step, Step::Release(_)) {
                        world.note(step, false);
                    }
                    world.crash(*seed);
                    let left = there(&world.storage);
                    if let Step::Collect(grace) = step {
                        let (must, _) = world.expected(*grace);
                        let lost: Vec<_> = now_there.intersection(&must).filter(|it| !left.contains(it)).collect();
                        prop_assert!(lost.is_empty(), "{:?} lost", lost);
                        world.oracle.parents.retain(|digest, _| must.contains(digest));
                    }
                }
            }
            let named = check_named(&world.store);
            let left = there(&world.storage);
            for ancestor in closure(named, &world.oracle.parents) {
                prop_assert!(left.contains(&ancestor), "{:?} of {:?} is missing", ancestor, happening);
            }
        }
    }
}
