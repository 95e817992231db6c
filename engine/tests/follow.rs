//! Following a log, on the simulated disk: whatever its writers do, fail at or are cut off in, between any two of their calls.
//!
//! `SESSIONLOG_SEED` runs one life again, `SESSIONLOG_SIM_SECONDS` as many as fit.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sessionlog::log::{
    Durability, FollowLevel, FollowOptions, LogFollower, LogItem, LogOptions, LogPayload, LogReader,
    LogWriter, Recovering,
};
use sessionlog::storage::{
    Access, Call, CallKind, CrashMode, DirEntry, Fault, FaultError, Lock, LockError, Locked, SimStorage,
    Storage, StorageFile, Watch,
};
use sessionlog::{ErrorKind, FollowItem, Follower, ForkOptions, ForkPoint, Message, Store};
use sessionlog_codec::frame::{self, FrameFields};
use sessionlog_codec::ids::{Epoch, Position};
use sessionlog_codec::record::Payload;
use sessionlog_codec::segment::SegmentHeader;
use support::hooked::{Hook, Hooked};
use support::{
    LOG, Logged, QUARANTINE, Rng, SEGMENTS, all, batch, create, dir, dir_on, disk, logged, open, options,
    read, records,
};

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(20);

fn follow(storage: &SimStorage, level: FollowLevel, recheck: Duration) -> LogFollower {
    LogReader::new(dir(storage)).follow(Position(1), FollowOptions { level, recheck })
}

/// A follower, and what its items amount to.
struct Followed {
    follower: LogFollower,
    seen: Vec<Logged>,
    retracted: u64,
}

impl Followed {
    fn new(follower: LogFollower) -> Self {
        Self { follower, seen: Vec::new(), retracted: 0 }
    }

    fn take(&mut self, item: LogItem) {
        match item {
            LogItem::Record(record) => {
                assert_eq!(record.position.0, self.seen.len() as u64 + 1, "left out, or given twice");
                let LogPayload::Present(payload) = record.payload else { panic!("erased") };
                self.seen.push(Logged { position: record.position, envelope: record.envelope, payload });
            }
            LogItem::Retracted { from } => {
                assert!(from.0 <= self.seen.len() as u64, "{from} was never given");
                self.seen.truncate(usize::try_from(from.0).unwrap() - 1);
                self.retracted += 1;
            }
            LogItem::Gap(_) | LogItem::Deleted => panic!("{item:?}"),
        }
        assert_eq!(self.follower.position().0, self.seen.len() as u64 + 1);
    }

    /// Takes what it has to be woken for.
    fn take_woken(&mut self) {
        let begun = Instant::now();
        let Some(item) = self.follower.next(SOON).unwrap() else { panic!("it was not woken") };
        assert!(begun.elapsed() < SOON, "it slept, and found out by itself at the end");
        self.take(item);
    }

    /// Takes in all that is there.
    fn drain(&mut self) {
        while let Some(item) = self.follower.try_next().unwrap() {
            self.take(item);
        }
    }
}

/// The two kinds of followers of a disk, always up to date.
struct Both {
    disk: SimStorage,
    /// Power was lost and nobody recovered the log yet. What is lost in the middle of a tail shows when the tail is cut.
    is_lost: bool,
    written: Followed,
    durable: Followed,
}

impl Both {
    fn new(disk: &SimStorage, recheck: Duration) -> Self {
        Self {
            written: Followed::new(follow(disk, FollowLevel::Written, recheck)),
            durable: Followed::new(follow(disk, FollowLevel::Durable, recheck)),
            disk: disk.clone(),
            is_lost: false,
        }
    }

    fn check(&mut self, what: &str) {
        self.written.drain();
        self.durable.drain();
        assert_eq!(self.durable.retracted, 0, "{what}");
        let Ok(seen) = read(&self.disk.power_cut(CrashMode::KeepAll), Position(1)) else { return };
        assert!(
            self.is_lost || self.written.seen == seen.records,
            "{} records were followed, {} are there: {what}",
            self.written.seen.len(),
            seen.records.len()
        );
        assert!(seen.records.starts_with(&self.durable.seen), "{what}");
        // What is called durable survives the loss of all that is not.
        if !self.durable.seen.is_empty() {
            let lost = all(&self.disk.power_cut(CrashMode::LoseAll));
            assert!(lost.starts_with(&self.durable.seen), "called durable and is not: {what}");
        }
    }
}

