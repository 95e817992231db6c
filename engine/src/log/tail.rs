//! The end of a log, where frames are written: owned by one committing thread at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog_codec::footer::{self, FooterEntry};
use sessionlog_codec::frame::{Body, FrameFields};
use sessionlog_codec::ids::{Digest, Epoch, LogId, Position, SegmentNo};
use sessionlog_codec::limits::{FRAME_RECORDS_MAX, SEGMENT_HEADER_LEN};
use sessionlog_codec::segment::{self, FORMAT_VERSION, SEGMENT_MAGIC, SegmentHeader};

use super::LogOptions;
use super::mark::{DurableEnd, LogMark};
use super::recovery::{Assessment, SegmentState};
use super::segment::{LogDir, SegmentName};
use crate::error::{Error, ErrorKind, Result};
use crate::num::{to_u64, to_usize};
use crate::storage::{Access, StorageFile};

/// Files grow to multiples of this, in bytes.
const FILL_ALIGNMENT: u64 = 4096;

/// How far a log's first file is filled with its first records, in bytes: about a hundred messages, which is all of most
/// sessions, so that none of them waits for a journal of the file system. What is not used is cut off at close.
const FILL_FIRST: u64 = 256 << 10;

/// Where nobody waits for the disk, a segment may become so many times as long before it is sealed, which is to wait for
/// it: at the next sync, or then. No more, since an owner reads its last segment whole.
const DEFERRED: u64 = 3;

/// A segment is sealed at this length at the latest, in bytes, so that every frame's offset fits into its footer.
const SEGMENT_LEN_MAX: u64 = 1 << 31;

/// The newest records that a [`DurableEnd`] tells the places of.
const RECENT_MAX: usize = 512;

/// A failure of [`Tail::commit`].
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing of it is in the log, and the tail is as it was.
    Rewound(Error),
    /// Nobody knows what is on disk: the tail must not be used again.
    Fatal(Error),
}

impl Failure {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Rewound(error) | Self::Fatal(error) => error,
        }
    }
}

type Attempt<T> = std::result::Result<T, Failure>;

/// What [`Tail::commit`] did before it ended or failed.
#[derive(Debug)]
pub(crate) struct Committed {
    /// How many of the frames are in the log.
    pub(crate) frames: usize,
    /// Why the others are not.
    pub(crate) failure: Option<Failure>,
}

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncMode {
    /// It does.
    Sync,
    /// It does not.
    Defer,
}

/// The writing end of a log.
#[derive(Debug)]
pub(crate) struct Tail {
    dir: LogDir,
    options: LogOptions,
    /// The active segment's file, for errors.
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    header: SegmentHeader,
    state: SegmentState,
    entries: Vec<FooterEntry>,
    /// Where the next frame goes, in bytes.
    end: u64,
    /// How far zeros are written: what is written up to here changes no metadata, which makes its sync cheaper.
    solid: u64,
    /// How long the file is: from `end` to here it reads as zeros.
    filled: u64,
    next: Position,
    chain: Digest,
    epoch: Epoch,
    /// The last position that is known to be durable.
    durable: Position,
    /// Frames encoded and not yet written.
    buffer: Vec<u8>,
}

impl Tail {
    /// The tail of a new log, which has no record yet.
    pub(crate) fn create(dir: LogDir, options: LogOptions, log_id: LogId, epoch: Epoch) -> Result<Self> {
        let header = SegmentHeader {
            format: FORMAT_VERSION,
            reader: FORMAT_VERSION,
            log_id,
            segment_no: SegmentNo(0),
            first_position: Position(1),
            epoch,
            salt: segment::salt(log_id, SegmentNo(0)),
            previous: sessionlog_codec::chain::genesis(log_id),
            forked_from: None,
        };
        let name = SegmentName(header.first_position);
        let path = dir.segment_path(name);
        let file = dir.storage.create_new(&path).map_err(|e| Error::io("creating", &path, e))?;
        if let Err(failure) = write_header(&dir, name, &*file, &header) {
            // Out of the way of another attempt. If this fails too, what is left is no log.
            drop(dir.storage.remove_file(&path));
            return Err(failure.into_error());
        }
        Ok(Self::over(dir, options, name, file, header, epoch))
    }

