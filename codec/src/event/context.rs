//! What the model is shown: compaction, trimming, resets, the provider's own continuation state, usage.

use serde::{Deserialize, Serialize};

use super::message::{Part, Role, SourceIds, Usage};
use crate::ids::{CallRef, MessageNo};
use crate::raw::RawBytes;

/// Messages `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MessageRange {
    /// The first message.
    pub first: MessageNo,
    /// The last message.
    pub last: MessageNo,
}

impl MessageRange {
    /// Whether `message_no` is in the range.
    #[must_use]
    pub fn contains(&self, message_no: MessageNo) -> bool {
        self.first <= message_no && message_no <= self.last
    }
}

/// Why a context was compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionTrigger {
    /// It was about to outgrow the model's window.
    Auto,
    /// A person or the host asked for it.
    Manual,
    /// The provider refused it as too long.
    Overflow,
}

/// `context.compacted`: from here on the model is shown the summary, then the kept messages, then what is appended
/// later. One event, so that a crash leaves the old context or the new one. The transcript is not touched. Appended
/// by the host (or an importer) once the summary exists; a failed attempt appends nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextCompacted {
    /// The host's id of the compaction.
    pub compaction_id: String,
    /// The summary. Empty: the older messages just leave the context.
    pub summary: Vec<Part>,
    /// Who speaks the summary: system or user, as the host sends it.
    pub summary_role: Role,
    /// The messages that stay, verbatim, with their results; ascending, not overlapping.
    pub kept: Vec<MessageRange>,
    /// The messages that the summary stands for.
    pub replaced: Vec<MessageRange>,
    /// Tokens of the context before.
    pub tokens_before: Option<u64>,
    /// Tokens of the context after.
    pub tokens_after: Option<u64>,
    /// Why.
    pub trigger: CompactionTrigger,
    /// The model that wrote the summary.
    pub model: Option<String>,
    /// What writing it used.
    pub usage: Option<Usage>,
    /// The policy's numbers and the planner's inputs, as the host's JSON.
    pub inputs: Option<RawBytes>,
    /// Where it was imported from.
    pub source: Option<SourceIds>,
}

/// `context.trimmed`: bodies of old tool results are shown to the model as a placeholder from here on. Appended by
/// hosts that clear results before they compact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextTrimmed {
    /// The calls whose results are trimmed.
    pub calls: Vec<CallRef>,
    /// What the model is shown instead.
    pub placeholder: String,
    /// Tokens saved, as the host counts them.
    pub tokens_saved: Option<u64>,
    /// Where it was imported from.
    pub source: Option<SourceIds>,
}

/// `context.reset`: the model is shown nothing of what came before. Appended by the host for a new model or a fresh
/// start within a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextReset {
    /// Why, for people.
    pub reason: String,
}

/// `replay.attached`: the provider's own items of a response, to be sent back verbatim. Dropped from the context (never
/// from the log) when model, API or compaction invalidate them. Appended by the host with the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayAttached {
    /// The message they belong to.
    pub message_no: MessageNo,
    /// The model that made them.
    pub model: String,
    /// The API they belong to (`responses`).
    pub api_mode: String,
    /// The items, byte for byte.
    pub items: Vec<RawBytes>,
}

/// `affinity.set`: where the conversation is cached or continued at its provider. Appended by the host, per node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffinitySet {
    /// The model.
    pub model: String,
    /// The cache's or conversation's key.
    pub key: String,
    /// The API.
    pub api_mode: Option<String>,
    /// Which candidate of a fallback group.
    pub candidate: Option<u32>,
}

/// `affinity.cleared`: the provider's state is not to be continued. Appended by the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffinityCleared {
    /// Why, for people.
    pub reason: String,
}

/// `usage.recorded`: what one request used, where no message carries it (a request that failed, a summary, a title).
/// One request is recorded once: here or with its message, never both. Appended by the host; derives totals and
/// the calibration of the token estimate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecorded {
    /// The request's id: a repeated one replaces the record before.
    pub request_id: String,
    /// The message whose cost this is, where a message carries the tokens and only the price is new.
    pub message_no: Option<MessageNo>,
    /// The model.
    pub model: Option<String>,
    /// The tokens.
    pub usage: Option<Usage>,
    /// The price in billionths of a US dollar; `None`: not known, which is not 0.
    pub cost_nano_usd: Option<u64>,
    /// How long the request took, in milliseconds.
    pub latency_ms: Option<u64>,
    /// The host's own estimate of the prompt's tokens before sending.
    pub estimated_input: Option<u64>,
    /// The model's window, in tokens.
    pub window: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Off by one, and a compaction hides a message that the summary does not speak of, or shows one twice.
    #[test]
    fn a_range_has_its_first_and_its_last() {
        let range = MessageRange { first: MessageNo(3), last: MessageNo(5) };
        let inside: Vec<_> = (1..8).filter(|number| range.contains(MessageNo(*number))).collect();
        assert_eq!(inside, [3, 4, 5]);
    }
}
