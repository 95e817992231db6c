//! A log of several small segments that is damaged at places which the input chooses, or loses power, and is recovered.
//!
//! Asserted: nothing panics; readers and refusals change nothing; what is kept are the first records that were appended, and
//! they reach at least as far as anything that is intact proves to have been synced; without damage, a loss of power loses
//! nothing that was acknowledged as durable and never makes a log that is refused; a second recovery changes nothing; a
//! recovered log takes more, is verified, and has it all when it is opened again.
#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use sessionlog::ErrorKind;
use sessionlog::log::{
    Batch, Durability, LogReader, LogRecovery, LogWriter, NewRecord, Reached, Recovering, Severity,
};
use sessionlog::storage::{CrashMode, SimStorage};
use sessionlog_codec::frame::{FrameHeader, KIND_RECORDS};
use sessionlog_codec::ids::{Digest, Position};
use sessionlog_codec::segment::SegmentHeader;
use support::disk::{LOG, OPTIONS, Read, SEGMENTS, content, dir, disk, records};
use support::{below, byte, mutate, script};

mod support;

/// What was appended, and how much of it was acknowledged as durable.
struct Written {
    log: Vec<Read>,
    durable: Position,
}

fn write(storage: &SimStorage, seed: u8, script: &[u8]) -> Option<Written> {
    let writer = LogWriter::create(dir(storage), OPTIONS, LOG).unwrap();
    let mut written = Written { log: Vec::new(), durable: Position::START };
    for (nth, frame) in script::frames(script).into_iter().enumerate() {
        let sync = (usize::from(seed) >> (nth % 8)) & 1 == 0;
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        let mut position = writer.next();
        for NewRecord { envelope, payload } in &frame {
            written.log.push((position, envelope.clone(), Digest::of(payload)));
            position = position.next().unwrap();
        }
        let receipt = writer.append(Batch::new(frame).unwrap(), durability).unwrap();
        if receipt.reached == Reached::Durable {
            written.durable = receipt.last;
        }
    }
    written.durable = written.durable.max(writer.durable());
    (!written.log.is_empty()).then_some(written)
}

/// How far the frames of the last segment that are as they were prove the log to have been synced.
fn witnessed(pristine: &[u8], bytes: &[u8]) -> Position {
    let Ok(header) = SegmentHeader::decode(bytes) else { return Position::START };
    if pristine.get(..128) != bytes.get(..128) {
        return Position::START;
    }
    let intact = mutate::frames(pristine).into_iter().filter_map(|place| {
        let frame = FrameHeader::decode(&pristine[place.clone()], header.salt).ok()?;
        let is_there = bytes.get(place.clone()) == Some(&pristine[place]);
        (is_there && frame.fields.kind == KIND_RECORDS).then_some(frame.fields.synced)
    });
    intact.max().unwrap_or_default()
}

fn open(storage: &SimStorage) -> sessionlog::Result<(LogWriter, LogRecovery)> {
    Recovering::open(dir(storage), OPTIONS, Position::START)?.finish()
}

fn check_recovered(storage: &SimStorage, report: &LogRecovery, written: &Written) {
    let kept = usize::try_from(report.last.0).unwrap();
    let recovered = content(storage);
    let (writer, again) = open(storage).unwrap();
    assert_eq!((again.last, &again.cut, again.removed), (report.last, &None, None));
    assert!(content(storage) == recovered, "a second recovery changed something");
    let (seen, gaps) = records(storage).unwrap();
    assert!(seen.iter().all(|read| written.log[..kept].contains(read)), "not what was appended");
    assert!(gaps > 0 || seen == written.log[..kept], "records are missing");
    let verified = LogReader::new(dir(storage)).verify().unwrap();
    let lost = verified.findings.iter().any(|finding| finding.severity == Severity::Lost);
    for _ in 0..3 {
        let frame = script::frames(&[20, 0, 1, 0, 0, 255, 1, b'x']).remove(0);
        writer.append(Batch::new(frame).unwrap(), Durability::Sync).unwrap();
    }
    let (more, more_gaps) = records(storage).unwrap();
    assert_eq!((more.len(), more_gaps), (seen.len() + 3, gaps));
    drop(writer);
    let (_writer, last) = open(storage).unwrap();
    assert_eq!((last.last.0, &last.cut), (report.last.0 + 3, &None));
    assert!(records(storage) == Some((more, gaps)), "opened again, it is another one");
    let verified = LogReader::new(dir(storage)).verify().unwrap();
    assert_eq!(lost, verified.findings.iter().any(|finding| finding.severity == Severity::Lost));
}

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let (seed, damages) = (byte(&mut input), byte(&mut input) % 4);
    let power = byte(&mut input);
    let changes = input.bytes(input.len().min(usize::from(damages) * 40)).unwrap_or_default();
    let storage = disk();
    let Some(written) = write(&storage, seed, input.take_rest()) else { return };
    let storage = match power % 4 {
        0 => storage,
        1 => storage.power_cut(CrashMode::KeepAll),
        2 => storage.power_cut(CrashMode::LoseAll),
        _ => storage.power_cut(CrashMode::Seeded(power.into())),
    };
    let files: Vec<_> = storage.files().into_iter().filter(|path| path.starts_with(SEGMENTS)).collect();
    let Some(last) = files.last() else { return };
    let pristine = storage.read_file(last).unwrap();
    for change in changes.chunks(40) {
        let mut input = Unstructured::new(change);
        let file = &files[files.len() - 1 - below(&mut input, files.len())];
        storage.corrupt(file, |bytes| mutate::damage(&mut input, bytes)).unwrap();
    }
    let proven = witnessed(&pristine, &storage.read_file(last).unwrap());
    let before = content(&storage);
    let (read, verified) = (records(&storage), LogReader::new(dir(&storage)).verify());
    assert!(read.is_some() && verified.is_ok());
    assert!(content(&storage) == before, "a reader changed something");
    match open(&storage) {
        Ok((writer, report)) => {
            drop(writer);
            assert!(report.last >= proven, "{} was synced, {} is kept", proven, report.last);
            assert!(damages > 0 || report.last >= written.durable, "acknowledged records are lost");
            check_recovered(&storage, &report, &written);
        }
        Err(error) => {
            assert!(content(&storage) == before, "a refusal changed something");
            assert!(matches!(
                error.kind(),
                ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Unsupported
            ));
            assert!(damages > 0 || written.durable == Position::START, "{error:?}");
        }
    }
});
