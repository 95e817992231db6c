//! The event-sourced session store that coding-agent hosts embed.
mod clock;
mod error;
pub mod log;
mod num;
pub mod storage;

pub use clock::{Clock, SystemClock};
pub use error::{Error, ErrorKind, Result};