    fn over(
        dir: LogDir,
        options: LogOptions,
        name: SegmentName,
        file: Arc<dyn StorageFile>,
        header: SegmentHeader,
        epoch: Epoch,
    ) -> Self {
        let segment_len = options.segment_len.min(SEGMENT_LEN_MAX);
        Self {
            path: dir.segment_path(name),
            dir,
            options: LogOptions { segment_len, ..options },
            file,
            state: SegmentState::Active,
            entries: Vec::new(),
            end: to_u64(SEGMENT_HEADER_LEN),
            solid: to_u64(SEGMENT_HEADER_LEN),
            filled: to_u64(SEGMENT_HEADER_LEN),
            next: header.first_position,
            chain: header.previous,
            epoch,
            durable: Position(header.first_position.0.saturating_sub(1)),
            buffer: Vec::new(),
            header,
        }
    }

    /// The tail of a log that was recovered, everything in it durable.
    pub(crate) fn resume(
        dir: LogDir,
        options: LogOptions,
        name: SegmentName,
        file: Arc<dyn StorageFile>,
        assessment: Assessment,
        filled: u64,
        epoch: Epoch,
    ) -> Self {
        let Assessment { header, end, entries, state, .. } = assessment;
        let mut tail = Self::over(dir, options, name, file, header, epoch);
        tail.state = state;
        tail.entries = entries;
        tail.end = to_u64(end.offset);
        tail.solid = tail.end;
        tail.filled = filled.max(tail.end);
        tail.next = end.next;
        tail.chain = end.chain;
        tail.durable = Position(end.next.0.saturating_sub(1));
        tail
    }

    pub(crate) fn next(&self) -> Position {
        self.next
    }

    pub(crate) fn durable(&self) -> Position {
        self.durable
    }

