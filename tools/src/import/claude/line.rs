//! One line of a Claude Code file, decoded as far as it is needed.

use serde::Deserialize;
use serde_json::value::RawValue;
use sessionlog_codec::event::{SourceIds, Usage};

use crate::import::loose::{Flag, Text, count, object, part};

/// A line. What may be big is left unread.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) subtype: Text<'a>,
    #[serde(borrow, default)]
    pub(super) uuid: Text<'a>,
    #[serde(borrow, default)]
    pub(super) parent_uuid: Text<'a>,
    #[serde(borrow, default)]
    pub(super) timestamp: Text<'a>,
    #[serde(borrow, default)]
    pub(super) agent_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) request_id: Text<'a>,
    #[serde(default)]
    pub(super) is_sidechain: Flag,
    #[serde(default)]
    pub(super) is_meta: Flag,
    #[serde(default)]
    pub(super) is_compact_summary: Flag,
    #[serde(default)]
    pub(super) is_api_error_message: Flag,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_use_result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) compact_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) microcompact_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) data: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "parentToolUseID")]
    pub(super) parent_tool_use_id: Text<'a>,
    #[serde(borrow)]
    pub(super) attachment: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) summary: Text<'a>,
    #[serde(borrow, default)]
    pub(super) leaf_uuid: Text<'a>,
    #[serde(borrow, default)]
    pub(super) ai_title: Text<'a>,
    #[serde(borrow, default)]
    pub(super) custom_title: Text<'a>,
    #[serde(borrow, default)]
    pub(super) agent_name: Text<'a>,
    #[serde(borrow, default)]
    pub(super) cwd: Text<'a>,
}

/// The `message` of a line.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) model: Text<'a>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

impl<'a> Line<'a> {
    /// Decodes a line; `None` if it is not one JSON object.
    pub(super) fn decode(text: &'a str) -> Option<Self> {
        object(text)
    }

    /// The `message`, if it is an object.
    pub(super) fn message(&self) -> Option<Message<'a>> {
        part(self.message)
    }

    /// The source's own ids of the line.
    pub(super) fn source(&self) -> SourceIds {
        SourceIds { id: self.uuid.owned(), parent: self.parent_uuid.owned() }
    }

    /// What the line is, in the source's own words.
    pub(super) fn kind(&self) -> String {
        let kind = self.kind.filled().unwrap_or("unknown");
        let detail = match kind {
            "system" => self.subtype.owned(),
            "progress" => type_of(self.data),
            "attachment" => type_of(self.attachment),
            _ => None,
        };
        detail.map_or_else(|| kind.to_owned(), |detail| format!("{kind}/{detail}"))
    }
}

/// The `type` of an object.
fn type_of(raw: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(borrow, default, rename = "type")]
        kind: Text<'a>,
    }
    part::<Typed<'_>>(raw)?.kind.owned()
}

/// Usage in classes that do not overlap. Anthropic's `input_tokens` are the uncached ones already.
pub(super) fn usage(raw: Option<&RawValue>) -> Option<Usage> {
    #[derive(Deserialize)]
    struct Tokens<'a> {
        #[serde(borrow)]
        input_tokens: Option<&'a RawValue>,
        #[serde(borrow)]
        cache_read_input_tokens: Option<&'a RawValue>,
        #[serde(borrow)]
        cache_creation_input_tokens: Option<&'a RawValue>,
        #[serde(borrow)]
        output_tokens: Option<&'a RawValue>,
        #[serde(borrow)]
        output_tokens_details: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Details<'a> {
        #[serde(borrow)]
        thinking_tokens: Option<&'a RawValue>,
    }
    let tokens: Tokens<'_> = part(raw)?;
    let thinking = part::<Details<'_>>(tokens.output_tokens_details).and_then(|it| count(it.thinking_tokens));
    Some(Usage {
        input: count(tokens.input_tokens).unwrap_or(0),
        cache_read: count(tokens.cache_read_input_tokens).unwrap_or(0),
        cache_write: count(tokens.cache_creation_input_tokens).unwrap_or(0),
        output: count(tokens.output_tokens).unwrap_or(0),
        reasoning: thinking.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_normalised() {
        let raw = |json: &str| serde_json::from_str::<Box<RawValue>>(json).unwrap();
        let full = raw(
            r#"{"input_tokens":4,"cache_creation_input_tokens":3,"cache_read_input_tokens":2,"output_tokens":9,
               "service_tier":"standard","output_tokens_details":{"thinking_tokens":5}}"#,
        );
        let expected = Usage { input: 4, cache_read: 2, cache_write: 3, output: 9, reasoning: 5 };
        assert_eq!(usage(Some(&full)), Some(expected));
        let odd = raw(
            r#"{"input_tokens":-4,"output_tokens":9.7,"cache_read_input_tokens":null,"output_tokens_details":7}"#,
        );
        assert_eq!(usage(Some(&odd)), Some(Usage { output: 9, ..Usage::default() }));
        assert_eq!(usage(Some(&raw("7"))), None);
        assert_eq!(usage(None), None);
    }

    #[test]
    fn a_kind_is_the_sources_own_word() {
        for (json, kind) in [
            (r#"{"type":"user"}"#, "user"),
            (r#"{"type":"system","subtype":"turn_duration"}"#, "system/turn_duration"),
            (r#"{"type":"progress","data":{"type":"bash_progress","x":[1]}}"#, "progress/bash_progress"),
            (r#"{"type":"attachment","attachment":7}"#, "attachment"),
            (r#"{"silly":"this"}"#, "unknown"),
        ] {
            assert_eq!(Line::decode(json).unwrap().kind(), kind);
        }
    }
}
