//! An event in a few words, for a list.

use serde_json::Value;
use sessionlog::codec::event::{Event, LoggedEvent, MessageAppended, Part, ToolCall};
use sessionlog::projections::views::event_json;
use sessionlog::projections::{effect_word, node_status_word, outcome_word, role_word};

use super::safe::safe;
use super::text::{count, cut, size};

/// Columns of a summary.
const COLUMNS: usize = 100;

/// What an event says, on one line, safe for a terminal.
#[must_use]
pub fn summary(logged: &LoggedEvent) -> String {
    cut(&known(&logged.event).unwrap_or_else(|| generic(logged)), COLUMNS)
}

fn known(event: &Event) -> Option<String> {
    let text = match event {
        Event::SessionCreated(it) => {
            format!("{} {}", it.session_id, it.goal.as_deref().map(quoted).unwrap_or_default())
        }
        Event::SessionOpened(it) => {
            let cut = it.cut.as_ref().map(|cut| format!(", after cutting a torn tail of {}", size(cut.len)));
            format!(
                "epoch {}, process {} on {}{}",
                it.epoch,
                it.pid,
                short(&it.machine),
                cut.unwrap_or_default()
            )
        }
        Event::SessionTitled(it) => quoted(&it.title),
        Event::TurnStarted(it) => format!("turn {}", it.turn),
        Event::TurnEnded(it) => format!("turn {} {}", it.turn, word(&it.outcome)),
        Event::MessageAppended(it) => message(it),
        Event::MessageExtended(it) => {
            format!("#{} {}{}", it.message_no, first_text(&it.parts), calls(&it.tool_calls))
        }
        Event::MessageWithdrawn(it) => format!("#{} {}", it.message_no, quoted(&it.reason)),
        Event::CallStarted(it) => {
            let attempt = if it.attempt > 1 { format!(", attempt {}", it.attempt) } else { String::new() };
            format!("{} of {}, {}{attempt}", short(&it.name), it.call, effect_word(it.effect))
        }
        Event::CallFinished(it) => {
            format!("{} {} {}", it.call, outcome_word(it.outcome), first_text(&it.parts))
        }
        Event::CallResolved(it) => format!("{} {} {}", it.call, outcome_word(it.outcome), quoted(&it.note)),
        Event::ContextCompacted(it) => {
            let tokens = match (it.tokens_before, it.tokens_after) {
                (Some(before), Some(after)) => format!("{before} to {after} tokens "),
                _ => String::new(),
            };
            format!("{tokens}{}", first_text(&it.summary))
        }
        Event::NodeOpened(it) => {
            format!("node {} to {} {}", it.child, short(&it.agent), quoted(&it.prompt))
        }
        Event::NodeSettled(it) => format!("{} {}", node_status_word(it.status), first_text(&it.parts)),
        Event::ImportedRaw(it) => format!("{} line {}, {}", short(&it.kind), it.line, bytes(&it.bytes.0)),
        Event::GapMarked(it) => quoted(&it.explanation),
        Event::HostEvent(it) => format!("{}/{} {}", short(&it.namespace), short(&it.name), bytes(&it.data.0)),
        Event::Unknown(it) => {
            format!("kind {} version {} of a newer writer, {}", it.kind, it.schema, bytes(&it.payload.0))
        }
        Event::Erased { digest, .. } => format!("erased on purpose; it was {digest}"),
        _ => return None,
    };
    Some(text)
}

/// A message on one line: its number, who says it, its first words, the tools that it calls.
#[must_use]
pub fn message(it: &MessageAppended) -> String {
    let text = first_text(&it.parts);
    format!("#{} {} {text}{}", it.message_no, role_word(it.role), calls(&it.tool_calls))
}

fn calls(calls: &[ToolCall]) -> String {
    if calls.is_empty() {
        return String::new();
    }
    let names: Vec<String> = calls.iter().take(5).map(|call| short(&call.name)).collect();
    let more = if calls.len() > 5 { ", …" } else { "" };
    format!(" → {}{more}", names.join(", "))
}

fn first_text(parts: &[Part]) -> String {
    let text = parts.iter().find_map(|part| match part {
        Part::Text(text) if !text.trim().is_empty() => Some(text.as_str()),
        _ => None,
    });
    match text {
        Some(text) => quoted(text),
        None if parts.is_empty() => String::new(),
        None => count(u64::try_from(parts.len()).unwrap_or(u64::MAX), "part", "parts"),
    }
}

/// The first line that says something, in quotes.
#[must_use]
pub fn quoted(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    format!("“{}”", cut_safe(line, 60))
}

fn short(text: &str) -> String {
    cut_safe(text, 40)
}

/// Text on one line, safe for a terminal, cut. Escaping makes text longer, so no more is escaped than can be shown.
#[must_use]
pub fn cut_safe(text: &str, columns: usize) -> String {
    let begin: String = text.chars().take(columns.saturating_add(1)).collect();
    cut(&safe(&begin), columns)
}

fn bytes(bytes: &[u8]) -> String {
    size(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
}

fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Whatever the event holds, key by key.
fn generic(logged: &LoggedEvent) -> String {
    let json = event_json(logged);
    let Some(Value::Object(data)) = json.get("data") else { return String::new() };
    let pairs = data.iter().filter_map(|(key, value)| match value {
        Value::Null => None,
        Value::String(text) => Some(format!("{key} {}", quoted(text))),
        Value::Array(items) if items.is_empty() => None,
        other => Some(format!("{key} {}", cut_safe(&other.to_string(), 40))),
    });
    pairs.collect::<Vec<_>>().join(", ")
}
