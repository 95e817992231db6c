//! Listing with the catalog.

use std::collections::BTreeSet;

use sessionlog_codec::ids::NodeId;

use super::crowd::look_at_each;
use super::listing::{ForkedFrom, SessionKind, SessionRow, Sketch, broken_row, child_status, sort};
use super::{SessionPlace, StoreReader};
use crate::catalog::{Catalog, CatalogEntry, CatalogRow};
use crate::log::LogMark;
use crate::session::SessionReader;
use crate::storage::EntryKind;

/// Fewer sessions than these are listed as fast without a catalog.
const WORTH_IT: usize = 32;

/// The rows of all sessions, from the catalog where it is right. `places` are all places of the home.
pub(super) fn list(store: &StoreReader, places: &[SessionPlace]) -> Vec<SessionRow> {
    let Some(catalog) = open(store, places.len()) else { return store.list_of(places) };
    let mut rows = Vec::new();
    let workspaces = store.workspace_texts(places);
    let look = |place: &SessionPlace| rows_of(store, place, workspaces.of(place), &catalog);
    look_at_each(places, &look, |place, (found, entry)| {
        rows.extend(found);
        if let Some(entry) = entry {
            catalog.put(place.id, &entry);
        }
    });
    catalog.retain(&places.iter().map(|place| place.id).collect::<BTreeSet<_>>());
    sort(&mut rows);
    rows
}

fn open(store: &StoreReader, sessions: usize) -> Option<Catalog> {
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
    Catalog::open(&native)
}

/// The rows of a session, and what the catalog should say of it if it does not.
fn rows_of(
    store: &StoreReader,
    place: &SessionPlace,
    workspace: &str,
    catalog: &Catalog,
) -> (Vec<SessionRow>, Option<CatalogEntry>) {
    let reader = store.session_at(place.clone());
    let known = catalog.get(place.id);
    if let Some(entry) = known.filter(|entry| reader.log().is_at(&entry.mark).unwrap_or(false)) {
        return (shown(&entry, &reader, workspace), None);
    }
    let sketch = match Sketch::of(&reader) {
        Ok(sketch) => sketch,
        Err(error) => return (vec![broken_row(place, workspace.to_owned(), &error)], None),
    };
    let rows = sketch.rows(&reader, workspace);
    // What is wrong is looked at each time.
    let is_whole = rows.iter().all(|row| row.issue.is_none());
    let entry = sketch.mark().filter(|_| is_whole).map(|mark| entry_of(mark.clone(), &rows, &sketch));
    (rows, entry)
}

fn entry_of(mark: LogMark, rows: &[SessionRow], sketch: &Sketch) -> CatalogEntry {
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
        bytes: rows.first().map_or(0, |root| root.bytes),
        lifecycle: sketch.lifecycle(),
        rows: rows.iter().map(row).collect(),
    }
}

/// The rows as they stand in the catalog, with what has to be judged now.
fn shown(entry: &CatalogEntry, reader: &SessionReader, workspace: &str) -> Vec<SessionRow> {
    let root_status = reader.status_of(entry.lifecycle);
    let row = |row: &CatalogRow| SessionRow {
        kind: if row.node == NodeId::ROOT { SessionKind::Root } else { SessionKind::Child },
        id: row.id.clone(),
        display_id: row.display_id.clone(),
        root: reader.place().id,
        node: row.node,
        parent: row.parent.clone(),
        forked: row.forked.map(|(session, at)| ForkedFrom { session, at }),
        title: row.title.clone(),
        status: if row.node == NodeId::ROOT { root_status } else { child_status(row.settled, root_status) },
        messages: row.messages,
        created_at: row.created_at,
        last_activity: row.last_activity,
        model: row.model.clone(),
        workspace: workspace.to_owned(),
        agent: row.agent.clone(),
        bytes: entry.bytes,
        issue: None,
    };
    entry.rows.iter().map(row).collect()
}
