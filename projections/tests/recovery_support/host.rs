//! A host that was started again: it knows the log, and does what the plan says.

use std::collections::BTreeMap;

use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_projections::recovery::{HostNeed, Owed, Step, ready};
use sessionlog_projections::{CallState, validate_pairing};

use super::{
    Action, Log, ROOT, Scripts, World, available, bound, finished, said, settled, started, tool_call,
};

/// What a new owner does with the turns of the dead one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeOver {
    /// It ends them as interrupted; going on starts a turn of recovery.
    EndsTurns,
    /// It leaves them open.
    LeavesTurns,
}

/// Which of the ready steps is taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    First,
    Last,
}

pub(crate) struct Host {
    pub(crate) log: Log,
    pub(crate) world: World,
    scripts: Scripts,
    order: Order,
    /// How many frames it may append before it is killed.
    pub(crate) fuel: usize,
}

/// Killed.
#[derive(Debug)]
pub(crate) struct Dead;

pub(crate) fn request(
    child: NodeId,
    parent: NodeId,
    call: CallRef,
    kind: AgentKind,
    depth: u32,
    prompt: &str,
) -> NodeOpened {
    let bookmark = super::bookmark(child.0, parent.0, call, kind, depth);
    NodeOpened { prompt: prompt.into(), ..bookmark }
}

impl Host {
    pub(crate) fn new(log: Log, scripts: &Scripts, order: Order) -> Self {
        let world = log.worst_world();
        Self { log, world, scripts: scripts.clone(), order, fuel: usize::MAX }
    }

    /// Recovers until nothing is owed.
    pub(crate) fn recover(&mut self) -> Result<(), Dead> {
        for _ in 0..1_000 {
            self.log.settle_without_host(&available);
            let plan = self.log.plan();
            let now = ready(&self.log.state, &plan);
            let Some(first) = plan.first() else { return Ok(()) };
            assert!(now.contains(&first), "the first step of a plan can be begun: {plan:?}");
            let step = match self.order {
                Order::First => now.first(),
                Order::Last => now.last(),
            };
            let step = (*step.unwrap()).clone();
            self.carry_out(&step)?;
        }
        panic!("recovery does not end: {:?}", self.log.words());
    }

    fn append(&mut self, events: Vec<NewEvent>) -> Result<(), Dead> {
        self.fuel = self.fuel.checked_sub(1).ok_or(Dead)?;
        let nodes: Vec<NodeId> = events.iter().map(|event| event.node).collect();
        self.log.append(events);
        for node in nodes {
            assert_eq!(validate_pairing(&self.log.tree.context(node)), Ok(()), "node {node}");
        }
        Ok(())
    }

    fn carry_out(&mut self, step: &Step) -> Result<(), Dead> {
        assert_ne!(step.needs_host(), HostNeed::Nothing);
        match step {
            Step::RerunPure { node, call } => self.run_tool(*node, *call),
            Step::StartChild { child } => self.start(*child),
            Step::ResumeChild { child: node } | Step::ContinueTurn { node } => self.go_on(*node),
            other => panic!("{other:?}"),
        }
    }

    fn start(&mut self, child: NodeId) -> Result<(), Dead> {
        let opened = self.log.delegations().request(child).unwrap().clone();
        match opened.kind {
            AgentKind::Inner => self.append(vec![NewEvent::now(child, said(1, Role::User, &opened.prompt))]),
            AgentKind::External => {
                self.append(vec![NewEvent::now(child, bound(Some(&opened.prompt)))])?;
                self.world.ask(&opened.prompt);
                self.settle(child)
            }
        }
    }

    fn go_on(&mut self, node: NodeId) -> Result<(), Dead> {
        if node == ROOT && self.log.state.ledger().open_turn(ROOT).is_none() {
            let (turn, cause) = (self.log.state.ledger().next_turn(ROOT), TurnCause::Recovery);
            self.append(vec![NewEvent::now(ROOT, TurnStarted { turn, cause })])?;
        }
        match self.log.state.owed(node) {
            Owed::Nothing => panic!("node {node} goes on and is owed nothing"),
            Owed::Calls(calls) => self.run(node, calls[0]),
            Owed::Model => self.ask_model(node),
            Owed::Conclusion if node == ROOT => {
                let turn = self.log.state.ledger().open_turn(ROOT).unwrap();
                let (outcome, stage, error) = (TurnOutcome::Completed, None, None);
                self.append(vec![NewEvent::now(ROOT, TurnEnded { turn, outcome, stage, error })])
            }
            Owed::Conclusion => self.settle(node),
        }
    }

    fn run(&mut self, node: NodeId, call: CallRef) -> Result<(), Dead> {
        match self.action(node, call) {
            Action::Tool(..) => self.run_tool(node, call),
            Action::Delegate(kind, prompt) => {
                let child = self.log.state.ledger().next_node();
                let depth = self.depth(node) + 1;
                let opened = request(child, node, call, kind, depth, &prompt);
                let limits = sessionlog_projections::delegation::DelegationLimits::default();
                self.log.delegations().check_open(&opened, &limits).unwrap();
                self.append(vec![NewEvent::now(node, opened)])
            }
        }
    }

    fn run_tool(&mut self, node: NodeId, call: CallRef) -> Result<(), Dead> {
        let Action::Tool(effect, key) = self.action(node, call) else { panic!("{call} is no tool") };
        let attempt = match self.log.state.ledger().call(node, call) {
            Some(CallState::Started { attempt, .. }) => attempt + 1,
            _ => 1,
        };
        self.append(vec![NewEvent::now(node, started(call, effect, attempt, &key))])?;
        self.world.effect(&key);
        self.append(vec![NewEvent::now(node, finished(call, &key))])
    }

