//! Compressed segments, below sessions: a log of which some are compressed is the same log to everybody, a crash while one is
//! compressed loses nothing, and damage costs the blocks that are hurt.

#![cfg(feature = "compression")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sessionlog::log::{
    Batch, Durability, ForkPoint, LogDir, LogOptions, LogReader, LogVerification, Packing, Recovering,
    Severity, TailState,
};
use sessionlog::storage::{Call, CallKind, CrashMode, Fault, FaultError, SimStorage, Storage};
use sessionlog::{Error, ErrorKind};
use sessionlog_codec::ids::{LogId, Position};
use sessionlog_codec::limits::PACKED_LOCATOR_LEN;
use sessionlog_codec::packed::{self, PackedHead};
use sessionlog_codec::segment::SegmentHeader;
use support::hooked::Hooked;
use support::{
    Logged, Rng, SEGMENTS, all, batch, content, create, dir, dir_on, disk, open, options, read, records,
};

/// Compresses whatever it can, into small blocks.
fn packing(block_len: usize) -> Packing {
    Packing { block_len, least_saved: 0, least_percent: 0 }
}

/// A batch whose payloads compress as text does.
fn text(tag: u64, lens: &[usize]) -> Batch {
    let mut records = records(tag, lens);
    for (record, len) in records.iter_mut().zip(lens) {
        record.payload = words(tag, *len);
    }
    Batch::new(records).unwrap()
}

fn words(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    let mut text = Vec::new();
    while text.len() < len {
        let word = ["session ", "segment ", "block ", "frame ", "record ", "a ", "of ", "\n"][rng.index(8)];
        text.extend_from_slice(word.as_bytes());
    }
    text.truncate(len);
    text
}

/// A log of some segments, closed.
fn written(seed: u64, opts: LogOptions, batches: u64) -> SimStorage {
    let storage = disk();
    let mut rng = Rng(seed);
    let writer = create(&storage, opts);
    for tag in 0..batches {
        let most = [20, 150, 600][rng.index(3)];
        let lens: Vec<usize> = (0..1 + rng.below(3)).map(|_| rng.index(most)).collect();
        let batch = if rng.below(4) == 0 { batch(tag, &lens) } else { text(tag, &lens) };
        writer.append(batch, Durability::Sync).unwrap();
    }
    writer.close().unwrap();
    storage
}

/// Another disk with the same files.
fn twin(storage: &SimStorage) -> SimStorage {
    storage.power_cut(CrashMode::KeepAll)
}

fn compress(storage: &SimStorage, opts: LogOptions, most: usize, block_len: usize) {
    let (writer, _) = open(storage, opts).unwrap();
    writer.compress(most, packing(block_len)).unwrap();
    writer.close().unwrap();
}

fn segments(storage: &SimStorage) -> Vec<PathBuf> {
    storage.files().into_iter().filter(|path| path.extension().is_some_and(|it| it == "seg")).collect()
}

fn is_packed(storage: &SimStorage, path: &Path) -> bool {
    packed::is_packed(&storage.read_file(path).unwrap())
}

/// A closed log of three segments and more, of which all but the last are compressed; and its plain twin.
fn packed_and_plain(opts: LogOptions, block_len: usize) -> (SimStorage, SimStorage) {
    let storage = written(3, opts, 30);
    // Whoever compresses owns the log; so does whoever does not.
    let plain = twin(&storage);
    compress(&storage, opts, usize::MAX, block_len);
    compress(&plain, opts, 0, block_len);
    let files = segments(&storage);
    assert!(files.len() > 3, "{}", files.len());
    for (nth, path) in files.iter().enumerate() {
        assert_eq!(is_packed(&storage, path), nth + 1 < files.len(), "{}", path.display());
    }
    (storage, plain)
}

fn verified(storage: &SimStorage) -> LogVerification {
    LogReader::new(dir(storage)).verify().unwrap()
}

