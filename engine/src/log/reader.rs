//! Reading a log without owning it: no lock, no change, no waiting.

use std::ops::ControlFlow;

use sessionlog_codec::DecodeErrorKind;
use sessionlog_codec::footer::{self, FooterEntry};
use sessionlog_codec::frame::{Frame, FrameHeader, KIND_RECORDS};
use sessionlog_codec::ids::{LogId, Position};
use sessionlog_codec::limits::{FRAME_HEADER_LEN, SEGMENT_HEADER_LEN};
use sessionlog_codec::record::Record;
use sessionlog_codec::segment::SegmentHeader;

use super::ahead;
use super::mark::LogMark;
use super::recovery::{Assessment, HeaderProblem, TornTail, Verdict, assess_file};
use super::scan::{Scan, Span};
use super::segment::{LogDir, SegmentName};
use super::unpacked::{SegmentView, Spare, Unpacked};
use crate::error::{Error, ErrorKind, Result};
use crate::num::{to_u64, to_usize};

/// Acknowledged records that can't be read, and where they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The segment.
    pub segment: SegmentName,
    /// The first hurt byte.
    pub offset: u64,
    /// Bytes up to the next sound frame or the segment's end.
    pub len: u64,
    /// The first position that is missing.
    pub first: Position,
    /// The last one; `None` if nothing sound follows, so that their number is not known.
    pub last: Option<Position>,
    /// What was found, in plain words.
    pub explanation: String,
}

/// One thing that a reader comes across, in order.
#[derive(Debug)]
pub enum ReadItem<'a> {
    /// A record.
    Record(Record<'a>),
    /// Records that are hurt. Reading goes on behind them.
    Gap(Gap),
}

/// What a walk over whole frames comes across, in order.
pub(super) enum Found<'a> {
    /// A segment begins.
    Segment { name: SegmentName, header: &'a SegmentHeader },
    /// A frame, at an offset of its segment. What it holds before `from` is not asked for.
    Frame { offset: usize, frame: &'a Frame<'a>, from: Position },
    /// Records that are hurt.
    Gap(Gap),
}

/// Where a walk ended.
pub(super) struct Walked {
    /// How its last segment ends.
    pub(super) tail: TailState,
    /// The segment behind it, if there is one.
    pub(super) following: Option<SegmentName>,
}

/// How a log ends, as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TailState {
    /// With a whole frame.
    Clean,
    /// With bytes that were never acknowledged: an append under way, or one that a crash cut short.
    Torn(TornTail),
    /// With damage that was reported as a [`Gap`].
    Damaged,
    /// With frames of a newer version, which were not read.
    Newer(String),
    /// The last segment was being created.
    HalfCreated,
}

/// What an index was made from.
#[derive(Clone, Debug)]
pub struct Indexed {
    /// Bytes of all segments.
    pub bytes: u64,
    /// Where the log ends, by the bytes that the index was made from; `None` as for [`LogReader::mark`].
    pub mark: Option<LogMark>,
    last: Option<(SegmentName, Unpacked)>,
}

/// A log, read without a lock. It sees what is in the files at each call; a record that it saw may vanish in a loss of
/// power if it was not durable yet.
#[derive(Clone, Debug)]
pub struct LogReader {
    dir: LogDir,
}

/// How large a log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSize {
    /// Segment files.
    pub segments: u64,
    /// How many of them are compressed.
    pub compressed: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes of the segments that they stand for.
    pub unpacked_bytes: u64,
}

impl LogReader {
    /// How large the log is. Costs a look at each file's beginning.
    ///
    /// # Errors
    /// `NotFound` if there is no log; `Io` if a file can't be read.
    pub fn size(&self) -> Result<LogSize> {
        let mut size = LogSize::default();
        for (name, len) in self.segments()? {
            let view = self.dir.view(name)?;
            size.segments = size.segments.saturating_add(1);
            size.compressed = size.compressed.saturating_add(u64::from(view.is_packed()));
            size.bytes = size.bytes.saturating_add(len);
            size.unpacked_bytes = size.unpacked_bytes.saturating_add(view.len());
        }
        Ok(size)
    }

    /// A reader of the log in a directory. Nothing is read yet.
    #[must_use]
    pub fn new(dir: LogDir) -> Self {
        Self { dir }
    }

