//! The compaction planner, case by case: q's numbers, what stays, what is refused.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

#[allow(clippy::cast_possible_wrap, reason = "of small numbers")]
mod support;

use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_projections::compaction::*;
use sessionlog_projections::*;
use support::*;

const ROOT: NodeId = NodeId::ROOT;

fn words(tokens: usize) -> String {
    "abc".repeat(tokens)
}

fn attempt(id: &str) -> Attempt {
    Attempt {
        compaction_id: id.into(),
        role: SummaryRole::System,
        trigger: CompactionTrigger::Auto,
        model: Some("m".into()),
        usage: Some(usage(5, 1)),
    }
}

fn pinned(log: &Log) -> Pinned {
    let mut children = RunningChildren::default();
    log.events.iter().for_each(|event| children.apply(event));
    Pinned::of(ROOT, &log.ledger, &children)
}

fn plan_by(log: &Log, window: u64, policy: &Policy) -> Result<Plan, PlanError> {
    plan(&log.tree(), ROOT, &pinned(log), &Calibration::default(), Some(window), policy)
}

#[track_caller]
fn planned(log: &Log, window: u64) -> Plan {
    plan_by(log, window, &Policy::default()).unwrap()
}

#[track_caller]
fn compact(log: &mut Log, window: u64, summary: &str) -> ContextCompacted {
    let plan = planned(log, window);
    let event = accept(&plan, &log.tree(), summary, attempt(summary)).unwrap();
    log.add(event.clone());
    event
}

fn numbers(ranges: &[MessageRange]) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (range.first.0, range.last.0)).collect()
}

fn reason(plan: &Plan, number: u64) -> Option<Reason> {
    plan.reasons.iter().find(|kept| kept.message_no.0 == number).map(|kept| kept.reason)
}

/// `[1 system] [2 user] [3 assistant, 4 user, ...]`, each of the later ones of 100 tokens and a few.
fn long(messages: u64) -> Log {
    let mut log = Log::new();
    log.add(message(1, Role::System, "Be brief.", &[]));
    for number in 2..=messages {
        let role = if number % 2 == 0 { Role::User } else { Role::Assistant };
        log.add(message(number, role, &format!("{number} {}", words(99)), &[]));
    }
    log
}

/// Adds an assistant message with calls that have their results.
fn work(log: &mut Log, ids: &[&str], result: &str) -> u64 {
    let number = log.ledger.next_message_no(ROOT).0;
    log.add(message(number, Role::Assistant, "", ids));
    for index in 0..u32::try_from(ids.len()).unwrap() {
        log.add(finished(call(number, index), result));
    }
    number
}

#[test]
fn the_default_policy_is_the_table() {
    let policy = Policy::default();
    let shares = [policy.trigger, policy.target, policy.recent, policy.limit];
    for (window, tokens) in [
        (100, [85, 22, 7, 20]),
        (128_000, [108_800, 28_160, 8_960, 25_600]),
        (200_000, [170_000, 44_000, 14_000, 40_000]),
    ] {
        assert_eq!(shares.map(|share| share.at_most(window)), tokens);
        assert_eq!(shares.map(|share| share.at_least(window)), tokens);
    }
    assert_eq!(shares.map(|share| share.at_least(1_001)), [851, 221, 71, 201]);
    assert_eq!(shares.map(|share| share.at_most(1_001)), [850, 220, 70, 200]);
    assert_eq!(shares.map(|share| share.at_most(u64::MAX) < u64::MAX), [true; 4]);
    assert_eq!((policy.output_min, policy.output_max), (128, 8_192));
    assert_eq!(policy.within_turn().trigger, Share::percent(80));
    let early = Policy { trigger: Share::percent(60), ..policy };
    assert_eq!(early.within_turn(), early);
    assert_eq!(Share::percent(u16::MAX).at_most(10), 10);
    let huge: Share = serde_json::from_str("65535").unwrap();
    assert_eq!((huge.at_most(u64::MAX), huge.at_most(10)), (u64::MAX, 10));
}

