//! Whether a workspace is learned from: said in its log, with where each of its sessions stood at that moment.

use std::path::Path;
use std::sync::Arc;

use sessionlog_codec::event::{LearningSwitch, LearningSwitched, LoggedEvent};
use sessionlog_codec::ids::{KindNo, Position, SessionId};
use sessionlog_codec::registry::kind;
use sessionlog_projections::learning::{OffSpans, SessionEnds, Switches};

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::log::LogReader;
use crate::store::shared_log::{Caught, SharedFold, SharedLog};
use crate::store::{Home, Store, StoreReader, WorkspaceHash, canonical};

/// Whether learning goes on.
#[derive(Clone, Debug)]
pub enum LearnStanding {
    /// It does.
    On,
    /// A person switched it off. Nothing is collected, closed or judged, and nothing is deleted.
    Off,
    /// Nobody knows, so it does not: the workspace's log can't be read.
    Unreadable(Error),
}

impl LearnStanding {
    /// The machine's word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Unreadable(_) => "unreadable",
        }
    }

    /// Whether it goes on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        matches!(self, Self::On)
    }
}

/// What switching did, or would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switched {
    /// It was so already: nothing was written.
    AlreadySo,
    /// It is so from now on, for so many sessions that there are.
    Changed {
        /// The sessions of the workspace.
        sessions: usize,
    },
}

impl SharedFold for Switches {
    const KINDS: &'static [KindNo] = &[kind::HostEvent, kind::LearningSwitched];

    fn apply(&mut self, event: &LoggedEvent) {
        Switches::apply(self, event);
    }
}

/// The switch of one workspace, kept up by reading.
#[derive(Debug)]
pub(crate) struct Switch {
    log: SharedLog,
    caught: Caught<Switches>,
}

impl Switch {
    pub(crate) fn of(home: &Home, clock: &Arc<dyn Clock>, workspace: &WorkspaceHash) -> Self {
        Self { log: SharedLog::of_workspace(home, clock, workspace), caught: Caught::default() }
    }

    pub(crate) fn standing(&mut self) -> LearnStanding {
        match self.log.catch_up(&mut self.caught) {
            Err(error) => LearnStanding::Unreadable(error),
            Ok(()) => match self.caught.get().now() {
                LearningSwitch::On => LearnStanding::On,
                LearningSwitch::Off => LearnStanding::Off,
            },
        }
    }

    /// What of a session was said while learning was off, as far as was read.
    pub(crate) fn off_spans(&self, session: SessionId) -> OffSpans {
        self.caught.get().off_spans(session)
    }
}

impl Store {
    /// Switches learning on or off for the sessions of the directory `workspace`, those to come included. Off: what is said
    /// from now on is never learned from, and no segment is closed or worked on; nothing is deleted. On: it goes on. What
    /// a session appends in the very moment of the switch is on one side of it or the other.
    ///
    /// Durable when it returns. Costs a look at the end of each session of the workspace.
    ///
    /// # Errors
    /// `Corrupt` if the workspace's log is hurt (learning is off then); `Locked` if other processes hold it for seconds;
    /// `Full` or `Io` if it can't be written.
    pub fn switch_learning(&self, workspace: impl AsRef<Path>, to: LearningSwitch) -> Result<Switched> {
        let path = canonical(workspace.as_ref());
        let hash = WorkspaceHash::of(&path);
        let store = self.inner();
        store.home.create_workspace_dir(path.as_os_str().as_encoded_bytes(), &hash)?;
        let mut switch = Switch::of(&store.home, &store.clock, &hash);
        switch.log.transact(&mut switch.caught, |switches| {
            if switches.now() == to {
                return Ok((Vec::new(), Switched::AlreadySo));
            }
            let ends = session_ends(&store.home, &hash)?;
            let sessions = ends.len();
            Ok((vec![ends.event().into(), LearningSwitched { to }.into()], Switched::Changed { sessions }))
        })
    }

    /// Whether the sessions of the directory `workspace` are learned from.
    #[must_use]
    pub fn learning_standing(&self, workspace: impl AsRef<Path>) -> LearnStanding {
        self.reader().learning_standing(workspace)
    }
}

impl StoreReader {
    /// Whether the sessions of the directory `workspace` are learned from.
    #[must_use]
    pub fn learning_standing(&self, workspace: impl AsRef<Path>) -> LearnStanding {
        self.learning_standing_of(&WorkspaceHash::of(&canonical(workspace.as_ref())))
    }

    /// The same, of a workspace by its name in the home.
    #[must_use]
    pub fn learning_standing_of(&self, workspace: &WorkspaceHash) -> LearnStanding {
        self.learning_switch(workspace).standing()
    }

    pub(crate) fn learning_switch(&self, workspace: &WorkspaceHash) -> Switch {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Switch::of(self.home(), &clock, workspace)
    }

    /// What [`Store::switch_learning`] would do now.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if the workspace's log can't be read.
    pub fn plan_switch(&self, workspace: impl AsRef<Path>, to: LearningSwitch) -> Result<Switched> {
        let hash = WorkspaceHash::of(&canonical(workspace.as_ref()));
        let now = match self.learning_standing_of(&hash) {
            LearnStanding::Unreadable(error) => return Err(error),
            LearnStanding::On => LearningSwitch::On,
            LearnStanding::Off => LearningSwitch::Off,
        };
        if now == to {
            return Ok(Switched::AlreadySo);
        }
        Ok(Switched::Changed { sessions: session_ends(self.home(), &hash)?.len() })
    }
}

/// Where the sessions of a workspace end now.
fn session_ends(home: &Home, workspace: &WorkspaceHash) -> Result<SessionEnds> {
    let places = home.sessions()?.into_iter().filter(|place| place.workspace == *workspace);
    let end = |log: &LogReader| match log.mark() {
        Ok(Some(mark)) => Some(Position(mark.next.0.saturating_sub(1))),
        // One that is only being created.
        Err(error) if error.kind() == ErrorKind::NotFound => Some(Position::START),
        // Its end is torn, or its last segment is new: a longer look tells.
        Ok(None) => {
            let mut last = Position::START;
            log.index(&mut |position, _, _| last = last.max(position)).is_ok().then_some(last)
        }
        Err(_) => None,
    };
    Ok(places.map(|place| (place.id, end(&LogReader::new(place.log_dir(&home.storage))))).collect())
}
