//! `logdump verify`: the whole check, and what to do about what it finds.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sessionlog::log::{Finding, Severity};
use sessionlog::projections::Liveness;
use sessionlog::session::SessionVerification;
use sessionlog::{SessionReader, StoreReader};

use super::Selected;
use super::health::no_log;
use crate::args::VerifyArgs;
use crate::exit::{Exit, Failure};
use crate::output::safe::safe;
use crate::output::text::{count, size};
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// Findings of one code that people are told one by one.
const TOLD: u64 = 3;

/// Runs the command.
///
/// # Errors
/// `Usage` if there is no home, or an id names nothing; else if the output fails. A session that can't be read is a finding
/// of its own, and the others are checked.
pub fn run(args: &VerifyArgs, context: &Context) -> Result<Exit, Failure> {
    let store = context.reader()?;
    let mut exit = Exit::Clean;
    let mut sessions = Vec::new();
    let readers = readers(args, &store)?;
    for reader in &readers {
        let checked = check(reader)?;
        exit = exit.max(checked.exit);
        match context.format() {
            Format::Human => human(context, &checked)?,
            Format::Json => sessions.push(as_json(&checked)),
        }
    }
    if context.format() == Format::Json {
        context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "verdict": exit.word(),
            "sessions": sessions,
        }))?;
    } else if readers.is_empty() {
        context.note(&format!("there is no session in {}", store.path().display()));
    } else {
        let checked = count(u64::try_from(readers.len()).unwrap_or(u64::MAX), "session", "sessions");
        context.note(&format!("{checked} checked: {}", exit.word()));
    }
    Ok(exit)
}

fn readers(args: &VerifyArgs, store: &StoreReader) -> Result<Vec<SessionReader>, Failure> {
    if args.ids.is_empty() {
        let mut places = store.places()?;
        places.sort_by_key(|place| place.id);
        return Ok(places.into_iter().map(|place| store.session_at(place)).collect());
    }
    args.ids.iter().map(|id| Ok(Selected::find(store, id)?.reader)).collect()
}

/// A session with all that was found.
struct Checked {
    id: String,
    exit: Exit,
    liveness: Liveness,
    /// `None`: it could not be checked, for this reason.
    result: Result<SessionVerification, (&'static str, String)>,
}

/// What `verify` says of a session.
pub(super) fn exit_of(reader: &SessionReader) -> Result<Exit, Failure> {
    Ok(check(reader)?.exit)
}

fn check(reader: &SessionReader) -> Result<Checked, Failure> {
    let id = reader.place().id.to_string();
    let verified = reader.verify();
    let liveness = reader.liveness();
    match verified {
        Ok(result) => {
            let findings = result.all().map(|finding| finding_exit(finding, liveness)).max();
            let newer = if result.unknown_events > 0 { Exit::Warnings } else { Exit::Clean };
            let exit = findings.unwrap_or_default().max(newer);
            Ok(Checked { id, exit, liveness, result: Ok(result) })
        }
        Err(error) => match no_log(reader, error) {
            Failure::Pipe => Err(Failure::Pipe),
            // Creating it is under way.
            Failure::Failed { code: code @ "session.half_created", message, .. }
                if liveness == Liveness::Alive =>
            {
                Ok(Checked { id, exit: Exit::Clean, liveness, result: Err((code, message)) })
            }
            Failure::Failed { exit, code, message } => {
                Ok(Checked { id, exit, liveness, result: Err((code, message)) })
            }
        },
    }
}

fn finding_exit(finding: &Finding, liveness: Liveness) -> Exit {
    match finding.severity {
        Severity::Note => Exit::Clean,
        Severity::Warning => Exit::Warnings,
        // An append, or a new segment, that the living owner is in the middle of.
        Severity::Repairable if liveness == Liveness::Alive => Exit::Clean,
        Severity::Repairable => Exit::Repairable,
        Severity::Lost => Exit::Lost,
    }
}

fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Repairable => "repairable",
        Severity::Lost => "lost",
    }
}

/// What a person can do about a finding.
fn next_step(code: &str, severity: Severity) -> &'static str {
    match code {
        "space.unused" | "frame.skipped" => "Nothing to do.",
        "tail.torn" | "segment.half_created" | "log.half_created" => {
            "Nothing to do: whoever resumes the session next repairs it, and keeps the bytes in quarantine/."
        }
        "segment.newer" | "frame.newer" | "record.newer" => {
            "Open the session with the newer version. This version reads what it can, and changes nothing."
        }
        "footer.wrong" => {
            "Nothing is lost: the index is rebuilt from the records whenever it does not match."
        }
        "law.broken" => {
            "Nothing to do: readers follow the first record. If this host wrote it, it is worth a bug report."
        }
        "chain.broken" => {
            "Records were changed on purpose, or files of two copies were mixed. Compare with a backup."
        }
        "segment.missing" | "segment.gap" | "segment.foreign" | "segment.name" | "segment.unsealed" => {
            "Bring the file back from a backup. All other records can still be read and exported."
        }
        "frame.gap" | "gap.marked" => "The records at these positions are gone, unless a backup has them.",
        "artifact.missing" => {
            "Bring the file back from a backup. The log is whole: the receipt and its preview stay, and the session goes on."
        }
        "artifact.damaged" => {
            "Bring the file back from a backup, or put the same content again: `logdump artifact put FILE`. The log is whole, and \
             the session goes on."
        }
        "context.illegal" => "This should not be possible: please report it, with the session's log.",
        "session.half_created" => "The directory can be removed: nothing was ever stored in it.",
        _ if severity >= Severity::Lost => {
            "Restore the file from a backup if there is one. Else `logdump repair` makes a copy of all that is whole, which \
             can be gone on with; this one can't be written to. What can be read is shown by `logdump show`."
        }
        _ => "Nothing to do.",
    }
}

