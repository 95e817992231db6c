//! Puts recursive's files together: a directory for each session, and older files that stand alone.

use std::collections::BTreeMap;
use std::path::Path;

use super::{FileRole, Looked, SourceFormat, SourceSession, note, tell_apart};
use crate::import::loose::session_id;
use crate::import::report::Note;
use crate::import::sniff::FileKind;

const TRANSCRIPT: &str = "transcript.jsonl";
const META: &str = ".meta.json";

pub(super) fn sessions(looked_at: &[Looked], notes: &mut Vec<Note>) -> Vec<SourceSession> {
    let mut directories: BTreeMap<&Path, Vec<&Looked>> = BTreeMap::new();
    for looked in looked_at {
        directories.entry(looked.directory()).or_default().push(looked);
    }
    let mut mains = Vec::new();
    for files in directories.values() {
        mains.extend(mains_of(files, notes));
    }
    let mut sessions = Vec::new();
    for (id, main) in tell_apart(mains, notes) {
        let format = match main.sniffed.kind {
            FileKind::RecursiveDocument => SourceFormat::RecursiveLegacy,
            FileKind::RecursiveMessages if main.name() != TRANSCRIPT => SourceFormat::RecursiveMessages,
            _ => SourceFormat::RecursiveSession,
        };
        let siblings = directories.get(main.directory()).map(Vec::as_slice).unwrap_or_default();
        sessions.push(session(format, id, main, siblings));
    }
    sessions
}

fn is_transcript(looked: &Looked) -> bool {
    looked.is(FileKind::RecursiveTranscript) || looked.is(FileKind::RecursiveMessages)
}

/// The files of a directory that are the beginning of a session each, with the session's id.
fn mains_of<'a>(files: &[&'a Looked], notes: &mut Vec<Note>) -> Vec<(String, &'a Looked)> {
    let named = |name: &str| files.iter().copied().find(|looked| looked.name() == name);
    let meta = named(META).filter(|meta| meta.is(FileKind::RecursiveMeta));
    // A transcript that is empty, or damaged beyond knowing, is one all the same beside its metadata.
    let transcript = named(TRANSCRIPT).filter(|looked| is_transcript(looked) || meta.is_some());
    let mut mains = Vec::new();
    if let Some(main) = transcript.or(meta) {
        let own = meta.and_then(|meta| meta.sniffed.session_id.clone());
        let directory = main.directory().file_name().map(|name| name.to_string_lossy().into_owned());
        mains.push((own.or(directory).unwrap_or_default(), main));
    }
    for looked in files.iter().copied().filter(|looked| looked.name() != TRANSCRIPT) {
        let is_left_over = looked.name().starts_with("transcript.") && transcript.is_some();
        if is_left_over && is_transcript(looked) {
            note(notes, &looked.file.label, "is what a rewind left behind, so it was skipped");
        } else if looked.is(FileKind::RecursiveDocument) {
            let id = match &looked.sniffed.session_id {
                Some(exported) => format!("{exported}/export"),
                None => format!("{}-{}", looked.stem(), looked.mark()),
            };
            mains.push((id, looked));
        } else if is_transcript(looked) {
            mains.push((format!("{}-{}", looked.stem(), looked.mark()), looked));
        }
    }
    mains
}

fn session(format: SourceFormat, id: String, main: &Looked, siblings: &[&Looked]) -> SourceSession {
    let mut facts = main.sniffed.facts.clone();
    let mut files = Vec::new();
    let is_whole = main.name() == TRANSCRIPT || main.name() == META;
    if main.name() != META {
        let is_document = format == SourceFormat::RecursiveLegacy;
        files.push(main.file.as_role(if is_document { FileRole::Document } else { FileRole::Main }));
    }
    // Metadata last: it tells the end.
    let roles =
        [("checkpoints.jsonl", FileRole::Checkpoints), ("cost.json", FileRole::Cost), (META, FileRole::Meta)];
    for (name, role) in roles.into_iter().filter(|_| is_whole) {
        let Some(sibling) = siblings.iter().find(|sibling| sibling.name() == name) else { continue };
        if role == FileRole::Meta && sibling.is(FileKind::RecursiveMeta) {
            let began = sibling.sniffed.facts.began.or(facts.began);
            facts = sibling.sniffed.facts.clone();
            facts.began = began;
        }
        files.push(sibling.file.as_role(role));
    }
    SourceSession { format, session_id: session_id(format.agent(), &id), agent_session_id: id, files, facts }
}
