//! How deep, how often and how far agents may delegate.

use sessionlog_codec::event::NodeOpened;
use sessionlog_codec::ids::NodeId;

use super::Delegations;

/// The bounds of delegation within one session tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegationLimits {
    /// How deep below the root a child may be.
    pub depth_max: u32,
    /// How many children the whole tree may get in one run of the root. A restart does not reset the count, a clear
    /// does.
    pub calls_per_run_max: u32,
    /// How many bytes a request may have.
    pub prompt_len_max: usize,
    /// How often the model may answer within one child.
    pub rounds_max: u32,
    /// Whether an agent may be asked by itself, at any distance.
    pub nesting: Nesting,
}

/// Whether an agent may delegate to its own kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nesting {
    /// It may: depth alone bounds it.
    #[default]
    Allowed,
    /// No agent is twice on the chain of parents.
    OnceOnChain,
}

impl Default for DelegationLimits {
    fn default() -> Self {
        Self {
            depth_max: 4,
            calls_per_run_max: 32,
            prompt_len_max: 32 * 1024,
            rounds_max: 320,
            nesting: Nesting::Allowed,
        }
    }
}

/// Why a delegation is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DelegationRefused {
    /// The call became a child before.
    #[error("node {parent}: the call is delegated already, to node {child}")]
    AlreadyDelegated {
        /// The conversation that delegates.
        parent: NodeId,
        /// The child that the call became.
        child: NodeId,
    },
    /// The conversation that delegates is not there, or has ended.
    #[error("node {parent} can't delegate: it was never opened, has settled or is deleted")]
    ParentGone {
        /// The conversation that delegates.
        parent: NodeId,
    },
    /// The bookmark says another depth than its parent's plus one.
    #[error("node {child}: depth {found} where {expected} is expected")]
    Depth {
        /// The child.
        child: NodeId,
        /// The parent's depth plus one.
        expected: u32,
        /// The depth given.
        found: u32,
    },
    /// The child would be too deep.
    #[error("node {child} would be {depth} deep; {max} is allowed")]
    TooDeep {
        /// The child.
        child: NodeId,
        /// Its depth.
        depth: u32,
        /// The bound.
        max: u32,
    },
    /// The run has used up its delegations.
    #[error("this run has delegated {used} times; {max} is allowed")]
    TooManyCalls {
        /// Children opened in this run.
        used: u32,
        /// The bound.
        max: u32,
    },
    /// The request is too long.
    #[error("the request has {len} bytes; {max} are allowed")]
    PromptTooLong {
        /// Bytes of the request.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// There is no request, or nobody to make it to.
    #[error("a delegation needs an agent and a request")]
    Empty,
    /// The agent would, at some distance, ask itself.
    #[error("agent {agent:?} is on the chain of parents already")]
    Nested {
        /// The agent.
        agent: String,
    },
    /// The model has answered too often.
    #[error("node {node}: the model has answered {used} times; {max} is allowed")]
    TooManyRounds {
        /// The conversation.
        node: NodeId,
        /// Answers so far.
        used: u32,
        /// The bound.
        max: u32,
    },
}

impl Delegations {
    /// Whether a child may be opened now. Its call may not have one yet: after a crash ask
    /// [`child_of`](Self::child_of) first.
    ///
    /// # Errors
    /// The first bound or law that it would break.
    pub fn check_open(
        &self,
        opened: &NodeOpened,
        limits: &DelegationLimits,
    ) -> Result<(), DelegationRefused> {
        let parent = opened.parent;
        if let Some(child) = opened.call.and_then(|call| self.child_of(parent, call)) {
            return Err(DelegationRefused::AlreadyDelegated { parent, child });
        }
        if !self.can_delegate(parent) {
            return Err(DelegationRefused::ParentGone { parent });
        }
        let (child, found) = (opened.child, opened.depth);
        let expected = self.depth(parent).saturating_add(1);
        if found != expected {
            return Err(DelegationRefused::Depth { child, expected, found });
        }
        if found > limits.depth_max {
            return Err(DelegationRefused::TooDeep { child, depth: found, max: limits.depth_max });
        }
        let (used, max) = (self.opened_in_run, limits.calls_per_run_max);
        if used >= max {
            return Err(DelegationRefused::TooManyCalls { used, max });
        }
        let (len, max) = (opened.prompt.len(), limits.prompt_len_max);
        if len > max {
            return Err(DelegationRefused::PromptTooLong { len, max });
        }
        if opened.agent.is_empty() || opened.prompt.is_empty() {
            return Err(DelegationRefused::Empty);
        }
        if limits.nesting == Nesting::OnceOnChain && self.is_on_chain(parent, &opened.agent) {
            return Err(DelegationRefused::Nested { agent: opened.agent.clone() });
        }
        Ok(())
    }

    /// Whether the model of a child may be asked once more.
    ///
    /// # Errors
    /// [`DelegationRefused::TooManyRounds`].
    pub fn check_round(&self, node: NodeId, limits: &DelegationLimits) -> Result<(), DelegationRefused> {
        let (used, max) = (self.rounds(node), limits.rounds_max);
        if used >= max { Err(DelegationRefused::TooManyRounds { node, used, max }) } else { Ok(()) }
    }

    fn can_delegate(&self, parent: NodeId) -> bool {
        self.is_present(parent) && self.settled(parent).is_none()
    }

    fn is_on_chain(&self, parent: NodeId, agent: &str) -> bool {
        let chain = std::iter::once(parent).chain(self.ancestors(parent));
        chain.filter_map(|node| self.opened(node)).any(|opened| opened.agent == agent)
    }
}
