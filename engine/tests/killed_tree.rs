//! The example host `agent_tree` is killed with SIGKILL 500 times, at random, while agents, their children and an external
//! agent work side by side. q's own faults W1 and W3 (a parent that records a dead child's error, a child that runs for
//! ever) and the reports of `A2` and `A6` (parallel results lost or doubled, a command run again after a restart) come
//! from hosts that keep in memory what they were at.
//!
//! The test runs itself as the host, in a child process, and kills it at the n-th thing that it says. `n` comes from a
//! seed; `SESSIONLOG_KILLS` and `SESSIONLOG_SEED` give other numbers.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic"
)]

#[allow(unreachable_pub, reason = "it is a program of its own")]
#[path = "../examples/agent_tree.rs"]
mod agent_tree;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use sessionlog::StoreReader;
use sessionlog::codec::event::{Event, NodeStatus, Outcome, Part, ResultOrigin};
use sessionlog::codec::ids::{CallRef, NodeId, Position, SessionId};
use sessionlog::projections::validate_pairing;
use sessionlog::session::EventItem;

const CHILD: &str = "SESSIONLOG_KILLED_TREE_CHILD";

#[test]
fn child_host() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let parts: Vec<&str> = arguments.split('|').collect();
    let world = agent_tree::World { effects: parts[2].into() };
    let told = |what: &str| println!("told {what}");
    agent_tree::run(Path::new(parts[0]), parts[1].parse().unwrap(), &world, &told).unwrap();
    println!("told end");
}

/// Runs the host until it has said `kill_at` things, then kills it. Whether it came to its end.
fn run_host(home: &Path, id: SessionId, kill_at: u64) -> bool {
    let effects = home.with_extension(format!("{id}.effects"));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_host", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{}|{id}|{}", home.display(), effects.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut told, mut ended) = (0, false);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Ok(line) = line else { break };
        let Some((_, what)) = line.split_once("told ") else { continue };
        ended |= what == "end";
        told += 1;
        if told == kill_at {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(status.success() || told >= kill_at, "the host failed by itself: {status}");
    ended
}

/// A number from a seed (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn a_tree_that_is_killed_500_times_does_everything_once() {
    let kills_wanted = number("SESSIONLOG_KILLS", 500);
    let mut seed = number("SESSIONLOG_SEED", 7);
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let (mut kills, mut trees, mut unknown) = (0, 0, 0);
    while kills < kills_wanted {
        let id = sessionlog::new_session_id();
        for round in 0.. {
            assert!(round < 1_000, "the tree does not come to an end");
            if run_host(&home, id, 1 + random(&mut seed) % 5) {
                break;
            }
            kills += 1;
        }
        unknown += check(&home, id);
        trees += 1;
    }
    println!("{kills} kills, {trees} trees, {unknown} outcomes reported as unknown");
}

/// Checks a tree that came to its end. How many outcomes nobody knows.
fn check(home: &Path, id: SessionId) -> usize {
    let reader = StoreReader::open(home).unwrap().session(id).unwrap();
    let verification = reader.verify().unwrap();
    assert_eq!(verification.worst(), None, "{:?}", verification.all().collect::<Vec<_>>());
    let effects = std::fs::read_to_string(home.with_extension(format!("{id}.effects"))).unwrap();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for effect in effects.lines() {
        *counts.entry(effect).or_default() += 1;
    }
    for (effect, count) in &counts {
        let most = if effect.starts_with("read") { 2 } else { 1 };
        assert!(*count <= most, "{effect} happened {count} times");
    }

    let mut results: BTreeMap<(NodeId, CallRef), (Outcome, ResultOrigin, Vec<Part>)> = BTreeMap::new();
    let mut children: BTreeMap<NodeId, (NodeId, CallRef)> = BTreeMap::new();
    let mut settled: BTreeMap<NodeId, (NodeStatus, Vec<Part>)> = BTreeMap::new();
    reader
        .events(Position(1), &mut |item| {
            let EventItem::Event(logged) = item else { panic!("a gap") };
            match logged.event {
                Event::CallFinished(it) => {
                    let result = (it.outcome, it.origin, it.parts);
                    let before = results.insert((logged.node, it.call), result);
                    assert_eq!(before, None, "{} of node {} has two results", it.call, logged.node);
                }
                Event::NodeOpened(it) => {
                    children.insert(it.child, (it.parent, it.call.unwrap()));
                }
                Event::NodeSettled(it) => {
                    assert_eq!(settled.insert(logged.node, (it.status, it.parts)), None);
                }
                _ => {}
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(reader.open_calls().unwrap(), [], "every call has its result");
    // Every child's result is what its parent's call has, once.
    for (child, place) in &children {
        let (_, _, delivered) = &results[place];
        assert_eq!(&settled[child].1, delivered, "the result of node {child}");
    }
    // What succeeded happened; what is unknown may have.
    for (outcome, _, parts) in results.values() {
        if let ([Part::Text(text)], Outcome::Succeeded) = (parts.as_slice(), outcome)
            && let Some(effect) = text.strip_prefix("done: ")
        {
            assert!(counts.contains_key(effect), "{effect} is said to have happened, and did not");
        }
    }
    let tree = reader.tree(Position(u64::MAX)).unwrap();
    for node in tree.nodes() {
        validate_pairing(&tree.context(node)).unwrap();
    }
    assert_eq!(children.len(), 5, "the tree has all its children");
    results.values().filter(|(outcome, ..)| *outcome == Outcome::Unknown).count()
}
