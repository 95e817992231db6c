//! `delegations.json`, the bookmarks of a conversation's delegations, and `delegation-state.json`, where a delegate
//! stands.

use std::collections::BTreeSet;

use sessionlog_codec::event::NodeStatus;

use super::error::QError;
use super::object::{Fields, Object, Place, Text};
use super::session::unsupported;

/// The version of both files.
const VERSION: &str = "1";

/// Whether a text may be the id of a delegation, and so a directory's name: 1 to 128 letters, digits, `_` and `-`.
#[must_use]
pub fn is_valid_id(id: &str) -> bool {
    const LEN_MAX: usize = 128;
    let is_clean = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !id.is_empty() && id.len() <= LEN_MAX && id.bytes().all(is_clean)
}

/// The bookmarks of one conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelegationsFile {
    /// Each delegation, in the order in which they were made.
    pub items: Vec<Bookmark>,
    /// Keys that are not known.
    pub unknown: Object,
}

/// The bookmark of one delegation. Its call is named by its place in the transcript, since call ids repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// The delegate: its directory's name.
    pub invocation_id: String,
    /// The message that delegates: its place in the parent's transcript, from 0.
    pub call_index: u64,
    /// Which of its calls, from 0.
    pub tool_index: u32,
    /// The call's provider id.
    pub call_id: String,
    /// The agent asked for.
    pub agent: String,
    /// The exact request.
    pub prompt: String,
    /// The delegate's working directory.
    pub working_directory: String,
    /// The run of the parent that delegates.
    pub run_id: String,
    /// When, as it is written there (RFC 3339).
    pub created_at: String,
    /// Keys that are not known.
    pub unknown: Object,
}

/// Where a delegate stands. It is running exactly as long as it has no result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateFile {
    /// The agent asked for.
    pub agent: String,
    /// The exact request.
    pub prompt: String,
    /// Its working directory.
    pub working_directory: String,
    /// The run it belongs to.
    pub run_id: String,
    /// Its own id.
    pub task_id: String,
    /// The id of the delegate that delegated; empty below the root.
    pub parent_id: String,
    /// The model.
    pub model: String,
    /// The API.
    pub api_mode: String,
    /// Which candidate of a fallback group.
    pub candidate: Option<u32>,
    /// The provider's conversation id.
    pub conversation_id: String,
    /// How often the model has answered, the closing words after `task_complete` not counted.
    pub round: u32,
    /// How often it was reminded to complete its task.
    pub reminders: u32,
    /// Whether it has begun its task.
    pub started: bool,
    /// `running`, `completed`, `blocked` or `unknown`.
    pub status: String,
    /// The call that is running.
    pub running_call: Option<CallPlace>,
    /// Calls whose outcome nobody knows.
    pub unknown_tools: Vec<CallPlace>,
    /// The result.
    pub result: Option<StateResult>,
    /// Keys that are not known, and `change_request`, which is passed on unread.
    pub unknown: Object,
}

/// A call of a delegate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlace {
    /// Its message: the place in the delegate's transcript, from 0.
    pub message_index: u64,
    /// Which of the message's calls, from 0.
    pub tool_index: u32,
    /// Its provider id.
    pub call_id: String,
    /// Its tool.
    pub name: String,
}

/// The result of a delegate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateResult {
    /// The text.
    pub content: String,
    /// Whether the parent's model is shown an error.
    pub is_error: bool,
}

fn versioned(bytes: &[u8], place: &Place<'_>) -> Result<Object, QError> {
    let object = Object::read(bytes, place)?;
    match object.get("version") {
        Some(version) if version.get() == VERSION => Ok(object),
        _ => Err(unsupported(&object, VERSION, place)),
    }
}

