//! What goes in comes out, and the chain sees what it should see.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "of samples"
)]

mod support;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sessionlog_codec::event::{Event, HostEvent, SessionTagged};
use sessionlog_codec::footer::{self, FooterEntry};
use sessionlog_codec::frame::{self, Frame, FrameFields};
use sessionlog_codec::ids::*;
use sessionlog_codec::limits::{
    FRAME_ALIGNMENT, FRAME_BODY_LEN_MAX, FRAME_LEN_MAX, FRAME_RECORDS_MAX, PAYLOAD_LEN_MAX, RECORD_HEADER_LEN,
};
use sessionlog_codec::record::{self, Criticality, Envelope, Payload, TimeOrigin};
use sessionlog_codec::registry::EVENTS;
use sessionlog_codec::segment::SegmentHeader;
use sessionlog_codec::{RawBytes, TooLarge};
use support::events::{Gen, bincode_legacy, fields, make};
use support::reference::{RawFrame, RawRecord, concat, segment_header};

/// A record that owns its bytes: a payload, or the payload that was redacted.
#[derive(Clone, Debug)]
struct Owned {
    envelope: Envelope,
    payload: Vec<u8>,
    redacted: bool,
}

impl Owned {
    fn borrow(&self) -> (Envelope, Payload<'_>) {
        let present = Payload::Present(&self.payload);
        let payload = if self.redacted { Payload::Redacted(present.digest()) } else { present };
        (self.envelope.clone(), payload)
    }

    fn raw(&self) -> RawRecord {
        let (envelope, payload) = self.borrow();
        let flag = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
        RawRecord {
            node: envelope.node.0,
            kind: envelope.kind.0,
            schema: envelope.schema.0,
            flags: flag(envelope.cause.is_some(), RawRecord::CAUSE)
                | flag(envelope.key.is_some(), RawRecord::KEY)
                | flag(self.redacted, RawRecord::REDACTED)
                | flag(envelope.time_origin == TimeOrigin::Estimated, RawRecord::ESTIMATED)
                | flag(envelope.criticality == Criticality::MustUnderstand, RawRecord::MUST_UNDERSTAND),
            reserved: 0,
            timestamp: envelope.timestamp.0,
            cause: envelope.cause.map(|cause| cause.0),
            key: envelope.key.map(|key| key.0),
            payload: match payload {
                Payload::Present(bytes) => bytes.to_vec(),
                Payload::Redacted(digest) => digest.0.to_vec(),
            },
        }
    }
}

prop_compose! {
    fn envelope()(
        (node, kind, schema, timestamp) in any::<(u32, u16, u16, i64)>(),
        (estimated, must_understand) in any::<(bool, bool)>(),
        cause in option::of(any::<u64>()),
        key in option::of(any::<[u8; 16]>()),
    ) -> Envelope {
        Envelope {
            time_origin: if estimated { TimeOrigin::Estimated } else { TimeOrigin::Clock },
            criticality: if must_understand { Criticality::MustUnderstand } else { Criticality::Ignorable },
            cause: cause.map(Position),
            key: key.map(IdempotencyKey),
            ..Envelope::new(NodeId(node), KindNo(kind), SchemaVersion(schema), Timestamp(timestamp))
        }
    }
}

prop_compose! {
    fn owned()(envelope in envelope(), payload in vec(any::<u8>(), 0..200), redacted in any::<bool>()) -> Owned {
        Owned { envelope, payload, redacted }
    }
}

prop_compose! {
    fn record_fields()(first in 1..u64::MAX - 10, epoch in any::<u64>(), synced in any::<u64>()) -> FrameFields {
        FrameFields::records(Position(first), Epoch(epoch), Position(synced))
    }
}

fn encode(salt: u32, previous: &Digest, fields: &FrameFields, records: &[Owned]) -> (Vec<u8>, Digest) {
    let records: Vec<_> = records.iter().map(Owned::borrow).collect();
    let mut bytes = Vec::new();
    let chain = frame::encode(&mut bytes, salt, previous, fields.clone(), &records).unwrap();
    (bytes, chain)
}

