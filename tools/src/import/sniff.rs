//! What a file is, told by its content.

mod q;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use sessionlog_codec::ids::{SessionId, Timestamp};

use super::document::{Outline, elements, outline};
use super::lines::{Lines, Records};
use super::loose::{Flag, Text, object, part, time};
use super::split::{What, text_of};

/// How much of a file is looked at.
const SNIFF_BYTES_MAX: u64 = 4 << 20;
const SNIFF_RECORDS_MAX: usize = 400;
const SNIFF_LINE_MAX: usize = 1 << 20;
const SNIFF_HEAD_LEN: usize = 64 << 10;

/// What is known of a session before it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFacts {
    /// The working directory.
    pub cwd: Option<String>,
    /// The version of the agent.
    pub agent_version: Option<String>,
    /// The model it begins with.
    pub model: Option<String>,
    /// The provider of that model.
    pub provider: Option<String>,
    /// What it is for.
    pub goal: Option<String>,
    /// The agent's preset.
    pub preset: Option<String>,
    /// The hash of the tools offered.
    pub tool_registry_hash: Option<String>,
    /// When it began.
    pub began: Option<Timestamp>,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    ClaudeMain,
    ClaudeChild,
    ClaudeJournal,
    ClaudeDocument,
    RecursiveTranscript,
    RecursiveMessages,
    RecursiveDocument,
    RecursiveMeta,
    QSession,
    Other,
}

/// A file, looked at.
#[derive(Clone, Debug)]
pub(crate) struct Sniffed {
    pub(crate) kind: FileKind,
    /// Whether a line of the conversation was seen. Others may stand in any of a session's files.
    pub(crate) is_decided: bool,
    /// The session it says it belongs to. Of a file that says several: the first.
    pub(crate) session_id: Option<String>,
    pub(crate) stream_session_id: Option<String>,
    pub(crate) agent_id: Option<String>,
    /// The first text of the user.
    pub(crate) prompt: Option<String>,
    pub(crate) facts: SessionFacts,
    /// The hash of the first record: what tells two sessions of the same name apart.
    pub(crate) first: Option<blake3::Hash>,
}

impl Sniffed {
    fn new(kind: FileKind) -> Self {
        Self {
            kind,
            is_decided: false,
            session_id: None,
            stream_session_id: None,
            agent_id: None,
            prompt: None,
            facts: SessionFacts::default(),
            first: None,
        }
    }
}

/// The keys that tell formats apart.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    subtype: Text<'a>,
    #[serde(borrow, default)]
    session_id: Text<'a>,
    /// What streams for other programs call it.
    #[serde(borrow, default, rename = "session_id")]
    stream_session_id: Text<'a>,
    #[serde(borrow, default)]
    uuid: Text<'a>,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    key: Text<'a>,
    #[serde(borrow, default)]
    role: Text<'a>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    timestamp: Text<'a>,
    #[serde(borrow, default)]
    agent_id: Text<'a>,
    #[serde(borrow, default)]
    leaf_uuid: Text<'a>,
    #[serde(borrow, default)]
    message_id: Text<'a>,
    #[serde(default)]
    is_sidechain: Flag,
    #[serde(borrow, default)]
    cwd: Text<'a>,
    #[serde(borrow, default)]
    version: Text<'a>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

/// The keys of a `message`.
#[derive(Debug, Default, Deserialize)]
struct MessageHead<'a> {
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

/// Lines that Claude Code writes without being part of the conversation.
const CLAUDE_NOTES: &[&str] = &[
    "agent-color",
    "agent-name",
    "agent-setting",
    "ai-title",
    "attribution-snapshot",
    "bridge-session",
    "content-replacement",
    "custom-title",
    "fork-context-ref",
    "last-prompt",
    "mode",
    "permission-mode",
    "pr-link",
    "queue-operation",
    "summary",
    "tag",
    "worktree-state",
];

