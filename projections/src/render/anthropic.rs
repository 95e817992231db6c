//! Messages, as Anthropic documents it.
//!
//! - Instructions at the beginning are `system`. There is no system message further on: those in the middle are text of
//!   the user's between `<system>` marks.
//! - Messages of user and assistant alternate; neighbours of one role are one message. The first is the user's.
//! - The results of a message's calls stand at the beginning of the next user message ("`tool_use` ids were found
//!   without `tool_result` blocks immediately after").
//! - The input of a call is an object: other arguments are its text `_raw`.
//! - Text is never blank ("text content blocks must contain non-whitespace text"), and the last message does not end in
//!   white space where it is the assistant's ("final assistant content cannot end with trailing whitespace").
//! - Thinking, with its signature and byte for byte, and redacted thinking go back to the model that thought them,
//!   all those of a message or none. A message that has any begins with it ("If an assistant message contains any
//!   thinking blocks, the first block must be `thinking` or `redacted_thinking`", claude-code#20691) and ends with
//!   something else ("The final block in an assistant message cannot be `thinking`", forgecode#2107); what stands
//!   between is all there ("blocks in the latest assistant message cannot be modified", claude-code#63147). The thinking
//!   of earlier turns goes back too: the provider leaves out what it has no use for, and its cache holds. In the last
//!   message there is none, since an answer to be continued can't have any (forgecode#1195). An empty text is sent as
//!   empty: newer models sign thinking that they don't show.
//! - Searches and runs at the provider (`server_tool_use`) go back to the same model, each with its result or not at all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use sessionlog_codec::event::{CallForm, Part, Reasoning, ReasoningForm, ResultFlag, Role};
use sessionlog_codec::ids::Position;

use super::check::Head;
use super::ids::tool_name;
use super::json::{self, Shown};
use super::media::{Inline, Medium, Place};
use super::part::{Call, Piece, answered, calls, pieces};
use super::{Adjustment, CONTINUED, Job, Notes, What, Why, check};
use crate::context::ContextMessage;

#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: Speaker,
    content: Vec<Placed<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Speaker {
    User,
    Assistant,
}

/// A block and the record it comes from.
struct Placed<'a> {
    position: Position,
    block: Block<'a>,
}

impl Serialize for Placed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.block.serialize(serializer)
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
    },
    #[serde(rename = "text")]
    Instruction {
        text: Shown<Marked<'a>>,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: Cow<'a, str>,
        input: Input<'a>,
    },
    ToolResult {
        tool_use_id: &'a str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Block<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        is_error: Option<bool>,
    },
    #[serde(untagged)]
    Raw(&'a RawValue),
}

/// An instruction in the middle of the conversation.
struct Marked<'a>(Cow<'a, str>);

impl fmt::Display for Marked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<system>\n{}\n</system>", self.0)
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
    File { file_id: &'a str },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Borrowed(&'a RawValue),
    Owned(Box<RawValue>),
    Wrapped {
        #[serde(rename = "_raw")]
        text: Cow<'a, str>,
    },
}

impl Block<'_> {
    fn is_thinking(&self) -> bool {
        matches!(self, Self::Thinking { .. } | Self::RedactedThinking { .. })
    }
}

/// The body, and how many messages it has.
pub(super) fn body(job: &Job<'_>, notes: &mut Notes) -> (Vec<u8>, usize) {
    let body = Body { system: Vec::new(), messages: Vec::new() };
    let mut writer = Writer { job, notes, body, served: BTreeSet::new() };
    for message in job.context {
        writer.message(message);
    }
    writer.finish();
    let body = writer.body;
    let mut out = Vec::new();
    json::write(&mut out, &body);
    (out, body.messages.len())
}

struct Writer<'a, 'n> {
    job: &'n Job<'a>,
    notes: &'n mut Notes,
    body: Body<'a>,
    /// The ids of calls that the provider ran itself.
    served: BTreeSet<String>,
}

