//! The work that a session offers: what is owed and nothing else, once, in an order that can't be got wrong.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use sessionlog::codec::event::*;
use sessionlog::codec::ids::{CallRef, IdempotencyKey, MessageNo, NodeId, Position, ToolIndex};
use sessionlog::codec::registry::kind;
use sessionlog::projections::compaction::{Attempt, Pinned, Policy, SummaryRole};
use sessionlog::projections::delegation::DelegationLimits;
use sessionlog::projections::recovery::{Availability, BlockReason, Step};
use sessionlog::projections::rewind::RewindTo;
use sessionlog::projections::validate_pairing;
use sessionlog::session::{
    Answer, AskedAgent, CompactionSettings, EventItem, ModelTurn, NewChild, OrphanChoice, OrphanPolicy,
    OwedCall,
};
use sessionlog::{
    CallResult, ChildResult, Compaction, Delegated, Delegation, ErrorKind, Message, Session, StoreOptions,
    Work,
};
use support::tree::{Crashing, bound, offered};

const ROOT: NodeId = NodeId::ROOT;
const CHILD: NodeId = NodeId(1);

fn model(session: &Session) -> ModelTurn<'_> {
    let work = session.work().unwrap().into_iter().find(|work| matches!(work, Work::Model(_)));
    let Some(Work::Model(turn)) = work else { panic!("no model is owed: {:?}", offered(session)) };
    turn
}

fn calls(session: &Session) -> Vec<OwedCall<'_>> {
    let calls = session.work().unwrap().into_iter().filter_map(|work| match work {
        Work::Call(call) => Some(call),
        _ => None,
    });
    calls.collect()
}

fn call(session: &Session) -> OwedCall<'_> {
    calls(session).into_iter().next().unwrap_or_else(|| panic!("no call is owed: {:?}", offered(session)))
}

fn new_child(session: &Session) -> NewChild<'_> {
    let work = session.work().unwrap().into_iter().find(|work| matches!(work, Work::Begin(_)));
    let Some(Work::Begin(child)) = work else { panic!("no child is to begin: {:?}", offered(session)) };
    child
}

fn ask(session: &Session) -> AskedAgent<'_> {
    let work = session.work().unwrap().into_iter().find(|work| matches!(work, Work::Ask(_)));
    let Some(Work::Ask(request)) = work else { panic!("nobody is to be asked: {:?}", offered(session)) };
    request.bind(bound()).unwrap()
}

/// The model answers with so many calls.
fn answer(session: &Session, calls: usize) -> MessageNo {
    let message = (0..calls)
        .fold(Message::assistant("On it."), |message, index| message.call(format!("c{index}"), "tool", "{}"));
    model(session).answer(message).unwrap().message_no
}

fn delegate(session: &Session, delegation: Delegation) -> NodeId {
    let Delegated::Child(child) = call(session).delegate(delegation).unwrap() else { panic!("refused") };
    child
}

/// A root whose model asked for so many calls.
fn asked(calls: usize) -> Crashing {
    let session = Crashing::new();
    session.prompt(Message::user("Go.")).unwrap();
    answer(&session, calls);
    session
}

fn result_of(session: &Session, node: NodeId, index: u32) -> (Outcome, String) {
    let transcript = session.with_tree(|tree| tree.transcript(node)).unwrap();
    let mut results = transcript.iter().filter_map(|entry| match &entry.body {
        sessionlog::projections::EntryBody::Result(result, _)
            if result.call.tool_index == ToolIndex(index) =>
        {
            Some(result.clone())
        }
        _ => None,
    });
    let result = results.next_back().unwrap();
    let text = match &result.parts[..] {
        [Part::Text(text)] => text.clone(),
        parts => format!("{parts:?}"),
    };
    (result.outcome, text)
}

