//! The home around its sessions: marker, modes, links, workspaces, what is not ours, what it stands on.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use sessionlog::codec::ids::SessionId;
use sessionlog::storage::{DirEntry, EntryKind, OsStorage, Storage};
use sessionlog::store::WorkspaceHash;
use sessionlog::{StoreReader, store};

use super::{Findings, session};
use crate::commands::repair::quoted;
use crate::exit::{Exit, Failure};

const MARKER: &str = ".sessionlog";
const MARKER_TEXT: &[u8] = b"sessionlog home 1\n";
/// What a home's directory may hold, beside its marker. `index` is the catalog: derived, and its files are not ours.
const KNOWN: [&str; 4] = ["workspaces", "user", "index", "deletions"];
/// File systems on which a lock of one machine may not be seen on another one, or not at all.
const SHARED: [&str; 10] =
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre"];

/// Looks over a home. Gives the number of its sessions.
pub(super) fn look(root: &Path, findings: &mut Findings) -> Result<u64, Failure> {
    let failed = |e: std::io::Error| Failure::io(&format!("listing {} failed", root.display()), &e);
    if OsStorage.entry(root).map_err(failed)?.is_none() {
        let text = format!("there is no sessionlog home at {}", root.display());
        return Err(Failure::usage("home.missing", text));
    }
    let entries = OsStorage.list(root).map_err(failed)?;
    marker(root, &entries, findings);
    let known = |entry: &DirEntry| {
        entry.name == MARKER
            || (entry.kind == EntryKind::Dir && KNOWN.iter().any(|known| entry.name == *known))
    };
    for entry in entries.iter().filter(|entry| !known(entry)) {
        stray(&root.join(&entry.name), entry, findings);
    }
    modes(root, findings);
    file_system(root, findings);
    let mut places: BTreeMap<SessionId, Vec<PathBuf>> = BTreeMap::new();
    for entry in list(&root.join("deletions"), findings).iter().filter(|entry| entry.name != "lock") {
        findings.add(
            Exit::Repairable,
            "deletion.interrupted",
            &root.join("deletions").join(&entry.name),
            "a session is being deleted, or that was interrupted",
            "If its directory is still there under its own name, nothing was decided and the session is whole; else it is gone, \
             and a part of its files may be left.",
            "Whoever opens the home for writing next finishes the deletion or takes it back, once nobody is at it.",
        );
    }
    for entry in list(&root.join("workspaces"), findings) {
        workspace(&root.join("workspaces").join(&entry.name), &entry, &mut places, findings);
    }
    for (id, dirs) in &places {
        if let [first, second, ..] = dirs.as_slice() {
            findings.add(
                Exit::Warnings,
                "session.twice",
                second,
                format!("session {id} is there twice, the other time at {}", first.display()),
                "Only one of them is found by the session's id; the other one can't be resumed, and may hold what the first \
                 one does not.",
                "Compare them (`logdump show` with a home that has one of them), and move the one that is not wanted out of \
                 the home.",
            );
        }
    }
    sessions(root, &places, findings);
    Ok(places.values().map(|dirs| u64::try_from(dirs.len()).unwrap_or(u64::MAX)).sum())
}

fn sessions(root: &Path, places: &BTreeMap<SessionId, Vec<PathBuf>>, findings: &mut Findings) {
    if places.is_empty() {
        return;
    }
    let opened = StoreReader::open(root).and_then(|store| Ok((store.places()?, store)));
    let (all, store) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let why = "Without a marker or a readable session, nothing opens this directory as a home.";
            let fix = format!("printf 'sessionlog home 1\\n' > {}", quoted(&root.join(MARKER)));
            return findings.add(Exit::Lost, "home.unreadable", root, error.to_string(), why, fix);
        }
    };
    for place in all {
        session::look(root, &store.session_at(place), findings);
    }
}

/// The entries of a directory; that it can't be listed is a finding.
pub(super) fn list(dir: &Path, findings: &mut Findings) -> Vec<DirEntry> {
    match OsStorage.list(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let why = "Nothing in it can be looked at or opened.";
            let fix = "Give yourself the right to read it, or see what is wrong with the disk.";
            findings.add(
                Exit::Io,
                "directory.unreadable",
                dir,
                format!("can't be listed: {error}"),
                why,
                fix,
            );
            Vec::new()
        }
    }
}

