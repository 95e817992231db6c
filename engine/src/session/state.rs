//! What an owner keeps in memory of its session: a fold of the log, kept up with each append.

use std::ops::ControlFlow;

use sessionlog_codec::event::{Event, LoggedEvent, NewEvent};
use sessionlog_codec::ids::{NodeId, Position};
use sessionlog_codec::record::{Criticality, Record};
use sessionlog_projections::render::Replay;
use sessionlog_projections::{Ledger, Projection, TreeState};

use super::folds::Folds;
use super::snapshot::{Loaded, Snapshots};
use super::views::Views;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Cursor, LogReader, ReadItem};

/// Whether the folds agree with the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// They do.
    Current,
    /// An append that they contain failed: they have to be folded anew.
    Stale,
}

/// The folds that keep what was said.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) tree: TreeState,
    pub(crate) replay: Replay,
}

/// How much of the log the folds know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All of it.
    Whole,
    /// What a snapshot keeps, and all that came behind it.
    Bounded,
}

/// The folds.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) next: Position,
    pub(crate) reach: Reach,
    pub(crate) folds: Folds,
    /// What was said: only once somebody asks for it.
    content: Option<(ContentReach, Box<Content>)>,
    pub(crate) views: Views,
    pub(crate) freshness: Freshness,
    /// What the newest snapshot holds, and the file that it is in.
    pub(crate) snapshot: (Position, Option<usize>),
}

/// How much of what was said is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContentReach {
    Whole,
    /// The records of the contexts that the index knows, and all that came later.
    Contexts,
}

/// Which part of what was said somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All of it.
    Everything,
    /// The context of one conversation.
    Context(NodeId),
}

impl State {
    pub(crate) fn new(views: Views) -> Self {
        Self {
            next: Position(1),
            reach: Reach::Whole,
            folds: Folds::default(),
            content: None,
            views,
            freshness: Freshness::Current,
            snapshot: (Position::START, None),
        }
    }

    /// The folds of a log: from a snapshot and what came behind it, or of the whole log.
    ///
    /// # Errors
    /// As [`fold`](Self::fold).
    pub(crate) fn open(views: Views, log: &LogReader, loaded: Option<Loaded>) -> Result<Self> {
        let mut state = match loaded {
            None => Self::new(views),
            Some(loaded) => match Self::go_on(loaded, views)? {
                (state, Folded::All) => return Ok(state),
                (bounded, Folded::ReachedBehind) => {
                    Self { snapshot: bounded.snapshot, ..Self::new(bounded.views) }
                }
            },
        };
        state.fold(log)?;
        Ok(state)
    }

    /// The folds of a log, if they can be had from a snapshot.
    ///
    /// # Errors
    /// As [`fold`](Self::fold), of what came behind the snapshot.
    pub(crate) fn of_snapshot(log: &LogReader, snapshots: &Snapshots) -> Result<Option<Self>> {
        let Some(loaded) = snapshots.load(log)? else { return Ok(None) };
        let (state, folded) = Self::go_on(loaded, Views::default())?;
        Ok((folded == Folded::All).then_some(state))
    }

    fn go_on(loaded: Loaded, views: Views) -> Result<(Self, Folded)> {
        let (mut state, mut cursor) = Self::of(loaded, views);
        let mut outcome = Ok(Folded::All);
        cursor.advance(&mut |item| state.fold_next(item, &mut outcome))?;
        Ok((state, outcome?))
    }

    fn of(loaded: Loaded, views: Views) -> (Self, Cursor) {
        let Loaded { cursor, folds, file, end: _ } = loaded;
        let next = cursor.position();
        let state = Self {
            next,
            reach: Reach::Bounded,
            folds,
            snapshot: (Position(next.0.saturating_sub(1)), Some(file)),
            ..Self::new(views)
        };
        (state, cursor)
    }

    /// Folds the whole log anew.
    ///
    /// # Errors
    /// As [`fold`](Self::fold): the state is as it was.
    pub(crate) fn make_whole(&mut self, log: &LogReader) -> Result<()> {
        let mut whole = Self::new(Views::default());
        whole.fold_until(log, Position(self.next.0.saturating_sub(1)))?;
        whole.next = self.next;
        whole.snapshot = self.snapshot;
        std::mem::swap(&mut whole.views, &mut self.views);
        whole.content = self.content.take();
        *self = whole;
        Ok(())
    }

    /// Folds a whole log.
    ///
    /// # Errors
    /// `Corrupt` if a record can't be read, `Unsupported` if one must be understood and is not: an owner that does not
    /// know all of its log must not add to it.
    pub(crate) fn fold(&mut self, log: &LogReader) -> Result<()> {
        self.fold_until(log, Position(u64::MAX))
    }

    /// Folds a log up to the record at `last`; what is behind it does not matter.
    ///
    /// # Errors
    /// As [`fold`](Self::fold).
    pub(crate) fn fold_until(&mut self, log: &LogReader, last: Position) -> Result<()> {
        self.fold_from(log, Position(1), last).map(drop)
    }

    fn fold_from(&mut self, log: &LogReader, first: Position, last: Position) -> Result<Folded> {
        let mut outcome = Ok(Folded::All);
        log.read(first, &mut |item| {
            let at = match &item {
                ReadItem::Record(record) => record.position,
                ReadItem::Gap(gap) => gap.first,
            };
            if at > last {
                return ControlFlow::Break(());
            }
            self.fold_next(item, &mut outcome)
        })?;
        outcome
    }

