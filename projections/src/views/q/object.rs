//! JSON that is passed on as it is: objects keep the order of their keys, values keep their digits.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use sessionlog_codec::RawBytes;

use super::error::QError;
use crate::views::json;

/// How deep a value may nest: decoders recurse, and stop here.
const DEPTH_MAX: usize = 128;

/// A JSON value as it was written, without line ends between its tokens.
#[derive(Clone, Debug)]
pub struct Json(Box<RawValue>);

impl Json {
    /// The value in `bytes`, if a strict reader takes it.
    pub(super) fn of(bytes: &RawBytes) -> Option<Self> {
        json::embedded(bytes).map(Self)
    }

    /// The value's text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The text, if the value is one.
    pub(super) fn string(&self) -> Option<String> {
        if self.get().starts_with('"') { serde_json::from_str(self.get()).ok() } else { None }
    }

    /// The object, if the value is one.
    pub(super) fn object(&self) -> Option<Object> {
        if self.get().starts_with('{') { serde_json::from_str(self.get()).ok() } else { None }
    }

    /// The elements, if the value is a list.
    pub(super) fn list(&self) -> Option<Vec<Self>> {
        if self.get().starts_with('[') { serde_json::from_str(self.get()).ok() } else { None }
    }

    /// The beginning of the value, for an error.
    pub(super) fn beginning(&self) -> String {
        const CHARS: usize = 40;
        self.get().chars().take(CHARS).collect()
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Json {}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

/// A JSON object with its values unread. Keys are found as q's decoder finds them: whatever their case, and of a
/// repeated key the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object(Vec<(String, Json)>);

impl Object {
    /// Reads an object out of foreign bytes: what is not UTF-8, and half surrogate pairs, become U+FFFD.
    pub(super) fn read(bytes: &[u8], place: &Place<'_>) -> Result<Self, QError> {
        let text = String::from_utf8_lossy(bytes);
        let text = json::normalise(text.trim_start_matches('\u{feff}'));
        if is_too_deep(&text) {
            let (file, field) = (place.file.to_owned(), place.field.clone());
            return Err(QError::TooDeep { file, field, limit: DEPTH_MAX });
        }
        serde_json::from_str::<Self>(&text).map_err(|error| not_an_object(bytes, place, &error))
    }

    /// The value of a key; null is none.
    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        let (_, value) = self.0.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case(key))?;
        (value.get() != "null").then_some(value)
    }

    /// The object without some of its keys; of a repeated key the last value is left.
    pub(super) fn without(&self, keys: &[&str]) -> Self {
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut rest: Vec<(String, Json)> = Vec::new();
        for (name, value) in &self.0 {
            if keys.iter().any(|key| key.eq_ignore_ascii_case(name)) {
                continue;
            }
            let place = *places.entry(name).or_insert(rest.len());
            match rest.get_mut(place) {
                Some((_, known)) => *known = value.clone(),
                None => rest.push((name.clone(), value.clone())),
            }
        }
        Self(rest)
    }

    /// Adds a key at the end.
    pub(super) fn push(&mut self, key: &str, value: Json) {
        self.0.push((key.to_owned(), value));
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The object as a value.
    pub(super) fn json(&self) -> Option<Json> {
        let text = Text::new().rest(self).end();
        RawValue::from_string(text).ok().map(Json)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Object(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Where the text stops being JSON is asked of the text as it stands there: `error` is of one without line ends.
fn not_an_object(bytes: &[u8], place: &Place<'_>, error: &serde_json::Error) -> QError {
    let as_it_is = serde_json::from_slice::<IgnoredAny>(bytes).err();
    if as_it_is.is_none()
        && let Ok(value) = serde_json::from_slice::<Json>(bytes)
        && !place.field.is_empty()
    {
        return place.wrong("an object", &value);
    }
    let (line, column) = as_it_is.as_ref().map_or((1, 1), |error| (error.line(), error.column()));
    let lines_before = bytes.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1));
    let before: usize = lines_before.map(<[u8]>::len).sum();
    let file = match place.field.as_str() {
        "" => place.file.to_owned(),
        field => format!("{} {field}", place.file),
    };
    let found = as_it_is.as_ref().unwrap_or(error).to_string();
    QError::NotJson { file, offset: before.saturating_add(column.saturating_sub(1)), found }
}

fn is_too_deep(json: &str) -> bool {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth = depth.saturating_add(1);
                if depth > DEPTH_MAX {
                    return true;
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Where in which file something is, for an error.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The file, as people know it.
    pub file: &'a str,
    /// The field, from the top of the file; empty: the file itself.
    pub field: String,
}

impl<'a> Place<'a> {
    /// The top of a file.
    #[must_use]
    pub fn top(file: &'a str) -> Self {
        Self { file, field: String::new() }
    }

    /// An element of a list at the top of a file, from 0.
    #[must_use]
    pub fn element(file: &'a str, list: &str, index: u64) -> Self {
        Self { file, field: format!("{list}[{index}]") }
    }

    pub(super) fn below(&self, key: &str) -> Self {
        let field = if self.field.is_empty() { key.to_owned() } else { format!("{}.{key}", self.field) };
        Self { file: self.file, field }
    }

    pub(super) fn wrong(&self, expected: &'static str, found: &Json) -> QError {
        let (file, field) = (self.file.to_owned(), self.field.clone());
        QError::Field { file, field, expected, found: found.beginning() }
    }
}

/// An object whose fields are read one by one. An absent field is empty, as in Go.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a, 'p> {
    pub(super) object: &'a Object,
    pub(super) place: &'a Place<'p>,
}

impl<'a, 'p> Fields<'a, 'p> {
    fn read<T>(
        &self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Json) -> Option<T>,
    ) -> Result<Option<T>, QError> {
        let Some(value) = self.object.get(key) else { return Ok(None) };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(self.place.below(key).wrong(expected, value)),
        }
    }

