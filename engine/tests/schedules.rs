//! Schedules of a whole store on a simulated disk: several sessions, appends of every durability, rolls, forks, erasures,
//! compressed segments, views, clean ends, calls that fail (EIO, ENOSPC, short writes, failed syncs), losses of power, and crashes in the middle
//! of recovery. A seed is a whole schedule.
//!
//! The oracle: what was acknowledged as durable is there after every crash, at its position; what was refused is never
//! there; nothing is there that was not submitted; records are dense, so what is recovered is a prefix. A second recovery
//! adds nothing but its own ownership. Reading changes no byte. Views and rows equal a cold fold. What was erased is in no
//! file.
//!
//! `SESSIONLOG_SEED=n` runs one seed, `SESSIONLOG_SIM_SECONDS=n` as many as fit, from `SESSIONLOG_SIM_FROM` on.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "a long search tells its figures")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sessionlog::codec::event::{Effect, Event, FinalStatus, LoggedEvent, Part, TurnOutcome};
use sessionlog::codec::ids::{NodeId, Position, SessionId};
use sessionlog::log::Severity;
use sessionlog::projections::validate_pairing;
use sessionlog::projections::views::{Dialect, render_all};
use sessionlog::session::EventItem;
use sessionlog::storage::{CallKind, CrashMode, Fault, FaultError, SimStorage};
use sessionlog::{
    CallResult, Compression, Durability, Error, ErrorKind, ForkOptions, ForkPoint, Message, NewSession,
    Packing, Reached, Receipt, Session, Store, StoreOptions, StoreReader,
};
use support::Rng;
use support::tree::try_open_with;

/// What is known about one session's messages.
#[derive(Clone, Default)]
struct Facts {
    /// Acknowledged, by position.
    acked: BTreeMap<Position, String>,
    /// Up to here acknowledged as durable.
    durable: Position,
    /// Submitted, and nobody knows.
    maybe: BTreeSet<String>,
    /// Refused for certain, or lost in a crash that was looked at.
    never: BTreeSet<String>,
    erased: BTreeSet<Position>,
}

struct Actor {
    id: SessionId,
    session: Option<Session>,
    facts: Facts,
    /// Whether its creation was acknowledged.
    born: bool,
}

