//! Random lives of a session tree on a simulated disk: prompts, agents and children that work and are interrupted,
//! compactions, rewinds, undoing, clears, withdrawals, forks, clean ends, kills and losses of power.
//!
//! After every step: each conversation's context is accepted by all three providers' rules; the transcript has everything
//! that was acknowledged; the state that the owner keeps is the state that is folded cold from the files; no side effect
//! happened twice; no call has two results. At the end, the tree comes to rest and every call that it still owes has its
//! result.
//!
//! `SESSIONLOG_LIVES=20000 SESSIONLOG_SEED=3 cargo test -p sessionlog --test lives --release` for a long search. A
//! failure names the seed of its life; `SESSIONLOG_LIVES=1 SESSIONLOG_SEED=...` lives it again.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use sessionlog::codec::event::{
    CompactionTrigger, Effect, Event, FinalStatus, Part, TurnOutcome, UsageRecorded,
};
use sessionlog::codec::ids::{CallRef, MessageNo, NodeId, Position, SessionId};
use sessionlog::projections::compaction::{Attempt, Policy, Share, SummaryRole};
use sessionlog::projections::delegation::Binding;
use sessionlog::projections::recovery::{self, Availability, RecoveryState};
use sessionlog::projections::render::{
    Api, Replay, Target, render, validate_anthropic, validate_chat, validate_responses,
};
use sessionlog::projections::rewind::RewindTo;
use sessionlog::projections::{EntryBody, Projection, Summary, TreeState, validate_pairing};
use sessionlog::session::{CompactionSettings, EventItem, OrphanPolicy, OwedCall};
use sessionlog::storage::{CrashMode, SimStorage};
use sessionlog::{
    CallResult, ChildResult, Delegated, Delegation, ErrorKind, ForkOptions, ForkPoint, Message, NewSession,
    Session, SessionReader, Work,
};
use support::Rng;
use support::tree::{bound, open};

const APIS: [Api; 3] = [Api::ChatCompletions, Api::Responses, Api::AnthropicMessages];

/// What the tools and agents did, which no crash undoes.
#[derive(Default)]
struct World {
    effects: BTreeMap<(NodeId, CallRef), u32>,
    asked: BTreeMap<NodeId, u32>,
}

struct Life {
    storage: SimStorage,
    session: Option<Arc<Session>>,
    id: SessionId,
    rng: Rng,
    world: World,
    /// What was acknowledged, by conversation and number.
    said: BTreeMap<(NodeId, MessageNo), String>,
    steps: Vec<String>,
}

impl Life {
    fn new(seed: u64) -> Self {
        let storage = SimStorage::new();
        let session = open(&storage).create("/w", NewSession::new("live")).unwrap();
        let id = session.id();
        let (world, said, steps) = (World::default(), BTreeMap::new(), Vec::new());
        Self { storage, session: Some(Arc::new(session)), id, rng: Rng(seed), world, said, steps }
    }

    fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    fn text(&mut self) -> String {
        let odd = ["plain", "", "\u{2028}\0", "\"}]", "  ", "漢字 and emoji 🎉"];
        let repeat = 1 + self.rng.index(12);
        format!("{} {}", odd[self.rng.index(odd.len())], "word ".repeat(repeat))
    }

    fn step(&mut self) {
        match self.rng.below(25) {
            0..=2 => self.prompt(),
            3..=12 => self.work(),
            13 => self.compact(),
            14 | 15 => self.rewind(),
            16 => self.undo(),
            17 => self.clear(),
            18 => self.withdraw(),
            19 => self.settle_orphans(),
            20 | 21 => self.crash(),
            22 => self.close(),
            23 => self.fork(),
            _ => self.end_turn(),
        }
    }

    fn note(&mut self, what: impl Into<String>) {
        self.steps.push(what.into());
    }

    fn prompt(&mut self) {
        let text = self.text();
        self.note("prompt");
        let appended = self.session().prompt(Message::user(text.clone())).unwrap();
        self.said.insert((NodeId::ROOT, appended.message_no), text);
    }

