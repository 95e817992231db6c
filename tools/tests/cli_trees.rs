//! Trees of agents: what there is, what is owed, what each model is sent; and the demo, which shows all of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic"
)]
#![cfg(unix)]

mod cli_support;

use cli_support::trees::{CHILD, PLAIN, Words, crashed, growing};
use cli_support::{Home, command, finish, flip, is_dangerous, logdump, segment, snapshot};
use serde_json::{Value, json};
use sessionlog::codec::RawBytes;
use sessionlog::codec::event::{NewEvent, Part, ReplayAttached};
use sessionlog::{Durability, Message, Store};

const EVIL: &str =
    "\u{1b}]52;c;ZXZpbA==\u{7}\u{1b}[2J\u{9b}31m\n     3  \u{202e}gnp\u{2066}\u{2028}\r\u{7f}\0";
/// A number that no reader of JSON keeps.
const HUGE: &str = "12345678901234567890123";

fn all<'a>(rows: &'a Value, key: &str) -> Vec<&'a Value> {
    rows.as_array().unwrap().iter().map(|row| &row[key]).collect()
}

#[test]
fn a_tree_says_who_delegated_what_and_how_far_it_got() {
    let (home, session) = growing(&PLAIN);
    let id = session.id().to_string();
    let before = snapshot(&home.path());
    let live = home.run(&["tree", &id, "--json"]).exits(0).json();
    assert_eq!(live["schema_version"], 1);
    assert_eq!(live["owner_alive"], true);
    assert_eq!(live["nodes"][0]["standing"], "running");
    assert_eq!(snapshot(&home.path()), before);

    let copy = crashed(&home);
    let tree = logdump(&copy, &["tree", &id, "--json"]).exits(0).json();
    let nodes = &tree["nodes"];
    assert_eq!(all(nodes, "node"), [0, 1, 2]);
    assert_eq!(all(nodes, "kind"), ["root", "inner", "external"]);
    assert_eq!(all(nodes, "standing"), ["crashed", "running", "running"]);
    assert_eq!(all(nodes, "depth"), [0, 1, 1]);
    assert_eq!(all(nodes, "parent"), [&Value::Null, &json!(0), &json!(0)]);
    assert_eq!(all(nodes, "rounds"), [1, 1, 0]);
    assert_eq!(all(nodes, "messages"), [3, 4, 0]);
    assert_eq!(all(nodes, "open_calls"), [3, 3, 0]);
    assert_eq!(nodes[0]["usage"]["cache_read"], 20);
    assert_eq!(nodes[1]["prompt"], "Fix the login test.");
    assert_eq!(
        nodes[1]["call"],
        json!({ "message_no": 3, "tool_index": 0, "call_id": "d1", "name": "delegate" })
    );
    let human = logdump(&copy, &["tree", &id]).exits(0);
    for part in ["└ fixer (inner)", "└ oracle (external)", "3.1", "“Fix the login test.”", "crashed"]
    {
        assert!(human.out.contains(part), "{part}\n{}", human.out);
    }

    let opened = logdump(&copy, &["events", &id, "--json", "--kind", "node.opened"]).exits(0).json_lines();
    let at = (opened[0]["position"].as_u64().unwrap() - 1).to_string();
    let then = logdump(&copy, &["tree", &id, "--json", "--at", &at]).exits(0).json();
    assert_eq!(
        (all(&then["nodes"], "node"), &then["at"]),
        (vec![&json!(0)], &json!(at.parse::<u64>().unwrap()))
    );
    assert_eq!(then["nodes"][0]["standing"], "running", "its owner of then was there");
    let child = nodes[1]["id"].as_str().unwrap();
    let below = logdump(&copy, &["tree", child, "--json"]).exits(0).json();
    assert_eq!(all(&below["nodes"], "node"), [1]);
    logdump(&copy, &["tree", "nobody"]).exits(4);
}

