//! Appending: check against the laws, encode, queue, wait for durability.

use std::sync::MutexGuard;

use sessionlog_codec::event::{
    AffinityCleared, AffinitySet, ContextCompacted, Event, HostEvent, NewEvent, Part, Role, RunReason,
    RunStarted, SessionTagged, SessionTitled, TitleOrigin, TurnCause, TurnEnded, TurnOutcome, TurnStarted,
    UsageRecorded,
};
use sessionlog_codec::frame::BodyBuilder;
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, Position, Timestamp, ToolIndex, TurnNo};
use sessionlog_codec::record::Envelope;
use sessionlog_projections::BatchLawBroken;

use super::Session;
use super::folds::Keyed;
use super::message::{Compaction, Message};
use super::snapshot::Moment;
use super::state::{Freshness, Reach, State, as_logged};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Batch, Durability, Reached, Receipt};

/// Proof of an appended message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its number within its node.
    pub message_no: MessageNo,
    /// Where it is.
    pub position: Position,
    /// What was appended with it (a turn's beginning, what its provider said), and how durable it is.
    pub receipt: Receipt,
}

impl Appended {
    /// The name of one of its tool calls, from 0.
    #[must_use]
    pub fn call(&self, index: u32) -> CallRef {
        CallRef { message_no: self.message_no, tool_index: ToolIndex(index) }
    }
}

impl Session {
    /// Appends a message of the session's own conversation, with the session's durability.
    ///
    /// # Errors
    /// `Invalid` if it would break a law (a tool message, two calls of the same id, ...) or is too large; `NotFound` if it
    /// names an artifact that is not there; `Full`, `Io`,
    /// `Closed`, `Fenced` as [`LogWriter`](crate::log::LogWriter). After any error it is not in the log, but for an `Io` of a
    /// failed sync and the first `Fenced`: then that is not known, and the session is closed.
    pub fn append(&self, message: Message) -> Result<Appended> {
        self.append_to(NodeId::ROOT, message)
    }

