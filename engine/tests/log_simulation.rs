//! Whole lives of logs: crashes at every call of a scripted one, and random ones by seed.
//!
//! `SESSIONLOG_SEED=n` runs one seed, `SESSIONLOG_SIM_SECONDS=n` as many as fit, from `SESSIONLOG_SIM_FROM` on.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "a long search tells its figures")]

mod support;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sessionlog::log::{
    Durability, LogOptions, LogReader, LogWriter, Packing, Reached, Receipt, Recovering, Severity,
};
use sessionlog::storage::{Call, CallKind, CrashMode, Fault, FaultError, Repeat, SimStorage};
use sessionlog::{Error, ErrorKind};
use sessionlog_codec::ids::Position;
use support::hooked::Hooked;
use support::{
    LOG, Logged, Rng, all, batch, content, dir, dir_on, disk, is_sync, last, logged, open, options, read,
};

// --- Every call of a script.

/// What was true at the moment of a call.
#[derive(Clone, Debug, Default)]
struct Promise {
    submitted: Vec<Logged>,
    durable: usize,
    written: usize,
}

/// A disk as a crash at the moment of a call leaves it.
struct Moment {
    disk: SimStorage,
    mode: CrashMode,
    promise: Promise,
    call: usize,
}

fn play(opts: LogOptions, seeds: u64) -> Vec<Moment> {
    let storage = disk();
    let promise = Arc::new(Mutex::new(Promise::default()));
    let moments = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let (inner, promise, moments) = (storage.clone(), Arc::clone(&promise), Arc::clone(&moments));
        move |kind| {
            if kind == CallKind::Read {
                return;
            }
            let promise = promise.lock().unwrap().clone();
            let mut moments: std::sync::MutexGuard<'_, Vec<Moment>> = moments.lock().unwrap();
            let call = moments.last().map_or(0, |moment| moment.call + 1);
            let modes = [CrashMode::KeepAll, CrashMode::LoseAll].into_iter();
            for mode in modes.chain((0..seeds).map(CrashMode::Seeded)) {
                moments.push(Moment { disk: inner.power_cut(mode), mode, promise: promise.clone(), call });
            }
        }
    };
    let hooked = Arc::new(Hooked { inner: storage, hook: Arc::new(hook) });
    let mut writer = LogWriter::create(dir_on(Arc::<Hooked>::clone(&hooked)), opts, LOG).unwrap();
    for tag in 0..16_u64 {
        let lens: &[usize] = [[40, 3].as_slice(), &[600], &[1], &[9; 30]][usize::try_from(tag % 4).unwrap()];
        let durability =
            [Durability::Sync, Durability::Buffered, Durability::Turn][usize::try_from(tag % 3).unwrap()];
        promise.lock().unwrap().submitted.extend(logged(writer.next(), tag, lens));
        let receipt = writer.append(batch(tag, lens), durability).unwrap();
        keep(&promise, receipt.last, receipt.reached);
        if tag % 5 == 4 {
            writer.sync().unwrap();
            keep(&promise, receipt.last, Reached::Durable);
        }
        if tag % 6 == 5 {
            if tag % 4 == 1 {
                writer.close().unwrap();
                keep(&promise, receipt.last, Reached::Durable);
            }
            let recovering = Recovering::open(dir_on(Arc::<Hooked>::clone(&hooked)), opts, Position::START);
            writer = recovering.unwrap().finish().unwrap().0;
            keep(&promise, receipt.last, Reached::Durable);
        }
    }
    writer.close().unwrap();
    drop((writer, hooked));
    Arc::into_inner(moments).map_or_else(Vec::new, |moments| moments.into_inner().unwrap())
}

fn keep(promise: &Mutex<Promise>, last: Position, reached: Reached) {
    let mut promise = promise.lock().unwrap();
    promise.written = usize::try_from(last.0).unwrap();
    if reached == Reached::Durable {
        promise.durable = promise.written;
    }
}

