//! Collection: what nothing names any more goes, and for all the rest it is said why it stays.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sessionlog_codec::event::{ArtifactDropped, GcRan};
use sessionlog_codec::ids::{Digest, SessionId, Timestamp};
use sessionlog_codec::registry::kind;
use uuid::Uuid;

use super::blobs::{Blob, Listing};
use super::facts::Facts;
use super::mark::{Finder, Marks, reason_of};
use super::{ArtifactEntry, Artifacts};
use crate::error::{Error, Result};
use crate::log::LogDir;
use crate::storage::{DirEntry, EntryKind};
use crate::store::SessionPlace;

/// How long what nothing names stays, unless something else is asked for: one hour.
pub const GRACE: Duration = Duration::from_secs(3_600);

/// Files that are removed while the lock is held, at most.
const BATCH: usize = 64;

/// Whether the archive of deleted sessions keeps what it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ArchiveRoots {
    /// It does.
    #[default]
    Pin,
    /// It does not: its receipts may lead nowhere afterwards.
    DontPin,
}

/// Whether anything is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GcRun {
    /// Yes.
    #[default]
    Collect,
    /// No: only what would be is said. No lock is taken, and no byte is changed.
    DryRun,
}

/// How artifacts are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcOptions {
    /// How long what nothing names stays after it was put, or came back to, for the last time. Default: [`GRACE`].
    pub grace: Duration,
    /// What the archive of deleted sessions keeps.
    pub archive: ArchiveRoots,
    /// Whether anything is removed.
    pub run: GcRun,
}

impl Default for GcOptions {
    fn default() -> Self {
        Self { grace: GRACE, archive: ArchiveRoots::default(), run: GcRun::default() }
    }
}

/// Why an artifact stays. Of several reasons, the first one in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum KeptFor {
    /// A session names it: in a message, a result, or any other event of any of its conversations, rewound and cleared ones too.
    Session,
    /// The result of a delegated conversation names it, and its parent has not got that yet.
    ChildResult,
    /// A request to the library names it.
    Learning,
    /// The archive of a deleted session names it.
    Archive,
    /// It is leased.
    Lease,
    /// One that stays was derived from it.
    Lineage,
    /// It is younger than the grace period.
    Grace,
    /// Somebody came back to it while this collection was looking.
    Touched,
}

impl KeptFor {
    /// Its stable word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::ChildResult => "child_result",
            Self::Learning => "learning",
            Self::Archive => "archive",
            Self::Lease => "lease",
            Self::Lineage => "lineage",
            Self::Grace => "grace",
            Self::Touched => "touched",
        }
    }
}

/// How many, and how large together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files.
    pub count: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl Tally {
    pub(super) fn add(&mut self, bytes: u64) {
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn without(self, other: Self) -> Self {
        let (count, bytes) = (self.count.saturating_sub(other.count), self.bytes.saturating_sub(other.bytes));
        Self { count, bytes }
    }
}

/// What a collection did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// The collection's id in the workspace's log; `None` for a dry run, and where there was never an artifact.
    pub gc_id: Option<String>,
    /// What stays, by why.
    pub kept: BTreeMap<KeptFor, Tally>,
    /// What goes.
    pub dropped: Vec<ArtifactEntry>,
    /// What was being written when its process ended, and goes too.
    pub unfinished: Tally,
    /// All files before it.
    pub before: Tally,
    /// All files after it.
    pub after: Tally,
}

impl GcReport {
    fn keep(&mut self, why: KeptFor, bytes: u64) {
        self.kept.entry(why).or_default().add(bytes);
    }
}

/// What is to go.
struct Plan {
    drop: Vec<(Digest, Blob)>,
    unfinished: Vec<(PathBuf, Blob)>,
    roots: Digest,
}

