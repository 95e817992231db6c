//! The header that begins every segment.

use crate::bytes::Reader;
use crate::error::DecodeError;
use crate::ids::{Digest, Epoch, FormatVersion, LogId, Position, SegmentNo};
use crate::limits::SEGMENT_HEADER_LEN;
use crate::packed::PACKED_VERSION;

/// The first bytes of every segment. Not text, and damaged by every transfer that changes line ends.
pub const SEGMENT_MAGIC: [u8; 8] = *b"\x89SLOG\r\n\x1a";

/// The version of the plain segments that this crate writes.
///
/// * 1: the first.
/// * 2: compressed segments, and only those: see [`packed`](crate::packed).
pub const FORMAT_VERSION: FormatVersion = FormatVersion(1);

/// The newest layout of plain segments that this crate reads. A segment says which reader it needs at least.
pub const READER_VERSION: FormatVersion = FormatVersion(1);

/// A segment's header: 128 bytes, see `FORMAT.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The version that wrote the segment.
    pub format: FormatVersion,
    /// The oldest reader that understands it.
    pub reader: FormatVersion,
    /// The log it belongs to.
    pub log_id: LogId,
    /// Which segment of the log.
    pub segment_no: SegmentNo,
    /// The position of its first record.
    pub first_position: Position,
    /// The ownership that began it.
    pub epoch: Epoch,
    /// Seeds the checksums of its frames' headers, so that a frame of another segment never passes here. See [`salt`].
    pub salt: u32,
    /// The chain hash of the last frame before it: [`chain::genesis`](crate::chain::genesis) in the first segment.
    pub previous: Digest,
    /// The log that the segments before this one belong to, where this is the first segment a fork wrote itself.
    pub forked_from: Option<LogId>,
}

/// The salt that a writer gives a segment: derived, not drawn, so that it can be computed again for a segment whose
/// header is damaged. Readers use the one in the header.
#[must_use]
pub fn salt(log_id: LogId, segment_no: SegmentNo) -> u32 {
    let mut hasher = blake3::Hasher::new_derive_key(SALT_CONTEXT);
    hasher.update(&log_id.0);
    hasher.update(&segment_no.0.to_le_bytes());
    let mut salt = [0; 4];
    hasher.finalize_xof().fill(&mut salt);
    u32::from_le_bytes(salt)
}

/// What an error calls a compressed segment where only plain ones can be read.
pub const COMPRESSED: &str = "compressed segment";

/// The context that [`salt`] is derived in.
pub const SALT_CONTEXT: &str = "sessionlog 2026-11 segment salt v1";

impl SegmentHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_LEN] {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_LEN);
        out.extend_from_slice(&SEGMENT_MAGIC);
        out.extend_from_slice(&crate::bytes::len_u32(SEGMENT_HEADER_LEN).to_le_bytes());
        out.extend_from_slice(&self.format.0.to_le_bytes());
        out.extend_from_slice(&self.reader.0.to_le_bytes());
        out.extend_from_slice(&self.log_id.0);
        out.extend_from_slice(&self.segment_no.0.to_le_bytes());
        out.extend_from_slice(&self.first_position.0.to_le_bytes());
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.previous.0);
        out.extend_from_slice(&self.forked_from.unwrap_or(LogId([0; 16])).0);
        out.resize(SEGMENT_HEADER_LEN - 4, 0);
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        let mut header = [0; SEGMENT_HEADER_LEN];
        header.copy_from_slice(&out);
        header
    }

    /// Reads a header from the first bytes of a segment.
    ///
    /// # Errors
    /// `Corrupt` if it is shorter than a header, if the magic or the checksum is wrong; `Unsupported` if a newer
    /// version wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_for(bytes, READER_VERSION)
    }

    /// As [`decode`](Self::decode), for a reader of this version.
    pub(crate) fn decode_for(bytes: &[u8], own: FormatVersion) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let header = reader.take(SEGMENT_HEADER_LEN, "segment header")?;
        let mut reader = Reader::new(header);
        let magic: [u8; 8] = reader.array("segment magic")?;
        if magic != SEGMENT_MAGIC {
            return Err(DecodeError::corrupt(0, "segment magic", hex(&SEGMENT_MAGIC), hex(&magic)));
        }
        let header_len = reader.u32("segment header length")?;
        let (format, min_reader) =
            (FormatVersion(reader.u16("format")?), FormatVersion(reader.u16("reader")?));
        let (covered, stored) = header.split_at(SEGMENT_HEADER_LEN - 4);
        let stored = Reader::new(stored).u32("segment header checksum")?;
        let computed = crc32fast::hash(covered);
        if stored != computed {
            let at = SEGMENT_HEADER_LEN - 4;
            return Err(DecodeError::corrupt(at, "segment header checksum", hex32(computed), hex32(stored)));
        }
        if min_reader == PACKED_VERSION && own < PACKED_VERSION {
            let expected = "a plain one, or the feature `compression` and a method of compression that this version knows";
            return Err(DecodeError::unsupported(12, COMPRESSED, expected, format_args!("version {format}")));
        }
        if min_reader > own || header_len != crate::bytes::len_u32(SEGMENT_HEADER_LEN) {
            let found = format!("version {format}, for readers from version {min_reader}");
            let expected = format!("at most version {own}");
            return Err(DecodeError::unsupported(12, "segment format", expected, found));
        }
        let log_id = LogId(reader.array("log id")?);
        let segment_no = SegmentNo(reader.u64("segment number")?);
        let first_position = Position(reader.u64("first position")?);
        let epoch = Epoch(reader.u64("epoch")?);
        let salt = reader.u32("salt")?;
        reader.take(4, "reserved")?;
        let previous = Digest(reader.array("previous chain hash")?);
        let forked_from = Some(LogId(reader.array("origin log")?)).filter(|id| id.0 != [0; 16]);
        Ok(Self {
            format,
            reader: min_reader,
            log_id,
            segment_no,
            first_position,
            epoch,
            salt,
            previous,
            forked_from,
        })
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn hex32(number: u32) -> String {
    format!("{number:#010x}")
}
