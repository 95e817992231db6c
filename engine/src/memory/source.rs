//! The logs that a workspace's memory is folded from.

use std::collections::BTreeSet;
use std::sync::Arc;

use sessionlog_codec::event::Event;
use sessionlog_codec::ids::SessionId;
use sessionlog_codec::record::Record;
use sessionlog_codec::registry::kind;
use sessionlog_projections::memory::{Archive, ArchiveStep, record_of};

use crate::error::Result;
use crate::log::{LogDir, LogReader};
use crate::session::logged;
use crate::store::{Home, WorkspaceHash};

/// What a log is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Origin {
    /// A session that is there.
    Session,
    /// What a deleted one left.
    Archive,
}

/// One log.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) session: SessionId,
    pub(super) origin: Origin,
    pub(super) log: LogReader,
}

impl Source {
    pub(super) fn of(home: &Home, workspace: &WorkspaceHash, session: SessionId, origin: Origin) -> Self {
        let parent = match origin {
            Origin::Session => "sessions",
            Origin::Archive => "archive",
        };
        let dir = home.workspace_dir(workspace).join(parent).join(session.to_string());
        let (segments, quarantine) = (dir.join("log"), dir.join("quarantine"));
        let log = LogReader::new(LogDir { storage: Arc::clone(&home.storage), segments, quarantine });
        Self { session, origin, log }
    }
}

/// Every log of a workspace's memory, each session once: while it is there, its archive is not looked at, which is then of a
/// deletion that has not happened.
pub(super) fn sources(home: &Home, workspace: &WorkspaceHash) -> Result<Vec<Source>> {
    let dir = home.workspace_dir(workspace);
    let sessions: BTreeSet<SessionId> = home.ids_in(&dir.join("sessions"))?.into_iter().collect();
    let archived = home.ids_in(&dir.join("archive"))?;
    let archived = archived.into_iter().filter(|id| !sessions.contains(id));
    let archived = archived.map(|id| Source::of(home, workspace, id, Origin::Archive));
    let sessions = sessions.iter().map(|id| Source::of(home, workspace, *id, Origin::Session));
    Ok(sessions.chain(archived).collect())
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
