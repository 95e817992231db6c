//! Artifacts: stored once, read only whole, and what a long result leaves in the log.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

#[path = "support/shelf.rs"]
mod shelf;
#[path = "support/tree.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod tree;

use sessionlog::artifacts::{ARTIFACT_LEN_MAX, LINE_LEN_MAX, SLICE_LEN_MAX, Shown, SliceContent};
use sessionlog::codec::event::{
    ArtifactReceipt, CallFinished, Effect, Event, Media, MediaSource, NodeStatus, Outcome, Part, Resolver,
    ResultFlag, Role,
};
use sessionlog::codec::ids::{Digest, NodeId};
use sessionlog::projections::ContextMessage;
use sessionlog::projections::artifact::PREVIEW_CHARS;
use sessionlog::projections::render::{Api, NodeReplay, Target, render};
use sessionlog::session::EventItem;
use sessionlog::storage::{CallKind, CrashMode, Fault, FaultError, Repeat, SimStorage};
use sessionlog::{
    ArtifactPolicy, CallResult, Delegated, Delegation, ErrorKind, ForkOptions, ForkPoint, Message,
    NewArtifact, NewSession, Session, Store, StoreOptions, Work,
};
use shelf::{Hand, blob_path, check_named, files, named, new_session, run_call, store_on, workspace};
use tree::bound;

fn ordinary(storage: &SimStorage) -> Store {
    tree::open(storage)
}

fn finished(session: &Session) -> Vec<CallFinished> {
    let mut all = Vec::new();
    session
        .reader()
        .events(sessionlog::codec::ids::Position(1), &mut |item| {
            if let EventItem::Event(event) = item
                && let Event::CallFinished(finished) = event.event
            {
                all.push(finished);
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    all
}

fn text(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("|")
}

fn sent(context: &[ContextMessage], api: Api) -> String {
    let target = Target { api, model: "m".into(), provider: None };
    String::from_utf8(render(context, &NodeReplay::default(), &target).body).unwrap()
}

#[test]
fn the_same_content_is_one_file_and_a_hurt_one_is_never_given_out() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let store = store_on(&storage, &clock);
    let session = new_session(&store);
    let artifacts = session.artifacts();
    let content = "line 1\nline 2\n".repeat(50);
    let receipt =
        artifacts.put(NewArtifact::new("report", content.clone()).media_type("text/plain")).unwrap();
    assert_eq!((receipt.digest, receipt.len), (Digest::of(content.as_bytes()), 700));
    assert_eq!(receipt.preview, content);
    let again = artifacts.put(NewArtifact::new("report", content.clone()).media_type("text/plain")).unwrap();
    run_call(&session, CallResult::succeeded(content.clone())).unwrap();
    assert_eq!(again, receipt);
    assert_eq!(files(&storage).len(), 1);
    let path = blob_path("home", &workspace(), &receipt.digest);
    assert_eq!(storage.durable_file(&path).unwrap(), content.as_bytes());
    let info = artifacts.read().inspect(&receipt.digest).unwrap();
    assert_eq!((info.kind.as_deref(), info.media_type.as_deref()), (Some("report"), Some("text/plain")));
    assert_eq!(info.sessions, [session.id()]);
    assert_eq!(artifacts.read().find(&receipt.digest.to_string()[..6]).unwrap(), receipt.digest);

    storage.corrupt(&path, |bytes| bytes[600] ^= 1).unwrap();
    let digest = receipt.digest;
    let errors = [
        artifacts.read().inspect(&digest).unwrap_err(),
        artifacts.read().slice(&digest, 0, 10).unwrap_err(),
        artifacts.read().lines(&digest, 1, 1).unwrap_err(),
        artifacts.read().grep(&digest, "line", 1).unwrap_err(),
        artifacts.read().pointer(&digest, "/a").unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.code()), (ErrorKind::Corrupt, "artifact.damaged"));
        let found = Digest::of(&storage.read_file(&path).unwrap());
        for part in [path.display().to_string(), digest.to_string(), found.to_string()] {
            assert!(error.to_string().contains(&part), "{error}");
        }
    }
    let repaired = artifacts.put(NewArtifact::new("report", content).media_type("text/plain")).unwrap();
    assert_eq!(repaired.digest, digest);
    assert_eq!(artifacts.read().inspect(&digest).unwrap().len, 700);
    assert_eq!(files(&storage).len(), 1);
}