#[test]
fn a_plan_is_what_the_next_owner_does() {
    let (home, session) = growing(&PLAIN);
    let id = session.id().to_string();
    let before = snapshot(&home.path());
    let live = home.run(&["plan", &id]).exits(0);
    assert!(live.out.contains("what would be done if it died now"), "{}", live.out);
    assert_eq!(home.run(&["plan", &id, "--json"]).exits(0).json()["owner_alive"], true);
    assert_eq!(snapshot(&home.path()), before);

    let copy = crashed(&home);
    let plan = logdump(&copy, &["plan", &id, "--json"]).exits(0).json();
    assert_eq!(plan["owner_alive"], false);
    let steps = &plan["steps"];
    let words = ["report_unknown", "rerun_pure", "resume_child", "settle_unknown", "continue_turn"];
    assert_eq!(all(steps, "step"), words);
    assert_eq!(all(steps, "needs"), ["nobody", "tool", "agent", "nobody", "agent"]);
    assert_eq!(all(steps, "ready"), [true, true, false, true, false]);
    assert_eq!(steps[0]["call"], json!({ "node": 1, "message_no": 3, "tool_index": 1 }));
    assert_eq!(steps[2]["owed"]["calls"][0]["name"], "notify");
    assert_eq!(steps[4]["owed"]["calls"][0]["name"], "tag");
    let human = logdump(&copy, &["plan", &id]).exits(0);
    for part in ["nobody owns it now", "Node 1 goes on where it stood.", "“notify · 3.3 · c4 · node 1”"]
    {
        assert!(human.out.contains(part), "{part}\n{}", human.out);
    }

    let (resumed, report) = Store::open(&copy).unwrap().resume(session.id()).unwrap();
    let mut done: Vec<&str> = report.settled.iter().chain(&report.owed).map(|step| step.word()).collect();
    done.sort_unstable();
    let mut planned = words.to_vec();
    planned.sort_unstable();
    assert_eq!(done, planned);
    drop(resumed);

    let quiet = Home::new();
    let session = quiet.session("Nothing to do");
    let id = session.id().to_string();
    session.close().unwrap();
    assert!(quiet.run(&["plan", &id]).exits(0).out.contains("the session rests"));
    assert_eq!(quiet.run(&["plan", &id, "--json"]).exits(0).json()["steps"], json!([]));
}

#[test]
fn hostile_requests_stay_on_their_line() {
    let words = Words { agent: EVIL, prompt: EVIL, description: Some(EVIL) };
    let (home, session) = growing(&words);
    let id = session.id().to_string();
    let copy = crashed(&home);
    for line in [
        "tree {}",
        "plan {}",
        "resolve {}",
        "resolve {} c2 --outcome failed --text x --dry-run",
        "rewind {} --to-start --dry-run",
        "rewind {} --node 1 --to-start --dry-run",
        "context {} --node 1 --render anthropic",
        "context {} --node 1",
        "context {} --node \u{1b}[2J",
    ] {
        for flag in ["", " --json"] {
            let line = format!("{line}{flag}").replace("{}", &id);
            let run = logdump(&copy, &line.split(' ').collect::<Vec<_>>());
            assert!(!run.out.contains(is_dangerous), "{line:?}\n{}", run.out);
            assert!(!run.err.contains(is_dangerous), "{line:?}\n{}", run.err);
        }
    }
    let human = logdump(&copy, &["tree", &id]).exits(0);
    let table: Vec<&str> = human.out.lines().skip_while(|line| !line.starts_with("NODE")).collect();
    assert_eq!(table.len(), 4, "a heading and three conversations\n{}", human.out);
    let tree = logdump(&copy, &["tree", &id, "--json"]).exits(0).json();
    assert_eq!(tree["nodes"][1]["agent"], EVIL);
}

#[test]
fn a_damaged_tree_still_shows_what_is_there() {
    let (home, session) = growing(&PLAIN);
    let id = session.id().to_string();
    let copy = crashed(&home);
    // The first place of the agent's name is the bookmark of its conversation.
    flip(&segment(&copy, &id), "fixer");
    let run = logdump(&copy, &["tree", &id, "--json"]).exits(3);
    let tree = run.json();
    assert_eq!(tree["health"]["verdict"], "lost");
    assert_eq!(all(&tree["nodes"], "node"), [0, 2, 1]);
    assert_eq!(tree["nodes"][2]["kind"], "lost");
    assert_eq!(tree["nodes"][2]["standing"], "unreadable");
    assert_eq!(tree["nodes"][2]["messages"], 4);
    assert!(run.err.contains("logdump verify"), "{}", run.err);
    assert!(logdump(&copy, &["tree", &id]).exits(3).out.contains("└ lost"));
    assert_eq!(logdump(&copy, &["plan", &id, "--json"]).exits(3).json()["health"]["verdict"], "lost");
    let context = logdump(&copy, &["context", &id, "--node", "1", "--json"]).exits(3).json();
    assert_eq!(context["messages"].as_array().unwrap().len(), 7);
}

#[test]
fn a_context_is_that_of_the_node_that_was_named() {
    let (home, session) = growing(&PLAIN);
    let id = session.id().to_string();
    let tree = home.run(&["tree", &id, "--json"]).exits(0).json();
    let child = tree["nodes"][1]["id"].as_str().unwrap();
    let by_id = home.run(&["context", child, "--json"]).exits(0).json();
    assert_eq!(by_id["node"], 1);
    for name in ["1", child, &child[..30]] {
        let named = home.run(&["context", &id, "--node", name, "--json"]).exits(0).json();
        assert_eq!(named, by_id, "{name}");
    }
    assert_eq!(home.run(&["context", child, "--node", "0", "--json"]).exits(0).json()["node"], 0);
    let missing = home.run(&["context", &id, "--node", "9"]).exits(4);
    assert!(missing.err.contains("logdump tree"), "{}", missing.err);
    let human = home.run(&["context", &id, "--node", "1"]).exits(0);
    assert!(human.out.contains(&format!("delegated in session {id}")), "{}", human.out);
}

