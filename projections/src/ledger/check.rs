//! The laws of a tree log, checked before an event is appended.

use std::collections::BTreeSet;

use sessionlog_codec::event::{
    CallFinished, CallResolved, CallStarted, ContextCompacted, Event, HeadMoved, MessageAppended,
    MessageRange, NewEvent, NodeOpened, Outcome, ResultOrigin, Role, ToolCall, TurnEnded, TurnStarted,
};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, Position, ToolIndex};

use super::law::LawBroken;
use super::{CallFacts, CallState, Creation, Ledger, LogOrigin, NodeLedger};
use crate::words::is_repeatable;

/// How much is expected of what a message says about its calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strictness {
    /// A host appends: it could do it right.
    Host,
    /// An importer appends what is there: it can't.
    History,
}

impl Ledger {
    /// Whether `new` may be appended now.
    ///
    /// What hosts append is held to all laws. Imported messages (with a source, or in an imported session) may repeat
    /// call ids, lack tool names and be orphaned results: history is taken as it is, and the projections cope.
    ///
    /// # Errors
    /// The law that the append would break.
    pub fn check(&self, new: &NewEvent) -> Result<(), LawBroken> {
        self.check_at(new.node, &new.event)
    }

    pub(super) fn check_at(&self, node: NodeId, event: &Event) -> Result<(), LawBroken> {
        let found = event.name();
        match (self.creation, event) {
            (Creation::Missing, Event::SessionCreated(_)) => return Ok(()),
            (Creation::Missing, _) => return Err(LawBroken::NotCreated { found }),
            (Creation::Created(_), Event::SessionCreated(_)) => return Err(LawBroken::CreatedTwice),
            (Creation::Created(_), _) => {}
        }
        if let Event::Erased { .. } = event {
            return Err(LawBroken::Erased { found });
        }
        if !self.is_open_node(node) {
            return Err(LawBroken::UnknownNode { node, found });
        }
        let empty = NodeLedger::default();
        let facts = Facts { node, facts: self.nodes.get(&node).unwrap_or(&empty), found };
        match event {
            Event::MessageAppended(message) => {
                self.check_number(node, message.message_no)?;
                let imported = message.source.is_some() || self.origin == LogOrigin::Imported;
                facts.message(message, if imported { Strictness::History } else { Strictness::Host })
            }
            Event::MessageExtended(extended) => {
                let imported = extended.source.is_some() || self.origin == LogOrigin::Imported;
                let strictness = if imported { Strictness::History } else { Strictness::Host };
                facts.extended(extended.message_no, &extended.tool_calls, strictness)
            }
            Event::MessageWithdrawn(withdrawn) => facts.known(withdrawn.message_no),
            Event::CallStarted(started) => facts.started(started),
            Event::CallFinished(finished) => facts.finished(finished),
            Event::CallResolved(resolved) => facts.resolved(resolved),
            Event::TurnStarted(started) => self.check_turn_started(facts, started),
            Event::TurnEnded(ended) => facts.turn_ended(ended),
            Event::HeadMoved(moved) => facts.head_moved(moved),
            Event::ContextCompacted(compacted) => facts.compacted(compacted),
            Event::NodeOpened(opened) => self.check_node_opened(opened),
            Event::NodeSettled(_) if node == NodeId::ROOT || facts.facts.settled.is_some() => {
                Err(LawBroken::CantSettle { node })
            }
            _ => Ok(()),
        }
    }

    fn check_number(&self, node: NodeId, found: MessageNo) -> Result<(), LawBroken> {
        let expected = self.next_message_no(node);
        // At the very end of the numbers the next one is the last one once more.
        let taken = self.nodes.get(&node).is_some_and(|facts| facts.messages.contains_key(&found));
        if found != expected || taken {
            return Err(LawBroken::MessageNumber { node, expected, found });
        }
        Ok(())
    }

    fn check_turn_started(&self, facts: Facts<'_>, started: &TurnStarted) -> Result<(), LawBroken> {
        let (node, found) = (facts.node, started.turn);
        if let Some(open) = facts.facts.open_turn {
            return Err(LawBroken::TurnOpen { node, open, found });
        }
        let expected = self.next_turn(node);
        if found != expected {
            return Err(LawBroken::TurnNumber { node, expected, found });
        }
        Ok(())
    }

    fn check_node_opened(&self, opened: &NodeOpened) -> Result<(), LawBroken> {
        let expected = self.next_node();
        if opened.child != expected || self.is_open_node(opened.child) {
            return Err(LawBroken::ChildNumber { expected, found: opened.child });
        }
        if !self.is_open_node(opened.parent) {
            return Err(LawBroken::UnknownParent { child: opened.child, parent: opened.parent });
        }
        let Some(call) = opened.call else { return Ok(()) };
        match self.call(opened.parent, call) {
            Some(_) => Ok(()),
            None => Err(LawBroken::UnknownCall { node: opened.parent, call, found: "node.opened" }),
        }
    }
}

/// One node's facts, and the event that is held against them.
#[derive(Clone, Copy)]
struct Facts<'a> {
    node: NodeId,
    facts: &'a NodeLedger,
    found: &'static str,
}

