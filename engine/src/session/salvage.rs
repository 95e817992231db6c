//! Salvage: a new session of all that is whole in a hurt one. The hurt one is not changed by a byte.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{Event, GapMarked, Role, SessionCreated};
use sessionlog_codec::ids::{
    Digest, KindNo, LogId, MessageNo, NodeId, Position, SchemaVersion, SessionId, Timestamp,
};
use sessionlog_codec::record::{Envelope, Payload, Record, TimeOrigin};
use sessionlog_codec::registry::{UNREADABLE, kind};
use uuid::Uuid;

use super::reader::SessionReader;
use super::state::logged;
use crate::artifacts::{self, receipts_of};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::log::salvage::builder::LogBuilder;
use crate::log::salvage::{Item, Layout, Link, Survey, survey};
use crate::log::{LeftOut, LogOptions, Loss, LostSpan};
use crate::storage::{Locked, OsStorage, Storage};
use crate::store::{Home, SessionPlace, WorkspaceHash, canonical, owner, path_of_bytes, root_of, slug};

/// How many records that fill a span are written as one frame.
const FILL_FRAME: u64 = 1024;

/// A message beside a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its conversation.
    pub node: NodeId,
    /// Its number.
    pub message_no: MessageNo,
    /// Who says it.
    pub role: Role,
    /// Where it stands in the log.
    pub position: Position,
}

/// A hurt span of a session, as people can find it again.
#[derive(Clone, Debug)]
pub struct SalvagedSpan {
    /// The bytes, and the positions that are lost with them.
    pub span: LostSpan,
    /// The last message before it that is whole.
    pub after: Option<Neighbour>,
    /// The first message behind it that is whole.
    pub before: Option<Neighbour>,
    /// What the segment's index tells of the records that are lost: how many of which kind.
    pub known: BTreeMap<KindNo, u64>,
}

/// A record whose frame is whole and whose payload can't be decoded: its bytes are carried along.
#[derive(Clone, Debug)]
pub struct UnreadableRecord {
    /// Where it stands.
    pub position: Position,
    /// What it claims to be.
    pub kind: KindNo,
    /// The layout that it claims to have.
    pub schema: SchemaVersion,
    /// Why it can't be read.
    pub error: Error,
}

/// Whether the session's first record is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstRecord {
    /// It is.
    Kept,
    /// It is lost: one that says nothing but the session's id takes its place.
    Made,
}

/// What a salvage found, and what becomes of it.
#[derive(Clone, Debug)]
pub struct SalvageReport {
    /// The session.
    pub session: SessionId,
    /// The id that its log gives it, where that is another one: it can be read then, and not be resumed.
    pub other_identity: Option<SessionId>,
    /// Its directory.
    pub source: PathBuf,
    /// Each hurt span, in the order of the log.
    pub spans: Vec<SalvagedSpan>,
    /// Files that nothing is taken from.
    pub left_out: Vec<LeftOut>,
    /// Records that can't be decoded.
    pub unreadable: Vec<UnreadableRecord>,
    /// Positions at which the hash chain breaks although every frame is whole: somebody changed something on purpose, or
    /// mixed the files of two copies.
    pub broken_chain: Vec<Position>,
    /// Whole frames that are taken over.
    pub frames: u64,
    /// Their records.
    pub records: u64,
    /// Bytes of the files that were read.
    pub bytes: u64,
    /// Whole records behind a torn place: nothing proves that they were ever acknowledged.
    pub unproven_records: u64,
    /// Whole frames that stand in the log twice; one of each is taken.
    pub repeated_frames: u64,
    /// Frames of a newer kind that may be left out, and are.
    pub skipped_frames: u64,
    /// Whether the first record is there.
    pub first_record: FirstRecord,
}

impl SalvageReport {
    /// How many records are known to be missing.
    #[must_use]
    pub fn missing_records(&self) -> u64 {
        self.spans.iter().map(|span| span.span.loss.records()).sum()
    }

