//! `logdump learn`: what is learned from sessions, what waits, and the library.

mod library;
mod switch;

use serde_json::{Value, json};
use sessionlog::codec::event::PropositionKind;
use sessionlog::learning::LearnStatus;
use sessionlog::projections::learning::{Filed, Segment, Standing};
use sessionlog::{LearnOptions, LearnStanding, SessionReader, StoreReader};

use super::Selected;
use crate::args::{LearnArgs, LearnCommand, LearnStatusArgs};
use crate::exit::{Exit, Failure};
use crate::output::event_text::cut_safe;
use crate::output::safe::safe;
use crate::output::text::{count, size};
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// The window of a Thinker, for commands that close nothing.
const WINDOW: u64 = 128_000;

/// Runs the command.
///
/// # Errors
/// `Usage` if an id or a path names nothing; `Locked` if other processes hold a log; else if a log or the output fails.
pub fn run(args: &LearnArgs, context: &Context) -> Result<Exit, Failure> {
    match &args.command {
        LearnCommand::Status(args) => status(args, context),
        LearnCommand::Queue(_) => queue(context),
        LearnCommand::Library(args) => library::list(args, context),
        LearnCommand::Remove(args) => library::remove(args, context),
        LearnCommand::On(args) => switch::run(args, switch::ON, context),
        LearnCommand::Off(args) => switch::run(args, switch::OFF, context),
    }
}

/// How each of some sessions stands to learning. One that can't be read is said, and left out.
fn statuses(
    store: &StoreReader,
    id: Option<&str>,
    window: u64,
    context: &Context,
) -> Result<(Vec<(SessionReader, LearnStatus)>, Exit), Failure> {
    let options = LearnOptions::tokens(window);
    let readers: Vec<SessionReader> = match id {
        Some(id) => vec![Selected::find(store, id)?.reader],
        None => {
            let mut places = store.places()?;
            places.sort_by_key(|place| place.id);
            places.into_iter().map(|place| store.session_at(place)).collect()
        }
    };
    let (mut found, mut exit) = (Vec::new(), Exit::Clean);
    for reader in readers {
        match store.learn_status_of(&reader, &options) {
            Ok(status) => found.push((reader, status)),
            Err(error) if id.is_some() => return Err(error.into()),
            Err(error) => exit = exit.max(context.go_on(error.into())?),
        }
    }
    let unreadable = found.iter().find_map(|(_, status)| match &status.standing {
        LearnStanding::Unreadable(error) => Some(error.clone()),
        LearnStanding::On | LearnStanding::Off => None,
    });
    if let Some(error) = unreadable {
        exit = exit.max(context.go_on(error.into())?);
    }
    Ok((found, exit))
}

fn status(args: &LearnStatusArgs, context: &Context) -> Result<Exit, Failure> {
    let store = context.reader()?;
    let (found, exit) = statuses(&store, args.id.as_deref(), args.window, context)?;
    match context.format() {
        Format::Json => {
            let sessions: Vec<Value> =
                found.iter().map(|(reader, status)| status_json(reader, status)).collect();
            context.json(&json!({ "schema_version": SCHEMA_VERSION, "sessions": sessions }))?;
        }
        Format::Human => {
            for (reader, status) in &found {
                status_lines(context, reader, status)?;
            }
        }
    }
    if found.is_empty() {
        context.note("there is no session to learn from");
    }
    Ok(exit)
}

fn status_lines(context: &Context, reader: &SessionReader, status: &LearnStatus) -> Result<(), Failure> {
    let id = reader.place().id.to_string();
    context.line(&context.paint(Paint::Heading, &format!("{id}  learning is {}", status.standing.word())))?;
    let segments = number(status.segments.len());
    let waits = match &status.job {
        Some(job) => format!(", of the first one {} registered", number(job.registered.len())),
        None => String::new(),
    };
    context.line(&format!("  {} learned", count(status.learned, "segment", "segments")))?;
    context.line(&format!("  {}{waits}", count(segments, "segment waits", "segments wait")))?;
    let closable = count(number(status.closable), "segment is", "segments are");
    context.line(&format!("  {closable} to be closed by the session's host"))?;
    let messages = count(status.waiting.messages, "message", "messages");
    context.line(&format!("  {messages} ({}) in no segment yet", size(status.waiting.bytes)))
}

