//! What is learned from, where segments end, and what the library makes of propositions: pure, so any order of events can be
//! tried.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(clippy::cast_possible_wrap, reason = "of small numbers")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use sessionlog_codec::RawBytes;
use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_codec::record::TimeOrigin;
use sessionlog_codec::registry::kind;
use sessionlog_projections::learning::*;
use support::message;

const ROOT: NodeId = NodeId::ROOT;

fn at(position: u64, node: NodeId, event: impl Into<Event>) -> LoggedEvent {
    LoggedEvent {
        position: Position(position),
        node,
        timestamp: Timestamp(i64::try_from(position).unwrap() * 3_600_000_000),
        time_origin: TimeOrigin::Clock,
        cause: None,
        event: event.into(),
    }
}

#[derive(Default)]
struct Log {
    state: LearnState,
    next: u64,
    message_no: u64,
}

impl Log {
    fn add(&mut self, event: impl Into<Event>) -> Position {
        self.next += 1;
        self.state.apply(&at(self.next, ROOT, event));
        Position(self.next)
    }

    fn say(&mut self, role: Role, text: &str) -> Position {
        self.message_no += 1;
        self.add(message(self.message_no, role, text, &[]))
    }

    fn close(&mut self, closing: &Closing) -> Vec<(u64, u64, LearnBoundary)> {
        self.append(|state| state.closable(closing, &OffSpans::default()))
    }

    fn append(&mut self, which: impl Fn(&LearnState) -> Vec<NewEvent>) -> Vec<(u64, u64, LearnBoundary)> {
        let mut segments = Vec::new();
        for new in which(&self.state) {
            let Event::LearnSegmentClosed(closed) = &new.event else { panic!() };
            segments.push((closed.first.0, closed.last.0, closed.boundary));
            self.add(new.event);
        }
        segments
    }

    /// What the last segment's job would read.
    fn read(&self) -> Vec<u64> {
        let segment = self.state.segments().last().unwrap();
        let sources = self.state.sources(segment, &OffSpans::default());
        sources.into_iter().map(|(positions, _)| positions[0].0).collect()
    }

    fn close_now(&mut self) -> Vec<u64> {
        let closing = bytes(1 << 20);
        if self.append(|state| state.closable_now(&closing, &OffSpans::default())).is_empty() {
            return Vec::new();
        }
        self.read()
    }
}

fn bytes(window: u64) -> Closing {
    Closing { size: SizeLimit::bytes(window), begin: Begin::FirstMessage }
}

fn task() -> TaskCompleted {
    TaskCompleted {
        outcome: "completed".into(),
        summary: "Done.".into(),
        findings: vec!["It was the cache.".into()],
        artifacts: vec![],
        verification: None,
        blocker: None,
        report: None,
    }
}

fn plan() -> PlanApproved {
    PlanApproved { execution_id: "x".into(), objective: "Ship".into(), plan: "{}".into() }
}

fn compacted(summary: &str) -> ContextCompacted {
    support::compacted(summary, &[], &[])
}

#[test]
fn what_is_learned_from_and_what_is_not() {
    let mut log = Log::default();
    log.say(Role::System, "Be brief.");
    log.say(Role::Assistant, "before anybody asked");
    let asked = log.say(Role::User, "Why?");
    log.say(Role::Developer, "no");
    log.say(Role::Tool, "an orphan");
    log.say(Role::Assistant, "");
    log.message_no += 1;
    let with_call = log.add(message(log.message_no, Role::Assistant, "I look.", &["a"]));
    log.message_no += 1;
    log.add(message(log.message_no, Role::Assistant, "", &["b"]));
    for audience in [Audience::Model, Audience::Person] {
        log.message_no += 1;
        let said = MessageAppended { audience, ..message(log.message_no, Role::User, "a notice", &[]) };
        log.add(said);
    }
    let thought = Part::Reasoning(Reasoning { text: "hm".into(), form: ReasoningForm::Plain });
    log.message_no += 1;
    log.add(MessageAppended { parts: vec![thought], ..message(log.message_no, Role::Assistant, "", &[]) });
    let summary = log.add(compacted("We looked."));
    log.add(support::finished(support::call(1, 0), "a result"));
    let done = log.add(task());
    assert_eq!(log.close(&bytes(1 << 20)), [(asked.0, done.0, LearnBoundary::TaskComplete)]);
    assert_eq!(log.read(), [asked, with_call, summary, done].map(|it| it.0));
    // The reply to a completed task repeats it.
    log.say(Role::Assistant, "It is done.");
    let next = log.say(Role::Assistant, "By the way.");
    let approved = log.add(plan());
    assert_eq!(log.close(&bytes(1 << 20)), [(next.0, approved.0, LearnBoundary::PlanApproved)]);
    assert_eq!(log.close_now(), [0; 0], "nothing is there to be closed");
}

