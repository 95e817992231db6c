//! `logdump open-calls`: what was asked for, or begun, and has no result.

use std::ops::ControlFlow;

use serde_json::{Value, json};
use sessionlog::codec::ids::{NodeId, Position};
use sessionlog::projections::time::{rfc3339_micros, rfc3339_seconds};
use sessionlog::projections::{Ledger, Liveness, OpenCall, OpenState, Projection, effect_word};
use sessionlog::session::EventItem;
use sessionlog::{SessionKind, SessionReader};

use super::Selected;
use super::health::Health;
use crate::args::OpenCallsArgs;
use crate::exit::{Exit, Failure};
use crate::output::safe::safe;
use crate::output::text::cut;
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// Runs the command.
///
/// # Errors
/// `Usage` if `id` names nothing; else if the log or the output fails.
pub fn run(args: &OpenCallsArgs, context: &Context) -> Result<Exit, Failure> {
    let store = context.reader()?;
    let mut exit = Exit::Clean;
    let mut all = Vec::new();
    let wanted: Vec<(SessionReader, Option<NodeId>)> = match &args.id {
        Some(id) => {
            let Selected { row, reader } = Selected::find(&store, id)?;
            vec![(reader, (row.kind == SessionKind::Child).then_some(row.node))]
        }
        None => {
            let mut places = store.places()?;
            places.sort_by_key(|place| place.id);
            places.into_iter().map(|place| (store.session_at(place), None)).collect()
        }
    };
    let mut found = 0_usize;
    for (reader, node) in wanted {
        let (calls, health) = match read(&reader, node) {
            Ok(read) => read,
            Err(failure) if args.id.is_some() => return Err(failure),
            Err(failure) => {
                exit = exit.max(context.go_on(failure)?);
                continue;
            }
        };
        found = found.saturating_add(calls.len());
        match context.format() {
            Format::Human => human(context, &reader, &calls)?,
            Format::Json => all.extend(calls.iter().map(|call| call_json(&reader, call))),
        }
        exit = exit.max(health.tell(context, &reader.place().id.to_string()));
    }
    if context.format() == Format::Json {
        context.json(&json!({ "schema_version": SCHEMA_VERSION, "open_calls": all }))?;
    } else if found == 0 {
        context.note("no call is without a result");
    }
    Ok(exit)
}

fn read(reader: &SessionReader, node: Option<NodeId>) -> Result<(Vec<OpenCall>, Health), Failure> {
    // What is wrong further back is for `verify` to tell; what is open is known from the end.
    let mut health = Health::of_end(reader)?;
    let mut calls = if health.exit() == Exit::Clean {
        reader.open_calls()?
    } else {
        let mut ledger = Ledger::default();
        health = Health::read(reader, Position(1), &mut |item| {
            if let EventItem::Event(event) = item {
                ledger.apply(event);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        ledger.open_calls()
    };
    calls.retain(|call| node.is_none_or(|node| call.node == node));
    Ok((calls, health))
}

fn human(context: &Context, reader: &SessionReader, calls: &[OpenCall]) -> Result<(), Failure> {
    if calls.is_empty() {
        return Ok(());
    }
    let alive = reader.liveness() == Liveness::Alive;
    let owner = if alive { "its owner is running" } else { "nobody owns it now" };
    let head = format!("session {} ({owner})", reader.place().id);
    context.line(&context.paint(Paint::Heading, &head))?;
    for call in calls {
        let name = context.paint(Paint::Tool, &cut(&safe(&call.name), 60));
        let place = format!("node {}, {}, {}", call.node, call.call, cut(&safe(&call.call_id), 80));
        let state = match call.state {
            OpenState::NotStarted => "not started: it did nothing".to_owned(),
            OpenState::Started { effect, attempt, timestamp, .. } => {
                let means = match (alive, effect_word(effect)) {
                    (true, _) => "it may be running",
                    (false, "pure" | "idempotent") => "what it did is unknown; it may be run again",
                    (false, _) => "what it did is unknown: look before it is repeated",
                };
                let since = rfc3339_seconds(timestamp);
                format!("started {since}, attempt {attempt}, {}: {means}", effect_word(effect))
            }
        };
        context.line(&format!("  {name}  {}", context.paint(Paint::Dim, &place)))?;
        context.line(&format!("    {state}"))?;
    }
    Ok(())
}

fn call_json(reader: &SessionReader, open: &OpenCall) -> Value {
    let (state, started) = match open.state {
        OpenState::NotStarted => ("not_started", Value::Null),
        OpenState::Started { effect, attempt, position, timestamp } => (
            "started",
            json!({
                "effect": effect_word(effect),
                "attempt": attempt,
                "position": position.0,
                "timestamp": rfc3339_micros(timestamp),
            }),
        ),
    };
    json!({
        "session": reader.place().id.to_string(),
        "node": open.node.0,
        "message_no": open.call.message_no.0,
        "tool_index": open.call.tool_index.0,
        "call_id": open.call_id,
        "name": open.name,
        "arguments_blake3": open.arguments_digest.to_string(),
        "state": state,
        "started": started,
        "owner_alive": match reader.liveness() {
            Liveness::Alive => Value::Bool(true),
            Liveness::Dead => Value::Bool(false),
            Liveness::Unknown => Value::Null,
        },
    })
}