#[test]
fn a_turn_from_its_prompt_to_its_end() {
    let session = asked(2);
    assert_eq!(offered(&session), ["0 call 2.0", "0 call 2.1"]);
    let mut both = calls(&session);
    // While they are held, nobody else is offered them; what is dropped is offered again.
    assert!(offered(&session).is_empty());
    drop(both.pop());
    assert_eq!(offered(&session), ["0 call 2.1"]);
    let running = both.pop().unwrap().start(Effect::Mutating).unwrap();
    call(&session).answer(CallResult::failed("no")).unwrap();
    assert!(offered(&session).is_empty(), "the model waits for both");
    running.finish(CallResult::succeeded("yes")).unwrap();
    assert_eq!(offered(&session), ["0 model"]);
    let asking = model(&session);
    assert!(offered(&session).is_empty(), "the model is not asked twice at once");
    drop(asking);
    answer(&session, 0);
    assert_eq!(offered(&session), ["0 end turn"]);
    let Some(Work::EndTurn(end)) = session.work().unwrap().pop() else { panic!("no end") };
    assert!(offered(&session).is_empty());
    end.end().unwrap();
    assert!(offered(&session).is_empty());
}

#[test]
fn a_prompt_is_heard_once_and_begins_a_turn_if_none_is_open() {
    let session = Crashing::new();
    let say = |text: &str, key: u8| {
        session.prompt(Message::user(text).key(IdempotencyKey([key; 16]))).unwrap().message_no
    };
    assert_eq!((say("one", 1), say("one", 1), say("two", 2)), (MessageNo(1), MessageNo(1), MessageNo(2)));
    assert_eq!(session.ledger(|ledger| ledger.open_turn(ROOT).unwrap().0).unwrap(), 1);
    assert_eq!(session.prompt(Message::assistant("no")).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn an_answer_to_what_is_not_asked_any_more_is_refused() {
    let session = Crashing::new();
    let ask_anew = || {
        session.prompt(Message::user("Go.")).unwrap();
        model(&session)
    };
    let refused = |turn: ModelTurn<'_>| {
        let last = session.last();
        let error = turn.answer(Message::assistant("late")).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, "work.outdated"));
        assert_eq!(session.last(), last, "nothing was appended");
    };
    let turn = ask_anew();
    session.clear("again").unwrap();
    refused(turn);

    let turn = ask_anew();
    session.rewind(&session.plan_rewind(ROOT, RewindTo::Start).unwrap()).unwrap();
    refused(turn);

    let turn = ask_anew();
    session.append(Message::assistant("From elsewhere.")).unwrap();
    refused(turn);

    // Guidance that comes while the model thinks does not outdate what it says, and neither does a compaction.
    let turn = ask_anew();
    session.append(Message::user("And be quick.")).unwrap();
    turn.answer(Message::assistant("Done.")).unwrap();
}

#[test]
fn a_call_that_was_left_behind_is_not_started() {
    let session = asked(1);
    let owed = call(&session);
    session.rewind(&session.plan_rewind(ROOT, RewindTo::BeforeMessage(MessageNo(2))).unwrap()).unwrap();
    assert_eq!(owed.start(Effect::Mutating).unwrap_err().code(), "work.outdated");
    // Nobody runs it now, and that is recorded.
    assert!(offered(&session).is_empty());
    assert_eq!(result_of(&session, ROOT, 0).0, Outcome::NotStarted);
}

#[test]
fn a_tool_whose_thread_died_is_unknown_and_not_run_again() {
    let session = asked(1);
    drop(call(&session).start(Effect::External).unwrap());
    assert_eq!(offered(&session), ["0 model"]);
    assert_eq!(result_of(&session, ROOT, 0).0, Outcome::Unknown);
    assert!(offered(&session).len() == 1 && session.open_calls().unwrap().is_empty());
}

#[test]
fn a_pure_call_is_run_twice_and_not_three_times() {
    let mut session = asked(1);
    std::mem::forget(call(&session).start(Effect::Pure).unwrap());
    let report = session.crash();
    assert_eq!(report.unknown_calls, []);
    let again = call(&session);
    assert_eq!(again.attempts(), 1);
    std::mem::forget(again.start(Effect::Pure).unwrap());
    let report = session.crash();
    assert_eq!(report.unknown_calls.len(), 1);
    assert_eq!(offered(&session), ["0 model"]);
}

