//! Reading artifacts: bounded pieces of them, and none before the hash of the whole is known to be right.

use std::ops::Range;
use std::path::PathBuf;

use sessionlog_codec::ids::{Digest, SessionId};

use super::blobs::{Blobs, parse_digest};
use super::facts::Facts;
use super::lines::Lines;
use super::{ARTIFACT_LEN_MAX, LINE_LEN_MAX, LINES_MAX, SLICE_LEN_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::num::{to_u64, to_usize};
use crate::store::{Caught, SharedLog};

/// Digits of a digest's beginning that name it at least.
const PREFIX_LEN_MIN: usize = 4;

/// The artifacts of one workspace, for reading: takes no lock and changes no byte. Every method that gives content reads the
/// whole artifact and checks its hash first, so its cost is that of the whole, and what it gives is right.
#[derive(Clone, Debug)]
pub struct ArtifactReader {
    pub(super) blobs: Blobs,
    pub(super) log: SharedLog,
}

/// What is known of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactInfo {
    /// Its address.
    pub digest: Digest,
    /// Bytes.
    pub len: u64,
    /// What its host called it; `None` for one that was captured from a result. The last word, of several.
    pub kind: Option<String>,
    /// The MIME type that its host gave; of a captured one, its receipt in the session says it.
    pub media_type: Option<String>,
    /// What it was derived from.
    pub parents: Vec<Digest>,
    /// The sessions that its hosts put it in.
    pub sessions: Vec<SessionId>,
}

/// An artifact that is there, by its file alone: not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArtifactEntry {
    /// Its address.
    pub digest: Digest,
    /// Bytes.
    pub len: u64,
}

/// Bytes of an artifact, as what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SliceContent {
    /// They are text, from its first byte to its last.
    Text(String),
    /// They are not: the artifact is no text there, or the slice begins or ends inside of a character.
    Bytes(Vec<u8>),
}

/// A piece of an artifact, by its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactSlice {
    /// Exactly the bytes that were asked for, as far as there are any.
    pub content: SliceContent,
    /// Where they are.
    pub range: Range<u64>,
    /// Of bytes that are text but for characters cut at their ends: the whole characters. Asking for this range gives text.
    pub whole_characters: Option<Range<u64>>,
    /// Bytes of the artifact.
    pub len: u64,
}

/// A line of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactLine {
    /// From 1.
    pub number: u64,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Bytes of it, its end not counted.
    pub len: u64,
    /// It, or [`LINE_LEN_MAX`] bytes of it at most, cut between characters. What is not UTF-8 is shown as U+FFFD.
    pub text: String,
    /// How much of it that is.
    pub shown: Shown,
}

/// How much of a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shown {
    /// All of it.
    Whole,
    /// A part. The rest can be had as a slice.
    Part,
}

/// A piece of an artifact, by its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactLines {
    /// The lines, in order.
    pub lines: Vec<ArtifactLine>,
    /// Lines of the artifact.
    pub total: u64,
    /// The number of the next line, if there are more.
    pub next: Option<u64>,
}

