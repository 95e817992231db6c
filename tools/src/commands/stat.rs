//! `logdump stat`: a session in numbers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde_json::{Map, Value, json};
use sessionlog::codec::ids::{KindNo, NodeId, Position, Timestamp};
use sessionlog::codec::registry::{kind, name_of};
use sessionlog::log::LogSize;
use sessionlog::projections::time::rfc3339_seconds;
use sessionlog::projections::{Liveness, Projection, Summary, UsageTotals, node_status_word};
use sessionlog::session::EventItem;
use sessionlog::{SessionKind, SessionReader};

use super::health::{Health, segments};
use super::ls::row_json;
use super::{Selected, status_paint};
use crate::args::StatArgs;
use crate::exit::{Exit, Failure};
use crate::output::safe::safe;
use crate::output::text::{Align, Table, count, cut, dollars, size};
use crate::output::{Context, Format, SCHEMA_VERSION};

/// What is counted, beside the summary.
struct Counts {
    kinds: BTreeMap<KindNo, u64>,
    records: u64,
    compactions: u64,
    last: Position,
    size: LogSize,
}

/// Runs the command.
///
/// # Errors
/// `Usage` if `id` names nothing; else if the log or the output fails.
pub fn run(args: &StatArgs, context: &Context) -> Result<Exit, Failure> {
    let selected = Selected::find(&context.reader()?, &args.id)?;
    let node = (selected.row.kind == SessionKind::Child).then_some(selected.row.node);
    let mut summary = Summary::default();
    let mut counts = Counts {
        kinds: BTreeMap::new(),
        records: 0,
        compactions: 0,
        last: Position::START,
        size: size_of(&selected.reader),
    };
    let health = Health::read(&selected.reader, Position(1), &mut |item| {
        let (position, of, number) = match item {
            EventItem::Event(event) => {
                summary.apply(event);
                (event.position, event.node, event.event.kind().0)
            }
            EventItem::Undecodable(bad) => (bad.position, bad.node, bad.kind),
            EventItem::Gap(_) => return Ok(ControlFlow::Continue(())),
        };
        counts.last = position;
        if node.is_none_or(|node| node == of) {
            counts.records = counts.records.saturating_add(1);
            counts.compactions =
                counts.compactions.saturating_add(u64::from(number == kind::ContextCompacted));
            let count = counts.kinds.entry(number).or_default();
            *count = count.saturating_add(1);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match context.format() {
        Format::Human => human(context, &selected, &summary, &counts)?,
        Format::Json => context.json(&as_json(&selected, &summary, &counts, &health))?,
    }
    Ok(health.tell(context, &selected.row.id))
}

/// What of the log's size can be told: whoever reads the log says what is wrong with it.
fn size_of(reader: &SessionReader) -> LogSize {
    reader.log().size().unwrap_or_else(|_| {
        let files = segments(reader);
        let bytes = files.iter().map(|(_, len)| len).sum();
        let segments = u64::try_from(files.len()).unwrap_or(u64::MAX);
        LogSize { segments, bytes, unpacked_bytes: bytes, ..LogSize::default() }
    })
}

fn usage_of(selected: &Selected, summary: &Summary) -> UsageTotals {
    match selected.row.kind {
        SessionKind::Root => summary.usage,
        SessionKind::Child => {
            summary.nodes.get(&selected.row.node).map(|node| node.usage).unwrap_or_default()
        }
    }
}

fn human(context: &Context, selected: &Selected, summary: &Summary, counts: &Counts) -> Result<(), Failure> {
    selected.heading(context)?;
    let row = &selected.row;
    let pair = |key: &str, value: &str| context.line(&format!("{key:<14} {}", safe(value)));
    context.line(&format!(
        "{:<14} {}",
        "status",
        context.paint(status_paint(row.status), row.status.word())
    ))?;
    pair("owner", &owner(selected))?;
    pair("epoch", &summary.epoch.to_string())?;
    pair("display id", &row.display_id)?;
    let time = |at: Option<Timestamp>| at.map_or_else(|| "not known".to_owned(), rfc3339_seconds);
    pair("created", &time(row.created_at))?;
    pair("last activity", &time(row.last_activity))?;
    let tags: Vec<&str> = summary.tags.iter().map(String::as_str).collect();
    if !tags.is_empty() {
        pair("tags", &tags.join(", "))?;
    }
    if let Some(forked) = &summary.forked {
        pair("forked from", &format!("{} at position {}", forked.what.parent, forked.what.at))?;
    }
    let LogSize { segments, compressed, bytes, unpacked_bytes } = counts.size;
    let stands_for = match compressed {
        0 => String::new(),
        _ => format!(", {compressed} of them compressed ({} unpacked)", size(unpacked_bytes)),
    };
    pair("log", &format!("{} in {segments} segments{stands_for}, {} records", size(bytes), counts.records))?;
    pair("last position", &counts.last.to_string())?;
    pair("compactions", &counts.compactions.to_string())?;
    usage_lines(context, &usage_of(selected, summary))?;
    context.line("")?;
    let mut table = Table::new(&[("EVENT", Align::Left), ("COUNT", Align::Right)]);
    for (number, events) in &counts.kinds {
        table.row(vec![kind_name(*number), events.to_string()]);
    }
    table.lines().iter().try_for_each(|line| context.line(line))?;
    nodes_table(context, summary)
}

fn usage_lines(context: &Context, usage: &UsageTotals) -> Result<(), Failure> {
    if usage.requests == 0 {
        return context.line(&format!("{:<14} none recorded", "usage"));
    }
    let tokens = [
        ("input", usage.input),
        ("cache read", usage.cache_read),
        ("cache write", usage.cache_write),
        ("output", usage.output),
        ("reasoning", usage.reasoning),
    ];
    let requests = count(usage.requests, "request", "requests");
    context.line(&format!("{:<14} {requests}, {} tokens", "usage", usage.total()))?;
    for (class, tokens) in tokens {
        context.line(&format!("  {class:<12} {tokens}"))?;
    }
    let cost = match usage.cost_nano_usd {
        Some(nano) => dollars(nano),
        None if usage.priced_nano_usd == 0 => "not known".to_owned(),
        None => format!(
            "at least {}: the price of {} is not known",
            dollars(usage.priced_nano_usd),
            count(usage.unpriced_requests, "request", "requests")
        ),
    };
    context.line(&format!("{:<14} {cost}", "cost"))
}

fn nodes_table(context: &Context, summary: &Summary) -> Result<(), Failure> {
    if summary.nodes.len() < 2 {
        return Ok(());
    }
    let mut table = Table::new(&[
        ("NODE", Align::Right),
        ("INVOCATION", Align::Left),
        ("STATUS", Align::Left),
        ("MESSAGES", Align::Right),
        ("TOKENS", Align::Right),
        ("TITLE", Align::Left),
    ]);
    for (number, node) in &summary.nodes {
        let opened = node.opened.as_ref();
        let title = if *number == NodeId::ROOT { summary.title() } else { node.title.clone() };
        table.row(vec![
            number.to_string(),
            opened.map(|opened| opened.invocation_id.to_string()).unwrap_or_default(),
            node.status.map(node_status_word).unwrap_or("open").to_owned(),
            node.messages.to_string(),
            node.usage.total().to_string(),
            cut(&safe(&title.unwrap_or_default()), 60),
        ]);
    }
    context.line("")?;
    table.lines().iter().try_for_each(|line| context.line(line))
}

/// Who has the session, in words. What an owner wrote about itself stays in the lock file when it is gone.
fn owner(selected: &Selected) -> String {
    let wrote = selected.reader.owner();
    match (selected.reader.liveness(), wrote) {
        (Liveness::Alive, Some(owner)) => owner.to_string(),
        (Liveness::Alive, None) => "a process that did not say who it is".to_owned(),
        (Liveness::Dead, Some(owner)) => format!("nobody now; the last one was {owner}"),
        (Liveness::Dead, None) => "nobody".to_owned(),
        (Liveness::Unknown, Some(owner)) => format!("not known; the last one was {owner}"),
        (Liveness::Unknown, None) => "not known".to_owned(),
    }
}

fn kind_name(number: KindNo) -> String {
    name_of(number).map_or_else(|| format!("kind {number} (newer)"), str::to_owned)
}

fn as_json(selected: &Selected, summary: &Summary, counts: &Counts, health: &Health) -> Value {
    let mut json = Map::new();
    json.insert("schema_version".into(), SCHEMA_VERSION.into());
    if let Value::Object(row) = row_json(&selected.row) {
        json.extend(row);
    }
    let owner = selected.reader.owner().map(|owner| serde_json::to_value(owner).unwrap_or_default());
    let alive = match selected.reader.liveness() {
        Liveness::Alive => Value::Bool(true),
        Liveness::Dead => Value::Bool(false),
        Liveness::Unknown => Value::Null,
    };
    let kinds: Map<String, Value> =
        counts.kinds.iter().map(|(number, count)| (kind_key(*number), (*count).into())).collect();
    let nodes: Vec<Value> = summary
        .nodes
        .iter()
        .map(|(number, node)| {
            json!({
                "node": number.0,
                "id": node.opened.as_ref().map(|opened| opened.invocation_id.to_string()),
                "parent": node.opened.as_ref().map(|opened| opened.parent.0),
                "agent": node.opened.as_ref().map(|opened| opened.agent.clone()),
                "title": node.title,
                "status": node.status.map(node_status_word),
                "messages": node.messages,
                "usage": usage_json(&node.usage),
            })
        })
        .collect();
    let rest = json!({
        "owner": owner,
        "owner_alive": alive,
        "epoch": summary.epoch.0,
        "tags": summary.tags,
        "segments": counts.size.segments,
        "compressed_segments": counts.size.compressed,
        "unpacked_bytes": counts.size.unpacked_bytes,
        "records": counts.records,
        "last_position": counts.last.0,
        "compactions": counts.compactions,
        "events": kinds,
        "usage": usage_json(&usage_of(selected, summary)),
        "inherited_usage": usage_json(&summary.inherited_usage),
        "nodes": nodes,
        "health": health.json(),
    });
    if let Value::Object(rest) = rest {
        json.extend(rest);
    }
    Value::Object(json)
}

fn kind_key(number: KindNo) -> String {
    name_of(number).map_or_else(|| number.to_string(), str::to_owned)
}

/// The price as the exact number of billionths: dollars in binary fractions would not be.
fn usage_json(usage: &UsageTotals) -> Value {
    serde_json::to_value(usage).unwrap_or_default()
}
