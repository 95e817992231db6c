//! Looking into the index: what a query finds, and where records are.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{CachedStatement, Connection, Row, params};
use sessionlog_codec::event::Role;
use sessionlog_codec::ids::{NodeId, Position, SessionId, Timestamp};
use sessionlog_projections::memory::rank::{Corpus, Found, bm25, cosine};
use sessionlog_projections::memory::{
    MemoryFilter, MemoryKind, MemoryQuery, MemoryRecord, MemoryStatus, QueryVector, RecordId,
};
use sessionlog_projections::role_word;

use super::super::MemoryReader;
use super::super::load::Located;
use super::super::scan::with_tags;
use super::super::source::{Origin, Source};
use super::super::vectors::components;
use super::store::{LogRow, Logs, encoded, parsed, signed, text, text_or_none, unsigned};
use super::{Tried, Trouble};

/// What is read of a record: what it is ranked by, and what filters ask for.
const COLUMNS: &str = "id, log, position, part, at, len, node, kind, role, tool, status, tags";

/// The records that a query's filter takes and that have one of its words, or a vector of its model; without both, all that the
/// filter takes.
pub(super) fn found(connection: &Connection, logs: &Logs, query: &MemoryQuery) -> Tried<Vec<Found>> {
    let mut candidates: HashMap<i64, Found> = HashMap::new();
    let terms = query.terms();
    for term in terms.iter().flatten() {
        add_holders(connection, logs, query, term, &mut candidates)?;
    }
    if let Some(vector) = &query.vector {
        add_near(connection, logs, query, vector, &mut candidates)?;
    }
    if terms.is_none() && query.vector.is_none() {
        let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM record"))?;
        let mut rows = statement.query([])?;
        let mut count = 0_u64;
        while let Some(row) = rows.next()? {
            count = count.saturating_add(1);
            let brief = Brief::of(row, logs)?;
            if brief.is_taken(&query.filter)? {
                candidates.insert(brief.id, brief.found());
            }
        }
        let expected = corpus_of(logs).records;
        if count != expected {
            return Err(Trouble::Wrong(format!("{count} records, expected {expected}")));
        }
    }
    Ok(candidates.into_values().collect())
}

fn corpus_of(logs: &Logs) -> Corpus {
    Corpus {
        records: logs.values().map(|log| log.records).fold(0, u64::saturating_add),
        tokens: logs.values().map(|log| log.tokens).fold(0, u64::saturating_add),
    }
}

/// Adds the records that have a word, with what that counts.
fn add_holders(
    connection: &Connection,
    logs: &Logs,
    query: &MemoryQuery,
    term: &str,
    candidates: &mut HashMap<i64, Found>,
) -> Tried<()> {
    let corpus = corpus_of(logs);
    let mut word = String::new();
    encoded(term, &mut word);
    // Its places in records, one after the other: how often it is in each.
    let mut frequencies: Vec<(i64, u64)> = Vec::new();
    let mut statement = connection.prepare_cached("SELECT doc FROM term WHERE term = ?1")?;
    let mut places = statement.query([&word])?;
    while let Some(place) = places.next()? {
        let id: i64 = place.get(0)?;
        match frequencies.last_mut() {
            Some((last, frequency)) if *last == id => *frequency = frequency.saturating_add(1),
            _ => frequencies.push((id, 1)),
        }
    }
    let holders = u64::try_from(frequencies.len()).unwrap_or(u64::MAX);
    if holders > corpus.records {
        return Err(Trouble::Wrong(format!("{holders} records of {} have a word", corpus.records)));
    }
    let mut statement = record_by("id = ?1", connection)?;
    for (id, frequency) in frequencies {
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else {
            return Err(Trouble::Wrong(format!("a word is in record {id}, which is not there")));
        };
        let brief = Brief::of(row, logs)?;
        if brief.is_taken(&query.filter)? {
            let score = bm25(frequency, brief.len, holders, corpus);
            let found = candidates.entry(id).or_insert_with(|| brief.found());
            found.text = Some(found.text.map_or(score, |sum| sum + score));
        }
    }
    Ok(())
}

/// Adds the records that have a vector of the same model and length, with how near it is. All of them are compared: nearest
/// neighbours that a filter has to be met by are found by no graph that does not know the filter.
fn add_near(
    connection: &Connection,
    logs: &Logs,
    query: &MemoryQuery,
    asked: &QueryVector,
    candidates: &mut HashMap<i64, Found>,
) -> Tried<()> {
    let ids: BTreeMap<SessionId, i64> = logs.values().map(|log| (log.session, log.id)).collect();
    let bytes = asked.components.len().saturating_mul(size_of::<f32>());
    let mut statement = connection.prepare_cached(
        "SELECT session, position, part, components FROM vector WHERE model = ?1 AND length(components) = ?2",
    )?;
    let mut by_place = record_by("log = ?1 AND position = ?2 AND part = ?3", connection)?;
    let mut rows = statement.query(params![asked.model, signed(crate::num::to_u64(bytes))?])?;
    while let Some(row) = rows.next()? {
        let Some(log) = ids.get(&SessionId(row.get(0)?)) else { continue };
        let mut records = by_place.query(params![log, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?])?;
        let Some(record) = records.next()? else { continue };
        let brief = Brief::of(record, logs)?;
        if !brief.is_taken(&query.filter)? {
            continue;
        }
        let stored = row.get_ref(3)?.as_blob().map_err(|error| Trouble::Wrong(error.to_string()))?;
        let near = components(stored).and_then(|stored| cosine(&asked.components, &stored));
        if let Some(near) = near {
            candidates.entry(brief.id).or_insert_with(|| brief.found()).vector = Some(near);
        }
    }
    Ok(())
}

