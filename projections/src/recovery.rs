//! What a crash left to be done, as a pure function of the log.
//!
//! [`plan`] lists it: the deepest conversation first, then by position. What is in the plan is owed until the log says
//! that it is done, so a host that dies while it recovers loses nothing, and planning again asks for nothing twice.
//!
//! - Steps that [need no host](HostNeed::Nothing) are [events](Step::events), one frame each: a child's end and its
//!   parent's result stand or fall together. Applying one takes exactly that step out of the next plan, whatever the
//!   order; applying it twice appends nothing.
//! - The other steps are the host's. [`ready`] tells those that may be begun now: a conversation goes on only when all
//!   below it is settled and none of its own calls waits for recovery. Ready steps do not depend on one another.
//! - A call that was started and has no result is `unknown`, and is not run again. Only one that its host declared pure
//!   is, once, in a conversation that goes on. A call that was not started certainly did nothing: the conversation's
//!   host runs it when it goes on ([`Owed::Calls`]); in one that does not, it is marked.
//! - An external child that may have been asked is `unknown`, and is not asked again.
//! - A child goes on only if its parent waits for exactly it: not after a clear, a rewind, a new prompt, the end of the
//!   parent's turn, in a fork, or when its call has been answered otherwise. Then it is cancelled, and what is below it.
//! - Imported conversations are left as they are, until a host goes on in them: nobody recorded what was started.
//!
//! A plan is for a new owner, while nothing of the session runs.

mod execution;
mod frames;
mod library;
mod survey;
mod take_over;
mod words;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{LearnSlotPending, LoggedEvent, NewEvent, PropositionDecided};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId};

pub use self::execution::{Execution, ExecutionStanding, Executions};
pub use self::frames::{events, settlement};
use self::library::LibraryWork;
use self::survey::Survey;
pub use self::take_over::{TakeOver, open_turns};
use crate::Projection;
use crate::delegation::{Binding, Delegations, Waits};
use crate::ledger::{Ledger, OpenCall, OpenState};

/// How often a pure call is started in all. A call that its host did not survive twice is not tried a third time.
const PURE_ATTEMPTS_MAX: u32 = 2;

/// What [`plan`] is made of. Derives from every event of the tree log; folded from the user's log, it knows the
/// librarian's decisions that were not applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryState {
    ledger: Ledger,
    delegations: Delegations,
    library: LibraryWork,
    executions: Executions,
}

/// Whether what a child runs with still exists. The host says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Availability {
    /// It can go on as it was.
    Available,
    /// It can't: it is never gone on with in another way silently.
    Gone(BlockReason),
}

/// What of a child's binding is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockReason {
    /// The agent, or the permission to ask it.
    AgentMissing,
    /// The model, or the candidate of its group.
    ModelMissing,
    /// The API.
    ApiModeMissing,
    /// The agent's profile is another one now.
    ProfileChanged,
    /// The place it works in.
    WorkspaceMissing,
}

impl BlockReason {
    /// The machine's word, as `node.settled` keeps it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::AgentMissing => "agent_missing",
            Self::ModelMissing => "model_missing",
            Self::ApiModeMissing => "api_mode_missing",
            Self::ProfileChanged => "profile_changed",
            Self::WorkspaceMissing => "workspace_missing",
        }
    }
}

/// Why nobody waits for a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelReason {
    /// Its call has another result, belongs to another child, or was never named.
    Unawaited,
    /// Its parent does not go on from its call: it ended, was cleared, was rewound, or went elsewhere.
    ParentOver,
}

impl CancelReason {
    /// The machine's word, as `node.settled` keeps it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unawaited => "unawaited",
            Self::ParentOver => "parent_over",
        }
    }
}

