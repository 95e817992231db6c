//! The arguments of the commands about where sessions are: the list of roots, and what is moved into the home.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

/// Arguments of `roots`.
#[derive(Clone, Debug, ClapArgs)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
WORKSPACE is how the session's workspace stands: present; moved (attached to another directory, which is there); missing \
(its directory is not there); unnamed (nothing says which directory it is); mismatched (its path.txt names another one). \
Exit code 1 if something can't be listed or has an issue.

Examples:
  logdump roots
  logdump roots --hidden --json | jq -r '.roots[].id'
  logdump roots attach /work/old-name /work/new-name --dry-run
  logdump roots hide 0197b4a2 --reason 'done with'"
)]
pub struct RootsArgs {
    /// Hidden ones, too
    #[arg(long, conflicts_with = "hidden")]
    pub all: bool,
    /// Only hidden ones
    #[arg(long)]
    pub hidden: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Option<RootsCommand>,
}

/// What to do with roots.
#[derive(Clone, Debug, Subcommand)]
pub enum RootsCommand {
    /// Say that a workspace is somewhere else now
    Attach(AttachArgs),
    /// Leave a root out of the list; nothing else about it changes
    Hide(HideArgs),
    /// List a root again that was hidden
    Unhide(UnhideArgs),
}

/// Arguments of `roots attach`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
The sessions stay where they are in the home, and are shown under the new path from then on, with those that are begun \
there. By its hash, a workspace is the sessions that were begun in one place; by its path, those that are shown under it \
now. The last attachment of a session counts; repeating one changes nothing.

Examples:
  logdump roots attach /work/old-name /work/new-name --dry-run
  logdump roots attach 944d51144ca0 /work/new-name")]
pub struct AttachArgs {
    /// The workspace: its hash, or the path that it is shown under
    #[arg(value_name = "HASH|OLD_PATH")]
    pub from: String,
    /// The directory that it is now
    #[arg(value_name = "NEW_PATH")]
    pub to: PathBuf,
    /// Say what would be changed, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `roots hide`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  logdump roots hide 0197b4a2 --reason 'done with'
  logdump roots hide 0197b4a2 --dry-run")]
pub struct HideArgs {
    /// The session
    pub id: String,
    /// Why, for people
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
    /// Say what would be changed, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `roots unhide`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  logdump roots unhide 0197b4a2")]
pub struct UnhideArgs {
    /// The session
    pub id: String,
    /// Say what would be changed, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `migrate`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
What is found: of recursive, `.recursive/sessions/` (a directory or a file for each session, session files, bare \
messages), `.recursive/scratchpad.json`, and the same in recursive's own home; of q, the one session of its first layout, \
`.q/session.json`, and `.q/plan-execution.json`. A directory that has none of them above or below is taken for one of \
sessions. Each becomes a session of the workspace that it lies in. A scratchpad becomes a session of its own, with a \
host.event for what it says; a plan of another run than its session's, one that is called so.

Migrating again changes nothing, and goes on where a run broke off. Originals are never changed. With --remove-originals \
they are removed, once the new session is durable, verifies and has all of them; what changed meanwhile stays, and so \
does what an import could not take as it is.

Examples:
  logdump migrate ~/work --dry-run
  logdump migrate ~/work
  logdump migrate ~/work/app --remove-originals --dry-run
  logdump migrate old-session.json --json | jq '.sources[] | select(.outcome != \"unchanged\")'")]
pub struct MigrateArgs {
    /// Directories that are searched, or files
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Remove the files that were migrated, once they are not needed any more
    #[arg(long)]
    pub remove_originals: bool,
}
