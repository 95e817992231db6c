//! Text of unknown origin, made harmless for a terminal. Titles, messages, tool names, paths and ids are content: they
//! may hold escape sequences that move the cursor or set the clipboard, and characters that hide or reorder text.

use std::borrow::Cow;

/// Which of the control characters are layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// None: the text is to stay on one line.
    One,
    /// Line ends and tabs.
    Many,
}

/// The text with everything that is not plainly visible escaped, on one line.
#[must_use]
pub fn safe(text: &str) -> Cow<'_, str> {
    escape(text, Lines::One)
}

/// The same, with line ends and tabs kept. A carriage return before a line end goes with it.
#[must_use]
pub fn safe_lines(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") {
        return Cow::Owned(escape(&text.replace("\r\n", "\n"), Lines::Many).into_owned());
    }
    escape(text, Lines::Many)
}

fn escape(text: &str, lines: Lines) -> Cow<'_, str> {
    let bad = |c: char| is_hidden(c) && !(lines == Lines::Many && matches!(c, '\n' | '\t'));
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if bad(c) {
            // `\n`, `\t`, `\r`, `\u{1b}`.
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// JSON with everything that is not plainly visible as `\uXXXX`. In valid JSON such characters are inside of strings,
/// but for line ends and tabs, which are left; so it stays the same value.
#[must_use]
pub fn safe_json(json: &str) -> Cow<'_, str> {
    let bad = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t' | '\r');
    if !json.contains(bad) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len());
    let mut units = [0; 2];
    for c in json.chars() {
        if bad(c) {
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Whether a character controls, reorders or hides rather than shows. Variation selectors 15 and 16, which emoji come
/// with, are the one invisible pair that is let through: they change a glyph's colour and nothing else.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' // soft hyphen
            | '\u{34f}' // grapheme joiner
            | '\u{61c}' // Arabic letter mark
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // Hangul fillers
            | '\u{17b4}' | '\u{17b5}' // Khmer inherent vowels
            | '\u{180b}'..='\u{180f}' // Mongolian selectors
            | '\u{200b}'..='\u{200f}' // zero width, direction marks
            | '\u{2028}'..='\u{202e}' // line separators, direction embeddings and overrides
            | '\u{2060}'..='\u{206f}' // word joiner, invisible operators, direction isolates
            | '\u{fe00}'..='\u{fe0d}' // variation selectors
            | '\u{feff}' // byte order mark
            | '\u{fff0}'..='\u{fffb}' // unassigned, interlinear annotation
            | '\u{13430}'..='\u{1343f}' // hieroglyph format controls
            | '\u{1bca0}'..='\u{1bca3}' // shorthand format controls
            | '\u{1d173}'..='\u{1d17a}' // musical format controls
            | '\u{e0000}'..='\u{e0fff}' // tags, further variation selectors
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_hidden_is_left() {
        assert_eq!(safe("plain – ünïcode 漢字 🙏"), "plain – ünïcode 漢字 🙏");
        assert_eq!(safe("a\u{1b}]52;c;x\u{7}b\r\n\tc"), "a\\u{1b}]52;c;x\\u{7}b\\r\\n\\tc");
        assert_eq!(safe_lines("a\r\n\tb\rc"), "a\n\tb\\rc");
        for c in "\u{7f}\u{80}\u{9b}\u{9f}\u{202a}\u{202e}\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}\u{2028}\u{2029}\u{200b}\u{feff}\u{e0041}"
            .chars()
        {
            assert!(is_hidden(c), "{c:?}");
        }
    }

    proptest! {
        #[test]
        fn escaped_text_is_visible(text in any::<String>()) {
            prop_assert!(!safe(&text).contains(is_hidden));
            prop_assert!(!safe_lines(&text).contains(|c| is_hidden(c) && c != '\n' && c != '\t'));
        }

        #[test]
        fn escaped_json_is_the_same_value(text in any::<String>(), hidden in "[\u{80}-\u{9f}\u{202a}-\u{202e}\u{e0041}]{1,4}") {
            let value = serde_json::json!({ "text": format!("{text}{hidden}"), hidden: 1 });
            for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let shown = safe_json(&json);
                prop_assert!(!shown.contains(|c| is_hidden(c) && c != '\n'));
                prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&shown).unwrap(), &value);
            }
        }
    }
}
