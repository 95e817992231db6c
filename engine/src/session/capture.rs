//! Results that are too long for the log: where every result passes on its way there.

use sessionlog_codec::event::{ArtifactReceipt, MessageAppended, Part};
use sessionlog_codec::limits::{FRAME_BODY_LEN_MAX, PAYLOAD_LEN_MAX};
use sessionlog_projections::artifact::{preview_of, receipts, shown, stored};

use super::Session;
use crate::artifacts::{Artifacts, Held};
use crate::error::{Error, ErrorKind, Result};
use crate::store::ArtifactPolicy;

/// Bytes of a record that are not the text of a result.
const OVERHEAD: usize = 64 << 10;

/// Where a result goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// Into the record that answers a call, which has a place for a receipt.
    Call,
    /// Into a record that has only parts, and out of it again.
    Parts,
}

/// A result as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    pub(super) parts: Vec<Part>,
    pub(super) artifact: Option<ArtifactReceipt>,
}

/// A result on its way into the log. What it names stays until it is there.
#[derive(Debug)]
pub(super) struct Captured {
    /// The ways to record it, the best first.
    ways: Vec<Recorded>,
    _held: Option<Held>,
}

impl Captured {
    /// Records it in the best way that there is room for.
    ///
    /// # Errors
    /// That of the last way, if there is room for none.
    pub(super) fn record<T>(self, mut record: impl FnMut(Recorded) -> Result<T>) -> Result<T> {
        let mut ways = self.ways.into_iter().peekable();
        while let Some(way) = ways.next() {
            match record(way) {
                #[cfg(feature = "seeded-bugs")]
                Err(error) if sessionlog_codec::seeded::is("full_disk_loses_results") => return Err(error),
                Err(error) if ways.peek().is_some() && is_lack_of_room(&error) => {}
                done => return done,
            }
        }
        Err(Error::invalid("append.nothing", "a result has no way to be recorded"))
    }
}

fn is_lack_of_room(error: &Error) -> bool {
    error.kind() == ErrorKind::Full || error.code() == "append.too_large"
}

impl Session {
    /// The artifacts of the session's workspace. What is put is put in the name of this session.
    #[must_use]
    pub fn artifacts(&self) -> Artifacts {
        Artifacts::new(&self.store, &self.place.workspace, Some(self.place.id))
    }

    /// Stores the text of a result apart from the log, if it is long. If that fails, as much of it as the log takes stays
    /// there: what was done is done, and what came of it must not be lost for it.
    pub(super) fn capture(
        &self,
        parts: Vec<Part>,
        artifact: Option<ArtifactReceipt>,
        destination: Destination,
    ) -> Captured {
        let held = self.keep_of_result(&parts, artifact.as_ref());
        let limit = match self.store.options.artifacts {
            ArtifactPolicy::Over(limit) if text_len(&parts) > limit => limit,
            ArtifactPolicy::Over(_) | ArtifactPolicy::Off => {
                return Captured { ways: vec![Recorded { parts, artifact }], _held: held };
            }
        };
        let pieces = pieces(parts);
        match self.store_apart(&pieces, artifact.clone(), (limit, destination), held) {
            Ok((recorded, held)) => Captured { ways: vec![recorded], _held: Some(held) },
            Err(error) => {
                tracing::warn!(session = %self.place.id, %error, "a long result could not be stored as an artifact");
                let max = match destination {
                    Destination::Call => PAYLOAD_LEN_MAX,
                    // It is delivered in the same frame.
                    Destination::Parts => FRAME_BODY_LEN_MAX / 2,
                };
                let max = max.saturating_sub(OVERHEAD);
                let whole = shortened(&pieces, max, &error);
                let beginning = shortened(&pieces, 0, &error);
                let ways = [whole, beginning].map(|parts| Recorded { parts, artifact: artifact.clone() });
                Captured { ways: ways.into(), _held: None }
            }
        }
    }

