//! Tool calls: durable before they run, answered exactly once.

use sessionlog_codec::event::{
    CallFinished, CallResolved, CallStarted, Effect, NewEvent, Outcome, Part, Resolver, ResultFlag,
    ResultOrigin,
};
use sessionlog_codec::ids::{CallRef, NodeId};
use sessionlog_projections::OpenCall;

use super::Session;
use super::message::CallResult;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Durability, Receipt};

/// A call that may be running: its start is durable. [`finish`](Self::finish) answers it. Dropped without that, it stays
/// open, and the next resume reports it as unknown.
#[derive(Debug)]
#[must_use = "a started call has to be finished"]
pub struct RunningCall<'a> {
    session: &'a Session,
    node: NodeId,
    call: CallRef,
    call_id: String,
}

impl RunningCall<'_> {
    /// The call.
    #[must_use]
    pub fn call(&self) -> CallRef {
        self.call
    }

    /// Records what came out of it.
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
        let durability = match self.store.options.durability {
            Durability::Sync | Durability::Turn => Durability::Sync,
            Durability::Buffered => Durability::Buffered,
        };
        let mut state = self.state()?;
        let open = find_open(&state.ledger.open_calls(), node, call)?;
        let call_id = open.call_id.clone();
        let started = CallStarted {
            call,
            call_id: open.call_id,
            name: open.name,
            effect,
            attempt: 1,
            arguments_digest: open.arguments_digest,
            step_id: None,
        };
        self.commit(&mut state, vec![NewEvent::now(node, started)], durability)?.wait(self, state)?;
        Ok(RunningCall { session: self, node, call, call_id })
    }

    /// Answers a call that never ran: refused, cancelled before its start, or run elsewhere.
    ///
    /// # Errors
    /// `NotFound` if no message asks for the call or it is answered; else as [`append`](Self::append).
    pub fn finish_call(&self, call: CallRef, result: CallResult) -> Result<Receipt> {
        let open = find_open(&self.state()?.ledger.open_calls(), NodeId::ROOT, call)?;
        self.record_result(NodeId::ROOT, call, open.call_id, result)
    }

    fn record_result(
        &self,
        node: NodeId,
        call: CallRef,
        call_id: String,
        result: CallResult,
    ) -> Result<Receipt> {
        let CallResult { outcome, flag, parts, artifact, audit } = result;
        let (origin, source) = (ResultOrigin::Live, None);
        let event = CallFinished { call, call_id, outcome, flag, parts, artifact, origin, audit, source };
        self.append_batch(vec![NewEvent::now(node, event)], self.store.options.durability)
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
        let event = CallResolved { call, outcome, flag, parts, resolver, note };
        self.append_batch(vec![NewEvent::now(node, event)], self.store.options.durability)
    }

    /// The calls without a result, of all conversations, in order.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log has to be read anew after a failed append and can't be.
    pub fn open_calls(&self) -> Result<Vec<OpenCall>> {
        Ok(self.state()?.ledger.open_calls())
    }
}

fn find_open(open: &[OpenCall], node: NodeId, call: CallRef) -> Result<OpenCall> {
    open.iter().find(|candidate| candidate.node == node && candidate.call == call).cloned().ok_or_else(|| {
        let message = format!(
            "{call} of node {node} is not an open call: no message asks for it, or it has its result"
        );
        Error::new(ErrorKind::NotFound, "call.not_open", message)
    })
}

/// The record of a call whose host died while it may have been running.
pub(super) fn unknown_result(open: &OpenCall) -> NewEvent {
    let text = format!(
        "The outcome of this call is unknown: the agent stopped while `{}` may have been running. It was not run again. \
         Check what it did before you repeat it.",
        open.name
    );
    let event = CallFinished {
        call: open.call,
        call_id: open.call_id.clone(),
        outcome: Outcome::Unknown,
        flag: ResultFlag::Error,
        parts: vec![Part::text(text)],
        artifact: None,
        origin: ResultOrigin::Recovery,
        audit: None,
        source: None,
    };
    NewEvent::now(open.node, event)
}
