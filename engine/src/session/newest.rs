//! The end of a transcript, without its beginning: what a person is shown when a session is opened.

use std::ops::ControlFlow;

use sessionlog_codec::event::{Event, LoggedEvent};
use sessionlog_codec::ids::{NodeId, Position};
use sessionlog_projections::{Mark, Projection, TranscriptEntry, TreeState};

use super::SessionReader;
use super::events::{EventItem, event_item};
use crate::error::{ErrorKind, Result};
use crate::log::{Cursor, DurableEnd, ReadItem};
use crate::num::to_u64;

/// How many records are read at first for each entry that is asked for; twice as many each time that they were too few.
const RECORDS_PER_ENTRY: u64 = 2;

impl SessionReader {
    /// The newest entries of a conversation's transcript, at most `limit` of them, oldest first: the end of what
    /// [`tree`](Self::tree) gives, for the price of what is given. Where the end says too little of itself (a rewind to
    /// what came before it, a result of an older call), more is read, at last all.
    ///
    /// # Errors
    /// As [`events`](Self::events). Records that can't be read are left out.
    pub fn newest(&self, node: NodeId, limit: usize) -> Result<Vec<TranscriptEntry>> {
        let known = self.snapshots().end(self.log())?;
        let next = match &known {
            Some((end, _)) => end.mark.next,
            None => self.log().mark()?.map_or(Position::START, |mark| mark.next),
        };
        let mut back = to_u64(limit).saturating_mul(RECORDS_PER_ENTRY).max(1);
        loop {
            let from = Position(next.0.saturating_sub(back).max(1));
            let mut end = End::new(node, from);
            self.fold_end(known.as_ref(), from, &mut end)?;
            if let Some(entries) = end.entries(limit) {
                return Ok(entries);
            }
            back = back.saturating_mul(2);
        }
    }

    /// Folds the log from `from` on: by what a snapshot tells of its end, as far as that goes.
    fn fold_end(&self, known: Option<&(DurableEnd, Cursor)>, from: Position, end: &mut End) -> Result<()> {
        if let Some((place, cursor)) = known.filter(|(place, _)| place.first_recent() <= from) {
            let read = self.log().read_recent(place, from, &mut |record| {
                end.take(event_item(&record));
            });
            match read {
                Ok(()) => {
                    cursor.clone().advance(&mut |item| {
                        if let ReadItem::Record(record) = item {
                            end.take(event_item(&record));
                        }
                        ControlFlow::Continue(())
                    })?;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Corrupt => *end = End::new(end.node, from),
                Err(error) => return Err(error),
            }
        }
        self.events(from, &mut |item| {
            end.take(item);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }
}

/// A log's end, folded as if nothing were before it.
struct End {
    node: NodeId,
    from: Position,
    tree: TreeState,
    /// Whether the head went to a place before it.
    leads_back: bool,
}

impl End {
    fn new(node: NodeId, from: Position) -> Self {
        Self { node, from, tree: TreeState::default(), leads_back: false }
    }

    fn take(&mut self, item: EventItem) {
        let EventItem::Event(event) = item else { return };
        let LoggedEvent { node, .. } = *event;
        let leads_back = match &event.event {
            Event::HeadMoved(moved) => moved.to < self.from && moved.to != Position::START,
            // Which call a result answers that can't be read, depends on all that are open.
            Event::Erased { .. } | Event::Unknown(_) => true,
            _ => false,
        };
        self.leads_back |= leads_back && node == self.node;
        self.tree.apply(&event);
    }

    /// The last entries, if they would be the same with all that came before.
    fn entries(self, limit: usize) -> Option<Vec<TranscriptEntry>> {
        let mut entries = self.tree.transcript(self.node);
        let is_whole = self.from == Position(1);
        if !is_whole && (self.leads_back || entries.len() < limit) {
            return None;
        }
        let first = entries.len().saturating_sub(limit);
        let last = entries.split_off(first);
        let is_certain = |entry: &TranscriptEntry| entry.mark != Mark::Orphan;
        (is_whole || last.iter().all(is_certain)).then_some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversation that has fewer entries than are asked for is read whole.
    #[test]
    fn too_little_is_not_enough() {
        assert_eq!(End::new(NodeId::ROOT, Position(2)).entries(1), None);
        assert_eq!(End::new(NodeId::ROOT, Position(1)).entries(1), Some(Vec::new()));
    }
}
