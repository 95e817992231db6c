//! Claude Code: what its lines mean.

use sessionlog_codec::event::{
    Audience, CompactionTrigger, Event, HeadReason, Media, MediaSource, MessageRange, NodeStatus, Outcome,
    Part, Reasoning, ReasoningForm, ResultFlag, Role, TitleOrigin, Usage,
};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, Position, ToolIndex};
use sessionlog_codec::record::TimeOrigin;

use super::super::{ImportReport, Imported};
use super::target::{Memory, Stored};
use super::{Done, directory, fixtures, import_into, import_lines};

const ROOT: NodeId = NodeId::ROOT;

fn fixture(name: &str) -> (Stored, Done) {
    let mut memory = Memory::default();
    let done = import_into(&mut memory, &fixtures().join("claude-code").join(name));
    assert_eq!(done.outcomes, [Imported::New]);
    (memory.only().clone(), done)
}

fn call(message_no: u64, tool_index: u32) -> CallRef {
    CallRef { message_no: MessageNo(message_no), tool_index: ToolIndex(tool_index) }
}

fn range(first: u64, last: u64) -> MessageRange {
    MessageRange { first: MessageNo(first), last: MessageNo(last) }
}

fn line(uuid: &str, parent: &str, rest: &str) -> String {
    let parent = if parent.is_empty() { "null".to_owned() } else { format!("\"{parent}\"") };
    format!(
        r#"{{"sessionId":"s","uuid":"{uuid}","parentUuid":{parent},"timestamp":"2026-11-30T10:00:00Z",{rest}}}"#
    )
}

