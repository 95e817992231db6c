//! Messages of a context and entries of a transcript as JSON, for `logdump` and other programs.

use serde_json::{Map, Value, json};
use sessionlog_codec::event::{
    ArtifactReceipt, Media, MediaSource, Part, Reasoning, ReasoningForm, ResultFlag, ToolCall,
};
use sessionlog_codec::registry::name_of;

use super::json::arguments_value;
use crate::context::{ContextMessage, ContextOrigin};
use crate::time::rfc3339_micros;
use crate::transcript::{EntryBody, TranscriptEntry};
use crate::words::{outcome_word, role_word};

/// A message of a context: `role`, `content`, `tool_calls`, `tool_call_id`, `is_error`, `synthetic`, `message_no`,
/// `position`, `model`, each where it says something.
#[must_use]
pub fn context_message_json(message: &ContextMessage) -> Value {
    let mut keys = Map::new();
    keys.insert("role".into(), role_word(message.role).into());
    put(&mut keys, "name", message.name.as_deref());
    keys.insert("content".into(), parts_json(&message.parts));
    put_calls(&mut keys, &message.tool_calls);
    if let Some(id) = &message.tool_call_id {
        keys.insert("tool_call_id".into(), id.as_str().into());
        keys.insert("is_error".into(), (message.flag == ResultFlag::Error).into());
    }
    match message.origin {
        ContextOrigin::Recorded => {}
        ContextOrigin::Synthetic(reason) => put(&mut keys, "synthetic", Some(reason.word())),
        ContextOrigin::Summary => put(&mut keys, "synthetic", Some("summary")),
    }
    if let Some(number) = message.message_no {
        keys.insert("message_no".into(), number.0.into());
    }
    if let Some(call) = message.call {
        keys.insert("tool_index".into(), call.tool_index.0.into());
    }
    keys.insert("position".into(), message.position.0.into());
    put(&mut keys, "model", message.model.as_deref());
    Value::Object(keys)
}

/// An entry of a transcript: the keys of a message, and `mark`, `position`, `timestamp`; entries that are no messages
/// have a `type` in place of a role.
#[must_use]
pub fn transcript_entry_json(entry: &TranscriptEntry) -> Value {
    let mut keys = Map::new();
    match &entry.body {
        EntryBody::Message(message) => {
            keys.insert("role".into(), role_word(message.role).into());
            put(&mut keys, "name", message.name.as_deref());
            keys.insert("content".into(), parts_json(&message.parts));
            put_calls(&mut keys, &message.tool_calls);
            put(&mut keys, "tool_call_id", message.tool_call_id.as_deref());
            put(&mut keys, "model", message.model.as_deref());
        }
        EntryBody::Result(finished, name) => {
            keys.insert("role".into(), "tool".into());
            put(&mut keys, "name", name.as_deref());
            keys.insert("content".into(), parts_json(&finished.parts));
            keys.insert("tool_call_id".into(), finished.call_id.as_str().into());
            keys.insert("is_error".into(), (finished.flag == ResultFlag::Error).into());
            keys.insert("outcome".into(), outcome_word(finished.outcome).into());
            if let Some(artifact) = &finished.artifact {
                keys.insert("artifact".into(), artifact_json(artifact));
            }
        }
        other => put_other(&mut keys, other),
    }
    keys.insert("mark".into(), entry.mark.word().into());
    if let Some(number) = entry.message_no {
        keys.insert("message_no".into(), number.0.into());
    }
    if let Some(call) = entry.call {
        keys.insert("tool_index".into(), call.tool_index.0.into());
    }
    keys.insert("position".into(), entry.position.0.into());
    keys.insert("timestamp".into(), rfc3339_micros(entry.timestamp).into());
    Value::Object(keys)
}

