//! The payload encoding, and the only module that knows it is bincode.
//!
//! Layout: bincode 2's `config::legacy()`: little endian, integers of fixed width, lengths as `u64`, `Option` as one
//! byte, enum variants as `u32`, fields in order without names. It is canonical (one value, one encoding) and is
//! what bincode 1 and wincode write by default, so the bytes outlive any one crate.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{DecodeError, TooLarge};
use crate::limits::PAYLOAD_LEN_MAX;

type Layout<const LIMIT: usize> = bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Fixint,
    bincode::config::Limit<LIMIT>,
>;

/// Nearly every payload is shorter. bincode zeroes memory for a text's claimed length before it looks whether the bytes
/// are there, so a payload is decoded under a limit near its own length, not under that of the longest one.
const SMALL: usize = 64 << 10;

const fn layout<const LIMIT: usize>() -> Layout<LIMIT> {
    bincode::config::legacy().with_limit::<LIMIT>()
}

/// Appends the encoded payload to `out`.
///
/// # Errors
/// [`TooLarge`] as soon as it is longer than [`PAYLOAD_LEN_MAX`]: the decoder's limit holds here too, since what could
/// not be read back must not be written. A part of it may then be in `out`.
pub(crate) fn encode_into<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<(), TooLarge> {
    let start = out.len();
    let mut bounded = Bounded { end: start.saturating_add(PAYLOAD_LEN_MAX), out };
    match bincode::serde::encode_into_std_write(value, &mut bounded, layout::<PAYLOAD_LEN_MAX>()) {
        Ok(_) => Ok(()),
        // Our own types have nothing else that could fail: no untagged enum, no sequence of unknown length.
        Err(_) => {
            let len = out.len().saturating_sub(start);
            Err(TooLarge { what: "payload", len, max: PAYLOAD_LEN_MAX })
        }
    }
}

/// Encodes a payload.
///
/// # Errors
/// As [`encode_into`].
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, TooLarge> {
    let mut out = Vec::with_capacity(256);
    encode_into(value, &mut out)?;
    Ok(out)
}

/// Decodes a payload, every byte of it.
///
/// # Errors
/// `Corrupt` if the bytes are not of this type, are too long, or go on after it.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    if bytes.len() > PAYLOAD_LEN_MAX {
        return Err(DecodeError::corrupt(0, "payload length", PAYLOAD_LEN_MAX, bytes.len()));
    }
    let decoded = if bytes.len() <= SMALL {
        bincode::serde::borrow_decode_from_slice(bytes, layout::<SMALL>())
    } else {
        bincode::serde::borrow_decode_from_slice(bytes, layout::<PAYLOAD_LEN_MAX>())
    };
    let (value, consumed) =
        decoded.map_err(|error| DecodeError::corrupt(0, "payload", std::any::type_name::<T>(), error))?;
    if consumed != bytes.len() {
        return Err(DecodeError::corrupt(consumed, "payload end", consumed, bytes.len()));
    }
    Ok(value)
}

/// A writer that stops at the limit, so that nothing much larger is ever held.
struct Bounded<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.out.len().saturating_add(bytes.len()) > self.end {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
