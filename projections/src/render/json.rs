//! JSON straight into the body, on one line.

use std::fmt;
use std::io;

use serde::{Serialize, Serializer};
use serde_json::ser::{CompactFormatter, Formatter};

/// Appends `value` to `out`. No step between: a body can have 64 MiB.
pub(super) fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    let start = out.len();
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, OneLine);
    if value.serialize(&mut serializer).is_err() {
        // A `Vec` takes every byte and the types of this module have text keys only, so this is never reached.
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}

/// Text that is put together while it is written.
pub(super) struct Shown<T>(pub(super) T);

impl<T: fmt::Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

const SEPARATORS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// U+0085, U+2028 and U+2029 are escaped: they are line ends to some readers. Raw JSON is not touched.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        mut fragment: &str,
    ) -> io::Result<()> {
        while let Some((before, separator, after)) = split(fragment) {
            CompactFormatter.write_string_fragment(writer, before)?;
            write!(writer, "\\u{:04x}", u32::from(separator))?;
            fragment = after;
        }
        CompactFormatter.write_string_fragment(writer, fragment)
    }
}

fn split(fragment: &str) -> Option<(&str, char, &str)> {
    let at = fragment.find(SEPARATORS)?;
    let (before, rest) = fragment.split_at_checked(at)?;
    let mut rest = rest.chars();
    let separator = rest.next()?;
    Some((before, separator, rest.as_str()))
}
