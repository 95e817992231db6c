//! A context as the body of a provider's request, with what became of it on the way.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sessionlog::codec::event::Role;
use sessionlog::codec::ids::NodeId;
use sessionlog::projections::ContextMessage;
use sessionlog::projections::render::{
    Adjusted, Adjustment, Api, Dropped, Rendering, Target, render, validate_anthropic, validate_chat,
    validate_responses,
};

use super::Selected;
use super::whole::Whole;
use crate::exit::{Exit, Failure};
use crate::output::event_text::cut_safe;
use crate::output::safe::safe_json;
use crate::output::text::count;
use crate::output::{Context, Format, SCHEMA_VERSION};

/// Changes that are told to people one by one; the rest is counted.
const TOLD_MAX: usize = 20;

/// A request as it would be sent.
#[derive(Debug)]
pub struct Request {
    target: Target,
    rendering: Rendering,
    /// Messages of the context that it was made of.
    shown: usize,
}

/// What `--json` prints. The body is spliced in as it is, so that no number in it is read and written anew.
#[derive(Serialize)]
struct Shown<'a> {
    schema_version: u64,
    session: String,
    node: u32,
    id: &'a str,
    at: u64,
    api: &'static str,
    model: &'a str,
    provider: Option<&'a str>,
    messages: usize,
    body: &'a RawValue,
    dropped: Vec<Value>,
    adjusted: Vec<Value>,
    broken_rule: Option<String>,
    health: Value,
}

impl Request {
    /// Renders the context of a conversation.
    #[must_use]
    pub fn new(
        whole: &Whole,
        node: NodeId,
        messages: &[ContextMessage],
        api: Api,
        model: Option<String>,
    ) -> Self {
        let model = model.unwrap_or_else(|| model_of(whole, node, messages));
        let provider = whole.summary.provider.clone();
        let target = Target { api, model, provider };
        let rendering = render(messages, whole.replay.node(node), &target);
        Self { target, rendering, shown: messages.len() }
    }

    /// Prints the request, and says what was left out or changed. A body that its provider would refuse is our mistake:
    /// it is printed all the same, and the exit code says so.
    ///
    /// # Errors
    /// If the output fails, or the body is no JSON.
    pub fn show(&self, context: &Context, selected: &Selected, whole: &Whole) -> Result<Exit, Failure> {
        let Self { target, rendering, shown } = self;
        let body: &RawValue = serde_json::from_slice(&rendering.body).map_err(|e| bug(&e.to_string()))?;
        let broken = self.broken_rule()?;
        match context.format() {
            Format::Human => {
                context.line(&safe_json(body.get()))?;
                self.tell(context);
            }
            Format::Json => {
                let request = Shown {
                    schema_version: SCHEMA_VERSION,
                    session: selected.row.root.to_string(),
                    node: selected.row.node.0,
                    id: &selected.row.id,
                    at: whole.last.0,
                    api: target.api.word(),
                    model: &target.model,
                    provider: target.provider.as_deref(),
                    messages: rendering.messages,
                    body,
                    dropped: rendering.dropped.iter().map(dropped_json).collect(),
                    adjusted: rendering.adjusted.iter().map(adjusted_json).collect(),
                    broken_rule: broken.clone(),
                    health: whole.health.json(),
                };
                let text = serde_json::to_string(&request).map_err(|e| bug(&e.to_string()))?;
                context.line(&safe_json(&text))?;
            }
        }
        if *shown == 0 || rendering.messages == 0 {
            context.note(
                "the context is empty at this position: nothing was said yet, or all of it was cleared",
            );
        }
        Ok(match broken {
            Some(rule) => {
                context.warn(&bug_text(&rule));
                Exit::Lost
            }
            None => Exit::Clean,
        })
    }

    /// The first rule of the provider that the body breaks. A body without messages is none to be sent.
    fn broken_rule(&self) -> Result<Option<String>, Failure> {
        if self.rendering.messages == 0 {
            return Ok(None);
        }
        let body: Value = serde_json::from_slice(&self.rendering.body).map_err(|e| bug(&e.to_string()))?;
        let checked = match self.target.api {
            Api::ChatCompletions => validate_chat(&body),
            Api::Responses => validate_responses(&body),
            Api::AnthropicMessages => validate_anthropic(&body),
        };
        Ok(checked.err().map(|broken| broken.to_string()))
    }

    fn tell(&self, context: &Context) {
        let Rendering { dropped, adjusted, .. } = &self.rendering;
        let mut lines: Vec<(u64, String)> =
            dropped.iter().map(|it| (it.position.0, dropped_words(it))).collect();
        lines.extend(adjusted.iter().map(|it| (it.position.0, adjusted_words(it))));
        lines.sort();
        for (_, line) in lines.iter().take(TOLD_MAX) {
            context.note(line);
        }
        let more = lines.len().saturating_sub(TOLD_MAX);
        if more > 0 {
            let more = count(u64::try_from(more).unwrap_or(u64::MAX), "more change", "more changes");
            context.note(&format!("{more}: --json lists all"));
        }
    }
}

/// The model that spoke last in the context; else what the conversation was bound to or created with.
fn model_of(whole: &Whole, node: NodeId, messages: &[ContextMessage]) -> String {
    let spoke = messages.iter().rev().filter(|message| message.role == Role::Assistant);
    let spoke = spoke.filter_map(|message| message.model.clone()).next();
    let bound = || Some(whole.recovery.delegations().binding(node)?.bound?.model.clone());
    spoke.or_else(bound).or_else(|| whole.summary.model.clone()).unwrap_or_default()
}

fn dropped_words(dropped: &Dropped) -> String {
    let (what, why) = (dropped.what.word().replace('_', " "), dropped.why.word().replace('_', " "));
    format!("left out at position {}: {what} ({why})", dropped.position)
}

fn adjusted_words(adjusted: &Adjusted) -> String {
    let how = adjusted.how.word().replace('_', " ");
    let detail = match &adjusted.how {
        Adjustment::IdReplaced { from, to } | Adjustment::NameReplaced { from, to } => {
            format!(" ({} is {} there)", cut_safe(from, 60), cut_safe(to, 60))
        }
        _ => String::new(),
    };
    format!("changed at position {}: {how}{detail}", adjusted.position)
}

fn dropped_json(dropped: &Dropped) -> Value {
    json!({
        "position": dropped.position.0,
        "what": dropped.what.word(),
        "why": dropped.why.word(),
    })
}

fn adjusted_json(adjusted: &Adjusted) -> Value {
    let (from, to) = match &adjusted.how {
        Adjustment::IdReplaced { from, to } | Adjustment::NameReplaced { from, to } => (Some(from), Some(to)),
        _ => (None, None),
    };
    json!({ "position": adjusted.position.0, "how": adjusted.how.word(), "from": from, "to": to })
}

fn bug_text(what: &str) -> String {
    format!(
        "the provider would refuse this request, which is a mistake of sessionlog: {what}; please report it with \
         the output of `logdump context --json`"
    )
}

fn bug(what: &str) -> Failure {
    Failure::new(Exit::Lost, "render.broken", bug_text(what))
}
