//! What a session goes on from: small folds of its log, which a snapshot keeps.

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{Event, LoggedEvent};
use sessionlog_codec::ids::{Epoch, IdempotencyKey, MessageNo, NodeId, Position};
use sessionlog_projections::compaction::{Calibration, RunningChildren};
use sessionlog_projections::context_index::ContextIndex;
use sessionlog_projections::questions::Questions;
use sessionlog_projections::recovery::RecoveryState;
use sessionlog_projections::{Projection, Recent, Summary};

use super::erasure::Erasures;

/// How many idempotency keys are remembered: those used last.
const KEYS_MAX: usize = 8192;
/// How many ownerships are remembered: the last ones.
pub(super) const OPENINGS_MAX: usize = 64;

/// What an append under an idempotency key gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keyed {
    pub(crate) first: Position,
    pub(crate) message_no: Option<MessageNo>,
}

/// The folds. None of them holds what was said.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Folds {
    pub(crate) recovery: RecoveryState,
    pub(crate) summary: Summary,
    pub(crate) calibration: Calibration,
    pub(crate) running: RunningChildren,
    pub(crate) questions: Questions,
    pub(crate) erasures: Erasures,
    /// How many records are erased.
    pub(crate) erased: u64,
    /// The root's current run, in the host's words.
    pub(crate) run_id: Option<String>,
    pub(crate) keys: Recent<IdempotencyKey, Keyed, KEYS_MAX>,
    /// Where each ownership begins.
    pub(crate) openings: Recent<Epoch, Position, OPENINGS_MAX>,
    pub(crate) contexts: ContextIndex,
}

impl Folds {
    /// The folds without what of them is old and settled, with the `messages` newest of each conversation.
    pub(crate) fn bounded(&self, messages: u64) -> Self {
        Self {
            recovery: self.recovery.bounded(messages),
            summary: self.summary.clone(),
            calibration: self.calibration.clone(),
            running: self.running.clone(),
            questions: self.questions.clone(),
            erasures: self.erasures.bounded(),
            erased: self.erased,
            run_id: self.run_id.clone(),
            keys: self.keys.clone(),
            openings: self.openings.clone(),
            contexts: self.contexts.clone(),
        }
    }

    pub(crate) fn remember_key(&mut self, key: IdempotencyKey, event: &LoggedEvent) {
        let message_no = match &event.event {
            Event::MessageAppended(message) => Some(message.message_no),
            _ => None,
        };
        if self.keys.get(&key).is_none() {
            self.keys.insert(key, Keyed { first: event.position, message_no });
        }
    }
}

impl Projection for Folds {
    fn apply(&mut self, event: &LoggedEvent) {
        self.recovery.apply(event);
        self.summary.apply(event);
        self.calibration.apply(event);
        self.running.apply(event);
        self.questions.apply(event);
        self.erasures.apply(event);
        self.contexts.apply(event);
        match &event.event {
            Event::Erased { .. } => self.erased = self.erased.saturating_add(1),
            Event::SessionOpened(opened) => drop(self.openings.insert(opened.epoch, event.position)),
            Event::RunStarted(run) if event.node == NodeId::ROOT => self.run_id = Some(run.run_id.clone()),
            _ => {}
        }
    }
}