    /// Whether acknowledged records are missing.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.spans.iter().any(|span| matches!(span.span.loss, Loss::Acknowledged { .. }))
    }

    /// Whether there is nothing at all to report.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.spans.is_empty()
            && self.left_out.is_empty()
            && self.unreadable.is_empty()
            && self.broken_chain.is_empty()
            && self.repeated_frames == 0
            && self.skipped_frames == 0
            && self.other_identity.is_none()
            && self.first_record == FirstRecord::Kept
    }
}

/// A session that was read for a salvage. Nothing is written before [`carry_out`](Self::carry_out).
///
/// Positions stay as they are, since events name each other by them: what is missing is marked position by position with
/// `gap.marked`. What is whole stays as it was: payloads, times, causes, keys, ownerships. The new log has an id and a hash
/// chain of its own.
#[derive(Debug)]
pub struct Salvage {
    storage: Arc<dyn Storage>,
    workspace: WorkspaceHash,
    workspace_path: Vec<u8>,
    layout: Layout,
    report: SalvageReport,
}

impl SessionReader {
    /// Reads the session for a salvage: every file of its log, and every whole frame in them. Nothing is changed. `read` is
    /// told of bytes as they are read; each file is read twice.
    ///
    /// # Errors
    /// `Locked` if somebody owns the session; `NotFound` if there is nothing to save; `Unsupported` if a newer version wrote
    /// some of it, which knows how to save it; `Io` if a file can't be read.
    pub fn plan_salvage(&self, read: &mut dyn FnMut(u64)) -> Result<Salvage> {
        let (storage, place) = self.parts();
        Salvage::plan(storage, &place.dir, read)
    }
}

impl Salvage {
    /// As [`SessionReader::plan_salvage`], of a session's directory, wherever it is: also without the home around it.
    ///
    /// # Errors
    /// As [`SessionReader::plan_salvage`].
    pub fn of_directory(dir: &Path, read: &mut dyn FnMut(u64)) -> Result<Self> {
        Self::plan(Arc::new(OsStorage), dir, read)
    }

    fn plan(storage: Arc<dyn Storage>, dir: &Path, read: &mut dyn FnMut(u64)) -> Result<Self> {
        let named = dir.file_name().and_then(|name| name.to_str()?.parse::<SessionId>().ok());
        let id = named.unwrap_or(SessionId([0; 16]));
        let place = SessionPlace { id, workspace: workspace_of(dir, &[]), dir: dir.to_owned() };
        if storage.is_locked(&place.lock_path()) == Some(Locked::Held) {
            return Err(Error::locked(&place.lock_path(), owner::read(&storage, &place.lock_path())));
        }
        let found = survey(&place.log_dir(&storage), read)?;
        let (layout, mut seen) = choose(&found, named, read)?;
        let workspace_path = path_text(&storage, dir)
            .or_else(|| seen.created.as_ref().map(|created| created.workspace.0.clone()))
            .unwrap_or_default();
        let session = named.or(seen.identity()).unwrap_or_else(crate::new_session_id);
        let report = SalvageReport {
            session,
            other_identity: seen.identity().filter(|found| *found != session),
            source: dir.to_owned(),
            spans: std::mem::take(&mut seen.spans),
            left_out: layout.left_out.clone(),
            unreadable: std::mem::take(&mut seen.unreadable),
            broken_chain: std::mem::take(&mut seen.broken_chain),
            frames: seen.frames,
            records: seen.records,
            bytes: layout.bytes(),
            unproven_records: layout.unproven_records(),
            repeated_frames: layout.repeated,
            skipped_frames: layout.skipped,
            first_record: seen.first_record.unwrap_or(FirstRecord::Made),
        };
        let workspace = workspace_of(dir, &workspace_path);
        Ok(Self { storage, workspace, workspace_path, layout, report })
    }

    /// What was found.
    #[must_use]
    pub fn report(&self) -> &SalvageReport {
        &self.report
    }

