//! What a context is cut into: an assistant message with all its results is one piece.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::Role;
use sessionlog_codec::ids::MessageNo;

use super::estimate::Size;
use super::pinned::Pinned;
use super::policy::{NewestRequest, OversizedTail, Policy};
use crate::context::{ContextMessage, ContextOrigin, SyntheticReason};

/// Why a message stays. The first of these that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The system or the developer says it.
    Instruction,
    /// The host pinned it.
    Pinned,
    /// One of its calls has no result.
    OpenCall,
    /// One of its calls opened a child that has not settled.
    RunningChild,
    /// It calls a tool whose exchanges are preserved.
    PreservedTool,
    /// It is the newest user message.
    NewestRequest,
    /// It is of the newest.
    Recent,
    /// It has the number of another message that stays: damage.
    SharedNumber,
}

/// A message that stays, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The message.
    pub message_no: MessageNo,
    /// Why.
    pub reason: Reason,
}

/// A message with the results of its calls.
pub(super) struct Unit<'a> {
    pub(super) messages: &'a [ContextMessage],
    pub(super) size: Size,
    pub(super) reason: Option<Reason>,
}

impl<'a> Unit<'a> {
    pub(super) fn all(context: &'a [ContextMessage]) -> Vec<Self> {
        // In a legal context results stand directly behind their message.
        let pieces = context.chunk_by(|_, next| next.role == Role::Tool);
        pieces.map(|messages| Self { messages, size: Size::of(messages), reason: None }).collect()
    }

    fn first(&self) -> Option<&'a ContextMessage> {
        self.messages.first()
    }

    /// `None`: it is the summary of an earlier compaction.
    pub(super) fn number(&self) -> Option<MessageNo> {
        self.first().and_then(|message| message.message_no)
    }

    pub(super) fn is_summary(&self) -> bool {
        self.first().is_some_and(|message| message.origin == ContextOrigin::Summary)
    }

    fn role(&self) -> Option<Role> {
        self.first().filter(|_| !self.is_summary()).map(|message| message.role)
    }

    fn immutable(&self, pinned: &Pinned) -> Option<Reason> {
        if self.is_summary() {
            return None;
        }
        let calls = || self.messages.iter().filter_map(|message| message.call);
        let mut asked = self.messages.iter().flat_map(|message| &message.tool_calls);
        if matches!(self.role(), Some(Role::System | Role::Developer)) {
            Some(Reason::Instruction)
        } else if self.number().is_some_and(|number| pinned.messages.contains(&number)) {
            Some(Reason::Pinned)
        } else if self.messages.iter().any(is_unanswered) || calls().any(|call| pinned.open.contains(&call)) {
            Some(Reason::OpenCall)
        } else if calls().any(|call| pinned.children.contains(&call)) {
            Some(Reason::RunningChild)
        } else if asked.any(|call| pinned.tools.contains(&call.name)) {
            Some(Reason::PreservedTool)
        } else {
            None
        }
    }
}

/// Whether a result is made up because there is none yet. An erased one was there.
fn is_unanswered(message: &ContextMessage) -> bool {
    match message.origin {
        ContextOrigin::Recorded | ContextOrigin::Summary => false,
        ContextOrigin::Synthetic(SyntheticReason::Erased) => false,
        ContextOrigin::Synthetic(
            SyntheticReason::OutcomeUnknown | SyntheticReason::NotRun | SyntheticReason::NoResult,
        ) => true,
    }
}

/// Says of each unit whether it stays.
pub(super) fn mark(units: &mut [Unit<'_>], pinned: &Pinned, window: u64, policy: &Policy) {
    for unit in units.iter_mut() {
        unit.reason = unit.immutable(pinned);
    }
    let budget = policy.recent.at_most(window);
    if policy.newest_request == NewestRequest::Keep
        && let Some(newest) = units.iter_mut().rfind(|unit| unit.role() == Some(Role::User))
        && newest.size.tokens() <= budget
    {
        newest.reason.get_or_insert(Reason::NewestRequest);
    }
    mark_recent(units, budget, policy.oversized_tail);
    mark_shared_numbers(units);
}

/// From the end backwards, as far as the budget reaches. What stays anyway counts, but for instructions.
fn mark_recent(units: &mut [Unit<'_>], budget: u64, oversized: OversizedTail) {
    let mut tail: Option<Size> = None;
    for unit in units.iter_mut().rev() {
        if unit.reason == Some(Reason::Instruction) || unit.is_summary() {
            continue;
        }
        let longer = tail.unwrap_or_default().plus(unit.size);
        let is_forced = tail.is_none() && oversized == OversizedTail::Keep;
        if unit.reason.is_none() {
            if longer.tokens() > budget && !is_forced {
                return;
            }
            unit.reason = Some(Reason::Recent);
        }
        tail = Some(longer);
    }
}

/// An event names messages by their numbers. Where damage gave one number to two messages, both stay or both go.
fn mark_shared_numbers(units: &mut [Unit<'_>]) {
    let kept: BTreeSet<MessageNo> =
        units.iter().filter(|unit| unit.reason.is_some()).filter_map(Unit::number).collect();
    for unit in units.iter_mut() {
        if unit.reason.is_none() && unit.number().is_some_and(|number| kept.contains(&number)) {
            unit.reason = Some(Reason::SharedNumber);
        }
    }
}
