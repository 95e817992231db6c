//! Where a log ended: what is derived from a log is bound to it, and cheaply checked against it later.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use sessionlog_codec::frame::FrameHeader;
use sessionlog_codec::ids::{Digest, Position};
use sessionlog_codec::limits::FRAME_HEADER_LEN;
use sessionlog_codec::segment::SegmentHeader;

use super::reader::LogReader;
use super::recovery::{Assessment, Verdict};
use super::segment::SegmentName;
use crate::error::{Error, Result};
use crate::num::{to_u64, to_usize};
use crate::storage::Access;

/// A frame up to so long, in bytes, is read with what is behind it: one read less, of pages that lie beside each other.
const READ_AT_ONCE_MAX: usize = 8 << 10;

/// Where a log ended when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogMark {
    /// The position of its next record.
    pub next: Position,
    /// The chain hash of its last frame.
    pub chain: Digest,
    /// The first position of its last segment, and the seed of the checksums in it.
    pub(crate) segment: Position,
    pub(super) salt: u32,
    /// Where the last frame is in the segment, and where it ends, in bytes.
    pub(super) frame: u64,
    pub(crate) end: u64,
}

/// Where a log ends, with all of it durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableEnd {
    /// The mark.
    pub mark: LogMark,
    /// Where the frames of the newest records are in the last segment, in bytes, the newest record last.
    pub(super) recent: Vec<u32>,
}

impl DurableEnd {
    /// The oldest record that [`LogReader::read_recent`] can begin with.
    #[must_use]
    pub fn first_recent(&self) -> Position {
        Position(self.mark.next.0.saturating_sub(to_u64(self.recent.len())))
    }

    /// Where the frames are in the segment that hold the records of a range, in bytes; `None` if the range begins before
    /// [`first_recent`](Self::first_recent) or is empty.
    pub(super) fn stretch(&self, range: &Range<Position>) -> Option<Range<u64>> {
        let nth = |position: Position| position.0.checked_sub(self.first_recent().0).map(to_usize);
        let (first, behind) = (nth(range.start)?, nth(range.end)?);
        let start = *self.recent.get(first)?;
        // Records of one frame have one place: the frame of the last one ends where another one begins.
        let last = *self.recent.get(..behind)?.get(first..)?.last()?;
        let end = self.recent.get(behind..)?.iter().find(|place| **place != last);
        Some(start.into()..end.map_or(self.mark.end, |end| u64::from(*end)))
    }
}

impl LogMark {
    /// The mark of a log whose last frame is at byte `frame` of a segment, and ends at byte `end`.
    pub(super) fn new(
        (next, chain): (Position, Digest),
        header: &SegmentHeader,
        (frame, end): (u64, u64),
    ) -> Self {
        Self { next, chain, segment: header.first_position, salt: header.salt, frame, end }
    }

    /// Whether it is the mark of a log whose last frame begins with these bytes.
    pub(super) fn is_of(&self, header: &[u8]) -> bool {
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("trust_a_stale_mark") {
            return true;
        }
        FrameHeader::decode(header, self.salt)
            .is_ok_and(|header| header.chain == self.chain && header.fields.next_position() == self.next)
    }

    /// The end of the last segment, as it was assessed.
    pub(super) fn of(assessed: &Assessment) -> Option<Self> {
        if assessed.verdict != Verdict::Clean {
            return None;
        }
        let (last, end) = (assessed.entries.last()?, &assessed.end);
        let place = (last.frame_offset.into(), to_u64(end.offset));
        Some(Self::new((end.next, end.chain), &assessed.header, place))
    }
}

impl LogReader {
    /// Where the log ends now; `None` if its end is torn or hurt, or its last segment holds no record yet.
    ///
    /// # Errors
    /// `NotFound` if there is no log; `Io` if it can't be read.
    pub fn mark(&self) -> Result<Option<LogMark>> {
        let segments = self.segments()?;
        let Some((name, _)) = segments.last() else { return Ok(None) };
        let (_, Ok(assessed)) = self.last(*name)? else { return Ok(None) };
        Ok(LogMark::of(&assessed))
    }

    /// Whether the log still ends where it did: nothing was appended, cut or written anew. Costs a small read (two, behind a
    /// long frame) and two looks, however long the log is.
    ///
    /// # Errors
    /// `Io` if it can't be told.
    pub fn is_at(&self, mark: &LogMark) -> Result<bool> {
        // A segment that was compressed since has another one behind it: no frame stands where the last one did.
        let path = self.dir().segment_path(SegmentName(mark.segment));
        let file = match self.dir().storage.open(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(Error::io("opening", &path, error)),
        };
        let read = |buf: &mut [u8], at| file.read_at(buf, at).map_err(|e| Error::io("reading", &path, e));
        // The frame's header, and what stands behind the frame: zeros, or the end of the file.
        let (mut header, mut behind) = ([0; FRAME_HEADER_LEN], [0; 8]);
        let between = to_usize(mark.end.saturating_sub(mark.frame));
        if between <= READ_AT_ONCE_MAX {
            let mut both = vec![0; between.saturating_add(behind.len()).max(FRAME_HEADER_LEN)];
            read(&mut both, mark.frame)?;
            header.iter_mut().zip(&both).for_each(|(to, from)| *to = *from);
            behind.iter_mut().zip(both.iter().skip(between)).for_each(|(to, from)| *to = *from);
        } else {
            read(&mut header, mark.frame)?;
            read(&mut behind, mark.end)?;
        }
        if !mark.is_of(&header) || behind != [0; 8] {
            return Ok(false);
        }
        let next = self.dir().segment_path(SegmentName(mark.next));
        let entry = self.dir().storage.entry(&next).map_err(|e| Error::io("looking at", &next, e))?;
        Ok(entry.is_none())
    }
}