struct World {
    storage: SimStorage,
    options: StoreOptions,
    rng: Rng,
    actors: Vec<Actor>,
    tag: u64,
    trace: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let durability =
            [Durability::Sync, Durability::Sync, Durability::Turn, Durability::Buffered][rng.index(4)];
        let eager = Compression::With(Packing { block_len: 700, least_saved: 0, least_percent: 0 });
        let compression = [Compression::Off, eager, eager][rng.index(3)];
        let options = StoreOptions { durability, compression, ..StoreOptions::default() };
        let storage = SimStorage::new();
        let trace = vec![format!("SESSIONLOG_SEED={seed}, {durability:?}, {compression:?}")];
        Self { storage, options, rng, actors: Vec::new(), tag: 0, trace }
    }

    fn store(&self) -> sessionlog::Result<Store> {
        try_open_with(&self.storage, self.options)
    }

    /// The disk as it is, without the fault that waits for its call.
    fn peek(&self) -> StoreReader {
        StoreReader::open_on(Arc::new(self.storage.power_cut(CrashMode::KeepAll)), "home").unwrap()
    }

    fn note(&mut self, what: impl Into<String>) {
        self.trace.push(what.into());
    }

    fn text(&mut self) -> String {
        self.tag += 1;
        let pad = [0, 10, 100, 700][self.rng.index(4)];
        format!("t{:05}t {}", self.tag, "x".repeat(pad))
    }

    fn arm(&mut self) {
        use CallKind::{Create, HardLink, Read, Rename, SetLen, Stat, SyncAll, SyncData, SyncDir, Write};
        let kinds =
            [Write, Write, Write, SyncData, SyncAll, SyncDir, Create, SetLen, Read, Rename, HardLink, Stat];
        let kind = kinds[self.rng.index(kinds.len())];
        let error = [FaultError::EIO, FaultError::ENOSPC, FaultError::EINTR][self.rng.index(3)];
        let written = if self.rng.below(2) == 0 { 0 } else { self.rng.index(900) };
        let after = self.rng.below(4);
        self.note(format!("fault: {kind:?} {error:?} after {after}, {written} bytes written"));
        self.storage.fail(Fault::new(kind, error).after(after).written(written));
    }

    fn step(&mut self) {
        if self.actors.is_empty() || (self.actors.len() < 4 && self.rng.below(12) == 0) {
            return self.create();
        }
        let at = self.rng.index(self.actors.len());
        match self.rng.below(30) {
            0..=8 => self.append(at),
            9..=12 => self.call(at),
            13..=15 => self.turn(at),
            16 => self.fork(at),
            17 => self.redact(at),
            18 | 19 => self.close(at),
            20 | 21 => self.resume(at),
            22 => self.read_only(),
            23..=25 if self.storage.armed_faults() == 0 => self.arm(),
            26 => self.crash(),
            _ => self.append(at),
        }
    }

    fn create(&mut self) {
        let id = SessionId([self.actors.len().try_into().unwrap(); 16]);
        let new = NewSession { id: Some(id), ..NewSession::new("live") };
        let session = self.store().and_then(|store| store.create("/w", new));
        self.note(format!(
            "create {}: {:?}",
            self.actors.len(),
            session.as_ref().map(drop).map_err(Error::kind)
        ));
        let born = session.is_ok();
        self.actors.push(Actor { id, session: session.ok(), facts: Facts::default(), born });
    }

    /// What an append gave, in the books.
    fn learn(&mut self, at: usize, text: String, result: sessionlog::Result<Receipt>) {
        self.note(format!(
            "append {at} {}: {:?}",
            &text[..6],
            result.as_ref().map(|it| it.last.0).map_err(Error::kind)
        ));
        let facts = &mut self.actors[at].facts;
        match result {
            Ok(receipt) => {
                if receipt.reached == Reached::Durable {
                    facts.durable = facts.durable.max(receipt.last);
                }
                facts.acked.insert(receipt.first, text);
            }
            Err(error) => match error.kind() {
                ErrorKind::Full | ErrorKind::Invalid | ErrorKind::Closed | ErrorKind::Fenced => {
                    facts.never.insert(text);
                }
                _ => {
                    facts.maybe.insert(text);
                }
            },
        }
    }

    fn append(&mut self, at: usize) {
        let text = self.text();
        let Some(session) = &self.actors[at].session else { return };
        let result = session.append(Message::user(text.clone())).map(|appended| appended.receipt);
        self.learn(at, text, result);
    }

    fn call(&mut self, at: usize) {
        let text = self.text();
        let Some(session) = &self.actors[at].session else { return };
        let asked = session.append(Message::assistant(text.clone()).call("c", "run", "{}"));
        let call = asked.as_ref().ok().map(|appended| appended.call(0));
        let mut durable = None;
        if let Some(call) = call
            && let Ok(running) = session.start_call(call, Effect::Mutating)
            && self.rng.below(3) > 0
        {
            durable = running.finish(CallResult::succeeded("done")).ok();
        }
        self.learn(at, text, asked.map(|appended| appended.receipt));
        if let Some(receipt) = durable.filter(|receipt| receipt.reached == Reached::Durable) {
            self.actors[at].facts.durable = self.actors[at].facts.durable.max(receipt.last);
        }
    }

    fn turn(&mut self, at: usize) {
        let Some(session) = &self.actors[at].session else { return };
        let started = session.start_turn().map(drop);
        let ended = session.end_turn(TurnOutcome::Completed);
        let told = format!(
            "turn {at}: {:?} {:?}",
            started.map_err(|error| error.kind()),
            ended.as_ref().map(|it| it.last.0).map_err(Error::kind)
        );
        if let Ok(receipt) = ended
            && receipt.reached == Reached::Durable
        {
            let facts = &mut self.actors[at].facts;
            facts.durable = facts.durable.max(receipt.last);
        }
        self.note(told);
    }

    fn fork(&mut self, at: usize) {
        if self.actors.len() >= 6 {
            return;
        }
        let id = SessionId([self.actors.len().try_into().unwrap(); 16]);
        let Some(session) = &self.actors[at].session else { return };
        let head = session.last();
        let forked = session.fork(ForkPoint::Head, ForkOptions { id: Some(id), ..ForkOptions::default() });
        self.note(format!("fork {at} at {head}: {:?}", forked.as_ref().map(drop).map_err(Error::kind)));
        let mut facts = self.actors[at].facts.clone();
        if forked.is_ok() {
            self.actors[at].facts.durable = self.actors[at].facts.durable.max(head);
            facts.durable = head;
        }
        let born = forked.is_ok();
        self.actors.push(Actor { id, session: forked.ok(), facts, born });
    }

    fn redact(&mut self, at: usize) {
        let whole: Vec<Position> = self.actors[at].facts.acked.keys().copied().collect();
        if whole.is_empty() || self.actors.len() > 1 && self.rng.below(2) == 0 {
            return;
        }
        let position = whole[self.rng.index(whole.len())];
        let Some(session) = &self.actors[at].session else { return };
        let redacted = session.redact(&BTreeSet::from([position]), "because");
        self.note(format!("redact {at} {position}: {:?}", redacted.as_ref().map_err(Error::kind)));
        // Decided or not: its text is not counted on any more. If it was acknowledged, it is gone.
        let facts = &mut self.actors[at].facts;
        let text = facts.acked.remove(&position).unwrap();
        facts.maybe.insert(text);
        if redacted.is_ok() {
            facts.erased.insert(position);
            facts.durable = facts.durable.max(position);
        }
    }

    fn close(&mut self, at: usize) {
        let Some(session) = self.actors[at].session.take() else { return };
        let (last, undisturbed) = (session.last(), self.storage.armed_faults() == 0);
        let closed =
            if self.rng.below(2) == 0 { session.close() } else { session.finish(FinalStatus::Paused) };
        self.note(format!("close {at}: {:?}", closed.as_ref().map(|it| it.last.0).map_err(Error::kind)));
        if closed.is_ok() {
            let facts = &mut self.actors[at].facts;
            facts.durable = facts.durable.max(last);
            // A view that can't be written is no error: it is made anew the next time.
            if undisturbed {
                self.check_view(at);
            }
        }
    }

    fn check_view(&self, at: usize) {
        let events = self.events(at);
        let id = self.actors[at].id;
        let lines = render_all(Dialect::Seed, id, &events);
        let reader = self.peek().session(id).unwrap();
        let file = reader.place().dir.join("transcript.jsonl");
        let view = String::from_utf8(self.storage.read_file(&file).unwrap_or_default()).unwrap();
        let expected: String = lines.iter().map(|line| format!("{line}\n")).collect();
        assert!(
            view == expected,
            "the view of {at} is not the fold:\n{view}\n---\n{expected}\n{:#?}",
            self.trace
        );
    }

    fn resume(&mut self, at: usize) {
        if self.actors[at].session.is_some() {
            return;
        }
        let id = self.actors[at].id;
        let resumed = self.store().and_then(|store| store.resume(id));
        self.note(format!(
            "resume {at}: {:?}",
            resumed.as_ref().map(|(_, it)| it.last.0).map_err(Error::kind)
        ));
        match resumed {
            Ok((session, _)) => {
                self.actors[at].session = Some(session);
                self.actors[at].born = true;
                self.check(at);
            }
            Err(error) => {
                let unfinished = error.kind() == ErrorKind::NotFound && !self.actors[at].born;
                let failed = matches!(error.kind(), ErrorKind::Io | ErrorKind::Full);
                assert!(unfinished || failed, "{at}: {error:?} {:#?}", self.trace);
            }
        }
    }

    fn events(&self, at: usize) -> Vec<LoggedEvent> {
        let reader = self.peek().session(self.actors[at].id).unwrap();
        let mut events = Vec::new();
        reader
            .events(Position(1), &mut |item| {
                match item {
                    EventItem::Event(event) => events.push(*event),
                    other => panic!("{other:?} {:#?}", self.trace),
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        events
    }

    /// Holds a session that was just recovered against the books. What is in the files is durable then.
    fn check(&mut self, at: usize) {
        let events = self.events(at);
        let trace = &self.trace;
        let mut found: BTreeMap<Position, String> = BTreeMap::new();
        for (index, event) in events.iter().enumerate() {
            assert_eq!(event.position.0, u64::try_from(index).unwrap() + 1, "{at}: not dense {trace:#?}");
            if let Event::MessageAppended(message) = &event.event
                && let Some(Part::Text(text)) = message.parts.first()
            {
                found.insert(event.position, text.clone());
            }
        }
        let facts = &self.actors[at].facts;
        for (position, text) in &facts.acked {
            match found.get(position) {
                Some(there) => assert_eq!(there, text, "{at}: position {position} {trace:#?}"),
                None => assert!(
                    *position > facts.durable,
                    "{at}: {position} is lost, durable {} {trace:#?}",
                    facts.durable
                ),
            }
        }
        for (position, text) in &found {
            assert!(!facts.never.contains(text), "{at}: {text} was refused, and is there {trace:#?}");
            let known = facts.acked.get(position) == Some(text) || facts.maybe.contains(text);
            assert!(known, "{at}: {text} at {position} was never said there {trace:#?}");
            assert!(!facts.erased.contains(position), "{at}: {position} was erased {trace:#?}");
        }
        assert!(
            events.last().is_none_or(|last| last.position >= facts.durable),
            "{at}: shorter than durable {trace:#?}"
        );
        let session = self.actors[at].session.as_ref().unwrap();
        validate_pairing(&session.context().unwrap()).unwrap();
        let facts = &mut self.actors[at].facts;
        let there: BTreeSet<&String> = found.values().collect();
        let gone: Vec<String> =
            facts.acked.values().chain(&facts.maybe).filter(|text| !there.contains(text)).cloned().collect();
        facts.never.extend(gone);
        facts.maybe.clear();
        facts.durable = events.last().map_or(Position::START, |last| last.position);
        facts.acked = found;
    }

    /// Every byte of the disk, by file.
    fn bytes(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = self.storage.files().into_iter();
        files.map(|file| (file.clone(), self.storage.read_file(&file).unwrap_or_default())).collect()
    }

    /// Lists, reads and verifies everything on a copy of the disk, without changing a byte of it.
    fn read_only(&mut self) {
        let copy = self.storage.power_cut(CrashMode::KeepAll);
        let before = std::mem::replace(&mut self.storage, copy);
        let bytes = self.bytes();
        let reader = self.store().unwrap().reader();
        let rows = reader.list().unwrap();
        for actor in self.actors.iter().filter(|actor| actor.born) {
            let session = reader.session(actor.id).unwrap();
            let summary = session.summary().unwrap();
            let row = rows.iter().find(|row| row.root == actor.id && row.node == NodeId::ROOT).unwrap();
            assert_eq!(row.issue, None, "{:#?}", self.trace);
            assert_eq!(row.messages, summary.messages, "{:#?}", self.trace);
            // Where nothing happened yet, a row tells when the session began.
            assert!(summary.last_activity.is_none() || row.last_activity == summary.last_activity);
            let worst = session.verify().unwrap().worst();
            assert!(worst <= Some(Severity::Repairable), "{worst:?} {:#?}", self.trace);
        }
        assert!(bytes == self.bytes(), "reading changed the disk {:#?}", self.trace);
        self.storage = before;
    }

    /// Power goes, or the machine is killed; then everything is recovered, perhaps after attempts that are cut off.
    fn crash(&mut self) {
        let mut mode = self.crash_mode();
        self.note(format!("crash: {mode:?}"));
        self.lose_power(mode);
        for at in 0..self.actors.len() {
            if self.rng.below(3) == 0 {
                // A crash in the middle of recovery.
                self.arm();
                self.resume_only(at);
                mode = self.crash_mode();
                self.note(format!("crash in recovery: {mode:?}"));
                self.lose_power(mode);
            }
        }
        for at in 0..self.actors.len() {
            self.resume(at);
            if self.actors[at].session.is_some() && self.rng.below(4) == 0 {
                self.recover_again(at);
            }
        }
        self.read_only();
    }

    /// All sessions end with the disk as they had it: what they still do to it, nobody sees.
    fn lose_power(&mut self, mode: CrashMode) {
        self.storage = self.storage.power_cut(mode);
        self.actors.iter_mut().for_each(|actor| drop(actor.session.take()));
    }

    fn crash_mode(&mut self) -> CrashMode {
        match self.rng.below(4) {
            0 => CrashMode::LoseAll,
            1 => CrashMode::KeepAll,
            _ => CrashMode::Seeded(self.rng.next()),
        }
    }

    /// An attempt to recover that nobody looks at.
    fn resume_only(&mut self, at: usize) {
        let id = self.actors[at].id;
        let resumed = self.store().and_then(|store| store.resume(id));
        self.note(format!("recovering {at}: {:?}", resumed.as_ref().map(drop).map_err(Error::kind)));
        self.actors[at].session = resumed.ok().map(|(session, _)| session);
    }

    /// Recovering what was just recovered adds an ownership, and nothing else.
    fn recover_again(&mut self, at: usize) {
        let before = self.events(at);
        let copy = self.storage.power_cut(CrashMode::LoseAll);
        let after = self.storage.power_cut(CrashMode::KeepAll);
        self.actors.iter_mut().for_each(|actor| drop(actor.session.take()));
        self.storage = copy;
        self.resume_only(at);
        let now = self.events(at);
        assert_eq!(
            now[..before.len()],
            before[..],
            "{at}: a second recovery changed something {:#?}",
            self.trace
        );
        let added: Vec<&str> = now[before.len()..].iter().map(|event| event.event.name()).collect();
        assert_eq!(added, ["session.opened"], "{at} {:#?}", self.trace);
        self.actors[at].session = None;
        self.storage = after;
        for at in 0..self.actors.len() {
            self.resume(at);
        }
    }
}

fn live(seed: u64) {
    let mut world = World::new(seed);
    let steps = 20 + world.rng.index(60);
    for _ in 0..steps {
        world.step();
    }
    world.storage.clear_faults();
    world.crash();
    for at in 0..world.actors.len() {
        world.append(at);
        world.close(at);
    }
    world.read_only();
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

#[test]
fn nothing_acknowledged_is_ever_lost() {
    if let Some(seed) = number("SESSIONLOG_SEED") {
        return live(seed);
    }
    let from = number("SESSIONLOG_SIM_FROM").unwrap_or(1);
    let began = Instant::now();
    let budget = number("SESSIONLOG_SIM_SECONDS").map(Duration::from_secs);
    for seed in from.. {
        let enough = budget.map_or(seed >= from + 120, |budget| began.elapsed() >= budget);
        if enough {
            println!("{} schedules", seed - from);
            return;
        }
        let lived = std::panic::catch_unwind(|| live(seed));
        assert!(lived.is_ok(), "SESSIONLOG_SEED={seed} fails");
    }
}
