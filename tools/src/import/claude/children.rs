//! Delegated agents: which call each of them comes from, and which node it is.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;
use sessionlog_codec::event::{AgentKind, NodeOpened, Part, ToolCall};
use sessionlog_codec::ids::{CallRef, MessageNo, NodeId, SessionId, ToolIndex};

use super::blocks::{Content, first_text};
use super::line::Line;
use super::{ClaudeMapper, File, Session};
use crate::import::conversation::Answer;
use crate::import::lines::Record;
use crate::import::loose::{Flag, Key, Text, cut, invocation_id, object, part};
use crate::import::mapper::Mapped;
use crate::import::split::text_of;
use crate::import::target::KnownNode;

/// The longest prompt that is repeated in a `node.opened`: the whole of it is the child's first message.
const PROMPT_LEN_MAX: usize = 1 << 20;

/// What is known of a session's children.
#[derive(Debug)]
pub(in crate::import) struct Children {
    session_id: SessionId,
    nodes: HashMap<String, NodeId>,
    last: NodeId,
    depths: HashMap<NodeId, u32>,
    links: HashMap<String, Link>,
    spawns: HashMap<(NodeId, CallRef), Spawn>,
    notified: HashSet<String>,
}

/// Where an agent was called from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::import) struct Link {
    pub(in crate::import) parent: NodeId,
    pub(in crate::import) call: Option<CallRef>,
    pub(in crate::import) call_id: Option<String>,
}

/// A call that starts an agent.
#[derive(Clone, Debug, Default)]
struct Spawn {
    call_id: String,
    agent: Option<String>,
    description: Option<String>,
    prompt: Option<Key>,
    state: SpawnState,
    sidechain: Option<NodeId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SpawnState {
    #[default]
    Running,
    /// It has a result, which says no more than that the agent runs.
    InBackground,
    Done,
}

/// What a child's own files say about it.
#[derive(Clone, Debug, Default)]
pub(in crate::import) struct ChildFacts {
    pub(in crate::import) agent: Option<String>,
    pub(in crate::import) description: Option<String>,
    pub(in crate::import) tool_use_id: Option<String>,
    pub(in crate::import) parent_agent_id: Option<String>,
    pub(in crate::import) prompt: Option<String>,
    pub(in crate::import) working_directory: Option<String>,
}

impl ChildFacts {
    /// The facts of an `agent-<id>.meta.json`.
    pub(in crate::import) fn of_meta(bytes: &[u8]) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Meta<'a> {
            #[serde(borrow, default)]
            agent_type: Text<'a>,
            #[serde(borrow, default)]
            description: Text<'a>,
            #[serde(borrow, default)]
            tool_use_id: Text<'a>,
            #[serde(borrow, default)]
            parent_agent_id: Text<'a>,
        }
        let text = text_of(bytes);
        let meta: Meta<'_> = object(&text).unwrap_or_default();
        Self {
            agent: meta.agent_type.owned(),
            description: meta.description.owned(),
            tool_use_id: meta.tool_use_id.owned(),
            parent_agent_id: meta.parent_agent_id.owned(),
            prompt: None,
            working_directory: None,
        }
    }
}

impl Children {
    /// `nodes` are the ones that the session has already.
    pub(in crate::import) fn new(session_id: SessionId, nodes: &[KnownNode]) -> Self {
        let named = nodes.iter().filter_map(|known| Some((known.source_id.clone()?, known.node)));
        Self {
            session_id,
            nodes: named.collect(),
            last: nodes.iter().map(|known| known.node).max().unwrap_or_default(),
            depths: HashMap::new(),
            links: HashMap::new(),
            spawns: HashMap::new(),
            notified: HashSet::new(),
        }
    }

    /// The node of an agent: the one it has, or the next one.
    pub(in crate::import) fn node(&mut self, source_id: &str) -> NodeId {
        if let Some(node) = self.nodes.get(source_id) {
            return *node;
        }
        self.last = self.last.next().unwrap_or(self.last);
        self.nodes.insert(source_id.to_owned(), self.last);
        self.last
    }

    /// The node that an agent has.
    pub(in crate::import) fn known_node(&self, source_id: &str) -> Option<NodeId> {
        self.nodes.get(source_id).copied()
    }

    /// Takes back the number that [`Self::node`] gave last, since nothing came of it.
    pub(in crate::import) fn release(&mut self, source_id: &str) {
        if self.nodes.get(source_id) == Some(&self.last) {
            self.nodes.remove(source_id);
            self.last = NodeId(self.last.0.saturating_sub(1));
        }
    }

    /// Where an agent was called from, as far as the files read so far say.
    pub(in crate::import) fn link(&self, source_id: &str) -> Option<&Link> {
        self.links.get(source_id)
    }

    /// Whether the call of an agent has its final result.
    pub(in crate::import) fn is_finished(&self, source_id: &str, link: &Link) -> bool {
        let done =
            |call| self.spawns.get(&(link.parent, call)).is_some_and(|it| it.state == SpawnState::Done);
        self.notified.contains(source_id) || link.call.is_some_and(done)
    }

