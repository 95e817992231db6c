//! Laws of compaction over random logs: what a plan does to a context once its event is folded.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

#[allow(clippy::cast_possible_wrap, reason = "of small numbers")]
mod support;

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_projections::compaction::*;
use sessionlog_projections::*;
use support::*;

const ROOT: NodeId = NodeId::ROOT;
const WINDOW: u64 = 3_000;

/// What happens, and three numbers that say to what and how much.
type Step = (u8, u8, u8, u8);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec((0..32u8, 0..8u8, any::<u8>(), 0..12u8), 0..60)
}

/// The tree, and all that is folded beside it while the session runs.
#[derive(Clone, Default)]
struct Live {
    log: Log,
    tree: TreeState,
    calibration: Calibration,
    children: RunningChildren,
    /// The root's context after each event.
    contexts: Vec<Vec<ContextMessage>>,
    compactions: u32,
}

/// When what the plan was of is summarised.
struct Pending {
    plan: Plan,
    pinned: Pinned,
}

impl Live {
    fn of(created: SessionCreated) -> Self {
        let mut live = Self { log: Log::of(created), ..Self::default() };
        live.catch_up();
        live
    }

    fn catch_up(&mut self) {
        for event in &self.log.events[self.contexts.len()..] {
            self.tree.apply(event);
            self.calibration.apply(event);
            self.children.apply(event);
            self.contexts.push(self.tree.context(ROOT));
        }
    }

    fn add(&mut self, node: NodeId, event: impl Into<Event>) {
        // What the ledger refuses is not in the log.
        drop(self.log.try_add(node, event));
        self.catch_up();
    }

    fn context(&self) -> &[ContextMessage] {
        self.contexts.last().unwrap()
    }

    fn pinned(&self, a: u8, c: u8) -> Pinned {
        let mut pinned = Pinned::of(ROOT, &self.log.ledger, &self.children);
        if a == 3 {
            pinned.messages.insert(MessageNo(1 + u64::from(c) / 2));
        }
        if a > 5 {
            pinned.tools.insert("ask_to_user".into());
        }
        pinned
    }
}

fn some_call(live: &Live, a: u8, b: u8) -> CallRef {
    let calls: Vec<CallRef> = live.tree.context(ROOT).iter().filter_map(|message| message.call).collect();
    // Mostly a call of the context, and a late one rather than an early one.
    let index = calls.len().saturating_sub(1 + usize::from(a));
    calls.get(index).copied().unwrap_or(call(1 + u64::from(b % 16), u32::from(a % 2)))
}

fn policy(a: u8, b: u8) -> Policy {
    let shares = [2, 7, 15, 30];
    Policy {
        recent: Share::percent(shares[usize::from(b % 4)]),
        target: Share::percent([22, 40, 60, 85][usize::from(b / 4 % 4)]),
        output_min: if a > 3 { 16 } else { 128 },
        oversized_tail: if b & 16 > 0 { OversizedTail::Summarise } else { OversizedTail::Keep },
        target_growth: if b & 32 > 0 { TargetGrowth::BelowTrigger } else { TargetGrowth::Forbidden },
        newest_request: if b & 64 > 0 { NewestRequest::Summarise } else { NewestRequest::Keep },
        ..Policy::default()
    }
}

fn said(live: &Live, (op, a, b, c): Step) -> MessageAppended {
    let number = live.log.ledger.next_message_no(ROOT).0;
    let text = format!("{number} {}", "word ".repeat(usize::from(b)));
    match op {
        0..=3 => message(number, Role::User, &text, &[]),
        4 => message(number, if a > 3 { Role::System } else { Role::Developer }, "Mind this.", &[]),
        _ => {
            // Ids repeat across messages, as they do in the world.
            let ids: &[&str] = [&[][..], &["A"], &["A", "B"], &["C"], &["A", "B", "C"]][usize::from(a % 5)];
            let mut said = message(number, Role::Assistant, &text, ids);
            if a == 6
                && let Some(call) = said.tool_calls.first_mut()
            {
                call.name = "ask_to_user".into();
            }
            said.usage = (c > 5).then(|| usage(estimate_tokens(live.context()) + u64::from(b), 1));
            said
        }
    }
}