impl Head<'_> {
    fn kind(&self) -> FileKind {
        let kind = self.kind.filled();
        let has_session = self.session_id.filled().is_some();
        let is_tree_line = self.uuid.filled().is_some() || has_session;
        match kind {
            Some("user" | "assistant") if is_object(self.message) && is_tree_line => self.claude(),
            Some("system" | "progress" | "attachment") if self.uuid.filled().is_some() && has_session => {
                self.claude()
            }
            Some("summary") if self.leaf_uuid.filled().is_some() => FileKind::ClaudeMain,
            Some("file-history-snapshot" | "file-history-delta") if self.message_id.filled().is_some() => {
                FileKind::ClaudeMain
            }
            Some(kind) if has_session && CLAUDE_NOTES.contains(&kind) => FileKind::ClaudeMain,
            Some("started" | "result") if self.key.filled().is_some() && self.agent_id.filled().is_some() => {
                FileKind::ClaudeJournal
            }
            Some("system")
                if self.subtype.as_str() == Some("compact_boundary") && self.uuid.filled().is_none() =>
            {
                FileKind::RecursiveTranscript
            }
            None => self.recursive(),
            Some(_) => FileKind::Other,
        }
    }

    fn claude(&self) -> FileKind {
        if self.is_sidechain.is_set() && self.agent_id.filled().is_some() {
            FileKind::ClaudeChild
        } else {
            FileKind::ClaudeMain
        }
    }

    fn recursive(&self) -> FileKind {
        let is_role = matches!(self.role.as_str(), Some("system" | "user" | "assistant" | "tool"));
        let is_text = self.content.is_none_or(|content| content.get().starts_with('"'));
        if !is_role || !is_text {
            FileKind::Other
        } else if self.id.filled().or(self.uuid.filled()).is_some() && self.timestamp.filled().is_some() {
            FileKind::RecursiveTranscript
        } else {
            FileKind::RecursiveMessages
        }
    }

    /// Whether the line is part of the conversation, and so tells what kind of file it is in.
    fn is_decisive(&self) -> bool {
        !matches!(self.kind.filled(), Some(kind) if CLAUDE_NOTES.contains(&kind) || kind.starts_with("file-"))
    }
}

fn is_object(raw: Option<&RawValue>) -> bool {
    raw.is_some_and(|raw| raw.get().starts_with('{'))
}

/// Looks at a file.
pub(crate) fn sniff(path: &Path) -> io::Result<Sniffed> {
    let mut file = File::open(path)?;
    let mut head = vec![0; SNIFF_HEAD_LEN];
    let len = read_up_to(&mut file, &mut head)?;
    head.truncate(len);
    let extension = path.extension().and_then(|extension| extension.to_str());
    // Zeros and blanks may stand before the first line; anything else that is no JSON has to be called so.
    let first = head.iter().find(|byte| **byte > b' ' && !b"\xef\xbb\xbf".contains(*byte));
    if first != Some(&b'{') && !matches!(extension, Some("jsonl" | "json" | "ndjson")) {
        return Ok(Sniffed::new(FileKind::Other));
    }
    if let Some(document) = sniff_document(&head) {
        return Ok(document);
    }
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    sniff_lines(head.as_slice().chain(file), stem)
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// The lists that hold the records of a session.
pub(crate) const CLAUDE_LISTS: &[&str] = &["loglines"];
/// The same of recursive.
pub(crate) const RECURSIVE_LISTS: &[&str] = &["transcript", "messages"];

fn sniff_document(head: &[u8]) -> Option<Sniffed> {
    if let Some(session) = q::sniff(head) {
        return Some(session);
    }
    if let Some(outline) = outline(head, CLAUDE_LISTS) {
        let mut sniffed = Sniffed::new(FileKind::ClaudeDocument);
        sniffed.is_decided = true;
        for range in elements(head, outline.start).0.into_iter().take(SNIFF_RECORDS_MAX) {
            let bytes = head.get(range).unwrap_or_default();
            sniffed.first.get_or_insert_with(|| blake3::hash(bytes));
            if let Some(head) = object(&text_of(bytes)) {
                learn(&mut sniffed, &head, "");
            }
        }
        return Some(sniffed);
    }
    if let Some(outline) = outline(head, RECURSIVE_LISTS) {
        return sniff_recursive_document(head, &outline);
    }
    let meta = super::recursive::Meta::read(head).filter(super::recursive::Meta::is_of_session)?;
    let mut sniffed = Sniffed::new(FileKind::RecursiveMeta);
    sniffed.session_id.clone_from(&meta.session_id);
    sniffed.facts = meta.facts();
    Some(sniffed)
}

fn sniff_recursive_document(head: &[u8], outline: &Outline) -> Option<Sniffed> {
    let value = |key: &str| {
        let (_, range) = outline.keys.iter().find(|(name, _)| name == key)?;
        std::str::from_utf8(head.get(range.clone())?).ok()
    };
    let text = |key: &str| serde_json::from_str::<String>(value(key)?).ok();
    let mut sniffed = Sniffed::new(FileKind::RecursiveDocument);
    let is_ours = match outline.list.as_str() {
        "transcript" => value("goal").or(value("steps_consumed")).is_some(),
        _ => value("meta").or(value("session_id")).is_some(),
    };
    if !is_ours {
        return None;
    }
    #[derive(Default, Deserialize)]
    struct DocumentMeta<'a> {
        #[serde(borrow, default)]
        saved_at: Text<'a>,
        #[serde(borrow, default)]
        model: Text<'a>,
    }
    let meta: DocumentMeta<'_> = value("meta").and_then(object).unwrap_or_default();
    sniffed.session_id = text("session_id");
    let created = text("created_at").and_then(|text| text.parse::<jiff::Timestamp>().ok());
    sniffed.facts = SessionFacts {
        goal: text("goal"),
        model: text("model").or(meta.model.owned()),
        provider: text("provider"),
        preset: text("preset"),
        tool_registry_hash: text("tool_registry_hash"),
        began: created.map(|time| Timestamp(time.as_microsecond())).or(time(&meta.saved_at)),
        ..SessionFacts::default()
    };
    let rest = head.get(outline.start..).unwrap_or_default();
    let start = rest.iter().position(|byte| *byte == b'{').unwrap_or(rest.len());
    let first = rest.get(start..).unwrap_or_default();
    let first = first.get(..super::split::value_end(first).unwrap_or(0)).unwrap_or_default();
    let goal = sniffed.facts.goal.as_deref().unwrap_or_default();
    sniffed.first = Some(blake3::hash(&[goal.as_bytes(), b"|", first].concat()));
    Some(sniffed)
}

