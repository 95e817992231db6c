//! Views: `transcript.jsonl`, `.meta.json` and `cost.json`, kept beside the log for people and other programs.
//!
//! A view never outranks the log. Each refresh appends what is new; a view that does not match what is remembered of it
//! (edited near its end, cut, deleted, full of zeros) is made anew, whole. What of it was synced is not looked at again: a
//! change far from its end, which only somebody else makes, stays until the view is deleted.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::LoggedEvent;
use sessionlog_codec::ids::{Epoch, Position, SessionId};
use sessionlog_projections::views::{Dialect, MetaExtra, Pieces, Rendered, TranscriptRenderer, cost, meta};
use sessionlog_projections::{Recent, Status, Summary};

use super::Session;
use super::erasure::remove_if_there;
use super::events::{EventItem, event_item, read_events};
use super::folds::OPENINGS_MAX;
use crate::error::{Error, Result};
use crate::log::{Cursor, LogReader, ReadItem};
use crate::num::to_u64;
use crate::storage::{Access, Storage, StorageFile};
use crate::store::{SessionPlace, StoreInner, ViewPolicy};

const TRANSCRIPT: &str = "transcript.jsonl";
const META: &str = ".meta.json";
const COST: &str = "cost.json";
/// The longest `.meta.json` that is read back, in bytes.
const META_LEN_MAX: u64 = 1 << 20;
/// How much is written and read at once, in bytes.
const CHUNK_LEN: usize = 256 << 10;
/// How much of a view may be unsynced at the end of a refresh, in bytes.
const UNSYNCED_LEN_MAX: u64 = 256 << 10;

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
    /// Up to here the file was synced.
    #[serde(default)]
    synced: u64,
    /// The BLAKE3 hash of what is behind that, in hexadecimal.
    blake3: String,
    renderer: TranscriptRenderer,
}

/// What the views are made of.
struct Shown<'a> {
    log: &'a LogReader,
    last: Position,
    /// Where each ownership begins: the last ones.
    openings: &'a Recent<Epoch, Position, OPENINGS_MAX>,
    erased: u64,
    summary: &'a Summary,
    status: Status,
}

/// Whether the file on disk is what is remembered of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Match {
    Yes,
    /// It has to be made anew, because of this.
    No(&'static str),
}

