//! The durable log: segments, commit groups, recovery, reading, verification. Blind to payloads: what an event means is
//! not known here.
//!
//! A log is a directory of segment files. One [`LogWriter`] owns it (its caller holds the owner's lock); any number of
//! [`LogReader`]s read it without a lock.

mod ahead;
mod commit;
mod compress;
mod cursor;
mod erase;
mod follow;
mod fork;
mod links;
mod mark;
#[cfg(all(test, loom))]
mod model;
mod read_at;
mod reader;
mod recovery;
pub(crate) mod salvage;
mod scan;
mod segment;
mod since;
#[cfg(any(feature = "catalog", feature = "search"))]
mod stamp;
mod sync;
mod tail;
mod unpacked;
mod verify;

pub use commit::{Batch, LogWriter, NewRecord, Ticket};
pub use compress::{Compressed, Packing};
pub use cursor::Cursor;
pub use erase::Erasure;
pub use follow::{FollowLevel, FollowOptions, LogFollower, LogItem, LogPayload, LogRecord};
pub(crate) use fork::ACTIVE_COPY_MAX;
pub use fork::{ForkPlan, ForkPoint};
pub use mark::{DurableEnd, LogMark};
pub use reader::{Gap, Indexed, LogReader, LogSize, ReadItem, TailState};
pub(crate) use recovery::remove_unfinished;
pub use recovery::{
    Assessment, Cut, Damage, HeaderProblem, LogRecovery, Recovering, SegmentBytes, TornTail, Verdict, assess,
};
pub use salvage::{LeftOut, Loss, LostSpan};
pub use segment::{LogDir, SegmentName};
#[cfg(feature = "search")]
pub(crate) use since::Since;
#[cfg(any(feature = "catalog", feature = "search"))]
pub(crate) use stamp::LogStamp;
#[cfg(feature = "catalog")]
pub(crate) use stamp::Look;
pub use verify::{Finding, LogVerification, Severity};

use sessionlog_codec::ids::Position;

/// How durable an append must be before it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// On disk: it survives a loss of power.
    #[default]
    Sync,
    /// With the operating system: it survives the end of the process. On disk at the end of the turn, before any tool
    /// starts, and at close.
    Turn,
    /// With the operating system: it survives the end of the process. On disk when a later append asks for it, when a
    /// segment is sealed, and at close.
    Buffered,
}

/// How durable an append is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reached {
    /// With the operating system: it survives the end of the process.
    Written,
    /// On disk: it survives a loss of power.
    Durable,
}

/// Proof of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The first record's position.
    pub first: Position,
    /// The last record's position.
    pub last: Position,
    /// How durable the records were when the receipt was given.
    pub reached: Reached,
}

/// The sizes of a log's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// A segment is sealed once it is at least this long, in bytes: by the next append that waits for the disk, for sealing
    /// does. Where none does, at three times the length. Default 8 MiB; tests use 512.
    pub segment_len: u64,
    /// The longest stretch of zeros written ahead of need, in bytes. Default 1 MiB; 0: the file grows with each append.
    pub fill_len: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_len: 8 << 20, fill_len: 1 << 20 }
    }
}
