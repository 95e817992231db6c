//! Everything that a session's log says, folded once: what the commands about trees look at.

use std::ops::ControlFlow;

use serde_json::{Value, json};
use sessionlog::codec::event::{Effect, SessionOpened};
use sessionlog::codec::ids::{CallRef, Epoch, NodeId, Position, TurnNo};
use sessionlog::projections::recovery::{RecoveryState, Step, TakeOver};
use sessionlog::projections::render::Replay;
use sessionlog::projections::{CallState, Lifecycle, Liveness, Projection, Summary, TreeState, effect_word};
use sessionlog::session::EventItem;
use sessionlog::{RecoveryReport, Session, SessionReader, Store};

use super::Selected;
use super::health::Health;
use crate::exit::{Exit, Failure};
use crate::output::Context;
use crate::output::event_text::cut_safe;

/// What a session's log says, all of it or up to a position.
#[derive(Debug)]
pub struct Whole {
    /// What was said.
    pub tree: TreeState,
    /// Titles, counts, usage.
    pub summary: Summary,
    /// What is owed, with the ledger and the delegations.
    pub recovery: RecoveryState,
    /// What providers are sent back of their own.
    pub replay: Replay,
    /// The last record that was looked at.
    pub last: Position,
    /// Whether the log goes on behind that.
    pub extent: Extent,
    /// What was wrong with the log.
    pub health: Health,
}

/// How much of a log was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    All,
    /// It goes on.
    Beginning,
}

impl Whole {
    /// Reads a session up to `until`.
    ///
    /// # Errors
    /// If there is no log, or it can't be read. Damage is part of the [`health`](Self::health).
    pub fn read(reader: &SessionReader, until: Option<Position>) -> Result<Self, Failure> {
        let until = until.unwrap_or(Position(u64::MAX));
        let mut tree = TreeState::default();
        let mut summary = Summary::default();
        let mut recovery = RecoveryState::default();
        let mut replay = Replay::default();
        let (mut last, mut extent) = (Position::START, Extent::All);
        let health = Health::read(reader, Position(1), &mut |item| {
            if let EventItem::Event(event) = item {
                if event.position > until {
                    extent = Extent::Beginning;
                    return Ok(ControlFlow::Break(()));
                }
                last = event.position;
                tree.apply(event);
                summary.apply(event);
                recovery.apply(event);
                replay.apply(event);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self { tree, summary, recovery, replay, last, extent, health })
    }

    /// The conversation that `name` names: a node's number, or the beginning of an invocation id. Without a name, the one
    /// that was selected.
    ///
    /// # Errors
    /// `Usage` if there is none, or several.
    pub fn node(&self, selected: &Selected, name: Option<&str>) -> Result<NodeId, Failure> {
        let Some(name) = name else { return Ok(selected.row.node) };
        let nodes = &self.summary.nodes;
        if let Ok(number) = name.parse().map(NodeId)
            && (number == NodeId::ROOT || nodes.contains_key(&number))
        {
            return Ok(number);
        }
        let lower = name.to_ascii_lowercase();
        let ids = nodes
            .iter()
            .filter_map(|(node, facts)| Some((*node, facts.opened.as_ref()?.invocation_id.to_string())));
        let found: Vec<_> = ids.filter(|(_, id)| !lower.is_empty() && id.starts_with(&lower)).collect();
        match found.as_slice() {
            [(node, _)] => Ok(*node),
            [] => {
                let (name, id, at) = (cut_safe(name, 80), selected.row.root, self.last);
                let message = format!(
                    "session {id} has no node `{name}` at position {at}; `logdump tree {id}` lists those there are"
                );
                Err(Failure::usage("node.missing", message))
            }
            several => {
                let ids: Vec<&str> = several.iter().take(5).map(|(_, id)| id.as_str()).collect();
                let message = format!(
                    "`{}` is the beginning of {} ids: {}",
                    cut_safe(name, 80),
                    several.len(),
                    ids.join(", ")
                );
                Err(Failure::usage("node.ambiguous", message))
            }
        }
    }

    /// What opening the session would record by itself, found without opening it.
    #[must_use]
    pub fn resumed(&self) -> Resumed {
        let opened = SessionOpened {
            epoch: Epoch(self.recovery.ledger().last_epoch().0.saturating_add(1)),
            pid: 0,
            machine: String::new(),
            command: String::new(),
            library: String::new(),
            cut: None,
        };
        let next = Position(self.last.0.saturating_add(1));
        let TakeOver { steps, turns, after, .. } = TakeOver::of(&self.recovery, next, opened);
        Resumed { state: after, steps, turns }
    }

    /// What is known of a call.
    #[must_use]
    pub fn call(&self, node: NodeId, call: CallRef) -> CallFacts {
        let ledger = self.recovery.ledger();
        let asked = self.tree.tool_call(node, call).map(|it| (it.call_id.clone(), it.name.clone()));
        let open = || {
            let open = ledger.open_calls().into_iter().find(|it| it.node == node && it.call == call)?;
            Some((open.call_id, open.name))
        };
        let (call_id, name) = asked.or_else(open).unzip();
        CallFacts {
            node,
            call,
            call_id,
            name,
            effect: ledger.last_start(node, call).map(|(effect, _)| effect),
            state: ledger.call(node, call),
        }
    }
}

/// A session as the next owner would find it.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// What would be owed then.
    pub state: RecoveryState,
    /// What would be recorded without asking anybody.
    pub steps: Vec<Step>,
    /// The turns that would be ended as interrupted.
    pub turns: Vec<(NodeId, TurnNo)>,
}

impl Resumed {
    /// What opening the session records first, in plain words, a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        changes(&self.steps, &self.turns)
    }
}

