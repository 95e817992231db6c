//! What each of q's files says of a conversation, from the projections of its log.

use std::collections::BTreeMap;

use sessionlog_codec::event::{NodeStatus, Part};
use sessionlog_codec::ids::{CallRef, NodeId, Timestamp};

use super::delegates::{Bookmark, CallPlace, DelegationsFile, StateFile, StateResult};
use super::notes::Key;
use super::object::{Json, Text};
use super::plan::{COMPLETED, PlanFile, phase_word};
use super::session::{Affinity, Replay, SessionHeader, Task};
use super::talk::Talk;
use super::tree::{QTree, Told};
use crate::delegation::{DelegationRow, Standing};
use crate::recovery::{Execution, ExecutionStanding};
use crate::time::{parse_rfc3339, rfc3339_micros};

impl QTree {
    pub(super) fn header(&self, told: &Told) -> SessionHeader {
        let node = told.node;
        let notes = self.notes.of(node);
        let empty = SessionHeader::empty();
        let kept = notes.header.as_ref().map_or(&empty, |(_, header)| header);
        let is_root = node == NodeId::ROOT;
        let title = if is_root { self.summary.title_origin().and(self.summary.title()) } else { None };
        let affinity = self.delegations.affinity(node);
        let learning = kept.learning.clone().or_else(|| self.no_learning(node));
        SessionHeader {
            id: self.id(node),
            run_id: self.run_id(node),
            title: title.unwrap_or_else(|| if is_root { String::new() } else { kept.title.clone() }),
            updated_at: self.updated_at(node, &kept.updated_at),
            response_replay: self.replay(told),
            response_affinity: affinity.map(|set| Affinity {
                model: set.model.clone(),
                key: set.key.clone(),
                api_mode: set.api_mode.clone().unwrap_or_default(),
                candidate: set.candidate,
            }),
            learning,
            active_task: self.delegations.active_task(node).map(|task| Task {
                objective: task.objective.clone(),
                completion_criteria: task.completion_criteria.clone(),
                started_at: written(
                    task.started_at,
                    kept.active_task.as_ref().map(|task| task.started_at.as_str()),
                ),
            }),
            unknown: kept.unknown.clone(),
            ..empty
        }
    }

    /// The state of learning of a session that has learned nothing.
    fn no_learning(&self, node: NodeId) -> Option<Json> {
        const STREAM_DIGITS: usize = 24;
        let hash = blake3::derive_key("sessionlog 2026 q learning stream", self.id(node).as_bytes());
        let stream: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let stream: String = stream.chars().take(STREAM_DIGITS).collect();
        let state = Text::new().put("version", &1).put("stream_id", &stream).put("next_cursor", &1);
        let state = state.written("events", "[]").written("queue", "[]").end();
        Json::of(&state.into())
    }

    /// The id of a conversation's current run; a delegate runs within that of its root.
    fn run_id(&self, node: NodeId) -> String {
        let notes = self.notes.of(node);
        let header = notes.header.as_ref().map(|(_, header)| header.run_id.clone());
        let own = notes.run_id.clone().or(header.filter(|id| !id.is_empty()));
        if node == NodeId::ROOT {
            return own.unwrap_or_else(|| format!("run-{}", self.id(node)));
        }
        let opened = self.notes.opened(node).and_then(|(opened, _)| opened.run_id.clone());
        own.or(opened).unwrap_or_else(|| self.run_id(NodeId::ROOT))
    }

    /// When a conversation changed last: what its file says, unless something was done since.
    fn updated_at(&self, node: NodeId, kept: &str) -> String {
        if self.notes.is_as_imported(node) {
            return kept.to_owned();
        }
        let at = match node {
            NodeId::ROOT => self.summary.updated_at(),
            _ => self.summary.nodes.get(&node).and_then(|summary| summary.last_activity),
        };
        at.map(time).unwrap_or_default()
    }

    /// The items of responses whose messages are in the context. They are named by their places there.
    fn replay(&self, told: &Told) -> Vec<Replay> {
        let attached = &self.notes.of(told.node).replay;
        let mut replay = Vec::new();
        for (index, (key, _)) in told.context.iter().enumerate() {
            let Some(Key::Message(message_no)) = key else { continue };
            let Some(attached) = attached.get(message_no) else { continue };
            let output: Option<Vec<Json>> = attached.items.iter().map(Json::of).collect();
            // Items that q can't hold byte for byte must not be sent back.
            if let (Some(output), Ok(index)) = (output, u64::try_from(index)) {
                replay.push(Replay { index, model: attached.model.clone(), output });
            }
        }
        replay
    }

