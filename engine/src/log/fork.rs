//! Forking: a new log that begins with the records of another one, up to a position. Blind to payloads.
//!
//! The two logs share files. A sealed segment that lies wholly before the fork is given a second name; only the segment
//! that holds the fork position is copied, up to that position, into the fork's first own segment. So a fork writes at
//! most one segment, however long the history is. A compressed segment is shared as it is. Shared files are never written again by anybody: a log is written to
//! in its last segment alone, and the last segment of a fork is always its own.
//!
//! A fork is built in a directory beside its place, with its first own frame, and gets its name when all of it is durable.
//! A crash before that leaves no log at the place, as one in the middle of [`LogWriter::create`] does.

use std::path::{Path, PathBuf};

use sessionlog_codec::footer::{self, FooterEntry};
use sessionlog_codec::frame::{Frame, FrameFields, KIND_FOOTER, KIND_RECORDS};
use sessionlog_codec::ids::{Digest, Epoch, LogId, Position};
use sessionlog_codec::limits::SEGMENT_HEADER_LEN;
use sessionlog_codec::segment::{self, FORMAT_VERSION, SegmentHeader};

use super::LogOptions;
use super::commit::{Batch, LogWriter};
use super::links::{follows, is_first};
use super::reader::LogReader;
use super::recovery::{HeaderProblem, SegmentBytes, assess, check_verdict, no_log};
use super::scan::{FrameEnd, Scan, Span};
use super::segment::{LogDir, SegmentName};
use super::tail::Tail;
use super::unpacked::Unpacked;
use crate::error::{Error, ErrorKind, Result};
use crate::num::to_u64;
use crate::storage::Access;

/// How many bytes of frames a fork copies into a segment that it goes on writing to. A longer copy is sealed at once, so
/// that the forks of the fork share it.
pub(crate) const ACTIVE_COPY_MAX: u64 = 64 << 10;

/// Where a log is forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForkPoint {
    /// Behind its last whole frame.
    Head,
    /// Behind this record. It must be the last one of its frame, since a frame is there as a whole or not at all.
    At(Position),
}

/// What a fork takes over, read and checked. Nothing is written yet.
#[derive(Debug)]
pub struct ForkPlan {
    source: LogDir,
    whole: Vec<Whole>,
    /// The header of the fork's first own segment.
    header: SegmentHeader,
    /// The frames that are copied into it, and their records.
    copied: Vec<u8>,
    entries: Vec<FooterEntry>,
    end: FrameEnd,
    epoch: Epoch,
}

/// A sealed segment that is taken over as it is.
#[derive(Debug)]
struct Whole {
    name: SegmentName,
    /// Its length up to the end of its footer's locator, in bytes.
    len: u64,
    sharing: Sharing,
}

/// Whether two logs may have one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Link,
    /// There is something behind its end, which its owner may cut off.
    Copy,
}

impl LogReader {
    /// Reads and checks what a fork of this log would take over: every checksum, every link and the hash chain, up to the
    /// fork position. What is behind it does not matter. Takes no lock and changes nothing; the log may be written to
    /// meanwhile.
    ///
    /// `log_id` becomes the fork's id.
    ///
    /// # Errors
    /// `Invalid` if the position is inside of a frame (the nearest ends of frames are named) or behind the log's end;
    /// `Corrupt` if something before it is hurt or torn; `Unsupported` if a newer version wrote it; `NotFound` if there is
    /// no log, or its creation did not finish; `Io` if it can't be read.
    pub fn plan_fork(&self, point: ForkPoint, log_id: LogId) -> Result<ForkPlan> {
        let wanted = match point {
            ForkPoint::Head => Position(u64::MAX),
            ForkPoint::At(Position::START) => {
                let message = "there is nothing before position 1: create a session instead of a fork";
                return Err(Error::invalid("fork.empty", message));
            }
            ForkPoint::At(position) => position,
        };
        let segments = self.segments()?;
        let mut walk = Walk::new(self.dir(), log_id);
        for (index, (name, _)) in segments.iter().enumerate() {
            match segments.get(index.saturating_add(1)).map(|(next, _)| next.0) {
                // Its owner began the next one, so it is done with this one and will not take the footer back.
                Some(next) if next.0.saturating_sub(1) <= wanted.0 => {
                    walk.whole(*name, next)?;
                    if next.0.saturating_sub(1) == wanted.0 {
                        break;
                    }
                }
                Some(_) => {
                    walk.part(*name, &self.dir().read_all(*name)?, wanted)?;
                    break;
                }
                None => self.last_part(&mut walk, *name, point)?,
            }
        }
        walk.plan()
    }

