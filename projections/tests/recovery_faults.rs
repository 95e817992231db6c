//! The faults of q that must not be here, who waits for whom, limits, deletion, and logs that nobody should have written.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod recovery_support;

use recovery_support::*;
use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_projections::delegation::{
    DelegationLimits, DelegationRefused, Nesting, NotDeletable, Standing,
};
use sessionlog_projections::recovery::{Availability, BlockReason, ExecutionStanding, Owed, plan};

const INNER: AgentKind = AgentKind::Inner;

/// A root whose turn asks for `calls` calls.
fn root_asking(calls: usize) -> Log {
    let mut log = Log::new();
    log.add(ROOT, said(1, Role::User, "Go."));
    log.add(ROOT, turn_started(1, TurnCause::User));
    log.add(ROOT, asking(2, calls));
    log
}

/// A root with a child of each of its calls, that has its request.
fn root_with_children(calls: u32) -> Log {
    let mut log = root_asking(usize::try_from(calls).unwrap());
    for index in 0..calls {
        log.add(ROOT, bookmark(index + 1, 0, call(2, index), INNER, 1));
        log.add(NodeId(index + 1), said(1, Role::User, "prompt"));
    }
    log
}

fn standing(log: &Log, node: u32) -> &'static str {
    log.delegations().standing(NodeId(node)).unwrap().word()
}

// W1 is point 8.

#[test]
fn w2_a_clear_and_the_next_delegation_do_not_meet() {
    let mut log = root_with_children(1);
    log.add(ROOT, turn_ended(1, TurnOutcome::Interrupted));
    log.add(ROOT, cleared());
    assert_eq!(log.words(), ["cancel 1 parent_over"]);
    // The same call id, first in its message, in the first answer of the run.
    log.add(ROOT, said(3, Role::User, "Anew."));
    log.add(ROOT, turn_started(2, TurnCause::User));
    log.add(ROOT, asking(4, 1));
    assert_eq!(log.delegations().child_of(ROOT, call(4, 0)), None);
    let opened = bookmark(2, 0, call(4, 0), INNER, 1);
    assert_eq!(log.delegations().check_open(&opened, &DelegationLimits::default()), Ok(()));
    log.add(ROOT, opened);
    assert_eq!(log.words(), ["cancel 1 parent_over", "start 2", "continue 0"]);
    assert_eq!(log.settle_without_host(&available), 1);
    assert_eq!((standing(&log, 1), standing(&log, 2)), ("cancelled", "opened"));
    assert_eq!(log.results(ROOT, call(2, 0)).len(), 1);
    assert_eq!(log.tree.context(ROOT).len(), 3, "the older run is not in the context");
}

/// Whatever is gone or goes wrong, recovery comes to an end, and the host always has a way out.
#[test]
fn w3_every_obligation_has_an_exit() {
    let mut log = root_with_children(2);
    log.add(NodeId(1), asking(2, 2));
    log.add(NodeId(1), bookmark(3, 1, call(2, 0), INNER, 2));
    log.add(NodeId(3), said(1, Role::User, "prompt"));
    log.add(NodeId(3), asking(2, 1));
    log.add(NodeId(3), started(call(2, 0), Effect::Pure, 1, "t"));
    // The binding of the middle is gone: what is below it is not gone on with for nothing.
    let middle_gone = |binding: &sessionlog_projections::delegation::Binding<'_>| {
        if binding.node == NodeId(1) {
            Availability::Gone(BlockReason::AgentMissing)
        } else {
            Availability::Available
        }
    };
    let words: Vec<String> = plan(&log.state, &middle_gone).iter().map(word).collect();
    let expected = [
        "unknown 3/2.0",
        "cancel 3 parent_over",
        "not started 1/2.1",
        "block 1 agent_missing",
        "resume 2",
        "continue 0",
    ];
    assert_eq!(words, expected);
    let mut blocked = log.clone();
    assert_eq!(blocked.settle_without_host(&middle_gone), 4);
    assert_eq!((standing(&blocked, 1), standing(&blocked, 3)), ("blocked", "cancelled"));
    let result = blocked.results(ROOT, call(2, 0))[0];
    assert_eq!((result.outcome, result.flag), (Outcome::Failed, ResultFlag::Error));
    let words: Vec<String> = plan(&blocked.state, &middle_gone).iter().map(word).collect();
    assert_eq!(words, ["resume 2", "continue 0"]);
    blocked.check_contexts();
    // The binding comes back later: the child is blocked for good, and nothing is owed.
    assert_eq!(blocked.words(), ["resume 2", "continue 0"]);
    // A host that does not want to go on ends the turn, and the rest settles by itself.
    log.add(ROOT, turn_ended(1, TurnOutcome::Interrupted));
    log.settle_without_host(&available);
    assert_eq!(log.words(), [""; 0]);
    assert_eq!(log.state.ledger().open_calls(), []);
}