fn step(live: &mut Live, step: Step) {
    let (op, a, b, _) = step;
    let of_call = some_call(live, a, b);
    match op {
        0..=9 => {
            let event = said(live, step);
            live.add(ROOT, event);
        }
        10 | 11 => live.add(ROOT, started(of_call, Effect::External, 1)),
        12..=17 => live.add(ROOT, finished(of_call, &"result ".repeat(usize::from(b) + 1))),
        18 => live.add(ROOT, unknown(of_call)),
        19 => live.add(ROOT, resolved(of_call, "It did.")),
        20 => {
            let child = live.log.ledger.next_node().0;
            live.add(ROOT, node_opened(child, 0, Some(of_call)));
        }
        21 => {
            let settled = NodeSettled { status: NodeStatus::Completed, reason: None, parts: vec![] };
            live.add(NodeId(u32::from(1 + a % 3)), settled);
        }
        22 => {
            let message_no = MessageNo(1 + u64::from(b % 24));
            live.add(ROOT, MessageWithdrawn { message_no, reason: String::new() });
        }
        23 => {
            let calls = vec![of_call];
            let placeholder = "cleared".into();
            live.add(ROOT, ContextTrimmed { calls, placeholder, tokens_saved: None, source: None });
        }
        24 => {
            let to = Position(u64::from(b) * live.log.events.len() as u64 / 256);
            live.add(ROOT, HeadMoved { to, from: Position(0), reason: HeadReason::Undo });
        }
        25 if a == 0 => live.add(ROOT, ContextReset { reason: String::new() }),
        25 if a == 1 => live.add(ROOT, RunStarted { run_id: String::new(), reason: RunReason::Cleared }),
        _ => {
            let number = live.log.ledger.next_message_no(ROOT).0.saturating_sub(u64::from(a % 2));
            let estimated_input = Some(estimate_tokens(live.context()));
            let of = UsageRecorded { estimated_input, ..recorded("r", Some(number), None) };
            let usage = (a > 4).then(|| usage(u64::from(b) * 9, 1));
            live.add(ROOT, UsageRecorded { usage, ..of });
        }
    }
}

/// A context without what depends on the messages around: a call id that two calls share is changed in the later one.
fn plain(context: &[ContextMessage]) -> Vec<ContextMessage> {
    let plain = |message: &ContextMessage| {
        let mut message = message.clone();
        message.tool_call_id = message.tool_call_id.map(|_| String::new());
        message.tool_calls.iter_mut().for_each(|call| call.call_id.clear());
        message
    };
    context.iter().map(plain).collect()
}

fn holds(ranges: &[MessageRange], number: Option<MessageNo>) -> bool {
    number.is_some_and(|number| ranges.iter().any(|range| range.contains(number)))
}

fn check_plan(live: &Live, Pending { plan, pinned }: &Pending) -> Result<(), TestCaseError> {
    prop_assert_eq!(validate_pairing(&plan.source), Ok(()));
    prop_assert!(
        plan.output_budget >= plan.policy.output_min && plan.output_budget <= plan.policy.output_max
    );
    let context = live.context();
    let numbers: BTreeSet<u64> =
        context.iter().filter_map(|message| message.message_no).map(|it| it.0).collect();
    let named = |ranges: &[MessageRange]| -> Vec<u64> {
        ranges.iter().flat_map(|range| range.first.0..=range.last.0).collect()
    };
    let mut all = [named(&plan.kept), named(&plan.replaced)].concat();
    all.sort_unstable();
    // Each message of the context is kept or replaced, once, and no other is named.
    prop_assert_eq!(all, numbers.into_iter().collect::<Vec<_>>());
    let source: Vec<_> = context
        .iter()
        .filter(|message| {
            message.origin == ContextOrigin::Summary || holds(&plan.replaced, message.message_no)
        })
        .cloned()
        .collect();
    prop_assert_eq!(&plan.source, &source);

    for message in &plan.source {
        let name = |call: &ToolCall| call.name == "ask_to_user" && pinned.tools.contains(&call.name);
        prop_assert!(!message.tool_calls.iter().any(name));
        let is_instruction = matches!(message.role, Role::System | Role::Developer);
        prop_assert!(!is_instruction || message.origin == ContextOrigin::Summary);
        prop_assert!(!message.message_no.is_some_and(|number| pinned.messages.contains(&number)));
        prop_assert!(!matches!(message.origin, ContextOrigin::Synthetic(_)));
    }
    for open in live.log.ledger.open_calls().into_iter().filter(|open| open.node == ROOT) {
        prop_assert!(!holds(&plan.replaced, Some(open.call.message_no)));
    }
    for event in &live.log.events {
        let Event::NodeOpened(opened) = &event.event else { continue };
        let runs = live.log.ledger.settled(opened.child).is_none();
        prop_assert!(!(runs && holds(&plan.replaced, opened.call.map(|call| call.message_no))));
    }
    check_tail(context, plan)
}

