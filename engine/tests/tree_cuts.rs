//! The log of a tree of agents is cut behind every frame and inside of every frame, and the host goes on from there: q's 18
//! crash points with nested and parallel children, against agents whose acts are counted. The world is the worst that the
//! cut log allows: whatever was started has happened.
//!
//! And B2: a child's end and its parent's result are there both, or neither.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

#[allow(unreachable_pub, reason = "it is a program of its own")]
#[path = "../examples/agent_tree.rs"]
mod agent_tree;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use sessionlog::StoreReader;
use sessionlog::codec::event::{AgentKind, Event, NodeOpened};
use sessionlog::codec::ids::{CallRef, NodeId, Position, SessionId};
use sessionlog::codec::segment::SegmentHeader;
use sessionlog::log::ReadItem;
use sessionlog::projections::{Projection, TreeState, validate_pairing};
use sessionlog::session::EventItem;

const ID: SessionId = SessionId([0x33; 16]);

/// What a log says of the tree.
#[derive(Default)]
struct Seen {
    tree: TreeState,
    children: BTreeMap<NodeId, NodeOpened>,
    settled: BTreeSet<NodeId>,
    results: BTreeMap<(NodeId, CallRef), u32>,
    /// What may have happened to the world, as the host writes it down.
    acts: Vec<String>,
}

fn look(home: &Path) -> Seen {
    let reader = StoreReader::open(home).unwrap().session(ID).unwrap();
    let mut seen = Seen::default();
    reader
        .events(Position(1), &mut |item| {
            let EventItem::Event(logged) = item else { panic!("a gap") };
            seen.tree.apply(&logged);
            match &logged.event {
                Event::NodeOpened(opened) => drop(seen.children.insert(opened.child, opened.clone())),
                Event::NodeSettled(_) => assert!(seen.settled.insert(logged.node)),
                Event::CallFinished(it) => *seen.results.entry((logged.node, it.call)).or_default() += 1,
                Event::NodeBound(_) if seen.children[&logged.node].kind == AgentKind::External => {
                    seen.acts.push(format!("ask {}", seen.children[&logged.node].prompt));
                }
                Event::CallStarted(it) => {
                    let asked = seen.tree.tool_call(logged.node, it.call).unwrap();
                    let arguments: String = serde_json::from_slice(&asked.arguments.0).unwrap();
                    seen.acts.push(format!("{} {arguments}", asked.name));
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    for (child, opened) in &seen.children {
        let answered = seen.results.contains_key(&(opened.parent, opened.call.unwrap()));
        assert_eq!(seen.settled.contains(child), answered, "B2: node {child}");
    }
    for node in seen.tree.nodes() {
        validate_pairing(&seen.tree.context(node)).unwrap();
    }
    seen
}

fn segment(home: &Path) -> PathBuf {
    let place = StoreReader::open(home).unwrap().places().unwrap().pop().unwrap();
    place.dir.join("log/00000000000000000001.seg")
}

/// Where each frame of the (only) segment ends.
fn ends(home: &Path) -> Vec<u64> {
    let mut ends = Vec::new();
    let reader = StoreReader::open(home).unwrap().session(ID).unwrap();
    let bytes = std::fs::read(segment(home)).unwrap();
    let header = SegmentHeader::decode(&bytes).unwrap();
    let mut at = sessionlog::codec::limits::SEGMENT_HEADER_LEN;
    while let Ok(frame) = sessionlog::codec::frame::Frame::decode(&bytes[at..], header.salt) {
        at += frame.header().frame_len();
        ends.push(at.try_into().unwrap());
    }
    let mut records = 0;
    reader
        .log()
        .read(Position(1), &mut |item| {
            assert!(matches!(item, ReadItem::Record(_)));
            records += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(records >= ends.len() && ends.len() > 40, "{records} records in {} frames", ends.len());
    ends
}

fn world(home: &Path) -> agent_tree::World {
    agent_tree::World { effects: home.with_extension("effects") }
}

#[test]
fn from_every_cut_the_tree_comes_to_its_end_with_nothing_done_twice() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    agent_tree::run(&whole, ID, &world(&whole), &|_| {}).unwrap();
    let (path, ends) = (segment(&whole), ends(&whole));
    let bytes = std::fs::read(&path).unwrap();
    let inside = ends.windows(2).map(|pair| pair[0] + (pair[1] - pair[0]) / 2);
    let cuts: BTreeSet<u64> = ends.iter().copied().chain(inside).collect();
    for cut in cuts {
        let home = dir.path().join(format!("cut-{cut}"));
        let there = home.join(path.strip_prefix(&whole).unwrap());
        std::fs::create_dir_all(there.parent().unwrap()).unwrap();
        for entry in std::fs::read_dir(&whole).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), home.join(entry.file_name())).unwrap();
            }
        }
        std::fs::write(&there, &bytes[..usize::try_from(cut).unwrap()]).unwrap();
        let before = look(&home);
        std::fs::write(
            world(&home).effects,
            before.acts.iter().map(|act| format!("{act}\n")).collect::<String>(),
        )
        .unwrap();

        agent_tree::run(&home, ID, &world(&home), &|_| {}).unwrap();

        let after = look(&home);
        let mut acts: BTreeMap<String, u32> = BTreeMap::new();
        for act in std::fs::read_to_string(world(&home).effects).unwrap().lines() {
            *acts.entry(act.to_owned()).or_default() += 1;
        }
        for (act, count) in &acts {
            let most = if act.starts_with("read") { 2 } else { 1 };
            assert!(*count <= most, "cut {cut}: {act} happened {count} times");
        }
        assert!(after.results.values().all(|count| *count == 1), "cut {cut}: a result was delivered twice");
        assert_eq!(after.settled.len(), after.children.len(), "cut {cut}: every child has its end");
        let reader = StoreReader::open(&home).unwrap().session(ID).unwrap();
        assert_eq!(reader.open_calls().unwrap(), [], "cut {cut}");
        assert_eq!(reader.verify().unwrap().worst(), None, "cut {cut}");
        std::fs::remove_dir_all(&home).unwrap();
    }
}
