//! Deleting, forgetting and redacting: nothing without `--yes`, and nothing left after it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic"
)]
#![cfg(unix)]

mod cli_support;

use std::fs;
use std::path::{Path, PathBuf};

use cli_support::trees::{PLAIN, crashed, growing};
use cli_support::{Home, delegate, logdump, segment, snapshot};
use sessionlog::codec::event::{Effect, TitleOrigin, TurnOutcome};
use sessionlog::{CallResult, Message, NewArtifact, NewSession, Store};

const SECRET: &str = "xyzzyplugh";

/// A session full of the secret, closed, and one that is not.
fn two(home: &Home) -> [String; 2] {
    [SECRET, "harmless"].map(|word| {
        let session = home.store.create(home.dir.path(), NewSession::new(format!("about {word}"))).unwrap();
        session.append(Message::user(format!("Say {word}."))).unwrap();
        session.append(Message::assistant(format!("{word} it is."))).unwrap();
        let id = session.id().to_string();
        session.close().unwrap();
        id
    })
}

fn files_with(dir: &Path, text: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_with(&path, text, found);
        } else if fs::read(&path).unwrap().windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(path);
        }
    }
}

#[test]
fn nothing_is_deleted_without_yes() {
    let home = Home::new();
    let [id, stays] = two(&home);
    let before = snapshot(&home.path());
    for command in ["delete", "forget"] {
        let human = home.run(&[command, &id]).exits(0);
        assert!(
            human.out.contains("2 messages") && human.out.contains("Nothing was changed"),
            "{}",
            human.out
        );
        let plan = home.run(&[command, &id, "--dry-run", "--json"]).exits(0).json();
        assert_eq!((&plan["state"], &plan["messages"]), (&"planned".into(), &2.into()));
        home.run(&[command, &id, "--dry-run", "--yes"]).exits(4);
    }
    assert_eq!(snapshot(&home.path()), before);
    let done = home.run(&["delete", &id[..30], "--yes", "--json"]).exits(0).json();
    assert_eq!(
        (&done["state"], &done["session"], &done["archive"]),
        (&"done".into(), &id.clone().into(), &"kept".into())
    );
    home.run(&["show", &id]).exits(4);
    home.run(&["delete", &id, "--yes"]).exits(4);
    home.run(&["verify", &stays]).exits(0);
}

#[test]
fn what_is_forgotten_is_nowhere_under_the_home() {
    let home = Home::new();
    let [id, stays] = two(&home);
    for (format, name) in
        [("markdown", "a.md"), ("jsonl", "a.jsonl"), ("seed", "seed.jsonl"), ("recursive", "recursive.jsonl")]
    {
        let path = home.dir.path().join(name);
        home.run(&["export", &id, "--format", format, "--output", path.to_str().unwrap()]).exits(0);
        // `export` does not write there; people copy.
        fs::copy(&path, home.path().join(name)).unwrap();
    }
    let export = home.dir.path().join("exports");
    home.run(&["export", &id, "--format", "q", "--to", export.to_str().unwrap()]).exits(0);
    fs::rename(&export, home.path().join("exports")).unwrap();
    home.run(&["export", &stays, "--format", "seed", "--output", export.to_str().unwrap()]).exits(0);
    fs::copy(&export, home.path().join("seed-of-the-other.jsonl")).unwrap();
    let plan = home.run(&["forget", &id, "--json"]).exits(0).json();
    assert!(plan["exports"].as_array().unwrap().len() >= 4, "{plan}");
    home.run(&["forget", &id, "--yes"]).exits(0);
    let mut left = Vec::new();
    files_with(&home.path(), SECRET, &mut left);
    assert!(left.is_empty(), "{left:?}");
    assert!(home.path().join("seed-of-the-other.jsonl").exists());
    home.run(&["verify", &stays]).exits(0);
    fs::remove_file(home.path().join("seed-of-the-other.jsonl")).unwrap();
    home.run(&["doctor"]).exits(0);
    home.run(&["forget", &id]).exits(4);
}

