//! A compressed segment: the bytes of a sealed segment in blocks that are decompressed one by one, so that a page of a
//! transcript costs the blocks it stands in. Layout only: what compresses and reads files is elsewhere.
//!
//! ```text
//! segment header (128 bytes) | head | block | block | ... | copy of header and head | locator
//! ```
//!
//! The file begins as every segment does, with a header for readers of version 2: an older reader knows that it is too old.
//! The head holds what is needed to find any byte of the segment, so one read opens the file; the copy at the end is for
//! when the first one is hurt. The segment's own header stands in the head as it is, everything behind it is in blocks.

use std::ops::Range;

use crate::bytes::{Reader, len_u32};
use crate::error::{DecodeError, DecodeErrorKind, TooLarge};
use crate::ids::{FormatVersion, Position};
use crate::limits::{
    PACKED_BLOCK_LEN_MAX, PACKED_BLOCKS_MAX, PACKED_ENTRY_LEN, PACKED_HEAD_LEN, PACKED_LEN_MAX,
    PACKED_LOCATOR_LEN, SEGMENT_HEADER_LEN,
};
use crate::segment::{SegmentHeader, hex, hex32};

/// The first bytes of the head, behind the segment header, and of the locator.
pub const PACKED_MAGIC: [u8; 8] = *b"\x89SLOGZ\r\n";

/// The format version of a compressed segment, and the lowest one of its readers.
pub const PACKED_VERSION: FormatVersion = FormatVersion(2);

/// Each block is one frame of Zstandard (RFC 8878), without a dictionary.
pub const METHOD_ZSTD: u16 = 1;

/// Where the segment's own header stands.
const OWN_HEADER_AT: usize = SEGMENT_HEADER_LEN + 40;
const CHECKSUM_LEN: usize = 4;
/// The longest header and head.
const HEAD_END_MAX: usize =
    SEGMENT_HEADER_LEN + PACKED_HEAD_LEN + PACKED_BLOCKS_MAX * PACKED_ENTRY_LEN + CHECKSUM_LEN;

/// One block: a stretch of the segment, and where it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedBlock {
    /// Where it starts in the segment, in bytes.
    pub offset: usize,
    /// Its length in the segment.
    pub len: usize,
    /// Where it starts in the file.
    pub stored_offset: u64,
    /// Its length in the file.
    pub stored_len: usize,
    /// The checksum of its bytes in the file.
    pub checksum: u32,
}

impl PackedBlock {
    /// Which bytes of the segment it holds.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset.saturating_add(self.len)
    }

    /// Compares its bytes in the file with their length and checksum.
    ///
    /// # Errors
    /// `Corrupt`, with the offset in the block.
    pub fn check(&self, stored: &[u8]) -> Result<(), DecodeError> {
        if stored.len() != self.stored_len {
            return Err(DecodeError::corrupt(0, "length of a block", self.stored_len, stored.len()));
        }
        #[cfg(feature = "seeded-bugs")]
        if crate::seeded::is("skip_block_crc") {
            return Ok(());
        }
        let computed = crc32fast::hash(stored);
        if computed != self.checksum {
            return Err(DecodeError::corrupt(
                0,
                "checksum of a block",
                hex32(self.checksum),
                hex32(computed),
            ));
        }
        Ok(())
    }
}

/// What a compressed segment says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedHead {
    /// The segment's own header: its first bytes.
    pub header: [u8; SEGMENT_HEADER_LEN],
    /// The same, decoded.
    pub segment: SegmentHeader,
    /// How blocks are compressed: [`METHOD_ZSTD`].
    pub method: u16,
    /// The length of the segment, in bytes.
    pub len: usize,
    /// The position after the segment's last record.
    pub next: Position,
    /// The blocks, in order; the first one begins behind the segment's header, and they have no gaps.
    pub blocks: Vec<PackedBlock>,
    /// What is wrong with the header before the head, which nothing is lost with.
    pub outer_error: Option<DecodeError>,
}

