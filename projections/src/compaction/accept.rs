//! A summary becomes the event, or nothing.

use std::collections::BTreeSet;

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{CompactionTrigger, ContextCompacted, MessageRange, Part, Role, Usage};
use sessionlog_codec::ids::MessageNo;

use super::estimate::{Predicted, Size, estimate_tokens};
use super::inputs::Inputs;
use super::plan::Plan;
use super::ranges::ranges;
use super::units::Unit;
use crate::tree::TreeState;

/// What a summary begins with, so that the model knows it for one (q's words). It is part of the stored text.
pub const SUMMARY_HEADING: &str = "Compressed conversation memory:\n";

/// Who speaks the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SummaryRole {
    /// The system, as in q.
    #[default]
    System,
    /// The user: for providers that take system messages at the beginning only, or a user's message first.
    User,
}

impl From<SummaryRole> for Role {
    fn from(role: SummaryRole) -> Self {
        match role {
            SummaryRole::System => Self::System,
            SummaryRole::User => Self::User,
        }
    }
}

/// What the host knows of how the summary came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The host's id of the compaction.
    pub compaction_id: String,
    /// Who speaks the summary.
    pub role: SummaryRole,
    /// Why it was compacted.
    pub trigger: CompactionTrigger,
    /// The model that wrote the summary.
    pub model: Option<String>,
    /// What writing it used.
    pub usage: Option<Usage>,
}

/// Why a summary is not used. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// It says nothing.
    #[error("the summary is empty")]
    EmptySummary,
    /// What was summarised is not what the model is shown any more: a rewind, a reset, another compaction.
    #[error(
        "the context has changed since the compaction was planned: the summary is of messages that are not in it as they were"
    )]
    Outdated,
    /// The context would still be too large.
    #[error("with this summary the context would have {predicted} tokens, and at most {limit} are of use")]
    TooLarge {
        /// The predicted prompt, in tokens.
        predicted: u64,
        /// The most that is accepted, in tokens.
        limit: u64,
    },
}

/// Makes the event of a compaction, for the log as it is now: `tree` may be ahead of the plan. Messages that came
/// since the plan stay, as do results. Append the event before anything else is appended to the conversation.
///
/// # Errors
/// If the summary is empty, too long, or of messages that have changed or gone. Then nothing is appended, and the
/// context is what it was.
pub fn accept(
    plan: &Plan,
    tree: &TreeState,
    summary: &str,
    attempt: Attempt,
) -> Result<ContextCompacted, Rejected> {
    if summary.trim().is_empty() {
        return Err(Rejected::EmptySummary);
    }
    let context = tree.context(plan.node);
    let units = Unit::all(&context);
    let is_source = |unit: &&Unit<'_>| {
        unit.is_summary() || unit.number().is_some_and(|number| holds(&plan.replaced, number))
    };
    let (source, kept): (Vec<&Unit<'_>>, Vec<&Unit<'_>>) = units.iter().partition(is_source);
    if !source.iter().flat_map(|unit| unit.messages).eq(&plan.source) {
        return Err(Rejected::Outdated);
    }

    let text = format!("{SUMMARY_HEADING}{summary}");
    let role = Role::from(attempt.role);
    let size = kept.iter().fold(Size::of_text(role, &text), |size, unit| size.plus(unit.size));
    let before = Predicted::of(estimate_tokens(&context), plan.before.overhead);
    let after = Predicted::of(size.tokens(), plan.before.overhead);
    if after.total > plan.limit {
        return Err(Rejected::TooLarge { predicted: after.total, limit: plan.limit });
    }
    let numbers: BTreeSet<MessageNo> = kept.iter().filter_map(|unit| unit.number()).collect();
    let inputs = serde_json::to_vec(&Inputs::new(plan, before, after));
    Ok(ContextCompacted {
        compaction_id: attempt.compaction_id,
        summary: vec![Part::text(text)],
        summary_role: role,
        kept: ranges(&numbers),
        replaced: plan.replaced.clone(),
        tokens_before: Some(before.total),
        tokens_after: Some(after.total),
        trigger: attempt.trigger,
        model: attempt.model,
        usage: attempt.usage,
        inputs: inputs.ok().map(RawBytes),
        source: None,
    })
}

fn holds(ranges: &[MessageRange], number: MessageNo) -> bool {
    let begun = ranges.partition_point(|range| range.first <= number);
    begun.checked_sub(1).and_then(|index| ranges.get(index)).is_some_and(|range| range.contains(number))
}
