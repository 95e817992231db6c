//! `transcript.jsonl`, line by line as events come in, or as a whole.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{
    CallFinished, ContextCompacted, Effect, Event, LoggedEvent, MessageAppended, MessageExtended, Role,
    ToolCall, Usage,
};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, SessionId, Timestamp, TurnNo};
use uuid::Uuid;

use super::recursive::{LineKey, line_uuid};
use super::{Dialect, Pieces, json, recursive, seed, text};
use crate::time::rfc3339_seconds;
use crate::words::{Sealed, role_word, sealed};

/// What an event adds to a transcript file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendered {
    /// Nothing.
    Nothing,
    /// These lines, without their ends. None of them contains a line end.
    Lines(Vec<String>),
    /// It changes lines that are there already: the file is to be made anew, by [`render_all`]. The renderer can go on
    /// from here as it is.
    Rebuild,
}

/// Renders the transcript of one conversation as events come in. Small, and serialisable: it can be kept beside the
/// file, with the position that it has reached.
///
/// Each message and each result becomes one line, in log order, so there are as many lines as
/// [`Summary::messages`](crate::Summary::messages). In the recursive dialect a compaction adds its boundary and its
/// summary, which counts as a message there. The messages that a compaction keeps are not written a second time: the
/// file stays a transcript without duplicates, and recursive's reader, which takes what is behind the boundary for the
/// context, sees the summary and what came later. Whoever resumes here is given the context from the log.
///
/// What was withdrawn or left by a rewind keeps its lines. A record that can't be read (erased, or of a newer version)
/// has a line that says so, as a system message. The dialects have no developers, so in recursive's they speak as
/// system; they have no error flag; and neither holds all that a log does: for that there is
/// [`event_line`](super::event_line).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptRenderer {
    dialect: Dialect,
    session_id: SessionId,
    node: NodeId,
    lines: u64,
    last_uuid: Option<Uuid>,
    last_message: MessageNo,
    turn: TurnNo,
    started: Vec<(CallRef, Effect)>,
}

impl TranscriptRenderer {
    /// A renderer of the root conversation, before its first event.
    #[must_use]
    pub fn new(dialect: Dialect, session_id: SessionId) -> Self {
        Self::of_node(dialect, session_id, NodeId::ROOT)
    }

    /// A renderer of any conversation of a tree, before its first event.
    #[must_use]
    pub fn of_node(dialect: Dialect, session_id: SessionId, node: NodeId) -> Self {
        Self {
            dialect,
            session_id,
            node,
            lines: 0,
            last_uuid: None,
            last_message: MessageNo(0),
            turn: TurnNo(0),
            started: Vec::new(),
        }
    }

    /// The conversation it renders.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Lines of messages so far.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// What `event` adds. Events of other conversations add nothing.
    pub fn render(&mut self, event: &LoggedEvent) -> Rendered {
        if event.node != self.node {
            return Rendered::Nothing;
        }
        match &event.event {
            Event::MessageAppended(message) => self.message(event, message),
            Event::CallFinished(finished) => self.result(event, finished),
            Event::ContextCompacted(compacted) => self.compaction(event, compacted),
            Event::MessageExtended(extended) => self.extension(extended),
            Event::Redacted(_) => Rendered::Rebuild,
            Event::TurnStarted(started) => {
                self.turn = started.turn;
                Rendered::Nothing
            }
            Event::CallStarted(started) => {
                self.started.retain(|(call, _)| *call != started.call);
                self.started.push((started.call, started.effect));
                Rendered::Nothing
            }
            other => match sealed(other) {
                Some(place) => self.sealed(event, place),
                None => Rendered::Nothing,
            },
        }
    }

    fn message(&mut self, event: &LoggedEvent, message: &MessageAppended) -> Rendered {
        self.last_message = self.last_message.max(message.message_no);
        let reasoning = text::reasoning(&message.parts);
        self.line(Draft {
            key: LineKey::Message(message.message_no.0),
            answers: None,
            role: message.role,
            content: text::content(&message.parts),
            tool_calls: &message.tool_calls,
            tool_call_id: message.tool_call_id.as_deref(),
            reasoning: reasoning.as_deref(),
            usage: message.usage,
            audit: None,
            timestamp: event.timestamp,
        })
    }

    fn result(&mut self, event: &LoggedEvent, finished: &CallFinished) -> Rendered {
        let effect = self.started.iter().find(|(call, _)| *call == finished.call).map(|(_, effect)| *effect);
        self.started.retain(|(call, _)| *call != finished.call);
        self.line(Draft {
            key: LineKey::Record(event.position.0),
            answers: Some(finished.call.message_no),
            role: Role::Tool,
            content: text::content(&finished.parts),
            tool_calls: &[],
            tool_call_id: Some(&finished.call_id),
            reasoning: None,
            usage: None,
            audit: finished.audit.as_ref().map(|audit| recursive::audit(audit, effect)),
            timestamp: event.timestamp,
        })
    }

    fn sealed(&mut self, event: &LoggedEvent, place: Sealed) -> Rendered {
        let key = match place {
            Sealed::Message => {
                self.last_message = self.last_message.next().unwrap_or(self.last_message);
                LineKey::Message(self.last_message.0)
            }
            Sealed::Result => LineKey::Record(event.position.0),
        };
        let content = match event.event {
            Event::Erased { .. } => "[erased]",
            _ => "[written by a newer version]",
        };
        self.line(Draft::system(key, content.to_owned(), event.timestamp))
    }

