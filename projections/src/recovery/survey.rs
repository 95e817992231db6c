//! Which conversations go on, seen from the root downwards, and what that means for each of their calls.

use std::collections::BTreeMap;

use sessionlog_codec::event::{AgentKind, Effect};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId};

use super::{Availability, BlockReason, CancelReason, PURE_ATTEMPTS_MAX, RecoveryState, Step};
use crate::delegation::{Binding, Waits};
use crate::ledger::{OpenCall, OpenState};

/// What becomes of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// It goes on; `Some`: from the calls of this message.
    GoesOn(Option<MessageNo>),
    /// It rests or has ended: nothing is to be done for it.
    Rests,
    /// Its agent may have been asked, elsewhere.
    Lost,
    /// What it runs with is gone.
    Blocked(BlockReason),
    /// Nobody waits for it.
    Cancelled(CancelReason),
}

/// What is known about a whole tree when nothing of it runs.
pub(super) struct Survey<'a> {
    state: &'a RecoveryState,
    open: BTreeMap<NodeId, Vec<OpenCall>>,
    courses: BTreeMap<NodeId, Course>,
}

impl<'a> Survey<'a> {
    pub(super) fn of(state: &'a RecoveryState, available: &dyn Fn(&Binding<'_>) -> Availability) -> Self {
        let mut open: BTreeMap<NodeId, Vec<OpenCall>> = BTreeMap::new();
        for call in state.ledger.open_calls() {
            open.entry(call.node).or_default().push(call);
        }
        let mut survey = Self { state, open, courses: BTreeMap::new() };
        let mut nodes: Vec<NodeId> = state.delegations.present().collect();
        nodes.sort_by_key(|node| (state.delegations.depth(*node), *node));
        for node in nodes {
            let course = if node == NodeId::ROOT {
                survey.root_course()
            } else {
                survey.child_course(node, available)
            };
            survey.courses.insert(node, course);
        }
        survey
    }

    /// What is to be done for a conversation: first for its calls, in order, then for itself.
    pub(super) fn steps(&self, node: NodeId) -> Vec<Step> {
        let open = self.open.get(&node).into_iter().flatten();
        let mut steps: Vec<Step> = open.filter_map(|call| self.call_step(call)).collect();
        steps.extend(self.own_step(node));
        steps
    }

    fn own_step(&self, node: NodeId) -> Option<Step> {
        let child = node;
        match self.course(node) {
            Course::Rests => None,
            Course::GoesOn(_) if node == NodeId::ROOT => Some(Step::ContinueTurn { node }),
            Course::GoesOn(_) if self.state.delegations.has_begun(node) => Some(Step::ResumeChild { child }),
            Course::GoesOn(_) => Some(Step::StartChild { child }),
            Course::Lost => Some(Step::SettleUnknown { child }),
            Course::Blocked(reason) => Some(Step::Block { child, reason }),
            Course::Cancelled(reason) => Some(Step::Cancel { child, reason }),
        }
    }

    fn call_step(&self, open: &OpenCall) -> Option<Step> {
        let (node, call) = (open.node, open.call);
        let delegations = &self.state.delegations;
        match delegations.child_of(node, call) {
            // What the agent did was done, so the call is never made anew.
            Some(child) if delegations.is_deleted(child) => Some(Step::ReportUnknown { node, call }),
            Some(child) if delegations.settled(child).is_some() => {
                Some(Step::ReturnStored { child, parent: node, call })
            }
            // The child brings the result, or its end does.
            Some(_) => None,
            None => self.plain_call_step(open),
        }
    }

    fn plain_call_step(&self, open: &OpenCall) -> Option<Step> {
        let (node, call) = (open.node, open.call);
        let goes_on = self.course(node) == Course::GoesOn(Some(call.message_no));
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("unknown_rerun") && goes_on && open.state != OpenState::NotStarted {
            return Some(Step::RerunPure { node, call });
        }
        match open.state {
            OpenState::Started { effect: Effect::Pure, attempt, .. }
                if goes_on && attempt < PURE_ATTEMPTS_MAX =>
            {
                Some(Step::RerunPure { node, call })
            }
            OpenState::Started { .. } => Some(Step::ReportUnknown { node, call }),
            // The host runs it when the conversation goes on.
            OpenState::NotStarted if goes_on => None,
            OpenState::NotStarted if self.is_import(node, call) => None,
            OpenState::NotStarted => Some(Step::MarkNotStarted { node, call }),
        }
    }

    fn is_import(&self, node: NodeId, call: CallRef) -> bool {
        self.state.delegations.talk(node).is_some_and(|talk| talk.is_import(call.message_no))
    }

    fn course(&self, node: NodeId) -> Course {
        self.courses.get(&node).copied().unwrap_or(Course::Rests)
    }

    fn root_course(&self) -> Course {
        match self.state.delegations.talk(NodeId::ROOT).map(|talk| talk.root_waits()) {
            None | Some(Waits::Rests) => Course::Rests,
            Some(Waits::Calls(message_no)) => Course::GoesOn(Some(message_no)),
            Some(Waits::Model | Waits::End) => Course::GoesOn(None),
        }
    }

    fn child_course(&self, child: NodeId, available: &dyn Fn(&Binding<'_>) -> Availability) -> Course {
        let delegations = &self.state.delegations;
        let Some(binding) = delegations.binding(child).filter(|_| delegations.settled(child).is_none())
        else {
            return Course::Rests;
        };
        let unawaited = self.unawaited(child);
        if unawaited.is_some() && delegations.is_imported(child) {
            return Course::Rests;
        }
        if binding.kind == AgentKind::External && delegations.has_begun(child) {
            return Course::Lost;
        }
        if let Some(reason) = unawaited {
            return Course::Cancelled(reason);
        }
        match available(&binding) {
            Availability::Gone(reason) => Course::Blocked(reason),
            Availability::Available => match delegations.talk(child).map(|talk| talk.child_waits()) {
                Some(Waits::Calls(message_no)) => Course::GoesOn(Some(message_no)),
                _ => Course::GoesOn(None),
            },
        }
    }

    /// Why nobody waits for a child; `None`: its parent does.
    fn unawaited(&self, child: NodeId) -> Option<CancelReason> {
        let delegations = &self.state.delegations;
        let Some((parent, call)) = delegations.unanswered_call(child, &self.state.ledger) else {
            return Some(CancelReason::Unawaited);
        };
        let waits = self.course(parent) == Course::GoesOn(Some(call.message_no));
        (!waits).then_some(CancelReason::ParentOver)
    }
}