/// One life of a log, with owners that fail and die, and followers that look between any two calls.
fn live(seed: u64) -> u64 {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_0000_0001) + 1);
    let opts = options([300, 512, 2000, 1 << 20][rng.index(4)], [0, 0, 512, 4096][rng.index(4)]);
    let storage = disk();
    let recheck = if rng.below(2) == 0 { Duration::ZERO } else { HOUR };
    let both = Arc::new(Mutex::new(Both::new(&storage, recheck)));
    let trace = format!("SESSIONLOG_SEED={seed}, {opts:?}, recheck {recheck:?}");
    let hook: Hook = {
        let (both, trace, chance) = (Arc::clone(&both), trace.clone(), Mutex::new(Rng(seed)));
        Arc::new(move |kind| {
            if chance.lock().unwrap().below(8) == 0 {
                both.lock().unwrap().check(&format!("{trace}, before {kind:?}"));
            }
        })
    };
    let hooked = || dir_on(Arc::new(Hooked { inner: storage.clone(), hook: Arc::clone(&hook) }));
    let check = |what: &str| both.lock().unwrap().check(&format!("{trace}, {what}"));
    let mut writer = LogWriter::create(hooked(), opts, LOG).unwrap();
    let mut tag = 0;
    for owner in 0..6 {
        let broken = own(&mut rng, &storage, &writer, &mut tag, &check);
        if !broken && rng.below(3) == 0 {
            drop(writer.close());
            check("closed");
        }
        drop(writer);
        let mode = match rng.below(4) {
            0 => CrashMode::LoseAll,
            1 => CrashMode::KeepAll,
            _ => CrashMode::Seeded(rng.next()),
        };
        storage.crash(mode);
        both.lock().unwrap().is_lost = mode != CrashMode::KeepAll;
        check(&format!("owner {owner}, {mode:?}"));
        writer = match Recovering::open(hooked(), opts, Position::START).and_then(Recovering::finish) {
            Ok((writer, _)) => writer,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{trace}: {error:?}");
                return both.lock().unwrap().written.retracted;
            }
        };
        both.lock().unwrap().is_lost = false;
        check(&format!("owner {owner}, recovered"));
        // An owner says that it is one, durably: that proves all before.
        let before = all(&storage).len();
        tag += 1;
        if writer.append(batch(tag, &[20]), Durability::Sync).is_ok() {
            check("opened");
            assert_eq!(both.lock().unwrap().durable.seen.len(), before, "{trace}");
        }
    }
    both.lock().unwrap().written.retracted
}

/// One ownership. Whether it failed for good.
fn own(rng: &mut Rng, storage: &SimStorage, writer: &LogWriter, tag: &mut u64, check: &dyn Fn(&str)) -> bool {
    use CallKind::{Create, SetLen, SyncAll, SyncData, SyncDir, Write};
    for _ in 0..rng.below(12) {
        if rng.below(4) == 0 {
            let kind = [Write, Write, Write, Write, SyncData, SyncAll, SyncDir, Create, SetLen][rng.index(9)];
            let error = if rng.below(2) == 0 { FaultError::EIO } else { FaultError::ENOSPC };
            storage.fail(Fault::new(kind, error).after(rng.below(3)).written(rng.index(1200)));
        }
        let durability = [Durability::Sync, Durability::Sync, Durability::Buffered][rng.index(3)];
        let mut tickets = Vec::new();
        for _ in 0..1 + rng.below(3) {
            *tag += 1;
            let most = [5, 40, 200, 900, 9000][rng.index(5)];
            let lens: Vec<usize> = (0..1 + rng.below(3)).map(|_| rng.index(most)).collect();
            match writer.enqueue(batch(*tag, &lens), writer.next(), durability) {
                Ok(ticket) => tickets.push(ticket),
                Err(_) => break,
            }
        }
        let failed = tickets.into_iter().filter_map(|ticket| ticket.wait().err()).count();
        check("appended");
        if rng.below(6) == 0 {
            drop(writer.sync());
        }
        storage.clear_faults();
        if failed > 0 && writer.sync().is_err() {
            return true;
        }
    }
    false
}

#[test]
fn random_lives() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("SESSIONLOG_SEED") {
        live(seed);
        return;
    }
    match number("SESSIONLOG_SIM_SECONDS") {
        None => {
            let retracted: u64 = (0..60).map(live).sum();
            assert!(retracted > 5, "{retracted} retractions are too few to mean anything");
        }
        Some(seconds) => {
            let (start, budget) = (Instant::now(), Duration::from_secs(seconds));
            let lives = (0..).take_while(|_| start.elapsed() < budget).map(live).count();
            println!("{lives} lives");
        }
    }
}

