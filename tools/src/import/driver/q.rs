//! Imports a q session: each conversation with its delegations, the root first, and what is said of the root as a whole
//! last.

mod children;
mod facts;

use std::collections::{BTreeMap, BTreeSet};

use sessionlog_codec::event::{NewEvent, RunReason, RunStarted};
use sessionlog_codec::ids::{NodeId, Timestamp};
use sessionlog_codec::record::TimeOrigin;
use sessionlog_projections::time::parse_rfc3339;
use sessionlog_projections::views::q::{
    DelegationsFile, KeptContext, PlanFile, QError, SessionHeader, StateFile, Version, format,
};

use self::children::Children;
use super::feed::{Content, Run, Source};
use super::{ImportError, first_time, read_whole};
use crate::import::discover::{FileRole, QPart, SourceFile, SourceSession};
use crate::import::q::{Layout, Transcript, aligned, context_events};

/// The longest record that a log takes with room for what goes with it, in bytes.
const RECORD_LEN_MAX: usize = 60 << 20;

/// A conversation that is to be imported.
struct Place {
    node: NodeId,
    /// The ids of the delegates from the root down to it.
    delegate: Vec<String>,
    depth: u32,
}

impl Place {
    fn is_root(&self) -> bool {
        self.node == NodeId::ROOT
    }
}

/// A file that was read.
struct Bytes<'a> {
    file: &'a SourceFile,
    bytes: Vec<u8>,
}

/// What became of a session file.
enum Told<'a> {
    /// Its messages were imported.
    Conversation(Box<Conversation<'a>>),
    /// It is not what it was before: nothing of it, nor what goes with it, may be taken.
    Refused,
    /// There is none that can be read.
    Nothing,
}

/// A session file whose messages were imported.
struct Conversation<'a> {
    file: &'a SourceFile,
    header_bytes: Vec<u8>,
    header: Option<SessionHeader>,
    transcript: Transcript,
    context: KeptContext,
    has_compacted: bool,
    at: Option<Timestamp>,
}

pub(super) fn import(source: &SourceSession, run: &mut Run<'_>) -> Result<(), ImportError> {
    let root = Place { node: NodeId::ROOT, delegate: Vec::new(), depth: 0 };
    let files = Files::of(source);
    if files.get(&root.delegate, QPart::Session).is_none() {
        return plan(&files, &root, run);
    }
    let mut children = Children::new(&files, run.nodes());
    let Told::Conversation(conversation) = conversation(&files, &root, BTreeSet::new(), run)? else {
        return Ok(());
    };
    let mut waiting = children.open(&root, Some(&conversation), run)?;
    while let Some(place) = waiting.pop() {
        waiting.extend(child(&files, &place, &mut children, run)?);
    }
    facts::header(&root, *conversation, run)?;
    plan(&files, &root, run)
}

/// Imports a delegate as far as its files can be read, and gives the delegates below it.
fn child(
    files: &Files<'_>,
    place: &Place,
    children: &mut Children<'_>,
    run: &mut Run<'_>,
) -> Result<Vec<Place>, ImportError> {
    let state = files.read(&place.delegate, QPart::State, run)?;
    let parsed =
        state.as_ref().and_then(|it| told(StateFile::parse(&it.bytes, &it.file.label), it.file, run));
    let unknown = parsed.iter().flat_map(|state| &state.unknown_tools);
    let unknown = unknown.map(|call| (call.message_index, call.tool_index)).collect();
    let conversation = match conversation(files, place, unknown, run) {
        Ok(Told::Conversation(conversation)) => Some(conversation),
        Ok(Told::Refused) => return Ok(Vec::new()),
        Ok(Told::Nothing) => None,
        Err(ImportError::Q(error)) => {
            let file = files.get(&place.delegate, QPart::Session);
            file.iter().for_each(|file| run.note(file, format!("was left out: {error}")));
            None
        }
        Err(other) => return Err(other),
    };
    let below = children.open(place, conversation.as_deref(), run)?;
    let at = conversation.as_ref().and_then(|conversation| conversation.at).or(files.source.facts.began);
    if let Some(conversation) = conversation {
        facts::header(place, *conversation, run)?;
    }
    if let Some(state) = state {
        facts::state(place, state, parsed, at, run)?;
    }
    Ok(below)
}

