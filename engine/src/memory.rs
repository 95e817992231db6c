//! Workspace memory: what was said and done in the sessions of a workspace, searched and read.
//!
//! What is searched is a fold of the logs, told in [`projections::memory`](sessionlog_projections::memory): of every session of
//! the workspace, and of the archive of every session that was deleted and not forgotten. Nothing is appended for it: what an
//! append made durable is found by the next search.
//!
//! With the feature `search`, an index is kept in `index/memory.sqlite` of the workspace (SQLite, FTS5). It is derived and
//! disposable: a search looks for what changed since and brings it up to date first. Whatever is wrong with it (absent, of
//! another version, damaged, held by somebody), a search reads the logs instead, gives the same, and takes longer.

mod archive;
#[cfg(feature = "search")]
mod index;
mod load;
mod scan;
mod source;
mod vectors;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use sessionlog_codec::event::Role;
use sessionlog_codec::ids::{Digest, NodeId, SessionId, Timestamp};
use sessionlog_projections::memory::rank::Ranked;
use sessionlog_projections::memory::{
    DEFAULT_ARCHIVE_TOOLS, Excerpt, MemoryKind, MemoryQuery, MemoryRecord, MemoryStatus, RecordId, excerpt,
};

pub(crate) use archive::{remove_unfinished_archive, write_archive};

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Home, Store, StoreReader, WorkspaceHash};
use load::Located;

/// Whether a search keeps an index for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IndexPolicy {
    /// In `index/` of the workspace. Of no effect without the feature `search`.
    Keep,
    /// Nowhere: each search reads the logs.
    #[default]
    Off,
}

/// A workspace's memory, to be searched and read. Cheap to clone; each method looks at the files anew.
#[derive(Clone, Debug)]
pub struct MemoryReader {
    home: Home,
    clock: Arc<dyn Clock>,
    workspace: WorkspaceHash,
    archive_tools: BTreeSet<String>,
    #[cfg_attr(not(feature = "search"), expect(dead_code, reason = "there is no index"))]
    policy: IndexPolicy,
}

/// A workspace's memory, of a home that is open for writing: [`MemoryReader`] with what may be added.
#[derive(Clone, Debug)]
pub struct Memory {
    reader: MemoryReader,
}

impl Deref for Memory {
    type Target = MemoryReader;

    fn deref(&self) -> &MemoryReader {
        &self.reader
    }
}

/// How records were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FoundBy {
    /// By the index.
    Index,
    /// By reading every log.
    Scan,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryHits {
    /// The records asked for, in order.
    pub hits: Vec<MemoryHit>,
    /// How many records there are in all, those before and behind these among them.
    pub total: u64,
    /// How they were found.
    pub by: FoundBy,
    /// Sessions whose logs can't be read now: what is in them may be missing.
    pub unread: Vec<SessionId>,
}

/// A record that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryHit {
    /// Its name.
    pub id: RecordId,
    /// What it is of.
    pub kind: MemoryKind,
    /// The conversation.
    pub node: NodeId,
    /// When it happened.
    pub at: Timestamp,
    /// Who speaks, of a message.
    pub role: Option<Role>,
    /// The tool, or the agent.
    pub tool: Option<String>,
    /// How it stands.
    pub status: MemoryStatus,
    /// Its session's tags and its own.
    pub tags: Vec<String>,
    /// The artifacts that it names.
    pub artifacts: Vec<Digest>,
    /// What it was ranked by; 0 where only time counts. Scores of different queries can't be compared.
    pub score: f64,
    /// Its rank by text alone, from 1.
    pub text_rank: Option<u32>,
    /// Its rank by vector alone, from 1.
    pub vector_rank: Option<u32>,
    /// A piece of its text around the words that were looked for.
    pub excerpt: Excerpt,
}

/// A part of a record's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPage {
    /// The record, with that part as its text.
    pub record: MemoryRecord,
    /// Where the part begins, in characters.
    pub offset: usize,
    /// Where to read on, in characters; `None`: the text ends here.
    pub next: Option<usize>,
    /// How many characters the whole text has.
    pub of: usize,
}