    fn last_part(&self, walk: &mut Walk<'_>, name: SegmentName, point: ForkPoint) -> Result<()> {
        match point {
            ForkPoint::At(wanted) => walk.part(name, &self.dir().read_all(name)?, wanted),
            ForkPoint::Head => {
                let (bytes, assessed) = match self.last(name) {
                    // Removed since the directory was listed: recovery does that to half-created ones alone.
                    Err(error) if error.kind() == ErrorKind::NotFound && walk.before.is_some() => {
                        return Ok(());
                    }
                    read => read?,
                };
                let path = self.dir().segment_path(name);
                match assessed {
                    Ok(assessment) => {
                        check_verdict(&path, &assessment.verdict)?;
                        if assessment.last() < name.0 {
                            return Ok(());
                        }
                        walk.part(name, &bytes, assessment.last())
                    }
                    Err(HeaderProblem::HalfCreated) => Ok(()),
                    Err(HeaderProblem::Unreadable(error)) => Err(Error::decode(&path, 0, error)),
                }
            }
        }
    }
}

/// The walk over the segments up to the fork position.
struct Walk<'a> {
    source: &'a LogDir,
    log_id: LogId,
    whole: Vec<Whole>,
    /// The header of the last segment that was walked over, and where its frames end.
    before: Option<(SegmentHeader, FrameEnd)>,
    /// The header of the segment that is copied in part, as it becomes in the fork.
    part: Option<SegmentHeader>,
    copied: Vec<u8>,
    entries: Vec<FooterEntry>,
}

impl<'a> Walk<'a> {
    fn new(source: &'a LogDir, log_id: LogId) -> Self {
        let (whole, copied, entries) = (Vec::new(), Vec::new(), Vec::new());
        Self { source, log_id, whole, before: None, part: None, copied, entries }
    }

    /// Takes over a segment that has another one behind it, from position `next` on.
    fn whole(&mut self, name: SegmentName, next: Position) -> Result<()> {
        let bytes = self.source.read_all(name)?;
        let header = self.header(name, &bytes)?;
        let mut end = FrameEnd::of_header(&header);
        let mut sealed = None;
        for span in Scan::over(&bytes, &header) {
            if let Some((offset, frame)) = self.sound(name, span, &end)? {
                match frame.header().fields.kind {
                    KIND_RECORDS => end = FrameEnd::of_frame(offset, &frame),
                    KIND_FOOTER => {
                        let footer_end = FrameEnd::of_frame(offset, &frame);
                        sealed = Some(footer_end.offset.saturating_add(footer::LOCATOR_LEN));
                        // An owner may have sealed what another one wrote.
                        end.epoch = footer_end.epoch;
                    }
                    _ => {}
                }
            }
        }
        let Some(len) = sealed.filter(|_| end.next == next) else {
            let what = format!("its end is missing: the next segment begins at position {next}");
            return Err(self.hurt(name, end.offset, &what, &end));
        };
        let sharing = if len == bytes.len() { Sharing::Link } else { Sharing::Copy };
        self.whole.push(Whole { name, len: to_u64(len), sharing });
        self.before = Some((header, end));
        Ok(())
    }

