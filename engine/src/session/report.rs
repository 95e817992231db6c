//! What resuming a session found and did.

use std::fmt;

use sessionlog_codec::ids::{Epoch, NodeId, Position, TurnNo};
use sessionlog_projections::OpenCall;
use sessionlog_projections::recovery::Step;

use crate::log::Cut;

/// How the owner before let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviousEnd {
    /// In order.
    Closed,
    /// It was killed, crashed, or lost power.
    Crashed,
}

/// What resuming a session found and did. All of it is in the log.
#[derive(Clone, Debug)]
pub struct RecoveryReport {
    /// How the owner before let go.
    pub previous_end: PreviousEnd,
    /// The number of this ownership.
    pub epoch: Epoch,
    /// The last record of the owner before.
    pub last: Position,
    /// A torn tail that was moved into quarantine: bytes that nothing proves to have been acknowledged.
    pub cut: Option<Cut>,
    /// Calls that were started and never answered. Each has an `unknown` result now, recorded by this resume: the model is
    /// told, and nothing runs them again. Calls that were declared pure are not among them: they are run again.
    pub unknown_calls: Vec<OpenCall>,
    /// Calls that the model asked for and nobody started: safe to run, or to leave.
    pub not_started_calls: Vec<OpenCall>,
    /// What was recorded by this resume, since it needs no host: unknown outcomes, results that were not delivered yet,
    /// children that nobody waits for.
    pub settled: Vec<Step>,
    /// What is left to the host, the deepest conversation first: see [`Session::work`](crate::Session::work).
    pub owed: Vec<Step>,
    /// Turns that were open. They are ended as interrupted now.
    pub interrupted_turns: Vec<(NodeId, TurnNo)>,
    /// Records whose payload was erased now, since the owner before had decided that and did not get to it.
    pub erased: u64,
    /// The last record that the snapshot holds which the session was opened from; `None`: its whole log was read.
    pub snapshot: Option<Position>,
    /// Views that did not match the log and were made anew.
    pub rebuilt_views: Vec<String>,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.previous_end {
            PreviousEnd::Closed => "The session was closed in order.",
            PreviousEnd::Crashed => "The session's last owner did not close it: it was killed or crashed.",
        };
        writeln!(f, "{end}")?;
        writeln!(f, "Everything up to position {} is there; this is ownership {}.", self.last, self.epoch)?;
        if let Some(cut) = &self.cut {
            let (len, offset, kept) = (cut.tail.len, cut.tail.offset, cut.quarantine.display());
            let segment = cut.segment;
            writeln!(
                f,
                "{len} bytes at byte {offset} of {segment} were never acknowledged and are kept in {kept}."
            )?;
        }
        for call in &self.unknown_calls {
            let OpenCall { name, call_id, .. } = call;
            writeln!(
                f,
                "Call {call_id} ({name}) had started: its outcome is unknown, and it was not run again."
            )?;
        }
        for call in &self.not_started_calls {
            let OpenCall { name, call_id, .. } = call;
            writeln!(f, "Call {call_id} ({name}) had not started.")?;
        }
        for step in self.settled.iter().chain(&self.owed) {
            match step {
                Step::ReportUnknown { .. } | Step::MarkNotStarted { .. } | Step::ContinueTurn { .. } => {}
                step => writeln!(f, "{step}")?,
            }
        }
        for (node, turn) in &self.interrupted_turns {
            writeln!(f, "Turn {turn} of node {node} was interrupted.")?;
        }
        if self.erased > 0 {
            writeln!(f, "{} records that were to be erased are erased now.", self.erased)?;
        }
        for view in &self.rebuilt_views {
            writeln!(f, "{view} did not match the log and was made anew.")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sessionlog_codec::ids::{CallRef, Digest, MessageNo, ToolIndex};
    use sessionlog_projections::OpenState;

    use super::*;
    use crate::log::{SegmentName, TornTail};

    fn call(call_id: &str, state: OpenState) -> OpenCall {
        OpenCall {
            node: NodeId::ROOT,
            call: CallRef { message_no: MessageNo(1), tool_index: ToolIndex(0) },
            call_id: call_id.into(),
            name: "run".into(),
            arguments_digest: Digest([0; 32]),
            state,
        }
    }

    fn nothing() -> RecoveryReport {
        RecoveryReport {
            previous_end: PreviousEnd::Closed,
            epoch: Epoch(3),
            last: Position(9),
            cut: None,
            unknown_calls: Vec::new(),
            not_started_calls: Vec::new(),
            settled: Vec::new(),
            owed: Vec::new(),
            interrupted_turns: Vec::new(),
            erased: 0,
            snapshot: None,
            rebuilt_views: Vec::new(),
        }
    }

    /// The person who reads it after a crash is told each thing once, and nothing that is not so.
    #[test]
    fn a_report_says_what_was_found_and_nothing_else() {
        let quiet =
            "The session was closed in order.\nEverything up to position 9 is there; this is ownership 3.\n";
        assert_eq!(nothing().to_string(), quiet);
        let tail = TornTail { offset: 400, len: 17, later_frames: 0, error: "cut short".into() };
        let cut = Cut { segment: SegmentName(Position(5)), tail, quarantine: "q/5.torn".into() };
        let report = RecoveryReport {
            previous_end: PreviousEnd::Crashed,
            cut: Some(cut),
            unknown_calls: vec![call("c1", OpenState::NotStarted)],
            not_started_calls: vec![call("c2", OpenState::NotStarted)],
            settled: vec![Step::SettleUnknown { child: NodeId(4) }],
            interrupted_turns: vec![(NodeId(2), TurnNo(7))],
            erased: 2,
            rebuilt_views: vec!["transcript.jsonl".into()],
            ..nothing()
        };
        let settled = Step::SettleUnknown { child: NodeId(4) };
        assert_eq!(
            report.to_string(),
            format!(
                "The session's last owner did not close it: it was killed or crashed.\n\
                 Everything up to position 9 is there; this is ownership 3.\n\
                 17 bytes at byte 400 of 00000000000000000005.seg were never acknowledged and are kept in q/5.torn.\n\
                 Call c1 (run) had started: its outcome is unknown, and it was not run again.\n\
                 Call c2 (run) had not started.\n\
                 {settled}\n\
                 Turn 7 of node 2 was interrupted.\n\
                 2 records that were to be erased are erased now.\n\
                 transcript.jsonl did not match the log and was made anew.\n"
            )
        );
    }
}