    /// Gives every record from `from` on to `visit`, in order, until it breaks off. Few segments are in memory at a
    /// time: of a long log, the next one is read while `visit` is given the one before.
    ///
    /// # Errors
    /// `NotFound` if there is no log; `Io` if a segment can't be read: never taken for the log's end.
    pub fn read(
        &self,
        from: Position,
        visit: &mut dyn FnMut(ReadItem<'_>) -> ControlFlow<()>,
    ) -> Result<TailState> {
        let walked = self.walk(from, usize::MAX, &mut |found| match found {
            Found::Segment { .. } => ControlFlow::Continue(()),
            Found::Gap(gap) => visit(ReadItem::Gap(gap)),
            Found::Frame { frame, from, .. } => {
                let mut records = frame.records().iter().filter(|record| record.position >= from);
                records.try_for_each(|record| visit(ReadItem::Record(record.clone())))
            }
        })?;
        Ok(walked.tail)
    }

    /// Gives the frames of at most `count` segments to `visit`, beginning with the segment that `from` is in, until it
    /// breaks off.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(super) fn walk(
        &self,
        from: Position,
        count: usize,
        visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<Walked> {
        let segments = self.segments()?;
        let start = segments.iter().rposition(|(name, _)| name.0 <= from).unwrap_or(0);
        let mut walk = SegmentRead {
            name: SegmentName(Position(1)),
            from,
            expected: Position(1),
            log_id: None,
            visit,
            stopped: false,
        };
        if let Some((before, _)) = start.checked_sub(1).and_then(|before| segments.get(before)) {
            walk.expected = segments.get(start).map_or(Position(1), |(name, _)| name.0);
            let header = self.dir.read(*before, 0, to_u64(SEGMENT_HEADER_LEN))?;
            walk.log_id = SegmentHeader::decode(&header).ok().map(|header| header.log_id);
        }
        let sealed = segments.get(start..segments.len().saturating_sub(1)).unwrap_or_default();
        ahead::with_segments(&self.dir, sealed, |next| {
            self.walk_over(segments.iter().skip(start).take(count), &segments, walk, next)
        })
    }

    /// Walks over some of the segments; `read` gives the bytes of those that are sealed.
    fn walk_over<'s>(
        &self,
        some: impl Iterator<Item = &'s (SegmentName, u64)>,
        all: &[(SegmentName, u64)],
        mut walk: SegmentRead<'_, '_>,
        read: &mut ahead::Read<'_>,
    ) -> Result<Walked> {
        let mut spare = Spare::default();
        let mut walked = Walked { tail: TailState::Clean, following: None };
        for (name, _) in some {
            walk.name = *name;
            walk.note_missing((0, 0), name.0, "the segments before this one are missing");
            let behind = all.partition_point(|(other, _)| other <= name);
            walked.following = all.get(behind).map(|(next, _)| *next);
            walked.tail = match walked.following {
                Some(next) => match walk.end_of_sealed(&self.dir, next.0)? {
                    Some(tail) => tail,
                    None => {
                        let bytes = read(*name, std::mem::take(&mut spare))?;
                        let tail = walk.sealed_segment(&bytes, next.0);
                        spare = bytes.into_spare();
                        tail
                    }
                },
                None => match self.last(*name) {
                    Ok((bytes, assessed)) => walk.last_segment(&bytes, assessed),
                    // Removed since the directory was listed: recovery does that to half-created ones alone.
                    Err(error) if error.kind() == ErrorKind::NotFound && all.len() > 1 => {
                        TailState::HalfCreated
                    }
                    Err(error) => return Err(error),
                },
            };
            if walk.stopped || matches!(walked.tail, TailState::Newer(_)) {
                break;
            }
        }
        Ok(walked)
    }

    /// The bytes of the last segment, and what they say. A read is not one moment: a writer may fill a place that was
    /// read already and then one that was not, which looks like damage; so damage is believed when a second look finds
    /// it in the same place.
    pub(crate) fn last(
        &self,
        name: SegmentName,
    ) -> Result<(Unpacked, std::result::Result<Assessment, HeaderProblem>)> {
        let mut seen = None;
        loop {
            let bytes = self.dir.read_all(name)?;
            let assessed = assess_file(&bytes, Position::START);
            let hurt = match &assessed {
                Ok(Assessment { verdict: Verdict::Damaged(damage), .. }) => Some(damage.offset),
                // Or a new owner put another file in its place since it was opened.
                Err(HeaderProblem::Unreadable(_)) => Some(0),
                _ => None,
            };
            if hurt.is_none() || hurt == seen {
                return Ok((bytes, assessed));
            }
            seen = hurt;
        }
    }