/// The tail that stays is no longer than it may be, but for what must stay and the newest unit; and no shorter.
fn check_tail(context: &[ContextMessage], plan: &Plan) -> Result<(), TestCaseError> {
    let units: Vec<&[ContextMessage]> = context.chunk_by(|_, next| next.role == Role::Tool).collect();
    let of = |unit: &[ContextMessage]| {
        plan.reasons.iter().find(|kept| Some(kept.message_no) == unit[0].message_no).map(|kept| kept.reason)
    };
    let budget = plan.policy.recent.at_most(plan.window);
    let recent: Vec<usize> =
        (0..units.len()).filter(|index| of(units[*index]) == Some(Reason::Recent)).collect();
    let talk = |unit: &&[ContextMessage]| {
        of(unit) != Some(Reason::Instruction) && unit[0].origin != ContextOrigin::Summary
    };
    let size = |from: usize| {
        let messages: Vec<ContextMessage> =
            units[from..].iter().copied().filter(talk).flatten().cloned().collect();
        estimate_tokens(&messages)
    };
    if let Some(first) = recent.first().copied() {
        let is_newest = units[first + 1..].iter().filter(|unit| talk(unit)).count() == 0;
        prop_assert!(size(first) <= budget || is_newest, "{first} {}", size(first));
    }
    let newest_replaced =
        (0..units.len()).rev().find(|index| holds(&plan.replaced, units[*index][0].message_no));
    if let Some(next) = newest_replaced {
        prop_assert!(recent.iter().all(|index| *index > next));
        prop_assert!(size(next) > budget);
    }
    Ok(())
}

fn check_event(before: &Live, live: &Live, event: &ContextCompacted) -> Result<(), TestCaseError> {
    let (old, new) = (before.context(), live.context());
    prop_assert_eq!(validate_pairing(new), Ok(()));
    // The law: the first instructions, the summary, and in order all that is not replaced.
    let gone = |message: &&ContextMessage| {
        message.origin == ContextOrigin::Summary || holds(&event.replaced, message.message_no)
    };
    let leading = old.iter().take_while(|message| {
        matches!(message.role, Role::System | Role::Developer) && message.origin == ContextOrigin::Recorded
    });
    let leading = leading.count();
    let stays: Vec<ContextMessage> = old.iter().filter(|message| !gone(message)).cloned().collect();
    prop_assert_eq!(new.len(), stays.len() + 1);
    prop_assert_eq!(new[leading].origin, ContextOrigin::Summary);
    prop_assert_eq!(&new[leading].parts, &event.summary);
    prop_assert_eq!(plain(&new[..leading]), plain(&stays[..leading]));
    prop_assert_eq!(plain(&new[leading + 1..]), plain(&stays[leading..]));

    // What is said of sizes is so; ids that had been changed can be short again.
    let inputs = Inputs::of(event).unwrap();
    prop_assert_eq!(inputs.before.local, estimate_tokens(old));
    let after = estimate_tokens(new);
    prop_assert!(after <= inputs.after.local && inputs.after.local - after <= 8 * new.len() as u64);
    prop_assert!(event.tokens_after.unwrap() <= inputs.limit);

    // The transcript has one entry more, and all others are what they were.
    let (mut then, now) = (before.tree.transcript(ROOT), live.tree.transcript(ROOT));
    then.push(now.last().unwrap().clone());
    prop_assert_eq!(then, now);
    Ok(())
}

