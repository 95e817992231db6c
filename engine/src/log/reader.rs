//! Reading a log without owning it: no lock, no change, no waiting.

use std::ops::ControlFlow;

use sessionlog_codec::footer::{self, FooterEntry};
use sessionlog_codec::frame::{Frame, KIND_RECORDS};
use sessionlog_codec::ids::Position;
use sessionlog_codec::record::{Envelope, Record};
use sessionlog_codec::segment::SegmentHeader;

use super::recovery::{HeaderProblem, SegmentBytes, TornTail, Verdict, assess, footer_bytes};
use super::scan::{Scan, Span};
use super::segment::{LogDir, SegmentName};
use crate::error::{Error, Result};
use crate::num::to_u64;

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

/// A log, read without a lock. It sees what is in the files at each call; a record that it saw may vanish in a loss of
/// power if it was not durable yet.
#[derive(Clone, Debug)]
pub struct LogReader {
    dir: LogDir,
}

impl LogReader {
    /// A reader of the log in a directory. Nothing is read yet.
    #[must_use]
    pub fn new(dir: LogDir) -> Self {
        Self { dir }
    }

    /// Gives every record from `from` on to `visit`, in order, until it breaks off. One segment is in memory at a time.
    ///
    /// # Errors
    /// `NotFound` if there is no log; `Io` if a segment can't be read: never taken for the log's end.
    pub fn read(
        &self,
        from: Position,
        visit: &mut dyn FnMut(ReadItem<'_>) -> ControlFlow<()>,
    ) -> Result<TailState> {
        let segments = self.segments()?;
        let start = segments.iter().rposition(|(name, _)| name.0 <= from).unwrap_or(0);
        let mut expected = segments.get(start).map_or(Position(1), |(name, _)| name.0);
        for (index, (name, _)) in segments.iter().enumerate().skip(start) {
            let is_last = index.saturating_add(1) == segments.len();
            let bytes = self.dir.read_all(*name)?;
            let mut walk = SegmentRead { name: *name, from, expected, visit, stopped: false };
            let tail = if is_last { walk.last_segment(&bytes)? } else { walk.sealed_segment(&bytes)? };
            expected = walk.expected;
            if walk.stopped || is_last || matches!(tail, TailState::Newer(_)) {
                return Ok(tail);
            }
        }
        Ok(TailState::Clean)
    }

    /// What each record is and where it stands, without reading payloads of sealed segments that have an intact footer.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn index(&self, visit: &mut dyn FnMut(Position, FooterEntry, SegmentName)) -> Result<()> {
        let segments = self.segments()?;
        for (index, (name, len)) in segments.iter().enumerate() {
            let is_last = index.saturating_add(1) == segments.len();
            let footer = if is_last { None } else { self.footer(*name, *len)? };
            match footer {
                Some((first, entries)) => {
                    for (nth, entry) in entries.into_iter().enumerate() {
                        visit(Position(first.0.saturating_add(to_u64(nth))), entry, *name);
                    }
                }
                None => self.index_by_scan(*name, visit)?,
            }
        }
        Ok(())
    }

    fn index_by_scan(
        &self,
        name: SegmentName,
        visit: &mut dyn FnMut(Position, FooterEntry, SegmentName),
    ) -> Result<()> {
        let bytes = self.dir.read_all(name)?;
        let Ok(header) = SegmentHeader::decode(&bytes) else { return Ok(()) };
        for span in Scan::new(&bytes, &header) {
            let (Span::Frame { offset, frame } | Span::OutOfOrder { offset, frame, .. }) = span else {
                continue;
            };
            let frame_offset = u32::try_from(offset).unwrap_or(u32::MAX);
            for record in frame.records() {
                let Envelope { kind, node, timestamp, .. } = record.envelope;
                visit(record.position, FooterEntry { kind, node, frame_offset, timestamp }, name);
            }
        }
        Ok(())
    }

    /// The first position and the entries of a sealed segment; `None` if its footer is missing or hurt.
    fn footer(&self, name: SegmentName, len: u64) -> Result<Option<(Position, Vec<FooterEntry>)>> {
        let header = self.dir.read(name, 0, to_u64(sessionlog_codec::limits::SEGMENT_HEADER_LEN))?;
        let Ok(header) = SegmentHeader::decode(&header) else { return Ok(None) };
        let Some((_, bytes)) = footer_bytes(&self.dir, name, len)? else { return Ok(None) };
        let entries = Frame::decode(&bytes, header.salt).and_then(|frame| footer::decode(&frame));
        Ok(entries.ok().map(|entries| (header.first_position, entries)))
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
        use sessionlog_codec::frame::FrameHeader;
        use sessionlog_codec::limits::{FRAME_HEADER_LEN, SEGMENT_HEADER_LEN};
        let path = self.dir.segment_path(name);
        let offset = u64::from(frame_offset);
        let at = |error| Error::decode(&path, offset, error);
        let segment = self.dir.read(name, 0, to_u64(SEGMENT_HEADER_LEN))?;
        let salt = SegmentHeader::decode(&segment).map_err(|e| Error::decode(&path, 0, e))?.salt;
        let header = self.dir.read(name, offset, to_u64(FRAME_HEADER_LEN))?;
        let header = FrameHeader::decode(&header, salt).map_err(at)?;
        let bytes = self.dir.read(name, offset, to_u64(header.frame_len()))?;
        let frame = Frame::decode(&bytes, salt).map_err(at)?;
        for record in frame.records() {
            visit(record.clone());
        }
        Ok(())
    }