/// What was read and then lost with the power is taken back, and what took its place follows. What is durable is not.
#[test]
fn what_was_lost_is_retracted() {
    let storage = disk();
    let opts = options(8 << 20, 4096);
    let writer = create(&storage, opts);
    let mut both = Both::new(&storage, HOUR);
    writer.append(batch(1, &[10]), Durability::Sync).unwrap();
    writer.append(batch(2, &[20, 20]), Durability::Buffered).unwrap();
    writer.append(batch(3, &[30]), Durability::Buffered).unwrap();
    both.check("written");
    assert_eq!((both.written.seen.len(), both.durable.seen.len()), (4, 1));
    storage.crash(CrashMode::LoseAll);
    let (writer, _) = open(&storage, opts).unwrap();
    // Longer than what was lost, and over the same positions.
    writer.append(batch(4, &[40, 40, 40, 40, 40]), Durability::Sync).unwrap();
    let item = both.written.follower.try_next().unwrap();
    assert_eq!(item, Some(LogItem::Retracted { from: Position(2) }));
    both.written.take(item.unwrap());
    both.check("gone on");
    assert_eq!((both.written.seen.len(), both.durable.seen.len()), (6, 1));
    assert_eq!((both.written.retracted, both.durable.retracted), (1, 0));
}

fn count(calls: &[Call], kind: CallKind) -> usize {
    calls.iter().filter(|call| call.kind() == kind).count()
}

fn bytes_read(calls: &[Call]) -> u64 {
    let len = |call: &Call| if let Call::Read { len, .. } = call { *len } else { 0 };
    calls.iter().map(len).sum()
}

/// What is new is read, and not what was read before, however long the segment is.
#[test]
fn following_costs_what_is_new() {
    for (len, frames) in [(50, 2000), (3000, 500)] {
        let storage = disk();
        let writer = create(&storage, options(8 << 20, 1 << 20));
        let mut followed = Followed::new(follow(&storage, FollowLevel::Written, HOUR));
        followed.drain();
        let mut worst = (0, 0);
        for tag in 0..frames {
            writer.append(batch(tag, &[len]), Durability::Buffered).unwrap();
            storage.take_calls();
            followed.drain();
            let calls = storage.take_calls();
            worst = worst.max((bytes_read(&calls), calls.len()));
        }
        assert_eq!(followed.seen.len() as u64, frames);
        // One read that gives the frame, one that finds nothing behind it; no frame's bytes more than twice.
        assert!(worst.0 <= 2 * (4096 + 4096) + 3 * len as u64, "{worst:?}");
        assert!(worst.1 <= 10, "{worst:?}");
        // All at once, through rolls: each byte about once.
        let storage = disk();
        let writer = create(&storage, options(64 << 10, 4096));
        for tag in 0..frames {
            writer.append(batch(tag, &[len]), Durability::Buffered).unwrap();
        }
        let stored: usize = storage.files().iter().map(|file| storage.read_file(file).unwrap().len()).sum();
        storage.take_calls();
        let mut followed = Followed::new(follow(&storage, FollowLevel::Written, HOUR));
        followed.drain();
        let calls = storage.take_calls();
        assert!(
            bytes_read(&calls) <= stored as u64 * 5 / 4 + (64 << 10),
            "{} of {stored}",
            bytes_read(&calls)
        );
    }
}

/// A file that somebody attached, a long answer of a tool: as long as a record may be, over all that is read at once, and on
/// every side of it.
#[test]
fn records_of_any_length_are_followed() {
    let storage = disk();
    let writer = create(&storage, options(1 << 20, 0));
    let (mut near, mut late) = (
        Followed::new(follow(&storage, FollowLevel::Written, HOUR)),
        Followed::new(follow(&storage, FollowLevel::Durable, HOUR)),
    );
    for (tag, len) in
        (0..).zip((3900..4120).step_by(3).chain([9_000, 300_000, 10, (256 << 10) - 200, 2 << 20, 1]))
    {
        writer.append(batch(tag, &[len]), Durability::Buffered).unwrap();
        near.drain();
        assert_eq!(near.seen.len() as u64, tag + 1, "{len}");
        if tag % 40 == 0 {
            late.drain();
        }
    }
    writer.append(batch(1000, &[1]), Durability::Sync).unwrap();
    writer.append(batch(1001, &[1]), Durability::Sync).unwrap();
    near.drain();
    late.drain();
    assert_eq!(near.seen, all(&storage));
    assert_eq!(late.seen[..], near.seen[..near.seen.len() - 1]);
}

/// Behind a long record, and before a stretch of zeros: a look that finds nothing reads neither again. And what comes at once is
/// not all read before the first of it is given.
#[test]
fn neither_a_long_record_nor_a_long_backlog_is_held() {
    let storage = disk();
    let writer = create(&storage, options(64 << 20, 1 << 20));
    let mut followed = Followed::new(follow(&storage, FollowLevel::Written, Duration::ZERO));
    writer.append(batch(0, &[400_000]), Durability::Sync).unwrap();
    followed.drain();
    storage.take_calls();
    for _ in 0..10 {
        assert_eq!(followed.follower.try_next().unwrap(), None);
    }
    assert!(bytes_read(&storage.take_calls()) <= 10 * 8192);
    for tag in 1..60 {
        writer.append(batch(tag, &[100_000]), Durability::Buffered).unwrap();
    }
    storage.take_calls();
    let item = followed.follower.try_next().unwrap().unwrap();
    followed.take(item);
    let read = bytes_read(&storage.take_calls());
    assert!(read <= 3 << 20, "{read}");
    followed.drain();
    assert_eq!(followed.seen.len(), 60);
}

