//! Images and files, as far as a provider can be sent them.

use std::fmt;

use serde::{Serialize, Serializer};
use sessionlog_codec::event::{ArtifactReceipt, Media, MediaSource};

/// An image or a file that can be sent.
#[derive(Clone, Copy)]
pub(super) struct Medium<'a> {
    pub(super) place: Place<'a>,
    pub(super) detail: Option<&'a str>,
    pub(super) name: Option<&'a str>,
}

/// Where its bytes are.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Inline(Inline<'a>),
    /// `http` or `https`.
    Url(&'a str),
    /// At Anthropic.
    AnthropicFile(&'a str),
    /// At OpenAI.
    OpenAiFile(&'a str),
}

#[derive(Clone, Copy)]
pub(super) struct Inline<'a> {
    pub(super) media_type: &'a str,
    pub(super) base64: &'a str,
}

impl fmt::Display for Inline<'_> {
    /// As a `data:` URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data:{};base64,{}", self.media_type, self.base64)
    }
}

impl Serialize for Inline<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The URL of an image as OpenAI takes it.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
pub(super) enum Link<'a> {
    Data(Inline<'a>),
    Web(&'a str),
}

/// What can be sent of an image or file.
pub(super) enum Resolved<'a> {
    Medium(Medium<'a>),
    /// Its bytes are not in the log.
    Artifact(&'a ArtifactReceipt),
    Malformed,
}

/// Looks an image up.
pub(super) fn image(media: &Media) -> Resolved<'_> {
    resolve(media, |declared, base64| sniff(base64).or_else(|| image_type(declared?)))
}

/// Looks a file up.
pub(super) fn file(media: &Media) -> Resolved<'_> {
    resolve(media, |declared, base64| sniff(base64).or(declared.filter(|it| is_media_type(it))))
}

fn resolve<'a>(
    media: &'a Media,
    media_type: impl Fn(Option<&'a str>, &'a str) -> Option<&'a str>,
) -> Resolved<'a> {
    let declared = media.media_type.as_deref();
    let inline = |declared: Option<&'a str>, base64: &'a str| {
        if !is_base64(base64) {
            return None;
        }
        media_type(declared, base64).map(|media_type| Place::Inline(Inline { media_type, base64 }))
    };
    let place = match &media.source {
        MediaSource::Base64(base64) => inline(declared, base64),
        MediaSource::Url(url) => match url.strip_prefix("data:") {
            None => is_web_url(url).then_some(Place::Url(url)),
            Some(data) => data.split_once(";base64,").and_then(|(head, base64)| {
                let in_url = head.split(';').next().filter(|it| !it.is_empty());
                inline(in_url.or(declared), base64)
            }),
        },
        MediaSource::FileId(id) if id.is_empty() => None,
        MediaSource::FileId(id) if id.starts_with("file_") => Some(Place::AnthropicFile(id)),
        MediaSource::FileId(id) => Some(Place::OpenAiFile(id)),
        MediaSource::Artifact(receipt) => return Resolved::Artifact(receipt),
    };
    let Some(place) = place else { return Resolved::Malformed };
    let name = media.name.as_deref().filter(|name| !name.trim().is_empty());
    Resolved::Medium(Medium { place, detail: media.detail.as_deref(), name })
}

/// The text that stands for an artifact.
pub(super) fn artifact_text(name: Option<&str>, receipt: &ArtifactReceipt) -> String {
    let name = name.unwrap_or("artifact");
    let kind = receipt.media_type.as_deref().unwrap_or("unknown type");
    let ArtifactReceipt { digest, len, preview, .. } = receipt;
    let more = match u64::try_from(preview.len()) {
        Ok(shown) if shown >= *len => "",
        _ => "; only its beginning is here",
    };
    format!("[{name}: {len} bytes, {kind}, {digest}{more}]\n{preview}")
}

/// The types of image that all three APIs take.
fn image_type(declared: &str) -> Option<&'static str> {
    let known = [
        ("image/png", "image/png"),
        ("image/jpeg", "image/jpeg"),
        ("image/jpg", "image/jpeg"),
        ("image/gif", "image/gif"),
        ("image/webp", "image/webp"),
    ];
    let found = known.into_iter().find(|(alias, _)| alias.eq_ignore_ascii_case(declared));
    found.map(|(_, name)| name)
}

/// The type that the first bytes show. A declared type that is another one is refused (Anthropic: "the image appears to
/// be a image/png image").
fn sniff(base64: &str) -> Option<&'static str> {
    let known = [
        ("iVBORw0KGgo", "image/png"),
        ("/9j/", "image/jpeg"),
        ("R0lGOD", "image/gif"),
        ("UklGR", "image/webp"),
        ("JVBERi0", "application/pdf"),
    ];
    known.into_iter().find(|(start, _)| base64.starts_with(start)).map(|(_, name)| name)
}

fn is_media_type(text: &str) -> bool {
    let is_token = |part: &str| {
        let clean = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
        !part.is_empty() && part.chars().all(clean)
    };
    text.split_once('/').is_some_and(|(kind, name)| is_token(kind) && is_token(name))
}

fn is_web_url(url: &str) -> bool {
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    host.is_some_and(|host| {
        !host.is_empty()
            && !host.starts_with('/')
            && !url.chars().any(|c| c.is_whitespace() || c.is_control())
    })
}

/// Standard base64 with its padding, and not empty.
fn is_base64(text: &str) -> bool {
    let body = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let clean = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    !body.is_empty() && text.len().is_multiple_of(4) && body.bytes().all(clean)
}