#[test]
fn a_slice_says_whether_it_is_text() {
    let storage = SimStorage::new();
    let session = new_session(&store_on(&storage, &Hand::new()));
    let (artifacts, content) = (session.artifacts(), "a日b🦀c");
    let digest = artifacts.put(NewArtifact::new("text", content)).unwrap().digest;
    let slice = |offset, len| artifacts.read().slice(&digest, offset, len).unwrap();
    assert_eq!(slice(0, 100).content, SliceContent::Text(content.to_owned()));
    assert_eq!(slice(1, 3).content, SliceContent::Text("日".to_owned()));
    let cut = slice(2, 5);
    assert_eq!(cut.content, SliceContent::Bytes(content.as_bytes()[2..7].to_vec()));
    assert_eq!((cut.range, cut.whole_characters), (2..7, Some(4..5)));
    assert_eq!(slice(4, 1).content, SliceContent::Text("b".to_owned()));
    assert_eq!(slice(6, 2).whole_characters, None, "nothing of it is a whole character");
    let behind = slice(1_000, 5);
    assert_eq!((behind.content, behind.range, behind.len), (SliceContent::Text(String::new()), 10..10, 10));
    let binary = artifacts.put(NewArtifact::new("bytes", vec![b'a', 0xff, 0xfe, b'b', b'c'])).unwrap();
    assert_eq!(binary.preview, "");
    let bytes = artifacts.read().slice(&binary.digest, 0, 5).unwrap();
    assert_eq!(bytes.content, SliceContent::Bytes(vec![b'a', 0xff, 0xfe, b'b', b'c']));
    assert_eq!(bytes.whole_characters, None);
    let error = artifacts.read().slice(&digest, 0, SLICE_LEN_MAX + 1).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Invalid, "artifact.slice"));
}

/// Pieces are read 256 KiB at a time: what stands across two of them is found all the same.
#[test]
fn lines_and_matches_are_found_across_the_pieces_that_are_read() {
    let storage = SimStorage::new();
    let session = new_session(&store_on(&storage, &Hand::new()));
    let artifacts = session.artifacts();
    let content: String = (1..=40_000).map(|number| format!("line {number} of it\r\n")).collect();
    assert!(content.len() > 600_000);
    let digest = artifacts.put(NewArtifact::new("log", content.clone())).unwrap().digest;
    let lines = artifacts.read().lines(&digest, 39_999, 5).unwrap();
    let texts: Vec<_> = lines.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts, ["line 39999 of it", "line 40000 of it"]);
    assert_eq!((lines.total, lines.next), (40_000, None));
    let some = artifacts.read().lines(&digest, 0, 2).unwrap();
    assert_eq!((some.lines[0].number, some.next), (1, Some(3)));
    for (number, line) in content.lines().enumerate().step_by(997) {
        let found = artifacts.read().lines(&digest, number as u64 + 1, 1).unwrap().lines.remove(0);
        let start = usize::try_from(found.offset).unwrap();
        assert_eq!((found.text.as_str(), found.shown), (line, Shown::Whole));
        assert_eq!(&content[start..start + line.len()], line);
        if number > 5_000 {
            break;
        }
    }
    let found = artifacts.read().grep(&digest, "^line 1[0-9]*9 ", 3).unwrap();
    assert_eq!(found.lines.iter().map(|line| line.number).collect::<Vec<_>>(), [19, 109, 119]);
    assert_eq!(
        found.total,
        (1..=40_000).filter(|n: &u32| n.to_string().starts_with('1') && n % 10 == 9).count() as u64
    );
    let long = format!("{}needle{}\nlast", "日".repeat(5_000), "x".repeat(9_000));
    let digest = artifacts.put(NewArtifact::new("log", long)).unwrap().digest;
    let found = artifacts.read().grep(&digest, "needle", 9).unwrap().lines.remove(0);
    assert!(
        found.text.contains("日needlex")
            && found.text.len() <= LINE_LEN_MAX
            && !found.text.contains('\u{fffd}')
    );
    assert_eq!((found.shown, found.len), (Shown::Part, 24_006));
    assert_eq!(artifacts.read().lines(&digest, 2, 9).unwrap().lines[0].text, "last");
    for pattern in ["(", &"a".repeat(5_000), "(\\w{1000}){1000}"] {
        let error = artifacts.read().grep(&digest, pattern, 1).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Invalid, "artifact.pattern"));
    }
}

