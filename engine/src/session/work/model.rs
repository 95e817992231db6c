//! A model that is to be asked for a conversation's next message.

use std::sync::OnceLock;

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{NewEvent, ReplayAttached, Role, UsageRecorded};
use sessionlog_codec::ids::{NodeId, Position};
use sessionlog_projections::ContextMessage;
use sessionlog_projections::compaction::estimate_tokens;
use sessionlog_projections::recovery::Owed;
use sessionlog_projections::render::{Rendering, Target, render};

use super::Token;
use crate::error::{Error, ErrorKind, Result};
use crate::session::state::Wanted;
use crate::session::{Appended, Message};

/// The right to append a conversation's next answer.
#[derive(Debug)]
#[must_use = "what is dropped unused is offered again"]
pub struct ModelTurn<'a> {
    token: Token<'a>,
    /// What the context was estimated at when the host looked at it, in tokens.
    estimate: OnceLock<u64>,
}

/// A model's answer, with what its provider said beside it.
#[derive(Clone, Debug)]
pub struct Answer {
    message: Message,
    replay: Option<(String, String, Vec<RawBytes>)>,
    request: Option<UsageRecorded>,
}

impl From<Message> for Answer {
    fn from(message: Message) -> Self {
        Self { message, replay: None, request: None }
    }
}

impl Answer {
    /// The provider's own items of the response, to be sent back byte for byte as long as `model` and `api_mode` stay.
    #[must_use]
    pub fn replay(
        mut self,
        model: impl Into<String>,
        api_mode: impl Into<String>,
        items: Vec<RawBytes>,
    ) -> Self {
        self.replay = Some((model.into(), api_mode.into(), items));
        self
    }

    /// What is known of the request beside the tokens that the message carries: price, latency, the model's window. Its
    /// message's number and the estimate of the prompt are filled in, so that the next estimate is better.
    #[must_use]
    pub fn request(mut self, request: UsageRecorded) -> Self {
        self.request = Some(request);
        self
    }
}

impl<'a> ModelTurn<'a> {
    pub(super) fn new(token: Token<'a>) -> Self {
        Self { token, estimate: OnceLock::new() }
    }

    /// The conversation.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.token.node
    }

    /// What the model is shown: legal for every provider's rules of pairing.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log can't be read.
    pub fn context(&self) -> Result<Vec<ContextMessage>> {
        let context = self.token.session.context_of(self.token.node)?;
        self.estimate.get_or_init(|| estimate_tokens(&context));
        Ok(context)
    }

    /// The body of the request, for one provider's API and model.
    ///
    /// # Errors
    /// As [`context`](Self::context).
    pub fn render(&self, target: &Target) -> Result<Rendering> {
        let node = self.token.node;
        self.token.session.with_content(Wanted::Context(node), |content| {
            let context = content.tree.context(node);
            self.estimate.get_or_init(|| estimate_tokens(&context));
            render(&context, content.replay.node(node), target)
        })
    }

    /// Appends the answer, with the provider's items and figures: one frame.
    ///
    /// # Errors
    /// `Invalid` if it is not an assistant message, or would break a law; `Conflict` if the conversation was cleared,
    /// rewound, answered or ended since; else as [`append`](crate::Session::append). Nothing of it is in the log then.
    pub fn answer(self, answer: impl Into<Answer>) -> Result<Appended> {
        let Answer { message: Message { mut body, key }, replay, request } = answer.into();
        let (session, node) = (self.token.session, self.token.node);
        if body.role != Role::Assistant {
            return Err(Error::invalid("work.answer", "an answer is an assistant message"));
        }
        let _kept = session.keep_named([&body])?;
        let mut state = session.state()?;
        self.token.check(&state)?;
        if state.folds.recovery.owed(node) != Owed::Model {
            let message = format!("node {node} has got its answer from elsewhere since this was offered");
            return Err(Error::new(ErrorKind::Conflict, "work.outdated", message));
        }
        let message_no = state.ledger().next_message_no(node);
        body.message_no = message_no;
        let mut events: Vec<NewEvent> = self.token.going_on(&state).into_iter().collect();
        let before = u64::try_from(events.len()).unwrap_or_default();
        events.push(NewEvent { key, ..NewEvent::now(node, body) });
        if let Some((model, api_mode, items)) = replay {
            events.push(NewEvent::now(node, ReplayAttached { message_no, model, api_mode, items }));
        }
        if let Some(mut request) = request {
            request.message_no = Some(message_no);
            request.estimated_input = request.estimated_input.or(self.estimate.get().copied());
            events.push(NewEvent::now(node, request));
        }
        let receipt =
            session.commit(&mut state, events, session.store.options.durability)?.wait(session, state)?;
        let position = Position(receipt.first.0.saturating_add(before));
        Ok(Appended { message_no, position, receipt })
    }
}
