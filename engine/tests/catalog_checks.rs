//! A row of the catalog is shown only for a log that is as it was: whatever changes a log, the next listing says what a listing
//! without the catalog says. And a log that nothing changed is not opened.

#![cfg(all(feature = "catalog", unix))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sessionlog::codec::event::TitleOrigin;
use sessionlog::codec::ids::{Position, SessionId};
use sessionlog::log::TailState;
use sessionlog::session::EventItem;
use sessionlog::storage::{OsStorage, Storage};
use sessionlog::{
    Durability, LogOptions, Message, NewSession, Session, Store, StoreOptions, SystemClock, ViewPolicy,
};
use support::quiet::Quiet;

const SESSIONS: usize = 40;

struct Home {
    dir: tempfile::TempDir,
    disk: Quiet,
    store: Store,
    closed: Vec<SessionId>,
}

impl Home {
    /// Closed sessions, some of several segments, that the catalog knows.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = Quiet::default();
        let options = StoreOptions {
            log: LogOptions { segment_len: 2048, fill_len: 512 },
            durability: Durability::Buffered,
            views: ViewPolicy::Off,
            ..StoreOptions::default()
        };
        let clock = Arc::new(SystemClock);
        let store = Store::open_on(Arc::new(disk.clone()), clock, dir.path().join("home"), options).unwrap();
        let mut home = Self { dir, disk, store, closed: Vec::new() };
        for number in 0..SESSIONS {
            let session = home.begin(number);
            (0..number % 6).for_each(|turn| say(&session, turn));
            home.closed.push(session.id());
            session.close().unwrap();
        }
        home.tick();
        home.store.list().unwrap();
        home
    }

    fn begin(&self, number: usize) -> Session {
        let session = self.store.create(self.dir.path(), NewSession::new(format!("goal {number}"))).unwrap();
        say(&session, number);
        session
    }

    /// Waits until the file system's clock has ticked: what is written from then on has another time.
    fn tick(&self) {
        let probe = self.dir.path().join("probe");
        let time = || {
            fs::write(&probe, b"").unwrap();
            OsStorage.stamp(&probe).unwrap().unwrap().changed
        };
        let before = time();
        while time() == before {}
    }

    /// The listing, and how many segments were opened for it.
    fn list(&self) -> (String, u64) {
        let before = self.disk.opened.load(Ordering::SeqCst);
        let rows = format!("{:#?}", self.store.list().unwrap());
        (rows, self.disk.opened.load(Ordering::SeqCst) - before)
    }

    /// The listing with the catalog is the one without: at once, and when nothing is left to be made anew.
    #[track_caller]
    fn check(&self, what: &str) {
        let without = format!("{:#?}", self.store.reader().list().unwrap());
        for _ in 0..3 {
            assert_eq!(self.list().0, without, "{what}");
            let listing = self.store.reader().list_with_catalog().unwrap();
            assert_eq!(format!("{:#?}", listing.rows), without, "{what}");
            assert!(listing.sound.iter().all(|id| self.ends_well(*id)), "{what}");
            self.tick();
        }
    }

    /// Whether every record of the log is one that can be read.
    fn ends_well(&self, id: SessionId) -> bool {
        let mut is_well = true;
        let tail = self.store.reader().session(id).unwrap().events(Position(1), &mut |item| {
            is_well &= matches!(item, EventItem::Event(_));
            ControlFlow::Continue(())
        });
        is_well && tail.unwrap() == TailState::Clean
    }

    fn log(&self, id: SessionId) -> PathBuf {
        self.store.reader().session(id).unwrap().place().dir.join("log")
    }

    fn segments(&self, id: SessionId) -> Vec<PathBuf> {
        let mut segments: Vec<PathBuf> =
            fs::read_dir(self.log(id)).unwrap().map(|entry| entry.unwrap().path()).collect();
        segments.sort();
        segments
    }

    fn last(&self, id: SessionId) -> PathBuf {
        self.segments(id).pop().unwrap()
    }
}

fn say(session: &Session, number: usize) {
    session.prompt(Message::user(format!("prompt {number} {}", "word ".repeat(60)))).unwrap();
    session.append(Message::assistant("Done.").model("m1")).unwrap();
}

