//! Failures at every step: what fails is not there, what was acknowledged is, and nobody waits for ever.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use sessionlog::log::{
    Batch, Durability, LogReader, LogWriter, Reached, Recovering, SegmentName, Severity, TailState,
};
use sessionlog::storage::{
    Access, Call, CallKind, CrashMode, Fault, FaultError, Repeat, SimStorage, Storage,
};
use sessionlog::{Error, ErrorKind};
use sessionlog_codec::footer::{self, FooterEntry};
use sessionlog_codec::frame::{self, FrameFields};
use sessionlog_codec::ids::{Digest, Epoch, Position};
use sessionlog_codec::record::Payload;
use sessionlog_codec::segment::SegmentHeader;
use support::hooked::Hooked;
use support::sample::Sample;
use support::{
    LOG, QUARANTINE, SEGMENTS, all, batch, content, create, dir, dir_on, disk, last, logged, open, options,
    read, read_on, records,
};

/// Long enough for any machine; only a test that hangs waits for it.
const FOR_EVER: Duration = Duration::from_secs(60);

fn fault(kind: CallKind) -> Fault {
    Fault::new(kind, FaultError::EIO)
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

// --- A new log.

#[test]
fn first_acknowledged_record_survives() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 1 << 20));
    writer.append(batch(1, &[10]), Durability::Sync).unwrap();
    storage.crash(CrashMode::LoseAll);
    assert_eq!(all(&storage), logged(Position(1), 1, &[10]));
}

/// A crash while a log is created or its first records are written leaves no log, or a part of the records; never damage.
#[test]
fn crash_at_every_call_of_creation() {
    let opts = options(8 << 20, 4096);
    for calls in 0.. {
        let mut finished = false;
        for seed in 0..40 {
            let storage = disk();
            storage.fail(Fault::any(FaultError::EIO).after(calls).written(700).repeat(Repeat::Always));
            let receipt = LogWriter::create(dir(&storage), opts, LOG)
                .and_then(|writer| writer.append(batch(1, &[1500, 20]), Durability::Sync));
            finished = receipt.is_ok();
            let mode = match seed {
                0 => CrashMode::KeepAll,
                1 => CrashMode::LoseAll,
                _ => CrashMode::Seeded(seed),
            };
            storage.crash(mode);
            match open(&storage, opts) {
                Ok((_, report)) => assert!(report.last == Position(2) || !finished, "{calls} {mode:?}"),
                Err(error) => assert!(
                    error.kind() == ErrorKind::NotFound && !finished,
                    "call {calls}, {mode:?}: {error:?}"
                ),
            }
        }
        if finished {
            assert!(calls >= 6, "creation is more than {calls} calls");
            return;
        }
    }
}

#[test]
fn creating_again_after_a_failure() {
    for failing in [CallKind::Create, CallKind::Write, CallKind::SyncAll, CallKind::SyncDir] {
        let storage = disk();
        storage.fail(fault(failing).written(20));
        assert_eq!(kind(LogWriter::create(dir(&storage), options(512, 0), LOG)), ErrorKind::Io);
        let writer = create(&storage, options(512, 0));
        writer.append(batch(1, &[10]), Durability::Sync).unwrap();
        storage.crash(CrashMode::LoseAll);
        assert_eq!(all(&storage), logged(Position(1), 1, &[10]), "{failing:?}");
    }
}

#[test]
fn a_log_is_not_created_over_another() {
    let storage = disk();
    let writer = create(&storage, options(512, 0));
    writer.append(batch(1, &[10]), Durability::Sync).unwrap();
    assert_eq!(kind(LogWriter::create(dir(&storage), options(512, 0), LOG)), ErrorKind::Io);
    assert_eq!(all(&storage), logged(Position(1), 1, &[10]));
}

#[test]
fn first_append_fails_and_is_repeated() {
    let storage = disk();
    let writer = create(&storage, options(512, 4096));
    storage.fail(Fault::new(CallKind::Write, FaultError::ENOSPC).written(300));
    assert_eq!(kind(writer.append(batch(1, &[200]), Durability::Sync)), ErrorKind::Full);
    let receipt = writer.append(batch(2, &[30]), Durability::Sync).unwrap();
    assert_eq!((receipt.first, receipt.reached), (Position(1), Reached::Durable));
    storage.crash(CrashMode::LoseAll);
    assert_eq!(all(&storage), logged(Position(1), 2, &[30]));
}

// --- Groups that fail in their middle.

/// What is in the log is acknowledged, what is not is refused: also if one group spans two segments and the second can't
/// be begun.
#[test]
fn group_that_spans_a_roll_fails_in_its_middle() {
    for failing in [fault(CallKind::Create), fault(CallKind::SetLen), fault(CallKind::Write).after(1)] {
        let storage = disk();
        let writer = create(&storage, options(400, 0));
        storage.fail(failing.clone());
        let tickets: Vec<_> = (1..=4)
            .map(|tag| writer.enqueue(batch(tag, &[200]), writer.next(), Durability::Sync).unwrap())
            .collect();
        let results: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().map(|r| r.reached)).collect();
        let written = results.iter().take_while(|result| result.is_ok()).count();
        assert!(written > 0 && written < 4, "{failing:?}: {results:?}");
        assert!(results[..written].iter().all(|result| matches!(result, Ok(Reached::Durable))));
        assert!(results[written..].iter().all(Result::is_err));
        let next = Position(u64::try_from(written).unwrap() + 1);
        assert_eq!(writer.next(), next);
        assert_eq!(writer.append(batch(9, &[5]), Durability::Sync).unwrap().first, next);
        storage.crash(CrashMode::LoseAll);
        let mut expected: Vec<_> = (1..next.0).flat_map(|tag| logged(Position(tag), tag, &[200])).collect();
        expected.extend(logged(next, 9, &[5]));
        assert_eq!(all(&storage), expected, "{failing:?}");
    }
}

