//! `logdump learn library` and `learn remove`: what was learned.

use serde_json::{Value, json};
use sessionlog::Store;
use sessionlog::projections::learning::{Entry, Found, Recency, SearchOptions};
use sessionlog::projections::time::{rfc3339_micros, rfc3339_seconds};

use super::kind_word;
use crate::args::{LearnLibraryArgs, LearnRemoveArgs};
use crate::exit::{Exit, Failure};
use crate::output::event_text::quoted;
use crate::output::safe::{safe, safe_lines};
use crate::output::text::{count, now};
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

pub(super) fn list(args: &LearnLibraryArgs, context: &Context) -> Result<Exit, Failure> {
    let library = context.reader()?.library()?;
    let found: Vec<Found> = match &args.search {
        Some(query) => {
            let recency = Recency { weight: args.recency, ..Recency::default() };
            library.search(query, now(), &SearchOptions { limit: args.limit, recency })
        }
        None => {
            let mut all: Vec<Found> =
                library.entries().map(|entry| Found { entry: entry.clone(), score: 1.0 }).collect();
            all.sort_by_key(|it| std::cmp::Reverse(it.entry.updated_at));
            all.truncate(args.limit);
            all
        }
    };
    let total = library.entries().count();
    match context.format() {
        Format::Json => {
            let entries: Vec<Value> = found.iter().map(|it| found_json(it, args.search.is_some())).collect();
            let json = json!({ "schema_version": SCHEMA_VERSION, "total": total, "entries": entries });
            context.json(&json)?;
        }
        Format::Human => found.iter().try_for_each(|it| lines(context, &it.entry))?,
    }
    if found.is_empty() {
        context.note(if total == 0 { "nothing was learned yet" } else { "no entry shares a word with that" });
    } else if found.len() < total && args.search.is_none() {
        let more = u64::try_from(total.saturating_sub(found.len())).unwrap_or(u64::MAX);
        context.note(&format!("{} not shown", count(more, "more entry", "more entries")));
    }
    Ok(Exit::Clean)
}

fn lines(context: &Context, entry: &Entry) -> Result<(), Failure> {
    context.line(&context.paint(Paint::Heading, &safe(&entry.entry_id)))?;
    for line in entry.content.lines() {
        context.line(&format!("  {}", safe_lines(line)))?;
    }
    let from = count(entry.propositions.into(), "proposition", "propositions");
    let mut words =
        vec![kind_word(entry.kind).replace('_', " "), format!("confidence {:.2}", entry.confidence)];
    words.extend([from, rfc3339_seconds(entry.updated_at)]);
    words.extend((!entry.tags.is_empty()).then(|| entry.tags.join(", ")));
    context.line(&context.paint(Paint::Dim, &format!("  {}", safe(&words.join(" · ")))))
}

fn found_json(found: &Found, searched: bool) -> Value {
    let Entry {
        entry_id,
        kind,
        content,
        queries,
        tags,
        refs,
        confidence,
        extractor_model,
        extractor_version,
        propositions,
        created_at,
        updated_at,
    } = &found.entry;
    json!({
        "id": entry_id,
        "kind": kind_word(*kind),
        "content": content,
        "queries": queries,
        "tags": tags,
        "refs": refs,
        "confidence": confidence,
        "extractor_model": extractor_model,
        "extractor_version": extractor_version,
        "propositions": propositions,
        "created_at": rfc3339_micros(*created_at),
        "updated_at": rfc3339_micros(*updated_at),
        "score": searched.then_some(found.score),
    })
}

pub(super) fn remove(args: &LearnRemoveArgs, context: &Context) -> Result<Exit, Failure> {
    let library = context.reader()?.library()?;
    let Some(entry) = library.entry(&args.entry) else {
        let message = match library.is_deleted(&args.entry) {
            true => format!("the entry {} is removed already", quoted(&args.entry)),
            false => format!(
                "there is no entry {}; `logdump learn library` lists those there are",
                quoted(&args.entry)
            ),
        };
        return Err(Failure::usage("library.entry", message));
    };
    if context.format() == Format::Human {
        lines(context, entry)?;
    }
    if !args.dry_run {
        Store::open(context.home()?)?.library().delete(&args.entry, &args.reason)?;
    }
    match context.format() {
        Format::Human if args.dry_run => context.line("Nothing was changed: this was a dry run.")?,
        Format::Human => context.line("Done: it is not found any more, and does not come back.")?,
        Format::Json => {
            let json =
                json!({ "schema_version": SCHEMA_VERSION, "entry": args.entry, "done": !args.dry_run });
            context.json(&json)?;
        }
    }
    Ok(Exit::Clean)
}
