//! The demo's host: a loop over what the session is owed, with models that know their part. The child process runs it
//! until it is killed, and the same steps go on afterwards: there is no other code for recovery.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sessionlog::codec::event::{Effect, FinalStatus, NodeBound, Role, Usage};
use sessionlog::codec::ids::NodeId;
use sessionlog::session::{AskedAgent, ExternalRequest, ModelTurn, OwedCall};
use sessionlog::{CallResult, ChildResult, Delegated, Delegation, Message, NewSession, Session, Store, Work};

use crate::exit::{Exit, Failure};

/// What the child says when it is where it should be killed.
pub(super) const IN_THE_MIDDLE: &str = "in the middle of a tool call";
/// The tool that it is killed in.
const KILLED_IN: &str = "deploy";

/// The demo's directory: the home, and the file that stands for the world.
#[derive(Debug)]
pub(super) struct Place {
    dir: PathBuf,
}

impl Place {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    pub(super) fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    fn effects(&self) -> PathBuf {
        self.dir.join("effects")
    }

    /// Does something to the world: a line of a file.
    fn act(&self, what: &str) -> Result<(), Failure> {
        let file = OpenOptions::new().create(true).append(true).open(self.effects());
        let written = file.and_then(|mut file| file.write_all(format!("{what}\n").as_bytes()));
        written.map_err(|e| Failure::io("writing the demo's effects", &e))
    }

    /// How often each thing was done to the world, by whoever.
    pub(super) fn done(&self) -> Result<BTreeMap<String, u64>, Failure> {
        let text = std::fs::read_to_string(self.effects())
            .map_err(|e| Failure::io("reading the demo's effects", &e))?;
        let mut done: BTreeMap<String, u64> = BTreeMap::new();
        for line in text.lines() {
            let times = done.entry(line.to_owned()).or_default();
            *times = times.saturating_add(1);
        }
        Ok(done)
    }
}

/// The agent: works until it is killed.
pub(super) fn record(dir: &Path) -> Result<Exit, Failure> {
    let place = Place::new(dir);
    let store = Store::open(place.home())?;
    let workspace = std::env::current_dir().map_err(|e| Failure::io("finding the working directory", &e))?;
    let session = store.create(workspace, NewSession::new("Ship the fix").model("demo-model"))?;
    say(&format!("session {}", session.id()))?;
    session.append(Message::system("You are a careful agent."))?;
    session.prompt(Message::user("Fix the failing login test and ship it."))?;
    say("node 0: the person's prompt")?;
    let mut asked = Vec::new();
    loop {
        let owed = session.work()?;
        if owed.is_empty() {
            return Err(Failure::new(
                Exit::Io,
                "demo.agent",
                "the agent came to its end without being killed",
            ));
        }
        for work in owed {
            match work {
                Work::Ask(request) => {
                    say(&format!(
                        "node {}: that the {} is about to be asked",
                        request.node(),
                        agent_of(&request)
                    ))?;
                    asked.push(ask(request, &place)?);
                }
                Work::Call(call) if call.name() == KILLED_IN => return be_killed(call, &place),
                work => say(&step(work, &place)?)?,
            }
        }
    }
}

fn be_killed(call: OwedCall<'_>, place: &Place) -> Result<Exit, Failure> {
    let node = call.node();
    let _running = call.start(Effect::External)?;
    say(&format!("node {node}: that {KILLED_IN} is about to run"))?;
    place.act(KILLED_IN)?;
    say(IN_THE_MIDDLE)?;
    loop {
        std::thread::park();
    }
}

fn say(what: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{what}").and_then(|()| stdout.flush()).map_err(Failure::from)
}

/// Goes on with the session to its end, one thing at a time, the deepest conversation first.
pub(super) fn go_on(session: Session, place: &Place) -> Result<Vec<String>, Failure> {
    let mut done = Vec::new();
    while let Some(work) = session.work()?.into_iter().next() {
        done.push(step(work, place)?);
    }
    session.finish(FinalStatus::Completed)?;
    Ok(done)
}

