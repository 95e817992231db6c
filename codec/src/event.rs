//! The vocabulary: every fact that a log can hold, one struct each.
//!
//! An event is an immutable fact, named in the past tense. Its struct is the payload layout of one
//! ([kind](KindNo), [schema version](SchemaVersion)) and is never changed once released: a new layout is a new version
//! with an upcaster from the old one, a new fact is a new kind at the end of [the registry](crate::registry).

mod call;
mod context;
mod learn;
mod message;
mod node;
mod plan;
mod session;
mod workspace;

pub use call::*;
pub use context::*;
pub use learn::*;
pub use message::*;
pub use node::*;
pub use plan::*;
pub use session::*;
pub use workspace::*;

use crate::ids::{IdempotencyKey, KindNo, NodeId, Position, SchemaVersion, Timestamp};
use crate::raw::RawBytes;
use crate::record::TimeOrigin;
pub use crate::registry::Event;

/// An event that this version does not know, carried along byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UnknownEvent {
    /// Its kind.
    pub kind: KindNo,
    /// Its payload's version.
    pub schema: SchemaVersion,
    /// Its payload.
    pub payload: RawBytes,
}

/// An event with its place in the log: what projections fold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEvent {
    /// Where it stands in the log.
    pub position: Position,
    /// The conversation it belongs to.
    pub node: NodeId,
    /// When it happened: informational.
    pub timestamp: Timestamp,
    /// How far `timestamp` can be trusted.
    pub time_origin: TimeOrigin,
    /// The record it follows from.
    pub cause: Option<Position>,
    /// What happened.
    pub event: Event,
}

/// An event on its way into a log, which gives it its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The conversation it belongs to.
    pub node: NodeId,
    /// When it happened; `None`: now, by the log's clock.
    pub timestamp: Option<Timestamp>,
    /// How far `timestamp` can be trusted.
    pub time_origin: TimeOrigin,
    /// The record it follows from.
    pub cause: Option<Position>,
    /// The host's own name for the append.
    pub key: Option<IdempotencyKey>,
    /// What happened.
    pub event: Event,
}

impl NewEvent {
    /// An event that happens now, with nothing optional set.
    #[must_use]
    pub fn now(node: NodeId, event: impl Into<Event>) -> Self {
        Self {
            node,
            timestamp: None,
            time_origin: TimeOrigin::Clock,
            cause: None,
            key: None,
            event: event.into(),
        }
    }

    /// An event of a past time.
    #[must_use]
    pub fn at(node: NodeId, timestamp: Timestamp, event: impl Into<Event>) -> Self {
        Self { timestamp: Some(timestamp), ..Self::now(node, event) }
    }
}
