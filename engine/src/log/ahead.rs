//! Reading a long log: the next segment is read while the one before it is looked at.
//!
//! A disk that has to be asked for each segment in turn stands still while the segment is decoded. A second thread asks for
//! the next one meanwhile, and no further ahead: two segments are in memory at a time. It begins with the second segment, so
//! whoever looks at a log's beginning alone waits for nothing that it does not look at.

use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::{Builder, Scope, scope};

use super::segment::{LogDir, SegmentName};
use super::unpacked::{Spare, Unpacked};
use crate::error::Result;

/// How much there must be to read before a thread is worth its while, in bytes.
const WORTH: u64 = 16 << 20;

/// Gives the bytes of the next segment, whose name is given, if it can be in the memory that is given.
pub(super) type Read<'a> = dyn FnMut(SegmentName, Spare) -> Result<Unpacked> + 'a;

/// Calls `walk`, which asks for the bytes of `segments`, each once, in their order, as far as it likes.
pub(super) fn with_segments<T>(
    dir: &LogDir,
    segments: &[(SegmentName, u64)],
    walk: impl FnOnce(&mut Read<'_>) -> T,
) -> T {
    let len = segments.iter().fold(0_u64, |sum, (_, len)| sum.saturating_add(*len));
    if len < WORTH {
        return walk(&mut |name, spare| dir.read_all_into(name, spare));
    }
    with_a_thread(dir, segments, walk)
}

fn with_a_thread<T>(
    dir: &LogDir,
    segments: &[(SegmentName, u64)],
    walk: impl FnOnce(&mut Read<'_>) -> T,
) -> T {
    scope(|scope| {
        let (mut is_first, mut ahead) = (true, None);
        walk(&mut |name, spare| {
            if std::mem::take(&mut is_first) {
                return dir.read_all_into(name, spare);
            }
            if ahead.is_none() {
                let rest = segments.iter().skip_while(move |(coming, _)| *coming != name);
                ahead = Ahead::start(scope, dir, rest.map(|(name, _)| *name));
            }
            match ahead.as_ref().and_then(|ahead| ahead.next(name, spare)) {
                Some(read) => read,
                None => dir.read_all_into(name, Spare::default()),
            }
        })
    })
}

/// The thread that reads ahead, seen from the one that it reads for.
struct Ahead {
    read: Receiver<(SegmentName, Result<Unpacked>)>,
    /// Memory that was looked at, to be read into again.
    used: Sender<Spare>,
}

impl Ahead {
    /// `None` if the system has no thread left.
    fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        dir: &'scope LogDir,
        mut segments: impl Iterator<Item = SegmentName> + Send + 'scope,
    ) -> Option<Self> {
        // Nothing is kept between the two: what is read and not yet taken is all that is ahead.
        let (full, read) = sync_channel(0);
        let (used, empty) = channel::<Spare>();
        let run = move || {
            // Whoever is through with the log takes nothing any more, and this ends.
            let mut wanted = true;
            while let Some(name) = segments.next().filter(|_| wanted) {
                let read = dir.read_all_into(name, empty.try_recv().unwrap_or_default());
                wanted = full.send((name, read)).is_ok();
            }
        };
        let started = Builder::new().name("sessionlog-ahead".to_owned()).spawn_scoped(scope, run);
        started.is_ok().then_some(Self { read, used })
    }

    /// `None` if it has not read this segment, which is for the caller to do.
    fn next(&self, name: SegmentName, spare: Spare) -> Option<Result<Unpacked>> {
        // An error says that the thread is gone; its memory is then of no use to it.
        drop(self.used.send(spare));
        let (read, result) = self.read.recv().ok()?;
        (read == name).then_some(result)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use sessionlog_codec::ids::Position;

    use super::*;
    use crate::error::ErrorKind;
    use crate::storage::{SimStorage, Storage};

    /// Files that are no segments but for their names: what is read is not looked at here.
    fn files(count: u64) -> (LogDir, Vec<(SegmentName, u64)>) {
        let storage = SimStorage::new();
        storage.create_dir(Path::new("log")).unwrap();
        let dir =
            LogDir { storage: Arc::new(storage), segments: "log".into(), quarantine: "quarantine".into() };
        let segments: Vec<_> = (1..=count).map(|n| (SegmentName(Position(n)), n * 10)).collect();
        for (name, len) in &segments {
            let file = dir.storage.create_new(&dir.segment_path(*name)).unwrap();
            file.write_at(&content(*name, *len), 0).unwrap();
        }
        (dir, segments)
    }

    fn content(name: SegmentName, len: u64) -> Vec<u8> {
        vec![u8::try_from(name.0.0).unwrap(); usize::try_from(len).unwrap()]
    }

    #[test]
    fn every_segment_is_read_once_and_in_order() {
        let (dir, segments) = files(20);
        with_a_thread(&dir, &segments, |next| {
            for (name, len) in &segments {
                assert_eq!(*next(*name, Spare::default()).unwrap(), content(*name, *len));
            }
        });
    }

    #[test]
    fn whoever_stops_is_not_kept() {
        let (dir, segments) = files(20);
        for wanted in 0..5 {
            with_a_thread(&dir, &segments, |next| {
                for (name, len) in segments.iter().take(wanted) {
                    assert_eq!(*next(*name, Spare::default()).unwrap(), content(*name, *len));
                }
            });
        }
    }

    #[test]
    fn what_can_not_be_read_is_told_in_its_turn() {
        let (dir, segments) = files(6);
        let (missing, _) = segments.get(3).unwrap();
        dir.storage.remove_file(&dir.segment_path(*missing)).unwrap();
        with_a_thread(&dir, &segments, |next| {
            for (name, len) in &segments {
                match next(*name, Spare::default()) {
                    Ok(bytes) => assert_eq!(*bytes, content(*name, *len)),
                    Err(error) => assert_eq!((error.kind(), name), (ErrorKind::NotFound, missing)),
                }
            }
        });
    }
}
