//! A session tree of fake agents: what they say is a script, what they do to the world is counted, and they can be
//! killed after any frame.

#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

mod host;
mod live;
mod script;

use std::collections::BTreeMap;

use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_codec::record::TimeOrigin;
use sessionlog_projections::delegation::{Binding, Delegations};
use sessionlog_projections::recovery::{Availability, BlockReason, RecoveryState, Step, plan};
use sessionlog_projections::{CallState, Projection, TreeState, validate_pairing};

pub(crate) use host::{Host, Order, TakeOver};
pub(crate) use live::{Live, Stop};
pub(crate) use script::{Action, Scripts};

pub(crate) const ROOT: NodeId = NodeId::ROOT;

pub(crate) fn call(message_no: u64, tool_index: u32) -> CallRef {
    CallRef { message_no: MessageNo(message_no), tool_index: ToolIndex(tool_index) }
}

pub(crate) fn available(_: &Binding<'_>) -> Availability {
    Availability::Available
}

pub(crate) fn gone(_: &Binding<'_>) -> Availability {
    Availability::Gone(BlockReason::ModelMissing)
}

/// A root, and below it a chain of children `depth` long; each has a sibling that runs beside it, or ended already. The
/// last of the chain has its request, and has said nothing.
pub(crate) struct Chain {
    pub(crate) log: Log,
    pub(crate) scripts: Scripts,
    /// The last of the chain.
    pub(crate) tip: NodeId,
    pub(crate) depth: u32,
}

impl Chain {
    pub(crate) fn new(depth: u32, tip_answers: Vec<Vec<Action>>) -> Self {
        let mut scripts = Scripts::default();
        let mut log = Log::new();
        log.add(ROOT, said(1, Role::User, "Go."));
        log.add(ROOT, turn_started(1, TurnCause::User));
        let (mut tip, mut prompt) = (ROOT, "root-0".to_owned());
        for level in 1..=depth {
            let (next, sibling) = (format!("n{level}"), format!("s{level}"));
            let delegate = |prompt: &String| Action::Delegate(AgentKind::Inner, prompt.clone());
            scripts.put(&prompt, vec![vec![delegate(&next), delegate(&sibling)]]);
            scripts.put(&sibling, vec![]);
            log.add(tip, asking(2, 2));
            let (child, beside) = (NodeId(2 * level - 1), NodeId(2 * level));
            let kind = AgentKind::Inner;
            log.add(tip, host::request(child, tip, call(2, 0), kind, level, &next));
            log.add(tip, host::request(beside, tip, call(2, 1), kind, level, &sibling));
            log.add(child, said(1, Role::User, &next));
            log.add(beside, said(1, Role::User, &sibling));
            if level % 2 == 0 {
                log.add(beside, said(2, Role::Assistant, "Done."));
                log.append(vec![
                    NewEvent::now(beside, settled(NodeStatus::Completed, "beside")),
                    NewEvent::now(tip, finished(call(2, 1), "beside")),
                ]);
            }
            (tip, prompt) = (child, next);
        }
        scripts.put(&prompt, tip_answers);
        Self { log, scripts, tip, depth }
    }

    /// The tip's child delegates too, or runs tools.
    pub(crate) fn child(
        &mut self,
        index: u32,
        kind: AgentKind,
        prompt: &str,
        answers: Vec<Vec<Action>>,
    ) -> NodeId {
        self.scripts.put(prompt, answers);
        let child = self.log.state.ledger().next_node();
        let opened = host::request(child, self.tip, call(2, index), kind, self.depth + 1, prompt);
        self.log.add(self.tip, opened);
        child
    }

    /// The plan's steps for these conversations.
    pub(crate) fn steps(&self, nodes: &[NodeId]) -> Vec<String> {
        let plan = self.log.plan();
        plan.iter().filter(|step| step.node().is_some_and(|node| nodes.contains(&node))).map(word).collect()
    }