/// The files of a session, by what they are.
struct Files<'a> {
    source: &'a SourceSession,
    by_role: BTreeMap<(&'a [String], QPart), &'a SourceFile>,
}

impl<'a> Files<'a> {
    fn of(source: &'a SourceSession) -> Self {
        let by_role = source.files.iter().filter_map(|file| match &file.role {
            FileRole::Q { delegate, part } => Some(((delegate.as_slice(), *part), file)),
            _ => None,
        });
        Self { source, by_role: by_role.collect() }
    }

    fn get(&self, ids: &[String], part: QPart) -> Option<&'a SourceFile> {
        self.by_role.get(&(ids, part)).copied()
    }

    /// Reads a file of a conversation; `None` if there is none. Of the root's own file only, not being able to is an
    /// error.
    fn read(&self, ids: &[String], part: QPart, run: &mut Run<'_>) -> Result<Option<Bytes<'a>>, ImportError> {
        let Some(file) = self.get(ids, part) else { return Ok(None) };
        match read_whole(file, u64::MAX, run) {
            Ok(bytes) => Ok(bytes.map(|bytes| Bytes { file, bytes })),
            Err(ImportError::Read { source, .. }) if !ids.is_empty() || part != QPart::Session => {
                run.note(file, format!("can't be read: {source}"));
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }
}

/// What was read, or a note.
fn told<T>(parsed: Result<T, QError>, file: &SourceFile, run: &mut Run<'_>) -> Option<T> {
    parsed.map_err(|error| run.note(file, format!("was recorded and not read: {error}"))).ok()
}

fn to<'a>(file: &'a SourceFile, format: &'a str, node: NodeId, content: Content) -> Source<'a> {
    Source { file, format, node, content, opening: Vec::new() }
}

/// An event whose time is that of its file: files of q's have hardly any others.
fn about(at: Option<Timestamp>, event: NewEvent) -> NewEvent {
    NewEvent { timestamp: at, time_origin: TimeOrigin::Estimated, ..event }
}

/// Keeps a file as one record, with the events that it means now; `events` is given what it was.
fn keep(
    to: &Source<'_>,
    kind: &str,
    bytes: Vec<u8>,
    run: &mut Run<'_>,
    events: impl FnOnce(Option<&[u8]>) -> Vec<NewEvent>,
) -> Result<(), ImportError> {
    if bytes.len() > RECORD_LEN_MAX {
        let limit = RECORD_LEN_MAX >> 20;
        run.note(to.file, format!("its {kind} is longer than {limit} MiB, so it was left out"));
        return Ok(());
    }
    run.take_whole(to, kind, bytes, events)
}

/// Imports what was said in a conversation.
fn conversation<'a>(
    files: &Files<'a>,
    place: &Place,
    unknown: BTreeSet<(u64, u32)>,
    run: &mut Run<'_>,
) -> Result<Told<'a>, ImportError> {
    let Some(Bytes { file, bytes }) = files.read(&place.delegate, QPart::Session, run)? else {
        return Ok(Told::Nothing);
    };
    let label = file.label.as_str();
    let Some(layout) = Layout::of(bytes) else { return Err(no_layout(label)) };
    let header_bytes = layout.header.clone();
    let version = SessionHeader::version(&header_bytes, label)?;
    let header = told(SessionHeader::parse(&header_bytes, label), file, run);
    let updated = header.as_ref().and_then(|header| parse_rfc3339(&header.updated_at));
    let at = updated.or(first_time(files.source, &file.path));
    let mut transcript = Transcript::new(place.node, version, label, unknown, at);
    let is_fed = feed(place, file, header.as_ref(), &layout, &mut transcript, run)?;
    if !is_fed {
        return Ok(Told::Refused);
    }
    let (context, has_compacted) = context(place, file, &layout, &transcript, at, run)?;
    let told = Conversation { file, header_bytes, header, transcript, context, has_compacted, at };
    Ok(Told::Conversation(Box::new(told)))
}

fn no_layout(file: &str) -> ImportError {
    let found = "something else".to_owned();
    ImportError::Q(QError::NotJson { file: file.to_owned(), offset: 0, found })
}

