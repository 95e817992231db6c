//! How a result is shown whose whole is in the artifact store: its beginning, and a line that says where the rest is.
//!
//! A call's own result has its beginning as text, and the receipt beside it. A child's result is stored first and delivered
//! later, maybe by another process; so it carries the receipt among its parts, and delivering it turns it into the first
//! form: [`stored`] and [`delivered`].

use sessionlog_codec::event::{ArtifactReceipt, Media, MediaSource, Part};

/// Characters of a preview.
pub const PREVIEW_CHARS: usize = 4_096;

/// The beginning of a text: [`PREVIEW_CHARS`] characters of it at most, cut between two of them.
#[must_use]
pub fn preview_of(text: &str) -> &str {
    let end = text.char_indices().nth(PREVIEW_CHARS).map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or(text)
}

/// The line that follows the preview of an artifact.
#[must_use]
pub fn note(receipt: &ArtifactReceipt) -> String {
    let ArtifactReceipt { digest, len, media_type, preview } = receipt;
    let kind = media_type.as_deref().unwrap_or("unknown type");
    let shown = preview.len();
    format!(
        "[This is the beginning: {shown} of {len} bytes. The whole result is kept as artifact {digest} ({kind}); read more of \
         it by that digest: bytes, lines, or a search.]"
    )
}

/// The text that stands for an artifact in a result.
#[must_use]
pub fn shown(receipt: &ArtifactReceipt) -> String {
    format!("{}\n{}", receipt.preview, note(receipt))
}

/// An artifact among the parts of a result.
#[must_use]
pub fn stored(receipt: ArtifactReceipt) -> [Part; 2] {
    let note = Part::text(note(&receipt));
    let media_type = receipt.media_type.clone();
    let source = MediaSource::Artifact(receipt);
    [Part::File(Media { source, media_type, name: None, detail: None, extra: None }), note]
}

/// A stored result as it is delivered to the call that waits for it: [`stored`], taken apart. Anything else stays as it is.
#[must_use]
pub fn delivered(parts: Vec<Part>) -> (Vec<Part>, Option<ArtifactReceipt>) {
    if let [Part::File(Media { source: MediaSource::Artifact(receipt), .. }), Part::Text(line)] = &*parts
        && *line == note(receipt)
    {
        let text = Part::text(shown(receipt));
        return (vec![text], Some(receipt.clone()));
    }
    (parts, None)
}

/// The receipts among parts.
pub fn receipts(parts: &[Part]) -> impl Iterator<Item = &ArtifactReceipt> {
    parts.iter().filter_map(|part| match part {
        Part::Image(Media { source: MediaSource::Artifact(receipt), .. })
        | Part::File(Media { source: MediaSource::Artifact(receipt), .. }) => Some(receipt),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use sessionlog_codec::ids::Digest;

    use super::*;

    fn receipt() -> ArtifactReceipt {
        let preview = "the beginning".to_owned();
        ArtifactReceipt { digest: Digest::of(b"all"), len: 70_000, media_type: None, preview }
    }

    #[test]
    fn a_preview_is_cut_between_characters() {
        assert_eq!(preview_of("short"), "short");
        for character in ["a", "é", "日", "🦀"] {
            let text = character.repeat(PREVIEW_CHARS + 1);
            let preview = preview_of(&text);
            assert_eq!(preview.chars().count(), PREVIEW_CHARS);
            assert!(text.starts_with(preview));
            let exact = character.repeat(PREVIEW_CHARS);
            assert_eq!(preview_of(&exact), exact);
        }
    }

    #[test]
    fn what_is_stored_is_delivered_as_text_with_its_receipt() {
        let (parts, artifact) = delivered(stored(receipt()).to_vec());
        assert_eq!((parts, artifact), (vec![Part::text(shown(&receipt()))], Some(receipt())));
        let other = vec![stored(receipt())[0].clone(), Part::text("of the host's")];
        assert_eq!(delivered(other.clone()), (other, None));
        assert_eq!(delivered(vec![Part::text("x")]), (vec![Part::text("x")], None));
    }
}
