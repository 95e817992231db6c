//! The model context: what a provider may be sent, for every prefix of every log.
//!
//! It is read off the live path of a conversation: the chain of messages, compactions, resets and new runs from the
//! head back to the root.
//!
//! - A new run or a reset hides all before it. A withdrawn message is left out, with the results of its calls.
//! - A compaction puts in place of all before it: the system and developer messages that the run begins with; the
//!   summary; the messages it keeps, verbatim, as far as they were in the context until then. A later compaction
//!   replaces the summary of an earlier one.
//! - Each assistant message with calls is followed by exactly one result for each call, in call order, and no result is
//!   anywhere else. The first result recorded for a call is shown, or what an unknown outcome was resolved to, or the
//!   placeholder of a result that was cleared. A call without any gets a synthetic error that says why.
//! - Reasoning that needs a signature and has none, display summaries of reasoning, and empty text are left out, and
//!   messages that have nothing left with them. The log keeps all of it.
//! - Call ids are unique within one context: a repeated or empty one is replaced, in call and result alike.

use std::collections::BTreeSet;

use sessionlog_codec::event::{
    ContextCompacted, MessageRange, Part, Reasoning, ReasoningForm, ResultFlag, Role, ToolCall,
};
use sessionlog_codec::ids::{CallRef, MessageNo, Position};

use crate::conversation::{Body, CallSlot, Content, Conversation, Message, Record, Shown, Standing};
use crate::tree::Provenance;

/// The text of the result of a call that started and was never heard of again.
const OUTCOME_UNKNOWN: &str = "The outcome of this call is unknown: it was started, and no result was recorded. It may \
     or may not have taken effect, and it was not run again. Check before you repeat it.";
/// The text of the result of a call that was asked for and never started.
const NOT_RUN: &str = "This call was not run: the session was interrupted before it started.";
/// The text of the result of an imported call that has none.
const NO_RESULT: &str = "No result was recorded for this call.";
/// The text of the result of a call whose result can't be read any more, or not by this version.
const ERASED: &str = "The result of this call is not available any more.";

/// One message of a model context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextMessage {
    /// Who speaks. [`Role::Tool`]: a result.
    pub role: Role,
    /// What is said. May be empty in a result and in an assistant message with calls.
    pub parts: Vec<Part>,
    /// The calls of an assistant message, with their ids as they are in this context.
    pub tool_calls: Vec<ToolCall>,
    /// The id of the call that a result answers, as it is in this context.
    pub tool_call_id: Option<String>,
    /// Whether a result is an error to the model.
    pub flag: ResultFlag,
    /// The message; for a result, that of its call; `None` for a summary.
    pub message_no: Option<MessageNo>,
    /// The call that a result answers.
    pub call: Option<CallRef>,
    /// The record it comes from; for a synthetic result, that of its call's message.
    pub position: Position,
    /// Whether it was recorded so.
    pub origin: ContextOrigin,
    /// The model that said it, or that wrote the summary.
    pub model: Option<String>,
    /// The speaker's name, where roles are shared.
    pub name: Option<String>,
    /// Which part of the model's answer it is, where the provider says.
    pub phase: Option<String>,
}

/// Where a message of a context comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContextOrigin {
    /// It was recorded, by the host or an importer.
    Recorded,
    /// It is made up for this context, so that a call has its result.
    Synthetic(SyntheticReason),
    /// It is the summary of a compaction.
    Summary,
}

/// Why a result had to be made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyntheticReason {
    /// The call was started, and nobody knows what it did.
    OutcomeUnknown,
    /// The call was not started.
    NotRun,
    /// The call was imported without a result.
    NoResult,
    /// The result was erased, or is of a newer version.
    Erased,
}

impl SyntheticReason {
    /// The reason in lower case.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::OutcomeUnknown => "outcome_unknown",
            Self::NotRun => "not_run",
            Self::NoResult => "no_result",
            Self::Erased => "erased",
        }
    }

    /// What the model is told.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::OutcomeUnknown => OUTCOME_UNKNOWN,
            Self::NotRun => NOT_RUN,
            Self::NoResult => NO_RESULT,
            Self::Erased => ERASED,
        }
    }
}

impl Conversation {
    /// The context as of now.
    pub(crate) fn context(&self, provenance: Provenance) -> Vec<ContextMessage> {
        let mut builder = Builder { conversation: self, provenance, used: BTreeSet::new(), out: Vec::new() };
        for index in self.window() {
            let Some(record) = self.records.get(index) else { continue };
            match &record.body {
                Body::Message(message) => builder.message(record, message),
                Body::Compaction(compacted) => builder.summary(record, compacted),
                _ => {}
            }
        }
        builder.out
    }

