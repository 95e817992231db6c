//! `logdump resolve`: a person says what became of a call that nobody knows the outcome of.

use serde_json::{Value, json};
use sessionlog::codec::event::{Outcome, Part, Resolver, ResultFlag};
use sessionlog::codec::ids::{CallRef, MessageNo, NodeId, Position, ToolIndex};
use sessionlog::projections::{CallState, outcome_word};
use sessionlog::{CallResult, RecoveryReport};

use super::Selected;
use super::whole::{
    CallFacts, Resumed, Whole, alive_json, changes, let_go, owned, owner_words, repaired, take_over,
};
use crate::args::ResolveArgs;
use crate::exit::{Exit, Failure};
use crate::output::event_text::{cut_safe, quoted};
use crate::output::safe::safe;
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// The note of a person who gave none.
const NOTE: &str = "settled by a person with logdump";

/// A call whose outcome is unknown, or will be as soon as the session is opened.
#[derive(Clone, Debug)]
struct Candidate {
    facts: CallFacts,
    known: Known,
}

/// What the log says of such a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// That its outcome is unknown.
    Unknown,
    /// That it was started, and no more.
    Started,
    /// That it became a conversation of somebody else's, and no more.
    Delegated,
}

impl Known {
    fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Started => "started",
            Self::Delegated => "delegated",
        }
    }
}

/// What is to be recorded.
struct Decision {
    outcome: Outcome,
    text: String,
    note: String,
}

/// Runs the command.
///
/// # Errors
/// `Usage` if the session, node or call names nothing, or several things; `Locked` if somebody owns the session; else if
/// the log or the output fails.
pub fn run(args: &ResolveArgs, context: &Context) -> Result<Exit, Failure> {
    let selected = Selected::find(&context.reader()?, &args.id)?;
    let whole = Whole::read(&selected.reader, None)?;
    let wanted = match args.node.as_deref() {
        Some(name) => Some(whole.node(&selected, Some(name))?),
        None => Some(selected.row.node).filter(|node| *node != NodeId::ROOT),
    };
    let resumed = whole.resumed();
    let mut candidates = candidates(&whole, &resumed);
    candidates.retain(|it| wanted.is_none_or(|node| it.facts.node == node));
    let exit = whole.health.tell(context, &selected.row.id);
    let (Some(call), Some(outcome), Some(text)) = (&args.call, args.outcome, &args.text) else {
        list(context, &selected, &whole, &candidates)?;
        return Ok(exit);
    };
    if text.trim().is_empty() {
        let message = "--text is empty: say what the model is to be shown as the call's result";
        return Err(Failure::usage("resolve.text", message));
    }
    let chosen = choose(&whole, &selected, candidates, wanted, call)?;
    let note = args.note.clone().unwrap_or_else(|| NOTE.to_owned());
    let decision = Decision { outcome: outcome.into(), text: text.clone(), note };
    if context.format() == Format::Human {
        preview(context, &chosen, &decision)?;
    }
    if args.dry_run {
        return dry_run(context, &selected, &chosen, &decision, &resumed).map(|it| it.max(exit));
    }
    let (position, report) = settle(context, &selected, &whole, &chosen, &decision)?;
    let recorded = changes(&report.settled, &report.interrupted_turns);
    match context.format() {
        Format::Human => {
            recorded
                .iter()
                .try_for_each(|line| context.line(&format!("Recorded on opening: {}", safe(line))))?;
            context.line(&format!("Done: recorded at position {position}."))?;
        }
        Format::Json => {
            context.json(&as_json(&selected, &chosen, &decision, Some(position), &recorded))?;
        }
    }
    Ok(repaired(exit))
}

/// The calls whose outcome the next owner would find to be unknown.
fn candidates(whole: &Whole, resumed: &Resumed) -> Vec<Candidate> {
    let mut found = Vec::new();
    for node in whole.summary.nodes.keys() {
        for call in resumed.state.delegations().unknown_calls(*node) {
            let facts = whole.call(*node, call);
            let known = match facts.state {
                Some(CallState::Started { .. }) => Known::Started,
                Some(CallState::NotStarted) => Known::Delegated,
                Some(CallState::Finished { .. }) | None => Known::Unknown,
            };
            found.push(Candidate { facts, known });
        }
    }
    found
}

fn choose(
    whole: &Whole,
    selected: &Selected,
    candidates: Vec<Candidate>,
    wanted: Option<NodeId>,
    name: &str,
) -> Result<Candidate, Failure> {
    let is_it =
        |it: &Candidate| it.facts.short() == name || it.facts.call_id.as_deref().is_some_and(|id| id == name);
    let (mut found, others): (Vec<Candidate>, Vec<Candidate>) = candidates.into_iter().partition(is_it);
    let name = cut_safe(name, 80);
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(last), false) => {
            found.push(last);
            let message = format!(
                "`{name}` is the name of {} calls; give message.tool and --node: {}",
                found.len(),
                names(&found)
            );
            Err(Failure::usage("call.ambiguous", message))
        }
        (None, _) if others.is_empty() => {
            let place = wanted.map_or_else(
                || format!("of session {}", selected.row.root),
                |node| format!("of node {node} of session {}", selected.row.root),
            );
            let message =
                format!("no call {place} has an unknown outcome{}", other_state(whole, wanted, &name));
            Err(Failure::usage("call.not_unknown", message))
        }
        (None, _) => {
            let message = format!(
                "`{name}` is no call of unknown outcome{}; those there are: {}",
                other_state(whole, wanted, &name),
                names(&others)
            );
            Err(Failure::usage("call.not_unknown", message))
        }
    }
}

