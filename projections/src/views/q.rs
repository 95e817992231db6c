//! Session files as [q](https://github.com/snowmerak/q) reads and writes them, with all that a session tree has in them:
//!
//! ```text
//! <session id>/session.json                 the root's conversation
//! <session id>/plan-execution.json          the plan that is being executed
//! <session id>/delegations.json             the bookmarks of the root's delegations
//! <session id>/delegates/<invocation id>/   session.json, delegation-state.json, delegations.json, delegates/...
//! ```
//!
//! **Written** is version 2, in q's own layout. [`QTree`] folds a log and writes its files:
//!
//! - A transcript holds the messages of the current run that are on the live path, each result directly behind its call's
//!   message and in call order, which is how q joins the two. Calls at the very end may be without results; one before
//!   other results or messages gets the result that the context makes up for it.
//! - The root's files are without instructions, except summaries; a delegate's keep them.
//! - What q has no place for is left out: reasoning, notices for the person, whether a result is an error, usage, times of
//!   messages. Results that were cleared are cleared in the context only.
//! - A delegate that failed or was cancelled is `blocked`: q has no word of its own for either. `round` is counted as q
//!   itself counts it when it opens the file, since it gives up a delegate whose state is ahead of its transcript.
//! - Delegations of earlier runs have no bookmark: q would take one at the same place for the new run's.
//!
//! **Read** are versions 1 and 2 of any length; the retired `loop_mode` is read past. Keys that are not known are kept,
//! where q refuses a file with any of them, so that files of a newer q are not lost. An import keeps the records of the
//! files; what events can't tell is taken from there and written again, while nobody went on with the conversation.
//!
//! Read and written again, a file is the same, but for: the layout and order of known keys; `loop_mode`; a version 1 in
//! version 2's form; `null` and empty values; times as text, where they are not the same time; instructions in the root's
//! files; results out of call order; `round`; replay items of messages that are not in the context.

mod convert;
mod delegates;
mod error;
mod indent;
mod kept;
mod message;
mod notes;
mod object;
mod plan;
mod render;
mod session;
mod talk;
mod tree;
mod write;

pub use delegates::{Bookmark, CallPlace, DelegationsFile, StateFile, StateResult, is_valid_id};
pub use error::QError;
pub use kept::{KeptContext, Piece};
pub use message::{Call, Message, Part, SUMMARY_NAME, Version};
pub use object::{Json, Object, Place};
pub use plan::{Checkpoint, PlanFile};
pub use session::{Affinity, Replay, SessionFile, SessionHeader, Task};
pub use tree::{QFile, QTree};

/// What imports call the agent.
pub const AGENT: &str = "q";
/// A conversation.
pub const SESSION_FILE: &str = "session.json";
/// The bookmarks of a conversation's delegations.
pub const DELEGATIONS_FILE: &str = "delegations.json";
/// Where a delegate stands.
pub const STATE_FILE: &str = "delegation-state.json";
/// The plan that is being executed.
pub const PLAN_FILE: &str = "plan-execution.json";

/// What imports call the sources that they keep: `import.started` has these as its format.
pub mod format {
    /// The elements of a transcript of version 2.
    pub const TRANSCRIPT: &str = "q";
    /// The elements of a transcript of version 1.
    pub const TRANSCRIPT_V1: &str = "q-v1";
    /// A context, in terms of its transcript.
    pub const CONTEXT: &str = "q/context";
    /// A session file without its messages.
    pub const SESSION: &str = "q/session";
    /// `delegations.json`.
    pub const DELEGATIONS: &str = "q/delegations";
    /// `delegation-state.json`.
    pub const STATE: &str = "q/state";
    /// `plan-execution.json`.
    pub const PLAN: &str = "q/plan";
}
