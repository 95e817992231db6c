//! One source: what it would become, and making it so.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use sessionlog::codec::ids::{Position, SessionId};
use sessionlog::codec::registry::kind;
use sessionlog::log::Severity;
use sessionlog::{SessionReader, Store, StoreReader};

use super::originals::{self, Prints};
use super::{Found, Migration, Originals, Outcome, Removal, Row};
use crate::exit::{Exit, Failure, with_causes};
use crate::import::{ImportError, ImportReport, Imported, SourceSession, import_session, session_id};
use crate::store_target::{First, StoreTarget, first_record};

/// How many oddities of a source are kept.
const ODD_MAX: usize = 1000;

/// What an import says of blanks that it skipped.
const BLANKS: &[&str] = &["byte order mark, which was skipped", "Windows line ends, which were skipped"];

/// What an import said, or would say.
struct Said {
    source: SourceSession,
    imported: Imported,
    report: ImportReport,
}

pub(super) fn plan(
    found: &Found,
    reader: Option<&StoreReader>,
    removal: Removal,
    progress: &mut dyn FnMut(u64),
) -> Row {
    let mut said = match preview(found, reader, progress) {
        Ok(said) => said,
        Err(error) => return failed(found, &found.source, &failure(&error), removal),
    };
    if let Some(row) = deleted_row(found, &said, reader, removal) {
        return row;
    }
    if let Some(twin) = &found.twin_of {
        if is_beginning_of(found, twin) {
            return twin_row(found, &said, twin, removal);
        }
        // What it is compared with is not there yet.
        if let Some(other) = renamed(found).filter(|_| said.imported == Imported::New) {
            said.source = other;
        }
    }
    let originals = match removal {
        Removal::Keep => Originals::Kept,
        Removal::Remove => match would_refuse(found, &said) {
            Some(why) => Originals::Refused(why),
            None => Originals::WouldGo(said.source.files.len()),
        },
    };
    row(found, &said, originals)
}

pub(super) fn run(migration: &Migration<'_>, found: &Found, progress: &mut dyn FnMut(u64)) -> Row {
    let reader = migration.store.reader();
    let mut done = match preview(found, Some(&reader), &mut |_| ()) {
        Ok(said) => said,
        Err(error) => return failed(found, &found.source, &failure(&error), migration.removal),
    };
    if matches!(done.imported, Imported::Unchanged | Imported::Conflict) {
        progress(done.report.bytes);
    }
    if let Some(row) = deleted_row(found, &done, Some(&reader), migration.removal) {
        return row;
    }
    if let Some(twin) = &found.twin_of
        && done.imported != Imported::New
        && is_beginning_of(found, twin)
    {
        return twin_row(found, &done, twin, migration.removal);
    }
    match done.imported {
        Imported::Conflict => {
            let originals = originals_kept(migration.removal, "it was not migrated");
            return row(found, &done, originals);
        }
        // Not knowing what it was opened for, nothing is written where nothing is new.
        Imported::Unchanged => {}
        Imported::New | Imported::Grown => {
            let source = done.source.clone();
            let mut target = StoreTarget::new(migration.store.clone()).within(found.workspace.clone());
            done = match import(source.clone(), &mut target, progress) {
                Ok(said) => said,
                Err(error) => return failed(found, &source, &failure(&error), migration.removal),
            };
        }
    }
    let settled = settle(migration.store, done.source.session_id)
        .and_then(|()| attach(migration.store, found, done.source.session_id));
    if let Err(failure) = settled {
        return failed(found, &done.source, &failure, migration.removal);
    }
    let originals = match migration.removal {
        Removal::Keep => Originals::Kept,
        Removal::Remove => remove(migration, found, &done).unwrap_or_else(Originals::Refused),
    };
    row(found, &done, originals)
}

/// What importing a source would do, under the id that it has or gets.
fn preview(
    found: &Found,
    reader: Option<&StoreReader>,
    progress: &mut dyn FnMut(u64),
) -> Result<Said, ImportError> {
    let look = |source: SourceSession, progress: &mut dyn FnMut(u64)| {
        let mut target = StoreTarget::preview(reader.cloned()).within(found.workspace.clone());
        import(source, &mut target, progress)
    };
    let own = look(found.source.clone(), progress)?;
    let Some(other) = other_id(found, reader).filter(|_| own.imported == Imported::Conflict) else {
        return Ok(own);
    };
    look(other, &mut |_| ())
}

fn import(
    source: SourceSession,
    target: &mut StoreTarget,
    progress: &mut dyn FnMut(u64),
) -> Result<Said, ImportError> {
    let mut report = ImportReport::default();
    let imported = import_session(&source, target, progress, &mut report)?;
    Ok(Said { source, imported, report })
}

