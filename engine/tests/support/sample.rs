//! Small logs whose every byte is known, to be damaged in every way.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use sessionlog::ErrorKind;
use sessionlog::log::{
    Durability, LogOptions, LogReader, LogWriter, Recovering, SegmentName, Severity, TailState,
};
use sessionlog::storage::{CallKind, Fault, FaultError, SimStorage};
use sessionlog_codec::footer::LOCATOR_LEN;
use sessionlog_codec::frame::{Frame, KIND_FOOTER};
use sessionlog_codec::ids::Position;
use sessionlog_codec::limits::{FRAME_HEADER_LEN, SEGMENT_HEADER_LEN};
use sessionlog_codec::segment::SegmentHeader;

use super::{Logged, SEGMENTS, all, batch, content, create, dir, disk, last, logged, open, options, read};

/// A frame (or footer) of a segment that was not damaged.
#[derive(Clone, Debug)]
pub(crate) struct FrameAt {
    /// The bytes that its checksums cover, with a footer's locator: all but padding.
    pub(crate) covered: Vec<Range<usize>>,
    pub(crate) end: usize,
    pub(crate) next: Position,
    pub(crate) synced: Position,
    pub(crate) is_footer: bool,
}

impl FrameAt {
    pub(crate) fn start(&self) -> usize {
        self.covered[0].start
    }

    fn is_intact(&self, pristine: &[u8], bytes: &[u8]) -> bool {
        self.covered.iter().all(|range| bytes.get(range.clone()) == Some(&pristine[range.clone()]))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) name: SegmentName,
    pub(crate) bytes: Vec<u8>,
    pub(crate) frames: Vec<FrameAt>,
}

impl Segment {
    fn parse(name: SegmentName, bytes: Vec<u8>) -> Self {
        let header = SegmentHeader::decode(&bytes).unwrap();
        let (mut frames, mut at) = (Vec::new(), SEGMENT_HEADER_LEN);
        while bytes.get(at).is_some_and(|byte| *byte != 0) {
            let frame = Frame::decode(&bytes[at..], header.salt).unwrap();
            let (header, fields) = (frame.header(), &frame.header().fields);
            let mut covered = Vec::new();
            covered.push(at..at + FRAME_HEADER_LEN + header.body_len);
            at += header.frame_len();
            let is_footer = fields.kind == KIND_FOOTER;
            if is_footer {
                covered.push(at..at + LOCATOR_LEN);
                at += LOCATOR_LEN;
            }
            frames.push(FrameAt {
                covered,
                end: at,
                next: fields.next_position(),
                synced: fields.synced,
                is_footer,
            });
        }
        assert!(bytes[at..].iter().all(|byte| *byte == 0));
        Self { name, bytes, frames }
    }

    fn header_is_intact(&self, bytes: &[u8]) -> bool {
        bytes.get(..SEGMENT_HEADER_LEN) == Some(&self.bytes[..SEGMENT_HEADER_LEN])
    }

    /// The positions of the frames that are still there.
    fn intact_positions(&self, bytes: &[u8]) -> BTreeSet<u64> {
        let mut positions = BTreeSet::new();
        let mut first = self.name.0;
        for frame in &self.frames {
            if self.header_is_intact(bytes) && frame.is_intact(&self.bytes, bytes) {
                positions.extend(first.0..frame.next.0);
            }
            first = frame.next;
        }
        positions
    }
}

/// A log as it was written, and its records.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) log: Vec<Logged>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) options: LogOptions,
}

/// How a sample was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Closed,
    Open,
    /// The last segment sealed, and the next one not yet created.
    Sealed,
}

/// Frames of one record and of several, in groups of one and of several: see [`append_groups`].
pub(crate) const SMALL: &[&[&[usize]]] = &[
    &[&[5]],
    &[&[40, 0, 3], &[17]],
    &[&[9, 30]],
    &[&[100], &[3]],
    &[&[1, 2, 3]],
    &[&[64], &[11]],
    &[&[33]],
    &[&[8, 8], &[21], &[2]],
];

