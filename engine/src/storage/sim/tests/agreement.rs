//! Without crashes, the simulation does what the real file system does, errors included. (On Linux: other
//! systems have errors of their own.)

use proptest::prelude::*;

use super::*;
use crate::storage::OsStorage;

/// Files, directories, and files where directories are expected. Few, so that they meet.
const PATHS: [&str; 8] = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "a/b"];

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Open(usize, Access),
    Read(usize, usize, u64),
    Write(usize, Vec<u8>, u64),
    SetLen(usize, u64),
    Len(usize),
    Sync(usize),
    Close(usize),
    Rename(usize, usize),
    Remove(usize),
    RemoveDir(usize),
    SyncDir(usize),
    CreateDir(usize),
    List(usize),
    Entry(usize),
    Lock(usize),
    LockShared(usize),
    Touch(usize, i64),
    WriteText(usize),
    Unlock(usize),
    IsLocked(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let path = 0..PATHS.len();
    let slot = 0..4_usize;
    let access = prop_oneof![Just(Access::Read), Just(Access::ReadWrite)];
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        6 => path.clone().prop_map(Step::Create),
        4 => (path.clone(), access).prop_map(|(path, access)| Step::Open(path, access)),
        4 => (slot.clone(), 0..50_usize, 0..60_u64).prop_map(|(slot, len, at)| Step::Read(slot, len, at)),
        6 => (slot.clone(), bytes, 0..60_u64).prop_map(|(slot, bytes, at)| Step::Write(slot, bytes, at)),
        2 => (slot.clone(), 0..80_u64).prop_map(|(slot, len)| Step::SetLen(slot, len)),
        2 => slot.clone().prop_map(Step::Len),
        1 => slot.clone().prop_map(Step::Sync),
        1 => slot.clone().prop_map(Step::Close),
        6 => (path.clone(), path.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        3 => path.clone().prop_map(Step::Remove),
        2 => path.clone().prop_map(Step::RemoveDir),
        1 => path.clone().prop_map(Step::SyncDir),
        6 => path.clone().prop_map(Step::CreateDir),
        2 => path.clone().prop_map(Step::List),
        2 => path.clone().prop_map(Step::Entry),
        3 => path.clone().prop_map(Step::Lock),
        3 => path.clone().prop_map(Step::LockShared),
        1 => (path.clone(), -9_000_000_i64..9_000_000).prop_map(|(path, at)| Step::Touch(path, at)),
        1 => slot.clone().prop_map(Step::WriteText),
        2 => slot.prop_map(Step::Unlock),
        2 => path.prop_map(Step::IsLocked),
    ]
}

/// One of the two storages, with what is open on it.
struct Side<S> {
    storage: S,
    base: PathBuf,
    files: Vec<Arc<dyn StorageFile>>,
    locks: Vec<Box<dyn Lock>>,
}

/// A result that can be compared: error kinds only, since the texts differ.
fn outcome<T: fmt::Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("Ok({value:?})"),
        Err(error) => format!("Err({:?})", error.kind()),
    }
}

impl<S: Storage> Side<S> {
    fn new(storage: S, base: &Path) -> Self {
        Self { storage, base: base.to_owned(), files: Vec::new(), locks: Vec::new() }
    }

    fn keep(&mut self, opened: io::Result<Arc<dyn StorageFile>>) -> String {
        outcome(opened.map(|file| self.files.push(file)))
    }

    fn hold(&mut self, tried: Result<Box<dyn Lock>, LockError>) -> String {
        match tried {
            Ok(lock) => {
                self.locks.push(lock);
                "locked".to_owned()
            }
            Err(LockError::Held) => "held".to_owned(),
            Err(LockError::Io(error)) => outcome::<()>(Err(error)),
        }
    }

    /// Lets a handle work; they are counted from the newest.
    fn with(&self, slot: usize, work: impl FnOnce(&dyn StorageFile) -> String) -> String {
        self.files.iter().rev().nth(slot).map_or_else(String::new, |file| work(&**file))
    }

