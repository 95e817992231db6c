use proptest::prelude::*;

use super::*;
use crate::ids::{Digest, Epoch, LogId, SegmentNo};

fn own_header() -> SegmentHeader {
    SegmentHeader {
        format: FormatVersion(1),
        reader: FormatVersion(1),
        log_id: LogId([3; 16]),
        segment_no: SegmentNo(4),
        first_position: Position(100),
        epoch: Epoch(2),
        salt: 77,
        previous: Digest([9; 32]),
        forked_from: None,
    }
}

/// Blocks of these lengths; what is in them does not matter here.
fn blocks(lens: &[usize]) -> Vec<(usize, Vec<u8>)> {
    let stored = |nth: usize, len: usize| vec![u8::try_from(nth % 251).unwrap(); 1 + len / 3];
    lens.iter().enumerate().map(|(nth, len)| (*len, stored(nth, *len))).collect()
}

fn file(lens: &[usize]) -> Vec<u8> {
    let header = own_header();
    encode(&header, &header.encode(), Position(140), &blocks(lens)).unwrap()
}

#[test]
fn a_head_comes_back_from_either_end() {
    let bytes = file(&[500, 1, 700]);
    let end = head_len(&bytes).unwrap();
    let head = PackedHead::decode(&bytes[..end]).unwrap();
    assert_eq!((head.segment, head.header.to_vec()), (own_header(), own_header().encode().to_vec()));
    assert_eq!((head.len, head.next, head.outer_error), (128 + 1201, Position(140), None));
    let offsets: Vec<_> = head.blocks.iter().map(|block| (block.offset, block.len)).collect();
    assert_eq!(offsets, [(128, 500), (628, 1), (629, 700)]);
    for (block, (_, stored)) in head.blocks.iter().zip(blocks(&[500, 1, 700])) {
        let start = usize::try_from(block.stored_offset).unwrap();
        assert_eq!(bytes[start..start + block.stored_len], stored);
        block.check(&stored).unwrap();
        block.check(&stored[1..]).unwrap_err();
        block.check(&vec![0; stored.len()]).err().map_or_else(|| assert_eq!(stored[0], 0), drop);
    }
    let copy_end = bytes.len() - PACKED_LOCATOR_LEN;
    assert_eq!(locate(&bytes[copy_end..]), Some(end));
    assert_eq!(bytes[copy_end - end..copy_end], bytes[..end]);
}

#[test]
fn a_plain_reader_knows_that_it_is_too_old() {
    let error = SegmentHeader::decode(&file(&[10])).unwrap_err();
    assert_eq!(error.kind(), DecodeErrorKind::Unsupported);
    assert!(error.to_string().contains("compressed"), "{error}");
    assert!(is_packed(&file(&[10])));
    assert_eq!(outer(&file(&[10])), Some(outer_header(&own_header())));
    assert!(!is_packed(&own_header().encode()) && outer(&own_header().encode()).is_none());
}

#[test]
fn blocks_of_a_range() {
    let head = PackedHead::decode(&file(&[100, 50, 200])).unwrap();
    let of =
        |range: Range<usize>| head.blocks_of(&range).iter().map(|block| block.offset).collect::<Vec<_>>();
    assert_eq!(of(0..128), [0; 0]);
    assert_eq!(of(0..129), [128]);
    assert_eq!(of(227..228), [128]);
    assert_eq!(of(228..229), [228]);
    assert_eq!(of(130..300), [128, 228, 278]);
    assert_eq!(of(477..9999), [278]);
    assert_eq!(of(478..9999), [0; 0]);
    assert_eq!(of(300..300), [278], "an empty range is in a block too");
}

/// Whatever is changed, it is seen, or it says the same: the segment header before the head may be hurt.
#[test]
fn every_bit_of_the_head_counts() {
    let bytes = file(&[300, 400]);
    let end = head_len(&bytes).unwrap();
    let whole = PackedHead::decode(&bytes).unwrap();
    for at in 0..end {
        for bit in 0..8 {
            let mut hurt = bytes[..end].to_vec();
            hurt[at] ^= 1 << bit;
            match PackedHead::decode(&hurt) {
                Ok(head) => {
                    assert!(at < SEGMENT_HEADER_LEN && head.outer_error.is_some(), "byte {at}");
                    assert_eq!(PackedHead { outer_error: None, ..head }, whole, "byte {at}");
                }
                Err(_) => assert!(at >= SEGMENT_HEADER_LEN, "byte {at}"),
            }
        }
        PackedHead::decode(&bytes[..at]).unwrap_err();
    }
}

