//! `logdump redact`: what chosen records held is erased; the records stay, and the chain verifies.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use serde_json::json;
use sessionlog::codec::event::Event;
use sessionlog::codec::ids::{MessageNo, NodeId, Position};
use sessionlog::session::EventItem;

use super::Selected;
use super::whole::{Whole, let_go, owned, take_over};
use crate::args::RedactArgs;
use crate::exit::{Exit, Failure};
use crate::output::text::count;
use crate::output::{Context, Format, SCHEMA_VERSION};

/// Runs the command.
///
/// # Errors
/// `Usage` if the session or a message is not there, or a record that the session can't be read without is named; `Locked` if
/// somebody owns the session; else if the log or the output fails.
pub fn run(args: &RedactArgs, context: &Context) -> Result<Exit, Failure> {
    let selected = Selected::find(&context.reader()?, &args.id)?;
    let whole = Whole::read(&selected.reader, None)?;
    let exit = whole.health.tell(context, &selected.row.id);
    let node = whole.node(&selected, args.node.as_deref())?;
    let found = records(args, &selected, node)?;
    if context.format() == Format::Human {
        for (position, name) in &found {
            context.line(&format!("  position {position}: {name}"))?;
        }
    }
    let mut erased = None;
    if args.consent.yes {
        let (session, _) = take_over(context, &selected)?;
        let positions = found.iter().map(|(position, _)| *position).collect();
        let done = session.redact(&positions, &args.reason);
        let_go(session, whole.summary.lifecycle)?;
        erased = Some(done?.records);
    }
    match context.format() {
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "state": if erased.is_some() { "done" } else { "planned" },
            "session": selected.row.root.to_string(),
            "positions": found.iter().map(|(position, _)| position.0).collect::<Vec<_>>(),
            "erased": erased,
        }))?,
        Format::Human => context.line(&match erased {
            Some(erased) => {
                format!("Done: {} erased. They can't be brought back.", count(erased, "record", "records"))
            }
            None => "Nothing was changed: --yes does it.".to_owned(),
        })?,
    }
    match (args.consent.yes, owned(&selected)) {
        (false, Some(failure)) => context.go_on(failure),
        _ => Ok(exit),
    }
}

/// The records that are meant, in order, with what they are.
fn records(
    args: &RedactArgs,
    selected: &Selected,
    node: NodeId,
) -> Result<Vec<(Position, &'static str)>, Failure> {
    let positions: BTreeSet<_> = args.position.iter().copied().collect();
    let messages: BTreeSet<_> = args.message.iter().copied().collect();
    let (mut found, mut seen, mut met) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    selected.reader.events(Position(1), &mut |item| {
        let EventItem::Event(event) = item else { return ControlFlow::Continue(()) };
        let about = (event.node == node).then(|| message_of(&event.event, args.results)).flatten();
        let is_meant = about.is_some_and(|number| messages.contains(&number));
        if is_meant || positions.contains(&event.position) {
            seen.extend(about);
            met.insert(event.position);
            found.push((event.position, event.event.name()));
        }
        ControlFlow::Continue(())
    })?;
    let id = selected.row.root;
    if let Some(missing) = messages.difference(&seen).next() {
        let message = format!(
            "node {node} of session {id} has no message {missing}, or it is erased; `logdump show {id}` shows those there are"
        );
        return Err(Failure::usage("message.missing", message));
    }
    if let Some(missing) = positions.difference(&met).next() {
        let message = format!(
            "session {id} has no record at position {missing}; `logdump events {id}` shows those there are"
        );
        return Err(Failure::usage("record.missing", message));
    }
    Ok(found)
}

/// The message that an event is a part of, or an answer to a call of, if those are meant.
fn message_of(event: &Event, results: bool) -> Option<MessageNo> {
    match event {
        Event::MessageAppended(message) => Some(message.message_no),
        Event::MessageExtended(message) => Some(message.message_no),
        Event::CallFinished(finished) if results => Some(finished.call.message_no),
        Event::CallResolved(resolved) if results => Some(resolved.call.message_no),
        _ => None,
    }
}
