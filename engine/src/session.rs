//! One session, owned: append with its laws, run calls, compact, read what was said, let go.

mod append;
mod branch;
mod calls;
mod claims;
mod compaction;
mod erasure;
mod events;
mod fork;
mod lifecycle;
mod message;
mod orphans;
mod reader;
mod report;
mod salvage;
mod state;
mod verify;
mod views;
mod work;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sessionlog_codec::ids::{NodeId, Position, SessionId};
use sessionlog_projections::{ContextMessage, Ledger, Summary, TranscriptEntry, TreeState};

pub use append::Appended;
pub use calls::RunningCall;
pub use compaction::CompactionSettings;
pub use erasure::ChildDeletion;
pub use events::{EventItem, Undecodable};
pub use fork::ForkOptions;
pub use lifecycle::{NewSession, ResumeOptions};
pub use message::{CallResult, Compaction, Message};
pub use orphans::{Orphan, OrphanChoice, OrphanPolicy, RepeatedCall};
pub use reader::SessionReader;
pub use report::{PreviousEnd, RecoveryReport};
pub use salvage::{FirstRecord, Neighbour, Salvage, SalvageReport, SalvagedSpan, UnreadableRecord};
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
pub(crate) use state::logged;
use state::{Content, State};

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
    /// The first call reads the log; after it, each append keeps the context up.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log can't be read.
    pub fn context(&self) -> Result<Vec<ContextMessage>> {
        self.with_tree(|tree| tree.context(NodeId::ROOT))
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
        self.with_content(|content| look(&content.tree))
    }

    /// Everything that was said, with what providers are sent back of their own.
    fn with_content<T>(&self, look: impl FnOnce(&Content) -> T) -> Result<T> {
        let mut state = self.state()?;
        self.content_of(&mut state).map(look)
    }

    fn content_of<'s>(&self, state: &'s mut State) -> Result<&'s Content> {
        if !state.has_content() {
            self.wait_for_queued()?;
        }
        state.content(&self.log)
    }

    /// Title, counts, usage.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log has to be read anew after a failed append and can't be.
    pub fn summary(&self) -> Result<Summary> {
        Ok(self.state()?.summary.clone())
    }

    /// The numbers that the next events must carry, for [`append_batch`](Self::append_batch).
    ///
    /// # Errors
    /// As [`summary`](Self::summary).
    pub fn ledger<T>(&self, look: impl FnOnce(&Ledger) -> T) -> Result<T> {
        Ok(look(self.state()?.ledger()))
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
            state.freshness = state::Freshness::Stale;
            state
        })
    }
}
