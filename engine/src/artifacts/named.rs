//! The receipts that events hold.

use std::ops::ControlFlow;

use sessionlog_codec::event::{ArtifactReceipt, Event};
use sessionlog_codec::ids::{NodeId, Position};
use sessionlog_projections::artifact::receipts;

use crate::error::Result;
use crate::session::{EventItem, SessionReader};

/// A receipt in a session's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedArtifact {
    /// Where it stands.
    pub position: Position,
    /// The conversation it belongs to.
    pub node: NodeId,
    /// It.
    pub receipt: ArtifactReceipt,
}

/// The receipts of an event, each digest once.
pub(crate) fn receipts_of(event: &Event) -> Vec<&ArtifactReceipt> {
    let (parts, artifact): (&[_], _) = match event {
        Event::MessageAppended(it) => (&it.parts, None),
        Event::CallFinished(it) => (&it.parts, it.artifact.as_ref()),
        Event::CallResolved(it) => (&it.parts, None),
        Event::NodeSettled(it) => (&it.parts, None),
        Event::ContextCompacted(it) => (&it.summary, None),
        _ => return Vec::new(),
    };
    let mut all: Vec<&ArtifactReceipt> = artifact.into_iter().chain(receipts(parts)).collect();
    all.dedup_by_key(|receipt| receipt.digest);
    all
}

impl SessionReader {
    /// The receipts of all conversations of the session, in order. What can't be read of the log is left out.
    ///
    /// # Errors
    /// As [`events`](Self::events).
    pub fn named_artifacts(&self) -> Result<Vec<NamedArtifact>> {
        let mut named = Vec::new();
        self.events(Position(1), &mut |item| {
            if let EventItem::Event(event) = item {
                let (position, node) = (event.position, event.node);
                let all = receipts_of(&event.event).into_iter().cloned();
                named.extend(all.map(|receipt| NamedArtifact { position, node, receipt }));
            }
            ControlFlow::Continue(())
        })?;
        Ok(named)
    }
}
