//! `ls --catalog` says what `ls` says, and exits as it does: of sound logs and of those that are not.

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

use cli_support::{Home, Run, flip, foreign, logdump, segment, snapshot, talk};

/// So many that a catalog is worth it.
const SESSIONS: usize = 40;

fn closed(home: &Home, goal: &str, kind: Option<u16>) -> String {
    let session = home.session(goal);
    talk(&session);
    if let Some(kind) = kind {
        foreign(&session, kind, b"from the future");
    }
    let id = session.id().to_string();
    session.close().unwrap();
    id
}

/// What is said without a catalog, and then with one, made and used twice.
#[track_caller]
fn check(home: &Home, code: i32) {
    let index = home.path().join("index");
    drop(fs::remove_dir_all(&index));
    let before = snapshot(&home.path());
    let said = |run: Run| (run.code, run.out, run.err);
    let without: Vec<_> = [&["ls"][..], &["ls", "--json"]].map(|args| said(home.run(args))).into();
    assert_eq!(without[0].0, code, "{:?}", without[0]);
    assert_eq!(snapshot(&home.path()), before, "who does not ask for a catalog changes nothing");
    for _ in 0..3 {
        let asked = [&["ls", "--catalog"][..], &["ls", "--json", "--catalog"]];
        let with: Vec<_> = asked.map(|args| said(home.run(args))).into();
        assert_eq!(with, without);
    }
    let made = snapshot(&index);
    home.run(&["ls"]).exits(code);
    assert_eq!(snapshot(&index), made, "nor one that is there");
    let mut after = snapshot(&home.path());
    after.retain(|path, _| before.contains_key(path));
    let mut before = before;
    before.remove(&home.path());
    after.remove(&home.path());
    assert_eq!(after, before, "nothing but the catalog is changed");
}

#[test]
fn a_catalog_changes_nothing_of_what_is_said() {
    let home = Home::new();
    let ids: Vec<String> = (0..SESSIONS).map(|nth| closed(&home, &format!("goal {nth}"), None)).collect();
    check(&home, 0);
    let open = home.session("left open");
    talk(&open);
    check(&home, 0);
    drop(open);
    // What a listing decodes nothing of: an event of a newer version, then one of this version that does not decode.
    closed(&home, "newer", Some(9_999));
    check(&home, 1);
    closed(&home, "odd", Some(31));
    check(&home, 3);
    let torn = segment(&home.path(), &ids[7]);
    let mut bytes = fs::read(&torn).unwrap();
    bytes.extend([0x5a; 100]);
    fs::write(torn, bytes).unwrap();
    check(&home, 3);
    flip(&segment(&home.path(), &ids[8]), "Why does the test fail?");
    check(&home, 3);
}

/// A log is hurt after the catalog said that it ends well.
#[test]
fn what_is_hurt_later_is_told() {
    let home = Home::new();
    let ids: Vec<String> = (0..SESSIONS).map(|nth| closed(&home, &format!("goal {nth}"), None)).collect();
    home.store.list().unwrap();
    logdump(&home.path(), &["ls", "--catalog"]).exits(0);
    flip(&segment(&home.path(), &ids[3]), "Why does the test fail?");
    logdump(&home.path(), &["ls", "--catalog"]).exits(3);
    let (session, _) = home.store.resume(ids[5].parse().unwrap()).unwrap();
    foreign(&session, 9_999, b"from the future");
    session.close().unwrap();
    let said = logdump(&home.path(), &["ls", "--catalog"]).exits(3);
    assert!(said.out.contains("1 event is of a newer version"), "{}", said.out);
}