    /// A new owner recovers all of it.
    #[track_caller]
    pub(crate) fn recover(&self, order: Order) -> Host {
        let mut log = self.log.clone();
        log.take_over(TakeOver::EndsTurns);
        let mut host = Host::new(log, &self.scripts, order);
        host.recover().unwrap();
        host.check_end(&self.scripts.effects(), &[]);
        host
    }
}

/// What was done outside of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct World {
    /// How often each tool's side effect happened.
    pub(crate) effects: BTreeMap<String, u32>,
    /// How often each external agent was asked.
    pub(crate) external: BTreeMap<String, u32>,
    /// Whose model was asked, in order.
    pub(crate) models: Vec<NodeId>,
}

impl World {
    pub(crate) fn effect(&mut self, key: &str) {
        *self.effects.entry(key.into()).or_default() += 1;
    }

    pub(crate) fn ask(&mut self, prompt: &str) {
        *self.external.entry(prompt.into()).or_default() += 1;
    }
}

/// A log in memory that refuses what the ledger refuses, frame by frame, with its folds.
#[derive(Clone, Default)]
pub(crate) struct Log {
    pub(crate) frames: Vec<Vec<LoggedEvent>>,
    pub(crate) state: RecoveryState,
    pub(crate) tree: TreeState,
    next: u64,
    epoch: u64,
}

impl Log {
    /// A created session, owned for the first time.
    pub(crate) fn new() -> Self {
        Self::created(created())
    }

    pub(crate) fn created(created: SessionCreated) -> Self {
        let mut log = Self::default();
        log.append(vec![NewEvent::now(ROOT, created), NewEvent::now(ROOT, opened(1))]);
        log.epoch = 1;
        log
    }

    /// The first `frames` frames of a log, folded anew.
    pub(crate) fn prefix(of: &Self, frames: usize) -> Self {
        let mut log = Self::default();
        for frame in of.frames.iter().take(frames) {
            log.take(frame.clone());
        }
        log.epoch = 1;
        log
    }

    /// One frame.
    #[track_caller]
    pub(crate) fn append(&mut self, events: Vec<NewEvent>) {
        assert!(!events.is_empty(), "an empty frame");
        let first = Position(self.next + 1);
        self.state.ledger().check_batch(first, &events).unwrap();
        let frame = (first.0..).zip(events).map(|(position, new)| LoggedEvent {
            position: Position(position),
            node: new.node,
            timestamp: Timestamp(0),
            time_origin: TimeOrigin::Clock,
            cause: new.cause,
            event: new.event,
        });
        self.take(frame.collect());
    }

    fn take(&mut self, frame: Vec<LoggedEvent>) {
        for event in &frame {
            self.state.apply(event);
            self.tree.apply(event);
            self.next = event.position.0;
        }
        self.frames.push(frame);
    }

    /// The last position.
    pub(crate) fn last(&self) -> u64 {
        self.next
    }

    /// An event that no law was asked about.
    pub(crate) fn force(&mut self, position: Position, node: NodeId, event: impl Into<Event>) {
        let (timestamp, time_origin, cause) = (Timestamp(0), TimeOrigin::Clock, None);
        let last = self.next;
        self.take(vec![LoggedEvent { position, node, timestamp, time_origin, cause, event: event.into() }]);
        self.next = self.next.max(last);
    }

    /// A frame of one event.
    #[track_caller]
    pub(crate) fn add(&mut self, node: NodeId, event: impl Into<Event>) {
        self.append(vec![NewEvent::now(node, event)]);
    }

    /// A new owner, as the engine records it.
    pub(crate) fn take_over(&mut self, mode: TakeOver) {
        self.epoch += 1;
        let mut events = vec![NewEvent::now(ROOT, opened(self.epoch))];
        if mode == TakeOver::EndsTurns
            && let Some(turn) = self.state.ledger().open_turn(ROOT)
        {
            let (outcome, stage, error) = (TurnOutcome::Interrupted, None, None);
            events.push(NewEvent::now(ROOT, TurnEnded { turn, outcome, stage, error }));
        }
        self.append(events);
    }

