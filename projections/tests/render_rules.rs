//! Each rule of each provider: what breaks it is refused by its validator, and what is rendered keeps it.

#![allow(clippy::cast_possible_wrap, reason = "of small numbers")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use serde_json::{Value, json};
use sessionlog_codec::RawBytes;
use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_projections::render::*;
use sessionlog_projections::*;
use support::{Log, call, compacted, finished, message, range, tool_call};

const PNG: &str = "iVBORw0KGgo=";

fn target(api: Api, model: &str) -> Target {
    Target { api, model: model.into(), provider: None }
}

fn replay(log: &Log) -> Replay {
    let mut replay = Replay::default();
    log.events.iter().for_each(|event| replay.apply(event));
    replay
}

/// The rendering of the root, which its provider takes.
#[track_caller]
fn rendering(log: &Log, target: &Target) -> Rendering {
    let rendering = render(&log.context(), replay(log).node(NodeId::ROOT), target);
    let verdict = check(target.api, &value(&rendering));
    assert_eq!(verdict, Ok(()), "{}", String::from_utf8_lossy(&rendering.body));
    rendering
}

fn check(api: Api, body: &Value) -> Result<(), RuleBroken> {
    match api {
        Api::ChatCompletions => validate_chat(body),
        Api::Responses => validate_responses(body),
        Api::AnthropicMessages => validate_anthropic(body),
    }
}

fn value(rendering: &Rendering) -> Value {
    serde_json::from_slice(&rendering.body).unwrap()
}

#[track_caller]
fn chat(log: &Log) -> Value {
    value(&rendering(log, &target(Api::ChatCompletions, "m")))["messages"].clone()
}

#[track_caller]
fn responses(log: &Log) -> Value {
    value(&rendering(log, &target(Api::Responses, "m")))["input"].clone()
}

#[track_caller]
fn anthropic(log: &Log) -> Value {
    value(&rendering(log, &target(Api::AnthropicMessages, "m")))["messages"].clone()
}

/// An answer of model `m`.
fn answer(number: u64, parts: Vec<Part>, ids: &[&str]) -> MessageAppended {
    MessageAppended { parts, model: Some("m".into()), ..message(number, Role::Assistant, "", ids) }
}

fn user(number: u64, parts: Vec<Part>) -> MessageAppended {
    MessageAppended { parts, ..message(number, Role::User, "", &[]) }
}

fn signed(text: &str, signature: &str) -> Part {
    let form = ReasoningForm::Signed(Some(signature.into()));
    Part::Reasoning(Reasoning { text: text.into(), form })
}

fn plain(text: &str) -> Part {
    Part::Reasoning(Reasoning { text: text.into(), form: ReasoningForm::Plain })
}

fn opaque(data: &str) -> Part {
    Part::Reasoning(Reasoning { text: String::new(), form: ReasoningForm::Opaque(data.into()) })
}

fn media(source: MediaSource, media_type: Option<&str>) -> Media {
    Media { source, media_type: media_type.map(str::to_owned), name: None, detail: None, extra: None }
}

fn png() -> Part {
    Part::Image(media(MediaSource::Base64(PNG.into()), Some("image/png")))
}

fn attached(number: u64, items: &[&str]) -> ReplayAttached {
    ReplayAttached {
        message_no: MessageNo(number),
        model: "m".into(),
        api_mode: "responses".into(),
        items: items.iter().map(|item| RawBytes::from(*item)).collect(),
    }
}

fn log(events: Vec<Event>) -> Log {
    let mut log = Log::new();
    for event in events {
        log.force(NodeId::ROOT, event);
    }
    log
}

/// A turn with two calls, as the agent left it.
fn two_calls() -> Log {
    log(vec![
        message(1, Role::System, "be brief", &[]).into(),
        message(2, Role::User, "go", &[]).into(),
        answer(3, vec![Part::text("reading")], &["A", "B"]).into(),
        CallFinished { flag: ResultFlag::Error, ..finished(call(3, 1), "no file") }.into(),
        finished(call(3, 0), "text").into(),
    ])
}

#[test]
fn one_context_three_forms() {
    let log = two_calls();
    let calls = json!([
        {"type": "function", "id": "A", "function": {"name": "Read", "arguments": "{}"}},
        {"type": "function", "id": "B", "function": {"name": "Read", "arguments": "{}"}},
    ]);
    let expected = json!([
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "reading", "tool_calls": calls},
        {"role": "tool", "content": "text", "tool_call_id": "A"},
        {"role": "tool", "content": "no file", "tool_call_id": "B"},
    ]);
    assert_eq!(chat(&log), expected);
    let expected = json!([
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "be brief"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "reading"}]},
        {"type": "function_call", "call_id": "A", "name": "Read", "arguments": "{}"},
        {"type": "function_call", "call_id": "B", "name": "Read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "A", "output": "text"},
        {"type": "function_call_output", "call_id": "B", "output": "no file"},
    ]);
    assert_eq!(responses(&log), expected);
    let whole = value(&rendering(&log, &target(Api::AnthropicMessages, "m")));
    let expected = json!({
        "system": [{"type": "text", "text": "be brief"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "reading"},
                {"type": "tool_use", "id": "A", "name": "Read", "input": {}},
                {"type": "tool_use", "id": "B", "name": "Read", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "A", "content": [{"type": "text", "text": "text"}]},
                {"type": "tool_result", "tool_use_id": "B", "content": [{"type": "text", "text": "no file"}], "is_error": true},
            ]},
        ],
    });
    assert_eq!(whole, expected);
    let flag = Dropped { position: Position(4), what: What::ErrorFlag, why: Why::NoPlace };
    let chat = rendering(&log, &target(Api::ChatCompletions, "m"));
    assert_eq!(chat.dropped.iter().filter(|it| it.what == flag.what).count(), 1);
}

/// P1 and P2: a lost result was refused by all three; with two users in a row, the second one joins the results.
#[test]
fn p1_p2_lost_results_are_answered_in_every_form() {
    let mut log = two_calls();
    log.events.truncate(5);
    log.force(NodeId::ROOT, message(4, Role::User, "and?", &[]));
    assert_eq!(chat(&log).as_array().unwrap().len(), 6);
    assert_eq!(responses(&log).as_array().unwrap().len(), 8);
    let messages = anthropic(&log);
    assert_eq!(messages.as_array().unwrap().len(), 3);
    let kinds: Vec<&str> =
        messages[2]["content"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["tool_result", "tool_result", "text"]);
}

