//! Several hosts on one workspace, on the real operating system: killed with SIGKILL, stopped and continued with SIGSTOP and
//! SIGCONT, each session handed from one to the next, readers following all the time. Reports of two agents that wrote into
//! one session and lost each other's turns, of sessions that could not be opened after a crash because of a lock file that was
//! left, and of a second window that "waits for a lock" of a process that is long gone, come from locks that are files with
//! a pid in them.
//!
//! The test runs itself as the hosts. `SESSIONLOG_KILLS` is the number of SIGKILLs of each of the two tests that kill at
//! random, `SESSIONLOG_ROBBERIES` that of owners that are robbed of their lock, `SESSIONLOG_SEED` the seed. Where there is no `kill` command, the tests that stop processes say so and do nothing.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic"
)]
#![cfg(unix)]

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use sessionlog::codec::event::{Event, Part};
use sessionlog::codec::ids::{Position, SessionId};
use sessionlog::codec::record::Payload;
use sessionlog::codec::segment::SegmentHeader;
use sessionlog::log::{Cursor, LogFollower, LogItem, LogPayload, ReadItem, Severity};
use sessionlog::projections::Liveness;
use sessionlog::session::EventItem;
use sessionlog::{
    ErrorKind, FollowItem, FollowLevel, FollowOptions, LogOptions, Message, NewSession, Session,
    SessionReader, Store, StoreOptions, StoreReader,
};
use support::Rng;

/// What this binary is run as, when it runs itself.
const ROLE: &str = "SESSIONLOG_PROCESS_ROLE";

#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split('|').collect();
    match words[..] {
        ["worker", home, seed] => worker(Path::new(home), Rng(seed.parse().unwrap())),
        ["writer", home, id] => writer(Path::new(home), id.parse().unwrap()),
        ["obedient", home, id] => obedient(Path::new(home), id.parse().unwrap()),
        _ => panic!("no role: {role}"),
    }
}

/// Short segments, so that they roll all the time.
fn open(home: &Path) -> Store {
    let log = LogOptions { segment_len: 1024, fill_len: 512 };
    Store::open_with(home, StoreOptions { log, ..StoreOptions::default() }).unwrap()
}

fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    // The parent is gone: so is the reason to go on.
    if out.write_all(format!("said {what}\n").as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Past the test harness, which shows nothing of a test that passes.
fn tell(what: &str) {
    std::io::stderr().write_all(format!("processes: {what}\n").as_bytes()).unwrap();
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().unwrap())
}

/// A process of ours. Killed when it is dropped.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

impl Process {
    fn start(role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        Self { child, input, output }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next thing that it says; `None` once it has ended.
    fn hear(&mut self) -> Option<String> {
        next_said(self.output.as_mut().unwrap())
    }

    /// Tells it to do something, and hears what came of it.
    fn ask(&mut self, what: &str) -> String {
        self.input.as_mut().unwrap().write_all(format!("{what}\n").as_bytes()).unwrap();
        self.hear().unwrap()
    }

    fn signal(&self, signal: &str) {
        assert!(kill(signal, self.pid()), "kill -{signal} {}", self.pid());
    }

    /// Stops it, and comes back once each of its threads stands still: a system call that is under way goes on to its end.
    fn stop(&self) {
        self.signal("STOP");
        while std::fs::read_dir(format!("/proc/{}/task", self.pid())).is_ok_and(|threads| {
            threads.flatten().any(|thread| {
                let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
                let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or("T");
                !state.trim().starts_with(['T', 't'])
            })
        }) {
            std::thread::yield_now();
        }
    }

    /// SIGKILL, and what it had said before it and nobody had heard yet.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let Some(mut output) = self.output.take() else { return Vec::new() };
        std::iter::from_fn(|| next_said(&mut output)).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn next_said(output: &mut impl BufRead) -> Option<String> {
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).ok()? == 0 {
            return None;
        }
        // A line that was cut off by a kill was not said.
        if let Some((_, said)) = line.split_once("said ")
            && let Some(said) = said.strip_suffix('\n')
        {
            return Some(said.to_owned());
        }
    }
}