/// A roll costs the footer, and not the segment once more: a follower reads it while the session waits for its next message.
#[test]
fn following_over_rolls_costs_what_is_new() {
    let storage = disk();
    let writer = create(&storage, options(256 << 10, 0));
    let mut followed = Followed::new(follow(&storage, FollowLevel::Written, HOUR));
    let mut worst = 0;
    for tag in 0..1000 {
        writer.append(batch(tag, &[2000]), Durability::Buffered).unwrap();
        storage.take_calls();
        followed.drain();
        worst = worst.max(bytes_read(&storage.take_calls()));
    }
    assert!(storage.files().len() > 2);
    assert!(worst <= 64 << 10, "{worst}");
}

/// A frame of an older owner behind a newer one's is no part of the log. A follower that gave it would show a message that
/// recovery cuts off.
#[test]
fn what_an_older_owner_wrote_late_is_not_given() {
    let storage = disk();
    let opts = options(8 << 20, 0);
    create(&storage, opts).append(batch(1, &[10]), Durability::Sync).unwrap();
    let (owner, _) = open(&storage, opts).unwrap();
    owner.append(batch(2, &[10]), Durability::Sync).unwrap();
    let mut both = Both::new(&storage, Duration::ZERO);
    both.check("two owners");
    let chain = LogReader::new(dir(&storage)).mark().unwrap().unwrap().chain;
    drop(owner);
    let path = storage.files().pop().unwrap();
    let before = storage.read_file(&path).unwrap();
    let salt = SegmentHeader::decode(&before).unwrap().salt;
    let mut behind = |epoch| {
        let late = records(3, &[10]);
        let borrowed = [(late[0].envelope.clone(), Payload::Present(&late[0].payload))];
        let fields = FrameFields::records(Position(3), epoch, Position(2));
        let mut bytes = before.clone();
        frame::encode(&mut bytes, salt, &chain, fields, &borrowed).unwrap();
        storage.put_file(&path, bytes).unwrap();
        both.written.drain();
        both.durable.drain();
        (both.written.seen.len(), both.durable.seen.len())
    };
    assert_eq!(behind(Epoch(1)), (2, 1), "of an older owner");
    assert_eq!(behind(Epoch(3)), (3, 2), "of the next owner");
}

/// Bad bytes in what was given already: no record is taken back for them, and nothing is said, since nothing is missing from
/// what was given.
#[test]
fn damage_of_what_was_given_takes_nothing_back() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 0));
    for tag in 0..8 {
        writer.append(batch(tag, &[90]), Durability::Sync).unwrap();
    }
    let mut followed = Followed::new(follow(&storage, FollowLevel::Written, Duration::ZERO));
    followed.drain();
    let given = followed.seen.len();
    let path = storage.files().pop().unwrap();
    // In the middle; and at the end, so that it is read as a whole.
    let mut behind = 0;
    storage.corrupt(&path, |bytes| (behind, bytes[400]) = (bytes.len(), !bytes[400])).unwrap();
    storage.corrupt(&path, |bytes| bytes.extend([0xee; 40])).unwrap();
    while let Some(item) = followed.follower.try_next().unwrap() {
        let LogItem::Gap(gap) = item else { panic!("{item:?}") };
        assert_eq!((gap.offset, gap.last), (behind as u64, None));
    }
    storage.corrupt(&path, |bytes| bytes.truncate(behind)).unwrap();
    writer.append(batch(8, &[90]), Durability::Sync).unwrap();
    writer.append(batch(9, &[90]), Durability::Sync).unwrap();
    followed.drain();
    assert_eq!((followed.seen.len(), followed.retracted), (given + 2, 0));
}

/// While nothing happens: a look costs a read and a few looks at names, and there is one for each wait.
#[test]
fn idling_costs_next_to_nothing() {
    for segment_len in [8 << 20, 512] {
        let storage = disk();
        let writer = create(&storage, options(segment_len, 1 << 20));
        for tag in 0..100 {
            writer.append(batch(tag, &[100]), Durability::Sync).unwrap();
        }
        let mut followed = Followed::new(follow(&storage, FollowLevel::Written, HOUR));
        followed.drain();
        storage.take_calls();
        let looks = followed.follower.looks();
        for _ in 0..10 {
            assert!(followed.follower.next(Duration::from_millis(1)).unwrap().is_none());
        }
        let calls = storage.take_calls();
        // One before it waits and one behind it, each wait.
        let looks = followed.follower.looks() - looks;
        assert!(looks <= 20, "{looks}");
        assert!(calls.len() as u64 <= 5 * looks + 2, "{} calls in {looks} looks", calls.len());
        assert_eq!(count(&calls, CallKind::List), 0, "{calls:?}");
        assert!(bytes_read(&calls) <= looks * 9000, "{} bytes", bytes_read(&calls));
    }
}

