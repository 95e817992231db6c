//! Where an import goes. The store implements it; so do the tests.

use sessionlog_codec::event::{ImportStarted, ImportedRaw, NewEvent, SessionCreated};
use sessionlog_codec::ids::{MessageNo, NodeId, Position, SourceNo, Timestamp};

/// Whatever went wrong at the target.
pub type TargetError = Box<dyn std::error::Error + Send + Sync>;

/// A place that sessions are imported into.
pub trait Target {
    /// Opens the session of this id, or creates it with `session.created` at `at` (`None`: now).
    ///
    /// # Errors
    /// If the session can't be opened, or is not one that was imported.
    fn open(
        &mut self,
        created: &SessionCreated,
        at: Option<Timestamp>,
    ) -> Result<Box<dyn TargetSession + '_>, TargetError>;
}

/// A conversation that the session has already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNode {
    /// The conversation.
    pub node: NodeId,
    /// The source's own id of it, from its `node.opened`; `None` for the root.
    pub source_id: Option<String>,
    /// Whether there is a `node.settled` of it.
    pub settled: bool,
    /// Its last message; `MessageNo(0)` if it has none.
    pub last_message: MessageNo,
}

/// An `imported.raw` with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord {
    /// Where it stands. The events that it was mapped to follow it directly: event `i` is at `position + 1 + i`.
    pub position: Position,
    /// The record.
    pub raw: ImportedRaw,
}

/// One session that is being imported into.
pub trait TargetSession {
    /// The `import.started` of each source, in order.
    ///
    /// # Errors
    /// If the log can't be read.
    fn sources(&self) -> Result<Vec<ImportStarted>, TargetError>;

    /// The conversations, the root included.
    ///
    /// # Errors
    /// If the log can't be read.
    fn nodes(&self) -> Result<Vec<KnownNode>, TargetError>;

    /// The records imported from one source, in order, read as they are asked for.
    ///
    /// # Errors
    /// If the log can't be read.
    fn raws(
        &self,
        source: SourceNo,
    ) -> Result<Box<dyn Iterator<Item = Result<RawRecord, TargetError>> + '_>, TargetError>;

    /// Appends one atomic frame, and gives the position of its first record. The others follow without a gap.
    ///
    /// # Errors
    /// If nothing of the frame was appended.
    fn append(&mut self, frame: Vec<NewEvent>) -> Result<Position, TargetError>;

    /// Ends the import of this session.
    ///
    /// # Errors
    /// If the session can't be closed in order.
    fn finish(self: Box<Self>) -> Result<(), TargetError>;
}
