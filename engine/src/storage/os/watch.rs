//! Watching directories: one watcher of the system for the whole process, however many directories are watched.
//!
//! A system gives few watchers to a user (Linux: 128), so each follower having its own would not do. The watcher's thread ends
//! with the last watch.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::storage::{Watch, Woken};

/// The process's watcher, while there is something to watch. Never locked by its own thread, which has to answer while this
/// is locked.
static WATCHER: Mutex<Option<RecommendedWatcher>> = Mutex::new(None);
/// Who waits for which directory. Locked for moments.
static WAITING: Mutex<BTreeMap<PathBuf, Vec<Arc<Signal>>>> = Mutex::new(BTreeMap::new());

/// Set when something changed, until it was noticed.
#[derive(Debug, Default)]
struct Signal {
    changed: Mutex<bool>,
    raised: Condvar,
}

impl Signal {
    fn raise(&self) {
        *lock(&self.changed) = true;
        self.raised.notify_all();
    }
}

#[derive(Debug)]
struct DirWatch {
    dir: PathBuf,
    signal: Arc<Signal>,
}

/// Watches a directory.
pub(super) fn watch(dir: &Path) -> io::Result<Option<Box<dyn Watch>>> {
    // As the system spells it in what it tells.
    let dir = dir.canonicalize()?;
    let mut watcher = lock(&WATCHER);
    let watching = match watcher.take() {
        Some(watching) => watching,
        None => notify::recommended_watcher(told).map_err(io::Error::other)?,
    };
    let watching = watcher.insert(watching);
    // From here on its end takes back what was done.
    let watch = DirWatch { dir: dir.clone(), signal: Arc::default() };
    lock(&WAITING).entry(dir.clone()).or_default().push(Arc::clone(&watch.signal));
    let watched = watching.watch(&dir, RecursiveMode::NonRecursive);
    drop(watcher);
    watched.map_err(io::Error::other)?;
    Ok(Some(Box::new(watch)))
}

/// What the watcher's thread does with what the system tells.
fn told(event: notify::Result<Event>) {
    let waiting = lock(&WAITING);
    match event {
        // A follower's own reading is no change.
        Ok(event)
            if matches!(event.kind, EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_))) => {}
        Ok(event) if !event.need_rescan() && !event.paths.is_empty() => {
            let dirs = event.paths.iter().flat_map(|path| [Some(path.as_path()), path.parent()]).flatten();
            dirs.filter_map(|dir| waiting.get(dir)).flatten().for_each(|signal| signal.raise());
        }
        // Something was left out.
        _ => waiting.values().flatten().for_each(|signal| signal.raise()),
    }
}

impl Watch for DirWatch {
    fn wait(&mut self, timeout: Duration) -> Woken {
        let changed = lock(&self.signal.changed);
        let waited = self.signal.raised.wait_timeout_while(changed, timeout, |changed| !*changed);
        let (mut changed, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut *changed) { Woken::Changed } else { Woken::TimedOut }
    }
}

impl Drop for DirWatch {
    fn drop(&mut self) {
        let mut watcher = lock(&WATCHER);
        let (is_last, is_empty) = {
            let mut waiting = lock(&WAITING);
            let signals = waiting.entry(self.dir.clone()).or_default();
            signals.retain(|signal| !Arc::ptr_eq(signal, &self.signal));
            let is_last = signals.is_empty();
            if is_last {
                waiting.remove(&self.dir);
            }
            (is_last, waiting.is_empty())
        };
        if is_empty {
            *watcher = None;
        } else if is_last && let Some(watcher) = watcher.as_mut() {
            // It fails if the directory is gone: then nothing is watched.
            drop(watcher.unwatch(&self.dir));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each is changed by single assignments, so whoever panicked left it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn tells_of_changes_and_not_of_reading() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join("a"), tempfile::tempdir().unwrap());
        std::fs::write(&file, "1").unwrap();
        let mut watch = watch(dir.path()).unwrap().unwrap();
        let mut elsewhere = super::watch(other.path()).unwrap().unwrap();
        std::fs::write(&file, "2").unwrap();
        assert_eq!(watch.wait(LONG), Woken::Changed);
        // All that the write was told as, and nothing of the reading.
        while watch.wait(Duration::from_millis(50)) == Woken::Changed {}
        std::fs::read(&file).unwrap();
        std::fs::read_dir(dir.path()).unwrap().for_each(drop);
        assert_eq!(watch.wait(Duration::from_millis(50)), Woken::TimedOut);
        std::fs::rename(&file, dir.path().join("b")).unwrap();
        assert_eq!(watch.wait(LONG), Woken::Changed);
        assert_eq!(elsewhere.wait(Duration::ZERO), Woken::TimedOut);
        std::fs::remove_dir_all(dir.path()).unwrap();
        assert_eq!(watch.wait(LONG), Woken::Changed);
    }

    #[test]
    fn a_directory_that_is_missing_is_an_error_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(watch(&dir.path().join("none")).is_err());
    }
}
