//! The files of a workspace's artifacts: written beside, synced, renamed; named by what they hold, and never changed.
//!
//! Two kinds of users meet in the directory. Those who are about to name an artifact hold the lock together, from before they
//! look for its file until what names it can be read by others. A collection holds it alone: once to list what there is, and
//! then for each few files that it removes. So when the list is made, every file was named by whoever put it, or by nobody; and
//! a file that somebody came back to since has another time than the list says. No clock decides whether a file is safe.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sessionlog_codec::ids::{Digest, Timestamp};
use uuid::Uuid;

use super::{ARTIFACT_LEN_MAX, Tally};
use crate::error::{Error, ErrorKind, Result};
use crate::num::{to_u64, to_usize};
use crate::storage::{Access, EntryKind, Lock, LockError, Storage, StorageFile};
use crate::store::{Home, WorkspaceHash};

/// How often the lock is tried, and how long between: for about 5 s. A collection holds it for some milliseconds at a time.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);
/// Bytes that are read and hashed at a time.
const READ_LEN: usize = 256 << 10;
/// What the name of a file ends with that is being written.
const UNFINISHED: &str = ".new";
const LOCK_FILE: &str = "lock";

/// Files of this process whose names may not be durable, since the sync of their directory failed. Nobody's file is trusted
/// that is among them: it is written anew.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<BTreeSet<PathBuf>>);

impl Doubts {
    fn set(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lock, held: alone or with others.
#[derive(Debug)]
pub(crate) struct Held {
    _lock: Box<dyn Lock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Alone,
    Together,
}

/// A file as it was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) len: u64,
    /// `None` where the storage has no times: then nobody can tell whether somebody came back to it, and it stays.
    pub(super) modified: Option<Timestamp>,
}

/// What is in the directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) blobs: BTreeMap<Digest, Blob>,
    /// What was being written when its process ended: nobody is at it as long as the lock is held alone.
    pub(super) unfinished: Vec<(PathBuf, Blob)>,
}

impl Listing {
    pub(super) fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.blobs
            .values()
            .chain(self.unfinished.iter().map(|(_, blob)| blob))
            .for_each(|blob| total.add(blob.len));
        total
    }
}

/// The directory of a workspace's artifacts.
#[derive(Clone, Debug)]
pub(crate) struct Blobs {
    home: Home,
    dir: PathBuf,
}

impl Blobs {
    pub(crate) fn new(home: &Home, workspace: &WorkspaceHash) -> Self {
        Self { home: home.clone(), dir: home.workspace_dir(workspace).join("artifacts") }
    }

    fn storage(&self) -> &Arc<dyn Storage> {
        &self.home.storage
    }

    fn shelf(&self, digest: &Digest) -> PathBuf {
        self.dir.join(digest.to_string().chars().take(2).collect::<String>())
    }

    pub(super) fn path(&self, digest: &Digest) -> PathBuf {
        self.shelf(digest).join(digest.to_string())
    }

    /// Whether nothing was ever put here.
    pub(super) fn is_absent(&self) -> Result<bool> {
        let entry = self.storage().entry(&self.dir).map_err(|e| Error::io("looking at", &self.dir, e))?;
        Ok(entry.is_none())
    }

    /// Makes the directory. A workspace that has no session has no artifacts.
    fn create(&self) -> Result<()> {
        let workspace = self.dir.parent().unwrap_or(&self.dir);
        let entry = self.storage().entry(workspace).map_err(|e| Error::io("looking at", workspace, e))?;
        if entry.is_none() {
            let message = format!("there is no workspace at {}", workspace.display());
            return Err(Error::new(ErrorKind::NotFound, "workspace.missing", message));
        }
        self.home.create_dir(&self.dir)
    }

    /// The lock of those who are about to name artifacts, which they hold together.
    pub(crate) fn hold(&self) -> Result<Held> {
        self.create()?;
        self.lock(Sharing::Together)
    }

    /// The lock of a collection. The directory exists.
    pub(super) fn hold_alone(&self) -> Result<Held> {
        self.lock(Sharing::Alone)
    }

