//! `logdump export`: a conversation in another format.

mod q;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::json;
use sessionlog::codec::event::LoggedEvent;
use sessionlog::codec::ids::Position;
use sessionlog::projections::views::{
    Dialect, Pieces, Rendered, TranscriptRenderer, event_line, write_markdown,
};
use sessionlog::projections::{Projection, Summary, TreeState};
use sessionlog::session::EventItem;
use sessionlog::{SessionKind, StoreReader};

use super::Selected;
use super::health::Health;
use crate::args::{ExportArgs, ExportFormat};
use crate::exit::{Exit, Failure};
use crate::output::safe::{safe_json, safe_lines};
use crate::output::text::size;
use crate::output::{Context, Destination, Format, SCHEMA_VERSION};

/// Runs the command.
///
/// # Errors
/// `Usage` if `id` names nothing or the file exists; else if the log or the output fails. A file that could not be
/// written whole is not left behind.
pub fn run(args: &ExportArgs, context: &Context) -> Result<Exit, Failure> {
    let store = context.reader()?;
    let selected = Selected::find(&store, &args.id)?;
    match (&args.to, args.format) {
        (Some(to), ExportFormat::Q) => return q::run(&store, &selected, to, context),
        (None, ExportFormat::Q) => {
            let text = "the format q is a directory of files; say where it goes with --to DIR";
            return Err(Failure::usage("export.to", text));
        }
        (Some(_), _) => {
            let text = "the format is one file; say where it goes with --output FILE";
            return Err(Failure::usage("export.to", text));
        }
        (None, _) => {}
    }
    let Some(path) = &args.output else {
        let health = export(args.format, &selected, &mut Sink::Output(context, args.format))?;
        return Ok(health.tell(context, &selected.row.id));
    };
    let target = Target::create(&store, path, args)?;
    let mut file = BufWriter::with_capacity(64 << 10, &target.file);
    let health = export(args.format, &selected, &mut Sink::File(&mut file, path));
    let health = health.and_then(|health| file.flush().map(|()| health).map_err(|e| writing(path, &e)));
    drop(file);
    let (health, bytes) = target.finish(health)?;
    match context.format() {
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "session": selected.row.root.to_string(),
            "node": selected.row.node.0,
            "file": path.display().to_string(),
            "bytes": bytes,
            "health": health.json(),
        }))?,
        Format::Human => context.note(&format!("{} written to {}", size(bytes), path.display())),
    }
    Ok(health.tell(context, &selected.row.id))
}

/// Where an export goes.
enum Sink<'a> {
    Output(&'a Context, ExportFormat),
    File(&'a mut dyn Write, &'a Path),
}

impl Sink<'_> {
    /// Writes a piece that ends with a whole character, and in the formats of lines with a whole line.
    fn write(&mut self, text: &str) -> Result<(), Failure> {
        match self {
            Self::File(file, path) => file.write_all(text.as_bytes()).map_err(|e| writing(path, &e)),
            Self::Output(context, _) if context.destination() == Destination::Elsewhere => {
                context.bytes(text.as_bytes())
            }
            Self::Output(context, ExportFormat::Markdown) => context.bytes(safe_lines(text).as_bytes()),
            Self::Output(context, _) => context.bytes(safe_json(text).as_bytes()),
        }
    }

    fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.write(line)?;
        self.write("\n")
    }
}

fn writing(path: &Path, error: &std::io::Error) -> Failure {
    Failure::io(&format!("writing {} failed", path.display()), error)
}

fn export(format: ExportFormat, selected: &Selected, sink: &mut Sink<'_>) -> Result<Health, Failure> {
    match format {
        ExportFormat::Jsonl => events(selected, sink),
        ExportFormat::Seed => transcript(Dialect::Seed, selected, sink),
        ExportFormat::Recursive => transcript(Dialect::Recursive08, selected, sink),
        ExportFormat::Markdown => markdown(selected, sink),
        // A directory, which no sink takes: it was written before.
        ExportFormat::Q => Err(Failure::usage("export.to", "the format q is a directory of files")),
    }
}

/// Every event: of the whole tree for a root session, else of the one conversation.
fn events(selected: &Selected, sink: &mut Sink<'_>) -> Result<Health, Failure> {
    let node = (selected.row.kind == SessionKind::Child).then_some(selected.row.node);
    walk(selected, &mut |event| {
        if node.is_none_or(|node| node == event.node) { sink.line(&event_line(event)) } else { Ok(()) }
    })
}

