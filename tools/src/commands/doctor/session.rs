//! One session of a home: its files, its owner, its log, its views.

use std::path::Path;

use serde_json::Value;
use sessionlog::SessionReader;
use sessionlog::codec::ids::Position;
use sessionlog::log::{SegmentName, Severity};
use sessionlog::projections::{Liveness, Status, Summary};
use sessionlog::session::SessionVerification;
use sessionlog::storage::{EntryKind, OsStorage, Storage};

use super::Findings;
use super::home::{home_argument, list, stray};
use crate::commands::health::{no_log, segments};
use crate::exit::{Exit, Failure, with_causes};
use crate::output::text::{count, size};

/// What a session's directory may hold.
const KNOWN: [&str; 12] = [
    "owner.lock",
    "log",
    "log.forking",
    "log.salvaging",
    "quarantine",
    "snapshots",
    ".meta.json",
    "transcript.jsonl",
    "cost.json",
    "session.json",
    "delegations.json",
    "delegates",
];
/// What a view's name ends in while it is replaced.
const REPLACING: &str = ".tmp";

/// Looks at a session.
pub(super) fn look(root: &Path, reader: &SessionReader, findings: &mut Findings) {
    let look = Look { root, reader, liveness: reader.liveness() };
    look.files(findings);
    if !look.has_log(findings) {
        return;
    }
    match reader.verify() {
        Ok(verified) => look.verified(&verified, findings),
        Err(error) => look.unreadable(&with_causes(&error), findings),
    }
}

struct Look<'a> {
    root: &'a Path,
    reader: &'a SessionReader,
    liveness: Liveness,
}