    fn lock(&self, sharing: Sharing) -> Result<Held> {
        let path = self.dir.join(LOCK_FILE);
        for attempt in 1..=ATTEMPTS {
            let tried = match sharing {
                Sharing::Alone => self.storage().try_lock(&path),
                Sharing::Together => self.storage().try_lock_shared(&path),
            };
            match tried {
                Ok(lock) => return Ok(Held { _lock: lock }),
                Err(LockError::Held) if attempt < ATTEMPTS => std::thread::sleep(PAUSE),
                Err(LockError::Held) => break,
                Err(LockError::Io(error)) => return Err(Error::io("locking", &path, error)),
            }
        }
        let message = format!(
            "{} is held: somebody collects artifacts, or puts some, for longer than usual; try again",
            path.display()
        );
        Err(Error::new(ErrorKind::Locked, "artifacts.locked", message))
    }

    /// Stores content, unless it is there already, whole. The caller holds the lock.
    ///
    /// Durable when it returns: the content, under its name.
    pub(super) fn put(&self, _held: &Held, content: &[u8], now: Timestamp, doubts: &Doubts) -> Result<Put> {
        let len = to_u64(content.len());
        if len > ARTIFACT_LEN_MAX {
            let message = format!(
                "the content has {len} bytes, and an artifact has at most {ARTIFACT_LEN_MAX}: store it in parts"
            );
            return Err(Error::invalid("artifact.too_large", message));
        }
        let digest = Digest::of(content);
        let (shelf, path) = (self.shelf(&digest), self.path(&digest));
        self.home.create_dir(&shelf)?;
        if self.come_back(&digest, now, doubts)? {
            return Ok(Put { digest, found: Found::There });
        }
        let beside = shelf.join(format!("{digest}.{}{UNFINISHED}", Uuid::now_v7().simple()));
        let file = self.storage().create_new(&beside).map_err(|e| Error::io("creating", &beside, e))?;
        let written = self.write(&*file, content, &beside, now).and_then(|()| {
            self.storage().rename(&beside, &path).map_err(|e| Error::io("renaming", &beside, e))
        });
        if let Err(error) = written {
            // Its space is given back; if that fails too, a collection does it.
            drop(self.storage().remove_file(&beside));
            return Err(error);
        }
        self.sync_shelf(&shelf, &path, doubts)?;
        doubts.set().remove(&path);
        Ok(Put { digest, found: Found::New })
    }

    fn write(&self, file: &dyn StorageFile, content: &[u8], path: &Path, now: Timestamp) -> Result<()> {
        file.write_at(content, 0).map_err(|e| Error::io("writing", path, e))?;
        self.storage().touch(path, now).map_err(|e| Error::io("touching", path, e))?;
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("artifact_not_synced") {
            return Ok(());
        }
        file.sync_all().map_err(|e| Error::sync(path, e))
    }

    fn sync_shelf(&self, shelf: &Path, path: &Path, doubts: &Doubts) -> Result<()> {
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("artifact_name_not_synced") {
            return Ok(());
        }
        self.storage().sync_dir(shelf).map_err(|e| {
            doubts.set().insert(path.to_owned());
            Error::sync(shelf, e)
        })
    }

    /// Takes content that is there, whole, as if it were put now. `false`: it has to be written.
    ///
    /// Durable when it returns: the content, under its name.
    fn come_back(&self, digest: &Digest, now: Timestamp, doubts: &Doubts) -> Result<bool> {
        let (shelf, path) = (self.shelf(digest), self.path(digest));
        let is_doubtful = doubts.set().contains(&path);
        #[cfg(feature = "seeded-bugs")]
        let is_doubtful = is_doubtful && !sessionlog_codec::seeded::is("artifact_doubt_forgotten");
        if is_doubtful || !self.is_whole(digest)? {
            return Ok(false);
        }
        self.touch(digest, now)?;
        // Whoever wrote it may not have come to this.
        self.sync_shelf(&shelf, &path, doubts)?;
        Ok(true)
    }