/// A torn tail that nobody cuts is not read over and over.
#[test]
fn waiting_behind_a_torn_tail_costs_next_to_nothing() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 1 << 20));
    for tag in 0..200 {
        writer.append(batch(tag, &[1000]), Durability::Sync).unwrap();
    }
    drop(writer);
    let segment = storage.files().pop().unwrap();
    storage
        .corrupt(&segment, |bytes| {
            let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
            let at = used.next_multiple_of(8) + 8;
            bytes[at..at + 300].fill(0xa5);
        })
        .unwrap();
    let mut followed = Followed::new(follow(&storage, FollowLevel::Written, HOUR));
    followed.drain();
    assert_eq!(followed.seen.len(), 200);
    storage.take_calls();
    for _ in 0..10 {
        followed.drain();
    }
    assert!(bytes_read(&storage.take_calls()) < 100_000);
    // The next owner cuts it.
    let (writer, report) = open(&storage, options(8 << 20, 1 << 20)).unwrap();
    assert!(report.cut.is_some());
    writer.append(batch(200, &[5]), Durability::Sync).unwrap();
    followed.drain();
    assert_eq!((followed.seen.len(), followed.retracted), (201, 0));
}

/// A storage where something happens between a follower's look and its wait.
struct Racing {
    inner: SimStorage,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Every directory that was watched.
    watched: Mutex<Vec<PathBuf>>,
}

impl Racing {
    fn new(inner: &SimStorage, act: impl FnOnce() + Send + 'static) -> Arc<Self> {
        let act: Box<dyn FnOnce() + Send> = Box::new(act);
        Arc::new(Self { inner: inner.clone(), act: Mutex::new(Some(act)), watched: Mutex::default() })
    }
}

impl std::fmt::Debug for Racing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Storage for Racing {
    fn watch(&self, dir: &Path) -> std::io::Result<Option<Box<dyn Watch>>> {
        if let Some(act) = self.act.lock().unwrap().take() {
            act();
        }
        self.watched.lock().unwrap().push(dir.to_owned());
        self.inner.watch(dir)
    }
    fn create_new(&self, path: &Path) -> std::io::Result<Arc<dyn StorageFile>> {
        self.inner.create_new(path)
    }
    fn open(&self, path: &Path, access: Access) -> std::io::Result<Arc<dyn StorageFile>> {
        self.inner.open(path, access)
    }
    fn create_dir(&self, path: &Path) -> std::io::Result<()> {
        self.inner.create_dir(path)
    }
    fn list(&self, dir: &Path) -> std::io::Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }
    fn entry(&self, path: &Path) -> std::io::Result<Option<DirEntry>> {
        self.inner.entry(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.inner.hard_link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> std::io::Result<()> {
        self.inner.remove_file(path)
    }
    fn remove_dir(&self, dir: &Path) -> std::io::Result<()> {
        self.inner.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> std::io::Result<()> {
        self.inner.sync_dir(dir)
    }
    fn try_lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        self.inner.try_lock(path)
    }
    fn is_locked(&self, path: &Path) -> Option<Locked> {
        self.inner.is_locked(path)
    }
}

/// What is written between a follower's look and the moment that it begins to be woken is not missed.
#[test]
fn nothing_is_missed_between_looking_and_waiting() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 4096));
    let racing = Racing::new(&storage, move || {
        writer.append(batch(7, &[70]), Durability::Sync).unwrap();
    });
    let log = LogReader::new(dir_on(racing));
    let mut follower = log.follow(Position(1), FollowOptions { recheck: HOUR, ..FollowOptions::default() });
    let item = follower.next(SOON).unwrap();
    assert!(matches!(item, Some(LogItem::Record(_))), "{item:?}");
    assert_eq!(follower.looks(), 1, "it slept, and found out by itself at the end");
}

/// A log comes to be in steps, and its follower comes nearer with each. One that is late watches a directory in which nothing
/// happens any more, and shows the first message of a new session only when it looks by itself.
#[test]
fn nothing_is_missed_while_it_comes_nearer() {
    let storage = SimStorage::new();
    storage.create_dir(Path::new("log")).unwrap();
    let creating = storage.clone();
    let racing = Racing::new(&storage, move || creating.create_dir(Path::new(SEGMENTS)).unwrap());
    let watching = Arc::clone(&racing);
    let options = FollowOptions { recheck: HOUR, ..FollowOptions::default() };
    let mut follower = LogReader::new(dir_on(racing)).follow(Position(1), options);
    assert_eq!(follower.next(Duration::ZERO).unwrap(), None);
    assert_eq!(*watching.watched.lock().unwrap(), [Path::new("log"), Path::new(SEGMENTS)]);
}

