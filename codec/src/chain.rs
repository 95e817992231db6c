//! The hash chain over frames: whoever changes, drops or inserts a record anywhere changes every hash after it.
//!
//! A frame's hash is BLAKE3 (`derive_key` mode, context [`CONTEXT`]) over the hash before it, the frame's logical
//! fields and each record's envelope with the digest of its payload. Lengths and checksums are left out, so a payload
//! can be redacted (removed, its digest kept) and a sealed segment compressed, and the chain still verifies.

use crate::frame::FrameFields;
use crate::ids::{Digest, LogId};
use crate::record::Envelope;

/// The context that separates this use of BLAKE3 from every other.
pub const CONTEXT: &str = "sessionlog 2026-11 frame chain v1";
/// The context of a log's first hash.
pub const GENESIS_CONTEXT: &str = "sessionlog 2026-11 chain genesis v1";

/// The hash before the first frame of a log.
#[must_use]
pub fn genesis(log_id: LogId) -> Digest {
    Digest(blake3::derive_key(GENESIS_CONTEXT, &log_id.0))
}

/// The hash of one frame, built record by record.
pub(crate) struct ChainHasher(blake3::Hasher);

impl ChainHasher {
    pub(crate) fn new(previous: &Digest, fields: &FrameFields) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&previous.0);
        hasher.update(&[fields.kind]);
        hasher.update(&fields.flags.to_le_bytes());
        hasher.update(&fields.first_position.0.to_le_bytes());
        hasher.update(&fields.record_count.to_le_bytes());
        hasher.update(&fields.epoch.0.to_le_bytes());
        hasher.update(&fields.synced.0.to_le_bytes());
        Self(hasher)
    }

    pub(crate) fn record(&mut self, envelope: &Envelope, payload: &Digest) {
        let hasher = &mut self.0;
        hasher.update(&envelope.node.0.to_le_bytes());
        hasher.update(&envelope.kind.0.to_le_bytes());
        hasher.update(&envelope.schema.0.to_le_bytes());
        hasher.update(&envelope.wire_flags().to_le_bytes());
        hasher.update(&envelope.timestamp.0.to_le_bytes());
        hasher.update(&envelope.cause.unwrap_or_default().0.to_le_bytes());
        hasher.update(&envelope.key.map_or([0; 16], |key| key.0));
        hasher.update(&payload.0);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}
