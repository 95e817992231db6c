//! Artifacts from the command line: found, looked into, checked, put, collected.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic"
)]
#![cfg(unix)]

mod cli_support;

use std::fs;
use std::path::PathBuf;

use cli_support::{Home, is_dangerous, snapshot};
use serde_json::Value;
use sessionlog::codec::event::Effect;
use sessionlog::codec::ids::Digest;
use sessionlog::{CallResult, Message, Session};

/// A session one of whose results is an artifact of 5,000 lines.
fn with_artifact() -> (Home, Session, String) {
    let home = Home::new();
    let session = home.session("Run it");
    let asked = session.append(Message::assistant("").call("c", "run", "{}")).unwrap();
    let long: String = (1..=5_000).map(|number| format!("row {number} \u{1b}[31m{{}}\n")).collect();
    let digest = Digest::of(long.as_bytes()).to_string();
    session.start_call(asked.call(0), Effect::Pure).unwrap().finish(CallResult::succeeded(long)).unwrap();
    (home, session, digest)
}

fn blob(home: &Home, session: &Session, digest: &str) -> PathBuf {
    let workspace = home.path().join("workspaces").join(session.place().workspace.as_str());
    workspace.join("artifacts").join(&digest[..2]).join(digest)
}

#[test]
fn an_artifact_is_found_by_its_session_and_by_its_first_digits() {
    let (home, session, digest) = with_artifact();
    let id = session.id().to_string();
    let before = snapshot(&home.path());
    let listed = home.run(&["artifact", "ls", &id, "--json"]).exits(0).json();
    let named = &listed["artifacts"][0];
    assert_eq!((&named["digest"], &named["state"]), (&Value::from(digest.clone()), &Value::from("whole")));
    assert_eq!(home.run(&["artifact", "ls", "--json"]).exits(0).json()["artifacts"][0]["digest"], digest);
    let human = home.run(&["artifact", "ls", &id]).exits(0).out;
    assert!(human.contains(&digest[..16]) && human.contains("whole"), "{human}");
    assert!(!human.chars().any(is_dangerous));
    let shown = home.run(&["artifact", "show", &digest[..8], "--json"]).exits(0).json();
    assert_eq!((shown["digest"].as_str(), shown["state"].as_str()), (Some(&*digest), Some("whole")));
    assert!(home.run(&["artifact", "show", &digest]).exits(0).out.contains("whole"));
    let two = home.run(&["artifact", "slice", &digest[..4], "--lines", "7-8"]).exits(0);
    assert_eq!(two.out, "row 7 \u{1b}[31m{}\nrow 8 \u{1b}[31m{}\n", "a pipe is given what is there");
    assert!(two.err.contains("--lines 9- goes on"), "{}", two.err);
    let bytes =
        home.run(&["artifact", "slice", &digest, "--offset", "4", "--len", "3", "--json"]).exits(0).json();
    assert_eq!((bytes["content"].as_str(), bytes["next_offset"].as_u64()), (Some("1 \u{1b}"), Some(7)));
    let found = home.run(&["artifact", "grep", &digest, "^row 49+ ", "--json"]).exits(0).json();
    assert_eq!((found["total"].as_u64(), found["lines"][1]["number"].as_u64()), (Some(3), Some(499)));
    assert_eq!(
        home.run(&["artifact", "grep", &digest, "^row 4999 "]).exits(0).out,
        "4999:row 4999 \u{1b}[31m{}\n"
    );
    assert_eq!(snapshot(&home.path()), before, "reading changes nothing");
    for wrong in [
        vec!["artifact", "show", "dead"],
        vec!["artifact", "show", "xyzzy"],
        vec!["artifact", "grep", &digest, "("],
        vec!["artifact", "get", &digest, "/a"],
        vec!["artifact", "slice", &digest, "--len", "999999999"],
        vec!["artifact", "ls", "--workspace", "/nowhere"],
        vec!["artifact", "ls", "nobody"],
    ] {
        home.run(&wrong).exits(4);
    }
}

