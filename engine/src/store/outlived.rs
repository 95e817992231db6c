//! What outlives a session that is deleted, and what of that goes when it is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog_codec::event::{Event, LoggedEvent};
use sessionlog_codec::ids::{Digest, NodeId, Position, SessionId};
use sessionlog_codec::registry::kind;
use sessionlog_projections::views::{Dialect, Pieces, Rendered, TranscriptRenderer};

use super::owner::Owner;
use super::shared_log::SharedLog;
use super::{Home, SessionPlace, StoreInner};
use crate::artifacts::Artifacts;
use crate::error::Result;
use crate::session::{EventItem, SessionReader};
use crate::storage::{Access, DirEntry, EntryKind};

/// How deep directories are looked into for files that are not ours.
const DEPTH_MAX: usize = 16;
/// How much of such a file is in memory at a time, in bytes.
const PIECE: usize = 1 << 20;

/// Keeps what searches of the workspace are to find of a session that is deleted.
pub(super) fn keep_archive(store: &Arc<StoreInner>, place: &SessionPlace) -> Result<()> {
    crate::memory::write_archive(&store.home, place, store.clock.now())
}

/// The artifacts that a session's records name, those of its archive, and those that it put.
pub(super) fn artifacts_of(home: &Home, place: &SessionPlace) -> Result<Vec<Digest>> {
    Ok(crate::artifacts::artifacts_of(home, place)?.into_iter().collect())
}

/// Removes the artifacts that only a forgotten session named. Its log and its archive are gone. If another log of the workspace
/// can't be read whole, they stay until it can: it might name them.
pub(super) fn drop_artifacts(store: &Arc<StoreInner>, place: &SessionPlace, named: &[Digest]) -> Result<()> {
    let artifacts = Artifacts::new(store, &place.workspace, None);
    artifacts.drop_unreferenced(&named.iter().copied().collect())?;
    // What it said of those that are gone goes too; of those that stay, others may go by it.
    let stays: BTreeSet<Digest> = artifacts.read().list()?.into_iter().map(|entry| entry.digest).collect();
    let log = SharedLog::of_workspace(&store.home, &store.clock, &place.workspace);
    let is_gone = |event: &Event| match event {
        Event::ArtifactPut(put) => put.session_id == Some(place.id) && !stays.contains(&put.digest),
        _ => false,
    };
    log.erase(&[kind::ArtifactPut], &is_gone).map(drop)
}

/// Removes what outlived a session, but for its archive and its artifacts.
pub(super) fn forget(store: &Arc<StoreInner>, place: &SessionPlace, exports: &[PathBuf]) -> Result<()> {
    let home = &store.home;
    let prefix = place.id.to_string();
    let log = SharedLog::of_workspace(home, &store.clock, &place.workspace);
    log.erase(
        &[kind::VectorAttached],
        &|event| matches!(event, Event::VectorAttached(vector) if vector.record_id.starts_with(&prefix)),
    )?;
    let of_roots = [kind::RootRegistered, kind::RootUnregistered];
    SharedLog::of_user(home, &store.clock).erase(&of_roots, &|event| match event {
        Event::RootRegistered(root) => root.session_id == place.id,
        Event::RootUnregistered(root) => root.session_id == place.id,
        _ => false,
    })?;
    // What a crash tore of these logs, and was cut and kept.
    for of in [home.root.join("user"), home.workspace_dir(&place.workspace).join("workspace")] {
        let dir = of.join("quarantine");
        for entry in home.storage.list(&dir).unwrap_or_default() {
            let path = dir.join(&entry.name);
            if mentions(home, &path, prefix.as_bytes()) || mentions(home, &path, &place.id.0) {
                home.remove_tree(&path)?;
            }
        }
    }
    remove_unfinished_forks(store)?;
    let others = foreign(home);
    // The list was on disk: it is not believed about what is ours.
    for path in exports.iter().filter(|path| others.iter().any(|other| path.starts_with(other))) {
        if let Err(error) = home.check_no_link_above(path) {
            tracing::warn!(path = %path.display(), %error, "it is not removed");
            continue;
        }
        home.remove_tree(path)?;
        // The directories that were made for it go too, unless something else is in them.
        let above =
            path.ancestors().skip(1).take_while(|dir| others.iter().any(|other| dir.starts_with(other)));
        for dir in above {
            if home.storage.remove_dir(dir).is_err() {
                break;
            }
        }
    }
    crate::memory::remove_unfinished_archive(home, place)?;
    crate::memory::discard_index(home, &place.workspace)
}

/// Removes what forks left whose processes died: maybe the history of the session, and nobody's.
fn remove_unfinished_forks(store: &Arc<StoreInner>) -> Result<()> {
    let home = &store.home;
    for place in home.sessions()? {
        let unfinished = place.dir.join("log.forking");
        if !home.is_dir(&unfinished)? {
            continue;
        }
        // Whoever has the lock is at it.
        if let Ok(_lock) = place.take(&home.storage, &Owner::in_passing(store.now_text())) {
            home.remove_tree(&unfinished)?;
        }
    }
    Ok(())
}

/// Files that are under the home and not of it, and that are a session's: they name it in their path or text, or begin as a
/// transcript of it does.
pub(super) fn exports_of(home: &Home, place: &SessionPlace) -> Vec<PathBuf> {
    let id = place.id.to_string();
    let mut files = Vec::new();
    for path in foreign(home) {
        collect(home, &path, 0, &mut files);
    }
    let names = |path: &PathBuf| {
        let below = path.strip_prefix(&home.root).unwrap_or(path);
        below.to_string_lossy().contains(&id) || mentions(home, path, id.as_bytes())
    };
    let (mut found, rest): (Vec<_>, Vec<_>) = files.into_iter().partition(names);
    if !rest.is_empty() {
        let beginnings = beginnings(&SessionReader::new(Arc::clone(&home.storage), place.clone()));
        found.extend(rest.into_iter().filter(|path| begins(home, path, &beginnings)));
    }
    found.sort();
    found
}

