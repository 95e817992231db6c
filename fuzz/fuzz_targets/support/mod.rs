//! What the targets share that work on whole logs.

#![allow(dead_code, reason = "each target uses a part of it")]

pub mod disk;
pub mod imports;
pub mod model;
pub mod mutate;
pub mod script;

use libfuzzer_sys::arbitrary::Unstructured;

/// The next byte of the input; 0 behind its end.
pub fn byte(input: &mut Unstructured<'_>) -> u8 {
    input.arbitrary().unwrap_or_default()
}

/// A number below `bound` (at least 1), from two bytes.
pub fn below(input: &mut Unstructured<'_>, bound: usize) -> usize {
    let number: u16 = input.arbitrary().unwrap_or_default();
    usize::from(number) % bound.max(1)
}
