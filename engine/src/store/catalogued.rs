//! Listing with the catalog.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::OnceLock;

use sessionlog_codec::event::Event;
use sessionlog_codec::ids::{NodeId, Position, SessionId};
use sessionlog_projections::{Lifecycle, Liveness};

use super::crowd::look_at_ranges;
use super::listing::{
    ForkedFrom, Listing, SessionKind, SessionRow, Sketch, WorkspaceTexts, broken_row, child_status, sort,
};
use super::{SessionPlace, StoreReader};
use crate::catalog::{Catalog, CatalogEntry, CatalogRow, Seen};
use crate::log::{LogMark, LogReader, Look, TailState};
use crate::session::{EventItem, SessionReader};
use crate::storage::EntryKind;

/// Where the first segment of a log begins.
const FIRST: Position = Position(1);
/// Fewer sessions than these are listed as fast without a catalog.
const WORTH_IT: usize = 32;
/// The longest last segment whose records are decoded to know whether a log ends well, in bytes.
const END_LEN_MAX: u64 = 256 << 10;
/// Another version may know other records.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The rows of all sessions, from the catalog where it is right. `places` are all places of the home.
pub(super) fn list(store: &StoreReader, places: &[SessionPlace]) -> Listing {
    let Some(dir) = directory(store, places.len()) else {
        return Listing { rows: store.list_of(places), sound: BTreeSet::new() };
    };
    // In the order of the catalog, so that what it knows of some places is read at once.
    let mut sorted: Vec<&SessionPlace> = places.iter().collect();
    sorted.sort_by_key(|place| place.id);
    let opened = OnceLock::new();
    let mut listing = found(store, &sorted, &opened, &|| Opened {
        catalog: Catalog::open(&dir),
        workspaces: store.workspace_texts(places),
    });
    // The catalog writes what it has to when it is closed. The rows are sorted meanwhile.
    std::thread::scope(|scope| {
        drop(std::thread::Builder::new().spawn_scoped(scope, || drop(opened)));
        sort(&mut listing.rows);
    });
    listing
}

/// The sessions that are sorted by their ids. What `open` opens is left in `opened`; `None` if it panicked.
fn found(
    store: &StoreReader,
    sorted: &[&SessionPlace],
    opened: &OnceLock<Option<Opened>>,
    open: &(impl Fn() -> Opened + Sync),
) -> Listing {
    let mut listing = Listing::default();
    let open = || opened.get_or_init(|| catch_unwind(AssertUnwindSafe(open)).ok()).is_some();
    std::thread::scope(|scope| {
        // Where nothing of the home is in memory, the catalog and the logs wait for the disk at the same time.
        if std::thread::Builder::new().spawn_scoped(scope, open).is_err() {
            open();
        }
        let look = |range: Range<usize>| {
            let here = sorted.get(range.clone()).unwrap_or_default();
            let looks = here.iter().map(|place| log_of(store, place).look(FIRST)).collect();
            match opened.wait() {
                Some(opened) => opened.rows_in(store, sorted, range, looks),
                None => here.iter().map(|place| Found::unkept(store.rows((*place).clone()))).collect(),
            }
        };
        look_at_ranges(sorted, &look, |place, found| {
            listing.rows.extend(found.rows);
            listing.sound.extend(found.is_sound.then_some(place.id));
            if let (Some(entry), Some(Some(opened))) = (found.entry, opened.get()) {
                opened.put(place.id, &entry);
            }
        });
    });
    listing
}

/// What was found of a session.
struct Found {
    rows: Vec<SessionRow>,
    /// Whether its log is known to end well.
    is_sound: bool,
    /// What the catalog should say of it, if it does not.
    entry: Option<CatalogEntry>,
}

impl Found {
    /// Rows that the catalog is to say nothing of.
    fn unkept(rows: Vec<SessionRow>) -> Self {
        Self { rows, is_sound: false, entry: None }
    }
}

