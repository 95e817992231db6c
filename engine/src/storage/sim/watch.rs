//! Watching a directory of the simulated disk: told of exactly the calls that change something in it, and of crashes.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use super::SimStorage;
use super::state::State;
use crate::storage::{Watch, Woken};

/// A directory that is watched. Another process: it outlives crashes.
#[derive(Debug)]
pub(super) struct SimWatch {
    storage: SimStorage,
    dir: PathBuf,
    /// How many changes there were when it was last looked at.
    seen: u64,
}

impl SimWatch {
    pub(super) fn new(storage: SimStorage, state: &State, dir: &Path) -> Self {
        let dir = State::spelled(dir);
        Self { storage, seen: state.changes_in(&dir), dir }
    }
}

impl Watch for SimWatch {
    fn wait(&mut self, timeout: Duration) -> Woken {
        let Self { storage, dir, seen } = self;
        let state = storage.state();
        let woken = std::sync::Arc::clone(&state.woken);
        let waited = woken.wait_timeout_while(state, timeout, |state| state.changes_in(dir) == *seen);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(seen, state.changes_in(dir));
        if before == *seen { Woken::TimedOut } else { Woken::Changed }
    }
}
