//! Files as q lays them out, a message at a time.

use std::io::{self, Write};

use super::indent::Indent;
use super::message::Message;
use super::session::SessionHeader;

/// A session file. Of its text, one message at a time is in memory.
pub(super) fn session<'a>(
    out: &mut dyn Write,
    header: &SessionHeader,
    transcript: impl IntoIterator<Item = &'a Message>,
    context: impl IntoIterator<Item = &'a Message>,
) -> io::Result<()> {
    let mut indent = Indent::new(out);
    indent.push(&header.begin())?;
    list(&mut indent, ",\"transcript\":[", transcript)?;
    list(&mut indent, ",\"context\":[", context)?;
    let rest = header.rest();
    if rest.len() > 1 {
        indent.push(",")?;
    }
    indent.push(&rest)?;
    indent.end()
}

fn list<'a>(
    indent: &mut Indent<'_>,
    begin: &str,
    messages: impl IntoIterator<Item = &'a Message>,
) -> io::Result<()> {
    indent.push(begin)?;
    for (index, message) in messages.into_iter().enumerate() {
        if index > 0 {
            indent.push(",")?;
        }
        indent.push(&message.to_json())?;
    }
    indent.push("]")
}

/// A small file, from its JSON on one line.
pub(super) fn laid_out(json: &str) -> String {
    let mut bytes = Vec::new();
    let mut indent = Indent::new(&mut bytes);
    let written = indent.push(json).and_then(|()| indent.end());
    // Writing to memory can't fail.
    drop(written);
    String::from_utf8(bytes).unwrap_or_default()
}
