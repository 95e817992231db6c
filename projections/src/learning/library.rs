//! The library, folded from the user's log: propositions from submission to effect, and the entries that came of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{
    Event, LibraryAction, LoggedEvent, PropositionApplied, PropositionDecided, PropositionKind,
    PropositionSubmitted,
};
use sessionlog_codec::ids::{Digest, Position, Timestamp};

use super::proposition::{Draft, Proposition, QUERIES_MAX, REFS_MAX, TAGS_MAX};
use super::ranking::{scores, words};

/// Characters of an error that are kept.
const ERROR_CHARS_MAX: usize = 2048;

/// A piece of knowledge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its id: of the proposition that created it.
    pub entry_id: String,
    /// What kind of knowledge it is.
    pub kind: PropositionKind,
    /// The knowledge, as it was first said.
    pub content: String,
    /// Questions that it answers.
    pub queries: Vec<String>,
    /// Labels.
    pub tags: Vec<String>,
    /// What it is drawn from.
    pub refs: Vec<String>,
    /// The greatest confidence that any proposition of it had.
    pub confidence: f64,
    /// The model that drew it first.
    pub extractor_model: String,
    /// The version of the prompt that it was drawn by.
    pub extractor_version: String,
    /// How many propositions it stands for.
    pub propositions: u32,
    /// When it was created: by the log, not a part of what is stored with it.
    #[serde(skip)]
    pub created_at: Timestamp,
    /// When it was last merged into.
    #[serde(skip)]
    pub updated_at: Timestamp,
}

/// What the library did with a proposition, for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// What.
    pub action: LibraryAction,
    /// The entry that it became or was merged into.
    pub entry_id: Option<String>,
}

/// How far a proposition is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has judged it.
    Submitted,
    /// It is judged, and the decision is not in effect yet. It is not judged again.
    Decided(PropositionDecided),
    /// The decision is in effect.
    Applied(Receipt),
}

/// A proposition that was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filed {
    /// Its key.
    pub key: String,
    /// Where it was submitted.
    pub position: Position,
    /// The hash of its request.
    pub request_digest: Digest,
    /// Its request, byte for byte, until it is applied.
    pub request: Option<RawBytes>,
    /// How far it is.
    pub standing: Standing,
    /// How often judging or applying it failed.
    pub attempts: u32,
    /// The error of the last time.
    pub last_error: Option<String>,
}

/// What a submission under a key would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submission {
    /// The first one.
    New,
    /// The same request again.
    Known(Standing),
    /// Another request under the same key.
    Conflict {
        /// The hash of the first one.
        known: Digest,
    },
}

/// Why a decision is not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotApplied {
    /// There is no such proposition.
    #[error("there is no proposition `{0}`")]
    Unknown(String),
    /// Nobody has judged it.
    #[error("the proposition `{0}` is not judged yet")]
    NotDecided(String),
    /// It is in effect already.
    #[error("the decision about `{0}` is in effect already")]
    Done(String),
    /// Its request can't be read.
    #[error("the request of `{0}` can't be read as a proposition")]
    Unreadable(String),
}

/// A decision as it takes effect.
pub type Applied = PropositionApplied;

/// How much newer entries are preferred.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recency {
    /// The share of a score that age decides, from 0 (none) to 1.
    pub weight: f64,
    /// After how many hours half of it is gone.
    pub half_life_hours: f64,
}

impl Default for Recency {
    /// A quarter, and 30 days.
    fn default() -> Self {
        Self { weight: 0.25, half_life_hours: 720.0 }
    }
}

impl Recency {
    /// Age does not matter.
    pub const NONE: Self = Self { weight: 0.0, half_life_hours: 720.0 };

    fn blend(self, likeness: f64, age_hours: f64) -> f64 {
        let weight = if self.weight.is_finite() { self.weight.clamp(0.0, 1.0) } else { 0.0 };
        let half_life = if self.half_life_hours > 0.0 { self.half_life_hours } else { f64::MIN_POSITIVE };
        let freshness = (-age_hours.max(0.0) / half_life).exp2();
        (1.0 - weight) * likeness + weight * freshness
    }
}

/// What a search looks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchOptions {
    /// At most so many.
    pub limit: usize,
    /// How much newer entries are preferred.
    pub recency: Recency,
}

impl Default for SearchOptions {
    /// Ten, newer ones preferred.
    fn default() -> Self {
        Self { limit: 10, recency: Recency::default() }
    }
}

/// An entry that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The entry.
    pub entry: Entry,
    /// How well it fits, from 0 to 1.
    pub score: f64,
}

/// The library. Any sequence of events is accepted: the first submission, the first decision and the first effect of a key
/// stand, and what they do not bear out is left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LibraryState {
    filed: BTreeMap<String, Filed>,
    /// The keys of those that are not applied, in the order of their submission.
    open: BTreeMap<Position, String>,
    entries: BTreeMap<String, Entry>,
    /// Entries that a person removed: they don't come back.
    deleted: BTreeSet<String>,
}