/// Compacts, with `gap` events between plan and event.
fn compact(live: &mut Live, (_, a, b, c): Step, gap: &[Step]) -> Result<(), TestCaseError> {
    let (pinned, policy) = (live.pinned(a, c), policy(a, b));
    let before = live.clone();
    let planned = plan(&live.tree, ROOT, &pinned, &live.calibration, Some(WINDOW), &policy);
    // Planning writes nothing, and a session that is opened again plans the same.
    let reopened = TreeState::fold(&live.log.events);
    prop_assert_eq!(&plan(&reopened, ROOT, &pinned, &live.calibration, Some(WINDOW), &policy), &planned);
    prop_assert_eq!(&reopened.context(ROOT), before.contexts.last().unwrap());
    let Ok(plan) = planned else { return Ok(()) };
    let pending = Pending { plan, pinned };
    check_plan(live, &pending)?;
    gap.iter().for_each(|event| step(live, *event));

    let full = "abc".repeat(usize::try_from(pending.plan.output_budget).unwrap());
    let summary = if c > 8 { full.as_str() } else { "They talked." };
    let attempt = Attempt {
        compaction_id: live.compactions.to_string(),
        role: if a % 2 == 0 { SummaryRole::System } else { SummaryRole::User },
        trigger: CompactionTrigger::Manual,
        model: None,
        usage: None,
    };
    let accepted = accept(&pending.plan, &live.tree, summary, attempt);
    if gap.is_empty() {
        // A summary as long as it may be is never in vain.
        prop_assert!(accepted.is_ok(), "{accepted:?} {:?}", pending.plan);
    }
    let Ok(event) = accepted else { return Ok(()) };
    let before = live.clone();
    live.log.try_add(ROOT, event.clone()).unwrap();
    live.catch_up();
    live.compactions += 1;
    check_event(&before, live, &event)?;
    if gap.is_empty() {
        prop_assert_eq!(&event.kept, &pending.plan.kept);
        prop_assert_eq!(&event.replaced, &pending.plan.replaced);
    }
    Ok(())
}

fn run(steps: &[Step], created: SessionCreated) -> Result<Live, TestCaseError> {
    let mut live = Live::of(created);
    let mut rest = steps;
    while let [next, more @ ..] = rest {
        rest = more;
        if next.0 > 26 {
            let gap = usize::from(next.3 % 4).saturating_sub(1).min(more.len());
            let (gap, more) = more.split_at(gap);
            rest = more;
            compact(&mut live, *next, gap)?;
        } else {
            step(&mut live, *next);
        }
        let summaries = live.context().iter().filter(|message| message.origin == ContextOrigin::Summary);
        prop_assert!(summaries.count() < 2);
    }
    Ok(live)
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(96);
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn compaction_is_lawful(steps in steps()) {
        for origin in [created(), imported()] {
            let live = run(&steps, origin)?;
            // Every earlier context is still there: it is the fold up to its position.
            for (index, context) in live.contexts.iter().enumerate() {
                let then = TreeState::fold(&live.log.events[..=index]);
                prop_assert_eq!(&then.context(ROOT), context);
            }
        }
    }

    #[test]
    fn calibration_is_the_same_live_stored_and_cold(steps in steps(), stops in vec(any::<bool>(), 200)) {
        let live = run(&steps, created())?;
        let (mut stored, mut children) = (Calibration::default(), RunningChildren::default());
        for (event, stop) in live.log.events.iter().zip(stops.into_iter().cycle()) {
            stored.apply(event);
            children.apply(event);
            if stop {
                stored = serde_json::from_str(&serde_json::to_string(&stored).unwrap()).unwrap();
                children = serde_json::from_str(&serde_json::to_string(&children).unwrap()).unwrap();
            }
        }
        prop_assert_eq!(&stored, &live.calibration);
        prop_assert_eq!(&children, &live.children);
        let predicted = |it: &Calibration| need(live.context(), &it.of(ROOT), Some(WINDOW), &Policy::default());
        prop_assert_eq!(predicted(&stored), predicted(&live.calibration));
    }
}

