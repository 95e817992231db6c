//! Listing sessions: a function of the logs, without decoding history.

use std::collections::{BTreeMap, BTreeSet};

use sessionlog_codec::event::{Event, LoggedEvent, NodeStatus};
use sessionlog_codec::footer::FooterEntry;
use sessionlog_codec::ids::{KindNo, NodeId, Position, SessionId, Timestamp};
use sessionlog_codec::registry::kind;
use sessionlog_projections::{Projection, Status, Summary, is_activity_kind};

#[cfg(feature = "catalog")]
use super::catalogued;
use super::crowd::look_at_each;
use super::registry::registrations;
use super::{SessionPlace, StoreReader, WorkspaceHash, not_found};
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "catalog")]
use crate::log::LogMark;
use crate::log::{Indexed, SegmentName};
use crate::session::SessionReader;

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionKind {
    /// A root session.
    Root,
    /// A delegated conversation in the tree of a root session.
    Child,
}

/// Where a session came from that was forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForkedFrom {
    /// The session that was forked.
    pub session: SessionId,
    /// The last position that it took over.
    pub at: Position,
}

/// One row of a listing.
#[derive(Clone, Debug)]
pub struct SessionRow {
    /// What it is about.
    pub kind: SessionKind,
    /// The session's id, or the child's invocation id.
    pub id: String,
    /// The start and the workspace in one readable word.
    pub display_id: String,
    /// The root session.
    pub root: SessionId,
    /// The conversation within the root session's tree.
    pub node: NodeId,
    /// The id of the row that it was delegated from.
    pub parent: Option<String>,
    /// Where the root session was forked from. Of a child, only if it was delegated before: it belongs to that session as
    /// well then, under the same id.
    pub forked: Option<ForkedFrom>,
    /// What it is called.
    pub title: Option<String>,
    /// How it stands, judged now.
    pub status: Status,
    /// Messages and results, as the transcript shows them.
    pub messages: u64,
    /// When it began.
    pub created_at: Option<Timestamp>,
    /// When something happened in it last: opening and closing don't count.
    pub last_activity: Option<Timestamp>,
    /// Its model, as far as the log's first records tell.
    pub model: Option<String>,
    /// Its workspace's path, as its machine spelled it; or where the workspace was attached since: see
    /// [`Store::reattach`](crate::Store::reattach).
    pub workspace: String,
    /// The agent it was imported from, or delegated to.
    pub agent: Option<String>,
    /// Bytes of the root session's log.
    pub bytes: u64,
    /// What is wrong with it, if anything: a broken session is a row too.
    pub issue: Option<String>,
}

/// The rows of a home, and which logs end well.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The rows, as [`StoreReader::list`] gives them.
    pub rows: Vec<SessionRow>,
    /// The sessions whose logs are known to end well: the last segment is whole, and every record in it decodes and is of a kind
    /// that this version knows. Of the others, nothing is said.
    pub sound: BTreeSet<SessionId>,
}

impl StoreReader {
    /// As [`list`](Self::list), with the help of a catalog that a store keeps in the home: see [`Store::list`](crate::Store::list).
    /// It is brought up to date, or made, and is all that is changed. Where it can't be had, the listing goes without.
    ///
    /// # Errors
    /// `Io` if the home itself can't be read.
    pub fn list_with_catalog(&self) -> Result<Listing> {
        let places = self.places()?;
        #[cfg(feature = "catalog")]
        return Ok(catalogued::list(self, &places));
        #[cfg(not(feature = "catalog"))]
        Ok(Listing { rows: self.list_of(&places), sound: BTreeSet::new() })
    }

    /// Every session of the home and every delegated conversation in them, the newest activity first. A session that can't
    /// be read is a row with its issue.
    ///
    /// # Errors
    /// `Io` if the home itself can't be read.
    pub fn list(&self) -> Result<Vec<SessionRow>> {
        Ok(self.list_of(&self.places()?))
    }

    /// The rows of these sessions, sorted.
    pub(super) fn list_of(&self, places: &[SessionPlace]) -> Vec<SessionRow> {
        let mut rows = Vec::new();
        let workspaces = self.workspace_texts(places);
        let look = |place: &SessionPlace| self.rows_in(place.clone(), workspaces.of(place));
        look_at_each(places, &look, |_, found| rows.extend(found));
        sort(&mut rows);
        rows
    }

