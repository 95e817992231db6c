//! A bounded little-endian reader: the one place that takes bytes apart.

use crate::error::DecodeError;

/// Reads fields one after the other, and says which one is missing.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where `bytes` start in what the caller was given, for offsets in errors.
    base: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self::within(bytes, 0)
    }

    /// Reads bytes that start at `base` of something larger.
    pub(crate) fn within(bytes: &'a [u8], base: usize) -> Self {
        Self { bytes, at: 0, base }
    }

    pub(crate) fn offset(&self) -> usize {
        self.base.saturating_add(self.at)
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    pub(crate) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let end = self.at.checked_add(len);
        match end.and_then(|end| self.bytes.get(self.at..end)) {
            Some(field) => {
                self.at = self.at.saturating_add(len);
                Ok(field)
            }
            None => {
                Err(DecodeError::corrupt(self.offset(), what, format_args!("{len} bytes"), self.remaining()))
            }
        }
    }

    /// Bytes that no version gave a meaning yet. Refused unless they are 0: whatever a newer writer put there, this
    /// version would lose it when it rewrites the frame, and the chain hash would not tell.
    pub(crate) fn reserved(&mut self, len: usize, what: &'static str) -> Result<(), DecodeError> {
        let at = self.offset();
        let bytes = self.take(len, what)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::unsupported(at, what, 0, crate::segment::hex(bytes)));
        }
        Ok(())
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array(what).map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        self.array(what).map(i64::from_le_bytes)
    }
}

/// A length as its wire form. Every caller has checked it against a limit that fits; a length that does not fit
/// becomes one that no reader accepts.
pub(crate) fn len_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
