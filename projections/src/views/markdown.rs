//! A transcript as Markdown, for people.

use std::fmt::{self, Write};

use sessionlog_codec::event::{ContextCompacted, MessageAppended, ResultFlag, ToolCall};
use sessionlog_codec::ids::NodeId;

use super::{json, text};
use crate::summary::Summary;
use crate::time::rfc3339_seconds;
use crate::transcript::{EntryBody, Mark, TranscriptEntry};
use crate::tree::TreeState;
use crate::words::{outcome_word, role_word};

/// The transcript of `node` as Markdown. Control characters, which could reach a terminal, become U+FFFD.
#[must_use]
pub fn markdown(tree: &TreeState, summary: &Summary, node: NodeId) -> String {
    let mut out = String::new();
    // Writing to a string can't fail.
    match write_markdown(&mut out, tree, summary, node) {
        Ok(()) | Err(fmt::Error) => out,
    }
}

/// The same, written as it is made.
///
/// # Errors
/// If `out` fails.
pub fn write_markdown(
    out: &mut impl Write,
    tree: &TreeState,
    summary: &Summary,
    node: NodeId,
) -> fmt::Result {
    head(out, summary, node)?;
    for entry in tree.transcript(node) {
        write_entry(out, &entry)?;
    }
    Ok(())
}

fn head(out: &mut impl Write, summary: &Summary, node: NodeId) -> fmt::Result {
    let title = match summary.nodes.get(&node) {
        Some(child) if node != NodeId::ROOT => child.title.clone(),
        _ => summary.title(),
    };
    writeln!(out, "# {}\n", one_line(title.as_deref().unwrap_or("Untitled session")))?;
    writeln!(out, "- session: {}", one_line(&summary.display_id()))?;
    if let Some(id) = summary.session_id {
        writeln!(out, "- id: {id}")?;
    }
    if let Some(model) = &summary.model {
        writeln!(out, "- model: {}", one_line(model))?;
    }
    writeln!(out)
}

fn write_entry(out: &mut impl Write, entry: &TranscriptEntry) -> fmt::Result {
    let time = rfc3339_seconds(entry.timestamp);
    let mark = match entry.mark {
        Mark::Live => String::new(),
        other => format!(" ({})", other.word().replace('_', " ")),
    };
    match &entry.body {
        EntryBody::Message(message) => {
            writeln!(out, "## {}{mark} · {time}\n", role_word(message.role))?;
            write_message(out, message)
        }
        EntryBody::Result(finished, name) => {
            let name = one_line(name.as_deref().unwrap_or(&finished.call_id));
            let error = if finished.flag == ResultFlag::Error { ", error" } else { "" };
            let outcome = outcome_word(finished.outcome);
            writeln!(out, "### result of {name}: {outcome}{error}{mark} · {time}\n")?;
            fenced(out, "", &text::content(&finished.parts))
        }
        EntryBody::Resolution(resolved) => {
            let outcome = outcome_word(resolved.outcome);
            writeln!(out, "### resolved as {outcome}{mark} · {time}\n\n{}\n", clean(&resolved.note))?;
            fenced(out, "", &text::content(&resolved.parts))
        }
        EntryBody::Compaction(compacted) => write_compaction(out, compacted, &mark, &time),
        EntryBody::Run(_) => writeln!(out, "---\n\n*A new conversation begins here · {time}*\n"),
        EntryBody::Reset(reason) => {
            writeln!(out, "---\n\n*The context was emptied here: {} · {time}*\n", one_line(reason))
        }
        EntryBody::Gap(gap) => {
            writeln!(out, "> **Records are missing here:** {}\n", one_line(&gap.explanation))
        }
        EntryBody::SealedMessage(_) => writeln!(out, "## message{mark} · {time}\n\n*not readable*\n"),
        EntryBody::SealedResult(_) => writeln!(out, "### result{mark} · {time}\n\n*not readable*\n"),
        EntryBody::Piece(piece) => {
            writeln!(
                out,
                "## piece of a missing message · {time}\n\n{}\n",
                clean(&text::content(&piece.parts))
            )?;
            piece.tool_calls.iter().try_for_each(|call| write_call(out, call))
        }
    }
}

fn write_message(out: &mut impl Write, message: &MessageAppended) -> fmt::Result {
    if let Some(reasoning) = text::reasoning(&message.parts) {
        for line in clean(&reasoning).lines() {
            writeln!(out, "> {line}")?;
        }
        writeln!(out)?;
    }
    let content = text::content(&message.parts);
    if !content.is_empty() {
        writeln!(out, "{}\n", clean(&content))?;
    }
    message.tool_calls.iter().try_for_each(|call| write_call(out, call))
}

fn write_call(out: &mut impl Write, call: &ToolCall) -> fmt::Result {
    writeln!(out, "### call of {} ({})\n", one_line(&call.name), one_line(&call.call_id))?;
    fenced(out, "json", json::arguments(&call.arguments).get())
}

fn write_compaction(
    out: &mut impl Write,
    compacted: &ContextCompacted,
    mark: &str,
    time: &str,
) -> fmt::Result {
    writeln!(out, "---\n\n*The context was compacted here{mark} · {time}*\n")?;
    for line in clean(&text::content(&compacted.summary)).lines() {
        writeln!(out, "> {line}")?;
    }
    writeln!(out)
}

/// Text between fences that are longer than any in it.
fn fenced(out: &mut impl Write, language: &str, body: &str) -> fmt::Result {
    let mut longest = 2;
    let mut run = 0;
    for c in body.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest + 1);
    writeln!(out, "{fence}{language}\n{}\n{fence}\n", clean(body))
}

fn one_line(text: &str) -> String {
    clean(text).replace('\n', " ")
}

/// Text without control characters but line ends and tabs: logs hold what tools printed, terminal commands included.
fn clean(text: &str) -> String {
    let keep = |c: char| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
    text.replace("\r\n", "\n").chars().map(keep).collect()
}
