//! Artifacts of a session that is forked into another workspace.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use sessionlog_codec::event::{ArtifactPut, Event};
use sessionlog_codec::ids::{Digest, Position, Timestamp};
use sessionlog_codec::record::Payload;

use super::Artifacts;
use super::blobs::{Blobs, Doubts, Held};
use super::facts::Facts;
use super::mark::Finder;
use crate::error::Result;
use crate::log::{LogReader, ReadItem};
use crate::store::{Home, SessionPlace, StoreInner, WorkspaceHash};

/// Gives the workspace `to` what the history up to `at` names in the workspace it comes from, and what that was derived from.
/// Until the fork can be read, the lock that is given back is to be held.
pub(crate) fn carry(
    store: &Arc<StoreInner>,
    (log, source): (&LogReader, &SessionPlace),
    at: Position,
    to: &SessionPlace,
) -> Result<Option<Held>> {
    if source.workspace == to.workspace {
        return Ok(None);
    }
    #[cfg(feature = "seeded-bugs")]
    if sessionlog_codec::seeded::is("fork_leaves_artifacts") {
        return Ok(None);
    }
    let from = Artifacts::new(store, &source.workspace, None);
    let there: BTreeSet<Digest> = from.blobs().list()?.blobs.into_keys().collect();
    if there.is_empty() {
        return Ok(None);
    }
    let mut named = BTreeSet::new();
    let finder = Finder::of(&there);
    log.read(Position(1), &mut |item| {
        match item {
            ReadItem::Record(record) if record.position > at => return ControlFlow::Break(()),
            ReadItem::Record(record) => {
                if let Payload::Present(bytes) = record.payload {
                    finder.find(bytes, &mut |digest| {
                        named.insert(digest);
                    });
                }
            }
            ReadItem::Gap(_) => {}
        }
        ControlFlow::Continue(())
    })?;
    if named.is_empty() {
        return Ok(None);
    }
    let facts = from.facts()?;
    let ancestors = facts.ancestors(named.iter().copied());
    let target = Artifacts::new(store, &to.workspace, Some(to.id));
    let held = target.blobs().hold()?;
    for digest in named.union(&ancestors) {
        let (now, doubts) = (store.clock.now(), &store.artifacts.doubts);
        if !target.blobs().take_over(&held, from.blobs(), digest, now, doubts)? {
            tracing::warn!(session = %to.id, %digest, "the artifact is missing where the session was forked from");
        }
    }
    let said: Vec<Event> =
        named.union(&ancestors).filter_map(|digest| said_of(&facts, *digest, to)).collect();
    if !said.is_empty() {
        target.with_facts(|log, facts| log.transact(facts, |_| Ok((said, ()))))?;
    }
    Ok(Some(held))
}

/// What was said of an artifact in the other workspace.
fn said_of(facts: &Facts, digest: Digest, to: &SessionPlace) -> Option<Event> {
    let known = facts.described.get(&digest)?;
    let put = ArtifactPut {
        digest,
        len: known.len,
        kind: known.kind.clone(),
        media_type: known.media_type.clone(),
        parents: known.parents.iter().copied().collect(),
        session_id: Some(to.id),
    };
    Some(put.into())
}

/// Copies artifacts into another home, as far as they are there and whole. Nothing of the home that they come from is changed:
/// no second names for its files.
///
/// # Errors
/// `Full` or `Io` if they can't be written.
pub(crate) fn copy(
    from: (&Home, &WorkspaceHash),
    to: (&Home, &WorkspaceHash),
    digests: &BTreeSet<Digest>,
    now: Timestamp,
) -> Result<()> {
    if digests.is_empty() {
        return Ok(());
    }
    let (from, to) = (Blobs::new(from.0, from.1), Blobs::new(to.0, to.1));
    let (held, doubts) = (to.hold()?, Doubts::default());
    for digest in digests {
        let mut content = Vec::new();
        match from.scan(digest, &mut |piece| content.extend_from_slice(piece)) {
            Ok(_) => {
                to.put(&held, &content, now, &doubts)?;
            }
            Err(error) => tracing::warn!(%digest, %error, "the artifact can't be taken along"),
        }
    }
    Ok(())
}
