//! What an append is refused for, law by law, with the words that the host reads.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(clippy::cast_possible_wrap, reason = "of small numbers")]

mod support;

use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_projections::*;
use support::*;

const ROOT: NodeId = NodeId::ROOT;

#[track_caller]
fn refused(log: &Log, node: NodeId, event: impl Into<Event>) -> String {
    log.ledger.check(&NewEvent::now(node, event)).unwrap_err().to_string()
}

#[test]
fn the_first_record_creates_the_session_and_no_other_does() {
    let mut log = Log::default();
    assert_eq!(log.ledger.created(), Creation::Missing);
    assert_eq!(
        refused(&log, ROOT, message(1, Role::User, "a", &[])),
        "the log has no session.created yet: it must come before message.appended"
    );
    log.add(created());
    assert_eq!(log.ledger.created(), Creation::Created(session_id()));
    assert!(refused(&log, ROOT, created()).contains("created already"));
}

#[test]
fn numbers_are_dense() {
    let mut log = Log::new();
    for wrong in [0, 2, u64::MAX] {
        let text = refused(&log, ROOT, message(wrong, Role::User, "a", &[]));
        assert_eq!(text, format!("node 0: message number {wrong} where 1 is the next one"));
    }
    log.add(message(1, Role::User, "a", &[]));
    // Not even a damaged log at the end of all numbers gives one twice.
    log.force(ROOT, message(u64::MAX, Role::User, "a", &[]));
    assert!(refused(&log, ROOT, message(u64::MAX, Role::User, "a", &[])).contains("message number"));
}

#[test]
fn hosts_are_held_to_what_imports_are_not() {
    let bad = || {
        let mut twice = message(1, Role::Assistant, "", &["A", "A"]);
        twice.tool_calls[0].name.clear();
        [message(1, Role::Tool, "x", &[]), message(1, Role::Assistant, "", &["A", "A"]), twice]
    };
    let log = Log::new();
    let texts: Vec<String> = bad().into_iter().map(|event| refused(&log, ROOT, event)).collect();
    assert!(texts[0].contains("outside of an import"), "{texts:?}");
    assert!(texts[1].contains("message 1 call 1: call id \"A\" is already"), "{texts:?}");
    assert!(texts[2].contains("message 1 call 0: the call has no tool name"), "{texts:?}");
    for message in bad() {
        let of_import = NewEvent::now(ROOT, message.clone());
        assert_eq!(Log::of(imported()).ledger.check(&of_import), Ok(()));
        let with_source =
            NewEvent::now(ROOT, MessageAppended { source: Some(SourceIds::default()), ..message });
        assert_eq!(log.ledger.check(&with_source), Ok(()));
    }
    let asking = message(1, Role::User, "", &["A"]);
    assert!(refused(&Log::of(imported()), ROOT, asking).contains("tool calls on a user message"));
}

#[test]
fn calls_are_known_started_once_and_finished_once() {
    let mut log = Log::new();
    log.add(message(1, Role::Assistant, "", &["A"]));
    for unknown in [call(1, 1), call(2, 0), call(0, 0)] {
        assert!(refused(&log, ROOT, started(unknown, Effect::Pure, 1)).contains("does not exist"));
        assert!(refused(&log, ROOT, finished(unknown, "")).contains("does not exist"));
        assert!(refused(&log, ROOT, resolved(unknown, "")).contains("does not exist"));
    }
    assert_eq!(log.ledger.call(ROOT, call(1, 0)), Some(CallState::NotStarted));
    assert_eq!(
        refused(&log, ROOT, started(call(1, 0), Effect::Pure, 2)),
        "node 0 message 1 call 0: attempt 2 where 1 is the next one"
    );
    let at = log.add(started(call(1, 0), Effect::External, 1));
    let state = CallState::Started { effect: Effect::External, attempt: 1, position: at };
    assert_eq!(log.ledger.call(ROOT, call(1, 0)), Some(state));
    assert!(refused(&log, ROOT, started(call(1, 0), Effect::External, 2)).contains("effect external"));
    assert!(refused(&log, ROOT, resolved(call(1, 0), "")).contains("no result"));
    let at = log.add(finished(call(1, 0), ""));
    let state = CallState::Finished { outcome: Outcome::Succeeded, position: at };
    assert_eq!(log.ledger.call(ROOT, call(1, 0)), Some(state));
    let text = refused(&log, ROOT, finished(call(1, 0), ""));
    assert!(text.contains("call.finished, but its result is at position 4 (succeeded)"), "{text}");
    let import = CallFinished { origin: ResultOrigin::Import, ..finished(call(1, 0), "") };
    log.add(import);
    assert_eq!(log.ledger.call(ROOT, call(1, 0)), Some(state));
}