#[test]
fn it_is_due_at_the_trigger_and_never_without_a_window() {
    let context = long(40).context();
    let nothing = NodeCalibration::default();
    let predicted = nothing.predict(&context);
    assert_eq!(predicted.local, estimate_tokens(&context));
    assert_eq!(predicted.total, predicted.local + predicted.local / 10);
    let policy = Policy { trigger: Share::percent(50), ..Policy::default() };
    for (window, due) in [(2 * predicted.total, true), (2 * predicted.total + 1, false)] {
        let trigger = predicted.total + u64::from(!due);
        let expected =
            if due { Need::Due { predicted, trigger } } else { Need::NotYet { predicted, trigger } };
        assert_eq!(need(&context, &nothing, Some(window), &policy), expected);
    }
    for unknown in [None, Some(0)] {
        assert_eq!(need(&context, &nothing, unknown, &policy), Need::UnknownWindow { predicted });
        let plan =
            plan(&TreeState::default(), ROOT, &Pinned::default(), &Calibration::default(), unknown, &policy);
        assert_eq!(plan, Err(PlanError::UnknownWindow));
    }
}

#[test]
fn the_tail_stays_and_the_rest_is_replaced() {
    let log = long(40);
    // A message is estimated at 115 tokens: 700 are six of them.
    let plan = planned(&log, 10_000);
    assert_eq!(numbers(&plan.kept), [(1, 1), (35, 40)]);
    assert_eq!(numbers(&plan.replaced), [(2, 34)]);
    assert_eq!(reason(&plan, 1), Some(Reason::Instruction));
    assert_eq!(reason(&plan, 40), Some(Reason::NewestRequest));
    assert_eq!(reason(&plan, 35), Some(Reason::Recent));
    assert_eq!(plan.earlier, None);
    let read: Vec<u64> = plan.source.iter().map(|message| message.message_no.unwrap().0).collect();
    assert_eq!(read, (2..=34).collect::<Vec<_>>());
    assert_eq!((plan.target, plan.limit, plan.window), (2_200, 2_200, 10_000));
    assert_eq!(plan.before, NodeCalibration::default().predict(&log.context()));
}

#[test]
fn the_output_budget_is_what_the_target_leaves() {
    let log = long(400);
    let plan = planned(&log, 40_000);
    // What stays, and a tenth of all for safety.
    let all = plan.fixed.local + plan.output_budget;
    assert!((all + all / 10).abs_diff(plan.target) < 2, "{plan:?}");
    assert_eq!(plan.fixed.total, plan.fixed.local + plan.fixed.local / 10);
    // A summary that fills it is accepted; no longer one is, where the target is the limit.
    let full = words(usize::try_from(plan.output_budget).unwrap());
    let event = accept(&plan, &log.tree(), &full, attempt("c")).unwrap();
    assert!(event.tokens_after.unwrap().abs_diff(plan.target) < 3);
    let too_long = format!("{full}{}", words(4));
    let refused = accept(&plan, &log.tree(), &too_long, attempt("c")).unwrap_err();
    assert!(
        matches!(refused, Rejected::TooLarge { limit: 8_800, predicted } if predicted > 8_800),
        "{refused:?}"
    );
    // It has a lower end and an upper end.
    let log = long(4_000);
    assert_eq!(planned(&log, 400_000).output_budget, 8_192);
    let policy = Policy { output_min: plan.output_budget, ..Policy::default() };
    assert_eq!(plan_by(&long(400), 40_000, &policy).unwrap().output_budget, plan.output_budget);
    let policy = Policy { output_min: plan.output_budget + 1, ..policy };
    let refused = plan_by(&long(400), 40_000, &policy).unwrap_err();
    assert_eq!(
        refused,
        PlanError::BudgetTooSmall { available: plan.output_budget, needed: plan.output_budget + 1 }
    );
    assert!(refused.to_string().contains("leaves"), "{refused}");
}

