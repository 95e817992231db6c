//! A session tree as q's files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use sessionlog_codec::event::LoggedEvent;
use sessionlog_codec::ids::{CallRef, NodeId};

use super::delegates::is_valid_id;
use super::message::Message;
use super::notes::{Key, Notes};
use super::talk::{Instructions, Talk};
use super::{AGENT, write};
use crate::Projection;
use crate::context::{ContextMessage, ContextOrigin};
use crate::delegation::{DelegationRow, Delegations, Standing};
use crate::recovery::Executions;
use crate::summary::Summary;
use crate::tree::TreeState;

/// All that q's files of one session derive from: a fold over every event of its log.
#[derive(Clone, Debug, Default)]
pub struct QTree {
    pub(super) tree: TreeState,
    pub(super) delegations: Delegations,
    pub(super) executions: Executions,
    pub(super) summary: Summary,
    pub(super) notes: Notes,
}

/// A file of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QFile {
    /// Its path below the session's directory. Each part is a fixed word or a checked id.
    pub path: Vec<String>,
    /// The conversation it is about.
    pub node: NodeId,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Session,
    Delegations,
    State,
    Plan,
}

/// One conversation, about to be written.
pub(super) struct Told {
    pub(super) node: NodeId,
    pub(super) talk: Talk,
    pub(super) context: Vec<(Option<Key>, Message)>,
}

impl Projection for QTree {
    fn apply(&mut self, logged: &LoggedEvent) {
        self.tree.apply(logged);
        self.delegations.apply(logged);
        self.executions.apply(logged);
        self.summary.apply(logged);
        self.notes.apply(logged);
    }
}

