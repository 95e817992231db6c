//! Values that are derived from logs and kept beside them: snapshots, catalog rows. Never the only copy of anything, so
//! whatever is odd about one is a reason to derive it anew.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | the version of the value's layout, little endian |
//! | 2..6 | the CRC-32 of all that follows |
//! | 6.. | the value, encoded as payloads are |

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{DecodeError, TooLarge};
use crate::payload;

const HEADER_LEN: usize = 6;

/// Encodes a value under the version of its layout.
///
/// # Errors
/// [`TooLarge`] if it is longer than a payload may be.
pub fn encode<T: Serialize>(version: u16, value: &T) -> Result<Vec<u8>, TooLarge> {
    let body = payload::encode(value)?;
    let mut out = Vec::with_capacity(HEADER_LEN.saturating_add(body.len()));
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    out.extend_from_slice(&body);
    Ok(out)
}

/// Decodes a value of this version.
///
/// # Errors
/// `Unsupported` if it is of another version; `Corrupt` if it is short, its checksum is wrong, or it is not of this type.
pub fn decode<T: DeserializeOwned>(version: u16, bytes: &[u8]) -> Result<T, DecodeError> {
    let Some(([a, b, c, d, e, f], body)) = bytes.split_first_chunk() else {
        return Err(DecodeError::corrupt(0, "stored value", HEADER_LEN, bytes.len()));
    };
    let (found, stored) = (u16::from_le_bytes([*a, *b]), u32::from_le_bytes([*c, *d, *e, *f]));
    if found != version {
        return Err(DecodeError::unsupported(0, "version of a stored value", version, found));
    }
    let computed = crc32fast::hash(body);
    if stored != computed {
        return Err(DecodeError::corrupt(2, "checksum of a stored value", computed, stored));
    }
    payload::decode(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::DecodeErrorKind;

    #[test]
    fn a_value_comes_back_or_is_refused() {
        let value = (7_u64, "text".to_owned(), Some(vec![1_u8, 2]));
        let bytes = encode(3, &value).unwrap_or_default();
        assert_eq!(decode::<(u64, String, Option<Vec<u8>>)>(3, &bytes), Ok(value));
        let other = decode::<(u64, String, Option<Vec<u8>>)>(4, &bytes);
        assert!(other.is_err_and(|error| error.kind() == DecodeErrorKind::Unsupported));
        for at in 2..bytes.len() {
            let mut hurt = bytes.clone();
            if let Some(byte) = hurt.get_mut(at) {
                *byte ^= 1;
            }
            assert!(decode::<(u64, String, Option<Vec<u8>>)>(3, &hurt).is_err(), "byte {at}");
        }
        for len in 0..bytes.len() {
            assert!(decode::<(u64, String, Option<Vec<u8>>)>(3, &bytes[..len]).is_err(), "{len} bytes");
        }
    }
}