    /// Writes the session into a new home at `home`, which must not exist or be an empty directory. `read` is told of the
    /// bytes of the hurt session as they are copied.
    ///
    /// The artifacts that it names are copied too, as far as they are whole; what they were derived from is not.
    ///
    /// Durable when it returns: the new home with the session. If it does not return, the home has a session without a log,
    /// and beside the log's place a directory `log.salvaging`: remove the home and try again.
    ///
    /// # Errors
    /// `Invalid` if there is something at `home`, or it is inside of the hurt session or of its home; `Conflict` if the hurt
    /// session was changed since it was read; `Full` or `Io` if the new one can't be written.
    pub fn carry_out(&self, home: &Path, read: &mut dyn FnMut(u64)) -> Result<SessionPlace> {
        self.check_target(home)?;
        let home = Home::create(Arc::clone(&self.storage), home)?;
        let place = home.place(self.workspace.clone(), self.report.session);
        home.create_session_dir(&self.workspace_path, &place)?;
        let log_id = LogId::from(Uuid::now_v7());
        let log = LogBuilder::begin(place.log_dir(&self.storage), LogOptions::default(), log_id)?;
        let mut copy = Copying { salvage: self, log, last_time: Timestamp(0), named: BTreeSet::new() };
        self.layout.walk(read, &mut |item| copy.item(item))?;
        let given = &self.report.source;
        let source = if in_home(given) { given.clone() } else { canonical(given) };
        if let Some(root) = root_of(&source).filter(|_| in_home(&source)) {
            let from = Home { storage: Arc::clone(&self.storage), root: root.to_owned() };
            let from = (&from, &self.workspace);
            artifacts::copy(from, (&home, &place.workspace), &copy.named, SystemClock.now())?;
        }
        copy.log.finish()?;
        Ok(place)
    }

    fn check_target(&self, home: &Path) -> Result<()> {
        let entry = self.storage.entry(home).map_err(|e| Error::io("looking at", home, e))?;
        if entry.is_some() {
            let names = self.storage.list(home);
            if names.is_err() || names.is_ok_and(|names| !names.is_empty()) {
                let message =
                    format!("{} is not an empty directory: a salvage goes into a new one", home.display());
                return Err(Error::invalid("salvage.not_empty", message));
            }
        }
        // A home is four directories above its sessions.
        let source = canonical(&self.report.source);
        let source_home = source.ancestors().nth(4).filter(|_| in_home(&source)).unwrap_or(&source);
        if canonical_of_new(home).starts_with(source_home) {
            let message = format!(
                "{} is inside of {}, which a salvage does not change: choose a directory elsewhere",
                home.display(),
                source_home.display()
            );
            return Err(Error::invalid("salvage.inside", message));
        }
        Ok(())
    }
}

/// Whether a session's directory is where a home has its sessions.
fn in_home(dir: &Path) -> bool {
    let mut names = dir.ancestors().skip(1).map(|dir| dir.file_name().and_then(|name| name.to_str()));
    let (sessions, hash, workspaces) = (names.next(), names.next(), names.next());
    sessions == Some(Some("sessions"))
        && hash.flatten().and_then(WorkspaceHash::parse).is_some()
        && workspaces == Some(Some("workspaces"))
}

/// The one spelling of a path that may not exist yet.
fn canonical_of_new(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(&path);
    let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
    canonical(there).join(rest)
}

/// The workspace that a session's directory is in; without the directories of a home, the one of its path.
fn workspace_of(dir: &Path, path: &[u8]) -> WorkspaceHash {
    let named = dir.parent().and_then(Path::parent).and_then(Path::file_name);
    named
        .and_then(|name| WorkspaceHash::parse(name.to_str()?))
        .filter(|_| in_home(dir))
        .unwrap_or_else(|| WorkspaceHash::of(&path_of_bytes(path)))
}

fn path_text(storage: &Arc<dyn Storage>, dir: &Path) -> Option<Vec<u8>> {
    let home = dir.ancestors().nth(4)?;
    let home = Home { storage: Arc::clone(storage), root: home.to_owned() };
    in_home(dir).then(|| home.workspace_path(&workspace_of(dir, &[]))).flatten()
}

