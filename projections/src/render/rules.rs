//! The rules of each provider, executable. They look at the JSON of a request only, and know nothing of how it was made.
//!
//! A rule is here if a provider is known to refuse a request that breaks it: from its reference, or from the error that
//! it answers with. Some are stricter than the one provider, because others that take the same form refuse more.

mod anthropic;
mod chat;
mod responses;

use serde_json::Value;

pub use anthropic::validate_anthropic;
pub use chat::validate_chat;
pub use responses::validate_responses;

/// The first rule that a request breaks, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {rule}")]
pub struct RuleBroken {
    /// The place, as providers write it: `messages[3].content[0]`.
    pub at: String,
    /// The rule.
    pub rule: &'static str,
}

type Checked<T = ()> = Result<T, RuleBroken>;

fn broken<T>(at: &str, rule: &'static str) -> Checked<T> {
    Err(RuleBroken { at: at.to_owned(), rule })
}

fn demand(holds: bool, at: &str, rule: &'static str) -> Checked {
    if holds { Ok(()) } else { broken(at, rule) }
}

/// The text under `key`.
fn text<'v>(value: &'v Value, key: &str, at: &str) -> Checked<&'v str> {
    match value.get(key).and_then(Value::as_str) {
        Some(text) => Ok(text),
        None => broken(&format!("{at}.{key}"), "must be a string"),
    }
}

/// The text under `key`, which is not empty.
fn filled<'v>(value: &'v Value, key: &str, at: &str) -> Checked<&'v str> {
    match text(value, key, at)? {
        "" => broken(&format!("{at}.{key}"), "must not be empty"),
        text => Ok(text),
    }
}

/// The array under `key`, which is not empty, with the place of each item.
fn items<'v>(value: &'v Value, key: &str, at: &str) -> Checked<Vec<(String, &'v Value)>> {
    let place = if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
    match value.get(key).and_then(Value::as_array) {
        None => broken(&place, "must be an array"),
        Some(array) if array.is_empty() => broken(&place, "must have at least one item"),
        Some(array) => {
            Ok(array.iter().enumerate().map(|(index, it)| (format!("{place}[{index}]"), it)).collect())
        }
    }
}

/// `^[a-zA-Z0-9_-]{1,longest}$`
fn clean_name(value: &Value, key: &str, longest: usize, at: &str) -> Checked {
    let name = filled(value, key, at)?;
    let clean = name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-'));
    demand(clean, &format!("{at}.{key}"), "must match ^[a-zA-Z0-9_-]+$")?;
    demand(name.len() <= longest, &format!("{at}.{key}"), "string too long")
}

/// Base64 of something, of an image's or any other type.
fn data_url(url: &str, kinds: &[&str], at: &str) -> Checked {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let Some((kind, data)) = data else { return broken(at, "must be a base64 data URL") };
    demand(kinds.is_empty() || kinds.contains(&kind), at, "media type is not supported")?;
    demand(kind.contains('/'), at, "must have a media type")?;
    base64(data, at)
}

fn base64(data: &str, at: &str) -> Checked {
    let padding = data.bytes().rev().take_while(|b| *b == b'=').count();
    let body = data.len().saturating_sub(padding);
    let alphabet = |b: u8| matches!(b, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/');
    let is_valid =
        body > 0 && padding <= 2 && data.len().is_multiple_of(4) && data.bytes().take(body).all(alphabet);
    demand(is_valid, at, "must be valid base64")
}

fn web_url(url: &str, at: &str) -> Checked {
    let scheme = url.split_once("://").filter(|(_, rest)| !rest.is_empty()).map(|(scheme, _)| scheme);
    let has_scheme = matches!(scheme, Some("http" | "https"));
    let plain = !url.chars().any(|c| c.is_whitespace() || c.is_control());
    demand(has_scheme && plain, at, "must be an HTTP URL")
}

/// What Chat, Responses and Anthropic all take.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// An image's URL as OpenAI takes it.
fn image_url(url: &str, at: &str) -> Checked {
    if url.starts_with("data:") { data_url(url, &IMAGES, at) } else { web_url(url, at) }
}

fn detail(value: &Value, at: &str) -> Checked {
    let fits = match value.get("detail") {
        None => true,
        Some(detail) => detail.as_str().is_some_and(|it| ["auto", "low", "high"].contains(&it)),
    };
    demand(fits, &format!("{at}.detail"), "must be auto, low or high")
}

/// All keys of an object are known ones.
fn known_keys(value: &Value, known: &[&str], at: &str) -> Checked {
    let Some(object) = value.as_object() else { return broken(at, "must be an object") };
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => broken(&format!("{at}.{key}"), "unknown key"),
        None => Ok(()),
    }
}