/// What was queued behind a failed append fails with it; a request to sync does not, and finds the writer usable.
#[test]
fn sync_is_not_refused_for_an_append_before_it() {
    let storage = disk();
    let writer: &'static LogWriter = Box::leak(Box::new(hooked_writer(&storage, |writer, kind, nth| {
        // While the first append is written, a sync is asked for behind it.
        if kind == CallKind::Write && nth == 1 {
            let (sent, received) = mpsc::channel();
            thread::spawn(move || {
                sent.send(()).unwrap();
                SYNCED.get_or_init(|| writer.sync().is_ok());
            });
            received.recv().unwrap();
            while !format!("{writer:?}").contains("sync: Sync") {
                thread::yield_now();
            }
        }
    })));
    static SYNCED: OnceLock<bool> = OnceLock::new();
    WRITER.with_borrow_mut(|slot| *slot = Some(writer));
    writer.append(batch(1, &[10]), Durability::Buffered).unwrap();
    storage.fail(Fault::new(CallKind::Write, FaultError::ENOSPC));
    assert_eq!(kind(writer.append(batch(2, &[10]), Durability::Buffered)), ErrorKind::Full);
    while SYNCED.get().is_none() {
        thread::yield_now();
    }
    assert_eq!(SYNCED.get(), Some(&true));
    assert_eq!(writer.durable(), Position(1));
}

/// What was queued while an append failed had been numbered behind it: it fails too, and its positions are given again.
#[test]
fn failed_append_fails_what_is_queued_behind() {
    let storage = disk();
    let writer: &'static LogWriter = Box::leak(Box::new(hooked_writer(&storage, |writer, kind, nth| {
        if kind == CallKind::Write && nth == 0 {
            let ticket = writer.enqueue(batch(2, &[20, 4]), writer.next(), Durability::Sync).unwrap();
            assert!(BEHIND.set(std::sync::Mutex::new(Some(ticket))).is_ok());
        }
    })));
    static BEHIND: OnceLock<std::sync::Mutex<Option<sessionlog::log::Ticket<'static>>>> = OnceLock::new();
    WRITER.with_borrow_mut(|slot| *slot = Some(writer));
    storage.fail(Fault::new(CallKind::Write, FaultError::ENOSPC).written(90));
    assert_eq!(kind(writer.append(batch(1, &[10]), Durability::Sync)), ErrorKind::Full);
    let behind = BEHIND.get().unwrap().lock().unwrap().take().unwrap();
    assert_eq!(behind.first, Position(2));
    assert_eq!(kind(behind.wait()), ErrorKind::Full);
    assert_eq!(writer.append(batch(3, &[30]), Durability::Sync).unwrap().first, Position(1));
    assert_eq!(all(&storage), logged(Position(1), 3, &[30]));
}

thread_local! {
    /// The writer that a hook acts on.
    static WRITER: std::cell::RefCell<Option<&'static LogWriter>> = const { std::cell::RefCell::new(None) };
}

/// A writer whose storage calls `hook` with the kind of each call and how many of them came before on this thread, once
/// [`WRITER`] is set.
fn hooked_writer(
    storage: &SimStorage,
    hook: impl Fn(&'static LogWriter, CallKind, usize) + Send + Sync + 'static,
) -> LogWriter {
    let seen = AtomicUsize::new(0);
    let hook = move |kind| {
        if let Some(writer) = WRITER.with_borrow(|writer| *writer) {
            let nth = if kind == CallKind::Write { seen.fetch_add(1, Ordering::SeqCst) } else { 0 };
            hook(writer, kind, nth);
        }
    };
    let hooked = Hooked { inner: storage.clone(), hook: Arc::new(hook) };
    LogWriter::create(dir_on(Arc::new(hooked)), options(8 << 20, 4096), LOG).unwrap()
}

// --- Syncs that fail.

#[test]
fn a_failed_sync_is_never_tried_again() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 4096));
    writer.append(batch(1, &[10]), Durability::Sync).unwrap();
    writer.append(batch(2, &[10]), Durability::Buffered).unwrap();
    storage.take_calls();
    storage.fail(fault(CallKind::SyncData));
    assert_eq!(kind(writer.sync()), ErrorKind::Io);
    let syncs = storage.take_calls().iter().filter(|call| call.kind() == CallKind::SyncData).count();
    assert_eq!(syncs, 1, "after a failed sync, another one says Ok of bytes that are gone");
    assert_eq!(writer.durable(), Position(1));
    for _ in 0..3 {
        assert_eq!(kind(writer.append(batch(3, &[1]), Durability::Buffered)), ErrorKind::Closed);
        assert_eq!(kind(writer.enqueue(batch(3, &[1]), Position(3), Durability::Sync)), ErrorKind::Closed);
        assert_eq!(kind(writer.sync()), ErrorKind::Closed);
        assert_eq!(kind(writer.close()), ErrorKind::Closed);
    }
    assert_eq!(storage.take_calls(), [], "a closed writer touches nothing");
    storage.crash(CrashMode::LoseAll);
    assert_eq!(all(&storage), logged(Position(1), 1, &[10]));
}

/// Whichever sync it is: of an append, of a sealed segment, of a new one or of the directory.
#[test]
fn every_failed_sync_closes_for_good() {
    for failing in [CallKind::SyncData, CallKind::SyncAll, CallKind::SyncDir] {
        for nth in 0..2 {
            let storage = disk();
            let writer = create(&storage, options(300, 0));
            writer.append(batch(1, &[200]), Durability::Sync).unwrap();
            storage.fail(fault(failing).after(nth));
            if writer.append(batch(2, &[10]), Durability::Sync).is_ok() {
                assert!(nth == 1 && failing != CallKind::SyncAll);
                continue;
            }
            let next = writer.next();
            assert_eq!(kind(writer.append(batch(3, &[1]), Durability::Sync)), ErrorKind::Closed);
            assert_eq!(writer.next(), next);
            storage.crash(CrashMode::LoseAll);
            let kept = all(&storage);
            assert!(kept.starts_with(&logged(Position(1), 1, &[200])), "{failing:?} {nth}");
            open(&storage, options(300, 0)).unwrap();
        }
    }
}

