//! The state of a session's delegations: which conversation came from which call, what it runs with, how far it got,
//! and how it ended.
//!
//! A call is named by its conversation, message and index ([`CallRef`]), never by the provider's id, which repeats. A
//! message number is never used twice, not even after a clear, so a child of an older run is never taken for one of
//! the newer run's.
//!
//! **When a child has begun.** An inner child has begun with its first message: what it did is in this log. One that was
//! rewound or reset to nothing is to begin again. What an external one did is not in it, so it has begun with its first
//! own record of any kind but a command to it: its host appends `node.bound`, durable, before it talks to the agent. A
//! bookmark alone proves that an external agent was never asked.

mod limits;
mod rows;
mod talk;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{
    AffinitySet, AgentKind, CallFinished, Event, FinalStatus, LoggedEvent, NodeBound, NodeDeleted,
    NodeOpened, NodeSettled, NodeStatus, Outcome, Part, ReplayAttached, Role, TaskStarted,
};
use sessionlog_codec::ids::{CallRef, Epoch, MessageNo, NodeId, Position};
use sessionlog_codec::registry::kind;

pub use self::limits::{DelegationLimits, DelegationRefused, Nesting};
pub use self::rows::{DelegationRow, NotDeletable, Standing};
pub(crate) use self::talk::{Talk, Waits};
use crate::Projection;
use crate::ledger::{CallState, Ledger};

/// The delegations of a session tree, and what each of its conversations runs with. Keeps a result only until its
/// parent's call has it, and a request only until its child has settled. Derives from every event of the tree log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegations {
    nodes: BTreeMap<NodeId, NodeFacts>,
    /// The child of each delegating call: the first one, where damage gave it two.
    children: BTreeMap<(NodeId, CallRef), NodeId>,
    /// Children opened in the root's current run, anywhere in the tree; imported ones are not counted.
    opened_in_run: u32,
    epoch: Epoch,
    origin: Origin,
}

/// Who wrote a log or a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Origin {
    #[default]
    Hosted,
    Imported,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct NodeFacts {
    bookmark: Option<Bookmark>,
    binding: Option<NodeBound>,
    affinity: Option<AffinitySet>,
    replay: BTreeMap<MessageNo, ReplayState>,
    begun: Begun,
    /// The model's answers, each counted once.
    rounds: u32,
    unknown: BTreeSet<CallRef>,
    task: Option<TaskStarted>,
    settled: Option<Settled>,
    deletion: Deletion,
    /// Records whose payload can be read.
    readable: u64,
    talk: Talk,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Bookmark {
    /// As appended; the request is dropped once the child has settled.
    opened: NodeOpened,
    /// Below the root, by the chain of parents where it is known.
    depth: u32,
    answer: Answer,
}

/// Whether the parent's call has its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    Missing,
    Given,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Begun {
    #[default]
    No,
    Yes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Deletion {
    #[default]
    None,
    Deleted,
}

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settled {
    /// `None`: that record is erased, or of a newer version.
    pub(crate) status: Option<NodeStatus>,
    pub(crate) position: Position,
    /// The result, while the parent's call does not have it.
    pub(crate) parts: Option<Vec<Part>>,
}

/// Where a provider's own items of a response are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayState {
    /// The record that holds them.
    pub position: Position,
    /// The model that made them.
    pub model: String,
    /// The API they belong to.
    pub api_mode: String,
}

/// What a conversation runs with, for a host to say whether it still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding<'a> {
    /// The conversation.
    pub node: NodeId,
    /// The agent asked for.
    pub agent: &'a str,
    /// Whose conversation it is.
    pub kind: AgentKind,
    /// The model, API and agent profile of its last `node.bound`; `None`: it was not bound yet.
    pub bound: Option<&'a NodeBound>,
}

impl Delegations {
    /// The delegations without what of each conversation is old and settled: they know the messages that the `bounded` ledger
    /// knows. They fold every event that it [covers](Ledger::covers) as the whole ones do.
    pub(crate) fn bounded(&self, kept: u64, bounded: &Ledger) -> Self {
        let nodes = self.nodes.iter().map(|(node, facts)| {
            let talk = match bounded.is_whole(*node) {
                true => facts.talk.clone(),
                false => facts.talk.bounded(kept, bounded.messages(*node)),
            };
            (*node, facts.with_talk(talk))
        });
        Self {
            nodes: nodes.collect(),
            children: self.children.clone(),
            opened_in_run: self.opened_in_run,
            epoch: self.epoch,
            origin: self.origin,
        }
    }

    /// The child that a call became. A call that has one is never delegated again, whatever became of the child.
    #[must_use]
    pub fn child_of(&self, parent: NodeId, call: CallRef) -> Option<NodeId> {
        self.children.get(&(parent, call)).copied()
    }

