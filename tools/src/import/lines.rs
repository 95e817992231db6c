//! The records of a file of lines, read with memory for one line.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};

use super::split::{LineEnd, Span, What, split, trimmed};

/// The longest piece of a line that is held in memory, in bytes. A longer line is recorded in pieces and not mapped.
pub(crate) const PIECE_MAX: usize = 32 << 20;

const READ_BUFFER: usize = 256 << 10;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// A span of a source, as it stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// The line, from 1.
    pub(crate) line: u64,
    /// Where it starts, in bytes.
    pub(crate) offset: u64,
    /// Where the record after it starts.
    pub(crate) next_offset: u64,
    /// Its bytes, without blanks and line ends around them.
    pub(crate) bytes: &'a [u8],
    /// What it is.
    pub(crate) what: What,
}

/// Gives the records of a source, one at a time.
pub(crate) trait Records {
    /// The next record.
    fn next(&mut self) -> io::Result<Option<Record<'_>>>;

    /// Splits the [`What::Unchecked`] line that came last into what it really holds: those records come next.
    fn resplit(&mut self);

    /// Bytes read so far.
    fn bytes(&self) -> u64;

    /// Lines read so far.
    fn lines(&self) -> u64;

    /// Whether the records are elements of a list, which move when what is before them changes.
    fn is_list(&self) -> bool {
        false
    }

    /// What is odd about the source as a whole, in plain words.
    fn oddities(&self) -> Vec<&'static str>;
}

/// The records of a file of lines. Lines end at 0x0A and nowhere else.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    source: BufReader<R>,
    piece_max: usize,
    piece: Vec<u8>,
    /// Where `piece` starts in the source.
    offset: u64,
    line: u64,
    place: Place,
    line_end: LineEnd,
    spans: VecDeque<Span>,
    has_bom: bool,
    has_cr: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    LineStart,
    WithinLongLine,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(source: R) -> Self {
        Self::with_piece_max(source, PIECE_MAX)
    }

    pub(crate) fn with_piece_max(source: R, piece_max: usize) -> Self {
        Self {
            source: BufReader::with_capacity(READ_BUFFER, source),
            piece_max,
            piece: Vec::new(),
            offset: 0,
            line: 0,
            place: Place::LineStart,
            line_end: LineEnd::Present,
            spans: VecDeque::new(),
            has_bom: false,
            has_cr: false,
        }
    }

    /// Reads the next piece, which is a whole line unless that is too long.
    fn read_piece(&mut self) -> io::Result<bool> {
        self.offset = self.bytes();
        self.piece.clear();
        let limit = u64::try_from(self.piece_max).unwrap_or(u64::MAX);
        let len = self.source.by_ref().take(limit).read_until(b'\n', &mut self.piece)?;
        if len == 0 {
            return Ok(false);
        }
        let is_start = self.place == Place::LineStart;
        self.line += u64::from(is_start);
        let line_end = if self.piece.ends_with(b"\n") { LineEnd::Present } else { LineEnd::Missing };
        self.line_end = line_end;
        let goes_on = line_end == LineEnd::Missing && len == self.piece_max;
        self.place = if goes_on { Place::WithinLongLine } else { Place::LineStart };
        self.has_cr |= self.piece.ends_with(b"\r\n");
        self.spans = if goes_on || !is_start { self.long_piece(goes_on) } else { self.whole_line() };
        Ok(true)
    }

    fn long_piece(&self, goes_on: bool) -> VecDeque<Span> {
        let content = self.piece.strip_suffix(b"\n").unwrap_or(&self.piece);
        let what = if content.iter().all(|byte| *byte == 0) {
            What::Zeros
        } else if goes_on || self.line_end == LineEnd::Present {
            What::TooLong
        } else {
            What::Unterminated
        };
        VecDeque::from([Span { range: 0..content.len(), what }])
    }

    fn whole_line(&mut self) -> VecDeque<Span> {
        let mut skip = 0;
        if self.offset == 0 && self.piece.starts_with(BOM) {
            self.has_bom = true;
            skip = BOM.len();
        }
        let content = trimmed(self.piece.get(skip..).unwrap_or_default());
        let range = skip + content.start..skip + content.end;
        let bytes = self.piece.get(range.clone()).unwrap_or_default();
        if bytes.is_empty() {
            VecDeque::new()
        } else if bytes.starts_with(b"{") && bytes.ends_with(b"}") {
            VecDeque::from([Span { range, what: What::Unchecked }])
        } else {
            self.split_from(skip)
        }
    }

    fn split_from(&self, skip: usize) -> VecDeque<Span> {
        let spans = split(self.piece.get(skip..).unwrap_or_default(), self.line_end);
        let shifted = |span: Span| Span { range: span.range.start + skip..span.range.end + skip, ..span };
        spans.into_iter().map(shifted).collect()
    }

    fn at(&self, index: usize) -> u64 {
        self.offset + u64::try_from(index).unwrap_or(u64::MAX)
    }
}

