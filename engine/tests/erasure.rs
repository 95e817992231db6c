//! Erasing on purpose: what was erased is nowhere in the files, everything else is untouched and provably so, and a crash
//! at any moment leaves it undecided or finished.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::collections::BTreeSet;

use sessionlog::codec::event::*;
use sessionlog::codec::ids::{NodeId, Position};
use sessionlog::log::Severity;
use sessionlog::projections::{TreeState, validate_pairing};
use sessionlog::storage::{CallKind, CrashMode, Fault, FaultError, Repeat, SimStorage};
use sessionlog::{
    CallResult, ChildResult, Delegated, Delegation, ErrorKind, ForkOptions, ForkPoint, Message, NewSession,
    Session, StoreOptions, ViewPolicy, Work,
};
use support::tree::{bound, open, open_with};

const ROOT: NodeId = NodeId::ROOT;
const SECRET: &str = "xyzzy-plugh";

fn take<'a>(session: &'a Session, which: impl Fn(&Work<'a>) -> bool) -> Work<'a> {
    session.work().unwrap().into_iter().find(|work| which(work)).unwrap()
}

/// A child whose conversation, nested child and bookmark are full of the secret, and its end, if it is to have one.
fn delegate(session: &Session, status: Option<NodeStatus>) -> NodeId {
    session.prompt(Message::user("Go.")).unwrap();
    session.append(Message::assistant("I delegate.").call("c", "delegate", "{}")).unwrap();
    let Work::Call(call) = take(session, |work| matches!(work, Work::Call(_))) else { panic!() };
    let Delegated::Child(child) = call.delegate(Delegation::inner("worker", SECRET)).unwrap() else {
        panic!()
    };
    let Work::Begin(new) = take(session, |work| matches!(work, Work::Begin(_))) else { panic!() };
    new.begin(bound(), vec![Message::system(SECRET)]).unwrap();
    session.append_to(child, Message::assistant(SECRET).call("n", "ask", "{}")).unwrap();
    let Work::Call(call) = take(session, |work| work.node() == child) else { panic!() };
    assert!(matches!(call.delegate(Delegation::external("oracle", SECRET)).unwrap(), Delegated::Child(_)));
    let Work::Ask(request) = take(session, |work| matches!(work, Work::Ask(_))) else { panic!() };
    request.bind(bound()).unwrap().settle(ChildResult::completed(SECRET)).unwrap();
    session
        .append_to(child, Message::assistant(format!("{SECRET} at length {}", "word ".repeat(400))))
        .unwrap();
    if let Some(status) = status {
        let Work::Settle(end) = take(session, |work| matches!(work, Work::Settle(_))) else { panic!() };
        let parts = vec![Part::text("the result")];
        end.settle(ChildResult { status, reason: None, parts }).unwrap();
        session.append(Message::assistant("Thank you.")).unwrap();
        session.end_turn(TurnOutcome::Completed).unwrap();
    }
    child
}

fn found(storage: &SimStorage, text: &str) -> Vec<String> {
    let holds = |bytes: Vec<u8>| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let files = storage.files().into_iter();
    files
        .filter(|path| storage.read_file(path).is_some_and(holds))
        .map(|path| path.display().to_string())
        .collect()
}

#[track_caller]
fn check_whole(session: &Session) {
    let verified = session.reader().verify().unwrap();
    // Space that is not used yet is noted.
    let wrong: Vec<_> = verified.all().filter(|finding| finding.severity > Severity::Note).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let cold = session.reader().tree(Position(u64::MAX)).unwrap();
    let live = session.with_tree(TreeState::clone).unwrap();
    assert!(live == cold, "the live fold is the cold one");
    for node in cold.nodes() {
        validate_pairing(&cold.context(node)).unwrap();
    }
}

#[test]
fn a_completed_child_is_deleted_and_the_parents_exchange_stays() {
    let storage = SimStorage::new();
    let session = open(&storage).create("/w", NewSession::new("try")).unwrap();
    let child = delegate(&session, Some(NodeStatus::Completed));
    let (context, id) = (session.context().unwrap(), session.id());
    assert!(!found(&storage, SECRET).is_empty());
    let plan = session.plan_child_deletion(child).unwrap();
    assert_eq!(plan.descendants.len(), 1);
    assert!(!found(&storage, SECRET).is_empty(), "a preview");
    let deletion = session.delete_child(child, "ada").unwrap();
    assert_eq!(deletion, plan);
    assert_eq!(found(&storage, SECRET), Vec::<String>::new());
    assert_eq!(session.context().unwrap(), context);
    check_whole(&session);
    assert_eq!(session.delete_child(child, "ada").unwrap_err().kind(), ErrorKind::NotFound);
    // The number is not given again, and life goes on.
    let next = delegate(&session, Some(NodeStatus::Completed));
    assert!(next.0 > child.0 + 1);
    session.close().unwrap();
    let (session, report) = open(&storage).resume(id).unwrap();
    assert_eq!((report.erased, report.owed), (0, vec![]));
    check_whole(&session);
}

#[test]
fn only_a_completed_child_is_deleted() {
    let statuses = [
        None,
        Some(NodeStatus::Blocked),
        Some(NodeStatus::Unknown),
        Some(NodeStatus::Failed),
        Some(NodeStatus::Cancelled),
    ];
    for status in statuses {
        let storage = SimStorage::new();
        let session = open(&storage).create("/w", NewSession::new("try")).unwrap();
        let child = delegate(&session, status);
        let last = session.last();
        assert_eq!(session.delete_child(child, "ada").unwrap_err().kind(), ErrorKind::Conflict, "{status:?}");
        assert_eq!(session.last(), last);
        assert!(!found(&storage, SECRET).is_empty());
    }
    let session = open(&SimStorage::new()).create("/w", NewSession::new("try")).unwrap();
    assert_eq!(session.delete_child(ROOT, "ada").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(session.delete_child(NodeId(7), "ada").unwrap_err().kind(), ErrorKind::NotFound);
}

/// Every call that changes the disk fails from its n-th on, and then power goes.
#[test]
fn a_crash_in_a_deletion_leaves_it_undecided_or_is_finished_by_the_next_owner() {
    let prepare = || {
        let storage = SimStorage::new();
        let session = open(&storage).create("/w", NewSession::new("try")).unwrap();
        let child = delegate(&session, Some(NodeStatus::Completed));
        storage.take_calls();
        (storage, session, child)
    };
    let (storage, session, child) = prepare();
    session.delete_child(child, "ada").unwrap();
    let changes: Vec<CallKind> =
        storage.take_calls().iter().filter(|call| call.changes_disk()).map(|call| call.kind()).collect();
    assert!(changes.len() > 10, "{changes:?}");
    let (mut undecided, mut finished) = (0, 0);
    for stop in 0..changes.len() {
        let (storage, session, child) = prepare();
        let id = session.id();
        for kind in changes.iter().collect::<BTreeSet<_>>() {
            let before = changes[..stop].iter().filter(|it| *it == kind).count();
            let fault = Fault::new(*kind, FaultError::EIO).after(before.try_into().unwrap());
            storage.fail(fault.repeat(Repeat::Always));
        }
        let deleted = session.delete_child(child, "ada");
        std::mem::forget(session);
        for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Seeded(stop.try_into().unwrap())] {
            let after = storage.power_cut(mode);
            let (session, _) = open(&after).resume(id).unwrap();
            check_whole(&session);
            match session.plan_child_deletion(child) {
                Ok(_) => {
                    undecided += 1;
                    assert!(deleted.is_err(), "stop {stop}: what was acknowledged is undone");
                }
                Err(error) => {
                    finished += 1;
                    assert_eq!(error.kind(), ErrorKind::NotFound);
                    assert_eq!(found(&after, SECRET), Vec::<String>::new(), "stop {stop} {mode:?}");
                }
            }
        }
    }
    assert!(undecided > 0 && finished > 5, "{undecided} {finished}");
}

#[test]
fn a_redacted_message_is_nowhere_and_all_else_verifies() {
    let storage = SimStorage::new();
    let session = open(&storage).create("/w", NewSession::new("try")).unwrap();
    session.prompt(Message::user("Go.")).unwrap();
    let said = session.append(Message::assistant(format!("The key is {SECRET}."))).unwrap();
    session.end_turn(TurnOutcome::Completed).unwrap();
    assert!(found(&storage, SECRET).len() >= 2, "in the log and in the view");
    let positions = BTreeSet::from([said.receipt.first]);
    let erasure = session.redact(&positions, "a key").unwrap();
    assert_eq!((erasure.records, erasure.segments), (1, 1));
    assert_eq!(found(&storage, SECRET), Vec::<String>::new());
    check_whole(&session);
    assert_eq!(session.redact(&positions, "again").unwrap().records, 0);
    // Structure is not erased, and neither is what is not there.
    let structure = session.redact(&BTreeSet::from([Position(1)]), "no").unwrap_err();
    let missing = session.redact(&BTreeSet::from([Position(999)]), "no").unwrap_err();
    assert_eq!((structure.kind(), missing.kind()), (ErrorKind::Invalid, ErrorKind::NotFound));

    // One byte changed elsewhere is found all the same.
    let id = session.id();
    session.close().unwrap();
    let segment =
        storage.files().into_iter().find(|path| path.extension().is_some_and(|it| it == "seg")).unwrap();
    storage
        .corrupt(&segment, |bytes| {
            let at = bytes.windows(3).position(|window| window == b"Go.").unwrap();
            bytes[at] = b'N';
        })
        .unwrap();
    let reader = open(&storage).reader().session(id).unwrap();
    assert!(reader.verify().unwrap().worst().is_some());
}

/// A message that asked for tools was redacted, and `verify` took its results for answers to calls that never were: a
/// warning for ever, about a session that is as it should be.
#[test]
fn results_of_calls_that_are_erased_break_no_law() {
    let storage = SimStorage::new();
    let session = open(&storage).create("/w", NewSession::new("try")).unwrap();
    session.prompt(Message::user("Go.")).unwrap();
    let asked =
        session.append(Message::assistant(SECRET).call("a", "run", SECRET).call("b", "run", "{}")).unwrap();
    for call in [0, 1] {
        let running = session.start_call(asked.call(call), Effect::Pure).unwrap();
        running.finish(CallResult::succeeded("done")).unwrap();
    }
    session.append(Message::assistant("Done.")).unwrap();
    session.end_turn(TurnOutcome::Completed).unwrap();
    session.redact(&BTreeSet::from([asked.position]), "a key").unwrap();
    check_whole(&session);
    let id = session.id();
    session.close().unwrap();
    let (session, report) = open(&storage).resume(id).unwrap();
    assert!(report.unknown_calls.is_empty());
    session.append(Message::user("And?")).unwrap();
    check_whole(&session);
}

/// The records were erased, and then the process died, or the view could not be written: it went on to show what was
/// erased, and was taken for whole by every later owner. (Seed 1015025 of the schedules.)
#[test]
fn a_view_from_before_an_erasure_is_not_trusted() {
    let storage = SimStorage::new();
    let session = open(&storage).create("/w", NewSession::new("try")).unwrap();
    session.prompt(Message::user("Go.")).unwrap();
    let said = session.append(Message::assistant(SECRET)).unwrap();
    session.end_turn(TurnOutcome::Completed).unwrap();
    let view = session.place().dir.join("transcript.jsonl");
    let shows =
        |storage: &SimStorage| String::from_utf8(storage.read_file(&view).unwrap()).unwrap().contains(SECRET);
    // The view's new file can't get its place.
    storage.fail(Fault::new(CallKind::Rename, FaultError::EIO).after(1));
    let refused = session.redact(&BTreeSet::from([said.receipt.first]), "a key").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Io, "it is not done as long as it can be read anywhere");
    assert!(shows(&storage));
    let id = session.id();
    std::mem::forget(session);
    let after = storage.power_cut(CrashMode::KeepAll);
    drop(open(&after).resume(id).unwrap());
    assert!(!shows(&after));
    assert_eq!(found(&after, SECRET), Vec::<String>::new());
}

