//! `logdump context`: what the model is sent.

use std::ops::ControlFlow;

use serde_json::{Value, json};
use sessionlog::codec::ids::Position;
use sessionlog::projections::views::context_message_json;
use sessionlog::projections::{ContextMessage, Projection, TreeState, validate_pairing};
use sessionlog::session::EventItem;

use super::Selected;
use super::health::Health;
use crate::args::ContextArgs;
use crate::exit::{Exit, Failure};
use crate::output::message_text::Messages;
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// Runs the command.
///
/// # Errors
/// `Usage` if `id` names nothing; else if the log or the output fails.
pub fn run(args: &ContextArgs, context: &Context) -> Result<Exit, Failure> {
    let selected = Selected::find(&context.reader()?, &args.id)?;
    let until = args.at.unwrap_or(Position(u64::MAX));
    let mut tree = TreeState::default();
    let mut last = Position::START;
    let health = Health::read(&selected.reader, Position(1), &mut |item| {
        if let EventItem::Event(event) = item {
            if event.position > until {
                return Ok(ControlFlow::Break(()));
            }
            last = event.position;
            tree.apply(event);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let messages = tree.context(selected.row.node);
    match context.format() {
        Format::Human => human(args, context, &selected, &messages, last)?,
        Format::Json => context.json(&as_json(&selected, &messages, last, &health))?,
    }
    let mut exit = health.tell(context, &selected.row.id);
    if let Err(error) = validate_pairing(&messages) {
        context.warn(&format!("a provider would refuse this context: {error}"));
        exit = exit.max(Exit::Lost);
    }
    Ok(exit)
}

fn human(
    args: &ContextArgs,
    context: &Context,
    selected: &Selected,
    messages: &[ContextMessage],
    last: Position,
) -> Result<(), Failure> {
    selected.heading(context)?;
    let count = messages.len();
    let what = format!("{count} messages for the model, as of position {last}");
    context.line(&context.paint(Paint::Dim, &what))?;
    context.line("")?;
    let writer = Messages::new(context, args.detail);
    messages.iter().try_for_each(|message| writer.context_message(message))
}

fn as_json(selected: &Selected, messages: &[ContextMessage], last: Position, health: &Health) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "session": selected.row.root.to_string(),
        "node": selected.row.node.0,
        "id": selected.row.id,
        "at": last.0,
        "messages": messages.iter().map(context_message_json).collect::<Vec<_>>(),
        "health": health.json(),
    })
}
