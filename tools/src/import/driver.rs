//! Brings a session into a target: compares what is there, appends what is not.

mod claude;
mod feed;
mod ledger;
mod q;
mod recursive;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{ImportOrigin, SessionCreated};
use sessionlog_codec::ids::Timestamp;
use sessionlog_projections::views::q::QError;

use super::discover::{SourceFile, SourceFormat, SourceSession};
use super::document::{DOCUMENT_LEN_MAX, Document};
use super::report::{ImportReport, Imported, SessionReport};
use super::target::{Target, TargetError};
use feed::Run;

/// Why an import of a session broke off. What it appended before is whole, and importing again goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file can't be read.
    #[error("can't read {path}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A session's own file is not what its format says, or of a version that is not known.
    #[error(transparent)]
    Q(#[from] QError),
    /// The target refused.
    #[error("can't write to the session")]
    Target(#[source] TargetError),
}

/// Imports one session, and appends only what the session does not have yet. `progress` is told how many bytes were
/// read since it was told last.
///
/// # Errors
/// If the session's own file can't be read, or the target fails. Another file that can't be read costs a note.
pub fn import_session(
    source: &SourceSession,
    target: &mut dyn Target,
    progress: &mut dyn FnMut(u64),
    report: &mut ImportReport,
) -> Result<Imported, ImportError> {
    let session = target.open(&created(source), source.facts.began).map_err(ImportError::Target)?;
    let mut run = Run::new(session, progress, report)?;
    match source.format {
        SourceFormat::ClaudeCode => claude::import(source, &mut run)?,
        SourceFormat::RecursiveSession
        | SourceFormat::RecursiveLegacy
        | SourceFormat::RecursiveMessages
        | SourceFormat::RecursiveScratchpad => recursive::import(source, &mut run)?,
        SourceFormat::QSession => q::import(source, &mut run)?,
    }
    let (outcome, appended) = run.finish()?;
    report.sessions.push(SessionReport {
        session_id: source.session_id,
        agent_session_id: source.agent_session_id.clone(),
        format: source.format.to_string(),
        outcome,
        appended,
    });
    report.appended += appended;
    Ok(outcome)
}

/// What a new session begins with.
fn created(source: &SourceSession) -> SessionCreated {
    let facts = &source.facts;
    SessionCreated {
        session_id: source.session_id,
        workspace: RawBytes::from(facts.cwd.clone().unwrap_or_default()),
        slug: sessionlog::store::slug(Path::new(facts.cwd.as_deref().unwrap_or_default())),
        goal: facts.goal.clone(),
        model: facts.model.clone(),
        provider: facts.provider.clone(),
        preset: facts.preset.clone(),
        tool_registry_hash: facts.tool_registry_hash.clone(),
        host: None,
        imported: Some(ImportOrigin {
            agent: source.format.agent().to_owned(),
            agent_version: facts.agent_version.clone(),
            session_id: source.agent_session_id.clone(),
        }),
        extra: None,
    }
}

/// The time of a file's records that come before any with a time: the session's beginning, else the file's own date.
fn first_time(source: &SourceSession, path: &Path) -> Option<Timestamp> {
    source.facts.began.or_else(|| {
        let since = path.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(since.as_micros()).ok().map(Timestamp)
    })
}

/// Opens a file that was a regular one when it was found.
fn open(file: &SourceFile) -> Result<File, ImportError> {
    File::open(&file.path).map_err(|source| ImportError::Read { path: file.path.clone(), source })
}

/// Reads a document whole; `None` if it is too long or no such document, which is noted.
fn open_document(
    file: &SourceFile,
    lists: &[&str],
    run: &mut Run<'_>,
) -> Result<Option<Document>, ImportError> {
    let Some(bytes) = read_whole(file, DOCUMENT_LEN_MAX, run)? else { return Ok(None) };
    let document = Document::new(bytes, lists);
    if document.is_none() {
        run.note(file, "is not the document any more that it was when it was found");
    }
    Ok(document)
}

fn read_whole(file: &SourceFile, len_max: u64, run: &mut Run<'_>) -> Result<Option<Vec<u8>>, ImportError> {
    let mut bytes = Vec::new();
    let read = open(file)?.take(len_max.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|source| ImportError::Read { path: file.path.clone(), source })?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= len_max) {
        return Ok(Some(bytes));
    }
    run.note(file, format!("is longer than {} MiB, so it was left out", len_max >> 20));
    Ok(None)
}