/// Appends groups of batches; those of one group are written together and synced once.
pub(crate) fn append_groups(writer: &LogWriter, groups: &[&[&[usize]]]) -> Vec<Logged> {
    let mut log = Vec::new();
    for (tag, group) in (1..).step_by(10).zip(groups) {
        let mut tickets = Vec::new();
        for (nth, lens) in (0..).zip(*group) {
            let first = writer.next();
            tickets.push(writer.enqueue(batch(tag + nth, lens), first, Durability::Sync).unwrap());
            log.extend(logged(first, tag + nth, lens));
        }
        for ticket in tickets {
            ticket.wait().unwrap();
        }
    }
    log
}

impl Sample {
    /// Five segments: the records 1 to 5, 6 to 8, 9 to 13, 14 to 17, and 18 and 19 in the one that is written to.
    pub(crate) fn closed() -> Self {
        let sample = Self::small(0, Left::Closed);
        let firsts: Vec<u64> = sample.segments.iter().map(|segment| segment.name.0.0).collect();
        assert_eq!((firsts, sample.log.len()), (vec![1, 6, 9, 14, 18], 19));
        sample
    }

    /// Segments of about 512 bytes.
    pub(crate) fn small(fill_len: u64, left: Left) -> Self {
        Self::of(SMALL, options(512, fill_len), left)
    }

    /// One segment of some sectors, the last group several of them.
    pub(crate) fn wide() -> Self {
        let groups: &[&[&[usize]]] =
            &[&[&[300]], &[&[700], &[20]], &[&[90, 400]], &[&[600], &[30], &[500], &[10, 10]]];
        Self::of(groups, options(1 << 20, 4096), Left::Open)
    }

    pub(crate) fn of(groups: &[&[&[usize]]], options: LogOptions, left: Left) -> Self {
        let storage = disk();
        let writer = create(&storage, options);
        let mut log = append_groups(&writer, groups);
        match left {
            Left::Closed => writer.close().unwrap(),
            Left::Open => {}
            Left::Sealed => {
                let first = writer.next();
                writer.append(batch(98, &[300]), Durability::Sync).unwrap();
                log.extend(logged(first, 98, &[300]));
                storage.fail(Fault::new(CallKind::Create, FaultError::EIO));
                assert!(writer.append(batch(99, &[1]), Durability::Sync).is_err(), "no segment was full");
            }
        }
        assert_eq!(all(&storage), log);
        let segments = storage.files().into_iter().map(|path| {
            let name = SegmentName::parse(path.file_name().unwrap().to_str().unwrap()).unwrap();
            Segment::parse(name, storage.read_file(path).unwrap())
        });
        let segments: Vec<_> = segments.collect();
        Self { log, segments, options }
    }

    pub(crate) fn path(name: SegmentName) -> PathBuf {
        PathBuf::from(SEGMENTS).join(name.to_string())
    }

    /// A disk with these bytes as the segments.
    pub(crate) fn disk_with(segments: &[(SegmentName, Vec<u8>)]) -> SimStorage {
        let storage = disk();
        for (name, bytes) in segments {
            storage.put_file(Self::path(*name), bytes.clone()).unwrap();
        }
        storage.take_calls();
        storage
    }

    pub(crate) fn files(&self) -> Vec<(SegmentName, Vec<u8>)> {
        self.segments.iter().map(|segment| (segment.name, segment.bytes.clone())).collect()
    }

    pub(crate) fn last_segment(&self) -> &Segment {
        self.segments.last().unwrap()
    }

    /// The files with other bytes in the `nth` segment.
    pub(crate) fn with(&self, nth: usize, change: impl FnOnce(&mut Vec<u8>)) -> Vec<(SegmentName, Vec<u8>)> {
        let mut files = self.files();
        change(&mut files[nth].1);
        files
    }
}

/// What recovery has to make of damaged files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The records up to here, and these bytes in quarantine.
    Recovers(Position, Vec<u8>),
    Refuses(ErrorKind),
}

/// How much of the laws a case is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Reading, verifying and opening it.
    Open,
    /// Also that it takes more afterwards, and that recovering it again changes nothing.
    Reopen,
}

