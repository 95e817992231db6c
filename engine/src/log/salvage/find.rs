//! Finds every whole frame in the bytes of one segment file, wherever it stands and whatever is hurt around it.
//!
//! A reader believes what stands in order. Here more is known to be wrong, so less is asked: a frame counts if both of its
//! checksums hold under the segment's salt and its records fill it exactly, at whatever byte it stands. Order comes from
//! positions, and where two frames claim the same position, the one that more of the chain vouches for is taken.

use std::collections::BTreeMap;

use sessionlog_codec::DecodeError;
use sessionlog_codec::DecodeErrorKind;
use sessionlog_codec::footer::{self, FooterEntry, LOCATOR_LEN};
use sessionlog_codec::frame::{FRAME_MAGIC, Frame, FrameHeader, KIND_FOOTER, KIND_RECORDS};
use sessionlog_codec::ids::{Digest, Epoch, Position};
use sessionlog_codec::limits::{FRAME_HEADER_LEN, FRAME_RECORDS_MAX};

/// Bytes of a frame's header before its checksum.
const CHECKED_LEN: usize = FRAME_HEADER_LEN - 4;
/// With more pieces than this, conflicts between frames are settled in the order of positions instead of by weight.
const RUNS_MAX: usize = 4096;

/// A whole frame of records, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) first: Position,
    pub(crate) next: Position,
    pub(crate) epoch: Epoch,
    pub(crate) synced: Position,
    pub(crate) chain: Digest,
}

/// A frame whose header is whole and whose body is not: what it held is known to be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HurtFrame {
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) first: Position,
    pub(crate) next: Position,
    pub(crate) synced: Position,
}

/// The index of a sealed segment, if it is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) offset: usize,
    /// With its locator.
    pub(crate) len: usize,
    pub(crate) next: Position,
    pub(crate) entries: Vec<FooterEntry>,
}

impl Index {
    /// What the record at `position` was.
    pub(crate) fn entry(&self, position: Position) -> Option<&FooterEntry> {
        let back = usize::try_from(self.next.0.checked_sub(position.0)?).ok()?;
        self.entries.get(self.entries.len().checked_sub(back)?)
    }
}

/// What one file holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces {
    /// In the order of positions, none twice.
    pub(crate) frames: Vec<Found>,
    pub(crate) hurt: Vec<HurtFrame>,
    pub(crate) index: Option<Index>,
    /// Whole frames that are not taken, since another one has their place: bytes, not records.
    pub(crate) repeated: Vec<(usize, usize)>,
    /// Frames of a kind that this version may skip.
    pub(crate) skipped: Vec<(usize, usize)>,
    /// A sound frame that only a newer version can read.
    pub(crate) newer: Option<(usize, DecodeError)>,
}

/// Looks for frames from the byte `start` on.
pub(crate) fn find(bytes: &[u8], start: usize, salt: u32) -> Pieces {
    let mut pieces = Pieces::default();
    let mut at = start;
    while let Some(offset) = next_magic(bytes, at) {
        let rest = bytes.get(offset..).unwrap_or_default();
        at = match Frame::decode(rest, salt) {
            Ok(frame) => offset.saturating_add(note(&mut pieces, offset, rest, &frame)),
            Err(error) => {
                note_no_frame(&mut pieces, offset, rest, salt, error);
                offset.saturating_add(1)
            }
        };
    }
    choose(&mut pieces, bytes, salt);
    pieces
}

fn next_magic(bytes: &[u8], from: usize) -> Option<usize> {
    let [first, ..] = FRAME_MAGIC;
    let mut at = from;
    loop {
        at = at.checked_add(bytes.get(at..)?.iter().position(|byte| *byte == first)?)?;
        if bytes.get(at..)?.starts_with(&FRAME_MAGIC) {
            return Some(at);
        }
        at = at.saturating_add(1);
    }
}

