//! What a crash leaves.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Contents of `path` over many seeds; `None` where the file is not there.
fn outcomes(storage: &SimStorage, path: &str) -> BTreeSet<Option<Vec<u8>>> {
    (0..400).map(|seed| storage.power_cut(CrashMode::Seeded(seed)).read_file(path)).collect()
}

fn after_loss(storage: &SimStorage, path: &str) -> Option<Vec<u8>> {
    let left = storage.power_cut(CrashMode::LoseAll).read_file(path);
    assert_eq!(left, storage.durable_file(path), "durable_file is what LoseAll leaves");
    left
}

#[test]
fn bytes_survive_from_their_sync_on() {
    let (storage, file) = with_file(b"old");
    file.write_at(b"new!", 0).unwrap();
    assert_eq!(storage.read_file("a").unwrap(), b"new!");
    assert_eq!(after_loss(&storage, "a").unwrap(), b"old");
    file.sync_data().unwrap();
    assert_eq!(after_loss(&storage, "a").unwrap(), b"new!");
    file.set_len(2).unwrap();
    assert_eq!(after_loss(&storage, "a").unwrap(), b"new!");
    file.sync_all().unwrap();
    assert_eq!(after_loss(&storage, "a").unwrap(), b"ne");
    assert_eq!(outcomes(&storage, "a").len(), 1);
}

#[test]
fn names_survive_from_their_sync_on() {
    let storage = SimStorage::new();
    let root = Path::new("/");
    let file = create(&storage, "a", b"abc");
    file.sync_all().unwrap();
    assert_eq!(after_loss(&storage, "a"), None, "a synced file without a synced name is gone");
    storage.sync_dir(root).unwrap();
    assert_eq!(after_loss(&storage, "a").unwrap(), b"abc");
    storage.rename(Path::new("a"), Path::new("b")).unwrap();
    assert_eq!(after_loss(&storage, "a").unwrap(), b"abc");
    assert_eq!(after_loss(&storage, "b"), None);
    storage.sync_dir(root).unwrap();
    assert_eq!(after_loss(&storage, "a"), None);
    assert_eq!(after_loss(&storage, "b").unwrap(), b"abc");
    storage.remove_file(Path::new("b")).unwrap();
    assert_eq!(after_loss(&storage, "b").unwrap(), b"abc");
    storage.sync_dir(root).unwrap();
    assert_eq!(after_loss(&storage, "b"), None);
}

#[test]
fn synced_name_without_synced_bytes_is_an_empty_file() {
    let storage = SimStorage::new();
    let _file = create(&storage, "a", b"abc");
    storage.sync_dir(Path::new("/")).unwrap();
    assert_eq!(after_loss(&storage, "a").unwrap(), b"");
}

#[test]
fn directories_need_their_parent_synced() {
    let storage = SimStorage::new();
    storage.create_dir(Path::new("d")).unwrap();
    create(&storage, "d/a", b"abc").sync_all().unwrap();
    storage.sync_dir(Path::new("d")).unwrap();
    assert_eq!(after_loss(&storage, "d/a"), None);
    storage.sync_dir(Path::new("/")).unwrap();
    assert_eq!(after_loss(&storage, "d/a").unwrap(), b"abc");
}

#[test]
fn rename_onto_a_file_leaves_one_or_the_other() {
    let (storage, _file) = with_file(b"old");
    create(&storage, "tmp", b"new").sync_all().unwrap();
    storage.sync_dir(Path::new("/")).unwrap();
    storage.rename(Path::new("tmp"), Path::new("a")).unwrap();
    let expected = [Some(b"new".to_vec()), Some(b"old".to_vec())];
    assert_eq!(outcomes(&storage, "a"), BTreeSet::from(expected));
}

#[test]
fn rename_between_directories_may_leave_both_names_or_none() {
    let storage = SimStorage::new();
    storage.put_file("d/a", *b"abc").unwrap();
    storage.put_file("e/other", *b"").unwrap();
    storage.rename(Path::new("d/a"), Path::new("e/a")).unwrap();
    let names = |storage: &SimStorage| ["d/a", "e/a"].map(|path| storage.read_file(path).is_some());
    let cuts: BTreeSet<_> = (0..100).map(|seed| names(&storage.power_cut(CrashMode::Seeded(seed)))).collect();
    assert_eq!(cuts.len(), 4);
    storage.sync_dir(Path::new("e")).unwrap();
    assert_eq!(names(&storage.power_cut(CrashMode::LoseAll)), [true, true]);
    storage.sync_dir(Path::new("d")).unwrap();
    assert_eq!(names(&storage.power_cut(CrashMode::LoseAll)), [false, true]);
}

