//! What a session is doing, and the words for it in the two dialects of `.meta.json`.

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::FinalStatus;

/// What the log says about the session's life, without a look at any process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Lifecycle {
    /// The newest `session.opened` has no end behind it: its owner runs, or has crashed.
    Open,
    /// The owner let go in order (or there was none yet), and nobody declared an end.
    #[default]
    Closed,
    /// The host declared the end, and nobody went on since.
    Finished(FinalStatus),
}

/// Whether the session's owner is alive, as whoever looked at its lock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// Somebody holds the owner's lock.
    Alive,
    /// Nobody does.
    Dead,
    /// Nobody looked, or it can't be told (a copy of a log, another machine's).
    Unknown,
}

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its owner works on it.
    Running,
    /// It did what it was for.
    Completed,
    /// Its host declared that it could not.
    Failed,
    /// Its owner died without a word.
    Crashed,
    /// Somebody stopped it.
    Interrupted,
    /// Its host means to go on later.
    Paused,
    /// Closed in order, without a declared end: it can be gone on with at any time.
    Idle,
}

impl Lifecycle {
    /// The status, given what is known about the owner's process.
    ///
    /// Only an owner known to be dead makes a crash: without a look at the lock an open session counts as running,
    /// since nobody should take over, or report as lost, what may be alive.
    #[must_use]
    pub fn status(self, liveness: Liveness) -> Status {
        match (self, liveness) {
            (Self::Open, Liveness::Alive | Liveness::Unknown) => Status::Running,
            (Self::Open, Liveness::Dead) => Status::Crashed,
            (Self::Closed, _) => Status::Idle,
            (Self::Finished(FinalStatus::Completed), _) => Status::Completed,
            (Self::Finished(FinalStatus::Failed), _) => Status::Failed,
            (Self::Finished(FinalStatus::Interrupted), _) => Status::Interrupted,
            (Self::Finished(FinalStatus::Paused), _) => Status::Paused,
        }
    }
}

impl Status {
    /// The seed page's word: `incomplete`, `complete` or `failed`.
    #[must_use]
    pub fn seed_word(self) -> &'static str {
        match self {
            Self::Running | Self::Idle | Self::Paused | Self::Interrupted => "incomplete",
            Self::Completed => "complete",
            Self::Crashed | Self::Failed => "failed",
        }
    }

    /// recursive's word: `active`, `completed`, `crashed`, `interrupted` or `paused`. It has none for a session that
    /// is closed and not finished; `interrupted` is the one that its own resume picks up and does not take for alive.
    #[must_use]
    pub fn recursive_word(self) -> &'static str {
        match self {
            Self::Running => "active",
            Self::Completed => "completed",
            Self::Crashed | Self::Failed => "crashed",
            Self::Interrupted | Self::Idle => "interrupted",
            Self::Paused => "paused",
        }
    }

    /// Our own word, one for each status.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Crashed => "crashed",
            Self::Interrupted => "interrupted",
            Self::Paused => "paused",
            Self::Idle => "idle",
        }
    }

    /// Reads a status of either dialect, their aliases and our own words; `None` for any other word. `incomplete` is
    /// what the seed page writes while a session runs (recursive reads the same word as a crash: whoever reads it from
    /// a file of a dead agent knows better than the word).
    #[must_use]
    pub fn parse_word(word: &str) -> Option<Self> {
        match word.trim().to_ascii_lowercase().as_str() {
            "running" | "active" | "incomplete" => Some(Self::Running),
            "completed" | "complete" | "success" => Some(Self::Completed),
            "failed" => Some(Self::Failed),
            "crashed" => Some(Self::Crashed),
            "interrupted" | "cancelled" => Some(Self::Interrupted),
            "paused" => Some(Self::Paused),
            "idle" => Some(Self::Idle),
            _ => None,
        }
    }

    /// How an importer records a session that its source left in this status; `None`: not finished.
    #[must_use]
    pub fn final_status(self) -> Option<FinalStatus> {
        match self {
            Self::Completed => Some(FinalStatus::Completed),
            Self::Failed | Self::Crashed => Some(FinalStatus::Failed),
            Self::Interrupted => Some(FinalStatus::Interrupted),
            Self::Paused => Some(FinalStatus::Paused),
            Self::Running | Self::Idle => None,
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_both_dialects_and_every_alias_is_read() {
        let words = [
            ("incomplete", Status::Running),
            ("complete", Status::Completed),
            ("failed", Status::Failed),
            ("active", Status::Running),
            ("completed", Status::Completed),
            ("crashed", Status::Crashed),
            ("interrupted", Status::Interrupted),
            ("paused", Status::Paused),
            ("success", Status::Completed),
            ("cancelled", Status::Interrupted),
            (" Complete\n", Status::Completed),
        ];
        for (word, status) in words {
            assert_eq!(Status::parse_word(word), Some(status), "{word:?}");
        }
        for unknown in ["", "done", "\0", "null"] {
            assert_eq!(Status::parse_word(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn only_a_dead_owner_makes_a_crash() {
        assert_eq!(Lifecycle::Open.status(Liveness::Alive), Status::Running);
        assert_eq!(Lifecycle::Open.status(Liveness::Unknown), Status::Running);
        assert_eq!(Lifecycle::Open.status(Liveness::Dead), Status::Crashed);
        assert_eq!(Lifecycle::Closed.status(Liveness::Dead), Status::Idle);
        assert_eq!(Lifecycle::Finished(FinalStatus::Completed).status(Liveness::Dead), Status::Completed);
        assert_eq!(Status::Crashed.seed_word(), "failed");
        assert_eq!(Status::Running.seed_word(), "incomplete");
    }
}
