//! What an owner keeps in memory of its session: a fold of the log, kept up with each append.

use std::collections::HashMap;
use std::ops::ControlFlow;

use sessionlog_codec::event::{Event, LoggedEvent, NewEvent};
use sessionlog_codec::ids::{IdempotencyKey, MessageNo, NodeId, Position};
use sessionlog_codec::record::{Criticality, Record};
use sessionlog_projections::compaction::{Calibration, RunningChildren};
use sessionlog_projections::questions::Questions;
use sessionlog_projections::recovery::RecoveryState;
use sessionlog_projections::render::Replay;
use sessionlog_projections::{Ledger, Projection, Summary, TreeState};

use super::erasure::Erasures;
use super::views::Views;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{LogReader, ReadItem};

/// What an append under an idempotency key gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keyed {
    pub(crate) first: Position,
    pub(crate) message_no: Option<MessageNo>,
}

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

/// The folds.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) next: Position,
    pub(crate) recovery: RecoveryState,
    pub(crate) summary: Summary,
    pub(crate) calibration: Calibration,
    pub(crate) running: RunningChildren,
    pub(crate) questions: Questions,
    pub(crate) erasures: Erasures,
    /// The root's current run, in the host's words.
    pub(crate) run_id: Option<String>,
    /// What was said: only once somebody asks for it.
    content: Option<Box<Content>>,
    pub(crate) keys: HashMap<IdempotencyKey, Keyed>,
    pub(crate) views: Views,
    pub(crate) freshness: Freshness,
}

impl State {
    pub(crate) fn new(views: Views) -> Self {
        Self {
            next: Position(1),
            recovery: RecoveryState::default(),
            summary: Summary::default(),
            calibration: Calibration::default(),
            running: RunningChildren::default(),
            questions: Questions::default(),
            erasures: Erasures::default(),
            run_id: None,
            content: None,
            keys: HashMap::new(),
            views,
            freshness: Freshness::Current,
        }
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
        let mut failure = None;
        log.read(Position(1), &mut |item| {
            let first = match &item {
                ReadItem::Record(record) => record.position,
                ReadItem::Gap(gap) => gap.first,
            };
            if first > last {
                return ControlFlow::Break(());
            }
            match self.fold_item(item) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failure.map_or(Ok(()), Err)
    }

    fn fold_item(&mut self, item: ReadItem<'_>) -> Result<()> {
        match item {
            ReadItem::Record(record) => {
                let key = record.envelope.key;
                let event = logged(&record)?;
                if let Some(key) = key {
                    self.remember_key(key, &event);
                }
                self.apply(&event);
                Ok(())
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

    pub(crate) fn remember_key(&mut self, key: IdempotencyKey, event: &LoggedEvent) {
        let message_no = match &event.event {
            Event::MessageAppended(message) => Some(message.message_no),
            _ => None,
        };
        self.keys.entry(key).or_insert(Keyed { first: event.position, message_no });
    }

    pub(crate) fn apply(&mut self, event: &LoggedEvent) {
        self.recovery.apply(event);
        self.summary.apply(event);
        self.calibration.apply(event);
        self.running.apply(event);
        self.questions.apply(event);
        self.erasures.apply(event);
        if let Event::RunStarted(run) = &event.event
            && event.node == NodeId::ROOT
        {
            self.run_id = Some(run.run_id.clone());
        }
        if let Some(content) = &mut self.content {
            content.apply(event);
        }
        self.views.apply(event);
        self.next = Position(event.position.0.saturating_add(1));
    }

    /// What appends are checked against.
    pub(crate) fn ledger(&self) -> &Ledger {
        self.recovery.ledger()
    }

    /// Whether the content is folded: then it is kept up, and asking for it reads nothing.
    pub(crate) fn has_content(&self) -> bool {
        self.content.is_some()
    }

    /// What was said, folded from the log the first time.
    pub(crate) fn content(&mut self, log: &LogReader) -> Result<&Content> {
        let content = match self.content.take() {
            Some(content) => content,
            None => fold_content(log, self.next)?,
        };
        Ok(self.content.insert(content))
    }
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
