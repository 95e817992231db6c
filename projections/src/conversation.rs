//! One conversation of a tree as its events left it. [`transcript`](crate::transcript) and [`context`](crate::context)
//! are read off it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{
    CallFinished, CallResolved, CallStarted, ContextCompacted, ContextTrimmed, Event, GapMarked, LoggedEvent,
    MessageAppended, MessageExtended, Outcome, Part, ResultFlag, Role, RunReason, ToolCall,
};
use sessionlog_codec::ids::{CallRef, KindNo, MessageNo, Position, Timestamp, ToolIndex};

use crate::path::{Path, Step, joins_path};
use crate::timeline::Timeline;
use crate::words::{Sealed, sealed};

/// What one conversation holds, in log order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Conversation {
    pub(crate) records: Vec<Record>,
    pub(crate) path: Path,
    /// For each step of the path, its record.
    pub(crate) steps: Vec<usize>,
    pub(crate) timeline: Timeline,
    /// Where each message is among the records. The first one of a number, where damage gave it to two.
    messages: BTreeMap<MessageNo, usize>,
    last_message: MessageNo,
    /// Started calls that have no result, by where they were started.
    started: BTreeMap<Position, CallRef>,
}

/// One record of a conversation that has a place in its transcript or its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) position: Position,
    pub(crate) timestamp: Timestamp,
    /// The step that it is, or that was the head when it came.
    pub(crate) step: Option<Step>,
    pub(crate) body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    Message(Box<Message>),
    /// A result, with its call's message where that is known.
    Result(Box<CallFinished>, Answer),
    /// An unknown outcome that was settled later, with its call's message where that is known.
    Resolution(Box<CallResolved>, Option<usize>),
    Compaction(Box<ContextCompacted>),
    Run(RunReason),
    Reset(String),
    Gap(GapMarked),
    /// A message or result that can't be read any more, or not yet.
    Sealed {
        kind: KindNo,
        place: SealedPlace,
    },
    /// A later piece of a message that is not there.
    Piece(Box<MessageExtended>),
}

/// What an unreadable record takes the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SealedPlace {
    Message(MessageNo),
    /// With the call that it seems to answer, and its message.
    Result(Option<(CallRef, usize)>),
}

/// How a result stands to its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is the call's result. The number is its message's record.
    First(usize),
    /// The call had a result already.
    Second(usize),
    /// There is no such call.
    Orphan,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    /// As appended, with all its extensions.
    pub(crate) said: MessageAppended,
    pub(crate) standing: Standing,
    /// One for each of its calls, in order.
    pub(crate) calls: Vec<CallSlot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Standing {
    Said,
    /// Before the record of this number came.
    Withdrawn(usize),
}

/// What is known about one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallSlot {
    pub(crate) started: Option<Position>,
    pub(crate) result: Option<Shown>,
    /// What the model is shown instead of a result that was cleared.
    pub(crate) placeholder: Option<String>,
}

/// The result of a call as the model is shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) position: Position,
    pub(crate) outcome: Outcome,
    pub(crate) flag: ResultFlag,
    pub(crate) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Content {
    /// That of the result in this record.
    Record(usize),
    /// What an unknown outcome was resolved to.
    Resolved(Vec<Part>),
    /// Nothing that can be read.
    Sealed,
}

impl Conversation {
    /// Folds one event of this conversation.
    pub(crate) fn apply(&mut self, logged: &LoggedEvent) {
        self.timeline.apply(logged, self.position_of(self.path.head()));
        match &logged.event {
            Event::MessageAppended(message) => self.append(logged, message),
            Event::MessageExtended(extended) => self.extend(logged, extended),
            Event::MessageWithdrawn(withdrawn) => self.withdraw(withdrawn.message_no),
            Event::CallStarted(started) => self.start(logged.position, started),
            Event::CallFinished(finished) => self.finish(logged, finished),
            Event::CallResolved(resolved) => self.resolve(logged, resolved),
            Event::ContextTrimmed(trimmed) => self.trim(trimmed),
            Event::ContextCompacted(compacted) => {
                self.push(logged, Body::Compaction(Box::new(compacted.clone())));
            }
            Event::ContextReset(reset) => self.push(logged, Body::Reset(reset.reason.clone())),
            Event::RunStarted(run) => self.push(logged, Body::Run(run.reason)),
            // Without an explanation, it goes on from the one before it, which tells of the whole span.
            Event::GapMarked(gap) if !gap.explanation.is_empty() => self.push(logged, Body::Gap(gap.clone())),
            Event::HeadMoved(moved) => self.path.move_to(moved.to),
            other => match sealed(other) {
                Some(Sealed::Message) => self.append_sealed(logged),
                Some(Sealed::Result) => self.finish_sealed(logged),
                None => {}
            },
        }
    }

