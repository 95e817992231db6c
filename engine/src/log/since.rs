//! Reading on from where a log was read to: for what is derived from logs and brought up to date now and then.

use std::ops::ControlFlow;

use sessionlog_codec::frame::KIND_RECORDS;
use sessionlog_codec::ids::{Digest, Position};
use sessionlog_codec::record::Record;
use sessionlog_codec::segment::SegmentHeader;

use super::mark::LogMark;
use super::reader::{Found, LogReader};
use crate::error::Result;
use crate::num::to_u64;

/// Whether a log goes on from where it was read to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// It does, and was read up to the end of the frame that this is the mark of; `None`: nothing was read yet.
    Went(Option<LogMark>),
    /// The frame that was the last one is not there: the log was cut, restored from a copy, or made anew.
    Elsewhere,
}

impl LogReader {
    /// Gives the records behind `mark` to `visit`, frame by frame, until it breaks off; of `None`, all records. What is hurt is
    /// left out. `visit` is given nothing of a log that does not go on from there.
    ///
    /// # Errors
    /// `NotFound` if there is no log; `Io` if a segment can't be read.
    pub(crate) fn read_since(
        &self,
        mark: Option<&LogMark>,
        visit: &mut dyn FnMut(&[Record<'_>]) -> ControlFlow<()>,
    ) -> Result<Since> {
        let next = mark.map_or(Position(1), |mark| mark.next);
        let from = Position(next.0.saturating_sub(1).max(1));
        let (mut reached, mut verified) = (mark.cloned(), mark.is_none());
        let mut segment: Option<SegmentHeader> = None;
        let mut elsewhere = false;
        self.walk(from, usize::MAX, &mut |found| {
            let (offset, frame) = match found {
                Found::Segment { header, .. } => {
                    segment = Some(header.clone());
                    return ControlFlow::Continue(());
                }
                Found::Gap(_) => return ControlFlow::Continue(()),
                Found::Frame { offset, frame, .. } => (offset, frame),
            };
            let (header, fields) = (frame.header(), &frame.header().fields);
            let behind = fields.next_position();
            if fields.kind != KIND_RECORDS || behind <= from || (verified && behind <= next) {
                return ControlFlow::Continue(());
            }
            if !verified {
                if !is_frame_of(mark, behind, &header.chain) {
                    elsewhere = true;
                    return ControlFlow::Break(());
                }
                verified = true;
                return ControlFlow::Continue(());
            }
            if let Some(segment) = &segment {
                let end = offset.saturating_add(header.frame_len());
                let place = (to_u64(offset), to_u64(end));
                reached = Some(LogMark::new((behind, header.chain), segment, place));
            }
            visit(frame.records())
        })?;
        Ok(if elsewhere || !verified { Since::Elsewhere } else { Since::Went(reached) })
    }
}

fn is_frame_of(mark: Option<&LogMark>, next: Position, chain: &Digest) -> bool {
    mark.is_some_and(|mark| mark.next == next && mark.chain == *chain)
}
