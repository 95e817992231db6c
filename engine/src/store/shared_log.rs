//! The logs that processes share: one of each workspace, and the user's. Facts that no session owns.
//!
//! A transaction is short. It takes the log's lock, folds what others appended since, decides by that, and appends one frame
//! that is durable before the lock is let go. Nobody holds such a log open in between, so a process that dies or sleeps is in
//! nobody's way. Reading takes no lock.
//!
//! Unlike a session, a shared log has no reader who can make do with a part of it: whether an artifact may go or a session is
//! deleted is decided by all of it. So damage is an error, never a gap.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use sessionlog_codec::event::{Event, LoggedEvent, NewEvent};
use sessionlog_codec::ids::{KindNo, LogId, NodeId, Position};
use sessionlog_projections::time::rfc3339_seconds;
use uuid::Uuid;

use super::Home;
use super::owner::{self, Owner, Patience};
use super::workspace::WorkspaceHash;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{
    Durability, Gap, LogDir, LogOptions, LogReader, LogWriter, ReadItem, Recovering, TailState,
    remove_unfinished,
};
use crate::session::{batch_of, logged};
use crate::storage::Lock;

/// Opening for an append writes the last segment anew, so that one is kept small.
const OPTIONS: LogOptions = LogOptions { segment_len: 64 << 10, fill_len: 0 };

/// A fold of some kinds of events of a shared log. Pure: the same events give the same value.
pub(crate) trait SharedFold: Default {
    /// The kinds that it looks at. Others are not decoded.
    const KINDS: &'static [KindNo];

    /// Folds one event, of one of the kinds.
    fn apply(&mut self, event: &LoggedEvent);
}

/// A fold, and how far it has come.
#[derive(Clone, Debug)]
pub(crate) struct Caught<F> {
    fold: F,
    next: Position,
    /// Where the log ended when all of it was known to be durable.
    durable: Position,
}

impl<F: SharedFold> Default for Caught<F> {
    fn default() -> Self {
        Self { fold: F::default(), next: Position(1), durable: Position::START }
    }
}

impl<F> Caught<F> {
    pub(crate) fn get(&self) -> &F {
        &self.fold
    }
}

/// A log that processes share. Cheap to clone; nothing is open while it is not used.
#[derive(Clone, Debug)]
pub(crate) struct SharedLog {
    home: Home,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    options: LogOptions,
}

impl SharedLog {
    /// The log of a workspace, whose directory exists by the first append.
    pub(crate) fn of_workspace(home: &Home, clock: &Arc<dyn Clock>, workspace: &WorkspaceHash) -> Self {
        let dir = home.workspace_dir(workspace).join("workspace");
        Self { home: home.clone(), clock: Arc::clone(clock), dir, options: OPTIONS }
    }

    /// The log of the home's user.
    pub(crate) fn of_user(home: &Home, clock: &Arc<dyn Clock>) -> Self {
        let dir = home.root.join("user");
        Self { home: home.clone(), clock: Arc::clone(clock), dir, options: OPTIONS }
    }

    fn log_dir(&self) -> LogDir {
        LogDir::below(&self.home.storage, &self.dir)
    }

    /// The log, to be read by whoever makes do with a part of it.
    #[cfg(feature = "search")]
    pub(crate) fn reader(&self) -> LogReader {
        LogReader::new(self.log_dir())
    }