/// Everything that readers tell of a log.
fn assert_same(packed: &SimStorage, plain: &SimStorage, what: &str) {
    let (seen, expected) = (read(packed, Position(1)).unwrap(), read(plain, Position(1)).unwrap());
    assert_eq!(seen, expected, "{what}");
    let last = expected.records.last().unwrap().position.0;
    for from in 1..=last + 1 {
        let (seen, expected) = (read(packed, Position(from)).unwrap(), read(plain, Position(from)).unwrap());
        assert_eq!(seen, expected, "{what}, from {from}");
        assert_eq!(seen.records.len(), usize::try_from(last + 1 - from).unwrap(), "{what}");
    }
    let index = |storage: &SimStorage| {
        let mut index = Vec::new();
        LogReader::new(dir(storage)).index(&mut |at, entry, name| index.push((at, entry, name))).unwrap();
        index
    };
    assert_eq!(index(packed), index(plain), "{what}");
    for (position, entry, name) in index(packed) {
        let mut frame = Vec::new();
        let reader = LogReader::new(dir(packed));
        reader.read_frame(name, entry.frame_offset, &mut |record| frame.push(record.position)).unwrap();
        assert!(frame.contains(&position), "{what}");
    }
    let (found, expected) = (verified(packed), verified(plain));
    assert_eq!(found.unpacked_bytes, expected.bytes, "{what}");
    assert_eq!(LogVerification { bytes: expected.bytes, ..found }, expected, "{what}");
}

#[test]
fn a_compressed_log_is_the_same_log() {
    for (seed, segment_len, block_len) in
        [(1, 700, 64), (2, 700, 300), (3, 3000, 1000), (4, 9000, 1 << 20), (5, 1, 7)]
    {
        let opts = options(segment_len, 0);
        let packed = written(seed, opts, 40);
        let plain = twin(&packed);
        for most in [1, 2, usize::MAX] {
            compress(&packed, opts, most, block_len);
            compress(&plain, opts, 0, block_len);
            assert_same(&packed, &plain, &format!("seed {seed}, {most}"));
        }
        let files = segments(&packed);
        assert_eq!(files.iter().filter(|path| is_packed(&packed, path)).count(), files.len() - 1);
        // A second time there is nothing to do.
        let before = content(&packed);
        let (writer, _) = open(&packed, opts).unwrap();
        assert_eq!(writer.compress(usize::MAX, packing(block_len)).unwrap().segments, 0);
        drop(writer);
        for path in &files[..files.len() - 1] {
            assert_eq!(before[path], packed.read_file(path).unwrap());
        }
    }
}

/// Another place for a log on the same disk.
fn place(storage: &SimStorage, name: &str) -> LogDir {
    storage.create_dir(Path::new(name)).unwrap();
    storage.sync_dir(Path::new(".")).unwrap();
    let home = PathBuf::from(name);
    LogDir {
        storage: Arc::new(storage.clone()),
        segments: home.join("segments"),
        quarantine: home.join("quarantine"),
    }
}

#[test]
fn it_is_forked_at_any_place() {
    let opts = options(700, 0);
    let (packed, plain) = packed_and_plain(opts, 200);
    let fork = |storage: &SimStorage, at: u64| {
        let plan = LogReader::new(dir(storage)).plan_fork(ForkPoint::At(Position(at)), LogId([2; 16]));
        let plan = plan.map_err(|error| error.to_string())?;
        let place = place(storage, &format!("fork{at}"));
        let writer = plan.carry_out(place.clone(), opts, &batch(1, &[9])).unwrap();
        writer.append(text(2, &[40]), Durability::Sync).unwrap();
        writer.close().unwrap();
        assert_eq!(LogReader::new(place.clone()).verify().unwrap().findings, [], "at {at}");
        for path in storage.files().into_iter().filter(|path| path.starts_with(&place.segments)) {
            let is_shared = storage.link_count(&path).unwrap() > Some(1);
            assert!(is_shared || !is_packed(storage, &path), "what a fork wrote itself is plain");
        }
        Ok::<_, String>(support::read_on(place, Position(1)).unwrap())
    };
    let last = all(&plain).last().unwrap().position.0;
    let made = (1..=last + 1).filter(|at| {
        let (found, expected) = (fork(&packed, *at), fork(&plain, *at));
        assert_eq!(found, expected, "at {at}");
        found.is_ok()
    });
    assert!(made.count() > 10);
    let shared = segments(&packed).into_iter().filter(|path| packed.link_count(path).unwrap() > Some(1));
    assert!(shared.filter(|path| is_packed(&packed, path)).count() > 2, "compressed files are shared");
}

#[test]
fn it_goes_on_growing() {
    let opts = options(700, 0);
    let (packed, plain) = packed_and_plain(opts, 200);
    for storage in [&packed, &plain] {
        let (writer, _) = open(storage, opts).unwrap();
        for tag in 50..70 {
            writer.append(text(tag, &[100, 3]), Durability::Sync).unwrap();
        }
        writer.close().unwrap();
    }
    compress(&packed, opts, usize::MAX, 100);
    compress(&plain, opts, 0, 100);
    assert_same(&packed, &plain, "grown");
}

