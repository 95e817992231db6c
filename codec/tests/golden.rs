//! Golden files: the bytes of every released version, decoded and encoded again for ever.
//!
//! `SESSIONLOG_WRITE_GOLDEN=1 cargo test -p sessionlog-codec --test golden` writes the files that do not exist yet, of
//! new events and versions. It never touches one that exists: where a test fails, the code is wrong.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "of samples"
)]

mod support;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;

use sessionlog_codec::event::Event;
use sessionlog_codec::footer::{self, FooterEntry};
use sessionlog_codec::frame::{self, Frame, FrameFields};
use sessionlog_codec::ids::{Epoch, KindNo, NodeId, Position};
use sessionlog_codec::packed::{self, PackedHead};
use sessionlog_codec::record::{Criticality, Envelope, Payload, TimeOrigin};
use sessionlog_codec::segment::SegmentHeader;
use support::reference::{GoldenSegment, PackedReference, RawRecord};

/// A golden file's bytes; written first if it is missing and that was asked for.
fn golden(name: &str, bytes: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = support::golden_dir().join(name);
    if !path.exists() && std::env::var_os("SESSIONLOG_WRITE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        OpenOptions::new().write(true).create_new(true).open(&path).unwrap().write_all(&bytes()).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; see the top of this file", path.display()))
}

#[test]
fn payloads_are_what_they_always_were() {
    let mut names = BTreeSet::new();
    for sample in support::samples() {
        for (form, event) in &sample.forms {
            let name = format!("{}-{}.{form}.bin", sample.kind, sample.name);
            let bytes = golden(&name, || event.encode().unwrap());
            let decoded = Event::decode(sample.kind, sample.schema, Payload::Present(&bytes)).unwrap();
            assert_eq!(&decoded, event, "{name}");
            assert_eq!(decoded.encode().unwrap(), bytes, "{name}");
            let spelled = support::events::fields(event).into_iter().flat_map(|field| field.leaves);
            assert_eq!(spelled.flatten().collect::<Vec<_>>(), bytes, "{name} spelled as FORMAT.md says");
            names.insert(name);
        }
    }
    for entry in fs::read_dir(support::golden_dir()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        assert!(
            !name.ends_with(".bin") || names.contains(&name),
            "{name} belongs to no event of the registry"
        );
    }
}

#[test]
fn enum_discriminants_are_the_order_that_format_md_gives() {
    for (name, variants) in support::events::enums() {
        for (i, variant) in variants.iter().enumerate() {
            assert_eq!(variant.encoded[..4], (i as u32).to_le_bytes(), "{name}::{}", variant.name);
            assert_eq!(variant.encoded, variant.spelled, "{name}::{}", variant.name);
        }
    }
}

#[test]
fn a_segment_is_what_it_always_was() {
    let expected = GoldenSegment::build();
    let file = golden("00000000000000000001.seg", || expected.bytes());
    assert_eq!(file, expected.bytes(), "as FORMAT.md spells it");

    let header = SegmentHeader::decode(&file).unwrap();
    assert_eq!(header, expected.header);
    assert_eq!(header.encode(), file[..128]);

    let mut at = 128;
    let mut chain = sessionlog_codec::chain::genesis(header.log_id);
    assert_eq!(chain, header.previous);
    let mut entries = Vec::new();
    for (i, (name, raw, raw_records)) in expected.frames.iter().enumerate() {
        let frame = Frame::decode(&file[at..], header.salt).unwrap();
        let bytes = &file[at..at + frame.header().frame_len()];
        let frame_file = format!("frames/{}-{name}.bin", i + 1);
        assert_eq!(golden(&frame_file, || bytes.to_vec()), bytes, "{frame_file}");
        assert_eq!(frame.header().fields.first_position.0, raw.first_position, "{name}");
        assert_eq!(frame.records().len(), raw_records.len(), "{name}");
        for (record, raw) in frame.records().iter().zip(raw_records) {
            assert_is(record, raw);
            let Envelope { kind, node, timestamp, .. } = record.envelope;
            entries.push(FooterEntry { kind, node, frame_offset: at as u32, timestamp });
        }
        assert_eq!(frame.header().chain, raw.chain, "{name}");
        if !frame.records().is_empty() {
            let previous = std::mem::replace(&mut chain, frame.header().chain);
            assert_eq!(frame.chain_after(&previous), chain, "{name}");
            assert_eq!(encode_again(&frame, header.salt, &previous), bytes, "{name}");
        }
        at += frame.header().frame_len();
    }
    assert_footer(&file, at, header.salt, &entries, chain);
}