/// The views of one owned session. What is new is read from the log when they are refreshed, so that an append does nothing
/// for them.
#[derive(Debug)]
pub(crate) struct Views {
    policy: ViewPolicy,
    dialect: Dialect,
    session_id: SessionId,
    dir: PathBuf,
    renderer: TranscriptRenderer,
    position: Position,
    /// Where the log is read on from.
    cursor: Option<Cursor>,
    epoch: Epoch,
    erased: u64,
    bytes: u64,
    synced: u64,
    /// Of the bytes behind `synced`.
    hasher: blake3::Hasher,
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
            cursor: None,
            epoch: Epoch(0),
            erased: 0,
            bytes: 0,
            synced: 0,
            hasher: blake3::Hasher::new(),
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
            Ok(remembered) => match hash_file(storage, &place.dir.join(TRANSCRIPT), &remembered) {
                Some(hasher) if hasher.finalize().to_hex().as_str() == remembered.blake3 => {
                    views.renderer = remembered.renderer;
                    views.position = remembered.position;
                    views.epoch = remembered.epoch;
                    views.erased = remembered.erased;
                    views.bytes = remembered.bytes;
                    views.synced = remembered.synced;
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

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Brings all three files up to date.
    fn refresh(&mut self, storage: &Arc<dyn Storage>, shown: &Shown<'_>) -> Result<()> {
        if let Some(why) = self.outdated(shown) {
            self.matching = Match::No(why);
        }
        if self.matching == Match::Yes {
            self.append_new(storage, shown)?;
        }
        if let Match::No(why) = self.matching {
            tracing::debug!(session = %self.session_id, why, "transcript.jsonl is made anew");
            self.rebuild(storage, shown)?;
        }
        self.epoch = shown.openings.keys().last().copied().unwrap_or_default();
        let remembered = Remembered {
            dialect: self.dialect.to_string(),
            position: self.position,
            epoch: self.epoch,
            erased: self.erased,
            bytes: self.bytes,
            synced: self.synced,
            blake3: self.hasher.finalize().to_hex().to_string(),
            renderer: self.renderer.clone(),
        };
        let view = serde_json::to_value(&remembered).unwrap_or_default();
        let (summary, status) = (shown.summary, shown.status);
        let text = meta(self.dialect, summary, status, &MetaExtra { view });
        replace(storage, &self.path(META), text.as_bytes())?;
        replace(storage, &self.path(COST), cost(summary).as_bytes())
    }

    /// Why the file can't be gone on with, by what became of the log since it was written.
    fn outdated(&self, shown: &Shown<'_>) -> Option<&'static str> {
        let openings = shown.openings;
        // A later ownership than the one that wrote the file began within what it shows.
        let overtaken = openings.iter().any(|(epoch, at)| *epoch > self.epoch && *at <= self.position);
        // Or it may have: ownerships that long ago are not remembered.
        let forgotten = openings.len() == OPENINGS_MAX && openings.get(&self.epoch).is_none();
        if overtaken || forgotten {
            Some("what it shows was lost before it was durable")
        } else if self.erased != shown.erased {
            Some("records were erased since it was written")
        } else {
            None
        }
    }

    /// Renders what came into the log since, behind what the file has.
    fn append_new(&mut self, storage: &Arc<dyn Storage>, shown: &Shown<'_>) -> Result<()> {
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
        let from = self.position.next().unwrap_or(self.position);
        let mut cursor = match self.cursor.take() {
            Some(cursor) if cursor.position() == from => cursor,
            _ => shown.log.cursor(from),
        };
        let mut out = Growing::new(file, path, (self.bytes, self.synced), self.hasher.clone());
        // Until all of it is there, the file is not what is remembered.
        self.matching = Match::No("writing to it failed");
        let mut outcome = Ok(Match::Yes);
        cursor.advance(&mut |item| {
            let ReadItem::Record(record) = item else { return ControlFlow::Continue(()) };
            if record.position > shown.last {
                return ControlFlow::Break(());
            }
            // What can't be read has no line, here as in a view that is made anew.
            let EventItem::Event(event) = event_item(&record) else { return ControlFlow::Continue(()) };
            match self.renderer.render(&event) {
                Rendered::Nothing => ControlFlow::Continue(()),
                Rendered::Lines(lines) => match lines.iter().try_for_each(|line| out.line(line)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        outcome = Err(error);
                        ControlFlow::Break(())
                    }
                },
                Rendered::Rebuild => {
                    outcome = Ok(Match::No("an event changed an earlier line"));
                    ControlFlow::Break(())
                }
            }
        })?;
        match outcome? {
            Match::Yes => {
                self.take(out.finish()?, shown);
                self.cursor = Some(cursor);
            }
            changed @ Match::No(_) => self.matching = changed,
        }
        Ok(())
    }

    /// The file is as it was written now.
    fn take(&mut self, (bytes, synced, hasher): (u64, u64, blake3::Hasher), shown: &Shown<'_>) {
        (self.bytes, self.synced, self.hasher) = (bytes, synced, hasher);
        self.position = shown.last;
        self.erased = shown.erased;
        self.matching = Match::Yes;
    }

    /// Renders the whole log into a new file that takes the old one's place.
    fn rebuild(&mut self, storage: &Arc<dyn Storage>, shown: &Shown<'_>) -> Result<()> {
        let (path, temporary) = (self.path(TRANSCRIPT), self.path("transcript.jsonl.tmp"));
        let file = create_over(storage, &temporary)?;
        let mut out = Growing::new(file, temporary.clone(), (0, 0), blake3::Hasher::new());
        let renderer = TranscriptRenderer::new(self.dialect, self.session_id);
        let renderer = render_log(shown.log, shown.last, renderer, &mut |line| out.line(line))?;
        let written = out.finish()?;
        storage.rename(&temporary, &path).map_err(|e| Error::io("renaming", &temporary, e))?;
        self.renderer = renderer;
        self.cursor = None;
        self.take(written, shown);
        Ok(())
    }
}

/// A file that grows line by line.
struct Growing {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    chunk: String,
    bytes: u64,
    synced: u64,
    hasher: blake3::Hasher,
}

impl Growing {
    fn new(
        file: Arc<dyn StorageFile>,
        path: PathBuf,
        (bytes, synced): (u64, u64),
        hasher: blake3::Hasher,
    ) -> Self {
        Self { file, path, chunk: String::new(), bytes, synced, hasher }
    }

    fn line(&mut self, line: &str) -> Result<()> {
        self.chunk.push_str(line);
        self.chunk.push('\n');
        if self.chunk.len() >= CHUNK_LEN { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let bytes = self.chunk.as_bytes();
        self.file.write_at(bytes, self.bytes).map_err(|e| Error::io("writing", &self.path, e))?;
        self.hasher.update(bytes);
        self.bytes = self.bytes.saturating_add(to_u64(bytes.len()));
        self.chunk.clear();
        Ok(())
    }

    /// Writes the rest. What was synced is not looked at again when the session is opened, so that this costs the same
    /// however long the file is.
    fn finish(mut self) -> Result<(u64, u64, blake3::Hasher)> {
        if !self.chunk.is_empty() {
            self.write()?;
        }
        if self.bytes.saturating_sub(self.synced) > UNSYNCED_LEN_MAX {
            self.file.sync_data().map_err(|e| Error::sync(&self.path, e))?;
            self.synced = self.bytes;
            self.hasher = blake3::Hasher::new();
        }
        Ok((self.bytes, self.synced, self.hasher))
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
            remove_if_there(&**storage, &self.place.dir.join(name))?;
        }
        Ok(())
    }

    /// What kept the views from being written, if anything.
    fn try_to_make_views(&self) -> Result<Option<Error>> {
        let mut state = self.state()?;
        self.wait_for_queued()?;
        let state = &mut *state;
        let shown = Shown {
            log: &self.log,
            last: Position(state.next.0.saturating_sub(1)),
            openings: &state.folds.openings,
            erased: state.folds.erased,
            summary: &state.folds.summary,
            status: state.folds.summary.status(sessionlog_projections::Liveness::Alive),
        };
        Ok(state.views.refresh(&self.store.home.storage, &shown).err())
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

/// The running hash of what is behind the synced part of a file; `None` if it is of another length or unreadable.
fn hash_file(storage: &Arc<dyn Storage>, path: &Path, remembered: &Remembered) -> Option<blake3::Hasher> {
    let file = storage.open(path, Access::Read).ok()?;
    let (mut offset, len) = (remembered.synced, remembered.bytes);
    if file.len().ok()? != len {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; CHUNK_LEN];
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

fn create_over(storage: &Arc<dyn Storage>, path: &Path) -> Result<Arc<dyn StorageFile>> {
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