#[test]
fn children_come_back_deepest_first_and_their_results_go_up() {
    let mut session = asked(2);
    assert_eq!(delegate(&session, Delegation::inner("worker", "Do A.")), CHILD);
    new_child(&session).begin(bound(), vec![Message::system("Be brief.")]).unwrap();
    answer(&session, 1);
    let grandchild = delegate(&session, Delegation::inner("worker", "Do B."));
    let report = session.crash();
    assert_eq!(report.settled, []);
    let words: Vec<_> = report.owed.iter().map(Step::word).collect();
    assert_eq!(words, ["start_child", "resume_child", "continue_turn"]);
    assert_eq!(offered(&session)[0], format!("{grandchild} begin"));
    new_child(&session).begin(bound(), Vec::new()).unwrap();
    answer(&session, 0);
    let mut work = session.work().unwrap();
    let Work::Settle(end) = work.remove(0) else { panic!("{work:?}") };
    assert_eq!(end.node(), grandchild);
    drop(work);
    end.settle(ChildResult::completed("B is done")).unwrap();
    assert_eq!(result_of(&session, CHILD, 0), (Outcome::Succeeded, "B is done".to_owned()));
    // The turn that broke off goes on under a turn of recovery, once the root itself goes on.
    assert_eq!(session.ledger(|ledger| ledger.open_turn(ROOT)).unwrap(), None);
    let running = calls(&session).into_iter().find(|call| call.node() == ROOT).unwrap();
    running.start(Effect::Mutating).unwrap().finish(CallResult::succeeded("ok")).unwrap();
    assert_eq!(session.ledger(|ledger| ledger.open_turn(ROOT).unwrap().0).unwrap(), 2);
    answer(&session, 0);
    let Some(Work::Settle(end)) = session.work().unwrap().into_iter().next() else { panic!("no end") };
    end.settle_with_last_words().unwrap();
    assert_eq!(result_of(&session, ROOT, 0), (Outcome::Succeeded, "On it.".to_owned()));
    assert_eq!(offered(&session), ["0 model"]);
}

#[test]
fn an_external_agent_is_asked_once() {
    let mut session = asked(2);
    delegate(&session, Delegation::external("oracle", "Tell me."));
    // Never asked: a restart asks.
    session.crash();
    assert!(offered(&session).contains(&"1 ask".to_owned()));
    std::mem::forget(ask(&session));
    let report = session.crash();
    assert_eq!(report.settled, [Step::SettleUnknown { child: CHILD }]);
    assert_eq!(result_of(&session, ROOT, 0).0, Outcome::Unknown);
    // One whose thread died is as unknown, without a restart.
    let other = delegate(&session, Delegation::external("oracle", "And that?"));
    let agent = ask(&session);
    assert!(!offered(&session).iter().any(|it| it.starts_with(&other.to_string())), "it is at work");
    agent.said(Message::assistant("Let me see.")).unwrap();
    drop(agent);
    assert_eq!(offered(&session), ["0 model"]);
    assert_eq!(result_of(&session, ROOT, 1).0, Outcome::Unknown);
}

#[test]
fn a_result_of_a_child_and_of_its_call_are_one_frame() {
    let session = asked(1);
    delegate(&session, Delegation::external("oracle", "Tell me."));
    let receipt = ask(&session).settle(ChildResult::completed("42")).unwrap();
    assert_eq!(receipt.last.0, receipt.first.0 + 1);
    assert_eq!(result_of(&session, ROOT, 0), (Outcome::Succeeded, "42".to_owned()));
}

#[test]
fn what_is_gone_blocks_its_child_and_never_another_model_silently() {
    let session = asked(1);
    delegate(&session, Delegation::inner("worker", "Do it."));
    new_child(&session).begin(bound(), Vec::new()).unwrap();
    let gone = session.work_with(&|binding| {
        assert_eq!((binding.agent, binding.bound.unwrap().model.as_str()), ("worker", "fake-1"));
        Availability::Gone(BlockReason::ModelMissing)
    });
    let left: Vec<_> = gone.unwrap().iter().map(Work::node).collect();
    assert_eq!(left, [ROOT]);
    let (outcome, text) = result_of(&session, ROOT, 0);
    assert!(outcome == Outcome::Failed && text.contains("model is not available"), "{text}");
}

