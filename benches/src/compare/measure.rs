//! One measurement, in a process of its own: it prints one line of JSON.

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::data::{self, Message, TURN};
use crate::peers::{self, Peer, Promise, Store};
use crate::{Result, system};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Durable, one message per commit.
    Append,
    /// Durable, four messages per commit.
    Turn,
    /// One message per commit, as durable as a write is.
    Buffered,
    /// Durable, one message per commit, so many sessions at once, a thread each.
    Sessions(usize),
    /// Every message of a long session: the store is opened, read and decoded.
    Full(Cache),
    /// The last 50 messages of the same session.
    Last50(Cache),
}

/// Where the store's files are when they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// On disk.
    Cold,
    /// In memory.
    Warm,
}

impl Work {
    pub(crate) const ALL: [Self; 9] = [
        Self::Append,
        Self::Turn,
        Self::Buffered,
        Self::Sessions(8),
        Self::Sessions(64),
        Self::Full(Cache::Cold),
        Self::Full(Cache::Warm),
        Self::Last50(Cache::Cold),
        Self::Last50(Cache::Warm),
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Append => "append".to_owned(),
            Self::Turn => "turn".to_owned(),
            Self::Buffered => "buffered".to_owned(),
            Self::Sessions(count) => format!("sessions-{count}"),
            Self::Full(cache) => format!("full-{cache:?}").to_lowercase(),
            Self::Last50(cache) => format!("last50-{cache:?}").to_lowercase(),
        }
    }

    /// What is read is written before, outside of the measurement.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Self::Full(_) | Self::Last50(_))
    }

    /// Whom it is compared with.
    pub(crate) fn limit(self) -> &'static str {
        match self {
            Self::Append | Self::Turn | Self::Full(_) | Self::Last50(_) => "limit",
            Self::Buffered => "limit-buffered",
            Self::Sessions(_) => "limit-group",
        }
    }

    /// Who takes part.
    pub(crate) fn peers(self) -> Vec<&'static Peer> {
        let takes_part = |peer: &&Peer| match self {
            // Two names of one form on disk are read once.
            Self::Full(_) | Self::Last50(_) => {
                !["jsonl-fdatasync", "sqlite-normal", "sessionlog-tree", "sessionlog-buffered"]
                    .contains(&peer.name)
                    && (peer.name == "limit" || !peer.name.starts_with("limit"))
            }
            Self::Buffered => peer.promise == Promise::Written,
            // Of one session, one file is as good as another.
            Self::Append | Self::Turn => {
                peer.promise != Promise::Written && !["limit-group", "sessionlog-tree"].contains(&peer.name)
            }
            Self::Sessions(_) => peer.promise != Promise::Written,
        };
        peers::all().into_iter().filter(takes_part).collect()
    }

    /// How many messages it is about.
    fn messages(self, quick: bool) -> usize {
        match (self, quick) {
            (_, true) => 400,
            (Self::Append | Self::Turn, _) => 800,
            (Self::Sessions(_), _) => 3_200,
            (Self::Buffered, _) => 10_000,
            (Self::Full(_) | Self::Last50(_), _) => 40_000,
        }
    }
}

/// What one measurement found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) seconds: f64,
    pub(crate) messages: usize,
    /// The longest wait of 99 of 100 commits, in microseconds; 0 of a read.
    pub(crate) p99_us: f64,
    /// Whether the page cache could be dropped; `None` where it was not to be.
    pub(crate) dropped: Option<bool>,
    /// The most memory that was in use, in bytes, without what the messages to append took.
    pub(crate) memory: u64,
    /// Bytes that the store takes on disk after it was closed.
    pub(crate) disk: u64,
    /// Bytes of the messages.
    pub(crate) bytes: u64,
}