impl Look<'_> {
    fn dir(&self) -> &Path {
        &self.reader.place().dir
    }

    fn id(&self) -> String {
        self.reader.place().id.to_string()
    }

    fn repair(&self) -> String {
        format!(
            "logdump --home {} repair {} --to DIR, with a new directory for the copy; or bring the file back from a backup",
            home_argument(self.root),
            self.id()
        )
    }

    /// What is in its directories that should not be.
    fn files(&self, findings: &mut Findings) {
        for entry in list(self.dir(), findings) {
            let path = self.dir().join(&entry.name);
            let name = entry.name.to_string_lossy().into_owned();
            match name.as_str() {
                "log.forking" | "log.salvaging" => self.leftover(&name, findings),
                "quarantine" => self.quarantine(findings),
                _ if KNOWN.contains(&name.as_str()) || name.ends_with(REPLACING) => {}
                _ => stray(&path, &entry, findings),
            }
        }
        let log = self.dir().join("log");
        for entry in list(&log, findings) {
            if entry.name.to_str().and_then(SegmentName::parse).is_none() {
                stray(&log.join(&entry.name), &entry, findings);
            }
        }
    }

    /// What a fork or a repair left that did not finish.
    fn leftover(&self, name: &str, findings: &mut Findings) {
        if self.liveness == Liveness::Alive {
            return;
        }
        let path = self.dir().join(name);
        let what = if name == "log.forking" { "a fork" } else { "a repair" };
        findings.add(
            Exit::Warnings,
            "session.leftover",
            &path,
            format!("{what} did not finish here"),
            "It is no log, and nothing of it was ever acknowledged; what it was made from is not changed.",
            if name == "log.forking" {
                "Fork again; or remove this directory."
            } else {
                "Remove this home, and repair again into a new one."
            },
        );
    }

    fn quarantine(&self, findings: &mut Findings) {
        let path = self.dir().join("quarantine");
        let kept = list(&path, findings);
        if kept.is_empty() {
            return;
        }
        let bytes = kept.iter().map(|entry| entry.len).sum();
        let files = count(u64::try_from(kept.len()).unwrap_or(u64::MAX), "file", "files");
        findings.add(
            Exit::Clean,
            "session.quarantine",
            &path,
            format!("{files} ({}) that recovery cut off", size(bytes)),
            "Bytes that a crash left at the log's end, and that nothing proves to have been acknowledged. They are evidence, \
             and never read.",
            "Nothing to do. Delete them when nobody asks for them any more.",
        );
    }

    /// Whether there is a log to look at.
    fn has_log(&self, findings: &mut Findings) -> bool {
        if !segments(self.reader).is_empty() {
            return true;
        }
        let missing = match self.reader.summary() {
            Err(error) => no_log(self.reader, error),
            Ok(_) => return true,
        };
        let Failure::Failed { exit, code, message } = missing else { return false };
        match code {
            "session.half_created" if self.liveness == Liveness::Alive => {}
            "session.half_created" => findings.add(
                Exit::Warnings,
                code,
                self.dir(),
                "creating this session did not finish",
                "Nothing of it was ever acknowledged; it is listed all the same.",
                format!("rm -r {}", crate::commands::repair::quoted(self.dir())),
            ),
            _ => findings.add(
                exit,
                "session.no_log",
                self.dir(),
                "the session's log is gone",
                format!("There are views or other files of it, so it had one. {message}"),
                "Bring the directory `log` back from a backup. `transcript.jsonl`, if it is there, tells what was said.",
            ),
        }
        false
    }

    fn unreadable(&self, error: &str, findings: &mut Findings) {
        findings.add(
            Exit::Io,
            "session.unreadable",
            self.dir(),
            format!("session {} can't be read: {error}", self.id()),
            "Its log may be whole: the system refused to read it.",
            "Give yourself the right to read it, or see what is wrong with the disk.",
        );
    }

    fn verified(&self, verified: &SessionVerification, findings: &mut Findings) {
        self.artifacts(verified, findings);
        let of_log = || verified.all().filter(|finding| !finding.code.starts_with("artifact."));
        let worst = of_log().map(|finding| finding.severity).max().unwrap_or(Severity::Note);
        let at = |severity: Severity| of_log().find(|finding| finding.severity == severity);
        let newer = verified.unknown_events > 0 || of_log().any(|finding| finding.code.ends_with(".newer"));
        if let (Severity::Lost, Some(first)) = (worst, at(Severity::Lost)) {
            let number = of_log().filter(|finding| finding.severity == Severity::Lost).count();
            let number = count(u64::try_from(number).unwrap_or(u64::MAX), "finding", "findings");
            let path = if first.file.as_os_str().is_empty() { self.dir() } else { &first.file };
            findings.add(
                Exit::Lost,
                "session.damaged",
                path,
                format!("session {} is damaged: {} ({number})", self.id(), first.explanation),
                "Acknowledged records are hurt or missing. All others can be read and exported; nothing can be appended.",
                self.repair(),
            );
        } else if let (Some(torn), true) = (at(Severity::Repairable), self.liveness != Liveness::Alive) {
            findings.add(
                Exit::Repairable,
                "session.torn",
                &torn.file,
                format!("session {}: {}", self.id(), torn.explanation),
                "A crash cut an append short. Nothing that was acknowledged is in it.",
                "Resume the session: its next owner cuts the torn tail and keeps it in quarantine/.",
            );
        } else if newer {
            findings.add(
                Exit::Warnings,
                "session.newer",
                self.dir(),
                format!("session {} has records of a newer version", self.id()),
                "This version carries along what it does not know, and does not write where it must know it.",
                "Use the newer version for it.",
            );
        } else if let Some(odd) = at(Severity::Warning) {
            findings.add(
                Exit::Warnings,
                "session.odd",
                self.dir(),
                format!("session {}: {}", self.id(), odd.explanation),
                "Nothing is lost by it. A repaired session looks like this for ever: what is missing can't come back.",
                format!("logdump --home {} verify {}", home_argument(self.root), self.id()),
            );
        }
        let Ok(summary) = self.reader.summary() else { return };
        self.identity(&summary, findings);
        self.life(&summary, worst, findings);
        self.views(verified.log.last, findings);
    }

    /// What receipts stand for and is missing or hurt.
    fn artifacts(&self, verified: &SessionVerification, findings: &mut Findings) {
        let mut lost = verified.all().filter(|finding| finding.code.starts_with("artifact."));
        let Some(first) = lost.next() else { return };
        let number =
            count(u64::try_from(lost.count()).unwrap_or(u64::MAX).saturating_add(1), "artifact", "artifacts");
        findings.add(
            if first.severity == Severity::Lost { Exit::Lost } else { Exit::Warnings },
            "session.artifacts",
            &first.file,
            format!("session {} names {number} that can't be read: {}", self.id(), first.explanation),
            "Its log is whole, and it can be gone on with; what a model is shown of them is their beginning, as before.",
            "Bring the files back from a backup. The same content can be put again: logdump artifact put FILE.",
        );
    }

    /// Whether the log is that of the session whose directory it is in.
    fn identity(&self, summary: &Summary, findings: &mut Findings) {
        let Some(found) = summary.session_id.filter(|found| *found != self.reader.place().id) else { return };
        findings.add(
            Exit::Warnings,
            "session.identity",
            self.dir(),
            format!("the directory is named after session {}, and its log is that of session {found}", self.id()),
            "It can be read, and not be resumed: two directories could go on as the same session.",
            format!(
                "If there is no directory {found} beside it, give it that name. To have a second session with this history, \
                 fork the first one."
            ),
        );
    }

    /// Who has it, or had it.
    fn life(&self, summary: &Summary, worst: Severity, findings: &mut Findings) {
        if self.liveness == Liveness::Unknown {
            findings.add(
                Exit::Clean,
                "session.owner_unknown",
                &self.dir().join("owner.lock"),
                "whether somebody owns this session can't be told from here",
                "Another namespace or machine may hold its lock. What is judged by that (crashed or running) may be wrong.",
                "Look from where its host runs.",
            );
        }
        if self.reader.status(summary) == Status::Crashed && worst < Severity::Repairable {
            let last =
                self.reader.owner().map_or_else(String::new, |owner| format!("; its last owner was {owner}"));
            findings.add(
                Exit::Clean,
                "session.crashed",
                self.dir(),
                format!("session {} was not closed{last}", self.id()),
                "Its process ended without letting go. Everything that was acknowledged is there, and the lock is free: a \
                 lock file by itself locks nothing.",
                "Resume it; it is complete. `logdump open-calls` lists what was under way.",
            );
        }
    }

    /// Views are made anew by the next owner: that they are hurt is no loss, and may tell of one.
    fn views(&self, last: Position, findings: &mut Findings) {
        if self.liveness == Liveness::Alive {
            return;
        }
        let path = self.dir().join(".meta.json");
        let there = OsStorage.entry(&path).ok().flatten().is_some_and(|entry| entry.kind == EntryKind::File);
        let bytes = if there { std::fs::read(&path).unwrap_or_default() } else { Vec::new() };
        let anew = "Nothing to do: the next owner makes it anew from the log. Until then, use `logdump show` and `export`.";
        let why = "Views are for people and other programs; the log is the truth.";
        if !there {
            return findings.add(
                Exit::Clean,
                "view.missing",
                &path,
                "there is no view of this session",
                why,
                anew,
            );
        }
        if bytes.is_empty() || bytes.iter().all(|byte| *byte == 0) {
            let what = "a view is empty or full of zeros: a crash of the system left it so";
            return findings.add(Exit::Warnings, "view.empty", &path, what, why, anew);
        }
        let position = serde_json::from_slice::<Value>(&bytes)
            .ok()
            .and_then(|meta| meta.pointer("/sessionlog/view/position").and_then(Value::as_u64));
        match position {
            None => findings.add(Exit::Warnings, "view.damaged", &path, "a view can't be read", why, anew),
            Some(position) if position > last.0 => findings.add(
                Exit::Warnings,
                "view.ahead",
                &path,
                format!("a view knows of position {position}, and the log ends at {last}"),
                "The end of the log is missing: a segment was deleted, an old copy was put in its place, or power was lost \
                 before it was on disk. `transcript.jsonl` may tell what was said.",
                "Bring the log back from a backup that has these positions. Keep a copy of `transcript.jsonl` first: the next \
                 owner makes it anew.",
            ),
            Some(_) => {}
        }
    }
}