/// The source under an id of its own, if the session of its id is of another workspace: two workspaces, one of them copied
/// from the other or made in the same second, went on by themselves. It is made of the workspace, so it is the same each
/// time.
fn other_id(found: &Found, reader: Option<&StoreReader>) -> Option<SourceSession> {
    let workspace = found.workspace.as_deref()?;
    let known = reader?.session(found.source.session_id).ok()?;
    let Ok(First::Created(stored)) = first_record(&known) else { return None };
    if stored.workspace.0.is_empty() || stored.workspace.0 == workspace {
        return None;
    }
    renamed(found)
}

fn renamed(found: &Found) -> Option<SourceSession> {
    let workspace = found.workspace.as_deref()?;
    let hash: String = blake3::hash(workspace).to_hex().chars().take(12).collect();
    let id = format!("{}~{hash}", found.source.agent_session_id);
    let session_id = session_id(found.source.format.agent(), &id);
    Some(SourceSession { session_id, agent_session_id: id, ..found.source.clone() })
}

/// Whether all that a source says is said by the beginning of another file.
fn is_beginning_of(found: &Found, twin: &Path) -> bool {
    let Some(main) = found.source.files.first() else { return false };
    let same = || -> io::Result<bool> {
        let (mut own, mut other) =
            (BufReader::new(File::open(&main.path)?), BufReader::new(File::open(twin)?));
        loop {
            let (a, b) = (own.fill_buf()?, other.fill_buf()?);
            let len = a.len().min(b.len());
            if a.is_empty() || len == 0 {
                return Ok(a.is_empty());
            }
            if a.get(..len) != b.get(..len) {
                return Ok(false);
            }
            own.consume(len);
            other.consume(len);
        }
    };
    same().unwrap_or(false)
}

/// What was deleted on purpose is not brought back because its original is still there.
fn deleted_row(found: &Found, said: &Said, reader: Option<&StoreReader>, removal: Removal) -> Option<Row> {
    if said.imported != Imported::New {
        return None;
    }
    let workspace = found.workspace.as_deref().unwrap_or_default();
    match reader?.was_deleted(workspace, said.source.session_id) {
        Ok(false) => None,
        Ok(true) => {
            let odd =
                vec!["was deleted from this home after it was migrated, and is not taken again".to_owned()];
            let originals = originals_kept(removal, "its session was deleted; remove it by hand");
            let (outcome, exit) = (Outcome::Deleted, Exit::Warnings);
            Some(Row { outcome, odd, originals, exit, ..empty_row(found, &said.source) })
        }
        Err(error) => Some(failed(found, &said.source, &Failure::from(error), removal)),
    }
}

/// A copy of what was taken from elsewhere. Nothing of it is taken: what stands beside its transcript is of another time.
fn twin_row(found: &Found, said: &Said, twin: &Path, removal: Removal) -> Row {
    let copy = format!("is a copy of {}, which has all that was said in it", twin.display());
    let originals = originals_kept(removal, "it is a copy: remove it by hand");
    let exit = if removal == Removal::Remove { Exit::Warnings } else { Exit::Clean };
    Row {
        outcome: Outcome::Unchanged,
        messages: said.report.messages.saturating_add(said.report.results),
        odd: vec![copy],
        originals,
        exit,
        ..empty_row(found, &found.source)
    }
}

/// Ends what an import began and did not live to end: makes it durable, and closes it.
fn settle(store: &Store, session: SessionId) -> Result<(), Failure> {
    if is_left_by_import(&store.reader().session(session)?)? {
        store.resume(session)?.0.close()?;
    }
    Ok(())
}

/// Whether the last owner of a session was an import that broke off. Whoever opens a session makes all before durable, and
/// hosts append no raw records: so what others left is left to them.
fn is_left_by_import(reader: &SessionReader) -> Result<bool, Failure> {
    let (mut imported, mut opened) = (false, Position::START);
    reader.log().index(&mut |position, entry, _| match entry.kind {
        kind::SessionOpened => (imported, opened) = (position.0 <= 2, position),
        kind::SessionClosed => imported = false,
        kind::ImportedRaw | kind::ImportStarted => imported |= position > opened,
        _ => {}
    })?;
    Ok(imported)
}

/// Says which workspace a session belongs to that was imported before without one.
fn attach(store: &Store, found: &Found, session: SessionId) -> Result<(), Failure> {
    let Some(workspace) = found.workspace.as_deref() else { return Ok(()) };
    let reader = store.reader();
    let known = reader.session(session)?;
    let stored = match first_record(&known).map_err(|error| refused(&*error))? {
        First::Created(stored) => stored,
        First::Absent | First::Hurt => return Ok(()),
    };
    if !stored.workspace.0.is_empty() {
        return Ok(());
    }
    let rows = reader.rows(known.place().clone());
    if rows.first().is_some_and(|row| row.workspace.is_empty()) {
        store.reattach_session(session, workspace)?;
    }
    Ok(())
}

