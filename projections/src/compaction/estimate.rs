//! How many tokens a context has, guessed from the length of its JSON.

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{Media, MediaSource, Part, ReasoningForm, Role, ToolCall};

use crate::context::ContextMessage;
use crate::words::role_word;

/// Bytes of JSON per token, as q guesses.
const BYTES_PER_TOKEN: u64 = 3;
/// Tokens that a provider adds for each message, as q guesses.
const TOKENS_PER_MESSAGE: u64 = 4;
/// The least safety margin, in tokens.
const LEAST_MARGIN: u64 = 8;

/// The tokens of `context` by themselves: `ceil(bytes / 3) + 4 n` for the bytes of its `n` messages as one JSON array
/// in the form of Chat Completions. The array is counted, not built. What is not in the context (tool definitions, the
/// provider's own wrapping) is the [calibration](super::Calibration)'s part.
#[must_use]
pub fn estimate_tokens(context: &[ContextMessage]) -> u64 {
    Size::of(context).tokens()
}

/// The predicted size of a prompt, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predicted {
    /// What the messages are estimated at: [`estimate_tokens`]. A host that reports usage writes this number, and not
    /// the total, as `usage.recorded.estimated_input`.
    pub local: u64,
    /// What the provider's counts were above the estimate: tool definitions, and how wrong the estimate is.
    pub overhead: u64,
    /// Both, and a safety margin of a tenth of `local`, at least 8.
    pub total: u64,
}

impl Predicted {
    pub(super) fn of(local: u64, overhead: u64) -> Self {
        let margin = LEAST_MARGIN.max(local / 10);
        Self { local, overhead, total: local.saturating_add(overhead).saturating_add(margin) }
    }

    /// The most tokens of messages that predict a total of no more than `total`.
    pub(super) fn most_local(total: u64, overhead: u64) -> u64 {
        let room = total.saturating_sub(overhead);
        let tenths = u128::from(room).saturating_mul(10) / 11;
        u64::try_from(tenths).unwrap_or(u64::MAX).min(room.saturating_sub(LEAST_MARGIN))
    }
}

/// The size of any choice of messages: sizes add up exactly, rounded-up tokens would not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Bytes of the messages as JSON, each with the comma behind it.
    bytes: u64,
    messages: u64,
}

impl Size {
    pub(super) fn of(messages: &[ContextMessage]) -> Self {
        messages.iter().fold(Self::default(), |size, message| {
            let mut counted = Counted::default();
            write_message(&mut counted, message);
            size.plus(Self::of_one(counted))
        })
    }

    /// The size of a message that is one text.
    pub(super) fn of_text(role: Role, text: &str) -> Self {
        let mut counted = Counted::default();
        write_head(&mut counted, role, None);
        string(&mut counted, text);
        counted.put("}");
        Self::of_one(counted)
    }

    fn of_one(counted: Counted) -> Self {
        Self { bytes: counted.0.saturating_add(1), messages: 1 }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            messages: self.messages.saturating_add(other.messages),
        }
    }

    pub(super) fn tokens(self) -> u64 {
        // Two brackets, and no comma behind the last message.
        let json = self.bytes.saturating_add(1).max(2);
        json.div_ceil(BYTES_PER_TOKEN).saturating_add(self.messages.saturating_mul(TOKENS_PER_MESSAGE))
    }
}

/// Where JSON goes.
trait Sink {
    fn put(&mut self, json: &str);
}

/// Only its length.
#[derive(Default)]
struct Counted(u64);

impl Sink for Counted {
    fn put(&mut self, json: &str) {
        self.0 = self.0.saturating_add(u64::try_from(json.len()).unwrap_or(u64::MAX));
    }
}

fn write_head(out: &mut impl Sink, role: Role, name: Option<&str>) {
    out.put("{\"role\":\"");
    out.put(role_word(role));
    out.put("\"");
    member(out, "name", name);
    out.put(",\"content\":");
}

fn write_message(out: &mut impl Sink, message: &ContextMessage) {
    write_head(out, message.role, message.name.as_deref());
    match message.parts.as_slice() {
        [] => out.put("null"),
        [Part::Text(text)] => string(out, text),
        parts => list(out, parts, write_part),
    }
    if !message.tool_calls.is_empty() {
        out.put(",\"tool_calls\":");
        list(out, &message.tool_calls, write_call);
    }
    member(out, "tool_call_id", message.tool_call_id.as_deref());
    out.put("}");
}

