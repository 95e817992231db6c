//! Faults of shipped agents, one test each: given a log like theirs, when it is folded, then what they lost is there.
//! The rows are those of the field report (`bugs.md`).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(clippy::cast_possible_wrap, reason = "of small numbers")]

mod support;

use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_projections::*;
use support::*;

/// P1: Ctrl-C between a call and its result: every later request was refused with status 400.
#[test]
fn p1_an_interrupted_call_gets_one_result() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "go", &[]));
    log.add(message(2, Role::Assistant, "reading", &["A"]));
    log.add(message(3, Role::User, "continue", &[]));
    let lines = log.lines();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[2], "tool(A):This call was not run: t");
    assert_eq!(lines[3], "user:continue");
    assert_eq!(log.context()[2].flag, ResultFlag::Error);
    // Reading changes nothing, and the transcript holds what happened.
    assert_eq!(log.transcript().len(), 3);
}

/// P2: three parallel calls, one result lost. P12: and what it stands for is told to the model.
#[test]
fn p2_a_lost_parallel_result_is_made_up_in_call_order() {
    let mut log = Log::new();
    log.add(message(1, Role::Assistant, "", &["A", "B", "C"]));
    log.add(started(call(1, 1), Effect::Mutating, 1));
    // Parallel results arrive in any order.
    log.add(finished(call(1, 2), "c"));
    log.add(finished(call(1, 0), "a"));
    log.add(message(2, Role::User, "go on", &[]));
    let lines = log.lines();
    assert_eq!(lines[..2], ["assistant:", "tool(A):a"]);
    assert_eq!(lines[2], "tool(B):The outcome of this call");
    assert_eq!(lines[3..], ["tool(C):c", "user:go on"]);
    let context = log.context();
    assert_eq!(context[2].origin, ContextOrigin::Synthetic(SyntheticReason::OutcomeUnknown));
    assert_eq!(log.ledger.open_calls().len(), 1);
}

/// P4: the result and the one that recovery made up were both stored; the provider refused the pair for ever.
#[test]
fn p4_the_first_of_two_results_wins_and_both_stay_in_the_log() {
    let mut log = Log::of(imported());
    log.add(message(1, Role::Assistant, "", &["A"]));
    let import = |text| CallFinished { origin: ResultOrigin::Import, ..finished(call(1, 0), text) };
    log.add(import("real"));
    log.add(import("recovered"));
    assert_eq!(log.lines(), ["assistant:", "tool(A):real"]);
    let marks: Vec<Mark> = log.transcript().iter().map(|entry| entry.mark).collect();
    assert_eq!(marks, [Mark::Live, Mark::Live, Mark::Duplicate]);
    // A host can't do that.
    let refused = log.try_add(NodeId::ROOT, finished(call(1, 0), "again"));
    assert!(matches!(refused, Err(LawBroken::AlreadyFinished { .. })), "{refused:?}");
}

/// P5: at a crash three calls were running, and recovery found only the first.
#[test]
fn p5_every_open_call_is_found() {
    let mut log = Log::new();
    log.add(message(1, Role::Assistant, "", &["A", "B"]));
    log.add(started(call(1, 1), Effect::External, 1));
    let bookmark = node_opened(1, 0, Some(call(1, 0)));
    log.add(bookmark);
    log.add_to(NodeId(1), message(1, Role::Assistant, "", &["A"]));
    let open = log.ledger.open_calls();
    let named: Vec<_> = open.iter().map(|open| (open.node.0, open.call_id.as_str())).collect();
    assert_eq!(named, [(0, "A"), (0, "B"), (1, "A")]);
    assert_eq!(open[0].state, OpenState::NotStarted);
    assert!(matches!(open[1].state, OpenState::Started { effect: Effect::External, attempt: 1, .. }));
    assert_eq!(open[1].arguments_digest, Digest::of(b"{}"));
}