    fn run(&mut self, step: &Step) -> String {
        let at = |path: &usize| self.base.join(PATHS[*path]);
        match step {
            Step::Create(path) => {
                let opened = self.storage.create_new(&at(path));
                self.keep(opened)
            }
            Step::Open(path, access) => {
                let opened = self.storage.open(&at(path), *access);
                self.keep(opened)
            }
            Step::Read(slot, len, offset) => self.with(*slot, |file| {
                let mut bytes = vec![0; *len];
                let read = file.read_at(&mut bytes, *offset);
                format!("{} {bytes:?}", outcome(read))
            }),
            Step::Write(slot, bytes, offset) => {
                self.with(*slot, |file| outcome(file.write_at(bytes, *offset)))
            }
            Step::SetLen(slot, len) => self.with(*slot, |file| outcome(file.set_len(*len))),
            Step::Len(slot) => self.with(*slot, |file| outcome(file.len())),
            Step::Sync(slot) => self.with(*slot, |file| outcome(file.sync_data())),
            Step::Close(slot) => {
                let index = self.files.len().wrapping_sub(slot + 1);
                if index < self.files.len() {
                    self.files.remove(index);
                }
                String::new()
            }
            Step::Rename(from, to) => outcome(self.storage.rename(&at(from), &at(to))),
            Step::Remove(path) => outcome(self.storage.remove_file(&at(path))),
            Step::RemoveDir(path) => outcome(self.storage.remove_dir(&at(path))),
            Step::SyncDir(path) => outcome(self.storage.sync_dir(&at(path))),
            Step::CreateDir(path) => outcome(self.storage.create_dir(&at(path))),
            Step::List(path) => outcome(self.storage.list(&at(path))),
            Step::Entry(path) => outcome(self.storage.entry(&at(path))),
            Step::Lock(path) => {
                let tried = self.storage.try_lock(&at(path));
                self.hold(tried)
            }
            Step::LockShared(path) => {
                let tried = self.storage.try_lock_shared(&at(path));
                self.hold(tried)
            }
            Step::Touch(path, time) => {
                let touched = self.storage.touch(&at(path), Timestamp(*time));
                let modified = touched.is_ok().then(|| outcome(self.storage.modified(&at(path))));
                format!("{} {modified:?}", outcome(touched))
            }
            Step::WriteText(slot) => {
                self.locks.get(*slot).map_or_else(String::new, |lock| outcome(lock.write_text("text")))
            }
            Step::Unlock(slot) => {
                if *slot < self.locks.len() {
                    drop(self.locks.remove(*slot));
                }
                String::new()
            }
            Step::IsLocked(path) => format!("{:?}", self.storage.is_locked(&at(path))),
        }
    }
}

/// Everything below a directory, with contents.
fn tree(storage: &dyn Storage, dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in storage.list(dir).unwrap() {
        found.push(format!("{entry:?}"));
        let path = dir.join(&entry.name);
        if entry.kind == crate::storage::EntryKind::Dir {
            found.extend(tree(storage, &path));
        } else {
            let mut bytes = vec![0; 200];
            let read = storage.open(&path, Access::Read).unwrap().read_at(&mut bytes, 0).unwrap();
            found.push(format!("{:?}", &bytes[..read]));
        }
    }
    found
}

proptest! {
    #[test]
    fn simulation_agrees_with_the_system(steps in prop::collection::vec(step(), 1..60)) {
        let home = tempfile::tempdir().unwrap();
        let mut real = Side::new(OsStorage, home.path());
        let mut sim = Side::new(SimStorage::new(), Path::new("/"));
        for (number, step) in steps.iter().enumerate() {
            let expected = real.run(step);
            let got = sim.run(step);
            // In a container, the system can't tell what is free.
            if !(matches!(step, Step::IsLocked(_)) && expected == "None") {
                prop_assert_eq!(got, expected, "step {}: {:?}", number, step);
            }
        }
        prop_assert_eq!(tree(&sim.storage, Path::new("/")), tree(&OsStorage, home.path()));
    }
}
