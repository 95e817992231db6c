//! What outlives a session: registrations, the memory archive, artifacts. Workspace log, and roots in the user log.

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, NodeId, Position, SessionId, Timestamp};
use crate::raw::RawBytes;

/// `tree.registered`: a root session exists in this workspace. Workspace log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeRegistered {
    /// The session.
    pub session_id: SessionId,
}

/// `tree.deleted`: a root session and its descendants are gone. Workspace log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeDeleted {
    /// The session.
    pub session_id: SessionId,
    /// Its log's last position.
    pub last: Position,
    /// Whether its memory archive was kept.
    pub archive: ArchiveFate,
}

/// What becomes of a session's memory archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArchiveFate {
    /// It outlives the session.
    Kept,
    /// It goes with it.
    Erased,
}

/// `memory.archived`: one record of workspace memory that must outlive its session. Workspace log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryArchived {
    /// The record's id.
    pub record_id: String,
    /// What it is (`message`, `result`, `task`, `summary`, ...).
    pub kind: String,
    /// The session it comes from.
    pub session_id: SessionId,
    /// The conversation it comes from.
    pub node: NodeId,
    /// The position it comes from.
    pub position: Position,
    /// When it happened.
    pub at: Timestamp,
    /// What is searched, and everything else of the record, as JSON.
    pub record: RawBytes,
}

/// Whether learning is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearningSwitch {
    /// Collect and process.
    On,
    /// Do neither, and delete nothing.
    Off,
}

/// `learning.switched`: learning goes on or off for the workspace. Workspace log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearningSwitched {
    /// On or off.
    pub to: LearningSwitch,
}

/// `artifact.put`: content was stored under its hash. Workspace log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactPut {
    /// The content's BLAKE3 hash: its address.
    pub digest: Digest,
    /// Bytes.
    pub len: u64,
    /// What it is (`tool-result`, `derived`).
    pub kind: String,
    /// The MIME type.
    pub media_type: Option<String>,
    /// The artifacts it was derived from.
    pub parents: Vec<Digest>,
    /// The session it was made in.
    pub session_id: Option<SessionId>,
}

/// `artifact.dropped`: content was collected. Workspace log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactDropped {
    /// The artifacts.
    pub digests: Vec<Digest>,
    /// The collection that dropped them.
    pub gc_id: String,
}

/// `lease.granted`: artifacts must stay while somebody uses them. Workspace log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseGranted {
    /// The lease's id.
    pub lease_id: String,
    /// The artifacts.
    pub digests: Vec<Digest>,
    /// When it ends by itself.
    pub until: Timestamp,
}

/// `lease.released`: a lease ended early. Workspace log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseReleased {
    /// The lease's id.
    pub lease_id: String,
}

/// `gc.ran`: a collection of artifacts ended. Workspace log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcRan {
    /// The collection's id.
    pub gc_id: String,
    /// Bytes before.
    pub before: u64,
    /// Bytes after.
    pub after: u64,
    /// The grace period, in seconds.
    pub grace_s: u64,
    /// The hash of the roots it marked from.
    pub roots_digest: Digest,
}

/// `vector.attached`: an embedding of an archive record, from the host. Workspace log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VectorAttached {
    /// The archive record.
    pub record_id: String,
    /// The embedding model.
    pub model: String,
    /// Its components, as IEEE 754 bits, little endian.
    pub components: RawBytes,
}

/// `root.registered`: a root session exists somewhere. User log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootRegistered {
    /// The session.
    pub session_id: SessionId,
    /// Its workspace's canonical path.
    pub workspace: RawBytes,
}

/// `root.unregistered`: a root session is not listed any more. User log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootUnregistered {
    /// The session.
    pub session_id: SessionId,
    /// Why, for people.
    pub reason: String,
}