    /// Copies the frames of a segment up to the one that ends at `wanted`.
    fn part(&mut self, name: SegmentName, bytes: &Unpacked, wanted: Position) -> Result<()> {
        let header = match self.header(name, bytes) {
            // Nothing but a part of a header: the segment is being created.
            Err(error) if bytes.len() <= SEGMENT_HEADER_LEN && error.kind() == ErrorKind::Corrupt => {
                return Err(behind_end(Position(name.0.0.saturating_sub(1)), wanted));
            }
            header => header?,
        };
        let own = SegmentHeader {
            format: FORMAT_VERSION,
            reader: FORMAT_VERSION,
            log_id: self.log_id,
            salt: segment::salt(self.log_id, header.segment_no),
            // What the segment before it belongs to, also where the source is itself a fork and began here.
            forked_from: Some(header.forked_from.unwrap_or(header.log_id)),
            ..header.clone()
        };
        let mut end = FrameEnd::of_header(&header);
        for span in Scan::over(bytes, &header) {
            let Some((offset, frame)) = self.sound(name, span, &end)? else { continue };
            let fields = &frame.header().fields;
            if fields.kind == KIND_FOOTER {
                continue;
            }
            let last = Position(fields.next_position().0.saturating_sub(1));
            if last > wanted {
                return Err(inside_frame(wanted, Position(fields.first_position.0.saturating_sub(1)), last));
            }
            frame.copy_to(&mut self.copied, own.salt);
            if fields.kind == KIND_RECORDS {
                // Frames keep their places, since all before them is copied too.
                let frame_offset = u32::try_from(offset).unwrap_or(u32::MAX);
                let records = frame.records().iter();
                self.entries.extend(records.map(|record| FooterEntry::of(&record.envelope, frame_offset)));
                end = FrameEnd::of_frame(offset, &frame);
            }
            if last == wanted {
                self.part = Some(own);
                self.before = Some((header, end));
                return Ok(());
            }
        }
        Err(behind_end(Position(end.next.0.saturating_sub(1)), wanted))
    }

    /// The header of a segment that follows the one before it.
    fn header(&self, name: SegmentName, bytes: &[u8]) -> Result<SegmentHeader> {
        let path = self.source.segment_path(name);
        let header = SegmentHeader::decode(bytes).map_err(|error| Error::decode(&path, 0, error))?;
        let in_place = header.first_position == name.0
            && match &self.before {
                None => is_first(&header),
                Some((before, end)) => follows(before, end.next, &end.chain, &header),
            };
        if !in_place {
            let what = "it does not follow the segment before it: one is missing or of another log";
            let end =
                self.before.as_ref().map_or_else(|| FrameEnd::of_header(&header), |(_, end)| end.clone());
            return Err(self.hurt(name, 0, what, &end));
        }
        Ok(header)
    }

    /// The frame of a span, if it is one that follows from all before it; `None` for unused space.
    fn sound<'b>(
        &self,
        name: SegmentName,
        span: Span<'b>,
        end: &FrameEnd,
    ) -> Result<Option<(usize, Frame<'b>)>> {
        match span {
            Span::Frame { offset, frame } => {
                let is_records = frame.header().fields.kind == KIND_RECORDS;
                if is_records && frame.chain_after(&end.chain) != frame.header().chain {
                    let what = "its chain hash does not follow from the frame before it";
                    return Err(self.hurt(name, offset, what, end));
                }
                Ok(Some((offset, frame)))
            }
            Span::OutOfOrder { offset, expected, .. } => {
                let what = format!("records from position {expected} on are missing");
                Err(self.hurt(name, offset, &what, end))
            }
            Span::Bad { offset, error, .. } => Err(self.hurt(name, offset, &error, end)),
            Span::Newer { offset, error } => {
                Err(Error::decode(&self.source.segment_path(name), to_u64(offset), error))
            }
            Span::End { .. } => Ok(None),
        }
    }

    fn hurt(&self, name: SegmentName, offset: usize, what: &str, end: &FrameEnd) -> Error {
        let at = format!("{} byte {offset}", self.source.segment_path(name).display());
        let whole = end.next.0.saturating_sub(1);
        let message = format!(
            "{at}: {what}. A fork takes over nothing that is hurt: fork at position {whole} or before it, where a frame \
             ends (`logdump verify` lists all damage)"
        );
        Error::new(ErrorKind::Corrupt, "log.damaged", message)
    }

    fn plan(self) -> Result<ForkPlan> {
        let Self { source, log_id, whole, before, part, copied, entries } = self;
        let Some((last, end)) = before else { return Err(no_log(source)) };
        let epoch = next_epoch(&end)?;
        let header = match part {
            Some(header) => header,
            None => SegmentHeader {
                forked_from: Some(last.log_id),
                ..next_header(&SegmentHeader { log_id, ..last }, &end, epoch)?
            },
        };
        Ok(ForkPlan { source: source.clone(), whole, header, copied, entries, end, epoch })
    }
}

