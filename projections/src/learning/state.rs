//! The fold of a session's log: what could be learned from, and where it stands.

use std::collections::{BTreeMap, BTreeSet};

use sessionlog_codec::event::{
    Audience, Event, LearnBoundary, LearnSegmentClosed, LoggedEvent, MessageAppended, Role,
};
use sessionlog_codec::ids::{KindNo, MessageNo, NodeId, Position};
use sessionlog_codec::registry::kind;

use super::collect::Conversations;
use super::input::{Speaker, learned_text};
use super::queue::{Job, Queue, Segment};
use crate::path::joins_path;

/// Whether events of a kind say how far learning is: they are folded before those that say what there is to learn.
#[must_use]
pub fn is_early_kind(of: KindNo) -> bool {
    matches!(
        of,
        kind::SessionForked
            | kind::LearnSegmentClosed
            | kind::LearnJobStarted
            | kind::LearnSlotPending
            | kind::LearnSlotDone
            | kind::LearnCommitted
    )
}

/// Whether [`LearnState`] looks at events of a kind.
#[must_use]
pub fn is_learn_kind(of: KindNo) -> bool {
    let is_said = matches!(
        of,
        kind::MessageAppended
            | kind::MessageExtended
            | kind::MessageWithdrawn
            | kind::ContextCompacted
            | kind::ContextReset
            | kind::RunStarted
            | kind::HeadMoved
            | kind::NodeDeleted
            | kind::TaskCompleted
            | kind::PlanApproved
            | kind::Redacted
    );
    is_said || is_early_kind(of)
}

/// One record that is learned from, or links those that are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// What the conversation went on from.
    parent: Option<Position>,
    /// Whether the conversation goes on from it.
    joins: bool,
    message_no: Option<MessageNo>,
    /// `None`: it is not learned from.
    pub(super) speaker: Option<Speaker>,
    /// Bytes of its text.
    pub(super) bytes: u64,
    /// Later pieces of it.
    pub(super) pieces: Vec<Position>,
    pub(super) boundary: Option<LearnBoundary>,
}

/// One conversation, from what is not learned on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) items: BTreeMap<Position, Item>,
    head: Option<Position>,
    /// The last position that is in a closed segment.
    pub(super) closed: Position,
    /// Up to where nothing is kept.
    pruned: Position,
    /// A task was completed, and nobody has said anything since.
    after_task: bool,
}

/// What of a session is learned, is being learned, and could be.
///
/// It keeps, of what is not committed yet, where each message stands and how long it is: some hundred bytes a message. No text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnState {
    pub(super) conversations: Conversations,
    pub(super) queue: Queue,
    pub(super) streams: BTreeMap<NodeId, Stream>,
    /// What is up to here was said in the session that this one was forked from, and is learned there.
    pub(super) floor: Position,
}

impl LearnState {
    /// A state that collects from some conversations.
    #[must_use]
    pub fn new(conversations: Conversations) -> Self {
        Self { conversations, ..Self::default() }
    }

    /// Folds one event of the session's log. Any is accepted, whatever came before it.
    pub fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            Event::SessionForked(_) => {
                let conversations = self.conversations;
                *self = Self { conversations, floor: logged.position, ..Self::default() };
            }
            Event::LearnSegmentClosed(closed) => self.close(logged, closed),
            Event::LearnCommitted(_) => {
                self.queue.apply(logged);
                self.prune();
            }
            Event::NodeDeleted(deleted) => {
                for node in std::iter::once(&deleted.child).chain(&deleted.descendants) {
                    self.streams.remove(node);
                }
            }
            Event::Redacted(redacted) => {
                let redacted: BTreeSet<Position> = redacted.positions.iter().copied().collect();
                self.streams.values_mut().for_each(|stream| stream.take_back(&redacted));
            }
            _ => self.queue.apply(logged),
        }
        if self.conversations.include(logged.node) && is_learn_kind(logged.event.kind().0) {
            self.streams.entry(logged.node).or_default().apply(logged);
        }
    }

    fn close(&mut self, logged: &LoggedEvent, closed: &LearnSegmentClosed) {
        let stream = self.streams.entry(logged.node).or_default();
        if closed.first <= closed.last && closed.last > stream.closed {
            stream.closed = closed.last;
            self.queue.apply(logged);
            self.prune();
        }
    }

    fn prune(&mut self) {
        let queue = &self.queue;
        for (node, stream) in &mut self.streams {
            let waits = queue.segments().filter(|it| it.node == *node).map(|it| it.first).min();
            let last = waits.map_or(stream.closed, |first| Position(first.0.saturating_sub(1)));
            stream.prune(last);
        }
    }

    /// Whose words it collects.
    #[must_use]
    pub fn conversations(&self) -> Conversations {
        self.conversations
    }

    /// The segments that wait, the next one first; the first one may be worked on.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.queue.segments()
    }

    /// The segment that is to be learned next.
    #[must_use]
    pub fn head(&self) -> Option<&Segment> {
        self.queue.head()
    }

    /// The work on the first segment, if it was begun.
    #[must_use]
    pub fn job(&self) -> Option<&Job> {
        self.queue.job()
    }

    /// How many segments are learned.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.queue.committed
    }

    /// From which position on what was said has to be folded, once all [early](is_early_kind) events are.
    #[must_use]
    pub fn start(&self) -> Position {
        let after = |position: Position| Position(position.0.saturating_add(1));
        let begin = after(self.floor);
        if self.conversations == Conversations::All {
            return begin;
        }
        let Some(root) = self.streams.get(&NodeId::ROOT) else { return begin };
        let waits = self.queue.segments().filter(|it| it.node == NodeId::ROOT).map(|it| it.first).min();
        begin.max(waits.unwrap_or_else(|| after(root.closed)))
    }

    /// Says that the last thing before [`start`](Self::start) in a conversation was the completion of a task.
    pub fn begin_after_task(&mut self, node: NodeId) {
        if self.conversations.include(node) {
            self.streams.entry(node).or_default().after_task = true;
        }
    }
}

