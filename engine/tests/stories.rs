//! The reports of kinds A2 (pairing of calls and results) and A3 (compaction and lost context), by their ids, each lived
//! through a session: recorded, crashed where the report crashed, resumed. The pure halves are in
//! `projections/tests/bugs.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use sessionlog::codec::event::*;
use sessionlog::codec::ids::{MessageNo, NodeId, Position};
use sessionlog::projections::compaction::{Attempt, Inputs, OversizedTail, Plan, Policy, Share, SummaryRole};
use sessionlog::projections::rewind::RewindTo;
use sessionlog::projections::{ContextMessage, ContextOrigin, EntryBody, validate_pairing};
use sessionlog::session::{CompactionSettings, OwedCall};
use sessionlog::{CallResult, ChildResult, Delegated, Delegation, Message, Session, Work};
use support::tree::{Crashing, bound, offered};

const ROOT: NodeId = NodeId::ROOT;

fn ask(session: &Session, ids: &[&str]) -> MessageNo {
    let message = Message::assistant("On it.");
    let message = ids.iter().fold(message, |message, id| message.call(*id, "tool", "{}"));
    session.append(message).unwrap().message_no
}

fn calls(session: &Session) -> Vec<OwedCall<'_>> {
    let work = session.work().unwrap().into_iter();
    work.filter_map(|work| if let Work::Call(call) = work { Some(call) } else { None }).collect()
}

fn run(call: OwedCall<'_>, text: &str) {
    call.start(Effect::Mutating).unwrap().finish(CallResult::succeeded(text)).unwrap();
}

/// The legal context, a line a message: role, ids of calls or call, text.
fn lines(context: &[ContextMessage]) -> Vec<String> {
    validate_pairing(context).unwrap();
    let line = |message: &ContextMessage| {
        let ids: Vec<&str> = message.tool_calls.iter().map(|call| call.call_id.as_str()).collect();
        let text: Vec<&str> = message
            .parts
            .iter()
            .filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None })
            .collect();
        let text: String = text.concat().chars().take(24).collect();
        let id = message.tool_call_id.as_deref().unwrap_or_default();
        format!("{:?} {id}{} {text}", message.role, ids.join(","))
    };
    context.iter().map(line).collect()
}

fn shown(session: &Session) -> Vec<String> {
    lines(&session.context().unwrap())
}

/// So many turns, each a prompt and an answer.
fn turns(session: &Session, count: usize) {
    for turn in 1..=count {
        session.prompt(Message::user(format!("prompt {turn} {}", "word ".repeat(20)))).unwrap();
        session.append(Message::assistant(format!("answer {turn} {}", "word ".repeat(20)))).unwrap();
        session.end_turn(TurnOutcome::Completed).unwrap();
    }
}

fn plan(session: &Session) -> Plan {
    let policy = Policy {
        recent: Share::percent(20),
        target: Share::percent(60),
        limit: Share::percent(60),
        oversized_tail: OversizedTail::Keep,
        output_min: 8,
        ..Policy::default()
    };
    let settings = CompactionSettings { window: Some(600), policy, ..CompactionSettings::default() };
    session.plan_compaction(ROOT, &settings).unwrap()
}

fn compact(session: &Session, summary: &str) -> Position {
    let (trigger, role) = (CompactionTrigger::Auto, SummaryRole::User);
    let attempt = Attempt { compaction_id: summary.to_owned(), role, trigger, model: None, usage: None };
    session.apply_compaction(&plan(session), summary, attempt).unwrap().first
}

#[test]
fn p1_after_an_interruption_the_next_prompt_is_legal() {
    let mut session = Crashing::new();
    session.prompt(Message::user("Go.")).unwrap();
    ask(&session, &["A"]);
    session.crash();
    session.prompt(Message::user("continue")).unwrap();
    let context = shown(&session);
    assert_eq!(context.len(), 4);
    assert!(context[2].starts_with("Tool A") && context[3].starts_with("User"), "{context:?}");
    let last = session.last();
    session.context().unwrap();
    assert_eq!(session.last(), last, "reading changes nothing");
}

#[test]
fn p2_two_of_three_parallel_results_reach_the_disk() {
    let mut session = Crashing::new();
    session.prompt(Message::user("Go.")).unwrap();
    ask(&session, &["A", "B", "C"]);
    let mut owed = calls(&session);
    run(owed.pop().unwrap(), "C is done");
    std::mem::forget(owed.pop().unwrap().start(Effect::Mutating).unwrap());
    run(owed.pop().unwrap(), "A is done");
    drop(owed);
    session.crash();
    let context = shown(&session);
    assert_eq!(context[2], "Tool A A is done");
    assert!(context[3].starts_with("Tool B The outcome of this call"), "{context:?}");
    assert_eq!(context[4], "Tool C C is done");
}

