//! `cost.json`, as recursive-agent writes it; the seed page names the file and leaves its content open.

use serde_json::{Map, Value};

use super::json::{dollars, pretty};
use crate::summary::{Summary, UsageTotals};

/// The whole file: what the session itself used, over all its resumes. `cost_usd` is null unless the price of every
/// request is known. `pricing` is always null: a log holds prices, not price lists.
#[must_use]
pub fn cost(summary: &Summary) -> String {
    let usage = &summary.usage;
    let mut keys = Map::new();
    keys.insert("model".into(), summary.model.clone().unwrap_or_default().into());
    keys.insert("provider".into(), summary.provider.clone().unwrap_or_default().into());
    let total = [
        ("prompt_tokens", usage.input_total()),
        ("completion_tokens", usage.output),
        ("total_tokens", usage.total()),
        ("cache_hit_tokens", usage.cache_read),
        ("cache_miss_tokens", misses(usage)),
        ("reasoning_tokens", usage.reasoning),
    ];
    let total: Map<String, Value> =
        total.into_iter().map(|(key, sum)| (key.to_owned(), sum.into())).collect();
    keys.insert("total_usage".into(), total.into());
    keys.insert("total_llm_latency_ms".into(), usage.latency_ms.into());
    keys.insert("cost_usd".into(), dollars(usage.cost_nano_usd));
    keys.insert("pricing".into(), Value::Null);
    pretty(&keys)
}

/// The token sums in the order in which recursive adds them to `.meta.json`.
pub(super) fn tokens(usage: &UsageTotals) -> Vec<(String, Value)> {
    let sums = [
        ("total_tokens", usage.total()),
        ("prompt_tokens", usage.input_total()),
        ("completion_tokens", usage.output),
        ("cache_hit_tokens", usage.cache_read),
        ("cache_miss_tokens", misses(usage)),
        ("reasoning_tokens", usage.reasoning),
    ];
    sums.into_iter().map(|(key, sum)| (key.to_owned(), sum.into())).collect()
}

fn misses(usage: &UsageTotals) -> u64 {
    usage.input.saturating_add(usage.cache_write)
}
