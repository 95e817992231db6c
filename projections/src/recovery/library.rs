//! What learning left half done: submissions without an answer, decisions without effect.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{Event, LearnSlotPending, LoggedEvent, PropositionDecided};

use super::Step;

/// Pending submissions (of a tree's log) and decisions that were not applied (of the user's log).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LibraryWork {
    /// By segment and slot: the first one, whose request the library may have.
    slots: BTreeMap<(String, u32), LearnSlotPending>,
    decided: BTreeMap<String, PropositionDecided>,
}

impl LibraryWork {
    pub(super) fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            // What was under way is under way where it was forked from.
            Event::SessionForked(_) => *self = Self::default(),
            Event::LearnSlotPending(pending) => {
                let key = (pending.segment_id.clone(), pending.slot);
                self.slots.entry(key).or_insert_with(|| pending.clone());
            }
            Event::LearnSlotDone(done) => {
                self.slots.remove(&(done.segment_id.clone(), done.slot));
            }
            Event::LearnCommitted(committed) => {
                self.slots.retain(|(segment_id, _), _| *segment_id != committed.segment_id);
            }
            // The first decision stands, also when applying it failed: nobody is asked a second time.
            Event::PropositionDecided(decided) => {
                self.decided.entry(decided.key.clone()).or_insert_with(|| decided.clone());
            }
            Event::PropositionApplied(applied) => {
                self.decided.remove(&applied.key);
            }
            _ => {}
        }
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        let slots = self.slots.keys();
        let slots =
            slots.map(|(segment_id, slot)| Step::ReplaySlot { segment_id: segment_id.clone(), slot: *slot });
        slots.chain(self.decided.keys().map(|key| Step::ApplyDecision { key: key.clone() }))
    }

    pub(super) fn slot(&self, segment_id: &str, slot: u32) -> Option<&LearnSlotPending> {
        self.slots.get(&(segment_id.to_owned(), slot))
    }

    pub(super) fn decision(&self, key: &str) -> Option<&PropositionDecided> {
        self.decided.get(key)
    }
}
