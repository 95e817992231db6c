//! Creating, resuming, finishing and closing.

use std::path::Path;
use std::sync::{Arc, Mutex};

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{
    CutTail, Event, FinalStatus, ImportOrigin, NewEvent, SessionClosed, SessionCreated, SessionFinished,
    SessionOpened,
};
use sessionlog_codec::ids::{Epoch, LogId, NodeId, Position, SessionId, Timestamp};
use sessionlog_projections::recovery::{self, Availability, RecoveryState, Step, TakeOver};
use sessionlog_projections::{Lifecycle, OpenCall, OpenState};
use uuid::Uuid;

use super::Session;
use super::claims::Claims;
use super::report::{PreviousEnd, RecoveryReport};
use super::snapshot::{Moment, Snapshots};
use super::state::{Reach, State};
use super::views::Views;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Durability, LogReader, LogRecovery, LogWriter, Receipt, Recovering, remove_unfinished};
use crate::store::{Owner, SessionPlace, StoreInner, WorkspaceHash, canonical, slug};

/// What a new session is.
#[derive(Clone, Debug, Default)]
pub struct NewSession {
    /// Its id. Default: a new UUID of version 7.
    pub id: Option<SessionId>,
    /// What it is for.
    pub goal: Option<String>,
    /// The model it begins with.
    pub model: Option<String>,
    /// The provider of that model.
    pub provider: Option<String>,
    /// The host's preset or agent profile.
    pub preset: Option<String>,
    /// The hash of the tools offered. A resume that gives another one is refused.
    pub tool_registry_hash: Option<String>,
    /// The host program and its version.
    pub host: Option<String>,
    /// Where it is imported from.
    pub imported: Option<ImportOrigin>,
    /// When it began, of an import.
    pub created_at: Option<Timestamp>,
    /// Further data of the host, opaque.
    pub extra: Option<RawBytes>,
}

impl NewSession {
    /// A session for something.
    #[must_use]
    pub fn new(goal: impl Into<String>) -> Self {
        Self { goal: Some(goal.into()), ..Self::default() }
    }

    /// The model it begins with.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }
}

/// How to resume.
#[derive(Clone, Debug, Default)]
pub struct ResumeOptions {
    /// The hash of the tools offered now; `None`: don't compare.
    pub tool_registry_hash: Option<String>,
}

impl Session {
    /// Creates a session. Durable when it returns: the session and its first records.
    pub(crate) fn create(store: Arc<StoreInner>, workspace: &Path, new: NewSession) -> Result<Self> {
        let path = canonical(workspace);
        let workspace_bytes = path.as_os_str().as_encoded_bytes().to_vec();
        Self::create_at(store, WorkspaceHash::of(&path), workspace_bytes, slug(&path), new)
    }

    /// Creates a session of a workspace that need not exist on this machine.
    pub(crate) fn create_at(
        store: Arc<StoreInner>,
        workspace: WorkspaceHash,
        workspace_path: Vec<u8>,
        slug: String,
        new: NewSession,
    ) -> Result<Self> {
        let id = new.id.unwrap_or_else(crate::new_session_id);
        let storage = Arc::clone(&store.home.storage);
        let place = store.home.place(workspace, id);
        if new.id.is_some() {
            store.check_not_deleted(&place)?;
        }
        store.home.create_session_dirs(&workspace_path, &place)?;
        let owner = Owner::this_process(store.now_text());
        let lock = place.take(&storage, &owner)?;
        if new.id.is_some() {
            store.check_not_deleted_meanwhile(&place)?;
        }
        let dir = place.log_dir(&storage);
        let log_id = LogId::from(Uuid::now_v7());
        let create = || LogWriter::create(dir.clone(), store.options.log, log_id);
        let writer = match create() {
            Ok(writer) => writer,
            // An id that its host chose is not lost because power went while it was created.
            Err(error) if is_there(&error) => match remove_unfinished(&dir)? {
                true => create()?,
                false => return Err(already_there(id)),
            },
            Err(error) => return Err(error),
        };
        let log = LogReader::new(dir);
        let views = Views::new(&store, &place);
        let state = Mutex::new(State::new(views));
        let claims = Claims::default();
        let session = Self { store, place, writer, log, state, claims, _lock: lock };
        let created_at = new.created_at;
        let created = NewEvent {
            timestamp: created_at,
            ..NewEvent::now(NodeId::ROOT, created_event(id, workspace_path, slug, new))
        };
        let opened = NewEvent::now(NodeId::ROOT, session_opened(Epoch(1), &owner, None));
        session.append_batch(vec![created, opened], Durability::Sync)?;
        session.refresh_views()?;
        Ok(session)
    }

