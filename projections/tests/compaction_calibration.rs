//! What the calibration of the token estimate learns, and from which fields of which events.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

#[allow(clippy::cast_possible_wrap, reason = "of small numbers")]
mod support;

use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_projections::compaction::*;
use sessionlog_projections::*;
use support::*;

const ROOT: NodeId = NodeId::ROOT;

fn calibration(log: &Log) -> Calibration {
    let mut calibration = Calibration::default();
    log.events.iter().for_each(|event| calibration.apply(event));
    calibration
}

/// The root's overhead for its context.
fn overhead(log: &Log) -> u64 {
    calibration(log).of(ROOT).overhead(&log.tree().context(ROOT))
}

fn answer(number: u64, prompt: u64) -> MessageAppended {
    let usage = Usage { input: prompt / 2, cache_read: prompt - prompt / 2, ..usage(0, 9) };
    MessageAppended { usage: Some(usage), ..message(number, Role::Assistant, "Yes.", &[]) }
}

fn sent(request: &str, number: Option<u64>, estimate: u64) -> UsageRecorded {
    UsageRecorded { estimated_input: Some(estimate), ..recorded(request, number, Some(1)) }
}

fn alone(request: &str, estimate: u64, prompt: u64) -> UsageRecorded {
    UsageRecorded { usage: Some(usage(prompt, 7)), ..sent(request, None, estimate) }
}

#[test]
fn the_overhead_is_a_high_water_mark_that_decays() {
    // (estimate, counted prompt, overhead): q's rule.
    let requests = [
        (1_000, 1_400, 400),
        (1_000, 1_100, 300),
        // Fewer than estimated.
        (1_000, 500, 225),
        // Nothing counted, nothing learnt.
        (1_000, 0, 225),
        (0, 1_000, 225),
        (2_000, 2_226, 226),
        (2_000, 2_001, 169),
        (2_000, 2_001, 126),
        (5, u64::MAX, u64::MAX - 5),
    ];
    let mut log = Log::new();
    for (index, (estimate, prompt, expected)) in requests.into_iter().enumerate() {
        log.add(alone(&index.to_string(), estimate, prompt));
        assert_eq!(overhead(&log), expected, "{index}");
    }
}

#[test]
fn a_message_and_its_record_are_one_request_in_either_order() {
    let mut log = Log::new();
    log.add(alone("0", 100, 500));
    for (first, number) in [(true, 1), (false, 2)] {
        if first {
            log.add(sent("r", Some(number), 1_000));
            log.add(answer(number, 1_350));
        } else {
            log.add(answer(number, 1_350));
            log.add(sent("r", Some(number), 1_000));
        }
        // The price comes in once more: nothing decays twice.
        log.add(sent("r", Some(number), 1_000));
        assert_eq!(overhead(&log), 350, "{number}");
    }
    // The message's own count is the one that counts.
    log.add(answer(3, 1_500));
    log.add(UsageRecorded { usage: Some(usage(9_999, 0)), ..sent("r", Some(3), 1_000) });
    assert_eq!(overhead(&log), 500);
    // A price that comes without the estimate takes none away.
    log.add(UsageRecorded { usage: Some(usage(1_500, 0)), ..recorded("r", Some(3), Some(2)) });
    assert_eq!(overhead(&log), 500);
    // A record that repeats its id takes the place of the one before.
    log.add(alone("x", 1_000, 1_010));
    assert_eq!(overhead(&log), 375);
    log.add(alone("x", 1_000, 1_900));
    assert_eq!(overhead(&log), 900);
    log.add(alone("x", 1_000, 1_010));
    assert_eq!(overhead(&log), 375);
}

#[test]
fn all_of_the_prompt_counts_and_nothing_of_the_answer() {
    let mut log = Log::new();
    let usage = Usage { input: 1, cache_read: 20, cache_write: 300, output: 9_000, reasoning: 4_000 };
    log.add(UsageRecorded { usage: Some(usage), ..sent("r", None, 21) });
    assert_eq!(overhead(&log), 300);
}

#[test]
fn a_streamed_message_counts_by_its_last_usage() {
    let mut log = Log::new();
    log.add(answer(1, 1_200));
    log.add(sent("r", Some(1), 1_000));
    assert_eq!(overhead(&log), 200);
    let piece = |number, prompt| MessageExtended {
        message_no: MessageNo(number),
        parts: vec![],
        tool_calls: vec![],
        stop_reason: None,
        usage: Some(usage(prompt, 0)),
        source: None,
    };
    log.add(piece(1, 1_700));
    assert_eq!(overhead(&log), 700);
    // What is told of an old request when there is a newer one is no news.
    log.add(answer(2, 2_600));
    log.add(sent("s", Some(2), 2_000));
    log.add(piece(1, 90_000));
    log.add(UsageRecorded { usage: Some(usage(90_000, 0)), ..sent("r", Some(1), 1) });
    assert_eq!(overhead(&log), 600);
}

