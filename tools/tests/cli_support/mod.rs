//! Homes made through the API, and the command run on them.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod trees;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

use serde_json::Value;
use sessionlog::codec::RawBytes;
use sessionlog::codec::event::{
    AgentKind, CompactionTrigger, Effect, Event, MessageRange, NewEvent, NodeOpened, Role, TitleOrigin,
    TurnOutcome, UnknownEvent, Usage, UsageRecorded,
};
use sessionlog::codec::ids::{InvocationId, KindNo, MessageNo, NodeId, SchemaVersion};
use sessionlog::{CallResult, Compaction, Durability, Message, NewSession, Session, Store};
use tempfile::TempDir;

/// What running the command gave.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}\n{}\n{}", self.out, self.err))
    }

    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Asserts the exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }
}

/// The command, with an environment that says nothing.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_logdump"));
    for variable in ["SESSIONLOG_HOME", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "XDG_DATA_HOME"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

pub(crate) fn finish(output: Output) -> Run {
    Run {
        code: output.status.code().expect("it was not killed"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn logdump(home: &Path, args: &[&str]) -> Run {
    finish(command().arg("--home").arg(home).args(args).output().unwrap())
}

/// A home in a temporary directory.
pub(crate) struct Home {
    pub(crate) dir: TempDir,
    pub(crate) store: Store,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("home")).unwrap();
        Self { dir, store }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        let workspace = self.dir.path().join("work");
        fs::create_dir_all(&workspace).unwrap();
        workspace
    }

    pub(crate) fn session(&self, goal: &str) -> Session {
        self.store.create(self.workspace(), NewSession::new(goal).model("model-1")).unwrap()
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        logdump(&self.path(), args)
    }
}

/// A conversation with a bit of everything, all calls answered.
pub(crate) fn talk(session: &Session) {
    session.set_title("Fix the parser", TitleOrigin::Person).unwrap();
    session.start_turn().unwrap();
    session.append(Message::system("Be brief.")).unwrap();
    session.append(Message::user("Why does the test fail?")).unwrap();
    let usage = Usage { input: 100, cache_read: 50, cache_write: 7, output: 20, reasoning: 5 };
    let asked = session
        .append(
            Message::assistant("I will look.")
                .call("call_1", "read", r#"{"path":"src/lib.rs"}"#)
                .call("call_2", "run", r#"{"cmd":"cargo test"}"#)
                .model("model-2")
                .usage(usage),
        )
        .unwrap();
    let read = session.start_call(asked.call(0), Effect::Pure).unwrap();
    let long: String = (1..=40).map(|line| format!("line {line} of the file\n")).collect();
    read.finish(CallResult::succeeded(long)).unwrap();
    let ran = session.start_call(asked.call(1), Effect::Mutating).unwrap();
    ran.finish(CallResult::failed("exit code 101")).unwrap();
    session.append(Message::assistant("It is the parser.").model("model-2")).unwrap();
    session.end_turn(TurnOutcome::Completed).unwrap();
}

/// A compaction of all but the last message.
pub(crate) fn compact(session: &Session) {
    session
        .compact(Compaction {
            compaction_id: "c1".into(),
            summary: "We looked for a failing test.".into(),
            summary_role: Role::User,
            kept: vec![MessageRange { first: MessageNo(4), last: MessageNo(4) }],
            replaced: vec![MessageRange { first: MessageNo(2), last: MessageNo(3) }],
            tokens: (Some(900), Some(80)),
            trigger: CompactionTrigger::Manual,
            model: None,
            usage: None,
        })
        .unwrap();
}

/// A delegated conversation with one prompt.
pub(crate) fn delegate(session: &Session, description: &str) -> InvocationId {
    let invocation_id = InvocationId([7; 16]);
    let child = session.ledger(sessionlog::projections::Ledger::next_node).unwrap();
    let opened = NodeOpened {
        child,
        invocation_id,
        parent: NodeId::ROOT,
        call: None,
        call_id: None,
        agent: "explorer".into(),
        kind: AgentKind::Inner,
        prompt: "Look around.".into(),
        description: Some(description.into()),
        working_directory: None,
        run_id: None,
        depth: 1,
        source_id: None,
    };
    session.append_batch(vec![NewEvent::now(NodeId::ROOT, opened)], Durability::Sync).unwrap();
    session.append_to(child, Message::user("Look around.")).unwrap();
    session.append_to(child, Message::assistant("Nothing here.")).unwrap();
    invocation_id
}

/// An event that this version does not know, or that it takes for one it knows and can't decode.
pub(crate) fn foreign(session: &Session, kind: u16, payload: &[u8]) {
    let event = Event::Unknown(UnknownEvent {
        kind: KindNo(kind),
        schema: SchemaVersion(1),
        payload: RawBytes(payload.to_vec()),
    });
    session.append_batch(vec![NewEvent::now(NodeId::ROOT, event)], Durability::Sync).unwrap();
}

pub(crate) fn price(session: &Session) {
    session
        .record_usage(UsageRecorded {
            request_id: "r1".into(),
            message_no: Some(MessageNo(3)),
            model: None,
            usage: None,
            cost_nano_usd: Some(12_500_000),
            latency_ms: Some(900),
            estimated_input: None,
            window: None,
        })
        .unwrap();
}

/// The one segment of a session's log.
pub(crate) fn segment(home: &Path, id: &str) -> PathBuf {
    let mut found = Vec::new();
    for workspace in fs::read_dir(home.join("workspaces")).unwrap() {
        let log = workspace.unwrap().path().join("sessions").join(id).join("log");
        if log.is_dir() {
            found.extend(fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Changes one byte of the place where `text` stands in a file.
pub(crate) fn flip(file: &Path, text: &str) {
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    bytes[at] ^= 0x20;
    fs::write(file, bytes).unwrap();
}

pub(crate) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Everything about a file that a reader must leave alone: its time, its mode and inode, its bytes.
pub(crate) type FileState = (Option<SystemTime>, u64, Option<Vec<u8>>);

/// The state of every file of a tree.
pub(crate) fn snapshot(dir: &Path) -> BTreeMap<PathBuf, FileState> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let bytes = meta.is_file().then(|| fs::read(&path).unwrap());
            let links = {
                use std::os::unix::fs::MetadataExt;
                u64::from(meta.mode()) ^ meta.ino().rotate_left(20)
            };
            if meta.is_dir() {
                dirs.push(path.clone());
            }
            all.insert(path, (meta.modified().ok(), links, bytes));
        }
    }
    all
}

/// Whether a terminal would do anything but show it.
pub(crate) fn is_dangerous(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'..='\u{200f}'
            | '\u{61c}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
}
