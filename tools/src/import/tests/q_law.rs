//! The law of q's files: those of a log, imported, are those of the log that the import made.

use proptest::collection::vec;
use proptest::prelude::*;
use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_codec::record::TimeOrigin;
use sessionlog_projections::views::q::{QTree, format};
use sessionlog_projections::{Ledger, Projection};

use super::super::Imported;
use super::q::{Files, exported, files_of, logged, put};
use super::target::Memory;
use super::{directory, import_into};

/// What happens, and three numbers that say to what.
type Step = (u8, u8, u8, u8);

/// A log that takes what the ledger takes.
#[derive(Default)]
struct Log {
    events: Vec<LoggedEvent>,
    ledger: Ledger,
    nodes: u32,
}

impl Log {
    fn new() -> Self {
        let mut log = Self::default();
        log.add(
            NodeId::ROOT,
            SessionCreated {
                session_id: "0f1e2d3c-0000-4000-8000-0000000000d1".parse().unwrap(),
                workspace: "/work".into(),
                slug: "work".into(),
                goal: None,
                model: None,
                provider: None,
                preset: None,
                tool_registry_hash: None,
                host: None,
                imported: None,
                extra: None,
            },
        );
        log
    }

    fn add(&mut self, node: NodeId, event: impl Into<Event>) {
        let new = NewEvent::now(node, event);
        if self.ledger.check(&new).is_err() {
            return;
        }
        if let Event::NodeOpened(_) = &new.event {
            self.nodes += 1;
        }
        let position = Position(self.events.len() as u64 + 1);
        let logged = LoggedEvent {
            position,
            node,
            timestamp: Timestamp(1_779_939_697_000_000 + 123_450 * i64::try_from(position.0).unwrap()),
            time_origin: TimeOrigin::Clock,
            cause: None,
            event: new.event,
        };
        self.ledger.apply(&logged);
        self.events.push(logged);
    }

    /// A call of the conversation, mostly an open one.
    fn call(&self, node: NodeId, number: u8) -> CallRef {
        let open: Vec<CallRef> = self
            .ledger
            .open_calls()
            .into_iter()
            .filter(|open| open.node == node)
            .map(|open| open.call)
            .collect();
        let any = CallRef { message_no: MessageNo(u64::from(number)), tool_index: ToolIndex(0) };
        open.get(usize::from(number) % open.len().max(1)).copied().unwrap_or(any)
    }

    fn last(&self, node: NodeId) -> u64 {
        self.ledger.next_message_no(node).0 - 1
    }
}

fn message(number: MessageNo, role: Role, a: u8) -> MessageAppended {
    const TEXTS: [&str; 5] = ["ok", "go <on> & on", "l1\nl2\u{2028}", "", "é\u{0}\u{1b}"];
    MessageAppended::text(number, role, TEXTS[usize::from(a) % TEXTS.len()])
}

fn media(source: MediaSource) -> Media {
    Media { source, media_type: Some("image/png".into()), name: Some("n".into()), detail: None, extra: None }
}

