//! What is still named: every log of a workspace, read whole.
//!
//! An artifact is named by a receipt, by a request that waits for the library, by a host's own event, or just in a text that
//! somebody was shown. All of these are looked for at once, as bytes: the 32 of a digest, or its 64 digits. So an event of any
//! kind keeps what it names, without being known here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use sessionlog_codec::event::Event;
use sessionlog_codec::ids::{Digest, KindNo, Position};
use sessionlog_codec::record::{Payload, Record};
use sessionlog_codec::registry::{UNREADABLE, kind};

use super::KeptFor;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{LogDir, LogReader, ReadItem, TailState};
use crate::session::logged;

const DIGEST_LEN: usize = 32;
const DIGITS: usize = 64;

/// Finds digests in bytes.
pub(super) struct Finder<'a> {
    wanted: &'a BTreeSet<Digest>,
    /// By their first two bytes: whether any of them begins so.
    begins: Vec<bool>,
}

impl<'a> Finder<'a> {
    pub(super) fn of(wanted: &'a BTreeSet<Digest>) -> Self {
        let mut begins = vec![false; 1 << 16];
        for Digest([first, second, ..]) in wanted {
            if let Some(begin) = begins.get_mut(index(*first, *second)) {
                *begin = true;
            }
        }
        Self { wanted, begins }
    }

    /// Gives those that bytes name to `found`, each as often as it is named.
    pub(super) fn find(&self, bytes: &[u8], found: &mut dyn FnMut(Digest)) {
        for (at, pair) in bytes.windows(2).enumerate() {
            let &[first, second] = pair else { continue };
            if self.begins.get(index(first, second)) != Some(&true) {
                continue;
            }
            let window = bytes.get(at..at.saturating_add(DIGEST_LEN));
            if let Some(digest) = window.and_then(|window| window.try_into().ok()).map(Digest) {
                self.check(digest, found);
            }
        }
        for run in bytes.split(|byte| !byte.is_ascii_hexdigit()).filter(|run| run.len() >= DIGITS) {
            for digits in run.windows(DIGITS) {
                if let Ok(hash) = blake3::Hash::from_hex(digits.to_ascii_lowercase()) {
                    self.check(Digest(*hash.as_bytes()), found);
                }
            }
        }
    }

    fn check(&self, digest: Digest, found: &mut dyn FnMut(Digest)) {
        if self.wanted.contains(&digest) {
            found(digest);
        }
    }
}

fn index(first: u8, second: u8) -> usize {
    usize::from(u16::from_le_bytes([first, second]))
}

/// What is kept, each with the first reason that was found.
#[derive(Debug, Default)]
pub(super) struct Marks(pub(super) BTreeMap<Digest, KeptFor>);

impl Marks {
    pub(super) fn add(&mut self, digest: Digest, why: KeptFor) {
        self.0.entry(digest).and_modify(|known| *known = (*known).min(why)).or_insert(why);
    }

    /// Reads a whole log and marks what it names. A log that does not exist names nothing.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` if a part of it can't be read, which might name anything.
    pub(super) fn read(
        &mut self,
        dir: LogDir,
        finder: &Finder<'_>,
        reason: &dyn Fn(KindNo) -> KeptFor,
    ) -> Result<()> {
        let path = dir.segments.clone();
        let mut wrong = None;
        let read = LogReader::new(dir).read(Position(1), &mut |item| {
            let looked = match &item {
                ReadItem::Gap(gap) => Err((ErrorKind::Corrupt, gap.first, gap.explanation.clone())),
                ReadItem::Record(record) => {
                    if let Payload::Present(bytes) = record.payload {
                        let why = reason(record.envelope.kind);
                        finder.find(bytes, &mut |digest| self.add(digest, why));
                    }
                    check(record)
                }
            };
            match looked {
                Ok(()) => ControlFlow::Continue(()),
                Err(found) => {
                    wrong = Some(found);
                    ControlFlow::Break(())
                }
            }
        });
        let refuse = |kind: ErrorKind, at: Option<Position>, what: &str| {
            let at = at.map(|at| format!(", position {at}")).unwrap_or_default();
            let message = format!(
                "{}{at}: {what}. It may name any artifact, so none is collected: repair or remove that log (`logdump verify` \
                 says more), or use the version that wrote it",
                path.display()
            );
            let code = if kind == ErrorKind::Unsupported { "gc.log_newer" } else { "gc.log_hurt" };
            Error::new(kind, code, message)
        };
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("gc_reads_around_damage") {
            return Ok(());
        }
        match (wrong, read) {
            (Some((kind, at, what)), _) => Err(refuse(kind, Some(at), &what)),
            (None, Ok(TailState::Newer(what))) => Err(refuse(ErrorKind::Unsupported, None, &what)),
            (None, Ok(TailState::Damaged)) => Err(refuse(ErrorKind::Corrupt, None, "its end is hurt")),
            (None, Ok(_)) => Ok(()),
            (None, Err(error)) => match error.kind() {
                ErrorKind::NotFound => Ok(()),
                kind @ (ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                    Err(refuse(kind, None, &error.to_string()))
                }
                _ => Err(error),
            },
        }
    }
}

/// Whether all of a record can be read. What a salvage carries along unread is nobody's any more: only its bytes are looked at.
fn check(record: &Record<'_>) -> std::result::Result<(), (ErrorKind, Position, String)> {
    match logged(record) {
        Ok(event) => match event.event {
            Event::Unknown(unknown) if unknown.schema != UNREADABLE => {
                let what = format!(
                    "an event of a newer version (kind {}, version {})",
                    unknown.kind, unknown.schema
                );
                Err((ErrorKind::Unsupported, record.position, what))
            }
            _ => Ok(()),
        },
        Err(error) => Err((error.kind(), record.position, error.to_string())),
    }
}

/// Why an event of a session's log keeps what it names.
pub(super) fn reason_of(event: KindNo) -> KeptFor {
    match event {
        kind::NodeSettled => KeptFor::ChildResult,
        kind::LearnSlotPending | kind::LearnSlotDone => KeptFor::Learning,
        _ => KeptFor::Session,
    }
}