/// P6: a tool moved the head while it ran, and its result landed on another branch, without its call.
#[test]
fn p6_a_result_goes_where_its_call_is() {
    let mut log = Log::new();
    let first = log.add(message(1, Role::User, "go", &[]));
    log.add(message(2, Role::Assistant, "", &["A"]));
    log.add(HeadMoved { to: first, from: Position(3), reason: HeadReason::Branch });
    log.add(finished(call(2, 0), "late"));
    log.add(message(3, Role::User, "other", &[]));
    assert_eq!(log.lines(), ["user:go", "user:other"]);
    let result = &log.transcript()[2];
    assert_eq!((result.mark, result.call), (Mark::OffBranch, Some(call(2, 0))));
}

/// P7: a compaction cut between the calls and their results, and orphans were sent.
#[test]
fn p7_a_cut_between_call_and_results_takes_or_leaves_both() {
    for kept in [vec![range(2, 2)], vec![]] {
        let mut log = Log::new();
        log.add(message(1, Role::User, "go", &[]));
        log.add(message(2, Role::Assistant, "", &["A", "B"]));
        log.add(finished(call(2, 0), "a"));
        log.add(compacted("sum", &kept, &[range(1, 1)]));
        log.add(finished(call(2, 1), "b"));
        log.add(message(3, Role::User, "next", &[]));
        let expected: &[&str] = if kept.is_empty() {
            &["user:sum", "user:next"]
        } else {
            &["user:sum", "assistant:", "tool(A):a", "tool(B):b", "user:next"]
        };
        assert_eq!(log.lines(), expected);
    }
}

/// P9, OA#2426: call ids repeat within a conversation, and results went to the wrong call.
#[test]
fn repeated_and_empty_call_ids_are_told_apart() {
    let mut log = Log::of(imported());
    log.add(message(1, Role::Assistant, "", &["A", "A", ""]));
    log.add(finished(call(1, 1), "second"));
    log.add(message(2, Role::Assistant, "", &["A", "x y!"]));
    log.add(message(3, Role::Assistant, "", &["x y!"]));
    let results: Vec<_> = log.lines().into_iter().filter(|line| line.starts_with("tool")).collect();
    assert_eq!(
        results,
        [
            "tool(A):No result was recorded f",
            "tool(A-1-1):second",
            "tool(call-1-2):No result was recorded f",
            "tool(A-2-0):No result was recorded f",
            "tool(x y!):No result was recorded f",
            "tool(xy-3-0):No result was recorded f",
        ]
    );
    let context = log.context();
    assert_eq!(context[0].tool_calls[1].call_id, "A-1-1");
}

/// C1: a later compaction rewrote the earlier one's entry; going back gave a placeholder.
#[test]
fn c1_an_older_compaction_is_whole_after_a_rewind() {
    let mut log = Log::new();
    for number in 1..=4 {
        log.add(message(number, Role::User, &format!("m{number}"), &[]));
    }
    let first = log.add(compacted("one", &[range(4, 4)], &[range(1, 3)]));
    log.add(message(5, Role::User, "m5", &[]));
    log.add(compacted("two", &[range(5, 5)], &[range(4, 4)]));
    // One summary only, before what was kept (C5, C10).
    assert_eq!(log.lines(), ["user:two", "user:m5"]);
    log.add(HeadMoved { to: first, from: Position(8), reason: HeadReason::Rewind });
    assert_eq!(log.lines(), ["user:one", "user:m4"]);
    // C6: back to before any compaction, the exact original.
    log.add(HeadMoved { to: Position(3), from: first, reason: HeadReason::Rewind });
    assert_eq!(log.lines(), ["user:m1", "user:m2"]);
    // And the rewind is undone by going back.
    log.add(HeadMoved { to: Position(8), from: Position(3), reason: HeadReason::Undo });
    assert_eq!(log.lines(), ["user:two", "user:m5"]);
}

/// C2: a compaction that failed left an entry that was applied. Here a failed one appends nothing, and an empty one
/// only takes messages away.
#[test]
fn c2_an_empty_summary_adds_no_message() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "old", &[]));
    log.add(message(2, Role::User, "new", &[]));
    log.add(compacted("", &[range(2, 2)], &[range(1, 1)]));
    assert_eq!(log.lines(), ["user:new"]);
}

