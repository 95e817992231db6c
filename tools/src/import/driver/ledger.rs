//! What an import keeps book of while it runs: positions of messages, counts, damage, progress.

use std::collections::HashMap;

use sessionlog_codec::event::Event;
use sessionlog_codec::ids::{MessageNo, NodeId, Position};

use crate::import::lines::Record;
use crate::import::mapper::{Anchor, Mapped, Mapper, Stamp};
use crate::import::report::{Damage, ImportReport};
use crate::import::split::What;

/// From here on text that is not UTF-8 could outgrow a payload when it is made UTF-8.
const LOSSY_LEN_MAX: usize = 16 << 20;
/// How often progress is told, in bytes.
const PROGRESS_STEP: u64 = 1 << 20;

pub(super) struct Ledger<'a> {
    pub(super) report: &'a mut ImportReport,
    progress: &'a mut dyn FnMut(u64),
    told: u64,
    /// Where the messages and compactions of each node are; `None` while they wait in a frame.
    anchors: HashMap<NodeId, Vec<Option<Position>>>,
    /// Which anchors wait, and which event of the frame each of them is.
    waiting: Vec<(NodeId, usize, usize)>,
    /// The last messages that the log's own records tell.
    replayed: HashMap<NodeId, MessageNo>,
}

/// What became of a record.
pub(super) enum Seen {
    /// It goes into the log.
    Record(Mapped),
    /// It is nothing that goes into the log.
    Nothing,
    /// It is to be split first.
    Split,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(progress: &'a mut dyn FnMut(u64), report: &'a mut ImportReport) -> Self {
        Self {
            report,
            progress,
            told: 0,
            anchors: HashMap::new(),
            waiting: Vec::new(),
            replayed: HashMap::new(),
        }
    }

    /// Begins with a file at its first byte.
    pub(super) fn begin(&mut self) {
        self.told = 0;
    }

    /// Tells progress, if it is worth a step.
    pub(super) fn tell(&mut self, bytes: u64) {
        if bytes.saturating_sub(self.told) >= PROGRESS_STEP {
            self.tell_all(bytes);
        }
    }

    pub(super) fn tell_all(&mut self, bytes: u64) {
        let new = bytes.saturating_sub(self.told);
        self.told = bytes;
        self.report.bytes += new;
        if new > 0 {
            (self.progress)(new);
        }
    }

    fn damage(&mut self, file: &str, record: &Record<'_>, why: &str) {
        let damage =
            Damage { file: file.to_owned(), line: record.line, offset: record.offset, why: why.to_owned() };
        // A long line comes in pieces, and is damaged once.
        let is_same = |last: &Damage| last.file == damage.file && last.line == damage.line && last.why == why;
        if !self.report.damaged.last().is_some_and(is_same) {
            self.report.damaged.push(damage);
        }
    }

    /// Maps a record and counts it.
    pub(super) fn see(&mut self, file: &str, record: &Record<'_>, mapper: &mut dyn Mapper) -> Seen {
        let of_kind = |kind| Mapped::new(kind, Stamp::default());
        let mapped = match record.what {
            What::Unchecked | What::Value if is_too_long_to_mend(record.bytes) => {
                self.damage(file, record, "not UTF-8, and too long to be mended");
                of_kind("damaged")
            }
            What::Unchecked | What::Value => match mapper.map(record) {
                Ok(mapped) => mapped,
                Err(_) => return Seen::Split,
            },
            What::Damaged(why) => {
                self.damage(file, record, why);
                of_kind("damaged")
            }
            What::TooLong => {
                self.damage(file, record, "longer than a line may be: recorded in pieces, not read");
                of_kind("too-long")
            }
            What::Around => of_kind("document"),
            What::Zeros => {
                self.damage(file, record, "zero bytes, which a crash left: not recorded");
                return Seen::Nothing;
            }
            What::Unterminated => {
                self.damage(file, record, "unterminated: it is imported once it is whole");
                return Seen::Nothing;
            }
        };
        self.count(&mapped);
        Seen::Record(mapped)
    }

    fn count(&mut self, mapped: &Mapped) {
        match self.report.by_kind.get_mut(&*mapped.kind) {
            Some(count) => *count += 1,
            None => drop(self.report.by_kind.insert(mapped.kind.to_string(), 1)),
        }
        for event in &mapped.events {
            match &event.event {
                Event::MessageAppended(_) => self.report.messages += 1,
                Event::CallFinished(_) => self.report.results += 1,
                _ => {}
            }
        }
    }

    /// Takes down what a record in the log was mapped to. Its events follow it directly.
    pub(super) fn replayed(&mut self, raw: Position, mapped: &Mapped) {
        let head = u64::from(mapped.head.is_some());
        for (index, event) in (1 + head..).zip(&mapped.events) {
            let position = raw.0.checked_add(index).map(Position);
            match &event.event {
                Event::MessageAppended(message) => {
                    self.replayed.insert(event.node, message.message_no);
                    self.anchors.entry(event.node).or_default().push(position);
                }
                Event::ContextCompacted(_) => self.anchors.entry(event.node).or_default().push(position),
                _ => {}
            }
        }
    }

    /// The last message of a node that the log's own records tell.
    pub(super) fn last_replayed(&self, node: NodeId) -> MessageNo {
        self.replayed.get(&node).copied().unwrap_or_default()
    }

    /// Takes down an event that goes into the frame that is being filled.
    pub(super) fn waits(&mut self, node: NodeId, event: &Event, index: usize) {
        if matches!(event, Event::MessageAppended(_) | Event::ContextCompacted(_)) {
            let anchors = self.anchors.entry(node).or_default();
            self.waiting.push((node, anchors.len(), index));
            anchors.push(None);
        }
    }

    /// The frame was appended: what waited has its position.
    pub(super) fn appended(&mut self, first: Position) {
        for (node, anchor, index) in self.waiting.drain(..) {
            let index = u64::try_from(index).unwrap_or(u64::MAX);
            if let Some(place) = self.anchors.get_mut(&node).and_then(|anchors| anchors.get_mut(anchor)) {
                *place = first.0.checked_add(index).map(Position);
            }
        }
    }

    /// Where an anchor is; `None` while it waits.
    pub(super) fn position(&self, node: NodeId, anchor: Anchor) -> Option<Position> {
        let Some(index) = anchor.0.checked_sub(1) else { return Some(Position::START) };
        let index = usize::try_from(index).ok()?;
        *self.anchors.get(&node)?.get(index)?
    }
}

fn is_too_long_to_mend(bytes: &[u8]) -> bool {
    bytes.len() > LOSSY_LEN_MAX && std::str::from_utf8(bytes).is_err()
}
