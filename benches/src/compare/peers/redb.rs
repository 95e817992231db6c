//! redb: a copy-on-write B-tree.

use std::path::Path;

use ::redb::{Database, ReadableDatabase, TableDefinition};

use super::{Peer, Promise, Store, Writer};
use crate::Result;
use crate::data::{self, Message};

pub(super) const PEERS: &[Peer] = &[Peer { name: "redb", promise: Promise::Durable, open: Redb::open }];

const MESSAGES: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("messages");

struct Redb {
    database: Database,
}

impl Redb {
    fn open(dir: &Path) -> Result<Box<dyn Store>> {
        std::fs::create_dir_all(dir)?;
        let database = Database::create(dir.join("sessions.redb"))?;
        let transaction = database.begin_write()?;
        transaction.open_table(MESSAGES)?;
        transaction.commit()?;
        Ok(Box::new(Self { database }))
    }
}

impl Store for Redb {
    fn begin(&self, session: u64, _: &[Message]) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(RedbWriter { store: self, session, number: 0 }))
    }

    fn load(&self, session: u64) -> Result<Vec<Message>> {
        let table = self.database.begin_read()?.open_table(MESSAGES)?;
        let rows = table.range((session, 0)..=(session, u64::MAX))?;
        rows.map(|row| data::decode(row?.1.value())).collect()
    }

    fn tail(&self, session: u64, n: usize) -> Result<Vec<Message>> {
        let table = self.database.begin_read()?.open_table(MESSAGES)?;
        let rows = table.range((session, 0)..=(session, u64::MAX))?.rev().take(n);
        let mut messages = rows.map(|row| data::decode(row?.1.value())).collect::<Result<Vec<_>>>()?;
        messages.reverse();
        Ok(messages)
    }
}

struct RedbWriter<'a> {
    store: &'a Redb,
    session: u64,
    number: u64,
}

impl Writer for RedbWriter<'_> {
    fn append(&mut self, messages: &[Message]) -> Result<()> {
        let transaction = self.store.database.begin_write()?;
        {
            let mut table = transaction.open_table(MESSAGES)?;
            for message in messages {
                table.insert((self.session, self.number), data::encode(message)?.as_slice())?;
                self.number += 1;
            }
        }
        Ok(transaction.commit()?)
    }
}