    /// One thing that is owed, whichever; sometimes it is begun and left.
    fn work(&mut self) {
        let session = Arc::clone(self.session.as_ref().unwrap());
        let mut offers = session.work().unwrap();
        if !offers.is_empty() {
            let chosen = offers.swap_remove(self.rng.index(offers.len()));
            drop(offers);
            self.note(format!("work {chosen:.0?}").chars().take(40).collect::<String>());
            self.carry_out(chosen);
        }
    }

    fn carry_out(&mut self, work: Work<'_>) {
        match work {
            Work::Begin(child) => {
                let (node, prompt) = (child.node(), child.request().prompt.clone());
                let instructions = vec![Message::system("Be brief.")];
                child.begin(bound(), instructions).unwrap();
                self.said.insert((node, MessageNo(2)), prompt);
            }
            Work::Ask(request) => {
                let asked = request.bind(bound()).unwrap();
                *self.world.asked.entry(asked.node()).or_default() += 1;
                if self.rng.below(4) > 0 {
                    asked.settle(ChildResult::completed("external result")).unwrap();
                }
            }
            Work::Call(call) => self.call(call),
            Work::Model(turn) => {
                let node = turn.node();
                assert!(!turn.context().unwrap().is_empty(), "a model is asked about nothing");
                let text = self.text();
                let mut message = Message::assistant(text.clone());
                let calls = if self.rng.below(3) == 0 { 0 } else { self.rng.below(4) };
                for index in 0..calls {
                    // Ids that repeat, within the session and across conversations.
                    message = message.call(format!("call_{index}"), "tool", r#"{"b":1,"a":2}"#);
                }
                let answer = sessionlog::session::Answer::from(message).request(usage());
                let appended = turn.answer(answer).unwrap();
                self.said.insert((node, appended.message_no), text);
            }
            Work::Settle(child) => drop(child.settle_with_last_words().unwrap()),
            Work::EndTurn(turn) => drop(turn.end().unwrap()),
            other => panic!("{other:?}"),
        }
    }

    fn call(&mut self, call: OwedCall<'_>) {
        let (node, reference) = (call.node(), call.call());
        let kind = if call.attempts() > 0 { 5 } else { self.rng.below(8) };
        let delegation = match kind {
            0 => Delegation::inner("worker", "do it"),
            1 => Delegation::external("oracle", "tell me"),
            2 => {
                call.answer(CallResult::failed("refused")).unwrap();
                return;
            }
            3 => return drop(call),
            _ => {
                let effect = [Effect::Mutating, Effect::Pure, Effect::External, Effect::Idempotent];
                let effect = effect[usize::try_from(kind % 4).unwrap()];
                let running = call.start(effect).unwrap();
                if effect != Effect::Pure {
                    *self.world.effects.entry((node, reference)).or_default() += 1;
                }
                if self.rng.below(5) > 0 {
                    running.finish(CallResult::succeeded("tool result")).unwrap();
                }
                return;
            }
        };
        if let Delegated::Refused(call, why) = call.delegate(delegation).unwrap() {
            call.answer(CallResult::failed(why.to_string())).unwrap();
        }
    }

    fn node(&mut self) -> NodeId {
        let count = self.session().with_tree(|tree| tree.nodes().count()).unwrap();
        NodeId(u32::try_from(self.rng.index(count)).unwrap())
    }

    fn compact(&mut self) {
        let node = self.node();
        let policy = Policy {
            target: Share::percent(60),
            limit: Share::percent(90),
            output_min: 8,
            ..Policy::default()
        };
        let settings = CompactionSettings { window: Some(400), policy, ..CompactionSettings::default() };
        let Ok(plan) = self.session().plan_compaction(node, &settings) else { return };
        self.note(format!("compact {node}"));
        if self.rng.below(4) == 0 {
            // The host dies or the summariser fails: nothing was written.
            return;
        }
        let role = if self.rng.below(2) == 0 { SummaryRole::System } else { SummaryRole::User };
        let (trigger, compaction_id) = (CompactionTrigger::Auto, format!("c{}", self.steps.len()));
        let attempt = Attempt { compaction_id, role, trigger, model: None, usage: None };
        let before = self.session().with_tree(|tree| tree.transcript(node).len()).unwrap();
        let applied = self.session().apply_compaction(&plan, "what happened", attempt);
        let grown = u64::from(applied.is_ok());
        let after = self.session().with_tree(|tree| tree.transcript(node).len()).unwrap();
        assert_eq!(
            u64::try_from(after - before).unwrap(),
            grown,
            "a compaction adds one entry, a failed one none"
        );
    }

    fn rewind(&mut self) {
        let node = self.node();
        let number = MessageNo(1 + self.rng.below(12));
        let to = match self.rng.below(5) {
            0 => RewindTo::Start,
            1 => RewindTo::BeforeMessage(number),
            2 => RewindTo::AfterMessage(number),
            3 => RewindTo::BeforeTurn(sessionlog::codec::ids::TurnNo(1 + self.rng.below(4))),
            _ => match self.session().branches(node).unwrap().as_slice() {
                [] => return,
                ends => RewindTo::Record(ends[self.rng.index(ends.len())]),
            },
        };
        let Ok(plan) = self.session().plan_rewind(node, to) else { return };
        self.note(format!("rewind {node} {to:?}"));
        let before = self.session().with_tree(|tree| tree.context(node)).unwrap();
        self.session().rewind(&plan).unwrap();
        if self.rng.below(3) == 0 {
            self.session().undo(node).unwrap();
            let after = self.session().with_tree(|tree| tree.context(node)).unwrap();
            assert_eq!(before, after, "rewind, look, undo: equal");
        }
    }

    fn undo(&mut self) {
        let node = self.node();
        self.note(format!("undo {node}"));
        match self.session().undo(node) {
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict), "{error:?}");
            }
        }
        // A withdrawn message that is said again is one more.
        let tree = self.session().with_tree(TreeState::clone).unwrap();
        self.learn(&tree);
    }

    fn clear(&mut self) {
        self.note("clear");
        let run = format!("run {}", self.steps.len());
        self.session().clear(run).unwrap();
        assert_eq!(self.session().context().unwrap(), []);
    }

    fn withdraw(&mut self) {
        let last = self.session().context().unwrap().last().and_then(|message| message.message_no);
        let Some(last) = last else { return };
        self.note(format!("withdraw {last}"));
        match self.session().withdraw(NodeId::ROOT, last, "not meant") {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}"),
        }
    }

    fn settle_orphans(&mut self) {
        let policies = [OrphanPolicy::Ask, OrphanPolicy::Skip, OrphanPolicy::Redo, OrphanPolicy::Abort];
        let policy = policies[self.rng.index(policies.len())];
        self.note(format!("orphans {policy:?}"));
        let last = |life: &Self| life.session().last();
        let redo = self.session().settle_orphans(policy).unwrap();
        let once = last(self);
        self.session().settle_orphans(policy).unwrap();
        assert_eq!(last(self), once, "a policy decides once");
        for orphan in redo {
            if orphan.effect == Some(Effect::Idempotent)
                && let Ok(running) = self.session().repeat_call(orphan.node, orphan.call)
            {
                running.finish(CallResult::succeeded("after all")).unwrap();
            }
        }
    }

    fn end_turn(&mut self) {
        self.note("end turn");
        match self.session().end_turn(TurnOutcome::Interrupted) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.code(), "turn.none"),
        }
    }

    fn crash(&mut self) {
        self.note("crash");
        let seed = self.rng.next();
        let mode = [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Seeded(seed)][self.rng.index(3)];
        self.storage = self.storage.power_cut(mode);
        // It ends with the disk as it had it: what it still does to that, nobody sees.
        drop(self.session.take());
        self.resume();
    }

    fn close(&mut self) {
        self.note("close");
        let session = Arc::into_inner(self.session.take().unwrap()).unwrap();
        if self.rng.below(3) == 0 {
            session.finish(FinalStatus::Paused).unwrap();
        } else {
            session.close().unwrap();
        }
        self.resume();
    }

    /// Goes on in a fork. The other one is closed, and stays whole.
    fn fork(&mut self) {
        self.note("fork");
        let before = self.session().with_tree(TreeState::clone).unwrap();
        let fork = self.session().fork(ForkPoint::Head, ForkOptions::default()).unwrap();
        let there = self.session.replace(Arc::new(fork)).unwrap();
        for node in before.nodes() {
            let after = self.session().with_tree(|tree| tree.transcript(node)).unwrap();
            assert_eq!(before.transcript(node), after, "a fork begins with the whole history");
        }
        there.append(Message::user("on this side only")).unwrap();
        let reader = there.reader();
        Arc::into_inner(there).unwrap().close().unwrap();
        let verified = reader.verify().unwrap();
        assert_eq!(verified.worst(), None, "{:?}", verified.all().collect::<Vec<_>>());
        self.id = self.session().id();
    }

    fn resume(&mut self) {
        let (session, report) = open(&self.storage).resume(self.id).unwrap();
        let again: Vec<_> = report.owed.iter().map(|step| step.word()).collect();
        assert_eq!(session.plan(&|_| Availability::Available).unwrap(), report.owed);
        self.session = Some(Arc::new(session));
        self.note(format!("resumed, owed {again:?}"));
    }

    /// Messages that came by without being said here.
    fn learn(&mut self, tree: &TreeState) {
        for node in tree.nodes() {
            for entry in tree.transcript(node) {
                if let (EntryBody::Message(message), Some(number)) = (&entry.body, entry.message_no)
                    && let Some(Part::Text(text)) = message.parts.first()
                {
                    self.said.entry((node, number)).or_insert_with(|| text.clone());
                }
            }
        }
    }

    /// What is told of a part of the session, by its owner and by readers.
    fn check_parts(&self, cold: &TreeState, summary: &Summary, recovery: &RecoveryState) {
        let reader = self.session().reader();
        // Of reading without owning, part by part: each of it takes a look at all files.
        let part = self.steps.len() % 4;
        if part == 0 {
            assert_eq!(reader.summary().unwrap(), *summary);
            assert_eq!(reader.open_calls().unwrap(), recovery.ledger().open_calls());
        }
        if part == 3 {
            self.check_newest_events(&reader);
        }
        for node in cold.nodes() {
            assert_eq!(self.session().context_of(node).unwrap(), cold.context(node), "node {node}");
            if part == 1 {
                assert_eq!(reader.context(node).unwrap(), cold.context(node), "node {node}");
            }
            if part == 2 {
                let transcript = cold.transcript(node);
                for limit in [1, 4, 20] {
                    let newest = &transcript[transcript.len().saturating_sub(limit)..];
                    assert_eq!(reader.newest(node, limit).unwrap(), newest, "node {node}, {limit}");
                }
            }
        }
    }

    /// The end of the log is the end of the whole log.
    fn check_newest_events(&self, reader: &SessionReader) {
        let event_of = |item| if let EventItem::Event(event) = item { *event } else { panic!("a gap") };
        let mut all = Vec::new();
        reader
            .events(Position(1), &mut |item| {
                all.push(event_of(item));
                ControlFlow::Continue(())
            })
            .unwrap();
        for limit in [0, 1, 7, 40] {
            let newest: Vec<_> = reader.newest_events(limit).unwrap().into_iter().map(event_of).collect();
            assert_eq!(newest, all[all.len().saturating_sub(limit)..], "the last {limit}");
        }
    }

    fn check(&self) {
        let reader = self.session().reader();
        let (mut cold, mut replay) = (TreeState::default(), Replay::default());
        let (mut summary, mut recovery) = (Summary::default(), RecoveryState::default());
        let mut results: BTreeSet<(NodeId, CallRef)> = BTreeSet::new();
        reader
            .events(Position(1), &mut |item| {
                let EventItem::Event(event) = item else { panic!("a gap") };
                cold.apply(&event);
                replay.apply(&event);
                summary.apply(&event);
                recovery.apply(&event);
                if let Event::CallFinished(finished) = &event.event {
                    assert!(results.insert((event.node, finished.call)), "two results of {}", finished.call);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        // Asking for everything makes the session read its whole log, and know all of it from then on.
        if self.steps.len() % 5 == 4 {
            self.session().with_tree(|live| assert!(*live == cold, "the live fold is the cold one")).unwrap();
            self.session().ledger(|live| assert_eq!(live, recovery.ledger())).unwrap();
        }
        assert_eq!(self.session().summary().unwrap(), summary);
        assert_eq!(self.session().open_calls().unwrap(), recovery.ledger().open_calls());
        let available = |_: &Binding<'_>| Availability::Available;
        assert_eq!(self.session().plan(&available).unwrap(), recovery::plan(&recovery, &available));
        self.check_parts(&cold, &summary, &recovery);
        for node in cold.nodes() {
            let context = cold.context(node);
            assert_eq!(validate_pairing(&context), Ok(()), "node {node}");
            for api in APIS {
                let target = Target { api, model: "fake-1".into(), provider: None };
                let body = render(&context, replay.node(node), &target).body;
                let body = serde_json::from_slice(&body).unwrap();
                let legal = match api {
                    Api::ChatCompletions => validate_chat(&body),
                    Api::Responses => validate_responses(&body),
                    Api::AnthropicMessages => validate_anthropic(&body),
                };
                assert_eq!(legal, Ok(()), "node {node} {api:?}");
            }
            let shown: BTreeMap<MessageNo, String> = cold
                .transcript(node)
                .into_iter()
                .filter_map(|entry| match (&entry.body, entry.message_no) {
                    (EntryBody::Message(message), Some(number)) => Some((number, first_text(&message.parts))),
                    _ => None,
                })
                .collect();
            for ((_, number), text) in self.said.iter().filter(|((of, _), _)| *of == node) {
                assert_eq!(shown.get(number), Some(text), "message {number} of node {node}");
            }
        }
        for (place, count) in &self.world.asked {
            assert_eq!(*count, 1, "{place:?} was asked {count} times");
        }
        for (place, count) in &self.world.effects {
            assert_eq!(*count, 1, "{place:?} happened {count} times");
        }
    }

    /// Lets the tree come to rest.
    fn rest(&mut self) {
        for _ in 0..400 {
            let session = Arc::clone(self.session.as_ref().unwrap());
            let first = session.work().unwrap().into_iter().next();
            let Some(work) = first else {
                assert_eq!(session.plan(&|_| Availability::Available).unwrap(), []);
                return;
            };
            match work {
                Work::Model(turn) => drop(turn.answer(Message::assistant("Done.")).unwrap()),
                work => self.carry_out(work),
            }
        }
        panic!("the tree does not come to rest");
    }
}

fn first_text(parts: &[Part]) -> String {
    match parts.first() {
        Some(Part::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

fn usage() -> UsageRecorded {
    UsageRecorded {
        request_id: "r".to_owned(),
        message_no: None,
        model: Some("fake-1".to_owned()),
        usage: None,
        cost_nano_usd: None,
        latency_ms: None,
        estimated_input: None,
        window: Some(400),
    }
}

fn live(seed: u64) {
    let mut life = Life::new(seed);
    let steps = 20 + life.rng.index(60);
    let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        life.prompt();
        for _ in 0..steps {
            life.step();
            life.check();
        }
        life.rest();
        life.check();
        Arc::into_inner(life.session.take().unwrap()).unwrap().finish(FinalStatus::Completed).unwrap();
    }));
    if let Err(panic) = lived {
        println!("seed {seed}: {:#?}", life.steps);
        std::mem::forget(life.session.take());
        std::panic::resume_unwind(panic);
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn whatever_happens_the_context_is_legal_and_nothing_is_lost() {
    let (lives, seed) = (number("SESSIONLOG_LIVES", 100), number("SESSIONLOG_SEED", 1));
    for life in 0..lives {
        live(seed.wrapping_add(life));
    }
}
