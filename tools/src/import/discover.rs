//! Finds sessions in files and directories, by what is in the files.

mod claude;
mod q;
mod recursive;
mod walk;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use sessionlog_codec::ids::SessionId;
use sessionlog_projections::views::q::AGENT;

use super::loose;
use super::report::Note;
use super::sniff::{FileKind, SessionFacts, Sniffed, sniff};

/// A format that sessions are imported from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceFormat {
    /// Claude Code: a file for the session, one for each agent that it delegated to.
    ClaudeCode,
    /// recursive: a directory with `transcript.jsonl` and `.meta.json`.
    RecursiveSession,
    /// recursive, older: one JSON document.
    RecursiveLegacy,
    /// recursive, older: lines of bare messages.
    RecursiveMessages,
    /// recursive: the working memory of a workspace. Only a migration takes it.
    RecursiveScratchpad,
    /// q: a directory with `session.json`, and one below it for each delegate.
    QSession,
}

impl SourceFormat {
    /// The agent that writes it.
    #[must_use]
    pub fn agent(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::RecursiveSession
            | Self::RecursiveLegacy
            | Self::RecursiveMessages
            | Self::RecursiveScratchpad => "recursive",
            Self::QSession => AGENT,
        }
    }
}

impl fmt::Display for SourceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClaudeCode => "claude-code",
            Self::RecursiveSession => "recursive",
            Self::RecursiveLegacy => "recursive-document",
            Self::RecursiveMessages => "recursive-messages",
            Self::RecursiveScratchpad => "recursive-scratchpad",
            Self::QSession => AGENT,
        })
    }
}

/// What a file is to its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRole {
    /// The session's own lines.
    Main,
    /// The session's own records, as one JSON document.
    Document,
    /// The lines of an agent that was delegated to.
    Child {
        /// The agent's id.
        agent_id: String,
    },
    /// What is known of such an agent.
    ChildMeta {
        /// The agent's id.
        agent_id: String,
    },
    /// The journal of a workflow.
    Journal,
    /// What is known of the session.
    Meta,
    /// What the session cost.
    Cost,
    /// The states of files that were saved.
    Checkpoints,
    /// The working memory of a workspace.
    Scratchpad,
    /// A file of a q session.
    Q {
        /// The delegate it belongs to: the ids from the root down; empty: the root.
        delegate: Vec<String>,
        /// Which of its files.
        part: QPart,
    },
}

/// Which file of a q conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QPart {
    /// What was said.
    Session,
    /// The bookmarks of its delegations.
    Delegations,
    /// Where a delegate stands.
    State,
    /// The plan that the root executes.
    Plan,
}

/// A file of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its path below the place that was given, for people.
    pub label: String,
    /// What it is.
    pub role: FileRole,
    /// Bytes of it when it was found.
    pub len: u64,
}

/// A session that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSession {
    /// Its format.
    pub format: SourceFormat,
    /// The agent's own id of it.
    pub agent_session_id: String,
    /// Its id here: the agent's if that is a UUID, else made from it, the same each time.
    pub session_id: SessionId,
    /// Its files, the session's own first.
    pub files: Vec<SourceFile>,
    /// What is known of it before it is read.
    pub facts: SessionFacts,
}

