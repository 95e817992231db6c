//! Who owns a session: an operating-system lock, and a text beside it for people.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::storage::{Access, Lock, LockError, Storage};

/// How long somebody waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// About 250 ms: a lock that is held for a process's life can look held for a moment after that process was spawned.
    Moment,
    /// About 5 s: a lock that is held for one append.
    Seconds,
}

impl Patience {
    fn attempts(self) -> u32 {
        match self {
            Self::Moment => 10,
            Self::Seconds => 200,
        }
    }
}

const PAUSE: Duration = Duration::from_millis(25);
/// The longest text of a lock file that is read, in bytes.
const TEXT_LEN_MAX: usize = 16 << 10;

/// What an owner wrote about itself. For messages only: whether it owns anything, the lock decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its process id.
    pub pid: u32,
    /// Its machine.
    pub host: String,
    /// Its command line.
    pub command: String,
    /// When it began, as RFC 3339.
    pub since: String,
}

impl Owner {
    /// This process, as the owner of what outlives sessions: its program alone, since a command line may have the text of one.
    pub(crate) fn in_passing(since: String) -> Self {
        let program = std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned();
        Self { command: program.chars().take(200).collect(), ..Self::this_process(since) }
    }

    /// This process.
    pub(crate) fn this_process(since: String) -> Self {
        let command: Vec<_> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let command: String = command.join(" ").chars().take(200).collect();
        Self { pid: std::process::id(), host: host_name(), command, since }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, host, command, since } = self;
        write!(f, "process {pid} on {host} ({command}) since {since}")
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .or_else(|| std::env::var("COMPUTERNAME").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".to_owned())
}

/// Takes the owner's lock of a session, trying for about 250 ms.
///
/// # Errors
/// `Locked` with what the owner wrote about itself, if somebody holds it.
pub(crate) fn take(storage: &Arc<dyn Storage>, path: &Path, owner: &Owner) -> Result<Box<dyn Lock>> {
    take_within(storage, path, owner, Patience::Moment)
}

/// Takes a lock, trying for a while.
///
/// # Errors
/// As [`take`].
pub(crate) fn take_within(
    storage: &Arc<dyn Storage>,
    path: &Path,
    owner: &Owner,
    patience: Patience,
) -> Result<Box<dyn Lock>> {
    let attempts = patience.attempts();
    for attempt in 1..=attempts {
        match storage.try_lock(path) {
            Ok(lock) => {
                let text = serde_json::to_string(owner).unwrap_or_default();
                lock.write_text(&format!("{text}\n")).map_err(|e| Error::io("writing", path, e))?;
                return Ok(lock);
            }
            Err(LockError::Held) if attempt < attempts => std::thread::sleep(PAUSE),
            Err(LockError::Held) => break,
            Err(LockError::Io(error)) => return Err(Error::io("locking", path, error)),
        }
    }
    Err(Error::locked(path, read(storage, path)))
}

/// What the owner wrote about itself; `None` if it can't be read. Untrusted.
pub(crate) fn read(storage: &Arc<dyn Storage>, path: &Path) -> Option<Owner> {
    let file = storage.open(path, Access::Read).ok()?;
    let mut text = vec![0; TEXT_LEN_MAX];
    let len = file.read_at(&mut text, 0).ok()?;
    text.truncate(len);
    serde_json::from_slice(&text).ok()
}
