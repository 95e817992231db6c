//! Later pieces of messages, put back into the messages they belong to.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sessionlog_codec::event::{Event, LoggedEvent, MessageExtended};
use sessionlog_codec::ids::{MessageNo, NodeId};

/// The later pieces of one conversation's messages. Note every event, then ask for every message whole: two walks over a
/// log of any size, holding no more of it than the pieces and the numbers of the messages.
#[derive(Clone, Debug)]
pub struct Pieces {
    node: NodeId,
    known: BTreeSet<MessageNo>,
    found: BTreeMap<MessageNo, Vec<MessageExtended>>,
}

impl Pieces {
    /// The pieces of one conversation, none yet.
    #[must_use]
    pub fn of(node: NodeId) -> Self {
        Self { node, known: BTreeSet::new(), found: BTreeMap::new() }
    }

    /// Keeps an event that is a piece of a message before it. A piece of a message that is not there is none.
    pub fn note(&mut self, event: &LoggedEvent) {
        if event.node != self.node {
            return;
        }
        match &event.event {
            Event::MessageAppended(message) => {
                self.known.insert(message.message_no);
            }
            Event::MessageExtended(piece) if self.known.contains(&piece.message_no) => {
                self.found.entry(piece.message_no).or_default().push(piece.clone());
            }
            _ => {}
        }
    }

    /// The event with all the pieces that were noted for it; each message is given its pieces once.
    pub fn whole<'a>(&mut self, event: &'a LoggedEvent) -> Cow<'a, LoggedEvent> {
        let Event::MessageAppended(message) = &event.event else { return Cow::Borrowed(event) };
        if event.node != self.node {
            return Cow::Borrowed(event);
        }
        let Some(pieces) = self.found.remove(&message.message_no) else { return Cow::Borrowed(event) };
        let mut whole = message.clone();
        for piece in pieces {
            whole.parts.extend(piece.parts);
            whole.tool_calls.extend(piece.tool_calls);
            whole.usage = piece.usage.or(whole.usage);
            whole.stop_reason = piece.stop_reason.or(whole.stop_reason);
        }
        Cow::Owned(LoggedEvent { event: whole.into(), ..event.clone() })
    }
}
