//! `logdump tree`: the conversations of a session, each below the one that delegated it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sessionlog::codec::event::AgentKind;
use sessionlog::codec::ids::{CallRef, InvocationId, NodeId};
use sessionlog::projections::delegation::DelegationRow;
use sessionlog::projections::{Liveness, NodeSummary, Presence, UsageTotals};

use super::Selected;
use super::whole::{Extent, Whole, alive_json, short};
use crate::args::TreeArgs;
use crate::exit::{Exit, Failure};
use crate::output::event_text::{cut_safe, quoted};
use crate::output::text::{Align, Table, count};
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// Levels that are indented. A damaged log may claim any depth.
const LEVELS_MAX: u32 = 20;
/// Characters of a request for programs: its beginning.
const PROMPT_CHARS: usize = 200;

/// One conversation of a tree.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its number.
    pub node: NodeId,
    /// Whose conversation it is: `root`, `inner`, `external`, or `lost`: its bookmark can't be read.
    pub kind: &'static str,
    /// Where it stands.
    pub standing: &'static str,
    depth: u32,
    parent: Option<NodeId>,
    id: Option<InvocationId>,
    call: Option<CallRef>,
    call_name: Option<String>,
    call_id: Option<String>,
    agent: Option<String>,
    description: Option<String>,
    prompt: Option<String>,
    rounds: u32,
    messages: u64,
    unknown_calls: usize,
    open_calls: usize,
    usage: UsageTotals,
}

/// Runs the command.
///
/// # Errors
/// `Usage` if `id` names nothing; else if the log or the output fails.
pub fn run(args: &TreeArgs, context: &Context) -> Result<Exit, Failure> {
    let selected = Selected::find(&context.reader()?, &args.id)?;
    let whole = Whole::read(&selected.reader, args.at)?;
    let liveness = selected.reader.liveness();
    let all = rows(&whole, liveness);
    let shown = below(&all, selected.row.node);
    let deleted = whole.summary.nodes.values().filter(|it| it.presence == Presence::Deleted).count();
    match context.format() {
        Format::Human => {
            selected.heading(context)?;
            let conversations = count(number(shown.len()), "conversation", "conversations");
            let what = format!("{conversations}, as of position {}", whole.last);
            context.line(&context.paint(Paint::Dim, &what))?;
            let lines = lines(&shown);
            for (index, line) in lines.iter().enumerate() {
                let line = if index == 0 { context.paint(Paint::Dim, line) } else { line.clone() };
                context.line(&line)?;
            }
        }
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "session": selected.row.root.to_string(),
            "node": selected.row.node.0,
            "at": whole.last.0,
            "owner_alive": alive_json(liveness),
            "nodes": shown.iter().map(row_json).collect::<Vec<_>>(),
            "deleted": deleted,
            "health": whole.health.json(),
        }))?,
    }
    if deleted > 0 && context.format() == Format::Human {
        let deleted = count(number(deleted), "deleted conversation is", "deleted conversations are");
        context.note(&format!("{deleted} not shown"));
    }
    if shown.is_empty() {
        let (node, at) = (selected.row.node, whole.last);
        context.note(&format!("node {node} was deleted, or was not there at position {at}"));
    }
    Ok(whole.health.tell(context, &selected.row.id))
}

/// The conversations of a tree that are not deleted, each behind the one that delegated it. Where a damaged log has no
/// bookmark of one, it comes at the end with what else is known of it.
#[must_use]
pub fn rows(whole: &Whole, liveness: Liveness) -> Vec<Row> {
    // At an earlier position, its owner of then was there.
    let liveness = match whole.extent {
        Extent::All => liveness,
        Extent::Beginning => Liveness::Alive,
    };
    let mut open: BTreeMap<NodeId, usize> = BTreeMap::new();
    for call in whole.recovery.ledger().open_calls() {
        let count = open.entry(call.node).or_default();
        *count = count.saturating_add(1);
    }
    let mut rows = vec![Row {
        standing: whole.summary.status(liveness).word(),
        agent: None,
        description: whole.summary.title(),
        prompt: whole.summary.first_prompt.clone(),
        ..bare(whole, NodeId::ROOT, "root")
    }];
    rows.extend(whole.recovery.delegations().tree().into_iter().map(|row| child(whole, row)));
    let known: BTreeSet<NodeId> = rows.iter().map(|row| row.node).collect();
    let lost = whole
        .summary
        .nodes
        .iter()
        .filter(|(node, facts)| !known.contains(*node) && facts.presence == Presence::Shown);
    rows.extend(lost.map(|(node, _)| Row { depth: 1, ..bare(whole, *node, "lost") }));
    for row in &mut rows {
        row.open_calls = open.get(&row.node).copied().unwrap_or_default();
    }
    rows
}

