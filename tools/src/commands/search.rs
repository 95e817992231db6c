//! `logdump search`: what was said and done in the sessions of a workspace.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use sessionlog::codec::ids::{SessionId, Timestamp};
use sessionlog::projections::memory::{Excerpt, MemoryFilter, MemoryQuery, MemorySort, RecordId};
use sessionlog::projections::role_word;
use sessionlog::projections::time::{parse_rfc3339, rfc3339_micros, rfc3339_seconds};
use sessionlog::store::{WorkspaceHash, canonical};
use sessionlog::{FoundBy, IndexPolicy, MemoryHit, MemoryReader, StoreReader};

use crate::args::SearchArgs;
use crate::exit::{Exit, Failure};
use crate::output::safe::{safe, safe_lines};
use crate::output::text::{ago, count, now};
use crate::output::{Context, Destination, Format, Paint, SCHEMA_VERSION};

/// The longest excerpt, in characters: for people, and for programs.
const EXCERPT_HUMAN: usize = 240;
const EXCERPT_JSON: usize = 1200;
/// How many entries are shown around a record by the command that is told.
const AROUND: u64 = 5;

/// A hit with its workspace.
struct Hit {
    workspace: String,
    /// Whether its session is there: of a deleted one, the archive is.
    is_there: bool,
    hit: MemoryHit,
}

/// Runs the command.
///
/// # Errors
/// `Usage` if there is no such workspace, session or record, or the query can't be answered; else if the home or the output
/// fails.
pub fn run(args: &SearchArgs, context: &Context) -> Result<Exit, Failure> {
    let store = context.reader()?;
    let workspaces = workspaces(args, &store)?;
    if let Some(id) = args.record {
        return show_record(id, args, context, &store, &workspaces);
    }
    let query = query(args, context, &store)?;
    let (mut hits, mut total, mut by, mut unread) = (Vec::new(), 0_u64, FoundBy::Index, BTreeSet::new());
    // Of several workspaces, the page is cut from what all of them give.
    let whole =
        MemoryQuery { offset: 0, limit: query.offset.saturating_add(query.limit).min(1000), ..query.clone() };
    for workspace in &workspaces {
        let found =
            memory(args, &store, workspace).search(if workspaces.len() == 1 { &query } else { &whole })?;
        total = total.saturating_add(found.total);
        if found.by == FoundBy::Scan {
            by = FoundBy::Scan;
        }
        unread.extend(found.unread);
        let name = store.workspace_name(workspace);
        hits.extend(found.hits.into_iter().map(|hit| Hit {
            workspace: name.clone(),
            is_there: store.session(hit.id.session).is_ok(),
            hit,
        }));
    }
    if workspaces.len() != 1 {
        sort(&mut hits, &query);
        hits = hits.into_iter().skip(query.offset).take(query.limit).collect();
    }
    match context.format() {
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "total": total,
            "by": if by == FoundBy::Index { "index" } else { "scan" },
            "unread": unread.iter().map(SessionId::to_string).collect::<Vec<_>>(),
            "hits": hits.iter().map(hit_json).collect::<Vec<Value>>(),
        }))?,
        Format::Human => human(context, &hits, &query, total, workspaces.len())?,
    }
    for id in &unread {
        context.warn(&format!("session {id} can't be read; `logdump verify {id}` says more"));
    }
    Ok(if unread.is_empty() { Exit::Clean } else { Exit::Lost })
}

fn memory(args: &SearchArgs, store: &StoreReader, workspace: &WorkspaceHash) -> MemoryReader {
    let policy = if args.no_index { IndexPolicy::Off } else { IndexPolicy::Keep };
    store.memory(workspace).with_index(policy)
}

fn workspaces(args: &SearchArgs, store: &StoreReader) -> Result<Vec<WorkspaceHash>, Failure> {
    let mut all = store.workspaces()?;
    all.sort();
    // A record is looked for where it is.
    if args.all_workspaces || (args.record.is_some() && args.workspace.is_none()) {
        return Ok(all);
    }
    let path = canonical(args.workspace.as_deref().unwrap_or(Path::new(".")));
    let hash = WorkspaceHash::of(&path);
    if all.contains(&hash) {
        return Ok(vec![hash]);
    }
    let message =
        format!("no session was recorded in {}: give --workspace PATH, or --all-workspaces", path.display());
    Err(Failure::usage("workspace.missing", message))
}

