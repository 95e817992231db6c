//! What was acknowledged, and whether it is all there, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use sessionlog::codec::event::{Event, Part};
use sessionlog::codec::ids::{Position, SessionId};
use sessionlog::log::Severity;
use sessionlog::projections::validate_pairing;
use sessionlog::session::EventItem;
use sessionlog::{Durability, ErrorKind, Message, SessionReader, Store, StoreOptions};

use super::host::{Lie, options, said};

/// What the host said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    sessions: BTreeMap<SessionId, Facts>,
    /// Positions that may be erased, in a session or in what it was forked from.
    may_be_erased: BTreeSet<Position>,
    pub(crate) acks: u64,
}

#[derive(Clone, Debug, Default)]
struct Facts {
    /// Up to here everything was acknowledged.
    last: Option<Position>,
    /// What was acknowledged to be where.
    at: BTreeMap<Position, String>,
    erased: BTreeSet<Position>,
    /// The last message that was ever submitted.
    tried: Option<u64>,
}

impl Told {
    /// Takes in one line of the host: `ack SESSION POSITION WHAT` or `try SESSION NUMBER WHAT`.
    pub(crate) fn note(&mut self, line: &str) {
        let mut words = line.splitn(4, ' ');
        let kind = words.next();
        if !matches!(kind, Some("ack" | "try")) {
            return;
        }
        let id = words.next().unwrap().parse().unwrap();
        let number: u64 = words.next().unwrap().parse().unwrap();
        let (what, position) = (words.next().unwrap(), Position(number));
        let facts = self.sessions.entry(id).or_default();
        match (kind, what) {
            (Some("try"), "erase") => drop(self.may_be_erased.insert(position)),
            (Some("try"), _) => facts.tried = facts.tried.max(Some(number)),
            (_, "erased") => drop(facts.erased.insert(position)),
            (_, "own") => facts.last = facts.last.max(Some(position)),
            (_, what) => {
                facts.last = facts.last.max(Some(position));
                facts.at.insert(position, what.to_owned());
            }
        }
        self.acks += u64::from(kind == Some("ack"));
    }

    /// What is known when the next host goes on after a cut: what was acknowledged before it, and all that was tried.
    pub(crate) fn with_attempts_of(mut self, later: &Self) -> Self {
        for (id, facts) in &later.sessions {
            let known = self.sessions.entry(*id).or_default();
            known.tried = known.tried.max(facts.tried);
        }
        self.may_be_erased.clone_from(&later.may_be_erased);
        self
    }

    /// Looks at a home after a cut. `self` is what had been said before the cut, `later` what was said up to now: what the
    /// host was about to do may have happened. What is wrong, if anything is.
    pub(crate) fn check(&self, later: &Self, home: &Path) -> Result<Seen, String> {
        let mut seen = Seen::default();
        let acknowledged = self.sessions.iter().filter(|(_, facts)| facts.last.is_some());
        let missing = |id: &SessionId| format!("session {id} was acknowledged and is not there");
        let Ok(store) =
            Store::open_with(home, StoreOptions { durability: Durability::Sync, ..options(Lie::Honest) })
        else {
            return Err("the home does not open".to_owned());
        };
        let places = store.reader().places().map_err(|error| format!("{error:?}"))?;
        let there: BTreeSet<SessionId> = places.iter().map(|place| place.id).collect();
        for (id, _) in acknowledged {
            if !there.contains(id) {
                return Err(missing(id));
            }
        }
        for id in there {
            let facts = self.sessions.get(&id);
            let (last, invented) = (facts.and_then(|facts| facts.last), !later.sessions.contains_key(&id));
            match self.session(later, &store, id, &mut seen) {
                Err(error) if error.starts_with("NotFound") && last.is_none() => seen.unborn += 1,
                Err(error) => return Err(format!("session {id}: {error}")),
                // A fork's id is said when there is one.
                Ok(()) if invented => seen.unsaid += 1,
                Ok(()) => {}
            }
        }
        Ok(seen)
    }

