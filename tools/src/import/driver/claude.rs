//! Imports a Claude Code session: its own file first, then each child behind its parent.

use std::collections::VecDeque;
use std::path::Path;

use sessionlog_codec::event::{NewEvent, NodeSettled, NodeStatus};
use sessionlog_codec::ids::{NodeId, Timestamp};

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
        forgive(fed.map(drop), file, run)?;
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
    run.feed(&to_root(file), known, &mut Lines::new(open(file)?), &mut mapper).map(drop)
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
    run.feed(&to_root(file), known, &mut document, &mut mapper).map(drop)
}

fn import_children(
    source: &SourceSession,
    session: &mut Session,
    run: &mut Run<'_>,
) -> Result<(), ImportError> {
    let mut waiting = VecDeque::new();
    for file in &source.files {
        if let FileRole::Child { agent_id } = &file.role {
            waiting.push_back(child_of(source, file, agent_id, run)?);
        }
    }
    let mut ends = Vec::new();
    while !waiting.is_empty() {
        // Children whose calls are known go first: they may hold the calls of others.
        let mut unknown = VecDeque::new();
        let before = waiting.len();
        for child in std::mem::take(&mut waiting) {
            if session.link_of(child.agent_id, &child.facts).call.is_some() {
                ends.push(import_next(source, child, session, run)?);
            } else {
                unknown.push_back(child);
            }
        }
        if unknown.len() == before
            && let Some(child) = unknown.pop_front()
        {
            ends.push(import_next(source, child, session, run)?);
        }
        waiting = unknown;
    }
    // A child comes behind its parent, and so its end before its parent's.
    for (agent_id, link) in ends.into_iter().rev() {
        settle(agent_id, &link, session, run)?;
    }
    Ok(())
}

/// Imports a child as far as it can be read, and gives where it was called from.
fn import_next<'a>(
    source: &SourceSession,
    child: Child<'a>,
    session: &mut Session,
    run: &mut Run<'_>,
) -> Result<(&'a str, Link), ImportError> {
    let (file, agent_id) = (child.file, child.agent_id);
    let link = session.link_of(agent_id, &child.facts);
    let imported = import_child(source, child, &link, session, run);
    forgive(imported, file, run)?;
    Ok((agent_id, link))
}

fn child_of<'a>(
    source: &'a SourceSession,
    file: &'a SourceFile,
    agent_id: &'a str,
    run: &mut Run<'_>,
) -> Result<Child<'a>, ImportError> {
    let is_meta =
        |file: &&SourceFile| matches!(&file.role, FileRole::ChildMeta { agent_id: id } if id == agent_id);
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
    link: &Link,
    session: &mut Session,
    run: &mut Run<'_>,
) -> Result<(), ImportError> {
    let Child { file, agent_id, meta, facts } = child;
    let mut lines = Lines::new(open(file)?);
    let node = session.children.node(agent_id);
    let known = run.known_source(MAIN, node, None);
    let is_open = session.has_thread(node) || run.node(node).is_some();
    let (facts, began) = with_prompt(facts, &file.path);
    let began = began.or(first_time(source, &file.path));
    // Its place below its parent is taken down again in each import, for the children that are new.
    let opened = session.children.opened(node, agent_id, link, facts);
    let opening = if is_open { Vec::new() } else { vec![at(began, NewEvent::now(link.parent, opened))] };
    let to = Source { file, format: MAIN, node, content: Content::Messages, opening };
    let mut mapper = ClaudeMapper::new(session, File::Child(node), began);
    let fed = run.feed(&to, known, &mut lines, &mut mapper)?;
    if fed.is_none() && !is_open {
        // Nodes are dense: one that was not opened gives its number back.
        session.children.release(agent_id);
        return Ok(());
    }
    if let Some((file, bytes)) = meta {
        let to = Source { file, format: META, node, content: Content::Facts, opening: Vec::new() };
        run.take_whole(&to, "agent-meta", bytes, |_| Vec::new())?;
    }
    Ok(())
}

fn at(time: Option<Timestamp>, event: NewEvent) -> NewEvent {
    NewEvent { timestamp: time, ..event }
}

/// Looks into the child's file for what its bookmark should say.
fn with_prompt(facts: ChildFacts, path: &Path) -> (ChildFacts, Option<Timestamp>) {
    let Ok(sniffed) = sniff(path) else { return (facts, None) };
    let began = sniffed.facts.began;
    (ChildFacts { prompt: sniffed.prompt, working_directory: sniffed.facts.cwd, ..facts }, began)
}

/// Settles a child whose call has its result. It comes after all that the child said.
fn settle(agent_id: &str, link: &Link, session: &mut Session, run: &mut Run<'_>) -> Result<(), ImportError> {
    let Some(node) = session.children.known_node(agent_id) else { return Ok(()) };
    let is_settled = run.node(node).is_some_and(|known| known.settled);
    if is_settled || !session.has_thread(node) || !session.is_child_finished(agent_id, link) {
        return Ok(());
    }
    let settled = NodeSettled { status: NodeStatus::Completed, reason: None, parts: Vec::new() };
    run.append(vec![at(session.last_time(node), NewEvent::now(node, settled))])
}
