//! Following a log that grows: each record once, in order, in this process or another, without a lock and without asking
//! all the time.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sessionlog_codec::ids::{Digest, Position};
use sessionlog_codec::record::{Envelope, Payload, Record};

use super::cursor::{Cursor, Look, Progress, Step, Visited};
use super::reader::{Gap, LogReader, TailState};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{EntryKind, Watch, Woken};

/// How much is read ahead of what was given, in bytes of payload: at most this and a segment.
const AHEAD_MAX: usize = 1 << 20;

/// The shortest wait, whatever `recheck` says: a follower is never busy with waiting.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// When a follower gives a record.
///
/// A record is in the files before its append is acknowledged, and it is durable before anything in the files says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FollowLevel {
    /// As soon as its whole frame can be read, so also the newest one of a session where nothing happens any more.
    ///
    /// Such a record can still be withdrawn: its append failed and was taken back, or power was lost before it was durable and
    /// its position is another record's now. Then the follower says so: [`FollowItem::Retracted`](crate::FollowItem::Retracted)
    /// comes before anything else. That is the default, since a follower that is always one message behind is of little use to
    /// whoever looks on; and what is retracted can't be overlooked in a `match`.
    #[default]
    Written,
    /// Once the files prove that it is durable: a later frame says so, or its segment was sealed. It is never withdrawn. For
    /// whoever acts on what it reads: copies it elsewhere, bills it, answers it.
    ///
    /// The proof of a batch is in what is written after it, so the last batch comes when the next one is written. While the
    /// owner is idle it does not come, and after a crash not before there is a new owner. Nor does the record of a session's
    /// end, with what was written in one batch with it, unless somebody resumes the session: everything before it does, since
    /// that record proves it. (A system has no means to ask whether bytes that can be read are on disk; and a writer that
    /// wrote the proof at once would pay a write for each append.)
    Durable,
}

/// How a log is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowOptions {
    /// When a record is given.
    pub level: FollowLevel,
    /// After how long without a notification the files are looked at all the same. Default: one second. Notifications are
    /// what wakes a follower; this is for what they don't tell: file systems without them (NFS, some containers), limits of
    /// the system that were reached, damage, a directory that was moved away.
    pub recheck: Duration,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self { level: FollowLevel::default(), recheck: Duration::from_secs(1) }
    }
}

/// A payload, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPayload {
    /// The bytes as they were appended.
    Present(Vec<u8>),
    /// The bytes were erased on purpose; this was their digest.
    Redacted(Digest),
}

/// A record, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Where it stands in the log.
    pub position: Position,
    /// Everything about it but its payload.
    pub envelope: Envelope,
    /// Its payload.
    pub payload: LogPayload,
}

impl LogRecord {
    /// The same record, borrowed.
    #[must_use]
    pub fn as_record(&self) -> Record<'_> {
        let payload = match &self.payload {
            LogPayload::Present(bytes) => Payload::Present(bytes),
            LogPayload::Redacted(digest) => Payload::Redacted(*digest),
        };
        Record { position: self.position, envelope: self.envelope.clone(), payload }
    }

    fn of(record: &Record<'_>) -> Self {
        let payload = match record.payload {
            Payload::Present(bytes) => LogPayload::Present(bytes.to_vec()),
            Payload::Redacted(digest) => LogPayload::Redacted(digest),
        };
        Self { position: record.position, envelope: record.envelope.clone(), payload }
    }

    fn len(&self) -> usize {
        match &self.payload {
            LogPayload::Present(bytes) => bytes.len(),
            LogPayload::Redacted(_) => 0,
        }
    }
}

/// What a follower of a log comes across, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogItem {
    /// A record.
    Record(LogRecord),
    /// Records that are hurt. It goes on behind them.
    Gap(Gap),
    /// What was given from this position on is not in the log any more: forget it. What is there now follows. Never of
    /// [`FollowLevel::Durable`].
    Retracted {
        /// The first position that was withdrawn.
        from: Position,
    },
    /// The log was removed. Nothing comes after this but the same again.
    Deleted,
}

/// A log that is followed. Made by [`LogReader::follow`].
///
/// It takes no lock, changes no byte, keeps no file open, and holds no more than a segment in memory. Looking for something
/// new costs one small read and two looks, whatever the log's length; what is new is read once.
#[derive(Debug)]
pub struct LogFollower {
    cursor: Cursor,
    log: LogReader,
    options: FollowOptions,
    /// Read and not given yet.
    queue: VecDeque<LogItem>,
    /// The position that comes next, for whoever takes the items.
    given: Position,
    deleted: bool,
    armed: Option<Armed>,
    /// When all was looked at.
    looked: Option<Instant>,
    looks: u64,
}

