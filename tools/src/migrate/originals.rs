//! Removing what was migrated.
//!
//! The file that tells which session it is goes last: what a crash leaves is still known for the same session, so the next
//! run removes the rest.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::Found;
use crate::import::{FileRole, SourceFormat, SourceSession};

/// The files that are removed, and how.
pub trait Disk {
    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// What the system says; that it is not empty, too.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the removals in a directory durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// The system's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    #[cfg(unix)]
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    /// Directories can't be opened for that here; the system orders its own journal.
    #[cfg(not(unix))]
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// What files hold: their hashes.
#[derive(Debug)]
pub(super) struct Prints(Vec<(PathBuf, blake3::Hash)>);

/// A file can't be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} can't be read: {}", self.path.display(), self.error)
    }
}

impl Prints {
    /// The files of a source, in the order they may be removed in.
    pub(super) fn of(source: &SourceSession) -> Result<Self, Unreadable> {
        let mut files: Vec<_> = source.files.iter().collect();
        let naming = files.iter().rposition(|file| file.role == FileRole::Meta).unwrap_or(0);
        if naming < files.len() {
            let last = files.remove(naming);
            files.push(last);
        }
        let print = |path: &Path| print(path).map(|hash| (path.to_owned(), hash));
        files.into_iter().map(|file| print(&file.path)).collect::<Result<_, _>>().map(Self)
    }
}

fn print(path: &Path) -> Result<blake3::Hash, Unreadable> {
    let read = || {
        // A link that took the place of a file is another file.
        if !path.symlink_metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open(path)?)?;
        Ok(hasher.finalize())
    };
    read().map_err(|error| Unreadable { path: path.to_owned(), error })
}

/// Whether somebody may be writing the files of a source still.
pub(super) fn in_use(found: &Found) -> Option<String> {
    let first = found.source.files.first()?;
    let dir = first.path.parent()?;
    if found.source.format == SourceFormat::RecursiveSession && dir.join(".lock").exists() {
        let lock = dir.join(".lock");
        return Some(format!(
            "{} says that recursive has it open; if it has not, remove that",
            lock.display()
        ));
    }
    let lock = dir.join("workspace.lock");
    if found.source.format == SourceFormat::QSession
        && let Ok(file) = File::open(&lock)
        && matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock))
    {
        return Some(format!("q holds {}: end it first", lock.display()));
    }
    None
}

/// Removes the files of a source that still are what they were, and the directories of its own that are empty then. Gives how
/// many files went.
pub(super) fn remove(
    disk: &dyn Disk,
    found: &Found,
    source: &SourceSession,
    prints: &Prints,
) -> Result<usize, String> {
    let check = |path: &Path, before: &blake3::Hash| match print(path) {
        Ok(now) if now == *before => Ok(()),
        Ok(_) => Err(format!("{} changed while it was migrated; run this again", path.display())),
        Err(error) => Err(error.to_string()),
    };
    // All of them, before the first goes; and each once more when it goes, as late as can be.
    for (path, before) in &prints.0 {
        check(path, before)?;
    }
    let failed = |doing: &str, path: &Path, error: io::Error| {
        format!("{doing} {} failed: {error}; run this again", path.display())
    };
    for (path, before) in &prints.0 {
        check(path, before)?;
        disk.remove_file(path).map_err(|error| failed("removing", path, error))?;
        let dir = path.parent().unwrap_or(Path::new("/"));
        disk.sync_dir(dir).map_err(|error| failed("syncing", dir, error))?;
    }
    let mut dirs: Vec<&Path> = own_dirs(found, source);
    dirs.sort_by_key(|dir| std::cmp::Reverse(dir.components().count()));
    dirs.dedup();
    for dir in dirs {
        // One that holds anything else stays.
        if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none()) {
            disk.remove_dir(dir).map_err(|error| failed("removing", dir, error))?;
            let parent = dir.parent().unwrap_or(Path::new("/"));
            disk.sync_dir(parent).map_err(|error| failed("syncing", parent, error))?;
        }
    }
    Ok(prints.0.len())
}

/// The directories that are a source's own: at or below the one that is said to be.
fn own_dirs<'a>(found: &'a Found, source: &'a SourceSession) -> Vec<&'a Path> {
    let Some(top) = found.own_dir.as_deref() else { return Vec::new() };
    let above = |file: &'a crate::import::SourceFile| {
        file.path.ancestors().skip(1).take_while(|dir| dir.starts_with(top)).collect::<Vec<_>>()
    };
    source.files.iter().flat_map(above).collect()
}