#[test]
fn an_answer_without_an_estimate_is_held_against_what_stands_before_it() {
    let mut log = Log::new();
    log.add(message(1, Role::System, "Be brief.", &[]));
    log.add(message(2, Role::User, "Why?", &[]));
    let local = estimate_tokens(&log.context());
    log.add(answer(3, local + 5_000));
    assert_eq!(overhead(&log), 5_000);
    log.add(message(4, Role::User, &"And what of this? ".repeat(100), &[]));
    assert_eq!(overhead(&log), 5_000);
    let predicted = calibration(&log).of(ROOT).predict(&log.context());
    assert_eq!(predicted.local, estimate_tokens(&log.context()));
    assert_eq!(predicted.total, predicted.local + 5_000 + predicted.local / 10);
    // On another branch the answer is not there, and it is on the way back.
    let head = log.ledger.head(ROOT);
    log.add(HeadMoved { to: Position(3), from: head, reason: HeadReason::Undo });
    assert_eq!(overhead(&log), 0);
    log.add(HeadMoved { to: head, from: Position(3), reason: HeadReason::Undo });
    assert_eq!(overhead(&log), 5_000);
    // A person's message has no prompt.
    log.add(MessageAppended { usage: Some(usage(90_000, 0)), ..message(5, Role::User, "x", &[]) });
    assert_eq!(overhead(&log), 5_000);
    let changes: [Event; 4] = [
        compacted("s", &[range(3, 4)], &[range(1, 2)]).into(),
        ContextTrimmed { calls: vec![], placeholder: String::new(), tokens_saved: None, source: None }.into(),
        ContextReset { reason: String::new() }.into(),
        RunStarted { run_id: String::new(), reason: RunReason::Cleared }.into(),
    ];
    for change in changes {
        let mut log = log.clone();
        log.add(change);
        // Not even what is in the context now is what was sent then.
        assert_eq!(overhead(&log), 0);
        let next = log.ledger.next_message_no(ROOT).0;
        let local = estimate_tokens(&log.context());
        log.add(answer(next, local + 300));
        assert_eq!(overhead(&log), 300);
    }
}

#[test]
fn what_was_learnt_from_both_numbers_survives_compaction() {
    let mut log = Log::new();
    log.add(message(1, Role::User, "Why?", &[]));
    log.add(answer(2, 1_800));
    log.add(sent("r", Some(2), 1_000));
    log.add(compacted("s", &[range(2, 2)], &[range(1, 1)]));
    assert_eq!(overhead(&log), 800);
    // What the summary used is another prompt's.
    log.add(ContextCompacted { usage: Some(usage(90_000, 1)), ..compacted("s", &[], &[range(1, 1)]) });
    assert_eq!(overhead(&log), 800);
}

#[test]
fn another_model_starts_afresh() {
    let affinity =
        |model: &str| AffinitySet { model: model.into(), key: "k".into(), api_mode: None, candidate: None };
    let bound = |model: &str| NodeBound {
        model: model.into(),
        api_mode: None,
        candidate: None,
        conversation_id: None,
        profile_hash: None,
    };
    let by = |model: &str, event: MessageAppended| MessageAppended { model: Some(model.into()), ..event };
    let learnt = || {
        let mut log = Log::new();
        log.add(affinity("gpt-5"));
        log.add(by("gpt-5-2025-08-07", answer(1, 1_900)));
        log.add(UsageRecorded {
            model: Some("openai/gpt-5".into()),
            window: Some(400_000),
            ..sent("r", Some(1), 1_000)
        });
        log
    };
    // Three names of one model, over and over, are no change.
    let mut log = learnt();
    log.add(affinity("gpt-5"));
    log.add(by("gpt-5-2025-08-07", message(2, Role::Assistant, "x", &[])));
    assert_eq!(overhead(&log), 900);
    assert_eq!(calibration(&log).of(ROOT).window(), Some(400_000));

    for other in [
        Event::from(affinity("o3")),
        bound("o3").into(),
        by("o3", message(2, Role::Assistant, "x", &[])).into(),
    ] {
        let mut log = learnt();
        log.add(alone("x", 1_000, 1_900));
        log.add(other);
        assert_eq!(overhead(&log), 0);
        assert_eq!(calibration(&log).of(ROOT).window(), None);
    }
    // The answer that brings the news is the first one that counts, and its record as well.
    let mut log = learnt();
    log.add(affinity("o3"));
    log.add(by("o3-mini", answer(2, 1_300)));
    log.add(UsageRecorded {
        model: Some("openai/o3".into()),
        window: Some(200_000),
        ..sent("s", Some(2), 1_000)
    });
    assert_eq!(overhead(&log), 300);
    assert_eq!(calibration(&log).of(ROOT).window(), Some(200_000));
    // So it is where the record is first.
    let mut log = learnt();
    log.add(UsageRecorded { model: Some("o3".into()), ..sent("s", Some(2), 1_000) });
    log.add(by("o3", answer(2, 1_300)));
    assert_eq!(overhead(&log), 300);
}