    fn fold_next(&mut self, item: ReadItem<'_>, outcome: &mut Result<Folded>) -> ControlFlow<()> {
        match self.fold_item(item) {
            Ok(Folded::All) => ControlFlow::Continue(()),
            other => {
                *outcome = other;
                ControlFlow::Break(())
            }
        }
    }

    fn fold_item(&mut self, item: ReadItem<'_>) -> Result<Folded> {
        match item {
            ReadItem::Record(record) => {
                let key = record.envelope.key;
                let event = logged(&record)?;
                if !self.covers(event.node, &event.event) {
                    return Ok(Folded::ReachedBehind);
                }
                if let Some(key) = key {
                    self.folds.remember_key(key, &event);
                }
                self.apply(&event);
                Ok(Folded::All)
            }
            ReadItem::Gap(gap) => {
                let message = format!(
                    "{} byte {}: {}; `logdump verify` lists all damage",
                    gap.segment, gap.offset, gap.explanation
                );
                Err(Error::new(ErrorKind::Corrupt, "log.damaged", message))
            }
        }
    }

    /// Whether the folds know all that an event speaks of.
    pub(crate) fn covers(&self, node: NodeId, event: &Event) -> bool {
        self.reach == Reach::Whole || self.ledger().covers(node, event)
    }

    pub(crate) fn apply(&mut self, event: &LoggedEvent) {
        self.folds.apply(event);
        if let Some((_, content)) = &mut self.content {
            content.apply(event);
        }
        self.next = Position(event.position.0.saturating_add(1));
    }

    /// What appends are checked against.
    pub(crate) fn ledger(&self) -> &Ledger {
        self.folds.recovery.ledger()
    }

    /// Whether that part of the content is folded: then it is kept up, and asking for it reads nothing.
    pub(crate) fn has_content(&self, wanted: Wanted) -> bool {
        self.content.as_ref().is_some_and(|(reach, _)| self.serves(*reach, wanted))
    }

    /// What was said, folded from the log the first time: of a context, from its own records alone.
    ///
    /// # Errors
    /// `Io` if the log can't be read, `Corrupt` if a record can't.
    pub(crate) fn content(&mut self, log: &LogReader, wanted: Wanted) -> Result<&Content> {
        let content = match self.content.take() {
            Some(content) if self.serves(content.0, wanted) => content,
            _ => match wanted {
                Wanted::Context(node) if self.folds.contexts.knows(node) => {
                    (ContentReach::Contexts, fold_records(log, &self.folds.contexts.positions())?)
                }
                _ => (ContentReach::Whole, fold_content(log, self.next)?),
            },
        };
        Ok(&self.content.insert(content).1)
    }

    fn serves(&self, reach: ContentReach, wanted: Wanted) -> bool {
        match (reach, wanted) {
            (ContentReach::Whole, _) => true,
            (ContentReach::Contexts, Wanted::Everything) => false,
            (ContentReach::Contexts, Wanted::Context(node)) => self.folds.contexts.knows(node),
        }
    }
}

/// What became of folding records into a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Folded {
    All,
    /// An event speaks of something that is left out.
    ReachedBehind,
}

fn fold_content(log: &LogReader, end: Position) -> Result<Box<Content>> {
    let mut content = Box::<Content>::default();
    let mut failure = None;
    log.read(Position(1), &mut |item| {
        if let ReadItem::Record(record) = item {
            if record.position >= end {
                return ControlFlow::Break(());
            }
            match logged(&record) {
                Ok(event) => content.apply(&event),
                Err(error) => {
                    failure = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    })?;
    failure.map_or(Ok(content), Err)
}

fn fold_records(log: &LogReader, positions: &[Position]) -> Result<Box<Content>> {
    let mut content = Box::<Content>::default();
    let mut failure = None;
    log.read_at(positions, &mut |record| match logged(&record) {
        Ok(event) => content.apply(&event),
        Err(error) => failure = failure.take().or(Some(error)),
    })?;
    failure.map_or(Ok(content), Err)
}

impl Projection for Content {
    fn apply(&mut self, event: &LoggedEvent) {
        self.tree.apply(event);
        self.replay.apply(event);
    }
}

/// The event of a record, with its place.
///
/// # Errors
/// `Corrupt` if its payload does not decode; `Unsupported` if it must be understood and is not.
pub(crate) fn logged(record: &Record<'_>) -> Result<LoggedEvent> {
    let envelope = &record.envelope;
    let event = Event::decode(envelope.kind, envelope.schema, record.payload).map_err(|error| {
        let message =
            format!("the record at position {} does not decode as kind {}", record.position, envelope.kind);
        Error::with_source(ErrorKind::Corrupt, "record.damaged", message, error)
    })?;
    if matches!(event, Event::Unknown(_)) && envelope.criticality == Criticality::MustUnderstand {
        let message = format!(
            "the record at position {} (kind {}, version {}) must be understood and is of a newer version",
            record.position, envelope.kind, envelope.schema
        );
        return Err(Error::new(ErrorKind::Unsupported, "record.newer", message));
    }
    Ok(LoggedEvent {
        position: record.position,
        node: envelope.node,
        timestamp: envelope.timestamp,
        time_origin: envelope.time_origin,
        cause: envelope.cause,
        event,
    })
}

/// A new event as it will stand in the log.
pub(crate) fn as_logged(
    new: NewEvent,
    position: Position,
    now: sessionlog_codec::ids::Timestamp,
) -> LoggedEvent {
    let NewEvent { node, timestamp, time_origin, cause, event, .. } = new;
    LoggedEvent { position, node, timestamp: timestamp.unwrap_or(now), time_origin, cause, event }
}