fn kill(signal: &str, pid: u32) -> bool {
    Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().is_ok_and(|it| it.success())
}

/// Whether processes can be stopped here.
fn can_signal() -> bool {
    let can = kill("CONT", std::process::id());
    if !can {
        tell("SKIPPED: there is no kill command");
    }
    can
}

/// What an owner writes: who it is.
fn words(epoch: u64, nth: u64) -> String {
    format!("{} in epoch {epoch} says {nth}", std::process::id())
}

/// Appends as an owner, and says so.
fn append(session: &Session, epoch: u64, nth: u64) -> sessionlog::Result<()> {
    let text = words(epoch, nth);
    let receipt = session.append(Message::user(text.as_str()))?.receipt;
    say(&format!("ack {} {} {text}", session.id(), receipt.last));
    Ok(())
}

fn failed(error: &sessionlog::Error) -> String {
    format!("error {:?} {}", error.kind(), error.code())
}

/// A host that takes whichever session it gets, goes on with it for a while, and hands it over.
fn worker(home: &Path, mut rng: Rng) {
    let store = open(home);
    loop {
        let places = store.reader().places().unwrap();
        let (session, epoch) = if places.len() < 5 && rng.below(3) == 0 {
            (store.create_foreign(b"/w", NewSession::default()).unwrap(), 1)
        } else {
            if places.is_empty() {
                continue;
            }
            let id = places[rng.index(places.len())].id;
            match store.resume(id) {
                Ok((session, report)) => (session, report.epoch.0),
                Err(error) if error.kind() == ErrorKind::Locked => {
                    say(&format!("locked {id} {error}"));
                    continue;
                }
                // Its creation has not come to its end, or never will.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => panic!("{error:?}"),
            }
        };
        for nth in 0..rng.below(10) {
            append(&session, epoch, nth).unwrap();
        }
        match rng.below(3) {
            0 => drop(session),
            _ => drop(session.close().unwrap()),
        }
    }
}

/// A host that goes on with one session until it is killed.
fn writer(home: &Path, id: SessionId) {
    // Whoever had it is dead: its lock is free at once, whatever its file says.
    let (session, report) = open(home).resume(id).unwrap();
    say(&format!("own {id} {} epoch {}", session.last(), report.epoch));
    if let Some(error) = (0..).find_map(|nth| append(&session, report.epoch.0, nth).err()) {
        say(&failed(&error));
    }
}

/// A host that does what it is told, one thing after the other.
fn obedient(home: &Path, id: SessionId) {
    let (session, report) = open(home).resume(id).unwrap();
    say("own");
    for (line, nth) in std::io::stdin().lines().zip(0..) {
        let done = match line.unwrap().as_str() {
            "append" => {
                let text = words(report.epoch.0, nth);
                session.append(Message::user(text)).map(|appended| appended.receipt.last.to_string())
            }
            other => panic!("no command: {other}"),
        };
        match done {
            Ok(position) => say(&format!("ack {position}")),
            Err(error) => say(&failed(&error)),
        }
    }
}

/// What was acknowledged to be where.
#[derive(Default)]
struct Acked(BTreeMap<SessionId, BTreeMap<Position, String>>);

impl Acked {
    /// Takes in `ack SESSION POSITION TEXT`. Whether it was one.
    fn note(&mut self, line: &str) -> bool {
        let Some(line) = line.strip_prefix("ack ") else { return false };
        let mut words = line.splitn(3, ' ');
        let id = words.next().unwrap().parse().unwrap();
        let position = Position(words.next().unwrap().parse().unwrap());
        let before = self.0.entry(id).or_default().insert(position, words.next().unwrap().to_owned());
        assert_eq!(before, None, "{position} of {id} was acknowledged twice");
        true
    }
}

