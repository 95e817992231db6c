//! The library: what was learned, for every session of the user's. A fold of the user's log.
//!
//! A proposition is submitted under a key, judged once by a [`Librarian`], and applied. The decision is stored before it is
//! applied: whoever finds it applies it, and nobody is asked a second time, also not after it could not be applied.
//!
//! # How often a librarian is asked
//! Judging holds an operating-system lock, so of several processes one asks at a time, and each looks after it has the lock
//! whether there is a decision already. A decision is one transaction, in which the first one stands. So for one proposition
//! the librarian is asked a second time only if the first process died (or failed to write) between the question and the
//! transaction; then the question has the identical request. Two decisions are never stored.

mod judge;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sessionlog_codec::event::{
    Event, LibraryAction, LoggedEvent, PropositionDecided, PropositionDeleted, PropositionFailed,
    PropositionSubmitted,
};
use sessionlog_codec::ids::KindNo;
use sessionlog_codec::registry::kind;
use sessionlog_projections::learning::{
    Entry, Filed, Found, LibraryState, NotApplied, Proposition, Receipt, SearchOptions, Standing, Submission,
};

pub use judge::{Candidate, JudgeError, Librarian, Question, Verdict};

use crate::error::{Error, ErrorKind, Result};
use crate::storage::Lock;
use crate::store::owner::{self, Owner};
use crate::store::shared_log::{Caught, SharedFold, SharedLog};
use crate::store::{Store, StoreInner, StoreReader};

/// How many entries a librarian is shown beside a proposition.
const CANDIDATES: usize = 5;
/// The longest key, in bytes.
const KEY_LEN_MAX: usize = 256;
/// The longest reason and the longest error that are kept, in characters.
const REASON_CHARS_MAX: usize = 2048;

impl SharedFold for LibraryState {
    const KINDS: &'static [KindNo] = &[
        kind::PropositionSubmitted,
        kind::PropositionDecided,
        kind::PropositionApplied,
        kind::PropositionFailed,
        kind::PropositionDeleted,
    ];

    fn apply(&mut self, event: &LoggedEvent) {
        LibraryState::apply(self, event);
    }
}

/// The library of a home. Any number of processes may use it at once. Share it between threads by reference.
///
/// The first use reads the propositions of the user's log; later ones what came since.
#[derive(Debug)]
pub struct Library {
    store: Arc<StoreInner>,
    log: SharedLog,
    caught: Mutex<Caught<LibraryState>>,
}

impl Store {
    /// The library of this home.
    #[must_use]
    pub fn library(&self) -> Library {
        Library::of(self.inner())
    }
}

impl StoreReader {
    /// The library as it is now, read without a lock.
    ///
    /// # Errors
    /// `Corrupt` if the user's log is hurt; `Unsupported` if a newer version wrote it; `Io` if it can't be read.
    pub fn library(&self) -> Result<LibraryState> {
        let clock: Arc<dyn crate::Clock> = Arc::new(crate::SystemClock);
        let mut caught = Caught::default();
        SharedLog::of_user(self.home(), &clock).catch_up(&mut caught)?;
        Ok(Caught::<LibraryState>::get(&caught).clone())
    }
}

impl Library {
    pub(crate) fn of(store: &Arc<StoreInner>) -> Self {
        let log = SharedLog::of_user(&store.home, &store.clock);
        Self { store: Arc::clone(store), log, caught: Mutex::default() }
    }

