//! Forks of sessions through the public interface: what they share, what is their own, what a crash leaves.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic"
)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use sessionlog::codec::event::{
    AgentKind, Effect, FinalStatus, NewEvent, NodeOpened, Part, TitleOrigin, TurnOutcome, Usage,
};
use sessionlog::codec::ids::{Epoch, IdempotencyKey, InvocationId, NodeId, Position, SessionId};
use sessionlog::log::Severity;
use sessionlog::projections::recovery::{Availability, HostNeed, RecoveryState, Step, plan};
use sessionlog::projections::{EntryBody, Projection, Status, TranscriptEntry, validate_pairing};
use sessionlog::session::EventItem;
use sessionlog::storage::{Access, Call, CallKind, CrashMode, Fault, FaultError, SimStorage, Storage};
use sessionlog::store::{ForkedFrom, WorkspaceHash};
use sessionlog::{
    CallResult, Durability, ErrorKind, ForkOptions, ForkPoint, LogOptions, Message, NewSession, Session,
    SessionKind, SessionReader, Store, StoreOptions, SystemClock, ViewPolicy,
};
use support::content;
use support::hooked::Hooked;

fn settings(segment_len: u64, views: ViewPolicy) -> StoreOptions {
    let log = LogOptions { segment_len, fill_len: segment_len.min(1 << 20) };
    StoreOptions { log, views, durability: Durability::Buffered, ..StoreOptions::default() }
}

fn open_on(storage: Arc<dyn Storage>, options: StoreOptions) -> Store {
    Store::open_on(storage, Arc::new(SystemClock), "home", options).unwrap()
}

fn simulated(storage: &SimStorage) -> Store {
    open_on(Arc::new(storage.clone()), settings(2048, ViewPolicy::Off))
}

fn head(session: &Session) -> Session {
    session.fork(ForkPoint::Head, ForkOptions::default()).unwrap()
}

/// A conversation of about so many bytes.
fn talk(session: &Session, bytes: usize) {
    let turn = 4000.min(bytes / 2);
    for n in 0..bytes / turn / 2 {
        session.append(Message::user(format!("{n} {}", "ask ".repeat(turn / 4)))).unwrap();
        session.append(Message::assistant(format!("{n} {}", "tell ".repeat(turn / 5)))).unwrap();
    }
}

fn texts(transcript: &[TranscriptEntry]) -> Vec<String> {
    let text = |entry: &TranscriptEntry| match &entry.body {
        EntryBody::Message(message) => format!("{:?}", message.parts),
        other => format!("{other:?}"),
    };
    transcript.iter().map(text).collect()
}

fn reader(store: &Store, id: SessionId) -> SessionReader {
    store.reader().session(id).unwrap()
}

fn assert_whole(reader: &SessionReader, what: &str) {
    let check = reader.verify().unwrap();
    let notes = check.all().filter(|finding| finding.code != "space.unused").collect::<Vec<_>>();
    assert!(notes.is_empty(), "{what}: {notes:#?}");
}

fn written(calls: &[Call]) -> u64 {
    calls.iter().map(|call| if let Call::Write { len, .. } = call { *len } else { 0 }).sum()
}

fn under(storage: &SimStorage, dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    content(storage).into_iter().filter(|(path, _)| path.starts_with(dir)).collect()
}

