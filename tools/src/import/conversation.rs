//! The numbers of one conversation: its messages and its calls.

use std::collections::HashMap;

use sessionlog_codec::event::{
    CallAudit, CallFinished, Outcome, Part, ResultFlag, ResultOrigin, SourceIds, ToolCall,
};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, ToolIndex};

use super::loose::Key;
use super::mapper::Anchor;

/// Counts the messages of a node and finds its calls by their provider's ids.
#[derive(Debug)]
pub(crate) struct Conversation {
    node: NodeId,
    last: MessageNo,
    anchors: u64,
    calls: HashMap<Key, Vec<KnownCall>>,
}

/// A call that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownCall {
    pub(crate) call: CallRef,
    /// The message that asked for it.
    pub(crate) anchor: Anchor,
    pub(crate) answer: Answer,
}

/// Whether a call has a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Open,
    Given,
}

/// A tool result of a source.
#[derive(Debug)]
pub(crate) struct ToolResult {
    pub(crate) call_id: String,
    pub(crate) flag: ResultFlag,
    pub(crate) parts: Vec<Part>,
    pub(crate) audit: Option<CallAudit>,
}

impl Conversation {
    pub(crate) fn new(node: NodeId) -> Self {
        Self { node, last: MessageNo(0), anchors: 0, calls: HashMap::new() }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// The number of the message that comes now.
    pub(crate) fn next_message(&mut self) -> (MessageNo, Anchor) {
        self.last = self.last.next().unwrap_or(self.last);
        (self.last, self.next_anchor())
    }

    /// The place of the compaction that comes now.
    pub(crate) fn next_anchor(&mut self) -> Anchor {
        self.anchors += 1;
        Anchor(self.anchors)
    }

    /// Remembers the calls of a message, of which it had `before` already.
    pub(crate) fn add_calls(&mut self, message: (MessageNo, Anchor), before: u32, calls: &[ToolCall]) {
        let (message_no, anchor) = message;
        for (tool_index, call) in (before..).zip(calls) {
            // A call without an id can't be answered.
            if call.call_id.is_empty() {
                continue;
            }
            let call_ref = CallRef { message_no, tool_index: ToolIndex(tool_index) };
            let known = KnownCall { call: call_ref, anchor, answer: Answer::Open };
            self.calls.entry(Key::of(&call.call_id)).or_default().push(known);
        }
    }

    /// The newest call with this id that has no answer, or else the newest one.
    pub(crate) fn find(&self, call_id: &str) -> Option<KnownCall> {
        let calls = self.calls.get(&Key::of(call_id))?;
        calls.iter().rev().find(|known| known.answer == Answer::Open).or(calls.last()).copied()
    }

    /// Finds the call that a result answers, and remembers that it did.
    fn answer(&mut self, call_id: &str) -> Option<KnownCall> {
        let calls = self.calls.get_mut(&Key::of(call_id))?;
        let open = calls.iter().rposition(|known| known.answer == Answer::Open);
        let newest = calls.len().checked_sub(1)?;
        let known = calls.get_mut(open.unwrap_or(newest))?;
        known.answer = Answer::Given;
        Some(*known)
    }

    /// The event of a result, or the result back if no call of the conversation asked for it.
    pub(crate) fn finish(
        &mut self,
        result: ToolResult,
        source: &SourceIds,
    ) -> Result<(CallFinished, KnownCall), Box<ToolResult>> {
        let Some(known) = self.answer(&result.call_id) else { return Err(Box::new(result)) };
        let ToolResult { call_id, flag, parts, audit } = result;
        let finished = CallFinished {
            call: known.call,
            call_id,
            outcome: if flag == ResultFlag::Error { Outcome::Failed } else { Outcome::Succeeded },
            flag,
            parts,
            artifact: None,
            origin: ResultOrigin::Import,
            audit,
            source: Some(source.clone()),
        };
        Ok((finished, known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sessionlog_codec::event::CallForm;

    fn call(id: &str) -> ToolCall {
        ToolCall {
            call_id: id.to_owned(),
            name: "Bash".to_owned(),
            arguments: "{}".into(),
            form: CallForm::Function,
            extra: None,
        }
    }

    #[test]
    fn a_result_answers_the_newest_open_call_of_its_id() {
        let mut conversation = Conversation::new(NodeId::ROOT);
        let first = conversation.next_message();
        conversation.add_calls(first, 0, &[call("a"), call("b")]);
        let second = conversation.next_message();
        conversation.add_calls(second, 0, &[call("a"), call("")]);
        let ask = |message_no, tool_index| CallRef {
            message_no: MessageNo(message_no),
            tool_index: ToolIndex(tool_index),
        };
        let mut answer = |id: &str| conversation.answer(id).map(|known| known.call);
        assert_eq!(answer("a"), Some(ask(2, 0)));
        assert_eq!(answer("a"), Some(ask(1, 0)));
        assert_eq!(answer("a"), Some(ask(2, 0)), "all answered: a duplicate of the newest");
        assert_eq!(answer("b"), Some(ask(1, 1)));
        assert_eq!(answer(""), None);
        assert_eq!(answer("c"), None);
    }
}
