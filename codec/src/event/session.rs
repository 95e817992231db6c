//! The life of a session: creation, ownership, runs, turns, its end.

use serde::{Deserialize, Serialize};

use super::message::SourceIds;
use crate::ids::{Digest, Epoch, InvocationId, MessageNo, NodeId, Position, SessionId, SourceNo, TurnNo};
use crate::raw::RawBytes;

/// `session.created`: the first record of every tree log. Appended by the engine; derives identity and listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCreated {
    /// The session.
    pub session_id: SessionId,
    /// The workspace's canonical path, as the bytes of its machine. Empty where it is not known (an import).
    pub workspace: RawBytes,
    /// The workspace's path made of letters, digits, `_`, `.` and `-`: the readable half of the display id.
    pub slug: String,
    /// What the session is for.
    pub goal: Option<String>,
    /// The model it begins with.
    pub model: Option<String>,
    /// The provider of that model.
    pub provider: Option<String>,
    /// The host's preset or agent profile.
    pub preset: Option<String>,
    /// The hash of the tools offered, in the host's own form: resuming with other tools is refused unless told.
    pub tool_registry_hash: Option<String>,
    /// The host program and its version.
    pub host: Option<String>,
    /// Where it was imported from.
    pub imported: Option<ImportOrigin>,
    /// Further data of the host, opaque.
    pub extra: Option<RawBytes>,
}

/// Where an imported session comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportOrigin {
    /// The agent that wrote it (`claude-code`, `recursive`).
    pub agent: String,
    /// The agent's version, where the file says.
    pub agent_version: Option<String>,
    /// The agent's own id of the session.
    pub session_id: String,
}

/// A torn tail that recovery cut off and put into quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutTail {
    /// The segment file's name.
    pub segment: String,
    /// Where it was cut, in bytes.
    pub offset: u64,
    /// Bytes cut.
    pub len: u64,
    /// The last position that was kept.
    pub kept: Position,
    /// The quarantine file's name.
    pub quarantine: String,
}

/// `session.opened`: somebody owns the session from here on. Appended by the engine at each ownership; derives the
/// epoch, and the evidence of what recovery did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// The ownership's number.
    pub epoch: Epoch,
    /// The owner's process id.
    pub pid: u32,
    /// The owner's machine.
    pub machine: String,
    /// The owner's command line.
    pub command: String,
    /// The version of this library.
    pub library: String,
    /// What recovery cut off.
    pub cut: Option<CutTail>,
}

/// `session.titled`: the session is called something. The strongest origin wins, the last of equals. Appended by the
/// host, a person or an importer; derives the title.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTitled {
    /// The title.
    pub title: String,
    /// Who says so.
    pub origin: TitleOrigin,
}

/// Who gave a title, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TitleOrigin {
    /// Taken from a summary of the conversation.
    Summary,
    /// Taken from a prompt.
    Prompt,
    /// A model, for this purpose.
    Model,
    /// The host.
    Host,
    /// A person.
    Person,
}

/// `session.tagged`: labels are put on or taken off. Appended by the host or for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTagged {
    /// Labels to put on.
    pub added: Vec<String>,
    /// Labels to take off.
    pub removed: Vec<String>,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinalStatus {
    /// It did what it was for.
    Completed,
    /// It could not.
    Failed,
    /// Somebody stopped it.
    Interrupted,
    /// It is to go on later.
    Paused,
}

/// `session.finished`: the host declares the end. A later `session.opened` makes the session run again. Appended by
/// the host; derives the status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFinished {
    /// How it ended.
    pub status: FinalStatus,
    /// Why, for people; the host's finer word for it.
    pub reason: Option<String>,
}

/// `session.closed`: the owner lets go in order. It is also the witness that all before it was durable. Appended by
/// the engine; its absence at the log's end tells a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionClosed {
    /// The ownership that ends.
    pub epoch: Epoch,
}

/// `session.forked`: this log goes on where another one stood. Appended by the engine as the first own record of the
/// fork; derives lineage, and which usage was inherited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionForked {
    /// The new session.
    pub session_id: SessionId,
    /// The session it was forked from.
    pub parent: SessionId,
    /// The last position taken over.
    pub at: Position,
    /// The chain hash at that position.
    pub chain: Digest,
}