    /// The records that the context is made of, in its order: messages, and the compaction whose summary is shown.
    fn window(&self) -> Vec<usize> {
        let mut window = Vec::new();
        for step in self.path.live() {
            let Some(index) = self.steps.get(step).copied() else { continue };
            match self.records.get(index).map(|record| &record.body) {
                Some(Body::Run(_) | Body::Reset(_)) => window.clear(),
                Some(Body::Message(_)) => window.push(index),
                Some(Body::Compaction(compacted)) => self.compact(&mut window, index, compacted),
                _ => {}
            }
        }
        self.leave_out_withdrawn(&mut window, self.records.len());
        window
    }

    /// Leaves out what was withdrawn before the record `by`. What is withdrawn later was there for a compaction, which
    /// must not mean something else afterwards.
    fn leave_out_withdrawn(&self, window: &mut Vec<usize>, by: usize) {
        window.retain(|index| match self.message_at(*index).map(|message| message.standing) {
            Some(Standing::Withdrawn(before)) => before > by,
            Some(Standing::Said) | None => true,
        });
    }

    fn compact(&self, window: &mut Vec<usize>, index: usize, compacted: &ContextCompacted) {
        self.leave_out_withdrawn(window, index);
        let pinned = window.iter().take_while(|index| self.is_instruction(**index)).count();
        let rest = window.split_off(pinned);
        window.push(index);
        let kept = Ranges::of(&compacted.kept);
        window.extend(rest.into_iter().filter(|index| {
            self.message_at(*index).is_some_and(|message| kept.contain(message.said.message_no))
        }));
    }

    fn is_instruction(&self, index: usize) -> bool {
        let role = self.message_at(index).map(|message| message.said.role);
        matches!(role, Some(Role::System | Role::Developer))
    }
}

/// Ranges in an order in which a number is found quickly, whatever order a log has them in.
pub(crate) struct Ranges(Vec<MessageRange>);

impl Ranges {
    pub(crate) fn of(ranges: &[MessageRange]) -> Self {
        let mut sorted = ranges.to_vec();
        sorted.sort_by_key(|range| range.first);
        // Each range reaches at least as far as those before it: then the last one that begins in time decides.
        let mut reach = MessageNo(0);
        for range in &mut sorted {
            reach = reach.max(range.last);
            if range.first <= range.last {
                range.last = reach;
            }
        }
        Self(sorted)
    }

    pub(crate) fn contain(&self, message_no: MessageNo) -> bool {
        let begun = self.0.partition_point(|range| range.first <= message_no);
        let last = begun.checked_sub(1).and_then(|index| self.0.get(index));
        last.is_some_and(|range| message_no <= range.last)
    }
}

struct Builder<'a> {
    conversation: &'a Conversation,
    provenance: Provenance,
    /// The call ids of this context.
    used: BTreeSet<String>,
    out: Vec<ContextMessage>,
}

