//! Real files, where they are at hand. They are nobody's to keep here, so the test says that it skipped without them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Deserializer, Value};
use sessionlog_codec::event::{Event, Role};

use super::super::{FileRole, Imported, SourceFormat, SourceSession};
use super::target::Memory;
use super::{Done, import_into};

fn samples() -> Option<PathBuf> {
    let named = std::env::var_os("SESSIONLOG_SAMPLES").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/samples");
    let found = named.or(Some(beside)).filter(|path| path.is_dir());
    if found.is_none() {
        eprintln!("skipped: no samples (set SESSIONLOG_SAMPLES)");
    }
    found
}

/// Imports everything below a directory, twice: the second time appends nothing.
fn import_twice(path: &Path) -> (Memory, Done) {
    let mut memory = Memory::default();
    let done = import_into(&mut memory, path);
    let before: Vec<_> = memory.sessions.values().map(|stored| stored.events.len()).collect();
    let again = import_into(&mut memory, path);
    let after: Vec<_> = memory.sessions.values().map(|stored| stored.events.len()).collect();
    assert_eq!(before, after);
    assert!(again.outcomes.iter().all(|outcome| *outcome == Imported::Unchanged), "{:?}", again.report.notes);
    assert_eq!(again.report.messages, done.report.messages);
    (memory, done)
}

/// What a plain reading of a session's files says: responses by id, and tool results.
fn plain_counts(session: &SourceSession) -> (BTreeMap<String, BTreeSet<String>>, usize) {
    let mut responses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut results = 0;
    for file in &session.files {
        if !matches!(file.role, FileRole::Main | FileRole::Child { .. }) {
            continue;
        }
        let mut seen = BTreeSet::new();
        let text = std::fs::read(&file.path).unwrap();
        for line in text.split(|byte| *byte == b'\n') {
            for value in Deserializer::from_slice(line).into_iter::<Value>().map_while(Result::ok) {
                let content = &value["message"]["content"];
                if !content.is_array() && !content.is_string() {
                    continue;
                }
                if value["uuid"].is_string() && !seen.insert(value["uuid"].as_str().unwrap().to_owned()) {
                    continue;
                }
                if value["type"] == "assistant" {
                    let id = value["message"]["id"].as_str().map(str::to_owned);
                    let id = id.unwrap_or_else(|| value["uuid"].to_string());
                    responses.entry(file.label.clone()).or_default().insert(id);
                } else if value["type"] == "user" {
                    let blocks = content.as_array().cloned().unwrap_or_default();
                    results += blocks.iter().filter(|block| block["type"] == "tool_result").count();
                }
            }
        }
    }
    (responses, results)
}

#[test]
fn claude_code_samples_are_imported_whole() {
    let Some(samples) = samples() else { return };
    let (memory, done) = import_twice(&samples.join("claude-code"));
    assert!(done.sessions.len() >= 25, "{}", done.sessions.len());
    assert!(done.report.damaged.is_empty(), "{:?}", done.report.damaged);
    for session in done.sessions.iter().filter(|session| session.format == SourceFormat::ClaudeCode) {
        let stored = &memory.sessions[&session.session_id];
        let count =
            |is: &dyn Fn(&Event) -> bool| stored.events.iter().filter(|event| is(&event.event)).count();
        let (responses, results) = plain_counts(session);
        let responses: usize = responses.values().map(BTreeSet::len).sum();
        let of_role = |role| move |event: &Event| matches!(event, Event::MessageAppended(message) if message.role == role);
        assert_eq!(count(&of_role(Role::Assistant)), responses, "{}", session.agent_session_id);
        let finished = count(&|event| matches!(event, Event::CallFinished(_)));
        assert_eq!(finished + count(&of_role(Role::Tool)), results, "{}", session.agent_session_id);
    }
}

#[test]
fn recursive_samples_are_imported_whole() {
    let Some(samples) = samples() else { return };
    let (memory, done) = import_twice(&samples.join("recursive"));
    assert!(done.sessions.len() >= 20, "{}", done.sessions.len());
    assert!(memory.sessions.len() == done.sessions.len());
    let damaged: Vec<_> =
        done.report.damaged.iter().map(|damage| (damage.file.as_str(), damage.line)).collect();
    assert_eq!(damaged, [("damaged/b-torn/transcript.jsonl", 2)]);
}

#[test]
fn samples_of_other_agents_are_nobodys() {
    let Some(samples) = samples() else { return };
    for entry in std::fs::read_dir(samples).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !path.is_dir() || matches!(name.as_str(), "claude-code" | "recursive") {
            continue;
        }
        let mut memory = Memory::default();
        let done = import_into(&mut memory, &path);
        for session in &done.sessions {
            let labels: Vec<_> = session.files.iter().map(|file| &file.label).collect();
            eprintln!("{name}: {} {labels:?}", session.format);
        }
    }
}
