//! The receipts that events hold.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use sessionlog_codec::event::{ArtifactReceipt, Event};
use sessionlog_codec::ids::{Digest, NodeId, Position};
use sessionlog_codec::record::Payload;
use sessionlog_codec::registry::kind;
use sessionlog_projections::artifact::receipts;

use super::blobs::Blobs;
use super::mark::Finder;
use crate::clock::{Clock, SystemClock};
use crate::error::{ErrorKind, Result};
use crate::log::{LogDir, LogReader, ReadItem};
use crate::session::{EventItem, SessionReader};
use crate::store::{Home, SessionPlace, SharedLog};

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

/// The artifacts of a workspace that a session, or what is left of it, names in any way, and those that it put.
///
/// # Errors
/// `Io` if a log or a directory can't be read; as a read of the workspace's log. Of a session that is hurt, what can be read
/// counts.
pub(crate) fn artifacts_of(home: &Home, place: &SessionPlace) -> Result<BTreeSet<Digest>> {
    let there: BTreeSet<Digest> = Blobs::new(home, &place.workspace).list()?.blobs.into_keys().collect();
    let mut named = BTreeSet::new();
    if there.is_empty() {
        return Ok(named);
    }
    let finder = Finder::of(&there);
    let archive = LogDir::below(&home.storage, &home.archive_dir(place));
    for log in [place.log_dir(&home.storage), archive] {
        let read = LogReader::new(log).read(Position(1), &mut |item| {
            if let ReadItem::Record(record) = item
                && let Payload::Present(bytes) = record.payload
            {
                finder.find(bytes, &mut |digest| {
                    named.insert(digest);
                });
            }
            ControlFlow::Continue(())
        });
        match read {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let log = SharedLog::of_workspace(home, &clock, &place.workspace);
    log.read(Position(1), &[kind::ArtifactPut], &mut |event| {
        if let Event::ArtifactPut(put) = event.event
            && put.session_id == Some(place.id)
            && there.contains(&put.digest)
        {
            named.insert(put.digest);
        }
    })?;
    Ok(named)
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
