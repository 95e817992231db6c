//! Logs that a newer version wrote, made here by patching bytes and checksums: what this version, which is the older one then,
//! reads of them, what it refuses, and what it carries along. The cases are the table in `FORMAT.md`, section 11.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use sessionlog::codec::event::{Event, MessageAppended, Role};
use sessionlog::codec::ids::{KindNo, MessageNo, NodeId, Position, SchemaVersion, SessionId, Timestamp};
use sessionlog::codec::record::{Criticality, Envelope};
use sessionlog::codec::registry::{EVENTS, kind};
use sessionlog::log::{
    Batch, Durability, LogDir, LogOptions, NewRecord, ReadItem, Recovering, Severity, TailState,
};
use sessionlog::session::EventItem;
use sessionlog::storage::SimStorage;
use sessionlog::{
    ErrorKind, ForkOptions, ForkPoint, Message, NewSession, SessionReader, SnapshotPolicy, Store,
    StoreOptions,
};
use sessionlog_codec::ids::{Digest, FormatVersion};
use sessionlog_codec::limits::{FRAME_HEADER_LEN, SEGMENT_HEADER_LEN};
use sessionlog_codec::segment::SegmentHeader;
use support::content;
use support::patched::{self, frames, seal, with_header};
use support::tree::open_with;

const ID: SessionId = SessionId([9; 16]);
const PAYLOAD: &[u8] = b"from the future";

/// Changes a frame; its checksums are made to hold afterwards.
type Patch = fn(&mut [u8]);

/// Without snapshots: behind one, an owner does not look into the segments that came before it.
fn open(storage: &SimStorage) -> Store {
    open_with(storage, StoreOptions { snapshots: SnapshotPolicy::Off, ..StoreOptions::default() })
}

/// A session of several small segments, closed in order.
fn closed() -> SimStorage {
    let storage = SimStorage::new();
    let new = NewSession { id: Some(ID), ..NewSession::new("newer") };
    let session = open(&storage).create("/w", new).unwrap();
    for number in 0..12 {
        session.append(Message::user(format!("message {number} {}", "word ".repeat(40)))).unwrap();
    }
    session.close().unwrap();
    assert!(segments(&storage).len() > 2);
    storage
}

fn reader(storage: &SimStorage) -> SessionReader {
    open(storage).reader().session(ID).unwrap()
}

fn segments(storage: &SimStorage) -> Vec<PathBuf> {
    let log = reader_dir(storage).segments;
    storage.files().into_iter().filter(|path| path.starts_with(&log)).collect()
}

fn reader_dir(storage: &SimStorage) -> LogDir {
    let dir = reader(storage).place().dir.clone();
    LogDir {
        storage: Arc::new(storage.clone()),
        segments: dir.join("log"),
        quarantine: dir.join("quarantine"),
    }
}

/// The log's files, and all that recovery would leave beside them.
fn log_files(storage: &SimStorage) -> BTreeMap<PathBuf, Vec<u8>> {
    let dir = reader(storage).place().dir.clone();
    let mut files = content(storage);
    files.retain(|path, _| path.starts_with(dir.join("log")) || path.starts_with(dir.join("quarantine")));
    files
}

/// Says in the `nth` segment's header which version wrote it and which one may read it.
fn version(storage: &SimStorage, nth: usize, format: u16, reader: u16) {
    let path = &segments(storage)[nth];
    let change = |bytes: &mut Vec<u8>| {
        with_header(bytes, |header| {
            (header.format, header.reader) = (FormatVersion(format), FormatVersion(reader));
        });
    };
    storage.corrupt(path, change).unwrap();
}

/// Puts a frame without records behind the `nth` frame of the last segment.
fn insert(storage: &SimStorage, nth: usize, kind: u8) -> Vec<u8> {
    let path = segments(storage).pop().unwrap();
    let mut inserted = Vec::new();
    let change = |bytes: &mut Vec<u8>| {
        let at = frames(bytes)[nth].end;
        let len = patched::insert(bytes, at, kind);
        inserted = bytes[at..at + len].to_vec();
    };
    storage.corrupt(path, change).unwrap();
    inserted
}