/// Takes a whole frame into account. Gives its length without padding, which nothing vouches for.
fn note(pieces: &mut Pieces, offset: usize, rest: &[u8], frame: &Frame<'_>) -> usize {
    let header = frame.header();
    let fields = &header.fields;
    // The padding of a file's last frame may be missing.
    let len = header.frame_len().min(rest.len());
    match fields.kind {
        KIND_RECORDS => pieces.frames.push(Found {
            offset,
            len,
            first: fields.first_position,
            next: fields.next_position(),
            epoch: fields.epoch,
            synced: fields.synced,
            chain: header.chain,
        }),
        KIND_FOOTER => {
            let behind = rest.get(len..len.saturating_add(LOCATOR_LEN)).unwrap_or_default();
            let whole =
                if footer::locate(behind) == Some(len) { len.saturating_add(LOCATOR_LEN) } else { len };
            if let Ok(entries) = footer::decode(frame) {
                let next = fields.first_position;
                pieces.index = Some(Index { offset, len: whole, next, entries });
            }
        }
        _ => pieces.skipped.push((offset, len)),
    }
    FRAME_HEADER_LEN.saturating_add(header.body_len)
}

fn note_no_frame(pieces: &mut Pieces, offset: usize, rest: &[u8], salt: u32, error: DecodeError) {
    if error.kind() == DecodeErrorKind::Unsupported {
        pieces.newer.get_or_insert((offset, error));
        return;
    }
    if let Ok(header) = FrameHeader::decode(rest, salt)
        && header.fields.kind == KIND_RECORDS
    {
        pieces.hurt.push(HurtFrame {
            offset,
            len: header.frame_len().min(rest.len()),
            first: header.fields.first_position,
            next: header.fields.next_position(),
            synced: header.fields.synced,
        });
    }
}

/// Puts the frames in the order of their positions, and settles which is taken where two claim the same ones.
fn choose(pieces: &mut Pieces, bytes: &[u8], salt: u32) {
    let Pieces { frames, hurt, repeated, .. } = pieces;
    // What a hurt frame held can't stand inside of it as a frame: its payload quotes one.
    let quoted = |frame: &Found| {
        hurt.iter().any(|hurt| {
            let inside = hurt.offset < frame.offset && frame.offset < hurt.offset.saturating_add(hurt.len);
            inside && frame.first < hurt.next && hurt.first < frame.next
        })
    };
    let mut kept = Vec::with_capacity(frames.len());
    for frame in std::mem::take(frames) {
        if quoted(&frame) { repeated.push((frame.offset, frame.len)) } else { kept.push(frame) }
    }
    kept.sort_by_key(|frame| (frame.first, frame.offset));
    let mut unique: Vec<Found> = Vec::with_capacity(kept.len());
    for frame in kept {
        let same = unique.iter().rev().take_while(|other| other.first == frame.first);
        if same.into_iter().any(|other| other.chain == frame.chain && other.next == frame.next) {
            repeated.push((frame.offset, frame.len));
        } else {
            unique.push(frame);
        }
    }
    let in_order = unique.windows(2).all(|pair| match pair {
        [before, after] => before.next <= after.first,
        _ => true,
    });
    if !in_order {
        let (taken, left) = heaviest(runs(unique, bytes, salt));
        repeated.extend(left.iter().map(|frame| (frame.offset, frame.len)));
        unique = taken;
    }
    *frames = unique;
    // What is whole in one place is not lost in another.
    hurt.retain(|hurt| !frames.iter().any(|frame| frame.first < hurt.next && hurt.first < frame.next));
}

/// Frames that follow each other by position and by chain, so that each vouches for the others.
struct Run {
    frames: Vec<Found>,
}

impl Run {
    fn first(&self) -> Position {
        self.frames.first().map_or(Position::START, |frame| frame.first)
    }

    fn next(&self) -> Position {
        self.frames.last().map_or(Position::START, |frame| frame.next)
    }
}

fn runs(frames: Vec<Found>, bytes: &[u8], salt: u32) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for frame in frames {
        let follows = |run: &&mut Run| {
            run.frames.last().is_some_and(|last| last.next == frame.first && links(last, &frame, bytes, salt))
        };
        match runs.iter_mut().rev().take(16).find(follows) {
            Some(run) => run.frames.push(frame),
            None => runs.push(Run { frames: vec![frame] }),
        }
    }
    runs.sort_by_key(|run| (run.next(), run.first()));
    runs
}

/// Whether the chain goes on from one frame to another.
fn links(before: &Found, after: &Found, bytes: &[u8], salt: u32) -> bool {
    let rest = bytes.get(after.offset..).unwrap_or_default();
    Frame::decode(rest, salt).is_ok_and(|frame| frame.chain_after(&before.chain) == after.chain)
}