proptest! {
    #[test]
    fn a_frame_comes_back_whole(
        salt in any::<u32>(),
        previous in any::<[u8; 32]>().prop_map(Digest),
        fields in record_fields(),
        records in vec(owned(), 1..6),
        behind in vec(any::<u8>(), 0..30),
    ) {
        let (bytes, chain) = encode(salt, &previous, &fields, &records);
        prop_assert_eq!(bytes.len() % FRAME_ALIGNMENT, 0);
        let with_more = [bytes.as_slice(), &behind].concat();
        let frame = Frame::decode(&with_more, salt).unwrap();
        let expected = FrameFields { record_count: records.len() as u32, ..fields };
        prop_assert_eq!(&frame.header().fields, &expected);
        prop_assert_eq!(frame.header().chain, chain);
        prop_assert_eq!(frame.header().frame_len(), bytes.len());
        prop_assert_eq!(frame.chain_after(&previous), chain);
        // Another segment's copy of it differs in the salted checksum alone.
        let mut copy = b"before".to_vec();
        frame.copy_to(&mut copy, !salt);
        prop_assert_eq!(&copy[6..], encode(!salt, &previous, &fields, &records).0);
        prop_assert_eq!(expected.next_position().0, expected.first_position.0 + records.len() as u64);
        for (i, (decoded, owned)) in frame.records().iter().zip(&records).enumerate() {
            prop_assert_eq!(decoded.position.0, expected.first_position.0 + i as u64);
            prop_assert_eq!((decoded.envelope.clone(), decoded.payload), owned.borrow());
        }
        // And it is what FORMAT.md says, byte for byte.
        let raw: Vec<_> = records.iter().map(Owned::raw).collect();
        let reference = RawFrame {
            epoch: expected.epoch.0,
            synced: expected.synced.0,
            ..RawFrame::records(expected.first_position.0, &raw)
        };
        prop_assert_eq!(reference.chained(previous, &raw).bytes(salt), bytes);
    }

    #[test]
    fn a_segment_header_comes_back_whole(
        ids in any::<([u8; 16], [u8; 16], [u8; 32])>(),
        numbers in any::<(u64, u64, u64, u32)>(),
        is_fork in any::<bool>(),
    ) {
        let header = SegmentHeader {
            format: sessionlog_codec::segment::FORMAT_VERSION,
            reader: sessionlog_codec::segment::FORMAT_VERSION,
            log_id: LogId(ids.0),
            segment_no: SegmentNo(numbers.0),
            first_position: Position(numbers.1),
            epoch: Epoch(numbers.2),
            salt: numbers.3,
            previous: Digest(ids.2),
            // No log has the id of 16 zero bytes: it means that there is none.
            forked_from: (is_fork && ids.1 != [0; 16]).then_some(LogId(ids.1)),
        };
        prop_assert_eq!(concat(&segment_header(&header)), header.encode());
        prop_assert_eq!(SegmentHeader::decode(&header.encode()).unwrap(), header);
    }

    #[test]
    fn a_footer_comes_back_whole(
        salt in any::<u32>(),
        chain in any::<[u8; 32]>().prop_map(Digest),
        entries in vec(any::<(u16, u32, u32, i64)>(), 1..50),
        before in vec(any::<u8>(), 0..20),
    ) {
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(kind, node, frame_offset, timestamp)| FooterEntry {
                kind: KindNo(kind),
                node: NodeId(node),
                frame_offset,
                timestamp: Timestamp(timestamp),
            })
            .collect();
        let expected_start = before.len();
        let mut bytes = before;
        footer::encode(&mut bytes, salt, Position(51), Epoch(3), &chain, &entries).unwrap();
        let (rest, locator) = bytes.split_at(bytes.len() - footer::LOCATOR_LEN);
        let start = rest.len() - footer::locate(locator).unwrap();
        prop_assert_eq!(start, expected_start);
        let frame = Frame::decode(&bytes[start..], salt).unwrap();
        prop_assert_eq!(frame.header().fields.synced, Position(50));
        prop_assert_eq!(frame.header().fields.next_position(), Position(51));
        prop_assert_eq!(footer::decode(&frame).unwrap(), entries);
    }

    #[test]
    fn changing_anything_logical_changes_the_chain(
        records in vec(owned(), 1..4),
        fields in record_fields(),
        which in any::<prop::sample::Index>(),
        other in owned(),
        change in 0..12_u8,
    ) {
        let previous = Digest::of(b"previous");
        let (_, chain) = encode(1, &previous, &fields, &records);
        let (mut changed, mut changed_fields, mut changed_previous) = (records, fields, previous);
        let target = which.get_mut(&mut changed);
        let envelope = &mut target.envelope;
        match change {
            0 => envelope.node.0 ^= 1 << 31,
            1 => envelope.kind.0 ^= 1,
            2 => envelope.schema.0 ^= 1 << 15,
            3 => envelope.timestamp.0 ^= 1 << 40,
            // Also from none to the number that none is hashed as.
            4 => envelope.cause = if envelope.cause.is_none() { Some(Position(0)) } else { None },
            5 => envelope.key = if envelope.key.is_none() { Some(IdempotencyKey([0; 16])) } else { None },
            6 => target.payload.push(0),
            7 => changed_fields.epoch.0 ^= 1,
            8 => changed_fields.synced.0 ^= 1,
            9 => changed_fields.first_position.0 ^= 1,
            10 => changed_previous.0[31] ^= 1,
            _ => changed.push(other),
        }
        let (_, changed_chain) = encode(1, &changed_previous, &changed_fields, &changed);
        prop_assert_ne!(changed_chain, chain);
    }

    #[test]
    fn estimating_and_demanding_are_in_the_chain(record in owned(), fields in record_fields()) {
        let previous = Digest::default();
        let flip = |change: fn(&mut Envelope)| {
            let mut record = record.clone();
            change(&mut record.envelope);
            encode(0, &previous, &fields, &[record]).1
        };
        let all = [
            flip(|_| ()),
            flip(|envelope| envelope.time_origin = match envelope.time_origin {
                TimeOrigin::Clock => TimeOrigin::Estimated,
                TimeOrigin::Estimated => TimeOrigin::Clock,
            }),
            flip(|envelope| envelope.criticality = match envelope.criticality {
                Criticality::Ignorable => Criticality::MustUnderstand,
                Criticality::MustUnderstand => Criticality::Ignorable,
            }),
        ];
        prop_assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    }

    #[test]
    fn redaction_and_another_salt_do_not_change_the_chain(records in vec(owned(), 1..4), fields in record_fields()) {
        let previous = Digest::of(b"previous");
        let redacted: Vec<_> = records.iter().cloned().map(|record| Owned { redacted: true, ..record }).collect();
        let present: Vec<_> = records.iter().cloned().map(|record| Owned { redacted: false, ..record }).collect();
        let (bytes, chain) = encode(2, &previous, &fields, &redacted);
        prop_assert_eq!(encode(1, &previous, &fields, &present).1, chain);
        prop_assert_eq!(Frame::decode(&bytes, 2).unwrap().chain_after(&previous), chain);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Every kind of the registry, from bytes that proptest draws and shrinks.
    #[test]
    fn an_event_comes_back_whole(which in 0..EVENTS.len(), drawn in vec(any::<u8>(), 0..600)) {
        let (kind, name, schema) = EVENTS[which];
        let event = make(kind, &mut Gen::drawn(&drawn));
        prop_assert_eq!(event.kind(), (kind, schema));
        prop_assert_eq!(event.name(), name);
        let bytes = event.encode().unwrap();
        let spelled: Vec<u8> = fields(&event).into_iter().flat_map(|field| field.leaves).flatten().collect();
        prop_assert_eq!(&spelled, &bytes);
        prop_assert_eq!(&Event::decode(kind, schema, Payload::Present(&bytes)).unwrap(), &event);
    }
}

