//! Rewinding and branching: where a conversation's head would go, what would leave the context with it, and what would
//! not be undone in the world. Pure: a host looks at the plan first, and appends [`Rewind::event`] if it is meant.
//!
//! Nothing is ever removed. What leaves the context stays in the transcript, marked, and moving the head again brings
//! it back. Moving the head is undone by [`undo`], and so are a clear and a withdrawal.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{CheckpointReferenced, HeadMoved, HeadReason, MessageAppended, Role};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, Position, TurnNo};

use crate::conversation::Conversation;
use crate::path::Step;
use crate::timeline::Change;
use crate::tree::TreeState;

/// Where a conversation is to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewindTo {
    /// From where it stood before this turn, its prompt left out.
    BeforeTurn(TurnNo),
    /// From what was said before this message.
    BeforeMessage(MessageNo),
    /// From this message.
    AfterMessage(MessageNo),
    /// From this record: a message, compaction, reset or new run, of this branch or another one.
    Record(Position),
    /// From nothing.
    Start,
}

/// What moving a head would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rewind {
    /// The conversation.
    pub node: NodeId,
    /// The record that it goes on from; [`Position::START`]: from nothing.
    pub to: Position,
    /// The record that it goes on from now.
    pub from: Position,
    /// The messages of the live path that leave it, in order. They stay in the transcript.
    pub leaves: Vec<MessageNo>,
    /// The messages that join it, when the head goes to another branch.
    pub joins: Vec<MessageNo>,
    /// Calls of the leaving messages that were started: what they did is not undone.
    pub effects: Vec<CallRef>,
    /// The checkpoint of the host's files that belongs to the place: the one from before the first change that is left,
    /// else the newest one that stays.
    pub checkpoint: Option<String>,
    /// Files that the leaving turns touched, as their checkpoints say.
    pub touched_files: Vec<String>,
    /// Why it would move.
    pub reason: HeadReason,
}

/// Why a head can't move there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RewindRefused {
    /// There is no such turn.
    #[error("node {node} has no turn {turn}")]
    UnknownTurn {
        /// The conversation.
        node: NodeId,
        /// The turn.
        turn: TurnNo,
    },
    /// There is no such message, or the model was never shown it.
    #[error("node {node} has no message {message_no} that its model was shown")]
    UnknownMessage {
        /// The conversation.
        node: NodeId,
        /// The message.
        message_no: MessageNo,
    },
    /// There is nothing at the position that a conversation can go on from.
    #[error(
        "node {node} can't go on from position {position}: no message, compaction, reset or new run of it is there"
    )]
    UnknownRecord {
        /// The conversation.
        node: NodeId,
        /// The position.
        position: Position,
    },
    /// It is there already.
    #[error("node {node} stands at position {position} already")]
    AlreadyThere {
        /// The conversation.
        node: NodeId,
        /// The position.
        position: Position,
    },
    /// Nothing was moved, cleared or withdrawn, or all of it was undone.
    #[error("node {node} has nothing to undo")]
    NothingToUndo {
        /// The conversation.
        node: NodeId,
    },
}

/// What undoes the newest change of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// The head goes back to where it was.
    Move(Rewind),
    /// The message that was taken back is said again, as a new one. Its number is still to be given.
    SayAgain(Box<MessageAppended>),
}

impl Rewind {
    /// The event that does it.
    #[must_use]
    pub fn event(&self) -> HeadMoved {
        HeadMoved { to: self.to, from: self.from, reason: self.reason }
    }
}

/// Plans a rewind of the conversation `node`, or a change to another branch of it.
///
/// # Errors
/// If there is no such place, or the conversation stands there.
pub fn rewind(tree: &TreeState, node: NodeId, to: RewindTo) -> Result<Rewind, RewindRefused> {
    let empty = Conversation::default();
    let conversation = tree.conversation(node).unwrap_or(&empty);
    let place = Place { node, conversation };
    let step = match to {
        RewindTo::Start => None,
        RewindTo::Record(Position::START) => None,
        RewindTo::Record(position) => {
            let unknown = RewindRefused::UnknownRecord { node, position };
            Some(conversation.path.step_at(position).ok_or(unknown)?)
        }
        RewindTo::AfterMessage(message_no) => Some(place.step_of(message_no)?),
        RewindTo::BeforeMessage(message_no) => conversation.path.parent(place.step_of(message_no)?),
        RewindTo::BeforeTurn(turn) => place.before_turn(turn)?,
    };
    let reason = if place.is_live(step) { HeadReason::Rewind } else { HeadReason::Branch };
    place.plan(step, reason)
}

/// What would undo the newest rewind, branch, clear or withdrawal of the conversation `node` that was not undone yet.
///
/// # Errors
/// If there is none.
pub fn undo(tree: &TreeState, node: NodeId) -> Result<Undo, RewindRefused> {
    let nothing = RewindRefused::NothingToUndo { node };
    let conversation = tree.conversation(node).ok_or(nothing.clone())?;
    match conversation.timeline.last_change().ok_or(nothing.clone())? {
        Change::Left(position) => {
            let step = conversation.path.step_at(position);
            Place { node, conversation }.plan(step, HeadReason::Undo).map(Undo::Move)
        }
        Change::Withdrew(message_no) => {
            let message = conversation.message(message_no).ok_or(nothing)?;
            Ok(Undo::SayAgain(Box::new(message.said.clone())))
        }
    }
}