fn marker(root: &Path, entries: &[DirEntry], findings: &mut Findings) {
    let path = root.join(MARKER);
    let fix = format!("printf 'sessionlog home 1\\n' > {}", quoted(&path));
    if !entries.iter().any(|entry| entry.name == MARKER && entry.kind == EntryKind::File) {
        let what = "the home's marker is missing";
        let why = "A copy without dot files loses it. The home opens as long as it has a session with a log, and is refused \
                   when it has none.";
        return findings.add(Exit::Warnings, "home.marker", &path, what, why, fix);
    }
    if std::fs::read(&path).ok().as_deref() != Some(MARKER_TEXT) {
        let what = "the home's marker does not say what it should";
        let why = "Its name is what counts, so nothing fails; but something wrote over it, and maybe not only over it.";
        findings.add(Exit::Warnings, "home.marker", &path, what, why, fix);
    }
}

/// Something that no part of a home is.
pub(super) fn stray(path: &Path, entry: &DirEntry, findings: &mut Findings) {
    let name = entry.name.to_string_lossy();
    if entry.kind == EntryKind::Other {
        return;
    }
    if is_conflicted(&entry.name) {
        return findings.add(
            Exit::Warnings,
            "file.conflicted",
            path,
            format!("`{name}` is a copy that a program for synchronising files made"),
            "Two machines wrote the same file. It is never read and never taken for a session; but what one of them recorded \
             may be in it and nowhere else.",
            "Compare it with the file that it stands beside. Keep one, and don't synchronise a home while agents run.",
        );
    }
    findings.add(
        Exit::Warnings,
        "file.stray",
        path,
        format!("`{name}` does not belong here"),
        "It is not read and not in the way; it may be something that was misplaced.",
        "Look at it, and move it out of the home.",
    );
}

/// Whether a name is one that programs give to the loser of two changes.
fn is_conflicted(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_lowercase();
    name.contains("conflicted copy")
        || name.contains(".sync-conflict-")
        || name.contains("(conflict")
        || name.ends_with('~')
}

fn workspace(
    dir: &Path,
    entry: &DirEntry,
    places: &mut BTreeMap<SessionId, Vec<PathBuf>>,
    findings: &mut Findings,
) {
    let hash = entry.name.to_str().and_then(WorkspaceHash::parse).filter(|_| entry.kind == EntryKind::Dir);
    let Some(hash) = hash else { return stray(dir, entry, findings) };
    path_text(dir, &hash, findings);
    let known = ["path.txt", "sessions", "workspace", "artifacts", "archive", "index"];
    for entry in list(dir, findings).iter().filter(|entry| !known.iter().any(|known| entry.name == *known)) {
        stray(&dir.join(&entry.name), entry, findings);
    }
    let sessions = dir.join("sessions");
    for entry in list(&sessions, findings) {
        let path = sessions.join(&entry.name);
        let id = entry.name.to_str().and_then(|name| name.parse::<SessionId>().ok());
        match id.filter(|_| entry.kind == EntryKind::Dir) {
            // What is left of a session whose deletion was interrupted: the note about that tells.
            None if entry.name.to_string_lossy().ends_with(".deleted") => {}
            // Another spelling of an id is not where the session is looked for.
            Some(id) if entry.name == id.to_string().as_str() => places.entry(id).or_default().push(path),
            _ => stray(&path, &entry, findings),
        }
    }
}

/// Which directory of code a workspace is.
fn path_text(dir: &Path, hash: &WorkspaceHash, findings: &mut Findings) {
    let file = dir.join("path.txt");
    let Ok(bytes) = std::fs::read(&file) else {
        return findings.add(
            Exit::Warnings,
            "workspace.unnamed",
            &file,
            "it is not known which directory this workspace is",
            "Its sessions can be listed and resumed by their ids; they are not found by their directory.",
            "Each session's own log names the directory: `logdump events ID --kind session.created`. Write that path into the \
             file, without a line end.",
        );
    };
    let path = path_of(&bytes);
    if WorkspaceHash::of(&path) != *hash {
        return findings.add(
            Exit::Warnings,
            "workspace.misnamed",
            &file,
            format!("it names {}, which has another hash than {hash}", path.display()),
            "The directory was renamed by hand, or the file was changed: sessions of that path are looked for elsewhere.",
            format!("Rename the directory to {}, if there is none of that name.", WorkspaceHash::of(&path)),
        );
    }
    if path.is_absolute() && !path.exists() {
        findings.add(
            Exit::Clean,
            "workspace.gone",
            &file,
            format!("{} is not there any more", path.display()),
            "It was moved or deleted, or it is on another machine. Its sessions are whole, and resume by their ids.",
            "Nothing to do. After a move: `logdump roots attach OLD NEW` says where it is now.",
        );
    }
}