    /// The record at `index`, if it is a message.
    pub(crate) fn message_at(&self, index: usize) -> Option<&Message> {
        match self.records.get(index).map(|record| &record.body) {
            Some(Body::Message(message)) => Some(message),
            _ => None,
        }
    }

    /// The message of a number, if it is there.
    pub(crate) fn message(&self, message_no: MessageNo) -> Option<&Message> {
        self.messages.get(&message_no).and_then(|index| self.message_at(*index))
    }

    /// Where on the path a message is, if its model was shown it.
    pub(crate) fn step_of(&self, message_no: MessageNo) -> Option<Step> {
        let record = self.records.get(*self.messages.get(&message_no)?)?;
        self.path.step_at(record.position)
    }

    /// The message at a place of the path.
    pub(crate) fn message_of(&self, step: Step) -> Option<&Message> {
        self.steps.get(step).and_then(|index| self.message_at(*index))
    }

    /// The position of a place of the path; [`Position::START`] for none.
    pub(crate) fn position_of(&self, step: Option<Step>) -> Position {
        let index = step.and_then(|step| self.steps.get(step));
        index.and_then(|index| self.records.get(*index)).map_or(Position::START, |record| record.position)
    }

    fn push(&mut self, logged: &LoggedEvent, body: Body) {
        let index = self.records.len();
        if joins_path(&logged.event) {
            self.path.push(logged.position);
            self.steps.push(index);
        }
        let (position, timestamp, step) = (logged.position, logged.timestamp, self.path.head());
        self.records.push(Record { position, timestamp, step, body });
    }

    fn append(&mut self, logged: &LoggedEvent, said: &MessageAppended) {
        self.messages.entry(said.message_no).or_insert(self.records.len());
        self.last_message = self.last_message.max(said.message_no);
        let mut message = Message { said: said.clone(), standing: Standing::Said, calls: Vec::new() };
        message.make_slots();
        self.push(logged, Body::Message(Box::new(message)));
    }

    /// Numbers are dense, so a message that can't be read is the next one.
    fn append_sealed(&mut self, logged: &LoggedEvent) {
        let number = self.last_message.next().unwrap_or(self.last_message);
        self.last_message = number;
        self.messages.entry(number).or_insert(self.records.len());
        let place = SealedPlace::Message(number);
        self.push(logged, Body::Sealed { kind: logged.event.kind().0, place });
    }

    fn extend(&mut self, logged: &LoggedEvent, extended: &MessageExtended) {
        let Some(message) = self.message_mut(extended.message_no) else {
            self.push(logged, Body::Piece(Box::new(extended.clone())));
            return;
        };
        let said = &mut message.said;
        said.parts.extend(extended.parts.iter().cloned());
        said.tool_calls.extend(extended.tool_calls.iter().cloned());
        if extended.stop_reason.is_some() {
            said.stop_reason.clone_from(&extended.stop_reason);
        }
        said.usage = extended.usage.or(said.usage);
        message.make_slots();
    }

    fn withdraw(&mut self, message_no: MessageNo) {
        let now = self.records.len();
        if let Some(message) = self.message_mut(message_no)
            && message.standing == Standing::Said
        {
            message.standing = Standing::Withdrawn(now);
        }
    }

    fn start(&mut self, position: Position, started: &CallStarted) {
        let Some((_, slot)) = self.slot_mut(started.call) else { return };
        slot.started = Some(position);
        if slot.result.is_none() {
            self.started.insert(position, started.call);
        }
    }

