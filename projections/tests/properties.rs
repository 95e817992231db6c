//! Laws over random logs: those that a host could write, and those that no host would.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(clippy::cast_possible_wrap, clippy::cast_possible_truncation, reason = "of small numbers")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_codec::registry::kind;
use sessionlog_projections::context_index::ContextIndex;
use sessionlog_projections::delegation::Binding;
use sessionlog_projections::recovery::{Availability, RecoveryState, plan};
use sessionlog_projections::views::*;
use sessionlog_projections::*;
use support::*;

/// One step of a random log: what happens, and four numbers that say to what.
type Step = (u8, u64, u64, u32, u8);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec((0..34u8, 0..8u64, 0..8u64, 0..4u32, 0..8u8), 0..48)
}

/// Who makes the numbers of a step.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// The ledger: numbers continue.
    Model,
    /// Nobody: any number, the highest ones too.
    Garbage,
}

fn wild(number: u64) -> u64 {
    match number {
        6 => u64::MAX - 1,
        7 => u64::MAX,
        other => other,
    }
}

/// A call that the step can be about: an open one, or one that has its result; now and then any.
fn likely_call(log: &Log, node: NodeId, (op, a, _, c, _): Step) -> CallRef {
    let open = log.ledger.open_calls().into_iter().filter(|open| open.node == node).map(|open| open.call);
    let closed = log.events.iter().filter_map(|event| match &event.event {
        Event::CallFinished(finished) if event.node == node => {
            (op != 20 || finished.outcome == Outcome::Unknown).then_some(finished.call)
        }
        _ => None,
    });
    let open = open.filter(|_| op != 20);
    let likely: Vec<CallRef> =
        if matches!(op, 18..=21) { open.chain(closed).collect() } else { open.collect() };
    likely.get(a as usize * 3 % likely.len().max(1)).copied().unwrap_or(call(a + 1, c))
}

fn event(log: &Log, mode: Mode, node: NodeId, step: Step) -> Event {
    let (op, a, _, c, _) = step;
    let of_call = match mode {
        Mode::Model => likely_call(log, node, step),
        Mode::Garbage => call(wild(a % 4 + a / 7 * 4), if c == 3 { u32::MAX } else { c }),
    };
    let low = if mode == Mode::Model { 1 + a / 2 } else { wild(a) };
    match op {
        0..=9 => said(log, mode, node, low, step),
        10..=21 => done(of_call, low, step),
        22..=27 => shown(log, mode, of_call, low, step),
        _ => other(log, mode, node, of_call, step),
    }
}

fn text(d: u8) -> &'static str {
    ["", "hello", "a\u{2028}b", "[compacted: x"][usize::from(d % 4)]
}

fn said(log: &Log, mode: Mode, node: NodeId, low: u64, (op, a, b, c, d): Step) -> Event {
    let number = match mode {
        Mode::Model => log.ledger.next_message_no(node).0,
        Mode::Garbage => wild(a),
    };
    let ids = ["A", "B", "", "A", "x y"];
    let few: Vec<&str> = ids.iter().copied().skip(usize::from(d % 3)).take(c as usize).collect();
    let source = (d == 7).then(SourceIds::default);
    match op {
        0..=3 => {
            let roles = [Role::User, Role::System, Role::Developer, Role::Tool];
            let message = message(number, roles[op as usize], text(d), &[]);
            let audience = [Audience::Everyone, Audience::Person, Audience::Model][usize::from(d % 3)];
            MessageAppended { audience, source, ..message }.into()
        }
        4..=8 => {
            let mut message = message(number, Role::Assistant, text(d), &few);
            let reasoning = Reasoning { text: text(d).into(), form: ReasoningForm::Signed(None) };
            message.parts.push(Part::Reasoning(reasoning));
            message.usage = (d > 3).then(|| usage(wild(a), b));
            message.provider.response = (d == 5).then(|| format!("r{b}"));
            MessageAppended { source, ..message }.into()
        }
        _ => MessageExtended {
            message_no: MessageNo(low),
            parts: if d > 4 { vec![] } else { vec![Part::text(text(d))] },
            tool_calls: few.iter().map(|id| tool_call(id, "Read", "{}")).collect(),
            stop_reason: None,
            usage: (d > 2).then(|| usage(wild(b), 1)),
            source,
        }
        .into(),
    }
}

