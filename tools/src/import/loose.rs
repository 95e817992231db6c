//! Loosely typed JSON: fields that may be absent, null or of another type than they should be cost a field, not a line.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use sessionlog_codec::RawBytes;
use sessionlog_codec::ids::{InvocationId, SessionId, Timestamp};

/// A short text, if it is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text<'a>(Option<Cow<'a, str>>);

impl Text<'_> {
    pub(crate) fn as_str(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The text, unless it is empty.
    pub(crate) fn filled(&self) -> Option<&str> {
        self.as_str().filter(|text| !text.is_empty())
    }

    pub(crate) fn owned(&self) -> Option<String> {
        self.filled().map(str::to_owned)
    }

    pub(crate) fn into_string(self) -> Option<String> {
        self.0.map(Cow::into_owned)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&'de RawValue>::deserialize(deserializer)?.get();
        let inner = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        Ok(Self(match inner {
            Some(inner) if !inner.contains('\\') => Some(Cow::Borrowed(inner)),
            Some(_) => serde_json::from_str(json).ok().map(Cow::Owned),
            // A number where a text should be is kept in its digits: epoch times and numeric ids.
            None => json.starts_with(|c: char| c == '-' || c.is_ascii_digit()).then_some(Cow::Borrowed(json)),
        }))
    }
}

/// A JSON object, its values unread, in its own order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Object<'a> {
    /// The object in `raw`, if it is one.
    pub(crate) fn of(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// The value of a key. Of a repeated key the last one counts, as in JavaScript.
    pub(crate) fn get(&self, key: &str) -> Option<&'a RawValue> {
        let (_, value) = self.0.iter().rev().find(|(name, _)| name == key)?;
        (value.get() != "null").then_some(*value)
    }

    /// The text of a key, if it is one.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        let value = self.get(key)?;
        value.get().starts_with('"').then(|| serde_json::from_str(value.get()).ok()).flatten()
    }

    /// Whether a key is `true`.
    pub(crate) fn flag(&self, key: &str) -> Flag {
        if self.get(key).is_some_and(|value| value.get() == "true") { Flag::Set } else { Flag::Unset }
    }

    /// The object without some of its keys; `None` if nothing is left.
    pub(crate) fn without(&self, keys: &[&str]) -> Option<RawBytes> {
        let mut json = String::new();
        for (name, value) in self.0.iter().filter(|(name, _)| !keys.contains(&name.as_str())) {
            json.push(if json.is_empty() { '{' } else { ',' });
            json.push_str(&serde_json::to_string(name).ok()?);
            json.push(':');
            json.push_str(value.get());
        }
        (!json.is_empty()).then(|| (json + "}").into())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    if entries.len() == FEW_MAX {
                        return Err(A::Error::invalid_length(FEW_MAX, &self));
                    }
                    entries.push(entry);
                }
                Ok(Object(entries))
            }
        }
        deserializer.deserialize_map(Map)
    }
}

/// Something that may be set: JSON's `true`, and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flag {
    #[default]
    Unset,
    Set,
}

impl Flag {
    pub(crate) fn is_set(self) -> bool {
        self == Self::Set
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Ok(if raw.get() == "true" { Self::Set } else { Self::Unset })
    }
}

/// Decodes an object. (A struct would also be made of a list, key by key, and that is never meant here.)
pub(crate) fn object<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
    json.trim_start().starts_with('{').then(|| serde_json::from_str(json).ok()).flatten()
}

/// Decodes a part of a line that is an object.
pub(crate) fn part<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    object(raw?.get())
}

/// Decodes a part of a line that is a list, if it is not absurdly long.
pub(crate) fn list<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<Vec<T>> {
    serde_json::from_str::<Few<T>>(raw?.get()).ok().map(|few| few.0)
}

/// The most elements of a list, or keys of an object, that are decoded. A line full of tiny ones would take up many
/// times its own size.
const FEW_MAX: usize = 1 << 14;

/// A list that is not absurdly long.
struct Few<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
            type Value = Few<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a short list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Few<T>, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    if elements.len() == FEW_MAX {
                        return Err(A::Error::invalid_length(FEW_MAX, &self));
                    }
                    elements.push(element);
                }
                Ok(Few(elements))
            }
        }
        deserializer.deserialize_seq(List(PhantomData))
    }
}

/// A count of tokens. Negative counts are 0, fractions are cut off; anything but a number is nothing.
pub(crate) fn count(raw: Option<&RawValue>) -> Option<u64> {
    let text = raw?.get();
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    if number.is_nan() {
        return None;
    }
    // Through text, since no conversion of a float says what it did not fit.
    Some(format!("{:.0}", number.max(0.0).trunc()).parse().unwrap_or(u64::MAX))
}

/// A time: RFC 3339, or a number of seconds or milliseconds since 1970.
pub(crate) fn time(text: &Text<'_>) -> Option<Timestamp> {
    // Between the two lies the year 5138 in seconds and March 1973 in milliseconds.
    const MILLIS_FROM: i64 = 100_000_000_000;
    let text = text.filled()?;
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(Timestamp(time.as_microsecond()));
    }
    let number: i64 = text.split('.').next()?.parse().ok()?;
    let scale = if number >= MILLIS_FROM { 1_000 } else { 1_000_000 };
    (number > 0).then(|| number.checked_mul(scale).map(Timestamp)).flatten()
}

/// The first 16 bytes of a hash of an id: what is remembered of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key([u8; 16]);

