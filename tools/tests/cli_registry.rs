//! Roots of all workspaces, and sessions of older agents moved in: as the command does it.

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
use std::path::{Path, PathBuf};

use cli_support::{Home, command, finish, is_dangerous, logdump, snapshot};
use serde_json::{Value, json};
use sessionlog::{NewSession, Store};

const EVIL: &str = "\u{1b}]52;c;ZXZpbA==\u{7}\u{1b}[2J\u{202e}gnp\u{2028}\r";

fn session(home: &Home, workspace: &Path, goal: &str) -> String {
    fs::create_dir_all(workspace).unwrap();
    let session = home.store.create(workspace, NewSession::new(goal)).unwrap();
    let id = session.id().to_string();
    session.close().unwrap();
    id
}

fn ids(value: &Value) -> Vec<String> {
    let mut ids: Vec<_> =
        value["roots"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

#[test]
fn roots_are_listed_hidden_and_attached() {
    let home = Home::new();
    let base = home.dir.path().canonicalize().unwrap();
    let (one, two) = (base.join("one"), base.join("two"));
    let (a, b) = (session(&home, &one, "first"), session(&home, &two, "second"));
    let before = snapshot(&home.path());
    let listed = home.run(&["roots", "--json"]).exits(0).json();
    assert_eq!(listed["schema_version"], 1);
    assert_eq!((ids(&listed), &listed["issues"]), (vec![a.clone(), b.clone()], &json!([])));
    let row = &listed["roots"].as_array().unwrap().iter().find(|row| row["id"] == *a).unwrap().clone();
    assert_eq!(row["workspace"], one.to_str().unwrap());
    assert_eq!((&row["workspace_state"], &row["hidden"]), (&json!("present"), &Value::Null));

    assert_eq!(home.run(&["roots", "hide", &a, "--dry-run", "--json"]).exits(0).json()["changed"], true);
    assert_eq!(snapshot(&home.path()), before, "neither a list nor a preview writes");
    assert_eq!(
        home.run(&["roots", "hide", &a, "--reason", "old", "--json"]).exits(0).json()["changed"],
        true
    );
    assert_eq!(home.run(&["roots", "hide", &a, "--json"]).exits(0).json()["changed"], false);
    assert_eq!(ids(&home.run(&["roots", "--json"]).exits(0).json()), [b.clone()].as_slice());
    let hidden = home.run(&["roots", "--hidden", "--json"]).exits(0).json();
    assert_eq!((ids(&hidden), &hidden["roots"][0]["hidden"]["reason"]), (vec![a.clone()], &json!("old")));
    assert_eq!(ids(&home.run(&["roots", "--all", "--json"]).exits(0).json()), [a.clone(), b]);
    let human = home.run(&["roots"]).exits(0);
    assert!(human.err.contains("1 hidden root not shown"), "{}", human.err);
    home.run(&["roots", "unhide", &a]).exits(0);
    assert!(home.run(&["roots", "unhide", &a]).exits(0).out.contains("already"));

    let three = base.join("three");
    fs::rename(&one, &three).unwrap();
    let human = home.run(&["roots"]).exits(0);
    assert!(
        human.out.contains("missing") && human.err.contains("roots attach"),
        "{} {}",
        human.out,
        human.err
    );
    let (from, to) = (one.to_str().unwrap(), three.to_str().unwrap());
    let before = snapshot(&home.path());
    let planned = home.run(&["roots", "attach", from, to, "--dry-run", "--json"]).exits(0).json();
    assert_eq!(planned["sessions"], json!([{ "id": a, "from": from }]));
    assert_eq!(snapshot(&home.path()), before);
    let done = home.run(&["roots", "attach", from, to, "--json"]).exits(0).json();
    assert_eq!((&done["sessions"], &done["dry_run"]), (&planned["sessions"], &json!(false)));
    let again = home.run(&["roots", "attach", from, to, "--json"]).exits(0).json();
    assert_eq!((&again["sessions"], &again["already"]), (&json!([]), &json!(1)));
    let row = home.run(&["roots", "--json"]).exits(0).json();
    let row = row["roots"].as_array().unwrap().iter().find(|row| row["id"] == *a).unwrap().clone();
    assert_eq!((&row["workspace"], &row["workspace_state"]), (&json!(to), &json!("moved")));
    let hash = row["workspace_hash"].as_str().unwrap();
    fs::create_dir(&one).unwrap();
    home.run(&["roots", "attach", hash, from]).exits(0);
    let ls = home.run(&["ls", "--json", "--workspace", from]).exits(0).json();
    assert_eq!(ls["sessions"][0]["id"], *a);

    home.run(&["roots", "attach", "/nobody/here", to]).exits(4);
    home.run(&["roots", "attach", from, "/nobody/here"]).exits(4);
    home.run(&["roots", "hide", "nobody"]).exits(4);
    home.run(&["roots", "--all", "--hidden"]).exits(4);
    logdump(&base.join("none"), &["roots"]).exits(4);
}

#[test]
fn what_is_broken_is_a_row_and_one() {
    let home = Home::new();
    let base = home.dir.path().canonicalize().unwrap();
    let a = session(&home, &base.join("one"), "first");
    session(&home, &base.join(EVIL), EVIL);
    let log = cli_support::segment(&home.path(), &a);
    fs::write(log, "no log").unwrap();
    fs::write(home.path().join("workspaces/stray"), "").unwrap();
    let run = home.run(&["roots", "--json"]).exits(1).json();
    assert_eq!(run["roots"].as_array().unwrap().len(), 2);
    let issues = run["roots"].as_array().unwrap().iter().filter(|row| !row["issue"].is_null()).count();
    assert_eq!(issues, 1);
    assert_eq!(run["issues"][0]["place"], "workspaces/stray");
    let human = home.run(&["roots", "--all"]).exits(1);
    assert!(human.err.contains("workspaces/stray"), "{}", human.err);
    let shown = format!("{}{}", human.out, human.err);
    assert!(!shown.chars().any(is_dangerous), "{shown:?}");
    assert_eq!(human.out.lines().filter(|line| !line.starts_with("  ")).count(), 3, "{}", human.out);
}

#[test]
fn several_processes_at_once_lose_nothing() {
    let home = Home::new();
    let base = home.dir.path().canonicalize().unwrap();
    let (old, new) = (base.join("old"), base.join("new"));
    let all: Vec<_> = (0..4).map(|nth| session(&home, &old, &nth.to_string())).collect();
    fs::create_dir(&new).unwrap();
    let start = |args: &[&str]| command().arg("--home").arg(home.path()).args(args).spawn().unwrap();
    let mut running: Vec<_> = all.iter().map(|id| start(&["roots", "hide", id])).collect();
    running.push(start(&["roots", "attach", old.to_str().unwrap(), new.to_str().unwrap()]));
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    let hidden = home.run(&["roots", "--hidden", "--json"]).exits(0).json();
    assert_eq!(hidden["roots"].as_array().unwrap().len(), 4);
    let moved = |row: &Value| row["workspace"] == new.to_str().unwrap();
    assert!(hidden["roots"].as_array().unwrap().iter().all(moved));
}

/// A workspace with a session in a directory, one in a file, q's, a scratchpad, and a file that is nothing.
fn workspace(base: &Path, text: &str) -> PathBuf {
    let dir = base.join("work");
    let put = |name: &str, content: String| {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let said = json!({ "uuid": "u1", "id": "msg_001", "role": "user", "content": text, "timestamp": "2026-03-01T10:00:00Z" });
    put(".recursive/sessions/s/transcript.jsonl", format!("{said}\n"));
    let meta = json!({ "schema_version": 1, "session_id": "s", "goal": text, "model": "m", "provider": "p", "status": "completed", "name": text });
    put(".recursive/sessions/s/.meta.json", meta.to_string());
    let document = json!({ "schema_version": 1, "goal": "older", "steps_consumed": 1, "transcript": [{ "role": "user", "content": text }] });
    put(".recursive/sessions/older.json", document.to_string());
    put(".recursive/sessions/bad.json", "{".to_owned());
    put(".recursive/scratchpad.json", json!({ "entries": [text] }).to_string());
    let session = json!({ "version": 1, "run_id": "run-1", "transcript": [{ "role": "user", "content": text }], "context": [], "learning": {} });
    put(".q/session.json", session.to_string());
    dir
}

#[test]
fn older_sessions_are_planned_moved_in_and_removed() {
    let base = tempfile::tempdir().unwrap();
    let work = workspace(base.path(), "Fix it");
    let home = base.path().join("home");
    let path = work.to_str().unwrap();
    let before = snapshot(base.path());
    let planned = logdump(&home, &["migrate", path, "--dry-run", "--json"]).exits(1).json();
    assert_eq!(snapshot(base.path()), before, "no home was made either");
    assert_eq!((&planned["schema_version"], &planned["dry_run"]), (&json!(1), &json!(true)));
    let outcomes = |value: &Value| {
        let all = value["sources"].as_array().unwrap();
        all.iter().map(|row| row["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(outcomes(&planned), ["new", "new", "new", "new", "unread"]);
    let sources = snapshot(&work);
    let done = logdump(&home, &["migrate", path, "--json"]).exits(1).json();
    assert_eq!(done["sources"], planned["sources"]);
    assert_eq!(snapshot(&work), sources);
    assert_eq!(done["sources"][4]["error"].as_str().unwrap().split(':').next(), Some("is not JSON"));
    let before = snapshot(&home);
    let again = logdump(&home, &["migrate", path, "--json"]).exits(1).json();
    assert_eq!(outcomes(&again)[..4], ["unchanged"; 4]);
    assert_eq!(snapshot(&home), before);

    let preview = logdump(&home, &["migrate", path, "--remove-originals", "--dry-run"]).exits(1);
    assert!(preview.err.contains("5 files would be removed"), "{}", preview.err);
    assert_eq!(snapshot(&work), sources);
    let gone = logdump(&home, &["migrate", path, "--remove-originals", "--json"]).exits(1).json();
    let states: Vec<_> =
        gone["sources"].as_array().unwrap().iter().map(|row| &row["originals"]["state"]).collect();
    assert_eq!(states[..4], ["removed"; 4]);
    assert!(work.join(".recursive/sessions/bad.json").exists(), "what could not be read stays");
    fs::remove_file(work.join(".recursive/sessions/bad.json")).unwrap();
    logdump(&home, &["verify"]).exits(0);
    let roots = logdump(&home, &["roots", "--json"]).exits(0).json();
    assert_eq!(roots["roots"].as_array().unwrap().len(), 4);
    let canonical = work.canonicalize().unwrap();
    assert!(
        roots["roots"].as_array().unwrap().iter().all(|row| row["workspace"] == canonical.to_str().unwrap())
    );
    logdump(&home, &["migrate", path]).exits(4);
    logdump(&home, &["migrate", "/nobody/here"]).exits(4);
}

#[test]
fn hostile_sources_stay_on_their_line() {
    let base = tempfile::tempdir().unwrap();
    let work = workspace(&base.path().join(EVIL), EVIL);
    fs::write(work.join(format!(".recursive/sessions/{EVIL}.json")), "{\"a\":").unwrap();
    let home = base.path().join("home");
    for args in [vec!["--dry-run"], vec![], vec!["--remove-originals"]] {
        let mut all = vec!["migrate", work.to_str().unwrap()];
        all.extend(args);
        let run = logdump(&home, &all).exits(1);
        let shown = format!("{}{}", run.out, run.err);
        assert!(!shown.chars().any(is_dangerous), "{shown:?}");
    }
    let roots = logdump(&home, &["roots"]).exits(0);
    assert!(!format!("{}{}", roots.out, roots.err).chars().any(is_dangerous));
}

/// The process is killed as soon as it has made its first session; the next run finishes.
#[test]
fn a_killed_migration_is_finished_by_the_next_one() {
    let base = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for nth in 0..20 {
        paths.push(workspace(&base.path().join(nth.to_string()), &format!("goal {nth}")));
    }
    let home = base.path().join("home");
    let mut child =
        command().arg("--home").arg(&home).arg("migrate").arg(base.path()).arg("--json").spawn().unwrap();
    while !home.join("workspaces").is_dir() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // All of them say that they are the session `s` of their workspace, and differ.
    finish(command().arg("--home").arg(&home).arg("migrate").arg(base.path()).output().unwrap()).exits(1);
    let roots = logdump(&home, &["roots", "--json"]).exits(0).json();
    let titled = |title: &str| {
        let roots = roots["roots"].as_array().unwrap();
        roots.iter().filter(|row| row["title"] == title).count()
    };
    for nth in 0..20 {
        assert_eq!(titled(&format!("goal {nth}")), 3, "{nth}");
    }
    assert_eq!(titled("Scratchpad"), 20);
    logdump(&home, &["verify"]).exits(0);
    assert_eq!(Store::open(&home).unwrap().roots().unwrap().rows.len(), 80);
    drop(paths);
}
