//! What the tests of artifacts share: a store whose clock is moved by hand, and looks at what its logs name.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sessionlog::codec::event::{ArtifactReceipt, Effect, Event, Part};
use sessionlog::codec::ids::{CallRef, Digest, MessageNo, Position, SessionId, Timestamp, ToolIndex};
use sessionlog::projections::artifact::receipts;
use sessionlog::session::EventItem;
use sessionlog::storage::SimStorage;
use sessionlog::store::{WorkspaceHash, canonical};
use sessionlog::{
    ArtifactPolicy, CallResult, Clock, LogOptions, Message, NewSession, Session, SessionReader, Store,
    StoreOptions, ViewPolicy,
};

pub(crate) const HOUR: i64 = 3_600_000_000;

/// A clock that goes by a microsecond a look, and by hand.
#[derive(Clone, Debug)]
pub(crate) struct Hand(pub(crate) Arc<AtomicI64>);

impl Hand {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_764_500_000_000_000)))
    }

    pub(crate) fn forward(&self, micros: i64) {
        self.0.fetch_add(micros, Ordering::SeqCst);
    }

    pub(crate) fn read(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// Small files, and results over 64 bytes are artifacts.
pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        artifacts: ArtifactPolicy::Over(64),
        log: LogOptions { segment_len: 4096, fill_len: 256 },
        views: ViewPolicy::Off,
        ..StoreOptions::default()
    }
}

pub(crate) fn store_on(storage: &SimStorage, clock: &Hand) -> Store {
    try_store_on(storage, clock).unwrap()
}

pub(crate) fn try_store_on(storage: &SimStorage, clock: &Hand) -> sessionlog::Result<Store> {
    Store::open_on(Arc::new(storage.clone()), Arc::new(clock.clone()), "home", options())
}

pub(crate) fn workspace() -> WorkspaceHash {
    WorkspaceHash::of(&canonical(Path::new("/w")))
}

pub(crate) fn new_session(store: &Store) -> Session {
    store.create("/w", NewSession::new("try")).unwrap()
}

/// Runs a call of the session's own conversation whose result this is.
pub(crate) fn run_call(session: &Session, result: CallResult) -> sessionlog::Result<CallRef> {
    let asked = session.append(Message::assistant("").call("c", "run", "{}"))?;
    session.start_call(asked.call(0), Effect::Mutating)?.finish(result)?;
    Ok(asked.call(0))
}

pub(crate) fn first_call(message: u64) -> CallRef {
    CallRef { message_no: MessageNo(message), tool_index: ToolIndex(0) }
}

/// All receipts that a session's log holds.
pub(crate) fn named(reader: &SessionReader) -> Vec<ArtifactReceipt> {
    let mut named = Vec::new();
    let mut take = |parts: &[Part]| named.extend(receipts(parts).cloned());
    let mut direct = Vec::new();
    reader
        .events(Position(1), &mut |item| {
            if let EventItem::Event(event) = item {
                match event.event {
                    Event::MessageAppended(said) => take(&said.parts),
                    Event::NodeSettled(settled) => take(&settled.parts),
                    Event::CallResolved(resolved) => take(&resolved.parts),
                    Event::CallFinished(finished) => {
                        take(&finished.parts);
                        direct.extend(finished.artifact);
                    }
                    _ => {}
                }
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    named.extend(direct);
    named
}

/// What the logs of all sessions name is there, whole.
#[track_caller]
pub(crate) fn check_named(store: &Store) -> BTreeSet<Digest> {
    let reader = store.reader();
    let mut all = BTreeSet::new();
    for place in reader.places().unwrap() {
        let session = reader.session_at(place.clone());
        if session.log().size().is_err() {
            continue;
        }
        for receipt in named(&session) {
            let info = reader.artifacts(&place.workspace).inspect(&receipt.digest);
            let info = info.unwrap_or_else(|error| panic!("{}: {error}", place.id));
            assert_eq!(info.len, receipt.len);
            all.insert(receipt.digest);
        }
    }
    all
}

pub(crate) fn blob_path(home: &str, workspace: &WorkspaceHash, digest: &Digest) -> PathBuf {
    let name = digest.to_string();
    PathBuf::from(format!("{home}/workspaces/{workspace}/artifacts/{}/{name}", &name[..2]))
}

/// The artifact files, of whatever state.
pub(crate) fn files(storage: &SimStorage) -> Vec<PathBuf> {
    let all = storage.files().into_iter();
    all.filter(|path| {
        let path = path.to_string_lossy();
        path.contains("/artifacts/") && !path.ends_with("/lock")
    })
    .collect()
}

pub(crate) fn there(storage: &SimStorage) -> BTreeSet<Digest> {
    let names = files(storage).into_iter();
    names.filter_map(|path| blake3_of(&path.file_name()?.to_string_lossy())).collect()
}

fn blake3_of(name: &str) -> Option<Digest> {
    let byte = |at: usize| u8::from_str_radix(name.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes: Vec<u8> = (0..32).map(byte).collect::<Option<_>>()?;
    (name.len() == 64).then_some(Digest(bytes.try_into().ok()?))
}

/// Takes a session away, as a deletion does.
pub(crate) fn delete(storage: &SimStorage, id: SessionId) {
    use sessionlog::storage::Storage;
    let id = id.to_string();
    for path in storage.files() {
        if path.to_string_lossy().contains(&id) && !path.to_string_lossy().contains("/archive/") {
            storage.remove_file(&path).unwrap();
            storage.sync_dir(path.parent().unwrap()).unwrap();
        }
    }
}
