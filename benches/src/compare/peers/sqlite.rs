//! SQLite in WAL mode, a row of JSON for each message, a connection for each writer behind one lock: SQLite takes one
//! writer at a time, and its own waiting is slower than ours.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, params};

use super::{Peer, Promise, Store, Writer};
use crate::Result;
use crate::data::Message;

pub(super) const PEERS: &[Peer] = &[
    Peer { name: "sqlite-full", promise: Promise::Durable, open: |dir| Sqlite::open(dir, "FULL") },
    // A loss of power may take the last commits.
    Peer { name: "sqlite-normal", promise: Promise::Written, open: |dir| Sqlite::open(dir, "NORMAL") },
];

struct Sqlite {
    connection: Mutex<Connection>,
}

impl Sqlite {
    fn open(dir: &Path, synchronous: &str) -> Result<Box<dyn Store>> {
        std::fs::create_dir_all(dir)?;
        let connection = Connection::open(dir.join("sessions.db"))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS messages (
                 session INTEGER, number INTEGER, body TEXT, PRIMARY KEY (session, number)) WITHOUT ROWID",
        )?;
        Ok(Box::new(Self { connection: Mutex::new(connection) }))
    }

    fn select(&self, sql: &str, session: u64, n: i64) -> Result<Vec<Message>> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![i64::try_from(session)?, n])?;
        let mut messages = Vec::new();
        while let Some(row) = rows.next()? {
            messages.push(sonic_rs::from_str(row.get_ref(0)?.as_str()?)?);
        }
        Ok(messages)
    }
}

impl Store for Sqlite {
    fn begin(&self, session: u64, _: &[Message]) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(SqliteWriter { store: self, session: i64::try_from(session)?, number: 0 }))
    }

    fn load(&self, session: u64) -> Result<Vec<Message>> {
        self.select(
            "SELECT body FROM messages WHERE session = ?1 ORDER BY number LIMIT ?2",
            session,
            i64::MAX,
        )
    }

    fn tail(&self, session: u64, n: usize) -> Result<Vec<Message>> {
        let sql = "SELECT body FROM messages WHERE session = ?1 ORDER BY number DESC LIMIT ?2";
        let mut messages = self.select(sql, session, i64::try_from(n)?)?;
        messages.reverse();
        Ok(messages)
    }
}

struct SqliteWriter<'a> {
    store: &'a Sqlite,
    session: i64,
    number: i64,
}

impl Writer for SqliteWriter<'_> {
    fn append(&mut self, messages: &[Message]) -> Result<()> {
        let bodies =
            messages.iter().map(serde_json::to_string).collect::<std::result::Result<Vec<_>, _>>()?;
        let mut connection = self.store.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached("INSERT INTO messages VALUES (?1, ?2, ?3)")?;
            for body in bodies {
                insert.execute(params![self.session, self.number, body])?;
                self.number += 1;
            }
        }
        Ok(transaction.commit()?)
    }
}