#[test]
fn write_that_can_not_be_undone_closes_for_good() {
    for then in [CallKind::SetLen, CallKind::SyncData] {
        let storage = disk();
        let writer = create(&storage, options(8 << 20, 4096));
        writer.append(batch(1, &[10]), Durability::Sync).unwrap();
        storage.fail(fault(CallKind::Write).written(5000));
        storage.fail(fault(then));
        assert_eq!(kind(writer.append(batch(2, &[10]), Durability::Sync)), ErrorKind::Io);
        assert_eq!(kind(writer.append(batch(3, &[10]), Durability::Sync)), ErrorKind::Closed);
        storage.crash(CrashMode::KeepAll);
        assert!(all(&storage).starts_with(&logged(Position(1), 1, &[10])));
    }
}

/// Nothing was written, so nothing is in doubt.
#[test]
fn failed_look_for_another_owner_is_harmless() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 4096));
    storage.fail(fault(CallKind::Read));
    assert_eq!(kind(writer.append(batch(1, &[10]), Durability::Sync)), ErrorKind::Io);
    writer.append(batch(2, &[10]), Durability::Sync).unwrap();
    assert_eq!(all(&storage), logged(Position(1), 2, &[10]));
}

// --- Rolling.

/// Whatever stops a roll, and whatever of it survives: the log opens, has what was acknowledged, rolls on and opens again.
#[test]
fn crash_at_every_call_of_a_roll() {
    crash_at_every_call_of_rolling(700);
    // With zeros behind the footer while it is written: the host wants shorter segments than when they were filled.
    crash_at_every_call_of_rolling(1 << 20);
}

fn crash_at_every_call_of_rolling(segment_len_before: u64) {
    let opts = options(700, 4096);
    for calls in 0.. {
        let mut finished = false;
        for seed in 0..60 {
            let storage = disk();
            let writer = create(&storage, options(segment_len_before, 4096));
            // The footer is longer than a sector.
            let acknowledged = [8; 60];
            writer.append(batch(1, &acknowledged), Durability::Sync).unwrap();
            let (writer, _) = open(&storage, opts).unwrap();
            storage.take_calls();
            let written = usize::try_from(seed * 40).unwrap();
            storage.fail(Fault::any(FaultError::EIO).after(calls).written(written).repeat(Repeat::Always));
            finished = writer.append(batch(2, &[10]), Durability::Sync).is_ok();
            let called = storage.take_calls();
            let stopped_at = called.get(usize::try_from(calls).unwrap()).map(Call::kind);
            let sync_failed = stopped_at.is_some_and(support::is_sync);
            let mode = match seed % 10 {
                0..3 => CrashMode::KeepAll,
                3 => CrashMode::LoseAll,
                _ => CrashMode::Seeded(seed),
            };
            if sync_failed && mode == CrashMode::KeepAll {
                // The system still shows bytes that it will never write: nobody can tell. See `Recovering::open`.
                continue;
            }
            storage.crash(mode);
            let what = format!("call {calls}, {mode:?}, seed {seed}");
            let mut expected = logged(Position(1), 1, &acknowledged);
            for round in 0..3 {
                let (writer, _) = open(&storage, opts).unwrap_or_else(|error| panic!("{what}: {error:?}"));
                if round == 0 && writer.next() == Position(62) {
                    expected.extend(logged(Position(61), 2, &[10]));
                }
                assert_eq!(all(&storage), expected, "{what}");
                let first = writer.next();
                writer.append(batch(round + 3, &[500, 100]), Durability::Sync).unwrap();
                expected.extend(logged(first, round + 3, &[500, 100]));
                drop(writer);
                storage.crash(CrashMode::LoseAll);
            }
        }
        if finished {
            assert!(calls > 8, "{calls}");
            return;
        }
    }
}

#[test]
fn next_segment_of_another_owner_is_not_touched() {
    let storage = disk();
    let opts = options(300, 0);
    let stale = create(&storage, opts);
    stale.append(batch(1, &[200]), Durability::Sync).unwrap();
    storage.fail(fault(CallKind::Create));
    assert_eq!(kind(stale.append(batch(2, &[10]), Durability::Sync)), ErrorKind::Io);
    let (owner, _) = open(&storage, opts).unwrap();
    owner.append(batch(3, &[10]), Durability::Sync).unwrap();
    let before = content(&storage);
    assert_eq!(kind(stale.append(batch(4, &[10]), Durability::Sync)), ErrorKind::Fenced);
    assert_eq!(kind(stale.append(batch(4, &[10]), Durability::Sync)), ErrorKind::Fenced);
    assert_eq!(content(&storage), before);
    owner.append(batch(5, &[10]), Durability::Sync).unwrap();
}

/// A footer counts no more records than a frame may: the segment is sealed before.
#[test]
fn more_records_than_a_footer_counts() {
    let storage = disk();
    let opts = options(1 << 30, 0);
    let writer = create(&storage, opts);
    let lens = vec![0; (1 << 19) + 1];
    for tag in [1, 2] {
        writer.append(batch(tag, &lens), Durability::Buffered).unwrap();
    }
    assert_eq!(storage.files().len(), 2);
    writer.close().unwrap();
    let (writer, report) = open(&storage, opts).unwrap();
    assert_eq!(report.last.0, 2 * ((1 << 19) + 1));
    writer.append(batch(3, &[1]), Durability::Sync).unwrap();
}

// --- Cutting.

