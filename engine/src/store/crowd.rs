//! Looking at many sessions at once: where their files are not in memory, each look waits for the disk, and a disk does many
//! things at a time.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

/// How many looks are under way at most. They wait more than they work, so this is no matter of processors.
const THREADS: usize = 32;
/// How many sessions a thread takes at a time, at least and at most: what one look costs is less than what it costs to hand it
/// over, and what was found in one go is in memory at once.
const CHUNK: usize = 16;
const CHUNK_MAX: usize = 64;
/// Fewer sessions than these are looked at one after the other.
const WORTH_IT: usize = 2 * CHUNK;

/// Looks at each place, several at a time, and gives what came of it to `take`, on the calling thread and in no order that
/// means anything. What was found and not yet taken is bounded.
pub(crate) fn look_at_each<P: Sync, R: Send>(
    places: &[P],
    look: &(impl Fn(&P) -> R + Sync),
    take: impl FnMut(&P, R),
) {
    let look = |range: Range<usize>| places.get(range).unwrap_or_default().iter().map(look).collect();
    look_at_ranges(places, &look, take);
}

/// The same, of some places that follow one another at a time: `look` is given their range, and gives what came of each.
pub(crate) fn look_at_ranges<P: Sync, R: Send>(
    places: &[P],
    look: &(impl Fn(Range<usize>) -> Vec<R> + Sync),
    mut take: impl FnMut(&P, R),
) {
    let mut take = |range: Range<usize>, results: Vec<R>| {
        let places = places.get(range).unwrap_or_default();
        places.iter().zip(results).for_each(|(place, result)| take(place, result));
    };
    if places.len() < WORTH_IT {
        take(0..places.len(), look(0..places.len()));
        return;
    }
    let chunk = places.len().div_ceil(THREADS).clamp(CHUNK, CHUNK_MAX);
    let next = AtomicUsize::new(0);
    let claim = || {
        let start = next.fetch_add(chunk, Ordering::Relaxed);
        (start < places.len()).then(|| start..start.saturating_add(chunk).min(places.len()))
    };
    std::thread::scope(|scope| {
        let (sender, found) = sync_channel(THREADS);
        for _ in 0..THREADS.min(places.len().div_ceil(chunk)) {
            let (sender, claim) = (sender.clone(), &claim);
            let work = move || {
                while let Some(range) = claim() {
                    let results = look(range.clone());
                    if sender.send((range, results)).is_err() {
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
        for (range, results) in found {
            take(range, results);
        }
    });
    // Nothing is left unless there was no thread at all.
    while let Some(range) = claim() {
        take(range.clone(), look(range));
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
