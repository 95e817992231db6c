//! What a reading command came across: it prints all that can be read, and then says what could not.

use std::ops::ControlFlow;

use serde_json::{Value, json};
use sessionlog::codec::event::Event;
use sessionlog::codec::ids::Position;
use sessionlog::log::{Gap, SegmentName, TailState};
use sessionlog::projections::Liveness;
use sessionlog::session::{EventItem, Undecodable};
use sessionlog::storage::{OsStorage, Storage};
use sessionlog::{Error, ErrorKind, SessionReader};

use crate::exit::{Exit, Failure, with_causes};
use crate::output::Context;
use crate::output::text::{count, size};

/// How many problems of a kind are kept to be told; the rest is counted.
const KEPT: usize = 100;

/// What was wrong with a log, as far as it was read.
#[derive(Debug)]
pub struct Health {
    gaps: Vec<Gap>,
    gap_count: u64,
    undecodable: Vec<Value>,
    damaged: u64,
    newer: u64,
    tail: TailState,
    liveness: Liveness,
}

impl Health {
    /// Reads a session's events from `from` on.
    ///
    /// # Errors
    /// Those of `visit`; `Lost` or `Warnings` if there is no log; `Io` if it can't be read.
    pub fn read(
        reader: &SessionReader,
        from: Position,
        visit: &mut dyn FnMut(&EventItem) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<Self, Failure> {
        let mut health = Self {
            gaps: Vec::new(),
            gap_count: 0,
            undecodable: Vec::new(),
            damaged: 0,
            newer: 0,
            tail: TailState::Clean,
            liveness: Liveness::Unknown,
        };
        let mut failure = None;
        let tail = reader.events(from, &mut |item| {
            health.note(&item);
            visit(&item).unwrap_or_else(|error| {
                failure = Some(error);
                ControlFlow::Break(())
            })
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        health.tail = tail.map_err(|error| no_log(reader, error))?;
        // Of a log that ends well, its owner says nothing.
        if matches!(health.tail, TailState::Torn(_) | TailState::HalfCreated) {
            health.liveness = reader.liveness();
        }
        Ok(health)
    }

    /// Reads only the end of a session's log: its last segment.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of_end(reader: &SessionReader) -> Result<Self, Failure> {
        Ok(Self::of_end_at(reader)?.0)
    }

    /// The same, with the position of the last event.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of_end_at(reader: &SessionReader) -> Result<(Self, Position), Failure> {
        let from = segments(reader).into_iter().map(|(name, _)| name.0).max();
        let mut last = Position::START;
        let health = Self::read(reader, from.unwrap_or(Position(1)), &mut |item| {
            if let EventItem::Event(event) = item {
                last = event.position;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((health, last))
    }

    fn note(&mut self, item: &EventItem) {
        match item {
            EventItem::Gap(gap) => {
                self.gap_count = self.gap_count.saturating_add(1);
                if self.gaps.len() < KEPT {
                    self.gaps.push(gap.clone());
                }
            }
            EventItem::Undecodable(bad) => {
                let seen = if is_newer(bad) { &mut self.newer } else { &mut self.damaged };
                *seen = seen.saturating_add(1);
                if self.undecodable.len() < KEPT {
                    self.undecodable.push(undecodable_json(bad));
                }
            }
            EventItem::Event(event) if matches!(event.event, Event::Unknown(_)) => {
                self.newer = self.newer.saturating_add(1);
            }
            EventItem::Event(_) => {}
        }
    }

    /// The exit code of a command that read this.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.gap_count > 0 || self.damaged > 0 || self.tail == TailState::Damaged {
            return Exit::Lost;
        }
        let tail = match self.tail {
            TailState::Clean | TailState::Damaged => Exit::Clean,
            // The owner lives: it is in the middle of an append.
            TailState::Torn(_) | TailState::HalfCreated if self.liveness == Liveness::Alive => Exit::Clean,
            TailState::Torn(_) | TailState::HalfCreated => Exit::Repairable,
            TailState::Newer(_) => Exit::Warnings,
        };
        if self.newer > 0 { tail.max(Exit::Warnings) } else { tail }
    }

    /// Says in one line what is wrong, if anything is, and gives the exit code.
    #[must_use]
    pub fn tell(&self, context: &Context, id: &str) -> Exit {
        let exit = self.exit();
        if exit != Exit::Clean {
            context.warn(&format!("{id}: {}; `logdump verify {id}` says more", self.sentence()));
        }
        exit
    }

    /// What is wrong, in a few words.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut found = Vec::new();
        if self.gap_count > 0 {
            let spans = count(self.gap_count, "span of the log is hurt", "spans of the log are hurt");
            let first = self.gaps.first().map(gap_words).unwrap_or_default();
            found.push(format!("{spans} ({first})"));
        }
        if self.damaged > 0 {
            found.push(count(self.damaged, "record does not decode", "records do not decode"));
        }
        match &self.tail {
            TailState::Torn(torn) => found.push(format!(
                "the log ends in {} that were never acknowledged, which the next owner cuts off",
                size(torn.len)
            )),
            TailState::HalfCreated => {
                found.push("the last segment was being created, which the next owner undoes".to_owned());
            }
            TailState::Newer(what) => found.push(format!("a newer version wrote the rest ({what})")),
            TailState::Damaged if self.gap_count == 0 => found.push("the log's end is hurt".to_owned()),
            TailState::Clean | TailState::Damaged => {}
        }
        if self.newer > 0 {
            found.push(count(self.newer, "event is of a newer version", "events are of a newer version"));
        }
        found.join("; ")
    }

    /// What is wrong, for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let tail = match &self.tail {
            TailState::Clean => json!({ "state": "clean" }),
            TailState::Torn(torn) => {
                json!({ "state": "torn", "offset": torn.offset, "len": torn.len, "explanation": torn.error })
            }
            TailState::Damaged => json!({ "state": "damaged" }),
            TailState::Newer(what) => json!({ "state": "newer", "explanation": what }),
            TailState::HalfCreated => json!({ "state": "half_created" }),
        };
        json!({
            "verdict": self.exit().word(),
            "gaps": self.gaps.iter().map(gap_json).collect::<Vec<_>>(),
            "undecodable": self.undecodable,
            "newer_events": self.newer,
            "tail": tail,
        })
    }
}