    /// The bookmark of a child that has not settled, with its exact request.
    #[must_use]
    pub fn request(&self, child: NodeId) -> Option<&NodeOpened> {
        let facts = self.nodes.get(&child).filter(|facts| facts.settled.is_none())?;
        facts.bookmark.as_ref().map(|bookmark| &bookmark.opened)
    }

    /// What a child runs with.
    #[must_use]
    pub fn binding(&self, child: NodeId) -> Option<Binding<'_>> {
        let facts = self.nodes.get(&child)?;
        let opened = &facts.bookmark.as_ref()?.opened;
        let (agent, kind) = (opened.agent.as_str(), opened.kind);
        Some(Binding { node: child, agent, kind, bound: facts.binding.as_ref() })
    }

    /// Where a conversation is cached or continued at its provider. A new run, a reset and a compaction end it.
    #[must_use]
    pub fn affinity(&self, node: NodeId) -> Option<&AffinitySet> {
        self.nodes.get(&node)?.affinity.as_ref()
    }

    /// The provider's own items of a conversation's messages, made by `model` over `api_mode`: those of the current
    /// run that no compaction replaced. Another model's or API's are not replayed.
    pub fn replay<'a>(
        &'a self,
        node: NodeId,
        model: &'a str,
        api_mode: &'a str,
    ) -> impl Iterator<Item = (MessageNo, &'a ReplayState)> {
        let replay = self.nodes.get(&node).into_iter().flat_map(|facts| &facts.replay);
        let usable = replay.filter(move |(_, it)| it.model == model && it.api_mode == api_mode);
        usable.map(|(message_no, it)| (*message_no, it))
    }

    /// Whether a conversation still goes on from the record at `position`, which was its head: no rewind, reset, clear or
    /// new run has left it since. [`Position::START`]: from its beginning.
    #[must_use]
    pub fn goes_on_from(&self, node: NodeId, position: Position) -> bool {
        self.talk(node).map_or(position == Position::START, |talk| talk.goes_on_from(position))
    }

    /// Whether a conversation's turn was broken off by the end of its host, and not gone on with yet.
    #[must_use]
    pub fn is_interrupted(&self, node: NodeId) -> bool {
        self.talk(node).is_some_and(Talk::is_interrupted)
    }

    /// The task that a conversation works on.
    #[must_use]
    pub fn active_task(&self, node: NodeId) -> Option<&TaskStarted> {
        self.nodes.get(&node)?.task.as_ref()
    }

    /// How often the model has answered in a conversation. Counted from the answers themselves, so that no later event
    /// (a completion that was rejected) and no restart can make the count another one.
    #[must_use]
    pub fn rounds(&self, node: NodeId) -> u32 {
        self.nodes.get(&node).map_or(0, |facts| facts.rounds)
    }

    /// The calls of a conversation whose outcome is recorded as unknown and not resolved.
    pub fn unknown_calls(&self, node: NodeId) -> impl Iterator<Item = CallRef> + '_ {
        self.nodes.get(&node).into_iter().flat_map(|facts| facts.unknown.iter().copied())
    }

    /// Results that their parents' calls do not have yet: a root of artifact collection, as every conversation's
    /// messages are.
    pub fn undelivered<'a>(&'a self, ledger: &'a Ledger) -> impl Iterator<Item = (NodeId, &'a [Part])> {
        let kept = self.nodes.iter().filter_map(|(node, facts)| {
            let parts = facts.settled.as_ref()?.parts.as_deref()?;
            Some((*node, parts))
        });
        kept.filter(move |(node, _)| self.unanswered_call(*node, ledger).is_some())
    }

    /// Deleted conversations of which readable records are left: their erasure was cut off and has to be repeated.
    pub fn unfinished_deletions(&self) -> impl Iterator<Item = NodeId> + '_ {
        let deleted = self.nodes.iter().filter(|(_, facts)| facts.deletion == Deletion::Deleted);
        deleted.filter(|(_, facts)| facts.readable > 0).map(|(node, _)| *node)
    }

    /// The parent's call that waits for the result of `child`; `None` if it has one, or if none waits for this child.
    pub(crate) fn unanswered_call(&self, child: NodeId, ledger: &Ledger) -> Option<(NodeId, CallRef)> {
        let opened = self.opened(child)?;
        let call = opened.call.filter(|call| self.child_of(opened.parent, *call) == Some(child))?;
        // A conversation without bookmark, or without content, is not appended to.
        if !self.is_present(opened.parent) {
            return None;
        }
        match ledger.call(opened.parent, call)? {
            CallState::NotStarted | CallState::Started { .. } => Some((opened.parent, call)),
            CallState::Finished { .. } => None,
        }
    }

    /// The children that are there, and the root.
    pub(crate) fn present(&self) -> impl Iterator<Item = NodeId> + '_ {
        let children = self.nodes.keys().filter(|node| **node != NodeId::ROOT && self.is_present(**node));
        std::iter::once(NodeId::ROOT).chain(children.copied())
    }

    fn is_present(&self, node: NodeId) -> bool {
        node == NodeId::ROOT
            || self
                .nodes
                .get(&node)
                .is_some_and(|facts| facts.bookmark.is_some() && facts.deletion == Deletion::None)
    }

    pub(crate) fn opened(&self, node: NodeId) -> Option<&NodeOpened> {
        self.nodes.get(&node)?.bookmark.as_ref().map(|bookmark| &bookmark.opened)
    }

    /// How deep a conversation is below the root, which is at 0.
    #[must_use]
    pub fn depth(&self, node: NodeId) -> u32 {
        let bookmark = self.nodes.get(&node).and_then(|facts| facts.bookmark.as_ref());
        bookmark.map_or(0, |bookmark| bookmark.depth)
    }

    pub(crate) fn settled(&self, node: NodeId) -> Option<&Settled> {
        self.nodes.get(&node)?.settled.as_ref()
    }

    pub(crate) fn is_deleted(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|facts| facts.deletion == Deletion::Deleted)
    }

    pub(crate) fn has_begun(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|facts| match facts.bookmark.as_ref().map(|it| it.opened.kind) {
            Some(AgentKind::External) => facts.begun == Begun::Yes,
            Some(AgentKind::Inner) | None => facts.talk.has_live_messages(),
        })
    }

    /// Whether another agent had the child's conversation, and no host of ours has gone on with it.
    pub(crate) fn is_imported(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|facts| {
            let bookmark = facts.bookmark.as_ref();
            bookmark.is_some_and(|it| it.opened.source_id.is_some()) && !facts.talk.is_hosted()
        })
    }

    pub(crate) fn talk(&self, node: NodeId) -> Option<&Talk> {
        self.nodes.get(&node).map(|facts| &facts.talk)
    }

    /// The conversation's parents, nearest first. Ends, whatever a damaged log says.
    pub(crate) fn ancestors(&self, node: NodeId) -> Vec<NodeId> {
        let mut chain = Vec::new();
        let mut next = self.opened(node).map(|opened| opened.parent);
        while let Some(parent) = next
            && parent != node
            && !chain.contains(&parent)
        {
            chain.push(parent);
            next = self.opened(parent).map(|opened| opened.parent);
        }
        chain
    }
}