/// A reader that follows a session from its first record on.
struct Follower {
    cursor: Cursor,
    seen: Vec<Vec<u8>>,
    /// Each with the position that comes next.
    written: (LogFollower, u64),
    durable: (LogFollower, u64),
}

impl Follower {
    fn new(reader: &SessionReader) -> Self {
        let log = reader.log();
        let follow = |level| {
            let options = FollowOptions { level, recheck: Duration::ZERO };
            (log.follow(Position(1), options), 1)
        };
        Self {
            cursor: log.cursor(Position(1)),
            seen: Vec::new(),
            written: follow(FollowLevel::Written),
            durable: follow(FollowLevel::Durable),
        }
    }

    /// Takes in what is new: each record once, in order, none left out.
    fn advance(&mut self) {
        let seen = &mut self.seen;
        let advanced = self.cursor.advance(&mut |item| {
            let ReadItem::Record(record) = item else { panic!("{item:?}") };
            assert_eq!(record.position.0, seen.len() as u64 + 1, "a record was left out or came twice");
            let Payload::Present(payload) = record.payload else { panic!("erased") };
            seen.push(payload.to_vec());
            ControlFlow::Continue(())
        });
        advanced.unwrap();
        for (follower, next) in [&mut self.written, &mut self.durable] {
            while let Some(item) = follower.try_next().unwrap() {
                // A process that is killed withdraws nothing that it wrote as a whole.
                let LogItem::Record(record) = item else { panic!("{item:?}") };
                assert_eq!(record.position.0, *next, "a record was left out or came twice");
                let nth = usize::try_from(*next).unwrap() - 1;
                // The cursor is read first, and a host writes meanwhile.
                let LogPayload::Present(payload) = record.payload else { panic!("erased") };
                assert!(seen.get(nth).is_none_or(|seen| *seen == payload));
                *next += 1;
            }
        }
    }

    /// What it saw on the way is what is there.
    fn check(mut self, reader: &SessionReader) -> u64 {
        self.advance();
        let mut cold = Self::new(reader);
        cold.advance();
        let there = self.seen.len() as u64;
        assert_eq!((self.written.1, cold.written.1), (there + 1, there + 1));
        assert_eq!((self.durable.1, cold.durable.1), (there, there), "all but the record of its end");
        assert!(self.seen == cold.seen, "what a follower saw is not what is there");
        self.seen.len() as u64
    }
}

