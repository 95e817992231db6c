//! The table of crash points: for each, what the last durable thing is and what has to come of it, at every depth, with
//! children that run beside.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]

mod recovery_support;

use recovery_support::*;
use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_projections::delegation::Standing;
use sessionlog_projections::recovery::{HostNeed, Owed, Step};

const ORDERS: [Order; 2] = [Order::First, Order::Last];

/// Chains whose tip's child is at depths 1 to 4.
fn chains(answers: &[Vec<Action>]) -> impl Iterator<Item = Chain> {
    (0..4).map(|depth| Chain::new(depth, answers.to_vec()))
}

fn inner(prompt: &str) -> Action {
    Action::Delegate(AgentKind::Inner, prompt.into())
}

fn external(prompt: &str) -> Action {
    Action::Delegate(AgentKind::External, prompt.into())
}

fn tool(effect: Effect, key: &str) -> Action {
    Action::Tool(effect, key.into())
}

fn opened_for(host: &Host, prompt: &str) -> usize {
    let is_it = |logged: &&LoggedEvent| matches!(&logged.event, Event::NodeOpened(it) if it.prompt == prompt);
    host.log.events().filter(is_it).count()
}

#[test]
fn point_01_nothing_of_the_turn() {
    let log = Log::new();
    assert_eq!(log.words(), [""; 0]);
    // The input alone is owed an answer, with a turn or without.
    let mut log = Log::new();
    log.add(ROOT, said(1, Role::User, "Go."));
    assert_eq!(log.words(), ["continue 0"]);
    assert_eq!(log.state.owed(ROOT), Owed::Model);
    log.add(ROOT, turn_started(1, TurnCause::User));
    assert_eq!(log.words(), ["continue 0"]);
    assert_eq!(log.state.owed(ROOT), Owed::Model);
    // A turn without its input has nothing to answer.
    let mut log = Log::new();
    log.add(ROOT, turn_started(1, TurnCause::User));
    assert_eq!(log.state.owed(ROOT), Owed::Conclusion);
    log.take_over(TakeOver::EndsTurns);
    assert_eq!(log.words(), [""; 0]);
    // Neither has one behind an earlier answer.
    let mut log = Log::new();
    log.add(ROOT, said(1, Role::User, "Go."));
    log.add(ROOT, said(2, Role::Assistant, "Done."));
    assert_eq!(log.words(), [""; 0]);
    log.add(ROOT, turn_started(1, TurnCause::User));
    assert_eq!(log.state.owed(ROOT), Owed::Conclusion);
}

#[test]
fn point_02_call_without_bookmark() {
    for mut chain in chains(&[vec![inner("c"), external("x")]]) {
        chain.scripts.put("c", vec![vec![tool(Effect::Mutating, "t")]]);
        chain.log.add(chain.tip, asking(2, 2));
        assert_eq!(chain.log.state.owed(chain.tip), Owed::Calls(vec![call(2, 0), call(2, 1)]));
        for order in ORDERS {
            let host = chain.recover(order);
            assert_eq!((opened_for(&host, "c"), opened_for(&host, "x")), (1, 1));
            assert_eq!((host.world.effects["t"], host.world.external["x"]), (1, 1));
        }
    }
}

#[test]
fn point_03_bookmark_without_child() {
    for mut chain in chains(&[vec![inner("c")]]) {
        chain.log.add(chain.tip, asking(2, 1));
        let child = chain.child(0, AgentKind::Inner, "c", vec![vec![tool(Effect::Mutating, "t")]]);
        assert_eq!(chain.steps(&[child]), [format!("start {child}")]);
        assert_eq!(chain.log.plan()[0], Step::StartChild { child });
        // A model that was chosen is not yet a word to it.
        chain.log.add(child, bound(None));
        assert_eq!(chain.steps(&[child]), [format!("start {child}")]);
        let invocation = chain.log.delegations().request(child).unwrap().invocation_id;
        for order in ORDERS {
            let host = chain.recover(order);
            assert_eq!(opened_for(&host, "c"), 1);
            assert_eq!(host.world.effects["t"], 1);
            let row = host.log.delegations().tree().into_iter().find(|row| row.node == child).unwrap();
            assert_eq!((row.invocation_id, row.rounds), (invocation, 2));
        }
    }
}