#[test]
fn what_a_fork_shares_is_not_compressed_twice() {
    let opts = options(700, 0);
    let storage = written(3, opts, 30);
    let target = place(&storage, "fork");
    let plan = LogReader::new(dir(&storage)).plan_fork(ForkPoint::Head, LogId([2; 16])).unwrap();
    drop(plan.carry_out(target, opts, &batch(1, &[9])).unwrap());
    compress(&storage, opts, usize::MAX, 200);
    assert!(segments(&storage).iter().all(|path| !is_packed(&storage, path)));
    for path in storage.files().iter().filter(|path| path.starts_with("fork")) {
        storage.remove_file(path).unwrap();
    }
    compress(&storage, opts, usize::MAX, 200);
    assert!(is_packed(&storage, &segments(&storage)[0]));
}

#[test]
fn what_does_not_get_shorter_stays_plain() {
    let storage = disk();
    let opts = options(2000, 0);
    let writer = create(&storage, opts);
    for tag in 0..20 {
        // Random bytes, and text.
        writer
            .append(if tag < 10 { batch(tag, &[900]) } else { text(tag, &[900]) }, Durability::Sync)
            .unwrap();
    }
    let before = content(&storage);
    assert_eq!(
        writer.compress(usize::MAX, Packing::default()).unwrap().segments,
        0,
        "4096 bytes are not saved"
    );
    assert_eq!(content(&storage), before);
    let (writer, _) = open(&storage, opts).unwrap();
    let tenth = Packing { least_percent: 10, ..packing(1000) };
    let done = writer.compress(usize::MAX, tenth).unwrap();
    assert!(done.segments > 1 && done.after < done.before, "{done:?}");
    let packed: Vec<_> = segments(&storage).iter().map(|path| is_packed(&storage, path)).collect();
    assert!(!packed[0] && packed[packed.len() - 2], "{packed:?}");
}

/// What is compressed already is not counted: else an owner that compresses one segment each time would look at the first one
/// for ever, and the log stay as long as it is.
#[test]
fn each_owner_compresses_the_next_segment() {
    let opts = options(700, 0);
    let storage = written(3, opts, 30);
    for nth in 0..3 {
        compress(&storage, opts, 1, 200);
        let packed = segments(&storage).iter().filter(|path| is_packed(&storage, path)).count();
        assert_eq!(packed, nth + 1);
    }
}

#[test]
fn what_saves_too_small_a_part_stays_plain() {
    let opts = options(4000, 0);
    for (least_percent, is_worth_it) in [(1, true), (50, false)] {
        let storage = disk();
        let writer = create(&storage, opts);
        for tag in 0..20 {
            let lens = if tag % 4 == 0 { [900].as_slice() } else { &[] };
            writer.append(batch(tag, &[900]), Durability::Sync).unwrap();
            if !lens.is_empty() {
                writer.append(text(tag, lens), Durability::Sync).unwrap();
            }
        }
        let packing = Packing { least_percent, ..packing(2000) };
        let done = writer.compress(usize::MAX, packing).unwrap();
        assert_eq!(done.segments > 0, is_worth_it, "{done:?}");
    }
}