    pub(super) fn string(&self, key: &str) -> Result<String, QError> {
        Ok(self.read(key, "a string", Json::string)?.unwrap_or_default())
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, QError> {
        self.read(key, "a number from 0", |value| value.get().parse().ok())
    }

    pub(super) fn small(&self, key: &str) -> Result<Option<u32>, QError> {
        self.read(key, "a number of 32 bits", |value| value.get().parse().ok())
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, QError> {
        let flag = self.read(key, "true or false", |value| value.get().parse().ok())?;
        Ok(flag.unwrap_or_default())
    }

    pub(super) fn list(&self, key: &str) -> Result<Vec<Json>, QError> {
        Ok(self.read(key, "a list", Json::list)?.unwrap_or_default())
    }

    pub(super) fn strings(&self, key: &str) -> Result<Vec<String>, QError> {
        let strings = |value: &Json| value.list()?.iter().map(Json::string).collect();
        Ok(self.read(key, "a list of strings", strings)?.unwrap_or_default())
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<Object>, QError> {
        self.read(key, "an object", Json::object)
    }

    /// The objects of a list, each with its place.
    pub(super) fn objects(&self, key: &str) -> Result<Vec<(Object, Place<'p>)>, QError> {
        let list = self.place.below(key);
        let object = |(index, value): (usize, Json)| {
            let place = Place { file: list.file, field: format!("{}[{index}]", list.field) };
            match value.object() {
                Some(object) => Ok((object, place)),
                None => Err(place.wrong("an object", &value)),
            }
        };
        self.list(key)?.into_iter().enumerate().map(object).collect()
    }
}

/// The text of an object that is being written, without blanks.
#[derive(Debug)]
pub(super) struct Text(String);

impl Text {
    pub(super) fn new() -> Self {
        Self("{".to_owned())
    }

    /// A field that is always there.
    pub(super) fn put(mut self, key: &str, value: &(impl Serialize + ?Sized)) -> Self {
        let value = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        self.raw(key, &value);
        self
    }

    /// A field that is left out where it says nothing, as Go's `omitempty` does.
    pub(super) fn filled(self, key: &str, value: &str) -> Self {
        if value.is_empty() { self } else { self.put(key, value) }
    }

    pub(super) fn some(self, key: &str, value: Option<&(impl Serialize + ?Sized)>) -> Self {
        match value {
            Some(value) => self.put(key, value),
            None => self,
        }
    }

    /// A field whose value is JSON already.
    pub(super) fn written(mut self, key: &str, json: &str) -> Self {
        self.raw(key, json);
        self
    }

    /// A list of values that are JSON already; left out where there are none.
    pub(super) fn written_list(self, key: &str, elements: &[String]) -> Self {
        if elements.is_empty() { self } else { self.written(key, &format!("[{}]", elements.join(","))) }
    }

    /// The fields that were not known.
    pub(super) fn rest(mut self, object: &Object) -> Self {
        for (key, value) in &object.0 {
            self.raw(key, value.get());
        }
        self
    }

    fn raw(&mut self, key: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&serde_json::to_string(key).unwrap_or_default());
        self.0.push(':');
        self.0.push_str(json);
    }

    /// The fields alone, without the braces around them.
    pub(super) fn open(self) -> String {
        self.0
    }

    pub(super) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
