//! `.meta.json`: what recursive knows about a session as a whole. It is written anew each time.

use serde::Deserialize;
use sessionlog_codec::event::{Event, FinalStatus, SessionFinished, SessionTitled, TitleOrigin};
use sessionlog_codec::ids::Timestamp;

use crate::import::loose::{Text, object, time};
use crate::import::sniff::SessionFacts;
use crate::import::split::text_of;

/// The metadata of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::import) struct Meta {
    pub(in crate::import) session_id: Option<String>,
    pub(in crate::import) updated_at: Option<Timestamp>,
    schema_version: Option<String>,
    goal: Option<String>,
    model: Option<String>,
    provider: Option<String>,
    preset: Option<String>,
    tool_registry_hash: Option<String>,
    created_at: Option<Timestamp>,
    status: Option<String>,
    name: Option<String>,
    first_prompt: Option<String>,
}

impl Meta {
    /// Reads metadata; `None` if it is not an object. (A crash may leave it empty, or all zeros.)
    pub(in crate::import) fn read(bytes: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Fields<'a> {
            #[serde(borrow, default)]
            session_id: Text<'a>,
            #[serde(borrow, default)]
            schema_version: Text<'a>,
            #[serde(borrow, default)]
            goal: Text<'a>,
            #[serde(borrow, default)]
            model: Text<'a>,
            #[serde(borrow, default)]
            provider: Text<'a>,
            #[serde(borrow, default)]
            preset: Text<'a>,
            #[serde(borrow, default)]
            tool_registry_hash: Text<'a>,
            #[serde(borrow, default)]
            created_at: Text<'a>,
            #[serde(borrow, default)]
            updated_at: Text<'a>,
            #[serde(borrow, default)]
            status: Text<'a>,
            #[serde(borrow, default)]
            name: Text<'a>,
            #[serde(borrow, default)]
            first_prompt: Text<'a>,
        }
        let text = text_of(bytes);
        let fields: Fields<'_> = object(text.trim_start_matches('\u{feff}'))?;
        Some(Self {
            session_id: fields.session_id.owned(),
            updated_at: time(&fields.updated_at),
            schema_version: fields.schema_version.owned(),
            goal: fields.goal.owned(),
            model: fields.model.owned(),
            provider: fields.provider.owned(),
            preset: fields.preset.owned(),
            tool_registry_hash: fields.tool_registry_hash.owned(),
            created_at: time(&fields.created_at),
            status: fields.status.owned(),
            name: fields.name.owned(),
            first_prompt: fields.first_prompt.owned(),
        })
    }

    /// Whether it is of a session rather than of anything else.
    pub(in crate::import) fn is_of_session(&self) -> bool {
        let others = [&self.schema_version, &self.goal, &self.status];
        self.session_id.is_some() && others.iter().filter(|field| field.is_some()).count() >= 2
    }

    pub(in crate::import) fn facts(&self) -> SessionFacts {
        SessionFacts {
            cwd: None,
            agent_version: None,
            model: self.model.clone(),
            provider: self.provider.clone(),
            goal: self.goal.clone(),
            preset: self.preset.clone(),
            tool_registry_hash: self.tool_registry_hash.clone(),
            began: self.created_at,
        }
    }

    /// What has changed since `before`.
    pub(in crate::import) fn events_since(&self, before: Option<&Self>) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(name) = &self.name
            && before.and_then(|before| before.name.as_ref()) != Some(name)
        {
            // The name is the beginning of the first prompt until somebody gives another one.
            let is_given = self.first_prompt.as_ref().is_none_or(|prompt| !prompt.starts_with(name.as_str()));
            let origin = if is_given { TitleOrigin::Person } else { TitleOrigin::Prompt };
            events.push(SessionTitled { title: name.clone(), origin }.into());
        }
        if before.and_then(|before| before.status.as_ref()) != self.status.as_ref()
            && let Some(finished) = self.status.as_deref().and_then(finished)
        {
            events.push(finished.into());
        }
        events
    }
}

/// The end that a status means. An unknown one is taken for `active`, as recursive does.
fn finished(status: &str) -> Option<SessionFinished> {
    let (status, word) = match status {
        "completed" | "success" => (FinalStatus::Completed, None),
        "crashed" | "incomplete" => (FinalStatus::Failed, Some("crashed")),
        "failed" => (FinalStatus::Failed, None),
        "interrupted" | "cancelled" => (FinalStatus::Interrupted, None),
        "paused" => (FinalStatus::Paused, None),
        _ => return None,
    };
    Some(SessionFinished { status, reason: word.map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(json: &str, before: Option<&str>) -> Vec<Event> {
        let before = before.map(|json| Meta::read(json.as_bytes()).unwrap());
        Meta::read(json.as_bytes()).unwrap().events_since(before.as_ref())
    }

    #[test]
    fn only_what_changed_is_said() {
        let titled = |title: &str, origin| Event::from(SessionTitled { title: title.to_owned(), origin });
        let active = r#"{"name":"fix","first_prompt":"fix the bug","status":"active"}"#;
        assert_eq!(events(active, None), [titled("fix", TitleOrigin::Prompt)]);
        let done = r#"{"name":"mine","first_prompt":"fix the bug","status":"success"}"#;
        let completed = Event::from(SessionFinished { status: FinalStatus::Completed, reason: None });
        assert_eq!(events(done, Some(active)), [titled("mine", TitleOrigin::Person), completed]);
        assert_eq!(events(done, Some(done)), []);
    }

    #[test]
    fn damaged_metadata_is_none() {
        // T8
        for bytes in [&b""[..], &[0; 300], b"{\"session_id\":", b"[]"] {
            assert_eq!(Meta::read(bytes), None);
        }
        assert!(!Meta::read(b"{\"session_id\":\"x\"}").unwrap().is_of_session());
        assert!(
            Meta::read(b"{\"session_id\":\"x\",\"goal\":\"g\",\"status\":\"?\"}").unwrap().is_of_session()
        );
    }
}