impl Key {
    pub(crate) fn of(text: &str) -> Self {
        let hash = blake3::hash(text.as_bytes());
        let mut key = [0; 16];
        key.iter_mut().zip(hash.as_bytes()).for_each(|(to, from)| *to = *from);
        Self(key)
    }
}

fn made_up(parts: &[&str]) -> uuid::Uuid {
    let mut hasher = blake3::Hasher::new();
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            hasher.update(b"|");
        }
        hasher.update(part.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(hasher.finalize().as_bytes()).for_each(|(to, from)| *to = *from);
    uuid::Uuid::new_v8(bytes)
}

/// The id of an imported session: its own if that is a UUID, else one made from it, the same each time.
pub(crate) fn session_id(agent: &str, id: &str) -> SessionId {
    id.parse().unwrap_or_else(|_| made_up(&["sessionlog import v1", agent, id]).into())
}

/// The id of an imported delegation, the same each time.
pub(crate) fn invocation_id(session: SessionId, source_id: &str) -> InvocationId {
    made_up(&["sessionlog import v1 invocation", &session.to_string(), source_id]).into()
}

/// The first `len` bytes of a text, cut on a character.
pub(crate) fn cut(text: &str, len: usize) -> &str {
    (0..=len.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Line<'a> {
        #[serde(borrow, default)]
        a: Text<'a>,
        #[serde(default)]
        f: Flag,
        #[serde(borrow)]
        n: Option<&'a RawValue>,
    }

    #[test]
    fn a_field_of_another_type_costs_the_field() {
        for (json, text) in [
            (r#"{"a":"x"}"#, Some("x")),
            (r#"{"a":null}"#, None),
            (r#"{"a":[1,{"b":2}]}"#, None),
            (r#"{"a":{"b":[]}}"#, None),
            (r#"{"a":true}"#, None),
            (r#"{"a":17}"#, Some("17")),
            (r#"{"a":-1e999}"#, Some("-1e999")),
            (r#"{"a":"x\ny"}"#, Some("x\ny")),
            (r#"{}"#, None),
        ] {
            assert_eq!(serde_json::from_str::<Line<'_>>(json).unwrap().a.as_str(), text, "{json}");
        }
        assert!(serde_json::from_str::<Line<'_>>(r#"{"f":true}"#).unwrap().f.is_set());
        assert!(!serde_json::from_str::<Line<'_>>(r#"{"f":"true"}"#).unwrap().f.is_set());
    }

    #[test]
    fn an_object_keeps_what_is_not_known() {
        let raw: &RawValue =
            serde_json::from_str(r#"{"a":1,"b":"x","c":null,"a":[2],"d":{"e":true}}"#).unwrap();
        let object = Object::of(raw).unwrap();
        assert_eq!(object.get("a").unwrap().get(), "[2]");
        assert_eq!((object.text("b").as_deref(), object.text("a")), (Some("x"), None));
        assert!(object.get("c").is_none());
        assert_eq!(object.without(&["a", "c"]).unwrap(), r#"{"b":"x","d":{"e":true}}"#.into());
        assert_eq!(object.without(&["a", "b", "c", "d"]), None);
        assert!(Object::of(serde_json::from_str("[1]").unwrap()).is_none());
    }

    #[test]
    fn absurdly_long_lists_are_not_decoded() {
        let json = format!("[{}1]", "1,".repeat(FEW_MAX - 1));
        let raw: &RawValue = serde_json::from_str(&json).unwrap();
        assert_eq!(list::<u8>(Some(raw)).unwrap().len(), FEW_MAX);
        let json = format!("[{}1]", "1,".repeat(FEW_MAX));
        let raw: &RawValue = serde_json::from_str(&json).unwrap();
        assert_eq!(list::<u8>(Some(raw)), None);
    }

    #[test]
    fn counts_are_tolerant() {
        for (json, number) in [
            (r#"{"n":7}"#, Some(7)),
            (r#"{"n":-7}"#, Some(0)),
            (r#"{"n":7.9}"#, Some(7)),
            (r#"{"n":1e40}"#, Some(u64::MAX)),
            (r#"{"n":null}"#, None),
            (r#"{"n":"7"}"#, None),
            (r#"{}"#, None),
        ] {
            assert_eq!(count(serde_json::from_str::<Line<'_>>(json).unwrap().n), number, "{json}");
        }
    }

    #[test]
    fn times_come_as_text_seconds_and_milliseconds() {
        let of = |text: &str| time(&Text(Some(Cow::Borrowed(text))));
        let expected = Some(Timestamp(1_796_034_912_000_000));
        assert_eq!(of("2026-11-30T10:35:12Z"), expected);
        assert_eq!(of("2026-11-30T10:35:12.000Z"), expected);
        assert_eq!(of("1796034912"), expected);
        assert_eq!(of("1796034912000"), expected);
        for wrong in ["", "yesterday", "-5", "99999999999999999999"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ids_are_kept_or_made_the_same_each_time() {
        let own = "0197b4a2-7c1e-7000-8000-0123456789ab";
        assert_eq!(session_id("claude-code", own).to_string(), own);
        let made = session_id("recursive", "2026-11-30T10-34-52Z-home-dev-demo");
        assert_eq!(made, session_id("recursive", "2026-11-30T10-34-52Z-home-dev-demo"));
        assert_ne!(made, session_id("recursive", "2026-11-30T10-34-53Z-home-dev-demo"));
        assert_eq!(made.uuid().get_version_num(), 8);
        assert_eq!(cut("日本", 4), "日");
    }
}
