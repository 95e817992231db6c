//! Opens the delegates of a conversation.

use std::collections::{BTreeMap, BTreeSet};

use sessionlog_codec::event::{AgentKind, NewEvent, NodeOpened};
use sessionlog_codec::ids::{CallRef, NodeId};
use sessionlog_projections::time::parse_rfc3339;
use sessionlog_projections::views::q::{Bookmark, DelegationsFile, StateFile, format};

use super::{Bytes, Conversation, Files, Place, about, bookmarks, keep, to};
use crate::import::discover::{QPart, SourceFile, SourceSession};
use crate::import::driver::feed::{Content, Run};
use crate::import::driver::{ImportError, first_time};
use crate::import::loose::invocation_id;
use crate::import::target::KnownNode;

/// The delegates of a session, and their numbers.
pub(super) struct Children<'a> {
    files: &'a Files<'a>,
    /// Below each conversation, the delegates that have files.
    below: BTreeMap<&'a [String], BTreeSet<&'a str>>,
    nodes: BTreeMap<String, NodeId>,
    last: NodeId,
    /// Those whose files were looked at in this import.
    placed: BTreeMap<String, Vec<String>>,
}

impl<'a> Children<'a> {
    pub(super) fn new(files: &'a Files<'a>, known: &[KnownNode]) -> Self {
        let nodes = known.iter().filter_map(|known| Some((known.source_id.clone()?, known.node)));
        let last = known.iter().map(|known| known.node).max().unwrap_or(NodeId::ROOT);
        let mut below: BTreeMap<&[String], BTreeSet<&str>> = BTreeMap::new();
        for (ids, _) in files.by_role.keys() {
            for depth in 0..ids.len() {
                if let Some((above, [id, ..])) = ids.split_at_checked(depth) {
                    below.entry(above).or_default().insert(id);
                }
            }
        }
        Self { files, below, nodes: nodes.collect(), last, placed: BTreeMap::new() }
    }

    /// Opens what is not open yet, and gives all delegates of the conversation, the last one first.
    pub(super) fn open(
        &mut self,
        parent: &Place,
        conversation: Option<&Conversation<'_>>,
        run: &mut Run<'_>,
    ) -> Result<Vec<Place>, ImportError> {
        let mut places = Vec::new();
        if let Some((read, file)) = bookmarks(self.files, parent, run)? {
            let items = self.items(&file, &read, run);
            let opened = self.open_bookmarked(parent, conversation, &items, read.file, &mut places, run);
            let to = to(read.file, format::DELEGATIONS, parent.node, Content::Facts);
            let mut opened = Some(opened);
            keep(&to, "delegations", read.bytes, run, |_| opened.take().unwrap_or_default())?;
            // A bookmark of a file that is known already: the import before this one was broken off.
            run.append(opened.unwrap_or_default())?;
        }
        for id in self.unmarked(parent) {
            let opened = self.open_unmarked(parent, &id, &mut places, run)?;
            run.append(opened)?;
        }
        places.reverse();
        Ok(places)
    }

