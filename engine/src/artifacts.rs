//! Artifacts: what is too long for a log, or is nobody's message. Immutable, named by its hash, once in a workspace.
//!
//! ```text
//! workspaces/<hash>/artifacts/<2 hex>/<64 hex>               content; its name is its BLAKE3 hash
//! workspaces/<hash>/artifacts/<2 hex>/<64 hex>.<id>.new      content that was being written when its process ended
//! workspaces/<hash>/artifacts/lock                           who names artifacts holds it with others, who removes them alone
//! ```
//!
//! A session's log holds a receipt: the hash, the length, the type, the first 4,096 characters. Results of tools and of
//! delegated agents become artifacts by themselves if they are long: see [`ArtifactPolicy`](crate::ArtifactPolicy). A host puts
//! what it likes with [`Artifacts::put`], with a kind and what it was derived from.
//!
//! Nothing is removed by itself. [`Artifacts::gc`] removes what no log of the workspace names any more, however it names it,
//! and says why the rest stays.
//!
//! # Limits
//! | | |
//! |---|---|
//! | an artifact | [`ARTIFACT_LEN_MAX`]: 256 MiB |
//! | a slice, the lines of an answer, what a pointer names | [`SLICE_LEN_MAX`]: 1 MiB |
//! | lines of an answer | [`LINES_MAX`]: 10,000 |
//! | a line as it is shown | [`LINE_LEN_MAX`]: 4 KiB |
//! | lines that a search gives | [`MATCHES_MAX`]: 1,000 |
//! | a pattern | [`PATTERN_LEN_MAX`]: 4 KiB |
//! | JSON that is looked into | [`JSON_LEN_MAX`]: 64 MiB |

mod blobs;
mod carry;
mod collect;
mod facts;
mod lines;
mod mark;
mod named;
mod put;
mod read;
mod search;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sessionlog_codec::ids::SessionId;

pub(crate) use blobs::{Blobs, Held};
pub(crate) use carry::{carry, copy};
pub use collect::{ArchiveRoots, GRACE, GcOptions, GcReport, GcRun, KeptFor, Tally};
pub use named::NamedArtifact;
pub(crate) use named::{artifacts_of, receipts_of};
pub use put::{Lease, NewArtifact};
pub use read::{
    ArtifactEntry, ArtifactInfo, ArtifactLine, ArtifactLines, ArtifactReader, ArtifactSlice, Shown,
    SliceContent,
};
pub use search::ArtifactMatches;

use crate::clock::Clock;
use crate::error::Result;
use crate::store::{Caught, Home, SharedLog, StoreInner, WorkspaceHash};
use blobs::Doubts;
use facts::Facts;

/// Bytes of an artifact, at most.
pub const ARTIFACT_LEN_MAX: u64 = 256 << 20;
/// Bytes that one answer gives of an artifact, at most.
pub const SLICE_LEN_MAX: u64 = 1 << 20;
/// Lines that one answer gives, at most.
pub const LINES_MAX: u64 = 10_000;
/// Bytes that are shown of a line, at most.
pub const LINE_LEN_MAX: usize = 4 << 10;
/// Lines that a search gives, at most.
pub const MATCHES_MAX: u64 = 1_000;
/// Bytes of a pattern, at most.
pub const PATTERN_LEN_MAX: usize = 4 << 10;
/// Bytes of an artifact that a JSON pointer looks into, at most.
pub const JSON_LEN_MAX: u64 = 64 << 20;

/// What a store remembers of its artifacts from one call to the next.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    doubts: Doubts,
    facts: Mutex<BTreeMap<WorkspaceHash, Caught<Facts>>>,
}

/// The artifacts of one workspace.
#[derive(Clone, Debug)]
pub struct Artifacts {
    store: Arc<StoreInner>,
    workspace: WorkspaceHash,
    session: Option<SessionId>,
    reader: ArtifactReader,
}

impl Artifacts {
    pub(crate) fn new(
        store: &Arc<StoreInner>,
        workspace: &WorkspaceHash,
        session: Option<SessionId>,
    ) -> Self {
        let reader = ArtifactReader::new(&store.home, &store.clock, workspace);
        Self { store: Arc::clone(store), workspace: workspace.clone(), session, reader }
    }

    /// The same artifacts, for reading.
    #[must_use]
    pub fn read(&self) -> &ArtifactReader {
        &self.reader
    }

    fn blobs(&self) -> &Blobs {
        &self.reader.blobs
    }

    /// Looks at what the workspace's log says now, and may go on from there. The innermost lock of this process.
    fn with_facts<T>(&self, look: impl FnOnce(&SharedLog, &mut Caught<Facts>) -> Result<T>) -> Result<T> {
        let mut known = self.store.artifacts.facts.lock().unwrap_or_else(PoisonError::into_inner);
        look(&self.reader.log, known.entry(self.workspace.clone()).or_default())
    }

    fn facts(&self) -> Result<Facts> {
        self.with_facts(|log, facts| {
            log.catch_up(facts)?;
            Ok(facts.get().clone())
        })
    }
}

impl ArtifactReader {
    pub(crate) fn new(home: &Home, clock: &Arc<dyn Clock>, workspace: &WorkspaceHash) -> Self {
        Self { blobs: Blobs::new(home, workspace), log: SharedLog::of_workspace(home, clock, workspace) }
    }
}
