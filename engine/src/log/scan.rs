//! Walks over a segment's bytes, frame by frame, past damage: the one walk that recovery, reading and verification share.

use sessionlog_codec::footer::{self, LOCATOR_LEN};
use sessionlog_codec::frame::{FRAME_MAGIC, Frame, FrameFields, FrameHeader, KIND_FOOTER};
use sessionlog_codec::ids::{Digest, Epoch, Position};
use sessionlog_codec::limits::{FRAME_ALIGNMENT, FRAME_HEADER_LEN, RECORD_HEADER_LEN, SEGMENT_HEADER_LEN};
use sessionlog_codec::segment::SegmentHeader;
use sessionlog_codec::{DecodeError, DecodeErrorKind};

use super::unpacked::{HurtBlock, Unpacked, explain};
use crate::num::to_u64;

/// What stands at a place of a segment.
#[derive(Debug)]
pub(crate) enum Span<'a> {
    /// A frame whose checksums hold, where it belongs.
    Frame { offset: usize, frame: Frame<'a> },
    /// Bytes that are no frame, up to the next frame or the end.
    Bad { offset: usize, len: usize, error: String },
    /// A frame that is sound but newer than this version. The walk ends: what follows can't be judged.
    Newer { offset: usize, error: DecodeError },
    /// Frames are in order, but records before this one are missing (or the frame is of an older ownership).
    OutOfOrder { offset: usize, expected: Position, frame: Frame<'a> },
    /// Only zeros (or nothing) from here to the end: space that was not used yet.
    End { offset: usize },
}

impl Span<'_> {
    /// Where it starts in the segment, in bytes.
    pub(crate) fn offset(&self) -> usize {
        match self {
            Self::Frame { offset, .. }
            | Self::Bad { offset, .. }
            | Self::Newer { offset, .. }
            | Self::OutOfOrder { offset, .. }
            | Self::End { offset } => *offset,
        }
    }
}

/// Why there is no frame at a place.
enum NoFrame {
    Newer(DecodeError),
    Bad(String),
}

impl From<DecodeError> for NoFrame {
    fn from(error: DecodeError) -> Self {
        match error.kind() {
            DecodeErrorKind::Unsupported => Self::Newer(error),
            DecodeErrorKind::Corrupt => Self::Bad(error.to_string()),
        }
    }
}

/// The walk. It yields spans without gaps, ending with [`Span::End`], a [`Span::Bad`] that reaches the end, or
/// [`Span::Newer`].
pub(crate) struct Scan<'a> {
    bytes: &'a [u8],
    /// Where `bytes` start in the segment.
    base: usize,
    /// What of them is not what was written, and why.
    hurt: &'a [HurtBlock],
    salt: u32,
    /// The place in the segment.
    at: usize,
    expected: Position,
    epoch: Epoch,
    done: bool,
}

impl<'a> Scan<'a> {
    /// A walk over a whole segment whose header was read already.
    pub(crate) fn new(bytes: &'a [u8], header: &SegmentHeader) -> Self {
        Self {
            bytes,
            base: 0,
            hurt: &[],
            salt: header.salt,
            at: SEGMENT_HEADER_LEN,
            expected: header.first_position,
            epoch: header.epoch,
            done: false,
        }
    }

    /// Says of bad bytes that are in a hurt block what is wrong with that.
    pub(crate) fn with_hurt(self, hurt: &'a [HurtBlock]) -> Self {
        Self { hurt, ..self }
    }

    /// The same, of a segment's file whatever its layout.
    pub(crate) fn over(bytes: &'a Unpacked, header: &SegmentHeader) -> Self {
        Self { base: bytes.base(), hurt: bytes.hurt(), ..Self::new(bytes, header) }
    }

    /// A walk over the end of a segment, which begins with a frame of these fields.
    pub(crate) fn from(bytes: &'a Unpacked, header: &SegmentHeader, first: &FrameFields) -> Self {
        let (expected, epoch) = (first.first_position, first.epoch);
        Self { at: bytes.base(), expected, epoch, ..Self::over(bytes, header) }
    }