/// Twenty forks, each of the one before, of a session of a megabyte: each costs what is new, whatever is behind it.
#[test]
fn a_chain_of_forks_writes_a_bounded_number_of_bytes() {
    let storage = SimStorage::new();
    let store = open_on(Arc::new(storage.clone()), settings(64 << 10, ViewPolicy::Keep));
    let first = store.create("/w", NewSession::new("a long story")).unwrap();
    talk(&first, 1 << 20);
    let mut chain = vec![first];
    let mut most = 0;
    for n in 0..20 {
        storage.take_calls();
        let fork = head(chain.last().unwrap());
        let calls = storage.take_calls();
        most = most.max(written(&calls));
        assert!(
            calls.iter().all(|call| call.kind() != CallKind::Rename || call.path().ends_with("log.forking"))
        );
        fork.append(Message::user(format!("fork {n}"))).unwrap();
        talk(&fork, 10_000);
        chain.push(fork);
    }
    println!("at most {most} bytes written by a fork");
    assert!(most < (64 << 10) + 8192, "{most}");
    // Each goes on by itself, and has the story of all before it.
    let mut expected: Vec<String> = Vec::new();
    for (n, session) in chain.iter().enumerate() {
        session.append(Message::user(format!("own {n}"))).unwrap();
        let own = texts(&session.transcript().unwrap());
        assert_eq!(own[..expected.len()], expected, "{n}");
        expected = own;
        assert_eq!(expected.pop().unwrap(), format!("{:?}", [Part::text(format!("own {n}"))]));
        assert_eq!(
            session.ledger(|ledger| ledger.last_epoch()).unwrap(),
            Epoch(u64::try_from(n).unwrap() + 1)
        );
        assert_whole(&session.reader(), &format!("{n}"));
    }
    let ids: Vec<_> = chain.iter().map(Session::id).collect();
    for session in chain {
        session.close().unwrap();
    }
    for id in ids {
        let (session, report) = store.resume(id).unwrap();
        assert!(report.rebuilt_views.is_empty() && report.cut.is_none());
        session.close().unwrap();
    }
}

#[cfg(unix)]
#[test]
fn ten_megabytes_are_shared_and_either_side_may_be_deleted() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let options = settings(8 << 20, ViewPolicy::Off);
    let store = Store::open_with(&home, options).unwrap();
    let first = store.create(dir.path(), NewSession::default()).unwrap();
    talk(&first, 10 << 20);
    let expected = texts(&first.transcript().unwrap());
    let mut chain = vec![first];
    let allocated = |session: &Session| -> (u64, Vec<(u64, u64)>) {
        let mut files: Vec<_> =
            std::fs::read_dir(session.place().dir.join("log")).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        let files: Vec<_> = files.iter().map(|path| std::fs::metadata(path).unwrap()).collect();
        let own = files.iter().filter(|meta| meta.nlink() == 1).map(MetadataExt::size).sum();
        (own, files.iter().filter(|meta| meta.nlink() > 1).map(|meta| (meta.ino(), meta.size())).collect())
    };
    for n in 0..20 {
        let fork = head(chain.last().unwrap());
        let (own, shared) = allocated(&fork);
        println!("fork {n} of ten megabytes takes {own} bytes of its own");
        assert!(own < 66 << 10, "{own}");
        let bytes: u64 = shared.iter().map(|(_, len)| len).sum();
        assert!(bytes > 10 << 20, "{n}: {shared:?}");
        assert!(
            shared.iter().all(|file| allocated(chain.last().unwrap()).1.contains(file)),
            "the same files"
        );
        fork.append(Message::user(format!("fork {n}"))).unwrap();
        chain.push(fork);
    }
    let places: Vec<_> = chain.iter().map(|session| (session.id(), session.place().dir.clone())).collect();
    for session in chain {
        session.close().unwrap();
    }
    // The first one goes, then the last one, then one in the middle.
    for gone in [0, 20, 10] {
        std::fs::remove_dir_all(&places[gone].1).unwrap();
    }
    for (n, (id, place)) in places.iter().enumerate() {
        if place.exists() && n % 6 == 1 {
            assert_whole(&reader(&store, *id), &format!("{n}"));
            let (session, _) = store.resume(*id).unwrap();
            let own = texts(&session.transcript().unwrap());
            assert_eq!((&own[..expected.len()], own.len()), (&expected[..], expected.len() + n), "{n}");
        }
    }
}

