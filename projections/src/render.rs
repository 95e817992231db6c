//! A context as the body of a provider's request, for the three forms that providers take; and the rules of each
//! provider, [executable](validate_anthropic).
//!
//! [`render`] takes a context that passes [`validate_pairing`](crate::validate_pairing), which every context of a
//! [`TreeState`](crate::TreeState) does, and writes a body that its provider does not refuse. What a provider has no
//! place for is left out, never the message around it; all that was left out or changed is listed beside the body.
//! The same context gives the same bytes, and a longer context the same beginning, so that prompt caches hold.
//!
//! Rules that all three share:
//!
//! - **Strings** are UTF-8, so no half of a surrogate pair can be in one. Escapes of such halves occur in bytes that a
//!   model or tool wrote (arguments, raw blocks, replay items): as text they are kept (`\\ud83d`), as JSON they are
//!   not spliced. NUL is kept, as `\u0000`: the providers take it, and a store that does not must say so itself.
//!   U+0085, U+2028 and U+2029 are escaped.
//! - **Empty content** is left out, and a message that has nothing left with it. A result stays, empty.
//! - **Reasoning** goes back only to the model that thought it, and only in the form that its provider checks.
//! - **Call ids** are `[A-Za-z0-9_-]`, at most 40 (Chat) or 64 characters: others are replaced in call and result by
//!   one that is made of the old one, so it stays the same from request to request. **Tool names** are the same set.
//! - **Images** are PNG, JPEG, GIF or WebP, in base64 or at a URL. The type that the bytes show goes before the
//!   declared one, since a wrong one is refused. An artifact is not in the log: its preview is sent as text.
//! - A **file id** belongs to the provider that gave it: `file_...` to Anthropic, every other to OpenAI.

mod anthropic;
mod chat;
mod check;
mod ids;
mod json;
mod media;
mod part;
mod replay;
mod replay_item;
mod responses;
mod rules;
mod words;

use std::fmt;
use std::str::FromStr;

use sessionlog_codec::event::{Part, ResultFlag, Role};
use sessionlog_codec::ids::Position;

use crate::context::{ContextMessage, ContextOrigin};
pub use replay::{NodeReplay, Replay, ReplayItems};
pub use rules::{RuleBroken, validate_anthropic, validate_chat, validate_responses};

use ids::Ids;

/// A form of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI's Chat Completions, and all that speak it: `chat`.
    ChatCompletions,
    /// OpenAI's Responses: `responses`.
    Responses,
    /// Anthropic's Messages: `anthropic`.
    AnthropicMessages,
}

impl Api {
    /// The word for it, as `replay.attached` and `affinity.set` use it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat",
            Self::Responses => "responses",
            Self::AnthropicMessages => "anthropic",
        }
    }

    /// The longest call id that it takes. Chat: "string too long. Expected a string with maximum length 40"
    /// (agno#5382, autogen#6377). Responses: the same with 64. Anthropic names no limit.
    fn longest_id(self) -> usize {
        match self {
            Self::ChatCompletions => 40,
            Self::Responses | Self::AnthropicMessages => 64,
        }
    }

    /// The longest tool name: `^[a-zA-Z0-9_-]{1,64}$` at OpenAI, 128 at Anthropic.
    fn longest_name(self) -> usize {
        match self {
            Self::ChatCompletions | Self::Responses => 64,
            Self::AnthropicMessages => 128,
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Api {
    type Err = UnknownApi;

    fn from_str(word: &str) -> Result<Self, UnknownApi> {
        let all = [Self::ChatCompletions, Self::Responses, Self::AnthropicMessages];
        all.into_iter().find(|api| api.word() == word).ok_or_else(|| UnknownApi(word.to_owned()))
    }
}

/// A word that names no [`Api`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no API: chat, responses or anthropic")]
pub struct UnknownApi(pub String);

/// Whom a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The form of the request.
    pub api: Api,
    /// The model, as messages name it that it said.
    pub model: String,
    /// The provider, where it is known (`anthropic`, `deepseek`). A router's name of the model, `provider/model`, then
    /// means the same model; and `deepseek` gets the empty reasoning that it asks for.
    pub provider: Option<String>,
}

impl Target {
    /// Whether `model` is the one that the request is for.
    fn is(&self, model: Option<&str>) -> bool {
        let Some(model) = model else { return false };
        if model == self.model {
            return !model.is_empty();
        }
        let routed = self.provider.as_deref().and_then(|provider| model.strip_prefix(provider));
        routed.and_then(|rest| rest.strip_prefix('/')).is_some_and(|rest| rest == self.model)
    }
}

/// The body of a request, and what became of the context in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendering {
    /// JSON in UTF-8: `{"messages":[...]}` (Chat), `{"input":[...]}` (Responses), `{"system":[...],"messages":[...]}`
    /// (Anthropic). The host adds model, tools and settings.
    pub body: Vec<u8>,
    /// Messages or items in the body. Providers refuse a body with none: there is nothing to send yet.
    pub messages: usize,
    /// What of the context is not in the body.
    pub dropped: Vec<Dropped>,
    /// What is in the body in another form than in the context.
    pub adjusted: Vec<Adjusted>,
}

/// Something of the context that is not in the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The record of its message.
    pub position: Position,
    /// What it is.
    pub what: What,
    /// Why it is not sent.
    pub why: Why,
}