    fn store_apart(
        &self,
        pieces: &[Part],
        mut artifact: Option<ArtifactReceipt>,
        (limit, destination): (usize, Destination),
        held: Option<Held>,
    ) -> Result<(Recorded, Held)> {
        let artifacts = self.artifacts();
        let held = match held {
            Some(held) => held,
            None => artifacts.hold()?,
        };
        let mut left = text_len(pieces);
        let mut receipts: Vec<Option<ArtifactReceipt>> = vec![None; pieces.len()];
        let mut longest_first: Vec<(usize, &str)> =
            pieces.iter().enumerate().filter_map(|(at, piece)| Some((at, text_of(piece)?))).collect();
        longest_first.sort_by_key(|(_, text)| std::cmp::Reverse(text.len()));
        for (at, text) in longest_first {
            if left <= limit {
                break;
            }
            left = left.saturating_sub(text.len());
            let receipt = artifacts.put_held(&held, text.as_bytes(), Some(media_type(text).to_owned()))?;
            if let Some(place) = receipts.get_mut(at) {
                *place = Some(receipt);
            }
        }
        let mut parts = Vec::with_capacity(pieces.len().saturating_add(1));
        for (piece, receipt) in pieces.iter().zip(receipts) {
            match receipt {
                None => parts.push(piece.clone()),
                Some(receipt) if destination == Destination::Call && artifact.is_none() => {
                    parts.push(Part::text(shown(&receipt)));
                    artifact = Some(receipt);
                }
                Some(receipt) => parts.extend(stored(receipt)),
            }
        }
        Ok((Recorded { parts, artifact }, held))
    }

    /// Keeps what a result names until it is in the log. If that fails, the result must not be lost for it.
    fn keep_of_result(&self, parts: &[Part], artifact: Option<&ArtifactReceipt>) -> Option<Held> {
        let named: Vec<_> = receipts(parts).chain(artifact).map(|receipt| receipt.digest).collect();
        if named.is_empty() {
            return None;
        }
        let artifacts = self.artifacts();
        let kept = artifacts.hold().and_then(|held| {
            artifacts.keep(&held, named.iter().copied())?;
            Ok(held)
        });
        kept.inspect_err(|error| {
            tracing::warn!(session = %self.place.id, %error, "a result names an artifact that can't be kept");
        })
        .ok()
    }

    /// Keeps what messages name until they are in the log: it must be there, since nobody could read it later.
    ///
    /// # Errors
    /// `NotFound` if it is not.
    pub(super) fn keep_named<'m>(
        &self,
        messages: impl IntoIterator<Item = &'m MessageAppended>,
    ) -> Result<Option<Held>> {
        let named: Vec<_> = messages
            .into_iter()
            .flat_map(|body| receipts(&body.parts))
            .map(|receipt| receipt.digest)
            .collect();
        if named.is_empty() {
            return Ok(None);
        }
        let artifacts = self.artifacts();
        let held = artifacts.hold()?;
        artifacts.keep(&held, named.iter().copied())?;
        Ok(Some(held))
    }
}

fn text_of(part: &Part) -> Option<&str> {
    match part {
        Part::Text(text) => Some(text),
        _ => None,
    }
}

fn text_len(parts: &[Part]) -> usize {
    parts.iter().filter_map(text_of).map(str::len).sum()
}

/// Texts that follow one another, as one: a tool that gives two hundred short ones gives one long one.
fn pieces(parts: Vec<Part>) -> Vec<Part> {
    let mut pieces: Vec<Part> = Vec::new();
    for part in parts {
        match (pieces.last_mut(), part) {
            (Some(Part::Text(before)), Part::Text(text)) => {
                before.push('\n');
                before.push_str(&text);
            }
            (_, part) => pieces.push(part),
        }
    }
    pieces
}

/// JSON is what parses as an object or an array; anything else that is text is text.
fn media_type(text: &str) -> &'static str {
    let is_json = text.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    if is_json { "application/json" } else { "text/plain" }
}

/// A result of which at most `max` bytes of each text are recorded, but its beginning in any case.
fn shortened(pieces: &[Part], max: usize, why: &Error) -> Vec<Part> {
    let texts = pieces.iter().filter(|piece| text_of(piece).is_some()).count();
    let each = max.checked_div(texts).unwrap_or(max);
    let shorten = |piece: &Part| match piece {
        Part::Text(text) if text.len() > each => {
            let end = (0..=each).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            let beginning = text.get(..end).unwrap_or_default();
            let preview = preview_of(text);
            let kept = if beginning.len() > preview.len() { beginning } else { preview };
            if kept.len() == text.len() {
                return piece.clone();
            }
            let why = match why.kind() {
                ErrorKind::Full => "the disk was full",
                ErrorKind::Invalid => "it was longer than an artifact may be",
                _ => "it could not be stored",
            };
            Part::text(format!(
                "{kept}\n[This is the beginning: {} of {} bytes. The rest was not kept: {why}. The call itself was done.]",
                kept.len(),
                text.len()
            ))
        }
        piece => piece.clone(),
    };
    pieces.iter().map(shorten).collect()
}