/// What a listing needs beside the logs.
struct Opened {
    /// `None` if it can't be had now.
    catalog: Option<Catalog>,
    workspaces: WorkspaceTexts,
}

fn log_of(store: &StoreReader, place: &SessionPlace) -> LogReader {
    LogReader::new(place.log_dir(&store.home.storage))
}

/// The catalog's directory, which is made if it can be; `None` if there is none, or it is not worth it.
fn directory(store: &StoreReader, sessions: usize) -> Option<PathBuf> {
    if sessions < WORTH_IT {
        return None;
    }
    let dir = store.home.root.join("index");
    let native = store.home.storage.native_path(&dir)?;
    // It may be a home that can only be read. Nothing of this need survive, so nothing is synced.
    let storage = &store.home.storage;
    match storage.entry(&dir).ok()? {
        Some(entry) if entry.kind == EntryKind::Dir => {}
        Some(_) => return None,
        None => storage.create_dir(&dir).ok()?,
    }
    Some(native)
}

impl Opened {
    /// The rows of some sessions, and what the catalog should say of each if it does not. Sessions of their range that the
    /// catalog knows and that are gone are forgotten. `looks` are what the file system says of their logs, if they have one
    /// segment, as nearly every log does.
    fn rows_in(
        &self,
        store: &StoreReader,
        places: &[&SessionPlace],
        range: Range<usize>,
        looks: Vec<Option<Look>>,
    ) -> Vec<Found> {
        let id_at = |nth: usize| places.get(nth).map(|place| place.id);
        let first = id_at(range.start).filter(|_| range.start > 0).map_or(Bound::Unbounded, Bound::Included);
        let end = id_at(range.end).map_or(Bound::Unbounded, Bound::Excluded);
        let known = self.catalog.as_ref().map(|catalog| catalog.scan((first, end)));
        let mut known = known.unwrap_or_default().into_iter().peekable();
        let mut found = Vec::with_capacity(range.len());
        for (place, look) in places.get(range).unwrap_or_default().iter().zip(looks) {
            while let Some((gone, _)) = known.next_if(|(id, _)| *id < place.id) {
                self.forget(gone);
            }
            // Two workspaces may have the same session, if somebody copied it: the second one is read.
            let entry = known.next_if(|(id, _)| *id == place.id).and_then(|(_, entry)| entry);
            found.push(rows_of(store, place, self.workspaces.of(place), entry, look));
        }
        known.for_each(|(gone, _)| self.forget(gone));
        found
    }

    fn put(&self, session: SessionId, entry: &CatalogEntry) {
        if let Some(catalog) = &self.catalog {
            catalog.put(session, entry);
        }
    }

    fn forget(&self, session: SessionId) {
        if let Some(catalog) = &self.catalog {
            catalog.remove(session);
        }
    }
}

/// What there is of a session, from the catalog if that is right.
fn rows_of(
    store: &StoreReader,
    place: &SessionPlace,
    workspace: &str,
    known: Option<CatalogEntry>,
    look: Option<Look>,
) -> Found {
    if let Some(entry) = known.filter(|entry| still_holds(entry, look, || log_of(store, place))) {
        let is_sound = entry.ends_well_for.as_deref() == Some(VERSION);
        return Found { rows: shown(entry, store, place, workspace), is_sound, entry: None };
    }
    let reader = store.session_at(place.clone());
    // Before the log is read: what comes in between makes the next listing look again.
    let last = reader.log().segments().ok().and_then(|segments| segments.last().map(|(name, _)| name.0));
    let look = last.and_then(|last| reader.log().look(last));
    let sketch = match Sketch::of(&reader) {
        Ok(sketch) => sketch,
        Err(error) => return Found::unkept(vec![broken_row(place, workspace.to_owned(), &error)]),
    };
    let rows = sketch.rows(&reader, workspace);
    // What is wrong is looked at each time.
    let is_whole = rows.iter().all(|row| row.issue.is_none());
    let Some(mark) = sketch.mark().filter(|_| is_whole) else { return Found::unkept(rows) };
    let is_sound = ends_well(&reader, mark);
    let seen = look.filter(|_| last == Some(mark.segment)).map(|look| match look.proves(mark) {
        true => Seen::Proof(look.stamp),
        false => Seen::Hint(look.stamp),
    });
    let ends_well_for = is_sound.then(|| VERSION.to_owned());
    let entry = entry_of(mark.clone(), (seen, ends_well_for), &rows, &sketch);
    Found { rows, is_sound, entry: Some(entry) }
}

