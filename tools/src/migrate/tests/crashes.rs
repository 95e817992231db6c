//! Everything exactly once, wherever a run breaks off.

use std::sync::Arc;

use sessionlog::storage::{CrashMode, Fault, FaultError, Repeat, SimStorage};
use sessionlog::{LogOptions, Store, StoreOptions, SystemClock};

use super::*;

fn open(storage: &SimStorage) -> sessionlog::Result<Store> {
    let log = LogOptions { segment_len: 4096, fill_len: 512 };
    let options = StoreOptions { log, ..options() };
    Store::open_on(Arc::new(storage.clone()), Arc::new(SystemClock), "home", options)
}

/// Every call to the disk fails from the n-th on; then the process dies, or power goes. The next run finishes, and a third
/// one changes nothing.
#[test]
fn a_run_that_broke_off_anywhere_is_finished_by_the_next_one() {
    let workspace = Workspace::full();
    workspace.session(".recursive/sessions/long", "long", 300);
    let mut found = workspace.found();
    // One of each way that files are taken in.
    found.retain(|found| {
        let id = &found.source.agent_session_id;
        !["sess-1", "2026-02", "2026-03-01T10-00-00Z", "plan"].iter().any(|start| id.starts_with(start))
    });
    let reference = SimStorage::new();
    assert_eq!(words(&run(&open(&reference).unwrap(), &found)), ["new"; 4]);
    let calls = reference.calls().len();
    let expected = told(&open(&reference).unwrap());
    assert_eq!(expected.len(), 4);
    let mut half = 0;
    for stop in 0..calls {
        let storage = SimStorage::new();
        storage.fail(Fault::any(FaultError::EIO).after(stop as u64).repeat(Repeat::Always));
        if let Ok(store) = open(&storage) {
            run(&store, &found);
        }
        // Every third place with each end: the disk as it was written, and as it was promised.
        let mode = match stop % 3 {
            0 => CrashMode::LoseAll,
            1 => CrashMode::KeepAll,
            _ => CrashMode::Seeded(stop as u64),
        };
        let after = storage.power_cut(mode);
        let store = open(&after).unwrap();
        let rows = run(&store, &found);
        let wrong: Vec<_> = rows.iter().filter(|row| row.error.is_some()).collect();
        assert!(wrong.is_empty(), "stop {stop} {mode:?}: {wrong:?}");
        half += usize::from(rows.iter().any(|row| row.outcome.word() == "grown"));
        let now = told(&store);
        assert_eq!(now.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "stop {stop}");
        for (id, (place, events)) in &expected {
            assert_eq!(&now[id].0, place, "stop {stop} {mode:?} {id}");
            assert_eq!(&now[id].1, events, "stop {stop} {mode:?} {id}");
        }
        after.take_calls();
        assert_eq!(words(&run(&store, &found)), ["unchanged"; 4]);
        let changed: Vec<_> = after.take_calls().into_iter().filter(|call| call.changes_disk()).collect();
        assert!(changed.is_empty(), "stop {stop} {mode:?}: {changed:?}");
        for row in store.reader().roots().unwrap().rows {
            assert_ne!(row.session.status.word(), "crashed", "stop {stop} {mode:?}");
        }
    }
    assert!(half > 10, "{half} of {calls}");
}
