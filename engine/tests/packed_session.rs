//! Sessions whose sealed segments are compressed: when that happens, and that nobody notices.

#![cfg(feature = "compression")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;

use sessionlog::codec::event::TurnOutcome;
use sessionlog::codec::ids::{Position, SessionId};
use sessionlog::codec::packed::{self, PackedHead};
use sessionlog::log::Severity;
use sessionlog::session::EventItem;
use sessionlog::storage::{CallKind, CrashMode, Fault, FaultError, SimStorage};
use sessionlog::{
    Compression, ForkOptions, ForkPoint, Message, NewSession, Packing, Session, SnapshotPolicy, Store,
    StoreOptions, ViewPolicy,
};
use support::tree::open_with;
use support::unpacked;

const ID: SessionId = SessionId([9; 16]);

fn store(storage: &SimStorage, compression: Compression) -> Store {
    // Nothing else is written beside the log.
    let (views, snapshots) = (ViewPolicy::Off, SnapshotPolicy::Off);
    open_with(storage, StoreOptions { views, snapshots, compression, ..StoreOptions::default() })
}

/// Whatever can be compressed is, in small blocks.
fn eager() -> Compression {
    Compression::With(Packing { block_len: 300, least_saved: 0, least_percent: 0 })
}

fn create(storage: &SimStorage, compression: Compression) -> Session {
    let new = NewSession { id: Some(ID), ..NewSession::new("compressed") };
    store(storage, compression).create("/w", new).unwrap()
}

fn talk(session: &Session, turns: usize) {
    for turn in 0..turns {
        session.prompt(Message::user(format!("question {turn} {}", "what is it ".repeat(30)))).unwrap();
        session.append(Message::assistant(format!("answer {turn} {}", "it is so ".repeat(60)))).unwrap();
        session.end_turn(TurnOutcome::Completed).unwrap();
    }
}

fn segments(storage: &SimStorage, id: SessionId) -> Vec<PathBuf> {
    let of = |path: &PathBuf| path.to_str().unwrap().contains(&format!("{id}/log/"));
    storage.files().into_iter().filter(of).collect()
}

fn packed(storage: &SimStorage, id: SessionId) -> Vec<bool> {
    let files = segments(storage, id);
    files.iter().map(|path| packed::is_packed(&storage.read_file(path).unwrap())).collect()
}

fn holds(storage: &SimStorage, text: &[u8]) -> bool {
    let files = storage.files();
    let segment = |path: &PathBuf| unpacked(storage.read_file(path).unwrap());
    files.iter().any(|path| segment(path).windows(text.len()).any(|window| window == text))
}

#[test]
fn one_at_the_end_of_a_turn_and_the_others_at_close() {
    let storage = SimStorage::new();
    let session = create(&storage, eager());
    for _ in 0..14 {
        session.append(Message::user("before any turn ".repeat(60))).unwrap();
    }
    assert!(packed(&storage, ID).iter().all(|packed| !packed), "nothing but the end of a turn does it");
    let many = segments(&storage, ID).len();
    assert!(many > 4);
    for turn in 1..3 {
        session.prompt(Message::user("now")).unwrap();
        session.end_turn(TurnOutcome::Completed).unwrap();
        let expected: Vec<bool> = (0..segments(&storage, ID).len()).map(|nth| nth < turn).collect();
        assert_eq!(packed(&storage, ID), expected);
    }
    session.close().unwrap();
    let packed = packed(&storage, ID);
    let (last, sealed) = packed.split_last().unwrap();
    assert!(!last && sealed.iter().all(|packed| *packed), "{packed:?}");
}

#[test]
fn a_turn_in_which_nothing_was_sealed_costs_nothing_more() {
    let turn = |compression: Compression| {
        let storage = SimStorage::new();
        let session = create(&storage, compression);
        talk(&session, 8);
        session.prompt(Message::user("short")).unwrap();
        session.end_turn(TurnOutcome::Completed).unwrap();
        session.prompt(Message::user("short")).unwrap();
        storage.take_calls();
        session.end_turn(TurnOutcome::Completed).unwrap();
        storage.take_calls().into_iter().map(|call| call.kind()).collect::<Vec<_>>()
    };
    assert_eq!(turn(eager()), turn(Compression::Off));
}

#[test]
fn off_is_off_and_the_default_leaves_small_segments_alone() {
    for compression in [Compression::Off, Compression::default()] {
        let storage = SimStorage::new();
        let session = create(&storage, compression);
        talk(&session, 12);
        session.close().unwrap();
        assert!(packed(&storage, ID).iter().all(|packed| !packed));
    }
}