#[test]
fn a_fork_is_a_session_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("home")).unwrap();
    let session = store.create(dir.path(), NewSession::new("goal")).unwrap();
    session.start_turn().unwrap();
    let key = IdempotencyKey([9; 16]);
    let usage = Usage { input: 100, output: 10, ..Usage::default() };
    let first = session.append(Message::user("first").key(key)).unwrap();
    session.append(Message::assistant("answer").usage(usage)).unwrap();
    session.end_turn(TurnOutcome::Completed).unwrap();
    session.set_title("by hand", TitleOrigin::Person).unwrap();
    let at = session.last();
    session.append(Message::user("later")).unwrap();

    let elsewhere = tempfile::tempdir().unwrap();
    let options = ForkOptions {
        id: Some(sessionlog::new_session_id()),
        workspace: Some(elsewhere.path().to_owned()),
        title: Some("another way".to_owned()),
    };
    let fork = session.fork(ForkPoint::At(at), options.clone()).unwrap();
    assert_eq!(Some(fork.id()), options.id);
    assert_eq!(fork.place().workspace, WorkspaceHash::of(&elsewhere.path().canonicalize().unwrap()));
    let summary = fork.summary().unwrap();
    let lineage = summary.forked.as_ref().unwrap();
    assert_eq!((lineage.what.parent, lineage.what.at), (session.id(), at));
    assert_eq!(summary.title().as_deref(), Some("another way"));
    assert_eq!((summary.usage.input, summary.inherited_usage.input), (0, 100));
    assert_eq!(summary, fork.reader().summary().unwrap(), "what it keeps is what the log says");
    // A key that was used before the fork was used in it.
    let again = fork.append(Message::user("first").key(key)).unwrap();
    assert_eq!(again.message_no, first.message_no);
    fork.start_turn().unwrap();
    fork.append(Message::user("in the fork")).unwrap();
    fork.append(Message::assistant("yes").usage(usage)).unwrap();
    fork.end_turn(TurnOutcome::Completed).unwrap();
    assert_eq!(fork.summary().unwrap().usage.input, 100);
    assert_eq!(session.summary().unwrap().usage.input, 100);
    assert_eq!(session.transcript().unwrap().len(), 3);
    let lines = std::fs::read_to_string(fork.place().dir.join("transcript.jsonl")).unwrap().lines().count();
    assert_eq!(lines, 4);
    let meta = std::fs::read(fork.place().dir.join(".meta.json")).unwrap();
    let meta: serde_json::Value = serde_json::from_slice(&meta).unwrap();
    assert_eq!(meta["sessionlog"]["id"], fork.id().to_string());

    // Both are listed, found, owned and resumed by their own ids.
    let rows = store.reader().list().unwrap();
    assert_eq!(rows.len(), 2);
    let row = store.reader().find(&fork.id().to_string()).unwrap();
    assert_eq!(row.forked, Some(ForkedFrom { session: session.id(), at }));
    assert_eq!((row.kind, row.messages, row.issue), (SessionKind::Root, 4, None));
    assert_eq!(row.title.as_deref(), Some("another way"));
    assert_eq!(row.status, Status::Running);
    let row = store.reader().find(&session.id().to_string()).unwrap();
    assert_eq!((row.forked, row.title.as_deref()), (None, Some("by hand")));
    assert_eq!(store.resume(fork.id()).unwrap_err().kind(), ErrorKind::Locked);
    let (id, source) = (fork.id(), session.id());
    session.finish(FinalStatus::Completed).unwrap();
    assert_eq!(store.reader().find(&id.to_string()).unwrap().status, Status::Running);
    fork.close().unwrap();
    let (fork, report) = store.resume(id).unwrap();
    assert!(report.interrupted_turns.is_empty() && report.rebuilt_views.is_empty(), "{report:?}");
    assert_eq!(report.epoch, Epoch(3));
    assert_eq!(fork.summary().unwrap().session_id, Some(id));

    for options in [options, ForkOptions { id: Some(source), ..ForkOptions::default() }] {
        let before = fork.last();
        let error = fork.fork(ForkPoint::Head, options).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, "session.exists"), "{error:?}");
        assert_eq!(fork.last(), before);
    }
    assert_whole(&reader(&store, source), "source");
    assert_whole(&fork.reader(), "fork");
}

