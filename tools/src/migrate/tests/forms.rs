//! Every form, and everything that can be odd about one.

use std::fs;

use sessionlog::codec::event::Event;
use sessionlog::codec::ids::Position;
use sessionlog::projections::Status;
use sessionlog::session::EventItem;
use sessionlog::{Message, NewSession, Store};

use super::*;
use crate::exit::Exit;
use crate::migrate::{Originals, Outcome};

fn home() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path().join("home"), options()).unwrap();
    (dir, store)
}

fn by_format<'a>(rows: &'a [Row], format: &str) -> Vec<&'a Row> {
    rows.iter().filter(|row| row.format == format).collect()
}

fn title(store: &Store, row: &Row) -> String {
    store.reader().find(&row.session_id.to_string()).unwrap().title.unwrap_or_default()
}

#[test]
fn every_form_becomes_a_session_of_its_workspace() {
    let workspace = Workspace::full();
    let before = tree(workspace.dir.path());
    let (_dir, store) = home();
    let found = workspace.found();
    let rows = run(&store, &found);
    assert_eq!(words(&rows), ["new"; 7]);
    assert!(rows.iter().all(|row| row.exit == Exit::Clean && row.odd.is_empty()), "{rows:?}");
    assert_eq!(by_format(&rows, "recursive").len(), 2, "a directory, and one within a slug");
    assert_eq!(by_format(&rows, "recursive-document").len(), 1);
    assert_eq!(by_format(&rows, "recursive-messages").len(), 1);
    assert_eq!(by_format(&rows, "q").len(), 2);
    let titles: Vec<_> = by_format(&rows, "q").iter().map(|row| title(&store, row)).collect();
    assert_eq!(titles, ["Interrupted plan: Build it", "list"]);
    let pad = by_format(&rows, "recursive-scratchpad");
    assert_eq!(title(&store, pad[0]), "Scratchpad");
    let mut told_of_pad = Vec::new();
    let session = store.reader().session(pad[0].session_id).unwrap();
    session
        .events(Position(1), &mut |event| {
            if let EventItem::Event(event) = event
                && let Event::HostEvent(event) = event.event
            {
                told_of_pad.push((event.name, event.data.0));
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    let bytes = fs::read(workspace.path().join(".recursive/scratchpad.json")).unwrap();
    assert_eq!(told_of_pad, [("scratchpad".to_owned(), bytes)]);
    let roots = store.roots().unwrap();
    assert_eq!(roots.rows.len(), 7);
    for row in &roots.rows {
        assert_eq!(row.workspace.path, workspace.path());
        assert_ne!(row.session.status, Status::Crashed);
    }
    assert_eq!(tree(workspace.dir.path()), before, "originals are not changed");
}

#[test]
fn a_plan_changes_nothing_and_says_what_then_comes() {
    let workspace = Workspace::full();
    let before = tree(workspace.dir.path());
    let (dir, store) = home();
    let found = workspace.found();
    let plan = |reader: Option<&sessionlog::StoreReader>| -> Vec<Row> {
        found.iter().map(|found| Migration::plan(found, reader, Removal::Keep, &mut |_| ())).collect()
    };
    let home_before = tree(dir.path());
    let without = plan(None);
    let with = plan(Some(&store.reader()));
    assert_eq!(tree(workspace.dir.path()), before);
    assert_eq!(tree(dir.path()), home_before);
    let done = run(&store, &found);
    for (planned, done) in without.iter().chain(&with).zip(done.iter().chain(&done)) {
        let facts =
            |row: &Row| (row.outcome, row.session_id, row.records, row.messages, row.workspace.clone());
        assert_eq!(facts(planned), facts(done));
    }
    let home_before = tree(dir.path());
    assert_eq!(words(&plan(Some(&store.reader()))), ["unchanged"; 7]);
    assert_eq!(words(&run(&store, &workspace.found())), ["unchanged"; 7]);
    assert_eq!(tree(dir.path()), home_before, "a second run changes no byte");
}

#[test]
fn other_sessions_and_earlier_listings_are_in_nobodys_way() {
    let workspace = Workspace::full();
    let (_dir, store) = home();
    let own = store.create(workspace.path(), NewSession::new("mine")).unwrap();
    own.append(Message::user("mine")).unwrap();
    assert_eq!(store.roots().unwrap().rows.len(), 1);
    assert_eq!(store.list().unwrap().len(), 1);
    let migration = Migration { store: &store, removal: Removal::Keep, disk: &OsDisk };
    let mut listed = 0;
    for found in workspace.found() {
        let row = migration.run(&found, &mut |_| {
            let roots = store.reader().roots().unwrap();
            assert!(roots.rows.iter().all(|row| row.session.issue.is_none()) && roots.issues.is_empty());
            listed += 1;
        });
        assert_eq!(row.outcome, Outcome::New);
    }
    assert!(listed >= 7, "a list was made while it went on");
    assert_eq!(store.roots().unwrap().rows.len(), 8);
    own.append(Message::assistant("still mine")).unwrap();
}

#[test]
fn of_a_hundred_one_is_bad_and_the_rest_goes_on() {
    let workspace = Workspace::empty();
    for nth in 0..100 {
        let id = format!("2026-03-01T10-00-{nth:02}Z-w");
        workspace.session(&format!(".recursive/sessions/w/{id}"), &id, 2);
    }
    workspace.put(".recursive/sessions/w/2026-03-01T10-00-41Z-w/.meta.json", "");
    workspace.put(".recursive/sessions/w/2026-03-01T10-00-41Z-w/transcript.jsonl", "\u{1}\u{2} no session\n");
    // What is in the place of sessions, and is none.
    workspace.put(".recursive/sessions/empty.json", "");
    workspace.put(".recursive/sessions/zeros.json", &"\0".repeat(300));
    workspace.put(".recursive/sessions/cut.jsonl", "{\"role\":\"us");
    workspace.put(".recursive/sessions/other.json", "{\"version\":[1]}");
    workspace.put(".q/session.json", "{\"version\":9,\"run_id\":\"run-1\",\"transcript\":[]}");
    let findings = find(&[workspace.path()]).unwrap();
    let (_dir, store) = home();
    let rows = run(&store, &findings.found);
    let new = rows.iter().filter(|row| row.outcome == Outcome::New).count();
    assert_eq!(new, 99);
    let failed: Vec<_> = rows.iter().filter(|row| row.outcome == Outcome::Failed).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].error.as_ref().unwrap().contains("version"), "{failed:?}");
    assert_eq!(failed[0].exit, Exit::Warnings);
    let unread: Vec<_> = findings
        .unread
        .iter()
        .map(|it| (it.path.file_name().unwrap().to_str().unwrap().to_owned(), it.why.clone()))
        .collect();
    let why = |name: &str| unread.iter().filter(|it| it.0 == name).map(|it| it.1.clone()).collect::<Vec<_>>();
    assert_eq!(why("empty.json"), ["is empty"]);
    assert!(why("zeros.json")[0].contains("zero bytes"));
    assert!(why("cut.jsonl")[0].contains("not JSON"));
    assert!(why("other.json")[0].contains("no form of session"));
    assert!(why("transcript.jsonl")[0].contains("not JSON"), "{unread:?}");
    assert_eq!(why(".meta.json"), ["is empty"]);
    assert_eq!(unread.len(), 6);
    assert_eq!(store.roots().unwrap().rows.len(), 99);
}

#[test]
fn a_source_that_grew_goes_on_and_one_that_was_rewritten_is_refused() {
    let workspace = Workspace::empty();
    workspace.session(".recursive/sessions/s", "s", 4);
    workspace.session(".recursive/sessions/t", "t", 4);
    let (dir, store) = home();
    run(&store, &workspace.found());
    workspace
        .put(".recursive/sessions/s/transcript.jsonl", &(transcript("s", 4) + &said("s", 5, "user", "more")));
    workspace.put(".recursive/sessions/t/transcript.jsonl", &transcript("other", 4));
    workspace
        .put(".recursive/sessions/t/.meta.json", &META.replace("ID", "t").replace("completed", "paused"));
    let rows = run(&store, &workspace.found());
    assert_eq!(words(&rows), ["grown", "conflict"]);
    assert_eq!((rows[0].records, rows[1].records), (1, 0), "what goes with another transcript is not taken");
    assert_eq!(rows[1].exit, Exit::Warnings);
    let before = tree(dir.path());
    assert_eq!(words(&run(&store, &workspace.found())), ["unchanged", "conflict"]);
    assert_eq!(tree(dir.path()), before);
    assert_eq!(store.roots().unwrap().rows.len(), 2);
}

#[test]
fn a_session_that_went_on_here_is_left_alone() {
    let workspace = Workspace::empty();
    workspace.session(".recursive/sessions/s", "s", 4);
    let (dir, store) = home();
    let id = run(&store, &workspace.found())[0].session_id;
    let (session, _) = store.resume(id).unwrap();
    session.append(Message::user("and then")).unwrap();
    drop(session);
    let before = tree(dir.path());
    assert_eq!(words(&run(&store, &workspace.found())), ["unchanged"]);
    assert_eq!(tree(dir.path()), before, "its host crashed; that is its host's to mend");
}

/// A workspace was copied and both went on; another was copied and only one did.
#[test]
fn copies_of_a_workspace_are_one_session_until_they_differ() {
    let all = Workspace::empty();
    let put = |name: &str, text: &str| all.put(name, text);
    for copy in ["a", "b", "c"] {
        put(&format!("{copy}/.recursive/sessions/s/transcript.jsonl"), &transcript("s", 4));
        let status = if copy == "a" { "completed" } else { "paused" };
        let meta = META.replace("ID", "s").replace("completed", status);
        put(&format!("{copy}/.recursive/sessions/s/.meta.json"), &meta);
    }
    let other = transcript("s", 4) + &said("s", 5, "user", "in b");
    let (dir, store) = home();
    let rows = run(&store, &all.found());
    assert_eq!(words(&rows), ["new", "unchanged", "unchanged"]);
    assert!(rows[1].odd[0].contains("is a copy of"), "{rows:?}");
    let before = tree(dir.path());
    assert_eq!(words(&run(&store, &all.found())), ["unchanged"; 3]);
    assert_eq!(tree(dir.path()), before, "metadata of copies does not come and go");

    put("a/.recursive/sessions/s/transcript.jsonl", &(transcript("s", 4) + &said("s", 5, "user", "in a")));
    put("b/.recursive/sessions/s/transcript.jsonl", &other);
    let found = all.found();
    let planned: Vec<Row> =
        found.iter().map(|found| Migration::plan(found, None, Removal::Keep, &mut |_| ())).collect();
    let rows = run(&store, &found);
    assert_eq!(words(&rows), ["grown", "new", "unchanged"]);
    assert_eq!(rows[0].session_id, found[0].source.session_id);
    assert_ne!(rows[1].session_id, rows[0].session_id);
    assert_eq!(planned[1].session_id, rows[1].session_id, "a plan without a home tells the same");
    assert!(rows[1].odd[0].contains("is called s, too"), "{rows:?}");
    let before = tree(dir.path());
    for order in [[0, 1, 2], [2, 1, 0]] {
        let found: Vec<Found> = order.iter().map(|nth| all.found()[*nth].clone()).collect();
        assert_eq!(words(&run(&store, &found)), ["unchanged"; 3]);
    }
    assert_eq!(tree(dir.path()), before);
    assert_eq!(store.roots().unwrap().rows.len(), 2);
}

#[test]
fn what_was_imported_without_its_workspace_is_attached_to_it() {
    let workspace = Workspace::empty();
    workspace.session(".recursive/sessions/s", "s", 4);
    let (dir, store) = home();
    let mut found = workspace.found();
    let place = found[0].workspace.take();
    run(&store, &found);
    assert_eq!(store.list().unwrap()[0].workspace, "");
    found[0].workspace = place;
    assert_eq!(words(&run(&store, &found)), ["unchanged"]);
    assert_eq!(store.list().unwrap()[0].workspace, workspace.path().to_str().unwrap());
    let before = tree(dir.path());
    assert_eq!(words(&run(&store, &found)), ["unchanged"]);
    assert_eq!(tree(dir.path()), before);
}

#[test]
fn homes_of_ours_and_links_are_not_searched() {
    let workspace = Workspace::full();
    let store = Store::open_with(workspace.path().join("home"), options()).unwrap();
    run(&store, &workspace.found());
    assert_eq!(workspace.found().len(), 7, "views in the home are no sources");
    let findings = find(&[workspace.path()]).unwrap();
    assert!(findings.notes.iter().any(|note| note.text.contains("sessionlog home")));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(workspace.path(), workspace.path().join("loop")).unwrap();
        assert_eq!(workspace.found().len(), 7);
    }
    // Below two of the paths, it is one thing.
    let twice = find(&[workspace.path(), workspace.path().join(".recursive"), workspace.path()]).unwrap();
    assert_eq!(twice.found.len(), 7);
    let alone = find(&[workspace.path().join(".recursive/sessions/sess-1.jsonl")]).unwrap().found;
    assert_eq!(alone.len(), 1);
    assert_eq!(alone[0].workspace.as_deref(), Some(workspace.path().as_os_str().as_encoded_bytes()));
    assert_eq!(words(&run(&store, &alone)), ["unchanged"], "however it was given");
}