#[test]
fn crash_at_every_call() {
    for (segment_len, fill_len) in [(512, 0), (1500, 4096), (8 << 20, 1 << 20)] {
        let opts = options(segment_len, fill_len);
        let moments = play(opts, 12);
        assert!(moments.len() > 300, "{}", moments.len());
        for Moment { disk, mode, promise, call } in moments {
            let what = format!("segments of {segment_len}, call {call}, {mode:?}");
            let promised = if mode == CrashMode::KeepAll { promise.written } else { promise.durable };
            let before = content(&disk);
            let seen = read(&disk, Position(1));
            let found = LogReader::new(dir(&disk)).verify();
            assert_eq!(content(&disk), before, "{what}");
            let (writer, report) = match open(&disk, opts) {
                Ok(opened) => opened,
                Err(error) => {
                    assert_eq!((error.kind(), promised), (ErrorKind::NotFound, 0), "{what}: {error:?}");
                    continue;
                }
            };
            let (seen, found) = (seen.unwrap(), found.unwrap());
            let kept = usize::try_from(report.last.0).unwrap();
            assert!(kept >= promised, "{what}: {kept} of {promised} acknowledged records");
            assert_eq!(all(&disk), promise.submitted[..kept], "{what}");
            assert_eq!((&seen.records, &seen.gaps), (&all(&disk), &vec![]), "{what}: the reader disagrees");
            assert!(found.findings.iter().all(|f| f.severity < Severity::Lost), "{what}: {found:#?}");
            assert_eq!(found.last, report.last, "{what}");
            let first = writer.next();
            writer.append(batch(50, &[700]), Durability::Sync).unwrap();
            writer.append(batch(51, &[5]), Durability::Sync).unwrap();
            disk.crash(CrashMode::LoseAll);
            let mut expected = promise.submitted[..kept].to_vec();
            expected.extend(logged(first, 50, &[700]));
            expected.extend(logged(Position(first.0 + 1), 51, &[5]));
            open(&disk, opts).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            assert_eq!(all(&disk), expected, "{what}");
        }
    }
}

// --- Random lives.

/// A batch as it was submitted.
type Job = (u64, Vec<usize>, Durability);
type Outcome = (Job, Result<Receipt, Error>);

/// What one life of a log has been told so far.
struct World {
    storage: SimStorage,
    opts: LogOptions,
    rng: Rng,
    /// Recovered at the last opening, and acknowledged since.
    known: Vec<Logged>,
    /// Where each batch of `known` ends, and the epoch it was written in.
    ends: Vec<(usize, u64)>,
    /// How much of `known` survives a loss of power.
    durable: usize,
    /// Batches that failed when the writer closed: nobody knows whether they are in the log, behind `known`.
    unknown: Vec<Job>,
    tag: u64,
    /// The fault that is armed.
    fault: Option<CallKind>,
    trace: String,
}

