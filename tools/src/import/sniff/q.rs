//! Tells session files of q's.

use std::ops::Range;

use super::{FileKind, SessionFacts, Sniffed, Text, elements, object, outline, time};
use crate::import::q::Layout;

/// Keys that documents of others have.
const FOREIGN: &[&str] = &["goal", "steps_consumed", "meta", "session_id"];

/// A session file by its beginning: a version, a run, and a transcript behind them.
pub(super) fn sniff(head: &[u8]) -> Option<Sniffed> {
    let keys = match outline(head, &["transcript"]) {
        Some(outline) => outline.keys,
        // Without a transcript it is one if all of it is here, and it has what goes with one.
        None => whole(head)?,
    };
    let value = |key: &str| {
        let (_, range) = keys.iter().find(|(name, _)| name == key)?;
        std::str::from_utf8(head.get(range.clone())?).ok()
    };
    let version: u64 = value("version")?.parse().ok()?;
    value("run_id")?;
    if FOREIGN.iter().any(|key| value(key).is_some()) {
        return None;
    }
    let text = |key: &str| serde_json::from_str::<String>(value(key)?).ok().filter(|text| !text.is_empty());
    let mut sniffed = Sniffed::new(FileKind::QSession);
    sniffed.is_decided = true;
    sniffed.session_id = text("id");
    sniffed.stream_session_id = text("run_id");
    #[derive(Default, serde::Deserialize)]
    struct Times<'a> {
        #[serde(borrow, default)]
        updated_at: Text<'a>,
    }
    let updated = value("updated_at").map(|value| format!("{{\"updated_at\":{value}}}"));
    let times: Times<'_> = updated.as_deref().and_then(object).unwrap_or_default();
    sniffed.facts = SessionFacts {
        agent_version: Some(format!("session file {version}")),
        began: time(&times.updated_at),
        ..SessionFacts::default()
    };
    // Without a run, what was said first tells it from others.
    let said = outline(head, &["transcript"]).filter(|_| sniffed.stream_session_id.is_none());
    let said = said.and_then(|outline| elements(head, outline.start).0.into_iter().next());
    let mark = said.and_then(|range| head.get(range)).or(value("run_id").map(str::as_bytes));
    sniffed.first = Some(blake3::hash(mark.unwrap_or_default()));
    Some(sniffed)
}

/// The keys of an object that is whole, if it is one that could be a session file.
fn whole(head: &[u8]) -> Option<Vec<(String, Range<usize>)>> {
    let keys = Layout::keys(head)?;
    let has = |name: &str| keys.iter().any(|(key, _)| key == name);
    (has("transcript") || has("context") || has("learning")).then_some(keys)
}
