//! `--follow`: on a session that grows.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic"
)]

mod cli_support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use cli_support::{Home, command};
use serde_json::Value;
use sessionlog::Message;

/// Far longer than anything takes: a line that does not come fails.
const SOON: Duration = Duration::from_secs(30);

/// The command while it runs.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(home: &Home, args: &[&str]) -> Self {
        let mut child = command()
            .arg("--home")
            .arg(home.path())
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(SOON).expect("a line comes while the command runs")
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// Lets it come to its end, and gives its exit code.
    fn end(mut self) -> Option<i32> {
        // Its output ends with it.
        while self.lines.recv_timeout(SOON).is_ok() {}
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn events_come_as_they_are_written() {
    let home = Home::new();
    let session = home.session("Fix it");
    let id = session.id().to_string();
    let running = Running::start(&home, &["events", &id, "--follow", "--json"]);
    for (position, name) in [(1, "session.created"), (2, "session.opened")] {
        let event = running.json();
        assert_eq!((&event["position"], &event["event"]), (&position.into(), &name.into()));
    }
    for position in 3..10 {
        session.append(Message::user(format!("message {position}"))).unwrap();
        let event = running.json();
        assert_eq!(event["schema_version"], 1);
        assert_eq!((&event["position"], &event["event"]), (&position.into(), &"message.appended".into()));
    }
    // It goes on over owners, and stops when it is told to. (Not by an interrupt: what runs in the background may ignore it.)
    session.close().unwrap();
    assert_eq!(running.json()["event"], "session.closed");
    let (session, _) = home.store.resume(id.parse().unwrap()).unwrap();
    assert_eq!(running.json()["event"], "session.opened");
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        let mut running = running;
        let pid = running.child.id().to_string();
        if Command::new("kill").args(["-TERM", &pid]).status().is_ok_and(|it| it.success()) {
            assert_eq!(running.child.wait().unwrap().signal(), Some(15));
        }
    }
    drop(session);
}

#[test]
fn a_transcript_grows() {
    let home = Home::new();
    let session = home.session("Fix it");
    let id = session.id().to_string();
    for text in ["one", "two", "three"] {
        session.append(Message::user(text)).unwrap();
    }
    let running = Running::start(&home, &["show", &id, "--follow", "--last", "1", "--json"]);
    assert!(running.line().contains("three"));
    for nth in 0..5 {
        session.append(Message::assistant(format!("answer {nth}"))).unwrap();
        assert!(running.line().contains(&format!("answer {nth}")));
    }
    let people = Running::start(&home, &["show", &id, "--follow"]);
    while !people.line().contains("answer 4") {}
    session.append(Message::user("Thank you.")).unwrap();
    while !people.line().contains("Thank you.") {}
}

#[test]
fn it_ends_with_enough_or_with_the_session() {
    let home = Home::new();
    let session = home.session("Fix it");
    let id = session.id().to_string();
    let enough = Running::start(&home, &["events", &id, "--follow", "--limit", "3"]);
    session.append(Message::user("one")).unwrap();
    assert_eq!(enough.end(), Some(0));
    let running = Running::start(&home, &["events", &id, "--follow", "--json"]);
    (0..3).for_each(|_| drop(running.json()));
    let dir = session.place().dir.clone();
    session.close().unwrap();
    running.json();
    std::fs::remove_dir_all(dir).unwrap();
    assert_eq!(running.end(), Some(0));
}
