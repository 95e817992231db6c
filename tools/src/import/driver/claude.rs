//! Imports a Claude Code session: its own file first, then each child behind its parent.

use std::path::Path;

use sessionlog_codec::event::{NewEvent, NodeSettled, NodeStatus};
use sessionlog_codec::ids::NodeId;

use super::feed::{Content, Run, Source};
use super::{ImportError, first_time, open, open_document, read_whole};
use crate::import::claude::{ChildFacts, Children, ClaudeMapper, File, Link, RawOnly, Session};
use crate::import::discover::{FileRole, SourceFile, SourceSession};
use crate::import::lines::Lines;
use crate::import::sniff::{CLAUDE_LISTS, sniff};

const MAIN: &str = "claude-code";
const META: &str = "claude-code/meta";
const JOURNAL: &str = "claude-code/journal";
/// The longest `agent-<id>.meta.json`, in bytes.
const META_LEN_MAX: u64 = 1 << 20;

/// A child that is still to be imported.
struct Child<'a> {
    file: &'a SourceFile,
    agent_id: &'a str,
    meta: Option<(&'a SourceFile, Vec<u8>)>,
    facts: ChildFacts,
}

pub(super) fn import(source: &SourceSession, run: &mut Run<'_>) -> Result<(), ImportError> {
    let mut session = Session::new(Children::new(source.session_id, run.nodes()));
    for file in &source.files {
        match &file.role {
            FileRole::Main => main_file(source, file, &mut session, run)?,
            FileRole::Document => main_document(source, file, &mut session, run)?,
            _ => {}
        }
    }
    import_children(source, &mut session, run)?;
    for file in source.files.iter().filter(|file| file.role == FileRole::Journal) {
        let known = run.known_source(JOURNAL, NodeId::ROOT, Some(&file.label));
        let to = Source {
            file,
            format: JOURNAL,
            node: NodeId::ROOT,
            content: Content::Facts,
            opening: Vec::new(),
        };
        let fed = open(file)
            .and_then(|opened| run.feed(&to, known, &mut Lines::new(opened), &mut RawOnly::new("journal")));
        forgive(fed, file, run)?;
    }
    Ok(())
}

/// A file other than the session's own that can't be read costs a note.
fn forgive(result: Result<(), ImportError>, file: &SourceFile, run: &mut Run<'_>) -> Result<(), ImportError> {
    match result {
        Err(ImportError::Read { source, .. }) => {
            run.note(file, format!("can't be read: {source}"));
            Ok(())
        }
        other => other,
    }
}

fn to_root(file: &SourceFile) -> Source<'_> {
    let content = Content::Messages;
    Source { file, format: MAIN, node: NodeId::ROOT, content, opening: Vec::new() }
}

fn main_file(
    source: &SourceSession,
    file: &SourceFile,
    session: &mut Session,
    run: &mut Run<'_>,
) -> Result<(), ImportError> {
    let known = run.known_source(MAIN, NodeId::ROOT, None);
    let mut mapper = ClaudeMapper::new(session, File::Main, first_time(source, &file.path));
    run.feed(&to_root(file), known, &mut Lines::new(open(file)?), &mut mapper)
}

fn main_document(
    source: &SourceSession,
    file: &SourceFile,
    session: &mut Session,
    run: &mut Run<'_>,
) -> Result<(), ImportError> {
    let Some(mut document) = open_document(file, CLAUDE_LISTS, run)? else { return Ok(()) };
    let known = run.known_source(MAIN, NodeId::ROOT, None);
    let mut mapper = ClaudeMapper::new(session, File::Main, first_time(source, &file.path));
    run.feed(&to_root(file), known, &mut document, &mut mapper)
}

