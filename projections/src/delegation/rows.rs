//! The tree of delegations as people see it, and what of it may be deleted.

use std::collections::{BTreeMap, BTreeSet};

use sessionlog_codec::event::{AgentKind, NodeStatus};
use sessionlog_codec::ids::{CallRef, InvocationId, NodeId};

use super::Delegations;
use crate::ledger::Ledger;
use crate::words::node_status_word;

/// Where a child stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It is bookmarked, and its agent was not asked yet.
    Opened,
    /// Its agent works on it, or did when the host died.
    Running,
    /// It ended.
    Settled(NodeStatus),
    /// It ended, and its end can't be read any more, or not by this version.
    Unreadable,
}

impl Standing {
    /// The standing in lower case.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Running => "running",
            Self::Settled(status) => node_status_word(status),
            Self::Unreadable => "unreadable",
        }
    }
}

/// One child of a session tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegationRow {
    /// The child.
    pub node: NodeId,
    /// The conversation that delegated.
    pub parent: NodeId,
    /// The call that it answers.
    pub call: Option<CallRef>,
    /// How deep it is below the root: the root's children are at 1.
    pub depth: u32,
    /// Where it stands.
    pub standing: Standing,
    /// The agent asked for.
    pub agent: String,
    /// Whose conversation it is.
    pub kind: AgentKind,
    /// What it is called outside of this log.
    pub invocation_id: InvocationId,
    /// A short description for people.
    pub description: Option<String>,
    /// How often its model has answered.
    pub rounds: u32,
    /// Calls of it whose outcome is unknown.
    pub unknown_calls: usize,
}

/// Why a child can't be deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotDeletable {
    /// The root goes with its session only.
    #[error("the session's own conversation can only be deleted with its session")]
    Root,
    /// There is no such child, or it is deleted.
    #[error("node {node} was never opened, or is deleted")]
    NotThere {
        /// The node.
        node: NodeId,
    },
    /// It has not completed.
    #[error("node {node} is {}: only a completed child can be deleted", .standing.word())]
    NotCompleted {
        /// The child.
        node: NodeId,
        /// Where it stands.
        standing: Standing,
    },
    /// The parent's call does not have its result yet.
    #[error("the result of node {node} is not with its parent's call yet")]
    Undelivered {
        /// The child.
        node: NodeId,
    },
    /// A conversation below it has not ended.
    #[error("node {node} below it is {}", .standing.word())]
    ActiveBelow {
        /// The descendant.
        node: NodeId,
        /// Where it stands.
        standing: Standing,
    },
}

impl Delegations {
    /// Every child that is not deleted, each behind its parent, siblings in the order in which they were opened. A
    /// child whose parent is not there comes at the end, so that none is out of reach.
    #[must_use]
    pub fn tree(&self) -> Vec<DelegationRow> {
        let mut children: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        for node in self.present() {
            if let Some(opened) = self.opened(node) {
                children.entry(opened.parent).or_default().push(node);
            }
        }
        let mut rows = Vec::new();
        let mut shown = BTreeSet::from([NodeId::ROOT]);
        for top in self.present() {
            // Behind the root's own tree, only what no walk has reached yet starts one.
            let mut waiting = if top == NodeId::ROOT { Vec::new() } else { vec![top] };
            if top == NodeId::ROOT {
                waiting.extend(children.get(&top).into_iter().flatten().rev());
            }
            while let Some(node) = waiting.pop() {
                if shown.insert(node) {
                    rows.extend(self.row(node));
                    waiting.extend(children.get(&node).into_iter().flatten().rev());
                }
            }
        }
        rows
    }

    /// Where a child stands; `None` for the root and for a child without bookmark.
    #[must_use]
    pub fn standing(&self, node: NodeId) -> Option<Standing> {
        let facts = self.nodes.get(&node).filter(|facts| facts.bookmark.is_some())?;
        Some(match &facts.settled {
            Some(settled) => settled.status.map_or(Standing::Unreadable, Standing::Settled),
            None if self.has_begun(node) => Standing::Running,
            None => Standing::Opened,
        })
    }

    /// Whether a child may be deleted, and the descendants that go with it. The parent keeps the call and its result.
    ///
    /// # Errors
    /// Why it may not: only a completed child whose result is delivered, with nothing active below it.
    pub fn can_delete(&self, node: NodeId, ledger: &Ledger) -> Result<Vec<NodeId>, NotDeletable> {
        if node == NodeId::ROOT {
            return Err(NotDeletable::Root);
        }
        let standing = self.standing(node).filter(|_| !self.is_deleted(node));
        match standing.ok_or(NotDeletable::NotThere { node })? {
            Standing::Settled(NodeStatus::Completed) => {}
            standing => return Err(NotDeletable::NotCompleted { node, standing }),
        }
        if self.unanswered_call(node, ledger).is_some() {
            return Err(NotDeletable::Undelivered { node });
        }
        let descendants = self.descendants(node);
        for below in &descendants {
            if let Some(standing @ (Standing::Opened | Standing::Running)) = self.standing(*below) {
                return Err(NotDeletable::ActiveBelow { node: *below, standing });
            }
        }
        Ok(descendants)
    }

    /// All that is below a child and not deleted, in the order in which it was opened.
    fn descendants(&self, node: NodeId) -> Vec<NodeId> {
        self.present().filter(|below| self.ancestors(*below).contains(&node)).collect()
    }

    fn row(&self, node: NodeId) -> Option<DelegationRow> {
        let facts = self.nodes.get(&node)?;
        let bookmark = facts.bookmark.as_ref()?;
        let opened = &bookmark.opened;
        Some(DelegationRow {
            node,
            parent: opened.parent,
            call: opened.call,
            depth: bookmark.depth,
            standing: self.standing(node)?,
            agent: opened.agent.clone(),
            kind: opened.kind,
            invocation_id: opened.invocation_id,
            description: opened.description.clone(),
            rounds: facts.rounds,
            unknown_calls: facts.unknown.len(),
        })
    }
}
