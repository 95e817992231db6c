//! The hash that an audit keeps of a call's arguments.

use serde_json::Value;

/// The BLAKE3 hash of a call's arguments, in hexadecimal: of their canonical form, so that the order of keys, white space
/// and escapes do not change it. Arguments that are not JSON are hashed as they are.
///
/// The canonical form is the shortest JSON with the keys of each object sorted by their UTF-8 bytes; of a key that is
/// there twice, the last value counts, as it does for the tools that parse it.
///
/// ```
/// use sessionlog_projections::arguments_hash;
///
/// assert_eq!(arguments_hash(br#"{"a":1,"b":{"d":2,"c":3}}"#), arguments_hash(br#"{ "b": {"c":3, "d":2}, "a": 1 }"#));
/// assert_ne!(arguments_hash(br#"{"a":[1,2]}"#), arguments_hash(br#"{"a":[2,1]}"#));
/// ```
#[must_use]
pub fn arguments_hash(arguments: &[u8]) -> String {
    let canonical = serde_json::from_slice::<Value>(arguments).ok().map(|value| sorted(value).to_string());
    let hash = blake3::hash(canonical.as_deref().map_or(arguments, str::as_bytes));
    hash.to_hex().to_string()
}

/// The same value with the keys of each object in order. The parser bounds how deep a value is.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> =
                fields.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(fields.into_iter().collect())
        }
        scalar => scalar,
    }
}

#[cfg(test)]
mod tests {
    use super::arguments_hash;

    #[test]
    fn only_the_meaning_counts() {
        let hash = |text: &str| arguments_hash(text.as_bytes());
        assert_eq!(
            hash(r#"{"b":1,"a":{"y":[{"q":1,"p":2}],"x":"\u0041"}}"#),
            hash(r#"{"a":{"x":"A","y":[{"p":2,"q":1}]},"b":1}"#)
        );
        assert_ne!(hash(r#"{"a":1}"#), hash(r#"{"a":"1"}"#));
        assert_ne!(hash("{not json"), hash("{not  json"));
        assert_eq!(hash(&"[".repeat(100_000)), arguments_hash("[".repeat(100_000).as_bytes()));
    }
}
