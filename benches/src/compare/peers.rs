//! The stores that are compared: one file each, behind one trait.

mod fjall;
mod jsonl;
mod limit;
mod okaywal;
mod raft_engine;
mod redb;
mod sessionlog;
mod sled;
mod sqlite;

use std::path::Path;

use crate::Result;
use crate::data::Message;

/// What holds when an append has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// It survives a loss of power.
    Durable,
    /// It survives the end of the process.
    Written,
    /// Neither, or nobody knows.
    Nothing,
}

/// One way to keep sessions.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) promise: Promise,
    pub(crate) open: fn(&Path) -> Result<Box<dyn Store>>,
}

/// A store of sessions, which are numbered from 0.
pub(crate) trait Store: Send + Sync {
    /// Begins a session. `messages` are all that it is going to be given, for the limit, which encodes ahead; nobody else
    /// may look at them.
    fn begin(&self, session: u64, messages: &[Message]) -> Result<Box<dyn Writer + '_>>;

    /// Every message of a session.
    fn load(&self, session: u64) -> Result<Vec<Message>>;

    /// The last `n` of them, in order.
    fn tail(&self, session: u64, n: usize) -> Result<Vec<Message>>;

    /// Ends the use of the store in order.
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// What a session's owner writes with.
pub(crate) trait Writer: Send {
    /// Appends messages in one commit, as durable as the peer promises.
    fn append(&mut self, messages: &[Message]) -> Result<()>;
}

/// All of them; the limits first.
pub(crate) fn all() -> Vec<&'static Peer> {
    let lists = [
        limit::PEERS,
        sessionlog::PEERS,
        jsonl::PEERS,
        sqlite::PEERS,
        redb::PEERS,
        fjall::PEERS,
        sled::PEERS,
        okaywal::PEERS,
        raft_engine::PEERS,
    ];
    lists.into_iter().flatten().collect()
}

/// The peer of a name.
pub(crate) fn named(name: &str) -> Result<&'static Peer> {
    all()
        .into_iter()
        .find(|peer| peer.name == name)
        .ok_or_else(|| format!("there is no peer `{name}`").into())
}