#[test]
fn what_is_taken_back_is_not_learned_also_after_its_segment_was_closed() {
    let mut log = Log::default();
    let first = log.say(Role::User, "keep");
    log.say(Role::User, "withdraw before");
    log.add(MessageWithdrawn { message_no: MessageNo(2), reason: String::new() });
    log.say(Role::User, "withdraw after");
    let redacted = log.say(Role::User, "redact");
    let kept = log.say(Role::Assistant, "stay");
    log.say(Role::User, "rewound");
    log.add(HeadMoved { to: kept, from: Position(7), reason: HeadReason::Rewind });
    let after = log.say(Role::User, "instead");
    assert_eq!(log.close_now(), [first.0, 4, redacted.0, kept.0, after.0]);
    log.add(MessageWithdrawn { message_no: MessageNo(3), reason: String::new() });
    log.add(Redacted { positions: vec![redacted], reason: String::new(), requested_at: Timestamp(0) });
    assert_eq!(log.read(), [first.0, kept.0, after.0]);
    // A record that is erased already says nothing.
    let mut log = Log::default();
    log.say(Role::User, "keep");
    log.add(Event::Erased { kind: kind::MessageAppended, schema: SchemaVersion(1), digest: Digest([0; 32]) });
    assert_eq!(log.close_now(), [1]);
}

#[test]
fn a_segment_that_is_exactly_full_is_not_over_the_limit() {
    let mut log = Log::default();
    for _ in 0..3 {
        log.say(Role::User, "12345");
    }
    // Three of five bytes each.
    assert_eq!(log.close(&bytes(15)), []);
    assert_eq!(log.state.waiting(&bytes(15), &OffSpans::default()), Waiting { messages: 3, bytes: 15 });
    log.say(Role::User, "");
    assert_eq!(log.close(&bytes(15)), [], "what says nothing takes no room");
    log.say(Role::User, "x");
    assert_eq!(log.close(&bytes(15)), [(1, 3, LearnBoundary::Size)], "before the one that would be over it");
    assert_eq!(log.read(), [1, 2, 3]);

    let mut log = Log::default();
    for text in ["12345", "12345", "123456", "a text longer than any segment", "x"] {
        log.say(Role::User, text);
    }
    let size = LearnBoundary::Size;
    assert_eq!(log.close(&bytes(10)), [(1, 2, size), (3, 3, size), (4, 4, size)]);
    // In tokens: a third of the bytes, rounded up, and 4; 45 % of 27 tokens are 12.
    let mut log = Log::default();
    log.say(Role::User, "123456");
    log.say(Role::User, "123456");
    let tokens = |window| Closing::tokens(window);
    assert_eq!(log.close(&tokens(27)), []);
    assert_eq!(log.close(&tokens(26)), [(1, 1, size)]);
}

#[test]
fn a_completed_task_is_the_last_of_its_segment_and_may_fill_one_alone() {
    let mut log = Log::default();
    log.say(Role::User, "1234567890");
    let done = log.add(task());
    let expected = [(1, 1, LearnBoundary::Size), (done.0, done.0, LearnBoundary::TaskComplete)];
    assert_eq!(log.close(&bytes(10)), expected);
    assert_eq!(log.close(&bytes(10)), []);
}

#[test]
fn what_was_said_while_learning_was_off_is_in_no_segment_and_ends_none() {
    let mut log = Log::default();
    log.say(Role::User, "on");
    log.say(Role::User, "off");
    log.add(task());
    log.say(Role::User, "on again");
    let mut switches = Switches::default();
    let id = support::session_id();
    let switched = |to, end: u64| -> [Event; 2] {
        let ends: SessionEnds = [(id, Some(Position(end)))].into_iter().collect();
        [ends.event().into(), LearningSwitched { to }.into()]
    };
    for event in [switched(LearningSwitch::Off, 1), switched(LearningSwitch::On, 3)].concat() {
        switches.apply(&at(1, ROOT, event));
    }
    let off = switches.off_spans(id);
    assert_eq!(log.append(|state| state.closable(&bytes(1 << 20), &off)), []);
    let closed = log.append(|state| state.closable_now(&bytes(1 << 20), &off));
    assert_eq!(closed, [(1, 4, LearnBoundary::Explicit)]);
    let segment = log.state.segments().next().unwrap();
    let read: Vec<u64> = log.state.sources(segment, &off).into_iter().map(|(it, _)| it[0].0).collect();
    assert_eq!(read, [1, 4]);
}

