//! A child that has not begun: one that we run, or one that somebody else does.

use sessionlog_codec::event::{NewEvent, NodeBound, NodeOpened, NodeSettled, NodeStatus, Part};
use sessionlog_codec::ids::NodeId;
use sessionlog_projections::delegation::Standing;
use sessionlog_projections::recovery::settlement;

use super::Token;
use crate::error::{Error, ErrorKind, Result};
use crate::log::Receipt;
use crate::session::capture::{Destination, Recorded};
use crate::session::state::State;
use crate::session::{Message, Session};

/// A child of ours that has not begun.
#[derive(Debug)]
#[must_use = "what is dropped unused is offered again"]
pub struct NewChild<'a> {
    token: Token<'a>,
    request: NodeOpened,
}

impl<'a> NewChild<'a> {
    pub(super) fn new(token: Token<'a>, request: NodeOpened) -> Self {
        Self { token, request }
    }

    /// Its conversation.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.token.node
    }

    /// The bookmark, with the exact request.
    #[must_use]
    pub fn request(&self) -> &NodeOpened {
        &self.request
    }

    /// Begins its conversation: what it runs with, the host's instructions (system messages), then the request as its
    /// first prompt. One frame, so it has begun or it has not.
    ///
    /// # Errors
    /// `Conflict` if it has begun or ended since; else as [`append`](Session::append).
    pub fn begin(self, bound: NodeBound, instructions: Vec<Message>) -> Result<Receipt> {
        let Self { token, request } = self;
        let (session, node) = (token.session, token.node);
        let _kept = session.keep_named(instructions.iter().map(|message| &message.body))?;
        let mut state = session.state()?;
        token.check(&state)?;
        check_not_begun(&state, node)?;
        let mut events = vec![NewEvent::now(node, bound)];
        let mut number = state.ledger().next_message_no(node);
        for message in instructions.into_iter().chain([Message::user(request.prompt)]) {
            let Message { mut body, key } = message;
            body.message_no = number;
            number = number.next().unwrap_or(number);
            events.push(NewEvent { key, ..NewEvent::now(node, body) });
        }
        session.commit(&mut state, events, session.store.options.durability)?.wait(session, state)
    }

    /// Ends it before it begins: refused, or its agent can't be had.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn settle(self, result: ChildResult) -> Result<Receipt> {
        settle(&self.token, result)
    }
}

/// An external agent that was not asked yet.
#[derive(Debug)]
#[must_use = "what is dropped unused is offered again"]
pub struct ExternalRequest<'a> {
    token: Token<'a>,
    request: NodeOpened,
}

impl<'a> ExternalRequest<'a> {
    pub(super) fn new(token: Token<'a>, request: NodeOpened) -> Self {
        Self { token, request }
    }

    /// Its conversation.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.token.node
    }

    /// The bookmark, with the exact request.
    #[must_use]
    pub fn request(&self) -> &NodeOpened {
        &self.request
    }

    /// Records that the agent is about to be asked. Only then may it be: from here on it is never asked a second time.
    ///
    /// Durable when it returns, in every durability but `Buffered`.
    ///
    /// # Errors
    /// `Conflict` if it was asked or ended since; else as [`append`](Session::append).
    pub fn bind(self, bound: NodeBound) -> Result<AskedAgent<'a>> {
        let Self { token, request } = self;
        let (session, node) = (token.session, token.node);
        let mut state = session.state()?;
        token.check(&state)?;
        check_not_begun(&state, node)?;
        let events = vec![NewEvent::now(node, bound)];
        session.commit(&mut state, events, session.at_a_boundary())?.wait(session, state)?;
        Ok(AskedAgent { token, request })
    }

    /// Ends it without asking.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn settle(self, result: ChildResult) -> Result<Receipt> {
        settle(&self.token, result)
    }
}

/// An external agent that may be at work. Dropped without [`settle`](Self::settle), what it did is unknown: the next
/// [`work`](Session::work) or resume says so to the parent.
#[derive(Debug)]
#[must_use = "an agent that was asked has to be settled"]
pub struct AskedAgent<'a> {
    token: Token<'a>,
    request: NodeOpened,
}

impl AskedAgent<'_> {
    /// Its conversation.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.token.node
    }

    /// The bookmark, with the exact request.
    #[must_use]
    pub fn request(&self) -> &NodeOpened {
        &self.request
    }

    /// Keeps something of what the agent says, for people: it is part of the child's transcript.
    ///
    /// # Errors
    /// As [`append`](Session::append).
    pub fn said(&self, message: Message) -> Result<crate::session::Appended> {
        self.token.session.append_to(self.token.node, message)
    }

    /// Records how it ended, and delivers the result: one frame.
    ///
    /// # Errors
    /// `Conflict` if it has ended since; else as [`append`](Session::append).
    pub fn settle(self, result: ChildResult) -> Result<Receipt> {
        settle(&self.token, result)
    }
}

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildResult {
    /// What became of it.
    pub status: NodeStatus,
    /// A machine's word for why, if it is not the ordinary end.
    pub reason: Option<String>,
    /// The result, which its parent's model is shown.
    pub parts: Vec<Part>,
}

impl ChildResult {
    /// It gave a result, whatever the result says.
    #[must_use]
    pub fn completed(text: impl Into<String>) -> Self {
        Self { status: NodeStatus::Completed, reason: None, parts: vec![Part::text(text)] }
    }

    /// Its runner gave up.
    #[must_use]
    pub fn failed(reason: impl Into<String>, text: impl Into<String>) -> Self {
        Self { status: NodeStatus::Failed, reason: Some(reason.into()), ..Self::completed(text) }
    }

    /// Somebody stopped it.
    #[must_use]
    pub fn cancelled(text: impl Into<String>) -> Self {
        Self { status: NodeStatus::Cancelled, ..Self::completed(text) }
    }
}

fn check_not_begun(state: &State, node: NodeId) -> Result<()> {
    match state.folds.recovery.delegations().standing(node) {
        Some(Standing::Opened) => Ok(()),
        _ => {
            let message = format!("node {node} has begun since this was offered");
            Err(Error::new(ErrorKind::Conflict, "work.outdated", message))
        }
    }
}

/// A child's end, and its parent's result if the parent waits for one: one frame.
pub(super) fn settle(token: &Token<'_>, result: ChildResult) -> Result<Receipt> {
    let (session, child): (&Session, _) = (token.session, token.node);
    let ChildResult { status, reason, parts } = result;
    session.capture(parts, None, Destination::Parts).record(|Recorded { parts, .. }| {
        let mut state = session.state()?;
        let settled = NodeSettled { status, reason: reason.clone(), parts };
        let events = settlement(&state.folds.recovery, child, settled);
        if events.is_empty() {
            let message = format!("node {child} has ended already, or was deleted");
            return Err(Error::new(ErrorKind::Conflict, "work.outdated", message));
        }
        session.commit(&mut state, events, session.store.options.durability)?.wait(session, state)
    })
}