    fn ask_model(&mut self, node: NodeId) -> Result<(), Dead> {
        let open = self.log.state.ledger().open_calls();
        let cleared = self.first_of_run(node);
        let waiting = open.iter().find(|open| open.node == node && open.call.message_no > cleared);
        assert!(waiting.is_none(), "the model of node {node} is asked while {waiting:?} is open");
        for row in self.log.delegations().tree() {
            let below =
                self.log.delegations().tree().iter().any(|it| it.node == row.node && it.parent == node);
            let running =
                !matches!(row.standing.word(), "completed" | "unknown" | "cancelled" | "blocked" | "failed");
            assert!(!(below && running), "the model of node {node} is asked while {row:?} runs");
        }
        self.world.models.push(node);
        let number = self.log.state.ledger().next_message_no(node);
        let prompt = self.prompt(node);
        let mut message = said(number.0, Role::Assistant, "");
        match self.scripts.answer(&prompt, self.answers(node)) {
            Some(actions) => {
                message.tool_calls = (0..actions.len()).map(|index| tool_call(index, "run")).collect();
            }
            None => message = said(number.0, Role::Assistant, "Done."),
        }
        self.append(vec![NewEvent::now(node, message)])
    }

    /// A child's end and its parent's result: one frame.
    fn settle(&mut self, child: NodeId) -> Result<(), Dead> {
        let opened = self.log.delegations().request(child).unwrap().clone();
        let result = format!("result of {}", opened.prompt);
        let answer = CallFinished { origin: ResultOrigin::Child, ..finished(opened.call.unwrap(), &result) };
        self.append(vec![
            NewEvent::now(child, settled(NodeStatus::Completed, &result)),
            NewEvent::now(opened.parent, answer),
        ])
    }

    fn depth(&self, node: NodeId) -> u32 {
        self.log.delegations().tree().iter().find(|row| row.node == node).map_or(0, |row| row.depth)
    }

    /// The request that a conversation works on now.
    fn prompt(&self, node: NodeId) -> String {
        if let Some(opened) = self.log.delegations().request(node) {
            return opened.prompt.clone();
        }
        assert_eq!(node, ROOT);
        let runs = self.log.events().filter(|logged| matches!(logged.event, Event::RunStarted(_))).count();
        format!("root-{runs}")
    }

    fn first_of_run(&self, node: NodeId) -> MessageNo {
        let mut last = MessageNo(0);
        let mut first = MessageNo(0);
        for logged in self.log.events().filter(|logged| logged.node == node) {
            match &logged.event {
                Event::MessageAppended(message) => last = message.message_no,
                Event::RunStarted(_) => first = last,
                _ => {}
            }
        }
        first
    }

    fn answers(&self, node: NodeId) -> usize {
        self.answer_numbers(node).len()
    }

    fn answer_numbers(&self, node: NodeId) -> Vec<MessageNo> {
        let first = self.first_of_run(node);
        let said = self.log.events().filter(|logged| logged.node == node);
        let answers = said.filter_map(|logged| match &logged.event {
            Event::MessageAppended(message) if message.role == Role::Assistant => Some(message.message_no),
            _ => None,
        });
        answers.filter(|number| *number > first).collect()
    }

    fn action(&self, node: NodeId, call: CallRef) -> Action {
        let answers = self.answer_numbers(node);
        let answer = answers.iter().position(|number| *number == call.message_no).unwrap();
        let index = usize::try_from(call.tool_index.0).unwrap();
        self.scripts.action(&self.prompt(node), answer, index)
    }

    /// What must hold when nothing is owed any more.
    #[track_caller]
    pub(crate) fn check_end(&self, effects: &BTreeMap<String, Effect>, abandoned: &[String]) {
        self.log.check_contexts();
        assert_eq!(self.log.state.ledger().open_turn(ROOT), None);
        assert_eq!(self.log.state.ledger().open_calls(), [], "every call has its result");
        for (key, count) in &self.world.effects {
            let at_most = if effects[key] == Effect::Pure { 2 } else { 1 };
            assert!(*count <= at_most, "{key} happened {count} times");
        }
        for (prompt, count) in &self.world.external {
            assert_eq!(*count, 1, "{prompt} was asked {count} times");
        }
        let mut results: BTreeMap<(NodeId, CallRef), u32> = BTreeMap::new();
        for logged in self.log.events() {
            if let Event::CallFinished(finished) = &logged.event {
                *results.entry((logged.node, finished.call)).or_default() += 1;
            }
        }
        assert!(results.values().all(|count| *count == 1), "a result was delivered twice");
        for row in self.log.delegations().tree() {
            let word = row.standing.word();
            let opened = self.log.events().find_map(|logged| match &logged.event {
                Event::NodeOpened(opened) if opened.child == row.node => Some(opened),
                _ => None,
            });
            let prompt = opened.unwrap().prompt.as_str();
            let of_dead_run = abandoned.iter().any(|it| it == prompt);
            let allowed: &[&str] = match (row.kind, of_dead_run) {
                (AgentKind::Inner, false) => &["completed"],
                (AgentKind::External, false) => &["completed", "unknown"],
                (AgentKind::Inner, true) => &["completed", "cancelled"],
                (AgentKind::External, true) => &["completed", "cancelled", "unknown"],
            };
            assert!(allowed.contains(&word), "node {} ({prompt}) is {word}", row.node);
        }
    }
}
