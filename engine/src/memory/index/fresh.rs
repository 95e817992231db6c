//! Whether a log is as it was when it was read last.

use sessionlog_codec::ids::Position;

use super::super::source::Source;
use crate::log::SegmentName;

/// Files that changed a shorter time ago may have changed again without its being seen: some file systems tell times by two
/// seconds. Git calls that racily clean.
const QUIET: std::time::Duration = std::time::Duration::from_secs(3);

const STAMP_LEN: usize = 56;

/// What the file system says, as it is stored.
pub(super) type Stamp = [u8; STAMP_LEN];

/// What the file system says of a log's last segment and of its directory; `None` if it is not to be believed yet, or says
/// nothing.
///
/// An append changes the segment, also where it fills space that was there; a new segment, one that was put in the place of
/// another, and a removed one change the directory.
pub(super) fn stamp(source: &Source, segment: Position) -> Option<Stamp> {
    let segments = source.segments();
    let of_segment = source.storage().stamp(&segments.join(SegmentName(segment).to_string())).ok()??;
    let of_dir = source.storage().stamp(&segments).ok()??;
    if of_segment.quiet.min(of_dir.quiet) < QUIET {
        return None;
    }
    let mut stamp = [0; STAMP_LEN];
    let numbers = [of_segment.file, of_segment.len, of_dir.file].map(u64::to_le_bytes);
    let times =
        [of_segment.modified, of_segment.changed, of_dir.modified, of_dir.changed].map(i64::to_le_bytes);
    for (to, from) in stamp.chunks_exact_mut(8).zip(numbers.iter().chain(&times)) {
        to.copy_from_slice(from);
    }
    Some(stamp)
}
