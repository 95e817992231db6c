use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Checked, IMAGES, RuleBroken, base64, broken, clean_name, demand, filled, items, known_keys, text, web_url,
};

/// Checks the body of an Anthropic Messages request.
///
/// From Anthropic's API reference, "Messages", and the guides to tool use and extended thinking:
/// - `messages` has at least one message; user and assistant alternate, the user first. (The provider itself joins
///   neighbours of one role; others that take the same form refuse them.)
/// - The user's blocks are `text`, `image`, `document` and `tool_result`; the assistant's `text`, `thinking`,
///   `redacted_thinking`, `tool_use`, and `server_tool_use` with its result behind it. `system` is text.
/// - The id of a `tool_use` matches `^[a-zA-Z0-9_-]+$` and is used once ("`tool_use` ids must be unique"), its name
///   `^[a-zA-Z0-9_-]{1,128}$`; its input is an object. Ids of `server_tool_use` begin with `srvtoolu_`.
/// - All calls of a message are answered at the beginning of the next one ("`tool_use` ids were found without
///   `tool_result` blocks immediately after", "each tool_use must have a single result", "unexpected `tool_use_id` found
///   in `tool_result` blocks"), and the results come before anything else of that message.
/// - Images are base64 of a supported type, at an HTTPS URL, or a file of the provider's.
///
/// From what it refuses:
/// - "text content blocks must contain non-whitespace text"; "final assistant content cannot end with trailing
///   whitespace".
/// - "messages.1.content.0.thinking.signature: Field required": thinking has its signature. "the first block must be
///   `thinking` or `redacted_thinking`", where a message has any. "The final block in an assistant message cannot be
///   `thinking`". "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`",
///   and when it is enabled there is no such message.
///
/// # Errors
/// The first rule that is broken.
pub fn validate_anthropic(body: &Value) -> Result<(), RuleBroken> {
    known_keys(body, &["system", "messages"], "")?;
    if body.get("system").is_some() {
        for (at, block) in items(body, "system", "")? {
            demand(kind(block) == "text", &at, "must be text")?;
            text_block(block, &at)?;
        }
    }
    let mut used = BTreeSet::new();
    let mut open = BTreeSet::new();
    let mut expected = "user";
    let messages = items(body, "messages", "")?;
    for (at, message) in &messages {
        known_keys(message, &["role", "content"], at)?;
        let role = text(message, "role", at)?;
        demand(role == expected, at, "user and assistant must alternate, the user first")?;
        let blocks = items(message, "content", at)?;
        if role == "user" {
            user(&blocks, std::mem::take(&mut open), at)?;
            expected = "assistant";
        } else {
            open = assistant(&blocks, &mut used)?;
            expected = "user";
        }
    }
    demand(open.is_empty(), "messages", "all calls must be answered")?;
    match messages.last() {
        Some((at, message)) if expected == "user" => last_answer(message, at),
        _ => Ok(()),
    }
}

fn kind(block: &Value) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Python's `str.strip`.
fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

fn text_block(block: &Value, at: &str) -> Checked {
    known_keys(block, &["type", "text"], at)?;
    let text = filled(block, "text", at)?;
    demand(!text.trim_matches(is_space).is_empty(), at, "text must contain non-whitespace text")
}

fn user(blocks: &[(String, &Value)], mut open: BTreeSet<&str>, message: &str) -> Checked {
    let mut results_may_come = true;
    for (at, block) in blocks {
        if kind(block) == "tool_result" {
            demand(results_may_come, at, "results must come before anything else")?;
            let answers = open.remove(filled(block, "tool_use_id", at)?);
            demand(answers, at, "must answer a call of the message before, once")?;
            result(block, at)?;
        } else {
            results_may_come = false;
            content_block(block, at)?;
        }
    }
    demand(open.is_empty(), message, "all calls of the message before must be answered")
}

fn result(block: &Value, at: &str) -> Checked {
    known_keys(block, &["type", "tool_use_id", "content", "is_error"], at)?;
    demand(block.get("is_error").is_none_or(Value::is_boolean), at, "is_error must be a boolean")?;
    if block.get("content").is_none_or(Value::is_string) {
        return Ok(());
    }
    for (at, block) in items(block, "content", at)? {
        content_block(block, &at)?;
    }
    Ok(())
}

