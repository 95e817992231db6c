//! Puts Claude Code's files together: a session's own, those of its agents, journals.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use sessionlog_codec::ids::SessionId;

use super::{FileRole, Looked, SourceFormat, SourceSession, note, tell_apart};
use crate::import::loose::session_id;
use crate::import::report::Note;
use crate::import::sniff::{FileKind, SessionFacts};

pub(super) fn sessions(looked_at: &[Looked], notes: &mut Vec<Note>) -> Vec<SourceSession> {
    let mut mains = Vec::new();
    for looked in looked_at {
        if looked.is(FileKind::ClaudeMain) || looked.is(FileKind::ClaudeDocument) {
            match main_id(looked) {
                Some(id) => mains.push((id, looked)),
                None => {
                    note(notes, &looked.file.label, "holds no line of a conversation yet, so it was skipped");
                }
            }
        }
    }
    // A file that is named like its session goes before one that merely says so.
    mains.sort_by_key(|(id, looked)| (looked.stem() != *id, looked.file.path.clone()));
    let mut sessions: BTreeMap<String, SourceSession> = BTreeMap::new();
    for (id, main) in tell_apart(mains, notes) {
        let role = if main.is(FileKind::ClaudeDocument) { FileRole::Document } else { FileRole::Main };
        let session = sessions.entry(id.clone()).or_insert_with(|| new_session(id));
        session.files.push(main.file.as_role(role));
        session.facts = main.sniffed.facts.clone();
    }
    let by_path: HashMap<&Path, &Looked> =
        looked_at.iter().map(|looked| (looked.file.path.as_path(), looked)).collect();
    let mut homes: HashMap<&Path, String> = HashMap::new();
    for child in looked_at.iter().filter(|looked| looked.is(FileKind::ClaudeChild)) {
        let Some(agent_id) = child.sniffed.agent_id.clone() else { continue };
        let id = child.sniffed.session_id.clone().unwrap_or_else(|| child.stem());
        let session = sessions.entry(id.clone()).or_insert_with(|| new_session(id.clone()));
        homes.insert(child.directory(), id);
        add_child(session, child, agent_id, &by_path, notes);
    }
    for journal in looked_at.iter().filter(|looked| looked.is(FileKind::ClaudeJournal)) {
        match homes.get(journal.directory()).and_then(|id| sessions.get_mut(id)) {
            Some(session) => session.files.push(journal.file.as_role(FileRole::Journal)),
            None => note(notes, &journal.file.label, "is a workflow's journal without a session"),
        }
    }
    sessions.into_values().collect()
}

/// The session that a file is of: the one that its lines name, else the one it is named for. Before the first line of the
/// conversation a child's file looks like its parent's: then the name has to agree.
fn main_id(looked: &Looked) -> Option<String> {
    let stem = looked.stem();
    let id = looked.sniffed.session_id.clone().unwrap_or_else(|| stem.clone());
    let is_named = id == stem && id.parse::<SessionId>().is_ok();
    (looked.sniffed.is_decided || is_named).then_some(id)
}

fn new_session(id: String) -> SourceSession {
    SourceSession {
        format: SourceFormat::ClaudeCode,
        session_id: session_id(SourceFormat::ClaudeCode.agent(), &id),
        agent_session_id: id,
        files: Vec::new(),
        facts: SessionFacts::default(),
    }
}

fn add_child(
    session: &mut SourceSession,
    child: &Looked,
    agent_id: String,
    by_path: &HashMap<&Path, &Looked>,
    notes: &mut Vec<Note>,
) {
    let is_same = |role: &FileRole| matches!(role, FileRole::Child { agent_id: id } if *id == agent_id);
    if let Some(other) = session.files.iter().find(|file| is_same(&file.role)) {
        note(notes, &child.file.label, format!("is of the same agent as {}, so it was skipped", other.label));
        return;
    }
    if session.files.is_empty() {
        // Without the session's own file, what is known of it is what its child knows.
        session.facts = SessionFacts { model: None, ..child.sniffed.facts.clone() };
    }
    session.files.push(child.file.as_role(FileRole::Child { agent_id: agent_id.clone() }));
    if let Some(meta) = by_path.get(child.file.path.with_extension("meta.json").as_path()) {
        session.files.push(meta.file.as_role(FileRole::ChildMeta { agent_id }));
    }
}
