//! JSON from outside, looked at before it is spliced into a body.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// How deep spliced JSON may be nested. Common readers stop at 128, and the body around it has a few levels.
const MAX_DEPTH: u32 = 96;

/// Whether `text` is one JSON value that every reader takes: no half of a surrogate pair in its strings, no number out
/// of range, not nested too deep. Nothing is built.
pub(super) fn is_plain_json(text: &str) -> bool {
    let mut reader = serde_json::Deserializer::from_str(text);
    Nested(MAX_DEPTH).deserialize(&mut reader).is_ok() && reader.end().is_ok()
}

/// `text` as a JSON object that can be spliced.
pub(super) fn object(text: &str) -> Option<&RawValue> {
    let is_object = text.trim_start().starts_with('{') && is_plain_json(text);
    if is_object { serde_json::from_str(text).ok() } else { None }
}

/// A block of its own kind, as far as it matters here.
#[derive(Deserialize)]
pub(super) struct Head<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    pub(super) id: Option<String>,
    pub(super) tool_use_id: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) name: Option<String>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
}

/// What kind of block `text` is, if it can be read.
pub(super) fn head(text: &str) -> Option<(Head<'_>, &RawValue)> {
    let raw = object(text)?;
    Some((serde_json::from_str(text).ok()?, raw))
}

/// Reads a value of any kind, with so many levels left.
#[derive(Clone, Copy)]
struct Nested(u32);

impl Nested {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        self.0.checked_sub(1).map(Self).ok_or_else(|| E::custom("nested too deep"))
    }
}

impl<'de> DeserializeSeed<'de> for Nested {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Nested {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        while entries.next_key_seed(inner)?.is_some() {
            entries.next_value_seed(inner)?;
        }
        Ok(())
    }
}