/// What a newer owner appends in one frame, behind whatever is there.
fn append(storage: &SimStorage, records: Vec<NewRecord>) {
    let options = LogOptions { segment_len: 2048, fill_len: 0 };
    let opened = Recovering::open(reader_dir(storage), options, Position::START).unwrap().finish();
    let (writer, _) = opened.unwrap();
    writer.append(Batch::new(records).unwrap(), Durability::Sync).unwrap();
    writer.close().unwrap();
}

fn record(number: KindNo, schema: u16, criticality: Criticality) -> NewRecord {
    let time = Timestamp(1_764_500_000_000_000);
    let envelope = Envelope::new(NodeId::ROOT, number, SchemaVersion(schema), time);
    NewRecord { envelope: Envelope { criticality, ..envelope }, payload: PAYLOAD.to_vec() }
}

/// A kind that this version does not know, and a version that it does not know of a kind that it does.
fn from_the_future(criticality: Criticality) -> Vec<NewRecord> {
    vec![record(KindNo(9_999), 1, criticality), record(kind::MessageAppended, 9, criticality)]
}

/// The records as bytes: their envelopes and payloads' digests.
fn records(reader: &SessionReader) -> (Vec<(Position, Envelope, Digest)>, TailState) {
    let mut records = Vec::new();
    let tail = reader.log().read(Position(1), &mut |item| {
        let ReadItem::Record(record) = item else { panic!("a gap") };
        records.push((record.position, record.envelope.clone(), record.payload.digest()));
        ControlFlow::Continue(())
    });
    (records, tail.unwrap())
}

/// The unknown events of a session, which all hold what was written.
fn unknown(reader: &SessionReader) -> usize {
    let mut count = 0;
    let read = reader.events(Position(1), &mut |item| {
        if let EventItem::Event(event) = item
            && let Event::Unknown(unknown) = &event.event
        {
            assert_eq!(unknown.payload.0, PAYLOAD);
            count += 1;
        }
        ControlFlow::Continue(())
    });
    read.unwrap();
    count
}

fn findings(storage: &SimStorage) -> Vec<(Severity, &'static str)> {
    let verified = reader(storage).verify().unwrap();
    verified.all().map(|finding| (finding.severity, finding.code)).collect()
}

/// Neither an owner nor a fork of all of it, and not a byte changed.
#[track_caller]
fn assert_refused(storage: &SimStorage) {
    let before = log_files(storage);
    let store = open(storage);
    let resumed = store.resume(ID).unwrap_err();
    assert_eq!(resumed.kind(), ErrorKind::Unsupported, "{resumed:?}");
    let forked = store.fork(ID, ForkPoint::Head, ForkOptions::default()).unwrap_err();
    assert_eq!(forked.kind(), ErrorKind::Unsupported, "{forked:?}");
    assert_eq!(log_files(storage), before, "a refusal changed something");
}

#[test]
fn a_segment_of_a_newer_writer_for_old_readers_is_read_and_written_behind() {
    let storage = closed();
    let last = segments(&storage).len() - 1;
    for nth in [0, last] {
        version(&storage, nth, 2, 1);
    }
    let (before, tail) = records(&reader(&storage));
    assert_eq!((before.len(), tail), (15, TailState::Clean));
    assert_eq!(findings(&storage), []);
    let (session, _) = open(&storage).resume(ID).unwrap();
    for _ in 0..12 {
        session.append(Message::user("more ".repeat(40))).unwrap();
    }
    session.close().unwrap();
    let versions: Vec<u16> = segments(&storage)
        .iter()
        .map(|path| SegmentHeader::decode(&storage.read_file(path).unwrap()).unwrap().format.0)
        .collect();
    // Those that the newer version wrote keep its version; those that this one begins have its own.
    let theirs: Vec<usize> = (0..versions.len()).filter(|nth| versions[*nth] == 2).collect();
    assert_eq!(theirs, [0, last], "{versions:?}");
    assert!(versions.len() > last + 1, "a new segment was begun");
    assert_eq!(records(&reader(&storage)).0[..15], before);
    assert_eq!(findings(&storage), []);
}