fn parts(a: u8) -> Vec<Part> {
    let reasoning = Reasoning { text: "hm".into(), form: ReasoningForm::Plain };
    let all = [
        Part::Reasoning(reasoning),
        Part::Image(media(MediaSource::Base64("AA==".into()))),
        Part::Image(Media { detail: Some("low".into()), ..media(MediaSource::Url("http://x".into())) }),
        Part::File(media(MediaSource::FileId("f1".into()))),
        Part::Raw(r#"{"type":"x","n":1.50}"#.into()),
        Part::Raw("no json".into()),
    ];
    let first = usize::from(a) % all.len();
    all.iter().cycle().skip(first).take(1 + usize::from(a) % 3).cloned().collect()
}

fn calls(a: u8, b: u8) -> Vec<ToolCall> {
    let call = |index: u8| ToolCall {
        // Ids repeat from message to message, and not within one.
        call_id: format!("call_{}", (index + b) % 5),
        name: ["read", "delegate", "task_complete"][usize::from(index + a) % 3].into(),
        arguments: if b.is_multiple_of(4) { "{\"a\":".into() } else { "{}".into() },
        form: if b == 3 { CallForm::Custom } else { CallForm::Function },
        extra: (b == 2).then(|| "{\"index\":7,\"more\":1}".into()),
    };
    (0..=a % 3).map(call).collect()
}

fn finished(call: CallRef, a: u8) -> CallFinished {
    let unknown = a.is_multiple_of(4);
    CallFinished {
        call,
        call_id: if a.is_multiple_of(3) { String::new() } else { format!("call_{}", a % 5) },
        outcome: if unknown { Outcome::Unknown } else { Outcome::Succeeded },
        flag: if unknown { ResultFlag::Error } else { ResultFlag::Normal },
        parts: if a == 5 {
            parts(a)
        } else {
            vec![Part::text(["r", "", "{\"status\":\"unknown\"}"][usize::from(a) % 3])]
        },
        artifact: None,
        origin: ResultOrigin::Live,
        audit: None,
        source: None,
    }
}

fn compacted(last: u64, a: u8, b: u8) -> ContextCompacted {
    let first = 1 + u64::from(a) % last.max(1);
    let range = |first, last| MessageRange { first: MessageNo(first), last: MessageNo(last) };
    ContextCompacted {
        compaction_id: String::new(),
        summary: if b.is_multiple_of(3) { Vec::new() } else { vec![Part::text("summary")] },
        summary_role: if b.is_multiple_of(2) { Role::User } else { Role::System },
        kept: if last == 0 { Vec::new() } else { vec![range(first, last)] },
        replaced: if first > 1 { vec![range(1, first - 1)] } else { Vec::new() },
        tokens_before: None,
        tokens_after: None,
        trigger: CompactionTrigger::Auto,
        model: None,
        usage: None,
        inputs: None,
        source: None,
    }
}

fn opened(child: NodeId, parent: NodeId, call: CallRef, a: u8) -> NodeOpened {
    NodeOpened {
        child,
        invocation_id: InvocationId([u8::try_from(child.0).unwrap(); 16]),
        parent,
        call: Some(call),
        call_id: None,
        agent: if a == 7 { String::new() } else { "coder".into() },
        kind: if a.is_multiple_of(3) { AgentKind::External } else { AgentKind::Inner },
        prompt: "Do it.".into(),
        description: None,
        working_directory: a.is_multiple_of(2).then(|| "/work".into()),
        run_id: None,
        depth: 1,
        source_id: None,
    }
}

fn plan(log: &mut Log, a: u8, b: u8) {
    let execution_id = format!("e{}", b % 2);
    let phases = [PlanPhase::Target, PlanPhase::Pending, PlanPhase::Running, PlanPhase::Review];
    let event: Event = match a {
        0 | 1 => {
            PlanApproved { execution_id, objective: "o".into(), plan: "{\"steps\":[1.0]}".into() }.into()
        }
        2..=4 => PlanAdvanced {
            execution_id,
            phase: phases[usize::from(b) % 4],
            task_index: u32::from(b),
            attempt: 1,
            targets: vec!["a\"b".into()],
            feedback: (b > 4).then(|| "again".into()),
            pending_result: (b > 5).then(|| "{}".into()),
        }
        .into(),
        5 => PlanResumed { execution_id, resume_count: u32::from(b) }.into(),
        6 => PlanDiscarded { execution_id, reason: String::new() }.into(),
        _ => PlanCompleted { execution_id, results: "[]".into() }.into(),
    };
    log.add(NodeId::ROOT, event);
}

fn step(log: &mut Log, step: Step) {
    let (op, a, b, n) = step;
    let node = NodeId(u32::from(n) % (log.nodes + 1));
    match op {
        21..=23 => {
            let (child, call) = (log.ledger.next_node(), log.call(node, a));
            log.add(node, opened(child, node, call, a));
            if b < 6 {
                log.add(child, message(MessageNo(1), if b < 3 { Role::System } else { Role::User }, a));
            }
        }
        28 => plan(log, a, b),
        _ => {
            let event = said(log, node, step)
                .or_else(|| called(log, node, step))
                .or_else(|| provided(log, node, step))
                .unwrap_or_else(|| other(log, node, step));
            log.add(node, event);
        }
    }
}

/// A message of the conversation that is there, mostly.
fn some_message(log: &Log, node: NodeId, a: u8) -> MessageNo {
    MessageNo(u64::from(a) % log.last(node).max(1) + 1)
}

fn said(log: &Log, node: NodeId, (op, a, b, _): Step) -> Option<Event> {
    let next = log.ledger.next_message_no(node);
    let role = |is_first: bool, first, second| if is_first { first } else { second };
    let said = match op {
        0..=2 => message(next, Role::User, a),
        3 | 4 => message(next, Role::Assistant, a),
        5..=9 => MessageAppended { tool_calls: calls(a, b), ..message(next, Role::Assistant, b) },
        17 => message(next, role(b < 4, Role::System, Role::Developer), a),
        32 => MessageAppended {
            parts: parts(a),
            name: (b == 1).then(|| "ann".into()),
            phase: (b == 2).then(|| "final_answer".into()),
            ..message(next, role(b < 4, Role::Assistant, Role::User), a)
        },
        33 => MessageAppended { audience: Audience::Person, ..message(next, Role::Assistant, a) },
        _ => return None,
    };
    Some(said.into())
}

fn called(log: &Log, node: NodeId, (op, a, b, _): Step) -> Option<Event> {
    let call = log.call(node, a);
    let first = CallRef { message_no: some_message(log, node, a), tool_index: ToolIndex(0) };
    Some(match op {
        10..=14 => finished(call, b).into(),
        15 => CallStarted {
            call,
            call_id: String::new(),
            name: "read".into(),
            effect: Effect::Mutating,
            attempt: 1,
            arguments_digest: Digest::of(b"{}"),
            step_id: None,
        }
        .into(),
        29 => ContextTrimmed {
            calls: vec![first],
            placeholder: "[cleared]".into(),
            tokens_saved: None,
            source: None,
        }
        .into(),
        36 => CallResolved {
            call: first,
            outcome: Outcome::Succeeded,
            flag: ResultFlag::Normal,
            parts: vec![Part::text("after all")],
            resolver: Resolver::Person,
            note: String::new(),
        }
        .into(),
        _ => return None,
    })
}

fn provided(log: &Log, node: NodeId, (op, a, b, _): Step) -> Option<Event> {
    Some(match op {
        25 => ReplayAttached {
            message_no: some_message(log, node, a),
            model: "m".into(),
            api_mode: "responses".into(),
            items: vec![r#"{"id":"rs","n":1e2}"#.into()],
        }
        .into(),
        26 => AffinitySet {
            model: "m".into(),
            key: "k".into(),
            api_mode: (a > 3).then(|| "chat".into()),
            candidate: Some(u32::from(b)),
        }
        .into(),
        34 => NodeBound {
            model: "m".into(),
            api_mode: None,
            candidate: Some(0),
            conversation_id: None,
            profile_hash: None,
        }
        .into(),
        35 => MessageExtended {
            message_no: some_message(log, node, a),
            parts: vec![Part::text("more")],
            tool_calls: Vec::new(),
            stop_reason: None,
            usage: None,
            source: None,
        }
        .into(),
        _ => return None,
    })
}

fn other(log: &Log, node: NodeId, (op, a, b, _): Step) -> Event {
    let reason = String::new();
    match op {
        16 => compacted(log.last(node), a, b).into(),
        18 => MessageWithdrawn { message_no: some_message(log, node, a), reason }.into(),
        19 => ContextReset { reason }.into(),
        20 => RunStarted { run_id: format!("run-{b}"), reason: RunReason::Cleared }.into(),
        24 => {
            use NodeStatus::{Blocked, Cancelled, Completed, Failed, Unknown};
            let status = [Completed, Blocked, Unknown, Failed, Cancelled][usize::from(a) % 5];
            let parts = if b == 0 { Vec::new() } else { vec![Part::text("done")] };
            NodeSettled { status, reason: None, parts }.into()
        }
        27 => TaskStarted {
            objective: "o".into(),
            completion_criteria: vec!["c".into(); usize::from(b % 2)],
            started_at: Timestamp(i64::from(a) * 1_000_001),
        }
        .into(),
        30 => {
            let mut positions = log.events.iter().filter(|event| event.node == node);
            let to = positions.nth(usize::from(a)).map_or(Position::START, |event| event.position);
            HeadMoved { to, from: Position::START, reason: HeadReason::Rewind }.into()
        }
        _ => SessionTitled { title: format!("t{b}"), origin: TitleOrigin::Person }.into(),
    }
}

/// The log without the records that were kept of some files; their places stay free.
fn without(events: Vec<LoggedEvent>, format: &str) -> Vec<LoggedEvent> {
    let is_of = |event: &LoggedEvent| match &event.event {
        Event::ImportStarted(started) if started.format == format => Some(started.source_no),
        _ => None,
    };
    let sources: Vec<SourceNo> = events.iter().filter_map(is_of).collect();
    let is_left = |event: &LoggedEvent| !matches!(&event.event, Event::ImportedRaw(raw) if sources.contains(&raw.source_no));
    events.into_iter().filter(is_left).collect()
}

/// The first lines that differ, with what is before them.
fn difference(first: &str, second: &str) -> String {
    let same = first.lines().zip(second.lines()).take_while(|(a, b)| a == b).count();
    let from = same.saturating_sub(8);
    let cut = |text: &str| text.lines().skip(from).take(16).collect::<Vec<_>>().join("\n");
    format!("line {same}\n{}\n--- again:\n{}", cut(first), cut(second))
}

fn check(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut log = Log::new();
    steps.iter().for_each(|it| step(&mut log, *it));
    let tree = QTree::fold(&log.events);
    let first: Files = files_of(&tree);
    for (path, text) in &first {
        prop_assert!(serde_json::from_str::<serde_json::Value>(text).is_ok(), "{path}");
    }
    let directory = directory(&[]);
    put(&first, directory.path(), &tree.directory());
    let mut memory = Memory::default();
    let done = import_into(&mut memory, directory.path());
    prop_assert_eq!(&done.outcomes, &[Imported::New]);
    prop_assert_eq!(&done.report.notes, &[]);
    let second = exported(memory.only());
    prop_assert_eq!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    for (path, text) in &first {
        prop_assert!(second[path] == *text, "{}: {}", path, difference(text, &second[path]));
    }
    // Not only the kept record tells the context: the events do. (Of a delegate they don't always tell where in between
    // instructions a summary stood.)
    let first: Files = first.into_iter().filter(|(path, _)| path == "session.json").collect();
    let told = files_of(&QTree::fold(&without(logged(memory.only()), format::CONTEXT)));
    for (path, text) in &first {
        prop_assert!(told[path] == *text, "{}: {}", path, difference(text, &told[path]));
    }
    let again = import_into(&mut memory, directory.path());
    prop_assert_eq!(&again.outcomes, &[Imported::Unchanged]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_of_a_log_come_back_from_an_import(steps in vec((0..37u8, 0..8u8, 0..8u8, 0..4u8), 0..60)) {
        check(&steps)?;
    }
}