#[test]
fn what_fails_is_no_error_and_is_tried_again() {
    let storage = SimStorage::new();
    let session = create(&storage, eager());
    for _ in 0..4 {
        session.append(Message::user("before any turn ".repeat(60))).unwrap();
    }
    for error in [FaultError::EIO, FaultError::ENOSPC] {
        session.prompt(Message::user("now")).unwrap();
        storage.fail(Fault::new(CallKind::Create, error));
        session.end_turn(TurnOutcome::Completed).unwrap();
        assert_eq!(storage.armed_faults(), 0, "compressing met it");
        assert!(packed(&storage, ID).iter().all(|packed| !packed));
    }
    session.close().unwrap();
    assert!(packed(&storage, ID)[0]);
    storage.crash(CrashMode::LoseAll);
    let (session, report) = store(&storage, eager()).resume(ID).unwrap();
    assert_eq!(report.cut, None);
    session.close().unwrap();
}

/// Everything a reader tells of a session, as text.
fn told(session: &sessionlog::SessionReader) -> String {
    let mut text = String::new();
    session
        .events(Position(1), &mut |item| {
            let EventItem::Event(event) = item else { panic!("{item:?}") };
            let content = format!("{:?}", event.event);
            // These name processes and logs, which are others each time.
            let differs = ["SessionOpened", "SessionForked"].into_iter().find(|it| content.starts_with(it));
            text.push_str(&format!("{} {}\n", event.position, differs.unwrap_or(&content)));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    let tree = session.tree(Position(u64::MAX)).unwrap();
    text + &format!("{:?}", tree.context(sessionlog::codec::ids::NodeId::ROOT).len())
}

#[test]
fn a_compressed_session_lives_as_its_plain_twin_does() {
    let live = |compression: Compression| {
        let storage = SimStorage::new();
        let mut lines = Vec::new();
        let session = create(&storage, compression);
        talk(&session, 6);
        let secret = session.append(Message::user("My password is hunter2.")).unwrap().receipt.first;
        talk(&session, 6);
        session.close().unwrap();
        lines.push(told(&store(&storage, compression).reader().session(ID).unwrap()));
        let (session, _) = store(&storage, compression).resume(ID).unwrap();
        let fork_id = SessionId([8; 16]);
        let options = ForkOptions { id: Some(fork_id), ..ForkOptions::default() };
        let fork = session.fork(ForkPoint::At(secret), options).unwrap();
        fork.append(Message::user("another way")).unwrap();
        fork.close().unwrap();
        lines.push(told(&store(&storage, compression).reader().session(fork_id).unwrap()));
        assert!(holds(&storage, b"hunter2"));
        for session in [session, store(&storage, compression).resume(fork_id).unwrap().0] {
            let done = session.redact(&BTreeSet::from([secret]), "asked for").unwrap();
            assert_eq!(done.records, 1);
            talk(&session, 3);
            session.close().unwrap();
        }
        assert!(!holds(&storage, b"hunter2"), "no byte of it is left, compressed or not");
        for id in [ID, fork_id] {
            let reader = store(&storage, compression).reader().session(id).unwrap();
            lines.push(told(&reader));
            let verified = reader.verify().unwrap();
            assert_eq!(verified.all().map(|it| it.severity).filter(|it| *it > Severity::Note).count(), 0);
        }
        let compressed = packed(&storage, ID).iter().filter(|packed| **packed).count();
        assert_eq!(compressed > 3, compression != Compression::Off, "{compressed}");
        lines
    };
    for (packed, plain) in live(eager()).iter().zip(&live(Compression::Off)) {
        let first = packed.lines().zip(plain.lines()).find(|(packed, plain)| packed != plain);
        assert!(packed == plain, "{first:?}");
    }
}

/// What a salvage saves of a session of which a compressed segment is hurt.
#[test]
fn a_salvage_loses_the_hurt_block_and_nothing_else() {
    let storage = SimStorage::new();
    let session = create(&storage, eager());
    talk(&session, 12);
    session.close().unwrap();
    let path = segments(&storage, ID)[1].clone();
    let bytes = storage.read_file(&path).unwrap();
    let head = PackedHead::decode(&bytes).unwrap();
    let whole = store(&storage, eager()).reader().session(ID).unwrap().verify().unwrap().log.records;
    for block in &head.blocks {
        let hurt = storage.power_cut(CrashMode::KeepAll);
        let at = usize::try_from(block.stored_offset).unwrap();
        hurt.corrupt(&path, |bytes| bytes[at + 4] ^= 8).unwrap();
        let reader = store(&hurt, eager()).reader().session(ID).unwrap();
        let salvage = reader.plan_salvage(&mut |_| ()).unwrap();
        let spans = salvage.report().spans.clone();
        let lost: u64 = spans.iter().map(|span| span.span.loss.records()).sum();
        assert!(lost <= 6, "{lost} of {whole}: {spans:?}");
        assert!(
            spans.iter().any(|span| span.span.found.contains(&format!("block at byte {at} of the file"))),
            "{spans:?}"
        );
    }
}
