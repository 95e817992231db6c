//! The scalars, each a type of its own, so that none can stand where another belongs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number after this one; `None` when numbers have run out.
            #[must_use]
            pub fn next(self) -> Option<Self> {
                self.0.checked_add(1).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Where a record stands in its log: dense, starting at 1. `Position(0)` is the place before the first record.
    Position(u64)
}
number! {
    /// The number of a message within its node: dense, starting at 1, never reused, not even after a clear.
    MessageNo(u64)
}
number! {
    /// One agent conversation of a session tree. [`NodeId::ROOT`] is the session's own; delegated children count up.
    NodeId(u32)
}
number! {
    /// Which tool call of its assistant message, from 0.
    ToolIndex(u32)
}
number! {
    /// One file of a log, from 0.
    SegmentNo(u64)
}
number! {
    /// One ownership of a log. Each writer takes the number after the last one it finds.
    Epoch(u64)
}
number! {
    /// The version of one event's payload layout, from 1.
    SchemaVersion(u16)
}
number! {
    /// The version of the layout of segments, frames and records.
    FormatVersion(u16)
}
number! {
    /// What a record's payload is, by its number in [the registry](crate::registry).
    KindNo(u16)
}
number! {
    /// Which turn of its node, from 1.
    TurnNo(u64)
}
number! {
    /// One source of imported records within a session, from 0.
    SourceNo(u32)
}

impl Position {
    /// The place before the first record.
    pub const START: Self = Self(0);
}

impl NodeId {
    /// The session's own conversation.
    pub const ROOT: Self = Self(0);
}

/// One tool call of a conversation: the message that holds it, and which of its calls. Call ids may repeat within a
/// conversation, so this, and not the provider's id, is what names a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallRef {
    /// The assistant message that asked for the call.
    pub message_no: MessageNo,
    /// Which of its calls.
    pub tool_index: ToolIndex,
}

impl fmt::Display for CallRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {} call {}", self.message_no, self.tool_index)
    }
}

/// A point in time: microseconds since 1970-01-01 UTC, without leap seconds. Informational: order is [`Position`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

macro_rules! sixteen_bytes {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// The bytes as a UUID.
            #[must_use]
            pub fn uuid(self) -> Uuid {
                Uuid::from_bytes(self.0)
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid.into_bytes())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.uuid().hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let canonical = Uuid::try_parse(text).map_err(|_| InvalidId)?;
                // Uuid also reads braced, urn: and bare forms; one id has one spelling here.
                (canonical.hyphenated().to_string() == text.to_ascii_lowercase())
                    .then(|| Self(canonical.into_bytes()))
                    .ok_or(InvalidId)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
                } else {
                    <[u8; 16]>::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}

sixteen_bytes! {
    /// A root session: a UUID, version 7 where we made it. Identity only, never order.
    SessionId
}
sixteen_bytes! {
    /// One log, for ever: every segment carries it, so that files of different logs can't be mixed up.
    LogId
}
sixteen_bytes! {
    /// One delegation: what a child conversation is called from outside its tree.
    InvocationId
}
sixteen_bytes! {
    /// A host's own name for an append: the same key again gives back the first receipt and appends nothing.
    IdempotencyKey
}

/// The text is not the canonical, hyphenated form of a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID in its hyphenated form")]
pub struct InvalidId;

/// A BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The hash of `bytes`, without a key or a context.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u8; 32]>::deserialize(deserializer).map(Self);
        }
        let text = String::deserialize(deserializer)?;
        blake3::Hash::from_hex(text).map(|hash| Self(*hash.as_bytes())).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let id = "0197b4a2-7c1e-7000-8000-0123456789ab";
        assert_eq!(id.parse::<SessionId>().unwrap().to_string(), id);
        assert!(id.to_uppercase().parse::<SessionId>().is_ok());
        for wrong in
            ["", "../x", "0197b4a27c1e700080000123456789ab", "{0197b4a2-7c1e-7000-8000-0123456789ab}"]
        {
            assert_eq!(wrong.parse::<SessionId>(), Err(InvalidId), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_run_out_instead_of_wrapping() {
        assert_eq!(Position(u64::MAX).next(), None);
        assert_eq!(NodeId(0).next(), Some(NodeId(1)));
    }
}
