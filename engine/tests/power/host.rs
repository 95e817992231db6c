//! The host whose power is cut: it goes on with a session, and says what it is about to do and what was acknowledged.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use sessionlog::codec::event::{Effect, TurnOutcome};
use sessionlog::codec::ids::{NodeId, Position, SessionId};
use sessionlog::storage::{Access, DirEntry, Lock, LockError, Locked, OsStorage, Storage, StorageFile};
use sessionlog::{
    CallResult, Durability, ErrorKind, ForkOptions, ForkPoint, LogOptions, Message, NewSession, Session,
    Store, StoreOptions, SystemClock,
};

use super::support::Rng;

/// How the host, or what is below it, says "durable" of what is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// It does not.
    Honest,
    /// It acknowledges appends that it did not ask to be durable.
    Buffered,
    /// `fdatasync` does nothing.
    NoDataSync,
    /// Syncing a directory does nothing.
    NoDirSync,
}

impl Lie {
    pub(crate) const ALL: [Self; 4] = [Self::Honest, Self::Buffered, Self::NoDataSync, Self::NoDirSync];
}

/// The options of every store here: segments are short, so that they roll, and are filled with zeros ahead.
pub(crate) fn options(lie: Lie) -> StoreOptions {
    let durability = if lie == Lie::Buffered { Durability::Buffered } else { Durability::Sync };
    let log = LogOptions { segment_len: 4096, fill_len: 2048 };
    StoreOptions { durability, log, ..StoreOptions::default() }
}

/// What a message says: it follows from its number, so that an invented one is known.
pub(crate) fn said(message_no: u64) -> String {
    let mut rng = Rng(message_no);
    let len = if rng.below(12) == 0 { 5000 } else { rng.below(400) };
    let text = format!("message {message_no} ");
    let filler = (0..len).map(|_| char::from(b'a' + u8::try_from(rng.below(26)).unwrap()));
    text.chars().chain(filler).collect()
}

fn say(what: &str) {
    let mut out = io::stdout().lock();
    out.write_all(format!("{what}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

struct Host {
    store: Store,
    rng: Rng,
    /// Messages that can be erased.
    erasable: Vec<Position>,
}

/// Runs until it is killed.
pub(crate) fn run(home: &Path, id: SessionId, seed: u64, lie: Lie) {
    let storage: Arc<dyn Storage> = match lie {
        Lie::Honest | Lie::Buffered => Arc::new(OsStorage),
        Lie::NoDataSync | Lie::NoDirSync => Arc::new(Lying { lie }),
    };
    let store = Store::open_on(storage, Arc::new(SystemClock), home, options(lie)).unwrap();
    let mut host = Host { store, rng: Rng(seed), erasable: Vec::new() };
    let mut session = match host.store.resume(id) {
        Ok((session, _)) => session,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let new = NewSession { id: Some(id), ..NewSession::new("lose power") };
            host.store.create_foreign(b"/w", new).unwrap()
        }
        Err(error) => panic!("{error:?}"),
    };
    loop {
        say(&format!("ack {id} {} own", session.last()));
        for open in session.open_calls().unwrap() {
            session.finish_call(open.call, CallResult::not_started("nobody ran it")).unwrap();
        }
        while host.rng.below(25) != 0 {
            host.step(&session);
        }
        session.close().unwrap();
        session = host.store.resume(id).unwrap().0;
    }
}

impl Host {
    fn step(&mut self, session: &Session) {
        let id = session.id();
        match self.rng.below(12) {
            0..=5 => self.message(session),
            6..=8 => Self::call(session),
            9 => {
                if session.ledger(|ledger| ledger.open_turn(NodeId::ROOT)).unwrap().is_some() {
                    let receipt = session.end_turn(TurnOutcome::Completed).unwrap();
                    say(&format!("ack {id} {} turn", receipt.last));
                }
            }
            10 => self.erase(session),
            _ => self.fork(session),
        }
    }

    fn message(&mut self, session: &Session) {
        let (id, no) = (session.id(), next(session));
        say(&format!("try {id} {no} message"));
        let appended = session.prompt(Message::user(said(no))).unwrap();
        assert_eq!(appended.message_no.0, no);
        let position = appended.receipt.last;
        say(&format!("ack {id} {position} message {no}"));
        self.erasable.push(position);
    }

    /// A call, from the model's request to its result.
    fn call(session: &Session) {
        let (id, no) = (session.id(), next(session));
        say(&format!("try {id} {no} message"));
        let asked = session.append(Message::assistant(said(no)).call(format!("c{no}"), "run", "{}")).unwrap();
        say(&format!("ack {id} {} message {no}", asked.receipt.last));
        let running = session.start_call(asked.call(0), Effect::Mutating).unwrap();
        say(&format!("ack {id} {} own", session.last()));
        let result = running.finish(CallResult::succeeded(format!("result of {no}"))).unwrap();
        say(&format!("ack {id} {} result {no}", result.last));
    }

    fn erase(&mut self, session: &Session) {
        if self.erasable.is_empty() {
            return;
        }
        let nth = usize::try_from(self.rng.below(self.erasable.len() as u64)).unwrap();
        let (id, position) = (session.id(), self.erasable.swap_remove(nth));
        say(&format!("try {id} {position} erase"));
        session.redact(&BTreeSet::from([position]), "asked for").unwrap();
        say(&format!("ack {id} {position} erased"));
    }

    /// A fork, with a message of its own; its session is closed, or just left.
    fn fork(&mut self, session: &Session) {
        if self.rng.below(3) != 0 {
            return;
        }
        let id = sessionlog::new_session_id();
        let fork =
            session.fork(ForkPoint::Head, ForkOptions { id: Some(id), ..ForkOptions::default() }).unwrap();
        say(&format!("ack {id} {} own", fork.last()));
        let erasable = std::mem::take(&mut self.erasable);
        self.message(&fork);
        self.erasable = erasable;
        if self.rng.below(2) == 0 {
            say(&format!("ack {id} {} own", fork.close().unwrap().last));
        } else {
            std::mem::forget(fork);
        }
    }
}

fn next(session: &Session) -> u64 {
    session.ledger(|ledger| ledger.next_message_no(NodeId::ROOT)).unwrap().0
}

/// An operating system that says it synced and did not.
#[derive(Debug)]
struct Lying {
    lie: Lie,
}

#[derive(Debug)]
struct LyingFile {
    lie: Lie,
    file: Arc<dyn StorageFile>,
}

impl Lying {
    fn file(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(LyingFile { lie: self.lie, file })
    }
}

impl Storage for Lying {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(OsStorage.create_new(path)?))
    }
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(OsStorage.open(path, access)?))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        OsStorage.create_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        OsStorage.list(dir)
    }
    fn entry(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        OsStorage.entry(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.hard_link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        OsStorage.remove_file(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        OsStorage.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.lie == Lie::NoDirSync { Ok(()) } else { OsStorage.sync_dir(dir) }
    }
    fn try_lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        OsStorage.try_lock(path)
    }
    fn is_locked(&self, path: &Path) -> Option<Locked> {
        OsStorage.is_locked(path)
    }
}

impl StorageFile for LyingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        if self.lie == Lie::NoDataSync { Ok(()) } else { self.file.sync_data() }
    }
    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
