//! How far the token estimate is off, learnt from what providers count.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{Event, LoggedEvent, MessageAppended, Role, Usage, UsageRecorded};
use sessionlog_codec::ids::{MessageNo, NodeId};

use super::estimate::{Predicted, estimate_tokens};
use crate::Projection;
use crate::context::ContextMessage;

/// What the provider's counts say about the estimate, for each conversation of a tree. A fold of the log, so that a
/// restart forgets nothing (q does). Derives, in the conversation that each event belongs to, from:
///
/// - `message.appended` and `message.extended` of the assistant: `usage`, the prompt as the provider counted it;
/// - `usage.recorded`: `estimated_input`, what [`Predicted::local`] was before sending, of the request that `message_no`
///   names; with `usage` also of a request that no message came of. `window`: the model's window. For requests that
///   are not the conversation's own (a title, a summary), hosts leave `estimated_input` out; those that name a
///   `model` which the conversation is not known to use are left out here;
/// - `model` in the two above, and in `affinity.set` and `node.bound`: another model starts afresh. Each of these three
///   ways to name it is compared with itself only: providers answer under longer names than the one asked for;
/// - `context.compacted`, `context.trimmed`, `context.reset`, `run.started`: see below.
///
/// For each request with both numbers, the overhead becomes what the count is above the estimate, but no less than three
/// quarters of what it was before: a high-water mark that decays. A count of 0 is none. `total_tokens` plays no part.
///
/// A host or import that records usage with messages and never an estimate is calibrated by its newest answer alone: if
/// that is in the context that is asked about, what stands before it there is what was sent, and is estimated now. That
/// ends with any event that changes the context before the answer, until there is a newer one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    nodes: BTreeMap<NodeId, NodeCalibration>,
}

/// The [calibration](Calibration) of one conversation. The default knows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCalibration {
    /// The overhead after all requests but the newest, in tokens.
    settled: u64,
    newest: Option<Sample>,
    /// The highest message that was a sample.
    last_message: MessageNo,
    models: Models,
    window: Option<u64>,
}

/// One request, as far as its numbers are known. They may come in any order and be replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sample {
    request: Request,
    observed: Option<u64>,
    estimate: Option<u64>,
    before: Before,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Request {
    /// The one that this message answers.
    Message(MessageNo),
    /// One by its `request_id`.
    Recorded(String),
}

/// Whether what stands before the answer is still what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Before {
    AsSent,
    Changed,
}

/// What the model was last called, by who says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Models {
    declared: Option<String>,
    answered: Option<String>,
    recorded: Option<String>,
}

impl Models {
    fn know(&self, model: &str) -> bool {
        let mut known = [&self.declared, &self.answered, &self.recorded].into_iter().flatten().peekable();
        known.peek().is_none() || known.any(|known| known == model)
    }
}

/// Whether a name took the place of another one.
fn changed(known: &mut Option<String>, model: &str) -> bool {
    let other = known.as_deref().is_some_and(|known| known != model);
    if known.as_deref() != Some(model) {
        *known = Some(model.to_owned());
    }
    other
}

impl Calibration {
    /// That of one conversation; the default, if nothing is known of it.
    #[must_use]
    pub fn of(&self, node: NodeId) -> NodeCalibration {
        self.nodes.get(&node).cloned().unwrap_or_default()
    }
}

impl Projection for Calibration {
    fn apply(&mut self, logged: &LoggedEvent) {
        let Some(change) = Change::of(&logged.event) else { return };
        self.nodes.entry(logged.node).or_default().apply(change);
    }
}