#[test]
fn point_04_child_that_was_never_asked() {
    for mut chain in chains(&[vec![inner("c"), external("x")]]) {
        chain.log.add(chain.tip, asking(2, 2));
        let child = chain.child(0, AgentKind::Inner, "c", vec![]);
        let outside = chain.child(1, AgentKind::External, "x", vec![]);
        chain.log.add(child, said(1, Role::User, "c"));
        // A command to an agent is not yet a word to it.
        let (command_id, content, actor) = ("1".into(), "now".into(), "a".into());
        chain.log.add(outside, CommandReceived { command_id, kind: CommandKind::Guidance, content, actor });
        let expected = [format!("resume {child}"), format!("start {outside}")];
        assert_eq!(chain.steps(&[child, outside]), expected);
        for order in ORDERS {
            let host = chain.recover(order);
            assert_eq!(host.world.external["x"], 1);
            assert_eq!(host.world.models.iter().filter(|node| **node == child).count(), 1);
        }
    }
}

#[test]
fn point_05_external_child_in_flight() {
    for mut chain in chains(&[vec![external("x"), tool(Effect::Mutating, "t")]]) {
        chain.log.add(chain.tip, asking(2, 2));
        let child = chain.child(0, AgentKind::External, "x", vec![]);
        chain.log.add(child, bound(Some("x")));
        assert_eq!(chain.log.words()[0], format!("settle {child}"));
        let step = &chain.log.plan()[0];
        assert_eq!(step.events(&chain.log.state).len(), 2, "its end and the parent's result");
        for order in ORDERS {
            let host = chain.recover(order);
            assert_eq!((host.world.external["x"], host.world.effects["t"]), (1, 1));
            let standing = host.log.delegations().standing(child);
            assert_eq!(standing, Some(Standing::Settled(NodeStatus::Unknown)));
            let results = host.log.results(chain.tip, call(2, 0));
            assert_eq!(results.len(), 1);
            assert_eq!((results[0].outcome, results[0].flag), (Outcome::Unknown, ResultFlag::Error));
        }
        // Also when the agent is gone: that it can't be asked again does not say what it did.
        let mut log = chain.log.clone();
        log.settle_without_host(&gone);
        assert_eq!(log.delegations().standing(child), Some(Standing::Settled(NodeStatus::Unknown)));
    }
}

#[test]
fn point_06_child_with_calls_without_result() {
    let answers = vec![vec![
        tool(Effect::Mutating, "started"),
        tool(Effect::Pure, "pure"),
        tool(Effect::Idempotent, "idempotent"),
        tool(Effect::External, "later"),
    ]];
    for mut chain in chains(&[vec![inner("c")]]) {
        chain.log.add(chain.tip, asking(2, 1));
        let child = chain.child(0, AgentKind::Inner, "c", answers.clone());
        chain.log.add(child, said(1, Role::User, "c"));
        chain.log.add(child, asking(2, 4));
        chain.log.add(child, started(call(2, 0), Effect::Mutating, 1, "started"));
        chain.log.add(child, started(call(2, 1), Effect::Pure, 1, "pure"));
        chain.log.add(child, started(call(2, 2), Effect::Idempotent, 1, "idempotent"));
        let expected = ["unknown C/2.0", "rerun C/2.1", "unknown C/2.2", "resume C"];
        let expected = expected.map(|text| text.replace('C', &child.to_string()));
        assert_eq!(chain.steps(&[child]), expected);
        for order in ORDERS {
            let host = chain.recover(order);
            let effects = ["started", "pure", "idempotent", "later"].map(|key| host.world.effects[key]);
            assert_eq!(effects, [1, 2, 1, 1]);
            let outcomes = [0, 1, 2, 3].map(|index| host.log.results(child, call(2, index))[0].outcome);
            let (unknown, succeeded) = (Outcome::Unknown, Outcome::Succeeded);
            assert_eq!(outcomes, [unknown, succeeded, unknown, succeeded]);
        }
        // A pure call that its host did not survive twice is not tried a third time.
        chain.log.add(child, started(call(2, 1), Effect::Pure, 2, "pure"));
        assert!(chain.steps(&[child]).contains(&format!("unknown {child}/2.1")));
    }
}