fn write_call(out: &mut impl Sink, call: &ToolCall) {
    out.put("{\"id\":");
    string(out, &call.call_id);
    out.put(",\"type\":\"function\",\"function\":{\"name\":");
    string(out, &call.name);
    out.put(",\"arguments\":");
    string(out, &call.arguments.to_text());
    out.put("}");
    member(out, "extra", call.extra.as_ref().map(|extra| extra.to_text()).as_deref());
    out.put("}");
}

fn write_part(out: &mut impl Sink, part: &Part) {
    match part {
        Part::Text(text) => {
            out.put("{\"type\":\"text\"");
            member(out, "text", Some(text));
        }
        Part::Reasoning(reasoning) => {
            out.put("{\"type\":\"reasoning\"");
            member(out, "text", Some(&reasoning.text));
            match &reasoning.form {
                ReasoningForm::Plain | ReasoningForm::Summary | ReasoningForm::Signed(None) => {}
                ReasoningForm::Signed(Some(data)) | ReasoningForm::Opaque(data) => {
                    member(out, "data", Some(data));
                }
            }
        }
        Part::Image(media) => write_media(out, "image", media),
        Part::File(media) => write_media(out, "file", media),
        // A block as it was received: whether it is JSON does not change its length.
        Part::Raw(block) => return out.put(&block.to_text()),
    }
    out.put("}");
}

/// Base64 counts by its length, as in q; a reference counts as a reference, since only the host knows what it sends.
fn write_media(out: &mut impl Sink, kind: &str, media: &Media) {
    out.put("{\"type\":\"");
    out.put(kind);
    out.put("\"");
    member(out, "media_type", media.media_type.as_deref());
    member(out, "name", media.name.as_deref());
    member(out, "detail", media.detail.as_deref());
    match &media.source {
        MediaSource::Base64(data) => member(out, "data", Some(data)),
        MediaSource::Url(url) => member(out, "url", Some(url)),
        MediaSource::FileId(id) => member(out, "file_id", Some(id)),
        MediaSource::Artifact(receipt) => {
            member(out, "artifact", Some(&receipt.digest.to_string()));
            member(out, "preview", Some(&receipt.preview));
        }
    }
    member(out, "extra", media.extra.as_ref().map(|extra| extra.to_text()).as_deref());
}

fn list<S: Sink, T>(out: &mut S, items: &[T], write: impl Fn(&mut S, &T)) {
    out.put("[");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.put(",");
        }
        write(out, item);
    }
    out.put("]");
}

fn member(out: &mut impl Sink, key: &str, value: Option<&str>) {
    let Some(value) = value else { return };
    out.put(",\"");
    out.put(key);
    out.put("\":");
    string(out, value);
}

fn string(out: &mut impl Sink, text: &str) {
    out.put("\"");
    for piece in text.split_inclusive(is_escaped) {
        let plain = piece.trim_end_matches(is_escaped);
        out.put(plain);
        // At most one character is left: the one that ended the piece.
        match piece.get(plain.len()..).and_then(|rest| rest.chars().next()) {
            None => {}
            Some('"') => out.put("\\\""),
            Some('\\') => out.put("\\\\"),
            Some('\n') => out.put("\\n"),
            Some('\r') => out.put("\\r"),
            Some('\t') => out.put("\\t"),
            Some('\u{8}') => out.put("\\b"),
            Some('\u{c}') => out.put("\\f"),
            Some(control) => out.put(&format!("\\u{:04x}", u32::from(control))),
        }
    }
    out.put("\"");
}

fn is_escaped(c: char) -> bool {
    matches!(c, '"' | '\\' | '\0'..='\u{1f}')
}

#[cfg(test)]
mod tests {
    use sessionlog_codec::event::{ArtifactReceipt, CallForm, Reasoning, ResultFlag};
    use sessionlog_codec::ids::{Digest, Position};

    use super::*;
    use crate::context::ContextOrigin;

    impl Sink for String {
        fn put(&mut self, json: &str) {
            self.push_str(json);
        }
    }

    fn message(role: Role, parts: Vec<Part>) -> ContextMessage {
        ContextMessage {
            role,
            parts,
            tool_calls: Vec::new(),
            tool_call_id: None,
            flag: ResultFlag::Normal,
            message_no: None,
            call: None,
            position: Position(1),
            origin: ContextOrigin::Recorded,
            model: None,
            name: None,
            phase: None,
        }
    }