    pub(super) fn bookmarks(&self, told: &Told, children: &[DelegationRow]) -> DelegationsFile {
        let kept = self.notes.of(told.node).bookmarks.as_ref();
        let unknown = kept.map(|kept| kept.unknown.clone()).unwrap_or_default();
        let kept = kept.iter().flat_map(|kept| &kept.items);
        let kept: BTreeMap<&str, &Bookmark> = kept.map(|it| (it.invocation_id.as_str(), it)).collect();
        let items = children.iter().filter_map(|row| self.bookmark(told, row, &kept));
        DelegationsFile { items: items.collect(), unknown }
    }

    fn bookmark(
        &self,
        told: &Told,
        row: &DelegationRow,
        kept: &BTreeMap<&str, &Bookmark>,
    ) -> Option<Bookmark> {
        let (opened, at) = self.notes.opened(row.node)?;
        let call = row.call?;
        let invocation_id = self.id(row.node);
        let kept = kept.get(invocation_id.as_str());
        let (call_id, _) = told.talk.call(call)?;
        let own = opened.call_id.clone().filter(|id| !id.is_empty());
        Some(Bookmark {
            invocation_id,
            call_index: place(&told.talk, Key::Message(call.message_no))?,
            tool_index: call.tool_index.0,
            call_id: own.unwrap_or_else(|| call_id.clone()),
            agent: opened.agent.clone(),
            prompt: opened.prompt.clone(),
            working_directory: opened.working_directory.clone().unwrap_or_default(),
            run_id: self.run_id(told.node),
            created_at: match kept {
                Some(kept) if kept.created_at.is_empty() => String::new(),
                kept => written(*at, kept.map(|kept| kept.created_at.as_str())),
            },
            unknown: kept.map(|kept| kept.unknown.clone()).unwrap_or_default(),
        })
    }

    pub(super) fn state(&self, told: &Told) -> StateFile {
        let node = told.node;
        let notes = self.notes.of(node);
        let kept = notes.state.clone().unwrap_or_default();
        let Some((opened, _)) = self.notes.opened(node) else { return kept };
        let bound = self.delegations.binding(node).and_then(|binding| binding.bound);
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let status = self.delegations.standing(node).and_then(ended);
        let is_below_root = opened.parent == NodeId::ROOT;
        let parent = if is_below_root { String::new() } else { self.id(opened.parent) };
        let mut unknown: Vec<CallRef> = self.delegations.unknown_calls(node).collect();
        unknown.extend(&told.talk.in_doubt);
        unknown.sort_unstable();
        unknown.dedup();
        let running = if status.is_none() { told.talk.open.first() } else { None };
        StateFile {
            agent: opened.agent.clone(),
            prompt: opened.prompt.clone(),
            working_directory: text(opened.working_directory.as_ref()),
            run_id: if kept.run_id.is_empty() { self.run_id(node) } else { kept.run_id.clone() },
            task_id: if kept.task_id.is_empty() { self.id(node) } else { kept.task_id.clone() },
            parent_id: if notes.state.is_some() { kept.parent_id.clone() } else { parent },
            model: text(bound.map(|bound| &bound.model)),
            api_mode: text(bound.and_then(|bound| bound.api_mode.as_ref())),
            candidate: bound.and_then(|bound| bound.candidate),
            conversation_id: text(bound.and_then(|bound| bound.conversation_id.as_ref())),
            round: told.talk.rounds(),
            reminders: if notes.state.is_some() { kept.reminders } else { told.talk.reminders() },
            started: kept.started || notes.has_begun_task,
            status: status.map_or("running", status_word).to_owned(),
            running_call: running.and_then(|call| call_place(&told.talk, *call)),
            unknown_tools: unknown.into_iter().filter_map(|call| call_place(&told.talk, call)).collect(),
            result: status.map(|status| self.result(node, status, &kept)),
            unknown: kept.unknown,
        }
    }

    fn result(&self, node: NodeId, status: NodeStatus, kept: &StateFile) -> StateResult {
        let settled = self.notes.of(node).settled.as_ref();
        let content = settled.map(|settled| text_of(&settled.parts)).unwrap_or_default();
        if let Some(kept) = kept.result.as_ref().filter(|kept| kept.content == content) {
            return kept.clone();
        }
        let call = self.notes.opened(node).and_then(|(opened, _)| Some((opened.parent, opened.call?)));
        let is_shown = call.is_some_and(|(parent, call)| self.notes.of(parent).errors.contains(&call));
        StateResult { content, is_error: is_shown || status != NodeStatus::Completed }
    }