fn content_block(block: &Value, at: &str) -> Checked {
    let source = block.get("source").unwrap_or(&Value::Null);
    match kind(block) {
        "text" => text_block(block, at),
        "image" => {
            known_keys(block, &["type", "source"], at)?;
            media_source(source, &IMAGES, at)
        }
        "document" => {
            known_keys(block, &["type", "source", "title"], at)?;
            media_source(source, &["application/pdf"], at)
        }
        _ => broken(at, "is no block of a user message"),
    }
}

fn media_source(source: &Value, types: &[&str], at: &str) -> Checked {
    match kind(source) {
        "base64" => {
            known_keys(source, &["type", "media_type", "data"], at)?;
            demand(types.contains(&text(source, "media_type", at)?), at, "media type is not supported")?;
            base64(text(source, "data", at)?, at)
        }
        "url" => {
            known_keys(source, &["type", "url"], at)?;
            let url = text(source, "url", at)?;
            demand(url.starts_with("https://"), at, "only HTTPS URLs are supported")?;
            web_url(url, at)
        }
        "file" => {
            known_keys(source, &["type", "file_id"], at)?;
            demand(text(source, "file_id", at)?.starts_with("file_"), at, "is no file of the provider's")
        }
        _ => broken(at, "source must be base64, url or file"),
    }
}

/// Returns the calls that wait for a result.
fn assistant<'v>(blocks: &[(String, &'v Value)], used: &mut BTreeSet<&'v str>) -> Checked<BTreeSet<&'v str>> {
    let mut open = BTreeSet::new();
    let mut served = BTreeSet::new();
    let is_thinking = |block: &Value| ["thinking", "redacted_thinking"].contains(&kind(block));
    let any = blocks.iter().any(|(_, block)| is_thinking(block));
    if let Some((at, block)) = blocks.first() {
        demand(!any || is_thinking(block), at, "the first block must be thinking, where there is any")?;
    }
    if let Some((at, block)) = blocks.last() {
        demand(!is_thinking(block), at, "the final block cannot be thinking")?;
    }
    for (at, block) in blocks {
        match kind(block) {
            "text" => text_block(block, at)?,
            "thinking" => {
                known_keys(block, &["type", "thinking", "signature"], at)?;
                text(block, "thinking", at)?;
                filled(block, "signature", at)?;
            }
            "redacted_thinking" => {
                known_keys(block, &["type", "data"], at)?;
                filled(block, "data", at)?;
            }
            "tool_use" => {
                known_keys(block, &["type", "id", "name", "input"], at)?;
                let id = call(block, at)?;
                demand(used.insert(id), at, "tool_use ids must be unique")?;
                open.insert(id);
            }
            "server_tool_use" => {
                let id = call(block, at)?;
                demand(id.starts_with("srvtoolu_"), at, "id must match ^srvtoolu_[a-zA-Z0-9_]+$")?;
                demand(used.insert(id), at, "tool_use ids must be unique")?;
                served.insert(id);
            }
            kind if kind.ends_with("_tool_result") => {
                let answers = served.remove(filled(block, "tool_use_id", at)?);
                demand(answers, at, "must answer a call before it in its message, once")?;
                demand(block.get("content").is_some(), at, "must have content")?;
            }
            _ => return broken(at, "is no block of an assistant message"),
        }
    }
    if let Some((at, _)) = blocks.first() {
        demand(served.is_empty(), at, "calls that the provider runs need their result")?;
    }
    Ok(open)
}

fn call<'v>(block: &'v Value, at: &str) -> Checked<&'v str> {
    clean_name(block, "id", usize::MAX, at)?;
    clean_name(block, "name", 128, at)?;
    demand(block.get("input").is_some_and(Value::is_object), at, "input must be an object")?;
    filled(block, "id", at)
}

fn last_answer(message: &Value, at: &str) -> Checked {
    let blocks = items(message, "content", at)?;
    for (at, block) in &blocks {
        let is_thinking = ["thinking", "redacted_thinking"].contains(&kind(block));
        demand(!is_thinking, at, "an answer to be continued cannot contain thinking")?;
    }
    let ends_blank = blocks.last().is_some_and(|(_, block)| {
        block.get("text").and_then(Value::as_str).is_some_and(|text| text.ends_with(is_space))
    });
    demand(!ends_blank, at, "final assistant content cannot end with trailing whitespace")
}
