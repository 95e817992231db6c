//! Delegation: child conversations of a session tree, and the questions and commands that steer them.

use serde::{Deserialize, Serialize};

use super::message::Part;
use crate::ids::{CallRef, InvocationId, NodeId, Timestamp};
use crate::raw::RawBytes;

/// Whether we hold a child's conversation or somebody else does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// Its turns are in this log: it can be resumed.
    Inner,
    /// Its turns are elsewhere (ACP): in flight, its outcome is unknown after a crash.
    External,
}

/// `node.opened`: the delegation bookmark. A call of the parent becomes a conversation of its own. Appended by the host
/// before the child does anything; derives the tree, the delegation limits and where the result goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOpened {
    /// The child. Its later records carry this node.
    pub child: NodeId,
    /// What the child is called outside of this log.
    pub invocation_id: InvocationId,
    /// The conversation that delegates.
    pub parent: NodeId,
    /// The call that delegates; `None` where the source of an import does not say.
    pub call: Option<CallRef>,
    /// The call's provider id.
    pub call_id: Option<String>,
    /// The agent asked for.
    pub agent: String,
    /// Whose conversation it is.
    pub kind: AgentKind,
    /// The exact request.
    pub prompt: String,
    /// A short description for people.
    pub description: Option<String>,
    /// The child's working directory.
    pub working_directory: Option<String>,
    /// The run of the parent that delegates.
    pub run_id: Option<String>,
    /// How deep the child is below the root: the root's children are at 1.
    pub depth: u32,
    /// The source's own id of the child (an import).
    pub source_id: Option<String>,
}

/// `node.bound`: which model, API and agent profile a child runs with. A resume with another binding is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeBound {
    /// The model.
    pub model: String,
    /// The API.
    pub api_mode: Option<String>,
    /// Which candidate of a fallback group.
    pub candidate: Option<u32>,
    /// The provider's conversation id.
    pub conversation_id: Option<String>,
    /// The hash of the agent's profile.
    pub profile_hash: Option<String>,
}

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    /// It gave a result, whatever the result says.
    Completed,
    /// It can't go on: its agent, model or API is gone.
    Blocked,
    /// It was in flight elsewhere, and nobody knows.
    Unknown,
    /// Its runner gave up.
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

/// `node.settled`: a child's end, with its result. Final. Appended in one frame with the parent's `call.finished`, so
/// that a result is delivered exactly once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSettled {
    /// What became of it.
    pub status: NodeStatus,
    /// A machine's word for why (`agent_missing`, `model_changed`).
    pub reason: Option<String>,
    /// The result.
    pub parts: Vec<Part>,
}

/// `node.deleted`: a settled child and its descendants are hidden, their payloads erased. The parent's exchange stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDeleted {
    /// The child.
    pub child: NodeId,
    /// Its descendants.
    pub descendants: Vec<NodeId>,
    /// Who asked for it.
    pub actor: String,
}

/// `question.asked`: a tool waits for a person's answer. Appended by the host; derives what is waiting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionAsked {
    /// The host's id of the question.
    pub question_id: String,
    /// The call that asks.
    pub call: Option<CallRef>,
    /// The question.
    pub text: String,
    /// The answers offered.
    pub choices: Vec<String>,
}

/// `question.answered`: the person answered. Appended by the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionAnswered {
    /// The question.
    pub question_id: String,
    /// Which of the answers offered, from 0; `None` for an answer in words.
    pub choice: Option<u32>,
    /// The answer in words.
    pub text: Option<String>,
}

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// Take this into account.
    Guidance,
    /// Stop for now.
    Pause,
    /// Go on.
    Resume,
    /// Stop for good.
    Cancel,
}

/// `command.received`: somebody steers a running node. Appended by the host, before it acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandReceived {
    /// The host's id of the command.
    pub command_id: String,
    /// What it asks for.
    pub kind: CommandKind,
    /// Its text.
    pub content: String,
    /// Who gave it.
    pub actor: String,
}

/// `command.applied`: what became of a command. Appended by the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandApplied {
    /// The command.
    pub command_id: String,
    /// What became of it, for people.
    pub verdict: String,
}

/// Where a change request of a child stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeStatus {
    /// A branch and a worktree are ready.
    Prepared,
    /// The child is done with it.
    Submitted,
    /// It can't go on.
    Blocked,
    /// The parent took it.
    Merged,
    /// The parent left it.
    Closed,
}

/// `change.recorded`: the state of a child's change to a repository. Appended by the host; the repository is its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRecorded {
    /// The host's id of the change.
    pub change_id: String,
    /// Where it stands.
    pub status: ChangeStatus,
    /// The repository.
    pub repository: String,
    /// The commit it starts from.
    pub base: String,
    /// The commit it ends at.
    pub head: Option<String>,
    /// The branch.
    pub branch: Option<String>,
    /// The worktree.
    pub worktree: Option<String>,
    /// For people.
    pub summary: String,
}

/// `task.started`: the node works towards an objective until a `task.completed`. Survives turns and restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStarted {
    /// The objective.
    pub objective: String,
    /// How to know that it is reached.
    pub completion_criteria: Vec<String>,
    /// When it was set.
    pub started_at: Timestamp,
}

/// `task.completed`: the active task is over. Appended by the host; a learning segment closes here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCompleted {
    /// `completed`, `blocked` or `failed`, in the agent's word.
    pub outcome: String,
    /// For people.
    pub summary: String,
    /// What was found out.
    pub findings: Vec<String>,
    /// What was made.
    pub artifacts: Vec<String>,
    /// How it was checked.
    pub verification: Option<String>,
    /// What stands in the way.
    pub blocker: Option<String>,
    /// The agent's whole report, as its JSON.
    pub report: Option<RawBytes>,
}