#[test]
fn bounds_are_told_to_the_model_and_not_exceeded() {
    let delegation = DelegationLimits { calls_per_run_max: 1, rounds_max: 2, ..DelegationLimits::default() };
    let session = Crashing::with(StoreOptions { delegation, ..StoreOptions::default() });
    session.prompt(Message::user("Go.")).unwrap();
    answer(&session, 2);
    delegate(&session, Delegation::inner("worker", "Do it."));
    let second = calls(&session).pop().unwrap();
    let Delegated::Refused(second, why) = second.delegate(Delegation::inner("worker", "More.")).unwrap()
    else {
        panic!("the second delegation of a run was let through")
    };
    second.answer(CallResult::failed(why.to_string())).unwrap();
    assert!(result_of(&session, ROOT, 1).1.contains("1 is allowed"));
    new_child(&session).begin(bound(), Vec::new()).unwrap();
    for _ in 0..2 {
        answer(&session, 1);
        call(&session).answer(CallResult::failed("no")).unwrap();
    }
    assert_eq!(offered(&session), ["1 settle RoundsUsedUp"]);
    let Some(Work::Settle(end)) = session.work().unwrap().pop() else { panic!("no end") };
    end.settle_with_last_words().unwrap();
    assert_eq!(result_of(&session, ROOT, 0).0, Outcome::Failed);
}

#[test]
fn a_child_of_a_conversation_that_went_elsewhere_is_cancelled() {
    let session = asked(1);
    delegate(&session, Delegation::inner("worker", "Do it."));
    new_child(&session).begin(bound(), Vec::new()).unwrap();
    let turn = model(&session);
    session.rewind(&session.plan_rewind(ROOT, RewindTo::Start).unwrap()).unwrap();
    assert!(offered(&session).is_empty());
    assert_eq!(session.ledger(|ledger| ledger.settled(CHILD)).unwrap(), Some(NodeStatus::Cancelled));
    assert_eq!(turn.answer(Message::assistant("late")).unwrap_err().code(), "work.outdated");
    validate_pairing(&session.with_tree(|tree| tree.context(CHILD)).unwrap()).unwrap();
}

#[test]
fn resuming_again_and_again_adds_nothing_but_the_ownership() {
    let mut session = asked(2);
    std::mem::forget(call(&session).start(Effect::Mutating).unwrap());
    session.crash();
    let kinds = |session: &Crashing| {
        let mut kinds: Vec<&'static str> = Vec::new();
        let visit = &mut |item| {
            if let EventItem::Event(event) = item {
                kinds.push(event.event.name());
            }
            std::ops::ControlFlow::Continue(())
        };
        session.reader().events(Position(1), visit).unwrap();
        kinds.into_iter().filter(|kind| !matches!(*kind, "session.opened" | "session.closed")).count()
    };
    let once = kinds(&session);
    for _ in 0..5 {
        session.crash();
        session.context().unwrap();
    }
    assert_eq!(kinds(&session), once);
    assert_eq!(offered(&session), ["0 call 2.1"]);
}

fn orphaned() -> Crashing {
    let mut session = asked(3);
    let mut owed = calls(&session).into_iter();
    std::mem::forget(owed.next().unwrap().start(Effect::Mutating).unwrap());
    std::mem::forget(owed.next().unwrap().start(Effect::Idempotent).unwrap());
    drop(owed);
    session.crash();
    let found = session.orphans().unwrap();
    let effects: Vec<_> = found.iter().map(|orphan| orphan.effect).collect();
    assert_eq!(effects, [Some(Effect::Mutating), Some(Effect::Idempotent), None]);
    session
}

fn third() -> CallRef {
    CallRef { message_no: MessageNo(2), tool_index: ToolIndex(2) }
}

#[test]
fn orphans_are_skipped() {
    let session = orphaned();
    session.settle_orphans(OrphanPolicy::Skip).unwrap();
    assert_eq!(result_of(&session, ROOT, 2).0, Outcome::NotStarted);
    assert_eq!(result_of(&session, ROOT, 0).0, Outcome::Unknown);
    assert_eq!(offered(&session), ["0 model"]);
}

#[test]
fn orphans_that_bear_it_are_run_again() {
    let session = orphaned();
    let redo = session.settle_orphans(OrphanPolicy::Redo).unwrap();
    assert_eq!(redo.len(), 2, "the mutating one is not among them");
    let mutating = session.repeat_call(ROOT, CallRef { tool_index: ToolIndex(0), ..third() }).unwrap_err();
    assert_eq!(mutating.code(), "orphan.not_repeatable");
    let repeated = session.repeat_call(ROOT, redo[0].call).unwrap();
    // Before it runs, the log has it: whoever takes over knows that it may have run twice.
    assert_eq!(
        session.ledger(|ledger| ledger.last_start(ROOT, redo[0].call)).unwrap(),
        Some((Effect::Idempotent, 2))
    );
    repeated.finish(CallResult::succeeded("done after all")).unwrap();
    let shown = session.context().unwrap();
    let shown = shown.iter().find(|message| message.call == Some(redo[0].call)).unwrap();
    assert_eq!(shown.parts, [Part::text("done after all")]);
    assert_eq!(offered(&session), ["0 call 2.2"]);
}