#[test]
fn p3_the_head_is_where_the_log_ends() {
    let mut session = Crashing::new();
    session.prompt(Message::user("Go.")).unwrap();
    ask(&session, &["A"]);
    let before = session.ledger(|ledger| ledger.head(ROOT)).unwrap();
    session.crash();
    assert_eq!(session.ledger(|ledger| ledger.head(ROOT)).unwrap(), before);
    run(calls(&session).pop().unwrap(), "A is done");
    assert_eq!(shown(&session)[2], "Tool A A is done");
}

#[test]
fn p5_three_running_calls_one_of_them_a_delegation() {
    let mut session = Crashing::new();
    session.prompt(Message::user("Go.")).unwrap();
    ask(&session, &["A", "B", "C"]);
    let mut owed = calls(&session);
    let delegation = Delegation::external("oracle", "Tell me.");
    assert!(matches!(owed.pop().unwrap().delegate(delegation).unwrap(), Delegated::Child(_)));
    for call in owed.drain(..) {
        std::mem::forget(call.start(Effect::Mutating).unwrap());
    }
    let asked = session.work().unwrap().into_iter().find_map(|work| match work {
        Work::Ask(request) => Some(request.bind(bound()).unwrap()),
        _ => None,
    });
    std::mem::forget(asked.unwrap());
    drop(owed);
    let report = session.crash();
    assert_eq!(report.settled.len(), 3, "all three in one pass: {:?}", report.settled);
    assert_eq!(session.open_calls().unwrap(), []);
    assert_eq!(offered(&session), ["0 model"]);
    // Not taken for something that a person cancelled.
    let outcomes: Vec<Outcome> = session
        .transcript()
        .unwrap()
        .iter()
        .filter_map(
            |entry| if let EntryBody::Result(result, _) = &entry.body { Some(result.outcome) } else { None },
        )
        .collect();
    assert_eq!(outcomes, [Outcome::Unknown; 3]);
}

#[test]
fn p6_a_tool_that_compacts_while_it_runs_gets_its_result_beside_its_call() {
    let session = Crashing::new();
    turns(&session, 4);
    session.prompt(Message::user("Compact yourself.")).unwrap();
    ask(&session, &["A"]);
    let running = calls(&session).pop().unwrap().start(Effect::Mutating).unwrap();
    compact(&session, "They talked.");
    running.finish(CallResult::succeeded("compacted")).unwrap();
    let context = shown(&session);
    let at = context.iter().position(|line| line.starts_with("Assistant A")).unwrap();
    assert_eq!(context[at + 1], "Tool A compacted");
}

#[test]
fn p7_a_compaction_between_two_results_of_one_message() {
    let session = Crashing::new();
    turns(&session, 4);
    session.prompt(Message::user("Go.")).unwrap();
    ask(&session, &["A", "B"]);
    let mut owed = calls(&session);
    run(owed.remove(0), "A is done");
    compact(&session, "They talked.");
    run(owed.remove(0), "B is done");
    let context = shown(&session);
    let at = context.iter().position(|line| line.starts_with("Assistant A,B")).unwrap();
    assert_eq!(context[at + 1..at + 3], ["Tool A A is done", "Tool B B is done"]);
}

#[test]
fn p10_a_call_is_there_before_the_run_ends() {
    let mut session = Crashing::new();
    session.prompt(Message::user("Go.")).unwrap();
    ask(&session, &["A"]);
    session.crash();
    assert_eq!(offered(&session), ["0 call 2.0"]);
}

#[test]
fn c1_c6_before_a_compaction_and_between_two() {
    let session = Crashing::new();
    turns(&session, 6);
    let whole = shown(&session);
    let first = compact(&session, "first summary");
    let between = shown(&session);
    turns(&session, 4);
    compact(&session, "second summary");
    let now = shown(&session);
    session.rewind(&session.plan_rewind(ROOT, RewindTo::Record(first)).unwrap()).unwrap();
    assert_eq!(shown(&session), between, "the first summary is as it was");
    session.rewind(&session.plan_rewind(ROOT, RewindTo::AfterMessage(MessageNo(4))).unwrap()).unwrap();
    assert_eq!(shown(&session), whole[..4], "the exact first two turns");
    session.undo(ROOT).unwrap();
    session.undo(ROOT).unwrap();
    assert_eq!(shown(&session), now);
}

