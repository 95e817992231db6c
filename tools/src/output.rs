//! What every command writes through: one buffered standard output, one rule for what a terminal may see.

pub mod event_text;
pub mod message_text;
pub mod progress;
pub mod safe;
pub mod text;

use std::cell::RefCell;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use sessionlog::{Store, StoreReader};

use crate::args::{ColorWhen, GlobalArgs};
use crate::exit::{Exit, Failure};
use safe::{safe, safe_json};

/// The version of what `--json` prints.
pub const SCHEMA_VERSION: u64 = 1;

/// For whom the output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// People.
    Human,
    /// Programs.
    Json,
}

/// Where standard output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A terminal, which obeys control characters.
    Terminal,
    /// A file, a pipe.
    Elsewhere,
}

/// What a piece of text is, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Something that structures the output.
    Heading,
    /// Something that is there if wanted.
    Dim,
    /// What a person said.
    User,
    /// What the model said.
    Assistant,
    /// What a tool did.
    Tool,
    /// Nothing is wrong.
    Good,
    /// Worth a look.
    Warning,
    /// Something is wrong.
    Bad,
}

impl Paint {
    fn style(self) -> Style {
        match self {
            Self::Heading => Style::new().bold(),
            Self::Dim => Style::new().dimmed(),
            Self::User => AnsiColor::Cyan.on_default().bold(),
            Self::Assistant => AnsiColor::Green.on_default().bold(),
            Self::Tool => AnsiColor::Magenta.on_default().bold(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colors {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verbosity {
    Normal,
    Quiet,
}

/// What a command works with: the home, the way to write, the way to talk.
pub struct Context {
    home: Option<PathBuf>,
    format: Format,
    destination: Destination,
    colors: Colors,
    verbosity: Verbosity,
    out: RefCell<BufWriter<Box<dyn Write>>>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("home", &self.home)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// The context of this process: standard output, locked.
    #[must_use]
    pub fn new(global: &GlobalArgs) -> Self {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        let colors = match global.color {
            ColorWhen::Always => Colors::On,
            ColorWhen::Never => Colors::Off,
            ColorWhen::Auto if anstream::AutoStream::choice(&stdout) == anstream::ColorChoice::Never => {
                Colors::Off
            }
            ColorWhen::Auto => Colors::On,
        };
        let destination = if terminal { Destination::Terminal } else { Destination::Elsewhere };
        Self { destination, colors, ..Self::to(global, Box::new(stdout.lock())) }
    }

    /// A context whose data goes to `out`, as to a file.
    #[must_use]
    pub fn to(global: &GlobalArgs, out: Box<dyn Write>) -> Self {
        Self {
            home: global.home.clone().or_else(Store::default_home),
            format: if global.json { Format::Json } else { Format::Human },
            destination: Destination::Elsewhere,
            colors: if global.color == ColorWhen::Always { Colors::On } else { Colors::Off },
            verbosity: if global.quiet { Verbosity::Quiet } else { Verbosity::Normal },
            out: RefCell::new(BufWriter::with_capacity(64 << 10, out)),
        }
    }

    /// For whom the output is.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Where standard output goes.
    #[must_use]
    pub fn destination(&self) -> Destination {
        self.destination
    }

    /// The home that was chosen, which need not exist.
    ///
    /// # Errors
    /// `Usage` if none was chosen and the platform has no directory for data.
    pub fn home(&self) -> Result<&Path, Failure> {
        match self.home.as_deref() {
            Some(home) if !home.as_os_str().is_empty() => Ok(home),
            _ => Err(Failure::usage("home.none", "no home: give --home DIR or set SESSIONLOG_HOME")),
        }
    }

    /// The home, for reading.
    ///
    /// # Errors
    /// `Usage` if there is none, or something else in its place.
    pub fn reader(&self) -> Result<StoreReader, Failure> {
        Ok(StoreReader::open(self.home()?)?)
    }

    /// Text in a colour, if colours are on. The text must be safe already.
    #[must_use]
    pub fn paint(&self, paint: Paint, text: &str) -> String {
        match self.colors {
            Colors::Off => text.to_owned(),
            Colors::On => {
                let style = paint.style();
                format!("{style}{text}{style:#}")
            }
        }
    }

    /// Writes a line for people. Content in it must have gone through [`safe()`].
    ///
    /// # Errors
    /// If standard output fails.
    pub fn line(&self, line: &str) -> Result<(), Failure> {
        Ok(writeln!(self.out.borrow_mut(), "{line}")?)
    }

    /// Writes one JSON value, on several lines for a person at a terminal.
    ///
    /// # Errors
    /// If standard output fails.
    pub fn json(&self, value: &Value) -> Result<(), Failure> {
        match self.destination {
            Destination::Terminal => {
                let text = serde_json::to_string_pretty(value).unwrap_or_default();
                self.line(&safe_json(&text))
            }
            Destination::Elsewhere => self.json_line(value),
        }
    }

    /// Writes one JSON value on one line.
    ///
    /// # Errors
    /// If standard output fails.
    pub fn json_line(&self, value: &Value) -> Result<(), Failure> {
        self.line(&safe_json(&value.to_string()))
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// If standard output fails.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.out.borrow_mut().write_all(bytes)?)
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// If standard output fails.
    pub fn flush(&self) -> Result<(), Failure> {
        Ok(self.out.borrow_mut().flush()?)
    }

    /// Says something about the output: a note that is no part of it.
    pub fn note(&self, text: &str) {
        if self.verbosity == Verbosity::Normal {
            // What was written so far comes first where both end on one terminal.
            drop(self.flush());
            say(text);
        }
    }

    /// Says that something is wrong, and that the output is there all the same.
    pub fn warn(&self, text: &str) {
        self.note(&format!("warning: {text}"));
    }

    /// Says why the command ends without having done all that it was asked for.
    pub fn fail(&self, failure: &Failure) {
        if let Failure::Failed { code, message, .. } = failure {
            drop(self.flush());
            say(&format!("error: {message} [{code}]"));
        }
    }

    /// Says that something went wrong with one of several things, and goes on with the others.
    ///
    /// # Errors
    /// The failure itself, if it is that the output can't be written.
    pub fn go_on(&self, failure: Failure) -> Result<Exit, Failure> {
        match failure {
            Failure::Pipe => Err(failure),
            Failure::Failed { exit, .. } => {
                self.fail(&failure);
                Ok(exit)
            }
        }
    }
}

/// One line to standard error, whatever is in it.
pub(crate) fn say(text: &str) {
    // There is nobody left to tell if this fails.
    writeln!(std::io::stderr().lock(), "logdump: {}", safe(text)).unwrap_or_default();
}
