//! `demo`: a session is recorded by a child process, which is killed in the middle of a tool call; then it is resumed.
//!
//! Nothing in it is acted: the child is this program, the signal is SIGKILL, and what is printed afterwards is read from
//! the store that the child left.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use sessionlog::codec::event::{Effect, FinalStatus, Part, Role, TurnOutcome, Usage};
use sessionlog::codec::ids::{NodeId, Position, SessionId};
use sessionlog::projections::views::context_message_json;
use sessionlog::projections::{ContextMessage, ContextOrigin, validate_pairing};
use sessionlog::{CallResult, Message, NewSession, RecoveryReport, Session, Store, StoreReader};

use crate::args::DemoArgs;
use crate::exit::{Exit, Failure};
use crate::output::safe::safe;
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// What the child says when it is where it should be killed.
const IN_THE_MIDDLE: &str = "in the middle of a tool call";

/// Plays the demo.
///
/// # Errors
/// If the store can't be written, or the child does not get to its tool call.
pub fn run(args: &DemoArgs, context: &Context) -> Result<Exit, Failure> {
    match &args.agent {
        Some(home) => agent(home),
        None => play(args, context),
    }
}

/// The agent: records until it is killed.
fn agent(home: &Path) -> Result<Exit, Failure> {
    let store = Store::open(home)?;
    let workspace = std::env::current_dir().map_err(|e| Failure::io("finding the working directory", &e))?;
    let session = store.create(workspace, NewSession::new("Ship the fix").model("demo-model"))?;
    say(&format!("session {}", session.id()))?;
    session.append(Message::system("You are a careful agent."))?;
    say("the system prompt")?;
    session.start_turn()?;
    session.append(Message::user("Fix the failing test, then deploy."))?;
    say("the person's prompt")?;
    let answer = Message::assistant("I will look at the test and deploy the fix.")
        .call("call_1", "read_file", r#"{"path":"tests/login.rs"}"#)
        .call("call_2", "deploy", r#"{"target":"production"}"#)
        .call("call_3", "notify", r##"{"channel":"#releases"}"##)
        .model("demo-model")
        .usage(Usage { input: 812, cache_read: 4096, cache_write: 0, output: 96, reasoning: 0 });
    let asked = session.append(answer)?;
    say("the model's answer, with three tool calls")?;
    let read = session.start_call(asked.call(0), Effect::Pure)?;
    read.finish(CallResult::succeeded("assert_eq!(login(\"ada\"), Ok(()));"))?;
    say("the result of read_file")?;
    let _deploying = session.start_call(asked.call(1), Effect::External)?;
    say("that deploy is about to run")?;
    say(IN_THE_MIDDLE)?;
    loop {
        std::thread::park();
    }
}

fn say(what: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{what}").and_then(|()| stdout.flush()).map_err(Failure::from)
}

/// What the child got acknowledged before it was killed.
struct Recorded {
    session: SessionId,
    acknowledged: Vec<String>,
}

fn play(args: &DemoArgs, context: &Context) -> Result<Exit, Failure> {
    let home = new_home()?;
    let played = play_in(&home, context);
    if args.keep {
        context.note(&format!("the demo's home is kept: logdump --home {} ls", home.display()));
    } else {
        std::fs::remove_dir_all(&home).map_err(|e| Failure::io("removing the demo's home", &e))?;
    }
    played
}

/// A directory of its own for each run.
fn new_home() -> Result<PathBuf, Failure> {
    let base = std::env::temp_dir();
    let home = base.join(format!("sessionlog-demo-{}", sessionlog::new_session_id()));
    std::fs::create_dir(&home).map_err(|e| Failure::io("creating the demo's home", &e))?;
    Ok(home)
}

fn play_in(home: &Path, context: &Context) -> Result<Exit, Failure> {
    let recorded = record_and_kill(home)?;
    let reader = StoreReader::open(home)?.session(recorded.session)?;
    let summary = reader.summary()?;
    let before = (reader.status(&summary).word(), summary.messages);
    let (session, report) = Store::open(home)?.resume(recorded.session)?;
    let resumed = session.context()?;
    validate_pairing(&resumed).map_err(|e| Failure::new(Exit::Lost, "demo.context", e.to_string()))?;
    go_on(session)?;
    let end = reader.tree(Position(u64::MAX))?.context(NodeId::ROOT);
    let status = reader.status(&reader.summary()?).word();
    if context.format() == Format::Json {
        return print_json(home, &recorded, before, &report, &resumed, status, context);
    }
    print(&recorded, before, &report, &resumed, end.len(), status, context)?;
    Ok(Exit::Clean)
}

/// Runs the agent in a child process and kills it in the middle of its tool call.
fn record_and_kill(home: &Path) -> Result<Recorded, Failure> {
    let program = std::env::current_exe().map_err(|e| Failure::io("finding this program", &e))?;
    let mut child = Command::new(program)
        .args(["demo", "--agent"])
        .arg(home)
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

/// The resumed agent does what is safe and ends the work.
fn go_on(session: Session) -> Result<(), Failure> {
    session.start_turn()?;
    for open in session.open_calls()? {
        session.finish_call(
            open.call,
            CallResult::not_started("Not run: the deployment has to be checked first."),
        )?;
    }
    session
        .append(Message::assistant("I don't know whether the deployment happened, so I checked: it did."))?;
    session.end_turn(TurnOutcome::Completed)?;
    session.finish(FinalStatus::Completed)?;
    Ok(())
}

fn print(
    recorded: &Recorded,
    (status_before, messages): (&str, u64),
    report: &RecoveryReport,
    resumed: &[ContextMessage],
    end: usize,
    status: &str,
    context: &Context,
) -> Result<(), Failure> {
    let heading = |text: &str| context.line(&context.paint(Paint::Heading, text));
    heading("An agent recorded a session. Each of these was acknowledged, so it was on disk:")?;
    for what in &recorded.acknowledged {
        context.line(&format!("  {what}"))?;
    }
    heading("\nThen it was killed (SIGKILL) while `deploy` was running. A reader that takes no lock says:")?;
    context.line(&format!("  session {}: {status_before}, {messages} messages", recorded.session))?;
    heading("\nIt was resumed. The recovery report:")?;
    for line in report.to_string().lines() {
        context.line(&format!("  {}", safe(line)))?;
    }
    heading(
        "\nThe context for the model, legal for every provider: each call has exactly one result, in call order:",
    )?;
    for message in resumed {
        context.line(&format!("  {}", describe(message)))?;
    }
    heading("\nThe resumed agent went on:")?;
    context.line(&format!("  {status}, {end} messages in the context, `deploy` was not run a second time"))
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
    safe(&format!("{role}{answers}{made_up}: {}{calls}", text.join(" "))).into_owned()
}

fn print_json(
    home: &Path,
    recorded: &Recorded,
    (status_before, messages): (&str, u64),
    report: &RecoveryReport,
    resumed: &[ContextMessage],
    status: &str,
    context: &Context,
) -> Result<Exit, Failure> {
    let names = |calls: &[sessionlog::projections::OpenCall]| -> Vec<_> {
        calls.iter().map(|call| json!({"id": call.call_id, "name": call.name})).collect()
    };
    context.json(&json!({
        "schema_version": SCHEMA_VERSION,
        "home": home.display().to_string(),
        "session": recorded.session.to_string(),
        "acknowledged": recorded.acknowledged,
        "after_kill": {"status": status_before, "messages": messages},
        "recovery": {
            "epoch": report.epoch.0,
            "last": report.last.0,
            "unknown_calls": names(&report.unknown_calls),
            "not_started_calls": names(&report.not_started_calls),
            "text": report.to_string(),
        },
        "context": resumed.iter().map(context_message_json).collect::<Vec<_>>(),
        "status": status,
    }))?;
    Ok(Exit::Clean)
}
