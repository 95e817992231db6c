//! How the segments of a log follow one another.

use std::path::Path;

use sessionlog_codec::chain;
use sessionlog_codec::frame::{Frame, KIND_FOOTER};
use sessionlog_codec::ids::{Digest, Position};
use sessionlog_codec::limits::SEGMENT_HEADER_LEN;
use sessionlog_codec::segment::SegmentHeader;

use super::segment::{LogDir, SegmentName};
use super::unpacked::SegmentView;
use crate::error::{Error, ErrorKind, Result};
use crate::num::to_u64;

/// Checks that each segment follows the one before it: only headers and footers are read. Those before the `proven` one
/// followed each other when something was derived from them: they are counted.
pub(super) fn check_links(
    dir: &LogDir,
    segments: &[(SegmentName, u64)],
    last: &SegmentHeader,
    proven: Option<SegmentName>,
) -> Result<()> {
    let skipped = proven.map_or(0, |proven| segments.partition_point(|(name, _)| *name < proven));
    let segments = segments.get(skipped..).unwrap_or_default();
    let mut headers = Vec::with_capacity(segments.len());
    let (_, before) = segments.split_last().unwrap_or((&(SegmentName(Position::START), 0), &[]));
    for (name, _) in before {
        let path = dir.segment_path(*name);
        let mut view = dir.view(*name)?;
        let bytes = view.read(0, to_u64(SEGMENT_HEADER_LEN))?;
        let header = SegmentHeader::decode(&bytes).map_err(|e| Error::decode(&path, 0, e))?;
        let end = sealed_end(&mut view, &path, header.salt)?;
        headers.push((*name, header, Some(end)));
    }
    if let Some((name, _)) = segments.last() {
        headers.push((*name, last.clone(), None));
    }
    let broken = |name: SegmentName, what: String| {
        let message =
            format!("{}: {what}; `logdump verify` lists all damage", dir.segment_path(name).display());
        Err(Error::new(ErrorKind::Corrupt, "log.damaged", message))
    };
    for (name, header, _) in &headers {
        if header.first_position != name.0 {
            return broken(*name, format!("its header says it starts at position {}", header.first_position));
        }
    }
    if let Some((name, first, _)) = headers.first()
        && first.segment_no.0 != to_u64(skipped)
    {
        let (should, are) = (first.segment_no, skipped);
        return broken(
            *name,
            format!("{should} segments should be before it, and {are} are: some are missing"),
        );
    }
    if let Some((name, first, _)) = headers.first()
        && skipped == 0
        && !is_first(first)
    {
        return broken(*name, "its header does not begin the chain of its log".to_owned());
    }
    for pair in headers.windows(2) {
        let [(before, earlier, Some((next, chain))), (name, header, _)] = pair else { continue };
        if !follows(earlier, *next, chain, header) {
            return broken(*name, format!("it does not follow {before}: one is missing or of another log"));
        }
    }
    Ok(())
}

/// Whether a segment can be the first of a log: its chain begins with the genesis hash of its log, or, where a fork
/// copied it, of the log that it was copied from.
pub(super) fn is_first(header: &SegmentHeader) -> bool {
    let origin = header.forked_from.unwrap_or(header.log_id);
    header.segment_no.0 == 0 && header.previous == chain::genesis(origin)
}

/// Whether a segment follows another one, whose records end before `next` with the chain hash `chain`.
pub(super) fn follows(
    earlier: &SegmentHeader,
    next: Position,
    chain: &Digest,
    header: &SegmentHeader,
) -> bool {
    let same_log = header.log_id == earlier.log_id || header.forked_from == Some(earlier.log_id);
    let in_order = earlier.segment_no.next() == Some(header.segment_no);
    same_log && in_order && header.first_position == next && header.previous == *chain
}

/// The position and chain hash after a sealed segment, from its footer.
fn sealed_end(view: &mut SegmentView, path: &Path, salt: u32) -> Result<(Position, Digest)> {
    let not_sealed = || {
        let message = format!("{} has a segment after it but no footer: its end is missing", path.display());
        Error::new(ErrorKind::Corrupt, "log.damaged", message)
    };
    let (offset, bytes) = view.footer()?.ok_or_else(not_sealed)?;
    let frame = Frame::decode(&bytes, salt).map_err(|e| Error::decode(path, offset, e))?;
    if frame.header().fields.kind != KIND_FOOTER {
        return Err(not_sealed());
    }
    Ok((frame.header().fields.first_position, frame.header().chain))
}
