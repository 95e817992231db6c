//! `logdump events`: the log itself.

use std::fmt::Write;
use std::ops::ControlFlow;

use serde_json::{Value, json};
use sessionlog::SessionKind;
use sessionlog::codec::event::LoggedEvent;
use sessionlog::codec::ids::{KindNo, NodeId, Position};
use sessionlog::codec::record::TimeOrigin;
use sessionlog::codec::registry::name_of;
use sessionlog::projections::time::rfc3339_micros;
use sessionlog::projections::views::event_json;
use sessionlog::session::EventItem;

use super::Selected;
use super::follow::{Followed, follow, line};
use super::health::{Health, gap_json, gap_words, undecodable_json};
use crate::args::EventsArgs;
use crate::exit::{Exit, Failure, with_causes};
use crate::output::event_text::summary;
use crate::output::safe::safe;
use crate::output::{Context, Format, Paint};

/// Runs the command.
///
/// # Errors
/// `Usage` if `id` names nothing; else if the log or the output fails.
pub fn run(args: &EventsArgs, context: &Context) -> Result<Exit, Failure> {
    let selected = Selected::find(&context.reader()?, &args.id)?;
    let node = (selected.row.kind == SessionKind::Child).then_some(selected.row.node);
    let mut left = args.limit.unwrap_or(usize::MAX);
    let from = args.from.unwrap_or(Position(1));
    if args.follow {
        return followed(args, context, &selected, node);
    }
    if let Some(count) = args.last {
        return last(args, context, &selected, node, count);
    }
    let health = Health::read(&selected.reader, from, &mut |item| {
        if left == 0 {
            return Ok(ControlFlow::Break(()));
        }
        if is_wanted(args, node, item) {
            show(args, context, item)?;
            if matches!(item, EventItem::Event(_)) {
                left = left.saturating_sub(1);
            }
        }
        Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(health.tell(context, &selected.row.id))
}

/// The last events, for the price of what is shown where nothing is wrong.
fn last(
    args: &EventsArgs,
    context: &Context,
    selected: &Selected,
    node: Option<NodeId>,
    count: usize,
) -> Result<Exit, Failure> {
    let health = Health::of_end(&selected.reader)?;
    if health.exit() != Exit::Clean {
        return last_of_hurt(args, context, selected, node, count);
    }
    let mut asked = count;
    loop {
        let newest = selected.reader.newest_events(asked)?;
        let is_all = newest.len() < asked;
        let wanted: Vec<_> = newest.iter().filter(|item| is_wanted(args, node, item)).collect();
        if is_all || wanted.len() >= count {
            let mut last = wanted.iter().skip(wanted.len().saturating_sub(count));
            last.try_for_each(|item| show(args, context, item))?;
            return Ok(Exit::Clean);
        }
        asked = asked.saturating_mul(4);
    }
}

/// The same, where something is wrong: all of the log is looked at.
fn last_of_hurt(
    args: &EventsArgs,
    context: &Context,
    selected: &Selected,
    node: Option<NodeId>,
    count: usize,
) -> Result<Exit, Failure> {
    let mut wanted = 0_usize;
    let health = Health::read(&selected.reader, Position(1), &mut |item| {
        wanted = wanted.saturating_add(usize::from(is_wanted(args, node, item)));
        Ok(ControlFlow::Continue(()))
    })?;
    let mut before = wanted.saturating_sub(count);
    Health::read(&selected.reader, Position(1), &mut |item| {
        if is_wanted(args, node, item) {
            if before == 0 {
                show(args, context, item)?;
            }
            before = before.saturating_sub(1);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(health.tell(context, &selected.row.id))
}

/// The log, and then each event as it comes.
fn followed(
    args: &EventsArgs,
    context: &Context,
    selected: &Selected,
    node: Option<NodeId>,
) -> Result<Exit, Failure> {
    let mut left = args.limit.unwrap_or(usize::MAX);
    follow(&selected.reader, args.from.unwrap_or(Position(1)), context, &mut |followed| {
        match followed {
            Followed::Item(item) if left > 0 && is_wanted(args, node, item) => {
                show(args, context, item)?;
                if matches!(item, EventItem::Event(_)) {
                    left = left.saturating_sub(1);
                }
            }
            Followed::Retracted(from) => match context.format() {
                Format::Human => {
                    let words = format!("     !!  positions from {from} on were withdrawn");
                    context.line(&context.paint(Paint::Bad, &words))?;
                }
                Format::Json => context.json_line(&line(json!({ "retracted": { "from": from.0 } })))?,
            },
            Followed::Item(_) | Followed::Waiting => {}
        }
        Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
}

fn show(args: &EventsArgs, context: &Context, item: &EventItem) -> Result<(), Failure> {
    match context.format() {
        Format::Human => human(args, context, item),
        Format::Json => context.json_line(&as_json(args, item)),
    }
}

fn is_wanted(args: &EventsArgs, wanted_node: Option<NodeId>, item: &EventItem) -> bool {
    let fits = |node: NodeId, kind: KindNo| {
        wanted_node.is_none_or(|wanted| wanted == node) && (args.kind.is_empty() || args.kind.contains(&kind))
    };
    match item {
        EventItem::Event(event) => fits(event.node, event.event.kind().0),
        EventItem::Undecodable(bad) => fits(bad.node, bad.kind),
        // Nobody knows what is missing.
        EventItem::Gap(_) => true,
    }
}

fn human(args: &EventsArgs, context: &Context, item: &EventItem) -> Result<(), Failure> {
    match item {
        EventItem::Event(event) => {
            let about = if event.time_origin == TimeOrigin::Estimated { "~" } else { " " };
            let place = format!(
                "{:>7}  {}{about} {:>3}",
                event.position,
                rfc3339_micros(event.timestamp),
                event.node
            );
            let name = context.paint(Paint::Heading, &format!("{:<20}", event.event.name()));
            let line = format!("{}  {name}  {}", context.paint(Paint::Dim, &place), summary(event));
            context.line(line.trim_end())?;
            if args.raw {
                hex_dump(context, &payload(event))?;
            }
            Ok(())
        }
        EventItem::Gap(gap) => {
            context.line(&context.paint(Paint::Bad, &format!("     !!  {}", safe(&gap_words(gap)))))
        }
        EventItem::Undecodable(bad) => {
            let name = name_of(bad.kind).unwrap_or("unknown");
            let why = with_causes(&bad.error);
            let text =
                format!("{:>7}  !! node {} {name} can't be read: {}", bad.position, bad.node, safe(&why));
            context.line(&context.paint(Paint::Bad, &text))
        }
    }
}

fn as_json(args: &EventsArgs, item: &EventItem) -> Value {
    let rest = match item {
        EventItem::Event(event) => {
            let mut json = event_json(event);
            if let (true, Value::Object(keys)) = (args.raw, &mut json) {
                let (kind, schema) = event.event.kind();
                keys.insert("kind".into(), kind.0.into());
                keys.insert("schema".into(), schema.0.into());
                keys.insert("payload_hex".into(), hex(&payload(event)).into());
            }
            json
        }
        EventItem::Gap(gap) => json!({ "gap": gap_json(gap) }),
        EventItem::Undecodable(bad) => json!({ "undecodable": undecodable_json(bad) }),
    };
    line(rest)
}

/// The payload as it is stored: encoding is canonical, so an event that was decoded gives back its bytes.
fn payload(event: &LoggedEvent) -> Vec<u8> {
    event.event.encode().unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        // Writing to a string does not fail.
        write!(text, "{byte:02x}").unwrap_or_default();
    }
    text
}

fn hex_dump(context: &Context, bytes: &[u8]) -> Result<(), Failure> {
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let mut columns = String::new();
        let mut text = String::new();
        for byte in chunk {
            write!(columns, "{byte:02x} ").unwrap_or_default();
            text.push(if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' });
        }
        let line = format!("         {:06x}  {columns:<48} {text}", line.saturating_mul(16));
        context.line(&context.paint(Paint::Dim, line.trim_end()))?;
    }
    Ok(())
}
