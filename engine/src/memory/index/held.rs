//! The index's file, open for a moment.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::super::MemoryReader;
use super::{Tried, Trouble, store};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::EntryKind;
use crate::store::{Home, WorkspaceHash};

const FILE: &str = "memory.sqlite";
const LOCK: &str = "memory.lock";
/// What SQLite keeps beside a database.
const BESIDE: [&str; 2] = ["memory.sqlite-wal", "memory.sqlite-shm"];
/// How long somebody waits while others have the index: each for one transaction, or for one search.
const BUSY: Duration = Duration::from_millis(1000);
const PAUSE: Duration = Duration::from_millis(10);
/// How long whoever removes it waits for those who search by it.
const REMOVAL_TRIES: u32 = 500;

/// The open index. Dropping it lets others remove it.
pub(super) struct Held {
    // Closed before the lock is let go.
    connection: Connection,
    _lock: File,
}

impl Held {
    /// Opens the index, creating it if there is none.
    pub(super) fn open(memory: &MemoryReader) -> Tried<Self> {
        let dir = dir_of(&memory.home, &memory.workspace);
        create(&memory.home, &dir)?;
        let native = native(&memory.home, &dir)?;
        let lock = lock_file(&native)?;
        lock_shared(&lock)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(native.join(FILE), flags)?;
        connection.busy_timeout(BUSY)?;
        connection.set_prepared_statement_cache_capacity(64);
        // It is derived, but a loss of power must not leave it wrong in a way that nobody notices: so not `OFF`.
        connection.execute_batch(
            "PRAGMA synchronous = NORMAL; PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;
             PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384; PRAGMA mmap_size = 0;",
        )?;
        let mut held = Self { connection, _lock: lock };
        store::prepare(&mut held.connection, &memory.archive_tools)?;
        Ok(held)
    }

    pub(super) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

fn dir_of(home: &Home, workspace: &WorkspaceHash) -> PathBuf {
    home.workspace_dir(workspace).join("index")
}

fn native(home: &Home, dir: &Path) -> Tried<PathBuf> {
    home.storage.native_path(dir).ok_or_else(|| Trouble::Away("there is no such file".to_owned()))
}

/// Creates the directory and an empty file in it, with the rights of all our files. Nothing of it need survive, so nothing is
/// synced.
fn create(home: &Home, dir: &Path) -> Tried<()> {
    let away = |error: std::io::Error| Trouble::Away(error.to_string());
    let workspace = dir.parent().unwrap_or(dir);
    if home.storage.entry(workspace).map_err(away)?.is_none() {
        return Err(Trouble::Away("the workspace has no session yet".to_owned()));
    }
    match home.storage.entry(dir).map_err(away)?.map(|entry| entry.kind) {
        Some(EntryKind::Dir) => {}
        Some(_) => return Err(Trouble::Away(format!("{} is not a directory", dir.display()))),
        None => home.storage.create_dir(dir).map_err(away)?,
    }
    for name in [FILE, BESIDE[0], BESIDE[1], LOCK] {
        let path = dir.join(name);
        match home.storage.entry(&path).map_err(away)?.map(|entry| entry.kind) {
            Some(EntryKind::File) => {}
            Some(_) => return Err(Trouble::Away(format!("{} is not a regular file", path.display()))),
            None if name == FILE || name == LOCK => match home.storage.create_new(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(away(error)),
                _ => {}
            },
            None => {}
        }
    }
    Ok(())
}

fn lock_file(dir: &Path) -> Tried<File> {
    let opened = OpenOptions::new().read(true).write(true).open(dir.join(LOCK));
    opened.map_err(|error| Trouble::Away(error.to_string()))
}

fn lock_shared(file: &File) -> Tried<()> {
    let tries = BUSY.as_millis().checked_div(PAUSE.as_millis()).unwrap_or(1);
    for _ in 0..tries {
        match file.try_lock_shared() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(Trouble::Away(error.to_string())),
        }
    }
    Err(Trouble::Away("it is being removed".to_owned()))
}

/// Removes the index. It is no error if there is none.
pub(super) fn remove(home: &Home, workspace: &WorkspaceHash) -> Result<()> {
    let dir = dir_of(home, workspace);
    home.check_no_link_above(&dir.join(FILE))?;
    let is_there = |name: &str| {
        let path = dir.join(name);
        home.storage.entry(&path).map(|entry| entry.is_some()).map_err(|e| Error::io("looking at", &path, e))
    };
    if !is_there(FILE)? && !is_there(BESIDE[0])? && !is_there(BESIDE[1])? {
        return Ok(());
    }
    let Some(native) = home.storage.native_path(&dir) else { return Ok(()) };
    let path = native.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let lock = options.open(&path).map_err(|e| Error::io("opening", &path, e))?;
    let mut tries = 0;
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if tries < REMOVAL_TRIES => {
                tries = tries.saturating_add(1);
                std::thread::sleep(PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                let message = format!("{} is in use: the index can't be removed now", path.display());
                return Err(Error::new(ErrorKind::Locked, "memory.index_in_use", message));
            }
            Err(TryLockError::Error(error)) => return Err(Error::io("locking", &path, error)),
        }
    }
    for name in [FILE, BESIDE[0], BESIDE[1]] {
        home.remove_tree(&dir.join(name))?;
    }
    Ok(())
}
