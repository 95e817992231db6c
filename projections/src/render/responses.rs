//! Responses, as OpenAI documents it.
//!
//! - The input is a flat list of items. What an assistant said is `output_text`, what others said `input_text`;
//!   images and files are the user's, or in the output of a call.
//! - A call is an item of its own, and so is its output, by `call_id`. Outputs have no mark for errors.
//! - The provider's own items of a message are spliced byte for byte in place of its rendering, white space included,
//!   if they are of this model and API and would not be refused: see [`replay_item`](super::replay_item). Reasoning goes
//!   back in them only: it can't be made of parts.
//! - `phase` is kept: newer models answer worse without it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sessionlog_codec::event::{CallForm, Role};
use sessionlog_codec::ids::Position;

use super::json;
use super::media::{Inline, Link, Medium, Place};
use super::part::{Call, Piece, answered, calls, pieces};
use super::{Job, Notes, What, Why, replay_item};
use crate::context::ContextMessage;
use crate::words::role_word;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        role: &'static str,
        content: Vec<Part<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'a str>,
    },
    FunctionCall {
        call_id: &'a str,
        name: Cow<'a, str>,
        arguments: Cow<'a, str>,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: Output<'a>,
    },
    CustomToolCall {
        call_id: &'a str,
        name: Cow<'a, str>,
        input: Cow<'a, str>,
    },
    CustomToolCallOutput {
        call_id: &'a str,
        output: Output<'a>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText { text: Cow<'a, str> },
    OutputText { text: Cow<'a, str> },
    InputImage(Image<'a>),
    InputFile(File<'a>),
}

#[derive(Serialize)]
struct Image<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    image_url: Option<Link<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

#[derive(Default, Serialize)]
struct File<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_data: Option<Inline<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_id: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

/// The body, and how many items it has.
pub(super) fn body(job: &Job<'_>, notes: &mut Notes) -> (Vec<u8>, usize) {
    let out = br#"{"input":["#.to_vec();
    let seen = BTreeSet::new();
    let mut writer = Writer { job, notes, seen, forms: BTreeMap::new(), out, items: 0 };
    for message in job.context {
        writer.message(message);
    }
    let Writer { mut out, items, .. } = writer;
    out.extend_from_slice(b"]}");
    (out, items)
}

struct Writer<'a, 'n> {
    job: &'n Job<'a>,
    notes: &'n mut Notes,
    /// The ids of the provider's own items.
    seen: BTreeSet<String>,
    /// The calls of the last assistant message, and how each is framed.
    forms: BTreeMap<&'a str, CallForm>,
    out: Vec<u8>,
    items: usize,
}

impl<'a> Writer<'a, '_> {
    fn message(&mut self, message: &'a ContextMessage) {
        self.notes.drop_labels(message, &[What::Name, What::ErrorFlag]);
        match message.role {
            Role::System | Role::Developer | Role::User => self.said(message),
            Role::Assistant => self.assistant(message),
            Role::Tool => self.result(message),
        }
    }

    fn said(&mut self, message: &'a ContextMessage) {
        let mut content = Vec::new();
        for (_, piece) in pieces(self.job, message, self.notes) {
            match (piece, message.role) {
                (Piece::Text(text), _) => content.push(Part::InputText { text }),
                (piece, Role::User) => content.extend(self.input_part(message.position, piece)),
                (piece, _) => self.notes.drop(message.position, piece.what(), Why::NoPlace),
            }
        }
        if content.is_empty() {
            self.notes.drop(message.position, What::Message, Why::Empty);
            return;
        }
        self.notes.drop_labels(message, &[What::Phase]);
        self.item(&Item::Message { role: role_word(message.role), content, phase: None });
    }

    fn assistant(&mut self, message: &'a ContextMessage) {
        let mut notes = Notes::default();
        let calls: Vec<Call<'a>> =
            calls(self.job, message, &mut notes).into_iter().map(|(_, call)| call).collect();
        self.forms = calls.iter().map(|call| (call.id, call.form)).collect();
        if let Some(items) = self.job.replay.of(message) {
            match replay_item::check(self.job, &items, &calls, &mut self.seen) {
                Ok(()) => {
                    items.items.iter().for_each(|item| self.splice(&item.0));
                    return;
                }
                Err(why) => self.notes.drop(message.position, What::ReplayItems, why),
            }
        }
        self.notes.adjusted.append(&mut notes.adjusted);
        self.answer(message);
        for Call { id: call_id, name, arguments, form } in calls {
            self.item(&match form {
                CallForm::Function => Item::FunctionCall { call_id, name, arguments },
                CallForm::Custom => Item::CustomToolCall { call_id, name, input: arguments },
            });
        }
    }

    fn answer(&mut self, message: &'a ContextMessage) {
        let mut content = Vec::new();
        for (_, piece) in pieces(self.job, message, self.notes) {
            match piece {
                Piece::Text(text) => content.push(Part::OutputText { text }),
                piece => self.notes.drop(message.position, piece.what(), Why::NoPlace),
            }
        }
        if content.is_empty() {
            if message.tool_calls.is_empty() {
                self.notes.drop(message.position, What::Message, Why::Empty);
            }
            return;
        }
        let phase = message.phase.as_deref().filter(|it| ["commentary", "final_answer"].contains(it));
        if message.phase.is_some() && phase.is_none() {
            self.notes.drop(message.position, What::Phase, Why::Malformed);
        }
        self.item(&Item::Message { role: role_word(message.role), content, phase });
    }

    fn result(&mut self, message: &'a ContextMessage) {
        let call_id = answered(self.job, message);
        let mut parts = Vec::new();
        for (_, piece) in pieces(self.job, message, self.notes) {
            match piece {
                Piece::Text(text) => parts.push(Part::InputText { text }),
                piece => parts.extend(self.input_part(message.position, piece)),
            }
        }
        let output = match parts.pop() {
            None => Output::Text(Cow::Borrowed("")),
            Some(Part::InputText { text }) if parts.is_empty() => Output::Text(text),
            Some(last) => {
                parts.push(last);
                Output::Parts(parts)
            }
        };
        self.item(&match self.forms.get(call_id).copied().unwrap_or_default() {
            CallForm::Function => Item::FunctionCallOutput { call_id, output },
            CallForm::Custom => Item::CustomToolCallOutput { call_id, output },
        });
    }

    fn input_part(&mut self, position: Position, piece: Piece<'a>) -> Option<Part<'a>> {
        let what = piece.what();
        let part = match piece {
            Piece::Text(text) => Ok(Part::InputText { text }),
            Piece::Image(medium) => image(medium),
            Piece::File(medium) => file(medium),
            Piece::Reasoning(_) | Piece::Raw(..) => Err(Why::NoPlace),
        };
        part.map_err(|why| self.notes.drop(position, what, why)).ok()
    }

    fn item(&mut self, item: &Item<'_>) {
        self.comma();
        json::write(&mut self.out, item);
    }

    fn splice(&mut self, item: &[u8]) {
        self.comma();
        self.out.extend_from_slice(item);
    }

    fn comma(&mut self) {
        if self.items > 0 {
            self.out.push(b',');
        }
        self.items = self.items.saturating_add(1);
    }
}

fn image(medium: Medium<'_>) -> Result<Part<'_>, Why> {
    let detail = medium.detail.filter(|it| ["auto", "low", "high"].contains(it));
    let (image_url, file_id) = match medium.place {
        Place::Inline(inline) if inline.media_type.starts_with("image/") => (Some(Link::Data(inline)), None),
        Place::Inline(_) => return Err(Why::NoPlace),
        Place::Url(url) => (Some(Link::Web(url)), None),
        Place::OpenAiFile(id) => (None, Some(id)),
        Place::AnthropicFile(_) => return Err(Why::OtherApi),
    };
    Ok(Part::InputImage(Image { image_url, file_id, detail }))
}

fn file(medium: Medium<'_>) -> Result<Part<'_>, Why> {
    let file = match medium.place {
        Place::Inline(inline) => {
            let filename = Some(medium.name.unwrap_or("file"));
            File { filename, file_data: Some(inline), ..File::default() }
        }
        Place::Url(url) => File { file_url: Some(url), ..File::default() },
        Place::OpenAiFile(id) => File { file_id: Some(id), ..File::default() },
        Place::AnthropicFile(_) => return Err(Why::OtherApi),
    };
    Ok(Part::InputFile(file))
}
