//! One session through its public interface: record, crash, resume, read.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic"
)]

use std::ops::ControlFlow;
use std::sync::Arc;

use sessionlog::codec::event::{
    Audience, CallAudit, CallFinished, CallForm, Effect, Event, FinalStatus, MessageAppended, NewEvent,
    Outcome, Part, ProviderIds, ResultFlag, ResultOrigin, Role, ToolCall, TurnOutcome, Usage,
};
use sessionlog::codec::ids::{IdempotencyKey, MessageNo, NodeId, Position, Timestamp};
use sessionlog::log::{Durability, Reached};
use sessionlog::projections::{EntryBody, Status, validate_pairing};
use sessionlog::session::{EventItem, PreviousEnd};
use sessionlog::storage::{CallKind, CrashMode, SimStorage};
use sessionlog::{
    CallResult, Clock, ErrorKind, Message, NewArtifact, NewSession, Store, StoreOptions, StoreReader,
    SystemClock,
};

fn home() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("home")).unwrap();
    (dir, store)
}

#[test]
fn record_crash_resume_read() {
    let (dir, store) = home();
    let session = store.create(dir.path(), NewSession::new("fix the test").model("m1")).unwrap();
    let id = session.id();
    session.start_turn().unwrap();
    session.append(Message::user("Fix the failing test.")).unwrap();
    let asked = session
        .append(
            Message::assistant("On it.")
                .call("c1", "read", r#"{"path":"a"}"#)
                .call("c2", "run", "{}")
                .call("c3", "run", "{}"),
        )
        .unwrap();
    let read = session.start_call(asked.call(0), Effect::Pure).unwrap();
    read.finish(CallResult::succeeded("fn main() {}")).unwrap();
    drop(session.start_call(asked.call(1), Effect::Mutating).unwrap());

    // Another owner is refused while this one lives; a reader is not.
    let refused = store.resume(id).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Locked);
    assert_eq!(refused.owner().unwrap().pid, std::process::id());
    let reader = StoreReader::open(store.reader().path()).unwrap().session(id).unwrap();
    assert_eq!(reader.status(&reader.summary().unwrap()), Status::Running);

    // As a crash does it: nothing is closed, only the lock goes.
    crash(session);
    let summary = reader.summary().unwrap();
    assert_eq!(reader.status(&summary), Status::Crashed);

    let (session, report) = store.resume(id).unwrap();
    assert_eq!(report.previous_end, PreviousEnd::Crashed);
    assert_eq!(report.unknown_calls.len(), 1);
    assert_eq!(report.unknown_calls[0].call_id, "c2");
    assert_eq!(report.not_started_calls.len(), 1);
    assert_eq!(report.interrupted_turns.len(), 1);
    let context = session.context().unwrap();
    validate_pairing(&context).unwrap();
    let roles: Vec<_> = context.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::Tool]);
    session.close().unwrap();

    // The unknown outcome was recorded once, however often the session is resumed.
    let last = reader.log().verify().unwrap().last;
    let (session, report) = store.resume(id).unwrap();
    assert_eq!(report.previous_end, PreviousEnd::Closed);
    assert!(report.unknown_calls.is_empty());
    session.finish(FinalStatus::Completed).unwrap();
    assert_eq!(reader.log().verify().unwrap().last, Position(last.0 + 3));
    let unknown = reader.tree(Position(u64::MAX)).unwrap().transcript(NodeId::ROOT);
    let unknown = unknown.iter().filter(
        |entry| matches!(&entry.body, EntryBody::Result(result, _) if result.outcome == Outcome::Unknown),
    );
    assert_eq!(unknown.count(), 1);
    assert_eq!(reader.status(&reader.summary().unwrap()), Status::Completed);
    let check = reader.verify().unwrap();
    assert_eq!(check.worst(), None, "{:?}", check.all().collect::<Vec<_>>());
}

/// What the death of a session's owner leaves: the handle is leaked, and the lock is free. The kernel drops the lock of
/// a dead process; here its file is replaced, which has the same effect for everybody else.
fn crash(session: sessionlog::Session) {
    let lock = session.place().dir.join("owner.lock");
    std::mem::forget(session);
    std::fs::remove_file(&lock).unwrap();
    std::fs::write(&lock, "").unwrap();
}

