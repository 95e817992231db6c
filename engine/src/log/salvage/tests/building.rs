//! The log that is built of what was found.

use super::super::builder::LogBuilder;
use super::*;

fn build(storage: &SimStorage, records: u64) -> Result<LogId> {
    let dir = LogDir::below(&(Arc::new(storage.clone()) as Arc<dyn Storage>), Path::new("new"));
    let mut builder = LogBuilder::begin(dir, OPTIONS, LOG)?;
    for nth in 0..records {
        assert_eq!(builder.next(), Position(1 + 2 * nth));
        // An ownership that is earlier than the one before it, where frames of two copies are mixed.
        let epoch = Epoch(if nth == 5 { 2 } else { 1 + nth });
        builder.frame(epoch, &[(envelope(20), vec![1; 90]), (envelope(21), vec![2; 20])])?;
    }
    builder.finish()
}

/// A log that is longer than a segment is one of several, sealed and followed, and has nothing wrong.
#[test]
fn what_is_built_is_a_log_like_any_other() {
    let storage = SimStorage::new();
    storage.create_dir(Path::new("new")).unwrap();
    storage.sync_dir(Path::new(".")).unwrap();
    assert_eq!(build(&storage, 12).unwrap(), LOG);
    let storage = storage.power_cut(CrashMode::LoseAll);
    let dir = LogDir::below(&(Arc::new(storage.clone()) as Arc<dyn Storage>), Path::new("new"));
    let reader = LogReader::new(dir.clone());
    let verified = reader.verify().unwrap();
    assert_eq!((verified.findings, verified.last, verified.records), (vec![], Position(24), 24));
    let built = Made { storage, dir };
    let mut epochs = Vec::new();
    for nth in 0..built.names().len() {
        let bytes = built.bytes(nth);
        let header = SegmentHeader::decode(&bytes).unwrap();
        assert!(bytes.len() < 1_200 && header.segment_no.0 == to_u64(nth));
        assert_eq!(header.salt, segment::salt(LOG, header.segment_no));
        for place in frames(&bytes) {
            let fields = Frame::decode(&bytes[place], header.salt).unwrap().header().fields.clone();
            epochs.push(fields.epoch.0);
            assert!(fields.kind != frame::KIND_RECORDS || fields.synced.0 + 1 == fields.first_position.0);
        }
    }
    // The last of each segment is that of its index.
    assert_eq!(epochs, [1, 2, 3, 3, 4, 5, 5, 5, 7, 7, 8, 9, 9, 10, 11, 11, 12]);
    assert_eq!(built.layout().spans, []);
}

#[test]
fn nothing_is_built_over_anything() {
    for there in ["new/log", "new/log.salvaging"] {
        let storage = SimStorage::new();
        for dir in ["new", there] {
            storage.create_dir(Path::new(dir)).unwrap();
        }
        let error = build(&storage, 3).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, "log.exists"));
        assert!(error.to_string().contains(there), "{error}");
    }
}

/// Power is lost at each call: there is no log, or a whole one, and once it was said to be there it is.
#[test]
fn a_log_is_built_whole_or_not_at_all() {
    let mut cut = 0;
    for nth in 0.. {
        let storage = SimStorage::new();
        storage.create_dir(Path::new("new")).unwrap();
        storage.sync_dir(Path::new(".")).unwrap();
        storage.fail(Fault::any(FaultError::EIO).after(nth).repeat(Repeat::Always));
        let done = build(&storage, 12).is_ok();
        for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Seeded(nth)] {
            let storage = storage.power_cut(mode);
            let dir = LogDir::below(&(Arc::new(storage) as Arc<dyn Storage>), Path::new("new"));
            match LogReader::new(dir).verify() {
                Ok(verified) => assert_eq!((verified.findings, verified.records), (vec![], 24), "call {nth}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "call {nth}: {error}");
                    assert!(!done, "call {nth}, {mode:?}");
                }
            }
        }
        if done {
            break;
        }
        cut += 1;
    }
    assert!(cut > 15, "{cut}");
}
