//! `logdump migrate`: sessions of older agents from their workspaces into the home.

use indicatif::ProgressBar;
use serde_json::{Value, json};
use sessionlog::{Durability, Store, StoreOptions, StoreReader, ViewPolicy};

use crate::args::MigrateArgs;
use crate::exit::{Exit, Failure, with_causes};
use crate::migrate::{Findings, Found, Migration, Originals, OsDisk, Outcome, Removal, Row, Unread, find};
use crate::output::progress::progress_bar;
use crate::output::safe::safe;
use crate::output::text::count;
use crate::output::{Context, Format, SCHEMA_VERSION};

/// How many oddities of a source, and notes, are written out for people; JSON has all of them.
const SHOWN: usize = 8;

/// Runs the command.
///
/// # Errors
/// `Usage` if a path is not there or nothing at the paths is to be migrated; else what the home says. A source that can't be
/// migrated is a row with its reason.
pub fn run(args: &MigrateArgs, context: &Context) -> Result<Exit, Failure> {
    let findings = find(&args.paths).map_err(|error| Failure::usage("migrate.path", with_causes(&error)))?;
    if findings.found.is_empty() && findings.unread.is_empty() {
        for note in findings.notes.iter().take(SHOWN) {
            context.warn(&format!("{}: {}", note.path, note.text));
        }
        return Err(Failure::usage(
            "migrate.nothing",
            "none of the paths holds anything that is to be migrated",
        ));
    }
    let removal = if args.remove_originals { Removal::Remove } else { Removal::Keep };
    let progress = progress_bar(bytes_of(&findings.found), context);
    let rows = match args.dry_run {
        true => plan(&findings, removal, &progress, context)?,
        false if findings.found.is_empty() => Vec::new(),
        false => migrate(&findings, removal, &progress, context)?,
    };
    progress.finish_and_clear();
    print(args, &findings, &rows, context)
}

fn plan(
    findings: &Findings,
    removal: Removal,
    progress: &ProgressBar,
    context: &Context,
) -> Result<Vec<Row>, Failure> {
    let reader = home(context)?;
    let row = |found: &Found| {
        progress.set_message(safe(&found.source.agent_session_id).into_owned());
        Migration::plan(found, reader.as_ref(), removal, &mut |bytes| progress.inc(bytes))
    };
    Ok(findings.found.iter().map(row).collect())
}

