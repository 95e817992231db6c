//! Compressed segments. The first byte chooses: 0, the bytes are the file of a log's only segment; else they are a length of
//! blocks, changes of a compressed file (some of which keep its head's checksum), and the records of a log of several
//! segments, compressed, one of which is changed.
//!
//! Asserted: decoding and reading never panic and change nothing; a head that decodes has blocks without gaps; nothing is
//! read but what was written, from wherever the reading begins; a log that opens has lost nothing that was read before; and
//! a log without a change is the same as it was plain.
#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use sessionlog::ErrorKind;
use sessionlog::log::{Batch, Durability, LogReader, LogWriter, Packing, Recovering, SegmentName, TailState};
use sessionlog::storage::SimStorage;
use sessionlog_codec::ids::Position;
use sessionlog_codec::limits::{PACKED_LOCATOR_LEN, SEGMENT_HEADER_LEN};
use sessionlog_codec::packed::{self, PackedHead};
use support::disk::{LOG, OPTIONS, SEGMENTS, content, dir, disk, records};
use support::{below, byte, script};

mod support;

fn check_head(bytes: &[u8]) {
    let _ = packed::is_packed(bytes);
    let _ = packed::locate(&bytes[bytes.len().saturating_sub(PACKED_LOCATOR_LEN)..]);
    let Ok(head) = PackedHead::decode(bytes) else { return };
    let mut at = SEGMENT_HEADER_LEN;
    for block in &head.blocks {
        assert_eq!(block.offset, at);
        at += block.len;
    }
    assert_eq!(head.len, at);
    assert_eq!(head.blocks_of(&(0..at)), head.blocks);
}

/// Changes a file; `forge`: its head's checksum holds afterwards.
fn change(input: &mut Unstructured<'_>, bytes: &mut Vec<u8>, forge: bool) {
    let at = below(input, bytes.len().max(1));
    match byte(input) % 4 {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, byte(input)),
        _ => {
            for place in bytes.iter_mut().skip(at).take(1 + usize::from(byte(input)) % 4) {
                *place = byte(input);
            }
        }
    }
    if forge
        && let Ok(end) = packed::head_len(bytes)
        && end <= bytes.len()
    {
        let crc = crc32fast::hash(&bytes[SEGMENT_HEADER_LEN..end - 4]);
        bytes[end - 4..end].copy_from_slice(&crc.to_le_bytes());
    }
}

fn written(input: &[u8]) -> SimStorage {
    let storage = disk();
    let writer = LogWriter::create(dir(&storage), OPTIONS, LOG).unwrap();
    for frame in script::frames(input) {
        writer.append(Batch::new(frame).unwrap(), Durability::Buffered).unwrap();
    }
    writer.close().unwrap();
    storage
}

fn raw(data: &[u8]) {
    check_head(data);
    let storage = disk();
    storage.put_file(format!("{SEGMENTS}/{}", SegmentName(Position(1))), data).unwrap();
    let before = content(&storage);
    let (seen, _) = records(&storage).unwrap();
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0), "positions rise");
    LogReader::new(dir(&storage)).verify().unwrap();
    assert!(content(&storage) == before, "a reader changed something");
    if let Ok(recovering) = Recovering::open(dir(&storage), OPTIONS, Position::START) {
        drop(recovering.finish());
        assert!(records(&storage).unwrap().0 == seen, "recovery changed what can be read");
    }
}

fn changed(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let packing =
        Packing { block_len: 1 + 8 * usize::from(byte(&mut input)), least_saved: 0, least_percent: 0 };
    let forged: Vec<bool> = (0..byte(&mut input) % 4).map(|_| byte(&mut input) % 2 > 0).collect();
    let which = usize::from(byte(&mut input));
    let changes = input.bytes(input.len().min(forged.len() * 8)).unwrap_or_default();
    let storage = written(input.take_rest());
    let (whole, _) = records(&storage).unwrap_or_default();
    let Ok(recovering) = Recovering::open(dir(&storage), OPTIONS, Position::START) else { return };
    let (writer, _) = recovering.finish().unwrap();
    writer.compress(usize::MAX, packing).unwrap();
    writer.close().unwrap();
    assert!(records(&storage).unwrap() == (whole.clone(), 0), "compressing changed what can be read");
    let files = storage.files();
    let path = &files[which % files.len()];
    let mut bytes = storage.read_file(path).unwrap();
    for (forge, chunk) in forged.iter().zip(changes.chunks(8)) {
        change(&mut Unstructured::new(chunk), &mut bytes, *forge);
    }
    check_head(&bytes);
    storage.put_file(path, bytes).unwrap();
    let before = content(&storage);
    let (seen, _) = records(&storage).unwrap();
    assert!(seen.iter().all(|record| whole.contains(record)), "something else is read");
    for from in [2, 5, 11] {
        let read = LogReader::new(dir(&storage)).read(Position(from), &mut |item| {
            if let sessionlog::log::ReadItem::Record(record) = item {
                assert!(whole.iter().any(|it| (it.0, it.2) == (record.position, record.payload.digest())));
            }
            std::ops::ControlFlow::Continue(())
        });
        let _: TailState = read.unwrap();
    }
    LogReader::new(dir(&storage)).verify().unwrap();
    assert!(content(&storage) == before, "a reader changed something");
    match Recovering::open(dir(&storage), OPTIONS, Position::START) {
        Ok(recovering) => {
            drop(recovering.finish());
            assert!(records(&storage).unwrap().0 == seen, "recovery changed what can be read");
        }
        Err(error) => {
            let expected = [ErrorKind::Corrupt, ErrorKind::Unsupported, ErrorKind::NotFound];
            assert!(expected.contains(&error.kind()), "{error:?}");
        }
    }
}

fuzz_target!(|data: &[u8]| match data.split_first() {
    None => {}
    Some((0, rest)) => raw(rest),
    Some((_, rest)) => changed(rest),
});
