//! q: its files in, out again, and in once more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sessionlog_codec::event::{
    AgentKind, Event, LoggedEvent, MessageAppended, NewEvent, NodeStatus, Outcome, Part, PlanPhase, Role,
};
use sessionlog_codec::ids::{MessageNo, NodeId, Position, Timestamp};
use sessionlog_projections::TreeState;
use sessionlog_projections::views::q::{QError, QTree, SessionFile, Version};

use super::super::lines::Records;
use super::super::mapper::Mapper;
use super::super::q::{Layout, Transcript};
use super::super::{ImportError, ImportReport, Imported, SourceFormat, discover, import_session};
use super::target::{Memory, Stored};
use super::{directory, fixtures, import_into};

const ROOT: NodeId = NodeId::ROOT;
/// When events without a time of their own were appended.
const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

pub(super) type Files = BTreeMap<String, String>;

/// The log of a session as a store would give it.
pub(super) fn logged(stored: &Stored) -> Vec<LoggedEvent> {
    let created = NewEvent::now(ROOT, stored.created.clone().unwrap());
    let events = std::iter::once(&created).chain(&stored.events);
    (1..)
        .zip(events)
        .map(|(position, new)| LoggedEvent {
            position: Position(position),
            node: new.node,
            timestamp: new.timestamp.unwrap_or(NOW),
            time_origin: new.time_origin,
            cause: new.cause,
            event: new.event.clone(),
        })
        .collect()
}

/// The files of a log, by their paths below the session's directory.
pub(super) fn files_of(tree: &QTree) -> Files {
    let written = |file: &sessionlog_projections::views::q::QFile| {
        let mut bytes = Vec::new();
        tree.write(file, &mut bytes).unwrap();
        (file.path.join("/"), String::from_utf8(bytes).unwrap())
    };
    tree.files().iter().map(written).collect()
}

pub(super) fn exported(stored: &Stored) -> Files {
    files_of(&QTree::fold(&logged(stored)))
}

