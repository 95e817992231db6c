//! `logdump` on a home whose one segment is the input. The first byte chooses: 0, the bytes are the segment; else they are
//! records, and the segment is sound. The commands that read run in this process, a few of them each time: the length of the
//! input says which.
//!
//! Asserted: no panic; an exit code that says what is with the log, never that the system failed or that somebody owns the
//! session; no byte of the home is changed; where `verify` finds nothing lost, no command does, and a rendered context is one
//! that its provider takes.
#![no_main]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use sessionlog::log::{Batch, Durability, LogOptions, LogWriter, SegmentName};
use sessionlog_codec::ids::Position;
use sessionlog_tools::exit::Exit;
use support::disk::{LOG, SEGMENTS, dir, disk};
use support::{imports, script};
use tempfile::TempDir;

mod support;

const ID: &str = "0f1e2d3c-0000-7000-8000-0000000000f0";
const WORKSPACE: &str = "0123456789ab";

/// One in so many commands runs each time.
const TURNS: usize = 6;

const COMMANDS: &[&[&str]] = &[
    &["ls"],
    &["ls", "--json"],
    &["show", ID],
    &["show", ID, "--json", "--full"],
    &["show", ID, "--after", "2", "--limit", "3"],
    &["events", ID, "--color", "always"],
    &["events", ID, "--json", "--raw"],
    &["context", ID],
    &["context", ID, "--json", "--at", "3"],
    &["context", ID, "--node", "1"],
    &["context", ID, "--render", "chat"],
    &["context", ID, "--render", "responses", "--json"],
    &["context", ID, "--render", "anthropic"],
    &["open-calls", ID, "--json"],
    &["tree", ID],
    &["tree", ID, "--json"],
    &["plan", ID],
    &["plan", ID, "--json"],
    &["resolve", ID],
    &["stat", ID],
    &["stat", ID, "--json"],
    &["verify", ID, "--json"],
    &["export", ID, "--format", "jsonl"],
    &["export", ID, "--format", "seed"],
    &["export", ID, "--format", "recursive"],
    &["export", ID, "--format", "markdown"],
];

/// A home in memory, made once for the process, and the place of its segment.
fn home() -> &'static (TempDir, PathBuf) {
    static HOME: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    HOME.get_or_init(|| {
        let home =
            tempfile::Builder::new().prefix("sessionlog-fuzz").tempdir_in(imports::fast_dir()).unwrap();
        let workspace = home.path().join("workspaces").join(WORKSPACE);
        let log = workspace.join("sessions").join(ID).join("log");
        fs::create_dir_all(&log).unwrap();
        fs::write(home.path().join(".sessionlog"), "sessionlog home 1\n").unwrap();
        fs::write(workspace.join("path.txt"), "/work\n").unwrap();
        (home, log.join(SegmentName(Position(1)).to_string()))
    })
}

fn segment(data: &[u8]) -> Vec<u8> {
    let Some((0x01.., rest)) = data.split_first() else { return data.get(1..).unwrap_or_default().to_vec() };
    let storage = disk();
    let options = LogOptions { segment_len: 1 << 20, fill_len: 0 };
    let writer = LogWriter::create(dir(&storage), options, LOG).unwrap();
    for frame in script::frames(rest) {
        writer.append(Batch::new(frame).unwrap(), Durability::Sync).unwrap();
    }
    storage.read_file(format!("{SEGMENTS}/{}", SegmentName(Position(1)))).unwrap()
}

fn run(home: &Path, command: &[&str]) -> Exit {
    let head = ["logdump".into(), "--quiet".into(), "--home".into(), home.as_os_str().to_owned()];
    let args = head.into_iter().chain(command.iter().map(OsString::from));
    let exit = sessionlog_tools::run_to(args, Box::new(std::io::sink()));
    assert!(!matches!(exit, Exit::Locked | Exit::Io), "{command:?}: {exit:?}");
    exit
}

/// Every path below a directory.
fn paths(dir: &Path) -> Vec<PathBuf> {
    let entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.into_iter().flat_map(|path| if path.is_dir() { paths(&path) } else { vec![path] }).collect()
}

fuzz_target!(|data: &[u8]| {
    let (home, path) = home();
    let bytes = segment(data);
    fs::write(path, &bytes).unwrap();
    let before = paths(home.path());
    let verified = run(home.path(), &["verify", ID]);
    for command in COMMANDS.iter().skip(data.len() % TURNS).step_by(TURNS) {
        let exit = run(home.path(), command);
        assert!(
            verified == Exit::Lost || exit != Exit::Lost,
            "{command:?}: {exit:?}, and verify {verified:?}"
        );
    }
    assert!(fs::read(path).unwrap() == bytes, "the segment was changed");
    assert_eq!(paths(home.path()), before);
});