#[test]
fn a_hurt_or_missing_artifact_is_told_and_nothing_of_it_is_printed() {
    let (home, session, digest) = with_artifact();
    let id = session.id().to_string();
    session.close().unwrap();
    home.run(&["verify", &id]).exits(0);
    home.run(&["doctor"]).exits(0);
    let session = id;
    let path = blob_of(&home, &digest);
    let mut bytes = fs::read(&path).unwrap();
    bytes[40_000] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let hurt = home.run(&["artifact", "slice", &digest]).exits(3);
    assert_eq!(hurt.out, "");
    assert!(hurt.err.contains("artifact.damaged") && hurt.err.contains(&digest), "{}", hurt.err);
    assert_eq!(
        home.run(&["artifact", "ls", &session, "--json"]).exits(3).json()["artifacts"][0]["state"],
        "hurt"
    );
    let verified = home.run(&["verify", &session, "--json"]).exits(3).json();
    assert_eq!(verified["sessions"][0]["findings"][0]["code"], "artifact.damaged");
    fs::remove_file(&path).unwrap();
    let verified = home.run(&["verify", &session]).exits(3);
    assert!(
        verified.out.contains("artifact.missing") && verified.out.contains("the session goes on"),
        "{}",
        verified.out
    );
    let doctor = home.run(&["doctor"]).exits(3);
    assert!(doctor.out.contains("session.artifacts"), "{}", doctor.out);
    assert!(!doctor.out.contains("session.damaged"), "{}", doctor.out);
    home.run(&["show", &session]).exits(0);
}

fn blob_of(home: &Home, digest: &str) -> PathBuf {
    let mut dirs = vec![home.path().join("workspaces")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().is_some_and(|name| name == digest) {
                return path;
            }
            if path.is_dir() {
                dirs.push(path);
            }
        }
    }
    panic!("there is no {digest}")
}

#[test]
fn what_nothing_names_is_collected_after_a_preview() {
    let (home, session, digest) = with_artifact();
    let file = home.dir.path().join("report.json");
    fs::write(&file, r#"{"a": [1, {"b": "two"}]}"#).unwrap();
    let (file, workspace) = (file.display().to_string(), home.workspace().display().to_string());
    let before = snapshot(&home.path());
    let args = [
        "artifact",
        "put",
        &file,
        "--workspace",
        &workspace,
        "--kind",
        "report",
        "--type",
        "application/json",
    ];
    let previewed = home.run(&[&args[..], &["--dry-run"]].concat()).exits(0).out;
    assert_eq!(snapshot(&home.path()), before);
    let put = home.run(&args).exits(0).out;
    assert_eq!(put, previewed);
    let put = put.trim();
    assert_eq!(home.run(&["artifact", "get", put, "/a/1/b"]).exits(0).out, "\"two\"\n");
    let shown = home.run(&["artifact", "show", put, "--json"]).exits(0).json();
    assert_eq!(
        (shown["kind"].as_str(), shown["media_type"].as_str()),
        (Some("report"), Some("application/json"))
    );

    let young = home.run(&["gc", "--json"]).exits(0).json();
    assert_eq!(young["workspaces"][0]["kept"]["grace"]["count"], 1);
    let before = snapshot(&home.path());
    let preview = home.run(&["gc", "--grace", "0", "--dry-run", "--json"]).exits(0).json();
    assert_eq!(snapshot(&home.path()), before, "a preview changes nothing");
    assert_eq!(preview["workspaces"][0]["dropped"][0]["digest"], put);
    let done = home.run(&["gc", "--grace", "0", "--workspace", &workspace]).exits(0);
    assert!(
        done.out.contains(&format!("gone: {put}")) && done.out.contains("named by a session"),
        "{}",
        done.out
    );
    home.run(&["artifact", "show", put]).exits(4);
    home.run(&["artifact", "show", &digest]).exits(0);
    assert!(blob(&home, &session, &digest).is_file());
    home.run(&["gc", "--grace", "soon"]).exits(4);
    home.run(&["gc", "--workspace", "/nowhere"]).exits(4);

    // A log that is hurt may name anything.
    let id = session.id().to_string();
    session.close().unwrap();
    let segment = cli_support::segment(&home.path(), &id);
    cli_support::flip(&segment, "Run it");
    let refused = home.run(&["gc", "--grace", "0"]).exits(3);
    assert!(refused.err.contains("gc.log_hurt") && refused.err.contains(&id), "{}", refused.err);
    assert!(blob_of(&home, &digest).is_file());
}

#[test]
fn a_repaired_session_has_its_artifacts() {
    let (home, session, digest) = with_artifact();
    let id = session.id().to_string();
    session.append(Message::user("the last words, which are hurt")).unwrap();
    session.close().unwrap();
    cli_support::flip(&cli_support::segment(&home.path(), &id), "the last words");
    let before = snapshot(&home.path());
    let copy = home.dir.path().join("copy");
    home.run(&["repair", &id, "--to", &copy.display().to_string()]).exits(3);
    assert_eq!(snapshot(&home.path()), before, "the hurt home is not touched");
    let listed = cli_support::logdump(&copy, &["artifact", "ls", &id, "--json"]).exits(0).json();
    assert_eq!(listed["artifacts"][0]["state"], "whole");
    cli_support::logdump(&copy, &["artifact", "slice", &digest, "--lines", "1"]).exits(0);
}