#[test]
fn only_the_models_messages_are_extended() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "a", &[]));
    let piece = |number, ids: &[&str]| MessageExtended {
        message_no: MessageNo(number),
        parts: vec![],
        tool_calls: ids.iter().map(|id| tool_call(id, "Read", "{}")).collect(),
        stop_reason: None,
        usage: None,
        source: None,
    };
    assert!(refused(&log, ROOT, piece(1, &[])).contains("only assistant messages"));
    assert!(
        refused(&log, ROOT, piece(7, &[])).contains("message 7, which does not exist (the last one is 1)")
    );
    log.add(message(2, Role::Assistant, "", &["A"]));
    assert!(refused(&log, ROOT, piece(2, &["A"])).contains("message 2 call 1: call id"));
    log.add(piece(2, &["B"]));
    assert_eq!(log.ledger.call(ROOT, call(2, 1)), Some(CallState::NotStarted));
    let withdrawn = MessageWithdrawn { message_no: MessageNo(3), reason: String::new() };
    assert!(refused(&log, ROOT, withdrawn).contains("message.withdrawn for message 3"));
}

#[test]
fn turns_open_and_close_in_order() {
    let mut log = Log::new();
    let start = |turn| TurnStarted { turn: TurnNo(turn), cause: TurnCause::User };
    let end =
        |turn| TurnEnded { turn: TurnNo(turn), outcome: TurnOutcome::Completed, stage: None, error: None };
    assert!(refused(&log, ROOT, end(1)).contains("no turn is open"));
    assert!(refused(&log, ROOT, start(2)).contains("turn 2 where 1 is expected"));
    log.add(start(1));
    assert_eq!(log.ledger.open_turn(ROOT), Some(TurnNo(1)));
    assert!(refused(&log, ROOT, start(2)).contains("while turn 1 is open"));
    assert!(refused(&log, ROOT, end(2)).contains("turn 2 where 1 is expected"));
    log.add(end(1));
    assert_eq!((log.ledger.open_turn(ROOT), log.ledger.next_turn(ROOT)), (None, TurnNo(2)));
}

#[test]
fn heads_and_ranges_name_what_is_there() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "a", &[]));
    let shown = log.add(message(2, Role::User, "b", &[]));
    let move_to = |to| HeadMoved { to, from: shown, reason: HeadReason::Rewind };
    for unknown in [Position(1), Position(99)] {
        assert!(refused(&log, ROOT, move_to(unknown)).contains("can't move to position"));
    }
    log.add(move_to(Position::START));
    assert_eq!(log.ledger.head(ROOT), Position::START);
    log.add(move_to(shown));
    for wrong in [
        vec![range(0, 1)],
        vec![range(2, 1)],
        vec![range(1, 3)],
        vec![range(2, 2), range(1, 1)],
        vec![range(1, 2), range(2, 2)],
    ] {
        assert!(refused(&log, ROOT, compacted("s", &wrong, &[])).contains("the kept messages"));
        assert!(refused(&log, ROOT, compacted("s", &[], &wrong)).contains("the replaced messages"));
    }
    log.add(compacted("s", &[range(2, 2)], &[range(1, 1)]));
}

