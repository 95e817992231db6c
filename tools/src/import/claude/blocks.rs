//! Content of Claude messages: text, or a list of blocks.

use serde_json::value::RawValue;
use sessionlog_codec::event::{
    CallForm, Media, MediaSource, Part, Reasoning, ReasoningForm, ResultFlag, ToolCall,
};

use crate::import::conversation::ToolResult;
use crate::import::loose::{Object, list};

/// What a message holds.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) parts: Vec<Part>,
    pub(super) tool_calls: Vec<ToolCall>,
    pub(super) results: Vec<ToolResult>,
}

/// Where a block is. Results do not nest: calls and results within one are kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Message,
    Result,
}

impl Content {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.tool_calls.is_empty() && self.results.is_empty()
    }

    /// The first text.
    pub(super) fn text(&self) -> Option<&str> {
        first_text(&self.parts)
    }

    /// Reads the content of a message; `None` if it is neither text nor a list.
    pub(super) fn read(raw: Option<&RawValue>) -> Option<Self> {
        Self::read_within(Within::Message, raw)
    }

    fn read_within(within: Within, raw: Option<&RawValue>) -> Option<Self> {
        let json = raw?.get();
        let mut content = Self::default();
        if json.starts_with('"') {
            let text: String = serde_json::from_str(json).ok()?;
            if !text.is_empty() {
                content.parts.push(Part::Text(text));
            }
            return Some(content);
        }
        if !json.starts_with('[') {
            return None;
        }
        match list::<&RawValue>(raw) {
            Some(blocks) => blocks.into_iter().for_each(|block| content.add(within, block)),
            None => content.parts.extend(raw.map(as_received)),
        }
        Some(content)
    }

    fn add(&mut self, within: Within, raw: &RawValue) {
        let Some(block) = Object::of(raw) else {
            // Some writers put bare strings among the blocks.
            let text = raw.get().starts_with('"').then(|| serde_json::from_str(raw.get()).ok()).flatten();
            self.parts.push(text.map_or_else(|| as_received(raw), Part::Text));
            return;
        };
        match block.text("type").as_deref() {
            Some("tool_use") if within == Within::Message => self.tool_calls.push(tool_call(&block)),
            Some("tool_result") if within == Within::Message => self.results.push(tool_result(&block)),
            kind => {
                let part = kind.and_then(|kind| known_part(kind, &block));
                self.parts.push(part.unwrap_or_else(|| as_received(raw)));
            }
        }
    }
}

/// The first text of some parts.
pub(super) fn first_text(parts: &[Part]) -> Option<&str> {
    parts.iter().find_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    })
}

fn as_received(raw: &RawValue) -> Part {
    Part::Raw(raw.get().into())
}

fn known_part(kind: &str, block: &Object<'_>) -> Option<Part> {
    match kind {
        "text" => block.text("text").map(Part::Text),
        "thinking" => {
            let signature = block.text("signature").filter(|signature| !signature.is_empty());
            let text = block.text("thinking").unwrap_or_default();
            Some(Part::Reasoning(Reasoning { text, form: ReasoningForm::Signed(signature) }))
        }
        "redacted_thinking" => {
            let form = ReasoningForm::Opaque(block.text("data")?);
            Some(Part::Reasoning(Reasoning { text: String::new(), form }))
        }
        "image" => media(block).map(Part::Image),
        "document" => media(block).map(Part::File),
        _ => None,
    }
}

fn media(block: &Object<'_>) -> Option<Media> {
    let origin = Object::of(block.get("source")?)?;
    let source = match origin.text("type")?.as_str() {
        "base64" => MediaSource::Base64(origin.text("data")?),
        "url" => MediaSource::Url(origin.text("url")?),
        "file" => MediaSource::FileId(origin.text("file_id")?),
        _ => return None,
    };
    Some(Media {
        source,
        media_type: origin.text("media_type"),
        name: block.text("title"),
        detail: None,
        extra: block.without(&["type", "source", "title"]),
    })
}

fn tool_call(block: &Object<'_>) -> ToolCall {
    ToolCall {
        call_id: block.text("id").unwrap_or_default(),
        name: block.text("name").unwrap_or_default(),
        // Providers demand an object, also of a tool that takes nothing.
        arguments: block.get("input").map_or("{}", RawValue::get).into(),
        form: CallForm::Function,
        extra: block.without(&["type", "id", "name", "input"]),
    }
}

