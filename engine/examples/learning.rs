//! Learning from a session, with judges that follow a script in place of models.
//! `cargo run -p sessionlog --example learning -- HOME`
//!
//! Kill it whenever you like and start it again with the same arguments: first it does what earlier sessions still owe. What
//! may have been submitted is submitted again, byte for byte; what was decided is applied without asking.
//! `engine/tests/learning.rs` stops the same at every call to the disk.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use sessionlog::codec::event::{LearnBoundary, NewEvent, PropositionKind, TaskCompleted};
use sessionlog::codec::ids::NodeId;
use sessionlog::learning::Lesson;
use sessionlog::library::{JudgeError, Question};
use sessionlog::projections::learning::{Draft, Proposition, SearchOptions, Speaker};
use sessionlog::{
    Durability, ErrorKind, LearnOptions, LearnReport, Librarian, Message, NewSession, Store, Thinker,
    Thought, Verdict,
};

/// Draws one proposition from every segment that ended with a task: what its report found out.
#[derive(Debug)]
pub struct Reader;

impl Thinker for Reader {
    fn next(&mut self, lesson: &Lesson<'_>) -> Result<Thought, JudgeError> {
        // A host asks a model here, and shows it `lesson.refused` and `lesson.registered` too.
        let report = lesson.lines.iter().find(|line| line.speaker == Speaker::Task);
        let finding = report.and_then(|line| line.text.lines().find_map(|it| it.strip_prefix("Finding: ")));
        match finding {
            Some(finding) if lesson.registered.is_empty() => Ok(Proposition::new(Draft {
                kind: PropositionKind::Finding,
                content: finding.to_owned(),
                queries: vec![format!("What was found out {}?", boundary(lesson.segment.boundary))],
                tags: vec!["task".to_owned()],
                refs: vec![lesson.segment.segment_id.clone()],
                confidence: 0.8,
                extractor_model: "script".to_owned(),
                extractor_version: "1".to_owned(),
            })?
            .into()),
            _ => Ok(Thought::Done),
        }
    }
}

fn boundary(boundary: LearnBoundary) -> &'static str {
    match boundary {
        LearnBoundary::TaskComplete => "when the task was done",
        LearnBoundary::PlanApproved => "before the plan was approved",
        LearnBoundary::Size | LearnBoundary::Explicit => "so far",
    }
}

/// Merges what is likest, if it says the same; else it is new.
#[derive(Debug)]
pub struct Clerk;

impl Librarian for Clerk {
    fn judge(&mut self, question: &Question) -> Result<Verdict, JudgeError> {
        let content = &question.proposition.draft().content;
        let same = question.candidates.iter().find(|it| it.entry.content == *content);
        Ok(match same {
            Some(same) => Verdict::merge(same.entry_id.clone(), "it says the same"),
            None => Verdict::create("nothing says so yet"),
        })
    }
}

/// How the example learns.
pub const OPTIONS: LearnOptions = LearnOptions::tokens(128_000);

/// Learns what sessions of before still owe: their hosts died, or had no time.
///
/// # Errors
/// If the store fails.
pub fn catch_up(store: &Store) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let mut learned = 0;
    for place in store.reader().places()? {
        let status = match store.reader().learn_status(place.id, &OPTIONS) {
            // Its host died while it began it.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            status => status?,
        };
        if status.closable > 0 || !status.segments.is_empty() {
            let (session, _) = store.resume(place.id)?;
            learned += session.learn(OPTIONS, &mut Reader, &mut Clerk)?.learned;
            session.close()?;
        }
    }
    Ok(learned)
}

/// Works on a task and learns from it.
///
/// # Errors
/// If the store fails.
pub fn run(home: &Path) -> Result<LearnReport, Box<dyn Error + Send + Sync>> {
    let store = Store::open(home)?;
    catch_up(&store)?;
    let session = store.create(home, NewSession::new("Fix the login test"))?;
    session.append(Message::user("The login test fails. Fix it."))?;
    session.append(Message::assistant("The test needs the database. I start it first."))?;
    let report = TaskCompleted {
        outcome: "completed".to_owned(),
        summary: "The login test passes.".to_owned(),
        findings: vec!["The login test needs a running database: start it before the tests.".to_owned()],
        artifacts: Vec::new(),
        verification: None,
        blocker: None,
        report: None,
    };
    session.append_batch(vec![NewEvent::now(NodeId::ROOT, report)], Durability::Sync)?;
    // Whenever there is time: at the end of a turn, when idle.
    let learned = session.learn(OPTIONS, &mut Reader, &mut Clerk)?;
    session.close()?;
    Ok(learned)
}

// A test that runs this file as a module has no use for its command line.
#[allow(dead_code, reason = "not used where this file is a module of a test")]
fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let home = std::env::args_os().nth(1).ok_or("usage: learning HOME")?;
    let report = run(Path::new(&home))?;
    let mut out = std::io::stdout();
    writeln!(out, "{} learned, {} created, {} merged", report.learned, report.created, report.merged)?;
    for found in Store::open(&home)?.library().search("login tests", &SearchOptions::default())? {
        writeln!(out, "{:.2}  {}", found.score, found.entry.content)?;
    }
    Ok(())
}