#[test]
fn recursives_own_home_knows_its_workspaces() {
    let all = Workspace::empty();
    all.put("workspaces/944d51144ca0/path.txt", "/home/dev/demo");
    all.session("workspaces/944d51144ca0/sessions/home-dev-demo/s", "s", 4);
    all.put("workspaces/944d51144ca0/scratchpad.json", "not JSON");
    let (_dir, store) = home();
    let rows = run(&store, &all.found());
    assert_eq!(words(&rows), ["new", "new"]);
    assert!(rows.iter().all(|row| row.workspace == b"/home/dev/demo"));
    assert!(rows[0].odd[0].contains("kept as it is"), "{rows:?}");
    assert!(store.roots().unwrap().rows.iter().all(|row| row.workspace.hash.as_str() == "944d51144ca0"));
}

#[test]
fn a_session_without_a_run_is_named_by_what_was_said_first() {
    let all = Workspace::empty();
    let session = |said: &str| {
        format!(
            r#"{{"version":1,"run_id":"","transcript":[{{"role":"user","content":"{said}"}}],"context":[],"learning":{{}}}}"#
        )
    };
    all.put("a/.q/session.json", &session("one"));
    all.put("b/.q/session.json", &session("two"));
    all.put("c/.q/plan-execution.json", r#"{"version":1,"updated_at":"","checkpoint":{"run_id":"run-1","objective":"Alone","phase":"target"}}"#);
    let found = all.found();
    assert_eq!(found.len(), 3);
    assert_ne!(found[0].source.session_id, found[1].source.session_id);
    let (_dir, store) = home();
    assert_eq!(words(&run(&store, &found)), ["new"; 3]);
    assert_eq!(words(&run(&store, &all.found())), ["unchanged"; 3]);
}

#[test]
fn what_was_deleted_here_is_not_brought_back() {
    let workspace = Workspace::empty();
    workspace.session(".recursive/sessions/s", "s", 4);
    workspace.session(".recursive/sessions/t", "t", 4);
    let (dir, store) = home();
    let rows = run(&store, &workspace.found());
    store.delete(rows[0].session_id).unwrap();
    let found = workspace.found();
    let before = tree(dir.path());
    let planned = Migration::plan(&found[0], Some(&store.reader()), Removal::Remove, &mut |_| ());
    let rows = run_with(&store, &found, Removal::Keep, &OsDisk);
    assert_eq!(words(&rows), ["deleted", "unchanged"]);
    assert_eq!((planned.outcome, planned.exit), (Outcome::Deleted, Exit::Warnings));
    assert!(matches!(planned.originals, Originals::Refused(_)));
    assert_eq!(tree(dir.path()), before);
}

#[test]
fn one_that_somebody_owns_waits() {
    let workspace = Workspace::empty();
    workspace.session(".recursive/sessions/s", "s", 4);
    let (_dir, store) = home();
    let id = run(&store, &workspace.found())[0].session_id;
    let (session, _) = store.resume(id).unwrap();
    workspace
        .put(".recursive/sessions/s/transcript.jsonl", &(transcript("s", 4) + &said("s", 5, "user", "more")));
    let rows = run(&store, &workspace.found());
    assert_eq!((rows[0].outcome, rows[0].exit), (Outcome::Failed, Exit::Locked));
    assert_eq!(rows[0].originals, Originals::Kept);
    session.close().unwrap();
    assert_eq!(words(&run(&store, &workspace.found())), ["grown"]);
}
