//! fjall: a log-structured merge tree.

use std::path::Path;

use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Peer, Promise, Store, Writer};
use crate::Result;
use crate::data::{self, Message};

pub(super) const PEERS: &[Peer] = &[Peer { name: "fjall", promise: Promise::Durable, open: Fjall::open }];

struct Fjall {
    database: Database,
    messages: Keyspace,
}

fn key(session: u64, number: u64) -> [u8; 16] {
    (u128::from(session) << 64 | u128::from(number)).to_be_bytes()
}

impl Fjall {
    fn open(dir: &Path) -> Result<Box<dyn Store>> {
        let database = Database::builder(dir).open()?;
        let messages = database.keyspace("messages", KeyspaceCreateOptions::default)?;
        Ok(Box::new(Self { database, messages }))
    }
}

impl Store for Fjall {
    fn begin(&self, session: u64, _: &[Message]) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(FjallWriter { store: self, session, number: 0 }))
    }

    fn load(&self, session: u64) -> Result<Vec<Message>> {
        self.messages.prefix(session.to_be_bytes()).map(|row| data::decode(&row.value()?)).collect()
    }

    fn tail(&self, session: u64, n: usize) -> Result<Vec<Message>> {
        let rows = self.messages.prefix(session.to_be_bytes()).rev().take(n);
        let mut messages = rows.map(|row| data::decode(&row.value()?)).collect::<Result<Vec<_>>>()?;
        messages.reverse();
        Ok(messages)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}

struct FjallWriter<'a> {
    store: &'a Fjall,
    session: u64,
    number: u64,
}

impl Writer for FjallWriter<'_> {
    fn append(&mut self, messages: &[Message]) -> Result<()> {
        let mut batch = self.store.database.batch();
        for message in messages {
            batch.insert(&self.store.messages, key(self.session, self.number), data::encode(message)?);
            self.number += 1;
        }
        batch.commit()?;
        Ok(self.store.database.persist(PersistMode::SyncData)?)
    }
}