/// What opening a session changed or would change, in plain words, a line each.
#[must_use]
pub fn changes(steps: &[Step], turns: &[(NodeId, TurnNo)]) -> Vec<String> {
    let ended = turns.iter().map(|(node, turn)| format!("Turn {turn} of node {node} was interrupted."));
    steps.iter().map(Step::to_string).chain(ended).collect()
}

/// What is known of a call, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFacts {
    /// The conversation.
    pub node: NodeId,
    /// The call.
    pub call: CallRef,
    /// Its provider id; `None`: its message is not there.
    pub call_id: Option<String>,
    /// Its tool.
    pub name: Option<String>,
    /// What running it does; `None`: it was not started.
    pub effect: Option<Effect>,
    /// How far it got.
    pub state: Option<CallState>,
}

impl CallFacts {
    /// The call as `logdump resolve` takes it.
    #[must_use]
    pub fn short(&self) -> String {
        short(self.call)
    }

    /// On one line, safe for a terminal.
    #[must_use]
    pub fn line(&self) -> String {
        let name = self.name.as_deref().unwrap_or("a call whose message is missing");
        let mut words = vec![cut_safe(name, 60), self.short()];
        words.extend(self.call_id.as_deref().map(|id| cut_safe(id, 60)));
        words.push(format!("node {}", self.node));
        words.extend(self.effect.map(|effect| effect_word(effect).to_owned()));
        words.join(" · ")
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "node": self.node.0,
            "message_no": self.call.message_no.0,
            "tool_index": self.call.tool_index.0,
            "call_id": self.call_id,
            "name": self.name,
            "effect": self.effect.map(effect_word),
        })
    }
}

/// A call as people write it: message.tool.
#[must_use]
pub fn short(call: CallRef) -> String {
    format!("{}.{}", call.message_no, call.tool_index)
}

/// Whether somebody owns a session, for programs: `null` if that can't be told.
#[must_use]
pub fn alive_json(liveness: Liveness) -> Value {
    match liveness {
        Liveness::Alive => Value::Bool(true),
        Liveness::Dead => Value::Bool(false),
        Liveness::Unknown => Value::Null,
    }
}

/// Who has a session, in a few words, safe for a terminal.
#[must_use]
pub fn owner_words(reader: &SessionReader) -> String {
    match (reader.liveness(), reader.owner()) {
        (Liveness::Alive, Some(owner)) => {
            format!("its owner is running: {}", cut_safe(&owner.to_string(), 160))
        }
        (Liveness::Alive, None) => "its owner is running".to_owned(),
        (Liveness::Dead, _) => "nobody owns it now".to_owned(),
        (Liveness::Unknown, _) => "whether its owner is running can't be told from here".to_owned(),
    }
}

/// What a dry run says of a session that could not be taken over now.
#[must_use]
pub fn owned(selected: &Selected) -> Option<Failure> {
    let alive = selected.reader.liveness() == Liveness::Alive;
    alive.then(|| {
        let message = format!(
            "session {} can't be changed now: {}; let it do it, or end it first",
            selected.row.root,
            owner_words(&selected.reader)
        );
        Failure::new(Exit::Locked, "session.locked", message)
    })
}

/// Takes a session over, to record what a person decided.
///
/// # Errors
/// `Locked` if somebody owns it; `Lost` if acknowledged data is hurt.
pub fn take_over(context: &Context, selected: &Selected) -> Result<(Session, RecoveryReport), Failure> {
    if let Some(failure) = owned(selected) {
        return Err(failure);
    }
    Ok(Store::open(context.home()?)?.resume(selected.row.root)?)
}

/// What is left to say of a log once it was opened: what the next owner repairs is repaired.
#[must_use]
pub fn repaired(exit: Exit) -> Exit {
    if exit == Exit::Repairable { Exit::Clean } else { exit }
}

/// Lets a session go as it was found: one that was finished stays finished.
///
/// # Errors
/// If that can't be recorded.
pub fn let_go(session: Session, before: Lifecycle) -> Result<(), Failure> {
    match before {
        Lifecycle::Finished(status) => session.finish(status)?,
        Lifecycle::Open | Lifecycle::Closed => session.close()?,
    };
    Ok(())
}
