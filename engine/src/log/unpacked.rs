//! The bytes of a segment as its records see them, whether its file is plain or compressed: the one way to read a segment.
//!
//! A compressed segment is decompressed block by block. Where a block is hurt, bytes stand that no frame is made of, and a
//! [`HurtBlock`] says why: so damage of a block is damage of the records in it, and of nothing else.

use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog_codec::footer::{self, LOCATOR_LEN};
use sessionlog_codec::ids::Position;
use sessionlog_codec::limits::{PACKED_LOCATOR_LEN, SEGMENT_HEADER_LEN};
use sessionlog_codec::packed::{self, PackedBlock, PackedHead};
use sessionlog_codec::segment::SegmentHeader;
use sessionlog_codec::{DecodeError, DecodeErrorKind};

use super::compress::Decompressor;
use crate::error::{Error, ErrorKind, Result};
use crate::num::{to_u64, to_usize};
use crate::storage::StorageFile;

/// What stands where a block is hurt. Not zero, which is unused space, and no frame begins with it.
const HURT: u8 = 0xff;

/// How much of a file is read to tell what it is: with it, most compressed segments are open.
const PREFIX_LEN: u64 = 4096;

/// A block of a compressed segment that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HurtBlock {
    /// The bytes of the segment that are missing with it.
    pub(crate) range: Range<usize>,
    /// Where it is in the file, and what is wrong, in plain words.
    pub(crate) found: String,
}

/// Memory that segments were read into, to be read into again: fresh memory costs a page fault for each page of it.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    /// For what stands in the file.
    file: Vec<u8>,
    /// For what it is decompressed to. What it holds is of no meaning.
    bytes: Vec<u8>,
}

/// Bytes of a segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unpacked {
    bytes: Vec<u8>,
    /// What the file held, if that was something else: memory to be used again.
    file: Vec<u8>,
    /// Where they start in the segment.
    base: usize,
    hurt: Vec<HurtBlock>,
    /// A position that the file itself proves to have been durable: only what is sealed is compressed.
    witnessed: Position,
    notes: Vec<String>,
    /// The length of the file.
    stored_len: u64,
    is_packed: bool,
}

impl Deref for Unpacked {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Unpacked {
    /// Bytes of a plain segment.
    pub(crate) fn plain(bytes: Vec<u8>) -> Self {
        Self { stored_len: to_u64(bytes.len()), bytes, ..Self::default() }
    }

    /// Its memory, to be used again.
    pub(crate) fn into_spare(self) -> Spare {
        let Self { bytes, file, is_packed, .. } = self;
        if is_packed { Spare { file, bytes } } else { Spare { file: bytes, bytes: file } }
    }

    pub(crate) fn base(&self) -> usize {
        self.base
    }

    pub(crate) fn hurt(&self) -> &[HurtBlock] {
        &self.hurt
    }

    pub(crate) fn witnessed(&self) -> Position {
        self.witnessed
    }

    /// What is wrong with the file that nothing is lost with.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn stored_len(&self) -> u64 {
        self.stored_len
    }

    /// Whether the file is compressed.
    pub(crate) fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// What is wrong with bytes of the segment: what was found in them, unless they are not there because a block is hurt.
    pub(crate) fn explain(&self, range: &Range<usize>, found: String) -> String {
        explain(&self.hurt, range, found)
    }
}

/// As [`Unpacked::explain`].
pub(crate) fn explain(hurt: &[HurtBlock], range: &Range<usize>, found: String) -> String {
    let block = hurt.iter().find(|block| block.range.start < range.end && range.start < block.range.end);
    block.map_or(found, |block| block.found.clone())
}

/// How a segment's file holds its bytes.
#[derive(Debug)]
enum Layout {
    /// As they are. Also what is no segment, or one of a newer version: whoever decodes it says so.
    Plain,
    Packed(Box<Packed>),
    /// Compressed, without a readable head: only its segment header is known.
    Headless {
        header: Box<SegmentHeader>,
        error: DecodeError,
    },
}

/// A compressed file.
#[derive(Debug)]
struct Packed {
    head: PackedHead,
    /// What is wrong with the head before the blocks, where the copy behind them was used.
    head_error: Option<DecodeError>,
    decompressor: Decompressor,
    /// The block that was decompressed last, with where it begins: a page is read frame by frame.
    recent: Option<(usize, Vec<u8>)>,
    /// The last block, once it was decompressed: an index is found from its end and read from its beginning.
    end: Option<(usize, Vec<u8>)>,
}