/// C4: the compacted history took the place of the visible one, and what people had said was blank.
#[test]
fn c4_the_transcript_is_equal_before_and_after_a_compaction() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "my words", &[]));
    log.add(message(2, Role::Assistant, "yes", &["A"]));
    log.add(finished(call(2, 0), "a"));
    let before = log.transcript();
    log.add(compacted("sum", &[], &[range(1, 2)]));
    let after = log.transcript();
    assert_eq!(after[..3], before);
    assert!(matches!(&after[3].body, EntryBody::Compaction(_)));
    assert_eq!(log.lines(), ["user:sum"]);
}

/// C7: compaction ran on a list that still held what was reverted.
#[test]
fn c7_a_compaction_does_not_bring_back_what_was_left() {
    let mut log = Log::new();
    let stays = log.add(message(1, Role::User, "stays", &[]));
    log.add(message(2, Role::User, "reverted", &[]));
    log.add(HeadMoved { to: stays, from: Position(3), reason: HeadReason::Rewind });
    log.add(message(3, Role::User, "on", &[]));
    log.add(compacted("sum", &[range(1, 3)], &[]));
    assert_eq!(log.lines(), ["user:sum", "user:stays", "user:on"]);
}

/// The prompt prefix is pinned: a compaction folded the system prompt away (recursive 8.1.4).
#[test]
fn a_compaction_keeps_the_instructions_in_front() {
    for kept in [vec![range(1, 1), range(4, 4)], vec![range(4, 4)]] {
        let mut log = Log::new();
        log.add(message(1, Role::System, "be careful", &[]));
        log.add(message(2, Role::Developer, "use rust", &[]));
        log.add(message(3, Role::User, "a", &[]));
        log.add(message(4, Role::System, "reminder", &[]));
        log.add(compacted("sum", &kept, &[range(3, 3)]));
        log.add(message(5, Role::User, "b", &[]));
        assert_eq!(
            log.lines(),
            ["system:be careful", "developer:use rust", "user:sum", "system:reminder", "user:b"]
        );
        log.add(compacted("sum 2", &[], &[range(4, 5)]));
        assert_eq!(log.lines(), ["system:be careful", "developer:use rust", "user:sum 2"]);
    }
}

/// R1: of many leaves a resume took a stale one.
#[test]
fn r1_the_last_head_wins() {
    let mut log = Log::new();
    let root = log.add(message(1, Role::User, "root", &[]));
    let short = log.add(message(2, Role::User, "short", &[]));
    log.add(HeadMoved { to: root, from: short, reason: HeadReason::Branch });
    log.add(message(3, Role::User, "long 1", &[]));
    let long = log.add(message(4, Role::User, "long 2", &[]));
    log.add(HeadMoved { to: short, from: long, reason: HeadReason::Branch });
    assert_eq!(log.lines(), ["user:root", "user:short"]);
    assert_eq!(log.ledger.head(NodeId::ROOT), short);
    // R12: what is appended later moves the head on.
    log.add(message(5, Role::User, "on", &[]));
    assert_eq!(log.lines(), ["user:root", "user:short", "user:on"]);
    let marks: Vec<Mark> = log.transcript().iter().map(|entry| entry.mark).collect();
    assert_eq!(marks, [Mark::Live, Mark::Live, Mark::OffBranch, Mark::OffBranch, Mark::Live]);
}

/// R2: progress entries took part in the chain and forked it; most of a session was out of the model's sight.
#[test]
fn r2_what_the_model_is_not_shown_does_not_fork_the_conversation() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "a", &[]));
    let notice = MessageAppended { audience: Audience::Person, ..message(2, Role::System, "notice", &[]) };
    let at = log.add(notice);
    log.add(SessionTitled { title: "t".into(), origin: TitleOrigin::Host });
    log.add(message(3, Role::User, "b", &[]));
    assert_eq!(log.lines(), ["user:a", "user:b"]);
    assert_eq!(log.transcript().len(), 3);
    let refused = log.try_add(NodeId::ROOT, HeadMoved { to: at, from: at, reason: HeadReason::Rewind });
    assert_eq!(refused, Err(LawBroken::UnknownHead { node: NodeId::ROOT, to: at }));
}

