//! `logdump repair` and `logdump doctor`, by the reports of torn and corrupt data (T1 to T20) and of portability (O1 to O7)
//! that concern a log of ours.

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
use std::process::Command;

use cli_support::{Home, Run, copy_tree, flip, foreign, logdump, segment, snapshot, talk};
use serde_json::Value;
use sessionlog::codec::frame::{Frame, encode};
use sessionlog::codec::ids::{NodeId, Position};
use sessionlog::codec::record::{Envelope, Payload};
use sessionlog::codec::registry::kind;
use sessionlog::codec::segment::SegmentHeader;
use sessionlog::projections::rewind::RewindTo;
use sessionlog::{ErrorKind, LogOptions, Message, NewSession, Session, Store, StoreOptions};

fn closed_talk() -> (Home, String) {
    let home = Home::new();
    let session = home.session("Damaged");
    talk(&session);
    session.append(Message::user("The last word")).unwrap();
    let id = session.id().to_string();
    session.close().unwrap();
    (home, id)
}

/// A session in several small segments. Gives their paths.
fn segmented() -> (Home, String, Vec<PathBuf>) {
    let home = Home::new();
    let log = LogOptions { segment_len: 512, fill_len: 512 };
    let options = StoreOptions { log, ..StoreOptions::default() };
    let store = Store::open_with(home.path(), options).unwrap();
    let session = store.create(home.workspace(), NewSession::new("Segments")).unwrap();
    for nth in 0..40 {
        session.append(Message::user(format!("prompt {nth}"))).unwrap();
        session.append(Message::assistant(format!("answer {nth}"))).unwrap();
    }
    let id = session.id().to_string();
    let log = session.place().dir.join("log");
    session.close().unwrap();
    let mut files: Vec<PathBuf> = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 6);
    (home, id, files)
}

fn copy_of(home: &Home) -> PathBuf {
    home.dir.path().join("copy")
}

/// Repairs into a new home, asserts the exit code, and that the hurt home is as it was.
fn repair(home: &Home, id: &str, code: i32) -> Value {
    let before = snapshot(&home.path());
    let to = copy_of(home);
    if to.exists() {
        fs::remove_dir_all(&to).unwrap();
    }
    let json = home.run(&["repair", id, "--to", to.to_str().unwrap(), "--json"]).exits(code).json();
    assert_eq!(snapshot(&home.path()), before);
    json
}

fn resumed(home: &Home, id: &str) -> Session {
    Store::open(copy_of(home)).unwrap().resume(id.parse().unwrap()).unwrap().0
}

/// The copy is sound but for what is marked in it, and can be gone on with.
fn is_sound(home: &Home, id: &str) {
    let copy = copy_of(home);
    let run = logdump(&copy, &["verify"]);
    assert!(run.code <= 1, "{}\n{}", run.out, run.err);
    let session = resumed(home, id);
    session.append(Message::user("on it goes")).unwrap();
    session.close().unwrap();
    let run = logdump(&copy, &["show", id]);
    assert!(run.code <= 1 && run.out.contains("on it goes"), "{}\n{}", run.out, run.err);
}