    /// Submits a proposition. The same request under the same key again is the same submission, however often.
    ///
    /// Durable when it returns: the submission. Gives how far the proposition is.
    ///
    /// # Errors
    /// `Conflict` if another request was submitted under the key; `Invalid` if the key is empty or longer than 256 bytes;
    /// `Locked` if other processes hold the user's log for seconds; `Full` or `Io` if it can't be written.
    pub fn submit(&self, key: &str, proposition: &Proposition) -> Result<Standing> {
        if key.is_empty() || key.len() > KEY_LEN_MAX {
            let message =
                format!("a proposition's key has 1 to {KEY_LEN_MAX} bytes, this one has {}", key.len());
            return Err(Error::invalid("library.key_length", message));
        }
        let digest = proposition.digest();
        self.transact(|library| match library.submission(key, digest) {
            Submission::Known(standing) => Ok((Vec::new(), standing)),
            Submission::Conflict { known } => {
                let message = format!(
                    "another request was submitted under the key {key:?}: its digest is {known}, this one's {digest}. \
                     Nothing was changed; submit it under a key of its own"
                );
                Err(Error::new(ErrorKind::Conflict, "library.key", message))
            }
            Submission::New => {
                let submitted = PropositionSubmitted {
                    key: key.to_owned(),
                    kind: proposition.draft().kind,
                    request_digest: digest,
                    request: proposition.request().clone(),
                };
                Ok((vec![submitted.into()], Standing::Submitted))
            }
        })
    }

    /// Has the next proposition judged: the oldest of those that failed least often. Gives its key, or `None` if none
    /// waits. The decision is not in effect yet: see [`apply`](Self::apply).
    ///
    /// Durable when it returns: the decision.
    ///
    /// # Errors
    /// `Locked` if another process (or thread) is asking a librarian; `Io` with the code `library.librarian` if the librarian
    /// failed, `Invalid` with `library.verdict` if it decided what can't be: the attempt is recorded, and the
    /// proposition waits; else as [`submit`](Self::submit).
    pub fn judge_next(&self, librarian: &mut dyn Librarian) -> Result<Option<String>> {
        let _lock = self.lock_librarian()?;
        let key = self.look(|library| library.next_to_judge().map(|filed| filed.key.clone()))?;
        let Some(key) = key else { return Ok(None) };
        self.judge(&key, librarian)?;
        Ok(Some(key))
    }

    /// Brings a decision into effect. Of one that is in effect already, gives what it did.
    ///
    /// Durable when it returns: the effect.
    ///
    /// # Errors
    /// `NotFound` if there is no such proposition; `Conflict` if it is not judged; `Corrupt` if its request can't be read;
    /// else as [`submit`](Self::submit). The decision stays.
    pub fn apply(&self, key: &str) -> Result<Receipt> {
        self.transact(|library| {
            let refused = match library.effect(key) {
                Ok(applied) => {
                    let receipt = Receipt { action: applied.action, entry_id: applied.entry_id.clone() };
                    return Ok((vec![applied.into()], Ok(receipt)));
                }
                Err(NotApplied::Done(_)) => match library.filed(key).map(|filed| &filed.standing) {
                    Some(Standing::Applied(receipt)) => return Ok((Vec::new(), Ok(receipt.clone()))),
                    _ => NotApplied::Unknown(key.to_owned()),
                },
                Err(refused) => refused,
            };
            let failed = match (&refused, library.filed(key)) {
                (NotApplied::Unreadable(_), Some(filed)) => vec![failure(filed, &refused.to_string())],
                _ => Vec::new(),
            };
            Ok((failed, Err(not_applied(refused))))
        })?
    }

    /// Brings a proposition to its end: asks `librarian` if nobody has judged it, and applies the decision.
    ///
    /// Durable when it returns: the receipt, which every later call gives again.
    ///
    /// # Errors
    /// As [`judge_next`](Self::judge_next) and [`apply`](Self::apply).
    pub fn settle(&self, key: &str, librarian: &mut dyn Librarian) -> Result<Receipt> {
        let standing = self.look(|library| library.filed(key).map(|filed| filed.standing.clone()))?;
        match standing {
            None => return Err(not_applied(NotApplied::Unknown(key.to_owned()))),
            Some(Standing::Applied(receipt)) => return Ok(receipt),
            Some(Standing::Decided(_)) => {}
            Some(Standing::Submitted) => {
                let _lock = self.lock_librarian()?;
                self.judge(key, librarian)?;
            }
        }
        self.apply(key)
    }

