//! Tokens and money, each request counted once, where it happened.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{
    ContextCompacted, Event, MessageAppended, MessageExtended, Usage, UsageRecorded,
};
use sessionlog_codec::ids::{MessageNo, NodeId, Position};

use crate::recent::Recent;

/// Tokens and price of all requests counted. Numbers that would not fit stay at the highest one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotals {
    /// Requests counted.
    pub requests: u64,
    /// Input tokens that no cache served or stored.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// The part of `output` that was reasoning.
    pub reasoning: u64,
    /// The price of all requests, in billionths of a US dollar. `None` if there is no request or if the price of one
    /// of them is not known: unknown is not 0.
    pub cost_nano_usd: Option<u64>,
    /// The price of the requests whose price is known, in billionths of a US dollar.
    pub priced_nano_usd: u64,
    /// The requests whose price is not known.
    pub unpriced_requests: u64,
    /// How long the requests took that say so, in milliseconds.
    pub latency_ms: u64,
}

impl UsageTotals {
    /// All input tokens, cached or not.
    #[must_use]
    pub fn input_total(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// All tokens.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.input_total().saturating_add(self.output)
    }
}

/// Wide enough that the sum of any number of u64 is exact, so that a request can be taken out again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sums {
    requests: u64,
    unpriced: u64,
    input: u128,
    cache_read: u128,
    cache_write: u128,
    output: u128,
    reasoning: u128,
    nano_usd: u128,
    latency_ms: u128,
}

impl Sums {
    fn add(&mut self, request: &Request) {
        self.requests = self.requests.saturating_add(1);
        self.unpriced = self.unpriced.saturating_add(u64::from(request.nano_usd.is_none()));
        for (sum, value) in self.fields(request) {
            *sum = sum.saturating_add(u128::from(value));
        }
    }

    fn remove(&mut self, request: &Request) {
        self.requests = self.requests.saturating_sub(1);
        self.unpriced = self.unpriced.saturating_sub(u64::from(request.nano_usd.is_none()));
        for (sum, value) in self.fields(request) {
            *sum = sum.saturating_sub(u128::from(value));
        }
    }

    fn fields(&mut self, request: &Request) -> [(&mut u128, u64); 7] {
        let usage = request.usage.unwrap_or_default();
        [
            (&mut self.input, usage.input),
            (&mut self.cache_read, usage.cache_read),
            (&mut self.cache_write, usage.cache_write),
            (&mut self.output, usage.output),
            (&mut self.reasoning, usage.reasoning),
            (&mut self.nano_usd, request.nano_usd.unwrap_or(0)),
            (&mut self.latency_ms, request.latency_ms.unwrap_or(0)),
        ]
    }

    fn merge(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
        self.input = self.input.saturating_add(other.input);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.nano_usd = self.nano_usd.saturating_add(other.nano_usd);
        self.latency_ms = self.latency_ms.saturating_add(other.latency_ms);
    }

    fn totals(&self) -> UsageTotals {
        let narrow = |wide: u128| u64::try_from(wide).unwrap_or(u64::MAX);
        let priced = narrow(self.nano_usd);
        UsageTotals {
            requests: self.requests,
            input: narrow(self.input),
            cache_read: narrow(self.cache_read),
            cache_write: narrow(self.cache_write),
            output: narrow(self.output),
            reasoning: narrow(self.reasoning),
            cost_nano_usd: (self.requests > 0 && self.unpriced == 0).then_some(priced),
            priced_nano_usd: priced,
            unpriced_requests: self.unpriced,
            latency_ms: narrow(self.latency_ms),
        }
    }
}

/// What one request is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum RequestKey {
    /// The provider's response id: several messages of one response are one request.
    Response(NodeId, String),
    /// The message, where the provider gave no id.
    Message(NodeId, MessageNo),
    /// The host's request id, or a compaction's id.
    Recorded(NodeId, String),
    /// A compaction without an id.
    Compaction(Position),
}

/// Whose spending a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Share {
    /// This session's.
    #[default]
    Own,
    /// That of the session which this one was forked from.
    Inherited,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Request {
    node: NodeId,
    share: Share,
    usage: Option<Usage>,
    nano_usd: Option<u64>,
    latency_ms: Option<u64>,
}

/// How many requests can still be corrected by later records. What is older is counted, and stays as it is: a record that
/// comes so late counts as a request of its own.
const CORRECTABLE_MAX: usize = 1024;

/// All requests of a tree, each once. Its size does not grow with the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meter {
    requests: Recent<RequestKey, Request, CORRECTABLE_MAX>,
    /// The requests that messages came with, where they are known by another key than the message.
    responses: Recent<(NodeId, MessageNo), String, CORRECTABLE_MAX>,
    /// Where the newest record of a request id went.
    recorded: Recent<(NodeId, String), RequestKey, CORRECTABLE_MAX>,
    own: Sums,
    own_of: BTreeMap<NodeId, Sums>,
    inherited: Sums,
}