/// Measures: `one <work> <peer> <dir> [--quick] [--messages N] [--build]`.
pub(crate) fn one(arguments: &[String]) -> Result<()> {
    let [work, peer, dir, options @ ..] = arguments else { return Err("one <work> <peer> <dir>".into()) };
    let quick = options.iter().any(|option| option == "--quick");
    let work = Work::ALL.into_iter().find(|known| known.name() == *work).ok_or("no such work")?;
    let (peer, dir) = (peers::named(peer)?, PathBuf::from(dir));
    let mut messages = work.messages(quick);
    if let Some(at) = options.iter().position(|option| option == "--messages") {
        messages = options.get(at + 1).ok_or("--messages needs a number")?.parse()?;
    }
    let found = match work {
        _ if options.iter().any(|option| option == "--build") => build(peer, &dir, messages)?,
        Work::Full(cache) | Work::Last50(cache) => read(work, cache, peer, &dir, messages)?,
        Work::Append | Work::Buffered => append(peer, &dir, messages, 1, 1)?,
        Work::Turn => append(peer, &dir, messages, 1, TURN)?,
        Work::Sessions(count) => append(peer, &dir, messages, count, 1)?,
    };
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

fn bytes_of(messages: &[Message]) -> Result<u64> {
    let mut bytes = 0;
    for message in messages {
        bytes += u64::try_from(data::encode(message)?.len())?;
    }
    Ok(bytes)
}

/// Appends from `sessions` threads at once, `commit` messages at a time.
fn append(peer: &Peer, dir: &Path, messages: usize, sessions: usize, commit: usize) -> Result<Found> {
    let each = messages.div_ceil(sessions).next_multiple_of(TURN);
    let parts: Vec<Vec<Message>> = (0..sessions).map(|seed| data::session(seed as u64, each)).collect();
    let store = (peer.open)(dir)?;
    let before = system::peak_memory();
    let (seconds, mut waits) = timed(&*store, &parts, commit)?;
    let memory = system::peak_memory().saturating_sub(before);
    store.close()?;
    waits.sort_by(f64::total_cmp);
    let bytes = parts.iter().map(|part| bytes_of(part)).sum::<Result<u64>>()?;
    let p99_us = waits[(waits.len() - 1) * 99 / 100] * 1e6;
    Ok(Found {
        seconds,
        messages: each * sessions,
        p99_us,
        dropped: None,
        memory,
        disk: system::disk(dir)?,
        bytes,
    })
}

/// The time from the common start to the last commit, and each commit's.
fn timed(store: &dyn Store, parts: &[Vec<Message>], commit: usize) -> Result<(f64, Vec<f64>)> {
    let mut writers = Vec::new();
    for (session, part) in parts.iter().enumerate() {
        writers.push(store.begin(session as u64, part)?);
    }
    system::write_back();
    let start = Barrier::new(parts.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = writers
            .iter_mut()
            .zip(parts)
            .map(|(writer, part)| {
                let start = &start;
                scope.spawn(move || -> Result<Vec<f64>> {
                    let mut waits = Vec::with_capacity(part.len());
                    start.wait();
                    for messages in part.chunks(commit) {
                        let begun = Instant::now();
                        writer.append(messages)?;
                        waits.push(begun.elapsed().as_secs_f64());
                    }
                    Ok(waits)
                })
            })
            .collect();
        // Before the threads are let go: on a busy machine they may be through before this one goes on.
        let begun = Instant::now();
        start.wait();
        let mut waits = Vec::new();
        for thread in threads {
            waits.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok((begun.elapsed().as_secs_f64(), waits))
    })
}

/// Writes a long session, as input for the reads.
fn build(peer: &Peer, dir: &Path, messages: usize) -> Result<Found> {
    append(peer, dir, messages, 1, 64 * TURN)
}

fn read(work: Work, cache: Cache, peer: &Peer, dir: &Path, messages: usize) -> Result<Found> {
    let dropped = match cache {
        Cache::Cold => Some(system::drop_caches()),
        Cache::Warm => {
            system::read_all(dir)?;
            None
        }
    };
    let before = system::peak_memory();
    let begun = Instant::now();
    let store = (peer.open)(dir)?;
    let found = match work {
        Work::Last50(_) => store.tail(0, 50)?,
        _ => store.load(0)?,
    };
    let seconds = begun.elapsed().as_secs_f64();
    let memory = system::peak_memory().saturating_sub(before);
    let expected = data::session(0, messages.next_multiple_of(TURN));
    let wanted = if work == Work::Full(cache) { 0 } else { expected.len() - 50 };
    if found != expected[wanted..] {
        return Err(format!("{}: what was read is not what was written", peer.name).into());
    }
    let bytes = bytes_of(&found)?;
    Ok(Found {
        seconds,
        messages: found.len(),
        p99_us: 0.0,
        dropped,
        memory,
        disk: system::disk(dir)?,
        bytes,
    })
}