    /// Where the log ends, if all of it is durable and its last frame is in the active segment.
    pub(crate) fn durable_end(&self) -> Option<DurableEnd> {
        let last = self.entries.last().filter(|_| self.durable.next() == Some(self.next))?;
        let place = (last.frame_offset.into(), self.end);
        let mark = LogMark::new((self.next, self.chain), &self.header, place);
        let recent = self.entries.iter().skip(self.entries.len().saturating_sub(RECENT_MAX));
        Some(DurableEnd { mark, recent: recent.map(|entry| entry.frame_offset).collect() })
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn dir(&self) -> &LogDir {
        &self.dir
    }

    /// The segment that is written to.
    pub(crate) fn name(&self) -> SegmentName {
        SegmentName(self.header.first_position)
    }

    pub(crate) fn log_id(&self) -> LogId {
        self.header.log_id
    }

    /// Writes frames in one go (more if a segment is sealed in between) and, in [`SyncMode::Sync`], makes them durable.
    pub(crate) fn commit(&mut self, frames: &[&Body], sync: SyncMode) -> Committed {
        let (mut committed, mut failure) = (0_usize, None);
        while let Some(rest) = frames.get(committed..).filter(|rest| !rest.is_empty() && failure.is_none()) {
            match self.roll_if_full(rest, sync).and_then(|()| self.write_group(rest, sync)) {
                Ok(written) => committed = committed.saturating_add(written),
                Err(failed) => failure = Some(failed),
            }
        }
        #[cfg(feature = "seeded-bugs")]
        let sync = if sessionlog_codec::seeded::is("ack_before_sync") { SyncMode::Defer } else { sync };
        // What is in the log is made durable and acknowledged, also if something behind it failed.
        if sync == SyncMode::Sync
            && !matches!(failure, Some(Failure::Fatal(_)))
            && let Err(error) = self.sync()
        {
            failure = Some(Failure::Fatal(error));
        }
        Committed { frames: committed, failure }
    }

    /// Whether the segment is sealed before a frame of `coming` records: it is long enough, or its footer is.
    fn is_full(&self, coming: u32, sync: SyncMode) -> bool {
        let records = to_u64(self.entries.len()).saturating_add(coming.into());
        let end = self.end.saturating_add(to_u64(self.buffer.len()));
        end >= self.longest(sync) || records > FRAME_RECORDS_MAX.into()
    }

    /// How long the segment becomes before it is sealed, in bytes.
    fn longest(&self, sync: SyncMode) -> u64 {
        match sync {
            SyncMode::Sync => self.options.segment_len,
            SyncMode::Defer => self.options.segment_len.saturating_mul(DEFERRED).min(SEGMENT_LEN_MAX),
        }
    }

    /// Writes as many of the frames as fit into the active segment, at least one.
    fn write_group(&mut self, frames: &[&Body], sync: SyncMode) -> Attempt<usize> {
        let before = (self.next, self.chain, self.entries.len());
        let mut count = 0;
        for body in frames {
            if count > 0 && self.is_full(body.count(), sync) {
                break;
            }
            if let Err(error) = self.encode(body) {
                self.rewind(before);
                return Err(Failure::Rewound(error));
            }
            count += 1;
        }
        match self.write_buffer(sync) {
            Ok(()) => Ok(count),
            Err(failure) => {
                self.rewind(before);
                Err(failure)
            }
        }
    }

    fn rewind(&mut self, (next, chain, entries): (Position, Digest, usize)) {
        self.next = next;
        self.chain = chain;
        self.entries.truncate(entries);
        self.buffer.clear();
    }

    fn encode(&mut self, body: &Body) -> Result<()> {
        let frame_offset = self.end.saturating_add(to_u64(self.buffer.len()));
        let frame_offset = u32::try_from(frame_offset).map_err(|_| {
            Error::invalid("log.segment_len", "a segment is longer than 4 GiB; seal segments earlier")
        })?;
        let fields = FrameFields::records(self.next, self.epoch, self.durable);
        #[cfg(feature = "seeded-bugs")]
        let fields = if sessionlog_codec::seeded::is("synced_too_far") {
            FrameFields { synced: Position(self.next.0.saturating_sub(1)), ..fields }
        } else {
            fields
        };
        self.chain = body.write_frame(&mut self.buffer, self.header.salt, &self.chain, fields)?;
        self.entries.extend(body.envelopes().map(|envelope| FooterEntry::of(envelope, frame_offset)));
        self.next = Position(self.next.0.saturating_add(body.count().into()));
        Ok(())
    }

    /// Writes the buffer: one system call. Where the file has to grow, it grows ahead of need: with zeros in the same write
    /// if it is synced, else by its length alone.
    fn write_buffer(&mut self, sync: SyncMode) -> Attempt<()> {
        let new_end = self.end.saturating_add(to_u64(self.buffer.len()));
        let (mut solid, mut filled) = (self.solid, self.filled);
        match sync {
            SyncMode::Sync => {
                self.check_unchanged()?;
                if new_end > self.solid {
                    solid = self.fill_target(new_end, sync);
                    filled = filled.max(solid);
                    self.buffer.resize(to_usize(solid.saturating_sub(self.end)), 0);
                }
            }
            SyncMode::Defer if new_end > self.filled => {
                self.check_unchanged()?;
                filled = self.lengthen(new_end)?;
            }
            SyncMode::Defer => {}
        }
        let written = self.file.write_at(&self.buffer, self.end);
        #[cfg(feature = "seeded-bugs")]
        let written = if sessionlog_codec::seeded::is("ignore_short_write") { Ok(()) } else { written };
        match written {
            Ok(()) => {
                (self.end, self.solid, self.filled) = (new_end, solid, filled);
                self.buffer.clear();
                Ok(())
            }
            Err(error) => {
                // A part may be on disk, a whole frame even: an append that failed must not show up later.
                let failed = Error::io("writing", &self.path, error);
                #[cfg(feature = "seeded-bugs")]
                if sessionlog_codec::seeded::is("rewind_keeps_bytes") {
                    return Err(Failure::Rewound(failed));
                }
                self.cut_to_end().map_err(|_| Failure::Fatal(failed.clone()))?;
                Err(Failure::Rewound(failed))
            }
        }
    }

    /// Makes the file longer than `needed`, without writing: a write that need not change the length is cheaper, and zeros
    /// are of no use where nothing is synced. Gives the new length.
    fn lengthen(&mut self, needed: u64) -> Attempt<u64> {
        let target = self.fill_target(needed, SyncMode::Defer);
        if target == needed {
            return Ok(needed);
        }
        match self.file.set_len(target) {
            Ok(()) => Ok(target),
            Err(error) => {
                let failed = Error::io("lengthening", &self.path, error);
                self.cut_to_end().map_err(|_| Failure::Fatal(failed.clone()))?;
                Err(Failure::Rewound(failed))
            }
        }
    }

    /// How long the file becomes when it has to hold `needed` bytes. Each time it grows, a sync costs the file system a
    /// journal commit, so it grows rarely: to four times what it was. A segment that is not the first is that of a long
    /// session, and is filled in the longest steps at once.
    fn fill_target(&self, needed: u64, sync: SyncMode) -> u64 {
        let most = self.options.fill_len;
        if most == 0 {
            return needed;
        }
        let step = match self.header.segment_no {
            SegmentNo(0) => needed.saturating_mul(3).clamp(FILL_FIRST.min(most), most),
            _ => most,
        };
        let target = needed.saturating_add(step).checked_next_multiple_of(FILL_ALIGNMENT).unwrap_or(needed);
        // No zeros behind the place where the segment is going to be sealed.
        target.min(self.longest(sync)).max(needed)
    }

    /// Whoever else wrote here took over the log, whatever the locks say.
    fn check_unchanged(&self) -> Attempt<()> {
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("fence_not_checked") {
            return Ok(());
        }
        let mut next = [0; 8];
        let read = self.file.read_at(&mut next, self.end);
        let read = read.map_err(|e| Failure::Rewound(Error::io("reading", &self.path, e)))?;
        let expected = self.filled.saturating_sub(self.end).min(8);
        if to_u64(read) == expected && next == [0; 8] {
            return Ok(());
        }
        Err(Failure::Fatal(fenced(&self.path, self.end)))
    }

    /// Whoever took the log over put another file in this one's place, and said so at this one's beginning. Looked at after a
    /// sync and before anything is acknowledged: [`check_unchanged`](Self::check_unchanged) comes before the write, and the
    /// take-over may have come between the two. A look that fails proves nothing, and what was synced is durable.
    fn check_not_replaced(&self) -> Result<()> {
        let mut magic = [0; 8];
        match self.file.read_at(&mut magic, 0) {
            Ok(_) if magic != SEGMENT_MAGIC => Err(fenced(&self.path, 0)),
            _ => Ok(()),
        }
    }

    fn cut_to_end(&mut self) -> Result<()> {
        self.file.set_len(self.end).map_err(|e| Error::io("cutting", &self.path, e))?;
        (self.solid, self.filled) = (self.end, self.end);
        self.file.sync_data().map_err(|e| Error::sync(&self.path, e))
    }

    /// Makes everything written durable. After an error the handle must not be used again: a second sync would say Ok
    /// of bytes that are gone.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let last = Position(self.next.0.saturating_sub(1));
        if self.durable < last {
            #[cfg(feature = "seeded-bugs")]
            if sessionlog_codec::seeded::is("retry_sync") && self.file.sync_data().is_ok() {
                self.durable = last;
                return Ok(());
            }
            self.file.sync_data().map_err(|e| Error::sync(&self.path, e))?;
            self.check_not_replaced()?;
            self.durable = last;
        }
        Ok(())
    }

