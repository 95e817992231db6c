//! Logs for tests, written as a host would.

#![allow(dead_code, reason = "each test file uses a part of it")]

use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_codec::record::TimeOrigin;
use sessionlog_projections::{
    ContextMessage, LawBroken, Ledger, Projection, Summary, TranscriptEntry, TreeState, validate_pairing,
};

/// 2026-05-28T03:41:37Z, the seed page's own time.
pub(crate) const START: i64 = 1_779_939_697_000_000;

pub(crate) fn session_id() -> SessionId {
    "0197b4a2-7c1e-7000-8000-0123456789ab".parse().unwrap()
}

pub(crate) fn call(message_no: u64, tool_index: u32) -> CallRef {
    CallRef { message_no: MessageNo(message_no), tool_index: ToolIndex(tool_index) }
}

pub(crate) fn range(first: u64, last: u64) -> MessageRange {
    MessageRange { first: MessageNo(first), last: MessageNo(last) }
}

pub(crate) fn created() -> SessionCreated {
    SessionCreated {
        session_id: session_id(),
        workspace: "/home/dev/demo".into(),
        slug: "home-dev-demo".into(),
        goal: Some("Goal 131".into()),
        model: Some("deepseek-chat".into()),
        provider: Some("openai".into()),
        preset: None,
        tool_registry_hash: None,
        host: None,
        imported: None,
        extra: None,
    }
}

pub(crate) fn imported() -> SessionCreated {
    let origin = ImportOrigin { agent: "claude-code".into(), agent_version: None, session_id: "x".into() };
    SessionCreated { imported: Some(origin), ..created() }
}

pub(crate) fn opened(epoch: u64) -> SessionOpened {
    SessionOpened {
        epoch: Epoch(epoch),
        pid: 1,
        machine: String::new(),
        command: String::new(),
        library: String::new(),
        cut: None,
    }
}

pub(crate) fn tool_call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        call_id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
        form: CallForm::Function,
        extra: None,
    }
}

pub(crate) fn message(number: u64, role: Role, text: &str, ids: &[&str]) -> MessageAppended {
    let mut message = MessageAppended::text(MessageNo(number), role, text);
    message.tool_calls = ids.iter().map(|id| tool_call(id, "Read", "{}")).collect();
    message
}

pub(crate) fn started(call: CallRef, effect: Effect, attempt: u32) -> CallStarted {
    CallStarted {
        call,
        call_id: String::new(),
        name: "Read".into(),
        effect,
        attempt,
        arguments_digest: Digest::of(b"{}"),
        step_id: None,
    }
}

pub(crate) fn finished(call: CallRef, text: &str) -> CallFinished {
    CallFinished {
        call,
        call_id: String::new(),
        outcome: Outcome::Succeeded,
        flag: ResultFlag::Normal,
        parts: vec![Part::text(text)],
        artifact: None,
        origin: ResultOrigin::Live,
        audit: None,
        source: None,
    }
}

pub(crate) fn unknown(call: CallRef) -> CallFinished {
    CallFinished {
        outcome: Outcome::Unknown,
        flag: ResultFlag::Error,
        origin: ResultOrigin::Recovery,
        ..finished(call, "unknown")
    }
}

pub(crate) fn resolved(call: CallRef, text: &str) -> CallResolved {
    CallResolved {
        call,
        outcome: Outcome::Succeeded,
        flag: ResultFlag::Normal,
        parts: vec![Part::text(text)],
        resolver: Resolver::Person,
        note: "looked".into(),
    }
}

pub(crate) fn compacted(summary: &str, kept: &[MessageRange], replaced: &[MessageRange]) -> ContextCompacted {
    ContextCompacted {
        compaction_id: String::new(),
        summary: if summary.is_empty() { Vec::new() } else { vec![Part::text(summary)] },
        summary_role: Role::User,
        kept: kept.to_vec(),
        replaced: replaced.to_vec(),
        tokens_before: None,
        tokens_after: None,
        trigger: CompactionTrigger::Auto,
        model: None,
        usage: None,
        inputs: None,
        source: None,
    }
}