/// What wakes a follower.
#[derive(Debug)]
struct Armed {
    dir: PathBuf,
    /// `None` if there are no notifications here.
    watch: Option<Box<dyn Watch>>,
}

impl LogReader {
    /// Follows the log from the record at `from` on. There need not be one yet.
    #[must_use]
    pub fn follow(&self, from: Position, options: FollowOptions) -> LogFollower {
        let cursor = self.cursor(from);
        LogFollower {
            given: cursor.position(),
            cursor,
            log: self.clone(),
            options,
            queue: VecDeque::new(),
            deleted: false,
            armed: None,
            looked: None,
            looks: 0,
        }
    }
}

impl LogFollower {
    /// The position behind everything that was given: where to go on in another process. At [`FollowLevel::Durable`] that is
    /// exact; at [`FollowLevel::Written`], what was given before may be withdrawn without the other process learning of it.
    #[must_use]
    pub fn position(&self) -> Position {
        self.given
    }

    /// How often it looked at the files: for tests and for figures. While nothing happens, that is once every
    /// [`recheck`](FollowOptions::recheck).
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// The next item if it is there already. Never waits.
    ///
    /// # Errors
    /// `Io` if the files can't be read: nothing is skipped, the next call tries again. `Unsupported` if what follows was written
    /// by a newer version. `Conflict` if another log is in the place of the one that was followed.
    pub fn try_next(&mut self) -> Result<Option<LogItem>> {
        if let Some(item) = self.ready() {
            return Ok(Some(item));
        }
        self.look(self.due())?;
        Ok(self.ready())
    }

