//! The vectors of a workspace's log, in the index.

use std::ops::ControlFlow;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use sessionlog_codec::event::VectorAttached;
use sessionlog_codec::registry::kind;
use sessionlog_codec::stored;
use sessionlog_projections::memory::RecordId;

use super::super::{MemoryReader, vectors};
use super::store::{VALUE_VERSION, signed};
use super::{Tried, Trouble};
use crate::error::ErrorKind;
use crate::log::{LogMark, LogReader, Since};
use crate::session::logged;
use crate::store::shared_log::SharedLog;

/// How many bytes of vectors are in memory at a time.
const BATCH: usize = 16 << 20;

/// Takes in the vectors that were attached since.
pub(super) fn update(connection: &mut Connection, memory: &MemoryReader) -> Tried<()> {
    let log = SharedLog::of_workspace(&memory.home, &memory.clock, &memory.workspace).reader();
    loop {
        let known = cursor(connection)?;
        let mark: Option<LogMark> =
            known.as_ref().and_then(|stored| stored::decode(VALUE_VERSION, stored).ok());
        if let Some(mark) = &mark
            && log.is_at(mark).unwrap_or(false)
        {
            return Ok(());
        }
        let Some(read) = read(&log, mark.as_ref())? else { return Ok(()) };
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if cursor(&transaction)? != known {
            // Somebody else took them in meanwhile: what is left is looked at again.
            continue;
        }
        if read.is_anew {
            transaction.execute("DELETE FROM vector", [])?;
        }
        for (id, vector) in &read.vectors {
            let mut statement = transaction.prepare_cached(
                "INSERT OR REPLACE INTO vector (session, position, part, model, components)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            let place = signed(id.position.0)?;
            statement.execute(params![id.session.0, place, id.part, vector.model, vector.components.0])?;
        }
        if let Some(mark) = &read.reached {
            let mark = stored::encode(VALUE_VERSION, mark).map_err(crate::error::Error::from)?;
            transaction.execute("INSERT OR REPLACE INTO meta VALUES ('vectors', ?1)", [mark])?;
        }
        transaction.commit()?;
        if !read.has_more {
            return Ok(());
        }
    }
}

struct New {
    is_anew: bool,
    vectors: Vec<(RecordId, VectorAttached)>,
    reached: Option<LogMark>,
    has_more: bool,
}

/// The vectors behind a mark, or all where the log does not go on from there; `None`: there is no log.
fn read(log: &LogReader, mark: Option<&LogMark>) -> Tried<Option<New>> {
    let (mut vectors, mut len, mut has_more) = (Vec::new(), 0_usize, false);
    let since = log.read_since(mark, &mut |records| {
        for record in records.iter().filter(|record| record.envelope.kind == kind::VectorAttached) {
            if let Ok(event) = logged(record)
                && let Some((id, vector)) = vectors::attached(event.event)
            {
                len = len.saturating_add(vector.components.0.len());
                vectors.push((id, vector));
            }
        }
        has_more = len >= BATCH;
        if has_more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match since {
        Ok(Since::Went(reached)) => Ok(Some(New { is_anew: mark.is_none(), vectors, reached, has_more })),
        Ok(Since::Elsewhere) if mark.is_some() => read(log, None),
        Ok(Since::Elsewhere) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Trouble::from(error)),
    }
}

fn cursor(connection: &Connection) -> Tried<Option<Vec<u8>>> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE name = 'vectors'")?;
    Ok(statement.query_row([], |row| row.get(0)).optional()?)
}
