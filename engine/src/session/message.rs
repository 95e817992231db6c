//! What a host hands over: messages, results, compactions, without the numbers that the log gives them.

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{
    ArtifactReceipt, Audience, CallAudit, CallFinished, CallForm, CompactionTrigger, MessageAppended,
    MessageRange, Outcome, Part, ProviderIds, ResultFlag, ResultOrigin, Role, ToolCall, Usage,
};
use sessionlog_codec::ids::{CallRef, IdempotencyKey, MessageNo};

use super::capture::Recorded;

/// A message to append.
///
/// ```
/// use sessionlog::Message;
///
/// let ask = Message::user("What is in src/lib.rs?");
/// let answer = Message::assistant("I will read it.").call("call_1", "read", r#"{"path":"src/lib.rs"}"#);
/// # let _ = (ask, answer);
/// ```
#[derive(Clone, Debug)]
pub struct Message {
    pub(crate) body: MessageAppended,
    pub(crate) key: Option<IdempotencyKey>,
}

impl Message {
    /// A message of one text part. An empty text gives a message without parts.
    #[must_use]
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        let mut body = MessageAppended::text(MessageNo(0), role, text);
        body.parts.retain(|part| *part != Part::text(""));
        Self { body, key: None }
    }

    /// A prompt.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, text)
    }

    /// An answer of the model.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, text)
    }

    /// Instructions.
    #[must_use]
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, text)
    }

    /// Adds a tool call, behind those added before. `arguments` are kept byte for byte, valid JSON or not.
    #[must_use]
    pub fn call(
        mut self,
        call_id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<RawBytes>,
    ) -> Self {
        self.body.tool_calls.push(ToolCall {
            call_id: call_id.into(),
            name: name.into(),
            arguments: arguments.into(),
            form: CallForm::Function,
            extra: None,
        });
        self
    }

    /// Adds a part, behind those added before.
    #[must_use]
    pub fn part(mut self, part: Part) -> Self {
        self.body.parts.push(part);
        self
    }

    /// Who is shown it. Default: everyone.
    #[must_use]
    pub fn audience(mut self, audience: Audience) -> Self {
        self.body.audience = audience;
        self
    }

    /// The model that said it.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.body.model = Some(model.into());
        self
    }

    /// What the request that produced it used. Give it to one message of each request.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.body.usage = Some(usage);
        self
    }

    /// The provider's ids of the response.
    #[must_use]
    pub fn provider(mut self, ids: ProviderIds) -> Self {
        self.body.provider = ids;
        self
    }

    /// Why the model stopped, in the provider's word.
    #[must_use]
    pub fn stop_reason(mut self, reason: impl Into<String>) -> Self {
        self.body.stop_reason = Some(reason.into());
        self
    }

    /// Further keys of the provider's message, byte for byte.
    #[must_use]
    pub fn extra(mut self, json: impl Into<RawBytes>) -> Self {
        self.body.extra = Some(json.into());
        self
    }

    /// A name of the append's own: appending with the same key again stores nothing and gives back the first receipt.
    #[must_use]
    pub fn key(mut self, key: IdempotencyKey) -> Self {
        self.key = Some(key);
        self
    }
}

/// What came out of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResult {
    pub(crate) outcome: Outcome,
    pub(crate) flag: ResultFlag,
    pub(crate) parts: Vec<Part>,
    pub(crate) artifact: Option<ArtifactReceipt>,
    pub(crate) audit: Option<CallAudit>,
}

impl CallResult {
    /// A result with an outcome of its own.
    #[must_use]
    pub fn new(outcome: Outcome, flag: ResultFlag, parts: Vec<Part>) -> Self {
        Self { outcome, flag, parts, artifact: None, audit: None }
    }

    /// It ran and did what it should.
    #[must_use]
    pub fn succeeded(text: impl Into<String>) -> Self {
        Self::new(Outcome::Succeeded, ResultFlag::Normal, vec![Part::text(text)])
    }

    /// It ran (or was refused) and says why not.
    #[must_use]
    pub fn failed(text: impl Into<String>) -> Self {
        Self::new(Outcome::Failed, ResultFlag::Error, vec![Part::text(text)])
    }

    /// Somebody stopped it.
    #[must_use]
    pub fn cancelled(text: impl Into<String>) -> Self {
        Self::new(Outcome::Cancelled, ResultFlag::Error, vec![Part::text(text)])
    }

    /// It may have run, and nobody knows what it did.
    #[must_use]
    pub fn unknown(text: impl Into<String>) -> Self {
        Self::new(Outcome::Unknown, ResultFlag::Error, vec![Part::text(text)])
    }

    /// It never started.
    #[must_use]
    pub fn not_started(text: impl Into<String>) -> Self {
        Self::new(Outcome::NotStarted, ResultFlag::Error, vec![Part::text(text)])
    }

    /// The event that answers a call with it, of which `recorded` is what is recorded of its parts.
    pub(super) fn event(&self, call: CallRef, call_id: String, recorded: Recorded) -> CallFinished {
        let Self { outcome, flag, ref audit, .. } = *self;
        let Recorded { parts, artifact } = recorded;
        let (origin, audit, source) = (ResultOrigin::Live, audit.clone(), None);
        CallFinished { call, call_id, outcome, flag, parts, artifact, origin, audit, source }
    }

    /// The whole result, where its parts hold only the beginning of it: what the host put as an
    /// [artifact](crate::Artifacts::put) itself.
    #[must_use]
    pub fn artifact(mut self, receipt: ArtifactReceipt) -> Self {
        self.artifact = Some(receipt);
        self
    }

    /// What an audit keeps of the call.
    #[must_use]
    pub fn audit(mut self, audit: CallAudit) -> Self {
        self.audit = Some(audit);
        self
    }
}

/// A compaction of the context, once its summary exists.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// The host's id of it.
    pub compaction_id: String,
    /// The summary.
    pub summary: String,
    /// Who speaks the summary: [`Role::System`] or [`Role::User`].
    pub summary_role: Role,
    /// The messages that stay, verbatim, with the results of their calls.
    pub kept: Vec<MessageRange>,
    /// The messages that the summary stands for.
    pub replaced: Vec<MessageRange>,
    /// Tokens of the context before and after, as far as they are known.
    pub tokens: (Option<u64>, Option<u64>),
    /// Why.
    pub trigger: CompactionTrigger,
    /// The model that wrote the summary.
    pub model: Option<String>,
    /// What writing it used.
    pub usage: Option<Usage>,
}
