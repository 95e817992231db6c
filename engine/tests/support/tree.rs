//! What the tests of session trees share: a store on a simulated disk, and the ends a process can have.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sessionlog::codec::event::NodeBound;
use sessionlog::codec::ids::{NodeId, SessionId, Timestamp};
use sessionlog::storage::{CrashMode, SimStorage};
use sessionlog::{
    Clock, LogOptions, NewSession, RecoveryReport, Session, SnapshotPolicy, Store, StoreOptions, Work,
};

#[derive(Debug)]
struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp(1_764_500_000_000_000 + self.0.fetch_add(1_000_000, Ordering::Relaxed))
    }
}

pub(crate) fn open(storage: &SimStorage) -> Store {
    open_with(storage, StoreOptions::default())
}

pub(crate) fn open_with(storage: &SimStorage, options: StoreOptions) -> Store {
    try_open_with(storage, options).unwrap()
}

/// A store with small files, many snapshots and a clock of its own.
pub(crate) fn try_open_with(storage: &SimStorage, options: StoreOptions) -> sessionlog::Result<Store> {
    try_open_at(storage, "home", options)
}

/// The same, at another place.
pub(crate) fn try_open_at(
    storage: &SimStorage,
    home: &str,
    options: StoreOptions,
) -> sessionlog::Result<Store> {
    let clock = Arc::new(Ticking(AtomicI64::new(0)));
    let log = LogOptions { segment_len: 2048, fill_len: 512 };
    let snapshots = match options.snapshots {
        SnapshotPolicy::Off => SnapshotPolicy::Off,
        SnapshotPolicy::Every { .. } => SnapshotPolicy::Every { records: 6, messages: 3 },
    };
    let options = StoreOptions { log, snapshots, ..options };
    Store::open_on(Arc::new(storage.clone()), clock, home, options)
}

/// A session that can crash.
pub(crate) struct Crashing {
    storage: SimStorage,
    options: StoreOptions,
    id: SessionId,
    session: Option<Session>,
}

impl Crashing {
    pub(crate) fn new() -> Self {
        Self::with(StoreOptions::default())
    }

    pub(crate) fn with(options: StoreOptions) -> Self {
        let storage = SimStorage::new();
        let session = open_with(&storage, options).create("/w", NewSession::new("try")).unwrap();
        Self { storage, options, id: session.id(), session: Some(session) }
    }

    pub(crate) fn store(&self) -> Store {
        open_with(&self.storage, self.options)
    }

    /// Power is lost; what was not synced is gone. Then the session is resumed.
    pub(crate) fn crash(&mut self) -> RecoveryReport {
        std::mem::forget(self.session.take());
        self.storage = self.storage.power_cut(CrashMode::LoseAll);
        self.resume()
    }

    /// The session is closed in order and resumed.
    pub(crate) fn reopen(&mut self) -> RecoveryReport {
        self.session.take().unwrap().close().unwrap();
        self.resume()
    }

    fn resume(&mut self) -> RecoveryReport {
        let (session, report) = self.store().resume(self.id).unwrap();
        self.session = Some(session);
        report
    }
}

impl std::ops::Deref for Crashing {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().unwrap()
    }
}

pub(crate) fn bound() -> NodeBound {
    let (api_mode, candidate, conversation_id, profile_hash) = (None, None, None, None);
    NodeBound { model: "fake-1".to_owned(), api_mode, candidate, conversation_id, profile_hash }
}

/// What a session offers, as `node kind`.
pub(crate) fn offered(session: &Session) -> Vec<String> {
    session.work().unwrap().iter().map(describe).collect()
}

pub(crate) fn describe(work: &Work<'_>) -> String {
    let node: NodeId = work.node();
    let kind = match work {
        Work::Begin(_) => "begin".to_owned(),
        Work::Ask(_) => "ask".to_owned(),
        Work::Call(call) => format!("call {}.{}", call.call().message_no, call.call().tool_index),
        Work::Model(_) => "model".to_owned(),
        Work::Settle(end) => format!("settle {:?}", end.reason()),
        Work::EndTurn(_) => "end turn".to_owned(),
        _ => "?".to_owned(),
    };
    format!("{node} {kind}")
}