/// The runs without overlap that hold the most frames, in order; and the frames of the others.
fn heaviest(runs: Vec<Run>) -> (Vec<Found>, Vec<Found>) {
    // For each run: the most frames up to its end if it is taken, and the run before it then.
    let mut best: Vec<(usize, Option<usize>)> = Vec::with_capacity(runs.len());
    for (index, run) in runs.iter().enumerate() {
        let earlier = runs.iter().zip(&best).enumerate().take(index);
        let window = index.saturating_sub(RUNS_MAX);
        let compatible = earlier.skip(window).filter(|(_, (other, _))| other.next() <= run.first());
        let before = compatible.max_by_key(|(_, (_, (frames, _)))| *frames);
        let weight = before.map_or(0, |(_, (_, (frames, _)))| *frames);
        best.push((weight.saturating_add(run.frames.len()), before.map(|(index, _)| index)));
    }
    let last = best.iter().enumerate().max_by_key(|(_, (frames, _))| *frames).map(|(index, _)| index);
    let mut taken: Vec<bool> = vec![false; runs.len()];
    let mut at = last;
    while let Some(index) = at {
        if let Some(taken) = taken.get_mut(index) {
            *taken = true;
        }
        at = best.get(index).and_then(|(_, before)| *before);
    }
    let (mut kept, mut left) = (Vec::new(), Vec::new());
    for (run, taken) in runs.into_iter().zip(taken) {
        if taken { kept.extend(run.frames) } else { left.extend(run.frames) }
    }
    (kept, left)
}

/// The salt of a segment whose header is hurt, from its frames. A header's checksum is a bijection of the salt that it is
/// seeded with, so each frame names one; the one that the most frames with a whole body name is the salt, and before it
/// one that is `known` to be that of a segment of this log.
pub(crate) fn implied_salt(bytes: &[u8], known: &dyn Fn(u32) -> bool) -> Option<u32> {
    let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
    let mut at = 0;
    while let Some(offset) = next_magic(bytes, at) {
        let rest = bytes.get(offset..).unwrap_or_default();
        at = offset.saturating_add(1);
        let Some(salt) = salt_of_header(rest) else { continue };
        if let Ok(frame) = Frame::decode(rest, salt) {
            let count = votes.entry(salt).or_default();
            *count = count.saturating_add(1);
            at = offset.saturating_add(FRAME_HEADER_LEN).saturating_add(frame.header().body_len);
        }
    }
    votes.into_iter().max_by_key(|(salt, count)| (known(*salt), *count)).map(|(salt, _)| salt)
}

/// The seed under which a frame header has the checksum that it carries: the checksum's steps, backwards.
fn salt_of_header(bytes: &[u8]) -> Option<u32> {
    let covered = bytes.get(..CHECKED_LEN)?;
    let stored: [u8; 4] = bytes.get(CHECKED_LEN..FRAME_HEADER_LEN)?.try_into().ok()?;
    let state = covered.iter().rev().fold(!u32::from_le_bytes(stored), |state, byte| step_back(state, *byte));
    Some(!state)
}

/// The register of CRC-32/ISO-HDLC before `byte`, from the one after it. Bit by bit: headers are few.
fn step_back(mut state: u32, byte: u8) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    for _ in 0..8 {
        // The polynomial's highest bit is set, so the register's tells whether it was added.
        state = if state & 0x8000_0000 == 0 { state << 1 } else { ((state ^ POLYNOMIAL) << 1) | 1 };
    }
    state ^ u32::from(byte)
}

/// Says what is wrong with a stretch of bytes, with what was expected and found where that can be told.
pub(crate) fn describe(bytes: &[u8], salt: u32) -> String {
    if bytes.iter().all(|byte| *byte == 0) {
        return "there are only zero bytes".to_owned();
    }
    match Frame::decode(bytes, salt) {
        Err(error) => error.to_string(),
        Ok(_) => "a whole frame that has no place here".to_owned(),
    }
}

/// Whether a frame may stand so far on from where records are expected: a segment holds no more of them.
pub(crate) fn within_segment(from: Position, first: Position) -> bool {
    first.0.checked_sub(from.0).is_some_and(|missing| missing <= u64::from(FRAME_RECORDS_MAX))
}

/// Where the bytes that are no frame begin and end, in order: from `start` on, what none of the `used` stretches covers.
pub(crate) fn unused(bytes: &[u8], start: usize, mut used: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    used.sort_unstable();
    let end = bytes.len();
    let mut holes = Vec::new();
    let mut at = start;
    for (offset, len) in used.into_iter().chain([(end, 0)]) {
        if offset > at {
            holes.push((at, offset.saturating_sub(at)));
        }
        at = at.max(offset.saturating_add(len));
    }
    holes
}