/// Somebody else owns the log and erases from it: one that was fenced and went on compressing would put back what was erased.
/// One that was closed in peace goes on with what it has begun.
#[test]
fn who_was_fenced_compresses_nothing() {
    let opts = options(700, 0);
    let storage = disk();
    let stale = create(&storage, opts);
    for tag in 0..10 {
        stale.append(text(tag, &[300]), Durability::Sync).unwrap();
    }
    let (owner, _) = open(&storage, opts).unwrap();
    assert_eq!(stale.append(text(10, &[300]), Durability::Sync).unwrap_err().kind(), ErrorKind::Fenced);
    let before = content(&storage);
    assert_eq!(stale.compress(usize::MAX, packing(200)).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(content(&storage), before);
    owner.close().unwrap();
    assert!(owner.compress(usize::MAX, packing(200)).unwrap().segments > 1);
}

#[test]
fn what_is_hurt_stays_as_it_is() {
    let opts = options(700, 0);
    for at in [130, 300, 701] {
        let storage = written(3, opts, 30);
        let path = segments(&storage)[1].clone();
        storage.corrupt(&path, |bytes| bytes[at] ^= 1).unwrap();
        let before = storage.read_file(&path).unwrap();
        let (writer, _) = open(&storage, opts).unwrap();
        writer.compress(usize::MAX, packing(100)).unwrap();
        assert_eq!(storage.read_file(&path).unwrap(), before);
        assert!(is_packed(&storage, &segments(&storage)[0]) && is_packed(&storage, &segments(&storage)[2]));
    }
    // Behind the footer nothing belongs, not even zeros: compressed, they would keep the index from being found for ever.
    let storage = written(3, opts, 30);
    let path = segments(&storage)[1].clone();
    let (writer, _) = open(&storage, opts).unwrap();
    storage.corrupt(&path, |bytes| bytes.extend([0; 64])).unwrap();
    let cut = segments(&storage)[2].clone();
    let without_footer = |bytes: &mut Vec<u8>| {
        let locator = bytes.len() - 8;
        let footer_len = u32::from_le_bytes(*bytes[locator..].first_chunk().unwrap());
        bytes.truncate(locator - usize::try_from(footer_len).unwrap());
    };
    storage.corrupt(&cut, without_footer).unwrap();
    writer.compress(usize::MAX, packing(100)).unwrap();
    let packed = [&segments(&storage)[0], &path, &cut].map(|path| is_packed(&storage, path));
    assert_eq!(packed, [true, false, false]);
}

/// What a reader sees of a log of which a compressed file was changed: never another record, never a panic, and what is
/// missing is named.
fn assert_told(storage: &SimStorage, whole: &[Logged], what: &str) -> usize {
    let before = content(storage);
    let seen = read(storage, Position(1)).unwrap();
    let found = verified(storage);
    let worst = found.findings.iter().map(|finding| finding.severity).max();
    let mut missing: Vec<u64> = Vec::new();
    for gap in &seen.gaps {
        missing.extend(gap.first.0..=gap.last.unwrap_or(gap.first).0);
    }
    if matches!(seen.tail, TailState::Newer(_)) {
        assert!(worst >= Some(Severity::Warning), "{what}: {found:?}");
    } else {
        let expected = whole.iter().filter(|record| !missing.contains(&record.position.0));
        assert!(seen.records.iter().eq(expected), "{what}: {missing:?}");
    }
    assert!(seen.records.iter().all(|record| whole.contains(record)), "{what}");
    assert!(missing.is_empty() || worst == Some(Severity::Lost), "{what}: {missing:?} {found:#?}");
    for from in [2, 9, 20] {
        let later = read(storage, Position(from)).unwrap();
        assert!(later.records.iter().all(|record| whole.contains(record)), "{what}");
        assert!(
            later.records.len() >= seen.records.iter().filter(|it| it.position.0 >= from).count(),
            "{what}"
        );
    }
    LogReader::new(dir(storage)).index(&mut |_, _, _| ()).unwrap();
    drop(LogReader::new(dir(storage)).plan_fork(ForkPoint::Head, LogId([2; 16])));
    assert_eq!(content(storage), before, "{what}: a reader changes nothing");
    missing.len()
}

#[test]
fn every_bit_and_every_cut_of_a_compressed_segment() {
    let opts = options(600, 0);
    let (storage, _) = packed_and_plain(opts, 150);
    let whole = all(&storage);
    let path = segments(&storage)[1].clone();
    let bytes = storage.read_file(&path).unwrap();
    let head = PackedHead::decode(&bytes).unwrap();
    assert!(head.blocks.len() > 4, "{}", head.blocks.len());
    let frames: BTreeMap<usize, u64> = {
        let mut frames = BTreeMap::new();
        LogReader::new(dir(&storage))
            .index(&mut |_, entry, name| {
                if dir(&storage).segment_path(name) == path {
                    *frames.entry(usize::try_from(entry.frame_offset).unwrap()).or_default() += 1;
                }
            })
            .unwrap();
        frames
    };
    for at in 0..bytes.len() {
        let hurt = twin(&storage);
        let bit = at % 8;
        hurt.corrupt(&path, |bytes| bytes[at] ^= 1 << bit).unwrap();
        let missing = assert_told(&hurt, &whole, &format!("bit {bit} of byte {at}"));
        let block = head.blocks.iter().find(|block| {
            let start = usize::try_from(block.stored_offset).unwrap();
            (start..start + block.stored_len).contains(&at)
        });
        // A block costs the frames that have a byte in it, and nothing else costs anything.
        let ends = frames.keys().copied().skip(1).chain([usize::MAX]);
        let touched = frames.iter().zip(ends).filter(|((start, _), end)| {
            block.is_some_and(|block| **start < block.range().end && block.offset < *end)
        });
        let in_block: u64 = touched.map(|((_, records), _)| *records).sum();
        // The footer's blocks lie behind the last frame.
        let is_footer = block.is_some_and(|block| block.offset >= footer_offset(&storage, &path));
        let most = if is_footer { 0 } else { in_block };
        assert_eq!(u64::try_from(missing).unwrap(), most, "byte {at}, {block:?}");
        let opened = open(&hurt, opts).map(|(writer, _)| drop(writer));
        assert!(
            opened.as_ref().map_err(Error::kind).err().is_none_or(|kind| kind == ErrorKind::Corrupt),
            "{opened:?}"
        );
    }
    for len in 0..bytes.len() {
        let hurt = twin(&storage);
        hurt.corrupt(&path, |bytes| bytes.truncate(len)).unwrap();
        assert_told(&hurt, &whole, &format!("{len} bytes"));
    }
}

/// Where the footer of a compressed segment begins, in the segment.
fn footer_offset(whole: &SimStorage, path: &Path) -> usize {
    let head = PackedHead::decode(&whole.read_file(path).unwrap()).unwrap();
    let mut records = 0;
    LogReader::new(dir(whole))
        .index(&mut |_, _, name| records += usize::from(dir(whole).segment_path(name) == path))
        .unwrap();
    head.len - 8 - (80 + 20 * records).next_multiple_of(8)
}

#[test]
fn damage_is_told_with_its_place() {
    let opts = options(600, 0);
    let (storage, _) = packed_and_plain(opts, 150);
    let path = segments(&storage)[1].clone();
    let head = PackedHead::decode(&storage.read_file(&path).unwrap()).unwrap();
    let block = head.blocks[1].clone();
    let at = usize::try_from(block.stored_offset).unwrap();
    storage.corrupt(&path, |bytes| bytes[at + 5] ^= 1).unwrap();
    let found = verified(&storage).findings;
    let lost = found.iter().find(|finding| finding.code == "frame.damaged").unwrap();
    for part in [&format!("block at byte {at} of the file"), "checksum of a block", "expected", "found"] {
        assert!(lost.explanation.contains(part), "{part}: {lost:?}");
    }
    assert_eq!((&lost.file, lost.severity), (&path, Severity::Lost));
    let seen = read(&storage, Position(1)).unwrap();
    assert!(seen.gaps.iter().all(|gap| gap.explanation.contains("block at byte")), "{:?}", seen.gaps);
    assert_eq!(seen.gaps.len(), 1);
    let error = LogReader::new(dir(&storage)).plan_fork(ForkPoint::Head, LogId([2; 16])).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("block at byte"), "{error}");
}

