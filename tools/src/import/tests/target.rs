//! A target in memory. It checks what the engine's log would: numbers are dense, what is named is there.

use std::collections::BTreeMap;

use sessionlog_codec::event::{
    Audience, Event, HeadMoved, ImportStarted, MessageAppended, MessageRange, NewEvent, NodeOpened, Role,
    SessionCreated,
};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, Position, SessionId, SourceNo, Timestamp};

use super::super::{KnownNode, RawRecord, Target, TargetError, TargetSession};

/// All sessions.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) sessions: BTreeMap<SessionId, Stored>,
    /// How many frames may still be appended, to break an import off.
    pub(super) frames_left: Option<usize>,
}

/// One session: its events, and how they came in frames. Position 1 is `session.created`.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub(super) created: Option<SessionCreated>,
    pub(super) events: Vec<NewEvent>,
    pub(super) frames: Vec<usize>,
    nodes: BTreeMap<NodeId, Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    opened: Option<NodeOpened>,
    is_settled: bool,
    /// How many calls each message has.
    calls: BTreeMap<MessageNo, usize>,
    anchors: Vec<Position>,
    head: Position,
}

impl Memory {
    pub(super) fn only(&self) -> &Stored {
        assert_eq!(self.sessions.len(), 1);
        self.sessions.values().next().unwrap()
    }
}

impl Target for Memory {
    fn open(
        &mut self,
        created: &SessionCreated,
        _: Option<Timestamp>,
    ) -> Result<Box<dyn TargetSession + '_>, TargetError> {
        let stored = self.sessions.entry(created.session_id).or_default();
        stored.created.get_or_insert_with(|| created.clone());
        stored.nodes.entry(NodeId::ROOT).or_default();
        Ok(Box::new(Open { stored, frames_left: &mut self.frames_left }))
    }
}

struct Open<'a> {
    stored: &'a mut Stored,
    frames_left: &'a mut Option<usize>,
}

impl TargetSession for Open<'_> {
    fn sources(&self) -> Result<Vec<ImportStarted>, TargetError> {
        Ok(self.stored.sources())
    }

    fn nodes(&self) -> Result<Vec<KnownNode>, TargetError> {
        let known = |(node, state): (&NodeId, &Node)| KnownNode {
            node: *node,
            source_id: state.opened.as_ref().and_then(|opened| opened.source_id.clone()),
            settled: state.is_settled,
            last_message: state.calls.keys().max().copied().unwrap_or_default(),
        };
        Ok(self.stored.nodes.iter().map(known).collect())
    }

    fn raws(
        &self,
        source: SourceNo,
    ) -> Result<Box<dyn Iterator<Item = Result<RawRecord, TargetError>> + '_>, TargetError> {
        let raws = (2..).zip(&self.stored.events).filter_map(move |(position, event)| match &event.event {
            Event::ImportedRaw(raw) if raw.source_no == source => {
                Some(Ok(RawRecord { position: Position(position), raw: raw.clone() }))
            }
            _ => None,
        });
        Ok(Box::new(raws))
    }

    fn append(&mut self, frame: Vec<NewEvent>) -> Result<Position, TargetError> {
        if let Some(left) = self.frames_left {
            *left = left.checked_sub(1).ok_or("no more frames")?;
        }
        assert!(!frame.is_empty());
        let first = Position(self.stored.events.len() as u64 + 2);
        self.stored.frames.push(frame.len());
        for event in frame {
            let position = Position(self.stored.events.len() as u64 + 2);
            self.stored.check(position, &event);
            self.stored.events.push(event);
        }
        Ok(first)
    }

    fn finish(self: Box<Self>) -> Result<(), TargetError> {
        Ok(())
    }
}

impl Stored {
    pub(super) fn sources(&self) -> Vec<ImportStarted> {
        let started = |event: &NewEvent| match &event.event {
            Event::ImportStarted(started) => Some(started.clone()),
            _ => None,
        };
        self.events.iter().filter_map(started).collect()
    }

    /// What a node was opened with.
    pub(super) fn opened(&self, node: NodeId) -> &NodeOpened {
        self.nodes[&node].opened.as_ref().unwrap()
    }