    /// The rows of one session: its own, then those of its children.
    #[must_use]
    pub fn rows(&self, place: SessionPlace) -> Vec<SessionRow> {
        let workspaces = self.workspace_texts(std::slice::from_ref(&place));
        self.rows_in(place.clone(), workspaces.of(&place))
    }

    pub(super) fn rows_in(&self, place: SessionPlace, workspace: &str) -> Vec<SessionRow> {
        let reader = self.session_at(place);
        match Sketch::of(&reader) {
            Ok(sketch) => sketch.rows(&reader, workspace),
            Err(error) => vec![broken_row(reader.place(), workspace.to_owned(), &error)],
        }
    }

    /// The paths of the workspaces that sessions are in, as text.
    pub(super) fn workspace_texts(&self, places: &[SessionPlace]) -> WorkspaceTexts {
        let mut begun = BTreeMap::new();
        for place in places {
            begun
                .entry(place.workspace.clone())
                .or_insert_with(|| text_of(&self.home.workspace_path(&place.workspace).unwrap_or_default()));
        }
        // A listing goes on without what it can't read: the roots' own list says what is wrong.
        let attached = registrations(&self.home).unwrap_or_default();
        WorkspaceTexts { begun, attached: attached.texts() }
    }

    /// Finds the one session or child whose id is `text`, begins with it, or whose display id does.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Invalid` if `text` is empty, or several ids begin with it (they are named).
    pub fn find(&self, text: &str) -> Result<SessionRow> {
        if text.is_empty() {
            return Err(Error::invalid("session.id", "an empty text names no session"));
        }
        if let Ok(id) = text.parse::<SessionId>()
            && let Some(place) = self.home.find(id)?
            && let Some(row) = self.rows(place).into_iter().next()
        {
            return Ok(row);
        }
        let lower = text.to_ascii_lowercase();
        let matches = |row: &SessionRow| row.id.starts_with(&lower) || row.display_id.starts_with(text);
        let mut found: Vec<SessionRow> = self.list()?.into_iter().filter(matches).collect();
        // A child that a fork inherited is looked for where it was delegated, as long as that is there.
        let originals: BTreeSet<String> =
            found.iter().filter(|row| row.forked.is_none()).map(|row| row.id.clone()).collect();
        found.retain(|row| row.forked.is_none() || !originals.contains(&row.id));
        let exact = |row: &SessionRow| row.id == lower || row.display_id == text;
        if let [_, _, ..] = found.as_slice()
            && let Some(one) = found.iter().position(exact)
            && found.iter().filter(|row| exact(row)).count() == 1
        {
            return Ok(found.swap_remove(one));
        }
        match (found.pop(), found.as_slice()) {
            (None, _) => Err(not_found(text)),
            (Some(row), []) => Ok(row),
            (Some(row), rest) => {
                let names: Vec<_> = rest.iter().chain([&row]).take(5).map(|row| row.id.as_str()).collect();
                let message = format!(
                    "`{text}` is the beginning of {} ids: {}",
                    rest.len().saturating_add(1),
                    names.join(", ")
                );
                Err(Error::invalid("session.ambiguous", message))
            }
        }
    }
}

/// The paths of workspaces, as text.
pub(super) struct WorkspaceTexts {
    begun: BTreeMap<WorkspaceHash, String>,
    attached: BTreeMap<SessionId, String>,
}

impl WorkspaceTexts {
    /// Where a session's workspace is now, as far as it is known.
    pub(super) fn of(&self, place: &SessionPlace) -> &str {
        let attached = self.attached.get(&place.id);
        attached.or_else(|| self.begun.get(&place.workspace)).map_or("", String::as_str)
    }
}