/// What is read goes to a model: a megabyte at once is the most, and the rest is asked for.
#[test]
fn a_page_of_lines_has_a_megabyte_at_most() {
    let storage = SimStorage::new();
    let session = new_session(&store_on(&storage, &Hand::new()));
    let artifacts = session.artifacts();
    let line = format!("{}\n", "x".repeat(2_000));
    let digest = artifacts.put(NewArtifact::new("log", line.repeat(900))).unwrap().digest;
    let (mut first, mut pages) = (1, Vec::new());
    loop {
        let page = artifacts.read().lines(&digest, first, 900).unwrap();
        assert_eq!((page.lines[0].number, page.total), (first, 900));
        pages.push(page.lines.len());
        let Some(next) = page.next else { break };
        first = next;
    }
    // The line that reaches the megabyte is the last one.
    assert_eq!(pages, [525, 375]);
    let found = artifacts.read().grep(&digest, "x", 900).unwrap();
    assert_eq!((found.lines.len(), found.total), (525, 900));
}

#[test]
fn a_json_pointer_gives_what_stands_there() {
    let storage = SimStorage::new();
    let session = new_session(&store_on(&storage, &Hand::new()));
    let artifacts = session.artifacts();
    let json = r#" {"a/b": [1, {"~k": 12345678901234567890123}], "": "e", "d": 1, "d": {"x":[]}} "#;
    let digest = artifacts.put(NewArtifact::new("json", json)).unwrap().digest;
    let at = |pointer: &str| artifacts.read().pointer(&digest, pointer);
    assert_eq!(at("/a~1b/1/~0k").unwrap(), "12345678901234567890123");
    assert_eq!(
        (at("").unwrap(), at("/").unwrap(), at("/d/x").unwrap()),
        (json.trim().into(), "\"e\"".into(), "[]".into())
    );
    for missing in ["/a~1b/2", "/a~1b/01", "/a~1b/-", "/nope", "/d/x/0", "//x"] {
        assert_eq!(at(missing).unwrap_err().kind(), ErrorKind::NotFound, "{missing}");
    }
    assert_eq!(at("/a~1b/1/no").unwrap_err().to_string(), "there is no `no` at `/a~1b/1`");
    assert_eq!(at("a").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(at(&"/0".repeat(128)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(at(&"/0".repeat(129)).unwrap_err().kind(), ErrorKind::Invalid);
    let deep = artifacts.put(NewArtifact::new("json", "[".repeat(100_000))).unwrap().digest;
    assert_eq!(artifacts.read().pointer(&deep, "/0").unwrap_err().code(), "artifact.json");
    let large = format!("{{\"big\":\"{}\"}}", "x".repeat(2 << 20));
    let large = artifacts.put(NewArtifact::new("json", large)).unwrap().digest;
    assert_eq!(artifacts.read().pointer(&large, "/big").unwrap_err().code(), "artifact.pointer_too_long");
}

#[test]
fn what_is_too_long_or_absent_is_refused() {
    let storage = SimStorage::new();
    let store = store_on(&storage, &Hand::new());
    let session = new_session(&store);
    let artifacts = session.artifacts();
    let too_long = vec![0; usize::try_from(ARTIFACT_LEN_MAX).unwrap() + 1];
    let error = artifacts.put(NewArtifact::new("x", too_long)).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Invalid, "artifact.too_large"));
    let absent = Digest::of(b"absent");
    assert_eq!(artifacts.read().inspect(&absent).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(
        artifacts.put(NewArtifact::new("x", "y").parent(absent)).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let receipt = ArtifactReceipt { digest: absent, len: 6, media_type: None, preview: String::new() };
    let source = MediaSource::Artifact(receipt);
    let media = Media { source, media_type: None, name: None, detail: None, extra: None };
    let error = session.append(Message::user("See.").part(Part::File(media))).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::NotFound, "artifact.missing"));
    assert_eq!(session.append(Message::user("See.")).unwrap().message_no.0, 1);
    let elsewhere = store.artifacts(&sessionlog::store::WorkspaceHash::of(std::path::Path::new("/none")));
    assert_eq!(elsewhere.put(NewArtifact::new("x", "y")).unwrap_err().code(), "workspace.missing");
    for wrong in ["abc", "xyz1", "", "../../../etc", &"a".repeat(65)] {
        assert_eq!(artifacts.read().find(wrong).unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
    }
    assert_eq!(artifacts.read().find("abcd").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_result_of_32_kib_is_in_the_log_and_one_byte_more_is_an_artifact() {
    let storage = SimStorage::new();
    let session = ordinary(&storage).create("/w", NewSession::new("try")).unwrap();
    let exact = "日".repeat(32 * 1024 / 3) + "ab";
    assert_eq!(exact.len(), 32 * 1024);
    run_call(&session, CallResult::succeeded(exact.clone())).unwrap();
    assert_eq!(files(&storage), Vec::<std::path::PathBuf>::new());
    let over = format!("{exact}c");
    run_call(&session, CallResult::failed(over.clone())).unwrap();
    let all = finished(&session);
    assert_eq!((&all[0].parts, &all[0].artifact), (&vec![Part::text(exact)], &None));
    let receipt = all[1].artifact.clone().unwrap();
    assert_eq!((receipt.digest, receipt.len), (Digest::of(over.as_bytes()), 32 * 1024 + 1));
    assert_eq!(receipt.media_type.as_deref(), Some("text/plain"));
    assert_eq!(receipt.preview, "日".repeat(PREVIEW_CHARS));
    let shown = text(&all[1].parts);
    assert!(shown.starts_with(&receipt.preview) && shown.len() < 13_000);
    assert!(shown.contains(&receipt.digest.to_string()) && shown.contains("12288 of 32769 bytes"), "{shown}");
    assert_eq!(storage.read_file(blob_path("home", &workspace(), &receipt.digest)).unwrap(), over.as_bytes());

    // What the model is shown is the beginning, and where the rest is.
    let context = session.context().unwrap();
    assert_eq!(text(&context[3].parts), shown);
    let sent = sent(&context, Api::ChatCompletions);
    assert!(
        sent.contains("12288 of 32769 bytes") && sent.matches('日').count() == 32 * 1024 / 3 + PREVIEW_CHARS
    );
}

#[test]
fn texts_that_follow_one_another_are_one_artifact_and_other_parts_keep_their_places() {
    let storage = SimStorage::new();
    let session = new_session(&store_on(&storage, &Hand::new()));
    let image = Part::Image(Media {
        source: MediaSource::Url("https://example.org/a.png".into()),
        media_type: None,
        name: None,
        detail: None,
        extra: None,
    });
    let parts = vec![
        Part::text("[1,"),
        Part::text("2]".to_owned() + &" ".repeat(100)),
        image.clone(),
        Part::text("end"),
    ];
    let result = CallResult::new(Outcome::Succeeded, ResultFlag::Normal, parts);
    run_call(&session, result).unwrap();
    let done = finished(&session).remove(0);
    assert_eq!(done.parts[1..], [image, Part::text("end")]);
    let receipt = done.artifact.unwrap();
    assert_eq!(receipt.media_type.as_deref(), Some("application/json"));
    assert_eq!(session.artifacts().read().pointer(&receipt.digest, "/1").unwrap(), "2");
}

fn take<'a>(session: &'a Session, which: impl Fn(&Work<'a>) -> bool) -> Work<'a> {
    session.work().unwrap().into_iter().find(|work| which(work)).unwrap()
}

#[test]
fn every_way_of_a_result_into_the_log_stores_it_apart() {
    let storage = SimStorage::new();
    let session = new_session(&store_on(&storage, &Hand::new()));
    let long = |tag: &str| format!("{tag} {}", "x".repeat(100));
    session.prompt(Message::user("Go.")).unwrap();
    let asked =
        Message::assistant("").call("d", "delegate", "{}").call("a", "ask", "{}").call("r", "run", "{}");
    let Work::Model(turn) = take(&session, |work| matches!(work, Work::Model(_))) else { panic!() };
    let asked = turn.answer(asked).unwrap();
    let mut child = NodeId::ROOT;
    for work in session.work().unwrap() {
        let Work::Call(call) = work else { panic!() };
        match call.name() {
            "delegate" => {
                let Delegated::Child(node) = call.delegate(Delegation::inner("worker", "Do.")).unwrap()
                else {
                    panic!()
                };
                child = node;
            }
            "ask" => drop(call.answer(CallResult::failed(long("answered"))).unwrap()),
            _ => drop(call.start(Effect::Mutating).unwrap()),
        }
    }
    let Work::Begin(begun) = take(&session, |work| matches!(work, Work::Begin(_))) else { panic!() };
    begun.begin(bound(), Vec::new()).unwrap();
    session.append_to(child, Message::assistant(long("last words"))).unwrap();
    let Work::Settle(end) = take(&session, |work| matches!(work, Work::Settle(_))) else { panic!() };
    end.settle_with_last_words().unwrap();
    let by = (Resolver::Host, "looked".to_owned());
    session.resolve_call(NodeId::ROOT, asked.call(2), CallResult::succeeded(long("resolved")), by).unwrap();

    let digests: Vec<Digest> = named(&session.reader()).iter().map(|receipt| receipt.digest).collect();
    for tag in ["answered", "last words", "resolved"] {
        let digest = Digest::of(long(tag).as_bytes());
        assert!(digests.contains(&digest), "{tag}");
    }
    check_named(&store_on(&storage, &Hand::new()));
    // The child's result reaches its parent in the form of an own result.
    let delivered = finished(&session).into_iter().find(|done| done.call == asked.call(0)).unwrap();
    assert_eq!(delivered.artifact.unwrap().digest, Digest::of(long("last words").as_bytes()));
    assert!(text(&delivered.parts).starts_with("last words xxx"));
    let context = session.context().unwrap();
    let shown: Vec<String> =
        context.iter().filter(|it| it.role == Role::Tool).map(|it| text(&it.parts)).collect();
    assert_eq!(shown.len(), 3);
    for shown in shown {
        assert!(shown.contains("more of it by that digest"), "{shown}");
    }
    let sent = sent(&context, Api::AnthropicMessages);
    for tag in ["answered", "last words", "resolved"] {
        assert!(sent.contains(&long(tag)), "{tag}: {sent}");
    }
}

/// The result of a child is stored, and its process ends before it is delivered; or it is delivered by its own process.
#[test]
fn a_result_that_is_delivered_after_a_crash_is_the_same() {
    let storage = SimStorage::new();
    let clock = Hand::new();
    let session = new_session(&store_on(&storage, &clock));
    session.prompt(Message::user("Go.")).unwrap();
    session.append(Message::assistant("").call("d", "delegate", "{}")).unwrap();
    let Work::Call(call) = take(&session, |work| matches!(work, Work::Call(_))) else { panic!() };
    let Delegated::Child(child) = call.delegate(Delegation::external("oracle", "Do.")).unwrap() else {
        panic!()
    };
    let Work::Ask(request) = take(&session, |work| matches!(work, Work::Ask(_))) else { panic!() };
    let asked = request.bind(bound()).unwrap();
    let receipt = session
        .artifacts()
        .put(NewArtifact::new("result", "y".repeat(200)).media_type("text/plain"))
        .unwrap();
    let parts = sessionlog::projections::artifact::stored(receipt.clone()).to_vec();
    let settled =
        sessionlog::codec::event::NodeSettled { status: NodeStatus::Completed, reason: None, parts };
    let event = sessionlog::codec::event::NewEvent::now(child, settled);
    session.append_batch(vec![event], sessionlog::Durability::Sync).unwrap();
    drop(asked);
    let id = session.id();
    std::mem::forget(session);
    let storage = storage.power_cut(CrashMode::LoseAll);
    let (session, _) = store_on(&storage, &clock).resume(id).unwrap();
    let delivered = finished(&session).remove(0);
    assert_eq!(delivered.artifact, Some(receipt.clone()));
    assert_eq!(delivered.parts, [Part::text(sessionlog::projections::artifact::shown(&receipt))]);
}

#[test]
fn without_the_policy_all_of_it_is_in_the_log() {
    let storage = SimStorage::new();
    let options = StoreOptions { artifacts: ArtifactPolicy::Off, ..StoreOptions::default() };
    let session = tree::open_with(&storage, options).create("/w", NewSession::new("try")).unwrap();
    let long = "x".repeat(100_000);
    run_call(&session, CallResult::succeeded(long.clone())).unwrap();
    assert_eq!(finished(&session)[0].parts, [Part::text(long)]);
    assert!(files(&storage).is_empty());
}

#[test]
fn a_full_disk_costs_as_little_of_a_result_as_it_must() {
    let long = "0123456789".repeat(20_000);
    let prepare = || {
        let storage = SimStorage::new();
        let session = ordinary(&storage).create("/w", NewSession::new("try")).unwrap();
        let asked = session.append(Message::assistant("").call("c", "run", "{}")).unwrap();
        let used: usize = storage.files().iter().map(|path| storage.read_file(path).unwrap().len()).sum();
        (storage, session, asked.call(0), used as u64)
    };
    // Nothing can be created: all of it is in the log.
    let (storage, session, call, _) = prepare();
    storage.fail(Fault::new(CallKind::CreateDir, FaultError::ENOSPC).repeat(Repeat::Always));
    session.start_call(call, Effect::Mutating).unwrap().finish(CallResult::succeeded(long.clone())).unwrap();
    assert_eq!(finished(&session)[0].parts, [Part::text(long.clone())]);
    assert_eq!(finished(&session)[0].artifact, None);
    // Of a short one nothing is left out, so nothing is said to be.
    let (storage, session, call, used) = prepare();
    storage.set_capacity(Some(used + 4_000));
    let media = Media {
        source: MediaSource::Url("u".into()),
        media_type: None,
        name: None,
        detail: None,
        extra: None,
    };
    let parts = vec![Part::text(long.clone()), Part::File(media.clone()), Part::text("short ".repeat(100))];
    let result = CallResult::new(Outcome::Succeeded, ResultFlag::Normal, parts);
    session.start_call(call, Effect::Mutating).unwrap().finish(result).unwrap();
    let recorded = finished(&session).remove(0).parts;
    assert!(text(&recorded[..1]).contains("4096 of 200000 bytes"));
    assert_eq!(recorded[1..], [Part::File(media), Part::text("short ".repeat(100))]);
    // There is room for neither: its beginning is in the log, which says so, and the session goes on.
    let (storage, session, call, used) = prepare();
    storage.set_capacity(Some(used + 20_000));
    session.start_call(call, Effect::Mutating).unwrap().finish(CallResult::succeeded(long.clone())).unwrap();
    let shown = text(&finished(&session)[0].parts);
    assert!(shown.starts_with(&long[..PREVIEW_CHARS]), "{shown}");
    assert!(shown.contains("4096 of 200000 bytes") && shown.contains("the disk was full"), "{shown}");
    assert!(files(&storage).is_empty(), "what was begun gave its room back");
    storage.set_capacity(None);
    run_call(&session, CallResult::succeeded(long)).unwrap();
    assert!(finished(&session)[1].artifact.is_some());
    session.close().unwrap();
}

#[test]
fn a_failed_sync_of_the_names_is_not_trusted_later() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let store = store_on(&storage, &clock);
    let session = new_session(&store);
    let long = "x".repeat(1_000);
    let shelf = blob_path("home", &workspace(), &Digest::of(long.as_bytes())).parent().unwrap().to_owned();
    // The directory was made before, so this is the sync after the rename.
    session.artifacts().put(NewArtifact::new("x", long.clone())).unwrap();
    let digest = Digest::of(long.as_bytes());
    storage.corrupt(blob_path("home", &workspace(), &digest), |bytes| bytes.clear()).unwrap();
    storage.fail(Fault::new(CallKind::SyncDir, FaultError::EIO).on(shelf));
    run_call(&session, CallResult::succeeded(long.clone())).unwrap();
    assert_eq!(finished(&session)[0].artifact, None);
    run_call(&session, CallResult::succeeded(long)).unwrap();
    assert!(finished(&session)[1].artifact.is_some());
    let id = session.id();
    std::mem::forget(session);
    let after = storage.power_cut(CrashMode::LoseAll);
    let store = store_on(&after, &clock);
    drop(store.resume(id).unwrap());
    assert_eq!(check_named(&store).len(), 1);
}

#[cfg(unix)]
#[test]
fn a_link_in_place_of_an_artifact_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { artifacts: ArtifactPolicy::Over(64), ..StoreOptions::default() };
    let store = Store::open_with(dir.path().join("home"), options).unwrap();
    let session = store.create(dir.path(), NewSession::new("try")).unwrap();
    let long = "x".repeat(1_000);
    run_call(&session, CallResult::succeeded(long.clone())).unwrap();
    let receipt = finished(&session)[0].artifact.clone().unwrap();
    let artifacts = session.artifacts();
    assert_eq!(artifacts.read().inspect(&receipt.digest).unwrap().len, 1_000);
    let home = dir.path().join("home").display().to_string();
    let path = blob_path(&home, &session.place().workspace, &receipt.digest);
    let outside = dir.path().join("outside");
    std::fs::write(&outside, &long).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&outside, &path).unwrap();
    let refused = |error: sessionlog::Error| assert_eq!(error.code(), "artifact.not_a_file", "{error}");
    refused(artifacts.read().slice(&receipt.digest, 0, 10).unwrap_err());
    refused(artifacts.put(NewArtifact::new("x", long.clone())).unwrap_err());
    // A result is not lost for it.
    run_call(&session, CallResult::succeeded(long.clone())).unwrap();
    assert_eq!(finished(&session)[1].parts, [Part::text(long.clone())]);
    // Nor is a directory gone through that is a link.
    std::fs::remove_file(&path).unwrap();
    let shelf = path.parent().unwrap();
    std::fs::rename(shelf, dir.path().join("shelf")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("shelf"), shelf).unwrap();
    refused(artifacts.read().inspect(&receipt.digest).unwrap_err());
    assert_eq!(artifacts.put(NewArtifact::new("x", long)).unwrap_err().code(), "home.not_a_directory");
    assert!(std::fs::read_dir(dir.path().join("shelf")).unwrap().next().is_none());
}

#[test]
fn a_fork_into_another_workspace_takes_its_artifacts_along() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let store = store_on(&storage, &clock);
    let session = new_session(&store);
    let parent = session.artifacts().put(NewArtifact::new("base", "p".repeat(300))).unwrap();
    let derived = NewArtifact::new("derived", "d".repeat(300)).parent(parent.digest);
    let derived = session.artifacts().put(derived).unwrap();
    let source = MediaSource::Artifact(derived.clone());
    let media = Media { source, media_type: None, name: None, detail: None, extra: None };
    session.append(Message::user("See.").part(Part::File(media))).unwrap();
    let at = session.last();
    run_call(&session, CallResult::succeeded("later ".repeat(100))).unwrap();
    let options = ForkOptions { workspace: Some("/elsewhere".into()), ..ForkOptions::default() };
    storage.take_calls();
    let fork = session.fork(ForkPoint::At(at), options).unwrap();
    let calls = storage.take_calls();
    assert!(
        calls
            .iter()
            .any(|call| call.kind() == CallKind::HardLink
                && call.path().to_string_lossy().contains("artifacts"))
    );
    shelf::delete(&storage, session.id());
    session
        .artifacts()
        .gc(&sessionlog::GcOptions { grace: std::time::Duration::ZERO, ..Default::default() })
        .unwrap();
    let there = fork.artifacts();
    assert_eq!(there.read().inspect(&derived.digest).unwrap().parents, [parent.digest]);
    assert_eq!(there.read().inspect(&parent.digest).unwrap().len, 300);
    assert_eq!(there.read().list().unwrap().len(), 2, "what came later is not the fork's");
    let report =
        there.gc(&sessionlog::GcOptions { grace: std::time::Duration::ZERO, ..Default::default() }).unwrap();
    assert_eq!(report.dropped, []);
}

/// Power is lost, or the process killed, at each call of putting a result and naming it.
#[test]
fn a_crash_at_any_call_leaves_no_name_without_its_content() {
    let (mut named_after, mut at) = (0, 0);
    loop {
        let storage = SimStorage::new();
        let clock = Hand::new();
        let session = new_session(&store_on(&storage, &clock));
        let asked = session.append(Message::assistant("").call("c", "run", "{}")).unwrap();
        let running = session.start_call(asked.call(0), Effect::Mutating).unwrap();
        storage.fail(Fault::any(FaultError::EIO).after(at).repeat(Repeat::Always));
        let result = running.finish(CallResult::succeeded("x".repeat(500)));
        let id = session.id();
        let is_over = result.is_ok() && storage.armed_faults() == 1 && at > 40;
        std::mem::forget(session);
        for mode in (0..12).map(CrashMode::Seeded).chain([CrashMode::LoseAll, CrashMode::KeepAll]) {
            let after = storage.power_cut(mode);
            let store = store_on(&after, &clock);
            let (session, _) = store.resume(id).unwrap();
            let named = check_named(&store);
            named_after += named.len();
            if result.is_ok() {
                let done = finished(&session).remove(0);
                assert!(done.artifact.is_some() || text(&done.parts).len() == 500, "{mode:?} at {at}");
            }
            // The same result again is stored whatever is left of the first.
            run_call(&session, CallResult::succeeded("x".repeat(500))).unwrap();
            assert_eq!(check_named(&store).len(), 1);
        }
        if is_over {
            break;
        }
        at += 1;
    }
    assert!(named_after > 20, "{named_after}");
}

/// The same content again, called another thing: the last word counts, and what is not said again is not forgotten.
#[test]
fn the_last_word_on_an_artifact_counts() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let store = store_on(&storage, &clock);
    let session = new_session(&store);
    let parents =
        ["p", "q"].map(|text| session.artifacts().put(NewArtifact::new("base", text)).unwrap().digest);
    let put = |new: NewArtifact| session.artifacts().put(new).unwrap().digest;
    put(NewArtifact::new("draft", "x").parent(parents[0]));
    put(NewArtifact::new("report", "x").media_type("text/markdown").parent(parents[1]));
    let digest = put(NewArtifact::new("final", "x"));
    for reader in [&store.reader(), &store_on(&storage, &clock).reader()] {
        let info = reader.artifacts(&workspace()).inspect(&digest).unwrap();
        assert_eq!(
            (info.kind.as_deref(), info.media_type.as_deref()),
            (Some("final"), Some("text/markdown"))
        );
        let both: std::collections::BTreeSet<_> = parents.into();
        assert_eq!(info.parents.into_iter().collect::<std::collections::BTreeSet<_>>(), both);
        assert_eq!(info.sessions, [session.id()]);
    }
}