/// The law of owners: epochs go up, and what stands behind an opening was written by that owner and nobody else. How
/// many owners there were.
fn check_owners(reader: &SessionReader, acked: Option<&BTreeMap<Position, String>>) -> u64 {
    let found = reader.verify().unwrap();
    assert!(found.worst() <= Some(Severity::Note), "{:?}", found.all().collect::<Vec<_>>());
    let (mut epoch, mut pid, mut nth, mut owners) = (0, 0, 0, 0);
    let mut there = BTreeMap::new();
    reader
        .events(Position(1), &mut |item| {
            let EventItem::Event(logged) = item else { panic!("{item:?}") };
            match logged.event {
                Event::SessionOpened(opened) => {
                    // One that was killed between sealing a segment and saying that it is the owner leaves a number out.
                    assert!(opened.epoch.0 > epoch, "epoch {} after {epoch}", opened.epoch);
                    owners += 1;
                    (epoch, pid, nth) = (opened.epoch.0, opened.pid, 0);
                }
                Event::MessageAppended(message) => {
                    let [Part::Text(text)] = message.parts.as_slice() else { panic!("{message:?}") };
                    assert_eq!(*text, format!("{pid} in epoch {epoch} says {nth}"), "another owner's record");
                    nth += 1;
                    there.insert(logged.position, text.clone());
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    for (position, text) in acked.into_iter().flatten() {
        assert_eq!(there.get(position), Some(text), "acknowledged at {position}");
    }
    owners
}

/// Four hosts take what they get of a few sessions.
#[test]
fn four_hosts_on_one_workspace() {
    if !can_signal() {
        return;
    }
    let (kills, mut rng) = (number("SESSIONLOG_KILLS", 40), Rng(number("SESSIONLOG_SEED", 1)));
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    drop(open(&home));
    let (sender, heard) = channel();
    let mut hosts: Vec<Hosted> = (0..4).map(|_| Hosted::start(&home, &mut rng, &sender)).collect();
    let mut known = Known::new(&home);
    let (mut killed, mut stops) = (0, 0);
    while killed < kills {
        for _ in 0..1 + rng.below(8) {
            known.hear(&heard.recv().unwrap());
        }
        let nth = rng.index(hosts.len());
        match rng.below(3) {
            // Two of them go on at any time.
            0 if hosts.iter().filter(|host| host.stopped).count() < 2 && !hosts[nth].stopped => {
                hosts[nth].stop();
                stops += 1;
            }
            0 | 1 if hosts[nth].stopped => hosts[nth].go_on(),
            1 => {}
            _ => {
                // Stopped or not.
                hosts.swap_remove(nth).kill();
                killed += 1;
                hosts.push(Hosted::start(&home, &mut rng, &sender));
            }
        }
    }
    hosts.drain(..).for_each(Hosted::kill);
    drop(sender);
    heard.iter().for_each(|line| known.hear(&line));
    let figures = known.check();
    tell(&format!("four hosts: {killed} SIGKILLs, {stops} SIGSTOPs, {figures}"));
}

/// A worker, and a thread that listens to it.
struct Hosted {
    process: Process,
    listener: std::thread::JoinHandle<()>,
    stopped: bool,
}

impl Hosted {
    fn start(home: &Path, rng: &mut Rng, sender: &Sender<String>) -> Self {
        let mut process = Process::start(&format!("worker|{}|{}", home.display(), rng.next()));
        let mut output = process.output.take().unwrap();
        let sender = sender.clone();
        let listener = std::thread::spawn(move || {
            while let Some(said) = next_said(&mut output) {
                sender.send(said).unwrap();
            }
        });
        Self { process, listener, stopped: false }
    }

    fn stop(&mut self) {
        self.process.signal("STOP");
        self.stopped = true;
    }

    fn go_on(&mut self) {
        self.process.signal("CONT");
        self.stopped = false;
    }

    fn kill(mut self) {
        let ended = self.process.child.try_wait().unwrap();
        assert!(ended.is_none(), "a host failed by itself: {ended:?}");
        self.process.kill();
        self.listener.join().unwrap();
    }
}

/// What was heard, and followed.
struct Known {
    store: StoreReader,
    acked: Acked,
    followers: BTreeMap<SessionId, Follower>,
    acks: u64,
    refused: u64,
}

impl Known {
    fn new(home: &Path) -> Self {
        let store = StoreReader::open(home).unwrap();
        Self { store, acked: Acked::default(), followers: BTreeMap::new(), acks: 0, refused: 0 }
    }

    fn hear(&mut self, said: &str) {
        let id: SessionId = said.split(' ').nth(1).unwrap().parse().unwrap();
        if self.acked.note(said) {
            self.acks += 1;
        } else {
            // Who is refused is told by whom, unless the owner has not come to write it down yet.
            assert!(said.starts_with("locked "), "{said}");
            assert!(said.contains(" is held by "), "{said}");
            self.refused += 1;
            // One that was stopped between taking the lock and writing the first record has no log to be followed yet.
            if !self.followers.contains_key(&id) {
                return;
            }
        }
        let reader = || self.store.session(id).unwrap();
        self.followers.entry(id).or_insert_with(|| Follower::new(&reader())).advance();
    }

    fn check(self) -> String {
        let store = open(self.store.path());
        let (mut records, mut owners) = (0, 0);
        for (id, mut follower) in self.followers {
            // Every host is dead: no lock is left of them.
            let reader = self.store.session(id).unwrap();
            assert_ne!(reader.liveness(), Liveness::Alive);
            store.resume(id).unwrap().0.close().unwrap();
            follower.advance();
            owners += check_owners(&reader, self.acked.0.get(&id));
            records += follower.check(&reader);
        }
        let Self { acks, refused, .. } = self;
        format!(
            "{acks} acknowledgements, {refused} times locked out, {owners} owners, {records} records followed"
        )
    }
}

/// The shortest life of a host: it takes a session over, says a few things and is killed; the next one is there at once.
#[test]
fn a_dead_hosts_session_is_free_at_once() {
    let (kills, mut rng) = (number("SESSIONLOG_KILLS", 60), Rng(number("SESSIONLOG_SEED", 2)));
    let begun = Instant::now();
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let store = open(&home);
    let (mut killed, mut torn, mut acks, mut records) = (0, 0, 0, 0);
    while killed < kills {
        let session = store.create_foreign(b"/w", NewSession::default()).unwrap();
        let (id, reader) = (session.id(), session.reader());
        session.close().unwrap();
        let (mut acked, mut follower) = (Acked::default(), Follower::new(&reader));
        let cycles = (5 + rng.below(40)).min(kills - killed);
        for cycle in 0..cycles {
            let mut host = Process::start(&format!("writer|{}|{id}", home.display()));
            let owned = host.hear().expect("the lock of a dead host is free");
            assert!(owned.ends_with(&format!(" epoch {}", cycle + 2)), "{owned}");
            for _ in 0..rng.below(6) {
                assert!(acked.note(&host.hear().unwrap()));
                follower.advance();
            }
            host.kill().iter().for_each(|said| assert!(acked.note(said)));
            assert_ne!(reader.liveness(), Liveness::Alive);
            follower.advance();
            if rng.below(3) == 0 {
                torn += u64::from(tear(&reader, &mut rng));
                follower.advance();
            }
        }
        killed += cycles;
        store.resume(id).unwrap().0.close().unwrap();
        follower.advance();
        assert_eq!(check_owners(&reader, acked.0.get(&id)), cycles + 2);
        acks += acked.0.get(&id).map_or(0, BTreeMap::len);
        records += follower.check(&reader);
    }
    tell(&format!(
        "one host after the other: {killed} SIGKILLs in {} s, {torn} tails torn by hand, {acks} acknowledgements, \
         {records} records followed",
        begun.elapsed().as_secs()
    ));
}

/// What a host writes wakes a follower in another process, over any number of hosts that are killed; while nobody writes,
/// nothing is read.
#[test]
fn a_follower_is_woken_by_other_processes_and_by_nothing_else() {
    let mut rng = Rng(number("SESSIONLOG_SEED", 4));
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let session = open(&home).create_foreign(b"/w", NewSession::default()).unwrap();
    let id = session.id();
    session.close().unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let storage = support::counted::Counted { calls: Arc::clone(&calls) };
    let reader = StoreReader::open_on(Arc::new(storage), &home).unwrap().session(id).unwrap();
    // Only the system wakes it.
    let options = FollowOptions { recheck: Duration::from_secs(3600), ..FollowOptions::default() };
    let mut follower = reader.follow(Position(1), options);
    let (mut next, mut texts) = (1, BTreeMap::new());
    let mut acked = Acked::default();
    for _ in 0..number("SESSIONLOG_KILLS", 20) {
        let mut host = Process::start(&format!("writer|{}|{id}", home.display()));
        assert!(host.hear().unwrap().starts_with("own "));
        for _ in 0..rng.below(8) {
            let said = host.hear().unwrap();
            assert!(acked.note(&said));
            let last = *acked.0[&id].last_key_value().unwrap().0;
            while next <= last.0 {
                let item = follower.next(Duration::from_secs(20)).unwrap().expect("it was woken");
                let FollowItem::Event(event) = item else { panic!("{item:?}") };
                assert_eq!(event.position.0, next, "left out, or given twice");
                next += 1;
                if let Event::MessageAppended(message) = event.event
                    && let [Part::Text(text)] = message.parts.as_slice()
                {
                    texts.insert(event.position, text.clone());
                }
            }
        }
        host.kill().iter().for_each(|said| assert!(acked.note(said)));
    }
    let mut drain = |follower: &mut sessionlog::Follower| {
        while let Some(item) = follower.next(Duration::from_millis(1)).unwrap() {
            let FollowItem::Event(event) = item else { panic!("{item:?}") };
            assert_eq!(event.position.0, next, "left out, or given twice");
            next += 1;
            if let Event::MessageAppended(message) = event.event
                && let [Part::Text(text)] = message.parts.as_slice()
            {
                texts.insert(event.position, text.clone());
            }
        }
    };
    drain(&mut follower);
    let (looks, before) = (follower.looks(), calls.load(Ordering::SeqCst));
    assert!(follower.next(Duration::from_millis(400)).unwrap().is_none());
    let (looks, calls) = (follower.looks() - looks, calls.load(Ordering::SeqCst) - before);
    // Before it waits and behind it; and once for what the last host left to be told.
    assert!(looks <= 3 && calls <= 6 * looks, "{calls} calls in {looks} looks");
    open(&home).resume(id).unwrap().0.close().unwrap();
    drain(&mut follower);
    for (position, text) in acked.0.get(&id).into_iter().flatten() {
        assert_eq!(texts.get(position), Some(text), "acknowledged at {position}");
    }
    check_owners(&reader, acked.0.get(&id));
}

/// Leaves bytes behind the last frame, as an append does that was not finished. Whether there was a place for them: nothing
/// is appended to a segment whose header is not whole.
fn tear(reader: &SessionReader, rng: &mut Rng) -> bool {
    let newest = segments(reader).pop().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    if SegmentHeader::decode(&bytes).is_err() {
        return false;
    }
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    // A frame may end in zeros.
    bytes.resize((used + 64).next_multiple_of(8), 0);
    bytes.extend((0..1 + rng.below(200)).map(|_| u8::try_from(rng.below(255)).unwrap() + 1));
    std::fs::write(newest, bytes).unwrap();
    true
}

fn segments(reader: &SessionReader) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(reader.place().dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|it| it == "seg")).collect();
    segments.sort();
    segments
}

fn lock_of(reader: &SessionReader) -> PathBuf {
    reader.place().dir.join("owner.lock")
}

/// A session that a process owns which does what it is told.
fn owned(dir: &Path) -> (Store, SessionId, Process) {
    let home = dir.join("home");
    let store = open(&home);
    let session = store.create_foreign(b"/w", NewSession::default()).unwrap();
    let id = session.id();
    session.close().unwrap();
    let mut owner = Process::start(&format!("obedient|{}|{id}", home.display()));
    assert_eq!(owner.hear().as_deref(), Some("own"));
    (store, id, owner)
}

/// A laptop that was put to sleep, a debugger, Ctrl-Z: who owns a session and does not move owns it.
#[test]
fn a_stopped_owner_is_an_owner() {
    if !can_signal() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (store, id, mut owner) = owned(dir.path());
    assert!(owner.ask("append").starts_with("ack "));
    owner.signal("STOP");
    let error = store.resume(id).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Locked, "session.locked"));
    let text = error.to_string();
    let named = error.owner().unwrap();
    assert_eq!(named.pid, owner.pid());
    assert!(!named.host.is_empty() && named.command.contains("processes"), "{named}");
    assert!(text.contains(&format!("process {}", owner.pid())) && text.contains(&named.host), "{text}");
    let reader = store.reader().session(id).unwrap();
    assert_ne!(reader.liveness(), Liveness::Dead);
    owner.signal("CONT");
    assert!(owner.ask("append").starts_with("ack "));
    // A process that is stopped can be killed, and is not continued for that.
    owner.signal("STOP");
    owner.kill();
    assert_ne!(reader.liveness(), Liveness::Alive);
    let (session, report) = store.resume(id).unwrap();
    assert_eq!(report.epoch.0, 3);
    session.close().unwrap();
    check_owners(&reader, None);
}

