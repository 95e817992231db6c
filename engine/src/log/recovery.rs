//! Recovery: what a log's bytes say after whatever happened, and the one place that cuts.
//!
//! [`assess`] is a pure function over the bytes of the last segment. [`Recovering`] holds its result, and only
//! [`Recovering::finish`] turns it into a [`LogWriter`]: it moves a torn tail into quarantine, cuts it off, and
//! changes nothing else.
//!
//! A torn tail is told from damage by what later frames say was durable (`synced`): bad bytes are a torn tail if
//! nothing proves that they were ever acknowledged, and damage if something does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog_codec::DecodeError;
use sessionlog_codec::DecodeErrorKind;
use sessionlog_codec::footer::{FooterEntry, LOCATOR_LEN};
use sessionlog_codec::frame::{Frame, KIND_FOOTER, KIND_RECORDS};
use sessionlog_codec::ids::{Digest, Epoch, Position};
use sessionlog_codec::limits::SEGMENT_HEADER_LEN;
use sessionlog_codec::segment::SegmentHeader;

use super::LogOptions;
use super::commit::LogWriter;
use super::links::check_links;
use super::mark::LogMark;
use super::scan::{FrameEnd, Scan, Span};
use super::segment::{LogDir, SegmentName};
use super::tail::Tail;
use super::unpacked::{HurtBlock, Unpacked};
use crate::error::{Error, ErrorKind, Result};
use crate::num::{to_u64, to_usize};
use crate::storage::{Access, StorageFile};

/// The last segment of a log, as bytes.
#[derive(Clone, Copy, Debug)]
pub struct SegmentBytes<'a> {
    /// All of its bytes.
    pub bytes: &'a [u8],
    /// A position that something outside of the segment proves to have been durable; [`Position::START`] if nothing does.
    pub witnessed: Position,
}

/// Bytes at a log's end that were never acknowledged, as far as anything proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Where they start in the segment, in bytes.
    pub offset: u64,
    /// How many there are, up to the last one that is not zero.
    pub len: u64,
    /// How many whole frames follow the first bad byte. They were written together with it and synced with nothing.
    pub later_frames: usize,
    /// What is wrong with the first of them.
    pub error: String,
}

/// Acknowledged records that are hurt or missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where the first hurt byte is in the segment.
    pub offset: u64,
    /// Bytes up to the next sound frame or the end.
    pub len: u64,
    /// The first position that is missing.
    pub first: Position,
    /// The last one that is known to be missing.
    pub last: Position,
    /// What was found, in plain words.
    pub explanation: String,
}

/// What a log's bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every frame is whole, to the end.
    Clean,
    /// The end is torn, and nothing acknowledged is in it.
    TornTail(TornTail),
    /// Acknowledged data is hurt: read around it, write nothing.
    Damaged(Damage),
    /// A newer version wrote this: read what is known, write nothing.
    Unsupported {
        /// Where in the segment.
        offset: u64,
        /// What this version can't read.
        error: DecodeError,
    },
}

/// Whether a segment takes more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// It does.
    Active,
    /// It ends in a footer.
    Sealed,
}

/// The result of [`assess`].
#[derive(Clone, Debug)]
pub struct Assessment {
    /// What the bytes say.
    pub verdict: Verdict,
    pub(crate) header: SegmentHeader,
    pub(crate) end: FrameEnd,
    pub(crate) entries: Vec<FooterEntry>,
    pub(crate) state: SegmentState,
}

impl Assessment {
    /// The last record before anything that is wrong.
    #[must_use]
    pub fn last(&self) -> Position {
        Position(self.end.next.0.saturating_sub(1))
    }
}

/// Why a segment can't be assessed at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderProblem {
    /// Nothing but (a part of) a header was ever written: creating the segment did not finish.
    HalfCreated,
    /// The header is hurt, and there is something behind it: it was whole once, since no frame is written before the
    /// header is durable.
    Unreadable(DecodeError),
}

/// Judges the bytes of a log's last segment.
///
/// # Errors
/// [`HeaderProblem`] if it has no readable header.
pub fn assess(segment: SegmentBytes<'_>) -> std::result::Result<Assessment, HeaderProblem> {
    judge(segment, &[])
}

