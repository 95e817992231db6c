//! Ourselves, with default options but for what the name says.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ::sessionlog::codec::event::{
    AgentKind, CallFinished, Event, MessageAppended, NewEvent, NodeOpened, Outcome, Part, ProviderIds,
    ResultFlag, ResultOrigin, Role, SourceIds, ToolCall,
};
use ::sessionlog::codec::ids::{
    CallRef, InvocationId, MessageNo, NodeId, Position, SessionId, Timestamp, ToolIndex,
};
use ::sessionlog::projections::EntryBody;
use ::sessionlog::session::EventItem;
use ::sessionlog::{Durability, NewSession, Session, StoreOptions, StoreReader};

use super::{Peer, Promise, Store, Writer};
use crate::Result;
use crate::data::{Body, Call, Message};

pub(super) const PEERS: &[Peer] = &[
    Peer {
        name: "sessionlog",
        promise: Promise::Durable,
        open: |dir| Logs::open(dir, Durability::Sync, Shape::Sessions),
    },
    // Every session a conversation of one tree, so all in one log.
    Peer {
        name: "sessionlog-tree",
        promise: Promise::Durable,
        open: |dir| Logs::open(dir, Durability::Sync, Shape::Tree),
    },
    Peer {
        name: "sessionlog-buffered",
        promise: Promise::Written,
        open: |dir| Logs::open(dir, Durability::Buffered, Shape::Sessions),
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Sessions,
    Tree,
}

struct Logs {
    store: ::sessionlog::Store,
    durability: Durability,
    shape: Shape,
    sessions: Mutex<Vec<std::sync::Arc<Session>>>,
}

fn id_of(session: u64) -> SessionId {
    SessionId((u128::from(session) + 1).to_be_bytes())
}

impl Logs {
    fn open(dir: &Path, durability: Durability, shape: Shape) -> Result<Box<dyn Store>> {
        let options = StoreOptions { durability, ..StoreOptions::default() };
        let store = ::sessionlog::Store::open_with(dir, options)?;
        Ok(Box::new(Self { store, durability, shape, sessions: Mutex::default() }))
    }

    fn create(&self, session: u64) -> Result<std::sync::Arc<Session>> {
        let new = NewSession { id: Some(id_of(session)), ..NewSession::default() };
        let created = std::sync::Arc::new(self.store.create(".", new)?);
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).push(std::sync::Arc::clone(&created));
        Ok(created)
    }

    /// The one session of all conversations, and a new conversation in it.
    fn child(&self, session: u64) -> Result<(std::sync::Arc<Session>, NodeId)> {
        let known = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).first().cloned();
        let root = known.map_or_else(|| self.create(u64::MAX), Ok)?;
        let child = root.ledger(|ledger| ledger.next_node())?;
        let opened = NodeOpened {
            child,
            invocation_id: InvocationId(id_of(session).0),
            parent: NodeId::ROOT,
            call: None,
            call_id: None,
            agent: "bench".to_owned(),
            kind: AgentKind::Inner,
            prompt: "go".to_owned(),
            description: None,
            working_directory: None,
            run_id: None,
            depth: 1,
            source_id: None,
        };
        root.append_batch(vec![NewEvent::now(NodeId::ROOT, opened)], self.durability)?;
        Ok((root, child))
    }

    fn read(&self, session: u64, from: Position) -> Result<Vec<Message>> {
        let mut messages = Vec::new();
        self.reader().session(id_of(session))?.events(from, &mut |item| {
            if let EventItem::Event(event) = item {
                messages.extend(message_of(event.timestamp, event.event));
            }
            ControlFlow::Continue(())
        })?;
        Ok(messages)
    }

    fn reader(&self) -> StoreReader {
        self.store.reader()
    }
}