/// The directory's sync failed behind the renaming that put the erased segment in its place: the system showed it from then
/// on, and the disk never got it. Later owners took the erasure for done, and the next loss of power brought the text back.
/// (Seed 50043440 of the schedules.)
#[test]
fn what_reads_as_erased_after_a_failed_sync_is_erased_once_more() {
    let storage = SimStorage::new();
    let session = open(&storage).create("/w", NewSession::new("try")).unwrap();
    session.prompt(Message::user("Go.")).unwrap();
    let said = session.append(Message::assistant(SECRET)).unwrap();
    let (id, log) = (session.id(), session.place().dir.join("log"));
    // Once for the new segment behind the one that is erased from, then for the replacement.
    storage.fail(Fault::new(CallKind::SyncDir, FaultError::EIO).on(&log).after(1));
    let refused = session.redact(&BTreeSet::from([said.receipt.first]), "a key").unwrap_err();
    assert_eq!((refused.kind(), storage.armed_faults()), (ErrorKind::Io, 0));
    assert_eq!(session.append(Message::user("And?")).unwrap_err().kind(), ErrorKind::Closed);
    std::mem::forget(session);
    let killed = storage.power_cut(CrashMode::KeepAll);
    let in_the_log = |storage: &SimStorage| {
        let found = found(storage, SECRET);
        found.into_iter().filter(|path| path.ends_with(".seg")).count()
    };
    assert_eq!((in_the_log(&killed), in_the_log(&killed.power_cut(CrashMode::LoseAll))), (0, 1));
    let (session, _) = open(&killed).resume(id).unwrap();
    check_whole(&session);
    std::mem::forget(session);
    let after = killed.power_cut(CrashMode::LoseAll);
    assert_eq!(in_the_log(&after), 0);
    check_whole(&open(&after).resume(id).unwrap().0);
}

