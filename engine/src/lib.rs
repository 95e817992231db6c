//! The event-sourced session store that coding-agent hosts embed.
//!
//! A [`Store`] is a directory. A [`Session`] is one agent session in it, owned by one process; everything that happens in
//! it is appended to a log, and everything that is shown of it is a fold over that log. [`StoreReader`] and
//! [`SessionReader`] read the same files without owning them.
//!
//! ```
//! use sessionlog::codec::event::{Effect, FinalStatus};
//! use sessionlog::{CallResult, Message, NewSession, Store};
//!
//! # fn main() -> sessionlog::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let (home, workspace) = (dir.path().join("home"), dir.path());
//! let store = Store::open(home)?;
//! let session = store.create(workspace, NewSession::new("Fix the login test"))?;
//! let id = session.id();
//! session.append(Message::user("The login test fails. Fix it."))?;
//! let answer = session.append(Message::assistant("I will run it.").call("call_1", "run", r#"{"cmd":"cargo test"}"#))?;
//! let running = session.start_call(answer.call(0), Effect::Mutating)?;
//! // ... the tool runs; if the process dies here, the next resume reports the call as unknown ...
//! running.finish(CallResult::succeeded("1 passed"))?;
//! assert_eq!(session.context()?.len(), 3);
//! session.close()?;
//!
//! let (session, report) = store.resume(id)?;
//! assert!(report.unknown_calls.is_empty());
//! session.finish(FinalStatus::Completed)?;
//! # Ok(())
//! # }
//! ```
//!
//! That is the lower half, for a host that keeps its own loop. The upper half is [`Session::work`]: what is owed next,
//! derived from the log, as tokens that can be used once and only in order. It runs trees of agents, and it recovers them:
//! `examples/agent_tree.rs` is a whole host.
//!
//! # What a host may rely on
//!
//! 1. What [`Session::append`] (and every other method that appends) returned `Ok` for is as durable as the store's
//!    [`Durability`] asks, by default on disk, and stays.
//! 2. An append that failed with `Full`, `Invalid` or `Conflict` is not in the log, now or later. After an `Io` of a failed
//!    sync nobody knows; the session is closed for writing, and resuming it tells.
//! 3. [`Session::context`] is legal for every provider's pairing rules, whatever happened.
//! 4. A call that was started is never run again by anybody here, unless its host declared it pure: then once. Its outcome
//!    is recorded once. A child's end and its parent's result are one frame.
//! 5. One process owns a session. Readers need nobody's leave.
//!
//! # What can fail
//!
//! Everything returns [`Error`], whose [`kind`](Error::kind) says what to do and whose text names file, offset, what was
//! expected and what was found. Damage of acknowledged data refuses the owner and never the reader.
//!
//! # How it is built
//!
//! From the bottom: [`storage`] is the seam to the file system, with a simulated one behind the feature `sim`; [`log`] is the
//! durable log, blind to what it carries; [`session`] gives it meaning and laws; [`store`] is the home of many;
//! [`learning`] draws from sessions what is worth keeping, for the [`library`] that all sessions share. The format
//! and the vocabulary are in [`codec`], the folds and views in [`projections`], both re-exported here.

pub mod artifacts;
#[cfg(feature = "catalog")]
mod catalog;
mod clock;
mod error;
pub mod learning;
pub mod library;
pub mod log;
pub mod memory;
mod num;
pub mod session;
pub mod storage;
pub mod store;

pub use artifacts::{ArtifactReader, Artifacts, GcOptions, GcReport, NewArtifact};
#[cfg(all(feature = "catalog", feature = "sim"))]
#[doc(hidden)]
pub use catalog::recode_row as recode_catalog_row;
pub use clock::{Clock, SystemClock};
pub use error::{Error, ErrorKind, Result};
pub use learning::{LearnOptions, LearnReport, LearnStanding, Learning, Thinker, Thought};
pub use library::{Librarian, Library, Verdict};
pub use log::{Durability, FollowLevel, FollowOptions, ForkPoint, LogOptions, Packing, Reached, Receipt};
pub use memory::{FoundBy, IndexPolicy, Memory, MemoryHit, MemoryHits, MemoryPage, MemoryReader};
pub use session::{
    Appended, CallResult, ChildResult, Compaction, Delegated, Delegation, FollowItem, Follower, ForkOptions,
    Message, NewSession, RecoveryReport, ResumeOptions, RunningCall, Session, SessionReader, SnapshotPolicy,
    Work,
};
pub use sessionlog_codec as codec;
pub use sessionlog_projections as projections;
pub use store::{
    ArtifactPolicy, CatalogPolicy, Compression, DeletionPlan, ForkedFrom, Owner, Registered, RootRow,
    RootWorkspace, Roots, SessionKind, SessionRow, Store, StoreOptions, StoreReader, ViewPolicy,
    WorkspaceHash, WorkspaceName, WorkspaceState,
};

/// A new id for a session: a UUID of version 7. [`Store::create`] makes one by itself.
#[must_use]
pub fn new_session_id() -> codec::ids::SessionId {
    codec::ids::SessionId::from(uuid::Uuid::now_v7())
}

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmeProgram;