impl ForkPlan {
    /// The last position that is taken over.
    #[must_use]
    pub fn at(&self) -> Position {
        Position(self.end.next.0.saturating_sub(1))
    }

    /// The chain hash at that position.
    #[must_use]
    pub fn chain(&self) -> Digest {
        self.end.chain
    }

    /// The number of the fork's first own ownership: the one after that of the last frame that is taken over.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Makes the fork, with `first` as its first own frame, and opens it for writing. The caller holds its owner's lock.
    ///
    /// Durable when it returns: the whole log. Until then there is none at `target`, whatever happens; what a crash leaves
    /// beside it, under another name, the next attempt at the same place clears away.
    ///
    /// # Errors
    /// `Conflict` if there is a log at `target` already; `Full` or `Io` if it can't be written: then there is no log. After
    /// an `Io` of the very last sync nobody knows: the log is there, or it is not.
    pub fn carry_out(self, target: LogDir, options: LogOptions, first: &Batch) -> Result<LogWriter> {
        let storage = &target.storage;
        let there =
            storage.entry(&target.segments).map_err(|e| Error::io("looking at", &target.segments, e))?;
        if there.is_some() {
            let message = format!("there is a log at {} already", target.segments.display());
            return Err(Error::new(ErrorKind::Conflict, "log.exists", message));
        }
        let building = LogDir { segments: beside(&target.segments), ..target.clone() };
        let built = self.build(&building, first).and_then(|own| {
            storage
                .rename(&building.segments, &target.segments)
                .map_err(|e| Error::io("renaming", &building.segments, e))?;
            Ok(own)
        });
        let (name, bytes) = built.inspect_err(|_| {
            // Its space is given back; if that fails too, what is left is no log.
            drop(clear(&building));
        })?;
        let parent = target.segments.parent().unwrap_or(&target.segments);
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("drop_dir_sync_at_rename") {
            return self.open(target, options, name, &bytes);
        }
        storage.sync_dir(parent).map_err(|e| Error::sync(parent, e))?;
        self.open(target, options, name, &bytes)
    }

    /// Writes all files of the fork into an empty directory, durably. Gives the last one and its bytes.
    fn build(&self, to: &LogDir, first: &Batch) -> Result<(SegmentName, Vec<u8>)> {
        to.storage.create_dir(&to.segments).map_err(|e| Error::io("creating", &to.segments, e))?;
        clear(to)?;
        for whole in &self.whole {
            self.take_over(whole, to)?;
        }
        let mut header = self.header.clone();
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(&self.copied);
        if to_u64(self.copied.len()) > ACTIVE_COPY_MAX {
            let (next, epoch) = (self.end.next, self.end.epoch);
            footer::encode(&mut bytes, header.salt, next, epoch, &self.end.chain, &self.entries)?;
            write_new(to, SegmentName(header.first_position), &bytes)?;
            header = next_header(&header, &self.end, self.epoch)?;
            bytes = header.encode().to_vec();
        }
        let fields = FrameFields::records(self.end.next, self.epoch, self.at());
        first.body().write_frame(&mut bytes, header.salt, &self.end.chain, fields)?;
        let name = SegmentName(header.first_position);
        write_new(to, name, &bytes)?;
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("drop_dir_sync_at_fork") {
            return Ok((name, bytes));
        }
        to.storage.sync_dir(&to.segments).map_err(|e| Error::sync(&to.segments, e))?;
        Ok((name, bytes))
    }

