//! One session, owned: append with its laws, run calls, compact, read what was said, let go.

mod append;
mod branch;
mod calls;
mod capture;
mod claims;
mod compaction;
mod erasure;
mod events;
mod folds;
mod follow;
mod fork;
mod learning;
mod lifecycle;
mod message;
mod newest;
mod orphans;
mod reader;
mod report;
mod salvage;
mod snapshot;
mod state;
mod verify;
mod views;
mod work;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sessionlog_codec::event::ToolCall;
use sessionlog_codec::ids::{CallRef, NodeId, Position, SessionId};
use sessionlog_projections::{ContextMessage, Ledger, Summary, TranscriptEntry, TreeState};

pub use append::Appended;
pub(crate) use append::batch_of;
pub use calls::RunningCall;
pub use compaction::CompactionSettings;
pub use erasure::ChildDeletion;
pub use events::{EventItem, Undecodable};
pub use follow::{FollowItem, Follower};
pub use fork::ForkOptions;
pub(crate) use learning::LearnClaim;
pub use lifecycle::{NewSession, ResumeOptions};
pub use message::{CallResult, Compaction, Message};
pub use orphans::{Orphan, OrphanChoice, OrphanPolicy, RepeatedCall};
pub use reader::SessionReader;
pub use report::{PreviousEnd, RecoveryReport};
pub use salvage::{FirstRecord, Neighbour, Salvage, SalvageReport, SalvagedSpan, UnreadableRecord};
pub use snapshot::SnapshotPolicy;
pub use verify::SessionVerification;
pub use work::{
    Answer, AskedAgent, ChildEnd, ChildResult, Delegated, Delegation, EndReason, ExternalRequest, ModelTurn,
    NewChild, OwedCall, TurnEnd, Work,
};

use crate::error::{ErrorKind, Result};
use crate::log::{LogReader, LogWriter};
use crate::storage::Lock;
use crate::store::{SessionPlace, StoreInner};
use claims::Claims;
use snapshot::{Moment, Snapshots};
pub(crate) use state::logged;
use state::{Content, Freshness, State, Wanted};

/// A session that this process owns. Share it between threads by reference: every method takes `&self`.
///
/// # What is durable when
/// An append returns when it is as durable as the store's [`Durability`](crate::Durability) asks: by default on disk.
///
/// # Letting go
/// [`finish`](Self::finish) and [`close`](Self::close) end the ownership in order. A session that is dropped is closed as far
/// as that works. One whose process dies is `failed` for every reader from that moment on, and complete: everything that
/// was acknowledged is there.
#[derive(Debug)]
pub struct Session {
    store: Arc<StoreInner>,
    place: SessionPlace,
    writer: LogWriter,
    log: LogReader,
    state: Mutex<State>,
    claims: Claims,
    /// Held as long as the session is: the last field, so that it is the last to go.
    _lock: Box<dyn Lock>,
}

