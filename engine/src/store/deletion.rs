//! Deleting a root session, and forgetting one: previewed, whole or not at all, and for good.
//!
//! ```text
//! <home>/deletions/lock                          one deletion at a time
//! <home>/deletions/<uuid>.json                   what is being deleted, until nothing of it is left
//! <home>/workspaces/<hash>/sessions/<uuid>.deleted
//! ```
//!
//! The one step that decides is the renaming of the session's directory, under the session's lock: before it, nothing
//! happened; after it, no reader, listing or owner finds the session, and what is left to do is known from the note beside.
//! Whoever opens the store next does it, or takes the note back if the renaming never happened.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{ArchiveFate, Event, LoggedEvent, TreeDeleted};
use sessionlog_codec::ids::{Digest, KindNo, Position, SessionId};
use sessionlog_codec::registry::kind;

use super::outlived;
use super::owner::{self, Owner, Patience};
use super::shared_log::{Caught, SharedFold, SharedLog};
use super::workspace::WorkspaceHash;
use super::{Home, SessionPlace, SessionRow, Store, StoreInner, StoreReader, not_found, path_of_bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{Access, EntryKind, Lock};

const DELETIONS: &str = "deletions";
const LOCK: &str = "lock";
const NOTE: &str = ".json";
const DELETED: &str = ".deleted";
/// The longest note that is read, in bytes: of a session that names a hundred thousand artifacts.
const NOTE_LEN_MAX: u64 = 8 << 20;

/// What deleting or forgetting a session takes along, and what it leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionPlan {
    /// The session.
    pub session: SessionId,
    /// Its workspace.
    pub workspace: WorkspaceHash,
    /// Whether its archive stays, to be found by searches, or goes too.
    pub archive: ArchiveFate,
    /// Whether the session is there; `false`: it was deleted before, and only what outlived it is left.
    pub is_there: bool,
    /// What it is called.
    pub title: Option<String>,
    /// How many conversations it has, its own among them.
    pub conversations: u64,
    /// How many messages and results they have.
    pub messages: u64,
    /// Its log's last position.
    pub last: Position,
    /// Bytes of its files: log, views, snapshots, quarantine. What it shares with forks stays on disk for them.
    pub bytes: u64,
    /// Of a preview: sessions that were forked from it. They keep the history they began with.
    pub forks: Vec<SessionId>,
    /// The artifacts that its records name, of a session that is forgotten. Those that others name too stay.
    pub artifacts: Vec<Digest>,
    /// Files that somebody put into the home beside what we keep there, and that name the session: forgotten with it.
    pub exports: Vec<PathBuf>,
    /// What is wrong with it, if anything. A broken session can be deleted.
    pub issue: Option<String>,
}

/// What is written down before a session is deleted, to be finished by anybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    session: SessionId,
    workspace: String,
    archive: ArchiveFate,
    last: Position,
    artifacts: Vec<Digest>,
    /// Paths below the home, as their bytes.
    exports: Vec<Vec<u8>>,
}

impl Note {
    fn of(home: &Home, plan: &DeletionPlan) -> Self {
        let below = plan.exports.iter().filter_map(|path| path.strip_prefix(&home.root).ok());
        Self {
            exports: below.map(|path| path.as_os_str().as_encoded_bytes().to_vec()).collect(),
            session: plan.session,
            workspace: plan.workspace.as_str().to_owned(),
            archive: plan.archive,
            last: plan.last,
            artifacts: plan.artifacts.clone(),
        }
    }

    /// Where it was; `None` if there is no such workspace. The note was on disk: it leads nowhere outside of the home.
    fn place(&self, home: &Home) -> Result<Option<SessionPlace>> {
        let Some(workspace) = WorkspaceHash::parse(&self.workspace) else { return Ok(None) };
        let is_there = home.is_dir(&home.workspace_dir(&workspace))?;
        Ok(is_there.then(|| home.place(workspace, self.session)))
    }

    /// The exports, but for paths that lead elsewhere.
    fn exports(&self, home: &Home) -> Vec<PathBuf> {
        let paths = self.exports.iter().map(|bytes| path_of_bytes(bytes));
        let stays = |path: &PathBuf| path.components().all(|part| matches!(part, Component::Normal(_)));
        paths.filter(stays).map(|path| home.root.join(path)).collect()
    }
}

/// The sessions of a workspace that were deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeletedTrees(std::collections::BTreeMap<SessionId, ArchiveFate>);

impl DeletedTrees {
    pub(super) fn has(&self, session: SessionId) -> bool {
        self.0.contains_key(&session)
    }
}