impl Projection for Delegations {
    fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            Event::SessionCreated(created) if created.imported.is_some() => self.origin = Origin::Imported,
            Event::SessionOpened(opened) => self.epoch = self.epoch.max(opened.epoch),
            // What was under way goes on in the session that was forked, not in the fork.
            Event::SessionForked(_) => {
                self.nodes.values_mut().for_each(|facts| facts.talk.rest(logged.position));
            }
            Event::SessionFinished(finished) if finished.status != FinalStatus::Paused => {
                self.nodes.entry(NodeId::ROOT).or_default().talk.rest(logged.position);
            }
            Event::NodeOpened(opened) => self.open(opened),
            Event::NodeDeleted(deleted) => self.delete(deleted),
            Event::RunStarted(_) if logged.node == NodeId::ROOT => self.opened_in_run = 0,
            Event::CallFinished(finished) => self.answer(logged.node, finished),
            _ => {}
        }
        let (epoch, origin) = (self.epoch, self.origin);
        let facts = self.nodes.entry(logged.node).or_default();
        facts.apply(logged);
        let writer = match origin {
            Origin::Imported => talk::Writer::Importer,
            Origin::Hosted => talk::Writer::Host,
        };
        facts.talk.apply(logged, epoch, writer);
    }
}

impl Delegations {
    fn open(&mut self, opened: &NodeOpened) {
        let known = self.nodes.get(&opened.child).is_some_and(|facts| facts.bookmark.is_some());
        if opened.child == NodeId::ROOT || opened.child == opened.parent || known {
            return;
        }
        let parent_known = opened.parent == NodeId::ROOT || self.opened(opened.parent).is_some();
        let depth =
            if parent_known { self.depth(opened.parent).saturating_add(1) } else { opened.depth.max(1) };
        if opened.source_id.is_none() {
            self.opened_in_run = self.opened_in_run.saturating_add(1);
        }
        if let Some(call) = opened.call {
            self.children.entry((opened.parent, call)).or_insert(opened.child);
        }
        let facts = self.nodes.entry(opened.child).or_default();
        facts.bookmark = Some(Bookmark { opened: opened.clone(), depth, answer: Answer::Missing });
    }

