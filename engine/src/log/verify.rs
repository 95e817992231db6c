//! The whole check of a log, read-only: every checksum, every link, every footer.

use std::path::PathBuf;

use sessionlog_codec::footer::{self, FooterEntry};
use sessionlog_codec::frame::{Frame, KIND_FOOTER, KIND_RECORDS};
use sessionlog_codec::ids::{Digest, Epoch, LogId, Position, SegmentNo};
use sessionlog_codec::segment::SegmentHeader;
use sessionlog_codec::{DecodeError, DecodeErrorKind};

use super::links::is_first;
use super::reader::LogReader;
use super::recovery::{HeaderProblem, Verdict, assess_file};
use super::scan::{Scan, Span};
use super::segment::SegmentName;
use super::unpacked::Unpacked;
use crate::error::Result;
use crate::num::to_u64;

/// How bad a finding is, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Odd, but nothing is lost or in the way.
    Warning,
    /// The next owner repairs it by itself, and nothing acknowledged is in it.
    Repairable,
    /// Acknowledged data is hurt or missing.
    Lost,
}

/// One thing that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable word for machines.
    pub code: &'static str,
    /// The file.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// The first position concerned, where there is one.
    pub first: Option<Position>,
    /// The last one.
    pub last: Option<Position>,
    /// In plain words.
    pub explanation: String,
}

/// What the check of a log counted and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogVerification {
    /// Segment files.
    pub segments: u64,
    /// Whole frames of records.
    pub frames: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of all segment files.
    pub bytes: u64,
    /// Bytes of all segments: more, where some are compressed.
    pub unpacked_bytes: u64,
    /// The last record's position.
    pub last: Position,
    /// The last frame's chain hash.
    pub chain: Digest,
    /// The log's id; of a fork, its own.
    pub log_id: Option<LogId>,
    /// What is wrong or worth knowing, in order.
    pub findings: Vec<Finding>,
}

impl LogReader {
    /// Checks every byte of the log: headers, links between segments, frame and body checksums, record structure, the hash
    /// chain, footers. Nothing is changed. One segment is in memory at a time.
    ///
    /// # Errors
    /// `NotFound` if there is no log; `Io` if a file can't be read. What is wrong with readable bytes is a finding.
    pub fn verify(&self) -> Result<LogVerification> {
        let mut segments = self.segments()?;
        let mut check = Check { reader: self, result: LogVerification::default(), previous: None };
        let mut half_created = None;
        if let Some((name, _)) = segments.last().copied() {
            let (bytes, assessed) = self.last(name)?;
            if assessed.err() == Some(HeaderProblem::HalfCreated) {
                half_created = Some((name, bytes));
                segments.pop();
            }
        }
        for (index, (name, _)) in segments.iter().enumerate() {
            let is_last = index.saturating_add(1) == segments.len();
            let bytes = if is_last { self.last(*name)?.0 } else { self.dir().read_all(*name)? };
            check.count(&bytes);
            check.file(*name, &bytes);
            // As recovery sees it: all before a segment was durable when it was created.
            let next = half_created.as_ref().map(|(SegmentName(next), _)| next.0);
            let witnessed = next.map_or(0, |next| next.saturating_sub(1));
            let place = if is_last { Place::Last(Position(witnessed)) } else { Place::Earlier };
            check.segment(*name, &bytes, place);
        }
        if let Some((name, bytes)) = half_created {
            check.count(&bytes);
            check.half_created(name, to_u64(bytes.len()), segments.is_empty());
        }
        Ok(check.result)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Earlier,
    /// Up to this position, something behind it proves that its records were durable.
    Last(Position),
}

/// The end of the segment before.
struct Previous {
    log_id: LogId,
    segment_no: SegmentNo,
    next: Position,
    /// `None` after damage: the chain can't be followed across it.
    chain: Option<Digest>,
}

struct Check<'a> {
    reader: &'a LogReader,
    result: LogVerification,
    previous: Option<Previous>,
}

