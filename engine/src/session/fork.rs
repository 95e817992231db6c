//! Forking a session: a new one that begins with the history of another.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use sessionlog_codec::event::{
    AffinityCleared, NewEvent, SessionForked, SessionTitled, TitleOrigin, TurnEnded, TurnOutcome,
};
use sessionlog_codec::ids::{LogId, NodeId, SessionId};
use sessionlog_projections::recovery::open_turns;
use uuid::Uuid;

use super::Session;
use super::append::batch_of;
use super::claims::Claims;
use super::lifecycle::{already_there, session_opened};
use super::state::{State, as_logged};
use super::views::Views;
use crate::artifacts;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{ACTIVE_COPY_MAX, ForkPlan, ForkPoint, LogReader};
use crate::store::{Owner, SessionPlace, StoreInner, WorkspaceHash, canonical};

/// What a fork is.
#[derive(Clone, Debug, Default)]
pub struct ForkOptions {
    /// Its id. Default: a new UUID of version 7.
    pub id: Option<SessionId>,
    /// The directory that it is for. Default: the workspace of the session that is forked.
    pub workspace: Option<PathBuf>,
    /// What it is called. Default: as the session that is forked. A title that a person gave to that one gives way too.
    pub title: Option<String>,
}

impl Session {
    /// Forks this session: a new one that begins with its history up to `at` and goes on by itself. This process owns both,
    /// and this one goes on as before.
    ///
    /// The fork shares the files of the history, so at the head it takes the space of its own records and 64 KiB at most,
    /// however long the history is. (This session's active segment is sealed for it, if it is longer.) At an earlier
    /// position, up to one segment is copied.
    ///
    /// The fork has no open turns: those that are open at the point are recorded as interrupted in it. Calls without a result
    /// stay without one; what was under way goes on in this session, and the fork's context shows that they were not
    /// answered. Usage up to the point is this session's. Keys of appends up to the point are known in the fork too. Its
    /// views are made when its first turn ends, or when it is closed.
    ///
    /// Durable when it returns: the fork, and this session up to `at`.
    ///
    /// # Errors
    /// `Invalid` if `at` is inside of a batch that was appended as one (the positions before and after it are named), or
    /// behind the end; `Conflict` if a session of the given id exists; `Corrupt` if the history up to `at` is hurt;
    /// `Full` or `Io` if the fork can't be written: then there is none, and what is left of it is what a session leaves whose
    /// creation did not finish. (After an `Io` of the very last sync nobody knows: resuming it tells.) `Closed` or `Fenced` if
    /// this session is and something of it has yet to be written.
    pub fn fork(&self, at: ForkPoint, options: ForkOptions) -> Result<Self> {
        let point = match at {
            ForkPoint::At(position) if position != self.last() => {
                if self.writer.durable() < position {
                    self.writer.sync()?;
                }
                at
            }
            // Sealed, the history is shared by all later forks too.
            ForkPoint::At(_) => {
                self.writer.seal_longer_than(ACTIVE_COPY_MAX)?;
                at
            }
            ForkPoint::Head => ForkPoint::At(self.writer.seal_longer_than(ACTIVE_COPY_MAX)?),
        };
        Self::fork_of(Arc::clone(&self.store), &self.place, point, options)
    }

