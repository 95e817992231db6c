//! Real session files, where there are any: every one imports, verifies, lists and shows, and for every prefix of every
//! imported log the context obeys the providers' pairing rules.
//!
//! The files are not part of the project. `SESSIONLOG_SAMPLES` names a directory of them; without it and without
//! `../shared/samples` beside the checkout the test says that it was skipped.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic"
)]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use sessionlog::codec::ids::{NodeId, Position};
use sessionlog::log::Severity;
use sessionlog::projections::{Projection, Summary, TreeState, validate_pairing};
use sessionlog::session::EventItem;
use sessionlog::{Durability, SessionReader, Store, StoreOptions, ViewPolicy};
use sessionlog_tools::import::{ImportReport, Imported, discover, import_session};
use sessionlog_tools::store_target::StoreTarget;

fn samples() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/samples");
    let dir = std::env::var_os("SESSIONLOG_SAMPLES").map_or(beside, PathBuf::from);
    if dir.is_dir() {
        return Some(dir);
    }
    println!("SKIPPED: no sample files at {}", dir.display());
    None
}

fn import(store: &Store, paths: &[PathBuf]) -> ImportReport {
    let mut report = ImportReport::default();
    let sources = discover(paths, &mut report.notes).unwrap();
    let mut target = StoreTarget::new(store.clone());
    for source in &sources {
        import_session(source, &mut target, &mut |_| {}, &mut report)
            .unwrap_or_else(|error| panic!("{}: {error:?}", source.agent_session_id));
    }
    report
}

#[test]
fn every_sample_imports_and_every_prefix_is_legal() {
    let Some(samples) = samples() else { return };
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        durability: Durability::Buffered,
        views: ViewPolicy::AtClose,
        ..StoreOptions::default()
    };
    let store = Store::open_with(dir.path().join("home"), options).unwrap();
    let paths = [samples.join("claude-code"), samples.join("recursive")];
    let report = import(&store, &paths);
    assert!(report.sessions.len() > 40, "{}", report.sessions.len());

    let rows = store.reader().list().unwrap();
    for session in &report.sessions {
        let row = rows.iter().find(|row| row.id == session.session_id.to_string()).unwrap();
        assert_eq!(row.issue, None, "{}", row.id);
        let reader = store.reader().session(session.session_id).unwrap();
        let check = reader.verify().unwrap();
        assert!(check.worst() < Some(Severity::Warning), "{}: {:?}", row.id, check.all().collect::<Vec<_>>());
        check_prefixes(&reader);
        let mut summary = Summary::default();
        reader.fold(Position(u64::MAX), &mut summary).unwrap();
        assert_eq!(summary.messages, row.messages, "{}: list and fold disagree", row.id);
        assert_eq!(summary.title(), row.title, "{}: list and fold disagree", row.id);
        let last_activity = summary.last_activity.or(summary.created_at());
        assert_eq!(last_activity, row.last_activity, "{}: list and fold disagree", row.id);
    }

    // Importing again changes nothing.
    let bytes = |rows: &[sessionlog::SessionRow]| rows.iter().map(|row| row.bytes).sum::<u64>();
    let again = import(&store, &paths);
    assert!(again.sessions.iter().all(|session| session.outcome == Imported::Unchanged));
    assert_eq!(bytes(&store.reader().list().unwrap()), bytes(&rows));
}

/// Contexts cost O(messages), so long logs are looked at after some of their events only: every one at first, then
/// fewer, and the last.
fn check_prefixes(reader: &SessionReader) {
    let mut tree = TreeState::default();
    let mut since = 0_u64;
    let check = |tree: &TreeState, position: Position| {
        for node in tree.nodes().collect::<Vec<NodeId>>() {
            let context = tree.context(node);
            validate_pairing(&context).unwrap_or_else(|error| {
                panic!("{} node {node} at position {position}: {error}", reader.place().id)
            });
        }
    };
    let mut last = Position::START;
    reader
        .events(Position(1), &mut |item| {
            let EventItem::Event(event) = item else { panic!("{item:?}") };
            tree.apply(&event);
            last = event.position;
            since += 1;
            if since > last.0 / 100 {
                check(&tree, last);
                since = 0;
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    check(&tree, last);
}
