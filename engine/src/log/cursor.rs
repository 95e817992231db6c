//! A place in a log to go on reading from.

use std::ops::ControlFlow;

use sessionlog_codec::ids::Position;

use super::reader::{LogReader, ReadItem, TailState};
use crate::error::Result;

/// A place in a log to go on reading from. Each record is given once, in order, over any number of calls while the log
/// grows, rolls and changes owners. Its [`position`](Self::position) is all that has to be kept to go on in another process.
///
/// It sees records when they are written, which may be before they are durable: a record that was seen can be gone after a
/// loss of power, and its position taken by another one. Who acts on what it reads compares the chain, or waits for a
/// later record whose frame says that this one is durable.
#[derive(Clone, Debug)]
pub struct Cursor {
    log: LogReader,
    next: Position,
}

impl LogReader {
    /// A cursor that begins with the record at `from`.
    #[must_use]
    pub fn cursor(&self, from: Position) -> Cursor {
        Cursor { log: self.clone(), next: from.max(Position(1)) }
    }
}

impl Cursor {
    /// The record that is read next.
    #[must_use]
    pub fn position(&self) -> Position {
        self.next
    }

    /// Gives every record that is there and was not given yet to `visit`, until it breaks off. A record that it broke off
    /// at counts as given.
    ///
    /// # Errors
    /// As [`LogReader::read`]. Nothing is skipped: the next call goes on where this one stopped.
    pub fn advance(&mut self, visit: &mut dyn FnMut(ReadItem<'_>) -> ControlFlow<()>) -> Result<TailState> {
        let Self { log, next } = self;
        log.read(*next, &mut |item| {
            let after = match &item {
                ReadItem::Record(record) => record.position.next(),
                ReadItem::Gap(gap) => gap.last.and_then(Position::next),
            };
            *next = after.map_or(*next, |after| after.max(*next));
            visit(item)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use sessionlog_codec::ids::{KindNo, LogId, NodeId, SchemaVersion, Timestamp};
    use sessionlog_codec::record::Envelope;

    use super::*;
    use crate::log::{Batch, Durability, LogDir, LogOptions, LogWriter, NewRecord};
    use crate::storage::{SimStorage, Storage};

    #[test]
    fn each_record_once_while_the_log_grows_and_rolls() {
        let storage = SimStorage::new();
        storage.create_dir(Path::new("log")).unwrap();
        let dir = LogDir {
            storage: Arc::new(storage),
            segments: PathBuf::from("log"),
            quarantine: PathBuf::from("quarantine"),
        };
        let options = LogOptions { segment_len: 512, fill_len: 512 };
        let writer = LogWriter::create(dir.clone(), options, LogId([1; 16])).unwrap();
        let mut cursor = LogReader::new(dir.clone()).cursor(Position::START);
        let mut seen = Vec::new();
        for n in 0..40_u8 {
            let envelope = Envelope::new(NodeId::ROOT, KindNo(20), SchemaVersion(1), Timestamp(0));
            let record = NewRecord { envelope, payload: vec![n; 40] };
            writer.append(Batch::new(vec![record]).unwrap(), Durability::Buffered).unwrap();
            if n % 3 == 0 {
                cursor
                    .advance(&mut |item| {
                        let ReadItem::Record(record) = item else { panic!("{item:?}") };
                        seen.push(record.position);
                        // A reader that stops anywhere goes on behind it.
                        if n % 2 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    })
                    .unwrap();
            }
        }
        let mut resumed = LogReader::new(dir).cursor(cursor.position());
        resumed
            .advance(&mut |item| {
                let ReadItem::Record(record) = item else { panic!("{item:?}") };
                seen.push(record.position);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(seen, (1..=40).map(Position).collect::<Vec<_>>());
    }
}
