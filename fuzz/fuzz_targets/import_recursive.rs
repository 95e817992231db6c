//! Any bytes as the files of a session of recursive, divided by 0xff: see `support/imports.rs` for what is asserted.
#![no_main]

use libfuzzer_sys::fuzz_target;

mod support;

const NAMES: &[&str] = &[
    "run/transcript.jsonl",
    "run/.meta.json",
    "run/cost.json",
    "run/checkpoints.jsonl",
    "session-file.json",
    "bare-messages.jsonl",
];

fuzz_target!(|data: &[u8]| support::imports::check(data, NAMES));