/// Somebody removes "a stale lock file" of an owner that lives.
#[test]
fn an_owner_whose_lock_file_was_taken_away_is_fenced() {
    let removed = |lock: &Path| std::fs::remove_file(lock).unwrap();
    let replaced = |lock: &Path| {
        let other = lock.with_extension("other");
        std::fs::write(&other, "another one").unwrap();
        std::fs::rename(other, lock).unwrap();
    };
    let moved = |lock: &Path| std::fs::rename(lock, lock.with_extension("old")).unwrap();
    for (what, take_away) in
        [("removed", &removed as &dyn Fn(&Path)), ("replaced", &replaced), ("moved", &moved)]
    {
        for appends_before in [0, 1, 7] {
            let dir = tempfile::tempdir().unwrap();
            let (store, id, mut stale) = owned(dir.path());
            for _ in 0..appends_before {
                assert!(stale.ask("append").starts_with("ack "));
            }
            let reader = store.reader().session(id).unwrap();
            take_away(&lock_of(&reader));
            let (session, report) = store.resume(id).unwrap();
            assert_eq!(report.epoch.0, 3, "{what}");
            for nth in 0..appends_before {
                session.append(Message::user(words(3, nth))).unwrap();
            }
            for _ in 0..3 {
                assert_eq!(stale.ask("append"), "error Fenced log.fenced", "{what}");
            }
            session.append(Message::user(words(3, appends_before))).unwrap();
            // It closes what it holds, in vain.
            drop(stale.input.take());
            stale.child.wait().unwrap();
            session.append(Message::user(words(3, appends_before + 1))).unwrap();
            session.close().unwrap();
            check_owners(&reader, None);
        }
    }
}