#[test]
fn a_request_of_another_model_is_not_the_conversations() {
    let mut log = Log::new();
    log.add(MessageAppended { model: Some("big".into()), ..answer(1, 1_900) });
    log.add(sent("r", Some(1), 1_000));
    log.add(UsageRecorded { model: Some("small".into()), window: Some(8_000), ..alone("title", 10, 20) });
    assert_eq!(overhead(&log), 900);
    assert_eq!(calibration(&log).of(ROOT).window(), None);
    log.add(UsageRecorded {
        model: Some("big".into()),
        window: Some(9_000),
        ..alone("failed", 1_000, 1_950)
    });
    assert_eq!(overhead(&log), 950);
    assert_eq!(calibration(&log).of(ROOT).window(), Some(9_000));
    // One without an estimate is a price.
    log.add(UsageRecorded { usage: Some(usage(5, 5)), ..recorded("title", None, None) });
    assert_eq!(overhead(&log), 950);
}

#[test]
fn a_name_that_is_heard_for_the_first_time_is_no_change() {
    let mut log = Log::new();
    log.add(UsageRecorded { model: Some("any".into()), ..alone("a", 1_000, 1_400) });
    assert_eq!(overhead(&log), 400);
    log.add(MessageAppended { model: Some("big".into()), ..message(1, Role::Assistant, "x", &[]) });
    assert_eq!(overhead(&log), 400);
}

#[test]
fn a_request_with_one_number_neither_teaches_nor_takes() {
    let mut log = Log::new();
    log.add(alone("a", 1_000, 1_400));
    log.add(answer(1, 90_000));
    log.add(ContextReset { reason: String::new() });
    assert_eq!(overhead(&log), 400);
    log.add(sent("b", Some(2), 1_000));
    assert_eq!(overhead(&log), 400);
    log.add(answer(2, 1_000));
    assert_eq!(overhead(&log), 300);
}

#[test]
fn every_conversation_has_its_own() {
    let mut log = Log::new();
    log.add(node_opened(1, 0, None));
    log.add(alone("a", 100, 500));
    log.add_to(NodeId(1), alone("b", 100, 130));
    let all = calibration(&log);
    assert_eq!(all.of(ROOT).overhead(&[]), 400);
    assert_eq!(all.of(NodeId(1)).overhead(&[]), 30);
    assert_eq!(all.of(NodeId(2)), NodeCalibration::default());
}

#[test]
fn a_restart_plans_as_before() {
    let mut log = Log::new();
    for number in 1..=30 {
        log.add(message(number, Role::User, &"abc".repeat(100), &[]));
    }
    log.add(answer(31, 9_000));
    log.add(sent("r", Some(31), estimate_tokens(&log.context())));
    // The process that appended all that and one that opens the log: one folded live, one reads a stored state.
    let live = calibration(&log);
    let stored = serde_json::to_string(&live).unwrap();
    let cold: Calibration = serde_json::from_str(&stored).unwrap();
    assert_eq!(live, cold);
    assert_eq!(cold, calibration(&log));
    let (policy, window) = (Policy::default(), Some(10_000));
    let need = need(&log.context(), &cold.of(ROOT), window, &policy);
    assert!(matches!(need, Need::Due { predicted, .. } if predicted.overhead > 4_000), "{need:?}");
    // The overhead takes its part of the target.
    let refused = plan(&log.tree(), ROOT, &Pinned::default(), &cold, window, &policy);
    assert_eq!(refused, Err(PlanError::BudgetTooSmall { available: 0, needed: 128 }));
    let fine = plan(&log.tree(), ROOT, &Pinned::default(), &cold, Some(40_000), &policy).unwrap();
    assert_eq!(fine.fixed.overhead, need_overhead(need));
}

fn need_overhead(need: Need) -> u64 {
    let (Need::Due { predicted, .. } | Need::NotYet { predicted, .. } | Need::UnknownWindow { predicted }) =
        need;
    predicted.overhead
}
