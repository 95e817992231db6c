//! Which text of a conversation a person would know it by.

use std::borrow::Cow;

use sessionlog_codec::event::{Audience, MessageAppended, Part, Role};

/// What agents put into user messages that no person typed. A message that begins so is no prompt.
const MARKUP: &[&str] = &[
    "<local-command-",
    "<command-",
    "<bash-",
    "<session-start-hook>",
    "<user-prompt-submit-hook>",
    "<system-reminder>",
    "<system_reminder>",
    "<task-notification>",
    "<tick>",
    "<teammate-message",
    "<environment_context>",
    "<environment_details>",
    "<user_instructions>",
    "<user_info>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<ide_opened_file>",
    "<ide_selection>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
    "Caveat: The messages below",
    "[Request interrupted by user",
    "This session is being continued from a previous conversation",
];

/// What the person asked, where the message is a person's; `None` for everything else.
pub(super) fn prompt_of(message: &MessageAppended) -> Option<String> {
    if message.role != Role::User || message.audience != Audience::Everyone {
        return None;
    }
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) if is_typed(text) => Some(Cow::Borrowed(text.as_str())),
        Part::Text(text) => command_of(text).map(Cow::Owned),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    (!text.is_empty()).then_some(text)
}

/// What a person typed as a command with arguments, which its agent stored as markup. A command without arguments
/// (`/clear`) says nothing about the session.
fn command_of(text: &str) -> Option<String> {
    let between = |open: &str, close: &str| Some(text.split_once(open)?.1.split_once(close)?.0.trim());
    let name = between("<command-name>", "</command-name>")?;
    let arguments = between("<command-args>", "</command-args>").filter(|arguments| !arguments.is_empty())?;
    Some(format!("{name} {arguments}"))
}

fn is_typed(text: &str) -> bool {
    let begin = text.trim_start();
    !begin.is_empty() && !MARKUP.iter().any(|markup| begin.starts_with(markup))
}

/// The first `count` characters: never half of one.
pub(crate) fn cut(text: &str, count: usize) -> &str {
    let end = text.char_indices().nth(count).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or(text)
}

/// The first line that says something, without the space around it, cut to `count` characters.
pub(crate) fn first_line(text: &str, count: usize) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(cut(line, count).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_arguments_is_a_prompt() {
        let stored = "<command-message>review</command-message>\n<command-name>/review</command-name>\n\
                      <command-args>the login change</command-args>";
        assert_eq!(command_of(stored).as_deref(), Some("/review the login change"));
        assert_eq!(command_of("<command-name>/clear</command-name><command-args></command-args>"), None);
        assert_eq!(command_of("<command-args>x</command-args>"), None);
    }

    /// L7: a prompt with an emoji over the cut made agents panic ("byte index is not a char boundary").
    #[test]
    fn l7_a_cut_never_splits_a_character() {
        let text = "日本語🙏é".repeat(100);
        for count in 0..=text.chars().count() {
            assert_eq!(cut(&text, count).chars().count(), count);
        }
        assert_eq!(cut("ab", 60), "ab");
        assert_eq!(first_line(" \n\t\n  🔑🔑🔑 \n x", 2).as_deref(), Some("🔑🔑"));
        assert_eq!(first_line(" \n ", 60), None);
    }
}