    /// Takes a session over from whoever owned it before.
    pub(crate) fn resume(
        store: Arc<StoreInner>,
        place: SessionPlace,
        options: &ResumeOptions,
    ) -> Result<(Self, RecoveryReport)> {
        let storage = Arc::clone(&store.home.storage);
        let owner = Owner::this_process(store.now_text());
        let lock = place.take(&storage, &owner)?;
        let dir = place.log_dir(&storage);
        let log = LogReader::new(dir.clone());
        let loaded = Snapshots::of(&storage, &place.dir).load(&log)?;
        let recovering = match &loaded {
            Some(loaded) => Recovering::open_behind(dir, store.options.log, &loaded.end.mark)?,
            None => Recovering::open(dir, store.options.log, Position::START)?,
        };
        // Everything that could refuse the resume is looked at before recovery changes a byte.
        let mut state = State::open(Views::load(&store, &place), &log, loaded)?;
        super::fork::check_identity(&state, &place)?;
        check_tools(&state, options)?;
        let (writer, recovery) = recovering.finish()?;
        state.next = writer.next();
        let rebuilt_views = state.views.problems();
        let snapshot = (state.reach == Reach::Bounded).then_some(state.snapshot.0);
        let (state, claims) = (Mutex::new(state), Claims::default());
        let session = Self { store, place, writer, log, state, claims, _lock: lock };
        let mut report = session.take_over(&owner, recovery)?;
        report.rebuilt_views = rebuilt_views;
        report.snapshot = snapshot;
        report.erased = session.finish_erasures()?.records;
        session.refresh_views()?;
        Ok((session, report))
    }

    /// Records the new ownership, ends the turns that the old one left open, and does what of the recovery needs no host.
    fn take_over(&self, owner: &Owner, recovery: LogRecovery) -> Result<RecoveryReport> {
        let mut state = self.state()?;
        let previous_end = match state.folds.summary.lifecycle {
            Lifecycle::Open => PreviousEnd::Crashed,
            Lifecycle::Closed | Lifecycle::Finished(_) => PreviousEnd::Closed,
        };
        let cut = recovery.cut.as_ref().map(|cut| CutTail {
            segment: cut.segment.to_string(),
            offset: cut.tail.offset,
            len: cut.tail.len,
            kept: recovery.last,
            quarantine: cut.quarantine.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        });
        let epoch = self.writer.epoch();
        let opened = session_opened(epoch, owner, cut);
        let TakeOver { events, steps, turns, after: _ } =
            TakeOver::of(&state.folds.recovery, state.next, opened);
        let open_before = state.ledger().open_calls();
        // One frame with the ownership: a crash leaves all of it or nothing.
        self.commit(&mut state, events, Durability::Sync)?.wait(self, state)?;
        let state = self.state()?;
        let unknown = |open: &OpenCall| {
            let (node, call) = (open.node, open.call);
            steps.contains(&Step::ReportUnknown { node, call })
        };
        Ok(RecoveryReport {
            previous_end,
            epoch,
            last: recovery.last,
            cut: recovery.cut,
            unknown_calls: open_before.into_iter().filter(unknown).collect(),
            not_started_calls: not_started(&state.folds.recovery),
            interrupted_turns: turns,
            owed: recovery::plan(&state.folds.recovery, &|_| Availability::Available),
            settled: steps,
            snapshot: None,
            rebuilt_views: Vec::new(),
            erased: 0,
        })
    }

