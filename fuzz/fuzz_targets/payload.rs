//! Any bytes as the payload of every kind of the registry: never a panic, and what decodes is encoded to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sessionlog_codec::event::Event;
use sessionlog_codec::record::Payload;
use sessionlog_codec::registry::EVENTS;

fuzz_target!(|data: &[u8]| {
    for &(kind, name, schema) in EVENTS {
        if let Ok(event) = Event::decode(kind, schema, Payload::Present(data)) {
            assert_eq!(event.encode().as_deref(), Ok(data), "{name}");
        }
    }
});