/// Lays out the log that is the session's. Where files of several logs are mixed, that is the one with the session's id,
/// else the one that there is most of.
fn choose(found: &Survey, named: Option<SessionId>, read: &mut dyn FnMut(u64)) -> Result<(Layout, Seen)> {
    let lineages = found.lineages()?;
    let lineages: Vec<Option<&BTreeSet<LogId>>> =
        if lineages.is_empty() { vec![None] } else { lineages.iter().map(Some).collect() };
    let mut first = None;
    let mut failure = None;
    for lineage in lineages {
        let looked_at = found.layout(lineage).and_then(|layout| {
            let mut seen = Seen::default();
            layout.walk(read, &mut |item| seen.item(item))?;
            Ok((layout, seen))
        });
        match looked_at {
            Ok((layout, seen)) if named.is_some() && seen.identity() == named => return Ok((layout, seen)),
            Ok(other) => {
                first.get_or_insert(other);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                failure.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    let nothing = || Error::new(ErrorKind::NotFound, "salvage.nothing", "there is no log");
    first.ok_or_else(|| failure.unwrap_or_else(nothing))
}

/// What a first walk sees.
#[derive(Default)]
struct Seen {
    created: Option<SessionCreated>,
    forked: Option<SessionId>,
    spans: Vec<SalvagedSpan>,
    unreadable: Vec<UnreadableRecord>,
    broken_chain: Vec<Position>,
    frames: u64,
    records: u64,
    first_record: Option<FirstRecord>,
    last_message: Option<Neighbour>,
}

impl Seen {
    /// Whose log it is, as far as its events tell.
    fn identity(&self) -> Option<SessionId> {
        self.forked.or(self.created.as_ref().map(|created| created.session_id))
    }

    fn item(&mut self, item: Item<'_>) -> Result<()> {
        match item {
            Item::Span { span, known } => {
                let mut kinds = BTreeMap::new();
                if let Some((first, last)) = span.loss.positions() {
                    for entry in (first.0..=last.0).filter_map(|position| known(Position(position))) {
                        let count = kinds.entry(entry.kind).or_insert(0_u64);
                        *count = count.saturating_add(1);
                    }
                }
                let (span, after) = (span.clone(), self.last_message);
                self.spans.push(SalvagedSpan { span, after, before: None, known: kinds });
            }
            Item::Frame { frame, link, .. } => {
                self.frames = self.frames.saturating_add(1);
                if link == Link::Broken {
                    self.broken_chain.push(frame.header().fields.first_position);
                }
                frame.records().iter().for_each(|record| self.record(record));
            }
        }
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>) {
        self.records = self.records.saturating_add(1);
        let envelope = &record.envelope;
        let event = match logged(record) {
            Ok(logged) => logged.event,
            Err(error) => {
                if error.kind() == ErrorKind::Corrupt {
                    let (position, kind, schema) = (record.position, envelope.kind, envelope.schema);
                    self.unreadable.push(UnreadableRecord { position, kind, schema, error });
                }
                return;
            }
        };
        if record.position == Position(1) {
            self.first_record = Some(FirstRecord::Kept);
        }
        match event {
            Event::SessionCreated(created) if self.created.is_none() => self.created = Some(created),
            Event::SessionForked(forked) => self.forked = Some(forked.session_id),
            Event::MessageAppended(message) => {
                let (node, position) = (envelope.node, record.position);
                let (message_no, role) = (message.message_no, message.role);
                let message = Some(Neighbour { node, message_no, role, position });
                for span in self.spans.iter_mut().rev().take_while(|span| span.before.is_none()) {
                    span.before = message;
                }
                self.last_message = message;
            }
            _ => {}
        }
    }
}

/// Writes what a second walk sees.
struct Copying<'a> {
    salvage: &'a Salvage,
    log: LogBuilder,
    last_time: Timestamp,
    /// The artifacts that receipts name.
    named: BTreeSet<Digest>,
}

impl Copying<'_> {
    fn item(&mut self, item: Item<'_>) -> Result<()> {
        match item {
            Item::Frame { frame, epoch, .. } => {
                for event in frame.records().iter().filter_map(|record| logged(record).ok()) {
                    self.named.extend(receipts_of(&event.event).into_iter().map(|receipt| receipt.digest));
                }
                let records: Vec<(Envelope, Payload<'_>)> =
                    frame.records().iter().map(|record| (readable(record), record.payload)).collect();
                // A first record that is there and can't be read is made anew as one that is missing is.
                if self.log.next() == Position(1)
                    && self.salvage.report.first_record == FirstRecord::Made
                    && let Some((first, rest)) = frame.records().split_first()
                    && let Payload::Present(bytes) = first.payload
                {
                    let made = self.created(first.envelope.timestamp, Some(RawBytes(bytes.to_vec())))?;
                    let made = [(made.0, Payload::Present(&made.1))];
                    let rest = rest.iter().map(|record| (readable(record), record.payload));
                    let records: Vec<(Envelope, Payload<'_>)> = made.into_iter().chain(rest).collect();
                    return self.log.frame(epoch, &records);
                }
                if let Some((envelope, _)) = records.last() {
                    self.last_time = envelope.timestamp;
                }
                self.log.frame(epoch, &records)
            }
            Item::Span { span, known } => match span.loss.positions() {
                Some((first, last)) => self.fill(span, first, last, known),
                None => Ok(()),
            },
        }
    }

    /// Marks missing positions, each with a record. The first one of each conversation says why.
    fn fill(
        &mut self,
        span: &LostSpan,
        first: Position,
        last: Position,
        known: &dyn Fn(Position) -> Option<sessionlog_codec::footer::FooterEntry>,
    ) -> Result<()> {
        let mut told = BTreeSet::new();
        let mut from = first.0;
        while from <= last.0 {
            let to = last.0.min(from.saturating_add(FILL_FRAME).saturating_sub(1));
            let mut records = Vec::new();
            for position in (from..=to).map(Position) {
                let entry = known(position);
                let node = entry.map_or(NodeId::ROOT, |entry| entry.node);
                let time = entry.map_or(self.last_time, |entry| entry.timestamp);
                if position == Position(1) && self.salvage.report.first_record == FirstRecord::Made {
                    records.push(self.created(time, None)?);
                    continue;
                }
                let gap = if told.insert(node) {
                    marked(span, first, last)
                } else {
                    GapMarked {
                        file: String::new(),
                        offset: 0,
                        len: 0,
                        first: Some(position),
                        last: Some(position),
                        explanation: String::new(),
                    }
                };
                let mut envelope = Envelope::new(node, kind::GapMarked, SchemaVersion(1), time);
                envelope.time_origin = TimeOrigin::Estimated;
                records.push((envelope, Event::from(gap).encode()?));
            }
            self.log.frame(sessionlog_codec::ids::Epoch(1), &records)?;
            from = to.saturating_add(1);
        }
        Ok(())
    }

    /// A first record that says nothing that is not known.
    fn created(&self, time: Timestamp, extra: Option<RawBytes>) -> Result<(Envelope, Vec<u8>)> {
        let salvage = self.salvage;
        let created = SessionCreated {
            session_id: salvage.report.session,
            workspace: RawBytes(salvage.workspace_path.clone()),
            slug: slug(&path_of_bytes(&salvage.workspace_path)),
            goal: None,
            model: None,
            provider: None,
            preset: None,
            tool_registry_hash: None,
            host: Some(concat!("sessionlog ", env!("CARGO_PKG_VERSION"), " salvage").to_owned()),
            imported: None,
            extra,
        };
        let mut envelope = Envelope::new(NodeId::ROOT, kind::SessionCreated, SchemaVersion(1), time);
        envelope.time_origin = TimeOrigin::Estimated;
        Ok((envelope, Event::from(created).encode()?))
    }
}

/// The envelope of a record as it is carried along: as it is, unless its payload can't be decoded as what it claims to be.
fn readable(record: &Record<'_>) -> Envelope {
    let envelope = record.envelope.clone();
    match logged(record) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Envelope { schema: UNREADABLE, ..envelope },
        _ => envelope,
    }
}

fn marked(span: &LostSpan, first: Position, last: Position) -> GapMarked {
    let (which, they) = if first == last {
        (format!("the record at position {first}"), "it was")
    } else {
        (format!("the records at positions {first} to {last}"), "they were")
    };
    let proof = match span.loss {
        Loss::Acknowledged { .. } => format!("{they} acknowledged"),
        _ => format!("nothing proves that {they} acknowledged"),
    };
    GapMarked {
        file: span.file.clone(),
        offset: span.offset,
        len: span.len,
        first: Some(first),
        last: Some(last),
        explanation: format!("{which} could not be saved ({proof}): {}", span.found),
    }
}