fn human(context: &Context, checked: &Checked) -> Result<(), Failure> {
    let (paint, word) = match checked.exit {
        Exit::Clean => (Paint::Good, "ok"),
        Exit::Warnings => (Paint::Warning, "warnings"),
        Exit::Repairable => (Paint::Warning, "repairable"),
        Exit::Lost => (Paint::Bad, "DATA LOST"),
        Exit::Usage | Exit::Locked | Exit::Io => (Paint::Bad, "NOT CHECKED"),
    };
    let verdict = context.paint(paint, &format!("{word:<10}"));
    match &checked.result {
        Err((code, message)) => {
            context.line(&format!("{}  {verdict}  {}", checked.id, safe(message)))?;
            if checked.exit != Exit::Io {
                context.line(&format!("  → {}", next_step(code, Severity::Lost)))?;
            }
            Ok(())
        }
        Ok(result) => {
            let log = &result.log;
            let mut words = vec![
                count(log.segments, "segment", "segments"),
                count(log.records, "record", "records"),
                size(log.bytes),
            ];
            if result.unknown_events > 0 {
                words.push(format!("{} of a newer version", count(result.unknown_events, "event", "events")));
            }
            if checked.liveness == Liveness::Alive {
                words.push("in use".to_owned());
            }
            context.line(&format!("{}  {verdict}  {}", checked.id, words.join(", ")))?;
            findings(context, result)
        }
    }
}

/// Findings one by one, and of those that come in crowds the first ones: what is missing breaks the laws of what follows.
fn findings(context: &Context, result: &SessionVerification) -> Result<(), Failure> {
    let mut told: BTreeMap<&str, u64> = BTreeMap::new();
    let is_loss = |finding: &Finding| finding.severity == Severity::Lost || finding.code == "gap.marked";
    let loss = result.all().find(|finding| is_loss(finding)).map(|_| Severity::Lost);
    for finding in result.all().filter(|finding| finding.severity > Severity::Note) {
        let told = told.entry(finding.code).or_default();
        *told = told.saturating_add(1);
        if *told <= TOLD {
            human_finding(context, finding, loss)?;
        }
    }
    for (code, number) in told.into_iter().filter(|(_, number)| *number > TOLD) {
        let more = count(number.saturating_sub(TOLD), "more finding", "more findings");
        context.line(&format!("  … {more} of {code}: --json lists all"))?;
    }
    Ok(())
}

/// A finding; `loss` if something is missing that the others may follow from.
fn human_finding(context: &Context, finding: &Finding, loss: Option<Severity>) -> Result<(), Failure> {
    let paint = match finding.severity {
        Severity::Lost => Paint::Bad,
        Severity::Repairable | Severity::Warning => Paint::Warning,
        Severity::Note => Paint::Dim,
    };
    let head = context.paint(paint, &format!("{} [{}]", severity_word(finding.severity), finding.code));
    context.line(&format!("  {head} {}", safe(&finding.explanation)))?;
    let mut place = Vec::new();
    if !finding.file.as_os_str().is_empty() {
        let file = finding.file.display();
        place.push(format!("{file}, byte {}, {} bytes", finding.offset, finding.len));
    }
    place.extend(match (finding.first, finding.last) {
        (Some(first), Some(last)) if first == last => Some(format!("position {first}")),
        (Some(first), Some(last)) => Some(format!("positions {first} to {last}")),
        (Some(first), None) => Some(format!("from position {first} on")),
        (None, _) => None,
    });
    if !place.is_empty() {
        context.line(&context.paint(Paint::Dim, &format!("    at {}", safe(&place.join("; ")))))?;
    }
    let next = match (finding.code, loss) {
        ("law.broken", Some(Severity::Lost)) => "It may follow from what is missing.",
        (code, _) => next_step(code, finding.severity),
    };
    context.line(&format!("    → {next}"))
}

fn as_json(checked: &Checked) -> Value {
    let alive = match checked.liveness {
        Liveness::Alive => Value::Bool(true),
        Liveness::Dead => Value::Bool(false),
        Liveness::Unknown => Value::Null,
    };
    match &checked.result {
        Err((code, message)) => json!({
            "id": checked.id,
            "verdict": checked.exit.word(),
            "owner_alive": alive,
            "findings": [{
                "severity": match checked.exit {
                    Exit::Clean => "note",
                    Exit::Warnings => "warning",
                    _ => "lost",
                },
                "code": code,
                "explanation": message,
                "next": next_step(code, Severity::Lost),
            }],
        }),
        Ok(result) => json!({
            "id": checked.id,
            "verdict": checked.exit.word(),
            "owner_alive": alive,
            "segments": result.log.segments,
            "frames": result.log.frames,
            "records": result.log.records,
            "bytes": result.log.bytes,
            "events": result.events,
            "unknown_events": result.unknown_events,
            "last_position": result.log.last.0,
            "chain": result.log.chain.to_string(),
            "log_id": result.log.log_id.map(|id| id.to_string()),
            "findings": result.all().map(finding_json).collect::<Vec<_>>(),
        }),
    }
}

fn finding_json(finding: &Finding) -> Value {
    let file = (!finding.file.as_os_str().is_empty()).then(|| finding.file.display().to_string());
    json!({
        "severity": severity_word(finding.severity),
        "code": finding.code,
        "file": file,
        "offset": finding.offset,
        "len": finding.len,
        "first": finding.first.map(|first| first.0),
        "last": finding.last.map(|last| last.0),
        "explanation": finding.explanation,
        "next": next_step(finding.code, finding.severity),
    })
}
