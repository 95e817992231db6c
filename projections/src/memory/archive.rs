//! The fold from events to records.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{
    ArtifactReceipt, CallFinished, CallResolved, Event, FinalStatus, LoggedEvent, Media, MediaSource,
    MessageAppended, MessageExtended, NodeOpened, NodeSettled, Outcome, Part, QuestionAnswered, Role,
    SessionTagged, TaskCompleted, TurnEnded, TurnOutcome,
};
use sessionlog_codec::ids::{CallRef, Digest, KindNo, MessageNo, NodeId, Position, SessionId, ToolIndex};
use sessionlog_codec::registry::kind;

use super::record::{ARCHIVE_READ, MemoryKind, MemoryRecord, MemoryStatus, RecordId};

/// The tools that are taken to read memory unless a host says which ones do.
pub const DEFAULT_ARCHIVE_TOOLS: [&str; 4] =
    ["search_archive", "get_archive_record", "memory_search", "memory_read"];

/// How many messages of a conversation are remembered by number: those that can still be taken back or extended.
const RECENT_MESSAGES: usize = 64;

/// What an event means for memory.
#[derive(Clone, Debug, PartialEq)]
pub enum ArchiveStep {
    /// A new record, with the tags that are its own and not its session's.
    Record(Box<MemoryRecord>),
    /// An earlier record stands differently now.
    Settled {
        /// Where it is.
        position: Position,
        /// Which part of it.
        part: u32,
        /// How it stands.
        status: MemoryStatus,
    },
    /// The session, and so each of its records, has these tags and no others.
    Tagged(BTreeSet<String>),
    /// The records at these positions were erased on purpose.
    Erased(Vec<Position>),
    /// The records of these conversations were erased on purpose.
    NodesErased(BTreeSet<NodeId>),
    /// All records so far are another session's, which this one was forked from.
    Inherited,
}

/// The fold of one log. Small however long the log is, so it can be kept and gone on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    session: SessionId,
    /// A matter of who folds, so it is not kept.
    #[serde(skip)]
    archive_tools: BTreeSet<String>,
    tags: BTreeSet<String>,
    nodes: BTreeMap<NodeId, NodeTrace>,
    /// Where the request of each delegation that has not ended is.
    delegations: BTreeMap<NodeId, Position>,
    /// Where each question without an answer is.
    questions: BTreeMap<String, Position>,
}