    /// What each record is and where it stands, without reading payloads of sealed segments that have an intact footer.
    ///
    /// Gives the bytes of the last segment, which had to be read for it, so that nobody reads them again.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn index(&self, visit: &mut dyn FnMut(Position, FooterEntry, SegmentName)) -> Result<Indexed> {
        let segments = self.segments()?;
        let bytes = segments.iter().fold(0_u64, |sum, (_, len)| sum.saturating_add(*len));
        let mut found = Indexed { bytes, last: None, mark: None };
        for (index, (name, _)) in segments.iter().enumerate() {
            if index.saturating_add(1) == segments.len() {
                let (bytes, assessed) = self.last(*name)?;
                index_by_scan(&bytes, readable_end(&assessed), *name, visit);
                found.mark = assessed.as_ref().ok().and_then(LogMark::of);
                found.last = Some((*name, bytes));
            } else if let Some((first, entries)) = footer(&mut self.dir.view(*name)?)? {
                for (nth, entry) in entries.into_iter().enumerate() {
                    visit(Position(first.0.saturating_add(to_u64(nth))), entry, *name);
                }
            } else {
                index_by_scan(&self.dir.read_all(*name)?, usize::MAX, *name, visit);
            }
        }
        Ok(found)
    }

    /// Gives the records of the one frame at `frame_offset` of a segment to `visit`.
    ///
    /// # Errors
    /// `Corrupt` if there is no sound frame; `Io` if it can't be read.
    pub fn read_frame(
        &self,
        name: SegmentName,
        frame_offset: u32,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<()> {
        let path = self.dir.segment_path(name);
        let offset = u64::from(frame_offset);
        let at = |error| Error::decode(&path, offset, error);
        let mut view = self.dir.view(name)?;
        let segment = view.read(0, to_u64(SEGMENT_HEADER_LEN))?;
        let salt = SegmentHeader::decode(&segment).map_err(|e| Error::decode(&path, 0, e))?.salt;
        let header = view.read(offset, to_u64(FRAME_HEADER_LEN))?;
        let header = FrameHeader::decode(&header, salt).map_err(at)?;
        let bytes = view.read(offset, to_u64(header.frame_len()))?;
        let frame = Frame::decode(&bytes, salt).map_err(at)?;
        for record in frame.records() {
            visit(record.clone());
        }
        Ok(())
    }

    /// The same, of a place that [`index`](Self::index) gave: what was read for it is not read again.
    ///
    /// # Errors
    /// As [`read_frame`](Self::read_frame).
    pub fn read_indexed_frame(
        &self,
        indexed: &Indexed,
        name: SegmentName,
        frame_offset: u32,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<()> {
        let Some((_, bytes)) = indexed.last.as_ref().filter(|(last, _)| *last == name) else {
            return self.read_frame(name, frame_offset, visit);
        };
        let at = |error| Error::decode(&self.dir.segment_path(name), frame_offset.into(), error);
        let salt = SegmentHeader::decode(bytes).map_err(at)?.salt;
        let frame = bytes.get(to_usize(frame_offset.into())..).unwrap_or_default();
        Frame::decode(frame, salt).map_err(at)?.records().iter().for_each(|record| visit(record.clone()));
        Ok(())
    }

    pub(crate) fn segments(&self) -> Result<Vec<(SegmentName, u64)>> {
        let segments = self.dir.list()?;
        if segments.is_empty() {
            let message = format!("{} holds no log", self.dir.segments.display());
            return Err(Error::new(ErrorKind::NotFound, "log.missing", message));
        }
        Ok(segments)
    }

    pub(crate) fn dir(&self) -> &LogDir {
        &self.dir
    }
}

/// Where the frames end that a reader gives, in bytes: a torn tail is not read.
fn readable_end(assessed: &std::result::Result<Assessment, HeaderProblem>) -> usize {
    match assessed {
        Ok(Assessment { verdict: Verdict::TornTail(_), end, .. }) => end.offset,
        _ => usize::MAX,
    }
}

/// The first position and the entries of a sealed segment; `None` if its footer is missing or hurt.
pub(super) fn footer(view: &mut SegmentView) -> Result<Option<(Position, Vec<FooterEntry>)>> {
    let header = view.read(0, to_u64(SEGMENT_HEADER_LEN))?;
    let Ok(header) = SegmentHeader::decode(&header) else { return Ok(None) };
    let bytes = match view.footer() {
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(None),
        bytes => bytes?,
    };
    let Some((_, bytes)) = bytes else { return Ok(None) };
    let entries = Frame::decode(&bytes, header.salt).and_then(|frame| footer::decode(&frame));
    Ok(entries.ok().map(|entries| (header.first_position, entries)))
}

fn index_by_scan(
    bytes: &[u8],
    end: usize,
    name: SegmentName,
    visit: &mut dyn FnMut(Position, FooterEntry, SegmentName),
) {
    let Ok(header) = SegmentHeader::decode(bytes) else { return };
    for span in Scan::new(bytes, &header).take_while(|span| span.offset() < end) {
        let (Span::Frame { offset, frame } | Span::OutOfOrder { offset, frame, .. }) = span else {
            continue;
        };
        let frame_offset = u32::try_from(offset).unwrap_or(u32::MAX);
        for record in frame.records() {
            visit(record.position, FooterEntry::of(&record.envelope, frame_offset), name);
        }
    }
}

/// A walk over segments, one at a time.
struct SegmentRead<'v, 'f> {
    name: SegmentName,
    from: Position,
    /// The position that comes next.
    expected: Position,
    /// The log of the segment before.
    log_id: Option<LogId>,
    visit: &'v mut (dyn FnMut(Found<'_>) -> ControlFlow<()> + 'f),
    stopped: bool,
}

