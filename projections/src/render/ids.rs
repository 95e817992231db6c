//! Call ids and tool names that a provider takes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::context::ContextMessage;

/// The call ids of one context as they are in the body.
pub(super) struct Ids<'a> {
    /// Those that had to be replaced.
    replaced: BTreeMap<&'a str, String>,
    /// All of the body.
    used: BTreeSet<Cow<'a, str>>,
}

impl<'a> Ids<'a> {
    pub(super) fn of(context: &'a [ContextMessage], longest: usize) -> Self {
        let calls = || context.iter().flat_map(|message| &message.tool_calls).map(|it| it.call_id.as_str());
        let fits = |id: &str| id.len() <= longest && is_clean(id);
        let mut used: BTreeSet<Cow<'a, str>> = calls().filter(|id| fits(id)).map(Cow::Borrowed).collect();
        let mut replaced = BTreeMap::new();
        for id in calls().filter(|id| !fits(id)) {
            if replaced.contains_key(id) {
                continue;
            }
            // Made of the old id alone, so that a call keeps its id from request to request.
            let mut new = replacement(id, 0);
            let mut round = 0u64;
            while !used.insert(Cow::Owned(new.clone())) {
                round = round.saturating_add(1);
                new = replacement(id, round);
            }
            replaced.insert(id, new);
        }
        Self { replaced, used }
    }

    /// The id in the body.
    pub(super) fn get<'s>(&'s self, id: &'s str) -> &'s str {
        self.replaced.get(id).map_or(id, String::as_str)
    }

    pub(super) fn is_replaced(&self, id: &str) -> bool {
        self.replaced.contains_key(id)
    }

    /// Whether the body has a call of this id.
    pub(super) fn is_used(&self, id: &str) -> bool {
        self.used.contains(id)
    }
}

fn is_clean(id: &str) -> bool {
    !id.is_empty() && id.chars().all(is_clean_char)
}

fn is_clean_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// At most 37 characters: 24, a dash, 12.
fn replacement(id: &str, round: u64) -> String {
    let stem: String = id.chars().filter(|c| is_clean_char(*c)).take(24).collect();
    let stem = if stem.is_empty() { "call" } else { &stem };
    let mut hasher = blake3::Hasher::new();
    hasher.update(id.as_bytes());
    if round > 0 {
        hasher.update(&round.to_le_bytes());
    }
    let digest: String = hasher.finalize().to_hex().chars().take(12).collect();
    format!("{stem}-{digest}")
}

/// A tool's name with `_` for each character that no provider takes, cut to `longest`.
pub(super) fn tool_name(name: &str, longest: usize) -> Cow<'_, str> {
    if name.len() <= longest && is_clean(name) {
        return Cow::Borrowed(name);
    }
    let clean = |c: char| if is_clean_char(c) { c } else { '_' };
    let name: String = name.chars().take(longest).map(clean).collect();
    if name.is_empty() { Cow::Borrowed("unknown") } else { Cow::Owned(name) }
}
