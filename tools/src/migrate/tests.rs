//! Migration as a whole: workspaces as older agents leave them, on a real disk, into homes on a real and on a simulated one.

mod crashes;
mod forms;
mod removal;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sessionlog::codec::event::Event;
use sessionlog::codec::ids::Position;
use sessionlog::session::EventItem;
use sessionlog::{Durability, Store, StoreOptions, ViewPolicy};

use super::{Disk, Found, Migration, OsDisk, Removal, Row, find};

/// A workspace as recursive leaves it in each of its forms, and as q's first layout does.
struct Workspace {
    dir: tempfile::TempDir,
}

const META: &str = r#"{"schema_version":1,"session_id":"ID","goal":"fix it","model":"m","provider":"p","created_at":"2026-03-01T10:00:00Z","updated_at":"2026-03-01T10:05:00Z","message_count":2,"status":"completed","name":"fix it","first_prompt":"fix it"}"#;

fn said(id: &str, nth: usize, role: &str, text: &str) -> String {
    let uuid = format!("{id}-{nth}");
    format!(
        r#"{{"uuid":"{uuid}","id":"msg_{nth:03}","role":"{role}","content":"{text}","timestamp":"2026-03-01T10:00:{:02}Z"}}"#,
        nth % 60
    ) + "\n"
}

/// A transcript of so many lines, the last of them a call that nobody answered.
fn transcript(id: &str, lines: usize) -> String {
    let mut text = String::new();
    for nth in 1..lines {
        text += &said(id, nth, if nth % 2 == 1 { "user" } else { "assistant" }, &format!("{id} line {nth}"));
    }
    text + &format!(
        r#"{{"uuid":"{id}-{lines}","id":"msg_{lines:03}","role":"assistant","content":"","tool_calls":[{{"id":"c1","name":"Read","arguments":{{"path":"x"}}}}],"timestamp":"2026-03-01T10:01:00Z"}}"#
    ) + "\n"
}

impl Workspace {
    fn empty() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// One of each form, ten sources.
    fn full() -> Self {
        let it = Self::empty();
        it.session(".recursive/sessions/2026-03-01T10-00-00Z-w", "2026-03-01T10-00-00Z-w", 5);
        it.session(".recursive/sessions/w/2026-03-01T10-00-01Z-w", "2026-03-01T10-00-01Z-w", 3);
        it.put(
            ".recursive/sessions/w/2026-03-01T10-00-01Z-w/checkpoints.jsonl",
            "{\"turn\":1,\"id\":\"2cccbba4a207\",\"message\":\"done\",\"saved_at\":1796034912}\n",
        );
        it.put(
            ".recursive/sessions/2026-02-01T10-00-00Z-older.json",
            r#"{"schema_version":1,"goal":"older","model":"m","provider":"p","steps_consumed":1,"transcript":[{"role":"user","content":"older"},{"role":"assistant","content":"yes"}]}"#,
        );
        it.put(
            ".recursive/sessions/sess-1.jsonl",
            "{\"role\":\"user\",\"content\":\"bare\"}\n{\"role\":\"assistant\",\"content\":\"words\"}\n",
        );
        it.put(".recursive/scratchpad.json", r#"{"entries":[{"key":"plan","value":"look first"}]}"#);
        it.put(".recursive/mcp.json", "{}");
        it.put(
            ".q/session.json",
            r#"{"version":1,"run_id":"run-7","transcript":[{"role":"user","content":"list"},{"role":"assistant","content":"none"}],"context":[{"role":"user","content":"list"},{"role":"assistant","content":"none"}],"learning":{"version":1,"stream_id":"00","next_cursor":1,"events":[],"queue":[]}}"#,
        );
        it.put(
            ".q/plan-execution.json",
            r#"{"version":1,"updated_at":"2026-02-02T10:00:00Z","checkpoint":{"execution_id":"e1","run_id":"run-6","objective":"Build it","phase":"coder_pending","task_index":0,"attempt":1}}"#,
        );
        it
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("w").canonicalize().unwrap()
    }

    fn put(&self, name: &str, content: &str) {
        let path = self.dir.path().join("w").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn session(&self, dir: &str, id: &str, lines: usize) {
        self.put(&format!("{dir}/transcript.jsonl"), &transcript(id, lines));
        self.put(&format!("{dir}/.meta.json"), &META.replace("ID", id));
    }

    fn found(&self) -> Vec<Found> {
        find(&[self.path()]).unwrap().found
    }
}

fn options() -> StoreOptions {
    StoreOptions { durability: Durability::Buffered, views: ViewPolicy::AtClose, ..StoreOptions::default() }
}

fn run(store: &Store, found: &[Found]) -> Vec<Row> {
    run_with(store, found, Removal::Keep, &OsDisk)
}

fn run_with(store: &Store, found: &[Found], removal: Removal, disk: &dyn Disk) -> Vec<Row> {
    let migration = Migration { store, removal, disk };
    found.iter().map(|found| migration.run(found, &mut |_| ())).collect()
}

fn words(rows: &[Row]) -> Vec<&'static str> {
    rows.iter().map(|row| row.outcome.word()).collect()
}

/// What is told in a home: of each session its workspace, and its events but for who owned it when.
fn told(store: &Store) -> BTreeMap<String, (String, Vec<String>)> {
    let reader = store.reader();
    let mut all = BTreeMap::new();
    for row in reader.roots().unwrap().rows {
        assert_eq!(row.session.issue, None);
        let mut events = Vec::new();
        let session = reader.session(row.session.root).unwrap();
        session
            .events(Position(1), &mut |event| {
                let EventItem::Event(event) = event else { panic!("a gap") };
                if !matches!(event.event, Event::SessionOpened(_) | Event::SessionClosed(_)) {
                    events.push(format!("{:?} {:?}", event.node, event.event));
                }
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        let verified = session.verify().unwrap();
        let wrong: Vec<_> =
            verified.all().filter(|finding| finding.severity > sessionlog::log::Severity::Note).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        all.insert(row.session.id, (row.session.workspace, events));
    }
    all
}

/// Every file of a directory, with its bytes and its time.
fn tree(dir: &Path) -> BTreeMap<PathBuf, (Option<std::time::SystemTime>, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                dirs.push(path.clone());
                all.insert(path, (meta.modified().ok(), Vec::new()));
            } else {
                all.insert(path.clone(), (meta.modified().ok(), fs::read(&path).unwrap()));
            }
        }
    }
    all
}
