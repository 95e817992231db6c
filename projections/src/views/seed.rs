//! `transcript.jsonl` as the page on sessions documents it: the same keys, in the same order.

use serde::Serialize;
use serde_json::value::RawValue;
use sessionlog_codec::event::ToolCall;

use super::json;

/// One line. A result names its call before its content, as on the page.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    pub(super) id: &'a str,
    pub(super) role: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<&'a str>,
    pub(super) content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<Call<'a>>,
    pub(super) timestamp: &'a str,
}

#[derive(Serialize)]
pub(super) struct Call<'a> {
    id: &'a str,
    name: &'a str,
    args: Box<RawValue>,
}

pub(super) fn calls(calls: &[ToolCall]) -> Vec<Call<'_>> {
    calls.iter().map(Call::of).collect()
}

impl<'a> Call<'a> {
    fn of(call: &'a ToolCall) -> Self {
        Self { id: &call.call_id, name: &call.name, args: json::arguments(&call.arguments) }
    }
}
