//! The steps of a plan, in plain words.

use std::fmt;

use super::{BlockReason, CancelReason, Step};

impl Step {
    /// The machine's word for what kind of step it is.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::ReturnStored { .. } => "return_stored",
            Self::ReportUnknown { .. } => "report_unknown",
            Self::MarkNotStarted { .. } => "mark_not_started",
            Self::RerunPure { .. } => "rerun_pure",
            Self::StartChild { .. } => "start_child",
            Self::ResumeChild { .. } => "resume_child",
            Self::SettleUnknown { .. } => "settle_unknown",
            Self::Block { .. } => "block",
            Self::Cancel { .. } => "cancel",
            Self::ContinueTurn { .. } => "continue_turn",
            Self::ReplaySlot { .. } => "replay_slot",
            Self::ApplyDecision { .. } => "apply_decision",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReturnStored { child, parent, call } => {
                write!(f, "Node {child} has ended: its result goes to {call} of node {parent}.")
            }
            Self::ReportUnknown { node, call } => write!(
                f,
                "{call} of node {node} had started: its outcome is unknown, and it is not run again."
            ),
            Self::MarkNotStarted { node, call } => {
                write!(f, "{call} of node {node} was never started, and will not be.")
            }
            Self::RerunPure { node, call } => {
                write!(f, "{call} of node {node} only reads: it is run again.")
            }
            Self::StartChild { child } => {
                write!(f, "Node {child} was delegated and never began: its agent is asked now.")
            }
            Self::ResumeChild { child } => write!(f, "Node {child} goes on where it stood."),
            Self::SettleUnknown { child } => write!(
                f,
                "Node {child} was in flight at an external agent: its outcome is unknown, and it is not asked again."
            ),
            Self::Block { child, reason } => {
                write!(f, "Node {child} can't go on: {}.", gone(*reason))
            }
            Self::Cancel { child, reason: CancelReason::Unawaited } => {
                write!(f, "Node {child} is cancelled: nothing waits for its result.")
            }
            Self::Cancel { child, reason: CancelReason::ParentOver } => write!(
                f,
                "Node {child} is cancelled: the conversation that asked for it does not go on from there."
            ),
            Self::ContinueTurn { node } => write!(f, "The turn of node {node} goes on where it stood."),
            Self::ReplaySlot { segment_id, slot } => write!(
                f,
                "Proposition {slot} of learning segment {segment_id:?} is submitted again, word for word."
            ),
            Self::ApplyDecision { key } => {
                write!(f, "The librarian's decision on {key:?} takes effect; it is not asked again.")
            }
        }
    }
}

/// What of a child's binding is gone, as the end of a sentence.
pub(super) fn gone(reason: BlockReason) -> &'static str {
    match reason {
        BlockReason::AgentMissing => "its agent is not available any more",
        BlockReason::ModelMissing => "its model is not available any more",
        BlockReason::ApiModeMissing => "its API is not available any more",
        BlockReason::ProfileChanged => "its agent's profile is another one now",
        BlockReason::WorkspaceMissing => "the place it worked in is gone",
    }
}
