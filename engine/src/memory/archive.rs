//! What is kept of a session that is deleted: a small log of its own, of its records alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;

use sessionlog_codec::event::NewEvent;
use sessionlog_codec::ids::{LogId, NodeId, Position, Timestamp};
use sessionlog_projections::memory::{ArchiveStep, MemoryRecord, archived_of};
use uuid::Uuid;

use super::source::{Folding, Origin, Source};
use super::{default_archive_tools, scan};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Durability, LogDir, LogOptions, LogWriter};
use crate::session::batch_of;
use crate::store::{Home, SessionPlace};

/// An archive is written once and read often: it has no use for space ahead.
const OPTIONS: LogOptions = LogOptions { segment_len: 8 << 20, fill_len: 0 };
/// How many bytes of texts, and how many records, go into one frame.
const FRAME_TEXT: usize = 1 << 20;
const FRAME_RECORDS: usize = 256;

/// Writes the archive of a session, to be found once the session's directory is gone.
///
/// Durable when it returns: all of it, at `archive/<uuid>`. Until then nothing is there under that name, or the archive of
/// before. The same call again, after an error or a crash at any moment, does all of it.
///
/// The caller has the session's lock. Costs two reads of the session's log.
///
/// # Errors
/// `Full` or `Io` if it can't be read or written. What is hurt in the session's log is left out. A session without a log has an
/// archive without records.
pub(crate) fn write_archive(home: &Home, place: &SessionPlace, now: Timestamp) -> Result<()> {
    let archive_tools = default_archive_tools();
    let archives = home.workspace_dir(&place.workspace).join("archive");
    home.create_dir(&archives)?;
    let (dir, beside) = (archives.join(place.id.to_string()), beside(home, place));
    // What another attempt left is of no use.
    home.remove_tree(&beside)?;
    home.create_dir(&beside)?;
    let log = LogDir::below(&home.storage, &beside);
    home.create_dir(&log.segments)?;
    let source = Source::of(home, &place.workspace, place.id, Origin::Session);
    let writer = LogWriter::create(log, OPTIONS, LogId::from(Uuid::now_v7()))?;
    copy(&source, &archive_tools, now, &writer)?;
    writer.close()?;
    home.remove_tree(&dir)?;
    home.storage.rename(&beside, &dir).map_err(|e| Error::io("renaming", &beside, e))?;
    home.storage.sync_dir(&archives).map_err(|e| Error::sync(&archives, e))
}

/// Where an archive is until it is whole.
fn beside(home: &Home, place: &SessionPlace) -> PathBuf {
    home.workspace_dir(&place.workspace).join("archive").join(format!("{}.new", place.id))
}

/// Removes what a crash left of writing an archive: it holds what was said in the session.
pub(crate) fn remove_unfinished_archive(home: &Home, place: &SessionPlace) -> Result<()> {
    home.remove_tree(&beside(home, place))
}

/// Appends the records of a session, as they stand at its log's end.
fn copy(source: &Source, archive_tools: &BTreeSet<String>, now: Timestamp, writer: &LogWriter) -> Result<()> {
    // What becomes of a record stands behind it, so the log is read once for that and once for the texts.
    let entries = scan::entries(source, archive_tools, &[])?;
    let last: BTreeMap<(Position, u32), MemoryRecord> = entries
        .into_iter()
        .map(|entry| ((entry.record.id.position, entry.record.id.part), entry.record))
        .collect();
    let mut folding = Folding::of(source, archive_tools);
    let mut frame = Frame { records: Vec::new(), len: 0 };
    let mut failed = None;
    let read = source.log().read_since(None, &mut |records| {
        for record in records {
            folding.apply(source.session, record, &mut |step| {
                if let ArchiveStep::Record(record) = step
                    && let Some(known) = last.get(&(record.id.position, record.id.part))
                {
                    frame.push(MemoryRecord { text: record.text, ..known.clone() });
                }
            });
            if frame.is_full()
                && let Err(error) = frame.append(now, writer)
            {
                failed = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    match (failed, read) {
        (Some(error), _) => Err(error),
        (None, Err(error)) if error.kind() != ErrorKind::NotFound => Err(error),
        (None, _) => frame.append(now, writer),
    }
}

struct Frame {
    records: Vec<NewEvent>,
    len: usize,
}

impl Frame {
    fn push(&mut self, record: MemoryRecord) {
        self.len = self.len.saturating_add(record.text.len());
        let event = NewEvent::at(NodeId::ROOT, record.at, archived_of(&record));
        self.records.push(event);
    }

    fn is_full(&self) -> bool {
        self.len >= FRAME_TEXT || self.records.len() >= FRAME_RECORDS
    }

    fn append(&mut self, now: Timestamp, writer: &LogWriter) -> Result<()> {
        let records = std::mem::take(&mut self.records);
        self.len = 0;
        if records.is_empty() {
            return Ok(());
        }
        // Nothing of it counts before all of it is there: closing the writer syncs it.
        writer.append(batch_of(&records, now)?, Durability::Buffered).map(drop)
    }
}