/// A block whose checksum holds and which says that it is longer than it may be.
#[test]
fn a_block_never_becomes_longer_than_it_says() {
    let opts = options(600, 0);
    let (storage, _) = packed_and_plain(opts, 150);
    let whole = all(&storage);
    let path = segments(&storage)[1].clone();
    let head = PackedHead::decode(&storage.read_file(&path).unwrap()).unwrap();
    let header = SegmentHeader::decode(&head.header).unwrap();
    let bomb = zstd::bulk::compress(&vec![0; 100 << 20], 1).unwrap();
    let small = zstd::bulk::compress(b"too short", 1).unwrap();
    for evil in [bomb, small, b"\x28\xb5\x2f\xfd".to_vec(), vec![7; 50], b"\x50\x2a\x4d\x18\0\0\0\0".to_vec()]
    {
        let blocks: Vec<_> =
            head.blocks.iter().map(|block| (block.len.max(evil.len()), evil.clone())).collect();
        let file = packed::encode(&header, &head.header, head.next, &blocks);
        let hurt = twin(&storage);
        hurt.put_file(&path, file.unwrap()).unwrap();
        assert!(assert_told(&hurt, &whole, "evil") > 0);
    }
}

/// The head stands twice, at both ends. One that is hurt costs nothing, and is named before the other one is hurt too.
#[test]
fn a_head_that_is_hurt_is_named_and_costs_nothing() {
    let opts = options(600, 0);
    let (storage, _) = packed_and_plain(opts, 150);
    let whole = all(&storage);
    let path = segments(&storage)[1].clone();
    let bytes = storage.read_file(&path).unwrap();
    let len = PackedHead::decode(&bytes).unwrap().encoded_len();
    let copy = bytes.len() - len - PACKED_LOCATOR_LEN;
    let first = "the head of the compressed file is hurt, and its copy was used: ".to_owned();
    let second = format!(
        "from byte {copy} of the file: the copy of the head is hurt; nothing is lost while the first one is whole"
    );
    for (places, text) in [(0..len, first), (copy..bytes.len(), second)] {
        for at in places {
            let hurt = twin(&storage);
            hurt.corrupt(&path, |bytes| bytes[at] ^= 4).unwrap();
            assert_eq!(all(&hurt), whole, "byte {at}");
            let findings = verified(&hurt).findings;
            assert_eq!(findings.len(), 1, "byte {at}: {findings:?}");
            assert_eq!((&findings[0].file, findings[0].severity), (&path, Severity::Warning), "byte {at}");
            assert!(findings[0].explanation.starts_with(&text), "byte {at}: {findings:?}");
        }
    }
    // Cut anywhere in the copy, or with something behind it, it is no copy.
    for change in [copy, copy + 1, bytes.len() - 1, bytes.len() + 1] {
        let hurt = twin(&storage);
        hurt.corrupt(&path, |bytes| bytes.resize(change, 0)).unwrap();
        assert_eq!((all(&hurt), verified(&hurt).findings.len()), (whole.clone(), 1), "{change} bytes");
    }
}

