//! What this process is at: what runs here is neither lost nor to be begun a second time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use sessionlog_codec::ids::{CallRef, NodeId};

/// Something that one thread of the owner is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claimed {
    /// A conversation: its model or its external agent is asked.
    Node(NodeId),
    /// A call: it runs, or is about to.
    Call(NodeId, CallRef),
    /// What is learned from the session.
    Learning,
}

/// All that threads of the owner are at.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<BTreeMap<Claimed, u32>>);

impl Claims {
    pub(super) fn take(&self, what: Claimed) -> Claim<'_> {
        self.change(what, |count| count.saturating_add(1));
        Claim { claims: self, what }
    }

    /// Takes what nobody may be at twice; `None` if somebody is.
    pub(super) fn take_alone(&self, what: Claimed) -> Option<Claim<'_>> {
        let mut held = self.lock();
        if held.contains_key(&what) {
            return None;
        }
        held.insert(what, 1);
        Some(Claim { claims: self, what })
    }

    pub(super) fn holds(&self, what: Claimed) -> bool {
        self.lock().contains_key(&what)
    }

    /// Whether any call of a conversation is claimed.
    pub(super) fn holds_call_of(&self, node: NodeId) -> bool {
        self.lock().keys().any(|claimed| matches!(claimed, Claimed::Call(of, _) if *of == node))
    }

    fn change(&self, what: Claimed, by: impl FnOnce(u32) -> u32) {
        let mut held = self.lock();
        let count = by(held.remove(&what).unwrap_or_default());
        if count > 0 {
            held.insert(what, count);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Claimed, u32>> {
        // Counting can't be cut off half-way by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As long as it is there, the thing is not begun by anybody else.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    what: Claimed,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.change(self.what, |count| count.saturating_sub(1));
    }
}
