//! A place in a log to go on reading from.
//!
//! What was given is remembered as a place in a file and the chain hash there. So going on costs what is new: the frame
//! before is looked at, to see that it still is what was given, and then what stands behind it is read. Only where that
//! does not lead on (another segment, another file in the segment's place, bad bytes) a segment is read as a whole.

mod behind;
mod reading;

use std::collections::VecDeque;
use std::ops::ControlFlow;

use sessionlog_codec::footer::LOCATOR_LEN;
use sessionlog_codec::frame::{Frame, FrameHeader, KIND_FOOTER, KIND_RECORDS};
use sessionlog_codec::ids::{Digest, Position};
use sessionlog_codec::limits::{FRAME_HEADER_LEN, SEGMENT_HEADER_LEN};
use sessionlog_codec::segment::SegmentHeader;

use reading::{Located, Next, Reading, WINDOW_MIN};

use super::reader::{Found, Gap, LogReader, ReadItem, TailState};
use super::recovery::TornTail;
use super::scan::FrameEnd;
use super::segment::SegmentName;
use crate::error::{Error, ErrorKind, Result};
use crate::num::{to_u64, to_usize};

/// A frame that ends within so many bytes is read again with what is behind it: one read less.
const REREAD_MAX: u64 = 4 << 10;

/// A place in a log to go on reading from. Each record is given once, in order, over any number of calls while the log
/// grows, rolls and changes owners. Its [`position`](Self::position) is all that has to be kept to go on in another process.
/// A call costs what is new in the log, and not what was read before.
///
/// It sees records when they are written, which may be before they are durable. Such a record can be withdrawn: its writer
/// failed and took it back, or power was lost. Then the next call begins again with the first position that was withdrawn, if
/// there is a record again: so who is given a position that is not greater than the one before has to forget what it was given
/// from there on. [`durable`](Self::durable) tells what is never withdrawn. [`LogFollower`](super::LogFollower) says all this
/// as items, and waits for what is new.
#[derive(Clone, Debug)]
pub struct Cursor {
    log: LogReader,
    /// The record that is given next.
    next: Position,
    /// Where the last frame ends that is never withdrawn.
    base: Boundary,
    /// The ends of the frames behind it that were given, in order. They are all of one segment: sealing it proves them.
    unproven: VecDeque<Boundary>,
    durable: Position,
    anchor: Option<Anchor>,
    begun: bool,
    /// The last damage that was given: where in which segment, and the first position that it hurts.
    gap: Option<(SegmentName, u64, Position)>,
}

/// The end of a frame: where the next one begins, and the chain hash, if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Boundary {
    next: Position,
    chain: Option<Digest>,
}

/// A place in a segment.
#[derive(Clone, Debug)]
struct Anchor {
    name: SegmentName,
    header: SegmentHeader,
    /// Where the last frame of records stands, in bytes; `None` if there is none.
    frame: Option<u64>,
    /// Where to go on, and what has to follow.
    end: FrameEnd,
}

/// How much is looked at where nothing new was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The file and the name of the next one: enough after something changed.
    Near,
    /// All names, and bad bytes: whether they are damage.
    Wide,
}

/// One thing that a step comes across.
pub(super) enum Step<'a> {
    /// A frame with records from `from` on that were not given yet.
    Frame { frame: &'a Frame<'a>, from: Position },
    /// Records that are hurt.
    Gap(Gap),
    /// What was given from this position on is not in the log any more.
    Retracted { from: Position },
}

/// What the receiver of a step wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visited {
    /// More.
    Whole,
    /// More, at another time.
    Enough,
    /// It took the records before this one.
    Until(Position),
}

/// What a step led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Further: there may be more.
    Moved,
    /// The receiver had enough.
    Stopped,
    /// Nowhere: this is how the log ends.
    Idle(TailState),
    /// There is no log.
    NoLog,
}

/// What stands behind a place.
enum Ahead {
    Moved,
    Stopped,
    /// Nothing yet.
    Nothing,
    /// No whole frame.
    Bad,
    /// The footer: the segment is sealed.
    Sealed,
    /// The place is not what it was.
    Changed,
}

