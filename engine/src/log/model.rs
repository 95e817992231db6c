//! The commit queue under a model checker: loom runs each scenario once for every order in which its threads can meet.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p sessionlog --lib log::model
//! ```
//!
//! Two threads are tried in every order there is. Three are tried in every order with at most [`PREEMPTIONS`] switches
//! that nothing forced, which is where lost wake-ups and double turns are found; with `LOOM_MAX_PREEMPTIONS=5` it looks
//! further, for minutes.
//! loom itself reports a deadlock, and so every wake-up that was lost. The queue asserts that no slot is filled twice.
//! Below the queue is the simulated disk, whose locks are not modelled: nobody is interrupted while it works.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic, and says how far it looked"
)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread::{self, JoinHandle};
use sessionlog_codec::ids::{KindNo, LogId, NodeId, Position, SchemaVersion, Timestamp};
use sessionlog_codec::record::{Envelope, Payload};

use super::{
    Batch, Durability, LogDir, LogOptions, LogReader, LogWriter, NewRecord, Reached, ReadItem, Receipt,
};
use crate::error::{ErrorKind, Result};
use crate::storage::{Call, CallKind, CrashMode, Fault, FaultError, SimStorage, Storage};

/// Of three threads: how often one may be stopped where it could have gone on.
const PREEMPTIONS: usize = 3;

/// loom's own stacks are too small for a disk on them, in words.
const STACK: usize = 64 << 10;

const SEGMENTS: &str = "log";

/// A writer on a disk of its own, shared by the threads of one run.
#[derive(Clone)]
struct World {
    storage: SimStorage,
    writer: Arc<LogWriter>,
}

/// What a log holds: which batch each position belongs to.
type Content = BTreeMap<Position, u8>;

impl World {
    fn new(options: LogOptions) -> Self {
        let storage = SimStorage::new();
        storage.create_dir(Path::new(SEGMENTS)).unwrap();
        storage.sync_dir(Path::new(".")).unwrap();
        let writer = LogWriter::create(dir(&storage), options, LogId([7; 16])).unwrap();
        storage.take_calls();
        Self { storage, writer: Arc::new(writer) }
    }

    fn spawn<T: Send + 'static>(&self, act: impl FnOnce(&Self) -> T + Send + 'static) -> JoinHandle<T> {
        let world = self.clone();
        thread::Builder::new().stack_size(STACK).spawn(move || act(&world)).unwrap()
    }

    /// Appends batch `tag`, and believes nothing that it is told of it.
    fn append(&self, tag: u8, durability: Durability) -> Result<Receipt> {
        self.told(tag, durability, self.writer.append(batch(tag), durability))
    }

    fn told(&self, tag: u8, durability: Durability, told: Result<Receipt>) -> Result<Receipt> {
        if let Ok(receipt) = &told {
            assert_eq!(receipt.last.0 - receipt.first.0 + 1, records_of(tag), "{receipt:?}");
            assert!(durability != Durability::Sync || receipt.reached == Reached::Durable, "{receipt:?}");
            // A loss of power at this very moment keeps what is said to be durable, an end of the process what is written.
            let crash = match receipt.reached {
                Reached::Durable => CrashMode::LoseAll,
                Reached::Written => CrashMode::KeepAll,
            };
            self.assert_kept(tag, receipt, &content(&self.storage.power_cut(crash)));
        }
        told
    }

    fn assert_kept(&self, tag: u8, receipt: &Receipt, content: &Content) {
        for position in receipt.first.0..=receipt.last.0 {
            assert_eq!(
                content.get(&Position(position)),
                Some(&tag),
                "acknowledged: {receipt:?}, {content:?}"
            );
        }
    }

    /// What was acknowledged and nothing else is in the log, without a gap; it is the same after a loss of power if
    /// everything was made durable.
    fn check_end(&self, outcomes: &[(u8, Result<Receipt>)], crash: CrashMode) {
        let kept = content(&self.storage.power_cut(crash));
        let mut expected = 0;
        for (tag, outcome) in outcomes {
            if let Ok(receipt) = outcome {
                self.assert_kept(*tag, receipt, &kept);
                expected += records_of(*tag);
            }
        }
        let positions: Vec<_> = kept.keys().map(|position| position.0).collect();
        assert_eq!(positions, (1..=expected).collect::<Vec<_>>(), "{outcomes:?}, {kept:?}");
        assert_eq!(self.writer.next(), Position(expected + 1), "{outcomes:?}");
    }

    /// The first sync failed: it is the last thing that was done to the disk, and the writer is closed for good.
    fn check_closed_by_a_sync(&self, outcomes: &[(u8, Result<Receipt>)]) {
        let calls = self.storage.calls();
        let changes = |call: &&Call| call.kind().changes_bytes();
        let after_sync = calls.iter().skip_while(|call| call.kind() != CallKind::SyncData).skip(1);
        assert_eq!(after_sync.filter(changes).count(), 0, "touched after a failed sync: {calls:?}");
        for (tag, outcome) in outcomes {
            assert!(outcome.is_err(), "batch {tag} after a failed sync: {outcome:?}");
        }
        for durability in [Durability::Sync, Durability::Buffered] {
            assert_eq!(self.writer.append(batch(9), durability).unwrap_err().kind(), ErrorKind::Closed);
        }
        assert_eq!(self.writer.sync().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(self.writer.durable(), Position::START);
        assert_eq!(content(&self.storage.power_cut(CrashMode::LoseAll)), Content::new());
    }
}

