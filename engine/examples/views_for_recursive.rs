//! Keeps a session's views in the words of recursive-agent 0.8, whose own reader loads them:
//! `cargo run -p sessionlog --example views_for_recursive -- HOME` prints the session's directory.

use sessionlog::codec::event::{
    CompactionTrigger, Effect, FinalStatus, MessageRange, Role, TurnOutcome, Usage,
};
use sessionlog::codec::ids::MessageNo;
use sessionlog::projections::views::Dialect;
use sessionlog::{CallResult, Compaction, Message, NewSession, Store, StoreOptions};

#[allow(clippy::print_stdout, reason = "an example")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = std::env::args_os().nth(1).ok_or("give a directory for the home")?;
    let options = StoreOptions { dialect: Dialect::Recursive08, ..StoreOptions::default() };
    let session =
        Store::open_with(home, options)?.create(".", NewSession::new("Fix the test").model("m1"))?;
    let dir = session.place().dir.clone();

    session.append(Message::system("You are careful."))?;
    session.start_turn()?;
    session.append(Message::user("Fix the failing test.\u{2028}Please."))?;
    let usage = Usage { input: 500, cache_read: 400, cache_write: 0, output: 40, reasoning: 12 };
    let asked = session.append(
        Message::assistant("Two calls.")
            .call("call_1", "Read", r#"{"path":"src/lib.rs","b":1,"a":2}"#)
            .call("call_2", "Bash", "{\"cmd\":\"cargo test\"}")
            .usage(usage),
    )?;
    // The results come in another order than the calls.
    session.start_call(asked.call(1), Effect::Mutating)?.finish(CallResult::failed("1 failed"))?;
    session.start_call(asked.call(0), Effect::Pure)?.finish(CallResult::succeeded("pub fn x() {}"))?;
    session.append(Message::assistant("Done."))?;
    session.end_turn(TurnOutcome::Completed)?;

    session.compact(Compaction {
        compaction_id: "c1".to_owned(),
        summary: "The test was fixed.".to_owned(),
        summary_role: Role::System,
        kept: Vec::new(),
        replaced: vec![MessageRange { first: MessageNo(1), last: MessageNo(4) }],
        tokens: (Some(900), Some(30)),
        trigger: CompactionTrigger::Manual,
        model: None,
        usage: None,
    })?;
    session.start_turn()?;
    session.append(Message::user("And now?"))?;
    session.append(Message::assistant("Nothing more."))?;
    session.end_turn(TurnOutcome::Completed)?;
    session.finish(FinalStatus::Completed)?;
    println!("{}", dir.display());
    Ok(())
}