#[test]
fn point_07_rounds_are_what_was_said() {
    let answers = vec![vec![tool(Effect::Mutating, "a")], vec![tool(Effect::Mutating, "b")]];
    for mut chain in chains(&[vec![inner("c")]]) {
        chain.log.add(chain.tip, asking(2, 1));
        let child = chain.child(0, AgentKind::Inner, "c", answers.clone());
        chain.log.add(child, said(1, Role::User, "c"));
        for (number, key) in [(2, "a"), (3, "b")] {
            chain.log.add(child, asking(number, 1));
            chain.log.add(child, started(call(number, 0), Effect::Mutating, 1, key));
            chain.log.add(child, finished(call(number, 0), key));
        }
        assert_eq!(chain.log.delegations().rounds(child), 2);
        assert_eq!(chain.log.state.owed(child), Owed::Model);
        for order in ORDERS {
            let host = chain.recover(order);
            assert_eq!((host.world.effects["a"], host.world.effects["b"]), (1, 1));
            assert_eq!(host.world.models.iter().filter(|node| **node == child).count(), 1);
            assert_eq!(host.log.delegations().rounds(child), 3);
        }
    }
}

/// W1 as well: q blocks the child for ever.
#[test]
fn point_08_rejected_completion() {
    let answers = vec![vec![tool(Effect::Pure, "task_complete")], vec![tool(Effect::Mutating, "more")]];
    for mut chain in chains(&[vec![inner("c")]]) {
        chain.log.add(chain.tip, asking(2, 1));
        let child = chain.child(0, AgentKind::Inner, "c", answers.clone());
        chain.log.add(child, said(1, Role::User, "c"));
        let mut complete = said(2, Role::Assistant, "");
        complete.tool_calls = vec![tool_call(0, "task_complete")];
        chain.log.add(child, complete);
        chain.log.add(child, started(call(2, 0), Effect::Pure, 1, "task_complete"));
        let (outcome, flag) = (Outcome::Failed, ResultFlag::Error);
        chain.log.add(child, CallFinished { outcome, flag, ..finished(call(2, 0), "Tests are missing.") });
        // And once more, after the model has gone on.
        for more in [false, true] {
            if more {
                chain.log.add(child, asking(3, 1));
            }
            assert_eq!(chain.steps(&[child]), [format!("resume {child}")]);
            assert_eq!(chain.log.delegations().rounds(child), if more { 2 } else { 1 });
            for order in ORDERS {
                let host = chain.recover(order);
                assert_eq!(host.world.effects["more"], 1);
                let standing = host.log.delegations().standing(child);
                assert_eq!(standing, Some(Standing::Settled(NodeStatus::Completed)));
            }
        }
    }
}

#[test]
fn point_09_child_that_has_said_its_last() {
    for mut chain in chains(&[vec![inner("c")]]) {
        chain.log.add(chain.tip, asking(2, 1));
        let child = chain.child(0, AgentKind::Inner, "c", vec![vec![tool(Effect::Pure, "task_complete")]]);
        chain.log.add(child, said(1, Role::User, "c"));
        chain.log.add(child, asking(2, 1));
        chain.log.add(child, started(call(2, 0), Effect::Pure, 1, "task_complete"));
        chain.log.add(child, finished(call(2, 0), "ok"));
        let mut remark = said(3, Role::Assistant, "Closing.");
        remark.phase = Some("commentary".into());
        let mut with_remark = chain.log.clone();
        with_remark.add(child, remark);
        assert_eq!(with_remark.state.owed(child), Owed::Model, "a remark is not the last word");
        chain.log.add(child, said(3, Role::Assistant, "Done."));
        assert_eq!(chain.log.state.owed(child), Owed::Conclusion);
        for order in ORDERS {
            let host = chain.recover(order);
            assert!(!host.world.models.contains(&child), "no model call");
            let standing = host.log.delegations().standing(child);
            assert_eq!(standing, Some(Standing::Settled(NodeStatus::Completed)));
        }
    }
}

