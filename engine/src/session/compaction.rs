//! Compacting a conversation: planned, summarised by the host, and applied as one event, or not at all.

use sessionlog_codec::event::{AffinityCleared, NewEvent};
use sessionlog_codec::ids::NodeId;
use sessionlog_projections::compaction::{
    Attempt, Need, Pinned, Plan, PlanError, Policy, Rejected, accept, need, plan,
};

use super::Session;
use super::state::{State, Wanted};
use crate::error::{Error, ErrorKind, Result};
use crate::log::Receipt;

/// How a conversation is compacted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionSettings {
    /// The window of the model in tokens; `None`: what `usage.recorded` last said of the conversation's model.
    pub window: Option<u64>,
    /// The policy's numbers.
    pub policy: Policy,
    /// What must stay verbatim, beside open calls and the calls of running children, which always do.
    pub pinned: Pinned,
}

impl Session {
    /// Whether a conversation has to shrink before its model is asked again. Calibrated by what providers reported, also
    /// before a restart.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log can't be read.
    pub fn compaction_need(&self, node: NodeId, settings: &CompactionSettings) -> Result<Need> {
        let mut state = self.state()?;
        let context = self.content_of(&mut state, Wanted::Context(node))?.tree.context(node);
        let calibration = state.folds.calibration.of(node);
        let window = settings.window.or_else(|| calibration.window());
        Ok(need(&context, &calibration, window, &settings.policy))
    }

    /// Plans a compaction: what stays, and what a summariser is to read. Nothing is written.
    ///
    /// # Errors
    /// `Invalid` if there is nothing to gain or no room for a summary; `Io` or `Corrupt` if the log can't be read.
    pub fn plan_compaction(&self, node: NodeId, settings: &CompactionSettings) -> Result<Plan> {
        let mut state = self.state()?;
        self.content_of(&mut state, Wanted::Context(node))?;
        let window = settings.window.or_else(|| state.folds.calibration.of(node).window());
        let pinned = pinned(&state, node, &settings.pinned);
        let state = &mut *state;
        let calibration = state.folds.calibration.clone();
        let tree = &state.content(&self.log, Wanted::Context(node))?.tree;
        plan(tree, node, &pinned, &calibration, window, &settings.policy).map_err(not_planned)
    }

    /// Applies a compaction whose summary exists: checked against the conversation as it is now, then one frame, in which
    /// the provider's own continuation is ended too. Messages that came since the plan stay.
    ///
    /// # Errors
    /// `Invalid` if the summary is empty or too long; `Conflict` if what was summarised is not what the model is shown any
    /// more; else as [`append`](Self::append). Then the context is what it was.
    pub fn apply_compaction(&self, plan: &Plan, summary: &str, attempt: Attempt) -> Result<Receipt> {
        let mut state = self.state()?;
        let node = plan.node;
        let tree = &self.content_of(&mut state, Wanted::Context(node))?.tree;
        let compacted = accept(plan, tree, summary, attempt).map_err(rejected)?;
        let mut events = vec![NewEvent::now(node, compacted)];
        if state.folds.recovery.delegations().affinity(node).is_some() {
            let reason = "compacted".to_owned();
            events.push(NewEvent::now(node, AffinityCleared { reason }));
        }
        self.commit(&mut state, events, self.store.options.durability)?.wait(self, state)
    }
}

fn pinned(state: &State, node: NodeId, by_host: &Pinned) -> Pinned {
    let mut pinned = Pinned::of(node, state.ledger(), &state.folds.running);
    pinned.messages.extend(&by_host.messages);
    pinned.tools.extend(by_host.tools.iter().cloned());
    pinned.open.extend(&by_host.open);
    pinned.children.extend(&by_host.children);
    pinned
}

fn not_planned(error: PlanError) -> Error {
    let message = error.to_string();
    Error::with_source(ErrorKind::Invalid, "compaction.plan", message, error)
}

fn rejected(error: Rejected) -> Error {
    let kind = match error {
        Rejected::Outdated => ErrorKind::Conflict,
        _ => ErrorKind::Invalid,
    };
    let message = error.to_string();
    Error::with_source(kind, "compaction.rejected", message, error)
}