#[test]
fn nothing_that_was_under_way_goes_on_in_a_fork() {
    let storage = SimStorage::new();
    let store = simulated(&storage);
    let session = store.create("/w", NewSession::default()).unwrap();
    let turn = session.start_turn().unwrap();
    session.append(Message::user("do it")).unwrap();
    let asking =
        Message::assistant("").call("a", "run", "{}").call("b", "read", "{}").call("c", "task", "{}");
    let asked = session.append(asking.call("d", "run", "{}")).unwrap();
    let running = session.start_call(asked.call(0), Effect::Mutating).unwrap();
    let pure = session.start_call(asked.call(1), Effect::Pure).unwrap();
    let child = NodeId(1);
    let opened = NodeOpened {
        child,
        invocation_id: InvocationId([5; 16]),
        parent: NodeId::ROOT,
        call: Some(asked.call(2)),
        call_id: Some("c".to_owned()),
        agent: "helper".to_owned(),
        kind: AgentKind::Inner,
        prompt: "help".to_owned(),
        description: None,
        working_directory: None,
        run_id: None,
        depth: 1,
        source_id: None,
    };
    session.append_batch(vec![NewEvent::now(NodeId::ROOT, opened)], Durability::Sync).unwrap();
    session.append_to(child, Message::user("help")).unwrap();
    let fork = head(&session);
    assert_eq!(fork.ledger(|ledger| ledger.open_turn(NodeId::ROOT)).unwrap(), None);
    assert_eq!(session.ledger(|ledger| ledger.open_turn(NodeId::ROOT)).unwrap(), Some(turn));
    assert_eq!(fork.open_calls().unwrap(), session.open_calls().unwrap());
    let context = fork.context().unwrap();
    validate_pairing(&context).unwrap();
    assert_eq!(context.len(), 6, "each call has exactly one result, which is no real one");

    let mut state = RecoveryState::default();
    fork.reader().fold(Position(u64::MAX), &mut state).unwrap();
    let steps = plan(&state, &|_| Availability::Available);
    assert!(steps.iter().all(|step| step.needs_host() == HostNeed::Nothing), "{steps:?}");
    let kinds: Vec<_> = steps.iter().map(std::mem::discriminant).collect();
    let node = NodeId::ROOT;
    for expected in [
        Step::ReportUnknown { node, call: asked.call(0) },
        Step::ReportUnknown { node, call: asked.call(1) },
        Step::MarkNotStarted { node, call: asked.call(3) },
    ] {
        assert!(steps.contains(&expected), "{expected:?} in {steps:?}");
    }
    assert!(steps.iter().any(|step| matches!(step, Step::Cancel { child: NodeId(1), .. })), "{steps:?}");
    assert!(kinds.len() >= 4);

    // In the session that was forked, all of it goes on.
    running.finish(CallResult::succeeded("done")).unwrap();
    pure.finish(CallResult::succeeded("read")).unwrap();
    session.end_turn(TurnOutcome::Completed).unwrap();
    assert_eq!(fork.open_calls().unwrap().len(), 4);
    fork.start_turn().unwrap();
    fork.append(Message::user("something else")).unwrap();
    // The child has one id in both; it is looked for where it was delegated.
    let invocation = InvocationId([5; 16]).to_string();
    let row = store.reader().find(&invocation).unwrap();
    assert_eq!((row.root, row.forked), (session.id(), None));
    let inherited = store.reader().rows(fork.place().clone()).pop().unwrap();
    assert_eq!((inherited.id, inherited.forked.map(|from| from.session)), (invocation, Some(session.id())));
    let id = fork.id();
    fork.close().unwrap();
    assert_eq!(store.resume(id).unwrap().1.unknown_calls.len(), 2);
}

