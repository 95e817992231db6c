//! Going back: rewind, branch, undo, and taking a message back. Nothing is removed by any of them.

use sessionlog_codec::event::{
    CheckpointReferenced, Event, HeadMoved, MessageWithdrawn, NewEvent, TurnEnded, TurnOutcome,
};
use sessionlog_codec::ids::{MessageNo, NodeId, Position};
use sessionlog_projections::rewind::{self, Rewind, RewindRefused, RewindTo, Undo};

use super::Session;
use super::state::{State, Wanted};
use crate::error::{Error, ErrorKind, Result};
use crate::log::Receipt;

impl Session {
    /// What a rewind, or a change to another branch, would do: a dry run that changes nothing.
    ///
    /// # Errors
    /// `NotFound` if there is no such place; `Conflict` if the conversation stands there; `Io` or `Corrupt` if the log
    /// can't be read.
    pub fn plan_rewind(&self, node: NodeId, to: RewindTo) -> Result<Rewind> {
        self.with_tree(|tree| rewind::rewind(tree, node, to))?.map_err(refused)
    }

    /// Moves a conversation's head as planned. From here on the context is what was said up to there; what left it stays in
    /// the transcript, and [`undo`](Self::undo) brings it back. An open turn is ended as interrupted in the same frame, and
    /// children that the conversation waited for are cancelled by the next [`work`](Self::work).
    ///
    /// # Errors
    /// `Conflict` if the conversation has gone on since the plan; else as [`append`](Self::append).
    pub fn rewind(&self, plan: &Rewind) -> Result<Receipt> {
        let mut state = self.state()?;
        let head = state.ledger().head(plan.node);
        if head != plan.from {
            let message = format!(
                "node {} stood at position {} when the rewind was planned, and stands at {head} now: plan it again",
                plan.node, plan.from
            );
            return Err(Error::new(ErrorKind::Conflict, "rewind.outdated", message));
        }
        let events = moved(&state, plan.node, plan.event());
        self.commit(&mut state, events, self.store.options.durability)?.wait(self, state)
    }

    /// Undoes the newest rewind, change of branch, clear or withdrawal of a conversation that was not undone yet. A
    /// withdrawn message is said again, as a new one.
    ///
    /// # Errors
    /// `NotFound` if there is nothing to undo; else as [`append`](Self::append).
    pub fn undo(&self, node: NodeId) -> Result<Receipt> {
        let mut state = self.state()?;
        let undo =
            rewind::undo(&self.content_of(&mut state, Wanted::Everything)?.tree, node).map_err(refused)?;
        let events = match undo {
            Undo::Move(plan) => moved(&state, node, plan.event()),
            Undo::SayAgain(mut said) => {
                said.message_no = state.ledger().next_message_no(node);
                vec![NewEvent::now(node, *said)]
            }
        };
        self.commit(&mut state, events, self.store.options.durability)?.wait(self, state)
    }

    /// Where the other branches of a conversation end, oldest first. Each can be gone back to with
    /// [`RewindTo::Record`].
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log can't be read.
    pub fn branches(&self, node: NodeId) -> Result<Vec<Position>> {
        self.with_tree(|tree| rewind::branches(tree, node))
    }

    /// Takes a message back that no model has answered: it leaves the context, and stays in the transcript, marked.
    ///
    /// # Errors
    /// `NotFound` if there is no such message on the conversation's live path; `Invalid` if a model has answered it; else
    /// as [`append`](Self::append).
    pub fn withdraw(
        &self,
        node: NodeId,
        message_no: MessageNo,
        reason: impl Into<String>,
    ) -> Result<Receipt> {
        let mut state = self.state()?;
        let context = self.content_of(&mut state, Wanted::Context(node))?.tree.context(node);
        let behind: Vec<_> =
            context.iter().skip_while(|message| message.message_no != Some(message_no)).collect();
        if behind.is_empty() {
            let message = format!("node {node} has no message {message_no} that its model would be shown");
            return Err(Error::new(ErrorKind::NotFound, "message.missing", message));
        }
        let answered = behind.iter().any(|message| message.role == sessionlog_codec::event::Role::Assistant);
        if answered {
            let message = format!(
                "message {message_no} of node {node} was answered or is an answer: rewind to before it instead"
            );
            return Err(Error::invalid("message.answered", message));
        }
        let event = MessageWithdrawn { message_no, reason: reason.into() };
        let events = vec![NewEvent::now(node, event)];
        self.commit(&mut state, events, self.store.options.durability)?.wait(self, state)
    }

    /// Keeps the reference of a checkpoint that the host made of its files. Rewinding past it names it.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn reference_checkpoint(&self, node: NodeId, checkpoint: CheckpointReferenced) -> Result<Receipt> {
        self.append_batch(vec![NewEvent::now(node, Event::from(checkpoint))], self.store.options.durability)
    }
}

/// The move, and the end of the turn that is broken off by it.
fn moved(state: &State, node: NodeId, moved: HeadMoved) -> Vec<NewEvent> {
    let turn = state.ledger().open_turn(node).map(|turn| {
        let (outcome, stage, error) = (TurnOutcome::Interrupted, Some("rewind".to_owned()), None);
        NewEvent::now(node, TurnEnded { turn, outcome, stage, error })
    });
    turn.into_iter().chain([NewEvent::now(node, moved)]).collect()
}

fn refused(refused: RewindRefused) -> Error {
    let (kind, code) = match &refused {
        RewindRefused::AlreadyThere { .. } => (ErrorKind::Conflict, "rewind.already_there"),
        RewindRefused::NothingToUndo { .. } => (ErrorKind::NotFound, "rewind.nothing"),
        _ => (ErrorKind::NotFound, "rewind.missing"),
    };
    let message = refused.to_string();
    Error::with_source(kind, code, message, refused)
}
