//! `logdump ls`: the sessions of a home.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sessionlog::projections::time::rfc3339_micros;
use sessionlog::store::Listing;
use sessionlog::{SessionKind, SessionRow, StoreReader};

use super::health::Health;
use super::{mend, status_paint, title_of, verify};
use crate::args::LsArgs;
use crate::exit::{Exit, Failure};
use crate::output::safe::safe;
use crate::output::text::{Align, Table, ago, count, cut, now};
use crate::output::{Context, Destination, Format, Paint, SCHEMA_VERSION};

/// Columns of a title for people.
const TITLE_COLUMNS: usize = 72;
/// Characters of an id for people, if that tells all of them apart: the time of a version 7 UUID.
const ID_CHARS: usize = 13;

/// Runs the command.
///
/// # Errors
/// `Usage` if there is no home; `Io` if it can't be read. A session that can't be read is a row with its issue.
pub fn run(args: &LsArgs, context: &Context) -> Result<Exit, Failure> {
    let store = context.reader()?;
    let Listing { rows: all, sound } = match args.catalog {
        true => store.list_with_catalog()?,
        false => Listing { rows: store.list()?, sound: BTreeSet::new() },
    };
    let id_chars = id_chars(all.iter().map(|row| row.id.as_str()));
    let mut rows: Vec<SessionRow> = all.into_iter().filter(|row| is_wanted(args, row)).collect();
    let hidden = args.limit.map_or(0, |limit| rows.len().saturating_sub(limit));
    rows.truncate(args.limit.unwrap_or(usize::MAX));
    let mut exit = Exit::Clean;
    for row in &mut rows {
        if row.issue.is_some() || row.created_at.is_none() || !sound.contains(&row.root) {
            exit = exit.max(look_at_end(&store, row)?);
        }
    }
    match context.format() {
        Format::Json => {
            let sessions: Vec<Value> = rows.iter().map(row_json).collect();
            context.json(&json!({ "schema_version": SCHEMA_VERSION, "sessions": sessions }))?;
        }
        Format::Human => table(context, &rows, id_chars)?,
    }
    if rows.is_empty() {
        context.note(&format!("no such session in {}", store.path().display()));
    }
    if hidden > 0 {
        let hidden = u64::try_from(hidden).unwrap_or(u64::MAX);
        context.note(&format!("{} not shown", count(hidden, "more row", "more rows")));
    }
    let broken = rows.iter().filter(|row| row.issue.is_some() && row.kind == SessionKind::Root).count();
    if broken > 0 {
        let broken = count(u64::try_from(broken).unwrap_or(u64::MAX), "session has", "sessions have");
        context.warn(&format!("{broken} an issue; `logdump verify ID` says more"));
    }
    Ok(exit)
}

fn is_wanted(args: &LsArgs, row: &SessionRow) -> bool {
    let kind = !args.roots || row.kind == SessionKind::Root;
    let status = args.status.is_none_or(|status| row.status == status);
    kind && status && args.workspace.as_ref().is_none_or(|part| row.workspace.contains(part))
}

/// A listing reads indexes, not records; what is wrong at the end of a log, where crashes leave their traces, is looked
/// at here, unless the catalog knows that nothing is. Whatever is found becomes the row's issue, unless it has one.
fn look_at_end(store: &StoreReader, row: &mut SessionRow) -> Result<Exit, Failure> {
    if row.kind == SessionKind::Child {
        return Ok(Exit::Clean);
    }
    let health = store.session(row.root).map_err(Failure::from).and_then(|reader| {
        mend(row, &reader);
        Health::of_end(&reader)
    });
    let (exit, issue) = match health {
        Ok(health) if health.exit() == Exit::Clean => (Exit::Clean, None),
        Ok(health) => (health.exit(), Some(health.sentence())),
        Err(Failure::Pipe) => return Err(Failure::Pipe),
        Err(Failure::Failed { exit, message, .. }) => (exit, Some(message)),
    };
    let known = if row.issue.is_some() { Exit::Warnings } else { Exit::Clean };
    // A session without a time of creation lost its first record, or never had one: a crash while it was created.
    let nameless = match store.session(row.root) {
        Ok(reader) if row.created_at.is_none() && exit != Exit::Warnings => verify::exit_of(&reader)?,
        _ => Exit::Clean,
    };
    row.issue = row.issue.take().or(issue);
    Ok(exit.max(known).max(nameless))
}

