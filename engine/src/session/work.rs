//! What a session is owed next, derived from its log: the loop that runs agents, and the same loop after a crash.
//!
//! [`Session::work`] lists what may be begun now, the deepest conversation first. Each item is a token for exactly one
//! thing, and using it up records what came out. While a token (or what it became) is held, the thing is not offered
//! again; dropped unused, it is. So a host can't run a call twice, ask a parent's model before its children have ended,
//! deliver a result twice or go on with a conversation that was rewound: there is no token for it.
//!
//! A host that takes the first item each time runs one thing at a time, deepest first. One that takes all of them runs
//! calls and children side by side.

mod call;
mod child;
mod end;
mod model;

use sessionlog_codec::event::{AgentKind, NewEvent, TurnCause, TurnStarted};
use sessionlog_codec::ids::{CallRef, NodeId, Position};
use sessionlog_projections::OpenCall;
use sessionlog_projections::delegation::Binding;
use sessionlog_projections::recovery::{self, Availability, HostNeed, Owed, Step};

pub use call::{Delegated, Delegation, OwedCall};
pub use child::{AskedAgent, ChildResult, ExternalRequest, NewChild};
pub use end::{ChildEnd, EndReason, TurnEnd};
pub use model::{Answer, ModelTurn};

use super::Session;
use super::claims::{Claim, Claimed};
use super::state::State;
use crate::error::{Error, ErrorKind, Result};

