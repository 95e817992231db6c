//! A host is killed with SIGKILL again and again, after every acknowledged append and in between. Reports like "the
//! turn was lost when I closed the terminal" and "it ran my command twice after the crash" come from stores that write
//! turn by turn and read "no result" as "not run".
//!
//! The test runs itself as the host, in a child process. The child appends steps and prints each acknowledgement; the
//! parent kills it at the n-th one, which finds the child somewhere in the middle of the next step.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use sessionlog::codec::event::{Effect, FinalStatus, Outcome, Role};
use sessionlog::codec::ids::{Position, SessionId, ToolIndex};
use sessionlog::projections::{EntryBody, Mark, validate_pairing};
use sessionlog::{CallResult, Durability, Message, NewSession, Session, Store, StoreOptions, StoreReader};

const STEPS: usize = 200;
const CHILD: &str = "SESSIONLOG_KILL_TEST_CHILD";

/// The host: goes on with the session until it has done all steps, or dies.
fn host(home: &Path, id: SessionId) {
    let options = StoreOptions { durability: Durability::Sync, ..StoreOptions::default() };
    let store = Store::open_with(home, options).unwrap();
    let (session, report) = store.resume(id).unwrap();
    for call in &report.not_started_calls {
        run_call(home, &session, call.call);
    }
    loop {
        let step =
            session.transcript().unwrap().iter().filter(|entry| entry.role() == Some(Role::User)).count();
        if step >= STEPS / 4 {
            break;
        }
        let prompt = session.append(Message::user(format!("step {step}"))).unwrap();
        acknowledge(&format!("message {}", prompt.message_no));
        let turn = Message::assistant(format!("doing {step}"));
        let turn = turn.call(format!("a{step}"), "effect", "{}").call(format!("b{step}"), "effect", "{}");
        let asked = session.append(turn).unwrap();
        acknowledge(&format!("message {}", asked.message_no));
        run_call(home, &session, asked.call(0));
        run_call(home, &session, asked.call(1));
    }
    session.finish(FinalStatus::Completed).unwrap();
    acknowledge("finished");
}

/// A tool with a side effect outside of the store: one line in a file.
fn run_call(home: &Path, session: &Session, call: sessionlog::codec::ids::CallRef) {
    let running = session.start_call(call, Effect::Mutating).unwrap();
    let effects = home.with_extension("effects");
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(effects).unwrap();
    file.write_all(format!("{call}\n").as_bytes()).unwrap();
    running.finish(CallResult::succeeded(format!("effect of {call}"))).unwrap();
    acknowledge(&format!("result {call}"));
}

fn acknowledge(what: &str) {
    println!("acknowledged {what}");
}

#[test]
fn child_host() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let (home, id) = arguments.split_once('|').unwrap();
    host(Path::new(home), id.parse().unwrap());
}

/// Runs the host until `kill_at` acknowledgements have come, then kills it. Returns what was acknowledged.
fn run_host(home: &Path, id: SessionId, kill_at: usize) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_host", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{}|{id}", home.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Ok(line) = line else { break };
        // The test harness prints the first acknowledgement on the line of the test's name.
        let Some((_, what)) = line.split_once("acknowledged ") else { continue };
        acknowledged.push(what.to_owned());
        if acknowledged.len() >= kill_at {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    acknowledged
}

#[test]
fn everything_acknowledged_survives_and_nothing_runs_twice() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let store = Store::open(&home).unwrap();
    let session = store.create(dir.path(), NewSession::new("be killed")).unwrap();
    let id = session.id();
    session.close().unwrap();

    let mut acknowledged = Vec::new();
    let mut kills = 0;
    for round in 1.. {
        assert!(round < 10 * STEPS, "the run does not come to an end");
        // Mostly after one acknowledgement, so that every step is cut; now and then a few more.
        let news = run_host(&home, id, 1 + round % 3);
        let finished = news.iter().any(|what| what == "finished");
        acknowledged.extend(news);
        check_prefix(&home, id, &acknowledged);
        if finished {
            break;
        }
        kills += 1;
    }
    println!("{kills} kills, {} acknowledgements", acknowledged.len());
    assert!(kills >= 50, "only {kills} kills: the test does not test much");
    check_effects(&home, id);
}

/// Everything that was acknowledged is there, in its order.
fn check_prefix(home: &Path, id: SessionId, acknowledged: &[String]) {
    let reader = StoreReader::open(home).unwrap().session(id).unwrap();
    let tree = reader.tree(Position(u64::MAX)).unwrap();
    let root = sessionlog::codec::ids::NodeId::ROOT;
    validate_pairing(&tree.context(root)).unwrap();
    let mut stored = Vec::new();
    for entry in tree.transcript(root) {
        assert_ne!(entry.mark, Mark::Duplicate, "a call was answered twice");
        match entry.body {
            EntryBody::Message(message) => stored.push(format!("message {}", message.message_no)),
            EntryBody::Result(result, _) => stored.push(format!("result {}", result.call)),
            _ => {}
        }
    }
    let mut stored = stored.iter();
    for what in acknowledged.iter().filter(|what| *what != "finished") {
        assert!(stored.any(|is| is == what), "acknowledged and not there (or out of order): {what}");
    }
}

/// No call's side effect happened twice, and each is known to have happened or is said to be unknown.
fn check_effects(home: &Path, id: SessionId) {
    let effects = std::fs::read_to_string(home.with_extension("effects")).unwrap();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for effect in effects.lines() {
        *counts.entry(effect).or_default() += 1;
    }
    let reader = StoreReader::open(home).unwrap().session(id).unwrap();
    let tree = reader.tree(Position(u64::MAX)).unwrap();
    let mut unknown = 0;
    for entry in tree.transcript(sessionlog::codec::ids::NodeId::ROOT) {
        let EntryBody::Result(result, _) = entry.body else { continue };
        let ran = counts.get(result.call.to_string().as_str()).copied().unwrap_or(0);
        match result.outcome {
            Outcome::Succeeded => assert_eq!(ran, 1, "{}", result.call),
            Outcome::Unknown => {
                unknown += 1;
                assert!(ran <= 1, "{}", result.call);
            }
            other => panic!("{}: {other:?}", result.call),
        }
        assert!(result.call.tool_index <= ToolIndex(1));
    }
    println!("{} effects, {unknown} unknown outcomes", effects.lines().count());
    assert!(counts.values().all(|count| *count == 1), "an effect happened twice");
}
