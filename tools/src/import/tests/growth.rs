//! Importing again: only what is new, whatever happened in between.

use std::path::PathBuf;

use proptest::prelude::*;
use sessionlog_codec::event::{Event, MessageAppended, NewEvent, Role};
use sessionlog_codec::ids::{MessageNo, NodeId, Position};
use sessionlog_codec::record::TimeOrigin;

use super::super::Imported;
use super::target::{Memory, Stored};
use super::{directory, fixtures, import_into};

/// The files of lines among the fixtures that are sessions by themselves.
fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![fixtures()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                files.push(path);
            }
        }
    }
    files.retain(|path| !["journal.jsonl", "checkpoints.jsonl"].iter().any(|name| path.ends_with(name)));
    files.sort();
    assert!(files.len() > 10);
    files
}

/// What was appended, without what may differ: times that came from the file's date, and where the record after the last
/// one starts, which moves once the last line gets its end.
fn told(stored: &Stored) -> Vec<NewEvent> {
    let mut events = stored.events.clone();
    for event in &mut events {
        if event.time_origin == TimeOrigin::Estimated {
            event.timestamp = None;
        }
        match &mut event.event {
            Event::ImportedRaw(raw) => raw.next_offset = 0,
            // What the child's file said when it was found.
            Event::NodeOpened(opened) => {
                event.timestamp = None;
                opened.prompt.clear();
                opened.working_directory = None;
            }
            _ => {}
        }
    }
    events
}

/// Imports `prefix`, then `whole` in its place, and expects what importing `whole` at once gives.
fn grows(name: &str, prefix: &[u8], whole: &[u8]) {
    let directory = directory(&[(name, whole)]);
    let mut at_once = Memory::default();
    import_into(&mut at_once, directory.path());

    let path = directory.path().join(name);
    std::fs::write(&path, prefix).unwrap();
    let mut in_two = Memory::default();
    import_into(&mut in_two, directory.path());
    std::fs::write(&path, whole).unwrap();
    let done = import_into(&mut in_two, directory.path());
    assert!(!done.outcomes.contains(&Imported::Conflict), "{:?}", done.report.notes);
    for (session, expected) in &at_once.sessions {
        let (found, expected) = (told(&in_two.sessions[session]), told(expected));
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{name} cut at {}", prefix.len());
        }
        assert_eq!(found.len(), expected.len(), "{name} cut at {}", prefix.len());
    }
    let again = import_into(&mut in_two, directory.path());
    assert!(again.outcomes.iter().all(|outcome| *outcome == Imported::Unchanged));
    assert_eq!(again.report.appended, 0);
}

#[test]
fn a_grown_file_gives_what_it_would_have_given_at_once() {
    for path in files() {
        let whole = std::fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let ends = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let mut start = 0;
        for end in ends {
            // Before the line's end, behind it, and in the middle of the line.
            for cut in [end - 1, end, start + (end - start) / 3, end - 2] {
                grows(name, &whole[..cut], &whole);
            }
            start = end;
        }
    }
}

#[test]
fn a_session_of_several_files_grows_with_each_of_them() {
    let agents = fixtures().join("claude-code/agents");
    let main = "0f1e2d3c-0000-4000-8000-000000000005";
    let names = [
        format!("{main}.jsonl"),
        format!("{main}/subagents/agent-aa01.jsonl"),
        format!("{main}/subagents/agent-aa02.jsonl"),
        format!("{main}/subagents/agent-aa02.meta.json"),
        format!("{main}/subagents/agent-aa03.jsonl"),
    ];
    let contents: Vec<_> = names.iter().map(|name| std::fs::read(agents.join(name)).unwrap()).collect();
    let by_source = |stored: &Stored| {
        let mut nodes: Vec<_> = (1..)
            .map(NodeId)
            .take(stored.node_count() - 1)
            .map(|node| (stored.opened(node).source_id.clone(), stored.messages(node).len()))
            .collect();
        nodes.sort();
        (nodes, stored.messages(NodeId::ROOT).len(), stored.kinds().len())
    };
    let all: Vec<_> =
        names.iter().zip(&contents).map(|(name, content)| (name.as_str(), content.as_slice())).collect();
    let mut at_once = Memory::default();
    import_into(&mut at_once, directory(&all).path());
    // One file after the other comes into being, each of them line by line.
    let place = directory(&[]);
    let mut memory = Memory::default();
    for (name, content) in all.iter().rev() {
        let path = place.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        for end in (1..=content.len()).filter(|end| content[end - 1] == b'\n' || *end == content.len()) {
            std::fs::write(&path, &content[..end]).unwrap();
            let done = import_into(&mut memory, place.path());
            assert!(!done.outcomes.contains(&Imported::Conflict), "{:?}", done.report.notes);
        }
    }
    assert_eq!(by_source(memory.only()), by_source(at_once.only()));
}