    /// The bookmark of a delegation.
    pub(in crate::import) fn opened(
        &mut self,
        child: NodeId,
        source_id: &str,
        link: &Link,
        facts: ChildFacts,
    ) -> NodeOpened {
        let spawn = link.call.and_then(|call| self.spawns.get(&(link.parent, call)));
        let helper = if source_id.starts_with("acompact") { "acompact" } else { "task" };
        let agent = facts.agent.or_else(|| spawn?.agent.clone());
        let depth = self.depths.get(&link.parent).copied().unwrap_or(0).saturating_add(1);
        self.depths.insert(child, depth);
        NodeOpened {
            child,
            invocation_id: invocation_id(self.session_id, source_id),
            parent: link.parent,
            call: link.call,
            call_id: link.call_id.clone(),
            agent: agent.unwrap_or_else(|| helper.to_owned()),
            kind: AgentKind::Inner,
            prompt: cut(&facts.prompt.unwrap_or_default(), PROMPT_LEN_MAX).to_owned(),
            description: facts.description.or_else(|| spawn?.description.clone()),
            working_directory: facts.working_directory,
            run_id: None,
            depth,
            source_id: Some(source_id.to_owned()),
        }
    }

    /// Remembers those of a message's calls that start agents.
    pub(super) fn remember_calls(
        &mut self,
        node: NodeId,
        message_no: MessageNo,
        before: u32,
        calls: &[ToolCall],
    ) {
        #[derive(Default, Deserialize)]
        struct Input<'a> {
            #[serde(borrow, default)]
            subagent_type: Text<'a>,
            #[serde(borrow, default)]
            description: Text<'a>,
            #[serde(borrow, default)]
            prompt: Text<'a>,
        }
        for (tool_index, call) in (before..).zip(calls) {
            if !matches!(call.name.as_str(), "Task" | "Agent") {
                continue;
            }
            let input: Input<'_> = call.arguments.as_str().and_then(object).unwrap_or_default();
            let spawn = Spawn {
                call_id: call.call_id.clone(),
                agent: input.subagent_type.owned(),
                description: input.description.owned(),
                prompt: input.prompt.filled().map(Key::of),
                ..Spawn::default()
            };
            self.spawns.insert((node, CallRef { message_no, tool_index: ToolIndex(tool_index) }), spawn);
        }
    }

    /// A notice that an agent in the background is done.
    pub(super) fn notified(&mut self, text: &str) {
        let id = text.split_once("<task-id>").and_then(|(_, rest)| rest.split_once("</task-id>"));
        if let Some((id, _)) = id {
            self.notified.insert(id.trim().to_owned());
        }
    }

    /// The child without a file that a call started, if the call is done now. Gives it once.
    pub(super) fn settle_sidechain(&mut self, node: NodeId, call: CallRef) -> Option<NodeId> {
        let spawn = self.spawns.get_mut(&(node, call)).filter(|spawn| spawn.state == SpawnState::Done)?;
        spawn.sidechain.take()
    }

    /// The newest running call whose prompt is this text.
    fn spawn_of(&self, node: NodeId, prompt: &str) -> Option<CallRef> {
        let key = Some(Key::of(prompt));
        let running = |spawn: &Spawn| spawn.state == SpawnState::Running && spawn.sidechain.is_none();
        let of_node = self.spawns.iter().filter(|((owner, _), _)| *owner == node);
        of_node.filter(|(_, spawn)| spawn.prompt == key && running(spawn)).map(|((_, call), _)| *call).max()
    }
}

/// What a result says about the agent that gave it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AgentResult<'a> {
    #[serde(borrow, default)]
    agent_id: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
    #[serde(default)]
    is_async: Flag,
}

impl Session {
    /// Where a child was called from: by its own files, or by what its parent's say.
    pub(in crate::import) fn link_of(&self, source_id: &str, facts: &ChildFacts) -> Link {
        let named =
            facts.parent_agent_id.as_ref().and_then(|parent| self.children.nodes.get(parent)).copied();
        if let Some(call_id) = &facts.tool_use_id {
            let mut nodes: Vec<_> =
                named.map_or_else(|| self.threads.keys().copied().collect(), |node| vec![node]);
            nodes.sort_unstable();
            for parent in nodes {
                let known = self.threads.get(&parent).and_then(|thread| thread.conversation.find(call_id));
                if let Some(known) = known {
                    return Link { parent, call: Some(known.call), call_id: Some(call_id.clone()) };
                }
            }
        }
        if let Some(link) = self.children.link(source_id) {
            return link.clone();
        }
        Link { parent: named.unwrap_or_default(), call: None, call_id: facts.tool_use_id.clone() }
    }