fn done(of_call: CallRef, low: u64, (op, _, _, _, d): Step) -> Event {
    match op {
        10 => MessageWithdrawn { message_no: MessageNo(low), reason: String::new() }.into(),
        11 | 12 => {
            let effect = [Effect::Pure, Effect::Idempotent, Effect::Mutating, Effect::External];
            started(of_call, effect[usize::from(d % 4)], if d > 5 { 2 } else { 1 }).into()
        }
        13..=16 => finished(of_call, text(d)).into(),
        17 | 18 => unknown(of_call).into(),
        19 => CallFinished { origin: ResultOrigin::Import, ..finished(of_call, text(d)) }.into(),
        20 => resolved(of_call, text(d)).into(),
        _ => ContextTrimmed {
            calls: vec![of_call],
            placeholder: text(d).into(),
            tokens_saved: None,
            source: None,
        }
        .into(),
    }
}

fn shown(log: &Log, mode: Mode, of_call: CallRef, low: u64, (op, a, b, _, d): Step) -> Event {
    let positions = log.events.len() as u64;
    let somewhere = if mode == Mode::Model { (positions * b / 8).min(positions) } else { wild(b) };
    match op {
        22 | 23 => {
            let kept = [range(low, low.saturating_add(b / 3)), range(wild(a), wild(b))];
            let kept = if mode == Mode::Model { &kept[..1] } else { &kept[..] };
            let roles = [Role::User, Role::System, Role::Assistant, Role::Tool];
            ContextCompacted {
                summary_role: roles[usize::from(d % 4)],
                usage: (d > 5).then(|| usage(1, 1)),
                ..compacted(text(d), kept, &[range(1, low)])
            }
            .into()
        }
        // Often enough that contexts are cut, seldom enough that they grow.
        24 if d < 2 => ContextReset { reason: String::new() }.into(),
        25 if d < 2 => RunStarted { run_id: String::new(), reason: RunReason::Cleared }.into(),
        24 | 25 => finished(of_call, text(d)).into(),
        _ => HeadMoved { to: Position(somewhere), from: Position(b), reason: HeadReason::Undo }.into(),
    }
}

fn other(log: &Log, mode: Mode, node: NodeId, of_call: CallRef, (op, a, b, c, d): Step) -> Event {
    let turn = TurnNo(if mode == Mode::Model { log.ledger.next_turn(node).0 } else { wild(a) });
    match op {
        28 => {
            let child = if mode == Mode::Model { log.ledger.next_node().0 } else { c };
            node_opened(child, node.0, (d > 4).then_some(of_call)).into()
        }
        29 => {
            let kinds = [kind::MessageAppended, kind::CallFinished, KindNo(999)];
            let (kind, schema) = (kinds[usize::from(d % 3)], SchemaVersion(9));
            if d > 3 {
                Event::Erased { kind, schema, digest: Digest::default() }
            } else {
                Event::Unknown(UnknownEvent { kind, schema, payload: vec![0xff, d].into() })
            }
        }
        30 => TurnStarted { turn, cause: TurnCause::User }.into(),
        31 => {
            let turn = log.ledger.open_turn(node).filter(|_| mode == Mode::Model).unwrap_or(turn);
            TurnEnded { turn, outcome: TurnOutcome::Failed, stage: None, error: None }.into()
        }
        32 => {
            let request = ["q", "", "r"][c as usize % 3];
            recorded(request, (d > 3).then_some(1 + a / 2), (d > 1).then_some(wild(b))).into()
        }
        _ => life(d, c),
    }
}

fn life(d: u8, c: u32) -> Event {
    match d {
        0 => created().into(),
        1 => opened(u64::from(c)).into(),
        2 => SessionClosed { epoch: Epoch(1) }.into(),
        3 => SessionFinished { status: FinalStatus::Completed, reason: None }.into(),
        4 => SessionForked {
            session_id: session_id(),
            parent: session_id(),
            at: Position(1),
            chain: Digest::default(),
        }
        .into(),
        5 => Redacted { positions: vec![], reason: String::new(), requested_at: Timestamp(i64::MIN) }.into(),
        6 => NodeSettled { status: NodeStatus::Unknown, reason: None, parts: vec![] }.into(),
        _ => GapMarked {
            file: String::new(),
            offset: u64::MAX,
            len: u64::MAX,
            first: None,
            last: None,
            explanation: "x\ny".into(),
        }
        .into(),
    }
}

