//! The steps that need no host, as events.

use std::collections::BTreeMap;

use sessionlog_codec::event::{
    ArtifactReceipt, CallFinished, NewEvent, NodeSettled, NodeStatus, Outcome, Part, ResultFlag, ResultOrigin,
};
use sessionlog_codec::ids::{CallRef, NodeId, Position};

use super::words::gone;
use super::{BlockReason, CancelReason, RecoveryState, Step};
use crate::artifact;
use crate::context::SyntheticReason;
use crate::delegation::Settled;
use crate::ledger::{OpenCall, OpenState};

/// The machine's word for an external child that was in flight.
const IN_FLIGHT: &str = "in_flight";
/// What the parent is told of a result that is not there any more.
const UNREADABLE: &str = "The result of this delegation is not available any more.";

/// All steps of `steps` that need no host, as events in their order. They may make one frame, or one for each step; what
/// is done already gives none.
#[must_use]
pub fn events(state: &RecoveryState, steps: &[Step]) -> Vec<NewEvent> {
    let frames = Frames::of(state);
    steps.iter().flat_map(|step| frames.events(step)).collect()
}

/// A child's end as its host knows it, and the result of the call that waits for it: one frame. Nothing if the child is
/// not there or has settled; no result if nobody waits for one.
#[must_use]
pub fn settlement(state: &RecoveryState, child: NodeId, settled: NodeSettled) -> Vec<NewEvent> {
    Frames::of(state).settle_as(child, settled, ResultOrigin::Child)
}

struct Frames<'a> {
    state: &'a RecoveryState,
    open: BTreeMap<(NodeId, CallRef), OpenCall>,
}

/// What a call is answered with.
struct Reply {
    outcome: Outcome,
    parts: Vec<Part>,
    artifact: Option<ArtifactReceipt>,
    origin: ResultOrigin,
    cause: Option<Position>,
}

impl<'a> Frames<'a> {
    fn of(state: &'a RecoveryState) -> Self {
        let open = state.ledger.open_calls().into_iter().map(|open| ((open.node, open.call), open)).collect();
        Self { state, open }
    }

    fn events(&self, step: &Step) -> Vec<NewEvent> {
        match step {
            Step::ReturnStored { child, parent, call } => {
                let settled = self.state.delegations.settled(*child);
                let reply = settled.map(returned);
                reply.and_then(|reply| self.answer(*parent, *call, reply)).into_iter().collect()
            }
            Step::ReportUnknown { node, call } => self.report(*node, *call, Outcome::Unknown),
            Step::MarkNotStarted { node, call } => self.report(*node, *call, Outcome::NotStarted),
            Step::SettleUnknown { child } => self.settle(*child, End::InFlight),
            Step::Block { child, reason } => self.settle(*child, End::Blocked(*reason)),
            Step::Cancel { child, reason } => self.settle(*child, End::Cancelled(*reason)),
            Step::RerunPure { .. }
            | Step::StartChild { .. }
            | Step::ResumeChild { .. }
            | Step::ContinueTurn { .. }
            | Step::ReplaySlot { .. }
            | Step::ApplyDecision { .. } => Vec::new(),
        }
    }

    /// A child's end by recovery, and its parent's result.
    fn settle(&self, child: NodeId, end: End) -> Vec<NewEvent> {
        let parts = vec![Part::text(end.text())];
        let settled = NodeSettled { status: end.status(), reason: Some(end.word().to_owned()), parts };
        self.settle_as(child, settled, ResultOrigin::Recovery)
    }

    fn settle_as(&self, child: NodeId, settled: NodeSettled, origin: ResultOrigin) -> Vec<NewEvent> {
        let delegations = &self.state.delegations;
        let there = delegations.opened(child).is_some() && !delegations.is_deleted(child);
        if !there || delegations.settled(child).is_some() {
            return Vec::new();
        }
        let (parts, artifact) = artifact::delivered(settled.parts.clone());
        let reply = Reply { outcome: outcome_of(settled.status), parts, artifact, origin, cause: None };
        let waiting = delegations.unanswered_call(child, &self.state.ledger);
        let answer = waiting.and_then(|(parent, call)| self.answer(parent, call, reply));
        std::iter::once(NewEvent::now(child, settled)).chain(answer).collect()
    }

