//! What a Thinker proposes: a piece of knowledge, as JSON that is kept byte for byte, checked before anybody keeps it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sessionlog_codec::RawBytes;
use sessionlog_codec::event::PropositionKind;
use sessionlog_codec::ids::Digest;

use super::secrets::{Secret, is_private_path, secret};

/// The longest content, in characters.
pub const CONTENT_CHARS_MAX: usize = 2048;
/// The most queries.
pub const QUERIES_MAX: usize = 8;
/// The longest query, in characters.
pub const QUERY_CHARS_MAX: usize = 512;
/// The most tags.
pub const TAGS_MAX: usize = 16;
/// The longest tag, in characters.
pub const TAG_CHARS_MAX: usize = 64;
/// The most references.
pub const REFS_MAX: usize = 32;
/// The longest reference, in characters.
pub const REF_CHARS_MAX: usize = 512;
/// The longest name or version of an extractor, in characters.
pub const EXTRACTOR_CHARS_MAX: usize = 128;
/// The greatest confidence; the least is 0.
pub const CONFIDENCE_MAX: f64 = 1.0;
/// The longest request, in bytes.
pub const REQUEST_LEN_MAX: usize = 128 << 10;

/// The keys of a request.
const KEYS: &[&str] =
    &["kind", "content", "queries", "tags", "refs", "confidence", "extractor_model", "extractor_version"];

/// What models call that which is true of one run only.
const SNAPSHOTS: &[&str] = &[
    "test_result",
    "test_results",
    "test_status",
    "test_run",
    "test_counts",
    "build_result",
    "build_results",
    "build_status",
    "ci_status",
    "audit_count",
    "audit_counts",
    "audit_result",
    "audit_results",
    "audit_status",
    "dependency_audit",
    "finding_count",
    "finding_counts",
    "format_status",
    "formatter_status",
    "lint_status",
    "lint_results",
    "lint_counts",
    "coverage",
    "benchmark_results",
    "run_status",
    "run_result",
    "run_snapshot",
    "task_status",
    "progress",
];

/// What a proposition says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    /// What kind of knowledge it claims to be. What is true of one run only has no kind.
    pub kind: PropositionKind,
    /// The knowledge, in a few sentences.
    pub content: String,
    /// Questions that it answers.
    #[serde(default)]
    pub queries: Vec<String>,
    /// Labels.
    #[serde(default)]
    pub tags: Vec<String>,
    /// What it is drawn from, in the host's words.
    #[serde(default)]
    pub refs: Vec<String>,
    /// How sure the Thinker is, from 0 to 1.
    pub confidence: f64,
    /// The model that drew it.
    pub extractor_model: String,
    /// The version of the prompt that it was drawn by.
    pub extractor_version: String,
}

/// A proposition that may be kept, with the bytes of its request: what is repeated after a crash are these bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposition {
    draft: Draft,
    request: RawBytes,
}

/// Why a proposition is not taken. Told to whoever proposed it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no JSON object with the keys of a proposition.
    #[error("the request is not a proposition: {0}")]
    Malformed(String),
    /// It has a key that no proposition has.
    #[error("a proposition has no `{0}`; its keys are {keys}", keys = KEYS.join(", "))]
    UnknownKey(String),
    /// It is true of one run only.
    #[error(
        "`{0}` is a snapshot of one run: it stays in the task's history, where it is found with its time, and is not \
         learned"
    )]
    RunSnapshot(String),
    /// There is no such kind.
    #[error("there is no kind `{0}`; there are workflow, project_fact, resolution, finding")]
    UnknownKind(String),
    /// A text is empty.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// A text is too long.
    #[error("{what} has {chars} characters, and may have {max}")]
    TooLong {
        /// Which one.
        what: &'static str,
        /// How many characters it has.
        chars: usize,
        /// How many it may have.
        max: usize,
    },
    /// There are too many of something.
    #[error("there are {count} {what}, and may be {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// The confidence is no number from 0 to 1.
    #[error("confidence is not a number from 0 to 1")]
    Confidence,
    /// It holds a credential.
    #[error("{place} holds what looks like {secret}: say it without")]
    Secret {
        /// Where.
        place: &'static str,
        /// What.
        secret: Secret,
    },
    /// It names a place in somebody's home directory.
    #[error("{place} names a path below somebody's home directory: name it relative to the project")]
    PrivatePath {
        /// Where.
        place: &'static str,
    },
}

impl Refusal {
    /// A stable word for machines.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "proposition.malformed",
            Self::UnknownKey(_) => "proposition.key",
            Self::RunSnapshot(_) => "proposition.run_snapshot",
            Self::UnknownKind(_) => "proposition.kind",
            Self::Empty(_) => "proposition.empty",
            Self::TooLong { .. } | Self::TooMany { .. } => "proposition.too_large",
            Self::Confidence => "proposition.confidence",
            Self::Secret { .. } => "proposition.secret",
            Self::PrivatePath { .. } => "proposition.path",
        }
    }
}