/// One thing to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A settled child's result goes to the call that waits for it.
    ReturnStored {
        /// The child.
        child: NodeId,
        /// The conversation that delegated.
        parent: NodeId,
        /// The call that waits.
        call: CallRef,
    },
    /// A call may have run: its outcome is recorded as unknown.
    ReportUnknown {
        /// The conversation.
        node: NodeId,
        /// The call.
        call: CallRef,
    },
    /// A call was not started, and will not be: its conversation does not go on from it.
    MarkNotStarted {
        /// The conversation.
        node: NodeId,
        /// The call.
        call: CallRef,
    },
    /// A call that only reads is run again, under its next attempt.
    RerunPure {
        /// The conversation.
        node: NodeId,
        /// The call.
        call: CallRef,
    },
    /// A child's agent was not asked yet: it is asked now, under the bookmark's invocation id.
    StartChild {
        /// The child.
        child: NodeId,
    },
    /// A child goes on where it stood: see [`RecoveryState::owed`].
    ResumeChild {
        /// The child.
        child: NodeId,
    },
    /// An external child may have been asked, and nobody knows what it did.
    SettleUnknown {
        /// The child.
        child: NodeId,
    },
    /// What a child runs with is gone.
    Block {
        /// The child.
        child: NodeId,
        /// What is gone.
        reason: BlockReason,
    },
    /// Nobody waits for a child any more.
    Cancel {
        /// The child.
        child: NodeId,
        /// Why not.
        reason: CancelReason,
    },
    /// The root's turn goes on where it stood: see [`RecoveryState::owed`]. A host may end the turn instead.
    ContinueTurn {
        /// The conversation.
        node: NodeId,
    },
    /// A proposition may or may not have reached the library: the identical request is repeated.
    ReplaySlot {
        /// The segment.
        segment_id: String,
        /// Which proposition of its job.
        slot: u32,
    },
    /// The librarian's decision takes effect; it is not asked again.
    ApplyDecision {
        /// The proposition's key.
        key: String,
    },
}

/// Whom a step needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostNeed {
    /// Nobody: it is a frame of events.
    Nothing,
    /// Whoever runs agents.
    Agent,
    /// Whoever runs tools.
    Tool,
    /// Whoever keeps the library.
    Library,
}

/// What a conversation that goes on is owed next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owed {
    /// Nothing: it does not go on, or waits for other steps of the plan.
    Nothing,
    /// These calls were not started: the host runs them, in this order or at once, then asks the model.
    Calls(Vec<CallRef>),
    /// The model is asked.
    Model,
    /// The model has said its last: the turn is ended, or the child settled, from what is there.
    Conclusion,
}

impl Step {
    /// Whom it needs.
    #[must_use]
    pub fn needs_host(&self) -> HostNeed {
        match self {
            Self::ReturnStored { .. }
            | Self::ReportUnknown { .. }
            | Self::MarkNotStarted { .. }
            | Self::SettleUnknown { .. }
            | Self::Block { .. }
            | Self::Cancel { .. } => HostNeed::Nothing,
            Self::RerunPure { .. } => HostNeed::Tool,
            Self::StartChild { .. } | Self::ResumeChild { .. } | Self::ContinueTurn { .. } => HostNeed::Agent,
            Self::ReplaySlot { .. } | Self::ApplyDecision { .. } => HostNeed::Library,
        }
    }

    /// The conversation whose obligation it is: for a stored result, the child's.
    #[must_use]
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::ReportUnknown { node, .. }
            | Self::MarkNotStarted { node, .. }
            | Self::RerunPure { node, .. }
            | Self::ContinueTurn { node } => Some(*node),
            Self::ReturnStored { child, .. }
            | Self::StartChild { child }
            | Self::ResumeChild { child }
            | Self::SettleUnknown { child }
            | Self::Block { child, .. }
            | Self::Cancel { child, .. } => Some(*child),
            Self::ReplaySlot { .. } | Self::ApplyDecision { .. } => None,
        }
    }

    /// The step as events that make one frame. Empty for a host's step, and for one that is done already.
    #[must_use]
    pub fn events(&self, state: &RecoveryState) -> Vec<NewEvent> {
        events(state, std::slice::from_ref(self))
    }
}

/// All that is owed, the deepest conversation first, then by position. The first step can always be begun.
///
/// `available` is asked for each child that would go on.
pub fn plan(state: &RecoveryState, available: &dyn Fn(&Binding<'_>) -> Availability) -> Vec<Step> {
    let survey = Survey::of(state, available);
    // By depth, deepest first; by conversation, in the order in which they were opened; by place within it.
    let mut found: BTreeMap<(Reverse<u32>, NodeId, usize), Step> = BTreeMap::new();
    for node in state.delegations.present() {
        for step in survey.steps(node) {
            let owner = step.node().unwrap_or(node);
            let key = (Reverse(state.delegations.depth(owner)), owner, found.len());
            found.insert(key, step);
        }
    }
    let tree = found.into_values();
    tree.chain(state.library.steps()).collect()
}

/// The steps of a plan that may be begun now, in any order or at once: those that no other step holds back.
#[must_use]
pub fn ready<'a>(state: &RecoveryState, steps: &'a [Step]) -> Vec<&'a Step> {
    let mut below: BTreeMap<NodeId, usize> = BTreeMap::new();
    for node in steps.iter().filter_map(Step::node) {
        for busy in std::iter::once(node).chain(state.delegations.ancestors(node)) {
            let count = below.entry(busy).or_default();
            *count = count.saturating_add(1);
        }
    }
    let is_ready = |step: &&Step| match step {
        Step::StartChild { child: node }
        | Step::ResumeChild { child: node }
        | Step::ContinueTurn { node } => below.get(node) == Some(&1),
        _ => true,
    };
    steps.iter().filter(is_ready).collect()
}

