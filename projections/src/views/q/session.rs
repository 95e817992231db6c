//! `session.json`: a conversation with all that is known of it.

use super::error::QError;
use super::message::{Message, Version};
use super::object::{Fields, Json, Object, Place, Text};

/// The keys of a session file. `loop_mode` is retired: it is read past and never written.
const KNOWN: &[&str] = &[
    "version",
    "id",
    "run_id",
    "loop_mode",
    "title",
    "updated_at",
    "transcript",
    "context",
    "response_replay",
    "response_affinity",
    "learning",
    "active_task",
];

/// A session file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFile {
    /// All but its messages.
    pub header: SessionHeader,
    /// What was said in the current run.
    pub transcript: Vec<Message>,
    /// What the model is shown.
    pub context: Vec<Message>,
}

/// What a session file holds besides its messages. Texts that are absent are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHeader {
    /// The form that its messages have.
    pub version: Version,
    /// The session: its directory's name.
    pub id: String,
    /// The conversation within the session; another one after a clear.
    pub run_id: String,
    /// What it is called.
    pub title: String,
    /// When it changed last, as it is written there (RFC 3339).
    pub updated_at: String,
    /// Items of responses, to be sent back verbatim.
    pub response_replay: Vec<Replay>,
    /// Where the conversation is continued at its provider.
    pub response_affinity: Option<Affinity>,
    /// The state of learning, unread.
    pub learning: Option<Json>,
    /// The task that is being worked on.
    pub active_task: Option<Task>,
    /// Keys that are not known. q refuses a file with any; here they are kept.
    pub unknown: Object,
}

/// The items of one response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The message it belongs to: its place in the context, from 0.
    pub index: u64,
    /// The model that made them.
    pub model: String,
    /// The items.
    pub output: Vec<Json>,
}

/// Where a conversation is continued at its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// The model.
    pub model: String,
    /// The cache's or conversation's key.
    pub key: String,
    /// The API.
    pub api_mode: String,
    /// Which candidate of a fallback group.
    pub candidate: Option<u32>,
}

/// A task that was begun and not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What it is for.
    pub objective: String,
    /// How to know that it is done.
    pub completion_criteria: Vec<String>,
    /// When it was begun, as it is written there (RFC 3339).
    pub started_at: String,
}

impl SessionFile {
    /// Reads a session file of version 1 or 2 of any length. `file` is its name, for errors.
    ///
    /// # Errors
    /// If it is no JSON object, of another version, or if a known key is of another type than it should be.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, QError> {
        let place = Place::top(file);
        let object = Object::read(bytes, &place)?;
        let header = SessionHeader::of_object(&object, &place)?;
        let fields = Fields { object: &object, place: &place };
        let messages = |key: &str| -> Result<Vec<Message>, QError> {
            let objects = fields.objects(key)?;
            objects.iter().map(|(it, place)| Message::of_object(it, header.version, place)).collect()
        };
        let (transcript, context) = (messages("transcript")?, messages("context")?);
        Ok(Self { header, transcript, context })
    }

    /// The file as version 2, with its unknown keys, as q lays it out.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut bytes = Vec::new();
        let written = super::write::session(&mut bytes, &self.header, &self.transcript, &self.context);
        // Writing to memory can't fail.
        drop(written);
        String::from_utf8(bytes).unwrap_or_default()
    }
}

impl SessionHeader {
    /// A header that says nothing.
    pub(super) fn empty() -> Self {
        Self {
            version: Version::Two,
            id: String::new(),
            run_id: String::new(),
            title: String::new(),
            updated_at: String::new(),
            response_replay: Vec::new(),
            response_affinity: None,
            learning: None,
            active_task: None,
            unknown: Object::default(),
        }
    }

    /// Reads what a session file holds besides its messages; the messages may be left out of `bytes`.
    ///
    /// # Errors
    /// As of [`SessionFile::parse`].
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, QError> {
        let place = Place::top(file);
        Self::of_object(&Object::read(bytes, &place)?, &place)
    }

    /// Reads the version alone, so that a field that is wrong costs no message.
    ///
    /// # Errors
    /// If `bytes` are no JSON object, or of another version.
    pub fn version(bytes: &[u8], file: &str) -> Result<Version, QError> {
        let place = Place::top(file);
        version_of(&Object::read(bytes, &place)?, &place)
    }

