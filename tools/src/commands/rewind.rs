//! `logdump rewind`: a conversation goes on from an earlier place, or from another branch.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sessionlog::codec::event::{HeadReason, MessageAppended};
use sessionlog::codec::ids::{MessageNo, NodeId, Position};
use sessionlog::projections::delegation::{DelegationRow, Standing};
use sessionlog::projections::rewind::{self, Rewind, RewindRefused, RewindTo, Undo};
use sessionlog::projections::{CallState, EntryBody, TreeState, outcome_word};
use sessionlog::{RecoveryReport, Session};

use super::Selected;
use super::whole::{CallFacts, Whole, alive_json, changes, owned, repaired, take_over};
use crate::args::RewindArgs;
use crate::exit::{Exit, Failure};
use crate::output::event_text::{cut_safe, message, quoted};
use crate::output::safe::safe;
use crate::output::text::count;
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// What would be done, and what stands about it.
struct Preview {
    node: NodeId,
    plan: Undo,
    /// The number that a message has which is said again.
    next: MessageNo,
    leaves: Vec<(MessageNo, String)>,
    joins: Vec<(MessageNo, String)>,
    effects: Vec<CallFacts>,
    children: Vec<DelegationRow>,
}

/// Runs the command.
///
/// # Errors
/// `Usage` if the session or the place names nothing, or the conversation stands there; `Locked` if somebody owns the
/// session; else if the log or the output fails.
pub fn run(args: &RewindArgs, context: &Context) -> Result<Exit, Failure> {
    let selected = Selected::find(&context.reader()?, &args.id)?;
    let whole = Whole::read(&selected.reader, None)?;
    let node = whole.node(&selected, args.node.as_deref())?;
    let exit = whole.health.tell(context, &selected.row.id);
    if args.branches {
        branches(context, &selected, &whole, node)?;
        return Ok(exit);
    }
    let plan = planned(&whole.tree, node, args.place()).map_err(|it| refused(&selected, &it))?;
    let preview = preview(&whole, node, plan);
    if context.format() == Format::Human {
        human(context, &preview)?;
    }
    if args.dry_run {
        return dry_run(context, &selected, &whole, &preview).map(|it| it.max(exit));
    }
    let (session, report) = take_over(context, &selected)?;
    let position = act(&session, &preview, args.place())?;
    session.close()?;
    done(context, &selected, &preview, position, &report)?;
    Ok(repaired(exit))
}

/// What is asked for; without a place, an undo.
fn planned(tree: &TreeState, node: NodeId, to: Option<RewindTo>) -> Result<Undo, RewindRefused> {
    match to {
        Some(to) => rewind::rewind(tree, node, to).map(Undo::Move),
        None => rewind::undo(tree, node),
    }
}

fn refused(selected: &Selected, refused: &RewindRefused) -> Failure {
    let id = &selected.row.root;
    let (code, next) = match refused {
        RewindRefused::AlreadyThere { .. } => {
            ("rewind.already_there", format!("`logdump rewind {id} --branches` lists the other branches"))
        }
        RewindRefused::NothingToUndo { .. } => {
            ("rewind.nothing", format!("`logdump rewind {id} --branches` lists the other branches"))
        }
        RewindRefused::UnknownTurn { .. } => {
            ("rewind.missing", format!("`logdump events {id} --kind turn.started` lists the turns"))
        }
        _ => ("rewind.missing", format!("`logdump show {id}` shows the messages and their positions")),
    };
    Failure::usage(code, format!("{refused}; {next}"))
}

fn preview(whole: &Whole, node: NodeId, plan: Undo) -> Preview {
    let (leaves, joins, effects) = match &plan {
        Undo::Move(plan) => (plan.leaves.as_slice(), plan.joins.as_slice(), plan.effects.as_slice()),
        Undo::SayAgain(_) => Default::default(),
    };
    let said = said(whole, node);
    let of = |numbers: &[MessageNo]| -> Vec<(MessageNo, String)> {
        let line =
            |number: &MessageNo| (*number, said.get(number).map_or_else(|| format!("#{number}"), message));
        numbers.iter().map(line).collect()
    };
    let children = whole.recovery.delegations().tree().into_iter();
    let delegated = |row: &DelegationRow| {
        row.parent == node && row.call.is_some_and(|call| leaves.contains(&call.message_no))
    };
    Preview {
        node,
        next: whole.recovery.ledger().next_message_no(node),
        leaves: of(leaves),
        joins: of(joins),
        effects: effects.iter().map(|call| whole.call(node, *call)).collect(),
        children: children.filter(delegated).collect(),
        plan,
    }
}

