//! A line that is not simply one JSON value: two values glued together, a torn one, zeros.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::loose::Text;

/// What a span of a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A whole line that looks like an object. Nobody has parsed it yet.
    Unchecked,
    /// A JSON value.
    Value,
    /// Not JSON.
    Damaged(&'static str),
    /// A piece of a line that is longer than a piece may be.
    TooLong,
    /// The end of a file that may still be written: it is left for the next import.
    Unterminated,
    /// What is around the records of a document.
    Around,
    /// Zero bytes only: space that a crash left behind. It holds nothing, so it is not recorded.
    Zeros,
}

/// A span of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) range: Range<usize>,
    pub(crate) what: What,
}

/// Whether a line's end was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEnd {
    Present,
    Missing,
}

/// What separates values within a line.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// The range of `bytes` without blanks at either end.
pub(crate) fn trimmed(bytes: &[u8]) -> Range<usize> {
    let Some(start) = bytes.iter().position(|byte| !is_blank(*byte)) else { return 0..0 };
    let end = bytes.iter().rposition(|byte| !is_blank(*byte)).map_or(start, |last| last + 1);
    start..end
}

/// The end of the JSON value at the start of `bytes`, or about how far reading it got.
pub(crate) fn value_end(bytes: &[u8]) -> Result<usize, usize> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Ok(_)) => Ok(values.byte_offset()),
        Some(Err(error)) => Err(error.column()),
        None => Err(bytes.len()),
    }
}

/// The most spans of one line: a line is one record, or two or three by accident.
const SPANS_MAX: usize = 1 << 14;

/// Splits a line into the values that it holds and the spans between them.
pub(crate) fn split(line: &[u8], line_end: LineEnd) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut at = 0;
    loop {
        let rest = line.get(at..).unwrap_or_default();
        let content = trimmed(rest);
        if content.is_empty() {
            return spans;
        }
        let (start, end) = (at + content.start, at + content.end);
        let rest = line.get(start..end).unwrap_or_default();
        if spans.len() == SPANS_MAX {
            let is_whole = line_end == LineEnd::Present;
            let what = if is_whole { What::Damaged("too many values in a line") } else { What::Unterminated };
            spans.push(Span { range: start..end, what });
            return spans;
        }
        match value_end(rest) {
            // `12` may become `123`: only what closes itself is whole without a line end.
            Ok(len) if len == rest.len() && line_end == LineEnd::Missing && !closes_itself(rest) => {
                spans.push(Span { range: start..end, what: What::Unterminated });
                return spans;
            }
            Ok(len) => {
                spans.push(Span { range: start..start + len, what: What::Value });
                at = start + len;
            }
            Err(_) => {
                let next = salvage(rest, line_end).map_or(end, |skip| start + skip);
                let bad = line.get(start..next).unwrap_or_default();
                let what = if bad.iter().all(|byte| *byte == 0) {
                    What::Zeros
                } else if next == end && line_end == LineEnd::Missing {
                    What::Unterminated
                } else if next == end {
                    What::Damaged("not JSON")
                } else {
                    What::Damaged("torn, with a whole record glued to it")
                };
                spans.push(Span { range: start..next, what });
                at = next;
            }
        }
    }
}

fn closes_itself(value: &[u8]) -> bool {
    matches!(value.last(), Some(b'}' | b']' | b'"'))
}

/// Where in damaged bytes a whole record begins that reaches to the line's end: an append after a torn one.
///
/// A line without an end is left alone, because the bytes that make its beginning whole may be still to come.
fn salvage(bytes: &[u8], line_end: LineEnd) -> Option<usize> {
    // Damaged nested data would otherwise be read once for each level of it.
    const READ_MAX_FACTOR: usize = 16;
    if line_end == LineEnd::Missing {
        return None;
    }
    let mut budget = bytes.len().saturating_mul(READ_MAX_FACTOR);
    let starts = bytes.windows(2).enumerate().skip(1).filter(|(_, pair)| pair == b"{\"");
    for (start, _) in starts {
        let tail = bytes.get(start..).unwrap_or_default();
        match whole_values(tail) {
            Ok(()) if is_record(tail) => return Some(start),
            Ok(()) => budget = budget.checked_sub(tail.len())?,
            Err(read) => budget = budget.checked_sub(read)?,
        }
    }
    None
}

fn whole_values(bytes: &[u8]) -> Result<(), usize> {
    for value in serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>() {
        value.map_err(|error| error.column().max(1))?;
    }
    Ok(())
}

/// Whether an object is a record of a session rather than a part of one.
fn is_record(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow, default)]
        uuid: Text<'a>,
        #[serde(borrow, default, rename = "sessionId")]
        session_id: Text<'a>,
        #[serde(borrow, default)]
        timestamp: Text<'a>,
    }
    let text = text_of(bytes);
    let mut heads = serde_json::Deserializer::from_str(&text).into_iter::<Head<'_>>();
    let Some(Ok(head)) = heads.next() else { return false };
    head.uuid.filled().is_some() || head.session_id.filled().is_some() || head.timestamp.filled().is_some()
}