/// How an ownership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Well,
    /// After this, what the system shows is not what it will write.
    WithAFailedSync,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed.wrapping_mul(0x1234_5678_9abc_def1));
        let opts = options([300, 512, 2000, 1 << 20][rng.index(4)], [0, 0, 512, 4096][rng.index(4)]);
        Self {
            storage: disk(),
            opts,
            rng,
            known: Vec::new(),
            ends: vec![(0, 0)],
            durable: 0,
            unknown: Vec::new(),
            tag: 0,
            fault: None,
            trace: format!("SESSIONLOG_SEED={seed}, {opts:?}"),
        }
    }

    fn note(&mut self, what: &str) {
        self.trace.push_str("\n  ");
        self.trace.push_str(what);
    }

    fn job(&mut self) -> Job {
        self.tag += 1;
        let rng = &mut self.rng;
        let most = [5, 40, 40, 200, 900][rng.index(5)];
        let lens = (0..1 + rng.below(4)).map(|_| rng.index(most)).collect();
        let durability = [Durability::Sync, Durability::Sync, Durability::Turn, Durability::Buffered];
        (self.tag, lens, durability[rng.index(4)])
    }

    /// Some batches at once: queued by one thread, or by several.
    fn append_some(&mut self, writer: &LogWriter) -> Vec<Outcome> {
        let jobs: Vec<_> = (0..1 + self.rng.below(4)).map(|_| self.job()).collect();
        if self.rng.below(6) == 0 {
            let run = |job: Job| {
                let result = writer.append(batch(job.0, &job.1), job.2);
                (job, result)
            };
            return thread::scope(|scope| {
                let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(move || run(job))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
        }
        let (mut tickets, mut outcomes) = (Vec::new(), Vec::new());
        for job in jobs {
            let ticket = writer.enqueue(batch(job.0, &job.1), writer.next(), job.2).unwrap();
            tickets.push((job, ticket));
        }
        while !tickets.is_empty() {
            let (job, ticket) = tickets.swap_remove(self.rng.index(tickets.len()));
            outcomes.push((job, ticket.wait()));
        }
        outcomes
    }

    fn learn(&mut self, mut outcomes: Vec<Outcome>, epoch: u64) {
        outcomes
            .sort_by_key(|(_, result)| result.as_ref().map_or(Position(u64::MAX), |receipt| receipt.first));
        for (job, result) in outcomes {
            self.note(&format!("{job:?}: {:?}", result.as_ref().map_err(Error::kind)));
            match result {
                Ok(receipt) => {
                    let records = logged(receipt.first, job.0, &job.1);
                    assert_eq!(receipt.first.0, last(&self.known).0 + 1, "not dense: {}", self.trace);
                    assert_eq!(receipt.last, last(&records), "{}", self.trace);
                    assert!(job.2 != Durability::Sync || receipt.reached == Reached::Durable);
                    self.known.extend(records);
                    self.ends.push((self.known.len(), epoch));
                    if receipt.reached == Reached::Durable {
                        self.durable = self.known.len();
                    }
                }
                Err(_) => self.unknown.push(job),
            }
        }
    }

    /// Arms a fault of a call to come.
    fn arm(&mut self) {
        use CallKind::{Create, Read, SetLen, SyncAll, SyncData, SyncDir, Write};
        let kinds = [Write, Write, Write, Write, SyncData, SyncAll, SyncDir, Create, SetLen, Read];
        let kind = kinds[self.rng.index(kinds.len())];
        let error = if self.rng.below(2) == 0 { FaultError::EIO } else { FaultError::ENOSPC };
        let written = if self.rng.below(2) == 0 { 0 } else { self.rng.index(1200) };
        let after = self.rng.below(3);
        self.note(&format!("fault: {kind:?} {error:?} after {after}, {written} bytes written"));
        self.storage.fail(Fault::new(kind, error).after(after).written(written));
        self.fault = Some(kind);
    }

    /// The fault that happened since it was armed.
    fn happened(&mut self) -> Option<CallKind> {
        if self.storage.armed_faults() > 0 { None } else { self.fault.take() }
    }

    /// Compresses some of what is sealed. Whatever comes of it, nobody else is to notice.
    fn compress_some(&mut self, writer: &LogWriter) {
        let packing = Packing { block_len: 1 + self.rng.index(400), least_saved: 0, least_percent: 0 };
        let done = writer.compress(1 + self.rng.index(3), packing);
        self.note(&format!("compress: {:?}", done.as_ref().map_err(Error::kind)));
        let happened = self.happened();
        assert_eq!(done.is_err(), happened.is_some(), "{happened:?}: {}", self.trace);
        let seen = all(&self.storage.power_cut(CrashMode::KeepAll));
        assert!(seen == self.known, "compressing changed something: {}", self.trace);
    }

    /// One ownership, until it closes, fails for good, or is left to crash.
    fn own(&mut self, writer: &LogWriter) -> Ended {
        let epoch = writer.epoch().0;
        for _ in 0..self.rng.below(10) {
            if self.fault.is_none() && self.rng.below(3) == 0 {
                self.arm();
            }
            let outcomes = self.append_some(writer);
            let all_well = outcomes.iter().all(|(_, result)| result.is_ok());
            self.learn(outcomes, epoch);
            let mut synced = Ok(());
            if all_well && self.rng.below(4) == 0 {
                synced = writer.sync();
                self.note(&format!("sync: {:?}", synced.as_ref().map_err(Error::kind)));
                if synced.is_ok() {
                    self.durable = self.known.len();
                }
            }
            let happened = self.happened();
            let closed = writer.enqueue(batch(0, &[1]), Position::START, Durability::Sync).err();
            let closed = closed.map(|error| error.kind()) == Some(ErrorKind::Closed);
            assert_eq!(closed, happened.is_some_and(is_sync), "{happened:?}: {}", self.trace);
            // What can't be read after a sync is no reason to refuse what was synced.
            let all_well = all_well && synced.is_ok();
            let harmless = all_well && happened == Some(CallKind::Read);
            assert!(all_well == happened.is_none() || harmless, "{happened:?}: {}", self.trace);
            if closed {
                for durability in [Durability::Sync, Durability::Buffered] {
                    let again = writer.append(batch(0, &[1]), durability).unwrap_err();
                    assert_eq!(again.kind(), ErrorKind::Closed, "{}", self.trace);
                }
                return Ended::WithAFailedSync;
            }
            // What failed is not there, now or later, and the next batch takes its place.
            self.unknown.clear();
            assert_eq!(writer.next().0, last(&self.known).0 + 1, "{}", self.trace);
            // On a copy, since a fault waits for its call.
            let seen = all(&self.storage.power_cut(CrashMode::KeepAll));
            assert!(seen == self.known, "what failed is visible: {}", self.trace);
            if self.rng.below(3) == 0 {
                self.compress_some(writer);
            }
        }
        if self.rng.below(3) == 0 {
            let result = writer.close();
            self.note(&format!("close: {:?}", result.as_ref().map_err(Error::kind)));
            let happened = self.happened();
            let harmless = result.is_ok() && happened == Some(CallKind::Read);
            assert!(result.is_ok() == happened.is_none() || harmless, "{}", self.trace);
            if result.is_ok() {
                self.durable = self.known.len();
            }
            if happened.is_some_and(is_sync) {
                return Ended::WithAFailedSync;
            }
        }
        Ended::Well
    }

    fn power_loss(&mut self) -> CrashMode {
        if self.rng.below(3) == 0 { CrashMode::LoseAll } else { CrashMode::Seeded(self.rng.next()) }
    }

    fn crash(&mut self, mode: CrashMode) {
        self.note(&format!("crash: {mode:?}"));
        self.fault = None;
        self.storage.crash(mode);
    }

    /// Opens the log, perhaps after some attempts that a crash cut short. `promised` records must be there, unless such a
    /// crash was a loss of power: then those that are durable.
    /// `None` if there is no log, because no record was ever acknowledged.
    fn reopen(&mut self, mut promised: usize) -> Option<LogWriter> {
        while self.rng.below(3) == 0 {
            let (after, written) = (self.rng.below(25), self.rng.index(300));
            self.note(&format!("opening stops at call {after}"));
            self.storage.take_calls();
            self.storage
                .fail(Fault::any(FaultError::EIO).after(after).written(written).repeat(Repeat::Always));
            let stopped = open(&self.storage, self.opts).map(drop).err();
            let calls = self.storage.take_calls();
            let first = calls.get(usize::try_from(after).unwrap()).map(Call::kind);
            if let (Some(error), Some(_)) = (&stopped, first) {
                assert!(error.kind() == ErrorKind::Io, "{error:?}: {}", self.trace);
            }
            let mode = if self.rng.below(2) == 0 {
                promised = promised.min(self.durable);
                self.power_loss()
            } else {
                CrashMode::KeepAll
            };
            self.crash(mode);
        }
        let opened = open(&self.storage, self.opts);
        if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) && promised == 0 {
            assert_eq!(all(&self.storage), [], "{}", self.trace);
            return None;
        }
        let (writer, report) = opened.unwrap_or_else(|error| panic!("{error:?}: {}", self.trace));
        self.note(&format!("opened: {report:?}"));
        let found = all(&self.storage);
        assert_eq!(last(&found), report.last, "{}", self.trace);
        assert!(found.len() >= promised, "{} of {promised} are there: {}", found.len(), self.trace);
        let common = found.len().min(self.known.len());
        assert!(found[..common] == self.known[..common], "other records: {}", self.trace);
        self.ends.retain(|(end, _)| *end <= common);
        let mut rest = &found[self.ends.last().unwrap().0..];
        while !rest.is_empty() {
            // Whole batches only, of those that failed when the writer closed.
            let first = rest[0].position;
            let is_next = |job: &Job| rest.starts_with(&logged(first, job.0, &job.1));
            let nth = self.unknown.iter().position(is_next);
            let nth = nth.unwrap_or_else(|| panic!("position {first} was never submitted: {}", self.trace));
            rest = &rest[self.unknown.remove(nth).1.len()..];
            self.ends.push((found.len() - rest.len(), report.previous_epoch.0));
        }
        let (end, epoch) = *self.ends.last().unwrap();
        assert_eq!(end, found.len());
        assert!(writer.epoch().0 > epoch, "epoch {} after {epoch}: {}", writer.epoch(), self.trace);
        self.durable = found.len();
        self.known = found;
        self.unknown.clear();
        Some(writer)
    }
}

