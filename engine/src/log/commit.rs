//! Commit groups: threads queue their frames, the first of them writes all that wait and syncs once.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, PoisonError};

use sessionlog_codec::frame::{Body, BodyBuilder};
use sessionlog_codec::ids::{Epoch, LogId, Position};
use sessionlog_codec::record::{Envelope, Payload};

use super::compress::{Compressed, Packing, compress};
use super::erase::{Erasure, confirm, erase};
use super::mark::DurableEnd;
use super::sync::{Condvar, Mutex, MutexGuard};
use super::tail::{Committed, Failure, SyncMode, Tail};
use super::{Durability, LogDir, LogOptions, Reached, Receipt, SegmentName};
use crate::error::{Error, ErrorKind, Result};
use crate::num::{to_u64, to_usize};

/// A record on its way into a log.
#[derive(Clone, Debug)]
pub struct NewRecord {
    /// Everything about it but its payload.
    pub envelope: Envelope,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Records that are committed together or not at all: one frame, all but its header made already.
#[derive(Debug)]
pub struct Batch {
    body: Body,
}

impl Batch {
    /// Encodes the records, with their digests and their checksum: what takes time is done by the thread that appends,
    /// before it queues.
    ///
    /// # Errors
    /// `Invalid` if there are none, or a record or all of them are over a limit of the format.
    pub fn new(records: Vec<NewRecord>) -> Result<Self> {
        let mut body = BodyBuilder::with_capacity(records.len());
        for NewRecord { envelope, payload } in records {
            body.push(envelope, Payload::Present(&payload))?;
        }
        Self::of(body)
    }

    /// The same, of records that are encoded already.
    ///
    /// # Errors
    /// `Invalid` if there are none, or too many.
    pub(crate) fn of(body: BodyBuilder) -> Result<Self> {
        Ok(Self { body: body.finish()? })
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        to_usize(self.body.count().into())
    }

    pub(super) fn body(&self) -> &Body {
        &self.body
    }

    /// Whether there are none: never, since such a batch can't be made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

type Slot = Arc<OnceLock<Result<Reached>>>;

#[derive(Debug)]
struct Waiting {
    /// `None` for a request to wait for what was queued before.
    frame: Option<Body>,
    sync: SyncMode,
    slot: Slot,
}

#[derive(Debug)]
struct Queue {
    waiting: Vec<Waiting>,
    /// The position that the next record gets.
    next: Position,
    durable: Position,
    /// The segment that is written to.
    active: SegmentName,
    /// The writing end; a committing thread has it while it writes.
    tail: Option<Tail>,
    /// Why nothing is written any more.
    closed: Option<Error>,
    /// Threads that sleep until `changed`: where there is none, nobody is woken, which is a system call.
    sleeping: usize,
}

/// A log that is open for writing. Shared by threads through `&self`.
///
/// * Positions are given in the order of [`enqueue`](Self::enqueue).
/// * Nothing is acknowledged before it is as durable as was asked.
/// * When a write fails, it and all that were queued behind it fail, and the log is as it was before them.
/// * When a sync fails, the writer is closed for good.
#[derive(Debug)]
pub struct LogWriter {
    queue: Mutex<Queue>,
    changed: Condvar,
    log_id: LogId,
    epoch: Epoch,
    dir: LogDir,
    /// Whoever puts other bytes in a sealed segment's place has this meanwhile: one thread compresses while another one
    /// erases, and what was erased must not come back. Holds the position that no segment before is left to be compressed.
    rewriting: Mutex<Position>,
}

impl LogWriter {
    /// Creates a log. Until its first append is acknowledged, there is none for [`Recovering`](super::Recovering).
    ///
    /// # Errors
    /// `Io` (or `Full`) if the first segment can't be created or there is a log already.
    pub fn create(dir: LogDir, options: LogOptions, log_id: LogId) -> Result<Self> {
        Ok(Self::new(Tail::create(dir, options, log_id, Epoch(1))?))
    }

    pub(crate) fn new(tail: Tail) -> Self {
        let (log_id, epoch) = (tail.log_id(), tail.epoch());
        let (next, durable) = (tail.next(), tail.durable());
        let (active, dir) = (tail.name(), tail.dir().clone());
        let (waiting, tail) = (Vec::new(), Some(tail));
        let queue = Queue { waiting, next, durable, active, tail, closed: None, sleeping: 0 };
        let (queue, rewriting) = (Mutex::new(queue), Mutex::new(Position::START));
        Self { queue, changed: Condvar::new(), log_id, epoch, dir, rewriting }
    }

    /// The log's id.
    #[must_use]
    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// The number of this ownership.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The last position that is known to be durable.
    #[must_use]
    pub fn durable(&self) -> Position {
        self.lock().durable
    }

