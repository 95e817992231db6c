//! Compressing sealed segments: a file with the same bytes in fewer takes the place of the plain one.
//!
//! A segment is compressed once it is sealed and another one was begun, so nobody writes to it. The new file is made
//! beside it, synced, read back and compared before it takes the old one's name: a crash leaves the one or the other, and
//! each of them has every record. Nothing depends on it: what fails is tried again at another time.

use sessionlog_codec::ids::Position;
use sessionlog_codec::limits::PACKED_LEN_MAX;
use sessionlog_codec::packed;
use sessionlog_codec::segment::SegmentHeader;
use sessionlog_codec::{frame::KIND_FOOTER, limits::SEGMENT_HEADER_LEN};

use super::scan::{FrameEnd, Scan, Span};
use super::segment::{LogDir, SegmentName};
use super::unpacked::{SegmentView, Spare};
use crate::error::{Error, ErrorKind, Result};
use crate::num::to_u64;
use crate::storage::Access;

/// When a segment is worth being compressed, and into what blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The longest stretch of a segment that is compressed as one, in bytes: what a reader decompresses for one record.
    /// Default 128 KiB; tests use less.
    pub block_len: usize,
    /// How many bytes must be saved at least. Default 4096, which is what file systems give and take.
    pub least_saved: u64,
    /// How much of the segment must be saved at least, in percent. Default 10.
    pub least_percent: u64,
}

impl Default for Packing {
    fn default() -> Self {
        Self { block_len: 128 << 10, least_saved: 4096, least_percent: 10 }
    }
}

/// What compressing did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compressed {
    /// Segments that were compressed.
    pub segments: u64,
    /// The bytes of their files before.
    pub before: u64,
    /// And after.
    pub after: u64,
}

/// Compresses a sealed segment that another one follows, from position `next` on. The caller owns the log, and nobody else
/// puts other bytes in the segment's place meanwhile.
///
/// `None` if there is nothing to do: it is compressed already, shared with a fork (whose disk space it would take a second
/// time), or too long. No segment is counted if it was read in vain: it is hurt, or would not get shorter by enough.
///
/// # Errors
/// `Full` or `Io` if the new file can't be written or read back: the old one is there, or the new one.
pub(crate) fn compress(
    dir: &LogDir,
    name: SegmentName,
    next: Position,
    packing: Packing,
) -> Result<Option<Compressed>> {
    if !Decompressor::IS_THERE {
        return Ok(None);
    }
    let path = dir.segment_path(name);
    let view = dir.view(name)?;
    if view.is_packed() || view.len() > to_u64(PACKED_LEN_MAX) {
        return Ok(None);
    }
    let links = dir.storage.link_count(&path).map_err(|e| Error::io("looking at", &path, e))?;
    if links.is_some_and(|links| links > 1) {
        return Ok(None);
    }
    let bytes = view.stored(0, u64::MAX)?;
    let in_vain = Ok(Some(Compressed::default()));
    let Some(packed) = pack(&bytes, name, next, packing)? else { return in_vain };
    let (before, after) = (to_u64(bytes.len()), to_u64(packed.len()));
    let least = packing.least_saved.max(before.saturating_mul(packing.least_percent) / 100);
    if before.saturating_sub(after) < least {
        return in_vain;
    }
    dir.replace_checked(name, &packed, &mut |beside| {
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("compress_without_read_back") {
            return Ok(());
        }
        let file = dir.storage.open(beside, Access::Read).map_err(|e| Error::io("opening", beside, e))?;
        let read = SegmentView::whole(beside.to_path_buf(), file, Spare::default())?;
        let is_same = read.hurt().is_empty() && read.notes().is_empty() && *read == *bytes;
        // Whoever took the log over may have erased something from it.
        if is_same && *dir.read_all(name)? == *bytes {
            return Ok(());
        }
        let message = format!("{} does not read back as what was compressed", beside.display());
        Err(Error::new(ErrorKind::Io, "compress.differs", message))
    })?;
    Ok(Some(Compressed { segments: 1, before, after }))
}

