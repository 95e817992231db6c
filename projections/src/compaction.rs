//! Compaction: when the context of a conversation has to shrink, what a summary may stand for, and the event for it.
//!
//! The numbers and rules are those of q (its study, section 2). Everything here is a pure function of the log, so
//! a plan made after a restart is the plan that would have been made before it.
//!
//! 1. [`need`] predicts the prompt's tokens. It is [due](Need::Due) at 85 % of the window; without a known window it
//!    never is.
//! 2. [`plan`] splits the context into what stays and what the summariser reads ([`Plan::source`]). A call is never
//!    parted from its results. Nothing is written.
//! 3. The host has the source summarised, without tools and without the provider's old conversation id.
//! 4. [`accept`] checks the summary, and the plan against the log as it is by then, and makes the one event. A host that
//!    dies earlier, gets no summary, or has it [rejected](Rejected), has appended nothing: the context is the old one.
//!
//! After the append the context is: the system and developer messages that the run begins with; the summary; the kept
//! messages with their results, verbatim and in order, and whatever was appended between plan and event. The
//! transcript is as before. The host then appends `affinity.cleared`, since a provider that continues a conversation of
//! its own would go on with the old context.
//!
//! ```
//! use sessionlog_codec::event::{CompactionTrigger, LoggedEvent, MessageAppended, Role};
//! use sessionlog_codec::ids::{MessageNo, NodeId, Position, Timestamp};
//! use sessionlog_codec::record::TimeOrigin;
//! use sessionlog_projections::compaction::{
//!     Attempt, Calibration, Need, Pinned, Policy, SummaryRole, accept, need, plan,
//! };
//! use sessionlog_projections::{ContextOrigin, Projection, TreeState};
//!
//! fn logged(position: u64, event: impl Into<sessionlog_codec::event::Event>) -> LoggedEvent {
//!     LoggedEvent {
//!         position: Position(position),
//!         node: NodeId::ROOT,
//!         timestamp: Timestamp(0),
//!         time_origin: TimeOrigin::Clock,
//!         cause: None,
//!         event: event.into(),
//!     }
//! }
//!
//! let mut tree = TreeState::default();
//! for number in 1..=40 {
//!     let role = if number % 2 == 1 { Role::User } else { Role::Assistant };
//!     tree.apply(&logged(number, MessageAppended::text(MessageNo(number), role, "all work, no play ".repeat(20))));
//! }
//! let (calibration, policy) = (Calibration::default(), Policy::default());
//! let (context, window) = (tree.context(NodeId::ROOT), Some(6_000));
//! assert!(matches!(need(&context, &calibration.of(NodeId::ROOT), window, &policy), Need::Due { .. }));
//!
//! let plan = plan(&tree, NodeId::ROOT, &Pinned::default(), &calibration, window, &policy)?;
//! // ... `plan.source` goes to a model, which is given `plan.output_budget` tokens for its answer ...
//! let attempt = Attempt {
//!     compaction_id: "c1".into(),
//!     role: SummaryRole::User,
//!     trigger: CompactionTrigger::Auto,
//!     model: None,
//!     usage: None,
//! };
//! let event = accept(&plan, &tree, "They worked and did not play.", attempt)?;
//! tree.apply(&logged(41, event));
//! let context = tree.context(NodeId::ROOT);
//! assert_eq!(context[0].origin, ContextOrigin::Summary);
//! assert_eq!(context.last().and_then(|message| message.message_no), Some(MessageNo(40)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accept;
mod calibration;
mod estimate;
mod inputs;
mod need;
mod pinned;
mod plan;
mod policy;
mod ranges;
mod units;

pub use self::accept::{Attempt, Rejected, SUMMARY_HEADING, SummaryRole, accept};
pub use self::calibration::{Calibration, NodeCalibration};
pub use self::estimate::{Predicted, estimate_tokens};
pub use self::inputs::{Inputs, PLANNER};
pub use self::need::{Need, need};
pub use self::pinned::{Pinned, RunningChildren};
pub use self::plan::{Plan, PlanError, plan};
pub use self::policy::{NewestRequest, OversizedTail, Policy, Share, TargetGrowth};
pub use self::units::{Kept, Reason};

/// The sections that a summary should have, in order, for the host's prompt (q's design document of compaction).
/// [`accept`] takes any text that is not empty.
pub const SUMMARY_SECTIONS: [&str; 7] = [
    "User goals",
    "Confirmed decisions",
    "Current state",
    "Important files, identifiers and exact values",
    "Constraints",
    "Unresolved work",
    "Recent outcomes and errors",
];
