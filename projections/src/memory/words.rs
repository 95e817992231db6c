//! The words in which kinds and statuses of records are written.

use sessionlog_codec::event::{FinalStatus, NodeStatus, Outcome, TurnOutcome};

use super::record::{MemoryKind, MemoryStatus};

impl MemoryKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Message,
        Self::Call,
        Self::Result,
        Self::Failure,
        Self::Event,
        Self::Summary,
        Self::Task,
        Self::Question,
    ];

    /// The kind in lower case.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Call => "call",
            Self::Result => "result",
            Self::Failure => "failure",
            Self::Event => "event",
            Self::Summary => "summary",
            Self::Task => "task",
            Self::Question => "question",
        }
    }

    /// The kind of a word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl MemoryStatus {
    /// Every status.
    pub const ALL: [Self; 8] = [
        Self::Submitted,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Unknown,
        Self::NotStarted,
        Self::Withdrawn,
    ];

    /// The status in lower case.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
            Self::NotStarted => "not_started",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// The status of a word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }
}

impl From<Outcome> for MemoryStatus {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Succeeded => Self::Succeeded,
            Outcome::Failed => Self::Failed,
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Unknown => Self::Unknown,
            Outcome::NotStarted => Self::NotStarted,
        }
    }
}

impl From<NodeStatus> for MemoryStatus {
    fn from(status: NodeStatus) -> Self {
        match status {
            NodeStatus::Completed => Self::Succeeded,
            NodeStatus::Blocked | NodeStatus::Failed => Self::Failed,
            NodeStatus::Unknown => Self::Unknown,
            NodeStatus::Cancelled => Self::Cancelled,
        }
    }
}

impl From<FinalStatus> for MemoryStatus {
    fn from(status: FinalStatus) -> Self {
        match status {
            FinalStatus::Completed => Self::Succeeded,
            FinalStatus::Failed => Self::Failed,
            FinalStatus::Interrupted => Self::Cancelled,
            FinalStatus::Paused => Self::Running,
        }
    }
}

impl From<TurnOutcome> for MemoryStatus {
    fn from(outcome: TurnOutcome) -> Self {
        match outcome {
            TurnOutcome::Completed => Self::Succeeded,
            TurnOutcome::Failed => Self::Failed,
            TurnOutcome::Interrupted => Self::Cancelled,
        }
    }
}
