//! A session, read without owning it: no lock, no change, while another process writes it or long after.

use std::ops::ControlFlow;
use std::sync::Arc;

use sessionlog_codec::ids::{NodeId, Position};
use sessionlog_projections::{
    ContextMessage, Ledger, Lifecycle, Liveness, OpenCall, Projection, Status, Summary, TreeState,
};

use super::events::{EventItem, read_events};
use super::snapshot::Snapshots;
use super::state::{State, Wanted};
use super::verify::{SessionVerification, verify};
use crate::artifacts::ArtifactReader;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{LogReader, TailState};
use crate::storage::{Locked, Storage};
use crate::store::{Home, Owner, SessionPlace, owner, root_of};

/// A session, read without owning it. Each method looks at the files anew.
#[derive(Clone, Debug)]
pub struct SessionReader {
    storage: Arc<dyn Storage>,
    place: SessionPlace,
    log: LogReader,
}

impl SessionReader {
    pub(crate) fn new(storage: Arc<dyn Storage>, place: SessionPlace) -> Self {
        let log = LogReader::new(place.log_dir(&storage));
        Self { storage, place, log }
    }

    pub(super) fn parts(&self) -> (Arc<dyn Storage>, &SessionPlace) {
        (Arc::clone(&self.storage), &self.place)
    }

    /// Where the session is.
    #[must_use]
    pub fn place(&self) -> &SessionPlace {
        &self.place
    }

    /// The session's log, below its events.
    #[must_use]
    pub fn log(&self) -> &LogReader {
        &self.log
    }

    /// Gives every event from `from` on to `visit`, in order, until it breaks off. Damage is an item, not an error.
    ///
    /// # Errors
    /// `NotFound` if there is no log; `Io` if it can't be read.
    pub fn events(
        &self,
        from: Position,
        visit: &mut dyn FnMut(EventItem) -> ControlFlow<()>,
    ) -> Result<TailState> {
        read_events(&self.log, from, visit)
    }

    /// Folds the log up to `until` (all of it: [`Position`] of `u64::MAX`) into `projection`. What can't be read is left out.
    ///
    /// # Errors
    /// As [`events`](Self::events).
    pub fn fold(&self, until: Position, projection: &mut dyn Projection) -> Result<TailState> {
        self.events(Position(1), &mut |item| {
            if let EventItem::Event(event) = item {
                if event.position > until {
                    return ControlFlow::Break(());
                }
                projection.apply(&event);
            }
            ControlFlow::Continue(())
        })
    }

    /// The conversations of the tree, as of `until`.
    ///
    /// # Errors
    /// As [`events`](Self::events).
    pub fn tree(&self, until: Position) -> Result<TreeState> {
        let mut tree = TreeState::default();
        self.fold(until, &mut tree)?;
        Ok(tree)
    }

    /// Title, counts, usage. Where there is a snapshot, what came behind it is read, not the whole log.
    ///
    /// # Errors
    /// As [`events`](Self::events).
    pub fn summary(&self) -> Result<Summary> {
        if let Some(state) = self.state()? {
            return Ok(state.folds.summary);
        }
        let mut summary = Summary::default();
        self.fold(Position(u64::MAX), &mut summary)?;
        Ok(summary)
    }

    /// The calls without a result, of all conversations.
    ///
    /// # Errors
    /// As [`events`](Self::events).
    pub fn open_calls(&self) -> Result<Vec<OpenCall>> {
        if let Some(state) = self.state()? {
            return Ok(state.ledger().open_calls());
        }
        let mut ledger = Ledger::default();
        self.fold(Position(u64::MAX), &mut ledger)?;
        Ok(ledger.open_calls())
    }

    /// What the model of a conversation is shown, as of now. Where there is a snapshot, it is read from the records that it
    /// is made of, not from the whole log.
    ///
    /// # Errors
    /// As [`events`](Self::events).
    pub fn context(&self, node: NodeId) -> Result<Vec<ContextMessage>> {
        if let Some(mut state) = self.state()? {
            match state.content(&self.log, Wanted::Context(node)) {
                Ok(content) => return Ok(content.tree.context(node)),
                Err(error) if is_damage(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.tree(Position(u64::MAX))?.context(node))
    }

    /// The folds as a snapshot and what came behind it give them; `None`: the log has to be read.
    fn state(&self) -> Result<Option<State>> {
        match State::of_snapshot(&self.log, &self.snapshots()) {
            // A reader gives what can be read.
            Err(error) if is_damage(&error) => Ok(None),
            state => state,
        }
    }

    pub(super) fn snapshots(&self) -> Snapshots {
        Snapshots::of(&self.storage, &self.place.dir)
    }

    /// The artifacts of the session's workspace, to be read.
    #[must_use]
    pub fn artifacts(&self) -> ArtifactReader {
        let root = root_of(&self.place.dir).unwrap_or(&self.place.dir).to_owned();
        let home = Home { storage: Arc::clone(&self.storage), root };
        ArtifactReader::new(&home, &(Arc::new(SystemClock) as Arc<dyn Clock>), &self.place.workspace)
    }

    /// Whether somebody owns the session now, found without taking its lock.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        match self.storage.is_locked(&self.place.lock_path()) {
            Some(Locked::Held) => Liveness::Alive,
            Some(Locked::Free) => Liveness::Dead,
            None => Liveness::Unknown,
        }
    }

    /// What the newest owner wrote about itself. For people: it may be old or wrong.
    #[must_use]
    pub fn owner(&self) -> Option<Owner> {
        owner::read(&self.storage, &self.place.lock_path())
    }

    /// How the session stands, judged now.
    #[must_use]
    pub fn status(&self, summary: &Summary) -> Status {
        self.status_of(summary.lifecycle)
    }

    /// The same, of a session whose life is known. Its lock is looked at only if that tells anything.
    pub(crate) fn status_of(&self, lifecycle: Lifecycle) -> Status {
        let liveness = match lifecycle {
            Lifecycle::Open => self.liveness(),
            Lifecycle::Closed | Lifecycle::Finished(_) => Liveness::Unknown,
        };
        lifecycle.status(liveness)
    }

    /// Checks the session from its bytes to its laws, and the artifacts that it names, read-only.
    ///
    /// # Errors
    /// As [`events`](Self::events). What is wrong with readable bytes is a finding.
    pub fn verify(&self) -> Result<SessionVerification> {
        verify(&self.log, &self.artifacts())
    }
}

/// Whether a reader leaves out what an error is about, where an owner would refuse.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}
