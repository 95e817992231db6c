//! User lines: prompts, tool results, summaries; and prompts that came while a turn ran.

use serde::Deserialize;
use serde_json::value::RawValue;
use sessionlog_codec::event::{
    Audience, CompactionTrigger, ContextCompacted, MessageAppended, NodeSettled, NodeStatus, Part, Role,
};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId};

use super::blocks::{Content, first_text};
use super::line::Line;
use super::{Boundary, ClaudeMapper, source_of};
use crate::import::conversation::ToolResult;
use crate::import::loose::{Text, part};
use crate::import::mapper::{Anchor, Mapped};
use crate::import::tree::{Place, Sibling};

/// How the client tells the model that a delegated agent is done.
const NOTIFICATION: &str = "<task-notification>";

impl ClaudeMapper<'_> {
    pub(super) fn user(&mut self, node: NodeId, line: &Line<'_>, mapped: &mut Mapped) {
        let Some(content) = line.message().and_then(|message| Content::read(message.content)) else { return };
        if content.is_empty() {
            return;
        }
        let Content { parts, results, .. } = content;
        if line.is_compact_summary.is_set() {
            return self.compacted(node, line, parts, mapped);
        }
        let sibling = if results.is_empty() { Sibling::Prompt } else { Sibling::Other };
        let place = self.enter(node, line, sibling, mapped);
        let mut answered = None;
        for result in results {
            answered = Some(self.result(node, line, place, result, mapped));
        }
        if parts.is_empty() {
            // The line stands for the message that its last result belongs to.
            if let Some(message) = answered {
                self.session.thread(node).tree.add_piece(line.uuid.filled(), place, message);
            }
            return;
        }
        let audience = if line.is_meta.is_set() { Audience::Model } else { Audience::Everyone };
        self.said(node, line, place, audience, parts, mapped);
    }

    /// A message of the user, or of whoever speaks for them.
    fn said(
        &mut self,
        node: NodeId,
        line: &Line<'_>,
        place: Place,
        audience: Audience,
        parts: Vec<Part>,
        mapped: &mut Mapped,
    ) {
        let mut audience = audience;
        if let Some(text) = first_text(&parts).filter(|text| text.starts_with(NOTIFICATION)) {
            audience = Audience::Model;
            self.session.children.notified(text);
        }
        let thread = self.session.thread(node);
        let numbers = thread.conversation.next_message();
        thread.tree.add_message(line.uuid.filled(), place, numbers);
        let source = source_of(line);
        let message = MessageAppended::text(numbers.0, Role::User, "");
        mapped.push(node, MessageAppended { audience, parts, source, ..message });
    }

    /// A tool result, or a message if no call asked for it. Gives the message that it belongs to.
    fn result(
        &mut self,
        node: NodeId,
        line: &Line<'_>,
        place: Place,
        result: ToolResult,
        mapped: &mut Mapped,
    ) -> (MessageNo, Anchor) {
        let source = line.source();
        match self.session.thread(node).conversation.finish(result, &source) {
            Ok((finished, known)) => {
                let call = finished.call;
                self.learn_child(node, line, call, &finished.call_id, &finished.parts);
                mapped.push(node, finished);
                self.settle_sidechain(node, call, mapped);
                (known.call.message_no, known.anchor)
            }
            Err(orphan) => {
                let thread = self.session.thread(node);
                let numbers = thread.conversation.next_message();
                let anchor = thread.tree.add_aside(None, place, numbers.0);
                let message = MessageAppended::text(numbers.0, Role::Tool, "");
                let tool_call_id = Some(orphan.call_id);
                let source = source_of(line);
                mapped.push(node, MessageAppended { parts: orphan.parts, tool_call_id, source, ..message });
                (numbers.0, anchor)
            }
        }
    }

    /// The end of a child that has no file of its own: nothing can follow it.
    fn settle_sidechain(&mut self, node: NodeId, call: CallRef, mapped: &mut Mapped) {
        if let Some(child) = self.session.children.settle_sidechain(node, call) {
            let status = NodeStatus::Completed;
            mapped.push(child, NodeSettled { status, reason: None, parts: Vec::new() });
        }
    }

    /// A summary: all before it leaves the context. (Old versions write no boundary before it.)
    fn compacted(&mut self, node: NodeId, line: &Line<'_>, summary: Vec<Part>, mapped: &mut Mapped) {
        let thread = self.session.thread(node);
        let boundary = thread.boundary.take().unwrap_or(Boundary {
            uuid: None,
            trigger: CompactionTrigger::Auto,
            tokens_before: None,
            tokens_after: None,
            kept: Vec::new(),
        });
        let anchor = thread.conversation.next_anchor();
        let replaced = thread.tree.compact(line.uuid.filled(), anchor, &boundary.kept);
        let compacted = ContextCompacted {
            compaction_id: boundary.uuid.or(line.uuid.owned()).unwrap_or_default(),
            summary,
            summary_role: Role::User,
            kept: boundary.kept,
            replaced,
            tokens_before: boundary.tokens_before,
            tokens_after: boundary.tokens_after,
            trigger: boundary.trigger,
            model: None,
            usage: None,
            inputs: None,
            source: source_of(line),
        };
        mapped.push(node, compacted);
    }

    /// What the client put before the model. Only a prompt that was typed while a turn ran is somebody's words.
    pub(super) fn attachment(&mut self, node: NodeId, line: &Line<'_>, mapped: &mut Mapped) {
        #[derive(Deserialize)]
        struct Attachment<'a> {
            #[serde(borrow, default, rename = "type")]
            kind: Text<'a>,
            #[serde(borrow)]
            prompt: Option<&'a RawValue>,
        }
        let Some(attachment) = part::<Attachment<'_>>(line.attachment) else { return };
        let is_known = line.uuid.filled().is_some_and(|uuid| self.session.thread(node).tree.has_said(uuid));
        if attachment.kind.as_str() != Some("queued_command") || is_known {
            return;
        }
        let Some(content) = Content::read(attachment.prompt).filter(|content| content.text().is_some())
        else {
            return;
        };
        let place = self.enter(node, line, Sibling::Other, mapped);
        let audience = if line.is_meta.is_set() { Audience::Model } else { Audience::Everyone };
        self.said(node, line, place, audience, content.parts, mapped);
    }
}
