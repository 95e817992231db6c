//! `import`: sessions of other agents into the store.

use std::path::Path;

use serde_json::json;
use sessionlog::codec::ids::SessionId;
use sessionlog::{Durability, Store, StoreOptions, ViewPolicy};

use crate::args::ImportArgs;
use crate::exit::{Exit, Failure, with_causes};
use crate::import::{ImportError, ImportReport, Imported, Note, SourceSession, discover, import_session};
use crate::output::progress::progress_bar;
use crate::output::safe::safe;
use crate::output::{Context, Format, SCHEMA_VERSION};
use crate::store_target::StoreTarget;

/// How many damaged spans and notes are written out for people; JSON has all of them.
const SHOWN: usize = 20;

/// A session that could not be imported, or not to its end.
struct Failed {
    session_id: SessionId,
    failure: Failure,
}

/// Imports what is at the paths.
///
/// # Errors
/// `Usage` if a path does not exist or nothing at the paths is a session; else what the store says.
pub fn run(args: &ImportArgs, context: &Context) -> Result<Exit, Failure> {
    let mut report = ImportReport::default();
    let sources = discover(&args.paths, &mut report.notes)
        .map_err(|error| Failure::usage("import.path", with_causes(&error)))?;
    if sources.is_empty() {
        for note in report.notes.iter().take(SHOWN) {
            context.warn(&line_of(note));
        }
        return Err(Failure::usage(
            "import.nothing",
            "none of the paths holds a session of a format that is known",
        ));
    }
    if args.dry_run {
        return preview(&sources, &report, context);
    }
    let options = StoreOptions {
        durability: Durability::Buffered,
        views: ViewPolicy::AtClose,
        ..StoreOptions::default()
    };
    let store = Store::open_with(context.home()?, options)?;
    let failed = import_all(&sources, &store, &mut report, context);
    print(&report, &failed, context)
}

fn import_all(
    sources: &[SourceSession],
    store: &Store,
    report: &mut ImportReport,
    context: &Context,
) -> Vec<Failed> {
    let progress = progress_bar(bytes_of(sources), context);
    let mut target = StoreTarget::new(store.clone());
    let mut failed = Vec::new();
    for source in sources {
        progress.set_message(safe(&source.agent_session_id).into_owned());
        let imported = import_session(source, &mut target, &mut |bytes| progress.inc(bytes), report);
        if let Err(error) = imported {
            failed.push(Failed { session_id: source.session_id, failure: failure(&error) });
        }
    }
    progress.finish_and_clear();
    failed
}

/// What the engine says of the target decides the exit code, however deep it is wrapped.
fn failure(error: &ImportError) -> Failure {
    let message = with_causes(error);
    if let ImportError::Target(cause) = error
        && let Some(engine) = cause.downcast_ref::<sessionlog::Error>()
    {
        return Failure::from(engine.clone());
    }
    match error {
        ImportError::Target(_) => Failure::usage("import.refused", message),
        _ => Failure::new(Exit::Io, "import.source", message),
    }
}

fn bytes_of(sources: &[SourceSession]) -> u64 {
    let files = sources.iter().flat_map(|source| &source.files);
    files.map(|file| file_len(&file.path)).sum()
}

fn file_len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn preview(sources: &[SourceSession], report: &ImportReport, context: &Context) -> Result<Exit, Failure> {
    if context.format() == Format::Json {
        let sessions: Vec<_> = sources
            .iter()
            .map(|source| {
                json!({
                    "id": source.session_id.to_string(),
                    "agent_session_id": source.agent_session_id,
                    "format": source.format.to_string(),
                    "files": source.files.iter().map(|file| file.label.as_str()).collect::<Vec<_>>(),
                })
            })
            .collect();
        context.json(&json!({
            "schema_version": SCHEMA_VERSION, "dry_run": true, "sessions": sessions, "notes": report.notes,
        }))?;
        return Ok(Exit::Clean);
    }
    for source in sources {
        let files = source.files.len();
        let agent_id = safe(&source.agent_session_id);
        context.line(&format!("{}  {}  {agent_id}  {files} files", source.session_id, source.format))?;
    }
    show_notes(report, context);
    context.note(&format!("{} sessions would be imported; nothing was changed", sources.len()));
    Ok(Exit::Clean)
}

fn print(report: &ImportReport, failed: &[Failed], context: &Context) -> Result<Exit, Failure> {
    let worst = failed.iter().map(|failed| failed.failure.exit()).max().unwrap_or_default();
    let conflict = report.sessions.iter().any(|session| session.outcome == Imported::Conflict);
    let odd = conflict || !report.damaged.is_empty();
    let exit = worst.max(if odd { Exit::Warnings } else { Exit::Clean });
    if context.format() == Format::Json {
        let failures: Vec<_> = failed
            .iter()
            .map(|failed| json!({"id": failed.session_id.to_string(), "error": failed.failure.to_string()}))
            .collect();
        context.json(&json!({
            "schema_version": SCHEMA_VERSION, "report": report, "failed": failures, "outcome": exit.word(),
        }))?;
        return Ok(exit);
    }
    for session in &report.sessions {
        let outcome = match session.outcome {
            Imported::New => "new",
            Imported::Grown => "grown",
            Imported::Unchanged => "unchanged",
            Imported::Conflict => "conflict",
        };
        let agent_id = safe(&session.agent_session_id);
        context.line(&format!(
            "{}  {outcome:9}  {:>8} records  {agent_id}",
            session.session_id, session.appended
        ))?;
    }
    context.line(&format!(
        "{} sessions; read {} lines ({} bytes): {} messages, {} results; appended {} records",
        report.sessions.len(),
        report.lines,
        report.bytes,
        report.messages,
        report.results,
        report.appended
    ))?;
    for (kind, count) in &report.by_kind {
        context.line(&format!("  {count:>8}  {}", safe(kind)))?;
    }
    show_notes(report, context);
    for failed in failed {
        context.go_on(Failure::new(
            failed.failure.exit(),
            "import.session",
            format!("session {}: {}", failed.session_id, failed.failure),
        ))?;
    }
    Ok(exit)
}

/// A note as a line; one that is about the whole import names no file.
fn line_of(note: &Note) -> String {
    if note.path.is_empty() { note.text.clone() } else { format!("{}: {}", note.path, note.text) }
}

fn show_notes(report: &ImportReport, context: &Context) {
    for damage in report.damaged.iter().take(SHOWN) {
        context.warn(&format!("{} line {} byte {}: {}", damage.file, damage.line, damage.offset, damage.why));
    }
    for note in report.notes.iter().take(SHOWN) {
        context.note(&line_of(note));
    }
    let more =
        report.damaged.len().saturating_sub(SHOWN).saturating_add(report.notes.len().saturating_sub(SHOWN));
    if more > 0 {
        context.note(&format!("{more} more are left out here; --json has all of them"));
    }
}