/// As [`assess`], of a segment's file whatever its layout.
pub(super) fn assess_file(
    bytes: &Unpacked,
    witnessed: Position,
) -> std::result::Result<Assessment, HeaderProblem> {
    judge(SegmentBytes { bytes, witnessed: witnessed.max(bytes.witnessed()) }, bytes.hurt())
}

fn judge(segment: SegmentBytes<'_>, hurt: &[HurtBlock]) -> std::result::Result<Assessment, HeaderProblem> {
    let header = SegmentHeader::decode(segment.bytes).map_err(|error| {
        let header_only = segment.bytes.len() <= SEGMENT_HEADER_LEN;
        let half_created = header_only && error.kind() == DecodeErrorKind::Corrupt;
        if half_created { HeaderProblem::HalfCreated } else { HeaderProblem::Unreadable(error) }
    })?;
    let mut walk = Walk::new(&header, segment.witnessed);
    for span in Scan::new(segment.bytes, &header).with_hurt(hurt) {
        walk.step(span);
    }
    let verdict = walk.verdict(segment.bytes);
    let Walk { end, entries, state, .. } = walk;
    Ok(Assessment { verdict, header, end, entries, state })
}

/// What the walk over a segment has seen.
struct Walk {
    end: FrameEnd,
    entries: Vec<FooterEntry>,
    state: SegmentState,
    witnessed: Position,
    /// The first thing that is wrong, and how far it reaches.
    wrong: Option<(usize, usize, String)>,
    broken_chain: bool,
    later_frames: usize,
    newer: Option<(usize, DecodeError)>,
}

impl Walk {
    fn new(header: &SegmentHeader, witnessed: Position) -> Self {
        #[cfg(feature = "seeded-bugs")]
        let witnessed = if sessionlog_codec::seeded::is("torn_tail_when_witnessed") {
            Position::START
        } else {
            witnessed
        };
        Self {
            end: FrameEnd::of_header(header),
            entries: Vec::new(),
            state: SegmentState::Active,
            witnessed,
            wrong: None,
            broken_chain: false,
            later_frames: 0,
            newer: None,
        }
    }

    fn step(&mut self, span: Span<'_>) {
        match span {
            Span::Frame { offset, frame } if self.wrong.is_none() => self.good(offset, &frame),
            Span::Frame { frame, .. } => self.later(&frame),
            Span::OutOfOrder { offset, expected, frame } => {
                let found = frame.header().fields.first_position;
                let error = format!("records from position {expected} are missing: the next is {found}");
                self.note_wrong(offset, 0, error);
                self.later(&frame);
            }
            Span::Bad { offset, len, error } => self.note_wrong(offset, len, error),
            Span::Newer { offset, error } => self.newer = Some((offset, error)),
            Span::End { .. } => {}
        }
    }

    fn good(&mut self, offset: usize, frame: &Frame<'_>) {
        let (kind, found) = (frame.header().fields.kind, frame.header().chain);
        let expected = match kind {
            KIND_RECORDS => frame.chain_after(&self.end.chain),
            KIND_FOOTER => self.end.chain,
            // No part of the chain: whatever a frame that may be left out says, the next one does not follow from it.
            _ => found,
        };
        #[cfg(feature = "seeded-bugs")]
        let expected = if sessionlog_codec::seeded::is("skip_chain_check") { found } else { expected };
        if expected != found {
            self.broken_chain = true;
            self.note_wrong(offset, 0, format!("chain hash: expected {expected}, found {found}"));
            self.later(frame);
            return;
        }
        if kind == KIND_RECORDS {
            let frame_offset = u32::try_from(offset).unwrap_or(u32::MAX);
            self.entries
                .extend(frame.records().iter().map(|record| FooterEntry::of(&record.envelope, frame_offset)));
        }
        let chain = if kind == KIND_RECORDS { found } else { self.end.chain };
        self.end = FrameEnd { chain, ..FrameEnd::of_frame(offset, frame) };
        if kind == KIND_FOOTER {
            self.state = SegmentState::Sealed;
            self.end.offset = self.end.offset.saturating_add(LOCATOR_LEN);
        }
    }

