//! A home and the sessions in it: create, resume, find, list.

#[cfg(feature = "catalog")]
mod catalogued;
mod crowd;
mod deletion;
mod home;
mod listing;
mod outlived;
pub(crate) mod owner;
mod registry;
mod removal;
pub(crate) mod shared_log;
mod workspace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sessionlog_codec::ids::SessionId;
use sessionlog_projections::delegation::DelegationLimits;
use sessionlog_projections::time::rfc3339_seconds;
use sessionlog_projections::views::Dialect;

pub use deletion::DeletionPlan;
pub use home::SessionPlace;
pub use listing::{ForkedFrom, Listing, SessionKind, SessionRow};
pub use owner::Owner;
pub use registry::{
    Hidden, Reattached, Reattachment, Registered, RootIssue, RootRow, RootWorkspace, Roots, WorkspaceName,
    WorkspaceState,
};
pub use workspace::{WorkspaceHash, canonical, slug};

use crate::artifacts::{ArtifactReader, Artifacts, Remembered};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Durability, ForkPoint, LogOptions, Packing};
use crate::session::{
    ForkOptions, NewSession, RecoveryReport, ResumeOptions, Session, SessionReader, SnapshotPolicy,
};
use crate::storage::{OsStorage, Storage};
pub(crate) use crowd::look_at_each;
use deletion::DeletedTrees;
pub(crate) use home::{Home, root_of};
pub(crate) use shared_log::{Caught, SharedFold, SharedLog};

/// The environment variable that names the home.
pub const HOME_VARIABLE: &str = "SESSIONLOG_HOME";

/// Whether views are kept beside the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ViewPolicy {
    /// `transcript.jsonl`, `.meta.json` and `cost.json`, brought up to date at the end of each turn.
    #[default]
    Keep,
    /// The same files, made when the session is closed: for imports, which append much at once.
    AtClose,
    /// None; they can be exported at any time.
    Off,
}

/// Whether a listing keeps what it found for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CatalogPolicy {
    /// In `index/` of the home, checked against each log. Of no effect without the feature `catalog`.
    #[default]
    Keep,
    /// Nowhere.
    Off,
}

/// Whether sealed segments are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Each of them, once it is worth it: one at the end of a turn at most, the others when the session is closed. Of no effect
    /// without the feature `compression`.
    #[default]
    Sealed,
    /// The same, by other figures: for tests.
    With(Packing),
    /// None. Those that are compressed are read all the same, and stay so.
    Off,
}

impl Compression {
    pub(crate) fn packing(self) -> Option<Packing> {
        match self {
            Self::Sealed => Some(Packing::default()),
            Self::With(packing) => Some(packing),
            Self::Off => None,
        }
    }
}

/// Whether the text of a long result is stored apart from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArtifactPolicy {
    /// Of a result whose text has more bytes than this, the longest texts become [artifacts](crate::artifacts); the log holds
    /// a receipt, and the model is shown the first 4,096 characters and where the rest is. Texts that follow one another
    /// become one, a line feed between them.
    Over(usize),
    /// All of it is in the log, up to the limit of a record: 64 MiB.
    Off,
}

impl Default for ArtifactPolicy {
    /// Over 32 KiB.
    fn default() -> Self {
        Self::Over(32 << 10)
    }
}

/// How a store works.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// How durable an append is when it is acknowledged.
    pub durability: Durability,
    /// In which dialect views are written.
    pub dialect: Dialect,
    /// Whether views are kept.
    pub views: ViewPolicy,
    /// The sizes of log files.
    pub log: LogOptions,
    /// How deep, how often and how far agents may delegate.
    pub delegation: DelegationLimits,
    /// Whether a listing keeps what it found.
    pub catalog: CatalogPolicy,
    /// When a session's folds are kept beside its log, so that opening it reads no history.
    pub snapshots: SnapshotPolicy,
    /// Whether sealed segments are compressed.
    pub compression: Compression,
    /// When the text of a result becomes an artifact.
    pub artifacts: ArtifactPolicy,
}

/// What a store and its sessions share.
#[derive(Debug)]
pub(crate) struct StoreInner {
    pub(crate) home: Home,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: StoreOptions,
    /// What is known of the sessions that were deleted, of workspaces that were asked about.
    deleted: Mutex<BTreeMap<WorkspaceHash, Caught<DeletedTrees>>>,
    pub(crate) artifacts: Remembered,
}

impl StoreInner {
    pub(crate) fn now_text(&self) -> String {
        rfc3339_seconds(self.clock.now())
    }
}

/// A home that is open for creating and resuming sessions. Any number of processes may have the same one open: each
/// session has one owner, and different sessions don't know of each other. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<StoreInner>,
}

