//! What a session has to be: a tree of what was said, with a head. It knows no event, no fold and no file.

use std::collections::BTreeMap;

use sessionlog::codec::event::Role;
use sessionlog::codec::ids::Position;

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Asked,
    Started,
    Done(String),
    /// It was started, and the process that ran it is gone.
    Lost,
    /// It was not started, and the conversation went on without it.
    NotRun,
}

#[derive(Clone, Debug)]
pub struct Said {
    pub role: Role,
    pub text: String,
    calls: Vec<Call>,
    /// Its place in the tree.
    place: usize,
}

/// What a model is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// Who, what, and with how many calls.
    Message(Role, String, usize),
    Summary(String),
    Result(String),
    /// What a resume records for a call whose outcome nobody knows.
    Lost,
    /// What it records for one that nobody will start any more.
    NotRun,
    /// Something that says that there is none.
    NoResult,
}

#[derive(Clone, Debug)]
enum Body {
    Message(usize),
    /// The summary of all before it, but for the messages that are kept.
    Summary(String, Vec<usize>),
    Cleared,
}

#[derive(Clone, Debug)]
struct Place {
    before: Option<usize>,
    body: Body,
}

/// All of it at one moment.
#[derive(Clone, Debug, Default)]
struct Moment {
    said: Vec<Said>,
    places: Vec<Place>,
    head: Option<usize>,
    undoable: Vec<Option<usize>>,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub said: Vec<Said>,
    places: Vec<Place>,
    head: Option<usize>,
    /// Where the head was before each change that can be undone.
    undoable: Vec<Option<usize>>,
    moments: BTreeMap<Position, Moment>,
    durable: Position,
}

impl Model {
    fn push(&mut self, body: Body) {
        self.places.push(Place { before: self.head, body });
        self.head = Some(self.places.len() - 1);
    }

    pub fn say(&mut self, role: Role, text: String, calls: usize) {
        let place = self.places.len();
        self.said.push(Said { role, text, calls: vec![Call::Asked; calls], place });
        self.push(Body::Message(self.said.len() - 1));
    }

    /// Calls without a result, in order, wherever in the tree they are.
    pub fn open_calls(&self) -> Vec<(usize, usize)> {
        let all = self.said.iter().enumerate().flat_map(|(message, said)| {
            said.calls.iter().enumerate().map(move |(index, call)| (message, index, call))
        });
        let open = all.filter(|(.., call)| matches!(call, Call::Asked | Call::Started));
        open.map(|(message, index, _)| (message, index)).collect()
    }

    pub fn start(&mut self, message: usize, index: usize) {
        self.said[message].calls[index] = Call::Started;
    }

    pub fn is_started(&self, message: usize, index: usize) -> bool {
        self.said[message].calls[index] == Call::Started
    }

    pub fn finish(&mut self, message: usize, index: usize, result: String) {
        self.said[message].calls[index] = Call::Done(result);
    }

    /// How many calls were started and never finished.
    pub fn lose_started(&mut self) -> usize {
        let calls = self.said.iter_mut().flat_map(|said| &mut said.calls);
        let started = calls.filter(|call| **call == Call::Started);
        started.map(|call| *call = Call::Lost).count()
    }

    /// Calls that were not started may be given up by a resume: those that are not open any more.
    pub fn give_up(&mut self, still_open: &[(usize, usize)]) {
        for (message, said) in self.said.iter_mut().enumerate() {
            for (index, call) in said.calls.iter_mut().enumerate() {
                if *call == Call::Asked && !still_open.contains(&(message, index)) {
                    *call = Call::NotRun;
                }
            }
        }
    }

    pub fn compact(&mut self, summary: String, kept: Vec<usize>) {
        self.push(Body::Summary(summary, kept));
    }

    pub fn clear(&mut self) {
        self.undoable.push(self.head);
        self.push(Body::Cleared);
    }

    pub fn is_head(&self, message: Option<usize>) -> bool {
        self.head == message.map(|message| self.said[message].place)
    }

    pub fn rewind(&mut self, message: Option<usize>) {
        self.undoable.push(self.head);
        self.head = message.map(|message| self.said[message].place);
    }

    pub fn can_undo(&self) -> bool {
        self.undoable.last().is_some_and(|head| *head != self.head)
    }

    /// Whether there was something.
    pub fn undo(&mut self) -> bool {
        let Some(head) = self.undoable.pop() else { return false };
        self.head = head;
        true
    }

    /// The places from the root, or the last clear, to the head.
    fn live(&self) -> Vec<&Body> {
        let mut live = Vec::new();
        let mut at = self.head;
        while let Some(place) = at.map(|at| &self.places[at]) {
            if matches!(place.body, Body::Cleared) {
                break;
            }
            live.push(&place.body);
            at = place.before;
        }
        live.reverse();
        live
    }

    /// The newest summary, and the messages behind it.
    fn window(&self) -> (Option<&String>, Vec<usize>) {
        let (mut newest, mut messages) = (None, Vec::new());
        for body in self.live() {
            match body {
                Body::Message(message) => messages.push(*message),
                Body::Summary(summary, kept) => {
                    newest = Some(summary);
                    messages.retain(|message| kept.contains(message));
                }
                Body::Cleared => {}
            }
        }
        (newest, messages)
    }

    /// The messages of the context.
    pub fn shown(&self) -> Vec<usize> {
        self.window().1
    }

    pub fn context(&self) -> Vec<Spoken> {
        let (summary, messages) = self.window();
        let mut context: Vec<_> = summary.cloned().map(Spoken::Summary).into_iter().collect();
        for message in messages {
            let said = &self.said[message];
            if said.text.is_empty() && said.calls.is_empty() {
                continue;
            }
            context.push(Spoken::Message(said.role, said.text.clone(), said.calls.len()));
            context.extend(said.calls.iter().map(|call| match call {
                Call::Done(result) => Spoken::Result(result.clone()),
                Call::Lost => Spoken::Lost,
                Call::NotRun => Spoken::NotRun,
                Call::Asked | Call::Started => Spoken::NoResult,
            }));
        }
        context
    }

    pub fn moments(&self) -> usize {
        self.moments.len()
    }

    /// The session is so at this position.
    pub fn remember(&mut self, last: Position, durable: bool) {
        let Self { said, places, head, undoable, .. } = self.clone();
        self.moments.insert(last, Moment { said, places, head, undoable });
        if durable {
            self.durable = last;
        }
    }

    /// A fork is durable when it is there, with all before it.
    pub fn forked(&mut self, last: Position) {
        self.remember(last, true);
    }

    /// What a loss of power left.
    pub fn go_back_to(&mut self, last: Position) {
        assert!(last >= self.durable, "{} was durable, {last} is left", self.durable);
        let moment = self.moments.get(&last).unwrap_or_else(|| panic!("half an operation at {last}")).clone();
        let Moment { said, places, head, undoable } = moment;
        self.moments.retain(|position, _| *position <= last);
        (self.said, self.places, self.head, self.undoable) = (said, places, head, undoable);
    }
}
