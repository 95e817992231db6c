//! `.meta.json`, in both dialects.

use serde_json::{Map, Value, json};

use super::json::{dollars, pretty};
use super::{Dialect, cost};
use crate::status::Status;
use crate::summary::{Summary, UsageTotals};
use crate::time::rfc3339_seconds;

/// What a host adds to `.meta.json`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetaExtra {
    /// Its own data, put under `sessionlog.view`. Left out if it is null.
    pub view: Value,
}

/// The session's id in `.meta.json`: the display id, in recursive's dialect with `-` for each `:`, as the crate has it.
#[must_use]
pub fn session_id_of(dialect: Dialect, summary: &Summary) -> String {
    match dialect {
        Dialect::Seed => summary.display_id(),
        Dialect::Recursive08 => summary.display_id().replace(':', "-"),
    }
}

/// The whole file: the dialect's keys in the dialect's order, then one key `sessionlog` with what it has no keys for.
#[must_use]
pub fn meta(dialect: Dialect, summary: &Summary, status: Status, extra: &MetaExtra) -> String {
    let mut keys = match dialect {
        Dialect::Seed => seed(summary, status),
        Dialect::Recursive08 => recursive(summary, status),
    };
    keys.insert("sessionlog".into(), own(summary, status, extra));
    pretty(&keys)
}

fn seed(summary: &Summary, status: Status) -> Map<String, Value> {
    let mut keys = Map::new();
    keys.insert("session_id".into(), session_id_of(Dialect::Seed, summary).into());
    keys.insert("created_at".into(), created_at(summary).into());
    keys.insert("status".into(), status.seed_word().into());
    keys.insert("model".into(), summary.model.clone().unwrap_or_default().into());
    keys.insert("message_count".into(), summary.messages.into());
    keys.insert("cost_usd".into(), dollars(summary.usage.cost_nano_usd));
    keys
}

fn recursive(summary: &Summary, status: Status) -> Map<String, Value> {
    let created = summary.created.as_ref().map(|created| &created.what);
    let usage = &summary.usage;
    let mut keys = Map::new();
    keys.insert("schema_version".into(), 1.into());
    keys.insert("session_id".into(), session_id_of(Dialect::Recursive08, summary).into());
    keys.insert("goal".into(), created.and_then(|created| created.goal.clone()).unwrap_or_default().into());
    keys.insert("model".into(), summary.model.clone().unwrap_or_default().into());
    keys.insert("provider".into(), summary.provider.clone().unwrap_or_default().into());
    keys.insert("created_at".into(), created_at(summary).into());
    keys.insert("updated_at".into(), updated_at(summary).into());
    // recursive's summaries are messages of its transcript.
    keys.insert("message_count".into(), summary.messages.saturating_add(summary.summaries).into());
    keys.insert("status".into(), status.recursive_word().into());
    let mut optional = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            keys.insert(key.into(), value);
        }
    };
    let hash = created.and_then(|created| created.tool_registry_hash.clone());
    optional("tool_registry_hash", hash.map(Value::from));
    optional("first_prompt", summary.first_prompt.clone().map(Value::from));
    optional("last_prompt", summary.last_prompt.clone().map(Value::from));
    optional("cost", (usage.requests > 0).then(|| session_cost(usage)));
    optional("preset", created.and_then(|created| created.preset.clone()).map(Value::from));
    optional("name", summary.title().map(Value::from));
    keys.insert("cost_usd".into(), dollars(usage.cost_nano_usd));
    keys.extend(cost::tokens(usage));
    keys.insert("total_llm_latency_ms".into(), usage.latency_ms.into());
    keys
}

fn session_cost(usage: &UsageTotals) -> Value {
    json!({
        "total_input_tokens": usage.input_total(),
        "total_output_tokens": usage.output,
        "total_cache_creation_tokens": usage.cache_write,
        "total_cache_read_tokens": usage.cache_read,
        "total_reasoning_tokens": usage.reasoning,
    })
}

fn own(summary: &Summary, status: Status, extra: &MetaExtra) -> Value {
    let mut own = Map::new();
    own.insert("schema_version".into(), 1.into());
    own.insert("id".into(), summary.session_id.map(|id| id.to_string()).into());
    own.insert("status".into(), status.word().into());
    own.insert("title".into(), summary.title().into());
    own.insert("tags".into(), summary.tags.iter().cloned().collect::<Vec<_>>().into());
    own.insert("updated_at".into(), updated_at(summary).into());
    own.insert("first_prompt".into(), summary.first_prompt.clone().into());
    own.insert("last_prompt".into(), summary.last_prompt.clone().into());
    own.insert("usage".into(), usage_json(&summary.usage));
    if let Some(forked) = &summary.forked {
        let parent = json!({ "session": forked.what.parent.to_string(), "at": forked.what.at });
        own.insert("forked_from".into(), parent);
        own.insert("inherited_usage".into(), usage_json(&summary.inherited_usage));
    }
    if !extra.view.is_null() {
        own.insert("view".into(), extra.view.clone());
    }
    Value::Object(own)
}

fn usage_json(usage: &UsageTotals) -> Value {
    json!({
        "requests": usage.requests,
        "input": usage.input,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "output": usage.output,
        "reasoning": usage.reasoning,
        "cost_usd": dollars(usage.cost_nano_usd),
        "priced_usd": dollars(Some(usage.priced_nano_usd)),
        "unpriced_requests": usage.unpriced_requests,
        "latency_ms": usage.latency_ms,
    })
}

fn created_at(summary: &Summary) -> String {
    rfc3339_seconds(summary.created_at().unwrap_or_default())
}

fn updated_at(summary: &Summary) -> String {
    rfc3339_seconds(summary.updated_at().unwrap_or_default())
}
