//! Salvage: what of a hurt log is whole, and what is missing where. Blind to payloads, and it changes nothing.
//!
//! [`survey`] reads every file of a log's directory and finds every whole frame in it. [`Survey::layout`] decides which
//! files belong to the log and puts their frames in order, with the spans between them that are lost. [`builder`] writes
//! the result as a new log.

pub(crate) mod builder;
pub(crate) mod find;
mod layout;

use std::collections::{BTreeMap, BTreeSet};

use sessionlog_codec::DecodeErrorKind;
use sessionlog_codec::footer::FooterEntry;
use sessionlog_codec::ids::{LogId, Position, SegmentNo};
use sessionlog_codec::limits::SEGMENT_HEADER_LEN;
use sessionlog_codec::segment::{self, SegmentHeader};

pub(crate) use layout::{Item, Layout, Link};

use self::find::{Pieces, describe, find, implied_salt, unused};
use super::segment::{LogDir, SegmentName};
use super::unpacked::Unpacked;
use crate::error::{Error, ErrorKind, Result};
use crate::num::to_u64;
use crate::storage::EntryKind;

/// How many segment numbers are tried to find out which one a file without a header has.
const NUMBERS_TRIED: u64 = 1 << 20;

/// Bytes that are hurt, and the records that are missing with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSpan {
    /// The file's name. Of a segment that is missing: the name of the one behind it.
    pub file: String,
    /// The first hurt byte.
    pub offset: u64,
    /// How many bytes; 0 where they are not there at all.
    pub len: u64,
    /// What was expected and what was found, in plain words.
    pub found: String,
    /// What is lost with them.
    pub loss: Loss,
}

/// What is lost with hurt bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No record.
    Nothing,
    /// These records, of which something proves that they were acknowledged.
    Acknowledged {
        /// The first position.
        first: Position,
        /// The last one.
        last: Position,
    },
    /// These records, of which nothing proves that they were acknowledged. Whole frames follow them.
    Unproven {
        /// The first position.
        first: Position,
        /// The last one.
        last: Position,
    },
    /// What a crash cut short at the log's end: nothing proves that it was ever acknowledged, or how much it was.
    TornTail {
        /// The first position that it may have had.
        first: Position,
    },
}

impl Loss {
    /// The positions that are missing, first and last, where they are known.
    #[must_use]
    pub fn positions(self) -> Option<(Position, Position)> {
        match self {
            Self::Acknowledged { first, last } | Self::Unproven { first, last } => Some((first, last)),
            Self::Nothing | Self::TornTail { .. } => None,
        }
    }

    /// How many records are known to be missing.
    #[must_use]
    pub fn records(self) -> u64 {
        self.positions().map_or(0, |(first, last)| last.0.saturating_sub(first.0).saturating_add(1))
    }
}

/// A file of the log's directory that nothing is taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The file's name.
    pub file: String,
    /// Why, in plain words.
    pub why: String,
}

/// One file, read.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFile {
    pub(crate) name: SegmentName,
    /// Of the segment: the file is shorter if it is compressed.
    pub(crate) len: usize,
    pub(crate) stored_len: u64,
    /// A position that the file itself proves to have been durable.
    pub(crate) witnessed: Position,
    pub(crate) header: Option<SegmentHeader>,
    /// What is wrong with the header.
    pub(crate) header_error: Option<String>,
    pub(crate) salt: u32,
    pub(crate) pieces: Pieces,
    /// Stretches that are neither header, frames nor unused space, and what stands there.
    pub(crate) holes: Vec<Hole>,
}

/// A stretch of bytes without meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) found: String,
}

impl SegmentFile {
    /// The position that its records begin at, as far as anything tells.
    pub(crate) fn first(&self) -> Position {
        let framed = self.pieces.frames.first().map(|frame| frame.first);
        self.header.as_ref().map(|header| header.first_position).or(framed).unwrap_or(self.name.0)
    }

    /// The position after its last whole frame or the ones that its index or a hurt frame names.
    pub(crate) fn next(&self) -> Position {
        let framed = self.pieces.frames.last().map(|frame| frame.next);
        let hurt = self.pieces.hurt.iter().map(|hurt| hurt.next).max();
        let indexed = self.pieces.index.as_ref().map(|index| index.next);
        framed.max(hurt).max(indexed).unwrap_or_else(|| self.first())
    }

