//! Segments with bytes that nobody writes and checksums that hold all the same: what newer versions, other logs and liars leave.

use std::ops::Range;

use sessionlog_codec::footer::{self, FooterEntry};
use sessionlog_codec::frame::{Frame, KIND_FOOTER};
use sessionlog_codec::ids::FormatVersion;
use sessionlog_codec::limits::{FRAME_HEADER_LEN, SEGMENT_HEADER_LEN};
use sessionlog_codec::segment::SegmentHeader;

/// The places of the frames, up to the first bytes that are none.
pub(crate) fn frames(segment: &[u8]) -> Vec<Range<usize>> {
    let salt = SegmentHeader::decode(segment).unwrap().salt;
    let (mut places, mut at) = (Vec::new(), SEGMENT_HEADER_LEN);
    while let Ok(frame) = Frame::decode(&segment[at..], salt) {
        // The padding of the last one may be missing.
        let end = (at + frame.header().frame_len()).min(segment.len());
        places.push(at..end);
        at = end;
    }
    places
}

/// Makes the checksums of the frame at a place hold.
pub(crate) fn seal(segment: &mut [u8], at: usize) {
    let salt = SegmentHeader::decode(segment).unwrap().salt;
    let (header, body) = segment[at..].split_at_mut(FRAME_HEADER_LEN);
    let len = u32::from_le_bytes(header[8..12].try_into().unwrap());
    let body_crc = crc32(0, &body[..usize::try_from(len).unwrap()]);
    header[72..76].copy_from_slice(&body_crc.to_le_bytes());
    let crc = crc32(salt, &header[..76]);
    header[76..].copy_from_slice(&crc.to_le_bytes());
}

/// CRC-32/ISO-HDLC that goes on from the checksum `seed`.
pub(crate) fn crc32(seed: u32, bytes: &[u8]) -> u32 {
    let mut register = !seed;
    for byte in bytes {
        register ^= u32::from(*byte);
        for _ in 0..8 {
            register = (register >> 1) ^ if register & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !register
}

/// Changes the segment's header, whose checksum holds afterwards.
pub(crate) fn with_header(segment: &mut [u8], change: impl FnOnce(&mut SegmentHeader)) {
    let mut header = SegmentHeader::decode(segment).unwrap();
    change(&mut header);
    segment[..SEGMENT_HEADER_LEN].copy_from_slice(&header.encode());
}

/// As [`with_header`]: a version that this one does not read wrote the segment.
pub(crate) fn from_the_future(segment: &mut [u8]) {
    with_header(segment, |header| {
        header.format = FormatVersion(9);
        header.reader = FormatVersion(9);
    });
}

/// Puts a frame without records of this kind at a place where a frame begins or ends. Gives its length.
pub(crate) fn insert(segment: &mut Vec<u8>, at: usize, kind: u8) -> usize {
    let salt = SegmentHeader::decode(segment).unwrap().salt;
    let place = frames(segment).into_iter().find(|place| place.start == at || place.end == at).unwrap();
    let fields = Frame::decode(&segment[place.clone()], salt).unwrap().header().fields.clone();
    let here = if place.end == at { fields.next_position() } else { fields.first_position };
    let mut other = segment[place.start..place.start + FRAME_HEADER_LEN].to_vec();
    other.extend_from_slice(b"an index to come");
    other[4] = kind;
    other[8..12].copy_from_slice(&16_u32.to_le_bytes());
    other[16..24].copy_from_slice(&here.0.to_le_bytes());
    segment.splice(at..at, other.iter().copied());
    seal(segment, at);
    other.len()
}

/// What is wrong with the frame at a place.
pub(crate) fn why(segment: &[u8], at: usize) -> String {
    let salt = SegmentHeader::decode(segment).unwrap().salt;
    Frame::decode(&segment[at..], salt).unwrap_err().to_string()
}

/// What is wrong with the segment's header.
pub(crate) fn header_error(segment: &[u8]) -> String {
    SegmentHeader::decode(segment).unwrap_err().to_string()
}

/// Changes what the index of a sealed segment says of its records; its checksums hold afterwards.
pub(crate) fn with_index(segment: &mut Vec<u8>, change: impl FnOnce(&mut Vec<FooterEntry>)) {
    let salt = SegmentHeader::decode(segment).unwrap().salt;
    let place = frames(segment).pop().unwrap();
    let frame = Frame::decode(&segment[place.clone()], salt).unwrap();
    assert_eq!(frame.header().fields.kind, KIND_FOOTER);
    let (fields, chain) = (frame.header().fields.clone(), frame.header().chain);
    let mut entries = footer::decode(&frame).unwrap();
    change(&mut entries);
    segment.truncate(place.start);
    footer::encode(segment, salt, fields.first_position, fields.epoch, &chain, &entries).unwrap();
}