impl Store {
    /// Opens the home at `home`, creating it if there is nothing or an empty directory.
    ///
    /// # Errors
    /// `Invalid` if there is something else; `Io` if it can't be created or read.
    pub fn open(home: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(home, StoreOptions::default())
    }

    /// As [`open`](Self::open), with options.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(home: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        Self::open_on(Arc::new(OsStorage), Arc::new(SystemClock), home, options)
    }

    /// As [`open_with`](Self::open_with), on a storage and a clock of the caller's: for tests and simulations.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        home: impl AsRef<Path>,
        options: StoreOptions,
    ) -> Result<Self> {
        let home = Home::create(storage, home.as_ref())?;
        let artifacts = Remembered::default();
        let inner = Arc::new(StoreInner { home, clock, options, deleted: Mutex::default(), artifacts });
        deletion::finish_leftovers(&inner);
        Ok(Self { inner })
    }

    /// Where a home is by default: `$SESSIONLOG_HOME`, else `sessionlog` in the platform's directory for data.
    #[must_use]
    pub fn default_home() -> Option<PathBuf> {
        match std::env::var_os(HOME_VARIABLE).filter(|home| !home.is_empty()) {
            Some(home) => Some(PathBuf::from(home)),
            None => dirs::data_dir().map(|dir| dir.join("sessionlog")),
        }
    }

    /// Creates a session for work in the directory `workspace`. This process owns it.
    ///
    /// Durable when it returns: the session.
    ///
    /// # Errors
    /// `Conflict` if a session of the given id exists; `Full` or `Io` if it can't be written.
    pub fn create(&self, workspace: impl AsRef<Path>, new: NewSession) -> Result<Session> {
        Session::create(Arc::clone(&self.inner), workspace.as_ref(), new)
    }

    /// As [`create`](Self::create), for a workspace of another machine or time, by its path's bytes.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_foreign(&self, workspace: &[u8], new: NewSession) -> Result<Session> {
        let path = path_of_bytes(workspace);
        let (hash, slug) = (WorkspaceHash::of(&path), slug(&path));
        Session::create_at(Arc::clone(&self.inner), hash, workspace.to_vec(), slug, new)
    }

    /// Takes over a session that nobody owns now, however it was left.
    ///
    /// Durable when it returns: this ownership, and what of the recovery needs no host: an `unknown` result for each call that
    /// was started and not answered, results of children that had not reached their parents, the end of children that
    /// nobody waits for. The rest is what [`Session::work`] offers.
    ///
    /// # Errors
    /// `NotFound` if there is no such session; `Locked` if another process owns it; `Corrupt` if acknowledged data is hurt
    /// (it can still be read); `Unsupported` if a newer version wrote it; `Conflict` if other tools are offered than were
    /// recorded.
    pub fn resume(&self, id: SessionId) -> Result<(Session, RecoveryReport)> {
        self.resume_with(id, &ResumeOptions::default())
    }

    /// As [`resume`](Self::resume), with options.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub fn resume_with(&self, id: SessionId, options: &ResumeOptions) -> Result<(Session, RecoveryReport)> {
        let place = self.inner.home.find(id)?.ok_or_else(|| not_found(&id.to_string()))?;
        Session::resume(Arc::clone(&self.inner), place, options)
    }

    /// Forks a session: a new one that begins with its history up to `at` and goes on by itself. This process owns the new
    /// one. Nobody need own the other one; if somebody does, it goes on undisturbed: no lock of it is taken, and no byte of
    /// it is changed.
    ///
    /// It is read as a reader reads it. So [`ForkPoint::Head`] is its newest whole batch that is in the files, which may not
    /// be on disk yet: it is in the fork, and after a loss of power it may be missing where it came from. Its active segment
    /// is copied, up to one segment; its owner forks it for less: see [`Session::fork`], which tells all the rest.
    ///
    /// Durable when it returns: the fork.
    ///
    /// # Errors
    /// `NotFound` if there is no such session; else as [`Session::fork`].
    pub fn fork(&self, id: SessionId, at: ForkPoint, options: ForkOptions) -> Result<Session> {
        let source = self.inner.home.find(id)?.ok_or_else(|| not_found(&id.to_string()))?;
        Session::fork_of(Arc::clone(&self.inner), &source, at, options)
    }

    /// Every session of the home and every delegated conversation in them, the newest activity first: what
    /// [`StoreReader::list`] gives. What was found is kept in the catalog, and is used again for a session whose log is as it
    /// was; so thousands of sessions are listed without reading them. A catalog that is absent, wrong or in use makes it slower,
    /// never wrong.
    ///
    /// A log is as it was if the file system says so: of its last segment and of the directory of its segments the same inode,
    /// length, time of change and time of writing as before it was read, each of them older than three seconds then. Where it
    /// does not say enough (a system without inodes, a session that is open or was left open, files that changed just now), the
    /// last frame of the log is read. This sees whatever an owner does, and files that are replaced, restored, cut, removed or
    /// written over. It does not see rot in bytes that nobody wrote, which [`SessionReader::verify`] finds; a file that was
    /// written over in place, without another length, while the system's clock was set back to the nanosecond of the write
    /// before, or just before a loss of power; and, on a network file system, what the system's cache of attributes does not
    /// know yet.
    ///
    /// # Errors
    /// `Io` if the home itself can't be read.
    pub fn list(&self) -> Result<Vec<SessionRow>> {
        Ok(self.list_places(&self.reader().places()?))
    }

    /// The rows of all sessions of the home, which are at these places.
    fn list_places(&self, places: &[SessionPlace]) -> Vec<SessionRow> {
        #[cfg(feature = "catalog")]
        if self.inner.options.catalog == CatalogPolicy::Keep {
            return catalogued::list(&self.reader(), places).rows;
        }
        self.reader().list_of(places)
    }

    pub(crate) fn home_and_clock(&self) -> (Home, Arc<dyn Clock>) {
        (self.inner.home.clone(), Arc::clone(&self.inner.clock))
    }

    /// The artifacts of a workspace. What is put is put in no session's name; see [`Session::artifacts`].
    #[must_use]
    pub fn artifacts(&self, workspace: &WorkspaceHash) -> Artifacts {
        Artifacts::new(&self.inner, workspace, None)
    }

    /// The same home, for reading.
    #[must_use]
    pub fn reader(&self) -> StoreReader {
        StoreReader { home: self.inner.home.clone() }
    }

    pub(crate) fn inner(&self) -> &Arc<StoreInner> {
        &self.inner
    }
}