/// At every moment the bytes that recovery cuts off are in the log or in quarantine, whatever a loss of power takes.
#[test]
fn what_is_cut_off_is_never_lost() {
    let opts = options(8 << 20, 0);
    for calls in 0.. {
        let storage = disk();
        let writer = create(&storage, opts);
        writer.append(batch(1, &[10]), Durability::Sync).unwrap();
        let path = storage.files().pop().unwrap();
        let whole = storage.read_file(&path).unwrap().len();
        writer.append(batch(2, &[300]), Durability::Buffered).unwrap();
        drop(writer);
        // The last frame is torn, and what there is of it is on disk.
        storage.corrupt(&path, |bytes| bytes.truncate(bytes.len() - 100)).unwrap();
        let torn = storage.read_file(&path).unwrap().split_off(whole);
        storage.fail(Fault::any(FaultError::EIO).after(calls).written(30).repeat(Repeat::Always));
        let opened = open(&storage, opts).map(|(_, report)| report.cut.map(|cut| cut.quarantine));
        storage.crash(CrashMode::LoseAll);
        let in_log = storage.read_file(&path).unwrap().ends_with(&torn);
        let is_copy = |file: &PathBuf| storage.read_file(file).is_some_and(|bytes| bytes == torn);
        let copy = storage.files().into_iter().filter(|file| file.starts_with(QUARANTINE)).find(is_copy);
        assert!(in_log || copy.is_some(), "call {calls}: what was cut off is nowhere");
        if let Ok(reported) = opened {
            assert!(!in_log && calls > 8, "{calls}");
            assert_eq!(reported, copy);
            return;
        }
    }
}

// --- Closing.

/// What is queued when the writer is closed is written first, and who waits for it is told.
#[test]
fn closing_does_not_strand_an_append() {
    let storage = disk();
    let writer: &'static LogWriter = Box::leak(Box::new(hooked_writer(&storage, |writer, kind, _| {
        if kind == CallKind::SyncData && TICKET.get().is_none() {
            let ticket = writer.enqueue(batch(2, &[20]), writer.next(), Durability::Buffered).unwrap();
            assert!(TICKET.set(std::sync::Mutex::new(Some(ticket))).is_ok());
        }
    })));
    static TICKET: OnceLock<std::sync::Mutex<Option<sessionlog::log::Ticket<'static>>>> = OnceLock::new();
    WRITER.with_borrow_mut(|slot| *slot = Some(writer));
    let queued = writer.enqueue(batch(1, &[10]), Position(1), Durability::Sync).unwrap();
    writer.close().unwrap();
    let (sent, received) = mpsc::channel();
    thread::spawn(move || {
        let late = TICKET.get().unwrap().lock().unwrap().take().unwrap();
        sent.send((queued.wait().is_ok(), late.wait().is_ok())).unwrap();
    });
    assert_eq!(received.recv_timeout(FOR_EVER), Ok((true, true)));
    storage.crash(CrashMode::LoseAll);
    assert_eq!(all(&storage).len(), 2);
    assert_eq!(kind(writer.close()), ErrorKind::Closed);
    assert_eq!(kind(writer.append(batch(3, &[1]), Durability::Sync)), ErrorKind::Closed);
}

#[test]
fn close_makes_everything_durable_and_gives_space_back() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 1 << 20));
    for tag in 0..10 {
        writer.append(batch(tag, &[100]), Durability::Buffered).unwrap();
    }
    assert_eq!(writer.durable(), Position::START);
    writer.close().unwrap();
    assert_eq!(writer.durable(), Position(10));
    storage.crash(CrashMode::LoseAll);
    assert_eq!(all(&storage).len(), 10);
    let bytes = storage.read_file(storage.files().last().unwrap()).unwrap();
    assert_ne!(bytes.last(), None);
    assert!(bytes.len() < 4096, "zeros were left");
}

#[test]
fn close_that_fails_loses_nothing() {
    for failing in [CallKind::SetLen, CallKind::SyncAll, CallKind::SyncData, CallKind::Read] {
        let storage = disk();
        let writer = create(&storage, options(8 << 20, 1 << 20));
        writer.append(batch(1, &[100]), Durability::Sync).unwrap();
        writer.append(batch(2, &[100]), Durability::Buffered).unwrap();
        // The first read is the look after the sync, which proves nothing if it fails.
        storage.fail(fault(failing).after(u64::from(failing == CallKind::Read)));
        assert_eq!(kind(writer.close()), ErrorKind::Io, "{failing:?}");
        assert_eq!(kind(writer.append(batch(3, &[1]), Durability::Sync)), ErrorKind::Closed);
        storage.crash(CrashMode::LoseAll);
        let kept = all(&storage);
        assert_eq!(kept.len(), if failing == CallKind::SyncData { 1 } else { 2 });
        open(&storage, options(8 << 20, 1 << 20)).unwrap();
    }
}

// --- Threads.

#[test]
fn many_threads() {
    let storage = disk();
    let opts = options(20_000, 4096);
    let writer = create(&storage, opts);
    storage.take_calls();
    let receipts: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8_u64)
            .map(|thread| {
                let writer = &writer;
                let append = move |nth| {
                    let lens: &[usize] = if nth % 3 == 0 { &[20, 5] } else { &[30] };
                    let tag = thread * 1000 + nth;
                    (tag, lens, writer.append(batch(tag, lens), Durability::Sync).unwrap())
                };
                scope.spawn(move || (0..200).map(append).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    storage.crash(CrashMode::LoseAll);
    let log = all(&storage);
    let mut expected: Vec<_> =
        receipts.iter().flat_map(|(tag, lens, receipt)| logged(receipt.first, *tag, lens)).collect();
    expected.sort_by_key(|record| record.position);
    assert!(expected.iter().map(|record| record.position.0).eq(1..=u64::try_from(expected.len()).unwrap()));
    assert!(log == expected, "{} of {} records", log.len(), expected.len());
    assert!(receipts.iter().all(|(.., receipt)| receipt.reached == Reached::Durable));
    for appends in receipts.chunks(200) {
        assert!(appends.windows(2).all(|pair| pair[0].2.last < pair[1].2.first), "a thread's own order");
    }
}

/// An append takes what position comes, whoever else appends at that moment.
#[test]
fn appends_of_threads_never_conflict() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 1 << 20));
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let writer = &writer;
            let batches: Vec<_> = (0..2000).map(|nth| batch(thread * 10_000 + nth, &[1])).collect();
            scope.spawn(move || {
                for batch in batches {
                    writer.append(batch, Durability::Buffered).unwrap();
                }
            });
        }
    });
    assert_eq!(writer.next(), Position(16_001));
}