/// What was collected is forgotten with what was said of it: the same content later is something new.
#[test]
fn what_was_said_of_a_collected_artifact_is_forgotten() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let store = store_on(&storage, &clock);
    let session = new_session(&store);
    let parent = session.artifacts().put(NewArtifact::new("base", "p")).unwrap();
    session.artifacts().put(NewArtifact::new("old", "x").media_type("a/b").parent(parent.digest)).unwrap();
    let none = sessionlog::GcOptions { grace: std::time::Duration::ZERO, ..Default::default() };
    assert_eq!(session.artifacts().gc(&none).unwrap().dropped.len(), 2);
    let again = session.artifacts().put(NewArtifact::new("new", "x")).unwrap();
    for reader in [&store.reader(), &store_on(&storage, &clock).reader()] {
        let info = reader.artifacts(&workspace()).inspect(&again.digest).unwrap();
        assert_eq!((info.kind.as_deref(), info.media_type, info.parents), (Some("new"), None, vec![]));
    }
}

/// The longest text of a result goes first, as long as what is left is too long; short ones stay where the model reads them.
#[test]
fn the_longest_text_of_a_result_is_stored_apart() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let session = new_session(&store_on(&storage, &clock));
    let source = MediaSource::Url("u".into());
    let media = Part::File(Media { source, media_type: None, name: None, detail: None, extra: None });
    let (short, long) = ("s".repeat(30), ["a".repeat(40), "b".repeat(39)]);
    let [first, second] = long.clone().map(Part::text);
    let parts = vec![Part::text(short.clone()), media.clone(), first, second];
    let result = CallResult::new(Outcome::Succeeded, ResultFlag::Normal, parts);
    run_call(&session, result).unwrap();
    let finished = finished(&session).remove(0);
    let receipt = finished.artifact.unwrap();
    // Texts that follow one another are one, a line each.
    assert_eq!(receipt.digest, Digest::of(long.join("\n").as_bytes()));
    assert_eq!(finished.parts[..2], [Part::text(short), media]);
    assert_eq!(finished.parts.len(), 3);
}

