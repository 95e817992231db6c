//! Logs of hosts as q's session files.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(clippy::cast_possible_wrap, reason = "of small numbers")]

mod support;

use serde_json::{Value, json};
use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_projections::views;
use sessionlog_projections::views::q::{
    DelegationsFile, PlanFile, QError, QFile, QTree, SUMMARY_NAME, SessionFile, StateFile,
};
use support::*;

const CHILD: NodeId = NodeId(1);

fn files(log: &Log) -> Vec<(String, Value)> {
    let tree = QTree::fold(&log.events);
    let written = |file: &QFile| {
        let mut bytes = Vec::new();
        tree.write(file, &mut bytes).unwrap();
        (file.path.join("/"), serde_json::from_slice(&bytes).unwrap())
    };
    tree.files().iter().map(written).collect()
}

fn file(log: &Log, name: &str) -> Value {
    let found = files(log).into_iter().find(|(path, _)| path.ends_with(name));
    found.map(|(_, value)| value).unwrap_or_default()
}

fn delegating(number: u64, id: &str) -> MessageAppended {
    let mut asked = message(number, Role::Assistant, "", &[]);
    asked.parts = Vec::new();
    asked.tool_calls = vec![tool_call(id, "delegate", "{}")];
    asked
}

fn child(number: u32, call: CallRef) -> NodeOpened {
    NodeOpened {
        invocation_id: InvocationId([u8::try_from(number).unwrap(); 16]),
        ..node_opened(number, 0, Some(call))
    }
}

fn settled(status: NodeStatus) -> NodeSettled {
    NodeSettled { status, reason: None, parts: vec![Part::text("done")] }
}

/// What is said in the small session, as both of its lists have it.
const MESSAGES: &str = r#"[
    {
      "role": "user",
      "content": [
        {
          "kind": "text",
          "text": "Is 1 \u003c 2 \u0026 2 \u003e 1?"
        }
      ]
    },
    {
      "role": "assistant",
      "tool_calls": [
        {
          "id": "tc_1",
          "type": "function",
          "name": "Read",
          "arguments": "{}"
        }
      ]
    },
    {
      "role": "tool",
      "content": [
        {
          "kind": "text",
          "text": "yes"
        }
      ],
      "name": "Read",
      "tool_call_id": "tc_1"
    }
  ]"#;

/// The whole file, byte for byte.
#[test]
fn a_small_session() {
    let mut log = Log::new();
    log.add(message(1, Role::System, "Be brief.", &[]));
    log.add(message(2, Role::User, "Is 1 < 2 & 2 > 1?", &[]));
    let mut asked = message(3, Role::Assistant, "", &["tc_1"]);
    asked.parts = vec![Part::Reasoning(Reasoning { text: "hm".into(), form: ReasoningForm::Plain })];
    log.add(asked);
    log.add(CallFinished { call_id: "tc_1".into(), ..finished(call(3, 0), "yes") });
    log.add(TaskStarted {
        objective: "Count.".into(),
        completion_criteria: Vec::new(),
        started_at: Timestamp(START),
    });
    let tree = QTree::fold(&log.events);
    let files = tree.files();
    assert_eq!(files.len(), 1);
    let mut bytes = Vec::new();
    tree.write(&files[0], &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let stream = text.split("\"stream_id\": \"").nth(1).unwrap().get(..24).unwrap();
    assert!(stream.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let expected = format!(
        r#"{{
  "version": 2,
  "id": "{id}",
  "run_id": "run-{id}",
  "updated_at": "2026-05-28T03:41:42Z",
  "transcript": {MESSAGES},
  "context": {MESSAGES},
  "learning": {{
    "version": 1,
    "stream_id": "{stream}",
    "next_cursor": 1,
    "events": [],
    "queue": []
  }},
  "active_task": {{
    "objective": "Count.",
    "started_at": "2026-05-28T03:41:37Z"
  }}
}}
"#,
        id = session_id()
    );
    assert_eq!(text, expected);
    assert_eq!(SessionFile::parse(text.as_bytes(), "x").unwrap().to_json(), text);
}

