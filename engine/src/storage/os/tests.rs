//! The real file system, in a temporary directory.

use super::*;

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn read_all(file: &dyn StorageFile) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let read = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(read);
    bytes
}

#[test]
fn reads_what_was_written() {
    let home = home();
    let path = home.path().join("a");
    let file = OsStorage.create_new(&path).unwrap();
    file.write_at(b"hello", 3).unwrap();
    assert_eq!(read_all(&*file), b"\0\0\0hello");
    assert_eq!(file.len().unwrap(), 8);
    assert_eq!(file.read_at(&mut [0; 4], 6).unwrap(), 2);
    assert_eq!(file.read_at(&mut [0; 4], 8).unwrap(), 0);
    file.set_len(4).unwrap();
    file.set_len(6).unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    assert_eq!(read_all(&*OsStorage.open(&path, Access::Read).unwrap()), b"\0\0\0h\0\0");
    OsStorage.sync_dir(home.path()).unwrap();
}

#[test]
fn read_handle_refuses_to_change_a_byte() {
    let home = home();
    let path = home.path().join("a");
    drop(OsStorage.create_new(&path).unwrap());
    let file = OsStorage.open(&path, Access::Read).unwrap();
    assert!(file.write_at(b"x", 0).is_err());
    assert!(file.set_len(1).is_err());
    assert!(file.is_empty().unwrap());
}

