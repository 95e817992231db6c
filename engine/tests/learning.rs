//! Learning as a whole: whatever fails wherever, a proposition is submitted once, judged once and applied once.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

#[path = "../examples/learning.rs"]
#[allow(unreachable_pub, reason = "an example is a program")]
mod example;
mod support;

use std::collections::BTreeMap;
use std::path::Path;

use sessionlog::codec::event::*;
use sessionlog::codec::ids::{NodeId, Position, SessionId};
use sessionlog::learning::{Lesson, Switched};
use sessionlog::library::{JudgeError, Question};
use sessionlog::projections::learning::*;
use sessionlog::projections::rewind::RewindTo;
use sessionlog::storage::{CrashMode, Fault, FaultError, Repeat, SimStorage};
use sessionlog::{
    Durability, ErrorKind, LearnOptions, LearnStanding, Librarian, Message, NewSession, Session, Store,
    StoreOptions, Thinker, Thought, Verdict,
};
use support::Rng;
use support::tree::{open, open_with};

const ROOT: NodeId = NodeId::ROOT;
const WORKSPACE: &str = "/w";

fn options() -> LearnOptions {
    LearnOptions::tokens(100_000)
}

fn draft(content: &str) -> Draft {
    Draft {
        kind: PropositionKind::Workflow,
        content: content.to_owned(),
        queries: vec![format!("What of {content}?")],
        tags: vec![],
        refs: vec![],
        confidence: 0.5,
        extractor_model: "thinker-1".to_owned(),
        extractor_version: "v1".to_owned(),
    }
}

fn proposition(content: &str) -> Proposition {
    Proposition::new(draft(content)).unwrap()
}

/// Proposes what its script has, in order, from every segment.
#[derive(Default)]
struct Script {
    contents: Vec<&'static str>,
    asked: Vec<String>,
    lines: Vec<Vec<String>>,
}

