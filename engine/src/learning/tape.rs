//! The fold of a session's log, brought up by reading what is needed of it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use sessionlog_codec::event::LoggedEvent;
use sessionlog_codec::ids::{NodeId, Position};
use sessionlog_codec::record::Record;
use sessionlog_codec::registry::kind;
use sessionlog_projections::learning::{
    Conversations, LearnState, Line, OffSpans, Segment, is_early_kind, is_learn_kind, learned_text,
};

use crate::error::{ErrorKind, Result};
use crate::log::{Cursor, LogReader, ReadItem};
use crate::session::logged;

/// A session's log as learning sees it. Appending costs nothing for it: it reads when it is asked.
#[derive(Debug)]
pub(crate) struct Tape {
    log: LogReader,
    state: LearnState,
    /// Where it goes on; `None`: nothing was read.
    cursor: Option<Cursor>,
}

impl Tape {
    pub(crate) fn new(log: LogReader, conversations: Conversations) -> Self {
        Self { log, state: LearnState::new(conversations), cursor: None }
    }

    pub(crate) fn state(&self) -> &LearnState {
        &self.state
    }

    /// Folds what came since the last time. The first time, it reads the indexes of the log, what they tell of learning, and
    /// from the first message on that is not learned.
    ///
    /// # Errors
    /// `Io` if the log can't be read. What is hurt is not learned from.
    pub(crate) fn catch_up(&mut self) -> Result<()> {
        match self.go_on() {
            // There is another log in the place of the one that was read.
            Err(error) if error.kind() == ErrorKind::Conflict => {
                *self = Self::new(self.log.clone(), self.state.conversations());
                self.go_on()
            }
            other => other,
        }
    }

    fn go_on(&mut self) -> Result<()> {
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => self.begin()?,
        };
        let state = &mut self.state;
        cursor.advance(&mut |item| {
            if let ReadItem::Record(record) = item
                && is_learn_kind(record.envelope.kind)
            {
                fold(state, &record);
            }
            ControlFlow::Continue(())
        })?;
        self.cursor = Some(cursor);
        Ok(())
    }

    /// Folds what there is, and gives what follows it.
    fn begin(&mut self) -> Result<Cursor> {
        let mut early = Vec::new();
        let mut said: Vec<(Position, NodeId, bool)> = Vec::new();
        let mut end = Position::START;
        self.log.index(&mut |position, entry, _| {
            end = end.max(position);
            if is_early_kind(entry.kind) {
                early.push(position);
            }
            if matches!(entry.kind, kind::MessageAppended | kind::TaskCompleted) {
                said.push((position, entry.node, entry.kind == kind::TaskCompleted));
            }
        })?;
        let mut state = LearnState::new(self.state.conversations());
        match self.log.read_at(&early, &mut |record| fold(&mut state, &record)) {
            Ok(()) => {}
            // Records of it can't be read: what there is counts, from the beginning.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.state = LearnState::new(self.state.conversations());
                return Ok(self.log.cursor(Position(1)));
            }
            Err(error) => return Err(error),
        }
        let start = state.start();
        let before = said.into_iter().filter(|(position, ..)| *position < start);
        let last: BTreeMap<NodeId, bool> = before.map(|(_, node, is_task)| (node, is_task)).collect();
        last.into_iter().filter(|(_, is_task)| *is_task).for_each(|(node, _)| state.begin_after_task(node));
        self.log.read(start, &mut |item| {
            if let ReadItem::Record(record) = item {
                if record.position > end {
                    return ControlFlow::Break(());
                }
                let kind = record.envelope.kind;
                if is_learn_kind(kind) && !is_early_kind(kind) {
                    fold(&mut state, &record);
                }
            }
            ControlFlow::Continue(())
        })?;
        self.state = state;
        Ok(self.log.cursor(after(end)))
    }

    /// What a segment's job reads, as the log has it now.
    ///
    /// # Errors
    /// `Corrupt` if a record that is to be read is hurt; `Io` if the log can't be read.
    pub(crate) fn lines(&self, segment: &Segment, off: &OffSpans) -> Result<Vec<Line>> {
        let sources = self.state.sources(segment, off);
        let mut wanted: Vec<Position> = sources.iter().flat_map(|(positions, _)| positions.clone()).collect();
        wanted.sort_unstable();
        let mut texts: BTreeMap<Position, String> = BTreeMap::new();
        self.log.read_at(&wanted, &mut |record| {
            let text = logged(&record).ok().and_then(|LoggedEvent { event, .. }| learned_text(&event));
            texts.extend(text.map(|text| (record.position, text)));
        })?;
        let line = |(positions, speaker): (Vec<Position>, _)| {
            let pieces = positions.iter().filter_map(|position| texts.get(position).cloned());
            let text = pieces.collect::<Vec<_>>().join("\n\n");
            let position = positions.first().copied()?;
            (!text.is_empty()).then_some(Line { position, speaker, text })
        };
        Ok(sources.into_iter().filter_map(line).collect())
    }
}

fn fold(state: &mut LearnState, record: &Record<'_>) {
    if let Ok(event) = logged(record) {
        state.apply(&event);
    }
}

fn after(position: Position) -> Position {
    Position(position.0.saturating_add(1))
}
