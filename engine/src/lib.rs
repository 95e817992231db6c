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
pub use store::{Owner, SessionKind, SessionRow, Store, StoreOptions, StoreReader, ViewPolicy};

/// A new id for a session: a UUID of version 7. [`Store::create`] makes one by itself.
#[must_use]
pub fn new_session_id() -> codec::ids::SessionId {
    codec::ids::SessionId::from(uuid::Uuid::now_v7())
}