pub(crate) fn node_opened(child: u32, parent: u32, call: Option<CallRef>) -> NodeOpened {
    NodeOpened {
        child: NodeId(child),
        invocation_id: InvocationId([1; 16]),
        parent: NodeId(parent),
        call,
        call_id: None,
        agent: "coder".into(),
        kind: AgentKind::Inner,
        prompt: "Do it.\nNow.".into(),
        description: None,
        working_directory: None,
        run_id: None,
        depth: 1,
        source_id: None,
    }
}

pub(crate) fn usage(input: u64, output: u64) -> Usage {
    Usage { input, output, ..Usage::default() }
}

pub(crate) fn recorded(request_id: &str, message_no: Option<u64>, nano: Option<u64>) -> UsageRecorded {
    UsageRecorded {
        request_id: request_id.into(),
        message_no: message_no.map(MessageNo),
        model: None,
        usage: None,
        cost_nano_usd: nano,
        latency_ms: None,
        estimated_input: None,
        window: None,
    }
}

/// A log in memory that refuses what the ledger refuses, and knows all the folds of it.
#[derive(Clone, Default)]
pub(crate) struct Log {
    pub(crate) events: Vec<LoggedEvent>,
    pub(crate) ledger: Ledger,
}

impl Log {
    /// A log of a created session.
    pub(crate) fn new() -> Self {
        Self::of(created())
    }

    pub(crate) fn of(created: SessionCreated) -> Self {
        let mut log = Self::default();
        log.add(created);
        log
    }

    /// Appends to the root.
    #[track_caller]
    pub(crate) fn add(&mut self, event: impl Into<Event>) -> Position {
        self.add_to(NodeId::ROOT, event)
    }

    #[track_caller]
    pub(crate) fn add_to(&mut self, node: NodeId, event: impl Into<Event>) -> Position {
        self.try_add(node, event).unwrap()
    }

    pub(crate) fn try_add(&mut self, node: NodeId, event: impl Into<Event>) -> Result<Position, LawBroken> {
        let new = NewEvent::now(node, event);
        self.ledger.check(&new)?;
        Ok(self.force(node, new.event))
    }

    /// Appends without a check, as a damaged or foreign log would have it.
    pub(crate) fn force(&mut self, node: NodeId, event: impl Into<Event>) -> Position {
        let number = self.events.len() as u64 + 1;
        let event = LoggedEvent {
            position: Position(number),
            node,
            timestamp: Timestamp(START + 1_000_000 * (number as i64 - 1)),
            time_origin: TimeOrigin::Clock,
            cause: None,
            event: event.into(),
        };
        self.ledger.apply(&event);
        self.events.push(event);
        Position(number)
    }

    pub(crate) fn tree(&self) -> TreeState {
        TreeState::fold(&self.events)
    }

    pub(crate) fn summary(&self) -> Summary {
        summary(&self.events)
    }

    pub(crate) fn transcript(&self) -> Vec<TranscriptEntry> {
        self.tree().transcript(NodeId::ROOT)
    }

    /// The root's context, which is legal.
    #[track_caller]
    pub(crate) fn context(&self) -> Vec<ContextMessage> {
        let context = self.tree().context(NodeId::ROOT);
        validate_pairing(&context).unwrap();
        context
    }

    /// The root's context as `role:text` or `tool(id):text`.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<String> {
        self.context().iter().map(line).collect()
    }
}

pub(crate) fn summary(events: &[LoggedEvent]) -> Summary {
    let mut summary = Summary::default();
    for event in events {
        summary.apply(event);
    }
    summary
}

pub(crate) fn line(message: &ContextMessage) -> String {
    let text: Vec<String> = message
        .parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => text.chars().take(24).collect(),
            Part::Reasoning(reasoning) => format!("<{}>", reasoning.text),
            other => format!("{other:?}"),
        })
        .collect();
    let role = sessionlog_projections::role_word(message.role);
    let id = message.tool_call_id.as_ref().map(|id| format!("({id})")).unwrap_or_default();
    format!("{role}{id}:{}", text.join("|"))
}
