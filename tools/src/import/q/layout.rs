//! Where things are in a session file: the elements of its transcript and its context, and all that is not one of them.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use crate::import::document::{ListEnd, elements};
use crate::import::lines::{PIECE_MAX, Record, Records};
use crate::import::split::{What, is_blank, value_end};

/// A session file, taken apart. Of a file that was cut off, what is whole is taken.
#[derive(Debug)]
pub(crate) struct Layout {
    bytes: Vec<u8>,
    transcript: Vec<Range<usize>>,
    context: Option<Vec<Range<usize>>>,
    /// The object without the two lists, as it is written there.
    pub(crate) header: Vec<u8>,
    end: ListEnd,
}

/// A key of an object, and where its value begins.
struct Member {
    key: String,
    start: usize,
    value: usize,
}

impl Layout {
    /// `None` if the bytes are no object.
    pub(crate) fn of(bytes: Vec<u8>) -> Option<Self> {
        let mut layout = Self {
            bytes: Vec::new(),
            transcript: Vec::new(),
            context: None,
            header: Vec::new(),
            end: ListEnd::Missing,
        };
        let mut at = object_start(&bytes)?;
        let mut header = Vec::new();
        while let Some(member) = member(&bytes, at) {
            let is_list = bytes.get(member.value) == Some(&b'[');
            let key = member.key.to_ascii_lowercase();
            let end = if is_list && (key == "transcript" || key == "context") {
                let (list, end, list_end) = elements(&bytes, member.value.saturating_add(1));
                if key == "transcript" {
                    layout.transcript = list;
                } else {
                    layout.context = (list_end == ListEnd::Present).then_some(list);
                }
                if list_end == ListEnd::Missing {
                    break;
                }
                end.saturating_add(1)
            } else {
                let Some(end) = end_of(&bytes, member.value) else { break };
                header.push(member.start..end);
                end
            };
            match next(&bytes, end) {
                Some((b',', comma)) => at = comma.saturating_add(1),
                Some((b'}', _)) => {
                    layout.end = ListEnd::Present;
                    break;
                }
                _ => break,
            }
        }
        let members: Vec<&[u8]> = header.into_iter().filter_map(|range| bytes.get(range)).collect();
        layout.header = [b"{".as_slice(), &members.join(b",".as_slice()), b"}"].concat();
        layout.bytes = bytes;
        Some(layout)
    }

    /// The keys of an object with their values; `None` if the object is not whole.
    pub(crate) fn keys(bytes: &[u8]) -> Option<Vec<(String, Range<usize>)>> {
        let mut at = object_start(bytes)?;
        let mut keys = Vec::new();
        loop {
            let member = member(bytes, at)?;
            let end = end_of(bytes, member.value)?;
            keys.push((member.key, member.value..end));
            match next(bytes, end)? {
                (b',', comma) => at = comma.checked_add(1)?,
                (b'}', _) => return Some(keys),
                _ => return None,
            }
        }
    }

    /// The elements of the context; `None` if there is no such list, or only the beginning of one.
    pub(crate) fn context(&self) -> Option<Vec<&[u8]>> {
        let context = self.context.as_ref()?;
        Some(context.iter().filter_map(|range| self.bytes.get(range.clone())).collect())
    }

    /// The elements of the transcript as records.
    pub(crate) fn records(&self) -> Elements<'_> {
        let mut spans = VecDeque::new();
        for (line, range) in (1..).zip(&self.transcript) {
            if range.len() <= PIECE_MAX {
                spans.push_back((line, range.clone(), What::Value));
                continue;
            }
            let mut start = range.start;
            while start < range.end {
                let end = start.saturating_add(PIECE_MAX).min(range.end);
                spans.push_back((line, start..end, What::TooLong));
                start = end;
            }
        }
        Elements { layout: self, spans, lines: 0 }
    }
}

fn object_start(bytes: &[u8]) -> Option<usize> {
    let bom = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    match next(bytes, bom)? {
        (b'{', brace) => brace.checked_add(1),
        _ => None,
    }
}