fn status_json(reader: &SessionReader, status: &LearnStatus) -> Value {
    let job = status.job.as_ref().map(|job| {
        json!({
            "segment": job.segment_id,
            "registered": job.registered.len(),
            "pending": job.pending.as_ref().map(|pending| pending.key.clone()),
        })
    });
    json!({
        "id": reader.place().id.to_string(),
        "workspace": reader.place().workspace.as_str(),
        "learning": status.standing.word(),
        "learned": status.learned,
        "segments": status.segments.len(),
        "closable": status.closable,
        "waiting": { "messages": status.waiting.messages, "bytes": status.waiting.bytes },
        "job": job,
    })
}

fn queue(context: &Context) -> Result<Exit, Failure> {
    let store = context.reader()?;
    let (found, exit) = statuses(&store, None, WINDOW, context)?;
    let library = store.library()?;
    let propositions: Vec<&Filed> = library.open().collect();
    let segments: Vec<(&SessionReader, &Segment, bool)> = found
        .iter()
        .flat_map(|(reader, status)| {
            let busy = status.job.as_ref().map(|job| job.segment_id.as_str());
            status.segments.iter().map(move |it| (reader, it, busy == Some(it.segment_id.as_str())))
        })
        .collect();
    if context.format() == Format::Json {
        let segments: Vec<Value> =
            segments.iter().map(|(reader, it, busy)| segment_json(reader, it, *busy)).collect();
        let propositions: Vec<Value> = propositions.iter().map(|filed| filed_json(filed)).collect();
        context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "segments": segments,
            "propositions": propositions,
        }))?;
        return Ok(exit);
    }
    for (reader, it, busy) in &segments {
        let state = if *busy { "is worked on" } else { "waits" };
        context.line(&format!(
            "{}  {} (positions {} to {}, closed by {}) {state}",
            reader.place().id,
            cut_safe(&it.segment_id, 60),
            it.first,
            it.last,
            it.boundary_word().replace('_', " ")
        ))?;
    }
    for filed in &propositions {
        context.line(&filed_line(filed))?;
    }
    if segments.is_empty() && propositions.is_empty() {
        context.note("nothing waits");
    }
    Ok(exit)
}

fn segment_json(reader: &SessionReader, it: &Segment, busy: bool) -> Value {
    json!({
        "session": reader.place().id.to_string(),
        "segment": it.segment_id,
        "node": it.node.0,
        "first": it.first.0,
        "last": it.last.0,
        "boundary": it.boundary_word(),
        "begun": busy,
    })
}

fn standing_word(standing: &Standing) -> &'static str {
    match standing {
        Standing::Submitted => "submitted",
        Standing::Decided(_) => "decided",
        Standing::Applied(_) => "applied",
    }
}

fn filed_line(filed: &Filed) -> String {
    let mut line = format!("{}  {}", safe(&filed.key), standing_word(&filed.standing));
    if let Some(error) = &filed.last_error {
        let failed = count(filed.attempts.into(), "attempt", "attempts");
        line.push_str(&format!(", {failed} failed: {}", cut_safe(error, 80)));
    }
    line
}

fn filed_json(filed: &Filed) -> Value {
    json!({
        "key": filed.key,
        "standing": standing_word(&filed.standing),
        "attempts": filed.attempts,
        "last_error": filed.last_error,
    })
}

fn kind_word(kind: PropositionKind) -> &'static str {
    match kind {
        PropositionKind::Workflow => "workflow",
        PropositionKind::ProjectFact => "project_fact",
        PropositionKind::Resolution => "resolution",
        PropositionKind::Finding => "finding",
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
