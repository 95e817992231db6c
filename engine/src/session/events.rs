//! The log as events: what every reader, exporter and check sees, through one decoder.

use std::ops::ControlFlow;

use sessionlog_codec::event::LoggedEvent;
use sessionlog_codec::ids::{KindNo, NodeId, Position};
use sessionlog_codec::record::Record;

use super::state::logged;
use crate::error::{Error, Result};
use crate::log::{Gap, LogReader, ReadItem, TailState};

/// A record whose checksum holds and whose payload does not decode.
#[derive(Clone, Debug)]
pub struct Undecodable {
    /// Where it stands in the log.
    pub position: Position,
    /// The conversation it belongs to.
    pub node: NodeId,
    /// What it claims to be.
    pub kind: KindNo,
    /// What is wrong with it.
    pub error: Error,
}

/// One thing that a reader of events comes across, in order.
#[derive(Debug)]
pub enum EventItem {
    /// An event.
    Event(Box<LoggedEvent>),
    /// Records that are hurt. Reading goes on behind them.
    Gap(Gap),
    /// A record that could not be read: one bad record costs one record.
    Undecodable(Undecodable),
}

/// Gives every event from `from` on to `visit`, in order, until it breaks off.
pub(crate) fn read_events(
    log: &LogReader,
    from: Position,
    visit: &mut dyn FnMut(EventItem) -> ControlFlow<()>,
) -> Result<TailState> {
    log.read(from, &mut |item| visit(read_item(item)))
}

/// What a reader of records came across, as what a reader of events does.
pub(super) fn read_item(item: ReadItem<'_>) -> EventItem {
    match item {
        ReadItem::Gap(gap) => EventItem::Gap(gap),
        ReadItem::Record(record) => event_item(&record),
    }
}

/// A record as an event, if it can be read.
pub(super) fn event_item(record: &Record<'_>) -> EventItem {
    match logged(record) {
        Ok(event) => EventItem::Event(Box::new(event)),
        Err(error) => EventItem::Undecodable(Undecodable {
            position: record.position,
            node: record.envelope.node,
            kind: record.envelope.kind,
            error,
        }),
    }
}
