//! What a salvage found, in words.

use serde_json::{Map, Value, json};
use sessionlog::codec::ids::{KindNo, NodeId};
use sessionlog::codec::registry::name_of;
use sessionlog::log::Loss;
use sessionlog::projections::role_word;
use sessionlog::session::{FirstRecord, Neighbour, SalvageReport, SalvagedSpan};

use crate::exit::{Failure, with_causes};
use crate::output::safe::safe;
use crate::output::text::{count, size};
use crate::output::{Context, Paint};

/// How many of each kind of finding people are told one by one.
const TOLD: usize = 20;

/// The report for people.
pub(super) fn human(context: &Context, report: &SalvageReport) -> Result<(), Failure> {
    let title = format!("session {}", report.session);
    context.line(&context.paint(Paint::Heading, &title))?;
    context.line(&context.paint(Paint::Dim, &safe(&report.source.display().to_string())))?;
    let whole = count(report.records, "record is whole", "records are whole");
    let missing = report.missing_records();
    let (paint, verdict) = if report.has_lost() {
        let missing = count(missing, "record is missing", "records are missing");
        (Paint::Bad, format!("DATA LOST  {missing}, {whole}"))
    } else if report.is_clean() {
        (Paint::Good, format!("ok         {whole}, and nothing is wrong: there is nothing to repair"))
    } else {
        (Paint::Warning, format!("ok so far  {whole}; nothing that was acknowledged is known to be missing"))
    };
    context.line(&context.paint(paint, &verdict))?;
    for (nth, span) in report.spans.iter().enumerate().take(TOLD) {
        human_span(context, nth.saturating_add(1), span)?;
    }
    more(context, report.spans.len(), "damaged span")?;
    for line in remarks(report) {
        context.line(&format!("* {}", safe(&line)))?;
    }
    for left in report.left_out.iter().take(TOLD) {
        context.line(&format!("* {} was not taken in: {}", safe(&left.file), safe(&left.why)))?;
    }
    more(context, report.left_out.len(), "file")
}

fn more(context: &Context, number: usize, what: &str) -> Result<(), Failure> {
    match number.checked_sub(TOLD) {
        None | Some(0) => Ok(()),
        Some(more) => context.line(&format!("  … and {more} more of the kind {what}: --json lists all")),
    }
}

fn human_span(context: &Context, number: usize, span: &SalvagedSpan) -> Result<(), Failure> {
    let (file, offset, len) = (safe(&span.span.file), span.span.offset, span.span.len);
    let bytes = match len {
        0 => format!("at byte {offset}"),
        _ => format!("bytes {offset} to {} ({})", offset.saturating_add(len).saturating_sub(1), size(len)),
    };
    let paint = match span.span.loss {
        Loss::Acknowledged { .. } => Paint::Bad,
        Loss::Unproven { .. } | Loss::TornTail { .. } | Loss::Nothing => Paint::Warning,
    };
    context.line("")?;
    context.line(&context.paint(paint, &format!("{number}. {file}, {bytes}")))?;
    let pair = |key: &str, value: &str| context.line(&format!("   {key:<7} {}", safe(value)));
    pair("found", &span.span.found)?;
    pair("lost", &lost(span))?;
    if let Some(place) = place(span) {
        pair("where", &place)?;
    }
    pair("saved", saved(span.span.loss))
}

/// What is lost with a span.
fn lost(span: &SalvagedSpan) -> String {
    let positions = |first: u64, last: u64| {
        if first == last { format!("position {first}") } else { format!("positions {first} to {last}") }
    };
    let records = count(span.span.loss.records(), "record", "records");
    let known: Vec<String> =
        span.known.iter().map(|(kind, number)| format!("{number} {}", kind_word(*kind))).collect();
    let known = if known.is_empty() { String::new() } else { format!(": {}", known.join(", ")) };
    match span.span.loss {
        Loss::Nothing => "no record".to_owned(),
        Loss::Acknowledged { first, last } => {
            format!("{records}, {}{known}; acknowledged", positions(first.0, last.0))
        }
        Loss::Unproven { first, last } => {
            format!("{records}, {}{known}; nothing proves an acknowledgement", positions(first.0, last.0))
        }
        Loss::TornTail { first } => format!(
            "what a crash cut short, from position {first} on. Nothing proves that it was ever acknowledged, or how much \
             it was"
        ),
    }
}

fn saved(loss: Loss) -> &'static str {
    match loss {
        Loss::Nothing => "all records around it",
        Loss::Acknowledged { .. } | Loss::Unproven { .. } => {
            "all before and behind it; the missing positions are marked in the copy"
        }
        Loss::TornTail { .. } => "all before it; the copy ends there, and the bytes stay in the hurt session",
    }
}