    /// Declares the session's end and lets go of it. Durable when it returns: everything.
    ///
    /// # Errors
    /// As [`append`](Self::append). The session is let go of in any case; it can be resumed.
    pub fn finish(self, status: FinalStatus) -> Result<Receipt> {
        let finished = NewEvent::now(NodeId::ROOT, SessionFinished { status, reason: None });
        self.let_go(vec![finished])
    }

    /// Lets go of the session, to be resumed later. Durable when it returns: everything.
    ///
    /// # Errors
    /// As [`append`](Self::append). The session is let go of in any case; it can be resumed.
    pub fn close(self) -> Result<Receipt> {
        self.let_go(Vec::new())
    }

    fn let_go(&self, mut events: Vec<NewEvent>) -> Result<Receipt> {
        events.push(NewEvent::now(NodeId::ROOT, SessionClosed { epoch: self.writer.epoch() }));
        // The record before was witnessed by none; this one is written after it is durable, and says so.
        self.writer.sync()?;
        let receipt = self.append_batch(events, Durability::Sync)?;
        self.refresh_views_at_close()?;
        self.keep_snapshot(Moment::Close);
        self.writer.close()?;
        self.compress(usize::MAX);
        Ok(receipt)
    }

    /// Compresses sealed segments, at most so many. Nothing depends on it: what fails is tried again by the next owner.
    pub(super) fn compress(&self, most: usize) {
        let Some(packing) = self.store.options.compression.packing() else { return };
        match self.writer.compress(most, packing) {
            Ok(done) if done.segments > 0 => {
                tracing::debug!(session = %self.place.id, ?done, "sealed segments were compressed");
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(session = %self.place.id, %error, "a sealed segment could not be compressed");
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Finished and closed sessions come by here too: their writer is closed and refuses.
        if !std::thread::panicking()
            && let Err(error) = self.let_go(Vec::new())
            && error.kind() != ErrorKind::Closed
        {
            tracing::warn!(session = %self.place.id, %error, "the session could not be closed in order");
        }
    }
}

/// The calls that nobody started; what was delegated is under way.
fn not_started(state: &RecoveryState) -> Vec<OpenCall> {
    let open = state.ledger().open_calls().into_iter();
    let untouched = open.filter(|open| {
        let child = state.delegations().child_of(open.node, open.call);
        open.state == OpenState::NotStarted && child.is_none()
    });
    untouched.collect()
}

fn created_event(id: SessionId, workspace: Vec<u8>, slug: String, new: NewSession) -> Event {
    let NewSession { goal, model, provider, preset, tool_registry_hash, host, imported, extra, .. } = new;
    SessionCreated {
        session_id: id,
        workspace: RawBytes(workspace),
        slug,
        goal,
        model,
        provider,
        preset,
        tool_registry_hash,
        host,
        imported,
        extra,
    }
    .into()
}

pub(super) fn session_opened(epoch: Epoch, owner: &Owner, cut: Option<CutTail>) -> SessionOpened {
    SessionOpened {
        epoch,
        pid: owner.pid,
        machine: owner.host.clone(),
        command: owner.command.clone(),
        library: concat!("sessionlog ", env!("CARGO_PKG_VERSION")).to_owned(),
        cut,
    }
}

fn check_tools(state: &State, options: &ResumeOptions) -> Result<()> {
    let created = state.folds.summary.created.as_ref();
    let stored = created.and_then(|created| created.what.tool_registry_hash.as_deref());
    match (stored, options.tool_registry_hash.as_deref()) {
        (Some(stored), Some(given)) if stored != given => {
            let message = format!(
                "the session was recorded with other tools ({stored}) than are offered now ({given}); \
                 resume without a hash if that is meant"
            );
            Err(Error::new(ErrorKind::Conflict, "session.tools", message))
        }
        _ => Ok(()),
    }
}

fn is_there(error: &Error) -> bool {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .is_some_and(|source| source.kind() == std::io::ErrorKind::AlreadyExists)
}

pub(super) fn already_there(id: SessionId) -> Error {
    Error::new(ErrorKind::Conflict, "session.exists", format!("there is a session {id} already"))
}
