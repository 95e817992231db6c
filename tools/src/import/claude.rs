//! Claude Code: a main file for each session, and one for each agent that it delegated to.

mod assistant;
mod blocks;
mod children;
mod line;
mod raw;
mod system;
mod user;

use std::collections::HashMap;

use sessionlog_codec::event::{MessageRange, SessionTitled, SourceIds, TitleOrigin};
use sessionlog_codec::ids::{MessageNo, NodeId, Timestamp};

use super::conversation::Conversation;
use super::lines::Record;
use super::loose::{Key, time};
use super::mapper::{Anchor, Clock, Mapped, Mapper, NotOneValue, map_object};
use super::tree::{Branch, Sibling, Tree};
pub(super) use children::{ChildFacts, Children, Link};
use line::Line;
pub(super) use raw::RawOnly;

/// What all files of a session share.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) children: Children,
    threads: HashMap<NodeId, Thread>,
}

/// The conversation of one node.
#[derive(Debug)]
struct Thread {
    conversation: Conversation,
    tree: Tree,
    /// The responses, by their ids.
    responses: HashMap<Key, Response>,
    boundary: Option<Boundary>,
    last_time: Option<Timestamp>,
}

/// A response, of which more may come.
#[derive(Clone, Copy, Debug)]
struct Response {
    message: (MessageNo, Anchor),
    tool_calls: u32,
}

/// A compaction whose summary comes next.
#[derive(Debug)]
struct Boundary {
    uuid: Option<String>,
    trigger: sessionlog_codec::event::CompactionTrigger,
    tokens_before: Option<u64>,
    tokens_after: Option<u64>,
    kept: Vec<MessageRange>,
}

impl Thread {
    fn new(node: NodeId) -> Self {
        Self {
            conversation: Conversation::new(node),
            tree: Tree::new(),
            responses: HashMap::new(),
            boundary: None,
            last_time: None,
        }
    }
}

impl Session {
    pub(super) fn new(children: Children) -> Self {
        Self { children, threads: HashMap::new() }
    }

    fn thread(&mut self, node: NodeId) -> &mut Thread {
        self.threads.entry(node).or_insert_with(|| Thread::new(node))
    }

    /// The time of the last record of a node that had one.
    pub(super) fn last_time(&self, node: NodeId) -> Option<Timestamp> {
        self.threads.get(&node)?.last_time
    }

    /// Whether records of this import have gone to a node.
    pub(super) fn has_thread(&self, node: NodeId) -> bool {
        self.threads.contains_key(&node)
    }
}

/// Which file of a session is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    /// The session's own. Sidechains in it are children without a file.
    Main,
    /// A child's.
    Child(NodeId),
}

/// Maps one file of a session.
#[derive(Debug)]
pub(super) struct ClaudeMapper<'s> {
    session: &'s mut Session,
    file: File,
    clock: Clock,
    /// The nodes of sidechain lines.
    sidechains: HashMap<Key, NodeId>,
    /// Titles whose line is not seen yet.
    summaries: HashMap<Key, Vec<String>>,
}

impl<'s> ClaudeMapper<'s> {
    pub(super) fn new(session: &'s mut Session, file: File, first: Option<Timestamp>) -> Self {
        let clock = Clock::new(first);
        Self { session, file, clock, sidechains: HashMap::new(), summaries: HashMap::new() }
    }

    fn map_line(&mut self, line: &Line<'_>, record: &Record<'_>) -> Mapped {
        let stamp = self.clock.stamp(time(&line.timestamp));
        let mut mapped = Mapped::new(&line.kind(), stamp);
        let node = self.node_of(line, record, &mut mapped);
        self.session.thread(node).last_time = stamp.timestamp;
        let is_message = matches!(line.kind.as_str(), Some("user" | "assistant"));
        if is_message && line.uuid.filled().is_some_and(|uuid| self.session.thread(node).tree.has_said(uuid))
        {
            mapped.kind = "duplicate".into();
            return mapped;
        }
        match line.kind.as_str() {
            Some("user") => self.user(node, line, &mut mapped),
            Some("assistant") => self.assistant(node, line, &mut mapped),
            Some("system") => self.system(node, line, &mut mapped),
            Some("attachment") => self.attachment(node, line, &mut mapped),
            Some("progress") => self.progress(node, line),
            _ => self.title(line, &mut mapped),
        }
        self.link(node, line);
        self.resolve_summaries(line, &mut mapped);
        mapped
    }

