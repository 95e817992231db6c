//! The generic export: every event of a log, with all it holds.

use serde_json::{Map, Value};
use sessionlog_codec::event::{Event, LoggedEvent};
use sessionlog_codec::record::TimeOrigin;

use super::json::line;
use crate::time::rfc3339_micros;

/// One event as one line of JSON: `{"position","node","time","event","data"}`, and `time_origin` and `cause` where they
/// say something. Bytes that are no text become text with U+FFFD in it; the payload of an event that this version does
/// not know is given in hexadecimal.
#[must_use]
pub fn event_line(event: &LoggedEvent) -> String {
    line(&event_json(event))
}

/// The same as a value.
#[must_use]
pub fn event_json(event: &LoggedEvent) -> Value {
    let mut keys = Map::new();
    keys.insert("position".into(), event.position.0.into());
    keys.insert("node".into(), event.node.0.into());
    keys.insert("time".into(), rfc3339_micros(event.timestamp).into());
    if event.time_origin == TimeOrigin::Estimated {
        keys.insert("time_origin".into(), "estimated".into());
    }
    if let Some(cause) = event.cause {
        keys.insert("cause".into(), cause.0.into());
    }
    keys.insert("event".into(), event.event.name().into());
    keys.insert("data".into(), data(&event.event));
    Value::Object(keys)
}

fn data(event: &Event) -> Value {
    if let Event::Unknown(unknown) = event {
        let hex = unknown.payload.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        return serde_json::json!({
            "kind": unknown.kind.0,
            "schema": unknown.schema.0,
            "payload_hex": hex,
        });
    }
    // An event serialises as its variant's name and its data; the name is given by the registry already.
    match serde_json::to_value(event) {
        Ok(Value::Object(keys)) if keys.len() == 1 => {
            keys.into_iter().next().map_or(Value::Null, |(_, data)| data)
        }
        Ok(other) => other,
        Err(_) => Value::Null,
    }
}