#[test]
fn a_low_target_is_no_reason_to_refuse_a_summary_of_20_percent() {
    let log = long(100);
    let policy = Policy { target: Share::percent(12), ..Policy::default() };
    let plan = plan_by(&log, 10_000, &policy).unwrap();
    assert_eq!((plan.target, plan.limit), (1_200, 2_000));
    let length = |percent: u64| {
        let all = 10_000 * percent / 100 * 10 / 11;
        words(usize::try_from(all - plan.fixed.local).unwrap())
    };
    let event = accept(&plan, &log.tree(), &length(20), attempt("c")).unwrap();
    assert!(event.tokens_after.unwrap() > 1_990);
    // To the token: a byte more or less decides.
    let mut text = length(19);
    let (mut accepted, mut refused) = (0, 0);
    while refused == 0 {
        text.push('x');
        match accept(&plan, &log.tree(), &text, attempt("c")) {
            Ok(event) => accepted = event.tokens_after.unwrap(),
            Err(Rejected::TooLarge { predicted, .. }) => refused = predicted,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(accepted, 2_000);
    assert!(refused == 2_001 || refused == 2_002, "{refused}");
}

#[test]
fn the_target_may_grow_up_to_the_trigger() {
    let mut log = long(20);
    let big = log.add(message(21, Role::System, &words(3_000), &[]));
    assert!(big > Position::START);
    let refused = plan_by(&log, 10_000, &Policy::default());
    assert_eq!(refused, Err(PlanError::BudgetTooSmall { available: 0, needed: 128 }));
    let policy = Policy { target_growth: TargetGrowth::BelowTrigger, ..Policy::default() };
    let plan = plan_by(&log, 10_000, &policy).unwrap();
    assert_eq!(plan.output_budget, 128);
    assert!(plan.target > 3_000 && plan.limit == plan.target, "{plan:?}");
    assert!(accept(&plan, &log.tree(), &words(128), attempt("c")).is_ok());
    assert!(accept(&plan, &log.tree(), &words(132), attempt("c")).is_err());
    let policy = Policy { trigger: Share::basis_points(u16::try_from(plan.target).unwrap()), ..policy };
    assert!(matches!(plan_by(&log, 10_000, &policy), Err(PlanError::BudgetTooSmall { .. })));
}

#[test]
fn a_call_is_never_parted_from_its_results() {
    let mut log = long(20);
    // The tail's budget ends within this unit.
    let number = work(&mut log, &["A", "B", "C"], &words(200));
    log.add(message(number + 1, Role::Assistant, &words(200), &[]));
    let plan = planned(&log, 10_000);
    assert_eq!(numbers(&plan.kept), [(1, 1), (20, 20), (22, 22)]);
    assert_eq!(plan.source.iter().filter(|message| message.role == Role::Tool).count(), 3);
    assert_eq!(validate_pairing(&plan.source), Ok(()));
    // As the newest unit it stays whole, though it is too large.
    let mut log = long(20);
    let number = work(&mut log, &["A", "B", "C"], &words(300));
    let policy = Policy { target: Share::percent(50), ..Policy::default() };
    let plan = plan_by(&log, 10_000, &policy).unwrap();
    assert_eq!(numbers(&plan.kept), [(1, 1), (20, number)]);
    let policy = Policy { oversized_tail: OversizedTail::Summarise, ..policy };
    assert_eq!(numbers(&plan_by(&log, 10_000, &policy).unwrap().kept), [(1, 1), (20, 20)]);
    let policy = Policy { newest_request: NewestRequest::Summarise, ..policy };
    assert_eq!(numbers(&plan_by(&log, 10_000, &policy).unwrap().kept), [(1, 1)]);
}

#[test]
fn what_stays_anyway_counts_as_the_tail() {
    // The newest unit is the person's: the oversized one before it does not have to stay.
    let mut log = long(21);
    let number = work(&mut log, &["A"], &words(5_000));
    log.add(message(number + 1, Role::User, "And now?", &[]));
    let plan = planned(&log, 10_000);
    assert_eq!(numbers(&plan.kept), [(1, 1), (number + 1, number + 1)]);
    // An instruction at the end is no conversation.
    log.add(message(number + 2, Role::System, "Reminder.", &[]));
    assert_eq!(numbers(&planned(&log, 10_000).kept), [(1, 1), (number + 1, number + 2)]);
}

#[test]
fn the_newest_request_stays_unless_it_is_huge() {
    let mut log = long(20);
    for _ in 0..20 {
        work(&mut log, &["A"], &words(100));
    }
    let plan = planned(&log, 10_000);
    assert_eq!(reason(&plan, 20), Some(Reason::NewestRequest));
    assert_eq!(plan.kept.len(), 3);
    let mut log = Log::new();
    log.add(message(1, Role::User, &words(800), &[]));
    for _ in 0..20 {
        work(&mut log, &["A"], &words(100));
    }
    assert_eq!(reason(&planned(&log, 10_000), 1), None);
}

#[test]
fn open_calls_children_pinned_messages_and_preserved_tools_stay() {
    let mut log = long(4);
    let answered = work(&mut log, &["A"], "done");
    let half = log.ledger.next_message_no(ROOT).0;
    log.add(message(half, Role::Assistant, "", &["B", "C"]));
    log.add(finished(call(half, 0), "done"));
    log.add(started(call(half, 1), Effect::External, 1));
    let delegated = work(&mut log, &["D"], "runs in the background");
    log.add(node_opened(1, 0, Some(call(delegated, 0))));
    let over = work(&mut log, &["E"], "child is through");
    log.add(node_opened(2, 0, Some(call(over, 0))));
    log.add_to(NodeId(2), NodeSettled { status: NodeStatus::Completed, reason: None, parts: vec![] });
    let asked = log.ledger.next_message_no(ROOT).0;
    let mut asks = message(asked, Role::Assistant, "", &["F"]);
    asks.tool_calls[0].name = "ask_to_user".into();
    log.add(asks);
    log.add(finished(call(asked, 0), "yes"));
    for number in asked + 1..asked + 30 {
        log.add(message(number, Role::Assistant, &words(100), &[]));
    }
    let mut pinned = pinned(&log);
    assert_eq!(pinned.open.iter().copied().collect::<Vec<_>>(), [call(half, 1)]);
    assert_eq!(pinned.children.iter().copied().collect::<Vec<_>>(), [call(delegated, 0)]);
    pinned.tools.insert("ask_to_user".into());
    pinned.messages.insert(MessageNo(3));
    let plan_now = |pinned: &Pinned| {
        plan(&log.tree(), ROOT, pinned, &Calibration::default(), Some(10_000), &Policy::default()).unwrap()
    };
    let plan = plan_now(&pinned);
    // The host runs a call once more that has a result: nobody but the host knows.
    pinned.open.insert(call(answered, 0));
    let retried = plan_now(&pinned);
    assert_eq!(reason(&retried, answered), Some(Reason::OpenCall));
    pinned.open.remove(&call(answered, 0));
    let expected = [
        (1, Some(Reason::Instruction)),
        (2, None),
        (3, Some(Reason::Pinned)),
        (4, Some(Reason::NewestRequest)),
        (answered, None),
        (half, Some(Reason::OpenCall)),
        (delegated, Some(Reason::RunningChild)),
        (over, None),
        (asked, Some(Reason::PreservedTool)),
        (asked + 29, Some(Reason::Recent)),
    ];
    for (number, why) in expected {
        assert_eq!(reason(&plan, number), why, "{number}");
    }
    let event = accept(&plan, &log.tree(), "s", attempt("c")).unwrap();
    let inputs = Inputs::of(&event).unwrap();
    assert_eq!((inputs.open, inputs.children, inputs.reasons), (pinned.open, pinned.children, plan.reasons));
    assert_eq!((inputs.pinned, inputs.preserved), (pinned.messages, pinned.tools));
}

#[test]
fn a_call_without_result_stays_though_nobody_says_that_it_is_open() {
    let mut log = long(20);
    log.add(message(21, Role::Assistant, "", &["A"]));
    for number in 22..40 {
        log.add(message(number, Role::Assistant, &words(100), &[]));
    }
    let nothing = Pinned::default();
    let plan =
        plan(&log.tree(), ROOT, &nothing, &Calibration::default(), Some(10_000), &Policy::default()).unwrap();
    assert_eq!(reason(&plan, 21), Some(Reason::OpenCall));
    // One whose result was erased has had it.
    let erased = Event::Erased {
        kind: sessionlog_codec::registry::kind::CallFinished,
        schema: SchemaVersion(1),
        digest: Digest::default(),
    };
    log.force(ROOT, erased);
    assert_eq!(reason(&planned(&log, 10_000), 21), None);
}

#[test]
fn a_second_summary_replaces_the_first() {
    let mut log = long(40);
    let first = compact(&mut log, 10_000, "first");
    let summary = log.events.last().unwrap().position;
    assert_eq!(numbers(&first.kept), [(1, 1), (35, 40)]);
    let lines = log.lines();
    assert_eq!(lines[0], "system:Be brief.");
    assert_eq!(lines[1], "system:Compressed conversation ");
    assert_eq!(lines.len(), 8);
    log.add(message(41, Role::Assistant, "Yes.", &[]));
    // The tail reaches into what the first one kept.
    let plan = planned(&log, 10_000);
    assert_eq!(numbers(&plan.kept), [(1, 1), (36, 41)]);
    assert_eq!(numbers(&plan.replaced), [(35, 35)]);
    assert_eq!(plan.earlier, Some(summary));
    assert_eq!(plan.source.len(), 2);
    assert_eq!(plan.source[0].parts, first.summary);
    let second = compact(&mut log, 10_000, "second");
    let context = log.context();
    let summaries: Vec<_> = context.iter().filter(|it| it.origin == ContextOrigin::Summary).collect();
    assert_eq!(summaries.len(), 1);
    assert_eq!(summaries[0].parts, second.summary);
    assert_eq!(Inputs::of(&second).unwrap().earlier, Some(summary));
    assert_eq!(context.len(), 8);
}

#[test]
fn a_summary_alone_is_nothing_to_compact() {
    let mut log = long(40);
    compact(&mut log, 10_000, "first");
    let policy = Policy { recent: Share::percent(20), ..Policy::default() };
    assert_eq!(plan_by(&log, 10_000, &policy), Err(PlanError::NothingToCompact));
    assert_eq!(plan_by(&Log::new(), 10_000, &policy), Err(PlanError::NothingToCompact));
    assert_eq!(plan_by(&long(3), 10_000, &policy), Err(PlanError::NothingToCompact));
}

#[test]
fn the_event_says_what_it_was_made_from() {
    let mut log = long(40);
    let plan = planned(&log, 10_000);
    let event = accept(&plan, &log.tree(), "They talked.", attempt("c1")).unwrap();
    assert_eq!(event.compaction_id, "c1");
    assert_eq!(event.summary, [Part::text("Compressed conversation memory:\nThey talked.")]);
    assert_eq!((event.summary_role, event.trigger), (Role::System, CompactionTrigger::Auto));
    assert_eq!((event.model.as_deref(), event.usage), (Some("m"), Some(usage(5, 1))));
    assert_eq!(event.tokens_before, Some(plan.before.total));
    let inputs = Inputs::of(&event).unwrap();
    assert_eq!(inputs.policy, Policy::default());
    assert_eq!((inputs.window, inputs.target, inputs.limit), (10_000, 2_200, 2_200));
    assert_eq!(
        (inputs.planned, inputs.before, inputs.output_budget),
        (plan.before, plan.before, plan.output_budget)
    );
    let json: serde_json::Value = serde_json::from_slice(&event.inputs.as_ref().unwrap().0).unwrap();
    assert_eq!(json["policy"]["trigger"], 8_500);
    assert_eq!(json["reasons"][0]["reason"], "instruction");
    log.add(event.clone());
    assert_eq!(inputs.after, NodeCalibration::default().predict(&log.context()));
    assert_eq!(event.tokens_after, Some(inputs.after.total));
    // The host's JSON of somebody else is not ours.
    for other in [None, Some("{}".into()), Some("no".into())] {
        assert_eq!(Inputs::of(&ContextCompacted { inputs: other, ..event.clone() }), None);
    }
    let user = Attempt { role: SummaryRole::User, ..attempt("c2") };
    assert_eq!(accept(&plan, &long(40).tree(), "x", user).unwrap().summary_role, Role::User);
}

#[test]
fn a_failed_attempt_leaves_nothing() {
    let log = long(40);
    let before = (log.context(), log.transcript());
    let plan = planned(&log, 10_000);
    for empty in ["", " \n\t", "\u{3000}"] {
        assert_eq!(accept(&plan, &log.tree(), empty, attempt("c")), Err(Rejected::EmptySummary));
    }
    assert!(accept(&plan, &log.tree(), &words(9_000), attempt("c")).is_err());
    // There is no event, so a restart has the old context, and makes the same plan.
    assert_eq!((log.context(), log.transcript()), before);
    assert_eq!(planned(&log, 10_000), plan);
}

#[test]
fn what_came_since_the_plan_stays() {
    let mut log = long(40);
    log.add(message(41, Role::Assistant, "", &["A", "B"]));
    log.add(finished(call(41, 1), "b"));
    log.add(node_opened(1, 0, Some(call(41, 0))));
    let plan = planned(&log, 10_000);
    // While the summary is written, the child settles, and the person goes on.
    log.add_to(NodeId(1), NodeSettled { status: NodeStatus::Completed, reason: None, parts: vec![] });
    log.add(finished(call(41, 0), "from the child"));
    log.add(message(42, Role::User, "Also this.", &[]));
    let event = accept(&plan, &log.tree(), "s", attempt("c")).unwrap();
    assert_eq!(numbers(&event.kept).last(), Some(&(37, 42)));
    let inputs = Inputs::of(&event).unwrap();
    assert_eq!(inputs.before, NodeCalibration::default().predict(&log.context()));
    assert_ne!(inputs.before, inputs.planned);
    log.add(event);
    let lines = log.lines();
    let tail = ["assistant:", "tool(A):from the child", "tool(B):b", "user:Also this."];
    assert_eq!(lines[lines.len() - 4..], tail);
}

#[test]
fn a_summary_of_what_is_gone_is_refused() {
    let log = long(40);
    let plan = planned(&log, 10_000);
    let changes: [fn(&mut Log); 5] = [
        |log| {
            log.add(RunStarted { run_id: String::new(), reason: RunReason::Cleared });
        },
        |log| {
            log.add(ContextReset { reason: String::new() });
        },
        |log| {
            log.add(MessageWithdrawn { message_no: MessageNo(7), reason: String::new() });
        },
        // The record of message n is at n + 1, behind session.created.
        |log| {
            log.add(HeadMoved { to: Position(20), from: Position(41), reason: HeadReason::Undo });
        },
        |log| drop(compact(log, 10_000, "of somebody else")),
    ];
    for change in changes {
        let mut log = log.clone();
        change(&mut log);
        assert_eq!(accept(&plan, &log.tree(), "s", attempt("c")), Err(Rejected::Outdated));
    }
    // A rewind within what stays takes nothing from the summary.
    let mut log = log;
    log.add(HeadMoved { to: Position(37), from: Position(41), reason: HeadReason::Undo });
    let event = accept(&plan, &log.tree(), "s", attempt("c")).unwrap();
    assert_eq!(numbers(&event.kept), [(1, 1), (35, 36)]);
}

#[test]
fn a_trimmed_source_is_another_source() {
    let mut log = long(20);
    let number = work(&mut log, &["A"], &words(100));
    for number in number + 1..number + 20 {
        log.add(message(number, Role::Assistant, &words(100), &[]));
    }
    let plan = planned(&log, 10_000);
    let calls = vec![call(number, 0)];
    log.add(ContextTrimmed { calls, placeholder: "cleared".into(), tokens_saved: None, source: None });
    assert_eq!(accept(&plan, &log.tree(), "s", attempt("c")), Err(Rejected::Outdated));
}

#[test]
fn one_can_go_back_before_a_compaction_and_between_two() {
    let mut log = long(40);
    let (first_turns, head) = (log.context(), log.ledger.head(ROOT));
    compact(&mut log, 10_000, "first");
    let (between, between_head) = (log.context(), log.ledger.head(ROOT));
    for number in 41..80 {
        log.add(message(number, Role::Assistant, &words(100), &[]));
    }
    compact(&mut log, 10_000, "second");
    let from = log.ledger.head(ROOT);
    log.add(HeadMoved { to: between_head, from, reason: HeadReason::Undo });
    assert_eq!(log.context(), between);
    log.add(HeadMoved { to: head, from: between_head, reason: HeadReason::Undo });
    assert_eq!(log.context(), first_turns);
    // Another compaction from there on is of what is there.
    let again = compact(&mut log, 10_000, "third");
    assert_eq!(numbers(&again.replaced), [(2, 34)]);
    assert_eq!(Inputs::of(&again).unwrap().earlier, None);
}

#[test]
fn a_child_that_runs_through_a_compaction_is_answered_behind_it() {
    let mut log = long(3);
    log.add(message(4, Role::Assistant, "", &["D", "E"]));
    log.add(started(call(4, 0), Effect::External, 1));
    log.add(node_opened(1, 0, Some(call(4, 0))));
    log.add(finished(call(4, 1), "e"));
    for number in 5..40 {
        log.add(message(number, Role::User, &words(100), &[]));
    }
    for summary in ["first", "second"] {
        compact(&mut log, 10_000, summary);
        let next = log.ledger.next_message_no(ROOT).0;
        for number in next..next + 30 {
            log.add(message(number, Role::User, &words(100), &[]));
        }
    }
    let children = pinned(&log).children;
    assert_eq!(children.into_iter().collect::<Vec<_>>(), [call(4, 0)]);
    log.add_to(NodeId(1), NodeSettled { status: NodeStatus::Completed, reason: None, parts: vec![] });
    log.add(finished(call(4, 0), "the child's result"));
    let lines = log.lines();
    let asked = lines.iter().position(|line| line == "assistant:").unwrap();
    assert_eq!(lines[asked + 1..asked + 3], ["tool(D):the child's result", "tool(E):e"]);
    assert_eq!(pinned(&log), Pinned::default());
}

#[test]
fn children_are_forgotten_when_they_settle_or_are_deleted() {
    let mut log = long(3);
    log.add(message(4, Role::Assistant, "", &["A", "B", "C"]));
    for child in 1..=3 {
        log.add(node_opened(child, 0, Some(call(4, child - 1))));
    }
    log.add(node_opened(4, 0, None));
    assert_eq!(pinned(&log).children.len(), 3);
    log.add_to(NodeId(1), NodeSettled { status: NodeStatus::Failed, reason: None, parts: vec![] });
    assert_eq!(pinned(&log).children.len(), 2);
    log.add(NodeDeleted { child: NodeId(2), descendants: vec![NodeId(3)], actor: String::new() });
    assert_eq!(pinned(&log).children.len(), 0);
}

#[test]
fn what_another_conversation_waits_for_is_its_own() {
    let mut log = long(3);
    log.add(message(4, Role::Assistant, "", &["A"]));
    log.add(node_opened(1, 0, Some(call(4, 0))));
    log.add_to(NodeId(1), message(1, Role::Assistant, "", &["B", "C"]));
    log.add_to(NodeId(1), node_opened(2, 1, Some(call(1, 1))));
    let pinned = pinned(&log);
    assert_eq!(pinned.open, [call(4, 0)].into());
    assert_eq!(pinned.children, [call(4, 0)].into());
}

#[test]
fn messages_that_share_a_number_stay_together() {
    let mut log = long(20);
    log.force(ROOT, message(3, Role::Assistant, "The third, once more.", &[]));
    let policy = Policy { target: Share::percent(60), ..Policy::default() };
    let plan = plan_by(&log, 2_000, &policy).unwrap();
    let shared = plan.reasons.iter().filter(|kept| kept.message_no == MessageNo(3));
    let shared: Vec<Reason> = shared.map(|kept| kept.reason).collect();
    assert_eq!(shared, [Reason::SharedNumber, Reason::Recent]);
    let event = accept(&plan, &log.tree(), "s", attempt("c")).unwrap();
    log.force(ROOT, event);
    assert_eq!(log.lines().iter().filter(|line| line.starts_with("assistant:")).count(), 2);
}

#[test]
fn an_instruction_behind_what_is_not_shown_is_kept_all_the_same() {
    // The fold counts only instructions as leading that nothing precedes, not even an empty message.
    for hidden in [Event::from(message(1, Role::User, "", &[])), compacted("", &[], &[]).into()] {
        let mut log = Log::new();
        let is_message = matches!(hidden, Event::MessageAppended(_));
        log.add(hidden);
        let first = 1 + u64::from(is_message);
        log.add(message(first, Role::System, "Be brief.", &[]));
        for number in first + 1..40 {
            log.add(message(number, Role::Assistant, &words(100), &[]));
        }
        assert_eq!(log.lines()[0], "system:Be brief.");
        compact(&mut log, 10_000, "s");
        let lines = log.lines();
        assert_eq!(lines[..2], ["system:Compressed conversation ", "system:Be brief."]);
        compact_again(&mut log);
        assert_eq!(log.lines()[..2], lines[..2]);
    }
}

fn compact_again(log: &mut Log) {
    let next = log.ledger.next_message_no(ROOT).0;
    for number in next..next + 10 {
        log.add(message(number, Role::Assistant, &words(100), &[]));
    }
    compact(log, 10_000, "again");
}