/// While one thread syncs, the others queue up, and one sync serves them all.
#[test]
fn one_sync_serves_all_that_wait() {
    let storage = disk();
    let writer: &'static LogWriter = Box::leak(Box::new(hooked_writer(&storage, |writer, kind, _| {
        // The first sync takes until all the others wait.
        if kind == CallKind::SyncData && writer.durable() == Position::START {
            while writer.next() < Position(10) {
                thread::yield_now();
            }
        }
    })));
    storage.take_calls();
    let append = move |tag| {
        WRITER.with_borrow_mut(|slot| *slot = Some(writer));
        writer.append(batch(tag, &[10]), Durability::Sync).unwrap()
    };
    let threads: Vec<_> = (1..=9).map(|tag| thread::spawn(move || append(tag))).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let syncs = storage.take_calls().iter().filter(|call| call.kind() == CallKind::SyncData).count();
    assert!(syncs <= 3, "{syncs} syncs for 9 appends");
}

/// Runs appends on 8 threads until each of them failed.
fn until_all_fail(writer: &'static LogWriter) -> Vec<ErrorKind> {
    let (sent, received) = mpsc::channel();
    for thread in 0..8_u64 {
        let sent = sent.clone();
        thread::spawn(move || {
            let append = |nth| writer.append(batch(thread * 1000 + nth, &[10]), Durability::Sync);
            sent.send((0..).find_map(|nth| append(nth).err()).unwrap().kind())
        });
    }
    (0..8).map(|_| received.recv_timeout(FOR_EVER).unwrap()).collect()
}

#[test]
fn failed_sync_fails_every_thread() {
    let storage = disk();
    let writer: &'static LogWriter = Box::leak(Box::new(create(&storage, options(4096, 4096))));
    storage.fail(fault(CallKind::SyncData).after(30));
    let kinds = until_all_fail(writer);
    assert!(kinds.contains(&ErrorKind::Io), "{kinds:?}");
    assert!(kinds.iter().all(|kind| [ErrorKind::Io, ErrorKind::Closed].contains(kind)), "{kinds:?}");
    assert_eq!(kind(writer.append(batch(3, &[1]), Durability::Sync)), ErrorKind::Closed);
}

/// A panic in a storage (or in this crate) costs the writer, not the threads that wait for it.
#[test]
fn panic_while_writing_strands_nobody() {
    for at in [CallKind::Write, CallKind::SyncData] {
        let storage = disk();
        let armed = Arc::new(AtomicBool::new(false));
        let bomb = Arc::clone(&armed);
        let hook = move |kind| {
            assert!(kind != at || !bomb.swap(false, Ordering::SeqCst), "a panic that the test wants");
        };
        let hooked = Hooked { inner: storage.clone(), hook: Arc::new(hook) };
        let writer = LogWriter::create(dir_on(Arc::new(hooked)), options(8 << 20, 0), LOG).unwrap();
        let writer: &'static LogWriter = Box::leak(Box::new(writer));
        let first = writer.append(batch(1, &[10]), Durability::Sync).unwrap();
        let waiting = writer.enqueue(batch(2, &[10]), writer.next(), Durability::Sync).unwrap();
        armed.store(true, Ordering::SeqCst);
        let leader = thread::spawn(move || writer.append(batch(3, &[10]), Durability::Sync));
        assert!(leader.join().is_err(), "it panicked");
        let (sent, received) = mpsc::channel();
        thread::spawn(move || sent.send((kind(waiting.wait()), kind(writer.close()))));
        assert_eq!(received.recv_timeout(FOR_EVER), Ok((ErrorKind::Closed, ErrorKind::Closed)));
        assert_eq!(kind(writer.append(batch(4, &[1]), Durability::Sync)), ErrorKind::Closed);
        storage.crash(CrashMode::LoseAll);
        assert!(last(&all(&storage)) >= first.last);
    }
}

// --- A full disk.

#[test]
fn full_disk_and_room_again() {
    for room in (0..1500).step_by(13) {
        for fill_len in [0, 4096] {
            let storage = disk();
            storage.put_file("ballast", vec![1; 10_000]).unwrap();
            let opts = options(600, fill_len);
            let writer = create(&storage, opts);
            let mut expected = Vec::new();
            let append = |tag| writer.append(batch(tag, &[60, 11]), Durability::Sync);
            expected.extend(logged(append(1).unwrap().first, 1, &[60, 11]));
            let used = content(&storage).values().map(Vec::len).sum::<usize>();
            storage.set_capacity(Some(u64::try_from(used + room).unwrap()));
            let mut tag = 2;
            let error = loop {
                match append(tag) {
                    Ok(receipt) => expected.extend(logged(receipt.first, tag, &[60, 11])),
                    Err(error) => break error,
                }
                tag += 1;
            };
            assert_eq!(error.kind(), ErrorKind::Full, "room {room}");
            assert_eq!(kind(append(tag)), ErrorKind::Full);
            assert_eq!(all(&storage), expected, "room {room}: what failed is not visible");
            storage.remove_file("ballast".as_ref()).unwrap();
            for tag in 100..103 {
                expected.extend(logged(append(tag).unwrap().first, tag, &[60, 11]));
            }
            storage.crash(CrashMode::LoseAll);
            assert_eq!(all(&storage), expected, "room {room}, fill {fill_len}");
            // What was read is believed only once it is written anew, so an owner needs room for that. A reader does not.
            let used = content(&storage).values().map(Vec::len).sum::<usize>();
            storage.set_capacity(Some(u64::try_from(used).unwrap()));
            let before = content(&storage);
            assert_eq!(kind(open(&storage, opts)), ErrorKind::Full);
            assert_eq!(content(&storage), before);
            assert_eq!(all(&storage), expected);
            storage.set_capacity(None);
            open(&storage, opts).unwrap();
        }
    }
}

