//! The arguments of the commands that remove for good. Each shows what it would do until it is told to do it.

use clap::{ArgGroup, Args as ClapArgs};
use sessionlog::codec::ids::{MessageNo, Position};

use super::parse_position;

/// Whether to do it.
#[derive(Clone, Debug, ClapArgs)]
pub struct ConsentArgs {
    /// Do it: what is removed can't be brought back
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,
    /// Say what would be done, and change nothing: the default
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `delete`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Of a session, its log with all conversations in it, its views and its quarantine go; what was said in it is still found by \
`logdump search`, until it is forgotten (`logdump forget`). A session that somebody owns is refused.
Of a delegated conversation, it and what is below it go; what the one above asked and was answered stays. Only one that is \
completed can be deleted.
Without --yes nothing is changed.

Examples:
  logdump delete 0197b4a2
  logdump delete 0197b4a2 --yes
  logdump delete 0197b4a2 --yes --json | jq .bytes")]
pub struct DeleteArgs {
    /// The session, or the delegated conversation
    pub id: String,
    /// Whether to do it
    #[command(flatten)]
    pub consent: ConsentArgs,
}

/// Arguments of `forget`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
After it, no byte of the session's text is under the home: log, views, quarantine, archive, search index, artifacts that \
nothing else names, and exports that somebody put into the home. Not reached are sessions that were forked from it, which \
have its history (they are named), and what the library was told of it, removed entries too. A session that was deleted before \
can be forgotten too, by its whole id. A session that somebody owns is refused.
Without --yes nothing is changed.

Examples:
  logdump forget 0197b4a2
  logdump forget 0197b4a2 --yes")]
pub struct ForgetArgs {
    /// The session
    pub id: String,
    /// Whether to do it
    #[command(flatten)]
    pub consent: ConsentArgs,
}

/// Arguments of `redact`.
#[derive(Clone, Debug, ClapArgs)]
#[command(
    group = ArgGroup::new("what").required(true).multiple(true),
    after_help = "\
The records stay, as erased, and the session's chain still verifies: what was erased is provable, and so is that nothing \
else was touched. A fork keeps what it shares: redact there too.
Without --yes nothing is changed.

Examples:
  logdump redact 0197b4a2 --message 12 --reason 'an API key'
  logdump redact 0197b4a2 --message 12 --results --yes
  logdump redact 0197b4a2 --position 1187 --position 1190 --yes"
)]
pub struct RedactArgs {
    /// The session
    pub id: String,
    /// This message of the conversation, with what was added to it
    #[arg(long, value_name = "MESSAGE", group = "what", value_parser = parse_message)]
    pub message: Vec<MessageNo>,
    /// The results of its tool calls too
    #[arg(long, requires = "message")]
    pub results: bool,
    /// The record at this position of the log
    #[arg(long, value_name = "POSITION", group = "what", value_parser = parse_position)]
    pub position: Vec<Position>,
    /// The conversation that messages are of: its number in `logdump tree`, or the beginning of its invocation id
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Why, for people
    #[arg(long, value_name = "TEXT", default_value = "redacted by logdump")]
    pub reason: String,
    /// Whether to do it
    #[command(flatten)]
    pub consent: ConsentArgs,
}

fn parse_message(text: &str) -> Result<MessageNo, String> {
    text.parse().map(MessageNo).map_err(|_| format!("`{text}` is not a message's number"))
}
