//! Looking at many sessions at once: where their files are not in memory, each look waits for the disk, and a disk does many
//! things at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

/// How many looks are under way at most. They wait more than they work, so this is no matter of processors.
const THREADS: usize = 32;
/// How many sessions a thread takes at a time: what one look costs is less than what it costs to hand it over.
const CHUNK: usize = 16;
/// Fewer sessions than these are looked at one after the other.
const WORTH_IT: usize = 2 * CHUNK;

/// Looks at each place, several at a time, and gives what came of it to `take`, on the calling thread and in no order that
/// means anything. What was found and not yet taken is bounded.
pub(crate) fn look_at_each<P: Sync, R: Send>(
    places: &[P],
    look: &(impl Fn(&P) -> R + Sync),
    mut take: impl FnMut(&P, R),
) {
    if places.len() < WORTH_IT {
        places.iter().for_each(|place| take(place, look(place)));
        return;
    }
    let chunks: Vec<&[P]> = places.chunks(CHUNK).collect();
    let next = AtomicUsize::new(0);
    let claim = || chunks.get(next.fetch_add(1, Ordering::Relaxed)).copied();
    std::thread::scope(|scope| {
        let (sender, found) = sync_channel(THREADS);
        for _ in 0..THREADS.min(chunks.len()) {
            let (sender, claim) = (sender.clone(), &claim);
            let work = move || {
                while let Some(chunk) = claim() {
                    let results: Vec<R> = chunk.iter().map(look).collect();
                    if sender.send((chunk, results)).is_err() {
                        return;
                    }
                }
            };
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                // The system has no thread left: those that there are do the work.
                break;
            }
        }
        drop(sender);
        for (chunk, results) in found {
            chunk.iter().zip(results).for_each(|(place, result)| take(place, result));
        }
    });
    // Nothing is left unless there was no thread at all.
    while let Some(chunk) = claim() {
        chunk.iter().for_each(|place| take(place, look(place)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use sessionlog_codec::ids::SessionId;

    use super::*;
    use crate::store::{SessionPlace, WorkspaceHash};

    #[test]
    fn each_place_once() {
        let workspace = WorkspaceHash::of(&PathBuf::from("/w"));
        for count in [0, 1, WORTH_IT - 1, WORTH_IT, 1000, 1003] {
            let place = |nth: usize| SessionPlace {
                id: SessionId([0; 16]),
                workspace: workspace.clone(),
                dir: PathBuf::from(nth.to_string()),
            };
            let places: Vec<_> = (0..count).map(place).collect();
            let mut taken = BTreeSet::new();
            look_at_each(&places, &|place| place.dir.clone(), |place, dir| {
                assert_eq!(place.dir, dir);
                assert!(taken.insert(dir), "twice");
            });
            assert_eq!(taken.len(), count);
        }
    }
}