impl PackedHead {
    /// The bytes before the first block: those that [`decode`](Self::decode) needs.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        head_end(self.blocks.len())
    }

    /// Reads header and head from the first bytes of a file, or from the copy at its end.
    ///
    /// # Errors
    /// `Corrupt` if they are cut, the magic, the checksum or a length is wrong; `Unsupported` if a newer version or another
    /// method is needed.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let end = head_len(bytes)?;
        let Some(covered) = bytes.get(SEGMENT_HEADER_LEN..end.saturating_sub(CHECKSUM_LEN)) else {
            return Err(DecodeError::corrupt(bytes.len(), "compressed segment's head", end, bytes.len()));
        };
        let checksum_at = end.saturating_sub(CHECKSUM_LEN);
        let stored = bytes.get(checksum_at..).unwrap_or_default();
        let stored = Reader::within(stored, checksum_at).u32("compressed segment's head checksum")?;
        let computed = crc32fast::hash(covered);
        if stored != computed {
            let what = "compressed segment's head checksum";
            return Err(DecodeError::corrupt(checksum_at, what, hex32(computed), hex32(stored)));
        }
        let outer = SegmentHeader::decode_for(bytes, PACKED_VERSION);
        if let Err(error) = &outer
            && error.kind() == DecodeErrorKind::Unsupported
        {
            return Err(error.clone());
        }
        let mut reader = Reader::within(covered, SEGMENT_HEADER_LEN);
        reader.take(12, "compressed segment's magic and length")?;
        let method_at = reader.offset();
        let method = reader.u16("method of compression")?;
        if method != METHOD_ZSTD {
            return Err(DecodeError::unsupported(method_at, "method of compression", METHOD_ZSTD, method));
        }
        reader.reserved(2, "compressed segment's reserved bytes")?;
        let block_len = usize_of(reader.u32("length of blocks")?);
        let count = usize_of(reader.u32("number of blocks")?);
        let len_at = reader.offset();
        let claimed = reader.u64("segment's length")?;
        let next = Position(reader.u64("position after the segment")?);
        let header: [u8; SEGMENT_HEADER_LEN] = reader.array("segment's own header")?;
        let segment = SegmentHeader::decode(&header)?;
        let outer_error = check_outer(outer, &segment)?;
        let blocks = read_blocks(&mut reader, count, block_len, end)?;
        let blocks_end = blocks.last().map_or(SEGMENT_HEADER_LEN, |block| block.range().end);
        let len = usize::try_from(claimed).ok().filter(|len| *len == blocks_end && *len <= PACKED_LEN_MAX);
        let Some(len) = len else {
            let expected = format!("the {blocks_end} of its blocks, at most {PACKED_LEN_MAX}");
            return Err(DecodeError::corrupt(len_at, "segment's length", expected, claimed));
        };
        Ok(Self { header, segment, method, len, next, blocks, outer_error })
    }

    /// The blocks that hold the bytes of a range of the segment.
    #[must_use]
    pub fn blocks_of(&self, range: &Range<usize>) -> &[PackedBlock] {
        let from = self.blocks.partition_point(|block| block.range().end <= range.start);
        let to = self.blocks.partition_point(|block| block.offset < range.end);
        self.blocks.get(from..to).unwrap_or_default()
    }
}

