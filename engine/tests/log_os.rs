//! The log on the real file system: a smoke test, since the laws are held against the simulated one.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sessionlog::ErrorKind;
use sessionlog::log::{
    Batch, Durability, LogDir, LogOptions, LogReader, LogWriter, ReadItem, Recovering, Severity, TailState,
};
use sessionlog::storage::OsStorage;
use sessionlog_codec::ids::Position;
use sessionlog_codec::limits::{FRAME_BODY_LEN_MAX, PAYLOAD_LEN_MAX};
use sessionlog_codec::record::Payload;
use support::{LOG, batch, last, logged, options, read_on, records};

fn os_dir(home: &Path) -> LogDir {
    let segments = home.join("segments");
    std::fs::create_dir_all(&segments).unwrap();
    LogDir { storage: Arc::new(OsStorage), segments, quarantine: home.join("quarantine") }
}

fn open_os(dir: &LogDir, options: LogOptions) -> (LogWriter, sessionlog::log::LogRecovery) {
    Recovering::open(dir.clone(), options, Position::START).unwrap().finish().unwrap()
}

#[test]
fn write_close_tear_and_go_on() {
    let home = tempfile::tempdir().unwrap();
    let dir = os_dir(home.path());
    let opts = options(4096, 1 << 20);
    let writer = LogWriter::create(dir.clone(), opts, LOG).unwrap();
    let mut expected = Vec::new();
    for tag in 0..100 {
        let durability = if tag % 10 == 0 { Durability::Sync } else { Durability::Buffered };
        let receipt = writer.append(batch(tag, &[50, 3, 100]), durability).unwrap();
        expected.extend(logged(receipt.first, tag, &[50, 3, 100]));
    }
    drop(writer);
    let (writer, report) = open_os(&dir, opts);
    assert_eq!((report.last, report.cut), (last(&expected), None));
    writer.append(batch(100, &[7]), Durability::Sync).unwrap();
    expected.extend(logged(Position(301), 100, &[7]));
    writer.close().unwrap();
    assert_eq!(read_on(dir.clone(), Position(1)).unwrap().records, expected);
    // The last bytes are lost.
    let newest = std::fs::read_dir(&dir.segments).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let bytes = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &bytes[..bytes.len() - 11]).unwrap();
    let (writer, report) = open_os(&dir, opts);
    let cut = report.cut.unwrap();
    assert_eq!(report.last, Position(300));
    let kept = std::fs::read(&cut.quarantine).unwrap();
    let start = usize::try_from(cut.tail.offset).unwrap();
    assert_eq!(kept, bytes[start..bytes.len() - 11]);
    writer.append(batch(101, &[9]), Durability::Sync).unwrap();
    expected.pop();
    expected.extend(logged(Position(301), 101, &[9]));
    writer.close().unwrap();
    assert_eq!(read_on(dir.clone(), Position(1)).unwrap().records, expected);
    let found = LogReader::new(dir).verify().unwrap();
    assert_eq!((found.records, found.findings), (301, vec![]));
}

#[test]
fn readers_beside_a_writer() {
    let home = tempfile::tempdir().unwrap();
    let dir = os_dir(home.path());
    let writer = LogWriter::create(dir.clone(), options(20_000, 1 << 20), LOG).unwrap();
    let done = AtomicBool::new(false);
    let lens = [700, 5, 60];
    thread::scope(|scope| {
        scope.spawn(|| {
            for tag in 0..400 {
                let durability = if tag % 20 == 0 { Durability::Sync } else { Durability::Buffered };
                writer.append(batch(tag, &lens), durability).unwrap();
            }
            writer.close().unwrap();
            done.store(true, Ordering::SeqCst);
        });
        let mut seen_before = 0;
        let mut rounds = 0;
        loop {
            let finished = done.load(Ordering::SeqCst);
            let from = 1 + seen_before / 2;
            let seen = read_on(dir.clone(), Position(from)).unwrap();
            assert_eq!(seen.gaps, []);
            assert!(matches!(seen.tail, TailState::Clean | TailState::Torn(_) | TailState::HalfCreated));
            for (record, position) in seen.records.iter().zip(from..) {
                assert_eq!(record.position.0, position);
                let tag = (position - 1) / 3;
                let nth = usize::try_from((position - 1) % 3).unwrap();
                assert_eq!(*record, logged(Position(tag * 3 + 1), tag, &lens)[nth]);
            }
            let end = from + u64::try_from(seen.records.len()).unwrap() - 1;
            assert!(end >= seen_before, "what was seen is gone");
            seen_before = end;
            let found = LogReader::new(dir.clone()).verify().unwrap();
            assert!(found.findings.iter().all(|f| f.severity < Severity::Lost), "{found:#?}");
            rounds += 1;
            if finished {
                assert_eq!(end, 1200);
                break;
            }
        }
        assert!(rounds > 1);
    });
}

#[test]
fn longest_record() {
    let home = tempfile::tempdir().unwrap();
    let dir = os_dir(home.path());
    let opts = LogOptions::default();
    let writer = LogWriter::create(dir.clone(), opts, LOG).unwrap();
    let mut longest = records(1, &[1]);
    longest[0].payload = vec![7; PAYLOAD_LEN_MAX];
    writer.append(Batch::new(longest.clone()).unwrap(), Durability::Sync).unwrap();
    let before = directory(&dir);
    longest[0].payload.push(7);
    assert_eq!(Batch::new(longest.clone()).unwrap_err().kind(), ErrorKind::Invalid);
    longest[0].payload.truncate(FRAME_BODY_LEN_MAX / 2);
    let twice = vec![longest[0].clone(), longest[0].clone()];
    assert_eq!(Batch::new(twice).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(Batch::new(Vec::new()).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(directory(&dir), before);
    drop(longest);
    writer.append(batch(2, &[5]), Durability::Sync).unwrap();
    drop(writer);
    let (_, report) = open_os(&dir, opts);
    assert_eq!(report.last, Position(2));
    let mut seen = Vec::new();
    let mut visit = |item: ReadItem<'_>| {
        let ReadItem::Record(record) = item else { panic!("a gap") };
        let Payload::Present(bytes) = record.payload else { panic!("redacted") };
        seen.push((record.position, bytes.len(), bytes.iter().all(|byte| *byte == 7)));
        ControlFlow::Continue(())
    };
    LogReader::new(dir).read(Position(1), &mut visit).unwrap();
    assert_eq!(seen, [(Position(1), PAYLOAD_LEN_MAX, true), (Position(2), 5, false)]);
}

fn directory(dir: &LogDir) -> Vec<(std::path::PathBuf, u64)> {
    let entries = std::fs::read_dir(&dir.segments).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.path(), entry.metadata().unwrap().len())).collect()
}