/// R4: two records under one name made a cycle, and the walk never ended.
#[test]
fn r4_records_under_one_name_make_no_cycle() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "a", &[]));
    log.force(NodeId::ROOT, message(1, Role::User, "b", &["A"]));
    for event in &mut log.events {
        event.position = Position(7);
    }
    let moved = HeadMoved { to: Position(7), from: Position(7), reason: HeadReason::Branch };
    log.force(NodeId::ROOT, moved);
    log.force(NodeId::ROOT, message(1, Role::Assistant, "c", &["A"]));
    log.force(NodeId::ROOT, finished(call(1, 0), "x"));
    assert_eq!(log.lines(), ["user:a", "assistant:c", "tool(A):This call was not run: t"]);
    assert_eq!(log.transcript().len(), 4);
}

/// R10: the same response written twice doubled all replies.
#[test]
fn r10_a_number_is_given_once() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "a", &[]));
    let refused = log.try_add(NodeId::ROOT, message(1, Role::User, "a", &[])).unwrap_err();
    assert_eq!(refused.to_string(), "node 0: message number 1 where 2 is the next one");
}

/// R15: every failed resume appended an empty assistant turn, and the context grew with nothing in it.
#[test]
fn r15_empty_turns_are_not_shown() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "a", &[]));
    log.add(message(2, Role::Assistant, "", &[]));
    log.add(MessageAppended { parts: vec![], ..message(3, Role::Assistant, "", &[]) });
    log.add(MessageAppended { parts: vec![], ..message(4, Role::User, "", &[]) });
    assert_eq!(log.lines(), ["user:a"]);
    assert_eq!(log.transcript().len(), 4);
}

/// T12: an interrupted turn left thinking without its signature; "thinking blocks cannot be modified" for ever.
#[test]
fn t12_reasoning_without_its_signature_stays_in_the_log() {
    let reasoning = |text: &str, form| Part::Reasoning(Reasoning { text: text.into(), form });
    let mut log = Log::new();
    let mut cut = message(1, Role::Assistant, "", &[]);
    cut.parts = vec![reasoning("abc", ReasoningForm::Signed(None))];
    log.add(cut.clone());
    cut.message_no = MessageNo(2);
    cut.parts = vec![
        reasoning("one", ReasoningForm::Signed(Some("sig".into()))),
        reasoning("two", ReasoningForm::Signed(None)),
        reasoning("three", ReasoningForm::Summary),
        reasoning("", ReasoningForm::Opaque("blob".into())),
        reasoning("four", ReasoningForm::Plain),
        Part::text("answer"),
    ];
    log.add(cut);
    assert_eq!(log.lines(), ["assistant:<one>|<>|<four>|answer"]);
    let EntryBody::Message(kept) = &log.transcript()[0].body else { panic!() };
    assert_eq!(kept.parts, [reasoning("abc", ReasoningForm::Signed(None))]);
}

/// T15: one record of a newer version hid the whole session. T16: a record that is gone takes only itself.
#[test]
fn t15_records_that_cant_be_read_cost_themselves_only() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "a", &[]));
    let newer = UnknownEvent {
        kind: sessionlog_codec::registry::kind::MessageAppended,
        schema: SchemaVersion(99),
        payload: "?".into(),
    };
    log.force(NodeId::ROOT, Event::Unknown(newer));
    let future = UnknownEvent { kind: KindNo(9_999), schema: SchemaVersion(1), payload: "?".into() };
    log.force(NodeId::ROOT, Event::Unknown(future));
    assert_eq!(log.ledger.next_message_no(NodeId::ROOT), MessageNo(3));
    log.add(message(3, Role::Assistant, "b", &["A"]));
    let kind = sessionlog_codec::registry::kind::CallFinished;
    log.force(NodeId::ROOT, Event::Erased { kind, schema: SchemaVersion(1), digest: Digest::default() });
    assert_eq!(log.lines(), ["user:a", "assistant:b", "tool(A):The result of this call "]);
    // The erased result still answers: recovery must not report the call as unknown.
    assert_eq!(log.ledger.open_calls(), []);
    assert_eq!(log.transcript().len(), 4);
    assert_eq!(log.summary().messages, 4);
}

