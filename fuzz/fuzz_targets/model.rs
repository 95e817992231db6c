//! Random operations on a session on a simulated disk, against a model in memory that knows no event, no fold and no file.
//!
//! The model is a tree of what was said, with a head, a list of heads to go back to, and the results of calls. A loss of power
//! takes the session back to an earlier moment: the model keeps each one under its position, and the session has to be as one
//! of them that is not before what was acknowledged as durable.
//!
//! Asserted after every operation: the context is, message by message, what the model says: texts, calls, results, summaries;
//! the transcript has everything that was ever said; the calls without a result are those of the model. At the end: the
//! session verifies without a warning, and what is closed and resumed is the same.
#![no_main]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use sessionlog::codec::event::{CompactionTrigger, Effect, MessageRange, Part, Role};
use sessionlog::codec::ids::{CallRef, MessageNo, NodeId, SessionId, Timestamp};
use sessionlog::log::Severity;
use sessionlog::projections::rewind::RewindTo;
use sessionlog::projections::{ContextMessage, ContextOrigin, EntryBody};
use sessionlog::storage::{CrashMode, SimStorage};
use sessionlog::{
    CallResult, Clock, Compaction, Durability, ErrorKind, ForkOptions, ForkPoint, LogOptions, Message,
    NewSession, RecoveryReport, Session, Store, StoreOptions, ViewPolicy,
};
use support::model::{Model, Spoken};
use support::{below, byte};

mod support;

const OPERATIONS_MAX: usize = 80;

#[derive(Debug)]
struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp(1_764_500_000_000_000 + self.0.fetch_add(1_000_000, Ordering::Relaxed))
    }
}

fn store(storage: &SimStorage, durability: Durability) -> Store {
    let options = StoreOptions {
        durability,
        views: ViewPolicy::Off,
        log: LogOptions { segment_len: 1024, fill_len: 256 },
        ..StoreOptions::default()
    };
    let clock = Arc::new(Ticking(AtomicI64::new(0)));
    Store::open_on(Arc::new(storage.clone()), clock, "home", options).unwrap()
}

struct Life {
    storage: SimStorage,
    durability: Durability,
    session: Option<Session>,
    id: SessionId,
    model: Model,
}

impl Life {
    fn new(durability: Durability) -> Self {
        let storage = SimStorage::new();
        let id = SessionId([7; 16]);
        let new = NewSession { id: Some(id), ..NewSession::new("model") };
        let session = store(&storage, durability).create("/w", new).unwrap();
        let mut model = Model::default();
        model.remember(session.last(), true);
        Self { storage, durability, session: Some(session), id, model }
    }

    fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    /// One operation. What an operation refuses changes nothing.
    fn step(&mut self, input: &mut Unstructured<'_>) {
        match byte(input) % 16 {
            0..=2 => self.say(Role::User, input),
            3..=5 => self.say(Role::Assistant, input),
            6 => self.start(input),
            7 | 8 => self.finish(input),
            9 => self.compact(input),
            10 => self.rewind(input),
            11 => self.undo(),
            12 => self.clear(),
            13 => self.fork(),
            14 => self.crash(byte(input)),
            _ => self.close(),
        }
        let durable = self.durability == Durability::Sync;
        let last = self.session().last();
        self.model.remember(last, durable);
        self.check();
    }

    fn say(&mut self, role: Role, input: &mut Unstructured<'_>) {
        let kind = byte(input);
        // What is empty and asks for nothing is not shown to a model.
        let text = match kind % 4 {
            0 => format!("message {}", self.model.said.len()),
            1 => "\u{2028}\0\"}]".to_owned(),
            2 => "long ".repeat(usize::from(kind)),
            _ => String::new(),
        };
        let mut message = Message::new(role, text.clone());
        let calls = if role == Role::Assistant { usize::from(kind >> 4) % 4 } else { 0 };
        for index in 0..calls {
            // Ids that repeat from message to message.
            message = message.call(format!("call_{index}"), "tool", "{}");
        }
        let appended = self.session().append(message).unwrap();
        assert_eq!(appended.message_no.0, u64::try_from(self.model.said.len()).unwrap() + 1);
        self.model.say(role, text, calls);
    }

    /// One of the calls that the model says are open: of a message and an index.
    fn pick(&self, input: &mut Unstructured<'_>) -> Option<(usize, usize)> {
        let open = self.model.open_calls();
        open.get(below(input, open.len())).copied()
    }

