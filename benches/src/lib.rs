//! Work that the benchmarks share: sessions of a given length, made of messages of a coding agent's sizes.

use sessionlog::codec::event::Effect;
use sessionlog::{CallResult, Message, Result, Session};

/// Text of about `len` bytes, of words and lines.
#[must_use]
pub fn text(len: usize) -> String {
    "let answer = compute(input)?; // line of source\n".chars().cycle().take(len).collect()
}

/// Appends `turns` turns of four messages: a prompt, an answer with a call, the call's result, an answer.
///
/// # Errors
/// As [`Session::append`].
pub fn record(session: &Session, turns: usize) -> Result<()> {
    for turn in 0..turns {
        session.append(Message::user(format!("Step {turn}: {}", text(120))))?;
        let asked = session.append(Message::assistant(text(300)).call(
            format!("c{turn}"),
            "read",
            r#"{"path":"a"}"#,
        ))?;
        let running = session.start_call(asked.call(0), Effect::Pure)?;
        running.finish(CallResult::succeeded(text(1500)))?;
        session.append(Message::assistant(text(400)))?;
    }
    Ok(())
}
