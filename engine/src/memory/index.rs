//! The index: which records have which words, so that a search reads no log that has not changed.
//!
//! It holds where records are and the words they have, not their texts. For each log it holds how far it was read: the position
//! and the chain hash of the last frame, the fold's state there, and what the file system said of the files before they were
//! read. A search compares the latter with what it says now, which costs two looks a log; where they differ, or the files had
//! changed too shortly before to tell, the log itself is asked, and read on from there. A log that does not go on from there is
//! read anew.
//!
//! Several processes may search and bring it up to date at once. Whoever has it open holds a shared lock beside it, for a
//! moment at a time; whoever removes it, an exclusive one: SQLite's files must not be removed while somebody uses them.

mod fresh;
mod held;
mod look;
mod store;
mod update;
mod vector;

use sessionlog_codec::ids::Timestamp;
use sessionlog_projections::memory::rank::rank;
use sessionlog_projections::memory::{MemoryQuery, RecordId, Tokens, tokens};

use super::load::{self, Located};
use super::source::{Origin, Source, sources};
use super::{FoundBy, MemoryHits, MemoryReader, hit, page};
use crate::error::Result;
use crate::store::{Home, WorkspaceHash};

/// Why there is no answer from the index.
#[derive(Debug)]
enum Trouble {
    /// It can't be had now: held by others, not to be written, no room.
    Away(String),
    /// It is damaged, or not what it says it is: it has to be made anew.
    Wrong(String),
}

type Tried<T> = std::result::Result<T, Trouble>;

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        let text = error.to_string();
        match error.sqlite_error_code() {
            Some(
                Code::DatabaseBusy
                | Code::DatabaseLocked
                | Code::ReadOnly
                | Code::PermissionDenied
                | Code::CannotOpen
                | Code::DiskFull
                | Code::OutOfMemory
                | Code::FileLockingProtocolFailed,
            ) => Self::Away(text),
            _ => Self::Wrong(text),
        }
    }
}

impl From<crate::error::Error> for Trouble {
    fn from(error: crate::error::Error) -> Self {
        Self::Away(error.to_string())
    }
}

/// Does something with the index; if it proves wrong, once more with a new one. `None`: without it, then.
fn with_index<T>(memory: &MemoryReader, act: impl Fn() -> Tried<T>) -> Option<T> {
    let first = act();
    let again = match first {
        Ok(done) => return Some(done),
        Err(Trouble::Wrong(why)) => {
            tracing::warn!(workspace = %memory.workspace, why, "the index of memory is damaged and is made anew");
            held::remove(&memory.home, &memory.workspace).map_err(Trouble::from).and_then(|()| act())
        }
        away => away,
    };
    match again {
        Ok(done) => Some(done),
        Err(Trouble::Away(why) | Trouble::Wrong(why)) => {
            tracing::warn!(workspace = %memory.workspace, why, "memory is searched without its index");
            None
        }
    }
}

/// Searches by the index. `None`: it can't be had now.
pub(super) fn search(memory: &MemoryReader, query: &MemoryQuery, now: Timestamp) -> Option<MemoryHits> {
    memory.home.storage.native_path(&memory.home.root)?;
    with_index(memory, || try_search(memory, query, now))
}

fn try_search(memory: &MemoryReader, query: &MemoryQuery, now: Timestamp) -> Tried<MemoryHits> {
    let sources = sources(&memory.home, &memory.workspace)?;
    let current = update::bring_up_to_date(memory, &sources, update::Wanted::of(query))?;
    let update::Current { mut held, known, unread } = current;
    let transaction = held.connection().transaction()?;
    let version = store::data_version(&transaction)?;
    let logs = match known.filter(|(of, _)| *of == version) {
        Some((_, logs)) => logs,
        None => store::logs(&transaction)?,
    };
    let found = look::found(&transaction, &logs, query)?;
    let ranked = rank(query, &found, now);
    let page = page(query, &ranked);
    let ids: Vec<RecordId> = page.iter().map(|ranked| ranked.id).collect();
    let located = look::locate(&transaction, &logs, memory, &ids)?;
    drop(transaction);
    // The lock is not held while logs are read.
    drop(held);
    let texts = load::texts(&located);
    let terms = query.terms().unwrap_or_default();
    let mut hits = Vec::with_capacity(page.len());
    for ((ranked, located), text) in page.iter().zip(located).zip(texts) {
        let Some(text) = text else {
            return Err(Trouble::Wrong(format!("there is no record {}", ranked.id)));
        };
        if ranked.text_rank.is_some() && !has_any(&located, &text, &terms) {
            return Err(Trouble::Wrong(format!("record {} has no word that it should have", ranked.id)));
        }
        hits.push(hit(query, ranked, located.record, &text));
    }
    let total = u64::try_from(ranked.len()).unwrap_or(u64::MAX);
    Ok(MemoryHits { hits, total, by: FoundBy::Index, unread })
}

fn has_any(located: &Located, text: &str, terms: &[String]) -> bool {
    let mut has = false;
    let mut look = |token: &str| has = has || terms.binary_search_by(|term| term.as_str().cmp(token)).is_ok();
    let record =
        sessionlog_projections::memory::MemoryRecord { text: text.to_owned(), ..located.record.clone() };
    record.searched().for_each(|text| tokens(text, Tokens::OfText, &mut look));
    has
}

/// Brings the index up to date.
pub(super) fn update(memory: &MemoryReader) -> Result<()> {
    if memory.home.storage.native_path(&memory.home.root).is_none() {
        return Ok(());
    }
    let sources = sources(&memory.home, &memory.workspace)?;
    with_index(memory, || update::bring_up_to_date(memory, &sources, update::Wanted::Everything));
    Ok(())
}

/// Where a record is, by the index; `None` if it does not say.
pub(super) fn find(memory: &MemoryReader, id: RecordId) -> Option<Located> {
    memory.home.storage.native_path(&memory.home.root)?;
    let of = |origin| Source::of(&memory.home, &memory.workspace, id.session, origin);
    let session = of(Origin::Session);
    let is_there = memory.home.storage.entry(&session.segments()).is_ok_and(|entry| entry.is_some());
    let source = if is_there { session } else { of(Origin::Archive) };
    with_index(memory, || {
        let one = [source.clone()];
        let mut held = update::bring_up_to_date(memory, &one, update::Wanted::OneLog)?.held;
        let transaction = held.connection().transaction()?;
        let logs = store::logs(&transaction)?;
        look::locate_if_there(&transaction, &logs, memory, id)
    })
    .flatten()
}

/// Removes the index of a workspace with all that SQLite keeps beside it.
pub(super) fn discard(home: &Home, workspace: &WorkspaceHash) -> Result<()> {
    match home.storage.native_path(&home.root) {
        Some(_) => held::remove(home, workspace),
        None => Ok(()),
    }
}
