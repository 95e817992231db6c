//! `--follow`: what is in a session, and then what comes, until the command is stopped.

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::{Value, json};
use sessionlog::codec::ids::Position;
use sessionlog::projections::views::transcript_entry_json;
use sessionlog::projections::{Projection, TranscriptEntry, TreeState};
use sessionlog::session::EventItem;
use sessionlog::{FollowItem, FollowOptions, SessionReader};

use super::Selected;
use super::health::gap_words;
use crate::args::ShowArgs;
use crate::exit::{Exit, Failure};
use crate::output::message_text::Messages;
use crate::output::safe::safe;
use crate::output::{Context, Format, SCHEMA_VERSION};

/// How long is waited at a time: it is only a bound.
const LONG: Duration = Duration::from_secs(3600);

/// What comes while a session is followed.
#[derive(Debug)]
pub enum Followed<'a> {
    /// An event, or what can't be read.
    Item(&'a EventItem),
    /// What was shown from this position on was withdrawn.
    Retracted(Position),
    /// All that is there was given: now it waits.
    Waiting,
}

/// Gives what is in the session from `from` on to `visit`, and then what comes, until it breaks off or the session is
/// deleted. What was written is written out before it waits.
///
/// # Errors
/// Those of `visit`; else if the log or the output fails.
pub fn follow(
    reader: &SessionReader,
    from: Position,
    context: &Context,
    visit: &mut dyn FnMut(Followed<'_>) -> Result<ControlFlow<()>, Failure>,
) -> Result<Exit, Failure> {
    let mut follower = reader.follow(from, FollowOptions::default());
    let mut exit = Exit::Clean;
    loop {
        let item = match follower.try_next()? {
            Some(item) => item,
            None => {
                if visit(Followed::Waiting)?.is_break() {
                    return Ok(exit);
                }
                context.flush()?;
                let Some(item) = follower.next(LONG)? else { continue };
                item
            }
        };
        let item = match item {
            FollowItem::Event(event) => EventItem::Event(event),
            FollowItem::Gap(gap) => EventItem::Gap(gap),
            FollowItem::Undecodable(bad) => EventItem::Undecodable(bad),
            FollowItem::Retracted { from } => {
                context.warn(&format!(
                    "what was shown from position {from} on was withdrawn: it is not in the log any more"
                ));
                if visit(Followed::Retracted(from))?.is_break() {
                    return Ok(exit);
                }
                continue;
            }
            FollowItem::Deleted => {
                context.note("the session was deleted");
                return Ok(exit);
            }
        };
        if !matches!(item, EventItem::Event(_)) {
            exit = Exit::Lost;
        }
        if visit(Followed::Item(&item))?.is_break() {
            return Ok(exit);
        }
    }
}

/// `logdump show --follow`: the transcript, and then each entry as it comes.
///
/// # Errors
/// If the log or the output fails.
pub fn show(args: &ShowArgs, context: &Context, selected: &Selected) -> Result<Exit, Failure> {
    if context.format() == Format::Human {
        selected.heading(context)?;
    }
    let mut shown = Shown { after: args.after.unwrap_or(Position::START), last: args.last, left: args.limit };
    let mut tree = TreeState::default();
    let messages = Messages::new(context, args.detail);
    follow(&selected.reader, Position(1), context, &mut |followed| {
        match followed {
            Followed::Item(EventItem::Event(event)) => {
                tree.apply(event);
                return Ok(ControlFlow::Continue(()));
            }
            Followed::Item(EventItem::Gap(gap)) => {
                problem(
                    context,
                    &messages,
                    &gap_words(gap),
                    &json!({ "gap": super::health::gap_json(gap) }),
                )?;
                return Ok(ControlFlow::Continue(()));
            }
            Followed::Item(EventItem::Undecodable(bad)) => {
                let words = format!("the record at position {} can't be read", bad.position);
                problem(
                    context,
                    &messages,
                    &words,
                    &json!({ "undecodable": super::health::undecodable_json(bad) }),
                )?;
                return Ok(ControlFlow::Continue(()));
            }
            Followed::Retracted(from) => {
                let words = format!("what was shown from position {from} on was withdrawn");
                problem(context, &messages, &words, &json!({ "retracted": { "from": from.0 } }))?;
                tree = selected.reader.tree(Position(from.0.saturating_sub(1)))?;
                shown.after = shown.after.min(Position(from.0.saturating_sub(1)));
                return Ok(ControlFlow::Continue(()));
            }
            Followed::Waiting => {}
        }
        for entry in shown.new_entries(&tree, selected) {
            match context.format() {
                Format::Human => messages.entry(&entry)?,
                Format::Json => context.json_line(&line(transcript_entry_json(&entry)))?,
            }
        }
        Ok(if shown.left == Some(0) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
}

/// How far a transcript was shown.
struct Shown {
    after: Position,
    /// How many of the entries that are there at first.
    last: Option<usize>,
    left: Option<usize>,
}

impl Shown {
    fn new_entries(&mut self, tree: &TreeState, selected: &Selected) -> Vec<TranscriptEntry> {
        let limit = self.left.unwrap_or(usize::MAX);
        let mut entries = tree.transcript_page(selected.row.node, self.after, limit);
        if let Some(entry) = entries.last() {
            self.after = entry.position;
        }
        if let Some(last) = self.last.take() {
            drop(entries.drain(..entries.len().saturating_sub(last)));
        }
        self.left = self.left.map(|left| left.saturating_sub(entries.len()));
        entries
    }
}

fn problem(context: &Context, messages: &Messages<'_>, words: &str, value: &Value) -> Result<(), Failure> {
    match context.format() {
        Format::Human => messages.problem(&safe(words)),
        Format::Json => context.json_line(&line(value.clone())),
    }
}

/// A value as a line of its own.
#[must_use]
pub fn line(value: Value) -> Value {
    let mut line = serde_json::Map::new();
    line.insert("schema_version".into(), SCHEMA_VERSION.into());
    if let Value::Object(value) = value {
        line.extend(value);
    }
    Value::Object(line)
}
