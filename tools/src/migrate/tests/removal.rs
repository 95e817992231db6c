//! Originals go last, and only when they are not needed any more.

use std::cell::Cell;
use std::io;

use super::*;
use crate::exit::Exit;
use crate::migrate::Originals;
use crate::migrate::originals::{self, Prints};

fn home() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path().join("home"), options()).unwrap();
    (dir, store)
}

/// A disk on which so many calls succeed.
struct Failing(Cell<usize>);

impl Failing {
    fn call(&self) -> io::Result<()> {
        let left = self.0.get().checked_sub(1).ok_or_else(|| io::Error::other("pulled the plug"))?;
        self.0.set(left);
        Ok(())
    }
}

impl Disk for Failing {
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call().and_then(|()| OsDisk.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.call().and_then(|()| OsDisk.remove_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call().and_then(|()| OsDisk.sync_dir(path))
    }
}

fn files(workspace: &Workspace) -> Vec<String> {
    let all = tree(&workspace.path());
    all.keys().map(|path| path.strip_prefix(workspace.path()).unwrap().to_str().unwrap().to_owned()).collect()
}

const LEFT: [&str; 4] = [".q", ".recursive", ".recursive/mcp.json", ".recursive/sessions"];

#[test]
fn what_was_migrated_goes_and_nothing_else() {
    let workspace = Workspace::full();
    let (_dir, store) = home();
    let found = workspace.found();
    let before = tree(workspace.dir.path());
    let planned: Vec<Row> = found
        .iter()
        .map(|found| Migration::plan(found, Some(&store.reader()), Removal::Remove, &mut |_| ()))
        .collect();
    assert_eq!(tree(workspace.dir.path()), before, "a preview");
    let rows = run_with(&store, &found, Removal::Remove, &OsDisk);
    for (planned, row) in planned.iter().zip(&rows) {
        let Originals::WouldGo(files) = planned.originals else { panic!("{planned:?}") };
        assert_eq!(row.originals, Originals::Removed(files));
    }
    assert_eq!(files(&workspace), [LEFT.as_slice(), &[".recursive/sessions/w"]].concat());
    assert_eq!(told(&store).len(), 7);
    assert_eq!(workspace.found().len(), 0);
}

/// The process dies at each step of removing; the next run finishes, and nothing is taken for anything else meanwhile.
#[test]
fn a_removal_that_broke_off_anywhere_is_finished_by_the_next_run() {
    let mut stop = 0;
    loop {
        let workspace = Workspace::full();
        let (_dir, store) = home();
        run(&store, &workspace.found());
        let expected = told(&store);
        let disk = Failing(Cell::new(stop));
        let rows = run_with(&store, &workspace.found(), Removal::Remove, &disk);
        let is_whole = rows.iter().all(|row| matches!(row.originals, Originals::Removed(_)));
        let migrated = run(&store, &workspace.found());
        assert!(migrated.iter().all(|row| row.outcome.word() == "unchanged"), "stop {stop}: {migrated:?}");
        let rows = run_with(&store, &workspace.found(), Removal::Remove, &OsDisk);
        assert!(
            rows.iter().all(|row| matches!(row.originals, Originals::Removed(_))),
            "stop {stop}: {rows:?}"
        );
        let left = files(&workspace);
        let only_dirs = left.iter().filter(|path| workspace.path().join(path).is_file()).collect::<Vec<_>>();
        assert_eq!(only_dirs, [".recursive/mcp.json"], "stop {stop}");
        assert_eq!(told(&store), expected, "stop {stop}");
        if is_whole {
            break;
        }
        stop += 1;
    }
    assert!(stop > 15, "{stop}");
}

#[test]
fn what_changed_since_stays() {
    let workspace = Workspace::empty();
    workspace.session(".recursive/sessions/s", "s", 4);
    let (_dir, store) = home();
    let found = workspace.found();
    run(&store, &found);
    let prints = Prints::of(&found[0].source).unwrap();
    workspace
        .put(".recursive/sessions/s/.meta.json", &META.replace("ID", "s").replace("completed", "paused"));
    let refused = originals::remove(&OsDisk, &found[0], &found[0].source, &prints).unwrap_err();
    assert!(refused.contains("changed while it was migrated"), "{refused}");
    assert_eq!(files(&workspace).len(), 5, "not one of them went");
    // A rewritten one is not what the session has.
    workspace.put(".recursive/sessions/s/transcript.jsonl", &transcript("other", 4));
    let rows = run_with(&store, &workspace.found(), Removal::Remove, &OsDisk);
    assert_eq!((rows[0].outcome.word(), rows[0].exit), ("conflict", Exit::Warnings));
    assert!(matches!(&rows[0].originals, Originals::Refused(_)));
    assert_eq!(files(&workspace).len(), 5);
    // One that only grew is taken first.
    workspace
        .put(".recursive/sessions/s/transcript.jsonl", &(transcript("s", 4) + &said("s", 5, "user", "more")));
    let rows = run_with(&store, &workspace.found(), Removal::Remove, &OsDisk);
    assert_eq!((rows[0].outcome.word(), &rows[0].originals), ("grown", &Originals::Removed(2)));
}

#[test]
fn what_is_not_wholly_in_the_session_stays() {
    let workspace = Workspace::empty();
    for (name, end) in [("torn", "{\"uuid\":\"x\",\"role\":\"us"), ("zeros", "\0\0\0\0"), ("odd", "\r\n")] {
        workspace.session(&format!(".recursive/sessions/{name}"), name, 3);
        workspace.put(&format!(".recursive/sessions/{name}/transcript.jsonl"), &(transcript(name, 3) + end));
    }
    workspace.session(".recursive/sessions/used", "used", 3);
    workspace.put(".recursive/sessions/used/.lock", "1\nhost\n0\n");
    workspace.session(".recursive/sessions/more", "more", 3);
    workspace.put(".recursive/sessions/more/notes.md", "mine");
    workspace.put(".recursive/sessions/bad.json", "{");
    let (_dir, store) = home();
    let before = files(&workspace).len();
    let rows = run_with(&store, &workspace.found(), Removal::Remove, &OsDisk);
    let why = |name: &str| match &rows.iter().find(|row| row.agent_session_id == name).unwrap().originals {
        Originals::Refused(why) => why.clone(),
        other => format!("{other:?}"),
    };
    assert!(why("torn").contains("once it is whole"), "{}", why("torn"));
    assert!(why("zeros").contains("not recorded"), "{}", why("zeros"));
    assert!(why("used").contains(".lock"), "{}", why("used"));
    assert_eq!(why("more"), "Removed(2)");
    assert_eq!(why("odd"), "Removed(2)", "only a blank line");
    let left = files(&workspace);
    assert!(left.contains(&".recursive/sessions/more/notes.md".to_owned()));
    assert!(left.contains(&".recursive/sessions/bad.json".to_owned()));
    assert_eq!(left.len(), before - 5, "two sessions, and the directory of one");
}

/// The new session is hurt after it was made: its original is the only whole one.
#[test]
fn the_original_of_a_hurt_session_stays() {
    let workspace = Workspace::empty();
    workspace.session(".recursive/sessions/s", "s", 4);
    let (dir, store) = home();
    let row = run(&store, &workspace.found()).remove(0);
    let segment =
        tree(dir.path()).into_keys().find(|path| path.extension().is_some_and(|it| it == "seg")).unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(8).position(|window| window == b"s line 2").unwrap();
    bytes[at] ^= 0x20;
    fs::write(segment, bytes).unwrap();
    let rows = run_with(&store, &workspace.found(), Removal::Remove, &OsDisk);
    assert!(matches!(rows[0].originals, Originals::Refused(_)), "{rows:?}");
    assert_eq!(rows[0].session_id, row.session_id);
    assert_eq!(files(&workspace).len(), 5);
}