#[test]
fn a_segment_for_newer_readers_is_unsupported_and_nothing_of_it_is_touched() {
    for nth in 0..segments(&closed()).len() {
        let storage = closed();
        let first = segments(&storage)[nth].file_stem().unwrap().to_str().unwrap().parse().unwrap();
        // 2 is that of compressed segments.
        version(&storage, nth, 3, 3);
        let (read, tail) = records(&reader(&storage));
        assert!(matches!(tail, TailState::Newer(_)), "{tail:?}");
        assert!(read.iter().all(|(position, ..)| position.0 < first), "it is read up to there");
        assert_eq!(read.last().map_or(0, |(position, ..)| position.0), first - 1);
        assert!(findings(&storage).contains(&(Severity::Warning, "segment.newer")));
        assert_refused(&storage);
    }
}

/// A compressed segment with a method of compression or a use of reserved bytes that does not exist yet.
#[cfg(feature = "compression")]
#[test]
fn a_newer_way_to_compress_is_unsupported_and_nothing_of_it_is_touched() {
    use sessionlog::{Compression, Packing};
    use sessionlog_codec::packed::{PackedHead, head_len};

    let packing = Packing { block_len: 500, least_saved: 0, least_percent: 0 };
    let storage = closed();
    let compression = Compression::With(packing);
    let options = StoreOptions { compression, snapshots: SnapshotPolicy::Off, ..StoreOptions::default() };
    open_with(&storage, options).resume(ID).unwrap().0.close().unwrap();
    let all = segments(&storage);
    for (nth, path) in all.iter().enumerate().take(all.len() - 1) {
        let first: u64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        for (at, byte) in [(140, 2), (143, 1)] {
            let storage = storage.power_cut(sessionlog::storage::CrashMode::KeepAll);
            let change = |bytes: &mut Vec<u8>| {
                PackedHead::decode(bytes).unwrap();
                let (end, len) = (head_len(bytes).unwrap(), bytes.len());
                for start in [0, len - 16 - end] {
                    let head = &mut bytes[start..start + end];
                    head[at] = byte;
                    let crc = patched::crc32(0, &head[SEGMENT_HEADER_LEN..end - 4]);
                    head[end - 4..].copy_from_slice(&crc.to_le_bytes());
                }
            };
            storage.corrupt(path, change).unwrap();
            let (read, tail) = records(&reader(&storage));
            assert!(matches!(tail, TailState::Newer(_)), "segment {nth}: {tail:?}");
            assert_eq!(
                read.last().map_or(0, |(position, ..)| position.0),
                first - 1,
                "it is read up to there"
            );
            assert!(findings(&storage).contains(&(Severity::Warning, "segment.newer")));
            assert_refused(&storage);
        }
    }
}

#[test]
fn a_frame_of_a_newer_kind_that_may_be_skipped_is_skipped_and_kept() {
    for kind in [0x80, 0x90, 0xff] {
        let storage = closed();
        let path = segments(&storage).pop().unwrap();
        let last = frames(&storage.read_file(&path).unwrap()).len() - 1;
        let before = records(&reader(&storage));
        let kept = [insert(&storage, last, kind), insert(&storage, 0, kind)];
        assert_eq!(records(&reader(&storage)), before);
        assert_eq!(findings(&storage), [(Severity::Note, "frame.skipped"); 2]);
        let (session, _) = open(&storage).resume(ID).unwrap();
        let secret = before.0.last().unwrap().0.0 - 1;
        session.append(Message::user("more ".repeat(500))).unwrap();
        // The segment is written anew, without a payload that stands between the two.
        session.redact(&BTreeSet::from([Position(secret)]), "asked for").unwrap();
        let fork = session.fork(ForkPoint::Head, ForkOptions::default()).unwrap();
        let theirs = fork.place().dir.join("log").join(path.file_name().unwrap());
        for file in [&path, &theirs] {
            let bytes = storage.read_file(file).unwrap();
            let is_there = |frame: &Vec<u8>| bytes.windows(frame.len()).any(|window| window == frame);
            assert!(kept.iter().all(is_there), "{}", file.display());
        }
        fork.close().unwrap();
        session.close().unwrap();
        assert_eq!(findings(&storage), [(Severity::Note, "frame.skipped"); 2]);
    }
}