/// The word is planted everywhere it can get to: message, title, delegated conversation, short and long tool results, an artifact
/// that the host put, views, the index of searches, the catalog, exports that were copied into the home, and quarantine.
#[test]
fn a_word_that_was_planted_everywhere_is_found_nowhere() {
    let home = Home::new();
    let long = |word: &str| format!("{} {word}\n", "a line of a long result ".repeat(20)).repeat(100);
    let shared = format!("{} shared by both", "the same long result ".repeat(4_000));
    let ids = [SECRET, "harmless"].map(|word| {
        let session = home.store.create(home.workspace(), NewSession::new(format!("about {word}"))).unwrap();
        let call = |name: &str, result: String| {
            let asked = session.append(Message::assistant("I look.").call(name, "read", "{}")).unwrap();
            let running = session.start_call(asked.call(0), Effect::Pure).unwrap();
            running.finish(CallResult::succeeded(result)).unwrap();
        };
        session.prompt(Message::user(format!("Say {word}."))).unwrap();
        call("short", format!("found {word}"));
        call("long", long(word));
        call("shared", shared.clone());
        session.set_title(format!("The {word} affair"), TitleOrigin::Person).unwrap();
        let report = NewArtifact::new(format!("report-of-{word}"), format!("{word} in a report"));
        session.artifacts().put(report).unwrap();
        delegate(&session, word);
        session.end_turn(TurnOutcome::Completed).unwrap();
        let id = session.id().to_string();
        session.close().unwrap();
        id
    });
    let [id, stays] = &ids;
    // A tail that a crash tore, with the word in it.
    let quarantine = segment(&home.path(), id).parent().unwrap().with_file_name("quarantine");
    fs::create_dir(&quarantine).unwrap();
    fs::write(quarantine.join("00000000000000000001.seg.4096.0.torn"), SECRET).unwrap();
    let export = home.dir.path().join("a.md");
    home.run(&["export", id, "--format", "markdown", "--output", export.to_str().unwrap()]).exits(0);
    fs::copy(&export, home.path().join("a.md")).unwrap();
    let search = |word: &str| {
        let found = home.run(&["search", word, "--all-workspaces", "--json"]).exits(0).json();
        found["hits"].as_array().unwrap().len()
    };
    assert!(search(SECRET) >= 4 && search("harmless") >= 4);
    home.run(&["ls"]).exits(0);
    let all = || {
        let mut found = Vec::new();
        files_with(&home.path(), SECRET, &mut found);
        found.into_iter().map(|path| path.strip_prefix(home.path()).unwrap().display().to_string())
    };
    for part in
        ["/log/", "transcript.jsonl", ".meta.json", "/artifacts/", "/index/memory", "quarantine", "a.md"]
    {
        assert!(all().any(|path| path.contains(part)), "{part}: {:?}", all().collect::<Vec<_>>());
    }
    home.run(&["forget", id, "--yes"]).exits(0);
    assert_eq!(all().collect::<Vec<_>>(), [""; 0]);
    assert_eq!((search(SECRET), search("harmless") >= 4), (0, true));
    assert_eq!(all().collect::<Vec<_>>(), [""; 0]);
    // The neighbour has all it had, what it shared among it.
    home.run(&["verify", stays]).exits(0);
    let kept = home.run(&["artifact", "ls", stays, "--json"]).exits(0).json();
    assert_eq!(kept["artifacts"].as_array().unwrap().len(), 2, "{kept}");
    let digest = blake3::hash(shared.as_bytes()).to_string();
    let slice = home.run(&["artifact", "slice", &digest, "--json"]).exits(0).json();
    assert!(slice.to_string().contains("the same long result"), "{slice}");
    // Nor what it said of its report, which only the workspace's log had.
    let mut left = Vec::new();
    files_with(&home.path().join("workspaces"), &format!("report-of-{SECRET}"), &mut left);
    assert!(left.is_empty(), "{left:?}");
    home.run(&["gc", "--grace", "0s"]).exits(0);
    home.run(&["verify", stays]).exits(0);
}