#[test]
fn a_log_that_nothing_changed_is_not_opened() {
    let home = Home::new();
    let (rows, opened) = home.list();
    assert_eq!(opened, 0);
    assert_eq!(rows, format!("{:#?}", home.store.reader().list().unwrap()));
    let before = home.disk.opened.load(Ordering::SeqCst);
    assert_eq!(home.store.reader().list_with_catalog().unwrap().sound, home.closed.iter().copied().collect());
    assert_eq!(home.disk.opened.load(Ordering::SeqCst), before);
    let (session, _) = home.store.resume(home.closed[3]).unwrap();
    say(&session, 0);
    session.close().unwrap();
    assert_ne!(home.list().0, rows);
    assert_eq!(home.list().1, 0);
}

/// One way in which a log changes.
type Change<'a> = (&'a str, Box<dyn Fn(&Home, SessionId) + 'a>);

/// What an owner does.
fn changes_by_owners() -> Vec<Change<'static>> {
    let resumed = |home: &Home, id| home.store.resume(id).unwrap().0;
    vec![
        (
            "an append",
            Box::new(move |home, id| {
                let session = resumed(home, id);
                say(&session, 1);
                session.close().unwrap();
            }),
        ),
        ("an append, left open", Box::new(move |home, id| say(&resumed(home, id), 1))),
        ("a resume alone", Box::new(move |home, id| drop(resumed(home, id)))),
        (
            "a title",
            Box::new(move |home, id| {
                let session = resumed(home, id);
                session.set_title("another", TitleOrigin::Person).unwrap();
                session.close().unwrap();
            }),
        ),
        (
            "a roll",
            Box::new(move |home, id| {
                let (before, session) = (home.last(id), resumed(home, id));
                (0..8).for_each(|turn| say(&session, turn));
                session.close().unwrap();
                assert_ne!(home.last(id), before);
            }),
        ),
        (
            "a recovery",
            Box::new(move |home, id| {
                let mut bytes = fs::read(home.last(id)).unwrap();
                bytes.extend([0x5a; 100]);
                fs::write(home.last(id), bytes).unwrap();
                home.check("a torn tail");
                resumed(home, id).close().unwrap();
            }),
        ),
        (
            "an erasure, and a catalog that outlived it",
            Box::new(move |home, id| {
                let (index, aside) = (home.dir.path().join("home/index"), home.dir.path().join("aside"));
                fs::rename(&index, &aside).unwrap();
                let session = resumed(home, id);
                let said = session.prompt(Message::user("never mind")).unwrap();
                session.redact(&BTreeSet::from([said.position]), "because").unwrap();
                session.close().unwrap();
                fs::rename(&aside, &index).unwrap();
            }),
        ),
    ]
}

/// What happens to files. `old` is what they were before.
fn changes_from_outside(old: &Path) -> Vec<Change<'_>> {
    let replaced = |path: &Path, bytes: &[u8]| {
        let beside = path.with_extension("other");
        fs::write(&beside, bytes).unwrap();
        fs::rename(beside, path).unwrap();
    };
    let keeping_time = |path: &Path, bytes: &[u8]| {
        let modified = fs::metadata(path).unwrap().modified().unwrap();
        fs::write(path, bytes).unwrap();
        fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
    };
    let old_last = move |home: &Home, id| fs::read(old.join(home.last(id).file_name().unwrap())).unwrap();
    vec![
        ("an older file by rename", Box::new(move |home, id| replaced(&home.last(id), &old_last(home, id)))),
        (
            "an older file in place",
            Box::new(move |home, id| keeping_time(&home.last(id), &old_last(home, id))),
        ),
        (
            "one hurt byte, with the same length and time",
            Box::new(move |home, id| {
                let mut bytes = fs::read(home.last(id)).unwrap();
                let middle = bytes.len() - 100;
                bytes[middle] ^= 1;
                keeping_time(&home.last(id), &bytes);
            }),
        ),
        (
            "a cut",
            Box::new(|home, id| {
                let file = fs::File::options().write(true).open(home.last(id)).unwrap();
                file.set_len(file.metadata().unwrap().len() - 30).unwrap();
            }),
        ),
        (
            "nothing in the last segment",
            Box::new(|home, id| {
                fs::File::options().write(true).open(home.last(id)).unwrap().set_len(0).unwrap();
            }),
        ),
        ("a missing last segment", Box::new(|home, id| fs::remove_file(home.last(id)).unwrap())),
        (
            "a missing first segment",
            Box::new(|home, id| fs::rename(&home.segments(id)[0], home.log(id).join("hidden")).unwrap()),
        ),
        (
            "an older directory",
            Box::new(move |home, id| {
                fs::rename(home.log(id), home.log(id).with_file_name("newer")).unwrap();
                copy_dir(old, &home.log(id));
            }),
        ),
        ("a missing log", Box::new(|home, id| fs::remove_dir_all(home.log(id)).unwrap())),
    ]
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn whatever_an_owner_does_is_seen() {
    let home = Home::new();
    for (nth, (what, change)) in changes_by_owners().into_iter().enumerate() {
        // One of one segment, and one of several.
        for id in [home.closed[6 * nth % SESSIONS], home.closed[(6 * nth + 5) % SESSIONS]] {
            home.tick();
            change(&home, id);
            home.check(what);
        }
    }
}

