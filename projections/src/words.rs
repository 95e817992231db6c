//! The words in which values appear in errors, views and JSON: one spelling each, kept apart from the Rust names.

use sessionlog_codec::event::{Effect, Event, NodeStatus, Outcome, Role};
use sessionlog_codec::registry::kind;

/// A role in lower case, as every view and provider spells it.
#[must_use]
pub fn role_word(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

/// An outcome in lower case.
#[must_use]
pub fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "cancelled",
        Outcome::Unknown => "unknown",
        Outcome::NotStarted => "not_started",
    }
}

/// An effect in lower case.
#[must_use]
pub fn effect_word(effect: Effect) -> &'static str {
    match effect {
        Effect::Pure => "pure",
        Effect::Idempotent => "idempotent",
        Effect::Mutating => "mutating",
        Effect::External => "external",
    }
}

/// What became of a child, in lower case.
#[must_use]
pub fn node_status_word(status: NodeStatus) -> &'static str {
    match status {
        NodeStatus::Completed => "completed",
        NodeStatus::Blocked => "blocked",
        NodeStatus::Unknown => "unknown",
        NodeStatus::Failed => "failed",
        NodeStatus::Cancelled => "cancelled",
    }
}

/// Whether running a call again is harmless, as its host declared it.
#[must_use]
pub fn is_repeatable(effect: Effect) -> bool {
    matches!(effect, Effect::Pure | Effect::Idempotent)
}

/// A record whose content this version can't see: erased on purpose, or written by a newer version. It still takes
/// its place: a message takes a number, a result takes a line of the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sealed {
    /// A `message.appended`.
    Message,
    /// A `call.finished`.
    Result,
}

/// What a record without readable content takes the place of; `None` for readable ones and for all other kinds.
pub(crate) fn sealed(event: &Event) -> Option<Sealed> {
    let (Event::Erased { .. } | Event::Unknown(_)) = event else { return None };
    match event.kind().0 {
        kind::MessageAppended => Some(Sealed::Message),
        kind::CallFinished => Some(Sealed::Result),
        _ => None,
    }
}
