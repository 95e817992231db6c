//! `logdump fork`: a new session that begins with the history of another one.

use serde_json::json;
use sessionlog::codec::ids::Position;
use sessionlog::projections::Liveness;
use sessionlog::{ForkOptions, ForkPoint, Store, StoreOptions, ViewPolicy};

use super::Selected;
use super::whole::Whole;
use crate::args::ForkArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Context, Format, SCHEMA_VERSION};

/// Runs the command.
///
/// # Errors
/// `Usage` if the session names nothing, is a delegated conversation, or can't be forked at the position; `Lost` if what
/// stands before the position is hurt; else if the fork or the output can't be written.
pub fn run(args: &ForkArgs, context: &Context) -> Result<Exit, Failure> {
    let selected = Selected::find(&context.reader()?, &args.id)?;
    let root = selected.row.root;
    if selected.row.id != root.to_string() {
        let message = format!(
            "{} is a delegated conversation; only a session is forked, with all that is delegated in it: {root}",
            selected.row.id
        );
        return Err(Failure::usage("fork.child", message));
    }
    let whole = Whole::read(&selected.reader, args.at)?;
    let exit = whole.health.tell(context, &selected.row.id);
    let point = args.at.map_or(ForkPoint::Head, ForkPoint::At);
    let at = args.at.map_or(whole.last, |at| at.min(whole.last));
    if args.dry_run {
        return dry_run(context, &whole, &selected, at).map(|it| it.max(exit));
    }
    let options = ForkOptions { title: args.title.clone(), ..ForkOptions::default() };
    // Views would be as long as the history; whoever goes on with the fork makes them.
    let store = StoreOptions { views: ViewPolicy::Off, ..StoreOptions::default() };
    let fork = Store::open_with(context.home()?, store)?.fork(root, point, options)?;
    let id = fork.id();
    let forked_at = fork.summary()?.forked.map_or(at, |forked| forked.what.at);
    fork.close()?;
    match context.format() {
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "session": id.to_string(),
            "parent": root.to_string(),
            "at": forked_at.0,
            "dry_run": false,
        }))?,
        Format::Human => {
            context.line(&id.to_string())?;
            context.note(&format!(
                "session {id} begins with the history of {root} up to position {forked_at}; `logdump tree {id}` shows it"
            ));
        }
    }
    Ok(exit)
}

fn dry_run(context: &Context, whole: &Whole, selected: &Selected, at: Position) -> Result<Exit, Failure> {
    let root = selected.row.root;
    let alive = selected.reader.liveness() == Liveness::Alive;
    let open = whole.recovery.ledger().open_calls().len();
    match context.format() {
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "session": null,
            "parent": root.to_string(),
            "at": at.0,
            "open_calls": open,
            "dry_run": true,
        }))?,
        Format::Human => {
            context.line(&format!("A fork of {root} would begin with its records up to position {at}."))?;
            if open > 0 {
                let words = "calls have no result there: they go on where they were begun, not in the fork.";
                context.line(&format!("{open} {words}"))?;
            }
            if alive {
                context.line("Somebody owns the session, and would not notice.")?;
            }
        }
    }
    Ok(Exit::Clean)
}