impl Session {
    /// The session's id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.place.id
    }

    /// Where the session is.
    #[must_use]
    pub fn place(&self) -> &SessionPlace {
        &self.place
    }

    /// The same session for reading, which goes on beside the appends.
    #[must_use]
    pub fn reader(&self) -> SessionReader {
        SessionReader::new(Arc::clone(&self.store.home.storage), self.place.clone())
    }

    /// The last record's position, appends under way included.
    #[must_use]
    pub fn last(&self) -> Position {
        Position(self.writer.next().0.saturating_sub(1))
    }

    /// What the model is shown: legal for every provider's rules of pairing, whatever happened to the session.
    ///
    /// The first call reads the records that the context is made of, not the whole log; after it, each append keeps it up.
    /// Where the head went back behind a compaction, it reads all.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log can't be read.
    pub fn context(&self) -> Result<Vec<ContextMessage>> {
        self.context_of(NodeId::ROOT)
    }

    /// What the model of any conversation of the tree is shown.
    ///
    /// # Errors
    /// As [`context`](Self::context).
    pub fn context_of(&self, node: NodeId) -> Result<Vec<ContextMessage>> {
        self.with_content(Wanted::Context(node), |content| content.tree.context(node))
    }

    /// What a person is shown: every message and every result, in order, whatever the context leaves out.
    ///
    /// # Errors
    /// As [`context`](Self::context).
    pub fn transcript(&self) -> Result<Vec<TranscriptEntry>> {
        self.with_tree(|tree| tree.transcript(NodeId::ROOT))
    }

    /// The whole tree's conversations, for anything else that is derived from them.
    ///
    /// # Errors
    /// As [`context`](Self::context).
    pub fn with_tree<T>(&self, look: impl FnOnce(&TreeState) -> T) -> Result<T> {
        self.with_content(Wanted::Everything, |content| look(&content.tree))
    }

    /// A tree that holds all messages of one conversation.
    fn with_words_of<T>(&self, node: NodeId, look: impl FnOnce(&TreeState) -> T) -> Result<T> {
        let wanted = match self.state()?.folds.contexts.holds_all(node) {
            true => Wanted::Context(node),
            false => Wanted::Everything,
        };
        self.with_content(wanted, |content| look(&content.tree))
    }

    /// A call as the model asked for it: mostly one that its context holds.
    fn tool_call(&self, state: &mut State, node: NodeId, call: CallRef) -> Result<Option<ToolCall>> {
        let asked = self.content_of(state, Wanted::Context(node))?.tree.tool_call(node, call).cloned();
        match asked {
            Some(asked) => Ok(Some(asked)),
            None => Ok(self.content_of(state, Wanted::Everything)?.tree.tool_call(node, call).cloned()),
        }
    }

    /// What was said, with what providers are sent back of their own.
    fn with_content<T>(&self, wanted: Wanted, look: impl FnOnce(&Content) -> T) -> Result<T> {
        let mut state = self.state()?;
        self.content_of(&mut state, wanted).map(look)
    }

    fn content_of<'s>(&self, state: &'s mut State, wanted: Wanted) -> Result<&'s Content> {
        if !state.has_content(wanted) {
            self.wait_for_queued()?;
        }
        state.content(&self.log, wanted)
    }

    fn snapshots(&self) -> Snapshots {
        Snapshots::of(&self.store.home.storage, &self.place.dir)
    }

    fn is_snapshot_due(&self, state: &State, moment: Moment) -> bool {
        let since = state.next.0.saturating_sub(1).saturating_sub(state.snapshot.0.0);
        self.store.options.snapshots.is_due(since, moment)
    }

    /// Keeps the folds beside the log, if it is time and all of them is durable. A snapshot that can't be written is no
    /// error: the next owner reads more.
    fn keep_snapshot(&self, moment: Moment) {
        let mut state = self.lock_state();
        let SnapshotPolicy::Every { messages, .. } = self.store.options.snapshots else { return };
        if state.freshness != Freshness::Current || !self.is_snapshot_due(&state, moment) {
            return;
        }
        // The caller of another append that is not durable yet will come by here too.
        let end = self.writer.durable_end().filter(|end| end.mark.next == state.next);
        let Some(end) = end else { return };
        let newest = Position(end.mark.next.0.saturating_sub(1));
        match self.snapshots().write(end, state.folds.bounded(messages), state.snapshot.1) {
            Ok(file) => state.snapshot = (newest, Some(file)),
            Err(error) => {
                tracing::warn!(session = %self.place.id, %error, "the snapshot could not be written");
            }
        }
    }

    /// Title, counts, usage.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log has to be read anew after a failed append and can't be.
    pub fn summary(&self) -> Result<Summary> {
        Ok(self.state()?.folds.summary.clone())
    }

    /// The numbers that the next events must carry, for [`append_batch`](Self::append_batch).
    ///
    /// # Errors
    /// As [`summary`](Self::summary).
    pub fn ledger<T>(&self, look: impl FnOnce(&Ledger) -> T) -> Result<T> {
        let mut state = self.state()?;
        self.make_whole(&mut state)?;
        Ok(look(state.ledger()))
    }

    /// Waits until what is queued is in the files or has failed, before something is folded from the files. The caller
    /// holds the state, so nothing is queued meanwhile. A closed writer has nothing queued.
    fn wait_for_queued(&self) -> Result<()> {
        match self.writer.flush() {
            Err(error) if !matches!(error.kind(), ErrorKind::Closed | ErrorKind::Fenced) => Err(error),
            _ => Ok(()),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked while it held the folds may have left them half changed: fold them anew.
        self.state.lock().unwrap_or_else(|poisoned: PoisonError<MutexGuard<'_, State>>| {
            let mut state = poisoned.into_inner();
            state.freshness = Freshness::Stale;
            state
        })
    }
}
