//! Views: `transcript.jsonl`, `.meta.json` and `cost.json`, kept beside the log for people and other programs.
//!
//! A view never outranks the log. Each refresh appends what is new; a view that does not match what is remembered of it
//! (edited, cut, deleted, full of zeros) is made anew, whole.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{Event, LoggedEvent};
use sessionlog_codec::ids::{Epoch, Position, SessionId};
use sessionlog_projections::views::{Dialect, MetaExtra, Pieces, Rendered, TranscriptRenderer, cost, meta};
use sessionlog_projections::{Recent, Status, Summary};

use super::Session;
use super::events::{EventItem, read_events};
use crate::error::{Error, Result};
use crate::log::LogReader;
use crate::num::to_u64;
use crate::storage::{Access, Storage};
use crate::store::{SessionPlace, StoreInner, ViewPolicy};

const TRANSCRIPT: &str = "transcript.jsonl";
const META: &str = ".meta.json";
const COST: &str = "cost.json";
/// The longest `.meta.json` that is read back, in bytes.
const META_LEN_MAX: u64 = 1 << 20;
/// Lines waiting for the next refresh, in bytes, before they are written ahead of it.
const PENDING_LEN_MAX: usize = 256 << 10;

/// What is remembered of `transcript.jsonl`, inside `.meta.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Remembered {
    dialect: String,
    /// The last event that is in the file.
    position: Position,
    /// The ownership that wrote the file. A later one may have found less of the log than this one had written.
    #[serde(default)]
    epoch: Epoch,
    /// How many erased records the log had when the file was written: what was erased since may still be in it.
    #[serde(default)]
    erased: u64,
    /// The file's length.
    bytes: u64,
    /// The BLAKE3 hash of the whole file, in hexadecimal.
    blake3: String,
    renderer: TranscriptRenderer,
}

/// Whether the file on disk is what is remembered of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Match {
    Yes,
    /// It has to be made anew, because of this.
    No(&'static str),
}

/// The views of one owned session.
#[derive(Debug)]
pub(crate) struct Views {
    policy: ViewPolicy,
    dialect: Dialect,
    session_id: SessionId,
    dir: PathBuf,
    renderer: TranscriptRenderer,
    position: Position,
    epoch: Epoch,
    /// Erased records of the log, and as of when the file was written.
    erased: u64,
    erased_then: u64,
    bytes: u64,
    hasher: blake3::Hasher,
    pending: String,
    matching: Match,
    /// What was found wrong when the session was opened.
    problems: Vec<String>,
}

impl Default for Views {
    fn default() -> Self {
        Self::blank(ViewPolicy::Off, Dialect::Seed, SessionId([0; 16]), PathBuf::new())
    }
}

impl Views {
    fn blank(policy: ViewPolicy, dialect: Dialect, session_id: SessionId, dir: PathBuf) -> Self {
        Self {
            policy,
            dialect,
            session_id,
            dir,
            renderer: TranscriptRenderer::new(dialect, session_id),
            position: Position::START,
            epoch: Epoch(0),
            erased: 0,
            erased_then: 0,
            bytes: 0,
            hasher: blake3::Hasher::new(),
            pending: String::new(),
            matching: Match::No("there is none yet"),
            problems: Vec::new(),
        }
    }

    /// The views of a new session.
    pub(crate) fn new(store: &StoreInner, place: &SessionPlace) -> Self {
        Self::blank(store.options.views, store.options.dialect, place.id, place.dir.clone())
    }

    /// The views of a session that exists: gone on with if they are what is remembered of them, else made anew.
    pub(crate) fn load(store: &StoreInner, place: &SessionPlace) -> Self {
        let mut views = Self::new(store, place);
        if views.policy != ViewPolicy::Keep {
            return views;
        }
        let storage = &store.home.storage;
        match read_remembered(storage, &place.dir) {
            Err(problem) => views.problems.push(format!("{META} ({problem})")),
            Ok(remembered) if remembered.dialect != views.dialect.to_string() => {
                views.matching = Match::No("it is in another dialect");
            }
            Ok(remembered) => match hash_file(storage, &place.dir.join(TRANSCRIPT), remembered.bytes) {
                Some(hasher) if hasher.finalize().to_hex().as_str() == remembered.blake3 => {
                    views.renderer = remembered.renderer;
                    views.position = remembered.position;
                    views.epoch = remembered.epoch;
                    views.erased_then = remembered.erased;
                    views.bytes = remembered.bytes;
                    views.hasher = hasher;
                    views.matching = Match::Yes;
                }
                _ => views.problems.push(TRANSCRIPT.to_owned()),
            },
        }
        views
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }

