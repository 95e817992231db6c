//! Work that the benchmarks share: stores, and sessions of a given length, made of messages of a coding agent's sizes.

use sessionlog::codec::event::Effect;
use sessionlog::{CallResult, Durability, Message, Result, Session, Store, StoreOptions};

/// Text of about `len` bytes, of words and lines.
#[must_use]
pub fn text(len: usize) -> String {
    "let answer = compute(input)?; // line of source\n".chars().cycle().take(len).collect()
}

/// An empty store in a directory that goes away with its guard.
///
/// It is below the crate's own directory for temporary files where Cargo says which that is: `/tmp` may be in memory, where
/// a sync costs nothing.
///
/// # Panics
/// If the directory can't be made: there is nothing to measure then.
#[must_use]
#[expect(clippy::expect_used, reason = "a benchmark without a directory has nothing to measure")]
pub fn open(durability: Durability) -> (tempfile::TempDir, Store) {
    let place =
        option_env!("CARGO_TARGET_TMPDIR").unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tmp"));
    std::fs::create_dir_all(place).expect("a directory for benchmarks");
    let dir = tempfile::tempdir_in(place).expect("a directory for a benchmark");
    let options = StoreOptions { durability, ..StoreOptions::default() };
    let store = Store::open_with(dir.path().join("home"), options).expect("a new store");
    (dir, store)
}

/// Appends `turns` turns of four messages: a prompt, an answer with a call, the call's result, an answer.
///
/// # Errors
/// As [`Session::append`].
pub fn record(session: &Session, turns: usize) -> Result<()> {
    let result = text(1_500);
    for turn in 0..turns {
        session.append(Message::user(format!("Step {turn}: {}", text(120))))?;
        call(session, &result)?;
        session.append(Message::assistant(text(400)))?;
    }
    Ok(())
}

/// Appends an answer with a call, and runs the call.
///
/// # Errors
/// As [`Session::append`].
pub fn call(session: &Session, result: &str) -> Result<()> {
    let asked = session.append(Message::assistant(text(300)).call("call", "read", r#"{"path":"a"}"#))?;
    let running = session.start_call(asked.call(0), Effect::Pure)?;
    running.finish(CallResult::succeeded(result))?;
    Ok(())
}
