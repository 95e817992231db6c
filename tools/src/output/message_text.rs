//! Messages, calls and results as text for people.

use sessionlog::codec::event::{Media, MediaSource, Part, ResultFlag, Role, RunReason, ToolCall};
use sessionlog::codec::ids::{CallRef, MessageNo};
use sessionlog::projections::time::rfc3339_seconds;
use sessionlog::projections::{
    ContextMessage, ContextOrigin, EntryBody, Mark, TranscriptEntry, outcome_word, role_word,
};

use super::safe::{safe, safe_lines};
use super::text::{count, cut, size};
use super::{Context, Paint};
use crate::args::DetailArgs;
use crate::exit::Failure;

/// Columns of a line that is not shown whole.
const LINE_COLUMNS: usize = 400;
/// Columns of a call's arguments that are not shown whole.
const ARGUMENT_COLUMNS: usize = 200;

/// Writes messages for people.
#[derive(Debug)]
pub struct Messages<'a> {
    context: &'a Context,
    detail: DetailArgs,
}

impl<'a> Messages<'a> {
    /// A writer that shows as much of long texts as `detail` says.
    #[must_use]
    pub fn new(context: &'a Context, detail: DetailArgs) -> Self {
        Self { context, detail }
    }

    /// Writes an entry of a transcript.
    ///
    /// # Errors
    /// If standard output fails.
    pub fn entry(&self, entry: &TranscriptEntry) -> Result<(), Failure> {
        let time = rfc3339_seconds(entry.timestamp);
        let mark = match entry.mark {
            Mark::Live => String::new(),
            other => format!(" · {}", other.word().replace('_', " ")),
        };
        let tail = format!("{mark} · {time} · position {}", entry.position);
        match &entry.body {
            EntryBody::Message(message) => {
                self.heading(message.role, entry.message_no, message.model.as_deref(), &tail)?;
                self.parts(&message.parts)?;
                self.calls(&message.tool_calls)?;
            }
            EntryBody::Result(finished, name) => {
                let name = name.as_deref().unwrap_or("a call that is not in the log");
                let word = outcome_word(finished.outcome);
                self.result_heading(name, &finished.call_id, word, finished.flag, &tail)?;
                self.result(&finished.parts)?;
            }
            EntryBody::Resolution(resolved) => {
                let call = entry.call.map(|call| call.to_string()).unwrap_or_default();
                let outcome = outcome_word(resolved.outcome);
                self.rule(&format!("{call} was settled as {outcome}: {}{tail}", safe(&resolved.note)))?;
                self.result(&resolved.parts)?;
            }
            EntryBody::Compaction(compacted) => {
                let tokens = match (compacted.tokens_before, compacted.tokens_after) {
                    (Some(before), Some(after)) => format!(" from {before} to {after} tokens"),
                    _ => String::new(),
                };
                self.rule(&format!("the context was compacted{tokens}{tail}"))?;
                self.result(&compacted.summary)?;
            }
            EntryBody::Run(reason) => {
                let why = match reason {
                    RunReason::Created => "a conversation begins",
                    RunReason::Cleared => "the conversation was cleared",
                    RunReason::Migrated => "a conversation was taken over from an older format",
                };
                self.rule(&format!("{why}{tail}"))?;
            }
            EntryBody::Reset(reason) => {
                self.rule(&format!("the context was emptied: {}{tail}", safe(reason)))?;
            }
            EntryBody::Gap(gap) => {
                self.problem(&format!("records are missing: {}{tail}", safe(&gap.explanation)))?;
            }
            EntryBody::SealedMessage(_) => self.rule(&format!("a message that can't be read{tail}"))?,
            EntryBody::SealedResult(_) => self.rule(&format!("a result that can't be read{tail}"))?,
            EntryBody::Piece(piece) => {
                self.rule(&format!("a piece of a message that is not in the log{tail}"))?;
                self.parts(&piece.parts)?;
                self.calls(&piece.tool_calls)?;
            }
            _ => self.rule(&format!("an entry of a kind that logdump does not know{tail}"))?,
        }
        self.context.line("")
    }

