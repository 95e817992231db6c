//! Generated session trees, killed after every frame, and killed again while they recover.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod recovery_support;

use recovery_support::*;
use sessionlog_codec::event::*;
use sessionlog_projections::recovery::HostNeed;

fn modes() -> impl Iterator<Item = (TakeOver, Order)> {
    let modes = [TakeOver::EndsTurns, TakeOver::LeavesTurns];
    modes.into_iter().flat_map(|mode| [Order::First, Order::Last].map(|order| (mode, order)))
}

/// Kills `live` after each of its frames, and recovers.
fn cut_everywhere(live: &Live) {
    let effects = live.scripts.effects();
    for frames in 1..=live.log.frames.len() {
        for (mode, order) in modes() {
            let mut log = Log::prefix(&live.log, frames);
            log.check_contexts();
            log.take_over(mode);
            let owed = log.plan();
            let engine = owed.iter().filter(|step| step.needs_host() == HostNeed::Nothing).count();
            assert_eq!(log.settle_without_host(&available), engine, "one frame for each step");
            // Resuming again and again adds nothing but the new owner.
            let before = log.frames.len();
            log.take_over(mode);
            assert_eq!(log.settle_without_host(&available), 0);
            assert_eq!(log.frames.len(), before + 1);
            let mut host = Host::new(log, &live.scripts, order);
            host.recover().unwrap();
            let abandoned = if frames > cleared_at(live) { &live.abandoned[..] } else { &[] };
            host.check_end(&effects, abandoned);
            assert_eq!(host.log.words(), [""; 0]);
        }
    }
}

fn cleared_at(live: &Live) -> usize {
    let clears = |frame: &Vec<LoggedEvent>| matches!(frame[0].event, Event::RunStarted(_));
    live.log.frames.iter().position(clears).unwrap_or(usize::MAX)
}

#[test]
fn a_tree_of_any_depth_is_recovered_after_every_frame() {
    for depth in 0..=4 {
        for seed in 0..2 {
            let scripts = Scripts::tree(depth, 1, seed + 10 * u64::from(depth));
            cut_everywhere(&Live::run(scripts, 1, seed, Stop::Never));
        }
    }
}

#[test]
fn a_run_that_was_cleared_away_is_not_gone_on_with() {
    let mut running = 0;
    for seed in 0..4 {
        let scripts = Scripts::tree(2, 2, 100 + seed);
        let live = Live::run(scripts, 2, seed, Stop::ClearAt(14 + 5 * usize::try_from(seed).unwrap()));
        running += live.abandoned.len();
        cut_everywhere(&live);
    }
    assert!(running > 8, "the runs were cleared too late");
}

/// The host is killed after every single frame that it appends.
#[test]
fn a_host_that_always_dies_comes_to_an_end() {
    for depth in 1..=3 {
        for mode in [TakeOver::EndsTurns, TakeOver::LeavesTurns] {
            let scripts = Scripts::tree(depth, 1, 7 + u64::from(depth));
            let live = Live::run(scripts, 1, 3, Stop::Never);
            let effects = live.scripts.effects();
            for frames in (1..=live.log.frames.len()).step_by(3) {
                let mut host = Host::new(Log::prefix(&live.log, frames), &live.scripts, Order::First);
                let mut lives = 0;
                loop {
                    host.log.take_over(mode);
                    // One frame is the turn of recovery: with it alone nobody gets anywhere.
                    host.fuel = 2;
                    lives += 1;
                    assert!(lives < 1000, "{:?}", host.log.words());
                    match host.recover() {
                        Ok(()) => break,
                        // What had been started before the kill may have had its effect.
                        Err(_killed) => {
                            let models = std::mem::take(&mut host.world.models);
                            host = Host::new(host.log, &live.scripts, Order::First);
                            host.world.models = models;
                        }
                    }
                }
                host.check_end(&effects, &[]);
            }
        }
    }
}

/// The log is cut inside a frame: the medium must not allow it, and this says why.
#[test]
fn a_childs_end_and_its_parents_result_are_one_frame() {
    let scripts = Scripts::tree(3, 1, 5);
    let live = Live::run(scripts, 1, 5, Stop::Never);
    let mut seen = 0;
    for (index, frame) in live.log.frames.iter().enumerate() {
        let [first, second] = &frame[..] else { continue };
        let (Event::NodeSettled(_), Event::CallFinished(finished)) = (&first.event, &second.event) else {
            continue;
        };
        seen += 1;
        let (before, after) = (Log::prefix(&live.log, index), Log::prefix(&live.log, index + 1));
        for log in [&before, &after] {
            let is_settled = log.state.ledger().settled(first.node).is_some();
            assert_eq!(is_settled, !log.is_open(second.node, finished.call), "both or neither");
        }
        // An older writer that split them: the result is returned, once, and is the same.
        let mut split = Log::prefix(&live.log, index);
        split.append(vec![NewEvent::now(first.node, first.event.clone())]);
        split.take_over(TakeOver::LeavesTurns);
        let returned = split.words().iter().filter(|it| it.starts_with("return ")).count();
        assert_eq!(returned, 1, "{:?}", split.words());
        assert_eq!(split.delegations().undelivered(split.state.ledger()).count(), 1);
        split.settle_without_host(&available);
        assert_eq!(split.results(second.node, finished.call)[0].parts, finished.parts);
        assert_eq!(split.delegations().undelivered(split.state.ledger()).count(), 0);
        // The other way round: nobody waits for the child any more.
        let mut split = Log::prefix(&live.log, index);
        split.append(vec![NewEvent::now(second.node, second.event.clone())]);
        split.take_over(TakeOver::LeavesTurns);
        let cancel = format!("cancel {} unawaited", first.node);
        let settle = format!("settle {}", first.node);
        assert!(split.words().iter().any(|it| *it == cancel || *it == settle), "{:?}", split.words());
    }
    assert!(seen > 3);
}