    fn finish(&mut self, logged: &LoggedEvent, finished: &CallFinished) {
        let record = self.records.len();
        let answer = match self.slot_mut(finished.call) {
            None => Answer::Orphan,
            Some((message, slot)) if slot.result.is_some() => Answer::Second(message),
            Some((message, slot)) => {
                slot.result = Some(Shown {
                    position: logged.position,
                    outcome: finished.outcome,
                    flag: finished.flag,
                    content: Content::Record(record),
                });
                Answer::First(message)
            }
        };
        self.started.retain(|_, call| *call != finished.call);
        self.push(logged, Body::Result(Box::new(finished.clone()), answer));
    }

    /// A result that can't be read answers the call it says it follows from, else the only one that has none.
    fn finish_sealed(&mut self, logged: &LoggedEvent) {
        let caused = logged.cause.and_then(|cause| self.started.get(&cause).copied());
        let call = caused.or_else(|| self.only_open_call());
        let mut answered = None;
        if let Some((index, slot)) = call.and_then(|call| self.slot_mut(call)) {
            answered = call.map(|call| (call, index));
            slot.result.get_or_insert(Shown {
                position: logged.position,
                outcome: Outcome::Unknown,
                flag: ResultFlag::Error,
                content: Content::Sealed,
            });
            self.started.retain(|_, open| Some(*open) != call);
        }
        let place = SealedPlace::Result(answered);
        self.push(logged, Body::Sealed { kind: logged.event.kind().0, place });
    }

    fn only_open_call(&self) -> Option<CallRef> {
        let messages = self.messages.values().filter_map(|index| self.message_at(*index));
        let mut open = messages.flat_map(|message| {
            let indices = (0..).zip(&message.calls);
            let open = indices.filter(|(_, slot)| slot.result.is_none());
            open.map(|(index, _)| CallRef {
                message_no: message.said.message_no,
                tool_index: ToolIndex(index),
            })
        });
        let only = open.next();
        if open.next().is_some() { None } else { only }
    }

    /// The model is shown what became of the call after all. A result that was cleared before is shown again, since
    /// what it says is new. An outcome that is known is never overwritten.
    fn resolve(&mut self, logged: &LoggedEvent, resolved: &CallResolved) {
        let index = self.slot_mut(resolved.call).map(|(index, _)| index);
        self.push(logged, Body::Resolution(Box::new(resolved.clone()), index));
        let Some((_, slot)) = self.slot_mut(resolved.call) else { return };
        if slot.result.as_ref().is_some_and(|shown| shown.outcome != Outcome::Unknown) {
            return;
        }
        let position = slot.result.as_ref().map_or(logged.position, |shown| shown.position);
        slot.placeholder = None;
        slot.result = Some(Shown {
            position,
            outcome: resolved.outcome,
            flag: resolved.flag,
            content: Content::Resolved(resolved.parts.clone()),
        });
    }

    /// Clears results that are there. One that comes later is new, and shown.
    fn trim(&mut self, trimmed: &ContextTrimmed) {
        for call in &trimmed.calls {
            if let Some((_, slot)) = self.slot_mut(*call)
                && slot.result.is_some()
            {
                slot.placeholder = Some(trimmed.placeholder.clone());
            }
        }
    }

    fn message_mut(&mut self, message_no: MessageNo) -> Option<&mut Message> {
        let index = *self.messages.get(&message_no)?;
        match self.records.get_mut(index).map(|record| &mut record.body) {
            Some(Body::Message(message)) => Some(message),
            _ => None,
        }
    }

    /// What is known about a call, and where its message is.
    fn slot_mut(&mut self, call: CallRef) -> Option<(usize, &mut CallSlot)> {
        let index = *self.messages.get(&call.message_no)?;
        let tool_index = usize::try_from(call.tool_index.0).ok()?;
        let slot = self.message_mut(call.message_no)?.calls.get_mut(tool_index)?;
        Some((index, slot))
    }
}

impl Message {
    /// Gives each call its slot. Only the model asks for calls, whatever a damaged log says.
    fn make_slots(&mut self) {
        if self.said.role == Role::Assistant {
            self.calls.resize_with(self.said.tool_calls.len(), CallSlot::default);
        }
    }

    /// Its calls with what is known about them, in order.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (CallRef, &ToolCall, &CallSlot)> {
        let message_no = self.said.message_no;
        let numbered = (0..).zip(self.said.tool_calls.iter().zip(&self.calls));
        numbered.map(move |(index, (call, slot))| {
            (CallRef { message_no, tool_index: ToolIndex(index) }, call, slot)
        })
    }
}