#[test]
fn orphans_are_aborted_and_the_turn_rests() {
    let mut session = orphaned();
    session.settle_orphans(OrphanPolicy::Abort).unwrap();
    assert_eq!(result_of(&session, ROOT, 2).0, Outcome::Cancelled);
    assert!(offered(&session).is_empty());
    assert_eq!(session.crash().owed, []);
}

/// The orphan is a child's, and stays one until the child is cancelled. (Seed 53794 of the lives.)
#[test]
fn aborting_what_a_child_waits_for_is_done_once() {
    let mut session = asked(1);
    delegate(&session, Delegation::inner("worker", "Do it."));
    new_child(&session).begin(bound(), Vec::new()).unwrap();
    answer(&session, 1);
    std::mem::forget(call(&session).start(Effect::Mutating).unwrap());
    session.crash();
    assert_eq!(session.orphans().unwrap().len(), 1);
    session.settle_orphans(OrphanPolicy::Abort).unwrap();
    let last = session.last();
    session.settle_orphans(OrphanPolicy::Abort).unwrap();
    assert_eq!(session.last(), last);
    assert!(offered(&session).is_empty());
    assert_eq!(session.ledger(|ledger| ledger.settled(CHILD)).unwrap(), Some(NodeStatus::Cancelled));
}

#[test]
fn a_person_is_asked_about_each_orphan_once() {
    let mut session = orphaned();
    session.settle_orphans(OrphanPolicy::Ask).unwrap();
    session.crash();
    let last = session.last();
    session.settle_orphans(OrphanPolicy::Ask).unwrap();
    assert_eq!(session.last(), last, "asked before the crash, not again");
    let mutating = CallRef { tool_index: ToolIndex(0), ..third() };
    let refused = session.answer_orphan(ROOT, mutating, OrphanChoice::Redo, "ada").unwrap_err();
    assert_eq!(refused.code(), "orphan.not_repeatable");
    session.answer_orphan(ROOT, third(), OrphanChoice::Skip, "ada").unwrap();
    assert_eq!(result_of(&session, ROOT, 2).0, Outcome::NotStarted);
    let twice = session.answer_orphan(ROOT, third(), OrphanChoice::Abort, "ada").unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::NotFound);
    session.answer_orphan(ROOT, mutating, OrphanChoice::Abort, "ada").unwrap();
    assert!(offered(&session).is_empty());
}

fn attempt() -> Attempt {
    let (role, trigger) = (SummaryRole::User, CompactionTrigger::Auto);
    Attempt { compaction_id: "c".into(), role, trigger, model: None, usage: None }
}

#[test]
fn a_compaction_is_applied_whole_or_not_at_all() {
    let session = Crashing::new();
    for _ in 0..20 {
        session.prompt(Message::user("word ".repeat(30))).unwrap();
        answer(&session, 0);
        session.end_turn(TurnOutcome::Completed).unwrap();
    }
    let policy = Policy { output_min: 8, ..Policy::default() };
    let settings = CompactionSettings { window: Some(1_500), policy, ..CompactionSettings::default() };
    let plan = session.plan_compaction(ROOT, &settings).unwrap();
    let before = (session.context().unwrap(), session.last());
    let empty = session.apply_compaction(&plan, " ", attempt()).unwrap_err();
    let long = session.apply_compaction(&plan, &"word ".repeat(9_000), attempt()).unwrap_err();
    assert_eq!((empty.kind(), long.kind()), (ErrorKind::Invalid, ErrorKind::Invalid));
    assert_eq!((session.context().unwrap(), session.last()), before);

    // Someone cleared meanwhile: what was summarised is not what the model is shown.
    session.clear("new").unwrap();
    let outdated = session.apply_compaction(&plan, "summary", attempt()).unwrap_err();
    assert_eq!(outdated.kind(), ErrorKind::Conflict);
    session.undo(ROOT).unwrap();
    assert_eq!(session.context().unwrap(), before.0, "a clear is undone");

    let (key, candidate) = ("cache-1".to_owned(), None);
    session.set_affinity(AffinitySet { model: "fake-1".into(), key, api_mode: None, candidate }).unwrap();

    let receipt = session.apply_compaction(&plan, "They talked.", attempt()).unwrap();
    assert!(session.context().unwrap().len() < before.0.len());
    // The provider's continuation of what is gone ends in the same frame: it would bring it all back.
    let events = |from: Position| {
        let mut words = Vec::new();
        let mut note = |item| {
            if let EventItem::Event(event) = item {
                words.push(event.event.kind().0);
            }
            std::ops::ControlFlow::Continue(())
        };
        session.reader().events(from, &mut note).unwrap();
        words
    };
    assert_eq!(events(receipt.first), [kind::ContextCompacted, kind::AffinityCleared]);
    let earlier = session.reader().tree(Position(receipt.first.0 - 1)).unwrap();
    assert_eq!(earlier.context(ROOT), before.0, "every earlier context can be had");
}