fn usize_of(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn head_end(blocks: usize) -> usize {
    let entries = blocks.saturating_mul(PACKED_ENTRY_LEN);
    SEGMENT_HEADER_LEN.saturating_add(PACKED_HEAD_LEN).saturating_add(entries).saturating_add(CHECKSUM_LEN)
}

/// The two headers of a file must be the same but for their versions. What is wrong with the first one, if it is not whole.
fn check_outer(
    outer: Result<SegmentHeader, DecodeError>,
    own: &SegmentHeader,
) -> Result<Option<DecodeError>, DecodeError> {
    let outer = match outer {
        Ok(outer) => outer,
        Err(error) => return Ok(Some(error)),
    };
    // A later version may write what this one reads.
    if outer != (SegmentHeader { format: outer.format, ..outer_header(own) }) {
        let what = "compressed segment's two headers";
        return Err(DecodeError::corrupt(OWN_HEADER_AT, what, "one segment", "two different ones"));
    }
    Ok(None)
}

/// The header that a compressed segment begins with.
fn outer_header(own: &SegmentHeader) -> SegmentHeader {
    SegmentHeader { format: PACKED_VERSION, reader: PACKED_VERSION, ..own.clone() }
}

fn read_blocks(
    reader: &mut Reader<'_>,
    count: usize,
    block_len: usize,
    head_end: usize,
) -> Result<Vec<PackedBlock>, DecodeError> {
    let mut offset = SEGMENT_HEADER_LEN;
    let mut stored_offset = u64::from(len_u32(head_end));
    let mut blocks = Vec::with_capacity(count);
    for _ in 0..count {
        let at = reader.offset();
        let len = usize_of(reader.u32("length of a block")?);
        let stored_len = usize_of(reader.u32("stored length of a block")?);
        let checksum = reader.u32("checksum of a block")?;
        let most = block_len.min(PACKED_BLOCK_LEN_MAX);
        if len == 0 || len > most || stored_len == 0 || stored_len > stored_len_max(most) {
            let expected = format!("1 to {most} bytes");
            return Err(DecodeError::corrupt(
                at,
                "length of a block",
                expected,
                format!("{len}, {stored_len}"),
            ));
        }
        blocks.push(PackedBlock { offset, len, stored_offset, stored_len, checksum });
        offset = offset.saturating_add(len);
        stored_offset = stored_offset.saturating_add(u64::from(len_u32(stored_len)));
    }
    Ok(blocks)
}

/// The most bytes that a block of `len` bytes takes in the file.
fn stored_len_max(len: usize) -> usize {
    len.saturating_add(len / 128).saturating_add(512)
}

/// Whether a file that begins so is a compressed segment, whole or hurt, of this or a newer version.
#[must_use]
pub fn is_packed(bytes: &[u8]) -> bool {
    let magic = bytes.get(SEGMENT_HEADER_LEN..SEGMENT_HEADER_LEN + PACKED_MAGIC.len());
    magic == Some(&PACKED_MAGIC) || outer(bytes).is_some()
}

/// The segment's header, from a whole header that says that the segment is compressed.
#[must_use]
pub fn outer(bytes: &[u8]) -> Option<SegmentHeader> {
    SegmentHeader::decode_for(bytes, PACKED_VERSION).ok().filter(|header| header.reader == PACKED_VERSION)
}

/// How many bytes [`PackedHead::decode`] needs, from the first ones of a file. Nothing vouches for it yet, but it is within
/// its limit.
///
/// # Errors
/// `Corrupt` if it is no head.
pub fn head_len(bytes: &[u8]) -> Result<usize, DecodeError> {
    let mut reader = Reader::new(bytes);
    reader.take(SEGMENT_HEADER_LEN, "segment header")?;
    let magic: [u8; 8] = reader.array("compressed segment's magic")?;
    if magic != PACKED_MAGIC {
        let (expected, found) = (hex(&PACKED_MAGIC), hex(&magic));
        return Err(DecodeError::corrupt(SEGMENT_HEADER_LEN, "compressed segment's magic", expected, found));
    }
    let at = reader.offset();
    let end = usize_of(reader.u32("length of header and head")?);
    reader.take(8, "compressed segment's head")?;
    let count = usize_of(reader.u32("number of blocks")?);
    if count == 0 || count > PACKED_BLOCKS_MAX || end != head_end(count) {
        let expected = format!("{} for {count} blocks, at most {HEAD_END_MAX}", head_end(count));
        return Err(DecodeError::corrupt(at, "length of header and head", expected, end));
    }
    Ok(end)
}

/// How long the copy of header and head is that ends where the locator begins, from the last [`PACKED_LOCATOR_LEN`] bytes
/// of a file; `None` if they are no locator.
#[must_use]
pub fn locate(tail: &[u8]) -> Option<usize> {
    let rest = tail.strip_prefix(&PACKED_MAGIC)?;
    let mut reader = Reader::new(rest);
    let len = reader.u32("length of the copy").ok()?;
    let complement = reader.u32("length of the copy, complement").ok()?;
    let len_of_copy = usize_of(len);
    let is_head = (head_end(1)..=HEAD_END_MAX).contains(&len_of_copy);
    (complement == !len && reader.remaining() == 0 && is_head).then_some(len_of_copy)
}

/// Where to cut a segment into blocks of at most `block_len` bytes: the blocks' lengths, from behind its header on. `frames`
/// are the offsets at which its frames start, in order; the last one is its footer.
///
/// A frame that fits into a block is in one: so it is read from one, and hurt with one. The footer begins a block, so that
/// whoever reads the index decompresses no record.
#[must_use]
pub fn cut(len: usize, frames: &[usize], block_len: usize) -> Vec<usize> {
    let block_len = block_len.clamp(1, PACKED_BLOCK_LEN_MAX);
    let mut lens = Vec::new();
    let mut start = SEGMENT_HEADER_LEN;
    let mut boundary = start;
    let footer = frames.last().copied().unwrap_or(len);
    for end in frames.iter().copied().chain([len]) {
        if end < boundary || end > len {
            continue;
        }
        if end.saturating_sub(start) > block_len && boundary > start {
            lens.push(boundary.saturating_sub(start));
            start = boundary;
        }
        while end.saturating_sub(start) > block_len {
            lens.push(block_len);
            start = start.saturating_add(block_len);
        }
        boundary = end;
        if end == footer && end > start {
            lens.push(end.saturating_sub(start));
            start = end;
        }
    }
    if len > start {
        lens.push(len.saturating_sub(start));
    }
    lens
}

/// The bytes of a compressed segment. `header` are the first bytes of the segment, `blocks` its other bytes: how many, and
/// what they are in the file.
///
/// # Errors
/// [`TooLarge`] if the segment or its blocks are over a limit.
pub fn encode(
    header: &SegmentHeader,
    header_bytes: &[u8; SEGMENT_HEADER_LEN],
    next: Position,
    blocks: &[(usize, Vec<u8>)],
) -> Result<Vec<u8>, TooLarge> {
    let lens = blocks.iter().map(|(len, _)| *len);
    let len = lens.clone().fold(SEGMENT_HEADER_LEN, usize::saturating_add);
    let block_len = lens.max().unwrap_or(0);
    let checked = [
        ("number of blocks", blocks.len(), PACKED_BLOCKS_MAX),
        ("length of a block", block_len, PACKED_BLOCK_LEN_MAX),
        ("length of a segment to compress", len, PACKED_LEN_MAX),
    ];
    if let Some((what, len, max)) = checked.into_iter().find(|(_, len, max)| len > max || *len == 0) {
        return Err(TooLarge { what, len, max });
    }
    let end = head_end(blocks.len());
    let mut head = Vec::with_capacity(end);
    head.extend_from_slice(&outer_header(header).encode());
    head.extend_from_slice(&PACKED_MAGIC);
    head.extend_from_slice(&len_u32(end).to_le_bytes());
    head.extend_from_slice(&METHOD_ZSTD.to_le_bytes());
    head.extend_from_slice(&[0; 2]);
    head.extend_from_slice(&len_u32(block_len).to_le_bytes());
    head.extend_from_slice(&len_u32(blocks.len()).to_le_bytes());
    head.extend_from_slice(&u64::from(len_u32(len)).to_le_bytes());
    head.extend_from_slice(&next.0.to_le_bytes());
    head.extend_from_slice(header_bytes);
    for (len, stored) in blocks {
        if stored.is_empty() || stored.len() > stored_len_max(block_len) {
            let (what, max) = ("stored length of a block", stored_len_max(block_len));
            return Err(TooLarge { what, len: stored.len(), max });
        }
        head.extend_from_slice(&len_u32(*len).to_le_bytes());
        head.extend_from_slice(&len_u32(stored.len()).to_le_bytes());
        head.extend_from_slice(&crc32fast::hash(stored).to_le_bytes());
    }
    let checksum = crc32fast::hash(head.get(SEGMENT_HEADER_LEN..).unwrap_or_default());
    head.extend_from_slice(&checksum.to_le_bytes());
    let mut out = head.clone();
    for (_, stored) in blocks {
        out.extend_from_slice(stored);
    }
    out.extend_from_slice(&head);
    out.extend_from_slice(&PACKED_MAGIC);
    out.extend_from_slice(&len_u32(end).to_le_bytes());
    out.extend_from_slice(&(!len_u32(end)).to_le_bytes());
    Ok(out)
}

const _: () = {
    assert!(OWN_HEADER_AT + SEGMENT_HEADER_LEN == SEGMENT_HEADER_LEN + PACKED_HEAD_LEN);
    assert!(PACKED_MAGIC.len() + 8 == PACKED_LOCATOR_LEN);
};

#[cfg(test)]
mod tests;