/// Does one thing that is owed, and says what it was.
fn step(work: Work<'_>, place: &Place) -> Result<String, Failure> {
    let node = work.node();
    let what = match work {
        Work::Begin(child) => {
            let what = format!("the request to {}", child.request().agent);
            child.begin(bound(), vec![Message::system("Answer briefly.")])?;
            what
        }
        Work::Ask(request) => {
            let agent = ask(request, place)?;
            agent.settle(ChildResult::completed("Yes, you may."))?;
            "the external agent's answer".to_owned()
        }
        Work::Call(call) => run(call, place)?,
        Work::Model(turn) => answer(turn)?,
        Work::Settle(child) => {
            child.settle_with_last_words()?;
            "its last word is the result that its parent waits for".to_owned()
        }
        Work::EndTurn(turn) => {
            turn.end()?;
            "the end of the turn".to_owned()
        }
        other => {
            let message = format!("the session is owed something that the demo does not know: {other:?}");
            return Err(Failure::new(Exit::Io, "demo.work", message));
        }
    };
    Ok(format!("node {node}: {what}"))
}

fn agent_of(request: &ExternalRequest<'_>) -> String {
    request.request().agent.clone()
}

fn ask<'a>(request: ExternalRequest<'a>, place: &Place) -> Result<AskedAgent<'a>, Failure> {
    let what = format!("ask {}", agent_of(&request));
    let agent = request.bind(bound())?;
    place.act(&what)?;
    Ok(agent)
}

fn run(call: OwedCall<'_>, place: &Place) -> Result<String, Failure> {
    let arguments: Value = serde_json::from_slice(call.arguments()).unwrap_or_default();
    let prompt = arguments.get("prompt").and_then(Value::as_str).unwrap_or_default();
    let name = call.name().to_owned();
    let delegation = match name.as_str() {
        "delegate" => Delegation::inner("fixer", prompt),
        "consult" => Delegation::external("oracle", prompt),
        tool => {
            let running = call.start(Effect::Mutating)?;
            place.act(tool)?;
            running.finish(CallResult::succeeded("done"))?;
            return Ok(format!("{tool} ran, and its result"));
        }
    };
    let agent = delegation.agent.clone();
    match call.delegate(delegation)? {
        Delegated::Child(child) => Ok(format!("{name} became node {child}, for the {agent}")),
        Delegated::Refused(call, why) => {
            call.answer(CallResult::failed(why.to_string()))?;
            Ok(format!("{name} was refused: {why}"))
        }
    }
}

/// A model that knows its part: what it says follows from whose it is, and how often it has answered.
fn answer(turn: ModelTurn<'_>) -> Result<String, Failure> {
    let answers = turn.context()?.iter().filter(|message| message.role == Role::Assistant).count();
    let (text, calls): (&str, &[(&str, &str)]) = match (turn.node(), answers) {
        (NodeId::ROOT, 0) => (
            "One agent fixes it, another one looks at the licence.",
            &[
                ("delegate", r#"{"prompt":"Fix the login test and deploy it."}"#),
                ("consult", r#"{"prompt":"May we ship it?"}"#),
            ],
        ),
        (NodeId::ROOT, _) => ("It is fixed. What the oracle said is not known: please look.", &[]),
        (_, 0) => (
            "I will fix it, deploy it and tell the team.",
            &[("fix_test", "{}"), ("deploy", "{}"), ("notify", "{}")],
        ),
        _ => ("Fixed. Whether it was deployed is not known, so I looked: it was.", &[]),
    };
    let usage = Usage { input: 812, cache_read: 4096, cache_write: 0, output: 96, reasoning: 0 };
    let message = Message::assistant(text).model("demo-model").usage(usage);
    let message = calls.iter().zip(1..).fold(message, |message, ((tool, arguments), number)| {
        message.call(format!("call_{number}"), *tool, *arguments)
    });
    turn.answer(message)?;
    let names: Vec<&str> = calls.iter().map(|(tool, _)| *tool).collect();
    let calls = if names.is_empty() { String::new() } else { format!(" -> calls {}", names.join(", ")) };
    Ok(format!("the model's answer: {text}{calls}"))
}

fn bound() -> NodeBound {
    let (api_mode, candidate, conversation_id, profile_hash) = (None, None, None, None);
    NodeBound { model: "demo-model".to_owned(), api_mode, candidate, conversation_id, profile_hash }
}