/// A log that a host or an importer could have written.
fn legal(steps: &[Step], created: SessionCreated) -> Log {
    let mut log = Log::of(created);
    for step in steps {
        let node = NodeId(if step.4 == 6 { u32::from(step.3 > 1) } else { 0 });
        let event = event(&log, Mode::Model, node, *step);
        // What the ledger refuses is not in the log. Only repair and erasure bring unreadable records.
        match event {
            Event::Erased { .. } | Event::Unknown(_) => {
                log.force(node, event);
            }
            event => drop(log.try_add(node, event)),
        }
    }
    log
}

/// A log that nobody could have written: anything, in any order, positions and times too.
fn garbage(steps: &[Step]) -> Log {
    let mut log = Log::default();
    for step in steps {
        let node = NodeId(if step.4 > 5 { step.3 } else { 0 });
        let event = event(&log, Mode::Garbage, node, *step);
        log.force(node, event);
        let last = log.events.last_mut().unwrap();
        if step.4 == 1 {
            last.position = Position(wild(step.2));
            last.cause = Some(Position(step.1));
            last.timestamp = Timestamp(if step.3 > 1 { i64::MAX } else { i64::MIN });
        }
    }
    log
}

/// What holds after every event of every log.
fn check_all_prefixes(events: &[LoggedEvent]) -> Result<(), TestCaseError> {
    let (mut tree, mut summary, mut ledger) = (TreeState::default(), Summary::default(), Ledger::default());
    let mut before: Vec<TranscriptEntry> = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let prefix = &events[..=index];
        tree.apply(event);
        summary.apply(event);
        ledger.apply(event);
        for node in tree.nodes() {
            let context = tree.context(node);
            prop_assert_eq!(validate_pairing(&context), Ok(()));
            let transcript = tree.transcript(node);
            let messages = transcript.iter().filter(|entry| entry.is_message()).count() as u64;
            prop_assert_eq!(messages, summary.nodes.get(&node).map_or(0, |node| node.messages));
            check_context_is_live(&context, &transcript)?;
            let page = tree.transcript_page(node, Position::START, usize::MAX);
            prop_assert!(page.len() <= transcript.len());
        }
        let transcript = tree.transcript(NodeId::ROOT);
        let root = transcript.iter().filter(|entry| entry.is_message()).count() as u64;
        prop_assert_eq!(root, summary.messages);
        prop_assert!(before.len() <= transcript.len());
        for (was, is) in before.iter().zip(&transcript) {
            prop_assert_eq!((was.position, was.message_no, was.call), (is.position, is.message_no, is.call));
        }
        before = transcript;
        prop_assert_eq!(&tree, &TreeState::fold(prefix));
    }
    check_outputs(&tree, &summary, &ledger, events);
    Ok(())
}

/// Nothing is in the context that was withdrawn, left or never there.
fn check_context_is_live(
    context: &[ContextMessage],
    transcript: &[TranscriptEntry],
) -> Result<(), TestCaseError> {
    let live: BTreeSet<_> = transcript
        .iter()
        .filter(|entry| matches!(entry.mark, Mark::Live))
        .map(|entry| entry.position)
        .collect();
    for message in context {
        prop_assert!(live.contains(&message.position), "{message:?}");
    }
    Ok(())
}

/// Every view can be made of every state.
fn check_outputs(tree: &TreeState, summary: &Summary, ledger: &Ledger, events: &[LoggedEvent]) {
    let extra = MetaExtra { view: serde_json::json!(1) };
    for dialect in [Dialect::Seed, Dialect::Recursive08] {
        for liveness in [Liveness::Alive, Liveness::Dead, Liveness::Unknown] {
            let text = meta(dialect, summary, summary.status(liveness), &extra);
            serde_json::from_str::<serde_json::Value>(&text).unwrap();
        }
    }
    serde_json::from_str::<serde_json::Value>(&cost(summary)).unwrap();
    for node in tree.nodes() {
        assert!(markdown(tree, summary, node).starts_with("# "));
        for message in tree.context(node) {
            assert!(context_message_json(&message).is_object());
        }
        for entry in tree.transcript(node) {
            assert!(transcript_entry_json(&entry).is_object());
        }
    }
    for event in events {
        let line = event_line(event);
        assert!(!line.contains('\n'));
        serde_json::from_str::<serde_json::Value>(&line).unwrap();
    }
    assert!(ledger.open_calls().len() < 10_000);
}

