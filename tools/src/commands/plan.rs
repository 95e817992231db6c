//! `logdump plan`: what is to be done to go on with a session.

use serde_json::{Value, json};
use sessionlog::codec::ids::NodeId;
use sessionlog::projections::Liveness;
use sessionlog::projections::recovery::{self, Availability, HostNeed, Owed, Step};

use super::Selected;
use super::whole::{CallFacts, Whole, alive_json, owner_words};
use crate::args::PlanArgs;
use crate::exit::{Exit, Failure};
use crate::output::safe::safe;
use crate::output::text::{Align, Table};
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// One step of a plan, and what stands about it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The step.
    pub step: Step,
    /// Whether it waits for others.
    pub order: Order,
    /// What a conversation that goes on is owed next.
    owed: Option<(Owed, Vec<CallFacts>)>,
}

/// When a step can be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Now.
    Ready,
    /// When what is below it is done.
    Waits,
}

/// Runs the command.
///
/// # Errors
/// `Usage` if `id` names nothing; else if the log or the output fails.
pub fn run(args: &PlanArgs, context: &Context) -> Result<Exit, Failure> {
    let selected = Selected::find(&context.reader()?, &args.id)?;
    let whole = Whole::read(&selected.reader, None)?;
    let steps = planned(&whole);
    let liveness = selected.reader.liveness();
    match context.format() {
        Format::Human => {
            selected.heading(context)?;
            let owner = owner_words(&selected.reader);
            let means = match liveness {
                Liveness::Alive => "; this is what would be done if it died now",
                Liveness::Dead | Liveness::Unknown => "",
            };
            context.line(
                &context.paint(Paint::Dim, &format!("As of position {}; {owner}{means}.", whole.last)),
            )?;
            if steps.is_empty() {
                context.line("Nothing is to be done: the session rests.")?;
            } else {
                lines(&steps).iter().try_for_each(|line| context.line(line))?;
            }
        }
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "session": selected.row.root.to_string(),
            "at": whole.last.0,
            "owner_alive": alive_json(liveness),
            "steps": steps.iter().map(step_json).collect::<Vec<_>>(),
            "health": whole.health.json(),
        }))?,
    }
    Ok(whole.health.tell(context, &selected.row.id))
}

/// What is owed, in the order in which it is to be done, as if the session's owner were gone.
#[must_use]
pub fn planned(whole: &Whole) -> Vec<Planned> {
    let steps = recovery::plan(&whole.recovery, &|_| Availability::Available);
    let ready: Vec<Step> = recovery::ready(&whole.recovery, &steps).into_iter().cloned().collect();
    let of = |step: Step| {
        let order = if ready.contains(&step) { Order::Ready } else { Order::Waits };
        let owed = match &step {
            Step::ResumeChild { child: node } | Step::ContinueTurn { node } => Some(owed(whole, *node)),
            _ => None,
        };
        Planned { step, order, owed }
    };
    steps.into_iter().map(of).collect()
}

fn owed(whole: &Whole, node: NodeId) -> (Owed, Vec<CallFacts>) {
    let owed = whole.recovery.owed(node);
    let calls = match &owed {
        Owed::Calls(calls) => calls.iter().map(|call| whole.call(node, *call)).collect(),
        Owed::Nothing | Owed::Model | Owed::Conclusion => Vec::new(),
    };
    (owed, calls)
}

/// A plan for people, safe for a terminal.
#[must_use]
pub fn lines(steps: &[Planned]) -> Vec<String> {
    let mut table = Table::new(&[
        ("#", Align::Right),
        ("STEP", Align::Left),
        ("NEEDS", Align::Left),
        ("WHEN", Align::Left),
        ("WHAT", Align::Left),
    ]);
    for (index, Planned { step, order, owed }) in steps.iter().enumerate() {
        let owed = owed.as_ref().map(|(owed, calls)| owed_words(owed, calls)).unwrap_or_default();
        table.row(vec![
            index.saturating_add(1).to_string(),
            step.word().to_owned(),
            need_word(step.needs_host()).to_owned(),
            order.word().to_owned(),
            format!("{}{owed}", safe(&step.to_string())),
        ]);
    }
    table.lines()
}

impl Order {
    fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Waits => "waits",
        }
    }
}

fn owed_words(owed: &Owed, calls: &[CallFacts]) -> String {
    match owed {
        Owed::Calls(_) => {
            let calls: Vec<String> =
                calls.iter().map(|call| format!("\u{201c}{}\u{201d}", call.line())).collect();
            format!(" To be run, not started yet: {}.", calls.join(", "))
        }
        Owed::Model => " Its model is asked.".to_owned(),
        Owed::Conclusion => " It has said its last: only its end is to be recorded.".to_owned(),
        Owed::Nothing => String::new(),
    }
}

fn need_word(need: HostNeed) -> &'static str {
    match need {
        HostNeed::Nothing => "nobody",
        HostNeed::Agent => "agent",
        HostNeed::Tool => "tool",
        HostNeed::Library => "library",
    }
}

/// A step for programs.
#[must_use]
pub fn step_json(planned: &Planned) -> Value {
    let Planned { step, order, owed } = planned;
    let call = match step {
        Step::ReturnStored { parent: node, call, .. }
        | Step::ReportUnknown { node, call }
        | Step::MarkNotStarted { node, call }
        | Step::RerunPure { node, call } => {
            json!({ "node": node.0, "message_no": call.message_no.0, "tool_index": call.tool_index.0 })
        }
        _ => Value::Null,
    };
    let reason = match step {
        Step::Block { reason, .. } => Some(reason.word()),
        Step::Cancel { reason, .. } => Some(reason.word()),
        _ => None,
    };
    let owed = owed.as_ref().map(|(owed, calls)| {
        let what = match owed {
            Owed::Nothing => "nothing",
            Owed::Calls(_) => "calls",
            Owed::Model => "model",
            Owed::Conclusion => "conclusion",
        };
        json!({ "what": what, "calls": calls.iter().map(CallFacts::json).collect::<Vec<_>>() })
    });
    json!({
        "step": step.word(),
        "text": step.to_string(),
        "node": step.node().map(|node| node.0),
        "call": call,
        "reason": reason,
        "needs": need_word(step.needs_host()),
        "ready": *order == Order::Ready,
        "owed": owed,
    })
}
