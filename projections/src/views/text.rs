//! Content as text.

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{Media, MediaSource, Part};

/// What is said, as text: texts as they are, everything else but reasoning as a short marker, joined by line ends.
pub(super) fn content(parts: &[Part]) -> String {
    let texts: Vec<String> = parts.iter().filter_map(part_text).collect();
    texts.join("\n")
}

/// The reasoning, as text; `None` if there is none to read.
pub(super) fn reasoning(parts: &[Part]) -> Option<String> {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Reasoning(reasoning) if !reasoning.text.is_empty() => Some(reasoning.text.as_str()),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    (!text.is_empty()).then_some(text)
}

fn part_text(part: &Part) -> Option<String> {
    match part {
        Part::Text(text) => Some(text.clone()),
        Part::Reasoning(_) => None,
        Part::Image(media) => Some(media_marker("image", media)),
        Part::File(media) => Some(media_marker("file", media)),
        Part::Raw(block) => Some(raw_marker(block)),
    }
}

fn media_marker(what: &str, media: &Media) -> String {
    let mut marker = format!("[{what}");
    for word in [media.name.as_deref(), media.media_type.as_deref(), address(media)].into_iter().flatten() {
        marker.push(' ');
        marker.push_str(word);
    }
    marker.push(']');
    marker
}

/// Where the bytes are, if that is short enough to be read.
fn address(media: &Media) -> Option<&str> {
    match &media.source {
        MediaSource::Url(url) if !url.starts_with("data:") => Some(url),
        MediaSource::FileId(id) => Some(id),
        MediaSource::Url(_) | MediaSource::Base64(_) | MediaSource::Artifact(_) => None,
    }
}

fn raw_marker(block: &RawBytes) -> String {
    let value: Option<serde_json::Value> = serde_json::from_slice(&block.0).ok();
    match value.as_ref().and_then(|value| value.get("type")).and_then(|kind| kind.as_str()) {
        Some(kind) => format!("[{kind}]"),
        None => "[raw block]".to_owned(),
    }
}
