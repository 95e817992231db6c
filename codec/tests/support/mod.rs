//! What the tests share: every event of the registry, made by four recipes, and a second implementation of the format
//! by the letter of `FORMAT.md`, which knows neither bincode nor crc32fast.

#![allow(dead_code, reason = "each test file is a crate of its own and uses its part of this")]

pub(crate) mod events;
pub(crate) mod reference;

use sessionlog_codec::event::Event;
use sessionlog_codec::ids::{KindNo, SchemaVersion};
use sessionlog_codec::registry::EVENTS;

use self::events::{Gen, make};

/// One event of the registry in the three forms that golden files keep.
pub(crate) struct Sample {
    pub(crate) kind: KindNo,
    pub(crate) name: &'static str,
    pub(crate) schema: SchemaVersion,
    /// `min`: nothing optional, everything empty, numbers 0. `typical`: like the field's name says. `max`: every
    /// optional set, several elements, extreme numbers, text and bytes that break careless readers.
    pub(crate) forms: [(&'static str, Event); 3],
}

/// The samples of every registry entry. The recipes of released events must not change: golden files hold their bytes.
pub(crate) fn samples() -> Vec<Sample> {
    EVENTS
        .iter()
        .map(|&(kind, name, schema)| {
            let form = |mut recipe| make(kind, &mut recipe);
            let (min, typical, max) = (form(Gen::min()), form(Gen::typical()), form(Gen::max()));
            Sample { kind, name, schema, forms: [("min", min), ("typical", typical), ("max", max)] }
        })
        .collect()
}

/// The folder of the golden files of the first version.
pub(crate) fn golden_dir() -> std::path::PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", "v1"].iter().collect()
}
