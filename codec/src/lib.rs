//! Bytes <-> types of sessionlog: segments, frames, records and the vocabulary of events.
//!
//! This crate opens no file, reads no clock and starts no thread. Its contract is `FORMAT.md`, beside its manifest.
//!
//! ```
//! use sessionlog_codec::event::{Event, MessageAppended, Part, Role};
//! use sessionlog_codec::frame::{self, Frame, FrameFields};
//! use sessionlog_codec::ids::{Epoch, LogId, MessageNo, NodeId, Position, Timestamp};
//! use sessionlog_codec::record::{Envelope, Payload};
//! use sessionlog_codec::chain;
//!
//! // An event becomes a payload, an envelope goes round it, a frame goes round both.
//! let event = Event::from(MessageAppended::text(MessageNo(1), Role::User, "Fix the failing test."));
//! let (kind, schema) = event.kind();
//! let payload = event.encode()?;
//! let envelope = Envelope::new(NodeId::ROOT, kind, schema, Timestamp(1_764_500_000_000_000));
//! let fields = FrameFields::records(Position(1), Epoch(1), Position::START);
//! let (salt, genesis) = (7, chain::genesis(LogId([1; 16])));
//! let mut bytes = Vec::new();
//! let hash = frame::encode(&mut bytes, salt, &genesis, fields, &[(envelope, Payload::Present(&payload))])?;
//!
//! // And back: nothing is believed before its checksum, and the chain tells what was changed.
//! let frame = Frame::decode(&bytes, salt)?;
//! assert_eq!(frame.chain_after(&genesis), hash);
//! let record = &frame.records()[0];
//! assert_eq!(Event::decode(record.envelope.kind, record.envelope.schema, record.payload)?, event);
//! # let _: Part = Part::text("");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bytes;
pub mod chain;
mod error;
pub mod event;
pub mod footer;
pub mod frame;
pub mod ids;
pub mod limits;
pub mod packed;
mod payload;
mod raw;
pub mod record;
pub mod registry;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
pub mod segment;
pub mod stored;

pub use error::{DecodeError, DecodeErrorKind, TooLarge};
pub use raw::RawBytes;
