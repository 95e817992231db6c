//! A record: one event with its envelope, as it stands in a frame's body.

use crate::bytes::{Reader, len_u32};
use crate::error::DecodeError;
use crate::ids::{Digest, IdempotencyKey, KindNo, NodeId, Position, SchemaVersion, Timestamp};
use crate::limits::RECORD_HEADER_LEN;

/// Where a record's header has the length of its payload.
const PAYLOAD_LEN_AT: usize = 12;

const FLAG_HAS_CAUSE: u16 = 1 << 0;
const FLAG_HAS_KEY: u16 = 1 << 1;
const FLAG_REDACTED: u16 = 1 << 2;
const FLAG_TIME_ESTIMATED: u16 = 1 << 3;
const FLAG_MUST_UNDERSTAND: u16 = 1 << 4;
const FLAGS_KNOWN: u16 =
    FLAG_HAS_CAUSE | FLAG_HAS_KEY | FLAG_REDACTED | FLAG_TIME_ESTIMATED | FLAG_MUST_UNDERSTAND;

/// How far a record's time can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeOrigin {
    /// The clock of the host, or of the source that was imported.
    #[default]
    Clock,
    /// The source had no time; this one was taken from its neighbours or its file.
    Estimated,
}

/// What a reader does that does not know the record's kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Criticality {
    /// It carries the record along and folds the rest.
    #[default]
    Ignorable,
    /// It must not write to this log: the record changes what others mean.
    MustUnderstand,
}

/// All of a record but its payload and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The conversation it belongs to.
    pub node: NodeId,
    /// What its payload is.
    pub kind: KindNo,
    /// The version of the payload's layout.
    pub schema: SchemaVersion,
    /// When it happened: informational.
    pub timestamp: Timestamp,
    /// How far `timestamp` can be trusted.
    pub time_origin: TimeOrigin,
    /// What a reader does that does not know `kind`.
    pub criticality: Criticality,
    /// The record that this one follows from, in the same log.
    pub cause: Option<Position>,
    /// The host's own name for the append.
    pub key: Option<IdempotencyKey>,
}

impl Envelope {
    /// An envelope with nothing optional in it.
    #[must_use]
    pub fn new(node: NodeId, kind: KindNo, schema: SchemaVersion, timestamp: Timestamp) -> Self {
        Self {
            node,
            kind,
            schema,
            timestamp,
            time_origin: TimeOrigin::Clock,
            criticality: Criticality::Ignorable,
            cause: None,
            key: None,
        }
    }

    /// The flags as hashed into the chain: without the redaction bit, which may change later.
    pub(crate) fn wire_flags(&self) -> u16 {
        let mut flags = 0;
        if self.cause.is_some() {
            flags |= FLAG_HAS_CAUSE;
        }
        if self.key.is_some() {
            flags |= FLAG_HAS_KEY;
        }
        if self.time_origin == TimeOrigin::Estimated {
            flags |= FLAG_TIME_ESTIMATED;
        }
        if self.criticality == Criticality::MustUnderstand {
            flags |= FLAG_MUST_UNDERSTAND;
        }
        flags
    }
}

/// A record's payload, or what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The bytes as they were appended.
    Present(&'a [u8]),
    /// The bytes were erased on purpose; this was their digest.
    Redacted(Digest),
}

impl Payload<'_> {
    /// The digest that goes into the chain.
    #[must_use]
    pub fn digest(&self) -> Digest {
        match self {
            Self::Present(bytes) => Digest::of(bytes),
            Self::Redacted(digest) => *digest,
        }
    }
}

/// What can stand for a payload when a frame is encoded, so that owned bytes need not be collected as borrowed ones.
pub trait AsPayload {
    /// The payload.
    fn as_payload(&self) -> Payload<'_>;
}

impl AsPayload for Payload<'_> {
    fn as_payload(&self) -> Payload<'_> {
        *self
    }
}

impl AsPayload for Vec<u8> {
    fn as_payload(&self) -> Payload<'_> {
        Payload::Present(self)
    }
}

/// A record of a verified frame. Its payload is still bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it stands in the log.
    pub position: Position,
    /// Everything about it but its payload.
    pub envelope: Envelope,
    /// Its payload.
    pub payload: Payload<'a>,
}

