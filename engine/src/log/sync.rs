//! The locks of the commit queue: the standard library's or, under `--cfg loom`, ones that try every interleaving.

#[cfg(loom)]
pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
