//! Sessions of older agents, as they lie in workspaces, into the store: once, whatever happens.
//!
//! [`find()`] tells what is there, [`Migration::plan`] what each of it would become, [`Migration::run`] does it. All of it is
//! decided anew each time from the sources and the store, record by record: there is no list of what was done that could
//! disagree with either. So a run that broke off is repeated, a repeated one changes nothing, and neither other sessions nor
//! an earlier listing are in its way. One source that can't be taken costs its own row.
//!
//! Originals are never changed. They are removed only when that is asked for, and then only when the new session is durable,
//! verifies, and has each record of them, and none of them changed meanwhile.

mod find;
mod originals;
mod scratchpad;
mod step;
#[cfg(test)]
mod tests;
mod unread;

use sessionlog::codec::ids::SessionId;
use sessionlog::{Store, StoreReader};

use crate::exit::Exit;

pub use find::{Findings, Found, Unread, find};
pub use originals::{Disk, OsDisk};

/// What becomes of the files that were migrated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Removal {
    /// They stay.
    #[default]
    Keep,
    /// They go, once they are not needed any more.
    Remove,
}

/// What became of a source, or would become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// All of it is in the store already.
    Unchanged,
    /// It gained records since it was migrated, which follow those that are there.
    Grown,
    /// It becomes a session.
    New,
    /// It is not what was migrated from it before. Nothing of it was taken.
    Conflict,
    /// It was migrated and then deleted here: it is not brought back.
    Deleted,
    /// It could not be taken, or not to its end.
    Failed,
}

impl Outcome {
    /// The outcome as one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Grown => "grown",
            Self::New => "new",
            Self::Conflict => "conflict",
            Self::Deleted => "deleted",
            Self::Failed => "failed",
        }
    }
}

/// What became of the files of a source, or would become of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Originals {
    /// They stay, as was asked.
    Kept,
    /// So many would be removed, if the new session verifies.
    WouldGo(usize),
    /// So many were removed.
    Removed(usize),
    /// They stay, though they were to go: why.
    Refused(String),
}

/// What became of one source, or would become of it.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its first file.
    pub path: std::path::PathBuf,
    /// Its format.
    pub format: String,
    /// The agent's own id of it.
    pub agent_session_id: String,
    /// The session.
    pub session_id: SessionId,
    /// The workspace that the session is in, as its machine spells it; empty if it is not known.
    pub workspace: Vec<u8>,
    /// What became of it.
    pub outcome: Outcome,
    /// Records that were appended, or would be.
    pub records: u64,
    /// Messages and results that the source holds.
    pub messages: u64,
    /// What is odd about it.
    pub odd: Vec<String>,
    /// What became of its files.
    pub originals: Originals,
    /// Why it failed.
    pub error: Option<String>,
    /// What it means for the exit code.
    pub exit: Exit,
}

/// A migration into a store.
#[derive(Clone, Copy)]
pub struct Migration<'a> {
    /// Where sessions go.
    pub store: &'a Store,
    /// What becomes of the originals.
    pub removal: Removal,
    /// How they are removed.
    pub disk: &'a dyn Disk,
}

impl Migration<'_> {
    /// What would become of a source. Nothing is changed. `reader` is the home, if there is one. `progress` is told how many
    /// bytes were read since it was told last.
    #[must_use]
    pub fn plan(
        found: &Found,
        reader: Option<&StoreReader>,
        removal: Removal,
        progress: &mut dyn FnMut(u64),
    ) -> Row {
        step::plan(found, reader, removal, progress)
    }

    /// Migrates a source, and says what became of it.
    ///
    /// Durable when it returns: the session, unless the row says that it failed.
    #[must_use]
    pub fn run(&self, found: &Found, progress: &mut dyn FnMut(u64)) -> Row {
        step::run(self, found, progress)
    }
}