/// T12: an interrupted turn stored thinking without its signature, or a client emptied the text: refused at every turn.
#[test]
fn t12_thinking_and_its_signature_stay_together() {
    let unsigned = Part::Reasoning(Reasoning { text: "abc".into(), form: ReasoningForm::Signed(None) });
    let of = |parts: Vec<Part>| {
        let mut log = log(vec![message(1, Role::User, "go", &[]).into(), answer(2, parts, &["A"]).into()]);
        log.force(NodeId::ROOT, message(3, Role::User, "on", &[]));
        anthropic(&log)[1]["content"].clone()
    };
    let tool_use = json!({"type": "tool_use", "id": "A", "name": "Read", "input": {}});
    let thinking = json!({"type": "thinking", "thinking": " abc\u{2028}", "signature": "sig"});
    assert_eq!(of(vec![signed(" abc\u{2028}", "sig")]), json!([thinking, tool_use]));
    assert_eq!(of(vec![unsigned]), json!([tool_use]));
    // As newer models give it: signed, and not shown.
    let hidden = json!({"type": "thinking", "thinking": "", "signature": "sig"});
    assert_eq!(of(vec![signed("", "sig")]), json!([hidden, tool_use]));
    let redacted = json!({"type": "redacted_thinking", "data": "x"});
    assert_eq!(of(vec![signed(" abc\u{2028}", "sig"), opaque("x")]), json!([thinking, redacted, tool_use]));
    // Together or not at all: something is not as the model said it.
    let text = json!({"type": "text", "text": "b"});
    assert_eq!(of(vec![signed("a", "s"), plain("p"), Part::text("b")]), json!([text, tool_use]));
    assert_eq!(of(vec![signed("a", "s"), Part::text(" "), opaque("x")]), json!([tool_use]));
    assert_eq!(of(vec![Part::text("b"), signed("a", "s")]), json!([text, tool_use]));
}

/// claude-code#20691, forgecode#2107 and #1195: where thinking may stand.
#[test]
fn thinking_begins_a_message_and_never_ends_one() {
    let log = log(vec![
        message(1, Role::User, "go", &[]).into(),
        // Interrupted while it thought.
        answer(2, vec![signed("lost", "s2")], &[]).into(),
        message(3, Role::User, "again", &[]).into(),
        answer(4, vec![signed("kept", "s4"), Part::text("one")], &[]).into(),
        answer(5, vec![signed("kept too", "s5"), Part::text("two")], &[]).into(),
        message(6, Role::User, "on", &[]).into(),
        answer(7, vec![Part::text("three")], &[]).into(),
        answer(8, vec![signed("behind text", "s8"), Part::text("four")], &[]).into(),
        message(9, Role::User, "on", &[]).into(),
        answer(10, vec![signed("to be continued", "s10"), Part::text("half a sen \n")], &[]).into(),
    ]);
    let rendering = rendering(&log, &target(Api::AnthropicMessages, "m"));
    let text = String::from_utf8(rendering.body.clone()).unwrap();
    for (signature, is_kept) in [("s2", false), ("s4", true), ("s5", true), ("s8", false), ("s10", false)] {
        assert_eq!(text.contains(&format!("\"{signature}\"")), is_kept, "{signature}");
    }
    let last = value(&rendering)["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["content"], json!([{"type": "text", "text": "half a sen"}]));
    let trimmed = Adjusted { position: Position(11), how: Adjustment::EndTrimmed };
    assert!(rendering.adjusted.contains(&trimmed));
}

/// R14: the reasoning of one provider was sent to another.
#[test]
fn r14_reasoning_goes_back_to_its_own_model_only() {
    let thoughts = vec![plain("PLAIN"), signed("SIGNED", "s"), opaque("OPAQUE")];
    for (index, thought) in thoughts.into_iter().enumerate() {
        let log = log(vec![
            message(1, Role::User, "go", &[]).into(),
            answer(2, vec![thought, Part::text("done")], &[]).into(),
            message(3, Role::User, "on", &[]).into(),
        ]);
        for api in [Api::ChatCompletions, Api::Responses, Api::AnthropicMessages] {
            let has_place =
                matches!((api, index), (Api::ChatCompletions, 0) | (Api::AnthropicMessages, 1 | 2));
            for (model, provider, is_own) in
                [("m", None, true), ("m2", None, false), ("M", None, false), ("m", Some("x"), true)]
            {
                let target = Target { provider: provider.map(str::to_owned), ..target(api, model) };
                let rendering = rendering(&log, &target);
                let text = String::from_utf8(rendering.body.clone()).unwrap();
                let is_there = ["PLAIN", "SIGNED", "OPAQUE"].iter().any(|it| text.contains(it));
                assert_eq!(is_there, has_place && is_own, "{api} {model} {index}");
                let is_told = rendering.dropped.iter().any(|it| it.what == What::Reasoning);
                assert_eq!(is_told, !is_there);
            }
        }
    }
}

#[test]
fn a_routers_name_of_a_model_means_the_model() {
    let said = MessageAppended {
        model: Some("anthropic/m".into()),
        ..answer(2, vec![signed("t", "s"), Part::text("x")], &[])
    };
    let log = log(vec![
        message(1, Role::User, "go", &[]).into(),
        said.into(),
        message(3, Role::User, "on", &[]).into(),
    ]);
    let routed = Target { provider: Some("anthropic".into()), ..target(Api::AnthropicMessages, "m") };
    assert!(String::from_utf8(rendering(&log, &routed).body).unwrap().contains("thinking"));
    let other = Target { provider: Some("anthropi".into()), ..routed };
    assert!(!String::from_utf8(rendering(&log, &other).body).unwrap().contains("thinking"));
}

/// deepseek-harness#739: "The reasoning_content in the thinking mode must be passed back to the API."
#[test]
fn deepseek_gets_its_reasoning_and_an_empty_one_where_there_is_none() {
    let log = log(vec![
        message(1, Role::User, "go", &[]).into(),
        answer(2, vec![plain("hm"), plain("so"), Part::text("x")], &["A"]).into(),
        MessageAppended { model: Some("other".into()), ..answer(3, vec![plain("mine")], &["B"]) }.into(),
        answer(4, vec![Part::text("done")], &[]).into(),
    ]);
    let deepseek = Target { provider: Some("DeepSeek".into()), ..target(Api::ChatCompletions, "m") };
    let messages = value(&rendering(&log, &deepseek))["messages"].clone();
    assert_eq!(messages[1]["reasoning_content"], "hm\nso");
    assert_eq!(messages[3]["reasoning_content"], "");
    assert_eq!(messages[5].get("reasoning_content"), None);
    assert_eq!(chat(&log)[3].get("reasoning_content"), None);
}

/// Items as they come: their own spacing, order of keys and escapes.
const ITEMS: [&str; 3] = [
    r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"}"#,
    "{ \"type\" : \"message\",\"id\":\"msg_1\",\n \"role\":\"assistant\",\"phase\":\"commentary\",\"content\":[{\"annotations\":[],\"type\":\"output_text\",\"text\":\"caf\\u00e9 \\/\"}]}\n",
    r#"{"type":"function_call","id":"fc_1","call_id":"A","name":"Read","arguments":"{}","status":"completed"}"#,
];

fn replayed(extra: Vec<Event>) -> Log {
    let mut all: Vec<Event> = vec![
        message(1, Role::User, "go", &[]).into(),
        answer(2, vec![Part::text("café /")], &["A"]).into(),
        attached(2, &ITEMS).into(),
        finished(call(2, 0), "text").into(),
    ];
    all.extend(extra);
    log(all)
}

fn is_spliced(log: &Log, target: &Target) -> bool {
    let rendering = rendering(log, target);
    String::from_utf8(rendering.body).unwrap().contains(&ITEMS.join(","))
}

#[test]
fn replay_items_are_spliced_byte_for_byte() {
    let log = replayed(vec![message(3, Role::User, "on", &[]).into()]);
    let rendering = rendering(&log, &target(Api::Responses, "m"));
    let expected = format!(
        "{{\"input\":[{},{},{},{}]}}",
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]}"#,
        ITEMS.join(","),
        r#"{"type":"function_call_output","call_id":"A","output":"text"}"#,
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"on"}]}"#,
    );
    assert_eq!(String::from_utf8(rendering.body).unwrap(), expected);
    assert_eq!((rendering.messages, rendering.dropped), (6, vec![]));
}