/// A follower sleeps until something happens, in whatever way it happens, and is woken by that alone.
#[test]
fn woken_by_appends_rolls_and_new_owners() {
    let storage = disk();
    let opts = options(512, 4096);
    let total = 60;
    let mut followed = Followed::new(follow(&storage, FollowLevel::Written, HOUR));
    std::thread::scope(|scope| {
        let (storage, (ask, asked)) = (&storage, std::sync::mpsc::channel());
        scope.spawn(move || {
            // Each append waits until the one before was followed.
            let mut writer = create(storage, opts);
            for (tag, ()) in asked.iter().enumerate() {
                if tag % 20 == 19 {
                    drop(writer);
                    writer = open(storage, opts).unwrap().0;
                }
                writer.append(batch(tag as u64, &[60]), Durability::Buffered).unwrap();
            }
        });
        for _ in 0..total {
            ask.send(()).unwrap();
            followed.take_woken();
        }
    });
    assert_eq!((followed.seen.len(), followed.retracted), (total, 0));
    assert_eq!(followed.seen, all(&storage));
}

/// Where the system tells of nothing, it looks by itself, as often as it was told and no more.
#[test]
fn without_notifications_it_looks_at_intervals() {
    let storage = disk();
    let writer = create(&storage, options(8 << 20, 4096));
    let mute = Hooked { inner: storage, hook: Arc::new(|_| {}) };
    let recheck = Duration::from_millis(50);
    let mut follower = LogReader::new(dir_on(Arc::new(mute)))
        .follow(Position(1), FollowOptions { recheck, ..FollowOptions::default() });
    assert_eq!(follower.next(4 * recheck).unwrap(), None);
    assert!(follower.looks() <= 6, "{}", follower.looks());
    std::thread::scope(|scope| {
        scope.spawn(|| writer.append(batch(1, &[9]), Durability::Sync).unwrap());
        assert!(follower.next(SOON).unwrap().is_some());
    });
}

/// It need not be there yet, and says when it is gone.
#[test]
fn from_before_the_beginning_to_behind_the_end() {
    let storage = SimStorage::new();
    let mut followed = Followed::new(follow(&storage, FollowLevel::Written, HOUR));
    assert_eq!(followed.follower.next(Duration::from_millis(1)).unwrap(), None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (path, parent) in [("log", "."), (SEGMENTS, "log")] {
                storage.create_dir(Path::new(path)).unwrap();
                storage.sync_dir(Path::new(parent)).unwrap();
            }
            create(&storage, options(512, 0)).append(batch(1, &[9, 9]), Durability::Sync).unwrap();
        });
        for _ in 0..2 {
            followed.take_woken();
        }
    });
    let mut follower = followed.follower;
    assert_eq!(follower.next(Duration::ZERO).unwrap(), None);
    for file in storage.files() {
        storage.remove_file(&file).unwrap();
    }
    // Empty is not gone: a creation that did not finish leaves that.
    let item = follower.next(Duration::from_millis(1)).unwrap();
    assert_eq!(item, Some(LogItem::Retracted { from: Position(1) }));
    assert_eq!(follower.next(Duration::from_millis(1)).unwrap(), None);
    storage.rename(Path::new("log"), Path::new("trash")).unwrap();
    for _ in 0..2 {
        // The directory was moved away as a whole, which wakes nobody: that is what looking at intervals is for.
        let mut late = follow(&storage, FollowLevel::Written, Duration::ZERO);
        assert_eq!(late.try_next().unwrap(), None, "it never was there for this one");
    }
    assert_eq!(follower.try_next().unwrap(), Some(LogItem::Deleted));
    assert_eq!(follower.next(HOUR).unwrap(), Some(LogItem::Deleted), "it does not wait for what never comes");
}

/// What the host was never given as durable, and was lost with the log, is not given because the log is gone.
#[test]
fn nothing_unproven_is_given_of_a_log_that_was_removed() {
    for (level, expected) in [(FollowLevel::Written, 3), (FollowLevel::Durable, 2)] {
        let storage = disk();
        let writer = create(&storage, options(8 << 20, 0));
        writer.append(batch(1, &[10]), Durability::Sync).unwrap();
        writer.append(batch(2, &[10]), Durability::Sync).unwrap();
        writer.append(batch(3, &[10]), Durability::Buffered).unwrap();
        let mut followed = Followed::new(follow(&storage, level, Duration::ZERO));
        while followed.seen.len() < expected {
            let item = followed.follower.try_next().unwrap().unwrap();
            followed.take(item);
        }
        storage.rename(Path::new("log"), Path::new("trash")).unwrap();
        assert_eq!(followed.follower.try_next().unwrap(), Some(LogItem::Deleted), "{level:?}");
    }
}