/// What a lock file says is for people. It can be of a machine that is gone, or of a pid that is somebody else's now.
#[test]
fn a_lock_file_that_lies_decides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, id, mut owner) = owned(dir.path());
    let reader = store.reader().session(id).unwrap();
    let lock = lock_of(&reader);
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let says = |pid: u32| {
        format!(r#"{{"pid":{pid},"host":"elsewhere","command":"vi","since":"1999-01-01T00:00:00Z"}}"#)
    };
    // Of a process that lives and owns nothing (init, this one), of one that is dead, of none.
    let pids = [1, std::process::id(), gone.id(), 0, u32::MAX];
    let mut lies: Vec<Vec<u8>> = pids.map(|pid| says(pid).into_bytes()).into();
    lies.extend([Vec::new(), b"\0\xff\xfe garbage".to_vec(), vec![b'x'; 1 << 20], b"{".repeat(20_000)]);
    lies.push(br#"{"pid":"7","host":[],"command":null}"#.to_vec());
    lies.push(format!("{}\u{1b}[2J", says(owner.pid())).into_bytes());
    for lie in &lies {
        std::fs::write(&lock, lie).unwrap();
        let error = store.resume(id).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "whoever it is said to be of, it is held");
        assert!(error.to_string().len() < 1000, "{error}");
        assert_ne!(reader.liveness(), Liveness::Dead);
        assert!(owner.ask("append").starts_with("ack "));
    }
    owner.kill();
    let mut epoch = 2;
    for lie in &lies {
        std::fs::write(&lock, lie).unwrap();
        assert_ne!(reader.liveness(), Liveness::Alive);
        let (session, report) = store.resume(id).unwrap();
        epoch += 1;
        assert_eq!(report.epoch.0, epoch, "whoever it is said to be of, it is free");
        assert_eq!(reader.owner().unwrap().pid, std::process::id());
        session.append(Message::user(words(epoch, 0))).unwrap();
        session.close().unwrap();
    }
    check_owners(&reader, None);
}

