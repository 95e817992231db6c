//! `plan-execution.json`: where the execution of an approved plan stands.

use sessionlog_codec::event::{PlanAdvanced, PlanPhase};

use super::error::QError;
use super::object::{Fields, Json, Object, Place, Text};
use super::session::unsupported;

const VERSION: &str = "1";

/// The execution of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanFile {
    /// When it was saved, as it is written there (RFC 3339).
    pub updated_at: String,
    /// Where it stands.
    pub checkpoint: Checkpoint,
    /// Keys that are not known.
    pub unknown: Object,
}

/// Where the execution of a plan stands. What only q reads is passed on unread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The execution.
    pub execution_id: String,
    /// The run it belongs to.
    pub run_id: String,
    /// What it is for.
    pub objective: String,
    /// `target`, `coder_pending`, `coder_running`, `review_pending` or `completed`.
    pub phase: String,
    /// The plan.
    pub plan: Option<Json>,
    /// Which task of the plan, from 0.
    pub task_index: u32,
    /// Which attempt at it.
    pub attempt: u32,
    /// The targets worked out.
    pub resolved_targets: Vec<Json>,
    /// What the reviewer wants changed.
    pub feedback: String,
    /// The result that waits for its review.
    pub pending_result: Option<Json>,
    /// How many tasks are done.
    pub completed_tasks: Option<Json>,
    /// How many attempts there were.
    pub attempts: Option<Json>,
    /// The same of the current task.
    pub task_attempts: Option<Json>,
    /// How often it was gone on with.
    pub resume_count: u32,
    /// The tasks that are done, with their results.
    pub tasks: Option<Json>,
    /// Keys that are not known.
    pub unknown: Object,
}

const KEYS: &[&str] = &[
    "execution_id",
    "run_id",
    "objective",
    "phase",
    "plan",
    "task_index",
    "attempt",
    "resolved_targets",
    "feedback",
    "pending_result",
    "completed_tasks",
    "attempts",
    "task_attempts",
    "resume_count",
    "tasks",
];

/// What the phase of an execution is called once all its tasks are done.
pub(super) const COMPLETED: &str = "completed";

/// What q calls a phase.
pub(super) fn phase_word(phase: PlanPhase) -> &'static str {
    match phase {
        PlanPhase::Target => "target",
        PlanPhase::Pending => "coder_pending",
        PlanPhase::Running => "coder_running",
        PlanPhase::Review => "review_pending",
    }
}

impl PlanFile {
    /// Reads an execution. `file` is the file's name, for errors.
    ///
    /// # Errors
    /// If it is no JSON object, of another version, if a known key is of another type than it should be, or if the phase
    /// is not one of q's.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, QError> {
        let place = Place::top(file);
        let object = Object::read(bytes, &place)?;
        if object.get("version").is_none_or(|version| version.get() != VERSION) {
            return Err(unsupported(&object, VERSION, &place));
        }
        let fields = Fields { object: &object, place: &place };
        let checkpoint = fields.object("checkpoint")?.unwrap_or_default();
        Ok(Self {
            updated_at: fields.string("updated_at")?,
            checkpoint: Checkpoint::of_object(&checkpoint, &place.below("checkpoint"))?,
            unknown: object.without(&["version", "updated_at", "checkpoint"]),
        })
    }

    /// The file as q lays it out.
    #[must_use]
    pub fn to_json(&self) -> String {
        let text = Text::new().put("version", &1).filled("updated_at", &self.updated_at);
        let text = text.written("checkpoint", &self.checkpoint.to_json()).rest(&self.unknown);
        super::write::laid_out(&text.end())
    }
}

impl Checkpoint {
    fn of_object(object: &Object, place: &Place<'_>) -> Result<Self, QError> {
        let fields = Fields { object, place };
        let checkpoint = Self {
            execution_id: fields.string("execution_id")?,
            run_id: fields.string("run_id")?,
            objective: fields.string("objective")?,
            phase: fields.string("phase")?,
            plan: object.get("plan").cloned(),
            task_index: fields.small("task_index")?.unwrap_or_default(),
            attempt: fields.small("attempt")?.unwrap_or_default(),
            resolved_targets: fields.list("resolved_targets")?,
            feedback: fields.string("feedback")?,
            pending_result: object.get("pending_result").cloned(),
            completed_tasks: object.get("completed_tasks").cloned(),
            attempts: object.get("attempts").cloned(),
            task_attempts: object.get("task_attempts").cloned(),
            resume_count: fields.small("resume_count")?.unwrap_or_default(),
            tasks: object.get("tasks").cloned(),
            unknown: object.without(KEYS),
        };
        if checkpoint.is_completed() || checkpoint.phase().is_some() {
            return Ok(checkpoint);
        }
        Err(QError::Field {
            file: place.file.to_owned(),
            field: place.below("phase").field,
            expected: "target, coder_pending, coder_running, review_pending or completed",
            found: format!("{:?}", checkpoint.phase),
        })
    }

    /// Whether all tasks are done.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.phase == COMPLETED
    }

    fn phase(&self) -> Option<PlanPhase> {
        [PlanPhase::Target, PlanPhase::Pending, PlanPhase::Running, PlanPhase::Review]
            .into_iter()
            .find(|phase| phase_word(*phase) == self.phase)
    }

    /// The phase as an event; `None` once the execution has completed.
    #[must_use]
    pub fn to_advanced(&self) -> Option<PlanAdvanced> {
        let target = |target: &Json| target.string().unwrap_or_else(|| target.get().to_owned());
        Some(PlanAdvanced {
            execution_id: self.execution_id.clone(),
            phase: self.phase()?,
            task_index: self.task_index,
            attempt: self.attempt,
            targets: self.resolved_targets.iter().map(target).collect(),
            feedback: (!self.feedback.is_empty()).then(|| self.feedback.clone()),
            pending_result: self.pending_result.as_ref().map(|result| result.get().into()),
        })
    }

    fn to_json(&self) -> String {
        let targets = (!self.resolved_targets.is_empty()).then_some(&self.resolved_targets);
        Text::new()
            .put("execution_id", &self.execution_id)
            .put("run_id", &self.run_id)
            .put("objective", &self.objective)
            .put("phase", &self.phase)
            .some("plan", self.plan.as_ref())
            .put("task_index", &self.task_index)
            .put("attempt", &self.attempt)
            .some("resolved_targets", targets)
            .filled("feedback", &self.feedback)
            .some("pending_result", self.pending_result.as_ref())
            .some("completed_tasks", self.completed_tasks.as_ref())
            .some("attempts", self.attempts.as_ref())
            .some("task_attempts", self.task_attempts.as_ref())
            .put("resume_count", &self.resume_count)
            .some("tasks", self.tasks.as_ref())
            .rest(&self.unknown)
            .end()
    }
}