    /// Seals a segment that is long enough, for a commit that waits for the disk or one that does not, and begins the next one.
    fn roll_if_full(&mut self, frames: &[&Body], sync: SyncMode) -> Attempt<()> {
        let coming = frames.first().map_or(0, |body| body.count());
        if self.state == SegmentState::Active && (self.entries.is_empty() || !self.is_full(coming, sync)) {
            return Ok(());
        }
        self.seal_longer_than(0)
    }

    /// Makes everything durable, seals a segment that is longer than `len` bytes and begins the next one.
    pub(crate) fn seal_longer_than(&mut self, len: u64) -> Attempt<()> {
        self.sync().map_err(Failure::Fatal)?;
        match self.state {
            SegmentState::Active if self.entries.is_empty() || self.end <= len => return Ok(()),
            SegmentState::Active => self.seal()?,
            SegmentState::Sealed => {}
        }
        self.begin_next()
    }

    fn seal(&mut self) -> Attempt<()> {
        self.check_unchanged()?;
        let mut bytes = Vec::new();
        footer::encode(&mut bytes, self.header.salt, self.next, self.epoch, &self.chain, &self.entries)
            .map_err(|e| Failure::Rewound(e.into()))?;
        let end = self.end.saturating_add(to_u64(bytes.len()));
        let sealed = self
            .file
            .write_at(&bytes, self.end)
            .and_then(|()| self.file.set_len(end))
            .map_err(|e| Error::io("sealing", &self.path, e));
        if let Err(error) = sealed {
            self.cut_to_end().map_err(|_| Failure::Fatal(error.clone()))?;
            return Err(Failure::Rewound(error));
        }
        self.file.sync_all().map_err(|e| Failure::Fatal(Error::sync(&self.path, e)))?;
        self.check_not_replaced().map_err(Failure::Fatal)?;
        self.state = SegmentState::Sealed;
        Ok(())
    }

