//! A whole segment as the only one of a log. The first byte chooses: 0, the bytes are the segment; else they are changes,
//! some of which keep every checksum, and the records of a segment that the changes are made to.
//!
//! Asserted: assessing, reading, indexing and verifying never panic and change nothing; positions rise; the index and the
//! records agree; and the four ways to look at a log agree on what it is. One that opens has no gap and no lost finding, all
//! that a reader saw of it is still there, and it is clean when it is verified again; one that is refused as damaged has a
//! lost finding; one that is refused as newer has a finding that says so; a refusal changes nothing.
#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use sessionlog::ErrorKind;
use sessionlog::log::{
    Batch, Durability, LogOptions, LogReader, LogWriter, Recovering, SegmentBytes, SegmentName, Severity,
    assess,
};
use sessionlog::storage::SimStorage;
use sessionlog_codec::ids::Position;
use support::disk::{LOG, SEGMENTS, content, dir, disk, records};
use support::{byte, mutate, script};

mod support;

const ONE: LogOptions = LogOptions { segment_len: 1 << 20, fill_len: 0 };

fn path() -> String {
    format!("{SEGMENTS}/{}", SegmentName(Position(1)))
}

/// The segment that the input is or spells.
fn segment(data: &[u8]) -> Vec<u8> {
    let Some((0x01.., rest)) = data.split_first() else { return data.get(1..).unwrap_or_default().to_vec() };
    let mut input = Unstructured::new(rest);
    let forged: Vec<bool> = (0..byte(&mut input) % 4).map(|_| byte(&mut input) % 4 > 0).collect();
    let changes = input.bytes(input.len().min(forged.len() * 8)).unwrap_or_default();
    let storage = disk();
    let writer = LogWriter::create(dir(&storage), ONE, LOG).unwrap();
    for frame in script::frames(input.take_rest()) {
        writer.append(Batch::new(frame).unwrap(), Durability::Sync).unwrap();
    }
    drop(writer);
    let mut bytes = storage.read_file(path()).unwrap();
    for (forge, change) in forged.iter().zip(changes.chunks(8)) {
        let mut input = Unstructured::new(change);
        if *forge { mutate::forge(&mut input, &mut bytes) } else { mutate::damage(&mut input, &mut bytes) }
    }
    bytes
}

fn check_index(storage: &SimStorage, seen: &[support::disk::Read]) {
    let mut indexed = Vec::new();
    let done =
        LogReader::new(dir(storage)).index(&mut |position, entry, _| indexed.push((position, entry.kind)));
    done.unwrap();
    let seen: Vec<_> = seen.iter().map(|(position, envelope, _)| (*position, envelope.kind)).collect();
    assert_eq!(indexed, seen);
}

fuzz_target!(|data: &[u8]| {
    let bytes = segment(data);
    drop(assess(SegmentBytes { bytes: &bytes, witnessed: Position::START }));
    let storage = disk();
    storage.put_file(path(), bytes).unwrap();
    let before = content(&storage);
    let (seen, gaps) = records(&storage).unwrap();
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0), "positions rise");
    let found = LogReader::new(dir(&storage)).verify().unwrap();
    let lost = found.findings.iter().any(|finding| finding.severity == Severity::Lost);
    let newer = found.findings.iter().any(|finding| finding.code.ends_with(".newer"));
    if gaps == 0 && !lost {
        check_index(&storage, &seen);
    }
    assert!(content(&storage) == before, "a reader changed something");
    match Recovering::open(dir(&storage), ONE, Position::START) {
        Ok(recovering) => {
            assert!(!lost && gaps == 0, "it opens: {:?}", found.findings);
            assert_eq!(recovering.chain(), found.chain);
            let (writer, report) = match recovering.finish() {
                Ok(opened) => opened,
                Err(error) => {
                    assert_eq!(error.code(), "log.epochs");
                    return assert!(content(&storage) == before, "a refusal changed something");
                }
            };
            assert_eq!(report.last, seen.last().map_or(Position::START, |(position, ..)| *position));
            let after = records(&storage).unwrap();
            assert!(after == (seen, 0), "recovery changed what can be read");
            let frame = script::frames(&[20, 0, 1, 0, 0, 1, 0, b'x']).remove(0);
            writer.append(Batch::new(frame).unwrap(), Durability::Sync).unwrap();
            let verified = LogReader::new(dir(&storage)).verify().unwrap();
            let wrong = verified.findings.iter().filter(|finding| finding.severity > Severity::Note);
            assert_eq!(wrong.count(), 0, "{:?}", verified.findings);
        }
        Err(error) => {
            match error.kind() {
                ErrorKind::Corrupt => assert!(lost, "{error:?} {:?}", found.findings),
                ErrorKind::Unsupported => assert!(newer, "{error:?} {:?}", found.findings),
                kind => assert_eq!(kind, ErrorKind::NotFound),
            }
            assert!(content(&storage) == before, "a refusal changed something");
        }
    }
});
