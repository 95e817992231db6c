//! Putting artifacts, and holding on to them.

use sessionlog_codec::event::{ArtifactPut, ArtifactReceipt, LeaseGranted, LeaseReleased};
use sessionlog_codec::ids::{Digest, Timestamp};
use sessionlog_projections::artifact::preview_of;
use uuid::Uuid;

use super::Artifacts;
use super::blobs::{Found, Held};
use crate::error::{Error, Result};
use crate::num::to_u64;

/// Bytes that are looked at for a preview: as many as its characters can have.
const PREVIEW_BYTES: usize = 4 * sessionlog_projections::artifact::PREVIEW_CHARS;

/// What a host puts.
#[derive(Clone, Debug)]
pub struct NewArtifact {
    content: Vec<u8>,
    kind: String,
    media_type: Option<String>,
    parents: Vec<Digest>,
}

impl NewArtifact {
    /// Content, and what it is in the host's word (`report`, `diff`, `derived`).
    #[must_use]
    pub fn new(kind: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { content: content.into(), kind: kind.into(), media_type: None, parents: Vec::new() }
    }

    /// Its MIME type.
    #[must_use]
    pub fn media_type(mut self, media_type: impl Into<String>) -> Self {
        self.media_type = Some(media_type.into());
        self
    }

    /// An artifact that it was derived from, which stays as long as it does.
    #[must_use]
    pub fn parent(mut self, parent: Digest) -> Self {
        self.parents.push(parent);
        self
    }
}

/// Artifacts that stay until a time, or until the lease is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its id, to be released by.
    pub id: String,
    /// When it ends by itself.
    pub until: Timestamp,
}

impl Artifacts {
    /// Stores content, and says what it is in the workspace's log. The same content is stored once; a file of that name that is
    /// hurt is replaced.
    ///
    /// The receipt is for a message ([`MediaSource::Artifact`](sessionlog_codec::event::MediaSource)) or a result. Until a log
    /// names it, the grace period of collections keeps it, or a [lease](Self::lease).
    ///
    /// Durable when it returns: the content, and what was said of it.
    ///
    /// # Errors
    /// `Invalid` if it is longer than [`ARTIFACT_LEN_MAX`](super::ARTIFACT_LEN_MAX), or if a link is in its place; `NotFound` if
    /// a parent is not there, or the workspace has no session; `Locked` if a collection takes longer than usual; `Full`, `Io`:
    /// then it is not there, or nobody knows of it and the next collection removes it.
    pub fn put(&self, new: NewArtifact) -> Result<ArtifactReceipt> {
        let NewArtifact { content, kind, media_type, parents } = new;
        let held = self.blobs().hold()?;
        self.keep(&held, parents.iter().copied())?;
        let receipt = self.put_held(&held, &content, media_type.clone())?;
        let (digest, len, session_id) = (receipt.digest, receipt.len, self.session);
        let put = ArtifactPut { digest, len, kind, media_type, parents, session_id };
        self.with_facts(|log, facts| {
            log.transact(facts, |facts| {
                Ok((if facts.knows(&put) { Vec::new() } else { vec![put.into()] }, ()))
            })
        })?;
        Ok(receipt)
    }

    /// The lock of those who are about to name artifacts.
    pub(crate) fn hold(&self) -> Result<Held> {
        self.blobs().hold()
    }

    /// Stores content, of which no log says anything yet. Whoever names it holds the lock until others can read that.
    pub(crate) fn put_held(
        &self,
        held: &Held,
        content: &[u8],
        media_type: Option<String>,
    ) -> Result<ArtifactReceipt> {
        let put = self.blobs().put(held, content, self.store.clock.now(), &self.store.artifacts.doubts)?;
        if put.found == Found::There {
            // It may stand for others that nobody else names.
            self.touch_all(self.facts()?.ancestors([put.digest]))?;
        }
        let preview = preview(content);
        Ok(ArtifactReceipt { digest: put.digest, len: to_u64(content.len()), media_type, preview })
    }

    /// Keeps artifacts, and what they were derived from, from a collection under way and from the next ones for a while.
    ///
    /// # Errors
    /// `NotFound` if one is not there.
    pub(crate) fn keep(&self, _held: &Held, digests: impl Iterator<Item = Digest> + Clone) -> Result<()> {
        let mut any = digests.clone().peekable();
        if any.peek().is_none() {
            return Ok(());
        }
        for digest in digests.clone() {
            if self.blobs().len(&digest)?.is_none() {
                return Err(self.blobs().missing(&digest));
            }
        }
        let ancestors = self.facts()?.ancestors(digests.clone());
        self.touch_all(digests.chain(ancestors))
    }

    fn touch_all(&self, digests: impl IntoIterator<Item = Digest>) -> Result<()> {
        for digest in digests {
            // One that is missing already can't be kept.
            if self.blobs().len(&digest)?.is_some() {
                self.blobs().touch(&digest, self.store.clock.now())?;
            }
        }
        Ok(())
    }

    /// Keeps artifacts until a time, whatever names them: for a tool that works on them, say.
    ///
    /// Durable when it returns: the lease.
    ///
    /// # Errors
    /// `Invalid` if there is nothing to lease or the time is over; `NotFound` if one is not there; else as [`put`](Self::put).
    pub fn lease(&self, digests: &[Digest], until: Timestamp) -> Result<Lease> {
        if digests.is_empty() || until <= self.store.clock.now() {
            let message = "a lease is of one artifact at least, and ends in the future";
            return Err(Error::invalid("artifact.lease", message));
        }
        let held = self.blobs().hold()?;
        self.keep(&held, digests.iter().copied())?;
        let id = Uuid::now_v7().to_string();
        let granted = LeaseGranted { lease_id: id.clone(), digests: digests.to_vec(), until };
        self.with_facts(|log, facts| log.transact(facts, |_| Ok((vec![granted.into()], ()))))?;
        Ok(Lease { id, until })
    }

    /// Ends a lease early. One that is not known any more stays ended.
    ///
    /// Durable when it returns.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn release(&self, lease: &Lease) -> Result<()> {
        self.with_facts(|log, facts| {
            log.transact(facts, |facts| {
                let is_known = facts.leases.contains_key(&lease.id);
                let released = LeaseReleased { lease_id: lease.id.clone() };
                Ok((is_known.then(|| released.into()).into_iter().collect(), ()))
            })
        })
    }
}

/// The beginning of content that is text; empty of anything else.
fn preview(content: &[u8]) -> String {
    let beginning = content.get(..PREVIEW_BYTES).unwrap_or(content);
    let text = match std::str::from_utf8(beginning) {
        Ok(text) => text,
        // Only its last character was cut.
        Err(error) if error.error_len().is_none() && beginning.len() < content.len() => {
            std::str::from_utf8(beginning.get(..error.valid_up_to()).unwrap_or_default()).unwrap_or_default()
        }
        Err(_) => return String::new(),
    };
    preview_of(text).to_owned()
}
