//! The path of a conversation: which records the model was shown, each linked to the one before it at the time.
//!
//! A rewind or a branch moves the head; what was appended after the new head stays in the tree, off the path. Records
//! that the model is never shown (notices, progress, titles) are no part of it, so they can't fork it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{Audience, Event, Role};
use sessionlog_codec::ids::Position;

use crate::words::{Sealed, sealed};

/// Whether the record becomes the head: messages that the model is shown, compactions, resets, new runs.
pub(crate) fn joins_path(event: &Event) -> bool {
    match event {
        Event::MessageAppended(message) => message.audience != Audience::Person && message.role != Role::Tool,
        Event::ContextCompacted(_) | Event::ContextReset(_) | Event::RunStarted(_) => true,
        other => sealed(other) == Some(Sealed::Message),
    }
}

/// One record of the path tree, by its number within the tree.
pub(crate) type Step = usize;

/// The tree of one conversation, and where its head is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Path {
    /// Each record's parent. A parent always has a lower number, so a walk upwards ends, whatever a log says.
    parents: Vec<Option<Step>>,
    at: BTreeMap<Position, Step>,
    head: Option<Step>,
}

impl Path {
    /// Adds the record at `position` behind the head, and makes it the head.
    pub(crate) fn push(&mut self, position: Position) -> Step {
        let step = self.parents.len();
        self.parents.push(self.head);
        // Two records at one position are possible in garbage only; the first one keeps its name.
        self.at.entry(position).or_insert(step);
        self.head = Some(step);
        step
    }

    /// Moves the head. A place that is not on the tree is no place to go on from, so then nothing moves.
    pub(crate) fn move_to(&mut self, position: Position) {
        if position == Position::START {
            self.head = None;
        } else if let Some(step) = self.at.get(&position) {
            self.head = Some(*step);
        }
    }

    /// The newest record of the live path.
    pub(crate) fn head(&self) -> Option<Step> {
        self.head
    }

    /// The live path, oldest first.
    pub(crate) fn live(&self) -> Vec<Step> {
        self.up_to(self.head)
    }

    /// The path that ends at `step`, oldest first.
    pub(crate) fn up_to(&self, step: Option<Step>) -> Vec<Step> {
        let mut path: Vec<Step> = std::iter::successors(step, |step| self.parent(*step)).collect();
        path.reverse();
        path
    }

    /// The record before `step` on its path.
    pub(crate) fn parent(&self, step: Step) -> Option<Step> {
        self.parents.get(step).copied().flatten()
    }

    /// The record at `position`.
    pub(crate) fn step_at(&self, position: Position) -> Option<Step> {
        self.at.get(&position).copied()
    }

    /// The first record behind `position`, on whatever branch.
    pub(crate) fn first_after(&self, position: Position) -> Option<Step> {
        let behind = (std::ops::Bound::Excluded(position), std::ops::Bound::Unbounded);
        self.at.range(behind).next().map(|(_, step)| *step)
    }

    /// The last record before `position`, on whatever branch.
    pub(crate) fn last_before(&self, position: Position) -> Option<Step> {
        self.at.range(..position).next_back().map(|(_, step)| *step)
    }

    /// The records that nothing follows, oldest first.
    pub(crate) fn ends(&self) -> impl Iterator<Item = Step> + '_ {
        let followed: BTreeSet<Step> = self.parents.iter().filter_map(|parent| *parent).collect();
        (0..self.parents.len()).filter(move |step| !followed.contains(step))
    }
}
