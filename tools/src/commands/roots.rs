//! `logdump roots`: the root sessions of all workspaces, and what is said of them besides.

use serde_json::{Value, json};
use sessionlog::projections::time::{rfc3339_micros, rfc3339_seconds};
use sessionlog::store::{Reattachment, RootIssue};
use sessionlog::{
    Registered, RootRow, Roots, SessionKind, Store, StoreReader, WorkspaceHash, WorkspaceName, WorkspaceState,
};

use super::{Selected, ls, status_paint, title_of};
use crate::args::{AttachArgs, HideArgs, RootsArgs, RootsCommand, UnhideArgs};
use crate::exit::{Exit, Failure};
use crate::output::safe::safe;
use crate::output::text::{Align, Table, ago, count, cut, now};
use crate::output::{Context, Destination, Format, Paint, SCHEMA_VERSION};

/// Columns of a title and of a path for people.
const TITLE_COLUMNS: usize = 40;
const PATH_COLUMNS: usize = 48;
/// How many sessions of an attachment are named for people; JSON has all of them.
const SHOWN: usize = 20;

/// Runs the command.
///
/// # Errors
/// `Usage` if there is no home, or no such session or workspace; `Locked` if another process holds the user's log; `Lost` if
/// that is hurt and something is to be said in it; `Io`.
pub fn run(args: &RootsArgs, context: &Context) -> Result<Exit, Failure> {
    match &args.command {
        None => list(args, context),
        Some(RootsCommand::Attach(args)) => attach(args, context),
        Some(RootsCommand::Hide(args)) => hide(args, context),
        Some(RootsCommand::Unhide(args)) => unhide(args, context),
    }
}

fn list(args: &RootsArgs, context: &Context) -> Result<Exit, Failure> {
    let store = context.reader()?;
    let Roots { rows, issues } = store.roots()?;
    let is_wanted = |row: &&RootRow| args.all || args.hidden == row.hidden.is_some();
    let shown: Vec<&RootRow> = rows.iter().filter(is_wanted).collect();
    let left_out = rows.len().saturating_sub(shown.len());
    match context.format() {
        Format::Json => {
            let roots: Vec<Value> = shown.iter().map(|row| row_json(row)).collect();
            let issues: Vec<Value> = issues.iter().map(issue_json).collect();
            context.json(&json!({ "schema_version": SCHEMA_VERSION, "roots": roots, "issues": issues }))?;
        }
        Format::Human => table(context, &shown)?,
    }
    if shown.is_empty() {
        context.note(&format!("no such root in {}", store.path().display()));
    }
    let left_out = u64::try_from(left_out).unwrap_or(u64::MAX);
    if left_out > 0 && !args.hidden {
        context
            .note(&format!("{} not shown; --all shows them", count(left_out, "hidden root", "hidden roots")));
    }
    for issue in &issues {
        context.warn(&format!("{}: {}", issue.place, issue.issue));
    }
    let is_broken = |row: &&RootRow| row.session.issue.is_some() || row.workspace.issue.is_some();
    let is_odd = !issues.is_empty() || shown.iter().any(is_broken);
    Ok(if is_odd { Exit::Warnings } else { Exit::Clean })
}

fn table(context: &Context, rows: &[&RootRow]) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    let now = now();
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("STATUS", Align::Left),
        ("LAST ACTIVITY", Align::Left),
        ("WORKSPACE", Align::Left),
        ("PATH", Align::Left),
        ("TITLE", Align::Left),
    ]);
    let id_chars = ls::id_chars(rows.iter().map(|row| row.session.id.as_str()));
    for row in rows {
        let active = match (row.session.last_activity.or(row.session.created_at), context.destination()) {
            (None, _) => "unknown".to_owned(),
            (Some(time), Destination::Terminal) => ago(time, now),
            (Some(time), Destination::Elsewhere) => rfc3339_seconds(time),
        };
        let path = row.workspace.path.to_string_lossy();
        let path = if path.is_empty() { row.workspace.hash.to_string() } else { safe(&path).into_owned() };
        let mut title = cut(&title_of(&row.session), TITLE_COLUMNS);
        if row.session.forked.is_some() {
            title.push_str(" (fork)");
        }
        if row.hidden.is_some() {
            title.push_str(" (hidden)");
        }
        table.row(vec![
            row.session.id.chars().take(id_chars).collect(),
            row.session.status.word().to_owned(),
            active,
            row.workspace.state.word().to_owned(),
            cut(&path, PATH_COLUMNS),
            title,
        ]);
    }
    let mut lines = table.lines().into_iter();
    context.line(&context.paint(Paint::Dim, &lines.next().unwrap_or_default()))?;
    for (line, row) in lines.zip(rows) {
        let word = row.session.status.word();
        // Ids have no status in them, so the first one in the line is the column's.
        context.line(&line.replacen(word, &context.paint(status_paint(row.session.status), word), 1))?;
        for issue in [&row.session.issue, &row.workspace.issue].into_iter().flatten() {
            context.line(&context.paint(Paint::Bad, &format!("  !! {}", safe(issue))))?;
        }
    }
    let missing = rows.iter().filter(|row| row.workspace.state == WorkspaceState::Missing).count();
    if missing > 0 {
        let missing = count(u64::try_from(missing).unwrap_or(u64::MAX), "workspace's", "workspaces'");
        context.note(&format!(
            "of {missing} sessions the directory is not there; `logdump roots attach OLD_PATH NEW_PATH` says where it is now"
        ));
    }
    Ok(())
}

