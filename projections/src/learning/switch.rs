//! Whether learning is on, and which part of each session fell into a time when it was off.
//!
//! The switch is in the workspace's log and what was said in the sessions', and no time may decide which came first. So a
//! switch is one frame of two events: where each session's log ended at that moment, and the switch itself. Whatever is not
//! told counts as off: a session that could not be read, a switch without ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{Event, HostEvent, LearningSwitch, LoggedEvent};
use sessionlog_codec::ids::{Position, SessionId};

/// The namespace of the event that tells where sessions ended.
pub const SWITCH_NAMESPACE: &str = "sessionlog";
/// Its name.
pub const SWITCH_EVENT: &str = "learning.ends";

/// Where the logs of a workspace's sessions ended; `None` for one that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEnds {
    ends: BTreeMap<SessionId, Option<Position>>,
}

impl FromIterator<(SessionId, Option<Position>)> for SessionEnds {
    fn from_iter<T: IntoIterator<Item = (SessionId, Option<Position>)>>(ends: T) -> Self {
        Self { ends: ends.into_iter().collect() }
    }
}

impl SessionEnds {
    /// The event that comes before the switch, in its frame.
    #[must_use]
    pub fn event(&self) -> HostEvent {
        // A map of texts and numbers has no value that JSON can't say.
        let data = serde_json::to_vec(self).unwrap_or_default();
        let (namespace, name) = (SWITCH_NAMESPACE.to_owned(), SWITCH_EVENT.to_owned());
        HostEvent { namespace, name, data: RawBytes(data), source: None }
    }

    /// How many sessions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn of_event(event: &HostEvent) -> Option<Self> {
        let is_ours = event.namespace == SWITCH_NAMESPACE && event.name == SWITCH_EVENT;
        is_ours.then(|| serde_json::from_slice(&event.data.0).ok()).flatten()
    }
}

/// A time when learning was off.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Off {
    from: Option<SessionEnds>,
    /// `None`: it is off. `Some(None)`: it was switched on, and nobody said where sessions ended then.
    to: Option<Option<SessionEnds>>,
}

/// The switch of one workspace. Derives from its log; without any event, learning is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    offs: Vec<Off>,
    /// Told, and not yet used by a switch.
    ends: Option<SessionEnds>,
}

impl Switches {
    /// Folds one event of the workspace's log.
    pub fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            Event::HostEvent(event) => self.ends = SessionEnds::of_event(event).or(self.ends.take()),
            Event::LearningSwitched(switched) => self.switch(switched.to),
            _ => {}
        }
    }

    fn switch(&mut self, to: LearningSwitch) {
        let ends = self.ends.take();
        match (to, self.now()) {
            (LearningSwitch::Off, LearningSwitch::On) => self.offs.push(Off { from: ends, to: None }),
            (LearningSwitch::On, LearningSwitch::Off) => {
                if let Some(off) = self.offs.last_mut() {
                    off.to = Some(ends);
                }
            }
            _ => {}
        }
    }

    /// Whether learning is on now.
    #[must_use]
    pub fn now(&self) -> LearningSwitch {
        match self.offs.last() {
            Some(Off { to: None, .. }) => LearningSwitch::Off,
            _ => LearningSwitch::On,
        }
    }

    /// What of a session was said while learning was off.
    #[must_use]
    pub fn off_spans(&self, session: SessionId) -> OffSpans {
        // Of a session that is not among those there were: it began later, or nobody knows.
        let end = |ends: &SessionEnds| ends.ends.get(&session).copied();
        let span = |off: &Off| {
            let after = off.from.as_ref().and_then(end).flatten().unwrap_or(Position::START);
            let last = match &off.to {
                None | Some(None) => Position(u64::MAX),
                Some(Some(ends)) => match end(ends) {
                    Some(Some(last)) => last,
                    Some(None) => Position(u64::MAX),
                    None => Position::START,
                },
            };
            (after, last)
        };
        OffSpans(self.offs.iter().map(span).filter(|(after, last)| after < last).collect())
    }
}