    fn later(&mut self, frame: &Frame<'_>) {
        self.later_frames = self.later_frames.saturating_add(1);
        self.witnessed = self.witnessed.max(frame.header().fields.synced);
    }

    fn note_wrong(&mut self, offset: usize, len: usize, error: String) {
        if self.wrong.is_none() {
            self.wrong = Some((offset, len, error));
        }
    }

    fn verdict(&self, bytes: &[u8]) -> Verdict {
        let acknowledged = self.witnessed >= self.end.next;
        match (&self.wrong, &self.newer) {
            (None, Some((offset, error))) => {
                Verdict::Unsupported { offset: to_u64(*offset), error: error.clone() }
            }
            (None, None) if !acknowledged => Verdict::Clean,
            (None, None) => Verdict::Damaged(self.damage(bytes.len(), 0, "the log ends too early")),
            (Some((offset, len, error)), newer) => {
                // What follows a newer frame can't be judged, so it may be acknowledged for all we know.
                let certain = acknowledged || self.broken_chain || newer.is_some();
                #[cfg(feature = "seeded-bugs")]
                let certain = certain && !sessionlog_codec::seeded::is("cut_at_damage");
                if certain {
                    return Verdict::Damaged(self.damage(*offset, *len, error));
                }
                let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
                Verdict::TornTail(TornTail {
                    offset: to_u64(self.end.offset),
                    len: to_u64(used.saturating_sub(self.end.offset)),
                    later_frames: self.later_frames,
                    error: error.clone(),
                })
            }
        }
    }

    fn damage(&self, offset: usize, len: usize, error: &str) -> Damage {
        let first = self.end.next;
        let last = self.witnessed.max(first);
        let explanation = format!(
            "{error}. Records from position {first} on were acknowledged (up to {last} at least), so nothing was cut"
        );
        Damage { offset: to_u64(offset), len: to_u64(len), first, last, explanation }
    }
}

/// What recovery cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment it was cut from.
    pub segment: SegmentName,
    /// Where, and what was wrong.
    pub tail: TornTail,
    /// Where the bytes are kept now.
    pub quarantine: PathBuf,
}

/// What recovery found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRecovery {
    /// The last record of the log.
    pub last: Position,
    /// The ownership before this one.
    pub previous_epoch: Epoch,
    /// The torn tail that was cut off.
    pub cut: Option<Cut>,
    /// A segment whose creation did not finish, removed.
    pub removed: Option<SegmentName>,
}

/// A log that was read to its end and is not yet open for writing.
#[derive(Debug)]
pub struct Recovering {
    dir: LogDir,
    options: LogOptions,
    name: SegmentName,
    bytes: Unpacked,
    assessment: Assessment,
    half_created: Option<SegmentName>,
}

impl Recovering {
    /// Reads and judges a log. The caller holds its owner's lock. Nothing is changed.
    ///
    /// # Errors
    /// `NotFound` if there is no log, or its creation did not finish; `Corrupt` if acknowledged data is hurt;
    /// `Unsupported` if a newer version wrote it; `Io` if it can't be read: an unreadable log is never a short one.
    pub fn open(dir: LogDir, options: LogOptions, witnessed: Position) -> Result<Self> {
        Self::look(dir, options, witnessed, None)
    }

