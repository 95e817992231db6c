//! What can be wrong with bytes.

use thiserror::Error;

/// What a reader should conclude from bytes that it could not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeErrorKind {
    /// The bytes are not what was written: torn, rotten or never ours.
    Corrupt,
    /// The bytes are sound, but a newer version wrote them. They must not be cut or rewritten.
    Unsupported,
}

/// Bytes that could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} at byte {offset}: expected {expected}, found {found}")]
pub struct DecodeError {
    kind: DecodeErrorKind,
    offset: usize,
    what: &'static str,
    expected: String,
    found: String,
}

impl DecodeError {
    /// What to conclude.
    #[must_use]
    pub fn kind(&self) -> DecodeErrorKind {
        self.kind
    }

    /// The byte, counted from the start of the segment header, frame or payload that was decoded.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The field that is wrong.
    #[must_use]
    pub fn what(&self) -> &'static str {
        self.what
    }

    pub(crate) fn corrupt(
        offset: usize,
        what: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> Self {
        let (expected, found) = (expected.to_string(), found.to_string());
        Self { kind: DecodeErrorKind::Corrupt, offset, what, expected, found }
    }

    pub(crate) fn unsupported(
        offset: usize,
        what: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> Self {
        Self { kind: DecodeErrorKind::Unsupported, ..Self::corrupt(offset, what, expected, found) }
    }
}

/// Something that is larger than the format allows, refused before a byte of it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{what} of {len} is over the limit of {max}")]
pub struct TooLarge {
    /// What is too large.
    pub what: &'static str,
    /// Its size, or the size at which counting stopped.
    pub len: usize,
    /// The limit, from [`limits`](crate::limits).
    pub max: usize,
}
