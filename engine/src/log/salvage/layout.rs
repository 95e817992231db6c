//! Which files belong to a log, its whole frames in order, and the spans between them that are lost.

use std::collections::{BTreeMap, BTreeSet};

use sessionlog_codec::footer::FooterEntry;
use sessionlog_codec::frame::Frame;
use sessionlog_codec::ids::{Digest, Epoch, LogId, Position, SegmentNo};

use super::find::{Found, within_segment};
use super::{Hole, LeftOut, Loss, LostSpan, SegmentFile, Survey, too_long};
use crate::error::{Error, ErrorKind, Result};
use crate::log::unpacked::Unpacked;
use crate::num::to_u64;

/// The most records of one span that are marked.
const SPAN_RECORDS_MAX: u64 = 1 << 24;

/// One thing of a layout, in the order of the log.
#[derive(Clone, Debug)]
enum LayoutItem {
    /// A whole frame: of which file, and where.
    Frame(usize, Found),
    /// A span, by its number.
    Span(usize),
}

/// A log as it can be saved.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    survey: Survey,
    files: Vec<usize>,
    items: Vec<LayoutItem>,
    pub(crate) spans: Vec<LostSpan>,
    pub(crate) left_out: Vec<LeftOut>,
    /// The last position that something proves to have been durable.
    pub(crate) witnessed: Position,
    /// Whole frames that stand in the log a second time.
    pub(crate) repeated: u64,
    /// Frames of a newer kind that may be left out.
    pub(crate) skipped: u64,
}

/// One thing that is visited.
pub(crate) enum Item<'a> {
    /// A whole frame.
    Frame {
        frame: Frame<'a>,
        /// Its ownership, or the one before it if that is later.
        epoch: Epoch,
        link: Link,
    },
    /// A lost span, with what indexes tell of its records.
    Span { span: &'a LostSpan, known: &'a dyn Fn(Position) -> Option<FooterEntry> },
}

/// Whether the hash chain vouches for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// It does, or there is nothing before it to tell.
    Sound,
    /// It does not follow from the frame before it.
    Broken,
}

impl Survey {
    /// The logs that there are segments of, each with those that it was forked from: the one with the most frames first.
    /// Empty if no header is whole.
    ///
    /// # Errors
    /// `Io` if a file can't be read again.
    pub(crate) fn lineages(&self) -> Result<Vec<BTreeSet<LogId>>> {
        let known = || self.files.iter().filter_map(|file| Some((file, self.identified(file)?.0)));
        let headers = self.files.iter().filter_map(|file| file.header.as_ref());
        let mut origins: BTreeMap<LogId, LogId> =
            headers.filter_map(|header| Some((header.log_id, header.forked_from?))).collect();
        let ids: BTreeSet<LogId> = known().map(|(_, id)| id).collect();
        // The header that names the origin may be the one that is hurt; then the chain tells it.
        let named: Vec<(&SegmentFile, LogId)> = known().collect();
        for pair in named.windows(2) {
            let [(before, origin), (after, id)] = pair else { continue };
            if id != origin && !origins.contains_key(id) && self.chained(before, after)? {
                origins.insert(*id, *origin);
            }
        }
        let leaves =
            ids.iter().filter(|id| !origins.iter().any(|(of, origin)| origin == *id && ids.contains(of)));
        let mut lineages: Vec<(usize, BTreeSet<LogId>)> = leaves
            .map(|leaf| {
                let mut lineage = BTreeSet::new();
                let mut at = Some(*leaf);
                while let Some(id) = at.filter(|id| lineage.insert(*id)) {
                    at = origins.get(&id).copied();
                }
                let own = known().filter(|(_, id)| lineage.contains(id));
                (own.map(|(file, _)| file.pieces.frames.len()).sum(), lineage)
            })
            .collect();
        lineages.sort_by_key(|(frames, _)| std::cmp::Reverse(*frames));
        Ok(lineages.into_iter().map(|(_, lineage)| lineage).collect())
    }

