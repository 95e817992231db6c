//! The command line.

mod artifacts;
mod learn;
mod memory;
mod registry;
mod removal;
mod trees;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use sessionlog::codec::ids::{KindNo, Position};
use sessionlog::codec::registry::{EVENTS, kind_named};
use sessionlog::projections::Status;
use sessionlog::projections::render::Api;

pub use artifacts::{ArchiveArg, ArtifactAction, ArtifactArgs, GcArgs, LineRange};
pub use learn::{
    LearnArgs, LearnCommand, LearnLibraryArgs, LearnQueueArgs, LearnRemoveArgs, LearnStatusArgs,
    LearnSwitchArgs,
};
pub use memory::SearchArgs;
pub use registry::{AttachArgs, HideArgs, MigrateArgs, RootsArgs, RootsCommand, UnhideArgs};
pub use removal::{ConsentArgs, DeleteArgs, ForgetArgs, RedactArgs};
pub use trees::{ForkArgs, OutcomeArg, PlanArgs, ResolveArgs, RewindArgs, TreeArgs};

const EXIT_CODES: &str = "\
Exit codes (of several, the greatest):
  0  done, and nothing is wrong
  1  done; something is odd or of a newer version, and nothing is lost
  2  done; a crash left something that the next owner repairs by itself
  3  done as far as it goes: acknowledged data is hurt or missing
  4  the request is wrong: arguments, an unknown id, not a home
  5  another process owns the session
  6  the system failed to read or write

A session is named by its id, the beginning of its id, or its display id; a delegated conversation \
by its invocation id. Reading takes no lock and changes no byte, also while an agent works. \
Data goes to standard output, everything said about it to standard error.";

/// Inspects, checks, imports and exports what sessionlog stores.
#[derive(Debug, Parser)]
#[command(name = "logdump", version, after_help = EXIT_CODES, max_term_width = 110, propagate_version = true)]
pub struct Args {
    /// What holds for every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What holds for every command.
#[derive(Clone, Debug, ClapArgs)]
pub struct GlobalArgs {
    /// The home [default: $SESSIONLOG_HOME, else sessionlog in the platform's data directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// Print JSON with a "schema_version": one value, or for `events` one a line
    #[arg(long, global = true)]
    pub json: bool,
    /// Colour the output: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub color: ColorWhen,
    /// Say only what went wrong: no warnings and no notes
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// When to colour the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List sessions and delegated conversations, the newest activity first
    Ls(LsArgs),
    /// Show a conversation's transcript: all that was said, whatever the model still sees of it
    Show(ShowArgs),
    /// Show the raw events of a session's log, one a line
    Events(EventsArgs),
    /// Show what the model is sent, now or as of any earlier position
    Context(ContextArgs),
    /// Show the tool calls that have no result
    OpenCalls(OpenCallsArgs),
    /// Show the conversations of a session as a tree: who delegated what to whom, and how far each got
    Tree(TreeArgs),
    /// Show what is to be done to go on with a session, without doing it
    Plan(PlanArgs),
    /// Say what became of a call whose outcome is unknown; without a call, list those there are
    Resolve(ResolveArgs),
    /// Take a conversation back to an earlier place, or undo that; nothing is removed
    Rewind(RewindArgs),
    /// Begin a new session with the history of another one, up to any position
    Fork(ForkArgs),
    /// Look into what is stored apart from the logs: long results, and what hosts put
    Artifact(ArtifactArgs),
    /// Remove the artifacts that nothing names any more
    Gc(GcArgs),
    /// Show and decide what is learned from sessions: queues, the library, the switch
    Learn(LearnArgs),
    /// Search what was said and done in the sessions of a workspace
    Search(SearchArgs),
    /// Show a session's numbers: owner, counts, tokens, cost, files
    Stat(StatArgs),
    /// Check sessions from their bytes to their laws, and say what to do about what is found
    Verify(VerifyArgs),
    /// Write a conversation in another format
    Export(ExportArgs),
    /// Bring in sessions of other agents (Claude Code, recursive, q)
    Import(ImportArgs),
    /// Move sessions of older agents from their workspaces into the home (recursive, q)
    Migrate(MigrateArgs),
    /// List the root sessions of all workspaces, hide some, say where a workspace is now
    Roots(RootsArgs),
    /// Play through a crash: record a tree of agents, kill its process, resume it
    Demo(DemoArgs),
    /// Save all that is whole of a hurt session into a new home, and say what is not
    Repair(RepairArgs),
    /// Look over a whole home: what is wrong with it, and what would fix it
    Doctor(DoctorArgs),
    /// Delete a session, or a delegated conversation that is completed
    Delete(DeleteArgs),
    /// Delete a session with all that outlives one: no byte of it is left
    Forget(ForgetArgs),
    /// Erase what chosen messages or records held; the session still verifies
    Redact(RedactArgs),
}

/// Arguments of `ls`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  logdump ls --roots --limit 10
  logdump ls --status crashed
  logdump ls --catalog --json            # thousands of sessions, again and again
  logdump ls --json | jq -r '.sessions[] | select(.issue != null) | .id'")]
pub struct LsArgs {
    /// Roots and delegated conversations (the default)
    #[arg(long, conflicts_with = "roots")]
    pub all: bool,
    /// Root sessions only
    #[arg(long)]
    pub roots: bool,
    /// At most so many
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Only those that are running, idle, completed, failed, crashed, interrupted or paused
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    pub status: Option<Status>,
    /// Only those whose workspace's path contains this text
    #[arg(long, value_name = "TEXT")]
    pub workspace: Option<String>,
    /// Believe what the home's catalog says of logs that did not change, and bring it up to date: the same rows many times
    /// faster. Without this, `logdump` changes no byte of a home
    #[arg(long)]
    pub catalog: bool,
}

/// Arguments of `show`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  logdump show 0197b4a2 --last 20
  logdump show 0197b4a2 --after 1200 --limit 50
  logdump show 0197b4a2 --last 5 --follow
  logdump show 0197b4a2 --json | jq '.messages[].role'")]
pub struct ShowArgs {
    /// The session
    pub id: String,
    /// Only the last N entries
    #[arg(long, value_name = "N", conflicts_with_all = ["after", "limit"])]
    pub last: Option<usize>,
    /// Then show each entry as it comes, until stopped; with --json, one line for each
    #[arg(long, short)]
    pub follow: bool,
    /// Only entries behind this position of the log
    #[arg(long, value_name = "POSITION", value_parser = parse_position)]
    pub after: Option<Position>,
    /// At most N entries
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// How much of each tool result is shown
    #[command(flatten)]
    pub detail: DetailArgs,
}

/// How much of long texts is shown to people. JSON is always whole.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct DetailArgs {
    /// Lines shown of each tool result and each piece of reasoning
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub lines: usize,
    /// Show results, reasoning and arguments whole
    #[arg(long, conflicts_with = "lines")]
    pub full: bool,
}

