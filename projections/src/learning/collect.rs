//! Where segments end: exactly four boundaries.

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{LearnBoundary, LearnSegmentClosed, NewEvent};
use sessionlog_codec::ids::{NodeId, Position};

use super::input::Speaker;
use super::queue::Segment;
use super::state::{Item, LearnState, Stream};
use super::switch::OffSpans;
use crate::compaction::Share;

/// Bytes of text per token, and tokens per message: as the estimate of a context has them.
const BYTES_PER_TOKEN: u64 = 3;
const TOKENS_PER_MESSAGE: u64 = 4;

/// What a window is measured in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Tokens, estimated: a third of a text's bytes, rounded up, and 4 for each message.
    #[default]
    Tokens,
    /// Bytes of text (UTF-8).
    Bytes,
}

/// How large a segment may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimit {
    /// The window of the Thinker's model.
    pub window: u64,
    /// The share of it that a segment may fill. 45 %.
    pub share: Share,
    /// What the window is measured in.
    pub unit: Unit,
}

impl SizeLimit {
    /// 45 % of a window of so many tokens.
    #[must_use]
    pub const fn tokens(window: u64) -> Self {
        Self { window, share: Share::percent(45), unit: Unit::Tokens }
    }

    /// All of a window of so many bytes.
    #[must_use]
    pub const fn bytes(window: u64) -> Self {
        Self { window, share: Share::percent(100), unit: Unit::Bytes }
    }

    /// The largest segment, in its unit. One that has exactly this size is not over it.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.share.at_most(self.window)
    }

    fn size(&self, bytes: u64) -> u64 {
        match self.unit {
            Unit::Bytes => bytes,
            Unit::Tokens => bytes.div_ceil(BYTES_PER_TOKEN).saturating_add(TOKENS_PER_MESSAGE),
        }
    }
}

/// Whose words are learned from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conversations {
    /// The session's own conversation.
    #[default]
    Root,
    /// Those of its delegated children too, each by itself.
    All,
}

impl Conversations {
    pub(super) fn include(self, node: NodeId) -> bool {
        self == Self::All || node == NodeId::ROOT
    }
}

/// Where the learning of a session begins that was not learned from before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begin {
    /// With its first user message.
    #[default]
    FirstMessage,
    /// With the summary of its latest compaction, if there is one: for long sessions of before, and for imports.
    LatestSummary,
}

/// By what segments are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// How large one may be.
    pub size: SizeLimit,
    /// Where the first one begins.
    pub begin: Begin,
}

impl Closing {
    /// By 45 % of a window of so many tokens.
    #[must_use]
    pub const fn tokens(window: u64) -> Self {
        Self { size: SizeLimit::tokens(window), begin: Begin::FirstMessage }
    }
}

/// What no segment holds yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How many messages, reports and plans.
    pub messages: u64,
    /// Bytes of their text.
    pub bytes: u64,
}

/// A segment under way.
#[derive(Clone, Copy)]
struct Open {
    first: Position,
    last: Position,
    size: u64,
}

impl Open {
    fn close(self, node: NodeId, boundary: LearnBoundary) -> NewEvent {
        let Self { first, last, .. } = self;
        let segment_id = format!("learn-{node}-{first}-{last}");
        NewEvent::now(node, LearnSegmentClosed { segment_id, first, last, boundary })
    }
}

impl LearnState {
    /// The segments that are to be closed now, in the order of their ends: one is full, or a task was completed, or a plan
    /// approved. Appending them takes them out of the next answer.
    #[must_use]
    pub fn closable(&self, closing: &Closing, off: &OffSpans) -> Vec<NewEvent> {
        let mut found = Vec::new();
        for (node, stream) in &self.streams {
            self.segments_of(*node, stream, (closing, off), &mut found);
        }
        in_order(found)
    }

    /// The same, and the rest of each conversation, as somebody asked for it. Empty if there is nothing.
    #[must_use]
    pub fn closable_now(&self, closing: &Closing, off: &OffSpans) -> Vec<NewEvent> {
        let mut found = Vec::new();
        for (node, stream) in &self.streams {
            let rest = self.segments_of(*node, stream, (closing, off), &mut found);
            found.extend(rest.map(|open| (open.last, open.close(*node, LearnBoundary::Explicit))));
        }
        in_order(found)
    }

    /// What no segment holds, and none will before it is full or somebody asks.
    #[must_use]
    pub fn waiting(&self, closing: &Closing, off: &OffSpans) -> Waiting {
        let mut waiting = Waiting::default();
        for stream in self.streams.values() {
            for (_, _, item) in self.collected(stream, closing, off) {
                waiting.messages = waiting.messages.saturating_add(1);
                waiting.bytes = waiting.bytes.saturating_add(item.bytes);
            }
        }
        waiting
    }

    /// What a segment's job reads, in order: where each thing stands, its later pieces, and who says it. As it is now: what
    /// was taken back since it was closed is not among it.
    #[must_use]
    pub fn sources(&self, segment: &Segment, off: &OffSpans) -> Vec<(Vec<Position>, Speaker)> {
        let Some(stream) = self.streams.get(&segment.node) else { return Vec::new() };
        let within = stream
            .learnable()
            .filter(|(at, ..)| segment.first <= *at && *at <= segment.last && !off.contains(*at));
        within.map(|(at, speaker, item)| ([&[at], item.pieces.as_slice()].concat(), speaker)).collect()
    }

    /// What of a conversation is not in a segment.
    fn collected<'s>(
        &self,
        stream: &'s Stream,
        closing: &Closing,
        off: &OffSpans,
    ) -> Vec<(Position, Speaker, &'s Item)> {
        let open = stream.learnable().filter(|(at, ..)| *at > stream.closed && !off.contains(*at));
        let mut open: Vec<_> = open.collect();
        if stream.closed > Position::START || self.floor > Position::START {
            return open;
        }
        let summary = open.iter().rposition(|(_, speaker, _)| *speaker == Speaker::Summary);
        let first = match (closing.begin, summary) {
            (Begin::LatestSummary, Some(summary)) => Some(summary),
            _ => open.iter().position(|(_, speaker, _)| *speaker != Speaker::Assistant),
        };
        open.split_off(first.unwrap_or(open.len()))
    }

    /// The whole segments of a conversation, and what is left.
    fn segments_of(
        &self,
        node: NodeId,
        stream: &Stream,
        (closing, off): (&Closing, &OffSpans),
        found: &mut Vec<(Position, NewEvent)>,
    ) -> Option<Open> {
        let most = closing.size.most();
        let mut open: Option<Open> = None;
        for (at, _, item) in self.collected(stream, closing, off) {
            let size = closing.size.size(item.bytes);
            if let Some(full) = open.take_if(|open| open.size.saturating_add(size) > most) {
                found.push((full.last, full.close(node, LearnBoundary::Size)));
            }
            let before = open.unwrap_or(Open { first: at, last: at, size: 0 });
            let grown = Open { last: at, size: before.size.saturating_add(size), ..before };
            open = Some(grown);
            if let Some(boundary) = item.boundary {
                found.push((at, grown.close(node, boundary)));
                open = None;
            }
        }
        open
    }
}

fn in_order(mut found: Vec<(Position, NewEvent)>) -> Vec<NewEvent> {
    found.sort_by_key(|(last, _)| *last);
    found.into_iter().map(|(_, event)| event).collect()
}
