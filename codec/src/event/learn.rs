//! Learning: what is taken from a session into the library. Segments, jobs and their write-ahead slots belong to the
//! session's log; propositions and the librarian's decisions to the user's.

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, Position};
use crate::raw::RawBytes;

/// Why a learning segment closed: exactly four boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearnBoundary {
    /// The next message would have made it too large.
    Size,
    /// A task was completed.
    TaskComplete,
    /// A plan was approved.
    PlanApproved,
    /// Somebody asked for it.
    Explicit,
}

/// `learn.segment_closed`: a span of the log is ready to be learned from. The events stay where they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnSegmentClosed {
    /// The segment's id.
    pub segment_id: String,
    /// The first position.
    pub first: Position,
    /// The last position.
    pub last: Position,
    /// Why.
    pub boundary: LearnBoundary,
}

/// `learn.job_started`: the Thinker works on a segment. At most one at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnJobStarted {
    /// The segment.
    pub segment_id: String,
    /// The hash of what the job reads: the same job with another input is an error.
    pub input_digest: Digest,
    /// A random number of this attempt, part of its slots' keys.
    pub generation: String,
}

/// `learn.slot_pending`: a proposition is about to be submitted. After a crash the identical request is repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnSlotPending {
    /// The segment.
    pub segment_id: String,
    /// Which proposition of the job, from 0.
    pub slot: u32,
    /// The idempotency key it is submitted under.
    pub key: String,
    /// The request, byte for byte.
    pub request: RawBytes,
}

/// `learn.slot_done`: the library answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnSlotDone {
    /// The segment.
    pub segment_id: String,
    /// Which proposition of the job.
    pub slot: u32,
    /// What the library did.
    pub action: LibraryAction,
    /// The proposition it became or was merged into.
    pub proposition_id: Option<String>,
}

/// `learn.committed`: a segment is learned. The cursor of learning is here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnCommitted {
    /// The segment.
    pub segment_id: String,
    /// The job's counts, as the host's JSON.
    pub result: Option<RawBytes>,
}

/// What the librarian does with a proposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LibraryAction {
    /// It becomes an entry.
    Create,
    /// It is merged into an entry.
    Merge,
    /// It is dropped.
    Discard,
}

/// What kind of knowledge a proposition claims to be. Snapshots of one run (test results, build status, audit counts)
/// have no kind here: they stay in task history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PropositionKind {
    /// An established way of doing something.
    Workflow,
    /// A durable fact of a project.
    ProjectFact,
    /// A resolution that can be used again.
    Resolution,
    /// A finding backed by evidence that is likely to matter later.
    Finding,
}

/// `proposition.submitted`: something to learn, not yet judged. User log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropositionSubmitted {
    /// The idempotency key.
    pub key: String,
    /// What kind of knowledge it is.
    pub kind: PropositionKind,
    /// The hash of the request: the same key with another request is a conflict.
    pub request_digest: Digest,
    /// The request, byte for byte.
    pub request: RawBytes,
}

/// `proposition.decided`: the librarian's decision, stored before it is applied and never asked for again. User log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropositionDecided {
    /// The proposition's key.
    pub key: String,
    /// The decision.
    pub action: LibraryAction,
    /// The entry to merge into.
    pub target: Option<String>,
    /// Why, for people.
    pub reason: String,
    /// The model that judged.
    pub model: Option<String>,
}

/// `proposition.applied`: a decision took effect. User log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropositionApplied {
    /// The proposition's key.
    pub key: String,
    /// The entry.
    pub entry_id: Option<String>,
    /// What was done.
    pub action: LibraryAction,
    /// The entry's new content, as JSON.
    pub entry: Option<RawBytes>,
}

/// `proposition.failed`: an attempt to judge or apply failed. User log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropositionFailed {
    /// The proposition's key.
    pub key: String,
    /// The error's text.
    pub error: String,
    /// Which attempt, from 1.
    pub attempt: u32,
}

/// `proposition.deleted`: a person removed an entry. User log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropositionDeleted {
    /// The entry.
    pub entry_id: String,
    /// Why, for people.
    pub reason: String,
}
