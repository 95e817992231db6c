//! Any bytes as the files of a session of Claude Code, divided by 0xff: see `support/imports.rs` for what is asserted.
#![no_main]

use libfuzzer_sys::fuzz_target;

mod support;

const NAMES: &[&str] = &[
    "0f1e2d3c-0000-4000-8000-000000000005.jsonl",
    "0f1e2d3c-0000-4000-8000-000000000005/subagents/agent-aa01.jsonl",
    "0f1e2d3c-0000-4000-8000-000000000005/subagents/agent-aa02.jsonl",
    "0f1e2d3c-0000-4000-8000-000000000005/subagents/agent-aa02.meta.json",
    "0f1e2d3c-0000-4000-8000-000000000005/subagents/workflows/wf_1/journal.jsonl",
];

fuzz_target!(|data: &[u8]| support::imports::check(data, NAMES));
