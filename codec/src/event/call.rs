//! What is done: tool calls, from the moment before their side effect to the moment their outcome is known.

use serde::{Deserialize, Serialize};

use super::message::{ArtifactReceipt, Part, SourceIds};
use crate::ids::{CallRef, Digest, Timestamp};

/// What running a call does to the world, as the host declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Reads only: running it again is harmless.
    Pure,
    /// Changes something, but twice is the same as once.
    Idempotent,
    /// Changes something of this machine; twice is not once.
    Mutating,
    /// Reaches beyond this machine.
    External,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran and did what it should.
    Succeeded,
    /// It ran, or was refused, and says so.
    Failed,
    /// Somebody stopped it.
    Cancelled,
    /// It was started, and nobody knows what it did.
    Unknown,
    /// It never started.
    NotStarted,
}

/// Whether a result is presented to the model as an error. Data of the provider's protocol, apart from [`Outcome`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultFlag {
    /// An ordinary result.
    #[default]
    Normal,
    /// An error.
    Error,
}

/// Who brought a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultOrigin {
    /// The host, from the running tool.
    Live,
    /// A delegated child that settled.
    Child,
    /// Recovery, for a call whose host died.
    Recovery,
    /// An importer.
    Import,
}

/// What an audit keeps of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallAudit {
    /// The host's id of the step.
    pub step_id: String,
    /// When the tool began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Timestamp,
    /// The hash of the arguments, in the host's own form.
    pub arguments_hash: String,
    /// How it ended: `None` for an ordinary end, else the error's text.
    pub exit_error: Option<String>,
}

/// `call.started`: a tool is about to run. Appended by the host, and durable before the side effect, so that after a
/// crash a call which may have run is told from one which did not. Derives open calls and unknown outcomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStarted {
    /// The call.
    pub call: CallRef,
    /// Its provider id, for people.
    pub call_id: String,
    /// Its tool, for people.
    pub name: String,
    /// What running it does.
    pub effect: Effect,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// BLAKE3 of the argument bytes as received.
    pub arguments_digest: Digest,
    /// The host's id of the step.
    pub step_id: Option<String>,
}

/// `call.finished`: the outcome of a call. Appended by the host, by recovery or an importer. The first one for a call
/// is what the model is shown; derives the tool result in transcript and context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFinished {
    /// The call.
    pub call: CallRef,
    /// Its provider id, for people.
    pub call_id: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Whether the model is shown an error.
    pub flag: ResultFlag,
    /// The result.
    pub parts: Vec<Part>,
    /// The whole result, where `parts` hold only its beginning.
    pub artifact: Option<ArtifactReceipt>,
    /// Who brought it.
    pub origin: ResultOrigin,
    /// What an audit keeps.
    pub audit: Option<CallAudit>,
    /// Where it was imported from.
    pub source: Option<SourceIds>,
}

/// Who settled an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolver {
    /// The host found out by itself.
    Host,
    /// A person decided.
    Person,
}

/// `call.resolved`: an outcome that was unknown is known now. Appended by the host or for a person. From here on the
/// context shows this result in place of the unknown one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallResolved {
    /// The call.
    pub call: CallRef,
    /// What became of it after all.
    pub outcome: Outcome,
    /// Whether the model is shown an error.
    pub flag: ResultFlag,
    /// What the model is shown.
    pub parts: Vec<Part>,
    /// Who says so.
    pub resolver: Resolver,
    /// Why, for people.
    pub note: String,
}
