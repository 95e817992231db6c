//! The parts of a message, as far as any provider takes them.

use std::borrow::Cow;

use serde_json::value::RawValue;
use sessionlog_codec::event::{CallForm, Part, Reasoning, ReasoningForm, Role, ToolCall};
use sessionlog_codec::ids::Position;

use super::check::{self, Head};
use super::ids::tool_name;
use super::media::{self, Medium, Resolved};
use super::{Adjustment, Job, Notes, What, Why};
use crate::context::ContextMessage;

/// A part that some provider takes.
pub(super) enum Piece<'a> {
    /// Never empty.
    Text(Cow<'a, str>),
    Image(Medium<'a>),
    File(Medium<'a>),
    /// The model's that the request is for.
    Reasoning(&'a Reasoning),
    /// A block of its own kind, of JSON that can be spliced.
    Raw(Head<'a>, &'a RawValue),
}

impl Piece<'_> {
    /// What it is called when it is left out.
    pub(super) fn what(&self) -> What {
        match self {
            Self::Text(_) => What::Text,
            Self::Image(_) => What::Image,
            Self::File(_) => What::File,
            Self::Reasoning(_) => What::Reasoning,
            Self::Raw(..) => What::Block,
        }
    }
}

/// The usable parts of `message`, each with its index among the parts.
pub(super) fn pieces<'a>(
    job: &Job<'a>,
    message: &'a ContextMessage,
    notes: &mut Notes,
) -> Vec<(usize, Piece<'a>)> {
    let numbered = message.parts.iter().enumerate();
    numbered.filter_map(|(index, part)| Some((index, piece(job, message, part, notes)?))).collect()
}

fn piece<'a>(
    job: &Job<'a>,
    message: &'a ContextMessage,
    part: &'a Part,
    notes: &mut Notes,
) -> Option<Piece<'a>> {
    let position = message.position;
    match part {
        Part::Text(text) if text.is_empty() => {
            notes.drop(position, What::Text, Why::Empty);
            None
        }
        Part::Text(text) => Some(Piece::Text(Cow::Borrowed(text))),
        Part::Reasoning(reasoning) => {
            let why = if message.role != Role::Assistant || reasoning.form == ReasoningForm::Summary {
                Why::NoPlace
            } else if job.target.is(message.model.as_deref()) {
                return Some(Piece::Reasoning(reasoning));
            } else {
                Why::OtherModel
            };
            notes.drop(position, What::Reasoning, why);
            None
        }
        Part::Image(it) => medium(media::image(it), it.name.as_deref(), What::Image, position, notes),
        Part::File(it) => medium(media::file(it), it.name.as_deref(), What::File, position, notes),
        Part::Raw(bytes) => {
            let head = bytes.as_str().and_then(check::head);
            if head.is_none() {
                notes.drop(position, What::Block, Why::Malformed);
            }
            let (mut head, raw) = head?;
            // OpenAI's `{"type":"refusal","refusal":"..."}`: it is what the model said, whoever is sent it.
            match head.refusal.take() {
                Some(refusal) if head.kind == "refusal" && !refusal.is_empty() => {
                    notes.adjust(position, Adjustment::RefusalAsText);
                    Some(Piece::Text(Cow::Owned(refusal)))
                }
                _ => Some(Piece::Raw(head, raw)),
            }
        }
    }
}

fn medium<'a>(
    resolved: Resolved<'a>,
    name: Option<&str>,
    what: What,
    position: Position,
    notes: &mut Notes,
) -> Option<Piece<'a>> {
    match resolved {
        Resolved::Medium(medium) if what == What::Image => Some(Piece::Image(medium)),
        Resolved::Medium(medium) => Some(Piece::File(medium)),
        Resolved::Artifact(receipt) => {
            notes.adjust(position, Adjustment::ArtifactAsText);
            Some(Piece::Text(Cow::Owned(media::artifact_text(name, receipt))))
        }
        Resolved::Malformed => {
            notes.drop(position, what, Why::Malformed);
            None
        }
    }
}

/// A call as a provider takes it.
pub(super) struct Call<'a> {
    pub(super) id: &'a str,
    pub(super) name: Cow<'a, str>,
    /// As received, but for bytes that are not UTF-8. Empty arguments of a function are `{}`.
    pub(super) arguments: Cow<'a, str>,
    pub(super) form: CallForm,
}

/// The calls of `message`, in order.
pub(super) fn calls<'a>(
    job: &Job<'a>,
    message: &'a ContextMessage,
    notes: &mut Notes,
) -> Vec<(&'a ToolCall, Call<'a>)> {
    message.tool_calls.iter().map(|call| (call, rendered_call(job, message.position, call, notes))).collect()
}

fn rendered_call<'a>(job: &Job<'a>, position: Position, call: &'a ToolCall, notes: &mut Notes) -> Call<'a> {
    let id = job.ids.get(&call.call_id);
    if job.ids.is_replaced(&call.call_id) {
        let how = Adjustment::IdReplaced { from: call.call_id.clone(), to: id.to_owned() };
        notes.adjust(position, how);
    }
    let name = tool_name(&call.name, job.target.api.longest_name());
    if name != call.name {
        let how = Adjustment::NameReplaced { from: call.name.clone(), to: name.clone().into_owned() };
        notes.adjust(position, how);
    }
    let mut arguments = call.arguments.to_text();
    if matches!(arguments, Cow::Owned(_)) {
        notes.adjust(position, Adjustment::ArgumentsDecoded);
    }
    if call.form == CallForm::Function && arguments.trim().is_empty() {
        notes.adjust(position, Adjustment::ArgumentsFilled);
        arguments = Cow::Borrowed("{}");
    }
    Call { id, name, arguments, form: call.form }
}

/// The id of the call that a result answers.
pub(super) fn answered<'a>(job: &Job<'a>, message: &'a ContextMessage) -> &'a str {
    job.ids.get(message.tool_call_id.as_deref().unwrap_or_default())
}