impl SharedFold for DeletedTrees {
    const KINDS: &'static [KindNo] = &[kind::TreeDeleted];

    fn apply(&mut self, event: &LoggedEvent) {
        if let Event::TreeDeleted(deleted) = &event.event {
            self.0.insert(deleted.session_id, deleted.archive);
        }
    }
}

impl Store {
    /// Deletes a root session with all conversations in it: its log, views, snapshots and quarantine. Its archive stays: what
    /// was said and done in it is still found by searches of the workspace, until it is [forgotten](Self::forget).
    ///
    /// Durable when it returns: all of it. After an error or a crash, the session is there as it was, or it is gone for
    /// everybody, and whoever opens the store next removes what is left of its files. Its id is not used again.
    ///
    /// # Errors
    /// `NotFound` if there is no such session; `Locked` if somebody owns it, or another deletion is under way; `Full` or `Io`.
    pub fn delete(&self, id: SessionId) -> Result<DeletionPlan> {
        delete(&self.inner, id, ArchiveFate::Kept)
    }

    /// Deletes a root session and all that outlives one: its archive, the artifacts that nothing else names, vectors that were
    /// computed from it, the search index and the catalog (they are made anew), and files in the home that name it. After it no
    /// byte of the session's text is under the home, unless somebody else has it too: a fork of it, another session that names
    /// the same artifact, or the library, which keeps what was learned from it (and the propositions that it did not take).
    ///
    /// Durable when it returns, and after an error or a crash: as for [`delete`](Self::delete).
    ///
    /// # Errors
    /// As [`delete`](Self::delete); `NotFound` only if there is no archive either.
    pub fn forget(&self, id: SessionId) -> Result<DeletionPlan> {
        delete(&self.inner, id, ArchiveFate::Erased)
    }
}

impl StoreReader {
    /// What [`Store::delete`] would take along. Changes nothing.
    ///
    /// # Errors
    /// `NotFound` if there is no such session; `Io` if the home can't be read.
    pub fn plan_deletion(&self, id: SessionId) -> Result<DeletionPlan> {
        self.preview(id, ArchiveFate::Kept)
    }

    /// What [`Store::forget`] would take along. Changes nothing.
    ///
    /// # Errors
    /// As [`plan_deletion`](Self::plan_deletion); also found is a session that was deleted and left an archive.
    pub fn plan_forgetting(&self, id: SessionId) -> Result<DeletionPlan> {
        self.preview(id, ArchiveFate::Erased)
    }

    fn preview(&self, id: SessionId, archive: ArchiveFate) -> Result<DeletionPlan> {
        let mut plan = plan(self, id, archive)?;
        let forked = |row: &SessionRow| row.forked.is_some_and(|from| from.session == id);
        plan.forks = self.list()?.into_iter().filter(forked).map(|row| row.root).collect();
        plan.forks.sort_unstable();
        plan.forks.dedup();
        Ok(plan)
    }
}

fn plan(reader: &StoreReader, id: SessionId, archive: ArchiveFate) -> Result<DeletionPlan> {
    let home = &reader.home;
    let place = find(home, id, archive)?;
    let is_there = home.is_dir(&place.dir)?;
    let rows = if is_there { reader.rows(place.clone()) } else { Vec::new() };
    let root = rows.first();
    let session = reader.session_at(place.clone());
    // A log that can't be read to its end can be deleted all the same.
    let mark = session.log().mark().ok().flatten();
    let last = mark.map_or(Position::START, |mark| Position(mark.next.0.saturating_sub(1)));
    let (mut artifacts, mut exports) = (Vec::new(), Vec::new());
    if archive == ArchiveFate::Erased {
        artifacts = outlived::artifacts_of(home, &place)?;
        exports = outlived::exports_of(home, &place);
    }
    Ok(DeletionPlan {
        session: id,
        archive,
        is_there,
        title: root.and_then(|row| row.title.clone()),
        conversations: rows.len().try_into().unwrap_or(u64::MAX),
        messages: rows.iter().map(|row| row.messages).fold(0, u64::saturating_add),
        last,
        bytes: home.bytes_below(&place.dir).saturating_add(home.bytes_below(&home.archive_dir(&place))),
        forks: Vec::new(),
        artifacts,
        exports,
        issue: root.and_then(|row| row.issue.clone()),
        workspace: place.workspace,
    })
}