#[test]
fn directory_with_two_names_after_a_crash_does_no_harm() {
    let storage = SimStorage::new();
    for dir in ["a", "b", "a/c"] {
        storage.create_dir(Path::new(dir)).unwrap();
        storage.sync_dir(Path::new("/")).unwrap();
    }
    storage.sync_dir(Path::new("a")).unwrap();
    storage.rename(Path::new("a/c"), Path::new("b/c")).unwrap();
    storage.rename(Path::new("a"), Path::new("b/c/a")).unwrap();
    for seed in 0..200 {
        let cut = storage.power_cut(CrashMode::Seeded(seed));
        assert!(cut.files().is_empty());
    }
}

#[test]
fn torn_write_has_sectors_of_every_kind() {
    let (storage, file) = with_file(&[1; 1500]);
    // Sectors 0 (from 100), 1, 2, 3 (up to 2000); the file grows by 500 bytes.
    file.write_at(&[2; 1900], 100).unwrap();
    let mut seen = BTreeSet::new();
    let mut lengths = BTreeSet::new();
    for content in outcomes(&storage, "a") {
        let content = content.unwrap();
        lengths.insert(content.len());
        assert!(content[..100].iter().all(|byte| *byte == 1), "bytes outside of the write changed");
        for (sector, range) in [(0, 100..512), (1, 512..1024), (2, 1024..1500)] {
            let bytes = &content[range];
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn within a sector");
            seen.insert((sector, bytes[0]));
        }
        let grown = &content[1500..];
        assert!(grown.iter().all(|byte| *byte == 0 || *byte == 2));
    }
    let every = (0..3).flat_map(|sector| (0..3).map(move |byte| (sector, byte)));
    assert_eq!(seen, every.collect());
    assert_eq!(lengths, BTreeSet::from([1500, 1536, 2000]));
}

#[test]
fn length_may_survive_without_its_bytes() {
    let (storage, file) = with_file(b"abc");
    file.write_at(b"def", 3).unwrap();
    let expected = ["abc", "abcdef", "abc\0\0\0"].map(|text| Some(text.as_bytes().to_vec()));
    assert_eq!(outcomes(&storage, "a"), BTreeSet::from(expected));
}

#[test]
fn writes_survive_in_any_subset() {
    let (storage, file) = with_file(&[0; 1024]);
    file.write_at(&[1; 512], 0).unwrap();
    file.write_at(&[2; 512], 512).unwrap();
    let kept: BTreeSet<_> = outcomes(&storage, "a").into_iter().flatten().map(|c| (c[0], c[512])).collect();
    assert_eq!(kept, BTreeSet::from([(0, 0), (1, 0), (0, 2), (1, 2)]));
}

#[test]
fn names_survive_in_any_subset() {
    let storage = SimStorage::new();
    for path in ["a", "b"] {
        create(&storage, path, b"abc").sync_all().unwrap();
    }
    let kept: BTreeSet<_> = (0..100).map(|seed| storage.power_cut(CrashMode::Seeded(seed)).files()).collect();
    assert_eq!(kept.len(), 4);
}

#[test]
fn failed_sync_gives_up_what_was_pending_for_good() {
    let (storage, file) = with_file(&[0; 8]);
    storage.fail(Fault::new(CallKind::SyncData, FaultError::EIO));
    file.write_at(b"lost", 0).unwrap();
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    assert_eq!(storage.read_file("a").unwrap(), b"lost\0\0\0\0", "reads still see it");
    assert_eq!(after_loss(&storage, "a").unwrap(), [0; 8]);
    file.write_at(b"kept", 2).unwrap();
    file.sync_data().unwrap();
    assert_eq!(after_loss(&storage, "a").unwrap(), b"\0\0kept\0\0");
    let outcomes = outcomes(&storage, "a");
    assert!(outcomes.contains(&Some(b"lokept\0\0".to_vec())), "a seed may keep it");
    for outcome in outcomes {
        assert_eq!(&outcome.unwrap()[2..], b"kept\0\0", "it never covers what was synced later");
    }
}

#[test]
fn failed_directory_sync_gives_up_its_names() {
    let storage = SimStorage::new();
    create(&storage, "a", b"abc").sync_all().unwrap();
    storage.fail(Fault::new(CallKind::SyncDir, FaultError::EIO));
    assert!(storage.sync_dir(Path::new("/")).is_err());
    storage.sync_dir(Path::new("/")).unwrap();
    assert!(storage.read_file("a").is_some());
    assert_eq!(after_loss(&storage, "a"), None);
}

#[test]
fn crash_kills_handles_and_frees_locks() {
    for mode in [CrashMode::KeepAll, CrashMode::LoseAll, CrashMode::Seeded(1)] {
        let (storage, file) = with_file(b"abc");
        let path = Path::new("lock");
        let old = storage.try_lock(path).unwrap();
        storage.fail(Fault::any(FaultError::EIO).after(9));
        let calls = storage.calls();
        storage.crash(mode);
        assert_eq!(storage.armed_faults(), 0);
        assert_eq!(storage.is_locked(path), Some(Locked::Free));
        let new = storage.try_lock(path).unwrap();
        for result in [
            file.write_at(b"x", 0),
            file.write_at(b"", 0),
            file.read_at(&mut [0], 0).map(drop),
            file.sync_data(),
            file.sync_all(),
            file.set_len(0),
            file.len().map(drop),
            old.write_text("x"),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Other);
            assert_eq!(error.to_string(), "handle from before the crash");
        }
        drop(old);
        assert!(matches!(storage.try_lock(path), Err(LockError::Held)), "an old guard freed a new lock");
        drop(new);
        assert_eq!(storage.calls().len(), calls.len() + 3, "dead calls are not listed");
        assert_eq!(storage.read_file("a").unwrap(), b"abc");
    }
}

