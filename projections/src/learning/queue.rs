//! The spans that wait to be learned from, first in, first out, and the one that is being learned.

use std::collections::VecDeque;

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{
    Event, LearnBoundary, LearnJobStarted, LearnSegmentClosed, LearnSlotDone, LearnSlotPending,
    LibraryAction, LoggedEvent,
};
use sessionlog_codec::ids::{Digest, NodeId, Position};

/// A span of a conversation that is ready to be learned from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its id: `learn-<node>-<first>-<last>`.
    pub segment_id: String,
    /// The conversation.
    pub node: NodeId,
    /// The first position.
    pub first: Position,
    /// The last position.
    pub last: Position,
    /// Why it was closed.
    pub boundary: LearnBoundary,
}

/// A proposition of the current job that the library has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Which one of the job, from 0.
    pub slot: u32,
    /// The request, byte for byte.
    pub request: RawBytes,
    /// What the library did.
    pub action: LibraryAction,
    /// The entry that it became or was merged into.
    pub entry_id: Option<String>,
}

/// The work on the first segment of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The segment.
    pub segment_id: String,
    /// The hash of what it reads.
    pub input_digest: Digest,
    /// Part of the keys of its slots.
    pub generation: String,
    /// The slot of the next proposition. It goes on when a job is begun anew.
    pub next_slot: u32,
    /// What may or may not have reached the library.
    pub pending: Option<LearnSlotPending>,
    /// What the library has answered.
    pub registered: Vec<Registered>,
}

/// The queue. Any sequence of events is accepted; what contradicts the rules is left out, so there is never a second job, and
/// a segment only goes when it is committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    segments: VecDeque<Segment>,
    job: Option<Job>,
    pub(super) committed: u64,
}

impl Queue {
    pub(super) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter()
    }

    pub(super) fn head(&self) -> Option<&Segment> {
        self.segments.front()
    }

    pub(super) fn job(&self) -> Option<&Job> {
        self.job.as_ref()
    }

    pub(super) fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            Event::LearnSegmentClosed(closed) => self.close(logged.node, closed),
            Event::LearnJobStarted(started) => self.start(started),
            Event::LearnSlotPending(pending) => self.pend(pending),
            Event::LearnSlotDone(done) => self.answer(done),
            Event::LearnCommitted(committed) => self.commit(&committed.segment_id),
            _ => {}
        }
    }

    fn close(&mut self, node: NodeId, closed: &LearnSegmentClosed) {
        let LearnSegmentClosed { segment_id, first, last, boundary } = closed;
        if self.segments.iter().any(|it| it.segment_id == *segment_id) {
            return;
        }
        self.segments.push_back(Segment {
            segment_id: segment_id.clone(),
            node,
            first: *first,
            last: *last,
            boundary: *boundary,
        });
    }

    fn start(&mut self, started: &LearnJobStarted) {
        let LearnJobStarted { segment_id, input_digest, generation } = started;
        if self.head().is_none_or(|head| head.segment_id != *segment_id) {
            return;
        }
        let before = self.job.take();
        let (next_slot, pending, registered) =
            before.map(|job| (job.next_slot, job.pending, job.registered)).unwrap_or_default();
        self.job = Some(Job {
            segment_id: segment_id.clone(),
            input_digest: *input_digest,
            generation: generation.clone(),
            next_slot,
            pending,
            registered,
        });
    }

    fn pend(&mut self, pending: &LearnSlotPending) {
        let Some(job) = self.job.as_mut().filter(|job| job.segment_id == pending.segment_id) else { return };
        // What the library may have is what is repeated, whatever a later record says.
        if job.pending.is_none() && pending.slot >= job.next_slot {
            job.pending = Some(pending.clone());
        }
    }

    fn answer(&mut self, done: &LearnSlotDone) {
        let Some(job) = self.job.as_mut().filter(|job| job.segment_id == done.segment_id) else { return };
        let Some(pending) = job.pending.take_if(|pending| pending.slot == done.slot) else { return };
        job.next_slot = pending.slot.saturating_add(1);
        job.registered.push(Registered {
            slot: pending.slot,
            request: pending.request,
            action: done.action,
            entry_id: done.proposition_id.clone(),
        });
    }

    fn commit(&mut self, segment_id: &str) {
        let before = self.segments.len();
        self.segments.retain(|it| it.segment_id != segment_id);
        if self.segments.len() < before {
            self.committed = self.committed.saturating_add(1);
        }
        self.job.take_if(|job| job.segment_id == segment_id);
    }
}