/// A segment's file, open for reading. Whoever puts another file in its place meanwhile does not disturb it.
#[derive(Debug)]
pub(crate) struct SegmentView {
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    stored_len: u64,
    prefix: Vec<u8>,
    layout: Layout,
}

impl SegmentView {
    /// Opens a file to read several parts of it.
    pub(crate) fn open(path: PathBuf, file: Arc<dyn StorageFile>) -> Result<Self> {
        Self::with_prefix(path, file, PREFIX_LEN, Vec::new())
    }

    /// Opens a file, which is plain mostly, to read one part of it.
    pub(crate) fn open_once(path: PathBuf, file: Arc<dyn StorageFile>) -> Result<Self> {
        Self::with_prefix(path, file, to_u64(SEGMENT_HEADER_LEN), Vec::new())
    }

    /// Opens a file and reads all of it, into the memory of `spare`.
    pub(crate) fn whole(path: PathBuf, file: Arc<dyn StorageFile>, spare: Spare) -> Result<Unpacked> {
        let mut view = Self::with_prefix(path, file, u64::MAX, spare.file)?;
        if matches!(view.layout, Layout::Plain) {
            return Ok(Unpacked { file: spare.bytes, ..Unpacked::plain(view.prefix) });
        }
        let len = view.len();
        let mut bytes = view.range_into(0, len, spare.bytes)?;
        bytes.notes.extend(view.check_copy()?);
        bytes.file = view.prefix;
        Ok(bytes)
    }

