//! A call that is owed: run it, delegate it, or answer it without running it.

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{AgentKind, Effect, NewEvent, NodeOpened};
use sessionlog_codec::ids::{CallRef, InvocationId, NodeId};
use sessionlog_projections::delegation::DelegationRefused;
use sessionlog_projections::{OpenCall, OpenState, arguments_hash};

use super::Token;
use crate::error::{Error, ErrorKind, Result};
use crate::log::Receipt;
use crate::session::calls::started;
use crate::session::capture::Destination;
use crate::session::{CallResult, RunningCall};

/// A call that the model asked for, and that certainly did nothing yet, or only reads.
#[derive(Debug)]
#[must_use = "what is dropped unused is offered again"]
pub struct OwedCall<'a> {
    token: Token<'a>,
    open: OpenCall,
    arguments: RawBytes,
}

/// What a child is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegation {
    /// The agent that is asked.
    pub agent: String,
    /// Whether we run it or somebody else does.
    pub kind: AgentKind,
    /// The exact request.
    pub prompt: String,
    /// A short description for people.
    pub description: Option<String>,
    /// Where it works.
    pub working_directory: Option<String>,
}

impl Delegation {
    /// A request to an agent that this host runs.
    #[must_use]
    pub fn inner(agent: impl Into<String>, prompt: impl Into<String>) -> Self {
        let (agent, prompt, kind) = (agent.into(), prompt.into(), AgentKind::Inner);
        Self { agent, kind, prompt, description: None, working_directory: None }
    }

    /// A request to an agent that keeps its conversation itself (over ACP, say).
    #[must_use]
    pub fn external(agent: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self { kind: AgentKind::External, ..Self::inner(agent, prompt) }
    }
}

/// Whether a call became a child.
#[derive(Debug)]
#[must_use = "a refused call is still to be answered"]
pub enum Delegated<'a> {
    /// It did. [`Session::work`](crate::Session::work) offers its beginning.
    Child(NodeId),
    /// A bound forbids it. Nothing was recorded; the call is to be answered.
    Refused(Box<OwedCall<'a>>, DelegationRefused),
}

impl<'a> OwedCall<'a> {
    pub(super) fn new(token: Token<'a>, open: OpenCall, arguments: RawBytes) -> Self {
        Self { token, open, arguments }
    }

    /// The conversation.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.token.node
    }

    /// The call.
    #[must_use]
    pub fn call(&self) -> CallRef {
        self.open.call
    }

    /// Its provider id.
    #[must_use]
    pub fn call_id(&self) -> &str {
        &self.open.call_id
    }

    /// The tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.open.name
    }

    /// The arguments, byte for byte.
    #[must_use]
    pub fn arguments(&self) -> &[u8] {
        &self.arguments.0
    }

    /// The hash of the arguments that an audit keeps: the same for every order of keys.
    #[must_use]
    pub fn arguments_hash(&self) -> String {
        arguments_hash(&self.arguments.0)
    }

    /// How often it was started before: only a call that was declared pure is offered again.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        match self.open.state {
            OpenState::NotStarted => 0,
            OpenState::Started { attempt, .. } => attempt,
        }
    }

    /// Records that it is about to run. Only then may the tool touch the world.
    ///
    /// Durable when it returns, in every durability but `Buffered`: the start, and everything before it.
    ///
    /// # Errors
    /// `Conflict` if it is not owed any more: answered, started elsewhere, or left by a rewind or a clear; else as
    /// [`append`](crate::Session::append).
    pub fn start(self, effect: Effect) -> Result<RunningCall<'a>> {
        let Self { token, open, .. } = self;
        let session = token.session;
        let mut state = session.state()?;
        token.check(&state)?;
        let now = token.open_call(&state, open.call)?;
        if now.state != open.state {
            let message = format!("{} of node {} was started since this was offered", open.call, token.node);
            return Err(Error::new(ErrorKind::Conflict, "work.outdated", message));
        }
        let mut events: Vec<NewEvent> = token.going_on(&state).into_iter().collect();
        events.push(NewEvent::now(token.node, started(now, effect)));
        session.commit(&mut state, events, session.at_a_boundary())?.wait(session, state)?;
        Ok(session.running(&open, token.claim))
    }

    /// Makes a conversation of its own of the call: the bookmark, durable before the child does anything. The store's
    /// [delegation limits](crate::StoreOptions::delegation) hold.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn delegate(self, delegation: Delegation) -> Result<Delegated<'a>> {
        let session = self.token.session;
        let mut state = session.state()?;
        self.token.check(&state)?;
        let open = self.token.open_call(&state, self.open.call)?;
        let delegations = state.folds.recovery.delegations();
        let parent = self.token.node;
        let opened = NodeOpened {
            child: state.ledger().next_node(),
            invocation_id: InvocationId::from(uuid::Uuid::now_v7()),
            parent,
            call: Some(open.call),
            call_id: Some(open.call_id),
            agent: delegation.agent,
            kind: delegation.kind,
            prompt: delegation.prompt,
            description: delegation.description,
            working_directory: delegation.working_directory,
            run_id: state.folds.run_id.clone(),
            depth: delegations.depth(parent).saturating_add(1),
            source_id: None,
        };
        if let Err(refused) = delegations.check_open(&opened, &session.store.options.delegation) {
            drop(state);
            return Ok(Delegated::Refused(Box::new(self), refused));
        }
        if open.state != OpenState::NotStarted {
            let message = format!("{} of node {parent} was started, so it can't be delegated", open.call);
            return Err(Error::invalid("delegation.started", message));
        }
        let child = opened.child;
        let mut events: Vec<NewEvent> = self.token.going_on(&state).into_iter().collect();
        events.push(NewEvent::now(parent, opened));
        session.commit(&mut state, events, session.at_a_boundary())?.wait(session, state)?;
        Ok(Delegated::Child(child))
    }

    /// Answers it without running it: refused, cancelled, or known already.
    ///
    /// # Errors
    /// `Conflict` if it is not owed any more; else as [`append`](crate::Session::append).
    pub fn answer(self, mut result: CallResult) -> Result<Receipt> {
        let Self { token, open, .. } = self;
        let session = token.session;
        let (parts, artifact) = (std::mem::take(&mut result.parts), result.artifact.take());
        session.capture(parts, artifact, Destination::Call).record(|recorded| {
            let mut state = session.state()?;
            token.check(&state)?;
            let open = token.open_call(&state, open.call)?;
            let mut events: Vec<NewEvent> = token.going_on(&state).into_iter().collect();
            events.push(NewEvent::now(token.node, result.event(open.call, open.call_id, recorded)));
            session.commit(&mut state, events, session.store.options.durability)?.wait(session, state)
        })
    }
}
