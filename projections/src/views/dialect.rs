//! In whose words the JSON views are written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// In whose words `transcript.jsonl` and `.meta.json` are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dialect {
    /// As the page on sessions documents them: `seed`.
    #[default]
    #[serde(rename = "seed")]
    Seed,
    /// As the crate recursive-agent 0.8 writes and reads them: `recursive-0.8`.
    #[serde(rename = "recursive-0.8")]
    Recursive08,
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Seed => "seed",
            Self::Recursive08 => "recursive-0.8",
        })
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Self, UnknownDialect> {
        match name.to_ascii_lowercase().as_str() {
            "seed" => Ok(Self::Seed),
            "recursive-0.8" | "recursive" => Ok(Self::Recursive08),
            _ => Err(UnknownDialect),
        }
    }
}

/// The name is that of no dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such dialect: there are seed and recursive-0.8")]
pub struct UnknownDialect;
