//! Changes of a segment's bytes at places that the input chooses.

use libfuzzer_sys::arbitrary::Unstructured;
use sessionlog_codec::frame::FrameHeader;
use sessionlog_codec::limits::{FRAME_HEADER_LEN, SEGMENT_HEADER_LEN};
use sessionlog_codec::segment::SegmentHeader;

use super::{below, byte};

/// Where a frame stands, padding included.
type Place = std::ops::Range<usize>;

/// The frames of a segment that was not changed yet, its footer with them.
pub fn frames(segment: &[u8]) -> Vec<Place> {
    let Ok(header) = SegmentHeader::decode(segment) else { return Vec::new() };
    let (mut places, mut at) = (Vec::new(), SEGMENT_HEADER_LEN);
    while let Some(Ok(frame)) = segment.get(at..).map(|rest| FrameHeader::decode(rest, header.salt)) {
        let end = at.saturating_add(frame.frame_len()).min(segment.len());
        places.push(at..end);
        at = end;
    }
    places
}

/// What happens to disks: bytes change, vanish from the end, or come there. Every checksum tells.
pub fn damage(input: &mut Unstructured<'_>, bytes: &mut Vec<u8>) {
    let at = below(input, bytes.len());
    match byte(input) % 5 {
        0 => bytes.truncate(at),
        1 => {
            if let Some(changed) = bytes.get_mut(at) {
                *changed ^= byte(input).max(1);
            }
        }
        2 => {
            let end = at.saturating_add(below(input, 600)).min(bytes.len());
            bytes[at..end].fill(0);
        }
        3 => {
            for _ in 0..=byte(input) % 16 {
                bytes.push(byte(input));
            }
        }
        _ => {
            for changed in bytes.iter_mut().skip(at).take(usize::from(byte(input) % 32)) {
                *changed = byte(input);
            }
        }
    }
}

/// What only a program does: everything is sound as far as the checksums say, and does not mean what it meant.
pub fn forge(input: &mut Unstructured<'_>, bytes: &mut Vec<u8>) {
    let Ok(header) = SegmentHeader::decode(bytes) else { return };
    let places = frames(bytes);
    let Some(place) = places.get(below(input, places.len())).cloned() else { return };
    match byte(input) % 7 {
        // A field of a frame's header.
        0 | 1 => {
            bytes[place.start + 4 + below(input, FRAME_HEADER_LEN - 12)] = byte(input);
        }
        2 => {
            let at = place.start + below(input, place.len());
            bytes[at] = byte(input);
        }
        3 => {
            let twice = bytes[place.clone()].to_vec();
            bytes.splice(place.end..place.end, twice);
        }
        4 => drop(bytes.drain(place.clone())),
        // A frame that may be skipped, or must be understood.
        5 => {
            let mut other = bytes[place.clone()].to_vec();
            other[4] = byte(input);
            let start = place.end;
            bytes.splice(start..start, other);
            return reseal(bytes, start, header.salt);
        }
        _ => {
            bytes[8 + below(input, SEGMENT_HEADER_LEN - 12)] = byte(input);
            let crc = crc32fast::hash(&bytes[..SEGMENT_HEADER_LEN - 4]);
            bytes[SEGMENT_HEADER_LEN - 4..SEGMENT_HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
            return;
        }
    }
    reseal(bytes, place.start, header.salt);
}

/// Makes the checksums of the frame at a place hold.
fn reseal(bytes: &mut [u8], at: usize, salt: u32) {
    let Some((header, body)) = bytes.get_mut(at..).and_then(|it| it.split_at_mut_checked(FRAME_HEADER_LEN))
    else {
        return;
    };
    let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    let body = body.get(..usize::try_from(len).unwrap()).unwrap_or(body);
    header[72..76].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(&header[..76]);
    header[76..].copy_from_slice(&hasher.finalize().to_le_bytes());
}
