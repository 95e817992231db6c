//! What every mapper is: a fold from the records of a source to the events that they mean.

use std::borrow::Cow;

use sessionlog_codec::event::{Event, HeadReason, NewEvent};
use sessionlog_codec::ids::{NodeId, Timestamp};
use sessionlog_codec::record::TimeOrigin;

use super::lines::Record;
use super::loose::cut;
use super::split::{What, text_of};

/// The `n`th message or compaction of a node, from 1: what a head can move to before positions are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Anchor(pub(crate) u64);

/// A `head.moved` whose positions are still to be filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadMove {
    pub(crate) node: NodeId,
    pub(crate) to: Anchor,
    pub(crate) from: Anchor,
    pub(crate) reason: HeadReason,
    pub(crate) stamp: Stamp,
}

/// A time and how far it can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) time_origin: TimeOrigin,
}

/// The times of a source: a record without one happened when the one before it did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    last: Option<Timestamp>,
}

impl Clock {
    /// `first` is the time of records that come before any that has one.
    pub(crate) fn new(first: Option<Timestamp>) -> Self {
        Self { last: first }
    }

    pub(crate) fn stamp(&mut self, own: Option<Timestamp>) -> Stamp {
        self.last = own.or(self.last);
        let time_origin = if own.is_some() { TimeOrigin::Clock } else { TimeOrigin::Estimated };
        Stamp { timestamp: self.last, time_origin }
    }
}

/// What a record was taken for, and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// The source's own word for it.
    pub(crate) kind: Cow<'static, str>,
    /// A move of the head before `events`.
    pub(crate) head: Option<HeadMove>,
    /// The events.
    pub(crate) events: Vec<NewEvent>,
    stamp: Stamp,
}

impl Mapped {
    /// A record that means nothing yet.
    pub(crate) fn new(kind: &str, stamp: Stamp) -> Self {
        // A word of a foreign file, so it may be anything.
        const KIND_LEN_MAX: usize = 80;
        Self { kind: Cow::Owned(cut(kind, KIND_LEN_MAX).to_owned()), head: None, events: Vec::new(), stamp }
    }

    pub(crate) fn push(&mut self, node: NodeId, event: impl Into<Event>) {
        let Stamp { timestamp, time_origin } = self.stamp;
        self.events.push(NewEvent { timestamp, time_origin, ..NewEvent::now(node, event) });
    }

    pub(crate) fn move_head(&mut self, node: NodeId, to: Anchor, from: Anchor, reason: HeadReason) {
        self.head = Some(HeadMove { node, to, from, reason, stamp: self.stamp });
    }
}

/// The record is not one JSON value after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotOneValue;

/// Folds records into events.
pub(crate) trait Mapper {
    /// Maps a record that is [`Unchecked`](super::split::What::Unchecked) or a
    /// [`Value`](super::split::What::Value). Of an unchecked one that is not one value after all, nothing is taken.
    fn map(&mut self, record: &Record<'_>) -> Result<Mapped, NotOneValue>;

    /// What the mapper wants people to know, once the source is at its end.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Hands an object to `map`, which gives nothing back, and changes nothing, if it can't decode it. JSON that is no object
/// gives nothing either.
pub(crate) fn map_object(
    record: &Record<'_>,
    mut map: impl FnMut(&str) -> Option<Mapped>,
) -> Result<Option<Mapped>, NotOneValue> {
    let text = text_of(record.bytes);
    if let Some(mapped) = map(&text) {
        return Ok(Some(mapped));
    }
    if record.what == What::Unchecked {
        return Err(NotOneValue);
    }
    // A repeated key is JSON that decoders refuse. As a value it is read, and the last one counts, as in JavaScript.
    let value = serde_json::from_str::<serde_json::Value>(&text).ok().filter(serde_json::Value::is_object);
    Ok(value.and_then(|value| map(&value.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_a_time_takes_the_one_before_it() {
        let mut clock = Clock::new(None);
        assert_eq!(clock.stamp(None), Stamp { timestamp: None, time_origin: TimeOrigin::Estimated });
        let own = clock.stamp(Some(Timestamp(5)));
        assert_eq!(own, Stamp { timestamp: Some(Timestamp(5)), time_origin: TimeOrigin::Clock });
        let next = clock.stamp(None);
        assert_eq!(next, Stamp { timestamp: Some(Timestamp(5)), time_origin: TimeOrigin::Estimated });
    }
}