#[test]
fn views_that_another_host_kept_do_not_show_it_either() {
    let storage = SimStorage::new();
    let session = open(&storage).create("/w", NewSession::new("try")).unwrap();
    session.prompt(Message::user("Go.")).unwrap();
    let said = session.append(Message::assistant(SECRET)).unwrap();
    session.end_turn(TurnOutcome::Completed).unwrap();
    let id = session.id();
    session.close().unwrap();
    let options = StoreOptions { views: ViewPolicy::Off, ..StoreOptions::default() };
    let (session, _) = open_with(&storage, options).resume(id).unwrap();
    session.redact(&BTreeSet::from([said.receipt.first]), "a key").unwrap();
    assert_eq!(found(&storage, SECRET), Vec::<String>::new());
}

#[test]
fn a_fork_keeps_what_it_shares() {
    let storage = SimStorage::new();
    let session = open(&storage).create("/w", NewSession::new("try")).unwrap();
    let child = delegate(&session, Some(NodeStatus::Completed));
    let fork = session.fork(ForkPoint::Head, ForkOptions::default()).unwrap();
    let before = fork.with_tree(|tree| tree.transcript(child)).unwrap();
    session.delete_child(child, "ada").unwrap();
    check_whole(&session);
    check_whole(&fork);
    assert_eq!(fork.reader().tree(Position(u64::MAX)).unwrap().transcript(child), before);
    fork.delete_child(child, "ada").unwrap();
    check_whole(&fork);
    session.close().unwrap();
    fork.close().unwrap();
    assert_eq!(found(&storage, SECRET), Vec::<String>::new());
}