/// A session that somebody owns, or nobody: it is read, and not touched.
#[test]
fn a_store_forks_what_it_does_not_own() {
    let storage = SimStorage::new();
    let store = simulated(&storage);
    let session = store.create("/w", NewSession::default()).unwrap();
    talk(&session, 9000);
    let (id, place) = (session.id(), session.place().dir.clone());
    let expected = texts(&session.transcript().unwrap());
    let other = simulated(&storage);
    for owner in ["owned", "crashed", "closed"] {
        let before = under(&storage, &place);
        let fork = other.fork(id, ForkPoint::Head, ForkOptions::default()).unwrap();
        assert_eq!(under(&storage, &place), before, "{owner}");
        assert_eq!(texts(&fork.transcript().unwrap()), expected, "{owner}");
        fork.append(Message::user("on")).unwrap();
        let inner = fork.fork(ForkPoint::At(Position(2)), ForkOptions::default()).unwrap();
        assert_eq!(inner.transcript().unwrap().len(), 0);
        assert_whole(&fork.reader(), owner);
        assert_eq!(under(&storage, &place), before, "{owner}");
        if owner == "owned" {
            session.append(Message::user("more")).unwrap();
            session.reader().verify().unwrap();
            storage.crash(CrashMode::KeepAll);
        } else {
            storage.crash(CrashMode::LoseAll);
        }
        let reading = reader(&other, id);
        let transcript = reading.tree(Position(u64::MAX)).unwrap().transcript(NodeId::ROOT);
        assert_eq!(texts(&transcript)[..expected.len()], expected, "{owner}");
        if owner != "owned" {
            continue;
        }
        let (session, _) = other.resume(id).unwrap();
        session.append(Message::user("resumed")).unwrap();
        session.close().unwrap();
        return check_closed(&other, &storage, id);
    }
}

fn check_closed(store: &Store, storage: &SimStorage, id: SessionId) {
    let place = reader(store, id).place().dir.clone();
    let before = under(storage, &place);
    let last = reader(store, id).log().verify().unwrap().last;
    let fork = store.fork(id, ForkPoint::Head, ForkOptions::default()).unwrap();
    assert_eq!(fork.summary().unwrap().forked.unwrap().what.at, last);
    fork.append(Message::user("behind the end")).unwrap();
    assert_eq!(under(storage, &place), before);
    let missing = store.fork(sessionlog::new_session_id(), ForkPoint::Head, ForkOptions::default());
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
}

/// One thread appends, others fork: each fork is a prefix that goes on.
#[test]
fn forks_while_the_session_is_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path().join("home"), settings(16 << 10, ViewPolicy::Off)).unwrap();
    let session = store.create(dir.path(), NewSession::default()).unwrap();
    let done = AtomicBool::new(false);
    let forks = Mutex::new(Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            // Until there were some forks, also where this thread has the machine for itself.
            let enough = |n| n >= 600 && (forks.lock().unwrap().len() > 4 || n >= 60_000);
            for n in (0..).take_while(|n| !enough(*n)) {
                session.append(Message::user(format!("{n} {}", "x".repeat(n % 700)))).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        for by_owner in [true, false] {
            let (session, store, done, forks) = (&session, &store, &done, &forks);
            scope.spawn(move || {
                let mut made = 0;
                while made < 3 || !done.load(Ordering::Acquire) {
                    made += 1;
                    let (point, options) = (ForkPoint::Head, ForkOptions::default());
                    let fork = if by_owner {
                        session.fork(point, options)
                    } else {
                        store.fork(session.id(), point, options)
                    };
                    let fork = fork.unwrap();
                    fork.append(Message::user("fork")).unwrap();
                    forks.lock().unwrap().push(fork);
                }
            });
        }
    });
    let all = texts(&session.transcript().unwrap());
    assert!(all.len() >= 600);
    let forks = forks.into_inner().unwrap();
    for fork in &forks {
        let mut own = texts(&fork.transcript().unwrap());
        assert_eq!(own.pop().unwrap(), format!("{:?}", [Part::text("fork")]));
        assert_eq!(all[..own.len()], own);
    }
    for fork in forks.iter().step_by(forks.len() / 4) {
        assert_whole(&fork.reader(), "fork");
    }
    assert_whole(&session.reader(), "source");
}

