//! Learning from a session that is owned: see [`crate::learning`].

use std::sync::Arc;

use sessionlog_codec::event::NewEvent;

use super::Session;
use super::claims::{Claim, Claimed};
use crate::error::{Error, ErrorKind, Result};
use crate::learning::{LearnOptions, LearnReport, Learning, Thinker};
use crate::library::Librarian;
use crate::log::{Durability, LogReader};
use crate::store::StoreInner;

/// As long as it is there, nobody else of this process learns from the session.
#[derive(Debug)]
pub(crate) struct LearnClaim<'a>(#[expect(dead_code, reason = "held for its end")] Claim<'a>);

impl Session {
    /// Learning from this session, to be done in steps. Keep it: what it has read it does not read again.
    ///
    /// # Errors
    /// `Conflict` if it is there already, in another thread; `Io` or `Corrupt` if the log can't be read.
    pub fn learning(&self, options: LearnOptions) -> Result<Learning<'_>> {
        let claim = self.claims.take_alone(Claimed::Learning).ok_or_else(|| {
            let message = "the session is being learned from already: wait for it";
            Error::new(ErrorKind::Conflict, "learn.busy", message)
        })?;
        Learning::new(self, LearnClaim(claim), options)
    }

    /// Learns all there is to learn now: closes the segments that are full or ended, and works on all that wait. See
    /// [`Learning::drive`].
    ///
    /// # Errors
    /// As [`learning`](Self::learning) and [`Learning::drive`].
    pub fn learn(
        &self,
        options: LearnOptions,
        thinker: &mut dyn Thinker,
        librarian: &mut dyn Librarian,
    ) -> Result<LearnReport> {
        self.learning(options)?.drive(thinker, librarian)
    }

    pub(crate) fn store_inner(&self) -> &Arc<StoreInner> {
        &self.store
    }

    /// The log, with all in its files that was appended.
    pub(crate) fn settled_log(&self) -> Result<&LogReader> {
        self.wait_for_queued()?;
        Ok(&self.log)
    }

    /// Durable when it returns.
    pub(crate) fn append_learned(&self, events: Vec<NewEvent>) -> Result<()> {
        self.append_batch(events, Durability::Sync).map(drop)
    }
}
