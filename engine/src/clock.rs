//! Where the engine's time comes from. Times are informational: nothing is ordered or decided by them.

use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

use sessionlog_codec::ids::Timestamp;

/// A clock.
pub trait Clock: Send + Sync + Debug {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
    }
}
