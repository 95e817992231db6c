//! Erasing on purpose: a completed child with all below it, or chosen records. The chain still verifies, and says what was
//! erased.
//!
//! The decision is an event, durable before a byte is erased. After a crash the next owner finishes what was decided.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{Event, LoggedEvent, NewEvent, NodeDeleted, Redacted};
use sessionlog_codec::ids::{KindNo, NodeId, Position};
use sessionlog_codec::record::Payload;
use sessionlog_codec::registry::{kind, name_of};
use sessionlog_projections::delegation::NotDeletable;

use super::Session;
use super::state::Freshness;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Durability, Erasure, LogReader, ReadItem};
use crate::storage::Storage;

/// A deletion of a child: what it takes along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildDeletion {
    /// The child.
    pub child: NodeId,
    /// All that is below it, in the order in which it was opened.
    pub descendants: Vec<NodeId>,
    /// How many records lose their payload.
    pub records: u64,
}

/// What was decided to be erased, and what is: derived from `redacted` and from the records themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Erasures {
    wanted: BTreeSet<Position>,
    done: BTreeSet<Position>,
}

impl Erasures {
    pub(crate) fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            Event::Redacted(redacted) => self.wanted.extend(&redacted.positions),
            Event::Erased { .. } => {
                self.done.insert(logged.position);
            }
            _ => {}
        }
    }

    /// What is still to be erased: all that matters of it from here on.
    pub(super) fn bounded(&self) -> Self {
        Self { wanted: self.unfinished(), done: BTreeSet::new() }
    }

    /// What reads as erased, of the records that were folded since the last snapshot. None is taken behind an erasure that
    /// failed.
    fn seen(&self) -> BTreeSet<Position> {
        self.done.clone()
    }

    fn unfinished(&self) -> BTreeSet<Position> {
        self.wanted.difference(&self.done).copied().collect()
    }
}

impl Session {
    /// What deleting a child would take along. Changes nothing.
    ///
    /// # Errors
    /// `NotFound` if there is no such child; `Conflict` if it may not be deleted: only a completed child may, whose result is
    /// delivered, with nothing active below it; `Io` or `Corrupt` if the log can't be read.
    pub fn plan_child_deletion(&self, child: NodeId) -> Result<ChildDeletion> {
        let descendants = {
            let state = self.state()?;
            let found = state.folds.recovery.delegations().can_delete(child, state.ledger());
            found.map_err(not_deletable)?
        };
        self.writer.flush()?;
        let positions = positions_of(&self.log, &family(child, &descendants))?;
        Ok(ChildDeletion { child, descendants, records: positions.len().try_into().unwrap_or(u64::MAX) })
    }

    /// Deletes a completed child with all below it: hidden from here on, its payloads erased from the log, its bookmark
    /// with them. The parent keeps its call and the result.
    ///
    /// Durable when it returns: all of it. After a crash in the middle, the next resume does the rest. Costs a read of the
    /// log, and writing anew those segments that hold records of the child. A fork keeps what it shares: delete it there too.
    ///
    /// # Errors
    /// As [`plan_child_deletion`](Self::plan_child_deletion); `Corrupt` if a segment that has to be written anew is hurt;
    /// else as [`append`](Self::append).
    pub fn delete_child(&self, child: NodeId, actor: impl Into<String>) -> Result<ChildDeletion> {
        let mut state = self.state()?;
        let found = state.folds.recovery.delegations().can_delete(child, state.ledger());
        let descendants = found.map_err(not_deletable)?;
        let deleted = NodeDeleted { child, descendants: descendants.clone(), actor: actor.into() };
        let events = vec![NewEvent::now(NodeId::ROOT, deleted)];
        self.commit(&mut state, events, Durability::Sync)?.wait(self, state)?;
        let positions = positions_of(&self.log, &family(child, &descendants))?;
        let records = self.erase(&positions)?.records;
        Ok(ChildDeletion { child, descendants, records })
    }

    /// Erases the payloads of records that hold what was said or done: messages, results, arguments, summaries, titles, what
    /// was imported. The records stay, as erased; the chain verifies.
    ///
    /// Durable when it returns: all of it, and views are made anew without it. After an error or a crash in the middle, the
    /// next resume does the rest. A fork keeps what it shares, and so do exports: redact there too.
    ///
    /// # Errors
    /// `NotFound` if there is no record at a position; `Invalid` if it is one that the session can't be read without;
    /// `Corrupt` if a segment that has to be written anew is hurt; else as [`append`](Self::append).
    pub fn redact(&self, positions: &BTreeSet<Position>, reason: impl Into<String>) -> Result<Erasure> {
        self.writer.flush()?;
        check_redactable(&self.log, positions)?;
        let requested_at = self.store.clock.now();
        let redacted =
            Redacted { positions: positions.iter().copied().collect(), reason: reason.into(), requested_at };
        self.append_batch(vec![NewEvent::now(NodeId::ROOT, redacted)], Durability::Sync)?;
        self.erase(positions)
    }