impl Script {
    fn of(contents: &[&'static str]) -> Self {
        Self { contents: contents.to_vec(), ..Self::default() }
    }
}

impl Thinker for Script {
    fn next(&mut self, lesson: &Lesson<'_>) -> Result<Thought, JudgeError> {
        let slot = lesson.registered.len();
        self.asked.push(format!("{}/{slot}", lesson.segment.segment_id));
        self.lines.push(lesson.lines.iter().map(|line| line.text.clone()).collect());
        Ok(match self.contents.get(slot) {
            Some(content) => proposition(content).into(),
            None => Thought::Done,
        })
    }
}

/// Creates, unless the content says `again`: then the likest entry is merged into.
#[derive(Default)]
struct Judge {
    asked: Vec<(String, Vec<u8>)>,
}

impl Librarian for Judge {
    fn judge(&mut self, question: &Question) -> Result<Verdict, JudgeError> {
        self.asked.push((question.key.clone(), question.proposition.request().0.clone()));
        let target = question.candidates.first().map(|it| it.entry_id.clone());
        Ok(match target {
            Some(target) if question.proposition.draft().content.contains("again") => {
                Verdict::merge(target, "the same")
            }
            _ => Verdict::create("new"),
        })
    }
}

fn task() -> TaskCompleted {
    TaskCompleted {
        outcome: "completed".into(),
        summary: "The tests run.".into(),
        findings: vec![],
        artifacts: vec![],
        verification: None,
        blocker: None,
        report: None,
    }
}

fn complete(session: &Session) {
    session.append_batch(vec![NewEvent::now(ROOT, task())], Durability::Sync).unwrap();
}

/// A session with a segment to close.
fn talked(storage: &SimStorage) -> Session {
    let session = open(storage).create(WORKSPACE, NewSession::new("try")).unwrap();
    session.append(Message::user("Run the tests.")).unwrap();
    session.append(Message::assistant("They need a database first.")).unwrap();
    complete(&session);
    session
}

/// What the library holds, without what is random: content, how many propositions, queries.
fn shelf(store: &Store) -> Vec<(String, u32, usize)> {
    let entries = store.library().entries().unwrap().into_iter();
    let mut entries: Vec<_> = entries.map(|it| (it.content, it.propositions, it.queries.len())).collect();
    entries.sort();
    entries
}

fn events(session: &Session, wanted: &str) -> usize {
    let mut count = 0;
    session
        .reader()
        .events(Position(1), &mut |item| {
            if let sessionlog::session::EventItem::Event(event) = item {
                count += usize::from(event.event.name() == wanted);
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    count
}

const CONTENTS: [&str; 2] = ["Start the database before the tests.", "Start the database again and again."];

fn expected() -> Vec<(String, u32, usize)> {
    vec![(CONTENTS[0].to_owned(), 2, 2)]
}

#[test]
fn a_completed_task_is_learned() {
    let storage = SimStorage::new();
    let session = talked(&storage);
    let (mut thinker, mut judge) = (Script::of(&CONTENTS), Judge::default());
    let report = session.learn(options(), &mut thinker, &mut judge).unwrap();
    assert_eq!((report.closed, report.learned, report.created, report.merged), (1, 1, 1, 1));
    assert_eq!((thinker.asked.len(), judge.asked.len()), (3, 2));
    assert_eq!(thinker.lines[0][..2], ["Run the tests.", "They need a database first."]);
    assert_eq!(shelf(&open(&storage)), expected());
    // Nothing is left, and asking again does nothing.
    let last = session.last();
    let report = session.learn(options(), &mut thinker, &mut judge).unwrap();
    assert_eq!((report.closed, report.learned, session.last()), (0, 0, last));
    let status = open(&storage).reader().learn_status(session.id(), &options()).unwrap();
    assert_eq!((status.learned, status.segments.len(), status.closable), (1, 0, 0));
    let found = open(&storage).library().search("database", &SearchOptions::default()).unwrap();
    assert_eq!(found.len(), 1);
}

/// Drives to the end on what a crash left.
fn finish(storage: &SimStorage, id: SessionId, judge: &mut Judge) -> (Store, usize) {
    let store = open(storage);
    let session = match store.resume(id) {
        Ok((session, _)) => session,
        Err(error) => panic!("{error:?}"),
    };
    session.learn(options(), &mut Script::of(&CONTENTS), judge).unwrap();
    let pending = events(&session, "learn.slot_pending");
    check_answers(&store, &session);
    session.close().unwrap();
    (store, pending)
}

/// What the session says that the library answered is what the library did.
fn check_answers(store: &Store, session: &Session) {
    let library = store.reader().library().unwrap();
    let (mut keys, mut answers) = (BTreeMap::new(), 0);
    session
        .reader()
        .events(Position(1), &mut |item| {
            let sessionlog::session::EventItem::Event(event) = item else { panic!() };
            match event.event {
                Event::LearnSlotPending(pending) => drop(keys.insert(pending.slot, pending.key)),
                Event::LearnSlotDone(done) => {
                    let receipt = Receipt { action: done.action, entry_id: done.proposition_id };
                    let filed = library.filed(&keys[&done.slot]).unwrap();
                    assert_eq!(filed.standing, Standing::Applied(receipt));
                    answers += 1;
                }
                _ => {}
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(answers, 2);
}

/// What may be asked once more: what nobody had decided.
fn decided(store: &Store) -> Vec<String> {
    let open = |library: &LibraryState| -> Vec<String> {
        library.open().filter(|it| it.standing == Standing::Submitted).map(|it| it.key.clone()).collect()
    };
    store.library().look(open).unwrap()
}

/// Checks the end of a story that was cut in two: before it, `first` was asked; after it, `second`.
fn check_end(store: &Store, pending: usize, first: &Judge, second: &Judge, undecided: &[String], at: &str) {
    assert_eq!(shelf(store), expected(), "{at}");
    assert_eq!(pending, 2, "{at}: each proposition was written down once");
    let library = store.reader().library().unwrap();
    assert_eq!((library.receipts(), library.open().count()), (2, 0), "{at}");
    let mut asked: BTreeMap<&str, Vec<&[u8]>> = BTreeMap::new();
    for (key, request) in first.asked.iter().chain(&second.asked) {
        asked.entry(key).or_default().push(request);
    }
    assert_eq!(asked.len(), 2, "{at}");
    for (key, requests) in asked {
        let again = second.asked.iter().filter(|(it, _)| it == key).count();
        let before = first.asked.iter().filter(|(it, _)| it == key).count();
        assert!(before <= 1 && again <= 1, "{at}: {key}");
        if before + again == 2 {
            assert!(undecided.iter().any(|it| it == key), "{at}: {key} was decided, and asked about again");
            assert_eq!(requests[0], requests[1], "{at}: the identical request");
        }
    }
}

/// Every call to the disk in turn fails, it and all after it; then power goes, or the process goes on.
#[test]
fn whatever_fails_wherever_a_proposition_is_judged_and_applied_once() {
    let (mut asked_twice, mut stops) = (0, 0);
    for nth in 0.. {
        let mut done = false;
        // Whatever the call, power goes with all that was not synced; besides, one of the other ends in turn.
        let other =
            [Some(CrashMode::KeepAll), Some(CrashMode::Seeded(nth)), None][usize::try_from(nth % 3).unwrap()];
        for mode in [Some(CrashMode::LoseAll), other] {
            let storage = SimStorage::new();
            let session = talked(&storage);
            let id = session.id();
            storage.fail(Fault::any(FaultError::EIO).after(nth).repeat(Repeat::Always));
            let mut first = Judge::default();
            let learned = session.learn(options(), &mut Script::of(&CONTENTS), &mut first);
            storage.clear_faults();
            let after = match mode {
                Some(mode) => {
                    std::mem::forget(session);
                    storage.power_cut(mode)
                }
                None => {
                    drop(session);
                    storage.clone()
                }
            };
            done = learned.is_ok_and(|report| report.learned == 1);
            let undecided = decided(&open(&after));
            let mut second = Judge::default();
            let (store, pending) = finish(&after, id, &mut second);
            let at = format!("call {nth}, {mode:?}");
            check_end(&store, pending, &first, &second, &undecided, &at);
            asked_twice += usize::from(first.asked.len() + second.asked.len() > 2);
            if done {
                assert_eq!(second.asked, [], "{at}");
            }
        }
        stops = nth;
        if done {
            break;
        }
    }
    assert!(stops > 100, "{stops}");
    assert!(asked_twice > 0, "some crashes fall between an answer and its record");
}

/// A fault that passes: one call fails, the process goes on with the same handles.
#[test]
fn after_one_failed_call_the_next_drive_goes_on() {
    for nth in (0..).step_by(3) {
        let storage = SimStorage::new();
        let session = talked(&storage);
        let id = session.id();
        storage.fail(Fault::any(FaultError::EIO).after(nth));
        let (mut thinker, mut first) = (Script::of(&CONTENTS), Judge::default());
        let learned = session.learn(options(), &mut thinker, &mut first);
        let is_over = storage.armed_faults() > 0;
        storage.clear_faults();
        let undecided = decided(&open(&storage));
        let mut second = Judge::default();
        if session.learn(options(), &mut thinker, &mut second).is_ok_and(|it| it.standing.is_on()) {
            session.close().unwrap();
        } else {
            drop(session);
        }
        let mut third = Judge::default();
        let (store, pending) = finish(&storage, id, &mut third);
        second.asked.extend(third.asked);
        check_end(&store, pending, &first, &second, &undecided, &format!("call {nth}: {learned:?}"));
        if is_over {
            return;
        }
    }
}

#[test]
fn a_proposition_survives_a_kill_in_each_of_its_states() {
    let storage = SimStorage::new();
    let first = proposition("Start the database before the tests.");
    let mut judge = Judge::default();
    assert_eq!(open(&storage).library().submit("k", &first).unwrap(), Standing::Submitted);
    let storage = storage.power_cut(CrashMode::LoseAll);
    assert_eq!(open(&storage).library().submit("k", &first).unwrap(), Standing::Submitted);
    assert_eq!(open(&storage).library().judge_next(&mut judge).unwrap().as_deref(), Some("k"));
    let storage = storage.power_cut(CrashMode::LoseAll);
    assert!(matches!(open(&storage).library().submit("k", &first).unwrap(), Standing::Decided(_)));
    assert_eq!(open(&storage).library().judge_next(&mut judge).unwrap(), None);
    assert_eq!(open(&storage).library().settle_all(&mut judge).unwrap(), 1);
    let storage = storage.power_cut(CrashMode::LoseAll);
    let library = open(&storage).library();
    let receipt = library.settle("k", &mut judge).unwrap();
    assert_eq!(library.apply("k").unwrap(), receipt);
    assert_eq!(library.submit("k", &first).unwrap(), Standing::Applied(receipt));
    assert_eq!((judge.asked.len(), library.entries().unwrap().len()), (1, 1));
    // Another request under the key, and keys that are none.
    let other = library.submit("k", &proposition("Something else.")).unwrap_err();
    assert_eq!((other.kind(), other.code()), (ErrorKind::Conflict, "library.key"));
    assert_eq!(library.submit("", &first).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(library.settle("none", &mut judge).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(library.apply("none").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_deleted_entry_is_gone_and_does_not_come_back() {
    let storage = SimStorage::new();
    let library = open(&storage).library();
    let mut judge = Judge::default();
    library.submit("a", &proposition("Start the database before the tests.")).unwrap();
    let id = library.settle("a", &mut judge).unwrap().entry_id.unwrap();
    library.submit("b", &proposition("Start the database again.")).unwrap();
    library.judge_next(&mut judge).unwrap();
    library.delete(&id, "it is wrong").unwrap();
    assert_eq!(library.apply("b").unwrap(), Receipt { action: LibraryAction::Discard, entry_id: None });
    assert_eq!(library.entries().unwrap(), []);
    assert_eq!(library.search("database", &SearchOptions::default()).unwrap(), []);
    assert_eq!(library.delete(&id, "").unwrap_err().kind(), ErrorKind::NotFound);
    library.submit("a", &proposition("Start the database before the tests.")).unwrap();
    assert_eq!(library.settle_all(&mut judge).unwrap(), 0);
    assert_eq!(library.entries().unwrap(), []);
}

/// Says what it was made to say.
struct Saying(Vec<Result<Verdict, JudgeError>>);

impl Librarian for Saying {
    fn judge(&mut self, _: &Question) -> Result<Verdict, JudgeError> {
        self.0.remove(0)
    }
}

#[test]
fn a_librarian_that_fails_or_decides_nonsense_is_asked_again_and_holds_no_other_back() {
    let storage = SimStorage::new();
    let library = open(&storage).library();
    library.submit("a", &proposition("Start the database.")).unwrap();
    let wrong = [
        Err("the model is down".into()),
        Ok(Verdict::merge("prop-0", "no such entry")),
        Ok(Verdict { target: Some("prop-0".into()), ..Verdict::create("with a target") }),
        Ok(Verdict { target: None, ..Verdict::merge("", "without one") }),
        Ok(Verdict { target: Some("prop-0".into()), ..Verdict::discard("for no candidate") }),
        Ok(Verdict::discard("enough")),
    ];
    let mut saying = Saying(wrong.into());
    for attempt in 1..=5 {
        let error = library.judge_next(&mut saying).unwrap_err();
        let kind = if attempt == 1 { ErrorKind::Io } else { ErrorKind::Invalid };
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(library.look(|it| it.filed("a").unwrap().attempts).unwrap(), attempt);
    }
    library.submit("b", &proposition("Stop the database.")).unwrap();
    assert_eq!(library.look(|it| it.next_to_judge().unwrap().key.clone()).unwrap(), "b");
    library.settle("b", &mut Judge::default()).unwrap();
    assert_eq!(library.settle("a", &mut saying).unwrap().action, LibraryAction::Discard);
}

/// Another process asks while this one is asked.
struct Meddling(SimStorage, Option<ErrorKind>);

impl Librarian for Meddling {
    fn judge(&mut self, question: &Question) -> Result<Verdict, JudgeError> {
        let other = open(&self.0).library();
        self.1 = other.judge_next(&mut Judge::default()).err().map(|error| error.kind());
        // Submitting, applying and searching go on.
        other.submit("other", &proposition("Another thing.")).unwrap();
        assert_eq!(question.key, "k");
        Ok(Verdict::create("new"))
    }
}

#[test]
fn one_process_at_a_time_asks_a_librarian() {
    let storage = SimStorage::new();
    let library = open(&storage).library();
    library.submit("k", &proposition("Start the database.")).unwrap();
    let mut meddling = Meddling(storage, None);
    library.settle("k", &mut meddling).unwrap();
    assert_eq!(meddling.1, Some(ErrorKind::Locked));
    assert_eq!(library.settle_all(&mut Judge::default()).unwrap(), 1, "the lock is free again");
    assert_eq!(library.entries().unwrap().len(), 2);
}

#[test]
fn of_processes_that_want_the_same_answer_one_asks() {
    for _ in 0..8 {
        let storage = SimStorage::new();
        open(&storage).library().submit("k", &proposition("Start the database.")).unwrap();
        let all_there = std::sync::Barrier::new(4);
        let receipts: Vec<(Receipt, usize)> = std::thread::scope(|scope| {
            let work = |_| {
                let (store, all_there) = (open(&storage), &all_there);
                scope.spawn(move || {
                    let (library, mut judge) = (store.library(), Judge::default());
                    all_there.wait();
                    loop {
                        match library.settle("k", &mut judge) {
                            Ok(receipt) => return (receipt, judge.asked.len()),
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Locked, "{error:?}"),
                        }
                    }
                })
            };
            let threads: Vec<_> = (0..4).map(work).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(receipts.iter().map(|(_, asked)| asked).sum::<usize>(), 1);
        assert!(receipts.iter().all(|(receipt, _)| *receipt == receipts[0].0));
        assert_eq!(open(&storage).library().entries().unwrap().len(), 1);
    }
}

/// Switches learning off in the middle of a job.
struct Weary(Store, Script);

impl Thinker for Weary {
    fn next(&mut self, lesson: &Lesson<'_>) -> Result<Thought, JudgeError> {
        self.0.switch_learning(WORKSPACE, LearningSwitch::Off)?;
        self.1.next(lesson)
    }
}

#[test]
fn off_stops_everything_deletes_nothing_and_on_goes_on() {
    let storage = SimStorage::new();
    let store = open(&storage);
    let session = talked(&storage);
    let id = session.id();
    let mut judge = Judge::default();
    let mut weary = Weary(store.clone(), Script::of(&CONTENTS));
    let report = session.learn(options(), &mut weary, &mut judge).unwrap();
    assert!(matches!(report.standing, LearnStanding::Off));
    assert_eq!((report.learned, weary.1.asked.len(), judge.asked.len()), (0, 1, 0));
    // What is said now is never learned, and ends no segment.
    session.append(Message::user("A secret.")).unwrap();
    complete(&session);
    let last = session.last();
    let mut thinker = Script::of(&CONTENTS);
    session.learn(options(), &mut thinker, &mut judge).unwrap();
    assert_eq!((session.last(), thinker.asked.len(), judge.asked.len()), (last, 0, 0));
    assert_eq!(session.learning(options()).unwrap().close_now().unwrap(), 0);
    let status = store.reader().learn_status(id, &options()).unwrap();
    assert_eq!((status.standing.word(), status.segments.len(), status.closable), ("off", 1, 0));
    assert!(status.job.unwrap().pending.is_some());

    let on = || store.switch_learning(WORKSPACE, LearningSwitch::On).unwrap();
    assert_eq!(on(), Switched::Changed { sessions: 1 });
    assert_eq!(on(), Switched::AlreadySo);
    session.append(Message::user("Now the linter.")).unwrap();
    let mut learning = session.learning(options()).unwrap();
    assert_eq!(learning.close_now().unwrap(), 1);
    let report = learning.drive(&mut thinker, &mut judge).unwrap();
    assert_eq!(report.learned, 2);
    let propositions: u32 = shelf(&store).iter().map(|(_, propositions, _)| propositions).sum();
    assert_eq!((propositions, judge.asked.len()), (4, 4), "two of each segment, each judged once");
    let lines = thinker.lines.concat();
    assert!(lines.contains(&"Now the linter.".to_owned()) && !lines.contains(&"A secret.".to_owned()));
    assert_eq!(thinker.lines.last().unwrap()[..], ["Now the linter."]);
}

#[test]
fn a_switch_before_the_first_session_holds_for_it() {
    let storage = SimStorage::new();
    let store = open(&storage);
    let off = store.switch_learning(WORKSPACE, LearningSwitch::Off).unwrap();
    assert_eq!(off, Switched::Changed { sessions: 0 });
    let session = talked(&storage);
    let (mut thinker, mut judge) = (Script::of(&CONTENTS), Judge::default());
    session.learn(options(), &mut thinker, &mut judge).unwrap();
    // Other workspaces have switches of their own.
    assert!(store.learning_standing("/elsewhere").is_on());
    store.switch_learning(WORKSPACE, LearningSwitch::On).unwrap();
    session.learn(options(), &mut thinker, &mut judge).unwrap();
    assert_eq!(
        session.learning(options()).unwrap().close_now().unwrap(),
        0,
        "all of it was said while it was off"
    );
    assert_eq!(thinker.asked.len(), 0);
}

#[test]
fn a_switch_that_can_not_be_read_is_off() {
    let storage = SimStorage::new();
    let store = open(&storage);
    let session = talked(&storage);
    store.switch_learning(WORKSPACE, LearningSwitch::Off).unwrap();
    store.switch_learning(WORKSPACE, LearningSwitch::On).unwrap();
    let is_switch =
        |path: &Path| path.to_string_lossy().contains("workspace/log") && path.extension().is_some();
    let path = storage.files().into_iter().find(|path| is_switch(path)).unwrap();
    let whole = storage.read_file(&path).unwrap();
    storage
        .corrupt(&path, |bytes| bytes.iter_mut().skip(150).take(40).for_each(|byte| *byte = 0xa5))
        .unwrap();
    let (mut thinker, mut judge) = (Script::of(&CONTENTS), Judge::default());
    let last = session.last();
    let report = session.learn(options(), &mut thinker, &mut judge).unwrap();
    assert!(matches!(report.standing, LearnStanding::Unreadable(_)), "{report:?}");
    assert_eq!((session.last(), thinker.asked.len()), (last, 0));
    let status = store.reader().learn_status(session.id(), &options()).unwrap();
    assert_eq!((status.standing.word(), status.closable, status.waiting.messages), ("unreadable", 0, 0));
    assert!(store.switch_learning(WORKSPACE, LearningSwitch::Off).is_err());
    storage.corrupt(&path, |bytes| bytes.clone_from(&whole)).unwrap();
    assert_eq!(session.learn(options(), &mut thinker, &mut judge).unwrap().learned, 1);
}

/// Withdraws a message of the segment, once the job reads it.
#[test]
fn an_input_that_changed_is_an_error_with_a_way_out() {
    let storage = SimStorage::new();
    let session = talked(&storage);
    struct Failing;
    impl Thinker for Failing {
        fn next(&mut self, _: &Lesson<'_>) -> Result<Thought, JudgeError> {
            Err("no model".into())
        }
    }
    let mut judge = Judge::default();
    let error = session.learn(options(), &mut Failing, &mut judge).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Io, "learn.thinker"));
    let number = session.ledger(|ledger| ledger.next_message_no(ROOT)).unwrap();
    let withdrawn = MessageWithdrawn {
        message_no: sessionlog::codec::ids::MessageNo(number.0 - 2),
        reason: String::new(),
    };
    session.append_batch(vec![NewEvent::now(ROOT, withdrawn)], Durability::Sync).unwrap();
    let mut thinker = Script::of(&CONTENTS);
    let mut learning = session.learning(options()).unwrap();
    let error = learning.drive(&mut thinker, &mut judge).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, "learn.input"));
    assert_eq!(thinker.asked.len(), 0);
    assert_eq!(session.learning(options()).unwrap_err().code(), "learn.busy");
    learning.begin_anew().unwrap();
    assert_eq!(learning.drive(&mut thinker, &mut judge).unwrap().learned, 1);
    assert!(!thinker.lines.concat().contains(&"Run the tests.".to_owned()));
}

#[test]
fn a_segment_of_which_nothing_is_left_is_learned_without_asking() {
    let storage = SimStorage::new();
    let session = open(&storage).create(WORKSPACE, NewSession::new("try")).unwrap();
    let said = session.append(Message::user("The key is 1234.")).unwrap();
    session.learning(options()).unwrap().close_now().unwrap();
    session.redact(&[said.position].into(), "a key").unwrap();
    let (mut thinker, mut judge) = (Script::of(&CONTENTS), Judge::default());
    let report = session.learn(options(), &mut thinker, &mut judge).unwrap();
    assert_eq!((report.learned, thinker.asked.len()), (1, 0));
}

/// Proposes what a library must not have, until it is told.
struct Careless(Vec<Refusal>);

impl Thinker for Careless {
    fn next(&mut self, lesson: &Lesson<'_>) -> Result<Thought, JudgeError> {
        self.0.extend(lesson.refused.cloned());
        let request = |kind: &str, content: &str| {
            format!(
                r#"{{"kind":"{kind}","content":"{content}","confidence":1,"extractor_model":"m","extractor_version":"1"}}"#
            )
        };
        Ok(match (lesson.registered.len(), self.0.len()) {
            (0, 0) => Thought::Propose(request("test_results", "12 of 13 pass").into()),
            (0, 1) => Thought::Propose(request("finding", "password=hunter2").into()),
            (0, 2) => Thought::Propose(request("finding", "The password is in the environment.").into()),
            _ => Thought::Done,
        })
    }
}

#[test]
fn what_is_refused_is_told_to_the_thinker_and_is_nowhere() {
    let storage = SimStorage::new();
    let session = talked(&storage);
    let (mut thinker, mut judge) = (Careless(Vec::new()), Judge::default());
    let report = session.learn(options(), &mut thinker, &mut judge).unwrap();
    assert_eq!((report.created, report.refused.len()), (1, 2));
    assert_eq!(thinker.0, report.refused);
    assert!(matches!(report.refused[0], Refusal::RunSnapshot(_)));
    assert!(matches!(report.refused[1], Refusal::Secret { .. }));
    let holds = |path: &Path| {
        let bytes = storage.read_file(path).unwrap();
        bytes.windows(7).any(|window| window == b"hunter2")
    };
    assert!(!storage.files().iter().any(|path| holds(path)));

    // One that never learns does not hold the queue up.
    struct Stubborn(u32);
    impl Thinker for Stubborn {
        fn next(&mut self, _: &Lesson<'_>) -> Result<Thought, JudgeError> {
            self.0 += 1;
            Ok(Thought::Propose("{}".into()))
        }
    }
    session.append(Message::user("More.")).unwrap();
    complete(&session);
    let mut stubborn = Stubborn(0);
    assert_eq!(session.learn(options(), &mut stubborn, &mut judge).unwrap().learned, 1);
    assert_eq!(stubborn.0, options().refusals_max);
}

#[test]
fn a_segment_has_so_many_propositions_at_most() {
    let storage = SimStorage::new();
    let session = talked(&storage);
    let options = LearnOptions { propositions_max: 1, ..options() };
    let mut thinker = Script::of(&CONTENTS);
    let report = session.learn(options, &mut thinker, &mut Judge::default()).unwrap();
    assert_eq!((report.learned, report.created, report.merged, thinker.asked.len()), (1, 1, 0, 1));
}

/// A handle that has followed a session from its beginning and one that is made now say the same, whatever happened.
#[test]
fn what_is_read_anew_is_what_was_followed() {
    for seed in 0..60 {
        let storage = SimStorage::new();
        let store = open_with(&storage, StoreOptions::default());
        let session = store.create(WORKSPACE, NewSession::new("try")).unwrap();
        let mut rng = Rng(seed);
        let mut options = options();
        options.closing.size = SizeLimit::bytes(40);
        options.conversations = if seed % 2 == 0 { Conversations::Root } else { Conversations::All };
        let mut learning = session.learning(options).unwrap();
        let mut judge = Judge::default();
        for step in 0..30 {
            match rng.below(9) {
                0..=2 => drop(session.append(Message::user(format!("question {step}"))).unwrap()),
                3 => drop(session.append(Message::assistant(format!("answer {step}"))).unwrap()),
                4 => complete(&session),
                5 => {
                    let next = session.ledger(|ledger| ledger.next_message_no(ROOT)).unwrap().0;
                    let message_no = sessionlog::codec::ids::MessageNo(1 + rng.below(next));
                    let event = MessageWithdrawn { message_no, reason: String::new() };
                    drop(session.append_batch(vec![NewEvent::now(ROOT, event)], Durability::Sync));
                }
                6 => {
                    let next = session.ledger(|ledger| ledger.next_message_no(ROOT)).unwrap().0;
                    let to = RewindTo::BeforeMessage(sessionlog::codec::ids::MessageNo(1 + rng.below(next)));
                    let plan = session
                        .with_tree(|tree| sessionlog::projections::rewind::rewind(tree, ROOT, to))
                        .unwrap();
                    drop(plan.map(|plan| session.rewind(&plan).map(drop)));
                }
                7 => drop(learning.close_segments().unwrap()),
                _ => {
                    if learning.drive(&mut Script::of(&["Start it."]), &mut judge).is_err() {
                        learning.begin_anew().unwrap();
                    }
                }
            }
            let followed = learning.status().unwrap();
            let anew = store.reader().learn_status(session.id(), &options).unwrap();
            assert_eq!(followed.segments, anew.segments, "seed {seed} step {step}");
            assert_eq!(followed.job, anew.job, "seed {seed} step {step}");
            assert_eq!(followed.waiting, anew.waiting, "seed {seed} step {step}");
            assert_eq!(
                (followed.closable, followed.learned),
                (anew.closable, anew.learned),
                "seed {seed} step {step}"
            );
        }
    }
}

#[test]
fn learning_adds_nothing_to_an_append() {
    let calls = |conversations: Option<Conversations>| {
        let storage = SimStorage::new();
        let session = talked(&storage);
        let mut learning = conversations
            .map(|conversations| session.learning(LearnOptions { conversations, ..options() }).unwrap());
        learning.iter_mut().for_each(|it| assert_eq!(it.status().unwrap().closable, 1));
        storage.take_calls();
        session.append(Message::user("And now?")).unwrap();
        storage.take_calls().iter().map(sessionlog::storage::Call::kind).collect::<Vec<_>>()
    };
    assert!(!calls(None).is_empty());
    assert_eq!(calls(Some(Conversations::Root)), calls(None));
    assert_eq!(calls(Some(Conversations::All)), calls(None));
}

#[test]
fn the_example_learns_once_and_what_it_owes() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().join("home");
    let first = example::run(&home).unwrap();
    assert_eq!((first.learned, first.created, first.merged), (1, 1, 0));
    let second = example::run(&home).unwrap();
    assert_eq!((second.learned, second.created, second.merged), (1, 0, 1));
    let store = Store::open(&home).unwrap();
    let session = store.create(&home, NewSession::new("died")).unwrap();
    session.append(Message::user("Go.")).unwrap();
    complete(&session);
    session.close().unwrap();
    assert_eq!(example::catch_up(&store).unwrap(), 1);
    assert_eq!(example::catch_up(&store).unwrap(), 0);
    assert_eq!(store.library().entries().unwrap().len(), 1);
}
