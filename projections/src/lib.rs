//! Events -> state -> views of sessionlog: pure folds over a session's log.
//!
//! This crate opens no file, reads no clock, draws no random number and prints nothing. Every fold accepts every
//! sequence of events, also that of a damaged, cut or imported log.
//!
//! ```
//! use sessionlog_codec::event::{
//!     CallForm, Event, LoggedEvent, MessageAppended, ResultFlag, Role, ToolCall,
//! };
//! use sessionlog_codec::ids::{MessageNo, NodeId, Position, Timestamp};
//! use sessionlog_codec::record::TimeOrigin;
//! use sessionlog_projections::{TreeState, validate_pairing};
//!
//! fn logged(position: u64, event: impl Into<Event>) -> LoggedEvent {
//!     LoggedEvent {
//!         position: Position(position),
//!         node: NodeId::ROOT,
//!         timestamp: Timestamp(1_779_939_697_000_000),
//!         time_origin: TimeOrigin::Clock,
//!         cause: None,
//!         event: event.into(),
//!     }
//! }
//!
//! // A person asks, the model wants to run a tool, a person asks again: the agent was killed in between.
//! let call = ToolCall {
//!     call_id: "tc_1".into(),
//!     name: "Bash".into(),
//!     arguments: r#"{"command":"cargo test"}"#.into(),
//!     form: CallForm::Function,
//!     extra: None,
//! };
//! let mut answer = MessageAppended::text(MessageNo(2), Role::Assistant, "I will run the tests.");
//! answer.tool_calls.push(call);
//! let events = [
//!     logged(1, MessageAppended::text(MessageNo(1), Role::User, "Fix the failing test.")),
//!     logged(2, answer),
//!     logged(3, MessageAppended::text(MessageNo(3), Role::User, "And?")),
//! ];
//! let tree = TreeState::fold(&events);
//!
//! // The transcript is what was said. The context is what a provider takes: the call has a result.
//! assert_eq!(tree.transcript(NodeId::ROOT).len(), 3);
//! let context = tree.context(NodeId::ROOT);
//! let roles: Vec<Role> = context.iter().map(|message| message.role).collect();
//! assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::User]);
//! assert_eq!(context[2].tool_call_id.as_deref(), Some("tc_1"));
//! assert_eq!(context[2].flag, ResultFlag::Error);
//! assert_eq!(validate_pairing(&context), Ok(()));
//! ```
//!
//! Three folds, by what they keep:
//!
//! - [`Ledger`]: no content. What an append is [checked](Ledger::check) against.
//! - [`Summary`]: what a list of sessions shows of each: title, status, counts, usage.
//! - [`TreeState`]: all that was said. The [transcript](TreeState::transcript) of each conversation, and the
//!   [context](TreeState::context) that its model is shown.
//!
//! [`views`] renders them for other programs and for people.

pub mod artifact;
mod audit;
pub mod compaction;
mod context;
pub mod context_index;
mod conversation;
pub mod delegation;
pub mod learning;
mod ledger;
pub mod memory;
mod pairing;
mod path;
pub mod questions;
mod recent;
pub mod recovery;
pub mod render;
pub mod rewind;
mod status;
mod summary;
pub mod time;
mod timeline;
mod transcript;
mod tree;
pub mod views;
mod words;

pub use audit::arguments_hash;
pub use context::{ContextMessage, ContextOrigin, SyntheticReason};
pub use ledger::{BatchLawBroken, CallState, Creation, LawBroken, Ledger, OpenCall, OpenState};
pub use pairing::{PairingError, validate_pairing};
pub use recent::Recent;
pub use status::{Lifecycle, Liveness, Status};
pub use summary::{At, NodeSummary, Presence, Summary, UsageTotals, display_id, is_activity_kind};
pub use transcript::{EntryBody, Mark, TranscriptEntry};
pub use tree::TreeState;
pub use words::{effect_word, is_repeatable, node_status_word, outcome_word, role_word};

use sessionlog_codec::event::LoggedEvent;

/// A pure fold over the events of a log.
pub trait Projection {
    /// Folds one event. Any event is accepted, whatever came before it: logs can be damaged, cut or imported.
    fn apply(&mut self, event: &LoggedEvent);
}
