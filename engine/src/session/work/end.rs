//! A conversation that has said its last.

use sessionlog_codec::event::{NodeStatus, Part, TurnOutcome};
use sessionlog_codec::ids::NodeId;

use super::Token;
use super::child::{ChildResult, settle};
use crate::error::Result;
use crate::log::Receipt;

/// Why a child ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// Its model had no more to do.
    LastWord,
    /// Its model has answered as often as the store's limits allow.
    RoundsUsedUp,
}

/// A child whose result is to be delivered.
#[derive(Debug)]
#[must_use = "what is dropped unused is offered again"]
pub struct ChildEnd<'a> {
    token: Token<'a>,
    reason: EndReason,
}

impl<'a> ChildEnd<'a> {
    pub(super) fn new(token: Token<'a>, reason: EndReason) -> Self {
        Self { token, reason }
    }

    /// Its conversation.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.token.node
    }

    /// Why it ends.
    #[must_use]
    pub fn reason(&self) -> EndReason {
        self.reason
    }

    /// What it said last.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log can't be read.
    pub fn last_words(&self) -> Result<Vec<Part>> {
        let node = self.token.node;
        self.token.session.with_words_of(node, |tree| {
            let parts = tree.last_answer(node).map(|said| said.parts.clone()).unwrap_or_default();
            // Reasoning belongs to the model that thought it, and is nothing for another conversation.
            parts.into_iter().filter(|part| !matches!(part, Part::Reasoning(_))).collect()
        })
    }

    /// Records how it ended, and delivers the result: one frame.
    ///
    /// # Errors
    /// `Conflict` if it has ended since; else as [`append`](crate::Session::append).
    pub fn settle(self, result: ChildResult) -> Result<Receipt> {
        settle(&self.token, result)
    }

    /// Delivers what it said last as its result; of a child that ran out of rounds, as a failure.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub fn settle_with_last_words(self) -> Result<Receipt> {
        let parts = self.last_words()?;
        let (status, reason) = match self.reason {
            EndReason::LastWord => (NodeStatus::Completed, None),
            EndReason::RoundsUsedUp => (NodeStatus::Failed, Some("rounds_used_up".to_owned())),
        };
        self.settle(ChildResult { status, reason, parts })
    }
}

/// The session's own turn, which has come to its end.
#[derive(Debug)]
#[must_use = "what is dropped unused is offered again"]
pub struct TurnEnd<'a> {
    token: Token<'a>,
}

impl<'a> TurnEnd<'a> {
    pub(super) fn new(token: Token<'a>) -> Self {
        Self { token }
    }

    /// The conversation: the root.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.token.node
    }

    /// Ends the turn as completed, and brings the views up to date.
    ///
    /// # Errors
    /// As [`end_turn`](crate::Session::end_turn).
    pub fn end(self) -> Result<Receipt> {
        self.token.session.end_turn(TurnOutcome::Completed)
    }
}