/// Sets bytes of the head and makes its checksum hold.
fn patched(bytes: &[u8], at: usize, with: &[u8]) -> Vec<u8> {
    let end = head_len(bytes).unwrap();
    let mut head = bytes[..end].to_vec();
    head[at..at + with.len()].copy_from_slice(with);
    let crc = crc32fast::hash(&head[SEGMENT_HEADER_LEN..end - 4]);
    head[end - 4..].copy_from_slice(&crc.to_le_bytes());
    head
}

#[test]
fn what_a_newer_version_wrote_is_no_damage() {
    let bytes = file(&[300]);
    for (at, with) in [(140, [9, 0]), (142, [1, 0]), (142, [0, 1])] {
        let error = PackedHead::decode(&patched(&bytes, at, &with)).unwrap_err();
        assert_eq!(error.kind(), DecodeErrorKind::Unsupported, "byte {at}");
    }
    let newer = SegmentHeader { reader: FormatVersion(3), format: FormatVersion(3), ..own_header() };
    let error = PackedHead::decode(&patched(&bytes, 0, &newer.encode())).unwrap_err();
    assert_eq!(error.kind(), DecodeErrorKind::Unsupported);
    let error = PackedHead::decode(&patched(&bytes, OWN_HEADER_AT, &newer.encode())).unwrap_err();
    assert_eq!(error.kind(), DecodeErrorKind::Unsupported, "and its own header");
}

#[test]
fn lengths_that_do_not_fit_are_refused_before_anything_is_allocated() {
    let bytes = file(&[300, 10]);
    let entry = OWN_HEADER_AT + SEGMENT_HEADER_LEN;
    for (at, with) in [
        (136, u32::MAX), // the head's length
        (144, 299),      // blocks of 299 bytes
        (148, 0),        // no block
        (148, u32::MAX), // blocks without end
        (152, 437),      // a segment that is shorter than its blocks
        (156, 1),        // one of 4 GiB
        (entry, 0),
        (entry, 301),
        (entry, u32::MAX),
        (entry + 4, 0),
        (entry + 4, u32::MAX),
    ] {
        let error = match head_len(&patched(&bytes, at, &with.to_le_bytes())) {
            Ok(_) => PackedHead::decode(&patched(&bytes, at, &with.to_le_bytes())).unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.kind(), DecodeErrorKind::Corrupt, "byte {at}");
    }
    let other = SegmentHeader { segment_no: SegmentNo(5), ..own_header() };
    PackedHead::decode(&patched(&bytes, OWN_HEADER_AT, &other.encode())).unwrap_err();
    for tail in [[0; 16].as_slice(), &[0xff; 16], &bytes[bytes.len() - 15..], b""] {
        assert_eq!(locate(tail), None);
    }
}

#[test]
fn what_is_over_a_limit_is_not_written() {
    let header = own_header();
    let write = |blocks: &[(usize, Vec<u8>)]| encode(&header, &header.encode(), Position(1), blocks);
    write(&[]).unwrap_err();
    write(&[(PACKED_BLOCK_LEN_MAX + 1, vec![1])]).unwrap_err();
    write(&[(10, vec![1; 600])]).unwrap_err();
    write(&[(10, Vec::new())]).unwrap_err();
    write(&vec![(1, vec![1]); PACKED_BLOCKS_MAX + 1]).unwrap_err();
    write(&vec![(PACKED_BLOCK_LEN_MAX, vec![1]); 256]).unwrap_err();
    write(&vec![(PACKED_BLOCK_LEN_MAX, vec![1]); 255]).unwrap();
}

proptest! {
    #[test]
    fn frames_that_fit_are_in_one_block(lens in prop::collection::vec(1_usize..2000, 1..40), block_len in 1_usize..1500) {
        let mut frames = vec![SEGMENT_HEADER_LEN];
        for len in &lens {
            frames.push(frames.last().unwrap() + len);
        }
        let len = frames.pop().unwrap();
        let cut = cut(len, &frames, block_len);
        prop_assert_eq!(cut.iter().sum::<usize>() + SEGMENT_HEADER_LEN, len);
        prop_assert!(cut.iter().all(|len| (1..=block_len).contains(len)));
        let mut starts = vec![SEGMENT_HEADER_LEN];
        for len in &cut {
            starts.push(starts.last().unwrap() + len);
        }
        prop_assert!(starts.contains(frames.last().unwrap()), "the footer begins a block");
        frames.push(len);
        for frame in frames.windows(2).filter(|frame| frame[1] - frame[0] <= block_len) {
            let inside = starts.iter().filter(|start| (frame[0] + 1..frame[1]).contains(start));
            prop_assert_eq!(inside.count(), 0, "{:?} is in one of {:?}", frame, &starts);
        }
    }

    #[test]
    fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..700), at in 0_usize..400, with in any::<u32>()) {
        drop(PackedHead::decode(&bytes));
        let mut near = file(&[300, 10]);
        let at = at.min(near.len() - 4);
        near[at..at + 4].copy_from_slice(&with.to_le_bytes());
        drop(PackedHead::decode(&near));
        prop_assert!(is_packed(&near) || at < 136);
        prop_assert!(locate(near.last_chunk::<16>().unwrap()).is_some());
    }
}

