//! The end of a transcript, without its beginning: what a person is shown when a session is opened.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use sessionlog_codec::event::Event;
use sessionlog_codec::ids::{NodeId, Position};
use sessionlog_projections::{Mark, Projection, TranscriptEntry, TreeState};

use super::SessionReader;
use super::events::{EventItem, event_item, read_item};
use crate::error::{ErrorKind, Result};
use crate::log::{Cursor, DurableEnd};
use crate::num::to_u64;

/// How many records more are read at least, where those that were read were too few.
const RECORDS_MORE: u64 = 16;
/// How many records are read at first for each entry that is asked for, where no snapshot tells where they are.
const RECORDS_PER_ENTRY: u64 = 2;

impl SessionReader {
    /// The newest entries of a conversation's transcript, at most `limit` of them, oldest first: the end of what
    /// [`tree`](Self::tree) gives, for the price of what is given. Where the end says too little of itself (a rewind to
    /// what came before it, a result of an older call), more is read, at last all.
    ///
    /// # Errors
    /// As [`events`](Self::events). Records that can't be read are left out.
    pub fn newest(&self, node: NodeId, limit: usize) -> Result<Vec<TranscriptEntry>> {
        let mut back = to_u64(limit).max(1);
        if let Some(mut end) = self.known_end()? {
            while end.reach_back(self, back)? {
                if let Some(entries) = end.fold(node).entries(limit) {
                    return Ok(entries);
                }
                back = back.saturating_add(back.div_ceil(2).max(RECORDS_MORE));
            }
        }
        let next = self.next_at_least()?;
        let mut back = back.saturating_mul(RECORDS_PER_ENTRY);
        loop {
            let mut folded = Folded::new(node, Position(next.0.saturating_sub(back).max(1)));
            self.events(folded.from, &mut |item| {
                folded.take(&item);
                ControlFlow::Continue(())
            })?;
            if let Some(entries) = folded.entries(limit) {
                return Ok(entries);
            }
            back = back.saturating_mul(2);
        }
    }

    /// The newest records of the whole tree as events, at most `limit` of them, oldest first: the end of what
    /// [`events`](Self::events) gives, for the price of what is given.
    ///
    /// # Errors
    /// As [`events`](Self::events). Damage is an item.
    pub fn newest_events(&self, limit: usize) -> Result<Vec<EventItem>> {
        let back = to_u64(limit);
        if let Some(mut end) = self.known_end()?
            && end.reach_back(self, back)?
        {
            end.items.drain(..end.items.len().saturating_sub(limit));
            return Ok(end.items.into());
        }
        let from = Position(self.next_at_least()?.0.saturating_sub(back).max(1));
        let mut newest = VecDeque::new();
        self.events(from, &mut |item| {
            newest.push_back(item);
            if newest.len() > limit {
                newest.pop_front();
            }
            ControlFlow::Continue(())
        })?;
        Ok(newest.into())
    }

    /// What came behind the newest snapshot, and where it says that the records before are.
    fn known_end(&self) -> Result<Option<KnownEnd>> {
        let Some((place, mut cursor)) = self.snapshots().end(self.log())? else { return Ok(None) };
        let from = place.mark.next;
        let items = items_behind(&mut cursor)?;
        Ok(Some(KnownEnd { place, next: cursor.position(), from, items }))
    }

    /// The position of the next record, or where its segment begins.
    fn next_at_least(&self) -> Result<Position> {
        let mark = self.log().mark()?;
        let segment =
            || self.log().segments().map(|all| all.last().map_or(Position::START, |(name, _)| name.0));
        mark.map_or_else(segment, |mark| Ok(mark.next))
    }
}

fn items_behind(cursor: &mut Cursor) -> Result<VecDeque<EventItem>> {
    let mut items = VecDeque::new();
    cursor.advance(&mut |item| {
        items.push_back(read_item(item));
        ControlFlow::Continue(())
    })?;
    Ok(items)
}

/// The end of a log whose newest records a snapshot tells the places of, as far as it was read.
struct KnownEnd {
    place: DurableEnd,
    /// Behind its last record.
    next: Position,
    /// Its first record that was read.
    from: Position,
    items: VecDeque<EventItem>,
}

impl KnownEnd {
    /// Reads what is missing of the newest `back` records; `false` if the snapshot does not tell where they are, or they are
    /// not there.
    fn reach_back(&mut self, session: &SessionReader, back: u64) -> Result<bool> {
        let from = Position(self.next.0.saturating_sub(back).max(1));
        if from >= self.from {
            return Ok(true);
        }
        if from < self.place.first_recent() {
            return Ok(false);
        }
        let mut before = Vec::new();
        let read = session.log().read_recent(&self.place, from..self.from, &mut |record| {
            before.push(event_item(&record));
        });
        match read {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(false),
            Err(error) => return Err(error),
        }
        before.into_iter().rev().for_each(|item| self.items.push_front(item));
        self.from = from;
        Ok(true)
    }

    fn fold(&self, node: NodeId) -> Folded {
        let mut folded = Folded::new(node, self.from);
        self.items.iter().for_each(|item| folded.take(item));
        folded
    }
}

/// A log's end, folded as if nothing were before it.
struct Folded {
    node: NodeId,
    from: Position,
    tree: TreeState,
    /// Whether the head went to a place before it.
    leads_back: bool,
}

impl Folded {
    fn new(node: NodeId, from: Position) -> Self {
        Self { node, from, tree: TreeState::default(), leads_back: false }
    }

    fn take(&mut self, item: &EventItem) {
        let EventItem::Event(event) = item else { return };
        let leads_back = match &event.event {
            Event::HeadMoved(moved) => moved.to < self.from && moved.to != Position::START,
            // Which call a result answers that can't be read, depends on all that are open.
            Event::Erased { .. } | Event::Unknown(_) => true,
            _ => false,
        };
        self.leads_back |= leads_back && event.node == self.node;
        self.tree.apply(event);
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
        assert_eq!(Folded::new(NodeId::ROOT, Position(2)).entries(1), None);
        assert_eq!(Folded::new(NodeId::ROOT, Position(1)).entries(1), Some(Vec::new()));
    }
}