impl SegmentRead<'_, '_> {
    /// Visits the end of a segment that has another one behind it, from position `next` on, where the reading begins in the
    /// middle of it: what is before that is not read. `None` if its index does not tell where.
    fn end_of_sealed(&mut self, dir: &LogDir, next: Position) -> Result<Option<TailState>> {
        if self.from <= self.name.0 || self.from >= next {
            return Ok(None);
        }
        let mut view = dir.view(self.name)?;
        let header = view.read(0, to_u64(SEGMENT_HEADER_LEN))?;
        let Ok(header) = SegmentHeader::decode(&header) else { return Ok(None) };
        let Some((first, entries)) = footer(&mut view)?.filter(|(first, _)| *first == self.name.0) else {
            return Ok(None);
        };
        let entry = self.from.0.checked_sub(first.0).and_then(|nth| entries.get(to_usize(nth)));
        let Some(offset) = entry.map(|entry| entry.frame_offset) else { return Ok(None) };
        let bytes = view.range(offset.into(), u64::MAX)?;
        // An index that is wrong says nothing: the frame says where it belongs.
        let Ok(frame) = Frame::decode(&bytes, header.salt) else { return Ok(None) };
        let fields = &frame.header().fields;
        let is_there = fields.kind == KIND_RECORDS
            && fields.first_position <= self.from
            && self.from < fields.next_position();
        if !is_there || self.misplaced(&header).is_some() {
            return Ok(None);
        }
        self.expected = fields.first_position;
        let tail = self.walk(&header, Scan::from(&bytes, &header, fields), Some(next), usize::MAX);
        if !matches!(tail, TailState::Newer(_)) {
            let end = (to_usize(view.len()), 0);
            self.note_missing(end, next, "the segments behind this one are missing");
        }
        Ok(Some(tail))
    }

    /// A segment that has another one behind it, from position `next` on: every bad byte is damage.
    fn sealed_segment(&mut self, bytes: &Unpacked, next: Position) -> TailState {
        let whole = (0, bytes.len());
        let tail = match SegmentHeader::decode(bytes) {
            Ok(header) => match self.misplaced(&header) {
                None => self.walk(&header, Scan::over(bytes, &header), Some(next), usize::MAX),
                Some(why) => self.lost(whole, Some(next), &why),
            },
            Err(error) if error.kind() == DecodeErrorKind::Unsupported => TailState::Newer(error.to_string()),
            Err(error) => self.lost(whole, Some(next), &error.to_string()),
        };
        if !matches!(tail, TailState::Newer(_)) {
            self.note_missing((bytes.len(), 0), next, "the segments behind this one are missing");
        }
        tail
    }

