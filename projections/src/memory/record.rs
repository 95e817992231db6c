//! A record of memory, and its name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sessionlog_codec::event::Role;
use sessionlog_codec::ids::{Digest, NodeId, Position, SessionId, Timestamp};

/// The name of a record: where it happened. As text `<session>@<position>`, for a tool call `<session>@<position>.<n>`.
///
/// It stays the same when the session is deleted and its archive is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// The session.
    pub session: SessionId,
    /// Where it stands in the session's log.
    pub position: Position,
    /// 0: the event itself. From 1: the tool calls that it asks for, in order.
    pub part: u32,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.session, self.position)?;
        if self.part > 0 { write!(f, ".{}", self.part) } else { Ok(()) }
    }
}

impl FromStr for RecordId {
    type Err = InvalidRecordId;

    fn from_str(text: &str) -> Result<Self, InvalidRecordId> {
        let (session, place) = text.split_once('@').ok_or(InvalidRecordId)?;
        let (position, part) = place.split_once('.').map_or((place, None), |(it, part)| (it, Some(part)));
        let id = Self {
            session: session.parse().map_err(|_| InvalidRecordId)?,
            position: Position(position.parse().map_err(|_| InvalidRecordId)?),
            part: part.map_or(Ok(0), str::parse).map_err(|_| InvalidRecordId)?,
        };
        // One name has one spelling.
        if id.to_string() == text.to_ascii_lowercase() { Ok(id) } else { Err(InvalidRecordId) }
    }
}

impl Serialize for RecordId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RecordId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A text that is no record's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a record: expected <session>@<position> or <session>@<position>.<call>")]
pub struct InvalidRecordId;

/// What a record is of. The [module](super) says which events become which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Something that was said.
    Message,
    /// A tool call that was asked for.
    Call,
    /// What a tool, a delegate, a task or a plan gave.
    Result,
    /// Something that went wrong, outside of a tool.
    Failure,
    /// Something in a session's life.
    Event,
    /// A summary of what was said before.
    Summary,
    /// Something that was to be done.
    Task,
    /// A question to a person, or its answer.
    Question,
}

/// How what a record is of stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryStatus {
    /// It was said or set; there is nothing that could become of it.
    Submitted,
    /// Nobody has said yet what became of it.
    Running,
    /// It did what it should.
    Succeeded,
    /// It did not.
    Failed,
    /// Somebody stopped it.
    Cancelled,
    /// Nobody knows what became of it.
    Unknown,
    /// It never started.
    NotStarted,
    /// It was taken back before a model answered it.
    Withdrawn,
}

/// One record of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRecord {
    /// Its name.
    pub id: RecordId,
    /// What it is of.
    pub kind: MemoryKind,
    /// The conversation. Of a delegation's request, the one that was delegated.
    pub node: NodeId,
    /// When it happened.
    pub at: Timestamp,
    /// Who speaks, of a message.
    pub role: Option<Role>,
    /// The tool, of a call and its result; the agent, of a delegation.
    pub tool: Option<String>,
    /// How it stands.
    pub status: MemoryStatus,
    /// The tags of its session, and `archive-read` for a result that was left without text.
    pub tags: Vec<String>,
    /// The artifacts that it names.
    pub artifacts: Vec<Digest>,
    /// What is searched and read.
    pub text: String,
}

/// The tag of a result of a tool that reads memory.
pub(super) const ARCHIVE_READ: &str = "archive-read";

impl MemoryRecord {
    /// The texts that are searched: of a call its tool too.
    pub fn searched(&self) -> impl Iterator<Item = &str> {
        let tool = self.tool.as_deref().filter(|_| self.kind == MemoryKind::Call);
        tool.into_iter().chain([self.text.as_str()])
    }
}
