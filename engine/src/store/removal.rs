//! Removing whole directories, so that they stay removed.

use std::io;
use std::path::Path;

use super::Home;
use crate::error::{Error, Result};
use crate::storage::EntryKind;

impl Home {
    /// Removes a directory with all that is in it. Links are removed, not followed. It is no error if there is none, or if
    /// somebody else removes it at the same time.
    ///
    /// Durable when it returns: that it is gone. After an error or a crash a part of it may be gone; the same call again does
    /// the rest.
    pub(crate) fn remove_tree(&self, dir: &Path) -> Result<()> {
        let entry = self.storage.entry(dir).map_err(|e| Error::io("looking at", dir, e))?;
        match entry.map(|entry| entry.kind) {
            None => {}
            Some(EntryKind::Dir) => self.remove_dir_with_content(dir)?,
            Some(_) => ignore_missing(dir, self.storage.remove_file(dir))?,
        }
        match dir.parent().map(|parent| (parent, self.storage.sync_dir(parent))) {
            Some((parent, Err(error))) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::sync(parent, error))
            }
            _ => Ok(()),
        }
    }

    fn remove_dir_with_content(&self, dir: &Path) -> Result<()> {
        let entries = match self.storage.list(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Error::io("listing", dir, error)),
        };
        for entry in entries {
            let path = dir.join(&entry.name);
            match entry.kind {
                EntryKind::Dir => self.remove_dir_with_content(&path)?,
                EntryKind::File | EntryKind::Other => ignore_missing(&path, self.storage.remove_file(&path))?,
            }
        }
        // A directory whose removal is on disk before that of its files would keep their bytes.
        match self.storage.sync_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::sync(dir, error)),
            _ => {}
        }
        ignore_missing(dir, self.storage.remove_dir(dir))
    }

    /// How many bytes are in the files of a directory, and below it. What can't be looked at counts nothing.
    pub(crate) fn bytes_below(&self, dir: &Path) -> u64 {
        let entries = self.storage.list(dir).unwrap_or_default();
        let bytes = entries.iter().map(|entry| match entry.kind {
            EntryKind::Dir => self.bytes_below(&dir.join(&entry.name)),
            EntryKind::File => entry.len,
            EntryKind::Other => 0,
        });
        bytes.fold(0, u64::saturating_add)
    }
}

fn ignore_missing(path: &Path, removed: io::Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("removing", path, error)),
        _ => Ok(()),
    }
}
