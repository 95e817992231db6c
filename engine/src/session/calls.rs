//! Tool calls: durable before they run, answered exactly once.

use sessionlog_codec::event::{CallResolved, CallStarted, Effect, NewEvent, Resolver};
use sessionlog_codec::ids::{CallRef, NodeId};
use sessionlog_projections::{Ledger, OpenCall, OpenState};

use super::Session;
use super::capture::{Destination, Recorded};
use super::claims::{Claim, Claimed};
use super::message::CallResult;
use crate::error::{Error, ErrorKind, Result};
use crate::log::Receipt;

/// A call that may be running: its start is durable. [`finish`](Self::finish) answers it. Dropped without that, its outcome
/// is unknown: the next [`work`](Session::work) or resume says so to the model.
#[derive(Debug)]
#[must_use = "a started call has to be finished"]
pub struct RunningCall<'a> {
    session: &'a Session,
    node: NodeId,
    call: CallRef,
    call_id: String,
    /// While the call runs here, nobody takes it for lost.
    _claim: Claim<'a>,
}

impl RunningCall<'_> {
    /// The call.
    #[must_use]
    pub fn call(&self) -> CallRef {
        self.call
    }

    /// Records what came out of it. A long text becomes an artifact: see [`ArtifactPolicy`](crate::ArtifactPolicy).
    ///
    /// # Errors
    /// As [`Session::append`]. The outcome is lost to the log then: after a crash the call is `unknown`.
    pub fn finish(self, result: CallResult) -> Result<Receipt> {
        self.session.record_result(self.node, self.call, self.call_id, result)
    }
}

impl Session {
    /// Records that a call of the session's own conversation is about to run.
    ///
    /// Durable when it returns, in every durability but `Buffered`: the start, and everything before it. Only then may the
    /// tool touch the world, so that after a crash a call which may have run is told from one that did not.
    ///
    /// # Errors
    /// `NotFound` if no message asks for the call; `Invalid` if it was started or finished before; else as
    /// [`append`](Self::append).
    pub fn start_call(&self, call: CallRef, effect: Effect) -> Result<RunningCall<'_>> {
        self.start_call_of(NodeId::ROOT, call, effect)
    }

    /// Records that a call of any conversation of the tree is about to run.
    ///
    /// # Errors
    /// As [`start_call`](Self::start_call).
    pub fn start_call_of(&self, node: NodeId, call: CallRef, effect: Effect) -> Result<RunningCall<'_>> {
        let claim = self.claims.take(Claimed::Call(node, call));
        let mut state = self.state()?;
        let open = find_open(state.ledger(), node, call)?;
        let call_id = open.call_id.clone();
        let started = started(open, effect);
        let events = vec![NewEvent::now(node, started)];
        self.commit(&mut state, events, self.at_a_boundary())?.wait(self, state)?;
        Ok(RunningCall { session: self, node, call, call_id, _claim: claim })
    }

    pub(super) fn running<'a>(&'a self, open: &OpenCall, claim: Claim<'a>) -> RunningCall<'a> {
        let (node, call, call_id) = (open.node, open.call, open.call_id.clone());
        RunningCall { session: self, node, call, call_id, _claim: claim }
    }

    /// Answers a call that never ran: refused, cancelled before its start, or run elsewhere.
    ///
    /// # Errors
    /// `NotFound` if no message asks for the call or it is answered; else as [`append`](Self::append).
    pub fn finish_call(&self, call: CallRef, result: CallResult) -> Result<Receipt> {
        let open = find_open(self.state()?.ledger(), NodeId::ROOT, call)?;
        self.record_result(NodeId::ROOT, call, open.call_id, result)
    }

    pub(super) fn record_result(
        &self,
        node: NodeId,
        call: CallRef,
        call_id: String,
        result: CallResult,
    ) -> Result<Receipt> {
        let mut result = result;
        let captured =
            self.capture(std::mem::take(&mut result.parts), result.artifact.take(), Destination::Call);
        captured.record(|recorded| {
            let event = result.event(call, call_id.clone(), recorded);
            self.append_batch(vec![NewEvent::now(node, event)], self.store.options.durability)
        })
    }

    /// Settles a call whose outcome was unknown. From here on the context shows this result.
    ///
    /// # Errors
    /// `Invalid` if the call's outcome is not unknown; else as [`append`](Self::append).
    pub fn resolve_call(
        &self,
        node: NodeId,
        call: CallRef,
        result: CallResult,
        by: (Resolver, String),
    ) -> Result<Receipt> {
        let CallResult { outcome, flag, parts, .. } = result;
        let (resolver, note) = by;
        self.capture(parts, None, Destination::Parts).record(|Recorded { parts, .. }| {
            let event = CallResolved { call, outcome, flag, parts, resolver, note: note.clone() };
            self.append_batch(vec![NewEvent::now(node, event)], self.store.options.durability)
        })
    }

    /// The calls without a result, of all conversations, in order.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log has to be read anew after a failed append and can't be.
    pub fn open_calls(&self) -> Result<Vec<OpenCall>> {
        Ok(self.state()?.ledger().open_calls())
    }
}

/// The record of a call that is about to run: its next attempt.
pub(super) fn started(open: OpenCall, effect: Effect) -> CallStarted {
    let OpenCall { call, call_id, name, arguments_digest, state, .. } = open;
    let attempt = match state {
        OpenState::NotStarted => 1,
        OpenState::Started { attempt, .. } => attempt.saturating_add(1),
    };
    CallStarted { call, call_id, name, effect, attempt, arguments_digest, step_id: None }
}

pub(super) fn find_open(ledger: &Ledger, node: NodeId, call: CallRef) -> Result<OpenCall> {
    ledger.open_call(node, call).ok_or_else(|| {
        let message = format!(
            "{call} of node {node} is not an open call: no message asks for it, or it has its result"
        );
        Error::new(ErrorKind::NotFound, "call.not_open", message)
    })
}
