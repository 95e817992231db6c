//! What q's files say of a conversation besides its messages.

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{
    AffinityCleared, AffinitySet, Event, NewEvent, NodeBound, NodeSettled, Part, PlanAdvanced, PlanApproved,
    PlanCompleted, PlanResumed, ReplayAttached, SessionTitled, TaskCompleted, TaskStarted, TitleOrigin,
};
use sessionlog_codec::ids::Timestamp;
use sessionlog_projections::time::parse_rfc3339;
use sessionlog_projections::views::q::{PlanFile, SessionHeader, StateFile, format};

use super::{Bytes, Conversation, Place, about, keep, to};
use crate::import::driver::ImportError;
use crate::import::driver::feed::{Content, Run};
use crate::import::q::Slot;

/// The API whose items are replayed, where a file does not say.
const REPLAY_API: &str = "responses";

/// Keeps a session file without its messages, and tells what changed in it.
pub(super) fn header(
    place: &Place,
    conversation: Conversation<'_>,
    run: &mut Run<'_>,
) -> Result<(), ImportError> {
    let to = to(conversation.file, format::SESSION, place.node, Content::Facts);
    let bytes = conversation.header_bytes.clone();
    keep(&to, "session", bytes, run, |before| {
        let before = before.and_then(|before| SessionHeader::parse(before, "").ok());
        let events = header_events(place, before.as_ref(), &conversation).into_iter();
        events.map(|event| about(conversation.at, NewEvent::now(place.node, event))).collect()
    })
}

fn header_events(
    place: &Place,
    before: Option<&SessionHeader>,
    conversation: &Conversation<'_>,
) -> Vec<Event> {
    let Some(header) = &conversation.header else { return Vec::new() };
    let mut events: Vec<Event> = Vec::new();
    if place.is_root() && !header.title.is_empty() && before.is_none_or(|it| it.title != header.title) {
        events.push(SessionTitled { title: header.title.clone(), origin: TitleOrigin::Host }.into());
    }
    let task_before = before.and_then(|before| before.active_task.as_ref());
    match &header.active_task {
        task if task.as_ref() == task_before => {}
        Some(task) => events.push(
            TaskStarted {
                objective: task.objective.clone(),
                completion_criteria: task.completion_criteria.clone(),
                started_at: parse_rfc3339(&task.started_at).unwrap_or_default(),
            }
            .into(),
        ),
        None => events.push(completed().into()),
    }
    let affinity_before = before.and_then(|before| before.response_affinity.as_ref());
    match &header.response_affinity {
        // A compaction ends it, so it has to be told again.
        affinity if affinity.as_ref() == affinity_before && !conversation.has_compacted => {}
        Some(affinity) => events.push(
            AffinitySet {
                model: affinity.model.clone(),
                key: affinity.key.clone(),
                api_mode: (!affinity.api_mode.is_empty()).then(|| affinity.api_mode.clone()),
                candidate: affinity.candidate,
            }
            .into(),
        ),
        None if affinity_before.is_none() => {}
        None => events.push(AffinityCleared { reason: "q's file has none any more".to_owned() }.into()),
    }
    let is_replay_known = before.is_some_and(|before| before.response_replay == header.response_replay);
    if !is_replay_known || conversation.has_compacted {
        events.extend(replay(header, conversation).into_iter().map(Event::from));
    }
    events
}

/// q's file does not say how a task ended.
fn completed() -> TaskCompleted {
    TaskCompleted {
        outcome: "completed".to_owned(),
        summary: String::new(),
        findings: Vec::new(),
        artifacts: Vec::new(),
        verification: None,
        blocker: None,
        report: None,
    }
}