    /// Finishes what an owner before decided and did not get to, or may not have got onto the disk.
    pub(super) fn finish_erasures(&self) -> Result<Erasure> {
        let (mut positions, deleted, seen) = {
            let state = self.state()?;
            let deleted: BTreeSet<NodeId> =
                state.folds.recovery.delegations().unfinished_deletions().collect();
            (state.folds.erasures.unfinished(), deleted, state.folds.erasures.seen())
        };
        if !seen.is_empty() {
            self.writer.confirm_erased(&seen)?;
        }
        if !deleted.is_empty() {
            positions.extend(positions_of(&self.log, &deleted)?);
        }
        if positions.is_empty() { Ok(Erasure::default()) } else { self.erase(&positions) }
    }

    fn erase(&self, positions: &BTreeSet<Position>) -> Result<Erasure> {
        // What is to be erased must not be in the segment that is written to.
        self.writer.seal_longer_than(0)?;
        self.snapshots().discard()?;
        let erased = self.writer.erase(positions);
        let mut state = self.lock_state();
        // The folds hold what the log does not any more, and so may a snapshot that was taken meanwhile.
        state.freshness = Freshness::Stale;
        let discarded = self.snapshots().discard();
        drop(state);
        let erased = erased?;
        discarded?;
        self.views_without_the_erased()?;
        self.store.home.discard_catalog()?;
        crate::memory::discard_index(&self.store.home, &self.place.workspace)?;
        Ok(erased)
    }
}

/// Removes a file that holds what was derived from records that are erased. Whether there was one.
pub(super) fn remove_if_there(storage: &dyn Storage, path: &Path) -> Result<bool> {
    match storage.remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("removing", path, error)),
    }
}

fn family(child: NodeId, descendants: &[NodeId]) -> BTreeSet<NodeId> {
    std::iter::once(child).chain(descendants.iter().copied()).collect()
}

/// The records of some conversations that are not erased yet, and their bookmarks in the conversations that opened them.
fn positions_of(log: &LogReader, nodes: &BTreeSet<NodeId>) -> Result<BTreeSet<Position>> {
    let mut positions = BTreeSet::new();
    let mut failure = None;
    log.read(Position(1), &mut |item| {
        let ReadItem::Record(record) = item else { return ControlFlow::Continue(()) };
        let envelope = &record.envelope;
        let is_theirs = if envelope.kind == kind::NodeOpened {
            match Event::decode(envelope.kind, envelope.schema, record.payload) {
                Ok(Event::NodeOpened(opened)) => nodes.contains(&opened.child),
                Ok(_) => false,
                Err(error) => {
                    let message = format!("the record at position {} does not decode", record.position);
                    let kind = ErrorKind::Corrupt;
                    failure = Some(Error::with_source(kind, "record.damaged", message, error));
                    return ControlFlow::Break(());
                }
            }
        } else {
            nodes.contains(&envelope.node)
        };
        if is_theirs && matches!(record.payload, Payload::Present(_)) {
            positions.insert(record.position);
        }
        ControlFlow::Continue(())
    })?;
    failure.map_or(Ok(positions), Err)
}

fn check_redactable(log: &LogReader, positions: &BTreeSet<Position>) -> Result<()> {
    let mut missing = positions.clone();
    let mut refused = None;
    let Some(first) = positions.first() else { return Ok(()) };
    log.read(*first, &mut |item| {
        if let ReadItem::Record(record) = item
            && missing.remove(&record.position)
            && !holds_content(record.envelope.kind)
        {
            let name = name_of(record.envelope.kind).unwrap_or("of a kind that is not known here");
            let message = format!(
                "the record at position {} is {name}: the session can't be read without it",
                record.position
            );
            refused = Some(Error::invalid("redact.structure", message));
            return ControlFlow::Break(());
        }
        if missing.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    match (refused, missing.first()) {
        (Some(refused), _) => Err(refused),
        (None, Some(position)) => {
            let message = format!("there is no record at position {position}");
            Err(Error::new(ErrorKind::NotFound, "record.missing", message))
        }
        (None, None) => Ok(()),
    }
}

/// Whether records of a kind hold what was said or done, and are needed for nothing else.
fn holds_content(kind: KindNo) -> bool {
    [
        kind::MessageAppended,
        kind::MessageExtended,
        kind::CallFinished,
        kind::CallResolved,
        kind::ContextCompacted,
        kind::ReplayAttached,
        kind::SessionTitled,
        kind::HostEvent,
        kind::ImportedRaw,
    ]
    .contains(&kind)
}

fn not_deletable(why: NotDeletable) -> Error {
    let (kind, code) = match why {
        NotDeletable::NotThere { .. } => (ErrorKind::NotFound, "child.missing"),
        NotDeletable::Root => (ErrorKind::Invalid, "child.root"),
        _ => (ErrorKind::Conflict, "child.not_deletable"),
    };
    let message = why.to_string();
    Error::with_source(kind, code, message, why)
}
