//! What must not get into a library that outlives every session: credentials, and paths that lead to a person.
//!
//! Known shapes only: a net with known holes, not a proof. It errs on the side of refusing, since what is refused is said
//! again without the secret, and what was let through is copied into other sessions for ever.

use std::fmt;

/// A kind of credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Secret {
    /// A key of a provider, by its prefix (`sk-`, `ghp_`, `AIza`, ...).
    ProviderKey,
    /// An access key of AWS.
    AwsKey,
    /// A block with a private key.
    PrivateKey,
    /// A bearer token.
    BearerToken,
    /// A JSON web token.
    WebToken,
    /// A name such as `password`, with a value.
    Assignment,
    /// A password in a URL.
    UrlPassword,
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProviderKey => "a provider's API key",
            Self::AwsKey => "an AWS access key",
            Self::PrivateKey => "a private key",
            Self::BearerToken => "a bearer token",
            Self::WebToken => "a JSON web token",
            Self::Assignment => "a password or secret with its value",
            Self::UrlPassword => "a password in a URL",
        })
    }
}

/// Prefixes of keys, and how many characters follow at least.
const PREFIXES: &[(&str, usize)] = &[
    ("sk-", 16),
    ("sk_live_", 12),
    ("sk_test_", 12),
    ("rk_live_", 12),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxa-", 10),
    ("xoxr-", 10),
    ("xoxs-", 10),
    ("xapp-", 10),
    ("AIza", 30),
    ("ya29.", 20),
    ("hf_", 20),
    ("gsk_", 20),
    ("xai-", 20),
    ("pplx-", 20),
    ("tvly-", 16),
    ("npm_", 20),
    ("pypi-", 20),
    ("dop_v1_", 20),
    ("r8_", 20),
    ("SG.", 20),
];

/// Names whose values are secrets. They may be the end of a longer name (`db_password`).
const NAMES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "api_key",
    "apikey",
    "api-key",
    "access_key",
    "access-key",
    "secret_key",
    "private_key",
    "token",
    "credential",
];

/// What stands in examples where a value would be.
const PLACEHOLDERS: &[&str] =
    &["none", "null", "nil", "true", "false", "required", "optional", "string", "value", "redacted", "..."];

/// The first credential in a text, by its shape.
#[must_use]
pub fn secret(text: &str) -> Option<Secret> {
    if has_private_key(text) {
        return Some(Secret::PrivateKey);
    }
    let words = text.split(|c: char| !is_token(c)).filter(|word| !word.is_empty());
    words
        .filter_map(secret_word)
        .next()
        .or_else(|| has_bearer(text).then_some(Secret::BearerToken))
        .or_else(|| has_url_password(text).then_some(Secret::UrlPassword))
        .or_else(|| has_assignment(text).then_some(Secret::Assignment))
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

fn secret_word(word: &str) -> Option<Secret> {
    let aws = ["AKIA", "ASIA"].iter().find_map(|prefix| word.strip_prefix(prefix));
    let is_upper = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    if aws.is_some_and(|rest| rest.len() == 16 && rest.bytes().all(is_upper)) {
        return Some(Secret::AwsKey);
    }
    let parts: Vec<&str> = word.split('.').filter(|part| part.len() >= 6).collect();
    if word.starts_with("eyJ") && parts.len() >= 3 {
        return Some(Secret::WebToken);
    }
    let is_key = |(prefix, least): &(&str, usize)| {
        word.strip_prefix(prefix).is_some_and(|rest| rest.len() >= *least && has_digit(rest))
    };
    PREFIXES.iter().any(is_key).then_some(Secret::ProviderKey)
}

fn has_private_key(text: &str) -> bool {
    text.split("-----BEGIN").skip(1).any(|after| {
        let head = after.split("-----").next().unwrap_or_default();
        head.contains("PRIVATE KEY")
    })
}

/// What follows each occurrence of `name`, in whatever case, and what comes before it.
fn around<'a>(text: &'a str, lower: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    lower.match_indices(name).filter_map(move |(at, found)| {
        let end = at.saturating_add(found.len());
        Some((text.get(..at)?, text.get(end..)?))
    })
}

fn has_bearer(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    around(text, &lower, "bearer").any(|(_, after)| {
        let value = after.trim_start_matches([':', '=']);
        if value.len() == after.len() && !after.starts_with(char::is_whitespace) {
            return false;
        }
        let token: &str = value.trim_start();
        let end = token.find(|c: char| !is_token(c) && !matches!(c, '+' | '/' | '~' | '='));
        let token = token.get(..end.unwrap_or(token.len())).unwrap_or_default();
        (token.len() >= 16 && has_digit(token)) || token.len() >= 32
    })
}

fn has_url_password(text: &str) -> bool {
    text.split("://").skip(1).any(|after| {
        let end = after.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(after.len());
        let authority = after.get(..end).unwrap_or_default();
        let Some((user, _)) = authority.rsplit_once('@') else { return false };
        user.split_once(':').is_some_and(|(_, password)| !password.is_empty() && !is_placeholder(password))
    })
}

