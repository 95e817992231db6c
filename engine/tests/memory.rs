//! Workspace memory: what is found, in which order, and that an index makes no difference but in time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![cfg(feature = "search")]

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use sessionlog::codec::event::*;
use sessionlog::codec::ids::{MessageNo, NodeId, Position, Timestamp};
use sessionlog::projections::memory::{
    MemoryFilter, MemoryKind, MemoryQuery, MemorySort, MemoryStatus, QueryVector, Recency, RecordId,
};
use sessionlog::projections::rewind::RewindTo;
use sessionlog::session::Compaction;
use sessionlog::storage::SimStorage;
use sessionlog::{
    CallResult, Clock, ErrorKind, ForkOptions, ForkPoint, FoundBy, IndexPolicy, Message, NewSession, Session,
    StoreReader,
};
use support::recall::{Hands, Workspace, marked, texts};

const ROOT: NodeId = NodeId::ROOT;

/// Three sessions about different things.
fn corpus() -> Workspace {
    let workspace = Workspace::new();
    let login = workspace.session("Fix the login test");
    let failed = "test login_flow ... FAILED: assertion failed in src/auth/login_flow.rs:42";
    let call = ["run", r#"{"cmd":"cargo test login"}"#, failed];
    workspace.turn(&login, "The login test fails. Fix it.", call, "The login flow drops the session cookie.");
    login.close().unwrap();
    let parser = workspace.session("Header parsing");
    let call = ["grep", r#"{"pattern":"parse_header"}"#, "src/http/parse.rs: fn parse_header(bytes: &[u8])"];
    workspace.turn(
        &parser,
        "Why does parse_header reject CRLF?",
        call,
        "HttpParser::parse_header splits at LF only.",
    );
    parser.close().unwrap();
    let weather = workspace.session("天気");
    let call = ["fetch", r#"{"city":"東京"}"#, "東京都 晴れ 25度"];
    workspace.turn(&weather, "東京都の天気を調べて。", call, "東京都は晴れです。 Café Tokyo is open.");
    weather.finish(FinalStatus::Completed).unwrap();
    workspace
}

#[test]
fn golden_ranks() {
    let workspace = corpus();
    let login = [
        "Fix the login test",
        r#"{"cmd":"cargo test login"}"#,
        "The login test fails. Fix it.",
        "test login_flow ... FAILED: assertion failed in src/auth/login_flow.rs:42",
        "The login flow drops the session cookie.",
    ];
    assert_eq!(workspace.find("login test"), login);
    let parser = [
        "HttpParser::parse_header splits at LF only.",
        "src/http/parse.rs: fn parse_header(bytes: &[u8])",
        r#"{"pattern":"parse_header"}"#,
        "Why does parse_header reject CRLF?",
        "Header parsing",
    ];
    assert_eq!(workspace.find("HttpParser::parse_header"), parser);
    assert_eq!(workspace.find("cookie"), ["The login flow drops the session cookie."]);
    assert_eq!(
        workspace.find("login_flow.rs"),
        [login[3], login[4], parser[1], login[0], login[1], login[2]]
    );
    assert_eq!(workspace.find("CAFE"), ["東京都は晴れです。 Café Tokyo is open."]);
    assert_eq!(workspace.find("晴れ"), ["東京都 晴れ 25度", "東京都は晴れです。 Café Tokyo is open."]);
    assert_eq!(
        workspace.find("都"),
        ["東京都 晴れ 25度", "東京都は晴れです。 Café Tokyo is open.", "東京都の天気を調べて。"]
    );
    assert_eq!(workspace.find("nowhere"), Vec::<String>::new());
    assert_eq!(workspace.find("!?"), Vec::<String>::new(), "no word in it");
    let newest = workspace.search(&MemoryQuery { limit: 2, ..MemoryQuery::default() });
    assert_eq!(
        (newest.total, texts(&newest)),
        (16, vec!["session completed".to_owned(), "東京都は晴れです。 Café Tokyo is open.".to_owned()])
    );
    let older = workspace.search(&MemoryQuery { limit: 1, offset: 2, ..MemoryQuery::default() });
    assert_eq!(texts(&older), ["東京都 晴れ 25度"]);
    let oldest = MemoryQuery { sort: MemorySort::Oldest, limit: 1, ..MemoryQuery::default() };
    assert_eq!(texts(&workspace.search(&oldest)), ["Fix the login test"]);
    let past = workspace.search(&MemoryQuery { offset: 99, ..MemoryQuery::default() });
    assert_eq!((past.total, past.hits.len()), (16, 0));
}

#[test]
fn what_a_hit_says() {
    let workspace = corpus();
    let found = workspace.search(&MemoryQuery::of_text("login_flow"));
    let hit = &found.hits[0];
    assert_eq!(
        (hit.kind, hit.status, hit.tool.as_deref()),
        (MemoryKind::Result, MemoryStatus::Succeeded, Some("run"))
    );
    assert_eq!(marked(hit), ["login_flow", "src/auth/login_flow.rs"].map(|_| "login_flow"));
    assert_eq!((hit.text_rank, hit.vector_rank), (Some(1), None));
    let call = workspace.search(&MemoryQuery::of_text("cargo"));
    assert_eq!((call.hits[0].kind, call.hits[0].status), (MemoryKind::Call, MemoryStatus::Succeeded));
    let by_tool = workspace.search(&MemoryQuery::of_text("grep"));
    assert_eq!(texts(&by_tool), [r#"{"pattern":"parse_header"}"#], "a call is found by its tool");
    assert_eq!(call.hits[0].id.part, 1);
}

#[test]
fn nothing_is_forgotten_by_folding() {
    let workspace = Workspace::new();
    let session = workspace.session("");
    workspace.turn(&session, "alpha first", ["run", "{}", "alpha result"], "alpha answer");
    workspace.turn(&session, "beta second", ["run", "{}", "beta result"], "beta answer");
    let range = |first, last| MessageRange { first: MessageNo(first), last: MessageNo(last) };
    session
        .compact(Compaction {
            compaction_id: "k".to_owned(),
            summary: "gamma summary".to_owned(),
            summary_role: Role::User,
            kept: vec![range(4, 6)],
            replaced: vec![range(1, 3)],
            tokens: (None, None),
            trigger: CompactionTrigger::Auto,
            model: None,
            usage: None,
        })
        .unwrap();
    let to = session.plan_rewind(ROOT, RewindTo::BeforeTurn(sessionlog::codec::ids::TurnNo(2))).unwrap();
    session.rewind(&to).unwrap();
    session.clear("run-2").unwrap();
    workspace.clock.forward(1);
    let withdrawn = session.append(Message::user("delta withdrawn")).unwrap();
    session.withdraw(ROOT, withdrawn.message_no, "changed my mind").unwrap();
    assert_eq!(workspace.find("alpha").len(), 3);
    assert_eq!(workspace.find("beta").len(), 3);
    let summary = workspace.search(&MemoryQuery::of_text("gamma"));
    assert_eq!(summary.hits[0].kind, MemoryKind::Summary);
    let taken_back = workspace.search(&MemoryQuery::of_text("delta"));
    assert_eq!(taken_back.hits[0].status, MemoryStatus::Withdrawn);
    let statuses = BTreeSet::from([MemoryStatus::Submitted]);
    let filter = MemoryFilter { statuses, ..MemoryFilter::default() };
    assert_eq!(workspace.search(&MemoryQuery { filter, ..MemoryQuery::of_text("delta") }).total, 0);
}

#[test]
fn filters_times_and_recency() {
    let workspace = corpus();
    let (second, all) = (1_000_000, MemoryQuery { limit: 100, ..MemoryQuery::default() });
    let count = |filter: MemoryFilter| workspace.search(&MemoryQuery { filter, ..all.clone() }).total;
    let none = MemoryFilter::default;
    assert_eq!(count(none()), 16);
    assert_eq!(count(MemoryFilter { kinds: BTreeSet::from([MemoryKind::Call]), ..none() }), 3);
    assert_eq!(count(MemoryFilter { roles: vec![Role::User], ..none() }), 3);
    let tools = BTreeSet::from(["grep".to_owned(), "run".to_owned()]);
    assert_eq!(count(MemoryFilter { tools: tools.clone(), ..none() }), 4);
    assert_eq!(count(MemoryFilter { tools, kinds: BTreeSet::from([MemoryKind::Result]), ..none() }), 2);
    assert_eq!(count(MemoryFilter { nodes: BTreeSet::from([NodeId(7)]), ..none() }), 0);
    let first = Timestamp(Hands::START + second);
    assert_eq!(count(MemoryFilter { until: Some(first), ..none() }), 1, "inclusive");
    assert_eq!(count(MemoryFilter { since: Some(first), ..none() }), 16, "inclusive");
    assert_eq!(count(MemoryFilter { since: Some(Timestamp(first.0 + 1)), ..none() }), 15);
    let newest = workspace.search(&all).hits[0].id.session;
    assert_eq!(count(MemoryFilter { sessions: BTreeSet::from([newest]), ..none() }), 6);
    let recency = Recency { weight: 300.0, half_life: Duration::from_secs(4) };
    let plain = workspace.search(&MemoryQuery::of_text("login test"));
    let by_age =
        workspace.search(&MemoryQuery { recency: Some(recency), ..MemoryQuery::of_text("login test") });
    assert_ne!(texts(&by_age), texts(&plain));
    for hit in &by_age.hits {
        let before = plain.hits.iter().find(|plain| plain.id == hit.id).unwrap().score;
        let age = (workspace.clock.now().0 - hit.at.0) as f64 / 1e6;
        assert!((hit.score - before * (1.0 + 300.0 * 0.5_f64.powf(age / 4.0))).abs() < 1e-9);
    }
    assert!(by_age.hits.is_sorted_by(|a, b| a.score >= b.score));
}

#[test]
fn tags_are_of_the_session_whenever_it_was_tagged() {
    let workspace = corpus();
    let session = workspace.session("tagged");
    session.append(Message::user("before the tag")).unwrap();
    let tagged = |tag: &str| {
        let filter = MemoryFilter { tags: BTreeSet::from([tag.to_owned()]), ..MemoryFilter::default() };
        workspace.search(&MemoryQuery { filter, ..MemoryQuery::default() }).total
    };
    assert_eq!(tagged("nightly"), 0);
    session.tag(vec!["nightly".to_owned(), "x".to_owned()], vec![]).unwrap();
    session.append(Message::user("behind the tag")).unwrap();
    assert_eq!(tagged("nightly"), 3);
    session.tag(vec![], vec!["nightly".to_owned()]).unwrap();
    assert_eq!((tagged("nightly"), tagged("x")), (0, 3));
}

#[test]
fn what_is_read_from_memory_is_not_remembered_again() {
    let workspace = Workspace::new();
    let session = workspace.session("");
    workspace.turn(
        &session,
        "Where was xyzzy?",
        ["search_archive", "{}", "xyzzy was in the cellar"],
        "In the cellar.",
    );
    assert_eq!(workspace.find("xyzzy"), ["Where was xyzzy?"]);
    assert_eq!(workspace.find("cellar"), ["In the cellar."]);
    let tags = BTreeSet::from(["archive-read".to_owned()]);
    let filter = MemoryFilter { tags, ..MemoryFilter::default() };
    let read = workspace.search(&MemoryQuery { filter, ..MemoryQuery::default() });
    assert_eq!(texts(&read), [""]);
    let page = workspace.memory().read(read.hits[0].id, 0, 100).unwrap();
    assert_eq!((page.record.text.as_str(), page.of), ("", 0));
    // Whoever names other tools has them left out, and finds these.
    let other = workspace.memory().with_archive_tools(["recall".to_owned()]);
    assert_eq!(other.search(&MemoryQuery::of_text("cellar")).unwrap().total, 2);
    assert_eq!(workspace.find("cellar"), ["In the cellar."], "and the index is made for these again");
}

#[test]
fn a_session_that_goes_on_is_found_at_once() {
    let workspace = Workspace::new();
    let session = workspace.session("");
    for nth in 0..40 {
        session.append(Message::user(format!("needle {nth} {}", "hay ".repeat(nth * 7)))).unwrap();
        assert_eq!(workspace.search(&MemoryQuery::of_text("needle")).total, nth as u64 + 1);
    }
    let id = session.id();
    session.close().unwrap();
    let (session, _) = workspace.store.resume(id).unwrap();
    session.append(Message::user("needle after")).unwrap();
    assert_eq!(workspace.search(&MemoryQuery::of_text("needle")).total, 41);
    assert_eq!(workspace.find("after"), ["needle after"]);
}

#[test]
fn an_unknown_outcome_is_settled_in_its_record() {
    let workspace = Workspace::new();
    let session = workspace.session("");
    let said = session.append(Message::assistant("").call("c", "deploy", r#"{"to":"live"}"#)).unwrap();
    drop(session.start_call(said.call(0), Effect::External).unwrap());
    let status = || workspace.search(&MemoryQuery::of_text("deploy")).hits[0].status;
    assert_eq!(status(), MemoryStatus::Running);
    let id = session.id();
    session.close().unwrap();
    let (session, _) = workspace.store.resume(id).unwrap();
    assert_eq!(status(), MemoryStatus::Unknown);
    session
        .resolve_call(
            ROOT,
            said.call(0),
            CallResult::succeeded("version 7 is live"),
            (Resolver::Person, "I looked".to_owned()),
        )
        .unwrap();
    assert_eq!(status(), MemoryStatus::Succeeded);
    let result = workspace.search(&MemoryQuery::of_text("version"));
    assert_eq!(
        (result.hits[0].tool.as_deref(), texts(&result)),
        (Some("deploy"), vec!["version 7 is live\nI looked".to_owned()])
    );
}

#[test]
fn a_fork_remembers_what_came_after_it() {
    let workspace = Workspace::new();
    let session = workspace.session("original");
    workspace.turn(&session, "shared history", ["run", "{}", "shared result"], "shared answer");
    let fork = session.fork(ForkPoint::Head, ForkOptions::default()).unwrap();
    fork.append(Message::user("own way")).unwrap();
    assert_eq!(workspace.find("shared").len(), 3, "each once, where it was said");
    let own = workspace.search(&MemoryQuery::of_text("own"));
    assert_eq!((own.total, own.hits[0].id.session), (1, fork.id()));
}

#[test]
fn texts_are_read_in_pages() {
    let workspace = Workspace::new();
    let session = workspace.session("");
    let text: String = "東京都の天気 ".repeat(500);
    session.append(Message::user(&text)).unwrap();
    let id = workspace.search(&MemoryQuery::of_text("天気")).hits[0].id;
    for memory in [workspace.memory(), workspace.memory().with_index(IndexPolicy::Off)] {
        let (mut read, mut at) = (String::new(), Some(0));
        while let Some(offset) = at {
            let page = memory.read(id, offset, 999).unwrap();
            assert_eq!((page.offset, page.of), (offset, text.chars().count()));
            read.push_str(&page.record.text);
            at = page.next;
        }
        assert_eq!(read, text);
        assert_eq!(memory.read(id, 1_000_000, 10).unwrap().record.text, "");
        let nowhere = RecordId { position: Position(999), ..id };
        assert_eq!(memory.read(nowhere, 0, 1).unwrap_err().kind(), ErrorKind::NotFound);
    }
}

#[test]
fn excerpts_are_whole_characters_around_the_hit() {
    let workspace = Workspace::new();
    let session = workspace.session("");
    session.append(Message::user(format!("{}needle{}", "日".repeat(1000), "本".repeat(1000)))).unwrap();
    let query = MemoryQuery { excerpt_chars: 40, ..MemoryQuery::of_text("needle") };
    let hit = &workspace.search(&query).hits[0];
    assert_eq!((hit.excerpt.text.chars().count(), hit.excerpt.start, hit.excerpt.of), (40, 990, 2006));
    assert_eq!(marked(hit), ["needle"]);
    let none = workspace.search(&MemoryQuery { excerpt_chars: 0, ..query });
    assert_eq!(none.hits[0].excerpt.text, "");
}

#[test]
fn the_nearest_vectors_with_filters_inside() {
    let workspace = corpus();
    let all = workspace.search(&MemoryQuery { limit: 100, ..MemoryQuery::default() });
    let memory = workspace.memory();
    let mut expected = Vec::new();
    for (nth, hit) in all.hits.iter().enumerate() {
        let angle = nth as f32 / 10.0;
        memory.attach_vector(hit.id, "small", &[9.0, 9.0]).unwrap();
        memory.attach_vector(hit.id, "small", &[angle.cos(), angle.sin()]).unwrap();
        memory.attach_vector(hit.id, "large", &[1.0, 0.0, 0.0]).unwrap();
        expected.push((hit.id, f64::from(angle.cos())));
    }
    let vector = |components: &[f32]| {
        Some(QueryVector { model: "small".to_owned(), components: components.to_vec(), weight: 1.0 })
    };
    let near = MemoryQuery { vector: vector(&[2.0, 0.0]), limit: 100, ..MemoryQuery::default() };
    let found = workspace.search(&near);
    let order: Vec<_> = found.hits.iter().map(|hit| hit.id).collect();
    assert_eq!(order, expected.iter().map(|(id, _)| *id).collect::<Vec<_>>());
    for (hit, (_, cosine)) in found.hits.iter().zip(&expected) {
        assert!((hit.score - (cosine + 1.0) / 2.0).abs() < 1e-6);
    }
    // A filter that only the farthest meet finds them: it is asked before the nearest are chosen.
    let kinds = BTreeSet::from([MemoryKind::Call]);
    let filter = MemoryFilter { kinds, ..MemoryFilter::default() };
    assert_eq!(workspace.search(&MemoryQuery { filter, limit: 1, ..near.clone() }).total, 3);
    let both = workspace.search(&MemoryQuery { text: "login".to_owned(), ..near.clone() });
    assert_eq!(both.total, 16, "what either finds");
    let first = both.hits[0].text_rank.zip(both.hits[0].vector_rank);
    assert!(first.is_some(), "what both find comes first");
    for other in [&[1.0_f32][..], &[1.0, 0.0, 0.0, 0.0]] {
        assert_eq!(workspace.search(&MemoryQuery { vector: vector(other), ..near.clone() }).total, 0);
    }
    for (id, model, components) in [
        (RecordId { position: Position(99), ..all.hits[0].id }, "small", &[1.0_f32][..]),
        (all.hits[0].id, "", &[1.0]),
        (all.hits[0].id, "small", &[]),
        (all.hits[0].id, "small", &[f32::NAN]),
        (all.hits[0].id, "small", &[0.0, 0.0]),
    ] {
        assert!(memory.attach_vector(id, model, components).is_err());
    }
}

#[test]
fn a_query_that_can_not_be_answered_is_refused() {
    let workspace = corpus();
    let vector = |components, weight| Some(QueryVector { model: "m".to_owned(), components, weight });
    let recency = |weight, seconds| Some(Recency { weight, half_life: Duration::from_secs(seconds) });
    for query in [
        MemoryQuery { limit: 0, ..MemoryQuery::default() },
        MemoryQuery { limit: 1001, ..MemoryQuery::default() },
        MemoryQuery::of_text("x".repeat(1 << 20)),
        MemoryQuery { vector: vector(vec![], 1.0), ..MemoryQuery::default() },
        MemoryQuery { vector: vector(vec![1.0], f64::NAN), ..MemoryQuery::default() },
        MemoryQuery { recency: recency(-1.0, 1), ..MemoryQuery::default() },
        MemoryQuery { recency: recency(1.0, 0), ..MemoryQuery::default() },
    ] {
        assert_eq!(workspace.memory().search(&query).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_reader_changes_nothing_and_finds_the_same() {
    let workspace = corpus();
    let query = MemoryQuery::of_text("login test");
    let reader = StoreReader::open(workspace.home()).unwrap();
    let found = reader.memory(&workspace.hash).search(&query).unwrap();
    assert_eq!(found.by, FoundBy::Scan);
    assert!(!workspace.in_workspace("index").exists());
    assert_eq!(workspace.search(&query).hits, found.hits);
    let indexed = reader.memory(&workspace.hash).with_index(IndexPolicy::Keep).search(&query).unwrap();
    assert_eq!((indexed.by, indexed.hits), (FoundBy::Index, found.hits));
}

#[test]
fn a_workspace_without_sessions_has_no_memory() {
    let workspace = Workspace::new();
    let none = workspace.search_anyhow(&MemoryQuery::of_text("x"));
    assert_eq!((none.total, none.by), (0, FoundBy::Scan));
    workspace.memory().index().unwrap();
    let nowhere = RecordId { session: sessionlog::new_session_id(), position: Position(1), part: 0 };
    assert_eq!(
        workspace.memory().attach_vector(nowhere, "m", &[1.0]).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn on_a_simulated_disk_the_logs_are_read() {
    let storage = SimStorage::new();
    let store = support::tree::open(&storage);
    let session: Session = store.create("/w", NewSession::new("try")).unwrap();
    session.append(Message::user("xyzzy")).unwrap();
    let hash = store.reader().places().unwrap().remove(0).workspace;
    let found = store.memory(&hash).search(&MemoryQuery::of_text("xyzzy")).unwrap();
    assert_eq!((found.total, found.by), (1, FoundBy::Scan));
    store.memory(&hash).attach_vector(found.hits[0].id, "m", &[1.0]).unwrap();
    assert!(storage.files().iter().all(|path| !path.to_string_lossy().contains("sqlite")));
}
