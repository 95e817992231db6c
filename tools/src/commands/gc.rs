//! `logdump gc`: removes the artifacts that nothing names any more.

use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Value, json};
use sessionlog::artifacts::{ArchiveRoots, GcRun, KeptFor, Tally};
use sessionlog::store::{WorkspaceHash, canonical};
use sessionlog::{GcOptions, GcReport, Store};

use crate::args::{ArchiveArg, GcArgs};
use crate::exit::{Exit, Failure};
use crate::output::text::{count, size};
use crate::output::{Context, Format, SCHEMA_VERSION};

/// Digests that people are shown of what goes.
const SHOWN: usize = 20;

/// Runs the command.
///
/// # Errors
/// `Usage` if there is no home, or no session of the directory; else if the output fails. A workspace whose artifacts can't be
/// collected is told, and the others are.
pub fn run(args: &GcArgs, context: &Context) -> Result<Exit, Failure> {
    let reader = context.reader()?;
    let mut workspaces = reader.workspaces()?;
    workspaces.sort();
    if let Some(dir) = &args.workspace {
        let wanted = wanted(dir, &workspaces)?;
        workspaces.retain(|workspace| *workspace == wanted);
    }
    let store = Store::open(context.home()?)?;
    let options = GcOptions {
        grace: args.grace,
        archive: match args.archive {
            ArchiveArg::Pin => ArchiveRoots::Pin,
            ArchiveArg::Ignore => ArchiveRoots::DontPin,
        },
        run: if args.dry_run { GcRun::DryRun } else { GcRun::Collect },
    };
    let (mut exit, mut all) = (Exit::Clean, Vec::new());
    for workspace in &workspaces {
        let waiting = spinner(context, workspace);
        let report = store.artifacts(workspace).gc(&options);
        waiting.finish_and_clear();
        match report {
            Ok(report) => match context.format() {
                Format::Json => all.push(as_json(workspace, &report)),
                Format::Human => human(context, workspace, &report, options.run)?,
            },
            Err(error) => exit = exit.max(context.go_on(error.into())?),
        }
    }
    if context.format() == Format::Json {
        context.json(&json!({
            "schema_version": SCHEMA_VERSION, "dry_run": args.dry_run, "workspaces": all, "outcome": exit.word(),
        }))?;
    } else if args.dry_run {
        context.note("nothing was changed");
    }
    Ok(exit)
}

/// The workspace of a directory, if it has sessions here.
pub(super) fn wanted(dir: &Path, workspaces: &[WorkspaceHash]) -> Result<WorkspaceHash, Failure> {
    let path = canonical(dir);
    let wanted = WorkspaceHash::of(&path);
    if workspaces.contains(&wanted) {
        return Ok(wanted);
    }
    let message = format!("there is no session of {} in this home", path.display());
    Err(Failure::usage("workspace.missing", message))
}

fn spinner(context: &Context, workspace: &WorkspaceHash) -> ProgressBar {
    let target = match context.format() {
        Format::Human => ProgressDrawTarget::stderr(),
        Format::Json => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_message(format!("reading what the sessions of workspace {workspace} name"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn human(context: &Context, workspace: &WorkspaceHash, report: &GcReport, run: GcRun) -> Result<(), Failure> {
    if report.before.count == 0 {
        return Ok(());
    }
    let files =
        |tally: &Tally| format!("{} ({})", count(tally.count, "artifact", "artifacts"), size(tally.bytes));
    context.line(&format!("workspace {workspace}: {}", files(&report.before)))?;
    for (why, tally) in &report.kept {
        context.line(&format!("  stays: {}, {}", files(tally), reason(*why)))?;
    }
    let goes = if run == GcRun::DryRun { "would go" } else { "gone" };
    for entry in report.dropped.iter().take(SHOWN) {
        context.line(&format!("  {goes}: {} ({})", entry.digest, size(entry.len)))?;
    }
    if let Some(more) = report.dropped.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        context.line(&format!("  {goes}: {more} more"))?;
    }
    if report.unfinished.count > 0 {
        let left = count(report.unfinished.count, "file", "files");
        context.line(&format!(
            "  {goes}: {left} that a crash left half written ({})",
            size(report.unfinished.bytes)
        ))?;
    }
    let then = if run == GcRun::DryRun { "would be left" } else { "left" };
    context.line(&format!("  {then}: {}", files(&report.after)))
}

/// Why something stays, for people.
fn reason(why: KeptFor) -> &'static str {
    match why {
        KeptFor::Session => "named by a session",
        KeptFor::ChildResult => "named by the result of a delegated conversation",
        KeptFor::Learning => "named by a request to the library",
        KeptFor::Archive => "named by the archive of a deleted session",
        KeptFor::Lease => "leased",
        KeptFor::Lineage => "what others were derived from",
        KeptFor::Grace => "too young",
        KeptFor::Touched => "used while this went on",
        _ => "named",
    }
}

fn as_json(workspace: &WorkspaceHash, report: &GcReport) -> Value {
    let tally = |tally: &Tally| json!({ "count": tally.count, "bytes": tally.bytes });
    let kept: serde_json::Map<String, Value> =
        report.kept.iter().map(|(why, it)| (why.word().to_owned(), tally(it))).collect();
    let dropped: Vec<Value> = report
        .dropped
        .iter()
        .map(|entry| json!({ "digest": entry.digest.to_string(), "bytes": entry.len }))
        .collect();
    json!({
        "workspace": workspace.as_str(),
        "gc_id": report.gc_id,
        "kept": kept,
        "dropped": dropped,
        "unfinished": tally(&report.unfinished),
        "before": tally(&report.before),
        "after": tally(&report.after),
    })
}
