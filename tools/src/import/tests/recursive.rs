//! recursive: what its files mean.

use sessionlog_codec::event::{
    Event, FinalStatus, Outcome, Part, Reasoning, ReasoningForm, ResultFlag, Role, SessionFinished,
    SessionTitled, TitleOrigin, Usage,
};
use sessionlog_codec::ids::{MessageNo, NodeId, Timestamp};
use sessionlog_codec::record::TimeOrigin;

use super::super::{Imported, SourceFormat};
use super::target::Memory;
use super::{directory, fixtures, import_into};

const ROOT: NodeId = NodeId::ROOT;

fn whole() -> std::path::PathBuf {
    fixtures().join("recursive/whole/2026-11-30T11-00-00Z-home-dev-demo")
}

#[test]
fn a_session_is_its_transcript_and_its_metadata() {
    let mut memory = Memory::default();
    let done = import_into(&mut memory, &whole());
    assert_eq!(done.sessions[0].format, SourceFormat::RecursiveSession);
    assert_eq!(done.sessions[0].agent_session_id, "2026-11-30T11-00-00Z-home-dev-demo");
    assert!(done.notes.iter().any(|note| note.path == "transcript.before-rewind.jsonl"));
    let stored = memory.only();
    let created = stored.created.as_ref().unwrap();
    assert_eq!((created.goal.as_deref(), created.model.as_deref()), (Some("read x"), Some("demo-chat")));
    assert_eq!(created.provider.as_deref(), Some("openai"));
    assert_eq!(created.session_id.uuid().get_version_num(), 8);
    let messages = stored.messages(ROOT);
    let roles: Vec<_> = messages.iter().map(|message| message.role).collect();
    use Role::{Assistant, System, Tool, User};
    assert_eq!(roles, [System, User, Assistant, Assistant, User, Assistant, User, Tool]);
    let thought = Reasoning { text: "Two files.".to_owned(), form: ReasoningForm::Plain };
    assert_eq!(messages[2].parts, [Part::Reasoning(thought), Part::text("Reading.")]);
    assert_eq!(
        messages[2].usage,
        Some(Usage { input: 9, cache_read: 1, cache_write: 2, output: 4, reasoning: 3 })
    );
    assert_eq!(messages[2].tool_calls[0].arguments, r#"{"path":"x"}"#.into());
    assert!(messages[5].parts.is_empty(), "null content");
    assert_eq!(messages[7].tool_call_id.as_deref(), Some("ghost"));
    let checkpoints: Vec<_> = stored
        .told(ROOT)
        .into_iter()
        .filter_map(|event| if let Event::CheckpointReferenced(it) = event { Some(it) } else { None })
        .collect();
    assert_eq!((checkpoints[1].id.as_str(), checkpoints[1].before.as_deref()), ("decade", Some("c0ffee")));
    assert_eq!(checkpoints[0].touched_files, ["a.txt"]);
    assert_eq!(done.report.by_kind["cost"], 1);
    let told = stored.told(ROOT);
    let titled = SessionTitled { title: "Read x.".to_owned(), origin: TitleOrigin::Prompt };
    assert!(told.contains(&&Event::from(titled)));
    let finished = SessionFinished { status: FinalStatus::Failed, reason: Some("crashed".to_owned()) };
    assert_eq!(told.last(), Some(&&Event::from(finished)));
}

#[test]
fn results_carry_their_audit() {
    let mut memory = Memory::default();
    import_into(&mut memory, &whole());
    let results: Vec<_> = memory
        .only()
        .told(ROOT)
        .into_iter()
        .filter_map(|event| if let Event::CallFinished(it) = event { Some(it.clone()) } else { None })
        .collect();
    let [good, bad] = results.as_slice() else { panic!("{results:#?}") };
    assert_eq!((good.outcome, good.flag), (Outcome::Succeeded, ResultFlag::Normal));
    let audit = good.audit.as_ref().unwrap();
    assert_eq!((audit.step_id.as_str(), audit.exit_error.as_deref()), ("step-1", None));
    assert_eq!(audit.started_at, Timestamp(1_796_034_912_618_000));
    assert_eq!((bad.outcome, bad.flag), (Outcome::Failed, ResultFlag::Error));
    assert_eq!(bad.audit.as_ref().unwrap().exit_error.as_deref(), Some("no y"));
}

#[test]
fn a_boundary_compacts_once_it_is_known_with_what() {
    let mut memory = Memory::default();
    import_into(&mut memory, &whole());
    let compactions: Vec<_> = memory
        .only()
        .told(ROOT)
        .into_iter()
        .filter_map(|event| if let Event::ContextCompacted(it) = event { Some(it.clone()) } else { None })
        .collect();
    let [first, second] = compactions.as_slice() else {
        panic!("the last boundary has nothing behind it yet")
    };
    assert_eq!((first.summary_role, first.summary.len()), (Role::System, 1));
    assert_eq!((first.replaced[0].first, first.replaced[0].last), (MessageNo(1), MessageNo(4)));
    assert!(second.summary.is_empty());
    assert_eq!((second.replaced[0].first, second.replaced[0].last), (MessageNo(5), MessageNo(6)));
    assert!(first.kept.is_empty() && second.kept.is_empty());
}

#[test]
fn a_whole_record_glued_to_a_torn_one_is_saved() {
    // T2: b-torn
    let mut memory = Memory::default();
    let done = import_into(&mut memory, &fixtures().join("recursive/torn"));
    assert_eq!(memory.only().kinds(), ["user", "damaged", "user", "assistant"]);
    assert_eq!(done.report.damaged.len(), 1);
    assert_eq!(done.report.damaged[0].line, 2);
    assert_eq!(memory.only().messages(ROOT)[1].parts, [Part::text("m3 is whole")]);
}

#[test]
fn metadata_is_compared_and_its_changes_are_appended() {
    let names = ["transcript.jsonl", ".meta.json", "cost.json"];
    let contents = names.map(|name| std::fs::read(whole().join(name)).unwrap());
    let files: Vec<_> =
        names.iter().zip(&contents).map(|(name, content)| (*name, content.as_slice())).collect();
    let directory = directory(&files);
    let mut memory = Memory::default();
    import_into(&mut memory, directory.path());
    assert_eq!(import_into(&mut memory, directory.path()).outcomes, [Imported::Unchanged]);
    let meta = String::from_utf8(contents[1].clone()).unwrap().replace("\"crashed\"", "\"completed\"");
    std::fs::write(directory.path().join(".meta.json"), meta).unwrap();
    let done = import_into(&mut memory, directory.path());
    assert_eq!((done.outcomes[0], done.report.appended), (Imported::Grown, 1));
    let finished = SessionFinished { status: FinalStatus::Completed, reason: None };
    assert_eq!(memory.only().told(ROOT).last(), Some(&&Event::from(finished)));
}

#[test]
fn a_transcript_without_whole_metadata_is_a_session() {
    // T8
    let transcript = std::fs::read(whole().join("transcript.jsonl")).unwrap();
    for meta in [None, Some(&b""[..]), Some(&[0; 300][..])] {
        let mut files = vec![("2026-x/transcript.jsonl", transcript.as_slice())];
        files.extend(meta.map(|meta| ("2026-x/.meta.json", meta)));
        let directory = directory(&files);
        let mut memory = Memory::default();
        let done = import_into(&mut memory, directory.path());
        assert_eq!(done.sessions[0].agent_session_id, "2026-x");
        assert_eq!(memory.only().messages(ROOT).len(), 8);
        assert_eq!(
            done.report.notes.iter().any(|note| note.text.contains("empty or damaged")),
            meta.is_some()
        );
    }
}

#[test]
fn an_empty_transcript_beside_metadata_is_a_session() {
    let meta = std::fs::read(whole().join(".meta.json")).unwrap();
    let directory = directory(&[("transcript.jsonl", b""), (".meta.json", &meta)]);
    let mut memory = Memory::default();
    let done = import_into(&mut memory, directory.path());
    assert_eq!(done.sessions[0].agent_session_id, "2026-11-30T11-00-00Z-home-dev-demo");
    assert_eq!(memory.only().kinds(), ["meta"]);
}

#[test]
fn older_formats_are_read_with_estimated_times() {
    // M6, M12
    let expected = [
        ("session-file.json", SourceFormat::RecursiveLegacy, 3),
        ("transcript-file.json", SourceFormat::RecursiveLegacy, 2),
        ("bare-messages.jsonl", SourceFormat::RecursiveMessages, 3),
    ];
    for (name, format, messages) in expected {
        let content = std::fs::read(fixtures().join("recursive").join(name)).unwrap();
        let directory = directory(&[(name, &content)]);
        let mut memory = Memory::default();
        let done = import_into(&mut memory, directory.path());
        assert_eq!((done.sessions.len(), done.sessions[0].format), (1, format), "{name}");
        assert_eq!(memory.only().messages(ROOT).len(), messages, "{name}");
        let mut told =
            memory.only().events.iter().filter(|event| matches!(event.event, Event::MessageAppended(_)));
        assert!(told.all(|event| event.time_origin == TimeOrigin::Estimated && event.timestamp.is_some()));
        assert_eq!(import_into(&mut memory, directory.path()).outcomes, [Imported::Unchanged], "{name}");
    }
}

#[test]
fn a_document_that_was_written_anew_gives_its_new_messages() {
    let content = std::fs::read_to_string(fixtures().join("recursive/session-file.json")).unwrap();
    let directory = directory(&[("old.json", content.as_bytes())]);
    let mut memory = Memory::default();
    import_into(&mut memory, directory.path());
    let more = r#"},{"role":"assistant","content":"It is noon."}"#;
    let at = content.rfind('}').and_then(|end| content[..end].rfind('}')).unwrap();
    let grown =
        content[..at].replace("\"steps_consumed\": 2", "\"steps_consumed\": 10") + more + &content[at + 1..];
    std::fs::write(directory.path().join("old.json"), grown).unwrap();
    let done = import_into(&mut memory, directory.path());
    assert_eq!(done.outcomes, [Imported::Grown]);
    assert_eq!(memory.only().messages(ROOT).len(), 4);
    assert_eq!(memory.only().kinds().iter().filter(|kind| **kind == "document").count(), 2);
    assert_eq!(import_into(&mut memory, directory.path()).outcomes, [Imported::Unchanged]);
}

#[test]
fn a_document_that_was_cut_off_gives_its_whole_messages() {
    // T19
    let content = std::fs::read(fixtures().join("recursive/session-file.json")).unwrap();
    let cut = content.len() - 40;
    let directory = directory(&[("old.json", &content[..cut])]);
    let mut memory = Memory::default();
    let done = import_into(&mut memory, directory.path());
    assert_eq!(memory.only().messages(ROOT).len(), 3);
    assert!(done.report.notes.iter().any(|note| note.text.contains("ends in the middle")));
}