/// The compressed file of a segment; `None` if it is not sound from its first byte to its last: what is hurt stays as it is,
/// for whoever looks into it.
fn pack(bytes: &[u8], name: SegmentName, next: Position, packing: Packing) -> Result<Option<Vec<u8>>> {
    let Ok(header) = SegmentHeader::decode(bytes) else { return Ok(None) };
    let Some(frames) = sound_frames(bytes, &header, next).filter(|_| header.first_position == name.0) else {
        return Ok(None);
    };
    let Some((own, mut rest)) = bytes.split_first_chunk::<SEGMENT_HEADER_LEN>() else { return Ok(None) };
    let mut compressor = Compressor::new()?;
    let mut blocks = Vec::new();
    for len in packed::cut(bytes.len(), &frames, packing.block_len) {
        let (block, behind) = rest.split_at_checked(len).unwrap_or((rest, &[]));
        blocks.push((block.len(), compressor.block(block)?));
        rest = behind;
    }
    // One that is too long for the format stays plain.
    Ok(packed::encode(&header, own, next, &blocks).ok())
}

/// Where the frames of a sealed segment begin, its footer last, if it is whole.
fn sound_frames(bytes: &[u8], header: &SegmentHeader, next: Position) -> Option<Vec<usize>> {
    let mut frames = Vec::new();
    let mut end = FrameEnd::of_header(header);
    let mut sealed = false;
    for span in Scan::new(bytes, header) {
        match span {
            Span::Frame { offset, frame } if !sealed => {
                frames.push(offset);
                sealed = frame.header().fields.kind == KIND_FOOTER;
                end = FrameEnd::of_frame(offset, &frame);
            }
            Span::End { offset } if offset == bytes.len() => {}
            _ => return None,
        }
    }
    (sealed && end.next == next).then_some(frames)
}

#[cfg(feature = "compression")]
mod zstandard {
    use std::fmt;

    use crate::error::{Error, ErrorKind, Result};

    /// The fastest level that compresses well: transcripts get a few percent shorter at higher ones, and take many times as
    /// long.
    const LEVEL: i32 = 1;

    /// Compresses blocks.
    pub(crate) struct Compressor(zstd::bulk::Compressor<'static>);

    impl Compressor {
        pub(crate) fn new() -> Result<Self> {
            zstd::bulk::Compressor::new(LEVEL).map(Self).map_err(failed)
        }

        pub(crate) fn block(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
            self.0.compress(bytes).map_err(failed)
        }
    }

    fn failed(error: std::io::Error) -> Error {
        Error::with_source(ErrorKind::Io, "compress.failed", "a segment could not be compressed", error)
    }

    /// Decompresses blocks.
    #[derive(Default)]
    pub(crate) struct Decompressor(Option<zstd::bulk::Decompressor<'static>>);

    impl fmt::Debug for Decompressor {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Decompressor")
        }
    }

    impl Decompressor {
        /// Whether this build decompresses.
        pub(crate) const IS_THERE: bool = true;

        /// Fills `place` with the bytes of a block: as many, whatever its bytes say.
        pub(crate) fn block(&mut self, stored: &[u8], place: &mut [u8]) -> std::result::Result<(), String> {
            let decompressor = match &mut self.0 {
                Some(decompressor) => decompressor,
                none => none.insert(zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?),
            };
            let len = place.len();
            let written = decompressor
                .decompress_to_buffer(stored, place)
                .map_err(|error| format!("Zstandard does not decompress it ({error})"))?;
            if written != len {
                return Err(format!("it decompresses to {written} bytes, expected {len}"));
            }
            Ok(())
        }
    }
}

#[cfg(not(feature = "compression"))]
mod zstandard {
    use crate::error::{Error, ErrorKind, Result};

    #[derive(Debug)]
    pub(crate) struct Compressor;

    impl Compressor {
        pub(crate) fn new() -> Result<Self> {
            let message = "this program was built without the feature `compression`";
            Err(Error::new(ErrorKind::Unsupported, "compress.feature", message))
        }

        pub(crate) fn block(&mut self, _bytes: &[u8]) -> Result<Vec<u8>> {
            Ok(Vec::new())
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Decompressor(());

    impl Decompressor {
        pub(crate) const IS_THERE: bool = false;

        pub(crate) fn block(&mut self, _stored: &[u8], _place: &mut [u8]) -> std::result::Result<(), String> {
            Err("this program was built without the feature `compression`".to_owned())
        }
    }
}

use zstandard::Compressor;
pub(crate) use zstandard::Decompressor;
