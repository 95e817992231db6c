//! Imports a recursive session: the transcript, then what the other files say about it as a whole.

use sessionlog_codec::event::{HostEvent, NewEvent, SessionTitled, TitleOrigin};
use sessionlog_codec::ids::NodeId;

use super::feed::{Content, Run, Source};
use super::{ImportError, first_time, open, open_document, read_whole};
use crate::import::discover::{FileRole, SourceFile, SourceSession};
use crate::import::lines::Lines;
use crate::import::loose::{Object, object};
use crate::import::recursive::{Checkpoints, Meta, Transcript};
use crate::import::sniff::RECURSIVE_LISTS;
use crate::import::split::text_of;

/// The longest `.meta.json` and `cost.json`, in bytes.
const META_LEN_MAX: u64 = 4 << 20;
const META: &str = "recursive/meta";
const COST: &str = "recursive/cost";
const CHECKPOINTS: &str = "recursive/checkpoints";
const SCRATCHPAD: &str = "recursive/scratchpad";
const SCRATCHPAD_TITLE: &str = "Scratchpad";

pub(super) fn import(source: &SourceSession, run: &mut Run<'_>) -> Result<(), ImportError> {
    for file in &source.files {
        match file.role {
            FileRole::Main => transcript(source, file, run)?,
            FileRole::Document => document(source, file, run)?,
            _ => {}
        }
    }
    if run.is_refused() {
        // What goes with another transcript is not of this session.
        return Ok(());
    }
    // The end of a session comes after all that was said in it.
    for file in &source.files {
        let done = match file.role {
            FileRole::Checkpoints => checkpoints(source, file, run),
            FileRole::Cost => whole(file, COST, "cost", run),
            FileRole::Meta => whole(file, META, "meta", run),
            FileRole::Scratchpad => scratchpad(file, run),
            _ => Ok(()),
        };
        match done {
            Err(ImportError::Read { source, .. }) => run.note(file, format!("can't be read: {source}")),
            other => other?,
        }
    }
    Ok(())
}

fn to_root<'a>(file: &'a SourceFile, format: &'a str, content: Content) -> Source<'a> {
    Source { file, format, node: NodeId::ROOT, content, opening: Vec::new() }
}

fn transcript(source: &SourceSession, file: &SourceFile, run: &mut Run<'_>) -> Result<(), ImportError> {
    let format = source.format.to_string();
    let known = run.known_source(&format, NodeId::ROOT, None);
    let mut mapper = Transcript::new(first_time(source, &file.path));
    let to = to_root(file, &format, Content::Messages);
    run.feed(&to, known, &mut Lines::new(open(file)?), &mut mapper).map(drop)
}

fn document(source: &SourceSession, file: &SourceFile, run: &mut Run<'_>) -> Result<(), ImportError> {
    let Some(mut document) = open_document(file, RECURSIVE_LISTS, run)? else { return Ok(()) };
    let format = source.format.to_string();
    let known = run.known_source(&format, NodeId::ROOT, None);
    let mut mapper = Transcript::new(first_time(source, &file.path));
    run.feed(&to_root(file, &format, Content::Messages), known, &mut document, &mut mapper).map(drop)
}

fn checkpoints(source: &SourceSession, file: &SourceFile, run: &mut Run<'_>) -> Result<(), ImportError> {
    let known = run.known_source(CHECKPOINTS, NodeId::ROOT, None);
    let mut mapper = Checkpoints::new(first_time(source, &file.path));
    let to = to_root(file, CHECKPOINTS, Content::Facts);
    run.feed(&to, known, &mut Lines::new(open(file)?), &mut mapper).map(drop)
}

/// The working memory of a workspace: kept as it is written, and told to whoever reads host events.
fn scratchpad(file: &SourceFile, run: &mut Run<'_>) -> Result<(), ImportError> {
    let Some(bytes) = read_whole(file, META_LEN_MAX, run)? else { return Ok(()) };
    let is_object = object::<Object<'_>>(&text_of(&bytes)).is_some();
    if !is_object {
        run.note(file, "is no JSON object: it was kept as it is, and not read");
    }
    let data = bytes.clone();
    let events = |before: Option<&[u8]>| {
        let title = SessionTitled { title: SCRATCHPAD_TITLE.to_owned(), origin: TitleOrigin::Host };
        let title = before.is_none().then(|| NewEvent::now(NodeId::ROOT, title));
        let told = HostEvent {
            namespace: "recursive".to_owned(),
            name: "scratchpad".to_owned(),
            data: data.into(),
            source: None,
        };
        title.into_iter().chain(is_object.then(|| NewEvent::now(NodeId::ROOT, told))).collect()
    };
    run.take_whole(&to_root(file, SCRATCHPAD, Content::Facts), "scratchpad", bytes, events)
}

/// A file that is written anew each time. Only what changed in it is said.
fn whole(file: &SourceFile, format: &str, kind: &str, run: &mut Run<'_>) -> Result<(), ImportError> {
    let Some(bytes) = read_whole(file, META_LEN_MAX, run)? else { return Ok(()) };
    let meta = if kind == "meta" { Meta::read(&bytes) } else { None };
    if kind == "meta" && meta.is_none() {
        run.note(file, "is empty or damaged; the session was taken from its transcript");
    }
    let events = |before: Option<&[u8]>| {
        let Some(meta) = meta else { return Vec::new() };
        let before = before.and_then(Meta::read);
        let events = meta.events_since(before.as_ref()).into_iter();
        events
            .map(|event| NewEvent { timestamp: meta.updated_at, ..NewEvent::now(NodeId::ROOT, event) })
            .collect()
    };
    run.take_whole(&to_root(file, format, Content::Facts), kind, bytes, events)
}
