//! Whatever is in a log, no provider refuses what is rendered of it.

#![allow(clippy::cast_possible_wrap, reason = "of small numbers")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(clippy::cast_possible_truncation, reason = "of small numbers")]

mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;
use sessionlog_codec::RawBytes;
use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_codec::record::TimeOrigin;
use sessionlog_projections::render::*;
use sessionlog_projections::*;
use support::{compacted, finished, range, resolved, started};

const MODELS: [&str; 3] = ["claude-x", "deepseek/reasoner", "gpt-x"];

/// What happens next in a random conversation.
#[derive(Clone, Debug)]
enum Step {
    Said(Role, Vec<Part>, Option<String>),
    Answered(Vec<Part>, Vec<ToolCall>, Option<&'static str>, Option<String>),
    Extended(u8, Vec<Part>),
    /// The provider's items of the last answer, and what is wrong with them.
    Replayed(Flaw, &'static str),
    Started(u8),
    Finished(u8, ResultFlag, Vec<Part>),
    Resolved(u8),
    Withdrawn(u8),
    Compacted(u8, u8, Role, &'static str),
    Cleared,
    Moved(u8),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    Nothing,
    Spaced,
    OtherApi,
    OtherCalls,
    Cut,
    NoJson,
    HalfPair,
    Unfinished,
    TwoThoughts,
    SameId,
    Deep,
    ComputerCall,
}

fn texts() -> impl Strategy<Value = String> {
    let odd = [
        "",
        " ",
        "\n\t",
        "\u{1f}",
        "\u{a0}",
        "a\0b",
        "\u{2028}x\u{2029}\u{85}",
        "ends \n ",
        "</system>",
        "\"}\\",
        "\u{1f511}\u{200b}",
        "\\ud83d",
        "\u{feff}",
    ];
    prop_oneof![select(odd.to_vec()).prop_map(str::to_owned), "[a-z]{1,8}", any::<String>()]
}

/// Thoughts and signatures that name the model that thought them; numbers are filled in later.
fn reasoning() -> impl Strategy<Value = Part> {
    (0..7u8, select(&["", "hm ", "\u{2028}"][..])).prop_map(|(form, text)| {
        let (text, form) = match form {
            0 => (format!("{text}THOUGHT"), ReasoningForm::Plain),
            1 => (format!("{text}THOUGHT"), ReasoningForm::Signed(None)),
            2 => (format!("{text}THOUGHT"), ReasoningForm::Signed(Some(String::new()))),
            3 | 4 => (format!("{text}THOUGHT"), ReasoningForm::Signed(Some("SIGNATURE".into()))),
            5 => (String::new(), ReasoningForm::Opaque("SIGNATURE".into())),
            _ => ("THOUGHT".to_owned(), ReasoningForm::Summary),
        };
        Part::Reasoning(Reasoning { text, form })
    })
}

fn media() -> impl Strategy<Value = Media> {
    let receipt =
        ArtifactReceipt { digest: Digest::default(), len: 9, media_type: None, preview: " ".into() };
    let sources = vec![
        MediaSource::Base64("iVBORw0KGgo=".into()),
        MediaSource::Base64("JVBERi0=".into()),
        MediaSource::Base64("AAAA".into()),
        MediaSource::Base64("A A=".into()),
        MediaSource::Base64("====".into()),
        MediaSource::Base64(String::new()),
        MediaSource::Url("https://example.org/a.png".into()),
        MediaSource::Url("http://example.org/a b".into()),
        MediaSource::Url("http://example.org/a".into()),
        MediaSource::Url("https://".into()),
        MediaSource::Url("data:image/png;base64,AAAA".into()),
        MediaSource::Url("data:;base64,AAAA".into()),
        MediaSource::Url("data:text/plain,hello".into()),
        MediaSource::Url("file:///etc/passwd".into()),
        MediaSource::FileId("file-abc".into()),
        MediaSource::FileId("file_01".into()),
        MediaSource::FileId(String::new()),
        MediaSource::Artifact(receipt),
    ];
    let types = ["image/png", "IMAGE/JPG", "image/tiff", "application/pdf", "text/plain", "x", "a/b;c=\"d\""];
    let kinds =
        (prop::option::of(select(types.to_vec())), prop::option::of(select(&["low", "auto", "x"][..])));
    (select(sources), kinds, prop::option::of(texts())).prop_map(|(source, (kind, detail), name)| Media {
        source,
        media_type: kind.map(str::to_owned),
        name,
        detail: detail.map(str::to_owned),
        extra: None,
    })
}

fn raw() -> impl Strategy<Value = Part> {
    let blocks = [
        r#"{"type":"refusal","refusal":"I won't."}"#.to_owned(),
        r#"{"type":"refusal","refusal":""}"#.to_owned(),
        r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q":"x"}}"#.to_owned(),
        r#" {"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}"#.to_owned(),
        r#"{"type":"server_tool_use","id":"A","name":"web_search","input":{}}"#.to_owned(),
        r#"{"type":"web_search_tool_result","tool_use_id":"A","content":{"e":1}}"#.to_owned(),
        r#"{"type":"server_tool_use","id":"s 2","name":"web_search","input":[]}"#.to_owned(),
        r#"{"type":"tool_result","tool_use_id":"A","content":"x"}"#.to_owned(),
        r#"{"type":"tool_use","id":"A","name":"x","input":{}}"#.to_owned(),
        r#"{"type":"thinking","thinking":"x"}"#.to_owned(),
        r#"{"type":"half","x":"\ud83d"}"#.to_owned(),
        r#"{"type":"text","text":"x","citations":[]}"#.to_owned(),
        format!(r#"{{"type":"deep","x":{}{}}}"#, "[".repeat(4000), "]".repeat(4000)),
        "[]".to_owned(),
        "{".to_owned(),
        String::new(),
    ];
    let bytes = select(blocks.to_vec()).prop_map(RawBytes::from);
    prop_oneof![9 => bytes, 1 => Just(RawBytes(vec![b'"', 0xff]))].prop_map(Part::Raw)
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![
        6 => texts().prop_map(Part::Text),
        4 => reasoning(),
        1 => media().prop_map(Part::Image),
        1 => media().prop_map(Part::File),
        3 => raw(),
    ];
    vec(part, 0..6)
}

fn tool_calls() -> impl Strategy<Value = Vec<ToolCall>> {
    let ids = ["A", "B", "C", "toolu_01", "", "x y", "x.y", "\u{1f511}"].map(str::to_owned);
    let long = ["l".repeat(41), "l".repeat(65), "a b".repeat(30)];
    let ids: Vec<String> = ids.into_iter().chain(long).collect();
    let names =
        ["Read".to_owned(), "mcp.x/y".to_owned(), String::new(), "\u{e9}".repeat(200), "n".repeat(100)];
    let arguments: Vec<RawBytes> = [
        "",
        " \n",
        "{}",
        " {\"z\": 1,\n\"a\": 2} ",
        "{\"path\":",
        "[1]",
        "null",
        "{\"k\":\"\\ud83d\"}",
        "{\"n\":1e999}",
        "{\"a\":1} {\"b\":2}",
        "{\"u\":\"\u{2028}\"}",
    ]
    .into_iter()
    .map(RawBytes::from)
    .chain([
        RawBytes(vec![b'{', 0xff, b'}']),
        RawBytes(b"{\"a\":\"\xff\"}".to_vec()),
        format!("{{\"a\":{}{}}}", "[".repeat(124), "]".repeat(124)).into(),
    ])
    .collect();
    let extras =
        [r#"{"extra_content":{"google":{"thought_signature":"x"}},"index":0}"#, "{\"extra_content\":1}", "{"];
    let call = (
        select(ids),
        select(names.to_vec()),
        select(arguments),
        prop::bool::weighted(0.2),
        prop::option::of(select(extras.to_vec())),
    );
    let call = call.prop_map(|(call_id, name, arguments, custom, extra)| ToolCall {
        call_id,
        name,
        arguments,
        form: if custom { CallForm::Custom } else { CallForm::Function },
        extra: extra.map(RawBytes::from),
    });
    vec(call, 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let model = prop::option::weighted(0.9, select(&MODELS[..]));
    let label = || prop::option::weighted(0.2, prop_oneof![Just("final_answer".to_owned()), texts()]);
    let roles = [Role::User, Role::User, Role::User, Role::System, Role::Developer, Role::Tool];
    let flaws = [
        Flaw::Nothing,
        Flaw::Nothing,
        Flaw::Nothing,
        Flaw::Spaced,
        Flaw::OtherApi,
        Flaw::OtherCalls,
        Flaw::Cut,
        Flaw::NoJson,
        Flaw::HalfPair,
        Flaw::Unfinished,
        Flaw::TwoThoughts,
        Flaw::SameId,
        Flaw::Deep,
        Flaw::ComputerCall,
    ];
    let flags = [ResultFlag::Normal, ResultFlag::Error];
    let summaries = ["", " ", "what was"];
    prop_oneof![
        5 => (select(roles.to_vec()), parts(), label()).prop_map(|(role, parts, name)| Step::Said(role, parts, name)),
        9 => (parts(), tool_calls(), model, label())
            .prop_map(|(parts, calls, model, phase)| Step::Answered(parts, calls, model, phase)),
        1 => (any::<u8>(), parts()).prop_map(|(n, parts)| Step::Extended(n, parts)),
        5 => (select(flaws.to_vec()), select(&MODELS[..])).prop_map(|(flaw, model)| Step::Replayed(flaw, model)),
        1 => any::<u8>().prop_map(Step::Started),
        5 => (any::<u8>(), select(flags.to_vec()), parts()).prop_map(|(n, flag, parts)| Step::Finished(n, flag, parts)),
        1 => any::<u8>().prop_map(Step::Resolved),
        1 => any::<u8>().prop_map(Step::Withdrawn),
        1 => (any::<u8>(), any::<u8>(), select(roles.to_vec()), select(summaries.to_vec()))
            .prop_map(|(a, b, role, text)| Step::Compacted(a, b, role, text)),
        1 => Just(Step::Cleared),
        1 => any::<u8>().prop_map(Step::Moved),
    ]
}

/// A log while it is written.
#[derive(Default)]
struct Writer {
    events: Vec<LoggedEvent>,
    messages: Vec<MessageAppended>,
    thoughts: u32,
}

impl Writer {
    fn of(steps: &[Step]) -> Self {
        let mut writer = Self::default();
        for step in steps {
            let event = writer.event(step);
            writer.events.extend(event.map(|event| LoggedEvent {
                position: Position(writer.events.len() as u64 + 1),
                node: NodeId::ROOT,
                timestamp: Timestamp(0),
                time_origin: TimeOrigin::Clock,
                cause: None,
                event,
            }));
        }
        writer
    }

    fn event(&mut self, step: &Step) -> Option<Event> {
        let number = |n: u8| MessageNo(u64::from(n) % (self.messages.len() as u64 + 1) + 1);
        Some(match step {
            Step::Said(role, parts, name) => {
                let message = MessageAppended { role: *role, name: name.clone(), ..self.blank(parts, None) };
                self.append(message)
            }
            Step::Answered(parts, calls, model, phase) => {
                let mut message = self.blank(parts, *model);
                message.role = Role::Assistant;
                message.phase.clone_from(phase);
                message.tool_calls.clone_from(calls);
                self.append(message)
            }
            Step::Extended(n, parts) => {
                let message_no = number(*n);
                let model = self.messages.get(message_no.0 as usize - 1)?.model.clone();
                MessageExtended {
                    message_no,
                    parts: self.named(parts, model.as_deref()),
                    tool_calls: Vec::new(),
                    stop_reason: None,
                    usage: None,
                    source: None,
                }
                .into()
            }
            Step::Replayed(flaw, model) => self.replay(*flaw, model)?,
            Step::Started(n) => started(self.call(*n)?, Effect::Mutating, 1).into(),
            Step::Finished(n, flag, parts) => {
                CallFinished { flag: *flag, parts: parts.clone(), ..finished(self.call(*n)?, "") }.into()
            }
            Step::Resolved(n) => resolved(self.call(*n)?, "looked").into(),
            Step::Withdrawn(n) => MessageWithdrawn { message_no: number(*n), reason: String::new() }.into(),
            Step::Compacted(a, b, role, text) => {
                let kept = [range(number(*a).0, number(*b).0)];
                ContextCompacted { summary_role: *role, ..compacted(text, &kept, &[]) }.into()
            }
            Step::Cleared => ContextReset { reason: String::new() }.into(),
            Step::Moved(n) => {
                let to = Position(u64::from(*n) % (self.events.len() as u64 + 1));
                HeadMoved { to, from: Position(0), reason: HeadReason::Undo }.into()
            }
        })
    }

    fn blank(&mut self, parts: &[Part], model: Option<&str>) -> MessageAppended {
        let number = MessageNo(self.messages.len() as u64 + 1);
        let parts = self.named(parts, model);
        MessageAppended {
            parts,
            model: model.map(str::to_owned),
            ..MessageAppended::text(number, Role::User, "")
        }
    }

    fn append(&mut self, message: MessageAppended) -> Event {
        self.messages.push(message.clone());
        message.into()
    }

    /// Each thought names its model and has its own number.
    fn named(&mut self, parts: &[Part], model: Option<&str>) -> Vec<Part> {
        let mut parts = parts.to_vec();
        for part in &mut parts {
            let Part::Reasoning(Reasoning { text, form }) = part else { continue };
            self.thoughts += 1;
            let mark = format!("<{}#{}>", model.unwrap_or("nobody"), self.thoughts);
            *text = text.replace("THOUGHT", &format!("thought{mark}"));
            if let ReasoningForm::Signed(Some(it)) | ReasoningForm::Opaque(it) = form {
                *it = it.replace("SIGNATURE", &format!("signature{mark}"));
            }
        }
        parts
    }

    fn call(&self, n: u8) -> Option<CallRef> {
        let asked =
            self.messages.iter().rev().filter(|it| !it.tool_calls.is_empty()).nth(usize::from(n % 3))?;
        Some(support::call(asked.message_no.0, u32::from(n / 3) % asked.tool_calls.len() as u32))
    }

    /// What the provider would have answered with, but for the flaw.
    fn replay(&self, flaw: Flaw, model: &str) -> Option<Event> {
        let of = self.messages.iter().rfind(|it| it.role == Role::Assistant)?;
        let n = of.message_no.0;
        let id = if flaw == Flaw::SameId { 0 } else { self.events.len() };
        let mut items = vec![format!(
            r#"{{"id":"rs_{id}","type":"reasoning","summary":[],"encrypted_content":"g\u2028"}}"#
        )];
        let space = if flaw == Flaw::Spaced { "\n  " } else { "" };
        items.push(format!(
            r#"{space}{{"type": "message","id":"msg_{id}", "role":"assistant","content":[{{"text":"é said {n}","type":"output_text","annotations":[]}}]}}{space}"#
        ));
        for call in &of.tool_calls {
            let key = if call.form == CallForm::Custom {
                ("custom_tool_call", "input")
            } else {
                ("function_call", "arguments")
            };
            let call_id = serde_json::to_string(&call.call_id).unwrap();
            items.push(format!(
                r#"{{"type":"{}","call_id":{call_id},"name":"Read","{}":"{{}}"}}"#,
                key.0, key.1
            ));
        }
        match flaw {
            Flaw::Cut => drop(items.pop()),
            Flaw::NoJson => items.push("{\"type\":\"x\"".into()),
            Flaw::HalfPair => items.push(r#"{"type":"x","y":"\ud83d"}"#.into()),
            Flaw::Unfinished => items.push(items[0].replace("rs_", "rt_")),
            Flaw::TwoThoughts => items.insert(0, items[0].replace("rs_", "rt_")),
            Flaw::Deep => items.push(format!(r#"{{"type":"x","y":{}{}}}"#, "[".repeat(126), "]".repeat(126))),
            Flaw::ComputerCall => items.push(r#"{"type":"computer_call","call_id":"cc"}"#.into()),
            Flaw::OtherCalls => {
                items.push(r#"{"type":"function_call","call_id":"Z","name":"Read","arguments":""}"#.into());
            }
            _ => {}
        }
        let api_mode = if flaw == Flaw::OtherApi { "chat" } else { "responses" }.to_owned();
        let items = items.into_iter().map(RawBytes::from).collect();
        Some(ReplayAttached { message_no: of.message_no, model: model.to_owned(), api_mode, items }.into())
    }
}

fn fold(events: &[LoggedEvent]) -> (Vec<ContextMessage>, Replay) {
    let mut replay = Replay::default();
    events.iter().for_each(|event| replay.apply(event));
    (TreeState::fold(events).context(NodeId::ROOT), replay)
}

fn targets() -> Vec<Target> {
    let apis = [Api::ChatCompletions, Api::Responses, Api::AnthropicMessages];
    let models = [("claude-x", None), ("reasoner", Some("deepseek")), ("gpt-x", Some("openai"))];
    let target = |api, (model, provider): (&str, Option<&str>)| Target {
        api,
        model: model.to_owned(),
        provider: provider.map(str::to_owned),
    };
    apis.into_iter().flat_map(|api| models.map(|model| target(api, model))).collect()
}

fn validate(api: Api, body: &Value) -> Result<(), RuleBroken> {
    match api {
        Api::ChatCompletions => validate_chat(body),
        Api::Responses => validate_responses(body),
        Api::AnthropicMessages => validate_anthropic(body),
    }
}

fn parse(rendering: &Rendering) -> Value {
    serde_json::from_slice(&rendering.body).unwrap()
}

fn is_own(message: &ContextMessage, target: &Target) -> bool {
    let routed = target.provider.as_ref().map(|provider| format!("{provider}/{}", target.model));
    message.model.as_ref() == Some(&target.model) || message.model.is_some() && message.model == routed
}

/// The provider takes it, and it is the same each time.
fn check_accepted(
    context: &[ContextMessage],
    replay: &Replay,
    target: &Target,
) -> Result<Rendering, TestCaseError> {
    let rendering = render(context, replay.node(NodeId::ROOT), target);
    let body = parse(&rendering);
    let verdict = validate(target.api, &body);
    if rendering.messages == 0 {
        let rule = verdict.map_err(|broken| broken.rule);
        prop_assert_eq!(rule, Err("must have at least one item"));
    } else {
        prop_assert_eq!(verdict, Ok(()), "{} {}", target.api, body);
    }
    prop_assert_eq!(&render(context, replay.node(NodeId::ROOT), target), &rendering);
    let text = std::str::from_utf8(&rendering.body).unwrap();
    let splices = target.api != Api::ChatCompletions;
    prop_assert!(splices || !text.contains(['\n', '\0']));
    Ok(rendering)
}

/// Items are there byte for byte, or there is a reason.
fn check_replay(
    context: &[ContextMessage],
    replay: &Replay,
    target: &Target,
    rendering: &Rendering,
) -> Result<(), TestCaseError> {
    for message in context {
        let Some(items) = replay.node(NodeId::ROOT).of(message) else { continue };
        let dropped = rendering
            .dropped
            .iter()
            .find(|it| it.position == message.position && it.what == What::ReplayItems);
        let all: Vec<Vec<u8>> = items.items.iter().map(|item| item.0.clone()).collect();
        let joined = all.join(&b',');
        let is_there = rendering.body.windows(joined.len()).any(|window| window == joined);
        prop_assert_eq!(is_there, dropped.is_none(), "{:?} {:?}", dropped, items);
        let routed = target.provider.as_ref().map(|provider| format!("{provider}/{}", target.model));
        let fits = items.model == target.model || routed.as_deref() == Some(items.model);
        let text = items.items.iter().map(|item| item.to_text()).collect::<String>();
        let good = !text.contains("rt_")
            && !text.contains("_0\"")
            && !text.contains("\"y\"")
            && !text.contains("\"Z\"");
        let calls = message.tool_calls.len() + 2 == items.items.len();
        let clean = message.tool_calls.iter().all(|call| {
            let id = call.call_id.as_str();
            let in_log = text.contains(&format!("\"call_id\":\"{id}\""));
            in_log && id.len() < 65 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        });
        let here = target.api == Api::Responses && items.api_mode == "responses";
        if fits && good && calls && clean && here {
            prop_assert_eq!(dropped, None, "{}", text);
        }
    }
    Ok(())
}

/// Reasoning goes to its model only; a thought and its signature, and all of one message, go together.
fn check_reasoning(
    context: &[ContextMessage],
    target: &Target,
    rendering: &Rendering,
) -> Result<(), TestCaseError> {
    let body = std::str::from_utf8(&rendering.body).unwrap();
    for message in context.iter().filter(|message| message.role == Role::Assistant) {
        let mut seen = Vec::new();
        for part in &message.parts {
            let Part::Reasoning(Reasoning { text, form }) = part else { continue };
            let signed =
                |signature: &Option<String>| signature.as_ref().is_some_and(|it| body.contains(it.as_str()));
            let shown = |text: &str| {
                text.rsplit("thought")
                    .next()
                    .is_some_and(|mark| !text.is_empty() && body.contains(&format!("thought{mark}")))
            };
            match form {
                ReasoningForm::Plain => {
                    // Unsigned, so at Anthropic all the rest of the message's stays away too.
                    seen.push(false);
                    prop_assert!(!shown(text) || target.api == Api::ChatCompletions);
                    let said = message.parts.iter().any(|part| matches!(part, Part::Text(_)));
                    if is_own(message, target) && target.api == Api::ChatCompletions && said {
                        prop_assert!(shown(text), "{text} {body}");
                    }
                }
                ReasoningForm::Signed(signature) => {
                    prop_assert_eq!(shown(text), signed(signature));
                    seen.push(shown(text));
                }
                ReasoningForm::Opaque(data) => seen.push(body.contains(data.as_str())),
                ReasoningForm::Summary => prop_assert!(!shown(text)),
            }
            prop_assert!(!shown(text) || is_own(message, target));
        }
        let any = seen.contains(&true);
        prop_assert!(!any || target.api == Api::AnthropicMessages && is_own(message, target));
        prop_assert!(!any || !seen.contains(&false), "all or none: {seen:?} {body}");
    }
    Ok(())
}

/// What was said is there: no text is lost without a word.
fn check_texts(
    context: &[ContextMessage],
    replay: &Replay,
    target: &Target,
    rendering: &Rendering,
) -> Result<(), TestCaseError> {
    let mut strings = Vec::new();
    collect(&parse(rendering), &mut strings);
    for message in context {
        let spliced = replay.node(NodeId::ROOT).of(message).is_some()
            && !rendering
                .dropped
                .iter()
                .any(|it| it.position == message.position && it.what == What::ReplayItems);
        for part in &message.parts {
            let Part::Text(text) = part else { continue };
            let is_there = strings.iter().any(|string| string.contains(text.as_str()))
                || target.api == Api::AnthropicMessages
                    && strings.iter().any(|string| text.trim_end_matches(is_space) == string);
            let told = rendering
                .dropped
                .iter()
                .any(|it| it.position == message.position && matches!(it.what, What::Text | What::Message));
            prop_assert!(spliced || is_there || told && text.chars().all(is_space), "{text:?} {message:?}");
        }
    }
    Ok(())
}

fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn collect(value: &Value, strings: &mut Vec<String>) {
    match value {
        Value::String(text) => strings.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, strings)),
        Value::Object(entries) => entries.values().for_each(|item| collect(item, strings)),
        _ => {}
    }
}

/// A longer context begins with the bytes of a shorter one, so that caches hold.
fn check_prefix(
    context: &[ContextMessage],
    replay: &Replay,
    target: &Target,
    whole: &Rendering,
) -> Result<(), TestCaseError> {
    let cut = (1..context.len()).rev().find(|at| context[*at].role != Role::Tool).unwrap_or_default();
    let part = render(&context[..cut], replay.node(NodeId::ROOT), target);
    let ends_with_answer = parse(&part)["messages"]
        .as_array()
        .and_then(|messages| messages.last())
        .is_some_and(|last| last["role"] == "assistant");
    let tail = match target.api {
        // What was made up, since there was nothing yet, has no place behind that.
        _ if part.messages == 1 && part.adjusted.iter().any(|it| it.how == Adjustment::UserInserted) => {
            return Ok(());
        }
        Api::AnthropicMessages if ends_with_answer => return Ok(()),
        Api::AnthropicMessages => 4,
        Api::ChatCompletions | Api::Responses => 2,
    };
    prop_assert!(whole.body.starts_with(&part.body[..part.body.len() - tail]));
    Ok(())
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(192);
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_provider_refuses_what_is_rendered_of_a_log(steps in vec(step(), 0..24)) {
        let writer = Writer::of(&steps);
        let (context, replay) = fold(&writer.events);
        prop_assert_eq!(validate_pairing(&context), Ok(()));
        for target in targets() {
            let rendering = check_accepted(&context, &replay, &target)?;
            check_replay(&context, &replay, &target, &rendering)?;
            check_reasoning(&context, &target, &rendering)?;
            check_texts(&context, &replay, &target, &rendering)?;
            check_prefix(&context, &replay, &target, &rendering)?;
        }
    }

    /// What only passes the pairing rules, and what no log would give.
    #[test]
    fn any_legal_context_is_accepted_and_no_other_one_panics(
        said in vec((any::<u8>(), parts(), tool_calls(), prop::option::of(select(&MODELS[..]))), 0..12),
        holes in any::<bool>(),
    ) {
        let context = by_hand(said, holes);
        let legal = validate_pairing(&context).is_ok();
        for target in targets() {
            if legal {
                check_accepted(&context, &Replay::default(), &target)?;
            } else {
                parse(&render(&context, &NodeReplay::default(), &target));
            }
        }
    }
}

type Said = (u8, Vec<Part>, Vec<ToolCall>, Option<&'static str>);

fn by_hand(said: Vec<Said>, holes: bool) -> Vec<ContextMessage> {
    let mut context = Vec::new();
    for (index, (n, parts, mut calls, model)) in said.into_iter().enumerate() {
        let role =
            [Role::User, Role::Assistant, Role::Assistant, Role::System, Role::Developer][usize::from(n % 5)];
        for (at, call) in calls.iter_mut().enumerate().filter(|_| !holes) {
            call.call_id = format!("{} {index}.{at}", call.call_id);
            call.name.push('n');
        }
        if role != Role::Assistant && !holes {
            calls.clear();
        }
        let blank = ContextMessage {
            role,
            parts,
            tool_calls: calls.clone(),
            tool_call_id: None,
            flag: ResultFlag::Normal,
            message_no: Some(MessageNo(index as u64)),
            call: None,
            position: Position(index as u64),
            origin: ContextOrigin::Recorded,
            model: model.map(str::to_owned),
            name: None,
            phase: None,
        };
        if blank.parts.is_empty() && calls.is_empty() && !holes {
            continue;
        }
        context.push(blank.clone());
        for call in calls.into_iter().filter(|_| !holes || n > 60) {
            let answer = ContextMessage { role: Role::Tool, tool_calls: Vec::new(), ..blank.clone() };
            context.push(ContextMessage { tool_call_id: Some(call.call_id), ..answer });
        }
    }
    context
}
