//! What the workspace's log says of artifacts: what hosts put with a kind and parents, and what is leased.

use std::collections::{BTreeMap, BTreeSet};

use sessionlog_codec::event::{ArtifactPut, Event, LoggedEvent};
use sessionlog_codec::ids::{Digest, KindNo, SessionId, Timestamp};
use sessionlog_codec::registry::kind;

use crate::store::SharedFold;

/// What hosts said of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) len: u64,
    pub(super) kind: String,
    pub(super) media_type: Option<String>,
    pub(super) parents: BTreeSet<Digest>,
    /// Who put it, and when for the last time.
    pub(super) puts: BTreeMap<Option<SessionId>, Timestamp>,
}

#[derive(Clone, Debug)]
pub(super) struct Leased {
    pub(super) digests: Vec<Digest>,
    pub(super) until: Timestamp,
}

/// The fold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(super) described: BTreeMap<Digest, Described>,
    pub(super) leases: BTreeMap<String, Leased>,
}

impl SharedFold for Facts {
    const KINDS: &'static [KindNo] =
        &[kind::ArtifactPut, kind::ArtifactDropped, kind::LeaseGranted, kind::LeaseReleased];

    fn apply(&mut self, event: &LoggedEvent) {
        match &event.event {
            Event::ArtifactPut(put) => self.describe(put, event.timestamp),
            Event::ArtifactDropped(dropped) => {
                for digest in &dropped.digests {
                    self.described.remove(digest);
                }
            }
            Event::LeaseGranted(granted) => {
                let leased = Leased { digests: granted.digests.clone(), until: granted.until };
                self.leases.insert(granted.lease_id.clone(), leased);
            }
            Event::LeaseReleased(released) => {
                self.leases.remove(&released.lease_id);
            }
            _ => {}
        }
    }
}

impl Facts {
    fn describe(&mut self, put: &ArtifactPut, at: Timestamp) {
        let parents: BTreeSet<_> = put.parents.iter().copied().collect();
        let described = self.described.entry(put.digest).or_insert_with(|| Described {
            len: put.len,
            kind: put.kind.clone(),
            media_type: None,
            parents: BTreeSet::new(),
            puts: BTreeMap::new(),
        });
        described.kind.clone_from(&put.kind);
        if put.media_type.is_some() {
            described.media_type.clone_from(&put.media_type);
        }
        // The same content may be derived in two ways; each is to be followed.
        described.parents.extend(parents);
        described.puts.insert(put.session_id, at);
    }

    /// Whether a put would say nothing new.
    pub(super) fn knows(&self, put: &ArtifactPut) -> bool {
        self.described.get(&put.digest).is_some_and(|known| {
            known.kind == put.kind
                && known.media_type == put.media_type
                && put.parents.iter().all(|parent| known.parents.contains(parent))
                && known.puts.contains_key(&put.session_id)
        })
    }

    /// What `digests` were derived from, and what that was derived from.
    pub(super) fn ancestors(&self, digests: impl IntoIterator<Item = Digest>) -> BTreeSet<Digest> {
        let (mut found, mut todo): (BTreeSet<_>, Vec<_>) = (BTreeSet::new(), digests.into_iter().collect());
        while let Some(digest) = todo.pop() {
            let parents = self.described.get(&digest).into_iter().flat_map(|known| &known.parents);
            todo.extend(parents.copied().filter(|parent| found.insert(*parent)));
        }
        found
    }

    /// What is leased at a time.
    pub(super) fn leased(&self, now: Timestamp) -> impl Iterator<Item = Digest> + '_ {
        let running = self.leases.values().filter(move |lease| lease.until > now);
        running.flat_map(|lease| lease.digests.iter().copied())
    }
}