    fn of_object(object: &Object, place: &Place<'_>) -> Result<Self, QError> {
        let fields = Fields { object, place };
        let version = version_of(object, place)?;
        let replay = fields.objects("response_replay")?;
        let replay = replay.iter().map(|(object, place)| Replay::of_object(object, place));
        let affinity = fields.object("response_affinity")?;
        let affinity = affinity.map(|it| Affinity::of_object(&it, &place.below("response_affinity")));
        let task = fields.object("active_task")?;
        let task = task.map(|it| Task::of_object(&it, &place.below("active_task")));
        Ok(Self {
            version,
            id: fields.string("id")?,
            run_id: fields.string("run_id")?,
            title: fields.string("title")?,
            updated_at: fields.string("updated_at")?,
            response_replay: replay.collect::<Result<_, _>>()?,
            response_affinity: affinity.transpose()?,
            learning: object.get("learning").cloned(),
            active_task: task.transpose()?,
            unknown: object.without(KNOWN),
        })
    }

    /// The keys before the messages, without the closing brace.
    pub(super) fn begin(&self) -> String {
        Text::new()
            .put("version", &Version::Two.number())
            .filled("id", &self.id)
            .put("run_id", &self.run_id)
            .filled("title", &self.title)
            .filled("updated_at", &self.updated_at)
            .open()
    }

    /// The keys behind the messages, with the closing brace and without the opening one.
    pub(super) fn rest(&self) -> String {
        let replay: Vec<String> = self.response_replay.iter().map(Replay::to_json).collect();
        let mut text = Text::new().written_list("response_replay", &replay);
        if let Some(affinity) = &self.response_affinity {
            text = text.written("response_affinity", &affinity.to_json());
        }
        text = text.some("learning", self.learning.as_ref());
        if let Some(task) = &self.active_task {
            text = text.written("active_task", &task.to_json());
        }
        text.rest(&self.unknown).end().split_off(1)
    }
}

fn version_of(object: &Object, place: &Place<'_>) -> Result<Version, QError> {
    let version = object.get("version").and_then(|version| Version::of(version.get().parse().ok()?));
    version.ok_or_else(|| unsupported(object, Version::KNOWN, place))
}

/// The error of a version that is not known.
pub(super) fn unsupported(object: &Object, expected: &'static str, place: &Place<'_>) -> QError {
    let found = object.get("version").map_or_else(|| "missing".to_owned(), Json::beginning);
    QError::Version { file: place.file.to_owned(), expected, found }
}

impl Replay {
    fn of_object(object: &Object, place: &Place<'_>) -> Result<Self, QError> {
        let fields = Fields { object, place };
        let (index, model) = (fields.number("index")?.unwrap_or_default(), fields.string("model")?);
        Ok(Self { index, model, output: fields.list("output")? })
    }

    fn to_json(&self) -> String {
        Text::new().put("index", &self.index).put("model", &self.model).put("output", &self.output).end()
    }
}

impl Affinity {
    fn of_object(object: &Object, place: &Place<'_>) -> Result<Self, QError> {
        let fields = Fields { object, place };
        Ok(Self {
            model: fields.string("model")?,
            key: fields.string("key")?,
            api_mode: fields.string("api_mode")?,
            candidate: fields.small("candidate")?,
        })
    }

    fn to_json(&self) -> String {
        Text::new()
            .put("model", &self.model)
            .put("key", &self.key)
            .filled("api_mode", &self.api_mode)
            .some("candidate", self.candidate.as_ref())
            .end()
    }
}

impl Task {
    fn of_object(object: &Object, place: &Place<'_>) -> Result<Self, QError> {
        let fields = Fields { object, place };
        Ok(Self {
            objective: fields.string("objective")?,
            completion_criteria: fields.strings("completion_criteria")?,
            started_at: fields.string("started_at")?,
        })
    }

    fn to_json(&self) -> String {
        let criteria = (!self.completion_criteria.is_empty()).then_some(&self.completion_criteria);
        Text::new()
            .put("objective", &self.objective)
            .some("completion_criteria", criteria)
            .filled("started_at", &self.started_at)
            .end()
    }
}