#[test]
fn a_delegate_that_failed_or_was_cancelled_is_blocked() {
    let words = [
        (NodeStatus::Completed, "completed", false),
        (NodeStatus::Blocked, "blocked", true),
        (NodeStatus::Unknown, "unknown", true),
        (NodeStatus::Failed, "blocked", true),
        (NodeStatus::Cancelled, "blocked", true),
    ];
    for (status, word, is_error) in words {
        let mut log = Log::new();
        log.add(delegating(1, "c"));
        log.add(child(1, call(1, 0)));
        log.add_to(CHILD, message(1, Role::User, "Do it.\nNow.", &[]));
        log.add_to(CHILD, settled(status));
        let state = file(&log, "delegation-state.json");
        assert_eq!(
            (&state["status"], &state["result"]),
            (&json!(word), &json!({"Content":"done","IsError":is_error}))
        );
        assert!(state.get("running_call").is_none());
        StateFile::parse(state.to_string().as_bytes(), "x").unwrap();
    }
}

#[test]
fn where_a_running_delegate_stands() {
    let mut log = Log::new();
    log.add(delegating(1, "c"));
    log.add(child(1, call(1, 0)));
    // A bookmark alone: its agent was not asked.
    let names: Vec<String> = files(&log).into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, ["session.json", "delegations.json"]);
    log.add_to(CHILD, message(1, Role::System, "You are.", &[]));
    log.add_to(CHILD, message(2, Role::User, "Do it.\nNow.", &[]));
    log.add_to(CHILD, message(3, Role::Assistant, "", &["a"]));
    log.add_to(CHILD, CallFinished { call_id: "a".into(), ..unknown(call(3, 0)) });
    log.add_to(CHILD, message(4, Role::Assistant, "", &["a", "b"]));
    log.add_to(CHILD, started(call(4, 0), Effect::Mutating, 1));
    let state = file(&log, "delegation-state.json");
    assert_eq!(state["status"], "running");
    assert_eq!(state["running_call"], json!({"message_index":4,"tool_index":0,"call_id":"a","name":"Read"}));
    assert_eq!(
        state["unknown_tools"],
        json!([{"message_index":2,"tool_index":0,"call_id":"a","name":"Read"}])
    );
    assert!(state.get("result").is_none());
    let bookmark = &file(&log, "delegations.json")["items"][0];
    assert_eq!((&bookmark["call_index"], &bookmark["prompt"]), (&json!(0), &json!("Do it.\nNow.")));
    // The second call has its result, the first one not: q joins by place, so the first one gets one, too.
    log.add_to(CHILD, CallFinished { call_id: "b".into(), ..finished(call(4, 1), "b") });
    let session = file(&log, "/session.json");
    let transcript = session["transcript"].as_array().unwrap();
    let ids: Vec<&Value> = transcript.iter().skip(4).map(|message| &message["tool_call_id"]).collect();
    assert_eq!(ids, [&Value::Null, &json!("a"), &json!("b")]);
    assert_eq!(session["transcript"], session["context"]);
    let state = file(&log, "delegation-state.json");
    assert_eq!(state["unknown_tools"].as_array().unwrap().len(), 2);
}

/// W1: a completion that was rejected, and work that went on, made q's own count greater than its recount.
#[test]
fn w1_the_round_is_never_ahead_of_the_transcript() {
    let mut log = Log::new();
    log.add(delegating(1, "c"));
    log.add(child(1, call(1, 0)));
    log.add_to(CHILD, message(1, Role::User, "Do it.\nNow.", &[]));
    for number in [2, 3] {
        let mut complete = message(number, Role::Assistant, "", &[]);
        complete.tool_calls = vec![tool_call("t", "task_complete", "{}")];
        log.add_to(CHILD, complete);
        log.add_to(CHILD, CallFinished { call_id: "t".into(), ..finished(call(number, 0), "rejected") });
    }
    assert_eq!(file(&log, "delegation-state.json")["round"], 1);
}

/// W2: after a clear, the old bookmark at the same place stood in the way of the new one.
#[test]
fn w2_clear_then_delegate_at_the_same_place() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "Go.", &[]));
    log.add(delegating(2, "c"));
    log.add(child(1, call(2, 0)));
    log.add(RunStarted { run_id: "run-2".into(), reason: RunReason::Cleared });
    log.add(message(3, Role::User, "Go.", &[]));
    log.add(delegating(4, "c"));
    log.add(child(2, call(4, 0)));
    let items = file(&log, "delegations.json")["items"].as_array().unwrap().clone();
    assert_eq!(items.len(), 1);
    assert_eq!((&items[0]["call_index"], &items[0]["run_id"]), (&json!(1), &json!("run-2")));
    assert_eq!(items[0]["invocation_id"], InvocationId([2; 16]).to_string());
    assert_eq!(file(&log, "session.json")["run_id"], "run-2");
    assert_eq!(QTree::fold(&log.events).left_out().len(), 1);
}

