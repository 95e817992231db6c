//! The importers as a whole, against a target in memory that refuses what a log could not hold.

mod claude;
mod growth;
mod q;
mod q_law;
mod recursive;
mod samples;
mod target;

use std::path::{Path, PathBuf};

use sessionlog_codec::event::{Event, MessageAppended, NewEvent};
use sessionlog_codec::ids::NodeId;

use super::{ImportReport, Imported, Note, SourceSession, discover, import_session};
use target::{Memory, Stored};

/// A directory with files of `(name, content)`.
fn directory(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    directory
}

/// What an import of everything below a path did.
struct Done {
    sessions: Vec<SourceSession>,
    outcomes: Vec<Imported>,
    report: ImportReport,
    notes: Vec<Note>,
}

fn import_into(memory: &mut Memory, path: &Path) -> Done {
    let mut notes = Vec::new();
    let sessions = discover(&[path.to_owned()], &mut notes).unwrap();
    let mut report = ImportReport::default();
    let mut outcomes = Vec::new();
    let mut read = 0;
    for session in &sessions {
        outcomes.push(import_session(session, memory, &mut |bytes| read += bytes, &mut report).unwrap());
    }
    assert_eq!(read, report.bytes);
    serde_json::to_string(&report).unwrap();
    Done { sessions, outcomes, report, notes }
}

/// Imports one file of lines, of the only session that is in it.
fn import_lines(name: &str, lines: &[&str]) -> (Stored, ImportReport) {
    let content = lines.join("\n") + "\n";
    let directory = directory(&[(name, content.as_bytes())]);
    let mut memory = Memory::default();
    let done = import_into(&mut memory, directory.path());
    assert_eq!(done.sessions.len(), 1, "{:?}", done.notes);
    (memory.only().clone(), done.report)
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

impl Stored {
    /// The mapped events of a node, without the bookkeeping of the import.
    fn told(&self, node: NodeId) -> Vec<&Event> {
        let is_told = |event: &&NewEvent| {
            event.node == node && !matches!(event.event, Event::ImportStarted(_) | Event::ImportedRaw(_))
        };
        self.events.iter().filter(is_told).map(|event| &event.event).collect()
    }

    fn messages(&self, node: NodeId) -> Vec<&MessageAppended> {
        let told = self.told(node).into_iter();
        told.filter_map(|event| match event {
            Event::MessageAppended(message) => Some(message),
            _ => None,
        })
        .collect()
    }

    /// The kinds of the raw records.
    fn kinds(&self) -> Vec<&str> {
        let events = self.events.iter();
        events
            .filter_map(|event| match &event.event {
                Event::ImportedRaw(raw) => Some(raw.kind.as_str()),
                _ => None,
            })
            .collect()
    }
}