fn record_by<'c>(condition: &str, connection: &'c Connection) -> Tried<CachedStatement<'c>> {
    Ok(connection.prepare_cached(&format!("SELECT {COLUMNS} FROM record WHERE {condition}"))?)
}

/// A row of a record, as far as it is read already.
struct Brief<'r> {
    row: &'r Row<'r>,
    log: &'r LogRow,
    id: i64,
    record: RecordId,
    at: Timestamp,
    len: u64,
}

impl<'r> Brief<'r> {
    fn of(row: &'r Row<'r>, logs: &'r Logs) -> Tried<Self> {
        let log = row.get(1)?;
        let log =
            logs.get(&log).ok_or_else(|| Trouble::Wrong(format!("a record of log {log}, which is none")))?;
        let (position, part) = (Position(unsigned(row.get(2)?)?), row.get(3)?);
        Ok(Self {
            row,
            log,
            id: row.get(0)?,
            record: RecordId { session: log.session, position, part },
            at: Timestamp(row.get(4)?),
            len: unsigned(row.get(5)?)?,
        })
    }

    fn found(&self) -> Found {
        Found { id: self.record, at: self.at, text: None, vector: None }
    }

    fn is_taken(&self, filter: &MemoryFilter) -> Tried<bool> {
        if *filter == MemoryFilter::default() {
            return Ok(true);
        }
        Ok(filter.takes(&self.whole()?))
    }

    /// The record without its text and its artifacts.
    fn whole(&self) -> Tried<MemoryRecord> {
        let kind = text(self.row, 7)?;
        let status = text(self.row, 10)?;
        let odd = |what: &str| Trouble::Wrong(format!("a record of {what}, which is none"));
        let tags = text_or_none(self.row, 11)?.map(parsed).transpose()?.unwrap_or_default();
        let mut record = MemoryRecord {
            id: self.record,
            kind: MemoryKind::of_word(kind).ok_or_else(|| odd(kind))?,
            node: NodeId(self.row.get(6)?),
            at: self.at,
            role: text_or_none(self.row, 8)?
                .map(|word| role_of(word).ok_or_else(|| odd(word)))
                .transpose()?,
            tool: self.row.get(9)?,
            status: MemoryStatus::of_word(status).ok_or_else(|| odd(status))?,
            tags,
            artifacts: Vec::new(),
            text: String::new(),
        };
        with_tags(&mut record, &self.log.tags);
        Ok(record)
    }
}

fn role_of(word: &str) -> Option<Role> {
    [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool]
        .into_iter()
        .find(|role| role_word(*role) == word)
}

/// Where records are.
pub(super) fn locate(
    connection: &Connection,
    logs: &Logs,
    memory: &MemoryReader,
    ids: &[RecordId],
) -> Tried<Vec<Located>> {
    let one = |id: &RecordId| {
        locate_if_there(connection, logs, memory, *id)?
            .ok_or_else(|| Trouble::Wrong(format!("record {id} is not there any more")))
    };
    ids.iter().map(one).collect()
}

/// Where a record is; `None` if there is none of that name.
pub(super) fn locate_if_there(
    connection: &Connection,
    logs: &Logs,
    memory: &MemoryReader,
    id: RecordId,
) -> Tried<Option<Located>> {
    let Some(log) = logs.values().find(|log| log.session == id.session) else { return Ok(None) };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS}, place, artifacts FROM record WHERE log = ?1 AND position = ?2 AND part = ?3"
    ))?;
    let mut rows = statement.query(params![log.id, signed(id.position.0)?, id.part])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let brief = Brief::of(row, logs)?;
    let own: Option<Vec<String>> = text_or_none(row, 11)?.map(parsed).transpose()?;
    let artifacts = text_or_none(row, 13)?.map(parsed).transpose()?.unwrap_or_default();
    let record = MemoryRecord { artifacts, ..brief.whole()? };
    let is_bare = Located::is_bare(record.kind, &own.unwrap_or_default());
    let source = Source::of(&memory.home, &memory.workspace, log.session, log.origin);
    let place = Position(unsigned(row.get(12)?)?);
    if log.origin == Origin::Session && place != id.position {
        return Err(Trouble::Wrong(format!("record {id} is at {place}")));
    }
    Ok(Some(Located { record, is_bare, source, place }))
}
