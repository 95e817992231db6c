//! Whatever happens in a workspace and whatever is asked: the index gives what reading every log gives, and vectors are found as
//! by comparing each of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![cfg(feature = "search")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use proptest::prelude::*;
use sessionlog::codec::event::{Effect, Role};
use sessionlog::codec::ids::{NodeId, SessionId, Timestamp};
use sessionlog::projections::memory::rank::cosine;
use sessionlog::projections::memory::{
    MemoryFilter, MemoryKind, MemoryQuery, MemorySort, MemoryStatus, QueryVector, Recency, RecordId,
};
use sessionlog::{CallResult, ForkOptions, ForkPoint, Message, Session};
use support::recall::{Hands, Workspace};

const WORDS: [&str; 10] =
    ["alpha", "beta", "gamma", "fooBar", "foo_bar", "src/lib.rs", "foo::bar", "東京都", "京都", "Café"];
const TOOLS: [&str; 3] = ["run", "grep", "search_archive"];

#[derive(Clone, Debug)]
enum Step {
    New,
    Say(usize, Vec<usize>),
    Call(usize, usize, Vec<usize>),
    Withdraw(usize),
    Redact(usize, usize),
    Tag(usize, bool),
    Close(usize),
    Fork(usize),
    Delete(usize),
    Forget(usize),
    Vector(usize, i8, i8),
    DropIndex,
    Search(Box<MemoryQuery>),
}

fn words() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..WORDS.len(), 1..6)
}

fn text(words: &[usize]) -> String {
    words.iter().map(|word| WORDS[*word]).collect::<Vec<_>>().join(" ")
}

fn filter() -> impl Strategy<Value = MemoryFilter> {
    let kinds = prop::collection::btree_set(prop::sample::select(MemoryKind::ALL.to_vec()), 0..3);
    let statuses = prop::collection::btree_set(prop::sample::select(MemoryStatus::ALL.to_vec()), 0..4);
    let some = |of: &[&str]| {
        let of: Vec<String> = of.iter().map(|it| (*it).to_owned()).collect();
        prop::collection::btree_set(prop::sample::select(of), 0..2)
    };
    let time =
        || prop::option::weighted(0.2, (0..40_i64).prop_map(|at| Timestamp(Hands::START + at * 1_000_000)));
    let roles = prop::collection::vec(prop::sample::select(vec![Role::User, Role::Assistant]), 0..2);
    (kinds, statuses, some(&TOOLS), some(&["t", "archive-read"]), roles, time(), time()).prop_map(
        |(kinds, statuses, tools, tags, roles, since, until)| MemoryFilter {
            sessions: BTreeSet::new(),
            nodes: BTreeSet::new(),
            kinds,
            roles,
            tools,
            statuses,
            tags,
            since,
            until,
        },
    )
}

fn query() -> impl Strategy<Value = MemoryQuery> {
    let sort = prop::sample::select(vec![MemorySort::Relevance, MemorySort::Newest, MemorySort::Oldest]);
    let recency = (0.0_f64..3.0, 1_u64..50)
        .prop_map(|(weight, seconds)| Recency { weight, half_life: Duration::from_secs(seconds) });
    let vector = (-3_i8..4, 1_i8..4, 0.0_f64..2.0).prop_map(|(x, y, weight)| QueryVector {
        model: "m".to_owned(),
        components: vec![f32::from(x), f32::from(y)],
        weight,
    });
    let filter = prop_oneof![2 => Just(MemoryFilter::default()), 1 => filter()];
    let said = prop::collection::vec(0..WORDS.len(), 0..4);
    let page = (1_usize..12, 0_usize..4);
    (said, prop::option::weighted(0.3, vector), filter, prop::option::weighted(0.3, recency), sort, page)
        .prop_map(|(said, vector, filter, recency, sort, (limit, offset))| MemoryQuery {
            text: text(&said),
            vector,
            filter,
            recency,
            sort,
            limit,
            offset,
            excerpt_chars: 30,
        })
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0_usize..8;
    prop_oneof![
        2 => Just(Step::New),
        6 => (which.clone(), words()).prop_map(|(of, words)| Step::Say(of, words)),
        4 => (which.clone(), 0..TOOLS.len(), words()).prop_map(|(of, tool, words)| Step::Call(of, tool, words)),
        1 => which.clone().prop_map(Step::Withdraw),
        1 => (which.clone(), 0_usize..9).prop_map(|(of, nth)| Step::Redact(of, nth)),
        1 => (which.clone(), any::<bool>()).prop_map(|(of, on)| Step::Tag(of, on)),
        1 => which.clone().prop_map(Step::Close),
        1 => which.clone().prop_map(Step::Fork),
        1 => which.clone().prop_map(Step::Delete),
        1 => which.prop_map(Step::Forget),
        2 => (0_usize..40, -3_i8..4, 1_i8..4).prop_map(|(of, x, y)| Step::Vector(of, x, y)),
        1 => Just(Step::DropIndex),
        6 => query().prop_map(|query| Step::Search(Box::new(query))),
    ]
}

