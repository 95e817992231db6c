//! `transcript.jsonl` as recursive-agent 0.8 writes and reads it: the same keys, in the same order.

use serde::Serialize;
use serde_json::value::RawValue;
use sessionlog_codec::event::{CallAudit, Effect, ToolCall, Usage};
use sessionlog_codec::ids::{NodeId, SessionId, Timestamp};
use uuid::Uuid;

use super::json;

/// How much of an error's text recursive keeps in an audit, in bytes.
const EXIT_ERROR_MAX: usize = 512;

/// One line.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    pub(super) uuid: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_uuid: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_tool_assistant_uuid: Option<Uuid>,
    pub(super) id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_id: Option<&'a str>,
    pub(super) role: &'a str,
    pub(super) content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<LineUsage>,
    pub(super) timestamp: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) audit: Option<Audit<'a>>,
}

/// The line before a compaction's summary. recursive's reader takes what is behind the last one for the context.
#[derive(Serialize)]
pub(super) struct Boundary<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'a str,
    pub(super) subtype: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) turn: Option<u32>,
    pub(super) compacted_count: u64,
    pub(super) timestamp: &'a str,
}

#[derive(Serialize)]
pub(super) struct Call<'a> {
    id: &'a str,
    name: &'a str,
    arguments: Box<RawValue>,
}

/// recursive counts cached tokens among the input, and reads 32 bits.
#[derive(Serialize)]
pub(super) struct LineUsage {
    input_tokens: u32,
    output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_creation_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read_tokens: Option<u32>,
    reasoning_tokens: u32,
}

#[derive(Serialize)]
pub(super) struct Audit<'a> {
    step_id: &'a str,
    started_at: i64,
    finished_at: i64,
    args_hash: &'a str,
    side_effect: &'a str,
    exit_status: ExitStatus<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ExitStatus<'a> {
    Ok,
    Err {
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        truncated: Option<bool>,
    },
}

pub(super) fn calls(calls: &[ToolCall]) -> Vec<Call<'_>> {
    calls.iter().map(Call::of).collect()
}

impl<'a> Call<'a> {
    fn of(call: &'a ToolCall) -> Self {
        Self { id: &call.call_id, name: &call.name, arguments: json::arguments(&call.arguments) }
    }
}

impl From<Usage> for LineUsage {
    fn from(usage: Usage) -> Self {
        let narrow = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
        let some = |tokens: u64| (tokens > 0).then(|| narrow(tokens));
        let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        Self {
            input_tokens: narrow(input),
            output_tokens: narrow(usage.output),
            cache_creation_tokens: some(usage.cache_write),
            cache_read_tokens: some(usage.cache_read),
            reasoning_tokens: narrow(usage.reasoning),
        }
    }
}

/// The audit of a call. A call whose start was not recorded counts as external, as recursive has it for unknown tools.
pub(super) fn audit(audit: &CallAudit, effect: Option<Effect>) -> Audit<'_> {
    let millis = |timestamp: Timestamp| timestamp.0.div_euclid(1_000);
    let exit_status = match audit.exit_error.as_deref() {
        None => ExitStatus::Ok,
        Some(message) => {
            let kept = cut_bytes(message, EXIT_ERROR_MAX);
            ExitStatus::Err { message: kept, truncated: (kept.len() < message.len()).then_some(true) }
        }
    };
    Audit {
        step_id: &audit.step_id,
        started_at: millis(audit.started_at),
        finished_at: millis(audit.finished_at),
        args_hash: &audit.arguments_hash,
        side_effect: match effect {
            Some(Effect::Pure) => "read_only",
            Some(Effect::Idempotent | Effect::Mutating) => "mutating",
            Some(Effect::External) | None => "external",
        },
        exit_status,
    }
}

/// The longest beginning of at most `max` bytes that ends on a character.
fn cut_bytes(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

/// What a line stands for: the same for ever, so that a rebuilt file has the same ids.
#[derive(Clone, Copy)]
pub(super) enum LineKey {
    /// A message, by its number: results name their call's message by it.
    Message(u64),
    /// Any other record, by its position.
    Record(u64),
}

/// A UUID that is the same each time the line is rendered.
pub(super) fn line_uuid(session: SessionId, node: NodeId, key: LineKey) -> Uuid {
    let (tag, number) = match key {
        LineKey::Message(number) => (b'm', number),
        LineKey::Record(position) => (b'r', position),
    };
    let mut hasher = blake3::Hasher::new_derive_key("sessionlog 2026 recursive transcript line uuid");
    hasher.update(&session.0);
    hasher.update(&node.0.to_le_bytes());
    hasher.update(&[tag]);
    hasher.update(&number.to_le_bytes());
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    Uuid::new_v8(bytes)
}
