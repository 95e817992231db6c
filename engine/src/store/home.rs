//! A home: the directory that holds everything, and the paths in it.
//!
//! ```text
//! <home>/.sessionlog                            marks the directory as ours
//! <home>/workspaces/<hash>/path.txt             which directory of code this is
//! <home>/workspaces/<hash>/sessions/<uuid>/     one session
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog_codec::ids::SessionId;

use super::not_found;
use super::owner::{self, Owner};
use super::workspace::WorkspaceHash;
use crate::error::{Error, ErrorKind, Result};
use crate::log::LogDir;
use crate::storage::{Access, EntryKind, Lock, Storage};

const MARKER: &str = ".sessionlog";
const MARKER_TEXT: &str = "sessionlog home 1\n";
const WORKSPACES: &str = "workspaces";
const SESSIONS: &str = "sessions";
/// The longest path of a workspace that is read back, in bytes.
const PATH_LEN_MAX: usize = 64 << 10;

/// A home that exists and is ours.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) root: PathBuf,
}

impl Home {
    /// Opens a home for reading. Nothing is changed.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory; `Invalid` if it is something else than a home.
    pub(crate) fn open(storage: Arc<dyn Storage>, root: &Path) -> Result<Self> {
        let entry = storage.entry(root).map_err(|e| Error::io("looking at", root, e))?;
        if entry.is_none() {
            let message = format!("there is no sessionlog home at {}", root.display());
            return Err(Error::new(ErrorKind::NotFound, "home.missing", message));
        }
        let home = Self { storage, root: root.to_owned() };
        home.check_ours()?;
        Ok(home)
    }

    /// Opens a home, creating it if there is nothing or only an empty directory.
    ///
    /// Durable when it returns: the home.
    ///
    /// # Errors
    /// `Invalid` if there is something else: a file, or a directory with other things in it.
    pub(crate) fn create(storage: Arc<dyn Storage>, root: &Path) -> Result<Self> {
        if storage.entry(root).map_err(|e| Error::io("looking at", root, e))?.is_none() {
            create_missing(&storage, root)?;
        }
        let home = Self { storage, root: root.to_owned() };
        let names = home.list(root)?;
        if names.is_empty() {
            let marker = root.join(MARKER);
            let file = match home.storage.create_new(&marker) {
                Ok(file) => file,
                // Another process creates the same home at this moment.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(home),
                Err(error) => return Err(Error::io("creating", &marker, error)),
            };
            file.write_at(MARKER_TEXT.as_bytes(), 0).map_err(|e| Error::io("writing", &marker, e))?;
            file.sync_all().map_err(|e| Error::sync(&marker, e))?;
            home.sync(root)?;
        } else {
            home.check_ours()?;
        }
        let workspaces = home.root.join(WORKSPACES);
        if home.is_missing(&workspaces)? {
            home.create_dir(&workspaces)?;
        }
        Ok(home)
    }