/// What later events of a conversation refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct NodeTrace {
    messages: BTreeMap<MessageNo, Said>,
    calls: BTreeMap<CallRef, Asked>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Said {
    position: Position,
    role: Role,
    calls: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Asked {
    position: Position,
    part: u32,
    tool: String,
}

impl Archive {
    /// The fold of the log of a session, before its first event. Results of `archive_tools` are archived without text.
    #[must_use]
    pub fn of(session: SessionId, archive_tools: &BTreeSet<String>) -> Self {
        Self {
            session,
            archive_tools: archive_tools.clone(),
            tags: BTreeSet::new(),
            nodes: BTreeMap::new(),
            delegations: BTreeMap::new(),
            questions: BTreeMap::new(),
        }
    }

    /// The same fold, gone on with by somebody who takes these tools for ones that read memory.
    #[must_use]
    pub fn with_tools(self, archive_tools: &BTreeSet<String>) -> Self {
        Self { archive_tools: archive_tools.clone(), ..self }
    }

    /// Whether events of a kind can mean anything for memory: others need not be decoded.
    #[must_use]
    pub fn looks_at(kind: KindNo) -> bool {
        ![
            kind::SessionOpened,
            kind::SessionClosed,
            kind::RunStarted,
            kind::TurnStarted,
            kind::CallStarted,
            kind::ContextTrimmed,
            kind::ContextReset,
            kind::HeadMoved,
            kind::ReplayAttached,
            kind::AffinitySet,
            kind::AffinityCleared,
            kind::UsageRecorded,
            kind::ImportStarted,
            kind::ImportedRaw,
            kind::GapMarked,
            kind::HostEvent,
        ]
        .contains(&kind)
    }

    /// Folds one event, and says what it means. Any event is accepted, whatever came before it.
    pub fn apply(&mut self, logged: &LoggedEvent, step: &mut dyn FnMut(ArchiveStep)) {
        match &logged.event {
            Event::MessageAppended(message) => self.say(logged, message, step),
            Event::MessageExtended(piece) => self.extend(logged, piece, step),
            Event::MessageWithdrawn(withdrawn) => {
                let said = self.trace(logged.node).messages.get(&withdrawn.message_no).cloned();
                if let Some(Said { position, .. }) = said {
                    step(ArchiveStep::Settled { position, part: 0, status: MemoryStatus::Withdrawn });
                }
            }
            Event::CallFinished(finished) => self.finish(logged, finished, step),
            Event::CallResolved(resolved) => self.resolve(logged, resolved, step),
            Event::NodeOpened(opened) => self.delegate(logged, opened, step),
            Event::NodeSettled(settled) => self.settle(logged, settled, step),
            Event::QuestionAsked(asked) => {
                self.questions.insert(asked.question_id.clone(), logged.position);
                let text = lines([asked.text.as_str()].into_iter().chain(strs(&asked.choices)));
                self.record(logged, MemoryKind::Question, MemoryStatus::Running, text, step);
            }
            Event::QuestionAnswered(answered) => self.answer(logged, answered, step),
            Event::SessionTagged(tagged) => self.tag(tagged, step),
            Event::SessionForked(forked) => {
                self.session = forked.session_id;
                step(ArchiveStep::Inherited);
            }
            Event::Redacted(redacted) => step(ArchiveStep::Erased(redacted.positions.clone())),
            Event::NodeDeleted(deleted) => {
                let gone = deleted.descendants.iter().chain([&deleted.child]).copied();
                step(ArchiveStep::NodesErased(gone.collect()));
            }
            _ => self.tell(logged, step),
        }
    }

    fn trace(&mut self, node: NodeId) -> &mut NodeTrace {
        self.nodes.entry(node).or_default()
    }

    /// A record of an event that needs no other one.
    fn tell(&self, logged: &LoggedEvent, step: &mut dyn FnMut(ArchiveStep)) {
        if let Some((kind, status, text)) = told(&logged.event) {
            self.record(logged, kind, status, text, step);
        }
    }

    fn record(
        &self,
        logged: &LoggedEvent,
        kind: MemoryKind,
        status: MemoryStatus,
        text: String,
        step: &mut dyn FnMut(ArchiveStep),
    ) {
        if !text.trim().is_empty() {
            step(ArchiveStep::Record(Box::new(self.new_record(logged, kind, status, text))));
        }
    }

    fn new_record(
        &self,
        logged: &LoggedEvent,
        kind: MemoryKind,
        status: MemoryStatus,
        text: String,
    ) -> MemoryRecord {
        MemoryRecord {
            id: RecordId { session: self.session, position: logged.position, part: 0 },
            kind,
            node: logged.node,
            at: logged.timestamp,
            role: None,
            tool: None,
            status,
            tags: Vec::new(),
            artifacts: Vec::new(),
            text,
        }
    }

    fn say(&mut self, logged: &LoggedEvent, message: &MessageAppended, step: &mut dyn FnMut(ArchiveStep)) {
        let kind = if message.role == Role::Tool { MemoryKind::Result } else { MemoryKind::Message };
        let status =
            if message.role == Role::Assistant { MemoryStatus::Succeeded } else { MemoryStatus::Submitted };
        self.parts(logged, (kind, status, message.role), &message.parts, step);
        let calls = u32::try_from(message.tool_calls.len()).unwrap_or(u32::MAX);
        let said = Said { position: logged.position, role: message.role, calls };
        let messages = &mut self.trace(logged.node).messages;
        messages.insert(message.message_no, said);
        if messages.len() > RECENT_MESSAGES {
            messages.pop_first();
        }
        self.ask(logged, message.message_no, 0, &message.tool_calls, step);
    }

    fn extend(&mut self, logged: &LoggedEvent, piece: &MessageExtended, step: &mut dyn FnMut(ArchiveStep)) {
        let more = u32::try_from(piece.tool_calls.len()).unwrap_or(u32::MAX);
        let said = self.trace(logged.node).messages.get_mut(&piece.message_no);
        let (role, before) = said.map_or((Role::Assistant, None), |said| {
            let before = said.calls;
            said.calls = before.saturating_add(more);
            (said.role, Some(before))
        });
        let what = (MemoryKind::Message, MemoryStatus::Succeeded, role);
        self.parts(logged, what, &piece.parts, step);
        self.ask(logged, piece.message_no, before.unwrap_or(u32::MAX), &piece.tool_calls, step);
    }

    fn parts(
        &self,
        logged: &LoggedEvent,
        (kind, status, role): (MemoryKind, MemoryStatus, Role),
        parts: &[Part],
        step: &mut dyn FnMut(ArchiveStep),
    ) {
        let artifacts = artifacts_of(parts, None);
        let text = text_of(parts, None);
        if !text.trim().is_empty() || !artifacts.is_empty() {
            let record = self.new_record(logged, kind, status, text);
            step(ArchiveStep::Record(Box::new(MemoryRecord { role: Some(role), artifacts, ..record })));
        }
    }

    /// The calls of a message, or of a later piece of it, before which it had some already.
    fn ask(
        &mut self,
        logged: &LoggedEvent,
        message_no: MessageNo,
        before: u32,
        calls: &[sessionlog_codec::event::ToolCall],
        step: &mut dyn FnMut(ArchiveStep),
    ) {
        for (nth, call) in (0_u32..).zip(calls) {
            let part = nth.saturating_add(1);
            let text = call.arguments.to_text().into_owned();
            let record = self.new_record(logged, MemoryKind::Call, MemoryStatus::Running, text);
            let id = RecordId { part, ..record.id };
            let tool = Some(call.name.clone());
            step(ArchiveStep::Record(Box::new(MemoryRecord { id, tool, ..record })));
            let call_ref = CallRef { message_no, tool_index: ToolIndex(before.saturating_add(nth)) };
            let asked = Asked { position: logged.position, part, tool: call.name.clone() };
            self.trace(logged.node).calls.insert(call_ref, asked);
        }
    }

    fn finish(&mut self, logged: &LoggedEvent, finished: &CallFinished, step: &mut dyn FnMut(ArchiveStep)) {
        let asked = self.trace(logged.node).calls.get(&finished.call).cloned();
        // An unknown outcome can still be settled.
        if finished.outcome != Outcome::Unknown {
            self.trace(logged.node).calls.remove(&finished.call);
        }
        self.result(logged, asked, finished.outcome, (&finished.parts, finished.artifact.as_ref()), step);
    }

    fn resolve(&mut self, logged: &LoggedEvent, resolved: &CallResolved, step: &mut dyn FnMut(ArchiveStep)) {
        let asked = self.trace(logged.node).calls.remove(&resolved.call);
        let mut parts = resolved.parts.clone();
        if !resolved.note.is_empty() {
            parts.push(Part::text(resolved.note.clone()));
        }
        self.result(logged, asked, resolved.outcome, (&parts, None), step);
    }

    fn result(
        &mut self,
        logged: &LoggedEvent,
        asked: Option<Asked>,
        outcome: Outcome,
        (parts, artifact): (&[Part], Option<&ArtifactReceipt>),
        step: &mut dyn FnMut(ArchiveStep),
    ) {
        let status = MemoryStatus::from(outcome);
        let tool = asked.as_ref().map(|asked| asked.tool.clone());
        if let Some(Asked { position, part, .. }) = asked {
            step(ArchiveStep::Settled { position, part, status });
        }
        let reads_memory = tool.as_ref().is_some_and(|tool| self.archive_tools.contains(tool));
        let text = if reads_memory { String::new() } else { text_of(parts, artifact) };
        let artifacts = artifacts_of(parts, artifact);
        let mut record = self.new_record(logged, MemoryKind::Result, status, text);
        if reads_memory {
            record.tags.push(ARCHIVE_READ.to_owned());
        }
        step(ArchiveStep::Record(Box::new(MemoryRecord { tool, artifacts, ..record })));
    }

    fn delegate(&mut self, logged: &LoggedEvent, opened: &NodeOpened, step: &mut dyn FnMut(ArchiveStep)) {
        self.delegations.insert(opened.child, logged.position);
        let text = lines(opened.description.as_deref().into_iter().chain([opened.prompt.as_str()]));
        let record = self.new_record(logged, MemoryKind::Task, MemoryStatus::Running, text);
        let record = MemoryRecord { node: opened.child, tool: Some(opened.agent.clone()), ..record };
        step(ArchiveStep::Record(Box::new(record)));
    }

    /// What a child gave is archived as its parent's result; what nobody waits for is not.
    fn settle(&mut self, logged: &LoggedEvent, settled: &NodeSettled, step: &mut dyn FnMut(ArchiveStep)) {
        if let Some(position) = self.delegations.remove(&logged.node) {
            let status = settled.status.into();
            step(ArchiveStep::Settled { position, part: 0, status });
        }
        self.nodes.remove(&logged.node);
    }

    fn answer(
        &mut self,
        logged: &LoggedEvent,
        answered: &QuestionAnswered,
        step: &mut dyn FnMut(ArchiveStep),
    ) {
        if let Some(position) = self.questions.remove(&answered.question_id) {
            step(ArchiveStep::Settled { position, part: 0, status: MemoryStatus::Succeeded });
        }
        // The choices stand in the question's own record.
        let choice = answered.choice.map(|nth| format!("choice {}", nth.saturating_add(1)));
        let text = lines(choice.as_deref().into_iter().chain(answered.text.as_deref()));
        if !text.trim().is_empty() {
            let record = self.new_record(logged, MemoryKind::Question, MemoryStatus::Succeeded, text);
            step(ArchiveStep::Record(Box::new(MemoryRecord { role: Some(Role::User), ..record })));
        }
    }

    fn tag(&mut self, tagged: &SessionTagged, step: &mut dyn FnMut(ArchiveStep)) {
        self.tags.extend(tagged.added.iter().cloned());
        for tag in &tagged.removed {
            self.tags.remove(tag);
        }
        step(ArchiveStep::Tagged(self.tags.clone()));
    }
}

/// The text of a record that an event became, or of one of its calls; `None` if it became none. A result that was left without
/// text is [told](is_archive_read) by its record, not by its event.
#[must_use]
pub fn text_at(event: &LoggedEvent, part: u32) -> Option<String> {
    // What a record says is in its own event; how it stands, and whose it is, may be in others.
    let mut text = None;
    Archive::of(SessionId([0; 16]), &BTreeSet::new()).apply(event, &mut |step| {
        if let ArchiveStep::Record(record) = step
            && record.id.part == part
        {
            text = Some(record.text);
        }
    });
    text
}

/// Whether a result was left without text, since it was read from memory itself: by the record's own tags, without its session's.
#[must_use]
pub fn is_archive_read(own_tags: &[String]) -> bool {
    own_tags.iter().any(|tag| tag == ARCHIVE_READ)
}

/// The record of an event that needs no other one.
fn told(event: &Event) -> Option<(MemoryKind, MemoryStatus, String)> {
    use MemoryStatus::{Cancelled, Submitted, Succeeded};
    let (kind, status, text) = match event {
        Event::SessionCreated(created) => (MemoryKind::Event, Submitted, created.goal.clone()?),
        Event::SessionTitled(titled) => (MemoryKind::Event, Submitted, titled.title.clone()),
        Event::SessionFinished(finished) => {
            let (status, reason) = (finished.status.into(), finished.reason.as_deref());
            (MemoryKind::Event, status, lines([ended(finished.status)].into_iter().chain(reason)))
        }
        Event::TurnEnded(ended) => return turn_ended(ended),
        Event::ContextCompacted(compacted) => {
            (MemoryKind::Summary, Succeeded, text_of(&compacted.summary, None))
        }
        Event::CheckpointReferenced(checkpoint) => {
            let text = lines([checkpoint.note.as_str()].into_iter().chain(strs(&checkpoint.touched_files)));
            (MemoryKind::Event, Submitted, text)
        }
        Event::TaskStarted(task) => {
            let text = lines([task.objective.as_str()].into_iter().chain(strs(&task.completion_criteria)));
            (MemoryKind::Task, Submitted, text)
        }
        Event::TaskCompleted(task) => (MemoryKind::Result, task_status(task), task_text(task)),
        Event::PlanApproved(plan) => {
            (MemoryKind::Task, Submitted, lines([plan.objective.as_str(), &plan.plan.to_text()]))
        }
        Event::PlanFact(fact) => (MemoryKind::Event, Succeeded, fact.fact.clone()),
        Event::PlanDiscarded(plan) => (MemoryKind::Event, Cancelled, plan.reason.clone()),
        Event::PlanCompleted(plan) => (MemoryKind::Result, Succeeded, plan.results.to_text().into_owned()),
        Event::CommandReceived(command) => (MemoryKind::Event, Submitted, command.content.clone()),
        Event::ChangeRecorded(change) => {
            let places = change.branch.as_deref().into_iter().chain([change.repository.as_str()]);
            (MemoryKind::Event, Submitted, lines([change.summary.as_str()].into_iter().chain(places)))
        }
        _ => return None,
    };
    Some((kind, status, text))
}

fn turn_ended(ended: &TurnEnded) -> Option<(MemoryKind, MemoryStatus, String)> {
    let said = ended.stage.as_deref().into_iter().chain(ended.error.as_deref());
    match ended.outcome {
        TurnOutcome::Completed => None,
        TurnOutcome::Failed => {
            Some((MemoryKind::Failure, ended.outcome.into(), lines(["turn failed"].into_iter().chain(said))))
        }
        TurnOutcome::Interrupted => {
            let text = lines(["turn interrupted"].into_iter().chain(said));
            Some((MemoryKind::Failure, ended.outcome.into(), text))
        }
    }
}

fn ended(status: FinalStatus) -> &'static str {
    match status {
        FinalStatus::Completed => "session completed",
        FinalStatus::Failed => "session failed",
        FinalStatus::Interrupted => "session interrupted",
        FinalStatus::Paused => "session paused",
    }
}

