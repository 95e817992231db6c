//! What of a file is whole, and what hurt bytes cost.

use super::*;

/// Each frame of each segment in turn: what it held is lost, whole, and nothing else; the index tells what it was.
#[test]
fn a_hurt_frame_costs_itself() {
    for nth in 0..made().names().len() - 1 {
        for (at, place) in made().frames(nth).into_iter().enumerate() {
            let made = made();
            let bytes = made.bytes(nth);
            let salt = SegmentHeader::decode(&bytes).unwrap().salt;
            let fields = Frame::decode(&bytes[place.clone()], salt).unwrap().header().fields.clone();
            made.change(nth, |bytes| bytes[place.start + FRAME_HEADER_LEN + 3] ^= 1);
            let hurt = made.bytes(nth);
            let expected = Frame::decode(&hurt[place.start..], salt).unwrap_err().to_string();
            let span = made.span();
            assert_eq!(
                (span.file.clone(), span.offset),
                (made.names()[nth].to_string(), to_u64(place.start))
            );
            if fields.kind != frame::KIND_RECORDS {
                assert_eq!(span.loss, Loss::Nothing);
                continue;
            }
            assert_eq!((to_u64(place.len()), &expected), (span.len, &span.found));
            let lost = fields.first_position.0..fields.next_position().0;
            assert_eq!(span.loss, acknowledged(lost.clone()));
            let layout = made.layout();
            assert_eq!(walked(&layout), without(lost.clone()), "segment {nth}, frame {at}");
            let mut told = 0;
            let visit = &mut |item: Item<'_>| {
                if let Item::Span { known, .. } = item {
                    for position in 1..=LAST {
                        let entry = known(Position(position)).map(|entry| entry.kind);
                        told += usize::from(lost.contains(&position) && entry.is_some());
                        let tag = (position - 1) / 3 * 2 + u64::from((position - 1) % 3 > 0);
                        assert!(entry.is_none_or(|kind| u64::from(kind.0) == 20 + tag), "{position}");
                    }
                }
                Ok(())
            };
            layout.walk(&mut |_| {}, visit).unwrap();
            assert_eq!(told, usize::try_from(lost.end - lost.start).unwrap());
        }
    }
}

/// The index of a sealed segment is no loss, hurt or not there; a segment that is cut before it has lost what else was cut.
#[test]
fn an_index_costs_nothing() {
    let made = made();
    let index = frames(&made.bytes(1)).pop().unwrap();
    made.change(1, |bytes| bytes[index.start + FRAME_HEADER_LEN + 1] ^= 1);
    let (span, bytes) = (made.span(), made.bytes(1));
    assert_eq!((span.offset, span.loss), (to_u64(index.start), Loss::Nothing));
    assert_eq!(span.len, to_u64(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1 - index.start));
    assert_eq!(records(&made.layout()), whole());
    // Where the file does not end in its locator, the index is believed all the same.
    let made = self::made();
    let len = made.bytes(1).len();
    made.change(1, |bytes| bytes[len - 2] ^= 1);
    let span = made.span();
    assert_eq!(
        (span.offset, span.len, span.loss),
        (to_u64(index.end), to_u64(len - index.end), Loss::Nothing)
    );
    let made = self::made();
    made.change(1, |bytes| bytes.truncate(index.start));
    let span = made.span();
    assert_eq!((span.offset, span.len, span.loss), (to_u64(index.start), 0, Loss::Nothing));
    assert_eq!(span.found, "the index at its end is missing");
    let made = self::made();
    let (cut, lost) = (made.frames(1)[1].start, made.positions(1));
    made.change(1, |bytes| bytes.truncate(cut));
    let span = made.span();
    assert_eq!(
        (span.offset, span.len, span.found.as_str()),
        (to_u64(cut), 0, "the bytes of these records are not there")
    );
    assert_eq!(span.loss.positions().unwrap().1, Position(lost.end - 1));
}

/// At the end of a log that is cut anywhere in its last frame, nothing proves that this was acknowledged; with the beginning of a
/// next segment behind it, everything does.
#[test]
fn a_torn_end_is_a_loss_only_if_something_proves_it() {
    let made = made();
    let last = made.names().len() - 1;
    let place = made.frames(last).pop().unwrap();
    let first = Position(LAST - 1);
    for cut in [place.start + 1, place.start + 70, place.end - 8] {
        let made = self::made();
        made.change(last, |bytes| bytes.truncate(cut));
        let span = made.span();
        assert_eq!((span.offset, span.loss), (to_u64(place.start), Loss::TornTail { first }), "cut at {cut}");
        assert_eq!((span.loss.positions(), span.loss.records()), (None, 0));
        made.put("00000000000000000019.seg", Vec::new());
        let span = made.span();
        assert_eq!((span.offset, span.loss), (to_u64(place.start), acknowledged(first.0..LAST + 1)));
    }
    // Cut between two frames, nothing is there to be lost; the next segment proves it all the same.
    let made = self::made();
    made.change(last, |bytes| bytes.truncate(place.start));
    assert_eq!(made.layout().spans, []);
    made.put("00000000000000000019.seg", Vec::new());
    let span = made.span();
    assert_eq!((span.offset, span.len, span.loss), (to_u64(place.start), 0, acknowledged(first.0..LAST + 1)));
    // Zeros behind the last frame are space that was not used yet.
    let made = self::made();
    made.change(last, |bytes| bytes.resize(bytes.len() + 4096, 0));
    assert_eq!(made.layout().spans, []);
}