    /// Forks a session that need not be owned. See [`Store::fork`](crate::Store::fork).
    pub(crate) fn fork_of(
        store: Arc<StoreInner>,
        source: &SessionPlace,
        point: ForkPoint,
        options: ForkOptions,
    ) -> Result<Self> {
        let storage = Arc::clone(&store.home.storage);
        let id = options.id.unwrap_or_else(crate::new_session_id);
        let (workspace, workspace_path) = match options.workspace {
            Some(path) => {
                let path = canonical(&path);
                (WorkspaceHash::of(&path), path.as_os_str().as_encoded_bytes().to_vec())
            }
            None => store.home.workspace_now(source),
        };
        let place = store.home.place(workspace, id);
        // An id that was made just now is nobody's.
        if let Some(there) = options.id.map(|id| store.home.find(id)).transpose()?.flatten()
            && (there != place || there.log_exists(&storage))
        {
            return Err(already_there(id));
        }
        if options.id.is_some() {
            store.check_not_deleted(&place)?;
        }
        // Everything that could refuse the fork is looked at before a byte is written.
        let from = LogReader::new(source.log_dir(&storage));
        let plan = from.plan_fork(point, LogId::from(Uuid::now_v7()))?;
        let mut state = State::new(Views::new(&store, &place));
        state.fold_until(&from, plan.at())?;
        if point == ForkPoint::Head {
            check_identity(&state, source)?;
        }
        let this = Owner::this_process(store.now_text());
        let (now, events) =
            (store.clock.now(), first_events(&state, &plan, (source.id, id), &this, options.title));
        let first = batch_of(&events, now)?;
        state.ledger().check_batch(state.next, &events).map_err(|broken| {
            let message = "the fork's first records would break a law of the log";
            Error::with_source(ErrorKind::Corrupt, "fork.law", message, broken)
        })?;

        store.home.create_session_dir(&workspace_path, &place)?;
        let lock = place.take(&storage, &this)?;
        if options.id.is_some() {
            store.check_not_deleted_meanwhile(&place)?;
        }
        // Before the fork can be read: whoever reads it finds what it names.
        let _kept = artifacts::carry(&store, (&from, source), plan.at(), &place)?;
        let dir = place.log_dir(&storage);
        let writer = plan
            .carry_out(dir.clone(), store.options.log, &first)
            .map_err(|error| if error.kind() == ErrorKind::Conflict { already_there(id) } else { error })?;
        for event in events {
            let event = as_logged(event, state.next, now);
            state.apply(&event);
        }
        let log = LogReader::new(dir);
        let (state, claims) = (Mutex::new(state), Claims::default());
        Ok(Self { store, place, writer, log, state, claims, _lock: lock })
    }
}

/// The first own frame of a fork.
fn first_events(
    state: &State,
    plan: &ForkPlan,
    (parent, session_id): (SessionId, SessionId),
    owner: &Owner,
    title: Option<String>,
) -> Vec<NewEvent> {
    let forked = SessionForked { session_id, parent, at: plan.at(), chain: plan.chain() };
    let mut events = vec![
        NewEvent::now(NodeId::ROOT, forked),
        NewEvent::now(NodeId::ROOT, session_opened(plan.epoch(), owner, None)),
    ];
    events.extend(open_turns(&state.folds.recovery).into_iter().map(|(node, turn)| {
        let (outcome, stage, error) = (TurnOutcome::Interrupted, None, None);
        NewEvent::now(node, TurnEnded { turn, outcome, stage, error })
    }));
    // Two sessions that went on with one conversation at the provider would answer each other's questions.
    let continued =
        state.ledger().nodes().filter(|node| state.folds.recovery.delegations().affinity(*node).is_some());
    events.extend(continued.map(|node| {
        let reason = "forked".to_owned();
        NewEvent::now(node, AffinityCleared { reason })
    }));
    // A weaker title than the one that is inherited would never be shown.
    let inherited = state.folds.summary.title_origin();
    let origin = inherited.map_or(TitleOrigin::Host, |origin| origin.max(TitleOrigin::Host));
    events.extend(title.map(|title| NewEvent::now(NodeId::ROOT, SessionTitled { title, origin })));
    events
}

/// Whether a log is that of the session at its place. A fork that lost the segments it wrote itself looks like the session
/// it was forked from, and must not be gone on with as that.
pub(super) fn check_identity(state: &State, place: &SessionPlace) -> Result<()> {
    let Some(found) = state.folds.summary.session_id.filter(|found| *found != place.id) else {
        return Ok(());
    };
    let message = format!(
        "{} holds the log of session {found}: the segments that make it session {} are missing, or it was copied here. It \
         can be read (`logdump show`), not written",
        place.dir.display(),
        place.id
    );
    Err(Error::new(ErrorKind::Corrupt, "session.identity", message))
}