fn task_status(task: &TaskCompleted) -> MemoryStatus {
    match task.outcome.as_str() {
        "completed" => MemoryStatus::Succeeded,
        _ => MemoryStatus::Failed,
    }
}

fn task_text(task: &TaskCompleted) -> String {
    let what = [task.summary.as_str()].into_iter().chain(strs(&task.findings)).chain(strs(&task.artifacts));
    lines(what.chain(task.verification.as_deref()).chain(task.blocker.as_deref()))
}

fn strs(texts: &[String]) -> impl Iterator<Item = &str> {
    texts.iter().map(String::as_str)
}

fn lines<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

/// What is said: texts, the names of files, and of an artifact its beginning where nothing else is.
fn text_of(parts: &[Part], artifact: Option<&ArtifactReceipt>) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Image(media) | Part::File(media) => name_of(media),
        Part::Reasoning(_) | Part::Raw(_) => None,
    });
    let text = lines(texts);
    match artifact {
        Some(artifact) if text.is_empty() => artifact.preview.clone(),
        _ => text,
    }
}

fn name_of(media: &Media) -> Option<&str> {
    media.name.as_deref().or(match &media.source {
        MediaSource::Url(url) if !url.starts_with("data:") => Some(url),
        MediaSource::Artifact(artifact) => Some(&artifact.preview),
        _ => None,
    })
}

fn artifacts_of(parts: &[Part], artifact: Option<&ArtifactReceipt>) -> Vec<Digest> {
    let named = parts.iter().filter_map(|part| match part {
        Part::Image(media) | Part::File(media) => match &media.source {
            MediaSource::Artifact(receipt) => Some(receipt.digest),
            _ => None,
        },
        _ => None,
    });
    let mut artifacts: Vec<Digest> =
        artifact.map(|receipt| receipt.digest).into_iter().chain(named).collect();
    artifacts.sort_unstable();
    artifacts.dedup();
    artifacts
}
