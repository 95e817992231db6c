//! A message of q's, in both of its forms: as Chat puts it on the wire (version 1), and in parts (version 2).

use sessionlog_codec::event::Role;

use super::error::QError;
use super::object::{Fields, Json, Object, Place, Text};

/// What a summary of a compaction is named.
pub const SUMMARY_NAME: &str = "q_context_summary";

/// The form of a session file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Messages as Chat has them.
    One,
    /// Messages in parts.
    Two,
}

impl Version {
    /// The versions that are read, for an error.
    pub(super) const KNOWN: &'static str = "1 or 2";

    /// The version of this number.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            _ => None,
        }
    }

    /// The version's number.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// A message. An empty text is an absent one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Which part of the model's answer it is.
    pub phase: String,
    /// What is said.
    pub content: Vec<Part>,
    /// The speaker's name; of a result, its tool's.
    pub name: String,
    /// The call that a result answers.
    pub tool_call_id: String,
    /// The calls asked for.
    pub tool_calls: Vec<Call>,
    /// Keys that are not known.
    pub unknown: Object,
}

/// A part of a message, by its `kind`: `text`, `image` (with exactly one of `url` and `file_id`), `raw`. Others are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub kind: String,
    /// The text.
    pub text: String,
    /// Where an image is.
    pub url: String,
    /// The provider's id of an image.
    pub file_id: String,
    /// The resolution asked for.
    pub detail: String,
    /// A block of a kind that has no part of its own.
    pub raw: Option<Json>,
    /// Further keys of the block that the part came from.
    pub extra: Option<Json>,
    /// Keys that are not known.
    pub unknown: Object,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The provider's number of the call.
    pub index: Option<u64>,
    /// The provider's id.
    pub id: String,
    /// How it is framed: `function`, mostly.
    pub kind: String,
    /// The tool.
    pub name: String,
    /// The arguments, usually JSON.
    pub arguments: String,
    /// Keys that are not known.
    pub unknown: Object,
}

impl Message {
    /// Reads a message. What is not UTF-8, and half surrogate pairs, become U+FFFD; unknown keys and kinds are kept.
    ///
    /// # Errors
    /// If it is no JSON object, or if a known key is of another type than it should be.
    pub fn parse(json: &[u8], version: Version, place: &Place<'_>) -> Result<Self, QError> {
        let object = Object::read(json, place)?;
        Self::of_object(&object, version, place)
    }

    pub(super) fn of_object(object: &Object, version: Version, place: &Place<'_>) -> Result<Self, QError> {
        let fields = Fields { object, place };
        let role = fields.string("role")?;
        let Some(role) = role_of(&role) else {
            let (file, field) = (place.file.to_owned(), place.below("role").field);
            let expected = "system, developer, user, assistant or tool";
            return Err(QError::Field { file, field, expected, found: format!("{role:?}") });
        };
        let calls = fields.objects("tool_calls")?;
        let calls = calls.iter().map(|(object, place)| Call::of_object(object, version, place));
        Ok(Self {
            role,
            phase: fields.string("phase")?,
            content: content(object.get("content"), version, &place.below("content"))?,
            name: fields.string("name")?,
            tool_call_id: fields.string("tool_call_id")?,
            tool_calls: calls.collect::<Result<_, _>>()?,
            unknown: object.without(&["role", "phase", "content", "name", "tool_call_id", "tool_calls"]),
        })
    }

    /// A message of one text.
    pub(super) fn text(role: Role, text: &str) -> Self {
        Self {
            role,
            phase: String::new(),
            content: vec![Part::text(text)],
            name: String::new(),
            tool_call_id: String::new(),
            tool_calls: Vec::new(),
            unknown: Object::default(),
        }
    }

    /// The message in the form of version 2, on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        let content: Vec<String> = self.content.iter().map(Part::to_json).collect();
        let calls: Vec<String> = self.tool_calls.iter().map(Call::to_json).collect();
        Text::new()
            .put("role", crate::words::role_word(self.role))
            .filled("phase", &self.phase)
            .written_list("content", &content)
            .filled("name", &self.name)
            .filled("tool_call_id", &self.tool_call_id)
            .written_list("tool_calls", &calls)
            .rest(&self.unknown)
            .end()
    }

    /// Whether it is an instruction that q makes anew each time from its configuration, rather than a summary.
    #[must_use]
    pub fn is_instruction(&self) -> bool {
        matches!(self.role, Role::System | Role::Developer) && self.name != SUMMARY_NAME
    }
}

fn role_of(word: &str) -> Option<Role> {
    [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool]
        .into_iter()
        .find(|role| crate::words::role_word(*role) == word)
}