/// The same where each segment is one frame: what was given ends where a segment does.
#[test]
fn another_log_is_told_at_the_end_of_a_segment() {
    for level in [FollowLevel::Written, FollowLevel::Durable] {
        let (storage, other, opts) = (disk(), disk(), options(200, 0));
        for (disk, tag) in [(&storage, 0), (&other, 100)] {
            let writer = create(disk, opts);
            for nth in 0..6 {
                writer.append(batch(tag + nth, &[90]), Durability::Sync).unwrap();
            }
        }
        let mut followed = Followed::new(follow(&storage, level, Duration::ZERO));
        followed.drain();
        assert!(storage.files().len() == 6 && followed.seen.len() >= 5);
        for file in storage.files() {
            storage.put_file(&file, other.read_file(&file).unwrap()).unwrap();
        }
        let error = followed.follower.try_next().unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, "log.diverged"), "{level:?}");
    }
}

/// Another log at the same place is no continuation.
#[test]
fn another_log_in_its_place_is_said() {
    let storage = disk();
    let opts = options(8 << 20, 0);
    let writer = create(&storage, opts);
    for tag in 0..5 {
        writer.append(batch(tag, &[9]), Durability::Sync).unwrap();
    }
    let mut followed = Followed::new(follow(&storage, FollowLevel::Durable, Duration::ZERO));
    followed.drain();
    assert_eq!(followed.seen.len(), 4);
    let other = disk();
    let writer = create(&other, opts);
    for tag in 100..110 {
        writer.append(batch(tag, &[9]), Durability::Sync).unwrap();
    }
    let segment = storage.files().pop().unwrap();
    storage.put_file(&segment, other.read_file(&segment).unwrap()).unwrap();
    let error = followed.follower.try_next().unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, "log.diverged"));
}

/// Damage is an item, once, and what is behind it follows.
#[test]
fn damage_is_given_once() {
    for hurt in [0, 2, 3, 9] {
        let storage = disk();
        let opts: LogOptions = options(600, 0);
        let writer = create(&storage, opts);
        for tag in 0..20 {
            writer.append(batch(tag, &[90]), Durability::Sync).unwrap();
        }
        let segments: Vec<_> =
            storage.files().into_iter().filter(|file| !file.starts_with(QUARANTINE)).collect();
        let nth = hurt.min(segments.len() - 1);
        // Of one segment, two records; of another, all up to its end.
        let damage = |bytes: &mut Vec<u8>| {
            let end = [340, 340, bytes.len(), 500].get(hurt).copied().unwrap_or(340);
            bytes[300..end].fill(0xff);
        };
        storage.corrupt(&segments[nth], damage).unwrap();
        let (mut records, mut gaps) = (Vec::new(), 0);
        let mut follower = follow(&storage, FollowLevel::Written, Duration::ZERO);
        let mut drain = |follower: &mut LogFollower| {
            while let Some(item) = follower.try_next().unwrap() {
                match item {
                    LogItem::Record(record) => records.push(record.position),
                    LogItem::Gap(_) => gaps += 1,
                    LogItem::Retracted { .. } | LogItem::Deleted => panic!("{item:?}"),
                }
            }
            (records.clone(), gaps)
        };
        let seen = read(&storage, Position(1)).unwrap();
        let expected: Vec<Position> = seen.records.iter().map(|record| record.position).collect();
        for _ in 0..3 {
            assert_eq!(drain(&mut follower), (expected.clone(), seen.gaps.len()), "segment {nth}");
        }
        writer.append(batch(20, &[90]), Durability::Sync).unwrap();
        let (records, _) = drain(&mut follower);
        assert_eq!(records.len(), expected.len() + 1, "segment {nth}");
    }
}

/// An error is no end: nothing is skipped, and nothing taken back. A host whose disk fails one read would else see a conversation
/// vanish and come again.
#[test]
fn a_read_that_fails_is_tried_again() {
    for kind in [CallKind::Open, CallKind::Read, CallKind::Stat, CallKind::List] {
        for (after, at) in (0..6).flat_map(|after| [(after, 4), (after, 5), (after, 6)]) {
            let storage = disk();
            let writer = create(&storage, options(512, 0));
            let mut followed = Followed::new(follow(&storage, FollowLevel::Written, Duration::ZERO));
            for tag in 0..10 {
                writer.append(batch(tag, &[60]), Durability::Sync).unwrap();
                if tag == at {
                    storage.fail(Fault::new(kind, FaultError::EIO).after(after));
                }
                let mut errors = 0;
                loop {
                    match followed.follower.try_next() {
                        Ok(Some(item)) => followed.take(item),
                        Ok(None) => break,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Io);
                            errors += 1;
                        }
                    }
                }
                assert_eq!(
                    errors,
                    usize::from(tag == at && storage.armed_faults() == 0),
                    "{kind:?} {after} {at}"
                );
                storage.clear_faults();
            }
            assert_eq!(followed.seen, all(&storage), "{kind:?} {after} {at}");
            assert_eq!(followed.retracted, 0, "{kind:?} {after} {at}");
        }
    }
}

