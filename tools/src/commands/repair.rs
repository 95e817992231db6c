//! `logdump repair`: all that is whole of a hurt session, in a new home; and what is not, in plain words.

mod report;

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use serde_json::json;
use sessionlog::ErrorKind;
use sessionlog::session::{Salvage, SalvageReport};
use sessionlog::storage::{OsStorage, Storage};

use super::Selected;
use crate::args::RepairArgs;
use crate::exit::{Exit, Failure};
use crate::output::progress::progress_bar;
use crate::output::safe::safe;
use crate::output::text::{count, size};
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// Runs the command.
///
/// # Errors
/// `Usage` if the session or the target is wrong; `Locked` if somebody owns the session; `Lost` if nothing of it is whole;
/// `Warnings` if a newer version wrote it; `Io`.
pub fn run(args: &RepairArgs, context: &Context) -> Result<Exit, Failure> {
    let dir = directory(args, context)?;
    let passes = if args.dry_run { 2 } else { 3 };
    let bar = progress_bar(log_len(&dir).saturating_mul(passes), context);
    let done = carry_out(args, &dir, &bar);
    bar.finish_and_clear();
    let (salvage, copy) = done?;
    let report = salvage.report();
    let exit = exit_of(report);
    match context.format() {
        Format::Json => {
            let mut value = report::as_json(report);
            if let Some(object) = value.as_object_mut() {
                object.insert("schema_version".into(), SCHEMA_VERSION.into());
                object.insert("verdict".into(), exit.word().into());
                object.insert("dry_run".into(), args.dry_run.into());
                let copy = copy.as_ref().map(|copy| copy.display().to_string());
                object.insert("copy".into(), json!(copy));
            }
            context.json(&value)?;
        }
        Format::Human => {
            report::human(context, report)?;
            match (&args.to, &copy) {
                (Some(home), Some(copy)) => next_steps(context, report, home, copy)?,
                _ => context.note("nothing was written; `--to DIR` writes the copy"),
            }
        }
    }
    Ok(exit)
}

/// The session's directory, by its id or given as it is.
fn directory(args: &RepairArgs, context: &Context) -> Result<PathBuf, Failure> {
    let path = Path::new(&args.session);
    if path.components().count() > 1 || path.join("log").is_dir() {
        if !path.join("log").is_dir() {
            let text = format!("{} is not the directory of a session: it has no `log` in it", path.display());
            return Err(Failure::usage("repair.directory", text));
        }
        return path
            .canonicalize()
            .map_err(|e| Failure::io(&format!("looking at {} failed", path.display()), &e));
    }
    let dir = Selected::find(&context.reader()?, &args.session)?.reader.place().dir.clone();
    dir.canonicalize().map_err(|e| Failure::io(&format!("looking at {} failed", dir.display()), &e))
}

fn carry_out(
    args: &RepairArgs,
    dir: &Path,
    bar: &ProgressBar,
) -> Result<(Salvage, Option<PathBuf>), Failure> {
    bar.set_message("reading");
    let salvage =
        Salvage::of_directory(dir, &mut |bytes| bar.inc(bytes)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::new(Exit::Lost, "repair.nothing", error.to_string()),
            _ => Failure::from(error),
        })?;
    let (Some(home), false) = (&args.to, args.dry_run) else { return Ok((salvage, None)) };
    bar.set_message("writing");
    let place = salvage.carry_out(home, &mut |bytes| bar.inc(bytes))?;
    Ok((salvage, Some(place.dir)))
}

/// Acknowledged data is missing, or something is odd, or all is there and as it was.
fn exit_of(report: &SalvageReport) -> Exit {
    if report.has_lost() {
        Exit::Lost
    } else if report.is_clean() {
        Exit::Clean
    } else {
        Exit::Warnings
    }
}

fn log_len(dir: &Path) -> u64 {
    OsStorage.list(&dir.join("log")).unwrap_or_default().iter().map(|entry| entry.len).sum()
}

/// How to look at the copy, and how to put it in place: by hand, since nobody else should move a session.
fn next_steps(context: &Context, report: &SalvageReport, home: &Path, copy: &Path) -> Result<(), Failure> {
    let id = report.session;
    let records = count(report.records, "record", "records");
    let from = size(report.bytes);
    context.line("")?;
    context.line(&format!("{records} (of {from}) copied to {}", safe(&copy.display().to_string())))?;
    context.line(&context.paint(Paint::Heading, "What to do next"))?;
    let home = quoted(home);
    let step = |what: &str, command: &str| context.line(&format!("  {what:<16} {}", safe(command)));
    step("look at it", &format!("logdump --home {home} show {id}"))?;
    step("check it", &format!("logdump --home {home} verify {id}"))?;
    let aside = set_aside(report);
    step("put it in place", &format!("mv {} {}", quoted(&report.source), quoted(&aside)))?;
    step("", &format!("cp -a {} {}", quoted(copy), quoted(&report.source)))?;
    context.line("  The hurt session was not changed. Keep it until you have looked at the copy.")
}

/// Where a hurt session is out of the way: beside its home, so that nothing takes it for a session of it.
fn set_aside(report: &SalvageReport) -> PathBuf {
    let beside = report.source.ancestors().nth(5).or_else(|| report.source.parent());
    let name = format!("{}.damaged", report.session);
    beside.map_or_else(|| PathBuf::from(&name), |dir| dir.join(&name))
}

/// A path as a shell takes it for one word.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ',' | '=');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
