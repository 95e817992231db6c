//! Which records the model contexts of a session are made of, so that a context is folded from them alone, however long
//! the session is.
//!
//! A compaction, a new run and a reset take records out of the context for good, unless the head goes back behind them.
//! Then, and in a few more rare cases, the index does not know the records any more: the context is folded from the whole
//! log, until the conversation is cleared or reset.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{ContextCompacted, Event, LoggedEvent, MessageAppended, Role};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, Position};

use crate::Projection;
use crate::context::Ranges;
use crate::path::joins_path;
use crate::words::{Sealed, sealed};

/// Of a conversation with more records than this in its context, the index is not kept: no model is shown that much, and a
/// snapshot would be long.
const ENTRIES_MAX: usize = 1 << 13;

/// The records of each conversation's context. Derives from every event of the tree log.
///
/// Folding the records at [`positions`](Self::positions), in order, into a [`TreeState`](crate::TreeState) gives the same
/// contexts of all [known](Self::knows) conversations as folding the whole log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextIndex {
    created: Option<Position>,
    nodes: BTreeMap<NodeId, NodeIndex>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum NodeIndex {
    Known(Known),
    /// The context takes the whole log.
    Lost,
}

impl Default for NodeIndex {
    fn default() -> Self {
        Self::Known(Known::default())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    entries: Vec<Entry>,
    /// The entry that the conversation goes on from.
    head: Option<usize>,
    /// The messages among the entries, with those that were taken back.
    messages: BTreeMap<MessageNo, Standing>,
    /// Calls that were started and have no result, by where they were started.
    started: BTreeMap<Position, CallRef>,
    base: Base,
}

/// What the entries begin with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Base {
    /// The conversation's beginning, or a new run or reset.
    #[default]
    Start,
    /// A compaction: what it kept, with as many instructions before it as are told here, then itself, at this entry.
    Compaction { instructions: BTreeSet<MessageNo>, entry: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    position: Position,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    /// A step of the path, behind another one.
    Step { before: Option<usize>, step: Step },
    /// Something about a message: a piece, a start, a result, a withdrawal.
    About(MessageNo),
    /// Results of several messages were cleared.
    Trim(BTreeSet<MessageNo>),
    /// The head went elsewhere.
    Move,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    Instruction(MessageNo),
    Word(MessageNo),
    Compaction,
    Barrier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Standing {
    Said,
    Withdrawn,
}

impl ContextIndex {
    /// Whether the context of a conversation can be folded from the records at [`positions`](Self::positions).
    #[must_use]
    pub fn knows(&self, node: NodeId) -> bool {
        !matches!(self.nodes.get(&node), Some(NodeIndex::Lost))
    }

    /// Whether no message of a conversation was left out: it was neither compacted nor cleared nor reset.
    #[must_use]
    pub fn holds_all(&self, node: NodeId) -> bool {
        match self.nodes.get(&node) {
            None => true,
            Some(NodeIndex::Lost) => false,
            Some(NodeIndex::Known(known)) => known.base == Base::Start && !known.begins_with_barrier(),
        }
    }

    /// The records that the contexts of all known conversations are folded from, in order.
    #[must_use]
    pub fn positions(&self) -> Vec<Position> {
        let known = self.nodes.values().filter_map(|index| match index {
            NodeIndex::Known(known) => Some(known),
            NodeIndex::Lost => None,
        });
        let entries = known.flat_map(|known| known.entries.iter().map(|entry| entry.position));
        let mut positions: Vec<Position> = self.created.into_iter().chain(entries).collect();
        positions.sort_unstable();
        positions.dedup();
        positions
    }
}

impl Projection for ContextIndex {
    fn apply(&mut self, logged: &LoggedEvent) {
        if matches!(logged.event, Event::SessionCreated(_)) {
            self.created.get_or_insert(logged.position);
        }
        let index = self.nodes.entry(logged.node).or_default();
        match &logged.event {
            Event::RunStarted(_) | Event::ContextReset(_) => {
                let mut known = Known::default();
                known.step(logged.position, Step::Barrier);
                *index = NodeIndex::Known(known);
            }
            // A child that has ended is not asked again; whoever looks at it reads the log.
            Event::NodeSettled(_) => *index = NodeIndex::Lost,
            _ => {
                if let NodeIndex::Known(known) = index
                    && known.apply(logged) == Outcome::Lost
                {
                    *index = NodeIndex::Lost;
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Known,
    Lost,
}

impl Known {
    fn apply(&mut self, logged: &LoggedEvent) -> Outcome {
        let position = logged.position;
        match &logged.event {
            Event::MessageAppended(message) => return self.append(logged, message),
            Event::MessageExtended(extended) => self.about(position, extended.message_no),
            Event::MessageWithdrawn(withdrawn) => {
                self.about(position, withdrawn.message_no);
                if let Some(standing) = self.messages.get_mut(&withdrawn.message_no) {
                    *standing = Standing::Withdrawn;
                }
            }
            Event::CallStarted(started) => {
                self.about(position, started.call.message_no);
                self.started.insert(position, started.call);
            }
            Event::CallFinished(finished) => {
                self.about(position, finished.call.message_no);
                self.started.retain(|_, call| *call != finished.call);
            }
            Event::CallResolved(resolved) => self.about(position, resolved.call.message_no),
            Event::ReplayAttached(attached) => self.about(position, attached.message_no),
            Event::ContextTrimmed(trimmed) => {
                let messages = trimmed.calls.iter().map(|call| call.message_no);
                let messages: BTreeSet<_> = messages.filter(|it| self.messages.contains_key(it)).collect();
                self.entries.push(Entry { position, what: What::Trim(messages) });
            }
            Event::ContextCompacted(compacted) => return self.compact(position, compacted),
            Event::HeadMoved(moved) => return self.move_head(position, moved.to),
            other => return self.apply_sealed(logged, other),
        }
        self.size()
    }

    fn begins_with_barrier(&self) -> bool {
        let first = self.entries.first().map(|entry| &entry.what);
        matches!(first, Some(What::Step { step: Step::Barrier, .. }))
    }

    fn size(&self) -> Outcome {
        if self.entries.len() > ENTRIES_MAX { Outcome::Lost } else { Outcome::Known }
    }

    fn append(&mut self, logged: &LoggedEvent, message: &MessageAppended) -> Outcome {
        let number = message.message_no;
        if !joins_path(&logged.event) {
            return Outcome::Known;
        }
        // Two messages of one number are possible in garbage only.
        if self.messages.insert(number, Standing::Said).is_some() {
            return Outcome::Lost;
        }
        self.step(
            logged.position,
            match message.role {
                Role::System | Role::Developer => Step::Instruction(number),
                Role::User | Role::Assistant | Role::Tool => Step::Word(number),
            },
        );
        self.size()
    }

    fn step(&mut self, position: Position, step: Step) {
        let entry = self.entries.len();
        self.entries.push(Entry { position, what: What::Step { before: self.head, step } });
        self.head = Some(entry);
    }

    /// Something about a message that is not in the context changes nothing of it.
    fn about(&mut self, position: Position, message_no: MessageNo) {
        if self.messages.contains_key(&message_no) {
            self.entries.push(Entry { position, what: What::About(message_no) });
        }
    }

    fn move_head(&mut self, position: Position, to: Position) -> Outcome {
        let first = match &self.base {
            Base::Start => 0,
            // What the path was before the compaction is not here any more.
            Base::Compaction { entry, .. } => *entry,
        };
        let steps = self.entries.iter().enumerate().skip(first);
        let found = steps.filter(|(_, entry)| matches!(entry.what, What::Step { .. }));
        let target = found.rev().find(|(_, entry)| entry.position == to).map(|(index, _)| index);
        if to != Position::START && target.is_none() {
            return Outcome::Lost;
        }
        self.head = target;
        self.entries.push(Entry { position, what: What::Move });
        self.size()
    }

    /// A result that can't be read answers the call it follows from, as long as that is certain.
    fn apply_sealed(&mut self, logged: &LoggedEvent, event: &Event) -> Outcome {
        match sealed(event) {
            // It is on the path, and never in a context.
            Some(Sealed::Message) | None => Outcome::Known,
            Some(Sealed::Result) => {
                let call = logged.cause.and_then(|cause| self.started.get(&cause).copied());
                let Some(call) = call.filter(|call| self.messages.contains_key(&call.message_no)) else {
                    return Outcome::Lost;
                };
                self.about(logged.position, call.message_no);
                self.started.retain(|_, open| *open != call);
                self.size()
            }
        }
    }

    /// The live path, oldest first.
    fn live(&self) -> Vec<usize> {
        let before = |entry: &usize| match self.entries.get(*entry).map(|entry| &entry.what) {
            Some(What::Step { before, .. }) => *before,
            _ => None,
        };
        let mut path: Vec<usize> = std::iter::successors(self.head, before).collect();
        path.reverse();
        path
    }

    /// What the context holds now: the instructions that it begins with, and the other messages, in its order.
    fn window(&self) -> (Vec<MessageNo>, Vec<Step>) {
        let path = self.live();
        let (mut instructions, mut others) = (Vec::new(), Vec::new());
        let fixed = match &self.base {
            Base::Compaction { instructions, entry } if path.contains(entry) => Some(instructions),
            _ => None,
        };
        for entry in path {
            let Some(Entry { what: What::Step { step, .. }, .. }) = self.entries.get(entry) else { continue };
            let message_no = match step {
                Step::Instruction(message_no) | Step::Word(message_no) => *message_no,
                Step::Compaction | Step::Barrier => continue,
            };
            if self.messages.get(&message_no) != Some(&Standing::Said) {
                continue;
            }
            let leads = match fixed {
                Some(fixed) => fixed.contains(&message_no),
                None => others.is_empty() && matches!(step, Step::Instruction(_)),
            };
            if leads { instructions.push(message_no) } else { others.push(*step) }
        }
        (instructions, others)
    }

    fn compact(&mut self, position: Position, compacted: &ContextCompacted) -> Outcome {
        let (instructions, others) = self.window();
        let ranges = Ranges::of(&compacted.kept);
        let number = |step: &Step| match step {
            Step::Instruction(message_no) | Step::Word(message_no) => Some(*message_no),
            Step::Compaction | Step::Barrier => None,
        };
        let kept: Vec<Step> =
            others.into_iter().filter(|step| number(step).is_some_and(|it| ranges.contain(it))).collect();
        // Without what was between them, it would be taken for one of the instructions that the run begins with.
        if matches!(kept.first(), Some(Step::Instruction(_))) {
            return Outcome::Lost;
        }
        let instructions: BTreeSet<MessageNo> = instructions.into_iter().collect();
        let stay: BTreeSet<MessageNo> =
            instructions.iter().copied().chain(kept.iter().filter_map(number)).collect();
        self.keep(&stay);
        self.base = Base::Compaction { instructions, entry: self.entries.len() };
        self.step(position, Step::Compaction);
        self.size()
    }

    /// Forgets all entries but those of these messages, which are one path from now on.
    fn keep(&mut self, stay: &BTreeSet<MessageNo>) {
        let entries = std::mem::take(&mut self.entries);
        self.head = None;
        self.messages.retain(|message_no, _| stay.contains(message_no));
        self.started.retain(|_, call| stay.contains(&call.message_no));
        for Entry { position, what } in entries {
            match what {
                What::Step { step: step @ (Step::Instruction(number) | Step::Word(number)), .. } => {
                    if stay.contains(&number) {
                        self.step(position, step);
                    }
                }
                What::About(number) if stay.contains(&number) => self.about(position, number),
                What::Trim(messages) => {
                    let messages: BTreeSet<_> = messages.intersection(stay).copied().collect();
                    if !messages.is_empty() {
                        self.entries.push(Entry { position, what: What::Trim(messages) });
                    }
                }
                What::Step { .. } | What::About(_) | What::Move => {}
            }
        }
    }
}
