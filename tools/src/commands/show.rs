//! `logdump show`: a transcript.

use std::ops::ControlFlow;

use serde_json::{Value, json};
use sessionlog::codec::ids::Position;
use sessionlog::projections::views::transcript_entry_json;
use sessionlog::projections::{Projection, TranscriptEntry, TreeState};
use sessionlog::session::EventItem;

use super::Selected;
use super::health::{Health, gap_words};
use crate::args::ShowArgs;
use crate::exit::{Exit, Failure};
use crate::output::message_text::Messages;
use crate::output::safe::safe;
use crate::output::{Context, Format, SCHEMA_VERSION};

/// Runs the command.
///
/// # Errors
/// `Usage` if `id` names nothing; else if the log or the output fails.
pub fn run(args: &ShowArgs, context: &Context) -> Result<Exit, Failure> {
    let selected = Selected::find(&context.reader()?, &args.id)?;
    if args.follow {
        return super::follow::show(args, context, &selected);
    }
    if let Some(exit) = end(args, context, &selected)? {
        return Ok(exit);
    }
    let mut tree = TreeState::default();
    let mut gaps = Vec::new();
    let health = Health::read(&selected.reader, Position(1), &mut |item| {
        match item {
            EventItem::Event(event) => tree.apply(event),
            EventItem::Gap(gap) => gaps.push((gap.first, gap_words(gap))),
            EventItem::Undecodable(bad) => {
                gaps.push((bad.position, format!("the record at position {} can't be read", bad.position)));
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let after = args.after.unwrap_or(Position::START);
    let mut entries = tree.transcript_page(selected.row.node, after, args.limit.unwrap_or(usize::MAX));
    if let Some(last) = args.last {
        drop(entries.drain(..entries.len().saturating_sub(last)));
    }
    match context.format() {
        Format::Human => human(args, context, &selected, &entries, &gaps)?,
        Format::Json => context.json(&as_json(&selected, &entries, &health))?,
    }
    Ok(health.tell(context, &selected.row.id))
}

/// Shows the end of a transcript for the price of what is shown, however long it is. `None`: something else is asked for, or
/// something is wrong there, and all of the log is to be looked at.
fn end(args: &ShowArgs, context: &Context, selected: &Selected) -> Result<Option<Exit>, Failure> {
    let (Some(last), None, None) = (args.last, args.after, args.limit) else { return Ok(None) };
    let health = Health::of_end(&selected.reader)?;
    if health.exit() != Exit::Clean {
        return Ok(None);
    }
    let entries = selected.reader.newest(selected.row.node, last)?;
    match context.format() {
        Format::Human => human(args, context, selected, &entries, &[])?,
        Format::Json => context.json(&as_json(selected, &entries, &health))?,
    }
    Ok(Some(Exit::Clean))
}

/// Entries with the gaps of the log between them: a gap is the whole tree's, for nobody knows whose records are gone.
fn human(
    args: &ShowArgs,
    context: &Context,
    selected: &Selected,
    entries: &[TranscriptEntry],
    gaps: &[(Position, String)],
) -> Result<(), Failure> {
    selected.heading(context)?;
    let messages = Messages::new(context, args.detail);
    let first = entries.first().map(|entry| entry.position).filter(|_| args.last.is_some());
    let is_page = args.limit.is_some_and(|limit| entries.len() >= limit);
    let last = entries.last().map(|entry| entry.position).filter(|_| is_page);
    let from = first.or(args.after).unwrap_or(Position::START);
    let mut gaps =
        gaps.iter().filter(|(at, _)| *at >= from && last.is_none_or(|last| *at <= last)).peekable();
    for entry in entries {
        while let Some((_, words)) = gaps.next_if(|(at, _)| *at < entry.position) {
            messages.problem(&safe(words))?;
            context.line("")?;
        }
        messages.entry(entry)?;
    }
    gaps.try_for_each(|(_, words)| messages.problem(&safe(words)))?;
    if let Some(last) = last {
        context.note(&format!("to go on: --after {last}"));
    }
    Ok(())
}

fn as_json(selected: &Selected, entries: &[TranscriptEntry], health: &Health) -> Value {
    let (messages, marks): (Vec<&TranscriptEntry>, Vec<&TranscriptEntry>) =
        entries.iter().partition(|entry| entry.is_message());
    let json_of = |entries: Vec<&TranscriptEntry>| -> Vec<Value> {
        entries.into_iter().map(transcript_entry_json).collect()
    };
    json!({
        "schema_version": SCHEMA_VERSION,
        "session": selected.row.root.to_string(),
        "node": selected.row.node.0,
        "id": selected.row.id,
        "messages": json_of(messages),
        "marks": json_of(marks),
        "health": health.json(),
    })
}
