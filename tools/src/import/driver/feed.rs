//! Feeds the records of one source to its mapper and the results to the target, in frames.

use std::io;

use sessionlog_codec::event::{Event, HeadMoved, ImportStarted, ImportedRaw, NewEvent};
use sessionlog_codec::ids::{NodeId, SourceNo};

use super::ImportError;
use super::ledger::{Ledger, Seen};
use crate::import::discover::SourceFile;
use crate::import::lines::{Record, Records};
use crate::import::mapper::{HeadMove, Mapped, Mapper};
use crate::import::report::{ImportReport, Imported};
use crate::import::split::What;
use crate::import::target::{KnownNode, RawRecord, TargetSession};

/// How much of a source goes into one frame, if not a single record is longer.
const FRAME_BYTES: usize = 256 << 10;
const FRAME_RECORDS: usize = 256;

/// One source: a file and where it goes.
pub(super) struct Source<'a> {
    pub(super) file: &'a SourceFile,
    pub(super) format: &'a str,
    pub(super) node: NodeId,
    pub(super) content: Content,
    /// What goes before the `import.started` of a new source.
    pub(super) opening: Vec<NewEvent>,
}

/// What a source adds to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Messages.
    Messages,
    /// Anything else.
    Facts,
}

/// An import of one session.
pub(super) struct Run<'a> {
    session: Box<dyn TargetSession + 'a>,
    ledger: Ledger<'a>,
    sources: Vec<ImportStarted>,
    nodes: Vec<KnownNode>,
    frame: Frame,
    is_new: bool,
    has_conflict: bool,
    /// Whether nothing was taken of the source that was fed last, since it is not what it was.
    is_refused: bool,
    appended: u64,
}

#[derive(Default)]
struct Frame {
    events: Vec<NewEvent>,
    bytes: usize,
    records: usize,
}

/// How a source compares with what was imported from it.
enum Compared {
    /// All that was imported is in it, and more may follow. Of a document, what was around its records last.
    Equal(Option<Vec<u8>>),
    /// It ends before what was imported does.
    Shorter,
    Differs {
        line: u64,
        offset: u64,
    },
}

impl<'a> Run<'a> {
    pub(super) fn new(
        session: Box<dyn TargetSession + 'a>,
        progress: &'a mut dyn FnMut(u64),
        report: &'a mut ImportReport,
    ) -> Result<Self, ImportError> {
        let sources = session.sources().map_err(ImportError::Target)?;
        let nodes = session.nodes().map_err(ImportError::Target)?;
        Ok(Self {
            session,
            ledger: Ledger::new(progress, report),
            is_new: sources.is_empty(),
            sources,
            nodes,
            frame: Frame::default(),
            has_conflict: false,
            is_refused: false,
            appended: 0,
        })
    }

    /// The conversations that the session had before this import.
    pub(super) fn nodes(&self) -> &[KnownNode] {
        &self.nodes
    }

    pub(super) fn node(&self, node: NodeId) -> Option<&KnownNode> {
        self.nodes.iter().find(|known| known.node == node)
    }

