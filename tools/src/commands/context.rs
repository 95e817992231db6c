//! `logdump context`: what the model is sent.

use serde_json::{Value, json};
use sessionlog::StoreReader;
use sessionlog::codec::ids::{NodeId, Position};
use sessionlog::projections::views::context_message_json;
use sessionlog::projections::{ContextMessage, validate_pairing};

use super::Selected;
use super::health::Health;
use super::render::Request;
use super::whole::Whole;
use crate::args::ContextArgs;
use crate::exit::{Exit, Failure};
use crate::output::message_text::Messages;
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// Runs the command.
///
/// # Errors
/// `Usage` if `id` or the node names nothing; else if the log or the output fails.
pub fn run(args: &ContextArgs, context: &Context) -> Result<Exit, Failure> {
    let store = context.reader()?;
    let mut selected = Selected::find(&store, &args.id)?;
    if let Some(exit) = now(args, context, &selected)? {
        return Ok(exit);
    }
    let whole = Whole::read(&selected.reader, args.at)?;
    let node = whole.node(&selected, args.node.as_deref())?;
    select(&store, &mut selected, node);
    let messages = whole.tree.context(node);
    let mut exit = match (args.render, context.format()) {
        (Some(api), _) => {
            Request::new(&whole, node, &messages, api, args.model.clone()).show(context, &selected, &whole)?
        }
        (None, Format::Human) => human(args, context, &selected, &messages, whole.last)?,
        (None, Format::Json) => {
            context.json(&as_json(&selected, &messages, whole.last, &whole.health))?;
            Exit::Clean
        }
    };
    exit = exit.max(whole.health.tell(context, &selected.row.id));
    Ok(exit.max(check(context, &messages)))
}

/// Shows what the model is sent now for the price of what is shown, however long the log is. `None`: something else is asked
/// for, or something is wrong at the log's end, and all of it is to be looked at.
fn now(args: &ContextArgs, context: &Context, selected: &Selected) -> Result<Option<Exit>, Failure> {
    if args.at.is_some() || args.node.is_some() || args.render.is_some() {
        return Ok(None);
    }
    let (health, last) = Health::of_end_at(&selected.reader)?;
    if health.exit() != Exit::Clean {
        return Ok(None);
    }
    let messages = selected.reader.context(selected.row.node)?;
    match context.format() {
        Format::Human => drop(human(args, context, selected, &messages, last)?),
        Format::Json => context.json(&as_json(selected, &messages, last, &health))?,
    }
    Ok(Some(check(context, &messages)))
}

fn check(context: &Context, messages: &[ContextMessage]) -> Exit {
    match validate_pairing(messages) {
        Ok(()) => Exit::Clean,
        Err(error) => {
            context.warn(&format!("a provider would refuse this context: {error}"));
            Exit::Lost
        }
    }
}

/// Selects another conversation of the same session. One that the listing does not know keeps what is shown of it.
fn select(store: &StoreReader, selected: &mut Selected, node: NodeId) {
    if node == selected.row.node {
        return;
    }
    let row = store.rows(selected.reader.place().clone()).into_iter().find(|row| row.node == node);
    match row {
        Some(row) => selected.row = row,
        None => selected.row.node = node,
    }
}

fn human(
    args: &ContextArgs,
    context: &Context,
    selected: &Selected,
    messages: &[ContextMessage],
    last: Position,
) -> Result<Exit, Failure> {
    selected.heading(context)?;
    let count = messages.len();
    let what = format!("{count} messages for the model, as of position {last}");
    context.line(&context.paint(Paint::Dim, &what))?;
    context.line("")?;
    let writer = Messages::new(context, args.detail);
    messages.iter().try_for_each(|message| writer.context_message(message))?;
    Ok(Exit::Clean)
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