/// `stem` is what the file is called. Where it is a UUID that a line names as its session, it is the session's id: a file
/// may begin with lines of the session that it was resumed from.
fn sniff_lines(source: impl Read, stem: &str) -> io::Result<Sniffed> {
    let may_be_named = stem.parse::<SessionId>().is_ok();
    let mut lines = Lines::with_piece_max(source.take(SNIFF_BYTES_MAX), SNIFF_LINE_MAX);
    let mut sniffed = Sniffed::new(FileKind::Other);
    for _ in 0..SNIFF_RECORDS_MAX {
        let Some(record) = lines.next()? else { break };
        if !matches!(record.what, What::Unchecked | What::Value) {
            continue;
        }
        let text = text_of(record.bytes);
        let Some(head) = object::<Head<'_>>(&text) else {
            if record.what == What::Unchecked {
                lines.resplit();
            }
            continue;
        };
        let kind = head.kind();
        if kind == FileKind::Other {
            continue;
        }
        sniffed.first.get_or_insert_with(|| blake3::hash(record.bytes));
        if !sniffed.is_decided {
            sniffed.kind = kind;
            sniffed.is_decided = head.is_decisive();
        }
        learn(&mut sniffed, &head, stem);
        let is_named = !may_be_named || sniffed.session_id.as_deref() == Some(stem);
        if sniffed.is_decided && is_named && is_complete(&sniffed) {
            break;
        }
    }
    if sniffed.session_id.is_none() {
        sniffed.session_id = sniffed.stream_session_id.take();
    }
    Ok(sniffed)
}

fn learn(sniffed: &mut Sniffed, head: &Head<'_>, stem: &str) {
    let fill = |place: &mut Option<String>, text: &Text<'_>| {
        if place.is_none() {
            *place = text.owned();
        }
    };
    fill(&mut sniffed.session_id, &head.session_id);
    if head.session_id.filled() == Some(stem) {
        sniffed.session_id = Some(stem.to_owned());
    }
    fill(&mut sniffed.agent_id, &head.agent_id);
    fill(&mut sniffed.facts.cwd, &head.cwd);
    fill(&mut sniffed.facts.agent_version, &head.version);
    sniffed.facts.began = sniffed.facts.began.or_else(|| time(&head.timestamp));
    if head.session_id.filled().is_none() {
        fill(&mut sniffed.stream_session_id, &head.stream_session_id);
    }
    let message: MessageHead<'_> = part(head.message).unwrap_or_default();
    match head.kind.as_str() {
        Some("assistant") if message.model.as_str() != Some("<synthetic>") => {
            fill(&mut sniffed.facts.model, &message.model);
        }
        Some("user") if sniffed.prompt.is_none() => sniffed.prompt = first_text(message.content),
        _ => {}
    }
}

fn first_text(content: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    struct Block<'a> {
        #[serde(borrow, default)]
        text: Text<'a>,
    }
    let json = content?.get();
    if json.starts_with('"') {
        return serde_json::from_str(json).ok();
    }
    let blocks: Vec<Block<'_>> = serde_json::from_str(json).ok()?;
    blocks.into_iter().find_map(|block| block.text.into_string())
}

fn is_complete(sniffed: &Sniffed) -> bool {
    let facts = &sniffed.facts;
    match sniffed.kind {
        FileKind::ClaudeMain | FileKind::ClaudeChild => {
            sniffed.session_id.is_some()
                && facts.cwd.is_some()
                && facts.model.is_some()
                && facts.began.is_some()
                && (sniffed.kind == FileKind::ClaudeMain || sniffed.prompt.is_some())
        }
        _ => facts.began.is_some() || sniffed.kind == FileKind::RecursiveMessages,
    }
}