    pub(crate) fn delegations(&self) -> &Delegations {
        self.state.delegations()
    }

    pub(crate) fn plan(&self) -> Vec<Step> {
        plan(&self.state, &available)
    }

    /// The plan in short words.
    pub(crate) fn words(&self) -> Vec<String> {
        self.plan().iter().map(word).collect()
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &LoggedEvent> {
        self.frames.iter().flatten()
    }

    pub(crate) fn is_open(&self, node: NodeId, call: CallRef) -> bool {
        let state = self.state.ledger().call(node, call);
        matches!(state, Some(CallState::NotStarted | CallState::Started { .. }))
    }

    /// Applies the steps that need no host, one frame each, until none is left. Gives how many frames it took.
    #[track_caller]
    pub(crate) fn settle_without_host(&mut self, check: &dyn Fn(&Binding<'_>) -> Availability) -> usize {
        let mut frames = 0;
        loop {
            let before = plan(&self.state, check);
            let engine =
                |step: &&Step| step.needs_host() == sessionlog_projections::recovery::HostNeed::Nothing;
            let Some(step) = before.iter().find(engine).cloned() else { return frames };
            let events = step.events(&self.state);
            assert!(!events.is_empty(), "{step:?} is owed and does nothing");
            self.append(events);
            frames += 1;
            // The step, and nothing else, has left the plan; and it can't be applied twice.
            let after = plan(&self.state, check);
            let rest: Vec<Step> = before.into_iter().filter(|other| *other != step).collect();
            assert_eq!(after, rest, "after {step:?}");
            assert_eq!(step.events(&self.state), [], "{step:?} twice");
        }
    }

    /// Every context is legal.
    #[track_caller]
    pub(crate) fn check_contexts(&self) {
        for node in self.tree.nodes() {
            validate_pairing(&self.tree.context(node)).unwrap_or_else(|error| panic!("node {node}: {error}"));
        }
    }

    /// Results of a call, in the log.
    pub(crate) fn results(&self, node: NodeId, call: CallRef) -> Vec<&CallFinished> {
        let of_call = |logged: &&LoggedEvent| logged.node == node;
        let finished = self.events().filter(of_call).filter_map(|logged| match &logged.event {
            Event::CallFinished(finished) if finished.call == call => Some(finished),
            _ => None,
        });
        finished.collect()
    }

    /// What of the world's state the log proves at least: each started call had its effect, each bound agent was asked.
    pub(crate) fn worst_world(&self) -> World {
        let mut world = World::default();
        for logged in self.events() {
            match &logged.event {
                Event::CallStarted(started) => world.effect(started.step_id.as_deref().unwrap()),
                Event::NodeBound(bound) => {
                    if let Some(prompt) = &bound.conversation_id {
                        world.ask(prompt);
                    }
                }
                _ => {}
            }
        }
        world
    }
}

pub(crate) fn word(step: &Step) -> String {
    match step {
        Step::ReturnStored { child, parent, call } => {
            format!("return {child} to {parent}/{}.{}", call.message_no, call.tool_index)
        }
        Step::ReportUnknown { node, call } => {
            format!("unknown {node}/{}.{}", call.message_no, call.tool_index)
        }
        Step::MarkNotStarted { node, call } => {
            format!("not started {node}/{}.{}", call.message_no, call.tool_index)
        }
        Step::RerunPure { node, call } => format!("rerun {node}/{}.{}", call.message_no, call.tool_index),
        Step::StartChild { child } => format!("start {child}"),
        Step::ResumeChild { child } => format!("resume {child}"),
        Step::SettleUnknown { child } => format!("settle {child}"),
        Step::Block { child, reason } => format!("block {child} {}", reason.word()),
        Step::Cancel { child, reason } => format!("cancel {child} {}", reason.word()),
        Step::ContinueTurn { node } => format!("continue {node}"),
        Step::ReplaySlot { segment_id, slot } => format!("replay {segment_id}/{slot}"),
        Step::ApplyDecision { key } => format!("apply {key}"),
    }
}

pub(crate) fn created() -> SessionCreated {
    SessionCreated {
        session_id: "0197b4a2-7c1e-7000-8000-0123456789ab".parse().unwrap(),
        workspace: "/w".into(),
        slug: "w".into(),
        goal: None,
        model: None,
        provider: None,
        preset: None,
        tool_registry_hash: None,
        host: None,
        imported: None,
        extra: None,
    }
}

pub(crate) fn opened(epoch: u64) -> SessionOpened {
    let text = String::new;
    SessionOpened {
        epoch: Epoch(epoch),
        pid: 1,
        machine: text(),
        command: text(),
        library: text(),
        cut: None,
    }
}

pub(crate) fn said(number: u64, role: Role, text: &str) -> MessageAppended {
    MessageAppended::text(MessageNo(number), role, text)
}

/// An answer that asks for `calls` calls, with the same ids in every answer.
pub(crate) fn asking(number: u64, calls: usize) -> MessageAppended {
    let mut message = said(number, Role::Assistant, "");
    message.tool_calls = (0..calls).map(|index| tool_call(index, "run")).collect();
    message
}

pub(crate) fn tool_call(index: usize, name: &str) -> ToolCall {
    ToolCall {
        call_id: format!("call_{index}"),
        name: name.into(),
        arguments: "{}".into(),
        form: CallForm::Function,
        extra: None,
    }
}

pub(crate) fn started(call: CallRef, effect: Effect, attempt: u32, key: &str) -> CallStarted {
    CallStarted {
        call,
        call_id: format!("call_{}", call.tool_index),
        name: "run".into(),
        effect,
        attempt,
        arguments_digest: Digest::of(b"{}"),
        step_id: Some(key.into()),
    }
}

pub(crate) fn finished(call: CallRef, text: &str) -> CallFinished {
    CallFinished {
        call,
        call_id: format!("call_{}", call.tool_index),
        outcome: Outcome::Succeeded,
        flag: ResultFlag::Normal,
        parts: vec![Part::text(text)],
        artifact: None,
        origin: ResultOrigin::Live,
        audit: None,
        source: None,
    }
}

pub(crate) fn settled(status: NodeStatus, text: &str) -> NodeSettled {
    NodeSettled { status, reason: None, parts: vec![Part::text(text)] }
}

pub(crate) fn bound(prompt: Option<&str>) -> NodeBound {
    NodeBound {
        model: "m".into(),
        api_mode: None,
        candidate: None,
        conversation_id: prompt.map(Into::into),
        profile_hash: None,
    }
}

pub(crate) fn bookmark(child: u32, parent: u32, call: CallRef, kind: AgentKind, depth: u32) -> NodeOpened {
    NodeOpened {
        child: NodeId(child),
        invocation_id: InvocationId([u8::try_from(child).unwrap(); 16]),
        parent: NodeId(parent),
        call: Some(call),
        call_id: Some(format!("call_{}", call.tool_index)),
        agent: "agent".into(),
        kind,
        prompt: format!("prompt {child}"),
        description: None,
        working_directory: None,
        run_id: None,
        depth,
        source_id: None,
    }
}

pub(crate) fn turn_started(turn: u64, cause: TurnCause) -> TurnStarted {
    TurnStarted { turn: TurnNo(turn), cause }
}

pub(crate) fn turn_ended(turn: u64, outcome: TurnOutcome) -> TurnEnded {
    TurnEnded { turn: TurnNo(turn), outcome, stage: None, error: None }
}

pub(crate) fn cleared() -> RunStarted {
    RunStarted { run_id: "next".into(), reason: RunReason::Cleared }
}
