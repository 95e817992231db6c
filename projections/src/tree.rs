//! Everything that was said in a session tree, conversation by conversation.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{Event, LoggedEvent, MessageAppended, Role, ToolCall};
use sessionlog_codec::ids::{CallRef, NodeId, Position};

use crate::Projection;
use crate::context::ContextMessage;
use crate::conversation::Conversation;
use crate::transcript::TranscriptEntry;

/// The content of a session tree: the transcript and the model context of each of its conversations. To see them as
/// they were at an earlier position, fold the events up to it. Derives from every event of the tree log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeState {
    nodes: BTreeMap<NodeId, Conversation>,
    provenance: Provenance,
}

/// Whether the session was recorded by its host or taken over from another agent's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Provenance {
    #[default]
    Recorded,
    Imported,
}

impl TreeState {
    /// Folds `events`, in the order of their positions.
    pub fn fold<E: Borrow<LoggedEvent>>(events: impl IntoIterator<Item = E>) -> Self {
        let mut tree = Self::default();
        for event in events {
            tree.apply(event.borrow());
        }
        tree
    }

    /// The conversations of the tree that are heard of, in the order of their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.keys().copied()
    }

    /// All that a person is shown of a conversation, in log order: see [`TranscriptEntry`]. Nothing ever leaves it.
    #[must_use]
    pub fn transcript(&self, node: NodeId) -> Vec<TranscriptEntry> {
        self.nodes.get(&node).map(Conversation::transcript).unwrap_or_default()
    }

    /// At most `limit` entries of a transcript, from the first one behind position `after`: a page.
    #[must_use]
    pub fn transcript_page(&self, node: NodeId, after: Position, limit: usize) -> Vec<TranscriptEntry> {
        self.nodes.get(&node).map(|it| it.transcript_page(after, limit)).unwrap_or_default()
    }

    /// What the model is shown of a conversation: always legal to send, see [`ContextMessage`].
    #[must_use]
    pub fn context(&self, node: NodeId) -> Vec<ContextMessage> {
        self.nodes.get(&node).map(|conversation| conversation.context(self.provenance)).unwrap_or_default()
    }

    /// A call as the model asked for it, with its arguments byte for byte.
    #[must_use]
    pub fn tool_call(&self, node: NodeId, call: CallRef) -> Option<&ToolCall> {
        let message = self.nodes.get(&node)?.message(call.message_no)?;
        message.said.tool_calls.get(usize::try_from(call.tool_index.0).ok()?)
    }

    /// What the model said last on a conversation's live path.
    #[must_use]
    pub fn last_answer(&self, node: NodeId) -> Option<&MessageAppended> {
        let conversation = self.nodes.get(&node)?;
        let mut live = conversation.path.live();
        live.reverse();
        let said = live.into_iter().filter_map(|step| conversation.message_of(step));
        said.map(|message| &message.said).find(|said| said.role == Role::Assistant)
    }

    pub(crate) fn conversation(&self, node: NodeId) -> Option<&Conversation> {
        self.nodes.get(&node)
    }
}

impl Projection for TreeState {
    fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            Event::SessionCreated(created) if created.imported.is_some() => {
                self.provenance = Provenance::Imported;
            }
            Event::NodeOpened(opened) => {
                self.nodes.entry(opened.child).or_default();
            }
            _ => {}
        }
        self.nodes.entry(logged.node).or_default().apply(logged);
    }
}
