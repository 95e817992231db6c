//! `logdump search`: what is found, how it is shown, and that it is the same with and without an index.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic"
)]

mod cli_support;

use cli_support::{Home, Run, snapshot, talk};
use sessionlog::Message;

fn home() -> (Home, String) {
    let home = Home::new();
    let session = home.session("Fix the parser");
    talk(&session);
    session.append(Message::user("The needle\n\u{1b}[31mis\u{1b}[0m in   the haystack.")).unwrap();
    let id = session.id().to_string();
    session.close().unwrap();
    (home, id)
}

fn search(home: &Home, args: &[&str]) -> Run {
    let workspace = home.workspace().display().to_string();
    let mut all = vec!["search", "--workspace", &workspace];
    all.extend(args);
    home.run(&all)
}

#[test]
fn what_is_found_says_where_it_is_and_how_to_read_on() {
    let (home, id) = home();
    let before = snapshot(&home.path());
    let scanned = search(&home, &["needle", "--no-index"]).exits(0);
    assert_eq!(snapshot(&home.path()), before, "--no-index changes nothing");
    let indexed = search(&home, &["needle"]).exits(0);
    assert_eq!(indexed.out, scanned.out);
    let lines: Vec<&str> = indexed.out.lines().collect();
    assert!(lines[0].starts_with(&format!("{id} position ")), "{}", lines[0]);
    assert!(lines[0].contains("message · user · submitted"), "{}", lines[0]);
    assert_eq!(lines[1], "  The »needle« \\u{1b}[31mis\\u{1b}[0m in the haystack.");
    assert!(lines[2].starts_with(&format!("  logdump show {id} --after ")), "{}", lines[2]);
    let words: Vec<&str> = lines[2].split_whitespace().skip(1).collect();
    assert!(home.run(&words).exits(0).out.contains("haystack"), "the command that is told shows it");
}

#[test]
fn as_json_for_programs() {
    let (home, id) = home();
    let found = search(&home, &["needle", "--json"]).exits(0).json();
    assert_eq!(
        (&found["schema_version"], &found["total"], &found["by"]),
        (&1.into(), &1.into(), &"index".into())
    );
    let hit = &found["hits"][0];
    assert_eq!(
        (&hit["session"], &hit["kind"], &hit["role"]),
        (&id.as_str().into(), &"message".into(), &"user".into())
    );
    assert_eq!(hit["excerpt"]["marks"], serde_json::json!([[4, 10]]));
    let record = hit["record"].as_str().unwrap();
    let whole = home.run(&["search", "--record", record, "--json"]).exits(0).json();
    assert_eq!(whole["text"], "The needle\n\u{1b}[31mis\u{1b}[0m in   the haystack.");
    assert!(home.run(&["search", "--record", record]).exits(0).out.starts_with("The needle\n\\u{1b}"));
    let scanned = search(&home, &["needle", "--json", "--no-index"]).exits(0).json();
    assert_eq!((&scanned["by"], &scanned["hits"]), (&"scan".into(), &found["hits"]));
}

#[test]
fn filters_pages_and_order() {
    let (home, id) = home();
    let count = |args: &[&str]| {
        search(&home, &[args, &["--json"]].concat()).exits(0).json()["total"].as_u64().unwrap()
    };
    let all = count(&[]);
    assert!(all > 5);
    assert_eq!(count(&["--kind", "call"]), 2);
    assert_eq!(count(&["--kind", "call", "--kind", "result"]), 4);
    assert_eq!(count(&["--tool", "run"]), 2);
    assert_eq!(count(&["--role", "system"]), 1);
    assert_eq!(count(&["--session", &id[..13]]), all);
    assert_eq!(count(&["--session", "00000000-0000-4000-8000-000000000000"]), 0);
    assert_eq!((count(&["--since", "1d"]), count(&["--until", "1d"])), (all, 0));
    let page = |args: &[&str]| search(&home, &[args, &["--json", "--newest"]].concat()).exits(0).json();
    assert_eq!(page(&["--limit", "1", "--offset", "1"])["hits"][0], page(&["--limit", "2"])["hits"][1]);
    let more = search(&home, &["--limit", "2"]).exits(0);
    assert!(more.err.contains(&format!("{all} records in all; --offset 2 shows more")), "{}", more.err);
    assert!(search(&home, &["nowhere"]).exits(0).err.contains("nothing was found"));
}

#[test]
fn a_deleted_session_is_found_in_its_archive() {
    let (home, id) = home();
    let everywhere = |home: &Home| home.run(&["search", "needle", "--all-workspaces"]).exits(0).out;
    assert!(everywhere(&home).contains("logdump show"));
    home.store.delete(id.parse().unwrap()).unwrap();
    let found = everywhere(&home);
    let command = found.lines().last().unwrap().trim();
    assert!(command.starts_with("logdump search --record "), "{found}");
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    assert!(home.run(&words).exits(0).out.contains("haystack"));
    home.store.forget(id.parse().unwrap()).unwrap();
    assert_eq!(everywhere(&home), "");
}

#[test]
fn a_wrong_request_is_said_to_be_one() {
    let (home, _) = home();
    for (args, part) in [
        (&["search", "x"][..], "--all-workspaces"),
        (&["search", "x", "--all-workspaces", "--limit", "0"], "1 to 1000"),
        (&["search", "x", "--all-workspaces", "--since", "soon"], "is no time"),
        (&["search", "x", "--all-workspaces", "--kind", "dream"], "expected one of message"),
        (&["search", "x", "--all-workspaces", "--session", "zzz"], "no session"),
        (&["search", "--record", "zzz"], "not the id of a record"),
        (&["search", "--record", "00000000-0000-4000-8000-000000000000@1"], "no record"),
    ] {
        let run = home.run(args).exits(4);
        assert!(run.err.contains(part), "{args:?}: {}", run.err);
    }
}
