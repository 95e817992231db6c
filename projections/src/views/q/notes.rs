//! What q's files need of a log and no other projection keeps.

use std::collections::{BTreeMap, BTreeSet};

use sessionlog_codec::event::{
    CallFinished, Event, ImportedRaw, LoggedEvent, MessageAppended, NodeOpened, NodeSettled, ReplayAttached,
    ResultFlag, ToolCall,
};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, Position, SourceNo, Timestamp};
use sessionlog_codec::record::TimeOrigin;

use super::delegates::{DelegationsFile, StateFile};
use super::format;
use super::kept::KeptContext;
use super::message::{Message, Version};
use super::object::Place;
use super::plan::PlanFile;
use super::session::SessionHeader;
use crate::Projection;
use crate::summary::is_activity_kind;

/// A message of a transcript of q's: q has results among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A message.
    Message(MessageNo),
    /// The result of a call.
    Call(CallRef),
}

/// The notes of all conversations.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    nodes: BTreeMap<NodeId, NodeNotes>,
    opened: BTreeMap<NodeId, (NodeOpened, Timestamp)>,
    sources: BTreeMap<SourceNo, String>,
    nothing: NodeNotes,
}

/// The notes of one conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeNotes {
    /// The host's id of its current run.
    pub(super) run_id: Option<String>,
    pub(super) settled: Option<NodeSettled>,
    pub(super) has_begun_task: bool,
    /// Items of responses that are still replayed.
    pub(super) replay: BTreeMap<MessageNo, ReplayAttached>,
    /// Calls whose result is an error to the model.
    pub(super) errors: BTreeSet<CallRef>,
    /// Imported messages of which their events can't tell all.
    pub(super) odd: BTreeMap<Key, Message>,
    /// What the elements of an imported transcript became, from 0.
    pub(super) elements: BTreeMap<u64, Key>,
    pub(super) header: Option<(Position, SessionHeader)>,
    pub(super) bookmarks: Option<DelegationsFile>,
    pub(super) state: Option<StateFile>,
    pub(super) plan: Option<PlanFile>,
    /// The context of the file, as long as it is the conversation's.
    pub(super) context: Option<KeptContext>,
    /// Up to here, events belong to `context` itself.
    context_until: Position,
    /// The last thing that was done here and not imported.
    acted: Position,
    waiting: Option<Waiting>,
    /// The calls of the last message with any.
    turn: (MessageNo, Vec<ToolCall>),
}

/// An imported message whose event comes next.
#[derive(Clone, Debug)]
struct Waiting {
    position: Position,
    element: u64,
    message: Message,
}

impl Notes {
    pub(super) fn of(&self, node: NodeId) -> &NodeNotes {
        self.nodes.get(&node).unwrap_or(&self.nothing)
    }

    /// The bookmark of a child, and when it was made.
    pub(super) fn opened(&self, node: NodeId) -> Option<&(NodeOpened, Timestamp)> {
        self.opened.get(&node)
    }

    /// Whether anything was done in the whole tree since the file of `node` was imported.
    pub(super) fn is_as_imported(&self, node: NodeId) -> bool {
        let header = self.of(node).header.as_ref().map(|(position, _)| *position);
        let acted = match node {
            NodeId::ROOT => self.nodes.values().map(|notes| notes.acted).max().unwrap_or_default(),
            _ => self.of(node).acted,
        };
        header.is_some_and(|header| acted < header)
    }
}

impl Projection for Notes {
    fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            Event::ImportStarted(started) => {
                self.sources.insert(started.source_no, started.format.clone());
            }
            Event::NodeOpened(opened) => {
                self.opened.entry(opened.child).or_insert_with(|| (opened.clone(), logged.timestamp));
            }
            _ => {}
        }
        let notes = self.nodes.entry(logged.node).or_default();
        if let Event::ImportedRaw(raw) = &logged.event {
            if let Some(format) = self.sources.get(&raw.source_no) {
                notes.take(logged.position, format, raw);
            }
            return;
        }
        let waiting = notes.waiting.take();
        let waiting = waiting.filter(|it| it.position.next() == Some(logged.position));
        notes.apply(logged, waiting);
        notes.leave_context(logged);
        if logged.time_origin == TimeOrigin::Clock && is_activity_kind(logged.event.kind().0) {
            notes.acted = logged.position;
        }
    }
}