#[test]
fn the_payload_layout_is_bincode_legacy() {
    let event = HostEvent { namespace: "a".into(), name: "b".into(), data: "c".into(), source: None };
    assert_eq!(bincode_legacy(&event), Event::from(event).encode().unwrap());
}

/// A `host.event` whose payload has this length.
fn event_of(payload_len: usize) -> Event {
    let empty =
        HostEvent { namespace: String::new(), name: String::new(), data: RawBytes::default(), source: None };
    let data = RawBytes(vec![7; payload_len - bincode_legacy(&empty).len()]);
    HostEvent { data, ..empty }.into()
}

/// The decoder has a limit of its own for short payloads: nothing may show of it.
#[test]
fn payloads_around_64_kib_come_back_whole() {
    let around = (64 << 10) - 100..(64 << 10) + 100;
    for len in around.clone() {
        let event = event_of(len);
        let (kind, schema) = event.kind();
        assert!(Event::decode(kind, schema, Payload::Present(&event.encode().unwrap())).unwrap() == event);
    }
    for tags in around.map(|len| len / 9) {
        let event = Event::from(SessionTagged { added: vec!["x".into(); tags], removed: vec!["y".into()] });
        let (kind, schema) = event.kind();
        assert!(Event::decode(kind, schema, Payload::Present(&event.encode().unwrap())).unwrap() == event);
    }
}