/// Two walks: the pieces that messages were extended by come first, so that each message is rendered whole.
fn transcript(dialect: Dialect, selected: &Selected, sink: &mut Sink<'_>) -> Result<Health, Failure> {
    let node = selected.row.node;
    let mut pieces = Pieces::of(node);
    walk(selected, &mut |event| {
        pieces.note(event);
        Ok(())
    })?;
    let mut renderer = TranscriptRenderer::of_node(dialect, selected.row.root, node);
    walk(selected, &mut |event| match renderer.render(&pieces.whole(event)) {
        Rendered::Lines(lines) => lines.iter().try_for_each(|line| sink.line(line)),
        Rendered::Nothing | Rendered::Rebuild => Ok(()),
    })
}

fn markdown(selected: &Selected, sink: &mut Sink<'_>) -> Result<Health, Failure> {
    let mut tree = TreeState::default();
    let mut summary = Summary::default();
    let health = walk(selected, &mut |event| {
        tree.apply(event);
        summary.apply(event);
        Ok(())
    })?;
    let mut writer = Text { sink, failure: None };
    let written = write_markdown(&mut writer, &tree, &summary, selected.row.node);
    match (writer.failure, written) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) => Err(Failure::new(Exit::Io, "export.format", error.to_string())),
        (None, Ok(())) => Ok(health),
    }
}

fn walk(
    selected: &Selected,
    visit: &mut dyn FnMut(&LoggedEvent) -> Result<(), Failure>,
) -> Result<Health, Failure> {
    Health::read(&selected.reader, Position(1), &mut |item| {
        if let EventItem::Event(event) = item {
            visit(event)?;
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// A sink for formatted text, which has no errors of its own.
struct Text<'a, 's> {
    sink: &'a mut Sink<'s>,
    failure: Option<Failure>,
}

impl fmt::Write for Text<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.sink.write(text).map_err(|failure| {
            self.failure = Some(failure);
            fmt::Error
        })
    }
}

/// A file that is being written: under its own name if it is new, else beside the one that it replaces.
struct Target<'a> {
    path: &'a Path,
    written: PathBuf,
    file: File,
}

impl<'a> Target<'a> {
    fn create(store: &StoreReader, path: &'a Path, args: &ExportArgs) -> Result<Self, Failure> {
        refuse_inside(store, path)?;
        let mut written = path.to_owned();
        if args.force {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".{}.tmp", std::process::id()));
            written.set_file_name(name);
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&written) {
            Ok(file) => Ok(Self { path, written, file }),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let text = format!("{} exists; --force replaces it", written.display());
                Err(Failure::usage("export.exists", text))
            }
            Err(error) => Err(Failure::io(&format!("creating {} failed", written.display()), &error)),
        }
    }

    /// Puts the file in its place if the export succeeded, and removes it if not.
    fn finish(self, health: Result<Health, Failure>) -> Result<(Health, u64), Failure> {
        let done = health.and_then(|health| {
            let io = |e: std::io::Error| writing(self.path, &e);
            let bytes = self.file.metadata().map_err(io)?.len();
            self.file.sync_all().map_err(io)?;
            if self.written != self.path {
                std::fs::rename(&self.written, self.path).map_err(io)?;
            }
            Ok((health, bytes))
        });
        if done.is_err() {
            // The error that brought us here is the one to tell.
            std::fs::remove_file(&self.written).unwrap_or_default();
        }
        done
    }
}

/// An export must not end up in the store: `--force` could replace the very log that it is made of.
fn refuse_inside(store: &StoreReader, path: &Path) -> Result<(), Failure> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    refuse_below(store, path, parent)
}

/// Refuses `path` if `directory`, which is there and holds it, is in the store.
fn refuse_below(store: &StoreReader, path: &Path, directory: &Path) -> Result<(), Failure> {
    let (Ok(home), Ok(directory)) = (store.path().canonicalize(), directory.canonicalize()) else {
        return Ok(());
    };
    if directory.starts_with(&home) {
        let text = format!("{} is inside of the home; write the export elsewhere", path.display());
        return Err(Failure::usage("export.inside", text));
    }
    Ok(())
}
