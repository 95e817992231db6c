//! `logdump` with q's session files: in, out, and what it refuses.

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
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use cli_support::*;
use serde_json::Value;

const ID: &str = "0f1e2d3c-0000-4000-8000-0000000000a3";

fn fixture(case: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/q").join(case);
    path.to_str().unwrap().to_owned()
}

/// The files below a directory with their bytes, without the export's own.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let all = snapshot(dir).into_iter();
    all.filter_map(|(path, (_, _, bytes))| Some((path.strip_prefix(dir).unwrap().to_owned(), bytes?)))
        .filter(|(path, _)| path != Path::new(".sessionlog-export.json"))
        .collect()
}

/// A home with the case of delegates in it.
fn home() -> Home {
    let home = Home::new();
    let run = home.run(&["import", &fixture("delegates")]);
    assert_eq!(run.code, 0, "{}", run.err);
    home
}

#[test]
fn a_session_comes_out_as_it_went_in() {
    let home = home();
    // Again: no byte of the home changes.
    let before = snapshot(&home.path());
    let again = home.run(&["import", &fixture("delegates")]);
    assert_eq!((again.code, again.out.contains("unchanged")), (0, true), "{}", again.out);
    assert_eq!(snapshot(&home.path()), before);
    let verified = home.run(&["verify", ID]);
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);

    let to = home.dir.path().join("out/q");
    let run = home.run(&["export", ID, "--format", "q", "--to", to.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("delegation-state.json"), "{}", run.err);
    assert_eq!(files(&to), files(Path::new(&fixture("delegates"))));

    // An export of it may be replaced, and says in JSON what it wrote.
    let json = home.run(&["export", ID, "--format", "q", "--to", to.to_str().unwrap(), "--json"]);
    assert_eq!(json.code, 0, "{}", json.err);
    let value: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(value["session"], ID);
    assert_eq!(value["files"].as_array().unwrap().len(), files(&to).len());
    assert_eq!(files(&to), files(Path::new(&fixture("delegates"))));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let session = to.join("sessions").join(ID);
    assert_eq!((mode(&session), mode(&session.join("session.json"))), (0o700, 0o600));
}

#[track_caller]
fn refused(home: &Home, args: &[&str], code: &str) {
    let run = home.run(args);
    assert_eq!(run.code, 4, "{}", run.err);
    assert!(run.err.contains(code), "{}", run.err);
}

#[test]
fn an_export_replaces_nothing_but_itself() {
    let home = home();
    let to = home.dir.path().join("out");
    let args = ["export", ID, "--format", "q", "--to", to.to_str().unwrap()];
    // Something else is there.
    fs::create_dir(&to).unwrap();
    fs::write(to.join("mine"), "x").unwrap();
    refused(&home, &args, "export.exists");
    fs::remove_file(to.join("mine")).unwrap();
    assert_eq!(home.run(&args).code, 0);
    // A file of the export was changed, or one was added.
    let session = to.join("sessions").join(ID);
    let state = session.join("session.json");
    let exported = fs::read(&state).unwrap();
    fs::write(&state, "{}").unwrap();
    refused(&home, &args, "session.json is not as the export left it");
    fs::write(&state, exported).unwrap();
    fs::write(session.join("thinker-checkpoint.json"), "{}").unwrap();
    refused(&home, &args, "thinker-checkpoint.json");
    fs::remove_file(session.join("thinker-checkpoint.json")).unwrap();
    assert_eq!(home.run(&args).code, 0);
    // Another session's export is there.
    assert_eq!(home.run(&["import", &fixture("v2-parts")]).code, 0);
    let other = "0f1e2d3c-0000-4000-8000-0000000000a2";
    refused(&home, &["export", other, "--format", "q", "--to", to.to_str().unwrap()], "export.exists");
}

#[test]
fn an_export_stays_where_it_is_told_to() {
    let home = home();
    let inside = home.path().join("new/dir");
    refused(&home, &["export", ID, "--format", "q", "--to", inside.to_str().unwrap()], "export.inside");
    refused(&home, &["export", ID, "--format", "q"], "export.to");
    refused(&home, &["export", ID, "--format", "seed", "--to", "x"], "export.to");
    let child = "c0ffee00-0000-4000-8000-000000000001";
    refused(&home, &["export", child, "--format", "q", "--to", "x"], "export.child");
    // A link in place of the directory, and one below it.
    let (real, link) = (home.dir.path().join("real"), home.dir.path().join("link"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    refused(&home, &["export", ID, "--format", "q", "--to", link.to_str().unwrap()], "export.exists");
    let to = home.dir.path().join("out");
    fs::create_dir(&to).unwrap();
    symlink(&real, to.join("sessions")).unwrap();
    refused(&home, &["export", ID, "--format", "q", "--to", to.to_str().unwrap()], "export.exists");
    assert_eq!(fs::read_dir(&real).unwrap().count(), 0);
}

#[test]
fn a_damaged_or_unknown_file_is_told_of() {
    let home = Home::new();
    let dir = home.dir.path().join("in");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("session.json"), r#"{"version":3,"run_id":"r","transcript":[]}"#).unwrap();
    let run = home.run(&["import", dir.to_str().unwrap()]);
    assert_eq!(run.code, 6, "{}", run.err);
    assert!(run.err.contains("field version is 3") && run.err.contains("1 or 2"), "{}", run.err);
    let rows: Value = serde_json::from_str(&home.run(&["ls", "--json"]).out).unwrap();
    assert_eq!(rows["sessions"], serde_json::json!([]), "nothing of it is in the home");
}
