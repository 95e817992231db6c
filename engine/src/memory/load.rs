//! The texts of records, from the logs: an index says where they are and holds none.

use std::collections::BTreeMap;

use sessionlog_codec::event::{Event, LoggedEvent};
use sessionlog_codec::ids::{Position, SessionId};
use sessionlog_projections::memory::{MemoryKind, MemoryRecord, is_archive_read, record_of, text_at};

use super::source::{Origin, Source};
use crate::session::logged;

/// A record without its text, and where that is.
#[derive(Clone, Debug)]
pub(super) struct Located {
    pub(super) record: MemoryRecord,
    /// Whether it was left without text.
    pub(super) is_bare: bool,
    pub(super) source: Source,
    /// Where it stands in its log: of an archive, not where it stood in the session's.
    pub(super) place: Position,
}

impl Located {
    /// Whether a record of a session was left without text, by its own tags.
    pub(super) fn is_bare(kind: MemoryKind, own_tags: &[String]) -> bool {
        kind == MemoryKind::Result && is_archive_read(own_tags)
    }
}

/// The text of each record; `None` for one that is not where it should be.
pub(super) fn texts(located: &[Located]) -> Vec<Option<String>> {
    let mut by_log: BTreeMap<(SessionId, Origin), Vec<Position>> = BTreeMap::new();
    for one in located {
        by_log.entry((one.source.session, one.source.origin)).or_default().push(one.place);
    }
    let mut events: BTreeMap<(SessionId, Origin, Position), LoggedEvent> = BTreeMap::new();
    for one in located {
        let key = (one.source.session, one.source.origin);
        let Some(mut positions) = by_log.remove(&key) else { continue };
        positions.sort_unstable();
        positions.dedup();
        let read = one.source.log().read_at(&positions, &mut |record| {
            if let Ok(event) = logged(&record) {
                events.insert((key.0, key.1, record.position), event);
            }
        });
        if let Err(error) = read {
            tracing::debug!(session = %key.0, %error, "records of memory can't be read");
        }
    }
    let text = |one: &Located| {
        let event = events.get(&(one.source.session, one.source.origin, one.place))?;
        match (&event.event, one.source.origin) {
            (Event::MemoryArchived(archived), Origin::Archive) => {
                record_of(archived).filter(|record| record.id == one.record.id).map(|record| record.text)
            }
            (_, Origin::Archive) => None,
            (_, Origin::Session) if one.is_bare => Some(String::new()),
            (_, Origin::Session) => text_at(event, one.record.id.part),
        }
    };
    located.iter().map(text).collect()
}