#[test]
fn a_compressed_segment_is_what_it_always_was() {
    let segment = GoldenSegment::build().bytes();
    let header = SegmentHeader::decode(&segment).unwrap();
    let own: &[u8; 128] = segment.first_chunk().unwrap();
    let next = Position(9);
    let file = golden("../v2/00000000000000000001.seg", || {
        let mut starts = vec![128];
        while let Ok(frame) = Frame::decode(&segment[starts[starts.len() - 1]..], header.salt) {
            starts.push(starts[starts.len() - 1] + frame.header().frame_len());
        }
        starts.pop();
        let mut rest = &segment[128..];
        let blocks: Vec<_> = packed::cut(segment.len(), &starts, 512)
            .into_iter()
            .map(|len| {
                let (block, behind) = rest.split_at(len);
                rest = behind;
                (len, zstd::bulk::compress(block, 1).unwrap())
            })
            .collect();
        packed::encode(&header, own, next, &blocks).unwrap()
    });
    let reference = PackedReference::of(&segment, &file);
    assert_eq!(file, reference.bytes(), "as FORMAT.md spells it");
    assert_eq!(packed::encode(&header, own, next, &reference.blocks).unwrap(), file);

    let head = PackedHead::decode(&file).unwrap();
    assert_eq!((&head.segment, &head.header, head.next), (&header, own, next));
    assert_eq!((head.len, head.blocks.len(), head.outer_error), (segment.len(), 4, None));
    let mut unpacked = head.header.to_vec();
    for block in &head.blocks {
        let start = usize::try_from(block.stored_offset).unwrap();
        let stored = &file[start..start + block.stored_len];
        block.check(stored).unwrap();
        unpacked.extend(zstd::bulk::decompress(stored, block.len).unwrap());
    }
    assert_eq!(unpacked, segment);
}

/// The footer, found from the end of the file, is the one found by reading on.
fn assert_footer(
    file: &[u8],
    at: usize,
    salt: u32,
    entries: &[FooterEntry],
    chain: sessionlog_codec::ids::Digest,
) {
    let locator = file.len() - footer::LOCATOR_LEN;
    assert_eq!(footer::locate(&file[locator..]), Some(locator - at));
    let frame = Frame::decode(&file[at..], salt).unwrap();
    assert_eq!(footer::decode(&frame).unwrap(), entries);
    let mut again = Vec::new();
    let next = frame.header().fields.first_position;
    footer::encode(&mut again, salt, next, Epoch(1), &chain, entries).unwrap();
    assert_eq!(again, file[at..]);
}

fn encode_again(frame: &Frame<'_>, salt: u32, previous: &sessionlog_codec::ids::Digest) -> Vec<u8> {
    let FrameFields { first_position, epoch, synced, .. } = frame.header().fields;
    let records: Vec<_> =
        frame.records().iter().map(|record| (record.envelope.clone(), record.payload)).collect();
    let mut bytes = Vec::new();
    let fields = FrameFields::records(first_position, epoch, synced);
    frame::encode(&mut bytes, salt, previous, fields, &records).unwrap();
    bytes
}

fn assert_is(record: &sessionlog_codec::record::Record<'_>, raw: &RawRecord) {
    let envelope = &record.envelope;
    assert_eq!(envelope.node, NodeId(raw.node));
    assert_eq!(envelope.kind, KindNo(raw.kind));
    assert_eq!(envelope.schema.0, raw.schema);
    assert_eq!(envelope.timestamp.0, raw.timestamp);
    assert_eq!(envelope.cause, raw.cause.map(Position));
    assert_eq!(envelope.key.map(|key| key.0), raw.key);
    let has = |flag| raw.flags & flag != 0;
    assert_eq!(envelope.time_origin == TimeOrigin::Estimated, has(RawRecord::ESTIMATED));
    assert_eq!(envelope.criticality == Criticality::MustUnderstand, has(RawRecord::MUST_UNDERSTAND));
    let event = Event::decode(envelope.kind, envelope.schema, record.payload).unwrap();
    match record.payload {
        Payload::Present(bytes) => {
            assert_eq!(bytes, raw.payload);
            assert_eq!(event.encode().unwrap(), bytes);
        }
        Payload::Redacted(digest) => {
            assert!(has(RawRecord::REDACTED));
            assert_eq!(digest.0.as_slice(), raw.payload);
            assert_eq!(event, Event::Erased { kind: envelope.kind, schema: envelope.schema, digest });
        }
    }
}
