//! `logdump delete` and `logdump forget`: a session, or a delegated conversation, goes for good.

use serde_json::{Value, json};
use sessionlog::codec::event::ArchiveFate;
use sessionlog::codec::ids::{NodeId, SessionId};
use sessionlog::{DeletionPlan, ErrorKind, SessionKind, Store, StoreReader};

use super::Selected;
use super::whole::{Whole, let_go, owned, take_over};
use crate::args::{ConsentArgs, DeleteArgs, ForgetArgs};
use crate::exit::{Exit, Failure};
use crate::output::safe::safe;
use crate::output::text::{count, size};
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// Runs `delete`.
///
/// # Errors
/// `Usage` if the id names nothing, or a conversation that may not be deleted; `Locked` if somebody owns the session; else if
/// the files or the output fail.
pub fn delete(args: &DeleteArgs, context: &Context) -> Result<Exit, Failure> {
    let reader = context.reader()?;
    let selected = Selected::find(&reader, &args.id)?;
    if selected.row.kind == SessionKind::Child {
        return child(&args.consent, context, &selected);
    }
    let owned = owned(&selected);
    removal(context, &reader, selected.row.root, ArchiveFate::Kept, &args.consent, owned)
}

/// Runs `forget`.
///
/// # Errors
/// As [`delete`]; also found is a session that was deleted and left an archive, by its whole id.
pub fn forget(args: &ForgetArgs, context: &Context) -> Result<Exit, Failure> {
    let reader = context.reader()?;
    let (id, owned) = match (reader.find(&args.id), args.id.parse::<SessionId>()) {
        (Err(error), Ok(id)) if error.kind() == ErrorKind::NotFound => (id, None),
        (Err(error), _) => return Err(error.into()),
        (Ok(row), _) if row.kind == SessionKind::Child => {
            let message = format!(
                "{} is a delegated conversation; only a whole session is forgotten ({}). `logdump delete` takes a \
                 conversation out of it",
                row.id, row.root
            );
            return Err(Failure::usage("forget.child", message));
        }
        (Ok(row), _) => (row.root, owned(&Selected::find(&reader, &row.id)?)),
    };
    removal(context, &reader, id, ArchiveFate::Erased, &args.consent, owned)
}

fn removal(
    context: &Context,
    reader: &StoreReader,
    id: SessionId,
    archive: ArchiveFate,
    consent: &ConsentArgs,
    owned: Option<Failure>,
) -> Result<Exit, Failure> {
    let plan = match archive {
        ArchiveFate::Kept => reader.plan_deletion(id),
        ArchiveFate::Erased => reader.plan_forgetting(id),
    };
    let plan = match plan {
        // A deletion that was interrupted left nothing to look at, and something to finish.
        Err(error) if error.kind() == ErrorKind::NotFound && consent.yes => {
            let done = carry_out(context, id, archive)?;
            return tell_done(context, &done);
        }
        plan => plan?,
    };
    if context.format() == Format::Human {
        human(context, &plan)?;
    }
    if consent.yes {
        if let Some(failure) = owned {
            return Err(failure);
        }
        let done = carry_out(context, id, archive)?;
        return tell_done(context, &DeletionPlan { forks: plan.forks, ..done });
    }
    match context.format() {
        Format::Json => context.json(&as_json(&plan, "planned"))?,
        Format::Human => context.line("Nothing was changed: --yes does it.")?,
    }
    owned.map_or(Ok(Exit::Clean), |failure| context.go_on(failure))
}

fn carry_out(context: &Context, id: SessionId, archive: ArchiveFate) -> Result<DeletionPlan, Failure> {
    let store = Store::open(context.home()?)?;
    Ok(match archive {
        ArchiveFate::Kept => store.delete(id)?,
        ArchiveFate::Erased => store.forget(id)?,
    })
}

fn tell_done(context: &Context, done: &DeletionPlan) -> Result<Exit, Failure> {
    match context.format() {
        Format::Json => context.json(&as_json(done, "done"))?,
        Format::Human => context.line("Done. It can't be brought back.")?,
    }
    Ok(Exit::Clean)
}