impl QTree {
    /// Folds `events`, in the order of their positions.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a LoggedEvent>) -> Self {
        let mut tree = Self::default();
        events.into_iter().for_each(|event| tree.apply(event));
        tree
    }

    /// The name of the session's directory, which q wants to be its id.
    #[must_use]
    pub fn directory(&self) -> String {
        self.id(NodeId::ROOT)
    }

    /// The files of the session, each behind the one of the conversation that it belongs to.
    #[must_use]
    pub fn files(&self) -> Vec<QFile> {
        self.walk().0
    }

    /// Delegations that no file tells of, in plain words: q finds a delegate by its call in the current run.
    #[must_use]
    pub fn left_out(&self) -> Vec<String> {
        let bookmarked = self.walk().1;
        let rows = self.delegations.tree().into_iter().filter(|row| !bookmarked.contains(&row.node));
        rows.map(|row| {
            let id = self.id(row.node);
            format!("delegation {id} was left out: no call of the current run is known to have made it")
        })
        .collect()
    }

    /// The files, and the conversations that have a bookmark in one of them.
    fn walk(&self) -> (Vec<QFile>, BTreeSet<NodeId>) {
        let mut files = Vec::new();
        let mut seen = BTreeSet::from([NodeId::ROOT]);
        let mut waiting = vec![(NodeId::ROOT, Vec::new())];
        let mut rows: BTreeMap<NodeId, Vec<DelegationRow>> = BTreeMap::new();
        for row in self.delegations.tree() {
            rows.entry(row.parent).or_default().push(row);
        }
        while let Some((node, directory)) = waiting.pop() {
            let rows = rows.remove(&node).unwrap_or_default();
            let children = if rows.is_empty() { rows } else { self.found(rows, &self.told(node).talk) };
            let file = |kind: Kind| {
                let mut path: Vec<String> = directory.clone();
                path.push(kind.name().to_owned());
                QFile { path, node, kind }
            };
            files.extend(self.kinds(node, !children.is_empty()).into_iter().map(file));
            for child in children.into_iter().rev() {
                if seen.insert(child.node) {
                    let mut below = directory.clone();
                    below.extend(["delegates".to_owned(), self.id(child.node)]);
                    waiting.push((child.node, below));
                }
            }
        }
        (files, seen)
    }

    /// Writes one of [`files`](Self::files).
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&self, file: &QFile, out: &mut dyn Write) -> io::Result<()> {
        let told = self.told(file.node);
        let text = match file.kind {
            Kind::Session => {
                let transcript = told.talk.messages.iter().map(|(_, message)| message);
                let context = told.context.iter().map(|(_, message)| message);
                return write::session(out, &self.header(&told), transcript, context);
            }
            Kind::Delegations => self.bookmarks(&told, &self.children(file.node, &told.talk)).to_json(),
            Kind::State => self.state(&told).to_json(),
            Kind::Plan => match self.plan() {
                Some(plan) => plan.to_json(),
                None => return Ok(()),
            },
        };
        out.write_all(text.as_bytes())
    }

    fn kinds(&self, node: NodeId, has_children: bool) -> Vec<Kind> {
        let notes = self.notes.of(node);
        let is_child = node != NodeId::ROOT;
        let messages = self.summary.nodes.get(&node).map_or(0, |summary| summary.messages);
        // One that was reset to nothing is to begin again, and was there all the same.
        let begun = messages > 0 || self.delegations.standing(node).is_some_and(|it| it != Standing::Opened);
        // A bookmark alone says that its agent was never asked.
        let is_there = !is_child || begun || notes.state.is_some() || notes.header.is_some();
        // An agent elsewhere has a state and no conversation.
        let has_session = !is_child || messages > 0 || notes.header.is_some();
        let kinds = [
            (Kind::Session, is_there && has_session),
            (Kind::State, is_there && is_child),
            (Kind::Delegations, has_children),
            (Kind::Plan, !is_child && self.plan().is_some()),
        ];
        kinds.into_iter().filter(|(_, is_written)| *is_written).map(|(kind, _)| kind).collect()
    }

    pub(super) fn told(&self, node: NodeId) -> Told {
        let notes = self.notes.of(node);
        let shown = self.tree.context(node);
        let talk = Talk::of(&self.tree, node, notes, &shown);
        let context = self.kept_context(node, &talk).unwrap_or_else(|| {
            shown.iter().filter_map(|message| context_message(message, node, &talk)).collect()
        });
        Told { node, talk, context }
    }

    /// The context of the file that was imported, while it is still the conversation's.
    fn kept_context(&self, node: NodeId, talk: &Talk) -> Option<Vec<(Option<Key>, Message)>> {
        let notes = self.notes.of(node);
        let kept = notes.context.as_ref()?;
        let instructions = Instructions::of(node);
        let mut messages = Vec::new();
        for piece in &kept.pieces {
            match piece {
                super::kept::Piece::Elements(first, last) => {
                    for (_, key) in notes.elements.range(*first..=*last) {
                        messages.extend(talk.message(*key).map(|message| (Some(*key), message.clone())));
                    }
                }
                super::kept::Piece::Message(json) => {
                    let message = kept.message(json).filter(|message| instructions.admit(message));
                    messages.extend(message.map(|message| (None, message)));
                }
            }
        }
        // A file may have results in another order than their calls, and the transcript has them in call order.
        let turn = |key: &Option<Key>| match key {
            Some(Key::Call(call)) => Some(call.message_no),
            _ => None,
        };
        let same_turn = |(a, _): &(Option<Key>, Message), (b, _): &(Option<Key>, Message)| {
            turn(a).is_some() && turn(a) == turn(b)
        };
        messages.chunk_by_mut(same_turn).for_each(|results| results.sort_by_key(|(key, _)| *key));
        Some(messages)
    }

    /// The delegates that q would find from a conversation's current run.
    fn children(&self, node: NodeId, talk: &Talk) -> Vec<DelegationRow> {
        let mut rows = self.delegations.tree();
        rows.retain(|row| row.parent == node);
        self.found(rows, talk)
    }

    /// Those of a conversation's children whose calls are in its transcript: one for each call.
    fn found(&self, rows: Vec<DelegationRow>, talk: &Talk) -> Vec<DelegationRow> {
        let is_found = |row: &DelegationRow| {
            let bookmark = self.notes.opened(row.node).map(|(opened, _)| opened);
            let is_whole = bookmark.is_some_and(|it| !it.agent.is_empty() && !it.prompt.is_empty());
            is_whole && row.call.is_some_and(|call| talk.call(call).is_some())
        };
        let mut calls: BTreeSet<CallRef> = BTreeSet::new();
        let rows = rows.into_iter().filter(is_found);
        rows.filter(|row| row.call.is_some_and(|call| calls.insert(call))).collect()
    }

    /// What q calls a conversation: its directory's name.
    pub(super) fn id(&self, node: NodeId) -> String {
        if node == NodeId::ROOT {
            return self.summary.session_id.map(|id| id.to_string()).unwrap_or_default();
        }
        let Some((opened, _)) = self.notes.opened(node) else { return node.to_string() };
        let own = opened.source_id.as_deref().filter(|id| self.is_imported() && is_valid_id(id));
        own.map_or_else(|| opened.invocation_id.to_string(), str::to_owned)
    }

    /// Whether the session was imported from files of q's.
    fn is_imported(&self) -> bool {
        let origin = self.summary.created.as_ref().and_then(|created| created.what.imported.as_ref());
        origin.is_some_and(|origin| origin.agent == AGENT)
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Session => super::SESSION_FILE,
            Self::Delegations => super::DELEGATIONS_FILE,
            Self::State => super::STATE_FILE,
            Self::Plan => super::PLAN_FILE,
        }
    }
}

/// A message of a context as q has it. Call ids are the transcript's: q joins a result to its call by its place.
fn context_message(shown: &ContextMessage, node: NodeId, talk: &Talk) -> Option<(Option<Key>, Message)> {
    let key = match (shown.origin, shown.call, shown.message_no) {
        (ContextOrigin::Summary, ..) => return Some((None, Message::of_summary(&shown.parts))),
        (_, Some(call), _) => Key::Call(call),
        (_, None, Some(message_no)) => Key::Message(message_no),
        (_, None, None) => return None,
    };
    let Key::Call(call) = key else {
        let message = talk.message(key)?.clone();
        return Instructions::of(node).admit(&message).then_some((Some(key), message));
    };
    if talk.open.contains(&call) {
        return None;
    }
    let (call_id, name) = talk.call(call)?;
    let transcript = talk.message(key)?;
    let id = if transcript.tool_call_id.is_empty() { call_id } else { &transcript.tool_call_id };
    let own = Message::of_result(&shown.parts, name, id);
    // A result that was cleared is another one here than in the transcript. Empty texts are left out of contexts.
    let is_text = |message: &Message| message.content.iter().all(|part| part.kind == "text");
    let text =
        |message: &Message| -> String { message.content.iter().map(|part| part.text.as_str()).collect() };
    let is_same = own.content == transcript.content
        || !is_text(transcript)
        || (is_text(&own) && text(&own) == text(transcript));
    Some((Some(key), if is_same { transcript.clone() } else { own }))
}
