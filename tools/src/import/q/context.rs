//! The context of a session file, put in terms of its transcript, and what that means for the conversation.

use sessionlog_codec::event::{
    CompactionTrigger, ContextCompacted, ContextReset, ContextTrimmed, Event, MessageRange, Part, Role,
};
use sessionlog_codec::ids::{CallRef, MessageNo, ToolIndex};
use sessionlog_projections::views::q::{KeptContext, Message, Piece, Place};

use super::transcript::{NOTES_MAX, Slot, Transcript};
use crate::import::tree::add_to_ranges;

/// Finds the elements of a context in the transcript, from the end: what was said last is in both. Gives what could not
/// be read, too.
pub(crate) fn aligned(context: &[&[u8]], transcript: &Transcript) -> (KeptContext, Vec<String>) {
    let mut before = transcript.len();
    let mut found = Vec::new();
    let mut notes = Vec::new();
    for (index, bytes) in context.iter().enumerate().rev() {
        let index = u64::try_from(index).unwrap_or(u64::MAX);
        let place = Place::element(transcript.file(), "context", index);
        let element = match Message::parse(bytes, transcript.version(), &place) {
            Ok(message) => transcript.find(&message, before),
            Err(error) => {
                notes.push(format!("an element was recorded and not read: {error}"));
                None
            }
        };
        before = element.unwrap_or(before);
        found.push((element, *bytes, place));
    }
    let empty = KeptContext::whole(transcript.version(), 0);
    let mut kept = KeptContext { transcript: transcript.len(), ..empty };
    for (element, bytes, place) in found.into_iter().rev() {
        match element {
            Some(element) => kept.push_element(element),
            None => {
                if let Err(error) = kept.push_message(bytes, &place) {
                    notes.push(format!("an element was left out: {error}"));
                }
            }
        }
    }
    let more = notes.len().saturating_sub(NOTES_MAX);
    notes.truncate(NOTES_MAX);
    if more > 0 {
        notes.push(format!("{more} more elements of the context were recorded and not read"));
    }
    (kept, notes)
}

/// What it means that a context is `now`, and was `before`: nothing, if it grew by what was said since.
pub(crate) fn context_events(
    before: Option<&KeptContext>,
    now: &KeptContext,
    transcript: &Transcript,
) -> Vec<Event> {
    let whole = KeptContext::whole(now.version, 0);
    let expected = before.unwrap_or(&whole).grown(now.transcript);
    if now.pieces == expected.pieces {
        return Vec::new();
    }
    let mut reading = Reading::default();
    for piece in &now.pieces {
        match piece {
            Piece::Elements(first, last) => {
                (*first..=*last).for_each(|element| reading.element(transcript.slot(element)));
            }
            Piece::Message(json) => {
                if let Some(message) = now.message(json) {
                    reading.message(&message, transcript);
                }
            }
        }
    }
    reading.events(transcript)
}

/// A context that is being read.
#[derive(Default)]
struct Reading {
    kept: Vec<MessageRange>,
    summary: Vec<Part>,
    role: Option<Role>,
    trimmed: Vec<ContextTrimmed>,
    /// The call whose result would come next.
    next: Option<CallRef>,
}

impl Reading {
    fn element(&mut self, slot: Option<Slot>) {
        match slot {
            Some(Slot::Message(message_no)) => {
                add_to_ranges(&mut self.kept, message_no);
                self.next = Some(CallRef { message_no, tool_index: ToolIndex(0) });
            }
            Some(Slot::Result(call)) => self.next = after(call),
            None => self.next = None,
        }
    }

    /// A message that is not in the transcript: a result that was cleared, or a summary.
    fn message(&mut self, message: &Message, transcript: &Transcript) {
        let parts = message.to_parts();
        if message.role == Role::Tool
            && let Some(call) = self.next.filter(|call| transcript.has_result(*call))
        {
            self.next = after(call);
            let placeholder = text_of(&parts);
            match self.trimmed.last_mut().filter(|last| last.placeholder == placeholder) {
                Some(last) => last.calls.push(call),
                None => {
                    let calls = vec![call];
                    self.trimmed.push(ContextTrimmed {
                        calls,
                        placeholder,
                        tokens_saved: None,
                        source: None,
                    });
                }
            }
            return;
        }
        self.next = None;
        self.role.get_or_insert(message.role);
        self.summary.extend(parts);
    }

    fn events(self, transcript: &Transcript) -> Vec<Event> {
        let replaced = between(&self.kept, transcript.last());
        let trimmed = self.trimmed.into_iter().map(Event::from);
        if replaced.is_empty() && self.summary.is_empty() {
            return trimmed.collect();
        }
        // A compaction leaves the instructions that a conversation begins with; where even they are gone, it was a reset.
        let is_reset =
            self.kept.is_empty() && (self.summary.is_empty() || transcript.begins_with_instruction());
        let reset = ContextReset { reason: "q's context has nothing of what was said before".to_owned() };
        let reset = is_reset.then(|| Event::from(reset));
        if self.summary.is_empty() && is_reset {
            return reset.into_iter().collect();
        }
        let role = match self.role {
            Some(role @ (Role::System | Role::Developer | Role::User)) => role,
            Some(Role::Assistant | Role::Tool) | None => Role::System,
        };
        let compacted = ContextCompacted {
            compaction_id: String::new(),
            summary: self.summary,
            summary_role: role,
            kept: self.kept,
            replaced,
            tokens_before: None,
            tokens_after: None,
            trigger: CompactionTrigger::Auto,
            model: None,
            usage: None,
            inputs: None,
            source: None,
        };
        reset.into_iter().chain([compacted.into()]).chain(trimmed).collect()
    }
}

/// The messages up to `last` that are in none of the ranges, which ascend.
fn between(ranges: &[MessageRange], last: MessageNo) -> Vec<MessageRange> {
    let mut between = Vec::new();
    let mut first = MessageNo(1);
    for range in ranges {
        if first < range.first {
            between.push(MessageRange { first, last: MessageNo(range.first.0.saturating_sub(1)) });
        }
        first = range.last.next().unwrap_or(range.last);
    }
    if first <= last {
        between.push(MessageRange { first, last });
    }
    between
}

fn after(call: CallRef) -> Option<CallRef> {
    Some(CallRef { tool_index: call.tool_index.next()?, ..call })
}

fn text_of(parts: &[Part]) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) => Some(text.clone()),
        _ => None,
    };
    parts.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}
