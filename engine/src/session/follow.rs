//! Following a session: its events, as they are written, in this process or another.

use std::time::Duration;

use sessionlog_codec::event::LoggedEvent;
use sessionlog_codec::ids::Position;

use super::events::{EventItem, Undecodable, event_item};
use super::reader::SessionReader;
use crate::error::Result;
use crate::log::{FollowOptions, Gap, LogFollower, LogItem};

/// What a follower of a session comes across, in order.
#[derive(Debug)]
pub enum FollowItem {
    /// An event.
    Event(Box<LoggedEvent>),
    /// Records that are hurt. It goes on behind them.
    Gap(Gap),
    /// A record that could not be read: one bad record costs one record.
    Undecodable(Undecodable),
    /// What was given from this position on is not in the log any more: forget it. What is there now follows. Only of
    /// [`FollowLevel::Written`](crate::FollowLevel::Written).
    Retracted {
        /// The first position that was withdrawn.
        from: Position,
    },
    /// The session was deleted. Nothing comes after this but the same again.
    Deleted,
}

/// A session that is followed, by [`SessionReader::follow`]: each event once, in order, while its owner writes, rolls and
/// seals segments, dies and is followed by another one. Takes no lock and changes no byte.
///
/// An event that is erased after it was given is not given again; one that was erased before is given as what is left of it.
#[derive(Debug)]
pub struct Follower {
    log: LogFollower,
}

impl SessionReader {
    /// Follows the session from the event at `from` on ([`Position`] 1: from the beginning). It may belong to another process
    /// or to this one; nobody need own it now, and it need not exist yet.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sessionlog::codec::ids::Position;
    /// use sessionlog::{FollowItem, FollowOptions, Message, NewSession, Store, StoreReader};
    ///
    /// # fn main() -> sessionlog::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (home, workspace) = (dir.path().join("home"), dir.path());
    /// let session = Store::open(&home)?.create(workspace, NewSession::new("Fix the login test"))?;
    ///
    /// // Anywhere else: another thread, another process.
    /// let mut follower = StoreReader::open(&home)?.session(session.id())?.follow(Position(1), FollowOptions::default());
    /// let mut names = Vec::new();
    /// session.append(Message::user("The login test fails. Fix it."))?;
    /// while let Some(item) = follower.next(Duration::from_millis(10))? {
    ///     match item {
    ///         FollowItem::Event(event) => names.push(event.event.name()),
    ///         FollowItem::Retracted { from } => panic!("power was lost: forget what came from {from} on"),
    ///         FollowItem::Gap(gap) => panic!("a disk is failing: {}", gap.explanation),
    ///         FollowItem::Undecodable(bad) => panic!("{}", bad.error),
    ///         FollowItem::Deleted => break,
    ///     }
    /// }
    /// assert_eq!(names, ["session.created", "session.opened", "message.appended"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn follow(&self, from: Position, options: FollowOptions) -> Follower {
        Follower { log: self.log().follow(from, options) }
    }
}

impl Follower {
    /// The position behind everything that was given: where to go on in another process. See [`LogFollower::position`].
    #[must_use]
    pub fn position(&self) -> Position {
        self.log.position()
    }

    /// How often it looked at the files: for tests and for figures. See [`LogFollower::looks`].
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.log.looks()
    }

    /// The next item if it is there already. Never waits.
    ///
    /// # Errors
    /// `Io` if the files can't be read: nothing is skipped, the next call tries again. `Unsupported` if what follows was written
    /// by a newer version. `Conflict` if another log is in the place of the one that was followed.
    pub fn try_next(&mut self) -> Result<Option<FollowItem>> {
        Ok(self.log.try_next()?.map(FollowItem::of))
    }

    /// The next item, waiting for it for at most `timeout`: `None` if there was none until then. Sleeps until the system tells
    /// of a change, and looks at the files without being told every [`recheck`](FollowOptions::recheck).
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next).
    pub fn next(&mut self, timeout: Duration) -> Result<Option<FollowItem>> {
        Ok(self.log.next(timeout)?.map(FollowItem::of))
    }
}

impl FollowItem {
    fn of(item: LogItem) -> Self {
        match item {
            LogItem::Record(record) => match event_item(&record.as_record()) {
                EventItem::Event(event) => Self::Event(event),
                EventItem::Gap(gap) => Self::Gap(gap),
                EventItem::Undecodable(bad) => Self::Undecodable(bad),
            },
            LogItem::Gap(gap) => Self::Gap(gap),
            LogItem::Retracted { from } => Self::Retracted { from },
            LogItem::Deleted => Self::Deleted,
        }
    }
}