/// A frame that may be skipped is no part of the chain, whatever it says.
#[test]
fn the_chain_goes_on_behind_a_skipped_frame_that_names_another_hash() {
    let storage = closed();
    let path = segments(&storage).pop().unwrap();
    let last = frames(&storage.read_file(&path).unwrap()).len() - 1;
    insert(&storage, last, 0x90);
    let wrong = |bytes: &mut Vec<u8>| {
        let at = frames(bytes)[last + 1].start;
        bytes[at + 40] ^= 1;
        seal(bytes, at);
    };
    storage.corrupt(&path, wrong).unwrap();
    assert_eq!(findings(&storage), [(Severity::Note, "frame.skipped")]);
    let (session, _) = open(&storage).resume(ID).unwrap();
    session.append(Message::user("behind it")).unwrap();
    session.close().unwrap();
    assert_eq!(findings(&storage), [(Severity::Note, "frame.skipped")]);
    drop(open(&storage).resume(ID).unwrap());
}

#[test]
fn a_footer_that_names_another_hash_is_damage_for_everybody() {
    let storage = closed();
    let path = segments(&storage).remove(0);
    let wrong = |bytes: &mut Vec<u8>| {
        let at = frames(bytes).pop().unwrap().start;
        bytes[at + 40] ^= 1;
        seal(bytes, at);
    };
    storage.corrupt(&path, wrong).unwrap();
    assert_eq!(open(&storage).resume(ID).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(findings(&storage).contains(&(Severity::Lost, "chain.broken")));
}

#[test]
fn a_frame_that_must_be_understood_ends_the_reading_and_refuses_the_owner() {
    let change = |storage: &SimStorage, change: Patch| {
        let path = segments(storage).pop().unwrap();
        let patch = |bytes: &mut Vec<u8>| {
            let last = frames(bytes).pop().unwrap();
            change(&mut bytes[last.clone()]);
            seal(bytes, last.start);
        };
        storage.corrupt(path, patch).unwrap();
    };
    let cases: [(&str, Patch); 7] = [
        ("a kind", |frame| frame[4] = 0x03),
        ("the kind 0", |frame| frame[4] = 0),
        ("a flag of the frame", |frame| frame[6] = 1),
        ("a flag of a frame that may be skipped", |frame| (frame[4], frame[7]) = (0x90, 0x80)),
        ("the reserved byte of the frame", |frame| frame[5] = 1),
        ("a flag of a record", |frame| frame[FRAME_HEADER_LEN + 8] = 0x20),
        ("the reserved bytes of a record", |frame| frame[FRAME_HEADER_LEN + 10] = 1),
    ];
    for (what, patch) in cases {
        let storage = closed();
        let (before, _) = records(&reader(&storage));
        change(&storage, patch);
        let (read, tail) = records(&reader(&storage));
        assert!(matches!(tail, TailState::Newer(_)), "{what}: {tail:?}");
        assert_eq!(read, before[..before.len() - 1], "{what}: all before it is read");
        assert_eq!(findings(&storage), [(Severity::Warning, "frame.newer")], "{what}");
        assert_refused(&storage);
    }
}

#[test]
fn records_of_a_newer_kind_or_version_that_may_be_ignored_are_carried_along_byte_for_byte() {
    let storage = closed();
    let secret = record_of_a_message(13, "a secret");
    let mut frame = from_the_future(Criticality::Ignorable);
    frame.push(secret);
    append(&storage, frame);
    let (before, tail) = records(&reader(&storage));
    assert_eq!((before.len(), tail), (18, TailState::Clean));
    assert_eq!(unknown(&reader(&storage)), 2);
    let (session, _) = open(&storage).resume(ID).unwrap();
    // The message of the newer version has no number that this one could read, and takes none.
    session.append(Message::user("more ".repeat(500))).unwrap();
    session.redact(&BTreeSet::from([Position(18)]), "asked for").unwrap();
    let fork = session.fork(ForkPoint::Head, ForkOptions::default()).unwrap();
    for reader in [session.reader(), fork.reader()] {
        assert_eq!(records(&reader).0[..18], before, "the chain covers a redacted payload's digest");
        assert_eq!(unknown(&reader), 2);
    }
    let early = session.fork(ForkPoint::At(Position(18)), ForkOptions::default()).unwrap();
    assert_eq!(records(&early.reader()).0[..18], before);
    assert_eq!(unknown(&early.reader()), 2);
    for session in [early, fork, session] {
        session.close().unwrap();
    }
    let found = findings(&storage);
    assert!(found.iter().all(|(severity, _)| *severity < Severity::Lost), "{found:?}");
}

fn record_of_a_message(number: u64, text: &str) -> NewRecord {
    let event = Event::from(MessageAppended::text(MessageNo(number), Role::User, text));
    let (number, schema) = event.kind();
    let payload = event.encode().unwrap();
    NewRecord { payload, ..record(number, schema.0, Criticality::Ignorable) }
}

#[test]
fn a_record_that_must_be_understood_and_is_not_refuses_the_owner_and_no_reader() {
    for newer in from_the_future(Criticality::MustUnderstand) {
        let storage = closed();
        let (before, _) = records(&reader(&storage));
        append(&storage, vec![newer, record_of_a_message(13, "behind it")]);
        let (read, tail) = records(&reader(&storage));
        assert_eq!((read.len(), tail), (before.len() + 2, TailState::Clean), "it is read, and all behind it");
        assert_eq!(findings(&storage), [(Severity::Warning, "record.newer")]);
        let context = reader(&storage).tree(Position(u64::MAX)).unwrap().context(NodeId::ROOT);
        assert_eq!(context.len(), 13, "the message behind it is shown");
        assert_refused(&storage);
        // A fork from before it has nothing that it does not understand.
        let at = before.last().unwrap().0;
        let fork = open(&storage).fork(ID, ForkPoint::At(at), ForkOptions::default()).unwrap();
        fork.append(Message::user("on another way")).unwrap();
        fork.close().unwrap();
    }
}

#[test]
fn a_record_that_must_be_understood_and_is_refuses_nobody() {
    let storage = closed();
    let mut said = record_of_a_message(13, "important");
    said.envelope.criticality = Criticality::MustUnderstand;
    append(&storage, vec![said]);
    let (session, _) = open(&storage).resume(ID).unwrap();
    assert_eq!(session.context().unwrap().len(), 13);
    session.close().unwrap();
    assert_eq!(findings(&storage), []);
}

/// The day that this fails is the day to test an upcaster: a payload of the old version decodes as the new event, is kept
/// as the bytes that it was, and the directory `formats` gets a log of it.
#[test]
fn every_payload_is_of_its_first_version_so_there_is_nothing_to_upcast_yet() {
    for (number, name, schema) in EVENTS {
        assert_eq!(*schema, SchemaVersion(1), "{name}");
        let payload = sessionlog::codec::record::Payload::Present(PAYLOAD);
        for other in [0, 2, u16::MAX] {
            let decoded = Event::decode(*number, SchemaVersion(other), payload).unwrap();
            assert!(matches!(decoded, Event::Unknown(_)), "{name} of version {other}");
        }
    }
}
