//! What outlives a session that is deleted, and what of that goes when it is forgotten.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog_codec::event::Event;
use sessionlog_codec::ids::{Digest, SessionId};
use sessionlog_codec::registry::kind;

use super::shared_log::SharedLog;
use super::{Home, SessionPlace, StoreInner};
use crate::error::Result;
use crate::storage::{Access, DirEntry, EntryKind};

/// How deep directories are looked into for files that are not ours.
const DEPTH_MAX: usize = 16;
/// How much of such a file is in memory at a time, in bytes.
const PIECE: usize = 1 << 20;

/// Keeps what searches of the workspace are to find of a session that is deleted.
pub(super) fn keep_archive(_store: &Arc<StoreInner>, _place: &SessionPlace) -> Result<()> {
    Ok(())
}

/// The artifacts that a session's records name, and those of its archive.
pub(super) fn artifacts_of(_home: &Home, _place: &SessionPlace) -> Result<Vec<Digest>> {
    Ok(Vec::new())
}

/// Removes what outlived a session, but for its archive.
pub(super) fn forget(store: &Arc<StoreInner>, place: &SessionPlace, _artifacts: &[Digest]) -> Result<()> {
    let home = &store.home;
    let prefix = place.id.to_string();
    let log = SharedLog::of_workspace(home, &store.clock, &place.workspace);
    log.erase(
        &[kind::VectorAttached],
        &|event| matches!(event, Event::VectorAttached(vector) if vector.record_id.starts_with(&prefix)),
    )?;
    for path in exports_of(home, place.id) {
        home.remove_tree(&path)?;
    }
    Ok(())
}

/// Files that are under the home and not of it, and that name a session in their path or their text: exports, copies.
pub(super) fn exports_of(home: &Home, id: SessionId) -> Vec<PathBuf> {
    let id = id.to_string();
    let mut found = Vec::new();
    for dir in foreign(home) {
        let named = dir.to_string_lossy().contains(&id);
        look(home, &dir, named, &id, 0, &mut found);
    }
    found
}

/// What is in the home, in a workspace or among its sessions and that we don't keep there.
fn foreign(home: &Home) -> Vec<PathBuf> {
    const HOME: [&str; 5] = [".sessionlog", "workspaces", "user", "index", "deletions"];
    const WORKSPACE: [&str; 6] = ["path.txt", "workspace", "artifacts", "index", "sessions", "archive"];
    let mut found = Vec::new();
    let others = |dir: &Path, is_ours: &dyn Fn(&str) -> bool, found: &mut Vec<PathBuf>| {
        let entries: Vec<DirEntry> = home.storage.list(dir).unwrap_or_default();
        let others = entries.iter().filter(|entry| !entry.name.to_str().is_some_and(is_ours));
        found.extend(others.map(|entry| dir.join(&entry.name)));
    };
    others(&home.root, &|name| HOME.contains(&name), &mut found);
    for workspace in home.workspaces().unwrap_or_default() {
        let dir = home.workspace_dir(&workspace);
        others(&dir, &|name| WORKSPACE.contains(&name), &mut found);
        let is_session = |name: &str| {
            let id = name.split_once('.').map_or(name, |(id, _)| id);
            id.parse::<SessionId>().is_ok()
        };
        others(&dir.join("sessions"), &is_session, &mut found);
        others(&dir.join("archive"), &is_session, &mut found);
    }
    found
}

fn look(home: &Home, path: &Path, named: bool, id: &str, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(Some(entry)) = home.storage.entry(path) else { return };
    match entry.kind {
        EntryKind::File => {
            if named || mentions(home, path, id) {
                found.push(path.to_owned());
            }
        }
        EntryKind::Dir if depth < DEPTH_MAX => {
            for entry in home.storage.list(path).unwrap_or_default() {
                let named = named || entry.name.to_string_lossy().contains(id);
                look(home, &path.join(&entry.name), named, id, depth.saturating_add(1), found);
            }
        }
        EntryKind::Dir | EntryKind::Other => {}
    }
}

/// Whether a file's text has the id. One that can't be read has not.
fn mentions(home: &Home, path: &Path, id: &str) -> bool {
    let Ok(file) = home.storage.open(path, Access::Read) else { return false };
    let mut piece = vec![0; PIECE];
    let mut offset = 0_u64;
    loop {
        let Ok(read) = file.read_at(&mut piece, offset) else { return false };
        let text = piece.get(..read).unwrap_or_default();
        if text.windows(id.len()).any(|window| window == id.as_bytes()) {
            return true;
        }
        if read < PIECE {
            return false;
        }
        // The id may stand across two pieces.
        offset = offset.saturating_add(crate::num::to_u64(read.saturating_sub(id.len())));
    }
}