    /// Whether the content is there. A hurt file counts as none; what is not a file at all is refused.
    fn is_whole(&self, digest: &Digest) -> Result<bool> {
        match self.scan(digest, &mut |_| {}) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The file's length, if it is there.
    pub(super) fn len(&self, digest: &Digest) -> Result<Option<u64>> {
        let path = self.path(digest);
        match self.storage().entry(&path).map_err(|e| Error::io("looking at", &path, e))? {
            Some(entry) if entry.kind == EntryKind::File => Ok(Some(entry.len)),
            Some(_) => Err(not_a_file(&path)),
            None => Ok(None),
        }
    }

    /// Gives a file another time than it has, so that a collection under way leaves it, and the next one for a while. The caller
    /// holds the lock.
    pub(super) fn touch(&self, digest: &Digest, now: Timestamp) -> Result<()> {
        let path = self.path(digest);
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("artifact_not_touched") {
            return Ok(());
        }
        let known = self.storage().modified(&path).map_err(|e| Error::io("looking at", &path, e))?;
        let at = if known == Some(now) { Timestamp(now.0.saturating_add(1)) } else { now };
        self.storage().touch(&path, at).map_err(|e| Error::io("touching", &path, e))
    }

    /// Gives a whole artifact to `visit`, in pieces, and says how long it is once its hash is known to be right. What `visit`
    /// made of the pieces is worth nothing after an error.
    pub(super) fn scan(&self, digest: &Digest, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let path = self.path(digest);
        self.check_shelf(digest)?;
        let file = match self.storage().open(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(self.missing(digest)),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => return Err(not_a_file(&path)),
            Err(error) => return Err(Error::io("opening", &path, error)),
        };
        let len = file.len().map_err(|e| Error::io("looking at", &path, e))?;
        if len > ARTIFACT_LEN_MAX {
            let message =
                format!("{} has {len} bytes; an artifact has at most {ARTIFACT_LEN_MAX}", path.display());
            return Err(Error::new(ErrorKind::Corrupt, "artifact.damaged", message));
        }
        let (mut hasher, mut offset) = (blake3::Hasher::new(), 0_u64);
        let mut buffer = vec![0; READ_LEN.min(to_usize(len))];
        while offset < len {
            let wanted = buffer.len().min(to_usize(len.saturating_sub(offset)));
            let piece = buffer.get_mut(..wanted).unwrap_or_default();
            let read = file.read_at(piece, offset).map_err(|e| Error::io("reading", &path, e))?;
            let Some(piece) = buffer.get(..read).filter(|piece| !piece.is_empty()) else { break };
            hasher.update(piece);
            visit(piece);
            offset = offset.saturating_add(to_u64(read));
        }
        let found = Digest(*hasher.finalize().as_bytes());
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("artifact_hash_not_checked") {
            return Ok(offset);
        }
        if found != *digest {
            let message = format!(
                "{} is hurt: its {offset} bytes have the hash {found}, not {digest}. Nothing of it is given out; putting the \
                 same content again repairs it",
                path.display()
            );
            return Err(Error::new(ErrorKind::Corrupt, "artifact.damaged", message));
        }
        Ok(offset)
    }

    /// The two directories above a file are no links.
    fn check_shelf(&self, digest: &Digest) -> Result<()> {
        for dir in [self.dir.clone(), self.shelf(digest)] {
            match self.storage().entry(&dir).map_err(|e| Error::io("looking at", &dir, e))? {
                Some(entry) if entry.kind == EntryKind::Dir => {}
                Some(_) => return Err(not_a_file(&dir)),
                None => return Err(self.missing(digest)),
            }
        }
        Ok(())
    }

    pub(super) fn missing(&self, digest: &Digest) -> Error {
        let message = format!(
            "there is no artifact {digest} in {}: it was collected, or belongs to another workspace",
            self.dir.display()
        );
        Error::new(ErrorKind::NotFound, "artifact.missing", message)
    }

    /// All that is here. What is neither an artifact nor a half-made one is nobody's to judge, and left out.
    pub(super) fn list(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        for shelf in self.entries(&self.dir)? {
            let Some(name) = shelf.name.to_str().filter(|name| is_hex(name, 2)) else { continue };
            if shelf.kind != EntryKind::Dir {
                continue;
            }
            let dir = self.dir.join(name);
            for entry in self.entries(&dir)?.into_iter().filter(|entry| entry.kind == EntryKind::File) {
                let Some(file) = entry.name.to_str() else { continue };
                let path = dir.join(file);
                let unfinished = file.strip_suffix(UNFINISHED).and_then(|rest| rest.split_once('.'));
                let digest = parse_digest(unfinished.map_or(file, |(digest, _)| digest));
                let Some(digest) = digest.filter(|digest| digest.to_string().starts_with(name)) else {
                    continue;
                };
                let modified = match self.storage().modified(&path) {
                    Ok(modified) => modified,
                    // Removed since the directory was read.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(Error::io("looking at", &path, error)),
                };
                let blob = Blob { len: entry.len, modified };
                match unfinished {
                    Some(_) => listing.unfinished.push((path, blob)),
                    None => drop(listing.blobs.insert(digest, blob)),
                }
            }
        }
        Ok(listing)
    }

    fn entries(&self, dir: &Path) -> Result<Vec<crate::storage::DirEntry>> {
        match self.storage().list(dir) {
            Ok(entries) => Ok(entries),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Error::io("listing", dir, error)),
        }
    }