fn import_children(
    source: &SourceSession,
    session: &mut Session,
    run: &mut Run<'_>,
) -> Result<(), ImportError> {
    let mut waiting = Vec::new();
    for file in &source.files {
        if let FileRole::Child { agent_id } = &file.role {
            waiting.push(child_of(source, file, agent_id, run)?);
        }
    }
    while !waiting.is_empty() {
        // A child whose call is known first: it may hold the calls of others.
        let next = waiting.iter().position(|child| {
            let link = session.link_of(child.agent_id, &child.facts);
            link.call.is_some()
        });
        let child = waiting.remove(next.unwrap_or(0));
        let file = child.file;
        let imported = import_child(source, child, session, run);
        forgive(imported, file, run)?;
    }
    Ok(())
}

fn child_of<'a>(
    source: &'a SourceSession,
    file: &'a SourceFile,
    agent_id: &'a str,
    run: &mut Run<'_>,
) -> Result<Child<'a>, ImportError> {
    let is_meta = |file: &&SourceFile| matches!(&file.role, FileRole::ChildMeta { agent_id: id } if id == agent_id);
    let mut meta = None;
    if let Some(meta_file) = source.files.iter().find(is_meta) {
        match read_whole(meta_file, META_LEN_MAX, run) {
            Ok(bytes) => meta = bytes.map(|bytes| (meta_file, bytes)),
            Err(ImportError::Read { source, .. }) => run.note(meta_file, format!("can't be read: {source}")),
            Err(other) => return Err(other),
        }
    }
    let facts = meta.as_ref().map(|(_, bytes)| ChildFacts::of_meta(bytes)).unwrap_or_default();
    Ok(Child { file, agent_id, meta, facts })
}

fn import_child(
    source: &SourceSession,
    child: Child<'_>,
    session: &mut Session,
    run: &mut Run<'_>,
) -> Result<(), ImportError> {
    let Child { file, agent_id, meta, facts } = child;
    let link = session.link_of(agent_id, &facts);
    let node = session.children.node(agent_id);
    let known = run.known_source(MAIN, node, None);
    let is_open = session.has_thread(node) || run.node(node).is_some();
    let facts = with_prompt(facts, &file.path);
    let began = facts.1;
    // Its place below its parent is taken down again in each import, for the children that are new.
    let opened = session.children.opened(node, agent_id, &link, facts.0);
    let opening = if is_open { Vec::new() } else { vec![at(began, NewEvent::now(link.parent, opened))] };
    let to = Source { file, format: MAIN, node, content: Content::Messages, opening };
    let mut mapper = ClaudeMapper::new(session, File::Child(node), began.or(first_time(source, &file.path)));
    run.feed(&to, known, &mut Lines::new(open(file)?), &mut mapper)?;
    if let Some((file, bytes)) = meta {
        let to = Source { file, format: META, node, content: Content::Facts, opening: Vec::new() };
        run.take_whole(&to, "agent-meta", bytes, |_| Vec::new())?;
    }
    settle(agent_id, node, &link, session, run)
}

fn at(time: Option<sessionlog_codec::ids::Timestamp>, event: NewEvent) -> NewEvent {
    NewEvent { timestamp: time, ..event }
}

/// Looks into the child's file for what its bookmark should say.
fn with_prompt(facts: ChildFacts, path: &Path) -> (ChildFacts, Option<sessionlog_codec::ids::Timestamp>) {
    let Ok(sniffed) = sniff(path) else { return (facts, None) };
    let began = sniffed.facts.began;
    (ChildFacts { prompt: sniffed.prompt, working_directory: sniffed.facts.cwd, ..facts }, began)
}

/// Settles a child whose call has its result. It comes after all that the child said.
fn settle(
    agent_id: &str,
    node: NodeId,
    link: &Link,
    session: &Session,
    run: &mut Run<'_>,
) -> Result<(), ImportError> {
    let is_settled = run.node(node).is_some_and(|known| known.settled);
    if is_settled || !session.is_child_finished(agent_id, link) {
        return Ok(());
    }
    let settled = NodeSettled { status: NodeStatus::Completed, reason: None, parts: Vec::new() };
    run.append(vec![at(session.last_time(node), NewEvent::now(node, settled))])
}
