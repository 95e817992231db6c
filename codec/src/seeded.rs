//! Mistakes that are made on purpose, one at a time, to see that some test notices. Each stands where the real one would,
//! behind the feature `seeded-bugs`; `engine/tests/seeded_bugs.sh` makes them all and lists who noticed.

use std::sync::OnceLock;

/// The environment variable that names the mistake to make.
pub const VARIABLE: &str = "SESSIONLOG_SEEDED_BUG";

/// Whether the mistake `bug` is to be made. In a process, it is the same one from start to end.
#[must_use]
pub fn is(bug: &str) -> bool {
    static SEEDED: OnceLock<Option<String>> = OnceLock::new();
    SEEDED.get_or_init(|| std::env::var(VARIABLE).ok()).as_deref() == Some(bug)
}
