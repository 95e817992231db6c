//! The commands, one module each.

pub mod artifact;
pub mod context;
pub mod delete;
pub mod demo;
pub mod doctor;
pub mod events;
pub mod export;
pub mod follow;
pub mod fork;
pub mod gc;
pub mod health;
pub mod import;
pub mod learn;
pub mod ls;
pub mod migrate;
pub mod open_calls;
pub mod plan;
pub mod redact;
pub mod render;
pub mod repair;
pub mod resolve;
pub mod rewind;
pub mod roots;
pub mod search;
pub mod show;
pub mod stat;
pub mod tree;
pub mod verify;
pub mod whole;

use sessionlog::projections::Status;
use sessionlog::{SessionKind, SessionReader, SessionRow, StoreReader};

use crate::exit::Failure;
use crate::output::safe::safe;
use crate::output::text::count;
use crate::output::{Context, Paint};

/// The conversation that a command is about.
#[derive(Clone, Debug)]
pub struct Selected {
    /// Its row in the listing.
    pub row: SessionRow,
    /// Its session: that of the root, for a delegated conversation.
    pub reader: SessionReader,
}

impl Selected {
    /// Finds what `id` names.
    ///
    /// # Errors
    /// `Usage` if it names nothing, or several things.
    pub fn find(store: &StoreReader, id: &str) -> Result<Self, Failure> {
        let mut row = store.find(id)?;
        let reader = store.session(row.root)?;
        mend(&mut row, &reader);
        Ok(Self { row, reader })
    }

    /// The head of what is shown of a conversation to people: its title, and a line about it.
    ///
    /// # Errors
    /// If standard output fails.
    pub fn heading(&self, context: &Context) -> Result<(), Failure> {
        let row = &self.row;
        context.line(&context.paint(Paint::Heading, &title_of(row)))?;
        let mut words = vec![row.id.clone(), row.status.word().to_owned()];
        words.push(count(row.messages, "message", "messages"));
        words.extend(row.model.clone());
        words.push(row.workspace.clone());
        if row.kind == SessionKind::Child {
            words.push(format!("delegated in session {}", row.root));
        }
        words.retain(|word| !word.is_empty());
        context.line(&context.paint(Paint::Dim, &safe(&words.join(" · "))))?;
        context.line("")
    }
}

/// Fills in what can still be told of a session whose first record can't be read. The listing gives such a session up;
/// its other records are read here, one by one.
pub fn mend(row: &mut SessionRow, reader: &SessionReader) {
    if row.issue.is_none() || row.created_at.is_some() || row.kind == SessionKind::Child {
        return;
    }
    let Ok(summary) = reader.summary() else { return };
    row.title = summary.title();
    row.status = reader.status(&summary);
    row.messages = summary.messages;
    row.last_activity = summary.last_activity;
    row.model.clone_from(&summary.model);
    row.bytes = health::segments(reader).iter().map(|(_, len)| len).sum();
}

/// What a conversation is called, on one line, safe for a terminal.
#[must_use]
pub fn title_of(row: &SessionRow) -> String {
    match row.title.as_deref() {
        Some(title) => safe(title).into_owned(),
        None => "(untitled)".to_owned(),
    }
}

/// The colour of a status.
#[must_use]
pub fn status_paint(status: Status) -> Paint {
    match status {
        Status::Running | Status::Completed => Paint::Good,
        Status::Crashed | Status::Failed => Paint::Bad,
        Status::Interrupted => Paint::Warning,
        _ => Paint::Dim,
    }
}
