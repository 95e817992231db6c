//! q: a directory with a session file, and one below it for each delegate.
//!
//! q writes its files anew each time. A transcript that only grew is gone on with; one that q cleared, or wrote in another
//! version's form, since it was imported is a conflict, and nothing that goes with it is taken.

mod context;
mod layout;
mod transcript;

pub(super) use context::{aligned, context_events};
pub(super) use layout::Layout;
pub(super) use transcript::{Slot, Transcript};