    /// The same views without the lines that wait: their events may never have come into the log.
    pub(crate) fn forget_pending(self) -> Self {
        let mut views = Self::blank(self.policy, self.dialect, self.session_id, self.dir);
        views.matching = Match::No("an append failed");
        views
    }

    pub(crate) fn mark_stale(&mut self) {
        self.matching = Match::No("an append failed");
    }

    /// Takes over what a snapshot tells of the log before it: who owned it, and how much of it is erased.
    pub(crate) fn go_on_behind<const MAX: usize>(
        &mut self,
        openings: &Recent<Epoch, Position, MAX>,
        erased: u64,
    ) {
        self.erased = erased;
        let newest = openings.keys().last().copied().unwrap_or_default();
        // A later ownership than the one that wrote the file began within what it shows.
        let overtaken = openings.iter().any(|(epoch, at)| *epoch > self.epoch && *at <= self.position);
        // Or it may have: that ownership is too old to be remembered.
        let forgotten = openings.len() == MAX && openings.get(&self.epoch).is_none();
        if overtaken || (forgotten && self.position > Position::START) {
            self.matching = Match::No("what it shows was lost before it was durable");
        }
        self.epoch = self.epoch.max(newest);
    }

    /// The first position that it lacks of those before `next`, if it can be gone on with.
    pub(crate) fn first_missing(&self, next: Position) -> Option<Position> {
        let first = self.position.next()?;
        let goes_on = self.policy == ViewPolicy::Keep && self.matching == Match::Yes;
        (goes_on && first < next).then_some(first)
    }

    pub(crate) fn set_erased(&mut self, erased: u64) {
        self.erased = erased;
    }

    /// Renders an event that is behind what the file has. Called with each append, so it does no I/O.
    pub(crate) fn apply(&mut self, event: &LoggedEvent) {
        if let Event::SessionOpened(opened) = &event.event
            && opened.epoch > self.epoch
        {
            self.epoch = opened.epoch;
            if event.position <= self.position {
                self.matching = Match::No("what it shows was lost before it was durable");
            }
        }
        if self.policy != ViewPolicy::Keep || self.matching != Match::Yes || event.position <= self.position {
            return;
        }
        match self.renderer.render(event) {
            Rendered::Nothing => {}
            Rendered::Lines(lines) => {
                for line in lines {
                    self.pending.push_str(&line);
                    self.pending.push('\n');
                }
            }
            Rendered::Rebuild => {
                self.matching = Match::No("an event changed an earlier line");
                self.pending = String::new();
            }
        }
        self.position = event.position;
    }