    fn start(&mut self, input: &mut Unstructured<'_>) {
        let Some((message, index)) = self.pick(input) else { return };
        let started = self.session().start_call(reference(message, index), Effect::Mutating).map(drop);
        match started {
            Ok(()) => self.model.start(message, index),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
                assert!(self.model.is_started(message, index), "{error:?}");
            }
        }
    }

    fn finish(&mut self, input: &mut Unstructured<'_>) {
        let Some((message, index)) = self.pick(input) else { return };
        let result = format!("result of {message}.{index}");
        self.session().finish_call(reference(message, index), CallResult::succeeded(result.clone())).unwrap();
        self.model.finish(message, index, result);
        let again = self.session().finish_call(reference(message, index), CallResult::failed("twice"));
        assert_eq!(again.unwrap_err().kind(), ErrorKind::NotFound);
    }

    /// Keeps some of the last messages that are in the context.
    fn compact(&mut self, input: &mut Unstructured<'_>) {
        let shown = self.model.shown();
        let kept = shown[shown.len() - below(input, shown.len() + 1)..].to_vec();
        let range = |message: &usize| {
            let number = MessageNo(u64::try_from(*message).unwrap() + 1);
            MessageRange { first: number, last: number }
        };
        let summary = format!("summary {}", self.model.moments());
        let compaction = Compaction {
            compaction_id: "c".to_owned(),
            summary: summary.clone(),
            summary_role: Role::User,
            kept: kept.iter().map(range).collect(),
            replaced: Vec::new(),
            tokens: (None, None),
            trigger: CompactionTrigger::Manual,
            model: None,
            usage: None,
        };
        self.session().compact(compaction).unwrap();
        self.model.compact(summary, kept);
    }

    fn rewind(&mut self, input: &mut Unstructured<'_>) {
        let places = self.model.said.len();
        let message = below(input, places + 1);
        let to = match message.checked_sub(1) {
            None => RewindTo::Start,
            Some(message) => RewindTo::AfterMessage(MessageNo(u64::try_from(message).unwrap() + 1)),
        };
        let is_there = self.model.is_head(message.checked_sub(1));
        match self.session().plan_rewind(NodeId::ROOT, to) {
            Ok(plan) => {
                self.session().rewind(&plan).unwrap();
                assert!(!is_there);
                self.model.rewind(message.checked_sub(1));
            }
            Err(error) => assert!(is_there, "{error:?}"),
        }
    }

    fn undo(&mut self) {
        match self.session().undo(NodeId::ROOT) {
            Ok(_) => assert!(self.model.undo(), "nothing was to be undone"),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict), "{error:?}");
                assert!(!self.model.can_undo(), "{error:?}");
            }
        }
    }

    fn clear(&mut self) {
        self.session().clear("run").unwrap();
        self.model.clear();
    }

    /// Goes on in a fork.
    fn fork(&mut self) {
        let fork = self.session().fork(ForkPoint::Head, ForkOptions::default()).unwrap();
        let there = self.session.replace(fork).unwrap();
        there.append(Message::user("on this side only")).unwrap();
        let reader = there.reader();
        there.close().unwrap();
        assert_eq!(reader.verify().unwrap().worst(), None);
        self.id = self.session().id();
        self.model.forked(self.session().last());
    }

    fn crash(&mut self, how: u8) {
        let mode = match how % 4 {
            0 => CrashMode::LoseAll,
            1 => CrashMode::KeepAll,
            _ => CrashMode::Seeded(how.into()),
        };
        self.storage = self.storage.power_cut(mode);
        // What it still does it does to the old disk.
        self.session = None;
        let report = self.resume();
        self.model.go_back_to(report.last);
        self.taken_over(&report);
    }

    fn close(&mut self) {
        self.session.take().unwrap().close().unwrap();
        let report = self.resume();
        self.taken_over(&report);
    }

    fn resume(&mut self) -> RecoveryReport {
        let (session, report) = store(&self.storage, self.durability).resume(self.id).unwrap();
        self.session = Some(session);
        report
    }

    /// A resume answers what was started and not finished, and makes all of it durable.
    fn taken_over(&mut self, report: &RecoveryReport) {
        let unknown = self.model.lose_started();
        assert_eq!(report.unknown_calls.len(), unknown);
        let open = self.session().open_calls().unwrap().into_iter().map(|open| place(open.call));
        self.model.give_up(&open.collect::<Vec<_>>());
        self.model.remember(self.session().last(), true);
    }

    fn check(&self) {
        let context: Vec<Spoken> = self.session().context().unwrap().iter().map(spoken).collect();
        assert_eq!(context, self.model.context());
        let transcript = self.session().transcript().unwrap();
        let said: Vec<String> = transcript
            .iter()
            .filter_map(|entry| match &entry.body {
                EntryBody::Message(message) => Some(text(&message.parts)),
                _ => None,
            })
            .collect();
        assert_eq!(said, self.model.said.iter().map(|said| said.text.clone()).collect::<Vec<_>>());
        let open: Vec<_> = self.session().open_calls().unwrap().into_iter().map(|open| open.call).collect();
        let expected = self.model.open_calls().into_iter();
        assert_eq!(open, expected.map(|(message, index)| reference(message, index)).collect::<Vec<_>>());
    }
}

fn reference(message: usize, index: usize) -> CallRef {
    CallRef {
        message_no: MessageNo(u64::try_from(message).unwrap() + 1),
        tool_index: sessionlog::codec::ids::ToolIndex(u32::try_from(index).unwrap()),
    }
}

fn place(call: CallRef) -> (usize, usize) {
    let message = usize::try_from(call.message_no.0).unwrap() - 1;
    (message, usize::try_from(call.tool_index.0).unwrap())
}

fn text(parts: &[Part]) -> String {
    match parts {
        [Part::Text(text)] => text.clone(),
        [] => String::new(),
        other => panic!("{other:?}"),
    }
}

fn spoken(message: &ContextMessage) -> Spoken {
    match (message.role, message.origin) {
        (_, ContextOrigin::Summary) => Spoken::Summary(text(&message.parts)),
        (Role::Tool, ContextOrigin::Synthetic(_)) => Spoken::NoResult,
        (Role::Tool, _) => match text(&message.parts) {
            lost if lost.starts_with("The outcome of this call is unknown") => Spoken::Lost,
            given_up if given_up.starts_with("This call was not run") => Spoken::NotRun,
            text => Spoken::Result(text),
        },
        (role, _) => Spoken::Message(role, text(&message.parts), message.tool_calls.len()),
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let durability = if byte(&mut input) % 2 == 0 { Durability::Sync } else { Durability::Buffered };
    let mut life = Life::new(durability);
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        life.step(&mut input);
    }
    life.close();
    life.check();
    let verified = life.session().reader().verify().unwrap();
    let wrong: Vec<_> = verified.all().filter(|finding| finding.severity > Severity::Note).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
});
