//! `demo`: a tree of agents is recorded by a child process, which is killed in the middle of a tool call; then the
//! session is resumed and goes on to its end.
//!
//! Nothing in it is acted: the child is this program, the signal is SIGKILL, and what is printed afterwards is read from
//! the store that the child left.

mod agent;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use sessionlog::codec::event::{Part, Role};
use sessionlog::codec::ids::{NodeId, SessionId};
use sessionlog::projections::views::context_message_json;
use sessionlog::projections::{ContextMessage, ContextOrigin, OpenCall, validate_pairing};
use sessionlog::{RecoveryReport, SessionReader, Store, StoreReader};

use self::agent::{IN_THE_MIDDLE, Place};
use super::plan::{self, Planned};
use super::tree::{self, Row};
use super::whole::Whole;
use crate::args::DemoArgs;
use crate::exit::{Exit, Failure};
use crate::output::event_text::cut_safe;
use crate::output::safe::safe;
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// The conversation that is killed in the middle of a call.
const KILLED: NodeId = NodeId(1);

/// Plays the demo.
///
/// # Errors
/// If the store can't be written, or the child does not get to its tool call.
pub fn run(args: &DemoArgs, context: &Context) -> Result<Exit, Failure> {
    match &args.agent {
        Some(dir) => agent::record(dir),
        None => play(args, context),
    }
}

/// What the child got acknowledged before it was killed.
struct Recorded {
    session: SessionId,
    acknowledged: Vec<String>,
}

/// The session at one moment, as a reader that takes no lock sees it.
struct Seen {
    status: &'static str,
    messages: u64,
    tree: Vec<Row>,
    plan: Vec<Planned>,
}

/// All that is shown in the end.
struct Played {
    home: PathBuf,
    recorded: Recorded,
    before: Seen,
    report: RecoveryReport,
    resumed: BTreeMap<NodeId, Vec<ContextMessage>>,
    work: Vec<String>,
    after: Seen,
    effects: BTreeMap<String, u64>,
}

fn play(args: &DemoArgs, context: &Context) -> Result<Exit, Failure> {
    let dir = new_dir()?;
    let played = play_in(&dir);
    if args.keep {
        let home = Place::new(&dir).home();
        context.note(&format!("the demo's home is kept: logdump --home {} ls", home.display()));
    } else {
        std::fs::remove_dir_all(&dir).map_err(|e| Failure::io("removing the demo's home", &e))?;
    }
    let played = played?;
    match context.format() {
        Format::Human => print(&played, context)?,
        Format::Json => context.json(&as_json(&played))?,
    }
    Ok(Exit::Clean)
}

/// A directory of its own for each run.
fn new_dir() -> Result<PathBuf, Failure> {
    let dir = std::env::temp_dir().join(format!("sessionlog-demo-{}", sessionlog::new_session_id()));
    std::fs::create_dir(&dir).map_err(|e| Failure::io("creating the demo's home", &e))?;
    Ok(dir)
}

fn play_in(dir: &Path) -> Result<Played, Failure> {
    let place = Place::new(dir);
    let home = place.home();
    let recorded = record_and_kill(dir)?;
    let reader = StoreReader::open(&home)?.session(recorded.session)?;
    let before = look(&reader)?;
    let (session, report) = Store::open(&home)?.resume(recorded.session)?;
    let nodes = before.tree.iter().map(|row| row.node);
    let resumed =
        session.with_tree(|tree| nodes.map(|node| (node, tree.context(node))).collect::<BTreeMap<_, _>>())?;
    for context in resumed.values() {
        validate_pairing(context).map_err(|e| Failure::new(Exit::Lost, "demo.context", e.to_string()))?;
    }
    let work = agent::go_on(session, &place)?;
    let (after, effects) = (look(&reader)?, place.done()?);
    if let Some((what, times)) = effects.iter().find(|(_, times)| **times > 1) {
        let message = format!("`{what}` was done {times} times: it should have been done once");
        return Err(Failure::new(Exit::Lost, "demo.twice", message));
    }
    Ok(Played { home, recorded, before, report, resumed, work, after, effects })
}

fn look(reader: &SessionReader) -> Result<Seen, Failure> {
    let whole = Whole::read(reader, None)?;
    Ok(Seen {
        status: reader.status(&whole.summary).word(),
        messages: whole.summary.messages,
        tree: tree::rows(&whole, reader.liveness()),
        plan: plan::planned(&whole),
    })
}

