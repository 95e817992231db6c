//! Walks directories.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::{DiscoverError, Found, note};
use crate::import::report::Note;

/// Directories that hold no sessions, and much else.
const SKIPPED: &[&str] = &[".git", "node_modules", "shadow-git"];

/// Finds the regular files at or below `root`.
pub(super) fn walk(root: &Path, found: &mut Vec<Found>, notes: &mut Vec<Note>) -> Result<(), DiscoverError> {
    let error = |source| DiscoverError { path: root.to_owned(), source };
    // A given path may be a symlink: whoever gives it means what it leads to.
    let metadata = fs::metadata(root).map_err(error)?;
    if metadata.is_file() {
        let label = root.file_name().unwrap_or(root.as_os_str()).to_string_lossy().into_owned();
        File::open(root).map_err(error)?;
        found.push(Found { path: root.to_owned(), label, len: metadata.len() });
        return Ok(());
    }
    if !metadata.is_dir() {
        note(notes, &root.to_string_lossy(), "is neither a file nor a directory, so it was skipped");
        return Ok(());
    }
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        match read_directory(root, &directory, &mut directories, found, notes) {
            Err(source) if directory == root => return Err(error(source)),
            Err(source) => note(notes, &label_of(root, &directory), format!("can't be read: {source}")),
            Ok(()) => {}
        }
    }
    Ok(())
}

fn read_directory(
    root: &Path,
    directory: &Path,
    directories: &mut Vec<std::path::PathBuf>,
    found: &mut Vec<Found>,
    notes: &mut Vec<Note>,
) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        let label = label_of(root, &path);
        // Of the entry itself, so that a symlink is one.
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(error) => {
                note(notes, &label, format!("can't be read: {error}"));
                continue;
            }
        };
        if metadata.is_dir() {
            if !entry.file_name().to_str().is_some_and(|name| SKIPPED.contains(&name)) {
                directories.push(path);
            }
        } else if metadata.is_file() {
            found.push(Found { path, label, len: metadata.len() });
        } else {
            let what = if metadata.is_symlink() { "a symlink" } else { "no regular file" };
            note(notes, &label, format!("is {what}, so it was skipped"));
        }
    }
    Ok(())
}

fn label_of(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

/// Whether the shorter of two files is the beginning of the other one.
pub(super) fn is_prefix_of_other(a: &Found, b: &Found) -> bool {
    let same = || -> io::Result<bool> {
        let len = a.len.min(b.len);
        let mut a = BufReader::new(File::open(&a.path)?.take(len)).bytes();
        let mut b = BufReader::new(File::open(&b.path)?.take(len)).bytes();
        loop {
            match (a.next().transpose()?, b.next().transpose()?) {
                (None, None) => return Ok(true),
                (x, y) if x != y => return Ok(false),
                _ => {}
            }
        }
    };
    same().unwrap_or(false)
}
