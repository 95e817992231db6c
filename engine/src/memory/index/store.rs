//! The tables of the index.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use sessionlog_codec::ids::{Digest, Position, SessionId};

use super::super::source::{Origin, Source};
use super::fresh::of_stored;
use super::{Tried, Trouble};
use crate::log::{LogMark, LogStamp};

/// The version of the tables, of the words that texts are cut into, and of the records that events become. 1: the
/// first; 2: stamps of both times and both files, of files that end with their last frame.
const VERSION: i64 = 2;
/// `slgm`: marks the file as an index of ours.
const APPLICATION: i64 = 0x736c_676d;
/// The version of what is stored of a mark and of a fold.
pub(super) const VALUE_VERSION: u16 = 1;

const TABLES: &str = "
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE log (
    id INTEGER PRIMARY KEY, session BLOB NOT NULL, origin INTEGER NOT NULL, next INTEGER NOT NULL, chain BLOB NOT NULL,
    segment INTEGER NOT NULL, stamp BLOB, tags TEXT NOT NULL, records INTEGER NOT NULL, tokens INTEGER NOT NULL,
    UNIQUE (session, origin));
CREATE TABLE state (log INTEGER PRIMARY KEY, mark BLOB NOT NULL, fold BLOB NOT NULL);
CREATE TABLE record (
    id INTEGER PRIMARY KEY, log INTEGER NOT NULL, position INTEGER NOT NULL, part INTEGER NOT NULL, place INTEGER NOT NULL,
    at INTEGER NOT NULL, len INTEGER NOT NULL, node INTEGER NOT NULL, kind TEXT NOT NULL, role TEXT, tool TEXT,
    status TEXT NOT NULL, tags TEXT, artifacts TEXT);
CREATE UNIQUE INDEX record_place ON record (log, position, part);
CREATE VIRTUAL TABLE word USING fts5 (words, content = '', contentless_delete = 1, tokenize = 'ascii');
CREATE VIRTUAL TABLE term USING fts5vocab (word, 'instance');
CREATE TABLE vector (
    id INTEGER PRIMARY KEY, session BLOB NOT NULL, position INTEGER NOT NULL, part INTEGER NOT NULL, model TEXT NOT NULL,
    components BLOB NOT NULL, UNIQUE (session, position, part, model));
";

/// What is known of one log.
#[derive(Clone, Debug)]
pub(super) struct LogRow {
    pub(super) id: i64,
    pub(super) session: SessionId,
    pub(super) origin: Origin,
    pub(super) next: Position,
    pub(super) chain: Digest,
    /// The name of the segment that was the last one.
    pub(super) segment: Position,
    /// What the file system said of it and of its directory, if that can be believed.
    pub(super) stamp: Option<LogStamp>,
    pub(super) tags: BTreeSet<String>,
    pub(super) records: u64,
    pub(super) tokens: u64,
}

/// The logs, by their rows' numbers.
pub(super) type Logs = BTreeMap<i64, LogRow>;

/// Sees to it that the tables are there, for these tools.
pub(super) fn prepare(connection: &mut Connection, archive_tools: &BTreeSet<String>) -> Tried<()> {
    let tools = serde_json::to_string(archive_tools).unwrap_or_default();
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version == 0 {
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have been faster.
        let version: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version == 0 {
            let tables: i64 =
                transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            if tables > 0 {
                return Err(Trouble::Wrong("it is a database of somebody else".to_owned()));
            }
            transaction.execute_batch(TABLES)?;
            transaction.execute("INSERT INTO meta VALUES ('tools', ?1)", [&tools])?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            transaction.commit()?;
        }
    }
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let application: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if (version, application) != (VERSION, APPLICATION) {
        return Err(Trouble::Wrong(format!("it is of version {version}, expected {VERSION}")));
    }
    let made_for: String =
        connection.query_row("SELECT value FROM meta WHERE name = 'tools'", [], |row| row.get(0))?;
    if made_for != tools {
        return Err(Trouble::Wrong(format!("it was made for the tools {made_for}, not {tools}")));
    }
    Ok(())
}

