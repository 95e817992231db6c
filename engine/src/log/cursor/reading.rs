//! Reading what stands behind a place in a segment, piece by piece.

use sessionlog_codec::footer::{self, LOCATOR_LEN};
use sessionlog_codec::frame::{Frame, FrameHeader, KIND_FOOTER};
use sessionlog_codec::limits::FRAME_HEADER_LEN;

use super::Anchor;
use crate::error::Result;
use crate::log::{LogDir, SegmentName};
use crate::num::to_u64;

/// What is read behind a place at first, in bytes: a few messages. Twice as much each time that it was all used.
pub(super) const WINDOW_MIN: usize = 4 << 10;
/// The most that is read at once, in bytes, but for a longer frame.
const WINDOW_MAX: usize = 256 << 10;
/// A part of a segment, read piece by piece.
pub(super) struct Reading {
    pub(super) name: SegmentName,
    /// Where the part begins in the segment, in bytes.
    pub(super) start: usize,
    pub(super) bytes: Vec<u8>,
    /// How much was asked for.
    pub(super) asked: usize,
}

/// What stands at a place.
pub(super) enum Next {
    /// Perhaps a frame, all of whose bytes are there, so far into the part.
    Frame(usize),
    Nothing,
    Bad,
}

impl Reading {
    /// Looks at what stands at the end of `anchor`, and reads on where it was not read yet.
    pub(super) fn frame(&mut self, dir: &LogDir, anchor: &Anchor) -> Result<Next> {
        let mut at = anchor.end.offset.saturating_sub(self.start);
        let mut needed = FRAME_HEADER_LEN;
        loop {
            let rest = self.bytes.get(at..).unwrap_or_default();
            if rest.len() < needed {
                // All that there was, if less came than was asked for.
                if self.bytes.len() < self.asked {
                    return Ok(if rest.iter().all(|byte| *byte == 0) { Next::Nothing } else { Next::Bad });
                }
                self.start = anchor.end.offset;
                at = 0;
                self.asked = self.asked.saturating_mul(2).min(WINDOW_MAX).max(needed);
                self.bytes = dir.read(self.name, to_u64(self.start), to_u64(self.asked))?;
                continue;
            }
            if rest.iter().take(FRAME_HEADER_LEN).all(|byte| *byte == 0) {
                return Ok(Next::Nothing);
            }
            let Ok(header) = FrameHeader::decode(rest, anchor.header.salt) else { return Ok(Next::Bad) };
            let len = header.frame_len();
            let len = if header.fields.kind == KIND_FOOTER { len.saturating_add(LOCATOR_LEN) } else { len };
            if rest.len() >= len {
                return Ok(Next::Frame(at));
            }
            needed = len;
        }
    }

    pub(super) fn decode(&self, at: usize, salt: u32) -> Option<Frame<'_>> {
        Frame::decode(self.bytes.get(at..)?, salt).ok()
    }

    pub(super) fn locator(&self, frame: &Frame<'_>, at: usize) -> Located {
        let len = frame.header().frame_len();
        let behind = at.saturating_add(len);
        let found = self.bytes.get(behind..behind.saturating_add(LOCATOR_LEN)).and_then(footer::locate);
        if found == Some(len) { Located::Yes } else { Located::No }
    }
}

/// Whether a footer is followed by its locator.
#[derive(Clone, Copy)]
pub(super) enum Located {
    Yes,
    No,
}