impl Depth {
    /// The expensive part in every eighth case.
    pub(crate) fn of_case(nth: usize) -> Self {
        if nth % 8 == nth / 8 % 8 { Self::Reopen } else { Self::Open }
    }
}

impl Sample {
    /// What has to come of a log whose last segment has these bytes, worked out frame by frame from what was written.
    pub(crate) fn expected(&self, bytes: &[u8]) -> Expected {
        let segment = self.last_segment();
        let before = Position(segment.name.0.0 - 1);
        if !segment.header_is_intact(bytes) {
            return match bytes.len() {
                0..=SEGMENT_HEADER_LEN if before == Position::START => Expected::Refuses(ErrorKind::NotFound),
                0..=SEGMENT_HEADER_LEN => Expected::Recovers(before, Vec::new()),
                _ => Expected::Refuses(ErrorKind::Corrupt),
            };
        }
        let intact = |frame: &&FrameAt| frame.is_intact(&segment.bytes, bytes);
        let whole = segment.frames.iter().take_while(intact).count();
        let (kept, behind) = segment.frames.split_at(whole);
        let next = kept.last().map_or(segment.name.0, |frame| frame.next);
        let end = kept.last().map_or(SEGMENT_HEADER_LEN, |frame| frame.end);
        let witnessed = behind.iter().filter(intact).map(|frame| frame.synced).max().unwrap_or_default();
        if witnessed >= next {
            return Expected::Refuses(ErrorKind::Corrupt);
        }
        if next == Position(1) {
            return Expected::Refuses(ErrorKind::NotFound);
        }
        let cut = bytes.get(end..).unwrap_or_default();
        let used = cut.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        Expected::Recovers(Position(next.0 - 1), cut[..used].to_vec())
    }

    /// Holds damaged files against every law. `expected` is what recovery has to do, where it is known exactly.
    pub(crate) fn check(&self, files: &[(SegmentName, Vec<u8>)], expected: Option<&Expected>, what: &str) {
        self.check_to(Depth::Reopen, files, expected, what);
    }

    pub(crate) fn check_to(
        &self,
        depth: Depth,
        files: &[(SegmentName, Vec<u8>)],
        expected: Option<&Expected>,
        what: &str,
    ) {
        let found = self.check_opening(files, expected, what);
        if let (Depth::Reopen, (storage, Expected::Recovers(last, _))) = (depth, &found) {
            self.check_recovered(storage, *last, what);
        }
    }

    fn check_opening(
        &self,
        files: &[(SegmentName, Vec<u8>)],
        expected: Option<&Expected>,
        what: &str,
    ) -> (SimStorage, Expected) {
        let storage = Self::disk_with(files);
        let before = content(&storage);
        let seen = read(&storage, Position(1)).ok();
        let verified = LogReader::new(dir(&storage)).verify().ok();
        assert_eq!(content(&storage), before, "{what}: a reader changed a file");
        if let Some(seen) = &seen {
            for record in &seen.records {
                let index = usize::try_from(record.position.0).unwrap() - 1;
                assert_eq!(self.log.get(index), Some(record), "{what}: not what was appended");
            }
            assert!(seen.records.is_sorted_by_key(|record| record.position), "{what}");
            assert!(seen.records.windows(2).all(|pair| pair[0].position < pair[1].position), "{what}");
        }
        let found = match open(&storage, self.options) {
            Ok((writer, report)) => {
                drop(writer);
                let kept = storage.files().into_iter().filter(|path| !path.starts_with(SEGMENTS));
                let kept: Vec<_> = kept.map(|path| storage.read_file(path).unwrap()).collect();
                assert!(kept.len() <= 1 && report.cut.is_some() == (kept.len() == 1), "{what}: {report:?}");
                Expected::Recovers(report.last, kept.concat())
            }
            Err(error) => {
                let kind = error.kind();
                let known = [ErrorKind::Corrupt, ErrorKind::Unsupported, ErrorKind::NotFound];
                assert!(known.contains(&kind), "{what}: {error:?}");
                assert_eq!(content(&storage), before, "{what}: a refusal changed a file");
                Expected::Refuses(kind)
            }
        };
        if let Some(expected) = expected {
            assert_eq!(&found, expected, "{what}");
        }
        if let (Some(seen), Some(verified)) = (&seen, &verified) {
            let lost = verified.findings.iter().any(|finding| finding.severity == Severity::Lost);
            let refused = matches!(found, Expected::Refuses(kind) if kind != ErrorKind::NotFound);
            assert_eq!(lost, refused || !seen.gaps.is_empty(), "{what}: {verified:#?}");
            self.check_gaps(files, seen, &found, what);
        }
        (storage, found)
    }