    /// Writes a message of a model context.
    ///
    /// # Errors
    /// If standard output fails.
    pub fn context_message(&self, message: &ContextMessage) -> Result<(), Failure> {
        let origin = match message.origin {
            ContextOrigin::Recorded => String::new(),
            ContextOrigin::Synthetic(reason) => format!(" · made up: {}", reason.word().replace('_', " ")),
            ContextOrigin::Summary => " · summary of what came before".to_owned(),
        };
        let tail = format!("{origin} · position {}", message.position);
        if message.role == Role::Tool {
            let call = message.call.map(call_name).unwrap_or_default();
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            self.result_heading(&call, id, "", message.flag, &tail)?;
            self.result(&message.parts)?;
        } else {
            self.heading(message.role, message.message_no, message.model.as_deref(), &tail)?;
            self.parts(&message.parts)?;
            self.calls(&message.tool_calls)?;
        }
        self.context.line("")
    }

    /// Writes a line that says records are missing.
    ///
    /// # Errors
    /// If standard output fails.
    pub fn problem(&self, safe_text: &str) -> Result<(), Failure> {
        self.context.line(&self.context.paint(Paint::Bad, &format!("!! {safe_text}")))
    }

    fn heading(
        &self,
        role: Role,
        number: Option<MessageNo>,
        model: Option<&str>,
        tail: &str,
    ) -> Result<(), Failure> {
        let paint = match role {
            Role::User => Paint::User,
            Role::Assistant => Paint::Assistant,
            Role::Tool => Paint::Tool,
            Role::System | Role::Developer => Paint::Heading,
        };
        let number = number.map(|number| format!(" #{number}")).unwrap_or_default();
        let model = model.map(|model| format!(" · {}", safe(model))).unwrap_or_default();
        let role = self.context.paint(paint, role_word(role));
        self.context
            .line(&format!("{role}{}", self.context.paint(Paint::Dim, &format!("{number}{model}{tail}"))))
    }

    fn result_heading(
        &self,
        name: &str,
        call_id: &str,
        outcome: &str,
        flag: ResultFlag,
        tail: &str,
    ) -> Result<(), Failure> {
        let heading = self.context.paint(Paint::Tool, &format!("result of {}", safe(name)));
        let outcome = if outcome.is_empty() { String::new() } else { format!(" · {outcome}") };
        let error = match flag {
            ResultFlag::Error => self.context.paint(Paint::Bad, " · error"),
            ResultFlag::Normal => String::new(),
        };
        let rest = self.context.paint(Paint::Dim, &format!("{outcome} · {}{tail}", safe(call_id)));
        self.context.line(&format!("{heading}{error}{rest}"))
    }

    fn rule(&self, safe_text: &str) -> Result<(), Failure> {
        self.context.line(&self.context.paint(Paint::Warning, &format!("── {safe_text}")))
    }

    fn parts(&self, parts: &[Part]) -> Result<(), Failure> {
        for part in parts {
            match part {
                Part::Text(text) => {
                    for line in safe_lines(text).split('\n') {
                        self.indented("  ", line, None)?;
                    }
                }
                Part::Reasoning(reasoning) if reasoning.text.is_empty() => {
                    self.indented("  ", "(reasoning that only its provider reads)", Some(Paint::Dim))?;
                }
                Part::Reasoning(reasoning) => self.shortened("  ~ ", &reasoning.text, Paint::Dim)?,
                Part::Image(_) | Part::File(_) | Part::Raw(_) => {
                    self.indented("  ", &other_part(part), Some(Paint::Dim))?;
                }
            }
        }
        Ok(())
    }