#[cfg(test)]
mod tests {
    use sessionlog_codec::frame::{self, FrameFields};
    use sessionlog_codec::ids::{KindNo, NodeId, SchemaVersion, Timestamp};
    use sessionlog_codec::record::Envelope;

    use super::*;

    fn frames(salt: u32, count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut chain = Digest([0; 32]);
        for n in 1..=count {
            let envelope = Envelope::new(NodeId::ROOT, KindNo(20), SchemaVersion(1), Timestamp(0));
            let fields = FrameFields::records(Position(n), Epoch(1), Position(n - 1));
            let payload = vec![u8::try_from(n % 251).unwrap(); 20];
            chain = frame::encode(&mut bytes, salt, &chain, fields, &[(envelope, payload)]).unwrap();
        }
        bytes
    }

    #[test]
    fn a_salt_is_read_off_the_frames() {
        for salt in [0, 1, 0xffff_ffff, 0x1234_5678, 0x8000_0001] {
            let bytes = frames(salt, 3);
            assert_eq!(salt_of_header(&bytes), Some(salt));
            assert_eq!(implied_salt(&bytes, &|_| false), Some(salt));
        }
        assert_eq!(implied_salt(b"nothing of ours", &|_| false), None);
    }

    #[test]
    fn frames_are_found_at_any_byte_and_put_in_order() {
        let whole = frames(7, 6);
        let len = whole.len() / 6;
        let part = |n: usize| &whole[(n - 1) * len..n * len];
        // Of the padding behind a frame, a part may be missing too.
        let torn = &part(1)[..len - 3];
        let bytes = [part(4), b"xyz".as_slice(), torn, part(2), part(2), b"?", part(6)].concat();
        let found = find(&bytes, 0, 7);
        let positions: Vec<u64> = found.frames.iter().map(|frame| frame.first.0).collect();
        assert_eq!(positions, [1, 2, 4, 6]);
        assert_eq!(found.repeated.len(), 1);
    }

    #[test]
    fn of_two_frames_with_one_position_the_chain_chooses() {
        let whole = frames(7, 6);
        let len = whole.len() / 6;
        let mut forged = Vec::new();
        let envelope = Envelope::new(NodeId::ROOT, KindNo(20), SchemaVersion(1), Timestamp(0));
        let fields = FrameFields::records(Position(3), Epoch(1), Position(0));
        frame::encode(&mut forged, 7, &Digest([9; 32]), fields, &[(envelope, vec![1; 300])]).unwrap();
        let bytes = [&whole[..2 * len], &forged, &whole[2 * len..]].concat();
        let found = find(&bytes, 0, 7);
        assert_eq!(found.frames.len(), 6);
        assert!(found.frames.iter().all(|frame| frame.len == len), "{found:?}");
        assert_eq!(found.repeated, [(2 * len, forged.len())]);
    }

    fn frame_of(position: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let envelope = Envelope::new(NodeId::ROOT, KindNo(20), SchemaVersion(1), Timestamp(0));
        let fields = FrameFields::records(Position(position), Epoch(1), Position(0));
        frame::encode(&mut bytes, 7, &Digest([9; 32]), fields, &[(envelope, payload.to_vec())]).unwrap();
        bytes
    }

    /// What is whole in one place is not lost in another; what is whole nowhere is known by its header.
    #[test]
    fn a_frame_is_hurt_only_if_it_is_whole_nowhere() {
        let whole = frames(7, 6);
        let len = whole.len() / 6;
        let part = |n: usize| whole[(n - 1) * len..n * len].to_vec();
        let hurt = |n: usize| {
            let mut part = part(n);
            part[FRAME_HEADER_LEN + 2] ^= 1;
            part
        };
        let known = |offset: usize, n: u64| {
            let (first, next, synced) = (Position(n), Position(n + 1), Position(n - 1));
            HurtFrame { offset, len, first, next, synced }
        };
        for (whole, left) in [([2, 3, 4], 0..0), ([4, 5, 6], 0..1), ([1, 2, 5], 0..2)] {
            let bytes = [hurt(3), part(whole[0]), part(whole[1]), part(whole[2]), hurt(4)].concat();
            let found = find(&bytes, 0, 7);
            let positions: Vec<u64> = found.frames.iter().map(|frame| frame.first.0).collect();
            assert_eq!(positions, whole.map(|n| n as u64));
            let expected = [known(0, 3), known(4 * len, 4)][left].to_vec();
            assert_eq!(found.hurt, expected);
        }
    }

