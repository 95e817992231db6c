//! The event-sourced session store that coding-agent hosts embed.
mod clock;
mod error;
pub mod log;
mod num;
pub mod session;
pub mod storage;
pub mod store;

pub use clock::{Clock, SystemClock};
pub use error::{Error, ErrorKind, Result};
pub use log::{Durability, LogOptions, Reached, Receipt};
pub use session::{
    Appended, CallResult, Compaction, Message, NewSession, RecoveryReport, ResumeOptions, RunningCall,
    Session, SessionReader,
};
pub use sessionlog_codec as codec;
pub use sessionlog_projections as projections;
pub use store::{Owner, SessionRow, Store, StoreOptions, StoreReader, ViewPolicy};
