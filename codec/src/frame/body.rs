//! A frame's records, encoded, hashed and checksummed before the frame has a place in a log.
//!
//! What costs time in a frame is its payloads: encoding them, their digests, the checksum. None of it depends on where the
//! frame is going to stand. So threads that append to one log do it each for itself; only the frame's header and its link
//! in the chain are made by the one thread that writes.

use super::{KIND_RECORDS, crc, pad, put_header};
use crate::bytes::len_u32;
use crate::chain::ChainHasher;
use crate::error::TooLarge;
use crate::event::Event;
use crate::frame::FrameFields;
use crate::ids::Digest;
use crate::limits::{FRAME_BODY_LEN_MAX, FRAME_HEADER_LEN, FRAME_RECORDS_MAX, PAYLOAD_LEN_MAX};
use crate::record::{self, Envelope, Payload};

/// Room for a short record, and for all of a long one but its text: so there is one more allocation at most.
const SHORT: usize = 512;

/// Records on their way into a [`Body`].
#[derive(Debug, Default)]
pub struct BodyBuilder {
    bytes: Vec<u8>,
    records: Vec<(Envelope, Digest)>,
}

impl BodyBuilder {
    /// A body without records, with room for some.
    #[must_use]
    pub fn with_capacity(records: usize) -> Self {
        Self { bytes: Vec::with_capacity(SHORT), records: Vec::with_capacity(records) }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`TooLarge`] if its payload, or the body with it, is over its limit. The body is then as it was.
    pub fn push(&mut self, envelope: Envelope, payload: Payload<'_>) -> Result<(), TooLarge> {
        let body_len = self.bytes.len().saturating_add(record::encoded_len(&envelope, payload));
        if let Payload::Present(bytes) = payload {
            check_payload(bytes.len())?;
        }
        check_body(body_len)?;
        record::encode(&mut self.bytes, &envelope, payload);
        self.records.push((envelope, payload.digest()));
        Ok(())
    }

    /// Adds a record of an event, whose payload is encoded in its place.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_event(&mut self, envelope: Envelope, event: &Event) -> Result<(), TooLarge> {
        let start = self.bytes.len();
        let pushed = self.encode_event(&envelope, event);
        match pushed {
            Ok(digest) => self.records.push((envelope, digest)),
            Err(_) => self.bytes.truncate(start),
        }
        pushed.map(|_| ())
    }

    fn encode_event(&mut self, envelope: &Envelope, event: &Event) -> Result<Digest, TooLarge> {
        record::encode_header(&mut self.bytes, envelope, 0, 0);
        let start = self.bytes.len();
        event.encode_into(&mut self.bytes)?;
        let payload = self.bytes.get(start..).unwrap_or_default();
        check_payload(payload.len())?;
        let body_len = self.bytes.len();
        let (digest, len) = (Digest::of(payload), len_u32(payload.len()));
        check_body(body_len)?;
        record::set_payload_len(&mut self.bytes, start, envelope, len);
        Ok(digest)
    }

    /// The body of these records.
    ///
    /// # Errors
    /// [`TooLarge`] if there are none, or more than a frame may have.
    pub fn finish(self) -> Result<Body, TooLarge> {
        let Self { bytes, records } = self;
        match u32::try_from(records.len()) {
            Ok(count) if count > 0 && count <= FRAME_RECORDS_MAX => {
                Ok(Body { crc: crc(0, &bytes), bytes, records, count })
            }
            _ => {
                let max = usize::try_from(FRAME_RECORDS_MAX).unwrap_or(usize::MAX);
                Err(TooLarge { what: "number of records in a frame", len: records.len(), max })
            }
        }
    }
}

fn check_payload(len: usize) -> Result<(), TooLarge> {
    if len > PAYLOAD_LEN_MAX {
        return Err(TooLarge { what: "record payload", len, max: PAYLOAD_LEN_MAX });
    }
    Ok(())
}

fn check_body(len: usize) -> Result<(), TooLarge> {
    if len > FRAME_BODY_LEN_MAX {
        return Err(TooLarge { what: "frame body", len, max: FRAME_BODY_LEN_MAX });
    }
    Ok(())
}

/// All of a frame of records but its header.
#[derive(Debug)]
pub struct Body {
    bytes: Vec<u8>,
    /// Each record's part of the chain.
    records: Vec<(Envelope, Digest)>,
    count: u32,
    crc: u32,
}

impl Body {
    /// How many records there are: at least one.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The records' envelopes, in order.
    pub fn envelopes(&self) -> impl Iterator<Item = &Envelope> {
        self.records.iter().map(|(envelope, _)| envelope)
    }

    /// Bytes of a frame with this body, padding aside.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        FRAME_HEADER_LEN.saturating_add(self.bytes.len())
    }

    /// Appends the frame to `out`, padded, and returns its chain hash.
    ///
    /// `fields.kind` and `fields.record_count` are set from the records, `fields.flags` to 0.
    ///
    /// # Errors
    /// [`TooLarge`] if there is no position left for one of the records. `out` is then as it was.
    pub fn write_frame(
        &self,
        out: &mut Vec<u8>,
        salt: u32,
        previous: &Digest,
        fields: FrameFields,
    ) -> Result<Digest, TooLarge> {
        let fields = FrameFields { kind: KIND_RECORDS, flags: 0, record_count: self.count, ..fields };
        if fields.first_position.0.checked_add(self.count.into()).is_none() {
            let len = usize::try_from(fields.first_position.0).unwrap_or(usize::MAX);
            let max = usize::MAX.saturating_sub(self.records.len());
            return Err(TooLarge { what: "first position", len, max });
        }
        let mut hasher = ChainHasher::new(previous, &fields);
        for (envelope, digest) in &self.records {
            hasher.record(envelope, digest);
        }
        let chain = hasher.finish();
        let start = out.len();
        out.reserve(self.frame_len().saturating_add(super::FRAME_ALIGNMENT));
        put_header(out, salt, &fields, &chain, (len_u32(self.bytes.len()), self.crc));
        out.extend_from_slice(&self.bytes);
        pad(out, start);
        Ok(chain)
    }
}
