//! A host that is not killed: it keeps what runs in its own memory, and knows nothing of plans.

use std::collections::BTreeMap;

use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;

use super::script::Dice;
use super::{Action, Log, ROOT, Scripts, bound, call, cleared, finished, said, settled, started, tool_call};

/// Whether the root's conversation is cleared while its children run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Never,
    /// When the log has this many frames. The next run follows.
    ClearAt(usize),
}

#[derive(Clone, Debug)]
enum CallWork {
    Asked,
    Started,
    Child,
    Done,
}

#[derive(Clone, Debug)]
struct Agent {
    node: NodeId,
    prompt: String,
    depth: u32,
    /// Where its result goes.
    parent: Option<(NodeId, CallRef)>,
    kind: AgentKind,
    begun: bool,
    answers: usize,
    asking: u64,
    calls: Vec<CallWork>,
}

/// The host and what it runs.
pub(crate) struct Live {
    pub(crate) log: Log,
    pub(crate) scripts: Scripts,
    dice: Dice,
    agents: BTreeMap<NodeId, Agent>,
    /// The requests of the conversations that were cleared away.
    pub(crate) abandoned: Vec<String>,
}

impl Live {
    /// Runs the scripts to their end, with as many things at once as there are.
    pub(crate) fn run(scripts: Scripts, runs: usize, seed: u64, stop: Stop) -> Self {
        let mut live = Self {
            log: Log::new(),
            scripts,
            dice: Dice::new(seed),
            agents: BTreeMap::new(),
            abandoned: Vec::new(),
        };
        for run in 0..runs {
            if run > 0 {
                live.abandoned.extend(live.agents.values().map(|agent| agent.prompt.clone()));
                live.agents.clear();
                live.log.add(ROOT, cleared());
            }
            live.one_run(run, if run == 0 { stop } else { Stop::Never });
        }
        live
    }

    fn one_run(&mut self, run: usize, stop: Stop) {
        let ledger = self.log.state.ledger();
        let (turn, number) = (ledger.next_turn(ROOT), ledger.next_message_no(ROOT));
        if let Some(turn) = ledger.open_turn(ROOT) {
            let (outcome, stage, error) = (TurnOutcome::Interrupted, None, None);
            self.log.add(ROOT, TurnEnded { turn, outcome, stage, error });
        }
        self.log.add(ROOT, said(number.0, Role::User, "Go."));
        self.log.add(ROOT, TurnStarted { turn, cause: TurnCause::User });
        let root = Agent {
            node: ROOT,
            prompt: format!("root-{run}"),
            depth: 0,
            parent: None,
            kind: AgentKind::Inner,
            begun: true,
            answers: 0,
            asking: 0,
            calls: Vec::new(),
        };
        self.agents.insert(ROOT, root);
        while !self.agents.is_empty() {
            if let Stop::ClearAt(frames) = stop
                && self.log.frames.len() >= frames
            {
                return;
            }
            let nodes: Vec<NodeId> = self.agents.keys().copied().collect();
            let node = nodes[self.dice.roll(nodes.len())];
            self.step(node);
        }
    }

    fn step(&mut self, node: NodeId) {
        let mut agent = self.agents.remove(&node).unwrap();
        if !agent.begun {
            agent.begun = true;
            let event: Event = match agent.kind {
                AgentKind::Inner => said(1, Role::User, &agent.prompt).into(),
                AgentKind::External => bound(Some(&agent.prompt)).into(),
            };
            self.log.add(node, event);
        } else if agent.kind == AgentKind::External {
            return self.settle(agent);
        } else if !self.work(&mut agent) {
            if agent.calls.iter().any(|call| !matches!(call, CallWork::Done)) {
                // It waits for its children.
            } else if self.answer(&mut agent) {
                return self.settle(agent);
            }
        }
        self.agents.insert(node, agent);
    }

    /// One more frame for one of its calls.
    fn work(&mut self, agent: &mut Agent) -> bool {
        let open = |work: &CallWork| matches!(work, CallWork::Asked | CallWork::Started);
        let indices: Vec<usize> = (0..agent.calls.len()).filter(|index| open(&agent.calls[*index])).collect();
        if indices.is_empty() {
            return false;
        }
        let index = indices[self.dice.roll(indices.len())];
        let reference = call(agent.asking, u32::try_from(index).unwrap());
        let action = self.scripts.action(&agent.prompt, agent.answers - 1, index);
        agent.calls[index] = match (&agent.calls[index], action) {
            (CallWork::Asked, Action::Tool(effect, key)) => {
                self.log.add(agent.node, started(reference, effect, 1, &key));
                CallWork::Started
            }
            (_, Action::Tool(_, key)) => {
                self.log.add(agent.node, finished(reference, &key));
                CallWork::Done
            }
            (_, Action::Delegate(kind, prompt)) => {
                self.delegate(agent, reference, kind, prompt);
                CallWork::Child
            }
        };
        true
    }

    fn delegate(&mut self, agent: &Agent, reference: CallRef, kind: AgentKind, prompt: String) {
        let node = self.log.state.ledger().next_node();
        let depth = agent.depth + 1;
        self.log.add(agent.node, super::host::request(node, agent.node, reference, kind, depth, &prompt));
        let parent = Some((agent.node, reference));
        let (begun, answers, asking, calls) = (false, 0, 0, Vec::new());
        let child = Agent { node, prompt, depth, parent, kind, begun, answers, asking, calls };
        self.agents.insert(node, child);
    }

    /// The model's next answer. Whether it was the last one.
    fn answer(&mut self, agent: &mut Agent) -> bool {
        let number = self.log.state.ledger().next_message_no(agent.node);
        let Some(actions) = self.scripts.answer(&agent.prompt, agent.answers) else {
            // Said already, if it waits to be settled; it is settled in the next frame.
            self.log.add(agent.node, said(number.0, Role::Assistant, "Done."));
            return true;
        };
        agent.calls = vec![CallWork::Asked; actions.len()];
        let mut message = said(number.0, Role::Assistant, "");
        message.tool_calls = (0..actions.len()).map(|index| tool_call(index, "run")).collect();
        self.log.add(agent.node, message);
        agent.asking = number.0;
        agent.answers += 1;
        false
    }

    fn settle(&mut self, agent: Agent) {
        let Some((parent, reference)) = agent.parent else {
            let turn = self.log.state.ledger().open_turn(ROOT).unwrap();
            let (outcome, stage, error) = (TurnOutcome::Completed, None, None);
            return self.log.add(ROOT, TurnEnded { turn, outcome, stage, error });
        };
        let result = format!("result of {}", agent.prompt);
        let answer = CallFinished { origin: ResultOrigin::Child, ..finished(reference, &result) };
        self.log.append(vec![
            NewEvent::now(agent.node, settled(NodeStatus::Completed, &result)),
            NewEvent::now(parent, answer),
        ]);
        if let Some(parent) = self.agents.get_mut(&parent) {
            parent.calls[usize::try_from(reference.tool_index.0).unwrap()] = CallWork::Done;
        }
    }
}
