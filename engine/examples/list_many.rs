//! How long listing a home takes: `list_many make HOME SESSIONS MESSAGES`, then `list_many list HOME [plain] [TIMES]`.
//!
//! For a cold listing, the system's cache is dropped between the two (Linux, root: `echo 3 > /proc/sys/vm/drop_caches`).

#![allow(clippy::print_stdout, clippy::panic, reason = "an example may print and panic")]

use std::time::Instant;

use sessionlog::{CatalogPolicy, Durability, Message, NewSession, Result, Store, StoreOptions, ViewPolicy};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["make", home, sessions, messages] => make(home, number(sessions), number(messages)),
        ["list", home] => list(home, CatalogPolicy::Keep, 1),
        ["list", home, "plain"] => list(home, CatalogPolicy::Off, 1),
        ["list", home, "plain", times] => list(home, CatalogPolicy::Off, number(times)),
        ["list", home, times] => list(home, CatalogPolicy::Keep, number(times)),
        _ => panic!("make HOME SESSIONS MESSAGES, or list HOME [plain] [TIMES]"),
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("`{word}` is not a number"))
}

fn make(home: &str, sessions: u64, messages: u64) -> Result<()> {
    let options =
        StoreOptions { durability: Durability::Buffered, views: ViewPolicy::Off, ..StoreOptions::default() };
    let store = Store::open_with(home, options)?;
    for nth in 0..sessions {
        let workspace = format!("/work/{}", nth % 20);
        let goal = format!("Task {nth}: fix the login test");
        let session = store.create_foreign(workspace.as_bytes(), NewSession::new(goal).model("model-1"))?;
        for message in 0..messages {
            let text = format!("message {message}: {}", "what is said in it ".repeat(20));
            session.append(if message % 2 == 0 { Message::user(text) } else { Message::assistant(text) })?;
        }
        session.close()?;
    }
    Ok(())
}

fn list(home: &str, catalog: CatalogPolicy, times: u64) -> Result<()> {
    for _ in 0..times {
        let store = Store::open_with(home, StoreOptions { catalog, ..StoreOptions::default() })?;
        let begun = Instant::now();
        let rows = store.list()?;
        let issues = rows.iter().filter(|row| row.issue.is_some()).count();
        println!("{} rows, {issues} with an issue, {:?}", rows.len(), begun.elapsed());
    }
    Ok(())
}