pub(super) fn text_of(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// The newest activity first.
pub(super) fn sort(rows: &mut [SessionRow]) {
    // A child that a fork inherited has the same id in both.
    let by_id = |a: &SessionRow, b: &SessionRow| a.id.cmp(&b.id).then_with(|| a.root.cmp(&b.root));
    rows.sort_by(|a, b| b.last_activity.cmp(&a.last_activity).then_with(|| by_id(a, b)));
}

pub(super) fn broken_row(place: &SessionPlace, workspace: String, error: &Error) -> SessionRow {
    let id = place.id.to_string();
    SessionRow {
        kind: SessionKind::Root,
        display_id: id.clone(),
        id,
        root: place.id,
        node: NodeId::ROOT,
        parent: None,
        forked: None,
        title: None,
        status: Status::Crashed,
        messages: 0,
        created_at: None,
        last_activity: None,
        model: None,
        workspace,
        agent: None,
        bytes: 0,
        issue: Some(error.to_string()),
    }
}

/// A session as far as a listing needs it: counts from the index, and the few events that name it.
pub(super) struct Sketch {
    summary: Summary,
    counts: BTreeMap<NodeId, Counts>,
    /// The children that were delegated before the session was forked.
    inherited: BTreeSet<NodeId>,
    bytes: u64,
    /// Where the log ended, by the bytes that this was made from.
    #[cfg(feature = "catalog")]
    mark: Option<LogMark>,
    issue: Option<String>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    messages: u64,
    first: Option<Timestamp>,
    last_activity: Option<Timestamp>,
}

/// Events that are decoded for a listing wherever they are: few in any session.
const NAMING: [KindNo; 12] = [
    kind::SessionCreated,
    kind::SessionOpened,
    kind::SessionTitled,
    kind::SessionTagged,
    kind::SessionFinished,
    kind::SessionClosed,
    kind::SessionForked,
    kind::RunStarted,
    kind::NodeOpened,
    kind::NodeSettled,
    kind::NodeDeleted,
    kind::GapMarked,
];

/// How many messages are looked at first for a prompt that can stand for a title; then twice as many, and so on.
const PROMPT_STEP: usize = 16;
/// How many of the last messages are looked at for the model.
const LAST_MESSAGES: usize = 8;

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    segment: SegmentName,
    frame_offset: u32,
    position: Position,
}

/// The records that a listing decodes.
#[derive(Default)]
struct Decoded {
    events: BTreeMap<Position, LoggedEvent>,
    issue: Option<String>,
}

impl Decoded {
    /// Decodes records, reading each frame once.
    fn read(&mut self, reader: &SessionReader, indexed: &Indexed, places: &[Place]) -> Result<()> {
        let mut places = places.iter().peekable();
        while let Some(first) = places.peek().copied() {
            let same =
                |next: &&Place| next.segment == first.segment && next.frame_offset == first.frame_offset;
            let mut positions = Vec::new();
            while let Some(place) = places.next_if(same) {
                positions.push(place.position);
            }
            reader.log().read_indexed_frame(indexed, first.segment, first.frame_offset, &mut |record| {
                if positions.contains(&record.position) {
                    match crate::session::logged(&record) {
                        Ok(event) => {
                            self.events.insert(event.position, event);
                        }
                        Err(error) => self.issue = Some(error.to_string()),
                    }
                }
            })?;
        }
        Ok(())
    }

    /// The records in the order of the log, folded.
    fn fold(&self) -> Summary {
        let mut summary = Summary::default();
        self.events.values().for_each(|event| summary.apply(event));
        summary
    }
}

impl Sketch {
    pub(super) fn of(reader: &SessionReader) -> Result<Self> {
        let mut counts: BTreeMap<NodeId, Counts> = BTreeMap::new();
        let (mut naming, mut messages) = (Vec::new(), Vec::new());
        let log = reader.log();
        let indexed = log.index(&mut |position, entry: FooterEntry, segment| {
            let count = counts.entry(entry.node).or_default();
            if entry.kind == kind::MessageAppended || entry.kind == kind::CallFinished {
                count.messages = count.messages.saturating_add(1);
            }
            count.first.get_or_insert(entry.timestamp);
            if is_activity_kind(entry.kind) && !NAMING.contains(&entry.kind) {
                count.last_activity = count.last_activity.max(Some(entry.timestamp));
            }
            let place = Place { segment, frame_offset: entry.frame_offset, position };
            if NAMING.contains(&entry.kind) {
                naming.push(place);
            } else if entry.kind == kind::MessageAppended && entry.node == NodeId::ROOT {
                messages.push(place);
            }
        })?;
        let mut decoded = Decoded::default();
        decoded.read(reader, &indexed, &naming)?;
        // The fold takes the first prompt wherever it stands, so this does too.
        let (mut read, mut step) = (0, PROMPT_STEP);
        while let Some(next) = messages.get(read..).filter(|next| !next.is_empty()) {
            decoded.read(reader, &indexed, next.get(..step).unwrap_or(next))?;
            if decoded.fold().first_prompt.is_some() {
                break;
            }
            read = read.saturating_add(step);
            step = step.saturating_mul(2);
        }
        let last = messages.get(messages.len().saturating_sub(LAST_MESSAGES)..).unwrap_or_default();
        decoded.read(reader, &indexed, last)?;
        let summary = decoded.fold();
        if summary.created.is_none() {
            let message = format!("{}: its first record is missing or hurt", reader.place().dir.display());
            return Err(Error::new(ErrorKind::Corrupt, "session.unnamed", message));
        }
        let gap = decoded.events.values().find_map(|event| match &event.event {
            Event::GapMarked(gap) => Some(gap.explanation.clone()),
            _ => None,
        });
        let at = summary.forked.as_ref().map_or(Position::START, |forked| forked.what.at);
        let inherited = decoded.events.range(..=at).filter_map(|(_, event)| match &event.event {
            Event::NodeOpened(opened) => Some(opened.child),
            _ => None,
        });
        let inherited = inherited.collect();
        Ok(Self {
            summary,
            counts,
            inherited,
            bytes: indexed.bytes,
            #[cfg(feature = "catalog")]
            mark: indexed.mark,
            issue: decoded.issue.or(gap),
        })
    }