/// JSON as text that every reader takes: invalid UTF-8 and half surrogate pairs become U+FFFD.
pub(crate) fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => whole_surrogates(text),
        Cow::Owned(text) => Cow::Owned(whole_surrogates(&text).into_owned()),
    }
}

/// Replaces escapes of half a surrogate pair by the escape of U+FFFD. A JavaScript string may hold half a character;
/// no text may.
fn whole_surrogates(text: &str) -> Cow<'_, str> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut changed = false;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let (len, whole) = match escaped_unit(after) {
            Some(0xD800..=0xDBFF) => {
                let second = after.get(5..).and_then(|after| after.strip_prefix('\\')).and_then(escaped_unit);
                if matches!(second, Some(0xDC00..=0xDFFF)) { (11, true) } else { (5, false) }
            }
            Some(0xDC00..=0xDFFF) => (5, false),
            _ => (after.chars().next().map_or(0, char::len_utf8), true),
        };
        out.push('\\');
        out.push_str(if whole { after.get(..len).unwrap_or_default() } else { "ufffd" });
        changed |= !whole;
        rest = after.get(len..).unwrap_or_default();
    }
    out.push_str(rest);
    if changed { Cow::Owned(out) } else { Cow::Borrowed(text) }
}

/// The code unit of a `uXXXX` that follows a backslash.
fn escaped_unit(after: &str) -> Option<u16> {
    let digits = after.strip_prefix('u')?.get(..4)?;
    digits
        .bytes()
        .all(|digit| digit.is_ascii_hexdigit())
        .then(|| u16::from_str_radix(digits, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(line: &str, line_end: LineEnd) -> Vec<(&str, What)> {
        let spans = split(line.as_bytes(), line_end);
        spans.into_iter().map(|span| (&line[span.range], span.what)).collect()
    }

    #[test]
    fn glued_values_are_two_records() {
        // T3
        assert_eq!(
            spans(r#"{"id":"a"}{"id":"b"} "#, LineEnd::Present),
            [(r#"{"id":"a"}"#, What::Value), (r#"{"id":"b"}"#, What::Value)]
        );
    }

    #[test]
    fn a_whole_record_behind_a_torn_one_is_found() {
        let torn = r#"{"uuid":"1","usage":{"a":1},"x":[{"b":2}],"times"#;
        let whole = r#"{"uuid":"2","m":{"c":3}}"#;
        let line = format!("{torn}{whole}");
        assert_eq!(
            spans(&line, LineEnd::Present),
            [(torn, What::Damaged("torn, with a whole record glued to it")), (whole, What::Value)]
        );
        // It may be a line that is being written.
        assert_eq!(spans(&line, LineEnd::Missing), [(line.as_str(), What::Unterminated)]);
        // A part of a record is no record.
        let cut = r#"{"uuid":"1","content":[{"type":"text","text":"a"}"#;
        assert_eq!(spans(cut, LineEnd::Present), [(cut, What::Damaged("not JSON"))]);
    }

    #[test]
    fn only_what_closes_itself_is_whole_without_a_line_end() {
        assert_eq!(spans("12", LineEnd::Present), [("12", What::Value)]);
        assert_eq!(spans("12", LineEnd::Missing), [("12", What::Unterminated)]);
        assert_eq!(spans("[1]", LineEnd::Missing), [("[1]", What::Value)]);
        assert_eq!(
            spans(r#"{"a":1}{"b":"#, LineEnd::Missing),
            [(r#"{"a":1}"#, What::Value), (r#"{"b":"#, What::Unterminated)]
        );
    }

    #[test]
    fn zeros_are_told_from_damage() {
        // T7
        assert_eq!(spans("\0\0\0", LineEnd::Missing), [("\0\0\0", What::Zeros)]);
        assert_eq!(
            spans("\0\0{\"uuid\":\"1\"}", LineEnd::Present),
            [("\0\0", What::Zeros), ("{\"uuid\":\"1\"}", What::Value)]
        );
        assert_eq!(
            spans("{\"a\":1}\0\0", LineEnd::Missing),
            [("{\"a\":1}", What::Value), ("\0\0", What::Zeros)]
        );
    }

    #[test]
    fn a_line_holds_a_bounded_number_of_values() {
        let line = "{}".repeat(SPANS_MAX + 2);
        assert_eq!(split(line.as_bytes(), LineEnd::Present).len(), SPANS_MAX + 1);
    }

    #[test]
    fn deep_damage_is_read_a_bounded_number_of_times() {
        let line = "{\"a\":".repeat(200_000);
        assert_eq!(split(line.as_bytes(), LineEnd::Present).len(), 1);
    }

    #[test]
    fn half_surrogates_become_the_replacement_character() {
        // T13
        for (json, expected) in [
            (r#""a\ud83d""#, r#""a\ufffd""#),
            (r#""\uDC00\ud83d\udd11""#, r#""\ufffd\ud83d\udd11""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\ud83d\n""#, r#""\ufffd\n""#),
            (r#""\ud83d\ud83d\udd11""#, r#""\ufffd\ud83d\udd11""#),
        ] {
            assert_eq!(text_of(json.as_bytes()), expected);
            assert!(serde_json::from_str::<String>(expected).is_ok());
        }
        assert_eq!(text_of(b"\"\xff\""), "\"\u{fffd}\"");
    }
}
