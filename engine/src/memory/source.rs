//! The logs that a workspace's memory is folded from.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use sessionlog_codec::event::Event;
use sessionlog_codec::ids::SessionId;
use sessionlog_codec::record::Record;
use sessionlog_codec::registry::kind;
use sessionlog_projections::memory::{Archive, ArchiveStep, record_of};

use crate::error::Result;
use crate::log::{LogDir, LogReader};
use crate::session::logged;
use crate::storage::Storage;
use crate::store::{Home, WorkspaceHash};

/// What a log is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Origin {
    /// A session that is there.
    Session,
    /// What a deleted one left.
    Archive,
}

/// One log. Thousands of them are looked at by each search, so each is no more than its name.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) session: SessionId,
    pub(super) origin: Origin,
    workspace: Arc<Place>,
}

/// A workspace's directory.
#[derive(Debug)]
struct Place {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
}

impl Source {
    pub(super) fn of(home: &Home, workspace: &WorkspaceHash, session: SessionId, origin: Origin) -> Self {
        Self { session, origin, workspace: place(home, workspace) }
    }

    /// The log, to be read.
    pub(super) fn log(&self) -> LogReader {
        let segments = self.segments();
        let quarantine = segments.with_file_name("quarantine");
        LogReader::new(LogDir { storage: Arc::clone(self.storage()), segments, quarantine })
    }

    /// The directory of the log's segments.
    pub(super) fn segments(&self) -> PathBuf {
        let parent = match self.origin {
            Origin::Session => "sessions",
            Origin::Archive => "archive",
        };
        self.workspace.dir.join(format!("{parent}/{}/log", self.session))
    }

    pub(super) fn storage(&self) -> &Arc<dyn Storage> {
        &self.workspace.storage
    }
}

fn place(home: &Home, workspace: &WorkspaceHash) -> Arc<Place> {
    Arc::new(Place { storage: Arc::clone(&home.storage), dir: home.workspace_dir(workspace) })
}

/// Every log of a workspace's memory, each session once: while it is there, its archive is not looked at, which is then of a
/// deletion that has not happened.
pub(super) fn sources(home: &Home, workspace: &WorkspaceHash) -> Result<Vec<Source>> {
    let place = place(home, workspace);
    // Both in order.
    let sessions = home.ids_in(&place.dir.join("sessions"))?;
    let mut archived = home.ids_in(&place.dir.join("archive"))?;
    archived.retain(|id| sessions.binary_search(id).is_err());
    let of = |session, origin| Source { session, origin, workspace: Arc::clone(&place) };
    let archived = archived.into_iter().map(|id| of(id, Origin::Archive));
    Ok(sessions.iter().map(|id| of(*id, Origin::Session)).chain(archived).collect())
}

/// The fold of one log.
pub(super) enum Folding {
    Session(Box<Archive>),
    Archive,
}

impl Folding {
    pub(super) fn of(source: &Source, archive_tools: &BTreeSet<String>) -> Self {
        match source.origin {
            Origin::Session => Self::Session(Box::new(Archive::of(source.session, archive_tools))),
            Origin::Archive => Self::Archive,
        }
    }

    /// Folds one record, and says what it means. A record that does not decode means nothing.
    pub(super) fn apply(
        &mut self,
        session: SessionId,
        record: &Record<'_>,
        step: &mut dyn FnMut(ArchiveStep),
    ) {
        let kind = record.envelope.kind;
        match self {
            Self::Session(archive) if Archive::looks_at(kind) => {
                if let Ok(event) = logged(record) {
                    archive.apply(&event, step);
                }
            }
            Self::Archive if kind == kind::MemoryArchived => {
                if let Ok(Event::MemoryArchived(archived)) = logged(record).map(|logged| logged.event)
                    && archived.session_id == session
                    && let Some(record) = record_of(&archived)
                {
                    step(ArchiveStep::Record(Box::new(record)));
                }
            }
            Self::Session(_) | Self::Archive => {}
        }
    }
}