    /// Gives a whole segment its second name, or copies it where that can't be.
    fn take_over(&self, whole: &Whole, to: &LogDir) -> Result<()> {
        let (from, link) = (self.source.segment_path(whole.name), to.segment_path(whole.name));
        if whole.sharing == Sharing::Link {
            match to.storage.hard_link(&from, &link) {
                Ok(()) => return Ok(()),
                // A file system without links, a second file system, or a file with too many: no reason to fail.
                Err(error) => {
                    tracing::debug!(segment = %from.display(), %error, "a fork copies what it can't share");
                }
            }
        }
        write_new(to, whole.name, &self.source.read(whole.name, 0, whole.len)?)
    }

    fn open(self, dir: LogDir, options: LogOptions, name: SegmentName, bytes: &[u8]) -> Result<LogWriter> {
        let path = dir.segment_path(name);
        let assessment = assess(SegmentBytes { bytes, witnessed: Position::START }).map_err(|_| {
            let message = format!("{} can't be read back as it was written", path.display());
            Error::new(ErrorKind::Corrupt, "log.damaged", message)
        })?;
        check_verdict(&path, &assessment.verdict)?;
        let file = dir.open(name, Access::ReadWrite)?;
        let filled = to_u64(bytes.len());
        Ok(LogWriter::new(Tail::resume(dir, options, name, file, assessment, filled, self.epoch)))
    }
}

/// The header of a segment that follows one of the same log.
fn next_header(before: &SegmentHeader, end: &FrameEnd, epoch: Epoch) -> Result<SegmentHeader> {
    let segment_no = before.segment_no.next().ok_or_else(|| {
        Error::new(ErrorKind::Full, "log.segments", "the log has no segment number left for a fork")
    })?;
    Ok(SegmentHeader {
        format: FORMAT_VERSION,
        reader: FORMAT_VERSION,
        log_id: before.log_id,
        segment_no,
        first_position: end.next,
        epoch,
        salt: segment::salt(before.log_id, segment_no),
        previous: end.chain,
        forked_from: None,
    })
}

fn next_epoch(end: &FrameEnd) -> Result<Epoch> {
    end.epoch.next().ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "log.epochs", "the log has no epoch left for the owner of a fork")
    })
}

fn inside_frame(wanted: Position, before: Position, after: Position) -> Error {
    let nearest = if before == Position::START {
        format!("position {after}")
    } else {
        format!("position {before} or {after}")
    };
    let message = format!(
        "position {wanted} is inside of a frame, which is taken over as a whole or not at all: fork at {nearest}"
    );
    Error::invalid("fork.inside_frame", message)
}

fn behind_end(last: Position, wanted: Position) -> Error {
    let message =
        format!("the log ends at position {last}, and the fork was to be at {wanted}: fork at {last}");
    Error::invalid("fork.behind_end", message)
}

/// Where a log is built before it has its place.
fn beside(segments: &Path) -> PathBuf {
    let mut name = segments.file_name().unwrap_or_default().to_owned();
    name.push(".forking");
    segments.with_file_name(name)
}

/// Removes what an attempt that did not finish left in the directory.
fn clear(dir: &LogDir) -> Result<()> {
    let entries = dir.storage.list(&dir.segments).map_err(|e| Error::io("listing", &dir.segments, e))?;
    for entry in entries {
        let path = dir.segments.join(entry.name);
        dir.storage.remove_file(&path).map_err(|e| Error::io("removing", &path, e))?;
    }
    Ok(())
}

/// Writes a segment, its bytes durable; its name is not yet.
fn write_new(dir: &LogDir, name: SegmentName, bytes: &[u8]) -> Result<()> {
    let path = dir.segment_path(name);
    let file = dir.storage.create_new(&path).map_err(|e| Error::io("creating", &path, e))?;
    file.write_at(bytes, 0).map_err(|e| Error::io("writing", &path, e))?;
    file.sync_all().map_err(|e| Error::sync(&path, e))
}
