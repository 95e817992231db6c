//! A conversation as q's transcript has it: the messages of the current run, each with its results directly behind it, in
//! call order.

use std::collections::BTreeMap;

use sessionlog_codec::event::{Audience, MessageAppended, Outcome, Part, Role};
use sessionlog_codec::ids::{CallRef, NodeId, ToolIndex};

use super::message::Message;
use super::notes::{Key, NodeNotes};
use crate::context::{ContextMessage, ContextOrigin, SyntheticReason};
use crate::transcript::{EntryBody, Mark, TranscriptEntry};
use crate::tree::TreeState;

/// Whether instructions are part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instructions {
    /// Of a delegate: it is resumed with what it was told.
    Kept,
    /// Of a root: q makes them anew from its configuration.
    LeftOut,
}

impl Instructions {
    pub(super) fn of(node: NodeId) -> Self {
        if node == NodeId::ROOT { Self::LeftOut } else { Self::Kept }
    }

    pub(super) fn admit(self, message: &Message) -> bool {
        self == Self::Kept || !message.is_instruction()
    }
}

/// A transcript of q's.
#[derive(Clone, Debug, Default)]
pub(super) struct Talk {
    pub(super) messages: Vec<(Key, Message)>,
    index: BTreeMap<Key, usize>,
    /// The calls of the last turn that have no result, in call order. q takes the first of them for the running one.
    pub(super) open: Vec<CallRef>,
    /// Calls that were started, whose result had to be made up.
    pub(super) in_doubt: Vec<CallRef>,
    calls: BTreeMap<CallRef, (String, String)>,
}

/// The result of a call, as it is shown now.
struct Found {
    parts: Vec<Part>,
    call_id: String,
    outcome: Outcome,
}

impl Talk {
    pub(super) fn of(tree: &TreeState, node: NodeId, notes: &NodeNotes, context: &[ContextMessage]) -> Self {
        let mut entries = tree.transcript(node);
        let is_run =
            |entry: &TranscriptEntry| matches!(entry.body, EntryBody::Run(_)) && entry.mark == Mark::Live;
        if let Some(run) = entries.iter().rposition(is_run) {
            entries.drain(..=run);
        }
        let results = results(&entries);
        let made_up = made_up(context);
        let instructions = Instructions::of(node);
        let mut said = Vec::new();
        for entry in entries {
            if let Some((message, shown)) = message(entry, notes)
                && instructions.admit(&shown)
            {
                said.push((message, shown));
            }
        }
        let last = said.len().saturating_sub(1);
        let mut talk = Self::default();
        for (index, (message, shown)) in said.into_iter().enumerate() {
            talk.push(Key::Message(message.message_no), shown);
            if message.role == Role::Assistant {
                talk.push_results(&message, index == last, &results, &made_up, notes);
            }
        }
        talk
    }

    fn push(&mut self, key: Key, message: Message) {
        self.index.entry(key).or_insert(self.messages.len());
        self.messages.push((key, message));
    }

    /// q counts the results behind a message, so one that is missing before others must be made up. Only at the very end
    /// may they be missing: those calls are still open.
    fn push_results(
        &mut self,
        message: &MessageAppended,
        is_last: bool,
        results: &BTreeMap<CallRef, Found>,
        made_up: &BTreeMap<CallRef, SyntheticReason>,
        notes: &NodeNotes,
    ) {
        let calls: Vec<_> = (0_u32..)
            .zip(&message.tool_calls)
            .map(|(index, asked)| {
                (CallRef { message_no: message.message_no, tool_index: ToolIndex(index) }, asked)
            })
            .collect();
        let answered = calls.iter().rposition(|(call, _)| results.contains_key(call));
        for (index, (call, asked)) in calls.into_iter().enumerate() {
            self.calls.insert(call, (asked.call_id.clone(), asked.name.clone()));
            let key = Key::Call(call);
            if let Some(found) = results.get(&call) {
                let id = if asked.call_id.is_empty() { &found.call_id } else { &asked.call_id };
                let told = || Message::of_result(&found.parts, &asked.name, id);
                let shown = notes.odd.get(&key).cloned().unwrap_or_else(told);
                self.push(key, shown);
            } else if is_last && answered.is_none_or(|answered| answered < index) {
                self.open.push(call);
            } else {
                let reason = made_up.get(&call).copied().unwrap_or(SyntheticReason::NoResult);
                if reason == SyntheticReason::OutcomeUnknown {
                    self.in_doubt.push(call);
                }
                let parts = [Part::text(reason.text())];
                self.push(key, Message::of_result(&parts, &asked.name, &asked.call_id));
            }
        }
    }