    /// The position that the next record gets.
    #[must_use]
    pub fn next(&self) -> Position {
        self.lock().next
    }

    /// Where the log ends, if all of it is durable and nobody is appending.
    #[must_use]
    pub fn durable_end(&self) -> Option<DurableEnd> {
        let queue = self.lock();
        let is_idle = queue.waiting.is_empty() && queue.closed.is_none();
        queue.tail.as_ref().filter(|_| is_idle)?.durable_end()
    }

    /// Queues a batch and gives it its positions, if the next one is still `expected`.
    ///
    /// # Errors
    /// `Conflict` if it is not (an append before it failed, or another one came first): nothing is queued. `Closed` after
    /// a failure that closed the writer.
    pub fn enqueue(&self, batch: Batch, expected: Position, durability: Durability) -> Result<Ticket<'_>> {
        let mut queue = self.lock();
        queue.check_open()?;
        if queue.next != expected {
            let message = format!("the log's next position is {}, not {expected}", queue.next);
            return Err(Error::new(ErrorKind::Conflict, "log.position", message));
        }
        self.push(&mut queue, batch, durability)
    }

    fn push(&self, queue: &mut Queue, batch: Batch, durability: Durability) -> Result<Ticket<'_>> {
        let first = queue.next;
        let count = to_u64(batch.len());
        let next =
            first.0.checked_add(count).map(Position).ok_or_else(|| {
                Error::new(ErrorKind::Full, "log.positions", "the log has no position left")
            })?;
        queue.next = next;
        let sync = match durability {
            Durability::Sync => SyncMode::Sync,
            Durability::Turn | Durability::Buffered => SyncMode::Defer,
        };
        let slot = Slot::default();
        queue.waiting.push(Waiting { frame: Some(batch.body), sync, slot: Arc::clone(&slot) });
        Ok(Ticket { writer: self, slot, first, last: Position(next.0.saturating_sub(1)) })
    }

    /// Appends a batch behind everything else and waits for its durability.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue) (but for `Conflict`) and [`Ticket::wait`].
    pub fn append(&self, batch: Batch, durability: Durability) -> Result<Receipt> {
        let ticket = {
            let mut queue = self.lock();
            queue.check_open()?;
            self.push(&mut queue, batch, durability)?
        };
        ticket.wait()
    }

    /// Makes all that was appended durable.
    ///
    /// # Errors
    /// `Io` if the sync failed: the writer is closed then, and what was not durable may be lost.
    pub fn sync(&self) -> Result<()> {
        self.wait_for_all(SyncMode::Sync)
    }

    /// Waits until all that was queued is with the operating system (or has failed), so that a reader sees it.
    ///
    /// # Errors
    /// `Closed` if the writer is closed.
    pub fn flush(&self) -> Result<()> {
        self.wait_for_all(SyncMode::Defer)
    }

    fn wait_for_all(&self, sync: SyncMode) -> Result<()> {
        let slot = Slot::default();
        let (first, last) = {
            let mut queue = self.lock();
            queue.check_open()?;
            let last = Position(queue.next.0.saturating_sub(1));
            if queue.durable >= last {
                return Ok(());
            }
            queue.waiting.push(Waiting { frame: None, sync, slot: Arc::clone(&slot) });
            (queue.next, last)
        };
        Ticket { writer: self, slot, first, last }.wait().map(|_| ())
    }

    /// Writes what is queued, makes everything durable, gives unused space back and closes the writer.
    ///
    /// # Errors
    /// `Io` if that failed; `Closed` if the writer was closed before.
    pub fn close(&self) -> Result<()> {
        let mut queue = self.lock();
        loop {
            queue.check_open()?;
            let Some(mut tail) = queue.tail.take() else {
                queue = self.sleep(queue);
                continue;
            };
            let group = std::mem::take(&mut queue.waiting);
            if group.is_empty() {
                queue.closed = Some(closed("the session was closed"));
                let result = tail.close();
                queue.durable = tail.durable();
                self.wake(queue);
                return result;
            }
            drop(queue);
            self.commit(tail, group);
            queue = self.lock();
        }
    }