fn row_json(row: &RootRow) -> Value {
    let mut value = ls::row_json(&row.session);
    let workspace = &row.workspace;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("workspace_hash".to_owned(), json!(workspace.hash.as_str()));
        fields.insert("workspace_state".to_owned(), json!(workspace.state.word()));
        fields.insert(
            "workspace_begun".to_owned(),
            json!(workspace.begun.as_ref().map(|path| path.to_string_lossy())),
        );
        fields.insert("workspace_issue".to_owned(), json!(workspace.issue));
        let hidden = row
            .hidden
            .as_ref()
            .map(|hidden| json!({ "reason": hidden.reason, "since": rfc3339_micros(hidden.since) }));
        fields.insert("hidden".to_owned(), json!(hidden));
    }
    value
}

fn issue_json(issue: &RootIssue) -> Value {
    json!({ "place": issue.place, "issue": issue.issue })
}

/// The home, open for saying something in its user's log. It must exist.
fn store(context: &Context) -> Result<Store, Failure> {
    Ok(Store::open(context.reader()?.path())?)
}

fn attach(args: &AttachArgs, context: &Context) -> Result<Exit, Failure> {
    let reader = context.reader()?;
    let from = workspace_name(&args.from, &reader)?;
    let done = if args.dry_run {
        reader.reattachment(&from, &args.to)?
    } else {
        store(context)?.reattach(&from, &args.to)?
    };
    print_attached(args, &done, context)?;
    Ok(Exit::Clean)
}

/// A hash, if there is such a workspace; else a path.
fn workspace_name(text: &str, reader: &StoreReader) -> Result<WorkspaceName, Failure> {
    if let Some(hash) = WorkspaceHash::parse(text)
        && reader.places()?.iter().any(|place| place.workspace == hash)
    {
        return Ok(WorkspaceName::Hash(hash));
    }
    Ok(WorkspaceName::Path(text.into()))
}

fn print_attached(args: &AttachArgs, done: &Reattachment, context: &Context) -> Result<(), Failure> {
    if context.format() == Format::Json {
        let session = |it: &sessionlog::store::Reattached| json!({ "id": it.session.to_string(), "from": it.from.to_string_lossy() });
        return context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "dry_run": args.dry_run,
            "to": done.to.to_string_lossy(),
            "sessions": done.sessions.iter().map(session).collect::<Vec<_>>(),
            "already": done.already,
        }));
    }
    for it in done.sessions.iter().take(SHOWN) {
        context.line(&format!("{}  {}", it.session, safe(&it.from.to_string_lossy())))?;
    }
    let sessions = u64::try_from(done.sessions.len()).unwrap_or(u64::MAX);
    let rest = done.sessions.len().saturating_sub(SHOWN);
    if rest > 0 {
        context.line(&format!("... and {rest} more"))?;
    }
    let (are, nothing) = if args.dry_run { ("would be", "; nothing was changed") } else { ("are", "") };
    let to = done.to.to_string_lossy();
    let already = match done.already {
        0 => String::new(),
        already => format!("; {already} were already"),
    };
    let sessions = count(sessions, "session", "sessions");
    context.note(&format!("{sessions} {are} attached to {to}{already}{nothing}"));
    Ok(())
}

fn root_of(context: &Context, id: &str) -> Result<(StoreReader, sessionlog::SessionRow), Failure> {
    let reader = context.reader()?;
    let row = Selected::find(&reader, id)?.row;
    if row.kind == SessionKind::Child {
        let text = format!("{} is a delegated conversation; only root sessions are in the list", row.id);
        return Err(Failure::usage("roots.child", text));
    }
    Ok((reader, row))
}

fn is_hidden(reader: &StoreReader, row: &sessionlog::SessionRow) -> Result<bool, Failure> {
    let roots = reader.roots()?;
    Ok(roots.rows.iter().any(|it| it.session.root == row.root && it.hidden.is_some()))
}

fn hide(args: &HideArgs, context: &Context) -> Result<Exit, Failure> {
    let (reader, row) = root_of(context, &args.id)?;
    let done = match args.dry_run {
        true if is_hidden(&reader, &row)? => Registered::Already,
        true => Registered::Now,
        false => store(context)?.unregister(row.root, &args.reason)?,
    };
    said(context, &row, done, "hidden", args.dry_run)
}

fn unhide(args: &UnhideArgs, context: &Context) -> Result<Exit, Failure> {
    let (reader, row) = root_of(context, &args.id)?;
    let done = match args.dry_run {
        true if is_hidden(&reader, &row)? => Registered::Now,
        true => Registered::Already,
        false => store(context)?.register(row.root)?,
    };
    said(context, &row, done, "listed", args.dry_run)
}

fn said(
    context: &Context,
    row: &sessionlog::SessionRow,
    done: Registered,
    how: &str,
    dry_run: bool,
) -> Result<Exit, Failure> {
    let changed = done == Registered::Now;
    if context.format() == Format::Json {
        context.json(&json!({
            "schema_version": SCHEMA_VERSION, "id": row.id, "hidden": how == "hidden", "changed": changed,
            "dry_run": dry_run,
        }))?;
        return Ok(Exit::Clean);
    }
    let text = match (changed, dry_run) {
        (false, _) => format!("{} is {how} already; nothing was changed", row.id),
        (true, true) => format!("{} would be {how}; nothing was changed", row.id),
        (true, false) => format!("{} is {how} now", row.id),
    };
    context.line(&text)?;
    Ok(Exit::Clean)
}