/// How much of a file is its head is believed before a checksum is looked at: that bounds what a hostile file makes a reader
/// read and hold.
#[test]
fn a_head_claims_no_more_than_the_limit() {
    let bytes = file(&[10]);
    let of = |count: usize, end: usize| {
        let with_end = patched_plain(&bytes, SEGMENT_HEADER_LEN + 8, len_u32(end));
        head_len(&patched_plain(&with_end, SEGMENT_HEADER_LEN + 20, len_u32(count)))
    };
    assert_eq!(of(1, head_end(1)), Ok(head_end(1)));
    assert_eq!(of(PACKED_BLOCKS_MAX, HEAD_END_MAX), Ok(HEAD_END_MAX));
    for (count, end) in
        [(0, head_end(0)), (PACKED_BLOCKS_MAX + 1, head_end(PACKED_BLOCKS_MAX + 1)), (1, head_end(2))]
    {
        assert_eq!(of(count, end).unwrap_err().kind(), DecodeErrorKind::Corrupt, "{count} {end}");
    }
}

fn patched_plain(bytes: &[u8], at: usize, with: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + 4].copy_from_slice(&with.to_le_bytes());
    bytes
}

/// The copy of the head is found from the file's end when its beginning is hurt: bytes that only look like a locator send the
/// reader somewhere else.
#[test]
fn a_locator_is_whole_or_none() {
    let bytes = file(&[500, 1, 700]);
    let locator = &bytes[bytes.len() - PACKED_LOCATOR_LEN..];
    assert!(locate(locator).is_some());
    for bit in 0..locator.len() * 8 {
        let mut changed = locator.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(locate(&changed), None, "bit {bit}");
    }
    assert_eq!(locate(&[locator, &[0]].concat()), None);
    let of = |len: usize| {
        let len = len_u32(len);
        locate(&[PACKED_MAGIC.as_slice(), &len.to_le_bytes(), &(!len).to_le_bytes()].concat())
    };
    assert_eq!((of(head_end(1)), of(HEAD_END_MAX)), (Some(head_end(1)), Some(HEAD_END_MAX)));
    assert_eq!((of(head_end(1) - 1), of(HEAD_END_MAX + 1)), (None, None));
}

/// A block is as long as it may be where that is where a frame ends: one frame less in each, and a log compresses worse.
#[test]
fn a_block_is_filled_to_its_last_byte() {
    let at = |offsets: [usize; 4]| offsets.map(|offset| SEGMENT_HEADER_LEN + offset);
    assert_eq!(cut(SEGMENT_HEADER_LEN + 400, &at([0, 100, 200, 300]), 200), [200, 100, 100]);
    assert_eq!(cut(SEGMENT_HEADER_LEN + 400, &at([0, 200, 300, 350]), 200), [200, 150, 50]);
}

/// What a later version writes for readers of this one is read; a block at its limit too.
#[test]
fn what_is_at_a_limit_is_read() {
    let bytes = file(&[300]);
    let later = SegmentHeader { format: FormatVersion(9), ..outer_header(&own_header()) };
    let head = PackedHead::decode(&patched(&bytes, 0, &later.encode())[..head_len(&bytes).unwrap()]).unwrap();
    assert_eq!((head.outer_error, head.segment), (None, own_header()));
    let header = own_header();
    let write = |stored: usize| encode(&header, &header.encode(), Position(140), &[(10, vec![1; stored])]);
    let longest = write(stored_len_max(10)).unwrap();
    PackedHead::decode(&longest[..head_len(&longest).unwrap()]).unwrap();
    write(stored_len_max(10) + 1).unwrap_err();
    // Without one of its two headers, it is still known for what it is.
    assert!(is_packed(&[[0; SEGMENT_HEADER_LEN].as_slice(), &PACKED_MAGIC].concat()));
    assert!(is_packed(&outer_header(&header).encode()));
    assert!(!is_packed(&[own_header().encode().as_slice(), &[0; 40]].concat()));
}

/// A stored block may be longer than what it holds, by what Zstandard adds to bytes that can't be compressed.
#[test]
fn room_for_what_does_not_compress() {
    assert_eq!([0, 128, 1 << 20].map(stored_len_max), [512, 641, (1 << 20) + (1 << 13) + 512]);
}