/// How many characters of an id tell all ids apart.
pub(super) fn id_chars<'a>(ids: impl Iterator<Item = &'a str> + Clone) -> usize {
    let is_enough = |chars: &usize| {
        let mut seen = BTreeSet::new();
        ids.clone().all(|id| seen.insert(id.chars().take(*chars).collect::<String>()))
    };
    (ID_CHARS..36).find(is_enough).unwrap_or(36)
}

fn table(context: &Context, rows: &[SessionRow], id_chars: usize) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    let now = now();
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("STATUS", Align::Left),
        ("MESSAGES", Align::Right),
        ("LAST ACTIVITY", Align::Left),
        ("TITLE", Align::Left),
    ]);
    for row in rows {
        let active = row.last_activity.or(row.created_at);
        let active = match (active, context.destination()) {
            (None, _) => "unknown".to_owned(),
            (Some(time), Destination::Terminal) => ago(time, now),
            (Some(time), Destination::Elsewhere) => sessionlog::projections::time::rfc3339_seconds(time),
        };
        table.row(vec![
            row.id.chars().take(id_chars).collect(),
            row.status.word().to_owned(),
            row.messages.to_string(),
            active,
            title(row, id_chars),
        ]);
    }
    let mut lines = table.lines().into_iter();
    context.line(&context.paint(Paint::Dim, &lines.next().unwrap_or_default()))?;
    for (line, row) in lines.zip(rows) {
        let word = row.status.word();
        // Ids have no status in them, so the first one in the line is the column's.
        context.line(&line.replacen(word, &context.paint(status_paint(row.status), word), 1))?;
        if let Some(issue) = row.issue.as_deref().filter(|_| row.kind == SessionKind::Root) {
            context.line(&context.paint(Paint::Bad, &format!("  !! {}", safe(issue))))?;
        }
    }
    Ok(())
}

fn title(row: &SessionRow, id_chars: usize) -> String {
    let title = title_of(row);
    match (row.kind, &row.parent) {
        (SessionKind::Child, Some(parent)) => {
            let parent: String = parent.chars().take(id_chars).collect();
            let agent = row.agent.as_deref().map(safe).unwrap_or_default();
            format!("└ {} (delegated to {} by {parent})", cut(&title, 48), cut(&agent, 24))
        }
        (SessionKind::Root, _) if row.forked.is_some() => {
            let from = row.forked.as_ref().map(|it| it.session.to_string()).unwrap_or_default();
            let from: String = from.chars().take(id_chars).collect();
            format!("{} (forked from {from})", cut(&title, 48))
        }
        _ => cut(&title, TITLE_COLUMNS),
    }
}

/// A row for programs.
#[must_use]
pub fn row_json(row: &SessionRow) -> Value {
    json!({
        "id": row.id,
        "display_id": row.display_id,
        "kind": match row.kind {
            SessionKind::Root => "root",
            SessionKind::Child => "child",
        },
        "title": row.title,
        "status": row.status.word(),
        "messages": row.messages,
        "created_at": row.created_at.map(rfc3339_micros),
        "last_activity": row.last_activity.map(rfc3339_micros),
        "parent": row.parent,
        "forked_from": row.forked.as_ref().map(|it| json!({"session": it.session.to_string(), "at": it.at.0})),
        "root": row.root.to_string(),
        "node": row.node.0,
        "model": row.model,
        "workspace": row.workspace,
        "agent": row.agent,
        "bytes": row.bytes,
        "issue": row.issue,
    })
}
