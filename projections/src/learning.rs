//! Learning, as pure folds: what of a session is learned from, which part of it is being learned, and what the library
//! holds.
//!
//! - [`LearnState`] folds a session's log. It tells which spans are [ready](LearnState::closable), which ones wait, first in
//!   first out, and how far the one job is. A span is a pair of positions: what was said stays where it is, and is nowhere
//!   a second time.
//! - [`Switches`] folds a workspace's log: whether learning is on, and of each session which positions fell into a time when
//!   it was off.
//! - [`LibraryState`] folds the user's log: propositions, the librarian's decisions, entries.
//! - [`Proposition`] is what a Thinker proposes, checked: bounds, kinds, and what must not get into a library.
//!
//! # What is learned from
//! Text of user and assistant, of messages that everybody is shown; summaries of compactions; completed tasks and approved
//! plans. Not: tool results, arguments of calls, reasoning, instructions of system and developer, notices, what was said
//! before the first user message, the model's reply to a completed task (it repeats it), and whatever was withdrawn, erased
//! or left by a rewind. Nothing of a time when learning was off.

mod collect;
mod input;
mod library;
mod proposition;
mod queue;
mod ranking;
mod secrets;
mod state;
mod switch;

pub use collect::{Begin, Closing, Conversations, SizeLimit, Unit, Waiting};
pub use input::{Line, Speaker, input_digest, learned_text, slot_key};
pub use library::{
    Applied, Entry, Filed, Found, LibraryState, NotApplied, Receipt, Recency, SearchOptions, Standing,
    Submission, entry_id,
};
pub use proposition::{
    CONFIDENCE_MAX, CONTENT_CHARS_MAX, Draft, EXTRACTOR_CHARS_MAX, Proposition, QUERIES_MAX, QUERY_CHARS_MAX,
    REF_CHARS_MAX, REFS_MAX, REQUEST_LEN_MAX, Refusal, TAG_CHARS_MAX, TAGS_MAX,
};
pub use queue::{Job, Registered, Segment};
pub use secrets::{Secret, is_private_path, secret};
pub use state::{LearnState, is_early_kind, is_learn_kind};
pub use switch::{OffSpans, SWITCH_EVENT, SWITCH_NAMESPACE, SessionEnds, Switches};
