//! The rules of providers, executable: a context that passes is not refused for its tool calls.

use std::collections::BTreeSet;

use sessionlog_codec::event::Role;

use crate::context::ContextMessage;

/// Which rule a context breaks, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PairingError {
    /// A result stands where no call waits for one.
    #[error(
        "message {index} of the context is a result, but no call before it waits for one (it names {id:?})"
    )]
    StrayResult {
        /// Its index in the context.
        index: usize,
        /// The call it names.
        id: Option<String>,
    },
    /// A result answers another call than the next one.
    #[error("message {index} of the context answers call {found:?} where {expected:?} is the next one")]
    WrongCall {
        /// Its index in the context.
        index: usize,
        /// The next call without result.
        expected: String,
        /// The call it names.
        found: Option<String>,
    },
    /// A call has no result behind it.
    #[error("call {id:?} of message {index} of the context has no result directly behind it")]
    Unanswered {
        /// The index of the assistant message.
        index: usize,
        /// The call.
        id: String,
    },
    /// Two calls have one id.
    #[error("call id {id:?} of message {index} of the context was used before")]
    RepeatedId {
        /// The index of the assistant message.
        index: usize,
        /// The id.
        id: String,
    },
    /// A call has no id, or no tool.
    #[error("a call of message {index} of the context has no id or no tool name")]
    NamelessCall {
        /// The index of the assistant message.
        index: usize,
    },
    /// A message that is not the model's asks for calls.
    #[error("message {index} of the context has tool calls and is not the assistant's")]
    CallsWithoutModel {
        /// Its index in the context.
        index: usize,
    },
    /// A message says nothing and asks for nothing.
    #[error("message {index} of the context is empty")]
    Empty {
        /// Its index in the context.
        index: usize,
    },
}

/// Checks a context against the rules that providers share: results stand directly behind the assistant message whose
/// calls they answer, one for each call, in call order; call ids are unique and not empty; only assistant messages ask
/// for calls; no message is empty but a result.
///
/// # Errors
/// The first rule that is broken.
pub fn validate_pairing(context: &[ContextMessage]) -> Result<(), PairingError> {
    let mut used = BTreeSet::new();
    let mut waiting: Vec<&str> = Vec::new();
    let mut asked_at = 0;
    for (index, message) in context.iter().enumerate() {
        if message.role == Role::Tool {
            answer(index, message, &mut waiting)?;
            continue;
        }
        all_answered(asked_at, &waiting)?;
        if message.parts.is_empty() && message.tool_calls.is_empty() {
            return Err(PairingError::Empty { index });
        }
        if message.role != Role::Assistant && !message.tool_calls.is_empty() {
            return Err(PairingError::CallsWithoutModel { index });
        }
        for call in &message.tool_calls {
            if call.call_id.is_empty() || call.name.is_empty() {
                return Err(PairingError::NamelessCall { index });
            }
            if !used.insert(call.call_id.as_str()) {
                return Err(PairingError::RepeatedId { index, id: call.call_id.clone() });
            }
        }
        // Last call first, so that the next one is taken off the end.
        waiting = message.tool_calls.iter().rev().map(|call| call.call_id.as_str()).collect();
        asked_at = index;
    }
    all_answered(asked_at, &waiting)
}

fn answer(index: usize, message: &ContextMessage, waiting: &mut Vec<&str>) -> Result<(), PairingError> {
    let found = message.tool_call_id.clone();
    if !message.tool_calls.is_empty() {
        return Err(PairingError::CallsWithoutModel { index });
    }
    match waiting.pop() {
        None => Err(PairingError::StrayResult { index, id: found }),
        Some(expected) if found.as_deref() != Some(expected) => {
            Err(PairingError::WrongCall { index, expected: expected.to_owned(), found })
        }
        Some(_) => Ok(()),
    }
}

fn all_answered(index: usize, waiting: &[&str]) -> Result<(), PairingError> {
    match waiting.last() {
        Some(id) => Err(PairingError::Unanswered { index, id: (*id).to_owned() }),
        None => Ok(()),
    }
}