    /// Makes all that was appended durable, and seals the active segment and begins the next one if it is longer than
    /// `len` bytes. Gives the last durable position.
    ///
    /// # Errors
    /// As [`sync`](Self::sync); `Full` or `Io` if the segment can't be sealed: then the log is as it was.
    pub(crate) fn seal_longer_than(&self, len: u64) -> Result<Position> {
        let mut queue = self.lock();
        loop {
            queue.check_open()?;
            let Some(mut tail) = queue.tail.take() else {
                queue = self.sleep(queue);
                continue;
            };
            let group = std::mem::take(&mut queue.waiting);
            if group.is_empty() {
                let sealed = tail.seal_longer_than(len);
                (queue.durable, queue.active) = (tail.durable(), tail.name());
                queue.tail = Some(tail);
                if let Err(Failure::Fatal(error)) = &sealed {
                    queue.closed = Some(error.clone());
                }
                let durable = queue.durable;
                self.wake(queue);
                return sealed.map(|()| durable).map_err(Failure::into_error);
            }
            drop(queue);
            self.commit(tail, group);
            queue = self.lock();
        }
    }

    /// Compresses sealed segments that are not yet, the oldest first, of which it reads `most` at most. Takes no lock that an
    /// append needs. Those that stay plain (shared with a fork, hurt, not getting shorter by enough) are looked at again by
    /// the next owner.
    ///
    /// Durable when it returns: every record is in the one file of its segment or the other at any moment.
    ///
    /// # Errors
    /// `Full` or `Io` if a file can't be written or read back: then it is as it was. `Closed` or `Fenced` if the writer
    /// failed before: somebody else may own the log.
    pub fn compress(&self, most: usize, packing: Packing) -> Result<Compressed> {
        let mut done = self.rewriting.lock().unwrap_or_else(PoisonError::into_inner);
        let active = {
            let queue = self.lock();
            if queue.closed.as_ref().is_some_and(|cause| cause.kind() != ErrorKind::Closed) {
                queue.check_open()?;
            }
            queue.active
        };
        let (mut total, mut tried) = (Compressed::default(), 0);
        if *done >= active.0 {
            return Ok(total);
        }
        for pair in self.dir.list()?.windows(2) {
            let [(name, _), (next, _)] = pair else { continue };
            if name.0 < *done || next.0 > active.0 {
                continue;
            }
            if tried >= most {
                return Ok(total);
            }
            if let Some(one) = compress(&self.dir, *name, next.0, packing)? {
                tried = tried.saturating_add(1);
                total.segments = total.segments.saturating_add(one.segments);
                total.before = total.before.saturating_add(one.before);
                total.after = total.after.saturating_add(one.after);
            }
            *done = next.0;
        }
        *done = active.0;
        Ok(total)
    }

    /// Erases the payloads of the records at `positions` from all segments but the last: see [`erase`](super::erase::erase).
    pub(crate) fn erase(&self, positions: &BTreeSet<Position>) -> Result<Erasure> {
        let mut done = self.rewriting.lock().unwrap_or_else(PoisonError::into_inner);
        // What is written anew is plain.
        *done = Position::START;
        let erased = erase(&self.dir, positions);
        if let Err(error) = &erased
            && error.is_of_sync()
        {
            // What reads as erased may be on disk: only an owner who looks at it anew tells.
            self.lock().closed.get_or_insert_with(|| error.clone());
        }
        erased
    }

    /// Makes sure that records which read as erased are erased on disk, whatever syncs failed before this owner.
    ///
    /// # Errors
    /// As [`erase`].
    pub(crate) fn confirm_erased(&self, positions: &BTreeSet<Position>) -> Result<()> {
        let _rewriting = self.rewriting.lock().unwrap_or_else(PoisonError::into_inner);
        confirm(&self.dir, positions)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is consistent at every point where a thread could panic: it is changed by plain assignments.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another thread is through with what it has taken.
    fn sleep<'a>(&self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        queue.sleeping = queue.sleeping.saturating_add(1);
        let mut queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        queue.sleeping = queue.sleeping.saturating_sub(1);
        queue
    }

    /// Lets go of the queue and wakes those that sleep.
    fn wake(&self, queue: MutexGuard<'_, Queue>) {
        let sleeping = queue.sleeping;
        drop(queue);
        if sleeping > 0 {
            self.changed.notify_all();
        }
    }