fn query(args: &SearchArgs, context: &Context, store: &StoreReader) -> Result<MemoryQuery, Failure> {
    let sessions = args.session.iter().map(|text| session_of(store, text)).collect::<Result<_, _>>()?;
    let time = |text: &Option<String>| text.as_deref().map(|text| time_of(text, now())).transpose();
    let filter = MemoryFilter {
        sessions,
        nodes: BTreeSet::new(),
        kinds: args.kind.iter().copied().collect(),
        roles: args.role.clone(),
        tools: args.tool.iter().cloned().collect(),
        statuses: args.status.iter().copied().collect(),
        tags: args.tag.iter().cloned().collect(),
        since: time(&args.since)?,
        until: time(&args.until)?,
    };
    Ok(MemoryQuery {
        text: args.words.join(" "),
        filter,
        sort: if args.newest { MemorySort::Newest } else { MemorySort::Relevance },
        limit: args.limit,
        offset: args.offset,
        excerpt_chars: if context.format() == Format::Json { EXCERPT_JSON } else { EXCERPT_HUMAN },
        ..MemoryQuery::default()
    })
}

/// A session by its id, also of a deleted one, or by what it can be found by.
fn session_of(store: &StoreReader, text: &str) -> Result<SessionId, Failure> {
    match text.parse() {
        Ok(id) => Ok(id),
        Err(_) => Ok(store.find(text)?.root),
    }
}

/// A time as people give it.
fn time_of(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    let seconds = |unit: char| match unit {
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(86_400),
        'w' => Some(7 * 86_400),
        _ => None,
    };
    let span = text.chars().last().and_then(seconds).and_then(|unit| {
        let number: i64 =
            text.get(..text.len().saturating_sub(1))?.parse().ok().filter(|number| *number >= 0)?;
        number.checked_mul(unit)?.checked_mul(1_000_000)
    });
    let time = match span {
        Some(micros) => now.0.checked_sub(micros).map(Timestamp),
        None => parse_rfc3339(text).or_else(|| parse_rfc3339(&format!("{text}T00:00:00Z"))),
    };
    time.ok_or_else(|| {
        let message =
            format!("`{text}` is no time: give a date, an RFC 3339 time, or how long ago (90m, 12h, 7d)");
        Failure::usage("search.time", message)
    })
}

fn sort(hits: &mut [Hit], query: &MemoryQuery) {
    let by_time = query.sort == MemorySort::Newest || query.text.trim().is_empty();
    hits.sort_by(|a, b| {
        let newer = b.hit.at.cmp(&a.hit.at);
        if by_time { newer } else { b.hit.score.total_cmp(&a.hit.score).then(newer) }
    });
}

fn human(
    context: &Context,
    hits: &[Hit],
    query: &MemoryQuery,
    total: u64,
    workspaces: usize,
) -> Result<(), Failure> {
    let now = now();
    for Hit { workspace, is_there, hit } in hits {
        let when = match context.destination() {
            Destination::Terminal => ago(hit.at, now),
            Destination::Elsewhere => rfc3339_seconds(hit.at),
        };
        let mut words = vec![hit.kind.word().to_owned()];
        words.extend(hit.role.map(role_word).map(str::to_owned));
        words.extend(hit.tool.as_deref().map(|tool| safe(tool).into_owned()));
        words.push(hit.status.word().to_owned());
        words.push(when);
        if workspaces != 1 {
            words.push(safe(workspace).into_owned());
        }
        let head = format!("{} position {}", hit.id.session, hit.id.position);
        context.line(&format!("{}  {}", context.paint(Paint::Heading, &head), words.join(" · ")))?;
        let excerpt = excerpt_line(context, &hit.excerpt);
        if !excerpt.is_empty() {
            context.line(&format!("  {excerpt}"))?;
        }
        let next = if *is_there { show_command(hit) } else { format!("logdump search --record {}", hit.id) };
        context.line(&context.paint(Paint::Dim, &format!("  {next}")))?;
    }
    let shown = u64::try_from(hits.len()).unwrap_or(u64::MAX);
    if total == 0 {
        context.note("nothing was found");
    } else if shown < total {
        let behind = u64::try_from(query.offset).unwrap_or(u64::MAX).saturating_add(shown);
        let found = count(total, "record", "records");
        context.note(&match behind < total {
            true => format!("{found} in all; --offset {behind} shows more"),
            false => format!("{found} in all"),
        });
    }
    Ok(())
}

