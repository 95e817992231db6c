//! A batch is checked as if its events were appended one after the other, without copying the whole ledger: only the
//! facts that the batch speaks of.

use sessionlog_codec::event::{Event, NewEvent};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, Position, Timestamp, ToolIndex};

use super::law::BatchLawBroken;
use super::{Ledger, NodeLedger, Place};
use crate::words::sealed;

impl Ledger {
    /// Whether all of `batch` may be appended now, in order, the first event at position `first`. Later events may
    /// build on earlier ones.
    ///
    /// # Errors
    /// The first event that would break a law, and the law.
    pub fn check_batch(&self, first: Position, batch: &[NewEvent]) -> Result<(), BatchLawBroken> {
        if let [new] = batch {
            return self.check(new).map_err(|law| BatchLawBroken { index: 0, law });
        }
        let mut trial = self.excerpt(batch);
        let mut position = first;
        for (index, new) in batch.iter().enumerate() {
            trial.check(new).map_err(|law| BatchLawBroken { index, law })?;
            let timestamp = new.timestamp.unwrap_or(Timestamp(0));
            trial.apply_at(Place { position, timestamp, node: new.node, cause: new.cause }, &new.event);
            position = position.next().unwrap_or(position);
        }
        Ok(())
    }

    /// The part of the ledger that decides about `batch`.
    fn excerpt(&self, batch: &[NewEvent]) -> Self {
        let mut excerpt = Self {
            creation: self.creation,
            origin: self.origin,
            epoch: self.epoch,
            last_node: self.last_node,
            next_source: self.next_source,
            nodes: std::collections::BTreeMap::new(),
        };
        for new in batch {
            excerpt.take(self, new.node, &new.event);
        }
        excerpt
    }

    fn take(&mut self, from: &Self, node: NodeId, event: &Event) {
        self.take_node(from, node);
        match event {
            Event::MessageAppended(message) => self.take_message(from, node, message.message_no),
            Event::MessageExtended(extended) => self.take_message(from, node, extended.message_no),
            Event::MessageWithdrawn(withdrawn) => self.take_message(from, node, withdrawn.message_no),
            Event::CallStarted(started) => self.take_call(from, node, started.call),
            Event::CallFinished(finished) => self.take_call(from, node, finished.call),
            Event::CallResolved(resolved) => self.take_call(from, node, resolved.call),
            Event::HeadMoved(moved) => self.take_shown(from, node, moved.to),
            Event::NodeOpened(opened) => {
                self.take_node(from, opened.parent);
                self.take_node(from, opened.child);
                if let Some(call) = opened.call {
                    self.take_call(from, opened.parent, call);
                }
            }
            other if sealed(other).is_some() => self.take_open(from, node),
            _ => {}
        }
    }

    /// The facts of a node that are not lists.
    fn take_node(&mut self, from: &Self, node: NodeId) {
        let Some(facts) = from.nodes.get(&node) else { return };
        self.nodes.entry(node).or_insert_with(|| NodeLedger {
            bookmark: facts.bookmark,
            settled: facts.settled,
            last_message: facts.last_message,
            head: facts.head,
            open_turn: facts.open_turn,
            last_turn: facts.last_turn,
            ..NodeLedger::default()
        });
    }

    fn take_message(&mut self, from: &Self, node: NodeId, message_no: MessageNo) {
        let Some((to, from)) = self.nodes.get_mut(&node).zip(from.nodes.get(&node)) else { return };
        let Some(message) = from.messages.get(&message_no) else { return };
        to.messages.insert(message_no, *message);
        let first = CallRef { message_no, tool_index: ToolIndex(0) };
        for (call, facts) in from.calls.range(first..).take_while(|(call, _)| call.message_no == message_no) {
            to.calls.insert(*call, *facts);
        }
        for (call, details) in from.open.range(first..).take_while(|(call, _)| call.message_no == message_no)
        {
            to.open.insert(*call, details.clone());
        }
    }

    fn take_call(&mut self, from: &Self, node: NodeId, call: CallRef) {
        self.take_message(from, node, call.message_no);
    }

    /// Which call an unreadable result answers depends on all that are open.
    fn take_open(&mut self, from: &Self, node: NodeId) {
        for call in from.nodes.get(&node).into_iter().flat_map(|facts| facts.open.keys()) {
            self.take_call(from, node, *call);
        }
    }

    fn take_shown(&mut self, from: &Self, node: NodeId, position: Position) {
        let Some((to, from)) = self.nodes.get_mut(&node).zip(from.nodes.get(&node)) else { return };
        if from.shown.contains(&position) {
            to.shown.insert(position);
        }
    }
}
