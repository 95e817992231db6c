//! What an append is checked against: numbers, call states, turns and heads of a whole tree, without any content.

mod batch;
mod bounded;
mod check;
mod law;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{
    CallFinished, CallResolved, CallStarted, Effect, Event, LoggedEvent, MessageAppended, MessageExtended,
    NodeOpened, NodeStatus, Outcome, Role, ToolCall,
};
use sessionlog_codec::ids::{
    CallRef, Digest, Epoch, MessageNo, NodeId, Position, SessionId, SourceNo, Timestamp, ToolIndex, TurnNo,
};

pub use self::law::{BatchLawBroken, LawBroken};
use crate::Projection;
use crate::path::joins_path;
use crate::words::{Sealed, is_repeatable, sealed};

/// The small state that appends to a tree log are checked against. Its size grows with the number of messages and
/// calls, never with what is said. Derives from every event of the tree log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    creation: Creation,
    origin: LogOrigin,
    epoch: Epoch,
    /// The highest child number seen, in a bookmark or on a record whose bookmark is lost.
    last_node: NodeId,
    next_source: SourceNo,
    nodes: BTreeMap<NodeId, NodeLedger>,
}

/// Whether the log has its first record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Creation {
    /// There is no `session.created`.
    #[default]
    Missing,
    /// There is; the session it names (or, in a fork, the one that `session.forked` names).
    Created(SessionId),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum LogOrigin {
    #[default]
    Hosted,
    Imported,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct NodeLedger {
    bookmark: Bookmark,
    settled: Option<NodeStatus>,
    /// 0: no message yet.
    last_message: MessageNo,
    /// Of the messages up to here, and of the records they stand in, only what is open is known.
    forgotten: MessageNo,
    messages: BTreeMap<MessageNo, MessageFacts>,
    calls: BTreeMap<CallRef, CallFacts>,
    /// What is told about a call while it has no result; dropped with the result.
    open: BTreeMap<CallRef, CallDetails>,
    shown: BTreeSet<Position>,
    head: Position,
    open_turn: Option<TurnNo>,
    last_turn: TurnNo,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Bookmark {
    /// Records of the node were seen, but never its `node.opened` (a damaged log).
    #[default]
    Missing,
    Opened,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MessageFacts {
    /// `None`: its content is erased, or of a newer version.
    role: Option<Role>,
    calls: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct CallFacts {
    started: Option<StartFacts>,
    finished: Option<FinishFacts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StartFacts {
    effect: Effect,
    attempt: u32,
    position: Position,
    timestamp: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FinishFacts {
    /// The result's outcome, or what it was resolved to.
    outcome: Outcome,
    position: Position,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CallDetails {
    call_id: String,
    name: String,
    arguments_digest: Digest,
}

/// How far a call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallState {
    /// It was asked for and not started.
    NotStarted,
    /// It was started and has no result.
    Started {
        /// What running it does.
        effect: Effect,
        /// The newest attempt.
        attempt: u32,
        /// Where that attempt was recorded.
        position: Position,
    },
    /// It has its result.
    Finished {
        /// What became of it; if it was unknown and resolved later, what it was resolved to.
        outcome: Outcome,
        /// Where the result was recorded.
        position: Position,
    },
}

/// How far a call without result got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenState {
    /// It was asked for and not started: it certainly did nothing.
    NotStarted,
    /// It was started: nobody knows what it did.
    Started {
        /// What running it does.
        effect: Effect,
        /// The newest attempt.
        attempt: u32,
        /// Where that attempt was recorded.
        position: Position,
        /// When.
        timestamp: Timestamp,
    },
}

/// A call without result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCall {
    /// The conversation.
    pub node: NodeId,
    /// The call.
    pub call: CallRef,
    /// Its provider id.
    pub call_id: String,
    /// Its tool.
    pub name: String,
    /// BLAKE3 of its argument bytes as received.
    pub arguments_digest: Digest,
    /// How far it got.
    pub state: OpenState,
}

impl Ledger {
    /// Whether the log has its first record, and whose log it is.
    #[must_use]
    pub fn created(&self) -> Creation {
        self.creation
    }

    /// The newest ownership; 0 before the first one.
    #[must_use]
    pub fn last_epoch(&self) -> Epoch {
        self.epoch
    }

    /// The number that the next message of `node` must carry. Numbers are never reused.
    #[must_use]
    pub fn next_message_no(&self, node: NodeId) -> MessageNo {
        let last = self.nodes.get(&node).map(|facts| facts.last_message).unwrap_or_default();
        last.next().unwrap_or(last)
    }

    /// The number that the next child must carry.
    #[must_use]
    pub fn next_node(&self) -> NodeId {
        self.last_node.next().unwrap_or(self.last_node)
    }

    /// The number that the next import source gets, from 0.
    #[must_use]
    pub fn next_source_no(&self) -> SourceNo {
        self.next_source
    }

    /// The conversations that are heard of, in the order of their numbers. In a damaged log the numbers may be far apart.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.keys().copied()
    }

    /// The turn that `node` is in.
    #[must_use]
    pub fn open_turn(&self, node: NodeId) -> Option<TurnNo> {
        self.nodes.get(&node).and_then(|facts| facts.open_turn)
    }

    /// The number that the next turn of `node` must carry, from 1.
    #[must_use]
    pub fn next_turn(&self, node: NodeId) -> TurnNo {
        let last = self.nodes.get(&node).map(|facts| facts.last_turn).unwrap_or_default();
        last.next().unwrap_or(last)
    }

    /// How far a call got; `None`: there is no such call.
    #[must_use]
    pub fn call(&self, node: NodeId, call: CallRef) -> Option<CallState> {
        self.nodes.get(&node)?.calls.get(&call).map(CallFacts::state)
    }

    /// What a call's newest start said: its effect and which attempt it was; `None`: it was not started.
    #[must_use]
    pub fn last_start(&self, node: NodeId, call: CallRef) -> Option<(Effect, u32)> {
        let started = self.nodes.get(&node)?.calls.get(&call)?.started?;
        Some((started.effect, started.attempt))
    }

    /// Every call without a result, of every node: by node, then in the order in which the calls were asked for. A call
    /// whose outcome was recorded as unknown has a result. Calls of withdrawn messages and left branches are among
    /// them: if they were started, what they did was done all the same.
    #[must_use]
    pub fn open_calls(&self) -> Vec<OpenCall> {
        let open = self.nodes.iter().flat_map(|(node, facts)| facts.open.keys().map(|call| (*node, *call)));
        open.filter_map(|(node, call)| self.open_call(node, call)).collect()
    }

    /// A call without a result; `None`: there is no such call, or it has its result.
    #[must_use]
    pub fn open_call(&self, node: NodeId, call: CallRef) -> Option<OpenCall> {
        let facts = self.nodes.get(&node)?;
        let details = facts.open.get(&call)?;
        let started = facts.calls.get(&call).and_then(|facts| facts.started);
        Some(OpenCall {
            node,
            call,
            call_id: details.call_id.clone(),
            name: details.name.clone(),
            arguments_digest: details.arguments_digest,
            state: started.map_or(OpenState::NotStarted, StartFacts::open_state),
        })
    }

    /// The newest record on the live path of `node` that the model is shown: a message, compaction, reset or new run.
    /// [`Position::START`] if there is none.
    #[must_use]
    pub fn head(&self, node: NodeId) -> Position {
        self.nodes.get(&node).map(|facts| facts.head).unwrap_or_default()
    }

    /// How a child ended; `None` while it has not settled.
    #[must_use]
    pub fn settled(&self, node: NodeId) -> Option<NodeStatus> {
        self.nodes.get(&node).and_then(|facts| facts.settled)
    }

    /// Whether a conversation can be appended to: the root's, or a child's whose bookmark is there. Of a damaged log, the
    /// bookmark may be lost.
    #[must_use]
    pub fn is_open_node(&self, node: NodeId) -> bool {
        node == NodeId::ROOT || self.nodes.get(&node).is_some_and(|facts| facts.bookmark == Bookmark::Opened)
    }
}

impl CallFacts {
    fn state(&self) -> CallState {
        match (self.finished, self.started) {
            (Some(FinishFacts { outcome, position }), _) => CallState::Finished { outcome, position },
            (None, Some(StartFacts { effect, attempt, position, .. })) => {
                CallState::Started { effect, attempt, position }
            }
            (None, None) => CallState::NotStarted,
        }
    }
}

impl StartFacts {
    fn open_state(self) -> OpenState {
        let Self { effect, attempt, position, timestamp } = self;
        OpenState::Started { effect, attempt, position, timestamp }
    }
}

/// Where a record stands, without its content: what a checked batch has of its records before they are written.
#[derive(Clone, Copy)]
struct Place {
    position: Position,
    timestamp: Timestamp,
    node: NodeId,
    cause: Option<Position>,
}

impl Projection for Ledger {
    fn apply(&mut self, event: &LoggedEvent) {
        let place = Place {
            position: event.position,
            timestamp: event.timestamp,
            node: event.node,
            cause: event.cause,
        };
        self.apply_at(place, &event.event);
    }
}

impl Ledger {
    fn apply_at(&mut self, place: Place, event: &Event) {
        match event {
            Event::SessionCreated(created) => {
                if self.creation == Creation::Missing {
                    self.creation = Creation::Created(created.session_id);
                }
                if created.imported.is_some() {
                    self.origin = LogOrigin::Imported;
                }
            }
            Event::SessionForked(forked) => self.creation = Creation::Created(forked.session_id),
            Event::SessionOpened(opened) => self.epoch = self.epoch.max(opened.epoch),
            Event::ImportStarted(started) => {
                let next = started.source_no.next().unwrap_or(started.source_no);
                self.next_source = self.next_source.max(next);
            }
            Event::NodeOpened(opened) => self.open_node(opened),
            _ => {}
        }
        self.last_node = self.last_node.max(place.node);
        self.nodes.entry(place.node).or_default().apply_at(place, event);
    }

    fn open_node(&mut self, opened: &NodeOpened) {
        self.last_node = self.last_node.max(opened.child);
        self.nodes.entry(opened.child).or_default().bookmark = Bookmark::Opened;
    }
}

impl NodeLedger {
    fn apply_at(&mut self, place: Place, event: &Event) {
        match event {
            Event::MessageAppended(message) => self.append(message),
            Event::MessageExtended(extended) => self.extend(extended),
            Event::CallStarted(started) => self.start(place, started),
            Event::CallFinished(finished) => self.finish(place, finished),
            Event::CallResolved(resolved) => self.resolve(resolved),
            Event::TurnStarted(started) => {
                self.open_turn = Some(started.turn);
                self.last_turn = self.last_turn.max(started.turn);
            }
            Event::TurnEnded(ended) => {
                self.open_turn = None;
                self.last_turn = self.last_turn.max(ended.turn);
            }
            Event::NodeSettled(settled) => {
                self.settled.get_or_insert(settled.status);
            }
            Event::HeadMoved(moved) => {
                if moved.to == Position::START || self.shown.contains(&moved.to) {
                    self.head = moved.to;
                }
            }
            other => self.apply_sealed(place, other),
        }
        if joins_path(event) {
            self.shown.insert(place.position);
            self.head = place.position;
        }
    }

    /// Numbers are dense, so a message whose content can't be seen is the next one.
    fn apply_sealed(&mut self, place: Place, event: &Event) {
        match sealed(event) {
            Some(Sealed::Message) => {
                let number = self.last_message.next().unwrap_or(self.last_message);
                self.messages.entry(number).or_insert(MessageFacts { role: None, calls: 0 });
                self.last_message = number;
            }
            Some(Sealed::Result) => {
                let Some(call) = self.call_of_sealed_result(place.cause) else { return };
                self.settle(call, FinishFacts { outcome: Outcome::Unknown, position: place.position });
            }
            None => {}
        }
    }

    /// Which call an unreadable result answers: the one it says it follows from, else the only one that is open.
    fn call_of_sealed_result(&self, cause: Option<Position>) -> Option<CallRef> {
        let started_at = |call: &CallRef| {
            self.calls.get(call).and_then(|facts| facts.started).map(|started| started.position)
        };
        let caused = self.open.keys().find(|call| cause.is_some() && started_at(call) == cause);
        let only = self.open.keys().next().filter(|_| self.open.len() == 1);
        caused.or(only).copied()
    }

    fn append(&mut self, message: &MessageAppended) {
        let facts = MessageFacts { role: Some(message.role), calls: 0 };
        // A second message under the same number (damage only) must not give the first one's calls a new meaning.
        if self.messages.contains_key(&message.message_no) {
            return;
        }
        self.messages.insert(message.message_no, facts);
        self.last_message = self.last_message.max(message.message_no);
        if message.role == Role::Assistant {
            self.add_calls(message.message_no, &message.tool_calls);
        }
    }

    fn extend(&mut self, extended: &MessageExtended) {
        let role = self.messages.get(&extended.message_no).and_then(|facts| facts.role);
        if role == Some(Role::Assistant) {
            self.add_calls(extended.message_no, &extended.tool_calls);
        }
    }

    fn add_calls(&mut self, message_no: MessageNo, calls: &[ToolCall]) {
        let Some(facts) = self.messages.get_mut(&message_no) else { return };
        for call in calls {
            let Some(next) = facts.calls.checked_add(1) else { return };
            let reference = CallRef { message_no, tool_index: ToolIndex(facts.calls) };
            facts.calls = next;
            self.calls.insert(reference, CallFacts::default());
            let details = CallDetails {
                call_id: call.call_id.clone(),
                name: call.name.clone(),
                arguments_digest: Digest::of(&call.arguments.0),
            };
            self.open.insert(reference, details);
        }
    }

    fn start(&mut self, place: Place, started: &CallStarted) {
        let Some(facts) = self.calls.get_mut(&started.call) else { return };
        let newest = facts.started.map_or(0, |before| before.attempt);
        if facts.started.is_none() || started.attempt > newest {
            facts.started = Some(StartFacts {
                effect: started.effect,
                attempt: started.attempt,
                position: place.position,
                timestamp: place.timestamp,
            });
        }
    }

    fn finish(&mut self, place: Place, finished: &CallFinished) {
        self.settle(finished.call, FinishFacts { outcome: finished.outcome, position: place.position });
    }

    /// The first result of a call is its result.
    fn settle(&mut self, call: CallRef, result: FinishFacts) {
        let Some(facts) = self.calls.get_mut(&call) else { return };
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("second_result_wins") {
            facts.finished = None;
        }
        facts.finished.get_or_insert(result);
        self.open.remove(&call);
    }

    fn resolve(&mut self, resolved: &CallResolved) {
        let finished = self.calls.get_mut(&resolved.call).and_then(|facts| facts.finished.as_mut());
        if let Some(finished) = finished
            && finished.outcome == Outcome::Unknown
        {
            finished.outcome = resolved.outcome;
        }
    }

    /// Whether a call with this result may be tried once more: its outcome is unknown, and twice is as good as once.
    fn may_retry(started: Option<StartFacts>, outcome: Outcome, declared: Effect) -> bool {
        let effect = started.map_or(declared, |started| started.effect);
        outcome == Outcome::Unknown && is_repeatable(effect)
    }
}
