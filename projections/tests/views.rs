//! Views, byte for byte: the seed page's own examples, and lines that recursive-agent 0.8.3 wrote.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(clippy::cast_possible_wrap, reason = "of small numbers")]

mod support;

use serde_json::Value;
use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_projections::views::*;
use sessionlog_projections::*;
use support::*;

fn lines(dialect: Dialect, log: &Log) -> Vec<String> {
    render_all(dialect, session_id(), &log.events)
}

/// A log all of whose events happen at one time.
fn at_once(mut log: Log) -> Log {
    for event in &mut log.events {
        event.timestamp = Timestamp(START);
    }
    log
}

#[test]
fn the_seed_pages_transcript() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "# Goal 131...", &[]));
    let mut answer = message(2, Role::Assistant, "...", &[]);
    answer.tool_calls = vec![tool_call("tc_1", "Read", r#"{"path":"src/lib.rs", "z":1.50, "a":2}"#)];
    log.add(answer);
    log.add(CallFinished { call_id: "tc_1".into(), ..finished(call(2, 0), "...") });
    // The page's lines, with its elided arguments and times filled in.
    assert_eq!(
        lines(Dialect::Seed, &at_once(log)),
        [
            r##"{"id":"msg_001","role":"user","content":"# Goal 131...","timestamp":"2026-05-28T03:41:37Z"}"##,
            r#"{"id":"msg_002","role":"assistant","content":"...","tool_calls":[{"id":"tc_1","name":"Read","args":{"path":"src/lib.rs", "z":1.50, "a":2}}],"timestamp":"2026-05-28T03:41:37Z"}"#,
            r#"{"id":"msg_003","role":"tool","tool_call_id":"tc_1","content":"...","timestamp":"2026-05-28T03:41:37Z"}"#,
        ]
    );
}

#[test]
fn the_seed_pages_meta() {
    let mut log = Log::new();
    log.add(opened(1));
    for number in 1..=116 {
        log.add(message(number, Role::Assistant, "x", &[]));
    }
    log.add(UsageRecorded { usage: Some(usage(1, 1)), ..recorded("all", None, Some(93_520_000)) });
    log.add(SessionFinished { status: FinalStatus::Completed, reason: None });
    log.add(SessionClosed { epoch: Epoch(1) });
    let summary = log.summary();
    let status = summary.status(Liveness::Dead);
    let text = meta(Dialect::Seed, &summary, status, &MetaExtra::default());
    let page = r#"{
  "session_id": "2026-05-28T03:41:37Z-home-dev-demo",
  "created_at": "2026-05-28T03:41:37Z",
  "status": "complete",
  "model": "deepseek-chat",
  "message_count": 116,
  "cost_usd": 0.09352,
  "sessionlog": {
"#;
    assert!(text.starts_with(page), "{text}");
    assert!(text.ends_with("}\n"));
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["sessionlog"]["id"], session_id().to_string());
    assert_eq!(value["sessionlog"]["schema_version"], 1);
    // Unknown is null, and what the host adds is under our key.
    log.add(recorded("unpriced", None, None));
    let extra = MetaExtra { view: serde_json::json!({ "position": 7 }) };
    let value: Value =
        serde_json::from_str(&meta(Dialect::Seed, &log.summary(), Status::Running, &extra)).unwrap();
    assert_eq!((&value["cost_usd"], &value["status"]), (&Value::Null, &"incomplete".into()));
    assert_eq!(value["sessionlog"]["view"]["position"], 7);
}

/// The first fixture of recursive-agent 0.8.3 (every field of a transcript), its UUIDs taken out.
const RECURSIVE: [&str; 6] = [
    r#"{"id":"msg_001","role":"system","content":"You are a careful assistant.","timestamp":"2026-05-28T03:41:37Z"}"#,
    r#"{"id":"msg_002","parent_id":"msg_001","role":"user","content":"Quotes \" backslash \\ tab \t newline \n emoji 🦀 CJK 日本語.","timestamp":"2026-05-28T03:41:37Z"}"#,
    r#"{"id":"msg_003","parent_id":"msg_002","role":"assistant","content":"I will read it.","tool_calls":[{"id":"call_1","name":"Read","arguments":{"path":"src/lib.rs","z":1,"a":[1.5,null,true]}},{"id":"call_2","name":"Read","arguments":{"path":"missing.rs"}}],"reasoning_content":"The user wants a summary.","usage":{"input_tokens":900,"output_tokens":40,"cache_creation_tokens":500,"cache_read_tokens":400,"reasoning_tokens":12},"timestamp":"2026-05-28T03:41:37Z"}"#,
    r#"{"id":"msg_004","parent_id":"msg_003","role":"tool","content":"pub fn add(a: i32, b: i32) -> i32 { a + b }\n","tool_call_id":"call_1","timestamp":"2026-05-28T03:41:37Z","audit":{"step_id":"01890000-0000-7000-8000-000000000001","started_at":1700000000000,"finished_at":1700000000042,"args_hash":"abab","side_effect":"read_only","exit_status":{"type":"ok"}}}"#,
    r#"{"id":"msg_005","parent_id":"msg_004","role":"tool","content":"ERROR: no such file","tool_call_id":"call_2","timestamp":"2026-05-28T03:41:37Z","audit":{"step_id":"01a22c05-9126-7741-a029-06dcd68d81b0","started_at":1796034892070,"finished_at":1796034892070,"args_hash":"","side_effect":"external","exit_status":{"type":"err","message":"unknown tool: Read"}}}"#,
    r#"{"id":"msg_006","parent_id":"msg_005","role":"assistant","content":"It defines `add`.","usage":{"input_tokens":1000,"output_tokens":10,"reasoning_tokens":0},"timestamp":"2026-05-28T03:41:37Z"}"#,
];

fn recursive_log() -> Log {
    let mut log = Log::new();
    log.add(message(1, Role::System, "You are a careful assistant.", &[]));
    let prompt = "Quotes \" backslash \\ tab \t newline \n emoji 🦀 CJK 日本語.";
    log.add(message(2, Role::User, prompt, &[]));
    let mut answer = message(3, Role::Assistant, "I will read it.", &[]);
    let reasoning = Reasoning { text: "The user wants a summary.".into(), form: ReasoningForm::Plain };
    answer.parts.insert(0, Part::Reasoning(reasoning));
    answer.tool_calls = vec![
        tool_call("call_1", "Read", r#"{"path":"src/lib.rs","z":1,"a":[1.5,null,true]}"#),
        tool_call("call_2", "Read", r#"{"path":"missing.rs"}"#),
    ];
    answer.usage = Some(Usage { input: 0, cache_read: 400, cache_write: 500, output: 40, reasoning: 12 });
    log.add(answer);
    log.add(started(call(3, 0), Effect::Pure, 1));
    let audit = |step: &str, from, to, hash: &str, error: Option<&str>| {
        Some(CallAudit {
            step_id: step.into(),
            started_at: Timestamp(from),
            finished_at: Timestamp(to),
            arguments_hash: hash.into(),
            exit_error: error.map(Into::into),
        })
    };
    log.add(CallFinished {
        call_id: "call_1".into(),
        audit: audit(
            "01890000-0000-7000-8000-000000000001",
            1_700_000_000_000_000,
            1_700_000_000_042_000,
            "abab",
            None,
        ),
        ..finished(call(3, 0), "pub fn add(a: i32, b: i32) -> i32 { a + b }\n")
    });
    let at = 1_796_034_892_070_000;
    log.add(CallFinished {
        call_id: "call_2".into(),
        audit: audit("01a22c05-9126-7741-a029-06dcd68d81b0", at, at, "", Some("unknown tool: Read")),
        ..finished(call(3, 1), "ERROR: no such file")
    });
    log.add(MessageAppended {
        usage: Some(usage(1_000, 10)),
        ..message(4, Role::Assistant, "It defines `add`.", &[])
    });
    at_once(log)
}

#[test]
fn a_transcript_of_recursive() {
    let lines = lines(Dialect::Recursive08, &recursive_log());
    let mut uuids = Vec::new();
    for (line, expected) in lines.iter().zip(RECURSIVE) {
        let value: Value = serde_json::from_str(line).unwrap();
        let mut rest = line.clone();
        // The three keys of the chain come first, in this order.
        for key in ["uuid", "parent_uuid", "source_tool_assistant_uuid"] {
            if let Some(uuid) = value[key].as_str() {
                let field = format!("{{\"{key}\":\"{uuid}\",");
                assert!(rest.starts_with(&field), "{rest}");
                rest = rest.replacen(&field, "{", 1);
            }
        }
        assert_eq!(rest, expected);
        uuids.push(
            [&value["uuid"], &value["parent_uuid"], &value["source_tool_assistant_uuid"]]
                .map(|it| it.clone()),
        );
    }
    assert_eq!(lines.len(), 6);
    for pair in uuids.windows(2) {
        assert_eq!(pair[0][0], pair[1][1]);
    }
    // Both results name the assistant's line (recursive itself names the line before).
    assert_eq!((&uuids[3][2], &uuids[4][2]), (&uuids[2][0], &uuids[2][0]));
    assert_eq!(lines, self::lines(Dialect::Recursive08, &recursive_log()));
}

#[test]
fn a_compaction_of_recursive() {
    let mut log = Log::new();
    log.add(TurnStarted { turn: TurnNo(1), cause: TurnCause::User });
    log.add(message(1, Role::User, "a", &[]));
    log.add(message(2, Role::User, "b", &[]));
    log.add(compacted("SUMMARY-OF-OLDER", &[], &[range(1, 2)]));
    log.add(message(3, Role::User, "c", &[]));
    log.add(compacted("[compacted: structured at step 3]\nx", &[], &[range(1, 3)]));
    log.add(compacted("", &[], &[range(1, 3)]));
    let log = at_once(log);
    let lines = lines(Dialect::Recursive08, &log);
    assert_eq!(
        lines[2],
        r#"{"type":"system","subtype":"compact_boundary","turn":1,"compacted_count":2,"timestamp":"2026-05-28T03:41:37Z"}"#
    );
    let contents: Vec<String> = [3, 6]
        .map(|line: usize| serde_json::from_str::<Value>(&lines[line]).unwrap())
        .map(|line| format!("{} {}", line["role"], line["content"]))
        .to_vec();
    assert_eq!(contents[0], r#""system" "[compacted: 2 messages → 16 chars at step 1]\nSUMMARY-OF-OLDER""#);
    assert_eq!(contents[1], r#""system" "[compacted: structured at step 3]\nx""#);
    assert_eq!(lines.len(), 8);
    // The summaries are messages to recursive, and to its count. The seed page has no such lines.
    let summary = log.summary();
    let value: Value =
        serde_json::from_str(&meta(Dialect::Recursive08, &summary, Status::Running, &MetaExtra::default()))
            .unwrap();
    assert_eq!(value["message_count"], 5);
    assert_eq!(self::lines(Dialect::Seed, &log).len(), 3);
}

#[test]
fn a_meta_of_recursive() {
    let mut log = Log::of(SessionCreated {
        goal: Some("Explain src/lib.rs".into()),
        tool_registry_hash: Some("73c0".into()),
        preset: Some("deepseek".into()),
        ..created()
    });
    log.add(SessionTitled { title: "clean session".into(), origin: TitleOrigin::Person });
    log.events.extend(recursive_log().events.into_iter().skip(1));
    let summary = at_once(log).summary();
    let text = meta(Dialect::Recursive08, &summary, Status::Completed, &MetaExtra::default());
    let expected = r#"{
  "schema_version": 1,
  "session_id": "2026-05-28T03-41-37Z-home-dev-demo",
  "goal": "Explain src/lib.rs",
  "model": "deepseek-chat",
  "provider": "openai",
  "created_at": "2026-05-28T03:41:37Z",
  "updated_at": "2026-05-28T03:41:37Z",
  "message_count": 6,
  "status": "completed",
  "tool_registry_hash": "73c0",
  "first_prompt": "Quotes \" backslash \\ tab \t newline \n emoji 🦀 CJK 日本語.",
  "last_prompt": "Quotes \" backslash \\ tab \t newline \n emoji 🦀 CJK 日本語.",
  "cost": {
    "total_input_tokens": 1900,
    "total_output_tokens": 50,
    "total_cache_creation_tokens": 500,
    "total_cache_read_tokens": 400,
    "total_reasoning_tokens": 12
  },
  "preset": "deepseek",
  "name": "clean session",
  "cost_usd": null,
  "total_tokens": 1950,
  "prompt_tokens": 1900,
  "completion_tokens": 50,
  "cache_hit_tokens": 400,
  "cache_miss_tokens": 1500,
  "reasoning_tokens": 12,
  "total_llm_latency_ms": 0,
  "sessionlog": {
"#;
    assert!(text.starts_with(expected), "{text}");
    let expected = r#"{
  "model": "deepseek-chat",
  "provider": "openai",
  "total_usage": {
    "prompt_tokens": 1900,
    "completion_tokens": 50,
    "total_tokens": 1950,
    "cache_hit_tokens": 400,
    "cache_miss_tokens": 1500,
    "reasoning_tokens": 12
  },
  "total_llm_latency_ms": 0,
  "cost_usd": null,
  "pricing": null
}
"#;
    assert_eq!(cost(&summary), expected);
}

/// T5, T6: raw line ends in records, and characters that some readers take for line ends, broke whole files.
#[test]
fn t6_a_line_is_a_line_to_every_reader() {
    let text = "a\u{2028}b\u{2029}c\u{85}d\0e\rf\u{b}g\u{c}h\ni";
    let mut log = Log::new();
    let mut answer = message(1, Role::Assistant, text, &[]);
    answer.tool_calls = vec![
        tool_call("1", "T", "{\n\"k\": \"a\u{2028}\"\r\n}"),
        tool_call("2", "T", text),
        tool_call(text, text, ""),
    ];
    log.add(answer);
    for dialect in [Dialect::Seed, Dialect::Recursive08] {
        let lines = lines(dialect, &log);
        assert_eq!(lines.len(), 1);
        let ends = ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{85}', '\u{2028}', '\u{2029}', '\0'];
        assert!(!lines[0].contains(ends), "{}", lines[0]);
        let value: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(value["content"], text);
        let arguments = if dialect == Dialect::Seed { "args" } else { "arguments" };
        assert_eq!(value["tool_calls"][0][arguments]["k"], "a\u{2028}");
        assert_eq!(value["tool_calls"][1][arguments], text);
        assert_eq!(value["tool_calls"][2][arguments], "");
    }
    let line = event_line(&log.events[1]);
    assert!(!line.contains(['\n', '\u{2028}']));
}

#[test]
fn what_changes_earlier_lines_asks_for_a_rebuild() {
    let mut log = Log::new();
    log.add(message(1, Role::Assistant, "one", &["A"]));
    let piece = |parts, usage| MessageExtended {
        message_no: MessageNo(1),
        parts,
        tool_calls: vec![],
        stop_reason: None,
        usage,
        source: None,
    };
    log.add(piece(vec![Part::text("two")], None));
    log.add(piece(vec![], Some(usage(1, 1))));
    log.add(Redacted { positions: vec![Position(2)], reason: String::new(), requested_at: Timestamp(0) });
    let rendered = |dialect| {
        let mut renderer = TranscriptRenderer::new(dialect, session_id());
        log.events[2..].iter().map(|event| renderer.render(event)).collect::<Vec<_>>()
    };
    // A renderer that has not seen the message has no line of it.
    assert_eq!(rendered(Dialect::Seed)[0], Rendered::Nothing);
    let mut renderer = TranscriptRenderer::new(Dialect::Seed, session_id());
    let all: Vec<_> = log.events.iter().map(|event| renderer.render(event)).collect();
    assert_eq!(all[2..], [Rendered::Rebuild, Rendered::Nothing, Rendered::Rebuild]);
    let mut renderer = TranscriptRenderer::new(Dialect::Recursive08, session_id());
    let all: Vec<_> = log.events.iter().map(|event| renderer.render(event)).collect();
    assert_eq!(all[2..], [Rendered::Rebuild, Rendered::Rebuild, Rendered::Rebuild]);
    assert!(lines(Dialect::Seed, &log)[0].contains(r#""content":"one\ntwo""#));
}

#[test]
fn messages_as_json() {
    let mut log = Log::new();
    let mut asked = message(1, Role::User, "look", &[]);
    asked.parts.push(Part::Image(Media {
        source: MediaSource::Url("https://x/y.png".into()),
        media_type: Some("image/png".into()),
        name: None,
        detail: None,
        extra: None,
    }));
    log.add(asked);
    let mut answer = message(2, Role::Assistant, "ok", &["A"]);
    answer.model = Some("m".into());
    log.add(answer);
    let log = at_once(log);
    let context: Vec<String> = log.context().iter().map(|m| context_message_json(m).to_string()).collect();
    assert_eq!(
        context,
        [
            r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","media_type":"image/png","url":"https://x/y.png"}],"message_no":1,"position":2}"#,
            r#"{"role":"assistant","content":"ok","tool_calls":[{"id":"A","name":"Read","arguments":{}}],"message_no":2,"position":3,"model":"m"}"#,
            r#"{"role":"tool","content":"This call was not run: the session was interrupted before it started.","tool_call_id":"A","is_error":true,"synthetic":"not_run","message_no":2,"tool_index":0,"position":3}"#,
        ]
    );
    let transcript = transcript_entry_json(&log.transcript()[1]).to_string();
    assert_eq!(
        transcript,
        r#"{"role":"assistant","content":"ok","tool_calls":[{"id":"A","name":"Read","arguments":{}}],"model":"m","mark":"live","message_no":2,"position":3,"timestamp":"2026-05-28T03:41:37.000000Z"}"#
    );
    assert!(lines(Dialect::Seed, &log)[0].contains(r#""content":"look\n[image image/png https://x/y.png]""#));
    let line = event_line(&log.events[1]);
    assert!(
        line.starts_with(
            r#"{"position":2,"node":0,"time":"2026-05-28T03:41:37.000000Z","event":"message.appended","data":{"message_no":1,"#
        ),
        "{line}"
    );
}

#[test]
fn markdown_is_safe_to_look_at() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "Fix it\u{1b}[2J.", &[]));
    let mut answer = message(2, Role::Assistant, "Reading.", &["A"]);
    answer.tool_calls[0].arguments = r#"{"path":"x"}"#.into();
    log.add(answer);
    log.add(CallFinished { flag: ResultFlag::Error, ..finished(call(2, 0), "```\u{9b}31m\n````") });
    log.add(compacted("sum", &[], &[range(1, 2)]));
    log.add(GapMarked {
        file: "x".into(),
        offset: 0,
        len: 1,
        first: None,
        last: None,
        explanation: "one byte is bad".into(),
    });
    let log = at_once(log);
    let text = markdown(&log.tree(), &log.summary(), NodeId::ROOT);
    assert!(!text.contains(['\u{1b}', '\u{9b}']));
    for part in [
        "# Fix it",
        "- session: 2026-05-28T03:41:37Z-home-dev-demo",
        "## user · 2026-05-28T03:41:37Z",
        "### call of Read (A)\n\n```json\n{\"path\":\"x\"}\n```",
        "### result of Read: succeeded, error",
        "`````\n```\u{fffd}31m\n````\n`````",
        "> sum",
        "**Records are missing here:** one byte is bad",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

#[test]
fn dialects_have_names() {
    for (name, dialect) in [
        ("seed", Dialect::Seed),
        ("recursive-0.8", Dialect::Recursive08),
        ("recursive", Dialect::Recursive08),
        ("SEED", Dialect::Seed),
    ] {
        assert_eq!(name.parse(), Ok(dialect));
    }
    assert_eq!(Dialect::Recursive08.to_string().parse(), Ok(Dialect::Recursive08));
    assert_eq!("".parse::<Dialect>(), Err(UnknownDialect));
}