    fn media(source: MediaSource) -> Media {
        Media {
            source,
            media_type: Some("image/png".into()),
            name: None,
            detail: None,
            extra: Some("{}".into()),
        }
    }

    fn all_kinds() -> Vec<ContextMessage> {
        let reasoning = |form| Part::Reasoning(Reasoning { text: "h\u{1}m\u{2028}".into(), form });
        let receipt =
            ArtifactReceipt { digest: Digest::default(), len: 9, media_type: None, preview: "p".into() };
        let mut asks = message(Role::Assistant, vec![]);
        asks.tool_calls.push(ToolCall {
            call_id: "a".into(),
            name: "Read".into(),
            arguments: r#"{"path":"C:\\x"}"#.into(),
            form: CallForm::Function,
            extra: Some("{\"index\":0}".into()),
        });
        let mut answer = message(Role::Tool, vec![Part::text("ok")]);
        answer.tool_call_id = Some("a".into());
        let mut named = message(Role::User, vec![Part::text("\"\\\n\r\t\u{8}\u{c}\u{0}\u{1f}\u{7f}é😀")]);
        named.name = Some("Ann".into());
        vec![
            named,
            message(Role::System, vec![Part::text("")]),
            message(Role::Developer, vec![Part::text("a"), Part::Raw("{\"x\":[1]}".into())]),
            asks,
            answer,
            message(
                Role::Assistant,
                vec![
                    reasoning(ReasoningForm::Plain),
                    reasoning(ReasoningForm::Signed(Some("s".into()))),
                    reasoning(ReasoningForm::Opaque("o".into())),
                    Part::Image(media(MediaSource::Base64("QUJD".into()))),
                    Part::Image(media(MediaSource::Url("https://x".into()))),
                    Part::File(media(MediaSource::FileId("f".into()))),
                    Part::File(media(MediaSource::Artifact(receipt))),
                ],
            ),
        ]
    }

    #[test]
    fn what_is_counted_is_json_and_its_length() {
        let messages = all_kinds();
        let mut json = String::from("[");
        for (index, message) in messages.iter().enumerate() {
            json.push_str(if index == 0 { "" } else { "," });
            write_message(&mut json, message);
        }
        json.push(']');
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        // serde_json writes strings with the same escapes, so the length is that of any compact JSON of it.
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
        assert_eq!(value[0]["content"], "\"\\\n\r\t\u{8}\u{c}\u{0}\u{1f}\u{7f}é😀");
        assert_eq!(value[3]["tool_calls"][0]["function"]["arguments"], r#"{"path":"C:\\x"}"#);
        let expected = (json.len() as u64).div_ceil(3) + 4 * messages.len() as u64;
        assert_eq!(estimate_tokens(&messages), expected);
    }

    #[test]
    fn the_estimate_is_a_third_of_the_bytes_and_four_a_message() {
        // `[{"role":"user","content":""}]` has 30 bytes.
        for (text, messages, tokens) in [("", 1, 14), ("a", 1, 15), ("aaa", 1, 15), ("aaaa", 1, 16)] {
            let context = vec![message(Role::User, vec![Part::text(text)]); messages];
            assert_eq!(estimate_tokens(&context), tokens, "{text:?}");
        }
        // With a comma and another of 28: 59 bytes.
        assert_eq!(estimate_tokens(&vec![message(Role::User, vec![Part::text("")]); 2]), 20 + 8);
        assert_eq!(estimate_tokens(&[]), 1);
        assert_eq!(
            Size::of_text(Role::User, "x\n"),
            Size::of(&[message(Role::User, vec![Part::text("x\n")])])
        );
    }

    #[test]
    fn the_margin_is_a_tenth_and_at_least_eight() {
        for (local, overhead, total) in
            [(0, 0, 8), (80, 5, 93), (89, 0, 97), (90, 0, 99), (1_000, 300, 1_400), (u64::MAX, 1, u64::MAX)]
        {
            assert_eq!(Predicted::of(local, overhead).total, total);
        }
        for overhead in [0, 7] {
            for total in 0..2_000 {
                let most = Predicted::most_local(total, overhead);
                assert!(most == 0 || Predicted::of(most, overhead).total <= total);
                // One or two tokens are lost to rounding.
                assert!(Predicted::of(most + 2, overhead).total > total);
            }
        }
    }
}