/// Puts files where q would have them.
pub(super) fn put(files: &Files, below: &Path, id: &str) {
    for (path, text) in files {
        let path = below.join("sessions").join(id).join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn files_in(directory: &Path) -> Files {
    let mut files = Files::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(at) = waiting.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    files
}

fn id(last: &str) -> String {
    format!("0f1e2d3c-0000-4000-8000-0000000000{last}")
}

/// Imports a case, twice, and gives its files and the log.
fn case(name: &str, last: &str) -> (Files, Stored, ImportReport) {
    let path = fixtures().join("q").join(name);
    let mut memory = Memory::default();
    let done = import_into(&mut memory, &path);
    assert_eq!(
        (done.sessions.len(), done.outcomes.as_slice()),
        (1, &[Imported::New][..]),
        "{:?}",
        done.notes
    );
    assert_eq!(done.sessions[0].format, SourceFormat::QSession);
    assert_eq!(done.sessions[0].session_id.to_string(), id(last));
    let before = memory.only().events.clone();
    let again = import_into(&mut memory, &path);
    assert_eq!(again.outcomes, [Imported::Unchanged], "{:?}", again.report.notes);
    assert_eq!(memory.only().events, before);
    let directory = path.join("sessions").join(id(last));
    let files = if directory.is_dir() { files_in(&directory) } else { Files::new() };
    (files, memory.only().clone(), done.report)
}

#[track_caller]
fn assert_same(found: &Files, expected: &Files) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (path, text) in expected {
        assert_eq!(&found[path], text, "{path}");
    }
}

/// Takes over what a store would append when a host goes on with the session.
fn go_on(stored: &mut Stored, node: NodeId, said: MessageAppended) {
    stored.push(NewEvent::at(node, NOW, said));
}

#[test]
fn version_1_is_written_as_version_2() {
    let (_, stored, report) = case("v1-text-and-tool", "a1");
    assert_eq!(report.notes, []);
    let expected = std::fs::read_to_string(fixtures().join("q-expected/v1-text-and-tool.json")).unwrap();
    assert_eq!(exported(&stored), Files::from([("session.json".to_owned(), expected)]));
    let messages = stored.messages(ROOT);
    assert_eq!(
        messages.iter().map(|it| it.role).collect::<Vec<_>>(),
        [Role::User, Role::Assistant, Role::Assistant]
    );
    assert!(!stored.told(ROOT).iter().any(|event| matches!(event, Event::ContextCompacted(_))));
    // As a file alone, without a log in between.
    let bytes = std::fs::read(fixtures().join("q/v1-text-and-tool/session.json")).unwrap();
    let file = SessionFile::parse(&bytes, "session.json").unwrap();
    let json = file.to_json();
    assert!(!json.contains("loop_mode"));
    assert_eq!(SessionFile::parse(json.as_bytes(), "session.json").unwrap().to_json(), json);
}

#[test]
fn all_kinds_of_parts_come_back() {
    let (files, stored, _) = case("v2-parts", "a2");
    assert_same(&exported(&stored), &files);
    let parts = &stored.messages(ROOT)[1].parts;
    assert!(matches!(
        parts.as_slice(),
        [Part::Text(_), Part::Image(_), Part::Image(_), Part::Image(_), Part::Raw(_)]
    ));
    // Numbers keep their digits.
    assert!(exported(&stored)["session.json"].contains("12345678901234567890123"));
}

#[test]
fn delegates_are_conversations_of_their_own() {
    let (files, stored, report) = case("delegates", "a3");
    assert_eq!(report.notes, []);
    assert_same(&exported(&stored), &files);
    assert_eq!(stored.node_count(), 5);
    let by_agent = |agent: &str| {
        let nodes = (1..5).map(NodeId);
        nodes.map(|node| stored.opened(node)).find(|opened| opened.agent == agent).unwrap()
    };
    // One call id at two places: two children.
    let (first, second) = (by_agent("builtin/research"), by_agent("acp/other"));
    assert_eq!(first.call_id, second.call_id);
    assert_eq!(first.call.unwrap().message_no, MessageNo(2));
    assert_eq!(second.call.unwrap().message_no, MessageNo(3));
    assert_eq!((first.kind, second.kind), (AgentKind::Inner, AgentKind::External));
    let settled = |node: NodeId| {
        let told = stored.told(node).into_iter();
        told.filter_map(|event| if let Event::NodeSettled(it) = event { Some(it.status) } else { None })
            .next()
    };
    let (running, nested) = (by_agent("builtin/coder"), by_agent("builtin/review"));
    assert_eq!(settled(first.child), Some(NodeStatus::Completed));
    assert_eq!(settled(second.child), Some(NodeStatus::Unknown));
    assert_eq!(settled(running.child), None);
    assert_eq!(settled(nested.child), Some(NodeStatus::Blocked));
    assert_eq!((nested.parent, nested.depth), (running.child, 2));
    let outcomes = stored.told(running.child).into_iter();
    let outcomes: Vec<_> = outcomes
        .filter_map(|event| if let Event::CallFinished(it) = event { Some(it.outcome) } else { None })
        .collect();
    assert_eq!(outcomes, [Outcome::Unknown], "told by the state, not by the result's text");
}

#[test]
fn a_result_that_speaks_of_something_unknown_is_not_unknown() {
    // W5
    let json = |text: &str| {
        let text = serde_json::to_string(text).unwrap();
        format!(
            r#"{{"version":2,"id":"{}","run_id":"r","transcript":[{{"role":"assistant","tool_calls":[{{"id":"c","type":"function","name":"f","arguments":"{{}}"}}]}},{{"role":"tool","tool_call_id":"c","name":"f","content":[{{"kind":"text","text":{text}}}]}}],"context":[]}}"#,
            id("c1")
        )
    };
    let own = r#"{"status":"unknown","detail":"execution outcome unknown after session restart"}"#;
    for (text, outcome) in [(r#"{"status":"unknown"}"#, Outcome::Succeeded), (own, Outcome::Unknown)] {
        let directory = directory(&[("session.json", json(text).as_bytes())]);
        let mut memory = Memory::default();
        import_into(&mut memory, directory.path());
        let told = memory.only().told(ROOT);
        let found = told
            .iter()
            .find_map(|event| if let Event::CallFinished(it) = event { Some(it.outcome) } else { None });
        assert_eq!(found, Some(outcome));
    }
}

#[test]
fn a_compacted_context_is_a_compaction() {
    let (files, stored, report) = case("replay-and-affinity", "a4");
    assert_eq!(report.notes, []);
    assert_same(&exported(&stored), &files);
    let told = stored.told(ROOT);
    let compactions = told.iter().filter(|event| matches!(event, Event::ContextCompacted(_))).count();
    assert_eq!(compactions, 1);
    let context = TreeState::fold(logged(&stored)).context(ROOT);
    let text = |parts: &[Part]| match parts {
        [Part::Text(text)] => text.clone(),
        _ => String::new(),
    };
    let texts: Vec<String> = context.iter().map(|message| text(&message.parts)).collect();
    assert_eq!(
        texts,
        ["Compressed conversation memory:\nIt began.", "Read.", "go on", "", "[cleared]", "Going on."]
    );

    // A host goes on: the context and what depends on its places are derived again, and nothing else changes.
    let mut stored = stored;
    go_on(&mut stored, ROOT, MessageAppended::text(MessageNo(7), Role::User, "and then?"));
    let now = exported(&stored);
    let mut expected: serde_json::Value = serde_json::from_str(&files["session.json"]).unwrap();
    let said = serde_json::json!({"role":"user","content":[{"kind":"text","text":"and then?"}]});
    for list in ["transcript", "context"] {
        expected[list].as_array_mut().unwrap().push(said.clone());
    }
    expected["updated_at"] = "2027-01-15T08:00:00Z".into();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&now["session.json"]).unwrap(), expected);
}

