//! What an import did, and what it could not do.

use std::collections::BTreeMap;

use serde::Serialize;
use sessionlog_codec::ids::SessionId;

/// Something worth knowing about a path, in plain words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The file or directory.
    pub path: String,
    /// What about it.
    pub text: String,
}

/// A span of a source that could not be understood. It is in the log as raw bytes, unless `why` says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// Where the span starts, in bytes.
    pub offset: u64,
    /// What is wrong with it.
    pub why: String,
}

/// What an import did to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Imported {
    /// Nothing: all of it was there.
    Unchanged,
    /// It appended what its files had gained.
    Grown,
    /// It made the session.
    New,
    /// A file is not what was imported from it before. Nothing of that file was appended; its note says where.
    Conflict,
}

/// One session of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionReport {
    /// The session.
    pub session_id: SessionId,
    /// The agent's own id of it.
    pub agent_session_id: String,
    /// The format it came in.
    pub format: String,
    /// What was done.
    pub outcome: Imported,
    /// Records of it that were appended now.
    pub appended: u64,
}

/// What an import did, over all of its sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// The sessions, in the order of their import.
    pub sessions: Vec<SessionReport>,
    /// Lines read, blank ones included.
    pub lines: u64,
    /// Records by their kind, in the source's own words. `damaged`, `duplicate` and `too-long` are ours.
    pub by_kind: BTreeMap<String, u64>,
    /// Messages that the sources hold.
    pub messages: u64,
    /// Tool results that the sources hold, orphans not among them.
    pub results: u64,
    /// Records that were appended now.
    pub appended: u64,
    /// Spans that could not be understood.
    pub damaged: Vec<Damage>,
    /// Everything else that somebody should know.
    pub notes: Vec<Note>,
    /// Bytes read.
    pub bytes: u64,
}

impl ImportReport {
    pub(crate) fn note(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.notes.push(Note { path: path.into(), text: text.into() });
    }
}