    /// Brings every proposition to its end, those that are judged first. Gives how many came to it.
    ///
    /// # Errors
    /// As [`settle`](Self::settle); what was done before stays.
    pub fn settle_all(&self, librarian: &mut dyn Librarian) -> Result<u64> {
        let mut done = 0_u64;
        loop {
            let next = self.look(|library| {
                let next = library.next_to_apply().or_else(|| library.next_to_judge());
                next.map(|filed| filed.key.clone())
            })?;
            let Some(key) = next else { return Ok(done) };
            self.settle(&key, librarian)?;
            done = done.saturating_add(1);
        }
    }

    /// The library as it is now, for anything that is derived from it.
    ///
    /// # Errors
    /// `Corrupt` if the user's log is hurt; `Unsupported` if a newer version wrote it; `Io` if it can't be read.
    pub fn look<T>(&self, look: impl FnOnce(&LibraryState) -> T) -> Result<T> {
        let mut caught = self.lock_caught();
        self.log.catch_up(&mut caught)?;
        Ok(look(caught.get()))
    }

    /// Every entry, by its id.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub fn entries(&self) -> Result<Vec<Entry>> {
        self.look(|library| library.entries().cloned().collect())
    }

    /// The entries that share words with a query, the best first.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub fn search(&self, query: &str, options: &SearchOptions) -> Result<Vec<Found>> {
        let now = self.store.clock.now();
        self.look(|library| library.search(query, now, options))
    }

    /// Removes an entry: it is not found any more, not merged into, and does not come back. Its text stays in the user's log.
    ///
    /// Durable when it returns.
    ///
    /// # Errors
    /// `NotFound` if there is no such entry; else as [`submit`](Self::submit).
    pub fn delete(&self, entry_id: &str, reason: &str) -> Result<()> {
        self.transact(|library| {
            if library.entry(entry_id).is_none() {
                let message = match library.is_deleted(entry_id) {
                    true => format!("the entry {entry_id:?} is removed already"),
                    false => format!(
                        "there is no entry {entry_id:?}; `logdump learn library` lists those there are"
                    ),
                };
                return Err(Error::new(ErrorKind::NotFound, "library.entry", message));
            }
            let (entry_id, reason) = (entry_id.to_owned(), bounded(reason));
            Ok((vec![PropositionDeleted { entry_id, reason }.into()], ()))
        })
    }

    /// Asks about one proposition, unless there is a decision. The caller holds the librarian's lock.
    fn judge(&self, key: &str, librarian: &mut dyn Librarian) -> Result<()> {
        let now = self.store.clock.now();
        let asked = self.look(|library| {
            let filed = library.filed(key).filter(|filed| filed.standing == Standing::Submitted)?;
            let stored = filed.request.as_ref().and_then(Proposition::stored);
            let options =
                SearchOptions { limit: CANDIDATES, recency: sessionlog_projections::learning::Recency::NONE };
            Some(stored.map(|proposition| {
                let found = library.search(&proposition.draft().content, now, &options);
                let candidates = found.into_iter().map(Candidate::of).collect();
                Question { key: key.to_owned(), proposition, candidates }
            }))
        })?;
        let question = match asked {
            None => return Ok(()),
            Some(Some(question)) => question,
            Some(None) => {
                let refused = NotApplied::Unreadable(key.to_owned());
                self.record_failure(key, &refused.to_string());
                return Err(not_applied(refused));
            }
        };
        let verdict = match librarian.judge(&question) {
            Ok(verdict) => verdict,
            Err(error) => {
                self.record_failure(key, &error.to_string());
                let message = format!("the librarian could not judge {key:?}: {error}; it waits, ask again");
                return Err(Error::new(ErrorKind::Io, "library.librarian", message));
            }
        };
        if let Err(wrong) = check(&question, &verdict) {
            self.record_failure(key, &wrong);
            let message = format!("the librarian's decision about {key:?} can't be carried out: {wrong}");
            return Err(Error::invalid("library.verdict", message));
        }
        let Verdict { action, target, reason, model } = verdict;
        let decided =
            PropositionDecided { key: key.to_owned(), action, target, reason: bounded(&reason), model };
        self.transact(|library| {
            let is_open = library.filed(key).is_some_and(|filed| filed.standing == Standing::Submitted);
            Ok((is_open.then(|| decided.into()).into_iter().collect(), ()))
        })
    }

    fn record_failure(&self, key: &str, error: &str) {
        let recorded = self.transact(|library| {
            let failed = library.filed(key).map(|filed| failure(filed, error));
            Ok((failed.into_iter().collect(), ()))
        });
        // What is not counted is tried all the same.
        if let Err(error) = recorded {
            tracing::warn!(%key, %error, "a failed attempt could not be recorded");
        }
    }

    fn transact<T>(&self, decide: impl FnOnce(&LibraryState) -> Result<(Vec<Event>, T)>) -> Result<T> {
        self.log.transact(&mut self.lock_caught(), decide)
    }

    fn lock_librarian(&self) -> Result<Box<dyn Lock>> {
        let home = &self.store.home;
        let dir = home.root.join("user");
        home.create_dir(&dir)?;
        let owner = Owner::in_passing(self.store.now_text());
        owner::take(&home.storage, &dir.join("librarian.lock"), &owner).map_err(|error| {
            if error.kind() != ErrorKind::Locked {
                return error;
            }
            let by = error.owner().map_or_else(|| "another process".to_owned(), ToString::to_string);
            let message = format!("{by} is asking the librarian: wait for it, and look at what was decided");
            Error::with_source(ErrorKind::Locked, "library.locked", message, error)
        })
    }

    fn lock_caught(&self) -> MutexGuard<'_, Caught<LibraryState>> {
        self.caught.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            // A fold that was left in the middle of an event is made anew.
            let mut caught = poisoned.into_inner();
            *caught = Caught::default();
            caught
        })
    }
}