    /// The newest execution of the root that can be gone on with, or the one whose file was imported completed.
    pub(super) fn plan(&self) -> Option<PlanFile> {
        let kept = self.notes.of(NodeId::ROOT).plan.as_ref();
        let mut all = self.executions.all();
        all.retain(|(id, execution)| {
            let was_completed = kept
                .is_some_and(|kept| kept.checkpoint.execution_id == *id && kept.checkpoint.is_completed());
            execution.node == NodeId::ROOT
                && match execution.standing {
                    ExecutionStanding::Active => true,
                    ExecutionStanding::Completed => was_completed,
                    ExecutionStanding::Discarded | ExecutionStanding::Cleared => false,
                }
        });
        let (id, execution) = all.pop()?;
        let kept = kept.filter(|kept| kept.checkpoint.execution_id == id);
        Some(self.plan_file(id, execution, kept))
    }

    fn plan_file(&self, id: &str, execution: &Execution, kept: Option<&PlanFile>) -> PlanFile {
        let mut file = kept.cloned().unwrap_or_default();
        let checkpoint = &mut file.checkpoint;
        let reached = execution.reached.as_ref();
        let is_completed = execution.standing == ExecutionStanding::Completed;
        let is_as_kept = kept.is_some()
            && checkpoint.resume_count == execution.resume_count
            && (is_completed || checkpoint.to_advanced().as_ref() == reached);
        if is_as_kept {
            return file;
        }
        id.clone_into(&mut checkpoint.execution_id);
        if checkpoint.run_id.is_empty() {
            checkpoint.run_id = self.run_id(NodeId::ROOT);
        }
        if let Some(approved) = &execution.approved {
            checkpoint.objective.clone_from(&approved.objective);
            checkpoint.plan = Json::of(&approved.plan);
        }
        checkpoint.resume_count = execution.resume_count;
        checkpoint.phase = match reached {
            _ if is_completed => COMPLETED,
            Some(reached) => phase_word(reached.phase),
            None => "target",
        }
        .to_owned();
        checkpoint.task_index = reached.map_or(0, |reached| reached.task_index);
        checkpoint.attempt = reached.map_or(1, |reached| reached.attempt);
        let targets = reached.map(|reached| reached.targets.as_slice()).unwrap_or_default();
        checkpoint.resolved_targets = targets.iter().filter_map(|target| string(target)).collect();
        checkpoint.feedback = reached.and_then(|reached| reached.feedback.clone()).unwrap_or_default();
        let pending = reached.and_then(|reached| reached.pending_result.as_ref());
        checkpoint.pending_result = pending.and_then(Json::of);
        file.updated_at = self.summary.updated_at().map(time).unwrap_or_default();
        file
    }
}

fn string(text: &str) -> Option<Json> {
    Json::of(&serde_json::to_string(text).ok()?.into())
}

fn text_of(parts: &[Part]) -> String {
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n")
}

fn place(talk: &Talk, key: Key) -> Option<u64> {
    u64::try_from(talk.place(key)?).ok()
}

fn call_place(talk: &Talk, call: CallRef) -> Option<CallPlace> {
    let (call_id, name) = talk.call(call)?;
    Some(CallPlace {
        message_index: place(talk, Key::Message(call.message_no))?,
        tool_index: call.tool_index.0,
        call_id: call_id.clone(),
        name: name.clone(),
    })
}

/// How a child ended; an end that can't be read is one that nobody knows.
fn ended(standing: Standing) -> Option<NodeStatus> {
    match standing {
        Standing::Opened | Standing::Running => None,
        Standing::Settled(status) => Some(status),
        Standing::Unreadable => Some(NodeStatus::Unknown),
    }
}

/// q has no word for a runner that gave up, nor for one that was stopped: as far as q goes, neither can go on.
fn status_word(status: NodeStatus) -> &'static str {
    match status {
        NodeStatus::Completed => "completed",
        NodeStatus::Blocked | NodeStatus::Failed | NodeStatus::Cancelled => "blocked",
        NodeStatus::Unknown => "unknown",
    }
}

/// A time as Go writes it: no zeros at the end of the fraction.
fn time(at: Timestamp) -> String {
    let text = rfc3339_micros(at);
    let short = text.trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.');
    format!("{short}Z")
}

/// A time as it was written, if it was, and if that is the time: an offset and nanoseconds are kept.
fn written(at: Timestamp, kept: Option<&str>) -> String {
    match kept {
        Some(kept) if parse_rfc3339(kept) == Some(at) => kept.to_owned(),
        _ if at == Timestamp::default() => String::new(),
        _ => time(at),
    }
}