    /// The records that a reader gives, and where it says that some are missing.
    fn check_gaps(&self, files: &[(SegmentName, Vec<u8>)], seen: &super::Seen, found: &Expected, what: &str) {
        let read: BTreeSet<_> = seen.records.iter().map(|record| record.position.0).collect();
        let total = last(&self.log).0;
        if let Expected::Recovers(end, _) = found {
            // Only earlier segments can have gaps in a log that opens; at the end, reader and recovery agree.
            let from = files.last().map_or(1, |(name, _)| name.0.0);
            let missing: Vec<_> = (from..=end.0).filter(|position| !read.contains(position)).collect();
            assert_eq!(missing, [0_u64; 0], "{what}");
            assert!(
                read.last().is_none_or(|last| *last <= end.0),
                "{what}: the reader went on behind the cut"
            );
        }
        let mut intact = BTreeSet::new();
        for (name, bytes) in files {
            if let Some(segment) = self.segments.iter().find(|segment| segment.name == *name) {
                let mut positions = segment.intact_positions(bytes);
                if *name == self.last_segment().name
                    && let Expected::Recovers(end, _) = self.expected(bytes)
                {
                    positions.retain(|position| *position <= end.0);
                }
                intact.append(&mut positions);
            }
        }
        let lost: Vec<_> = intact.difference(&read).collect();
        assert!(lost.is_empty(), "{what}: whole frames were not read: {lost:?}");
        let mut told = BTreeSet::new();
        for gap in &seen.gaps {
            let last = gap.last.map_or(total, |last| last.0);
            let positions: BTreeSet<_> = (gap.first.0..=last).collect();
            assert!(positions.is_disjoint(&told), "{what}: told twice: {gap:?}");
            assert!(gap.last.is_none() || !positions.is_empty(), "{what}: an empty gap: {gap:?}");
            told.extend(positions);
        }
        assert!(told.is_disjoint(&read), "{what}: read although said to be missing");
        let end = read.last().copied().unwrap_or(0);
        let silent: Vec<_> = (1..=end).filter(|p| !read.contains(p) && !told.contains(p)).collect();
        assert!(silent.is_empty(), "{what}: silently missing: {silent:?}");
    }

    /// A recovered log is a prefix, takes more, and recovering it again changes nothing.
    fn check_recovered(&self, storage: &SimStorage, last_position: Position, what: &str) {
        let kept = usize::try_from(last_position.0).unwrap();
        assert!(kept <= self.log.len(), "{what}: more than was appended");
        let recovered = content(storage);
        let reader = LogReader::new(dir(storage));
        let (writer, report) = open(storage, self.options).unwrap();
        assert_eq!((report.last, &report.cut, report.removed), (last_position, &None, None), "{what}");
        assert_eq!(content(storage), recovered, "{what}: a second recovery changed something");
        let first = writer.next();
        assert_eq!(first.0, last_position.0 + 1, "{what}");
        writer.append(batch(77, &[12, 3]), Durability::Sync).unwrap();
        let seen = read(storage, Position(1)).unwrap();
        let mut expected = self.log[..kept].to_vec();
        if !seen.gaps.is_empty() {
            let read: BTreeSet<_> = seen.records.iter().map(|record| record.position).collect();
            expected.retain(|record| read.contains(&record.position));
        }
        expected.extend(logged(first, 77, &[12, 3]));
        assert_eq!(seen.records, expected, "{what}");
        assert_eq!(seen.tail, TailState::Clean, "{what}");
        drop(writer);
        let again = Recovering::open(dir(storage), self.options, Position::START).unwrap();
        assert_eq!(again.assessment().last(), Position(first.0 + 1), "{what}");
        reader.verify().unwrap();
    }
}
