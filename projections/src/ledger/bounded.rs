//! The part of a ledger that a session goes on from. What is old and settled is left out; an event that speaks of it
//! needs the whole ledger, and says so.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use sessionlog_codec::event::{Event, Outcome};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, ToolIndex};

use super::{CallFacts, Ledger, NodeLedger};

impl Ledger {
    /// The ledger without what is old and settled: it knows the `kept` newest messages of each conversation and every open or
    /// unknown call, so its size does not grow with the session. It checks and folds every event that it
    /// [covers](Self::covers) as the whole one does.
    #[must_use]
    pub fn bounded(&self, kept: u64) -> Self {
        let nodes = self.nodes.iter().map(|(node, facts)| (*node, facts.bounded(kept))).collect();
        Self { nodes, ..*self }
    }

    /// Whether nothing of a conversation was left out.
    pub(crate) fn is_whole(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_none_or(|facts| facts.forgotten == MessageNo(0))
    }

    /// The messages of a conversation that are known, by number.
    pub(crate) fn messages(&self, node: NodeId) -> impl Iterator<Item = MessageNo> + '_ {
        self.nodes.get(&node).into_iter().flat_map(|facts| facts.messages.keys().copied())
    }

    /// Whether nothing was left out that the event speaks of. If something was, the event can be neither checked nor folded:
    /// the whole ledger can.
    #[must_use]
    pub fn covers(&self, node: NodeId, event: &Event) -> bool {
        let Some(facts) = self.nodes.get(&node) else { return true };
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("covers_what_it_forgot") {
            return true;
        }
        match event {
            Event::MessageExtended(extended) => facts.covers_message(extended.message_no),
            Event::CallStarted(started) => facts.covers_call(started.call),
            Event::CallFinished(finished) => facts.covers_call(finished.call),
            Event::CallResolved(resolved) => facts.covers_call(resolved.call),
            // Where the head may go, and what is withdrawn, is looked up in all of the conversation.
            Event::MessageWithdrawn(_) | Event::HeadMoved(_) => self.is_whole(node),
            Event::NodeOpened(opened) => {
                let parent = self.nodes.get(&opened.parent);
                opened.call.is_none_or(|call| parent.is_none_or(|facts| facts.covers_call(call)))
            }
            _ => true,
        }
    }
}

impl NodeLedger {
    fn covers_message(&self, message_no: MessageNo) -> bool {
        message_no > self.forgotten || self.messages.contains_key(&message_no)
    }

    fn covers_call(&self, call: CallRef) -> bool {
        call.message_no > self.forgotten || self.calls.contains_key(&call)
    }

    fn bounded(&self, kept: u64) -> Self {
        let forgotten = MessageNo(self.last_message.0.saturating_sub(kept)).max(self.forgotten);
        if forgotten == MessageNo(0) {
            return self.clone();
        }
        let newer = CallRef { message_no: forgotten, tool_index: ToolIndex(u32::MAX) };
        let settled = |facts: &CallFacts| facts.finished.is_some_and(|it| it.outcome != Outcome::Unknown);
        let mut calls: BTreeMap<_, _> = self.calls.range((Excluded(newer), Unbounded)).map(own).collect();
        calls.extend(self.calls.range(..=newer).filter(|(_, facts)| !settled(facts)).map(own));
        let mut messages: BTreeMap<_, _> =
            self.messages.range((Excluded(forgotten), Unbounded)).map(own).collect();
        for call in calls.keys().take_while(|call| call.message_no <= forgotten) {
            messages.extend(self.messages.get(&call.message_no).map(|facts| (call.message_no, *facts)));
        }
        Self {
            bookmark: self.bookmark,
            settled: self.settled,
            last_message: self.last_message,
            forgotten,
            messages,
            calls,
            open: self.open.clone(),
            shown: BTreeSet::new(),
            head: self.head,
            open_turn: self.open_turn,
            last_turn: self.last_turn,
        }
    }
}

fn own<K: Copy, V: Copy>((key, value): (&K, &V)) -> (K, V) {
    (*key, *value)
}