    fn with_prefix(path: PathBuf, file: Arc<dyn StorageFile>, len: u64, mut spare: Vec<u8>) -> Result<Self> {
        let stored_len = file.len().map_err(|e| Error::io("measuring", &path, e))?;
        let mut view = Self { path, file, stored_len, prefix: Vec::new(), layout: Layout::Plain };
        let source = Source { path: &view.path, file: &*view.file, prefix: &[] };
        source.read_into(0, len.min(stored_len), &mut spare)?;
        view.prefix = spare;
        // A plain file says so in its first bytes.
        if len < PREFIX_LEN && SegmentHeader::decode(&view.prefix).is_err() {
            view.prefix = view.stored(0, PREFIX_LEN)?;
        }
        view.layout = view.identify()?;
        Ok(view)
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The segment's length, in bytes.
    pub(crate) fn len(&self) -> u64 {
        match &self.layout {
            Layout::Plain | Layout::Headless { .. } => self.stored_len,
            Layout::Packed(packed) => to_u64(packed.head.len),
        }
    }

    /// Whether the file is compressed.
    pub(crate) fn is_packed(&self) -> bool {
        !matches!(self.layout, Layout::Plain)
    }

    fn identify(&self) -> Result<Layout> {
        let plain = SegmentHeader::decode(&self.prefix);
        let is_newer = |error: &DecodeError| {
            error.kind() == DecodeErrorKind::Unsupported && !packed::is_packed(&self.prefix)
        };
        if !Decompressor::IS_THERE || plain.as_ref().map_or_else(is_newer, |_| true) {
            return Ok(Layout::Plain);
        }
        let first = self.head_at(0);
        let head_error = match first? {
            Ok(head) => return Ok(packed_layout(head, None)),
            Err(error) => error,
        };
        let outer = packed::outer(&self.prefix);
        if head_error.kind() == DecodeErrorKind::Unsupported && outer.is_some() {
            return Ok(Layout::Plain);
        }
        let tail = self.stored_len.saturating_sub(to_u64(PACKED_LOCATOR_LEN));
        if let Some(len) = packed::locate(&self.stored(tail, to_u64(PACKED_LOCATOR_LEN))?)
            && let Some(at) = tail.checked_sub(to_u64(len))
            && let Ok(head) = self.head_at(at)?
        {
            return Ok(packed_layout(head, Some(head_error)));
        }
        Ok(match outer {
            Some(header) => {
                let version = sessionlog_codec::segment::FORMAT_VERSION;
                let header = SegmentHeader { format: version, reader: version, ..header };
                Layout::Headless { header: Box::new(header), error: head_error }
            }
            None => Layout::Plain,
        })
    }

    fn head_at(&self, at: u64) -> Result<std::result::Result<PackedHead, DecodeError>> {
        let bytes = match at {
            0 => Cow::Borrowed(self.prefix.as_slice()),
            at => Cow::Owned(self.stored(at, PREFIX_LEN)?),
        };
        match packed::head_len(&bytes) {
            Ok(len) if len > bytes.len() => Ok(PackedHead::decode(&self.stored(at, to_u64(len))?)),
            Ok(len) => Ok(PackedHead::decode(bytes.get(..len).unwrap_or(&bytes))),
            Err(error) => Ok(Err(error)),
        }
    }

    /// The bytes of a segment from `offset` on, at most `len` of them.
    ///
    /// # Errors
    /// `Corrupt` if they are in a hurt block; `Io` if the file can't be read.
    pub(crate) fn read(&mut self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let read = self.range(offset, len)?;
        match read.hurt.first() {
            None => Ok(read.bytes),
            Some(block) => {
                let message = format!(
                    "{}: {}; run `logdump verify` for the whole picture",
                    self.path.display(),
                    block.found
                );
                Err(Error::new(ErrorKind::Corrupt, "log.damaged", message))
            }
        }
    }

    /// The bytes of a segment from `offset` on, at most `len` of them, with what of them is hurt.
    ///
    /// # Errors
    /// `Io` if the file can't be read.
    pub(crate) fn range(&mut self, offset: u64, len: u64) -> Result<Unpacked> {
        self.range_into(offset, len, Vec::new())
    }

    /// The same; of a compressed file, into the memory of `spare`.
    fn range_into(&mut self, offset: u64, len: u64, spare: Vec<u8>) -> Result<Unpacked> {
        let len = len.min(self.len().saturating_sub(offset));
        let range = to_usize(offset)..to_usize(offset.saturating_add(len));
        let mut out = Unpacked { base: range.start, stored_len: self.stored_len, ..Unpacked::default() };
        out.is_packed = self.is_packed();
        match &mut self.layout {
            Layout::Plain => out.bytes = self.stored(offset, len)?,
            Layout::Headless { header, error } => {
                let mut bytes = header.encode().to_vec();
                bytes.resize(to_usize(self.stored_len), HURT);
                let found = format!("a compressed segment that can't be opened: {error}");
                if range.end > SEGMENT_HEADER_LEN {
                    out.hurt.push(HurtBlock { range: SEGMENT_HEADER_LEN..bytes.len(), found });
                }
                out.bytes = bytes.get(range).unwrap_or_default().to_vec();
                // A segment without a record is never sealed.
                out.witnessed = header.first_position;
            }
            Layout::Packed(packed) => {
                let source = Source { path: &self.path, file: &*self.file, prefix: &self.prefix };
                out.bytes = spare;
                packed.range(&source, &range, &mut out)?;
            }
        }
        Ok(out)
    }

    /// Where the segment's footer starts, and its bytes; `None` if it does not end in one.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn footer(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        let Some(locator_at) = self.len().checked_sub(to_u64(LOCATOR_LEN)) else { return Ok(None) };
        let Some(footer_len) = footer::locate(&self.read(locator_at, to_u64(LOCATOR_LEN))?) else {
            return Ok(None);
        };
        let Some(offset) = locator_at.checked_sub(to_u64(footer_len)) else { return Ok(None) };
        Ok(Some((offset, self.read(offset, to_u64(footer_len))?)))
    }

    /// The bytes of the file.
    pub(crate) fn stored(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let len = len.min(self.stored_len.saturating_sub(offset));
        let source = Source { path: &self.path, file: &*self.file, prefix: &self.prefix };
        Ok(source.read(offset, len)?.into_owned())
    }

    /// What is wrong with the copy of the head at the file's end, if that was not needed.
    fn check_copy(&self) -> Result<Option<String>> {
        let Layout::Packed(packed) = &self.layout else { return Ok(None) };
        let Packed { head, head_error: None, .. } = &**packed else { return Ok(None) };
        let (copy, locator) = (to_u64(head.encoded_len()), to_u64(PACKED_LOCATOR_LEN));
        let end = head.blocks.last().map_or(0, |b| b.stored_offset.saturating_add(to_u64(b.stored_len)));
        let there = self.stored(end, u64::MAX)?;
        let first = self.stored(0, copy)?;
        let is_whole = to_u64(there.len()) == copy.saturating_add(locator)
            && (there.starts_with(&first) || head.outer_error.is_some())
            && packed::locate(there.get(head.encoded_len()..).unwrap_or_default())
                == Some(head.encoded_len());
        Ok((!is_whole).then(|| {
            format!("from byte {end} of the file: the copy of the head is hurt; nothing is lost while the first one is whole")
        }))
    }
}

