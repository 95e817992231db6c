//! A frame: one atomic batch of records, committed or absent as a whole.

mod body;

pub use body::{Body, BodyBuilder};

use crate::bytes::{Reader, len_u32};
use crate::chain::ChainHasher;
use crate::error::{DecodeError, TooLarge};
use crate::ids::{Digest, Epoch, Position};
use crate::limits::{FRAME_ALIGNMENT, FRAME_BODY_LEN_MAX, FRAME_HEADER_LEN, FRAME_RECORDS_MAX};
use crate::record::{self, AsPayload, Envelope, Record};
use crate::segment::{hex, hex32};

/// The first bytes of every frame. Not zero, so that space which was never written does not parse.
pub const FRAME_MAGIC: [u8; 4] = *b"\xf5SLf";

/// The bit of a frame's kind that says: a reader that does not know this kind may skip the frame.
pub const KIND_IGNORABLE: u8 = 0x80;
/// A frame of records.
pub const KIND_RECORDS: u8 = 1;
/// The index at the end of a sealed segment, see [`footer`](crate::footer).
pub const KIND_FOOTER: u8 = KIND_IGNORABLE | 2;

const CRC_AT: usize = FRAME_HEADER_LEN - 4;

/// What a frame says of itself, apart from lengths and checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameFields {
    /// [`KIND_RECORDS`], [`KIND_FOOTER`], or one that a newer version defines.
    pub kind: u8,
    /// None are defined yet: 0 in every frame that this version writes.
    pub flags: u16,
    /// The position of its first record; of the next record to come, in a footer.
    pub first_position: Position,
    /// How many records (or, in a footer, entries).
    pub record_count: u32,
    /// The ownership that wrote it.
    pub epoch: Epoch,
    /// The last position that was known to be durable when it was written.
    pub synced: Position,
}

impl FrameFields {
    /// The fields of a frame of records. Their number is set when the frame is encoded.
    #[must_use]
    pub fn records(first_position: Position, epoch: Epoch, synced: Position) -> Self {
        Self { kind: KIND_RECORDS, flags: 0, first_position, record_count: 0, epoch, synced }
    }

    /// The position after its last record.
    #[must_use]
    pub fn next_position(&self) -> Position {
        let records = if self.kind == KIND_RECORDS { u64::from(self.record_count) } else { 0 };
        Position(self.first_position.0.saturating_add(records))
    }
}

/// A frame's header, its own checksum verified: its lengths can be trusted, its body can't yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame says of itself.
    pub fields: FrameFields,
    /// The chain hash of the frame.
    pub chain: Digest,
    /// Bytes of the body, padding excluded.
    pub body_len: usize,
    body_crc: u32,
}

impl FrameHeader {
    /// Reads a header from the bytes at a frame's start.
    ///
    /// # Errors
    /// `Corrupt` if there are fewer than [`FRAME_HEADER_LEN`] bytes, or the magic, the checksum or a length is
    /// wrong; `Unsupported` if it is sound but carries flags (or a reserved byte) that only a newer version knows.
    pub fn decode(bytes: &[u8], salt: u32) -> Result<Self, DecodeError> {
        let header = Reader::new(bytes).take(FRAME_HEADER_LEN, "frame header")?;
        let mut reader = Reader::new(header);
        let magic: [u8; 4] = reader.array("frame magic")?;
        if magic != FRAME_MAGIC {
            return Err(DecodeError::corrupt(0, "frame magic", hex(&FRAME_MAGIC), hex(&magic)));
        }
        let (covered, stored) = header.split_at(CRC_AT);
        let stored = Reader::new(stored).u32("frame header checksum")?;
        let computed = crc(salt, covered);
        if stored != computed {
            return Err(DecodeError::corrupt(
                CRC_AT,
                "frame header checksum",
                hex32(computed),
                hex32(stored),
            ));
        }
        let kind = reader.u8("frame kind")?;
        reader.reserved(1, "frame reserved")?;
        let flags = reader.u16("frame flags")?;
        let body_len = usize::try_from(reader.u32("frame body length")?).unwrap_or(usize::MAX);
        let record_count = reader.u32("frame record count")?;
        let first_position = Position(reader.u64("frame first position")?);
        let epoch = Epoch(reader.u64("frame epoch")?);
        let synced = Position(reader.u64("frame synced")?);
        let chain = Digest(reader.array("frame chain hash")?);
        let body_crc = reader.u32("frame body checksum")?;
        if body_len > FRAME_BODY_LEN_MAX {
            return Err(DecodeError::corrupt(8, "frame body length", FRAME_BODY_LEN_MAX, body_len));
        }
        if record_count == 0 || record_count > FRAME_RECORDS_MAX {
            let expected = format!("1 to {FRAME_RECORDS_MAX}");
            return Err(DecodeError::corrupt(12, "frame record count", expected, record_count));
        }
        let fields = FrameFields { kind, flags, first_position, record_count, epoch, synced };
        Ok(Self { fields, chain, body_len, body_crc })
    }