#[test]
fn a_session_of_before_may_begin_with_its_summary() {
    let mut log = Log::default();
    log.say(Role::User, "long ago");
    log.add(compacted("first"));
    log.add(compacted("what came of it"));
    log.say(Role::User, "now");
    let closing = Closing { begin: Begin::LatestSummary, ..bytes(1 << 20) };
    let closed = log.append(|state| state.closable_now(&closing, &OffSpans::default()));
    assert_eq!(closed, [(3, 4, LearnBoundary::Explicit)]);
    log.say(Role::User, "later");
    log.add(compacted("again"));
    let closed = log.append(|state| state.closable_now(&closing, &OffSpans::default()));
    assert_eq!(closed, [(6, 7, LearnBoundary::Explicit)], "only in the beginning");
}

#[test]
fn a_fork_learns_what_is_said_in_it() {
    let mut log = Log::default();
    log.say(Role::User, "before");
    log.close_now();
    let id = log.state.head().unwrap().segment_id.clone();
    log.add(LearnJobStarted { segment_id: id, input_digest: Digest([1; 32]), generation: "g".into() });
    log.add(SessionForked {
        session_id: support::session_id(),
        parent: support::session_id(),
        at: Position(2),
        chain: Digest([0; 32]),
    });
    assert_eq!((log.state.segments().count(), log.state.job()), (0, None));
    let reply = log.say(Role::Assistant, "and on");
    assert_eq!(log.close_now(), [reply.0]);
}

#[test]
fn children_are_learned_from_if_asked_for_each_by_itself() {
    let child = NodeId(1);
    for (conversations, expected) in [(Conversations::Root, 1), (Conversations::All, 2)] {
        let mut state = LearnState::new(conversations);
        state.apply(&at(1, ROOT, message(1, Role::User, "root", &[])));
        state.apply(&at(2, child, message(1, Role::User, "child", &[])));
        state.apply(&at(3, ROOT, message(2, Role::User, "root", &[])));
        let closed = state.closable_now(&bytes(1 << 20), &OffSpans::default());
        assert_eq!(closed.len(), expected);
        for (new, position) in closed.into_iter().zip(4..) {
            state.apply(&at(position, new.node, new.event));
        }
        if conversations == Conversations::All {
            let nodes: Vec<NodeId> = state.segments().map(|it| it.node).collect();
            assert_eq!(nodes, [child, ROOT], "in the order of their ends");
            let deleted = NodeDeleted { child, descendants: vec![], actor: String::new() };
            state.apply(&at(9, ROOT, deleted));
            let segment = state.head().unwrap().clone();
            assert_eq!(state.sources(&segment, &OffSpans::default()), []);
        }
    }
}

fn draft(content: &str) -> Draft {
    Draft {
        kind: PropositionKind::Finding,
        content: content.to_owned(),
        queries: vec![],
        tags: vec![],
        refs: vec![],
        confidence: 0.5,
        extractor_model: "m".to_owned(),
        extractor_version: "1".to_owned(),
    }
}

#[derive(Default)]
struct Shelf {
    library: LibraryState,
    events: Vec<Event>,
    /// What was decided first of each proposition that was there.
    first: BTreeMap<String, LibraryAction>,
}

impl Shelf {
    fn add(&mut self, event: impl Into<Event>) {
        let event = event.into();
        if let Event::PropositionDecided(decided) = &event
            && self.library.filed(&decided.key).is_some_and(|it| it.standing == Standing::Submitted)
        {
            self.first.insert(decided.key.clone(), decided.action);
        }
        self.events.push(event.clone());
        self.library.apply(&at(u64::try_from(self.events.len()).unwrap(), ROOT, event));
    }