impl CallKind {
    fn changes_bytes(self) -> bool {
        matches!(self, Self::Write | Self::SetLen | Self::SyncData | Self::SyncAll | Self::Create)
    }
}

fn dir(storage: &SimStorage) -> LogDir {
    LogDir { storage: Arc::new(storage.clone()), segments: SEGMENTS.into(), quarantine: "quarantine".into() }
}

/// Small, so that a few batches roll; and no zeros written ahead.
const SHORT: LogOptions = LogOptions { segment_len: 300, fill_len: 0 };
const LONG: LogOptions = LogOptions { segment_len: 1 << 20, fill_len: 0 };

/// A batch of one record, or of two if its tag is odd.
fn batch(tag: u8) -> Batch {
    let envelope = Envelope::new(NodeId::ROOT, KindNo(20), SchemaVersion(1), Timestamp(0));
    let record = NewRecord { envelope, payload: vec![tag; 8] };
    Batch::new(vec![record; usize::try_from(records_of(tag)).unwrap()]).unwrap()
}

fn records_of(tag: u8) -> u64 {
    1 + u64::from(tag % 2)
}

fn content(storage: &SimStorage) -> Content {
    let mut found = Content::new();
    LogReader::new(dir(storage))
        .read(Position::START, &mut |item| {
            let ReadItem::Record(record) = item else { panic!("{item:?}") };
            let Payload::Present(payload) = record.payload else { panic!("{record:?}") };
            found.insert(record.position, payload[0]);
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn full_disk() -> Fault {
    Fault::new(CallKind::Write, FaultError::ENOSPC).written(90)
}

/// Runs a scenario in every order: of three threads, with [`PREEMPTIONS`].
fn explore(name: &str, threads: usize, options: LogOptions, scenario: fn(&World)) {
    let mut model = loom::model::Builder::new();
    if threads > 2 && model.preemption_bound.is_none() {
        model.preemption_bound = Some(PREEMPTIONS);
    }
    let orders = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&orders);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        // It is one of the threads itself.
        let first = thread::Builder::new().stack_size(STACK);
        first.spawn(move || scenario(&World::new(options))).unwrap().join().unwrap();
    });
    println!("{name}: {} orders", orders.load(Ordering::Relaxed));
}

// --- Nothing fails.

#[test]
fn two_appends() {
    explore("two appends", 2, LONG, |world| {
        let other = world.spawn(|world| world.append(1, Durability::Sync));
        let mine = world.append(2, Durability::Sync);
        let outcomes = [(1, other.join().unwrap()), (2, mine)];
        assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "{outcomes:?}");
        assert_eq!(world.writer.durable(), Position(3));
        world.check_end(&outcomes, CrashMode::LoseAll);
    });
}

#[test]
fn three_appends_over_a_roll() {
    explore("three appends over a roll", 3, SHORT, |world| {
        let others = [1, 2].map(|tag| (tag, world.spawn(move |world| world.append(tag, Durability::Sync))));
        let mine = world.append(3, Durability::Buffered);
        let mut outcomes = others.map(|(tag, other)| (tag, other.join().unwrap())).to_vec();
        outcomes.push((3, mine));
        assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "{outcomes:?}");
        world.writer.sync().unwrap();
        world.check_end(&outcomes, CrashMode::LoseAll);
    });
}