impl NodeNotes {
    /// Takes a record of a file. One that can't be read is no loss here: the import has told of it.
    fn take(&mut self, position: Position, format: &str, raw: &ImportedRaw) {
        let (bytes, file) = (raw.bytes.0.as_slice(), format);
        match format {
            format::TRANSCRIPT | format::TRANSCRIPT_V1 => {
                let version = if format == format::TRANSCRIPT { Version::Two } else { Version::One };
                let Some(element) = raw.line.checked_sub(1) else { return };
                let message = Message::parse(bytes, version, &Place::top(file)).ok();
                self.waiting = message.map(|message| Waiting { position, element, message });
            }
            format::CONTEXT => {
                self.context = KeptContext::parse(bytes).ok();
                self.context_until = position;
            }
            format::SESSION => {
                let header = SessionHeader::parse(bytes, file).ok();
                self.header = header.map(|header| (position, header)).or(self.header.take());
            }
            format::DELEGATIONS => {
                self.bookmarks = DelegationsFile::parse(bytes, file).ok().or(self.bookmarks.take());
            }
            format::STATE => self.state = StateFile::parse(bytes, file).ok().or(self.state.take()),
            format::PLAN => self.plan = PlanFile::parse(bytes, file).ok().or(self.plan.take()),
            _ => {}
        }
    }

    fn apply(&mut self, logged: &LoggedEvent, waiting: Option<Waiting>) {
        match &logged.event {
            Event::MessageAppended(said) => self.say(said, waiting),
            Event::CallFinished(finished) => self.finish(finished, waiting),
            Event::MessageExtended(piece) => {
                self.odd.remove(&Key::Message(piece.message_no));
            }
            Event::CallResolved(resolved) => {
                self.odd.remove(&Key::Call(resolved.call));
            }
            Event::MessageWithdrawn(withdrawn) => {
                self.replay.remove(&withdrawn.message_no);
            }
            Event::RunStarted(run) => {
                self.run_id = Some(run.run_id.clone());
                self.replay.clear();
            }
            Event::ContextReset(_) => self.replay.clear(),
            Event::ContextCompacted(compacted) => {
                let kept = |message_no| compacted.kept.iter().any(|range| range.contains(message_no));
                self.replay.retain(|message_no, _| kept(*message_no));
            }
            Event::ReplayAttached(attached) => {
                self.replay.insert(attached.message_no, attached.clone());
            }
            Event::NodeSettled(settled) => {
                self.settled.get_or_insert_with(|| settled.clone());
            }
            Event::TaskStarted(_) => self.has_begun_task = true,
            _ => {}
        }
    }

    fn say(&mut self, said: &MessageAppended, waiting: Option<Waiting>) {
        if !said.tool_calls.is_empty() {
            self.turn = (said.message_no, said.tool_calls.clone());
        }
        let told = Message::of_event(said);
        self.note(Key::Message(said.message_no), told.as_ref(), waiting);
    }

    fn finish(&mut self, finished: &CallFinished, waiting: Option<Waiting>) {
        if finished.flag == ResultFlag::Error {
            self.errors.insert(finished.call);
        }
        let (message_no, calls) = &self.turn;
        let index = usize::try_from(finished.call.tool_index.0).unwrap_or(usize::MAX);
        let asked = calls.get(index).filter(|_| *message_no == finished.call.message_no);
        let name = asked.map_or("", |asked| asked.name.as_str());
        let own = asked.map(|asked| asked.call_id.as_str()).filter(|id| !id.is_empty());
        let told = Message::of_result(&finished.parts, name, own.unwrap_or(&finished.call_id));
        self.note(Key::Call(finished.call), Some(&told), waiting);
    }

    fn note(&mut self, key: Key, told: Option<&Message>, waiting: Option<Waiting>) {
        let Some(Waiting { element, message, .. }) = waiting else { return };
        self.elements.insert(element, key);
        if told != Some(&message) {
            self.odd.insert(key, message);
        }
    }

    /// The kept context is the conversation's until something else changes it.
    fn leave_context(&mut self, logged: &LoggedEvent) {
        let is_own = match logged.event {
            Event::ContextCompacted(_) | Event::ContextTrimmed(_) | Event::ContextReset(_) => {
                self.context_until.next() == Some(logged.position)
            }
            Event::MessageAppended(_)
            | Event::MessageExtended(_)
            | Event::MessageWithdrawn(_)
            | Event::CallFinished(_)
            | Event::CallResolved(_)
            | Event::RunStarted(_)
            | Event::HeadMoved(_) => false,
            _ => return,
        };
        if is_own {
            self.context_until = logged.position;
        } else {
            self.context = None;
        }
    }
}
