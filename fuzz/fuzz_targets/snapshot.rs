//! Snapshots of a session. The first byte chooses: 0, the rest is the file of a snapshot; 1, it is the content of a place's stored
//! value, under a header that is right, before the folds of a real one; 2, it is that of the folds', behind a real place; else it
//! is changes of a real one, after which its checksums are right again.
//!
//! Asserted: reading and resuming never panic; whatever a snapshot says, no record of the log is lost or changed; one that
//! is not believed gives what the log gives.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use sessionlog::codec::ids::{NodeId, SessionId};
use sessionlog::storage::{Access, CrashMode, SimStorage, Storage};
use sessionlog::{
    LogOptions, Message, NewSession, SnapshotPolicy, Store, StoreOptions, SystemClock, ViewPolicy,
};
use support::{below, byte};

mod support;

const ID: SessionId = SessionId([7; 16]);
const HEADER_LEN: usize = 6;

fn store(storage: &SimStorage) -> Store {
    let options = StoreOptions {
        views: ViewPolicy::Off,
        snapshots: SnapshotPolicy::Every { records: 4, messages: 2 },
        log: LogOptions { segment_len: 2048, fill_len: 512 },
        ..StoreOptions::default()
    };
    Store::open_on(Arc::new(storage.clone()), Arc::new(SystemClock), "home", options).unwrap()
}

/// A session of a few turns.
struct Recorded {
    storage: SimStorage,
    /// Its log's last position.
    last: u64,
    /// How many entries its transcript has once it is resumed.
    entries: usize,
    snapshots: PathBuf,
    /// The content of one.
    real: Vec<u8>,
}

fn recorded() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let storage = SimStorage::new();
        let session =
            store(&storage).create("/w", NewSession { id: Some(ID), ..NewSession::new("x") }).unwrap();
        for turn in 0..8 {
            session.prompt(Message::user(format!("question {turn}"))).unwrap();
            session.append(Message::assistant("look").call("c", "read", "{}")).unwrap();
            session.end_turn(sessionlog::codec::event::TurnOutcome::Completed).unwrap();
        }
        let snapshots = session.place().dir.join("snapshots");
        session.close().unwrap();
        let last = store(&storage).reader().session(ID).unwrap().log().verify().unwrap().last.0;
        let real = storage.read_file(snapshots.join("0.snapshot")).unwrap();
        let copy = storage.power_cut(CrashMode::KeepAll);
        let entries = store(&copy).resume(ID).unwrap().0.transcript().unwrap().len();
        Recorded { storage, last, entries, snapshots, real }
    })
}

fn spelled(input: &[u8], real: &[u8]) -> Vec<u8> {
    let Some((choice, rest)) = input.split_first() else { return Vec::new() };
    let place_len = u32::from_le_bytes(real[..4].try_into().unwrap()) as usize;
    let (place, folds) = real[4..].split_at(place_len);
    let (mut place, mut folds) = (place[HEADER_LEN..].to_vec(), folds[HEADER_LEN..].to_vec());
    match choice {
        0 => return rest.to_vec(),
        1 => place = rest.to_vec(),
        2 => folds = rest.to_vec(),
        _ => {
            let mut changes = Unstructured::new(rest);
            while !changes.is_empty() {
                let body = if byte(&mut changes) % 2 == 0 { &mut place } else { &mut folds };
                let at = below(&mut changes, body.len().max(1));
                match body.get_mut(at) {
                    Some(place) if byte(&mut changes) % 8 > 0 => *place = byte(&mut changes),
                    _ => body.truncate(at),
                }
            }
        }
    }
    let stored = |body: &[u8]| [&real[4..6], &crc32fast::hash(body).to_le_bytes(), body].concat();
    let place = stored(&place);
    [&u32::try_from(place.len()).unwrap().to_le_bytes()[..], &place, &stored(&folds)].concat()
}

fn put(storage: &SimStorage, path: &Path, bytes: &[u8]) {
    let file = storage.open(path, Access::ReadWrite).unwrap();
    file.set_len(0).unwrap();
    file.write_at(bytes, 0).unwrap();
}

fuzz_target!(|input: &[u8]| {
    let Recorded { storage, last, entries, snapshots: dir, real } = recorded();
    let storage = storage.power_cut(CrashMode::KeepAll);
    storage.remove_file(&dir.join("1.snapshot")).unwrap();
    put(&storage, &dir.join("0.snapshot"), &spelled(input, real));
    let reader = store(&storage).reader().session(ID).unwrap();
    let _ = reader.summary();
    let _ = reader.open_calls();
    let _ = reader.context(NodeId::ROOT);
    let _ = reader.newest(NodeId::ROOT, 5);
    if let Ok((session, report)) = store(&storage).resume(ID) {
        if report.snapshot.is_none() {
            assert_eq!(session.transcript().unwrap().len(), *entries);
        }
        let _ = session.context();
        let _ = session.append(Message::user("and?"));
        let _ = session.close();
    }
    let verified = reader.log().verify().unwrap();
    assert!(verified.last.0 >= *last, "{verified:?}");
});