    /// The artifacts whose digests begin with `prefix`, two at most.
    pub(super) fn find(&self, prefix: &str) -> Result<Vec<Digest>> {
        let shelf: String = prefix.chars().take(2).collect();
        if !is_hex(&shelf, 2) {
            return Ok(Vec::new());
        }
        let names = self.entries(&self.dir.join(shelf))?.into_iter();
        let digests = names.filter_map(|entry| parse_digest(entry.name.to_str()?));
        Ok(digests.filter(|digest| digest.to_string().starts_with(prefix)).take(2).collect())
    }

    /// Whether a file is as it was listed. The caller holds the lock alone.
    pub(super) fn is_as_listed(&self, path: &Path, blob: &Blob) -> Result<bool> {
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("gc_ignores_who_came_back") {
            return Ok(self.storage().entry(path).is_ok_and(|entry| entry.is_some()));
        }
        let Some(known) = blob.modified else { return Ok(false) };
        match self.storage().modified(path) {
            Ok(modified) => Ok(modified == Some(known)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("looking at", path, error)),
        }
    }

    /// Removes a file. The caller holds the lock alone, and syncs the directory.
    pub(super) fn remove(&self, path: &Path) -> Result<()> {
        match self.storage().remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("removing", path, error))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn sync(&self, dir: &Path) -> Result<()> {
        self.storage().sync_dir(dir).map_err(|e| Error::sync(dir, e))
    }

    /// Takes an artifact over from another workspace: a second name where the file system has such a thing, else a copy. `false`:
    /// it is not there either. The caller holds the lock of this one.
    pub(super) fn take_over(
        &self,
        held: &Held,
        from: &Self,
        digest: &Digest,
        now: Timestamp,
        doubts: &Doubts,
    ) -> Result<bool> {
        let (shelf, path) = (self.shelf(digest), self.path(digest));
        self.home.create_dir(&shelf)?;
        if self.come_back(digest, now, doubts)? {
            return Ok(true);
        }
        if from.len(digest)?.is_none() {
            return Ok(false);
        }
        if self.len(digest)?.is_none() && self.storage().hard_link(&from.path(digest), &path).is_ok() {
            self.touch(digest, now)?;
            self.sync_shelf(&shelf, &path, doubts)?;
            return Ok(true);
        }
        let mut content = Vec::new();
        from.scan(digest, &mut |piece| content.extend_from_slice(piece))?;
        self.put(held, &content, now, doubts)?;
        Ok(true)
    }
}

/// What came of a put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    pub(super) digest: Digest,
    pub(super) found: Found,
}

/// Whether content was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    There,
    New,
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// A digest in its one spelling: 64 hexadecimal digits in lower case.
pub(super) fn parse_digest(text: &str) -> Option<Digest> {
    if !is_hex(text, 64) {
        return None;
    }
    blake3::Hash::from_hex(text).ok().map(|hash| Digest(*hash.as_bytes()))
}

fn not_a_file(path: &Path) -> Error {
    let message = format!(
        "{} is a link or no file at all: links inside a home are not followed, and nothing is written there",
        path.display()
    );
    Error::invalid("artifact.not_a_file", message)
}