    fn delete(&mut self, deleted: &NodeDeleted) {
        for node in std::iter::once(&deleted.child).chain(&deleted.descendants) {
            if *node != NodeId::ROOT {
                self.nodes.entry(*node).or_default().deletion = Deletion::Deleted;
            }
        }
    }

    /// A result that was delivered is kept by its call.
    fn answer(&mut self, parent: NodeId, finished: &CallFinished) {
        let child = self.children.get(&(parent, finished.call));
        let Some(facts) = child.and_then(|child| self.nodes.get_mut(child)) else { return };
        if let Some(bookmark) = &mut facts.bookmark {
            bookmark.answer = Answer::Given;
        }
        if let Some(settled) = &mut facts.settled {
            settled.parts = None;
        }
    }
}

impl NodeFacts {
    /// The same facts about another part of the conversation.
    fn with_talk(&self, talk: Talk) -> Self {
        Self {
            bookmark: self.bookmark.clone(),
            binding: self.binding.clone(),
            affinity: self.affinity.clone(),
            replay: self.replay.clone(),
            begun: self.begun,
            rounds: self.rounds,
            unknown: self.unknown.clone(),
            task: self.task.clone(),
            settled: self.settled.clone(),
            deletion: self.deletion,
            readable: self.readable,
            talk,
        }
    }

    fn apply(&mut self, logged: &LoggedEvent) {
        if !matches!(logged.event, Event::Erased { .. } | Event::NodeDeleted(_)) {
            self.readable = self.readable.saturating_add(1);
        }
        match &logged.event {
            Event::NodeBound(bound) => self.binding = Some(bound.clone()),
            Event::NodeSettled(settled) => self.settle(logged.position, settled),
            Event::AffinitySet(set) => self.affinity = Some(set.clone()),
            Event::AffinityCleared(_) => self.affinity = None,
            Event::ReplayAttached(attached) => self.attach(logged.position, attached),
            Event::MessageAppended(message) => {
                if message.role == Role::Assistant && !self.talk.knows(message.message_no) {
                    self.rounds = self.rounds.saturating_add(1);
                }
            }
            Event::MessageWithdrawn(withdrawn) => {
                self.replay.remove(&withdrawn.message_no);
            }
            Event::ContextCompacted(compacted) => {
                let kept = |message_no| compacted.kept.iter().any(|range| range.contains(message_no));
                self.replay.retain(|message_no, _| kept(*message_no));
                self.affinity = None;
            }
            Event::ContextReset(_) => self.forget_provider(),
            Event::RunStarted(_) => {
                self.forget_provider();
                self.task = None;
            }
            Event::TaskStarted(started) => self.task = Some(started.clone()),
            Event::TaskCompleted(_) => self.task = None,
            Event::CallFinished(finished) if finished.outcome == Outcome::Unknown => {
                self.unknown.insert(finished.call);
            }
            Event::CallResolved(resolved) if resolved.outcome != Outcome::Unknown => {
                self.unknown.remove(&resolved.call);
            }
            other => self.settle_sealed(logged.position, other),
        }
        if begins(&logged.event) {
            self.begun = Begun::Yes;
        }
    }

    /// The first end of a child is its end.
    fn settle(&mut self, position: Position, settled: &NodeSettled) {
        if self.settled.is_some() {
            return;
        }
        let waiting = self.bookmark.as_ref().is_some_and(|bookmark| bookmark.answer == Answer::Missing);
        let parts = waiting.then(|| settled.parts.clone());
        self.settled = Some(Settled { status: Some(settled.status), position, parts });
        if let Some(bookmark) = &mut self.bookmark {
            bookmark.opened.prompt = String::new();
        }
    }

    fn settle_sealed(&mut self, position: Position, event: &Event) {
        let (Event::Erased { .. } | Event::Unknown(_)) = event else { return };
        if event.kind().0 == kind::NodeSettled && self.settled.is_none() {
            self.settled = Some(Settled { status: None, position, parts: None });
        }
    }

    fn attach(&mut self, position: Position, attached: &ReplayAttached) {
        let ReplayAttached { message_no, model, api_mode, .. } = attached;
        let state = ReplayState { position, model: model.clone(), api_mode: api_mode.clone() };
        self.replay.insert(*message_no, state);
    }

    fn forget_provider(&mut self) {
        self.affinity = None;
        self.replay.clear();
    }
}

/// Whether a record in a child's own conversation shows that its agent was asked. What this version can't read counts:
/// an agent that may have been asked is not asked twice.
fn begins(event: &Event) -> bool {
    !matches!(
        event,
        Event::NodeOpened(_)
            | Event::NodeSettled(_)
            | Event::NodeDeleted(_)
            | Event::CommandReceived(_)
            | Event::CommandApplied(_)
            | Event::SessionTitled(_)
            | Event::SessionTagged(_)
    )
}