    /// What its index tells about a record.
    pub(crate) fn entry(&self, position: Position) -> Option<&FooterEntry> {
        self.pieces.index.as_ref()?.entry(position)
    }
}

/// Every file of a log's directory, read.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    pub(crate) dir: LogDir,
    pub(crate) files: Vec<SegmentFile>,
    pub(crate) left_out: Vec<LeftOut>,
    /// Where the creation of a next segment did not finish: all before it was durable.
    pub(crate) begun: Option<Position>,
    /// The salts that segments of these logs have, where a header is hurt.
    salts: BTreeMap<u32, (LogId, SegmentNo)>,
}

/// Reads every file of a log's directory. `read` is told of each file's bytes.
///
/// # Errors
/// `NotFound` if there is no such directory; `Unsupported` if a newer version wrote something in it: it knows how to save
/// it; `Io` if a file can't be read: an unreadable file is not a lost one.
pub(crate) fn survey(dir: &LogDir, read: &mut dyn FnMut(u64)) -> Result<Survey> {
    let entries = dir.storage.list(&dir.segments).map_err(|e| Error::io("listing", &dir.segments, e))?;
    let mut survey = Survey {
        dir: dir.clone(),
        files: Vec::new(),
        left_out: Vec::new(),
        begun: None,
        salts: BTreeMap::new(),
    };
    let mut names = Vec::new();
    for entry in entries {
        let shown = entry.name.to_string_lossy().into_owned();
        match entry.name.to_str().and_then(SegmentName::parse) {
            None => survey.leave_out(shown, not_a_segment(&entry.name.to_string_lossy())),
            Some(_) if entry.kind != EntryKind::File => {
                survey.leave_out(shown, "it is not a regular file; links are not followed");
            }
            Some(name) => names.push(name),
        }
    }
    survey.salts = salts(dir, &names)?;
    for name in names {
        let bytes = dir.read_all(name)?;
        survey.file(name, &bytes)?;
        read(bytes.stored_len());
    }
    survey.files.sort_by_key(|file| file.name);
    // The last file of several, without a whole header: the one case in which that is no damage.
    if survey.files.len() > 1
        && let Some(begun) =
            survey.files.pop_if(|file| file.header.is_none() && file.len <= SEGMENT_HEADER_LEN)
    {
        survey.begun = Some(begun.name.0);
        survey.leave_out(begun.name.to_string(), "creating this segment did not finish; no record was in it");
    }
    Ok(survey)
}

fn not_a_segment(name: &str) -> &'static str {
    let lower = name.to_ascii_lowercase();
    if lower.contains("conflict") || lower.ends_with('~') || lower.ends_with(".bak") {
        "a copy that another program made; a log's files are named by 20 digits and `.seg`. If it is the better copy, \
         give it the name of the one that it stands for, and repair again"
    } else {
        "it does not have the name of a segment"
    }
}

impl Survey {
    fn leave_out(&mut self, file: String, why: impl Into<String>) {
        self.left_out.push(LeftOut { file, why: why.into() });
    }

