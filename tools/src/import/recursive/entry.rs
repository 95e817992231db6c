//! One line of a recursive transcript, decoded.

use serde::Deserialize;
use serde_json::value::RawValue;
use sessionlog_codec::event::{
    CallAudit, CallForm, Part, Reasoning, ReasoningForm, ResultFlag, Role, SourceIds, ToolCall, Usage,
};
use sessionlog_codec::ids::Timestamp;

use crate::import::loose::{Object, Text, count, list, object, part, time};

/// A message, or a compaction's boundary.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Entry<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) subtype: Text<'a>,
    #[serde(borrow, default)]
    uuid: Text<'a>,
    #[serde(borrow, default)]
    parent_uuid: Text<'a>,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    parent_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) role: Text<'a>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) tool_call_id: Text<'a>,
    #[serde(borrow, default)]
    reasoning_content: Text<'a>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) timestamp: Text<'a>,
    #[serde(borrow)]
    audit: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) summary_uuid: Text<'a>,
}

impl<'a> Entry<'a> {
    pub(super) fn decode(text: &'a str) -> Option<Self> {
        object(text)
    }

    pub(super) fn is_boundary(&self) -> bool {
        self.kind.as_str() == Some("system") && self.subtype.as_str() == Some("compact_boundary")
    }

    /// The source's own ids: its `id`s repeat, so the uuids go first.
    pub(super) fn source(&self) -> Option<SourceIds> {
        let id = self.uuid.owned().or(self.id.owned());
        let parent = self.parent_uuid.owned().or(self.parent_id.owned());
        (id.is_some() || parent.is_some()).then_some(SourceIds { id, parent })
    }

    pub(super) fn role(&self) -> Role {
        match self.role.as_str() {
            Some("system") => Role::System,
            Some("assistant") => Role::Assistant,
            Some("tool") => Role::Tool,
            _ => Role::User,
        }
    }

    /// What is said; null is nothing.
    pub(super) fn parts(&self) -> Vec<Part> {
        let reasoning = self.reasoning_content.owned();
        let reasoning = reasoning.map(|text| Part::Reasoning(Reasoning { text, form: ReasoningForm::Plain }));
        let content = self.content.filter(|raw| raw.get() != "null");
        let text = content.and_then(|raw| match serde_json::from_str::<String>(raw.get()) {
            Ok(text) => (!text.is_empty()).then_some(Part::Text(text)),
            Err(_) => Some(Part::Raw(raw.get().into())),
        });
        reasoning.into_iter().chain(text).collect()
    }

    pub(super) fn tool_calls(&self) -> Vec<ToolCall> {
        let calls: Vec<&RawValue> = list(self.tool_calls).unwrap_or_default();
        calls.into_iter().filter_map(Object::of).map(|call| tool_call(&call)).collect()
    }

    /// The usage as it is written. With Anthropic `cache_creation_tokens` hold the fresh input as well, with others
    /// `input_tokens` hold the cached: the file does not say which, so nothing is subtracted here.
    pub(super) fn usage(&self) -> Option<Usage> {
        let usage = Object::of(self.usage?)?;
        let tokens = |key| count(usage.get(key)).unwrap_or(0);
        Some(Usage {
            input: tokens("input_tokens"),
            cache_read: tokens("cache_read_tokens"),
            cache_write: tokens("cache_creation_tokens"),
            output: tokens("output_tokens"),
            reasoning: tokens("reasoning_tokens"),
        })
    }

    /// What the audit keeps of a call, and how the call ended. Times that are not there are the line's own.
    pub(super) fn audit(&self, own: Option<Timestamp>) -> (Option<CallAudit>, ResultFlag) {
        #[derive(Deserialize)]
        struct Audit<'a> {
            #[serde(borrow, default)]
            step_id: Text<'a>,
            #[serde(borrow, default)]
            started_at: Text<'a>,
            #[serde(borrow, default)]
            finished_at: Text<'a>,
            #[serde(borrow, default)]
            args_hash: Text<'a>,
            #[serde(borrow)]
            exit_status: Option<&'a RawValue>,
        }
        let Some(audit) = part::<Audit<'_>>(self.audit) else { return (None, ResultFlag::Normal) };
        let exit = audit.exit_status.and_then(Object::of).unwrap_or_default();
        let is_error = exit.text("type").is_some_and(|kind| kind != "ok");
        let message = exit.text("message").unwrap_or_default();
        let own = own.unwrap_or_default();
        let kept = CallAudit {
            step_id: audit.step_id.owned().unwrap_or_default(),
            started_at: time(&audit.started_at).unwrap_or(own),
            finished_at: time(&audit.finished_at).unwrap_or(own),
            arguments_hash: audit.args_hash.owned().unwrap_or_default(),
            exit_error: is_error.then_some(message),
        };
        (Some(kept), if is_error { ResultFlag::Error } else { ResultFlag::Normal })
    }
}

fn tool_call(call: &Object<'_>) -> ToolCall {
    // `{id, name, arguments}`, or the same within a `function` with the arguments as text, as OpenAI has it.
    let function = call.get("function").and_then(Object::of);
    let inner = function.as_ref().unwrap_or(call);
    let text = function.as_ref().and_then(|function| function.text("arguments"));
    let json = || inner.get("arguments").map(|raw| raw.get().to_owned());
    ToolCall {
        call_id: call.text("id").unwrap_or_default(),
        name: inner.text("name").unwrap_or_default(),
        arguments: text.or_else(json).unwrap_or_else(|| "{}".to_owned()).into(),
        form: CallForm::Function,
        extra: call.without(&["id", "name", "arguments", "function"]),
    }
}