/// Records that were never synced, with a torn one among them: what stands behind it is whole, and nothing proves anything.
#[test]
fn what_nothing_proves_is_told_as_such() {
    let made = made_with(LOG, 1, Durability::Buffered);
    assert!(made.names().len() == 2, "longer segments where nobody syncs");
    let place = made.frames(1)[0].clone();
    let first = made.positions(1).start;
    let next =
        Frame::decode(&made.bytes(1)[place.clone()], SegmentHeader::decode(&made.bytes(1)).unwrap().salt)
            .unwrap()
            .header()
            .fields
            .next_position()
            .0;
    made.change(1, |bytes| bytes[place.start + FRAME_HEADER_LEN + 3] ^= 1);
    let layout = made.layout();
    let lost = Loss::Unproven { first: Position(first), last: Position(next - 1) };
    assert_eq!((layout.spans.len(), layout.spans[0].loss), (1, lost));
    assert_eq!(layout.unproven_records(), LAST + 1 - next);
    assert_eq!(walked(&layout), without(first..next));
}

/// Frames that stand twice, or in another order: each record once, in order.
#[test]
fn frames_that_stand_twice_are_taken_once() {
    let made = made();
    let places = made.frames(0);
    made.change(0, |bytes| {
        let (first, second) = (bytes[places[0].clone()].to_vec(), bytes[places[1].clone()].to_vec());
        bytes.splice(places[0].start..places[1].end, [second, first].concat());
    });
    assert_eq!(walked(&made.layout()), whole());
    let made = self::made();
    made.change(0, |bytes| {
        let first = bytes[places[0].clone()].to_vec();
        let end = places.last().unwrap().start;
        bytes.splice(end..end, first);
    });
    let layout = made.layout();
    assert_eq!(layout.repeated, 1);
    assert_eq!(records(&layout), whole());
    // The same frame in another segment's file.
    let made = self::made();
    let (bytes, end) = (made.bytes(0), made.frames(1).pop().unwrap().start);
    made.change(1, |other| drop(other.splice(end..end, bytes[places[0].clone()].to_vec())));
    assert_eq!(records(&made.layout()), whole());
}

/// Of what a newer version wrote, what may be skipped is counted, and the rest is not taken apart by us.
#[test]
fn newer_frames_are_skipped_or_left_to_the_newer_version() {
    let made = made();
    made.change(0, |bytes| _ = insert(bytes, frames(bytes)[0].end, 0x90));
    let layout = made.layout();
    assert_eq!((layout.skipped, layout.repeated), (1, 0));
    assert_eq!(records(&layout), whole());
    let made = self::made();
    made.change(0, |bytes| _ = insert(bytes, frames(bytes)[0].end, 0x03));
    let error = survey(&made.dir, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains(&made.names()[0].to_string()), "{error}");
}

/// A segment of another copy of the same log: every frame is whole, and the chain tells that they were mixed.
#[test]
fn where_the_chain_breaks_is_told() {
    let (made, copy) = (made(), made_with(LOG, 2, Durability::Sync));
    let (bytes, lost) = (copy.bytes(1), made.positions(1));
    assert_eq!(copy.names(), made.names());
    made.change(1, |there| *there = bytes);
    let layout = made.layout();
    let breaks = |position: u64| if position == lost.start || position == lost.end { "!" } else { "" };
    let expected: Vec<_> = (1..=LAST).map(|position| format!("{}{position}", breaks(position))).collect();
    assert_eq!(walked(&layout), expected.join(" "));
}

#[test]
fn what_is_changed_while_it_is_read_is_an_error() {
    let made = made();
    let layout = made.layout();
    let place = made.frames(1)[0].clone();
    made.change(1, |bytes| bytes[place.start + FRAME_HEADER_LEN + 3] ^= 1);
    let error = layout.walk(&mut |_| {}, &mut |_| Ok(())).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, "salvage.changed"));
    assert!(error.to_string().contains(&made.names()[1].to_string()), "{error}");
}

#[test]
fn a_magic_that_begins_twice_is_found() {
    let made = made();
    let place = made.frames(0)[1].clone();
    // The first byte of a frame's mark, before the frame itself.
    made.change(0, |bytes| drop(bytes.splice(place.start..place.start, [FRAME_MAGIC[0]; 3])));
    let layout = made.layout();
    assert_eq!(records(&layout), whole());
    assert_eq!((layout.spans.len(), layout.spans[0].len), (1, 3));
}