/// The positions of one session's log that fell into a time when learning was off: behind the first of each pair, up to and
/// with the second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffSpans(Vec<(Position, Position)>);

impl OffSpans {
    /// All of it.
    #[must_use]
    pub fn everything() -> Self {
        Self(vec![(Position::START, Position(u64::MAX))])
    }

    /// Whether learning was off when the record at `position` was appended.
    #[must_use]
    pub fn contains(&self, position: Position) -> bool {
        self.0.iter().any(|(after, last)| *after < position && position <= *last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sessionlog_codec::event::LearningSwitched;
    use sessionlog_codec::ids::{NodeId, Timestamp};
    use sessionlog_codec::record::TimeOrigin;

    fn session(number: u8) -> SessionId {
        SessionId([number; 16])
    }

    fn fold(events: Vec<Event>) -> Switches {
        let mut switches = Switches::default();
        for (event, position) in events.into_iter().zip(1..) {
            switches.apply(&LoggedEvent {
                position: Position(position),
                node: NodeId::ROOT,
                timestamp: Timestamp(0),
                time_origin: TimeOrigin::Clock,
                cause: None,
                event,
            });
        }
        switches
    }

    fn switched(to: LearningSwitch, ends: &[(u8, Option<u64>)]) -> [Event; 2] {
        let ends = ends.iter().map(|(number, end)| (session(*number), end.map(Position)));
        [ends.collect::<SessionEnds>().event().into(), LearningSwitched { to }.into()]
    }

    fn off(spans: &OffSpans, upto: u64) -> Vec<u64> {
        (1..=upto).filter(|position| spans.contains(Position(*position))).collect()
    }

    #[test]
    fn positions_tell_what_was_said_while_it_was_off() {
        let (on, gone) = (LearningSwitch::On, LearningSwitch::Off);
        let mut events: Vec<Event> = switched(gone, &[(1, Some(3)), (2, None)]).into();
        assert_eq!(fold(events.clone()).now(), gone);
        assert_eq!(off(&fold(events.clone()).off_spans(session(1)), 9), [4, 5, 6, 7, 8, 9]);
        events.extend(switched(on, &[(1, Some(5)), (2, Some(4)), (3, Some(2)), (4, None)]));
        let switches = fold(events.clone());
        assert_eq!(switches.now(), on);
        assert_eq!(off(&switches.off_spans(session(1)), 9), [4, 5]);
        assert_eq!(off(&switches.off_spans(session(2)), 9), [1, 2, 3, 4], "could not be read then");
        assert_eq!(off(&switches.off_spans(session(3)), 9), [1, 2], "began while it was off");
        assert_eq!(off(&switches.off_spans(session(4)), 3), [1, 2, 3], "could not be read when it went on");
        assert_eq!(off(&switches.off_spans(session(5)), 9), [0; 0], "began later");
        events.extend(switched(gone, &[(1, Some(7))]));
        assert_eq!(off(&fold(events).off_spans(session(1)), 9), [4, 5, 8, 9]);
    }

    #[test]
    fn a_switch_that_does_not_say_where_counts_as_off() {
        let gone: Event = LearningSwitched { to: LearningSwitch::Off }.into();
        let on: Event = LearningSwitched { to: LearningSwitch::On }.into();
        let mut events = vec![gone];
        events.extend(switched(LearningSwitch::On, &[(1, Some(2))]));
        assert_eq!(off(&fold(events).off_spans(session(1)), 4), [1, 2]);
        let mut events: Vec<Event> = switched(LearningSwitch::Off, &[(1, Some(2))]).into();
        events.push(on.clone());
        assert_eq!(off(&fold(events).off_spans(session(1)), 4), [3, 4]);
        assert_eq!(fold(vec![on]).off_spans(session(1)), OffSpans::default(), "it was on");
    }
}
