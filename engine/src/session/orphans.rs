//! Calls that a crash left without an outcome, and what a person or a policy decides about them. Every decision is an event.

use sessionlog_codec::event::{
    CallStarted, Effect, NewEvent, Outcome, QuestionAnswered, QuestionAsked, Resolver, TurnCause, TurnEnded,
    TurnOutcome, TurnStarted,
};
use sessionlog_codec::ids::{CallRef, Digest, NodeId};
use sessionlog_projections::recovery::Owed;
use sessionlog_projections::{CallState, OpenState, arguments_hash, effect_word, is_repeatable};

use super::Session;
use super::calls::find_open;
use super::capture::Recorded;
use super::claims::{Claim, Claimed};
use super::message::CallResult;
use super::state::State;
use crate::error::{Error, ErrorKind, Result};
use crate::log::Receipt;

/// A call without a known outcome, that its conversation waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The conversation.
    pub node: NodeId,
    /// The call.
    pub call: CallRef,
    /// Its provider id.
    pub call_id: String,
    /// Its tool.
    pub name: String,
    /// The hash of its arguments in canonical form.
    pub arguments_hash: String,
    /// What running it does; `None`: it was not started, so nobody said.
    pub effect: Option<Effect>,
}

/// What is done about orphans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrphanPolicy {
    /// A question is recorded for each, to be [answered](Session::answer_orphan) by a person.
    Ask,
    /// Each is answered as not run; one that may have run stays unknown. The conversation goes on.
    Skip,
    /// Each that bears it is run: those that were not started, and those that are pure or idempotent. Others stay unknown.
    Redo,
    /// Each is cancelled, and the turn ends.
    Abort,
}

/// What a person decided about one orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrphanChoice {
    /// As [`OrphanPolicy::Skip`].
    Skip,
    /// As [`OrphanPolicy::Redo`].
    Redo,
    /// As [`OrphanPolicy::Abort`].
    Abort,
}

impl OrphanChoice {
    const ALL: [Self; 3] = [Self::Skip, Self::Redo, Self::Abort];

    fn word(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Redo => "redo",
            Self::Abort => "abort",
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Skip => 0,
            Self::Redo => 1,
            Self::Abort => 2,
        }
    }
}

/// A call that runs once more after its outcome was unknown: its start is durable.
#[derive(Debug)]
#[must_use = "a started call has to be finished"]
pub struct RepeatedCall<'a> {
    session: &'a Session,
    node: NodeId,
    call: CallRef,
    _claim: Claim<'a>,
}

impl RepeatedCall<'_> {
    /// Records what came out of it: the unknown outcome is resolved.
    ///
    /// # Errors
    /// As [`Session::resolve_call`].
    pub fn finish(self, result: CallResult) -> Result<Receipt> {
        let by = (Resolver::Host, "run again".to_owned());
        self.session.resolve_call(self.node, self.call, result, by)
    }
}

impl Session {
    /// The calls without a known outcome that their conversations wait for: not started, or recorded as unknown and not
    /// shown to the model yet. Delegated ones are none: their children go on.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log can't be read.
    pub fn orphans(&self) -> Result<Vec<Orphan>> {
        let mut state = self.state()?;
        let found = orphans(&state);
        let mut orphans = Vec::with_capacity(found.len());
        for (node, call, effect) in found {
            let Some(asked) = self.tool_call(&mut state, node, call)? else { continue };
            let arguments_hash = arguments_hash(&asked.arguments.0);
            orphans.push(Orphan {
                node,
                call,
                call_id: asked.call_id,
                name: asked.name,
                arguments_hash,
                effect,
            });
        }
        Ok(orphans)
    }

