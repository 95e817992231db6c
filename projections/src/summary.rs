//! What a list of sessions shows of each: small, and independent of how long the session is but for one entry per
//! request.

mod prompt;
mod usage;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{
    Event, LoggedEvent, MessageAppended, NodeOpened, NodeSettled, NodeStatus, Role, SessionCreated,
    SessionForked, SessionTagged, SessionTitled, TitleOrigin,
};
use sessionlog_codec::ids::{Epoch, KindNo, NodeId, SessionId, Timestamp};
use sessionlog_codec::registry::kind;

use self::usage::Meter;
pub use self::usage::UsageTotals;
use crate::Projection;
use crate::status::{Lifecycle, Liveness, Status};
use crate::words::{Sealed, sealed};

pub(crate) use self::prompt::{cut, first_line};

/// How many characters of a prompt are kept.
const PROMPT_CHARS: usize = 200;
/// How many characters of a prompt's first line make a title.
const TITLE_CHARS: usize = 60;

/// A fact and when it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At<T> {
    /// The fact.
    pub what: T,
    /// When.
    pub at: Timestamp,
}

/// What is known about a session without its content. Derives from every event of the tree log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The session: what `session.created` says, or in a fork what the last `session.forked` says.
    pub session_id: Option<SessionId>,
    /// The first record. In a fork it is the first ancestor's.
    pub created: Option<At<SessionCreated>>,
    /// The last `session.forked`: where the own part of a fork begins.
    pub forked: Option<At<SessionForked>>,
    /// Labels, each once.
    pub tags: BTreeSet<String>,
    /// The model that last spoke in the root conversation, or the one it was created with.
    pub model: Option<String>,
    /// The provider it was created with.
    pub provider: Option<String>,
    /// The first thing a person asked, 200 characters of it.
    pub first_prompt: Option<String>,
    /// The last thing a person asked, 200 characters of it.
    pub last_prompt: Option<String>,
    /// Messages of the root conversation: `message.appended` and `call.finished`, as many as its transcript shows.
    pub messages: u64,
    /// Compactions of the root conversation that left a summary.
    pub summaries: u64,
    /// The latest time at which something was said or done. Opening, closing, importing and listing are nothing.
    pub last_activity: Option<Timestamp>,
    /// What this session used, all conversations of its tree together, without what a fork inherited.
    pub usage: UsageTotals,
    /// What the sessions before the fork used.
    pub inherited_usage: UsageTotals,
    /// Every conversation of the tree that is heard of, the root among them.
    pub nodes: BTreeMap<NodeId, NodeSummary>,
    /// Whether the session is open, closed or finished.
    pub lifecycle: Lifecycle,
    /// The newest ownership; 0 before the first one.
    pub epoch: Epoch,
    titles: BTreeMap<TitleOrigin, String>,
    meter: Meter,
}

/// What is known about one conversation of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSummary {
    /// Its delegation bookmark; `None` for the root, and where a damaged log lost it.
    pub opened: Option<NodeOpened>,
    /// Its messages: `message.appended` and `call.finished`.
    pub messages: u64,
    /// What it is about: its bookmark's description, else the first line of its request.
    pub title: Option<String>,
    /// The latest time at which something was said or done in it.
    pub last_activity: Option<Timestamp>,
    /// How it ended; `None` for the root, and while it has not.
    pub status: Option<NodeStatus>,
    /// Whether it was deleted.
    pub presence: Presence,
    /// What it used, without what a fork inherited.
    pub usage: UsageTotals,
}

/// Whether a conversation is still shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Presence {
    /// It is.
    #[default]
    Shown,
    /// It was deleted: hidden, its payloads erased.
    Deleted,
}

impl Summary {
    /// What the session is called: the strongest title given, the last of equally strong ones; without any, the first
    /// line of the first prompt, 60 characters of it; without that, the goal's first line. An empty title takes its
    /// origin's title back.
    #[must_use]
    pub fn title(&self) -> Option<String> {
        let given = self.titles.last_key_value().map(|(_, title)| title.clone());
        let goal = || self.created.as_ref().and_then(|created| created.what.goal.as_deref());
        given
            .or_else(|| self.first_prompt.as_deref().and_then(|prompt| first_line(prompt, TITLE_CHARS)))
            .or_else(|| goal().and_then(|goal| first_line(goal, TITLE_CHARS)))
    }