impl Store {
    /// The memory of a workspace, with an index. It need not have any session.
    #[must_use]
    pub fn memory(&self, workspace: &WorkspaceHash) -> Memory {
        let (home, clock) = self.home_and_clock();
        Memory { reader: MemoryReader::new(home, clock, workspace).with_index(IndexPolicy::Keep) }
    }
}

impl StoreReader {
    /// The memory of a workspace, for reading. No byte is changed: there is no index, unless
    /// [`with_index`](MemoryReader::with_index) asks for one.
    #[must_use]
    pub fn memory(&self, workspace: &WorkspaceHash) -> MemoryReader {
        MemoryReader::new(self.home().clone(), Arc::new(SystemClock), workspace)
    }

    /// The path of a workspace as text, as its machine spelled it; empty if that is not known.
    #[must_use]
    pub fn workspace_name(&self, workspace: &WorkspaceHash) -> String {
        let path = self.home().workspace_path(workspace).unwrap_or_default();
        String::from_utf8_lossy(&path).into_owned()
    }
}

impl Memory {
    /// The same, taking other tools for ones that read memory: see [`MemoryReader::with_archive_tools`].
    #[must_use]
    pub fn with_archive_tools(self, tools: impl IntoIterator<Item = String>) -> Self {
        Self { reader: self.reader.with_archive_tools(tools) }
    }

    /// The same, with or without an index.
    #[must_use]
    pub fn with_index(self, policy: IndexPolicy) -> Self {
        Self { reader: self.reader.with_index(policy) }
    }

    /// Attaches a vector to a record: what an embedding model made of its text. The last one of a record and a model counts.
    ///
    /// Durable when it returns. Costs a look for the record, and an append to the workspace's log.
    ///
    /// # Errors
    /// `NotFound` if there is no such record; `Invalid` if the vector is empty, longer than 65,536 components, points nowhere or
    /// has components that are no finite numbers, or the model has no name; `Locked`, `Full` or `Io` if it can't be appended.
    pub fn attach_vector(&self, id: RecordId, model: &str, components: &[f32]) -> Result<()> {
        let record = self.find(id)?.ok_or_else(|| missing(id))?;
        vectors::attach(&self.reader, record.record.id, model, components)
    }
}

impl MemoryReader {
    fn new(home: Home, clock: Arc<dyn Clock>, workspace: &WorkspaceHash) -> Self {
        let (workspace, archive_tools) = (workspace.clone(), default_archive_tools());
        Self { home, clock, workspace, archive_tools, policy: IndexPolicy::Off }
    }

    /// The same, taking other tools for ones that read memory, by their names: their results are not searched. All who search a
    /// workspace should name the same ones, since the index is made for them; by default
    /// [`DEFAULT_ARCHIVE_TOOLS`] are.
    #[must_use]
    pub fn with_archive_tools(self, tools: impl IntoIterator<Item = String>) -> Self {
        Self { archive_tools: tools.into_iter().collect(), ..self }
    }

    /// The same, with or without an index. It is derived from the logs and is no part of them, so this is no more than a
    /// matter of speed and of bytes in `index/`.
    #[must_use]
    pub fn with_index(self, policy: IndexPolicy) -> Self {
        Self { policy, ..self }
    }

    /// The workspace.
    #[must_use]
    pub fn workspace(&self) -> &WorkspaceHash {
        &self.workspace
    }

    /// Searches. What was appended before the call, by whatever process, is found, also if it is not on disk yet.
    ///
    /// With an index: costs a look at each log's file, reading what came since the last search, and work by the number of records
    /// that have a word of the query; with a vector, by the number of vectors of its model, all of which are compared. Without:
    /// reading every log.
    ///
    /// # Errors
    /// `Invalid` if the query is not one that can be answered; `Io` if the workspace can't be listed; `Corrupt` if the query has
    /// a vector and the workspace's log, which has the others, is hurt. A session that can't be read is named in
    /// [`MemoryHits::unread`].
    pub fn search(&self, query: &MemoryQuery) -> Result<MemoryHits> {
        query.check().map_err(|why| Error::invalid("memory.query", why))?;
        let now = self.clock.now();
        #[cfg(feature = "search")]
        if self.policy == IndexPolicy::Keep
            && let Some(hits) = index::search(self, query, now)
        {
            return Ok(hits);
        }
        scan::search(self, query, now)
    }