#[test]
fn c2_c9_a_host_that_dies_while_it_compacts_has_compacted_nothing() {
    let mut session = Crashing::new();
    turns(&session, 6);
    let before = shown(&session);
    let planned = plan(&session);
    session.crash();
    assert_eq!(shown(&session), before);
    // The same plan is made again after the restart, and is tried again.
    assert_eq!(plan(&session).replaced, planned.replaced);
    compact(&session, "They talked.");
    let summaries = session.context().unwrap();
    assert_eq!(summaries.iter().filter(|it| it.origin == ContextOrigin::Summary).count(), 1);
}

#[test]
fn c4_c5_the_transcript_is_whole_and_the_summary_comes_before_the_tail() {
    let session = Crashing::new();
    turns(&session, 6);
    let (transcript, context) = (session.transcript().unwrap(), shown(&session));
    compact(&session, "They talked.");
    assert_eq!(session.transcript().unwrap()[..transcript.len()], transcript[..]);
    let compacted = session.context().unwrap();
    assert_eq!(compacted[0].origin, ContextOrigin::Summary);
    let tail = lines(&compacted[1..]);
    assert_eq!(tail, context[context.len() - tail.len()..], "the newest messages, verbatim, in order");
}

#[test]
fn c7_what_was_left_is_not_summarised() {
    let session = Crashing::new();
    turns(&session, 6);
    session.rewind(&session.plan_rewind(ROOT, RewindTo::AfterMessage(MessageNo(8))).unwrap()).unwrap();
    let source = plan(&session).source;
    assert!(source.iter().all(|message| message.message_no <= Some(MessageNo(8))));
    compact(&session, "They talked.");
    assert!(!shown(&session).iter().any(|line| line.contains("prompt 5") || line.contains("prompt 6")));
}

#[test]
fn c8_the_newest_instruction_stays_verbatim() {
    let session = Crashing::new();
    turns(&session, 4);
    session.prompt(Message::user("First fix the test, then deploy.")).unwrap();
    for step in 0..6 {
        ask(&session, &["A"]);
        run(calls(&session).pop().unwrap(), &format!("step {step} {}", "word ".repeat(12)));
    }
    compact(&session, "They fixed the test.");
    let context = shown(&session);
    assert!(context.contains(&"User  First fix the test, then".to_owned()), "{context:?}");
}

#[test]
fn c10_there_is_one_summary_after_a_resume_and_a_second_compaction() {
    let mut session = Crashing::new();
    turns(&session, 6);
    compact(&session, "first summary");
    session.crash();
    turns(&session, 6);
    compact(&session, "second summary");
    session.reopen();
    let context = session.context().unwrap();
    let summaries: Vec<_> = context.iter().filter(|it| it.origin == ContextOrigin::Summary).collect();
    assert_eq!(summaries.len(), 1);
    assert!(lines(&context)[0].contains("Compressed"), "{:?}", lines(&context));
    assert!(!format!("{context:?}").contains("first summary"));
}

#[test]
fn c11_a_compaction_says_what_it_did() {
    let session = Crashing::new();
    turns(&session, 6);
    let at = compact(&session, "They talked.");
    let mut found = None;
    session
        .reader()
        .events(at, &mut |item| {
            if let sessionlog::session::EventItem::Event(event) = item
                && let Event::ContextCompacted(compacted) = event.event
            {
                found = Some(compacted);
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    let compacted = found.unwrap();
    assert!(compacted.tokens_before.unwrap() > compacted.tokens_after.unwrap());
    assert_eq!(compacted.trigger, CompactionTrigger::Auto);
    assert!(!compacted.kept.is_empty() && !compacted.replaced.is_empty());
    assert!(Inputs::of(&compacted).is_some(), "the planner's exact inputs");
}

#[test]
fn c12_a_child_that_runs_while_its_parent_compacts_is_not_forgotten() {
    let mut session = Crashing::new();
    turns(&session, 4);
    session.prompt(Message::user("Delegate.")).unwrap();
    ask(&session, &["A"]);
    let owed = calls(&session).pop().unwrap();
    let Delegated::Child(child) = owed.delegate(Delegation::inner("worker", "Do it.")).unwrap() else {
        panic!()
    };
    compact(&session, "They talked.");
    session.crash();
    let Some(Work::Begin(new)) = session.work().unwrap().into_iter().next() else {
        panic!("{:?}", offered(&session))
    };
    new.begin(bound(), Vec::new()).unwrap();
    session.append_to(child, Message::assistant("It is done.")).unwrap();
    let Some(Work::Settle(end)) = session.work().unwrap().into_iter().next() else { panic!() };
    end.settle(ChildResult::completed("It is done.")).unwrap();
    let context = shown(&session);
    assert_eq!(context.last().unwrap(), "Tool A It is done.");
}