    /// Appends a message of any conversation of the tree.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_to(&self, node: NodeId, message: Message) -> Result<Appended> {
        let Message { body, key } = message;
        let _kept = self.keep_named([&body])?;
        let mut events = vec![NewEvent { key, ..NewEvent::now(node, body) }];
        loop {
            let message_no = self.state()?.ledger().next_message_no(node);
            if let Some(NewEvent { event: Event::MessageAppended(body), .. }) = events.first_mut() {
                body.message_no = message_no;
            }
            // Without the state, so that conversations of one tree don't wait for each other's encoding.
            let encoded = self.encode(&events)?;
            let mut state = self.state()?;
            if let Some(known) = key.and_then(|key| state.folds.keys.get(&key)).copied() {
                drop(state);
                return self.appended_before(known);
            }
            // Somebody else may have spoken in the same conversation meanwhile.
            if state.ledger().next_message_no(node) == message_no {
                let durability = self.store.options.durability;
                let receipt =
                    self.commit_encoded(&mut state, events, encoded, durability)?.wait(self, state)?;
                return Ok(Appended { message_no, position: receipt.last, receipt });
            }
        }
    }

    /// Appends a message, behind what has to come before it in the same frame.
    fn say(
        &self,
        node: NodeId,
        message: Message,
        before: impl FnOnce(&State) -> Option<NewEvent>,
    ) -> Result<Appended> {
        let Message { mut body, key } = message;
        let _kept = self.keep_named([&body])?;
        let mut state = self.state()?;
        if let Some(known) = key.and_then(|key| state.folds.keys.get(&key)).copied() {
            drop(state);
            return self.appended_before(known);
        }
        body.message_no = state.ledger().next_message_no(node);
        let message_no = body.message_no;
        let said = NewEvent { key, ..NewEvent::now(node, body) };
        let events = before(&state).into_iter().chain([said]).collect();
        let receipt = self.commit(&mut state, events, self.store.options.durability)?.wait(self, state)?;
        Ok(Appended { message_no, position: receipt.last, receipt })
    }

    /// What an append under the same key gave.
    fn appended_before(&self, known: Keyed) -> Result<Appended> {
        let first = known.first;
        let message_no = known.message_no.ok_or_else(|| {
            let message = format!("the key was used for another event, at position {first}");
            Error::new(ErrorKind::Conflict, "append.key", message)
        })?;
        Ok(Appended { message_no, position: first, receipt: self.earlier_receipt(first)? })
    }

    /// The receipt of an append that was made before, as durable as is asked of appends now.
    fn earlier_receipt(&self, first: Position) -> Result<Receipt> {
        let durable = self.writer.durable() >= first;
        if !durable && self.store.options.durability == Durability::Sync {
            self.writer.sync()?;
            return Ok(Receipt { first, last: first, reached: Reached::Durable });
        }
        let reached = if durable { Reached::Durable } else { Reached::Written };
        Ok(Receipt { first, last: first, reached })
    }

    /// Appends events of any nodes as one frame: all of them or none. The numbers in them must be the next ones; see
    /// [`ledger`](Self::ledger).
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_batch(&self, events: Vec<NewEvent>, durability: Durability) -> Result<Receipt> {
        let encoded = self.encode(&events)?;
        let mut state = self.state()?;
        self.commit_encoded(&mut state, events, encoded, durability)?.wait(self, state)
    }

    /// How durable a record is at the end of a turn, and before something happens outside that it stands for.
    pub(super) fn at_a_boundary(&self) -> Durability {
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("start_not_durable") {
            return Durability::Buffered;
        }
        match self.store.options.durability {
            Durability::Sync | Durability::Turn => Durability::Sync,
            Durability::Buffered => Durability::Buffered,
        }
    }

    /// The state, folded anew if an append that it contained had failed.
    pub(super) fn state(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock_state();
        if state.freshness == Freshness::Stale {
            let views = std::mem::take(&mut state.views);
            let mut fresh = State::new(views);
            fresh.snapshot = state.snapshot;
            if let Err(error) = fresh.fold(&self.log) {
                // The next attempt needs to know which views there are.
                state.views = fresh.views;
                return Err(error);
            }
            *state = fresh;
        }
        Ok(state)
    }

    /// Checks and queues events. Nothing of them is in the state if this fails.
    pub(super) fn commit(
        &self,
        state: &mut MutexGuard<'_, State>,
        events: Vec<NewEvent>,
        durability: Durability,
    ) -> Result<Queued<'_>> {
        let encoded = self.encode(&events)?;
        self.commit_encoded(state, events, encoded, durability)
    }

    /// Makes the frame of events: all that can be done before it is known where they are going to stand, so without holding
    /// the state where that can be helped.
    fn encode(&self, events: &[NewEvent]) -> Result<Encoded> {
        let now = self.store.clock.now();
        Ok(Encoded { batch: batch_of(events, now)?, now })
    }

    fn commit_encoded(
        &self,
        state: &mut MutexGuard<'_, State>,
        events: Vec<NewEvent>,
        Encoded { batch, now }: Encoded,
        durability: Durability,
    ) -> Result<Queued<'_>> {
        if events.iter().any(|new| !state.covers(new.node, &new.event)) {
            self.make_whole(state)?;
        }
        let first = state.next;
        state.ledger().check_batch(first, &events).map_err(law_broken)?;
        let mut position = first;
        for event in events {
            let key = event.key;
            let event = as_logged(event, position, now);
            position = Position(position.0.saturating_add(1));
            if let Some(key) = key {
                state.folds.remember_key(key, &event);
            }
            state.apply(&event);
        }
        match self.writer.enqueue(batch, first, durability) {
            Ok(ticket) => Ok(Queued { ticket }),
            Err(error) => {
                state.freshness = Freshness::Stale;
                Err(error)
            }
        }
    }

    /// Folds the whole log, where the state leaves out what is old. The caller holds the state, so nothing is queued meanwhile.
    pub(super) fn make_whole(&self, state: &mut State) -> Result<()> {
        if state.reach == Reach::Bounded {
            self.wait_for_queued()?;
            state.make_whole(&self.log)?;
        }
        Ok(())
    }

    /// Appends one event of the session's own conversation.
    pub(super) fn append_event(&self, event: impl Into<Event>) -> Result<Receipt> {
        self.append_batch(vec![NewEvent::now(NodeId::ROOT, event)], self.store.options.durability)
    }

    /// Begins a turn.
    ///
    /// # Errors
    /// `Invalid` if one is open; else as [`append`](Self::append).
    pub fn start_turn(&self) -> Result<TurnNo> {
        let mut state = self.state()?;
        let turn = state.ledger().next_turn(NodeId::ROOT);
        let event = NewEvent::now(NodeId::ROOT, TurnStarted { turn, cause: TurnCause::User });
        self.commit(&mut state, vec![event], self.store.options.durability)?.wait(self, state)?;
        Ok(turn)
    }

    /// Begins a turn with its prompt, in one frame. While a turn is open, the prompt joins it.
    ///
    /// With a [key](Message::key), a host that does not know whether it was heard says it again, and is heard once.
    ///
    /// # Errors
    /// `Invalid` if it is not a person's message; else as [`append`](Self::append).
    pub fn prompt(&self, message: Message) -> Result<Appended> {
        if message.body.role != Role::User {
            return Err(Error::invalid("prompt.role", "a prompt is a user message"));
        }
        self.say(NodeId::ROOT, message, |state| {
            let (turn, cause) = (state.ledger().next_turn(NodeId::ROOT), TurnCause::User);
            let is_open = state.ledger().open_turn(NodeId::ROOT).is_some();
            (!is_open).then(|| NewEvent::now(NodeId::ROOT, TurnStarted { turn, cause }))
        })
    }

    /// Ends the open turn and brings the views up to date. A sealed segment may be compressed besides: see
    /// [`Compression`](crate::Compression).
    ///
    /// Durable when it returns, in every durability but `Buffered`: the turn and all before it.
    ///
    /// # Errors
    /// `Invalid` if no turn is open; else as [`append`](Self::append). A view that can't be written is no error: it is
    /// made anew the next time.
    pub fn end_turn(&self, outcome: TurnOutcome) -> Result<Receipt> {
        let mut state = self.state()?;
        let turn = state
            .ledger()
            .open_turn(NodeId::ROOT)
            .ok_or_else(|| Error::invalid("turn.none", "no turn is open: call start_turn first"))?;
        let event = NewEvent::now(NodeId::ROOT, TurnEnded { turn, outcome, stage: None, error: None });
        let receipt = self.commit(&mut state, vec![event], self.at_a_boundary())?.wait(self, state)?;
        self.refresh_views()?;
        self.keep_snapshot(Moment::TurnEnd);
        self.compress(1);
        Ok(receipt)
    }

    /// Records a compaction: from here on the context is the summary, the kept messages and what is appended later.
    ///
    /// # Errors
    /// `Invalid` if its ranges are not messages of the session in order; else as [`append`](Self::append).
    pub fn compact(&self, compaction: Compaction) -> Result<Receipt> {
        let Compaction {
            compaction_id,
            summary,
            summary_role,
            kept,
            replaced,
            tokens,
            trigger,
            model,
            usage,
        } = compaction;
        if !matches!(summary_role, Role::System | Role::Developer | Role::User) {
            return Err(Error::invalid(
                "compaction.role",
                "a summary is spoken by the system, the developer or the user",
            ));
        }
        self.append_event(ContextCompacted {
            compaction_id,
            summary: vec![Part::text(summary)],
            summary_role,
            kept,
            replaced,
            tokens_before: tokens.0,
            tokens_after: tokens.1,
            trigger,
            model,
            usage,
            inputs: None,
            source: None,
        })
    }

    /// Clears the conversation: the context is empty from here, the transcript keeps all.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn clear(&self, run_id: impl Into<String>) -> Result<Receipt> {
        self.append_event(RunStarted { run_id: run_id.into(), reason: RunReason::Cleared })
    }

    /// Gives the session a title.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn set_title(&self, title: impl Into<String>, origin: TitleOrigin) -> Result<Receipt> {
        self.append_event(SessionTitled { title: title.into(), origin })
    }

    /// Puts labels on the session, and takes others off.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn tag(&self, added: Vec<String>, removed: Vec<String>) -> Result<Receipt> {
        self.append_event(SessionTagged { added, removed })
    }

    /// Records what a request used that no message carries, or the price of one that a message carries.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn record_usage(&self, usage: UsageRecorded) -> Result<Receipt> {
        self.append_event(usage)
    }

    /// Records the provider's continuation state, or that it is not to be continued.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn set_affinity(&self, affinity: AffinitySet) -> Result<Receipt> {
        self.append_event(affinity)
    }

    /// Records that the provider's state is not to be continued.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn clear_affinity(&self, reason: impl Into<String>) -> Result<Receipt> {
        self.append_event(AffinityCleared { reason: reason.into() })
    }

    /// Keeps an event of the host's own, in order with the rest.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn record(&self, event: HostEvent) -> Result<Receipt> {
        self.append_event(event)
    }
}

