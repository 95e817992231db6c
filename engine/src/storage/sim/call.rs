//! The calls that a [`SimStorage`](super::SimStorage) lists, and the faults that can be put into them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::storage::Access;

/// The kind of a [`Call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallKind {
    /// `create_new`.
    Create,
    /// `open`.
    Open,
    /// `read_at`.
    Read,
    /// `write_at`, also of a lock's text.
    Write,
    /// `sync_data`.
    SyncData,
    /// `sync_all`.
    SyncAll,
    /// `set_len`, also before a lock's text is written.
    SetLen,
    /// `len`, `entry`, `modified`, `link_count` or `is_locked`.
    Stat,
    /// `hard_link`.
    HardLink,
    /// `rename`.
    Rename,
    /// `remove_file`.
    Remove,
    /// `sync_dir`.
    SyncDir,
    /// `create_dir`.
    CreateDir,
    /// `list`.
    List,
    /// `try_lock` or `try_lock_shared`.
    Lock,
    /// `touch`.
    Touch,
}

/// One call that reached the storage, whether it succeeded or not.
///
/// Paths are as the caller gave them; those of calls on a handle are as it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A file was created.
    Create {
        /// The new file.
        path: PathBuf,
    },
    /// A file was opened.
    Open {
        /// The file.
        path: PathBuf,
        /// What for.
        access: Access,
    },
    /// Bytes were read.
    Read {
        /// The file.
        path: PathBuf,
        /// Where the first byte is.
        offset: u64,
        /// How many bytes were asked for.
        len: u64,
    },
    /// Bytes were written.
    Write {
        /// The file.
        path: PathBuf,
        /// Where the first byte goes.
        offset: u64,
        /// How many bytes were to be written.
        len: u64,
    },
    /// A file's bytes and length were to be made durable.
    SyncData {
        /// The file.
        path: PathBuf,
    },
    /// A file's bytes and all its metadata were to be made durable.
    SyncAll {
        /// The file.
        path: PathBuf,
    },
    /// A file was cut or extended.
    SetLen {
        /// The file.
        path: PathBuf,
        /// Its new length in bytes.
        len: u64,
    },
    /// A file's length, kind or lock was asked for.
    Stat {
        /// What was looked at.
        path: PathBuf,
    },
    /// A file was given a second name.
    HardLink {
        /// The name it has.
        from: PathBuf,
        /// The new name.
        to: PathBuf,
    },
    /// A file was renamed.
    Rename {
        /// The old name.
        from: PathBuf,
        /// The new name.
        to: PathBuf,
    },
    /// A file was removed.
    Remove {
        /// The file.
        path: PathBuf,
    },
    /// A directory's names were to be made durable.
    SyncDir {
        /// The directory.
        path: PathBuf,
    },
    /// A directory was created.
    CreateDir {
        /// The directory.
        path: PathBuf,
    },
    /// A directory was listed.
    List {
        /// The directory.
        path: PathBuf,
    },
    /// A lock was tried.
    Lock {
        /// The lock file.
        path: PathBuf,
    },
    /// A file was given another time.
    Touch {
        /// The file.
        path: PathBuf,
    },
}

impl Call {
    /// Which kind of call it is.
    pub fn kind(&self) -> CallKind {
        match self {
            Self::Create { .. } => CallKind::Create,
            Self::Open { .. } => CallKind::Open,
            Self::Read { .. } => CallKind::Read,
            Self::Write { .. } => CallKind::Write,
            Self::SyncData { .. } => CallKind::SyncData,
            Self::SyncAll { .. } => CallKind::SyncAll,
            Self::SetLen { .. } => CallKind::SetLen,
            Self::Stat { .. } => CallKind::Stat,
            Self::HardLink { .. } => CallKind::HardLink,
            Self::Rename { .. } => CallKind::Rename,
            Self::Remove { .. } => CallKind::Remove,
            Self::SyncDir { .. } => CallKind::SyncDir,
            Self::CreateDir { .. } => CallKind::CreateDir,
            Self::List { .. } => CallKind::List,
            Self::Lock { .. } => CallKind::Lock,
            Self::Touch { .. } => CallKind::Touch,
        }
    }

    /// The file or directory it is about; of a rename, the old name.
    pub fn path(&self) -> &Path {
        match self {
            Self::Create { path }
            | Self::Open { path, .. }
            | Self::Read { path, .. }
            | Self::Write { path, .. }
            | Self::SyncData { path }
            | Self::SyncAll { path }
            | Self::SetLen { path, .. }
            | Self::Stat { path }
            | Self::HardLink { from: path, .. }
            | Self::Rename { from: path, .. }
            | Self::Remove { path }
            | Self::SyncDir { path }
            | Self::CreateDir { path }
            | Self::List { path }
            | Self::Lock { path }
            | Self::Touch { path } => path,
        }
    }

    /// Whether it can change what is on disk, or what of it is durable: all but opening, reading, looking, listing
    /// and locking. (A first lock creates its file.)
    pub fn changes_disk(&self) -> bool {
        use CallKind::{List, Lock, Open, Read, Stat};
        !matches!(self.kind(), Open | Read | Stat | List | Lock)
    }