/// A result that was erased answers the call it followed from, also while others are open.
#[test]
fn an_erased_result_is_found_by_its_cause() {
    let mut log = Log::new();
    log.add(message(1, Role::Assistant, "", &["A", "B"]));
    log.add(started(call(1, 0), Effect::Mutating, 1));
    let cause = log.add(started(call(1, 1), Effect::Mutating, 1));
    let (kind, schema) = Event::from(finished(call(1, 1), "")).kind();
    log.force(NodeId::ROOT, Event::Erased { kind, schema, digest: Digest::default() });
    let erased = log.events.last_mut().unwrap();
    erased.cause = Some(cause);
    let mut ledger = Ledger::default();
    log.events.iter().for_each(|event| ledger.apply(event));
    let open: Vec<CallRef> = ledger.open_calls().iter().map(|open| open.call).collect();
    assert_eq!(open, [call(1, 0)]);
    let reasons: Vec<_> = log.context().iter().map(|message| message.origin).collect();
    assert_eq!(
        reasons[1..],
        [SyntheticReason::OutcomeUnknown, SyntheticReason::Erased].map(ContextOrigin::Synthetic)
    );
}

/// U1: forks and children counted the parent's usage again: 277 M tokens shown, 81 M real.
#[test]
fn u1_each_request_is_counted_once_where_it_happened() {
    let mut log = Log::new();
    let used = |number, tokens, response: Option<&str>| MessageAppended {
        usage: Some(usage(tokens, 0)),
        provider: ProviderIds { response: response.map(Into::into), request: None },
        ..message(number, Role::Assistant, "x", &[])
    };
    log.add(used(1, 60, Some("r1")));
    // A second record of the same response, and a later piece that repeats the usage, are no new request.
    log.add(used(2, 60, Some("r1")));
    let piece = |number, tokens| MessageExtended {
        message_no: MessageNo(number),
        parts: vec![],
        tool_calls: vec![],
        stop_reason: None,
        usage: Some(usage(tokens, 0)),
        source: None,
    };
    log.add(used(3, 10, None));
    log.add(piece(3, 40));
    assert_eq!((log.summary().usage.input, log.summary().usage.requests), (100, 2));
    log.add(node_opened(1, 0, None));
    log.add_to(NodeId(1), used(1, 7, Some("r1")));
    log.add(SessionForked {
        session_id: SessionId([9; 16]),
        parent: session_id(),
        at: Position(7),
        chain: Digest::default(),
    });
    // A fork that has asked for nothing yet has no price, which is not 0.
    assert_eq!((log.summary().usage.requests, log.summary().usage.cost_nano_usd), (0, None));
    log.add(used(4, 50, None));
    log.add(piece(3, 41));
    let summary = log.summary();
    assert_eq!(summary.usage.input, 50);
    assert_eq!(summary.inherited_usage.input, 108);
    assert_eq!(summary.nodes[&NodeId(1)].usage.input, 0);
    assert_eq!(summary.nodes[&NodeId::ROOT].usage.input, 50);
}

/// U2 to U4: numbers that could not be stored or summed bricked sessions.
#[test]
fn u2_numbers_at_their_limit_saturate() {
    let mut log = Log::new();
    for number in 1..=3 {
        let usage = Some(Usage { input: u64::MAX, output: u64::MAX, ..Usage::default() });
        log.add(MessageAppended { usage, ..message(number, Role::Assistant, "x", &[]) });
    }
    let summary = log.summary();
    assert_eq!((summary.usage.input, summary.usage.total()), (u64::MAX, u64::MAX));
}

