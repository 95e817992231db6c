//! Any bytes as a segment header, and as the contents of one whose checksum holds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sessionlog_codec::limits::SEGMENT_HEADER_LEN;
use sessionlog_codec::segment::{SEGMENT_MAGIC, SegmentHeader};

fuzz_target!(|data: &[u8]| {
    let _ = SegmentHeader::decode(data);
    let mut bytes = data.to_vec();
    bytes.resize(SEGMENT_HEADER_LEN, 0);
    bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
    let crc = crc32fast::hash(&bytes[..SEGMENT_HEADER_LEN - 4]);
    bytes[SEGMENT_HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
    if let Ok(header) = SegmentHeader::decode(&bytes) {
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    }
});