impl Artifacts {
    /// Removes what nothing names any more. What is named is found by reading all logs of the workspace: those of its sessions
    /// whole, rewound and withdrawn messages and earlier runs too; the archive of deleted sessions; leases that have not
    /// ended; and whatever these were derived from.
    ///
    /// Others may put artifacts and work meanwhile: what they name stays. Cut off at any moment, it leaves nothing that the
    /// next one does not finish. Its cost is that of reading the workspace's logs.
    ///
    /// Durable when it returns: the removal, and what the workspace's log says of it.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported`, naming the log, if one can't be read completely: it might name anything, so nothing is
    /// removed. `Locked` if others hold the artifacts for longer than usual; `Full`, `Io`.
    pub fn gc(&self, options: &GcOptions) -> Result<GcReport> {
        let mut report = GcReport::default();
        if self.blobs().is_absent()? {
            return Ok(report);
        }
        let now = self.store.clock.now();
        let listing = match options.run {
            GcRun::DryRun => self.blobs().list()?,
            GcRun::Collect => self.list_alone()?,
        };
        report.before = listing.total();
        let facts = self.facts()?;
        let (mut marks, _) = self.mark(&listing, options.archive, &facts, now)?;
        let is_young = |blob: &Blob| is_young(blob, now, options.grace);
        for (digest, _) in listing.blobs.iter().filter(|(_, blob)| is_young(blob)) {
            marks.add(*digest, KeptFor::Grace);
        }
        let unfinished = listing.unfinished.iter().filter(|(_, blob)| !is_young(blob)).cloned().collect();
        let plan = plan(&listing, &mut marks, &facts, unfinished, &mut report);
        if options.run == GcRun::Collect {
            self.carry_out(&plan, options.grace, &mut report)?;
        } else {
            report.dropped = plan.drop.iter().map(|(digest, blob)| entry(digest, blob)).collect();
            plan.unfinished.iter().for_each(|(_, blob)| report.unfinished.add(blob.len));
        }
        let mut gone = report.unfinished;
        report.dropped.iter().for_each(|entry| gone.add(entry.len));
        report.after = report.before.without(gone);
        Ok(report)
    }

    /// Removes those of `candidates` that nothing names any more, at once: for a session that is to be forgotten, whose log and
    /// archive are gone. Besides, whatever was half written, or written and not named, when its process ended: nobody is about
    /// to name it, since whoever is holds the lock. What is leased stays, and what somebody
    /// else put within the last hour, who may be about to name it.
    ///
    /// # Errors
    /// As [`gc`](Self::gc).
    pub(crate) fn drop_unreferenced(&self, candidates: &BTreeSet<Digest>) -> Result<Vec<ArtifactEntry>> {
        if self.blobs().is_absent()? {
            return Ok(Vec::new());
        }
        let now = self.store.clock.now();
        let listing = self.list_alone()?;
        let facts = self.facts()?;
        let (mut marks, sessions) = self.mark(&listing, ArchiveRoots::Pin, &facts, now)?;
        let since = before(now, GRACE);
        for (digest, known) in &facts.described {
            let by_another = known.puts.iter().any(|(session, at)| {
                *at > since && session.is_none_or(|session| sessions.contains(&session))
            });
            if by_another {
                marks.add(*digest, KeptFor::Grace);
            }
        }
        let mut report = GcReport::default();
        let mut plan = plan(&listing, &mut marks, &facts, listing.unfinished.clone(), &mut report);
        // What no log names or tells of was kept by a session that died before it could name it: that one, for all we know.
        plan.drop.retain(|(digest, _)| candidates.contains(digest) || !facts.described.contains_key(digest));
        self.carry_out(&plan, Duration::ZERO, &mut report)?;
        Ok(report.dropped)
    }

    /// What there is, listed while nobody is about to name any of it.
    fn list_alone(&self) -> Result<Listing> {
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("gc_lists_among_others") {
            return self.blobs().list();
        }
        let _alone = self.blobs().hold_alone()?;
        self.blobs().list()
    }

    /// What is named, and the sessions that there are.
    fn mark(
        &self,
        listing: &Listing,
        archive: ArchiveRoots,
        facts: &Facts,
        now: Timestamp,
    ) -> Result<(Marks, BTreeSet<SessionId>)> {
        // One that is missing still stands for what it was derived from.
        let wanted: BTreeSet<Digest> = listing.blobs.keys().chain(facts.described.keys()).copied().collect();
        let finder = Finder::of(&wanted);
        let (home, mut marks, mut read) = (&self.store.home, Marks::default(), BTreeSet::new());
        loop {
            // A session may be forked while it is read, and deleted then.
            let new: Vec<SessionPlace> = home
                .sessions_of(&self.workspace)?
                .into_iter()
                .filter(|place| !read.contains(&place.id))
                .collect();
            if new.is_empty() {
                break;
            }
            for place in new {
                marks.read(place.log_dir(&home.storage), &finder, &reason_of)?;
                read.insert(place.id);
            }
        }
        // Behind the sessions: one that is deleted meanwhile is archived before it goes.
        if archive == ArchiveRoots::Pin {
            for dir in self.archives()? {
                marks.read(dir, &finder, &|kind| match kind {
                    kind::MemoryArchived => KeptFor::Archive,
                    _ => KeptFor::Session,
                })?;
            }
        }
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("gc_without_leases") {
            return Ok((marks, read));
        }
        facts.leased(now).for_each(|digest| marks.add(digest, KeptFor::Lease));
        Ok((marks, read))
    }

