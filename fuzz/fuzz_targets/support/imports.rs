//! Importing whatever the bytes say, and holding the result against the laws of every import.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog::codec::ids::{NodeId, Position};
use sessionlog::log::Severity;
use sessionlog::projections::{Projection, TreeState, validate_pairing};
use sessionlog::session::EventItem;
use sessionlog::storage::SimStorage;
use sessionlog::{Durability, LogOptions, SessionReader, Store, StoreOptions, SystemClock, ViewPolicy};
use sessionlog_tools::import::{ImportError, ImportReport, Imported, discover, import_session};
use sessionlog_tools::store_target::StoreTarget;

use super::disk::content;

/// Between the files of an input: a byte that no JSON has.
const SEPARATOR: u8 = 0xff;

/// Imports an input twice: its parts are the files of these names, an empty part is no file.
///
/// Asserted: discovery takes everything; an import fails only where the session's own file is not of its format, never
/// because the target refused what the importer made of it; what was imported verifies without a warning; the context is
/// legal after every record; importing again appends nothing and changes no byte.
pub fn check(data: &[u8], names: &[&str]) {
    let dir = tempfile::Builder::new().prefix("sessionlog-fuzz").tempdir_in(fast_dir()).unwrap();
    for (name, bytes) in names.iter().zip(data.split(|byte| *byte == SEPARATOR)) {
        if !bytes.is_empty() {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
    let storage = SimStorage::new();
    let store = store(&storage);
    let first = import(&store, dir.path());
    for session in &first.sessions {
        let reader = store.reader().session(session.session_id).unwrap();
        let check = reader.verify().unwrap();
        assert!(check.worst() < Some(Severity::Warning), "{:?}", check.all().collect::<Vec<_>>());
        check_prefixes(&reader);
    }
    let before = content(&storage);
    let again = import(&store, dir.path());
    assert_eq!(again.sessions.len(), first.sessions.len());
    assert!(again.sessions.iter().all(|session| session.outcome == Imported::Unchanged), "{again:?}");
    assert!(content(&storage) == before, "importing again changed something");
}

fn store(storage: &SimStorage) -> Store {
    let options = StoreOptions {
        durability: Durability::Buffered,
        views: ViewPolicy::AtClose,
        log: LogOptions { segment_len: 4096, fill_len: 1024 },
        ..StoreOptions::default()
    };
    Store::open_on(Arc::new(storage.clone()), Arc::new(SystemClock), "home", options).unwrap()
}

fn import(store: &Store, dir: &Path) -> ImportReport {
    let mut report = ImportReport::default();
    let sources = discover(&[dir.to_owned()], &mut report.notes).unwrap();
    let mut target = StoreTarget::new(store.clone());
    for source in &sources {
        match import_session(source, &mut target, &mut |_| {}, &mut report) {
            Ok(_) | Err(ImportError::Q(_)) => {}
            Err(error) => panic!("{}: {error:?}", source.agent_session_id),
        }
    }
    report
}

/// Contexts cost as much as there are messages, so of long logs some prefixes are left out.
fn check_prefixes(reader: &SessionReader) {
    let (mut tree, mut since) = (TreeState::default(), 0_u64);
    reader
        .events(Position(1), &mut |item| {
            let EventItem::Event(event) = item else { panic!("{item:?}") };
            tree.apply(&event);
            since += 1;
            if since > event.position.0 / 50 {
                since = 0;
                for node in tree.nodes().collect::<Vec<NodeId>>() {
                    validate_pairing(&tree.context(node)).unwrap();
                }
            }
            ControlFlow::Continue(())
        })
        .unwrap();
}

/// Memory, where the system has a directory for that.
pub fn fast_dir() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}
