//! Who draws propositions from what was said: the host's.

use sessionlog_codec::RawBytes;
use sessionlog_projections::learning::{Line, Proposition, Refusal, Registered, Segment};

use crate::library::JudgeError;

/// Draws propositions from a segment, one at a time. Usually a model that is asked.
pub trait Thinker {
    /// The next proposition, or that there is none. It is asked anew after each one, and after a crash from where it was: the
    /// [`Lesson`] says which ones the library has answered.
    ///
    /// # Errors
    /// If it can't say: the segment stays the first of the queue, and is gone on with at another time.
    fn next(&mut self, lesson: &Lesson<'_>) -> Result<Thought, JudgeError>;
}

/// What a Thinker is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Lesson<'a> {
    /// The segment.
    pub segment: &'a Segment,
    /// What was said in it.
    pub lines: &'a [Line],
    /// The propositions of this segment that the library has answered.
    pub registered: &'a [Registered],
    /// Why the proposition that was made just now is not taken, if one was.
    pub refused: Option<&'a Refusal>,
}

/// What a Thinker says.
#[derive(Clone, Debug, PartialEq)]
pub enum Thought {
    /// A proposition, as JSON: the bytes are kept as they are, see
    /// [`Draft`](sessionlog_projections::learning::Draft) for its keys.
    Propose(RawBytes),
    /// There is nothing more to learn from the segment.
    Done,
}

impl From<Proposition> for Thought {
    fn from(proposition: Proposition) -> Self {
        Self::Propose(proposition.request().clone())
    }
}