    fn begin_next(&mut self) -> Attempt<()> {
        let segment_no = self.header.segment_no.next().ok_or_else(|| {
            let message = "the log has no segment number left";
            Failure::Rewound(Error::new(ErrorKind::Full, "log.segments", message))
        })?;
        let header = SegmentHeader {
            // Whatever wrote the segment before.
            format: FORMAT_VERSION,
            reader: FORMAT_VERSION,
            log_id: self.header.log_id,
            segment_no,
            first_position: self.next,
            epoch: self.epoch,
            salt: segment::salt(self.header.log_id, segment_no),
            previous: self.chain,
            forked_from: None,
        };
        let name = SegmentName(self.next);
        let path = self.dir.segment_path(name);
        let file = match self.dir.storage.create_new(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                self.leftover(name, &header)?
            }
            created => created.map_err(|e| Failure::Rewound(Error::io("creating", &path, e)))?,
        };
        write_header(&self.dir, name, &*file, &header)?;
        // Before the header was whole, whoever took over removed the file.
        match self.dir.read(name, 0, to_u64(SEGMENT_HEADER_LEN)) {
            Ok(bytes) if bytes == header.encode() => {}
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(Failure::Rewound(error)),
            _ => return Err(Failure::Fatal(fenced(&path, 0))),
        }
        let (dir, durable) = (self.dir.clone(), self.durable);
        *self = Self::over(dir, self.options, name, file, header, self.epoch);
        self.durable = durable;
        Ok(())
    }

    /// The file of an attempt to begin this segment that failed. What another owner began is not touched.
    fn leftover(&self, name: SegmentName, header: &SegmentHeader) -> Attempt<Arc<dyn StorageFile>> {
        let bytes = self.dir.read_all(name).map_err(Failure::Rewound)?;
        if !header.encode().starts_with(&bytes) {
            return Err(Failure::Fatal(fenced(&self.dir.segment_path(name), 0)));
        }
        self.dir.open(name, Access::ReadWrite).map_err(Failure::Rewound)
    }

    /// Makes everything durable and gives unused space back.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.sync()?;
        if self.filled > self.end && self.state == SegmentState::Active {
            self.check_unchanged().map_err(Failure::into_error)?;
            self.file.set_len(self.end).map_err(|e| Error::io("cutting", &self.path, e))?;
            self.file.sync_all().map_err(|e| Error::sync(&self.path, e))?;
            (self.solid, self.filled) = (self.end, self.end);
        }
        Ok(())
    }
}

