//! What the tests of memory share: a workspace, things said in it, and both ways to search it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sessionlog::codec::event::{Effect, TurnOutcome};
use sessionlog::codec::ids::Timestamp;
use sessionlog::projections::memory::MemoryQuery;
use sessionlog::storage::{OsStorage, Storage};
use sessionlog::store::{WorkspaceHash, canonical};
use sessionlog::{
    CallResult, CatalogPolicy, Clock, FoundBy, IndexPolicy, LogOptions, Memory, MemoryHit, MemoryHits,
    Message, NewSession, Session, Store, StoreOptions, ViewPolicy,
};

/// A clock that a test moves.
#[derive(Debug)]
pub(crate) struct Hands(AtomicI64);

impl Hands {
    pub(crate) const START: i64 = 1_764_500_000_000_000;

    pub(crate) fn forward(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) struct Workspace {
    dir: tempfile::TempDir,
    pub(crate) clock: Arc<Hands>,
    pub(crate) store: Store,
    pub(crate) hash: WorkspaceHash,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        Self::on(Arc::new(OsStorage))
    }

    pub(crate) fn on(storage: Arc<dyn Storage>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(Hands(AtomicI64::new(Hands::START)));
        let log = LogOptions { segment_len: 4096, fill_len: 1024 };
        let options = StoreOptions {
            log,
            views: ViewPolicy::Off,
            catalog: CatalogPolicy::Off,
            ..StoreOptions::default()
        };
        std::fs::create_dir(dir.path().join("code")).unwrap();
        let home = dir.path().join("home");
        let store = Store::open_on(storage, Arc::clone(&clock) as Arc<dyn Clock>, home, options).unwrap();
        let hash = WorkspaceHash::of(&canonical(&dir.path().join("code")));
        Self { dir, clock, store, hash }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn code(&self) -> PathBuf {
        self.dir.path().join("code")
    }

    pub(crate) fn in_workspace(&self, path: impl AsRef<Path>) -> PathBuf {
        self.home().join("workspaces").join(self.hash.as_str()).join(path)
    }

    pub(crate) fn session(&self, goal: &str) -> Session {
        self.clock.forward(1);
        self.store.create(self.code(), NewSession::new(goal)).unwrap()
    }

    pub(crate) fn memory(&self) -> Memory {
        self.store.memory(&self.hash)
    }

    /// What the index finds, after a check that reading every log finds the same.
    #[track_caller]
    pub(crate) fn search(&self, query: &MemoryQuery) -> MemoryHits {
        let indexed = self.memory().search(query).unwrap();
        assert_eq!(indexed.by, FoundBy::Index);
        self.check_scan(query, &indexed);
        indexed
    }

    /// What is found when the index may be of no use.
    #[track_caller]
    pub(crate) fn search_anyhow(&self, query: &MemoryQuery) -> MemoryHits {
        let found = self.memory().search(query).unwrap();
        self.check_scan(query, &found);
        found
    }

    #[track_caller]
    fn check_scan(&self, query: &MemoryQuery, found: &MemoryHits) {
        let scanned = self.memory().with_index(IndexPolicy::Off).search(query).unwrap();
        assert_eq!(scanned.by, FoundBy::Scan);
        assert_eq!(scanned, MemoryHits { by: FoundBy::Scan, ..found.clone() }, "{query:?}");
    }

    /// The excerpts that a text finds.
    #[track_caller]
    pub(crate) fn find(&self, text: &str) -> Vec<String> {
        texts(&self.search(&MemoryQuery { limit: 50, ..MemoryQuery::of_text(text) }))
    }

    /// A turn: a prompt, a call with its result, an answer.
    pub(crate) fn turn(&self, session: &Session, asked: &str, call: [&str; 3], answer: &str) {
        let [tool, arguments, result] = call;
        self.clock.forward(1);
        session.prompt(Message::user(asked)).unwrap();
        self.clock.forward(1);
        let said = session.append(Message::assistant("").call("c", tool, arguments)).unwrap();
        let running = session.start_call(said.call(0), Effect::Pure).unwrap();
        self.clock.forward(1);
        running.finish(CallResult::succeeded(result)).unwrap();
        self.clock.forward(1);
        session.append(Message::assistant(answer)).unwrap();
        session.end_turn(TurnOutcome::Completed).unwrap();
    }
}

pub(crate) fn texts(hits: &MemoryHits) -> Vec<String> {
    hits.hits.iter().map(|hit| hit.excerpt.text.clone()).collect()
}

/// What a hit marks.
pub(crate) fn marked(hit: &MemoryHit) -> Vec<&str> {
    hit.excerpt.marks.iter().map(|mark| &hit.excerpt.text[mark.clone()]).collect()
}