#[test]
fn creation_needs_a_free_name_and_a_parent() {
    let home = home();
    let path = home.path().join("a");
    drop(OsStorage.create_new(&path).unwrap());
    assert_eq!(OsStorage.create_new(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let orphan = home.path().join("missing/a");
    assert_eq!(OsStorage.create_new(&orphan).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(OsStorage.create_dir(&orphan).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(OsStorage.create_dir(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    OsStorage.create_dir(&home.path().join("dir")).unwrap();
    OsStorage.create_dir(&home.path().join("dir")).unwrap();
}

#[test]
fn lists_by_name_with_kind_and_length() {
    let home = home();
    OsStorage.create_new(&home.path().join("b")).unwrap().write_at(b"123", 0).unwrap();
    OsStorage.create_dir(&home.path().join("a")).unwrap();
    let dir = DirEntry { name: "a".into(), kind: EntryKind::Dir, len: 0 };
    let file = DirEntry { name: "b".into(), kind: EntryKind::File, len: 3 };
    assert_eq!(OsStorage.list(home.path()).unwrap(), [dir.clone(), file.clone()]);
    assert_eq!(OsStorage.entry(&home.path().join("a")).unwrap(), Some(dir));
    assert_eq!(OsStorage.entry(&home.path().join("b")).unwrap(), Some(file));
    assert_eq!(OsStorage.entry(&home.path().join("c")).unwrap(), None);
}

#[test]
fn one_lock_at_a_time() {
    let home = home();
    let path = home.path().join("lock");
    let lock = OsStorage.try_lock(&path).unwrap();
    lock.write_text("a long text").unwrap();
    assert!(matches!(OsStorage.try_lock(&path), Err(LockError::Held)));
    lock.write_text("short").unwrap();
    drop(lock);
    assert_eq!(fs::read(&path).unwrap(), b"short");
    // Taking it keeps the text: it is what a person looks at after a crash.
    drop(OsStorage.try_lock(&path).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"short");
}

#[test]
fn lock_ends_with_its_guard_though_a_copy_of_the_handle_is_open() {
    let home = home();
    let path = home.path().join("lock");
    let file = File::create(&path).unwrap();
    file.try_lock().unwrap();
    // As a child has, between fork and exec.
    let _copy = file.try_clone().unwrap();
    drop(OsLock { file: OsFile { file } });
    drop(OsStorage.try_lock(&path).unwrap());
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_the_owner_gets_in() {
        let home = home();
        OsStorage.create_dir(&home.path().join("d")).unwrap();
        drop(OsStorage.create_new(&home.path().join("f")).unwrap());
        drop(OsStorage.try_lock(&home.path().join("l")).unwrap());
        assert_eq!(mode(&home.path().join("d")), 0o700);
        assert_eq!(mode(&home.path().join("f")), 0o600);
        assert_eq!(mode(&home.path().join("l")), 0o600);
    }

    /// The error of an open that must come back within seconds.
    fn refusal(path: PathBuf, access: Option<Access>) -> io::Error {
        let (done, wait) = mpsc::channel();
        std::thread::spawn(move || {
            let error = match access {
                Some(access) => OsStorage.open(&path, access).map(drop).unwrap_err(),
                None => match OsStorage.try_lock(&path) {
                    Err(LockError::Io(error)) => error,
                    other => panic!("{path:?}: {other:?}"),
                },
            };
            done.send(error).unwrap();
        });
        wait.recv_timeout(Duration::from_secs(10)).unwrap()
    }

    #[test]
    fn refuses_what_is_not_a_regular_file_without_blocking() {
        let home = home();
        let at = |name: &str| home.path().join(name);
        fs::write(at("file"), "x").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        fs::create_dir(at("dir")).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        let expected = [
            ("link", "a symbolic link"),
            ("dangling", "a symbolic link"),
            ("dir", "a directory"),
            ("socket", "a socket"),
            ("fifo", "a FIFO"),
        ];
        for (name, what) in expected {
            for access in [Some(Access::Read), Some(Access::ReadWrite), None] {
                let error = refusal(at(name), access);
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name} {access:?}: {error}");
                assert_eq!(error.to_string(), format!("not a regular file but {what}"), "{name} {access:?}");
            }
        }
        // Nothing was created through the dangling link, and creating does not follow one.
        assert!(!at("nowhere").exists());
        let error = OsStorage.create_new(&at("dangling")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(OsStorage.sync_dir(&at("fifo")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        for name in ["link", "fifo", "socket"] {
            assert_eq!(OsStorage.entry(&at(name)).unwrap().unwrap().kind, EntryKind::Other);
        }
    }

    #[test]
    fn missing_files_and_error_kinds_stay_what_they_are() {
        let home = home();
        let missing = home.path().join("missing");
        let error = OsStorage.open(&missing, Access::Read).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(OsStorage.remove_file(&missing).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(OsStorage.list(&missing).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(OsStorage.sync_dir(&missing).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// A write that the system cuts short is an error and not a shorter write. Here a limit on the length of files cuts
    /// it, in a process of its own, since a limit holds for a whole process.
    #[test]
    fn a_short_write_is_no_success() {
        const PATH: &str = "SESSIONLOG_TEST_SHORT_WRITE";
        const LEN: usize = 100 << 10;
        if let Some(path) = std::env::var_os(PATH) {
            let file = OsStorage.create_new(Path::new(&path)).unwrap();
            let error = file.write_at(&[1; LEN], 0).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{error:?}");
            return;
        }
        let home = home();
        let path = home.path().join("a");
        let limited = Command::new("sh")
            .args(["-c", r#"trap "" XFSZ; ulimit -f 8; exec "$@""#, "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "storage::os::tests::unix::a_short_write_is_no_success"])
            .env(PATH, &path)
            .output()
            .unwrap();
        assert!(limited.status.success(), "{limited:?}");
        let written = path.metadata().unwrap().len();
        assert!(written > 0 && written < u64::try_from(LEN).unwrap(), "it was not cut short: {written}");
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::super::linux::{device, write_lock};
    use super::*;

    /// A sync that does not reach the system is noticed by nothing but a loss of power, and a store that is killed has all it
    /// wrote. The files of `/proc` can't be synced: so whoever asks is told, and who is told nothing did not ask.
    #[test]
    fn every_sync_asks_the_system() {
        let refused = |synced: io::Result<()>, what| {
            assert_eq!(synced.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{what}");
        };
        refused(OsStorage.sync_dir(Path::new("/proc/self")), "sync_dir");
        let file = OsStorage.open(Path::new("/proc/self/comm"), Access::ReadWrite).unwrap();
        refused(file.sync_data(), "sync_data");
        refused(file.sync_all(), "sync_all");
    }

    /// In a container, what nobody is seen to hold may be held outside.
    fn assert_free(path: &Path) {
        let initial = fs::read_link("/proc/self/ns/pid").unwrap() == Path::new("pid:[4026531836]");
        assert_eq!(OsStorage.is_locked(path), initial.then_some(Locked::Free));
    }

    #[test]
    fn is_locked_follows_the_lock_without_taking_it() {
        let home = home();
        let path = home.path().join("lock");
        assert_eq!(OsStorage.is_locked(&path), Some(Locked::Free));
        assert!(!path.exists());
        let lock = OsStorage.try_lock(&path).unwrap();
        assert_eq!(OsStorage.is_locked(&path), Some(Locked::Held));
        drop(lock);
        assert_free(&path);
        assert_eq!(OsStorage.is_locked(home.path()), None);
        let other = home.path().join("other");
        let _held = OsStorage.try_lock(&other).unwrap();
        assert_free(&path);
    }

    #[test]
    fn is_locked_sees_another_process() {
        let home = home();
        let path = home.path().join("lock");
        let spawned = Command::new("flock")
            .arg("--no-fork")
            .arg(&path)
            .arg("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = spawned else {
            println!("SKIPPED: there is no flock(1) here");
            return;
        };
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"!").unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        assert_eq!(OsStorage.is_locked(&path), Some(Locked::Held));
        assert!(matches!(OsStorage.try_lock(&path), Err(LockError::Held)));
        drop(input);
        child.wait().unwrap();
        assert_free(&path);
        drop(OsStorage.try_lock(&path).unwrap());
    }

    #[test]
    fn parses_proc_locks() {
        let held = "1: FLOCK  ADVISORY  WRITE 1234 fe:00:246951 0 EOF";
        assert_eq!(write_lock(held), Some(((0xfe, 0), 246_951)));
        for other in [
            "1: -> FLOCK  ADVISORY  WRITE 1234 fe:00:246951 0 EOF",
            "2: FLOCK  ADVISORY  READ 1234 fe:00:246951 0 EOF",
            "3: POSIX  ADVISORY  WRITE 1234 fe:00:246951 0 EOF",
            "4: OFDLCK ADVISORY  WRITE -1 00:2a:1 0 EOF",
            "5: FLOCK  ADVISORY  WRITE 1234",
            "",
        ] {
            assert_eq!(write_lock(other), None, "{other}");
        }
        assert_eq!(device(65_024), (254, 0));
        // makedev(0x12345, 0x6789ab)
        assert_eq!(device(0x0001_2006_7893_45ab), (0x12345, 0x6789ab));
    }
}
