//! What is learned: shown, searched, switched and removed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic"
)]
#![cfg(unix)]

mod cli_support;

use cli_support::{Home, is_dangerous, snapshot};
use sessionlog::codec::event::{NewEvent, PropositionKind, TaskCompleted};
use sessionlog::codec::ids::NodeId;
use sessionlog::learning::Lesson;
use sessionlog::library::{JudgeError, Question};
use sessionlog::projections::learning::{Draft, Proposition};
use sessionlog::{Durability, LearnOptions, Librarian, Message, Session, Thinker, Thought, Verdict};

const EVIL: &str = "\u{1b}]52;c;ZXZpbA==\u{7}\u{1b}[2J\u{9b}31m\u{202e}gnp\u{2028}\r\u{7f}";

struct Says(String);

impl Thinker for Says {
    fn next(&mut self, lesson: &Lesson<'_>) -> Result<Thought, JudgeError> {
        if !lesson.registered.is_empty() {
            return Ok(Thought::Done);
        }
        let draft = Draft {
            kind: PropositionKind::Workflow,
            content: self.0.clone(),
            queries: vec![],
            tags: vec![format!("tag{EVIL}")],
            refs: vec![],
            confidence: 0.75,
            extractor_model: "m".to_owned(),
            extractor_version: "1".to_owned(),
        };
        Ok(Proposition::new(draft)?.into())
    }
}

struct Yes;

impl Librarian for Yes {
    fn judge(&mut self, _: &Question) -> Result<Verdict, JudgeError> {
        Ok(Verdict::create("new"))
    }
}

struct Down;

impl Librarian for Down {
    fn judge(&mut self, _: &Question) -> Result<Verdict, JudgeError> {
        Err(format!("down {EVIL}").into())
    }
}

fn talk(session: &Session) {
    session.append(Message::user("Run the tests.")).unwrap();
    let task = TaskCompleted {
        outcome: "completed".into(),
        summary: "They run.".into(),
        findings: vec![],
        artifacts: vec![],
        verification: None,
        blocker: None,
        report: None,
    };
    session.append_batch(vec![NewEvent::now(NodeId::ROOT, task)], Durability::Sync).unwrap();
}

fn options() -> LearnOptions {
    LearnOptions::tokens(100_000)
}

#[test]
fn status_queue_and_library_say_how_far_it_is() {
    let home = Home::new();
    let session = home.session("try");
    let id = session.id().to_string();
    talk(&session);
    let before = snapshot(&home.path());
    let status = home.run(&["learn", "status", &id, "--json"]).exits(0).json();
    assert_eq!(status["schema_version"], 1);
    let row = &status["sessions"][0];
    assert_eq!((&row["learning"], &row["closable"], &row["segments"]), (&"on".into(), &1.into(), &0.into()));
    assert_eq!(home.run(&["learn", "library", "--json"]).exits(0).json()["total"], 0);
    assert!(home.run(&["learn", "queue"]).exits(0).err.contains("nothing waits"));
    assert_eq!(snapshot(&home.path()), before, "looking changes nothing");

    session.learn(options(), &mut Says(format!("Start the database. {EVIL}")), &mut Down).unwrap_err();
    let queue = home.run(&["learn", "queue", "--json"]).exits(0).json();
    assert_eq!(queue["segments"][0]["begun"], true);
    assert_eq!(queue["segments"][0]["boundary"], "task_complete");
    assert_eq!(queue["propositions"][0]["standing"], "submitted");
    assert_eq!(queue["propositions"][0]["attempts"], 1);
    let human = home.run(&["learn", "queue"]).exits(0);
    assert!(human.out.contains("is worked on") && human.out.contains("1 attempt failed"), "{}", human.out);
    assert!(!human.out.chars().any(is_dangerous), "{:?}", human.out);

    session.learn(options(), &mut Says("x".to_owned()), &mut Yes).unwrap();
    let status = home.run(&["learn", "status"]).exits(0);
    assert!(
        status.out.contains("1 segment learned") && status.out.contains("0 segments wait"),
        "{}",
        status.out
    );
    let found = home.run(&["learn", "library", "--search", "database", "--json"]).exits(0).json();
    assert_eq!(found["entries"][0]["kind"], "workflow");
    assert!(found["entries"][0]["score"].as_f64().unwrap() > 0.9);
    let human = home.run(&["learn", "library"]).exits(0);
    assert!(
        human.out.contains("Start the database.") && human.out.contains("confidence 0.75"),
        "{}",
        human.out
    );
    assert!(!human.out.chars().any(is_dangerous), "{:?}", human.out);
    assert!(home.run(&["learn", "library", "--search", "weather"]).exits(0).err.contains("no entry"));

    let entry = found["entries"][0]["id"].as_str().unwrap();
    let before = snapshot(&home.path());
    let dry = home.run(&["learn", "remove", entry, "--dry-run"]).exits(0);
    assert!(dry.out.contains("Nothing was changed"), "{}", dry.out);
    assert_eq!(snapshot(&home.path()), before);
    assert_eq!(home.run(&["learn", "remove", entry, "--json"]).exits(0).json()["done"], true);
    assert!(home.run(&["learn", "remove", entry]).exits(4).err.contains("removed already"));
    assert_eq!(home.run(&["learn", "library", "--json"]).exits(0).json()["total"], 0);
}

#[test]
fn a_workspace_is_switched_off_and_on() {
    let home = Home::new();
    let session = home.session("try");
    let id = session.id().to_string();
    let workspace = home.workspace().display().to_string();
    let before = snapshot(&home.path());
    let dry = home.run(&["learn", "off", "--workspace", &workspace, "--dry-run"]).exits(0);
    assert!(dry.out.contains("would be off") && dry.out.contains("1 session"), "{}", dry.out);
    assert_eq!(snapshot(&home.path()), before);
    let off = home.run(&["learn", "off", "--workspace", &workspace, "--json"]).exits(0).json();
    assert_eq!((&off["done"], &off["sessions"]), (&true.into(), &1.into()));
    talk(&session);
    let status = home.run(&["learn", "status", &id, "--json"]).exits(0).json();
    let row = &status["sessions"][0];
    assert_eq!((&row["learning"], &row["closable"]), (&"off".into(), &0.into()));
    assert!(home.run(&["learn", "off", "--workspace", &workspace]).exits(0).out.contains("already"));
    home.run(&["learn", "on", "--workspace", &workspace]).exits(0);
    let status = home.run(&["learn", "status", &id, "--json"]).exits(0).json();
    let row = &status["sessions"][0];
    assert_eq!(
        (&row["learning"], &row["closable"], &row["waiting"]["messages"]),
        (&"on".into(), &0.into(), &0.into())
    );
    talk(&session);
    let status = home.run(&["learn", "status", &id, "--json"]).exits(0).json();
    assert_eq!(status["sessions"][0]["closable"], 1);
}

#[test]
fn wrong_requests_are_refused() {
    let home = Home::new();
    home.run(&["learn", "status", "nobody"]).exits(4);
    home.run(&["learn", "on"]).exits(4);
    home.run(&["learn"]).exits(4);
    home.run(&["learn", "library", "--search", "x", "--recency", "2"]).exits(4);
    home.run(&["learn", "remove", "prop-0"]).exits(4);
    assert!(home.run(&["learn", "status"]).exits(0).err.contains("no session"));
    let missing = home.dir.path().join("none");
    cli_support::logdump(&missing, &["learn", "on", "--workspace", "."]).exits(4);
    assert!(!missing.exists());
}