impl DelegationsFile {
    /// Reads the bookmarks. `file` is the file's name, for errors.
    ///
    /// # Errors
    /// If it is no JSON object, of another version, or if a known key is of another type than it should be.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, QError> {
        let place = Place::top(file);
        let object = versioned(bytes, &place)?;
        let items = Fields { object: &object, place: &place }.objects("items")?;
        let items = items.iter().map(|(object, place)| Bookmark::of_object(object, place));
        let unknown = object.without(&["version", "items"]);
        Ok(Self { items: items.collect::<Result<_, _>>()?, unknown })
    }

    /// The bookmarks that q would refuse the whole file for, by their places, each with the reason.
    #[must_use]
    pub fn refused(&self) -> Vec<(usize, &'static str)> {
        let (mut ids, mut calls) = (BTreeSet::new(), BTreeSet::new());
        let mut refused = Vec::new();
        for (index, item) in self.items.iter().enumerate() {
            if !is_valid_id(&item.invocation_id) {
                refused.push((index, "its invocation_id is not 1 to 128 letters, digits, _ and -"));
            } else if item.agent.is_empty() || item.prompt.is_empty() {
                refused.push((index, "it names no agent or no prompt"));
            } else if !ids.insert(item.invocation_id.as_str()) {
                refused.push((index, "its invocation_id is that of another bookmark"));
            } else if !calls.insert((item.run_id.as_str(), item.call_index, item.tool_index)) {
                refused.push((index, "its call has another bookmark"));
            }
        }
        refused
    }

    /// The file as q lays it out.
    #[must_use]
    pub fn to_json(&self) -> String {
        let items: Vec<String> = self.items.iter().map(Bookmark::to_json).collect();
        let items = format!("[{}]", items.join(","));
        let json = Text::new().put("version", &1).written("items", &items).rest(&self.unknown).end();
        super::write::laid_out(&json)
    }
}

impl Bookmark {
    fn of_object(object: &Object, place: &Place<'_>) -> Result<Self, QError> {
        let fields = Fields { object, place };
        Ok(Self {
            invocation_id: fields.string("invocation_id")?,
            call_index: fields.number("call_index")?.unwrap_or_default(),
            tool_index: fields.small("tool_index")?.unwrap_or_default(),
            call_id: fields.string("call_id")?,
            agent: fields.string("agent")?,
            prompt: fields.string("prompt")?,
            working_directory: fields.string("working_directory")?,
            run_id: fields.string("run_id")?,
            created_at: fields.string("created_at")?,
            unknown: object.without(&[
                "invocation_id",
                "call_index",
                "tool_index",
                "call_id",
                "agent",
                "prompt",
                "working_directory",
                "run_id",
                "created_at",
            ]),
        })
    }

    fn to_json(&self) -> String {
        Text::new()
            .put("invocation_id", &self.invocation_id)
            .put("call_index", &self.call_index)
            .put("tool_index", &self.tool_index)
            .put("call_id", &self.call_id)
            .put("agent", &self.agent)
            .put("prompt", &self.prompt)
            .put("working_directory", &self.working_directory)
            .put("run_id", &self.run_id)
            .filled("created_at", &self.created_at)
            .rest(&self.unknown)
            .end()
    }
}

/// The keys of a state; `change_request` is the host's own.
const STATE_KEYS: &[&str] = &[
    "version",
    "agent",
    "prompt",
    "working_directory",
    "run_id",
    "task_id",
    "parent_id",
    "model",
    "api_mode",
    "candidate",
    "conversation_id",
    "round",
    "reminders",
    "started",
    "status",
    "running_call",
    "unknown_tools",
    "result",
];