/// A path that was given can't be looked at.
#[derive(Debug, thiserror::Error)]
#[error("can't read {path}", path = path.display())]
pub struct DiscoverError {
    /// The path.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Finds the sessions in files and directories. Directories are searched to their depths; symlinks below the given
/// paths are not followed. What is skipped is noted.
///
/// # Errors
/// If one of the given paths is not there or can't be read. What can't be read below it is noted.
pub fn discover(paths: &[PathBuf], notes: &mut Vec<Note>) -> Result<Vec<SourceSession>, DiscoverError> {
    let mut found = Vec::new();
    for path in paths {
        walk::walk(path, &mut found, notes)?;
    }
    // The same file may be below several of the paths.
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.dedup_by(|a, b| a.path == b.path);
    let mut looked_at = Vec::new();
    for file in found {
        match sniff(&file.path) {
            // A prompt may be long, and there may be many files: it is looked up again where it is needed.
            Ok(sniffed) => looked_at.push(Looked { file, sniffed: Sniffed { prompt: None, ..sniffed } }),
            Err(error) => note(notes, &file.label, format!("can't be read: {error}")),
        }
    }
    let mut sessions = claude::sessions(&looked_at, notes);
    sessions.extend(recursive::sessions(&looked_at, notes));
    sessions.extend(q::sessions(&looked_at, notes));
    note_others(&looked_at, &sessions, paths, notes);
    sessions.sort_by(|a, b| first_path(a).cmp(&first_path(b)));
    Ok(sessions)
}

/// A regular file below the given paths.
#[derive(Clone, Debug)]
struct Found {
    path: PathBuf,
    label: String,
    len: u64,
}

impl Found {
    fn as_role(&self, role: FileRole) -> SourceFile {
        SourceFile { path: self.path.clone(), label: self.label.clone(), role, len: self.len }
    }
}

/// A file that was looked into.
#[derive(Clone, Debug)]
struct Looked {
    file: Found,
    sniffed: Sniffed,
}

impl Looked {
    fn is(&self, kind: FileKind) -> bool {
        self.sniffed.kind == kind
    }

    /// The file's name without its extension.
    fn stem(&self) -> String {
        self.file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn name(&self) -> &str {
        self.file.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    fn directory(&self) -> &Path {
        self.file.path.parent().unwrap_or(Path::new(""))
    }

    /// A few digits that tell it from another session of the same name.
    fn mark(&self) -> String {
        let hex = self.sniffed.first.map(|hash| hash.to_hex().to_string()).unwrap_or_default();
        loose::cut(&hex, 8).to_owned()
    }
}

fn note(notes: &mut Vec<Note>, path: &str, text: impl Into<String>) {
    notes.push(Note { path: path.to_owned(), text: text.into() });
}

fn first_path(session: &SourceSession) -> Option<&Path> {
    session.files.first().map(|file| file.path.as_path())
}

/// Notes the files that belong to no session: one by one where they were given, else by their number.
fn note_others(looked_at: &[Looked], sessions: &[SourceSession], paths: &[PathBuf], notes: &mut Vec<Note>) {
    let used: std::collections::HashSet<&Path> =
        sessions.iter().flat_map(|session| &session.files).map(|file| file.path.as_path()).collect();
    let mut others = 0_u64;
    for looked in looked_at.iter().filter(|looked| !used.contains(looked.file.path.as_path())) {
        if paths.contains(&looked.file.path) && !notes.iter().any(|note| note.path == looked.file.label) {
            note(notes, &looked.file.label, "is no session that can be imported");
        } else {
            others += 1;
        }
    }
    if others > 0 {
        note(notes, "", format!("{others} other files were not imported"));
    }
}

/// Gives sessions of the same id that are not copies of each other ids of their own. The first in `mains` keeps the id.
fn tell_apart<'a>(mains: Vec<(String, &'a Looked)>, notes: &mut Vec<Note>) -> Vec<(String, &'a Looked)> {
    let mut told: Vec<(String, &'a Looked)> = Vec::new();
    let mut firsts: HashMap<String, usize> = HashMap::new();
    for (id, looked) in mains {
        let Some(first) = firsts.get(&id).and_then(|index| told.get_mut(*index)) else {
            firsts.insert(id.clone(), told.len());
            told.push((id, looked));
            continue;
        };
        if walk::is_prefix_of_other(&first.1.file, &looked.file) {
            let (kept, left) =
                if looked.file.len > first.1.file.len { (looked, first.1) } else { (first.1, looked) };
            note(notes, &left.file.label, format!("is a copy of {}, which has all of it", kept.file.label));
            first.1 = kept;
            continue;
        }
        let mut own = format!("{id}~{}", looked.mark());
        while told.iter().any(|(other, _)| *other == own) {
            own.push('~');
        }
        let text = format!("says it is session {id}, as another file does that differs: imported as {own}");
        note(notes, &looked.file.label, text);
        told.push((own, looked));
    }
    told
}