/// A frame that is not queued yet, and the time of its events.
struct Encoded {
    batch: Batch,
    now: Timestamp,
}

/// Events as records of one frame.
pub(crate) fn batch_of(events: &[NewEvent], now: Timestamp) -> Result<Batch> {
    let mut body = BodyBuilder::with_capacity(events.len());
    for event in events {
        if matches!(event.event, Event::Erased { .. }) {
            return Err(Error::invalid(
                "append.erased",
                "an erased event has no payload that could be appended",
            ));
        }
        let (kind, schema) = event.event.kind();
        let mut envelope = Envelope::new(event.node, kind, schema, event.timestamp.unwrap_or(now));
        envelope.time_origin = event.time_origin;
        envelope.cause = event.cause;
        envelope.key = event.key;
        body.push_event(envelope, &event.event)?;
    }
    Batch::of(body)
}

/// An append that is queued.
pub(super) struct Queued<'a> {
    ticket: crate::log::Ticket<'a>,
}

impl Queued<'_> {
    /// Lets go of the state and waits. If the append fails, the state is folded anew before it is used again.
    pub(super) fn wait(self, session: &Session, state: MutexGuard<'_, State>) -> Result<Receipt> {
        let snapshot_is_due = session.is_snapshot_due(&state, Moment::Append);
        drop(state);
        let receipt =
            self.ticket.wait().inspect_err(|_| session.lock_state().freshness = Freshness::Stale)?;
        if snapshot_is_due {
            session.keep_snapshot(Moment::Append);
        }
        Ok(receipt)
    }
}

fn law_broken(broken: BatchLawBroken) -> Error {
    Error::with_source(ErrorKind::Invalid, "append.law", "the append would break a law of the log", broken)
}
