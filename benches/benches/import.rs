//! Importing another agent's sessions: the first time, and again when nothing is new.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a benchmark may fail loudly")]

use std::fmt::Write;
use std::path::Path;

use divan::Bencher;
use sessionlog::{Durability, Store};
use sessionlog_benches::{open, text};
use sessionlog_tools::import::{ImportReport, discover, import_session};
use sessionlog_tools::store_target::StoreTarget;

fn main() {
    divan::main();
}

const SESSION: &str = "0197b4a2-0000-7000-8000-000000000001";

/// A session file of Claude Code with so many turns.
fn write_source(dir: &Path, turns: usize) {
    let mut lines = String::new();
    let (mut parent, body) = ("null".to_owned(), text(1_500).replace('\n', "\\n"));
    for turn in 0..turns {
        for (role, nth) in [("user", 0), ("assistant", 1)] {
            let uuid = format!("00000000-0000-4000-8000-{:012x}", turn * 2 + nth);
            let id = if role == "assistant" {
                format!(r#""id":"msg_{turn}","model":"m","#)
            } else {
                String::new()
            };
            writeln!(
                lines,
                r#"{{"type":"{role}","uuid":"{uuid}","parentUuid":{parent},"sessionId":"{SESSION}","cwd":"/work","version":"2.0.0","timestamp":"2026-01-01T00:00:00.000Z","message":{{{id}"role":"{role}","content":[{{"type":"text","text":"{turn} {body}"}}]}}}}"#
            )
            .unwrap();
            parent = format!("{uuid:?}");
        }
    }
    std::fs::write(dir.join(format!("{SESSION}.jsonl")), lines).unwrap();
}

fn import(store: &Store, source: &Path) -> ImportReport {
    let mut report = ImportReport::default();
    let sources = discover(&[source.to_owned()], &mut report.notes).unwrap();
    assert!(!sources.is_empty(), "the source is recognised");
    let mut target = StoreTarget::new(store.clone());
    for source in &sources {
        import_session(source, &mut target, &mut |_| {}, &mut report).unwrap();
    }
    report
}

#[divan::bench(args = [10, 1_000])]
fn first(bencher: Bencher, turns: usize) {
    let source = tempfile::tempdir().unwrap();
    write_source(source.path(), turns);
    bencher
        .with_inputs(|| open(Durability::Buffered))
        .bench_local_values(|(dir, store)| (import(&store, source.path()), dir));
}

#[divan::bench(args = [10, 1_000])]
fn again(bencher: Bencher, turns: usize) {
    let source = tempfile::tempdir().unwrap();
    write_source(source.path(), turns);
    let (_dir, store) = open(Durability::Buffered);
    import(&store, source.path());
    bencher.bench_local(|| import(&store, source.path()));
}
