//! The visible transcript: everything that was said in a conversation, in log order. Compaction, rewind, withdrawal and
//! clearing mark entries; they remove none.

use std::collections::BTreeSet;

use sessionlog_codec::event::{
    CallFinished, CallResolved, ContextCompacted, GapMarked, MessageAppended, MessageExtended, Role,
    RunReason,
};
use sessionlog_codec::ids::{CallRef, KindNo, MessageNo, Position, Timestamp};

use crate::conversation::{Answer, Body, Conversation, Message, Record, SealedPlace, Standing};
use crate::path::Step;

/// One entry of a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptEntry {
    /// Where it stands in the log.
    pub position: Position,
    /// When it happened: informational.
    pub timestamp: Timestamp,
    /// The message that it is, or that its call belongs to.
    pub message_no: Option<MessageNo>,
    /// The call that it answers.
    pub call: Option<CallRef>,
    /// How it stands to the conversation as it goes on now.
    pub mark: Mark,
    /// What it is.
    pub body: EntryBody,
}

/// How an entry stands to the conversation as it goes on now. The first of the marks that applies, from the last one
/// upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// It is a part of it (though a compaction may have taken it out of the model's sight).
    Live,
    /// It is on a branch that was left.
    OffBranch,
    /// Its message was taken back.
    Withdrawn,
    /// A result of a call that had its result already.
    Duplicate,
    /// A result, or a later piece of a message, whose call or message is not in the log.
    Orphan,
}

impl Mark {
    /// The mark in lower case.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::OffBranch => "off_branch",
            Self::Withdrawn => "withdrawn",
            Self::Duplicate => "duplicate",
            Self::Orphan => "orphan",
        }
    }
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryBody {
    /// A message, with all its later pieces.
    Message(Box<MessageAppended>),
    /// The result of a call, with its tool's name where the call is known.
    Result(Box<CallFinished>, Option<String>),
    /// An unknown outcome was settled.
    Resolution(Box<CallResolved>),
    /// The context was compacted here: what is above left the model's sight but for what was kept.
    Compaction(Box<ContextCompacted>),
    /// A new conversation begins in the same node.
    Run(RunReason),
    /// The model's context was emptied, for this reason.
    Reset(String),
    /// Records are missing here.
    Gap(GapMarked),
    /// A message whose content was erased, or is of a newer version. The kind says which of both.
    SealedMessage(KindNo),
    /// A result whose content was erased, or is of a newer version.
    SealedResult(KindNo),
    /// A later piece of a message that is not there.
    Piece(Box<MessageExtended>),
}

impl TranscriptEntry {
    /// Who speaks; `None` for entries that are no messages or can't be read.
    #[must_use]
    pub fn role(&self) -> Option<Role> {
        match &self.body {
            EntryBody::Message(message) => Some(message.role),
            EntryBody::Result(..) | EntryBody::SealedResult(_) => Some(Role::Tool),
            _ => None,
        }
    }

    /// Whether it counts as a message: one for each `message.appended` and `call.finished`.
    #[must_use]
    pub fn is_message(&self) -> bool {
        matches!(
            self.body,
            EntryBody::Message(_)
                | EntryBody::Result(..)
                | EntryBody::SealedMessage(_)
                | EntryBody::SealedResult(_)
        )
    }
}

impl Conversation {
    /// All entries, in log order.
    pub(crate) fn transcript(&self) -> Vec<TranscriptEntry> {
        let live: BTreeSet<Step> = self.path.live().into_iter().collect();
        self.records.iter().map(|record| self.entry(record, &live)).collect()
    }

    /// At most `limit` entries behind `after`, in log order.
    pub(crate) fn transcript_page(&self, after: Position, limit: usize) -> Vec<TranscriptEntry> {
        let live: BTreeSet<Step> = self.path.live().into_iter().collect();
        let behind = self.records.iter().filter(|record| record.position > after);
        behind.take(limit).map(|record| self.entry(record, &live)).collect()
    }

    fn entry(&self, record: &Record, live: &BTreeSet<Step>) -> TranscriptEntry {
        let branch = branch_of(record.step, live);
        let (message_no, call, mark, body) = match &record.body {
            Body::Message(message) => {
                let mark = if message.said.role == Role::Tool { Mark::Orphan } else { message.mark(branch) };
                let said = EntryBody::Message(Box::new(message.said.clone()));
                (Some(message.said.message_no), None, mark, said)
            }
            Body::Result(finished, answer) => {
                let (mark, name) = self.answer(finished, *answer, live);
                let body = EntryBody::Result(finished.clone(), name);
                (Some(finished.call.message_no), Some(finished.call), mark, body)
            }
            Body::Resolution(resolved, index) => {
                let mark = index.map_or(Mark::Orphan, |index| self.mark_of_call(index, live));
                let body = EntryBody::Resolution(resolved.clone());
                (Some(resolved.call.message_no), Some(resolved.call), mark, body)
            }
            Body::Compaction(compacted) => (None, None, branch, EntryBody::Compaction(compacted.clone())),
            Body::Run(reason) => (None, None, branch, EntryBody::Run(*reason)),
            Body::Reset(reason) => (None, None, branch, EntryBody::Reset(reason.clone())),
            Body::Gap(gap) => (None, None, Mark::Live, EntryBody::Gap(gap.clone())),
            Body::Sealed { kind, place: SealedPlace::Message(number) } => {
                (Some(*number), None, branch, EntryBody::SealedMessage(*kind))
            }
            Body::Sealed { kind, place: SealedPlace::Result(answered) } => {
                let call = answered.map(|(call, _)| call);
                let mark = answered.map_or(Mark::Orphan, |(_, index)| self.mark_of_call(index, live));
                (call.map(|call| call.message_no), call, mark, EntryBody::SealedResult(*kind))
            }
            Body::Piece(piece) => {
                (Some(piece.message_no), None, Mark::Orphan, EntryBody::Piece(piece.clone()))
            }
        };
        let (position, timestamp) = (record.position, record.timestamp);
        TranscriptEntry { position, timestamp, message_no, call, mark, body }
    }

    /// How a result stands, and its tool's name.
    fn answer(
        &self,
        finished: &CallFinished,
        answer: Answer,
        live: &BTreeSet<Step>,
    ) -> (Mark, Option<String>) {
        let (index, mark) = match answer {
            Answer::First(index) => (index, self.mark_of_call(index, live)),
            Answer::Second(index) => (index, Mark::Duplicate),
            Answer::Orphan => return (Mark::Orphan, None),
        };
        let calls = self.message_at(index).map(|message| message.said.tool_calls.as_slice());
        let tool = usize::try_from(finished.call.tool_index.0).ok();
        let name = tool.and_then(|tool| calls?.get(tool)).map(|call| call.name.clone());
        (mark, name)
    }

    /// How the call of the message at `index` stands. Its result is where the call is, wherever the head was when the
    /// result came.
    fn mark_of_call(&self, index: usize, live: &BTreeSet<Step>) -> Mark {
        let Some(message) = self.message_at(index) else { return Mark::Orphan };
        let step = self.records.get(index).and_then(|record| record.step);
        message.mark(branch_of(step, live))
    }
}

fn branch_of(step: Option<Step>, live: &BTreeSet<Step>) -> Mark {
    if step.is_none_or(|step| live.contains(&step)) { Mark::Live } else { Mark::OffBranch }
}

impl Message {
    fn mark(&self, branch: Mark) -> Mark {
        match self.standing {
            Standing::Withdrawn(_) => Mark::Withdrawn,
            Standing::Said => branch,
        }
    }
}