/// Whether every record of the last segment decodes and is of a kind that this version knows; not known of a long one.
fn ends_well(reader: &SessionReader, mark: &LogMark) -> bool {
    if mark.end > END_LEN_MAX {
        return false;
    }
    let mut is_well = true;
    let tail = reader.events(mark.segment, &mut |item| {
        is_well = matches!(&item, EventItem::Event(event) if !matches!(event.event, Event::Unknown(_)));
        if is_well { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    is_well && matches!(tail, Ok(TailState::Clean))
}

/// Whether a log is as it was when an entry was made from it. `look` is for a log of one segment.
fn still_holds(entry: &CatalogEntry, look: Option<Look>, log: impl Fn() -> LogReader) -> bool {
    let look = if entry.mark.segment == FIRST { look } else { log().look(entry.mark.segment) };
    let is_same = match (entry.seen, look) {
        (Some(Seen::Proof(seen)), Some(look)) => return look.stamp == seen,
        // Once the files are quiet, the entry is made anew for good.
        (Some(Seen::Hint(seen)), Some(look)) => look.stamp == seen && !look.proves(&entry.mark),
        (None, Some(look)) => !look.proves(&entry.mark),
        (None, None) => true,
        (Some(_), None) => false,
    };
    is_same && log().is_at(&entry.mark).unwrap_or(false)
}

fn entry_of(
    mark: LogMark,
    (seen, ends_well_for): (Option<Seen>, Option<String>),
    rows: &[SessionRow],
    sketch: &Sketch,
) -> CatalogEntry {
    let row = |row: &SessionRow| CatalogRow {
        id: row.id.clone(),
        display_id: row.display_id.clone(),
        node: row.node,
        parent: row.parent.clone(),
        forked: row.forked.map(|forked| (forked.session, forked.at)),
        title: row.title.clone(),
        messages: row.messages,
        created_at: row.created_at,
        last_activity: row.last_activity,
        model: row.model.clone(),
        agent: row.agent.clone(),
        settled: sketch.settled(row.node),
    };
    CatalogEntry {
        mark,
        seen,
        ends_well_for,
        bytes: rows.first().map_or(0, |root| root.bytes),
        lifecycle: sketch.lifecycle(),
        rows: rows.iter().map(row).collect(),
    }
}

/// The rows as they stand in the catalog, with what has to be judged now.
fn shown(entry: CatalogEntry, store: &StoreReader, place: &SessionPlace, workspace: &str) -> Vec<SessionRow> {
    let root_status = match entry.lifecycle {
        Lifecycle::Open => store.session_at(place.clone()).status_of(entry.lifecycle),
        closed => closed.status(Liveness::Unknown),
    };
    let bytes = entry.bytes;
    let row = |row: CatalogRow| SessionRow {
        kind: if row.node == NodeId::ROOT { SessionKind::Root } else { SessionKind::Child },
        id: row.id,
        display_id: row.display_id,
        root: place.id,
        node: row.node,
        parent: row.parent,
        forked: row.forked.map(|(session, at)| ForkedFrom { session, at }),
        title: row.title,
        status: if row.node == NodeId::ROOT { root_status } else { child_status(row.settled, root_status) },
        messages: row.messages,
        created_at: row.created_at,
        last_activity: row.last_activity,
        model: row.model,
        workspace: workspace.to_owned(),
        agent: row.agent,
        bytes,
        issue: None,
    };
    entry.rows.into_iter().map(row).collect()
}