    /// Who gave the title; `None`: nobody did, and [`title`](Self::title) falls back to the first prompt.
    #[must_use]
    pub fn title_origin(&self) -> Option<TitleOrigin> {
        self.titles.last_key_value().map(|(origin, _)| *origin)
    }

    /// What the session is doing, given what is known about its owner's process.
    #[must_use]
    pub fn status(&self, liveness: Liveness) -> Status {
        self.lifecycle.status(liveness)
    }

    /// When the session began: of a fork, when it was forked.
    #[must_use]
    pub fn created_at(&self) -> Option<Timestamp> {
        let created = self.created.as_ref().map(|created| created.at);
        self.forked.as_ref().map(|forked| forked.at).or(created)
    }

    /// When anything was last said or done, or when the session began.
    #[must_use]
    pub fn updated_at(&self) -> Option<Timestamp> {
        self.last_activity.max(self.created_at())
    }

    /// How the session is written for people: `<ISO 8601 start>-<workspace slug>`. Two sessions of one second share
    /// it; the UUID is the identity.
    #[must_use]
    pub fn display_id(&self) -> String {
        let start = crate::time::rfc3339_seconds(self.created_at().unwrap_or_default());
        let slug = self.created.as_ref().map_or("", |created| created.what.slug.as_str());
        if slug.is_empty() { format!("{start}-session") } else { format!("{start}-{slug}") }
    }
}

/// How a session is written for people: see [`Summary::display_id`].
#[must_use]
pub fn display_id(summary: &Summary) -> String {
    summary.display_id()
}

impl Projection for Summary {
    fn apply(&mut self, logged: &LoggedEvent) {
        let LoggedEvent { node, timestamp, event, .. } = logged;
        self.apply_life(*timestamp, event);
        self.nodes.entry(*node).or_default().apply(*timestamp, event);
        if is_activity(event) {
            self.last_activity = self.last_activity.max(Some(*timestamp));
        }
        match event {
            Event::NodeOpened(opened) => self.open_node(opened),
            Event::NodeDeleted(deleted) => {
                for gone in deleted.descendants.iter().chain([&deleted.child]) {
                    self.nodes.entry(*gone).or_default().presence = Presence::Deleted;
                }
            }
            Event::SessionTitled(titled) => self.retitle(titled),
            Event::SessionTagged(tagged) => self.retag(tagged),
            _ => {}
        }
        if *node == NodeId::ROOT {
            self.apply_root(event);
        }
        self.count_usage(logged);
    }
}

impl Summary {
    fn apply_life(&mut self, at: Timestamp, event: &Event) {
        match event {
            Event::SessionCreated(created) => self.create(at, created),
            Event::SessionForked(forked) => {
                self.session_id = Some(forked.session_id);
                self.forked = Some(At { what: forked.clone(), at });
                // The fork has an owner of its own, or none yet; what its parent was doing says nothing about it.
                self.lifecycle = Lifecycle::Closed;
            }
            Event::SessionOpened(opened) => {
                self.epoch = self.epoch.max(opened.epoch);
                self.lifecycle = Lifecycle::Open;
            }
            Event::SessionClosed(_) if self.lifecycle == Lifecycle::Open => {
                self.lifecycle = Lifecycle::Closed;
            }
            Event::SessionFinished(finished) => self.lifecycle = Lifecycle::Finished(finished.status),
            // An owner that works on after it declared the end has not ended: if it dies now, that is a crash.
            Event::MessageAppended(_) | Event::TurnStarted(_) | Event::CallStarted(_)
                if matches!(self.lifecycle, Lifecycle::Finished(_)) =>
            {
                self.lifecycle = Lifecycle::Open;
            }
            _ => {}
        }
    }

    fn create(&mut self, at: Timestamp, created: &SessionCreated) {
        if self.created.is_some() {
            return;
        }
        self.session_id = Some(created.session_id);
        self.model.clone_from(&created.model);
        self.provider.clone_from(&created.provider);
        self.created = Some(At { what: created.clone(), at });
    }

    fn apply_root(&mut self, event: &Event) {
        self.messages = self.nodes.get(&NodeId::ROOT).map_or(0, |root| root.messages);
        match event {
            Event::MessageAppended(message) => self.hear(message),
            Event::ContextCompacted(compacted) if !compacted.summary.is_empty() => {
                self.summaries = self.summaries.saturating_add(1);
            }
            _ => {}
        }
    }