    /// Whether the first frame of a file follows from the last one of another by position and by chain.
    fn chained(&self, before: &SegmentFile, after: &SegmentFile) -> Result<bool> {
        let (Some(last), Some(first)) = (before.pieces.frames.last(), after.pieces.frames.first()) else {
            return Ok(false);
        };
        if last.next != first.first {
            return Ok(false);
        }
        let bytes = self.dir.read_all(after.name)?;
        let there = bytes.get(first.offset..).unwrap_or_default();
        let frame = Frame::decode(there, after.salt);
        Ok(frame.is_ok_and(|frame| frame.chain_after(&last.chain) == first.chain))
    }

    /// The log of these ids, in order. `None`: of whatever is there.
    ///
    /// # Errors
    /// `NotFound` if there is no whole frame; `Corrupt` if a span is too long to be marked; `Io`.
    pub(crate) fn layout(&self, lineage: Option<&BTreeSet<LogId>>) -> Result<Layout> {
        let mut left_out = self.left_out.clone();
        let chosen = self.chosen(lineage, &mut left_out)?;
        let files = chosen.iter().filter_map(|index| self.files.get(*index));
        if files.clone().all(|file| file.pieces.frames.is_empty()) {
            let message = format!("there is no whole frame of a log in {}", self.dir.segments.display());
            return Err(Error::new(ErrorKind::NotFound, "salvage.nothing", message));
        }
        let layout = Layout {
            survey: self.clone(),
            files: chosen.clone(),
            items: Vec::new(),
            spans: Vec::new(),
            left_out,
            witnessed: self.witnessed(&files.clone().collect::<Vec<_>>()),
            repeated: files.clone().map(|file| to_u64(file.pieces.repeated.len())).sum(),
            skipped: files.map(|file| to_u64(file.pieces.skipped.len())).sum(),
        };
        Arranging { layout, expected: Position(1) }.arrange(&chosen)
    }

    /// The last position that something proves to have been durable.
    fn witnessed(&self, files: &[&SegmentFile]) -> Position {
        let mut witnessed = self.begun.map_or(0, |begun| begun.0.saturating_sub(1));
        for file in files {
            let frames = file.pieces.frames.iter().map(|frame| frame.synced.0);
            let hurt = file.pieces.hurt.iter().map(|hurt| hurt.synced.0);
            let index = file.pieces.index.iter().map(|index| index.next.0.saturating_sub(1));
            // A segment is begun when all before it is durable.
            let before = file.first().0.saturating_sub(1);
            witnessed = frames
                .chain(hurt)
                .chain(index)
                .chain([before, witnessed, file.witnessed.0])
                .max()
                .unwrap_or(0);
        }
        Position(witnessed)
    }

    /// The files of the log, in order.
    fn chosen(&self, lineage: Option<&BTreeSet<LogId>>, left_out: &mut Vec<LeftOut>) -> Result<Vec<usize>> {
        let ours = |id: &LogId| lineage.is_none_or(|lineage| lineage.contains(id));
        let mut ends: BTreeMap<LogId, SegmentNo> = BTreeMap::new();
        for header in self.files.iter().filter_map(|file| file.header.as_ref()).filter(|it| ours(&it.log_id))
        {
            if let Some(origin) = header.forked_from {
                let end = ends.entry(origin).or_insert(header.segment_no);
                *end = (*end).min(header.segment_no);
            }
        }
        let mut numbered: BTreeMap<SegmentNo, usize> = BTreeMap::new();
        let mut chosen = Vec::new();
        for (index, file) in self.files.iter().enumerate() {
            let mut leave = |file: &SegmentFile, why: String| {
                left_out.push(LeftOut { file: file.name.to_string(), why });
            };
            match self.identified(file) {
                Some((id, _)) if !ours(&id) => leave(file, format!("a segment of another log ({id})")),
                Some((id, number)) if ends.get(&id).is_some_and(|end| number >= *end) => {
                    leave(
                        file,
                        format!("a segment of the log that this one was forked from ({id}), behind the fork"),
                    );
                }
                Some((_, number)) => match numbered.get(&number).and_then(|other| self.files.get(*other)) {
                    Some(other) if is_better(other, file) => {
                        leave(file, format!("a copy of {}: both are segment {number}", other.name));
                    }
                    Some(other) => {
                        leave(other, format!("a copy of {}: both are segment {number}", file.name));
                        numbered.insert(number, index);
                    }
                    None => {
                        numbered.insert(number, index);
                    }
                },
                None => chosen.push(index),
            }
        }
        chosen.extend(numbered.into_values());
        let key = |index: &usize| self.files.get(*index).map(|file| (file.first(), file.name));
        chosen.sort_by_key(key);
        self.without_strangers(chosen, left_out)
    }