fn said(whole: &Whole, node: NodeId) -> BTreeMap<MessageNo, MessageAppended> {
    let entries = whole.tree.transcript(node).into_iter();
    let said = entries.filter_map(|entry| match entry.body {
        EntryBody::Message(message) => Some((message.message_no, *message)),
        _ => None,
    });
    said.collect()
}

fn human(context: &Context, preview: &Preview) -> Result<(), Failure> {
    let Preview { node, plan, leaves, joins, effects, children, .. } = preview;
    let heading = |text: &str| context.line(&context.paint(Paint::Heading, text));
    let plan = match plan {
        Undo::Move(plan) => plan,
        Undo::SayAgain(said) => {
            heading(&format!("Node {node}: a message that was taken back is said again, as a new one:"))?;
            return context.line(&format!("  {}", message(said)));
        }
    };
    heading(&format!(
        "Node {node} goes on from {} instead of {} ({}).",
        place(plan.to),
        place(plan.from),
        reason_word(plan.reason)
    ))?;
    let list = |what: &str, lines: &[(MessageNo, String)]| -> Result<(), Failure> {
        let messages = count(u64::try_from(lines.len()).unwrap_or(u64::MAX), "message", "messages");
        context.line(&format!("{what}: {messages}"))?;
        lines.iter().try_for_each(|(_, line)| context.line(&format!("  {line}")))
    };
    list("Leaves the context", leaves)?;
    if !joins.is_empty() {
        list("Comes into the context", joins)?;
    }
    if !effects.is_empty() || !children.is_empty() {
        context.line(&context.paint(Paint::Warning, "Was done in the world, and is not undone:"))?;
        effects.iter().try_for_each(|call| context.line(&format!("  {}, {}", call.line(), became(call))))?;
        children.iter().try_for_each(|row| context.line(&format!("  {}", child_words(row))))?;
    }
    if let Some(checkpoint) = &plan.checkpoint {
        context.line(&format!(
            "Checkpoint of the files, to be restored by the host: {}",
            cut_safe(checkpoint, 200)
        ))?;
    }
    if !plan.touched_files.is_empty() {
        context.line("Files that were touched:")?;
        plan.touched_files.iter().try_for_each(|file| context.line(&format!("  {}", safe(file))))?;
    }
    Ok(())
}

fn place(position: Position) -> String {
    if position == Position::START { "its beginning".to_owned() } else { format!("position {position}") }
}

fn reason_word(reason: HeadReason) -> &'static str {
    match reason {
        HeadReason::Rewind => "rewind",
        HeadReason::Branch => "branch",
        HeadReason::Undo => "undo",
    }
}

/// What became of a call, in a word or two.
fn became(call: &CallFacts) -> String {
    match call.state {
        Some(CallState::Finished { outcome, .. }) => outcome_word(outcome).replace('_', " "),
        Some(CallState::Started { .. }) => "no result: what it did is unknown".to_owned(),
        Some(CallState::NotStarted) | None => "no result".to_owned(),
    }
}

fn child_words(row: &DelegationRow) -> String {
    let then = match row.standing {
        Standing::Opened | Standing::Running => ": it is cancelled when the session goes on",
        Standing::Settled(_) | Standing::Unreadable => "",
    };
    format!("node {}, delegated to {}, {}{then}", row.node, cut_safe(&row.agent, 40), row.standing.word())
}

fn dry_run(
    context: &Context,
    selected: &Selected,
    whole: &Whole,
    preview: &Preview,
) -> Result<Exit, Failure> {
    let first = whole.resumed().lines();
    match context.format() {
        Format::Human => {
            first.iter().try_for_each(|line| context.line(&format!("On opening, first: {}", safe(line))))?;
            context.line("Nothing was changed: this was a dry run.")?;
        }
        Format::Json => context.json(&as_json(selected, preview, None, &first))?,
    }
    owned(selected).map_or(Ok(Exit::Clean), |failure| context.go_on(failure))
}

/// Does what was planned, if the session still stands where it did.
fn act(session: &Session, preview: &Preview, to: Option<RewindTo>) -> Result<Position, Failure> {
    let node = preview.node;
    let now = session.with_tree(|tree| planned(tree, node, to))?;
    if now.as_ref() != Ok(&preview.plan) {
        let message =
            format!("node {node} has gone on meanwhile: nothing was moved; look at it and try again");
        return Err(Failure::usage("rewind.outdated", message));
    }
    let receipt = match &preview.plan {
        Undo::Move(plan) if to.is_some() => session.rewind(plan)?,
        Undo::Move(_) | Undo::SayAgain(_) => session.undo(node)?,
    };
    Ok(receipt.first)
}