/// For every prefix: the contexts that the index knows are those of the whole log.
fn check_index(events: &[LoggedEvent]) -> Result<(), TestCaseError> {
    let mut index = ContextIndex::default();
    let mut whole = TreeState::default();
    // What was folded from few records goes on as the whole does.
    let mut kept_up: Option<TreeState> = None;
    for (at, event) in events.iter().enumerate() {
        index.apply(event);
        whole.apply(event);
        let positions: BTreeSet<Position> = index.positions().into_iter().collect();
        let own = events[..=at].iter().filter(|event| positions.contains(&event.position));
        let part = TreeState::fold(own);
        if let Some(tree) = &mut kept_up {
            tree.apply(event);
        }
        for node in whole.nodes().filter(|node| index.knows(*node)) {
            prop_assert_eq!(part.context(node), whole.context(node), "at {}", event.position);
            if let Some(tree) = &kept_up {
                prop_assert_eq!(tree.context(node), whole.context(node), "at {}", event.position);
            }
        }
        if at % 5 == 0 && whole.nodes().all(|node| index.knows(node)) {
            kept_up = Some(part);
        } else if !whole.nodes().all(|node| index.knows(node)) {
            kept_up = None;
        }
    }
    Ok(())
}

/// A bounded state goes on as the whole one does, as long as it covers what comes.
fn check_bounded(events: &[LoggedEvent], kept: u64) -> Result<(), TestCaseError> {
    let mut whole = RecoveryState::default();
    for (at, event) in events.iter().enumerate() {
        whole.apply(event);
        if at % 4 != 0 {
            continue;
        }
        let stored = sessionlog_codec::stored::encode(1, &whole.bounded(kept)).unwrap();
        let mut part: RecoveryState = sessionlog_codec::stored::decode(1, &stored).unwrap();
        let mut all = whole.clone();
        check_same(&part, &all)?;
        for next in &events[at + 1..] {
            if !part.ledger().covers(next.node, &next.event) {
                break;
            }
            let new = NewEvent::now(next.node, next.event.clone());
            prop_assert_eq!(part.ledger().check(&new), all.ledger().check(&new));
            part.apply(next);
            all.apply(next);
            check_same(&part, &all)?;
        }
    }
    Ok(())
}

fn check_same(part: &RecoveryState, all: &RecoveryState) -> Result<(), TestCaseError> {
    fn available(_: &Binding<'_>) -> Availability {
        Availability::Available
    }
    prop_assert_eq!(plan(part, &available), plan(all, &available));
    prop_assert_eq!(part.ledger().open_calls(), all.ledger().open_calls());
    prop_assert_eq!(part.delegations().tree(), all.delegations().tree());
    prop_assert_eq!(part.ledger().next_node(), all.ledger().next_node());
    for node in all.ledger().nodes() {
        prop_assert_eq!(part.owed(node), all.owed(node));
        prop_assert_eq!(part.waiting_message(node), all.waiting_message(node));
        prop_assert_eq!(part.ledger().head(node), all.ledger().head(node));
        prop_assert_eq!(part.ledger().next_message_no(node), all.ledger().next_message_no(node));
        prop_assert_eq!(part.ledger().next_turn(node), all.ledger().next_turn(node));
        let (unknown, expected) = (part.delegations(), all.delegations());
        prop_assert!(unknown.unknown_calls(node).eq(expected.unknown_calls(node)));
        for call in expected.unknown_calls(node) {
            prop_assert_eq!(part.ledger().last_start(node, call), all.ledger().last_start(node, call));
            prop_assert_eq!(part.ledger().call(node, call), all.ledger().call(node, call));
        }
    }
    Ok(())
}

/// One item of a context, for the oracle.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Item {
    Message(MessageNo),
    Summary(Position),
}

