//! Learning: what is worth keeping of a session goes into the [library](crate::library).
//!
//! What was said stays in the log. A *segment* is a span of it, closed at one of four boundaries: it is full, a task was
//! completed, a plan was approved, or somebody asked. Segments wait in a queue; the host's [`Thinker`] works on the first
//! one, proposition by proposition, and its [`Librarian`] decides what becomes of each.
//!
//! Every step is an event before it is done, so what is owed is always derived from the logs: a host that dies anywhere
//! loses nothing. A proposition is in the session's log before it is submitted, and the identical request is repeated after
//! a crash; a decision is in the user's log before it is applied. A Thinker whose answer was not recorded is asked again.
//!
//! # When
//! Nothing happens by itself, and nothing is added to an append. A host calls [`Session::learn`] when it has time: at the end of
//! a turn, when idle, in a thread of its own.
//!
//! # Where it is kept
//! Segments, jobs and slots: in the session's log. Propositions, decisions and entries: in the user's. The switch: in the
//! workspace's.

mod switch;
mod tape;
mod thinker;

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{
    Event, LearnCommitted, LearnJobStarted, LearnSlotDone, LearnSlotPending, LibraryAction, NewEvent,
};
use sessionlog_codec::ids::{NodeId, SessionId};
use sessionlog_projections::learning::{
    Closing, Conversations, Job, LearnState, Line, OffSpans, Proposition, Refusal, Segment, Waiting,
    input_digest, slot_key,
};
use uuid::Uuid;

pub use switch::{LearnStanding, Switched};
pub use thinker::{Lesson, Thinker, Thought};

use crate::error::{Error, ErrorKind, Result};
use crate::library::{Librarian, Library};
use crate::session::{LearnClaim, Session, SessionReader};
use crate::store::StoreReader;
use switch::Switch;
use tape::Tape;

/// Characters of a job's generation.
const GENERATION_LEN: usize = 24;

/// How a session is learned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnOptions {
    /// By what segments are closed.
    pub closing: Closing,
    /// Whose words are learned from.
    pub conversations: Conversations,
    /// The most propositions of one segment. 32.
    pub propositions_max: u32,
    /// How many propositions of one segment may be refused, before the rest of it is given up. 8.
    pub refusals_max: u32,
}

impl LearnOptions {
    /// For a Thinker whose model has a window of so many tokens.
    #[must_use]
    pub const fn tokens(window: u64) -> Self {
        Self {
            closing: Closing::tokens(window),
            conversations: Conversations::Root,
            propositions_max: 32,
            refusals_max: 8,
        }
    }
}

/// What learning did.
#[derive(Clone, Debug)]
pub struct LearnReport {
    /// Whether it goes on. If not, it stopped there.
    pub standing: LearnStanding,
    /// The segments that were closed.
    pub closed: usize,
    /// The segments that were learned.
    pub learned: u64,
    /// Propositions that became entries.
    pub created: u64,
    /// Propositions that were merged into entries.
    pub merged: u64,
    /// Propositions that were dropped.
    pub discarded: u64,
    /// Propositions that were not taken, and why.
    pub refused: Vec<Refusal>,
}

/// How a session stands to learning.
#[derive(Clone, Debug)]
pub struct LearnStatus {
    /// Whether its workspace is learned from.
    pub standing: LearnStanding,
    /// What is in no segment yet.
    pub waiting: Waiting,
    /// Segments that are to be closed by the next call.
    pub closable: usize,
    /// Segments that wait, the next one first.
    pub segments: Vec<Segment>,
    /// The work on the first one, if it was begun.
    pub job: Option<Job>,
    /// How many segments are learned.
    pub learned: u64,
}

impl LearnStatus {
    fn of(state: &LearnState, closing: &Closing, standing: LearnStanding, off: &OffSpans) -> Self {
        Self {
            standing,
            waiting: state.waiting(closing, off),
            closable: state.closable(closing, off).len(),
            segments: state.segments().cloned().collect(),
            job: state.job().cloned(),
            learned: state.committed(),
        }
    }
}