/// One thing that may be begun now.
#[derive(Debug)]
#[must_use = "what is dropped unused is offered again"]
#[non_exhaustive]
pub enum Work<'a> {
    /// A child that we run was delegated, and has not begun.
    Begin(NewChild<'a>),
    /// An external agent is to be asked, once.
    Ask(ExternalRequest<'a>),
    /// A call is to be run, delegated, or answered without running it.
    Call(OwedCall<'a>),
    /// A model is to be asked for a conversation's next message.
    Model(ModelTurn<'a>),
    /// A child has said its last: its result is to be delivered.
    Settle(ChildEnd<'a>),
    /// The session's own conversation has said its last: its turn is to be ended.
    EndTurn(TurnEnd<'a>),
}

impl Work<'_> {
    /// The conversation.
    #[must_use]
    pub fn node(&self) -> NodeId {
        match self {
            Self::Begin(it) => it.node(),
            Self::Ask(it) => it.node(),
            Self::Call(it) => it.node(),
            Self::Model(it) => it.node(),
            Self::Settle(it) => it.node(),
            Self::EndTurn(it) => it.node(),
        }
    }
}

/// What every token has: the session, the conversation and where it stood, and the claim.
#[derive(Debug)]
struct Token<'a> {
    session: &'a Session,
    node: NodeId,
    head: Position,
    claim: Claim<'a>,
}

impl Session {
    /// What may be begun now, the deepest conversation first; empty when the session rests, or waits for what is claimed
    /// already. `available` says of a child that would go on whether its agent and model still exist: if not, it is ended
    /// as blocked, and its parent is told.
    ///
    /// First, what needs no host is recorded: results that were not delivered, unknown outcomes, children that nobody
    /// waits for. A call that was started and is held by no [`RunningCall`](super::RunningCall) is among them: whoever ran
    /// it is gone. Durable when it returns, as an append is.
    ///
    /// # Errors
    /// As [`append`](Self::append), and `Corrupt` or `Io` if the log can't be read.
    pub fn work_with(&self, available: &dyn Fn(&Binding<'_>) -> Availability) -> Result<Vec<Work<'_>>> {
        loop {
            let mut state = self.state()?;
            let plan = recovery::plan(&state.folds.recovery, available);
            let free = plan.iter().filter(|step| self.is_free(step)).cloned();
            let events = recovery::events(&state.folds.recovery, &free.collect::<Vec<Step>>());
            if events.is_empty() {
                return self.offers(&mut state, &plan);
            }
            self.commit(&mut state, events, self.store.options.durability)?.wait(self, state)?;
        }
    }

    /// As [`work_with`](Self::work_with), for a host whose agents and models are all there.
    ///
    /// # Errors
    /// As [`work_with`](Self::work_with).
    pub fn work(&self) -> Result<Vec<Work<'_>>> {
        self.work_with(&|_| Availability::Available)
    }

    /// What recovery would do now, without doing it: all of it, the host's part too.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log has to be read anew after a failed append and can't be.
    pub fn plan(&self, available: &dyn Fn(&Binding<'_>) -> Availability) -> Result<Vec<Step>> {
        Ok(recovery::plan(&self.state()?.folds.recovery, available))
    }

    /// Whether a step can be recorded without anybody: it needs no host, and nobody here is at it.
    fn is_free(&self, step: &Step) -> bool {
        let is_claimed = match step {
            Step::ReportUnknown { node, call } | Step::MarkNotStarted { node, call } => {
                self.claims.holds(Claimed::Call(*node, *call))
            }
            Step::SettleUnknown { child } => self.claims.holds(Claimed::Node(*child)),
            _ => false,
        };
        step.needs_host() == HostNeed::Nothing && !is_claimed
    }

    fn offers(&self, state: &mut State, plan: &[Step]) -> Result<Vec<Work<'_>>> {
        let mut offers = Vec::new();
        for step in plan {
            match step {
                Step::RerunPure { node, call } => self.offer_call(state, *node, *call, &mut offers)?,
                Step::StartChild { child } => self.offer_start(state, *child, &mut offers),
                Step::ResumeChild { child: node } | Step::ContinueTurn { node } => {
                    self.offer_next(state, *node, &mut offers)?;
                }
                _ => {}
            }
        }
        Ok(offers)
    }

    fn offer_next<'a>(&'a self, state: &mut State, node: NodeId, offers: &mut Vec<Work<'a>>) -> Result<()> {
        let owed = match state.folds.recovery.owed(node) {
            Owed::Nothing => return Ok(()),
            Owed::Calls(calls) => {
                return calls.into_iter().try_for_each(|call| self.offer_call(state, node, call, offers));
            }
            owed => owed,
        };
        if self.claims.holds(Claimed::Node(node)) || self.claims.holds_call_of(node) {
            return Ok(());
        }
        let delegations = state.folds.recovery.delegations();
        let rounds = delegations.check_round(node, &self.store.options.delegation);
        let token = self.token(state, node, Claimed::Node(node));
        offers.push(match (owed, node == NodeId::ROOT) {
            (Owed::Conclusion, true) => Work::EndTurn(TurnEnd::new(token)),
            (Owed::Conclusion, false) => Work::Settle(ChildEnd::new(token, EndReason::LastWord)),
            (_, false) if rounds.is_err() => Work::Settle(ChildEnd::new(token, EndReason::RoundsUsedUp)),
            _ => Work::Model(ModelTurn::new(token)),
        });
        Ok(())
    }

    fn offer_call<'a>(
        &'a self,
        state: &mut State,
        node: NodeId,
        call: CallRef,
        offers: &mut Vec<Work<'a>>,
    ) -> Result<()> {
        if self.claims.holds(Claimed::Call(node, call)) {
            return Ok(());
        }
        let open = super::calls::find_open(state.ledger(), node, call)?;
        let token = self.token(state, node, Claimed::Call(node, call));
        let asked = self.tool_call(state, node, call)?;
        offers.extend(asked.map(|asked| Work::Call(OwedCall::new(token, open, asked.arguments))));
        Ok(())
    }

    fn offer_start<'a>(&'a self, state: &State, child: NodeId, offers: &mut Vec<Work<'a>>) {
        if self.claims.holds(Claimed::Node(child)) {
            return;
        }
        let Some(request) = state.folds.recovery.delegations().request(child).cloned() else { return };
        let token = self.token(state, child, Claimed::Node(child));
        offers.push(match request.kind {
            AgentKind::Inner => Work::Begin(NewChild::new(token, request)),
            AgentKind::External => Work::Ask(ExternalRequest::new(token, request)),
        });
    }

    fn token(&self, state: &State, node: NodeId, claimed: Claimed) -> Token<'_> {
        let head = state.ledger().head(node);
        Token { session: self, node, head, claim: self.claims.take(claimed) }
    }
}

impl<'a> Token<'a> {
    /// Refuses what is not owed any more: the conversation has ended, or goes on from somewhere else.
    fn check(&self, state: &State) -> Result<()> {
        let node = self.node;
        let delegations = state.folds.recovery.delegations();
        let what = match state.ledger().settled(node) {
            Some(_) => "has ended",
            None if !delegations.goes_on_from(node, self.head) => "was cleared, reset or rewound",
            None => return Ok(()),
        };
        let message = format!("node {node} {what} since this was offered: ask for the session's work again");
        Err(Error::new(ErrorKind::Conflict, "work.outdated", message))
    }

    /// The beginning of a turn, if a broken one is gone on with by what is recorded now.
    fn going_on(&self, state: &State) -> Option<NewEvent> {
        let node = self.node;
        let broken = state.folds.recovery.delegations().is_interrupted(node);
        let (turn, cause) = (state.ledger().next_turn(node), TurnCause::Recovery);
        let is_due = broken && state.ledger().open_turn(node).is_none();
        is_due.then(|| NewEvent::now(node, TurnStarted { turn, cause }))
    }

    /// The call of this conversation as it stands now, if it has no result.
    fn open_call(&self, state: &State, call: CallRef) -> Result<OpenCall> {
        super::calls::find_open(state.ledger(), self.node, call)
    }
}