/// U5: a turn that failed after one call showed no usage. And an unknown price is not 0.
#[test]
fn u5_prices_add_up_and_unknown_ones_are_unknown() {
    let mut log = Log::new();
    assert_eq!(log.summary().usage.cost_nano_usd, None);
    log.add(MessageAppended { usage: Some(usage(5, 5)), ..message(1, Role::Assistant, "x", &[]) });
    assert_eq!(log.summary().usage.cost_nano_usd, None);
    log.add(recorded("q1", Some(1), Some(30)));
    assert_eq!(log.summary().usage.cost_nano_usd, Some(30));
    // The same request once more replaces its record.
    log.add(recorded("q1", Some(1), Some(40)));
    log.add(UsageRecorded { usage: Some(usage(1, 1)), ..recorded("title", None, Some(2)) });
    let usage = log.summary().usage;
    assert_eq!((usage.cost_nano_usd, usage.requests, usage.input), (Some(42), 2, 6));
    // A request that turns out to be a message's is no request of its own any more.
    log.add(recorded("title", Some(1), Some(50)));
    let usage = log.summary().usage;
    assert_eq!((usage.cost_nano_usd, usage.requests, usage.input), (Some(50), 1, 5));
    log.add(UsageRecorded { usage: Some(support::usage(1, 1)), ..recorded("title", None, Some(2)) });
    let usage = log.summary().usage;
    assert_eq!((usage.cost_nano_usd, usage.priced_nano_usd, usage.requests), (None, 2, 2));
    log.add(recorded("q1", Some(1), Some(40)));
    log.add(recorded("failed", None, None));
    let usage = log.summary().usage;
    assert_eq!((usage.cost_nano_usd, usage.priced_nano_usd, usage.unpriced_requests), (None, 42, 1));
}

/// L5: a session came to the top of the list by being opened and closed.
#[test]
fn l5_looking_at_a_session_is_no_activity() {
    let mut log = Log::new();
    log.add(opened(1));
    log.add(message(1, Role::User, "a", &[]));
    let before = log.summary().last_activity;
    log.add(SessionClosed { epoch: Epoch(1) });
    log.add(opened(2));
    log.add(SessionTitled { title: "t".into(), origin: TitleOrigin::Model });
    log.add(SessionClosed { epoch: Epoch(2) });
    assert_eq!(log.summary().last_activity, before);
    log.add(opened(3));
    log.add(SessionTitled { title: "t".into(), origin: TitleOrigin::Person });
    assert!(log.summary().last_activity > before);
}

/// R9: a resume could not tell a clean end from a crash.
#[test]
fn r9_an_end_is_clean_or_it_is_not() {
    let mut log = Log::new();
    let status = |log: &Log, liveness| log.summary().status(liveness);
    log.add(opened(1));
    assert_eq!(status(&log, Liveness::Alive), Status::Running);
    assert_eq!(status(&log, Liveness::Dead), Status::Crashed);
    log.add(SessionFinished { status: FinalStatus::Completed, reason: None });
    log.add(SessionClosed { epoch: Epoch(1) });
    assert_eq!(status(&log, Liveness::Dead), Status::Completed);
    // A resumed session said "completed" while it ran and after it crashed.
    log.add(opened(2));
    assert_eq!(status(&log, Liveness::Alive), Status::Running);
    assert_eq!(status(&log, Liveness::Dead), Status::Crashed);
    log.add(SessionFinished { status: FinalStatus::Completed, reason: None });
    log.add(message(1, Role::User, "one more thing", &[]));
    assert_eq!(status(&log, Liveness::Dead), Status::Crashed);
    log.add(SessionClosed { epoch: Epoch(2) });
    assert_eq!(status(&log, Liveness::Unknown), Status::Idle);
}

