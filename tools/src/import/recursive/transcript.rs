//! Transcripts and checkpoints.

use serde::Deserialize;
use serde_json::value::RawValue;
use sessionlog_codec::event::{
    CheckpointReferenced, CompactionTrigger, ContextCompacted, MessageAppended, MessageRange, Part, Role,
};
use sessionlog_codec::ids::{NodeId, Timestamp};

use super::entry::Entry;
use crate::import::conversation::{Conversation, ToolResult};
use crate::import::lines::Record;
use crate::import::loose::{Text, list, object, time};
use crate::import::mapper::{Clock, Mapped, Mapper, NotOneValue, map_object};
use crate::import::tree::add_to_ranges;

/// How the line begins that holds a compaction's summary.
const SUMMARY: &str = "[compacted:";

/// Maps a transcript: the lines of `transcript.jsonl`, bare messages, or the messages of an older document.
#[derive(Debug)]
pub(in crate::import) struct Transcript {
    conversation: Conversation,
    clock: Clock,
    /// A boundary whose summary comes next, with the id it gives the summary.
    boundary: Option<String>,
    /// The messages that the model is shown, besides a summary.
    live: Vec<MessageRange>,
}

impl Transcript {
    /// `first` is the time of messages that come before any that has one.
    pub(in crate::import) fn new(first: Option<Timestamp>) -> Self {
        let conversation = Conversation::new(NodeId::ROOT);
        Self { conversation, clock: Clock::new(first), boundary: None, live: Vec::new() }
    }

    fn map_entry(&mut self, entry: &Entry<'_>) -> Mapped {
        let stamp = self.clock.stamp(time(&entry.timestamp));
        if entry.is_boundary() {
            let mut mapped = Mapped::new("compact_boundary", stamp);
            self.close_boundary(Vec::new(), None, &mut mapped);
            self.boundary = Some(entry.summary_uuid.owned().unwrap_or_default());
            return mapped;
        }
        let Some(role) = entry.role.filled() else {
            return Mapped::new(entry.kind.filled().unwrap_or("unknown"), stamp);
        };
        let mut mapped = Mapped::new(role, stamp);
        let parts = entry.parts();
        if self.boundary.is_some() && entry.role() == Role::System && is_summary(&parts) {
            self.close_boundary(parts, Some(entry), &mut mapped);
            return mapped;
        }
        self.close_boundary(Vec::new(), None, &mut mapped);
        if entry.role() == Role::Tool {
            self.result(entry, parts, stamp.timestamp, &mut mapped);
        } else {
            self.message(entry, parts, &mut mapped);
        }
        mapped
    }

    /// Compacts, if a boundary came before. Without a summary the older messages just leave the context.
    fn close_boundary(&mut self, summary: Vec<Part>, entry: Option<&Entry<'_>>, mapped: &mut Mapped) {
        let Some(id) = self.boundary.take() else { return };
        self.conversation.next_anchor();
        let source = entry.and_then(Entry::source);
        let own = source.as_ref().and_then(|source| source.id.clone());
        let compacted = ContextCompacted {
            compaction_id: if id.is_empty() { own.unwrap_or_default() } else { id },
            summary,
            summary_role: Role::System,
            kept: Vec::new(),
            replaced: std::mem::take(&mut self.live),
            tokens_before: None,
            tokens_after: None,
            trigger: CompactionTrigger::Auto,
            model: None,
            usage: None,
            inputs: None,
            source,
        };
        mapped.push(self.conversation.node(), compacted);
    }

    fn message(&mut self, entry: &Entry<'_>, parts: Vec<Part>, mapped: &mut Mapped) {
        let numbers = self.conversation.next_message();
        add_to_ranges(&mut self.live, numbers.0);
        let role = entry.role();
        let tool_calls = if role == Role::Assistant { entry.tool_calls() } else { Vec::new() };
        self.conversation.add_calls(numbers, 0, &tool_calls);
        let usage = entry.usage();
        let message = MessageAppended::text(numbers.0, role, "");
        let source = entry.source();
        mapped
            .push(self.conversation.node(), MessageAppended { parts, tool_calls, usage, source, ..message });
    }

    fn result(&mut self, entry: &Entry<'_>, parts: Vec<Part>, own: Option<Timestamp>, mapped: &mut Mapped) {
        let node = self.conversation.node();
        let (audit, flag) = entry.audit(own);
        let call_id = entry.tool_call_id.owned().unwrap_or_default();
        let source = entry.source();
        let result = ToolResult { call_id, flag, parts, audit };
        match self.conversation.finish(result, &source.clone().unwrap_or_default()) {
            Ok((finished, _)) => mapped.push(node, finished),
            Err(orphan) => {
                let numbers = self.conversation.next_message();
                add_to_ranges(&mut self.live, numbers.0);
                let message = MessageAppended::text(numbers.0, Role::Tool, "");
                let tool_call_id = Some(orphan.call_id);
                mapped.push(node, MessageAppended { parts: orphan.parts, tool_call_id, source, ..message });
            }
        }
    }
}

fn is_summary(parts: &[Part]) -> bool {
    parts.iter().any(|part| matches!(part, Part::Text(text) if text.starts_with(SUMMARY)))
}

impl Mapper for Transcript {
    fn map(&mut self, record: &Record<'_>) -> Result<Mapped, NotOneValue> {
        let mapped = map_object(record, |text| Some(self.map_entry(&Entry::decode(text)?)))?;
        Ok(mapped.unwrap_or_else(|| Mapped::new("json", self.clock.stamp(None))))
    }
}

/// Maps `checkpoints.jsonl`.
#[derive(Debug)]
pub(in crate::import) struct Checkpoints {
    clock: Clock,
}

impl Checkpoints {
    pub(in crate::import) fn new(first: Option<Timestamp>) -> Self {
        Self { clock: Clock::new(first) }
    }
}

/// One line of them.
#[derive(Deserialize)]
struct Checkpoint<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    // What `id` was called once.
    #[serde(borrow, default)]
    post: Text<'a>,
    #[serde(borrow, default)]
    pre: Text<'a>,
    #[serde(borrow, default)]
    message: Text<'a>,
    #[serde(borrow)]
    touched_files: Option<&'a RawValue>,
    #[serde(borrow, default)]
    saved_at: Text<'a>,
    #[serde(borrow, default)]
    finished_at: Text<'a>,
}

impl Checkpoints {
    fn map_checkpoint(&mut self, checkpoint: &Checkpoint<'_>) -> Mapped {
        let own = time(&checkpoint.saved_at).or(time(&checkpoint.finished_at));
        let mut mapped = Mapped::new("checkpoint", self.clock.stamp(own));
        if let Some(id) = checkpoint.id.owned().or(checkpoint.post.owned()) {
            let referenced = CheckpointReferenced {
                id,
                before: checkpoint.pre.owned(),
                message_no: None,
                touched_files: list(checkpoint.touched_files).unwrap_or_default(),
                note: checkpoint.message.owned().unwrap_or_default(),
                invocation: None,
            };
            mapped.push(NodeId::ROOT, referenced);
        }
        mapped
    }
}

impl Mapper for Checkpoints {
    fn map(&mut self, record: &Record<'_>) -> Result<Mapped, NotOneValue> {
        let decode = |text: &str| object(text).map(|it| self.map_checkpoint(&it));
        let mapped = map_object(record, decode)?;
        Ok(mapped.unwrap_or_else(|| Mapped::new("json", self.clock.stamp(None))))
    }
}