/// Learning from one session, by whoever owns it. One of a session at a time.
#[derive(Debug)]
pub struct Learning<'a> {
    session: &'a Session,
    options: LearnOptions,
    tape: Tape,
    switch: Switch,
    library: Library,
    _claim: LearnClaim<'a>,
}

impl<'a> Learning<'a> {
    pub(crate) fn new(session: &'a Session, claim: LearnClaim<'a>, options: LearnOptions) -> Result<Self> {
        let store = session.store_inner();
        let tape = Tape::new(session.settled_log()?.clone(), options.conversations);
        let switch = Switch::of(&store.home, &store.clock, &session.place().workspace);
        Ok(Self { session, options, tape, switch, library: Library::of(store), _claim: claim })
    }

    /// How the session stands to learning, changing nothing.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log can't be read.
    pub fn status(&mut self) -> Result<LearnStatus> {
        let standing = self.switch.standing();
        self.catch_up()?;
        Ok(LearnStatus::of(self.tape.state(), &self.options.closing, standing, &self.off()))
    }

    /// Closes the segments that are full, or ended with a completed task or an approved plan, without working on them.
    /// Gives how many; none while learning is off.
    ///
    /// Durable when it returns.
    ///
    /// # Errors
    /// As [`Session::append`], and `Io` or `Corrupt` if the log can't be read.
    pub fn close_segments(&mut self) -> Result<usize> {
        self.close(LearnState::closable)
    }

    /// The same, and closes what there is besides, because somebody asked for it. If there is nothing, nothing is done.
    ///
    /// # Errors
    /// As [`close_segments`](Self::close_segments).
    pub fn close_now(&mut self) -> Result<usize> {
        self.close(LearnState::closable_now)
    }

    fn close(&mut self, which: impl Fn(&LearnState, &Closing, &OffSpans) -> Vec<NewEvent>) -> Result<usize> {
        if !self.switch.standing().is_on() {
            return Ok(0);
        }
        self.catch_up()?;
        let events = which(self.tape.state(), &self.options.closing, &self.off());
        let count = events.len();
        if count > 0 {
            self.append(events)?;
        }
        Ok(count)
    }

    /// Closes the segments that are to be closed, and works on all that wait, the first one first, until none is left or
    /// learning is switched off.
    ///
    /// Durable when it returns: all of it. After an error or a crash anywhere, the next call goes on from there: a
    /// proposition that may have been submitted is submitted again, byte for byte, and a decision that was stored is
    /// applied without asking.
    ///
    /// # Errors
    /// `Io` with the code `learn.thinker` if the Thinker failed; `Conflict` with `learn.input` if what the first segment reads
    /// has changed since its job was begun (a message was withdrawn or erased): see [`begin_anew`](Self::begin_anew); as
    /// [`Library::settle`]; as [`Session::append`]. The segment stays the first one.
    pub fn drive(&mut self, thinker: &mut dyn Thinker, librarian: &mut dyn Librarian) -> Result<LearnReport> {
        let mut report = LearnReport {
            standing: self.switch.standing(),
            closed: self.close_segments()?,
            learned: 0,
            created: 0,
            merged: 0,
            discarded: 0,
            refused: Vec::new(),
        };
        self.catch_up()?;
        loop {
            report.standing = self.switch.standing();
            if !report.standing.is_on() {
                return Ok(report);
            }
            let Some(segment) = self.tape.state().head().cloned() else { return Ok(report) };
            let job = self.tape.state().job().cloned();
            self.step(&segment, thinker, librarian, &mut report)?;
            self.catch_up()?;
            let now = self.tape.state();
            if now.head() == Some(&segment) && now.job() == job.as_ref() {
                return Err(stuck(&segment));
            }
        }
    }

