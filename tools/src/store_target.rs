//! The store as the target of an import.
//!
//! A session is opened for reading first, and taken over only once there is something to append: importing what is
//! there already changes no byte.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::path::Path;

use sessionlog::codec::event::{Event, ImportStarted, NewEvent, SessionCreated};
use sessionlog::codec::ids::{MessageNo, NodeId, Position, SessionId, SourceNo, Timestamp};
use sessionlog::codec::record::Record;
use sessionlog::codec::registry::kind;
use sessionlog::log::{LogReader, ReadItem, SegmentName};
use sessionlog::{Durability, ErrorKind, NewSession, Session, SessionReader, Store, StoreReader};

use crate::import::{KnownNode, RawRecord, Target, TargetError, TargetSession};

/// Bytes of raw records that are read ahead of the comparison with the source.
const READ_AHEAD: usize = 4 << 20;

/// A store that sessions are imported into.
#[derive(Debug)]
pub struct StoreTarget {
    backing: Backing,
    workspace: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Backing {
    Store(Store),
    /// Nothing is written. `None`: there is no home yet.
    Preview(Option<StoreReader>),
}

impl StoreTarget {
    /// Imports into `store`.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { backing: Backing::Store(store), workspace: None }
    }

    /// Imports into nothing: compares the sources with the sessions of `reader`'s home, and tells what would be done. `None`
    /// is a home that is not there yet.
    #[must_use]
    pub fn preview(reader: Option<StoreReader>) -> Self {
        Self { backing: Backing::Preview(reader), workspace: None }
    }

    /// Makes new sessions in this workspace, whatever their sources say.
    #[must_use]
    pub fn within(mut self, workspace: Option<Vec<u8>>) -> Self {
        self.workspace = workspace;
        self
    }

