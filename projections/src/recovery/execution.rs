//! Executions of plans: where each stands, and what going on with one means. Whether it goes on is a person's choice,
//! so no plan of recovery does it by itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{
    Event, LoggedEvent, NewEvent, PlanAdvanced, PlanApproved, PlanPhase, PlanResumed,
};
use sessionlog_codec::ids::{NodeId, Position};

use crate::Projection;

/// What the next attempt at an interrupted task is told.
const INTERRUPTED: &str = "The attempt before this one was interrupted, and nobody knows how far it got. Look at the \
     workspace before you change anything.";

/// Where an execution stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionStanding {
    /// It can be gone on with.
    #[default]
    Active,
    /// All its tasks are done.
    Completed,
    /// A person gave it up.
    Discarded,
    /// The conversation it belongs to was cleared.
    Cleared,
}

/// One execution of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// Its conversation.
    pub node: NodeId,
    /// Where it was approved.
    pub position: Position,
    /// What it is for, and the plan; `None`: its approval is not in the log.
    pub approved: Option<PlanApproved>,
    /// The phase it reached last; `None`: none yet.
    pub reached: Option<PlanAdvanced>,
    /// What was found out, in order.
    pub facts: Vec<String>,
    /// How often it was gone on with.
    pub resume_count: u32,
    /// Where it stands.
    pub standing: ExecutionStanding,
    /// The tasks' results, as the host's JSON, once it has completed.
    pub results: Option<RawBytes>,
}

/// All executions of a session. Derives from `plan.*` and `run.started`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executions {
    by_id: BTreeMap<String, Execution>,
}

impl Executions {
    /// All of them with their ids, in the order in which they began.
    #[must_use]
    pub fn all(&self) -> Vec<(&str, &Execution)> {
        let mut all: Vec<_> = self.by_id.iter().map(|(id, execution)| (id.as_str(), execution)).collect();
        all.sort_by_key(|(_, execution)| execution.position);
        all
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, execution_id: &str) -> Option<&Execution> {
        self.by_id.get(execution_id)
    }

    /// What a person's choice to go on appends, as one frame. A task that was being carried out gets another attempt,
    /// which is told to look first; it is never repeated blindly. A result that waits for its review still does. Empty if
    /// the execution is not active.
    #[must_use]
    pub fn resume(&self, execution_id: &str) -> Vec<NewEvent> {
        let active = self.get(execution_id).filter(|it| it.standing == ExecutionStanding::Active);
        let Some(execution) = active else { return Vec::new() };
        let resume_count = execution.resume_count.saturating_add(1);
        let resumed = PlanResumed { execution_id: execution_id.to_owned(), resume_count };
        let running = execution.reached.as_ref().filter(|reached| reached.phase == PlanPhase::Running);
        let again = running.map(|reached| PlanAdvanced {
            phase: PlanPhase::Pending,
            attempt: reached.attempt.saturating_add(1),
            feedback: Some(INTERRUPTED.to_owned()),
            pending_result: None,
            ..reached.clone()
        });
        let mut events = vec![NewEvent::now(execution.node, resumed)];
        events.extend(again.map(|again| NewEvent::now(execution.node, again)));
        events
    }

    fn entry(&mut self, logged: &LoggedEvent, execution_id: &str) -> &mut Execution {
        let (node, position) = (logged.node, logged.position);
        let new = || Execution { node, position, ..Execution::default() };
        self.by_id.entry(execution_id.to_owned()).or_insert_with(new)
    }

    fn end(&mut self, logged: &LoggedEvent, execution_id: &str, standing: ExecutionStanding) {
        let execution = self.entry(logged, execution_id);
        if execution.standing == ExecutionStanding::Active {
            execution.standing = standing;
        }
    }
}

impl Projection for Executions {
    fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            Event::PlanApproved(approved) => {
                self.entry(logged, &approved.execution_id).approved.get_or_insert_with(|| approved.clone());
            }
            Event::PlanAdvanced(advanced) => {
                self.entry(logged, &advanced.execution_id).reached = Some(advanced.clone());
            }
            Event::PlanFact(fact) => {
                self.entry(logged, &fact.execution_id).facts.push(fact.fact.clone());
            }
            Event::PlanResumed(resumed) => {
                let execution = self.entry(logged, &resumed.execution_id);
                execution.resume_count = execution.resume_count.max(resumed.resume_count);
            }
            Event::PlanDiscarded(discarded) => {
                self.end(logged, &discarded.execution_id, ExecutionStanding::Discarded);
            }
            Event::PlanCompleted(completed) => {
                self.end(logged, &completed.execution_id, ExecutionStanding::Completed);
                self.entry(logged, &completed.execution_id).results = Some(completed.results.clone());
            }
            Event::RunStarted(_) => {
                let here = self.by_id.values_mut().filter(|it| it.node == logged.node);
                for execution in here.filter(|it| it.standing == ExecutionStanding::Active) {
                    execution.standing = ExecutionStanding::Cleared;
                }
            }
            _ => {}
        }
    }
}