fn refused(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Failure {
    Failure::usage("migrate.refused", with_causes(error))
}

/// Removes the files of a source, or says why not.
fn remove(migration: &Migration<'_>, found: &Found, done: &Said) -> Result<Originals, String> {
    let prints = Prints::of(&done.source).map_err(|error| error.to_string())?;
    if let Some(why) = originals::in_use(found) {
        return Err(why);
    }
    let reader = migration.store.reader();
    let session = reader.session(done.source.session_id).map_err(|error| error.to_string())?;
    let verified = session.verify().map_err(|error| error.to_string())?;
    let wrong = verified.all().find(|finding| finding.severity > Severity::Note);
    if let Some(finding) = wrong {
        return Err(format!("the new session does not verify: {}", finding.explanation));
    }
    // Once more from what is stored, by files that are known to be the same before and after.
    let mut target = StoreTarget::preview(Some(reader)).within(found.workspace.clone());
    let again = import(done.source.clone(), &mut target, &mut |_| ()).map_err(|error| with_causes(&error))?;
    if again.imported != Imported::Unchanged {
        return Err("it changed while it was migrated; run this again".to_owned());
    }
    if let Some(why) = would_refuse(found, &again) {
        return Err(why);
    }
    let removed = originals::remove(migration.disk, found, &done.source, &prints)?;
    Ok(Originals::Removed(removed))
}

/// Why the files of a source have to stay, as far as an import tells: something of them is not in the session.
fn would_refuse(found: &Found, said: &Said) -> Option<String> {
    if said.imported == Imported::Conflict {
        return Some("it was not migrated".to_owned());
    }
    if let Some(why) = originals::in_use(found) {
        return Some(why);
    }
    let not_kept = |why: &str| why.contains("not recorded") || why.contains("once it is whole");
    if let Some(damage) = said.report.damaged.iter().find(|damage| not_kept(&damage.why)) {
        return Some(format!("line {} of {} is {}", damage.line, damage.file, damage.why));
    }
    // A note tells of what an import could not take as it is. Whether it matters, a person has to say; of blanks it does not.
    let is_blank = |text: &str| BLANKS.iter().any(|blank| text.ends_with(blank));
    said.report
        .notes
        .iter()
        .find(|note| !is_blank(&note.text))
        .map(|note| format!("{} {}: remove it by hand", note.path, note.text))
}

fn originals_kept(removal: Removal, why: &str) -> Originals {
    match removal {
        Removal::Keep => Originals::Kept,
        Removal::Remove => Originals::Refused(why.to_owned()),
    }
}

fn row(found: &Found, said: &Said, originals: Originals) -> Row {
    let outcome = match said.imported {
        Imported::Unchanged => Outcome::Unchanged,
        Imported::Grown => Outcome::Grown,
        Imported::New => Outcome::New,
        Imported::Conflict => Outcome::Conflict,
    };
    let report = &said.report;
    let damaged = report.damaged.iter().map(|it| format!("{} line {}: {}", it.file, it.line, it.why));
    let notes = report.notes.iter().map(|note| format!("{} {}", note.path, note.text));
    let own = &found.source.agent_session_id;
    let renamed = (own != &said.source.agent_session_id).then(|| {
        format!("another session is called {own}, too: this one is {}", said.source.agent_session_id)
    });
    let odd: Vec<String> = renamed.into_iter().chain(damaged).chain(notes).take(ODD_MAX).collect();
    let is_odd = !odd.is_empty() || matches!(originals, Originals::Refused(_));
    let exit = if is_odd || outcome == Outcome::Conflict { Exit::Warnings } else { Exit::Clean };
    Row {
        outcome,
        records: report.appended,
        messages: report.messages.saturating_add(report.results),
        odd,
        originals,
        exit,
        ..empty_row(found, &said.source)
    }
}

fn empty_row(found: &Found, source: &SourceSession) -> Row {
    Row {
        path: source.files.first().map(|file| file.path.clone()).unwrap_or_default(),
        format: source.format.to_string(),
        agent_session_id: source.agent_session_id.clone(),
        session_id: source.session_id,
        workspace: found.workspace.clone().unwrap_or_default(),
        outcome: Outcome::Failed,
        records: 0,
        messages: 0,
        odd: Vec::new(),
        originals: Originals::Kept,
        error: None,
        exit: Exit::Clean,
    }
}

fn failed(found: &Found, source: &SourceSession, failure: &Failure, removal: Removal) -> Row {
    let originals = originals_kept(removal, "it was not migrated");
    let (error, exit) = (Some(failure.to_string()), failure.exit());
    Row { originals, error, exit, ..empty_row(found, source) }
}

/// What the engine says of the target decides the exit code, however deep it is wrapped. A source that is no session any more
/// is odd; nothing is lost by it.
fn failure(error: &ImportError) -> Failure {
    let message = with_causes(error);
    match error {
        ImportError::Target(cause) => match cause.downcast_ref::<sessionlog::Error>() {
            Some(engine) => Failure::from(engine.clone()),
            None => Failure::new(Exit::Warnings, "migrate.refused", message),
        },
        ImportError::Read { .. } => Failure::new(Exit::Io, "migrate.source", message),
        ImportError::Q(_) => Failure::new(Exit::Warnings, "migrate.source", message),
    }
}
