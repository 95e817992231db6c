//! Bytes that nobody wrote, that somebody changed, or that a newer version wrote.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "of samples"
)]

mod support;

use std::hint::black_box;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use sessionlog_codec::event::{Event, NewEvent, SessionClosed};
use sessionlog_codec::frame::{Frame, FrameHeader};
use sessionlog_codec::ids::*;
use sessionlog_codec::limits::{FRAME_BODY_LEN_MAX, FRAME_HEADER_LEN, FRAME_RECORDS_MAX, PAYLOAD_LEN_MAX};
use sessionlog_codec::record::Payload;
use sessionlog_codec::registry::{EVENTS, kind};
use sessionlog_codec::segment::{self, SegmentHeader};
use sessionlog_codec::{DecodeError, DecodeErrorKind, footer};
use support::events::{Field, enums, fields};
use support::reference::{GoldenSegment, RawFrame, RawRecord, concat, crc32, segment_header};

const SALT: u32 = 0x5eed_cafe;

fn kind_of<T: std::fmt::Debug>(result: Result<T, DecodeError>) -> DecodeErrorKind {
    result.unwrap_err().kind()
}

fn message_frame() -> RawFrame {
    GoldenSegment::build().frames.swap_remove(1).1
}

#[test]
fn one_flipped_bit_is_seen_everywhere_but_in_the_padding() {
    for (name, raw, _) in GoldenSegment::build().frames {
        let bytes = raw.bytes(SALT);
        let frame = Frame::decode(&bytes, SALT).unwrap();
        let covered = FRAME_HEADER_LEN + raw.body.len();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            match Frame::decode(&bad, SALT) {
                Ok(same) => assert!(bit / 8 >= covered && same == frame, "bit {bit} of {name}"),
                Err(error) => {
                    assert_eq!(error.kind(), DecodeErrorKind::Corrupt, "bit {bit} of {name}");
                    assert!(bit / 8 < covered);
                }
            }
        }
        for bit in 0..32 {
            assert_eq!(
                kind_of(Frame::decode(&bytes, SALT ^ (1 << bit))),
                DecodeErrorKind::Corrupt,
                "another salt"
            );
        }
    }
    let header = concat(&segment_header(&GoldenSegment::build().header));
    for bit in 0..header.len() * 8 {
        let mut bad = header.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(kind_of(SegmentHeader::decode(&bad)), DecodeErrorKind::Corrupt, "bit {bit} of the header");
    }
}

#[test]
fn a_cut_is_seen_at_every_byte() {
    for (name, raw, _) in GoldenSegment::build().frames {
        let bytes = raw.bytes(SALT);
        let covered = FRAME_HEADER_LEN + raw.body.len();
        for len in 0..covered {
            assert_eq!(
                kind_of(Frame::decode(&bytes[..len], SALT)),
                DecodeErrorKind::Corrupt,
                "{len} bytes of {name}"
            );
        }
        for len in covered..bytes.len() {
            assert_eq!(
                Frame::decode(&bytes[..len], SALT),
                Frame::decode(&bytes, SALT),
                "the padding may be missing"
            );
        }
    }
    let header = GoldenSegment::build().header.encode();
    for len in 0..header.len() {
        assert_eq!(kind_of(SegmentHeader::decode(&header[..len])), DecodeErrorKind::Corrupt);
    }
}

#[test]
fn space_that_was_never_written_is_no_frame() {
    for len in [0, 1, FRAME_HEADER_LEN, 4096] {
        for salt in [0, SALT, u32::MAX] {
            assert_eq!(kind_of(Frame::decode(&vec![0; len], salt)), DecodeErrorKind::Corrupt);
        }
        assert_eq!(kind_of(SegmentHeader::decode(&vec![0; len])), DecodeErrorKind::Corrupt);
    }
    assert_eq!(footer::locate(&[0; 8]), None);
}

