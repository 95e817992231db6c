//! Who judges propositions: the host's.

use sessionlog_codec::event::LibraryAction;
use sessionlog_projections::learning::{Entry, Found, Proposition};

/// Why a judge could not judge: the host's own error.
pub type JudgeError = Box<dyn std::error::Error + Send + Sync>;

/// Decides what becomes of a proposition. Usually a model that is asked.
pub trait Librarian {
    /// Judges one proposition. May take as long as a model takes: nothing is held up by it but other judging.
    ///
    /// # Errors
    /// If it can't: the proposition waits, and is judged at another time.
    fn judge(&mut self, question: &Question) -> Result<Verdict, JudgeError>;
}

/// What a librarian is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The proposition's key.
    pub key: String,
    /// The proposition.
    pub proposition: Proposition,
    /// The entries that are likest, at most five, the best first; age does not matter.
    pub candidates: Vec<Candidate>,
}

/// An entry that a proposition may be the same as.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its id: what a [`Verdict`] names as its target.
    pub entry_id: String,
    /// The entry.
    pub entry: Entry,
    /// How like it is, from 0 to 1.
    pub score: f64,
}

impl Candidate {
    pub(super) fn of(found: Found) -> Self {
        let Found { entry, score } = found;
        Self { entry_id: entry.entry_id.clone(), entry, score }
    }
}

/// What a librarian decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of the proposition.
    pub action: LibraryAction,
    /// The candidate that it is merged into, or discarded for. None for a new entry.
    pub target: Option<String>,
    /// Why, for people.
    pub reason: String,
    /// The model that judged.
    pub model: Option<String>,
}

impl Verdict {
    /// It becomes an entry.
    #[must_use]
    pub fn create(reason: impl Into<String>) -> Self {
        Self { action: LibraryAction::Create, target: None, reason: reason.into(), model: None }
    }

    /// It is merged into a candidate.
    #[must_use]
    pub fn merge(target: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { action: LibraryAction::Merge, target: Some(target.into()), reason: reason.into(), model: None }
    }

    /// It is dropped.
    #[must_use]
    pub fn discard(reason: impl Into<String>) -> Self {
        Self { action: LibraryAction::Discard, target: None, reason: reason.into(), model: None }
    }
}