#[test]
fn point_10_stored_result_is_returned_once() {
    let statuses = [
        (NodeStatus::Completed, Outcome::Succeeded, ResultFlag::Normal),
        (NodeStatus::Blocked, Outcome::Failed, ResultFlag::Error),
        (NodeStatus::Unknown, Outcome::Unknown, ResultFlag::Error),
        (NodeStatus::Failed, Outcome::Failed, ResultFlag::Error),
        (NodeStatus::Cancelled, Outcome::Cancelled, ResultFlag::Error),
    ];
    for (status, outcome, flag) in statuses {
        for mut chain in chains(&[vec![inner("c"), inner("d")]]) {
            chain.log.add(chain.tip, asking(2, 2));
            let child = chain.child(0, AgentKind::Inner, "c", vec![]);
            chain.scripts.put("d", vec![]);
            chain.log.add(child, said(1, Role::User, "c"));
            chain.log.add(child, settled(status, "the result"));
            let place = chain.tip;
            assert_eq!(chain.log.words()[0], format!("return {child} to {place}/2.0"));
            let mut log = chain.log.clone();
            log.settle_without_host(&available);
            let results = log.results(chain.tip, call(2, 0));
            assert_eq!(results.len(), 1);
            assert_eq!(results[0].parts, [Part::text("the result")]);
            assert_eq!((results[0].outcome, results[0].flag), (outcome, flag));
            assert_eq!(results[0].origin, ResultOrigin::Child);
            let host = {
                let mut log = chain.log.clone();
                log.take_over(TakeOver::LeavesTurns);
                let mut host = Host::new(log, &chain.scripts, Order::First);
                host.recover().unwrap();
                host
            };
            assert!(!host.world.models.contains(&child), "its agent is not run again");
        }
    }
}

#[test]
fn point_11_delivered_is_delivered() {
    for mut chain in chains(&[vec![inner("c")]]) {
        chain.log.add(chain.tip, asking(2, 1));
        let child = chain.child(0, AgentKind::Inner, "c", vec![]);
        chain.log.add(child, said(1, Role::User, "c"));
        chain.log.add(child, said(2, Role::Assistant, "Done."));
        chain.log.append(vec![
            NewEvent::now(child, settled(NodeStatus::Completed, "r")),
            NewEvent::now(chain.tip, finished(call(2, 0), "r")),
        ]);
        assert_eq!(chain.steps(&[child]), [""; 0]);
        assert_eq!(chain.log.state.owed(chain.tip), Owed::Model);
        for order in ORDERS {
            let host = chain.recover(order);
            assert_eq!(host.log.results(chain.tip, call(2, 0)).len(), 1);
            assert!(!host.world.models.contains(&child));
        }
    }
}

