//! What the file system says of a log without its being read.

use serde::{Deserialize, Serialize};
use sessionlog_codec::ids::Position;

use super::mark::LogMark;
use super::reader::LogReader;
use super::segment::SegmentName;
use crate::storage::Stamp;

/// Files that changed a shorter time ago may have changed again without its being seen: some file systems tell times by two
/// seconds. Git calls that racily clean.
const QUIET: std::time::Duration = std::time::Duration::from_secs(3);

/// What the file system said of a log's last segment and of the directory that it is in: which files they are, how long the
/// segment is, when they were written last, and when anything about them changed last.
///
/// An append, a cut, a restored or a touched file change the segment's; a new segment, one that was put in the place of another
/// and a removed one change the directory's. Nobody can set the second of the two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogStamp {
    segment: Side,
    dir: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Side {
    file: u64,
    len: u64,
    modified: i64,
    changed: i64,
}

impl From<&Stamp> for Side {
    fn from(stamp: &Stamp) -> Self {
        Self { file: stamp.file, len: stamp.len, modified: stamp.modified, changed: stamp.changed }
    }
}

/// A stamp, and whether the files had been left alone when it was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) stamp: LogStamp,
    is_quiet: bool,
}

impl Look {
    /// Whether a log that ended at `mark` when it was read after this look ends there as long as the stamp is the same.
    ///
    /// - The files were quiet: whatever changes them later gives them another time.
    /// - The system tells of changes that can't be undone by setting a time.
    /// - No space is left in the segment behind its last frame. A frame that is written into such space is durable before its
    ///   time is (`fdatasync` does not wait for times), so a loss of power may leave a longer log with the older stamp. A frame
    ///   behind the file's end makes the file longer, and lengths are as durable as bytes.
    pub(crate) fn proves(&self, mark: &LogMark) -> bool {
        let is_told = |side: &Side| side.file != 0 && side.changed != 0;
        let LogStamp { segment, dir } = &self.stamp;
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("trust_a_young_stamp") {
            return segment.len == mark.end;
        }
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("trust_a_stamp_before_space") {
            return self.is_quiet;
        }
        self.is_quiet && is_told(segment) && is_told(dir) && segment.len == mark.end
    }
}

impl LogReader {
    /// What the file system says of the log now, if its last segment begins at a position; `None` if it says nothing, or there is
    /// no such segment. To be asked before the log is read: then what is read is never older than what was said.
    pub(crate) fn look(&self, segment: Position) -> Option<Look> {
        let dir = self.dir();
        let of_dir = dir.storage.stamp(&dir.segments).ok()??;
        let of_segment = dir.storage.stamp(&dir.segment_path(SegmentName(segment))).ok()??;
        let is_quiet = of_segment.quiet.min(of_dir.quiet) >= QUIET;
        Some(Look { stamp: LogStamp { segment: (&of_segment).into(), dir: (&of_dir).into() }, is_quiet })
    }
}