fn packed_layout(head: PackedHead, head_error: Option<DecodeError>) -> Layout {
    let decompressor = Decompressor::default();
    Layout::Packed(Box::new(Packed { head, head_error, decompressor, recent: None, end: None }))
}

impl Packed {
    /// Puts the bytes of a range in the place of those of `out`.
    fn range(&mut self, source: &Source<'_>, range: &Range<usize>, out: &mut Unpacked) -> Result<()> {
        let head = &self.head;
        out.witnessed = Position(head.next.0.saturating_sub(1));
        out.notes.extend(self.head_error.as_ref().or(head.outer_error.as_ref()).map(note));
        out.bytes.resize(range.len(), 0);
        let own = range.start.min(SEGMENT_HEADER_LEN)..range.end.min(SEGMENT_HEADER_LEN);
        let (place, mut rest) = cut(&mut out.bytes, own.len());
        place.copy_from_slice(head.header.get(own).unwrap_or_default());
        for block in head.blocks_of(range) {
            let wanted = range.start.max(block.offset)..range.end.min(block.range().end);
            let place;
            (place, rest) = cut(rest, wanted.len());
            let is_last = block.range().end == head.len;
            let cached = if is_last { &mut self.end } else { &mut self.recent };
            if cached.as_ref().is_none_or(|(offset, _)| *offset != block.offset) {
                if wanted == block.range() {
                    // Where it is wanted, without a copy: who reads whole segments reads no block twice.
                    if let Err(found) = source.block(block, &mut self.decompressor, place)? {
                        place.fill(HURT);
                        out.hurt.push(HurtBlock { range: block.range(), found });
                    }
                    continue;
                }
                *cached = None;
                let mut bytes = vec![0; block.len];
                match source.block(block, &mut self.decompressor, &mut bytes)? {
                    Ok(()) => *cached = Some((block.offset, bytes)),
                    Err(found) => out.hurt.push(HurtBlock { range: block.range(), found }),
                }
            }
            let within = wanted.start.saturating_sub(block.offset)..wanted.end.saturating_sub(block.offset);
            match cached.as_ref().and_then(|(_, bytes)| bytes.get(within)) {
                Some(bytes) => place.copy_from_slice(bytes),
                None => place.fill(HURT),
            }
        }
        debug_assert!(rest.is_empty(), "blocks have no gaps");
        Ok(())
    }
}

/// The first bytes, at most `len`, and those behind them.
fn cut(bytes: &mut [u8], len: usize) -> (&mut [u8], &mut [u8]) {
    bytes.split_at_mut(len.min(bytes.len()))
}

fn note(error: &DecodeError) -> String {
    format!("the head of the compressed file is hurt, and its copy was used: {error}")
}

/// A file to read blocks from.
struct Source<'a> {
    path: &'a Path,
    file: &'a dyn StorageFile,
    /// Its first bytes, read already.
    prefix: &'a [u8],
}

impl Source<'_> {
    fn read(&self, offset: u64, len: u64) -> Result<Cow<'_, [u8]>> {
        let start = to_usize(offset);
        if let Some(bytes) = self.prefix.get(start..start.saturating_add(to_usize(len))) {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut bytes = Vec::new();
        self.read_into(offset, len, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// Reads in place of what `bytes` held.
    fn read_into(&self, offset: u64, len: u64, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.resize(to_usize(len), 0);
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("eio_is_the_end") && self.file.read_at(bytes, offset).is_err() {
            bytes.clear();
            return Ok(());
        }
        let read = self.file.read_at(bytes, offset).map_err(|e| Error::io("reading", self.path, e))?;
        bytes.truncate(read);
        debug_assert!(to_u64(bytes.len()) <= len, "a read gives no more than was asked for");
        Ok(())
    }

    /// Puts a block's bytes into `place`, which is as long as they are, or tells why they are lost. The caller has checked its
    /// lengths: they are within their limits.
    fn block(
        &self,
        block: &PackedBlock,
        decompressor: &mut Decompressor,
        place: &mut [u8],
    ) -> Result<std::result::Result<(), String>> {
        let stored = self.read(block.stored_offset, to_u64(block.stored_len))?;
        let done = block
            .check(&stored)
            .map_err(|error| error.to_string())
            .and_then(|()| decompressor.block(&stored, place));
        let range = block.range();
        Ok(done.map_err(|what| {
            format!(
                "the compressed block at byte {} of the file, {} bytes, is hurt: {what}. It holds bytes {} to {} of the \
                 segment",
                block.stored_offset, block.stored_len, range.start, range.end
            )
        }))
    }
}
