//! How long searching the memory of a workspace takes: `cargo run --release --example search_many -- [SESSIONS]`.

#![allow(clippy::print_stdout, reason = "an example may print")]

use std::error::Error;
use std::time::{Duration, Instant};

use sessionlog::codec::event::Effect;
use sessionlog::projections::memory::{MemoryFilter, MemoryKind, MemoryQuery};
use sessionlog::store::{WorkspaceHash, canonical};
use sessionlog::{
    CallResult, Durability, IndexPolicy, Memory, Message, NewSession, Store, StoreOptions, ViewPolicy,
};

const WORDS: [&str; 24] = [
    "the",
    "test",
    "parser",
    "fails",
    "because",
    "of",
    "a",
    "missing",
    "header",
    "in",
    "src/http/parse.rs",
    "and",
    "login_flow",
    "returns",
    "error",
    "when",
    "cookie",
    "is",
    "not",
    "set",
    "by",
    "HttpClient::send",
    "before",
    "retry",
];

fn main() -> Result<(), Box<dyn Error>> {
    let sessions: u64 = std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse())?;
    let dir = std::env::temp_dir().join(format!("sessionlog-search-{}", std::process::id()));
    let code = dir.join("code");
    std::fs::create_dir_all(&code)?;
    let options =
        StoreOptions { durability: Durability::Buffered, views: ViewPolicy::Off, ..StoreOptions::default() };
    let store = Store::open_with(dir.join("home"), options)?;
    let begun = Instant::now();
    for nth in 0..sessions {
        fill(&store, &code, nth)?;
    }
    println!("{sessions} sessions written in {:?}", begun.elapsed());
    let hash = WorkspaceHash::of(&canonical(&code));
    let memory = store.memory(&hash);
    let rare = MemoryQuery::of_text(format!("needle{}", sessions / 2));
    println!("first search, which makes the index: {:?}", timed(&memory, &rare)?);
    let file = dir.join("home/workspaces").join(hash.as_str()).join("index/memory.sqlite");
    println!("index: {} bytes", std::fs::metadata(file)?.len());
    // Files that changed a moment ago are looked into, so the first searches are not what later ones cost.
    std::thread::sleep(Duration::from_secs(4));
    println!("second search, which learns that the files are quiet: {:?}", timed(&memory, &rare)?);
    let calls = MemoryFilter { kinds: [MemoryKind::Call].into(), ..MemoryFilter::default() };
    for (what, query) in [
        ("a rare word", rare.clone()),
        ("a common word", MemoryQuery::of_text("parser")),
        ("three words", MemoryQuery::of_text("login_flow cookie retry")),
        ("no word, the newest", MemoryQuery::default()),
        ("no word, calls", MemoryQuery { filter: calls, ..MemoryQuery::default() }),
    ] {
        let mut times: Vec<Duration> =
            (0..21).map(|_| timed(&memory, &query).map(|it| it.0)).collect::<Result<_, _>>()?;
        times.sort_unstable();
        let p50 = times.get(10).copied().unwrap_or_default();
        println!("warm, {what}: p50 {p50:?}, {} records", timed(&memory, &query)?.1);
    }
    fill(&store, &code, sessions)?;
    println!("one more session: {:?}", timed(&memory, &rare)?);
    println!("by reading every log: {:?}", timed(&memory.with_index(IndexPolicy::Off), &rare)?);
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

fn fill(store: &Store, code: &std::path::Path, nth: u64) -> Result<(), Box<dyn Error>> {
    let text = |salt: u64, words: u64| {
        let pick = |at: u64| {
            let mixed = (nth * 31 + salt)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(u32::try_from(at % 64).unwrap_or(0));
            WORDS.get(usize::try_from(mixed % 24).unwrap_or(0)).copied().unwrap_or_default()
        };
        (0..words).map(pick).collect::<Vec<_>>().join(" ")
    };
    let session = store.create(code, NewSession::new(format!("goal {nth}")))?;
    session.prompt(Message::user(format!("{} needle{nth}", text(1, 20))))?;
    let said = session.append(Message::assistant("").call("c", "run", r#"{"cmd":"cargo test"}"#))?;
    session.start_call(said.call(0), Effect::Pure)?.finish(CallResult::succeeded(text(2, 60)))?;
    session.append(Message::assistant(text(3, 40)))?;
    session.close()?;
    Ok(())
}

fn timed(memory: &Memory, query: &MemoryQuery) -> Result<(Duration, u64), Box<dyn Error>> {
    let begun = Instant::now();
    let found = memory.search(query)?;
    Ok((begun.elapsed(), found.total))
}