fn bounded(text: &str) -> String {
    text.chars().take(REASON_CHARS_MAX).collect()
}

fn failure(filed: &Filed, error: &str) -> Event {
    let attempt = filed.attempts.saturating_add(1);
    PropositionFailed { key: filed.key.clone(), error: bounded(error), attempt }.into()
}

fn not_applied(refused: NotApplied) -> Error {
    let (kind, code) = match &refused {
        NotApplied::Unknown(_) => (ErrorKind::NotFound, "library.missing"),
        NotApplied::NotDecided(_) | NotApplied::Done(_) => (ErrorKind::Conflict, "library.not_judged"),
        NotApplied::Unreadable(_) => (ErrorKind::Corrupt, "library.unreadable"),
    };
    Error::new(kind, code, refused.to_string())
}

/// Whether a verdict is one that can be carried out: a new entry has no target, and another one is one of the candidates.
fn check(question: &Question, verdict: &Verdict) -> std::result::Result<(), String> {
    let is_candidate = |target: &str| question.candidates.iter().any(|it| it.entry_id == target);
    match (verdict.action, verdict.target.as_deref()) {
        (LibraryAction::Create | LibraryAction::Discard, None) => Ok(()),
        (LibraryAction::Create, Some(_)) => Err("a new entry has no target".to_owned()),
        (LibraryAction::Merge, None) => Err("a merge needs the entry that it goes into".to_owned()),
        (LibraryAction::Merge | LibraryAction::Discard, Some(target)) if is_candidate(target) => Ok(()),
        (LibraryAction::Merge | LibraryAction::Discard, Some(target)) => {
            Err(format!("the entry {target:?} is none of the candidates"))
        }
    }
}