/// Recovery needs room for what it keeps; without it, nothing is cut.
#[test]
fn full_disk_stops_recovery_before_it_cuts() {
    let sample = Sample::wide();
    let files = sample.with(0, |bytes| bytes.truncate(sample.segments[0].frames[6].end - 9));
    let storage = Sample::disk_with(&files);
    let before = content(&storage);
    let used = before.values().map(Vec::len).sum::<usize>();
    storage.set_capacity(Some(u64::try_from(used + 100).unwrap()));
    assert_eq!(kind(open(&storage, sample.options)), ErrorKind::Full);
    let segments = |storage: &SimStorage| storage.read_file(Sample::path(SegmentName(Position(1)))).unwrap();
    assert_eq!(segments(&storage), files[0].1);
    storage.set_capacity(None);
    open(&storage, sample.options).unwrap();
}

// --- Fencing and other owners.

/// A lock that did not hold, and an owner that is taken over from in the moment between its look at whether it still is the
/// owner and its write (a process that was stopped, a machine that slept). It stops before it acknowledges anything.
#[test]
fn another_owner_fences_this_one_in_the_middle_of_an_append() {
    for (segment_len, fill_len) in [(8 << 20, 0), (8 << 20, 4096), (300, 0), (300, 300)] {
        // The first write is that of the header, the second one that of the first record: before it, there is no log.
        // Where the other one writes at once, it may begin the very segment that this one is beginning.
        for (nth, act) in (2..8).flat_map(|nth| [(nth, "opens"), (nth, "writes")]) {
            let opts = options(segment_len, fill_len);
            let storage = disk();
            let (count, inner) = (AtomicUsize::new(0), storage.clone());
            let owner = Arc::new(OnceLock::new());
            let new_owner = Arc::clone(&owner);
            let hook = move |kind| {
                if kind == CallKind::Write && count.fetch_add(1, Ordering::SeqCst) == nth {
                    new_owner.get_or_init(|| {
                        let (owner, _) = open(&inner, opts).unwrap();
                        if act == "writes" {
                            owner.append(batch(29, &[100]), Durability::Sync).unwrap();
                        }
                        owner
                    });
                }
            };
            let hooked = Hooked { inner: storage.clone(), hook: Arc::new(hook) };
            let stale = LogWriter::create(dir_on(Arc::new(hooked)), opts, LOG).unwrap();
            let mut acknowledged = Vec::new();
            let refused = (1..20).find_map(|tag| match stale.append(batch(tag, &[100]), Durability::Sync) {
                Ok(receipt) => {
                    acknowledged.extend(logged(receipt.first, tag, &[100]));
                    None
                }
                Err(error) => Some(error.kind()),
            });
            let what = format!("{segment_len} {fill_len} {nth} {act}");
            assert_eq!(refused, Some(ErrorKind::Fenced), "{what}");
            if act == "writes" {
                acknowledged.extend(logged(Position(last(&acknowledged).0 + 1), 29, &[100]));
            }
            assert_eq!(all(&storage), acknowledged, "{what}");
            let owner = owner.get().unwrap();
            owner.append(batch(30, &[100]), Durability::Sync).unwrap();
            assert_eq!(kind(stale.append(batch(31, &[1]), Durability::Sync)), ErrorKind::Fenced);
            let found = LogReader::new(dir(&storage)).verify().unwrap();
            assert!(found.findings.iter().all(|it| it.severity == Severity::Note), "{what}: {found:?}");
        }
    }
}

/// Somebody wrote behind the last frame, or only made the file longer or shorter, and nothing else tells of it: what stands
/// there may be acknowledged, so it is not written over.
#[test]
fn what_stands_behind_the_end_is_not_written_over() {
    for (fill_len, act) in [(4096, "bytes"), (4096, "cut"), (0, "bytes"), (0, "zeros")] {
        for durability in [Durability::Sync, Durability::Buffered] {
            let storage = disk();
            let writer = create(&storage, options(8 << 20, fill_len));
            writer.append(batch(1, &[100]), Durability::Sync).unwrap();
            let path = storage.files().pop().unwrap();
            let used = storage.read_file(&path).unwrap();
            let end = used.iter().rposition(|byte| *byte != 0).unwrap().next_multiple_of(8);
            let change = |bytes: &mut Vec<u8>| match act {
                "cut" => bytes.truncate(end),
                "zeros" => bytes.extend([0; 8]),
                _ if fill_len == 0 => bytes.extend([7; 8]),
                _ => bytes[end..end + 8].fill(7),
            };
            storage.corrupt(&path, change).unwrap();
            let before = content(&storage);
            // Longer than what is filled: a buffered append looks only where the file has to grow.
            let refused = writer.append(batch(2, &[9000]), durability);
            assert_eq!(kind(refused), ErrorKind::Fenced, "{fill_len} {act} {durability:?}");
            assert_eq!(content(&storage), before, "{fill_len} {act} {durability:?}");
        }
    }
}

/// A payload may quote a frame, salt and checksums and all: an agent that read its own session's file, or somebody who wants a
/// record in it that nobody wrote. Where the frame around it is hurt, it must not be taken for the next one.
#[test]
fn what_a_payload_quotes_is_no_record_where_its_frame_is_hurt() {
    let opts = options(2000, 0);
    for ((position, epoch), pad) in
        [(900, 2), (3, 1)].into_iter().flat_map(|forged| (0..8).map(move |pad| (forged, pad)))
    {
        let storage = disk();
        create(&storage, opts).append(batch(1, &[10]), Durability::Sync).unwrap();
        let (owner, _) = open(&storage, opts).unwrap();
        owner.append(batch(2, &[10]), Durability::Sync).unwrap();
        let path = storage.files().pop().unwrap();
        let salt = SegmentHeader::decode(&storage.read_file(&path).unwrap()).unwrap().salt;
        let mut record = records(3, &[10]).pop().unwrap();
        let (mut quoted, fields) =
            (Vec::new(), FrameFields::records(Position(position), Epoch(epoch), Position(1)));
        let borrowed = [(record.envelope.clone(), Payload::Present(&record.payload))];
        frame::encode(&mut quoted, salt, &Digest([0; 32]), fields, &borrowed).unwrap();
        record.payload = [vec![1; pad].as_slice(), &quoted].concat();
        owner.append(Batch::new(vec![record]).unwrap(), Durability::Sync).unwrap();
        for tag in 4..9 {
            owner.append(batch(tag, &[900]), Durability::Sync).unwrap();
        }
        let bytes = storage.read_file(&path).unwrap();
        let at = bytes.windows(quoted.len()).position(|it| it == quoted).unwrap();
        storage.corrupt(&path, |bytes| bytes[at - pad - 1] ^= 0xff).unwrap();
        let seen = read(&storage, Position(1)).unwrap();
        let positions: Vec<_> = seen.records.iter().map(|it| it.position.0).collect();
        assert_eq!(positions, [1, 2, 4, 5, 6, 7, 8], "{position} {epoch} {pad}");
        let gaps: Vec<_> = seen.gaps.iter().map(|gap| (gap.first, gap.last)).collect();
        assert_eq!(gaps, [(Position(3), Some(Position(3)))], "{position} {epoch} {pad}");
    }
}

