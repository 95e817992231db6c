//! What a reader, a resume and a person at a list wait for. Figures of one run are comparable with each other and with
//! nothing else.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a benchmark may fail loudly")]

use std::ops::ControlFlow;
use std::time::Duration;

use divan::Bencher;
use sessionlog::codec::ids::{NodeId, Position, SessionId};
use sessionlog::codec::registry::kind;
use sessionlog::projections::{Ledger, Summary, TreeState};
use sessionlog::session::EventItem;
use sessionlog::{Durability, NewSession, SessionReader, Store};
use sessionlog_benches::{open, record};

fn main() {
    divan::main();
}

const TURNS: [usize; 3] = [10, 100, 2_000];

/// A session of so many turns, closed.
fn recorded(turns: usize) -> (tempfile::TempDir, Store, SessionId) {
    let (dir, store) = open(Durability::Buffered);
    let session = store.create(".", NewSession::default()).unwrap();
    let id = session.id();
    record(&session, turns).unwrap();
    session.close().unwrap();
    (dir, store, id)
}

fn reader(turns: usize) -> (tempfile::TempDir, SessionReader) {
    let (dir, store, id) = recorded(turns);
    (dir, store.reader().session(id).unwrap())
}

/// Taking a session over, and letting go of it.
#[divan::bench(args = TURNS)]
fn resume(bencher: Bencher, turns: usize) {
    let (_dir, store, id) = recorded(turns);
    bencher.bench_local(|| store.resume(id).unwrap().0.close().unwrap());
}

/// Every event, decoded.
#[divan::bench(args = TURNS)]
fn full(bencher: Bencher, turns: usize) {
    let (_dir, reader) = reader(turns);
    bencher.bench_local(|| {
        let mut events = Vec::new();
        reader
            .events(Position(1), &mut |item| {
                if let EventItem::Event(event) = item {
                    events.push(event);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        events.len()
    });
}

/// The last 50 messages and results.
#[divan::bench(args = TURNS)]
fn last_50(bencher: Bencher, turns: usize) {
    let (_dir, reader) = reader(turns);
    bencher.bench_local(|| {
        let mut places = Vec::new();
        reader
            .log()
            .index(&mut |position, entry, _| {
                if entry.kind == kind::MessageAppended || entry.kind == kind::CallFinished {
                    places.push(position);
                }
            })
            .unwrap();
        let from = places.iter().rev().nth(49).copied().unwrap_or(Position(1));
        let mut events = 0;
        reader
            .events(from, &mut |_| {
                events += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        events
    });
}

/// What the model is shown.
#[divan::bench(args = TURNS)]
fn context(bencher: Bencher, turns: usize) {
    let (_dir, reader) = reader(turns);
    bencher.bench_local(|| reader.tree(Position(u64::MAX)).unwrap().context(NodeId::ROOT).len());
}

/// How the session stands, and nothing else.
#[divan::bench(args = TURNS)]
fn status(bencher: Bencher, turns: usize) {
    let (_dir, store, id) = recorded(turns);
    let reader = store.reader();
    bencher.bench_local(|| reader.rows(reader.session(id).unwrap().place().clone()).len());
}

/// Each fold, of the same log.
#[divan::bench(args = ["summary", "ledger", "tree"])]
fn fold(bencher: Bencher, what: &str) {
    let (_dir, reader) = reader(1_000);
    let all = Position(u64::MAX);
    match what {
        "summary" => bencher.bench_local(|| reader.fold(all, &mut Summary::default()).unwrap()),
        "ledger" => bencher.bench_local(|| reader.fold(all, &mut Ledger::default()).unwrap()),
        _ => bencher.bench_local(|| reader.fold(all, &mut TreeState::default()).unwrap()),
    }
}

/// Every checksum, link and law.
#[divan::bench(args = TURNS)]
fn verify(bencher: Bencher, turns: usize) {
    let (_dir, reader) = reader(turns);
    bencher.bench_local(|| reader.verify().unwrap());
}

/// A list of sessions: anew, and with what the catalog kept of logs that were left alone since.
#[divan::bench(args = [10, 200, 2_000], consts = [false, true])]
fn list<const CATALOG: bool>(bencher: Bencher, sessions: usize) {
    let (_dir, store) = open(Durability::Buffered);
    for _ in 0..sessions {
        let session = store.create(".", NewSession::default()).unwrap();
        record(&session, 5).unwrap();
        session.close().unwrap();
    }
    if CATALOG {
        // Files that changed a moment ago are looked into.
        std::thread::sleep(Duration::from_secs(4));
        store.list().unwrap();
        bencher.bench_local(|| store.list().unwrap().len());
    } else {
        let reader = store.reader();
        bencher.bench_local(|| reader.list().unwrap().len());
    }
}
