//! The whole check of a session: its bytes, its events, its laws.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;

use sessionlog_codec::event::{Event, GapMarked, LoggedEvent, NewEvent};
use sessionlog_codec::ids::{Digest, NodeId, Position};
use sessionlog_projections::{LawBroken, Ledger, Projection, TreeState, validate_pairing};

use super::events::{EventItem, read_events};
use super::state::as_logged;
use crate::artifacts::{ArtifactReader, receipts_of};
use crate::error::{ErrorKind, Result};
use crate::log::{Finding, LogReader, LogVerification, Severity};

/// What the check of a session counted and found.
#[derive(Clone, Debug, Default)]
pub struct SessionVerification {
    /// The log below the events, with its findings.
    pub log: LogVerification,
    /// Events that decode.
    pub events: u64,
    /// Events of a newer version, carried along.
    pub unknown_events: u64,
    /// What is wrong with events and laws.
    pub findings: Vec<Finding>,
}

impl SessionVerification {
    /// All findings, those of the log first.
    pub fn all(&self) -> impl Iterator<Item = &Finding> {
        self.log.findings.iter().chain(&self.findings)
    }

    /// The worst of all findings; `None` if there are none.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.all().map(|finding| finding.severity).max()
    }
}

pub(super) fn verify(log: &LogReader, artifacts: &ArtifactReader) -> Result<SessionVerification> {
    let mut check = Check {
        result: SessionVerification::default(),
        ledger: Ledger::default(),
        tree: TreeState::default(),
        erased: BTreeSet::new(),
        named: BTreeMap::new(),
    };
    check.result.log = log.verify()?;
    read_events(log, Position(1), &mut |item| {
        check.item(item);
        ControlFlow::Continue(())
    })?;
    check.contexts();
    check.artifacts(artifacts);
    Ok(check.result)
}

struct Check {
    result: SessionVerification,
    ledger: Ledger,
    tree: TreeState,
    /// The conversations in which something was erased that was said.
    erased: BTreeSet<NodeId>,
    /// The artifacts that receipts name, and where the first one stands.
    named: BTreeMap<Digest, Position>,
}

impl Check {
    fn find(&mut self, severity: Severity, code: &'static str, at: Position, explanation: String) {
        let (first, last) = (Some(at), Some(at));
        let file = PathBuf::new();
        self.result.findings.push(Finding {
            severity,
            code,
            file,
            offset: 0,
            len: 0,
            first,
            last,
            explanation,
        });
    }

    fn item(&mut self, item: EventItem) {
        match item {
            // The check of the bytes has named it.
            EventItem::Gap(_) => {}
            EventItem::Undecodable(bad) => {
                let (severity, code) = match bad.error.kind() {
                    ErrorKind::Unsupported => (Severity::Warning, "record.newer"),
                    _ => (Severity::Lost, "record.damaged"),
                };
                self.find(severity, code, bad.position, bad.error.to_string());
            }
            EventItem::Event(event) => {
                self.result.events = self.result.events.saturating_add(1);
                match &event.event {
                    Event::Unknown(_) => {
                        self.result.unknown_events = self.result.unknown_events.saturating_add(1);
                    }
                    Event::GapMarked(gap) if !gap.explanation.is_empty() => {
                        self.gap(event.position, gap);
                    }
                    _ => {}
                }
                for receipt in receipts_of(&event.event) {
                    self.named.entry(receipt.digest).or_insert(event.position);
                }
                self.tree.apply(&event);
                self.ledger_check(*event);
            }
        }
    }

    /// What a salvage could not save is missing for ever, and nothing is wrong with the log that says so.
    fn gap(&mut self, at: Position, gap: &GapMarked) {
        self.find(Severity::Warning, "gap.marked", at, gap.explanation.clone());
        if let Some(finding) = self.result.findings.last_mut() {
            (finding.first, finding.last) = (gap.first.or(finding.first), gap.last.or(finding.last));
        }
    }

    /// Checks an event as if it were appended now. It is moved back and forth, since its content may be large.
    fn ledger_check(&mut self, event: LoggedEvent) {
        let (position, timestamp) = (event.position, event.timestamp);
        let new = as_new(event);
        // What was erased was appended lawfully once, and can't be looked at any more.
        let is_erased = matches!(new.event, Event::Erased { .. });
        if is_erased {
            self.erased.insert(new.node);
        }
        if let Err(broken) = self.ledger.check(&new)
            && !is_erased
            && !self.is_about_the_erased(&broken)
        {
            let text = format!("{}: {broken}", new.event.name());
            self.find(Severity::Warning, "law.broken", position, text);
        }
        self.ledger.apply(&as_logged(new, position, timestamp));
    }

    /// Whether an event is about a message or a call that is not there, where some were erased: the one it is about, then.
    fn is_about_the_erased(&self, broken: &LawBroken) -> bool {
        match broken {
            LawBroken::UnknownMessage { node, .. } | LawBroken::UnknownCall { node, .. } => {
                self.erased.contains(node)
            }
            _ => false,
        }
    }

    /// What a receipt stands for is there, whole.
    fn artifacts(&mut self, artifacts: &ArtifactReader) {
        for (digest, at) in std::mem::take(&mut self.named) {
            let Err(error) = artifacts.check(&digest) else { continue };
            let (severity, code) = match error.kind() {
                ErrorKind::NotFound => (Severity::Lost, "artifact.missing"),
                ErrorKind::Corrupt | ErrorKind::Invalid => (Severity::Lost, "artifact.damaged"),
                _ => (Severity::Warning, "artifact.unreadable"),
            };
            self.find(severity, code, at, format!("what a receipt stands for can't be read: {error}"));
            if let Some(finding) = self.result.findings.last_mut() {
                finding.file = artifacts.path(&digest);
            }
        }
    }

    /// The context that a provider would get must be legal whatever the log holds.
    fn contexts(&mut self) {
        let nodes: Vec<NodeId> = self.tree.nodes().collect();
        for node in nodes {
            if let Err(error) = validate_pairing(&self.tree.context(node)) {
                let text = format!("the context of node {node} breaks the pairing rules: {error}");
                self.find(Severity::Lost, "context.illegal", self.result.log.last, text);
            }
        }
    }
}

fn as_new(event: LoggedEvent) -> NewEvent {
    let LoggedEvent { node, timestamp, time_origin, cause, event, .. } = event;
    NewEvent { node, timestamp: Some(timestamp), time_origin, cause, key: None, event }
}
