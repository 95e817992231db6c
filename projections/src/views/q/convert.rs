//! Messages of q's from the events of a log, and back.

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{
    ArtifactReceipt, CallForm, Media, MediaSource, MessageAppended, Part as EventPart, Role, ToolCall,
};
use sessionlog_codec::ids::MessageNo;

use super::message::{Call, Message, Part, SUMMARY_NAME};
use super::object::{Json, Object, Text};

impl Message {
    /// The message as q has it; `None` for one of which q would hold nothing: q's files have no reasoning.
    pub(super) fn of_event(said: &MessageAppended) -> Option<Self> {
        let content = parts_of(&said.parts);
        let tool_calls: Vec<Call> = said.tool_calls.iter().map(call_of).collect();
        if content.is_empty() && tool_calls.is_empty() && !said.parts.is_empty() {
            return None;
        }
        Some(Self {
            phase: said.phase.clone().unwrap_or_default(),
            content,
            name: said.name.clone().unwrap_or_default(),
            tool_call_id: said.tool_call_id.clone().unwrap_or_default(),
            tool_calls,
            ..Self::text(said.role, "")
        })
    }

    /// A result as q has it. The flag that makes it an error has no place there.
    pub(super) fn of_result(parts: &[EventPart], name: &str, call_id: &str) -> Self {
        Self {
            content: parts_of(parts),
            name: name.to_owned(),
            tool_call_id: call_id.to_owned(),
            ..Self::text(Role::Tool, "")
        }
    }

    /// A compaction's summary as q has it.
    pub(super) fn of_summary(parts: &[EventPart]) -> Self {
        Self { content: parts_of(parts), name: SUMMARY_NAME.to_owned(), ..Self::text(Role::System, "") }
    }

    /// The event of a message that is no result of a known call. What it can't tell of the message is in the message's
    /// raw record, which [`QTree`](super::QTree) looks at.
    #[must_use]
    pub fn to_event(&self, message_no: MessageNo) -> MessageAppended {
        let some = |text: &String| (!text.is_empty()).then(|| text.clone());
        let is_assistant = self.role == Role::Assistant;
        MessageAppended {
            phase: some(&self.phase),
            name: some(&self.name),
            parts: self.to_parts(),
            tool_calls: if is_assistant { self.to_calls() } else { Vec::new() },
            tool_call_id: some(&self.tool_call_id).filter(|_| self.role == Role::Tool),
            ..MessageAppended::text(message_no, self.role, "")
        }
    }

    /// What is said, as events have it.
    #[must_use]
    pub fn to_parts(&self) -> Vec<EventPart> {
        self.content.iter().map(event_part).collect()
    }

    fn to_calls(&self) -> Vec<ToolCall> {
        let call = |call: &Call| ToolCall {
            call_id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone().into(),
            form: if call.kind == "custom" { CallForm::Custom } else { CallForm::Function },
            extra: call.index.map(|index| format!("{{\"index\":{index}}}").into()),
        };
        self.tool_calls.iter().map(call).collect()
    }
}

fn parts_of(parts: &[EventPart]) -> Vec<Part> {
    parts.iter().filter_map(part_of).collect()
}

fn part_of(part: &EventPart) -> Option<Part> {
    match part {
        EventPart::Text(text) => Some(Part::text(text)),
        EventPart::Reasoning(_) => None,
        EventPart::Image(media) => Some(image_of(media)),
        EventPart::File(media) => Some(file_of(media)),
        EventPart::Raw(bytes) => Some(match Json::of(bytes) {
            Some(raw) => Part::block(raw),
            None => Part::text(&bytes.to_text()),
        }),
    }
}

fn image_of(media: &Media) -> Part {
    let detail = media.detail.clone().unwrap_or_default();
    let part = match &media.source {
        MediaSource::Url(url) => Part::image(url.clone(), detail),
        MediaSource::Base64(data) => Part::image(data_url(media, data), detail),
        MediaSource::FileId(id) => Part { file_id: id.clone(), ..Part::image(String::new(), detail) },
        MediaSource::Artifact(receipt) => return receipt_of(receipt),
    };
    Part { extra: media.extra.as_ref().and_then(Json::of), ..part }
}

fn data_url(media: &Media, data: &str) -> String {
    let media_type = media.media_type.as_deref().unwrap_or("application/octet-stream");
    format!("data:{media_type};base64,{data}")
}

/// The beginning of what is in the artifact store: q can't reach it there.
fn receipt_of(receipt: &ArtifactReceipt) -> Part {
    Part::text(&receipt.preview)
}

/// q has no part for a file, so it is the block that Chat has for one.
fn file_of(media: &Media) -> Part {
    let name = media.name.as_deref().unwrap_or_default();
    let file = match &media.source {
        MediaSource::FileId(id) => Text::new().put("file_id", id),
        MediaSource::Url(url) => Text::new().filled("filename", name).put("file_data", url),
        MediaSource::Base64(data) => {
            Text::new().filled("filename", name).put("file_data", &data_url(media, data))
        }
        MediaSource::Artifact(receipt) => return receipt_of(receipt),
    };
    let block = Text::new().put("type", "file").written("file", &file.end()).end();
    match Json::of(&RawBytes::from(block.as_str())) {
        Some(raw) => Part::block(raw),
        None => Part::text(&block),
    }
}

fn call_of(call: &ToolCall) -> Call {
    let extra = call.extra.as_ref().and_then(Json::of).and_then(|extra| extra.object());
    let index = extra.as_ref().and_then(|extra| extra.get("index")?.get().parse().ok());
    Call {
        index,
        id: call.call_id.clone(),
        kind: match call.form {
            CallForm::Function => "function".to_owned(),
            CallForm::Custom => "custom".to_owned(),
        },
        name: call.name.clone(),
        arguments: call.arguments.to_text().into_owned(),
        // A strict reader refuses keys that q does not have, so further keys of other providers stay here.
        unknown: Object::default(),
    }
}

fn event_part(part: &Part) -> EventPart {
    let whole = || EventPart::Raw(part.to_json().into());
    match part.kind.as_str() {
        "text" => EventPart::text(part.text.as_str()),
        "image" => match (part.url.is_empty(), part.file_id.is_empty()) {
            (false, true) => image(MediaSource::Url(part.url.clone()), part),
            (true, false) => image(MediaSource::FileId(part.file_id.clone()), part),
            _ => whole(),
        },
        "raw" => part.raw.as_ref().map_or_else(whole, |raw| EventPart::Raw(raw.get().into())),
        _ => whole(),
    }
}

fn image(source: MediaSource, part: &Part) -> EventPart {
    EventPart::Image(Media {
        source,
        media_type: None,
        name: None,
        detail: (!part.detail.is_empty()).then(|| part.detail.clone()),
        extra: part.extra.as_ref().map(|extra| extra.get().into()),
    })
}