/// Arguments of `events`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  logdump events 0197b4a2 --kind call.started --kind call.finished
  logdump events 0197b4a2 --from 1200 --limit 20 --json
  logdump events 0197b4a2 --last 20
  logdump events 0197b4a2 --follow --json | jq -r .event")]
pub struct EventsArgs {
    /// The session. Of a delegated conversation, only its own events are shown
    pub id: String,
    /// Begin at this position
    #[arg(long, value_name = "POSITION", value_parser = parse_position)]
    pub from: Option<Position>,
    /// Only events of this kind, by name or number; may be given several times
    #[arg(long, value_name = "NAME", value_parser = parse_kind)]
    pub kind: Vec<KindNo>,
    /// At most N events
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Only the last N events, without reading what is before them
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "limit", "follow"])]
    pub last: Option<usize>,
    /// Then show each event as it comes, until stopped
    #[arg(long, short)]
    pub follow: bool,
    /// Give the payload's bytes too, in hexadecimal
    #[arg(long)]
    pub raw: bool,
}

/// Arguments of `context`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  logdump context 0197b4a2
  logdump context 0197b4a2 --at 1200 --json
  logdump context 0197b4a2 --node 3
  logdump context 0197b4a2 --render anthropic | jq '.messages | length'

With --render, what was left out or changed for the provider is said on standard error, and is in the JSON. \
Exit code 3 if the provider would refuse the request, which is a mistake of sessionlog.")]
pub struct ContextArgs {
    /// The session
    pub id: String,
    /// The conversation of it: its number in `logdump tree`, or the beginning of its invocation id
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Print the messages of a provider's request: chat, responses or anthropic
    #[arg(long, value_name = "API")]
    pub render: Option<Api>,
    /// The model that the request is for [default: the one that spoke last]
    #[arg(long, value_name = "MODEL", requires = "render")]
    pub model: Option<String>,
    /// As it was at this position of the log
    #[arg(long, value_name = "POSITION", value_parser = parse_position)]
    pub at: Option<Position>,
    /// How much of each tool result is shown
    #[command(flatten)]
    pub detail: DetailArgs,
}

/// Arguments of `open-calls`.
#[derive(Clone, Debug, ClapArgs)]
#[command(
    after_help = "A call that was started and has no result may or may not have done its work: look before \
it is repeated. One that was not started certainly did nothing."
)]
pub struct OpenCallsArgs {
    /// The session; all sessions of the home if it is not given
    pub id: Option<String>,
}

