//! Content, names and places that mean harm.

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
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

use cli_support::{Home, command, delegate, finish, foreign, is_dangerous, logdump, snapshot, talk};
use sessionlog::codec::event::{Effect, HostEvent, Part, TitleOrigin};
use sessionlog::{CallResult, Message};

const EVIL: &str = "\u{1b}]52;c;ZXZpbA==\u{7}\u{1b}[2J\u{9b}31m\u{202e}gnp\u{2066}\u{200f}\u{61c}\u{2028}\u{feff}\r\u{7f}\u{90}x\u{9c}\0";

/// Every reading command on a session.
fn reading(id: &str) -> Vec<Vec<String>> {
    let lines = [
        "ls",
        "show {} --full",
        "show {}",
        "events {}",
        "events {} --raw",
        "context {}",
        "open-calls",
        "open-calls {}",
        "context {} --render chat",
        "context {} --render responses",
        "context {} --render anthropic",
        "tree {}",
        "plan {}",
        "resolve {}",
        "learn status {}",
        "search --no-index --all-workspaces --newest",
        "stat {}",
        "verify",
        "verify {}",
    ];
    let words = |line: &str| line.split(' ').map(|word| word.replace("{}", id)).collect::<Vec<_>>();
    let human = lines.iter().map(|line| words(line));
    let json = lines.iter().map(|line| words(&format!("{line} --json")));
    human.chain(json).collect()
}

