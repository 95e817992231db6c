//! Records as short scripts, so that an input of a few bytes is a log whose checksums and chain hold.
//!
//! A record is: kind (2 bytes, little endian), schema version (1), node (1), flags (1), payload length (2), payload.
//! Flags: 1 a cause, 2 a key, 8 an estimated time, 16 must be understood, 64 the next record joins its frame.

use sessionlog::log::NewRecord;
use sessionlog_codec::ids::{IdempotencyKey, KindNo, NodeId, Position, SchemaVersion, Timestamp};
use sessionlog_codec::record::{Criticality, Envelope, TimeOrigin};

pub const JOINS: u8 = 64;
const HEAD_LEN: usize = 7;

/// The frames that a script spells.
pub fn frames(mut script: &[u8]) -> Vec<Vec<NewRecord>> {
    let (mut frames, mut frame, mut time) = (Vec::new(), Vec::new(), 0);
    while let Some((head, rest)) = script.split_at_checked(HEAD_LEN) {
        let [kind_low, kind_high, schema, node, flags, len_low, len_high] = *head else { break };
        let len = usize::from(u16::from_le_bytes([len_low, len_high])).min(rest.len());
        let (payload, rest) = rest.split_at(len);
        script = rest;
        time += 1_000_000;
        let mut envelope = Envelope::new(
            NodeId(node.into()),
            KindNo(u16::from_le_bytes([kind_low, kind_high])),
            SchemaVersion(schema.into()),
            Timestamp(1_764_500_000_000_000 + time),
        );
        envelope.cause = (flags & 1 != 0).then_some(Position(u64::from(node) + 1));
        envelope.key = (flags & 2 != 0).then_some(IdempotencyKey([node; 16]));
        if flags & 8 != 0 {
            envelope.time_origin = TimeOrigin::Estimated;
        }
        if flags & 16 != 0 {
            envelope.criticality = Criticality::MustUnderstand;
        }
        frame.push(NewRecord { envelope, payload: payload.to_vec() });
        if flags & JOINS == 0 {
            frames.push(std::mem::take(&mut frame));
        }
    }
    frames.extend((!frame.is_empty()).then_some(frame));
    frames
}

/// One record of a script.
pub fn spell(envelope: &Envelope, payload: &[u8], joins: bool) -> Vec<u8> {
    let mut script = envelope.kind.0.to_le_bytes().to_vec();
    script.push(u8::try_from(envelope.schema.0).unwrap_or(u8::MAX));
    script.push(u8::try_from(envelope.node.0).unwrap_or(u8::MAX));
    let flags = u8::from(envelope.cause.is_some())
        | u8::from(envelope.key.is_some()) << 1
        | u8::from(envelope.criticality == Criticality::MustUnderstand) << 4
        | if joins { JOINS } else { 0 };
    script.push(flags);
    script.extend_from_slice(&u16::try_from(payload.len()).unwrap_or(u16::MAX).to_le_bytes());
    script.extend_from_slice(payload.get(..usize::from(u16::MAX)).unwrap_or(payload));
    script
}
