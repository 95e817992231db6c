//! Bytes kept exactly as they were received.

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Bytes kept exactly as they were received: tool arguments, provider extras, source records of an import. Usually
/// JSON, but nothing says that a model wrote valid JSON or valid UTF-8, and nothing here changes it.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct RawBytes(pub Vec<u8>);

impl RawBytes {
    /// The bytes as text, where they are UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The bytes as text, with U+FFFD for what is not UTF-8.
    #[must_use]
    pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for RawBytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for RawBytes {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<Vec<u8>> for RawBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for RawBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawBytes({:?})", self.to_text())
    }
}

impl Serialize for RawBytes {
    /// As text for people (lossy where it is not UTF-8), as the bytes themselves in the log.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&self.to_text())
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

/// Reads a long text. As [`String`] does it, but that the payload's decoder lends its bytes, where for a `String` it fills
/// memory with zeros before it copies them there.
pub(crate) fn long_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("text")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_string<E: Error>(self, text: String) -> Result<String, E> {
            Ok(text)
        }
    }
    deserializer.deserialize_str(Text)
}

impl<'de> Deserialize<'de> for RawBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Raw;
        impl Visitor<'_> for Raw {
            type Value = RawBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes or text")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<RawBytes, E> {
                Ok(RawBytes(bytes.to_vec()))
            }

            fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<RawBytes, E> {
                Ok(RawBytes(bytes))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RawBytes, E> {
                Ok(text.into())
            }
        }
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(Raw)
        } else {
            deserializer.deserialize_bytes(Raw)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tool arguments and what a provider sent are the host's only copy: whichever way they came in, they are the same bytes.
    #[test]
    fn bytes_are_what_they_were() {
        for text in ["", "{}", "{\"a\":\u{20ac}}"] {
            let raw = RawBytes::from(text);
            assert_eq!(
                (raw.as_str(), raw.is_empty(), raw.to_text().as_ref()),
                (Some(text), text.is_empty(), text)
            );
            assert_eq!(
                (RawBytes::from(text.to_owned()), RawBytes::from(text.as_bytes().to_vec())),
                (raw.clone(), raw.clone())
            );
            let json = serde_json::to_string(&raw).unwrap();
            assert_eq!(json, serde_json::to_string(text).unwrap());
            assert_eq!(serde_json::from_str::<RawBytes>(&json).unwrap(), raw);
        }
        let raw = RawBytes::from(vec![b'a', 0xff]);
        assert_eq!((raw.as_str(), raw.is_empty(), raw.to_text().as_ref()), (None, false, "a\u{fffd}"));
        let text = serde::de::value::StringDeserializer::<serde::de::value::Error>::new("long".to_owned());
        assert_eq!(long_text(text).unwrap(), "long");
        let number = serde::de::value::U8Deserializer::<serde::de::value::Error>::new(1);
        assert!(long_text(number).unwrap_err().to_string().contains("expected text"));
        let error = serde_json::from_str::<RawBytes>("1").unwrap_err().to_string();
        assert!(error.contains("expected bytes or text"), "{error}");
    }
}
