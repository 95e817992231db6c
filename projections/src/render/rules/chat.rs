use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Checked, RuleBroken, broken, clean_name, data_url, demand, detail, filled, image_url, items, known_keys,
    text,
};

/// Checks the body of a Chat Completions request.
///
/// From OpenAI's API reference, "Create chat completion":
/// - `messages` has at least one message, of role `system`, `developer`, `user`, `assistant` or `tool`.
/// - Content is a string or an array of parts: `text` everywhere, `image_url` and `file` from the user only. It is not
///   empty, but in a tool message. An assistant's is null only with calls.
/// - A call is `{id, type: "function", function: {name, arguments}}` or `{id, type: "custom", custom: {name, input}}`,
///   `arguments` and `input` being strings.
/// - A `name` matches `^[^\s<|\\/>]+$` and has at most 64 characters; a tool's name `^[a-zA-Z0-9_-]{1,64}$`.
///
/// From what it refuses:
/// - "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'";
///   "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'": each id is answered once,
///   directly behind. Ids are not used twice in a request (not refused by OpenAI, but by those behind a router).
/// - "string too long. Expected a string with maximum length 40" for an id.
///
/// From DeepSeek's guide to thinking: `reasoning_content` is a string beside the content of an assistant message.
///
/// # Errors
/// The first rule that is broken.
pub fn validate_chat(body: &Value) -> Result<(), RuleBroken> {
    known_keys(body, &["messages"], "")?;
    let mut used = BTreeSet::new();
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for (at, message) in items(body, "messages", "")? {
        let role = text(message, "role", &at)?;
        if role == "tool" {
            known_keys(message, &["role", "content", "tool_call_id"], &at)?;
            string_or_texts(message, &at)?;
            let answered = open.remove(filled(message, "tool_call_id", &at)?);
            demand(answered, &at, "must answer a call directly before, once")?;
            continue;
        }
        demand(open.is_empty(), &at, "calls before must be answered first")?;
        match role {
            "system" | "developer" => {
                known_keys(message, &["role", "content", "name"], &at)?;
                demand(has_content(message), &at, "content must not be empty")?;
                string_or_texts(message, &at)?;
            }
            "user" => user(message, &at)?,
            "assistant" => {
                assistant(message, &at)?;
                open = calls(message, &mut used, &at)?;
            }
            _ => return broken(&at, "role is unknown"),
        }
        speaker_name(message, &at)?;
    }
    demand(open.is_empty(), "messages", "all calls must be answered")
}

fn has_content(message: &Value) -> bool {
    match message.get("content") {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(parts)) => !parts.is_empty(),
        _ => false,
    }
}

fn string_or_texts(message: &Value, at: &str) -> Checked {
    if message.get("content").is_some_and(Value::is_string) {
        return Ok(());
    }
    for (at, part) in items(message, "content", at)? {
        demand(part.get("type").and_then(Value::as_str) == Some("text"), &at, "must be text")?;
        filled(part, "text", &at)?;
    }
    Ok(())
}

fn user(message: &Value, at: &str) -> Checked {
    known_keys(message, &["role", "content", "name"], at)?;
    demand(has_content(message), at, "content must not be empty")?;
    if message.get("content").is_some_and(Value::is_string) {
        return Ok(());
    }
    for (at, part) in items(message, "content", at)? {
        match text(part, "type", &at)? {
            "text" => drop(filled(part, "text", &at)?),
            "image_url" => {
                let image = part.get("image_url").unwrap_or(&Value::Null);
                known_keys(image, &["url", "detail"], &at)?;
                image_url(filled(image, "url", &at)?, &at)?;
                detail(image, &at)?;
            }
            "file" => file(part.get("file").unwrap_or(&Value::Null), &at)?,
            _ => return broken(&at, "is no part of a user message"),
        }
    }
    Ok(())
}

fn file(file: &Value, at: &str) -> Checked {
    if file.get("file_id").is_some() {
        known_keys(file, &["file_id"], at)?;
        return filled(file, "file_id", at).map(drop);
    }
    known_keys(file, &["filename", "file_data"], at)?;
    filled(file, "filename", at)?;
    data_url(text(file, "file_data", at)?, &["application/pdf"], at)
}

fn assistant(message: &Value, at: &str) -> Checked {
    known_keys(message, &["role", "content", "name", "tool_calls", "reasoning_content"], at)?;
    if message.get("reasoning_content").is_some() {
        text(message, "reasoning_content", at)?;
    }
    if has_content(message) {
        return string_or_texts(message, at);
    }
    let is_null = message.get("content").is_none_or(Value::is_null);
    demand(is_null && message.get("tool_calls").is_some(), at, "must have content or tool_calls")
}

fn calls<'v>(message: &'v Value, used: &mut BTreeSet<&'v str>, at: &str) -> Checked<BTreeSet<&'v str>> {
    let mut open = BTreeSet::new();
    if message.get("tool_calls").is_none() {
        return Ok(open);
    }
    for (at, call) in items(message, "tool_calls", at)? {
        let id = filled(call, "id", &at)?;
        demand(id.len() <= 40, &at, "id: string too long")?;
        demand(used.insert(id), &at, "id was used before")?;
        open.insert(id);
        let (framed, input) = match text(call, "type", &at)? {
            "function" => ("function", "arguments"),
            "custom" => ("custom", "input"),
            _ => return broken(&at, "type must be function or custom"),
        };
        known_keys(call, &["id", "type", framed, "extra_content"], &at)?;
        let framed = call.get(framed).unwrap_or(&Value::Null);
        clean_name(framed, "name", 64, &at)?;
        text(framed, input, &at)?;
        known_keys(framed, &["name", input], &at)?;
    }
    Ok(open)
}

fn speaker_name(message: &Value, at: &str) -> Checked {
    if message.get("name").is_none() {
        return Ok(());
    }
    let name = filled(message, "name", at)?;
    let refused = |c: char| c.is_whitespace() || matches!(c, '<' | '|' | '\\' | '/' | '>');
    demand(!name.contains(refused), at, r"name must match ^[^\s<|\\/>]+$")?;
    demand(name.chars().count() <= 64, at, "name: string too long")
}