    /// Bytes from the frame's start to the next frame's.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        padded(FRAME_HEADER_LEN.saturating_add(self.body_len))
    }

    /// Verifies the body's checksum and structure. `body` may go on past the frame's end.
    ///
    /// # Errors
    /// `Corrupt` if the body is cut, its checksum is wrong or its records do not fill it; `Unsupported` if it is sound
    /// but of a kind (or with record flags) that only a newer version knows and that must not be skipped.
    pub fn verify(self, body: &[u8]) -> Result<Frame<'_>, DecodeError> {
        let body = Reader::within(body, FRAME_HEADER_LEN).take(self.body_len, "frame body")?;
        let computed = crc(0, body);
        #[cfg(feature = "seeded-bugs")]
        let computed = self.seeded_crc(computed);
        if computed != self.body_crc {
            return Err(DecodeError::corrupt(
                CRC_AT - 4,
                "frame body checksum",
                hex32(computed),
                hex32(self.body_crc),
            ));
        }
        let flags = self.fields.flags;
        if flags != 0 {
            return Err(DecodeError::unsupported(6, "frame flags", 0, format!("{flags:#06x}")));
        }
        let mut records = Vec::new();
        if self.fields.kind == KIND_RECORDS {
            let mut reader = Reader::within(body, FRAME_HEADER_LEN);
            let mut position = self.fields.first_position;
            for _ in 0..self.fields.record_count {
                records.push(record::decode(&mut reader, position)?);
                position = position.next().ok_or_else(|| {
                    DecodeError::corrupt(16, "frame first position", "room for its records", position)
                })?;
            }
            if reader.remaining() != 0 {
                return Err(DecodeError::corrupt(reader.offset(), "frame body end", 0, reader.remaining()));
            }
        } else if self.fields.kind & KIND_IGNORABLE == 0 {
            return Err(DecodeError::unsupported(4, "frame kind", KIND_RECORDS, self.fields.kind));
        }
        Ok(Frame { header: self, body, records })
    }

    #[cfg(feature = "seeded-bugs")]
    fn seeded_crc(&self, computed: u32) -> u32 {
        let skipped = crate::seeded::is("skip_body_crc")
            || (self.fields.kind == KIND_FOOTER && crate::seeded::is("footer_trusted_without_crc"));
        if skipped { self.body_crc } else { computed }
    }
}

/// A frame whose checksums hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    header: FrameHeader,
    body: &'a [u8],
    records: Vec<Record<'a>>,
}

impl<'a> Frame<'a> {
    /// Reads and verifies the frame at the start of `bytes`, which may go on past its end.
    ///
    /// # Errors
    /// As [`FrameHeader::decode`] and [`FrameHeader::verify`].
    pub fn decode(bytes: &'a [u8], salt: u32) -> Result<Self, DecodeError> {
        let header = FrameHeader::decode(bytes, salt)?;
        header.verify(bytes.get(FRAME_HEADER_LEN..).unwrap_or_default())
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &FrameHeader {
        &self.header
    }

    /// The body's bytes.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The records, in order. None in a frame of another kind.
    #[must_use]
    pub fn records(&self) -> &[Record<'a>] {
        &self.records
    }

    /// Appends the frame to `out` as it stands in a segment with another salt: all that it says, its place in the chain
    /// included, stays.
    pub fn copy_to(&self, out: &mut Vec<u8>, salt: u32) {
        encode_other(out, salt, &self.header.fields, &self.header.chain, self.body);
    }

    /// Computes the chain hash that the frame should carry after `previous`. Costs a hash of every payload.
    #[must_use]
    pub fn chain_after(&self, previous: &Digest) -> Digest {
        let mut hasher = ChainHasher::new(previous, &self.header.fields);
        for record in &self.records {
            hasher.record(&record.envelope, &record.payload.digest());
        }
        hasher.finish()
    }
}

/// Appends a frame of records to `out`, padded to [`FRAME_ALIGNMENT`], and returns its chain hash.
///
/// `fields.kind` and `fields.record_count` are set from the records, `fields.flags` to 0.
///
/// # Errors
/// [`TooLarge`] if a payload, the frame, the number of records or the last position is over its limit. `out` is then as
/// it was.
pub fn encode<P: AsPayload>(
    out: &mut Vec<u8>,
    salt: u32,
    previous: &Digest,
    fields: FrameFields,
    records: &[(Envelope, P)],
) -> Result<Digest, TooLarge> {
    let mut body = BodyBuilder::with_capacity(records.len());
    for (envelope, payload) in records {
        body.push(envelope.clone(), payload.as_payload())?;
    }
    body.finish()?.write_frame(out, salt, previous, fields)
}

/// Appends a frame whose body is there already, or is not records (a footer). Its chain hash is given: such frames are
/// not part of the chain, so that they can be rebuilt.
pub(crate) fn encode_other(out: &mut Vec<u8>, salt: u32, fields: &FrameFields, chain: &Digest, body: &[u8]) {
    let start = out.len();
    put_header(out, salt, fields, chain, (len_u32(body.len()), crc(0, body)));
    out.extend_from_slice(body);
    pad(out, start);
}

/// Appends the header of a frame whose body has this length and checksum.
fn put_header(
    out: &mut Vec<u8>,
    salt: u32,
    fields: &FrameFields,
    chain: &Digest,
    (body_len, body_crc): (u32, u32),
) {
    let start = out.len();
    out.extend_from_slice(&FRAME_MAGIC);
    out.extend_from_slice(&[fields.kind, 0]);
    out.extend_from_slice(&fields.flags.to_le_bytes());
    out.extend_from_slice(&body_len.to_le_bytes());
    out.extend_from_slice(&fields.record_count.to_le_bytes());
    out.extend_from_slice(&fields.first_position.0.to_le_bytes());
    out.extend_from_slice(&fields.epoch.0.to_le_bytes());
    out.extend_from_slice(&fields.synced.0.to_le_bytes());
    out.extend_from_slice(&chain.0);
    out.extend_from_slice(&body_crc.to_le_bytes());
    let header_crc = crc(salt, out.get(start..).unwrap_or_default());
    out.extend_from_slice(&header_crc.to_le_bytes());
}

/// Pads the frame that began at `start`.
fn pad(out: &mut Vec<u8>, start: usize) {
    let len = out.len().saturating_sub(start);
    out.resize(start.saturating_add(padded(len)), 0);
}

fn padded(len: usize) -> usize {
    len.checked_next_multiple_of(FRAME_ALIGNMENT).unwrap_or(len)
}

fn crc(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}