    /// Begins the first segment's job anew, with what it reads now: what the library has answered stays answered, and what may
    /// have been submitted is repeated first. Nothing is done if there is no job.
    ///
    /// Durable when it returns.
    ///
    /// # Errors
    /// As [`close_segments`](Self::close_segments).
    pub fn begin_anew(&mut self) -> Result<()> {
        if !self.switch.standing().is_on() {
            return Ok(());
        }
        self.catch_up()?;
        let Some(segment) = self.tape.state().head().cloned() else { return Ok(()) };
        if self.tape.state().job().is_some() {
            let lines = self.tape.lines(&segment, &self.off())?;
            self.begin(&segment, &lines)?;
        }
        Ok(())
    }

    /// One thing that is owed for the first segment.
    fn step(
        &mut self,
        segment: &Segment,
        thinker: &mut dyn Thinker,
        librarian: &mut dyn Librarian,
        report: &mut LearnReport,
    ) -> Result<()> {
        let job = self.tape.state().job().cloned();
        // What the library may have comes first, whatever became of the text since.
        if let Some(pending) = job.as_ref().and_then(|job| job.pending.clone()) {
            return self.register(segment, &pending, librarian, report);
        }
        let lines = self.tape.lines(segment, &self.off())?;
        match job {
            _ if lines.is_empty() => self.commit(segment, job.as_ref(), report),
            None => self.begin(segment, &lines),
            Some(job) if job.input_digest != input_digest(segment, &lines) => Err(changed(segment)),
            Some(job) if job.next_slot >= self.options.propositions_max => {
                self.commit(segment, Some(&job), report)
            }
            Some(job) => match self.think(segment, &job, &lines, thinker, report)? {
                Some(proposition) => self.propose(segment, &job, &proposition),
                None => self.commit(segment, Some(&job), report),
            },
        }
    }

    fn begin(&mut self, segment: &Segment, lines: &[Line]) -> Result<()> {
        let random = Uuid::now_v7().simple().to_string();
        // Its beginning is the time, its end is random.
        let generation =
            random.get(random.len().saturating_sub(GENERATION_LEN)..).unwrap_or(&random).to_owned();
        let input_digest = input_digest(segment, lines);
        let segment_id = segment.segment_id.clone();
        self.record(segment.node, LearnJobStarted { segment_id, input_digest, generation })
    }

    /// Asks the Thinker until it says something that may be kept.
    fn think(
        &self,
        segment: &Segment,
        job: &Job,
        lines: &[Line],
        thinker: &mut dyn Thinker,
        report: &mut LearnReport,
    ) -> Result<Option<Proposition>> {
        let mut refused: Option<Refusal> = None;
        let mut refusals = 0;
        while refusals < self.options.refusals_max.max(1) {
            let registered = job.registered.as_slice();
            let lesson = Lesson { segment, lines, registered, refused: refused.as_ref() };
            let thought = thinker.next(&lesson).map_err(|error| {
                let message = format!("the Thinker could not work on {}: {error}", segment.segment_id);
                Error::new(ErrorKind::Io, "learn.thinker", message)
            })?;
            let Thought::Propose(request) = thought else { return Ok(None) };
            match Proposition::parse(request) {
                Ok(proposition) => return Ok(Some(proposition)),
                Err(refusal) => {
                    report.refused.push(refusal.clone());
                    refused = Some(refusal);
                    refusals = refusals.saturating_add(1);
                }
            }
        }
        Ok(None)
    }

    fn propose(&mut self, segment: &Segment, job: &Job, proposition: &Proposition) -> Result<()> {
        let slot = job.next_slot;
        let pending = LearnSlotPending {
            segment_id: segment.segment_id.clone(),
            slot,
            key: slot_key(self.session.id(), &segment.segment_id, &job.generation, slot),
            request: proposition.request().clone(),
        };
        self.record(segment.node, pending)
    }