fn content(value: Option<&Json>, version: Version, place: &Place<'_>) -> Result<Vec<Part>, QError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    if let Some(text) = value.string() {
        return Ok(if text.is_empty() { Vec::new() } else { vec![Part::text(&text)] });
    }
    let elements = value.list().ok_or_else(|| place.wrong("a string or a list of parts", value))?;
    let part = |(index, element): (usize, Json)| {
        let place = Place { file: place.file, field: format!("{}[{index}]", place.field) };
        match (element.object(), element.string()) {
            (Some(object), _) if version == Version::Two => Part::of_object(&object, &place),
            (Some(object), _) => Ok(Part::of_block(&object, element)),
            (None, Some(text)) => Ok(Part::text(&text)),
            (None, None) => Err(place.wrong("an object", &element)),
        }
    };
    elements.into_iter().enumerate().map(part).collect()
}

impl Part {
    /// A text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self { kind: "text".to_owned(), text: text.to_owned(), ..Self::default() }
    }

    pub(super) fn block(raw: Json) -> Self {
        Self { kind: "raw".to_owned(), raw: Some(raw), ..Self::default() }
    }

    fn of_object(object: &Object, place: &Place<'_>) -> Result<Self, QError> {
        let fields = Fields { object, place };
        Ok(Self {
            kind: fields.string("kind")?,
            text: fields.string("text")?,
            url: fields.string("url")?,
            file_id: fields.string("file_id")?,
            detail: fields.string("detail")?,
            raw: object.get("raw").cloned(),
            extra: object.get("extra").cloned(),
            unknown: object.without(&["kind", "text", "url", "file_id", "detail", "raw", "extra"]),
        })
    }

    /// A block of version 1. What does not fit a part exactly stays the block that it is, so that no key is lost.
    fn of_block(block: &Object, whole: Json) -> Self {
        let string = |key: &str| block.get(key).and_then(Json::string);
        let extra = |known: &[&str]| {
            let rest = block.without(known);
            if rest.is_empty() { None } else { rest.json() }
        };
        match string("type").as_deref() {
            Some("text" | "input_text" | "output_text") => match string("text") {
                Some(text) => Self { extra: extra(&["type", "text"]), ..Self::text(&text) },
                None => Self::block(whole),
            },
            Some("image_url") => match block.get("image_url").and_then(image_url) {
                Some((url, detail)) => {
                    Self { extra: extra(&["type", "image_url"]), ..Self::image(url, detail) }
                }
                None => Self::block(whole),
            },
            Some("input_image") => {
                let (url, file_id) = (string("image_url"), string("file_id"));
                if url.is_some() == file_id.is_some() {
                    return Self::block(whole);
                }
                Self {
                    file_id: file_id.unwrap_or_default(),
                    extra: extra(&["type", "image_url", "file_id", "detail"]),
                    ..Self::image(url.unwrap_or_default(), string("detail").unwrap_or_default())
                }
            }
            _ => Self::block(whole),
        }
    }

    pub(super) fn image(url: String, detail: String) -> Self {
        Self { kind: "image".to_owned(), url, detail, ..Self::default() }
    }

    pub(super) fn to_json(&self) -> String {
        Text::new()
            .put("kind", &self.kind)
            .filled("text", &self.text)
            .filled("url", &self.url)
            .filled("file_id", &self.file_id)
            .filled("detail", &self.detail)
            .some("raw", self.raw.as_ref())
            .some("extra", self.extra.as_ref())
            .rest(&self.unknown)
            .end()
    }
}

/// An image's address and resolution, if there is nothing else with them.
fn image_url(value: &Json) -> Option<(String, String)> {
    let object = value.object()?;
    let url = object.get("url").and_then(Json::string)?;
    let detail = match object.get("detail") {
        Some(detail) => detail.string()?,
        None => String::new(),
    };
    object.without(&["url", "detail"]).is_empty().then_some((url, detail))
}

impl Call {
    fn of_object(object: &Object, version: Version, place: &Place<'_>) -> Result<Self, QError> {
        let own = Fields { object, place };
        let function = match version {
            Version::One => own.object("function")?.unwrap_or_default(),
            Version::Two => Object::default(),
        };
        let within = place.below("function");
        let (inner, mut unknown) = match version {
            Version::One => (
                Fields { object: &function, place: &within },
                object.without(&["index", "id", "type", "function"]),
            ),
            Version::Two => (own, object.without(&["index", "id", "type", "name", "arguments"])),
        };
        let rest = function.without(&["name", "arguments"]);
        if let Some(rest) = rest.json().filter(|_| !rest.is_empty()) {
            unknown.push("function", rest);
        }
        let kind = own.string("type")?;
        // Arguments that are an object and no text are taken for that object's text.
        let arguments = inner.object.get("arguments");
        let arguments = arguments.map(|value| value.string().unwrap_or_else(|| value.get().to_owned()));
        Ok(Self {
            index: own.number("index")?,
            id: own.string("id")?,
            kind: if kind.is_empty() { "function".to_owned() } else { kind },
            name: inner.string("name")?,
            arguments: arguments.unwrap_or_default(),
            unknown,
        })
    }

    fn to_json(&self) -> String {
        Text::new()
            .some("index", self.index.as_ref())
            .put("id", &self.id)
            .put("type", &self.kind)
            .put("name", &self.name)
            .put("arguments", &self.arguments)
            .rest(&self.unknown)
            .end()
    }
}