    pub(crate) fn segments(&self) -> Result<Vec<(SegmentName, u64)>> {
        let segments = self.dir.list()?;
        if segments.is_empty() {
            let message = format!("{} holds no log", self.dir.segments.display());
            return Err(Error::new(crate::ErrorKind::NotFound, "log.missing", message));
        }
        Ok(segments)
    }

    pub(crate) fn dir(&self) -> &LogDir {
        &self.dir
    }
}

/// One segment, being read.
struct SegmentRead<'v, 'f> {
    name: SegmentName,
    from: Position,
    expected: Position,
    visit: &'v mut (dyn FnMut(ReadItem<'_>) -> ControlFlow<()> + 'f),
    stopped: bool,
}

impl SegmentRead<'_, '_> {
    /// Every bad byte of a segment that has another one behind it is damage.
    fn sealed_segment(&mut self, bytes: &[u8]) -> Result<TailState> {
        let header = match SegmentHeader::decode(bytes) {
            Ok(header) => header,
            Err(error) if error.kind() == sessionlog_codec::DecodeErrorKind::Unsupported => {
                return Ok(TailState::Newer(error.to_string()));
            }
            Err(error) => {
                self.gap(0, bytes.len(), None, error.to_string());
                return Ok(TailState::Damaged);
            }
        };
        self.note_missing_before(&header);
        let tail = self.walk(bytes, &header, usize::MAX);
        Ok(tail)
    }

    /// At the end of a log, bad bytes may be an append under way.
    fn last_segment(&mut self, bytes: &[u8]) -> Result<TailState> {
        let assessment = match assess(SegmentBytes { bytes, witnessed: Position::START }) {
            Ok(assessment) => assessment,
            Err(HeaderProblem::HalfCreated) => return Ok(TailState::HalfCreated),
            Err(HeaderProblem::Unreadable(error))
                if error.kind() == sessionlog_codec::DecodeErrorKind::Unsupported =>
            {
                return Ok(TailState::Newer(error.to_string()));
            }
            Err(HeaderProblem::Unreadable(error)) => {
                self.gap(0, bytes.len(), None, error.to_string());
                return Ok(TailState::Damaged);
            }
        };
        self.note_missing_before(&assessment.header);
        match assessment.verdict {
            Verdict::TornTail(torn) => {
                let end = assessment.end.offset;
                self.walk(bytes, &assessment.header, end);
                Ok(TailState::Torn(torn))
            }
            _ => Ok(self.walk(bytes, &assessment.header, usize::MAX)),
        }
    }

    fn note_missing_before(&mut self, header: &SegmentHeader) {
        if header.first_position > self.expected {
            let last = Position(header.first_position.0.saturating_sub(1));
            let explanation = format!("the segments before {} are missing or hurt at their end", self.name);
            self.gap(0, 0, Some(last), explanation);
            self.expected = header.first_position;
        }
    }

    /// Visits the records of a segment up to `end` bytes.
    fn walk(&mut self, bytes: &[u8], header: &SegmentHeader, end: usize) -> TailState {
        let mut tail = TailState::Clean;
        let mut pending: Option<(usize, usize, String)> = None;
        for span in Scan::new(bytes, header) {
            match span {
                Span::Frame { offset, .. } | Span::Bad { offset, .. } if offset >= end => break,
                Span::Frame { offset, frame } | Span::OutOfOrder { offset, frame, .. } => {
                    let first = frame.header().fields.first_position;
                    if first > self.expected {
                        let (at, len, why) =
                            pending.take().unwrap_or((offset, 0, "records are missing".to_owned()));
                        self.gap(at, len, Some(Position(first.0.saturating_sub(1))), why);
                    }
                    pending = None;
                    self.frame(&frame);
                    tail = TailState::Clean;
                }
                Span::Bad { offset, len, error } => pending = Some((offset, len, error)),
                Span::Newer { error, .. } => tail = TailState::Newer(error.to_string()),
                Span::End { .. } => {}
            }
            if self.stopped {
                return tail;
            }
        }
        if let Some((offset, len, error)) = pending
            && offset < end
        {
            self.gap(offset, len, None, error);
            tail = TailState::Damaged;
        }
        tail
    }

    fn frame(&mut self, frame: &Frame<'_>) {
        if frame.header().fields.kind == KIND_RECORDS {
            self.expected = frame.header().fields.next_position();
        }
        for record in frame.records() {
            if record.position >= self.from && !self.stopped {
                self.stopped = (self.visit)(ReadItem::Record(record.clone())).is_break();
            }
        }
    }

    fn gap(&mut self, offset: usize, len: usize, last: Option<Position>, explanation: String) {
        let reaches = last.is_none_or(|last| last >= self.from);
        if reaches && !self.stopped {
            let gap = Gap {
                segment: self.name,
                offset: to_u64(offset),
                len: to_u64(len),
                first: self.expected,
                last,
                explanation,
            };
            self.stopped = (self.visit)(ReadItem::Gap(gap)).is_break();
        }
    }
}