    /// The bookmarks that can be taken.
    fn items<'f>(&self, file: &'f DelegationsFile, read: &Bytes<'_>, run: &mut Run<'_>) -> Vec<&'f Bookmark> {
        let refused: BTreeMap<usize, &str> = file.refused().into_iter().collect();
        for (index, why) in &refused {
            run.note(read.file, format!("items[{index}] was recorded and not read: {why}"));
        }
        let taken = file.items.iter().enumerate().filter(|(index, _)| !refused.contains_key(index));
        taken.map(|(_, item)| item).collect()
    }

    fn open_bookmarked(
        &mut self,
        parent: &Place,
        conversation: Option<&Conversation<'_>>,
        items: &[&Bookmark],
        file: &SourceFile,
        places: &mut Vec<Place>,
        run: &mut Run<'_>,
    ) -> Vec<NewEvent> {
        let mut events = Vec::new();
        for item in items {
            let call = match call_of(conversation, item) {
                Ok(call) => Some(call),
                Err(why) => {
                    run.note(
                        file,
                        format!("delegation {} was opened without its call: {why}", item.invocation_id),
                    );
                    None
                }
            };
            let opened = |child, kind, source: &SourceSession| NodeOpened {
                child,
                invocation_id: item
                    .invocation_id
                    .parse()
                    .unwrap_or_else(|_| invocation_id(source.session_id, &item.invocation_id)),
                parent: parent.node,
                call,
                call_id: Some(item.call_id.clone()),
                agent: item.agent.clone(),
                kind,
                prompt: item.prompt.clone(),
                description: None,
                working_directory: filled(&item.working_directory),
                run_id: filled(&item.run_id),
                depth: parent.depth.saturating_add(1),
                source_id: Some(item.invocation_id.clone()),
            };
            let Some((place, is_new)) = self.place(parent, &item.invocation_id, file, run) else { continue };
            if is_new {
                let opened = opened(place.node, self.kind(&place, run), self.files.source);
                let event = NewEvent::now(parent.node, opened);
                events.push(match parse_rfc3339(&item.created_at) {
                    Some(at) => NewEvent { timestamp: Some(at), ..event },
                    None => about(first_time(self.files.source, &file.path), event),
                });
            }
            places.push(place);
        }
        events
    }

    /// The delegates that have files and no bookmark.
    fn unmarked(&self, parent: &Place) -> Vec<String> {
        let below = self.below.get(parent.delegate.as_slice()).into_iter().flatten();
        let is_unmarked = |id: &&&str| self.placed.get(**id).is_none_or(|placed| *placed != parent.delegate);
        below.filter(is_unmarked).map(|id| (*id).to_owned()).collect()
    }

    fn open_unmarked(
        &mut self,
        parent: &Place,
        id: &str,
        places: &mut Vec<Place>,
        run: &mut Run<'_>,
    ) -> Result<Vec<NewEvent>, ImportError> {
        let mut below = parent.delegate.clone();
        below.push(id.to_owned());
        let parts = [QPart::Session, QPart::State, QPart::Delegations];
        let own = parts.into_iter().find_map(|part| self.files.get(&below, part));
        let above = self.files.source.files.first();
        let Some(file) = own.or(above) else { return Ok(Vec::new()) };
        run.note(file, format!("delegation {id} has no bookmark, so it was opened without its call"));
        let state = self.files.read(&below, QPart::State, run)?;
        let state = state.and_then(|it| StateFile::parse(&it.bytes, &it.file.label).ok()).unwrap_or_default();
        let Some((place, is_new)) = self.place(parent, id, file, run) else { return Ok(Vec::new()) };
        let opened = NodeOpened {
            child: place.node,
            invocation_id: id.parse().unwrap_or_else(|_| invocation_id(self.files.source.session_id, id)),
            parent: parent.node,
            call: None,
            call_id: None,
            agent: state.agent,
            kind: self.kind(&place, run),
            prompt: state.prompt,
            description: None,
            working_directory: filled(&state.working_directory),
            run_id: filled(&state.run_id),
            depth: place.depth,
            source_id: Some(id.to_owned()),
        };
        places.push(place);
        let event = about(first_time(self.files.source, &file.path), NewEvent::now(parent.node, opened));
        Ok(if is_new { vec![event] } else { Vec::new() })
    }

    /// Where a delegate goes, and whether it is new there. An id names one delegate of a session.
    fn place(
        &mut self,
        parent: &Place,
        id: &str,
        file: &SourceFile,
        run: &mut Run<'_>,
    ) -> Option<(Place, bool)> {
        if self.placed.contains_key(id) {
            run.note(file, format!("delegation {id} is there more than once; only the first one was taken"));
            return None;
        }
        let known = self.nodes.get(id).copied();
        let node = match known {
            Some(node) => node,
            None => {
                self.last = self.last.next()?;
                self.last
            }
        };
        self.nodes.insert(id.to_owned(), node);
        self.placed.insert(id.to_owned(), parent.delegate.clone());
        let mut delegate = parent.delegate.clone();
        delegate.push(id.to_owned());
        Some((Place { node, delegate, depth: parent.depth.saturating_add(1) }, known.is_none()))
    }

    /// An agent elsewhere leaves a state and no conversation.
    fn kind(&self, place: &Place, run: &mut Run<'_>) -> AgentKind {
        let has_session = self.files.get(&place.delegate, QPart::Session).is_some();
        let state = self.files.read(&place.delegate, QPart::State, run).ok().flatten();
        let state = state.and_then(|it| StateFile::parse(&it.bytes, &it.file.label).ok());
        match state {
            Some(state) if !has_session && state.round == 0 => AgentKind::External,
            _ => AgentKind::Inner,
        }
    }
}

fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// The call of a bookmark. One of an earlier run names a place that is another message's now.
fn call_of(conversation: Option<&Conversation<'_>>, item: &Bookmark) -> Result<CallRef, &'static str> {
    let conversation = conversation.ok_or("its parent's conversation can't be read")?;
    let run_id = conversation.header.as_ref().map(|header| header.run_id.as_str()).unwrap_or_default();
    if !item.run_id.is_empty() && !run_id.is_empty() && item.run_id != run_id {
        return Err("it is of an earlier run");
    }
    let call = conversation.transcript.call(item.call_index, item.tool_index);
    call.ok_or("there is no call at its place")
}
