//! Writing what was read of logs into the tables.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use sessionlog_codec::ids::Position;
use sessionlog_codec::stored;
use sessionlog_projections::memory::{ArchiveStep, MemoryRecord};
use sessionlog_projections::role_word;

use super::super::super::source::Origin;
use super::super::fresh::stored_of;
use super::super::store::{
    VALUE_VERSION, cursor_of, json, origin_no, remove_log, remove_records, signed, unsigned,
};
use super::super::{Tried, Trouble};
use super::{Batch, Dirty, Read, Step};
use crate::log::LogStamp;

/// How long others may have to wait for a transaction.
const TRANSACTION: Duration = Duration::from_millis(200);

/// Transactions that are short, one after the other. Whoever gives up drops the connection, and with it what is not committed.
pub(super) struct Writing {
    begun: Option<Instant>,
}

impl Writing {
    pub(super) fn new() -> Self {
        Self { begun: None }
    }

    /// Writes what was read of a log. Whether there is more to read.
    pub(super) fn write(&mut self, connection: &Connection, dirty: &Dirty, found: Read) -> Tried<bool> {
        if self.begun.is_none() {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            self.begun = Some(Instant::now());
        }
        let has_more = match found {
            Read::Same { stamp } => restamp(connection, dirty, stamp)?,
            Read::Batch(batch) => write(connection, dirty, *batch)?,
            Read::Unread(_) => false,
        };
        if self.begun.is_some_and(|begun| begun.elapsed() >= TRANSACTION) {
            self.commit(connection)?;
        }
        Ok(has_more)
    }

    pub(super) fn commit(&mut self, connection: &Connection) -> Tried<()> {
        if self.begun.take().is_some() {
            connection.execute_batch("COMMIT")?;
        }
        Ok(())
    }
}

fn restamp(connection: &Connection, dirty: &Dirty, stamp: Option<LogStamp>) -> Tried<bool> {
    if let (Some(row), Some(stamp)) = (&dirty.row, stored_of(stamp)) {
        let mut statement = connection
            .prepare_cached("UPDATE log SET stamp = ?1 WHERE id = ?2 AND next = ?3 AND chain = ?4")?;
        statement.execute(params![stamp, row.id, signed(row.next.0)?, row.chain.0])?;
    }
    Ok(false)
}

fn write(connection: &Connection, dirty: &Dirty, batch: Batch) -> Tried<bool> {
    let current = cursor_of(connection, &dirty.source)?;
    let seen = dirty.row.as_ref().map(|row| (row.id, row.next, row.chain));
    if current != seen {
        // Somebody else wrote about this log meanwhile: it is looked at again.
        return Ok(true);
    }
    if let Some((id, ..)) = current.filter(|_| batch.is_anew) {
        remove_log(connection, id)?;
    }
    let Some(mark) = &batch.mark else { return Ok(false) };
    let known = current.filter(|_| !batch.is_anew).map(|(id, ..)| id);
    let id = match known {
        Some(id) => id,
        None => {
            let mut statement = connection.prepare_cached(
                "INSERT INTO log (session, origin, next, chain, segment, stamp, tags, records, tokens)
                 VALUES (?1, ?2, 0, x'', 0, NULL, '[]', 0, 0)",
            )?;
            statement.execute(params![dirty.source.session.0, origin_no(dirty.source.origin)])?;
            connection.last_insert_rowid()
        }
    };
    let old = dirty.row.as_ref().filter(|_| known.is_some());
    let mut rows = Rows {
        connection,
        log: id,
        origin: dirty.source.origin,
        tags: old.map(|row| row.tags.clone()).unwrap_or_default(),
        records: old.map_or(0, |row| row.records),
        tokens: old.map_or(0, |row| row.tokens),
        removed: false,
    };
    for (place, step) in batch.steps {
        rows.apply(place, step)?;
    }
    let Rows { tags, records, tokens, .. } = rows.counted()?;
    connection
        .prepare_cached(
            "UPDATE log SET next = ?2, chain = ?3, segment = ?4, stamp = ?5, tags = ?6, records = ?7, tokens = ?8
             WHERE id = ?1",
        )?
        .execute(params![
            id,
            signed(mark.next.0)?,
            mark.chain.0,
            signed(mark.segment.0)?,
            stored_of(batch.stamp),
            json(&tags)?,
            signed(records)?,
            signed(tokens)?
        ])?;
    let mark = stored::encode(VALUE_VERSION, mark).map_err(crate::error::Error::from)?;
    connection
        .prepare_cached("INSERT OR REPLACE INTO state (log, mark, fold) VALUES (?1, ?2, ?3)")?
        .execute(params![id, mark, batch.fold])?;
    Ok(batch.has_more)
}

