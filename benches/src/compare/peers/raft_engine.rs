//! raft-engine: TiKV's log of many logs, with group commits. It compresses with LZ4 from 8 KiB on, by default.

use std::path::Path;

use ::raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};
use protobuf::well_known_types::Any;

use super::{Peer, Promise, Store, Writer};
use crate::Result;
use crate::data::{self, Message};

pub(super) const PEERS: &[Peer] =
    &[Peer { name: "raft-engine", promise: Promise::Durable, open: RaftEngine::open }];

/// An entry is its number and the message's bytes, in a type that protobuf brings along.
#[derive(Clone)]
struct Numbered;

impl MessageExt for Numbered {
    type Entry = Any;

    fn index(entry: &Any) -> u64 {
        entry.type_url.parse().unwrap_or(0)
    }
}

struct RaftEngine {
    engine: Engine,
}

impl RaftEngine {
    fn open(dir: &Path) -> Result<Box<dyn Store>> {
        std::fs::create_dir_all(dir)?;
        let config = Config {
            dir: dir.to_str().ok_or("the path is not UTF-8")?.to_owned(),
            // A user's store grows: nothing is purged.
            purge_threshold: ReadableSize::gb(100),
            ..Config::default()
        };
        Ok(Box::new(Self { engine: Engine::open(config)? }))
    }

    /// Where the entries of a session begin and end; raft's groups and entries count from 1.
    fn range(&self, session: u64) -> (u64, u64) {
        let group = session + 1;
        (self.engine.first_index(group).unwrap_or(1), self.engine.last_index(group).unwrap_or(0) + 1)
    }

    fn fetch(&self, session: u64, from: u64, to: u64) -> Result<Vec<Message>> {
        let mut messages = Vec::new();
        // In steps, so that not all is held twice.
        for from in (from..to).step_by(256) {
            let mut entries = Vec::new();
            self.engine.fetch_entries_to::<Numbered>(
                session + 1,
                from,
                to.min(from + 256),
                None,
                &mut entries,
            )?;
            for entry in entries {
                messages.push(data::decode(&entry.value)?);
            }
        }
        Ok(messages)
    }
}

impl Store for RaftEngine {
    fn begin(&self, session: u64, _: &[Message]) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(RaftWriter { store: self, group: session + 1, next: 1, batch: LogBatch::default() }))
    }

    fn load(&self, session: u64) -> Result<Vec<Message>> {
        let (first, end) = self.range(session);
        self.fetch(session, first, end)
    }

    fn tail(&self, session: u64, n: usize) -> Result<Vec<Message>> {
        let (first, end) = self.range(session);
        self.fetch(session, end.saturating_sub(u64::try_from(n)?).max(first), end)
    }
}

struct RaftWriter<'a> {
    store: &'a RaftEngine,
    group: u64,
    next: u64,
    batch: LogBatch,
}

impl Writer for RaftWriter<'_> {
    fn append(&mut self, messages: &[Message]) -> Result<()> {
        let mut entries = Vec::with_capacity(messages.len());
        for message in messages {
            let mut entry = Any::new();
            entry.type_url = self.next.to_string();
            entry.value = data::encode(message)?;
            entries.push(entry);
            self.next += 1;
        }
        self.batch.add_entries::<Numbered>(self.group, &entries)?;
        self.store.engine.write(&mut self.batch, true)?;
        Ok(())
    }
}
