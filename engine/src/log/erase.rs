//! Erasing payloads: sealed segments are written anew without them, and the chain still verifies.
//!
//! A record whose payload is erased keeps its envelope and the payload's digest, which is what the chain hashes. So an
//! erasure is provable, and everything else is provably untouched. A segment is replaced as a whole, under its own name:
//! whoever reads it sees the old one or the new one. One that was compressed is plain then, until it is compressed again.

use std::collections::BTreeSet;

use sessionlog_codec::footer::{self, FooterEntry};
use sessionlog_codec::frame::{self, Frame, KIND_FOOTER, KIND_RECORDS};
use sessionlog_codec::ids::{Epoch, Position};
use sessionlog_codec::limits::SEGMENT_HEADER_LEN;
use sessionlog_codec::record::{Envelope, Payload};
use sessionlog_codec::segment::SegmentHeader;

use super::scan::{FrameEnd, Scan, Span};
use super::segment::{LogDir, SegmentName};
use super::unpacked::Unpacked;
use crate::error::{Error, ErrorKind, Result};
use crate::num::to_u64;

/// What an erasure did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erasure {
    /// Records whose payload was there and is not any more.
    pub records: u64,
    /// Segments that were written anew.
    pub segments: u64,
}

/// Erases the payloads of the records at `positions` from all segments but the last. The caller owns the log, and has
/// sealed what the positions are in.
///
/// Durable when it returns: all of it. After an error or a crash each segment is either as it was or without them; the same
/// call again does the rest.
///
/// # Errors
/// `Corrupt` if a segment that has to be written anew is hurt: then it stays as it is, since what is hurt in it could not be
/// told from what was erased; `Full` or `Io` if it can't be written.
pub(crate) fn erase(dir: &LogDir, positions: &BTreeSet<Position>) -> Result<Erasure> {
    let mut erasure = Erasure::default();
    let segments = dir.list()?;
    for pair in segments.windows(2) {
        let [(name, _), (next, _)] = pair else { continue };
        if positions.range(name.0..next.0).next().is_none() {
            continue;
        }
        let bytes = dir.read_all(*name)?;
        let (rewritten, records) = without(dir, *name, &bytes, positions)?;
        if records > 0 {
            dir.replace(*name, &rewritten)?;
            erasure.records = erasure.records.saturating_add(records);
            erasure.segments = erasure.segments.saturating_add(1);
        }
    }
    Ok(erasure)
}

/// Puts the segments that hold the records at `positions` in their own places once more, as they are: what reads as erased is
/// so on disk then. A sync that failed may have left another file under the same name there, which no later sync of the
/// directory changes. Those that are compressed were put there since, and synced.
///
/// Durable when it returns: that they are as they read.
///
/// # Errors
/// As [`erase`].
pub(crate) fn confirm(dir: &LogDir, positions: &BTreeSet<Position>) -> Result<()> {
    for pair in dir.list()?.windows(2) {
        let [(name, _), (next, _)] = pair else { continue };
        if positions.range(name.0..next.0).next().is_none() || dir.view(*name)?.is_packed() {
            continue;
        }
        dir.replace(*name, &dir.read_all(*name)?)?;
    }
    Ok(())
}

/// A segment's bytes without some payloads, and how many there were.
fn without(
    dir: &LogDir,
    name: SegmentName,
    bytes: &Unpacked,
    positions: &BTreeSet<Position>,
) -> Result<(Vec<u8>, u64)> {
    let path = dir.segment_path(name);
    let hurt = |offset: usize, what: &str| {
        let message = format!(
            "{} byte {offset}: {what}. Nothing of the segment was erased; `logdump repair` makes a copy that can be",
            path.display()
        );
        Error::new(ErrorKind::Corrupt, "log.damaged", message)
    };
    let header = SegmentHeader::decode(bytes).map_err(|error| Error::decode(&path, 0, error))?;
    let mut rewriting = Rewriting {
        header: &header,
        positions,
        end: FrameEnd::of_header(&header),
        out: bytes.get(..SEGMENT_HEADER_LEN).unwrap_or_default().to_vec(),
        entries: Vec::new(),
        sealed_by: None,
        erased: 0,
    };
    for span in Scan::over(bytes, &header) {
        match span {
            Span::Frame { offset, frame } => {
                let raw = bytes.get(offset..offset.saturating_add(frame.header().frame_len()));
                if !rewriting.frame(offset, &frame, raw.unwrap_or_default())? {
                    return Err(hurt(offset, "its chain hash does not follow from the frame before it"));
                }
            }
            Span::Bad { offset, error, .. } => return Err(hurt(offset, &error)),
            Span::OutOfOrder { offset, .. } => return Err(hurt(offset, "records before it are missing")),
            Span::Newer { offset, error } => return Err(Error::decode(&path, to_u64(offset), error)),
            Span::End { .. } => {}
        }
    }
    rewriting.finish().ok_or_else(|| hurt(bytes.len(), "it has no footer"))?
}

