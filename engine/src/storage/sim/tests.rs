//! Each rule of the simulation.

use super::*;

#[cfg(target_os = "linux")]
mod agreement;
mod crashes;

/// A storage with one synced file `a` and this content.
fn with_file(content: &[u8]) -> (SimStorage, Arc<dyn StorageFile>) {
    let storage = SimStorage::new();
    storage.put_file("a", content).unwrap();
    let file = storage.open(Path::new("a"), Access::ReadWrite).unwrap();
    storage.take_calls();
    (storage, file)
}

fn create(storage: &SimStorage, path: &str, content: &[u8]) -> Arc<dyn StorageFile> {
    let file = storage.create_new(Path::new(path)).unwrap();
    file.write_at(content, 0).unwrap();
    file
}

fn lines(calls: &[Call]) -> Vec<String> {
    calls.iter().map(ToString::to_string).collect()
}

#[test]
fn lists_calls_compactly() {
    let storage = SimStorage::new();
    storage.create_dir(Path::new("log")).unwrap();
    let file = create(&storage, "log/000.seg", &[7; 4096]);
    file.read_at(&mut [0; 10], 128).unwrap();
    file.set_len(128).unwrap();
    file.len().unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    storage.rename(Path::new("log/000.seg"), Path::new("log/001.seg")).unwrap();
    storage.sync_dir(Path::new("log")).unwrap();
    storage.open(Path::new("log/001.seg"), Access::Read).unwrap();
    assert!(storage.open(Path::new("log/000.seg"), Access::ReadWrite).is_err());
    storage.list(Path::new("log")).unwrap();
    storage.entry(Path::new("/log")).unwrap();
    storage.try_lock(Path::new("lock")).unwrap().write_text("me").unwrap();
    storage.is_locked(Path::new("lock"));
    storage.remove_file(Path::new("log/001.seg")).unwrap();
    let expected = [
        "create_dir log",
        "create log/000.seg",
        "write log/000.seg @0+4096",
        "read log/000.seg @128+10",
        "set_len log/000.seg 128",
        "stat log/000.seg",
        "sync_data log/000.seg",
        "sync_all log/000.seg",
        "rename log/000.seg -> log/001.seg",
        "sync_dir log",
        "open log/001.seg (read)",
        "open log/000.seg (read, write)",
        "list log",
        "stat /log",
        "lock lock",
        "set_len lock 0",
        "write lock @0+2",
        "stat lock",
        "remove log/001.seg",
    ];
    assert_eq!(lines(&storage.calls()), expected);
    let changes = storage.take_calls().iter().filter(|call| call.changes_disk()).count();
    assert_eq!(changes, 11);
    assert!(storage.calls().is_empty());
}

