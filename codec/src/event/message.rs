//! What is said: messages, their parts, the tool calls they ask for.

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, MessageNo, Timestamp};
use crate::raw::RawBytes;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions of the host.
    System,
    /// Instructions of the application, where a provider tells them from the system's.
    Developer,
    /// The person, or whoever speaks for them.
    User,
    /// The model.
    Assistant,
    /// A tool result whose call is not in the log (cut history of an import). Shown, never sent to a provider. A
    /// result that answers a call of the log is a [`CallFinished`](super::CallFinished), not a message.
    Tool,
}

/// One part of a message's or a tool result's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text(#[serde(deserialize_with = "crate::raw::long_text")] String),
    /// The model's reasoning.
    Reasoning(Reasoning),
    /// An image.
    Image(Media),
    /// A document or any other file.
    File(Media),
    /// A block of a kind that has no part of its own, as the JSON that was received.
    Raw(RawBytes),
}

impl Part {
    /// A text part.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// Reasoning, with what its provider needs to take it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The text; empty where the provider gave none.
    pub text: String,
    /// What its provider demands of it.
    pub form: ReasoningForm,
}

/// What a provider demands of reasoning that is sent back to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningForm {
    /// Text that may be sent back as it is (`reasoning_content`).
    Plain,
    /// Text that is refused without this signature, and with another text. `None`: the signature was never received
    /// (an interrupted turn), so the text stays in the log and out of every context.
    Signed(Option<String>),
    /// Opaque reasoning that only its provider reads (`redacted_thinking`, `encrypted_content`).
    Opaque(String),
    /// A summary made for display; never sent back.
    Summary,
}

/// An image or a file, by one of the ways to refer to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// Where the bytes are.
    pub source: MediaSource,
    /// The MIME type, if known.
    pub media_type: Option<String>,
    /// The file's name, if it has one.
    pub name: Option<String>,
    /// The resolution asked for (`low`, `high`), where the provider has such a choice.
    pub detail: Option<String>,
    /// Further keys of the provider's block, as received.
    pub extra: Option<RawBytes>,
}

/// Where the bytes of a [`Media`] are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaSource {
    /// In the message, as base64 text.
    Base64(String),
    /// At a URL, `data:` included.
    Url(String),
    /// At the provider, under this id.
    FileId(String),
    /// In the artifact store.
    Artifact(ArtifactReceipt),
}

/// The bounded stand-in for an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactReceipt {
    /// The BLAKE3 hash of the content, which is its address.
    pub digest: Digest,
    /// Bytes of the content.
    pub len: u64,
    /// The MIME type, if known.
    pub media_type: Option<String>,
    /// The beginning of the content, cut on a character.
    pub preview: String,
}

/// A tool call as the model asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id. It may repeat within a conversation.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, exactly as received: usually JSON, not always valid.
    pub arguments: RawBytes,
    /// How the provider frames the call.
    pub form: CallForm,
    /// Further keys of the provider's block, as received.
    pub extra: Option<RawBytes>,
}

/// How a provider frames a tool call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallForm {
    /// A function with JSON arguments.
    #[default]
    Function,
    /// A tool with free text as its input.
    Custom,
}

/// Tokens of one request, in classes that do not overlap (but for `reasoning`, which is a part of `output`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens that no cache served or stored.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// The part of `output` that was reasoning.
    pub reasoning: u64,
}

/// What the provider called the response that a message came with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderIds {
    /// The response's or message's id (`msg_...`, `resp_...`, `chatcmpl-...`).
    pub response: Option<String>,
    /// The HTTP request's id.
    pub request: Option<String>,
}

/// Who is shown a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    /// The person and the model.
    #[default]
    Everyone,
    /// The model only: reminders, injected files.
    Model,
    /// The person only: notices, local command output, error texts.
    Person,
}

/// Where an imported message or result comes from, in its source's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceIds {
    /// The source's id of the record.
    pub id: Option<String>,
    /// The source's id of the record before it in its conversation tree.
    pub parent: Option<String>,
}

/// `message.appended`: somebody said something. Appended by the host (or an importer); derives the transcript, the
/// context, titles, counts and usage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageAppended {
    /// Its number within its node.
    pub message_no: MessageNo,
    /// Who speaks.
    pub role: Role,
    /// Who is shown it.
    pub audience: Audience,
    /// Which part of the model's answer it is (`commentary`, `final_answer`), where the provider says.
    pub phase: Option<String>,
    /// The speaker's name, where roles are shared.
    pub name: Option<String>,
    /// What is said.
    pub parts: Vec<Part>,
    /// The calls asked for, in the model's order. Assistant messages only.
    pub tool_calls: Vec<ToolCall>,
    /// The call that an orphaned result claims to answer. [`Role::Tool`] only.
    pub tool_call_id: Option<String>,
    /// The model that said it.
    pub model: Option<String>,
    /// The provider's ids.
    pub provider: ProviderIds,
    /// Why the model stopped, in the provider's word.
    pub stop_reason: Option<String>,
    /// What the request that produced it used, once per request.
    pub usage: Option<Usage>,
    /// Further keys of the provider's message, as received.
    pub extra: Option<RawBytes>,
    /// Where it was imported from.
    pub source: Option<SourceIds>,
}

/// `message.extended`: a later piece of a message that is stored already. Appended by importers and mirrors of agents
/// that write one response as several records; a host appends finished messages and never needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageExtended {
    /// The message it extends.
    pub message_no: MessageNo,
    /// Parts to add at its end.
    pub parts: Vec<Part>,
    /// Calls to add behind its calls.
    pub tool_calls: Vec<ToolCall>,
    /// Replaces the reason, if given.
    pub stop_reason: Option<String>,
    /// Replaces (not adds to) the message's usage, if given: streaming writers repeat it with each piece.
    pub usage: Option<Usage>,
    /// Where it was imported from.
    pub source: Option<SourceIds>,
}

/// `message.withdrawn`: a message is taken back before a model answered it. It leaves the context and stays in the
/// transcript, marked. Appended by the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageWithdrawn {
    /// The message.
    pub message_no: MessageNo,
    /// Why, for people.
    pub reason: String,
}

/// `redacted`: the payloads of records were erased on purpose; their digests stay, so the chain still verifies.
/// Appended by the engine when a person asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redacted {
    /// The records.
    pub positions: Vec<crate::ids::Position>,
    /// Why, for people.
    pub reason: String,
    /// When it was asked for.
    pub requested_at: Timestamp,
}

impl MessageAppended {
    /// A message of one text part, with nothing else set.
    #[must_use]
    pub fn text(message_no: MessageNo, role: Role, text: impl Into<String>) -> Self {
        Self {
            message_no,
            role,
            audience: Audience::Everyone,
            phase: None,
            name: None,
            parts: vec![Part::text(text)],
            tool_calls: Vec::new(),
            tool_call_id: None,
            model: None,
            provider: ProviderIds::default(),
            stop_reason: None,
            usage: None,
            extra: None,
            source: None,
        }
    }
}