impl RecoveryState {
    /// The state without what is old and settled, see [`Ledger::bounded`]: what a session goes on from, and what a snapshot
    /// keeps. It plans as the whole one does, and goes on doing so with every event that its ledger
    /// [covers](Ledger::covers).
    #[must_use]
    pub fn bounded(&self, kept: u64) -> Self {
        let ledger = self.ledger.bounded(kept);
        Self {
            delegations: self.delegations.bounded(kept, &ledger),
            ledger,
            library: self.library.clone(),
            executions: self.executions.clone(),
        }
    }

    /// What appends to the log are checked against.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The delegations of the tree.
    #[must_use]
    pub fn delegations(&self) -> &Delegations {
        &self.delegations
    }

    /// The executions of plans.
    #[must_use]
    pub fn executions(&self) -> &Executions {
        &self.executions
    }

    /// The request to repeat for [`Step::ReplaySlot`], byte for byte.
    #[must_use]
    pub fn pending_slot(&self, segment_id: &str, slot: u32) -> Option<&LearnSlotPending> {
        self.library.slot(segment_id, slot)
    }

    /// The decision to apply for [`Step::ApplyDecision`].
    #[must_use]
    pub fn decision(&self, key: &str) -> Option<&PropositionDecided> {
        self.library.decision(key)
    }

    /// What a conversation is owed next, if it goes on: the way in which [`Step::ResumeChild`] and
    /// [`Step::ContinueTurn`] are carried out. Ask again after each thing done.
    #[must_use]
    pub fn owed(&self, node: NodeId) -> Owed {
        let Some(talk) = self.delegations.talk(node) else { return Owed::Nothing };
        let waits = if node == NodeId::ROOT { talk.root_waits() } else { talk.child_waits() };
        if self.delegations.settled(node).is_some() || self.delegations.is_deleted(node) {
            return Owed::Nothing;
        }
        match waits {
            Waits::Rests => Owed::Nothing,
            Waits::Model => Owed::Model,
            Waits::End => Owed::Conclusion,
            Waits::Calls(message_no) => {
                let open = self.ledger.open_calls();
                let here = |open: &&OpenCall| open.node == node && open.call.message_no == message_no;
                self.owed_calls(open.iter().filter(here))
            }
        }
    }

    /// The message whose calls a conversation waits for, or whose results its model is to be shown next.
    #[must_use]
    pub fn waiting_message(&self, node: NodeId) -> Option<MessageNo> {
        let talk = self.delegations.talk(node)?;
        let waits = if node == NodeId::ROOT { talk.root_waits() } else { talk.child_waits() };
        match waits {
            Waits::Calls(message_no) => Some(message_no),
            Waits::Rests | Waits::Model | Waits::End => None,
        }
    }

    fn owed_calls<'a>(&self, open: impl Iterator<Item = &'a OpenCall>) -> Owed {
        let mut calls = Vec::new();
        let mut all_answered = true;
        for call in open {
            all_answered = false;
            if self.is_untouched(call) {
                calls.push(call.call);
            }
        }
        match (all_answered, calls.is_empty()) {
            (true, _) => Owed::Model,
            (false, true) => Owed::Nothing,
            (false, false) => Owed::Calls(calls),
        }
    }

    /// Whether a call certainly did nothing: it was neither started nor delegated.
    fn is_untouched(&self, open: &OpenCall) -> bool {
        open.state == OpenState::NotStarted && self.delegations.child_of(open.node, open.call).is_none()
    }
}

impl Projection for RecoveryState {
    fn apply(&mut self, event: &LoggedEvent) {
        self.ledger.apply(event);
        self.delegations.apply(event);
        self.library.apply(event);
        self.executions.apply(event);
    }
}
