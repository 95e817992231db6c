//! Where a conversation's turns began, what can be undone in it, and what its host saved of its files: what a rewind is
//! planned from.

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{CheckpointReferenced, Event, HeadReason, LoggedEvent, RunReason};
use sessionlog_codec::ids::{MessageNo, Position, TurnNo};

/// The turns, undoable changes and checkpoints of one conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Timeline {
    turns: Vec<TurnBounds>,
    /// Changes that were not undone, oldest first.
    changes: Vec<Change>,
    checkpoints: Vec<(Position, CheckpointReferenced)>,
}

/// Where a turn lies in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TurnBounds {
    pub(crate) turn: TurnNo,
    pub(crate) started: Position,
    pub(crate) ended: Option<Position>,
}

/// Something that can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    /// The head went elsewhere, or the conversation was cleared. It was here before.
    Left(Position),
    /// A message was taken back.
    Withdrew(MessageNo),
}

impl Timeline {
    /// Folds one event. `head` is the conversation's head before it.
    pub(crate) fn apply(&mut self, logged: &LoggedEvent, head: Position) {
        match &logged.event {
            Event::TurnStarted(started) => {
                self.turns.push(TurnBounds { turn: started.turn, started: logged.position, ended: None });
            }
            Event::TurnEnded(_) => {
                if let Some(last) = self.turns.last_mut() {
                    last.ended = Some(logged.position);
                }
            }
            Event::HeadMoved(moved) if moved.reason == HeadReason::Undo => {
                self.forget_withdrawals();
                self.changes.pop();
            }
            Event::HeadMoved(_) => self.changes.push(Change::Left(head)),
            Event::RunStarted(run) if run.reason == RunReason::Cleared => {
                self.changes.push(Change::Left(head));
            }
            Event::MessageWithdrawn(withdrawn) => self.changes.push(Change::Withdrew(withdrawn.message_no)),
            Event::MessageAppended(_) => self.forget_withdrawals(),
            Event::CheckpointReferenced(checkpoint) => {
                self.checkpoints.push((logged.position, checkpoint.clone()));
            }
            _ => {}
        }
    }

    /// Something was said, or left, since: what was taken back before it has lost its place.
    fn forget_withdrawals(&mut self) {
        while let Some(Change::Withdrew(_)) = self.changes.last() {
            self.changes.pop();
        }
    }

    /// The turn of a number, and the one before it.
    pub(crate) fn turn(&self, turn: TurnNo) -> Option<(TurnBounds, Option<TurnBounds>)> {
        let index = self.turns.iter().position(|it| it.turn == turn)?;
        let before = index.checked_sub(1).and_then(|before| self.turns.get(before)).copied();
        self.turns.get(index).map(|found| (*found, before))
    }

    /// The newest change that was not undone.
    pub(crate) fn last_change(&self) -> Option<Change> {
        self.changes.last().copied()
    }

    /// The checkpoints, oldest first, with their positions.
    pub(crate) fn checkpoints(&self) -> &[(Position, CheckpointReferenced)] {
        &self.checkpoints
    }
}
