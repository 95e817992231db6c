//! Which files belong to a log, in which order, and what those cost that are missing or hold nothing.

use super::*;

#[test]
fn what_is_no_segment_is_left_out_and_named() {
    let made = made();
    let strange = [
        ("00000000000000000001 (conflicted copy).seg", "a copy that another program made"),
        ("00000000000000000001.seg~", "a copy that another program made"),
        ("00000000000000000001.seg.bak", "a copy that another program made"),
        ("Conflict of 2", "a copy that another program made"),
        ("notes.txt", "it does not have the name of a segment"),
    ];
    for (name, _) in strange {
        made.put(name, vec![1; 40]);
    }
    made.storage.create_dir(&made.dir.segments.join("00000000000000000500.seg")).unwrap();
    let survey = survey(&made.dir, &mut |_| {}).unwrap();
    let found: BTreeMap<&str, &str> =
        survey.left_out.iter().map(|left| (left.file.as_str(), left.why.as_str())).collect();
    assert_eq!(found.len(), 6, "{found:#?}");
    for (name, why) in strange {
        assert!(found[name].starts_with(why), "{name}: {}", found[name]);
    }
    assert_eq!(found["00000000000000000500.seg"], "it is not a regular file; links are not followed");
    assert_eq!(walked(&survey.layout(None).unwrap()), whole());
}

/// A crash in the creation of a segment: all before it was durable, so nothing may be missing there.
#[test]
fn a_segment_that_was_begun_proves_that_all_before_it_was_durable() {
    for len in [0, 10, SEGMENT_HEADER_LEN] {
        let made = made();
        made.put("00000000000000000019.seg", vec![0; len]);
        let survey = made.survey();
        assert_eq!(survey.begun, Some(Position(LAST + 1)));
        let why = "creating this segment did not finish; no record was in it";
        assert_eq!(survey.left_out, [LeftOut { file: "00000000000000000019.seg".into(), why: why.into() }]);
        let layout = survey.layout(None).unwrap();
        assert_eq!((walked(&layout), layout.witnessed), (whole(), Position(LAST)));
        // What is torn before it was acknowledged.
        let last = made.names().len() - 2;
        made.change(last, |bytes| bytes.truncate(bytes.len() - 9));
        assert_eq!(made.layout().spans[0].loss, acknowledged(LAST - 1..LAST + 1));
    }
    // With something behind the header it is no creation that did not finish.
    let made = made();
    made.put("00000000000000000019.seg", vec![0; SEGMENT_HEADER_LEN + 1]);
    assert_eq!(made.survey().begun, None);
    let span = made.layout().spans.pop().unwrap();
    assert_eq!(
        (span.file.as_str(), span.found.as_str()),
        ("00000000000000000019.seg", "there are only zero bytes")
    );
}

#[test]
fn a_single_file_that_was_begun_is_no_log() {
    let storage = SimStorage::new();
    let made = Made { dir: dir_at(&storage, "x"), storage };
    made.put("00000000000000000001.seg", vec![0; 20]);
    let survey = made.survey();
    assert_eq!((survey.begun, survey.files.len(), survey.left_out.len()), (None, 1, 0));
    let error = survey.layout(None).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::NotFound, "salvage.nothing"));
}

/// A hurt header costs no record: the salt of the frames tells which segment it is, whatever the file is called.
#[test]
fn a_hurt_header_costs_nothing() {
    for nth in 0..made().names().len() {
        let made = made();
        let name = made.names()[nth].to_string();
        made.change(nth, |bytes| bytes[9] ^= 1);
        let survey = made.survey();
        let number = SegmentNo(to_u64(nth));
        assert_eq!(survey.identified(&survey.files[nth]), Some((LOG, number)));
        let span = made.span();
        assert_eq!((span.file.clone(), span.offset, span.loss), (name.clone(), 0, Loss::Nothing));
        assert_eq!(span.len, to_u64(SEGMENT_HEADER_LEN));
        assert_eq!(Some(&span.found), survey.files[nth].header_error.as_ref());
        let layout = made.layout();
        assert_eq!(records(&layout), whole(), "{nth}");
        // A copy under another name is no other segment.
        made.put("00000000000000000700.seg", made.bytes(nth));
        let layout = made.layout();
        let why = format!("a copy of {name}: both are segment {number}");
        assert_eq!(layout.left_out, [LeftOut { file: "00000000000000000700.seg".into(), why }]);
        assert_eq!(records(&layout), whole(), "{nth}");
    }
}