fn events(home: &Path, id: &str) -> Vec<Value> {
    let run = logdump(home, &["export", id, "--format", "jsonl"]);
    run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn chmod(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn codes(doctor: &Run) -> Vec<String> {
    let json = doctor.json();
    let findings = json["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

/// Nothing is wrong: the copy is the same, and says so.
#[test]
fn a_healthy_session_is_copied_as_it_is() {
    let (home, id) = closed_talk();
    let json = repair(&home, &id, 0);
    assert_eq!((json["verdict"].as_str(), json["missing_records"].as_u64()), (Some("clean"), Some(0)));
    assert_eq!(events(&copy_of(&home), &id), events(&home.path(), &id));
    logdump(&copy_of(&home), &["verify"]).exits(0);
    // It has no views yet, and is as private as any home.
    let doctor = logdump(&copy_of(&home), &["doctor", "--json"]).exits(0);
    assert_eq!(codes(&doctor), ["view.missing"]);
    is_sound(&home, &id);
}

/// T1: one damaged record in the middle. All others are there, the span is named with its bytes and by its neighbours.
#[test]
fn t1_a_hurt_record_costs_itself_and_is_named() {
    let (home, id) = closed_talk();
    flip(&segment(&home.path(), &id), "Why does the test fail?");
    let json = repair(&home, &id, 3);
    let span = &json["spans"][0];
    assert_eq!(json["spans"].as_array().unwrap().len(), 1);
    assert_eq!((span["loss"].as_str(), span["records"].as_u64()), (Some("acknowledged"), Some(1)));
    assert!(span["found"].as_str().unwrap().contains("checksum at byte 72: expected"), "{span}");
    assert_eq!(
        (span["after"]["message_no"].as_u64(), span["after"]["role"].as_str()),
        (Some(1), Some("system"))
    );
    assert_eq!(span["before"]["message_no"].as_u64(), Some(3));
    let (before, after) = (events(&home.path(), &id), events(&copy_of(&home), &id));
    assert_eq!(after.len(), before.len() + 1);
    let gap = after.iter().position(|event| event["event"] == "gap.marked").unwrap();
    assert_eq!(after[gap]["position"], span["first"]);
    let rest: Vec<Value> = [&after[..gap], &after[gap + 1..]].concat();
    assert_eq!(rest, before);
    is_sound(&home, &id);
}

/// T1, T3: what people are told, and that what they are told to do works.
#[test]
fn the_next_steps_put_the_copy_in_place() {
    let (home, id) = closed_talk();
    flip(&segment(&home.path(), &id), "Why does the test fail?");
    let to = home.dir.path().join("a copy's place");
    let run = home.run(&["repair", &id, "--to", to.to_str().unwrap()]).exits(3);
    for text in
        ["DATA LOST", "1 record is missing", "found", "lost", "after message 1 of the system", "look at it"]
    {
        assert!(run.out.contains(text), "{text}\n{}", run.out);
    }
    let command = |word: &str| {
        let line = run.out.lines().find(|line| line.trim_start().contains(word)).unwrap();
        line[line.find(word).unwrap()..].to_owned()
    };
    for line in [command("mv "), command("cp -a ")] {
        assert!(Command::new("sh").arg("-c").arg(&line).status().unwrap().success(), "{line}");
    }
    home.run(&["verify"]).exits(1);
    let session = home.store.resume(id.parse().unwrap()).unwrap().0;
    session.append(Message::user("in place")).unwrap();
    session.close().unwrap();
    home.run(&["doctor"]).exits(1);
}

/// T2, T4, T10: the end of the log cut at any byte, as by a crash or a full disk. Whole frames stay, the torn one is said,
/// appending works, and a second repair finds nothing to do.
#[test]
fn t2_a_cut_anywhere_in_the_last_record_costs_it_alone() {
    let (home, id) = closed_talk();
    let file = segment(&home.path(), &id);
    let bytes = fs::read(&file).unwrap();
    let whole = events(&home.path(), &id).len();
    for cut in (1..100).step_by(9) {
        fs::write(&file, &bytes[..bytes.len() - cut]).unwrap();
        let json = repair(&home, &id, 1);
        assert_eq!(json["spans"][0]["loss"], "torn_tail", "{json}");
        assert_eq!(events(&copy_of(&home), &id).len(), whole - 1);
        logdump(&copy_of(&home), &["verify"]).exits(0);
        let again = home.dir.path().join("again");
        let args = ["repair", &id, "--to", again.to_str().unwrap(), "--json"];
        let json = logdump(&copy_of(&home), &args).exits(0).json();
        assert_eq!(json["records"].as_u64(), u64::try_from(whole - 1).ok());
        fs::remove_dir_all(again).unwrap();
        is_sound(&home, &id);
    }
}

/// T7: a file that was extended and whose blocks were never written ends in zeros: unused space behind whole frames, a torn
/// tail in place of one.
#[test]
fn t7_zeros_at_the_end_are_no_records() {
    let (home, id) = closed_talk();
    let file = segment(&home.path(), &id);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, [bytes.as_slice(), &[0; 4096]].concat()).unwrap();
    assert_eq!(repair(&home, &id, 0)["spans"].as_array().unwrap().len(), 0);
    let mut torn = bytes;
    let len = torn.len();
    torn[len - 60..].fill(0);
    fs::write(&file, torn).unwrap();
    assert_eq!(repair(&home, &id, 1)["spans"][0]["loss"], "torn_tail");
    is_sound(&home, &id);
}

/// T8, T9: views full of zeros are no loss; a log full of zeros is nothing to save, and the evidence stays as it is.
#[test]
fn t9_what_holds_nothing_is_left_alone() {
    let (home, id) = closed_talk();
    let file = segment(&home.path(), &id);
    let meta = file.parent().unwrap().with_file_name(".meta.json");
    fs::write(&meta, vec![0; fs::read(&meta).unwrap().len()]).unwrap();
    let doctor = home.run(&["doctor", "--json"]).exits(1);
    assert_eq!(codes(&doctor), ["view.empty"]);
    repair(&home, &id, 0);
    for hurt in [vec![0; 5000], b"rotten ".repeat(500), Vec::new()] {
        fs::write(&file, hurt).unwrap();
        let before = snapshot(&home.path());
        let to = home.dir.path().join("nothing");
        let run = home.run(&["repair", &id, "--to", to.to_str().unwrap()]).exits(3);
        assert!(run.err.contains("no whole frame"), "{}", run.err);
        assert!(!to.exists());
        assert_eq!(snapshot(&home.path()), before);
    }
}

/// T14, T15: a record of a newer version is carried along as it is. One that can't be decoded keeps its bytes, and is not in
/// the way any more.
#[test]
fn t15_what_can_not_be_read_is_carried_along() {
    let home = Home::new();
    let session = home.session("Odd");
    talk(&session);
    foreign(&session, 9_999, b"from the future");
    foreign(&session, kind::SessionTagged.0, b"\xff\xff");
    session.append(Message::user("after both")).unwrap();
    let id = session.id().to_string();
    session.close().unwrap();
    home.run(&["verify"]).exits(3);
    assert_eq!(home.store.resume(id.parse().unwrap()).unwrap_err().kind(), ErrorKind::Corrupt);
    let json = repair(&home, &id, 1);
    assert_eq!(json["unreadable"][0]["kind"].as_u64(), Some(4));
    let raw = logdump(&copy_of(&home), &["events", &id, "--json", "--raw"]).exits(1).json_lines();
    let payloads: Vec<&str> = raw.iter().filter_map(|event| event["data"]["payload_hex"].as_str()).collect();
    assert_eq!(payloads, ["66726f6d2074686520667574757265", "ffff"]);
    is_sound(&home, &id);
}

/// T16, T18: a hole in the middle. The rest opens, the hole is listed, and what depends on it is refused by name.
#[test]
fn t16_a_missing_segment_is_a_marked_gap() {
    let (home, id, files) = segmented();
    fs::remove_file(&files[3]).unwrap();
    let json = repair(&home, &id, 3);
    let span = &json["spans"][0];
    assert!(span["found"].as_str().unwrap().contains("are missing"), "{span}");
    let name = |file: &Path| file.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    let (first, last) = (name(&files[3]), name(&files[4]) - 1);
    assert_eq!((span["first"].as_u64(), span["last"].as_u64()), (Some(first), Some(last)));
    is_sound(&home, &id);
    let session = resumed(&home, &id);
    let refused = session.plan_rewind(NodeId::ROOT, RewindTo::Record(Position(first))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    // Once in the transcript, whatever the number of records.
    let gaps = logdump(&copy_of(&home), &["show", &id]).out.matches("records are missing").count();
    assert_eq!(gaps, 1);
}

/// The first record is whole and can't be decoded: one takes its place, and its bytes are kept in it.
#[test]
fn a_first_record_that_can_not_be_read_is_made_anew() {
    let (home, id) = closed_talk();
    let file = segment(&home.path(), &id);
    let mut bytes = fs::read(&file).unwrap();
    let header = SegmentHeader::decode(&bytes).unwrap();
    let frame = Frame::decode(&bytes[128..], header.salt).unwrap();
    let mut records: Vec<(Envelope, Vec<u8>)> = Vec::new();
    for record in frame.records() {
        let Payload::Present(payload) = record.payload else { panic!("redacted") };
        records.push((record.envelope.clone(), payload.to_vec()));
    }
    // The option tag of the goal, behind id, path and slug.
    let goal = records[0].1.windows(7).position(|window| window == b"Damaged").unwrap() - 9;
    records[0].1[goal] = 7;
    let mut rewritten = Vec::new();
    let fields = frame.header().fields.clone();
    encode(&mut rewritten, header.salt, &header.previous, fields, &records).unwrap();
    bytes[128..128 + rewritten.len()].copy_from_slice(&rewritten);
    fs::write(&file, bytes).unwrap();
    let json = repair(&home, &id, 1);
    assert_eq!(
        (json["first_record"].as_str(), json["unreadable"][0]["position"].as_u64()),
        (Some("made"), Some(1))
    );
    // The frame was written anew, so the next one does not follow from it.
    assert_eq!(json["broken_chain"].as_array().unwrap().len(), 1);
    is_sound(&home, &id);
}

/// The first segment is gone: session.created is made anew, and everything behind it is at its place.
#[test]
fn a_session_without_its_beginning_gets_one() {
    let (home, id, files) = segmented();
    fs::remove_file(&files[0]).unwrap();
    fs::remove_file(&files[1]).unwrap();
    let json = repair(&home, &id, 3);
    assert_eq!(json["first_record"], "made");
    let events = events(&copy_of(&home), &id);
    assert_eq!(events[0]["event"], "session.created");
    assert!(events[0]["data"]["host"].as_str().unwrap().contains("salvage"));
    is_sound(&home, &id);
    let row = logdump(&copy_of(&home), &["ls", "--json"]).json()["sessions"][0].clone();
    assert!(row["workspace"].as_str().unwrap().ends_with("/work"), "{row}");
}

/// Headers are hurt, the only one of a log and several of many: the salt is found all the same, and no record is lost.
#[test]
fn a_hurt_header_costs_no_record() {
    let (home, id) = closed_talk();
    let file = segment(&home.path(), &id);
    let ruin = |file: &Path| {
        let mut bytes = fs::read(file).unwrap();
        bytes[..128].fill(0xee);
        fs::write(file, bytes).unwrap();
    };
    let whole = events(&home.path(), &id);
    ruin(&file);
    let json = repair(&home, &id, 1);
    assert_eq!(json["spans"][0]["loss"], "nothing");
    assert_eq!(events(&copy_of(&home), &id), whole);
    is_sound(&home, &id);

    let (home, id, files) = segmented();
    let whole = events(&home.path(), &id);
    for file in [&files[0], &files[2], &files[3], files.last().unwrap()] {
        ruin(file);
    }
    repair(&home, &id, 1);
    assert_eq!(events(&copy_of(&home), &id), whole);
    is_sound(&home, &id);
}

/// The index at a sealed segment's end is hurt: nothing is lost. With it whole, it tells what the lost records were.
#[test]
fn an_index_is_no_loss_and_tells_of_losses() {
    let (home, id, files) = segmented();
    let bytes = fs::read(&files[2]).unwrap();
    fs::write(&files[2], &bytes[..bytes.len() - 20]).unwrap();
    let json = repair(&home, &id, 1);
    assert_eq!(
        (json["missing_records"].as_u64(), json["spans"][0]["loss"].as_str()),
        (Some(0), Some("nothing"))
    );
    is_sound(&home, &id);
    let mut hurt = bytes;
    hurt[128..300].fill(0);
    fs::write(&files[2], hurt).unwrap();
    let json = repair(&home, &id, 3);
    let known = json["spans"][0]["known"]["message.appended"].as_u64().unwrap();
    assert_eq!(Some(known), json["missing_records"].as_u64());
}

/// O6: files of other programs beside the log, and a segment of another session's log, are not taken in, and said.
#[test]
fn o6_copies_and_strangers_are_not_taken_in() {
    let (home, id, files) = segmented();
    let (other_home, _, other) = segmented();
    let whole = events(&home.path(), &id);
    let dir = files[0].parent().unwrap();
    let name = files[1].file_stem().unwrap().to_str().unwrap();
    fs::copy(&files[1], dir.join(format!("{name} (conflicted copy).seg"))).unwrap();
    fs::copy(&files[1], dir.join(format!("{name}.sync-conflict-1.seg"))).unwrap();
    fs::copy(&files[1], dir.join("00000000000000000077.seg")).unwrap();
    fs::copy(other.last().unwrap(), dir.join("00000000000000000999.seg")).unwrap();
    drop(other_home);
    let doctor = home.run(&["doctor", "--json"]).exits(3);
    assert_eq!(codes(&doctor).iter().filter(|code| *code == "file.conflicted").count(), 2, "{}", doctor.out);
    let json = repair(&home, &id, 1);
    let left: Vec<&str> =
        json["left_out"].as_array().unwrap().iter().map(|left| left["why"].as_str().unwrap()).collect();
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(
        left.iter().any(|why| why.contains("another log"))
            && left.iter().any(|why| why.contains("a copy of"))
    );
    assert_eq!(events(&copy_of(&home), &id), whole);
    is_sound(&home, &id);
}

/// O1, O5, O7: the copy is in the same workspace, also if that is gone, and names of any script are no trouble. A directory
/// of a home whose marker is lost, or of no home at all, is repaired by its path.
#[test]
fn o5_a_session_is_repaired_wherever_it_is() {
    let (home, id) = closed_talk();
    fs::remove_dir_all(home.workspace()).unwrap();
    let file = segment(&home.path(), &id);
    flip(&file, "The last word");
    let dir = file.parent().unwrap().parent().unwrap().to_owned();
    fs::remove_file(home.path().join(".sessionlog")).unwrap();
    let to = home.dir.path().join("中 🎉");
    let args = ["repair", dir.to_str().unwrap(), "--to", to.to_str().unwrap(), "--json"];
    let json = home.run(&args).exits(3).json();
    let relative = dir.strip_prefix(home.path().canonicalize().unwrap_or(home.path())).unwrap();
    assert_eq!(json["copy"].as_str().unwrap(), to.join(relative).to_str().unwrap());
    // Out of its home, the workspace's path comes from the log.
    let alone = home.dir.path().join("alone").join(&id);
    copy_tree(&dir, &alone);
    let there = home.dir.path().join("there");
    let args = ["repair", alone.to_str().unwrap(), "--to", there.to_str().unwrap(), "--json"];
    let json = home.run(&args).exits(3).json();
    assert_eq!(json["copy"].as_str().unwrap(), there.join(relative).to_str().unwrap());
}

/// What is refused, and that nothing is written then.
#[test]
fn a_repair_writes_into_a_new_directory_and_nowhere_else() {
    let (home, id) = closed_talk();
    let full = home.dir.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("x"), b"x").unwrap();
    let inside = home.path().join("inside");
    let before = snapshot(home.dir.path());
    for to in [&full, &inside, &home.path(), &home.dir.path().join("full/x")] {
        home.run(&["repair", &id, "--to", to.to_str().unwrap()]).exits(4);
    }
    home.run(&["repair", &id]).exits(4);
    home.run(&["repair", "ffff", "--to", "x"]).exits(4);
    home.run(&["repair", &id, "--dry-run"]).exits(0);
    assert_eq!(snapshot(home.dir.path()), before);
    // An empty directory is as good as none.
    let empty = home.dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    home.run(&["repair", &id, "--to", empty.to_str().unwrap()]).exits(0);

    let session = home.store.resume(id.parse().unwrap()).unwrap().0;
    let run = home.run(&["repair", &id, "--to", home.dir.path().join("live").to_str().unwrap()]).exits(5);
    assert!(run.err.contains("held by process"), "{}", run.err);
    drop(session);
}

#[test]
fn doctor_finds_nothing_wrong_with_a_healthy_home() {
    let (home, _) = closed_talk();
    // A catalog is derived, and its files are those of another library.
    fs::create_dir_all(home.path().join("index/catalog")).unwrap();
    fs::write(home.path().join("index/catalog/db"), b"x").unwrap();
    chmod(&home.path().join("index"), 0o700);
    let before = snapshot(&home.path());
    let run = home.run(&["doctor"]).exits(0);
    assert!(run.out.contains("nothing is wrong"), "{}", run.out);
    assert_eq!(snapshot(&home.path()), before);
    home.run(&["doctor", "/nowhere/at/all"]).exits(4);
    let live = home.session("Live");
    home.run(&["doctor"]).exits(0);
    drop(live);
}

/// Everything at once: ordered by how bad it is, each with what fixes it, and not a byte changed.
#[test]
fn doctor_names_what_is_wrong_and_what_fixes_it() {
    use std::os::unix::fs::symlink;
    let (home, id) = closed_talk();
    let root = home.path();
    let other = home.session("Other").id().to_string();
    let file = segment(&root, &id);
    flip(&file, "Why does the test fail?");
    let dir = file.parent().unwrap().parent().unwrap().to_owned();
    let sessions = dir.parent().unwrap().to_owned();
    let workspace = sessions.parent().unwrap().to_owned();
    fs::remove_file(root.join(".sessionlog")).unwrap();
    fs::write(root.join("notes.txt"), b"mine").unwrap();
    fs::write(workspace.join("path.txt"), b"/somewhere/else").unwrap();
    fs::write(dir.join(".meta.json~"), b"{}").unwrap();
    fs::write(sessions.join("copy of a session"), b"").unwrap();
    symlink("/etc/passwd", dir.join("delegates")).unwrap();
    fs::create_dir(dir.join("log.forking")).unwrap();
    fs::create_dir(dir.join("quarantine")).unwrap();
    fs::write(dir.join("quarantine/x.torn"), b"abc").unwrap();
    let renamed = sessions.join("0197b4a2-7c1e-7000-8000-0123456789ab");
    copy_tree(&sessions.join(&other), &renamed);
    let half = sessions.join("0197b4a2-7c1e-7000-8000-0123456789ac");
    fs::create_dir_all(half.join("log")).unwrap();
    let elsewhere = root.join("workspaces/0123456789ab/sessions");
    fs::create_dir_all(&elsewhere).unwrap();
    copy_tree(&sessions.join(&other), &elsewhere.join(&other));
    chmod(&file, 0o644);

    let before = snapshot(&root);
    let run = home.run(&["doctor", "--json"]).exits(3);
    assert_eq!(snapshot(&root), before);
    let found = codes(&run);
    for code in [
        "session.damaged",
        "home.marker",
        "file.stray",
        "file.conflicted",
        "file.link",
        "mode.open",
        "workspace.misnamed",
        "workspace.unnamed",
        "session.twice",
        "session.identity",
        "session.half_created",
        "session.leftover",
        "session.quarantine",
    ] {
        assert!(found.contains(&code.to_owned()), "{code}: {found:?}");
    }
    assert_eq!(found[0], "session.damaged");
    let json = run.json();
    let rank = |finding: &Value| match finding["severity"].as_str().unwrap() {
        "note" => 0,
        "warning" => 1,
        "repairable" => 2,
        _ => 3,
    };
    let ranks: Vec<u32> = json["findings"].as_array().unwrap().iter().map(rank).collect();
    assert!(ranks.is_sorted_by(|a, b| a >= b), "{ranks:?}");
    let damaged = &json["findings"][0];
    assert!(damaged["fix"].as_str().unwrap().contains(&format!("repair {id} --to DIR")), "{damaged}");
    let human = home.run(&["doctor"]).exits(3);
    assert!(human.out.starts_with("DATA LOST [session.damaged]"), "{}", human.out);
    assert!(human.out.contains("    → "), "{}", human.out);
}

/// T8, T17: a view that is ahead of the log tells that the log's end is missing; nothing else would.
#[test]
fn t17_a_view_ahead_of_its_log_is_told() {
    let (home, id, files) = segmented();
    assert!(!id.is_empty());
    for file in &files[4..] {
        fs::remove_file(file).unwrap();
    }
    let run = home.run(&["doctor", "--json"]).exits(1);
    assert!(codes(&run).contains(&"view.ahead".to_owned()), "{}", run.out);
}

/// A crashed session, and one with a torn tail, are to be resumed and not repaired.
#[test]
fn doctor_sends_a_crashed_session_to_its_next_owner() {
    let home = Home::new();
    let session = home.session("Crash");
    talk(&session);
    let crashed = home.dir.path().join("crashed");
    copy_tree(&home.path(), &crashed);
    let run = logdump(&home.path(), &["doctor", crashed.to_str().unwrap(), "--json"]);
    assert!(codes(&run).contains(&"session.crashed".to_owned()), "{}", run.out);
    let id = session.id().to_string();
    let file = segment(&crashed, &id);
    let bytes = fs::read(&file).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    fs::write(&file, &bytes[..used - 30]).unwrap();
    let run = logdump(&home.path(), &["doctor", crashed.to_str().unwrap(), "--json"]).exits(2);
    let json = run.json();
    assert_eq!(json["findings"][0]["code"], "session.torn");
    assert!(json["findings"][0]["fix"].as_str().unwrap().starts_with("Resume the session"));
    drop(session);
}