    /// Commits all that wait, on the calling thread. The tail is taken out of the queue meanwhile.
    fn commit(&self, mut tail: Tail, group: Vec<Waiting>) {
        let sync = if group.iter().any(|waiting| waiting.sync == SyncMode::Sync) {
            SyncMode::Sync
        } else {
            SyncMode::Defer
        };
        let mut leading = Leading { writer: self, group };
        let frames: Vec<&Body> = leading.group.iter().filter_map(|waiting| waiting.frame.as_ref()).collect();
        let committed = tail.commit(&frames, sync);
        let mut queue = self.lock();
        (queue.durable, queue.active) = (tail.durable(), tail.name());
        // The failure is stored before anybody is woken: a follower must never mistake it for its turn to lead.
        match &committed.failure {
            None => {}
            Some(Failure::Rewound(error)) => {
                // Those queued behind were numbered after records that are not there. Syncing has no number.
                let (behind, syncs) =
                    std::mem::take(&mut queue.waiting).into_iter().partition(|w| w.frame.is_some());
                queue.waiting = syncs;
                #[cfg(feature = "seeded-bugs")]
                let behind = if sessionlog_codec::seeded::is("reuse_position") {
                    queue.waiting.extend(behind);
                    Vec::new()
                } else {
                    behind
                };
                fail(behind, error);
                queue.next = tail.next();
            }
            Some(Failure::Fatal(error)) => {
                queue.closed = Some(error.clone());
                fail(std::mem::take(&mut queue.waiting), error);
                queue.next = tail.next();
            }
        }
        debug_assert!(queue.next >= tail.next(), "positions are given before they are written");
        settle(std::mem::take(&mut leading.group), &committed, sync);
        queue.tail = Some(tail);
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("forget_to_wake") {
            return;
        }
        self.wake(queue);
    }
}

/// A thread that has the tail. If it panics, the writer is closed, and nobody waits for ever for what it had taken.
struct Leading<'a> {
    writer: &'a LogWriter,
    /// Empty once it is done.
    group: Vec<Waiting>,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if self.group.is_empty() {
            return;
        }
        let error = closed("a thread panicked while it wrote; open the session again");
        let mut queue = self.writer.lock();
        queue.closed = Some(error.clone());
        fail(std::mem::take(&mut self.group), &error);
        fail(std::mem::take(&mut queue.waiting), &error);
        self.writer.wake(queue);
    }
}

/// Tells each waiting thread of a group what became of its frame.
fn settle(group: Vec<Waiting>, committed: &Committed, sync: SyncMode) {
    let reached = match sync {
        SyncMode::Sync => Reached::Durable,
        SyncMode::Defer => Reached::Written,
    };
    let mut in_log = committed.frames;
    for waiting in group {
        let is_in_log = waiting.frame.is_none() || in_log > 0;
        if waiting.frame.is_some() {
            in_log = in_log.saturating_sub(1);
        }
        let result = match &committed.failure {
            Some(Failure::Fatal(error)) => Err(error.clone()),
            Some(Failure::Rewound(error)) if !is_in_log => Err(error.clone()),
            _ => Ok(reached),
        };
        fill(&waiting.slot, result);
    }
}

fn fail(group: Vec<Waiting>, error: &Error) {
    for waiting in group {
        fill(&waiting.slot, Err(error.clone()));
    }
}

fn fill(slot: &Slot, result: Result<Reached>) {
    // Each slot is filled once, by the one thread that took it out of the queue.
    if slot.set(result).is_err() {
        debug_assert!(false, "a slot was filled twice");
    }
}

fn closed(why: &str) -> Error {
    Error::new(ErrorKind::Closed, "log.closed", why)
}

impl Queue {
    fn check_open(&self) -> Result<()> {
        match &self.closed {
            None => Ok(()),
            Some(cause) if cause.kind() == ErrorKind::Closed || cause.kind() == ErrorKind::Fenced => {
                Err(cause.clone())
            }
            Some(cause) => {
                let message = "the session is closed for writing after a failure; open it again".to_owned();
                Err(Error::with_source(ErrorKind::Closed, "log.closed", message, cause.clone()))
            }
        }
    }
}

/// A queued append. Its positions are given; whether it is in the log, [`wait`](Self::wait) tells.
#[derive(Debug)]
#[must_use = "an append is not acknowledged before `wait` returns"]
pub struct Ticket<'a> {
    writer: &'a LogWriter,
    slot: Slot,
    /// The first record's position.
    pub first: Position,
    /// The last record's position.
    pub last: Position,
}

impl Ticket<'_> {
    /// Waits until the append is as durable as was asked, writing it (and all that wait with it) if nobody else does.
    ///
    /// # Errors
    /// `Full` or `Io` if it could not be written: then it is not in the log, now or later, and the writer is usable.
    /// `Io` if the sync failed: then the writer is closed, and whether the append is in the log is not known. `Fenced` if
    /// another owner took over: the first time, whether it took this append over is not known; later ones are not in the log.
    pub fn wait(self) -> Result<Receipt> {
        let mut queue = self.writer.lock();
        loop {
            if let Some(result) = self.slot.get() {
                let (first, last) = (self.first, self.last);
                return result.clone().map(|reached| Receipt { first, last, reached });
            }
            if let Some(tail) = queue.tail.take() {
                let group = std::mem::take(&mut queue.waiting);
                drop(queue);
                self.writer.commit(tail, group);
                queue = self.writer.lock();
            } else {
                queue = self.writer.sleep(queue);
            }
        }
    }
}
