//! JSON on one line, safe for readers that split lines or parse strictly.

use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use sessionlog_codec::RawBytes;

/// A value on one line. U+0085, U+2028 and U+2029 are escaped: they are line ends to some readers, and nothing but parts
/// of strings in JSON.
pub(super) fn line(value: &impl Serialize) -> String {
    escape_separators(serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned()))
}

/// A value for people and programs, on several lines, with one at the end.
pub(super) fn pretty(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_else(|_| "null".to_owned());
    text.push('\n');
    escape_separators(text)
}

fn escape_separators(json: String) -> String {
    if !json.contains(['\u{85}', '\u{2028}', '\u{2029}']) {
        return json;
    }
    json.replace('\u{85}', "\\u0085").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// Tool arguments as a JSON value: the bytes as received, if they are JSON that a strict reader takes; else a string
/// that says what they were. Line ends between tokens are dropped, and half surrogate pairs become U+FFFD.
pub(super) fn arguments(bytes: &RawBytes) -> Box<RawValue> {
    embedded(bytes).unwrap_or_else(|| string(&bytes.to_text()))
}

/// The same as a parsed value.
pub(super) fn arguments_value(bytes: &RawBytes) -> Value {
    let parsed = embedded(bytes).and_then(|raw| serde_json::from_str(raw.get()).ok());
    parsed.unwrap_or_else(|| Value::String(bytes.to_text().into_owned()))
}

/// The bytes as a JSON value, if they are one that a strict reader takes.
pub(super) fn embedded(bytes: &RawBytes) -> Option<Box<RawValue>> {
    let text = bytes.as_str()?;
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let clean = normalise(text);
    // What may be skipped may still not be read: numbers out of range, or nesting without end.
    serde_json::from_str::<Value>(&clean).ok()?;
    RawValue::from_string(clean).ok()
}

fn string(text: &str) -> Box<RawValue> {
    let quoted = serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned());
    RawValue::from_string(quoted).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Valid JSON without line ends between its tokens and without half surrogate pairs in its strings.
pub(super) fn normalise(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    let mut place = Place::Outside;
    while let Some(next) = rest.chars().next() {
        let mut taken = next.len_utf8();
        match (place, next) {
            (Place::Outside, '\n' | '\r') => {}
            (Place::Outside, '"') => {
                place = Place::InString;
                out.push(next);
            }
            (Place::InString, '"') => {
                place = Place::Outside;
                out.push(next);
            }
            (Place::InString, '\\') => {
                let escape = escape_at(rest);
                taken = escape.len();
                out.push_str(if is_half_pair(escape) { "\\ufffd" } else { escape });
            }
            _ => out.push(next),
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    out
}

#[derive(Clone, Copy)]
enum Place {
    Outside,
    InString,
}

/// The escape that `text` begins with: one of `\n`, `\u0041`, and a surrogate pair as a whole.
fn escape_at(text: &str) -> &str {
    let first = unit_at(text);
    let pair = match first {
        Some(0xd800..=0xdbff) => text.get(6..).and_then(unit_at),
        _ => None,
    };
    let len = match (first, pair) {
        (Some(_), Some(0xdc00..=0xdfff)) => 12,
        (Some(_), _) => 6,
        (None, _) => 2,
    };
    text.get(..len).unwrap_or(text)
}

/// The UTF-16 unit of a `\u` escape at the beginning of `text`.
fn unit_at(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

fn is_half_pair(escape: &str) -> bool {
    escape.len() == 6 && matches!(unit_at(escape), Some(0xd800..=0xdfff))
}

/// Billionths of a dollar as dollars: the decimal number itself, not a sum of binary fractions.
pub(super) fn dollars(nano_usd: Option<u64>) -> Value {
    let Some(nano) = nano_usd else { return Value::Null };
    let text = format!("{}.{:09}", nano / 1_000_000_000, nano % 1_000_000_000);
    text.parse::<f64>().map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(bytes: &str) -> String {
        arguments(&RawBytes::from(bytes)).get().to_owned()
    }

    #[test]
    fn arguments_stay_as_they_came() {
        for exact in [
            r#"{"z":1,"a":[1.50,null,true],"z":2}"#,
            r#"{ "path" : "src/lib.rs" }"#,
            "[]",
            "12345678901234567890123",
            r#""\ud83d\ude00 \u0041""#,
        ] {
            assert_eq!(args(exact), exact);
        }
    }

    #[test]
    fn arguments_that_are_no_json_become_text() {
        let deep = "[".repeat(5_000) + &"]".repeat(5_000);
        for broken in ["", "{\"a\":", "NaN", "{\"a\":1e999}", "tru\ne", &deep] {
            assert_eq!(args(broken), serde_json::to_string(broken).unwrap(), "{broken:.20}");
        }
        assert_eq!(arguments(&RawBytes(vec![b'"', 0xff, b'"'])).get(), "\"\\\"\u{fffd}\\\"\"");
    }

    #[test]
    fn pretty_arguments_take_one_line() {
        assert_eq!(args("{\r\n  \"a\": \"x\\ny\"\n}\n"), r#"{  "a": "x\ny"}"#);
    }

    /// T13: one half of a surrogate pair, from a tool or a cut emoji, made whole sessions unreadable.
    #[test]
    fn t13_half_a_surrogate_pair_becomes_the_replacement_character() {
        assert_eq!(args(r#"{"k":"k\ud83d"}"#), r#"{"k":"k\ufffd"}"#);
        assert_eq!(args(r#"{"k":"\ude00\\ud83d\ud83d\u0041"}"#), r#"{"k":"\ufffd\\ud83d\ufffd\u0041"}"#);
    }

    #[test]
    fn money_is_the_decimal_number() {
        assert_eq!(dollars(Some(93_520_000)).to_string(), "0.09352");
        assert_eq!(dollars(Some(0)).to_string(), "0.0");
        assert_eq!(dollars(None), Value::Null);
    }
}