fn live(seed: u64) {
    let mut world = World::new(seed);
    let mut writer = LogWriter::create(dir(&world.storage), world.opts, LOG).unwrap();
    for _ in 0..6 {
        let ended = world.own(&writer);
        drop(writer);
        // After a failed sync, the system shows what it will never write. What the next owner takes over must be durable
        // all the same: power may go at any time.
        let keeps = world.rng.below(if ended == Ended::Well { 3 } else { 2 }) == 0;
        let (mode, promised) =
            if keeps { (CrashMode::KeepAll, world.known.len()) } else { (world.power_loss(), world.durable) };
        world.crash(mode);
        let Some(reopened) = world.reopen(promised) else { return };
        writer = reopened;
        let found = LogReader::new(dir(&world.storage)).verify().unwrap();
        assert!(found.findings.iter().all(|f| f.severity < Severity::Lost), "{found:#?}: {}", world.trace);
        assert_eq!(found.records, u64::try_from(world.known.len()).unwrap());
    }
}

#[test]
fn random_lives() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("SESSIONLOG_SEED") {
        return live(seed);
    }
    match number("SESSIONLOG_SIM_SECONDS") {
        None => (0..300).for_each(live),
        Some(seconds) => {
            let (start, budget) = (Instant::now(), Duration::from_secs(seconds));
            let from = number("SESSIONLOG_SIM_FROM").unwrap_or(0);
            let lives = (from..).take_while(|_| start.elapsed() < budget).inspect(|seed| live(*seed)).count();
            println!("{lives} lives");
        }
    }
}