/// A gap in a few words.
#[must_use]
pub fn gap_words(gap: &Gap) -> String {
    let which = match gap.last {
        Some(last) if last == gap.first => format!("position {last} is missing"),
        Some(last) => format!("positions {} to {last} are missing", gap.first),
        None => format!("all from position {} on is missing", gap.first),
    };
    format!("{which}, {} byte {}: {}", gap.segment, gap.offset, gap.explanation)
}

/// A gap for programs.
#[must_use]
pub fn gap_json(gap: &Gap) -> Value {
    json!({
        "first": gap.first.0,
        "last": gap.last.map(|last| last.0),
        "segment": gap.segment.to_string(),
        "offset": gap.offset,
        "len": gap.len,
        "explanation": gap.explanation,
    })
}

/// A record that can't be read, for programs.
#[must_use]
pub fn undecodable_json(bad: &Undecodable) -> Value {
    json!({
        "position": bad.position.0,
        "node": bad.node.0,
        "kind": bad.kind.0,
        "verdict": if is_newer(bad) { Exit::Warnings.word() } else { Exit::Lost.word() },
        "explanation": with_causes(&bad.error),
    })
}

fn is_newer(bad: &Undecodable) -> bool {
    bad.error.kind() == ErrorKind::Unsupported
}

/// The files of a session's log, with their lengths, and nothing else that may be there.
#[must_use]
pub fn segments(reader: &SessionReader) -> Vec<(SegmentName, u64)> {
    let entries = OsStorage.list(&reader.place().dir.join("log")).unwrap_or_default();
    let named = entries.iter().filter(|entry| entry.kind == sessionlog::storage::EntryKind::File);
    named.filter_map(|entry| Some((SegmentName::parse(entry.name.to_str()?)?, entry.len))).collect()
}

/// What it means that a session has no log. A crash while it was being created leaves a lock file and empty directories,
/// (of a fork, one more that its log is made in), and then nothing was ever acknowledged; anything else in its place tells that there was a log.
#[must_use]
pub fn no_log(reader: &SessionReader, error: Error) -> Failure {
    if error.kind() != ErrorKind::NotFound {
        return error.into();
    }
    let dir = &reader.place().dir;
    let names = OsStorage.list(dir).unwrap_or_default();
    let of_creation = ["owner.lock", "log", "log.forking"];
    let bare = names.iter().all(|entry| of_creation.iter().any(|name| entry.name == *name));
    if bare && segments(reader).is_empty() {
        let message = format!(
            "{}: creating this session did not finish, and nothing of it was ever acknowledged",
            dir.display()
        );
        return Failure::new(Exit::Warnings, "session.half_created", message);
    }
    error.into()
}
