//! What a host waits for: appends, by how durable, how long, how many at once. Figures of one run are comparable with each
//! other and with nothing else.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a benchmark may fail loudly")]

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use sessionlog::codec::event::{Event, MessageAppended, NewEvent, Role};
use sessionlog::codec::ids::{MessageNo, NodeId};
use sessionlog::{Durability, Message, NewSession, Session, Store};
use sessionlog_benches::{open, text};

fn main() {
    divan::main();
}

fn session(store: &Store) -> Session {
    store.create(".", NewSession::default()).unwrap()
}

const EACH: [Durability; 3] = [Durability::Sync, Durability::Turn, Durability::Buffered];

/// One message, one commit.
#[divan::bench(args = EACH, consts = [100, 1_500, 20_000, 500_000])]
fn one_message<const LEN: usize>(bencher: Bencher, durability: Durability) {
    let (_dir, store) = open(durability);
    let session = session(&store);
    let text = text(LEN);
    bencher
        .counter(BytesCount::new(LEN))
        .with_inputs(|| Message::user(text.clone()))
        .bench_local_values(|message| session.append(message).unwrap());
}

/// Several messages, one commit.
#[divan::bench(args = EACH, consts = [4, 64])]
fn one_batch<const MESSAGES: u64>(bencher: Bencher, durability: Durability) {
    let (_dir, store) = open(durability);
    let session = session(&store);
    let text = text(1_500);
    let batch = || {
        let first = session.ledger(|ledger| ledger.next_message_no(NodeId::ROOT)).unwrap();
        let message = |number| MessageAppended::text(MessageNo(first.0 + number), Role::User, text.as_str());
        (0..MESSAGES).map(|number| NewEvent::now(NodeId::ROOT, message(number))).collect::<Vec<_>>()
    };
    bencher
        .counter(ItemsCount::new(MESSAGES))
        .with_inputs(batch)
        .bench_local_values(|events| session.append_batch(events, durability).unwrap());
}

/// A call as an agent runs it: asked for, started, finished. Three commits.
#[divan::bench(args = EACH)]
fn one_call(bencher: Bencher, durability: Durability) {
    let (_dir, store) = open(durability);
    let session = session(&store);
    let result = text(1_500);
    bencher.bench_local(|| sessionlog_benches::call(&session, &result).unwrap());
}

/// Threads that share one session: they are written and synced in groups.
#[divan::bench(threads = [1, 2, 8, 64], args = [Durability::Sync, Durability::Buffered])]
fn one_session(bencher: Bencher, durability: Durability) {
    let (_dir, store) = open(durability);
    let session = session(&store);
    let text = text(1_500);
    bencher
        .with_inputs(|| Message::user(text.clone()))
        .bench_values(|message| session.append(message).unwrap());
}

/// Threads with a session each.
#[divan::bench(threads = [1, 2, 8, 64], args = [Durability::Sync, Durability::Buffered])]
fn session_each(bencher: Bencher, durability: Durability) {
    let (_dir, store) = open(durability);
    let sessions: Vec<Session> = (0..64).map(|_| session(&store)).collect();
    let text = text(1_500);
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread_local!(static MINE: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) });
    bencher.with_inputs(|| Message::user(text.clone())).bench_values(|message| {
        let fresh = || next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mine = MINE.get().unwrap_or_else(fresh);
        MINE.set(Some(mine));
        sessions.get(mine % sessions.len()).unwrap().append(message).unwrap()
    });
}

/// The payload alone, without a log.
#[divan::bench(args = [100, 1_500, 20_000, 500_000])]
fn encode(bencher: Bencher, len: usize) {
    let event = Event::from(MessageAppended::text(MessageNo(1), Role::User, text(len)));
    bencher.counter(BytesCount::new(len)).bench(|| black_box(&event).encode().unwrap());
}