    /// Whether nothing was taken of the source that was fed last: what goes with it must not be taken either.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    pub(super) fn note(&mut self, file: &SourceFile, text: impl Into<String>) {
        self.ledger.report.note(&file.label, text);
    }

    /// The source that a file was before.
    pub(super) fn known_source(&self, format: &str, node: NodeId, path: Option<&str>) -> Option<SourceNo> {
        let same = |known: &&ImportStarted| {
            known.format == format
                && known.node == node
                && path.is_none_or(|path| is_same_end(&known.path, path))
        };
        self.sources.iter().find(same).map(|known| known.source_no)
    }

    pub(super) fn finish(self) -> Result<(Imported, u64), ImportError> {
        self.session.finish().map_err(ImportError::Target)?;
        let outcome = match (self.has_conflict, self.is_new, self.appended) {
            (true, _, _) => Imported::Conflict,
            (false, _, 0) => Imported::Unchanged,
            (false, true, _) => Imported::New,
            (false, false, _) => Imported::Grown,
        };
        Ok((outcome, self.appended))
    }

    /// Feeds a source to its mapper. `known` is the source that the file was before. Gives the source's number; none if the
    /// file held nothing to begin a source with.
    pub(super) fn feed(
        &mut self,
        source: &Source<'_>,
        known: Option<SourceNo>,
        records: &mut dyn Records,
        mapper: &mut dyn Mapper,
    ) -> Result<Option<SourceNo>, ImportError> {
        self.ledger.begin();
        self.is_refused = false;
        let fed = self.feed_records(source, known, records, mapper);
        for oddity in records.oddities().into_iter().map(str::to_owned).chain(mapper.notes()) {
            self.note(source.file, oddity);
        }
        self.ledger.report.lines += records.lines();
        self.ledger.tell_all(records.bytes());
        fed
    }

    fn feed_records(
        &mut self,
        source: &Source<'_>,
        known: Option<SourceNo>,
        records: &mut dyn Records,
        mapper: &mut dyn Mapper,
    ) -> Result<Option<SourceNo>, ImportError> {
        let compared = match known {
            Some(source_no) => {
                compare(&*self.session, &mut self.ledger, source.file, source_no, records, mapper)?
            }
            None => Compared::Equal(None),
        };
        match compared {
            Compared::Equal(around) => {
                return self.append_rest(source, known, around.as_deref(), records, mapper);
            }
            Compared::Shorter => {
                self.is_refused = true;
                self.note(source.file, "is shorter than what was imported from it before; nothing was removed");
            }
            Compared::Differs { line, offset } => self.conflict(
                source.file,
                format!("was rewritten: line {line}, at byte {offset}, is not what was imported before; nothing was appended"),
            ),
        }
        Ok(known)
    }

    pub(super) fn conflict(&mut self, file: &SourceFile, text: String) {
        self.has_conflict = true;
        self.is_refused = true;
        self.note(file, text);
    }

    /// Appends the records that are left. `around` is what a document had around its records last.
    fn append_rest(
        &mut self,
        source: &Source<'_>,
        known: Option<SourceNo>,
        around: Option<&[u8]>,
        records: &mut dyn Records,
        mapper: &mut dyn Mapper,
    ) -> Result<Option<SourceNo>, ImportError> {
        let mut source_no = known;
        let mut is_first = true;
        while let Some(record) = next(records, source.file)? {
            if record.what == What::Around && around == Some(record.bytes) {
                continue;
            }
            let is_recorded = !matches!(record.what, What::Zeros | What::Unterminated);
            if is_recorded && is_first && self.has_gone_on(source) {
                let text =
                    "has grown, but the session has gone on here since it was imported; nothing was appended";
                self.conflict(source.file, text.to_owned());
                return Ok(known);
            }
            is_first &= !is_recorded;
            let mapped = match self.ledger.see(&source.file.label, &record, mapper) {
                Seen::Nothing => continue,
                Seen::Split => {
                    records.resplit();
                    continue;
                }
                Seen::Record(mapped) => mapped,
            };
            let number = match source_no {
                Some(number) => number,
                None => self.start(source),
            };
            source_no = Some(number);
            let len = record.bytes.len();
            self.put(source.node, raw_of(number, &record, &mapped), mapped)?;
            self.frame.bytes += len;
            self.frame.records += 1;
            if self.frame.bytes >= FRAME_BYTES || self.frame.records >= FRAME_RECORDS {
                self.flush()?;
            }
            self.ledger.tell(records.bytes());
        }
        self.flush()?;
        Ok(source_no)
    }

    /// Whether a host has gone on with the conversation: then its messages have the numbers that the file's would get.
    fn has_gone_on(&self, source: &Source<'_>) -> bool {
        let last = self.node(source.node).map(|known| known.last_message).unwrap_or_default();
        source.content == Content::Messages && last > self.ledger.last_replayed(source.node)
    }

    /// Numbers a new source.
    fn start(&mut self, source: &Source<'_>) -> SourceNo {
        let last = self.sources.iter().map(|known| known.source_no).max();
        let source_no = last.map_or(SourceNo(0), |last| last.next().unwrap_or(last));
        let started = ImportStarted {
            source_no,
            format: source.format.to_owned(),
            path: source.file.label.clone(),
            node: source.node,
        };
        self.sources.push(started.clone());
        self.frame.events.extend(source.opening.iter().cloned());
        // Of the tree, not of the conversation it names: a child is opened by the event after it.
        self.frame.events.push(NewEvent::now(NodeId::ROOT, started));
        source_no
    }

    /// Puts a record and its events into the frame.
    fn put(&mut self, node: NodeId, raw: ImportedRaw, mapped: Mapped) -> Result<(), ImportError> {
        let head = mapped.head.map(|head| self.head_moved(head)).transpose()?;
        self.frame.events.push(NewEvent::now(node, raw));
        for event in head.into_iter().chain(mapped.events) {
            self.ledger.waits(event.node, &event.event, self.frame.events.len());
            self.frame.events.push(event);
        }
        Ok(())
    }

    /// Fills in the positions of a move. Those of the frame that is being filled are known once it is appended.
    fn head_moved(&mut self, head: HeadMove) -> Result<NewEvent, ImportError> {
        let known = |ledger: &Ledger<'_>, anchor| ledger.position(head.node, anchor);
        if known(&self.ledger, head.to).is_none() || known(&self.ledger, head.from).is_none() {
            self.flush()?;
        }
        let to = known(&self.ledger, head.to).unwrap_or_default();
        let from = known(&self.ledger, head.from).unwrap_or_default();
        let event = Event::from(HeadMoved { to, from, reason: head.reason });
        let (timestamp, time_origin) = (head.stamp.timestamp, head.stamp.time_origin);
        Ok(NewEvent { timestamp, time_origin, ..NewEvent::now(head.node, event) })
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        let Frame { events, records, .. } = std::mem::take(&mut self.frame);
        if events.is_empty() {
            return Ok(());
        }
        let first = self.session.append(events).map_err(ImportError::Target)?;
        self.ledger.appended(first);
        self.appended += u64::try_from(records).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Appends events that belong to no record.
    pub(super) fn append(&mut self, events: Vec<NewEvent>) -> Result<(), ImportError> {
        self.frame.events.extend(events);
        self.flush()
    }

    /// Takes a file that is written anew each time as one record, if it is not what it was last. `events` is given what it
    /// was.
    pub(super) fn take_whole(
        &mut self,
        source: &Source<'_>,
        kind: &str,
        bytes: Vec<u8>,
        events: impl FnOnce(Option<&[u8]>) -> Vec<NewEvent>,
    ) -> Result<(), ImportError> {
        let known = self.known_source(source.format, source.node, None);
        let mut last = None;
        if let Some(source_no) = known {
            for raw in self.session.raws(source_no).map_err(ImportError::Target)? {
                last = Some(raw.map_err(ImportError::Target)?.raw.bytes.0);
            }
        }
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.ledger.begin();
        self.ledger.tell_all(len);
        *self.ledger.report.by_kind.entry(kind.to_owned()).or_default() += 1;
        if last.as_deref() == Some(bytes.as_slice()) {
            return Ok(());
        }
        let source_no = match known {
            Some(source_no) => source_no,
            None => self.start(source),
        };
        let kind = kind.to_owned();
        let events = events(last.as_deref());
        let raw = ImportedRaw { source_no, line: 0, offset: 0, next_offset: len, kind, bytes: bytes.into() };
        self.frame.events.push(NewEvent::now(source.node, raw));
        self.frame.records += 1;
        self.append(events)
    }
}

