//! A session that is one JSON document: an object with a list of records in it.
//!
//! The elements of the list are the records. What is around them is the last record, since it changes each time that
//! the document is written anew. Of a document that was cut off, the whole elements are taken.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use super::lines::{Record, Records};
use super::split::{What, is_blank, value_end};

/// The longest document that is read, in bytes: it is held in memory.
pub(crate) const DOCUMENT_LEN_MAX: u64 = 64 << 20;

/// Whether a document's list was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListEnd {
    Present,
    Missing,
}

/// Where a document's list is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outline {
    /// The keys before the list, with their values.
    pub(crate) keys: Vec<(String, Range<usize>)>,
    /// The list's key.
    pub(crate) list: String,
    /// Where its first element, or its end, is.
    pub(crate) start: usize,
}

/// Finds the first of some lists among the keys of an object. `bytes` may be the beginning of one.
pub(crate) fn outline(bytes: &[u8], lists: &[&str]) -> Option<Outline> {
    let mut keys = Vec::new();
    let skip_blanks = |at: usize| {
        let rest = bytes.get(at..)?;
        Some(at + rest.iter().position(|byte| !is_blank(*byte))?)
    };
    let bom = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let mut at = skip_blanks(bom)?;
    if bytes.get(at) != Some(&b'{') {
        return None;
    }
    loop {
        // Behind a brace or a comma: a key, a colon, a value.
        let key_start = skip_blanks(at + 1)?;
        let rest = bytes.get(key_start..)?;
        let key_end = key_start + value_end(rest).ok()?;
        let key: String = serde_json::from_slice(bytes.get(key_start..key_end)?).ok()?;
        let colon = skip_blanks(key_end)?;
        let value_start = skip_blanks(colon + 1)?;
        if bytes.get(value_start) == Some(&b'[') && lists.contains(&key.as_str()) {
            return Some(Outline { keys, list: key, start: value_start + 1 });
        }
        let end = value_start + value_end(bytes.get(value_start..)?).ok()?;
        keys.push((key, value_start..end));
        at = skip_blanks(end)?;
        if bytes.get(at) != Some(&b',') {
            return None;
        }
    }
}

/// The elements of a list, and where they end.
pub(crate) fn elements(bytes: &[u8], start: usize) -> (Vec<Range<usize>>, usize, ListEnd) {
    let mut elements = Vec::new();
    let mut at = start;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(skip) = rest.iter().position(|byte| !is_blank(*byte) && *byte != b',') else {
            return (elements, at, ListEnd::Missing);
        };
        let value_start = at + skip;
        let rest = bytes.get(value_start..).unwrap_or_default();
        if rest.first() == Some(&b']') {
            return (elements, value_start, ListEnd::Present);
        }
        match value_end(rest) {
            Ok(len) => elements.push(value_start..value_start + len),
            Err(_) => return (elements, value_start, ListEnd::Missing),
        }
        at = elements.last().map_or(bytes.len(), |range| range.end);
    }
}

/// The records of a document.
#[derive(Debug)]
pub(crate) struct Document {
    bytes: Vec<u8>,
    elements: VecDeque<Range<usize>>,
    /// What is around the elements, without them.
    around: Vec<u8>,
    around_is_due: bool,
    list_end: ListEnd,
    element: u64,
}

impl Document {
    /// `None` if there is no such list in the document.
    pub(crate) fn new(bytes: Vec<u8>, lists: &[&str]) -> Option<Self> {
        let outline = outline(&bytes, lists)?;
        let (elements, end, list_end) = elements(&bytes, outline.start);
        let mut around = bytes.get(..outline.start).unwrap_or_default().to_vec();
        around.extend_from_slice(bytes.get(end..).unwrap_or_default());
        Some(Self { bytes, elements: elements.into(), around, around_is_due: true, list_end, element: 0 })
    }
}

impl Records for Document {
    fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        let offset = |at: usize| u64::try_from(at).unwrap_or(u64::MAX);
        self.element += 1;
        if let Some(range) = self.elements.pop_front() {
            let next = self.elements.front().map_or(range.end, |next| next.start);
            return Ok(Some(Record {
                line: self.element,
                offset: offset(range.start),
                next_offset: offset(next),
                bytes: self.bytes.get(range).unwrap_or_default(),
                what: What::Value,
            }));
        }
        let is_due = std::mem::replace(&mut self.around_is_due, false);
        Ok(is_due.then(|| Record {
            line: 0,
            offset: 0,
            next_offset: offset(self.bytes.len()),
            bytes: &self.around,
            what: What::Around,
        }))
    }

    fn resplit(&mut self) {}

    fn bytes(&self) -> u64 {
        u64::try_from(self.bytes.len()).unwrap_or(u64::MAX)
    }

    fn lines(&self) -> u64 {
        self.element
    }

    fn is_list(&self) -> bool {
        true
    }

    fn oddities(&self) -> Vec<&'static str> {
        let cut = "ends in the middle: its whole records were taken";
        (self.list_end == ListEnd::Missing).then_some(cut).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(json: &str) -> (Vec<String>, String, ListEnd) {
        let mut document = Document::new(json.as_bytes().to_vec(), &["messages"]).unwrap();
        let list_end = document.list_end;
        let (mut all, mut around) = (Vec::new(), String::new());
        while let Some(record) = document.next().unwrap() {
            let text = String::from_utf8_lossy(record.bytes).into_owned();
            if record.what == What::Around { around = text } else { all.push(text) }
        }
        (all, around, list_end)
    }

    #[test]
    fn elements_are_records_and_the_rest_is_the_last_one() {
        let (all, around, list_end) =
            records("{\"a\": [1], \"messages\": [\n {\"x\":1},\n {\"y\":[2]} ], \"b\": 2}\n");
        assert_eq!(all, ["{\"x\":1}", "{\"y\":[2]}"]);
        assert_eq!(
            (around.as_str(), list_end),
            ("{\"a\": [1], \"messages\": [], \"b\": 2}\n", ListEnd::Present)
        );
        assert_eq!(records("{\"messages\":[]}").0.len(), 0);
    }

    #[test]
    fn of_a_cut_document_the_whole_elements_are_taken() {
        // T19
        let (all, around, list_end) = records(r#"{"messages":[{"role":"user"},{"role":"assis"#);
        assert_eq!(all, [r#"{"role":"user"}"#]);
        assert_eq!((around.as_str(), list_end), (r#"{"messages":[{"role":"assis"#, ListEnd::Missing));
    }

    #[test]
    fn other_documents_have_no_list() {
        for json in ["", "[1]", "{}", "{\"a\":1}", "{\"messages\":1}", "{\"a\"", "{\"a\":", "{1:2}", "\0"] {
            assert!(outline(json.as_bytes(), &["messages"]).is_none(), "{json}");
        }
    }
}
