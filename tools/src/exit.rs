//! How the command ends: one number for scripts, one message for people.

use std::error::Error as StdError;
use std::io;
use std::process::ExitCode;

use sessionlog::{Error, ErrorKind};

/// What the exit code says. Of several, the greatest one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exit {
    /// 0: done, and nothing is wrong.
    #[default]
    Clean,
    /// 1: done; something is odd or of a newer version, and nothing is lost.
    Warnings,
    /// 2: done; a crash left something that the next owner repairs by itself. Nothing acknowledged is in it.
    Repairable,
    /// 3: done as far as it goes: acknowledged data is hurt or missing.
    Lost,
    /// 4: not done: the request is wrong (arguments, an unknown id, not a home).
    Usage,
    /// 5: not done: another process owns the session.
    Locked,
    /// 6: not done: the system failed to read or write.
    Io,
}

impl Exit {
    /// The process's exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Warnings => 1,
            Self::Repairable => 2,
            Self::Lost => 3,
            Self::Usage => 4,
            Self::Locked => 5,
            Self::Io => 6,
        }
    }

    /// The word that stands for it in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Warnings => "warnings",
            Self::Repairable => "repairable",
            Self::Lost => "lost",
            Self::Usage => "usage",
            Self::Locked => "locked",
            Self::Io => "io",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Whoever read our output has enough of it: the end, quietly.
    #[error("the reader of the output went away")]
    Pipe,
    /// Anything else.
    #[error("{message}")]
    Failed {
        /// The exit code.
        exit: Exit,
        /// A stable word for machines, such as `session.missing`.
        code: &'static str,
        /// In plain words. It may quote content: it has to be made safe before a terminal sees it.
        message: String,
    },
}

impl Failure {
    /// A failure with an exit code of its own.
    #[must_use]
    pub fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Self::Failed { exit, code, message: message.into() }
    }

    /// The request is wrong.
    #[must_use]
    pub fn usage(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, code, message)
    }

    /// The system failed at something.
    #[must_use]
    pub fn io(doing: &str, error: &io::Error) -> Self {
        Self::new(Exit::Io, "system.io", format!("{doing}: {error}"))
    }

    /// The exit code.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Pipe => Exit::Clean,
            Self::Failed { exit, .. } => *exit,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(exit_of(&error), error.code(), with_causes(&error))
    }
}

/// An error of the engine as an exit code.
fn exit_of(error: &Error) -> Exit {
    match error.kind() {
        ErrorKind::Locked => Exit::Locked,
        ErrorKind::Corrupt => Exit::Lost,
        ErrorKind::Unsupported => Exit::Warnings,
        // A log or a file of it that should be there; homes and sessions that are not there are wrong requests.
        ErrorKind::NotFound if matches!(error.code(), "log.missing" | "file.missing") => Exit::Lost,
        ErrorKind::Conflict | ErrorKind::Invalid | ErrorKind::NotFound => Exit::Usage,
        _ => Exit::Io,
    }
}

/// An error's message, and those of its causes: the engine does not repeat them.
pub fn with_causes(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// An error of writing to standard output: every other I/O goes through the engine, or says what it did.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::Pipe
        } else {
            Self::io("writing the output failed", &error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_exit_is_the_greatest_code() {
        let all =
            [Exit::Clean, Exit::Warnings, Exit::Repairable, Exit::Lost, Exit::Usage, Exit::Locked, Exit::Io];
        assert!(all.is_sorted());
        assert_eq!(all.map(Exit::code), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure.exit(), Exit::Clean);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::StorageFull)).exit(), Exit::Io);
    }
}