#[test]
fn every_position_is_the_fold_of_the_prefix_or_inside_a_frame() {
    let storage = SimStorage::new();
    let store = open_on(Arc::new(storage), settings(512, ViewPolicy::Off));
    let session = store.create("/w", NewSession::default()).unwrap();
    for n in 0..4 {
        session.start_turn().unwrap();
        session.append(Message::user(format!("ask {n}"))).unwrap();
        let asked = session.append(Message::assistant("").call("c", "run", "{}")).unwrap();
        let running = session.start_call(asked.call(0), Effect::Pure).unwrap();
        running.finish(CallResult::succeeded("ok")).unwrap();
        session.end_turn(TurnOutcome::Completed).unwrap();
    }
    let source = session.reader();
    for at in (1..=session.last().0).map(Position) {
        match session.fork(ForkPoint::At(at), ForkOptions::default()) {
            Ok(fork) => {
                let expected = source.tree(at).unwrap();
                let transcript = fork.transcript().unwrap();
                assert_eq!(texts(&transcript), texts(&expected.transcript(NodeId::ROOT)), "{at}");
                assert_eq!(fork.context().unwrap(), expected.context(NodeId::ROOT), "{at}");
                let (mut own, mut of_source) = (Vec::new(), Vec::new());
                for (reader, events) in [(fork.reader(), &mut own), (source.clone(), &mut of_source)] {
                    reader.fold(at, &mut Keep(events)).unwrap();
                }
                assert_eq!(own, of_source, "{at}");
                assert_whole(&fork.reader(), &format!("{at}"));
            }
            // The first frame: created and opened.
            Err(error) => assert_eq!((at, error.code()), (Position(1), "fork.inside_frame")),
        }
    }
}

struct Keep<'a>(&'a mut Vec<String>);

impl Projection for Keep<'_> {
    fn apply(&mut self, event: &sessionlog::codec::event::LoggedEvent) {
        self.0.push(format!("{event:?}"));
    }
}

/// A disk, and what it was when the power went.
type Moment = (String, SimStorage);

/// A fork is made, and the disk is as power cuts before each of its changes leave it. What goes before the fork is not of
/// interest: `make` forgets those moments.
fn cut_while(
    make: impl FnOnce(&Store, &Mutex<Vec<Moment>>),
    storage: &SimStorage,
    options: StoreOptions,
) -> Vec<Moment> {
    let moments = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let (inner, moments) = (storage.clone(), Arc::clone(&moments));
        move |kind| {
            let modes = [CrashMode::KeepAll, CrashMode::LoseAll].into_iter();
            for mode in modes.chain((0..12).map(CrashMode::Seeded)).filter(|_| kind != CallKind::Read) {
                let what = format!("before {kind:?}, {mode:?}");
                moments.lock().unwrap().push((what, inner.power_cut(mode)));
            }
        }
    };
    let hooked = Hooked { inner: storage.clone(), hook: Arc::new(hook) };
    make(&open_on(Arc::new(hooked), options), &moments);
    std::mem::take(&mut *moments.lock().unwrap())
}

/// What a crash left: a whole fork, or one that was never created.
fn check_cut(
    store: &Store,
    source: SessionId,
    options: &ForkOptions,
    expected: &[String],
    what: &str,
) -> bool {
    let id = options.id.unwrap();
    match store.resume(id) {
        Ok((fork, _)) => {
            assert_eq!(texts(&fork.transcript().unwrap()), expected, "{what}");
            assert_eq!(fork.summary().unwrap().title().as_deref(), Some("forked"), "{what}");
            assert_whole(&fork.reader(), what);
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{what}: {error:?}");
            let rows = store.reader().list().unwrap();
            assert!(rows.iter().all(|row| row.root == source || row.issue.is_some()), "{what}: {rows:?}");
            // Another id, and the same one.
            for options in [ForkOptions::default(), options.clone()] {
                let fork = store.fork(source, ForkPoint::Head, options).unwrap();
                assert_eq!(texts(&fork.transcript().unwrap()), expected, "{what}");
                assert_whole(&fork.reader(), what);
            }
            false
        }
    }
}

