//! Finding something in an artifact: by a regular expression, or by a JSON pointer.

use std::fmt;

use regex::bytes::RegexBuilder;
use serde::de::{DeserializeSeed, Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use sessionlog_codec::ids::Digest;

use super::read::{ArtifactLine, ArtifactReader, shown_line};
use super::{JSON_LEN_MAX, MATCHES_MAX, PATTERN_LEN_MAX, SLICE_LEN_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::num::to_u64;

/// Bytes of memory that a pattern may take when it is compiled.
const PATTERN_SIZE_MAX: usize = 1 << 20;
/// The most steps of a JSON pointer.
const STEPS_MAX: usize = 128;

/// The lines that a pattern is found in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactMatches {
    /// The lines, in order.
    pub lines: Vec<ArtifactLine>,
    /// How many lines there are that it is found in: more than are given, if that is so.
    pub total: u64,
}

impl ArtifactReader {
    /// The lines that a regular expression (of the crate [`regex`]: its time is linear in the text, whatever it says) is found
    /// in: the first `max` of them, and how many there are. [`MATCHES_MAX`] lines and [`SLICE_LEN_MAX`] bytes at most. Of a
    /// long line, the part around the match is given.
    ///
    /// # Errors
    /// `Invalid` if the pattern is none, or longer than [`PATTERN_LEN_MAX`], or means too much; else as
    /// [`inspect`](Self::inspect).
    pub fn grep(&self, digest: &Digest, pattern: &str, max: u64) -> Result<ArtifactMatches> {
        if pattern.len() > PATTERN_LEN_MAX {
            let message = format!("the pattern has {} bytes, {PATTERN_LEN_MAX} are allowed", pattern.len());
            return Err(Error::invalid("artifact.pattern", message));
        }
        let built =
            RegexBuilder::new(pattern).size_limit(PATTERN_SIZE_MAX).dfa_size_limit(PATTERN_SIZE_MAX).build();
        let regex = built.map_err(|error| {
            let message = "the pattern is no regular expression that can be searched for";
            Error::with_source(ErrorKind::Invalid, "artifact.pattern", message, error)
        })?;
        let (mut found, mut shown) = (ArtifactMatches { lines: Vec::new(), total: 0 }, 0_u64);
        self.each_line(digest, &mut |line| {
            let Some(hit) = regex.find(line.bytes) else { return };
            found.total = found.total.saturating_add(1);
            if to_u64(found.lines.len()) < max.min(MATCHES_MAX) && shown < SLICE_LEN_MAX {
                let line = shown_line(&line, hit.range());
                shown = shown.saturating_add(to_u64(line.text.len()));
                found.lines.push(line);
            }
        })?;
        Ok(found)
    }

    /// What a JSON pointer (RFC 6901: `/results/0/name`) names in an artifact that is JSON: its text, as it stands there. Of two
    /// keys of one name, the last one is meant.
    ///
    /// # Errors
    /// `Invalid` if the pointer is none, if the artifact is longer than [`JSON_LEN_MAX`] or no JSON, or if
    /// what is named is longer than [`SLICE_LEN_MAX`]; `NotFound` if there is no such thing, with the part of the pointer that is
    /// there; else as [`inspect`](Self::inspect).
    pub fn pointer(&self, digest: &Digest, pointer: &str) -> Result<String> {
        let steps = steps(pointer)?;
        if let Some(len) = self.blobs.len(digest)?.filter(|len| *len > JSON_LEN_MAX) {
            let message = format!("the artifact has {len} bytes; JSON is looked into up to {JSON_LEN_MAX}");
            return Err(Error::invalid("artifact.json", message));
        }
        let content = self.whole(digest)?;
        let not_json = |error: serde_json::Error| {
            Error::with_source(ErrorKind::Invalid, "artifact.json", "the artifact is not JSON", error)
        };
        let mut value: &RawValue = serde_json::from_slice(&content).map_err(not_json)?;
        let mut there = String::new();
        for (step, written) in steps.iter().zip(pointer.split('/').skip(1)) {
            value = match child(value, step).map_err(not_json)? {
                Some(child) => child,
                None => {
                    let shown: String = written.chars().take(80).flat_map(char::escape_debug).collect();
                    let message = format!("there is no `{shown}` at `{there}`");
                    return Err(Error::new(ErrorKind::NotFound, "artifact.pointer", message));
                }
            };
            there.push('/');
            there.push_str(written);
        }
        let text = value.get();
        if to_u64(text.len()) > SLICE_LEN_MAX {
            let message = format!(
                "`{there}` has {} bytes, and {SLICE_LEN_MAX} are given at most: point further down",
                text.len()
            );
            return Err(Error::invalid("artifact.pointer_too_long", message));
        }
        Ok(text.to_owned())
    }
}

/// A pointer's steps, their escapes undone.
fn steps(pointer: &str) -> Result<Vec<String>> {
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let Some(rest) = pointer.strip_prefix('/') else {
        return Err(Error::invalid("artifact.pointer", "a JSON pointer is empty or begins with `/`"));
    };
    let steps: Vec<_> = rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    if steps.len() > STEPS_MAX {
        let message = format!("the pointer has {} steps; {STEPS_MAX} are allowed", steps.len());
        return Err(Error::invalid("artifact.pointer", message));
    }
    Ok(steps)
}

fn child<'a>(
    value: &'a RawValue,
    step: &str,
) -> std::result::Result<Option<&'a RawValue>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(value.get());
    match value.get().as_bytes().first() {
        Some(b'{') => json.deserialize_map(Child { step }),
        Some(b'[') => json.deserialize_seq(Child { step }),
        _ => Ok(None),
    }
}

/// Picks one child and reads over the others.
struct Child<'s> {
    step: &'s str,
}

impl<'de> Visitor<'de> for Child<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_wanted) = map.next_key_seed(IsStep(self.step))? {
            if is_wanted {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Self::Value, A::Error> {
        let is_index = self.step == "0" || !self.step.starts_with(['0', '+']);
        let wanted = self.step.parse::<u64>().ok().filter(|_| is_index);
        let (mut found, mut index) = (None, 0_u64);
        loop {
            if Some(index) == wanted {
                found = items.next_element()?;
                if found.is_none() {
                    return Ok(None);
                }
            } else if items.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            index = index.checked_add(1).ok_or_else(|| A::Error::custom("too many items"))?;
        }
    }
}

/// Whether a key is the one that is looked for, its escapes undone.
struct IsStep<'s>(&'s str);

impl<'de> DeserializeSeed<'de> for IsStep<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> std::result::Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsStep<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> std::result::Result<bool, E> {
        Ok(key == self.0)
    }
}
