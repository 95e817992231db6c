//! Workspace memory: what was said and done in the sessions of a workspace, as records that can be searched.
//!
//! [`Archive`] folds the events of one log into [`MemoryRecord`]s. Compaction, rewind, a cleared run and a withdrawal take
//! nothing away: memory is of what happened, the context is of what a model is shown. What was erased on purpose is gone
//! from it.
//!
//! # What is a record
//!
//! | record | of |
//! |---|---|
//! | message | a message with text, and each later piece of one |
//! | call | each tool call that was asked for, with its arguments; its status follows the result |
//! | result | a result, a resolution, a report of a task or of a plan |
//! | failure | a turn that failed, or broke off |
//! | event | the goal, a title, an end, a checkpoint, a steering command, a change to a repository, a fact of a plan |
//! | summary | the summary of a compaction |
//! | task | a delegation's request, an objective, an approved plan |
//! | question | a question to a person, and its answer |
//!
//! A message that was taken back is a record with the status [`Withdrawn`](MemoryStatus::Withdrawn). Reasoning is not
//! archived: providers sign or hide it. A fork's records are those after the fork; what it inherited is archived where it
//! happened. The results of tools that read memory itself are records without text, or each search would find the searches
//! before it.
//!
//! # How it is ranked
//!
//! A text is cut into [words](tokens()); the words of a query are alternatives. The score of a record is
//! [BM25](rank::bm25): for each word of the query, `ln(1 + (N - n + 0.5) / (n + 0.5)) * f * 2.2 / (f + 1.2 * (0.25 + 0.75 *
//! l / a))`, where `N` records are in the workspace's memory, `n` of them with the word, `f` times in this one, which is `l`
//! words long where the average is `a`. Filters choose among the records and don't change `N`, `n` or `a`.
//!
//! All of it is pure and made of these functions only, so a search by an index and one by reading every log give the same.

mod archive;
mod convert;
mod excerpt;
mod fold_case;
mod query;
pub mod rank;
mod record;
mod tokens;
mod words;

pub use archive::{Archive, ArchiveStep, DEFAULT_ARCHIVE_TOOLS, is_archive_read, text_at};
pub use convert::{archived_of, record_of};
pub use excerpt::{Excerpt, excerpt};
pub use query::{MemoryFilter, MemoryQuery, MemorySort, QueryVector, Recency, check_components};
pub use record::{InvalidRecordId, MemoryKind, MemoryRecord, MemoryStatus, RecordId};
pub use tokens::{Tokens, tokens};