#[test]
fn replay_items_are_dropped_by_model_api_and_what_takes_the_message_out() {
    let fine = target(Api::Responses, "m");
    assert!(is_spliced(&replayed(vec![]), &fine));
    assert!(!is_spliced(&replayed(vec![]), &target(Api::Responses, "m2")));
    assert!(!is_spliced(&replayed(vec![]), &target(Api::ChatCompletions, "m")));
    assert!(!is_spliced(&replayed(vec![]), &target(Api::AnthropicMessages, "m")));
    let chat_items = ReplayAttached { api_mode: "chat".into(), ..attached(2, &ITEMS) };
    assert!(!is_spliced(&replayed(vec![chat_items.into()]), &fine));
    // The last ones attached count, and none say that there are none.
    assert!(!is_spliced(&replayed(vec![attached(2, &[]).into()]), &fine));
    assert!(is_spliced(&replayed(vec![attached(2, &[]).into(), attached(2, &ITEMS).into()]), &fine));

    let kept = |first, last| compacted("so far", &[range(first, last)], &[]).into();
    assert!(is_spliced(&replayed(vec![kept(2, 2)]), &fine));
    assert!(!is_spliced(&replayed(vec![kept(1, 1)]), &fine));
    let on = || message(3, Role::User, "on", &[]).into();
    let reset = ContextReset { reason: String::new() }.into();
    assert!(!is_spliced(&replayed(vec![reset, on()]), &fine));
    let run = RunStarted { run_id: String::new(), reason: RunReason::Cleared }.into();
    assert!(!is_spliced(&replayed(vec![run, on()]), &fine));
    let head = |to| HeadMoved { to: Position(to), from: Position(3), reason: HeadReason::Undo }.into();
    assert!(!is_spliced(&replayed(vec![head(2)]), &fine));
    assert!(is_spliced(&replayed(vec![head(2), head(3)]), &fine));
    let withdrawn = MessageWithdrawn { message_no: MessageNo(2), reason: String::new() }.into();
    assert!(!is_spliced(&replayed(vec![withdrawn]), &fine));
    // What the message says now is more than they say.
    let piece = MessageExtended {
        message_no: MessageNo(2),
        parts: vec![Part::text("more")],
        tool_calls: vec![],
        stop_reason: None,
        usage: None,
        source: None,
    };
    assert!(!is_spliced(&replayed(vec![piece.into()]), &fine));
}

#[test]
fn replay_is_kept_per_node_and_listed_for_a_context() {
    let log = replayed(vec![]);
    let replay = replay(&log);
    let context = log.context();
    let live: Vec<ReplayItems<'_>> = replay.node(NodeId::ROOT).live(&context).collect();
    assert_eq!((live.len(), live[0].message_no, live[0].items.len()), (1, MessageNo(2), 3));
    assert_eq!(replay.node(NodeId(1)).live(&context).count(), 0);
    let stored = serde_json::to_string(&replay).unwrap();
    assert_eq!(serde_json::from_str::<Replay>(&stored).unwrap(), replay);
}