/// Positions are given when a batch is queued, whoever waits first and whoever writes. Of two that expect the same one,
/// one is refused, and nothing of it is queued.
#[test]
fn positions_are_given_in_the_order_of_the_queue() {
    fn queue(world: &World, tag: u8) -> Option<(u8, Result<Receipt>)> {
        let first = world.writer.enqueue(batch(tag), Position(1), Durability::Sync);
        let ticket = first.inspect_err(|error| assert_eq!(error.kind(), ErrorKind::Conflict)).ok()?;
        let (first, last) = (ticket.first, ticket.last);
        let receipt = world.told(tag, Durability::Sync, ticket.wait()).unwrap();
        assert_eq!(
            (first, receipt.first, receipt.last),
            (Position(1), first, last),
            "the ticket said otherwise"
        );
        Some((tag, Ok(receipt)))
    }
    explore("positions", 2, LONG, |world| {
        let other = world.spawn(|world| queue(world, 1));
        let mine = queue(world, 2);
        let behind = (3, world.append(3, Durability::Sync));
        let outcomes: Vec<_> = [mine, other.join().unwrap(), Some(behind)].into_iter().flatten().collect();
        assert!(outcomes.len() >= 2, "{outcomes:?}");
        world.check_end(&outcomes, CrashMode::LoseAll);
    });
}

#[test]
fn flush_and_sync_beside_an_append() {
    explore("flush and sync", 3, LONG, |world| {
        let append = world.spawn(|world| world.append(1, Durability::Buffered));
        let sync = world.spawn(|world| {
            world.writer.sync().unwrap();
            world.writer.durable()
        });
        world.writer.flush().unwrap();
        let outcome = append.join().unwrap();
        let durable = sync.join().unwrap();
        assert!(durable == Position::START || durable == Position(2), "{durable}");
        assert_eq!(content(&world.storage.power_cut(CrashMode::LoseAll)).len() as u64, durable.0);
        world.check_end(&[(1, outcome)], CrashMode::KeepAll);
    });
}

#[test]
fn seal_beside_appends() {
    explore("seal", 3, LONG, |world| {
        let append = world.spawn(|world| world.append(1, Durability::Sync));
        let seal = world.spawn(|world| world.writer.seal_longer_than(0).unwrap());
        let mine = world.append(2, Durability::Buffered);
        let sealed = seal.join().unwrap();
        let outcomes = [(1, append.join().unwrap()), (2, mine)];
        assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "{outcomes:?}");
        assert!(content(&world.storage.power_cut(CrashMode::LoseAll)).contains_key(&sealed) || sealed.0 == 0);
        world.writer.sync().unwrap();
        world.check_end(&outcomes, CrashMode::LoseAll);
    });
}

/// What was queued before a close is written, also if nobody waits for it; what comes later is refused.
#[test]
fn close_waits_for_what_is_queued() {
    explore("close", 3, LONG, |world| {
        let ticket = world.writer.enqueue(batch(1), Position(1), Durability::Buffered).unwrap();
        let append = world.spawn(|world| world.append(2, Durability::Sync));
        let close = world.spawn(|world| world.writer.close());
        let queued = Receipt { first: ticket.first, last: ticket.last, reached: Reached::Durable };
        drop(ticket);
        let mine = world.append(4, Durability::Buffered);
        close.join().unwrap().unwrap();
        let outcomes = [(1, Ok(queued)), (2, append.join().unwrap()), (4, mine)];
        for (_, outcome) in &outcomes {
            assert!(outcome.as_ref().is_ok_or_closed(), "{outcome:?}");
        }
        assert_eq!(world.writer.close().unwrap_err().kind(), ErrorKind::Closed);
        world.check_end(&outcomes, CrashMode::LoseAll);
    });
}

#[test]
fn one_of_two_closes_closes() {
    explore("two closes", 3, LONG, |world| {
        let append = world.spawn(|world| world.append(1, Durability::Sync));
        let close = world.spawn(|world| world.writer.close());
        let closes = [world.writer.close(), close.join().unwrap()];
        assert_eq!(closes.iter().filter(|closed| closed.is_ok()).count(), 1, "{closes:?}");
        let outcome = append.join().unwrap();
        assert!(outcome.as_ref().is_ok_or_closed(), "{outcome:?}");
        world.check_end(&[(1, outcome)], CrashMode::LoseAll);
    });
}

trait OkOrClosed {
    fn is_ok_or_closed(&self) -> bool;
}

impl OkOrClosed for std::result::Result<&Receipt, &crate::error::Error> {
    fn is_ok_or_closed(&self) -> bool {
        self.is_ok() || self.is_err_and(|error| error.kind() == ErrorKind::Closed)
    }
}

// --- A sync fails.