/// What the host pins stays, whatever else goes; a compaction where there is no affinity says nothing of one.
#[test]
fn what_the_host_pins_stays() {
    let session = Crashing::new();
    for nth in 0..20 {
        session.prompt(Message::user("word ".repeat(30))).unwrap();
        let name = if nth == 2 { "ask_to_user" } else { "tool" };
        let said = model(&session).answer(Message::assistant("On it.").call("c", name, "{}")).unwrap();
        let running = session.start_call(said.call(0), Effect::Pure).unwrap();
        running.finish(CallResult::succeeded("r")).unwrap();
        answer(&session, 0);
        session.end_turn(TurnOutcome::Completed).unwrap();
    }
    let policy = Policy { output_min: 8, ..Policy::default() };
    let settings = |pinned| CompactionSettings { window: Some(2_500), policy, pinned };
    let call = |message_no| CallRef { message_no: MessageNo(message_no), tool_index: ToolIndex(0) };
    let ways = [
        (Pinned::default(), None),
        (Pinned { messages: [MessageNo(4)].into(), ..Pinned::default() }, Some(4)),
        (Pinned { tools: ["ask_to_user".to_owned()].into(), ..Pinned::default() }, Some(8)),
        (Pinned { open: [call(11)].into(), ..Pinned::default() }, Some(11)),
        (Pinned { children: [call(14)].into(), ..Pinned::default() }, Some(14)),
    ];
    for (pinned, stays) in ways {
        let plan = session.plan_compaction(ROOT, &settings(pinned.clone())).unwrap();
        for message in [4, 8, 11, 14] {
            let is_kept =
                plan.kept.iter().any(|range| (range.first..=range.last).contains(&MessageNo(message)));
            assert_eq!(is_kept, stays == Some(message), "{pinned:?}, message {message}: {:?}", plan.kept);
        }
    }
    let plan = session.plan_compaction(ROOT, &settings(Pinned::default())).unwrap();
    let receipt = session.apply_compaction(&plan, "They talked.", attempt()).unwrap();
    assert_eq!(receipt.first, receipt.last);
}

/// A summary in the model's own mouth, or as the result of a call that nobody made, is what providers refuse.
#[test]
fn a_summary_is_not_spoken_by_the_model_or_a_tool() {
    let session = Crashing::new();
    session.append(Message::user("one")).unwrap();
    let compaction = |summary_role| Compaction {
        compaction_id: "c".into(),
        summary: "s".into(),
        summary_role,
        kept: Vec::new(),
        replaced: vec![MessageRange { first: MessageNo(1), last: MessageNo(1) }],
        tokens: (None, None),
        trigger: CompactionTrigger::Manual,
        model: None,
        usage: None,
    };
    for role in [Role::Assistant, Role::Tool] {
        let error = session.compact(compaction(role)).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Invalid, "compaction.role"), "{role:?}");
    }
    for role in [Role::System, Role::Developer, Role::User] {
        session.compact(compaction(role)).unwrap();
        assert_eq!(session.context().unwrap()[0].role, role);
    }
}