fn many_lines() -> String {
    let line = |number: usize| {
        format!(
            r#"{{"type":"user","sessionId":"s","uuid":"u{number}","parentUuid":null,"message":{{"content":"{number}"}}}}"#
        )
    };
    (0..2000).map(|number| line(number) + "\n").collect()
}

#[test]
fn an_import_that_broke_off_goes_on_where_it_stopped() {
    // M2
    let content = many_lines();
    let directory = directory(&[("s.jsonl", content.as_bytes())]);
    let mut whole = Memory::default();
    import_into(&mut whole, directory.path());
    let frames = whole.only().frames.len();
    assert!(frames > 5, "{frames}");
    let mut notes = Vec::new();
    let sessions = super::super::discover(&[directory.path().to_owned()], &mut notes).unwrap();
    for left in 0..frames {
        let mut memory = Memory { frames_left: Some(left), ..Memory::default() };
        let mut report = super::super::ImportReport::default();
        super::super::import_session(&sessions[0], &mut memory, &mut |_| {}, &mut report).unwrap_err();
        memory.frames_left = None;
        import_into(&mut memory, directory.path());
        assert_eq!(told(memory.only()), told(whole.only()));
    }
}

#[test]
fn a_rewritten_file_is_a_conflict_that_names_the_line() {
    let content = many_lines();
    let directory = directory(&[("s.jsonl", content.as_bytes())]);
    let path = directory.path().join("s.jsonl");
    let mut memory = Memory::default();
    import_into(&mut memory, directory.path());
    let before = memory.only().events.len();
    std::fs::write(&path, content.replace("\"content\":\"7\"", "\"content\":\"x\"") + "{\"a\":1}\n").unwrap();
    let done = import_into(&mut memory, directory.path());
    assert_eq!(done.outcomes, [Imported::Conflict]);
    assert!(done.report.notes.iter().any(|note| note.text.contains("line 8,")), "{:?}", done.report.notes);
    // A rewind cuts a file off: what was imported stays.
    std::fs::write(&path, &content[..content.len() / 2]).unwrap();
    let done = import_into(&mut memory, directory.path());
    assert_eq!(done.outcomes, [Imported::Unchanged]);
    assert!(done.report.notes.iter().any(|note| note.text.contains("is shorter")));
    assert_eq!(memory.only().events.len(), before);
}

#[test]
fn a_session_that_went_on_here_is_not_mixed_with_its_file() {
    let content = many_lines();
    let directory = directory(&[("s.jsonl", content.as_bytes())]);
    let mut memory = Memory::default();
    import_into(&mut memory, directory.path());
    let own = MessageAppended::text(MessageNo(2001), Role::User, "on we go");
    memory.sessions.values_mut().next().unwrap().push(NewEvent::now(NodeId::ROOT, own));
    assert_eq!(import_into(&mut memory, directory.path()).outcomes, [Imported::Unchanged]);
    std::fs::write(directory.path().join("s.jsonl"), content + &many_lines()[..80]).unwrap();
    std::fs::write(directory.path().join("s.jsonl"), many_lines() + &many_lines().replace("\"u", "\"v"))
        .unwrap();
    let done = import_into(&mut memory, directory.path());
    assert_eq!(done.outcomes, [Imported::Conflict]);
    assert!(done.report.notes.iter().any(|note| note.text.contains("has gone on here")));
}

#[test]
fn moves_name_the_same_records_however_the_frames_fell() {
    let rewind = "0f1e2d3c-0000-4000-8000-000000000002.jsonl";
    let path = fixtures().join("claude-code/rewind").join(rewind);
    let mut memory = Memory::default();
    import_into(&mut memory, path.parent().unwrap());
    let stored = memory.only();
    let to: Vec<Position> = stored
        .events
        .iter()
        .filter_map(|event| if let Event::HeadMoved(moved) = &event.event { Some(moved.to) } else { None })
        .collect();
    assert_eq!(to, [stored.anchors(NodeId::ROOT)[1], Position::START]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever the bytes, an import ends, holds what a log may hold, and is repeatable; and a file that grows by any number
    /// of bytes gives what it would have given at once.
    #[test]
    fn any_bytes_are_imported_the_same_each_time(
        file in 0_usize..100,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..6, any::<u8>()), 0..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let files = files();
        let path = &files[file % files.len()];
        let mut bytes = std::fs::read(path).unwrap();
        for (at, how, byte) in edits {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => drop(bytes.drain(at..(at + usize::from(byte)).min(bytes.len()))),
                2 => bytes.insert(at, b'\n'),
                3 => bytes.insert(at, 0),
                4 => {
                    let copy = bytes[at..(at + usize::from(byte) * 4).min(bytes.len())].to_vec();
                    bytes.splice(at..at, copy);
                }
                _ => bytes.splice(at..at, *b"{\"uuid\":\"x\"}").for_each(drop),
            }
            if bytes.is_empty() {
                bytes.push(b'{');
            }
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        grows(name, &bytes[..cut.index(bytes.len())], &bytes);
    }
}