    fn compaction(&mut self, event: &LoggedEvent, compacted: &ContextCompacted) -> Rendered {
        if self.dialect == Dialect::Seed {
            return Rendered::Nothing;
        }
        let timestamp = rfc3339_seconds(event.timestamp);
        let count = replaced_count(compacted);
        let boundary = json::line(&recursive::Boundary {
            kind: "system",
            subtype: "compact_boundary",
            turn: (self.turn > TurnNo(0)).then(|| u32::try_from(self.turn.0).unwrap_or(u32::MAX)),
            compacted_count: count,
            timestamp: &timestamp,
        });
        let summary = text::content(&compacted.summary);
        if compacted.summary.is_empty() {
            return Rendered::Lines(vec![boundary]);
        }
        let content = if summary.starts_with("[compacted: ") {
            summary
        } else {
            let chars = summary.chars().count();
            format!("[compacted: {count} messages → {chars} chars at step {}]\n{summary}", self.turn)
        };
        let line = self.line(Draft::system(LineKey::Record(event.position.0), content, event.timestamp));
        match line {
            Rendered::Lines(lines) => Rendered::Lines([vec![boundary], lines].concat()),
            other => other,
        }
    }

    fn extension(&self, extended: &MessageExtended) -> Rendered {
        let shown = !extended.parts.is_empty() || !extended.tool_calls.is_empty();
        let counted = extended.usage.is_some() && self.dialect == Dialect::Recursive08;
        if extended.message_no <= self.last_message && (shown || counted) {
            Rendered::Rebuild
        } else {
            Rendered::Nothing
        }
    }

    fn line(&mut self, draft: Draft<'_>) -> Rendered {
        let parent_id = (self.lines > 0).then(|| line_id(self.lines));
        self.lines = self.lines.saturating_add(1);
        let id = line_id(self.lines);
        let timestamp = rfc3339_seconds(draft.timestamp);
        let line = match self.dialect {
            Dialect::Seed => json::line(&seed::Line {
                id: &id,
                role: role_word(draft.role),
                tool_call_id: draft.tool_call_id,
                content: &draft.content,
                tool_calls: seed::calls(draft.tool_calls),
                timestamp: &timestamp,
            }),
            Dialect::Recursive08 => {
                let uuid = self.uuid(draft.key);
                let parent_uuid = self.last_uuid.replace(uuid);
                let answers = draft.answers.map(|message_no| self.uuid(LineKey::Message(message_no.0)));
                json::line(&recursive::Line {
                    uuid,
                    parent_uuid,
                    source_tool_assistant_uuid: answers,
                    id: &id,
                    parent_id: parent_id.as_deref(),
                    role: if draft.role == Role::Developer { "system" } else { role_word(draft.role) },
                    content: &draft.content,
                    tool_calls: recursive::calls(draft.tool_calls),
                    tool_call_id: draft.tool_call_id,
                    reasoning_content: draft.reasoning,
                    usage: draft.usage.map(Into::into),
                    timestamp: &timestamp,
                    audit: draft.audit,
                })
            }
        };
        Rendered::Lines(vec![line])
    }

    fn uuid(&self, key: LineKey) -> Uuid {
        line_uuid(self.session_id, self.node, key)
    }
}

/// A line before it is put into a dialect.
struct Draft<'a> {
    key: LineKey,
    /// The message whose call a result answers.
    answers: Option<MessageNo>,
    role: Role,
    content: String,
    tool_calls: &'a [ToolCall],
    tool_call_id: Option<&'a str>,
    reasoning: Option<&'a str>,
    usage: Option<Usage>,
    audit: Option<recursive::Audit<'a>>,
    timestamp: Timestamp,
}

impl Draft<'_> {
    fn system(key: LineKey, content: String, timestamp: Timestamp) -> Self {
        Self {
            key,
            answers: None,
            role: Role::System,
            content,
            tool_calls: &[],
            tool_call_id: None,
            reasoning: None,
            usage: None,
            audit: None,
            timestamp,
        }
    }
}

fn line_id(number: u64) -> String {
    format!("msg_{number:03}")
}

fn replaced_count(compacted: &ContextCompacted) -> u64 {
    let lens = compacted
        .replaced
        .iter()
        .map(|range| range.last.0.checked_sub(range.first.0).map_or(0, |behind| behind.saturating_add(1)));
    lens.fold(0, u64::saturating_add)
}

/// The whole transcript of the root conversation: what a file holds after a rebuild. Messages that were extended later
/// come out whole.
pub fn render_all<E: Borrow<LoggedEvent>>(
    dialect: Dialect,
    session_id: SessionId,
    events: &[E],
) -> Vec<String> {
    render_node(TranscriptRenderer::new(dialect, session_id), events).1
}

/// The whole transcript of the conversation that `renderer` was made for, and the renderer that goes on behind it.
pub fn render_node<E: Borrow<LoggedEvent>>(
    mut renderer: TranscriptRenderer,
    events: &[E],
) -> (TranscriptRenderer, Vec<String>) {
    let mut pieces = Pieces::of(renderer.node);
    events.iter().for_each(|event| pieces.note(event.borrow()));
    let mut lines = Vec::new();
    for event in events {
        if let Rendered::Lines(more) = renderer.render(&pieces.whole(event.borrow())) {
            lines.extend(more);
        }
    }
    (renderer, lines)
}
