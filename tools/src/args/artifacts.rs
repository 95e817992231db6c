//! The arguments of the commands about artifacts.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

/// Arguments of `artifact`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
An artifact is named by its digest, or by its first digits (4 or more) if they are no other one's. Its hash is checked \
before a byte of it is printed: of a hurt one, nothing is, and the exit code is 3.

Examples:
  logdump artifact ls 0197b4a2
  logdump artifact show 5f3a
  logdump artifact slice 5f3a --lines 100-140
  logdump artifact slice 5f3a --offset 65536 --len 65536 > part
  logdump artifact grep 5f3a 'error\\[E[0-9]+\\]'
  logdump artifact get 5f3a /results/0/name
  logdump artifact put report.html --workspace . --kind report --type text/html")]
pub struct ArtifactArgs {
    /// What to do
    #[command(subcommand)]
    pub action: ArtifactAction,
    /// Look only into the artifacts of this directory's sessions
    #[arg(long, global = true, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
}

/// What to do with artifacts.
#[derive(Clone, Debug, Subcommand)]
pub enum ArtifactAction {
    /// List the artifacts that a session names, or all there are
    Ls {
        /// The session
        id: Option<String>,
    },
    /// Say what is known of an artifact, and whether it is whole
    Show {
        /// Its digest, or the first digits of it
        digest: String,
    },
    /// Print a part of an artifact, as it is
    Slice {
        /// Its digest, or the first digits of it
        digest: String,
        /// From this byte on
        #[arg(long, value_name = "BYTE", default_value_t = 0)]
        offset: u64,
        /// So many bytes
        #[arg(long, value_name = "BYTES", default_value_t = 65_536)]
        len: u64,
        /// These lines instead: `100-140`, `100`, or `100-` for a hundred of them
        #[arg(long, value_name = "LINES", value_parser = parse_lines, conflicts_with_all = ["offset", "len"])]
        lines: Option<LineRange>,
    },
    /// Print the lines of an artifact that a regular expression is found in, with their numbers
    Grep {
        /// Its digest, or the first digits of it
        digest: String,
        /// The regular expression
        pattern: String,
        /// At most N lines
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u64,
    },
    /// Print what a JSON pointer names in an artifact
    Get {
        /// Its digest, or the first digits of it
        digest: String,
        /// The pointer: `/results/0/name`
        pointer: String,
    },
    /// Store a file as an artifact, and print its digest
    Put {
        /// The file
        file: PathBuf,
        /// What it is, in a word
        #[arg(long, value_name = "KIND", default_value = "file")]
        kind: String,
        /// Its MIME type
        #[arg(long = "type", value_name = "TYPE")]
        media_type: Option<String>,
        /// Say what would be done, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// Lines, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// Lines that are printed if only the first is named.
const LINES: u64 = 100;

fn parse_lines(text: &str) -> Result<LineRange, String> {
    let wrong = || "lines are `100-140`, `100` or `100-`".to_owned();
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(wrong);
    match text.split_once('-') {
        None => Ok(LineRange { first: number(text)?, count: 1 }),
        Some((first, "")) => Ok(LineRange { first: number(first)?, count: LINES }),
        Some((first, last)) => {
            let (first, last) = (number(first)?, number(last)?);
            let count = last.checked_sub(first).ok_or_else(wrong)?.saturating_add(1);
            Ok(LineRange { first, count })
        }
    }
}

/// Arguments of `gc`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
What stays: what any log of the workspace names (all conversations of all sessions, rewound and cleared messages too), \
what the archive of deleted sessions names, what is leased, what these were derived from, and what is younger than the \
grace period. Agents may work meanwhile. If a log can't be read completely, nothing is removed: exit code 3, or 1 if a \
newer version wrote it.

Examples:
  logdump gc --dry-run
  logdump gc --workspace . --grace 1d
  logdump gc --json | jq '.workspaces[].kept'")]
pub struct GcArgs {
    /// Only the artifacts of this directory's sessions [default: those of all workspaces]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Keep what is younger: 90s, 30m, 1h, 7d, or 0 for nothing
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_span)]
    pub grace: Duration,
    /// Whether the archive of deleted sessions keeps what it names
    #[arg(long, value_name = "WHAT", default_value = "pin")]
    pub archive: ArchiveArg,
    /// Say what would be removed and what stays, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Whether the archive keeps what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ArchiveArg {
    /// It does
    Pin,
    /// It does not: receipts in it may lead nowhere then
    Ignore,
}

fn parse_span(text: &str) -> Result<Duration, String> {
    let wrong = || "a number with its unit: 90s, 30m, 1h, 7d, or 0".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let units = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];
    let (unit, seconds) = units.into_iter().find(|(unit, _)| text.ends_with(*unit)).ok_or_else(wrong)?;
    let number: u64 = text.strip_suffix(unit).and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_lines_have_their_forms() {
        assert_eq!(parse_span("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_span("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(parse_span("0"), Ok(Duration::ZERO));
        for wrong in ["", "h", "1", "-1h", "1.5h", "99999999999999999999s", "18446744073709551615d", "1é"] {
            assert!(parse_span(wrong).is_err(), "{wrong}");
        }
        let range = |first, count| Ok(LineRange { first, count });
        assert_eq!(parse_lines("7"), range(7, 1));
        assert_eq!(parse_lines("7-9"), range(7, 3));
        assert_eq!(parse_lines("7-"), range(7, 100));
        for wrong in ["", "0", "9-7", "a-b", "-3", "1-2-3"] {
            assert!(parse_lines(wrong).is_err(), "{wrong}");
        }
    }
}