    pub(super) fn is_settled(&self, node: NodeId) -> bool {
        self.nodes[&node].is_settled
    }

    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The position of a node's messages and compactions, from the first.
    pub(super) fn anchors(&self, node: NodeId) -> &[Position] {
        &self.nodes[&node].anchors
    }

    fn check(&mut self, position: Position, event: &NewEvent) {
        event.event.encode().unwrap();
        assert!(self.nodes.contains_key(&event.node), "{event:?}");
        let sources = if matches!(event.event, Event::ImportStarted(_) | Event::ImportedRaw(_)) {
            assert_eq!(event.timestamp, None);
            self.sources()
        } else {
            Vec::new()
        };
        let node = self.nodes.get_mut(&event.node).unwrap();
        match &event.event {
            Event::ImportStarted(started) => {
                assert_eq!(
                    started.source_no.0,
                    sources.last().map_or(0, |last| last.source_no.0 + 1),
                    "dense"
                );
            }
            Event::ImportedRaw(raw) => assert!(sources.iter().any(|known| known.source_no == raw.source_no)),
            Event::MessageAppended(message) => {
                let last = node.calls.keys().max().copied().unwrap_or_default();
                assert_eq!(Some(message.message_no), last.next(), "dense");
                node.calls.insert(message.message_no, message.tool_calls.len());
                node.goes_on_from(message, position);
            }
            Event::MessageExtended(extended) => {
                *node.calls.get_mut(&extended.message_no).unwrap() += extended.tool_calls.len();
            }
            Event::CallFinished(finished) => node.check_call(finished.call),
            Event::ContextTrimmed(trimmed) => {
                trimmed.calls.iter().for_each(|call| node.check_call(*call));
            }
            Event::ContextCompacted(compacted) => {
                node.check_ranges(&compacted.kept);
                node.check_ranges(&compacted.replaced);
                node.anchors.push(position);
                node.head = position;
            }
            Event::HeadMoved(HeadMoved { to, from, .. }) => {
                assert_eq!(*from, node.head);
                assert!(*to == Position::START || node.anchors.contains(to), "{to:?}");
                node.head = *to;
            }
            Event::NodeOpened(opened) => {
                assert_eq!(opened.parent, event.node);
                opened.call.iter().for_each(|call| node.check_call(*call));
                assert_eq!(Some(opened.child), self.nodes.keys().max().unwrap().next(), "dense");
                self.nodes.insert(opened.child, Node { opened: Some(opened.clone()), ..Node::default() });
            }
            Event::NodeSettled(_) => {
                assert!(!std::mem::replace(&mut node.is_settled, true), "settled once");
            }
            Event::SessionTitled(_) | Event::SessionFinished(_) | Event::CheckpointReferenced(_) => {
                assert_eq!(event.node, NodeId::ROOT);
            }
            Event::ReplayAttached(attached) => assert!(node.calls.contains_key(&attached.message_no)),
            Event::ContextReset(_) => node.head = position,
            Event::RunStarted(_)
            | Event::NodeBound(_)
            | Event::AffinitySet(_)
            | Event::AffinityCleared(_)
            | Event::TaskStarted(_)
            | Event::TaskCompleted(_)
            | Event::PlanApproved(_)
            | Event::PlanAdvanced(_)
            | Event::PlanResumed(_)
            | Event::PlanCompleted(_) => {}
            other => panic!("no importer appends {other:?}"),
        }
    }
}

impl Node {
    /// As the log does: no conversation goes on from what no model is shown.
    fn goes_on_from(&mut self, message: &MessageAppended, position: Position) {
        if message.role != Role::Tool && message.audience != Audience::Person {
            self.anchors.push(position);
            self.head = position;
        }
    }

    fn check_call(&self, call: CallRef) {
        assert!(usize::try_from(call.tool_index.0).unwrap() < self.calls[&call.message_no], "{call}");
    }

    fn check_ranges(&self, ranges: &[MessageRange]) {
        let mut last = MessageNo(0);
        for range in ranges {
            assert!(last < range.first && range.first <= range.last, "{ranges:?}");
            last = range.last;
        }
        assert!(last == MessageNo(0) || self.calls.contains_key(&last), "{ranges:?}");
    }
}

impl Stored {
    /// Appends as a host would.
    pub(super) fn push(&mut self, event: NewEvent) {
        let position = Position(self.events.len() as u64 + 2);
        self.check(position, &event);
        self.events.push(event);
    }
}
