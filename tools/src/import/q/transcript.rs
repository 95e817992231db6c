//! The elements of a q transcript, mapped to events.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sessionlog_codec::event::{CallFinished, Outcome, Part, ResultFlag, ResultOrigin, Role};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, Timestamp, ToolIndex};
use sessionlog_projections::role_word;
use sessionlog_projections::views::q::{Message, Place, Version};

use crate::import::conversation::Answer;
use crate::import::lines::Record;
use crate::import::loose::Key;
use crate::import::mapper::{Clock, Mapped, Mapper, NotOneValue};

/// How many of a transcript's elements are told of one by one if they can't be read.
pub(super) const NOTES_MAX: usize = 20;
/// The result that q itself gives a call whose outcome a restart left unknown: nothing else in it.
const UNKNOWN_STATUS: &str = "unknown";
const UNKNOWN_DETAIL: &str = "execution outcome unknown after session restart";

/// What an element of a transcript became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A message.
    Message(MessageNo),
    /// The result of a call.
    Result(CallRef),
}

/// Maps the elements of one conversation's transcript.
#[derive(Debug)]
pub(crate) struct Transcript {
    node: NodeId,
    version: Version,
    file: String,
    /// Calls that the delegate's state says are unknown, by the place of their message and their own.
    unknown: BTreeSet<(u64, u32)>,
    clock: Clock,
    last: MessageNo,
    slots: HashMap<u64, Slot>,
    /// The elements that say the same thing, in order.
    same: HashMap<Key, Vec<u64>>,
    len: u64,
    calls: BTreeMap<CallRef, Answer>,
    begins_with_instruction: bool,
    turn: Option<Turn>,
    notes: Vec<String>,
    /// How many notes there would be besides.
    more: u64,
}

/// The last message with calls, while nothing but results is behind it.
#[derive(Debug)]
struct Turn {
    element: u64,
    message_no: MessageNo,
    /// The calls' ids.
    calls: Vec<String>,
}

impl Transcript {
    /// `first` is the time of all of it: messages of q's have none of their own.
    pub(crate) fn new(
        node: NodeId,
        version: Version,
        file: &str,
        unknown: BTreeSet<(u64, u32)>,
        first: Option<Timestamp>,
    ) -> Self {
        Self {
            node,
            version,
            file: file.to_owned(),
            unknown,
            clock: Clock::new(first),
            last: MessageNo(0),
            slots: HashMap::new(),
            same: HashMap::new(),
            len: 0,
            calls: BTreeMap::new(),
            begins_with_instruction: false,
            turn: None,
            notes: Vec::new(),
            more: 0,
        }
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// The file's name, for errors.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// How many elements there are.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// What an element became; `None` if it could not be read.
    pub(crate) fn slot(&self, element: u64) -> Option<Slot> {
        self.slots.get(&element).copied()
    }

    /// The last element before `before` that says what `message` says.
    pub(crate) fn find(&self, message: &Message, before: u64) -> Option<u64> {
        let same = self.same.get(&Key::of(&message.to_json()))?;
        let behind = same.partition_point(|element| *element < before);
        same.get(behind.checked_sub(1)?).copied()
    }

    /// The call at a place of the transcript, if there is one.
    pub(crate) fn call(&self, element: u64, tool_index: u32) -> Option<CallRef> {
        let Some(Slot::Message(message_no)) = self.slot(element) else { return None };
        let call = CallRef { message_no, tool_index: ToolIndex(tool_index) };
        self.calls.contains_key(&call).then_some(call)
    }

    /// Whether a call has its result.
    pub(crate) fn has_result(&self, call: CallRef) -> bool {
        self.calls.get(&call) == Some(&Answer::Given)
    }

    /// Whether the first message is an instruction.
    pub(crate) fn begins_with_instruction(&self) -> bool {
        self.begins_with_instruction
    }

    /// The last message.
    pub(crate) fn last(&self) -> MessageNo {
        self.last
    }

    fn map_message(&mut self, element: u64, message: &Message) -> Mapped {
        self.same.entry(Key::of(&message.to_json())).or_default().push(element);
        let mut mapped = Mapped::new(role_word(message.role), self.clock.stamp(None));
        if message.role == Role::Tool
            && let Some(finished) = self.result(message)
        {
            self.slots.insert(element, Slot::Result(finished.call));
            mapped.push(self.node, finished);
            return mapped;
        }
        if self.last == MessageNo(0) {
            self.begins_with_instruction = matches!(message.role, Role::System | Role::Developer);
        }
        self.last = self.last.next().unwrap_or(self.last);
        self.slots.insert(element, Slot::Message(self.last));
        let said = message.to_event(self.last);
        let calls: Vec<String> = said.tool_calls.iter().map(|call| call.call_id.clone()).collect();
        for (index, _) in (0..).zip(&calls) {
            let call = CallRef { message_no: self.last, tool_index: ToolIndex(index) };
            self.calls.insert(call, Answer::Open);
        }
        self.turn = (!calls.is_empty()).then_some(Turn { element, message_no: self.last, calls });
        mapped.push(self.node, said);
        mapped
    }

    /// The result of a call of the turn before it: the first call of that id which has none, else the first one at all.
    /// Ids repeat, so they name nothing beyond the turn.
    fn result(&mut self, message: &Message) -> Option<CallFinished> {
        let turn = self.turn.as_ref()?;
        let message_no = turn.message_no;
        let calls = (0..)
            .zip(&turn.calls)
            .map(|(index, id)| (CallRef { message_no, tool_index: ToolIndex(index) }, id));
        let open: Vec<_> = calls.filter(|(call, _)| self.calls.get(call) == Some(&Answer::Open)).collect();
        let named = open.iter().find(|(_, id)| **id == message.tool_call_id);
        let (call, _) = *named.or(open.first())?;
        let place = (turn.element, call.tool_index.0);
        self.calls.insert(call, Answer::Given);
        let parts = message.to_parts();
        let is_unknown =
            self.unknown.contains(&place) || (self.node == NodeId::ROOT && is_unknown_result(&parts));
        let (outcome, flag) = if is_unknown {
            (Outcome::Unknown, ResultFlag::Error)
        } else {
            (Outcome::Succeeded, ResultFlag::Normal)
        };
        Some(CallFinished {
            call,
            call_id: message.tool_call_id.clone(),
            outcome,
            flag,
            parts,
            artifact: None,
            origin: ResultOrigin::Import,
            audit: None,
            source: None,
        })
    }
}

/// Whether a result is the one that q makes up, and not one that only speaks of something unknown.
fn is_unknown_result(parts: &[Part]) -> bool {
    let [Part::Text(text)] = parts else { return false };
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    value == serde_json::json!({ "status": UNKNOWN_STATUS, "detail": UNKNOWN_DETAIL })
}

impl Mapper for Transcript {
    fn map(&mut self, record: &Record<'_>) -> Result<Mapped, NotOneValue> {
        let element = record.line.saturating_sub(1);
        self.len = self.len.max(record.line);
        let place = Place::element(&self.file, "transcript", element);
        match Message::parse(record.bytes, self.version, &place) {
            Ok(message) => Ok(self.map_message(element, &message)),
            Err(error) => {
                self.turn = None;
                if self.notes.len() < NOTES_MAX {
                    self.notes.push(format!("an element was recorded and not read: {error}"));
                } else {
                    self.more = self.more.saturating_add(1);
                }
                Ok(Mapped::new("unread", self.clock.stamp(None)))
            }
        }
    }

    fn notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        if self.more > 0 {
            notes.push(format!("{} more elements were recorded and not read", self.more));
        }
        notes
    }
}