#[test]
fn keys_that_are_not_known_are_kept() {
    let (files, stored, _) = case("unknown-fields", "a5");
    assert_same(&exported(&stored), &files);
}

#[test]
fn a_bookmark_of_an_earlier_run_takes_no_call() {
    // W2
    let (files, stored, report) = case("cleared-then-delegated", "a6");
    assert!(report.notes.iter().any(|note| note.text.contains("earlier run")), "{:?}", report.notes);
    assert_eq!(stored.node_count(), 3, "nothing of it is lost");
    let tree = QTree::fold(&logged(&stored));
    let now = files_of(&tree);
    assert_eq!(tree.left_out().len(), 1);
    assert!(now["delegations.json"].contains("New.") && !now["delegations.json"].contains("Old."));
    assert_eq!(now.len(), 4, "{:?}", now.keys());
    assert_eq!(now["session.json"], files["session.json"]);
}

#[test]
fn each_phase_of_a_plan_comes_back() {
    let session = format!(
        r#"{{"version":2,"id":"{}","run_id":"r","transcript":[],"context":[],"learning":{{}}}}"#,
        id("c2")
    );
    let phases = [
        ("target", Some(PlanPhase::Target)),
        ("coder_pending", Some(PlanPhase::Pending)),
        ("coder_running", Some(PlanPhase::Running)),
        ("review_pending", Some(PlanPhase::Review)),
        ("completed", None),
    ];
    for (word, phase) in phases {
        let plan = format!(
            "{{\n  \"version\": 1,\n  \"updated_at\": \"2026-08-21T10:00:00Z\",\n  \"checkpoint\": {{\n    \"execution_id\": \"e1\",\n    \"run_id\": \"r\",\n    \"objective\": \"Tidy up.\",\n    \"phase\": \"{word}\",\n    \"plan\": {{\n      \"steps\": []\n    }},\n    \"task_index\": 1,\n    \"attempt\": 2,\n    \"resolved_targets\": [\n      \"a.rs\"\n    ],\n    \"feedback\": \"again\",\n    \"pending_result\": {{\n      \"outcome\": \"completed\"\n    }},\n    \"completed_tasks\": 1,\n    \"attempts\": 3,\n    \"task_attempts\": 2,\n    \"resume_count\": 1,\n    \"tasks\": [\n      {{\n        \"task_index\": 0\n      }}\n    ]\n  }}\n}}\n"
        );
        let directory =
            directory(&[("session.json", session.as_bytes()), ("plan-execution.json", plan.as_bytes())]);
        let mut memory = Memory::default();
        let done = import_into(&mut memory, directory.path());
        assert_eq!(done.report.notes, []);
        assert_eq!(exported(memory.only())["plan-execution.json"], plan, "{word}");
        let told = memory.only().told(ROOT);
        let reached = told
            .iter()
            .find_map(|event| if let Event::PlanAdvanced(it) = event { Some(it.phase) } else { None });
        assert_eq!(reached, phase);
        let completed = told.iter().any(|event| matches!(event, Event::PlanCompleted(_)));
        assert_eq!(completed, phase.is_none());
    }
}