    pub(crate) fn wants_flush(&self) -> bool {
        self.pending.len() > PENDING_LEN_MAX
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Brings all three files up to date.
    fn refresh(
        &mut self,
        storage: &Arc<dyn Storage>,
        log: &LogReader,
        last: Position,
        summary: &Summary,
        status: Status,
    ) -> Result<()> {
        if self.matching == Match::Yes && self.erased != self.erased_then {
            self.matching = Match::No("records were erased since it was written");
        }
        if self.matching == Match::Yes {
            self.append_pending(storage)?;
        }
        if let Match::No(why) = self.matching {
            tracing::debug!(session = %self.session_id, why, "transcript.jsonl is made anew");
            self.rebuild(storage, log, last)?;
        }
        let remembered = Remembered {
            dialect: self.dialect.to_string(),
            position: self.position,
            epoch: self.epoch,
            erased: self.erased_then,
            bytes: self.bytes,
            blake3: self.hasher.finalize().to_hex().to_string(),
            renderer: self.renderer.clone(),
        };
        let view = serde_json::to_value(&remembered).unwrap_or_default();
        replace(
            storage,
            &self.path(META),
            meta(self.dialect, summary, status, &MetaExtra { view }).as_bytes(),
        )?;
        replace(storage, &self.path(COST), cost(summary).as_bytes())
    }

    fn append_pending(&mut self, storage: &Arc<dyn Storage>) -> Result<()> {
        let path = self.path(TRANSCRIPT);
        let file = match storage.open(&path, Access::ReadWrite) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.matching = Match::No("it was deleted");
                return Ok(());
            }
            Err(error) => return Err(Error::io("opening", &path, error)),
        };
        if file.len().map_err(|e| Error::io("measuring", &path, e))? != self.bytes {
            self.matching = Match::No("its length changed");
            return Ok(());
        }
        let lines = std::mem::take(&mut self.pending);
        if let Err(error) = file.write_at(lines.as_bytes(), self.bytes) {
            self.matching = Match::No("writing to it failed");
            return Err(Error::io("writing", &path, error));
        }
        self.hasher.update(lines.as_bytes());
        self.bytes = self.bytes.saturating_add(to_u64(lines.len()));
        Ok(())
    }

    /// Renders the whole log into a new file that takes the old one's place.
    fn rebuild(&mut self, storage: &Arc<dyn Storage>, log: &LogReader, last: Position) -> Result<()> {
        let (path, temporary) = (self.path(TRANSCRIPT), self.path("transcript.jsonl.tmp"));
        let file = create_over(storage, &temporary)?;
        let mut hasher = blake3::Hasher::new();
        let mut bytes = 0_u64;
        let mut chunk = String::new();
        let mut write = |chunk: &mut String, all: bool| -> Result<()> {
            if chunk.len() >= PENDING_LEN_MAX || (all && !chunk.is_empty()) {
                file.write_at(chunk.as_bytes(), bytes).map_err(|e| Error::io("writing", &temporary, e))?;
                hasher.update(chunk.as_bytes());
                bytes = bytes.saturating_add(to_u64(chunk.len()));
                chunk.clear();
            }
            Ok(())
        };
        let renderer =
            render_log(log, last, TranscriptRenderer::new(self.dialect, self.session_id), &mut |line| {
                chunk.push_str(line);
                chunk.push('\n');
                write(&mut chunk, false)
            })?;
        write(&mut chunk, true)?;
        storage.rename(&temporary, &path).map_err(|e| Error::io("renaming", &temporary, e))?;
        self.renderer = renderer;
        self.position = last;
        self.erased_then = self.erased;
        self.bytes = bytes;
        self.hasher = hasher;
        self.pending = String::new();
        self.matching = Match::Yes;
        Ok(())
    }
}

impl Session {
    /// Brings `transcript.jsonl`, `.meta.json` and `cost.json` up to date: O(what is new). Done by
    /// [`end_turn`](Self::end_turn), [`finish`](Self::finish) and [`close`](Self::close) too.
    ///
    /// Views are not durable and need not be: they are made anew from the log. A view that can't be written is reported to
    /// the host's log and tried again the next time.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log has to be read anew after a failed append and can't be.
    pub fn refresh_views(&self) -> Result<()> {
        if self.store.options.views == ViewPolicy::Keep { self.make_views() } else { Ok(()) }
    }

    /// Brings the views up to date when the session is let go of.
    pub(super) fn refresh_views_at_close(&self) -> Result<()> {
        if self.store.options.views == ViewPolicy::Off { Ok(()) } else { self.make_views() }
    }

    fn make_views(&self) -> Result<()> {
        if let Some(error) = self.try_to_make_views()? {
            tracing::warn!(session = %self.place.id, %error, "the views could not be written");
        }
        Ok(())
    }