    fn result(&self, parts: &[Part]) -> Result<(), Failure> {
        for part in parts {
            match part {
                Part::Text(text) => self.shortened("  │ ", text, Paint::Dim)?,
                Part::Reasoning(reasoning) => self.shortened("  ~ ", &reasoning.text, Paint::Dim)?,
                other => self.indented("  │ ", &other_part(other), Some(Paint::Dim))?,
            }
        }
        Ok(())
    }

    fn calls(&self, calls: &[ToolCall]) -> Result<(), Failure> {
        for call in calls {
            let arguments = call.arguments.to_text();
            let arguments = if self.detail.full {
                safe(&arguments).into_owned()
            } else {
                // Escaping makes text longer: no more of it is escaped than can be shown.
                let begin: String = arguments.chars().take(ARGUMENT_COLUMNS.saturating_add(1)).collect();
                cut(&safe(&begin), ARGUMENT_COLUMNS)
            };
            let name = self.context.paint(Paint::Tool, &safe(&call.name));
            let id = self.context.paint(Paint::Dim, &format!("  {}", safe(&call.call_id)));
            self.context.line(&format!("  → {name}({arguments}){id}"))?;
        }
        Ok(())
    }

    /// Text, cut to as many lines as are asked for.
    fn shortened(&self, indent: &str, text: &str, paint: Paint) -> Result<(), Failure> {
        let text = safe_lines(text.trim_end_matches('\n'));
        if text.is_empty() {
            return Ok(());
        }
        if self.detail.full {
            return text.split('\n').try_for_each(|line| self.indented(indent, line, Some(paint)));
        }
        for line in text.split('\n').take(self.detail.lines) {
            self.indented(indent, &cut(line, LINE_COLUMNS), Some(paint))?;
        }
        let more = text.split('\n').skip(self.detail.lines).count();
        if more > 0 {
            let more = count(u64::try_from(more).unwrap_or(u64::MAX), "more line", "more lines");
            self.indented(indent, &format!("… {more}: --full shows all"), Some(paint))?;
        }
        Ok(())
    }

    fn indented(&self, indent: &str, safe_line: &str, paint: Option<Paint>) -> Result<(), Failure> {
        if safe_line.is_empty() {
            return self.context.line(indent.trim_end());
        }
        let line = format!("{indent}{safe_line}");
        self.context.line(&paint.map_or(line.clone(), |paint| self.context.paint(paint, &line)))
    }
}

fn call_name(call: CallRef) -> String {
    format!("call {} of #{}", call.tool_index, call.message_no)
}

/// A part that is no text, as a word about it.
fn other_part(part: &Part) -> String {
    match part {
        Part::Image(media) => media_text("image", media),
        Part::File(media) => media_text("file", media),
        Part::Raw(bytes) => {
            let begin: String = bytes.to_text().chars().take(ARGUMENT_COLUMNS).collect();
            cut(&safe(&begin), ARGUMENT_COLUMNS)
        }
        Part::Text(text) => safe(text).into_owned(),
        Part::Reasoning(reasoning) => safe(&reasoning.text).into_owned(),
    }
}

fn media_text(what: &str, media: &Media) -> String {
    let bytes = |len: usize| size(u64::try_from(len).unwrap_or(u64::MAX));
    let source = match &media.source {
        MediaSource::Base64(text) => format!("{} of base64", bytes(text.len())),
        MediaSource::Url(url) if url.starts_with("data:") => format!("{} of a data URL", bytes(url.len())),
        MediaSource::Url(url) => cut(&safe(url), ARGUMENT_COLUMNS),
        MediaSource::FileId(id) => cut(&safe(id), ARGUMENT_COLUMNS),
        MediaSource::Artifact(receipt) => format!("artifact {}, {}", receipt.digest, size(receipt.len)),
    };
    let words: Vec<String> = [media.name.as_deref(), media.media_type.as_deref()]
        .into_iter()
        .flatten()
        .map(|word| cut(&safe(word), ARGUMENT_COLUMNS))
        .chain([source])
        .collect();
    format!("[{what}: {}]", words.join(", "))
}