/// Whether two paths end in the same directory and name. What is before that depends on where the import began.
fn is_same_end(a: &str, b: &str) -> bool {
    let end = |path: &str| path.rsplit(['/', '\\']).take(2).map(str::to_owned).collect::<Vec<_>>();
    end(a) == end(b)
}

fn raw_of(source_no: SourceNo, record: &Record<'_>, mapped: &Mapped) -> ImportedRaw {
    ImportedRaw {
        source_no,
        line: record.line,
        offset: record.offset,
        next_offset: record.next_offset,
        kind: mapped.kind.to_string(),
        bytes: record.bytes.to_vec().into(),
    }
}

fn next<'r>(records: &'r mut dyn Records, file: &SourceFile) -> Result<Option<Record<'r>>, ImportError> {
    records.next().map_err(|source: io::Error| ImportError::Read { path: file.path.clone(), source })
}

/// Compares what was imported with the source, record by record, and runs the mapper over it.
fn compare(
    session: &dyn TargetSession,
    ledger: &mut Ledger<'_>,
    file: &SourceFile,
    source_no: SourceNo,
    records: &mut dyn Records,
    mapper: &mut dyn Mapper,
) -> Result<Compared, ImportError> {
    let mut around = None;
    for imported in session.raws(source_no).map_err(ImportError::Target)? {
        let imported = imported.map_err(ImportError::Target)?;
        if imported.raw.line == 0 {
            around = Some(imported.raw.bytes.0);
        } else if let Some(different) = compare_one(ledger, file, &imported, records, mapper)? {
            return Ok(different);
        }
        ledger.tell(records.bytes());
    }
    Ok(Compared::Equal(around))
}

/// Compares one record; `None` if it is in the source as it is in the log.
fn compare_one(
    ledger: &mut Ledger<'_>,
    file: &SourceFile,
    imported: &RawRecord,
    records: &mut dyn Records,
    mapper: &mut dyn Mapper,
) -> Result<Option<Compared>, ImportError> {
    let raw = &imported.raw;
    let is_list = records.is_list();
    loop {
        let Some(record) = next(records, file)? else { return Ok(Some(Compared::Shorter)) };
        if matches!(record.what, What::Unterminated | What::Around) {
            return Ok(Some(Compared::Shorter));
        }
        // The elements of a document move when what is before them changes.
        let is_same = record.bytes == raw.bytes.0 && (is_list || record.offset == raw.offset);
        if !is_same && record.what != What::Zeros {
            if record.what == What::Unchecked {
                records.resplit();
                continue;
            }
            return Ok(Some(Compared::Differs { line: record.line, offset: record.offset }));
        }
        match ledger.see(&file.label, &record, mapper) {
            Seen::Nothing => {}
            Seen::Split => records.resplit(),
            Seen::Record(mapped) => {
                ledger.replayed(imported.position, &mapped);
                return Ok(None);
            }
        }
    }
}