/// What was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum What {
    /// A message as a whole: nothing of it was left.
    Message,
    /// A text.
    Text,
    /// Reasoning.
    Reasoning,
    /// An image.
    Image,
    /// A file.
    File,
    /// A block of a kind of its own.
    Block,
    /// The provider's own items; the message was rendered from its parts instead.
    ReplayItems,
    /// The name of the speaker.
    Name,
    /// Which part of the answer a message is.
    Phase,
    /// That a result is an error. Its text is there.
    ErrorFlag,
}

/// Why it was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// It is empty, or blank where blank is refused.
    Empty,
    /// It belongs to another model.
    OtherModel,
    /// It belongs to another API or provider.
    OtherApi,
    /// The provider has no place for it there.
    NoPlace,
    /// It is refused without its signature.
    NoSignature,
    /// It is kept only together with something else that is not there.
    NotTogether,
    /// It is not what its kind must be: broken base64, a URL that is none, JSON that can't be read.
    Malformed,
    /// Its calls are not those of the message, or have other ids in this context.
    CallsDiffer,
    /// It was in the request already.
    Repeated,
}

/// Something that is in the body in another form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adjusted {
    /// The record of its message.
    pub position: Position,
    /// How it was changed.
    pub how: Adjustment,
}

/// How something was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Adjustment {
    /// A call has another id, in call and result alike.
    IdReplaced {
        /// The id in the context.
        from: String,
        /// The id in the body.
        to: String,
    },
    /// A call has another tool name.
    NameReplaced {
        /// The name in the context.
        from: String,
        /// The name in the body.
        to: String,
    },
    /// Arguments that are no JSON object are the text `_raw` of one.
    ArgumentsWrapped,
    /// Empty arguments are `{}`.
    ArgumentsFilled,
    /// Arguments that are not UTF-8 have U+FFFD in their place.
    ArgumentsDecoded,
    /// A user message that says "(continued)" was put in, since the first message must be the user's, or since there was
    /// none at all.
    UserInserted,
    /// Images of a result are in a user message behind the results.
    MovedBehindResults,
    /// Instructions in the middle of the conversation are marked text of the user's.
    InstructionAsUser,
    /// White space at the end of the last message was cut.
    EndTrimmed,
    /// An artifact is the text of its preview.
    ArtifactAsText,
    /// A refusal is ordinary text.
    RefusalAsText,
}

/// What the user says where a provider wants a message of the user's and the context has none.
const CONTINUED: &str = "(continued)";

/// Renders `context` for `target`. `replay` is that of the same node, folded from the same events.
///
/// No provider takes a request without a message, so one is made up where the context has nothing to show: after a clear,
/// or where only the system has spoken to a provider that takes its words elsewhere. [`Adjustment::UserInserted`] says so.
///
/// A context that breaks [`validate_pairing`](crate::validate_pairing) gives a body that breaks the provider's rules.
#[must_use]
pub fn render(context: &[ContextMessage], replay: &NodeReplay, target: &Target) -> Rendering {
    let rendering = render_as_is(context, replay, target);
    if rendering.messages > 0 {
        return rendering;
    }
    let position = context.last().map_or(Position::START, |last| last.position);
    let mut filled = context.to_vec();
    filled.push(ContextMessage {
        role: Role::User,
        parts: vec![Part::text(CONTINUED)],
        tool_calls: Vec::new(),
        tool_call_id: None,
        flag: ResultFlag::Normal,
        message_no: None,
        call: None,
        position,
        origin: ContextOrigin::Recorded,
        model: None,
        name: None,
        phase: None,
    });
    let mut rendering = render_as_is(&filled, replay, target);
    rendering.adjusted.push(Adjusted { position, how: Adjustment::UserInserted });
    rendering
}

fn render_as_is(context: &[ContextMessage], replay: &NodeReplay, target: &Target) -> Rendering {
    let ids = Ids::of(context, target.api.longest_id());
    let job = Job { context, replay, target, ids: &ids };
    let mut notes = Notes::default();
    let (body, messages) = match target.api {
        Api::ChatCompletions => chat::body(&job, &mut notes),
        Api::Responses => responses::body(&job, &mut notes),
        Api::AnthropicMessages => anthropic::body(&job, &mut notes),
    };
    Rendering { body, messages, dropped: notes.dropped, adjusted: notes.adjusted }
}

/// What is to be rendered.
#[derive(Clone, Copy)]
struct Job<'a> {
    context: &'a [ContextMessage],
    replay: &'a NodeReplay,
    target: &'a Target,
    ids: &'a Ids<'a>,
}

/// What became of the context so far.
#[derive(Default)]
struct Notes {
    dropped: Vec<Dropped>,
    adjusted: Vec<Adjusted>,
}

impl Notes {
    fn drop(&mut self, position: Position, what: What, why: Why) {
        self.dropped.push(Dropped { position, what, why });
    }

    fn adjust(&mut self, position: Position, how: Adjustment) {
        self.adjusted.push(Adjusted { position, how });
    }

    /// Notes replay items that the API has no use for.
    fn drop_replay(&mut self, job: &Job<'_>, message: &ContextMessage) {
        if job.replay.of(message).is_some() {
            self.drop(message.position, What::ReplayItems, Why::OtherApi);
        }
    }

    /// Notes what an API has no place for beside the content.
    fn drop_labels(&mut self, message: &ContextMessage, labels: &[What]) {
        for what in labels {
            let said = match what {
                What::Name => message.name.is_some(),
                What::Phase => message.phase.is_some(),
                What::ErrorFlag => message.flag == ResultFlag::Error,
                _ => false,
            };
            if said {
                self.drop(message.position, *what, Why::NoPlace);
            }
        }
    }
}