#[test]
fn a_locator_names_a_frame_or_nothing() {
    let locator = |len: u32| [len.to_le_bytes(), (!len).to_le_bytes()].concat();
    assert_eq!(footer::locate(&locator(96)), Some(96));
    for len in [0, 72, 81, 100, u32::MAX, 1 << 31] {
        assert_eq!(footer::locate(&locator(len)), None, "{len}");
    }
    assert_eq!(footer::locate(&locator(96)[..7]), None);
    assert_eq!(footer::locate(&[locator(96), vec![0]].concat()), None);
}

/// Sound bytes that a newer version wrote are never taken for damage.
#[test]
fn what_a_newer_version_wrote_is_unsupported() {
    let message = message_frame();
    let record = |change: fn(&mut RawRecord)| {
        let mut record = GoldenSegment::build().frames[1].2[0].clone();
        change(&mut record);
        RawFrame::records(1, &[record])
    };
    for (what, frame) in [
        ("a kind that must be understood", RawFrame { kind: 3, ..message.clone() }),
        ("kind 0", RawFrame { kind: 0, ..message.clone() }),
        ("a frame flag", RawFrame { flags: 1, ..message.clone() }),
        ("a frame flag", RawFrame { flags: 1 << 15, ..message.clone() }),
        ("the frame's reserved byte", RawFrame { reserved: 1, ..message.clone() }),
        ("a record flag", record(|record| record.flags = 1 << 5)),
        ("a record flag", record(|record| record.flags = 1 << 15)),
        ("the record's reserved bytes", record(|record| record.reserved = 1)),
    ] {
        assert_eq!(kind_of(Frame::decode(&frame.bytes(SALT), SALT)), DecodeErrorKind::Unsupported, "{what}");
    }
    // What may be skipped is a frame without records.
    for kind in [0x80, 0x81, 0xff] {
        let bytes = RawFrame { kind, ..message.clone() }.bytes(SALT);
        let frame = Frame::decode(&bytes, SALT).unwrap();
        assert!(frame.records().is_empty());
        assert_eq!(frame.header().fields.next_position(), frame.header().fields.first_position);
        assert_eq!(kind_of(footer::decode(&frame)), DecodeErrorKind::Corrupt);
    }
    let header = GoldenSegment::build().header;
    let newer = SegmentHeader { format: FormatVersion(9), ..header };
    assert_eq!(
        SegmentHeader::decode(&newer.encode()).unwrap(),
        newer,
        "a newer writer, but not for newer readers"
    );
    let closed = SegmentHeader { reader: FormatVersion(2), ..newer };
    assert_eq!(kind_of(SegmentHeader::decode(&closed.encode())), DecodeErrorKind::Unsupported);
    let mut longer = GoldenSegment::build().header.encode();
    longer[8] = 160;
    let crc = crc32(0, &longer[..124]);
    longer[124..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(kind_of(SegmentHeader::decode(&longer)), DecodeErrorKind::Unsupported);
}

/// Frames whose checksums hold and whose contents do not fit together.
#[test]
fn a_frame_that_contradicts_itself_is_corrupt() {
    let message = message_frame();
    let with_length = |payload_len: u32| {
        let mut frame = message.clone();
        frame.body[12..16].copy_from_slice(&payload_len.to_le_bytes());
        frame
    };
    let len = message.body.len() as u32 - 24;
    let redacted = RawRecord { flags: RawRecord::REDACTED, payload: vec![0; 31], ..RawRecord::default() };
    for (what, frame) in [
        ("no records", RawFrame { record_count: 0, ..message.clone() }),
        (
            "fewer records than it holds",
            RawFrame { record_count: 1, body: message.body.repeat(2), ..message.clone() },
        ),
        ("more records than it holds", RawFrame { record_count: 2, ..message.clone() }),
        (
            "the most records, and none",
            RawFrame { record_count: FRAME_RECORDS_MAX, body: vec![], ..message.clone() },
        ),
        ("too many records", RawFrame { record_count: FRAME_RECORDS_MAX + 1, ..message.clone() }),
        ("the most records that a u32 counts", RawFrame { record_count: u32::MAX, ..message.clone() }),
        ("a payload that is too short", with_length(len - 1)),
        ("a payload that is too long", with_length(len + 1)),
        ("a payload of 4 GiB", with_length(u32::MAX)),
        ("half a digest", RawFrame::records(1, &[redacted])),
        ("no place behind it", RawFrame { first_position: u64::MAX, ..message.clone() }),
    ] {
        assert_eq!(kind_of(Frame::decode(&frame.bytes(SALT), SALT)), DecodeErrorKind::Corrupt, "{what}");
    }
    // A footer is as long as its count says.
    let entry = [[1, 0, 0, 0, 0, 0, 0, 0, 128, 0].as_slice(), &[0; 10]].concat();
    let mut reserved = entry.clone();
    reserved[2] = 1;
    for (record_count, body, kind) in [
        (1, entry.clone(), None),
        (2, entry, Some(DecodeErrorKind::Corrupt)),
        (FRAME_RECORDS_MAX, vec![], Some(DecodeErrorKind::Corrupt)),
        (1, reserved, Some(DecodeErrorKind::Unsupported)),
    ] {
        let bytes = RawFrame { kind: 0x82, record_count, body, ..message.clone() }.bytes(SALT);
        assert_eq!(
            footer::decode(&Frame::decode(&bytes, SALT).unwrap()).err().map(|error| error.kind()),
            kind
        );
    }
}

/// Nothing in a log says what its salts are once a header is hurt: salvage computes them again, also years later. And no two
/// segments share one, so that bytes of another file are no frame here.
#[test]
fn the_salt_of_a_segment_is_what_it_always_was() {
    let salts = [([1; 16], 0), ([1; 16], 1), ([2; 16], 0), ([0xff; 16], u64::MAX)]
        .map(|(log_id, number)| segment::salt(LogId(log_id), SegmentNo(number)));
    assert_eq!(salts, [0xa592_c600, 0x3b53_6aff, 0xac1f_abf4, 0x8997_6123]);
}

/// Who has to say whether a file is hurt or of another program needs to see what stands there.
#[test]
fn a_hurt_segment_header_is_described() {
    let whole = concat(&segment_header(&GoldenSegment::build().header));
    let mut other = whole.clone();
    other[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x0a");
    let error = SegmentHeader::decode(&other).unwrap_err();
    assert_eq!((error.offset(), error.to_string().contains("7f454c460201010a")), (0, true), "{error}");
    let mut hurt = whole.clone();
    hurt[124..].copy_from_slice(&0xdead_beef_u32.to_le_bytes());
    let (error, computed) = (SegmentHeader::decode(&hurt).unwrap_err(), crc32(0, &whole[..124]));
    assert_eq!(error.offset(), 124);
    let text = error.to_string();
    assert!(text.contains("0xdeadbeef") && text.contains(&format!("{computed:#010x}")), "{text}");
}

#[test]
fn a_body_length_over_the_limit_is_refused_before_the_body_is_looked_at() {
    let mut header = concat(&message_frame().header(SALT));
    let mut claim = |len: u32| {
        header[8..12].copy_from_slice(&len.to_le_bytes());
        let crc = crc32(SALT, &header[..76]);
        header[76..80].copy_from_slice(&crc.to_le_bytes());
        FrameHeader::decode(&header, SALT).map(|header| header.body_len)
    };
    assert_eq!(claim(FRAME_BODY_LEN_MAX as u32).unwrap(), FRAME_BODY_LEN_MAX);
    assert_eq!(kind_of(claim(FRAME_BODY_LEN_MAX as u32 + 1)), DecodeErrorKind::Corrupt);
    assert_eq!(kind_of(claim(u32::MAX)), DecodeErrorKind::Corrupt);
}

#[test]
fn errors_count_bytes_from_the_start_of_the_frame() {
    let record = RawRecord { flags: 1 << 15, ..GoldenSegment::build().frames[1].2[0].clone() };
    let error = Frame::decode(&RawFrame::records(1, &[record]).bytes(SALT), SALT).unwrap_err();
    assert_eq!((error.what(), error.offset()), ("record flags", FRAME_HEADER_LEN + 8));
    let mut frame = message_frame().bytes(SALT);
    frame[FRAME_HEADER_LEN] ^= 1;
    let error = Frame::decode(&frame, SALT).unwrap_err();
    assert_eq!((error.what(), error.offset()), ("frame body checksum", FRAME_HEADER_LEN - 8));
}

/// A header alone is refused for its count too, before anybody counts on a body.
#[test]
fn a_header_counts_at_least_one_record_and_at_most_the_limit() {
    for (record_count, is_sound) in
        [(0, false), (1, true), (FRAME_RECORDS_MAX, true), (FRAME_RECORDS_MAX + 1, false)]
    {
        let header = concat(&RawFrame { record_count, ..message_frame() }.header(SALT));
        assert_eq!(FrameHeader::decode(&header, SALT).is_ok(), is_sound, "{record_count}");
    }
}

#[test]
fn a_footer_has_at_least_one_entry_and_at_most_the_limit() {
    let entry = footer::FooterEntry {
        kind: kind::MessageAppended,
        node: NodeId::ROOT,
        frame_offset: 128,
        timestamp: Timestamp(0),
    };
    let max = FRAME_RECORDS_MAX as usize;
    for (count, is_sound) in [(0, false), (1, true), (max, true), (max + 1, false)] {
        let entries = vec![entry; count];
        let mut out = Vec::new();
        let encoded = footer::encode(&mut out, SALT, Position(2), Epoch(1), &Digest::default(), &entries);
        assert_eq!(encoded.is_ok(), is_sound, "{count}");
    }
}

#[test]
fn an_event_of_a_past_time_keeps_it() {
    let event = NewEvent::at(NodeId::ROOT, Timestamp(5), SessionClosed { epoch: Epoch(1) });
    assert_eq!(event.timestamp, Some(Timestamp(5)));
    assert_eq!(NewEvent::now(NodeId::ROOT, SessionClosed { epoch: Epoch(1) }).timestamp, None);
}

/// Each field with where it starts in the payload.
fn with_offsets(fields: &[Field]) -> Vec<(usize, &Field)> {
    let mut end = 0;
    fields
        .iter()
        .map(|field| {
            end += field.len();
            (end - field.len(), field)
        })
        .collect()
}

fn decode(kind: KindNo, schema: SchemaVersion, bytes: &[u8]) -> Result<Event, DecodeError> {
    Event::decode(kind, schema, Payload::Present(bytes))
}

/// In every field of every event: discriminants that do not exist, options that are neither, lengths that lie. Each is
/// refused at once: were a claimed length ever allocated and touched, this would take minutes and gigabytes.
#[test]
fn no_field_of_any_event_believes_a_lie() {
    let began = Instant::now();
    let variants: std::collections::HashMap<_, _> =
        enums().into_iter().map(|(name, variants)| (name.to_owned(), variants.len() as u32)).collect();
    let mut lies = 0;
    for sample in support::samples() {
        for (form, event) in &sample.forms {
            let payload = event.encode().unwrap();
            let mut refuse = |at: usize, lie: &[u8], what: &Field| {
                let mut bad = payload.clone();
                bad[at..at + lie.len()].copy_from_slice(lie);
                let result = decode(sample.kind, sample.schema, &bad);
                assert_eq!(kind_of(result), DecodeErrorKind::Corrupt, "{} {form} {}", sample.name, what.name);
                lies += 1;
            };
            for (at, field) in with_offsets(&fields(event)) {
                let mut name = field.type_name.as_str();
                let mut at = at;
                if let Some(inner) = name.strip_prefix("optional ") {
                    refuse(at, &[2], field);
                    refuse(at, &[0xff], field);
                    if payload[at] == 0 {
                        continue;
                    }
                    (name, at) = (inner, at + 1);
                }
                if let Some(count) = variants.get(name) {
                    refuse(at, &count.to_le_bytes(), field);
                    refuse(at, &u32::MAX.to_le_bytes(), field);
                }
                if name == "text" || name == "bytes" || name.starts_with("list of ") {
                    let left = (payload.len() - at) as u64;
                    let limit = PAYLOAD_LEN_MAX as u64;
                    for claim in [left, limit - 4096, limit, limit + 1, 1 << 32, 1 << 62, u64::MAX] {
                        refuse(at, &claim.to_le_bytes(), field);
                    }
                }
            }
        }
    }
    assert!(lies > 3_000, "{lies}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// Found by fuzzing, as slowness: 20 MiB were zeroed for each text that claimed them.
#[test]
fn a_length_is_not_allocated_because_it_is_claimed() {
    let began = Instant::now();
    let claim = [(20_u64 << 20).to_le_bytes().as_slice(), b"short", &[0; 4]].concat();
    for _ in 0..2_000 {
        let result = decode(kind::SessionTitled, SchemaVersion(1), &claim);
        assert_eq!(kind_of(result), DecodeErrorKind::Corrupt);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn a_payload_is_decoded_to_its_last_byte_and_not_further() {
    for sample in support::samples() {
        for (form, event) in &sample.forms {
            let payload = event.encode().unwrap();
            for len in 0..payload.len() {
                let result = decode(sample.kind, sample.schema, &payload[..len]);
                assert_eq!(kind_of(result), DecodeErrorKind::Corrupt, "{} {form}: {len} bytes", sample.name);
            }
            let longer = [payload.as_slice(), &[0]].concat();
            assert_eq!(kind_of(decode(sample.kind, sample.schema, &longer)), DecodeErrorKind::Corrupt);
        }
    }
}

/// A payload has one encoding: what decodes, encodes to the same bytes.
fn decodes_to_itself_or_not(kind: KindNo, schema: SchemaVersion, bytes: &[u8]) {
    if let Ok(event) = decode(kind, schema, bytes) {
        assert_eq!(event.encode().unwrap(), bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..400), salt in any::<u32>()) {
        black_box(SegmentHeader::decode(&bytes).ok());
        black_box(Frame::decode(&bytes, salt).ok());
        black_box(footer::locate(&bytes));
        for &(kind, _, schema) in EVENTS {
            decodes_to_itself_or_not(kind, schema, &bytes);
        }
    }

    #[test]
    fn arbitrary_headers_and_bodies_with_good_checksums_never_panic(
        (kind, reserved, flags) in any::<(u8, u8, u16)>(),
        record_count in prop_oneof![0..6_u32, any::<u32>()],
        (first_position, epoch, synced) in any::<(u64, u64, u64)>(),
        body in vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 0..200),
    ) {
        let plain = kind & 1 == 1;
        let (kind, reserved, flags) = if plain { (kind | 0x82, 0, 0) } else { (kind, reserved, flags) };
        let kind = if plain && kind & 4 == 0 { 1 } else { kind };
        let raw = RawFrame {
            kind, reserved, flags, record_count, first_position, epoch, synced, chain: Digest::default(), body,
        };
        if let Ok(frame) = Frame::decode(&raw.bytes(SALT), SALT) {
            black_box(frame.chain_after(&Digest::default()));
            black_box(footer::decode(&frame).ok());
        }
    }

    #[test]
    fn changed_payloads_never_panic(
        which in 0..EVENTS.len(),
        form in 0..3_usize,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let sample = &support::samples()[which];
        let mut bytes = sample.forms[form].1.encode().unwrap();
        for (at, byte) in changes {
            *at.get_mut(&mut bytes) = byte;
        }
        decodes_to_itself_or_not(sample.kind, sample.schema, &bytes);
    }
}