/// The id of the entry that a proposition creates.
#[must_use]
pub fn entry_id(key: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("sessionlog 2026 library entry v1");
    hasher.update(key.as_bytes());
    let hash: String = hasher.finalize().to_hex().chars().take(32).collect();
    format!("prop-{hash}")
}

impl LibraryState {
    /// Folds one event of the user's log.
    pub fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            Event::PropositionSubmitted(submitted) => self.file(logged.position, submitted),
            Event::PropositionDecided(decided) => {
                if let Some(filed) = self.filed.get_mut(&decided.key)
                    && filed.standing == Standing::Submitted
                {
                    filed.standing = Standing::Decided(decided.clone());
                }
            }
            Event::PropositionApplied(applied) => self.take_effect(logged.timestamp, applied),
            Event::PropositionFailed(failed) => {
                if let Some(filed) = self.filed.get_mut(&failed.key) {
                    filed.attempts = filed.attempts.saturating_add(1);
                    filed.last_error = Some(failed.error.chars().take(ERROR_CHARS_MAX).collect());
                }
            }
            Event::PropositionDeleted(deleted) => self.remove(&deleted.entry_id),
            _ => {}
        }
    }

    fn remove(&mut self, entry_id: &str) {
        if self.entries.remove(entry_id).is_some() {
            self.deleted.insert(entry_id.to_owned());
        }
    }

    fn file(&mut self, position: Position, submitted: &PropositionSubmitted) {
        let PropositionSubmitted { key, kind: _, request_digest, request } = submitted;
        if self.filed.contains_key(key) {
            return;
        }
        self.open.insert(position, key.clone());
        let filed = Filed {
            key: key.clone(),
            position,
            request_digest: *request_digest,
            request: Some(request.clone()),
            standing: Standing::Submitted,
            attempts: 0,
            last_error: None,
        };
        self.filed.insert(key.clone(), filed);
    }

    fn take_effect(&mut self, at: Timestamp, applied: &PropositionApplied) {
        let Some(filed) = self.filed.get_mut(&applied.key) else { return };
        let Standing::Decided(_) = &filed.standing else { return };
        let (action, id) = (applied.action, applied.entry_id.clone());
        filed.standing = Standing::Applied(Receipt { action, entry_id: id.clone() });
        filed.request = None;
        self.open.remove(&filed.position);
        let stored = applied.entry.as_ref().and_then(|entry| serde_json::from_slice::<Entry>(&entry.0).ok());
        let Some(mut entry) = stored.filter(|entry| Some(&entry.entry_id) == id.as_ref()) else { return };
        entry.updated_at = at;
        match (action, self.entries.get(&entry.entry_id)) {
            (LibraryAction::Create, None) if !self.deleted.contains(&entry.entry_id) => entry.created_at = at,
            (LibraryAction::Merge, Some(before)) => entry.created_at = before.created_at,
            _ => return,
        }
        self.entries.insert(entry.entry_id.clone(), entry);
    }

    /// A proposition.
    #[must_use]
    pub fn filed(&self, key: &str) -> Option<&Filed> {
        self.filed.get(key)
    }

    /// The propositions that are not in effect, in the order of their submission.
    pub fn open(&self) -> impl Iterator<Item = &Filed> {
        self.open.values().filter_map(|key| self.filed.get(key))
    }

    /// How many propositions are in effect: receipts are never forgotten.
    #[must_use]
    pub fn receipts(&self) -> usize {
        self.filed.len().saturating_sub(self.open.len())
    }

    /// The entries, by their ids.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// An entry.
    #[must_use]
    pub fn entry(&self, entry_id: &str) -> Option<&Entry> {
        self.entries.get(entry_id)
    }

    /// Whether a person removed an entry.
    #[must_use]
    pub fn is_deleted(&self, entry_id: &str) -> bool {
        self.deleted.contains(entry_id)
    }

    /// What submitting a request under a key would be.
    #[must_use]
    pub fn submission(&self, key: &str, digest: Digest) -> Submission {
        match self.filed.get(key) {
            None => Submission::New,
            Some(filed) if filed.request_digest == digest => Submission::Known(filed.standing.clone()),
            Some(filed) => Submission::Conflict { known: filed.request_digest },
        }
    }

    /// The proposition that is to be judged next: the oldest of those that failed least often, so that one that can't be
    /// judged holds no other back.
    #[must_use]
    pub fn next_to_judge(&self) -> Option<&Filed> {
        let waiting = self.open().filter(|filed| filed.standing == Standing::Submitted);
        waiting.min_by_key(|filed| (filed.attempts, filed.position))
    }

    /// The proposition whose decision is to be applied next.
    #[must_use]
    pub fn next_to_apply(&self) -> Option<&Filed> {
        self.open().find(|filed| matches!(filed.standing, Standing::Decided(_)))
    }

    /// The effect of a stored decision, as the library is now. Nothing is decided here: an entry that a person removed since
    /// is not merged into and does not come back, so the proposition goes with it.
    ///
    /// # Errors
    /// [`NotApplied`], if there is no decision to apply, or nothing to apply it to.
    pub fn effect(&self, key: &str) -> Result<Applied, NotApplied> {
        let filed = self.filed.get(key).ok_or_else(|| NotApplied::Unknown(key.to_owned()))?;
        let decided = match &filed.standing {
            Standing::Submitted => return Err(NotApplied::NotDecided(key.to_owned())),
            Standing::Applied(_) => return Err(NotApplied::Done(key.to_owned())),
            Standing::Decided(decided) => decided,
        };
        let discarded =
            Applied { key: key.to_owned(), entry_id: None, action: LibraryAction::Discard, entry: None };
        let target = decided.target.as_deref().and_then(|target| self.entries.get(target));
        let entry = match (decided.action, target) {
            (LibraryAction::Discard, _) | (LibraryAction::Merge, None) => return Ok(discarded),
            (LibraryAction::Create, _) => Entry::of(key, draft(filed)?),
            (LibraryAction::Merge, Some(target)) => target.merged(draft(filed)?),
        };
        if self.deleted.contains(&entry.entry_id) {
            return Ok(discarded);
        }
        let stored = serde_json::to_vec(&entry).map_err(|_| NotApplied::Unreadable(key.to_owned()))?;
        Ok(Applied {
            key: key.to_owned(),
            entry_id: Some(entry.entry_id),
            action: decided.action,
            entry: Some(RawBytes(stored)),
        })
    }

    /// The entries that share words with a query, the best first; of the same score, the newest.
    #[must_use]
    pub fn search(&self, query: &str, now: Timestamp, options: &SearchOptions) -> Vec<Found> {
        let entries: Vec<&Entry> = self.entries.values().collect();
        let documents: Vec<Vec<String>> = entries.iter().map(|entry| entry.words()).collect();
        let scores = scores(query, &documents);
        let best = scores.iter().copied().fold(0.0, f64::max);
        let fitting = entries.into_iter().zip(scores).filter(|(_, score)| *score > 0.0);
        let mut found: Vec<Found> = fitting
            .map(|(entry, score)| Found {
                entry: entry.clone(),
                score: options.recency.blend(score / best, hours(entry.updated_at, now)),
            })
            .collect();
        found.sort_by(|a, b| {
            let newer = (b.entry.updated_at, &a.entry.entry_id).cmp(&(a.entry.updated_at, &b.entry.entry_id));
            b.score.total_cmp(&a.score).then(newer)
        });
        found.truncate(options.limit);
        found
    }
}