fn put_other(keys: &mut Map<String, Value>, body: &EntryBody) {
    let mut put = |kind: &str, rest: Value| {
        keys.insert("type".into(), kind.into());
        if let Value::Object(rest) = rest {
            keys.extend(rest);
        }
    };
    match body {
        EntryBody::Compaction(compacted) => put(
            "compaction",
            json!({
                "content": parts_json(&compacted.summary),
                "kept": compacted.kept,
                "replaced": compacted.replaced,
                "tokens_before": compacted.tokens_before,
                "tokens_after": compacted.tokens_after,
                "trigger": compacted.trigger,
            }),
        ),
        EntryBody::Resolution(resolved) => put(
            "resolution",
            json!({
                "content": parts_json(&resolved.parts),
                "is_error": resolved.flag == ResultFlag::Error,
                "outcome": resolved.outcome,
                "resolver": resolved.resolver,
                "note": resolved.note,
            }),
        ),
        EntryBody::Run(reason) => put("run", json!({ "reason": reason })),
        EntryBody::Reset(reason) => put("reset", json!({ "reason": reason })),
        EntryBody::Gap(gap) => put("gap", serde_json::to_value(gap).unwrap_or_default()),
        EntryBody::SealedMessage(kind) | EntryBody::SealedResult(kind) => {
            put("unreadable", json!({ "event": name_of(*kind) }));
        }
        EntryBody::Piece(piece) => {
            put("piece", json!({ "content": parts_json(&piece.parts) }));
            put_calls(keys, &piece.tool_calls);
        }
        EntryBody::Message(_) | EntryBody::Result(..) => {}
    }
}

fn put(keys: &mut Map<String, Value>, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        keys.insert(key.into(), value.into());
    }
}

fn put_calls(keys: &mut Map<String, Value>, calls: &[ToolCall]) {
    if calls.is_empty() {
        return;
    }
    let call = |call: &ToolCall| json!({ "id": call.call_id, "name": call.name, "arguments": arguments_value(&call.arguments) });
    keys.insert("tool_calls".into(), calls.iter().map(call).collect());
}

/// Content: a string if all of it is text, joined by line ends; else an array of parts, each with its `type`.
#[must_use]
pub fn parts_json(parts: &[Part]) -> Value {
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    match texts {
        Some(texts) => texts.join("\n").into(),
        None => parts.iter().map(part_json).collect(),
    }
}

fn part_json(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Reasoning(reasoning) => reasoning_json(reasoning),
        Part::Image(media) => media_json("image", media),
        Part::File(media) => media_json("file", media),
        Part::Raw(block) => json!({ "type": "raw", "data": arguments_value(block) }),
    }
}

fn reasoning_json(reasoning: &Reasoning) -> Value {
    let text = &reasoning.text;
    match &reasoning.form {
        ReasoningForm::Plain => json!({ "type": "reasoning", "form": "plain", "text": text }),
        ReasoningForm::Signed(signature) => {
            json!({ "type": "reasoning", "form": "signed", "text": text, "signature": signature })
        }
        ReasoningForm::Opaque(data) => {
            json!({ "type": "reasoning", "form": "opaque", "text": text, "data": data })
        }
        ReasoningForm::Summary => json!({ "type": "reasoning", "form": "summary", "text": text }),
    }
}

fn media_json(kind: &str, media: &Media) -> Value {
    let mut keys = Map::new();
    keys.insert("type".into(), kind.into());
    put(&mut keys, "media_type", media.media_type.as_deref());
    put(&mut keys, "name", media.name.as_deref());
    put(&mut keys, "detail", media.detail.as_deref());
    match &media.source {
        MediaSource::Base64(data) => put(&mut keys, "data", Some(data)),
        MediaSource::Url(url) => put(&mut keys, "url", Some(url)),
        MediaSource::FileId(id) => put(&mut keys, "file_id", Some(id)),
        MediaSource::Artifact(artifact) => {
            keys.insert("artifact".into(), artifact_json(artifact));
        }
    }
    Value::Object(keys)
}

fn artifact_json(artifact: &ArtifactReceipt) -> Value {
    json!({
        "digest": artifact.digest.to_string(),
        "len": artifact.len,
        "media_type": artifact.media_type,
        "preview": artifact.preview,
    })
}
