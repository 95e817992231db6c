//! What is hurt is named, what is whole is shown, and the exit code says which it was.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic"
)]
#![cfg(unix)]

mod cli_support;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cli_support::{Home, Run, copy_tree, flip, foreign, logdump, segment, snapshot, talk};
use sessionlog::Message;
use sessionlog::codec::registry::kind;

/// Runs every reading command on a session, asserts the exit code of each, and that it printed something.
fn all_exit(home: &Path, id: &str, code: i32) {
    let lines = [
        "ls",
        "show {}",
        "events {}",
        "context {}",
        "open-calls {}",
        "tree {}",
        "plan {}",
        "resolve {}",
        "rewind {} --branches",
        "stat {}",
        "verify",
        "verify {}",
    ];
    let exports = ["seed", "recursive", "jsonl", "markdown"].map(|it| format!("export {{}} --format {it}"));
    let before = snapshot(home);
    for line in lines.iter().map(|line| (*line).to_owned()).chain(exports) {
        for flag in ["", " --json"] {
            let line = format!("{line}{flag}").replace("{}", id);
            let run = logdump(home, &line.split(' ').collect::<Vec<_>>());
            assert_eq!(run.code, code, "{line}\n{}\n{}", run.out, run.err);
            let may_be_silent = line.starts_with("verify") || line.ends_with("--json");
            if code > 0 && !may_be_silent {
                assert_eq!(
                    run.err.lines().filter(|line| line.contains("warning:")).count(),
                    1,
                    "{line}\n{}",
                    run.err
                );
            }
        }
    }
    assert_eq!(snapshot(home), before);
}

fn closed_talk() -> (Home, String) {
    let home = Home::new();
    let session = home.session("Damaged");
    talk(&session);
    session.append(Message::user("The last word")).unwrap();
    let id = session.id().to_string();
    session.close().unwrap();
    (home, id)
}

fn verify(home: &Path, code: i32) -> serde_json::Value {
    logdump(home, &["verify", "--json"]).exits(code).json()["sessions"][0].clone()
}