    /// A frame inside of a hurt one is what its payload quotes, if it claims the same positions; one right behind it is not.
    #[test]
    fn what_a_hurt_frame_quotes_is_no_frame() {
        for (claimed, quoted) in [(4, false), (5, true), (6, false)] {
            let inner = frame_of(claimed, b"quoted");
            let mut outer = frame_of(5, &inner);
            let at = outer.windows(inner.len()).position(|window| window == inner).unwrap();
            outer[FRAME_HEADER_LEN + 2] ^= 1;
            let found = find(&outer, 0, 7);
            assert_eq!(found.frames.len(), usize::from(!quoted), "at {claimed}");
            assert_eq!(found.repeated, if quoted { vec![(at, inner.len())] } else { vec![] }, "at {claimed}");
            // The same frame behind it.
            let behind = [outer.clone(), frame_of(5, b"behind")].concat();
            let found = find(&behind, 0, 7);
            assert!(found.frames.iter().any(|frame| frame.offset == outer.len() && frame.first.0 == 5));
            assert_eq!(found.hurt, []);
        }
    }

    /// Frames that claim each other's positions: the run that is longest and fits with the others wins, wherever it stands.
    #[test]
    fn of_runs_that_overlap_the_longest_is_taken() {
        let whole = frames(7, 8);
        let len = whole.len() / 8;
        let part =
            |range: std::ops::Range<usize>| whole[(range.start - 1) * len..(range.end - 1) * len].to_vec();
        let mut chain = Digest([5; 32]);
        let mut forged = Vec::new();
        for position in 4..=5 {
            let envelope = Envelope::new(NodeId::ROOT, KindNo(20), SchemaVersion(1), Timestamp(0));
            let fields = FrameFields::records(Position(position), Epoch(1), Position(0));
            chain = frame::encode(&mut forged, 7, &chain, fields, &[(envelope, vec![3; 200])]).unwrap();
        }
        for bytes in [
            [forged.clone(), part(1..9)].concat(),
            [part(1..9), forged.clone()].concat(),
            [part(5..9), forged.clone(), part(1..5)].concat(),
        ] {
            let found = find(&bytes, 0, 7);
            let taken: Vec<(u64, usize)> =
                found.frames.iter().map(|frame| (frame.first.0, frame.len)).collect();
            assert_eq!(taken, (1..=8).map(|position| (position, len)).collect::<Vec<_>>());
            assert_eq!(found.repeated.len(), 2);
        }
        // The longer ones of what is left win, though they don't follow from the rest.
        let bytes = [part(1..4), part(5..6), forged.clone(), part(6..9)].concat();
        let found = find(&bytes, 0, 7);
        let positions: Vec<u64> = found.frames.iter().map(|frame| frame.first.0).collect();
        assert_eq!(positions, [1, 2, 3, 5, 6, 7, 8]);
    }

    #[test]
    fn the_salt_is_that_of_the_most_frames_or_a_known_one() {
        let bytes = [frames(8, 1), frames(7, 3), frames(9, 2)].concat();
        assert_eq!(implied_salt(&bytes, &|_| false), Some(7));
        assert_eq!(implied_salt(&bytes, &|salt| salt == 9 || salt == 8), Some(9));
        let mut hurt = frames(7, 1);
        hurt[FRAME_HEADER_LEN + 2] ^= 1;
        assert_eq!(implied_salt(&hurt, &|_| true), None, "of a hurt frame, the salt may be any");
    }

    #[test]
    fn what_stands_in_a_hole_is_described() {
        assert_eq!(describe(&[0; 300], 7), "there are only zero bytes");
        assert_eq!(describe(&frames(7, 1), 7), "a whole frame that has no place here");
        let mut hurt = frames(7, 1);
        hurt[FRAME_HEADER_LEN + 2] ^= 1;
        assert_eq!(describe(&hurt, 7), Frame::decode(&hurt, 7).unwrap_err().to_string());
        let most = u64::from(FRAME_RECORDS_MAX);
        let within = |first| within_segment(Position(10), Position(first));
        assert_eq!([9, 10, 10 + most, 11 + most].map(within), [false, true, true, false]);
    }
}