fn call(session: &Session, tool: &str, words: &[usize]) {
    let asked = Message::assistant("beta").call("c", tool, r#"{"word":"gamma"}"#);
    let said = session.append(asked).unwrap();
    let running = session.start_call(said.call(0), Effect::Pure).unwrap();
    let result = if words.len().is_multiple_of(2) { CallResult::succeeded } else { CallResult::failed };
    running.finish(result(text(words))).unwrap();
}

/// A workspace in which things happen.
struct World {
    workspace: Workspace,
    open: Vec<Session>,
    closed: Vec<SessionId>,
    vectors: BTreeMap<RecordId, [f32; 2]>,
}

impl World {
    fn every_record(&self) -> Vec<RecordId> {
        let all = MemoryQuery { limit: 1000, sort: MemorySort::Oldest, ..MemoryQuery::default() };
        self.workspace.search_anyhow(&all).hits.iter().map(|hit| hit.id).collect()
    }

    fn closed(&mut self, of: usize) -> Option<SessionId> {
        if self.closed.is_empty() {
            return None;
        }
        let nth = of % self.closed.len();
        Some(self.closed.remove(nth))
    }

    fn apply(&mut self, step: &Step) {
        self.workspace.clock.forward(1);
        let session = |of: &usize| self.open.get(of % self.open.len().max(1));
        match step {
            Step::New => {
                let session = self.workspace.session("alpha goal");
                self.open.push(session);
            }
            Step::Say(of, words) => {
                if let Some(session) = session(of) {
                    session.append(Message::user(text(words))).unwrap();
                }
            }
            Step::Call(of, tool, words) => {
                if let Some(session) = session(of) {
                    call(session, TOOLS[*tool], words);
                }
            }
            Step::Withdraw(of) => {
                let Some(session) = session(of) else { return };
                let said = session.append(Message::user("gamma taken back")).unwrap();
                session.withdraw(NodeId::ROOT, said.message_no, "no").unwrap();
            }
            Step::Redact(of, nth) => {
                let Some(session) = session(of) else { return };
                let records = self.every_record();
                let of_it: Vec<_> = records.iter().filter(|id| id.session == session.id()).collect();
                if let Some(id) = of_it.get(nth % of_it.len().max(1)) {
                    // The goal can't be erased without the session.
                    drop(session.redact(&BTreeSet::from([id.position]), "asked to"));
                }
            }
            Step::Tag(of, on) => {
                let Some(session) = session(of) else { return };
                let (tag, none) = (vec!["t".to_owned()], vec![]);
                let (added, removed) = if *on { (tag, none) } else { (none, tag) };
                session.tag(added, removed).unwrap();
            }
            Step::Close(of) if !self.open.is_empty() => {
                let session = self.open.remove(of % self.open.len());
                self.closed.push(session.id());
                session.close().unwrap();
            }
            Step::Close(_) => {}
            Step::Fork(of) => {
                if let Some(session) = session(of) {
                    let fork = session.fork(ForkPoint::Head, ForkOptions::default()).unwrap();
                    self.open.push(fork);
                }
            }
            Step::Delete(of) => {
                if let Some(id) = self.closed(*of) {
                    self.workspace.store.delete(id).unwrap();
                }
            }
            Step::Forget(of) => {
                if let Some(id) = self.closed(*of) {
                    self.workspace.store.forget(id).unwrap();
                    self.vectors.retain(|record, _| record.session != id);
                }
            }
            Step::Vector(of, x, y) => {
                let records = self.every_record();
                if let Some(id) = records.get(of % records.len().max(1)) {
                    let vector = [f32::from(*x), f32::from(*y)];
                    self.workspace.memory().attach_vector(*id, "m", &vector).unwrap();
                    self.vectors.insert(*id, vector);
                }
            }
            Step::DropIndex => drop(fs::remove_dir_all(self.workspace.in_workspace("index"))),
            Step::Search(query) => self.search(query),
        }
    }

    fn search(&self, query: &MemoryQuery) {
        let found = self.workspace.search_anyhow(query);
        let Some(asked) = query.vector.as_ref().filter(|_| query.text.is_empty()) else { return };
        // By comparing each vector of a record that is there and that the filter takes.
        let all = MemoryQuery { vector: None, limit: 1000, offset: 0, ..query.clone() };
        let there: BTreeSet<_> = self.workspace.search_anyhow(&all).hits.iter().map(|hit| hit.id).collect();
        let taken: BTreeMap<_, _> = self.vectors.iter().filter(|(id, _)| there.contains(id)).collect();
        assert_eq!(found.total, taken.len() as u64);
        if query.recency.is_none() && query.sort == MemorySort::Relevance {
            let mut scores: Vec<f64> = taken
                .values()
                .map(|vector| (cosine(&asked.components, &vector[..]).unwrap() + 1.0) / 2.0)
                .collect();
            scores.sort_by(|a, b| b.total_cmp(a));
            let given: Vec<f64> = found.hits.iter().map(|hit| hit.score).collect();
            let page: Vec<f64> = scores.into_iter().skip(query.offset).take(query.limit).collect();
            assert_eq!(given, page);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn an_index_makes_no_difference(steps in prop::collection::vec(step(), 4..40), last in query()) {
        let (open, closed, vectors) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut world = World { workspace: Workspace::new(), open, closed, vectors };
        for step in [Step::New].iter().chain(&steps) {
            world.apply(step);
        }
        world.search(&last);
    }
}