/// Whether what goes with the messages may be taken, too.
fn feed(
    place: &Place,
    file: &SourceFile,
    header: Option<&SessionHeader>,
    layout: &Layout,
    transcript: &mut Transcript,
    run: &mut Run<'_>,
) -> Result<bool, ImportError> {
    let format = match transcript.version() {
        Version::One => format::TRANSCRIPT_V1,
        Version::Two => format::TRANSCRIPT,
    };
    let other = match transcript.version() {
        Version::One => format::TRANSCRIPT,
        Version::Two => format::TRANSCRIPT_V1,
    };
    if run.known_source(other, place.node, None).is_some() {
        run.conflict(
            file,
            "is of another version than when it was imported; nothing was appended".to_owned(),
        );
        return Ok(false);
    }
    let known = run.known_source(format, place.node, None);
    let mut to = to(file, format, place.node, Content::Messages);
    // Before all that is said in it; a file without messages has a run, too.
    let is_new = place.is_root() && run.known_source(format::SESSION, place.node, None).is_none();
    let run_id = header.map(|header| header.run_id.clone()).filter(|id| is_new && !id.is_empty());
    let started = run_id.map(|run_id| RunStarted { run_id, reason: RunReason::Created });
    let started = started.map(|started| about(None, NewEvent::now(place.node, started)));
    to.opening.extend(started.clone());
    let fed = run.feed(&to, known, &mut layout.records(), transcript)?;
    if fed.is_none() {
        run.append(started.into_iter().collect())?;
    }
    Ok(!run.is_refused())
}

/// Keeps the context, and tells whether it is another one than what was said.
fn context(
    place: &Place,
    file: &SourceFile,
    layout: &Layout,
    transcript: &Transcript,
    at: Option<Timestamp>,
    run: &mut Run<'_>,
) -> Result<(KeptContext, bool), ImportError> {
    let Some(elements) = layout.context() else {
        return Ok((KeptContext::whole(transcript.version(), transcript.len()), false));
    };
    let (kept, notes) = aligned(&elements, transcript);
    notes.into_iter().for_each(|note| run.note(file, note));
    let mut has_compacted = false;
    let to = to(file, format::CONTEXT, place.node, Content::Facts);
    keep(&to, "context", kept.to_json().into_bytes(), run, |before| {
        let before = before.and_then(|before| KeptContext::parse(before).ok());
        let events = context_events(before.as_ref(), &kept, transcript);
        has_compacted = !events.is_empty();
        events.into_iter().map(|event| about(at, NewEvent::now(place.node, event))).collect()
    })?;
    Ok((kept, has_compacted))
}

fn plan(files: &Files<'_>, root: &Place, run: &mut Run<'_>) -> Result<(), ImportError> {
    let Some(Bytes { file, bytes }) = files.read(&root.delegate, QPart::Plan, run)? else { return Ok(()) };
    let parsed = told(PlanFile::parse(&bytes, &file.label), file, run);
    let is_alone = files.get(&root.delegate, QPart::Session).is_none();
    let to = to(file, format::PLAN, root.node, Content::Facts);
    keep(&to, "plan-execution", bytes, run, |before| {
        let before = before.and_then(|before| PlanFile::parse(before, "").ok());
        let Some(plan) = parsed else { return Vec::new() };
        let at = parse_rfc3339(&plan.updated_at);
        let mut events = facts::plan_events(before.as_ref(), &plan);
        if is_alone && before.is_none() {
            events.insert(0, facts::plan_title(&plan).into());
        }
        let events = events.into_iter();
        events.map(|event| about(at, NewEvent::now(root.node, event))).collect()
    })
}

/// The bookmarks of a conversation, with the bytes they came from.
fn bookmarks<'a>(
    files: &Files<'a>,
    place: &Place,
    run: &mut Run<'_>,
) -> Result<Option<(Bytes<'a>, DelegationsFile)>, ImportError> {
    let Some(read) = files.read(&place.delegate, QPart::Delegations, run)? else { return Ok(None) };
    let parsed = told(DelegationsFile::parse(&read.bytes, &read.file.label), read.file, run);
    Ok(Some((read, parsed.unwrap_or_default())))
}