/// Items of responses, by the messages that are at their places in the context.
fn replay(header: &SessionHeader, conversation: &Conversation<'_>) -> Vec<ReplayAttached> {
    let places = conversation.context.places();
    let api_mode = header.response_affinity.as_ref().map(|affinity| affinity.api_mode.as_str());
    let api_mode = api_mode.filter(|mode| !mode.is_empty()).unwrap_or(REPLAY_API);
    let attached = header.response_replay.iter().filter_map(|replay| {
        let element = (*places.get(usize::try_from(replay.index).ok()?)?)?;
        let Some(Slot::Message(message_no)) = conversation.transcript.slot(element) else { return None };
        Some(ReplayAttached {
            message_no,
            model: replay.model.clone(),
            api_mode: api_mode.to_owned(),
            items: replay.output.iter().map(|item| RawBytes::from(item.get())).collect(),
        })
    });
    attached.collect()
}

/// Keeps where a delegate stands, and tells what changed.
pub(super) fn state(
    place: &Place,
    state: Bytes<'_>,
    parsed: Option<StateFile>,
    at: Option<Timestamp>,
    run: &mut Run<'_>,
) -> Result<(), ImportError> {
    let is_settled = run.node(place.node).is_some_and(|known| known.settled);
    let to = to(state.file, format::STATE, place.node, Content::Facts);
    keep(&to, "delegation-state", state.bytes, run, |before| {
        let before = before.and_then(|before| StateFile::parse(before, "").ok());
        let Some(state) = parsed else { return Vec::new() };
        let mut events: Vec<Event> = Vec::new();
        let now = bound(&state);
        if now != before.as_ref().and_then(bound) {
            events.extend(now.map(Event::from));
        }
        if let Some(status) = state.ended().filter(|_| !is_settled) {
            let content = state.result.map(|result| result.content).filter(|content| !content.is_empty());
            let parts = content.map(Part::Text).into_iter().collect();
            events.push(NodeSettled { status, reason: None, parts }.into());
        }
        events.into_iter().map(|event| about(at, NewEvent::now(place.node, event))).collect()
    })
}

fn bound(state: &StateFile) -> Option<NodeBound> {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    let bound = NodeBound {
        model: state.model.clone(),
        api_mode: some(&state.api_mode),
        candidate: state.candidate,
        conversation_id: some(&state.conversation_id),
        profile_hash: None,
    };
    let is_bound = !bound.model.is_empty()
        || bound.api_mode.is_some()
        || bound.candidate.is_some()
        || bound.conversation_id.is_some();
    is_bound.then_some(bound)
}

/// What the session of a plan is called that has no session file.
pub(super) fn plan_title(plan: &PlanFile) -> SessionTitled {
    let how = if plan.checkpoint.is_completed() { "Plan" } else { "Interrupted plan" };
    let title = format!("{how}: {}", plan.checkpoint.objective);
    SessionTitled { title, origin: TitleOrigin::Host }
}

/// What changed in the execution of a plan.
pub(super) fn plan_events(before: Option<&PlanFile>, now: &PlanFile) -> Vec<Event> {
    let checkpoint = &now.checkpoint;
    let before = before.map(|before| &before.checkpoint);
    let before = before.filter(|before| before.execution_id == checkpoint.execution_id);
    let execution_id = checkpoint.execution_id.clone();
    let mut events: Vec<Event> = Vec::new();
    if before.is_none() {
        let plan = checkpoint.plan.as_ref().map(|plan| RawBytes::from(plan.get())).unwrap_or_default();
        let objective = checkpoint.objective.clone();
        events.push(PlanApproved { execution_id: execution_id.clone(), objective, plan }.into());
    }
    let advanced = checkpoint.to_advanced();
    if advanced != before.and_then(|before| before.to_advanced()) {
        events.extend(advanced.map(|advanced: PlanAdvanced| Event::from(advanced)));
    }
    let resume_count = checkpoint.resume_count;
    if resume_count > before.map_or(0, |before| before.resume_count) {
        events.push(PlanResumed { execution_id: execution_id.clone(), resume_count }.into());
    }
    if checkpoint.is_completed() && before.is_none_or(|before| !before.is_completed()) {
        let results = checkpoint.tasks.as_ref().map_or("[]", |tasks| tasks.get()).into();
        events.push(PlanCompleted { execution_id, results }.into());
    }
    events
}