    /// The next item, waiting for it for at most `timeout`: `None` if there was none until then. Sleeps until the system tells
    /// of a change.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next).
    pub fn next(&mut self, timeout: Duration) -> Result<Option<LogItem>> {
        if let Some(item) = self.ready() {
            return Ok(Some(item));
        }
        let begun = Instant::now();
        loop {
            // Before it looks: what changes behind its back wakes it.
            #[cfg(feature = "seeded-bugs")]
            let forgets = sessionlog_codec::seeded::is("forget_to_wake_a_follower");
            #[cfg(not(feature = "seeded-bugs"))]
            let forgets = false;
            if !forgets {
                self.arm();
            }
            self.look(self.due())?;
            if forgets {
                self.arm();
            }
            if let Some(item) = self.ready() {
                return Ok(Some(item));
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            self.wait(left);
        }
    }

    /// Everything is looked at the first time and then every once in a while.
    fn due(&self) -> Look {
        match self.looked {
            Some(looked) if looked.elapsed() < self.options.recheck => Look::Near,
            _ => Look::Wide,
        }
    }

    fn wait(&mut self, left: Duration) {
        let since = self.looked.map_or(Duration::ZERO, |looked| looked.elapsed());
        let timeout = left.min(self.options.recheck.saturating_sub(since).max(PAUSE_MIN));
        match self.armed.as_mut().and_then(|armed| armed.watch.as_mut()) {
            Some(watch) => match watch.wait(timeout) {
                Woken::Changed | Woken::TimedOut => {}
            },
            // Nothing tells of changes here.
            None => std::thread::sleep(timeout),
        }
    }

    /// Sees to it that a change wakes it: of the log's directory, or of the one that the log's directory is missing in.
    fn arm(&mut self) {
        // What came to be in a directory before it was watched wakes nobody: so each time it is looked for once more.
        while let Some(nearest) = self.unwatched() {
            self.armed = match self.log.dir().storage.watch(&nearest) {
                Ok(watch) => Some(Armed { dir: nearest, watch }),
                Err(error) => {
                    tracing::debug!(dir = %nearest.display(), %error, "no notifications; looking at intervals");
                    self.armed = None;
                    return;
                }
            };
        }
    }

    /// The directory to watch, if it is another than the one that is watched.
    fn unwatched(&self) -> Option<PathBuf> {
        let dir = self.log.dir();
        let is_watched = |path: &Path| self.armed.as_ref().is_some_and(|armed| armed.dir == path);
        if is_watched(&dir.segments) {
            return None;
        }
        let is_dir =
            |path: &&Path| matches!(dir.storage.entry(path), Ok(Some(entry)) if entry.kind == EntryKind::Dir);
        // The last ancestor of a relative path is empty, which names no directory.
        let here = |path| if path == Path::new("") { Path::new(".") } else { path };
        dir.segments
            .ancestors()
            .map(here)
            .find(is_dir)
            .filter(|nearest| !is_watched(nearest))
            .map(Path::to_owned)
    }

    /// Reads on until something can be given or there is nothing more.
    fn look(&mut self, look: Look) -> Result<()> {
        self.looks = self.looks.saturating_add(1);
        if look == Look::Wide {
            self.looked = Some(Instant::now());
        }
        while !self.deleted {
            let Self { cursor, queue, given, options, .. } = self;
            let (level, mut ahead) = (options.level, 0_usize);
            let progress = cursor.step(look, &mut |step| {
                ahead = ahead.saturating_add(enqueue(queue, *given, level, step));
                if ahead > AHEAD_MAX { Visited::Enough } else { Visited::Whole }
            })?;
            match progress {
                Progress::Moved | Progress::Stopped if self.is_ready() => break,
                Progress::Moved | Progress::Stopped => {}
                Progress::Idle(TailState::Newer(what)) => {
                    let message = format!("{}: {what}", self.log.dir().segments.display());
                    return Err(Error::new(ErrorKind::Unsupported, "log.newer", message));
                }
                Progress::Idle(_) => break,
                Progress::NoLog => {
                    self.no_log()?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// There is no segment: the log was not begun, was removed, or lost all that it had.
    fn no_log(&mut self) -> Result<()> {
        let dir = self.log.dir();
        let entry =
            dir.storage.entry(&dir.segments).map_err(|e| Error::io("looking at", &dir.segments, e))?;
        if entry.is_some() {
            if let Some(from) = self.cursor.lose_all() {
                enqueue(&mut self.queue, self.given, self.options.level, Step::Retracted { from });
            }
        } else if self.cursor.has_begun() {
            if self.options.level == FollowLevel::Durable {
                // What was not proven so far never will be.
                let durable = self.cursor.durable();
                self.queue.retain(|item| is_proven(item, durable));
            }
            self.queue.push_back(LogItem::Deleted);
            self.deleted = true;
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        match self.options.level {
            FollowLevel::Written => !self.queue.is_empty(),
            FollowLevel::Durable => {
                self.queue.front().is_some_and(|item| is_proven(item, self.cursor.durable()))
            }
        }
    }

    fn ready(&mut self) -> Option<LogItem> {
        let item = if self.is_ready() { self.queue.pop_front() } else { None };
        match &item {
            Some(LogItem::Record(record)) => self.given = record.position.next().unwrap_or(record.position),
            Some(LogItem::Gap(gap)) => {
                self.given =
                    gap.last.and_then(Position::next).map_or(self.given, |next| next.max(self.given));
            }
            Some(LogItem::Retracted { from }) => self.given = *from,
            Some(LogItem::Deleted) => {}
            None if self.deleted => return Some(LogItem::Deleted),
            None => {}
        }
        item
    }
}

fn is_proven(item: &LogItem, durable: Position) -> bool {
    match item {
        LogItem::Record(record) => record.position <= durable,
        // Damage is of records that were acknowledged.
        LogItem::Gap(_) | LogItem::Retracted { .. } | LogItem::Deleted => true,
    }
}

/// Takes in what a step came across. How many bytes it keeps of it.
fn enqueue(queue: &mut VecDeque<LogItem>, given: Position, level: FollowLevel, step: Step<'_>) -> usize {
    match step {
        Step::Frame { frame, from } => {
            let records = frame.records().iter().filter(|record| record.position >= from);
            records.fold(0, |len, record| {
                let record = LogRecord::of(record);
                let len = len.saturating_add(record.len());
                queue.push_back(LogItem::Record(record));
                len
            })
        }
        Step::Gap(gap) => {
            queue.push_back(LogItem::Gap(gap));
            0
        }
        Step::Retracted { from } => {
            // What nobody was given need not be taken back.
            queue.retain(|item| match item {
                LogItem::Record(record) => record.position < from,
                LogItem::Gap(gap) => gap.first < from,
                LogItem::Retracted { .. } | LogItem::Deleted => true,
            });
            if level == FollowLevel::Written && from < given {
                queue.push_back(LogItem::Retracted { from });
            }
            0
        }
    }
}