/// The same, of a session that was deleted first: its archive is found by searches until it is forgotten.
#[test]
fn what_was_deleted_is_found_until_it_is_forgotten() {
    let home = Home::new();
    let [id, _] = two(&home);
    home.run(&["delete", &id, "--yes"]).exits(0);
    let found = home.run(&["search", SECRET, "--all-workspaces", "--json"]).exits(0).json();
    assert_eq!(found["hits"].as_array().unwrap().len(), 3, "{found}");
    home.run(&["forget", &id, "--yes"]).exits(0);
    let found = home.run(&["search", SECRET, "--all-workspaces", "--json"]).exits(0).json();
    assert!(found["hits"].as_array().unwrap().is_empty(), "{found}");
    let mut left = Vec::new();
    files_with(&home.path(), SECRET, &mut left);
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_owner_is_not_disturbed() {
    let (home, session) = growing(&PLAIN);
    let id = session.id().to_string();
    for command in ["delete", "forget"] {
        home.run(&[command, &id]).exits(5);
        home.run(&[command, &id, "--yes"]).exits(5);
    }
    home.run(&["redact", &id, "--message", "1", "--yes"]).exits(5);
    let copy = crashed(&home);
    logdump(&copy, &["delete", &id, "--yes"]).exits(0);
    logdump(&copy, &["show", &id]).exits(4);
}

#[test]
fn what_is_redacted_is_gone_and_the_rest_verifies() {
    let home = Home::new();
    let [id, _] = two(&home);
    let before = snapshot(&home.path());
    home.run(&["redact", &id, "--message", "9"]).exits(4);
    home.run(&["redact", &id, "--position", "999"]).exits(4);
    home.run(&["redact", &id]).exits(4);
    let plan = home.run(&["redact", &id, "--message", "1", "--message", "2", "--json"]).exits(0).json();
    assert_eq!(plan["state"], "planned");
    assert_eq!(snapshot(&home.path()), before);
    home.run(&["redact", &id, "--message", "1", "--message", "2", "--reason", "a key", "--yes"]).exits(0);
    let mut left = Vec::new();
    files_with(&home.path(), &format!("Say {SECRET}"), &mut left);
    files_with(&home.path(), &format!("{SECRET} it is"), &mut left);
    assert!(left.is_empty(), "{left:?}");
    home.run(&["verify", &id]).exits(0);
    // What the session can't be read without is refused.
    let created = home.run(&["redact", &id, "--position", "1", "--yes"]).exits(4);
    assert!(created.err.contains("can't be read without it"), "{}", created.err);
}

/// Writes that a session is being forgotten, as whoever can write into the home may.
fn forge(home: &Home, id: &str, workspace: &str, exports: &[&str]) {
    let exports: Vec<_> = exports.iter().map(|path| path.as_bytes().to_vec()).collect();
    let note = serde_json::json!({
        "session": id, "workspace": workspace, "archive": "erased", "last": 5, "artifacts": [], "exports": exports,
    });
    fs::create_dir_all(home.path().join("deletions")).unwrap();
    fs::write(home.path().join(format!("deletions/{id}.json")), note.to_string()).unwrap();
}

fn workspace_dir(home: &Home) -> PathBuf {
    fs::read_dir(home.path().join("workspaces")).unwrap().next().unwrap().unwrap().path()
}

/// Notes and links that somebody planted lead a deletion nowhere outside of the home, and keep none from being done.
#[test]
fn a_deletion_removes_nothing_outside_of_the_home() {
    const FORGED: &str = "0197b4a2-7c1e-7000-8000-0123456789ab";
    let home = Home::new();
    let [id, stays] = two(&home);
    let outside = home.dir.path().join("outside");
    for name in ["archive", "sessions", "artifacts"] {
        for id in [FORGED, &format!("{FORGED}.deleted"), &id] {
            fs::create_dir_all(outside.join(name).join(id)).unwrap();
            fs::write(outside.join(name).join(id).join("precious"), "precious").unwrap();
        }
    }
    fs::create_dir_all(outside.join("index/catalog")).unwrap();
    for name in ["memory.sqlite", "memory.sqlite-wal", "catalog/db"] {
        fs::write(outside.join("index").join(name), "precious").unwrap();
    }
    let before = snapshot(&outside);
    let link = std::os::unix::fs::symlink::<PathBuf, PathBuf>;
    link(outside.clone(), home.path().join("link")).unwrap();
    link(outside.clone(), home.path().join("workspaces/aaaaaaaaaaaa")).unwrap();
    let workspace = workspace_dir(&home);
    let workspace = if workspace.ends_with("aaaaaaaaaaaa") {
        let mut all = fs::read_dir(home.path().join("workspaces")).unwrap().map(|it| it.unwrap().path());
        all.find(|path| !path.ends_with("aaaaaaaaaaaa")).unwrap()
    } else {
        workspace
    };
    let hash = workspace.file_name().unwrap().to_str().unwrap().to_owned();
    let exports = ["link/archive", "link/index/memory.sqlite", "../outside/index", "link/../link/sessions"];
    // A workspace that is a link, and one that is none any more.
    for of in ["aaaaaaaaaaaa", "bbbbbbbbbbbb"] {
        forge(&home, FORGED, of, &[]);
        Store::open(home.path()).unwrap();
        assert!(!home.path().join(format!("deletions/{FORGED}.json")).exists());
        assert_eq!(snapshot(&outside), before);
    }
    forge(&home, FORGED, &hash, &exports);
    home.run(&["delete", &stays, "--yes"]).exits(0);
    assert_eq!(snapshot(&outside), before);
    // Links in the place of what is ours.
    for name in ["archive", "index", "artifacts"] {
        drop(fs::remove_dir_all(workspace.join(name)));
        link(outside.join(name), workspace.join(name)).unwrap();
        home.run(&["forget", &id, "--yes"]).exits(4);
        assert_eq!(snapshot(&outside), before, "{name}");
        fs::remove_file(workspace.join(name)).unwrap();
    }
    drop(fs::remove_dir_all(home.path().join("index")));
    link(outside.join("index"), home.path().join("index")).unwrap();
    home.run(&["forget", &id, "--yes"]).exits(4);
    assert_eq!(snapshot(&outside), before);
    fs::remove_file(home.path().join("index")).unwrap();
    home.run(&["forget", &id, "--yes"]).exits(0);
    assert!(files_below(&home.path(), SECRET).is_empty());
}

fn files_below(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            found.extend(files_below(&path, text));
        } else if fs::read(&path).unwrap().windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(path);
        }
    }
    found
}