fn names(candidates: &[Candidate]) -> String {
    let shown: Vec<String> = candidates.iter().take(8).map(|it| it.facts.line()).collect();
    let more = if candidates.len() > 8 { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// What became of the call that was meant, where its number says which one that is.
fn other_state(whole: &Whole, wanted: Option<NodeId>, name: &str) -> String {
    let number = name.split_once('.').and_then(|(message, tool)| {
        let message_no = MessageNo(message.parse().ok()?);
        let tool_index = ToolIndex(tool.parse().ok()?);
        Some(CallRef { message_no, tool_index })
    });
    let node = wanted.unwrap_or(NodeId::ROOT);
    let state = number.and_then(|call| whole.recovery.ledger().call(node, call));
    match state {
        Some(CallState::Finished { outcome, .. }) => {
            format!(" ({name} of node {node} has its result: {})", outcome_word(outcome).replace('_', " "))
        }
        Some(CallState::NotStarted) => {
            format!(" ({name} of node {node} was not started, so it did nothing)")
        }
        Some(CallState::Started { .. }) => {
            format!(" ({name} of node {node} only reads: whoever goes on runs it again)")
        }
        None => String::new(),
    }
}

fn list(
    context: &Context,
    selected: &Selected,
    whole: &Whole,
    candidates: &[Candidate],
) -> Result<(), Failure> {
    if context.format() == Format::Json {
        let calls: Vec<Value> = candidates.iter().map(candidate_json).collect();
        return context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "session": selected.row.root.to_string(),
            "owner_alive": alive_json(selected.reader.liveness()),
            "unknown_calls": calls,
            "health": whole.health.json(),
        }));
    }
    if candidates.is_empty() {
        context.note("no call has an unknown outcome");
        return Ok(());
    }
    let head = format!("session {} ({})", selected.row.root, owner_words(&selected.reader));
    context.line(&context.paint(Paint::Heading, &head))?;
    for candidate in candidates {
        context.line(&format!("  {}", context.paint(Paint::Tool, &candidate.facts.line())))?;
        context.line(&format!("    {}", known_words(candidate.known)))?;
    }
    context.note(&format!(
        "to settle one: logdump resolve {} CALL --outcome succeeded|failed|cancelled|not-started --text TEXT",
        selected.row.root
    ));
    Ok(())
}

fn known_words(known: Known) -> &'static str {
    match known {
        Known::Unknown => "its outcome is recorded as unknown",
        Known::Started => "it was started and has no result: opening the session records it as unknown first",
        Known::Delegated => {
            "it was delegated to an agent that was asked: opening the session records it as unknown first"
        }
    }
}

fn preview(context: &Context, chosen: &Candidate, decision: &Decision) -> Result<(), Failure> {
    context.line(&context.paint(Paint::Heading, &format!("Call {}", chosen.facts.line())))?;
    context.line(&format!("  now:     {}", known_words(chosen.known)))?;
    context.line(&format!("  outcome: {}", outcome_word(decision.outcome).replace('_', " ")))?;
    context.line(&format!("  the model is shown: {}", quoted(&decision.text)))?;
    context.line(&format!("  note:    {}", cut_safe(&decision.note, 100)))
}

fn dry_run(
    context: &Context,
    selected: &Selected,
    chosen: &Candidate,
    decision: &Decision,
    resumed: &Resumed,
) -> Result<Exit, Failure> {
    let first = resumed.lines();
    match context.format() {
        Format::Human => {
            first.iter().try_for_each(|line| context.line(&format!("On opening, first: {}", safe(line))))?;
            context.line("Nothing was changed: this was a dry run.")?;
        }
        Format::Json => context.json(&as_json(selected, chosen, decision, None, &first))?,
    }
    owned(selected).map_or(Ok(Exit::Clean), |failure| context.go_on(failure))
}

/// Opens the session, records the decision, and lets it go as it was.
fn settle(
    context: &Context,
    selected: &Selected,
    whole: &Whole,
    chosen: &Candidate,
    decision: &Decision,
) -> Result<(Position, RecoveryReport), Failure> {
    let (session, report) = take_over(context, selected)?;
    let (node, call) = (chosen.facts.node, chosen.facts.call);
    let flag = match decision.outcome {
        Outcome::Succeeded => ResultFlag::Normal,
        _ => ResultFlag::Error,
    };
    let result = CallResult::new(decision.outcome, flag, vec![Part::text(decision.text.clone())]);
    let receipt = session.resolve_call(node, call, result, (Resolver::Person, decision.note.clone()))?;
    let_go(session, whole.summary.lifecycle)?;
    Ok((receipt.first, report))
}

fn candidate_json(candidate: &Candidate) -> Value {
    let mut json = candidate.facts.json();
    if let Value::Object(keys) = &mut json {
        keys.insert("state".into(), candidate.known.word().into());
    }
    json
}

fn as_json(
    selected: &Selected,
    chosen: &Candidate,
    decision: &Decision,
    position: Option<Position>,
    on_opening: &[String],
) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "session": selected.row.root.to_string(),
        "call": candidate_json(chosen),
        "outcome": outcome_word(decision.outcome),
        "text": decision.text,
        "note": decision.note,
        "done": position.is_some(),
        "position": position.map(|position| position.0),
        "on_opening": on_opening,
    })
}