/// The rows of one log.
struct Rows<'c> {
    connection: &'c Connection,
    log: i64,
    origin: Origin,
    tags: BTreeSet<String>,
    records: u64,
    tokens: u64,
    /// Whether rows were removed, so that the counts are not right any more.
    removed: bool,
}

impl Rows<'_> {
    fn apply(&mut self, place: Position, step: Step) -> Tried<()> {
        let step = match step {
            Step::Record { record, words, len } => return self.insert(place, &record, &words, len),
            Step::Other(step) => step,
        };
        match step {
            ArchiveStep::Record(_) => {}
            ArchiveStep::Settled { position, part, status } => {
                let mut statement = self.connection.prepare_cached(
                    "UPDATE record SET status = ?4 WHERE log = ?1 AND position = ?2 AND part = ?3",
                )?;
                statement.execute(params![self.log, signed(position.0)?, part, status.word()])?;
            }
            ArchiveStep::Tagged(tags) => self.tags = tags,
            ArchiveStep::Erased(positions) => {
                for position in positions {
                    self.remove("log = ?1 AND position = ?2", [self.log, signed(position.0)?])?;
                }
            }
            ArchiveStep::NodesErased(nodes) => {
                for node in nodes {
                    self.remove("log = ?1 AND node = ?2", [self.log, i64::from(node.0)])?;
                }
            }
            ArchiveStep::Inherited => self.remove("log = ?1", [self.log])?,
        }
        Ok(())
    }

    fn insert(&mut self, place: Position, record: &MemoryRecord, words: &str, len: u64) -> Tried<()> {
        let tags = Some(&record.tags).filter(|tags| !tags.is_empty()).map(json).transpose()?;
        let artifacts = Some(&record.artifacts).filter(|all| !all.is_empty()).map(json).transpose()?;
        let mut statement = self.connection.prepare_cached(
            "INSERT OR IGNORE INTO record
             (log, position, part, place, at, len, node, kind, role, tool, status, tags, artifacts)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?;
        let inserted = statement.execute(params![
            self.log,
            signed(record.id.position.0)?,
            record.id.part,
            signed(place.0)?,
            record.at.0,
            signed(len)?,
            record.node.0,
            record.kind.word(),
            record.role.map(role_word),
            record.tool,
            record.status.word(),
            tags,
            artifacts
        ])?;
        if inserted == 0 && self.origin == Origin::Session {
            return Err(Trouble::Wrong(format!("there is a record {} already", record.id)));
        }
        // An archive that has a record twice is none of ours: the first one counts.
        if inserted == 1 {
            let id = self.connection.last_insert_rowid();
            let mut statement =
                self.connection.prepare_cached("INSERT INTO word (rowid, words) VALUES (?1, ?2)")?;
            statement.execute(params![id, words])?;
            self.records = self.records.saturating_add(1);
            self.tokens = self.tokens.saturating_add(len);
        }
        Ok(())
    }

    fn remove(&mut self, condition: &str, values: impl rusqlite::Params + Clone) -> Tried<()> {
        self.removed = true;
        remove_records(self.connection, condition, values)
    }

    fn counted(mut self) -> Tried<Self> {
        if self.removed {
            let mut statement = self
                .connection
                .prepare_cached("SELECT count(*), ifnull(sum(len), 0) FROM record WHERE log = ?1")?;
            let (records, tokens): (i64, i64) =
                statement.query_row([self.log], |row| Ok((row.get(0)?, row.get(1)?)))?;
            (self.records, self.tokens) = (unsigned(records)?, unsigned(tokens)?);
        }
        Ok(self)
    }
}
