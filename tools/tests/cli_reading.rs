//! Each reading command on a sound home: what it prints, as text and as JSON.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic"
)]
#![cfg(unix)]

mod cli_support;

use cli_support::{Home, command, compact, delegate, finish, price, snapshot, talk};
use serde_json::{Value, json};
use sessionlog::codec::event::{Effect, FinalStatus};
use sessionlog::{LogOptions, Message, NewSession, Store, StoreOptions};

fn home_with_one_talk() -> (Home, String) {
    let home = Home::new();
    let session = home.session("Fix it");
    let id = session.id().to_string();
    talk(&session);
    price(&session);
    compact(&session);
    session.finish(FinalStatus::Completed).unwrap();
    (home, id)
}

fn text(message: &Value) -> &str {
    message["content"][0]["text"].as_str().or_else(|| message["content"].as_str()).unwrap_or_default()
}

#[test]
fn ls_lists_roots_and_children() {
    let (home, id) = home_with_one_talk();
    let session = home.session("Second");
    session.append(Message::user("Look at\nall of this")).unwrap();
    let child = delegate(&session, "Explore the code").to_string();
    let second = session.id().to_string();
    session.close().unwrap();

    let listed = home.run(&["ls", "--json"]).exits(0).json();
    assert_eq!(listed["schema_version"], 1);
    let rows = listed["sessions"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    let keys: Vec<&str> = rows[0].as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "id",
        "display_id",
        "kind",
        "title",
        "status",
        "messages",
        "created_at",
        "last_activity",
        "parent",
        "forked_from",
        "root",
        "node",
        "model",
        "workspace",
        "agent",
        "bytes",
        "issue",
    ];
    assert_eq!(keys, expected);
    let row = |id: &str| rows.iter().find(|row| row["id"] == id).unwrap();
    assert_eq!(row(&id)["title"], "Fix the parser");
    assert_eq!(row(&id)["status"], "completed");
    assert_eq!(row(&id)["messages"], 6);
    assert_eq!(row(&id)["kind"], "root");
    assert_eq!(row(&id)["issue"], Value::Null);
    assert!(row(&id)["created_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(row(&second)["status"], "idle");
    assert_eq!(row(&child)["kind"], "child");
    assert_eq!(row(&child)["parent"], second.as_str());
    assert_eq!(row(&child)["root"], second.as_str());
    assert_eq!(row(&child)["node"], 1);
    assert_eq!(row(&child)["agent"], "explorer");

    let roots = home.run(&["ls", "--json", "--roots"]).exits(0).json();
    assert_eq!(roots["sessions"].as_array().unwrap().len(), 2);
    let done = home.run(&["ls", "--json", "--status", "completed"]).exits(0).json();
    assert_eq!(done["sessions"][0]["id"], id.as_str());
    assert_eq!(
        home.run(&["ls", "--json", "--limit", "1"]).exits(0).json()["sessions"].as_array().unwrap().len(),
        1
    );
    assert_eq!(
        home.run(&["ls", "--json", "--workspace", "/work"]).json()["sessions"].as_array().unwrap().len(),
        3
    );
    let none = home.run(&["ls", "--workspace", "/nowhere"]).exits(0);
    assert_eq!(none.out, "");
    assert!(none.err.contains("no such session"));
    assert_eq!(home.run(&["ls", "-q", "--workspace", "/nowhere"]).exits(0).err, "");

    let human = home.run(&["ls"]).exits(0);
    assert!(human.out.lines().next().unwrap().starts_with("ID "), "{}", human.out);
    assert!(human.out.contains("Fix the parser"), "{}", human.out);
    assert!(human.out.contains("└ Explore the code (delegated to explorer by"), "{}", human.out);
    assert!(!human.out.contains('\u{1b}'));
}

#[test]
fn show_prints_the_transcript() {
    let (home, id) = home_with_one_talk();
    let human = home.run(&["show", &id]).exits(0);
    for part in ["Fix the parser", "user #2", "Why does the test fail?", "→ read({\"path\":\"src/lib.rs\"})"]
    {
        assert!(human.out.contains(part), "{part}\n{}", human.out);
    }
    assert!(human.out.contains("line 12 of the file"), "{}", human.out);
    assert!(!human.out.contains("line 13 of the file"));
    assert!(human.out.contains("28 more lines"));
    assert!(human.out.contains("the context was compacted from 900 to 80 tokens"));
    assert!(home.run(&["show", &id, "--full"]).exits(0).out.contains("line 40 of the file"));
    assert!(home.run(&["show", &id, "--lines", "1"]).exits(0).out.contains("39 more lines"));

    let shown = home.run(&["show", "--json", &id]).exits(0).json();
    assert_eq!(shown["schema_version"], 1);
    assert_eq!(shown["session"], id.as_str());
    assert_eq!(shown["node"], 0);
    let messages = shown["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "assistant"]);
    assert_eq!(messages[2]["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!(messages[3]["tool_call_id"], "call_1");
    assert!(messages.iter().all(|message| !message["content"].is_null()));
    assert_eq!(shown["marks"].as_array().unwrap().len(), 1);
    assert_eq!(shown["marks"][0]["type"], "compaction");
    assert!(shown["marks"][0]["position"].as_u64().is_some());
    assert_eq!(shown["health"]["verdict"], "clean");

    let last = home.run(&["show", "--json", &id, "--last", "2"]).exits(0).json();
    assert_eq!((last["messages"].as_array().unwrap().len(), last["marks"].as_array().unwrap().len()), (1, 1));
    let position = messages[1]["position"].as_u64().unwrap().to_string();
    let page = home.run(&["show", "--json", &id, "--after", &position, "--limit", "2"]).exits(0).json();
    assert_eq!(page["messages"].as_array().unwrap(), &messages[2..4]);
}

#[test]
fn a_child_is_shown_by_its_invocation_id() {
    let home = Home::new();
    let session = home.session("Root");
    let id = session.id().to_string();
    let child = delegate(&session, "Explore").to_string();
    session.close().unwrap();
    let shown = home.run(&["show", "--json", &child]).exits(0).json();
    assert_eq!((&shown["session"], &shown["node"]), (&json!(id), &json!(1)));
    assert_eq!(shown["messages"].as_array().unwrap().len(), 2);
    let shown = home.run(&["context", "--json", &child[..9]]).exits(0).json();
    assert_eq!(shown["messages"].as_array().unwrap().len(), 2);
    assert!(home.run(&["show", &child]).exits(0).out.contains(&format!("delegated in session {id}")));
    let events = home.run(&["events", "--json", &child]).exits(0).json_lines();
    assert!(events.iter().all(|event| event["node"] == 1));
    assert_eq!(home.run(&["stat", "--json", &child]).exits(0).json()["records"], 2);
    let exported = home.run(&["export", &child, "--format", "seed"]).exits(0);
    assert_eq!(exported.out.lines().count(), 2);
}

#[test]
fn events_are_lines() {
    let (home, id) = home_with_one_talk();
    let all = home.run(&["events", &id, "--json"]).exits(0).json_lines();
    for (index, event) in all.iter().enumerate() {
        assert_eq!(event["schema_version"], 1);
        assert_eq!(event["position"], index + 1);
        assert!(event["time"].as_str().unwrap().ends_with('Z'));
        assert!(!event["data"].is_null());
    }
    assert_eq!(all[0]["event"], "session.created");
    assert_eq!(all.last().unwrap()["event"], "session.closed");

    let calls =
        home.run(&["events", &id, "--json", "--kind", "call.started", "--kind", "31"]).exits(0).json_lines();
    assert_eq!(calls.len(), 4);
    let some = home.run(&["events", &id, "--from", "3", "--limit", "2"]).exits(0);
    assert_eq!(some.out.lines().count(), 2);
    assert!(some.out.lines().next().unwrap().trim_start().starts_with("3 "), "{}", some.out);
    assert!(some.out.contains("session.titled"), "{}", some.out);
    let raw = home.run(&["events", &id, "--json", "--raw", "--limit", "1"]).exits(0).json_lines();
    assert_eq!(raw[0]["kind"], 1);
    assert!(raw[0]["payload_hex"].as_str().unwrap().len() > 32);
    assert!(home.run(&["events", &id, "--raw", "--limit", "1"]).exits(0).out.contains("000000"));
    assert_eq!(home.run(&["events", &id, "--from", "999999"]).exits(0).out, "");
    let wrong = home.run(&["events", &id, "--kind", "call.begun"]).exits(4);
    assert!(wrong.err.contains("call.started"), "{}", wrong.err);
    home.run(&["events", &id, "--from", "-1"]).exits(4);
    for count in [0, 1, 3, all.len(), 1000] {
        let last = home.run(&["events", &id, "--json", "--last", &count.to_string()]).exits(0).json_lines();
        assert_eq!(last, all[all.len().saturating_sub(count)..], "the last {count}");
    }
    let last_calls = ["events", &id, "--json", "--kind", "call.started", "--kind", "31", "--last", "3"];
    assert_eq!(home.run(&last_calls).exits(0).json_lines(), calls[1..]);
    let first_of_all = ["events", &id, "--json", "--kind", "session.created", "--last", "1"];
    assert_eq!(home.run(&first_of_all).exits(0).json_lines(), all[..1]);
    home.run(&["events", &id, "--last", "1", "--from", "2"]).exits(4);
}

#[test]
fn context_is_what_the_model_is_sent_at_any_position() {
    let (home, id) = home_with_one_talk();
    let now = home.run(&["context", &id, "--json"]).exits(0).json();
    assert_eq!(now["schema_version"], 1);
    let messages = now["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 3, "{now}");
    assert_eq!(text(&messages[1]), "We looked for a failing test.");
    assert_eq!(messages[1]["synthetic"], "summary");

    let started = home.run(&["events", &id, "--json", "--kind", "call.started"]).json_lines();
    let at = started[0]["position"].as_u64().unwrap().to_string();
    let then = home.run(&["context", &id, "--json", "--at", &at]).exits(0).json();
    let messages = then["messages"].as_array().unwrap();
    assert_eq!(then["at"].as_u64().unwrap().to_string(), at);
    assert_eq!(messages.len(), 5);
    assert_eq!(messages[3]["synthetic"], "outcome_unknown");
    assert_eq!(messages[4]["synthetic"], "not_run");
    let human = home.run(&["context", &id, "--at", &at]).exits(0);
    assert!(human.out.contains("made up: outcome unknown"), "{}", human.out);
    assert!(home.run(&["context", &id]).exits(0).out.contains("summary of what came before"));
}

#[test]
fn open_calls_are_told_apart() {
    let home = Home::new();
    let quiet = home.run(&["open-calls"]).exits(0);
    assert_eq!(quiet.out, "");
    let session = home.session("Root");
    let id = session.id().to_string();
    let asked =
        session.append(Message::assistant("").call("a", "read", "{}").call("b", "deploy", "{}")).unwrap();
    let _running = session.start_call(asked.call(1), Effect::External).unwrap();
    let open = home.run(&["open-calls", "--json"]).exits(0).json();
    assert_eq!(open["schema_version"], 1);
    let calls = open["open_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2);
    assert_eq!((&calls[0]["name"], &calls[0]["state"]), (&json!("read"), &json!("not_started")));
    assert_eq!((&calls[1]["name"], &calls[1]["state"]), (&json!("deploy"), &json!("started")));
    assert_eq!(calls[1]["started"]["effect"], "external");
    assert_eq!(calls[1]["owner_alive"], true);
    assert_eq!(calls[1]["session"], id.as_str());
    let human = home.run(&["open-calls", &id[..20]]).exits(0);
    assert!(human.out.contains("it may be running"), "{}", human.out);
    drop(_running);
    session.close().unwrap();
    let human = home.run(&["open-calls", &id]).exits(0);
    assert!(human.out.contains("look before it is repeated"), "{}", human.out);
    assert!(human.out.contains("not started: it did nothing"), "{}", human.out);
}

#[test]
fn stat_counts() {
    let (home, id) = home_with_one_talk();
    let stat = home.run(&["stat", &id, "--json"]).exits(0).json();
    assert_eq!(stat["schema_version"], 1);
    assert_eq!(stat["title"], "Fix the parser");
    assert_eq!(stat["epoch"], 1);
    assert_eq!(stat["owner_alive"], false);
    assert_eq!(stat["compactions"], 1);
    assert_eq!(stat["segments"], 1);
    assert_eq!(stat["events"]["message.appended"], 4);
    assert_eq!(stat["usage"]["cache_read"], 50);
    assert_eq!(stat["usage"]["cost_nano_usd"], 12_500_000);
    assert_eq!(stat["records"], stat["last_position"]);
    assert_eq!(stat["nodes"].as_array().unwrap().len(), 1);
    let human = home.run(&["stat", &id]).exits(0);
    for part in ["$0.0125", "cache read   50", "message.appended", "nobody now; the last one was process"] {
        assert!(human.out.contains(part), "{part}\n{}", human.out);
    }
}

#[test]
fn verify_finds_nothing_wrong() {
    let (home, id) = home_with_one_talk();
    let verified = home.run(&["verify", "--json"]).exits(0).json();
    assert_eq!(verified["verdict"], "clean");
    assert_eq!(verified["sessions"][0]["id"], id.as_str());
    assert_eq!(verified["sessions"][0]["findings"], json!([]));
    assert!(home.run(&["verify", &id]).exits(0).out.contains("ok"));
}

#[test]
fn export_in_every_format_to_a_pipe_and_to_a_file() {
    let (home, id) = home_with_one_talk();
    let seed = home.run(&["export", &id, "--format", "seed"]).exits(0);
    let view = segment_sibling(&home, &id, "transcript.jsonl");
    assert_eq!(seed.out, view, "the export and the view beside the log are one");
    let recursive = home.run(&["export", &id, "--format", "recursive"]).exits(0);
    assert!(recursive.out.contains("compact_boundary"));
    let events = home.run(&["export", &id, "--format", "jsonl"]).exits(0);
    assert!(events.json_lines().len() > 10);
    let markdown = home.run(&["export", &id, "--format", "markdown"]).exits(0);
    assert!(markdown.out.starts_with("# Fix the parser"));

    let file = home.dir.path().join("out.md");
    let name = file.to_str().unwrap();
    let wrote =
        home.run(&["export", &id, "--format", "markdown", "--output", name, "--json"]).exits(0).json();
    assert_eq!(wrote["file"], name);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), markdown.out);
    assert_eq!(wrote["bytes"], markdown.out.len());
    let again = home.run(&["export", &id, "--format", "seed", "-o", name]).exits(4);
    assert!(again.err.contains("--force"), "{}", again.err);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), markdown.out);
    home.run(&["export", &id, "--format", "seed", "-o", name, "--force"]).exits(0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), seed.out);

    let before = snapshot(&home.path());
    let inside = cli_support::segment(&home.path(), &id);
    home.run(&["export", &id, "--format", "seed", "--force", "-o", inside.to_str().unwrap()]).exits(4);
    home.run(&["export", &id, "--format", "seed", "-o", home.path().join("x").to_str().unwrap()]).exits(4);
    assert_eq!(snapshot(&home.path()), before);
    home.run(&["export", &id, "--format", "seed", "-o", "/nowhere/at/all"]).exits(6);
    home.run(&["export", &id, "--format", "docx"]).exits(4);
    home.run(&["export", &id]).exits(4);
}

fn segment_sibling(home: &Home, id: &str, name: &str) -> String {
    let segment = cli_support::segment(&home.path(), id);
    std::fs::read_to_string(segment.parent().unwrap().parent().unwrap().join(name)).unwrap()
}

#[test]
fn ids_may_be_short_or_readable() {
    let (home, id) = home_with_one_talk();
    let other = home.session("Other");
    let other_id = other.id().to_string();
    other.close().unwrap();
    let display = home.run(&["stat", &id, "--json"]).json()["display_id"].as_str().unwrap().to_owned();
    let upper = id.to_uppercase();
    for name in [&id[..], &id[..35], &upper] {
        assert_eq!(home.run(&["stat", name, "--json"]).exits(0).json()["id"], id.as_str(), "{name}");
    }
    let common = id.chars().zip(other_id.chars()).take_while(|(a, b)| a == b).count();
    let ambiguous = home.run(&["show", &id[..common]]).exits(4);
    assert!(ambiguous.err.contains(&id) && ambiguous.err.contains(&other_id), "{}", ambiguous.err);
    let by_display = home.run(&["stat", &display, "--json"]);
    assert!(by_display.code == 0 || by_display.err.contains("ids"), "two sessions may share a second");
}

#[test]
fn help_and_version_are_for_everybody() {
    let help = finish(command().arg("--help").output().unwrap()).exits(0);
    assert!(help.out.contains("Exit codes") && help.out.contains("open-calls"));
    assert_eq!(help.err, "");
    let version = finish(command().arg("--version").output().unwrap()).exits(0);
    assert!(version.out.starts_with("logdump "));
    let names = "ls show events context open-calls tree plan resolve rewind stat verify export import demo";
    for command_name in names.split(' ') {
        finish(command().args([command_name, "--help"]).output().unwrap()).exits(0);
    }
    for wrong in
        [&["frobnicate"][..], &[], &["ls", "--limit", "many"], &["ls", "--status", "tired"], &["show"]]
    {
        let run = finish(command().args(wrong).output().unwrap()).exits(4);
        assert_eq!(run.out, "");
        assert_ne!(run.err, "");
    }
}

#[test]
fn colour_is_only_for_those_who_want_it() {
    let (home, id) = home_with_one_talk();
    let path = home.path();
    let run = |configure: &dyn Fn(&mut std::process::Command)| {
        let mut show = command();
        show.arg("--home").arg(&path).args(["show", &id]);
        configure(&mut show);
        finish(show.output().unwrap()).exits(0).out
    };
    let has_color = |text: &str| text.contains('\u{1b}');
    assert!(!has_color(&run(&|_| {})));
    assert!(!has_color(&run(&|it| {
        it.env("NO_COLOR", "1");
    })));
    assert!(has_color(&run(&|it| {
        it.arg("--color=always");
    })));
    assert!(!has_color(&run(&|it| {
        it.arg("--color=never").env("CLICOLOR_FORCE", "1");
    })));
}

/// What the model is sent now is read from the end of a log, what it was sent at a position from all of it: of the last
/// position, both are the same.
#[test]
fn the_context_now_is_the_one_at_the_end() {
    let home = Home::new();
    let log = LogOptions { segment_len: 4096, fill_len: 512 };
    let store = Store::open_with(home.path(), StoreOptions { log, ..StoreOptions::default() }).unwrap();
    let session = store.create(home.workspace(), NewSession::new("Long").model("model-1")).unwrap();
    let id = session.id().to_string();
    for turn in 0..6 {
        talk(&session);
        if turn == 3 {
            compact(&session);
        }
        for is_json in [false, true] {
            let flags: &[&str] = if is_json { &["--json"] } else { &[] };
            let now = home.run(&[&["context", &id], flags].concat()).exits(0);
            let last = store.reader().session(session.id()).unwrap().log().mark().unwrap().unwrap();
            let last = (last.next.0 - 1).to_string();
            let then = home.run(&[&["context", &id, "--at", &last], flags].concat()).exits(0);
            assert_eq!(now.out, then.out);
        }
    }
    session.close().unwrap();
    let log = store.reader().session(id.parse().unwrap()).unwrap().place().dir.join("log");
    assert!(std::fs::read_dir(log).unwrap().count() > 3);
}