#[test]
fn w4_a_child_whose_call_has_another_result_does_not_run_for_ever() {
    let mut log = root_with_children(1);
    let (outcome, flag) = (Outcome::Failed, ResultFlag::Error);
    log.add(ROOT, CallFinished { outcome, flag, ..finished(call(2, 0), "the runner broke") });
    assert_eq!(log.words(), ["cancel 1 unawaited", "continue 0"]);
    log.settle_without_host(&available);
    assert_eq!(standing(&log, 1), "cancelled");
    assert_eq!(log.results(ROOT, call(2, 0)).len(), 1);
}

#[test]
fn w5_unknown_is_not_a_matter_of_words() {
    let mut log = root_asking(2);
    log.add(ROOT, finished(call(2, 0), r#"{"status":"unknown"}"#));
    assert_eq!(log.delegations().unknown_calls(ROOT).count(), 0);
    log.add(ROOT, started(call(2, 1), Effect::Mutating, 1, "t"));
    log.settle_without_host(&available);
    assert_eq!(log.delegations().unknown_calls(ROOT).collect::<Vec<_>>(), [call(2, 1)]);
    let resolved = CallResolved {
        call: call(2, 1),
        outcome: Outcome::Succeeded,
        flag: ResultFlag::Normal,
        parts: vec![],
        resolver: Resolver::Person,
        note: "looked".into(),
    };
    log.add(ROOT, resolved);
    assert_eq!(log.delegations().unknown_calls(ROOT).count(), 0);
}

#[test]
fn w6_root_and_child_treat_their_calls_alike() {
    let mut log = root_asking(4);
    log.add(ROOT, bookmark(1, 0, call(2, 3), INNER, 1));
    log.add(NodeId(1), said(1, Role::User, "prompt"));
    log.add(NodeId(1), asking(2, 4));
    for node in [ROOT, NodeId(1)] {
        log.add(node, finished(call(2, 0), "a"));
        log.add(node, started(call(2, 1), Effect::External, 1, "t"));
    }
    assert_eq!(log.words(), ["unknown 1/2.1", "resume 1", "unknown 0/2.1", "continue 0"]);
    assert_eq!(log.state.owed(ROOT), Owed::Calls(vec![call(2, 2)]));
    assert_eq!(log.state.owed(NodeId(1)), Owed::Calls(vec![call(2, 2), call(2, 3)]));
}

#[test]
fn w7_an_error_stays_an_error() {
    let mut log = root_with_children(1);
    log.add(NodeId(1), settled(NodeStatus::Failed, "could not"));
    log.settle_without_host(&available);
    assert_eq!(log.results(ROOT, call(2, 0))[0].flag, ResultFlag::Error);
    let shown = log.tree.context(ROOT);
    assert_eq!(shown.last().unwrap().flag, ResultFlag::Error);
}

#[test]
fn w8_a_repeated_call_id_is_another_call() {
    let mut log = root_with_children(1);
    log.append(vec![
        NewEvent::now(NodeId(1), settled(NodeStatus::Completed, "first")),
        NewEvent::now(ROOT, finished(call(2, 0), "first")),
    ]);
    log.add(ROOT, asking(3, 1));
    log.add(ROOT, bookmark(2, 0, call(3, 0), INNER, 1));
    log.add(NodeId(2), settled(NodeStatus::Completed, "second"));
    assert_eq!(log.words(), ["return 2 to 0/3.0", "continue 0"]);
    log.settle_without_host(&available);
    let texts = [2, 3].map(|number| log.results(ROOT, call(number, 0))[0].parts.clone());
    assert_eq!(texts, [[Part::text("first")], [Part::text("second")]]);
}

#[test]
fn w23_a_stored_result_is_a_root_of_collection() {
    let mut log = root_with_children(1);
    let receipt = ArtifactReceipt { digest: Digest::of(b"x"), len: 1, media_type: None, preview: "x".into() };
    let (source, media_type) = (MediaSource::Artifact(receipt), None);
    let part = Part::File(Media { source, media_type, name: None, detail: None, extra: None });
    let parts = vec![part.clone()];
    log.add(NodeId(1), NodeSettled { status: NodeStatus::Completed, reason: None, parts });
    let kept: Vec<_> = log.delegations().undelivered(log.state.ledger()).collect();
    assert_eq!(kept, [(NodeId(1), &[part.clone()][..])]);
    log.settle_without_host(&available);
    assert_eq!(log.delegations().undelivered(log.state.ledger()).count(), 0);
    assert_eq!(log.results(ROOT, call(2, 0))[0].parts, [part]);
}

#[test]
fn a_call_with_two_bookmarks_has_one_child() {
    let mut log = root_with_children(1);
    log.force(Position(log.last() + 1), ROOT, bookmark(2, 0, call(2, 0), INNER, 1));
    assert_eq!(log.words(), ["resume 1", "cancel 2 unawaited", "continue 0"]);
    assert_eq!(log.delegations().child_of(ROOT, call(2, 0)), Some(NodeId(1)));
    // A stray end of the second one says nothing about the first one's call.
    let mut stray = log.clone();
    stray.add(NodeId(2), settled(NodeStatus::Completed, "r"));
    assert_eq!(stray.words(), ["resume 1", "continue 0"]);
    log.add(NodeId(1), settled(NodeStatus::Completed, "r"));
    assert_eq!(log.words(), ["return 1 to 0/2.0", "cancel 2 unawaited", "continue 0"]);
    log.settle_without_host(&available);
    assert_eq!(log.words(), ["continue 0"]);
}

#[test]
fn an_erased_end_is_an_end() {
    let mut log = root_with_children(1);
    log.add(NodeId(1), settled(NodeStatus::Completed, "r"));
    let end = &mut log.frames.last_mut().unwrap()[0].event;
    let (kind, schema) = end.kind();
    *end = Event::Erased { kind, schema, digest: Digest::default() };
    let mut log = Log::prefix(&log, log.frames.len());
    assert_eq!(
        (log.words(), standing(&log, 1)),
        (vec!["return 1 to 0/2.0".into(), "continue 0".into()], "unreadable")
    );
    log.settle_without_host(&available);
    let result = log.results(ROOT, call(2, 0))[0];
    assert_eq!((result.outcome, result.flag), (Outcome::Unknown, ResultFlag::Error));
}

/// Where the turn is still open, since its host died before it could end it.
#[test]
fn a_clear_or_a_withdrawal_within_a_turn_leaves_its_calls_behind() {
    let log = root_with_children(1);
    let mut clear = log.clone();
    clear.add(ROOT, cleared());
    assert_eq!(clear.words(), ["cancel 1 parent_over", "continue 0"]);
    let mut reset = log.clone();
    reset.add(ROOT, ContextReset { reason: String::new() });
    assert_eq!(reset.words(), ["cancel 1 parent_over", "continue 0"]);
    let mut withdrawn = log;
    withdrawn.add(ROOT, MessageWithdrawn { message_no: MessageNo(2), reason: String::new() });
    assert_eq!(withdrawn.words(), ["cancel 1 parent_over", "continue 0"]);
    assert_eq!(withdrawn.state.owed(ROOT), Owed::Model);
}

/// Nothing deletes a child whose result is not delivered; but if a log says so, its agent is not asked a second time.
#[test]
fn a_deleted_child_is_not_made_anew() {
    let mut log = root_with_children(1);
    let (child, descendants, actor) = (NodeId(1), vec![], "a".into());
    log.add(ROOT, NodeDeleted { child, descendants, actor });
    assert_eq!(log.words(), ["unknown 0/2.0", "continue 0"]);
    assert_eq!(log.settle_without_host(&available), 1);
    assert_eq!(log.state.owed(ROOT), Owed::Model);
}

#[test]
fn an_erased_answer_is_not_asked_for_again() {
    let mut log = Log::new();
    log.add(ROOT, said(1, Role::User, "Go."));
    log.add(ROOT, said(2, Role::Assistant, "Done."));
    let answer = &mut log.frames.last_mut().unwrap()[0].event;
    let (kind, schema) = answer.kind();
    *answer = Event::Erased { kind, schema, digest: Digest::default() };
    let log = Log::prefix(&log, log.frames.len());
    assert_eq!(log.words(), [""; 0]);
}

#[test]
fn what_a_person_says_meanwhile_changes_nothing() {
    let mut log = root_with_children(1);
    let before = log.words();
    log.add(ROOT, said(3, Role::User, "And look at the tests."));
    log.add(NodeId(1), said(2, Role::User, "Hurry."));
    assert_eq!(log.words(), before);
    assert_eq!(log.state.owed(NodeId(1)), Owed::Model);
    // A notice to the person is not a word of the conversation.
    let notice = MessageAppended { audience: Audience::Person, ..said(4, Role::Assistant, "crashed") };
    log.add(ROOT, notice);
    assert_eq!(log.words(), before);
}

#[test]
fn nobody_goes_on_from_where_the_conversation_has_left() {
    // A new prompt without a turn, as by a host that knows no turns.
    let mut log = Log::new();
    log.add(ROOT, said(1, Role::User, "Go."));
    log.add(ROOT, asking(2, 2));
    log.add(ROOT, bookmark(1, 0, call(2, 0), INNER, 1));
    log.add(NodeId(1), said(1, Role::User, "prompt"));
    assert_eq!(log.words(), ["resume 1", "continue 0"]);
    let mut next = log.clone();
    next.add(ROOT, said(3, Role::User, "Stop. Something else."));
    assert_eq!(next.words(), ["cancel 1 parent_over", "not started 0/2.1", "continue 0"]);
    // A rewind before the call.
    let mut rewound = log.clone();
    let (to, from) = (Position(3), rewound.state.ledger().head(ROOT));
    rewound.add(ROOT, HeadMoved { to, from, reason: HeadReason::Rewind });
    assert_eq!(rewound.words(), ["cancel 1 parent_over", "not started 0/2.1"]);
    // A declared end, and one that is only a pause.
    for (status, expected) in [
        (FinalStatus::Interrupted, &["cancel 1 parent_over", "not started 0/2.1"][..]),
        (FinalStatus::Paused, &["resume 1", "continue 0"][..]),
    ] {
        let mut ended = log.clone();
        ended.add(ROOT, SessionFinished { status, reason: None });
        ended.take_over(TakeOver::EndsTurns);
        assert_eq!(ended.words(), expected);
    }
    // The message that asked is taken back.
    let mut withdrawn = log.clone();
    withdrawn.add(ROOT, MessageWithdrawn { message_no: MessageNo(2), reason: String::new() });
    assert_eq!(withdrawn.words(), ["cancel 1 parent_over", "not started 0/2.1"]);
    // In a fork, what was under way goes on in the session that was forked.
    let mut fork = root_with_children(1);
    let (parent, session_id) = (created().session_id, created().session_id);
    fork.add(ROOT, SessionForked { session_id, parent, at: Position(1), chain: Digest::default() });
    fork.take_over(TakeOver::EndsTurns);
    assert_eq!(fork.words(), ["cancel 1 parent_over"]);
}

/// Its own host ended the turn: a person stopped it. A later owner ended it: its host died.
#[test]
fn a_turn_that_was_stopped_is_not_one_that_broke() {
    let mut stopped = root_asking(1);
    stopped.add(ROOT, turn_ended(1, TurnOutcome::Interrupted));
    stopped.take_over(TakeOver::EndsTurns);
    assert_eq!(stopped.words(), ["not started 0/2.0"]);
    let mut broken = root_asking(1);
    for _ in 0..3 {
        broken.take_over(TakeOver::EndsTurns);
        assert_eq!(broken.words(), ["continue 0"]);
        assert_eq!(broken.state.owed(ROOT), Owed::Calls(vec![call(2, 0)]));
    }
    let mut other = broken.clone();
    broken.add(ROOT, turn_started(2, TurnCause::Recovery));
    broken.take_over(TakeOver::EndsTurns);
    assert_eq!(broken.state.owed(ROOT), Owed::Calls(vec![call(2, 0)]));
    // A person's new prompt leaves the broken turn behind.
    other.add(ROOT, said(3, Role::User, "Never mind."));
    other.add(ROOT, turn_started(2, TurnCause::User));
    assert_eq!(other.words(), ["not started 0/2.0", "continue 0"]);
    assert_eq!(other.state.owed(ROOT), Owed::Model);
}

#[test]
fn imported_conversations_are_left_alone_until_a_host_goes_on() {
    let origin = ImportOrigin { agent: "claude-code".into(), agent_version: None, session_id: "x".into() };
    let mut log = Log::created(SessionCreated { imported: Some(origin), ..created() });
    log.add(ROOT, said(1, Role::User, "Go."));
    log.add(ROOT, asking(2, 2));
    let opened = bookmark(1, 0, call(2, 0), INNER, 1);
    log.add(ROOT, NodeOpened { source_id: Some("agent-1".into()), ..opened });
    log.add(NodeId(1), said(1, Role::User, "prompt"));
    log.add(NodeId(1), asking(2, 1));
    log.take_over(TakeOver::EndsTurns);
    assert_eq!(log.words(), [""; 0]);
    log.add(ROOT, said(3, Role::User, "Now you."));
    log.add(ROOT, turn_started(1, TurnCause::User));
    assert_eq!(log.words(), ["continue 0"]);
    log.add(ROOT, asking(4, 1));
    log.add(ROOT, bookmark(2, 0, call(4, 0), INNER, 1));
    log.take_over(TakeOver::EndsTurns);
    assert_eq!(log.words(), ["start 2", "continue 0"]);
    assert_eq!(log.delegations().check_open(&bookmark(3, 0, call(4, 1), INNER, 1), &limits(2, 2)), Ok(()));
}

fn limits(depth_max: u32, calls_per_run_max: u32) -> DelegationLimits {
    DelegationLimits {
        depth_max,
        calls_per_run_max,
        prompt_len_max: 8,
        rounds_max: 1,
        nesting: Nesting::OnceOnChain,
    }
}

#[test]
fn limits_are_kept_over_restarts() {
    let mut log = root_with_children(2);
    let refused = |log: &Log, opened: &NodeOpened, limits| {
        log.delegations().check_open(opened, &limits).unwrap_err().to_string()
    };
    let next = |parent, depth| {
        let opened = bookmark(3, parent, call(2, 7), INNER, depth);
        NodeOpened { agent: "other".into(), ..opened }
    };
    let check = |log: &Log, opened: &NodeOpened, limits| log.delegations().check_open(opened, &limits);
    assert_eq!(check(&log, &next(1, 2), limits(2, 3)), Ok(()));
    let again = bookmark(3, 0, call(2, 0), INNER, 1);
    let expected = DelegationRefused::AlreadyDelegated { parent: ROOT, child: NodeId(1) };
    assert_eq!(check(&log, &again, limits(2, 3)), Err(expected));
    assert!(refused(&log, &next(1, 2), limits(1, 3)).contains("2 deep; 1 is allowed"));
    assert!(refused(&log, &next(1, 1), limits(2, 3)).contains("depth 1 where 2"));
    assert!(refused(&log, &next(1, 2), limits(2, 2)).contains("2 times; 2 is allowed"));
    assert!(refused(&log, &next(9, 1), limits(2, 3)).contains("can't delegate"));
    let long = NodeOpened { prompt: "123456789".into(), ..next(1, 2) };
    assert!(refused(&log, &long, limits(2, 3)).contains("9 bytes; 8 are allowed"));
    let empty = NodeOpened { prompt: String::new(), ..next(1, 2) };
    assert_eq!(check(&log, &empty, limits(2, 3)), Err(DelegationRefused::Empty));
    let nested = bookmark(3, 1, call(2, 7), INNER, 2);
    assert!(refused(&log, &nested, limits(2, 3)).contains("chain of parents"));
    assert_eq!(check(&log, &nested, DelegationLimits::default()), Ok(()));
    assert_eq!(log.delegations().check_round(NodeId(1), &limits(2, 3)), Ok(()));
    log.add(NodeId(1), said(2, Role::Assistant, "Done."));
    assert!(log.delegations().check_round(NodeId(1), &limits(2, 3)).is_err());
    log.add(NodeId(1), settled(NodeStatus::Completed, "r"));
    assert!(refused(&log, &next(1, 2), limits(2, 3)).contains("can't delegate"));
    let restarted = Log::prefix(&log, log.frames.len());
    assert!(refused(&restarted, &next(2, 2), limits(2, 2)).contains("2 times"));
    // A clear begins a new count.
    log.add(ROOT, cleared());
    assert_eq!(check(&log, &next(2, 2), limits(2, 2)), Ok(()));
}

#[test]
fn only_completed_children_are_deletable() {
    let statuses = [
        (Some(NodeStatus::Completed), "completed"),
        (Some(NodeStatus::Blocked), "blocked"),
        (Some(NodeStatus::Unknown), "unknown"),
        (Some(NodeStatus::Failed), "failed"),
        (Some(NodeStatus::Cancelled), "cancelled"),
        (None, "running"),
    ];
    for (status, word) in statuses {
        let mut log = root_with_children(1);
        if let Some(status) = status {
            log.add(NodeId(1), settled(status, "r"));
        }
        assert_eq!(standing(&log, 1), word);
        let found = log.delegations().can_delete(NodeId(1), log.state.ledger());
        match status {
            Some(NodeStatus::Completed) => {
                assert_eq!(found, Err(NotDeletable::Undelivered { node: NodeId(1) }));
                log.settle_without_host(&available);
                let found = log.delegations().can_delete(NodeId(1), log.state.ledger());
                assert_eq!(found, Ok(vec![]));
            }
            _ => assert!(matches!(found, Err(NotDeletable::NotCompleted { .. })), "{found:?}"),
        }
    }
    let mut log = root_with_children(1);
    log.add(NodeId(1), asking(2, 2));
    for (child, index) in [(2, 0), (3, 1)] {
        log.add(NodeId(1), bookmark(child, 1, call(2, index), INNER, 2));
    }
    log.add(NodeId(2), settled(NodeStatus::Unknown, "?"));
    log.append(vec![
        NewEvent::now(NodeId(1), settled(NodeStatus::Completed, "r")),
        NewEvent::now(ROOT, finished(call(2, 0), "r")),
    ]);
    let can = |log: &Log, node: u32| log.delegations().can_delete(NodeId(node), log.state.ledger());
    let below = NotDeletable::ActiveBelow { node: NodeId(3), standing: Standing::Opened };
    assert_eq!(can(&log, 1), Err(below));
    log.settle_without_host(&available);
    assert_eq!(can(&log, 1), Ok(vec![NodeId(2), NodeId(3)]));
    let (child, descendants, actor) = (NodeId(1), can(&log, 1).unwrap(), "a".into());
    log.add(ROOT, NodeDeleted { child, descendants, actor });
    assert_eq!(can(&log, 1), Err(NotDeletable::NotThere { node: NodeId(1) }));
    assert_eq!(can(&log, 0), Err(NotDeletable::Root));
    assert_eq!(log.delegations().tree(), []);
    assert_eq!(log.words(), ["continue 0"]);
}

#[test]
fn the_tree_is_shown_parent_before_child() {
    let mut log = root_with_children(2);
    log.add(NodeId(1), asking(2, 1));
    log.add(NodeId(1), bookmark(3, 1, call(2, 0), AgentKind::External, 2));
    let rows = log.delegations().tree();
    let shown: Vec<_> = rows.iter().map(|row| (row.node.0, row.depth, row.standing.word())).collect();
    assert_eq!(shown, [(1, 1, "running"), (3, 2, "opened"), (2, 1, "running")]);
    assert_eq!(rows[1].call, Some(call(2, 0)));
}

#[test]
fn what_a_conversation_runs_with_is_known() {
    let mut log = root_with_children(1);
    log.add(NodeId(1), bound(None));
    let binding = log.delegations().binding(NodeId(1)).unwrap();
    assert_eq!((binding.agent, binding.bound.unwrap().model.as_str()), ("agent", "m"));
    let set = AffinitySet { model: "m".into(), key: "k".into(), api_mode: None, candidate: Some(1) };
    let attached = |number| ReplayAttached {
        message_no: MessageNo(number),
        model: "m".into(),
        api_mode: "responses".into(),
        items: vec!["{}".into()],
    };
    log.add(ROOT, set.clone());
    log.add(ROOT, attached(1));
    log.add(ROOT, attached(2));
    let replayed = |log: &Log, model: &str| {
        log.delegations().replay(ROOT, model, "responses").map(|(number, _)| number.0).collect::<Vec<_>>()
    };
    assert_eq!(log.delegations().affinity(ROOT), Some(&set));
    assert_eq!((replayed(&log, "m"), replayed(&log, "other")), (vec![1, 2], vec![]));
    log.add(ROOT, ContextReset { reason: String::new() });
    assert_eq!((log.delegations().affinity(ROOT), replayed(&log, "m")), (None, vec![]));
    let (objective, completion_criteria) = ("o".into(), vec![]);
    log.add(ROOT, TaskStarted { objective, completion_criteria, started_at: Timestamp(0) });
    assert_eq!(log.delegations().active_task(ROOT).unwrap().objective, "o");
    log.take_over(TakeOver::LeavesTurns);
    assert!(log.delegations().active_task(ROOT).is_some());
    log.add(ROOT, cleared());
    assert!(log.delegations().active_task(ROOT).is_none());
}

#[test]
fn an_interrupted_task_of_a_plan_is_not_repeated_blindly() {
    let mut log = Log::new();
    let id = || "e".to_owned();
    log.add(ROOT, PlanApproved { execution_id: id(), objective: "o".into(), plan: "{}".into() });
    let advanced = |phase, attempt| PlanAdvanced {
        execution_id: id(),
        phase,
        task_index: 1,
        attempt,
        targets: vec!["src".into()],
        feedback: None,
        pending_result: (phase == PlanPhase::Review).then(|| "{}".into()),
    };
    for phase in [PlanPhase::Target, PlanPhase::Pending, PlanPhase::Running, PlanPhase::Review] {
        let mut log = log.clone();
        log.add(ROOT, advanced(phase, 1));
        log.append(log.state.executions().resume("e"));
        let execution = log.state.executions().get("e").unwrap();
        let reached = execution.reached.as_ref().unwrap();
        assert_eq!(execution.resume_count, 1);
        match phase {
            PlanPhase::Running => {
                assert_eq!((reached.phase, reached.attempt), (PlanPhase::Pending, 2));
                assert!(reached.feedback.as_ref().unwrap().contains("interrupted"));
            }
            other => assert_eq!(*reached, advanced(other, 1)),
        }
    }
    let ended = |mut log: Log, event: Event| {
        log.add(ROOT, event);
        assert_eq!(log.state.executions().resume("e"), []);
        log.state.executions().all()[0].1.standing
    };
    let discarded = PlanDiscarded { execution_id: id(), reason: String::new() };
    assert_eq!(ended(log.clone(), discarded.into()), ExecutionStanding::Discarded);
    let completed = PlanCompleted { execution_id: id(), results: "[]".into() };
    assert_eq!(ended(log.clone(), completed.into()), ExecutionStanding::Completed);
    assert_eq!(ended(log, cleared().into()), ExecutionStanding::Cleared);
}

/// A walk over the path must not find a record that stands before itself.
#[test]
fn a_record_at_no_position_ends_no_walk() {
    let mut log = Log::new();
    log.force(Position(0), NodeId(1), said(1, Role::System, "s"));
    log.force(Position(9), ROOT, bookmark(1, 0, call(2, 0), INNER, 1));
    assert_eq!(log.state.owed(NodeId(1)), Owed::Model);
}

mod garbage {
    use proptest::prelude::*;

    use super::*;

    fn any_event() -> impl Strategy<Value = Event> {
        let call = (0..4_u64, 0..3_u32).prop_map(|(number, index)| call(number, index));
        let node = 0..5_u32;
        prop_oneof![
            4 => (0..4_u64, 0..3_usize).prop_map(|(number, calls)| asking(number, calls).into()),
            2 => (0..4_u64).prop_map(|number| said(number, Role::User, "u").into()),
            1 => (0..4_u64).prop_map(|number| said(number, Role::Assistant, "a").into()),
            3 => (call.clone(), any::<bool>(), 1..3_u32).prop_map(|(call, pure, attempt)| {
                let effect = if pure { Effect::Pure } else { Effect::Mutating };
                started(call, effect, attempt, "t").into()
            }),
            2 => call.clone().prop_map(|call| finished(call, "r").into()),
            5 => (node.clone(), node, call, any::<bool>(), 0..6_u32).prop_map(
                |(child, parent, call, inner, depth)| {
                    let kind = if inner { AgentKind::Inner } else { AgentKind::External };
                    bookmark(child, parent, call, kind, depth).into()
                }
            ),
            1 => Just(settled(NodeStatus::Completed, "r").into()),
            1 => Just(bound(None).into()),
            1 => Just(cleared().into()),
            1 => (1..3_u64).prop_map(|turn| turn_started(turn, TurnCause::Recovery).into()),
            1 => (1..3_u64).prop_map(|turn| turn_ended(turn, TurnOutcome::Interrupted).into()),
            1 => (0..3_u64).prop_map(|epoch| opened(epoch).into()),
            1 => (0..20_u64).prop_map(|to| {
                HeadMoved { to: Position(to), from: Position(0), reason: HeadReason::Rewind }.into()
            }),
            1 => (0..5_u32).prop_map(|child| {
                NodeDeleted { child: NodeId(child), descendants: vec![NodeId(3)], actor: String::new() }.into()
            }),
            1 => any_sealed(),
        ]
    }

    fn any_sealed() -> impl Strategy<Value = Event> {
        use sessionlog_codec::registry::kind;
        let kinds = [kind::MessageAppended, kind::CallFinished, kind::NodeSettled, kind::NodeOpened];
        (0..kinds.len()).prop_map(move |index| {
            let (kind, schema) = (kinds[index], SchemaVersion(1));
            Event::Erased { kind, schema, digest: Digest::default() }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

        /// Whatever a log holds: planning ends, each step that needs no host is accepted by the laws, takes itself and
        /// nothing else out of the plan, and what is left can be begun.
        #[test]
        fn any_log_can_be_planned(
            events in prop::collection::vec((0..5_u32, 0..24_u64, any_event()), 0..40),
        ) {
            let mut log = Log::new();
            for (node, place, event) in events {
                // Mostly in order; now and then at a place that is taken, or none.
                let position = if place < 3 { Position(place) } else { Position(log.last() + 1) };
                log.force(position, NodeId(node), event);
            }
            log.force(Position(1000), ROOT, opened(7));
            log.settle_without_host(&available);
            let plan = log.plan();
            let ready = sessionlog_projections::recovery::ready(&log.state, &plan);
            prop_assert_eq!(ready.first().copied(), plan.first());
            drop(log.delegations().tree());
            for node in 0..5 {
                drop(log.state.owed(NodeId(node)));
                drop(log.delegations().can_delete(NodeId(node), log.state.ledger()));
            }
            log.settle_without_host(&gone);
            prop_assert!(plan_of(&log, &gone).iter().all(|it| it.starts_with("rerun 0") || it == "continue 0"));
        }

        /// Any tree, killed anywhere, comes to its end with nothing done twice.
        #[test]
        fn any_tree_is_recovered(depth in 0..4_u32, seed in any::<u64>(), cut in any::<prop::sample::Index>()) {
            let scripts = Scripts::tree(depth, 1, seed);
            let live = Live::run(scripts, 1, seed, Stop::Never);
            let mut log = Log::prefix(&live.log, 1 + cut.index(live.log.frames.len()));
            log.take_over(TakeOver::EndsTurns);
            let mut host = Host::new(log, &live.scripts, Order::Last);
            host.recover().unwrap();
            host.check_end(&live.scripts.effects(), &[]);
        }
    }

    fn plan_of(
        log: &Log,
        check: &dyn Fn(&sessionlog_projections::delegation::Binding<'_>) -> Availability,
    ) -> Vec<String> {
        plan(&log.state, check).iter().map(word).collect()
    }
}
