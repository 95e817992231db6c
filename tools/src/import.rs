//! Foreign sessions in: Claude Code, recursive and q.
//!
//! One record of a source becomes one `imported.raw` and the events that it means, in one frame. So nothing of the
//! source is lost, a crash leaves a whole number of records, and importing again appends only what is new: the raw
//! records in the log are compared with the file, one by one, and the mapper is run over all of it, which gives it
//! back the state it needs. A mapper is a deterministic fold: its events depend on the records so far and on nothing
//! else, and its state is ids and numbers, never content.
//!
//! [`discover()`] finds sessions by what is in the files, [`import_session`] brings one of them into a [`Target`].

mod claude;
mod conversation;
mod discover;
mod document;
mod driver;
mod lines;
mod loose;
mod mapper;
mod q;
mod recursive;
mod report;
mod sniff;
mod split;
mod target;
#[cfg(test)]
mod tests;
mod tree;

pub use discover::{DiscoverError, FileRole, QPart, SourceFile, SourceFormat, SourceSession, discover};
pub use driver::{ImportError, import_session};
pub(crate) use loose::session_id;
pub use report::{Damage, ImportReport, Imported, Note, SessionReport};
pub use sniff::SessionFacts;
pub use target::{KnownNode, RawRecord, Target, TargetError, TargetSession};