/// Forgetting waits with its artifacts for a neighbour that is hurt. Meanwhile others are deleted, that neighbour too, and then
/// it is done.
#[test]
fn what_hinders_a_deletion_hinders_no_other_one() {
    let home = Home::new();
    let [hurt, stays] = two(&home);
    let session = home.store.create(home.dir.path(), NewSession::new("secret")).unwrap();
    session.artifacts().put(NewArtifact::new("report", "plugh in a report")).unwrap();
    let forgotten = session.id().to_string();
    session.close().unwrap();
    let path = segment(&home.path(), &hurt);
    let mut bytes = fs::read(&path).unwrap();
    bytes[600] ^= 0xff;
    fs::write(&path, &bytes).unwrap();
    home.run(&["forget", &forgotten, "--yes"]).exits(3);
    home.run(&["delete", &stays, "--yes"]).exits(0);
    home.run(&["delete", &hurt, "--yes"]).exits(0);
    Store::open(home.path()).unwrap();
    assert!(files_below(&home.path(), "plugh in a report").is_empty());
    let notes = fs::read_dir(home.path().join("deletions")).unwrap();
    assert_eq!(notes.count(), 1, "the lock");
}

/// Copies that somebody laid beside what is ours, under names that look like ours.
#[test]
fn copies_beside_what_is_ours_are_forgotten_too() {
    let home = Home::new();
    let [id, stays] = two(&home);
    home.run(&["roots", "hide", &stays, "--reason", "done"]).exits(0);
    // A tail of the user's log that a crash tore, with the word in it.
    let reason = format!("{SECRET} {}", "and so on ".repeat(30));
    home.run(&["roots", "hide", &id, "--reason", &reason]).exits(0);
    let log = home.path().join("user/log/00000000000000000001.seg");
    let bytes = fs::read(&log).unwrap();
    let at = bytes.windows(SECRET.len()).rposition(|window| window == SECRET.as_bytes()).unwrap();
    fs::write(&log, &bytes[..at + 40]).unwrap();
    home.run(&["roots", "unhide", &stays]).exits(0);
    assert!(!files_below(&home.path().join("user/quarantine"), SECRET).is_empty());
    home.run(&["search", SECRET, "--all-workspaces"]).exits(0);
    let workspace = workspace_dir(&home);
    fs::create_dir_all(home.path().join("index")).unwrap();
    let copy = fs::read(workspace.join(format!("sessions/{id}/transcript.jsonl"))).unwrap();
    for place in ["workspace", "artifacts", "index", "sessions", "archive"] {
        fs::create_dir_all(workspace.join(place)).unwrap();
        fs::write(workspace.join(place).join(format!("{id}.jsonl")), &copy).unwrap();
    }
    for place in ["user", "index"] {
        fs::write(home.path().join(place).join(format!("{id}.jsonl")), &copy).unwrap();
    }
    let backup = workspace.join(format!("sessions/{id}.bak/log"));
    fs::create_dir_all(&backup).unwrap();
    fs::copy(segment(&home.path(), &id), backup.join("00000000000000000001.seg")).unwrap();
    home.run(&["forget", &id, "--yes"]).exits(0);
    assert_eq!(files_below(&home.path(), SECRET), Vec::<PathBuf>::new());
    home.run(&["verify", &stays]).exits(0);
}

/// Killed, a fork leaves no more than a session does whose creation did not finish: nothing was lost.
#[test]
fn a_fork_that_was_killed_is_no_loss() {
    let home = Home::new();
    let [id, _] = two(&home);
    let fork = segment(&home.path(), &id)
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .with_file_name("0197b4a2-7c1e-7000-8000-0123456789ab");
    fs::create_dir_all(fork.join("log.forking")).unwrap();
    fs::write(fork.join("owner.lock"), "").unwrap();
    fs::copy(segment(&home.path(), &id), fork.join("log.forking/00000000000000000001.seg")).unwrap();
    home.run(&["verify", "0197b4a2-7c1e-7000-8000-0123456789ab"]).exits(1);
    home.run(&["doctor"]).exits(1);
    home.run(&["forget", &id, "--yes"]).exits(0);
    assert_eq!(files_below(&home.path(), SECRET), Vec::<PathBuf>::new());
}