impl StateFile {
    /// Reads a state. `file` is the file's name, for errors.
    ///
    /// # Errors
    /// If it is no JSON object, of another version, if a known key is of another type than it should be, or if status
    /// and result contradict each other.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, QError> {
        let place = Place::top(file);
        let object = versioned(bytes, &place)?;
        let fields = Fields { object: &object, place: &place };
        let running = fields.object("running_call")?;
        let running = running.map(|it| CallPlace::of_object(&it, &place.below("running_call")));
        let unknown_tools = fields.objects("unknown_tools")?;
        let unknown_tools = unknown_tools.iter().map(|(it, place)| CallPlace::of_object(it, place));
        let result = fields.object("result")?;
        let result = result.map(|it| StateResult::of_object(&it, &place.below("result")));
        let state = Self {
            agent: fields.string("agent")?,
            prompt: fields.string("prompt")?,
            working_directory: fields.string("working_directory")?,
            run_id: fields.string("run_id")?,
            task_id: fields.string("task_id")?,
            parent_id: fields.string("parent_id")?,
            model: fields.string("model")?,
            api_mode: fields.string("api_mode")?,
            candidate: fields.small("candidate")?,
            conversation_id: fields.string("conversation_id")?,
            round: fields.small("round")?.unwrap_or_default(),
            reminders: fields.small("reminders")?.unwrap_or_default(),
            started: fields.flag("started")?,
            status: fields.string("status")?,
            running_call: running.transpose()?,
            unknown_tools: unknown_tools.collect::<Result<_, _>>()?,
            result: result.transpose()?,
            unknown: object.without(STATE_KEYS),
        };
        state.check(&place)?;
        Ok(state)
    }

    fn check(&self, place: &Place<'_>) -> Result<(), QError> {
        let is_running = self.status == "running";
        let expected = match (is_running || self.ended().is_some(), is_running == self.result.is_none()) {
            (true, true) => return Ok(()),
            (true, false) => "running without a result, or ended with one",
            (false, _) => "running, completed, blocked or unknown",
        };
        let (file, field) = (place.file.to_owned(), place.below("status").field);
        Err(QError::Field { file, field, expected, found: format!("{:?}", self.status) })
    }

    /// How the delegate ended; `None` while it has not.
    #[must_use]
    pub fn ended(&self) -> Option<NodeStatus> {
        match self.status.as_str() {
            "completed" => Some(NodeStatus::Completed),
            "blocked" => Some(NodeStatus::Blocked),
            "unknown" => Some(NodeStatus::Unknown),
            _ => None,
        }
    }

    /// The file as q lays it out.
    #[must_use]
    pub fn to_json(&self) -> String {
        let unknown_tools: Vec<String> = self.unknown_tools.iter().map(CallPlace::to_json).collect();
        let mut text = Text::new()
            .put("version", &1)
            .put("agent", &self.agent)
            .put("prompt", &self.prompt)
            .put("working_directory", &self.working_directory)
            .put("run_id", &self.run_id)
            .put("task_id", &self.task_id)
            .filled("parent_id", &self.parent_id)
            .filled("model", &self.model)
            .filled("api_mode", &self.api_mode)
            .some("candidate", self.candidate.as_ref())
            .filled("conversation_id", &self.conversation_id)
            .put("round", &self.round)
            .put("reminders", &self.reminders)
            .put("started", &self.started)
            .put("status", &self.status);
        if let Some(call) = &self.running_call {
            text = text.written("running_call", &call.to_json());
        }
        text = text.written_list("unknown_tools", &unknown_tools);
        if let Some(result) = &self.result {
            let result = Text::new().put("Content", &result.content).put("IsError", &result.is_error);
            text = text.written("result", &result.end());
        }
        super::write::laid_out(&text.rest(&self.unknown).end())
    }
}

impl CallPlace {
    fn of_object(object: &Object, place: &Place<'_>) -> Result<Self, QError> {
        let fields = Fields { object, place };
        Ok(Self {
            message_index: fields.number("message_index")?.unwrap_or_default(),
            tool_index: fields.small("tool_index")?.unwrap_or_default(),
            call_id: fields.string("call_id")?,
            name: fields.string("name")?,
        })
    }

    fn to_json(&self) -> String {
        Text::new()
            .put("message_index", &self.message_index)
            .put("tool_index", &self.tool_index)
            .put("call_id", &self.call_id)
            .put("name", &self.name)
            .end()
    }
}

impl StateResult {
    fn of_object(object: &Object, place: &Place<'_>) -> Result<Self, QError> {
        let fields = Fields { object, place };
        Ok(Self { content: fields.string("Content")?, is_error: fields.flag("IsError")? })
    }
}