#[test]
fn paths_are_lexical() {
    let storage = SimStorage::new();
    storage.put_file("/x/y", *b"1").unwrap();
    assert_eq!(storage.read_file("x/./y").unwrap(), b"1");
    assert_eq!(storage.files(), [PathBuf::from("x/y")]);
    assert_eq!(format!("{storage:?}"), r#"SimStorage {"x/y": 1}"#);
    let above = Path::new("x/../x/y");
    assert_eq!(storage.open(above, Access::Read).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let orphan = storage.create_new(Path::new("z/y")).unwrap_err();
    assert_eq!(orphan.kind(), io::ErrorKind::NotFound);
    let dir = storage.open(Path::new("x"), Access::Read).unwrap_err();
    assert_eq!(dir.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(storage.create_new(Path::new("/")).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    storage.create_dir(Path::new("/")).unwrap();
    assert!(storage.put_file("x", *b"1").is_err());
    assert!(storage.corrupt("z", |_| ()).is_err());
}

#[test]
fn fault_hits_the_nth_matching_call_once() {
    let (storage, file) = with_file(b"abc");
    storage.fail(Fault::new(CallKind::Write, FaultError::EIO).after(1));
    file.sync_data().unwrap();
    file.write_at(b"x", 0).unwrap();
    assert_eq!(file.write_at(b"y", 1).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(storage.armed_faults(), 0);
    file.write_at(b"z", 2).unwrap();
    assert_eq!(storage.read_file("a").unwrap(), b"xbz");
    // The failed call is listed too.
    assert_eq!(storage.calls().len(), 4);
}

#[test]
fn fault_hits_every_call_from_then_on_until_it_is_cleared() {
    let (storage, file) = with_file(b"abc");
    let kind = FaultError::Kind(io::ErrorKind::TimedOut);
    storage.fail(Fault::any(kind).after(1).repeat(Repeat::Always));
    file.len().unwrap();
    assert_eq!(file.len().unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(file.read_at(&mut [0], 0).unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(storage.is_locked(Path::new("a")), None);
    assert!(matches!(storage.try_lock(Path::new("a")), Err(LockError::Io(_))));
    assert_eq!(storage.armed_faults(), 1);
    storage.clear_faults();
    file.len().unwrap();
}

#[test]
fn fault_waits_for_its_path() {
    let (storage, file) = with_file(b"abc");
    storage.fail(Fault::new(CallKind::Rename, FaultError::EIO).on("c"));
    storage.fail(Fault::new(CallKind::SyncData, FaultError::EINTR).on("b"));
    file.sync_data().unwrap();
    let error = create(&storage, "b", b"").sync_data().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    storage.rename(Path::new("a"), Path::new("d")).unwrap();
    assert!(storage.rename(Path::new("d"), Path::new("c")).is_err());
    assert_eq!(storage.files(), [PathBuf::from("b"), PathBuf::from("d")]);
}

#[test]
fn every_kind_of_call_can_fail_and_then_does_nothing() {
    use CallKind::{Create, CreateDir, List, Lock, Open, Read, Remove, Rename, SetLen, Stat, SyncDir};
    let (storage, file) = with_file(b"abc");
    let a = Path::new("a");
    let b = Path::new("b");
    for kind in [Create, CreateDir, List, Lock, Open, Read, Remove, Rename, SetLen, Stat, SyncDir] {
        storage.fail(Fault::new(kind, FaultError::EIO));
        let error = match kind {
            Create => storage.create_new(b).map(drop),
            CreateDir => storage.create_dir(b),
            List => storage.list(Path::new("/")).map(drop),
            Lock => match storage.try_lock(b) {
                Err(LockError::Io(error)) => Err(error),
                _ => Ok(()),
            },
            Open => storage.open(a, Access::Read).map(drop),
            Read => file.read_at(&mut [0], 0).map(drop),
            Remove => storage.remove_file(a),
            Rename => storage.rename(a, b),
            SetLen => file.set_len(0),
            Stat => storage.entry(a).map(drop),
            _ => storage.sync_dir(Path::new("/")),
        };
        assert_eq!(error.unwrap_err().raw_os_error(), Some(5), "{kind:?}");
        assert_eq!(storage.read_file("a").unwrap(), b"abc");
        assert_eq!(storage.files().len(), 1);
    }
}

#[test]
fn faulty_write_may_be_short() {
    let (storage, file) = with_file(b"");
    storage.fail(Fault::new(CallKind::Write, FaultError::ENOSPC).written(2));
    storage.fail(Fault::new(CallKind::Write, FaultError::EIO).written(99));
    // Both are due at this call: the first one wins, and the other has happened too.
    assert_eq!(file.write_at(b"abc", 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(storage.read_file("a").unwrap(), b"ab");
    storage.fail(Fault::new(CallKind::Write, FaultError::EIO).written(99));
    assert!(file.write_at(b"xyz", 0).is_err());
    assert_eq!(storage.read_file("a").unwrap(), b"xyz");
}

#[test]
fn full_disk_takes_what_fits() {
    let (storage, file) = with_file(b"abc");
    storage.set_capacity(Some(10));
    let other = create(&storage, "b", b"123");
    assert_eq!(file.write_at(b"defghijk", 3).unwrap_err().raw_os_error(), Some(28));
    assert_eq!(storage.read_file("a").unwrap(), b"abcdefg");
    file.write_at(b"ABCDEFG", 0).unwrap();
    assert_eq!(other.set_len(4).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(other.write_at(b"x", 100).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(storage.read_file("b").unwrap(), b"123");
    storage.remove_file(Path::new("b")).unwrap();
    file.write_at(b"HIJ", 7).unwrap();
    storage.set_capacity(Some(1));
    assert!(file.write_at(b"K", 10).is_err());
    storage.set_capacity(None);
    file.write_at(b"K", 10).unwrap();
    assert_eq!(storage.read_file("a").unwrap(), b"ABCDEFGHIJK");
}

#[test]
fn files_have_a_largest_length() {
    let (_storage, file) = with_file(b"abc");
    assert_eq!(file.set_len(u64::MAX).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    assert_eq!(file.write_at(b"x", u64::MAX).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    assert_eq!(file.read_at(&mut [0], u64::MAX).unwrap(), 0);
}

#[test]
fn locks_exclude_clones_and_end_with_their_guard() {
    let storage = SimStorage::new();
    let path = Path::new("lock");
    assert_eq!(storage.is_locked(path), Some(Locked::Free));
    let lock = storage.try_lock(path).unwrap();
    let other_process = storage.clone();
    assert!(matches!(other_process.try_lock(path), Err(LockError::Held)));
    assert_eq!(other_process.is_locked(path), Some(Locked::Held));
    lock.write_text("a long text").unwrap();
    lock.write_text("short").unwrap();
    assert_eq!(storage.read_file("lock").unwrap(), b"short");
    drop(lock);
    assert_eq!(storage.is_locked(path), Some(Locked::Free));
    drop(other_process.try_lock(path).unwrap());
    assert_eq!(storage.read_file("lock").unwrap(), b"short");
}

#[test]
fn corruption_changes_both_images() {
    let (storage, file) = with_file(b"abc");
    file.write_at(b"d", 3).unwrap();
    storage.corrupt("a", |bytes| bytes[1] ^= 0xff).unwrap();
    assert_eq!(storage.read_file("a").unwrap(), b"a\x9dcd");
    assert_eq!(storage.durable_file("a").unwrap(), b"a\x9dcd");
    file.write_at(b"e", 4).unwrap();
    assert_eq!(storage.read_file("a").unwrap(), b"a\x9dcde");
}

#[test]
fn put_file_is_durable_even_after_pending_removal() {
    let (storage, _file) = with_file(b"abc");
    storage.remove_file(Path::new("a")).unwrap();
    storage.put_file("a", *b"new").unwrap();
    storage.put_file("d/e/f", *b"deep").unwrap();
    for seed in 0..50 {
        let cut = storage.power_cut(CrashMode::Seeded(seed));
        assert_eq!(cut.read_file("a").unwrap(), b"new");
        assert_eq!(cut.read_file("d/e/f").unwrap(), b"deep");
    }
}