    fn file(&mut self, name: SegmentName, bytes: &Unpacked) -> Result<()> {
        let (header, header_error) = match SegmentHeader::decode(bytes) {
            Ok(header) => (Some(header), None),
            Err(error) if error.kind() == DecodeErrorKind::Unsupported => {
                return Err(Error::decode(&self.dir.segment_path(name), 0, error));
            }
            Err(error) => (None, Some(error.to_string())),
        };
        let salt = match &header {
            Some(header) => Some(header.salt),
            None => implied_salt(bytes, &|salt| self.salts.contains_key(&salt)),
        };
        let Some(salt) = salt else {
            // Kept all the same: its name tells where records are missing.
            self.files.push(SegmentFile {
                name,
                len: bytes.len(),
                stored_len: bytes.stored_len(),
                witnessed: bytes.witnessed(),
                header,
                header_error,
                salt: 0,
                pieces: Pieces::default(),
                holes: vec![Hole { offset: 0, len: bytes.len(), found: nothing_in(bytes).to_owned() }],
            });
            return Ok(());
        };
        let start = if header.is_some() { SEGMENT_HEADER_LEN } else { 0 };
        let pieces = find(bytes, start, salt);
        if let Some((offset, error)) = pieces.newer {
            return Err(Error::decode(&self.dir.segment_path(name), to_u64(offset), error));
        }
        let mut holes = holes(bytes, start, salt, &pieces);
        for hole in &mut holes {
            let range = hole.offset..hole.offset.saturating_add(hole.len);
            hole.found = bytes.explain(&range, std::mem::take(&mut hole.found));
        }
        let (len, stored_len, witnessed) = (bytes.len(), bytes.stored_len(), bytes.witnessed());
        self.files.push(SegmentFile {
            name,
            len,
            stored_len,
            witnessed,
            header,
            header_error,
            salt,
            pieces,
            holes,
        });
        Ok(())
    }

    /// Which log a file without a header belongs to, and as which segment, found by its salt.
    pub(crate) fn identified(&self, file: &SegmentFile) -> Option<(LogId, SegmentNo)> {
        if let Some(header) = &file.header {
            return Some((header.log_id, header.segment_no));
        }
        self.salts.get(&file.salt).copied()
    }
}

/// The salts that segments of the logs in a directory have, and whose they are. Empty if every header is whole.
fn salts(dir: &LogDir, names: &[SegmentName]) -> Result<BTreeMap<u32, (LogId, SegmentNo)>> {
    let mut headers = Vec::with_capacity(names.len());
    for name in names {
        let bytes = dir.read(*name, 0, to_u64(SEGMENT_HEADER_LEN))?;
        headers.extend(SegmentHeader::decode(&bytes));
    }
    let mut salts = BTreeMap::new();
    if headers.len() == names.len() {
        return Ok(salts);
    }
    let most = headers.iter().map(|header| header.segment_no.0).max().unwrap_or(0);
    let most = most.saturating_add(to_u64(names.len())).min(NUMBERS_TRIED);
    let ids: BTreeSet<LogId> = headers.iter().map(|header| header.log_id).collect();
    for id in ids {
        for number in (0..=most).map(SegmentNo) {
            salts.entry(segment::salt(id, number)).or_insert((id, number));
        }
    }
    Ok(salts)
}

/// The stretches without meaning. Zeros at the end are space that was not used yet.
fn holes(bytes: &[u8], start: usize, salt: u32, pieces: &Pieces) -> Vec<Hole> {
    let frames = pieces.frames.iter().map(|frame| (frame.offset, frame.len));
    let index = pieces.index.iter().map(|index| (index.offset, index.len));
    let used: Vec<(usize, usize)> = frames.chain(index).chain(pieces.skipped.iter().copied()).collect();
    let mut holes = Vec::new();
    for (offset, len) in unused(bytes, start, used) {
        let end = offset.saturating_add(len);
        let there = bytes.get(offset..end).unwrap_or_default();
        let is_end = end == bytes.len();
        let used = there.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
        if is_end && used == 0 {
            continue;
        }
        let len = if is_end { used } else { len };
        let found = describe(bytes.get(offset..).unwrap_or_default(), salt);
        let found = if used == 0 { "there are only zero bytes".to_owned() } else { found };
        holes.push(Hole { offset, len, found });
    }
    holes
}

/// What a file is that holds nothing at all.
fn nothing_in(bytes: &[u8]) -> &'static str {
    if bytes.is_empty() {
        "the file is empty"
    } else if bytes.iter().all(|byte| *byte == 0) {
        "there are only zero bytes"
    } else {
        "neither a segment's header nor any whole frame"
    }
}

/// A span of missing positions that is too long to be marked record by record.
fn too_long(first: Position, last: Position) -> Error {
    let message = format!(
        "positions {first} to {last} are missing, more than can be marked one by one; a segment's first position may have \
         been forged"
    );
    Error::new(ErrorKind::Corrupt, "salvage.too_long", message)
}

#[cfg(test)]
mod tests;
