//! okaywal: a write-ahead log with group commits. It is no store: what is read are the entries that it replays when it is
//! opened, all of them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::okaywal::{Configuration, Entry, EntryId, LogManager, SegmentReader, WriteAheadLog};

use super::{Peer, Promise, Store, Writer};
use crate::Result;
use crate::data::{self, Message};

pub(super) const PEERS: &[Peer] = &[Peer { name: "okaywal", promise: Promise::Durable, open: OkayWal::open }];

type Replayed = BTreeMap<u64, Vec<Vec<u8>>>;

#[derive(Debug)]
struct Replay(Arc<Mutex<Replayed>>);

impl LogManager for Replay {
    fn recover(&mut self, entry: &mut Entry<'_>) -> io::Result<()> {
        let mut replayed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for mut chunk in entry.read_all_chunks()?.into_iter().flatten() {
            let bytes = chunk.split_off(8);
            let session = chunk.try_into().map_or(0, u64::from_le_bytes);
            replayed.entry(session).or_default().push(bytes);
        }
        Ok(())
    }

    fn checkpoint_to(&mut self, _: EntryId, _: &mut SegmentReader, _: &WriteAheadLog) -> io::Result<()> {
        Err(io::Error::other("this log is never checkpointed"))
    }
}

struct OkayWal {
    log: WriteAheadLog,
    replayed: Arc<Mutex<Replayed>>,
}

impl OkayWal {
    fn open(dir: &Path) -> Result<Box<dyn Store>> {
        std::fs::create_dir_all(dir)?;
        let replayed = Arc::<Mutex<Replayed>>::default();
        let log = Configuration::default_for(dir)
            .preallocate_bytes(32 << 20)
            .checkpoint_after_bytes(u64::MAX)
            .buffer_bytes(64 << 10)
            .open(Replay(Arc::clone(&replayed)))?;
        Ok(Box::new(Self { log, replayed }))
    }

    fn replayed(&self) -> MutexGuard<'_, Replayed> {
        self.replayed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for OkayWal {
    fn begin(&self, session: u64, _: &[Message]) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(OkayWalWriter { log: &self.log, session }))
    }

    fn load(&self, session: u64) -> Result<Vec<Message>> {
        self.tail(session, usize::MAX)
    }

    fn tail(&self, session: u64, n: usize) -> Result<Vec<Message>> {
        let replayed = self.replayed();
        let entries = replayed.get(&session).map(Vec::as_slice).unwrap_or_default();
        entries[entries.len().saturating_sub(n)..].iter().map(|bytes| data::decode(bytes)).collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.log.shutdown()?)
    }
}

struct OkayWalWriter<'a> {
    log: &'a WriteAheadLog,
    session: u64,
}

impl Writer for OkayWalWriter<'_> {
    fn append(&mut self, messages: &[Message]) -> Result<()> {
        // Before the entry is begun, which holds the log's lock.
        let mut chunks = Vec::with_capacity(messages.len());
        for message in messages {
            let mut chunk = self.session.to_le_bytes().to_vec();
            chunk.extend(data::encode(message)?);
            chunks.push(chunk);
        }
        let mut entry = self.log.begin_entry()?;
        for chunk in &chunks {
            entry.write_chunk(chunk)?;
        }
        entry.commit()?;
        Ok(())
    }
}