    /// Takes a proposition to its end in the library, and records the answer.
    fn register(
        &mut self,
        segment: &Segment,
        pending: &LearnSlotPending,
        librarian: &mut dyn Librarian,
        report: &mut LearnReport,
    ) -> Result<()> {
        let LearnSlotPending { segment_id, slot, key, request } = pending;
        let proposition = Proposition::stored(request).ok_or_else(|| {
            let message =
                format!("the request of slot {slot} of {segment_id} can't be read as a proposition");
            Error::new(ErrorKind::Corrupt, "learn.slot", message)
        })?;
        self.library.submit(key, &proposition)?;
        let receipt = self.library.settle(key, librarian)?;
        let count = match receipt.action {
            LibraryAction::Create => &mut report.created,
            LibraryAction::Merge => &mut report.merged,
            LibraryAction::Discard => &mut report.discarded,
        };
        *count = count.saturating_add(1);
        let (action, proposition_id) = (receipt.action, receipt.entry_id);
        let done = LearnSlotDone { segment_id: segment_id.clone(), slot: *slot, action, proposition_id };
        self.record(segment.node, done)
    }

    fn commit(&mut self, segment: &Segment, job: Option<&Job>, report: &mut LearnReport) -> Result<()> {
        let registered = job.map(|job| job.registered.as_slice()).unwrap_or_default();
        let count = |action| registered.iter().filter(|it| it.action == action).count();
        let result = serde_json::json!({
            "proposed": registered.len(),
            "created": count(LibraryAction::Create),
            "merged": count(LibraryAction::Merge),
            "discarded": count(LibraryAction::Discard),
            "truncated": job.is_some_and(|job| job.next_slot >= self.options.propositions_max),
        });
        let (segment_id, result) = (segment.segment_id.clone(), Some(RawBytes::from(result.to_string())));
        self.record(segment.node, LearnCommitted { segment_id, result })?;
        report.learned = report.learned.saturating_add(1);
        Ok(())
    }

    fn record(&mut self, node: NodeId, event: impl Into<Event>) -> Result<()> {
        self.append(vec![NewEvent::now(node, event)])
    }

    fn append(&mut self, events: Vec<NewEvent>) -> Result<()> {
        let appended = self.session.append_learned(events);
        if appended.is_err() {
            // What was read of it may be taken back.
            self.tape = Tape::new(self.session.settled_log()?.clone(), self.options.conversations);
        }
        appended
    }

    fn catch_up(&mut self) -> Result<()> {
        self.session.settled_log()?;
        self.tape.catch_up()
    }

    fn off(&self) -> OffSpans {
        self.switch.off_spans(self.session.id())
    }
}

/// What was recorded changed nothing: doing it again would go on for ever.
fn stuck(segment: &Segment) -> Error {
    let message = format!(
        "what was recorded about {} can't be read back, so its job does not go on; `logdump verify` tells what is wrong",
        segment.segment_id
    );
    Error::new(ErrorKind::Corrupt, "learn.stuck", message)
}

fn changed(segment: &Segment) -> Error {
    let message = format!(
        "what {} reads has changed since its job was begun: something in it was withdrawn, erased or left by a rewind. \
         Begin the job anew (`Learning::begin_anew`)",
        segment.segment_id
    );
    Error::new(ErrorKind::Conflict, "learn.input", message)
}

impl StoreReader {
    /// How a session stands to learning, whoever owns it.
    ///
    /// # Errors
    /// `NotFound` if there is no such session; `Io` if its log can't be read.
    pub fn learn_status(&self, id: SessionId, options: &LearnOptions) -> Result<LearnStatus> {
        self.learn_status_of(&self.session(id)?, options)
    }

    /// The same, of a session that is open for reading.
    ///
    /// # Errors
    /// `Io` if its log can't be read.
    pub fn learn_status_of(&self, session: &SessionReader, options: &LearnOptions) -> Result<LearnStatus> {
        let mut switch = self.learning_switch(&session.place().workspace);
        let standing = switch.standing();
        let off = match &standing {
            LearnStanding::Unreadable(_) => OffSpans::everything(),
            LearnStanding::On | LearnStanding::Off => switch.off_spans(session.place().id),
        };
        let mut tape = Tape::new(session.log().clone(), options.conversations);
        tape.catch_up()?;
        Ok(LearnStatus::of(tape.state(), &options.closing, standing, &off))
    }
}