/// The same records as they were acknowledged, from a place in the middle.
#[test]
fn from_a_place_in_the_middle() {
    let storage = disk();
    let writer = create(&storage, options(700, 0));
    let mut expected = Vec::new();
    for tag in 0..12 {
        let receipt = writer.append(batch(tag, &[50, 60, 70]), Durability::Sync).unwrap();
        expected.extend(logged(receipt.first, tag, &[50, 60, 70]));
    }
    for from in 1..=40_u64 {
        let mut follower = LogReader::new(dir(&storage)).follow(Position(from), FollowOptions::default());
        let mut positions = Vec::new();
        while let Some(item) = follower.try_next().unwrap() {
            let LogItem::Record(record) = item else { panic!("{item:?}") };
            positions.push(record.position);
        }
        let wanted: Vec<_> =
            expected.iter().map(|it| it.position).filter(|position| position.0 >= from).collect();
        assert_eq!(positions, wanted, "from {from}");
    }
}

/// A session on a simulated disk, with segments of a few events.
fn session(storage: &SimStorage) -> sessionlog::Session {
    let options = sessionlog::StoreOptions { log: options(600, 512), ..sessionlog::StoreOptions::default() };
    support::tree::open_with(storage, options)
        .create_foreign(b"/work", sessionlog::NewSession::default())
        .unwrap()
}

/// The positions of what a session's follower gives until there is nothing more.
fn positions(follower: &mut Follower) -> Vec<u64> {
    let item = || follower.try_next().unwrap();
    std::iter::from_fn(item)
        .map(|item| match item {
            FollowItem::Event(event) => event.position.0,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Erasing writes sealed segments anew and a fork shares them: neither gives anything twice. A session that is deleted says so.
#[test]
fn over_erasure_forks_and_to_the_deletion() {
    let storage = SimStorage::new();
    let session = session(&storage);
    let now = FollowOptions { recheck: Duration::ZERO, ..FollowOptions::default() };
    let mut follower = session.reader().follow(Position(1), now);
    let mut seen = positions(&mut follower);
    for nth in 0..30_u64 {
        let appended = session.append(Message::user(format!("message {nth}"))).unwrap();
        if nth % 5 == 4 {
            let erased = appended.receipt.first.0 - 2;
            session.redact(&[Position(erased)].into(), "a secret").unwrap();
        }
        if nth % 3 != 0 {
            seen.extend(positions(&mut follower));
        }
    }
    seen.extend(positions(&mut follower));
    let last = session.last().0;
    assert_eq!(seen, (1..=last).collect::<Vec<_>>());

    let fork = session.fork(ForkPoint::Head, ForkOptions::default()).unwrap();
    let mut of_fork = fork.reader().follow(Position(last - 20), now);
    fork.append(Message::user("on the other way")).unwrap();
    assert_eq!(positions(&mut of_fork), (last - 20..=fork.last().0).collect::<Vec<_>>());
    assert_eq!(positions(&mut follower), [] as [u64; 0], "the fork is no business of this one");

    let (place, reader) = (session.place().clone(), session.reader());
    session.close().unwrap();
    assert_eq!(positions(&mut follower), [last + 1]);
    assert_eq!(reader.log().follow(Position(1), now).position(), Position(1));
    storage.rename(&place.dir, &place.dir.with_extension("removed")).unwrap();
    assert!(matches!(follower.try_next().unwrap(), Some(FollowItem::Deleted)));
    assert!(matches!(follower.try_next().unwrap(), Some(FollowItem::Deleted)));
}

/// In the owner's own process too, from before the session is there.
#[test]
fn a_session_that_is_yet_to_come() {
    let dir = tempfile::tempdir().unwrap();
    let (home, work) = (dir.path().join("home"), dir.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let store = Store::open(&home).unwrap();
    let id = sessionlog::new_session_id();
    let reader = store.reader().session_at(store.reader().place_in(&work, id));
    let options = FollowOptions { recheck: HOUR, ..FollowOptions::default() };
    let mut follower = reader.follow(Position(1), options);
    assert!(follower.next(Duration::from_millis(1)).unwrap().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let new = sessionlog::NewSession { id: Some(id), ..sessionlog::NewSession::default() };
            let session = store.create(&work, new).unwrap();
            session.append(Message::user("Hello.")).unwrap();
        });
        for position in 1..=4 {
            let Some(FollowItem::Event(event)) = follower.next(SOON).unwrap() else { panic!("{position}") };
            assert_eq!(event.position, Position(position));
        }
    });
}
