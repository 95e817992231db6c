//! `logdump learn on` and `learn off`: whether a workspace is learned from.

use serde_json::json;
use sessionlog::Store;
use sessionlog::codec::event::LearningSwitch;
use sessionlog::learning::Switched;

use super::number;
use crate::args::LearnSwitchArgs;
use crate::exit::{Exit, Failure};
use crate::output::safe::safe;
use crate::output::text::count;
use crate::output::{Context, Format, SCHEMA_VERSION};

pub(super) const ON: LearningSwitch = LearningSwitch::On;
pub(super) const OFF: LearningSwitch = LearningSwitch::Off;

pub(super) fn run(args: &LearnSwitchArgs, to: LearningSwitch, context: &Context) -> Result<Exit, Failure> {
    let reader = context.reader()?;
    let switched = match args.dry_run {
        true => reader.plan_switch(&args.workspace, to)?,
        false => Store::open(context.home()?)?.switch_learning(&args.workspace, to)?,
    };
    let (word, changes) = (if to == ON { "on" } else { "off" }, switched != Switched::AlreadySo);
    let sessions = match switched {
        Switched::AlreadySo => None,
        Switched::Changed { sessions } => Some(sessions),
    };
    if context.format() == Format::Json {
        context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "workspace": args.workspace.to_string_lossy(),
            "learning": word,
            "changes": changes,
            "sessions": sessions,
            "done": changes && !args.dry_run,
        }))?;
        return Ok(Exit::Clean);
    }
    let workspace = args.workspace.to_string_lossy();
    let workspace = safe(&workspace);
    let Some(sessions) = sessions else {
        context.line(&format!("Learning is {word} for {workspace} already: nothing was changed."))?;
        return Ok(Exit::Clean);
    };
    let sessions = count(number(sessions), "session", "sessions");
    let from_now = match to {
        LearningSwitch::Off => "what is said from now on is not learned, and nothing is deleted",
        LearningSwitch::On => "what is said from now on is learned, and what waits is gone on with",
    };
    let verb = if args.dry_run { "would be" } else { "is" };
    context.line(&format!("Learning {verb} {word} for {workspace} ({sessions}): {from_now}."))?;
    if args.dry_run {
        context.line("Nothing was changed: this was a dry run.")?;
    }
    Ok(Exit::Clean)
}
