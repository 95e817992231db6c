//! Without the feature `compression`, a compressed segment is what a newer version wrote: refused with the name of the
//! feature, never taken for damage, and never changed.

#![cfg(not(feature = "compression"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::error::Error;
use std::ops::ControlFlow;

use sessionlog::ErrorKind;
use sessionlog::log::{ForkPoint, LogReader, Packing, Severity, TailState};
use sessionlog_codec::ids::{LogId, Position};
use support::{SEGMENTS, batch, content, create, dir, disk, open, options, read};

#[test]
fn a_compressed_segment_is_refused_with_the_name_of_the_feature() {
    let storage = disk();
    let golden = include_bytes!("../../codec/tests/golden/v2/00000000000000000001.seg");
    storage.put_file(format!("{SEGMENTS}/00000000000000000001.seg"), golden.to_vec()).unwrap();
    let before = content(&storage);
    let seen = read(&storage, Position(1)).unwrap();
    let TailState::Newer(why) = seen.tail else { panic!("{seen:?}") };
    assert!(why.contains("`compression`"), "{why}");
    assert_eq!((seen.records, seen.gaps), (vec![], vec![]));
    let found = LogReader::new(dir(&storage)).verify().unwrap().findings;
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!((finding.severity, finding.code), (Severity::Warning, "segment.newer"));
    assert!(finding.explanation.contains("`compression`"), "{finding:?}");
    let reader = LogReader::new(dir(&storage));
    let refused = [
        open(&storage, options(600, 0)).map(drop).unwrap_err(),
        reader.plan_fork(ForkPoint::Head, LogId([1; 16])).map(drop).unwrap_err(),
        reader.read_frame(sessionlog::log::SegmentName(Position(1)), 128, &mut |_| ()).unwrap_err(),
    ];
    for error in refused {
        assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, "log.compressed"), "{error}");
        assert!(error.to_string().contains("`compression`") && error.source().is_some(), "{error}");
    }
    reader.index(&mut |_, _, _| ()).unwrap();
    reader.read(Position(3), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(content(&storage), before);
}

#[test]
fn nothing_is_compressed() {
    let storage = disk();
    let writer = create(&storage, options(600, 0));
    for tag in 0..10 {
        writer.append(batch(tag, &[300]), sessionlog::Durability::Sync).unwrap();
    }
    let before = content(&storage);
    let packing = Packing { least_saved: 0, least_percent: 0, ..Packing::default() };
    assert_eq!(writer.compress(usize::MAX, packing).unwrap().segments, 0);
    assert_eq!(content(&storage), before);
}