#[test]
fn replay_is_named_by_its_place_in_the_context() {
    let mut log = Log::new();
    for number in 1..=4 {
        let role = if number % 2 == 1 { Role::User } else { Role::Assistant };
        log.add(message(number, role, "x", &[]));
    }
    for number in [2, 4] {
        log.add(ReplayAttached {
            message_no: MessageNo(number),
            model: "m".into(),
            api_mode: "responses".into(),
            items: vec![r#"{"n":12345678901234567890123}"#.into()],
        });
    }
    log.add(AffinitySet { model: "m".into(), key: "k".into(), api_mode: None, candidate: None });
    let indices = |log: &Log| {
        let session = file(log, "session.json");
        let replay = session["response_replay"].as_array().cloned().unwrap_or_default();
        replay.iter().map(|it| it["index"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(indices(&log), [1, 3]);
    assert_eq!(file(&log, "session.json")["response_affinity"], json!({"model":"m","key":"k"}));
    log.add(compacted("short", &[range(3, 4)], &[range(1, 2)]));
    assert_eq!(indices(&log), [2]);
    let session = file(&log, "session.json");
    assert_eq!(session["context"][0]["name"], SUMMARY_NAME);
    assert_eq!(
        (session["context"][0]["role"].as_str(), session.get("response_affinity")),
        (Some("system"), None)
    );
    assert_eq!(session["transcript"].as_array().unwrap().len(), 4);
}

#[test]
fn fields_of_another_type_are_named() {
    let error = |json: &str| SessionFile::parse(json.as_bytes(), "s/session.json").unwrap_err().to_string();
    let text = error(r#"{"version":2,"transcript":[{"role":"user"},{"role":"user","content":7}]}"#);
    assert!(
        text.contains("s/session.json") && text.contains("transcript[1].content") && text.contains('7'),
        "{text}"
    );
    let text = error("{\n  \"version\": 2,\n  \"title\" 1}");
    assert!(text.contains("at byte 28"), "{text}");
    assert!(matches!(DelegationsFile::parse(b"{\"version\":2}", "d"), Err(QError::Version { .. })));
    let state = br#"{"version":1,"status":"completed"}"#;
    assert!(matches!(StateFile::parse(state, "d"), Err(QError::Field { field, .. }) if field == "status"));
    let plan = br#"{"version":1,"checkpoint":{"phase":"zzz"}}"#;
    assert!(
        matches!(PlanFile::parse(plan, "p"), Err(QError::Field { field, .. }) if field == "checkpoint.phase")
    );
    let deep = format!("{{\"version\":2,\"x\":{}{}}}", "[".repeat(500), "]".repeat(500));
    assert!(matches!(SessionFile::parse(deep.as_bytes(), "s"), Err(QError::TooDeep { .. })));
}

#[test]
fn odd_text_is_read() {
    let read = |bytes: &[u8]| SessionFile::parse(bytes, "s").unwrap();
    // Half a surrogate pair, and bytes that are not UTF-8.
    let file = read(b"{\"version\":2,\"transcript\":[{\"role\":\"user\",\"content\":\"\\ud83d \xff\"}]}");
    assert_eq!(file.transcript[0].content, [views::q::Part::text("\u{fffd} \u{fffd}")]);
    // Of a repeated key the last one counts, whatever its case.
    let file = read(br#"{"version":2,"Title":"a","TITLE":"b","x":1,"x":2}"#);
    assert_eq!(file.header.title, "b");
    assert!(file.to_json().contains("\"x\": 2") && !file.to_json().contains("\"x\": 1"));
    assert!(!read(br#"{"version":1,"loop_mode":"auto","transcript":null}"#).to_json().contains("loop_mode"));
    // An image of version 1 keeps every key: what does not fit a part stays the block that it is.
    let v1 = br#"{"version":1,"transcript":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u","hint":1}},{"type":"input_image","file_id":"f"}]}]}"#;
    let content = &read(v1).transcript[0].content;
    assert_eq!((content[0].kind.as_str(), content[1].file_id.as_str()), ("raw", "f"));
}