    fn hear(&mut self, message: &MessageAppended) {
        // Some agents sign notices of their own with a name in angle brackets, which is no model.
        let model = message.model.as_ref().filter(|model| !model.is_empty() && !model.starts_with('<'));
        if let Some(model) = model
            && message.role == Role::Assistant
        {
            self.model = Some(model.clone());
        }
        if let Some(prompt) = prompt::prompt_of(message) {
            let prompt = cut(&prompt, PROMPT_CHARS).to_owned();
            self.first_prompt.get_or_insert_with(|| prompt.clone());
            self.last_prompt = Some(prompt);
        }
    }

    fn retitle(&mut self, titled: &SessionTitled) {
        let title = titled.title.trim();
        if title.is_empty() {
            self.titles.remove(&titled.origin);
        } else {
            self.titles.insert(titled.origin, title.to_owned());
        }
    }

    fn retag(&mut self, tagged: &SessionTagged) {
        self.tags.extend(tagged.added.iter().cloned());
        for tag in &tagged.removed {
            self.tags.remove(tag);
        }
    }

    fn open_node(&mut self, opened: &NodeOpened) {
        let node = self.nodes.entry(opened.child).or_default();
        if node.opened.is_none() {
            let described = opened.description.as_deref().and_then(|text| first_line(text, TITLE_CHARS));
            node.title = described.or_else(|| first_line(&opened.prompt, TITLE_CHARS));
            node.opened = Some(opened.clone());
        }
    }

    fn count_usage(&mut self, logged: &LoggedEvent) {
        self.meter.apply(logged.node, logged.position, &logged.event);
        match logged.event {
            Event::SessionForked(_) => {
                for node in self.nodes.values_mut() {
                    node.usage = UsageTotals::default();
                }
            }
            Event::MessageAppended(_)
            | Event::MessageExtended(_)
            | Event::UsageRecorded(_)
            | Event::ContextCompacted(_) => {
                let used = self.meter.own_of(logged.node);
                self.nodes.entry(logged.node).or_default().usage = used;
            }
            _ => return,
        }
        self.usage = self.meter.own();
        self.inherited_usage = self.meter.inherited();
    }
}

impl NodeSummary {
    fn apply(&mut self, at: Timestamp, event: &Event) {
        if counts_as_message(event) {
            self.messages = self.messages.saturating_add(1);
        }
        if is_activity(event) {
            self.last_activity = self.last_activity.max(Some(at));
        }
        if let Event::NodeSettled(NodeSettled { status, .. }) = event {
            self.status.get_or_insert(*status);
        }
    }
}

/// Whether a transcript shows a message for the event: the law that summary and transcript share.
fn counts_as_message(event: &Event) -> bool {
    match event {
        Event::MessageAppended(_) | Event::CallFinished(_) => true,
        other => matches!(sealed(other), Some(Sealed::Message | Sealed::Result)),
    }
}

/// Whether an event of this kind says that something was said or done, whatever it holds. Titles are not among them: it
/// depends on who gave them.
#[must_use]
pub fn is_activity_kind(kind: KindNo) -> bool {
    [
        kind::SessionTagged,
        kind::SessionForked,
        kind::RunStarted,
        kind::TurnStarted,
        kind::TurnEnded,
        kind::MessageAppended,
        kind::MessageExtended,
        kind::MessageWithdrawn,
        kind::CallStarted,
        kind::CallFinished,
        kind::CallResolved,
        kind::ContextCompacted,
        kind::ContextReset,
        kind::HeadMoved,
        kind::NodeOpened,
        kind::NodeSettled,
        kind::TaskStarted,
        kind::TaskCompleted,
        kind::QuestionAsked,
        kind::QuestionAnswered,
        kind::CommandReceived,
    ]
    .contains(&kind)
}

/// Whether somebody said or did something. What the engine, an importer or a background job does is no activity: a
/// session must not come to the top of a list by being looked at.
fn is_activity(event: &Event) -> bool {
    match event {
        Event::SessionTitled(titled) => titled.origin == TitleOrigin::Person,
        Event::Erased { .. } | Event::Unknown(_) => sealed(event).is_some(),
        known => is_activity_kind(known.kind().0),
    }
}