fn hours(from: Timestamp, to: Timestamp) -> f64 {
    let seconds = to.0.saturating_sub(from.0) / 1_000_000;
    f64::from(i32::try_from(seconds).unwrap_or(i32::MAX)) / 3600.0
}

fn draft(filed: &Filed) -> Result<Draft, NotApplied> {
    let stored = filed.request.as_ref().and_then(Proposition::stored);
    let stored = stored.ok_or_else(|| NotApplied::Unreadable(filed.key.clone()))?;
    Ok(stored.draft().clone())
}

impl Entry {
    fn of(key: &str, draft: Draft) -> Self {
        let Draft { kind, content, queries, tags, refs, confidence, extractor_model, extractor_version } =
            draft;
        Self {
            entry_id: entry_id(key),
            kind,
            content,
            queries: union(&[], queries, QUERIES_MAX),
            tags: union(&[], tags, TAGS_MAX),
            refs: union(&[], refs, REFS_MAX),
            confidence,
            extractor_model,
            extractor_version,
            propositions: 1,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
        }
    }

    /// The content stays; what was there first stays first.
    fn merged(&self, draft: Draft) -> Self {
        Self {
            queries: union(&self.queries, draft.queries, QUERIES_MAX),
            tags: union(&self.tags, draft.tags, TAGS_MAX),
            refs: union(&self.refs, draft.refs, REFS_MAX),
            confidence: self.confidence.max(draft.confidence),
            propositions: self.propositions.saturating_add(1),
            ..self.clone()
        }
    }

    fn words(&self) -> Vec<String> {
        let texts = std::iter::once(&self.content).chain(&self.queries).chain(&self.tags);
        texts.flat_map(|text| words(text)).collect()
    }
}

fn union(before: &[String], more: Vec<String>, max: usize) -> Vec<String> {
    let mut all = before.to_vec();
    for text in more {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all.truncate(max);
    all
}
