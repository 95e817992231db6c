//! What of a context stays, and what a summary is to stand for.

use std::collections::BTreeSet;

use sessionlog_codec::event::{MessageRange, Role};
use sessionlog_codec::ids::{MessageNo, NodeId, Position};

use super::accept::SUMMARY_HEADING;
use super::calibration::Calibration;
use super::estimate::{Predicted, Size};
use super::pinned::Pinned;
use super::policy::{Policy, TargetGrowth};
use super::ranges::ranges;
use super::units::{Kept, Unit, mark};
use crate::context::ContextMessage;
use crate::tree::TreeState;

/// How a context is to be compacted. Nothing of it is in the log; it may be dropped at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The conversation.
    pub node: NodeId,
    /// The messages that stay, with the results of their calls: ascending, not overlapping, exact.
    pub kept: Vec<MessageRange>,
    /// The messages that the summary is to stand for: ascending, not overlapping, exact. (An earlier summary among the
    /// source stands for others.)
    pub replaced: Vec<MessageRange>,
    /// Why each kept message stays.
    pub reasons: Vec<Kept>,
    /// What the summariser reads: the earlier summary, if there is one, then the replaced messages with their results.
    /// A legal context by itself.
    pub source: Vec<ContextMessage>,
    /// Where the earlier summary comes from that is replaced.
    pub earlier: Option<Position>,
    /// How long the summary may be, in tokens as [estimated](super::estimate_tokens): a request's `max_tokens`.
    /// It is what the target leaves after all that stays and after the safety margin, at most
    /// [`Policy::output_max`].
    pub output_budget: u64,
    /// The predicted prompt as it is, in tokens.
    pub before: Predicted,
    /// The predicted prompt with a summary of no words, in tokens.
    pub fixed: Predicted,
    /// How large the prompt should be afterwards, in tokens.
    pub target: u64,
    /// How large it may be, in tokens: `max(target, 20 % of the window)`.
    pub limit: u64,
    /// The model's window, in tokens.
    pub window: u64,
    /// The policy that it was planned by.
    pub policy: Policy,
    /// What it was told to leave alone.
    pub pinned: Pinned,
}

/// Why there is no plan. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Shares of an unknown window are unknown.
    #[error("the context can't be compacted: the model's window is not known")]
    UnknownWindow,
    /// Everything must stay.
    #[error("there is nothing to compact: all messages of the context have to stay")]
    NothingToCompact,
    /// What must stay leaves too little to a summary.
    #[error(
        "the context can't be compacted: what has to stay leaves {available} tokens to the summary, and it needs {needed}"
    )]
    BudgetTooSmall {
        /// Tokens left.
        available: u64,
        /// Tokens needed: [`Policy::output_min`].
        needed: u64,
    },
}

/// Plans the compaction of the conversation `node`, as it is now, for a model with a window of `window` tokens.
///
/// Of what is behind the first instructions, these units stay: instructions, and units with a pinned message, an
/// unanswered call, a running child or a preserved tool; the newest user message; and the newest units, up to 7 % of the
/// window, but at least one. All else is the source, with the earlier summary.
///
/// # Errors
/// If there is nothing to gain, or no room for a summary.
pub fn plan(
    tree: &TreeState,
    node: NodeId,
    pinned: &Pinned,
    calibration: &Calibration,
    window: Option<u64>,
    policy: &Policy,
) -> Result<Plan, PlanError> {
    let window = window.filter(|window| *window > 0).ok_or(PlanError::UnknownWindow)?;
    let context = tree.context(node);
    let before = calibration.of(node).predict(&context);
    let mut units = Unit::all(&context);
    mark(&mut units, pinned, window, policy);

    let (kept, source): (Vec<&Unit<'_>>, Vec<&Unit<'_>>) =
        units.iter().partition(|unit| unit.reason.is_some());
    let replaced: BTreeSet<MessageNo> = source.iter().filter_map(|unit| unit.number()).collect();
    if replaced.is_empty() {
        return Err(PlanError::NothingToCompact);
    }
    let numbers: BTreeSet<MessageNo> = kept.iter().filter_map(|unit| unit.number()).collect();
    let reasons = kept.iter().filter_map(|unit| {
        let (message_no, reason) = (unit.number()?, unit.reason?);
        Some(Kept { message_no, reason })
    });
    let frame = Size::of_text(Role::System, SUMMARY_HEADING);
    let size = kept.iter().fold(frame, |size, unit| size.plus(unit.size));
    let fixed = Predicted::of(size.tokens(), before.overhead);
    let (target, output_budget) = budget(fixed, window, policy)?;
    let earlier = source.iter().find(|unit| unit.is_summary()).and_then(|unit| unit.messages.first());
    Ok(Plan {
        node,
        kept: ranges(&numbers),
        replaced: ranges(&replaced),
        reasons: reasons.collect(),
        earlier: earlier.map(|message| message.position),
        source: source.iter().flat_map(|unit| unit.messages).cloned().collect(),
        output_budget,
        before,
        fixed,
        target,
        limit: target.max(policy.limit.at_most(window)),
        window,
        policy: *policy,
        pinned: pinned.clone(),
    })
}

/// How large the context should be, and how much of that is left to the summary.
fn budget(fixed: Predicted, window: u64, policy: &Policy) -> Result<(u64, u64), PlanError> {
    let target = policy.target.at_most(window);
    let available = Predicted::most_local(target, fixed.overhead).saturating_sub(fixed.local);
    let needed = policy.output_min;
    if available >= needed {
        return Ok((target, available.min(policy.output_max)));
    }
    let grown = Predicted::of(fixed.local.saturating_add(needed), fixed.overhead).total;
    match policy.target_growth {
        TargetGrowth::BelowTrigger if grown < policy.trigger.at_least(window) => {
            Ok((grown.max(target), needed))
        }
        TargetGrowth::BelowTrigger | TargetGrowth::Forbidden => {
            Err(PlanError::BudgetTooSmall { available, needed })
        }
    }
}