#[test]
fn failed_sync_fails_every_append() {
    explore("failed sync, two appends", 2, LONG, |world| {
        world.storage.fail(Fault::new(CallKind::SyncData, FaultError::EIO));
        let other = world.spawn(|world| world.append(1, Durability::Sync));
        let mine = world.append(2, Durability::Sync);
        world.check_closed_by_a_sync(&[(1, other.join().unwrap()), (2, mine)]);
    });
}

/// Whoever waits is woken and told: an append, a request to sync, a close.
#[test]
fn failed_sync_fails_whoever_waits() {
    explore("failed sync, append, sync and close", 3, LONG, |world| {
        let ticket = world.writer.enqueue(batch(1), Position(1), Durability::Sync).unwrap();
        world.storage.fail(Fault::new(CallKind::SyncData, FaultError::EIO));
        let sync = world.spawn(|world| world.writer.sync());
        let close = world.spawn(|world| world.writer.close());
        let mine = ticket.wait();
        assert!(sync.join().unwrap().is_err());
        assert!(close.join().unwrap().is_err());
        world.check_closed_by_a_sync(&[(1, mine)]);
    });
}

/// What an earlier sync made durable stays acknowledged, what a later one should have made durable is refused.
#[test]
fn second_sync_fails() {
    explore("second sync fails", 3, LONG, |world| {
        world.storage.fail(Fault::new(CallKind::SyncData, FaultError::EIO).after(1));
        let others = [1, 2].map(|tag| (tag, world.spawn(move |world| world.append(tag, Durability::Sync))));
        let mine = world.append(3, Durability::Sync);
        let mut outcomes = others.map(|(tag, other)| (tag, other.join().unwrap())).to_vec();
        outcomes.push((3, mine));
        let kept = content(&world.storage.power_cut(CrashMode::LoseAll));
        let acknowledged: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).collect();
        assert!(!acknowledged.is_empty(), "the first sync went well: {outcomes:?}");
        assert_eq!(kept.len() as u64, acknowledged.iter().map(|(tag, _)| records_of(*tag)).sum::<u64>());
        assert_eq!(world.writer.durable().0, kept.len() as u64);
        let closed = world.writer.append(batch(9), Durability::Buffered).err().map(|error| error.kind());
        // One group may have taken all three: then there was one sync, and the fault is still to come.
        let expected = (world.storage.armed_faults() == 0).then_some(ErrorKind::Closed);
        assert_eq!((closed, acknowledged.len() == 3), (expected, expected.is_none()), "{outcomes:?}");
    });
}

// --- A write fails.

/// It is not in the log, nor is what was queued behind it; positions are given again, and nobody is closed.
#[test]
fn failed_write_is_undone() {
    explore("failed write", 3, LONG, |world| {
        world.storage.fail(full_disk());
        let other = world.spawn(|world| world.append(1, Durability::Sync));
        let sync = world.spawn(|world| world.writer.sync());
        let mine = world.append(2, Durability::Buffered);
        let mut outcomes = vec![(1, other.join().unwrap()), (2, mine)];
        sync.join().unwrap().unwrap();
        assert!(outcomes.iter().any(|(_, outcome)| outcome.is_err()), "{outcomes:?}");
        for (_, outcome) in &outcomes {
            assert!(
                outcome.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::Full),
                "{outcome:?}"
            );
        }
        outcomes.push((4, world.append(4, Durability::Sync)));
        assert!(outcomes.iter().any(|(tag, outcome)| *tag == 4 && outcome.is_ok()), "{outcomes:?}");
        world.check_end(&outcomes, CrashMode::LoseAll);
    });
}

/// The first segment can't be followed by another one: what is in the log is acknowledged, the rest refused.
#[test]
fn failed_roll_is_undone() {
    explore("failed roll", 3, SHORT, |world| {
        world.storage.fail(Fault::new(CallKind::Create, FaultError::ENOSPC));
        let others = [1, 3].map(|tag| (tag, world.spawn(move |world| world.append(tag, Durability::Sync))));
        let mine = world.append(5, Durability::Sync);
        let mut outcomes = others.map(|(tag, other)| (tag, other.join().unwrap())).to_vec();
        outcomes.push((5, mine));
        world.storage.clear_faults();
        outcomes.push((7, world.append(7, Durability::Sync)));
        assert!(outcomes.iter().any(|(tag, outcome)| *tag == 7 && outcome.is_ok()), "{outcomes:?}");
        world.check_end(&outcomes, CrashMode::LoseAll);
    });
}
