//! Plans and their execution. A plan's content is the host's JSON; the phases are ours, since restarts depend on them.

use serde::{Deserialize, Serialize};

use crate::raw::RawBytes;

/// Where the execution of a plan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanPhase {
    /// A task's targets are worked out.
    Target,
    /// A task is about to be carried out.
    Pending,
    /// A task is being carried out: after a crash, nobody knows how far.
    Running,
    /// A task's result waits for its review.
    Review,
}

/// `plan.approved`: a person approved a plan. Appended by the host; a learning segment closes here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanApproved {
    /// The execution's id.
    pub execution_id: String,
    /// What it is for.
    pub objective: String,
    /// The plan, as the host's JSON.
    pub plan: RawBytes,
}

/// `plan.advanced`: the execution reached a phase. Appended by the host before it acts on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanAdvanced {
    /// The execution.
    pub execution_id: String,
    /// The phase.
    pub phase: PlanPhase,
    /// Which task of the plan, from 0.
    pub task_index: u32,
    /// Which attempt at the task, from 1.
    pub attempt: u32,
    /// The targets worked out.
    pub targets: Vec<String>,
    /// What the reviewer wants changed.
    pub feedback: Option<String>,
    /// The result that waits for its review, as the host's JSON.
    pub pending_result: Option<RawBytes>,
}

/// `plan.fact`: something that was found out while a plan ran, for its later tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanFact {
    /// The execution.
    pub execution_id: String,
    /// The fact.
    pub fact: String,
}

/// `plan.resumed`: an interrupted execution goes on. Appended by the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanResumed {
    /// The execution.
    pub execution_id: String,
    /// How often it was resumed, this time included.
    pub resume_count: u32,
}

/// `plan.discarded`: a person gave an execution up. No file is changed back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanDiscarded {
    /// The execution.
    pub execution_id: String,
    /// Why, for people.
    pub reason: String,
}

/// `plan.completed`: all tasks of a plan are done. Outlives the session in the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCompleted {
    /// The execution.
    pub execution_id: String,
    /// The tasks' results, as the host's JSON.
    pub results: RawBytes,
}