fn human(context: &Context, plan: &DeletionPlan) -> Result<(), Failure> {
    let erased = plan.archive == ArchiveFate::Erased;
    let what = if erased { "To be forgotten" } else { "To be deleted" };
    let title = plan.title.as_deref().map_or("(untitled)".into(), safe);
    context.line(&context.paint(Paint::Heading, &format!("{what}: {} · {title}", plan.session)))?;
    if plan.is_there {
        let conversations = count(plan.conversations, "conversation", "conversations");
        let messages = count(plan.messages, "message", "messages");
        context.line(&format!("  {conversations}, {messages}, {} of files", size(plan.bytes)))?;
    } else {
        context
            .line(&format!("  it was deleted before; its archive is left, {} of files", size(plan.bytes)))?;
    }
    let list = |what: &str, lines: Vec<String>| -> Result<(), Failure> {
        lines.iter().try_for_each(|line| context.line(&format!("  {what} {}", safe(line))))
    };
    list("it is hurt:", plan.issue.iter().cloned().collect())?;
    if !plan.artifacts.is_empty() {
        let artifacts =
            count(u64::try_from(plan.artifacts.len()).unwrap_or(u64::MAX), "artifact", "artifacts");
        context.line(&format!("  {artifacts}, but for those that other sessions name"))?;
    }
    list("a file that names it:", plan.exports.iter().map(|path| path.display().to_string()).collect())?;
    if !erased {
        context.line("  what was said in it stays in the archive, for searches")?;
    }
    list("not reached, since it was forked from it:", plan.forks.iter().map(ToString::to_string).collect())
}

fn as_json(plan: &DeletionPlan, state: &str) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "state": state,
        "session": plan.session.to_string(),
        "workspace": plan.workspace.as_str(),
        "archive": match plan.archive { ArchiveFate::Kept => "kept", ArchiveFate::Erased => "erased" },
        "is_there": plan.is_there,
        "title": plan.title,
        "conversations": plan.conversations,
        "messages": plan.messages,
        "bytes": plan.bytes,
        "artifacts": plan.artifacts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "exports": plan.exports.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "forks": plan.forks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "issue": plan.issue,
    })
}

/// A conversation that was delegated, with what is below it.
fn child(consent: &ConsentArgs, context: &Context, selected: &Selected) -> Result<Exit, Failure> {
    let whole = Whole::read(&selected.reader, None)?;
    let exit = whole.health.tell(context, &selected.row.id);
    let (node, recovery) = (selected.row.node, &whole.recovery);
    let below = recovery.delegations().can_delete(node, recovery.ledger()).map_err(|refused| {
        let words = "`logdump tree` shows how far each conversation got";
        Failure::usage("child.not_deletable", format!("{refused}; {words}"))
    })?;
    let mut records = None;
    if consent.yes {
        let (session, _) = take_over(context, selected)?;
        let deleted = session.delete_child(node, "logdump");
        let lifecycle = whole.summary.lifecycle;
        let_go(session, lifecycle)?;
        records = Some(deleted?.records);
    }
    match context.format() {
        Format::Json => context.json(&child_json(selected, node, &below, records))?,
        Format::Human => {
            let count_of = |nodes: &[NodeId]| u64::try_from(nodes.len()).unwrap_or(u64::MAX);
            let below = count(count_of(&below), "conversation", "conversations");
            context.line(&format!("Node {node} of session {}, with {below} below it.", selected.row.root))?;
            context.line(&match records {
                Some(records) => {
                    let records = count(records, "record", "records");
                    format!("Done: {records} erased. They can't be brought back.")
                }
                None => "Nothing was changed: --yes does it.".to_owned(),
            })?;
        }
    }
    match (consent.yes, owned(selected)) {
        (false, Some(failure)) => context.go_on(failure),
        _ => Ok(exit),
    }
}

fn child_json(selected: &Selected, node: NodeId, below: &[NodeId], records: Option<u64>) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "state": if records.is_some() { "done" } else { "planned" },
        "session": selected.row.root.to_string(),
        "node": node.0,
        "descendants": below.iter().map(|node| node.0).collect::<Vec<_>>(),
        "records": records,
    })
}