#[test]
fn both_heads_hurt_is_damage_of_one_segment() {
    let opts = options(600, 0);
    let (storage, _) = packed_and_plain(opts, 150);
    let whole = all(&storage);
    for nth in 0..segments(&storage).len() - 1 {
        for at in [60, 140] {
            let hurt = twin(&storage);
            let path = segments(&storage)[nth].clone();
            hurt.corrupt(&path, |bytes| {
                let len = bytes.len();
                bytes[at] ^= 1;
                bytes[140] ^= 2;
                bytes[len - 20] ^= 1;
            })
            .unwrap();
            let missing = assert_told(&hurt, &whole, "both heads");
            assert!(missing > 0 && missing < whole.len() / 2, "{missing}");
            assert_eq!(open(&hurt, opts).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}

/// No crash leaves a log whose last segment is compressed; whoever lost the file behind it has one.
#[test]
fn a_compressed_last_segment_is_sealed_and_nothing_of_it_is_cut() {
    let opts = options(600, 0);
    let (storage, _) = packed_and_plain(opts, 150);
    let files = segments(&storage);
    let (path, gone) = (&files[files.len() - 2], &files[files.len() - 1]);
    storage.remove_file(gone).unwrap();
    storage.sync_dir(Path::new(SEGMENTS)).unwrap();
    let whole = all(&storage);
    assert_eq!(verified(&storage).findings, []);
    let bytes = storage.read_file(path).unwrap();
    for at in (0..bytes.len()).step_by(3) {
        let hurt = twin(&storage);
        hurt.corrupt(path, |bytes| bytes[at] ^= 0x10).unwrap();
        let missing = assert_told_at_end(&hurt, &whole, &format!("byte {at}"));
        match open(&hurt, opts) {
            Ok((writer, report)) => {
                // Of its index, which no record is in, the hurt rest may be cut off.
                assert_eq!(report.last, whole.last().unwrap().position, "byte {at}: {report:?}");
                writer.append(batch(1, &[1]), Durability::Sync).unwrap();
                assert_eq!(all(&hurt)[..whole.len()], whole, "byte {at}");
                assert!(!missing);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}"),
        }
    }
    let (writer, report) = open(&storage, opts).unwrap();
    assert_eq!((report.cut, report.removed), (None, None));
    writer.append(batch(1, &[1]), Durability::Sync).unwrap();
    assert_eq!(segments(&storage).len(), files.len(), "a new segment was begun");
    writer.close().unwrap();
    compress(&storage, opts, usize::MAX, 100);
    assert!(is_packed(&storage, path), "its plain copy is compressed like any other");
    assert_eq!(all(&storage).len(), whole.len() + 1);
}

/// Whether records are missing at the end of a log, which a reader tells.
fn assert_told_at_end(storage: &SimStorage, whole: &[Logged], what: &str) -> bool {
    let seen = read(storage, Position(1)).unwrap();
    assert!(seen.records.iter().all(|record| whole.contains(record)), "{what}");
    let missing = seen.records.len() < whole.len();
    let is_told =
        !seen.gaps.is_empty() && seen.tail == TailState::Damaged || matches!(seen.tail, TailState::Newer(_));
    assert!(!missing || is_told || !seen.gaps.is_empty(), "{what}: {seen:?}");
    let worst = verified(storage).findings.iter().map(|finding| finding.severity).max();
    assert!(!missing || worst >= Some(Severity::Warning), "{what}");
    missing
}

/// Compresses on a storage that a test watches. Gives what came of it.
fn compress_on(storage: Arc<dyn Storage>, opts: LogOptions) -> Result<u64, Error> {
    let recovering = Recovering::open(dir_on(storage), opts, Position::START)?;
    let (writer, _) = recovering.finish()?;
    writer.compress(usize::MAX, packing(200)).map(|done| done.segments)
}

#[test]
fn a_crash_at_any_call_leaves_the_one_file_or_the_other() {
    let opts = options(600, 0);
    let storage = written(3, opts, 20);
    let whole = all(&storage);
    let moments = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let (inner, moments) = (storage.clone(), Arc::clone(&moments));
        move |kind| {
            if kind != CallKind::Read {
                let modes = [CrashMode::KeepAll, CrashMode::LoseAll].into_iter();
                let mut moments = moments.lock().unwrap();
                for mode in modes.chain((0..6).map(CrashMode::Seeded)) {
                    moments.push((inner.power_cut(mode), mode));
                }
            }
        }
    };
    let hooked = Arc::new(Hooked { inner: storage.clone(), hook: Arc::new(hook) });
    assert!(compress_on(hooked, opts).unwrap() > 2);
    let modes = [CrashMode::LoseAll, CrashMode::Seeded(1), CrashMode::Seeded(2)];
    moments.lock().unwrap().extend(modes.map(|mode| (storage.power_cut(mode), mode)));
    let moments = moments.lock().unwrap();
    assert!(moments.len() > 100, "{}", moments.len());
    for (nth, (disk, mode)) in moments.iter().enumerate() {
        let what = format!("moment {nth}, {mode:?}");
        assert_eq!(all(disk), whole, "{what}");
        let found = verified(disk);
        assert!(found.findings.iter().all(|f| f.severity < Severity::Repairable), "{what}: {found:#?}");
        let (writer, _) = open(disk, opts).unwrap();
        writer.append(batch(90, &[3]), Durability::Sync).unwrap();
        assert!(disk.files().iter().all(|path| path.extension().is_none_or(|it| it != "new")), "{what}");
        writer.compress(usize::MAX, packing(100)).unwrap();
        disk.crash(CrashMode::LoseAll);
        assert_eq!(all(disk)[..whole.len()], whole, "{what}");
    }
}

#[test]
fn an_error_at_any_call_is_told_and_harms_nothing() {
    let opts = options(600, 0);
    let storage = written(3, opts, 20);
    let whole = all(&storage);
    let calls = {
        let storage = twin(&storage);
        let (writer, _) = open(&storage, opts).unwrap();
        storage.take_calls();
        writer.compress(usize::MAX, packing(200)).unwrap();
        storage.take_calls()
    };
    assert!(calls.len() > 20);
    for (after, call) in calls.iter().enumerate() {
        for error in [FaultError::EIO, FaultError::ENOSPC] {
            let storage = twin(&storage);
            let (writer, _) = open(&storage, opts).unwrap();
            let fault = Fault::any(error).after(u64::try_from(after).unwrap()).written(100);
            storage.fail(fault);
            let failed = writer.compress(usize::MAX, packing(200)).unwrap_err();
            assert!(matches!(failed.kind(), ErrorKind::Io | ErrorKind::Full), "{call}: {failed:?}");
            assert_eq!(all(&storage), whole, "{call}");
            writer.append(batch(70, &[4]), Durability::Sync).unwrap();
            assert!(
                writer.compress(usize::MAX, packing(200)).unwrap().segments > 0 || after + 2 > calls.len()
            );
            writer.close().unwrap();
            let files = segments(&storage);
            assert!(files[..files.len() - 1].iter().all(|path| is_packed(&storage, path)), "{call}");
            storage.crash(CrashMode::LoseAll);
            assert_eq!(all(&storage)[..whole.len()], whole, "{call}");
            assert_eq!(verified(&storage).findings, [], "{call}");
        }
    }
}

/// What is written is read back before it takes a place.
#[test]
fn a_disk_that_writes_something_else_is_noticed() {
    let opts = options(600, 0);
    for at in [3, 130, 400, 500] {
        let storage = written(3, opts, 20);
        let whole = all(&storage);
        let hook = {
            let inner = storage.clone();
            move |kind| {
                let is_new = |path: &PathBuf| path.extension().is_some_and(|it| it == "new");
                if kind == CallKind::Rename
                    && let Some(path) = inner.files().into_iter().find(is_new)
                    && is_packed(&inner, &path)
                {
                    panic!("it was not read back");
                }
                // Between the sync and the reading.
                if kind == CallKind::SyncAll
                    && let Some(path) = inner.files().into_iter().find(is_new)
                    && is_packed(&inner, &path)
                {
                    inner.corrupt(path, |bytes| bytes[at] ^= 1).unwrap();
                }
            }
        };
        let hooked = Arc::new(Hooked { inner: storage.clone(), hook: Arc::new(hook) });
        let error = compress_on(hooked, opts).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Io, "compress.differs"));
        assert_eq!(all(&storage), whole);
        assert!(segments(&storage).iter().all(|path| !is_packed(&storage, path)));
        assert!(storage.files().iter().all(|path| path.extension().is_none_or(|it| it != "new")));
    }
}