/// Runs the agent in a child process and kills it in the middle of its tool call.
fn record_and_kill(dir: &Path) -> Result<Recorded, Failure> {
    let program = std::env::current_exe().map_err(|e| Failure::io("finding this program", &e))?;
    let mut child = Command::new(program)
        .args(["demo", "--agent"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| Failure::io("starting the agent", &e))?;
    let recorded = follow(&mut child);
    // On Unix this is SIGKILL: the process gets no chance to do anything more.
    let killed = child.kill().and_then(|()| child.wait());
    killed.map_err(|e| Failure::io("killing the agent", &e))?;
    recorded
}

fn follow(child: &mut Child) -> Result<Recorded, Failure> {
    let not_there =
        |what: &str| Failure::new(Exit::Io, "demo.agent", format!("the agent stopped before {what}"));
    let stdout = child.stdout.take().ok_or_else(|| not_there("it began"))?;
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let first = lines.next().ok_or_else(|| not_there("it had a session"))?;
    let session = first.strip_prefix("session ").and_then(|id| id.parse().ok());
    let session = session.ok_or_else(|| not_there("it had a session"))?;
    let mut acknowledged = Vec::new();
    for line in lines {
        if line == IN_THE_MIDDLE {
            return Ok(Recorded { session, acknowledged });
        }
        acknowledged.push(line);
    }
    Err(not_there("its tool call"))
}

fn print(played: &Played, context: &Context) -> Result<(), Failure> {
    let Played { recorded, before, report, resumed, work, after, effects, .. } = played;
    let heading = |text: &str| context.line(&context.paint(Paint::Heading, text));
    let list = |lines: &[String]| lines.iter().try_for_each(|line| context.line(&format!("  {line}")));
    let cut = |text: &String| cut_safe(text, 110);
    heading("A tree of agents recorded a session. Each of these was acknowledged, so it was on disk:")?;
    list(&recorded.acknowledged.iter().map(cut).collect::<Vec<_>>())?;
    heading(
        "\nThen it was killed (SIGKILL) while `deploy` was running and the oracle thinking. `logdump tree` says:",
    )?;
    list(&tree::lines(&before.tree))?;
    heading("\n`logdump plan`, which takes no lock and changes nothing, says what is to be done:")?;
    list(&plan::lines(&before.plan))?;
    heading("\nIt was resumed. The recovery report:")?;
    list(&report.to_string().lines().map(|line| safe(line).into_owned()).collect::<Vec<_>>())?;
    heading("\nThe context for node 1's model, legal for every provider: exactly one result for each call:")?;
    list(&resumed.get(&KILLED).into_iter().flatten().map(describe).collect::<Vec<_>>())?;
    heading(
        "\nThe resumed host took what the session was owed, one by one, the deepest conversation first:",
    )?;
    list(&work.iter().map(cut).collect::<Vec<_>>())?;
    heading(&format!("\nThe session is {}. Its tree:", after.status))?;
    list(&tree::lines(&after.tree))?;
    heading("\nWhat was done to the world, before and after the kill, counted outside of the log:")?;
    let done: Vec<String> = effects.iter().map(|(what, times)| format!("{} {times}x", safe(what))).collect();
    context.line(&format!("  {}: nothing was done twice", done.join(", ")))
}

fn describe(message: &ContextMessage) -> String {
    let role = match message.role {
        Role::System | Role::Developer => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let text = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let text: Vec<_> = text.collect();
    let calls: Vec<_> = message.tool_calls.iter().map(|call| call.name.as_str()).collect();
    let calls = if calls.is_empty() { String::new() } else { format!(" -> calls {}", calls.join(", ")) };
    let answers = message.tool_call_id.as_deref().map(|id| format!(" {id}")).unwrap_or_default();
    let made_up = if matches!(message.origin, ContextOrigin::Synthetic(_)) { " (not recorded)" } else { "" };
    cut_safe(&format!("{role}{answers}{made_up}: {}{calls}", text.join(" ")), 110)
}

fn as_json(played: &Played) -> Value {
    let Played { home, recorded, before, report, resumed, work, after, effects } = played;
    let names = |calls: &[OpenCall]| -> Vec<_> {
        calls.iter().map(|call| json!({"id": call.call_id, "name": call.name})).collect()
    };
    let tree = |seen: &Seen| seen.tree.iter().map(tree::row_json).collect::<Vec<_>>();
    let root = resumed.get(&NodeId::ROOT).into_iter().flatten();
    json!({
        "schema_version": SCHEMA_VERSION,
        "home": home.display().to_string(),
        "session": recorded.session.to_string(),
        "acknowledged": recorded.acknowledged,
        "after_kill": {"status": before.status, "messages": before.messages, "tree": tree(before)},
        "plan": before.plan.iter().map(plan::step_json).collect::<Vec<_>>(),
        "recovery": {
            "epoch": report.epoch.0,
            "last": report.last.0,
            "unknown_calls": names(&report.unknown_calls),
            "not_started_calls": names(&report.not_started_calls),
            "settled": report.settled.iter().map(|step| step.word()).collect::<Vec<_>>(),
            "owed": report.owed.iter().map(|step| step.word()).collect::<Vec<_>>(),
            "text": report.to_string(),
        },
        "context": root.map(context_message_json).collect::<Vec<_>>(),
        "work": work,
        "tree": tree(after),
        "effects": effects,
        "status": after.status,
    })
}