    /// Whether it is about this path, as given; of a rename, under either name.
    fn is_about(&self, wanted: &Path) -> bool {
        self.path() == wanted
            || matches!(self, Self::Rename { to, .. } | Self::HardLink { to, .. } if to == wanted)
    }
}

/// One compact line, such as `write log/000.seg @128+4096`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind() {
            CallKind::Create => "create",
            CallKind::Open => "open",
            CallKind::Read => "read",
            CallKind::Write => "write",
            CallKind::SyncData => "sync_data",
            CallKind::SyncAll => "sync_all",
            CallKind::SetLen => "set_len",
            CallKind::Stat => "stat",
            CallKind::HardLink => "hard_link",
            CallKind::Rename => "rename",
            CallKind::Remove => "remove",
            CallKind::SyncDir => "sync_dir",
            CallKind::CreateDir => "create_dir",
            CallKind::List => "list",
            CallKind::Lock => "lock",
            CallKind::Touch => "touch",
        };
        write!(f, "{name} {}", self.path().display())?;
        match self {
            Self::Open { access: Access::Read, .. } => f.write_str(" (read)"),
            Self::Open { access: Access::ReadWrite, .. } => f.write_str(" (read, write)"),
            Self::Read { offset, len, .. } | Self::Write { offset, len, .. } => {
                write!(f, " @{offset}+{len}")
            }
            Self::SetLen { len, .. } => write!(f, " {len}"),
            Self::Rename { to, .. } | Self::HardLink { to, .. } => write!(f, " -> {}", to.display()),
            _ => Ok(()),
        }
    }
}

/// The error that a [`Fault`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// An error of this kind, without an error number.
    Kind(io::ErrorKind),
    /// An error as the system returns it, by its number.
    Errno(i32),
}

impl FaultError {
    /// The device failed.
    pub const EIO: Self = Self::Errno(5);
    /// The disk is full.
    pub const ENOSPC: Self = Self::Errno(28);
    /// A signal came first. It reaches the caller as is, where [`OsStorage`](crate::storage::OsStorage) would retry.
    pub const EINTR: Self = Self::Errno(4);

    fn to_error(self) -> io::Error {
        match self {
            Self::Kind(kind) => kind.into(),
            Self::Errno(number) => io::Error::from_raw_os_error(number),
        }
    }
}

/// How often a [`Fault`] happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Once; then it is gone.
    Once,
    /// At every matching call from the first one on.
    Always,
}

/// An error to be returned by a call to come. Arm it with [`SimStorage::fail`](super::SimStorage::fail).
///
/// The call that fails has no effect, except that a write may have written its first bytes
/// ([`written`](Self::written)) and that a failed sync gives up what it should have made durable.
///
/// Unless told otherwise, the next matching call fails, and only that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: Option<CallKind>,
    path: Option<PathBuf>,
    skip: u64,
    error: FaultError,
    written: usize,
    repeat: Repeat,
}

impl Fault {
    /// A fault of the next call of this kind.
    pub fn new(kind: CallKind, error: FaultError) -> Self {
        Self { kind: Some(kind), path: None, skip: 0, error, written: 0, repeat: Repeat::Once }
    }

    /// A fault of the next call of any kind: for runs that stop everything at the n-th call.
    pub fn any(error: FaultError) -> Self {
        Self { kind: None, path: None, skip: 0, error, written: 0, repeat: Repeat::Once }
    }

    /// Only calls with this path (as [`Call`] lists it) match; of a rename, either name.
    #[must_use]
    pub fn on(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Lets `calls` matching calls pass first.
    #[must_use]
    pub fn after(mut self, calls: u64) -> Self {
        self.skip = calls;
        self
    }

    /// A write that fails writes its first `bytes` bytes before the error.
    #[must_use]
    pub fn written(mut self, bytes: usize) -> Self {
        self.written = bytes;
        self
    }

    /// Whether it happens once or from then on.
    #[must_use]
    pub fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }

    fn matches(&self, call: &Call) -> bool {
        self.kind.is_none_or(|kind| kind == call.kind())
            && self.path.as_ref().is_none_or(|path| call.is_about(path))
    }
}

/// An injected error.
#[derive(Debug)]
pub(super) struct Injected {
    /// What the call returns.
    pub(super) error: io::Error,
    /// How many bytes a write wrote before it.
    pub(super) written: usize,
}

impl From<Injected> for io::Error {
    fn from(injected: Injected) -> Self {
        injected.error
    }
}

/// The faults that wait for their calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn arm(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Lets every armed fault see the call. The one armed first wins if several are due.
    pub(super) fn check(&mut self, call: &Call) -> Result<(), Injected> {
        let mut due = None;
        self.0.retain_mut(|fault| {
            if !fault.matches(call) {
                return true;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                return true;
            }
            let injected = Injected { error: fault.error.to_error(), written: fault.written };
            due.get_or_insert(injected);
            fault.repeat == Repeat::Always
        });
        due.map_or(Ok(()), Err)
    }
}
