//! Records by their positions: a context is folded from the records that its index names, and a search shows its hits. Each is
//! there, or the answer is an error: a context without a record that was said would be sent to a model without a word.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use sessionlog::log::{Durability, LogReader};
use sessionlog::storage::{CrashMode, SimStorage};
use sessionlog::{ErrorKind, Result};
use sessionlog_codec::ids::Position;
use sessionlog_codec::limits::SEGMENT_HEADER_LEN;
use support::{Logged, all, batch, create, dir, disk, last, options};

fn read(storage: &SimStorage, positions: impl IntoIterator<Item = u64>) -> Result<Vec<u64>> {
    let positions: Vec<Position> = positions.into_iter().map(Position).collect();
    let mut found = Vec::new();
    LogReader::new(dir(storage)).read_at(&positions, &mut |record| found.push(record.position.0))?;
    Ok(found)
}

/// Several segments, sealed ones and the one that is written to; frames of one record and of more.
fn log() -> (SimStorage, Vec<Logged>) {
    let storage = disk();
    let writer = create(&storage, options(600, 0));
    for tag in 0..14 {
        writer
            .append(batch(tag, &[40, 50, 3][..1 + usize::try_from(tag % 3).unwrap()]), Durability::Sync)
            .unwrap();
    }
    let log = all(&storage);
    assert!(storage.files().len() > 2, "several segments");
    (storage, log)
}

#[test]
fn any_records_are_found_in_order() {
    let (storage, log) = log();
    let end = last(&log).0;
    assert!(read(&storage, []).unwrap().is_empty());
    for step in 1..=7 {
        for from in 1..=end {
            let wanted: Vec<u64> = (from..=end).step_by(step).collect();
            assert_eq!(read(&storage, wanted.clone()).unwrap(), wanted);
        }
    }
}

#[test]
fn a_record_that_is_not_there_is_an_error() {
    let (storage, log) = log();
    let end = last(&log).0;
    for wanted in [vec![0], vec![0, 1], vec![end + 1], vec![1, end, end + 1], vec![1 << 40]] {
        let error = read(&storage, wanted.clone()).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Corrupt, "log.damaged"), "{wanted:?}");
    }
}

/// Each byte of each segment hurt in turn, and each half of each segment in the place of the other one.
#[test]
fn of_a_hurt_log_all_is_there_or_it_is_an_error() {
    let (storage, log) = log();
    let end = last(&log).0;
    let (mut whole, mut refused) = (0, 0);
    for path in storage.files() {
        let len = storage.read_file(&path).unwrap().len();
        for at in 0..len + 2 {
            let hurt = storage.power_cut(CrashMode::KeepAll);
            let change = |bytes: &mut Vec<u8>| match at.checked_sub(len) {
                None => bytes[at] ^= 0x20,
                Some(0) => bytes.truncate(SEGMENT_HEADER_LEN + (len - SEGMENT_HEADER_LEN) / 2),
                Some(_) => bytes.copy_within(SEGMENT_HEADER_LEN..len / 2, len / 2),
            };
            hurt.corrupt(&path, change).unwrap();
            match read(&hurt, 1..=end) {
                Ok(found) => {
                    assert_eq!(found, (1..=end).collect::<Vec<_>>(), "{} byte {at}", path.display());
                    whole += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{} byte {at}: {error}", path.display());
                    refused += 1;
                }
            }
        }
    }
    assert!(whole > 50 && refused > 500, "{whole} {refused}");
}
