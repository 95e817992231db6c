//! Chat Completions, as OpenAI documents it and its many imitators take it.
//!
//! - Content that is all text is one string, its parts joined by line ends: DeepSeek and others take nothing else.
//!   Images and files are parts, and the user's only ("Image URLs are only allowed for messages with role 'user'"):
//!   those of a result go into a user message behind the results.
//! - The content of an assistant message is null only if it has calls.
//! - Arguments are a string, byte for byte, whether it is JSON or not.
//! - Tool messages stand directly behind the calls, one for each. Errors have no mark of their own.
//! - Reasoning in plain text goes back as `reasoning_content` to the model that wrote it. DeepSeek refuses an assistant
//!   message with calls that has none ("The reasoning_content in the thinking mode must be passed back to the API"),
//!   also where the model thought nothing or another model called (deepseek-harness#739): there it is empty.
//! - `extra_content` of a call goes back to the same model: Gemini keeps its thought signature there and refuses a call
//!   without it.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sessionlog_codec::event::{CallForm, Reasoning, ReasoningForm, Role, ToolCall};
use sessionlog_codec::ids::Position;

use super::json::{self, Shown};
use super::media::{Inline, Link, Medium, Place};
use super::part::{Call, Piece, answered, calls, pieces};
use super::{Adjustment, Job, Notes, What, Why, check};
use crate::context::ContextMessage;
use crate::words::role_word;

#[derive(Serialize)]
struct Body<'a> {
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    content: Option<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<Shown<Joined<'a>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallBlock<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Shown<Joined<'a>>),
    Parts(Vec<Part<'a>>),
}