    /// Gives every event of some kinds to `visit`, from a position on, in order. Gives the position to go on from. A log that
    /// does not exist has none.
    ///
    /// # Errors
    /// `Corrupt` if a part of it is hurt or an event does not decode; `Unsupported` if a newer version wrote there; `Io`.
    pub(crate) fn read(
        &self,
        from: Position,
        kinds: &[KindNo],
        visit: &mut dyn FnMut(LoggedEvent),
    ) -> Result<Position> {
        let mut next = from;
        let mut wrong = None;
        let read = LogReader::new(self.log_dir()).read(from, &mut |item| {
            let record = match item {
                ReadItem::Record(record) => record,
                ReadItem::Gap(gap) => {
                    wrong = Some(self.hurt(&gap));
                    return ControlFlow::Break(());
                }
            };
            next = after(record.position);
            if !kinds.contains(&record.envelope.kind) {
                return ControlFlow::Continue(());
            }
            match logged(&record) {
                Ok(event) => visit(event),
                Err(error) => {
                    wrong = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        match (wrong, read) {
            (Some(error), _) => Err(error),
            (None, Ok(TailState::Newer(what))) => Err(self.newer(&what)),
            (None, Ok(_)) => Ok(next),
            (None, Err(error)) if error.kind() == ErrorKind::NotFound => Ok(next),
            (None, Err(error)) => Err(error),
        }
    }

    fn hurt(&self, gap: &Gap) -> Error {
        let path = self.log_dir().segment_path(gap.segment);
        let message = format!(
            "{} byte {}: {}. What is shared by sessions is decided by all of this log, so nothing is until it is restored",
            path.display(),
            gap.offset,
            gap.explanation
        );
        Error::new(ErrorKind::Corrupt, "log.damaged", message)
    }

    fn newer(&self, what: &str) -> Error {
        let path = self.log_dir().segments;
        let message = format!("{} was written by a newer version ({what}): use that one", path.display());
        Error::new(ErrorKind::Unsupported, "log.newer", message)
    }

    /// Brings a fold up to the log's end.
    ///
    /// # Errors
    /// As [`read`](Self::read): then the fold has what was before.
    pub(crate) fn catch_up<F: SharedFold>(&self, caught: &mut Caught<F>) -> Result<()> {
        let fold = &mut caught.fold;
        let mut last = None;
        let read = self.read(caught.next, F::KINDS, &mut |event| {
            last = Some(event.position);
            fold.apply(&event);
        });
        match read {
            Ok(next) => caught.next = next,
            Err(error) => {
                // What was folded is not folded again.
                if let Some(last) = last {
                    caught.next = after(last);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// One transaction: with the log's lock, folds what is new, lets `decide` look and say what to append, and appends it as
    /// one frame. No events: nothing is written.
    ///
    /// Durable when it returns: the events.
    ///
    /// # Errors
    /// `Locked` if others hold the log for seconds; what `decide` refuses; what [`read`](Self::read) and
    /// [`LogWriter`] say. After an `Io` of a failed sync it is not known whether the events are there: the next
    /// transaction sees them or not, for good.
    pub(crate) fn transact<F: SharedFold, T>(
        &self,
        caught: &mut Caught<F>,
        decide: impl FnOnce(&F) -> Result<(Vec<Event>, T)>,
    ) -> Result<T> {
        let dir = self.log_dir();
        let parent = self.dir.parent().unwrap_or(&self.home.root);
        if self.home.storage.entry(parent).map_err(|e| Error::io("looking at", parent, e))?.is_none() {
            let message = format!("there is no workspace at {}", parent.display());
            return Err(Error::new(ErrorKind::NotFound, "workspace.missing", message));
        }
        self.home.create_dir(&self.dir)?;
        self.home.create_dir(&dir.segments)?;
        let _lock = self.take()?;
        let found = match Recovering::open(dir.clone(), self.options, Position::START) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let end = found.as_ref().map_or(Position(1), |found| after(found.assessment().last()));
        if caught.next > end {
            // A loss of power took what was read.
            *caught = Caught::default();
        }
        // What another process wrote and did not live to sync must be durable before anything is said by it.
        let mut writer = None;
        if end != caught.durable {
            writer = found.map(Recovering::finish).transpose()?.map(|(writer, _)| writer);
        }
        self.catch_up(caught)?;
        caught.durable = caught.next;
        let (events, given) = decide(caught.get())?;
        if !events.is_empty() {
            let events: Vec<_> = events.into_iter().map(|event| NewEvent::now(NodeId::ROOT, event)).collect();
            let batch = batch_of(&events, self.clock.now())?;
            let writer = match writer.take() {
                Some(writer) => writer,
                None => self.writer(&dir)?,
            };
            writer.append(batch, Durability::Sync)?;
            writer.close()?;
            self.catch_up(caught)?;
            caught.durable = caught.next;
        } else if let Some(writer) = writer {
            writer.close()?;
        }
        Ok(given)
    }

    /// Erases the payloads of those events of some kinds that `which` takes: their records stay, as erased, and the chain
    /// verifies. How many there were.
    ///
    /// Durable when it returns: that they are gone. After an error or a crash, the same call again does the rest.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub(crate) fn erase(&self, kinds: &[KindNo], which: &dyn Fn(&Event) -> bool) -> Result<u64> {
        let find = || {
            let mut positions = BTreeSet::new();
            self.read(Position(1), kinds, &mut |event| {
                if which(&event.event) {
                    positions.insert(event.position);
                }
            })?;
            Ok::<_, Error>(positions)
        };
        if find()?.is_empty() {
            return Ok(0);
        }
        let _lock = self.take()?;
        let writer = self.writer(&self.log_dir())?;
        let positions = find()?;
        writer.seal_longer_than(0)?;
        let erased = writer.erase(&positions)?;
        writer.close()?;
        Ok(erased.records)
    }

    fn take(&self) -> Result<Box<dyn Lock>> {
        let owner = Owner::in_passing(rfc3339_seconds(self.clock.now()));
        let path = self.dir.join("owner.lock");
        owner::take_within(&self.home.storage, &path, &owner, Patience::Seconds)
    }

    /// The log, open for writing. The caller has its lock.
    fn writer(&self, dir: &LogDir) -> Result<LogWriter> {
        match Recovering::open(dir.clone(), self.options, Position::START) {
            Ok(found) => Ok(found.finish()?.0),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                remove_unfinished(dir)?;
                LogWriter::create(dir.clone(), self.options, LogId::from(Uuid::now_v7()))
            }
            Err(error) => Err(error),
        }
    }
}

fn after(position: Position) -> Position {
    Position(position.0.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sessionlog_codec::event::RootUnregistered;
    use sessionlog_codec::ids::SessionId;
    use sessionlog_codec::registry::kind;

    use super::*;
    use crate::clock::SystemClock;
    use crate::storage::{CrashMode, Fault, FaultError, Repeat, SimStorage, Storage};

    /// The reasons in order, each of which is told once.
    #[derive(Debug, Default)]
    struct Reasons(Vec<String>);

    impl SharedFold for Reasons {
        const KINDS: &'static [KindNo] = &[kind::RootUnregistered];

        fn apply(&mut self, event: &LoggedEvent) {
            if let Event::RootUnregistered(gone) = &event.event {
                self.0.push(gone.reason.clone());
            }
        }
    }

    fn shared(storage: &SimStorage) -> SharedLog {
        let home = Home::create(Arc::new(storage.clone()), Path::new("home")).unwrap();
        let log = SharedLog::of_user(&home, &(Arc::new(SystemClock) as Arc<dyn Clock>));
        // So small that segments roll.
        SharedLog { options: LogOptions { segment_len: 512, fill_len: 0 }, ..log }
    }

    /// Tells a reason, if nobody did.
    fn tell(log: &SharedLog, caught: &mut Caught<Reasons>, reason: &str) -> Result<usize> {
        log.transact(caught, |told| {
            let known = told.0.len();
            if told.0.iter().any(|known| known == reason) {
                return Ok((Vec::new(), known));
            }
            let session_id = SessionId::from(Uuid::nil());
            Ok((vec![RootUnregistered { session_id, reason: reason.to_owned() }.into()], known + 1))
        })
    }

    fn told(log: &SharedLog) -> Vec<String> {
        let mut caught = Caught::<Reasons>::default();
        log.catch_up(&mut caught).unwrap();
        caught.fold.0
    }

    fn numbers(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("reason {number}")).collect()
    }

    #[test]
    fn a_log_that_does_not_exist_has_nothing() {
        assert!(told(&shared(&SimStorage::new())).is_empty());
    }

    #[test]
    fn each_decides_by_what_the_others_appended() {
        let storage = SimStorage::new();
        let logs = [shared(&storage), shared(&storage)];
        let mut folds = [Caught::default(), Caught::default()];
        for (number, reason) in numbers(20).iter().enumerate() {
            for turn in 0..2 {
                let who = (number + turn) % 2;
                assert_eq!(tell(&logs[who], &mut folds[who], reason).unwrap(), number + 1);
            }
        }
        assert_eq!(told(&logs[0]), numbers(20));
        let segments = logs[0].log_dir().list().unwrap();
        assert!(segments.len() > 2, "it rolled");
    }

    #[test]
    fn threads_take_turns() {
        let storage = SimStorage::new();
        let total = std::thread::scope(|scope| {
            let work = |_| {
                let log = shared(&storage);
                scope.spawn(move || {
                    let mut caught = Caught::default();
                    numbers(8).iter().map(|reason| tell(&log, &mut caught, reason).unwrap()).max()
                })
            };
            let threads: Vec<_> = (0..4).map(work).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).max()
        });
        assert_eq!(total, Some(8));
        let mut sorted = told(&shared(&storage));
        sorted.sort();
        assert_eq!(sorted, numbers(8));
    }

    /// Power is lost at each call in turn: what was acknowledged is there, in order, and the log goes on.
    #[test]
    fn what_was_acknowledged_survives_a_loss_of_power_at_any_call() {
        for nth in 0.. {
            for mode in [CrashMode::LoseAll, CrashMode::Seeded(nth)] {
                let storage = SimStorage::new();
                let log = shared(&storage);
                storage.fail(Fault::any(FaultError::EIO).after(nth).repeat(Repeat::Always));
                let mut caught = Caught::default();
                let acknowledged =
                    numbers(6).iter().take_while(|reason| tell(&log, &mut caught, reason).is_ok()).count();
                let after = storage.power_cut(mode);
                let log = shared(&after);
                let found = told(&log);
                assert!(found.len() >= acknowledged, "call {nth}: {found:?}, {acknowledged} acknowledged");
                assert!(found.len() <= acknowledged + 1, "call {nth}: {found:?}");
                let mut caught = Caught::default();
                for reason in numbers(6) {
                    tell(&log, &mut caught, &reason).unwrap();
                }
                assert_eq!(told(&shared(&after.power_cut(CrashMode::LoseAll))), numbers(6), "call {nth}");
                if acknowledged == 6 {
                    return;
                }
            }
        }
    }

    /// A process is killed between its write and its sync. Whoever finds the fact there, and says so, has made it durable.
    #[test]
    fn what_a_dead_process_did_not_sync_is_durable_before_anything_is_said_by_it() {
        let storage = SimStorage::new();
        let log = shared(&storage);
        tell(&log, &mut Caught::default(), "reason 0").unwrap();
        let writer = log.writer(&log.log_dir()).unwrap();
        let (session_id, reason) = (SessionId::from(Uuid::nil()), "reason 1".to_owned());
        let event = NewEvent::now(NodeId::ROOT, RootUnregistered { session_id, reason });
        writer.append(batch_of(&[event], SystemClock.now()).unwrap(), Durability::Buffered).unwrap();
        std::mem::forget(writer);
        let killed = storage.power_cut(CrashMode::KeepAll);
        assert_eq!(tell(&shared(&killed), &mut Caught::default(), "reason 1").unwrap(), 2);
        assert_eq!(told(&shared(&killed.power_cut(CrashMode::LoseAll))), numbers(2));
    }

    #[test]
    fn damage_is_an_error_and_never_a_gap() {
        let storage = SimStorage::new();
        let log = shared(&storage);
        let mut caught = Caught::default();
        for reason in numbers(20) {
            tell(&log, &mut caught, &reason).unwrap();
        }
        let (first, _) = log.log_dir().list().unwrap()[0];
        let path = log.log_dir().segment_path(first);
        let file = storage.open(&path, crate::storage::Access::ReadWrite).unwrap();
        file.write_at(&[0xA5; 40], 200).unwrap();
        let error = log.catch_up(&mut Caught::<Reasons>::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("00000000000000000001.seg byte"), "{error}");
    }
}
