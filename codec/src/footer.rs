//! The footer of a sealed segment: where each of its records is, and what, so that a reader finds a message, a title
//! or a count without decoding history. Derived: it can be rebuilt from the frames before it.
//!
//! The segment's last eight bytes, behind the footer's frame, are its locator: the frame's length and that length's
//! complement, so that a reader finds the footer from the end of the file.

use crate::bytes::{Reader, len_u32};
use crate::error::{DecodeError, TooLarge};
use crate::frame::{self, Frame, FrameFields, KIND_FOOTER};
use crate::ids::{Digest, Epoch, KindNo, NodeId, Position, Timestamp};
use crate::limits::{FOOTER_ENTRY_LEN, FRAME_ALIGNMENT, FRAME_HEADER_LEN, FRAME_LEN_MAX, FRAME_RECORDS_MAX};
use crate::record::Envelope;

/// One record of a sealed segment. Entry `i` is the record at the segment's first position plus `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FooterEntry {
    /// What the record is.
    pub kind: KindNo,
    /// The conversation it belongs to.
    pub node: NodeId,
    /// Where its frame starts in the segment, in bytes.
    pub frame_offset: u32,
    /// When it happened, so that a listing needs no frame for it.
    pub timestamp: Timestamp,
}

impl FooterEntry {
    /// The entry of a record whose frame starts at `frame_offset`.
    #[must_use]
    pub fn of(envelope: &Envelope, frame_offset: u32) -> Self {
        let Envelope { kind, node, timestamp, .. } = *envelope;
        Self { kind, node, frame_offset, timestamp }
    }
}

/// Bytes of the locator that ends a sealed segment.
pub const LOCATOR_LEN: usize = 8;

/// Appends a footer frame and its locator to `out`.
///
/// `next` is the position after the segment's last record, `chain` the hash of its last frame.
///
/// # Errors
/// [`TooLarge`] if there are more entries than a frame may count.
pub fn encode(
    out: &mut Vec<u8>,
    salt: u32,
    next: Position,
    epoch: Epoch,
    chain: &Digest,
    entries: &[FooterEntry],
) -> Result<(), TooLarge> {
    let max = usize::try_from(FRAME_RECORDS_MAX).unwrap_or(usize::MAX);
    if entries.is_empty() || entries.len() > max {
        return Err(TooLarge { what: "number of footer entries", len: entries.len(), max });
    }
    let mut body = Vec::with_capacity(entries.len().saturating_mul(FOOTER_ENTRY_LEN));
    for entry in entries {
        body.extend_from_slice(&entry.kind.0.to_le_bytes());
        body.extend_from_slice(&[0; 2]);
        body.extend_from_slice(&entry.node.0.to_le_bytes());
        body.extend_from_slice(&entry.frame_offset.to_le_bytes());
        body.extend_from_slice(&entry.timestamp.0.to_le_bytes());
    }
    let synced = Position(next.0.saturating_sub(1));
    let record_count = len_u32(entries.len());
    let fields =
        FrameFields { kind: KIND_FOOTER, flags: 0, first_position: next, record_count, epoch, synced };
    let start = out.len();
    frame::encode_other(out, salt, &fields, chain, &body);
    let frame_len = len_u32(out.len().saturating_sub(start));
    out.extend_from_slice(&frame_len.to_le_bytes());
    out.extend_from_slice(&(!frame_len).to_le_bytes());
    Ok(())
}

/// The length of the footer's frame, from the last [`LOCATOR_LEN`] bytes of a segment; `None` if they are no locator.
#[must_use]
pub fn locate(tail: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(tail);
    let frame_len = reader.u32("footer length").ok()?;
    let complement = reader.u32("footer length complement").ok()?;
    if complement != !frame_len || reader.remaining() != 0 {
        return None;
    }
    let frame_len = usize::try_from(frame_len).ok()?;
    let is_frame =
        (FRAME_HEADER_LEN..=FRAME_LEN_MAX).contains(&frame_len) && frame_len.is_multiple_of(FRAME_ALIGNMENT);
    is_frame.then_some(frame_len)
}

/// Reads the entries of a footer frame.
///
/// # Errors
/// `Corrupt` if the frame is no footer, or its body is not the length its count says.
pub fn decode(frame: &Frame<'_>) -> Result<Vec<FooterEntry>, DecodeError> {
    let header = frame.header();
    if header.fields.kind != KIND_FOOTER {
        return Err(DecodeError::corrupt(4, "frame kind", KIND_FOOTER, header.fields.kind));
    }
    let count = usize::try_from(header.fields.record_count).unwrap_or(usize::MAX);
    let expected = count.saturating_mul(FOOTER_ENTRY_LEN);
    if frame.body().len() != expected {
        return Err(DecodeError::corrupt(8, "footer length", expected, frame.body().len()));
    }
    let mut reader = Reader::within(frame.body(), FRAME_HEADER_LEN);
    (0..count)
        .map(|_| {
            let kind = KindNo(reader.u16("footer kind")?);
            reader.reserved(2, "footer reserved")?;
            let node = NodeId(reader.u32("footer node")?);
            let frame_offset = reader.u32("footer frame offset")?;
            let timestamp = Timestamp(reader.i64("footer timestamp")?);
            Ok(FooterEntry { kind, node, frame_offset, timestamp })
        })
        .collect()
}