/// The places that other branches of the conversation `node` end at, oldest first: each can be gone back to with
/// [`RewindTo::Record`].
#[must_use]
pub fn branches(tree: &TreeState, node: NodeId) -> Vec<Position> {
    let Some(conversation) = tree.conversation(node) else { return Vec::new() };
    let live: BTreeSet<Step> = conversation.path.live().into_iter().collect();
    let ends = conversation.path.ends().filter(|step| !live.contains(step));
    ends.map(|step| conversation.position_of(Some(step))).collect()
}

/// A conversation and its number.
#[derive(Clone, Copy)]
struct Place<'a> {
    node: NodeId,
    conversation: &'a Conversation,
}

impl Place<'_> {
    fn step_of(self, message_no: MessageNo) -> Result<Step, RewindRefused> {
        let unknown = RewindRefused::UnknownMessage { node: self.node, message_no };
        self.conversation.step_of(message_no).ok_or(unknown)
    }

    /// Where the conversation stood before a turn. A prompt may come just before its turn is started, or just after.
    fn before_turn(self, turn: TurnNo) -> Result<Option<Step>, RewindRefused> {
        let node = self.node;
        let unknown = RewindRefused::UnknownTurn { node, turn };
        let (bounds, before) = self.conversation.timeline.turn(turn).ok_or(unknown)?;
        let earliest = before.map_or(Position::START, |before| before.ended.unwrap_or(before.started));
        let first_within = self.conversation.path.first_after(bounds.started);
        let mut step = match first_within.filter(|step| self.is_of_turn(*step, bounds.ended)) {
            Some(step) => self.conversation.path.parent(step),
            None => self.conversation.path.last_before(bounds.started),
        };
        while let Some(prompt) = step.filter(|step| self.is_prompt(*step, earliest)) {
            step = self.conversation.path.parent(prompt);
        }
        Ok(step)
    }

    fn is_of_turn(self, step: Step, ended: Option<Position>) -> bool {
        ended.is_none_or(|ended| self.conversation.position_of(Some(step)) < ended)
    }

    fn is_prompt(self, step: Step, earliest: Position) -> bool {
        let position = self.conversation.position_of(Some(step));
        let said = self.conversation.message_of(step);
        position > earliest && said.is_some_and(|message| message.said.role == Role::User)
    }

    fn is_live(self, step: Option<Step>) -> bool {
        step.is_none_or(|step| self.conversation.path.live().contains(&step))
    }

    fn plan(self, to: Option<Step>, reason: HeadReason) -> Result<Rewind, RewindRefused> {
        let Self { node, conversation } = self;
        let path = &conversation.path;
        if path.head() == to {
            let position = conversation.position_of(to);
            return Err(RewindRefused::AlreadyThere { node, position });
        }
        let (old, new) = (path.live(), path.up_to(to));
        let shared = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let behind = |steps: &[Step]| -> Vec<Step> { steps.get(shared..).unwrap_or_default().to_vec() };
        let (left, joined) = (behind(&old), behind(&new));
        let numbers = |steps: &[Step]| -> Vec<MessageNo> {
            let said = steps.iter().filter_map(|step| conversation.message_of(*step));
            said.map(|message| message.said.message_no).collect()
        };
        let leaving = left.iter().filter_map(|step| conversation.message_of(*step));
        let calls = leaving.flat_map(|message| message.calls());
        let effects = calls.filter(|(_, _, slot)| slot.started.is_some()).map(|(call, ..)| call);
        let from = conversation.position_of(path.head());
        let first_left = left.first().map(|step| conversation.position_of(Some(*step)));
        let (checkpoint, touched_files) = self.checkpoints(first_left, from);
        Ok(Rewind {
            node,
            to: conversation.position_of(to),
            from,
            leaves: numbers(&left),
            joins: numbers(&joined),
            effects: effects.collect(),
            checkpoint,
            touched_files,
            reason,
        })
    }

    fn checkpoints(self, first_left: Option<Position>, from: Position) -> (Option<String>, Vec<String>) {
        let all = self.conversation.timeline.checkpoints();
        let Some(first_left) = first_left else { return (None, Vec::new()) };
        let (stay, leave): (Vec<_>, Vec<_>) = all.iter().partition(|(position, _)| *position < first_left);
        let newest = stay.last().map(|(_, it): &&(Position, CheckpointReferenced)| it.id.clone());
        let before = leave.first().and_then(|(_, it)| it.before.clone());
        // One that was saved behind the head belongs to the last turn that leaves, too.
        debug_assert!(from >= first_left, "what leaves is behind the head");
        let files: BTreeSet<&String> = leave.iter().flat_map(|(_, it)| &it.touched_files).collect();
        (before.or(newest), files.into_iter().cloned().collect())
    }
}