/// The root's context by another road: what the model was shown after each record is kept, and a move of the head
/// takes it out again. No path, no walk.
fn context_by_keeping(events: &[LoggedEvent]) -> Vec<Item> {
    let mut kept = BTreeMap::from([(Position::START, Vec::new())]);
    let mut now: Vec<Item> = Vec::new();
    let mut said = BTreeMap::new();
    for event in events.iter().filter(|event| event.node == NodeId::ROOT) {
        match &event.event {
            Event::MessageAppended(message) => {
                said.insert(message.message_no, message.clone());
                if message.audience == Audience::Person || message.role == Role::Tool {
                    continue;
                }
                now.push(Item::Message(message.message_no));
            }
            Event::MessageExtended(piece) => {
                let whole = said.get_mut(&piece.message_no).unwrap();
                whole.parts.extend(piece.parts.clone());
                whole.tool_calls.extend(piece.tool_calls.clone());
                continue;
            }
            Event::MessageWithdrawn(gone) => {
                let gone = Item::Message(gone.message_no);
                now.retain(|item| *item != gone);
                kept.values_mut().for_each(|then| then.retain(|item| *item != gone));
                continue;
            }
            Event::ContextReset(_) | Event::RunStarted(_) => now.clear(),
            Event::HeadMoved(moved) => {
                now = kept[&moved.to].clone();
                continue;
            }
            Event::ContextCompacted(compacted) => {
                let is_instruction = |item: &&Item| match item {
                    Item::Message(number) => matches!(said[number].role, Role::System | Role::Developer),
                    Item::Summary(_) => false,
                };
                let mut next: Vec<Item> = now.iter().take_while(is_instruction).copied().collect();
                next.push(Item::Summary(event.position));
                next.extend(now[next.len() - 1..].iter().filter(|item| match item {
                    Item::Message(number) => compacted.kept.iter().any(|range| range.contains(*number)),
                    Item::Summary(_) => false,
                }));
                now = next;
            }
            _ => continue,
        }
        kept.insert(event.position, now.clone());
    }
    let summaries: BTreeSet<Position> = events
        .iter()
        .filter(|event| match &event.event {
            Event::ContextCompacted(compacted) => {
                compacted.summary.iter().any(|part| *part != Part::text(""))
            }
            _ => false,
        })
        .map(|event| event.position)
        .collect();
    now.retain(|item| match item {
        Item::Message(number) => {
            let said = &said[number];
            let text = |part: &Part| matches!(part, Part::Text(text) if !text.is_empty());
            said.parts.iter().any(text) || !said.tool_calls.is_empty()
        }
        Item::Summary(position) => summaries.contains(position),
    });
    now
}

