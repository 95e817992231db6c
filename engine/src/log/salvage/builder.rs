//! Writes a new log, segment by segment, in a directory beside its place. It gets its name when all of it is durable: a
//! crash before that leaves no log, and a directory that tells what it was going to be.

use std::path::{Path, PathBuf};

use sessionlog_codec::chain;
use sessionlog_codec::footer::{self, FooterEntry};
use sessionlog_codec::frame::{self, FrameFields};
use sessionlog_codec::ids::{Digest, Epoch, LogId, Position, SegmentNo};
use sessionlog_codec::limits::FRAME_RECORDS_MAX;
use sessionlog_codec::record::{AsPayload, Envelope};
use sessionlog_codec::segment::{self, FORMAT_VERSION, SegmentHeader};

use crate::error::{Error, ErrorKind, Result};
use crate::log::{LogDir, LogOptions, SegmentName};
use crate::num::to_u64;

/// What the directory's name ends in while the log is written.
pub(crate) const UNFINISHED: &str = ".salvaging";
/// The longest segment, so that the offset of every frame fits into the index.
const SEGMENT_LEN_MAX: u64 = 1 << 30;

/// A log that is being written.
#[derive(Debug)]
pub(crate) struct LogBuilder {
    target: LogDir,
    building: LogDir,
    segment_len: u64,
    header: Option<SegmentHeader>,
    log_id: LogId,
    bytes: Vec<u8>,
    entries: Vec<FooterEntry>,
    next: Position,
    chain: Digest,
    epoch: Epoch,
}

impl LogBuilder {
    /// Begins a log that will be at `target`, where nothing may be.
    ///
    /// # Errors
    /// `Conflict` if something is there; `Full` or `Io`.
    pub(crate) fn begin(target: LogDir, options: LogOptions, log_id: LogId) -> Result<Self> {
        let storage = &target.storage;
        let building = LogDir { segments: beside(&target.segments), ..target.clone() };
        for dir in [&target.segments, &building.segments] {
            if storage.entry(dir).map_err(|e| Error::io("looking at", dir, e))?.is_some() {
                let message = format!("there is something at {} already", dir.display());
                return Err(Error::new(ErrorKind::Conflict, "log.exists", message));
            }
        }
        storage.create_dir(&building.segments).map_err(|e| Error::io("creating", &building.segments, e))?;
        let parent = target.segments.parent().unwrap_or(&target.segments);
        storage.sync_dir(parent).map_err(|e| Error::io("syncing", parent, e))?;
        Ok(Self {
            target,
            building,
            segment_len: options.segment_len.min(SEGMENT_LEN_MAX),
            header: None,
            log_id,
            bytes: Vec::new(),
            entries: Vec::new(),
            next: Position(1),
            chain: chain::genesis(log_id),
            epoch: Epoch(1),
        })
    }

    /// The position that the next record gets.
    pub(crate) fn next(&self) -> Position {
        self.next
    }

    /// Writes a frame, of an ownership that is not before the last one.
    ///
    /// # Errors
    /// `Invalid` if the records don't fit into a frame; `Full` or `Io`.
    pub(crate) fn frame<P: AsPayload>(&mut self, epoch: Epoch, records: &[(Envelope, P)]) -> Result<()> {
        self.epoch = self.epoch.max(epoch);
        let count = to_u64(self.entries.len().saturating_add(records.len()));
        let is_full = to_u64(self.bytes.len()) >= self.segment_len || count > u64::from(FRAME_RECORDS_MAX);
        if is_full && !self.entries.is_empty() {
            self.seal()?;
        }
        let header = self.header()?;
        let offset = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        // The log is there when all of it is durable, so for each frame of it all before it is.
        let synced = Position(self.next.0.saturating_sub(1));
        let fields = FrameFields::records(self.next, self.epoch, synced);
        self.chain = frame::encode(&mut self.bytes, header.salt, &self.chain, fields, records)?;
        self.entries.extend(records.iter().map(|(envelope, _)| FooterEntry::of(envelope, offset)));
        self.next = Position(self.next.0.saturating_add(to_u64(records.len())));
        Ok(())
    }

    /// The header of the segment that is being written; begins one if there is none.
    fn header(&mut self) -> Result<SegmentHeader> {
        if let Some(header) = self.header.as_ref().filter(|_| !self.bytes.is_empty()) {
            return Ok(header.clone());
        }
        let number = match &self.header {
            None => SegmentNo(0),
            Some(before) => before.segment_no.next().ok_or_else(|| {
                Error::new(ErrorKind::Full, "log.segments", "the log has no segment number left")
            })?,
        };
        let header = SegmentHeader {
            format: FORMAT_VERSION,
            reader: FORMAT_VERSION,
            log_id: self.log_id,
            segment_no: number,
            first_position: self.next,
            epoch: self.epoch,
            salt: segment::salt(self.log_id, number),
            previous: self.chain,
            forked_from: None,
        };
        self.bytes.extend_from_slice(&header.encode());
        self.header = Some(header.clone());
        Ok(header)
    }

    fn seal(&mut self) -> Result<()> {
        let salt = self.header()?.salt;
        footer::encode(&mut self.bytes, salt, self.next, self.epoch, &self.chain, &self.entries)?;
        self.write()
    }

    /// Writes the segment, its bytes durable; its name is not yet.
    fn write(&mut self) -> Result<()> {
        let first = self.header()?.first_position;
        let path = self.building.segment_path(SegmentName(first));
        let storage = &self.building.storage;
        let file = storage.create_new(&path).map_err(|e| Error::io("creating", &path, e))?;
        file.write_at(&self.bytes, 0).map_err(|e| Error::io("writing", &path, e))?;
        file.sync_all().map_err(|e| Error::io("syncing", &path, e))?;
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }

    /// Writes what is left and gives the log its name. Durable when it returns: the whole log.
    ///
    /// # Errors
    /// `Full` or `Io`: then there is no log.
    pub(crate) fn finish(mut self) -> Result<LogId> {
        if !self.entries.is_empty() {
            self.write()?;
        }
        let storage = &self.target.storage;
        let (from, to) = (&self.building.segments, &self.target.segments);
        storage.sync_dir(from).map_err(|e| Error::io("syncing", from, e))?;
        storage.rename(from, to).map_err(|e| Error::io("renaming", from, e))?;
        let parent = to.parent().unwrap_or(to);
        storage.sync_dir(parent).map_err(|e| Error::io("syncing", parent, e))?;
        Ok(self.log_id)
    }
}

fn beside(segments: &Path) -> PathBuf {
    let mut name = segments.file_name().unwrap_or_default().to_owned();
    name.push(UNFINISHED);
    segments.with_file_name(name)
}
