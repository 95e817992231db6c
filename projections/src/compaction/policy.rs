//! The policy of compaction, in numbers.

use serde::{Deserialize, Serialize};

/// A share of a model's window, in basis points (hundredths of a percent), so that no float decides about a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(u16);

impl Share {
    const WHOLE: u16 = 10_000;

    /// A share in basis points. More than the whole is the whole.
    #[must_use]
    pub const fn basis_points(points: u16) -> Self {
        Self(if points > Self::WHOLE { Self::WHOLE } else { points })
    }

    /// A share in percent. More than the whole is the whole.
    #[must_use]
    pub const fn percent(percent: u16) -> Self {
        Self::basis_points(percent.saturating_mul(100))
    }

    /// The most whole tokens that are no more than this share of `window` tokens: for budgets.
    #[must_use]
    pub fn at_most(self, window: u64) -> u64 {
        narrow(self.scaled(window) / u128::from(Self::WHOLE))
    }

    /// The fewest whole tokens that are no less than this share of `window` tokens: for thresholds.
    #[must_use]
    pub fn at_least(self, window: u64) -> u64 {
        narrow(self.scaled(window).div_ceil(u128::from(Self::WHOLE)))
    }

    fn scaled(self, window: u64) -> u128 {
        // At most 10,000 (also one that was deserialised), so no more than the window comes out.
        u128::from(window).saturating_mul(u128::from(self.0.min(Self::WHOLE)))
    }
}

fn narrow(tokens: u128) -> u64 {
    u64::try_from(tokens).unwrap_or(u64::MAX)
}

/// What becomes of the newest message that may be summarised, if it alone is larger than the recent tail may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OversizedTail {
    /// It stays: the tail has at least one unit.
    #[default]
    Keep,
    /// It is summarised (q's `SummarizeOversizedRecent`).
    Summarise,
}

/// What happens if what must stay leaves too little of the target to the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetGrowth {
    /// There is no plan.
    #[default]
    Forbidden,
    /// The target grows as far as the shortest summary needs, if that is below the trigger (q's `AllowTargetGrowth`).
    BelowTrigger,
}

/// What becomes of the newest user message, if it is older than the recent tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewestRequest {
    /// It stays, unless it is larger than the recent tail may be: a model that reads its task retold drifts from it.
    /// (Not q's rule: agents that did without it forgot their task in the middle of a turn.)
    #[default]
    Keep,
    /// It is summarised like any other message, as in q.
    Summarise,
}

/// When and how far a context is compacted. The default is q's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// From which predicted size on compaction is due, as a share of the window. 85 %.
    pub trigger: Share,
    /// How large the context may be afterwards, as a share of the window. 22 %.
    pub target: Share,
    /// How large the tail of newest messages that stays verbatim may be, as a share of the window. 7 %.
    pub recent: Share,
    /// Up to which predicted size a summary is accepted though the target is lower, as a share of the window. 20 %.
    pub limit: Share,
    /// The fewest tokens that a summary must have room for. 128.
    pub output_min: u64,
    /// The most tokens that a summary is given. 8,192.
    pub output_max: u64,
    /// Whether the newest message stays if it is oversized.
    pub oversized_tail: OversizedTail,
    /// Whether the target may grow.
    pub target_growth: TargetGrowth,
    /// Whether the newest user message stays if it is older than the tail.
    pub newest_request: NewestRequest,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            trigger: Share::percent(85),
            target: Share::percent(22),
            recent: Share::percent(7),
            limit: Share::percent(20),
            output_min: 128,
            output_max: 8_192,
            oversized_tail: OversizedTail::Keep,
            target_growth: TargetGrowth::Forbidden,
            newest_request: NewestRequest::Keep,
        }
    }
}

impl Policy {
    /// The same policy for the loop within a turn: due at 80 % at the latest, since a turn goes on by itself.
    #[must_use]
    pub fn within_turn(self) -> Self {
        Self { trigger: self.trigger.min(Share::percent(80)), ..self }
    }
}
