//! What a new owner records before anything else: its ownership, the end of the turns that were broken off, and what of
//! the recovery needs nobody.

use std::collections::HashSet;

use sessionlog_codec::event::{LoggedEvent, NewEvent, SessionOpened, TurnEnded, TurnOutcome};
use sessionlog_codec::ids::{NodeId, Position, Timestamp, TurnNo};

use super::{Availability, HostNeed, RecoveryState, Step, events, plan};
use crate::Projection;

/// A take-over, as a pure function of the log: the engine appends it, and a preview shows it.
#[derive(Clone, Debug)]
pub struct TakeOver {
    /// One frame.
    pub events: Vec<NewEvent>,
    /// The steps that are in it.
    pub steps: Vec<Step>,
    /// The turns that it ends as interrupted.
    pub turns: Vec<(NodeId, TurnNo)>,
    /// The state after it.
    pub after: RecoveryState,
}

impl TakeOver {
    /// The take-over of a log whose next record stands at `next`. Whether agents and models are still there is not asked
    /// yet, so nothing is blocked by it.
    #[must_use]
    pub fn of(state: &RecoveryState, next: Position, opened: SessionOpened) -> Self {
        let turns = open_turns(state);
        let after = state.clone();
        let mut take_over = Self { events: Vec::new(), steps: Vec::new(), turns, after };
        let ended = take_over.turns.iter().map(|(node, turn)| {
            let (outcome, stage, error) = (TurnOutcome::Interrupted, None, None);
            NewEvent::now(*node, TurnEnded { turn: *turn, outcome, stage, error })
        });
        let first = std::iter::once(NewEvent::now(NodeId::ROOT, opened)).chain(ended).collect();
        take_over.add(next, first);
        // No log leaves a state in which a step that was applied is planned again. A snapshot that somebody forged may, and
        // must not keep its session from being opened.
        let mut done: HashSet<Step> = HashSet::new();
        loop {
            let plan = plan(&take_over.after, &|_| Availability::Available);
            let free = plan.into_iter().filter(|step| step.needs_host() == HostNeed::Nothing);
            let free: Vec<Step> = free.filter(|step| done.insert(step.clone())).collect();
            let settled = events(&take_over.after, &free);
            if settled.is_empty() {
                return take_over;
            }
            take_over.steps.extend(free);
            take_over.add(next, settled);
        }
    }

    fn add(&mut self, first: Position, events: Vec<NewEvent>) {
        for new in &events {
            // A salvage may have left a conversation without its beginning: what recovery would record in it breaks a
            // law, and must not keep the rest from being taken over.
            let is_lawful = self.events.is_empty() || self.after.ledger().check(new).is_ok();
            let behind = u64::try_from(self.events.len()).unwrap_or(u64::MAX);
            let position = Position(first.0.saturating_add(behind));
            self.after.apply(&LoggedEvent {
                position,
                node: new.node,
                timestamp: Timestamp(0),
                time_origin: new.time_origin,
                cause: new.cause,
                event: new.event.clone(),
            });
            if is_lawful {
                self.events.push(new.clone());
            }
        }
    }
}

/// The turns that are open, by conversation. Of one whose beginning is lost, no turn can be ended.
#[must_use]
pub fn open_turns(state: &RecoveryState) -> Vec<(NodeId, TurnNo)> {
    let ledger = state.ledger();
    let nodes = ledger.nodes().filter(|node| ledger.is_open_node(*node));
    nodes.filter_map(|node| Some((node, ledger.open_turn(node)?))).collect()
}