/// Why a new conversation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunReason {
    /// The node is new.
    Created,
    /// The conversation was cleared.
    Cleared,
    /// It was taken over from an older format.
    Migrated,
}

/// `run.started`: a new conversation in the same node. The context is empty from here; the transcript keeps all.
/// Appended by the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// The host's id of the conversation.
    pub run_id: String,
    /// Why.
    pub reason: RunReason,
}

/// Who or what began a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnCause {
    /// A prompt.
    User,
    /// Recovery goes on with what was interrupted.
    Recovery,
    /// Guidance that came while a turn ran.
    Guidance,
}

/// `turn.started`: the agent begins to work on a prompt. Appended by the host; derives open turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnStarted {
    /// Its number within its node.
    pub turn: TurnNo,
    /// Who or what began it.
    pub cause: TurnCause,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    /// The model had no more to do.
    Completed,
    /// It broke off with an error.
    Failed,
    /// Somebody stopped it, or its host died.
    Interrupted,
}

/// `turn.ended`: the agent is done with a prompt. Appended by the host, or by recovery for a turn whose host died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnEnded {
    /// Its number within its node.
    pub turn: TurnNo,
    /// How.
    pub outcome: TurnOutcome,
    /// Where in the turn it broke off (`provider`, `tool`), in the host's word.
    pub stage: Option<String>,
    /// The error's text.
    pub error: Option<String>,
}

/// `import.started`: records of a foreign file follow. Appended by importers; numbers the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportStarted {
    /// The source's number within this log.
    pub source_no: SourceNo,
    /// The file's format.
    pub format: String,
    /// The file's path below the place that was imported, for people.
    pub path: String,
    /// The conversation its records go to.
    pub node: NodeId,
}

/// `imported.raw`: one record of a foreign file, as it stood there. Appended by importers in the frame of the events
/// it was mapped to, so that nothing of the source is lost and a repeated import knows where it stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedRaw {
    /// The source.
    pub source_no: SourceNo,
    /// The line, from 1; 0 where the source has no lines.
    pub line: u64,
    /// Where it starts in the source, in bytes.
    pub offset: u64,
    /// Where the record after it starts, in bytes.
    pub next_offset: u64,
    /// What the importer took it for: the source's own word, or `damaged`.
    pub kind: String,
    /// The bytes, without the line's end.
    pub bytes: RawBytes,
}

/// `gap.marked`: records are missing here, and it is known where and why. Appended by salvage and importers. A salvage
/// marks each missing position with one; all but the first of a span (or of a node in it) have no explanation, and nothing is
/// shown for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapMarked {
    /// The file that is hurt.
    pub file: String,
    /// Where, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// The first position that is missing, where positions are known.
    pub first: Option<Position>,
    /// The last one.
    pub last: Option<Position>,
    /// In plain words.
    pub explanation: String,
}

/// `host.event`: whatever else a host wants to keep in order with the rest. Opaque here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEvent {
    /// Whose event it is: a reverse domain or a crate's name.
    pub namespace: String,
    /// What it is, within the namespace.
    pub name: String,
    /// Its data.
    pub data: RawBytes,
    /// Where it was imported from.
    pub source: Option<SourceIds>,
}

/// `head.moved`: the conversation goes on from an earlier (or a left) place. Nothing is removed: what lies behind the
/// new head is kept and can be returned to by moving again. Appended by the host for a rewind, a branch or its undoing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadMoved {
    /// The last record of the conversation that stays: of a message, a compaction or a reset. [`Position::START`]: none.
    pub to: Position,
    /// The head before.
    pub from: Position,
    /// Why.
    pub reason: HeadReason,
}

/// Why a head moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadReason {
    /// Back to an earlier turn.
    Rewind,
    /// To another branch.
    Branch,
    /// Back to where it was before a move.
    Undo,
}

/// `checkpoint.referenced`: the host saved the files' state somewhere and may want to return to it. The engine keeps
/// the reference; the files are the host's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointReferenced {
    /// The checkpoint's id (a commit).
    pub id: String,
    /// The checkpoint before the turn's changes.
    pub before: Option<String>,
    /// The message it belongs to.
    pub message_no: Option<MessageNo>,
    /// The files that the turn touched.
    pub touched_files: Vec<String>,
    /// For people.
    pub note: String,
    /// The delegation whose files these are, if not the root's.
    pub invocation: Option<InvocationId>,
}