/// Where a session is. One that is to be forgotten may be deleted already, and its archive all that is left of it.
fn find(home: &Home, id: SessionId, archive: ArchiveFate) -> Result<SessionPlace> {
    if let Some(place) = home.find(id)? {
        return Ok(place);
    }
    for workspace in home.workspaces()? {
        let place = home.place(workspace, id);
        if archive == ArchiveFate::Erased && home.is_dir(&home.archive_dir(&place))? {
            return Ok(place);
        }
    }
    Err(not_found(&id.to_string()))
}

fn delete(store: &Arc<StoreInner>, id: SessionId, archive: ArchiveFate) -> Result<DeletionPlan> {
    let home = &store.home;
    home.create_dir(&home.root.join(DELETIONS))?;
    let _one_at_a_time = lock(store, Patience::Seconds)?;
    let Finished { done, failed } = finish_all(store)?;
    for (session, error) in failed {
        if session == id {
            return Err(error);
        }
        tracing::warn!(%session, %error, "a deletion that was interrupted could not be finished");
    }
    let place = match find(home, id, archive) {
        // What a crash had left of this very deletion was finished just now.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return done.into_iter().find(|done| done.session == id && done.archive == archive).ok_or(error);
        }
        place => place?,
    };
    let this = Owner::this_process(store.now_text());
    let is_there = home.is_dir(&place.dir)?;
    let _owned = is_there.then(|| owner::take(&home.storage, &place.lock_path(), &this)).transpose()?;
    // What would be refused later on is refused before anything is decided.
    let workspace = home.workspace_dir(&place.workspace);
    for dir in [
        &place.dir,
        &home.archive_dir(&place),
        &workspace.join("index/any"),
        &workspace.join("artifacts/any"),
    ] {
        home.check_no_link_above(dir)?;
    }
    home.check_no_link_above(&home.root.join("index/any"))?;
    let plan = plan(&StoreReader { home: home.clone() }, id, archive)?;
    let note = Note::of(home, &plan);
    // Once there is a note, a directory of that name says that the session is gone.
    home.remove_tree(&with_suffix(&going(home, &place, is_there), DELETED))?;
    write_note(home, &note)?;
    let decided = match archive {
        ArchiveFate::Kept => outlived::keep_archive(store, &place),
        ArchiveFate::Erased => Ok(()),
    };
    if let Err(error) = decided.and_then(|()| decide(home, &place, plan.is_there)) {
        // Whether the renaming happened, the directory says: to the next one who opens the store, if not to us.
        drop(finish(store, &note));
        return Err(error);
    }
    finish(store, &note)?;
    Ok(plan)
}

/// The directory whose renaming decides.
fn going(home: &Home, place: &SessionPlace, is_there: bool) -> PathBuf {
    if is_there { place.dir.clone() } else { home.archive_dir(place) }
}

/// From here on the session is gone.
fn decide(home: &Home, place: &SessionPlace, is_there: bool) -> Result<()> {
    let dir = going(home, place, is_there);
    let deleted = with_suffix(&dir, DELETED);
    home.storage.rename(&dir, &deleted).map_err(|e| Error::io("renaming", &dir, e))?;
    let parent = dir.parent().unwrap_or(&home.root);
    home.storage.sync_dir(parent).map_err(|e| Error::sync(parent, e))
}

/// Does what is left to do of deletions that a crash interrupted, or takes them back. Another process that deletes at this
/// moment is left alone.
pub(super) fn finish_leftovers(store: &Arc<StoreInner>) {
    let notes = match notes(&store.home) {
        Ok(notes) if notes.is_empty() => return,
        Ok(_) => lock(store, Patience::Moment).and_then(|_lock| finish_all(store)),
        Err(error) => Err(error),
    };
    let warn =
        |error: &Error| tracing::warn!(%error, "a deletion that was interrupted could not be finished");
    match notes {
        Err(error) if error.kind() == ErrorKind::Locked => {}
        Err(error) => warn(&error),
        Ok(finished) => finished.failed.iter().for_each(|(_, error)| warn(error)),
    }
}

fn lock(store: &StoreInner, patience: Patience) -> Result<Box<dyn Lock>> {
    let path = store.home.root.join(DELETIONS).join(LOCK);
    let this = Owner::in_passing(store.now_text());
    owner::take_within(&store.home.storage, &path, &this, patience)
}