    /// At the end of a log, bad bytes may be an append under way.
    fn last_segment(
        &mut self,
        bytes: &Unpacked,
        assessed: std::result::Result<Assessment, HeaderProblem>,
    ) -> TailState {
        let end = readable_end(&assessed);
        match assessed {
            Ok(Assessment { header, verdict, .. }) => {
                if let Some(why) = self.misplaced(&header) {
                    return self.lost((0, bytes.len()), None, &why);
                }
                let tail = self.walk(&header, Scan::over(bytes, &header), None, end);
                if let Verdict::TornTail(torn) = verdict { TailState::Torn(torn) } else { tail }
            }
            Err(HeaderProblem::HalfCreated) => TailState::HalfCreated,
            Err(HeaderProblem::Unreadable(error)) if error.kind() == DecodeErrorKind::Unsupported => {
                TailState::Newer(error.to_string())
            }
            Err(HeaderProblem::Unreadable(error)) => self.lost((0, bytes.len()), None, &error.to_string()),
        }
    }

    /// Why a segment does not belong where it is, if so.
    fn misplaced(&mut self, header: &SegmentHeader) -> Option<String> {
        if header.first_position != self.name.0 {
            return Some(format!("its header says it starts at position {}", header.first_position));
        }
        if self.log_id.is_some_and(|log_id| log_id != header.log_id && header.forked_from != Some(log_id)) {
            return Some(format!("it belongs to another log ({})", header.log_id));
        }
        self.log_id = Some(header.log_id);
        None
    }

    /// Visits the records of a segment up to `end` bytes. `next` is where the next segment starts, if there is one.
    fn walk(
        &mut self,
        header: &SegmentHeader,
        scan: Scan<'_>,
        next: Option<Position>,
        end: usize,
    ) -> TailState {
        let mut tail = TailState::Clean;
        let mut hurt: Option<(usize, usize, String)> = None;
        self.give(Found::Segment { name: self.name, header });
        for span in scan.take_while(|span| span.offset() < end) {
            match span {
                Span::Frame { offset, frame } | Span::OutOfOrder { offset, frame, .. } => {
                    let (at, len, why) = hurt.take().unwrap_or((offset, 0, "records are missing".to_owned()));
                    self.note_missing((at, len), frame.header().fields.first_position, &why);
                    self.frame(offset, &frame);
                }
                Span::Bad { offset, len, error } => hurt = Some((offset, len, error)),
                Span::Newer { error, .. } => tail = TailState::Newer(error.to_string()),
                Span::End { .. } => {}
            }
            if self.stopped {
                return tail;
            }
        }
        match hurt {
            Some((offset, len, error)) => self.lost((offset, len), next, &error),
            None => tail,
        }
    }

    /// Reports what is missing from a place to the segment's end. If that is the footer alone, no record is.
    fn lost(&mut self, span: (usize, usize), next: Option<Position>, why: &str) -> TailState {
        match next {
            Some(next) => self.note_missing(span, next, why),
            None => self.gap(span, None, why),
        }
        TailState::Damaged
    }

    /// Reports the positions before `found`, where something was found again, as missing.
    fn note_missing(&mut self, span: (usize, usize), found: Position, why: &str) {
        if found > self.expected {
            self.gap(span, Some(Position(found.0.saturating_sub(1))), why);
            self.expected = found;
        }
    }

    fn frame(&mut self, offset: usize, frame: &Frame<'_>) {
        let from = self.from.max(self.expected);
        if frame.header().fields.kind == KIND_RECORDS {
            self.expected = frame.header().fields.next_position();
        }
        self.give(Found::Frame { offset, frame, from });
    }

    fn give(&mut self, found: Found<'_>) {
        self.stopped = self.stopped || (self.visit)(found).is_break();
    }

    fn gap(&mut self, (offset, len): (usize, usize), last: Option<Position>, explanation: &str) {
        let reaches = last.is_none_or(|last| last >= self.from);
        if reaches && !self.stopped {
            let gap = Gap {
                segment: self.name,
                offset: to_u64(offset),
                len: to_u64(len),
                first: self.expected,
                last,
                explanation: explanation.to_owned(),
            };
            self.give(Found::Gap(gap));
        }
    }
}