    /// Leaves out files without a header whose frames don't follow from those of the file before them.
    fn without_strangers(&self, chosen: Vec<usize>, left_out: &mut Vec<LeftOut>) -> Result<Vec<usize>> {
        let mut kept: Vec<usize> = Vec::with_capacity(chosen.len());
        for index in chosen {
            let Some(file) = self.files.get(index) else { continue };
            let before = kept.last().and_then(|before| self.files.get(*before));
            let adjoins = before.and_then(|before| before.pieces.frames.last()).map(|last| last.next)
                == file.pieces.frames.first().map(|first| first.first);
            if let (None, Some(before), true) = (self.identified(file), before, adjoins)
                && !self.chained(before, file)?
            {
                let why =
                    "its header is hurt, and its frames do not follow from the segment before it".to_owned();
                left_out.push(LeftOut { file: file.name.to_string(), why });
                continue;
            }
            let end =
                kept.last().and_then(|before| self.files.get(*before)).map_or(0, |before| before.next().0);
            if file.header.is_none() && file.first().0.saturating_sub(end) >= SPAN_RECORDS_MAX {
                let why = "its header is hurt, and its name is too far from the other segments' to be right"
                    .to_owned();
                left_out.push(LeftOut { file: file.name.to_string(), why });
                continue;
            }
            kept.push(index);
        }
        Ok(kept)
    }
}

/// Of two files that are the same segment: whether the first one is to be taken.
fn is_better(file: &SegmentFile, other: &SegmentFile) -> bool {
    let quality = |file: &SegmentFile| {
        let placed = file.header.as_ref().is_some_and(|header| header.first_position == file.name.0);
        (placed, file.pieces.frames.len())
    };
    quality(file) >= quality(other)
}

/// A layout that is being made.
struct Arranging {
    layout: Layout,
    expected: Position,
}

impl Arranging {
    fn arrange(mut self, chosen: &[usize]) -> Result<Layout> {
        let files = self.layout.survey.files.clone();
        let file_at = |nth: usize| chosen.get(nth).and_then(|index| Some((*index, files.get(*index)?)));
        for nth in 0..chosen.len() {
            let Some((index, file)) = file_at(nth) else { continue };
            let behind = file_at(nth.saturating_add(1)).map(|(_, behind)| behind);
            self.missing_before(nth.checked_sub(1).and_then(file_at).map(|(_, before)| before), file)?;
            let mut holes = file.holes.clone();
            if let (Some(error), Some(hole)) =
                (&file.header_error, holes.first_mut().filter(|it| it.offset == 0))
                && hole.len > 0
                && !file.pieces.frames.is_empty()
            {
                hole.found.clone_from(error);
            }
            let end = behind.map(SegmentFile::first);
            self.frames(index, file, end, &mut holes)?;
            match behind {
                Some(behind) => self.end_before(file, behind, &mut holes)?,
                None => self.tail(file, &mut holes)?,
            }
            for hole in holes {
                self.span(file, Some(hole), Loss::Nothing);
            }
            if behind.is_some() && file.pieces.index.is_none() {
                self.no_index(file);
            }
        }
        Ok(self.layout)
    }

    /// A sealed segment without its index: unless hurt bytes at its end tell so already.
    fn no_index(&mut self, file: &SegmentFile) {
        let name = file.name.to_string();
        if !self.layout.spans.iter().any(|span| span.file == name) {
            let hole = Hole { offset: file.len, len: 0, found: "the index at its end is missing".to_owned() };
            self.span(file, Some(hole), Loss::Nothing);
        }
    }