fn tool_result(block: &Object<'_>) -> ToolResult {
    let raw = block.get("content");
    let parts = match Content::read_within(Within::Result, raw) {
        Some(content) => content.parts,
        None => raw.map(as_received).into_iter().collect(),
    };
    ToolResult {
        call_id: block.text("tool_use_id").unwrap_or_default(),
        flag: if block.flag("is_error").is_set() { ResultFlag::Error } else { ResultFlag::Normal },
        parts,
        audit: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Content {
        Content::read(Some(serde_json::from_str(json).unwrap())).unwrap()
    }

    fn reasoning(text: &str, form: ReasoningForm) -> Part {
        Part::Reasoning(Reasoning { text: text.to_owned(), form })
    }

    #[test]
    fn thinking_keeps_its_signature_or_its_absence() {
        // T12
        let content = read(
            r#"[{"type":"thinking","thinking":"abc","signature":"sig"},{"type":"thinking","thinking":"abc"},
                {"type":"thinking","thinking":"","signature":""},{"type":"redacted_thinking","data":"xyz"}]"#,
        );
        assert_eq!(
            content.parts,
            [
                reasoning("abc", ReasoningForm::Signed(Some("sig".to_owned()))),
                reasoning("abc", ReasoningForm::Signed(None)),
                reasoning("", ReasoningForm::Signed(None)),
                reasoning("", ReasoningForm::Opaque("xyz".to_owned())),
            ]
        );
    }

    #[test]
    fn a_call_keeps_its_arguments_byte_for_byte() {
        let content = read(
            r#"[{"type":"tool_use","id":"t","name":"Bash","input":{"z": 1.0, "a":[null]},"caller":{"type":"direct"}},
                {"type":"tool_use","name":"Now"}]"#,
        );
        assert_eq!(content.tool_calls[0].arguments, r#"{"z": 1.0, "a":[null]}"#.into());
        assert_eq!(content.tool_calls[0].extra, Some(r#"{"caller":{"type":"direct"}}"#.into()));
        assert_eq!(content.tool_calls[1].arguments, "{}".into());
        assert_eq!(content.tool_calls[1].call_id, "");
    }

    #[test]
    fn unknown_and_broken_blocks_stay_as_they_are() {
        let server = r#"{"type":"server_tool_use","id":"s","input":{}}"#;
        let content =
            read(&format!(r#"[{server},"bare",7,{{"type":"text"}},{{"type":"image","source":1}}]"#));
        assert_eq!(
            content.parts,
            [
                Part::Raw(server.into()),
                Part::text("bare"),
                Part::Raw("7".into()),
                Part::Raw(r#"{"type":"text"}"#.into()),
                Part::Raw(r#"{"type":"image","source":1}"#.into()),
            ]
        );
        assert!(Content::read(Some(serde_json::from_str("{}").unwrap())).is_none());
        assert!(Content::read(None).is_none());
    }

    #[test]
    fn results_hold_text_or_blocks() {
        let image = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}"#;
        let content = read(&format!(
            r#"[{{"type":"tool_result","tool_use_id":"a","content":"out"}},
                {{"type":"tool_result","tool_use_id":"b","is_error":true,"content":[{{"type":"text","text":"x"}},{image}]}},
                {{"type":"tool_result","tool_use_id":"c"}},
                {{"type":"tool_result","tool_use_id":"d","content":{{"odd":1}}}}]"#
        ));
        let [text, blocks, none, odd] = content.results.as_slice() else { panic!("{content:?}") };
        assert_eq!((text.parts.as_slice(), text.flag), ([Part::text("out")].as_slice(), ResultFlag::Normal));
        assert_eq!(blocks.flag, ResultFlag::Error);
        assert!(
            matches!(&blocks.parts[1], Part::Image(Media { source: MediaSource::Base64(data), .. }) if data == "aGk=")
        );
        assert!(none.parts.is_empty());
        assert_eq!(odd.parts, [Part::Raw(r#"{"odd":1}"#.into())]);
    }
}
