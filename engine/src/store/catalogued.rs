//! Listing with the catalog.

use std::ops::{Bound, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::OnceLock;

use sessionlog_codec::ids::{NodeId, Position, SessionId};
use sessionlog_projections::{Lifecycle, Liveness};

use super::crowd::look_at_ranges;
use super::listing::{
    ForkedFrom, SessionKind, SessionRow, Sketch, WorkspaceTexts, broken_row, child_status, sort,
};
use super::{SessionPlace, StoreReader};
use crate::catalog::{Catalog, CatalogEntry, CatalogRow, Seen};
use crate::log::{LogMark, LogReader, Look};
use crate::storage::EntryKind;

/// Where the first segment of a log begins.
const FIRST: Position = Position(1);
/// Fewer sessions than these are listed as fast without a catalog.
const WORTH_IT: usize = 32;

/// The rows of all sessions, from the catalog where it is right. `places` are all places of the home.
pub(super) fn list(store: &StoreReader, places: &[SessionPlace]) -> Vec<SessionRow> {
    let Some(dir) = directory(store, places.len()) else { return store.list_of(places) };
    // In the order of the catalog, so that what it knows of some places is read at once.
    let mut sorted: Vec<&SessionPlace> = places.iter().collect();
    sorted.sort_by_key(|place| place.id);
    let opened = OnceLock::new();
    let mut rows = found(store, &sorted, &opened, &|| Opened {
        catalog: Catalog::open(&dir),
        workspaces: store.workspace_texts(places),
    });
    // The catalog writes what it has to when it is closed. The rows are sorted meanwhile.
    std::thread::scope(|scope| {
        drop(std::thread::Builder::new().spawn_scoped(scope, || drop(opened)));
        sort(&mut rows);
    });
    rows
}

/// The rows of sessions that are sorted by their ids. What `open` opens is left in `opened`; `None` if it panicked.
fn found(
    store: &StoreReader,
    sorted: &[&SessionPlace],
    opened: &OnceLock<Option<Opened>>,
    open: &(impl Fn() -> Opened + Sync),
) -> Vec<SessionRow> {
    let mut rows = Vec::new();
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
                None => here.iter().map(|place| (store.rows((*place).clone()), None)).collect(),
            }
        };
        look_at_ranges(sorted, &look, |place, (found, entry)| {
            rows.extend(found);
            if let (Some(entry), Some(Some(opened))) = (entry, opened.get()) {
                opened.put(place.id, &entry);
            }
        });
    });
    rows
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
    ) -> Vec<(Vec<SessionRow>, Option<CatalogEntry>)> {
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

/// The rows of a session, and what the catalog should say of it if it does not.
fn rows_of(
    store: &StoreReader,
    place: &SessionPlace,
    workspace: &str,
    known: Option<CatalogEntry>,
    look: Option<Look>,
) -> (Vec<SessionRow>, Option<CatalogEntry>) {
    if let Some(entry) = known.filter(|entry| still_holds(entry, look, || log_of(store, place))) {
        return (shown(entry, store, place, workspace), None);
    }
    let reader = store.session_at(place.clone());
    // Before the log is read: what comes in between makes the next listing look again.
    let last = reader.log().segments().ok().and_then(|segments| segments.last().map(|(name, _)| name.0));
    let look = last.and_then(|last| reader.log().look(last));
    let sketch = match Sketch::of(&reader) {
        Ok(sketch) => sketch,
        Err(error) => return (vec![broken_row(place, workspace.to_owned(), &error)], None),
    };
    let rows = sketch.rows(&reader, workspace);
    // What is wrong is looked at each time.
    let is_whole = rows.iter().all(|row| row.issue.is_none());
    let entry = sketch.mark().filter(|_| is_whole).map(|mark| {
        let look = look.filter(|_| last == Some(mark.segment));
        let seen =
            look.map(|look| if look.proves(mark) { Seen::Proof(look.stamp) } else { Seen::Hint(look.stamp) });
        entry_of(mark.clone(), seen, &rows, &sketch)
    });
    (rows, entry)
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

fn entry_of(mark: LogMark, seen: Option<Seen>, rows: &[SessionRow], sketch: &Sketch) -> CatalogEntry {
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