#[test]
fn the_longest_payload_is_accepted_and_one_byte_more_is_not() {
    let event = event_of(PAYLOAD_LEN_MAX);
    let (kind, schema) = event.kind();
    let payload = event.encode().unwrap();
    assert_eq!(payload.len(), PAYLOAD_LEN_MAX);
    assert!(Event::decode(kind, schema, Payload::Present(&payload)).unwrap() == event);

    let mut out = b"as it was".to_vec();
    let mut append = |payloads: &[&[u8]]| {
        let envelope = Envelope::new(NodeId::ROOT, kind, schema, Timestamp(0));
        let records: Vec<_> =
            payloads.iter().map(|bytes| (envelope.clone(), Payload::Present(bytes))).collect();
        let fields = FrameFields::records(Position(1), Epoch(1), Position::START);
        let result = frame::encode(&mut out, 0, &Digest::default(), fields, &records);
        assert_eq!(result.is_err(), out == b"as it was");
        result
    };
    let too_long = vec![7; PAYLOAD_LEN_MAX + 1];
    let error = TooLarge { what: "record payload", len: PAYLOAD_LEN_MAX + 1, max: PAYLOAD_LEN_MAX };
    assert_eq!(append(&[&too_long]), Err(error));
    assert_eq!(append(&[&[], &too_long]), Err(error));
    // Two payloads that fit one by one and not together, and the longest two that do.
    let second = FRAME_BODY_LEN_MAX - PAYLOAD_LEN_MAX - 2 * RECORD_HEADER_LEN;
    let error = TooLarge { what: "frame body", len: FRAME_BODY_LEN_MAX + 1, max: FRAME_BODY_LEN_MAX };
    assert_eq!(append(&[&payload, &payload[..=second]]), Err(error));
    append(&[&payload, &payload[..second]]).unwrap();
    assert_eq!(out.len(), b"as it was".len() + FRAME_LEN_MAX);
    let frame = Frame::decode(&out[b"as it was".len()..], 0).unwrap();
    assert_eq!(frame.header().frame_len(), FRAME_LEN_MAX);
    assert_eq!(frame.records().len(), 2);

    assert!(matches!(event_of(PAYLOAD_LEN_MAX + 1).encode(), Err(TooLarge { max: PAYLOAD_LEN_MAX, .. })));
    let error = Event::decode(kind, schema, Payload::Present(&too_long)).unwrap_err();
    assert_eq!(error.kind(), sessionlog_codec::DecodeErrorKind::Corrupt);
}

#[test]
fn a_frame_that_could_not_be_read_back_is_not_written() {
    let envelope = Envelope::new(NodeId::ROOT, KindNo(1), SchemaVersion(1), Timestamp(0));
    let one = [(envelope, Payload::Present(b""))];
    let mut out = Vec::new();
    let mut append = |first, records: &[(Envelope, Payload<'_>)]| {
        let fields = FrameFields::records(Position(first), Epoch(1), Position::START);
        let result = frame::encode(&mut out, 0, &Digest::default(), fields, records);
        assert_eq!(result.is_err(), out.is_empty());
        if result.is_ok() {
            Frame::decode(&out, 0).unwrap();
            out.clear();
        }
        result
    };
    assert!(append(1, &[]).is_err(), "a frame of nothing");
    assert!(append(u64::MAX, &one).is_err(), "no position behind it");
    append(u64::MAX - 1, &one).unwrap();
    let most = vec![one[0].clone(); FRAME_RECORDS_MAX as usize + 1];
    assert_eq!(append(1, &most).unwrap_err().max, FRAME_RECORDS_MAX as usize);
    append(1, &most[1..]).unwrap();
    assert!(footer::encode(&mut Vec::new(), 0, Position(1), Epoch(1), &Digest::default(), &[]).is_err());
    let flagged = FrameFields { flags: 7, ..FrameFields::records(Position(1), Epoch(1), Position::START) };
    frame::encode(&mut out, 0, &Digest::default(), flagged, &one).unwrap();
    assert_eq!(Frame::decode(&out, 0).unwrap().header().fields.flags, 0);
}

/// A frame of records is one, whatever the caller's fields say: a kind that readers may skip would lose them.
#[test]
fn a_body_is_written_as_records() {
    let envelope = Envelope::new(NodeId::ROOT, KindNo(20), SchemaVersion(1), Timestamp(0));
    let mut builder = frame::BodyBuilder::with_capacity(1);
    builder.push(envelope, Payload::Present(b"abc")).unwrap();
    let body = builder.finish().unwrap();
    let fields =
        FrameFields { kind: 0x83, flags: 7, ..FrameFields::records(Position(5), Epoch(2), Position(4)) };
    let mut bytes = Vec::new();
    body.write_frame(&mut bytes, 1, &Digest([3; 32]), fields).unwrap();
    let frame = Frame::decode(&bytes, 1).unwrap();
    assert_eq!(
        frame.header().fields,
        FrameFields { record_count: 1, ..FrameFields::records(Position(5), Epoch(2), Position(4)) }
    );
    assert_eq!((bytes.len(), frame.records().len()), (body.frame_len().next_multiple_of(8), 1));
}

#[test]
fn the_length_of_a_record_is_known_before_it_is_encoded() {
    let mut envelope = Envelope::new(NodeId::ROOT, KindNo(1), SchemaVersion(1), Timestamp(0));
    assert_eq!(record::encoded_len(&envelope, Payload::Present(b"abc")), 27);
    envelope.cause = Some(Position(1));
    assert_eq!(record::encoded_len(&envelope, Payload::Present(b"abc")), 35);
    envelope.key = Some(IdempotencyKey([1; 16]));
    assert_eq!(record::encoded_len(&envelope, Payload::Redacted(Digest::default())), 80);
}