impl Store for Logs {
    fn begin(&self, session: u64, _: &[Message]) -> Result<Box<dyn Writer + '_>> {
        let (session, node) = match self.shape {
            Shape::Sessions => (self.create(session)?, NodeId::ROOT),
            Shape::Tree => self.child(session)?,
        };
        let next = session.ledger(|ledger| ledger.next_message_no(node))?;
        Ok(Box::new(LogWriter { session, node, next, calls: HashMap::new(), durability: self.durability }))
    }

    fn load(&self, session: u64) -> Result<Vec<Message>> {
        self.read(session, Position(1))
    }

    fn tail(&self, session: u64, n: usize) -> Result<Vec<Message>> {
        let entries = self.reader().session(id_of(session))?.newest(NodeId::ROOT, n)?;
        let messages = entries.into_iter().filter_map(|entry| match entry.body {
            EntryBody::Message(said) => message_of(entry.timestamp, (*said).into()),
            EntryBody::Result(done, _) => message_of(entry.timestamp, (*done).into()),
            _ => None,
        });
        Ok(messages.collect())
    }

    fn close(self: Box<Self>) -> Result<()> {
        for session in self.sessions.into_inner().unwrap_or_else(PoisonError::into_inner) {
            std::sync::Arc::into_inner(session).ok_or("a writer is open")?.close()?;
        }
        Ok(())
    }
}

struct LogWriter {
    session: std::sync::Arc<Session>,
    node: NodeId,
    next: MessageNo,
    calls: HashMap<String, CallRef>,
    durability: Durability,
}

impl LogWriter {
    fn said(&mut self, message: &Message, role: Role, text: &str) -> MessageAppended {
        let mut said = MessageAppended::text(self.next, role, text);
        self.next = MessageNo(self.next.0 + 1);
        said.provider = ProviderIds { response: Some(message.id.clone()), request: None };
        said
    }

    fn event(&mut self, message: &Message) -> Result<NewEvent> {
        let event: Event = match &message.body {
            Body::User { text } => self.said(message, Role::User, text).into(),
            Body::Assistant { text, calls } => {
                let mut said = self.said(message, Role::Assistant, text);
                for (index, call) in calls.iter().enumerate() {
                    let (message_no, tool_index) = (said.message_no, ToolIndex(u32::try_from(index)?));
                    self.calls.insert(call.id.clone(), CallRef { message_no, tool_index });
                    said.tool_calls.push(ToolCall {
                        call_id: call.id.clone(),
                        name: call.name.clone(),
                        arguments: call.arguments.as_str().into(),
                        form: Default::default(),
                        extra: None,
                    });
                }
                said.into()
            }
            Body::Result { call_id, text } => CallFinished {
                call: self.calls.remove(call_id).ok_or("a result without its call")?,
                call_id: call_id.clone(),
                outcome: Outcome::Succeeded,
                flag: ResultFlag::Normal,
                parts: vec![Part::text(text.as_str())],
                artifact: None,
                origin: ResultOrigin::Live,
                audit: None,
                source: Some(SourceIds { id: Some(message.id.clone()), parent: None }),
            }
            .into(),
        };
        Ok(NewEvent::at(self.node, Timestamp(i64::try_from(message.at)? * 1000), event))
    }
}

impl Writer for LogWriter {
    fn append(&mut self, messages: &[Message]) -> Result<()> {
        let events = messages.iter().map(|message| self.event(message)).collect::<Result<Vec<_>>>()?;
        self.session.append_batch(events, self.durability)?;
        Ok(())
    }
}

fn message_of(timestamp: Timestamp, event: Event) -> Option<Message> {
    let at = u64::try_from(timestamp.0 / 1000).ok()?;
    let text = |parts: Vec<Part>| match parts.into_iter().next() {
        Some(Part::Text(text)) => text,
        _ => String::new(),
    };
    let (id, body) = match event {
        Event::MessageAppended(said) if said.role == Role::User => {
            (said.provider.response?, Body::User { text: text(said.parts) })
        }
        Event::MessageAppended(said) => {
            let calls = said.tool_calls.into_iter().map(|call| Call {
                id: call.call_id,
                name: call.name,
                arguments: String::from_utf8(call.arguments.0).unwrap_or_default(),
            });
            (said.provider.response?, Body::Assistant { calls: calls.collect(), text: text(said.parts) })
        }
        Event::CallFinished(done) => {
            (done.source?.id?, Body::Result { call_id: done.call_id, text: text(done.parts) })
        }
        _ => return None,
    };
    Some(Message { id, at, body })
}