    /// Decides about all orphans at once. What is recorded stays decided: doing it again appends nothing. Gives back those
    /// that are to be run: [`work`](Self::work) offers the ones that were not started or are pure, and
    /// [`repeat_call`](Self::repeat_call) starts the others.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn settle_orphans(&self, policy: OrphanPolicy) -> Result<Vec<Orphan>> {
        let found = self.orphans()?;
        let mut state = self.state()?;
        let mut events = Vec::new();
        for orphan in &found {
            match policy {
                OrphanPolicy::Ask => events.extend(question(&state, orphan)),
                OrphanPolicy::Skip => events.extend(answer(&state, orphan, OrphanChoice::Skip)),
                OrphanPolicy::Redo => {}
                OrphanPolicy::Abort => events.extend(answer(&state, orphan, OrphanChoice::Abort)),
            }
        }
        if policy == OrphanPolicy::Abort && !found.is_empty() {
            events.extend(end_turn(&state));
        }
        let redo = if policy == OrphanPolicy::Redo { found } else { Vec::new() };
        if !events.is_empty() {
            self.commit(&mut state, events, self.store.options.durability)?.wait(self, state)?;
        }
        Ok(redo.into_iter().filter(|orphan| orphan.effect.is_none_or(is_repeatable)).collect())
    }

    /// Records a person's decision about one orphan that was [asked](OrphanPolicy::Ask) about, and what follows from it.
    ///
    /// # Errors
    /// `NotFound` if no such question waits; `Invalid` if the call does not bear to be run again; else as
    /// [`append`](Self::append).
    pub fn answer_orphan(
        &self,
        node: NodeId,
        call: CallRef,
        choice: OrphanChoice,
        person: impl Into<String>,
    ) -> Result<Receipt> {
        let orphan = self.orphans()?.into_iter().find(|it| it.node == node && it.call == call);
        let mut state = self.state()?;
        let question_id = question_id(node, call);
        let waits = state.folds.questions.get(&question_id).is_some_and(|question| question.answer.is_none());
        let Some(orphan) = orphan.filter(|_| waits) else {
            let message = format!("no question about {call} of node {node} waits for an answer");
            return Err(Error::new(ErrorKind::NotFound, "orphan.question", message));
        };
        if choice == OrphanChoice::Redo && !orphan.effect.is_none_or(is_repeatable) {
            return Err(not_repeatable(node, call));
        }
        let answered =
            QuestionAnswered { question_id, choice: Some(choice.number()), text: Some(person.into()) };
        let mut events = vec![NewEvent::now(node, answered)];
        events.extend(answer(&state, &orphan, choice));
        if choice == OrphanChoice::Abort {
            events.extend(end_turn(&state));
        }
        self.commit(&mut state, events, self.store.options.durability)?.wait(self, state)
    }

    /// Starts a call once more whose outcome is recorded as unknown, and of which twice is as good as once. Durable when it
    /// returns, as a [start](Self::start_call) is.
    ///
    /// # Errors
    /// `Invalid` if it is neither pure nor idempotent, or its outcome is not unknown; else as [`append`](Self::append).
    pub fn repeat_call(&self, node: NodeId, call: CallRef) -> Result<RepeatedCall<'_>> {
        let claim = self.claims.take(Claimed::Call(node, call));
        let mut state = self.state()?;
        let unknown = matches!(
            state.ledger().call(node, call),
            Some(CallState::Finished { outcome: Outcome::Unknown, .. })
        );
        let known = state.ledger().last_start(node, call);
        let known = known.filter(|(effect, _)| unknown && is_repeatable(*effect));
        let asked = self.tool_call(&mut state, node, call)?;
        let Some(((effect, attempts), asked)) = known.zip(asked) else {
            return Err(not_repeatable(node, call));
        };
        let started = CallStarted {
            call,
            call_id: asked.call_id,
            name: asked.name,
            effect,
            attempt: attempts.saturating_add(1),
            arguments_digest: Digest::of(&asked.arguments.0),
            step_id: None,
        };
        let events = vec![NewEvent::now(node, started)];
        self.commit(&mut state, events, self.at_a_boundary())?.wait(self, state)?;
        Ok(RepeatedCall { session: self, node, call, _claim: claim })
    }
}