type Visit<'v> = &'v mut dyn FnMut(Step<'_>) -> Visited;

impl LogReader {
    /// A cursor that begins with the record at `from`.
    #[must_use]
    pub fn cursor(&self, from: Position) -> Cursor {
        let next = from.max(Position(1));
        Cursor {
            log: self.clone(),
            next,
            base: Boundary { next, chain: None },
            unproven: VecDeque::new(),
            durable: Position::START,
            anchor: None,
            begun: false,
            gap: None,
        }
    }
}

impl Cursor {
    /// The record that is read next.
    #[must_use]
    pub fn position(&self) -> Position {
        self.next
    }

    /// The last position that is proven to be durable, by what was read so far: a later frame says so, or its segment is
    /// sealed. What was given up to it is never withdrawn.
    #[must_use]
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// Gives every record that is there and was not given yet to `visit`, until it breaks off. A record that it broke off
    /// at counts as given. Damage is given once.
    ///
    /// # Errors
    /// As [`LogReader::read`]; `Conflict` if there is another log in the place of the one that was read. Nothing is skipped:
    /// the next call goes on where this one stopped.
    pub fn advance(&mut self, visit: &mut dyn FnMut(ReadItem<'_>) -> ControlFlow<()>) -> Result<TailState> {
        loop {
            let progress = self.step(Look::Wide, &mut |step| match step {
                Step::Retracted { .. } => Visited::Whole,
                Step::Gap(gap) => {
                    if visit(ReadItem::Gap(gap)).is_break() {
                        Visited::Enough
                    } else {
                        Visited::Whole
                    }
                }
                Step::Frame { frame, from } => {
                    for record in frame.records().iter().filter(|record| record.position >= from) {
                        if visit(ReadItem::Record(record.clone())).is_break() {
                            return Visited::Until(record.position.next().unwrap_or(record.position));
                        }
                    }
                    Visited::Whole
                }
            })?;
            match progress {
                Progress::Moved => {}
                Progress::Stopped => return Ok(TailState::Clean),
                Progress::Idle(tail) => return Ok(tail),
                Progress::NoLog => return self.log.segments().map(|_| TailState::Clean),
            }
        }
    }

    /// Goes on by what can be had at once: some frames behind the place, or a segment.
    pub(super) fn step(&mut self, look: Look, visit: Visit<'_>) -> Result<Progress> {
        if let Some(anchor) = self.anchor.clone() {
            match self.ahead(anchor, visit)? {
                Ahead::Moved => return Ok(Progress::Moved),
                Ahead::Stopped => return Ok(Progress::Stopped),
                Ahead::Nothing | Ahead::Sealed => match self.goes_on(look) {
                    Ok(true) => {}
                    Ok(false) => return Ok(Progress::Idle(TailState::Clean)),
                    Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Progress::NoLog),
                    Err(error) => return Err(error),
                },
                Ahead::Bad if look == Look::Near && !self.next_segment_exists()? => {
                    return Ok(Progress::Idle(self.torn()));
                }
                Ahead::Bad | Ahead::Changed => {}
            }
        }
        self.segment(visit)
    }

    /// Whether there was a log to read.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Forgets where it is, and says what is withdrawn with it: for a log that has no segment any more.
    pub(super) fn lose_all(&mut self) -> Option<Position> {
        self.anchor = None;
        self.retract(0)
    }

    /// Bytes of an append under way, or of one that a crash cut short, as far as they were looked at.
    fn torn(&self) -> TailState {
        let offset = self.anchor.as_ref().map_or(0, |anchor| to_u64(anchor.end.offset));
        let error = "no whole frame yet".to_owned();
        TailState::Torn(TornTail { offset, len: 0, later_frames: 0, error })
    }

    /// Whether there is something behind the end of what was read of a segment.
    fn goes_on(&self, look: Look) -> Result<bool> {
        if look == Look::Near {
            return self.next_segment_exists();
        }
        let last = self.log.dir().list()?.last().map(|(name, _)| *name);
        Ok(last != self.anchor.as_ref().map(|anchor| anchor.name))
    }

    fn next_segment_exists(&self) -> Result<bool> {
        let Some(anchor) = &self.anchor else { return Ok(true) };
        // A segment without a record is followed by none.
        if anchor.end.next == anchor.name.0 {
            return Ok(false);
        }
        let (dir, name) = (self.log.dir(), SegmentName(anchor.end.next));
        let path = dir.segment_path(name);
        let entry = dir.storage.entry(&path).map_err(|e| Error::io("looking at", &path, e))?;
        Ok(entry.is_some())
    }

    /// Reads what is behind a place, if the place is still what it was.
    fn ahead(&mut self, anchor: Anchor, visit: Visit<'_>) -> Result<Ahead> {
        let bytes = match self.behind(&anchor) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Ahead::Changed),
            // Removed, or the whole log was.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ahead::Changed),
            Err(error) => return Err(error),
        };
        let mut reading = Reading { name: anchor.name, start: anchor.end.offset, bytes, asked: WINDOW_MIN };
        let mut anchor = anchor;
        let mut moved = false;
        loop {
            match reading.frame(self.log.dir(), &anchor)? {
                Next::Frame(at) => {
                    let Some(frame) = reading.decode(at, anchor.header.salt) else { return Ok(Ahead::Bad) };
                    match self.take(&mut anchor, &frame, reading.locator(&frame, at), visit) {
                        Taken::Given(Visited::Whole) => moved = true,
                        Taken::Given(_) => return Ok(Ahead::Stopped),
                        Taken::Sealed => return Ok(if moved { Ahead::Moved } else { Ahead::Sealed }),
                        Taken::Not(ahead) if !moved => return Ok(ahead),
                        Taken::Not(_) => return Ok(Ahead::Moved),
                    }
                }
                Next::Nothing if !moved => return Ok(Ahead::Nothing),
                Next::Bad if !moved => return Ok(Ahead::Bad),
                Next::Nothing | Next::Bad => return Ok(Ahead::Moved),
            }
        }
    }

    /// The first bytes behind a place; `None` if the place is not what it was.
    fn behind(&self, anchor: &Anchor) -> Result<Option<Vec<u8>>> {
        let (dir, end) = (self.log.dir(), to_u64(anchor.end.offset));
        let (at, len) = match anchor.frame {
            Some(frame) => (frame, FRAME_HEADER_LEN),
            None => (0, SEGMENT_HEADER_LEN),
        };
        let between = end.saturating_sub(at);
        let is_same = |bytes: &[u8]| match anchor.frame {
            Some(_) => FrameHeader::decode(bytes, anchor.header.salt).is_ok_and(|header| {
                header.chain == anchor.end.chain && header.fields.next_position() == anchor.end.next
            }),
            None => bytes.get(..len) == Some(anchor.header.encode().as_slice()),
        };
        if between > REREAD_MAX {
            let seen = dir.read(anchor.name, at, to_u64(len))?;
            return if is_same(&seen) {
                dir.read(anchor.name, end, to_u64(WINDOW_MIN)).map(Some)
            } else {
                Ok(None)
            };
        }
        let mut bytes = dir.read(anchor.name, at, between.saturating_add(to_u64(WINDOW_MIN)))?;
        if !is_same(&bytes) || bytes.len() < to_usize(between) {
            return Ok(None);
        }
        Ok(Some(bytes.split_off(to_usize(between))))
    }

    /// Takes one frame that stands behind a place, if it follows.
    fn take(&mut self, anchor: &mut Anchor, frame: &Frame<'_>, locator: Located, visit: Visit<'_>) -> Taken {
        let (header, fields) = (frame.header(), &frame.header().fields);
        if fields.first_position != anchor.end.next || fields.epoch < anchor.end.epoch {
            return Taken::Not(Ahead::Changed);
        }
        let offset = anchor.end.offset;
        let follows = match (fields.kind, locator) {
            (KIND_RECORDS, _) => frame.chain_after(&anchor.end.chain) == header.chain,
            (KIND_FOOTER, Located::No) => return Taken::Not(Ahead::Bad),
            (KIND_FOOTER, Located::Yes) => header.chain == anchor.end.chain,
            _ => true,
        };
        if !follows {
            return Taken::Not(Ahead::Changed);
        }
        anchor.pass(offset, frame);
        self.anchor = Some(anchor.clone());
        match fields.kind {
            KIND_RECORDS => Taken::Given(self.give(frame, Position(1), visit)),
            KIND_FOOTER => {
                self.prove(Position(fields.first_position.0.saturating_sub(1)));
                Taken::Sealed
            }
            _ => {
                self.witness(frame);
                Taken::Given(Visited::Whole)
            }
        }
    }

    /// Gives a new frame of records, and notes what it says.
    fn give(&mut self, frame: &Frame<'_>, from: Position, visit: Visit<'_>) -> Visited {
        let header = frame.header();
        let after = header.fields.next_position();
        let mut visited = Visited::Whole;
        if after > self.base.next {
            self.unproven.push_back(Boundary { next: after, chain: Some(header.chain) });
        }
        if after > self.next {
            let from = from.max(self.next);
            visited = visit(Step::Frame { frame, from });
            self.next = if let Visited::Until(next) = visited { next } else { after };
        }
        self.witness(frame);
        visited
    }

    fn witness(&mut self, frame: &Frame<'_>) {
        let fields = &frame.header().fields;
        self.prove(fields.synced.min(Position(fields.first_position.0.saturating_sub(1))));
    }

    /// What was given up to `last` is never withdrawn.
    fn prove(&mut self, last: Position) {
        self.durable = self.durable.max(last);
        while let Some(proven) =
            self.unproven.front().filter(|given| given.next.0.saturating_sub(1) <= self.durable.0)
        {
            self.base = *proven;
            self.unproven.pop_front();
        }
    }

    /// Takes back all but `kept` of the frames that were given and not proven. From where on, if that is anything.
    fn retract(&mut self, kept: usize) -> Option<Position> {
        if kept >= self.unproven.len() {
            return None;
        }
        self.unproven.truncate(kept);
        let from = self.unproven.back().unwrap_or(&self.base).next;
        self.gap = None;
        let is_given = from < self.next;
        self.next = self.next.min(from);
        is_given.then_some(from)
    }

    /// Reads the segment that the last proven frame ends in, compares it with what was given, and gives what is new.
    fn segment(&mut self, visit: Visit<'_>) -> Result<Progress> {
        let log = self.log.clone();
        let was = self.anchor.as_ref().map(|anchor| (anchor.name, anchor.end.clone()));
        let mut comparing =
            Comparing { same: 0, visited: Visited::Whole, diverged: false, moved: false, name: None };
        let walked = log.walk(self.base.next, 1, &mut |found| comparing.found(self, found, visit));
        let walked = match walked {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Progress::NoLog),
            walked => walked?,
        };
        if comparing.diverged {
            let message = format!(
                "{}: the log at position {} is not the one that was read: it was restored from a copy, or removed and begun anew",
                self.log.dir().segments.display(),
                self.base.next
            );
            return Err(Error::new(ErrorKind::Conflict, "log.diverged", message));
        }
        if comparing.visited != Visited::Whole {
            return Ok(Progress::Stopped);
        }
        // Newer frames hide what is behind them.
        if !matches!(walked.tail, TailState::Newer(_)) {
            comparing.end(self, visit);
        }
        if let Some(following) = walked.following {
            self.prove(Position(following.0.0.saturating_sub(1)));
            if self.base.next < following.0 {
                self.base = Boundary { next: following.0, chain: None };
            }
            self.next = self.next.max(following.0);
            return Ok(if matches!(walked.tail, TailState::Newer(_)) {
                Progress::Idle(walked.tail)
            } else {
                Progress::Moved
            });
        }
        if comparing.name.is_none() {
            // The segment has no header to go on from.
            self.anchor = None;
        }
        let is = self.anchor.as_ref().map(|anchor| (anchor.name, anchor.end.clone()));
        Ok(if comparing.moved || is != was { Progress::Moved } else { Progress::Idle(walked.tail) })
    }
}