/// L1: titles were only in an index. Here they are a fold; harness markup is no prompt.
#[test]
fn l1_titles_come_from_the_log() {
    let mut log = Log::new();
    assert_eq!(log.summary().title().as_deref(), Some("Goal 131"));
    log.add(message(1, Role::User, "<command-name>/clear</command-name>", &[]));
    log.add(message(2, Role::User, "Caveat: The messages below were generated", &[]));
    let injected = MessageAppended { audience: Audience::Model, ..message(3, Role::User, "injected", &[]) };
    log.add(injected);
    log.add(message(4, Role::User, &format!("\n  {}  \nmore", "🔑".repeat(70)), &[]));
    log.add(message(5, Role::User, "last", &[]));
    let summary = log.summary();
    assert_eq!(summary.title(), Some("🔑".repeat(60)));
    assert_eq!(summary.last_prompt.as_deref(), Some("last"));
    let titled = |title: &str, origin| SessionTitled { title: title.into(), origin };
    log.add(titled("mine", TitleOrigin::Person));
    log.add(titled("model's", TitleOrigin::Model));
    assert_eq!(log.summary().title().as_deref(), Some("mine"));
    log.add(titled("mine, again", TitleOrigin::Person));
    assert_eq!(log.summary().title().as_deref(), Some("mine, again"));
    log.add(titled(" ", TitleOrigin::Person));
    assert_eq!(log.summary().title().as_deref(), Some("model's"));
}

/// R8: "no result" was read as "not run", and what was approved ran twice.
#[test]
fn r8_only_repeatable_calls_are_started_again() {
    let mut log = Log::new();
    log.add(message(1, Role::Assistant, "", &["A", "B"]));
    log.add(started(call(1, 0), Effect::Mutating, 1));
    log.add(started(call(1, 1), Effect::Pure, 1));
    let again = |log: &mut Log, index, effect, attempt| {
        log.try_add(NodeId::ROOT, started(call(1, index), effect, attempt))
    };
    // Declaring it pure afterwards does not make it so.
    assert!(matches!(again(&mut log, 0, Effect::Pure, 2), Err(LawBroken::NotRepeatable { .. })));
    assert!(matches!(again(&mut log, 1, Effect::Pure, 1), Err(LawBroken::Attempt { expected: 2, .. })));
    assert!(again(&mut log, 1, Effect::Pure, 2).is_ok());
    log.add(unknown(call(1, 0)));
    log.add(unknown(call(1, 1)));
    assert!(matches!(again(&mut log, 0, Effect::Mutating, 2), Err(LawBroken::AlreadyFinished { .. })));
    assert!(again(&mut log, 1, Effect::Pure, 3).is_ok());
    assert_eq!(log.ledger.open_calls(), []);
    assert_eq!(log.lines()[1], "tool(A):unknown");
    log.add(resolved(call(1, 0), "it ran"));
    assert_eq!(log.lines()[1], "tool(A):it ran");
    let refused = log.try_add(NodeId::ROOT, resolved(call(1, 0), "no"));
    assert!(matches!(refused, Err(LawBroken::NotUnknown { found: "succeeded", .. })));
    // The transcript keeps what was known then.
    assert_eq!(log.transcript().iter().filter(|entry| entry.is_message()).count(), 3);
}

/// A withdrawn message takes the results of its calls along; both stay visible.
#[test]
fn withdrawn_messages_leave_the_context_only() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "a", &[]));
    log.add(message(2, Role::Assistant, "b", &["A"]));
    log.add(finished(call(2, 0), "x"));
    log.add(MessageWithdrawn { message_no: MessageNo(2), reason: "empty".into() });
    assert_eq!(log.lines(), ["user:a"]);
    log.add(message(3, Role::User, "typo", &[]));
    log.add(MessageWithdrawn { message_no: MessageNo(3), reason: "typo".into() });
    assert_eq!(log.lines(), ["user:a"]);
    let marks: Vec<Mark> = log.transcript().iter().map(|entry| entry.mark).collect();
    assert_eq!(marks, [Mark::Live, Mark::Withdrawn, Mark::Withdrawn, Mark::Withdrawn]);
}

/// What a compaction pinned when it came stays pinned, and nothing else becomes so by a later withdrawal.
#[test]
fn a_withdrawal_does_not_change_an_earlier_compaction() {
    let withdraw = |log: &mut Log| {
        log.add(MessageWithdrawn { message_no: MessageNo(1), reason: String::new() });
    };
    for (before, expected) in [(true, vec!["system:s", "user:sum"]), (false, vec!["user:sum"])] {
        let mut log = Log::new();
        log.add(message(1, Role::User, "typo", &[]));
        log.add(message(2, Role::System, "s", &[]));
        if before {
            withdraw(&mut log);
        }
        log.add(compacted("sum", &[], &[range(1, 2)]));
        assert_eq!(log.lines(), expected);
        if !before {
            withdraw(&mut log);
        }
        assert_eq!(log.lines(), expected);
    }
}

