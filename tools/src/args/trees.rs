//! The arguments of the commands about trees: what is there, what is owed, and what a person may decide.

use clap::{ArgGroup, Args as ClapArgs, ValueEnum};
use sessionlog::codec::event::Outcome;
use sessionlog::codec::ids::{MessageNo, Position, TurnNo};
use sessionlog::projections::rewind::RewindTo;

use super::parse_position;

/// Arguments of `tree`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Node 0 is the session's own conversation. Of a delegated conversation's id, only it and what is below it is shown. \
CALL is the call of the conversation above that was delegated: message.tool, as in `logdump resolve`.

Examples:
  logdump tree 0197b4a2
  logdump tree 0197b4a2 --at 1200
  logdump tree 0197b4a2 --json | jq '.nodes[] | select(.standing == \"running\") | .node'")]
pub struct TreeArgs {
    /// The session
    pub id: String,
    /// As it was at this position of the log
    #[arg(long, value_name = "POSITION", value_parser = parse_position)]
    pub at: Option<Position>,
}

/// Arguments of `plan`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Nothing is changed, and it does not matter whether somebody owns the session. What needs nobody is recorded by \
whoever opens the session next; what needs an agent or a tool is offered to its host. All agents and models are taken \
for available. The plan is of the whole tree.

Examples:
  logdump plan 0197b4a2
  logdump plan 0197b4a2 --json | jq -r '.steps[] | select(.ready) | .text'")]
pub struct PlanArgs {
    /// The session
    pub id: String,
}

/// Arguments of `resolve`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
The model is shown TEXT as the call's result from then on. A call that was started when the session crashed counts: \
opening the session records it as unknown first. A dry run prints what would be done, changes nothing, and ends with 5 \
if somebody owns the session.

Examples:
  logdump resolve 0197b4a2
  logdump resolve 0197b4a2 12.0 --outcome succeeded --text 'Version 1.4 is live.' --dry-run
  logdump resolve 0197b4a2 call_7 --outcome not-started --text 'It did not run.' --note 'I looked'")]
pub struct ResolveArgs {
    /// The session
    pub id: String,
    /// The call: message.tool, or the provider's id of it; without it, the unknown calls are listed
    #[arg(requires_all = ["outcome", "text"])]
    pub call: Option<String>,
    /// What became of it: succeeded, failed, cancelled or not-started
    #[arg(long, value_name = "OUTCOME", requires = "call", hide_possible_values = true)]
    pub outcome: Option<OutcomeArg>,
    /// What the model is shown as its result
    #[arg(long, value_name = "TEXT", requires = "call")]
    pub text: Option<String>,
    /// Why, for people: how it is known
    #[arg(long, value_name = "TEXT", requires = "call")]
    pub note: Option<String>,
    /// Only calls of this conversation: its number in `logdump tree`, or the beginning of its invocation id
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Say what would be done, and change nothing
    #[arg(long, requires = "call")]
    pub dry_run: bool,
}

/// What a person says became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutcomeArg {
    /// It ran and did what it should.
    Succeeded,
    /// It ran, and says why not.
    Failed,
    /// Somebody stopped it.
    Cancelled,
    /// It never ran.
    NotStarted,
}

impl From<OutcomeArg> for Outcome {
    fn from(outcome: OutcomeArg) -> Self {
        match outcome {
            OutcomeArg::Succeeded => Self::Succeeded,
            OutcomeArg::Failed => Self::Failed,
            OutcomeArg::Cancelled => Self::Cancelled,
            OutcomeArg::NotStarted => Self::NotStarted,
        }
    }
}

/// Arguments of `rewind`.
#[derive(Clone, Debug, ClapArgs)]
#[command(
    group = ArgGroup::new("place").required(true).multiple(false),
    after_help = "\
Only what the model is shown changes: what leaves the context stays in the transcript, and `--undo` brings it back. \
What tools did in the world, and files, are not touched; they are listed. A dry run prints all that, changes nothing, \
and ends with 5 if somebody owns the session.

Examples:
  logdump rewind 0197b4a2 --to-turn 3 --dry-run
  logdump rewind 0197b4a2 --before-message 12
  logdump rewind 0197b4a2 --undo
  logdump rewind 0197b4a2 --branches
  logdump rewind 0197b4a2 --to-position 1187"
)]
pub struct RewindArgs {
    /// The session
    pub id: String,
    /// To where it stood before this turn, its prompt left out
    #[arg(long, value_name = "TURN", group = "place")]
    pub to_turn: Option<u64>,
    /// To what was said before this message
    #[arg(long, value_name = "MESSAGE", group = "place")]
    pub before_message: Option<u64>,
    /// To this message, which stays
    #[arg(long, value_name = "MESSAGE", group = "place")]
    pub after_message: Option<u64>,
    /// To the message, compaction, reset or new run at this position, of this branch or another one
    #[arg(long, value_name = "POSITION", group = "place", value_parser = parse_position)]
    pub to_position: Option<Position>,
    /// To nothing: the model is shown an empty conversation
    #[arg(long, group = "place")]
    pub to_start: bool,
    /// Undo the newest rewind, clear or withdrawal that was not undone yet
    #[arg(long, group = "place")]
    pub undo: bool,
    /// List where the other branches end, and change nothing
    #[arg(long, group = "place", conflicts_with = "dry_run")]
    pub branches: bool,
    /// The conversation: its number in `logdump tree`, or the beginning of its invocation id
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

impl RewindArgs {
    /// The place to go back to; `None`: an undo, or a list.
    #[must_use]
    pub fn place(&self) -> Option<RewindTo> {
        let turn = self.to_turn.map(|turn| RewindTo::BeforeTurn(TurnNo(turn)));
        let before = self.before_message.map(|number| RewindTo::BeforeMessage(MessageNo(number)));
        let after = self.after_message.map(|number| RewindTo::AfterMessage(MessageNo(number)));
        let record = self.to_position.map(RewindTo::Record);
        turn.or(before).or(after).or(record).or(self.to_start.then_some(RewindTo::Start))
    }
}

/// Arguments of `fork`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
The fork is a session of its own that begins with the history up to the position. The files of the history are shared, \
so it takes the space of its own records and of one segment at most. The session that is forked is not touched, also \
while somebody owns it; what was under way in it goes on there, not in the fork.

Examples:
  logdump fork 0197b4a2
  logdump fork 0197b4a2 --at 1187 --title 'Try the other way' --json")]
pub struct ForkArgs {
    /// The session
    pub id: String,
    /// Fork behind the record at this position [default: behind the last one]
    #[arg(long, value_name = "POSITION", value_parser = parse_position)]
    pub at: Option<Position>,
    /// What the fork is called [default: as the session that is forked]
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}