/// How to read on around a hit.
fn show_command(hit: &MemoryHit) -> String {
    let after = hit.id.position.0.saturating_sub(1);
    format!("logdump show {} --after {after} --limit {AROUND}", hit.id.session)
}

/// An excerpt on one line, with the words that were looked for marked.
fn excerpt_line(context: &Context, excerpt: &Excerpt) -> String {
    let piece = |range: std::ops::Range<usize>| {
        let text = excerpt.text.get(range).unwrap_or_default();
        safe(&one_line(text)).into_owned()
    };
    let mut line = String::new();
    if excerpt.start > 0 {
        line.push('…');
    }
    let mut at = 0;
    for mark in &excerpt.marks {
        line.push_str(&piece(at..mark.start));
        let word = piece(mark.clone());
        let painted = context.paint(Paint::Warning, &word);
        // Without colours, the mark is in the text.
        line.push_str(&if painted == word { format!("»{word}«") } else { painted });
        at = mark.end;
    }
    line.push_str(&piece(at..excerpt.text.len()));
    if excerpt.start.saturating_add(excerpt.text.chars().count()) < excerpt.of {
        line.push('…');
    }
    line
}

/// The text with one space for whatever white space is in it.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_whitespace() {
            true if line.ends_with(' ') => {}
            true => line.push(' '),
            false => line.push(c),
        }
    }
    line
}

fn hit_json(Hit { workspace, is_there, hit }: &Hit) -> Value {
    let excerpt = &hit.excerpt;
    let chars = |to: usize| excerpt.text.get(..to).unwrap_or_default().chars().count();
    let marks: Vec<Value> =
        excerpt.marks.iter().map(|mark| json!([chars(mark.start), chars(mark.end)])).collect();
    json!({
        "record": hit.id.to_string(),
        "session": hit.id.session.to_string(),
        "node": hit.node.0,
        "position": hit.id.position.0,
        "workspace": workspace,
        "deleted": !is_there,
        "kind": hit.kind.word(),
        "role": hit.role.map(role_word),
        "tool": hit.tool,
        "status": hit.status.word(),
        "at": rfc3339_micros(hit.at),
        "tags": hit.tags,
        "artifacts": hit.artifacts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "score": hit.score,
        "text_rank": hit.text_rank,
        "vector_rank": hit.vector_rank,
        "excerpt": { "text": excerpt.text, "start": excerpt.start, "of": excerpt.of, "marks": marks },
    })
}

/// Prints the whole text of one record.
fn show_record(
    id: RecordId,
    args: &SearchArgs,
    context: &Context,
    store: &StoreReader,
    workspaces: &[WorkspaceHash],
) -> Result<Exit, Failure> {
    let mut missing = None;
    for workspace in workspaces {
        match memory(args, store, workspace).read(id, 0, usize::MAX) {
            Ok(page) => {
                let record = page.record;
                match context.format() {
                    Format::Json => context.json(&json!({
                        "schema_version": SCHEMA_VERSION,
                        "record": id.to_string(),
                        "kind": record.kind.word(),
                        "role": record.role.map(role_word),
                        "tool": record.tool,
                        "status": record.status.word(),
                        "at": rfc3339_micros(record.at),
                        "text": record.text,
                    }))?,
                    Format::Human => context.line(&safe_lines(&record.text))?,
                }
                return Ok(Exit::Clean);
            }
            Err(error) => missing = Some(error),
        }
    }
    match missing {
        Some(error) => Err(error.into()),
        None => Err(Failure::usage("memory.missing", "there is no workspace in this home")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_give_them() {
        let now = parse_rfc3339("2026-11-30T12:00:00Z").unwrap();
        let time = |text| time_of(text, now).ok().map(rfc3339_seconds);
        for (text, expected) in [
            ("90m", "2026-11-30T10-30-00Z"),
            ("7d", "2026-11-23T12-00-00Z"),
            ("2026-11-01", "2026-11-01T00-00-00Z"),
            ("2026-11-01T10:00:00+02:00", "2026-11-01T08-00-00Z"),
        ] {
            assert_eq!(time(text).map(|it| it.replace(':', "-")).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "d", "-1d", "99999999999999d", "yesterday", "ü"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