impl ArtifactReader {
    /// The artifact whose digest begins with `prefix`: four hexadecimal digits or more.
    ///
    /// # Errors
    /// `Invalid` if that is no beginning of a digest, or of several; `NotFound` if of none that is there.
    pub fn find(&self, prefix: &str) -> Result<Digest> {
        let prefix = prefix.to_ascii_lowercase();
        if let Some(digest) = parse_digest(&prefix) {
            return match self.blobs.len(&digest)? {
                Some(_) => Ok(digest),
                None => Err(self.blobs.missing(&digest)),
            };
        }
        let shown: String = prefix.chars().take(70).flat_map(char::escape_debug).collect();
        let is_prefix = (PREFIX_LEN_MIN..64).contains(&prefix.len());
        if !is_prefix || !prefix.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let message =
                format!("`{shown}` is no digest: 64 hexadecimal digits, or the first of them (4 or more)");
            return Err(Error::invalid("artifact.digest", message));
        }
        match &*self.blobs.find(&prefix)? {
            [digest] => Ok(*digest),
            [] => {
                let message = format!("no artifact begins with `{shown}` in this workspace");
                Err(Error::new(ErrorKind::NotFound, "artifact.missing", message))
            }
            [one, other, ..] => {
                let message = format!("`{shown}` begins {one} and {other}, at least: give more digits");
                Err(Error::invalid("artifact.ambiguous", message))
            }
        }
    }

    /// All artifacts that are there, by their digests.
    ///
    /// # Errors
    /// `Io` if the directory can't be read.
    pub fn list(&self) -> Result<Vec<ArtifactEntry>> {
        let listing = self.blobs.list()?;
        Ok(listing.blobs.into_iter().map(|(digest, blob)| ArtifactEntry { digest, len: blob.len }).collect())
    }

    /// What is known of an artifact, whose content is checked.
    ///
    /// # Errors
    /// `NotFound` if it is not there; `Corrupt` if it is hurt, with its path, the hash that it should have and the one that it
    /// has; `Invalid` if a link is in its place; `Io`.
    pub fn inspect(&self, digest: &Digest) -> Result<ArtifactInfo> {
        let len = self.blobs.scan(digest, &mut |_| {})?;
        let facts = self.facts()?;
        let known = facts.get().described.get(digest);
        Ok(ArtifactInfo {
            digest: *digest,
            len,
            kind: known.map(|known| known.kind.clone()),
            media_type: known.and_then(|known| known.media_type.clone()),
            parents: known.into_iter().flat_map(|known| known.parents.iter().copied()).collect(),
            sessions: known.into_iter().flat_map(|known| known.puts.keys().copied().flatten()).collect(),
        })
    }

    /// Whether an artifact is whole: its length, once its hash is known to be right.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn check(&self, digest: &Digest) -> Result<u64> {
        self.blobs.scan(digest, &mut |_| {})
    }

    /// Where an artifact is, or would be.
    #[must_use]
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.blobs.path(digest)
    }

    pub(super) fn facts(&self) -> Result<Caught<Facts>> {
        let mut facts = Caught::default();
        self.log.catch_up(&mut facts)?;
        Ok(facts)
    }

    /// Bytes of an artifact, from `offset` on: `len` of them, as far as there are so many. [`SLICE_LEN_MAX`] at most.
    ///
    /// # Errors
    /// `Invalid` if more are asked for; else as [`inspect`](Self::inspect).
    pub fn slice(&self, digest: &Digest, offset: u64, len: u64) -> Result<ArtifactSlice> {
        if len > SLICE_LEN_MAX {
            let message = format!(
                "{len} bytes were asked for, and a slice has at most {SLICE_LEN_MAX}: ask for several"
            );
            return Err(Error::invalid("artifact.slice", message));
        }
        let (mut at, end) = (0_u64, offset.saturating_add(len));
        let mut bytes = Vec::new();
        let total = self.blobs.scan(digest, &mut |piece| {
            let from = to_usize(offset.saturating_sub(at)).min(piece.len());
            let to = to_usize(end.saturating_sub(at)).min(piece.len());
            bytes.extend_from_slice(piece.get(from..to).unwrap_or_default());
            at = at.saturating_add(to_u64(piece.len()));
        })?;
        let start = offset.min(total);
        let range = start..start.saturating_add(to_u64(bytes.len()));
        let (content, whole_characters) = match String::from_utf8(bytes) {
            Ok(text) => (SliceContent::Text(text), None),
            Err(error) => {
                let bytes = error.into_bytes();
                let whole = whole_characters(&bytes).map(|whole| {
                    let at = |index: usize| range.start.saturating_add(to_u64(index));
                    at(whole.start)..at(whole.end)
                });
                (SliceContent::Bytes(bytes), whole)
            }
        };
        Ok(ArtifactSlice { content, range, whole_characters, len: total })
    }

    /// Lines of an artifact, from the line `first` on (the first one is 1): `count` of them, as far as there are so many.
    /// [`LINES_MAX`] lines and [`SLICE_LEN_MAX`] bytes at most: there may be more then, from `next` on.
    ///
    /// # Errors
    /// `Invalid` if more lines are asked for; else as [`inspect`](Self::inspect).
    pub fn lines(&self, digest: &Digest, first: u64, count: u64) -> Result<ArtifactLines> {
        if count > LINES_MAX {
            let message =
                format!("{count} lines were asked for, and at most {LINES_MAX} are given: ask several times");
            return Err(Error::invalid("artifact.lines", message));
        }
        let (mut lines, mut shown): (Vec<ArtifactLine>, u64) = (Vec::new(), 0);
        let first = first.max(1);
        let total = self.each_line(digest, &mut |line| {
            let is_wanted = line.number == first.saturating_add(to_u64(lines.len()));
            if is_wanted && to_u64(lines.len()) < count && shown < SLICE_LEN_MAX {
                let line = shown_line(&line, 0..0);
                shown = shown.saturating_add(to_u64(line.text.len()));
                lines.push(line);
            }
        })?;
        let next = first.saturating_add(to_u64(lines.len()));
        Ok(ArtifactLines { lines, total, next: (next <= total).then_some(next) })
    }

    /// Gives every line to `visit`, and how many there are.
    pub(super) fn each_line(
        &self,
        digest: &Digest,
        visit: &mut dyn FnMut(super::lines::Line<'_>),
    ) -> Result<u64> {
        let mut lines = Lines::default();
        self.blobs.scan(digest, &mut |piece| lines.push(piece, visit))?;
        Ok(lines.finish(visit))
    }

    /// A whole artifact.
    pub(super) fn whole(&self, digest: &Digest) -> Result<Vec<u8>> {
        let len = self.blobs.len(digest)?.unwrap_or(0).min(ARTIFACT_LEN_MAX);
        let mut content = Vec::with_capacity(to_usize(len));
        self.blobs.scan(digest, &mut |piece| content.extend_from_slice(piece))?;
        Ok(content)
    }
}