/// A home that is open for reading: takes no lock and changes no byte, also on a home of another machine or one that is
/// mounted read-only. (Of [`list_with_catalog`](Self::list_with_catalog), no byte but the catalog's.)
#[derive(Clone, Debug)]
pub struct StoreReader {
    home: Home,
}

impl StoreReader {
    /// Opens the home at `home`.
    ///
    /// # Errors
    /// `NotFound` if there is nothing; `Invalid` if there is something else.
    pub fn open(home: impl AsRef<Path>) -> Result<Self> {
        Self::open_on(Arc::new(OsStorage), home)
    }

    /// As [`open`](Self::open), on a storage of the caller's.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(storage: Arc<dyn Storage>, home: impl AsRef<Path>) -> Result<Self> {
        Ok(Self { home: Home::open(storage, home.as_ref())? })
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// The home's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.home.root
    }

    /// A session, to be read.
    ///
    /// # Errors
    /// `NotFound` if there is no such session.
    pub fn session(&self, id: SessionId) -> Result<SessionReader> {
        let place = self.home.find(id)?.ok_or_else(|| not_found(&id.to_string()))?;
        Ok(SessionReader::new(Arc::clone(&self.home.storage), place))
    }

    /// The artifacts of a workspace, to be read.
    #[must_use]
    pub fn artifacts(&self, workspace: &WorkspaceHash) -> ArtifactReader {
        ArtifactReader::new(&self.home, &(Arc::new(SystemClock) as Arc<dyn Clock>), workspace)
    }

    /// The workspaces of the home, in no order that means anything.
    ///
    /// # Errors
    /// `Io` if the home can't be read.
    pub fn workspaces(&self) -> Result<Vec<WorkspaceHash>> {
        self.home.workspaces()
    }

    /// Where every session is, in no order that means anything.
    ///
    /// # Errors
    /// `Io` if the home can't be read.
    pub fn places(&self) -> Result<Vec<SessionPlace>> {
        self.home.sessions()
    }

    /// Where a session of the workspace `workspace` is, or will be: to follow it from before it is there.
    #[must_use]
    pub fn place_in(&self, workspace: impl AsRef<Path>, id: SessionId) -> SessionPlace {
        self.home.place(WorkspaceHash::of(&canonical(workspace.as_ref())), id)
    }

    /// A session at a place that [`places`](Self::places) gave.
    #[must_use]
    pub fn session_at(&self, place: SessionPlace) -> SessionReader {
        SessionReader::new(Arc::clone(&self.home.storage), place)
    }
}

pub(crate) fn not_found(id: &str) -> Error {
    let shown: String = id.chars().take(80).flat_map(char::escape_debug).collect();
    let message = format!("there is no session `{shown}` in this home; `logdump ls` lists those there are");
    Error::new(ErrorKind::NotFound, "session.missing", message)
}

#[cfg(unix)]
pub(crate) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

#[cfg(not(unix))]
pub(crate) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}
