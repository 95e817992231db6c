//! Names and places of a log's files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog_codec::ids::Position;

use super::unpacked::{SegmentView, Spare, Unpacked};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{Access, EntryKind, Storage, StorageFile};

const SUFFIX: &str = ".seg";
const DIGITS: usize = 20;
/// What a segment's new file is called, behind its name, until it is whole.
const REPLACEMENT: &str = ".new";

/// A segment file's name: the position of its first record in 20 digits, so that names sort as positions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName(pub Position);

impl SegmentName {
    /// The name of a file, if it is a segment's.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let digits = name.strip_suffix(SUFFIX)?;
        if digits.len() != DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        digits.parse().ok().map(|position| Self(Position(position)))
    }
}

impl std::fmt::Display for SegmentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:020}{SUFFIX}", self.0.0)
    }
}

/// The places of one log.
#[derive(Clone, Debug)]
pub struct LogDir {
    /// The storage it is in.
    pub storage: Arc<dyn Storage>,
    /// The directory of the segments.
    pub segments: PathBuf,
    /// The directory for what recovery cuts off; created when it is needed.
    pub quarantine: PathBuf,
}

impl LogDir {
    /// The log in a directory that is a log's owner: a session, its archive, what is shared.
    pub(crate) fn below(storage: &Arc<dyn Storage>, dir: &Path) -> Self {
        let storage = Arc::clone(storage);
        Self { storage, segments: dir.join("log"), quarantine: dir.join("quarantine") }
    }

    /// The path of a segment.
    #[must_use]
    pub fn segment_path(&self, name: SegmentName) -> PathBuf {
        self.segments.join(name.to_string())
    }

    /// The segments that exist, in order, with the lengths of their files: a compressed segment is longer. Files of other names are left alone; but what has the name
    /// of a segment and is no file (a link, say) is not taken for a missing one.
    pub(crate) fn list(&self) -> Result<Vec<(SegmentName, u64)>> {
        let entries =
            self.storage.list(&self.segments).map_err(|e| Error::io("listing", &self.segments, e))?;
        let mut segments = Vec::with_capacity(entries.len());
        for entry in &entries {
            let Some(name) = entry.name.to_str().and_then(SegmentName::parse) else { continue };
            if entry.kind != EntryKind::File {
                let message = format!("{} is not a regular file", self.segment_path(name).display());
                return Err(Error::new(ErrorKind::Corrupt, "log.damaged", message));
            }
            segments.push((name, entry.len));
        }
        segments.sort_unstable();
        Ok(segments)
    }

    pub(crate) fn open(&self, name: SegmentName, access: Access) -> Result<Arc<dyn StorageFile>> {
        let path = self.segment_path(name);
        self.storage.open(&path, access).map_err(|e| Error::io("opening", &path, e))
    }

    /// A segment's file, to read several parts of the segment.
    pub(crate) fn view(&self, name: SegmentName) -> Result<SegmentView> {
        SegmentView::open(self.segment_path(name), self.open(name, Access::Read)?)
    }

    /// The bytes of a segment from `offset` on, at most `len` of them, whether its file is compressed or not.
    ///
    /// # Errors
    /// `Corrupt` if they are in a hurt block of a compressed file.
    pub(crate) fn read(&self, name: SegmentName, offset: u64, len: u64) -> Result<Vec<u8>> {
        SegmentView::open_once(self.segment_path(name), self.open(name, Access::Read)?)?.read(offset, len)
    }

    /// All bytes of a segment, whether its file is compressed or not.
    pub(crate) fn read_all(&self, name: SegmentName) -> Result<Unpacked> {
        self.read_all_into(name, Spare::default())
    }

    /// The same, into the memory of `spare`: for whoever reads many segments.
    pub(crate) fn read_all_into(&self, name: SegmentName, spare: Spare) -> Result<Unpacked> {
        SegmentView::whole(self.segment_path(name), self.open(name, Access::Read)?, spare)
    }
}

impl LogDir {
    /// Puts new bytes in a segment's place: whoever reads it sees the old ones or the new ones. Durable when it returns,
    /// with every name of the directory. After an error the old ones are there, or the new ones.
    pub(crate) fn replace(&self, name: SegmentName, bytes: &[u8]) -> Result<()> {
        self.replace_checked(name, bytes, &mut |_| Ok(()))
    }

    /// As [`replace`](Self::replace), if `check` has nothing against it: it is given the path of the new file, which is synced
    /// and has not taken the old one's name yet.
    pub(crate) fn replace_checked(
        &self,
        name: SegmentName,
        bytes: &[u8],
        check: &mut dyn FnMut(&Path) -> Result<()>,
    ) -> Result<()> {
        self.remove_leftovers()?;
        let (storage, path) = (&self.storage, self.segment_path(name));
        let beside = self.segments.join(format!("{name}{REPLACEMENT}"));
        let file = storage.create_new(&beside).map_err(|e| Error::io("creating", &beside, e))?;
        let written = file
            .write_at(bytes, 0)
            .map_err(|e| Error::io("writing", &beside, e))
            .and_then(|()| {
                #[cfg(feature = "seeded-bugs")]
                if sessionlog_codec::seeded::is("replace_not_synced") {
                    return Ok(());
                }
                file.sync_all().map_err(|e| Error::sync(&beside, e))
            })
            .and_then(|()| check(&beside))
            .and_then(|()| storage.rename(&beside, &path).map_err(|e| Error::io("renaming", &beside, e)));
        if let Err(error) = written {
            // Its space is given back; if that fails too, the next replacement does it.
            drop(storage.remove_file(&beside));
            return Err(error);
        }
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("drop_dir_sync_at_replace") {
            return Ok(());
        }
        storage.sync_dir(&self.segments).map_err(|e| Error::sync(&self.segments, e))
    }

    /// Removes what replacements left that a crash cut off.
    fn remove_leftovers(&self) -> Result<()> {
        let entries =
            self.storage.list(&self.segments).map_err(|e| Error::io("listing", &self.segments, e))?;
        for entry in entries {
            let is_leftover = entry.name.to_str().is_some_and(|name| {
                name.strip_suffix(REPLACEMENT).is_some_and(|name| SegmentName::parse(name).is_some())
            });
            if is_leftover {
                let path = self.segments.join(entry.name);
                self.storage.remove_file(&path).map_err(|e| Error::io("removing", &path, e))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_positions_do() {
        let name = SegmentName(Position(42)).to_string();
        assert_eq!(name, "00000000000000000042.seg");
        assert_eq!(SegmentName::parse(&name), Some(SegmentName(Position(42))));
        for other in ["42.seg", "0000000000000000004x.seg", "99999999999999999999.seg", ".seg", "x"] {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
    }
}
