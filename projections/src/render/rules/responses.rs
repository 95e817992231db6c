use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    Checked, RuleBroken, broken, clean_name, data_url, demand, detail, filled, image_url, items, text,
    web_url,
};

/// Checks the body of a Responses request.
///
/// From OpenAI's API reference, "Create a model response":
/// - `input` is a list of at least one item, each with a `type`.
/// - What `system`, `developer` and `user` say is `input_text`, `input_image` or `input_file`; what `assistant` says is
///   `output_text` or `refusal` ("Supported values are: 'output_text' and 'refusal'"). Only the assistant has a `phase`.
/// - `function_call {call_id, name, arguments}` and `custom_tool_call {call_id, name, input}` hold strings. Their outputs
///   are a string or a list of input parts.
/// - A `reasoning` item has a `summary`.
///
/// From what it refuses:
/// - "No tool output found for function call call_...", "No tool call found for function call output with call_id ...":
///   each call has one output of its own kind behind it, and no output is without call. Stricter here: before anything
///   else is said.
/// - "Duplicate item found with id ...": an item `id` occurs once. A `call_id` is not longer than 64.
/// - "Item 'rs_...' of type 'reasoning' was provided without its required following item": a reasoning item is directly
///   followed by something else that the model made.
///
/// # Errors
/// The first rule that is broken.
pub fn validate_responses(body: &Value) -> Result<(), RuleBroken> {
    let mut ids = BTreeSet::new();
    let mut used = BTreeSet::new();
    let mut open: BTreeMap<&str, &str> = BTreeMap::new();
    let mut thought: Option<String> = None;
    for (at, item) in items(body, "input", "")? {
        let kind = text(item, "type", &at)?;
        if let Some(id) = item.get("id").and_then(Value::as_str) {
            demand(ids.insert(id), &at, "item id was used before")?;
        }
        let own = is_the_models(kind, item);
        if let Some(thought) = thought.take() {
            let followed = own && kind != "reasoning";
            demand(followed, &thought, "reasoning must be directly followed by what it led to")?;
        }
        if !own && kind == "message" {
            demand(open.is_empty(), &at, "calls before must be answered first")?;
        }
        match kind {
            "message" => message(item, &at)?,
            "reasoning" => {
                demand(item.get("summary").is_some_and(Value::is_array), &at, "must have a summary")?;
                thought = Some(at.clone());
            }
            "function_call" => call(item, "arguments", &at)?,
            "custom_tool_call" => call(item, "input", &at)?,
            "function_call_output" | "custom_tool_call_output" => output(item, &at)?,
            _ => {}
        }
        match (kind, item.get("call_id").and_then(Value::as_str)) {
            (_, None) => {}
            (kind, Some(id)) if kind.ends_with("_output") => {
                let asked = open.remove(id).map(|kind| format!("{kind}_output"));
                demand(asked.as_deref() == Some(kind), &at, "must answer a call of its kind, once")?;
            }
            (kind, Some(id)) => {
                demand(used.insert(id), &at, "call_id was used before")?;
                open.insert(id, kind);
            }
        }
    }
    if let Some(thought) = thought {
        return broken(&thought, "reasoning must be directly followed by what it led to");
    }
    demand(open.is_empty(), "input", "all calls must be answered")
}

fn is_the_models(kind: &str, item: &Value) -> bool {
    match kind {
        "message" => item.get("role").and_then(Value::as_str) == Some("assistant"),
        "function_call_output" | "custom_tool_call_output" => false,
        _ => true,
    }
}

fn message(item: &Value, at: &str) -> Checked {
    let role = text(item, "role", at)?;
    let own = match role {
        "assistant" => true,
        "system" | "developer" | "user" => false,
        _ => return broken(at, "role is unknown"),
    };
    if item.get("phase").is_some_and(|it| !it.is_null()) {
        let phase = text(item, "phase", at)?;
        let known = own && ["commentary", "final_answer"].contains(&phase);
        demand(known, at, "phase must be commentary or final_answer, of the assistant's")?;
    }
    for (at, part) in items(item, "content", at)? {
        match (text(part, "type", &at)?, own) {
            ("output_text", true) => drop(text(part, "text", &at)?),
            ("refusal", true) => drop(text(part, "refusal", &at)?),
            (_, true) => return broken(&at, "supported values are: output_text and refusal"),
            ("input_text", false) => drop(filled(part, "text", &at)?),
            (_, false) if role != "user" => return broken(&at, "must be input_text"),
            (_, false) => input_part(part, &at)?,
        }
    }
    Ok(())
}

fn input_part(part: &Value, at: &str) -> Checked {
    match text(part, "type", at)? {
        "input_text" => filled(part, "text", at).map(drop),
        "input_image" => {
            detail(part, at)?;
            match (part.get("image_url"), part.get("file_id")) {
                (Some(Value::String(url)), None) => image_url(url, at),
                (None, Some(_)) => filled(part, "file_id", at).map(drop),
                _ => broken(at, "must have image_url or file_id"),
            }
        }
        "input_file" => match (part.get("file_data"), part.get("file_url"), part.get("file_id")) {
            (Some(Value::String(data)), None, None) => {
                filled(part, "filename", at)?;
                data_url(data, &[], at)
            }
            (None, Some(Value::String(url)), None) => web_url(url, at),
            (None, None, Some(_)) => filled(part, "file_id", at).map(drop),
            _ => broken(at, "must have one of file_data, file_url and file_id"),
        },
        _ => broken(at, "must be input_text, input_image or input_file"),
    }
}

fn call(item: &Value, input: &str, at: &str) -> Checked {
    clean_name(item, "name", 64, at)?;
    text(item, input, at)?;
    let id = filled(item, "call_id", at)?;
    demand(id.len() <= 64, at, "call_id: string too long")
}

fn output(item: &Value, at: &str) -> Checked {
    filled(item, "call_id", at)?;
    if item.get("output").is_some_and(Value::is_string) {
        return Ok(());
    }
    for (at, part) in items(item, "output", at)? {
        input_part(part, &at)?;
    }
    Ok(())
}