/// Texts with line ends between them.
struct Joined<'a>(Vec<Cow<'a, str>>);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for text in &self.0 {
            f.write_str(between)?;
            f.write_str(text)?;
            between = "\n";
        }
        Ok(())
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
    File { file: File<'a> },
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: Link<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum File<'a> {
    Data { filename: &'a str, file_data: Inline<'a> },
    Id { file_id: &'a str },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CallBlock<'a> {
    Function {
        id: &'a str,
        function: Function<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        extra_content: Option<&'a RawValue>,
    },
    Custom {
        id: &'a str,
        custom: Custom<'a>,
    },
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
}

#[derive(Serialize)]
struct Custom<'a> {
    name: Cow<'a, str>,
    input: Cow<'a, str>,
}

/// The body, and how many messages it has.
pub(super) fn body(job: &Job<'_>, notes: &mut Notes) -> (Vec<u8>, usize) {
    let mut writer = Writer { job, notes, messages: Vec::new(), moved: Vec::new() };
    for message in job.context {
        writer.message(message);
    }
    writer.flush_moved();
    let body = Body { messages: writer.messages };
    let mut out = Vec::new();
    json::write(&mut out, &body);
    (out, body.messages.len())
}

struct Writer<'a, 'n> {
    job: &'n Job<'a>,
    notes: &'n mut Notes,
    messages: Vec<Message<'a>>,
    /// What results hold that only a user message can.
    moved: Vec<Part<'a>>,
}

impl<'a> Writer<'a, '_> {
    fn message(&mut self, message: &'a ContextMessage) {
        self.notes.drop_labels(message, &[What::Phase, What::ErrorFlag]);
        self.notes.drop_replay(self.job, message);
        if message.role != Role::Tool {
            self.flush_moved();
        }
        match message.role {
            Role::System | Role::Developer | Role::User => self.said(message),
            Role::Assistant => self.assistant(message),
            Role::Tool => self.result(message),
        }
    }

    fn said(&mut self, message: &'a ContextMessage) {
        let mut parts = Vec::new();
        for (_, piece) in pieces(self.job, message, self.notes) {
            match (piece, message.role) {
                (Piece::Text(text), _) => parts.push(Part::Text { text }),
                (piece, Role::User) => parts.extend(self.user_part(message.position, piece)),
                (piece, _) => self.notes.drop(message.position, piece.what(), Why::NoPlace),
            }
        }
        let content = content(parts);
        if content.is_none() {
            self.notes.drop(message.position, What::Message, Why::Empty);
            return;
        }
        let name = self.name(message);
        self.messages.push(Message { name, content, ..Message::of(message.role) });
    }

    /// "Invalid 'messages[0].name': string does not match pattern '^[^\s<|\\/>]+$'", and at most 64 characters.
    fn name(&mut self, message: &'a ContextMessage) -> Option<&'a str> {
        let name = message.name.as_deref()?;
        let fits = |c: char| !c.is_whitespace() && !c.is_control() && !"<|\\/>".contains(c);
        if !name.is_empty() && name.chars().count() <= 64 && name.chars().all(fits) {
            return Some(name);
        }
        self.notes.drop(message.position, What::Name, Why::Malformed);
        None
    }

    fn assistant(&mut self, message: &'a ContextMessage) {
        let (mut texts, mut thoughts) = (Vec::new(), Vec::new());
        for (_, piece) in pieces(self.job, message, self.notes) {
            match piece {
                Piece::Text(text) => texts.push(text),
                Piece::Reasoning(Reasoning { text, form: ReasoningForm::Plain }) => {
                    thoughts.push(Cow::Borrowed(text.as_str()));
                }
                piece => self.notes.drop(message.position, piece.what(), Why::NoPlace),
            }
        }
        let own = self.job.target.is(message.model.as_deref());
        let tool_calls: Vec<_> = calls(self.job, message, self.notes)
            .into_iter()
            .map(|(asked, call)| call_block(call, own.then_some(asked)))
            .collect();
        if texts.is_empty() && tool_calls.is_empty() {
            if !thoughts.is_empty() {
                self.notes.drop(message.position, What::Reasoning, Why::NotTogether);
            }
            self.notes.drop(message.position, What::Message, Why::Empty);
            return;
        }
        let is_deepseek =
            self.job.target.provider.as_deref().is_some_and(|it| it.eq_ignore_ascii_case("deepseek"));
        let needed = !thoughts.is_empty() || is_deepseek && !tool_calls.is_empty();
        let reasoning_content = needed.then_some(Shown(Joined(thoughts)));
        let content = (!texts.is_empty()).then_some(Content::Text(Shown(Joined(texts))));
        let name = self.name(message);
        let message = Message { name, content, reasoning_content, tool_calls, ..Message::of(message.role) };
        self.messages.push(message);
    }

    fn result(&mut self, message: &'a ContextMessage) {
        let id = answered(self.job, message);
        let (mut texts, mut moved) = (Vec::new(), Vec::new());
        for (_, piece) in pieces(self.job, message, self.notes) {
            match piece {
                Piece::Text(text) => texts.push(text),
                piece => moved.extend(self.user_part(message.position, piece)),
            }
        }
        if !moved.is_empty() {
            self.notes.adjust(message.position, Adjustment::MovedBehindResults);
            self.moved.push(Part::Text { text: Cow::Owned(format!("From the result of {id}:")) });
            self.moved.append(&mut moved);
        }
        let content = Some(Content::Text(Shown(Joined(texts))));
        self.messages.push(Message { content, tool_call_id: Some(id), ..Message::of(Role::Tool) });
    }

    fn flush_moved(&mut self) {
        let content = content(std::mem::take(&mut self.moved));
        if content.is_some() {
            self.messages.push(Message { content, ..Message::of(Role::User) });
        }
    }

    fn user_part(&mut self, position: Position, piece: Piece<'a>) -> Option<Part<'a>> {
        let what = piece.what();
        let part = match piece {
            Piece::Text(text) => Ok(Part::Text { text }),
            Piece::Image(medium) => image(medium),
            Piece::File(medium) => file(medium),
            Piece::Reasoning(_) | Piece::Raw(..) => Err(Why::NoPlace),
        };
        part.map_err(|why| self.notes.drop(position, what, why)).ok()
    }
}

impl Message<'_> {
    fn of(role: Role) -> Self {
        Self {
            role: role_word(role),
            name: None,
            content: None,
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
        }
    }
}

fn content(parts: Vec<Part<'_>>) -> Option<Content<'_>> {
    if parts.is_empty() {
        return None;
    }
    if parts.iter().any(|part| !matches!(part, Part::Text { .. })) {
        return Some(Content::Parts(parts));
    }
    let texts = parts.into_iter().filter_map(|part| match part {
        Part::Text { text } => Some(text),
        _ => None,
    });
    Some(Content::Text(Shown(Joined(texts.collect()))))
}

fn image(medium: Medium<'_>) -> Result<Part<'_>, Why> {
    let url = match medium.place {
        Place::Inline(inline) if inline.media_type.starts_with("image/") => Link::Data(inline),
        Place::Url(url) => Link::Web(url),
        Place::AnthropicFile(_) => return Err(Why::OtherApi),
        Place::Inline(_) | Place::OpenAiFile(_) => return Err(Why::NoPlace),
    };
    let detail = medium.detail.filter(|it| ["auto", "low", "high"].contains(it));
    Ok(Part::ImageUrl { image_url: ImageUrl { url, detail } })
}

/// Only PDF is documented, and no URL.
fn file(medium: Medium<'_>) -> Result<Part<'_>, Why> {
    let file = match medium.place {
        Place::Inline(file_data) if file_data.media_type == "application/pdf" => {
            File::Data { filename: medium.name.unwrap_or("file.pdf"), file_data }
        }
        Place::OpenAiFile(file_id) => File::Id { file_id },
        Place::AnthropicFile(_) => return Err(Why::OtherApi),
        Place::Inline(_) | Place::Url(_) => return Err(Why::NoPlace),
    };
    Ok(Part::File { file })
}

/// `asked`: the call as its own model made it, where that is the one the request is for.
fn call_block<'a>(call: Call<'a>, asked: Option<&'a ToolCall>) -> CallBlock<'a> {
    let Call { id, name, arguments, form } = call;
    match form {
        CallForm::Function => {
            let function = Function { name, arguments };
            CallBlock::Function { id, function, extra_content: asked.and_then(extra_content) }
        }
        CallForm::Custom => CallBlock::Custom { id, custom: Custom { name, input: arguments } },
    }
}

fn extra_content(asked: &ToolCall) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Extra<'a> {
        #[serde(borrow)]
        extra_content: &'a RawValue,
    }
    let text = asked.extra.as_ref()?.as_str()?;
    check::object(text)?;
    let extra: Extra<'_> = serde_json::from_str(text).ok()?;
    Some(extra.extra_content).filter(|it| it.get().starts_with('{'))
}
