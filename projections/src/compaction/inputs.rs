//! What a compaction was decided by, as it is stored with its event.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::ContextCompacted;
use sessionlog_codec::ids::{CallRef, MessageNo, Position};

use super::estimate::Predicted;
use super::plan::Plan;
use super::policy::Policy;
use super::units::Kept;

/// Who wrote [`ContextCompacted::inputs`], and in which form.
pub const PLANNER: &str = "sessionlog.compaction/1";

/// The policy's numbers and the planner's inputs: [`ContextCompacted::inputs`] as JSON. With the log up to the record
/// before the event they are all that the plan and the summary came from: what the summariser read is there the earlier
/// summary and the event's `replaced` messages, unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// [`PLANNER`].
    pub planner: String,
    /// The policy. Shares are in basis points.
    pub policy: Policy,
    /// The model's window, in tokens.
    pub window: u64,
    /// The predicted prompt when it was planned, in tokens.
    pub planned: Predicted,
    /// The predicted prompt right before the event, in tokens.
    pub before: Predicted,
    /// The predicted prompt right behind it, in tokens.
    pub after: Predicted,
    /// How large it should be, in tokens.
    pub target: u64,
    /// How large it may be, in tokens.
    pub limit: u64,
    /// How long the summary was to be at most, in tokens.
    pub output_budget: u64,
    /// The earlier summary that the summariser read.
    pub earlier: Option<Position>,
    /// The messages that the host pinned.
    pub pinned: BTreeSet<MessageNo>,
    /// The tools whose exchanges are preserved.
    pub preserved: BTreeSet<String>,
    /// The calls that were open.
    pub open: BTreeSet<CallRef>,
    /// The calls whose children were running.
    pub children: BTreeSet<CallRef>,
    /// Why each message stays that was there when it was planned.
    pub reasons: Vec<Kept>,
}

impl Inputs {
    /// Those of a compaction that was planned here; `None` for others.
    #[must_use]
    pub fn of(compacted: &ContextCompacted) -> Option<Self> {
        let inputs: Self = serde_json::from_slice(&compacted.inputs.as_ref()?.0).ok()?;
        (inputs.planner == PLANNER).then_some(inputs)
    }

    pub(super) fn new(plan: &Plan, before: Predicted, after: Predicted) -> Self {
        let Plan { pinned, .. } = plan;
        Self {
            planner: PLANNER.to_owned(),
            policy: plan.policy,
            window: plan.window,
            planned: plan.before,
            before,
            after,
            target: plan.target,
            limit: plan.limit,
            output_budget: plan.output_budget,
            earlier: plan.earlier,
            pinned: pinned.messages.clone(),
            preserved: pinned.tools.clone(),
            open: pinned.open.clone(),
            children: pinned.children.clone(),
            reasons: plan.reasons.clone(),
        }
    }
}
