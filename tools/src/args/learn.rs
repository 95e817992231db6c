//! The arguments of `learn`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

/// Arguments of `learn`.
#[derive(Clone, Debug, ClapArgs)]
pub struct LearnArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LearnCommand,
}

/// What to do about learning.
#[derive(Clone, Debug, Subcommand)]
pub enum LearnCommand {
    /// Show how far sessions are learned from: what waits, what is being worked on, what is done
    Status(LearnStatusArgs),
    /// Show what waits: segments of sessions for a Thinker, propositions for a librarian
    Queue(LearnQueueArgs),
    /// Show what was learned, or search it
    Library(LearnLibraryArgs),
    /// Learn from the sessions of a workspace, from now on
    On(LearnSwitchArgs),
    /// Learn nothing from the sessions of a workspace, from now on
    Off(LearnSwitchArgs),
    /// Remove an entry of the library: it is not found any more, and does not come back
    Remove(LearnRemoveArgs),
}

/// Arguments of `learn status`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Nothing is changed. Segments are closed and worked on by the host that owns a session, when it has time.

Examples:
  logdump learn status
  logdump learn status 0197b4a2 --window 200000
  logdump learn status --json | jq '.sessions[] | select(.segments > 0) | .id'")]
pub struct LearnStatusArgs {
    /// The session; all sessions of the home if it is not given
    pub id: Option<String>,
    /// The window of the host's Thinker in tokens: a segment is full at 45 % of it
    #[arg(long, value_name = "TOKENS", default_value_t = 128_000)]
    pub window: u64,
}

/// Arguments of `learn queue`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  logdump learn queue
  logdump learn queue --json | jq '.propositions[] | select(.attempts > 0)'")]
pub struct LearnQueueArgs {}

/// Arguments of `learn library`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Without --search, the entries that were changed last come first. Newer entries are preferred by a search, unless \
--recency is 0.

Examples:
  logdump learn library
  logdump learn library --search 'how are the tests run' --limit 5
  logdump learn library --json | jq -r '.entries[].content'")]
pub struct LearnLibraryArgs {
    /// Only entries that share words with this text, the best first
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// How much age decides, from 0 (not at all) to 1
    #[arg(long, value_name = "WEIGHT", default_value_t = 0.25, requires = "search", value_parser = parse_weight)]
    pub recency: f64,
}

/// Arguments of `learn on` and `learn off`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
What is said while learning is off is never learned from, also not later. What waits, stays, and is gone on with \
when learning is on again. A proposition that a librarian is being asked about is finished.

Examples:
  logdump learn off --workspace . --dry-run
  logdump learn off --workspace /work/app
  logdump learn on --workspace /work/app --json")]
pub struct LearnSwitchArgs {
    /// The directory that the sessions work in
    #[arg(long, value_name = "PATH")]
    pub workspace: PathBuf,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `learn remove`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Its text stays in the log of the home's user.

Examples:
  logdump learn remove prop-0f3a5c1be0d94a7f8c6d2b7a91e45f30 --reason 'It is wrong.' --dry-run")]
pub struct LearnRemoveArgs {
    /// The entry, by its id
    pub entry: String,
    /// Why, for people
    #[arg(long, value_name = "TEXT", default_value = "removed by a person with logdump")]
    pub reason: String,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

fn parse_weight(text: &str) -> Result<f64, String> {
    let weight = text.parse::<f64>().ok().filter(|weight| (0.0..=1.0).contains(weight));
    weight.ok_or_else(|| "a weight is a number from 0 to 1".to_owned())
}