#[test]
fn views_follow_and_are_made_anew() {
    let (dir, store) = home();
    let session = store.create(dir.path(), NewSession::default()).unwrap();
    let place = session.place().dir.clone();
    let id = session.id();
    session.start_turn().unwrap();
    session.append(Message::user("one")).unwrap();
    session.append(Message::assistant("two")).unwrap();
    session.end_turn(TurnOutcome::Completed).unwrap();
    let transcript = place.join("transcript.jsonl");
    assert_eq!(std::fs::read_to_string(&transcript).unwrap().lines().count(), 2);
    session.append(Message::user("three")).unwrap();
    session.finish(FinalStatus::Completed).unwrap();
    let good = std::fs::read(&transcript).unwrap();
    assert_eq!(good.iter().filter(|byte| **byte == b'\n').count(), 3);
    let meta: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.join(".meta.json")).unwrap()).unwrap();
    assert_eq!(meta["status"], "complete");
    assert_eq!(meta["message_count"], 3);

    for spoil in [&b""[..], b"\0\0\0\0", b"{}"] {
        for name in ["transcript.jsonl", ".meta.json"] {
            std::fs::write(place.join(name), spoil).unwrap();
            let (session, report) = store.resume(id).unwrap();
            assert!(!report.rebuilt_views.is_empty(), "{name} {spoil:?}");
            session.finish(FinalStatus::Completed).unwrap();
            assert_eq!(std::fs::read(&transcript).unwrap(), good, "{name} {spoil:?}");
        }
    }
}

