//! What is asked of memory.

use std::collections::BTreeSet;
use std::time::Duration;

use sessionlog_codec::event::Role;
use sessionlog_codec::ids::{NodeId, SessionId, Timestamp};

use super::record::{MemoryKind, MemoryRecord, MemoryStatus};
use super::tokens::{Tokens, tokens};

/// The most records that one search gives.
const LIMIT_MAX: usize = 1000;
/// The longest text of a query, in bytes.
const TEXT_LEN_MAX: usize = 64 << 10;
/// The most components of a vector.
const COMPONENTS_MAX: usize = 64 << 10;

/// In which order records are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemorySort {
    /// The best first; without text and vector, the newest. Of equals the newer, by time, and of one time and session by
    /// position; then the session's id decides.
    #[default]
    Relevance,
    /// The newest first.
    Newest,
    /// The oldest first.
    Oldest,
}

/// How much more a newer record counts: its score is multiplied by `1 + weight * 2^(-age / half_life)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recency {
    /// How much more one of this moment counts: 1 is twice as much.
    pub weight: f64,
    /// The age at which half of that is left.
    pub half_life: Duration,
}

/// A vector to find near ones of.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryVector {
    /// The embedding model. Vectors of other models, or of another length, are not looked at.
    pub model: String,
    /// Its components.
    pub components: Vec<f32>,
    /// What a rank by it counts beside a rank by text, which counts 1.
    pub weight: f64,
}

/// Which records are looked at: those that have one of each list that is not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryFilter {
    /// Of these sessions.
    pub sessions: BTreeSet<SessionId>,
    /// Of these conversations of their sessions.
    pub nodes: BTreeSet<NodeId>,
    /// Of these kinds.
    pub kinds: BTreeSet<MemoryKind>,
    /// Said by these.
    pub roles: Vec<Role>,
    /// Of these tools (or agents).
    pub tools: BTreeSet<String>,
    /// Standing so.
    pub statuses: BTreeSet<MemoryStatus>,
    /// With these tags.
    pub tags: BTreeSet<String>,
    /// Not before this moment.
    pub since: Option<Timestamp>,
    /// Not after this moment.
    pub until: Option<Timestamp>,
}

impl MemoryFilter {
    /// Whether a record is looked at.
    #[must_use]
    pub fn takes(&self, record: &MemoryRecord) -> bool {
        let tool = || record.tool.as_ref().is_some_and(|tool| self.tools.contains(tool));
        let role = || record.role.is_some_and(|role| self.roles.contains(&role));
        takes(&self.sessions, &record.id.session)
            && takes(&self.nodes, &record.node)
            && takes(&self.kinds, &record.kind)
            && takes(&self.statuses, &record.status)
            && (self.roles.is_empty() || role())
            && (self.tools.is_empty() || tool())
            && (self.tags.is_empty() || record.tags.iter().any(|tag| self.tags.contains(tag)))
            && self.since.is_none_or(|since| record.at >= since)
            && self.until.is_none_or(|until| record.at <= until)
    }
}

fn takes<T: Ord>(wanted: &BTreeSet<T>, value: &T) -> bool {
    wanted.is_empty() || wanted.contains(value)
}

/// A search.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryQuery {
    /// The words to find, any of them. Blank: no words are looked for.
    pub text: String,
    /// A vector to find near ones of.
    pub vector: Option<QueryVector>,
    /// Which records are looked at.
    pub filter: MemoryFilter,
    /// How much more newer ones count.
    pub recency: Option<Recency>,
    /// The order.
    pub sort: MemorySort,
    /// How many are given at most: 1 to 1000.
    pub limit: usize,
    /// How many are left out before the first that is given.
    pub offset: usize,
    /// The longest excerpt, in characters. 0: none.
    pub excerpt_chars: usize,
}

impl Default for MemoryQuery {
    /// All records, the newest first, 8 of them, with excerpts of up to 1,200 characters.
    fn default() -> Self {
        Self {
            text: String::new(),
            vector: None,
            filter: MemoryFilter::default(),
            recency: None,
            sort: MemorySort::Relevance,
            limit: 8,
            offset: 0,
            excerpt_chars: 1200,
        }
    }
}

impl MemoryQuery {
    /// A search for words.
    #[must_use]
    pub fn of_text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// The words that are looked for, each once; `None`: no words are, so the text chooses nothing. A text without any word in
    /// it finds nothing.
    #[must_use]
    pub fn terms(&self) -> Option<Vec<String>> {
        if self.text.trim().is_empty() {
            return None;
        }
        let mut terms = BTreeSet::new();
        tokens(&self.text, Tokens::OfQuery, &mut |token| {
            terms.insert(token.to_owned());
        });
        Some(terms.into_iter().collect())
    }

    /// What is wrong with the query, in plain words.
    ///
    /// # Errors
    /// The first thing that is.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=LIMIT_MAX).contains(&self.limit) {
            return Err(format!("a search gives 1 to {LIMIT_MAX} records, not {}", self.limit));
        }
        if self.text.len() > TEXT_LEN_MAX {
            return Err(format!("a query of {} bytes: at most {TEXT_LEN_MAX} are taken", self.text.len()));
        }
        if let Some(vector) = &self.vector {
            check_components(&vector.components)?;
            if !vector.weight.is_finite() || vector.weight < 0.0 {
                return Err(format!("a vector's weight is 0 or more, not {}", vector.weight));
            }
        }
        match &self.recency {
            Some(recency) if !recency.weight.is_finite() || recency.weight < 0.0 => {
                Err(format!("the weight of recency is 0 or more, not {}", recency.weight))
            }
            Some(recency) if recency.half_life.is_zero() => {
                Err("the half-life of recency is longer than 0".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// What is wrong with the components of a vector, in plain words.
///
/// # Errors
/// The first thing that is.
pub fn check_components(components: &[f32]) -> Result<(), String> {
    if components.is_empty() || components.len() > COMPONENTS_MAX {
        return Err(format!("a vector has 1 to {COMPONENTS_MAX} components, not {}", components.len()));
    }
    if components.iter().any(|component| !component.is_finite()) {
        return Err("a component of the vector is not a number, or is infinite".to_owned());
    }
    if components.iter().all(|component| *component == 0.0) {
        return Err("all components of the vector are 0: it points nowhere".to_owned());
    }
    Ok(())
}