impl Proposition {
    /// A proposition of a host's own making.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn new(draft: Draft) -> Result<Self, Refusal> {
        draft.check()?;
        let request = serde_json::to_vec(&draft).map_err(|error| Refusal::Malformed(error.to_string()))?;
        Ok(Self { draft, request: RawBytes(request) })
    }

    /// A proposition as a model wrote it. The bytes are kept as they are.
    ///
    /// # Errors
    /// The [`Refusal`], if it is not to be kept.
    pub fn parse(request: impl Into<RawBytes>) -> Result<Self, Refusal> {
        let request = request.into();
        if request.0.len() > REQUEST_LEN_MAX {
            let (what, chars, max) = ("the request", request.0.len(), REQUEST_LEN_MAX);
            return Err(Refusal::TooLong { what, chars, max });
        }
        let value: Value =
            serde_json::from_slice(&request.0).map_err(|error| Refusal::Malformed(error.to_string()))?;
        let Value::Object(keys) = &value else {
            return Err(Refusal::Malformed("it is not an object".to_owned()));
        };
        if let Some(Value::String(kind)) = keys.get("kind") {
            check_kind(kind)?;
        }
        if let Some(key) = keys.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(Refusal::UnknownKey(key.chars().take(64).collect()));
        }
        // Not from the value: a key that is there twice is an error here, and was not there.
        let draft: Draft =
            serde_json::from_slice(&request.0).map_err(|error| Refusal::Malformed(error.to_string()))?;
        draft.check()?;
        Ok(Self { draft, request })
    }

    /// A proposition that was taken once, whatever the rules are now; `None` if it can't be read.
    #[must_use]
    pub fn stored(request: &RawBytes) -> Option<Self> {
        let draft = serde_json::from_slice(&request.0).ok()?;
        Some(Self { draft, request: request.clone() })
    }

    /// What it says.
    #[must_use]
    pub fn draft(&self) -> &Draft {
        &self.draft
    }

    /// The request, byte for byte.
    #[must_use]
    pub fn request(&self) -> &RawBytes {
        &self.request
    }

    /// The hash of the request.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.request.0)
    }
}

fn check_kind(kind: &str) -> Result<(), Refusal> {
    let shown = || kind.chars().take(64).collect::<String>();
    let word = kind.trim().to_ascii_lowercase().replace(['-', ' '], "_");
    if SNAPSHOTS.contains(&word.as_str()) {
        return Err(Refusal::RunSnapshot(shown()));
    }
    match kind {
        "workflow" | "project_fact" | "resolution" | "finding" => Ok(()),
        _ => Err(Refusal::UnknownKind(shown())),
    }
}

impl Draft {
    /// Everything that a reader may find again: where it stands, how long it may be, the text.
    fn texts(&self) -> impl Iterator<Item = (&'static str, usize, &str)> {
        let content = std::iter::once(("content", CONTENT_CHARS_MAX, self.content.as_str()));
        let queries = self.queries.iter().map(|it| ("a query", QUERY_CHARS_MAX, it.as_str()));
        let tags = self.tags.iter().map(|it| ("a tag", TAG_CHARS_MAX, it.as_str()));
        let refs = self.refs.iter().map(|it| ("a reference", REF_CHARS_MAX, it.as_str()));
        let extractor = [
            ("extractor_model", EXTRACTOR_CHARS_MAX, self.extractor_model.as_str()),
            ("extractor_version", EXTRACTOR_CHARS_MAX, self.extractor_version.as_str()),
        ];
        content.chain(queries).chain(tags).chain(refs).chain(extractor)
    }