    fn submit(&mut self, key: &str, draft: Draft) {
        let proposition = Proposition::new(draft).unwrap();
        self.add(PropositionSubmitted {
            key: key.to_owned(),
            kind: proposition.draft().kind,
            request_digest: proposition.digest(),
            request: proposition.request().clone(),
        });
    }

    fn decide(&mut self, key: &str, action: LibraryAction, target: Option<String>) {
        let (key, reason, model) = (key.to_owned(), String::new(), None);
        self.add(PropositionDecided { key, action, target, reason, model });
    }

    fn apply(&mut self, key: &str) -> Receipt {
        let applied = self.library.effect(key).unwrap();
        let receipt = Receipt { action: applied.action, entry_id: applied.entry_id.clone() };
        self.add(applied);
        receipt
    }

    fn create(&mut self, key: &str, draft: Draft) -> String {
        self.submit(key, draft);
        self.decide(key, LibraryAction::Create, None);
        self.apply(key).entry_id.unwrap()
    }

    fn delete(&mut self, id: &str) {
        self.add(PropositionDeleted { entry_id: id.to_owned(), reason: String::new() });
    }

    fn found(&self, query: &str, recency: Recency) -> Vec<String> {
        let now = Timestamp(3_600_000_000 * 10_000);
        let found = self.library.search(query, now, &SearchOptions { recency, ..SearchOptions::default() });
        found.into_iter().map(|it| it.entry.content).collect()
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

#[test]
fn a_merge_keeps_the_content_and_joins_the_rest_up_to_its_bounds() {
    let mut shelf = Shelf::default();
    let id = shelf.create("a", Draft { queries: names("q", 6), tags: names("t", 2), ..draft("first") });
    let more = Draft {
        queries: vec!["q5".into(), "new1".into(), "new2".into(), "new3".into()],
        tags: names("t", 3),
        refs: vec!["r".into()],
        confidence: 0.9,
        ..draft("second")
    };
    shelf.submit("b", more);
    shelf.decide("b", LibraryAction::Merge, Some(id.clone()));
    assert_eq!(shelf.apply("b").entry_id, Some(id.clone()));
    let entry = shelf.library.entry(&id).unwrap();
    assert_eq!((entry.content.as_str(), entry.propositions), ("first", 2));
    assert_eq!(entry.queries, [names("q", 6), vec!["new1".into(), "new2".into()]].concat());
    assert_eq!((entry.tags.len(), entry.refs.len()), (3, 1));
    assert!((entry.confidence - 0.9).abs() < 1e-9);
    assert!(entry.created_at < entry.updated_at);
    assert_eq!(shelf.library.entries().count(), 1);
}

#[test]
fn the_first_submission_decision_and_effect_stand() {
    let mut shelf = Shelf::default();
    let id = shelf.create("a", draft("x"));
    shelf.submit("b", draft("y"));
    shelf.submit("b", draft("another"));
    let filed = shelf.library.filed("b").unwrap();
    assert_eq!(filed.request_digest, Proposition::new(draft("y")).unwrap().digest());
    let other = Proposition::new(draft("another")).unwrap().digest();
    assert!(matches!(shelf.library.submission("b", other), Submission::Conflict { .. }));
    assert_eq!(shelf.library.submission("c", other), Submission::New);
    assert!(matches!(shelf.library.effect("b"), Err(NotApplied::NotDecided(_))));
    shelf.decide("b", LibraryAction::Merge, Some(id.clone()));
    // It could not be applied: the decision stands all the same.
    shelf.add(PropositionFailed { key: "b".into(), error: "disk".into(), attempt: 1 });
    shelf.decide("b", LibraryAction::Create, None);
    assert_eq!(shelf.library.next_to_judge(), None);
    assert_eq!(shelf.library.next_to_apply().unwrap().key, "b");
    let applied = shelf.library.effect("b").unwrap();
    assert_eq!(applied.action, LibraryAction::Merge);
    for _ in 0..3 {
        shelf.add(applied.clone());
    }
    assert_eq!(shelf.library.entry(&id).unwrap().propositions, 2);
    // Nor does an old effect undo a later one.
    shelf.submit("c", draft("z"));
    shelf.decide("c", LibraryAction::Merge, Some(id.clone()));
    shelf.apply("c");
    shelf.add(applied);
    assert_eq!(shelf.library.entry(&id).unwrap().propositions, 3);
    assert_eq!(shelf.library.effect("b"), Err(NotApplied::Done("b".into())));
    assert_eq!((shelf.library.receipts(), shelf.library.open().count()), (3, 0));
}

#[test]
fn a_deleted_entry_is_not_found_not_merged_into_and_does_not_come_back() {
    let mut shelf = Shelf::default();
    let id = shelf.create("a", draft("about tests"));
    let create = shelf.events.last().unwrap().clone();
    shelf.submit("b", draft("more about tests"));
    shelf.decide("b", LibraryAction::Merge, Some(id.clone()));
    shelf.delete(&id);
    assert_eq!(shelf.found("tests", Recency::NONE), [""; 0]);
    let receipt = shelf.apply("b");
    assert_eq!(receipt, Receipt { action: LibraryAction::Discard, entry_id: None });
    shelf.add(create);
    shelf.submit("a", draft("about tests"));
    assert!(shelf.library.entry(&id).is_none() && shelf.library.is_deleted(&id));
    assert_eq!(shelf.library.entries().count(), 0);
}

#[test]
fn what_failed_holds_no_other_back() {
    let mut shelf = Shelf::default();
    shelf.submit("a", draft("x"));
    shelf.submit("b", draft("y"));
    assert_eq!(shelf.library.next_to_judge().unwrap().key, "a");
    shelf.add(PropositionFailed { key: "a".into(), error: "no".into(), attempt: 1 });
    assert_eq!(shelf.library.next_to_judge().unwrap().key, "b");
    shelf.decide("b", LibraryAction::Discard, None);
    shelf.apply("b");
    assert_eq!(shelf.library.next_to_judge().unwrap().key, "a", "its turn comes again");
    assert_eq!(shelf.library.filed("a").unwrap().last_error.as_deref(), Some("no"));
}

#[test]
fn newer_entries_are_preferred_unless_age_is_said_not_to_matter() {
    let mut shelf = Shelf::default();
    shelf.create("a", draft("tests of the parser and the lexer"));
    for number in 0..2000 {
        shelf.add(PropositionFailed { key: "none".into(), error: String::new(), attempt: number });
    }
    shelf.create("b", draft("tests of the parser and the weather"));
    shelf.create("c", draft("the weather"));
    let expected = ["tests of the parser and the lexer", "tests of the parser and the weather"];
    assert_eq!(shelf.found("parser lexer", Recency::NONE), expected);
    assert_eq!(shelf.found("parser", Recency::default())[0], expected[1]);
    let strong = Recency { weight: 1.0, ..Recency::default() };
    assert_eq!(shelf.found("parser lexer", strong)[0], expected[1]);
    assert_eq!(shelf.found("nothing", Recency::default()), [""; 0]);
    let odd = Recency { weight: f64::NAN, half_life_hours: 0.0 };
    assert_eq!(shelf.found("parser lexer", odd), expected);
}

#[test]
fn an_input_is_known_by_its_hash_and_a_slot_by_its_key() {
    let segment = Segment {
        segment_id: "learn-0-1-2".into(),
        node: ROOT,
        first: Position(1),
        last: Position(2),
        boundary: LearnBoundary::Explicit,
    };
    let line = |text: &str| Line { position: Position(1), speaker: Speaker::User, text: text.into() };
    let digest = |lines: &[Line]| input_digest(&segment, lines);
    let all = [
        digest(&[]),
        digest(&[line("ab")]),
        digest(&[line("a"), line("b")]),
        digest(&[Line { speaker: Speaker::Plan, ..line("ab") }]),
        digest(&[Line { position: Position(2), ..line("ab") }]),
        input_digest(&Segment { boundary: LearnBoundary::Size, ..segment.clone() }, &[line("ab")]),
    ];
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    let key = slot_key(support::session_id(), "learn-0-1-2", "0123", 7);
    let parts: Vec<&str> = key.split('/').collect();
    assert_eq!((parts[0], parts[1].len(), parts[2], parts[3]), ("thinker-v1", 32, "0123", "7"));
    assert_ne!(key, slot_key(SessionId([1; 16]), "learn-0-1-2", "0123", 7));
}

/// One step of a random log of a session: what happens, to which of a few segments, which slot.
type Step = (u8, u64, u32);

fn learn_event((what, which, slot): Step) -> Event {
    let segment_id = format!("s{which}");
    match what {
        0 => {
            let (first, last) = (Position(which * 10 + 1), Position(which * 10 + 9));
            LearnSegmentClosed { segment_id, first, last, boundary: LearnBoundary::Explicit }.into()
        }
        1 => {
            LearnJobStarted { segment_id, input_digest: Digest([0; 32]), generation: slot.to_string() }.into()
        }
        2 => LearnSlotPending { segment_id, slot, key: format!("k{slot}"), request: "{}".into() }.into(),
        3 => {
            let action = LibraryAction::Create;
            LearnSlotDone { segment_id, slot, action, proposition_id: Some(format!("p{slot}")) }.into()
        }
        _ => LearnCommitted { segment_id, result: None }.into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    /// Whatever the order: one job at most, of the first segment; a segment goes when it is committed, and not before; an
    /// answer is counted once.
    #[test]
    fn no_order_of_events_makes_two_jobs_or_loses_a_segment(steps in vec((0..5u8, 0..4u64, 0..4u32), 0..64)) {
        let mut state = LearnState::default();
        let (mut waiting, mut last): (Vec<String>, u64) = (Vec::new(), 0);
        for (step, position) in steps.into_iter().zip(100..) {
            let event = learn_event(step);
            match &event {
                Event::LearnSegmentClosed(closed) if closed.last.0 > last => {
                    last = closed.last.0;
                    waiting.push(closed.segment_id.clone());
                }
                Event::LearnCommitted(it) => waiting.retain(|id| *id != it.segment_id),
                _ => {}
            }
            state.apply(&at(position, ROOT, event));
            let queued: Vec<String> = state.segments().map(|it| it.segment_id.clone()).collect();
            prop_assert_eq!(&queued, &waiting);
            if let Some(job) = state.job() {
                prop_assert_eq!(Some(&job.segment_id), waiting.first());
                let slots: Vec<u32> = job.registered.iter().map(|it| it.slot).collect();
                prop_assert!(slots.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", slots);
                prop_assert!(slots.iter().all(|slot| *slot < job.next_slot));
                prop_assert!(job.pending.as_ref().is_none_or(|pending| pending.slot >= job.next_slot));
            }
        }
    }

    /// Whatever the order, and whatever is repeated: an entry is made once, counts each proposition once, and is as its first
    /// decision has it.
    #[test]
    fn no_order_of_events_doubles_an_entry(steps in vec((0..6u8, 0..5u64, 0..8u64), 0..96)) {
        let mut shelf = Shelf::default();
        for (what, which, other) in steps {
            let key = format!("k{which}");
            match what {
                0 => shelf.submit(&key, draft(&format!("content {which} {other}"))),
                1 => {
                    let action = [LibraryAction::Create, LibraryAction::Merge, LibraryAction::Discard]
                        [usize::try_from(other % 3).unwrap()];
                    let target = (action == LibraryAction::Merge).then(|| entry_id(&format!("k{}", other % 5)));
                    shelf.decide(&key, action, target);
                }
                2 => if shelf.library.effect(&key).is_ok() {
                    let receipt = shelf.apply(&key);
                    prop_assert!(receipt.action == shelf.first[&key] || receipt.action == LibraryAction::Discard);
                },
                3 => shelf.add(PropositionFailed { key, error: String::new(), attempt: 1 }),
                // A writer that does not look repeats what was said.
                _ => if !shelf.events.is_empty() {
                    let index = usize::try_from(other * 7 + which).unwrap() % shelf.events.len();
                    let again = shelf.events[index].clone();
                    shelf.add(again);
                },
            }
            let library = &shelf.library;
            let took = |entry: &Entry| {
                let receipts = (0..5).filter_map(|which| match &library.filed(&format!("k{which}"))?.standing {
                    Standing::Applied(receipt) => receipt.entry_id.clone(),
                    _ => None,
                });
                receipts.filter(|id| *id == entry.entry_id).count()
            };
            for entry in library.entries() {
                prop_assert_eq!(usize::try_from(entry.propositions).unwrap(), took(entry));
            }
            let keys: BTreeSet<&str> = library.entries().map(|entry| entry.entry_id.as_str()).collect();
            prop_assert_eq!(keys.len(), library.entries().count());
        }
    }

    #[test]
    fn no_bytes_are_a_proposition_by_accident_or_panic(bytes in vec(any::<u8>(), 0..200), text in ".{0,80}") {
        prop_assert!(Proposition::parse(RawBytes(bytes)).is_err());
        let _ = (secret(&text), is_private_path(&text));
    }
}
