//! Every maximum of the format. Checked before a byte is written and before a byte is allocated.

/// Bytes of a segment header.
pub const SEGMENT_HEADER_LEN: usize = 128;
/// Bytes of a frame header.
pub const FRAME_HEADER_LEN: usize = 80;
/// Bytes of a record header, before its optional fields.
pub const RECORD_HEADER_LEN: usize = 24;
/// Bytes of a record's optional fields: cause (8) and idempotency key (16).
pub const RECORD_OPTIONAL_LEN_MAX: usize = 24;
/// Frames start at multiples of this within their segment.
pub const FRAME_ALIGNMENT: usize = 8;
/// Bytes of one entry of a segment's footer.
pub const FOOTER_ENTRY_LEN: usize = 20;

/// The longest payload of a record: 64 MiB.
pub const PAYLOAD_LEN_MAX: usize = 64 << 20;
/// The longest frame, header and padding included: 80 MiB.
pub const FRAME_LEN_MAX: usize = 80 << 20;
/// The longest body of a frame.
pub const FRAME_BODY_LEN_MAX: usize = FRAME_LEN_MAX - FRAME_HEADER_LEN;
/// The most records of one frame.
pub const FRAME_RECORDS_MAX: u32 = 1 << 20;

/// Bytes of a compressed segment's head before its entries, behind the segment header.
pub const PACKED_HEAD_LEN: usize = 168;
/// Bytes of the entry of a block in a compressed segment's head.
pub const PACKED_ENTRY_LEN: usize = 12;
/// Bytes of the locator that ends a compressed segment.
pub const PACKED_LOCATOR_LEN: usize = 16;
/// The longest block of a compressed segment, decompressed: 1 MiB.
pub const PACKED_BLOCK_LEN_MAX: usize = 1 << 20;
/// The most blocks of a compressed segment.
pub const PACKED_BLOCKS_MAX: usize = 1 << 16;
/// The longest segment that may be compressed, decompressed: 256 MiB.
pub const PACKED_LEN_MAX: usize = 256 << 20;

const _: () = {
    assert!(SEGMENT_HEADER_LEN.is_multiple_of(FRAME_ALIGNMENT));
    assert!(FRAME_HEADER_LEN.is_multiple_of(FRAME_ALIGNMENT));
    assert!(FRAME_LEN_MAX.is_multiple_of(FRAME_ALIGNMENT));
    // A record of the longest payload fits in a frame of its own.
    assert!(PAYLOAD_LEN_MAX + RECORD_HEADER_LEN + RECORD_OPTIONAL_LEN_MAX <= FRAME_BODY_LEN_MAX);
    assert!(FRAME_LEN_MAX <= u32::MAX as usize);
};