#[test]
fn children_are_numbered_opened_and_settled_once() {
    let mut log = Log::new();
    log.add(message(1, Role::Assistant, "", &["A"]));
    let settled = || NodeSettled { status: NodeStatus::Completed, reason: None, parts: vec![] };
    assert!(refused(&log, NodeId(1), settled()).contains("node 1 was never opened"));
    assert!(refused(&log, ROOT, settled()).contains("can't settle"));
    assert_eq!(log.ledger.next_node(), NodeId(1));
    for (child, parent, of, text) in [
        (0, 0, None, "child number 0 where 1"),
        (2, 0, None, "child number 2 where 1"),
        (1, 7, None, "its parent 7"),
        (1, 1, None, "its parent 1"),
        (1, 0, Some(call(1, 1)), "message 1 call 1, which does not exist"),
    ] {
        assert!(refused(&log, ROOT, node_opened(child, parent, of)).contains(text), "{text}");
    }
    log.add(node_opened(1, 0, Some(call(1, 0))));
    log.add_to(NodeId(1), message(1, Role::User, "Do it.", &[]));
    log.add_to(NodeId(1), settled());
    assert_eq!(log.ledger.settled(NodeId(1)), Some(NodeStatus::Completed));
    assert!(refused(&log, NodeId(1), settled()).contains("node 1 can't settle"));
    // A child whose bookmark is lost keeps its number.
    log.force(NodeId(5), message(1, Role::User, "lost", &[]));
    assert_eq!(log.ledger.next_node(), NodeId(6));
    let summary = log.summary();
    assert_eq!(summary.nodes[&NodeId(1)].title.as_deref(), Some("Do it."));
    assert_eq!(summary.nodes[&NodeId(1)].status, Some(NodeStatus::Completed));
}

#[test]
fn a_batch_builds_on_itself() {
    let log = Log::new();
    let new = |event: Event| NewEvent::now(ROOT, event);
    let good = [
        new(message(1, Role::Assistant, "", &["A"]).into()),
        new(started(call(1, 0), Effect::Pure, 1).into()),
        new(finished(call(1, 0), "x").into()),
        new(message(2, Role::User, "", &[]).into()),
    ];
    assert_eq!(log.ledger.check_batch(Position(2), &good), Ok(()));
    let twice = [good[0].clone(), good[2].clone(), good[2].clone()];
    let broken = log.ledger.check_batch(Position(2), &twice).unwrap_err();
    assert_eq!(broken.index, 2);
    assert!(broken.to_string().starts_with("event 2 of the batch: node 0 message 1 call 0: call.finished"));
    // A check leaves no trace.
    assert_eq!(log.ledger.next_message_no(ROOT), MessageNo(1));
}