/// Two files of one segment: the one that is where it belongs is taken, and else the one that has more.
#[test]
fn of_two_copies_the_better_one_is_taken() {
    let made = made();
    let name = made.names()[1].to_string();
    made.put("00000000000000000700.seg", made.bytes(1));
    let why = format!("a copy of {name}: both are segment 1");
    assert_eq!(made.layout().left_out, [LeftOut { file: "00000000000000000700.seg".into(), why }]);
    // Neither is where it belongs.
    let made = self::made();
    let (bytes, second) = (made.bytes(1), made.frames(1)[1].clone());
    made.storage.remove_file(&made.path(1)).unwrap();
    made.put("00000000000000000700.seg", bytes[..second.start].to_vec());
    made.put("00000000000000000701.seg", bytes);
    let layout = made.layout();
    let why = "a copy of 00000000000000000701.seg: both are segment 1".to_owned();
    assert_eq!(layout.left_out, [LeftOut { file: "00000000000000000700.seg".into(), why }]);
    assert_eq!(walked(&layout), whole());
}

#[test]
fn a_file_that_holds_nothing_costs_its_records() {
    for (content, found) in [
        (Vec::new(), "the file is empty"),
        (vec![0; 500], "there are only zero bytes"),
        (vec![b'x'; 500], "neither a segment's header nor any whole frame"),
    ] {
        let made = made();
        let (lost, name, len) = (made.positions(1), made.names()[1].to_string(), to_u64(content.len()));
        made.change(1, |bytes| *bytes = content);
        let span = made.span();
        assert_eq!((span.file, span.offset, span.len, span.loss), (name, 0, len, acknowledged(lost.clone())));
        assert_eq!(span.found, found);
        assert_eq!(walked(&made.layout()), without(lost.clone()));
        assert_eq!(span.loss.records(), lost.end - lost.start);
    }
}

#[test]
fn missing_segments_are_named_by_the_one_behind_them() {
    for (nth, found) in [
        (0, "the segments before this one are missing".to_owned()),
        (1, format!("the segments between {} and this one are missing", made().names()[0])),
    ] {
        let made = made();
        let (lost, behind) = (made.positions(nth), made.names()[nth + 1].to_string());
        made.storage.remove_file(&made.path(nth)).unwrap();
        let span = made.span();
        assert_eq!((span.file, span.offset, span.len, &span.found), (behind, 0, 0, &found));
        assert_eq!(span.loss, acknowledged(lost.clone()));
        assert_eq!(walked(&made.layout()), without(lost));
    }
}

/// Of the directory of another log, a segment under a free name: it is not taken in, and is told.
#[test]
fn a_segment_of_another_log_is_left_out() {
    let other = LogId([9; 16]);
    let made = made();
    let stranger = made_with(other, 2, Durability::Sync);
    made.put("00000000000000000700.seg", stranger.bytes(0));
    let survey = made.survey();
    assert_eq!(survey.lineages().unwrap(), [BTreeSet::from([LOG]), BTreeSet::from([other])]);
    let layout = survey.layout(Some(&BTreeSet::from([LOG]))).unwrap();
    let why = format!("a segment of another log ({other})");
    assert_eq!(layout.left_out, [LeftOut { file: "00000000000000000700.seg".into(), why }]);
    assert_eq!(walked(&layout), whole());
    // Its header hurt too, and right behind the last segment by its positions: the chain does not lead there.
    let stranger = made_with(other, 2, Durability::Sync);
    let made = self::made();
    made.storage.remove_file(&made.path(1)).unwrap();
    made.put(&stranger.names()[1].to_string(), stranger.bytes(1));
    made.change(1, |bytes| bytes[9] ^= 1);
    let layout = made.layout();
    let why = "its header is hurt, and its frames do not follow from the segment before it";
    assert_eq!(layout.left_out, [LeftOut { file: stranger.names()[1].to_string(), why: why.into() }]);
    let made = self::made();
    made.put("00000000099999999999.seg", vec![b'x'; 700]);
    let why = "its header is hurt, and its name is too far from the other segments' to be right";
    assert_eq!(
        made.layout().left_out,
        [LeftOut { file: "00000000099999999999.seg".into(), why: why.into() }]
    );
}

