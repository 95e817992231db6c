//! What is cached and what is durable, of a file or of a directory.
//!
//! Both are an image that operations change. A read sees the image with all operations; a loss of power keeps what was
//! synced and, of the rest, whatever the disk happened to have written.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Debug;

/// The unit that a disk writes whole, in bytes.
const SECTOR: usize = 512;

/// Names an inode.
pub(super) type NodeId = u64;

/// splitmix64: small, and the same everywhere.
#[derive(Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0 if that is 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// An index below `bound`, or 0 if that is 0.
    fn index(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.below(bound)).unwrap_or(0)
    }
}

/// Something that operations change.
pub(super) trait Image: Clone + Default + Debug {
    /// One change.
    type Op: Clone + Debug;

    /// Makes the change.
    fn apply(&mut self, op: &Self::Op);

    /// Makes the change as a loss of power may leave it: in parts, or not at all.
    fn apply_torn(&mut self, op: &Self::Op, rng: &mut Rng);
}

/// How far an operation got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// In the cache, for the next sync to write.
    Pending,
    /// In the cache, but marked clean by a sync that failed: no later sync writes it.
    GivenUp,
    /// On the disk.
    Durable,
}

/// An image, with what of it is only cached.
#[derive(Clone, Debug)]
pub(super) struct Cached<I: Image> {
    /// What reads see: `base` with all of `ops`.
    pub(super) current: I,
    /// The durable image before `ops`.
    base: I,
    /// In order, and starting with one that is not durable.
    ops: Vec<(I::Op, Fate)>,
}

impl<I: Image> Cached<I> {
    /// An empty image.
    pub(super) fn new() -> Self {
        Self { current: I::default(), base: I::default(), ops: Vec::new() }
    }

    /// Makes a change that is not durable yet.
    pub(super) fn apply(&mut self, op: I::Op) {
        self.current.apply(&op);
        self.ops.push((op, Fate::Pending));
    }

    /// Makes a change that is durable at once.
    pub(super) fn apply_durably(&mut self, op: I::Op) {
        self.current.apply(&op);
        self.ops.push((op, Fate::Durable));
        self.fold();
    }

    /// Replaces everything, durably.
    pub(super) fn replace(&mut self, image: I) {
        self.base = image.clone();
        self.current = image;
        self.ops.clear();
    }

    /// Makes pending changes durable.
    pub(super) fn sync(&mut self) {
        self.settle(Fate::Durable);
        self.fold();
    }

    /// A sync that fails: nobody will write the pending changes any more.
    pub(super) fn fail_sync(&mut self) {
        self.settle(Fate::GivenUp);
    }

    /// What survives for certain.
    pub(super) fn durable(&self) -> I {
        let mut image = self.base.clone();
        self.durable_ops().for_each(|op| image.apply(op));
        image
    }

    /// Power loss: what was not durable is gone, or up to chance.
    pub(super) fn lose_power(&mut self, chance: Option<&mut Rng>) {
        let survivor = match chance {
            None => self.durable(),
            Some(rng) => self.survivor(rng),
        };
        self.replace(survivor);
    }

    fn settle(&mut self, fate: Fate) {
        for (_, pending) in self.ops.iter_mut().filter(|(_, fate)| *fate == Fate::Pending) {
            *pending = fate;
        }
    }

    /// Moves durable operations into the base, up to the first that is not: behind it, order matters.
    fn fold(&mut self) {
        let settled = self.ops.iter().take_while(|(_, fate)| *fate == Fate::Durable).count();
        for (op, _) in self.ops.drain(..settled) {
            self.base.apply(&op);
        }
    }

    fn durable_ops(&self) -> impl Iterator<Item = &I::Op> {
        self.ops.iter().filter(|(_, fate)| *fate == Fate::Durable).map(|(op, _)| op)
    }

    /// One of the images that a power loss may leave. All kept and all lost come up often, whatever the number of
    /// operations.
    fn survivor(&self, rng: &mut Rng) -> I {
        let mood = rng.below(4);
        let mut image = self.base.clone();
        for (op, fate) in &self.ops {
            let kept = match mood {
                0 => 0,
                1 => 1,
                _ => rng.below(3),
            };
            match (fate, kept) {
                (Fate::Durable, _) | (_, 0) => image.apply(op),
                (_, 1) => {}
                _ => image.apply_torn(op, rng),
            }
        }
        image
    }
}

/// A file's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileImage(pub(super) Vec<u8>);

/// A change of a file.
#[derive(Clone, Debug)]
pub(super) enum FileOp {
    /// These bytes were written there.
    Write { offset: usize, bytes: Vec<u8> },
    /// The file got this length.
    SetLen(usize),
}

impl Image for FileImage {
    type Op = FileOp;

    fn apply(&mut self, op: &FileOp) {
        match op {
            FileOp::Write { offset, bytes } => self.write(*offset, bytes),
            FileOp::SetLen(len) => self.0.resize(*len, 0),
        }
    }

    fn apply_torn(&mut self, op: &FileOp, rng: &mut Rng) {
        match op {
            FileOp::Write { offset, bytes } => self.write_torn(*offset, bytes, rng),
            FileOp::SetLen(_) => self.apply(op),
        }
    }
}

impl FileImage {
    /// Reads as `StorageFile::read_at` does.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.0.get(start..).unwrap_or_default();
        let len = buf.len().min(rest.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..len), rest.get(..len)) {
            to.copy_from_slice(from);
        }
        len
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len());
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        if let Some(target) = self.0.get_mut(offset..end) {
            target.copy_from_slice(bytes);
        }
    }

    /// Sector by sector: the new bytes, what was there before, or zeros. A file that grew may have its old length, its
    /// new one, or end with a sector in between.
    fn write_torn(&mut self, offset: usize, bytes: &[u8], rng: &mut Rng) {
        let old_len = self.0.len();
        let growth = offset.saturating_add(bytes.len()).saturating_sub(old_len);
        let len = old_len
            + match rng.below(3) {
                0 => 0,
                1 => growth,
                _ => rng.index(growth),
            };
        let len = if len == old_len + growth { len } else { old_len.max(len - len % SECTOR) };
        // That only the length made it to the disk is worth a chance of its own.
        let choices = if rng.below(4) == 0 { 2 } else { 3 };
        let mut start = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(SECTOR - start % SECTOR));
            match rng.below(choices) {
                0 => {}
                1 => self.write(start, &vec![0; piece.len()]),
                _ => self.write(start, piece),
            }
            start += piece.len();
            rest = behind;
        }
        self.0.resize(len, 0);
    }
}

/// A directory's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DirImage(pub(super) BTreeMap<OsString, NodeId>);

/// A change of a directory.
#[derive(Clone, Debug)]
pub(super) enum DirOp {
    /// A name came, or is another inode's now.
    Link(OsString, NodeId),
    /// A name went.
    Unlink(OsString),
    /// An inode has another name in the same directory. (Between directories, it is a link and an unlink.)
    Rename(OsString, OsString, NodeId),
}

impl Image for DirImage {
    type Op = DirOp;

    fn apply(&mut self, op: &DirOp) {
        match op {
            DirOp::Link(name, node) => {
                self.0.insert(name.clone(), *node);
            }
            DirOp::Unlink(name) => {
                self.0.remove(name);
            }
            DirOp::Rename(from, to, node) => {
                self.0.remove(from);
                self.0.insert(to.clone(), *node);
            }
        }
    }

    /// Whole or not at all: a directory never shows half a name.
    fn apply_torn(&mut self, op: &DirOp, rng: &mut Rng) {
        if rng.below(2) == 0 {
            self.apply(op);
        }
    }
}