/// A batch is checked against a part of the ledger, so everything it can speak of must be in that part.
#[test]
fn a_batch_knows_what_was_there_before_it() {
    let mut log = Log::new();
    let shown = log.add(message(1, Role::Assistant, "", &["A", "B"]));
    log.add(started(call(1, 0), Effect::Pure, 1));
    log.add(node_opened(1, 0, Some(call(1, 1))));
    log.add(TurnStarted { turn: TurnNo(1), cause: TurnCause::User });
    let settled = || NodeSettled { status: NodeStatus::Completed, reason: None, parts: vec![] };
    let end = TurnEnded { turn: TurnNo(1), outcome: TurnOutcome::Completed, stage: None, error: None };
    let piece = MessageExtended {
        message_no: MessageNo(1),
        parts: vec![],
        tool_calls: vec![tool_call("C", "Read", "{}")],
        stop_reason: None,
        usage: None,
        source: None,
    };
    let new = |node, event: Event| NewEvent::now(NodeId(node), event);
    let mut batch = vec![
        new(0, HeadMoved { to: shown, from: shown, reason: HeadReason::Rewind }.into()),
        new(0, started(call(1, 0), Effect::Pure, 2).into()),
        new(0, piece.into()),
        new(0, compacted("s", &[range(1, 1)], &[]).into()),
        new(0, finished(call(1, 2), "").into()),
        new(0, MessageWithdrawn { message_no: MessageNo(1), reason: String::new() }.into()),
        new(0, end.into()),
        new(1, settled().into()),
        new(0, node_opened(2, 1, None).into()),
        new(2, settled().into()),
    ];
    assert_eq!(log.ledger.check_batch(Position(6), &batch), Ok(()));
    let last = batch.len();
    for (event, law) in [
        (new(1, settled().into()), "can't settle"),
        (new(0, node_opened(1, 0, None).into()), "child number 1 where 3"),
        (new(0, message(1, Role::User, "", &[]).into()), "message number 1 where 2"),
        (new(3, message(1, Role::User, "", &[]).into()), "node 3 was never opened"),
        (new(0, started(call(1, 0), Effect::Pure, 2).into()), "attempt 2 where 3"),
    ] {
        batch.truncate(last);
        batch.push(event);
        let broken = log.ledger.check_batch(Position(6), &batch).unwrap_err();
        assert_eq!(broken.index, last);
        assert!(broken.to_string().contains(law), "{broken}");
    }
    let erased = Event::Erased { kind: KindNo(20), schema: SchemaVersion(1), digest: Digest::default() };
    assert!(refused(&log, ROOT, erased).contains("an erased message.appended"));
    let grandchild = [new(0, node_opened(2, 1, None).into()), new(0, node_opened(3, 2, None).into())];
    assert_eq!(log.ledger.check_batch(Position(6), &grandchild), Ok(()));
    // The settled child of a log stays settled in a batch.
    log.add_to(NodeId(1), settled());
    let again = [new(0, message(2, Role::User, "", &[]).into()), new(1, settled().into())];
    assert!(log.ledger.check_batch(Position(7), &again).is_err());
}

/// The rules that contexts are held to hold back what providers refuse.
#[test]
fn pairing_errors_name_the_place() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "go", &[]));
    log.add(message(2, Role::Assistant, "", &["A", "B"]));
    log.add(message(3, Role::User, "on", &[]));
    let good = log.context();
    let broken = |change: fn(&mut Vec<ContextMessage>)| {
        let mut context = good.clone();
        change(&mut context);
        validate_pairing(&context).unwrap_err()
    };
    let unanswered = |id: &str| PairingError::Unanswered { index: 1, id: id.into() };
    assert_eq!(broken(|context| drop(context.remove(3))), unanswered("B"));
    assert_eq!(broken(|context| context.truncate(2)), unanswered("A"));
    assert!(matches!(broken(|context| drop(context.remove(1))), PairingError::StrayResult { index: 1, .. }));
    assert!(matches!(broken(|context| context.swap(2, 3)), PairingError::WrongCall { index: 2, .. }));
    assert_eq!(broken(|context| context.swap(3, 4)), unanswered("B"));
    let twice = PairingError::RepeatedId { index: 1, id: "A".into() };
    assert_eq!(broken(|context| context[1].tool_calls[1].call_id = "A".into()), twice);
    let nameless = PairingError::NamelessCall { index: 1 };
    assert_eq!(broken(|context| context[1].tool_calls[1].call_id.clear()), nameless);
    assert_eq!(broken(|context| context[0].parts.clear()), PairingError::Empty { index: 0 });
    let asking = PairingError::CallsWithoutModel { index: 0 };
    assert_eq!(broken(|context| context[0].tool_calls = context[1].tool_calls.clone()), asking);
}

#[test]
fn counters_go_on_where_they_were() {
    let mut log = Log::new();
    assert_eq!((log.ledger.last_epoch(), log.ledger.next_source_no()), (Epoch(0), SourceNo(0)));
    log.add(opened(4));
    log.add(ImportStarted { source_no: SourceNo(0), format: String::new(), path: String::new(), node: ROOT });
    assert_eq!((log.ledger.last_epoch(), log.ledger.next_source_no()), (Epoch(4), SourceNo(1)));
    log.force(
        ROOT,
        ImportStarted {
            source_no: SourceNo(u32::MAX),
            format: String::new(),
            path: String::new(),
            node: ROOT,
        },
    );
    assert_eq!(log.ledger.next_source_no(), SourceNo(u32::MAX));
}