/// One creation at a time is cut off by a crash. Two segments without a header are something else: nothing is removed.
#[test]
fn two_segments_without_a_header_are_damage() {
    let storage = disk();
    let opts = options(300, 0);
    let writer = create(&storage, opts);
    for tag in 0..3 {
        writer.append(batch(tag, &[100]), Durability::Sync).unwrap();
    }
    let next = writer.next().0;
    writer.close().unwrap();
    let path = |position: u64| Path::new(SEGMENTS).join(format!("{position:020}.seg"));
    storage.put_file(path(next), vec![1; 20]).unwrap();
    let one = storage.power_cut(CrashMode::KeepAll);
    assert_eq!(open(&one, opts).unwrap().1.last, Position(next - 1));
    storage.put_file(path(next + 1), vec![1; 20]).unwrap();
    let before = content(&storage);
    assert_eq!(kind(open(&storage, opts)), ErrorKind::Corrupt);
    assert_eq!(content(&storage), before);
}

/// A whole frame that does not follow is no torn tail, whatever says or does not say that it was acknowledged: no crash leaves it.
#[test]
fn a_broken_chain_is_damage_and_never_cut() {
    let storage = disk();
    let opts = options(8 << 20, 0);
    create(&storage, opts).append(batch(1, &[10]), Durability::Sync).unwrap();
    let path = storage.files().pop().unwrap();
    let salt = SegmentHeader::decode(&storage.read_file(&path).unwrap()).unwrap().salt;
    let other = records(3, &[10]);
    let borrowed = [(other[0].envelope.clone(), Payload::Present(&other[0].payload))];
    let fields = FrameFields::records(Position(2), Epoch(1), Position(0));
    let append = |bytes: &mut Vec<u8>| {
        frame::encode(bytes, salt, &Digest([0; 32]), fields.clone(), &borrowed).unwrap();
    };
    storage.corrupt(&path, append).unwrap();
    let before = content(&storage);
    assert_eq!(kind(open(&storage, opts)), ErrorKind::Corrupt);
    assert_eq!(content(&storage), before);
}

/// The same of a footer, which no record is in: what it seals would be another log's.
#[test]
fn a_footer_of_another_chain_is_damage() {
    let storage = disk();
    let opts = options(8 << 20, 0);
    create(&storage, opts).append(batch(1, &[10]), Durability::Sync).unwrap();
    let path = storage.files().pop().unwrap();
    let salt = SegmentHeader::decode(&storage.read_file(&path).unwrap()).unwrap().salt;
    let entries = [FooterEntry::of(&records(1, &[10])[0].envelope, 128)];
    let seal = |bytes: &mut Vec<u8>| {
        footer::encode(bytes, salt, Position(2), Epoch(1), &Digest([0; 32]), &entries).unwrap();
    };
    storage.corrupt(&path, seal).unwrap();
    assert_eq!(kind(open(&storage, opts)), ErrorKind::Corrupt);
}

/// What was queued can be read after a flush, though nobody waits for it: a host shows what it has just written.
#[test]
fn what_was_queued_is_there_after_a_flush() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 0));
    let ticket = writer.enqueue(batch(1, &[10]), writer.next(), Durability::Buffered).unwrap();
    writer.flush().unwrap();
    assert_eq!(all(&storage).len(), 1);
    ticket.wait().unwrap();
}

/// A full disk: the segment is sealed, and the next one can't be begun. Closing leaves the footer where it is.
#[test]
fn a_session_is_closed_between_two_segments() {
    // A buffered append fills the file further than to where one that syncs seals it.
    for (fill_len, durability) in
        [(0, Durability::Sync), (4096, Durability::Sync), (4096, Durability::Buffered)]
    {
        let storage = disk();
        let opts = options(300, fill_len);
        let writer = create(&storage, opts);
        writer.append(batch(1, &[300]), durability).unwrap();
        storage.fail(Fault::new(CallKind::Create, FaultError::ENOSPC));
        assert_eq!(kind(writer.append(batch(2, &[10]), Durability::Sync)), ErrorKind::Full);
        let sealed = content(&storage);
        writer.close().unwrap();
        assert_eq!(content(&storage), sealed);
        let (writer, _) = open(&storage, opts).unwrap();
        writer.append(batch(2, &[10]), Durability::Sync).unwrap();
        assert_eq!((all(&storage).len(), storage.files().len()), (2, 2));
    }
}

#[test]
fn a_batch_has_records() {
    assert_eq!(kind(Batch::new(Vec::new())), ErrorKind::Invalid);
    let batch = batch(1, &[1, 2]);
    assert_eq!((batch.len(), batch.is_empty()), (2, false));
}