/// The home, if there is one: a plan makes none.
fn home(context: &Context) -> Result<Option<StoreReader>, Failure> {
    match StoreReader::open(context.home()?) {
        Ok(reader) => Ok(Some(reader)),
        Err(error) if error.kind() == sessionlog::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn migrate(
    findings: &Findings,
    removal: Removal,
    progress: &ProgressBar,
    context: &Context,
) -> Result<Vec<Row>, Failure> {
    let options = StoreOptions {
        durability: Durability::Buffered,
        views: ViewPolicy::AtClose,
        ..StoreOptions::default()
    };
    let store = Store::open_with(context.home()?, options)?;
    let migration = Migration { store: &store, removal, disk: &OsDisk };
    let row = |found: &Found| {
        progress.set_message(safe(&found.source.agent_session_id).into_owned());
        migration.run(found, &mut |bytes| progress.inc(bytes))
    };
    Ok(findings.found.iter().map(row).collect())
}

fn bytes_of(found: &[Found]) -> u64 {
    found.iter().flat_map(|found| &found.source.files).map(|file| file.len).sum()
}

fn print(args: &MigrateArgs, findings: &Findings, rows: &[Row], context: &Context) -> Result<Exit, Failure> {
    let worst = rows.iter().map(|row| row.exit).max().unwrap_or_default();
    let exit = worst.max(if findings.unread.is_empty() { Exit::Clean } else { Exit::Warnings });
    if context.format() == Format::Json {
        let notes: Vec<_> =
            findings.notes.iter().map(|note| json!({ "path": note.path, "text": note.text })).collect();
        let sources: Vec<Value> =
            rows.iter().map(row_json).chain(findings.unread.iter().map(unread_json)).collect();
        context.json(&json!({
            "schema_version": SCHEMA_VERSION, "dry_run": args.dry_run, "sources": sources, "notes": notes,
            "outcome": exit.word(),
        }))?;
        return Ok(exit);
    }
    for row in rows {
        show(row, context)?;
    }
    for unread in &findings.unread {
        context.line(&format!("{:36}  {:9}  {}", "-", "unread", safe(&unread.path.to_string_lossy())))?;
        context.line(&format!("  !! {}", safe(&unread.why)))?;
    }
    for note in findings.notes.iter().take(SHOWN) {
        context.note(&format!("{}: {}", note.path, note.text));
    }
    let more = findings.notes.len().saturating_sub(SHOWN);
    if more > 0 {
        context.note(&format!("{more} more notes are left out here; --json has all of them"));
    }
    context.note(&summary(args, rows, &findings.unread));
    Ok(exit)
}

fn show(row: &Row, context: &Context) -> Result<(), Failure> {
    let path = row.path.to_string_lossy();
    context.line(&format!(
        "{}  {:9}  {:>7} records  {}  {}",
        row.session_id,
        row.outcome.word(),
        row.records,
        row.format,
        safe(&path)
    ))?;
    if let Some(error) = &row.error {
        context.line(&format!("  !! {}", safe(error)))?;
    }
    for odd in row.odd.iter().take(SHOWN) {
        context.line(&format!("  !  {}", safe(odd)))?;
    }
    let more = row.odd.len().saturating_sub(SHOWN);
    if more > 0 {
        context.line(&format!("  !  {more} more are left out here; --json has all of them"))?;
    }
    if let Originals::Refused(why) = &row.originals {
        context.line(&format!("  its files stay: {}", safe(why)))?;
    }
    Ok(())
}

fn summary(args: &MigrateArgs, rows: &[Row], unread: &[Unread]) -> String {
    let of = |outcome| rows.iter().filter(|row| row.outcome == outcome).count();
    let outcomes = [
        Outcome::New,
        Outcome::Grown,
        Outcome::Unchanged,
        Outcome::Conflict,
        Outcome::Deleted,
        Outcome::Failed,
    ];
    let counts = outcomes.map(|outcome| (of(outcome), outcome.word()));
    let told = counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}"));
    let mut told: Vec<String> = told.collect();
    if !unread.is_empty() {
        told.push(format!("{} unread", unread.len()));
    }
    let files: usize = rows
        .iter()
        .map(|row| match row.originals {
            Originals::WouldGo(files) | Originals::Removed(files) => files,
            _ => 0,
        })
        .sum();
    let files = count(u64::try_from(files).unwrap_or(u64::MAX), "file", "files");
    let gone = match (args.remove_originals, args.dry_run) {
        (false, _) => String::new(),
        (true, true) => format!("; {files} would be removed once their sessions verify"),
        (true, false) => format!("; {files} removed"),
    };
    let nothing = if args.dry_run { "; nothing was changed" } else { "" };
    let sources = rows.len().saturating_add(unread.len());
    let sources = count(u64::try_from(sources).unwrap_or(u64::MAX), "source", "sources");
    format!("{sources}: {}{gone}{nothing}", told.join(", "))
}

fn row_json(row: &Row) -> Value {
    let (state, files, why) = match &row.originals {
        Originals::Kept => ("kept", 0, None),
        Originals::WouldGo(files) => ("would_be_removed", *files, None),
        Originals::Removed(files) => ("removed", *files, None),
        Originals::Refused(why) => ("refused", 0, Some(why)),
    };
    json!({
        "path": row.path.to_string_lossy(),
        "format": row.format,
        "outcome": row.outcome.word(),
        "id": row.session_id.to_string(),
        "agent_session_id": row.agent_session_id,
        "workspace": String::from_utf8_lossy(&row.workspace),
        "records": row.records,
        "messages": row.messages,
        "odd": row.odd,
        "originals": { "state": state, "files": files, "why": why },
        "error": row.error,
    })
}

fn unread_json(unread: &Unread) -> Value {
    json!({
        "path": unread.path.to_string_lossy(),
        "format": null,
        "outcome": "unread",
        "id": null,
        "error": unread.why,
    })
}
