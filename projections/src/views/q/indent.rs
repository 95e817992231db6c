//! JSON as Go's `MarshalIndent` lays it out, written as it is made.

use std::io::{self, Write};

/// Lays out pieces of JSON without blanks: two spaces for each level, `<`, `>`, `&`, U+2028 and U+2029 escaped. Holds
/// one piece at a time.
pub(super) struct Indent<'a> {
    out: &'a mut dyn Write,
    depth: usize,
    place: Place,
    /// A bracket that was opened, and nothing in it yet.
    is_fresh: bool,
    line: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    InString,
    Escaped,
}

impl<'a> Indent<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, depth: 0, place: Place::Outside, is_fresh: false, line: String::new() }
    }

    /// Writes the next piece. Pieces may be cut anywhere between characters.
    pub(super) fn push(&mut self, json: &str) -> io::Result<()> {
        for c in json.chars() {
            match self.place {
                Place::Outside => self.outside(c),
                Place::InString | Place::Escaped => self.inside(c),
            }
        }
        self.out.write_all(self.line.as_bytes())?;
        self.line.clear();
        Ok(())
    }

    /// Ends the file.
    pub(super) fn end(self) -> io::Result<()> {
        self.out.write_all(b"\n")
    }

    fn outside(&mut self, c: char) {
        match c {
            ' ' | '\t' | '\r' | '\n' => return,
            ']' | '}' => {
                self.depth = self.depth.saturating_sub(1);
                if !std::mem::take(&mut self.is_fresh) {
                    self.new_line();
                }
                self.line.push(c);
                return;
            }
            _ => {}
        }
        if std::mem::take(&mut self.is_fresh) {
            self.new_line();
        }
        self.line.push(c);
        match c {
            '[' | '{' => {
                self.depth = self.depth.saturating_add(1);
                self.is_fresh = true;
            }
            ',' => self.new_line(),
            ':' => self.line.push(' '),
            '"' => self.place = Place::InString,
            _ => {}
        }
    }

    fn inside(&mut self, c: char) {
        self.place = match (self.place, c) {
            (Place::InString, '\\') => Place::Escaped,
            (Place::InString, '"') => Place::Outside,
            _ => Place::InString,
        };
        match c {
            '<' => self.line.push_str("\\u003c"),
            '>' => self.line.push_str("\\u003e"),
            '&' => self.line.push_str("\\u0026"),
            '\u{2028}' => self.line.push_str("\\u2028"),
            '\u{2029}' => self.line.push_str("\\u2029"),
            _ => self.line.push(c),
        }
    }

    fn new_line(&mut self) {
        self.line.push('\n');
        for _ in 0..self.depth {
            self.line.push_str("  ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(pieces: &[&str]) -> String {
        let mut bytes = Vec::new();
        let mut indent = Indent::new(&mut bytes);
        pieces.iter().for_each(|piece| indent.push(piece).unwrap());
        indent.end().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn pieces_are_laid_out_as_go_does() {
        let expected =
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": [],\n  \"c\": \"x: {,}\\\"\\u003c\"\n}\n";
        let json = r#"{"a":[1,{}],"b":[],"c":"x: {,}\"<"}"#;
        assert_eq!(laid_out(&[json]), expected);
        let (first, second) = json.split_at(20);
        assert_eq!(laid_out(&[first, second]), expected);
        assert_eq!(laid_out(&["{ \"a\" :\n [ ] }"]), "{\n  \"a\": []\n}\n");
    }

    #[test]
    fn what_go_escapes_is_escaped() {
        assert_eq!(laid_out(&["\"&>\u{2028}\u{2029}é\""]), "\"\\u0026\\u003e\\u2028\\u2029é\"\n");
    }
}