    /// The same, of a log that has what it ended with at `mark`: what was durable then is witnessed, and the segments before
    /// that place are counted and not looked into. So it costs the same however long the log is.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_behind(dir: LogDir, options: LogOptions, mark: &LogMark) -> Result<Self> {
        let witnessed = Position(mark.next.0.saturating_sub(1));
        Self::look(dir, options, witnessed, Some(SegmentName(mark.segment)))
    }

    fn look(
        dir: LogDir,
        options: LogOptions,
        mut witnessed: Position,
        proven: Option<SegmentName>,
    ) -> Result<Self> {
        let mut segments = dir.list()?;
        let mut half_created = None;
        loop {
            let Some((name, _)) = segments.last().copied() else {
                return Err(no_log(&dir));
            };
            let path = dir.segment_path(name);
            let bytes = dir.read_all(name)?;
            match assess_file(&bytes, witnessed) {
                Ok(assessment) => {
                    check_verdict(&path, &assessment.verdict)?;
                    check_links(&dir, &segments, &assessment.header, proven)?;
                    if assessment.last() == Position::START {
                        return Err(no_log(&dir));
                    }
                    return Ok(Self { dir, options, name, bytes, assessment, half_created });
                }
                Err(HeaderProblem::HalfCreated) if half_created.is_none() => {
                    half_created = Some(name);
                    segments.pop();
                    // All before it was sealed and durable before it was created.
                    witnessed = witnessed.max(Position(name.0.0.saturating_sub(1)));
                }
                Err(HeaderProblem::HalfCreated) => return Err(half_created_twice(&path)),
                Err(HeaderProblem::Unreadable(error)) => return Err(Error::decode(&path, 0, error)),
            }
        }
    }

    /// What was found.
    #[must_use]
    pub fn assessment(&self) -> &Assessment {
        &self.assessment
    }

    /// The chain hash of the last frame.
    #[must_use]
    pub fn chain(&self) -> Digest {
        self.assessment.end.chain
    }

    /// Opens the log for writing, under the next epoch, without its torn tail (which is kept in quarantine).
    ///
    /// What was read is not believed to be on disk. A writer that died may not have synced it; and after a sync that failed,
    /// a system may go on showing bytes that it will never write, which no later sync of the same file would change. So the
    /// last segment is written anew, whole, and takes its own place: no byte that was acknowledged is written over. That takes
    /// room for one segment.
    ///
    /// Durable when it returns: the quarantine copy, and every record of the log.
    ///
    /// # Errors
    /// `Io` or `Full` if a copy can't be written: then nothing was cut, and the log is as it was.
    pub fn finish(self) -> Result<(LogWriter, LogRecovery)> {
        let Self { dir, options, name, bytes, assessment, half_created } = self;
        let mut report = LogRecovery {
            last: assessment.last(),
            previous_epoch: assessment.end.epoch,
            cut: None,
            removed: half_created,
        };
        let epoch = assessment.end.epoch.next().ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "log.epochs", "the log has no epoch left for another owner")
        })?;
        if let Some(half) = half_created {
            let path = dir.segment_path(half);
            dir.storage.remove_file(&path).map_err(|e| Error::io("removing", &path, e))?;
        }
        if let Verdict::TornTail(torn) = &assessment.verdict {
            let quarantine = keep(&dir, name, &bytes, torn)?;
            report.cut = Some(Cut { segment: name, tail: torn.clone(), quarantine });
        }
        #[cfg(feature = "seeded-bugs")]
        let epoch =
            if sessionlog_codec::seeded::is("epoch_not_raised") { assessment.end.epoch } else { epoch };
        let (file, filled) = made_durable(&dir, name, &bytes, &assessment)?;
        let tail = Tail::resume(dir, options, name, file, assessment, filled, epoch);
        Ok((LogWriter::new(tail), report))
    }
}

/// Makes the last segment durable, up to its last whole frame, and all that there is of it. Gives the file and its length.
fn made_durable(
    dir: &LogDir,
    name: SegmentName,
    bytes: &Unpacked,
    assessment: &Assessment,
) -> Result<(Arc<dyn StorageFile>, u64)> {
    let end = assessment.end.offset;
    let path = dir.segment_path(name);
    let old = dir.open(name, Access::ReadWrite)?;
    let whole = bytes.get(..end).unwrap_or(bytes);
    #[cfg(feature = "seeded-bugs")]
    if sessionlog_codec::seeded::is("recovery_not_synced") {
        return old
            .set_len(to_u64(end))
            .map(|()| (old, to_u64(end)))
            .map_err(|e| Error::io("cutting", &path, e));
    }
    #[cfg(feature = "seeded-bugs")]
    if sessionlog_codec::seeded::is("recovery_syncs_in_place") {
        let synced = old.set_len(to_u64(end)).and_then(|()| old.sync_all());
        return synced.map(|()| (old, to_u64(end))).map_err(|e| Error::sync(&path, e));
    }
    dir.replace(name, whole)?;
    // An owner that lives on, against all locks, has this file open. It looks behind its own last frame before it writes,
    // and at the file's beginning before it acknowledges: it may have looked, and not yet written. A sealed file takes no
    // frames, and may be a fork's too; one that is compressed was sealed.
    if assessment.state == SegmentState::Active && !bytes.is_packed() {
        for offset in [0, to_u64(end)] {
            old.write_at(&REPLACED, offset).map_err(|e| Error::io("fencing", &path, e))?;
        }
    }
    Ok((dir.open(name, Access::ReadWrite)?, to_u64(whole.len())))
}