/// A number that changes whenever another connection changes the database. In a transaction, it is of what that sees from
/// here on.
pub(super) fn data_version(connection: &Connection) -> Tried<i64> {
    // A transaction sees what there is at its first read.
    connection.prepare_cached("SELECT count(*) FROM meta")?.query_row([], |_| Ok(()))?;
    Ok(connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

/// Every log that there are rows of.
pub(super) fn logs(connection: &Connection) -> Tried<Logs> {
    let mut statement = connection.prepare_cached(
        "SELECT id, session, origin, next, chain, segment, stamp, tags, records, tokens FROM log",
    )?;
    let mut rows = statement.query([])?;
    let mut logs = Logs::new();
    while let Some(row) = rows.next()? {
        let tags: &str = text(row, 7)?;
        let tags = if tags == "[]" { BTreeSet::new() } else { parsed(tags)? };
        let log = LogRow {
            id: row.get(0)?,
            session: SessionId(row.get(1)?),
            origin: origin_of(row.get(2)?)?,
            next: Position(unsigned(row.get(3)?)?),
            chain: Digest(row.get(4)?),
            segment: Position(unsigned(row.get(5)?)?),
            stamp: of_stored(row.get_ref(6)?.as_blob_or_null().unwrap_or_default()),
            tags,
            records: unsigned(row.get(8)?)?,
            tokens: unsigned(row.get(9)?)?,
        };
        logs.insert(log.id, log);
    }
    Ok(logs)
}

/// The row of one log.
pub(super) fn cursor_of(connection: &Connection, source: &Source) -> Tried<Option<(i64, Position, Digest)>> {
    let mut statement =
        connection.prepare_cached("SELECT id, next, chain FROM log WHERE session = ?1 AND origin = ?2")?;
    let found = statement
        .query_row(params![source.session.0, origin_no(source.origin)], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get(2)?))
        })
        .optional()?;
    found.map(|(id, next, chain)| Ok((id, Position(unsigned(next)?), Digest(chain)))).transpose()
}

/// Where a log was read to, and the fold's state there; `None` if that is odd.
pub(super) fn state_of(connection: &Connection, log: i64) -> Tried<Option<(LogMark, Vec<u8>)>> {
    let mut statement = connection.prepare_cached("SELECT mark, fold FROM state WHERE log = ?1")?;
    let found: Option<(Vec<u8>, Vec<u8>)> =
        statement.query_row([log], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(found
        .and_then(|(mark, fold)| Some((sessionlog_codec::stored::decode(VALUE_VERSION, &mark).ok()?, fold))))
}

/// Removes the rows of records that a condition holds for, of one log.
pub(super) fn remove_records(
    connection: &Connection,
    condition: &str,
    values: impl rusqlite::Params + Clone,
) -> Tried<()> {
    let words = format!("DELETE FROM word WHERE rowid IN (SELECT id FROM record WHERE {condition})");
    connection.prepare_cached(&words)?.execute(values.clone())?;
    connection.prepare_cached(&format!("DELETE FROM record WHERE {condition}"))?.execute(values)?;
    Ok(())
}

/// Removes all rows of a log.
pub(super) fn remove_log(connection: &Connection, log: i64) -> Tried<()> {
    remove_records(connection, "log = ?1", [log])?;
    connection.execute("DELETE FROM state WHERE log = ?1", [log])?;
    connection.execute("DELETE FROM log WHERE id = ?1", [log])?;
    Ok(())
}

pub(super) fn origin_no(origin: Origin) -> i64 {
    match origin {
        Origin::Session => 0,
        Origin::Archive => 1,
    }
}

fn origin_of(number: i64) -> Tried<Origin> {
    match number {
        0 => Ok(Origin::Session),
        1 => Ok(Origin::Archive),
        other => Err(Trouble::Wrong(format!("a log of kind {other}"))),
    }
}

/// A number as SQLite has them.
pub(super) fn signed(number: u64) -> Tried<i64> {
    i64::try_from(number).map_err(|_| Trouble::Away(format!("{number} is too large for an index")))
}

pub(super) fn unsigned(number: i64) -> Tried<u64> {
    u64::try_from(number).map_err(|_| Trouble::Wrong(format!("a number is {number}")))
}

pub(super) fn parsed<T: serde::de::DeserializeOwned>(json: &str) -> Tried<T> {
    serde_json::from_str(json).map_err(|error| Trouble::Wrong(error.to_string()))
}

pub(super) fn json(value: &impl serde::Serialize) -> Tried<String> {
    serde_json::to_string(value).map_err(|error| Trouble::Away(error.to_string()))
}

/// A column's text, without a copy of it.
pub(super) fn text<'r>(row: &'r rusqlite::Row<'_>, column: usize) -> Tried<&'r str> {
    row.get_ref(column)?.as_str().map_err(|error| Trouble::Wrong(error.to_string()))
}

/// The same of one that may be missing.
pub(super) fn text_or_none<'r>(row: &'r rusqlite::Row<'_>, column: usize) -> Tried<Option<&'r str>> {
    row.get_ref(column)?.as_str_or_null().map_err(|error| Trouble::Wrong(error.to_string()))
}

/// A word as the table of words has it: without a character that SQLite takes for the end of one.
pub(super) fn encoded(word: &str, out: &mut String) {
    const PRIVATE_USE: u32 = 0xE000;
    out.extend(word.chars().map(|c| match c.is_ascii() && !c.is_ascii_alphanumeric() {
        true => char::from_u32(PRIVATE_USE.saturating_add(u32::from(c))).unwrap_or(c),
        false => c,
    }));
}