    fn report(&self, node: NodeId, call: CallRef, outcome: Outcome) -> Vec<NewEvent> {
        let Some(open) = self.open.get(&(node, call)) else { return Vec::new() };
        let (cause, text) = match (outcome, open.state) {
            (Outcome::Unknown, OpenState::Started { position, .. }) => {
                (Some(position), unknown_text(&open.name))
            }
            (Outcome::Unknown, OpenState::NotStarted) => (None, unknown_text(&open.name)),
            _ => (None, SyntheticReason::NotRun.text().to_owned()),
        };
        let (parts, artifact, origin) = (vec![Part::text(text)], None, ResultOrigin::Recovery);
        let reply = Reply { outcome, parts, artifact, origin, cause };
        self.answer(node, call, reply).into_iter().collect()
    }

    /// The result of a call, if it has none.
    fn answer(&self, node: NodeId, call: CallRef, reply: Reply) -> Option<NewEvent> {
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("deliver_twice") && !self.open.contains_key(&(node, call)) {
            let Reply { outcome, parts, artifact, origin, .. } = reply;
            let (call_id, flag) = (String::new(), ResultFlag::Normal);
            let (audit, source) = (None, None);
            let again = CallFinished { call, call_id, outcome, flag, parts, artifact, origin, audit, source };
            return Some(NewEvent::now(node, again));
        }
        let open = self.open.get(&(node, call))?;
        let Reply { outcome, parts, artifact, origin, cause } = reply;
        let flag = match outcome {
            Outcome::Succeeded => ResultFlag::Normal,
            Outcome::Failed | Outcome::Cancelled | Outcome::Unknown | Outcome::NotStarted => {
                ResultFlag::Error
            }
        };
        let event = CallFinished {
            call,
            call_id: open.call_id.clone(),
            outcome,
            flag,
            parts,
            artifact,
            origin,
            audit: None,
            source: None,
        };
        Some(NewEvent { cause, ..NewEvent::now(node, event) })
    }
}

/// A stored result, word for word.
fn returned(settled: &Settled) -> Reply {
    let stored = settled.parts.clone().zip(settled.status);
    let ((parts, artifact), outcome) = match stored {
        Some((parts, status)) => (artifact::delivered(parts), outcome_of(status)),
        None => ((vec![Part::text(UNREADABLE)], None), Outcome::Unknown),
    };
    Reply { outcome, parts, artifact, origin: ResultOrigin::Child, cause: Some(settled.position) }
}

fn outcome_of(status: NodeStatus) -> Outcome {
    match status {
        NodeStatus::Completed => Outcome::Succeeded,
        NodeStatus::Blocked | NodeStatus::Failed => Outcome::Failed,
        NodeStatus::Unknown => Outcome::Unknown,
        NodeStatus::Cancelled => Outcome::Cancelled,
    }
}

fn unknown_text(tool: &str) -> String {
    format!(
        "The outcome of this call is unknown: the agent stopped while `{tool}` may have been running. It was not run \
         again. Check what it did before you repeat it."
    )
}

/// Why recovery ends a child.
#[derive(Clone, Copy)]
enum End {
    InFlight,
    Blocked(BlockReason),
    Cancelled(CancelReason),
}

impl End {
    fn status(self) -> NodeStatus {
        match self {
            Self::InFlight => NodeStatus::Unknown,
            Self::Blocked(_) => NodeStatus::Blocked,
            Self::Cancelled(_) => NodeStatus::Cancelled,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::InFlight => IN_FLIGHT,
            Self::Blocked(reason) => reason.word(),
            Self::Cancelled(reason) => reason.word(),
        }
    }

    fn text(self) -> String {
        match self {
            Self::InFlight => {
                "The outcome of this delegation is unknown: the external agent may have been at work when the session \
                 stopped. It was not asked again. Check what it did before you repeat it."
                    .to_owned()
            }
            Self::Blocked(reason) => format!(
                "This delegation can't go on: {}. What it had done until then stays done.",
                gone(reason)
            ),
            Self::Cancelled(CancelReason::Unawaited) => {
                "This delegation was interrupted and not gone on with: nothing waits for its result.".to_owned()
            }
            Self::Cancelled(CancelReason::ParentOver) => {
                "This delegation was interrupted and not gone on with: the conversation that asked for it does not go \
                 on from there."
                    .to_owned()
            }
        }
    }
}