#[test]
fn point_12_the_deepest_goes_first() {
    for mut chain in chains(&[vec![inner("c")]]) {
        chain.log.add(chain.tip, asking(2, 1));
        let child = chain.child(0, AgentKind::Inner, "c", vec![vec![inner("g")]]);
        chain.log.add(child, said(1, Role::User, "c"));
        chain.log.add(child, asking(2, 1));
        let grandchild = chain.log.state.ledger().next_node();
        let mut opened = bookmark(grandchild.0, child.0, call(2, 0), AgentKind::Inner, chain.depth + 2);
        opened.prompt = "g".into();
        chain.log.add(child, opened);
        chain.log.add(grandchild, said(1, Role::User, "g"));
        chain.log.add(grandchild, settled(NodeStatus::Completed, "g"));
        let host = chain.recover(Order::First);
        assert!(!host.world.models.contains(&grandchild));
        // Of the chain, every conversation asked its model once, from the deepest up.
        let mut expected = vec![child];
        expected.extend((1..=chain.depth).rev().map(|level| NodeId(2 * level - 1)));
        expected.push(ROOT);
        let of_chain = |node: &&NodeId| expected.contains(node);
        let asked: Vec<NodeId> = host.world.models.iter().filter(of_chain).copied().collect();
        assert_eq!(asked, expected);
        let depths: Vec<u32> = chain.log.plan().iter().map(|step| depth_of(&chain.log, step)).collect();
        assert!(depths.is_sorted_by(|a, b| a >= b), "{depths:?}");
    }
}

fn depth_of(log: &Log, step: &Step) -> u32 {
    let rows = log.delegations().tree();
    rows.iter().find(|row| Some(row.node) == step.node()).map_or(0, |row| row.depth)
}

#[test]
fn point_13_summary_that_was_not_applied() {
    for mut chain in chains(&[vec![inner("c")]]) {
        chain.log.add(chain.tip, asking(2, 1));
        let before = chain.log.tree.context(chain.tip);
        let words = chain.log.words();
        chain.log.add(
            chain.tip,
            UsageRecorded {
                request_id: "summary".into(),
                message_no: None,
                model: None,
                usage: Some(Usage::default()),
                cost_nano_usd: None,
                latency_ms: None,
                estimated_input: None,
                window: None,
            },
        );
        assert_eq!(chain.log.tree.context(chain.tip), before);
        assert_eq!(chain.log.words(), words);
        // Once it is applied, the conversation goes on from the same call.
        let range = |first, last| MessageRange { first: MessageNo(first), last: MessageNo(last) };
        chain.log.add(
            chain.tip,
            ContextCompacted {
                compaction_id: "1".into(),
                summary: vec![Part::text("so far")],
                summary_role: Role::User,
                kept: vec![range(2, 2)],
                replaced: vec![range(1, 1)],
                tokens_before: None,
                tokens_after: None,
                trigger: CompactionTrigger::Auto,
                model: None,
                usage: None,
                inputs: None,
                source: None,
            },
        );
        assert_eq!(chain.log.words(), words);
        chain.scripts.put("c", vec![]);
        chain.recover(Order::First);
    }
}