    /// A home has its marker, or at least a session where a home has its sessions (copied without dot files).
    fn check_ours(&self) -> Result<()> {
        let names = match self.storage.list(&self.root) {
            Ok(names) => names,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(Error::io("reading", &self.root, error));
            }
            Err(_) => return Err(self.not_ours("it is not a directory that can be listed")),
        };
        if names.is_empty() {
            let message = format!("{} is empty: no session was ever recorded there", self.root.display());
            return Err(Error::new(ErrorKind::NotFound, "home.missing", message));
        }
        if names.iter().any(|entry| entry.name == MARKER && entry.kind == EntryKind::File) {
            return Ok(());
        }
        if self.sessions()?.iter().any(|place| place.log_exists(&self.storage)) {
            return Ok(());
        }
        Err(self.not_ours("it has other things in it and no sessionlog session"))
    }

    fn not_ours(&self, why: &str) -> Error {
        let message = format!(
            "{} is not a sessionlog home: {why}. Choose a new or empty directory",
            self.root.display()
        );
        Error::invalid("home.foreign", message)
    }

    fn list(&self, dir: &Path) -> Result<Vec<crate::storage::DirEntry>> {
        match self.storage.list(dir) {
            Ok(entries) => Ok(entries),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                Err(self.not_ours("it is not a directory"))
            }
            Err(error) => Err(Error::io("listing", dir, error)),
        }
    }

    fn is_missing(&self, path: &Path) -> Result<bool> {
        let entry = self.storage.entry(path).map_err(|e| Error::io("looking at", path, e))?;
        Ok(entry.is_none())
    }

    fn sync(&self, dir: &Path) -> Result<()> {
        self.storage.sync_dir(dir).map_err(|e| Error::sync(dir, e))
    }

    /// Creates a directory below the root, durably, and refuses to go through anything that is not a directory.
    pub(crate) fn create_dir(&self, dir: &Path) -> Result<()> {
        let entry = self.storage.entry(dir).map_err(|e| Error::io("looking at", dir, e))?;
        match entry.map(|entry| entry.kind) {
            Some(EntryKind::Dir) => {}
            Some(_) => return Err(not_a_directory(dir)),
            None => self.storage.create_dir(dir).map_err(|e| Error::io("creating", dir, e))?,
        }
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("drop_dir_sync_of_session") {
            return Ok(());
        }
        // Also of one that exists: whoever made it may not have come to this.
        self.sync(dir.parent().unwrap_or(&self.root))
    }

    /// What is where workspaces are.
    pub(crate) fn list_workspaces(&self) -> Result<Vec<crate::storage::DirEntry>> {
        self.list(&self.root.join(WORKSPACES))
    }

    /// What is where the sessions of a workspace are.
    pub(crate) fn list_sessions(&self, workspace: &WorkspaceHash) -> Result<Vec<crate::storage::DirEntry>> {
        self.list(&self.workspace_dir(workspace).join(SESSIONS))
    }

    /// The workspaces that have sessions here.
    pub(crate) fn workspaces(&self) -> Result<Vec<WorkspaceHash>> {
        let entries = self.list(&self.root.join(WORKSPACES))?;
        let dirs = entries.iter().filter(|entry| entry.kind == EntryKind::Dir);
        Ok(dirs.filter_map(|entry| WorkspaceHash::parse(entry.name.to_str()?)).collect())
    }

    /// All sessions of all workspaces, in no order that means anything.
    pub(crate) fn sessions(&self) -> Result<Vec<SessionPlace>> {
        let mut places = Vec::new();
        for workspace in self.workspaces()? {
            places.extend(self.sessions_of(&workspace)?);
        }
        Ok(places)
    }

    /// The sessions of a workspace, in order.
    pub(crate) fn sessions_of(&self, workspace: &WorkspaceHash) -> Result<Vec<SessionPlace>> {
        let ids = self.ids_in(&self.workspace_dir(workspace).join(SESSIONS))?;
        Ok(ids.into_iter().map(|id| self.place(workspace.clone(), id)).collect())
    }

    /// The sessions that directories of a directory are named for, in order.
    pub(crate) fn ids_in(&self, dir: &Path) -> Result<Vec<SessionId>> {
        let entries = self.list(dir)?;
        let dirs = entries.iter().filter(|entry| entry.kind == EntryKind::Dir);
        let mut ids: Vec<SessionId> = dirs.filter_map(|entry| entry.name.to_str()?.parse().ok()).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The directory of a workspace.
    pub(crate) fn workspace_dir(&self, workspace: &WorkspaceHash) -> PathBuf {
        self.root.join(WORKSPACES).join(workspace.as_str())
    }

    /// The path that a workspace's hash was made from, as its machine spelled it.
    pub(crate) fn workspace_path(&self, workspace: &WorkspaceHash) -> Option<Vec<u8>> {
        let file = self.storage.open(&self.workspace_dir(workspace).join("path.txt"), Access::Read).ok()?;
        let mut bytes = vec![0; PATH_LEN_MAX];
        let len = file.read_at(&mut bytes, 0).ok()?;
        bytes.truncate(len);
        Some(bytes)
    }

    /// Removes the catalog, which may say what a session is not to say any more. The next listing makes it anew.
    pub(crate) fn discard_catalog(&self) -> Result<()> {
        for name in ["index/catalog", "index/catalog.damaged"] {
            self.check_no_link_above(&self.root.join(name))?;
            let Some(path) = self.storage.native_path(&self.root.join(name)) else { return Ok(()) };
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("removing", &path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the directories of a new session, durably, its log's among them.
    pub(crate) fn create_session_dirs(&self, workspace_path: &[u8], place: &SessionPlace) -> Result<()> {
        self.create_session_dir(workspace_path, place)?;
        self.create_dir(&place.log_dir(&self.storage).segments)
    }

    /// Makes the directory of a workspace, durably, and says which directory of code it is.
    pub(crate) fn create_workspace_dir(
        &self,
        workspace_path: &[u8],
        workspace: &WorkspaceHash,
    ) -> Result<()> {
        let workspace_dir = self.workspace_dir(workspace);
        // Before it, and so of each workspace once: whoever opens a home that is there waits for no disk.
        let is_new = self.is_missing(&workspace_dir)?;
        #[cfg(feature = "seeded-bugs")]
        let is_new = is_new && !sessionlog_codec::seeded::is("drop_dir_sync_of_home");
        if is_new {
            self.create_dir(&self.root.join(WORKSPACES))?;
        }
        self.create_dir(&workspace_dir)?;
        let path_file = workspace_dir.join("path.txt");
        match self.storage.create_new(&path_file) {
            Ok(file) => {
                file.write_at(workspace_path, 0).map_err(|e| Error::io("writing", &path_file, e))?;
                file.sync_all().map_err(|e| Error::sync(&path_file, e))?;
                self.sync(&workspace_dir)?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                self.finish_path(workspace_path, &path_file)?;
            }
            Err(error) => return Err(Error::io("creating", &path_file, error)),
        }
        Ok(())
    }

    /// Makes the directory of a new session, durably, and that of its workspace.
    pub(crate) fn create_session_dir(&self, workspace_path: &[u8], place: &SessionPlace) -> Result<()> {
        self.create_workspace_dir(workspace_path, &place.workspace)?;
        self.create_dir(&self.workspace_dir(&place.workspace).join(SESSIONS))?;
        self.create_dir(&place.dir)
    }

    /// Writes the path that a crash kept whoever made the file from writing.
    fn finish_path(&self, workspace_path: &[u8], path_file: &Path) -> Result<()> {
        let is_file = |entry: &crate::storage::DirEntry| entry.kind == EntryKind::File && entry.len == 0;
        let entry = self.storage.entry(path_file).map_err(|e| Error::io("looking at", path_file, e))?;
        if workspace_path.is_empty() || !entry.as_ref().is_some_and(is_file) {
            return Ok(());
        }
        let file = self
            .storage
            .open(path_file, Access::ReadWrite)
            .map_err(|e| Error::io("opening", path_file, e))?;
        file.write_at(workspace_path, 0).map_err(|e| Error::io("writing", path_file, e))?;
        file.sync_all().map_err(|e| Error::sync(path_file, e))
    }

    /// Where a session of a workspace is (or would be).
    pub(crate) fn place(&self, workspace: WorkspaceHash, id: SessionId) -> SessionPlace {
        let dir = self.workspace_dir(&workspace).join(SESSIONS).join(id.to_string());
        SessionPlace { id, workspace, dir }
    }

    /// Where a session is, in whichever workspace.
    pub(crate) fn find(&self, id: SessionId) -> Result<Option<SessionPlace>> {
        for workspace in self.workspaces()? {
            let place = self.place(workspace, id);
            match self.storage.entry(&place.dir).map_err(|e| Error::io("looking at", &place.dir, e))? {
                Some(entry) if entry.kind == EntryKind::Dir => return Ok(Some(place)),
                Some(_) => return Err(not_a_directory(&place.dir)),
                None => {}
            }
        }
        Ok(None)
    }
}

pub(super) fn not_a_directory(path: &Path) -> Error {
    let message = format!("{} is not a directory (links inside a home are not followed)", path.display());
    Error::invalid("home.not_a_directory", message)
}

/// Creates a directory and those above it that are missing, durably.
fn create_missing(storage: &Arc<dyn Storage>, dir: &Path) -> Result<()> {
    let mut missing = Vec::new();
    for ancestor in dir.ancestors().filter(|ancestor| !ancestor.as_os_str().is_empty()) {
        let entry = storage.entry(ancestor).map_err(|e| Error::io("looking at", ancestor, e))?;
        if entry.is_some() {
            break;
        }
        missing.push(ancestor);
    }
    for ancestor in missing.into_iter().rev() {
        storage.create_dir(ancestor).map_err(|e| Error::io("creating", ancestor, e))?;
        let parent = ancestor.parent().unwrap_or(ancestor);
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        storage.sync_dir(parent).map_err(|e| Error::sync(parent, e))?;
    }
    Ok(())
}

/// The root of the home that a session's directory is in: `<root>/workspaces/<hash>/sessions/<uuid>`.
pub(crate) fn root_of(session: &Path) -> Option<&Path> {
    session.ancestors().nth(4)
}

/// Where one session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPlace {
    /// The session.
    pub id: SessionId,
    /// Its workspace.
    pub workspace: WorkspaceHash,
    /// Its directory.
    pub dir: PathBuf,
}

impl SessionPlace {
    pub(crate) fn log_dir(&self, storage: &Arc<dyn Storage>) -> LogDir {
        LogDir::below(storage, &self.dir)
    }

    pub(crate) fn lock_path(&self) -> PathBuf {
        self.dir.join("owner.lock")
    }

    /// Takes the session's lock.
    ///
    /// # Errors
    /// `Locked` if somebody owns it; `NotFound` if it was deleted meanwhile.
    pub(crate) fn take(&self, storage: &Arc<dyn Storage>, owner: &Owner) -> Result<Box<dyn Lock>> {
        let gone = || not_found(&self.id.to_string());
        let lock = match owner::take(storage, &self.lock_path(), owner) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(gone()),
            lock => lock?,
        };
        // Whoever deletes a session has its lock, and renames its directory with the lock's file in it.
        match storage.entry(&self.dir).map_err(|e| Error::io("looking at", &self.dir, e))? {
            Some(_) => Ok(lock),
            None => Err(gone()),
        }
    }

    pub(crate) fn log_exists(&self, storage: &Arc<dyn Storage>) -> bool {
        self.log_dir(storage).list().is_ok_and(|segments| !segments.is_empty())
    }
}