/// What is no file is not locked, not followed, not waited for and not removed.
#[test]
fn a_lock_that_is_no_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, id, owner) = owned(dir.path());
    owner.kill();
    let reader = store.reader().session(id).unwrap();
    let lock = lock_of(&reader);
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    let linked = |to: &Path| std::os::unix::fs::symlink(to, &lock).unwrap();
    let makes: [&dyn Fn(); 4] = [
        &|| std::fs::create_dir(&lock).unwrap(),
        &|| linked(&precious),
        &|| linked(&dir.path().join("nothing")),
        &|| assert!(Command::new("mkfifo").arg(&lock).status().unwrap().success()),
    ];
    for (nth, make) in makes.iter().enumerate() {
        std::fs::remove_file(&lock).or_else(|_| std::fs::remove_dir(&lock)).unwrap();
        make();
        let before = segments(&reader);
        let error = store.resume(id).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Invalid), "{nth}: {error:?}");
        assert!(error.to_string().contains("owner.lock"), "{nth}: {error}");
        assert_eq!(segments(&reader), before);
        assert_ne!(reader.liveness(), Liveness::Alive);
        assert!(reader.owner().is_none(), "{nth}");
        // Readers need no lock.
        check_owners(&reader, None);
    }
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    assert!(!dir.path().join("nothing").exists());
    std::fs::remove_file(&lock).unwrap();
    store.resume(id).unwrap().0.close().unwrap();
    check_owners(&reader, None);
}

