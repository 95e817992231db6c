//! A cursor that begins behind a mark, so that getting there costs two small reads.

use std::collections::VecDeque;

use sessionlog_codec::frame::FrameHeader;
use sessionlog_codec::ids::Position;
use sessionlog_codec::limits::{FRAME_HEADER_LEN, SEGMENT_HEADER_LEN};
use sessionlog_codec::segment::SegmentHeader;

use super::{Anchor, Boundary, Cursor};
use crate::error::{ErrorKind, Result};
use crate::log::scan::FrameEnd;
use crate::log::{LogMark, LogReader, SegmentName};
use crate::num::{to_u64, to_usize};

impl LogReader {
    /// A cursor that begins with the first record behind `mark`, which was durable; `None` if the log does not have what it
    /// ended with then: it was cut since, or it is another log.
    ///
    /// # Errors
    /// `Io` if it can't be told.
    pub fn cursor_behind(&self, mark: &LogMark) -> Result<Option<Cursor>> {
        let name = SegmentName(mark.segment);
        let read = |offset, len| match self.dir().read(name, offset, to_u64(len)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let Some(frame) = read(mark.frame, FRAME_HEADER_LEN)?.filter(|frame| mark.is_of(frame)) else {
            return Ok(None);
        };
        let Some(header) = read(0, SEGMENT_HEADER_LEN)? else { return Ok(None) };
        let (Ok(header), Ok(frame)) =
            (SegmentHeader::decode(&header), FrameHeader::decode(&frame, mark.salt))
        else {
            return Ok(None);
        };
        let (next, chain, epoch) = (mark.next, mark.chain, frame.fields.epoch);
        let end = FrameEnd { offset: to_usize(mark.end), next, chain, epoch };
        Ok(Some(Cursor {
            log: self.clone(),
            next,
            base: Boundary { next, chain: Some(chain) },
            unproven: VecDeque::new(),
            durable: Position(next.0.saturating_sub(1)),
            anchor: Some(Anchor { name, header, frame: Some(mark.frame), end }),
            begun: true,
            gap: None,
        }))
    }
}