/// What is known of a conversation without its bookmark.
fn bare(whole: &Whole, node: NodeId, kind: &'static str) -> Row {
    let empty = NodeSummary::default();
    let facts = whole.summary.nodes.get(&node).unwrap_or(&empty);
    let delegations = whole.recovery.delegations();
    Row {
        node,
        kind,
        standing: "unreadable",
        depth: delegations.depth(node),
        parent: None,
        id: None,
        call: None,
        call_name: None,
        call_id: None,
        agent: None,
        description: facts.title.clone(),
        prompt: None,
        rounds: delegations.rounds(node),
        messages: facts.messages,
        unknown_calls: delegations.unknown_calls(node).count(),
        open_calls: 0,
        usage: facts.usage,
    }
}

fn child(whole: &Whole, row: DelegationRow) -> Row {
    let kind = match row.kind {
        AgentKind::Inner => "inner",
        AgentKind::External => "external",
    };
    let asked = row.call.and_then(|call| whole.tree.tool_call(row.parent, call));
    let opened = whole.summary.nodes.get(&row.node).and_then(|facts| facts.opened.as_ref());
    Row {
        standing: row.standing.word(),
        depth: row.depth,
        parent: Some(row.parent),
        id: Some(row.invocation_id),
        call: row.call,
        call_name: asked.map(|call| call.name.clone()),
        call_id: asked.map(|call| call.call_id.clone()),
        agent: Some(row.agent),
        description: row.description,
        prompt: opened.map(|opened| opened.prompt.clone()),
        ..bare(whole, row.node, kind)
    }
}

/// A conversation and all that is below it, in their order.
fn below(rows: &[Row], top: NodeId) -> Vec<Row> {
    if top == NodeId::ROOT {
        return rows.to_vec();
    }
    let mut within = BTreeSet::from([top]);
    let mut is_within = |row: &&Row| {
        let is_below = row.parent.is_some_and(|parent| within.contains(&parent));
        if is_below {
            within.insert(row.node);
        }
        is_below || row.node == top
    };
    rows.iter().filter(|row| is_within(row)).cloned().collect()
}

/// A tree for people: a heading, and a line for each conversation. Safe for a terminal.
#[must_use]
pub fn lines(rows: &[Row]) -> Vec<String> {
    let mut table = Table::new(&[
        ("NODE", Align::Right),
        ("AGENT", Align::Left),
        ("STATE", Align::Left),
        ("DEPTH", Align::Right),
        ("ROUNDS", Align::Right),
        ("MESSAGES", Align::Right),
        ("UNKNOWN", Align::Right),
        ("TOKENS", Align::Right),
        ("CALL", Align::Left),
        ("REQUEST", Align::Left),
    ]);
    let top = rows.first().map_or(0, |row| row.depth);
    for row in rows {
        let level = row.depth.saturating_sub(top).min(LEVELS_MAX);
        let indent = "  ".repeat(usize::try_from(level.saturating_sub(1)).unwrap_or_default());
        let branch = if level == 0 { "" } else { "└ " };
        let agent = row.agent.as_deref().map(|agent| format!("{} ({})", cut_safe(agent, 24), row.kind));
        let request = row.description.as_deref().filter(|text| !text.trim().is_empty());
        let request = request.or(row.prompt.as_deref()).map(quoted).unwrap_or_default();
        table.row(vec![
            row.node.to_string(),
            format!("{indent}{branch}{}", agent.unwrap_or_else(|| row.kind.to_owned())),
            row.standing.to_owned(),
            row.depth.to_string(),
            row.rounds.to_string(),
            row.messages.to_string(),
            row.unknown_calls.to_string(),
            row.usage.total().to_string(),
            row.call.map(short).unwrap_or_default(),
            request,
        ]);
    }
    table.lines()
}

/// A conversation for programs.
#[must_use]
pub fn row_json(row: &Row) -> Value {
    let call = row.call.map(|call| {
        json!({
            "message_no": call.message_no.0,
            "tool_index": call.tool_index.0,
            "call_id": row.call_id,
            "name": row.call_name,
        })
    });
    json!({
        "node": row.node.0,
        "parent": row.parent.map(|parent| parent.0),
        "id": row.id.map(|id| id.to_string()),
        "depth": row.depth,
        "agent": row.agent,
        "kind": row.kind,
        "standing": row.standing,
        "rounds": row.rounds,
        "messages": row.messages,
        "unknown_calls": row.unknown_calls,
        "open_calls": row.open_calls,
        "call": call,
        "description": row.description,
        "prompt": row.prompt.as_deref().map(|text| text.chars().take(PROMPT_CHARS).collect::<String>()),
        "usage": serde_json::to_value(row.usage).unwrap_or_default(),
    })
}

fn number(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