/// An outcome that is known is not settled a second time, whatever a damaged log says.
#[test]
fn a_known_outcome_stays() {
    let mut log = Log::new();
    log.add(message(1, Role::Assistant, "", &["A"]));
    log.add(finished(call(1, 0), "done"));
    log.force(NodeId::ROOT, resolved(call(1, 0), "other"));
    assert_eq!(log.lines()[1], "tool(A):done");
}

/// A cleared result is a placeholder from then on, and what is new about it is shown again.
#[test]
fn trimmed_results_are_placeholders() {
    let mut log = Log::new();
    log.add(message(1, Role::Assistant, "", &["A"]));
    log.add(unknown(call(1, 0)));
    log.add(ContextTrimmed {
        calls: vec![call(1, 0), call(9, 9)],
        placeholder: "[cleared]".into(),
        tokens_saved: None,
        source: None,
    });
    assert_eq!(log.lines()[1], "tool(A):[cleared]");
    log.add(resolved(call(1, 0), "done"));
    assert_eq!(log.lines()[1], "tool(A):done");
    // A result that comes after the clearing was not cleared.
    log.add(message(2, Role::Assistant, "", &["B"]));
    log.add(ContextTrimmed {
        calls: vec![call(2, 0)],
        placeholder: "[cleared]".into(),
        tokens_saved: None,
        source: None,
    });
    log.add(finished(call(2, 0), "new"));
    assert_eq!(log.lines()[3], "tool(B):new");
}

/// Clearing empties the context and nothing else.
#[test]
fn a_new_run_and_a_reset_hide_what_came_before() {
    let mut log = Log::new();
    log.add(message(1, Role::System, "prompt", &[]));
    log.add(RunStarted { run_id: "r".into(), reason: RunReason::Cleared });
    assert_eq!(log.lines(), [""; 0]);
    log.add(message(2, Role::User, "a", &[]));
    let reset = log.add(ContextReset { reason: "model".into() });
    log.add(message(3, Role::User, "b", &[]));
    assert_eq!(log.lines(), ["user:b"]);
    log.add(HeadMoved { to: Position(4), from: reset, reason: HeadReason::Undo });
    assert_eq!(log.lines(), ["user:a"]);
    assert_eq!(log.transcript().iter().filter(|entry| entry.is_message()).count(), 3);
}

/// One response in several records: the message keeps its place, calls stay in order.
#[test]
fn extended_messages_stay_one() {
    let mut log = Log::of(imported());
    log.add(message(1, Role::Assistant, "one", &["A"]));
    log.add(finished(call(1, 0), "a"));
    log.add(MessageExtended {
        message_no: MessageNo(1),
        parts: vec![Part::text("two")],
        tool_calls: vec![tool_call("B", "Read", "{}")],
        stop_reason: Some("tool_use".into()),
        usage: None,
        source: None,
    });
    log.add(finished(call(1, 1), "b"));
    assert_eq!(log.lines(), ["assistant:one|two", "tool(A):a", "tool(B):b"]);
    assert_eq!(log.transcript().len(), 3);
}

/// Found by fuzzing: a hurt record named conversation 4,294,909,736, and whoever ended open turns counted up to it.
#[test]
fn a_conversation_of_a_wild_number_costs_no_more_than_another() {
    let mut log = Log::new();
    log.force(NodeId(u32::MAX - 57_559), message(1, Role::User, "x", &[]));
    log.add(TurnStarted { turn: TurnNo(1), cause: TurnCause::User });
    let mut state = recovery::RecoveryState::default();
    log.events.iter().for_each(|event| state.apply(event));
    assert_eq!(recovery::open_turns(&state), [(NodeId::ROOT, TurnNo(1))]);
    assert_eq!(log.ledger.nodes().count(), 2);
}