/// Forgetting a session takes what it alone named, whether a record says it or it only put it; what another one has stays.
#[test]
fn a_forgotten_session_takes_its_artifacts_along() {
    let (storage, clock) = (SimStorage::new(), Hand::new());
    let store = store_on(&storage, &clock);
    let [gone, stays] = [new_session(&store), new_session(&store)];
    let put = |session: &Session, content: &str| {
        session.artifacts().put(NewArtifact::new("x", content)).unwrap().digest
    };
    let captured = |session: &Session, content: &str| {
        run_call(session, CallResult::succeeded(content.repeat(100))).unwrap();
        Digest::of(content.repeat(100).as_bytes())
    };
    // Nobody names it, and its time of grace is over: that is for a collection to see to.
    let old = put(&stays, "old");
    clock.forward(2 * shelf::HOUR);
    let mut alone = [put(&gone, "put"), captured(&gone, "c")];
    alone.sort();
    let shared = [put(&gone, "shared"), captured(&gone, "s")];
    put(&stays, "shared");
    captured(&stays, "s");
    let others = [put(&stays, "other"), captured(&stays, "o")];
    let id = gone.id();
    gone.close().unwrap();
    let mut plan = store.reader().plan_forgetting(id).unwrap().artifacts;
    plan.sort();
    let mut expected = [&alone[..], &shared[..]].concat();
    expected.sort();
    assert_eq!(plan, expected);
    store.forget(id).unwrap();
    for storage in [storage.clone(), storage.power_cut(CrashMode::LoseAll)] {
        let there = shelf::there(&storage);
        assert!(alone.iter().all(|digest| !there.contains(digest)));
        // A record of the other session names them, or it put them a moment ago.
        assert!(shared.iter().chain(&others).chain([&old]).all(|digest| there.contains(digest)));
        check_named(&store_on(&storage, &clock));
    }
}