    /// Whether the call that started a child has its final result.
    pub(in crate::import) fn is_child_finished(&self, source_id: &str, link: &Link) -> bool {
        let answer = link.call_id.as_ref().and_then(|call_id| {
            let known = self.threads.get(&link.parent)?.conversation.find(call_id)?;
            (Some(known.call) == link.call).then_some(known.answer)
        });
        // Tools of other names start agents too; those have no spawn, but an answer all the same.
        let is_spawn = link.call.is_some_and(|call| self.children.spawns.contains_key(&(link.parent, call)));
        self.children.is_finished(source_id, link) || (!is_spawn && answer == Some(Answer::Given))
    }
}

impl ClaudeMapper<'_> {
    /// The node that a line belongs to. Old versions write children's lines into the main file.
    pub(super) fn node_of(&mut self, line: &Line<'_>, record: &Record<'_>, mapped: &mut Mapped) -> NodeId {
        let own = match self.file {
            File::Child(node) => return node,
            File::Main => NodeId::ROOT,
        };
        if !line.is_sidechain.is_set() {
            return own;
        }
        let keys = [line.uuid.filled(), line.parent_uuid.filled()];
        let known = keys.into_iter().flatten().find_map(|uuid| self.sidechains.get(&Key::of(uuid)).copied());
        let node = match known {
            Some(node) => node,
            None if line.message.is_some() => self.open_sidechain(line, record, mapped),
            None => return own,
        };
        if let Some(uuid) = line.uuid.filled() {
            self.sidechains.insert(Key::of(uuid), node);
        }
        node
    }

    fn open_sidechain(&mut self, line: &Line<'_>, record: &Record<'_>, mapped: &mut Mapped) -> NodeId {
        let source_id = line.agent_id.owned().unwrap_or_else(|| match line.uuid.filled() {
            Some(uuid) => format!("sidechain-{uuid}"),
            None => format!("sidechain-at-{}", record.offset),
        });
        let node = self.session.children.node(&source_id);
        if self.session.has_thread(node) {
            return node;
        }
        self.session.thread(node);
        let content = line.message().and_then(|message| Content::read(message.content)).unwrap_or_default();
        let prompt = content.text().map(str::to_owned);
        let linked = self.session.children.link(&source_id).cloned();
        let link = linked.unwrap_or_else(|| {
            let call = prompt.as_deref().and_then(|text| self.session.children.spawn_of(NodeId::ROOT, text));
            let spawn = call.and_then(|call| self.session.children.spawns.get(&(NodeId::ROOT, call)));
            Link { parent: NodeId::ROOT, call, call_id: spawn.map(|spawn| spawn.call_id.clone()) }
        });
        if let Some(call) = link.call
            && let Some(spawn) = self.session.children.spawns.get_mut(&(link.parent, call))
        {
            spawn.sidechain = Some(node);
        }
        let facts = ChildFacts { prompt, working_directory: line.cwd.owned(), ..ChildFacts::default() };
        let opened = self.session.children.opened(node, &source_id, &link, facts);
        mapped.push(link.parent, opened);
        node
    }

    /// Learns from a result which agent the call started, and whether it is done.
    pub(super) fn learn_child(
        &mut self,
        node: NodeId,
        line: &Line<'_>,
        call: CallRef,
        call_id: &str,
        parts: &[Part],
    ) {
        let children = &mut self.session.children;
        let is_spawn = children.spawns.contains_key(&(node, call));
        let result = line.tool_use_result.map(RawValue::get).filter(|json| json.contains("\"agentId\""));
        let result: AgentResult<'_> = result.and_then(object).unwrap_or_default();
        let agent_id = result.agent_id.owned().or_else(|| {
            let text = first_text(parts).filter(|_| is_spawn)?;
            let (_, rest) = text.split_once("agentId: ")?;
            let id = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next()?;
            (!id.is_empty()).then(|| id.to_owned())
        });
        let runs_on = result.is_async.is_set() || result.status.as_str() == Some("async_launched");
        if is_spawn || agent_id.is_some() {
            let spawn = children.spawns.entry((node, call)).or_default();
            spawn.state = if runs_on { SpawnState::InBackground } else { SpawnState::Done };
        }
        if let Some(agent_id) = agent_id {
            let call_id = Some(call_id.to_owned());
            children.links.entry(agent_id).or_insert(Link { parent: node, call: Some(call), call_id });
        }
    }

    /// Progress of an agent names the agent and the call that started it.
    pub(super) fn progress(&mut self, node: NodeId, line: &Line<'_>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Data<'a> {
            #[serde(borrow, default)]
            agent_id: Text<'a>,
        }
        let Some(call_id) = line.parent_tool_use_id.filled() else { return };
        if !line.data.is_some_and(|data| data.get().contains("\"agentId\"")) {
            return;
        }
        let Some(agent_id) = part::<Data<'_>>(line.data).and_then(|data| data.agent_id.owned()) else {
            return;
        };
        let Some(known) = self.session.thread(node).conversation.find(call_id) else { return };
        let link = Link { parent: node, call: Some(known.call), call_id: Some(call_id.to_owned()) };
        self.session.children.links.entry(agent_id).or_insert(link);
    }
}