impl Check<'_> {
    fn find(
        &mut self,
        severity: Severity,
        code: &'static str,
        name: SegmentName,
        span: (u64, u64),
        text: String,
    ) {
        self.result.findings.push(Finding {
            severity,
            code,
            file: self.reader.dir().segment_path(name),
            offset: span.0,
            len: span.1,
            first: None,
            last: None,
            explanation: text,
        });
    }

    fn concerning(&mut self, first: Position, last: Option<Position>) {
        if let Some(finding) = self.result.findings.last_mut() {
            finding.first = Some(first);
            finding.last = last;
        }
    }

    /// What is wrong with a compressed file whose segment is whole all the same.
    fn file(&mut self, name: SegmentName, bytes: &Unpacked) {
        for text in bytes.notes() {
            self.find(Severity::Warning, "segment.head", name, (0, bytes.stored_len()), text.clone());
        }
    }

    fn segment(&mut self, name: SegmentName, bytes: &Unpacked, place: Place) {
        let whole = (0, to_u64(bytes.len()));
        let header = match SegmentHeader::decode(bytes) {
            Ok(header) => header,
            Err(error) => return self.bad_header(name, bytes, &error),
        };
        // Of a fork, the segments it wrote itself say who it is.
        if self.result.log_id.is_none_or(|log_id| header.forked_from == Some(log_id)) {
            self.result.log_id = Some(header.log_id);
        }
        if header.first_position != name.0 {
            let text = format!("its name and its header disagree: {} and {}", name.0, header.first_position);
            self.find(Severity::Lost, "segment.name", name, whole, text);
        }
        self.check_link(name, &header);
        let mut torn_at = None;
        if let Place::Last(witnessed) = place {
            torn_at = self.check_tail(name, bytes, witnessed);
        }
        self.frames(name, bytes, &header, place, torn_at);
    }

    fn count(&mut self, bytes: &Unpacked) {
        let result = &mut self.result;
        result.segments = result.segments.saturating_add(1);
        result.bytes = result.bytes.saturating_add(bytes.stored_len());
        result.unpacked_bytes = result.unpacked_bytes.saturating_add(to_u64(bytes.len()));
    }

    fn half_created(&mut self, name: SegmentName, len: u64, is_first: bool) {
        let (code, text) = if is_first {
            ("log.half_created", "the session's creation did not finish: no record was ever acknowledged")
        } else {
            let text = "creating this segment did not finish; the next owner removes it. No record was in it";
            ("segment.half_created", text)
        };
        self.find(Severity::Repairable, code, name, (0, len), text.to_owned());
    }

    fn bad_header(&mut self, name: SegmentName, bytes: &[u8], error: &DecodeError) {
        let span = (0, to_u64(bytes.len()));
        self.previous = None;
        if error.kind() == DecodeErrorKind::Unsupported {
            let text = format!("a newer version wrote it: {error}");
            return self.find(Severity::Warning, "segment.newer", name, span, text);
        }
        let text = format!("the segment's header is hurt, so none of its frames can be trusted: {error}");
        self.find(Severity::Lost, "segment.header", name, span, text);
    }

    fn check_link(&mut self, name: SegmentName, header: &SegmentHeader) {
        let Some(previous) = &self.previous else {
            if header.segment_no.0 != 0 && self.result.segments == 1 {
                let text = format!("{} segments before it are missing", header.segment_no);
                self.find(Severity::Lost, "segment.missing", name, (0, 0), text);
                self.concerning(Position(1), Some(Position(header.first_position.0.saturating_sub(1))));
            } else if header.segment_no.0 == 0 && !is_first(header) {
                let text = "its header names another chain hash than the log's first one".to_owned();
                self.find(Severity::Lost, "chain.broken", name, (0, 0), text);
            }
            return;
        };
        let same_log = header.log_id == previous.log_id || header.forked_from == Some(previous.log_id);
        let follows = previous.segment_no.next() == Some(header.segment_no);
        let (next, chain) = (previous.next, previous.chain);
        if !same_log {
            let text = format!("it belongs to another log ({})", header.log_id);
            self.find(Severity::Lost, "segment.foreign", name, (0, 0), text);
        }
        if header.first_position != next || !follows {
            let text = format!("it starts at position {}, but {next} comes next", header.first_position);
            self.find(Severity::Lost, "segment.gap", name, (0, 0), text);
            self.concerning(next, Some(Position(header.first_position.0.saturating_sub(1))));
        } else if chain.is_some_and(|chain| chain != header.previous) {
            let text = "its header names another chain hash than the segment before it ends with".to_owned();
            self.find(Severity::Lost, "chain.broken", name, (0, 0), text);
        }
    }

    /// Reports a torn tail, and where it starts.
    fn check_tail(&mut self, name: SegmentName, bytes: &Unpacked, witnessed: Position) -> Option<usize> {
        let assessment = assess_file(bytes, witnessed).ok()?;
        if assessment.last() == Position::START
            && matches!(assessment.verdict, Verdict::Clean | Verdict::TornTail(_))
        {
            self.half_created(name, to_u64(bytes.len()), true);
            return Some(assessment.end.offset);
        }
        let Verdict::TornTail(torn) = assessment.verdict else { return None };
        let text = format!(
            "the log ends in {} bytes that nothing proves to have been acknowledged ({}): an append that is under way \
             or was cut short. The next owner keeps them in quarantine and goes on from position {}",
            torn.len, torn.error, assessment.end.next
        );
        self.find(Severity::Repairable, "tail.torn", name, (torn.offset, torn.len), text);
        Some(assessment.end.offset)
    }

    fn frames(
        &mut self,
        name: SegmentName,
        bytes: &Unpacked,
        header: &SegmentHeader,
        place: Place,
        torn_at: Option<usize>,
    ) {
        let mut chain = Some(header.previous);
        let mut next = header.first_position;
        let mut epoch = header.epoch;
        let mut entries = Vec::new();
        let (mut sealed, mut newer) = (false, false);
        let end = torn_at.unwrap_or(usize::MAX);
        for span in Scan::over(bytes, header).take_while(|span| span.offset() < end) {
            match span {
                Span::Bad { offset, len, error } => {
                    let text = format!("{len} bytes are hurt: {error}");
                    self.find(Severity::Lost, "frame.damaged", name, (to_u64(offset), to_u64(len)), text);
                    self.concerning(next, None);
                    chain = None;
                }
                Span::Frame { offset, frame } | Span::OutOfOrder { offset, frame, .. } => {
                    self.check_epoch(name, offset, &frame, &mut epoch);
                    self.frame(name, offset, &frame, &mut next, &mut chain, &mut entries);
                    sealed = frame.header().fields.kind == KIND_FOOTER;
                }
                Span::Newer { offset, error } => {
                    let text = format!("a newer version wrote from here on: {error}");
                    self.find(Severity::Warning, "frame.newer", name, (to_u64(offset), 0), text);
                    newer = true;
                }
                Span::End { offset } => self.unused(name, bytes, offset),
            }
        }
        if let Place::Last(witnessed) = place
            && !newer
            && let witnessed = witnessed.max(bytes.witnessed())
            && witnessed >= next
        {
            let text = format!("positions {next} to {witnessed} are missing at its end");
            self.find(Severity::Lost, "segment.gap", name, (to_u64(bytes.len()), 0), text);
            self.concerning(next, Some(witnessed));
        }
        if place == Place::Earlier && !sealed && !newer {
            let text = "a segment follows it, but it has no footer: its end is hurt or missing".to_owned();
            self.find(Severity::Lost, "segment.unsealed", name, (to_u64(bytes.len()), 0), text);
        }
        self.result.last = Position(next.0.saturating_sub(1));
        self.result.chain = chain.unwrap_or(self.result.chain);
        // Where a newer version wrote the rest, nobody knows here what the next segment has to follow.
        let end = Previous { log_id: header.log_id, segment_no: header.segment_no, next, chain };
        self.previous = (!newer).then_some(end);
    }

    fn check_epoch(&mut self, name: SegmentName, offset: usize, frame: &Frame<'_>, epoch: &mut Epoch) {
        let fields = &frame.header().fields;
        if fields.epoch < *epoch {
            let text =
                format!("an owner (epoch {}) wrote it after another ({epoch}) had taken over", fields.epoch);
            let span = (to_u64(offset), to_u64(frame.header().frame_len()));
            self.find(Severity::Lost, "frame.fenced", name, span, text);
            self.concerning(fields.first_position, None);
        }
        *epoch = (*epoch).max(fields.epoch);
    }

    fn unused(&mut self, name: SegmentName, bytes: &[u8], offset: usize) {
        let len = bytes.len().saturating_sub(offset);
        if len > 0 {
            let text =
                format!("{len} bytes at the end are not used yet (the session is open, or was not closed)");
            self.find(Severity::Note, "space.unused", name, (to_u64(offset), to_u64(len)), text);
        }
    }

    fn frame(
        &mut self,
        name: SegmentName,
        offset: usize,
        frame: &Frame<'_>,
        next: &mut Position,
        chain: &mut Option<Digest>,
        entries: &mut Vec<FooterEntry>,
    ) {
        let fields = &frame.header().fields;
        let span = (to_u64(offset), to_u64(frame.header().frame_len()));
        if fields.first_position > *next {
            let last = Position(fields.first_position.0.saturating_sub(1));
            let text = format!("positions {next} to {last} are missing before this frame");
            self.find(Severity::Lost, "frame.gap", name, span, text);
            self.concerning(*next, Some(last));
            *chain = None;
        }
        if fields.kind == KIND_FOOTER {
            if chain.is_some_and(|chain| chain != frame.header().chain) {
                let text = "the footer names another chain hash than the frame before it".to_owned();
                self.find(Severity::Lost, "chain.broken", name, span, text);
            }
            return self.check_footer(name, span, frame, entries);
        }
        if fields.kind != KIND_RECORDS {
            let text = format!("a frame of kind {} that this version skips", fields.kind);
            return self.find(Severity::Note, "frame.skipped", name, span, text);
        }
        if let Some(previous) = chain
            && frame.chain_after(previous) != frame.header().chain
        {
            let text =
                "its chain hash does not follow from the frame before it: something was changed on purpose";
            self.find(Severity::Lost, "chain.broken", name, span, text.to_owned());
            self.concerning(fields.first_position, None);
        }
        *chain = Some(frame.header().chain);
        *next = fields.next_position();
        self.result.frames = self.result.frames.saturating_add(1);
        self.result.records = self.result.records.saturating_add(to_u64(frame.records().len()));
        let frame_offset = u32::try_from(offset).unwrap_or(u32::MAX);
        entries.extend(frame.records().iter().map(|record| FooterEntry::of(&record.envelope, frame_offset)));
    }

    fn check_footer(
        &mut self,
        name: SegmentName,
        span: (u64, u64),
        frame: &Frame<'_>,
        entries: &[FooterEntry],
    ) {
        if footer::decode(frame).ok().as_deref() != Some(entries)
            && self.result.findings.iter().all(|f| f.severity < Severity::Lost)
        {
            let text =
                "the segment's index does not match its records; it can be rebuilt from them".to_owned();
            self.find(Severity::Warning, "footer.wrong", name, span, text);
        }
    }
}