/// Finishes or takes back whatever has a note. The caller has the lock. Gives what was finished.
fn finish_all(store: &Arc<StoreInner>) -> Result<Finished> {
    let home = &store.home;
    let mut finished = Finished::default();
    for path in notes(home)? {
        let note = match read_note(home, &path)? {
            Some(note) if note.place(home)?.is_some() => note,
            // It was not written whole, so nothing was decided; or its workspace is gone with all that there was to do.
            _ => {
                remove_note(home, &path)?;
                continue;
            }
        };
        match finish(store, &note) {
            Ok(true) => finished.done.push(done(&note)),
            Ok(false) => {}
            Err(error) => finished.failed.push((note.session, error)),
        }
    }
    Ok(finished)
}

/// What became of the deletions that had a note.
#[derive(Default)]
struct Finished {
    done: Vec<DeletionPlan>,
    /// One that can't be finished now keeps no other session from being deleted, which may be what hinders it.
    failed: Vec<(SessionId, Error)>,
}

fn done(note: &Note) -> DeletionPlan {
    DeletionPlan {
        session: note.session,
        workspace: WorkspaceHash::parse(&note.workspace).unwrap_or_else(|| WorkspaceHash::of(Path::new(""))),
        archive: note.archive,
        is_there: false,
        title: None,
        conversations: 0,
        messages: 0,
        last: note.last,
        bytes: 0,
        forks: Vec::new(),
        artifacts: note.artifacts.clone(),
        exports: Vec::new(),
        issue: None,
    }
}

/// Does all that is left to do of one deletion, in whatever state a crash left it. Whether the session is gone.
fn finish(store: &Arc<StoreInner>, note: &Note) -> Result<bool> {
    let home = &store.home;
    let Some(place) = note.place(home)? else { return Ok(false) };
    let (deleted, archive) = (with_suffix(&place.dir, DELETED), home.archive_dir(&place));
    let path = note_path(home, note.session);
    let is_decided = home.is_dir(&deleted)?;
    if !is_decided && home.is_dir(&place.dir)? {
        // It was not decided: the session is as it was, and maybe somebody's.
        if note.archive == ArchiveFate::Kept {
            home.remove_tree(&archive)?;
            crate::memory::remove_unfinished_archive(home, &place)?;
        }
        remove_note(home, &path)?;
        return Ok(false);
    }
    if !is_decided && home.is_dir(&archive)? && !is_recorded(store, note)? {
        // Only an archive was to go, and it is there still.
        remove_note(home, &path)?;
        return Ok(false);
    }
    record(store, note)?;
    if note.archive == ArchiveFate::Erased {
        home.remove_tree(&archive)?;
        home.remove_tree(&with_suffix(&archive, DELETED))?;
        outlived::forget(store, &place, &note.exports(home))?;
    }
    home.remove_tree(&deleted)?;
    home.discard_catalog()?;
    if note.archive == ArchiveFate::Erased {
        outlived::drop_artifacts(store, &place, &note.artifacts)?;
    }
    remove_note(home, &path)?;
    Ok(true)
}

/// Whether the workspace's log says what became of the session.
fn is_recorded(store: &Arc<StoreInner>, note: &Note) -> Result<bool> {
    let Some(workspace) = WorkspaceHash::parse(&note.workspace) else { return Ok(false) };
    let mut deleted = Caught::<DeletedTrees>::default();
    SharedLog::of_workspace(&store.home, &store.clock, &workspace).catch_up(&mut deleted)?;
    Ok(deleted.get().0.get(&note.session) == Some(&note.archive))
}

/// Says in the workspace's log, once, that the session is deleted.
fn record(store: &Arc<StoreInner>, note: &Note) -> Result<()> {
    let Some(workspace) = WorkspaceHash::parse(&note.workspace) else { return Ok(()) };
    let (session_id, archive) = (note.session, note.archive);
    let log = SharedLog::of_workspace(&store.home, &store.clock, &workspace);
    log.transact(&mut Caught::<DeletedTrees>::default(), |deleted| {
        let known = deleted.0.get(&session_id) == Some(&archive);
        let event = TreeDeleted { session_id, last: note.last, archive };
        Ok((if known { Vec::new() } else { vec![event.into()] }, ()))
    })
}

impl StoreInner {
    /// Refuses an id of a session that was deleted from a workspace: its archive and its neighbours know it by that id.
    ///
    /// # Errors
    /// `Conflict` if it was; as a read of the workspace's log.
    pub(crate) fn check_not_deleted(&self, place: &SessionPlace) -> Result<()> {
        let SessionPlace { workspace, id, .. } = place;
        // A deletion that is under way, or was interrupted, has renamed it and may not have said so yet. In this order: it goes
        // once that is said.
        let is_going = self.home.is_dir(&with_suffix(&place.dir, DELETED))?;
        let mut known = self.deleted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let deleted = known.entry(workspace.clone()).or_default();
        SharedLog::of_workspace(&self.home, &self.clock, workspace).catch_up(deleted)?;
        if !is_going && !deleted.get().has(*id) {
            return Ok(());
        }
        let message = format!("session {id} was deleted from this workspace; choose another id");
        Err(Error::new(ErrorKind::Conflict, "session.deleted", message))
    }