/// How many bytes a record takes in a frame's body.
#[must_use]
pub fn encoded_len(envelope: &Envelope, payload: Payload<'_>) -> usize {
    let optional = envelope.cause.map_or(0, |_| 8) + envelope.key.map_or(0, |_| 16);
    let payload = match payload {
        Payload::Present(bytes) => bytes.len(),
        Payload::Redacted(_) => 32,
    };
    RECORD_HEADER_LEN.saturating_add(optional).saturating_add(payload)
}

/// The caller has checked the payload's length.
pub(crate) fn encode(out: &mut Vec<u8>, envelope: &Envelope, payload: Payload<'_>) {
    let (bytes, redacted): (&[u8], u16) = match &payload {
        Payload::Present(bytes) => (bytes, 0),
        Payload::Redacted(digest) => (&digest.0, FLAG_REDACTED),
    };
    encode_header(out, envelope, redacted, len_u32(bytes.len()));
    out.extend_from_slice(bytes);
}

/// All of a record but its payload.
pub(crate) fn encode_header(out: &mut Vec<u8>, envelope: &Envelope, redacted: u16, payload_len: u32) {
    out.extend_from_slice(&envelope.node.0.to_le_bytes());
    out.extend_from_slice(&envelope.kind.0.to_le_bytes());
    out.extend_from_slice(&envelope.schema.0.to_le_bytes());
    out.extend_from_slice(&(envelope.wire_flags() | redacted).to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&payload_len.to_le_bytes());
    out.extend_from_slice(&envelope.timestamp.0.to_le_bytes());
    if let Some(cause) = envelope.cause {
        out.extend_from_slice(&cause.0.to_le_bytes());
    }
    if let Some(key) = envelope.key {
        out.extend_from_slice(&key.0);
    }
}

/// Sets the length of a payload that was encoded behind its header, where it begins at `start`.
pub(crate) fn set_payload_len(out: &mut [u8], start: usize, envelope: &Envelope, len: u32) {
    let header = encoded_len(envelope, Payload::Present(&[]));
    let at = start.saturating_sub(header).saturating_add(PAYLOAD_LEN_AT);
    if let Some(field) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = len.to_le_bytes();
    }
}

pub(crate) fn decode<'a>(reader: &mut Reader<'a>, position: Position) -> Result<Record<'a>, DecodeError> {
    let node = NodeId(reader.u32("record node")?);
    let kind = KindNo(reader.u16("record kind")?);
    let schema = SchemaVersion(reader.u16("record schema version")?);
    let flags_at = reader.offset();
    let flags = reader.u16("record flags")?;
    if flags & !FLAGS_KNOWN != 0 {
        let expected = format!("only bits of {FLAGS_KNOWN:#06x}");
        return Err(DecodeError::unsupported(flags_at, "record flags", expected, format!("{flags:#06x}")));
    }
    reader.reserved(2, "record reserved")?;
    let payload_len = usize::try_from(reader.u32("record payload length")?).unwrap_or(usize::MAX);
    let timestamp = Timestamp(reader.i64("record timestamp")?);
    let cause = if flags & FLAG_HAS_CAUSE != 0 { Some(Position(reader.u64("record cause")?)) } else { None };
    let key =
        if flags & FLAG_HAS_KEY != 0 { Some(IdempotencyKey(reader.array("record key")?)) } else { None };
    let payload = if flags & FLAG_REDACTED != 0 {
        if payload_len != 32 {
            return Err(DecodeError::corrupt(reader.offset(), "redacted payload length", 32, payload_len));
        }
        Payload::Redacted(Digest(reader.array("redacted payload digest")?))
    } else {
        Payload::Present(reader.take(payload_len, "record payload")?)
    };
    let time_origin =
        if flags & FLAG_TIME_ESTIMATED != 0 { TimeOrigin::Estimated } else { TimeOrigin::Clock };
    let criticality =
        if flags & FLAG_MUST_UNDERSTAND != 0 { Criticality::MustUnderstand } else { Criticality::Ignorable };
    let envelope = Envelope { node, kind, schema, timestamp, time_origin, criticality, cause, key };
    Ok(Record { position, envelope, payload })
}
