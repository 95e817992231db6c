//! What a job reads: who said what, and the hash by which it is known again.

use std::fmt;

use sessionlog_codec::event::{Event, LearnBoundary, MessageAppended, Part, PlanApproved, TaskCompleted};
use sessionlog_codec::ids::{Digest, Position, SessionId};

use super::queue::Segment;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Speaker {
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The summary of a compaction.
    Summary,
    /// The report of a completed task.
    Task,
    /// A plan that was approved.
    Plan,
}

impl Speaker {
    /// The machine's word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Summary => "summary",
            Self::Task => "task_completed",
            Self::Plan => "plan_approved",
        }
    }
}

impl fmt::Display for Speaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One thing that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it stands in the session's log.
    pub position: Position,
    /// Who says it.
    pub speaker: Speaker,
    /// The text.
    pub text: String,
}

/// The text of an event that is learned from; `None` if it has none.
#[must_use]
pub fn learned_text(event: &Event) -> Option<String> {
    let text = match event {
        Event::MessageAppended(MessageAppended { parts, .. }) => parts_text(parts),
        Event::MessageExtended(extended) => parts_text(&extended.parts),
        Event::ContextCompacted(compacted) => parts_text(&compacted.summary),
        Event::TaskCompleted(task) => task_report(task),
        Event::PlanApproved(PlanApproved { objective, plan, .. }) => {
            format!("Objective: {objective}\nPlan: {}", plan.to_text())
        }
        _ => String::new(),
    };
    (!text.trim().is_empty()).then_some(text)
}

fn parts_text(parts: &[Part]) -> String {
    let texts =
        parts.iter().filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None });
    texts.collect::<Vec<_>>().join("\n\n")
}

fn task_report(task: &TaskCompleted) -> String {
    let TaskCompleted { outcome, summary, findings, artifacts, verification, blocker, report: _ } = task;
    let mut text = format!("Outcome: {outcome}\nSummary: {summary}");
    let mut more = |what: &str, said: &str| {
        text.push('\n');
        text.push_str(what);
        text.push_str(": ");
        text.push_str(said);
    };
    findings.iter().for_each(|it| more("Finding", it));
    artifacts.iter().for_each(|it| more("Made", it));
    verification.iter().for_each(|it| more("Checked", it));
    blocker.iter().for_each(|it| more("Blocked by", it));
    text
}

/// The hash of what a job reads. Two inputs that differ in anything a Thinker is shown have different ones.
#[must_use]
pub fn input_digest(segment: &Segment, lines: &[Line]) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("sessionlog 2026 learning input v1");
    let mut put = |bytes: &[u8]| {
        hasher.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(bytes);
    };
    put(segment.segment_id.as_bytes());
    put(boundary_word(segment.boundary).as_bytes());
    for line in lines {
        put(&line.position.0.to_le_bytes());
        put(line.speaker.word().as_bytes());
        put(line.text.as_bytes());
    }
    Digest(*hasher.finalize().as_bytes())
}

/// The key under which a slot's proposition is submitted: the same for every repetition of the request, another one for every
/// other slot, job and session.
#[must_use]
pub fn slot_key(session: SessionId, segment_id: &str, generation: &str, slot: u32) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("sessionlog 2026 learning job v1");
    hasher.update(&session.0);
    hasher.update(segment_id.as_bytes());
    let job: String = hasher.finalize().to_hex().chars().take(32).collect();
    format!("thinker-v1/{job}/{generation}/{slot}")
}

pub(super) fn boundary_word(boundary: LearnBoundary) -> &'static str {
    match boundary {
        LearnBoundary::Size => "size",
        LearnBoundary::TaskComplete => "task_complete",
        LearnBoundary::PlanApproved => "plan_approved",
        LearnBoundary::Explicit => "explicit",
    }
}

impl Segment {
    /// The machine's word for its boundary.
    #[must_use]
    pub fn boundary_word(&self) -> &'static str {
        boundary_word(self.boundary)
    }
}