    /// Records between two files: segments are missing.
    fn missing_before(&mut self, before: Option<&SegmentFile>, file: &SegmentFile) -> Result<()> {
        let first = file.first();
        if first <= self.expected {
            return Ok(());
        }
        let what = match before {
            Some(before) => format!("the segments between {} and this one are missing", before.name),
            None => "the segments before this one are missing".to_owned(),
        };
        self.gap(file, Some(Hole { offset: 0, len: 0, found: what }), first)
    }

    fn frames(
        &mut self,
        index: usize,
        file: &SegmentFile,
        end: Option<Position>,
        holes: &mut Vec<Hole>,
    ) -> Result<()> {
        let mut at = 0;
        for frame in &file.pieces.frames {
            let in_place = frame.first >= self.expected
                && end.is_none_or(|end| frame.next <= end)
                && within_segment(self.expected, frame.first);
            if !in_place {
                self.layout.repeated = self.layout.repeated.saturating_add(1);
                continue;
            }
            if frame.first > self.expected {
                let hole = hole_between(holes, at, frame.offset);
                let hole = hole.or_else(|| Some(absent(frame.offset)));
                self.gap(file, hole, frame.first)?;
            }
            at = frame.offset.saturating_add(frame.len);
            self.layout.items.push(LayoutItem::Frame(index, frame.clone()));
            self.expected = frame.next;
        }
        Ok(())
    }

    /// What is missing of a segment's end. What its index does not account for was in segments that are missing.
    fn end_before(&mut self, file: &SegmentFile, behind: &SegmentFile, holes: &mut Vec<Hole>) -> Result<()> {
        let follows = match (&file.header, &behind.header) {
            (Some(file), Some(behind)) => file.segment_no.next() == Some(behind.segment_no),
            _ => true,
        };
        let end = match &file.pieces.index {
            Some(index) => index.next.min(behind.first()),
            None if follows => behind.first(),
            None => file.next().min(behind.first()),
        };
        if end <= self.expected {
            return Ok(());
        }
        let used = file.pieces.frames.last().map_or(0, |frame| frame.offset.saturating_add(frame.len));
        let hole = hole_between(holes, used, usize::MAX).or_else(|| Some(absent(file.len)));
        self.gap(file, hole, end)
    }

    /// What is missing at the log's end.
    fn tail(&mut self, file: &SegmentFile, holes: &mut Vec<Hole>) -> Result<()> {
        let witnessed = self.layout.witnessed;
        let used = file.pieces.frames.iter().map(|frame| frame.offset.saturating_add(frame.len)).max();
        if witnessed >= self.expected {
            // A frame is there as a whole or not at all.
            let hurt = file.pieces.hurt.iter().filter(|hurt| hurt.first <= witnessed).map(|hurt| hurt.next.0);
            let next = Position(hurt.chain([witnessed.0.saturating_add(1)]).max().unwrap_or_default());
            let hole = hole_between(holes, used.unwrap_or(0), usize::MAX);
            return self.gap(file, hole.or_else(|| Some(absent(file.len))), next);
        }
        if let Some(hole) = hole_between(holes, used.unwrap_or(0), usize::MAX) {
            self.span(file, Some(hole), Loss::TornTail { first: self.expected });
        }
        Ok(())
    }

    /// Records are missing from where they are expected up to `next`.
    fn gap(&mut self, file: &SegmentFile, hole: Option<Hole>, next: Position) -> Result<()> {
        let (first, last) = (self.expected, Position(next.0.saturating_sub(1)));
        if last.0.saturating_sub(first.0) >= SPAN_RECORDS_MAX {
            return Err(too_long(first, last));
        }
        let loss = if self.layout.witnessed >= first {
            Loss::Acknowledged { first, last }
        } else {
            Loss::Unproven { first, last }
        };
        self.span(file, hole, loss);
        self.expected = next;
        Ok(())
    }

    fn span(&mut self, file: &SegmentFile, hole: Option<Hole>, loss: Loss) {
        let Hole { offset, len, found } = hole.unwrap_or_else(|| absent(file.len));
        let file = file.name.to_string();
        self.layout.items.push(LayoutItem::Span(self.layout.spans.len()));
        self.layout.spans.push(LostSpan { file, offset: to_u64(offset), len: to_u64(len), found, loss });
    }
}