/// Makes a new segment's header durable, then its name. Frames come later: so a header that is hurt and has something
/// behind it is damage, and never the trace of a crash.
fn write_header(
    dir: &LogDir,
    name: SegmentName,
    file: &dyn StorageFile,
    header: &SegmentHeader,
) -> Attempt<()> {
    let path = dir.segment_path(name);
    let written = file.write_at(&header.encode(), 0);
    written.map_err(|e| Failure::Rewound(Error::io("writing", &path, e)))?;
    file.sync_all().map_err(|e| Failure::Fatal(Error::sync(&path, e)))?;
    #[cfg(feature = "seeded-bugs")]
    if header.segment_no.0 == 0 && sessionlog_codec::seeded::is("drop_dir_sync_at_create") {
        return Ok(());
    }
    #[cfg(feature = "seeded-bugs")]
    if header.segment_no.0 > 0 && sessionlog_codec::seeded::is("drop_dir_sync_at_roll") {
        return Ok(());
    }
    let named = dir.storage.sync_dir(&dir.segments);
    named.map_err(|e| Failure::Fatal(Error::sync(&dir.segments, e)))
}

fn fenced(path: &Path, offset: u64) -> Error {
    let message =
        format!("{} was changed at byte {offset} by somebody else; this handle is closed", path.display());
    Error::new(ErrorKind::Fenced, "log.fenced", message)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sessionlog_codec::ids::{KindNo, NodeId, SchemaVersion, Timestamp};
    use sessionlog_codec::record::Envelope;

    use super::*;
    use crate::log::{Batch, NewRecord};
    use crate::storage::{SimStorage, Storage};

    fn begun(options: LogOptions) -> Tail {
        let storage: Arc<dyn Storage> = Arc::new(SimStorage::new());
        storage.create_dir(Path::new("log")).unwrap();
        Tail::create(LogDir::below(&storage, Path::new("")), options, LogId([1; 16]), Epoch(1)).unwrap()
    }

    /// A fork or an erasure seals what is long. Were short segments sealed too, each fork would leave one more file; and one
    /// without a record can't be sealed.
    #[test]
    fn a_short_segment_is_not_sealed() {
        let mut tail = begun(LogOptions::default());
        tail.seal_longer_than(0).unwrap();
        let envelope = Envelope::new(NodeId::ROOT, KindNo(20), SchemaVersion(1), Timestamp(0));
        let batch = Batch::new(vec![NewRecord { envelope, payload: vec![1; 100] }]).unwrap();
        assert!(tail.commit(&[batch.body()], SyncMode::Sync).failure.is_none());
        let end = tail.end;
        tail.seal_longer_than(end).unwrap();
        assert_eq!(tail.name(), SegmentName(Position(1)));
        tail.seal_longer_than(end - 1).unwrap();
        assert_eq!(tail.name(), SegmentName(Position(2)));
    }

    /// Offsets in a footer have 32 bits. A host that asks for segments of any length would else have one that can neither be
    /// written to nor sealed.
    #[test]
    fn a_segment_is_sealed_before_its_offsets_run_out() {
        let mut tail = begun(LogOptions { segment_len: u64::MAX, ..LogOptions::default() });
        for sync in [SyncMode::Sync, SyncMode::Defer] {
            tail.end = SEGMENT_LEN_MAX - 1;
            assert!(!tail.is_full(1, sync));
            tail.end = SEGMENT_LEN_MAX;
            assert!(tail.is_full(1, sync));
        }
    }
}