    pub(super) fn rows(&self, reader: &SessionReader, workspace: &str) -> Vec<SessionRow> {
        let place = reader.place();
        let created = self.summary.created.as_ref().map(|created| &created.what);
        let model = self.summary.model.clone();
        let all = self.counts.values().filter_map(|counts| counts.last_activity).max();
        let all = all.max(self.summary.last_activity);
        let root = SessionRow {
            kind: SessionKind::Root,
            id: place.id.to_string(),
            display_id: self.summary.display_id(),
            root: place.id,
            node: NodeId::ROOT,
            parent: None,
            forked: self
                .summary
                .forked
                .as_ref()
                .map(|forked| ForkedFrom { session: forked.what.parent, at: forked.what.at }),
            title: self.summary.title(),
            status: reader.status(&self.summary),
            messages: self.count(NodeId::ROOT).messages,
            created_at: self.summary.created_at(),
            last_activity: all.or(self.summary.created_at()),
            model,
            workspace: workspace.to_owned(),
            agent: created.and_then(|created| Some(created.imported.as_ref()?.agent.clone())),
            bytes: self.bytes,
            issue: self.issue.clone(),
        };
        let children =
            self.summary.nodes.iter().filter_map(|(node, child)| self.child_row(&root, *node, child));
        let mut rows = vec![root.clone()];
        rows.extend(children);
        rows
    }

    #[cfg(feature = "catalog")]
    pub(super) fn mark(&self) -> Option<&LogMark> {
        self.mark.as_ref()
    }

    #[cfg(feature = "catalog")]
    pub(super) fn lifecycle(&self) -> sessionlog_projections::Lifecycle {
        self.summary.lifecycle
    }

    /// How a child ended.
    #[cfg(feature = "catalog")]
    pub(super) fn settled(&self, node: NodeId) -> Option<NodeStatus> {
        self.summary.nodes.get(&node).and_then(|child| child.status)
    }

    fn count(&self, node: NodeId) -> Counts {
        self.counts.get(&node).copied().unwrap_or_default()
    }

    fn child_row(
        &self,
        root: &SessionRow,
        node: NodeId,
        child: &sessionlog_projections::NodeSummary,
    ) -> Option<SessionRow> {
        let opened = child.opened.as_ref()?;
        let id = opened.invocation_id.to_string();
        let parent = self
            .summary
            .nodes
            .get(&opened.parent)
            .and_then(|parent| Some(parent.opened.as_ref()?.invocation_id.to_string()))
            .unwrap_or_else(|| root.id.clone());
        let counts = self.count(node);
        Some(SessionRow {
            kind: SessionKind::Child,
            display_id: id.clone(),
            id,
            node,
            parent: Some(parent),
            forked: root.forked.filter(|_| self.inherited.contains(&node)),
            title: child.title.clone(),
            status: child_status(child.status, root.status),
            messages: counts.messages,
            created_at: counts.first.or(root.created_at),
            last_activity: counts.last_activity,
            agent: Some(opened.agent.clone()),
            ..root.clone()
        })
    }
}

pub(super) fn child_status(settled: Option<NodeStatus>, root: Status) -> Status {
    match settled {
        Some(NodeStatus::Completed) => Status::Completed,
        Some(NodeStatus::Blocked | NodeStatus::Failed) => Status::Failed,
        Some(NodeStatus::Unknown | NodeStatus::Cancelled) => Status::Interrupted,
        None => root,
    }
}