fn absent(offset: usize) -> Hole {
    Hole { offset, len: 0, found: "the bytes of these records are not there".to_owned() }
}

/// Takes the stretches between two places out of the list, as one.
fn hole_between(holes: &mut Vec<Hole>, from: usize, to: usize) -> Option<Hole> {
    let mut between: Option<Hole> = None;
    holes.retain(|hole| {
        let inside = hole.offset >= from && hole.offset < to;
        if inside {
            let end = hole.offset.saturating_add(hole.len);
            match &mut between {
                Some(between) => between.len = end.saturating_sub(between.offset),
                None => between = Some(hole.clone()),
            }
        }
        !inside
    });
    between
}

impl Layout {
    /// Gives everything to `visit`, in order, until it fails. Each file is read once, and `read` told of its bytes.
    ///
    /// # Errors
    /// Those of `visit`; `Io` if a file can't be read; `Conflict` if one was changed since it was surveyed.
    pub(crate) fn walk(
        &self,
        read: &mut dyn FnMut(u64),
        visit: &mut dyn FnMut(Item<'_>) -> Result<()>,
    ) -> Result<()> {
        let known = |position: Position| self.entry(position).copied();
        let mut open: Option<(usize, Unpacked)> = None;
        let mut before: Option<(Position, Digest)> = None;
        let mut running = Epoch(1);
        for item in &self.items {
            let (index, found) = match item {
                LayoutItem::Span(number) => {
                    if let Some(span) = self.spans.get(*number) {
                        visit(Item::Span { span, known: &known })?;
                    }
                    continue;
                }
                LayoutItem::Frame(index, found) => (*index, found),
            };
            let Some(file) = self.survey.files.get(index) else { continue };
            if open.as_ref().is_none_or(|(open, _)| *open != index) {
                let bytes = self.survey.dir.read_all(file.name)?;
                read(bytes.stored_len());
                open = Some((index, bytes));
            }
            let bytes = open.as_ref().map(|(_, bytes)| &**bytes).unwrap_or_default();
            let there = bytes.get(found.offset..).unwrap_or_default();
            let frame =
                Frame::decode(there, file.salt).ok().filter(|frame| frame.header().chain == found.chain);
            let frame = frame.ok_or_else(|| self.changed(file))?;
            let link = match before.filter(|(next, _)| *next == found.first) {
                Some((_, chain)) if frame.chain_after(&chain) != found.chain => Link::Broken,
                _ => Link::Sound,
            };
            before = Some((found.next, found.chain));
            running = running.max(found.epoch);
            visit(Item::Frame { frame, epoch: running, link })?;
        }
        Ok(())
    }

    /// What indexes tell about a record.
    fn entry(&self, position: Position) -> Option<&FooterEntry> {
        let files = self.files.iter().filter_map(|index| self.survey.files.get(*index));
        files.filter_map(|file| file.entry(position)).next()
    }

    /// Bytes of all files that are read.
    pub(crate) fn bytes(&self) -> u64 {
        self.survey.files.iter().map(|file| file.stored_len).sum()
    }

    /// Records of whole frames behind a span of which nothing proves that it was acknowledged.
    pub(crate) fn unproven_records(&self) -> u64 {
        let unproven = self.spans.iter().filter_map(|span| match span.loss {
            Loss::Unproven { last, .. } => Some(last),
            _ => None,
        });
        let Some(first) = unproven.min() else { return 0 };
        let frames = self.items.iter().filter_map(|item| match item {
            LayoutItem::Frame(_, frame) if frame.first > first => {
                Some(frame.next.0.saturating_sub(frame.first.0))
            }
            _ => None,
        });
        frames.sum()
    }

    fn changed(&self, file: &SegmentFile) -> Error {
        let path = self.survey.dir.segment_path(file.name);
        let message =
            format!("{} was changed while it was read: somebody writes the session", path.display());
        Error::new(ErrorKind::Conflict, "salvage.changed", message)
    }
}