/// A power cut at every call that changes the disk: the source is as it was, and there is a fork or none.
#[test]
fn a_crash_at_every_call_leaves_a_session_or_one_that_was_never_created() {
    let (storage, settings) = (SimStorage::new(), settings(2048, ViewPolicy::Off));
    let session = simulated(&storage).create("/w", NewSession::default()).unwrap();
    talk(&session, 7000);
    session.start_turn().unwrap();
    let (source, place) = (session.id(), session.place().dir.join("log"));
    let expected = texts(&session.transcript().unwrap());
    session.close().unwrap();
    let before = under(&storage, &place);
    let id = Some(sessionlog::new_session_id());
    let options = ForkOptions { id, title: Some("forked".to_owned()), ..ForkOptions::default() };
    let make = |store: &Store, moments: &Mutex<Vec<Moment>>| {
        moments.lock().unwrap().clear();
        std::mem::forget(store.fork(source, ForkPoint::Head, options.clone()).unwrap());
    };
    let mut moments = cut_while(make, &storage, settings);
    assert!(moments.len() > 150, "{}", moments.len());
    let calls = moments.len();
    moments.push(("after it returned".to_owned(), storage.power_cut(CrashMode::LoseAll)));
    let mut made = 0;
    for (nth, (what, storage)) in moments.iter().enumerate() {
        let (what, store) = (format!("moment {nth}, {what}"), simulated(storage));
        assert_eq!(under(storage, &place), before, "{what}");
        assert_whole(&reader(&store, source), &what);
        let there = check_cut(&store, source, &options, &expected, &what);
        assert!(there || nth < calls, "it was acknowledged");
        made += usize::from(there);
        assert_eq!(under(storage, &place), before, "{what}");
    }
    assert!((4..100).contains(&made), "{made}");
}

/// The same where the session that is forked seals its segment for it.
#[test]
fn a_crash_while_the_source_is_sealed_loses_nothing_of_it() {
    let storage = SimStorage::new();
    let settings = StoreOptions { durability: Durability::Sync, ..settings(1 << 20, ViewPolicy::Off) };
    let id = Some(sessionlog::new_session_id());
    let options = ForkOptions { id, title: Some("forked".to_owned()), ..ForkOptions::default() };
    let source = sessionlog::new_session_id();
    let mut expected = Vec::new();
    let moments = cut_while(
        |store, moments| {
            let new = NewSession { id: Some(source), ..NewSession::default() };
            let session = store.create("/w", new).unwrap();
            talk(&session, 80_000);
            expected = texts(&session.transcript().unwrap());
            moments.lock().unwrap().clear();
            std::mem::forget(session.fork(ForkPoint::Head, options.clone()).unwrap());
            std::mem::forget(session);
        },
        &storage,
        settings,
    );
    let mut segments = std::collections::BTreeSet::new();
    for (nth, (what, storage)) in moments.iter().enumerate() {
        let (what, store) = (format!("moment {nth}, {what}"), open_on(Arc::new(storage.clone()), settings));
        let check = reader(&store, source).verify().unwrap();
        assert!(check.worst() < Some(Severity::Lost), "{what}");
        segments.insert(check.log.segments);
        check_cut(&store, source, &options, &expected, &what);
        let (session, _) = store.resume(source).unwrap();
        assert_eq!(texts(&session.transcript().unwrap()), expected, "{what}");
        assert_whole(&session.reader(), &what);
    }
    assert_eq!(Vec::from_iter(segments), [1, 2]);
}

/// A fork whose own segments are gone is not taken for the session that it was forked from.
#[test]
fn a_fork_that_lost_its_own_part_is_refused() {
    let storage = SimStorage::new();
    let store = simulated(&storage);
    let session = store.create("/w", NewSession::default()).unwrap();
    talk(&session, 36_000);
    let source = session.place().dir.clone();
    let fork = head(&session);
    let (id, dir) = (fork.id(), fork.place().dir.join("log"));
    storage.crash(CrashMode::LoseAll);
    let before = under(&storage, &source);
    let own = under(&storage, &dir).into_keys().next_back().unwrap();
    for truncated in [true, false] {
        if truncated {
            storage.corrupt(&own, |bytes| bytes.truncate(20)).unwrap();
        } else {
            storage.remove_file(&own).unwrap();
        }
        let error = store.resume(id).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Corrupt, "session.identity"), "{error:?}");
        assert_eq!(
            store.fork(id, ForkPoint::Head, ForkOptions::default()).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        assert_eq!(under(&storage, &source), before);
    }
}

