//! What a host and a reader wait for. Figures of one run are comparable with each other and with nothing else.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic"
)]

use divan::Bencher;
use sessionlog::codec::ids::{NodeId, Position};
use sessionlog::{Durability, Message, NewSession, Store, StoreOptions, StoreReader};
use sessionlog_benches::{record, text};

fn main() {
    divan::main();
}

fn store(durability: Durability) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { durability, ..StoreOptions::default() };
    let store = Store::open_with(dir.path().join("home"), options).unwrap();
    (dir, store)
}

#[divan::bench(args = [Durability::Sync, Durability::Turn, Durability::Buffered])]
fn append_1500_bytes(bencher: Bencher, durability: Durability) {
    let (dir, store) = store(durability);
    let session = store.create(dir.path(), NewSession::default()).unwrap();
    let text = text(1500);
    bencher.bench_local(|| session.append(Message::user(text.clone())).unwrap());
}

#[divan::bench(args = [10, 100, 1000])]
fn resume(bencher: Bencher, turns: usize) {
    let (dir, store) = store(Durability::Buffered);
    let session = store.create(dir.path(), NewSession::default()).unwrap();
    let id = session.id();
    record(&session, turns).unwrap();
    session.close().unwrap();
    bencher.bench_local(|| store.resume(id).unwrap().0.close().unwrap());
}

#[divan::bench(args = [10, 100, 1000])]
fn context_of_a_reader(bencher: Bencher, turns: usize) {
    let (dir, store) = store(Durability::Buffered);
    let session = store.create(dir.path(), NewSession::default()).unwrap();
    record(&session, turns).unwrap();
    let reader = session.reader();
    bencher.bench_local(|| reader.tree(Position(u64::MAX)).unwrap().context(NodeId::ROOT).len());
}

#[divan::bench(args = [10, 100])]
fn list(bencher: Bencher, sessions: usize) {
    let (dir, store) = store(Durability::Buffered);
    for _ in 0..sessions {
        let session = store.create(dir.path(), NewSession::default()).unwrap();
        record(&session, 5).unwrap();
    }
    let reader: StoreReader = store.reader();
    bencher.bench_local(|| reader.list().unwrap().len());
}
