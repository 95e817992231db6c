//! Whether the provider's own items can stand in a request for the message they belong to.
//!
//! They are spliced byte for byte or not at all, so what is wrong with one of them takes out all of them. The rules are
//! those of OpenAI's Responses, from its reference and from what it refuses:
//!
//! - "Duplicate item found with id rs_..." (vercel/ai#7883): an item id occurs once in a request.
//! - "Item 'rs_...' of type 'reasoning' was provided without its required following item" (openai/codex#1235,
//!   inspect_ai#1990): reasoning is directly followed by what it led to. Two in a row are refused too.
//! - Calls that the host answers must be those of the message, by id, kind and order, since its results follow. Calls
//!   of other kinds that the host would have to answer (`computer_call`, `local_shell_call`) have no result here.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sessionlog_codec::RawBytes;
use sessionlog_codec::event::CallForm;

use super::check::object;
use super::ids::tool_name;
use super::part::Call;
use super::{Api, Job, ReplayItems, Why};

/// Whether the items can be spliced. `seen` are the item ids of the request so far.
pub(super) fn check(
    job: &Job<'_>,
    items: &ReplayItems<'_>,
    calls: &[Call<'_>],
    seen: &mut BTreeSet<String>,
) -> Result<(), Why> {
    if items.api_mode != Api::Responses.word() {
        return Err(Why::OtherApi);
    }
    if !job.target.is(Some(items.model)) {
        return Err(Why::OtherModel);
    }
    let read: Option<Vec<Item<'_>>> = items.items.iter().map(Item::read).collect();
    let read = read.ok_or(Why::Malformed)?;
    check_reasoning(&read)?;
    check_calls(&read, calls)?;
    let mut ids: BTreeSet<&str> = BTreeSet::new();
    for id in read.iter().filter_map(|item| item.id.as_deref()) {
        if seen.contains(id) || !ids.insert(id) {
            return Err(Why::Repeated);
        }
    }
    seen.extend(ids.into_iter().map(str::to_owned));
    Ok(())
}

fn check_reasoning(items: &[Item<'_>]) -> Result<(), Why> {
    let mut following = items.iter().skip(1);
    for item in items {
        let next = following.next();
        if item.is_reasoning() && next.is_none_or(Item::is_reasoning) {
            return Err(Why::NotTogether);
        }
    }
    Ok(())
}

fn check_calls(items: &[Item<'_>], calls: &[Call<'_>]) -> Result<(), Why> {
    let mut expected = calls.iter();
    let outputs: BTreeSet<&str> =
        items.iter().filter(|item| item.is_output()).filter_map(|item| item.call_id.as_deref()).collect();
    for item in items {
        let form = match item.kind.as_ref() {
            "function_call" => CallForm::Function,
            "custom_tool_call" => CallForm::Custom,
            _ => {
                let unanswered = item.call_id.as_deref().is_some_and(|id| !outputs.contains(id));
                if unanswered || item.kind == "mcp_approval_request" {
                    return Err(Why::CallsDiffer);
                }
                continue;
            }
        };
        let call = expected.next().ok_or(Why::CallsDiffer)?;
        if call.form != form || item.call_id.as_deref() != Some(call.id) {
            return Err(Why::CallsDiffer);
        }
    }
    if expected.next().is_some() { Err(Why::CallsDiffer) } else { Ok(()) }
}

/// An item, as far as it matters here.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    id: Option<String>,
    call_id: Option<String>,
}

impl<'a> Item<'a> {
    fn read(bytes: &'a RawBytes) -> Option<Self> {
        let text = bytes.as_str()?;
        object(text)?;
        let item: Self = serde_json::from_str(text).ok()?;
        let is_whole = match item.kind.as_ref() {
            "message" => serde_json::from_str::<Message<'_>>(text).is_ok_and(|it| it.is_answer()),
            "reasoning" => serde_json::from_str::<Thought>(text).is_ok(),
            "function_call" => serde_json::from_str::<Function<'_>>(text).is_ok_and(|it| is_name(&it.name)),
            "custom_tool_call" => serde_json::from_str::<Custom<'_>>(text).is_ok_and(|it| is_name(&it.name)),
            // The host answers these calls, the provider does not.
            "function_call_output" | "custom_tool_call_output" | "item_reference" | "" => false,
            _ => true,
        };
        is_whole.then_some(item)
    }

    fn is_reasoning(&self) -> bool {
        self.kind == "reasoning"
    }

    fn is_output(&self) -> bool {
        self.kind.ends_with("_output")
    }
}

fn is_name(name: &str) -> bool {
    tool_name(name, Api::Responses.longest_name()) == name
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    content: Vec<Said<'a>>,
}

/// "Supported values are: 'output_text' and 'refusal'" for what an assistant said.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Said<'a> {
    OutputText {
        #[serde(rename = "text", borrow)]
        _text: Cow<'a, str>,
    },
    Refusal {
        #[serde(rename = "refusal", borrow)]
        _refusal: Cow<'a, str>,
    },
}

impl Message<'_> {
    fn is_answer(&self) -> bool {
        self.role == "assistant" && !self.content.is_empty()
    }
}

#[derive(Deserialize)]
struct Thought {
    #[serde(rename = "summary")]
    _summary: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(rename = "arguments", borrow)]
    _arguments: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Custom<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(rename = "input", borrow)]
    _input: Cow<'a, str>,
}