fn user(uuid: &str, parent: &str, content: &str) -> String {
    line(uuid, parent, &format!(r#""type":"user","message":{{"role":"user","content":{content}}}"#))
}

fn assistant(uuid: &str, parent: &str, id: &str, content: &str) -> String {
    let message = format!(r#""message":{{"id":"{id}","role":"assistant","content":{content}}}"#);
    line(uuid, parent, &format!(r#""type":"assistant",{message}"#))
}

fn import(lines: &[String]) -> (Stored, ImportReport) {
    import_lines("s.jsonl", &lines.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_response_of_several_lines_is_one_message() {
    let (stored, done) = fixture("parallel-calls");
    assert!(done.report.damaged.is_empty());
    let told = stored.told(ROOT);
    let [
        Event::MessageAppended(prompt),
        Event::MessageAppended(first),
        Event::MessageExtended(second),
        Event::MessageExtended(third),
        Event::CallFinished(a),
        Event::CallFinished(b),
        Event::MessageAppended(last),
    ] = told.as_slice()
    else {
        panic!("{told:#?}")
    };
    assert_eq!(
        (prompt.role, prompt.parts.as_slice()),
        (Role::User, &[Part::text("Compare a.txt and b.txt")][..])
    );
    let thought =
        Reasoning { text: "Read both.".to_owned(), form: ReasoningForm::Signed(Some("c2ln".to_owned())) };
    assert_eq!(first.parts, [Part::Reasoning(thought)]);
    assert_eq!(first.model.as_deref(), Some("claude-demo-1"));
    assert_eq!(first.provider.response.as_deref(), Some("msg_1"));
    assert_eq!(first.provider.request.as_deref(), Some("req_1"));
    assert_eq!(first.usage, Some(Usage { input: 3, cache_read: 7, cache_write: 5, output: 1, reasoning: 0 }));
    assert_eq!((second.message_no, third.message_no), (MessageNo(2), MessageNo(2)));
    assert_eq!(third.stop_reason.as_deref(), Some("tool_use"));
    assert_eq!(
        third.usage,
        Some(Usage { input: 3, cache_read: 7, cache_write: 5, output: 42, reasoning: 11 })
    );
    assert_eq!((a.call, a.outcome, a.flag), (call(2, 0), Outcome::Succeeded, ResultFlag::Normal));
    assert_eq!((b.call, b.outcome, b.flag), (call(2, 1), Outcome::Failed, ResultFlag::Error));
    assert_eq!(b.parts, [Part::text("no such file")]);
    assert_eq!(last.message_no, MessageNo(3));
    let source = first.source.as_ref().unwrap();
    assert_eq!((source.id.as_deref(), source.parent.as_deref()), (Some("a1"), Some("u1")));
    assert_eq!(stored.kinds().len(), 11);
    assert_eq!(done.report.by_kind["pr-link"], 1);
    assert_eq!((done.report.messages, done.report.results, done.report.lines), (3, 2, 11));
}

#[test]
fn a_session_begins_with_what_its_first_lines_say() {
    let (stored, done) = fixture("parallel-calls");
    let created = stored.created.unwrap();
    assert_eq!(created.session_id.to_string(), "0f1e2d3c-0000-4000-8000-000000000001");
    assert_eq!((created.workspace, created.slug.as_str()), ("/home/dev/demo".into(), "home-dev-demo"));
    assert_eq!(created.model.as_deref(), Some("claude-demo-1"));
    let imported = created.imported.unwrap();
    assert_eq!((imported.agent.as_str(), imported.agent_version.as_deref()), ("claude-code", Some("2.1.99")));
    assert_eq!(done.sessions[0].files[0].label, "0f1e2d3c-0000-4000-8000-000000000001.jsonl");
}

#[test]
fn only_real_branches_move_the_head() {
    let (stored, _) = fixture("rewind");
    let anchors = stored.anchors(ROOT);
    let moves: Vec<_> = stored
        .told(ROOT)
        .into_iter()
        .filter_map(|event| if let Event::HeadMoved(moved) = event { Some(moved.clone()) } else { None })
        .collect();
    assert_eq!(moves.len(), 2);
    assert_eq!((moves[0].to, moves[0].from, moves[0].reason), (anchors[1], anchors[3], HeadReason::Rewind));
    assert_eq!((moves[1].to, moves[1].from), (Position::START, anchors[5]));
    assert_eq!(stored.messages(ROOT).len(), 8);
}

/// Found by the fuzzer: the whole import was refused, since the head was moved to a message that no model is shown.
#[test]
fn a_branch_behind_a_notice_or_a_result_without_its_call_goes_on_from_what_is_before_it() {
    let orphan = r#"[{"type":"tool_result","tool_use_id":"gone","content":"late"}]"#;
    let notice = r#""type":"assistant","isApiErrorMessage":true,"message":{"id":"n","role":"assistant","content":"Failed"}"#;
    for aside in [user("x", "a", orphan), line("x", "a", notice)] {
        let (stored, _) = import(&[
            user("u", "", r#""Go.""#),
            assistant("a", "u", "1", r#""Done.""#),
            aside,
            user("v", "x", r#""One way.""#),
            assistant("b", "v", "2", r#""Went.""#),
            user("w", "x", r#""Another way.""#),
        ]);
        let anchors = stored.anchors(ROOT);
        let moves = stored.told(ROOT).into_iter().filter_map(|event| match event {
            Event::HeadMoved(moved) => Some((moved.to, moved.from)),
            _ => None,
        });
        assert_eq!(moves.collect::<Vec<_>>(), [(anchors[1], anchors[3])]);
    }
}

#[test]
fn a_compaction_is_its_summary_and_what_it_keeps() {
    let (stored, done) = fixture("compaction");
    let told = stored.told(ROOT);
    let trimmed =
        told.iter().find_map(|event| if let Event::ContextTrimmed(it) = event { Some(it) } else { None });
    assert_eq!(trimmed.unwrap().calls, [call(4, 0)]);
    assert_eq!(trimmed.unwrap().tokens_saved, Some(300));
    let compactions: Vec<_> = told
        .iter()
        .filter_map(|event| if let Event::ContextCompacted(it) = event { Some(it) } else { None })
        .collect();
    let [first, second] = compactions.as_slice() else { panic!("{compactions:#?}") };
    assert_eq!(first.summary, [Part::text("This session is being continued. Summary: counting.")]);
    assert_eq!((first.summary_role, first.trigger), (Role::User, CompactionTrigger::Manual));
    assert_eq!((first.tokens_before, first.tokens_after), (Some(1000), Some(200)));
    assert_eq!((first.kept.as_slice(), first.replaced.as_slice()), (&[range(4, 5)][..], &[range(1, 3)][..]));
    assert_eq!(first.compaction_id, "b1");
    // An old summary stands alone. The boundary at the end of the file compacts nothing yet.
    assert_eq!(second.replaced, [range(4, 7)]);
    assert_eq!((second.trigger, second.compaction_id.as_str()), (CompactionTrigger::Auto, "c2"));
    assert_eq!(stored.messages(ROOT).len(), 8, "a summary is no message of its own");
    assert!(!told.iter().any(|event| matches!(event, Event::HeadMoved(_))));
    assert_eq!(done.report.by_kind["system/compact_boundary"], 2);
}

#[test]
fn sidechains_in_the_main_file_are_children() {
    let (stored, _) = fixture("sidechain-in-file");
    assert_eq!(stored.node_count(), 2);
    let opened = stored.opened(NodeId(1));
    assert_eq!((opened.call, opened.call_id.as_deref()), (Some(call(2, 0)), Some("toolu_t")));
    assert_eq!(
        (opened.agent.as_str(), opened.prompt.as_str(), opened.depth),
        ("explorer", "Find the tests.", 1)
    );
    assert_eq!(stored.messages(NodeId(1)).len(), 3);
    assert_eq!(stored.messages(ROOT).len(), 3);
    assert!(stored.is_settled(NodeId(1)));
    // The child's end is in the frame of its result.
    let settled =
        stored.events.iter().position(|event| matches!(event.event, Event::NodeSettled(_))).unwrap();
    assert!(matches!(stored.events[settled - 1].event, Event::CallFinished(_)));
}

#[test]
fn agents_are_children_of_the_calls_that_started_them() {
    let (stored, done) = fixture("agents");
    assert_eq!(done.sessions[0].files.len(), 8);
    let by_id = |id: &str| {
        let nodes = (1..).map(NodeId).take(stored.node_count() - 1);
        nodes.map(|node| stored.opened(node)).find(|opened| opened.source_id.as_deref() == Some(id)).unwrap()
    };
    let reviewer = by_id("aa01");
    assert_eq!(
        (reviewer.parent, reviewer.call, reviewer.agent.as_str()),
        (ROOT, Some(call(2, 0)), "reviewer")
    );
    assert_eq!((reviewer.prompt.as_str(), reviewer.description.as_deref()), ("Review it.", Some("review")));
    let checker = by_id("aa02");
    assert_eq!((checker.parent, checker.call, checker.depth), (reviewer.child, Some(call(2, 0)), 2));
    assert_eq!((checker.agent.as_str(), checker.call_id.as_deref()), ("checker", Some("toolu_k")));
    let background = by_id("aa03");
    assert_eq!((background.call, background.call_id.as_deref()), (Some(call(2, 1)), Some("toolu_2")));
    assert_eq!((by_id("acompact-04").agent.as_str(), by_id("acompact-04").call), ("acompact", None));
    assert_eq!((by_id("aa05").agent.as_str(), by_id("aa05").parent), ("task", ROOT));
    // Done, done, notified; the others have no call that says so.
    let settled = |id: &str| stored.is_settled(by_id(id).child);
    assert_eq!(
        ["aa01", "aa02", "aa03", "acompact-04", "aa05"].map(settled),
        [true, true, true, false, false]
    );
    let statuses = stored.events.iter().filter_map(|event| match &event.event {
        Event::NodeSettled(settled) => Some((event.node, settled.status)),
        _ => None,
    });
    assert!(statuses.clone().all(|(_, status)| status == NodeStatus::Completed));
    let order: Vec<_> = statuses.map(|(node, _)| node).collect();
    let place = |id: &str| order.iter().position(|node| *node == by_id(id).child);
    assert!(place("aa02") < place("aa01"), "a child ends before its parent");
    assert_eq!(done.report.by_kind["journal/started"], 1);
    assert_eq!(done.report.by_kind["agent-meta"], 1);
}

#[test]
fn prompts_typed_during_a_turn_are_messages() {
    let (stored, _) = fixture("agents");
    let messages = stored.messages(ROOT);
    let said = messages.iter().find(|message| message.parts == [Part::text("And hurry.")]).unwrap();
    assert_eq!((said.role, said.audience), (Role::User, Audience::Everyone));
    let notice = messages.iter().find(|message| message.audience == Audience::Model).unwrap();
    assert!(matches!(&notice.parts[0], Part::Text(text) if text.starts_with("<task-notification>")));
    assert_eq!(messages.len(), 5);
}

#[test]
fn a_child_without_its_session_is_kept() {
    // M11
    let bytes = std::fs::read(
        fixtures().join("claude-code/agents/0f1e2d3c-0000-4000-8000-000000000005/subagents/agent-aa01.jsonl"),
    );
    let directory = directory(&[("agent-aa01.jsonl", &bytes.unwrap())]);
    let mut memory = Memory::default();
    let done = import_into(&mut memory, directory.path());
    assert_eq!(done.sessions[0].agent_session_id, "0f1e2d3c-0000-4000-8000-000000000005");
    let stored = memory.only();
    assert_eq!((stored.messages(ROOT).len(), stored.messages(NodeId(1)).len()), (0, 3));
    assert_eq!(stored.opened(NodeId(1)).call, None);
}

#[test]
fn one_bad_line_costs_one_line() {
    // T1, T3, T4, T13
    let (stored, done) = fixture("glued-and-torn");
    let mut kinds = stored.kinds();
    assert_eq!(kinds.iter().filter(|kind| **kind == "damaged").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| **kind == "json").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| **kind == "duplicate").count(), 1);
    kinds.sort_unstable();
    let damaged: Vec<_> = done.report.damaged.iter().map(|damage| damage.line).collect();
    assert_eq!(damaged, [3, 5]);
    let messages = stored.messages(ROOT);
    let texts: Vec<_> = messages
        .iter()
        .filter_map(|message| {
            if let Some(Part::Text(text)) = message.parts.first() { Some(text.as_str()) } else { None }
        })
        .collect();
    assert_eq!(
        texts,
        [
            "Hello.",
            "Hi.",
            "Go on.",
            "On it.",
            "half a pair: \u{fffd}",
            "A repeated key.",
            "and a word beside it",
            "nobody asked"
        ]
    );
    let orphan = messages.last().unwrap();
    assert_eq!((orphan.role, orphan.tool_call_id.as_deref()), (Role::Tool, Some("toolu_ghost")));
    // The raw record is exact.
    let raw = stored.events.iter().find_map(|event| match &event.event {
        Event::ImportedRaw(raw) if raw.bytes.to_text().contains("half a pair") => Some(raw),
        _ => None,
    });
    assert!(raw.unwrap().bytes.to_text().contains("\\ud83d\""));
    // Glued records have their own offsets.
    let raws: Vec<_> = stored
        .events
        .iter()
        .filter_map(|event| if let Event::ImportedRaw(raw) = &event.event { Some(raw) } else { None })
        .collect();
    assert_eq!((raws[0].line, raws[1].line), (1, 1));
    assert_eq!(raws[0].next_offset, raws[1].offset);
}

#[test]
fn titles_and_notices_are_told_apart() {
    let (stored, done) = fixture("titles-and-notices");
    let titles: Vec<_> = stored
        .told(ROOT)
        .into_iter()
        .filter_map(|event| {
            if let Event::SessionTitled(it) = event { Some((it.title.as_str(), it.origin)) } else { None }
        })
        .collect();
    assert_eq!(
        titles,
        [
            ("Greeting", TitleOrigin::Model),
            ("Of this session", TitleOrigin::Summary),
            ("Mine", TitleOrigin::Person),
            ("scout", TitleOrigin::Host)
        ]
    );
    assert!(done.report.notes.iter().any(|note| note.text.contains("1 titles belong to other sessions")));
    let messages = stored.messages(ROOT);
    assert_eq!(messages[0].audience, Audience::Model);
    let error = messages.iter().find(|message| message.audience == Audience::Person).unwrap();
    assert_eq!((error.role, error.usage), (Role::Assistant, None));
    let media = &messages.last().unwrap().parts;
    assert!(matches!(&media[1], Part::Image(Media { source: MediaSource::Base64(_), .. })));
    assert!(matches!(&media[2], Part::File(Media { name: Some(name), .. }) if name == "n.pdf"));
}

#[test]
fn a_line_without_a_time_has_the_one_before_it() {
    let untimed = r#"{"type":"user","sessionId":"s","uuid":"u2","message":{"content":"when?"}}"#;
    let (stored, _) = import(&[user("u1", "", "\"now\""), untimed.to_owned()]);
    let told: Vec<_> =
        stored.events.iter().filter(|event| matches!(event.event, Event::MessageAppended(_))).collect();
    assert_eq!(told[0].timestamp, told[1].timestamp);
    assert_eq!((told[0].time_origin, told[1].time_origin), (TimeOrigin::Clock, TimeOrigin::Estimated));
}

#[test]
fn a_message_without_an_id_stands_alone() {
    let (stored, _) = import(&[
        user("u1", "", "\"a\""),
        assistant("a1", "u1", "", r#"[{"type":"text","text":"b"}]"#),
        assistant(
            "a2",
            "a1",
            "",
            r#"[{"type":"text","text":"c"},{"type":"tool_use","name":"Task","input":{}}]"#,
        ),
    ]);
    assert_eq!(stored.messages(ROOT).len(), 3);
}

#[test]
fn a_response_goes_on_behind_another_prompt() {
    let (stored, _) = import(&[
        user("u1", "", "\"a\""),
        assistant("a1", "u1", "m", r#"[{"type":"text","text":"b"}]"#),
        user("u2", "a1", "\"c\""),
        assistant("a2", "u2", "m", r#"[{"type":"text","text":"d"}]"#),
    ]);
    assert_eq!(stored.messages(ROOT).len(), 3);
    assert!(
        matches!(stored.told(ROOT).last(), Some(Event::MessageExtended(it)) if it.message_no == MessageNo(2))
    );
}

#[test]
fn invalid_utf8_is_mended_in_the_message_and_exact_in_the_record() {
    let mut bytes = user("u1", "", "\"a?b\"").into_bytes();
    *bytes.iter_mut().find(|byte| **byte == b'?').unwrap() = 0xff;
    let directory = directory(&[("s.jsonl", &bytes)]);
    let mut memory = Memory::default();
    import_into(&mut memory, directory.path());
    assert_eq!(memory.only().messages(ROOT)[0].parts, [Part::text("a\u{fffd}b")]);
    let raw = memory.only().events.iter().find_map(|event| match &event.event {
        Event::ImportedRaw(raw) => Some(raw.bytes.0.clone()),
        _ => None,
    });
    assert_eq!(raw.unwrap(), bytes);
}

#[test]
fn zeros_at_the_end_are_reported_and_not_recorded() {
    // T7
    let mut bytes = user("u1", "", "\"a\"").into_bytes();
    bytes.push(b'\n');
    bytes.extend([0; 4096]);
    let directory = directory(&[("s.jsonl", &bytes)]);
    let mut memory = Memory::default();
    let done = import_into(&mut memory, directory.path());
    assert_eq!(memory.only().kinds(), ["user"]);
    assert_eq!(done.report.damaged.len(), 1);
}

#[test]
fn a_document_of_log_lines_is_a_session() {
    let lines = [user("u1", "", "\"a\""), assistant("a1", "u1", "m", r#"[{"type":"text","text":"b"}]"#)];
    let json = format!("{{\"loglines\": [\n  {},\n  {}\n]}}\n", lines[0], lines[1]);
    let directory = directory(&[("web.json", json.as_bytes())]);
    let mut memory = Memory::default();
    let done = import_into(&mut memory, directory.path());
    assert_eq!(done.sessions[0].agent_session_id, "s");
    assert_eq!(memory.only().messages(ROOT).len(), 2);
    assert_eq!(memory.only().kinds(), ["user", "assistant", "document"]);
    assert_eq!(import_into(&mut memory, directory.path()).outcomes, [Imported::Unchanged]);
}

#[test]
fn a_file_that_began_as_another_session_is_the_one_it_is_named_for() {
    let id = "0f1e2d3c-0000-4000-8000-00000000abcd";
    let own = user("u2", "u1", "\"b\"").replace("\"s\"", &format!("\"{id}\""));
    let content = format!("{}\n{own}\n", user("u1", "", "\"a\""));
    let directory = directory(&[(&format!("{id}.jsonl"), content.as_bytes())]);
    let done = import_into(&mut Memory::default(), directory.path());
    assert_eq!(done.sessions[0].agent_session_id, id);
}

#[test]
fn files_of_one_session_are_copies_or_told_apart() {
    // M3, M10
    let (a, b, c) = (user("u1", "", "\"a\""), user("u2", "u1", "\"b\""), user("v1", "", "\"other\""));
    let directory = directory(&[
        ("copy.jsonl", format!("{a}\n").as_bytes()),
        ("s.jsonl", format!("{a}\n{b}\n").as_bytes()),
        ("t.jsonl", format!("{c}\n").as_bytes()),
    ]);
    let mut memory = Memory::default();
    let done = import_into(&mut memory, directory.path());
    let ids: Vec<_> = done.sessions.iter().map(|session| session.agent_session_id.as_str()).collect();
    assert_eq!(ids.len(), 2);
    assert!(ids.contains(&"s") && ids.iter().any(|id| id.starts_with("s~")), "{ids:?}");
    assert!(done.notes.iter().any(|note| note.path == "copy.jsonl" && note.text.contains("copy of s.jsonl")));
    assert!(memory.sessions.values().any(|stored| stored.messages(ROOT).len() == 2));
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_noted() {
    let directory = directory(&[("s.jsonl", user("u1", "", "\"a\"").as_bytes()), ("x/readme", b"hello")]);
    std::os::unix::fs::symlink(directory.path().join("s.jsonl"), directory.path().join("link.jsonl"))
        .unwrap();
    std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
    let done = import_into(&mut Memory::default(), directory.path());
    assert_eq!(done.sessions.len(), 1);
    let noted: Vec<_> = done.notes.iter().map(|note| note.path.as_str()).collect();
    assert!(noted.contains(&"link.jsonl") && noted.contains(&"socket"), "{noted:?}");
    assert!(done.notes.iter().any(|note| note.text == "1 other files were not imported"));
}
