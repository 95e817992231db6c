//! Responses. One of them is written as several lines, one for each block, and is one message.

use sessionlog_codec::event::{Audience, MessageAppended, MessageExtended, ProviderIds, Role};
use sessionlog_codec::ids::NodeId;

use super::blocks::Content;
use super::line::{Line, Message, usage};
use super::{ClaudeMapper, Response, source_of};
use crate::import::loose::Key;
use crate::import::mapper::Mapped;
use crate::import::tree::Sibling;

impl ClaudeMapper<'_> {
    pub(super) fn assistant(&mut self, node: NodeId, line: &Line<'_>, mapped: &mut Mapped) {
        let Some(message) = line.message() else { return };
        let Some(content) = Content::read(message.content) else { return };
        // A response is known by its id alone: its lines share the request's id too, where there is one.
        let key = message.id.filled().map(Key::of);
        let known = key.and_then(|key| self.session.thread(node).responses.get(&key).copied());
        match known {
            Some(response) => self.extend(node, line, &message, content, response, mapped),
            None => self.respond(node, line, &message, content, mapped),
        }
    }

    fn respond(
        &mut self,
        node: NodeId,
        line: &Line<'_>,
        message: &Message<'_>,
        content: Content,
        mapped: &mut Mapped,
    ) {
        let place = self.enter(node, line, Sibling::Answer, mapped);
        // The client's own words about a failed request. No model said them, and none may be told them.
        let is_notice = message.model.as_str() == Some("<synthetic>") || line.is_api_error_message.is_set();
        let id = message.id.owned();
        let thread = self.session.thread(node);
        let mut numbers = thread.conversation.next_message();
        if is_notice {
            numbers.1 = thread.tree.add_aside(line.uuid.filled(), place, numbers.0);
        } else {
            thread.tree.add_message(line.uuid.filled(), place, numbers);
        }
        thread.conversation.add_calls(numbers, 0, &content.tool_calls);
        if let Some(id) = &id {
            let tool_calls = u32::try_from(content.tool_calls.len()).unwrap_or(u32::MAX);
            thread.responses.insert(Key::of(id), Response { message: numbers, tool_calls });
        }
        self.session.children.remember_calls(node, numbers.0, 0, &content.tool_calls);
        let appended = MessageAppended {
            message_no: numbers.0,
            role: Role::Assistant,
            audience: if is_notice { Audience::Person } else { Audience::Everyone },
            phase: None,
            name: None,
            parts: content.parts,
            tool_calls: content.tool_calls,
            tool_call_id: None,
            model: message.model.owned(),
            provider: ProviderIds { response: id, request: line.request_id.owned() },
            stop_reason: message.stop_reason.owned(),
            usage: usage(message.usage).filter(|_| !is_notice),
            extra: None,
            source: source_of(line),
        };
        mapped.push(node, appended);
    }

    fn extend(
        &mut self,
        node: NodeId,
        line: &Line<'_>,
        message: &Message<'_>,
        content: Content,
        response: Response,
        mapped: &mut Mapped,
    ) {
        let place = self.enter(node, line, Sibling::Other, mapped);
        let numbers = response.message;
        let thread = self.session.thread(node);
        thread.tree.add_piece(line.uuid.filled(), place, numbers);
        thread.conversation.add_calls(numbers, response.tool_calls, &content.tool_calls);
        let added = u32::try_from(content.tool_calls.len()).unwrap_or(u32::MAX);
        let tool_calls = response.tool_calls.saturating_add(added);
        if let Some(id) = message.id.filled() {
            thread.responses.insert(Key::of(id), Response { tool_calls, ..response });
        }
        self.session.children.remember_calls(node, numbers.0, response.tool_calls, &content.tool_calls);
        let extended = MessageExtended {
            message_no: numbers.0,
            parts: content.parts,
            tool_calls: content.tool_calls,
            stop_reason: message.stop_reason.owned(),
            usage: usage(message.usage),
            source: source_of(line),
        };
        mapped.push(node, extended);
    }
}