impl<R: Read> Records for Lines<R> {
    fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        while self.spans.is_empty() {
            if !self.read_piece()? {
                return Ok(None);
            }
        }
        let Some(span) = self.spans.pop_front() else { return Ok(None) };
        let next = self.spans.front().map_or(self.piece.len(), |span| span.range.start);
        Ok(Some(Record {
            line: self.line,
            offset: self.at(span.range.start),
            next_offset: self.at(next),
            bytes: self.piece.get(span.range).unwrap_or_default(),
            what: span.what,
        }))
    }

    fn resplit(&mut self) {
        let skip = if self.offset == 0 && self.has_bom { BOM.len() } else { 0 };
        self.spans = self.split_from(skip);
    }

    fn bytes(&self) -> u64 {
        self.at(self.piece.len())
    }

    fn lines(&self) -> u64 {
        self.line
    }

    fn oddities(&self) -> Vec<&'static str> {
        let bom = self.has_bom.then_some("begins with a byte order mark, which was skipped");
        let cr = self.has_cr.then_some("has Windows line ends, which were skipped");
        bom.into_iter().chain(cr).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], piece_max: usize) -> Vec<(u64, u64, u64, String, What)> {
        let mut lines = Lines::with_piece_max(bytes, piece_max);
        let mut all = Vec::new();
        while let Some(record) = lines.next().unwrap() {
            let text = String::from_utf8_lossy(record.bytes).into_owned();
            all.push((record.line, record.offset, record.next_offset, text, record.what));
        }
        assert_eq!(lines.bytes(), bytes.len() as u64);
        all
    }

    #[test]
    fn bom_carriage_returns_and_blank_lines_are_skipped() {
        // M9
        let records = all(b"\xef\xbb\xbf{\"a\":1}\r\n\r\n \n{\"b\":2}\r\n", 1000);
        assert_eq!(
            records,
            [
                (1, 3, 12, "{\"a\":1}".to_owned(), What::Unchecked),
                (4, 16, 25, "{\"b\":2}".to_owned(), What::Unchecked),
            ]
        );
    }

    #[test]
    fn lines_end_at_line_feeds_only() {
        // T6
        let line = "{\"a\":\"x\u{2028}y\u{2029}z\u{85}\"}\n";
        assert_eq!(all(line.as_bytes(), 1000).len(), 1);
    }

    #[test]
    fn a_raw_line_feed_in_a_string_makes_two_damaged_lines() {
        // T5
        let records = all(b"{\"t\":\"tool\",\"out\":\"l1\nl2\"}\n", 1000);
        assert!(records.iter().all(|record| record.4 == What::Damaged("not JSON")), "{records:?}");
        assert_eq!(records.len(), 2);
    }

    #[test]
    fn a_long_line_comes_in_pieces() {
        let records = all(b"{\"a\":1}\n{\"b\":\"0123456789\"}\n{\"c\":3}\n", 8);
        let long: Vec<_> = records.iter().filter(|record| record.4 == What::TooLong).collect();
        assert_eq!(long.iter().map(|record| record.3.as_str()).collect::<String>(), "{\"b\":\"0123456789\"}");
        assert!(long.iter().all(|record| record.0 == 2));
        assert_eq!(records.first().unwrap().4, What::Unchecked);
        assert_eq!((records.last().unwrap().0, records.last().unwrap().4), (3, What::Unchecked));
        // The last piece of a long line without an end may still grow.
        assert_eq!(all(b"0123456789", 8).last().unwrap().4, What::Unterminated);
    }

    #[test]
    fn an_unchecked_line_can_be_split() {
        let mut lines = Lines::new(&b"\xef\xbb\xbf{\"a\":1} {\"b\":2}\n"[..]);
        assert_eq!(lines.next().unwrap().unwrap().what, What::Unchecked);
        lines.resplit();
        let first = lines.next().unwrap().unwrap();
        assert_eq!((first.offset, first.next_offset, first.bytes), (3, 11, &b"{\"a\":1}"[..]));
        let second = lines.next().unwrap().unwrap();
        assert_eq!((second.offset, second.next_offset, second.what), (11, 19, What::Value));
        assert!(lines.next().unwrap().is_none());
    }
}