    /// Puts a line that said nothing in its place in the tree, so that what follows it finds its way.
    fn link(&mut self, node: NodeId, line: &Line<'_>) {
        self.session.thread(node).tree.link(line.uuid.filled(), line.parent_uuid.filled());
    }

    /// Enters the tree with a line that says something, and moves the head if the conversation branches there.
    fn enter(
        &mut self,
        node: NodeId,
        line: &Line<'_>,
        sibling: Sibling,
        mapped: &mut Mapped,
    ) -> super::tree::Place {
        let (place, branch) = self.session.thread(node).tree.enter(line.parent_uuid.filled(), sibling);
        if let Some(Branch { to, from, reason }) = branch {
            mapped.move_head(node, to, from, reason);
        }
        place
    }

    fn title(&mut self, line: &Line<'_>, mapped: &mut Mapped) {
        let (title, origin) = match line.kind.as_str() {
            Some("ai-title") => (&line.ai_title, TitleOrigin::Model),
            Some("custom-title") => (&line.custom_title, TitleOrigin::Person),
            Some("agent-name") => (&line.agent_name, TitleOrigin::Host),
            Some("summary") => return self.summary(line),
            _ => return,
        };
        if let Some(title) = title.owned() {
            mapped.push(NodeId::ROOT, SessionTitled { title, origin });
        }
    }

    /// A summary may stand in a file that it does not describe: it counts once the line that it names is seen.
    fn summary(&mut self, line: &Line<'_>) {
        // They are few and short; the limits are for files that are nothing else.
        const PENDING_MAX: usize = 4096;
        const TITLE_LEN_MAX: usize = 4096;
        let (Some(title), Some(leaf)) = (line.summary.filled(), line.leaf_uuid.filled()) else { return };
        if self.summaries.len() < PENDING_MAX {
            let title = super::loose::cut(title, TITLE_LEN_MAX).to_owned();
            self.summaries.entry(Key::of(leaf)).or_default().push(title);
        }
    }

    fn resolve_summaries(&mut self, line: &Line<'_>, mapped: &mut Mapped) {
        if self.summaries.is_empty() {
            return;
        }
        let seen = match line.kind.as_str() {
            Some("summary") => {
                line.leaf_uuid.filled().filter(|leaf| self.session.thread(NodeId::ROOT).tree.contains(leaf))
            }
            _ => line.uuid.filled(),
        };
        let titles = seen.and_then(|seen| self.summaries.remove(&Key::of(seen)));
        for title in titles.into_iter().flatten() {
            mapped.push(NodeId::ROOT, SessionTitled { title, origin: TitleOrigin::Summary });
        }
    }
}

impl Mapper for ClaudeMapper<'_> {
    fn map(&mut self, record: &Record<'_>) -> Result<Mapped, NotOneValue> {
        let mapped = map_object(record, |text| Some(self.map_line(&Line::decode(text)?, record)))?;
        Ok(mapped.unwrap_or_else(|| Mapped::new("json", self.clock.stamp(None))))
    }

    fn notes(&mut self) -> Vec<String> {
        let unseen: usize = self.summaries.values().map(Vec::len).sum();
        let unseen =
            (unseen > 0).then(|| format!("{unseen} titles belong to other sessions and name none here"));
        unseen.into_iter().collect()
    }
}

/// The ids of a line, if it has any.
fn source_of(line: &Line<'_>) -> Option<SourceIds> {
    let source = line.source();
    (source != SourceIds::default()).then_some(source)
}