/// What an event has to say about a calibration.
enum Change<'a> {
    Answer(&'a MessageAppended),
    LaterUsage(MessageNo, Usage),
    Recorded(&'a UsageRecorded),
    Declared(&'a str),
    Context,
}

impl<'a> Change<'a> {
    fn of(event: &'a Event) -> Option<Self> {
        match event {
            Event::MessageAppended(said) if said.role == Role::Assistant => Some(Self::Answer(said)),
            Event::MessageExtended(piece) => {
                piece.usage.map(|usage| Self::LaterUsage(piece.message_no, usage))
            }
            Event::UsageRecorded(recorded) => Some(Self::Recorded(recorded)),
            Event::AffinitySet(affinity) => Some(Self::Declared(&affinity.model)),
            Event::NodeBound(bound) => Some(Self::Declared(&bound.model)),
            Event::ContextCompacted(_)
            | Event::ContextTrimmed(_)
            | Event::ContextReset(_)
            | Event::RunStarted(_) => Some(Self::Context),
            _ => None,
        }
    }
}

impl NodeCalibration {
    /// How many tokens the provider is expected to count above the estimate of `context`, which is the context of this
    /// conversation as of now.
    #[must_use]
    pub fn overhead(&self, context: &[ContextMessage]) -> u64 {
        let sample = self.newest.as_ref();
        sample.and_then(|it| it.overhead(self.settled, || it.estimate_in(context))).unwrap_or(self.settled)
    }

    /// How many tokens the provider is expected to count for `context`, with a margin.
    #[must_use]
    pub fn predict(&self, context: &[ContextMessage]) -> Predicted {
        Predicted::of(estimate_tokens(context), self.overhead(context))
    }

    /// The window of the conversation's model in tokens, as `usage.recorded` last said. A host that has it from its
    /// gateway knows better.
    #[must_use]
    pub fn window(&self) -> Option<u64> {
        self.window
    }

    fn apply(&mut self, change: Change<'_>) {
        match change {
            Change::Answer(said) => self.answer(said),
            Change::LaterUsage(message_no, usage) => self.observe(message_no, usage),
            Change::Recorded(recorded) => match recorded.message_no {
                Some(message_no) => self.recorded_of(message_no, recorded),
                None => self.recorded_alone(recorded),
            },
            Change::Declared(model) => {
                if changed(&mut self.models.declared, model) {
                    self.start_afresh(None);
                }
            }
            Change::Context => {
                if let Some(sample) = &mut self.newest {
                    sample.before = Before::Changed;
                }
            }
        }
    }

    fn answer(&mut self, said: &MessageAppended) {
        if let Some(model) = &said.model
            && changed(&mut self.models.answered, model)
        {
            self.start_afresh(Some(said.message_no));
        }
        if let Some(usage) = said.usage {
            self.observe(said.message_no, usage);
        }
    }

    fn observe(&mut self, message_no: MessageNo, usage: Usage) {
        if let Some(observed) = prompt(usage)
            && let Some(sample) = self.sample_of(message_no)
        {
            sample.observed = Some(observed);
        }
    }

    fn recorded_of(&mut self, message_no: MessageNo, recorded: &UsageRecorded) {
        if self.is_late(message_no) {
            return;
        }
        if let Some(model) = &recorded.model
            && changed(&mut self.models.recorded, model)
        {
            self.start_afresh(Some(message_no));
        }
        self.window = known(recorded.window).or(self.window);
        let (observed, estimate) = (recorded.usage.and_then(prompt), known(recorded.estimated_input));
        if observed.is_none() && estimate.is_none() {
            return;
        }
        if let Some(sample) = self.sample_of(message_no) {
            // Where the message carries the tokens, those are the ones that count.
            sample.observed = sample.observed.or(observed);
            sample.estimate = estimate.or(sample.estimate);
        }
    }

    fn recorded_alone(&mut self, recorded: &UsageRecorded) {
        if recorded.model.as_ref().is_some_and(|model| !self.models.know(model)) {
            return;
        }
        let Some(estimate) = known(recorded.estimated_input) else { return };
        self.window = known(recorded.window).or(self.window);
        let Some(observed) = recorded.usage.and_then(prompt) else { return };
        let sample = self.sample(Request::Recorded(recorded.request_id.clone()));
        (sample.observed, sample.estimate) = (Some(observed), Some(estimate));
    }

    /// Forgets what another model's provider counted, but not the request that the news came with.
    fn start_afresh(&mut self, with: Option<MessageNo>) {
        self.settled = 0;
        self.window = None;
        let with = with.map(Request::Message);
        self.newest = self.newest.take().filter(|sample| Some(&sample.request) == with.as_ref());
    }

    /// Whether accounting comes after newer requests were counted: it would pass for news.
    fn is_late(&self, message_no: MessageNo) -> bool {
        let is_newest = self.newest.as_ref().is_some_and(|it| it.request == Request::Message(message_no));
        message_no <= self.last_message && !is_newest
    }

    fn sample_of(&mut self, message_no: MessageNo) -> Option<&mut Sample> {
        if self.is_late(message_no) {
            return None;
        }
        self.last_message = message_no;
        Some(self.sample(Request::Message(message_no)))
    }

    /// The newest request, which is this one from now on.
    fn sample(&mut self, request: Request) -> &mut Sample {
        if let Some(sample) = self.newest.take_if(|sample| sample.request != request) {
            self.settled = sample.overhead(self.settled, || None).unwrap_or(self.settled);
        }
        self.newest.get_or_insert(Sample { request, observed: None, estimate: None, before: Before::AsSent })
    }
}

impl Sample {
    /// The overhead after this request, if both its numbers are known.
    fn overhead(&self, settled: u64, estimated_now: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let observed = self.observed?;
        let estimate = self.estimate.or_else(estimated_now)?;
        Some(observed.saturating_sub(estimate).max(three_quarters(settled)))
    }

    /// The estimate of what stands before the answer.
    fn estimate_in(&self, context: &[ContextMessage]) -> Option<u64> {
        let (Request::Message(message_no), Before::AsSent) = (&self.request, self.before) else {
            return None;
        };
        let answer = context.iter().position(|message| message.message_no == Some(*message_no))?;
        context.get(..answer).map(estimate_tokens)
    }
}

/// The whole prompt as the provider counted it, cached or not. Providers that do not count say 0.
fn prompt(usage: Usage) -> Option<u64> {
    known(Some(usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write)))
}

fn known(tokens: Option<u64>) -> Option<u64> {
    tokens.filter(|tokens| *tokens > 0)
}

fn three_quarters(tokens: u64) -> u64 {
    (tokens / 4).saturating_mul(3).saturating_add(tokens % 4 * 3 / 4)
}
