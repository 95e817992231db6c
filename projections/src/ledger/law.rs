//! What an append can be refused for.

use sessionlog_codec::event::{Effect, MessageRange, Outcome, Role};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, Position, TurnNo};

use crate::words::{effect_word, outcome_word, role_word};

/// The law that an append would break. Each names the conversation, the message or call, what is expected and what
/// was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LawBroken {
    /// Something comes before `session.created`.
    #[error("the log has no session.created yet: it must come before {found}")]
    NotCreated {
        /// The event's name.
        found: &'static str,
    },
    /// `session.created` comes a second time.
    #[error("the session is created already: session.created is the first record of a log and its only one")]
    CreatedTwice,
    /// A record whose payload was erased is no event to append.
    #[error("an erased {found} can't be appended: it has no payload")]
    Erased {
        /// The event's name.
        found: &'static str,
    },
    /// The conversation was never opened.
    #[error("node {node} was never opened, so {found} can't be appended to it")]
    UnknownNode {
        /// The conversation.
        node: NodeId,
        /// The event's name.
        found: &'static str,
    },
    /// A message does not carry the next number.
    #[error("node {node}: message number {found} where {expected} is the next one")]
    MessageNumber {
        /// The conversation.
        node: NodeId,
        /// The next number.
        expected: MessageNo,
        /// The number given.
        found: MessageNo,
    },
    /// A host appends a [`Role::Tool`] message: only imports have them.
    #[error(
        "node {node} message {message_no}: a tool message outside of an import; a result is appended as call.finished"
    )]
    ToolMessage {
        /// The conversation.
        node: NodeId,
        /// The message.
        message_no: MessageNo,
    },
    /// A message that is not the model's asks for calls.
    #[error("node {node} message {message_no}: tool calls on a {} message; only assistant messages have them", role_word(*.found))]
    CallsWithoutModel {
        /// The conversation.
        node: NodeId,
        /// The message.
        message_no: MessageNo,
        /// Its role.
        found: Role,
    },
    /// A call names no tool.
    #[error("node {node} {call}: the call has no tool name")]
    EmptyCallName {
        /// The conversation.
        node: NodeId,
        /// The call.
        call: CallRef,
    },
    /// Two calls of one message have the same id.
    #[error("node {node} {call}: call id {call_id:?} is already that of another call of this message")]
    RepeatedCallId {
        /// The conversation.
        node: NodeId,
        /// The second of the two.
        call: CallRef,
        /// Their id.
        call_id: String,
    },
    /// An event speaks of a message that is not there.
    #[error("node {node}: {found} for message {message_no}, which does not exist (the last one is {last})")]
    UnknownMessage {
        /// The conversation.
        node: NodeId,
        /// The message.
        message_no: MessageNo,
        /// The last message; 0 for none.
        last: MessageNo,
        /// The event's name.
        found: &'static str,
    },
    /// `message.extended` for a message that is not the model's.
    #[error("node {node} message {message_no}: only assistant messages are extended, and it is not one")]
    NotAssistant {
        /// The conversation.
        node: NodeId,
        /// The message.
        message_no: MessageNo,
    },
    /// An event speaks of a call that is not there.
    #[error("node {node}: {found} for {call}, which does not exist")]
    UnknownCall {
        /// The conversation.
        node: NodeId,
        /// The call.
        call: CallRef,
        /// The event's name.
        found: &'static str,
    },
    /// A call is started with another attempt than the next one.
    #[error("node {node} {call}: attempt {found} where {expected} is the next one")]
    Attempt {
        /// The conversation.
        node: NodeId,
        /// The call.
        call: CallRef,
        /// The next attempt.
        expected: u32,
        /// The attempt given.
        found: u32,
    },
    /// A call that was started, and whose effect does not bear repetition, is started again.
    #[error(
        "node {node} {call}: already started with effect {}; only pure and idempotent calls are started again",
        effect_word(*.effect)
    )]
    NotRepeatable {
        /// The conversation.
        node: NodeId,
        /// The call.
        call: CallRef,
        /// Its effect.
        effect: Effect,
    },
    /// A call that has its result is started or finished.
    #[error("node {node} {call}: {found}, but its result is at position {position} ({})", outcome_word(*.outcome))]
    AlreadyFinished {
        /// The conversation.
        node: NodeId,
        /// The call.
        call: CallRef,
        /// What became of it.
        outcome: Outcome,
        /// Where its result is.
        position: Position,
        /// The event's name.
        found: &'static str,
    },
    /// `call.resolved` for a call whose outcome is not unknown.
    #[error("node {node} {call}: only an unknown outcome can be resolved, and it is {found}")]
    NotUnknown {
        /// The conversation.
        node: NodeId,
        /// The call.
        call: CallRef,
        /// Its state, in words.
        found: &'static str,
    },
    /// A turn is started while another one is open.
    #[error("node {node}: turn {found} is started while turn {open} is open")]
    TurnOpen {
        /// The conversation.
        node: NodeId,
        /// The open turn.
        open: TurnNo,
        /// The turn given.
        found: TurnNo,
    },
    /// A turn has another number than the next one, or than the open one.
    #[error("node {node}: turn {found} where {expected} is expected")]
    TurnNumber {
        /// The conversation.
        node: NodeId,
        /// The number expected.
        expected: TurnNo,
        /// The number given.
        found: TurnNo,
    },
    /// A turn is ended, and none is open.
    #[error("node {node}: turn {found} is ended, but no turn is open")]
    NoTurn {
        /// The conversation.
        node: NodeId,
        /// The turn given.
        found: TurnNo,
    },
    /// The head is moved to a record that the model was never shown.
    #[error(
        "node {node}: the head can't move to position {to}: no message, compaction or reset of it is there"
    )]
    UnknownHead {
        /// The conversation.
        node: NodeId,
        /// Where to.
        to: Position,
    },
    /// The ranges of a compaction are not ascending, overlap or name messages that are not there.
    #[error(
        "node {node}: the {list} messages {}-{} of a compaction are not ascending within 1-{last}, each once",
        .range.first, .range.last
    )]
    Ranges {
        /// The conversation.
        node: NodeId,
        /// `kept` or `replaced`.
        list: &'static str,
        /// The range at fault.
        range: MessageRange,
        /// The last message; 0 for none.
        last: MessageNo,
    },
    /// A child does not carry the next number.
    #[error("child number {found} where {expected} is the next one")]
    ChildNumber {
        /// The next number.
        expected: NodeId,
        /// The number given.
        found: NodeId,
    },
    /// A child's parent was never opened.
    #[error("node {child}: its parent {parent} was never opened")]
    UnknownParent {
        /// The child.
        child: NodeId,
        /// The parent given.
        parent: NodeId,
    },
    /// A conversation that has settled, or the root, is settled.
    #[error("node {node} can't settle: it is the root, or it has settled already")]
    CantSettle {
        /// The conversation.
        node: NodeId,
    },
}

/// Which event of a batch would break a law, and which law.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {index} of the batch: {law}")]
pub struct BatchLawBroken {
    /// The event, from 0.
    pub index: usize,
    /// The law.
    pub law: LawBroken,
}