    /// The place of a message, from 0.
    pub(super) fn place(&self, key: Key) -> Option<usize> {
        self.index.get(&key).copied()
    }

    pub(super) fn message(&self, key: Key) -> Option<&Message> {
        self.messages.get(self.place(key)?).map(|(_, message)| message)
    }

    /// The id and the tool of a call.
    pub(super) fn call(&self, call: CallRef) -> Option<&(String, String)> {
        self.calls.get(&call)
    }

    /// How often the model has answered, counted as q counts it when it reads the file: an answer right behind the result
    /// of `task_complete` closes the task and is none.
    pub(super) fn rounds(&self) -> u32 {
        let mut rounds = 0_u32;
        let mut is_closing = false;
        for (_, message) in &self.messages {
            if message.role == Role::Assistant && !is_closing {
                rounds = rounds.saturating_add(1);
            }
            is_closing = message.role == Role::Tool && message.name == "task_complete";
        }
        rounds
    }

    /// How often a delegate was reminded: instructions behind the first two messages.
    pub(super) fn reminders(&self) -> u32 {
        let later = self.messages.iter().skip(2).filter(|(_, message)| message.is_instruction());
        u32::try_from(later.count()).unwrap_or(u32::MAX)
    }
}

/// A message that q would have, with what it is there.
fn message(entry: TranscriptEntry, notes: &NodeNotes) -> Option<(MessageAppended, Message)> {
    let EntryBody::Message(said) = entry.body else { return None };
    let is_shown = entry.mark == Mark::Live || (entry.mark == Mark::Orphan && said.role == Role::Tool);
    if !is_shown || said.audience == Audience::Person {
        return None;
    }
    let odd = notes.odd.get(&Key::Message(said.message_no)).cloned();
    let shown = odd.or_else(|| Message::of_event(&said))?;
    Some((*said, shown))
}

fn results(entries: &[TranscriptEntry]) -> BTreeMap<CallRef, Found> {
    let mut results = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.mark == Mark::Live) {
        let Some(call) = entry.call else { continue };
        match &entry.body {
            EntryBody::Result(finished, _) => {
                results.entry(call).or_insert_with(|| Found {
                    parts: finished.parts.clone(),
                    call_id: finished.call_id.clone(),
                    outcome: finished.outcome,
                });
            }
            EntryBody::Resolution(resolved) => {
                let known = results.get(&call).filter(|found| found.outcome != Outcome::Unknown);
                if known.is_none() {
                    let call_id = results.remove(&call).map(|found| found.call_id).unwrap_or_default();
                    let (parts, outcome) = (resolved.parts.clone(), resolved.outcome);
                    results.insert(call, Found { parts, call_id, outcome });
                }
            }
            EntryBody::SealedResult(_) => {
                results.entry(call).or_insert_with(|| Found {
                    parts: vec![Part::text(SyntheticReason::Erased.text())],
                    call_id: String::new(),
                    outcome: Outcome::Unknown,
                });
            }
            _ => {}
        }
    }
    results
}

/// Why the results that a context makes up are made up.
fn made_up(context: &[ContextMessage]) -> BTreeMap<CallRef, SyntheticReason> {
    let reason = |message: &ContextMessage| match (message.call, message.origin) {
        (Some(call), ContextOrigin::Synthetic(reason)) => Some((call, reason)),
        _ => None,
    };
    context.iter().filter_map(reason).collect()
}