fn run(home: &Home, args: &[String]) -> cli_support::Run {
    home.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn evil_home() -> (Home, String) {
    let home = Home::new();
    let session = home.session(EVIL);
    let id = session.id().to_string();
    session.set_title(format!("title {EVIL}"), TitleOrigin::Person).unwrap();
    session.tag(vec![EVIL.into()], vec![]).unwrap();
    session.append(Message::user(format!("{EVIL}\n{EVIL}")).model(EVIL)).unwrap();
    let asked = session
        .append(Message::assistant(EVIL).call(EVIL, EVIL, EVIL).call("second", EVIL, "{}").model(EVIL))
        .unwrap();
    session.start_call(asked.call(0), Effect::Pure).unwrap().finish(CallResult::failed(EVIL)).unwrap();
    drop(session.start_call(asked.call(1), Effect::Mutating).unwrap());
    session.append(Message::user("").part(Part::Raw(EVIL.into()))).unwrap();
    let event = HostEvent { namespace: EVIL.into(), name: EVIL.into(), data: EVIL.into(), source: None };
    session.record(event).unwrap();
    foreign(&session, 9_999, EVIL.as_bytes());
    delegate(&session, EVIL);
    session.close().unwrap();
    (home, id)
}

#[test]
fn nothing_that_a_terminal_obeys_is_printed() {
    let (home, id) = evil_home();
    for args in reading(&id) {
        let run = run(&home, &args);
        for (stream, text) in [("stdout", &run.out), ("stderr", &run.err)] {
            let bad = text.find(is_dangerous);
            assert!(bad.is_none(), "{args:?} {stream}: {:?}", bad.and_then(|at| text.get(at..)));
        }
        // Only the unknown event is odd.
        assert!(run.code <= 1, "{args:?} {}", run.err);
        assert!(!run.out.is_empty(), "{args:?}");
    }
    let listed = home.run(&["ls", "--json", "--roots"]).json();
    let title = listed["sessions"][0]["title"].as_str().unwrap().to_owned();
    assert_eq!(title, format!("title {}", EVIL.trim_end_matches('\u{0}').to_owned() + "\0"));
}

/// What is removed for good is shown before, and what is shown is content.
#[test]
fn no_list_or_preview_prints_what_a_terminal_obeys() {
    let (home, id) = evil_home();
    for args in
        [&["roots"][..], &["delete", &id], &["forget", &id], &["redact", &id, "--message", "1", "--results"]]
    {
        for run in [home.run(args), home.run(&[args, &["--json"]].concat())] {
            assert!(run.code <= 1, "{args:?} {}", run.err);
            assert!(run.out.find(is_dangerous).is_none() && run.err.find(is_dangerous).is_none(), "{args:?}");
        }
    }
}

#[test]
fn an_export_to_a_pipe_is_the_content_itself() {
    let (home, id) = evil_home();
    let seed = home.run(&["export", &id, "--format", "seed"]).exits(1);
    assert!(seed.json_lines().iter().any(|line| line["content"] == EVIL));
    for format in ["jsonl", "recursive", "markdown"] {
        home.run(&["export", &id, "--format", format]).exits(1);
    }
}

#[test]
fn ids_that_are_none_give_a_short_error() {
    let home = Home::new();
    let session = home.session("x");
    session.close().unwrap();
    let outside = home.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    let before = snapshot(home.dir.path());
    let long = "a".repeat(4096);
    let dotted = "../".repeat(1300);
    let evil = EVIL.replace('\0', "");
    let ids = [
        "",
        " ",
        ".",
        "..",
        "../../outside",
        "/etc/passwd",
        "..\\..\\x",
        "CON",
        "%2e%2e%2f",
        "*",
        "0197b4a2-7c1e-7000-8000-0123456789ab",
        "{0197b4a2-7c1e-7000-8000-0123456789ab}",
        &long,
        &dotted,
        &evil,
        "漢字🙏",
    ];
    for id in ids {
        for command_name in ["show", "events", "context", "open-calls", "stat", "verify"] {
            let run = home.run(&[command_name, "--", id]).exits(4);
            assert_eq!(run.out, "", "{id:?}");
            assert!(run.err.len() < 600, "{}", run.err);
            assert!(run.err.starts_with("logdump: error: "), "{}", run.err);
            assert!(!run.err.contains(is_dangerous), "{:?}", run.err);
        }
        home.run(&["export", "--format", "seed", "--", id]).exits(4);
    }
    assert_eq!(snapshot(home.dir.path()), before);
}

#[test]
fn arguments_are_content_too() {
    for wrong in [&["\u{1b}[31mshow"][..], &["ls", "--limit", "\u{1b}[31m\u{202e}"], &["\u{9b}"]] {
        let run = finish(command().args(wrong).output().unwrap()).exits(4);
        assert!(!run.err.contains(is_dangerous), "{:?}", run.err);
    }
    let run = logdump("/nowhere/\u{1b}[31m\u{202e}".as_ref(), &["ls"]).exits(4);
    assert!(!run.err.contains(is_dangerous), "{:?}", run.err);
}

#[test]
fn a_place_that_is_no_home_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    fs::create_dir(place("empty")).unwrap();
    fs::create_dir(place("full")).unwrap();
    fs::write(place("full").join("notes.txt"), "mine").unwrap();
    fs::write(place("file"), "a file").unwrap();
    let before = snapshot(dir.path());
    for name in ["missing", "empty", "full", "file", "missing/deeper"] {
        for args in
            [&["ls"][..], &["ls", "--json"], &["show", "x"], &["verify"], &["open-calls"], &["stat", "x"]]
        {
            let run = logdump(&place(name), args).exits(4);
            assert_eq!(run.out, "");
            assert!(run.err.contains(name.split('/').next().unwrap()), "{}", run.err);
        }
    }
    finish(command().args(["--home", "", "ls"]).output().unwrap()).exits(4);
    assert_eq!(snapshot(dir.path()), before);
}

#[test]
fn the_home_may_come_from_the_environment() {
    let home = Home::new();
    home.session("x").close().unwrap();
    let mut ls = command();
    ls.env("SESSIONLOG_HOME", home.path()).args(["ls", "--json"]);
    let listed = finish(ls.output().unwrap()).exits(0).json();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
    let mut other = command();
    other.env("SESSIONLOG_HOME", "/nowhere").arg("ls").arg("--home").arg(home.path());
    finish(other.output().unwrap()).exits(0);
}