/// A fork has segments of two logs; what the origin wrote behind the fork is not its own.
#[test]
fn a_fork_is_both_logs_up_to_where_it_began() {
    let fork_id = LogId([8; 16]);
    let made = made();
    let target = dir_at(&made.storage, "f");
    made.storage.remove_dir(&target.segments).unwrap();
    let at = Position(made.positions(1).end - 1);
    let plan = LogReader::new(made.dir.clone()).plan_fork(ForkPoint::At(at), fork_id).unwrap();
    let own = Batch::new(vec![NewRecord { envelope: envelope(40), payload: vec![3; 30] }]).unwrap();
    let writer = plan.carry_out(target.clone(), OPTIONS, &own).unwrap();
    for _ in 0..4 {
        let more = NewRecord { envelope: envelope(41), payload: vec![4; 300] };
        writer.append(Batch::new(vec![more]).unwrap(), Durability::Sync).unwrap();
    }
    writer.close().unwrap();
    let fork = Made { storage: made.storage.clone(), dir: target };
    let both = BTreeSet::from([LOG, fork_id]);
    let expected: Vec<_> = (1..=at.0 + 5).map(|position| position.to_string()).collect();
    let check = |fork: &Made, what: &str| {
        let survey = fork.survey();
        assert_eq!(survey.lineages().unwrap(), std::slice::from_ref(&both), "{what}");
        let layout = survey.layout(Some(&both)).unwrap();
        assert_eq!(records(&layout), expected.join(" "), "{what}");
        layout
    };
    check(&fork, "whole");
    let behind = made.bytes(2);
    fork.put("00000000000000000700.seg", behind);
    let layout = check(&fork, "with a segment of the origin");
    let why = format!("a segment of the log that this one was forked from ({LOG}), behind the fork");
    assert_eq!(layout.left_out, [LeftOut { file: "00000000000000000700.seg".into(), why }]);
    fork.storage.remove_file(&fork.dir.segments.join("00000000000000000700.seg")).unwrap();
    // The header that names the origin is hurt: the chain leads there.
    let first = fork.names().iter().position(|name| name.0 > at).unwrap();
    assert!(fork.names().len() > first + 1, "another segment of the fork says whose salt it is");
    fork.change(first, |bytes| bytes[9] ^= 1);
    assert!(fork.survey().files[first].header.is_none());
    check(&fork, "with a hurt header");
}

/// The log with the most frames is the one that a directory is of.
#[test]
fn the_log_with_the_most_frames_comes_first() {
    let (few, many) = (LogId([1; 16]), LogId([9; 16]));
    for (there, other) in [(few, many), (many, few)] {
        let made = made_with(there, 1, Durability::Sync);
        let stranger = made_with(other, 2, Durability::Sync);
        made.put("00000000000000000700.seg", stranger.bytes(0));
        assert_eq!(made.survey().lineages().unwrap()[0], BTreeSet::from([there]));
    }
}

/// A position that is far away can't be the next one: marking all between would fill a disk.
#[test]
fn a_span_has_its_limit() {
    let made = made();
    let header = SegmentHeader::decode(&made.bytes(0)).unwrap();
    let (number, far) = (SegmentNo(90), Position(1 << 25));
    let salt = segment::salt(LOG, number);
    let header = SegmentHeader { segment_no: number, first_position: far, salt, ..header };
    let mut bytes = header.encode().to_vec();
    let fields = FrameFields::records(far, Epoch(1), Position(far.0 - 1));
    frame::encode(&mut bytes, salt, &header.previous, fields, &[(envelope(20), vec![1; 9])]).unwrap();
    made.put(&SegmentName(far).to_string(), bytes);
    assert_eq!(made.survey().layout(None).unwrap_err().kind(), ErrorKind::Corrupt);
}