impl Builder<'_> {
    fn message(&mut self, record: &Record, message: &Message) {
        let said = &message.said;
        let parts = usable(&said.parts);
        let ids: Vec<String> =
            message.calls().map(|(call, asked, _)| self.unique_id(&asked.call_id, call)).collect();
        if parts.is_empty() && ids.is_empty() {
            return;
        }
        let tool_calls = message.calls().zip(&ids).map(|((_, asked, _), id)| called(asked, id)).collect();
        self.out.push(ContextMessage {
            role: said.role,
            parts,
            tool_calls,
            tool_call_id: None,
            flag: ResultFlag::Normal,
            message_no: Some(said.message_no),
            call: None,
            position: record.position,
            origin: ContextOrigin::Recorded,
            model: said.model.clone(),
            name: said.name.clone(),
            phase: said.phase.clone(),
        });
        for ((call, _, slot), id) in message.calls().zip(ids) {
            self.result(record, message, call, slot, id);
        }
    }

    fn result(&mut self, record: &Record, message: &Message, call: CallRef, slot: &CallSlot, id: String) {
        let (position, flag, parts, origin) = match &slot.result {
            Some(shown) => self.shown(shown, slot.placeholder.as_deref()),
            None => self.made_up(record.position, self.reason(message, slot)),
        };
        self.out.push(ContextMessage {
            role: Role::Tool,
            parts,
            tool_calls: Vec::new(),
            tool_call_id: Some(id),
            flag,
            message_no: Some(call.message_no),
            call: Some(call),
            position,
            origin,
            model: None,
            name: None,
            phase: None,
        });
    }

    fn shown(
        &self,
        shown: &Shown,
        placeholder: Option<&str>,
    ) -> (Position, ResultFlag, Vec<Part>, ContextOrigin) {
        let parts = match (placeholder, &shown.content) {
            (Some(placeholder), _) => usable(&[Part::text(placeholder)]),
            (None, Content::Resolved(parts)) => usable(parts),
            (None, Content::Sealed) => return self.made_up(shown.position, SyntheticReason::Erased),
            (None, Content::Record(index)) => match self.conversation.records.get(*index) {
                Some(Record { body: Body::Result(finished, _), .. }) => usable(&finished.parts),
                _ => Vec::new(),
            },
        };
        (shown.position, shown.flag, parts, ContextOrigin::Recorded)
    }

    fn made_up(
        &self,
        position: Position,
        reason: SyntheticReason,
    ) -> (Position, ResultFlag, Vec<Part>, ContextOrigin) {
        let parts = vec![Part::text(reason.text())];
        (position, ResultFlag::Error, parts, ContextOrigin::Synthetic(reason))
    }

    fn reason(&self, message: &Message, slot: &CallSlot) -> SyntheticReason {
        if slot.started.is_some() {
            SyntheticReason::OutcomeUnknown
        } else if self.provenance == Provenance::Imported || message.said.source.is_some() {
            // Other agents do not record starts, so "not run" would be a guess.
            SyntheticReason::NoResult
        } else {
            SyntheticReason::NotRun
        }
    }

    fn summary(&mut self, record: &Record, compacted: &ContextCompacted) {
        let parts = usable(&compacted.summary);
        if parts.is_empty() {
            return;
        }
        let role = match compacted.summary_role {
            role @ (Role::System | Role::Developer | Role::User) => role,
            // A summary is no answer of the model's and no result.
            Role::Assistant | Role::Tool => Role::User,
        };
        self.out.push(ContextMessage {
            role,
            parts,
            tool_calls: Vec::new(),
            tool_call_id: None,
            flag: ResultFlag::Normal,
            message_no: None,
            call: None,
            position: record.position,
            origin: ContextOrigin::Summary,
            model: compacted.model.clone(),
            name: None,
            phase: None,
        });
    }

    /// The id that a call has in this context: its own, unless another call has it already or it is empty.
    fn unique_id(&mut self, call_id: &str, call: CallRef) -> String {
        if !call_id.is_empty() && self.used.insert(call_id.to_owned()) {
            return call_id.to_owned();
        }
        let clean = |c: &char| c.is_ascii_alphanumeric() || *c == '_' || *c == '-';
        // Providers allow 64 characters; the numbers below need up to 24 of them in any log of this world.
        let stem: String = call_id.chars().filter(clean).take(40).collect();
        let stem = if stem.is_empty() { "call" } else { &stem };
        let mut id = format!("{stem}-{}-{}", call.message_no, call.tool_index);
        // Only damage repeats these numbers too. More ids than there are in use can't be taken already.
        let mut round = self.used.len();
        while !self.used.insert(id.clone()) {
            round = round.saturating_add(1);
            id = format!("{stem}-{}-{}-{round}", call.message_no, call.tool_index);
        }
        id
    }
}

fn called(asked: &ToolCall, id: &str) -> ToolCall {
    let name = if asked.name.is_empty() { "unknown".to_owned() } else { asked.name.clone() };
    ToolCall { call_id: id.to_owned(), name, ..asked.clone() }
}

/// The parts that a provider takes.
fn usable(parts: &[Part]) -> Vec<Part> {
    parts.iter().filter(|part| is_usable(part)).cloned().collect()
}

fn is_usable(part: &Part) -> bool {
    match part {
        Part::Text(text) => !text.is_empty(),
        Part::Reasoning(Reasoning { form, text }) => match form {
            ReasoningForm::Plain => !text.is_empty(),
            ReasoningForm::Signed(signature) => signature.as_ref().is_some_and(|it| !it.is_empty()),
            ReasoningForm::Opaque(data) => !data.is_empty(),
            ReasoningForm::Summary => false,
        },
        Part::Image(_) | Part::File(_) => true,
        Part::Raw(bytes) => !bytes.is_empty(),
    }
}