    fn session(&self, id: SessionId) -> Result<Option<SessionReader>, TargetError> {
        let found = match &self.backing {
            Backing::Store(store) => store.reader().session(id),
            Backing::Preview(Some(reader)) => reader.session(id),
            Backing::Preview(None) => return Ok(None),
        };
        match found {
            Ok(reader) => Ok(Some(reader)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Target for StoreTarget {
    fn open(
        &mut self,
        created: &SessionCreated,
        at: Option<Timestamp>,
    ) -> Result<Box<dyn TargetSession + '_>, TargetError> {
        let known = match self.session(created.session_id)? {
            Some(reader) => Some((first_record(&reader)?, reader)),
            None => None,
        };
        let state = match known {
            Some((First::Created(stored), reader)) => {
                check_imported(&stored, created)?;
                State::Known(reader)
            }
            Some((First::Hurt, _)) => return Err(unreadable(created.session_id)),
            // Also one whose first records a crash kept from being there: creating it goes on with what is left of it.
            Some((First::Absent, _)) | None => {
                State::Absent(Box::new(placed(created.clone(), self.workspace.as_deref())), at)
            }
        };
        let store = match &self.backing {
            Backing::Store(store) => Some(store),
            Backing::Preview(_) => None,
        };
        Ok(Box::new(StoreSession { store, state, next: Position(1) }))
    }
}

fn placed(created: SessionCreated, workspace: Option<&[u8]>) -> SessionCreated {
    let Some(workspace) = workspace else { return created };
    let slug = sessionlog::store::slug(Path::new(&*String::from_utf8_lossy(workspace)));
    SessionCreated { workspace: workspace.to_vec().into(), slug, ..created }
}

/// What the log of a session begins with.
pub(crate) enum First {
    /// As it should.
    Created(Box<SessionCreated>),
    /// With nothing: a crash left it so.
    Absent,
    /// With something that can't be read, or is something else.
    Hurt,
}

/// Reads what the log of a session begins with.
pub(crate) fn first_record(reader: &SessionReader) -> Result<First, TargetError> {
    let mut first = First::Absent;
    let read = reader.log().read(Position(1), &mut |item| {
        first = match item {
            ReadItem::Record(record) => match decode(&record) {
                Ok(Event::SessionCreated(found)) => First::Created(Box::new(found)),
                _ => First::Hurt,
            },
            ReadItem::Gap(_) => First::Hurt,
        };
        ControlFlow::Break(())
    });
    match read {
        Ok(_) => Ok(first),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(First::Absent),
        Err(error) => Err(error.into()),
    }
}

fn unreadable(session: SessionId) -> TargetError {
    format!("session {session} is in the store but its first record can't be read").into()
}

/// Only what was imported from the same session is gone on with: anything else of that id is somebody's own.
fn check_imported(stored: &SessionCreated, created: &SessionCreated) -> Result<(), TargetError> {
    let origin = |created: &SessionCreated| {
        created.imported.as_ref().map(|origin| (origin.agent.clone(), origin.session_id.clone()))
    };
    if stored.imported.is_none() || origin(stored) != origin(created) {
        let text =
            format!("session {} is in the store and was not imported from this source", created.session_id);
        return Err(text.into());
    }
    Ok(())
}

#[derive(Debug)]
enum State {
    /// It is not in the store: made with the first append.
    Absent(Box<SessionCreated>, Option<Timestamp>),
    /// It is in the store, and nobody has appended to it yet.
    Known(SessionReader),
    /// It is ours.
    Owned(Box<Session>),
    /// Being changed; only ever seen if taking the session over failed.
    Taken,
}

#[derive(Debug)]
struct StoreSession<'a> {
    /// `None`: nothing is written.
    store: Option<&'a Store>,
    state: State,
    /// Where the next record would be, in a preview. Nobody looks at what is there.
    next: Position,
}

impl StoreSession<'_> {
    fn log(&self) -> Option<LogReader> {
        match &self.state {
            State::Known(reader) => Some(reader.log().clone()),
            State::Owned(session) => Some(session.reader().log().clone()),
            State::Absent(..) | State::Taken => None,
        }
    }

    /// The session as one that this process owns.
    fn owned(&mut self, store: &Store) -> Result<&Session, TargetError> {
        if !matches!(self.state, State::Owned(_)) {
            let session = match std::mem::replace(&mut self.state, State::Taken) {
                State::Absent(created, at) => create(store, *created, at)?,
                State::Known(reader) => store.resume(reader.place().id)?.0,
                State::Owned(session) => *session,
                State::Taken => return Err("the session could not be taken over before".into()),
            };
            self.state = State::Owned(Box::new(session));
        }
        match &self.state {
            State::Owned(session) => Ok(session),
            _ => Err("the session could not be taken over".into()),
        }
    }

    /// The records of some kinds, found through the index.
    fn find(
        &self,
        wanted: &[sessionlog::codec::ids::KindNo],
    ) -> Result<(Vec<Event>, BTreeMap<NodeId, u64>), TargetError> {
        let mut events = Vec::new();
        let mut messages: BTreeMap<NodeId, u64> = BTreeMap::new();
        let Some(log) = self.log() else { return Ok((events, messages)) };
        let mut frames: Vec<(SegmentName, u32)> = Vec::new();
        log.index(&mut |_, entry, segment| {
            if entry.kind == kind::MessageAppended {
                let count = messages.entry(entry.node).or_default();
                *count = count.saturating_add(1);
            }
            if wanted.contains(&entry.kind) && frames.last() != Some(&(segment, entry.frame_offset)) {
                frames.push((segment, entry.frame_offset));
            }
        })?;
        for (segment, offset) in frames {
            let mut failed = None;
            log.read_frame(segment, offset, &mut |record| {
                if wanted.contains(&record.envelope.kind) {
                    match decode(&record) {
                        Ok(event) => events.push(event),
                        Err(error) => failed = Some(error),
                    }
                }
            })?;
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok((events, messages))
    }
}

fn create(store: &Store, created: SessionCreated, at: Option<Timestamp>) -> Result<Session, TargetError> {
    let SessionCreated {
        session_id,
        workspace,
        goal,
        model,
        provider,
        preset,
        tool_registry_hash,
        host,
        imported,
        extra,
        ..
    } = created;
    let new = NewSession {
        id: Some(session_id),
        goal,
        model,
        provider,
        preset,
        tool_registry_hash,
        host,
        imported,
        created_at: at,
        extra,
    };
    Ok(store.create_foreign(&workspace.0, new)?)
}

impl TargetSession for StoreSession<'_> {
    fn sources(&self) -> Result<Vec<ImportStarted>, TargetError> {
        let (events, _) = self.find(&[kind::ImportStarted])?;
        let started = events.into_iter().filter_map(|event| match event {
            Event::ImportStarted(started) => Some(started),
            _ => None,
        });
        Ok(started.collect())
    }

    fn nodes(&self) -> Result<Vec<KnownNode>, TargetError> {
        let (events, messages) = self.find(&[kind::NodeOpened, kind::NodeSettled])?;
        let last = |node: NodeId| MessageNo(messages.get(&node).copied().unwrap_or(0));
        let root = KnownNode {
            node: NodeId::ROOT,
            source_id: None,
            settled: false,
            last_message: last(NodeId::ROOT),
        };
        let mut nodes = vec![root];
        for event in &events {
            if let Event::NodeOpened(opened) = event {
                let (node, source_id) = (opened.child, opened.source_id.clone());
                nodes.push(KnownNode { node, source_id, settled: false, last_message: last(node) });
            }
        }
        // A `node.settled` carries its node in the envelope only.
        if let Some(log) = self.log() {
            let mut settled = Vec::new();
            log.index(&mut |_, entry, _| {
                if entry.kind == kind::NodeSettled {
                    settled.push(entry.node);
                }
            })?;
            for node in &mut nodes {
                node.settled = settled.contains(&node.node);
            }
        }
        Ok(nodes)
    }

    fn raws(
        &self,
        source: SourceNo,
    ) -> Result<Box<dyn Iterator<Item = Result<RawRecord, TargetError>> + '_>, TargetError> {
        Ok(match self.log() {
            Some(log) => {
                Box::new(Raws { log, source, next: Position(1), ahead: VecDeque::new(), end: End::Ahead })
            }
            None => Box::new(std::iter::empty()),
        })
    }