fn has_assignment(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    NAMES.iter().any(|name| {
        around(text, &lower, name).any(|(before, after)| {
            let begins = !before.ends_with(|c: char| c.is_alphanumeric());
            begins && is_value(after)
        })
    })
}

/// Whether a name is followed by a sign and a value that looks like one.
fn is_value(after: &str) -> bool {
    let after = after.trim_start_matches(['"', '\'', '`']).trim_start();
    let (sign, rest) = match (after.strip_prefix('='), after.strip_prefix(':')) {
        (Some(rest), _) => ('=', rest),
        (None, Some(rest)) => (':', rest),
        (None, None) => return false,
    };
    let value = rest.trim_start().trim_start_matches(['"', '\'', '`']);
    let end = value.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',' | ';' | '&'));
    let value = value.get(..end.unwrap_or(value.len())).unwrap_or_default().trim_end_matches(['.', ')']);
    if value.contains(['(', '[']) || value.starts_with(['=', ':', '/']) || is_placeholder(value) {
        return false;
    }
    match sign {
        '=' => value.chars().count() >= 4,
        _ => value.chars().count() >= 8 && has_digit(value),
    }
}

fn is_placeholder(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    value.starts_with(['<', '$', '{', '%', '*', '.'])
        || PLACEHOLDERS.contains(&lower.as_str())
        || lower.chars().all(|c| matches!(c, 'x' | '*' | '.' | '-' | '_'))
}

/// Whether a text names a place below somebody's home directory: it means nothing elsewhere, and says who worked there.
#[must_use]
pub fn is_private_path(text: &str) -> bool {
    let unix = ["/home/", "/Users/", "/root/"].iter().any(|root| {
        text.match_indices(root).any(|(at, found)| {
            let before = text.get(..at).unwrap_or_default();
            let after = text.get(at.saturating_add(found.len())..).unwrap_or_default();
            let inner = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '~' | '}' | '>');
            !before.ends_with(inner)
                && after.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.')
        })
    });
    let windows = text.to_ascii_lowercase();
    unix || windows.contains(":\\users\\") || windows.contains(":/users/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_seen() {
        let cases = [
            ("use sk-ant-api03-abcdefghij0123456789 for it", Secret::ProviderKey),
            ("(sk-proj-Zm9vYmFyYmF6cXV4MTIzNDU2)", Secret::ProviderKey),
            ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", Secret::ProviderKey),
            ("key AIzaSyA1234567890abcdefghijklmnopqrstuv", Secret::ProviderKey),
            ("glpat-abcdefghij1234567890", Secret::ProviderKey),
            ("slack xoxb-123456789012-abcdef", Secret::ProviderKey),
            ("AKIAIOSFODNN7EXAMPLE", Secret::AwsKey),
            ("aws_secret_access_key=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY", Secret::Assignment),
            ("-----BEGIN RSA PRIVATE KEY-----\nMIIE", Secret::PrivateKey),
            ("-----BEGIN PRIVATE KEY-----", Secret::PrivateKey),
            ("-----BEGIN OPENSSH PRIVATE KEY-----", Secret::PrivateKey),
            ("Authorization: Bearer abcdef0123456789abcd", Secret::BearerToken),
            ("bearer=abcdef0123456789abcd", Secret::BearerToken),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk", Secret::WebToken),
            ("password=hunter2", Secret::Assignment),
            ("PASSWORD = 'correct horse'", Secret::Assignment),
            ("DB_PASSWORD=hunter2", Secret::Assignment),
            ("{\"password\": \"hunter2222\"}", Secret::Assignment),
            ("api_key: abcd1234efgh", Secret::Assignment),
            ("postgres://app:hunter2@db.example/x", Secret::UrlPassword),
        ];
        for (text, expected) in cases {
            assert_eq!(secret(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn words_about_credentials_are_none() {
        let fine = [
            "Set the password in the environment before the first run.",
            "password=<your password>",
            "password=$DB_PASSWORD",
            "password: ********",
            "token = parse(input)",
            "password == other",
            "max_tokens=4096 is the default",
            "The token: it is sent with every request.",
            "Use bearer authentication for the API.",
            "Authorization: Bearer <token>",
            "sk-learn is not scikit-learn",
            "The sk-prefix-of-keys is documented.",
            "-----BEGIN CERTIFICATE-----",
            "postgres://localhost/x and https://example.org/a@b:c",
            "An access key begins with AKIA.",
            "secret santa",
        ];
        for text in fine {
            assert_eq!(secret(text), None, "{text}");
        }
    }

    #[test]
    fn paths_of_people_are_seen_and_others_not() {
        for text in
            ["/home/ada/app", "see /Users/ada/x", "`/root/.ssh`", "C:\\Users\\Ada\\x", "file:///home/ada/x"]
        {
            assert!(is_private_path(text), "{text}");
        }
        for text in ["src/home/page.rs", "/usr/lib/x", "~/.config/app", "the /home/ directory", "/etc/passwd"]
        {
            assert!(!is_private_path(text), "{text}");
        }
    }
}