    /// The logs that are left of deleted sessions.
    fn archives(&self) -> Result<Vec<LogDir>> {
        let storage = &self.store.home.storage;
        let dir = self.store.home.workspace_dir(&self.workspace).join("archive");
        let entries = match storage.list(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::io("listing", &dir, error)),
        };
        let is_archive = |entry: &&DirEntry| {
            entry.kind == EntryKind::Dir
                && entry.name.to_str().is_some_and(|name| name.parse::<SessionId>().is_ok())
        };
        let archives = entries.iter().filter(is_archive);
        Ok(archives.map(|entry| LogDir::below(storage, &dir.join(&entry.name))).collect())
    }

    /// Removes what is to go, a few files at a time, and says so in the workspace's log: before, so that what is missing there
    /// was never lost unsaid. What is said and not done is done by the next collection.
    fn carry_out(&self, plan: &Plan, grace: Duration, report: &mut GcReport) -> Result<()> {
        let gc_id = Uuid::now_v7().to_string();
        for batch in plan.drop.chunks(BATCH) {
            let mut gone: BTreeSet<PathBuf> = BTreeSet::new();
            let alone = self.blobs().hold_alone()?;
            let mut still = Vec::new();
            for (digest, blob) in batch {
                match self.blobs().is_as_listed(&self.blobs().path(digest), blob)? {
                    true => still.push((*digest, *blob)),
                    false => report.keep(KeptFor::Touched, blob.len),
                }
            }
            if still.is_empty() {
                continue;
            }
            let digests = still.iter().map(|(digest, _)| *digest).collect();
            let dropped = ArtifactDropped { digests, gc_id: gc_id.clone() };
            self.with_facts(|log, facts| log.transact(facts, |_| Ok((vec![dropped.into()], ()))))?;
            for (digest, blob) in &still {
                let path = self.blobs().path(digest);
                self.blobs().remove(&path)?;
                gone.extend(path.parent().map(Path::to_owned));
                report.dropped.push(entry(digest, blob));
            }
            drop(alone);
            gone.iter().try_for_each(|dir| self.blobs().sync(dir))?;
        }
        for batch in plan.unfinished.chunks(BATCH) {
            let mut gone: BTreeSet<PathBuf> = BTreeSet::new();
            let alone = self.blobs().hold_alone()?;
            for (path, blob) in batch {
                if self.blobs().is_as_listed(path, blob)? {
                    self.blobs().remove(path)?;
                    gone.extend(path.parent().map(Path::to_owned));
                    report.unfinished.add(blob.len);
                }
            }
            drop(alone);
            gone.iter().try_for_each(|dir| self.blobs().sync(dir))?;
        }
        let mut gone = report.unfinished;
        report.dropped.iter().for_each(|entry| gone.add(entry.len));
        let ran = GcRan {
            gc_id: gc_id.clone(),
            before: report.before.bytes,
            after: report.before.without(gone).bytes,
            grace_s: grace.as_secs(),
            roots_digest: plan.roots,
        };
        self.with_facts(|log, facts| log.transact(facts, |_| Ok((vec![ran.into()], ()))))?;
        report.gc_id = Some(gc_id);
        Ok(())
    }
}

/// What goes, once everything is marked that stays by itself.
fn plan(
    listing: &Listing,
    marks: &mut Marks,
    facts: &Facts,
    unfinished: Vec<(PathBuf, Blob)>,
    report: &mut GcReport,
) -> Plan {
    let mut roots = blake3::Hasher::new();
    for digest in marks.0.iter().filter(|(_, why)| **why < KeptFor::Lineage).map(|(digest, _)| digest) {
        roots.update(&digest.0);
    }
    let ancestors = facts.ancestors(marks.0.keys().copied());
    #[cfg(feature = "seeded-bugs")]
    let ancestors =
        if sessionlog_codec::seeded::is("gc_without_lineage") { BTreeSet::new() } else { ancestors };
    ancestors.into_iter().for_each(|digest| marks.add(digest, KeptFor::Lineage));
    let mut drop = Vec::new();
    for (digest, blob) in &listing.blobs {
        match marks.0.get(digest) {
            Some(why) => report.keep(*why, blob.len),
            None => drop.push((*digest, *blob)),
        }
    }
    Plan { drop, unfinished, roots: Digest(*roots.finalize().as_bytes()) }
}

fn entry(digest: &Digest, blob: &Blob) -> ArtifactEntry {
    ArtifactEntry { digest: *digest, len: blob.len }
}

fn before(now: Timestamp, span: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
}

/// Whether a file is younger than the grace period. One whose time is not known, or in the future, is; with no grace, only it.
fn is_young(blob: &Blob, now: Timestamp, grace: Duration) -> bool {
    #[cfg(feature = "seeded-bugs")]
    if sessionlog_codec::seeded::is("gc_without_grace") {
        return false;
    }
    blob.modified.is_none_or(|modified| !grace.is_zero() && modified > before(now, grace))
}
