//! sled 0.34. Its `flush` writes back and does not sync: a loss of power may take what it acknowledged.

use std::path::Path;

use super::{Peer, Promise, Store, Writer};
use crate::Result;
use crate::data::{self, Message};

pub(super) const PEERS: &[Peer] = &[Peer { name: "sled", promise: Promise::Nothing, open: Sled::open }];

struct Sled {
    database: ::sled::Db,
}

impl Sled {
    fn open(dir: &Path) -> Result<Box<dyn Store>> {
        Ok(Box::new(Self { database: ::sled::open(dir)? }))
    }
}

impl Store for Sled {
    fn begin(&self, session: u64, _: &[Message]) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(SledWriter { store: self, session, number: 0 }))
    }

    fn load(&self, session: u64) -> Result<Vec<Message>> {
        self.database.scan_prefix(session.to_be_bytes()).map(|row| data::decode(&row?.1)).collect()
    }

    fn tail(&self, session: u64, n: usize) -> Result<Vec<Message>> {
        let rows = self.database.scan_prefix(session.to_be_bytes()).rev().take(n);
        let mut messages = rows.map(|row| data::decode(&row?.1)).collect::<Result<Vec<_>>>()?;
        messages.reverse();
        Ok(messages)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.flush()?;
        Ok(())
    }
}

struct SledWriter<'a> {
    store: &'a Sled,
    session: u64,
    number: u64,
}

impl Writer for SledWriter<'_> {
    fn append(&mut self, messages: &[Message]) -> Result<()> {
        let mut batch = ::sled::Batch::default();
        for message in messages {
            let key = (u128::from(self.session) << 64 | u128::from(self.number)).to_be_bytes();
            batch.insert(&key, data::encode(message)?);
            self.number += 1;
        }
        self.store.database.apply_batch(batch)?;
        self.store.database.flush()?;
        Ok(())
    }
}
