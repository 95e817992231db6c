//! The arguments of the command about workspace memory.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use sessionlog::codec::event::Role;
use sessionlog::projections::memory::{MemoryKind, MemoryStatus, RecordId};
use sessionlog::projections::role_word;

/// Arguments of `search`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Any of the words of QUERY is looked for, the best first; without QUERY, the newest are given. Messages, tool calls and \
their results, failures, summaries, tasks and questions are found, also those that a model is not shown any more, and \
those of sessions that were deleted and not forgotten. Each option that is given several times means any of them. A time \
is a date, an RFC 3339 time, or how long ago (90m, 12h, 7d). Scores of several workspaces are each by its own words.

An index in the workspace's index/ directory is brought up to date, and used; it is derived and may be deleted. \
With --no-index every log is read, and no byte is changed.

Examples:
  logdump search login test
  logdump search --kind failure --since 7d --newest
  logdump search parse_header --all-workspaces --limit 20
  logdump search --record 0197b4a2-7c1e-7000-8000-0123456789ab@12
  logdump search cookie --json | jq -r '.hits[].record'")]
pub struct SearchArgs {
    /// The words to look for
    #[arg(value_name = "QUERY")]
    pub words: Vec<String>,
    /// The workspace, by its directory [default: the current directory]
    #[arg(long, value_name = "PATH", conflicts_with = "all_workspaces")]
    pub workspace: Option<PathBuf>,
    /// Every workspace of the home
    #[arg(long)]
    pub all_workspaces: bool,
    /// Only these: message, call, result, failure, event, summary, task or question
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    pub kind: Vec<MemoryKind>,
    /// Only what these said: system, developer, user, assistant or tool
    #[arg(long, value_name = "ROLE", value_parser = parse_role)]
    pub role: Vec<Role>,
    /// Only calls and results of these tools, and what was delegated to these agents
    #[arg(long, value_name = "NAME")]
    pub tool: Vec<String>,
    /// Only those that stand so: submitted, running, succeeded, failed, cancelled, unknown, not_started or withdrawn
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    pub status: Vec<MemoryStatus>,
    /// Only those of sessions with these tags
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,
    /// Only those of these sessions, by their ids or the beginnings of them
    #[arg(long, value_name = "ID")]
    pub session: Vec<String>,
    /// Only those of this time and later
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only those of this time and earlier
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// The newest first, instead of the best
    #[arg(long)]
    pub newest: bool,
    /// At most so many: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub limit: usize,
    /// Leave out so many first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub offset: usize,
    /// Read every log, whatever an index says
    #[arg(long)]
    pub no_index: bool,
    /// Print the text of this record, as a search gave its id, instead of searching
    #[arg(long, value_name = "RECORD", conflicts_with = "words")]
    pub record: Option<RecordId>,
}

fn parse_kind(text: &str) -> Result<MemoryKind, String> {
    MemoryKind::of_word(text).ok_or_else(|| one_of(MemoryKind::ALL.map(MemoryKind::word)))
}

fn parse_status(text: &str) -> Result<MemoryStatus, String> {
    MemoryStatus::of_word(text).ok_or_else(|| one_of(MemoryStatus::ALL.map(MemoryStatus::word)))
}

fn parse_role(text: &str) -> Result<Role, String> {
    let all = [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool];
    all.into_iter().find(|role| role_word(*role) == text).ok_or_else(|| one_of(all.map(role_word)))
}

fn one_of<const N: usize>(words: [&str; N]) -> String {
    format!("expected one of {}", words.join(", "))
}
