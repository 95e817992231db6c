//! A text in lines, as it comes in pieces.

/// Splits pieces into lines, which end with a line feed; a carriage return before it belongs to the end.
#[derive(Debug, Default)]
pub(super) struct Lines {
    number: u64,
    offset: u64,
    /// The beginning of a line that a piece ended in.
    begun: Vec<u8>,
}

/// One line, without its end.
pub(super) struct Line<'a> {
    /// From 1.
    pub(super) number: u64,
    /// Where it begins, in bytes.
    pub(super) offset: u64,
    pub(super) bytes: &'a [u8],
}

impl Lines {
    pub(super) fn push(&mut self, mut piece: &[u8], visit: &mut dyn FnMut(Line<'_>)) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = piece.split_at(end);
            self.end(line, visit);
            // The line feed.
            self.offset = self.offset.saturating_add(1);
            piece = rest.get(1..).unwrap_or_default();
        }
        self.begun.extend_from_slice(piece);
    }

    /// The last line, if it has no end.
    pub(super) fn finish(mut self, visit: &mut dyn FnMut(Line<'_>)) -> u64 {
        if !self.begun.is_empty() {
            self.end(&[], visit);
        }
        self.number
    }

    fn end(&mut self, rest: &[u8], visit: &mut dyn FnMut(Line<'_>)) {
        self.number = self.number.saturating_add(1);
        let whole;
        let bytes = if self.begun.is_empty() {
            rest
        } else {
            self.begun.extend_from_slice(rest);
            whole = std::mem::take(&mut self.begun);
            &whole
        };
        let len = crate::num::to_u64(bytes.len());
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        visit(Line { number: self.number, offset: self.offset, bytes });
        self.offset = self.offset.saturating_add(len);
    }
}