/// What stands at the beginning of a file that is a segment no more, and behind its last frame. No segment begins so, and no
/// frame.
const REPLACED: [u8; 8] = *b"replaced";

/// Removes what a creation left that did not finish: a single segment without a whole record, whose bytes are kept in
/// quarantine if it has any. Whether there was one. The caller holds the owner's lock.
pub(crate) fn remove_unfinished(dir: &LogDir) -> Result<bool> {
    let [(name, _)] = dir.list()?[..] else { return Ok(false) };
    let bytes = dir.read_all(name)?;
    match assess_file(&bytes, Position::START) {
        Err(HeaderProblem::HalfCreated) => {}
        Ok(found) if found.header.segment_no.0 == 0 && found.last() == Position::START => match found.verdict
        {
            Verdict::Clean => {}
            Verdict::TornTail(torn) => drop(keep(dir, name, &bytes, &torn)?),
            Verdict::Damaged(_) | Verdict::Unsupported { .. } => return Ok(false),
        },
        Ok(_) | Err(HeaderProblem::Unreadable(_)) => return Ok(false),
    }
    let path = dir.segment_path(name);
    dir.storage.remove_file(&path).map_err(|e| Error::io("removing", &path, e))?;
    dir.storage.sync_dir(&dir.segments).map_err(|e| Error::sync(&dir.segments, e))?;
    Ok(true)
}

/// No record was ever acknowledged, as far as anything proves.
pub(super) fn no_log(dir: &LogDir) -> Error {
    let message = format!("{} holds no log: its creation did not finish", dir.segments.display());
    Error::new(ErrorKind::NotFound, "log.missing", message)
}

pub(super) fn check_verdict(path: &Path, verdict: &Verdict) -> Result<()> {
    match verdict {
        Verdict::Clean | Verdict::TornTail(_) => Ok(()),
        Verdict::Damaged(damage) => {
            let at = format!("{} byte {}", path.display(), damage.offset);
            let message = format!(
                "{at}: {}. The session can be read (`logdump show`), not written; `logdump verify` lists all damage",
                damage.explanation
            );
            Err(Error::new(ErrorKind::Corrupt, "log.damaged", message))
        }
        Verdict::Unsupported { offset, error } => Err(Error::decode(path, *offset, error.clone())),
    }
}

fn half_created_twice(path: &Path) -> Error {
    let message = format!("{} and the segment after it have no readable header", path.display());
    Error::new(ErrorKind::Corrupt, "log.damaged", message)
}

/// Copies a torn tail into the quarantine, durably, under a name that is not taken yet.
fn keep(dir: &LogDir, name: SegmentName, bytes: &[u8], torn: &TornTail) -> Result<PathBuf> {
    let storage = &dir.storage;
    let (start, len) = (to_usize(torn.offset), to_usize(torn.len));
    let tail = bytes.get(start..start.saturating_add(len)).unwrap_or_default();
    let parent = dir.quarantine.parent().unwrap_or(&dir.quarantine);
    storage.create_dir(&dir.quarantine).map_err(|e| Error::io("creating", &dir.quarantine, e))?;
    storage.sync_dir(parent).map_err(|e| Error::sync(parent, e))?;
    for attempt in 0..u32::MAX {
        let path = dir.quarantine.join(format!("{name}.{}.{attempt}.torn", torn.offset));
        let file = match storage.create_new(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(Error::io("creating", &path, error)),
        };
        file.write_at(tail, 0).map_err(|e| Error::io("writing", &path, e))?;
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("quarantine_not_synced") {
            return Ok(path);
        }
        file.sync_all().map_err(|e| Error::sync(&path, e))?;
        storage.sync_dir(&dir.quarantine).map_err(|e| Error::sync(&dir.quarantine, e))?;
        return Ok(path);
    }
    Err(Error::new(ErrorKind::Io, "log.quarantine", "the quarantine has no name left"))
}