    /// As [`check_not_deleted`](Self::check_not_deleted), for whoever made the session's directory and has its lock: whoever
    /// deletes it may have renamed it just before. What was made for it is removed then.
    pub(crate) fn check_not_deleted_meanwhile(&self, place: &SessionPlace) -> Result<()> {
        self.check_not_deleted(place).inspect_err(|_| {
            if !place.log_exists(&self.home.storage)
                && let Err(error) = self.home.remove_tree(&place.dir)
            {
                tracing::warn!(session = %place.id, %error, "an empty session is left");
            }
        })
    }
}

impl Home {
    /// Where the archive of a session is that was deleted.
    pub(crate) fn archive_dir(&self, place: &SessionPlace) -> PathBuf {
        self.workspace_dir(&place.workspace).join("archive").join(place.id.to_string())
    }

    pub(super) fn is_dir(&self, path: &Path) -> Result<bool> {
        let entry = self.storage.entry(path).map_err(|e| Error::io("looking at", path, e))?;
        Ok(entry.is_some_and(|entry| entry.kind == EntryKind::Dir))
    }
}

fn with_suffix(dir: &Path, suffix: &str) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    dir.with_file_name(name)
}

fn note_path(home: &Home, id: SessionId) -> PathBuf {
    home.root.join(DELETIONS).join(format!("{id}{NOTE}"))
}

fn notes(home: &Home) -> Result<Vec<PathBuf>> {
    let dir = home.root.join(DELETIONS);
    let entries = match home.storage.list(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("listing", &dir, error)),
    };
    let is_note = |name: &str| name.strip_suffix(NOTE).is_some_and(|name| name.parse::<SessionId>().is_ok());
    let files = entries.into_iter().filter(|entry| entry.kind == EntryKind::File);
    Ok(files.filter(|it| it.name.to_str().is_some_and(is_note)).map(|it| dir.join(it.name)).collect())
}

fn write_note(home: &Home, note: &Note) -> Result<()> {
    let path = note_path(home, note.session);
    let bytes = serde_json::to_vec(note).map_err(|error| {
        Error::with_source(ErrorKind::Invalid, "deletion.note", "the deletion can't be noted down", error)
    })?;
    if u64::try_from(bytes.len()).map_or(true, |len| len > NOTE_LEN_MAX) {
        let message = format!("session {} names too many artifacts to be forgotten at once", note.session);
        return Err(Error::invalid("deletion.too_large", message));
    }
    let file = match home.storage.create_new(&path) {
        // Notes are gone when the lock is given back: it is none.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let message = format!("{} is no note of ours: move it away, and try again", path.display());
            return Err(Error::with_source(ErrorKind::Invalid, "deletion.foreign", message, error));
        }
        file => file.map_err(|e| Error::io("creating", &path, e))?,
    };
    file.write_at(&bytes, 0).map_err(|e| Error::io("writing", &path, e))?;
    file.sync_all().map_err(|e| Error::sync(&path, e))?;
    let dir = home.root.join(DELETIONS);
    home.storage.sync_dir(&dir).map_err(|e| Error::sync(&dir, e))
}

/// `None`: it was not written whole.
fn read_note(home: &Home, path: &Path) -> Result<Option<Note>> {
    let file = home.storage.open(path, Access::Read).map_err(|e| Error::io("opening", path, e))?;
    let len = file.len().map_err(|e| Error::io("looking at", path, e))?.min(NOTE_LEN_MAX);
    let mut bytes = vec![0; crate::num::to_usize(len)];
    let read = file.read_at(&mut bytes, 0).map_err(|e| Error::io("reading", path, e))?;
    bytes.truncate(read);
    Ok(serde_json::from_slice::<Note>(&bytes).ok().filter(|note| note_path(home, note.session) == path))
}

fn remove_note(home: &Home, path: &Path) -> Result<()> {
    match home.storage.remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("removing", path, error));
        }
        _ => {}
    }
    let dir = home.root.join(DELETIONS);
    home.storage.sync_dir(&dir).map_err(|e| Error::sync(&dir, e))
}