impl Meter {
    /// Folds one event. Other events than those that carry usage change nothing.
    pub(super) fn apply(&mut self, node: NodeId, position: Position, event: &Event) {
        match event {
            Event::MessageAppended(message) => self.message(node, message),
            Event::MessageExtended(extended) => self.extended(node, extended),
            Event::UsageRecorded(recorded) => self.recorded(node, recorded),
            Event::ContextCompacted(compacted) => self.compacted(node, position, compacted),
            Event::SessionForked(_) => self.inherit(),
            _ => {}
        }
    }

    /// What this session used itself, in all its conversations.
    pub(super) fn own(&self) -> UsageTotals {
        self.own.totals()
    }

    /// What the session used that this one was forked from, up to the fork.
    pub(super) fn inherited(&self) -> UsageTotals {
        self.inherited.totals()
    }

    /// What one conversation used itself.
    pub(super) fn own_of(&self, node: NodeId) -> UsageTotals {
        self.own_of.get(&node).map(Sums::totals).unwrap_or_default()
    }

    fn message(&mut self, node: NodeId, message: &MessageAppended) {
        let response = message.provider.response.as_ref().filter(|id| !id.is_empty());
        if let Some(response) = response {
            self.responses.insert((node, message.message_no), response.clone());
        }
        if let Some(usage) = message.usage {
            let key = self.key_of(node, message.message_no);
            self.update(key, node, |request| request.usage = Some(usage));
        }
    }

    fn extended(&mut self, node: NodeId, extended: &MessageExtended) {
        if let Some(usage) = extended.usage {
            let key = self.key_of(node, extended.message_no);
            self.update(key, node, |request| request.usage = Some(usage));
        }
    }

    fn recorded(&mut self, node: NodeId, recorded: &UsageRecorded) {
        let key = match recorded.message_no {
            Some(message_no) => self.key_of(node, message_no),
            None => RequestKey::Recorded(node, recorded.request_id.clone()),
        };
        let before = self.recorded.insert((node, recorded.request_id.clone()), key.clone());
        match before {
            Some(before) if before != key => self.retract(&before),
            _ => {}
        }
        // A message that carries its tokens only gets its price here.
        let carried = recorded.message_no.is_some();
        self.update(key, node, |request| {
            if !carried || request.usage.is_none() {
                request.usage = recorded.usage;
            }
            request.nano_usd = recorded.cost_nano_usd;
            request.latency_ms = recorded.latency_ms;
        });
    }

    /// A record of a request id that turned out to be another request: what it said is taken back.
    fn retract(&mut self, key: &RequestKey) {
        if matches!(key, RequestKey::Recorded(..)) {
            self.take(key);
        } else if let Some(request) = self.requests.get(key) {
            let node = request.node;
            self.update(key.clone(), node, |request| {
                request.nano_usd = None;
                request.latency_ms = None;
            });
        }
    }

    /// A `usage.recorded` under the compaction's id replaces this one, so a host can add the price.
    fn compacted(&mut self, node: NodeId, position: Position, compacted: &ContextCompacted) {
        let Some(usage) = compacted.usage else { return };
        let key = if compacted.compaction_id.is_empty() {
            RequestKey::Compaction(position)
        } else {
            RequestKey::Recorded(node, compacted.compaction_id.clone())
        };
        self.update(key, node, |request| request.usage = Some(usage));
    }

    fn key_of(&self, node: NodeId, message_no: MessageNo) -> RequestKey {
        match self.responses.get(&(node, message_no)) {
            Some(response) => RequestKey::Response(node, response.clone()),
            None => RequestKey::Message(node, message_no),
        }
    }

    fn update(&mut self, key: RequestKey, node: NodeId, change: impl FnOnce(&mut Request)) {
        let mut request = self.take(&key).unwrap_or(Request {
            node,
            share: Share::Own,
            usage: None,
            nano_usd: None,
            latency_ms: None,
        });
        change(&mut request);
        for sums in self.sums(&request) {
            sums.add(&request);
        }
        self.requests.insert(key, request);
    }

    fn take(&mut self, key: &RequestKey) -> Option<Request> {
        let request = self.requests.remove(key)?;
        for sums in self.sums(&request) {
            sums.remove(&request);
        }
        Some(request)
    }

    fn sums(&mut self, request: &Request) -> Vec<&mut Sums> {
        match request.share {
            Share::Own => vec![&mut self.own, self.own_of.entry(request.node).or_default()],
            Share::Inherited => vec![&mut self.inherited],
        }
    }

    /// Everything so far was spent by the session that this one was forked from.
    fn inherit(&mut self) {
        let spent = std::mem::take(&mut self.own);
        self.inherited.merge(&spent);
        self.own_of.clear();
        for request in self.requests.values_mut() {
            request.share = Share::Inherited;
        }
    }
}
