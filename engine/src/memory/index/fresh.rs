//! Whether a log is as it was when it was read last.

use sessionlog_codec::ids::Position;
use sessionlog_codec::stored;

use super::super::source::Source;
use super::store::VALUE_VERSION;
use crate::log::{LogMark, LogStamp};

/// What the file system says of a log now, whose last segment was this one; `None` if it says nothing.
pub(super) fn stamp(source: &Source, segment: Position) -> Option<LogStamp> {
    source.log().look(segment).map(|look| look.stamp)
}

/// What the file system says of a log that still ends at `mark`, if whatever changes the log is going to change that.
pub(super) fn proof(source: &Source, mark: &LogMark) -> Option<LogStamp> {
    let look = source.log().look(mark.segment).filter(|look| look.proves(mark))?;
    // Looked at again, behind the stamp: what came in between is not covered by it.
    source.log().is_at(mark).unwrap_or(false).then_some(look.stamp)
}

/// As it is stored. What can't be is not known.
pub(super) fn stored_of(stamp: Option<LogStamp>) -> Option<Vec<u8>> {
    stored::encode(VALUE_VERSION, &stamp?).ok()
}

/// As it was stored; `None` of what no stamp is.
pub(super) fn of_stored(bytes: Option<&[u8]>) -> Option<LogStamp> {
    stored::decode(VALUE_VERSION, bytes?).ok()
}