#[test]
fn what_the_provider_said_beside_its_answer_is_kept_with_it() {
    let session = Crashing::new();
    session.prompt(Message::user("Go.")).unwrap();
    let turn = model(&session);
    turn.context().unwrap();
    let request = UsageRecorded {
        request_id: "r1".into(),
        message_no: None,
        model: Some("fake-1".into()),
        usage: None,
        cost_nano_usd: Some(5),
        latency_ms: None,
        estimated_input: None,
        window: Some(8_000),
    };
    let item = br#"{"type":"message","id":"m1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Done.","annotations":[]}]}"#;
    let said = Message::assistant("Done.").model("fake-1");
    let answer =
        Answer::from(said).replay("fake-1", "responses", vec![item.to_vec().into()]).request(request);
    let appended = turn.answer(answer).unwrap();
    assert_eq!(appended.receipt.last.0, appended.receipt.first.0 + 2, "one frame");
    let need = session.compaction_need(ROOT, &CompactionSettings::default()).unwrap();
    assert!(matches!(need, sessionlog::projections::compaction::Need::NotYet { .. }), "{need:?}");
    session.prompt(Message::user("More.")).unwrap();
    let target = sessionlog::projections::render::Target {
        api: sessionlog::projections::render::Api::Responses,
        model: "fake-1".into(),
        provider: None,
    };
    let body = String::from_utf8(model(&session).render(&target).unwrap().body).unwrap();
    assert!(body.contains(std::str::from_utf8(item).unwrap()), "byte for byte: {body}");
}

#[test]
fn withdrawn_and_said_again() {
    let session = Crashing::new();
    session.prompt(Message::user("Wait, no.")).unwrap();
    session.withdraw(ROOT, MessageNo(1), "typo").unwrap();
    assert_eq!(session.context().unwrap(), []);
    session.undo(ROOT).unwrap();
    assert_eq!(session.context().unwrap()[0].message_no, Some(MessageNo(2)));
    assert_eq!(session.undo(ROOT).unwrap_err().kind(), ErrorKind::NotFound);
    answer(&session, 0);
    assert_eq!(session.withdraw(ROOT, MessageNo(2), "late").unwrap_err().code(), "message.answered");
    assert_eq!(session.withdraw(ROOT, MessageNo(9), "?").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_rewind_says_what_it_leaves_and_names_the_checkpoint() {
    let session = asked(1);
    call(&session).start(Effect::Mutating).unwrap().finish(CallResult::succeeded("ok")).unwrap();
    let checkpoint = CheckpointReferenced {
        id: "after".into(),
        before: Some("before".into()),
        message_no: Some(MessageNo(2)),
        touched_files: vec!["src/lib.rs".into()],
        note: String::new(),
        invocation: None,
    };
    session.reference_checkpoint(ROOT, checkpoint).unwrap();
    answer(&session, 0);
    let before = session.last();
    let turn = sessionlog::codec::ids::TurnNo(1);
    let plan = session.plan_rewind(ROOT, RewindTo::BeforeTurn(turn)).unwrap();
    assert_eq!(session.last(), before, "a dry run");
    assert_eq!(plan.leaves, [MessageNo(1), MessageNo(2), MessageNo(3)]);
    assert_eq!(plan.effects.len(), 1);
    assert_eq!(
        (plan.checkpoint.as_deref(), &plan.touched_files[..]),
        (Some("before"), &["src/lib.rs".to_owned()][..])
    );
    session.prompt(Message::user("More.")).unwrap();
    assert_eq!(session.rewind(&plan).unwrap_err().code(), "rewind.outdated");
    let whole = session.context().unwrap();
    let plan = session.plan_rewind(ROOT, RewindTo::BeforeTurn(turn)).unwrap();
    session.rewind(&plan).unwrap();
    assert_eq!(session.context().unwrap(), []);
    assert_eq!(session.branches(ROOT).unwrap(), [plan.from]);
    session.undo(ROOT).unwrap();
    assert_eq!(session.context().unwrap(), whole);
    let transcript = session.transcript().unwrap();
    assert_eq!(transcript.len(), 5, "four messages and a result: nothing left the transcript");
}

#[test]
fn a_session_is_used_from_many_threads() {
    let session = asked(8);
    let owed = calls(&session);
    std::thread::scope(|scope| {
        for call in owed {
            scope.spawn(move || {
                let running = call.start(Effect::Mutating).unwrap();
                running.finish(CallResult::succeeded("ok")).unwrap();
            });
        }
    });
    assert_eq!(offered(&session), ["0 model"]);
    validate_pairing(&session.context().unwrap()).unwrap();
}