/// A lock that did not hold: whoever finds the log changed under it stops for good, and overwrites nothing.
#[test]
fn another_owner_fences_this_one() {
    for (segment_len, fill_len) in [(8 << 20, 0), (8 << 20, 4096), (300, 0)] {
        for act in 0..3 {
            let opts = options(segment_len, fill_len);
            let storage = disk();
            let stale = create(&storage, opts);
            stale.append(batch(1, &[200]), Durability::Sync).unwrap();
            stale.append(batch(2, &[2]), Durability::Buffered).unwrap();
            let (owner, report) = open(&storage, opts).unwrap();
            assert_eq!(report.last, Position(2));
            assert!(owner.epoch() > stale.epoch());
            match act {
                0 => assert!(owner.append(batch(3, &[10]), Durability::Sync).is_ok()),
                1 => assert!(owner.append(batch(3, &[600]), Durability::Buffered).is_ok()),
                _ if fill_len == 0 => continue,
                _ => owner.close().unwrap(),
            }
            let before = content(&storage);
            for _ in 0..2 {
                assert_eq!(kind(stale.append(batch(9, &[10]), Durability::Sync)), ErrorKind::Fenced);
                assert_eq!(content(&storage), before, "{segment_len} {fill_len} {act}");
            }
            assert_eq!(kind(stale.sync()), ErrorKind::Fenced);
            assert_eq!(kind(stale.close()), ErrorKind::Fenced);
            assert_eq!(content(&storage), before);
        }
    }
}

/// A frame that an older owner wrote behind a newer one's is no part of the log: neither for recovery nor for readers.
#[test]
fn frame_of_an_older_owner_is_cut() {
    let storage = disk();
    let opts = options(8 << 20, 0);
    create(&storage, opts).append(batch(1, &[10]), Durability::Sync).unwrap();
    let (owner, _) = open(&storage, opts).unwrap();
    owner.append(batch(2, &[10]), Durability::Sync).unwrap();
    drop(owner);
    let path = storage.files().pop().unwrap();
    let salt = SegmentHeader::decode(&storage.read_file(&path).unwrap()).unwrap().salt;
    let late = records(3, &[10]);
    let borrowed = [(late[0].envelope.clone(), Payload::Present(&late[0].payload))];
    let fields = FrameFields::records(Position(3), Epoch(1), Position(1));
    storage
        .corrupt(&path, |bytes| {
            frame::encode(bytes, salt, &Digest([0; 32]), fields, &borrowed).unwrap();
        })
        .unwrap();
    let seen = read(&storage, Position(1)).unwrap();
    let mut indexed = Vec::new();
    LogReader::new(dir(&storage)).index(&mut |position, _, _| indexed.push(position)).unwrap();
    assert_eq!(last(&seen.records), Position(2));
    assert_eq!(indexed, [Position(1), Position(2)]);
    assert!(matches!(seen.tail, TailState::Torn(_)), "{seen:?}");
    let (_, report) = open(&storage, opts).unwrap();
    assert_eq!(report.last, Position(2));
    assert!(report.cut.is_some());
}

/// Epochs grow with every owner that left a trace.
#[test]
fn epochs_grow() {
    let storage = disk();
    let opts = options(300, 0);
    let writer = create(&storage, opts);
    writer.append(batch(9, &[1]), Durability::Sync).unwrap();
    let mut epoch = writer.epoch();
    for tag in 0..5 {
        let (writer, report) = open(&storage, opts).unwrap();
        assert_eq!(report.previous_epoch, epoch);
        assert!(writer.epoch() > epoch);
        epoch = writer.epoch();
        writer.append(batch(tag, &[100]), Durability::Sync).unwrap();
        storage.crash(CrashMode::LoseAll);
    }
}

// --- Reading while somebody writes.

/// A long read is not one moment. What a writer adds in its middle is never taken for damage.
#[test]
fn reader_is_not_fooled_by_a_writer_at_work() {
    look_beside_a_writer("read");
    look_beside_a_writer("verify");
}

fn look_beside_a_writer(what: &str) {
    let storage = disk();
    let writer: &'static LogWriter = Box::leak(Box::new(create(&storage, options(8 << 20, 4096))));
    writer.append(batch(1, &[3300]), Durability::Sync).unwrap();
    // The middle of the file is going to be in the frame of 2, and 3 says that 2 is durable.
    assert_eq!(storage.read_file(&storage.files()[0]).unwrap().len() / 2, 4096);
    let hook = move |kind| {
        if kind == CallKind::Read && writer.next() == Position(2) {
            writer.append(batch(2, &[1200]), Durability::Sync).unwrap();
            writer.append(batch(3, &[10]), Durability::Sync).unwrap();
        }
    };
    let hooked = dir_on(Arc::new(Hooked { inner: storage, hook: Arc::new(hook) }));
    if what == "verify" {
        let found = LogReader::new(hooked).verify().unwrap();
        assert!(found.findings.iter().all(|f| f.severity < Severity::Lost), "{found:?}");
    } else {
        let seen = read_on(hooked, Position(1)).unwrap();
        assert_eq!(seen.gaps, [], "a writer at work was taken for damage");
        assert_eq!(seen.records.len(), 3);
    }
    assert_eq!(writer.next(), Position(4), "the writer was not at work");
}

#[test]
fn unreadable_is_never_short() {
    let storage = disk();
    let opts = options(300, 0);
    let writer = create(&storage, opts);
    for tag in 0..4 {
        writer.append(batch(tag, &[100]), Durability::Sync).unwrap();
    }
    drop(writer);
    let before = content(&storage);
    for nth in 0.. {
        storage.fail(Fault::new(CallKind::Read, FaultError::EIO).after(nth));
        let opened = Recovering::open(dir(&storage), opts, Position::START);
        if storage.armed_faults() > 0 {
            assert!(opened.is_ok() && nth > 2);
            break;
        }
        assert_eq!(kind(opened), ErrorKind::Io);
    }
    storage.clear_faults();
    for nth in 0.. {
        storage.fail(Fault::new(CallKind::Read, FaultError::EIO).after(nth));
        let seen = read(&storage, Position(1));
        if storage.armed_faults() > 0 {
            assert!(seen.is_ok() && nth > 1);
            break;
        }
        assert_eq!(kind(seen), ErrorKind::Io);
    }
    storage.clear_faults();
    assert_eq!(content(&storage), before);
    assert!(storage.open(&storage.files()[0], Access::Read).is_ok());
}
