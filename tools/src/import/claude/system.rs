//! System lines: only those about the context mean something here.

use serde::Deserialize;
use serde_json::value::RawValue;
use sessionlog_codec::event::{CompactionTrigger, ContextTrimmed, MessageRange};
use sessionlog_codec::ids::NodeId;

use super::line::Line;
use super::{Boundary, ClaudeMapper, Thread, source_of};
use crate::import::loose::{Text, count, list, part};
use crate::import::mapper::Mapped;
use crate::import::tree::add_to_ranges;

/// What Claude Code shows the model in place of a result that it cleared.
const CLEARED: &str = "[Old tool result content cleared]";

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CompactMetadata<'a> {
    #[serde(borrow, default)]
    trigger: Text<'a>,
    #[serde(borrow)]
    pre_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    post_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    preserved_messages: Option<&'a RawValue>,
    #[serde(borrow)]
    preserved_segment: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct PreservedMessages<'a> {
    #[serde(borrow)]
    uuids: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PreservedSegment<'a> {
    #[serde(borrow)]
    head_uuid: Text<'a>,
    #[serde(borrow)]
    tail_uuid: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MicrocompactMetadata<'a> {
    #[serde(borrow)]
    tokens_saved: Option<&'a RawValue>,
    #[serde(borrow)]
    compacted_tool_ids: Option<&'a RawValue>,
}

impl ClaudeMapper<'_> {
    pub(super) fn system(&mut self, node: NodeId, line: &Line<'_>, mapped: &mut Mapped) {
        match line.subtype.as_str() {
            Some("compact_boundary") => self.boundary(node, line),
            Some("microcompact_boundary") => self.trimmed(node, line, mapped),
            _ => {}
        }
    }

    /// The summary comes with the next user line; until then the context is the old one.
    fn boundary(&mut self, node: NodeId, line: &Line<'_>) {
        let thread = self.session.thread(node);
        // The boundary's parent is null, although all that came before leads to it.
        thread.tree.link_to_end(line.uuid.filled());
        let metadata: CompactMetadata<'_> = part(line.compact_metadata).unwrap_or_default();
        let is_manual = metadata.trigger.as_str() == Some("manual");
        thread.boundary = Some(Boundary {
            uuid: line.uuid.owned(),
            trigger: if is_manual { CompactionTrigger::Manual } else { CompactionTrigger::Auto },
            tokens_before: count(metadata.pre_tokens),
            tokens_after: count(metadata.post_tokens),
            kept: kept(thread, &metadata),
        });
    }

    fn trimmed(&mut self, node: NodeId, line: &Line<'_>, mapped: &mut Mapped) {
        let Some(metadata) = part::<MicrocompactMetadata<'_>>(line.microcompact_metadata) else { return };
        let conversation = &self.session.thread(node).conversation;
        let ids: Vec<Text<'_>> = list(metadata.compacted_tool_ids).unwrap_or_default();
        let ids = ids.iter().filter_map(Text::filled);
        let calls: Vec<_> = ids.filter_map(|id| conversation.find(id)).map(|known| known.call).collect();
        if calls.is_empty() {
            return;
        }
        let trimmed = ContextTrimmed {
            calls,
            placeholder: CLEARED.to_owned(),
            tokens_saved: count(metadata.tokens_saved),
            source: source_of(line),
        };
        mapped.push(node, trimmed);
    }
}

/// The messages that a compaction keeps verbatim. If one of them is not in the file, it is left out.
fn kept(thread: &Thread, metadata: &CompactMetadata<'_>) -> Vec<MessageRange> {
    if let Some(preserved) = part::<PreservedMessages<'_>>(metadata.preserved_messages) {
        let uuids: Vec<Text<'_>> = list(preserved.uuids).unwrap_or_default();
        let uuids = uuids.iter().filter_map(Text::filled);
        let mut messages: Vec<_> = uuids.filter_map(|uuid| thread.tree.message(uuid)).collect();
        messages.sort_unstable();
        let mut ranges = Vec::new();
        messages.into_iter().for_each(|message| add_to_ranges(&mut ranges, message));
        return ranges;
    }
    let Some(segment) = part::<PreservedSegment<'_>>(metadata.preserved_segment) else { return Vec::new() };
    let message = |uuid: &Text<'_>| thread.tree.message(uuid.filled()?);
    match (message(&segment.head_uuid), message(&segment.tail_uuid)) {
        (Some(first), Some(last)) if first <= last => vec![MessageRange { first, last }],
        _ => Vec::new(),
    }
}