#[cfg(unix)]
fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(not(unix))]
fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

/// Who may read what is said to an agent, and what the engine refuses to go through.
fn modes(root: &Path, findings: &mut Findings) {
    let (mut open, mut closed) = (Vec::new(), Vec::new());
    let mut dirs = vec![root.to_owned()];
    note_mode(root, EntryKind::Dir, &mut open, &mut closed);
    while let Some(dir) = dirs.pop() {
        for entry in OsStorage.list(&dir).unwrap_or_default() {
            let path = dir.join(&entry.name);
            if entry.kind == EntryKind::Other {
                findings.add(
                    Exit::Warnings,
                    "file.link",
                    &path,
                    "a link or special file",
                    "Links inside of a home are not followed, since they could lead a write anywhere: what it stands for is \
                     not read.",
                    "Put the file itself in its place. A whole home may be a link.",
                );
                continue;
            }
            note_mode(&path, entry.kind, &mut open, &mut closed);
            if entry.kind == EntryKind::Dir && path != root.join("index") {
                dirs.push(path);
            }
        }
    }
    if let Some(first) = open.first() {
        findings.add(
            Exit::Warnings,
            "mode.open",
            first,
            format!("{} files or directories can be read or written by others", open.len()),
            "Sessions hold code, prompts and what tools printed. They are created for their owner alone; a copy or an unpacked \
             archive may have opened them.",
            format!("chmod -R go= {}", quoted(root)),
        );
    }
    if let Some(first) = closed.first() {
        findings.add(
            Exit::Warnings,
            "mode.closed",
            first,
            format!("{} files or directories can't be written by their owner", closed.len()),
            "Their sessions can be read and not be resumed.",
            format!("chmod -R u+rwX {}", quoted(root)),
        );
    }
}

#[cfg(unix)]
fn note_mode(path: &Path, kind: EntryKind, open: &mut Vec<PathBuf>, closed: &mut Vec<PathBuf>) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(found) = path.symlink_metadata() else { return };
    let mode = found.permissions().mode();
    let own = if kind == EntryKind::Dir { 0o700 } else { 0o600 };
    if mode & 0o077 != 0 {
        open.push(path.to_owned());
    }
    if mode & own != own {
        closed.push(path.to_owned());
    }
}

#[cfg(not(unix))]
fn note_mode(_: &Path, _: EntryKind, _: &mut Vec<PathBuf>, _: &mut Vec<PathBuf>) {}

/// What the home stands on, as far as that can be told without writing: on Linux, from the list of mounts.
fn file_system(root: &Path, findings: &mut Findings) {
    let (Ok(mounts), Ok(root)) = (std::fs::read_to_string("/proc/self/mounts"), root.canonicalize()) else {
        return;
    };
    let mut best: Option<(PathBuf, &str, &str)> = None;
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(at), Some(kind), Some(options)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let at = PathBuf::from(at.replace("\\040", " "));
        let is_longer =
            best.as_ref().is_none_or(|(best, _, _)| at.components().count() >= best.components().count());
        if root.starts_with(&at) && is_longer {
            best = Some((at, kind, options));
        }
    }
    let Some((at, kind, options)) = best else { return };
    if SHARED.contains(&kind) || kind.starts_with("fuse") {
        findings.add(
            Exit::Warnings,
            "system.shared",
            &at,
            format!("the home is on a file system of type {kind}"),
            "An owner's lock may not be seen by another machine there (whether it works can't be tried without writing). Two \
             owners at once are found out afterwards, by their epochs, and not kept apart.",
            "Keep homes on a local disk; move sessions by copying them while no agent runs.",
        );
    }
    if options.split(',').any(|option| option == "ro") {
        findings.add(
            Exit::Clean,
            "system.read_only",
            &at,
            "the home is mounted read-only",
            "Everything can be read; nothing can be recorded or resumed.",
            "Nothing to do, if that is meant.",
        );
    }
}

/// The one spelling of the home's path, for commands to be typed.
pub(super) fn home_argument(root: &Path) -> String {
    quoted(&store::canonical(root))
}