    fn bytes_from(&self, at: usize) -> &'a [u8] {
        at.checked_sub(self.base).and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes_from(self.at)
    }

    fn end(&self) -> usize {
        self.base.saturating_add(self.bytes.len())
    }

    /// The frame at the start of `bytes`, if a whole one that can belong here stands there.
    fn frame_at(&self, bytes: &'a [u8]) -> Result<Frame<'a>, NoFrame> {
        let header = FrameHeader::decode(bytes, self.salt)?;
        // Before its body is looked at: a payload may quote older frames of this very log.
        let first = header.fields.first_position;
        if first < self.expected {
            return Err(NoFrame::Bad(format!("a frame of position {first}, expected {}", self.expected)));
        }
        let frame = header.verify(bytes.get(FRAME_HEADER_LEN..).unwrap_or_default())?;
        let len = frame.header().frame_len();
        let behind = bytes.get(len..len.saturating_add(LOCATOR_LEN)).unwrap_or_default();
        if frame.header().fields.kind == KIND_FOOTER && footer::locate(behind) != Some(len) {
            return Err(NoFrame::Bad("a footer without its locator".to_owned()));
        }
        Ok(frame)
    }

    /// The next offset behind `self.at` at which a whole frame stands that can belong here.
    fn resync(&self) -> usize {
        let mut at = self.at.saturating_add(FRAME_ALIGNMENT);
        while at < self.end() {
            let rest = self.bytes_from(at);
            if rest.starts_with(&FRAME_MAGIC) && self.may_follow(rest, at) {
                return at;
            }
            at = at.saturating_add(FRAME_ALIGNMENT);
        }
        self.end()
    }

    /// Whether a frame found behind bad bytes can belong there: not an older one, of no older ownership, and not further
    /// on than the bad bytes could have held records.
    fn may_follow(&self, bytes: &'a [u8], at: usize) -> bool {
        match self.frame_at(bytes) {
            Ok(frame) => {
                let fields = &frame.header().fields;
                let room = at.saturating_sub(self.at).checked_div(RECORD_HEADER_LEN).unwrap_or(0);
                let missing = fields.first_position.0.checked_sub(self.expected.0);
                fields.epoch >= self.epoch && missing.is_some_and(|missing| missing <= to_u64(room))
            }
            Err(NoFrame::Newer(_)) => true,
            Err(NoFrame::Bad(_)) => false,
        }
    }

    fn bad(&mut self, error: String) -> Span<'a> {
        let offset = self.at;
        self.at = self.resync();
        self.done = self.at >= self.end();
        let error = explain(self.hurt, &(offset..self.at), error);
        Span::Bad { offset, len: self.at.saturating_sub(offset), error }
    }

    fn frame(&mut self, frame: Frame<'a>) -> Span<'a> {
        let offset = self.at;
        let fields = &frame.header().fields;
        self.at = self.at.saturating_add(frame.header().frame_len());
        if fields.kind == KIND_FOOTER {
            self.at = self.at.saturating_add(LOCATOR_LEN);
        }
        let in_order = fields.first_position == self.expected && fields.epoch >= self.epoch;
        let expected = std::mem::replace(&mut self.expected, fields.next_position());
        self.epoch = self.epoch.max(fields.epoch);
        if in_order { Span::Frame { offset, frame } } else { Span::OutOfOrder { offset, expected, frame } }
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = Span<'a>;

    fn next(&mut self) -> Option<Span<'a>> {
        if self.done {
            return None;
        }
        let rest = self.rest();
        if rest.iter().all(|byte| *byte == 0) {
            self.done = true;
            return Some(Span::End { offset: self.at });
        }
        match self.frame_at(rest) {
            Ok(frame) => Some(self.frame(frame)),
            Err(NoFrame::Newer(error)) => {
                self.done = true;
                Some(Span::Newer { offset: self.at, error })
            }
            Err(NoFrame::Bad(error)) => Some(self.bad(error)),
        }
    }
}

/// Where a segment's last whole frame ends, and what the next one has to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameEnd {
    /// In bytes from the segment's start.
    pub(crate) offset: usize,
    /// The next record's position.
    pub(crate) next: Position,
    /// The last frame's chain hash.
    pub(crate) chain: Digest,
    /// The last frame's ownership.
    pub(crate) epoch: Epoch,
}

impl FrameEnd {
    /// The end of a segment that has no frame yet.
    pub(crate) fn of_header(header: &SegmentHeader) -> Self {
        Self {
            offset: SEGMENT_HEADER_LEN,
            next: header.first_position,
            chain: header.previous,
            epoch: header.epoch,
        }
    }

    /// The end of a frame at `offset`.
    pub(crate) fn of_frame(offset: usize, frame: &Frame<'_>) -> Self {
        let header = frame.header();
        Self {
            offset: offset.saturating_add(header.frame_len()),
            next: header.fields.next_position(),
            chain: header.chain,
            epoch: header.fields.epoch,
        }
    }
}
