//! Reading chosen records: one read a segment, of the stretch that they are in, whatever else the log holds.

use std::ops::Range;

use sessionlog_codec::footer::FooterEntry;
use sessionlog_codec::frame::{Frame, KIND_RECORDS};
use sessionlog_codec::ids::Position;
use sessionlog_codec::limits::SEGMENT_HEADER_LEN;
use sessionlog_codec::record::Record;
use sessionlog_codec::segment::SegmentHeader;

use super::mark::DurableEnd;
use super::reader::{LogReader, footer};
use super::scan::{Scan, Span};
use super::segment::SegmentName;
use super::unpacked::SegmentView;
use crate::error::{Error, ErrorKind, Result};
use crate::num::{to_u64, to_usize};

impl LogReader {
    /// Gives the records at `positions`, which must be in ascending order, to `visit`.
    ///
    /// # Errors
    /// `Corrupt` if one of them is hurt or not there; `NotFound` if there is no log; `Io` if it can't be read.
    pub fn read_at(&self, positions: &[Position], visit: &mut dyn FnMut(Record<'_>)) -> Result<()> {
        let mut found = 0_usize;
        let segments = if positions.is_empty() { Vec::new() } else { self.segments()? };
        for (index, (name, _)) in segments.iter().enumerate() {
            let next = segments.get(index.saturating_add(1)).map(|(next, _)| next.0);
            let first = positions.partition_point(|position| *position < name.0);
            let end = next.map_or(positions.len(), |next| positions.partition_point(|it| *it < next));
            let Some(wanted) = positions.get(first..end).filter(|wanted| !wanted.is_empty()) else {
                continue;
            };
            let mut count = |record: Record<'_>| {
                found = found.saturating_add(1);
                visit(record);
            };
            let mut view = self.dir().view(*name)?;
            let footer = if next.is_some() { footer(&mut view)? } else { None };
            match footer {
                Some((first, entries)) => read_stretch(&mut view, first, &entries, wanted, &mut count)?,
                None => scan_for(&self.dir().read_all(*name)?, wanted, &mut count),
            }
        }
        if found == positions.len() {
            return Ok(());
        }
        let message = format!(
            "{}: {found} of {} records that should be there are; `logdump verify` tells what is wrong",
            self.dir().segments.display(),
            positions.len()
        );
        Err(Error::new(ErrorKind::Corrupt, "log.damaged", message))
    }
}

impl LogReader {
    /// Gives the records of a range that ends at `end` or before it to `visit`, in order, by one read of the stretch that they
    /// are in. Nothing else of the segment is looked at.
    ///
    /// # Errors
    /// `Corrupt` if a frame is hurt, or the range begins before [`DurableEnd::first_recent`]; `Io` if the log can't be read.
    pub fn read_recent(
        &self,
        end: &DurableEnd,
        range: Range<Position>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<()> {
        let mark = &end.mark;
        let (name, path) = (SegmentName(mark.segment), self.dir().segment_path(SegmentName(mark.segment)));
        let Some(stretch) = end.stretch(&range) else {
            let message =
                format!("{}: the record at {} is not among the newest", path.display(), range.start);
            return Err(Error::new(ErrorKind::Corrupt, "log.not_recent", message));
        };
        let start = stretch.start;
        let bytes = self.dir().read(name, start, stretch.end.saturating_sub(start))?;
        let mut at = 0_usize;
        let mut expected = None;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let offset = start.saturating_add(to_u64(at));
            let frame = Frame::decode(rest, mark.salt).map_err(|e| Error::decode(&path, offset, e))?;
            let fields = &frame.header().fields;
            if fields.kind == KIND_RECORDS {
                if expected.is_some_and(|expected| expected != fields.first_position) {
                    let message = format!("{} byte {offset}: a frame is missing", path.display());
                    return Err(Error::new(ErrorKind::Corrupt, "log.damaged", message));
                }
                expected = Some(fields.next_position());
                let wanted = frame.records().iter().filter(|it| range.contains(&it.position));
                wanted.for_each(|it| visit(it.clone()));
            }
            at = at.saturating_add(frame.header().frame_len());
        }
        Ok(())
    }
}

/// Reads the frames of a sealed segment that hold the wanted records, and what lies between them.
fn read_stretch(
    view: &mut SegmentView,
    first: Position,
    entries: &[FooterEntry],
    wanted: &[Position],
    visit: &mut dyn FnMut(Record<'_>),
) -> Result<()> {
    let offset_of = |position: &Position| {
        let nth = to_usize(position.0.saturating_sub(first.0));
        entries.get(nth).map(|entry| entry.frame_offset)
    };
    let mut offsets: Vec<u32> = wanted.iter().filter_map(offset_of).collect();
    offsets.dedup();
    let (Some(start), Some(last)) = (offsets.first().copied(), offsets.last().copied()) else {
        return Ok(());
    };
    // Up to the next frame; behind the last one comes the footer, which is left in.
    let behind = entries.partition_point(|entry| entry.frame_offset <= last);
    let end = entries.get(behind).map_or(u64::MAX, |entry| entry.frame_offset.into());
    let header = SegmentHeader::decode(&view.read(0, to_u64(SEGMENT_HEADER_LEN))?);
    let salt = header.map_err(|e| Error::decode(view.path(), 0, e))?.salt;
    let bytes = view.read(start.into(), end.saturating_sub(start.into()))?;
    for offset in offsets {
        let from = to_usize(u64::from(offset.saturating_sub(start)));
        let frame = Frame::decode(bytes.get(from..).unwrap_or_default(), salt);
        give(&frame.map_err(|error| Error::decode(view.path(), offset.into(), error))?, wanted, visit);
    }
    Ok(())
}

fn scan_for(bytes: &[u8], wanted: &[Position], visit: &mut dyn FnMut(Record<'_>)) {
    let Ok(header) = SegmentHeader::decode(bytes) else { return };
    for span in Scan::new(bytes, &header) {
        if let Span::Frame { frame, .. } | Span::OutOfOrder { frame, .. } = span {
            give(&frame, wanted, visit);
        }
    }
}

fn give(frame: &Frame<'_>, wanted: &[Position], visit: &mut dyn FnMut(Record<'_>)) {
    let fields = &frame.header().fields;
    // Most frames of a segment hold nothing that is wanted.
    let first = wanted.partition_point(|position| *position < fields.first_position);
    if wanted.get(first).is_none_or(|position| *position >= fields.next_position()) {
        return;
    }
    for record in frame.records() {
        if wanted.binary_search(&record.position).is_ok() {
            visit(record.clone());
        }
    }
}