fn codes(session: &serde_json::Value) -> Vec<String> {
    let findings = session["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_flipped_byte_costs_one_frame() {
    let (home, id) = closed_talk();
    flip(&segment(&home.path(), &id), "Why does the test fail?");
    all_exit(&home.path(), &id, 3);
    let shown = home.run(&["show", &id, "--json"]).exits(3).json();
    assert_eq!(shown["health"]["verdict"], "lost");
    assert_eq!(shown["health"]["gaps"].as_array().unwrap().len(), 1);
    assert_eq!(shown["messages"].as_array().unwrap().len(), 6);
    let human = home.run(&["show", &id]).exits(3);
    assert!(human.out.contains("!! position") && human.out.contains("The last word"), "{}", human.out);
    assert!(human.out.find("Be brief.") < human.out.find("!! position"), "{}", human.out);
    assert_eq!(home.run(&["show", &id, "-q"]).exits(3).err, "");

    let session = verify(&home.path(), 3);
    assert!(codes(&session).contains(&"frame.damaged".to_owned()), "{session}");
    assert!(
        session["findings"]
            .as_array()
            .unwrap()
            .iter()
            .all(|it| it["next"].as_str().is_some_and(|it| it.len() > 10))
    );
    let human = home.run(&["verify"]).exits(3);
    assert!(human.out.contains("DATA LOST") && human.out.contains("    → "), "{}", human.out);
    let listed = home.run(&["ls", "--json"]).exits(3).json();
    assert!(listed["sessions"][0]["issue"].as_str().is_some());
    assert_eq!(listed["sessions"][0]["title"], "Fix the parser");
}

#[test]
fn a_session_without_its_first_record_is_listed_by_what_is_left() {
    let (home, id) = closed_talk();
    flip(&segment(&home.path(), &id), "Damaged");
    all_exit(&home.path(), &id, 3);
    let row = home.run(&["ls", "--json"]).exits(3).json()["sessions"][0].clone();
    assert_eq!((row["id"].as_str(), row["title"].as_str()), (Some(&*id), Some("Fix the parser")));
    assert_eq!((row["messages"].as_u64(), row["status"].as_str()), (Some(7), Some("idle")));
    assert!(row["issue"].is_string());
}

#[test]
fn every_flipped_byte_is_an_exit_code_and_never_a_crash() {
    let (home, id) = closed_talk();
    let file = segment(&home.path(), &id);
    let bytes = fs::read(&file).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let commands = [&["ls"][..], &["show", &id], &["context", &id], &["verify"]];
    let whole: Vec<String> = commands.iter().map(|args| home.run(args).exits(0).out).collect();
    for at in (0..used).step_by(used / 12) {
        let mut hurt = bytes.clone();
        hurt[at] ^= 0x81;
        fs::write(&file, hurt).unwrap();
        for (args, whole) in commands.iter().zip(&whole) {
            let run = home.run(args);
            // A byte between two frames pads, and means nothing.
            let is_sound = run.code == 0 && run.out == *whole;
            assert!(
                is_sound || (1..=3).contains(&run.code),
                "byte {at} {args:?}: {}\n{}\n{}",
                run.code,
                run.out,
                run.err
            );
        }
    }
}

/// A copy of a home while its session is owned: what a crash at this moment would leave.
fn crashed(home: &Home) -> PathBuf {
    let copy = home.dir.path().join("crashed");
    copy_tree(&home.path(), &copy);
    copy
}

fn unused_from(home: &Path) -> u64 {
    let session = verify(home, 0);
    assert_eq!(codes(&session), ["space.unused"]);
    session["findings"][0]["offset"].as_u64().unwrap()
}

fn tear(home: &Path, id: &str, at: u64) {
    let file = OpenOptions::new().write(true).open(segment(home, id)).unwrap();
    file.write_all_at(b"half of a frame that was never acknowledged", at).unwrap();
}

#[test]
fn a_running_session_with_unused_space_is_clean_and_so_is_a_crashed_one() {
    let home = Home::new();
    let session = home.session("Crash");
    talk(&session);
    let id = session.id().to_string();
    all_exit(&home.path(), &id, 0);
    let copy = crashed(&home);
    all_exit(&copy, &id, 0);
    let listed = logdump(&copy, &["ls", "--json"]).json();
    assert_eq!(listed["sessions"][0]["status"], "crashed");
}

#[test]
fn a_torn_tail_is_repairable_unless_its_owner_lives() {
    let home = Home::new();
    let session = home.session("Torn");
    talk(&session);
    let id = session.id().to_string();
    let copy = crashed(&home);
    let at = unused_from(&copy);
    tear(&copy, &id, at);
    all_exit(&copy, &id, 2);
    let found = verify(&copy, 2);
    assert_eq!(codes(&found)[0], "tail.torn");
    assert_eq!(found["findings"][0]["severity"], "repairable");
    let shown = logdump(&copy, &["show", &id, "--json"]).exits(2).json();
    assert_eq!(shown["messages"].as_array().unwrap().len(), 6);
    assert_eq!(shown["health"]["tail"]["state"], "torn");

    // Whoever opens the session repairs it.
    logdump(&copy, &["rewind", &id, "--to-start", "--dry-run"]).exits(2);
    logdump(&copy, &["rewind", &id, "--to-start"]).exits(0);
    logdump(&copy, &["verify", &id]).exits(0);

    // The same bytes while the owner lives are an append under way.
    tear(&home.path(), &id, at);
    all_exit(&home.path(), &id, 0);
    drop(session);
}

#[test]
fn a_record_that_does_not_decode_costs_one_record() {
    let home = Home::new();
    let session = home.session("Bad record");
    talk(&session);
    foreign(&session, kind::SessionTagged.0, b"\xff\xff");
    session.append(Message::user("after it")).unwrap();
    let id = session.id().to_string();
    session.close().unwrap_or_else(|e| panic!("{e}"));
    all_exit(&home.path(), &id, 3);
    let events = home.run(&["events", &id, "--json"]).exits(3).json_lines();
    let last = home.run(&["events", &id, "--json", "--last", "2"]).exits(3).json_lines();
    assert_eq!(last, events[events.len() - 2..]);
    assert!(events.iter().any(|event| event["undecodable"]["verdict"] == "lost"));
    assert!(home.run(&["show", &id]).exits(3).out.contains("after it"));
}

#[test]
fn events_of_a_newer_version_are_a_warning() {
    let home = Home::new();
    let session = home.session("Newer");
    foreign(&session, 9_999, b"from the future");
    let id = session.id().to_string();
    session.close().unwrap();
    all_exit(&home.path(), &id, 1);
    let events = home.run(&["events", &id, "--json", "--kind", "9999"]).exits(1).json_lines();
    assert_eq!(events[0]["data"]["payload_hex"], "66726f6d2074686520667574757265");
    let exported = home.run(&["export", &id, "--format", "jsonl"]).exits(1);
    assert!(exported.out.contains("66726f6d2074686520667574757265"), "{}", exported.out);
}

#[test]
fn a_session_without_a_log_is_told_from_one_that_never_was() {
    let (home, id) = closed_talk();
    let file = segment(&home.path(), &id);
    fs::remove_file(&file).unwrap();
    let gone = |args: &[&str]| -> Run { home.run(args) };
    assert_eq!(gone(&["ls", "--json"]).exits(3).json()["sessions"].as_array().unwrap().len(), 1);
    gone(&["show", &id]).exits(3);
    gone(&["verify"]).exits(3);
    // The views tell that there was something: without them it looks as a crash during creation leaves it.
    for name in ["transcript.jsonl", ".meta.json", "cost.json"] {
        fs::remove_file(file.parent().unwrap().parent().unwrap().join(name)).unwrap();
    }
    gone(&["ls"]).exits(1);
    gone(&["show", &id]).exits(1);
    let verified = gone(&["verify"]).exits(1);
    assert!(verified.out.contains("did not finish"), "{}", verified.out);
}

/// Found by the fuzzer of `logdump`: `ls` called data lost that was never there, and `verify` did not.
#[test]
fn a_segment_of_a_creation_that_did_not_finish_is_no_loss_to_any_command() {
    let (home, id) = closed_talk();
    let file = segment(&home.path(), &id);
    let header = fs::read(&file).unwrap()[..128].to_vec();
    for len in [0, 1, 60, 127, 128] {
        fs::write(&file, &header[..len]).unwrap();
        home.run(&["verify", &id]).exits(2);
        home.run(&["ls"]).exits(2);
        for command in ["show", "events", "context", "open-calls", "tree", "plan", "stat"] {
            let run = home.run(&[command, &id]);
            assert!(run.code <= 2, "{command} of {len} bytes: {} {}", run.code, run.err);
        }
    }
    // What has something behind a hurt header was whole once.
    let mut hurt = header;
    (hurt[20], hurt[40]) = (0xee, 0xee);
    hurt.extend([1; 100]);
    fs::write(&file, hurt).unwrap();
    home.run(&["verify", &id]).exits(3);
    home.run(&["ls"]).exits(3);
}

#[test]
fn a_hurt_session_does_not_hide_the_others() {
    let (home, id) = closed_talk();
    let other = home.session("Other");
    other.append(Message::user("The other one")).unwrap();
    let other_id = other.id().to_string();
    other.close().unwrap();
    // The segment's header: nothing of this session can be trusted.
    let file = segment(&home.path(), &id);
    let mut bytes = fs::read(&file).unwrap();
    bytes[10..60].fill(0xee);
    fs::write(&file, bytes).unwrap();
    let listed = home.run(&["ls", "--json"]).exits(3).json();
    let rows = listed["sessions"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().find(|row| row["id"] == id.as_str()).unwrap()["issue"].is_string());
    assert!(rows.iter().find(|row| row["id"] == other_id.as_str()).unwrap()["issue"].is_null());
    assert!(home.run(&["show", &other_id]).exits(0).out.contains("The other one"));
    home.run(&["show", &id]).exits(3);
    home.run(&["open-calls"]).exits(3);
    let verified = home.run(&["verify", "--json"]).exits(3).json();
    assert_eq!(verified["verdict"], "lost");
    assert_eq!(verified["sessions"].as_array().unwrap().len(), 2);
}