    fn check(&self) -> Result<(), Refusal> {
        let counts = [
            ("queries", self.queries.len(), QUERIES_MAX),
            ("tags", self.tags.len(), TAGS_MAX),
            ("references", self.refs.len(), REFS_MAX),
        ];
        for (what, count, max) in counts {
            if count > max {
                return Err(Refusal::TooMany { what, count, max });
            }
        }
        for (what, max, text) in self.texts() {
            let chars = text.chars().count();
            if text.trim().is_empty() {
                return Err(Refusal::Empty(what));
            }
            if chars > max {
                return Err(Refusal::TooLong { what, chars, max });
            }
            if let Some(secret) = secret(text) {
                return Err(Refusal::Secret { place: what, secret });
            }
            if is_private_path(text) {
                return Err(Refusal::PrivatePath { place: what });
            }
        }
        if (0.0..=CONFIDENCE_MAX).contains(&self.confidence) { Ok(()) } else { Err(Refusal::Confidence) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> Draft {
        Draft {
            kind: PropositionKind::Workflow,
            content: "Run the migrations before the tests.".to_owned(),
            queries: vec!["How are the tests prepared?".to_owned()],
            tags: vec!["tests".to_owned()],
            refs: vec!["turn 3".to_owned()],
            confidence: 0.8,
            extractor_model: "thinker-1".to_owned(),
            extractor_version: "v4".to_owned(),
        }
    }

    fn refused(change: impl FnOnce(&mut Draft)) -> Refusal {
        let mut draft = draft();
        change(&mut draft);
        Proposition::new(draft).unwrap_err()
    }

    #[test]
    fn bounds_are_exact() {
        let edge = |change: &dyn Fn(&mut Draft, usize), max: usize| {
            let mut fits = draft();
            change(&mut fits, max);
            Proposition::new(fits).unwrap();
            let mut over = draft();
            change(&mut over, max + 1);
            assert_eq!(Proposition::new(over).unwrap_err().code(), "proposition.too_large");
        };
        edge(&|it, n| it.content = "é".repeat(n), CONTENT_CHARS_MAX);
        edge(&|it, n| it.queries = vec!["q".to_owned(); n], QUERIES_MAX);
        edge(&|it, n| it.queries = vec!["日".repeat(n)], QUERY_CHARS_MAX);
        edge(&|it, n| it.tags = vec!["t".to_owned(); n], TAGS_MAX);
        edge(&|it, n| it.tags = vec!["t".repeat(n)], TAG_CHARS_MAX);
        edge(&|it, n| it.refs = vec!["r".to_owned(); n], REFS_MAX);
        for confidence in [0.0, 1.0] {
            Proposition::new(Draft { confidence, ..draft() }).unwrap();
        }
        for confidence in [-0.01, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(|it| it.confidence = confidence), Refusal::Confidence);
        }
        assert_eq!(refused(|it| it.content = " \n".to_owned()), Refusal::Empty("content"));
        assert_eq!(refused(|it| it.extractor_model = String::new()), Refusal::Empty("extractor_model"));
    }

    #[test]
    fn secrets_and_paths_are_refused_wherever_they_stand() {
        let secret = || "password=hunter2".to_owned();
        for refusal in [
            refused(|it| it.content = secret()),
            refused(|it| it.queries = vec![secret()]),
            refused(|it| it.tags = vec![secret()]),
            refused(|it| it.refs = vec![secret()]),
        ] {
            assert!(matches!(refusal, Refusal::Secret { secret: Secret::Assignment, .. }), "{refusal}");
            assert!(!refusal.to_string().contains("hunter2"), "it is not repeated");
        }
        assert_eq!(refused(|it| it.content = "/home/ada/x".to_owned()).code(), "proposition.path");
    }

    #[test]
    fn what_is_true_of_one_run_has_no_kind() {
        let request = |kind: &str| {
            format!(
                r#"{{"kind":"{kind}","content":"x","confidence":1,"extractor_model":"m","extractor_version":"1"}}"#
            )
        };
        for kind in ["test_results", "Test Results", "build_status", "audit_counts", "formatter-status"] {
            let refusal = Proposition::parse(request(kind)).unwrap_err();
            assert_eq!(refusal, Refusal::RunSnapshot(kind.to_owned()));
            assert!(refusal.to_string().contains("stays in the task's history"));
        }
        for kind in ["workflow", "project_fact", "resolution", "finding"] {
            Proposition::parse(request(kind)).unwrap();
        }
        assert_eq!(
            Proposition::parse(request("opinion")).unwrap_err(),
            Refusal::UnknownKind("opinion".to_owned())
        );
    }

    #[test]
    fn the_bytes_are_kept_as_they_were_written() {
        let odd = "{ \"extractor_version\":\"1\",\n\"content\":\"\\u0041 b\", \"confidence\":0.50, \
                   \"kind\":\"finding\",\"extractor_model\":\"m\"}";
        let proposition = Proposition::parse(odd).unwrap();
        assert_eq!(proposition.request().0, odd.as_bytes());
        assert_eq!(proposition.draft().content, "A b");
        assert_eq!(Proposition::stored(proposition.request()), Some(proposition));
        for wrong in ["", "[]", "{}", "{\"kind\":1}", &odd.replace("kind", "k\\u0069nd\":\"finding\",\"kind")]
        {
            assert_eq!(Proposition::parse(wrong).unwrap_err().code(), "proposition.malformed", "{wrong}");
        }
        let more = odd.replace("\"kind\"", "\"vectors\":[],\"kind\"");
        assert_eq!(Proposition::parse(more.as_str()).unwrap_err(), Refusal::UnknownKey("vectors".to_owned()));
    }
}