/// Where in the conversation a span is, by the messages beside it.
fn place(span: &SalvagedSpan) -> Option<String> {
    if span.span.loss == Loss::Nothing {
        return None;
    }
    let words = |neighbour: &Neighbour| {
        let node = if neighbour.node == NodeId::ROOT {
            String::new()
        } else {
            format!(" in delegated conversation {}", neighbour.node)
        };
        let Neighbour { message_no, role, position, .. } = neighbour;
        format!("message {message_no} of the {}{node} (position {position})", role_word(*role))
    };
    Some(match (&span.after, &span.before) {
        (Some(after), Some(before)) => format!("after {}, before {}", words(after), words(before)),
        (Some(after), None) => format!("after {}, the last message that is whole", words(after)),
        (None, Some(before)) => format!("before {}, the first message that is whole", words(before)),
        (None, None) => "no message is whole".to_owned(),
    })
}

/// What else is to be said.
fn remarks(report: &SalvageReport) -> Vec<String> {
    let mut remarks = Vec::new();
    if report.first_record == FirstRecord::Made {
        remarks.push(
            "the session's first record is lost: one that says nothing but the session's id takes its place. Goal, model \
             and tools at the beginning are not known any more"
                .to_owned(),
        );
    }
    if let Some(other) = report.other_identity {
        remarks.push(format!(
            "its log says that it is session {other}: the directory was renamed or copied, or the segments that make it \
             {} are lost. The copy can be read, not resumed",
            report.session
        ));
    }
    if report.unproven_records > 0 {
        let records = count(report.unproven_records, "whole record stands", "whole records stand");
        remarks.push(format!(
            "{records} behind a torn place: saved too, and nothing proves that their append was ever acknowledged"
        ));
    }
    for bad in report.unreadable.iter().take(TOLD) {
        remarks.push(format!(
            "the record at position {} ({} version {}) is whole and can't be decoded: its bytes are carried along. {}",
            bad.position,
            kind_word(bad.kind),
            bad.schema,
            with_causes(&bad.error)
        ));
    }
    if let Some(first) = report.broken_chain.first() {
        remarks.push(format!(
            "the hash chain breaks at {}, first at position {first}, although every frame is whole: records were changed on \
             purpose, or files of two copies were mixed",
            count(u64::try_from(report.broken_chain.len()).unwrap_or(u64::MAX), "place", "places")
        ));
    }
    if report.repeated_frames > 0 {
        let frames = count(report.repeated_frames, "whole frame stands", "whole frames stand");
        remarks.push(format!("{frames} where another one has its positions, and was not taken in"));
    }
    if report.skipped_frames > 0 {
        let frames = count(report.skipped_frames, "frame", "frames");
        remarks.push(format!("{frames} of a newer kind hold no records and were left out, as they may be"));
    }
    remarks
}

fn kind_word(kind: KindNo) -> String {
    name_of(kind).map_or_else(|| format!("kind {kind}"), str::to_owned)
}

/// The report for programs.
pub(super) fn as_json(report: &SalvageReport) -> Value {
    json!({
        "id": report.session.to_string(),
        "other_identity": report.other_identity.map(|id| id.to_string()),
        "source": report.source.display().to_string(),
        "frames": report.frames,
        "records": report.records,
        "bytes": report.bytes,
        "missing_records": report.missing_records(),
        "unproven_records": report.unproven_records,
        "repeated_frames": report.repeated_frames,
        "skipped_frames": report.skipped_frames,
        "first_record": match report.first_record {
            FirstRecord::Kept => "kept",
            FirstRecord::Made => "made",
        },
        "spans": report.spans.iter().map(span_json).collect::<Vec<_>>(),
        "left_out": report.left_out.iter().map(|left| json!({"file": left.file, "why": left.why})).collect::<Vec<_>>(),
        "unreadable": report.unreadable.iter().map(|bad| json!({
            "position": bad.position.0,
            "kind": bad.kind.0,
            "schema_version": bad.schema.0,
            "explanation": with_causes(&bad.error),
        })).collect::<Vec<_>>(),
        "broken_chain": report.broken_chain.iter().map(|position| position.0).collect::<Vec<_>>(),
    })
}

fn span_json(span: &SalvagedSpan) -> Value {
    let loss = match span.span.loss {
        Loss::Nothing => "nothing",
        Loss::Acknowledged { .. } => "acknowledged",
        Loss::Unproven { .. } => "unproven",
        Loss::TornTail { .. } => "torn_tail",
    };
    let positions = span.span.loss.positions();
    let neighbour = |neighbour: Option<Neighbour>| {
        neighbour.map(|it| {
            json!({
                "node": it.node.0,
                "message_no": it.message_no.0,
                "role": role_word(it.role),
                "position": it.position.0,
            })
        })
    };
    let known: Map<String, Value> =
        span.known.iter().map(|(kind, number)| (kind_word(*kind), (*number).into())).collect();
    json!({
        "file": span.span.file,
        "offset": span.span.offset,
        "len": span.span.len,
        "found": span.span.found,
        "loss": loss,
        "first": positions.map(|(first, _)| first.0),
        "last": positions.map(|(_, last)| last.0),
        "records": span.span.loss.records(),
        "known": known,
        "after": neighbour(span.after),
        "before": neighbour(span.before),
        "explanation": format!("{}; {}", lost(span), saved(span.span.loss)),
    })
}