    fn append(&mut self, frame: Vec<NewEvent>) -> Result<Position, TargetError> {
        let Some(store) = self.store else {
            let first = self.next;
            let records = u64::try_from(frame.len()).unwrap_or(u64::MAX);
            self.next = Position(first.0.saturating_add(records));
            return Ok(first);
        };
        Ok(self.owned(store)?.append_batch(frame, Durability::Buffered)?.first)
    }

    fn finish(self: Box<Self>) -> Result<(), TargetError> {
        if let State::Owned(session) = self.state {
            session.close()?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Ahead,
    Reached,
}

/// The raw records of one source, read some way ahead.
struct Raws {
    log: LogReader,
    source: SourceNo,
    next: Position,
    ahead: VecDeque<RawRecord>,
    end: End,
}

impl Raws {
    fn read_ahead(&mut self) -> Result<(), TargetError> {
        let Self { log, source, next, ahead, end } = self;
        let mut bytes = 0_usize;
        let mut failed: Option<TargetError> = None;
        *end = End::Reached;
        log.read(*next, &mut |item| {
            let record = match item {
                ReadItem::Record(record) => record,
                ReadItem::Gap(gap) => {
                    failed = Some(format!("the session's log is damaged: {}", gap.explanation).into());
                    return ControlFlow::Break(());
                }
            };
            *next = Position(record.position.0.saturating_add(1));
            if record.envelope.kind == kind::ImportedRaw {
                match decode(&record) {
                    Ok(Event::ImportedRaw(raw)) if raw.source_no == *source => {
                        bytes = bytes.saturating_add(raw.bytes.0.len());
                        ahead.push_back(RawRecord { position: record.position, raw });
                    }
                    Ok(_) => {}
                    Err(error) => failed = Some(error),
                }
            }
            if bytes >= READ_AHEAD || failed.is_some() {
                *end = End::Ahead;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        failed.map_or(Ok(()), Err)
    }
}

impl Iterator for Raws {
    type Item = Result<RawRecord, TargetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ahead.is_empty()
            && self.end == End::Ahead
            && let Err(error) = self.read_ahead()
        {
            self.end = End::Reached;
            return Some(Err(error));
        }
        self.ahead.pop_front().map(Ok)
    }
}

fn decode(record: &Record<'_>) -> Result<Event, TargetError> {
    let envelope = &record.envelope;
    Event::decode(envelope.kind, envelope.schema, record.payload).map_err(|error| {
        format!("the record at position {} does not decode: {error}", record.position).into()
    })
}