/// The first line of a transcript of each conversation, in each dialect.
fn beginnings(reader: &SessionReader) -> BTreeSet<Vec<u8>> {
    let mut pieces: BTreeMap<NodeId, Pieces> = BTreeMap::new();
    let walk = |visit: &mut dyn FnMut(&LoggedEvent)| {
        let read = reader.events(Position(1), &mut |item| {
            if let EventItem::Event(event) = item {
                visit(&event);
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = read {
            let id = reader.place().id;
            tracing::warn!(session = %id, %error, "copies of its transcript are not looked for");
        }
    };
    walk(&mut |event| pieces.entry(event.node).or_insert_with(|| Pieces::of(event.node)).note(event));
    let mut lines = BTreeSet::new();
    for dialect in [Dialect::Seed, Dialect::Recursive08] {
        let mut renderers: BTreeMap<NodeId, Option<TranscriptRenderer>> = BTreeMap::new();
        let mut pieces = pieces.clone();
        walk(&mut |event| {
            let node = event.node;
            let new = || Some(TranscriptRenderer::of_node(dialect, reader.place().id, node));
            let renderer = renderers.entry(node).or_insert_with(new);
            let (Some(one), Some(pieces)) = (renderer.as_mut(), pieces.get_mut(&node)) else { return };
            if let Rendered::Lines(rendered) = one.render(&pieces.whole(event))
                && let Some(line) = rendered.into_iter().next()
            {
                lines.insert(line.into_bytes());
                *renderer = None;
            }
        });
    }
    lines
}

/// Whether a file's first line is one of those.
fn begins(home: &Home, path: &Path, lines: &BTreeSet<Vec<u8>>) -> bool {
    let Ok(file) = home.storage.open(path, Access::Read) else { return false };
    let longest = lines.iter().map(Vec::len).max().unwrap_or(0).saturating_add(1);
    let mut beginning = vec![0; longest];
    let Ok(read) = file.read_at(&mut beginning, 0) else { return false };
    beginning.truncate(read);
    let line = beginning.split(|byte| *byte == b'\n').next().unwrap_or_default();
    lines.contains(line)
}

/// What is in the home, in a workspace or among its sessions and that we don't keep there.
fn foreign(home: &Home) -> Vec<PathBuf> {
    const HOME: [&str; 5] = [".sessionlog", "workspaces", "user", "index", "deletions"];
    const WORKSPACE: [&str; 6] = ["path.txt", "workspace", "artifacts", "index", "sessions", "archive"];
    const INDEX: [&str; 4] = ["memory.sqlite", "memory.sqlite-wal", "memory.sqlite-shm", "memory.lock"];
    let mut found = Vec::new();
    let others = |dir: &Path, is_ours: &dyn Fn(&str) -> bool, found: &mut Vec<PathBuf>| {
        let entries: Vec<DirEntry> = home.storage.list(dir).unwrap_or_default();
        let others = entries.iter().filter(|entry| !entry.name.to_str().is_some_and(is_ours));
        found.extend(others.map(|entry| dir.join(&entry.name)));
    };
    others(&home.root, &|name| HOME.contains(&name), &mut found);
    let is_of_log = |name: &str| ["log", "quarantine", "owner.lock", "librarian.lock"].contains(&name);
    let is_shelf = |name: &str| name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    others(&home.root.join("user"), &is_of_log, &mut found);
    others(&home.root.join("index"), &|name| name.starts_with("catalog"), &mut found);
    for workspace in home.workspaces().unwrap_or_default() {
        let dir = home.workspace_dir(&workspace);
        others(&dir, &|name| WORKSPACE.contains(&name), &mut found);
        let is_id = |name: &str| name.parse::<SessionId>().is_ok();
        // What is deleted, or not written to its end.
        let is_session = |name: &str| {
            is_id(name) || [".deleted", ".new"].iter().any(|it| name.strip_suffix(it).is_some_and(is_id))
        };
        others(&dir.join("sessions"), &is_session, &mut found);
        others(&dir.join("archive"), &is_session, &mut found);
        others(&dir.join("workspace"), &is_of_log, &mut found);
        others(&dir.join("artifacts"), &|name| name == "lock" || is_shelf(name), &mut found);
        others(&dir.join("index"), &|name| INDEX.contains(&name), &mut found);
    }
    found
}

/// The files at a path and below it.
fn collect(home: &Home, path: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(Some(entry)) = home.storage.entry(path) else { return };
    match entry.kind {
        EntryKind::File => found.push(path.to_owned()),
        EntryKind::Dir if depth < DEPTH_MAX => {
            for entry in home.storage.list(path).unwrap_or_default() {
                collect(home, &path.join(&entry.name), depth.saturating_add(1), found);
            }
        }
        EntryKind::Dir | EntryKind::Other => {}
    }
}

/// Whether a file's text has the id. One that can't be read has not.
fn mentions(home: &Home, path: &Path, id: &[u8]) -> bool {
    let Ok(file) = home.storage.open(path, Access::Read) else { return false };
    let mut piece = vec![0; PIECE];
    let mut offset = 0_u64;
    loop {
        let Ok(read) = file.read_at(&mut piece, offset) else { return false };
        let text = piece.get(..read).unwrap_or_default();
        if text.windows(id.len()).any(|window| window == id) {
            return true;
        }
        if read < PIECE {
            return false;
        }
        // The id may stand across two pieces.
        offset = offset.saturating_add(crate::num::to_u64(read.saturating_sub(id.len())));
    }
}