/// An owner is stopped anywhere, in the middle of an append too; its lock file is taken away, another one takes over, and it
/// goes on.
#[test]
fn an_owner_that_was_stopped_anywhere_and_robbed_is_fenced() {
    if !can_signal() {
        return;
    }
    let (rounds, mut rng) = (number("SESSIONLOG_ROBBERIES", 20), Rng(number("SESSIONLOG_SEED", 3)));
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let store = open(&home);
    let mut in_flight = 0;
    for _ in 0..rounds {
        let session = store.create_foreign(b"/w", NewSession::default()).unwrap();
        let (id, reader) = (session.id(), session.reader());
        session.close().unwrap();
        let mut stale = Process::start(&format!("writer|{}|{id}", home.display()));
        let mut acked = Acked::default();
        stale.hear().unwrap();
        for _ in 0..rng.below(20) {
            assert!(acked.note(&stale.hear().unwrap()));
        }
        stale.stop();
        std::fs::remove_file(lock_of(&reader)).unwrap();
        let (session, _) = store.resume(id).unwrap();
        session.append(Message::user(words(3, 0))).unwrap();
        stale.signal("CONT");
        // What it said before is still in the pipe. It ends by itself, at the first append that fails.
        let after: Vec<_> = std::iter::from_fn(|| stale.hear()).take(5000).collect();
        let (last, acks) = after.split_last().unwrap();
        acks.iter().for_each(|said| assert!(acked.note(said)));
        assert_eq!(last, "error Fenced log.fenced", "after {} acknowledgements", acks.len());
        session.append(Message::user(words(3, 1))).unwrap();
        session.close().unwrap();
        check_owners(&reader, None);
        let mut there = BTreeMap::new();
        texts(&reader, &mut there);
        let acked = acked.0.remove(&id).unwrap_or_default();
        let lost = acked.iter().filter(|(position, text)| there.get(position) != Some(text)).count();
        assert!(lost <= 1, "{lost} appends were acknowledged by an owner that was robbed");
        in_flight += lost;
    }
    tell(&format!(
        "{rounds} owners robbed of their lock, {in_flight} acknowledged the append that they were in"
    ));
}

fn texts(reader: &SessionReader, there: &mut BTreeMap<Position, String>) {
    let visit = &mut |item| {
        if let EventItem::Event(logged) = item
            && let Event::MessageAppended(message) = logged.event
            && let [Part::Text(text)] = message.parts.as_slice()
        {
            there.insert(logged.position, text.clone());
        }
        ControlFlow::Continue(())
    };
    reader.events(Position(1), visit).unwrap();
}