    /// Makes the views anew after records were erased.
    ///
    /// # Errors
    /// Whatever kept them from being written: the old ones may still show what was erased.
    pub(super) fn views_without_the_erased(&self) -> Result<()> {
        if self.store.options.views != ViewPolicy::Off {
            return self.try_to_make_views()?.map_or(Ok(()), Err);
        }
        // Another host may have kept some.
        let storage = &self.store.home.storage;
        for name in [TRANSCRIPT, META, COST] {
            let path = self.place.dir.join(name);
            match storage.remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("removing", &path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What kept the views from being written, if anything.
    fn try_to_make_views(&self) -> Result<Option<Error>> {
        let mut state = self.state()?;
        self.wait_for_queued()?;
        let state = &mut *state;
        let last = Position(state.next.0.saturating_sub(1));
        let status = state.summary.status(sessionlog_projections::Liveness::Alive);
        let storage = &self.store.home.storage;
        Ok(state.views.refresh(storage, &self.log, last, &state.summary, status).err())
    }
}

/// Renders a log, giving each line to `line`, and returns the renderer as it stands at the end. The log is read twice, so
/// that later pieces of a message come out with it and nothing but those pieces is held in memory.
pub(crate) fn render_log(
    log: &LogReader,
    last: Position,
    mut renderer: TranscriptRenderer,
    line: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<TranscriptRenderer> {
    let mut pieces = Pieces::of(renderer.node());
    each_event(log, last, &mut |event| {
        pieces.note(event);
        Ok(())
    })?;
    each_event(log, last, &mut |event| {
        if let Rendered::Lines(lines) = renderer.render(&pieces.whole(event)) {
            lines.iter().try_for_each(|text| line(text))?;
        }
        Ok(())
    })?;
    Ok(renderer)
}

fn each_event(
    log: &LogReader,
    last: Position,
    visit: &mut dyn FnMut(&LoggedEvent) -> Result<()>,
) -> Result<()> {
    let mut failure = None;
    read_events(log, Position(1), &mut |item| {
        let EventItem::Event(event) = item else { return ControlFlow::Continue(()) };
        if event.position > last {
            return ControlFlow::Break(());
        }
        match visit(&event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failure.map_or(Ok(()), Err)
}

fn read_remembered(storage: &Arc<dyn Storage>, dir: &Path) -> std::result::Result<Remembered, &'static str> {
    let file = storage.open(&dir.join(META), Access::Read).map_err(|_| "missing or unreadable")?;
    let len = file.len().map_err(|_| "unreadable")?.min(META_LEN_MAX);
    let mut bytes = vec![0; crate::num::to_usize(len)];
    let read = file.read_at(&mut bytes, 0).map_err(|_| "unreadable")?;
    bytes.truncate(read);
    #[derive(Deserialize)]
    struct Meta {
        sessionlog: Ours,
    }
    #[derive(Deserialize)]
    struct Ours {
        view: Remembered,
    }
    serde_json::from_slice::<Meta>(&bytes).map(|meta| meta.sessionlog.view).map_err(|_| "damaged")
}

/// The running hash of a file of exactly `len` bytes; `None` if it is another length or unreadable.
fn hash_file(storage: &Arc<dyn Storage>, path: &Path, len: u64) -> Option<blake3::Hasher> {
    let file = storage.open(path, Access::Read).ok()?;
    if file.len().ok()? != len {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; PENDING_LEN_MAX];
    let mut offset = 0;
    while offset < len {
        let read = file.read_at(&mut buffer, offset).ok()?;
        if read == 0 {
            return None;
        }
        hasher.update(buffer.get(..read)?);
        offset = offset.saturating_add(to_u64(read));
    }
    Some(hasher)
}

fn create_over(storage: &Arc<dyn Storage>, path: &Path) -> Result<Arc<dyn crate::storage::StorageFile>> {
    match storage.create_new(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            storage.remove_file(path).map_err(|e| Error::io("removing", path, e))?;
            storage.create_new(path).map_err(|e| Error::io("creating", path, e))
        }
        other => other.map_err(|e| Error::io("creating", path, e)),
    }
}

/// Replaces a small file by rename, so that a reader sees the old text or the new one.
fn replace(storage: &Arc<dyn Storage>, path: &Path, text: &[u8]) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let file = create_over(storage, &temporary)?;
    file.write_at(text, 0).map_err(|e| Error::io("writing", &temporary, e))?;
    storage.rename(&temporary, path).map_err(|e| Error::io("renaming", &temporary, e))
}