impl<'a> Writer<'a, '_> {
    fn message(&mut self, message: &'a ContextMessage) {
        self.notes.drop_labels(message, &[What::Name, What::Phase]);
        self.notes.drop_replay(self.job, message);
        let (speaker, blocks) = match message.role {
            Role::System | Role::Developer => match self.instruction(message) {
                Some(blocks) => (Speaker::User, blocks),
                None => return,
            },
            Role::User => (Speaker::User, self.user(message)),
            Role::Tool => (Speaker::User, vec![self.result(message)]),
            Role::Assistant => (Speaker::Assistant, self.assistant(message)),
        };
        self.push(message, speaker, blocks);
    }

    fn push(&mut self, message: &ContextMessage, speaker: Speaker, blocks: Vec<Block<'a>>) {
        let position = message.position;
        if blocks.is_empty() {
            self.notes.drop(position, What::Message, Why::Empty);
            return;
        }
        let mut content = blocks.into_iter().map(|block| Placed { position, block }).collect();
        match self.body.messages.last_mut() {
            Some(last) if last.role == speaker => last.content.append(&mut content),
            None if speaker == Speaker::Assistant => {
                let block = Block::Text { text: Cow::Borrowed(CONTINUED) };
                let inserted = Message { role: Speaker::User, content: vec![Placed { position, block }] };
                self.notes.adjust(position, Adjustment::UserInserted);
                self.body.messages.extend([inserted, Message { role: speaker, content }]);
            }
            _ => self.body.messages.push(Message { role: speaker, content }),
        }
    }

    /// Text for the middle of the conversation. `None` at its beginning: there it is in `system`.
    fn instruction(&mut self, message: &'a ContextMessage) -> Option<Vec<Block<'a>>> {
        let at_beginning = self.body.messages.is_empty();
        let before = self.body.system.len();
        let mut blocks = Vec::new();
        for (_, piece) in pieces(self.job, message, self.notes) {
            match piece {
                Piece::Text(text) if is_blank(&text) => {
                    self.notes.drop(message.position, What::Text, Why::Empty);
                }
                Piece::Text(text) if at_beginning => self.body.system.push(Block::Text { text }),
                Piece::Text(text) => blocks.push(Block::Instruction { text: Shown(Marked(text)) }),
                piece => self.notes.drop(message.position, piece.what(), Why::NoPlace),
            }
        }
        if at_beginning {
            if self.body.system.len() == before {
                self.notes.drop(message.position, What::Message, Why::Empty);
            }
            return None;
        }
        if !blocks.is_empty() {
            self.notes.adjust(message.position, Adjustment::InstructionAsUser);
        }
        Some(blocks)
    }

    fn user(&mut self, message: &'a ContextMessage) -> Vec<Block<'a>> {
        let mut blocks = Vec::new();
        for (_, piece) in pieces(self.job, message, self.notes) {
            blocks.extend(self.user_block(message.position, piece));
        }
        blocks
    }

    fn user_block(&mut self, position: Position, piece: Piece<'a>) -> Option<Block<'a>> {
        let what = piece.what();
        let block = match piece {
            Piece::Text(text) if is_blank(&text) => Err(Why::Empty),
            Piece::Text(text) => Ok(Block::Text { text }),
            Piece::Image(medium) => image(medium),
            Piece::File(medium) => document(medium),
            Piece::Reasoning(_) | Piece::Raw(..) => Err(Why::NoPlace),
        };
        block.map_err(|why| self.notes.drop(position, what, why)).ok()
    }

    fn result(&mut self, message: &'a ContextMessage) -> Block<'a> {
        Block::ToolResult {
            tool_use_id: answered(self.job, message),
            content: self.user(message),
            is_error: (message.flag == ResultFlag::Error).then_some(true),
        }
    }

    fn assistant(&mut self, message: &'a ContextMessage) -> Vec<Block<'a>> {
        let position = message.position;
        let pieces = pieces(self.job, message, self.notes);
        let served = self.served(message, &pieces);
        let mut blocks: Vec<(usize, Block<'a>)> = Vec::new();
        for (index, piece) in pieces {
            let what = piece.what();
            let block = match piece {
                Piece::Text(text) if is_blank(&text) => Err(Why::Empty),
                Piece::Text(text) => Ok(Block::Text { text }),
                Piece::Reasoning(reasoning) => thinking(reasoning),
                Piece::Raw(_, raw) if served.contains(&index) => Ok(Block::Raw(raw)),
                Piece::Raw(..) => Err(Why::NotTogether),
                Piece::Image(_) | Piece::File(_) => Err(Why::NoPlace),
            };
            match block {
                Ok(block) => blocks.push((index, block)),
                Err(why) => self.notes.drop(position, what, why),
            }
        }
        self.judge_thinking(message, &mut blocks);
        let calls = calls(self.job, message, self.notes);
        let calls = calls.into_iter().map(|(_, call)| self.tool_use(position, call));
        blocks.into_iter().map(|(_, block)| block).chain(calls).collect()
    }

    /// Keeps the thinking of a message together, or none of it.
    fn judge_thinking(&mut self, message: &ContextMessage, blocks: &mut Vec<(usize, Block<'a>)>) {
        if !blocks.iter().any(|(_, block)| block.is_thinking()) {
            return;
        }
        let starts = blocks.first().is_some_and(|(_, block)| block.is_thinking());
        let ends =
            message.tool_calls.is_empty() && blocks.last().is_some_and(|(_, block)| block.is_thinking());
        let continues = match self.body.messages.last() {
            Some(last) if last.role == Speaker::Assistant => {
                last.content.first().is_some_and(|placed| placed.block.is_thinking())
            }
            _ => true,
        };
        if !starts || ends || !continues || !is_whole(message, blocks) {
            blocks.retain(|(_, block)| !block.is_thinking());
            self.notes.drop(message.position, What::Reasoning, Why::NotTogether);
        }
    }

    /// Which raw blocks are calls that the provider ran itself, each followed by its result.
    fn served(&mut self, message: &ContextMessage, pieces: &[(usize, Piece<'_>)]) -> BTreeSet<usize> {
        let mut open: BTreeMap<&str, usize> = BTreeMap::new();
        let mut kept = BTreeSet::new();
        if !self.job.target.is(message.model.as_deref()) {
            return kept;
        }
        for (index, piece) in pieces {
            let Piece::Raw(head, _) = piece else { continue };
            match (head.kind.as_ref(), head.id.as_deref(), head.tool_use_id.as_deref()) {
                ("server_tool_use", Some(id), None)
                    if is_served_call(head) && !self.served.contains(id) && !self.job.ids.is_used(id) =>
                {
                    open.insert(id, *index);
                }
                (kind, None, Some(id)) if is_served_result(kind) && head.content.is_some() => {
                    if let Some(call) = open.remove(id) {
                        kept.extend([call, *index]);
                        self.served.insert(id.to_owned());
                    }
                }
                _ => {}
            }
        }
        kept
    }

    fn tool_use(&mut self, position: Position, call: Call<'a>) -> Block<'a> {
        let Call { id, name, arguments, form } = call;
        let input = match arguments {
            Cow::Borrowed(text) if form == CallForm::Function => {
                check::object(text).map_or(Input::Wrapped { text: Cow::Borrowed(text) }, Input::Borrowed)
            }
            Cow::Owned(text) if form == CallForm::Function => {
                match check::object(&text).map(RawValue::to_owned) {
                    Some(object) => Input::Owned(object),
                    None => Input::Wrapped { text: Cow::Owned(text) },
                }
            }
            text => Input::Wrapped { text },
        };
        if matches!(input, Input::Wrapped { .. }) {
            self.notes.adjust(position, Adjustment::ArgumentsWrapped);
        }
        Block::ToolUse { id, name, input }
    }

    /// What holds only of the last message, where it is an answer to be continued.
    fn finish(&mut self) {
        let Some(last) = self.body.messages.last_mut() else { return };
        if last.role != Speaker::Assistant {
            return;
        }
        last.content.retain(|placed| {
            let is_thinking = placed.block.is_thinking();
            if is_thinking {
                self.notes.drop(placed.position, What::Reasoning, Why::NoPlace);
            }
            !is_thinking
        });
        let Some(Placed { position, block: Block::Text { text } }) = last.content.last_mut() else { return };
        let trimmed = text.trim_end_matches(is_space).len();
        if trimmed < text.len() {
            match text {
                Cow::Borrowed(whole) => *whole = whole.get(..trimmed).unwrap_or(whole),
                Cow::Owned(whole) => whole.truncate(trimmed),
            }
            self.notes.adjust(*position, Adjustment::EndTrimmed);
        }
    }
}

/// Whether all thinking of `message` is in `blocks`, and all that stands between.
fn is_whole(message: &ContextMessage, blocks: &[(usize, Block<'_>)]) -> bool {
    let kept: BTreeSet<usize> = blocks.iter().map(|(index, _)| *index).collect();
    let is_thought = |part: &Part| match part {
        Part::Reasoning(reasoning) => reasoning.form != ReasoningForm::Summary,
        _ => false,
    };
    let first = message.parts.iter().position(is_thought).unwrap_or_default();
    let last = message.parts.iter().rposition(is_thought).unwrap_or_default();
    let mut between = message.parts.iter().enumerate().take(last.saturating_add(1)).skip(first);
    let is_shown_only = |part: &Part| matches!(part, Part::Reasoning(_)) && !is_thought(part);
    between.all(|(index, part)| kept.contains(&index) || is_shown_only(part))
}

fn thinking(reasoning: &Reasoning) -> Result<Block<'_>, Why> {
    let Reasoning { text, form } = reasoning;
    match form {
        ReasoningForm::Signed(Some(signature)) if !signature.is_empty() => {
            Ok(Block::Thinking { thinking: text, signature })
        }
        ReasoningForm::Signed(_) => Err(Why::NoSignature),
        ReasoningForm::Opaque(data) if !data.is_empty() => Ok(Block::RedactedThinking { data }),
        ReasoningForm::Opaque(_) => Err(Why::Empty),
        ReasoningForm::Plain => Err(Why::NoSignature),
        ReasoningForm::Summary => Err(Why::NoPlace),
    }
}

/// "server_tool_use.id: String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"
fn is_served_call(head: &Head<'_>) -> bool {
    let is_clean = |name: &str| tool_name(name, usize::MAX) == name;
    let is_id = |id: &str| {
        let own = id.strip_prefix("srvtoolu_").unwrap_or_default();
        is_clean(own) && !own.contains('-')
    };
    let is_object = head.input.is_some_and(|input| input.get().starts_with('{'));
    is_object && head.id.as_deref().is_some_and(is_id) && head.name.as_deref().is_some_and(is_clean)
}

/// `web_search_tool_result`, `bash_code_execution_tool_result` and the like.
fn is_served_result(kind: &str) -> bool {
    kind.ends_with("_tool_result") && !kind.starts_with("mcp_")
}

fn image(medium: Medium<'_>) -> Result<Block<'_>, Why> {
    let is_image = |inline: &Inline<'_>| inline.media_type.starts_with("image/");
    Ok(Block::Image { source: source(medium.place, is_image)? })
}

/// PDF only, in base64 or at a URL.
fn document(medium: Medium<'_>) -> Result<Block<'_>, Why> {
    let source = source(medium.place, |inline| inline.media_type == "application/pdf")?;
    let title = medium.name.filter(|name| !is_blank(name) && name.chars().count() <= 200);
    Ok(Block::Document { source, title })
}

fn source<'a>(place: Place<'a>, fits: impl Fn(&Inline<'a>) -> bool) -> Result<Source<'a>, Why> {
    match place {
        Place::Inline(inline) if fits(&inline) => {
            Ok(Source::Base64 { media_type: inline.media_type, data: inline.base64 })
        }
        // "Only HTTPS URLs are supported."
        Place::Url(url) if url.starts_with("https://") => Ok(Source::Url { url }),
        Place::AnthropicFile(file_id) => Ok(Source::File { file_id }),
        Place::Inline(_) | Place::Url(_) => Err(Why::NoPlace),
        Place::OpenAiFile(_) => Err(Why::OtherApi),
    }
}

fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

/// White space to the provider: to Python, the separators U+001C to U+001F are some too.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}