    fn session(&self, later: &Self, store: &Store, id: SessionId, seen: &mut Seen) -> Result<(), String> {
        let text = |error: sessionlog::Error| format!("{:?}: {error}", error.kind());
        let reader = store.reader().session(id).map_err(text)?;
        match reader.verify() {
            Ok(found) if found.worst() > Some(Severity::Repairable) => {
                return Err(format!("before recovery: {:?}", found.all().collect::<Vec<_>>()));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(text(error)),
            _ => {}
        }
        let (session, report) = store.resume(id).map_err(text)?;
        seen.sessions += 1;
        seen.torn += u64::from(report.cut.is_some());
        let events = events(&reader, report.last)?;
        let nobody = Facts::default();
        let facts = self.sessions.get(&id).unwrap_or(&nobody);
        let submitted = later.sessions.get(&id).unwrap_or(&nobody);
        later.compare(facts, submitted, &events, report.last)?;
        session.append(Message::user("going on")).map_err(text)?;
        let context = session.context().map_err(text)?;
        validate_pairing(&context).map_err(|error| format!("{error:?}"))?;
        session.close().map_err(text)?;
        let found = reader.verify().map_err(text)?;
        match found.worst() {
            None => Ok(()),
            Some(_) => Err(format!("after recovery: {:?}", found.all().collect::<Vec<_>>())),
        }
    }

    /// Holds what was found against what was acknowledged (`facts`) and what was ever submitted.
    fn compare(
        &self,
        facts: &Facts,
        submitted: &Facts,
        events: &BTreeMap<Position, String>,
        last: Position,
    ) -> Result<(), String> {
        if Some(last) < facts.last {
            return Err(format!("acknowledged up to {:?}, there up to {last}", facts.last));
        }
        let erasable = |position: &Position| self.may_be_erased.contains(position);
        for (position, what) in &facts.at {
            match events.get(position) {
                Some(found) if found == what || (found == "erased" && erasable(position)) => {}
                found => {
                    return Err(format!("at {position} {what} was acknowledged, and there is {found:?}"));
                }
            }
        }
        for position in &facts.erased {
            if events.get(position).is_none_or(|found| found != "erased") {
                return Err(format!("{position} was acknowledged as erased, and is not"));
            }
        }
        for (position, found) in events {
            let number = found.strip_prefix("message ").map(|number| number.parse::<u64>().unwrap());
            if found == "erased" && !erasable(position) {
                return Err(format!("{position} is erased, and nobody asked for that"));
            }
            if submitted.tried.is_some() && number > submitted.tried {
                return Err(format!("{found} at {position} was never submitted"));
            }
        }
        Ok(())
    }
}

/// What a check came across.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Sessions that were resumed.
    pub(crate) sessions: u64,
    /// Torn tails that were cut off.
    pub(crate) torn: u64,
    /// Sessions whose creation the cut interrupted.
    pub(crate) unborn: u64,
    /// Sessions that were there before their host could say so.
    pub(crate) unsaid: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.torn += other.torn;
        self.unborn += other.unborn;
        self.unsaid += other.unsaid;
    }
}

/// What is at each position up to `last`, in the words of the host.
fn events(reader: &SessionReader, last: Position) -> Result<BTreeMap<Position, String>, String> {
    let (mut events, mut wrong) = (BTreeMap::new(), None);
    let mut expected = Position(1);
    let read = reader.events(Position(1), &mut |item| {
        let EventItem::Event(logged) = item else {
            wrong = Some(format!("{item:?}"));
            return ControlFlow::Break(());
        };
        if logged.position != expected {
            wrong = Some(format!("position {} follows {expected}", logged.position));
            return ControlFlow::Break(());
        }
        expected = Position(expected.0 + 1);
        if logged.position > last {
            return ControlFlow::Break(());
        }
        match in_words(&logged.event) {
            Ok(Some(words)) => drop(events.insert(logged.position, words)),
            Ok(None) => {}
            Err(error) => wrong = Some(format!("at {}: {error}", logged.position)),
        }
        if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    read.map_err(|error| format!("{error:?}"))?;
    wrong.map_or(Ok(events), Err)
}

fn in_words(event: &Event) -> Result<Option<String>, String> {
    Ok(match event {
        Event::MessageAppended(it) => {
            let number = it.message_no.0;
            if it.parts != [Part::text(said(number))] {
                return Err(format!("message {number} says {:?}", it.parts));
            }
            Some(format!("message {number}"))
        }
        Event::CallFinished(it) => match it.parts.as_slice() {
            [Part::Text(text)] => text.strip_prefix("result of ").map(|number| format!("result {number}")),
            _ => None,
        },
        Event::TurnEnded(_) => Some("turn".to_owned()),
        Event::Erased { .. } => Some("erased".to_owned()),
        _ => None,
    })
}