impl Stream {
    fn apply(&mut self, logged: &LoggedEvent) {
        let position = logged.position;
        match &logged.event {
            Event::MessageExtended(extended) => self.extend(position, extended.message_no, &logged.event),
            Event::MessageWithdrawn(withdrawn) => {
                if let Some(item) = self.said(withdrawn.message_no) {
                    item.speaker = None;
                }
            }
            Event::HeadMoved(moved) => self.move_to(moved.to),
            event => self.add(position, event),
        }
    }

    fn add(&mut self, position: Position, event: &Event) {
        let joins = joins_path(event);
        let was_after_task = self.after_task;
        match event.kind().0 {
            kind::TaskCompleted => self.after_task = true,
            kind::MessageAppended => self.after_task = false,
            _ => {}
        }
        let (message_no, speaker, boundary) = match event {
            Event::MessageAppended(message) => {
                let speaker = speaker(message).filter(|it| *it != Speaker::Assistant || !was_after_task);
                (Some(message.message_no), speaker, None)
            }
            Event::ContextCompacted(_) => (None, Some(Speaker::Summary), None),
            Event::TaskCompleted(_) => (None, Some(Speaker::Task), Some(LearnBoundary::TaskComplete)),
            Event::PlanApproved(_) => (None, Some(Speaker::Plan), Some(LearnBoundary::PlanApproved)),
            _ => (None, None, None),
        };
        if joins || speaker.is_some() {
            let (parent, bytes, pieces) = (self.head, text_len(event), Vec::new());
            let item = Item { parent, joins, message_no, speaker, bytes, pieces, boundary };
            if position > self.pruned {
                self.items.insert(position, item);
            }
        }
        if joins {
            self.head = Some(position);
        }
    }

    fn extend(&mut self, position: Position, message_no: MessageNo, event: &Event) {
        let bytes = text_len(event);
        if let Some(item) = self.said(message_no) {
            item.bytes = item.bytes.saturating_add(bytes);
            item.pieces.push(position);
        }
    }

    /// The newest message of that number.
    fn said(&mut self, message_no: MessageNo) -> Option<&mut Item> {
        self.items.values_mut().rev().find(|item| item.message_no == Some(message_no))
    }

    fn move_to(&mut self, to: Position) {
        if to == Position::START {
            self.head = None;
            return;
        }
        let first = self.items.keys().next().copied().unwrap_or(Position(u64::MAX));
        // Of what is not kept, nobody knows any more whether a conversation can go on from it.
        if to < first || self.items.get(&to).is_some_and(|item| item.joins) {
            self.head = Some(to);
        }
    }

    fn take_back(&mut self, positions: &BTreeSet<Position>) {
        for (position, item) in &mut self.items {
            if positions.contains(position) {
                item.speaker = None;
            }
            item.pieces.retain(|piece| !positions.contains(piece));
        }
    }

    fn prune(&mut self, last: Position) {
        self.pruned = self.pruned.max(last);
        let next = Position(self.pruned.0.saturating_add(1));
        self.items = self.items.split_off(&next);
    }

    /// What the conversation holds now: neither taken back nor left by a rewind, and with a text.
    pub(super) fn learnable(&self) -> impl Iterator<Item = (Position, Speaker, &Item)> {
        let parent = |at: &Position| self.items.get(at).and_then(|item| item.parent);
        let live: BTreeSet<Position> = std::iter::successors(self.head, parent).collect();
        self.items.iter().filter_map(move |(position, item)| {
            let place = if item.joins { Some(*position) } else { item.parent };
            // What was there before the first thing that is kept, is not left: nothing says so.
            let is_live = place.is_none_or(|place| live.contains(&place) || !self.items.contains_key(&place));
            let speaker = item.speaker.filter(|_| is_live && item.bytes > 0)?;
            Some((*position, speaker, item))
        })
    }
}

fn speaker(message: &MessageAppended) -> Option<Speaker> {
    match (message.role, message.audience) {
        (Role::User, Audience::Everyone) => Some(Speaker::User),
        (Role::Assistant, Audience::Everyone) => Some(Speaker::Assistant),
        _ => None,
    }
}

fn text_len(event: &Event) -> u64 {
    let len = learned_text(event).map_or(0, |text| text.len());
    u64::try_from(len).unwrap_or(u64::MAX)
}