fn done(
    context: &Context,
    selected: &Selected,
    preview: &Preview,
    position: Position,
    report: &RecoveryReport,
) -> Result<(), Failure> {
    let recorded = changes(&report.settled, &report.interrupted_turns);
    if context.format() == Format::Json {
        return context.json(&as_json(selected, preview, Some(position), &recorded));
    }
    recorded.iter().try_for_each(|line| context.line(&format!("Recorded on opening: {}", safe(line))))?;
    context.line(&format!("Done: recorded at position {position}."))?;
    context.line(&format!("To undo it: {}", undo_command(selected, preview)))
}

/// The command that takes it back. An undo is undone by going back to where the conversation stood.
fn undo_command(selected: &Selected, preview: &Preview) -> String {
    let to = match &preview.plan {
        Undo::Move(plan) if plan.reason != HeadReason::Undo => "--undo".to_owned(),
        Undo::Move(plan) if plan.from == Position::START => "--to-start".to_owned(),
        Undo::Move(plan) => format!("--to-position {}", plan.from),
        Undo::SayAgain(_) => format!("--before-message {}", preview.next),
    };
    let node = if preview.node == NodeId::ROOT { String::new() } else { format!(" --node {}", preview.node) };
    format!("logdump rewind {} {to}{node}", selected.row.root)
}

fn branches(context: &Context, selected: &Selected, whole: &Whole, node: NodeId) -> Result<(), Failure> {
    let ends = rewind::branches(&whole.tree, node);
    let entries = whole.tree.transcript(node);
    let said = |position: &Position| {
        entries.iter().find(|entry| entry.position == *position).map(|entry| match &entry.body {
            EntryBody::Message(it) => message(it),
            EntryBody::Compaction(_) => "a compaction".to_owned(),
            EntryBody::Reset(reason) => format!("the context was emptied: {}", quoted(reason)),
            EntryBody::Run(_) => "a new run".to_owned(),
            _ => "a record that can't be read".to_owned(),
        })
    };
    if context.format() == Format::Json {
        let ends: Vec<Value> = ends
            .iter()
            .map(|end| {
                let number = entries.iter().find(|entry| entry.position == *end).and_then(|it| it.message_no);
                json!({ "position": end.0, "message_no": number.map(|number| number.0), "text": said(end) })
            })
            .collect();
        return context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "session": selected.row.root.to_string(),
            "node": node.0,
            "branches": ends,
            "health": whole.health.json(),
        }));
    }
    if ends.is_empty() {
        context.note(&format!("node {node} has no other branch"));
        return Ok(());
    }
    for end in &ends {
        context.line(&format!("{:>7}  {}", end, said(end).unwrap_or_default()))?;
    }
    context.note(&format!("to go on from one: logdump rewind {} --to-position POSITION", selected.row.root));
    Ok(())
}

fn as_json(
    selected: &Selected,
    preview: &Preview,
    position: Option<Position>,
    on_opening: &[String],
) -> Value {
    let numbers = |lines: &[(MessageNo, String)]| -> Vec<u64> { lines.iter().map(|(it, _)| it.0).collect() };
    let effects: Vec<Value> = preview.effects.iter().map(effect_json).collect();
    let children: Vec<Value> = preview
        .children
        .iter()
        .map(|row| json!({ "node": row.node.0, "agent": row.agent, "standing": row.standing.word() }))
        .collect();
    let moved: Option<&Rewind> = match &preview.plan {
        Undo::Move(plan) => Some(plan),
        Undo::SayAgain(_) => None,
    };
    let said_again = match &preview.plan {
        Undo::Move(_) => None,
        Undo::SayAgain(said) => Some(said.message_no.0),
    };
    json!({
        "schema_version": SCHEMA_VERSION,
        "session": selected.row.root.to_string(),
        "owner_alive": alive_json(selected.reader.liveness()),
        "node": preview.node.0,
        "reason": moved.map(|plan| reason_word(plan.reason)),
        "from": moved.map(|plan| plan.from.0),
        "to": moved.map(|plan| plan.to.0),
        "leaves": numbers(&preview.leaves),
        "joins": numbers(&preview.joins),
        "effects": effects,
        "children": children,
        "checkpoint": moved.and_then(|plan| plan.checkpoint.clone()),
        "touched_files": moved.map(|plan| plan.touched_files.clone()).unwrap_or_default(),
        "said_again": said_again,
        "done": position.is_some(),
        "position": position.map(|position| position.0),
        "undo": undo_command(selected, preview),
        "on_opening": on_opening,
    })
}

fn effect_json(call: &CallFacts) -> Value {
    let mut json = call.json();
    let outcome = match call.state {
        Some(CallState::Finished { outcome, .. }) => Value::from(outcome_word(outcome)),
        Some(CallState::Started { .. } | CallState::NotStarted) | None => Value::Null,
    };
    if let Value::Object(keys) = &mut json {
        keys.insert("outcome".into(), outcome);
    }
    json
}