#[test]
fn point_14_slot_without_answer() {
    let mut log = Log::new();
    let pending = |slot: u32, request: &str| LearnSlotPending {
        segment_id: "s".into(),
        slot,
        key: format!("k{slot}"),
        request: request.into(),
    };
    log.add(ROOT, pending(0, r#"{"content":"x"}"#));
    assert_eq!(log.words(), ["replay s/0"]);
    assert_eq!(log.plan()[0].needs_host(), HostNeed::Library);
    assert_eq!(log.state.pending_slot("s", 0), Some(&pending(0, r#"{"content":"x"}"#)));
    // What the library may have is what is repeated, whatever a later attempt says.
    log.add(ROOT, pending(0, "{}"));
    assert_eq!(log.state.pending_slot("s", 0), Some(&pending(0, r#"{"content":"x"}"#)));
    let action = LibraryAction::Create;
    log.add(ROOT, LearnSlotDone { segment_id: "s".into(), slot: 0, action, proposition_id: None });
    assert_eq!(log.words(), [""; 0]);
    log.add(ROOT, pending(1, "{}"));
    log.add(ROOT, LearnCommitted { segment_id: "s".into(), result: None });
    assert_eq!(log.words(), [""; 0]);
}

#[test]
fn point_15_decision_without_effect() {
    let mut log = Log::new();
    let decided = |action| PropositionDecided {
        key: "k".into(),
        action,
        target: None,
        reason: "new".into(),
        model: None,
    };
    log.add(ROOT, decided(LibraryAction::Create));
    log.add(ROOT, PropositionFailed { key: "k".into(), error: "disk".into(), attempt: 1 });
    log.add(ROOT, decided(LibraryAction::Discard));
    assert_eq!(log.words(), ["apply k"]);
    assert_eq!(log.state.decision("k"), Some(&decided(LibraryAction::Create)));
    let action = LibraryAction::Create;
    log.add(ROOT, PropositionApplied { key: "k".into(), entry_id: None, action, entry: None });
    assert_eq!(log.words(), [""; 0]);
}

/// The blob is the artifact store's to collect: nothing in the log names it, so nothing here keeps it.
#[test]
fn point_16_artifact_without_record() {
    for mut chain in chains(&[vec![tool(Effect::Mutating, "writes a blob")]]) {
        chain.log.add(chain.tip, asking(2, 1));
        chain.log.add(chain.tip, started(call(2, 0), Effect::Mutating, 1, "writes a blob"));
        let host = chain.recover(Order::First);
        assert_eq!(host.world.effects["writes a blob"], 1);
        let results = host.log.results(chain.tip, call(2, 0));
        assert_eq!((results[0].outcome, &results[0].artifact), (Outcome::Unknown, &None));
        assert_eq!(host.log.delegations().undelivered(host.log.state.ledger()).count(), 0);
    }
}

#[test]
fn point_17_deletion_is_one_record() {
    for mut chain in chains(&[vec![inner("c")]]) {
        chain.log.add(chain.tip, asking(2, 1));
        let child = chain.child(0, AgentKind::Inner, "c", vec![]);
        chain.log.add(child, said(1, Role::User, "c"));
        chain.log.append(vec![
            NewEvent::now(child, settled(NodeStatus::Completed, "r")),
            NewEvent::now(chain.tip, finished(call(2, 0), "r")),
        ]);
        let plan = chain.log.words();
        assert_eq!(chain.log.delegations().can_delete(child, chain.log.state.ledger()), Ok(vec![]));
        assert_eq!(chain.log.delegations().unfinished_deletions().count(), 0);
        let (descendants, actor) = (vec![], "a".into());
        chain.log.add(chain.tip, NodeDeleted { child, descendants, actor });
        // The erasure was cut off: it is known, and nothing else is owed.
        assert_eq!(chain.log.delegations().unfinished_deletions().collect::<Vec<_>>(), [child]);
        assert_eq!(chain.log.words(), plan);
        assert!(chain.log.delegations().tree().iter().all(|row| row.node != child));
        assert_eq!(chain.log.results(chain.tip, call(2, 0)).len(), 1, "the exchange stays");
        let erased = erase(&chain.log, child);
        assert_eq!(erased.delegations().unfinished_deletions().count(), 0);
        assert_eq!(erased.words(), plan);
    }
}

/// The log as it reads after the payloads of a conversation were erased.
fn erase(log: &Log, node: NodeId) -> Log {
    let mut erased = log.clone();
    for logged in erased.frames.iter_mut().flatten().filter(|logged| logged.node == node) {
        let (kind, schema) = logged.event.kind();
        logged.event = Event::Erased { kind, schema, digest: Digest::default() };
    }
    Log::prefix(&erased, erased.frames.len())
}

#[test]
fn point_18_torn_last_frame() {
    let scripts = Scripts::tree(3, 1, 1);
    let live = Live::run(scripts, 1, 1, Stop::Never);
    for frames in 1..live.log.frames.len() {
        // What is left is what was there before, and what comes is folded as it would have been.
        let cut = Log::prefix(&live.log, frames);
        assert_eq!(cut.frames[..], live.log.frames[..frames]);
        let mut again = cut.clone();
        for frame in &live.log.frames[frames..] {
            let events = frame.iter().map(|logged| NewEvent {
                cause: logged.cause,
                ..NewEvent::now(logged.node, logged.event.clone())
            });
            again.append(events.collect());
        }
        assert_eq!(again.state, live.log.state);
    }
}
