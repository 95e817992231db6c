//! What a person decides: what became of an unknown call, and where a conversation goes on from.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic"
)]
#![cfg(unix)]

mod cli_support;

use std::path::Path;

use cli_support::trees::{CHILD, PLAIN, crashed, growing};
use cli_support::{Home, Run, flip, logdump, segment, snapshot};
use serde_json::{Value, json};
use sessionlog::codec::event::{CheckpointReferenced, Effect, FinalStatus, TurnOutcome};
use sessionlog::codec::ids::NodeId;
use sessionlog::{CallResult, Message, Session};

/// Runs a command on a session: `{}` is its id, `_` a space within an argument.
fn run(home: &Path, id: &str, line: &str) -> Run {
    let words: Vec<String> = line.split(' ').map(|it| it.replace("{}", id).replace('_', " ")).collect();
    logdump(home, &words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn names(calls: &Value) -> Vec<(&str, &str)> {
    let calls = calls.as_array().unwrap().iter();
    calls.map(|it| (it["name"].as_str().unwrap(), it["state"].as_str().unwrap())).collect()
}

fn context(home: &Path, id: &str, node: u32) -> Vec<String> {
    let shown = run(home, id, &format!("context {{}} --node {node} --json")).exits(0).json();
    let text = |message: &Value| {
        let content = &message["content"];
        content.as_str().or_else(|| content[0]["text"].as_str()).unwrap_or_default().to_owned()
    };
    shown["messages"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn an_unknown_outcome_is_settled_once() {
    let (home, session) = growing(&PLAIN);
    let id = session.id().to_string();
    let copy = crashed(&home);
    let before = snapshot(&copy);
    let listed = run(&copy, &id, "resolve {} --json").exits(0).json();
    // `read` only reads, so it is run again; `tag` and `notify` were not started.
    assert_eq!(names(&listed["unknown_calls"]), [("consult", "delegated"), ("deploy", "started")]);
    let human = run(&copy, &id, "resolve {}").exits(0);
    assert!(human.out.contains("opening the session records it as unknown first"), "{}", human.out);
    assert!(human.err.contains("--outcome succeeded|failed|cancelled|not-started"), "{}", human.err);

    let wanted = "resolve {} c2 --outcome succeeded --text It_is_live. --note I_looked.";
    let dry = run(&copy, &id, &format!("{wanted} --dry-run")).exits(0);
    for part in ["deploy · 3.1 · c2 · node 1 · external", "“It is live.”", "On opening, first:", "dry run"]
    {
        assert!(dry.out.contains(part), "{part}\n{}", dry.out);
    }
    let planned = run(&copy, &id, &format!("{wanted} --dry-run --json")).exits(0).json();
    assert_eq!((&planned["done"], &planned["position"]), (&json!(false), &Value::Null));
    assert_eq!(snapshot(&copy), before, "a dry run changes no byte");

    let done = run(&copy, &id, &format!("{wanted} --json")).exits(0).json();
    assert_eq!(
        (&done["done"], &done["outcome"], &done["call"]["state"]),
        (&json!(true), &json!("succeeded"), &json!("started"))
    );
    assert_eq!(done["on_opening"], planned["on_opening"], "the preview is what happened");
    let resolved = run(&copy, &id, "events {} --kind call.resolved --json").exits(0).json_lines();
    assert_eq!((resolved.len(), &resolved[0]["position"]), (1, &done["position"]));
    assert_eq!(resolved[0]["data"]["resolver"], "person");
    assert_eq!(resolved[0]["data"]["note"], "I looked.");
    assert!(context(&copy, &id, 1).contains(&"It is live.".to_owned()));
    assert!(context(&copy, &id, 1).iter().all(|text| !text.contains("`deploy`")));

    let again = run(&copy, &id, "resolve {} 3.1 --node 1 --outcome failed --text x").exits(4);
    assert!(again.err.contains("has its result: succeeded"), "{}", again.err);
    run(&copy, &id, "verify {}").exits(0);
    // What was owed is owed still.
    let plan = run(&copy, &id, "plan {} --json").exits(0).json();
    let words: Vec<&Value> = plan["steps"].as_array().unwrap().iter().map(|step| &step["step"]).collect();
    assert_eq!(words, ["rerun_pure", "resume_child", "continue_turn"]);
}

#[test]
fn a_call_has_to_be_named_so_that_one_is_meant() {
    let (home, session) = growing(&PLAIN);
    let id = session.id().to_string();
    let copy = crashed(&home);
    let text = "--outcome not-started --text no";
    let both = run(&copy, &id, &format!("resolve {{}} 3.1 {text}")).exits(4);
    assert!(both.err.contains("[call.ambiguous]") && both.err.contains("--node"), "{}", both.err);
    assert!(both.err.contains("consult") && both.err.contains("deploy"), "{}", both.err);
    for (name, says) in
        [("nobody", "those there are: consult"), ("3.2", "was not started"), ("9.9", "consult")]
    {
        let wrong = run(&copy, &id, &format!("resolve {{}} {name} {text}")).exits(4);
        assert!(wrong.err.contains(says), "{name} {}", wrong.err);
    }
    let pure = run(&copy, &id, &format!("resolve {{}} 3.2 --node 1 {text}")).exits(4);
    assert!(pure.err.contains("only reads"), "{}", pure.err);
    let dry = run(&copy, &id, &format!("resolve {{}} 3.1 --node 0 {text} --dry-run --json")).exits(0).json();
    assert_eq!((&dry["call"]["name"], &dry["outcome"]), (&json!("consult"), &json!("not_started")));
    for wrong in
        ["3.1", "3.1 --outcome failed", "--outcome failed --text x", "3.1 --outcome unknown --text x"]
    {
        run(&copy, &id, &format!("resolve {{}} {wrong}")).exits(4);
    }
    let blank = run(&copy, &id, "resolve {} c2 --outcome failed --text _").exits(4);
    assert!(blank.err.contains("what the model is to be shown"), "{}", blank.err);
    let quiet = Home::new();
    let id = quiet.session("Nothing").id().to_string();
    assert!(quiet.run(&["resolve", &id]).exits(0).err.contains("no call has an unknown outcome"));
}

#[test]
fn a_finished_session_stays_finished_when_a_call_is_settled() {
    let home = Home::new();
    let session = home.session("Done");
    let id = session.id().to_string();
    let asked = session.append(Message::assistant("").call("c1", "deploy", "{}")).unwrap();
    let running = session.start_call(asked.call(0), Effect::External).unwrap();
    running.finish(CallResult::unknown("Nobody knows.")).unwrap();
    session.finish(FinalStatus::Completed).unwrap();
    run(&home.path(), &id, "resolve {} 1.0 --outcome cancelled --text Stopped.").exits(0);
    assert_eq!(home.run(&["stat", &id, "--json"]).exits(0).json()["status"], "completed");
    assert_eq!(context(&home.path(), &id, 0).last().unwrap(), "Stopped.");
}

/// Three turns; the second one changed the world, and has a checkpoint.
fn turns(session: &Session) {
    for turn in ["one", "two", "three"] {
        session.start_turn().unwrap();
        session.append(Message::user(format!("do {turn}"))).unwrap();
        if turn == "two" {
            let asked = session.append(Message::assistant("").call("w", "write", "{}")).unwrap();
            let running = session.start_call(asked.call(0), Effect::Mutating).unwrap();
            running.finish(CallResult::succeeded("written")).unwrap();
        }
        session.append(Message::assistant(format!("did {turn}"))).unwrap();
        session.end_turn(TurnOutcome::Completed).unwrap();
        let checkpoint = CheckpointReferenced {
            id: format!("commit-{turn}"),
            before: None,
            touched_files: if turn == "two" { vec!["src/\u{1b}[2Jlib.rs".into()] } else { Vec::new() },
            message_no: None,
            note: String::new(),
            invocation: None,
        };
        session.reference_checkpoint(NodeId::ROOT, checkpoint).unwrap();
    }
}

fn three_turns() -> (Home, String) {
    let home = Home::new();
    let session = home.session("Turns");
    turns(&session);
    let id = session.id().to_string();
    session.close().unwrap();
    (home, id)
}

#[test]
fn a_rewind_says_what_leaves_and_what_is_not_undone() {
    let (home, id) = three_turns();
    let path = home.path();
    let before = snapshot(&path);
    let whole = context(&path, &id, 0);
    let dry = run(&path, &id, "rewind {} --to-turn 2 --dry-run").exits(0);
    for part in [
        "Leaves the context: 5 messages",
        "#3 user “do two”",
        "is not undone:\n  write · 4.0 · w · node 0 · mutating, succeeded",
        "to be restored by the host: commit-one",
        "  src/\\u{1b}[2Jlib.rs",
        "Nothing was changed",
    ] {
        assert!(dry.out.contains(part), "{part}\n{}", dry.out);
    }
    let planned = run(&path, &id, "rewind {} --to-turn 2 --dry-run --json").exits(0).json();
    assert_eq!(planned["leaves"], json!([3, 4, 5, 6, 7]));
    assert_eq!(planned["effects"][0]["outcome"], "succeeded");
    assert_eq!(planned["checkpoint"], "commit-one");
    assert_eq!(planned["touched_files"].as_array().unwrap().len(), 1);
    assert_eq!((&planned["reason"], &planned["done"]), (&json!("rewind"), &json!(false)));
    assert_eq!(snapshot(&path), before, "a dry run changes no byte");

    let done = run(&path, &id, "rewind {} --to-turn 2").exits(0);
    let undo = format!("To undo it: logdump rewind {id} --undo");
    assert!(done.out.contains(&undo), "{}", done.out);
    assert_eq!(context(&path, &id, 0), ["do one", "did one"]);
    let ends = run(&path, &id, "rewind {} --branches --json").exits(0).json();
    assert_eq!(ends["branches"].as_array().unwrap().len(), 1);
    assert_eq!(ends["branches"][0]["message_no"], 7);
    let human = run(&path, &id, "rewind {} --branches").exits(0);
    assert!(human.out.contains("#7 assistant “did three”"), "{}", human.out);

    let undone = run(&path, &id, "rewind {} --undo --json").exits(0).json();
    assert_eq!((&undone["reason"], &undone["joins"]), (&json!("undo"), &json!([3, 4, 5, 6, 7])));
    assert_eq!(context(&path, &id, 0), whole);
    // An undo is taken back by going to where the conversation stood.
    let back = undone["undo"].as_str().unwrap().strip_prefix("logdump ").unwrap();
    run(&path, &id, back).exits(0);
    assert_eq!(context(&path, &id, 0), ["do one", "did one"]);
    run(&path, &id, "verify {}").exits(0);
}

#[test]
fn every_place_can_be_gone_back_to() {
    let (home, id) = three_turns();
    let path = home.path();
    let cases =
        [("--before-message 7", 6), ("--after-message 2", 2), ("--to-start", 0), ("--to-position 4", 1)];
    let whole = context(&path, &id, 0).len();
    for (place, left) in cases {
        let done = run(&path, &id, &format!("rewind {{}} {place} --json")).exits(0).json();
        assert_eq!(context(&path, &id, 0).len(), left + usize::from(left > 5), "{place} {done}");
        run(&path, &id, "rewind {} --undo").exits(0);
        assert_eq!(context(&path, &id, 0).len(), whole, "{place}");
    }
    for (place, says) in [
        ("--to-turn 9", "turn.started"),
        ("--before-message 99", "logdump show"),
        ("--to-position 2", "logdump show"),
        ("--after-message 7", "stands at position"),
        ("--undo --node 4", "logdump tree"),
    ] {
        let wrong = run(&path, &id, &format!("rewind {{}} {place}")).exits(4);
        assert!(wrong.err.contains(says), "{place} {}", wrong.err);
    }
    for wrong in ["", " --undo --to-start", " --branches --dry-run", " --to-turn x"] {
        run(&path, &id, &format!("rewind {{}}{wrong}")).exits(4);
    }
}

#[test]
fn a_message_that_was_taken_back_is_said_again() {
    let home = Home::new();
    let session = home.session("Withdrawn");
    let id = session.id().to_string();
    session.append(Message::user("first")).unwrap();
    let said = session.append(Message::user("second")).unwrap();
    session.withdraw(NodeId::ROOT, said.message_no, "a slip").unwrap();
    session.close().unwrap();
    let path = home.path();
    assert_eq!(context(&path, &id, 0), ["first"]);
    let dry = run(&path, &id, "rewind {} --undo --dry-run --json").exits(0).json();
    assert_eq!((&dry["said_again"], &dry["to"]), (&json!(2), &Value::Null));
    let done = run(&path, &id, "rewind {} --undo").exits(0);
    assert!(done.out.contains("is said again"), "{}", done.out);
    assert_eq!(context(&path, &id, 0), ["first", "second"]);
    assert!(run(&path, &id, "rewind {} --undo").exits(4).err.contains("nothing to undo"));
    assert!(
        done.out.contains(&format!("To undo it: logdump rewind {id} --before-message 3")),
        "{}",
        done.out
    );
    run(&path, &id, "rewind {} --before-message 3").exits(0);
    assert_eq!(context(&path, &id, 0), ["first"]);
}

#[test]
fn a_crashed_tree_is_rewound_and_its_children_are_cancelled() {
    let (home, session) = growing(&PLAIN);
    let id = session.id().to_string();
    let copy = crashed(&home);
    let dry = run(&copy, &id, "rewind {} --before-message 3 --dry-run --json").exits(0).json();
    assert_eq!(
        dry["children"],
        json!([
            { "node": 1, "agent": "fixer", "standing": "running" },
            { "node": 2, "agent": "oracle", "standing": "running" },
        ])
    );
    let done = run(&copy, &id, "rewind {} --before-message 3 --json").exits(0).json();
    assert_eq!(done["on_opening"], dry["on_opening"]);
    let plan = run(&copy, &id, "plan {} --json").exits(0).json();
    let words: Vec<&Value> = plan["steps"].as_array().unwrap().iter().map(|step| &step["step"]).collect();
    assert!(words.contains(&&json!("cancel")), "{words:?}");
    let child = run(&copy, &id, "rewind {} --node 1 --to-start --json").exits(0).json();
    assert_eq!(child["node"], 1);
    assert!(child["undo"].as_str().unwrap().ends_with("--undo --node 1"));
    assert_eq!(context(&copy, &id, CHILD.0), Vec::<String>::new());
    run(&copy, &id, "verify {}").exits(0);
}

#[test]
fn what_somebody_owns_is_looked_at_and_left_alone() {
    let (home, session) = growing(&PLAIN);
    let id = session.id().to_string();
    let path = home.path();
    let before = snapshot(&path);
    let decisions = ["resolve {} c2 --outcome failed --text x", "rewind {} --to-start"];
    for line in decisions {
        for flags in ["", " --json", " --dry-run", " --dry-run --json"] {
            let refused = run(&path, &id, &format!("{line}{flags}")).exits(5);
            let pid = format!("process {}", std::process::id());
            assert!(
                refused.err.contains("its owner is running") && refused.err.contains(&pid),
                "{}",
                refused.err
            );
            if flags.contains("dry-run") {
                assert!(!refused.out.is_empty(), "{line}{flags}");
            }
        }
    }
    for line in ["resolve {}", "rewind {} --branches"] {
        run(&path, &id, line).exits(0);
    }
    assert_eq!(snapshot(&path), before);
    drop(session);
    for line in decisions {
        run(&path, &id, line).exits(0);
    }
}

#[test]
fn a_damaged_log_is_not_decided_about() {
    let (home, session) = growing(&PLAIN);
    let id = session.id().to_string();
    let copy = crashed(&home);
    flip(&segment(&copy, &id), "fixed");
    for line in ["resolve {} c2 --outcome failed --text x", "rewind {} --to-start"] {
        let bytes = std::fs::read(segment(&copy, &id)).unwrap();
        let shown = run(&copy, &id, &format!("{line} --dry-run")).exits(3);
        assert!(!shown.out.is_empty());
        let refused = run(&copy, &id, line).exits(3);
        assert!(refused.err.contains("error:") && refused.err.contains("logdump verify"), "{}", refused.err);
        assert_eq!(std::fs::read(segment(&copy, &id)).unwrap(), bytes, "{line}");
    }
}

#[test]
fn a_fork_begins_with_the_history_and_leaves_the_other_one_alone() {
    let (home, session) = growing(&PLAIN);
    let id = session.id().to_string();
    let last = session.last().0;
    let live = home.path();
    let before = snapshot(&live);
    let dry = run(&live, &id, "fork {} --dry-run --json").exits(0).json();
    assert_eq!((dry["at"].as_u64(), dry["session"].is_null()), (Some(last), true));
    assert!(run(&live, &id, "fork {} --dry-run").exits(0).out.contains("would not notice"));
    assert_eq!(snapshot(&live), before, "a dry run changes nothing");

    // While the other one is owned, by its head and by a position.
    let fork = run(&live, &id, "fork {} --title The_other_way --json").exits(0).json();
    let new = fork["session"].as_str().unwrap().to_owned();
    assert_eq!(fork["at"].as_u64(), Some(last));
    let rows = run(&live, &id, "ls --roots --json").json();
    let row = rows["sessions"].as_array().unwrap().iter().find(|row| row["id"] == new.as_str()).unwrap();
    assert_eq!(
        (row["title"].as_str(), row["forked_from"]["session"].as_str()),
        (Some("The other way"), Some(&*id))
    );
    assert!(run(&live, &id, "ls").out.contains("forked from"));
    // What was under way stays with the other one: the fork owes nothing to anybody.
    let plan = run(&live, &new, "plan {} --json").exits(0).json();
    let words =
        plan["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap().to_owned());
    let words: Vec<String> = words.collect();
    assert!(words.iter().all(|it| !it.contains("start") || it == "mark_not_started"), "{words:?}");
    run(&live, &new, "verify {}").exits(0);
    let early = run(&live, &id, "fork {} --at 3 --json").exits(0).json();
    assert_eq!(early["at"].as_u64(), Some(3));
    let inside = run(&live, &id, "fork {} --at 4").exits(4);
    assert!(inside.err.contains("fork at position 3 or 5"), "{}", inside.err);
    let behind = run(&live, &id, "fork {} --at 9999").exits(4);
    assert!(behind.err.contains("the log ends at position"), "{}", behind.err);
    let source: Vec<_> =
        snapshot(&live).into_iter().filter(|(path, _)| format!("{path:?}").contains(&id)).collect();
    let source_before: Vec<_> =
        before.into_iter().filter(|(path, _)| format!("{path:?}").contains(&id)).collect();
    assert_eq!(source, source_before, "the session that was forked is untouched");
    drop(session);
}