fn bytes_read(calls: &[Call]) -> u64 {
    let len = |call: &Call| match call {
        Call::Read { len, .. } => *len,
        _ => 0,
    };
    calls.iter().map(len).sum()
}

#[test]
fn the_last_page_costs_its_blocks() {
    let storage = disk();
    let opts = options(400_000, 0);
    let writer = create(&storage, opts);
    let records = 1500_u64;
    for tag in 0..records {
        writer.append(batch(tag, &[250]), Durability::Sync).unwrap();
    }
    let block_len = 8192;
    assert_eq!(writer.compress(usize::MAX, packing(block_len)).unwrap().segments, 1);
    let path = segments(&storage)[0].clone();
    let file_len = u64::try_from(storage.read_file(&path).unwrap().len()).unwrap();
    let head = PackedHead::decode(&storage.read_file(&path).unwrap()).unwrap();
    let next = head.next.0;
    assert!(file_len > 250_000 && next > 1000, "{file_len}, {next}");
    let footer: u64 = head
        .blocks
        .iter()
        .filter(|block| block.offset >= footer_offset(&storage, &path))
        .map(|block| u64::try_from(block.stored_len).unwrap())
        .sum();
    // 50 records of about 400 bytes, in as many blocks as they need and those at their ends.
    let page = (50 * 400 / u64::try_from(block_len).unwrap() + 2) * u64::try_from(block_len).unwrap();
    storage.take_calls();
    let reader = LogReader::new(dir(&storage));
    let mut seen = 0;
    reader
        .read(Position(next - 50), &mut |_| {
            seen += 1;
            if seen == 50 { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
        })
        .unwrap();
    let calls: Vec<Call> = storage.take_calls().into_iter().filter(|call| call.path() == path).collect();
    let read = bytes_read(&calls);
    assert!(read <= 4096 + footer + page, "{read} bytes, footer {footer}: {calls:?}");
    // One record.
    let mut place = None;
    reader
        .index(&mut |at, entry, name| place = (at.0 == next / 2).then_some((name, entry)).or(place))
        .unwrap();
    let calls: Vec<Call> = storage.take_calls().into_iter().filter(|call| call.path() == path).collect();
    assert!(bytes_read(&calls) <= 4096 + footer, "an index decompresses no record: {calls:?}");
    let (name, entry) = place.unwrap();
    reader.read_frame(name, entry.frame_offset, &mut |_| ()).unwrap();
    let calls = storage.take_calls();
    let read = bytes_read(&calls);
    assert!(read <= 4096 + u64::try_from(block_len).unwrap() + 512, "{read}: {calls:?}");
    assert_eq!(calls.iter().filter(|call| call.kind() == CallKind::Read).count(), 2, "{calls:?}");
}

#[test]
fn appends_go_on_while_segments_are_compressed() {
    let storage = disk();
    let opts = options(900, 0);
    let writer = create(&storage, opts);
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| {
            for tag in 0..300 {
                writer.append(text(tag, &[100]), Durability::Sync).unwrap();
            }
        });
        while !appending.is_finished() {
            writer.compress(1, packing(300)).unwrap();
        }
    });
    let closed = writer.compress(usize::MAX, packing(300));
    closed.unwrap();
    assert_eq!(all(&storage).len(), 300);
    assert_eq!(verified(&storage).findings, []);
    let packed = segments(&storage).iter().filter(|path| is_packed(&storage, path)).count();
    assert_eq!(packed + 1, segments(&storage).len());
}