    /// Brings the index up to date, as a search would do it first: for a host that has time for it now. Does nothing without
    /// one.
    ///
    /// # Errors
    /// `Io` if the workspace can't be listed. An index that can't be had now is no error: see the [module](self).
    pub fn index(&self) -> Result<()> {
        #[cfg(feature = "search")]
        if self.policy == IndexPolicy::Keep {
            index::update(self)?;
        }
        Ok(())
    }

    /// Reads a part of a record's text: `limit` characters of it from character `offset` on, at most.
    ///
    /// Costs, with an index, a look into it and a read of the record; without, a read of the session's log.
    ///
    /// # Errors
    /// `NotFound` if there is no such record in the workspace, or it was erased; `Io` if it can't be read.
    pub fn read(&self, id: RecordId, offset: usize, limit: usize) -> Result<MemoryPage> {
        let located = self.find(id)?.ok_or_else(|| missing(id))?;
        let text = load::texts(std::slice::from_ref(&located)).pop().flatten().ok_or_else(|| missing(id))?;
        let of = text.chars().count();
        let part: String = text.chars().skip(offset).take(limit).collect();
        let end = offset.saturating_add(limit).min(of);
        let next = (end < of).then_some(end);
        Ok(MemoryPage { record: MemoryRecord { text: part, ..located.record }, offset, next, of })
    }

    /// Where a record is.
    fn find(&self, id: RecordId) -> Result<Option<Located>> {
        #[cfg(feature = "search")]
        if self.policy == IndexPolicy::Keep
            && let Some(found) = index::find(self, id)
        {
            return Ok(Some(found));
        }
        scan::find(self, id)
    }
}

fn default_archive_tools() -> BTreeSet<String> {
    DEFAULT_ARCHIVE_TOOLS.map(str::to_owned).into()
}

fn missing(id: RecordId) -> Error {
    let message = format!("there is no record {id} in the memory of this workspace, or it was erased");
    Error::new(ErrorKind::NotFound, "memory.missing", message)
}

/// A record in its place, as it is given.
fn hit(query: &MemoryQuery, ranked: &Ranked, record: MemoryRecord, text: &str) -> MemoryHit {
    let terms = query.terms().unwrap_or_default();
    MemoryHit {
        id: record.id,
        kind: record.kind,
        node: record.node,
        at: record.at,
        role: record.role,
        tool: record.tool,
        status: record.status,
        tags: record.tags,
        artifacts: record.artifacts,
        score: ranked.score,
        text_rank: ranked.text_rank,
        vector_rank: ranked.vector_rank,
        excerpt: excerpt(text, &terms, query.excerpt_chars),
    }
}

/// The part of a ranking that is asked for.
fn page<'r>(query: &MemoryQuery, ranked: &'r [Ranked]) -> &'r [Ranked] {
    let behind = ranked.get(query.offset..).unwrap_or_default();
    behind.get(..query.limit).unwrap_or(behind)
}

/// Removes the index of a workspace, which may hold what is to be gone. The next search makes it anew.
///
/// # Errors
/// `Locked` if somebody searches by it for seconds; `Io` if it can't be removed.
pub(crate) fn discard_index(home: &Home, workspace: &WorkspaceHash) -> Result<()> {
    #[cfg(feature = "search")]
    return index::discard(home, workspace);
    #[cfg(not(feature = "search"))]
    return index_absent::discard(home, workspace);
}

/// Without the feature, an index that another build made may be there.
#[cfg(not(feature = "search"))]
mod index_absent {
    use super::*;

    pub(super) fn discard(home: &Home, workspace: &WorkspaceHash) -> Result<()> {
        let dir = home.workspace_dir(workspace).join("index");
        for name in ["memory.sqlite-wal", "memory.sqlite-shm", "memory.sqlite"] {
            home.remove_tree(&dir.join(name))?;
        }
        Ok(())
    }
}
