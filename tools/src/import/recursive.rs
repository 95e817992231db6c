//! recursive: a directory with a transcript and its metadata, and the formats that came before.

mod entry;
mod meta;
mod transcript;

pub(super) use meta::Meta;
pub(super) use transcript::{Checkpoints, Transcript};