/// Calls that conversations wait for, and whose outcome is not known; those that became children aside.
fn orphans(state: &State) -> Vec<(NodeId, CallRef, Option<Effect>)> {
    let (ledger, delegations) = (state.ledger(), state.folds.recovery.delegations());
    let waited_for = |node: NodeId, call: &CallRef| {
        ledger.settled(node).is_none() && state.folds.recovery.waiting_message(node) == Some(call.message_no)
    };
    let open = ledger.open_calls().into_iter().filter(|open| waited_for(open.node, &open.call));
    let open = open.filter(|open| delegations.child_of(open.node, open.call).is_none());
    let mut found: Vec<_> = open
        .map(|open| {
            let effect = match open.state {
                OpenState::NotStarted => None,
                OpenState::Started { effect, .. } => Some(effect),
            };
            (open.node, open.call, effect)
        })
        .collect();
    for node in ledger.nodes() {
        let unknown = delegations.unknown_calls(node).filter(|call| waited_for(node, call));
        found.extend(unknown.filter_map(|call| Some((node, call, Some(ledger.last_start(node, call)?.0)))));
    }
    found.sort_by_key(|(node, call, _)| (*node, *call));
    found
}

/// The question about an orphan, if it was not asked yet.
fn question(state: &State, orphan: &Orphan) -> Option<NewEvent> {
    let question_id = question_id(orphan.node, orphan.call);
    if state.folds.questions.get(&question_id).is_some() {
        return None;
    }
    let text = match orphan.effect {
        None => format!(
            "The call `{}` was not started before the session stopped. What is done with it?",
            orphan.name
        ),
        Some(effect) => format!(
            "The call `{}` ({}) had started when the session stopped, and nobody knows what it did. What is done with it?",
            orphan.name,
            effect_word(effect)
        ),
    };
    let choices = OrphanChoice::ALL.iter().map(|choice| choice.word().to_owned()).collect();
    let asked = QuestionAsked { question_id, call: Some(orphan.call), text, choices };
    Some(NewEvent::now(orphan.node, asked))
}

/// The name of the question about a call: the same after each restart, so that it is asked once.
fn question_id(node: NodeId, call: CallRef) -> String {
    format!("orphan-{node}-{}-{}", call.message_no, call.tool_index)
}

/// The result that follows from a choice, if the call has none.
fn answer(state: &State, orphan: &Orphan, choice: OrphanChoice) -> Option<NewEvent> {
    let open = find_open(state.ledger(), orphan.node, orphan.call).ok()?;
    let result = match (choice, orphan.effect) {
        (OrphanChoice::Redo, _) => return None,
        (OrphanChoice::Skip, None) => {
            CallResult::not_started("This call was skipped when the session was resumed: it was not run.")
        }
        (OrphanChoice::Skip, Some(_)) => CallResult::unknown(
            "This call was skipped when the session was resumed. It had started before, and its outcome is unknown.",
        ),
        (OrphanChoice::Abort, _) => {
            CallResult::cancelled("This call was cancelled when the session was resumed.")
        }
    };
    let recorded = Recorded { parts: result.parts.clone(), artifact: None };
    Some(NewEvent::now(orphan.node, result.event(open.call, open.call_id, recorded)))
}

/// The end of the root's turn: what it was owed is owed no more. A turn that broke off is begun again to be ended; one that
/// is over stays over.
fn end_turn(state: &State) -> Vec<NewEvent> {
    let root = NodeId::ROOT;
    let open = state.ledger().open_turn(root);
    let waits = state.folds.recovery.waiting_message(root).is_some()
        || state.folds.recovery.owed(root) != Owed::Nothing;
    if open.is_none() && !waits {
        return Vec::new();
    }
    let turn = open.unwrap_or(state.ledger().next_turn(root));
    let begun = open.is_none().then(|| NewEvent::now(root, TurnStarted { turn, cause: TurnCause::Recovery }));
    let (outcome, stage, error) = (TurnOutcome::Interrupted, Some("orphans".to_owned()), None);
    let ended = NewEvent::now(root, TurnEnded { turn, outcome, stage, error });
    begun.into_iter().chain([ended]).collect()
}

fn not_repeatable(node: NodeId, call: CallRef) -> Error {
    let message = format!(
        "{call} of node {node} is not run again: only a pure or idempotent call whose outcome is unknown is; ask the model \
         to look first, or resolve the call"
    );
    Error::invalid("orphan.not_repeatable", message)
}
