//! Removing whole directories, so that they stay removed.

use std::io;
use std::path::Path;

use super::Home;
use super::home::not_a_directory;
use crate::error::{Error, Result};
use crate::storage::EntryKind;

impl Home {
    /// Removes a directory with all that is in it. Links are removed, not followed. It is no error if there is none, or if
    /// somebody else removes it at the same time.
    ///
    /// Durable when it returns: that it is gone. After an error or a crash a part of it may be gone; the same call again does
    /// the rest.
    ///
    /// # Errors
    /// `Invalid` if a directory of the home that it is in is a link: nothing outside of the home is removed. `Io`.
    pub(crate) fn remove_tree(&self, dir: &Path) -> Result<()> {
        self.check_no_link_above(dir)?;
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

    /// Whether all that a path leads through, from the home on, are directories, or not there.
    ///
    /// # Errors
    /// `Invalid` if not; `Io` if it can't be known.
    pub(crate) fn check_no_link_above(&self, path: &Path) -> Result<()> {
        let above =
            path.ancestors().skip(1).take_while(|dir| *dir != self.root && dir.starts_with(&self.root));
        for dir in above {
            match self.storage.entry(dir) {
                Ok(Some(entry)) if entry.kind != EntryKind::Dir => return Err(not_a_directory(dir)),
                // Below what is no directory there is nothing; above it, it is looked at itself.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
                Err(error) => return Err(Error::io("looking at", dir, error)),
            }
        }
        Ok(())
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
