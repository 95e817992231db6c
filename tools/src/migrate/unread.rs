//! Why a file is no session.

use std::path::Path;

use super::find::read_up_to;

/// How much of a file is looked at, in bytes.
const LEN_MAX: u64 = 4 << 20;

/// Why a file is no session, in plain words.
pub(super) fn why_unread(path: &Path) -> String {
    let bytes = match read_up_to(path, LEN_MAX) {
        Ok(bytes) => bytes,
        Err(error) => return format!("can't be read: {error}"),
    };
    if bytes.is_empty() {
        return "is empty".to_owned();
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return "holds nothing but zero bytes, which a crash leaves".to_owned();
    }
    let is_whole = u64::try_from(bytes.len()).is_ok_and(|len| len < LEN_MAX);
    let is_lines = path.extension().is_some_and(|extension| extension == "jsonl");
    let first = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    let json = if is_lines { first.unwrap_or_default() } else { &bytes };
    match serde_json::from_slice::<serde::de::IgnoredAny>(json) {
        Err(error) if is_whole || !error.is_eof() => format!("is not JSON: {error}"),
        _ => "is JSON, and of no form of session that is known here".to_owned(),
    }
}
