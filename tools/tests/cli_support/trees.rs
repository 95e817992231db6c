//! Trees of agents, made through the API as a host makes them, and left as a crash leaves them.

use std::path::PathBuf;

use sessionlog::codec::event::{Effect, NodeBound, Usage};
use sessionlog::codec::ids::NodeId;
use sessionlog::session::OwedCall;
use sessionlog::{CallResult, Delegated, Delegation, Message, Session, Work};

use super::{Home, copy_tree};

/// The first child of a tree.
pub(crate) const CHILD: NodeId = NodeId(1);

/// What is asked of whom in a tree.
pub(crate) struct Words<'a> {
    pub(crate) agent: &'a str,
    pub(crate) prompt: &'a str,
    pub(crate) description: Option<&'a str>,
}

/// Ordinary words.
pub(crate) const PLAIN: Words<'static> =
    Words { agent: "fixer", prompt: "Fix the login test.", description: None };

/// Grows a tree up to the middle of its work: the root has delegated to an inner child and asked an external agent, and
/// its own call `tag` was not started. The child has run `fix`; `deploy` was started and `read` too, which only reads;
/// `notify` was not.
pub(crate) fn grow(session: &Session, words: &Words<'_>) {
    session.append(Message::system("Be careful.")).unwrap();
    session.prompt(Message::user(words.prompt)).unwrap();
    let lead = Message::assistant("Others do it.").call("d1", "delegate", "{}").call("d2", "consult", "{}");
    let usage = Usage { input: 10, cache_read: 20, cache_write: 0, output: 5, reasoning: 0 };
    answer(session, NodeId::ROOT, lead.call("t1", "tag", "{}").model("model-1").usage(usage));
    let inner = Delegation::inner(words.agent, words.prompt);
    delegate(session, "delegate", Delegation { description: words.description.map(str::to_owned), ..inner });
    delegate(session, "consult", Delegation::external("oracle", "May we?"));
    for work in session.work().unwrap() {
        match work {
            Work::Begin(child) => drop(child.begin(bound(), vec![Message::system("Be brief.")]).unwrap()),
            Work::Ask(request) => drop(request.bind(bound()).unwrap()),
            _ => {}
        }
        // What asks the external agent is lost at once: only a crash is between it and its answer.
    }
}

/// The child's part of [`grow`]. Apart from it, since the external agent's request must not be lost to `work` before.
pub(crate) fn work_on(session: &Session) {
    let names = ["fix", "deploy", "read", "notify"];
    let message = names.iter().zip(1..).fold(Message::assistant("I do it."), |message, (name, number)| {
        message.call(format!("c{number}"), *name, "{}")
    });
    session.append_to(CHILD, message).unwrap();
    let call = |name: &str| {
        let open = session.open_calls().unwrap().into_iter().find(|it| it.name == name).unwrap();
        (open.node, open.call)
    };
    let (node, fix) = call("fix");
    let fixing = session.start_call_of(node, fix, Effect::Mutating).unwrap();
    fixing.finish(CallResult::succeeded("fixed")).unwrap();
    drop(session.start_call_of(node, call("deploy").1, Effect::External).unwrap());
    drop(session.start_call_of(node, call("read").1, Effect::Pure).unwrap());
}

/// A home whose tree is in the middle of its work, and its session, which is alive.
pub(crate) fn growing(words: &Words<'_>) -> (Home, Session) {
    let home = Home::new();
    let session = home.session("Ship it");
    grow(&session, words);
    work_on(&session);
    (home, session)
}

/// A copy of a home while its session is owned: what a crash at this moment would leave.
pub(crate) fn crashed(home: &Home) -> PathBuf {
    let copy = home.dir.path().join("crashed");
    copy_tree(&home.path(), &copy);
    copy
}

/// Answers for the model of a conversation whose turn it is.
pub(crate) fn answer(session: &Session, node: NodeId, message: Message) {
    let turn = session.work().unwrap().into_iter().find_map(|work| match work {
        Work::Model(turn) if turn.node() == node => Some(turn),
        _ => None,
    });
    turn.unwrap().answer(message).unwrap();
}

fn delegate(session: &Session, tool: &str, delegation: Delegation) {
    let call: Option<OwedCall<'_>> = session.work().unwrap().into_iter().find_map(|work| match work {
        Work::Call(call) if call.name() == tool => Some(call),
        _ => None,
    });
    assert!(matches!(call.unwrap().delegate(delegation).unwrap(), Delegated::Child(_)));
}

fn bound() -> NodeBound {
    let (api_mode, candidate, conversation_id, profile_hash) = (None, None, None, None);
    NodeBound { model: "model-1".to_owned(), api_mode, candidate, conversation_id, profile_hash }
}