/// A disk that is full refuses the fork, and the session goes on.
#[test]
fn a_fork_that_fails_is_no_session() {
    let storage = SimStorage::new();
    let store = simulated(&storage);
    let session = store.create("/w", NewSession::default()).unwrap();
    talk(&session, 6000);
    let options = ForkOptions { id: Some(sessionlog::new_session_id()), ..ForkOptions::default() };
    storage.fail(Fault::new(CallKind::SyncAll, FaultError::EIO));
    let error = session.fork(ForkPoint::Head, options.clone()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Conflict), "{error:?}");
    storage.clear_faults();
    assert_eq!(store.resume(options.id.unwrap()).unwrap_err().kind(), ErrorKind::NotFound);
    session.append(Message::user("on")).unwrap();
    let fork = session.fork(ForkPoint::Head, options).unwrap();
    assert_eq!(fork.transcript().unwrap().len(), session.transcript().unwrap().len());
    let mut events = 0;
    fork.reader()
        .events(Position(1), &mut |item| {
            events += u64::from(matches!(item, EventItem::Event(_)));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(events, fork.last().0);
}

/// A crash in the middle of a roll leaves a sealed segment, and half of a header behind it. A fork that is made then shares
/// the sealed one with its source; the source's next owner, who puts a new file in its place, must not touch the old one.
#[test]
fn a_segment_that_a_fork_shares_is_not_touched_by_recovery() {
    let storage = SimStorage::new();
    let store = simulated(&storage);
    let session = store.create("/w", NewSession::default()).unwrap();
    let (id, log) = (session.id(), session.place().dir.join("log"));
    talk(&session, 36_000);
    std::mem::forget(session);
    storage.crash(CrashMode::KeepAll);
    let segments = storage.list(&log).unwrap();
    assert!(segments.len() > 1, "{segments:?}");
    let last = storage.open(&log.join(&segments.last().unwrap().name), Access::ReadWrite).unwrap();
    last.set_len(10).unwrap();

    let store = simulated(&storage);
    let fork = store.fork(id, ForkPoint::Head, ForkOptions::default()).unwrap();
    let fork_id = fork.id();
    fork.close().unwrap();
    store.resume(id).unwrap().0.close().unwrap();
    assert_whole(&reader(&store, fork_id), "the fork");
    assert_whole(&reader(&store, id), "its source");
    store.resume(fork_id).unwrap().0.close().unwrap();
}

/// A host that does not wait for the disk forks: what the fork begins with is durable in the session too, or a loss of power
/// leaves a fork of something that never was. Whatever came behind that point may be lost.
#[test]
fn what_a_fork_begins_with_is_durable_in_its_session_too() {
    for which in ["earlier", "last", "head"] {
        let storage = SimStorage::new();
        let store = simulated(&storage);
        let session = store.create("/w", NewSession::new("goal")).unwrap();
        let first = session.append(Message::user("first")).unwrap().position;
        let last = session.append(Message::assistant("second")).unwrap().position;
        let (point, at) = match which {
            "earlier" => (ForkPoint::At(first), first),
            "last" => (ForkPoint::At(last), last),
            _ => (ForkPoint::Head, last),
        };
        let fork = session.fork(point, ForkOptions::default()).unwrap();
        let (id, fork_id) = (session.id(), fork.id());
        std::mem::forget((session, fork));
        let store = simulated(&storage.power_cut(CrashMode::LoseAll));
        let (session, report) = store.resume(id).unwrap();
        assert!(report.last >= at, "{which}: {} of {at}", report.last);
        let (fork, _) = store.resume(fork_id).unwrap();
        assert_eq!(fork.summary().unwrap().forked.as_ref().unwrap().what.at, at, "{which}");
        session.close().unwrap();
        fork.close().unwrap();
    }
}