#[test]
fn replay_items_that_would_be_refused_are_not_sent() {
    let call = ITEMS[2];
    let cases: [(&str, Vec<&str>, Why); 15] = [
        ("reasoning last", vec![call, ITEMS[0]], Why::NotTogether),
        ("two in a row", vec![ITEMS[0], r#"{"type":"reasoning","summary":[]}"#, call], Why::NotTogether),
        ("no summary", vec![r#"{"type":"reasoning","id":"rs_1"}"#, call], Why::Malformed),
        ("no call", vec![ITEMS[1]], Why::CallsDiffer),
        (
            "another id",
            vec![r#"{"type":"function_call","call_id":"B","name":"Read","arguments":""}"#],
            Why::CallsDiffer,
        ),
        (
            "another form",
            vec![r#"{"type":"custom_tool_call","call_id":"A","name":"Read","input":""}"#],
            Why::CallsDiffer,
        ),
        (
            "one too many",
            vec![call, r#"{"type":"function_call","call_id":"B","name":"R","arguments":""}"#],
            Why::CallsDiffer,
        ),
        ("a screen", vec![call, r#"{"type":"computer_call","call_id":"C"}"#], Why::CallsDiffer),
        ("one id twice", vec![ITEMS[1], ITEMS[1], call], Why::Repeated),
        ("no JSON", vec!["{\"type\":\"x\"", call], Why::Malformed),
        ("no object", vec!["[]", call], Why::Malformed),
        ("half a pair", vec![r#"{"type":"x","y":"\ud83d"}"#, call], Why::Malformed),
        ("two values", vec![r#"{"type":"x"},{"type":"y"}"#, call], Why::Malformed),
        (
            "an output",
            vec![call, r#"{"type":"function_call_output","call_id":"A","output":""}"#],
            Why::Malformed,
        ),
        ("a user", vec![r#"{"type":"message","role":"user","content":[]}"#, call], Why::Malformed),
    ];
    for (name, items, why) in cases {
        let log = replayed(vec![attached(2, &items).into()]);
        let rendering = rendering(&log, &target(Api::Responses, "m"));
        let dropped = Dropped { position: Position(3), what: What::ReplayItems, why };
        assert_eq!(rendering.dropped, [dropped], "{name}");
    }
    // As OpenAI gives them: thoughts and its own searches in turns, a hosted shell with its output.
    let search = [
        r#"{"id":"rs_a","type":"reasoning","summary":[]}"#,
        r#"{"id":"ws_a","type":"web_search_call","status":"completed","action":{"type":"search","query":"x"}}"#,
        r#"{"id":"rs_b","type":"reasoning","summary":[]}"#,
        r#"{"id":"sh_a","type":"shell_call","call_id":"S"}"#,
        r#"{"id":"so_a","type":"shell_call_output","call_id":"S","output":[]}"#,
        ITEMS[2],
        r#"{"id":"cmp_a","type":"compaction","encrypted_content":"g"}"#,
    ];
    let log = replayed(vec![attached(2, &search).into()]);
    assert_eq!(rendering(&log, &target(Api::Responses, "m")).dropped, []);
}

#[test]
fn an_item_is_not_sent_twice() {
    let log =
        replayed(vec![answer(3, vec![Part::text("again")], &[]).into(), attached(3, &ITEMS[1..2]).into()]);
    let rendering = rendering(&log, &target(Api::Responses, "m"));
    let dropped = Dropped { position: Position(6), what: What::ReplayItems, why: Why::Repeated };
    assert_eq!(rendering.dropped, [dropped]);
}

/// Call ids repeat in real logs: the context gives the second one another id, and the items have the old one.
#[test]
fn replay_items_follow_the_ids_of_the_context() {
    let log = replayed(vec![
        answer(3, vec![], &["A"]).into(),
        attached(3, &[r#"{"type":"function_call","call_id":"A","name":"Read","arguments":"{}"}"#]).into(),
    ]);
    let rendering = rendering(&log, &target(Api::Responses, "m"));
    let dropped = Dropped { position: Position(6), what: What::ReplayItems, why: Why::CallsDiffer };
    assert_eq!(rendering.dropped[0], dropped);
}

fn with_arguments(arguments: impl Into<RawBytes>, form: CallForm) -> Log {
    let asked = ToolCall { arguments: arguments.into(), form, ..tool_call("A", "Read", "") };
    let said = MessageAppended { tool_calls: vec![asked], ..answer(2, vec![], &[]) };
    log(vec![message(1, Role::User, "go", &[]).into(), said.into()])
}

/// T13: half a surrogate pair, and all else that models write as arguments.
#[test]
fn t13_arguments_are_kept_whatever_they_are() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    for text in [
        "{\"a\": 1 ,\"b\":2}",
        "{\"path\":",
        "[1]",
        r#"{"k":"\ud83d"}"#,
        "{\"n\":1e999}",
        "\u{2028}\0",
        &deep,
    ] {
        let log = with_arguments(text, CallForm::Function);
        assert_eq!(chat(&log)[1]["tool_calls"][0]["function"]["arguments"], text);
        assert_eq!(chat(&log)[1]["content"], Value::Null);
        assert_eq!(responses(&log)[1]["arguments"], text);
        let input = anthropic(&log)[1]["content"][0]["input"].clone();
        let expected = match text.starts_with("{\"a\": 1") {
            true => serde_json::from_str(text).unwrap(),
            false => json!({ "_raw": text }),
        };
        assert_eq!(input, expected);
    }
    let exact = "{\"z\": 1.50,\n \"a\":\"\\u00e9\"}";
    let body =
        rendering(&with_arguments(exact, CallForm::Function), &target(Api::AnthropicMessages, "m")).body;
    assert!(String::from_utf8(body).unwrap().contains(&format!("\"input\":{exact}")));

    let empty = with_arguments(" ", CallForm::Function);
    assert_eq!(chat(&empty)[1]["tool_calls"][0]["function"]["arguments"], "{}");
    assert_eq!(anthropic(&empty)[1]["content"][0]["input"], json!({}));
    let bytes = with_arguments(vec![b'{', 0xff], CallForm::Function);
    assert_eq!(chat(&bytes)[1]["tool_calls"][0]["function"]["arguments"], "{\u{fffd}");
}

#[test]
fn free_text_tools_have_their_own_form() {
    let mut log = with_arguments("*** Begin Patch", CallForm::Custom);
    log.force(NodeId::ROOT, finished(call(2, 0), "ok"));
    let expected =
        json!({"type": "custom", "id": "A", "custom": {"name": "Read", "input": "*** Begin Patch"}});
    assert_eq!(chat(&log)[1]["tool_calls"][0], expected);
    let expected =
        json!({"type": "custom_tool_call", "call_id": "A", "name": "Read", "input": "*** Begin Patch"});
    assert_eq!(responses(&log)[1], expected);
    assert_eq!(
        responses(&log)[2],
        json!({"type": "custom_tool_call_output", "call_id": "A", "output": "ok"})
    );
    assert_eq!(anthropic(&log)[1]["content"][0]["input"], json!({"_raw": "*** Begin Patch"}));
    // An object in free text is still free text.
    let log = with_arguments("{}", CallForm::Custom);
    assert_eq!(anthropic(&log)[1]["content"][0]["input"], json!({"_raw": "{}"}));
}

fn log_of_calls(ids: &[&str]) -> Log {
    log(vec![message(1, Role::User, "go", &[]).into(), answer(2, vec![], ids).into()])
}

fn chat_ids(log: &Log) -> Vec<String> {
    let calls = chat(log)[1]["tool_calls"].as_array().unwrap().clone();
    calls.iter().map(|call| call["id"].as_str().unwrap().to_owned()).collect()
}

/// agno#5382: a call id of one provider was too long for the next one.
#[test]
fn ids_and_names_are_made_to_fit_in_call_and_result_alike() {
    let long = "fc_0f0e50a1476a6c35006912c58dc9f8819192c25864eb16f07f";
    let mut said = answer(2, vec![], &[long, "a.b", "a b", "ok"]);
    said.tool_calls[1].name = "mcp.server/tool".into();
    said.tool_calls[2].name = "n".repeat(100);
    let log = log(vec![message(1, Role::User, "go", &[]).into(), said.into()]);
    let (chat, ids) = (chat(&log), chat_ids(&log));
    assert!(ids[0].starts_with("fc_0f0e50a1476a6c3500691-") && ids[0].len() <= 40);
    assert!(ids[1].starts_with("ab-") && ids[2].starts_with("ab-") && ids[1] != ids[2]);
    assert_eq!(ids[3], "ok");
    let answers: Vec<&str> = (2..6).map(|at| chat[at]["tool_call_id"].as_str().unwrap()).collect();
    assert_eq!(answers, ids);
    assert_eq!(chat[1]["tool_calls"][1]["function"]["name"], "mcp_server_tool");
    // An id does not hang on the calls around it, so it stays the same behind a compaction.
    let alone = log_of_calls(&["a b"]);
    assert_eq!(chat_ids(&alone), ids[2..3]);
    // 53 characters are fine elsewhere, and so are 100 of a name at Anthropic.
    assert_eq!(responses(&log)[1]["call_id"], long);
    let calls = anthropic(&log)[1]["content"].clone();
    assert_eq!((&calls[0]["id"], calls[2]["name"].as_str().unwrap().len()), (&json!(long), 100));
    let adjusted = rendering(&log, &target(Api::ChatCompletions, "m")).adjusted;
    let replaced = adjusted.iter().filter(|it| matches!(it.how, Adjustment::IdReplaced { .. })).count();
    assert_eq!((replaced, adjusted.len()), (3, 5));
}

#[test]
fn images_and_files_have_a_place_or_a_reason() {
    let url = |url: &str| Part::Image(media(MediaSource::Url(url.into()), None));
    let wrong = Part::Image(media(MediaSource::Base64(PNG.into()), Some("image/jpeg")));
    let pdf = Part::File(Media {
        name: Some("a.pdf".into()),
        ..media(MediaSource::Base64("JVBERi0=".into()), None)
    });
    let parts = vec![
        wrong,
        url("https://e.org/a"),
        url("data:image/gif;base64,R0lGOD"),
        url("data:image/gif;base64,R0lGODAA"),
        url("http://e.org/a"),
        Part::Image(media(MediaSource::FileId("file-o".into()), None)),
        Part::Image(media(MediaSource::FileId("file_a".into()), None)),
        Part::Image(media(MediaSource::Base64("????".into()), Some("image/png"))),
        pdf,
        Part::File(media(MediaSource::Base64("AAAA".into()), Some("text/csv"))),
    ];
    let log = log(vec![user(1, parts).into()]);
    let kinds = |value: &Value| -> Vec<String> {
        value[0]["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["type"].as_str().unwrap().to_owned())
            .collect()
    };
    let chat = chat(&log);
    assert_eq!(kinds(&chat), ["image_url", "image_url", "image_url", "image_url", "file"]);
    assert_eq!(chat[0]["content"][0]["image_url"]["url"], format!("data:image/png;base64,{PNG}"));
    let file = json!({"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="});
    assert_eq!(chat[0]["content"][4]["file"], file);
    let responses = responses(&log);
    assert_eq!(kinds(&responses)[5..], ["input_file", "input_file"]);
    assert_eq!(responses[0]["content"][4], json!({"type": "input_image", "file_id": "file-o"}));
    let anthropic = anthropic(&log);
    assert_eq!(kinds(&anthropic), ["image", "image", "image", "image", "document"]);
    let source = json!({"type": "base64", "media_type": "image/png", "data": PNG});
    assert_eq!(anthropic[0]["content"][0]["source"], source);
    assert_eq!(anthropic[0]["content"][3]["source"], json!({"type": "file", "file_id": "file_a"}));
    let dropped = rendering(&log, &target(Api::AnthropicMessages, "m")).dropped;
    let whys: Vec<Why> = dropped.iter().map(|it| it.why).collect();
    assert_eq!(
        whys,
        [Why::Malformed, Why::Malformed, Why::NoPlace, Why::OtherApi, Why::NoPlace][..].to_vec()
    );
}

#[test]
fn images_of_results_stand_behind_the_results_where_results_are_text() {
    let shot = |tool_index, text: &str| {
        let parts = vec![Part::text(text), png()];
        CallFinished { parts, ..finished(call(2, tool_index), "") }
    };
    let log = log(vec![
        message(1, Role::User, "go", &[]).into(),
        answer(2, vec![], &["A", "B"]).into(),
        shot(0, "first").into(),
        shot(1, "second").into(),
        message(3, Role::User, "on", &[]).into(),
    ]);
    let messages = chat(&log);
    let roles: Vec<&str> =
        messages.as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "user", "user"]);
    assert_eq!(messages[2]["content"], "first");
    assert_eq!(messages[4]["content"][2], json!({"type": "text", "text": "From the result of B:"}));
    assert_eq!(messages[4]["content"].as_array().unwrap().len(), 4);
    let mut without_user = log.clone();
    without_user.events.pop();
    assert_eq!(chat(&without_user).as_array().unwrap().len(), 5);
    assert_eq!(responses(&log)[3]["output"][1]["type"], "input_image");
    assert_eq!(anthropic(&log)[2]["content"][0]["content"][1]["type"], "image");
}

#[test]
fn empty_and_blank_content() {
    let log = log(vec![
        message(1, Role::System, " ", &[]).into(),
        message(2, Role::User, "\n\u{1f}", &[]).into(),
        answer(3, vec![Part::text(" "), Part::text("x ")], &["A"]).into(),
        finished(call(3, 0), "").into(),
        answer(4, vec![Part::text("  ")], &[]).into(),
        message(5, Role::User, "on", &[]).into(),
    ]);
    assert_eq!(chat(&log)[2]["content"], " \nx ");
    assert_eq!(chat(&log)[3]["content"], "");
    assert_eq!(responses(&log)[4]["output"], "");
    let rendering = rendering(&log, &target(Api::AnthropicMessages, "m"));
    let expected = json!([
        {"role": "user", "content": [{"type": "text", "text": "(continued)"}]},
        {"role": "assistant", "content": [
            {"type": "text", "text": "x "},
            {"type": "tool_use", "id": "A", "name": "Read", "input": {}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "A"}, {"type": "text", "text": "on"}]},
    ]);
    assert_eq!(value(&rendering)["messages"], expected);
    let messages = rendering.dropped.iter().filter(|it| it.what == What::Message).count();
    assert_eq!(messages, 3);
    assert_eq!(rendering.adjusted, [Adjusted { position: Position(4), how: Adjustment::UserInserted }]);
}

/// No provider takes a request without messages: after a clear, or where Anthropic is given only a system's words.
#[test]
fn where_there_is_nothing_to_send_the_user_says_so() {
    let filled = |position| Adjusted { position: Position(position), how: Adjustment::UserInserted };
    for api in [Api::ChatCompletions, Api::Responses, Api::AnthropicMessages] {
        let rendering = render(&[], &NodeReplay::default(), &target(api, "m"));
        assert_eq!(check(api, &value(&rendering)), Ok(()));
        assert_eq!((rendering.messages, &rendering.adjusted[..]), (1, &[filled(0)][..]));
        // The rules themselves do say that there must be one.
        let empty = if api == Api::Responses { json!({"input": []}) } else { json!({"messages": []}) };
        assert_eq!(check(api, &empty).unwrap_err().rule, "must have at least one item");
    }
    let log = log(vec![message(1, Role::System, "be brief", &[]).into()]);
    let rendering = render(&log.context(), &NodeReplay::default(), &target(Api::AnthropicMessages, "m"));
    assert_eq!(value(&rendering)["system"][0]["text"], "be brief");
    assert_eq!((rendering.messages, &rendering.adjusted[..]), (1, &[filled(2)][..]));
    assert_eq!(chat(&log).as_array().unwrap().len(), 1);
}

#[test]
fn instructions_in_the_middle_keep_their_place() {
    let log = log(vec![
        message(1, Role::System, "first", &[]).into(),
        message(2, Role::Developer, "second", &[]).into(),
        message(3, Role::User, "go", &[]).into(),
        message(4, Role::System, "mind the time", &[]).into(),
    ]);
    let whole = value(&rendering(&log, &target(Api::AnthropicMessages, "m")));
    assert_eq!(
        whole["system"],
        json!([{"type": "text", "text": "first"}, {"type": "text", "text": "second"}])
    );
    assert_eq!(whole["messages"][0]["content"][1]["text"], "<system>\nmind the time\n</system>");
    assert_eq!(chat(&log)[3]["role"], "system");
    assert_eq!(responses(&log)[1]["role"], "developer");
}

#[test]
fn strings_survive_as_escapes() {
    let text = "\0 \u{2028}\u{2029}\u{85} \u{1f511} \\ud83d \"";
    let log = log(vec![user(1, vec![Part::text(text)]).into()]);
    for api in [Api::ChatCompletions, Api::Responses, Api::AnthropicMessages] {
        let body = String::from_utf8(rendering(&log, &target(api, "m")).body).unwrap();
        assert!(body.contains(r#""\u0000 \u2028\u2029\u0085 🔑 \\ud83d \"""#), "{body}");
    }
    assert_eq!(chat(&log)[0]["content"], text);
}

#[test]
fn blocks_of_their_own_kind() {
    let raw = |json: &str| Part::Raw(json.into());
    let used = r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q": "x"}}"#;
    let found = r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[ ]}"#;
    let of = |parts: Vec<Part>, model: &str| {
        let log = log(vec![
            message(1, Role::User, "go", &[]).into(),
            answer(2, parts, &[]).into(),
            message(3, Role::User, "on", &[]).into(),
        ]);
        String::from_utf8(rendering(&log, &target(Api::AnthropicMessages, model)).body).unwrap()
    };
    let both = vec![signed("t", "s"), raw(used), raw(found), Part::text("so")];
    assert!(of(both.clone(), "m").contains(&format!("{used},{found}")));
    assert!(!of(both, "m2").contains("srvtoolu"));
    for parts in [vec![raw(used)], vec![raw(found)], vec![raw(found), raw(used)]] {
        let with_text = [parts, vec![Part::text("so")]].concat();
        assert!(!of(with_text, "m").contains("srvtoolu"));
    }
    let twice = of(vec![raw(used), raw(found), raw(found)], "m");
    assert_eq!(twice.matches("web_search_tool_result").count(), 1);
    let refusal = r#"{"type":"refusal","refusal":"I won't."}"#;
    for api in [Api::ChatCompletions, Api::Responses, Api::AnthropicMessages] {
        let log =
            log(vec![message(1, Role::User, "go", &[]).into(), answer(2, vec![raw(refusal)], &[]).into()]);
        assert!(String::from_utf8(rendering(&log, &target(api, "m")).body).unwrap().contains("I won't."));
    }
}

/// Gemini refuses a call without the signature that it gave.
#[test]
fn the_signature_of_a_call_goes_back_to_its_model() {
    let mut said = answer(2, vec![], &["A"]);
    said.tool_calls[0].extra =
        Some(r#"{"index":0,"extra_content":{"google":{"thought_signature":"x"}}}"#.into());
    let log = log(vec![message(1, Role::User, "go", &[]).into(), said.into()]);
    assert_eq!(chat(&log)[1]["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "x");
    assert_eq!(chat(&log)[1]["tool_calls"][0].get("index"), None);
    let other = value(&rendering(&log, &target(Api::ChatCompletions, "m2")));
    assert_eq!(other["messages"][1]["tool_calls"][0].get("extra_content"), None);
}

#[test]
fn artifacts_are_shown_by_their_preview() {
    let receipt = ArtifactReceipt {
        digest: Digest::of(b"x"),
        len: 70_000,
        media_type: Some("image/png".into()),
        preview: "first lines".into(),
    };
    let log = log(vec![user(1, vec![Part::Image(media(MediaSource::Artifact(receipt), None))]).into()]);
    let content = chat(&log)[0]["content"].as_str().unwrap().to_owned();
    assert!(
        content.starts_with("[artifact: 70000 bytes, image/png, ") && content.ends_with("]\nfirst lines")
    );
}

#[test]
fn names_and_phases() {
    let named = |name: &str| MessageAppended { name: Some(name.into()), ..message(1, Role::User, "go", &[]) };
    assert_eq!(chat(&log(vec![named("ann").into()]))[0]["name"], "ann");
    assert_eq!(chat(&log(vec![named("a b").into()]))[0].get("name"), None);
    let phased = |phase: &str| {
        let said = MessageAppended { phase: Some(phase.into()), ..answer(1, vec![Part::text("x")], &[]) };
        responses(&log(vec![said.into()]))[0].get("phase").cloned()
    };
    assert_eq!(phased("final_answer"), Some(json!("final_answer")));
    assert_eq!(phased("other"), None);
}

#[test]
fn words_of_the_apis() {
    for api in [Api::ChatCompletions, Api::Responses, Api::AnthropicMessages] {
        assert_eq!(api.to_string().parse(), Ok(api));
    }
    assert_eq!("Chat".parse::<Api>(), Err(UnknownApi("Chat".into())));
}

/// 64 MiB in one body, and many small messages: time and room grow with the body only. Without optimisation, 4 MiB.
#[test]
fn large_bodies_are_written_once() {
    let quarter = if cfg!(debug_assertions) { 1 << 20 } else { 16 << 20 };
    let image = format!("{PNG_START}{}", "A".repeat(quarter));
    let arguments = format!("{{\"a\":\"{}\"}}", "x".repeat(quarter)).into();
    let said = MessageAppended {
        tool_calls: vec![ToolCall { arguments, ..tool_call("A", "Read", "") }],
        ..answer(2, vec![], &[])
    };
    let image = Part::Image(media(MediaSource::Base64(image), None));
    let mut events: Vec<Event> = vec![
        user(1, vec![Part::text("t".repeat(quarter)), image]).into(),
        said.into(),
        finished(call(2, 0), &"r".repeat(quarter)).into(),
    ];
    for number in 3..5_000u64 {
        events.push(answer(number, vec![Part::text("x")], &[&format!("c.{number}")]).into());
    }
    let context = log(events).context();
    for api in [Api::ChatCompletions, Api::Responses, Api::AnthropicMessages] {
        let rendering = render(&context, &NodeReplay::default(), &target(api, "m"));
        assert!((4 * quarter..4 * quarter + (3 << 20)).contains(&rendering.body.len()));
        assert_eq!(check(api, &value(&rendering)), Ok(()));
    }
}

const PNG_START: &str = "iVBORw0KGgoA";

/// Bodies that a provider refuses, each with one thing wrong.
#[test]
fn chat_rules() {
    let fine = value(&rendering(&two_calls(), &target(Api::ChatCompletions, "m")));
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let image = |url: &str| user(json!([{"type": "image_url", "image_url": {"url": url}}]));
    refuses(
        validate_chat,
        &fine,
        &[
            ("/messages/1/role", json!("function"), "role is unknown"),
            ("/messages/1/content", json!(""), "content must not be empty"),
            ("/messages/2/content", json!([{"type": "image_url"}]), "must be text"),
            ("/messages/2/tool_calls/1/id", json!("A"), "id was used before"),
            ("/messages/2/tool_calls/1/id", json!(""), "must not be empty"),
            ("/messages/2/tool_calls/1/id", json!("x".repeat(41)), "id: string too long"),
            ("/messages/2/tool_calls/1/type", json!("x"), "type must be function or custom"),
            ("/messages/2/tool_calls/1/function/name", json!("a b"), "must match ^[a-zA-Z0-9_-]+$"),
            ("/messages/2/tool_calls/1/function/arguments", json!({}), "must be a string"),
            ("/messages/2/tool_calls", json!([]), "must have at least one item"),
            ("/messages/3/tool_call_id", json!("B"), "must answer a call directly before, once"),
            ("/messages/3", json!({"role": "user", "content": "x"}), "calls before must be answered first"),
            ("/messages/3/content", json!(null), "must be an array"),
            ("/messages/2/reasoning_content", json!(1), "must be a string"),
            ("/messages/2/content", json!(null), ""),
            ("/messages/1/name", json!("a b"), r"name must match ^[^\s<|\\/>]+$"),
        ],
    );
    let mut cut = fine;
    cut["messages"].as_array_mut().unwrap().pop();
    assert_eq!(validate_chat(&cut).unwrap_err().rule, "all calls must be answered");
    let alone = json!({"messages": [{"role": "assistant", "content": null}]});
    assert_eq!(validate_chat(&alone).unwrap_err().rule, "must have content or tool_calls");
    for (url, rule) in [
        ("ftp://x", "must be an HTTP URL"),
        ("https://", "must be an HTTP URL"),
        ("data:image/png;base64,A", "must be valid base64"),
        ("data:image/tiff;base64,AAAA", "media type is not supported"),
    ] {
        assert_eq!(validate_chat(&image(url)).unwrap_err().rule, rule);
    }
    assert_eq!(validate_chat(&image("https://x/a.png")), Ok(()));
}

#[test]
fn responses_rules() {
    let fine = value(&rendering(&replayed(vec![]), &target(Api::Responses, "m")));
    refuses(
        validate_responses,
        &fine,
        &[
            ("/input", json!([]), "must have at least one item"),
            ("/input/0/role", json!("tool"), "role is unknown"),
            (
                "/input/0/content/0/type",
                json!("output_text"),
                "must be input_text, input_image or input_file",
            ),
            (
                "/input/0/phase",
                json!("commentary"),
                "phase must be commentary or final_answer, of the assistant's",
            ),
            ("/input/1/summary", json!("x"), "must have a summary"),
            ("/input/2/content/0/type", json!("input_text"), "supported values are: output_text and refusal"),
            ("/input/2/id", json!("rs_1"), "item id was used before"),
            ("/input/2/type", json!("x"), ""),
            (
                "/input/2",
                json!({"type": "reasoning", "summary": []}),
                "reasoning must be directly followed by what it led to",
            ),
            (
                "/input/2",
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}),
                "reasoning must be directly followed by what it led to",
            ),
            ("/input/3/arguments", json!({}), "must be a string"),
            ("/input/3/call_id", json!("x".repeat(65)), "call_id: string too long"),
            ("/input/3/call_id", json!("B"), "must answer a call of its kind, once"),
            ("/input/4/type", json!("custom_tool_call_output"), "must answer a call of its kind, once"),
            (
                "/input/4",
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}),
                "calls before must be answered first",
            ),
            (
                "/input/4/output",
                json!([{"type": "output_text", "text": "x"}]),
                "must be input_text, input_image or input_file",
            ),
        ],
    );
    let mut cut = fine;
    cut["input"].as_array_mut().unwrap().pop();
    assert_eq!(validate_responses(&cut).unwrap_err().rule, "all calls must be answered");
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of rules")]
fn anthropic_rules() {
    let log = log(vec![
        message(1, Role::System, "be brief", &[]).into(),
        user(2, vec![Part::text("go"), png()]).into(),
        answer(3, vec![signed("t", "s"), Part::text("reading")], &["A", "B"]).into(),
        message(4, Role::User, "on", &[]).into(),
        answer(5, vec![Part::text("half")], &[]).into(),
    ]);
    let fine = value(&rendering(&log, &target(Api::AnthropicMessages, "m")));
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id});
    let text = json!({"type": "text", "text": "x"});
    refuses(
        validate_anthropic,
        &fine,
        &[
            ("/messages", json!([]), "must have at least one item"),
            ("/messages/0/role", json!("assistant"), "user and assistant must alternate, the user first"),
            ("/messages/1/role", json!("user"), "user and assistant must alternate, the user first"),
            ("/system/0/text", json!("\n"), "text must contain non-whitespace text"),
            ("/messages/0/content/0/text", json!("\u{1f} "), "text must contain non-whitespace text"),
            ("/messages/0/content", json!([]), "must have at least one item"),
            ("/messages/0/content/0", json!({"type": "thinking"}), "is no block of a user message"),
            ("/messages/0/content/1/source/media_type", json!("image/tiff"), "media type is not supported"),
            ("/messages/0/content/1/source/data", json!("A"), "must be valid base64"),
            (
                "/messages/0/content/1/source",
                json!({"type": "url", "url": "http://x"}),
                "only HTTPS URLs are supported",
            ),
            ("/messages/1/content/0/signature", json!(""), "must not be empty"),
            ("/messages/1/content/0", text, ""),
            ("/messages/1/content/1", json!({"type": "thinking", "thinking": "", "signature": "s"}), ""),
            ("/messages/1/content/0", json!({"type": "image"}), "is no block of an assistant message"),
            ("/messages/1/content/2", json!({"type": "redacted_thinking", "data": ""}), "must not be empty"),
            ("/messages/1/content/2/id", json!("a.b"), "must match ^[a-zA-Z0-9_-]+$"),
            ("/messages/1/content/3/id", json!("A"), "tool_use ids must be unique"),
            ("/messages/1/content/2/input", json!("{}"), "input must be an object"),
            ("/messages/1/content/2/name", json!("x".repeat(129)), "string too long"),
            ("/messages/2/content/1", result("A"), "must answer a call of the message before, once"),
            (
                "/messages/2/content/1",
                json!({"type": "text", "text": "x"}),
                "all calls of the message before must be answered",
            ),
            (
                "/messages/2/content/0",
                json!({"type": "text", "text": "x"}),
                "results must come before anything else",
            ),
            ("/messages/2/content/2", result("C"), "must answer a call of the message before, once"),
            (
                "/messages/3/content/0/text",
                json!("half "),
                "final assistant content cannot end with trailing whitespace",
            ),
            (
                "/messages/3/content/0",
                json!({"type": "thinking", "thinking": "t", "signature": "s"}),
                "the final block cannot be thinking",
            ),
            (
                "/messages/3/content",
                json!([{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "x"}]),
                "an answer to be continued cannot contain thinking",
            ),
            (
                "/messages/1/content/1",
                json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "x", "input": {}}),
                "calls that the provider runs need their result",
            ),
        ],
    );
    let mut late = fine.clone();
    late["messages"][1]["content"].as_array_mut().unwrap().swap(0, 1);
    assert_eq!(
        validate_anthropic(&late).unwrap_err().rule,
        "the first block must be thinking, where there is any"
    );
    let mut cut = fine;
    cut["messages"].as_array_mut().unwrap().truncate(2);
    assert_eq!(validate_anthropic(&cut).unwrap_err().rule, "all calls must be answered");
}

/// With this at that place, this rule is broken; none: it is fine.
#[track_caller]
fn refuses(
    validate: fn(&Value) -> Result<(), RuleBroken>,
    fine: &Value,
    cases: &[(&str, Value, &'static str)],
) {
    assert_eq!(validate(fine), Ok(()));
    for (place, value, rule) in cases {
        let mut body = fine.clone();
        let (parent, key) = place.rsplit_once('/').unwrap();
        match body.pointer_mut(place) {
            Some(there) => *there = value.clone(),
            None => {
                let parent = body.pointer_mut(parent).unwrap();
                parent.as_object_mut().unwrap().insert(key.to_owned(), value.clone());
            }
        }
        let found = validate(&body).map_err(|broken| broken.rule);
        let expected = if rule.is_empty() { Ok(()) } else { Err(*rule) };
        assert_eq!(found, expected, "{place} {value}");
    }
}
