//! A host that runs a tree of agents: an agent, the agents it delegates to, and an agent of somebody else's.
//! `cargo run -p sessionlog --example agent_tree -- HOME SESSION-UUID EFFECTS-FILE`
//!
//! Kill it whenever you like and start it again with the same arguments: it goes on where it stood, does nothing twice
//! and loses nothing. There is no code for that in it: the loop that runs the agents is the loop that recovers them.
//! `engine/tests/killed_tree.rs` kills it 500 times.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use sessionlog::codec::event::{Effect, FinalStatus, NodeBound, Part, Role};
use sessionlog::codec::ids::{IdempotencyKey, SessionId};
use sessionlog::projections::ContextMessage;
use sessionlog::session::OwedCall;
use sessionlog::{
    CallResult, ChildResult, Delegated, Delegation, ErrorKind, Message, NewSession, Store, Work,
};

/// The host's errors: its own and the library's.
pub type Fault = Box<dyn Error + Send + Sync>;

/// What the agents do to the world: each thing is a line of a file.
#[derive(Debug)]
pub struct World {
    /// The file.
    pub effects: PathBuf,
}

impl World {
    fn act(&self, what: &str) -> Result<String, Fault> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.effects)?;
        file.write_all(format!("{what}\n").as_bytes())?;
        Ok(format!("done: {what}"))
    }
}

/// Runs a session to its end, from wherever it stands. `told` hears of each thing that was done.
///
/// # Errors
/// If the store or the world fails.
pub fn run(home: &Path, id: SessionId, world: &World, told: &(dyn Fn(&str) + Sync)) -> Result<(), Fault> {
    let store = Store::open(home)?;
    let session = match store.resume(id) {
        Ok((session, _)) => session,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            store.create(home, NewSession { id: Some(id), ..NewSession::new("Ship the release") })?
        }
        Err(error) => return Err(error.into()),
    };
    told("open");
    // Said again after every start, heard once.
    session.prompt(Message::user("lead").key(IdempotencyKey([1; 16])))?;
    loop {
        let work = session.work()?;
        if work.is_empty() {
            break;
        }
        // Calls, children and models side by side.
        std::thread::scope(|scope| -> Result<(), Fault> {
            let threads: Vec<_> =
                work.into_iter().map(|work| scope.spawn(move || step(work, world, told))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
        })?;
    }
    session.finish(FinalStatus::Completed)?;
    Ok(())
}

/// Does one thing that is owed.
fn step(work: Work<'_>, world: &World, told: &(dyn Fn(&str) + Sync)) -> Result<(), Fault> {
    match work {
        Work::Begin(child) => child.begin(bound(), vec![Message::system("Answer briefly.")]).map(drop)?,
        Work::Ask(request) => {
            let prompt = request.request().prompt.clone();
            let agent = request.bind(bound())?;
            told("bound");
            let said = world.act(&format!("ask {prompt}"))?;
            told("asked");
            agent.settle(ChildResult::completed(said)).map(drop)?;
        }
        Work::Call(call) => run_call(call, world, told)?,
        Work::Model(turn) => {
            let answer = model(&turn.context()?);
            turn.answer(answer)?;
        }
        Work::Settle(child) => child.settle_with_last_words().map(drop)?,
        Work::EndTurn(turn) => turn.end().map(drop)?,
        other => return Err(format!("unknown work: {other:?}").into()),
    }
    told("step");
    Ok(())
}

fn run_call(call: OwedCall<'_>, world: &World, told: &(dyn Fn(&str) + Sync)) -> Result<(), Fault> {
    let arguments: String = serde_json::from_slice(call.arguments())?;
    let delegation = match call.name() {
        "delegate" => Delegation::inner("worker", arguments),
        "ask" => Delegation::external("oracle", arguments),
        tool => {
            let effect = if tool == "read" { Effect::Pure } else { Effect::Mutating };
            let what = format!("{tool} {arguments}");
            let running = call.start(effect)?;
            told("started");
            let result = world.act(&what)?;
            told("acted");
            running.finish(CallResult::succeeded(result))?;
            return Ok(());
        }
    };
    if let Delegated::Refused(call, why) = call.delegate(delegation)? {
        call.answer(CallResult::failed(why.to_string()))?;
    }
    Ok(())
}

/// A model that knows its part: what it says follows from who was asked, and how often it has answered.
fn model(context: &[ContextMessage]) -> Message {
    let prompt =
        context.iter().find(|message| message.role == Role::User).map_or("", |message| {
            match message.parts.first() {
                Some(Part::Text(text)) => text.as_str(),
                _ => "",
            }
        });
    let answers = context.iter().filter(|message| message.role == Role::Assistant).count();
    let calls: &[(&str, &str)] = match (prompt, answers) {
        ("lead", 0) => &[("delegate", "tests"), ("ask", "licence"), ("read", "notes"), ("write", "version")],
        ("lead", 1) => &[("delegate", "docs"), ("write", "tag")],
        ("tests", 0) => &[("write", "test-a"), ("write", "test-b")],
        ("tests", 1) => &[("delegate", "flaky"), ("ask", "history")],
        ("docs" | "flaky", 0) => &[("read", prompt), ("write", prompt)],
        _ => return Message::assistant(format!("{prompt} is done.")),
    };
    calls.iter().zip(0..).fold(Message::assistant(""), |message, ((tool, what), index)| {
        message.call(format!("call_{index}"), *tool, format!("{what:?}"))
    })
}

fn bound() -> NodeBound {
    let (api_mode, candidate, conversation_id, profile_hash) = (None, None, None, None);
    NodeBound { model: "fake-1".to_owned(), api_mode, candidate, conversation_id, profile_hash }
}

#[allow(dead_code, reason = "the test that kills this host brings its own")]
fn main() -> Result<(), Fault> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [home, id, effects] = arguments.as_slice() else {
        return Err("give HOME SESSION-UUID EFFECTS".into());
    };
    run(Path::new(home), id.parse()?, &World { effects: effects.into() }, &|_| {})
}