impl Facts<'_> {
    fn message(self, message: &MessageAppended, strictness: Strictness) -> Result<(), LawBroken> {
        let (node, message_no) = (self.node, message.message_no);
        if message.role == Role::Tool && strictness == Strictness::Host {
            return Err(LawBroken::ToolMessage { node, message_no });
        }
        if message.role != Role::Assistant && !message.tool_calls.is_empty() {
            return Err(LawBroken::CallsWithoutModel { node, message_no, found: message.role });
        }
        self.calls(message_no, 0, &message.tool_calls, strictness)
    }

    fn extended(
        self,
        message_no: MessageNo,
        calls: &[ToolCall],
        strictness: Strictness,
    ) -> Result<(), LawBroken> {
        self.known(message_no)?;
        let facts = self.facts.messages.get(&message_no);
        match facts.filter(|facts| facts.role == Some(Role::Assistant)) {
            Some(facts) => self.calls(message_no, facts.calls, calls, strictness),
            None => Err(LawBroken::NotAssistant { node: self.node, message_no }),
        }
    }

    fn known(self, message_no: MessageNo) -> Result<(), LawBroken> {
        if self.facts.messages.contains_key(&message_no) {
            return Ok(());
        }
        let last = self.facts.last_message;
        Err(LawBroken::UnknownMessage { node: self.node, message_no, last, found: self.found })
    }

    fn calls(
        self,
        message_no: MessageNo,
        first: u32,
        calls: &[ToolCall],
        strictness: Strictness,
    ) -> Result<(), LawBroken> {
        if strictness == Strictness::History {
            return Ok(());
        }
        let node = self.node;
        let open = self.facts.open.range(CallRef { message_no, tool_index: ToolIndex(0) }..);
        let mut ids: BTreeSet<&str> = open
            .take_while(|(call, _)| call.message_no == message_no)
            .map(|(_, details)| details.call_id.as_str())
            .collect();
        for (index, call) in (first..).zip(calls) {
            let reference = CallRef { message_no, tool_index: ToolIndex(index) };
            if call.name.is_empty() {
                return Err(LawBroken::EmptyCallName { node, call: reference });
            }
            if !ids.insert(&call.call_id) {
                let call_id = call.call_id.clone();
                return Err(LawBroken::RepeatedCallId { node, call: reference, call_id });
            }
        }
        Ok(())
    }

    fn call(self, call: CallRef) -> Result<CallFacts, LawBroken> {
        let unknown = LawBroken::UnknownCall { node: self.node, call, found: self.found };
        self.facts.calls.get(&call).copied().ok_or(unknown)
    }

    fn started(self, started: &CallStarted) -> Result<(), LawBroken> {
        let (node, call) = (self.node, started.call);
        let facts = self.call(call)?;
        if let Some(finished) = facts.finished
            && !NodeLedger::may_retry(facts.started, finished.outcome, started.effect)
        {
            let (outcome, position) = (finished.outcome, finished.position);
            return Err(LawBroken::AlreadyFinished { node, call, outcome, position, found: self.found });
        }
        if let Some(before) = facts.started
            && !is_repeatable(before.effect)
        {
            return Err(LawBroken::NotRepeatable { node, call, effect: before.effect });
        }
        let expected = facts.started.map_or(1, |before| before.attempt.saturating_add(1));
        if started.attempt != expected {
            return Err(LawBroken::Attempt { node, call, expected, found: started.attempt });
        }
        Ok(())
    }

    fn finished(self, finished: &CallFinished) -> Result<(), LawBroken> {
        let (node, call) = (self.node, finished.call);
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("second_result_taken") {
            return self.call(call).map(drop);
        }
        match self.call(call)?.state() {
            // Agents that recovered badly left two results of one call; both are history.
            CallState::Finished { .. } if finished.origin == ResultOrigin::Import => Ok(()),
            CallState::Finished { outcome, position } => {
                Err(LawBroken::AlreadyFinished { node, call, outcome, position, found: self.found })
            }
            CallState::Started { .. } | CallState::NotStarted => Ok(()),
        }
    }

    fn resolved(self, resolved: &CallResolved) -> Result<(), LawBroken> {
        let (node, call) = (self.node, resolved.call);
        let found = match self.call(call)?.state() {
            CallState::Finished { outcome: Outcome::Unknown, .. } => return Ok(()),
            CallState::Finished { outcome, .. } => crate::words::outcome_word(outcome),
            CallState::Started { .. } => "not recorded: the call was started and has no result",
            CallState::NotStarted => "not recorded: the call was not started",
        };
        Err(LawBroken::NotUnknown { node, call, found })
    }

    fn turn_ended(self, ended: &TurnEnded) -> Result<(), LawBroken> {
        let (node, found) = (self.node, ended.turn);
        match self.facts.open_turn {
            None => Err(LawBroken::NoTurn { node, found }),
            Some(expected) if expected != found => Err(LawBroken::TurnNumber { node, expected, found }),
            Some(_) => Ok(()),
        }
    }

    fn head_moved(self, moved: &HeadMoved) -> Result<(), LawBroken> {
        if moved.to == Position::START || self.facts.shown.contains(&moved.to) {
            return Ok(());
        }
        Err(LawBroken::UnknownHead { node: self.node, to: moved.to })
    }

    fn compacted(self, compacted: &ContextCompacted) -> Result<(), LawBroken> {
        self.ranges("kept", &compacted.kept)?;
        self.ranges("replaced", &compacted.replaced)
    }

    fn ranges(self, list: &'static str, ranges: &[MessageRange]) -> Result<(), LawBroken> {
        let last = self.facts.last_message;
        let mut before = MessageNo(0);
        for range in ranges {
            if range.first <= before || range.first > range.last || range.last > last {
                return Err(LawBroken::Ranges { node: self.node, list, range: *range, last });
            }
            before = range.last;
        }
        Ok(())
    }
}