#[test]
fn an_empty_home_is_a_home() {
    let home = Home::new();
    let listed = home.run(&["ls", "--json"]).exits(0).json();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 0);
    home.run(&["verify"]).exits(0);
    assert_eq!(home.run(&["verify", "--json"]).exits(0).json()["sessions"].as_array().unwrap().len(), 0);
    home.run(&["open-calls"]).exits(0);
}

#[test]
fn links_are_not_followed() {
    let home = Home::new();
    let session = home.session("mine");
    let sessions = session.place().dir.parent().unwrap().to_owned();
    session.close().unwrap();
    let other = Home::new();
    let foreign = other.session("foreign secret");
    foreign.append(Message::user("foreign secret")).unwrap();
    let (id, dir) = (foreign.id().to_string(), foreign.place().dir.clone());
    foreign.close().unwrap();
    symlink(&dir, sessions.join(&id)).unwrap();
    for args in reading(&id) {
        let run = run(&home, &args);
        assert!(!run.out.contains("foreign secret"), "{args:?}");
        let names_it = args.contains(&id);
        assert_eq!(run.code, if names_it { 4 } else { 0 }, "{args:?} {}", run.err);
    }
}

#[test]
fn reading_changes_nothing() {
    let home = Home::new();
    let session = home.session("read only");
    talk(&session);
    delegate(&session, "child");
    let id = session.id().to_string();
    let live = snapshot(&home.path());
    for args in reading(&id) {
        run(&home, &args).exits(0);
    }
    assert_eq!(snapshot(&home.path()), live, "while it is owned");
    session.close().unwrap();
    let closed = snapshot(&home.path());
    for args in reading(&id) {
        run(&home, &args).exits(0);
    }
    for format in ["jsonl", "seed", "recursive", "markdown"] {
        home.run(&["export", &id, "--format", format]).exits(0);
    }
    assert_eq!(snapshot(&home.path()), closed, "once it is closed");

    set_modes(&home.path(), 0o500, 0o400);
    let sealed = snapshot(&home.path());
    for args in reading(&id) {
        run(&home, &args).exits(0);
    }
    assert_eq!(snapshot(&home.path()), sealed, "where nothing may be written");
    set_modes(&home.path(), 0o700, 0o600);
}

fn set_modes(dir: &std::path::Path, dirs: u32, files: u32) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            set_modes(&path, dirs, files);
        } else {
            fs::set_permissions(&path, fs::Permissions::from_mode(files)).unwrap();
        }
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(dirs)).unwrap();
}

#[test]
fn a_session_of_a_living_process_is_readable() {
    let home = Home::new();
    let session = home.session("alive");
    talk(&session);
    let id = session.id().to_string();
    let shown = home.run(&["stat", &id, "--json"]).exits(0).json();
    assert_eq!(shown["status"], "running");
    assert_eq!(shown["owner_alive"], true);
    assert_eq!(shown["owner"]["pid"], std::process::id());
    assert!(home.run(&["verify", &id]).exits(0).out.contains("in use"));
    session.append(Message::user("still mine")).unwrap();
    assert!(home.run(&["show", &id]).exits(0).out.contains("still mine"));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let home = Home::new();
    let session = home.session("long");
    for number in 0..40 {
        session.append(Message::user(format!("{number} {}", "long text ".repeat(2_000)))).unwrap();
    }
    let id = session.id().to_string();
    session.close().unwrap();
    for args in
        [&["show", &id][..], &["events", &id, "--json"], &["export", &id, "--format", "jsonl"], &["--help"]]
    {
        let mut child = command()
            .arg("--home")
            .arg(home.path())
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let run = finish(child.wait_with_output().unwrap());
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let home = Home::new();
    home.session("x").close().unwrap();
    for args in [&["ls"][..], &["verify", "--json"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let run = finish(command().arg("--home").arg(home.path()).args(args).stdout(full).output().unwrap());
        assert_eq!(run.code, 6, "{}", run.err);
        assert!(run.err.contains("writing the output failed"), "{}", run.err);
    }
}