/// Arguments of `stat`.
#[derive(Clone, Debug, ClapArgs)]
pub struct StatArgs {
    /// The session
    pub id: String,
}

/// Arguments of `verify`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  logdump verify
  logdump verify 0197b4a2 --json | jq '.sessions[].findings'")]
pub struct VerifyArgs {
    /// The sessions; all sessions of the home if none is given
    pub ids: Vec<String>,
}

/// Arguments of `export`.
#[derive(Clone, Debug, ClapArgs)]
#[command(
    after_help = "Content is written as it is to a file or a pipe. A terminal is shown escapes in place of \
control characters.

Examples:
  logdump export 0197b4a2 --format markdown --output session.md
  logdump export 0197b4a2 --format jsonl | gzip > session.jsonl.gz
  logdump export 0197b4a2 --format q --to ./q-files"
)]
pub struct ExportArgs {
    /// The session
    pub id: String,
    /// The format
    #[arg(long, value_name = "FORMAT")]
    pub format: ExportFormat,
    /// Write to this file, which must not exist
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Write a format of several files to this directory: a new or empty one, or an earlier export of the session
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    pub to: Option<PathBuf>,
}

/// A format to export to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Every event with all its data, one JSON object a line
    Jsonl,
    /// transcript.jsonl as sessionlog keeps it beside the log
    Seed,
    /// transcript.jsonl of recursive-agent 0.8
    Recursive,
    /// Markdown, for people
    Markdown,
    /// The session's directory as q has it below `.q`, delegates included: needs --to
    Q,
}

/// Arguments of `import`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Importing again appends only what is new. The files are never changed.

Examples:
  logdump import ~/.claude/projects --dry-run
  logdump import ~/.claude/projects/-work-app/0197b4a2-7c1e-7000-8000-0123456789ab.jsonl")]
pub struct ImportArgs {
    /// Files or directories
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Say what would be imported, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `demo`.
#[derive(Clone, Debug, ClapArgs)]
pub struct DemoArgs {
    /// Keep the demo's home, to look at it
    #[arg(long)]
    pub keep: bool,
    /// Be the agent that is killed: in the demo's child process only
    #[arg(long, hide = true, value_name = "DIR")]
    pub agent: Option<PathBuf>,
}

/// Arguments of `repair`.
#[derive(Clone, Debug, ClapArgs)]
#[command(
    after_help = "The hurt session is not changed by a byte. Every record that is whole keeps its place in the copy; \
what is missing is marked there. The copy can be resumed and gone on with.

Examples:
  logdump repair 0197b4a2 --dry-run
  logdump repair 0197b4a2 --to /tmp/repaired
  logdump repair /mnt/old-disk/workspaces/944d51144ca0/sessions/0197b4a2-7c1e-7000-8000-0123456789ab --to /tmp/repaired"
)]
pub struct RepairArgs {
    /// The session, by its id or as its directory
    pub session: String,
    /// The new home that the copy goes into: a directory that does not exist, or an empty one
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    pub to: Option<PathBuf>,
    /// Say what would be saved and what not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `doctor`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Nothing is changed: each finding comes with what fixes it.")]
pub struct DoctorArgs {
    /// The home to look over, instead of that of --home
    #[arg(value_name = "HOME")]
    pub dir: Option<PathBuf>,
}

fn parse_status(word: &str) -> Result<Status, String> {
    Status::parse_word(word)
        .ok_or_else(|| "one of running, idle, completed, failed, crashed, interrupted, paused".to_owned())
}

fn parse_position(number: &str) -> Result<Position, String> {
    number.parse().map(Position).map_err(|_| "a position is a number, from 1".to_owned())
}

/// A kind by its name or number. A number need not be known: the log may be of a newer version.
fn parse_kind(name: &str) -> Result<KindNo, String> {
    if let Some(kind) = kind_named(name).or_else(|| name.parse().ok().map(KindNo)) {
        return Ok(kind);
    }
    let topic = name.split('.').next().unwrap_or_default();
    let near: Vec<&str> =
        EVENTS.iter().map(|(_, known, _)| *known).filter(|it| it.starts_with(topic)).collect();
    if near.is_empty() || topic.is_empty() {
        return Err("no such kind; `message.appended` is one".to_owned());
    }
    Err(format!("no such kind; there are {}", near.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn kinds_are_named_or_numbered() {
        assert_eq!(parse_kind("message.appended"), Ok(KindNo(20)));
        assert_eq!(parse_kind("9999"), Ok(KindNo(9999)));
        assert!(parse_kind("call.begun").is_err_and(|text| text.contains("call.started")));
        assert!(parse_kind("").is_err());
    }
}
