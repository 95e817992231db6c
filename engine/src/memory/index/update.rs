//! Bringing the index up to date: what came since is read from the logs, and written in short transactions.

mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use sessionlog_codec::ids::{Position, SessionId};
use sessionlog_codec::stored;
use sessionlog_projections::memory::{Archive, ArchiveStep, MemoryQuery, MemoryRecord, Tokens, tokens};

use super::super::MemoryReader;
use super::super::source::{Folding, Origin, Source};
use super::fresh::{proof, stamp};
use super::held::Held;
use super::store::{LogRow, Logs, VALUE_VERSION, data_version, encoded, logs, remove_log, state_of};
use super::{Tried, vector};
use crate::error::ErrorKind;
use crate::log::{LogMark, LogStamp, Since};
use crate::store::look_at_each;
use write::Writing;

/// How many bytes of text are read of one log at a time, where many are read and where few are.
const BATCH_OF_MANY: usize = 256 << 10;
const BATCH_OF_FEW: usize = 4 << 20;
const FEW: usize = 16;
/// How long others may have to wait for the file.
const TURN: Duration = Duration::from_millis(1500);
/// How long the file is left to others between two turns: longer than who waits for it sleeps.
const BETWEEN: Duration = Duration::from_millis(15);

/// What of the index has to be up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of it.
    Everything,
    /// The records.
    Records,
    /// The records of one log, which is the only one that is given.
    OneLog,
}

impl Wanted {
    pub(super) fn of(query: &MemoryQuery) -> Self {
        if query.vector.is_some() { Self::Everything } else { Self::Records }
    }
}

/// A log that is not known to be as it was.
struct Dirty {
    source: Source,
    row: Option<LogRow>,
    state: Option<(LogMark, Vec<u8>)>,
}

/// What was read of a log.
enum Read {
    /// It is as it was.
    Same { stamp: Option<LogStamp> },
    /// What came.
    Batch(Box<Batch>),
    /// It can't be read.
    Unread(String),
}

struct Batch {
    /// Everything that is known of the log is to be forgotten first.
    is_anew: bool,
    steps: Vec<(Position, Step)>,
    /// `None`: there is nothing in it.
    mark: Option<LogMark>,
    fold: Vec<u8>,
    stamp: Option<LogStamp>,
    has_more: bool,
}

/// A step, with what of it takes time done already.
enum Step {
    Record { record: Box<MemoryRecord>, words: String, len: u64 },
    Other(ArchiveStep),
}

/// The index, up to date and open.
pub(super) struct Current {
    pub(super) held: Held,
    /// What is known of the logs, and of which version of the database, if nothing had to be done.
    pub(super) known: Option<(i64, Logs)>,
    /// Sessions that can't be read.
    pub(super) unread: Vec<SessionId>,
}

/// Brings the index up to date with the logs as they are now.
pub(super) fn bring_up_to_date(memory: &MemoryReader, sources: &[Source], wanted: Wanted) -> Tried<Current> {
    let mut held = Held::open(memory)?;
    let version = data_version(held.connection())?;
    let known = logs(held.connection())?;
    let removed = wanted != Wanted::OneLog && remove_gone(held.connection(), &known, sources)?;
    if wanted == Wanted::Everything {
        vector::update(held.connection(), memory)?;
    }
    let mut dirty = dirty_of(held.connection(), &known, sources)?;
    if dirty.is_empty() && !removed {
        return Ok(Current { held, known: Some((version, known)), unread: Vec::new() });
    }
    let mut unread = Vec::new();
    while !dirty.is_empty() {
        let turn = Instant::now();
        let mut writing = Writing::new();
        let batch = if dirty.len() > FEW { BATCH_OF_MANY } else { BATCH_OF_FEW };
        let mut left: Vec<Source> = Vec::new();
        let mut failed = None;
        let connection: &Connection = held.connection();
        let look = |dirty: &Dirty| (turn.elapsed() < TURN).then(|| read(memory, dirty, batch));
        look_at_each(&dirty, &look, |dirty, found| match found {
            // The rest has its turn when others had theirs.
            None => left.push(dirty.source.clone()),
            Some(_) if failed.is_some() => {}
            Some(Read::Unread(why)) => {
                tracing::warn!(session = %dirty.source.session, why, "a session's memory can't be read");
                unread.push(dirty.source.session);
            }
            Some(found) => match writing.write(connection, dirty, found) {
                Ok(true) => left.push(dirty.source.clone()),
                Ok(false) => {}
                Err(trouble) => failed = Some(trouble),
            },
        });
        if let Some(trouble) = failed {
            return Err(trouble);
        }
        writing.commit(connection)?;
        if left.is_empty() {
            break;
        }
        drop(held);
        std::thread::sleep(BETWEEN);
        held = Held::open(memory)?;
        let known = logs(held.connection())?;
        dirty = dirty_of(held.connection(), &known, &left)?;
    }
    unread.sort_unstable();
    Ok(Current { held, known: None, unread })
}

