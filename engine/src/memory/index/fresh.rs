//! Whether a log is as it was when it was read last.

use sessionlog_codec::ids::Position;

use super::super::source::Source;
use crate::log::SegmentName;

/// Files that changed a shorter time ago may have changed again without its being seen: some file systems tell times by two
/// seconds. Git calls that racily clean.
const QUIET: std::time::Duration = std::time::Duration::from_secs(3);

/// What the file system says of a log's last segment and of its directory; `None` if it is not to be believed yet, or says
/// nothing.
///
/// An append changes the segment, also where it fills space that was there; a new segment, one that was put in the place of
/// another, and a removed one change the directory.
pub(super) fn stamp(source: &Source, segment: Position) -> Option<Vec<u8>> {
    let dir = source.log.dir();
    let of_segment = dir.storage.stamp(&dir.segment_path(SegmentName(segment))).ok()??;
    let of_dir = dir.storage.stamp(&dir.segments).ok()??;
    if of_segment.quiet.min(of_dir.quiet) < QUIET {
        return None;
    }
    let mut stamp = Vec::with_capacity(48);
    for number in [of_segment.file, of_segment.len, of_dir.file] {
        stamp.extend_from_slice(&number.to_le_bytes());
    }
    for time in [of_segment.modified, of_segment.changed, of_dir.modified, of_dir.changed] {
        stamp.extend_from_slice(&time.to_le_bytes());
    }
    Some(stamp)
}