#[test]
fn a_session_that_grew_is_gone_on_with() {
    let said = |text: &str| format!(r#"{{"role":"user","content":[{{"kind":"text","text":"{text}"}}]}}"#);
    let session = |messages: &[String], context: &[String], title: &str| {
        let (messages, context) = (messages.join(","), context.join(","));
        format!(
            r#"{{"version":2,"id":"{}","run_id":"r","title":"{title}","transcript":[{messages}],"context":[{context}],"learning":{{}}}}"#,
            id("c3")
        )
    };
    let (one, two, three) = (said("one"), said("two"), said("three"));
    let summary =
        r#"{"role":"system","content":[{"kind":"text","text":"S"}],"name":"q_context_summary"}"#.to_owned();
    let steps = [
        session(std::slice::from_ref(&one), std::slice::from_ref(&one), "a"),
        session(&[one.clone(), two.clone()], &[one.clone(), two.clone()], "a"),
        session(&[one.clone(), two.clone()], &[summary.clone(), two.clone()], "b"),
        session(&[one.clone(), two.clone(), three.clone()], &[summary, two.clone(), three], "b"),
    ];
    let mut memory = Memory::default();
    let mut compactions = Vec::new();
    for step in &steps {
        let directory = directory(&[("session.json", step.as_bytes())]);
        let done = import_into(&mut memory, directory.path());
        assert_eq!(done.report.notes, []);
        let of_kind = |event: &&Event| matches!(event, Event::ContextCompacted(_));
        compactions.push(memory.only().told(ROOT).into_iter().filter(of_kind).count());
        let now: serde_json::Value = serde_json::from_str(&exported(memory.only())["session.json"]).unwrap();
        assert_eq!(now, serde_json::from_str::<serde_json::Value>(step).unwrap());
    }
    assert_eq!(compactions, [0, 0, 1, 1]);
    // A transcript that was written anew is a conflict, and nothing that goes with it is taken.
    let before = memory.only().events.len();
    let directory = directory(&[("session.json", session(&[two], &[], "c").as_bytes())]);
    let done = import_into(&mut memory, directory.path());
    assert_eq!((done.outcomes, memory.only().events.len()), (vec![Imported::Conflict], before));
}

#[test]
fn a_damaged_child_costs_that_child() {
    let path = fixtures().join("q/delegates/sessions").join(id("a3"));
    let child = "delegates/c0ffee00-0000-4000-8000-000000000003/session.json";
    for damage in ["", "{\"version\":3}", "\0\0\0", "[1,2]", "{\"version\":2,\"transcript\":[{\"role\":"] {
        let mut files = files_in(&path);
        files.insert(child.to_owned(), damage.to_owned());
        let directory = tempfile::tempdir().unwrap();
        put(&files, directory.path(), &id("a3"));
        let mut memory = Memory::default();
        let done = import_into(&mut memory, directory.path());
        assert_eq!(done.outcomes, [Imported::New]);
        assert!(
            done.report.notes.iter().any(|note| note.path.ends_with(child)),
            "{damage:?}: {:?}",
            done.report.notes
        );
        assert_eq!(memory.only().node_count(), 5, "{damage:?}");
        assert_eq!(memory.only().messages(ROOT).len(), 3);
    }
}

#[test]
fn delegates_of_a_session_that_is_lost_are_no_sessions() {
    let mut files = files_in(&fixtures().join("q/delegates/sessions").join(id("a3")));
    files.insert("session.json".to_owned(), "\0\0\0".to_owned());
    let directory = tempfile::tempdir().unwrap();
    put(&files, directory.path(), &id("a3"));
    let mut notes = Vec::new();
    assert_eq!(discover(&[directory.path().to_owned()], &mut notes).unwrap(), []);
    assert!(notes.iter().any(|note| note.text.contains("is a delegate of a session")), "{notes:?}");
    // Asked for by itself, one of them is a session like any other.
    let child = directory.path().join("sessions").join(id("a3")).join("delegates");
    let child = child.join("c0ffee00-0000-4000-8000-000000000003");
    assert_eq!(discover(&[child], &mut notes).unwrap().len(), 1);
}

#[test]
fn another_version_is_refused_by_name() {
    for version in ["0", "3", "\"2\""] {
        let json = format!(r#"{{"version":{version},"run_id":"r","transcript":[]}}"#);
        let error = SessionFile::parse(json.as_bytes(), "s/session.json").unwrap_err();
        assert!(matches!(&error, QError::Version { found, .. } if found == version), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("s/session.json") && text.contains("1 or 2") && text.contains(version),
            "{text}"
        );
    }
    let directory = directory(&[("session.json", &br#"{"version":3,"run_id":"r","transcript":[]}"#[..])]);
    let sources = discover(&[directory.path().to_owned()], &mut Vec::new()).unwrap();
    let mut report = ImportReport::default();
    let error = import_session(&sources[0], &mut Memory::default(), &mut |_| {}, &mut report).unwrap_err();
    assert!(matches!(error, ImportError::Q(QError::Version { .. })), "{error:?}");
}

#[test]
fn hostile_files_never_panic() {
    let deep = "[".repeat(100_000);
    let nested = format!("[{}{}]", r#"{"a":["#.repeat(5_000), "]}".repeat(5_000));
    let messages = format!("[{}{{}}]", r#"{"role":"user","content":"x"},"#.repeat(200));
    let lists = [
        deep.as_str(),
        &nested,
        &messages,
        "null",
        "{}",
        "[null]",
        "[\"x\"]",
        "[{\"role\":7}]",
        "[{\"role\":\"\"}]",
        r#"[{"role":"tool","tool_call_id":"ghost","content":"x"}]"#,
        r#"[{"role":"user","content":"\ud800","role":"assistant"}]"#,
        r#"[{"role":"user","content":[{"kind":"image"},{"kind":"raw"},{"kind":"zzz"},7]}]"#,
        r#"[{"role":"user","tool_calls":[{"id":"c","name":"f"}]}]"#,
        r#"[{"ROLE":"user","Content":"x"}]"#,
    ];
    for list in lists {
        for version in [1, 2] {
            for json in [
                format!(r#"{{"version":{version},"run_id":"r","transcript":{list},"context":{list}}}"#),
                format!(r#"{{"version":{version},"run_id":"r","context":{list},"transcript":[]}}"#),
                format!(
                    r#"{{"version":{version},"run_id":"r","transcript":[],"response_replay":{list},"learning":{list}}}"#
                ),
            ] {
                drop(SessionFile::parse(json.as_bytes(), "x"));
                for end in [json.len(), json.len() / 2, json.len().saturating_sub(3)] {
                    let bytes = json.as_bytes().get(..end).unwrap();
                    let directory = directory(&[("session.json", bytes)]);
                    let sources = discover(&[directory.path().to_owned()], &mut Vec::new()).unwrap();
                    let mut memory = Memory::default();
                    for source in &sources {
                        let mut report = ImportReport::default();
                        if import_session(source, &mut memory, &mut |_| {}, &mut report).is_ok() {
                            exported(memory.only());
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn an_absurd_transcript_is_read_all_the_same() {
    const ELEMENTS: usize = 100_000;
    let json = format!(r#"{{"version":2,"run_id":"r","transcript":[{}0]}}"#, "0,".repeat(ELEMENTS - 1));
    assert!(matches!(SessionFile::parse(json.as_bytes(), "x"), Err(QError::Field { .. })));
    let layout = Layout::of(json.into_bytes()).unwrap();
    let mut mapper = Transcript::new(ROOT, Version::Two, "x", BTreeSet::new(), None);
    let mut records = layout.records();
    while let Some(record) = records.next().unwrap() {
        assert_eq!(mapper.map(&record).unwrap().events, []);
    }
    assert_eq!(mapper.len(), ELEMENTS as u64);
    assert!(mapper.notes().len() < 100, "told in few words");
}

#[test]
fn ids_that_are_no_names_are_left_alone() {
    let session =
        |id: &str| format!(r#"{{"version":2,"id":"{id}","run_id":"r","transcript":[],"context":[]}}"#);
    let root = session(&id("c4"));
    let bookmark = r#"{"version":1,"items":[{"invocation_id":"../../../etc","call_index":0,"tool_index":0,"agent":"a","prompt":"p"}]}"#;
    let child = session("x");
    let directory = directory(&[
        ("s/session.json", root.as_bytes()),
        ("s/delegations.json", bookmark.as_bytes()),
        ("s/delegates/a b/session.json", child.as_bytes()),
        ("s/delegates/ok_1/session.json", child.as_bytes()),
    ]);
    let mut memory = Memory::default();
    let done = import_into(&mut memory, directory.path());
    assert_eq!(done.sessions.len(), 1, "{:?}", done.notes);
    assert!(done.notes.iter().any(|note| note.text.contains("a b")));
    assert!(done.report.notes.iter().any(|note| note.text.contains("invocation_id")));
    // The one without a bookmark is there, without its call.
    assert_eq!(memory.only().node_count(), 2);
    assert_eq!(memory.only().opened(NodeId(1)).call, None);
    assert_eq!(exported(memory.only()).len(), 1);
}

#[cfg(unix)]
#[test]
fn symlinks_are_not_followed() {
    let outside = directory(&[("session.json", &br#"{"version":2,"run_id":"r","transcript":[]}"#[..])]);
    let session = format!(r#"{{"version":2,"id":"{}","run_id":"r","transcript":[],"context":[]}}"#, id("c5"));
    let directory = directory(&[("s/session.json", session.as_bytes()), ("s/delegates/keep", b"")]);
    std::os::unix::fs::symlink(outside.path(), directory.path().join("s/delegates/linked")).unwrap();
    let mut memory = Memory::default();
    let done = import_into(&mut memory, directory.path());
    assert_eq!(memory.only().node_count(), 1);
    assert!(done.notes.iter().any(|note| note.text.contains("symlink")), "{:?}", done.notes);
}