#[test]
fn a_rendering_is_what_the_provider_is_sent() {
    let (home, session) = growing(&PLAIN);
    let id = session.id().to_string();
    let odd = Message::user("").part(Part::Raw(r#"{"type":"odd"}"#.into())).part(Part::text("Look."));
    session.append_to(CHILD, odd).unwrap();
    session
        .append_to(CHILD, Message::assistant("").call("c9", "count", format!("{{\"n\":{HUGE}}}")))
        .unwrap();
    let said = session.append_to(CHILD, Message::assistant("Done.").model("model-9")).unwrap();
    let item = r#"{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":
        [{"type":"output_text","text":"Done.","annotations":[]}]}"#;
    let items = vec![RawBytes(item.into())];
    let (model, api_mode) = ("model-9".to_owned(), "responses".to_owned());
    let attached = ReplayAttached { message_no: said.message_no, model, api_mode, items };
    session.append_batch(vec![NewEvent::now(CHILD, attached)], Durability::Sync).unwrap();
    for (api, key) in [("chat", "messages"), ("anthropic", "messages"), ("responses", "input")] {
        let run = home.run(&["context", &id, "--node", "1", "--render", api]).exits(0);
        let body: Value = serde_json::from_str(&run.out).unwrap();
        assert!(!body[key].as_array().unwrap().is_empty(), "{api} {body}");
        assert!(run.out.contains("Fix the login test."), "{api}");
        assert!(run.err.contains("left out at position"), "{api} {}", run.err);
        assert_eq!(home.run(&["context", &id, "--node", "1", "--render", api, "-q"]).exits(0).err, "");
        let shown = home.run(&["context", &id, "--node", "1", "--render", api, "--json"]).exits(0).json();
        assert_eq!((&shown["api"], &shown["model"], &shown["body"]), (&json!(api), &json!("model-9"), &body));
        assert_eq!(shown["broken_rule"], Value::Null);
        assert!(!shown["dropped"].as_array().unwrap().is_empty(), "{shown}");
    }
    let exact = home.run(&["context", &id, "--node", "1", "--render", "anthropic", "--json"]).exits(0);
    assert!(exact.out.contains(&format!("\"input\":{{\"n\":{HUGE}}}")), "{}", exact.out);
    // The provider's own items go back to the model that made them, and to no other one.
    let count = |model: &str| {
        let args = ["context", &id, "--node", "1", "--render", "responses", "--model", model, "--json"];
        let shown = home.run(&args).exits(0).json();
        shown["dropped"].as_array().unwrap().iter().filter(|it| it["what"] == "replay_items").count()
    };
    assert_eq!((count("model-9"), count("model-1")), (0, 1));
    let chat = home.run(&["context", &id, "--render", "chat", "--at", "1"]).exits(0);
    assert!(chat.err.contains("the context is empty at this position"), "{}", chat.err);
    home.run(&["context", &id, "--render", "morse"]).exits(4);
    home.run(&["context", &id, "--model", "model-9"]).exits(4);
}

#[test]
fn the_demo_kills_a_tree_and_brings_it_back() {
    let temp = tempfile::tempdir().unwrap();
    let demo = |args: &[&str]| {
        finish(command().env("TMPDIR", temp.path()).arg("demo").args(args).output().unwrap()).exits(0)
    };
    let human = demo(&[]);
    assert!(human.out.lines().count() < 60, "{}", human.out);
    for part in ["`deploy` was running", "settle_unknown", "node 1: notify ran", "The session is completed."]
    {
        assert!(human.out.contains(part), "{part}\n{}", human.out);
    }
    let played = demo(&["--json"]).json();
    assert_eq!(played["effects"], json!({ "ask oracle": 1, "deploy": 1, "fix_test": 1, "notify": 1 }));
    assert_eq!(played["status"], "completed");
    assert_eq!(played["after_kill"]["status"], "crashed");
    assert_eq!(all(&played["after_kill"]["tree"], "standing"), ["crashed", "running", "running"]);
    assert_eq!(all(&played["tree"], "standing"), ["completed", "completed", "unknown"]);
    assert_eq!(all(&played["plan"], "step")[0], "report_unknown");
    assert_eq!(played["recovery"]["unknown_calls"], json!([{ "id": "call_2", "name": "deploy" }]));
    let nodes: Vec<String> = played["work"].as_array().unwrap().iter().map(|it| it.to_string()).collect();
    assert!(nodes.iter().is_sorted_by_key(|line| std::cmp::Reverse(&line[..7])), "{nodes:?}");
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "it leaves nothing behind");

    let kept = demo(&["--keep", "--json"]);
    let home = kept.json()["home"].as_str().unwrap().to_owned();
    assert!(kept.err.contains(&home), "{}", kept.err);
    logdump(home.as_ref(), &["verify"]).exits(0);
}