/// An event that nobody would append, of a log that nobody could have written.
fn garbage((op, a, b, c): Step) -> Event {
    let wild = |number: u8| MessageNo(if number == 7 { u64::MAX } else { u64::from(number) });
    let text = ["", "hello", "a longer text than the others, to have something to count"][usize::from(b % 3)];
    let of_call = CallRef { message_no: wild(a), tool_index: ToolIndex(u32::from(c % 3)) };
    match op {
        0..=15 => {
            let roles =
                [Role::User, Role::Assistant, Role::Assistant, Role::System, Role::Developer, Role::Tool];
            let ids: &[&str] = if c > 6 { &["A", "", "A"] } else { &[] };
            let said = message(0, roles[usize::from(op % 6)], text, ids);
            let usage = (c == 4).then_some(usage(u64::MAX, u64::MAX));
            MessageAppended { message_no: wild(a), usage, ..said }.into()
        }
        16..=20 => finished(of_call, text).into(),
        21 => started(of_call, Effect::Pure, 0).into(),
        22 => {
            HeadMoved { to: Position(u64::from(b % 64)), from: Position(0), reason: HeadReason::Undo }.into()
        }
        23 => {
            let kept = MessageRange { first: wild(a), last: wild(c % 8) };
            compacted(text, &[kept, range(0, 2)], &[kept]).into()
        }
        24 => {
            let estimated_input = Some(u64::from(b));
            UsageRecorded { estimated_input, ..recorded("", Some(wild(a).0), None) }.into()
        }
        25 => MessageWithdrawn { message_no: wild(a), reason: String::new() }.into(),
        26 => node_opened(u32::from(b % 4), u32::from(c % 2), Some(of_call)).into(),
        _ => Event::Erased {
            kind: sessionlog_codec::registry::kind::CallFinished,
            schema: SchemaVersion(9),
            digest: Digest::default(),
        },
    }
}

fn check_garbage(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut live = Live::of(created());
    for next in steps {
        if next.0 < 28 {
            live.log.force(ROOT, garbage(*next));
            live.catch_up();
            continue;
        }
        let pinned = live.pinned(next.1, next.3);
        let small = Policy { output_min: 1, target: Share::percent(85), ..policy(next.1, next.2) };
        let Ok(plan) = plan(&live.tree, ROOT, &pinned, &Calibration::default(), Some(1_000), &small) else {
            continue;
        };
        let attempt = Attempt {
            compaction_id: String::new(),
            role: SummaryRole::User,
            trigger: CompactionTrigger::Overflow,
            model: None,
            usage: None,
        };
        let event = accept(&plan, &live.tree, "s", attempt);
        prop_assert!(event.is_ok(), "{event:?} {plan:?}");
        let old = live.context().to_vec();
        live.log.force(ROOT, event.unwrap());
        live.catch_up();
        let stays = old.iter().filter(|message| !plan.source.contains(message)).cloned().collect::<Vec<_>>();
        let (summaries, rest): (Vec<_>, Vec<_>) =
            live.context().iter().cloned().partition(|message| message.origin == ContextOrigin::Summary);
        prop_assert_eq!(summaries.len(), 1);
        prop_assert_eq!(plain(&rest), plain(&stays));
        prop_assert_eq!(validate_pairing(live.context()), Ok(()));
    }
    let predicted = live.calibration.of(ROOT).predict(live.context());
    prop_assert!(predicted.total >= predicted.local);
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn garbage_is_compacted_without_loss(steps in steps()) {
        check_garbage(&steps)?;
    }
}

/// The laws are of something: most random logs compact, some of them often.
#[test]
fn random_logs_compact() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = vec((0..32u8, 0..8u8, any::<u8>(), 0..12u8), 40..60);
    let counts: Vec<u32> = (0..64)
        .map(|_| run(&strategy.new_tree(&mut runner).unwrap().current(), created()).unwrap().compactions)
        .collect();
    assert!(counts.iter().filter(|count| **count > 0).count() > 48, "{counts:?}");
    assert!(counts.iter().filter(|count| **count > 2).count() > 12, "{counts:?}");
}