#[test]
fn laws_are_checked_before_anything_is_written() {
    let (dir, store) = home();
    let session = store.create(dir.path(), NewSession::default()).unwrap();
    let before = session.last();
    let twice = Message::assistant("x").call("c", "run", "{}").call("c", "run", "{}");
    assert_eq!(session.append(twice).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(session.append(Message::new(Role::Tool, "x")).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(session.end_turn(TurnOutcome::Completed).unwrap_err().kind(), ErrorKind::Invalid);
    let asked = session.append(Message::assistant("x").call("c", "run", "{}")).unwrap();
    assert_eq!(session.start_call(asked.call(1), Effect::Pure).unwrap_err().kind(), ErrorKind::NotFound);
    session.start_call(asked.call(0), Effect::Pure).unwrap().finish(CallResult::succeeded("y")).unwrap();
    assert_eq!(session.start_call(asked.call(0), Effect::Pure).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(
        session.finish_call(asked.call(0), CallResult::succeeded("z")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(session.last(), Position(before.0 + 3));
    session.close().unwrap();
}

/// The first context of a session is folded from the files, while other threads' appends are queued and not yet written.
/// It once was kept up from there without them, for ever.
#[test]
fn a_context_that_is_first_asked_for_in_the_middle_of_appends_misses_none() {
    for _ in 0..20 {
        let (dir, store) = home();
        let session = store.create(dir.path(), NewSession::default()).unwrap();
        let counts = std::thread::scope(|scope| {
            let appending: Vec<_> = (0..4)
                .map(|thread| {
                    let session = &session;
                    scope.spawn(move || {
                        for n in 0..10 {
                            session.append(Message::user(format!("{thread} {n}"))).unwrap();
                        }
                    })
                })
                .collect();
            let first = session.context().unwrap().len();
            session.refresh_views().unwrap();
            appending.into_iter().for_each(|thread| thread.join().unwrap());
            (first, session.context().unwrap().len())
        });
        assert_eq!(counts.1, 40, "{counts:?}");
        let transcript = session.place().dir.join("transcript.jsonl");
        session.finish(FinalStatus::Completed).unwrap();
        assert_eq!(std::fs::read_to_string(transcript).unwrap().lines().count(), 40);
    }
}

/// The messages and the results of calls that a session's log has.
fn messages_and_results(session: &sessionlog::Session) -> (Vec<MessageAppended>, Vec<CallFinished>) {
    let (mut said, mut finished) = (Vec::new(), Vec::new());
    session
        .reader()
        .events(Position(1), &mut |item| {
            match item {
                EventItem::Event(event) => match event.event {
                    Event::MessageAppended(message) => said.push(message),
                    Event::CallFinished(call) => finished.push(call),
                    _ => {}
                },
                other => panic!("{other:?}"),
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    (said, finished)
}

/// All that a host says of a message and of a result stands in the log as it said it: the ids of the response are what a
/// provider's support asks for, and what an audit keeps can't be had again.
#[test]
fn what_a_host_says_of_a_message_stands_in_the_log() {
    let (dir, store) = home();
    let session = store.create(dir.path(), NewSession::default()).unwrap();
    let usage = Usage { input: 1, cache_read: 2, cache_write: 3, output: 4, reasoning: 5 };
    let provider = ProviderIds { response: Some("msg_1".into()), request: Some("req_1".into()) };
    let key = IdempotencyKey([7; 16]);
    let message = Message::assistant("said")
        .call("c", "run", "{ }")
        .part(Part::text("more"))
        .audience(Audience::Model)
        .model("m1")
        .usage(usage)
        .provider(provider.clone())
        .stop_reason("tool_use")
        .extra(r#"{"a":1}"#)
        .key(key);
    let asked = session.append(message.clone()).unwrap();
    assert_eq!(
        session.append(message).unwrap().receipt.first,
        asked.receipt.first,
        "the same key stores nothing"
    );
    let audit = CallAudit {
        step_id: "s".into(),
        started_at: Timestamp(1),
        finished_at: Timestamp(2),
        arguments_hash: "h".into(),
        exit_error: Some("e".into()),
    };
    let whole = session.artifacts().put(NewArtifact::new("x", "all of it")).unwrap();
    let running = session.start_call(asked.call(0), Effect::Mutating).unwrap();
    let result = CallResult::cancelled("stopped").audit(audit.clone()).artifact(whole.clone());
    running.finish(result).unwrap();
    let (said, finished) = messages_and_results(&session);
    let expected = MessageAppended {
        message_no: MessageNo(1),
        role: Role::Assistant,
        audience: Audience::Model,
        phase: None,
        name: None,
        parts: vec![Part::text("said"), Part::text("more")],
        tool_calls: vec![ToolCall {
            call_id: "c".into(),
            name: "run".into(),
            arguments: "{ }".into(),
            form: CallForm::Function,
            extra: None,
        }],
        tool_call_id: None,
        model: Some("m1".into()),
        provider,
        stop_reason: Some("tool_use".into()),
        usage: Some(usage),
        extra: Some(r#"{"a":1}"#.into()),
        source: None,
    };
    assert_eq!(said, [expected]);
    let call = CallFinished {
        call: asked.call(0),
        call_id: "c".into(),
        outcome: Outcome::Cancelled,
        flag: ResultFlag::Error,
        parts: vec![Part::text("stopped")],
        artifact: Some(whole),
        origin: ResultOrigin::Live,
        audit: Some(audit),
        source: None,
    };
    assert_eq!(finished, [call]);
}

/// The key of an append whose answer got lost: what the host is told the second time is as durable as it is told.
#[test]
fn an_append_that_is_repeated_is_as_durable_as_it_says() {
    for durability in [Durability::Sync, Durability::Turn, Durability::Buffered] {
        let storage = SimStorage::new();
        let options = StoreOptions { durability, ..StoreOptions::default() };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let open = |storage: &SimStorage| {
            Store::open_on(Arc::new(storage.clone()), Arc::clone(&clock), "home", options).unwrap()
        };
        let session = open(&storage).create("/w", NewSession::default()).unwrap();
        let key = IdempotencyKey([1; 16]);
        let once = MessageAppended::text(MessageNo(1), Role::User, "once");
        let once = NewEvent { key: Some(key), ..NewEvent::now(NodeId::ROOT, once) };
        let first = session.append_batch(vec![once], Durability::Buffered).unwrap();
        storage.take_calls();
        let again = session.append(Message::user("once").key(key)).unwrap();
        assert_eq!((again.position, again.message_no), (first.first, MessageNo(1)));
        let synced = storage.take_calls().iter().any(|call| call.kind() == CallKind::SyncData);
        let is_sync = durability == Durability::Sync;
        assert_eq!((synced, again.receipt.reached == Reached::Durable), (is_sync, is_sync), "{durability:?}");
        let after = storage.power_cut(CrashMode::LoseAll);
        let (id, last) = (session.id(), session.last());
        std::mem::forget(session);
        let (session, report) = open(&after).resume(id).unwrap();
        assert_eq!(report.last == last, is_sync, "{durability:?}");
        session.close().unwrap();
    }
}
