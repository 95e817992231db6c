//! What a compaction must not replace.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{Event, LoggedEvent};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId};

use crate::Projection;
use crate::ledger::Ledger;

/// What of one conversation must stay verbatim, whatever its age and size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// Messages that the host pins.
    pub messages: BTreeSet<MessageNo>,
    /// Tools whose calls stay, by name (q: `ask_to_user`, since its answer is the person's word).
    pub tools: BTreeSet<String>,
    /// Calls without a result.
    pub open: BTreeSet<CallRef>,
    /// Calls that opened a child which has not settled, also those that have their result already.
    pub children: BTreeSet<CallRef>,
}

impl Pinned {
    /// What the log itself pins in the conversation `node`: open calls and the calls of running children. The host adds
    /// messages and tools.
    #[must_use]
    pub fn of(node: NodeId, ledger: &Ledger, children: &RunningChildren) -> Self {
        let open = ledger.open_calls().into_iter().filter(|open| open.node == node);
        Self {
            open: open.map(|open| open.call).collect(),
            children: children.calls_of(node),
            ..Self::default()
        }
    }
}

/// The children that have not settled, by who waits for them. Derives from `node.opened`, `node.settled` and
/// `node.deleted`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningChildren {
    /// Each child with its parent and the parent's call, if that is known.
    children: BTreeMap<NodeId, (NodeId, Option<CallRef>)>,
}

impl RunningChildren {
    /// The calls of `node` that opened a child which has not settled.
    #[must_use]
    pub fn calls_of(&self, node: NodeId) -> BTreeSet<CallRef> {
        let children = self.children.values().filter(|(parent, _)| *parent == node);
        children.filter_map(|(_, call)| *call).collect()
    }
}

impl Projection for RunningChildren {
    fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            Event::NodeOpened(opened) => {
                self.children.entry(opened.child).or_insert((opened.parent, opened.call));
            }
            Event::NodeSettled(_) => {
                self.children.remove(&logged.node);
            }
            Event::NodeDeleted(deleted) => {
                self.children.remove(&deleted.child);
                for descendant in &deleted.descendants {
                    self.children.remove(descendant);
                }
            }
            _ => {}
        }
    }
}