/// What became of a frame behind a place.
enum Taken {
    Given(Visited),
    Sealed,
    Not(Ahead),
}

impl Anchor {
    fn begin(name: SegmentName, header: &SegmentHeader) -> Self {
        Self { name, header: header.clone(), frame: None, end: FrameEnd::of_header(header) }
    }

    /// Goes behind a frame that stands at `offset`.
    fn pass(&mut self, offset: usize, frame: &Frame<'_>) {
        let end = FrameEnd::of_frame(offset, frame);
        match frame.header().fields.kind {
            KIND_RECORDS => {
                self.frame = Some(to_u64(offset));
                self.end = end;
            }
            KIND_FOOTER => self.end.offset = end.offset.saturating_add(LOCATOR_LEN),
            // No part of the chain.
            _ => self.end.offset = end.offset,
        }
    }
}

/// The comparison of a segment with what was given.
struct Comparing {
    /// How many of the unproven frames are there.
    same: usize,
    visited: Visited,
    diverged: bool,
    moved: bool,
    name: Option<SegmentName>,
}

impl Comparing {
    fn found(&mut self, cursor: &mut Cursor, found: Found<'_>, visit: Visit<'_>) -> ControlFlow<()> {
        match found {
            Found::Segment { name, header } => {
                self.name = Some(name);
                cursor.begun = true;
                let is_other = cursor.base.chain.is_some_and(|chain| chain != header.previous);
                self.diverged = name.0 == cursor.base.next && is_other;
                cursor.anchor = Some(Anchor::begin(name, header));
            }
            Found::Gap(gap) => self.gap(cursor, gap, visit),
            Found::Frame { offset, frame, from } => {
                if let Some(anchor) = &mut cursor.anchor {
                    anchor.pass(offset, frame);
                }
                if frame.header().fields.kind == KIND_RECORDS {
                    self.frame(cursor, frame, from, visit);
                } else {
                    cursor.witness(frame);
                }
            }
        }
        if self.diverged || self.visited != Visited::Whole {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn frame(&mut self, cursor: &mut Cursor, frame: &Frame<'_>, from: Position, visit: Visit<'_>) {
        let header = frame.header();
        let end = Boundary { next: header.fields.next_position(), chain: Some(header.chain) };
        let base = cursor.base;
        if header.fields.first_position < base.next && base.chain.is_some() {
            self.diverged = end.next > base.next || (end.next == base.next && end.chain != base.chain);
        }
        if end.next <= base.next || self.diverged {
            return;
        }
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("follower_skips_after_replace") && end.next <= cursor.next {
            self.same = cursor.unproven.len();
            cursor.witness(frame);
            return;
        }
        // What is hurt between two frames that were given was given too.
        if let Some(nth) = cursor.unproven.iter().skip(self.same).position(|given| *given == end) {
            let before = cursor.unproven.len();
            self.same = self.same.saturating_add(nth).saturating_add(1);
            cursor.witness(frame);
            self.same = self.same.saturating_sub(before.saturating_sub(cursor.unproven.len()));
            return;
        }
        self.end(cursor, visit);
        self.moved = true;
        self.visited = cursor.give(frame, from, visit);
        self.same = cursor.unproven.len();
    }

    /// What was given and did not come is withdrawn.
    fn end(&mut self, cursor: &mut Cursor, visit: Visit<'_>) {
        if let Some(from) = cursor.retract(self.same) {
            self.moved = true;
            visit(Step::Retracted { from });
        }
    }

    fn gap(&mut self, cursor: &mut Cursor, gap: Gap, visit: Visit<'_>) {
        let known = (gap.segment, gap.offset, gap.first);
        let was_given = gap.last.is_some_and(|last| last < cursor.next);
        // Damage withdraws nothing.
        let hurt = |given: &&Boundary| gap.last.is_none_or(|last| given.next.0.saturating_sub(1) <= last.0);
        self.same = self.same.max(cursor.unproven.iter().take_while(hurt).count());
        if was_given || cursor.gap == Some(known) {
            return;
        }
        self.moved = true;
        cursor.gap = Some(known);
        let after = gap.last.and_then(Position::next);
        cursor.next = after.map_or(cursor.next, |after| after.max(cursor.next));
        self.visited = visit(Step::Gap(gap));
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use sessionlog_codec::ids::{KindNo, LogId, NodeId, SchemaVersion, Timestamp};
    use sessionlog_codec::record::Envelope;

    use super::*;
    use crate::log::{Batch, Durability, LogDir, LogOptions, LogWriter, NewRecord};
    use crate::storage::{SimStorage, Storage};

    #[test]
    fn each_record_once_while_the_log_grows_and_rolls() {
        let storage = SimStorage::new();
        storage.create_dir(Path::new("log")).unwrap();
        let dir = LogDir {
            storage: Arc::new(storage),
            segments: PathBuf::from("log"),
            quarantine: PathBuf::from("quarantine"),
        };
        let options = LogOptions { segment_len: 512, fill_len: 512 };
        let writer = LogWriter::create(dir.clone(), options, LogId([1; 16])).unwrap();
        let mut cursor = LogReader::new(dir.clone()).cursor(Position::START);
        let mut seen = Vec::new();
        for n in 0..40_u8 {
            let envelope = Envelope::new(NodeId::ROOT, KindNo(20), SchemaVersion(1), Timestamp(0));
            let record = NewRecord { envelope, payload: vec![n; 40] };
            writer.append(Batch::new(vec![record]).unwrap(), Durability::Buffered).unwrap();
            if n % 3 == 0 {
                cursor
                    .advance(&mut |item| {
                        let ReadItem::Record(record) = item else { panic!("{item:?}") };
                        seen.push(record.position);
                        // A reader that stops anywhere goes on behind it.
                        if n % 2 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    })
                    .unwrap();
            }
        }
        let mut resumed = LogReader::new(dir).cursor(cursor.position());
        resumed
            .advance(&mut |item| {
                let ReadItem::Record(record) = item else { panic!("{item:?}") };
                seen.push(record.position);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(seen, (1..=40).map(Position).collect::<Vec<_>>());
    }
}