/// The file that a host keeps up line by line is the file that a rebuild makes.
fn check_renderer(dialect: Dialect, events: &[LoggedEvent]) -> Result<u64, TestCaseError> {
    let mut renderer = TranscriptRenderer::new(dialect, session_id());
    let mut file: Vec<String> = Vec::new();
    for (index, event) in events.iter().enumerate() {
        // What is stored beside the file is as good as the renderer.
        let stored = serde_json::to_string(&renderer).unwrap();
        renderer = serde_json::from_str(&stored).unwrap();
        let whole = render_node(TranscriptRenderer::new(dialect, session_id()), &events[..=index]);
        match renderer.render(event) {
            Rendered::Nothing => {}
            Rendered::Lines(lines) => file.extend(lines),
            Rendered::Rebuild => file = whole.1.clone(),
        }
        prop_assert_eq!(&file, &whole.1);
        prop_assert_eq!(&renderer, &whole.0);
    }
    for line in &file {
        assert!(!line.contains(['\n', '\r', '\u{2028}']));
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    Ok(renderer.lines())
}

/// All calls without result, by counting.
fn open_by_counting(tree: &TreeState) -> Vec<(NodeId, CallRef)> {
    let mut open = Vec::new();
    for node in tree.nodes() {
        let transcript = tree.transcript(node);
        let answered: BTreeSet<CallRef> = transcript
            .iter()
            .filter(|entry| matches!(entry.body, EntryBody::Result(..) | EntryBody::SealedResult(_)))
            .filter_map(|entry| entry.call)
            .collect();
        for entry in &transcript {
            let EntryBody::Message(message) = &entry.body else { continue };
            let all = (0..).zip(&message.tool_calls);
            let calls = all.map(|(index, _)| call(message.message_no.0, index));
            open.extend(calls.filter(|call| !answered.contains(call)).map(|call| (node, call)));
        }
    }
    open
}

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) }
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_prefix_of_a_legal_log_is_fine(steps in steps()) {
        for origin in [created(), imported()] {
            check_all_prefixes(&legal(&steps, origin).events)?;
        }
    }

    #[test]
    fn every_prefix_of_garbage_is_fine(steps in steps()) {
        check_all_prefixes(&garbage(&steps).events)?;
    }

    #[test]
    fn a_log_with_holes_is_fine(steps in steps(), holes in vec(any::<bool>(), 49)) {
        let log = legal(&steps, imported());
        let kept = log.events.into_iter().zip(holes).filter(|(_, hole)| !hole).map(|(event, _)| event);
        check_all_prefixes(&kept.collect::<Vec<_>>())?;
    }

    #[test]
    fn files_kept_up_and_rebuilt_are_equal(steps in steps()) {
        for log in [legal(&steps, created()), garbage(&steps)] {
            let summary = log.summary();
            prop_assert_eq!(check_renderer(Dialect::Seed, &log.events)?, summary.messages);
            let all = summary.messages + summary.summaries;
            prop_assert_eq!(check_renderer(Dialect::Recursive08, &log.events)?, all);
        }
    }

    #[test]
    fn the_ledger_agrees_with_what_was_said(steps in steps()) {
        for origin in [created(), imported()] {
            let log = legal(&steps, origin);
            let tree = log.tree();
            let open: Vec<_> = log.ledger.open_calls().iter().map(|open| (open.node, open.call)).collect();
            prop_assert_eq!(open, open_by_counting(&tree));
            for node in tree.nodes() {
                let head = log.ledger.head(node);
                let transcript = tree.transcript(node);
                let at_head = transcript.iter().find(|entry| entry.position == head);
                prop_assert!(at_head.is_none_or(|entry| matches!(entry.mark, Mark::Live | Mark::Withdrawn)));
                prop_assert_eq!(at_head.is_none(), head == Position::START);
            }
        }
    }

    #[test]
    fn the_context_is_what_was_shown_at_the_head(steps in steps()) {
        // Unreadable records have no place in the oracle.
        let steps: Vec<Step> = steps.into_iter().filter(|step| step.0 != 29).collect();
        for origin in [created(), imported()] {
            let log = legal(&steps, origin);
            let context = log.tree().context(NodeId::ROOT);
            let shown = context.iter().filter(|message| message.role != Role::Tool).map(|message| {
                message.message_no.map_or(Item::Summary(message.position), Item::Message)
            });
            prop_assert_eq!(shown.collect::<Vec<_>>(), context_by_keeping(&log.events));
        }
    }

    #[test]
    fn a_context_is_folded_from_its_own_records(steps in steps()) {
        for origin in [created(), imported()] {
            check_index(&legal(&steps, origin).events)?;
        }
    }

    #[test]
    fn what_is_left_out_of_a_bounded_state_is_not_missed(steps in steps(), kept in 0..4_u64) {
        for origin in [created(), imported()] {
            check_bounded(&legal(&steps, origin).events, kept)?;
        }
    }

    #[test]
    fn a_batch_is_checked_as_its_events_one_by_one(steps in steps(), more in steps()) {
        let log = legal(&steps, created());
        let batch: Vec<NewEvent> = more
            .iter()
            .take(6)
            .map(|step| {
                let node = NodeId(u32::from(step.4 == 6));
                NewEvent::now(node, event(&log, Mode::Model, node, *step))
            })
            .collect();
        let mut one_by_one = log.clone();
        let mut expected = Ok(());
        for (index, new) in batch.iter().enumerate() {
            if let Err(law) = one_by_one.try_add(new.node, new.event.clone()) {
                expected = Err(BatchLawBroken { index, law });
                break;
            }
        }
        let first = Position(log.events.len() as u64 + 1);
        prop_assert_eq!(log.ledger.check_batch(first, &batch), expected);
    }
}