/// The first byte from `at` on that is not blank.
fn next(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
    let rest = bytes.get(at..)?;
    let skip = rest.iter().position(|byte| !is_blank(*byte))?;
    Some((*rest.get(skip)?, at.checked_add(skip)?))
}

fn member(bytes: &[u8], at: usize) -> Option<Member> {
    let (_, start) = next(bytes, at)?;
    let key_end = end_of(bytes, start)?;
    let key: String = serde_json::from_slice(bytes.get(start..key_end)?).ok()?;
    let (b':', colon) = next(bytes, key_end)? else { return None };
    let (_, value) = next(bytes, colon.checked_add(1)?)?;
    Some(Member { key, start, value })
}

fn end_of(bytes: &[u8], start: usize) -> Option<usize> {
    start.checked_add(value_end(bytes.get(start..)?).ok()?)
}

/// The elements of a transcript.
#[derive(Debug)]
pub(crate) struct Elements<'a> {
    layout: &'a Layout,
    spans: VecDeque<(u64, Range<usize>, What)>,
    lines: u64,
}

impl Records for Elements<'_> {
    fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        let Some((line, range, what)) = self.spans.pop_front() else { return Ok(None) };
        self.lines = line;
        let offset = |at: usize| u64::try_from(at).unwrap_or(u64::MAX);
        let next = self.spans.front().map_or(range.end, |(_, next, _)| next.start);
        Ok(Some(Record {
            line,
            offset: offset(range.start),
            next_offset: offset(next),
            bytes: self.layout.bytes.get(range).unwrap_or_default(),
            what,
        }))
    }

    fn resplit(&mut self) {}

    fn bytes(&self) -> u64 {
        u64::try_from(self.layout.bytes.len()).unwrap_or(u64::MAX)
    }

    fn lines(&self) -> u64 {
        self.lines
    }

    fn is_list(&self) -> bool {
        true
    }

    fn oddities(&self) -> Vec<&'static str> {
        let cut = "ends in the middle: what of it is whole was taken";
        (self.layout.end == ListEnd::Missing).then_some(cut).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(json: &str) -> (Vec<String>, Option<Vec<String>>, String, ListEnd) {
        let layout = Layout::of(json.as_bytes().to_vec()).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut transcript = Vec::new();
        let mut records = layout.records();
        while let Some(record) = records.next().unwrap() {
            transcript.push(text(record.bytes));
        }
        let context = layout.context().map(|context| context.into_iter().map(text).collect());
        (transcript, context, text(&layout.header), layout.end)
    }

    #[test]
    fn the_lists_are_taken_out_of_the_object() {
        let json =
            "{ \"version\": 2,\n \"transcript\": [ {\"a\":1}, [2] ],\"context\":[{\"a\":1}] , \"x\": [3] }\n";
        let (transcript, context, header, end) = parts(json);
        assert_eq!(transcript, ["{\"a\":1}", "[2]"]);
        assert_eq!(context.unwrap(), ["{\"a\":1}"]);
        assert_eq!((header.as_str(), end), ("{\"version\": 2,\"x\": [3]}", ListEnd::Present));
    }

    #[test]
    fn of_a_cut_file_what_is_whole_is_taken() {
        let json = r#"{"version":2,"transcript":[{"a":1},{"b":"#;
        assert_eq!(parts(json), (vec!["{\"a\":1}".into()], None, "{\"version\":2}".into(), ListEnd::Missing));
        let (transcript, context, header, _) =
            parts(r#"{"version":2,"transcript":[{}],"context":[{}],"learning":{"#);
        assert_eq!((transcript.len(), context.map(|it| it.len())), (1, Some(1)));
        assert_eq!(header, r#"{"version":2}"#);
    }

    #[test]
    fn hostile_files_have_no_layout_or_an_empty_one() {
        for bytes in
            ["", "\0\0", "[]", "12", "\"x\"", "{", "{1:2}", "{\"transcript\":", "{\"transcript\":[,,"]
        {
            let layout = Layout::of(bytes.as_bytes().to_vec());
            assert!(layout.is_none_or(|layout| layout.transcript.is_empty()), "{bytes}");
        }
    }
}