struct Rewriting<'a> {
    header: &'a SegmentHeader,
    positions: &'a BTreeSet<Position>,
    end: FrameEnd,
    out: Vec<u8>,
    entries: Vec<FooterEntry>,
    sealed_by: Option<Epoch>,
    erased: u64,
}

impl Rewriting<'_> {
    /// Takes over one frame, without what is erased of it. Whether it is where it belongs in the chain.
    fn frame(&mut self, offset: usize, frame: &Frame<'_>, raw: &[u8]) -> Result<bool> {
        match frame.header().fields.kind {
            KIND_FOOTER => {
                self.sealed_by = Some(frame.header().fields.epoch);
                return Ok(true);
            }
            KIND_RECORDS => {}
            _ => {
                self.out.extend_from_slice(raw);
                return Ok(true);
            }
        }
        if frame.chain_after(&self.end.chain) != frame.header().chain {
            return Ok(false);
        }
        let frame_offset = u32::try_from(self.out.len()).unwrap_or(u32::MAX);
        let records = frame.records().iter();
        self.entries.extend(records.map(|record| FooterEntry::of(&record.envelope, frame_offset)));
        let mut erased = 0_u64;
        let kept: Vec<(Envelope, Payload<'_>)> = frame
            .records()
            .iter()
            .map(|record| {
                let is_meant = self.positions.contains(&record.position);
                let payload = match record.payload {
                    Payload::Present(_) if is_meant => {
                        erased = erased.saturating_add(1);
                        Payload::Redacted(record.payload.digest())
                    }
                    other => other,
                };
                (record.envelope.clone(), payload)
            })
            .collect();
        if erased == 0 {
            self.out.extend_from_slice(raw);
        } else {
            let (salt, fields) = (self.header.salt, frame.header().fields.clone());
            let chain = frame::encode(&mut self.out, salt, &self.end.chain, fields, &kept)?;
            debug_assert_eq!(chain, frame.header().chain, "an erasure leaves the chain as it was");
        }
        self.erased = self.erased.saturating_add(erased);
        self.end = FrameEnd::of_frame(offset, frame);
        Ok(true)
    }

    /// The new segment, with a footer of its own; `None` if the old one had none.
    fn finish(mut self) -> Option<Result<(Vec<u8>, u64)>> {
        let epoch = self.sealed_by?;
        let (salt, next, chain) = (self.header.salt, self.end.next, self.end.chain);
        let sealed = footer::encode(&mut self.out, salt, next, epoch, &chain, &self.entries);
        Some(sealed.map(|()| (self.out, self.erased)).map_err(Error::from))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use sessionlog_codec::ids::{KindNo, LogId, NodeId, SchemaVersion, Timestamp};

    use super::*;
    use crate::log::{Batch, Durability, LogOptions, LogWriter, NewRecord, Packing};
    use crate::storage::{CallKind, SimStorage, Storage};

    /// Each resume confirms what was erased so far: were it to write every segment anew, a long session would take its length in
    /// writes to open, and lose its compression.
    #[test]
    fn only_segments_that_were_erased_from_are_confirmed() {
        let sim = SimStorage::new();
        sim.create_dir(Path::new("log")).unwrap();
        let storage: Arc<dyn Storage> = Arc::new(sim.clone());
        let dir = LogDir::below(&storage, Path::new(""));
        let options = LogOptions { segment_len: 600, fill_len: 0 };
        let writer = LogWriter::create(dir.clone(), options, LogId([1; 16])).unwrap();
        for _ in 0..20 {
            let envelope = Envelope::new(NodeId::ROOT, KindNo(20), SchemaVersion(1), Timestamp(0));
            let record = NewRecord { envelope, payload: vec![7; 100] };
            writer.append(Batch::new(vec![record]).unwrap(), Durability::Sync).unwrap();
        }
        let segments = dir.list().unwrap();
        assert!(segments.len() > 4, "{segments:?}");
        let replaced = |positions: &[Position]| {
            sim.take_calls();
            confirm(&dir, &positions.iter().copied().collect()).unwrap();
            sim.take_calls().iter().filter(|call| call.kind() == CallKind::Rename).count()
        };
        let erased = |positions: &[Position]| erase(&dir, &positions.iter().copied().collect()).unwrap();
        let first = [Position(1)];
        assert_eq!(
            [erased(&first), erased(&first)],
            [Erasure { records: 1, segments: 1 }, Erasure::default()]
        );
        let (second, last) = (segments[1].0.0, segments[segments.len() - 1].0.0);
        assert_eq!(
            [replaced(&[]), replaced(&[second]), replaced(&[Position(1), second]), replaced(&[last])],
            [0, 1, 2, 0]
        );
        // What was compressed since was synced with that.
        if cfg!(feature = "compression") {
            let packing = Packing { block_len: 200, least_saved: 0, least_percent: 0 };
            assert!(writer.compress(2, packing).unwrap().segments == 2);
            assert_eq!([replaced(&[second]), replaced(&[segments[3].0.0])], [0, 1]);
        }
    }
}
