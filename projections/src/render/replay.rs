//! The provider's own items of a response, as long as they can be sent back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{Event, LoggedEvent, ReplayAttached, Role};
use sessionlog_codec::ids::{MessageNo, NodeId, Position};

use crate::Projection;
use crate::context::ContextMessage;

/// What `replay.attached` left for each node. Derives from `replay.attached`, `message.appended` and
/// `message.extended`.
///
/// Items belong to a message, so they are good as long as their message is in the context: a compaction that does not
/// keep it, a reset, a new run, a head elsewhere and a withdrawal take them out with it, and a head that comes back
/// brings them back. Whether model and API are still the same, [`render`](super::render) decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    nodes: BTreeMap<NodeId, NodeReplay>,
}

/// The items of one conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReplay {
    messages: BTreeMap<MessageNo, Slot>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Slot {
    /// Where the message is. The first one of its number, where damage gave it to two.
    message: Option<Position>,
    attached: Option<ReplayAttached>,
}

static EMPTY: NodeReplay = NodeReplay { messages: BTreeMap::new() };

/// The items of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayItems<'a> {
    /// The message.
    pub message_no: MessageNo,
    /// The model that made them.
    pub model: &'a str,
    /// The API they belong to.
    pub api_mode: &'a str,
    /// The items, byte for byte. At least one.
    pub items: &'a [RawBytes],
}

impl Replay {
    /// The items of a conversation.
    #[must_use]
    pub fn node(&self, node: NodeId) -> &NodeReplay {
        self.nodes.get(&node).unwrap_or(&EMPTY)
    }
}

impl Projection for Replay {
    fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            Event::MessageAppended(message) => {
                let slot = self.slot(logged.node, message.message_no);
                slot.message.get_or_insert(logged.position);
            }
            // What the message says now is more than what the items say.
            Event::MessageExtended(piece) => self.slot(logged.node, piece.message_no).attached = None,
            Event::ReplayAttached(attached) => {
                let items = Some(attached.clone()).filter(|it| !it.items.is_empty());
                self.slot(logged.node, attached.message_no).attached = items;
            }
            _ => {}
        }
    }
}

impl Replay {
    fn slot(&mut self, node: NodeId, number: MessageNo) -> &mut Slot {
        self.nodes.entry(node).or_default().messages.entry(number).or_default()
    }
}

impl NodeReplay {
    /// The items of a message of the context.
    #[must_use]
    pub fn of(&self, message: &ContextMessage) -> Option<ReplayItems<'_>> {
        if message.role != Role::Assistant {
            return None;
        }
        let slot = self.messages.get(&message.message_no?)?;
        let ReplayAttached { message_no, model, api_mode, items } = slot.attached.as_ref()?;
        let is_it = slot.message == Some(message.position);
        is_it.then_some(ReplayItems { message_no: *message_no, model, api_mode, items })
    }

    /// The items of all messages of `context`, in its order.
    pub fn live<'a>(&'a self, context: &'a [ContextMessage]) -> impl Iterator<Item = ReplayItems<'a>> {
        context.iter().filter_map(|message| self.of(message))
    }
}
