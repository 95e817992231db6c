//! Any bytes as the files of a session of q, divided by 0xff: see `support/imports.rs` for what is asserted.
#![no_main]

use libfuzzer_sys::fuzz_target;

mod support;

const NAMES: &[&str] = &[
    "sessions/0f1e2d3c-0000-4000-8000-0000000000a5/session.json",
    "sessions/0f1e2d3c-0000-4000-8000-0000000000a5/delegations.json",
    "sessions/0f1e2d3c-0000-4000-8000-0000000000a5/plan-execution.json",
    "sessions/0f1e2d3c-0000-4000-8000-0000000000a5/delegates/c0ffee00-0000-4000-8000-000000000005/session.json",
    "sessions/0f1e2d3c-0000-4000-8000-0000000000a5/delegates/c0ffee00-0000-4000-8000-000000000005/delegation-state.json",
];

fuzz_target!(|data: &[u8]| support::imports::check(data, NAMES));