/// A line with as much of it as may be shown, from before `around` on.
pub(super) fn shown_line(line: &super::lines::Line<'_>, around: Range<usize>) -> ArtifactLine {
    let bytes = line.bytes;
    let (shown, part) = if bytes.len() <= LINE_LEN_MAX {
        (bytes, Shown::Whole)
    } else {
        // What is looked for stands in the middle, or at the beginning if it is longer than what is shown.
        let room = LINE_LEN_MAX.saturating_sub(around.len()) / 2;
        let start = around.start.saturating_sub(room).min(bytes.len().saturating_sub(LINE_LEN_MAX));
        let start = boundary(bytes, start);
        let end = boundary(bytes, start.saturating_add(LINE_LEN_MAX).min(bytes.len()));
        (bytes.get(start..end).unwrap_or_default(), Shown::Part)
    };
    ArtifactLine {
        number: line.number,
        offset: line.offset,
        len: to_u64(bytes.len()),
        text: String::from_utf8_lossy(shown).into_owned(),
        shown: part,
    }
}

/// The place at or before `index` where a character begins.
fn boundary(bytes: &[u8], index: usize) -> usize {
    let is_inside = |index: usize| bytes.get(index).is_some_and(|byte| byte & 0xC0 == 0x80);
    let back = (0..4).find(|back| !is_inside(index.saturating_sub(*back)));
    index.saturating_sub(back.unwrap_or(0))
}

/// Where the whole characters of bytes begin and end, if they are text but for what is cut off at their ends.
fn whole_characters(bytes: &[u8]) -> Option<Range<usize>> {
    let start = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    let rest = bytes.get(start..)?;
    let len = match std::str::from_utf8(rest) {
        Ok(text) => text.len(),
        // Nothing wrong but the end of the bytes.
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Err(_) => return None,
    };
    (len > 0).then(|| start..start.saturating_add(len))
}