#[test]
fn killed_process_loses_nothing_until_the_power_goes_too() {
    let (storage, file) = with_file(b"abc");
    file.write_at(b"def", 3).unwrap();
    let _other = create(&storage, "b", b"123");
    storage.crash(CrashMode::KeepAll);
    assert_eq!(storage.read_file("a").unwrap(), b"abcdef");
    assert_eq!(storage.read_file("b").unwrap(), b"123");
    assert_eq!(after_loss(&storage, "a").unwrap(), b"abc");
    storage.open(Path::new("a"), Access::Read).unwrap().sync_all().unwrap();
    storage.crash(CrashMode::LoseAll);
    assert_eq!(storage.read_file("a").unwrap(), b"abcdef");
    assert_eq!(storage.read_file("b"), None);
}

#[test]
fn power_cut_leaves_the_original_alone() {
    let (storage, file) = with_file(b"abc");
    file.write_at(b"x", 0).unwrap();
    storage.fail(Fault::any(FaultError::EIO).after(9));
    let cut = storage.power_cut(CrashMode::LoseAll);
    assert!(cut.calls().is_empty());
    assert_eq!((cut.armed_faults(), storage.armed_faults()), (0, 1));
    cut.put_file("b", *b"1").unwrap();
    file.write_at(b"y", 1).unwrap();
    assert_eq!(storage.read_file("a").unwrap(), b"xyc");
    assert_eq!(cut.read_file("a").unwrap(), b"abc");
    assert_eq!(storage.read_file("b"), None);
}

#[test]
fn open_file_outlives_its_name() {
    let (storage, file) = with_file(b"abc");
    storage.remove_file(Path::new("a")).unwrap();
    let mut bytes = [0; 3];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 3);
    assert_eq!(&bytes, b"abc");
    storage.crash(CrashMode::LoseAll);
    assert_eq!(storage.read_file("a").unwrap(), b"abc", "the removal was not synced");
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    SetLen(usize),
    Sync,
    FailedSync,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..3000_usize, 1..255_u8, 1..2000_usize).prop_map(|(at, byte, len)| Step::Write(at, vec![byte; len])),
        2 => (0..4000_usize).prop_map(Step::SetLen),
        2 => Just(Step::Sync),
        1 => Just(Step::FailedSync),
    ]
}

proptest! {
    /// The one promise: what a sync made durable is there, whatever happened around it.
    #[test]
    fn synced_bytes_survive_every_crash(steps in prop::collection::vec(step(), 1..12), seed: u64) {
        let (storage, file) = with_file(b"");
        // The bytes that a sync covered and nobody touched since.
        let mut known: Vec<Option<u8>> = Vec::new();
        let mut touched = BTreeSet::new();
        for step in steps {
            match step {
                Step::Write(at, bytes) => {
                    file.write_at(&bytes, at as u64).unwrap();
                    touched.extend(at..at + bytes.len());
                }
                Step::SetLen(len) => {
                    // What it cuts, and where it will end: the rest of the file as far as this test looks.
                    file.set_len(len as u64).unwrap();
                    touched.extend(len..5000);
                }
                Step::Sync => {
                    file.sync_data().unwrap();
                    let current = storage.read_file("a").unwrap();
                    known.resize(5000, None);
                    for at in std::mem::take(&mut touched) {
                        known[at] = current.get(at).copied();
                    }
                }
                Step::FailedSync => {
                    storage.fail(Fault::new(CallKind::SyncData, FaultError::EIO));
                    file.sync_data().unwrap_err();
                    // Nothing is known of these until they are written again.
                    known.resize(5000, None);
                    for at in std::mem::take(&mut touched) {
                        known[at] = None;
                    }
                }
            }
        }
        let cut = storage.power_cut(CrashMode::Seeded(seed));
        let left = cut.read_file("a").unwrap();
        let least = storage.durable_file("a").unwrap();
        for (at, byte) in known.iter().enumerate() {
            if let Some(byte) = byte && !touched.contains(&at) {
                prop_assert_eq!(left.get(at), Some(byte), "at {}", at);
                prop_assert_eq!(least.get(at), Some(byte), "at {}, all lost", at);
            }
        }
        let again = storage.power_cut(CrashMode::Seeded(seed));
        prop_assert_eq!(again.read_file("a").unwrap(), left);
        let dead = cut.power_cut(CrashMode::LoseAll);
        prop_assert_eq!(dead.read_file("a"), cut.read_file("a"), "after a crash all is durable");
    }
}