/// The logs that are not as they were.
fn dirty_of(connection: &Connection, known: &Logs, sources: &[Source]) -> Tried<Vec<Dirty>> {
    let rows: BTreeMap<(SessionId, Origin), &LogRow> =
        known.values().map(|row| ((row.session, row.origin), row)).collect();
    let mut dirty = Vec::new();
    let mut suspects: Vec<(&Source, Option<&LogRow>)> = Vec::new();
    let all: Vec<(&Source, Option<&LogRow>)> =
        sources.iter().map(|it| (it, rows.get(&(it.session, it.origin)).copied())).collect();
    let is_same = |(source, row): &(&Source, Option<&LogRow>)| {
        row.is_some_and(|row| row.stamp.is_some() && row.stamp == stamp(source, row.segment))
    };
    look_at_each(&all, &is_same, |one, same| {
        if !same {
            suspects.push(*one);
        }
    });
    for (source, row) in suspects {
        let state = row.map(|row| state_of(connection, row.id)).transpose()?.flatten();
        dirty.push(Dirty { source: source.clone(), row: row.cloned(), state });
    }
    Ok(dirty)
}

/// Removes what is known of logs that are not there any more. Whether there was anything.
fn remove_gone(connection: &mut Connection, known: &Logs, sources: &[Source]) -> Tried<bool> {
    let there: BTreeSet<(SessionId, Origin)> = sources.iter().map(|it| (it.session, it.origin)).collect();
    let gone: Vec<&LogRow> =
        known.values().filter(|row| !there.contains(&(row.session, row.origin))).collect();
    if gone.is_empty() {
        return Ok(false);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for row in gone {
        remove_log(&transaction, row.id)?;
    }
    transaction.commit()?;
    Ok(true)
}

/// Reads what came to a log since it was read last, up to some bytes of text.
fn read(memory: &MemoryReader, dirty: &Dirty, most: usize) -> Read {
    let source = &dirty.source;
    let known = dirty.row.as_ref().zip(dirty.state.as_ref());
    if let Some((_, (mark, _))) = known
        && source.log().is_at(mark).unwrap_or(false)
    {
        return Read::Same { stamp: proof(source, mark) };
    }
    let resumed = known.and_then(|(_, (mark, fold))| Some((mark, resume(source, memory, fold)?)));
    match resumed.map(|(mark, folding)| read_from(source, folding, Some(mark), most)) {
        Some(Some(read)) => read,
        // It does not go on from there, or it was never read.
        Some(None) | None => {
            let folding = Folding::of(source, &memory.archive_tools);
            read_from(source, folding, None, most)
                .unwrap_or_else(|| Read::Unread("it has no beginning".to_owned()))
        }
    }
}

fn resume(source: &Source, memory: &MemoryReader, fold: &[u8]) -> Option<Folding> {
    match source.origin {
        Origin::Archive => Some(Folding::Archive),
        Origin::Session => {
            let archive: Archive = stored::decode(VALUE_VERSION, fold).ok()?;
            Some(Folding::Session(Box::new(archive.with_tools(&memory.archive_tools))))
        }
    }
}

/// `None`: the log does not go on from there.
fn read_from(source: &Source, mut folding: Folding, mark: Option<&LogMark>, most: usize) -> Option<Read> {
    let mut steps = Vec::new();
    let (mut len, mut has_more) = (0_usize, false);
    let since = source.log().read_since(mark, &mut |records| {
        if len >= most {
            has_more = true;
        }
        for record in records {
            folding.apply(source.session, record, &mut |step| {
                let step = prepared(step);
                if let Step::Record { words, .. } = &step {
                    len = len.saturating_add(words.len());
                }
                steps.push((record.position, step));
            });
        }
        if len >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    has_more = has_more || len >= most;
    let reached = match since {
        Ok(Since::Went(reached)) => reached,
        Ok(Since::Elsewhere) => return None,
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Some(Read::Unread(error.to_string())),
    };
    let fold = match &folding {
        Folding::Session(archive) => stored::encode(VALUE_VERSION, &**archive).unwrap_or_default(),
        Folding::Archive => Vec::new(),
    };
    let stamp = reached.as_ref().filter(|_| !has_more).and_then(|mark| proof(source, mark));
    let batch = Batch { is_anew: mark.is_none(), steps, mark: reached, fold, stamp, has_more };
    Some(Read::Batch(Box::new(batch)))
}

fn prepared(step: ArchiveStep) -> Step {
    let ArchiveStep::Record(mut record) = step else { return Step::Other(step) };
    let (mut words, mut len) = (String::new(), 0_u64);
    for text in record.searched() {
        tokens(text, Tokens::OfText, &mut |token| {
            encoded(token, &mut words);
            words.push(' ');
            len = len.saturating_add(1);
        });
    }
    record.text = String::new();
    Step::Record { record, words, len }
}