#[test]
fn whatever_happens_to_files_is_seen() {
    let home = Home::new();
    let old = home.dir.path().join("old");
    // Of several segments, with room in the last one.
    let has_room = |id: &&SessionId| fs::metadata(home.last(**id)).unwrap().len() < 1024;
    let several = |id: &&SessionId| home.segments(**id).len() > 1;
    let ids: Vec<SessionId> = home.closed.iter().filter(several).filter(has_room).copied().collect();
    let count = changes_from_outside(&old).len();
    assert!(ids.len() >= count);
    for (nth, id) in ids.into_iter().take(count).enumerate() {
        // There is something older: a log of the same segments, with less in the last one.
        copy_dir(&home.log(id), &old);
        let (session, _) = home.store.resume(id).unwrap();
        session.set_title("t", TitleOrigin::Person).unwrap();
        session.close().unwrap();
        assert!(old.join(home.last(id).file_name().unwrap()).exists(), "it rolled");
        home.check("before");
        home.tick();
        let (what, change) = changes_from_outside(&old).swap_remove(nth);
        let before = home.list().0;
        change(&home, id);
        assert_ne!(home.list().0, before, "{what}");
        home.check(what);
        fs::remove_dir_all(&old).unwrap();
    }
}

/// A frame that is written into space that was there is durable before the file's time is. So a loss of power may leave a log that
/// is longer, in a file that says what it said before.
#[test]
fn a_time_that_a_loss_of_power_took_back_fools_nobody() {
    let home = Home::new();
    let session = home.begin(100);
    home.tick();
    home.disk.keep_stamps();
    home.check("with space behind the last frame");
    let (before, len) = (home.list().0, fs::metadata(home.last(session.id())).unwrap().len());
    session.set_title("t", TitleOrigin::Person).unwrap();
    assert_eq!(fs::metadata(home.last(session.id())).unwrap().len(), len, "the file grew");
    assert_ne!(home.list().0, before);
    home.check("written into space that was there");
}

/// What changes a file again within one tick of the file system's clock leaves its time as it was.
#[test]
fn a_change_within_a_tick_is_seen() {
    let home = Home::new();
    fs::remove_dir_all(home.dir.path().join("home/index")).unwrap();
    home.disk.is_young.store(true, Ordering::SeqCst);
    home.disk.keep_stamps();
    home.check("made anew");
    let before = home.list().0;
    let (session, _) = home.store.resume(home.closed[3]).unwrap();
    session.set_title("t", TitleOrigin::Person).unwrap();
    session.close().unwrap();
    assert_ne!(home.list().0, before);
    home.check("a change within a tick");
}

#[test]
fn only_who_asks_for_a_catalog_makes_one() {
    let home = Home::new();
    let (index, reader) = (home.dir.path().join("home/index"), home.store.reader());
    fs::remove_dir_all(&index).unwrap();
    assert_eq!(reader.list().unwrap().len(), SESSIONS);
    assert!(!index.exists());
    let listing = reader.list_with_catalog().unwrap();
    assert_eq!((listing.rows.len(), listing.sound.len()), (SESSIONS, SESSIONS));
    assert!(index.exists());
}
