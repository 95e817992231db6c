//! `logdump`: inspects, checks, imports and exports what `sessionlog` stores.
//!
//! # What it promises
//! - Reading takes no lock and changes no byte, also while an agent works, also on a home that is mounted read-only.
//! - `delete`, `forget` and `redact` remove for good: they show what they would do until they are told `--yes`.
//! - `import`, `migrate`, `roots`, `learn`, `resolve`, `rewind`, `fork`, `gc` and `artifact put` are the commands that write; each has a
//!   `--dry-run` that does not.
//! - Data goes to standard output, everything said about it to standard error.
//! - `search` keeps an index beside the logs, which is derived from them and no part of them; with `--no-index` it does not.
//! - What is hurt is named, and all the rest is shown.
//! - Content reaches a terminal without control characters: see [`output::safe`].
//! - `--json` prints values with `"schema_version": 1`; keys are added, never changed, within a version.
//!
//! # Exit codes
//! | code | meaning |
//! |---|---|
//! | 0 | done, and nothing is wrong |
//! | 1 | done; something is odd or of a newer version, and nothing is lost |
//! | 2 | done; a crash left something that the next owner repairs by itself |
//! | 3 | done as far as it goes: acknowledged data is hurt or missing |
//! | 4 | the request is wrong: arguments, an unknown id, not a home |
//! | 5 | another process owns the session |
//! | 6 | the system failed to read or write |
//!
//! Of several, the greatest. A reader of the output that has enough of it (`logdump show ... | head`) is no failure: 0.

pub mod args;
pub mod commands;
pub mod exit;
pub mod import;
pub mod migrate;
pub mod output;
pub mod store_target;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Args, Command};
use exit::{Exit, Failure};
use output::Context;
use output::safe::safe_lines;

/// Runs the command that `args` ask for, the program's name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match Args::try_parse_from(args) {
        Ok(args) => finish(&args, &Context::new(&args.global)).into(),
        Err(error) => usage(&error).into(),
    }
}

/// As [`run`], with the data going to `out` as to a file, and the exit code to be looked at: for who calls it in process.
pub fn run_to(args: impl IntoIterator<Item = OsString>, out: Box<dyn Write>) -> Exit {
    match Args::try_parse_from(args) {
        Ok(args) => finish(&args, &Context::to(&args.global, out)),
        Err(error) => usage(&error),
    }
}

fn finish(args: &Args, context: &Context) -> Exit {
    let done = dispatch(&args.command, context).and_then(|exit| context.flush().map(|()| exit));
    done.unwrap_or_else(|failure| {
        context.fail(&failure);
        failure.exit()
    })
}

fn dispatch(command: &Command, context: &Context) -> Result<Exit, Failure> {
    match command {
        Command::Ls(args) => commands::ls::run(args, context),
        Command::Show(args) => commands::show::run(args, context),
        Command::Events(args) => commands::events::run(args, context),
        Command::Context(args) => commands::context::run(args, context),
        Command::OpenCalls(args) => commands::open_calls::run(args, context),
        Command::Tree(args) => commands::tree::run(args, context),
        Command::Plan(args) => commands::plan::run(args, context),
        Command::Resolve(args) => commands::resolve::run(args, context),
        Command::Rewind(args) => commands::rewind::run(args, context),
        Command::Fork(args) => commands::fork::run(args, context),
        Command::Learn(args) => commands::learn::run(args, context),
        Command::Artifact(args) => commands::artifact::run(args, context),
        Command::Gc(args) => commands::gc::run(args, context),
        Command::Search(args) => commands::search::run(args, context),
        Command::Stat(args) => commands::stat::run(args, context),
        Command::Verify(args) => commands::verify::run(args, context),
        Command::Export(args) => commands::export::run(args, context),
        Command::Import(args) => commands::import::run(args, context),
        Command::Migrate(args) => commands::migrate::run(args, context),
        Command::Roots(args) => commands::roots::run(args, context),
        Command::Demo(args) => commands::demo::run(args, context),
        Command::Repair(args) => commands::repair::run(args, context),
        Command::Doctor(args) => commands::doctor::run(args, context),
        Command::Delete(args) => commands::delete::delete(args, context),
        Command::Forget(args) => commands::delete::forget(args, context),
        Command::Redact(args) => commands::redact::run(args, context),
    }
}

/// Prints help and version as asked for, and what is wrong with the arguments otherwise. An argument may come from
/// content (`logdump show "$title"`), so an error quotes it without its control characters.
fn usage(error: &clap::Error) -> Exit {
    let wanted = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let text = error.render();
    let shown = if wanted {
        let mut stdout = std::io::stdout().lock();
        let plain = !stdout.is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        let text = if plain { text.to_string() } else { text.ansi().to_string() };
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
    } else {
        std::io::stderr().lock().write_all(safe_lines(&text.to_string()).as_bytes())
    };
    match (shown.map_err(Failure::from), wanted) {
        (Err(failure), true) => failure.exit(),
        (_, true) => Exit::Clean,
        (_, false) => Exit::Usage,
    }
}
