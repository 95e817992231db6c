//! The registry of events: which number on the wire is which struct.
//!
//! Append only. A number is never reused and never changes its meaning; a new layout of an event gets the next schema
//! version and an upcaster. The enum below is made from this table, not the other way round, so reordering or renaming
//! it can't change a byte on disk.

use crate::error::{DecodeError, TooLarge};
use crate::event::{self, UnknownEvent};
use crate::ids::{Digest, KindNo, SchemaVersion};
use crate::payload;
use crate::raw::RawBytes;
use crate::record::Payload;

/// The schema version of no layout, ever: a record that carries it holds the bytes of a payload that did not decode as
/// what it claimed to be. A salvage gives it to such a record, so that every reader carries the bytes along.
pub const UNREADABLE: SchemaVersion = SchemaVersion(u16::MAX);

macro_rules! registry {
    ($($number:literal $name:literal v $version:literal $event:ident,)*) => {
        /// What happened. One variant for each event of this version, and two for what it can't read.
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
        pub enum Event {
            $(#[doc = concat!("`", $name, "`, kind ", $number, ".")] $event(event::$event),)*
            /// A kind or version of a newer writer, carried along byte for byte.
            Unknown(UnknownEvent),
            /// A payload that was erased on purpose.
            Erased {
                /// What the event was.
                kind: KindNo,
                /// Its payload's version.
                schema: SchemaVersion,
                /// The digest of its payload.
                digest: Digest,
            },
        }

        /// Every event of this version: number, name, current schema version.
        pub const EVENTS: &[(KindNo, &str, SchemaVersion)] = &[
            $((KindNo($number), $name, SchemaVersion($version)),)*
        ];

        /// The numbers by name.
        pub mod kind {
            use crate::ids::KindNo;
            $(#[doc = concat!("`", $name, "`.")]
            #[expect(non_upper_case_globals, reason = "named as the event's struct is")]
            pub const $event: KindNo = KindNo($number);)*
        }

        $(impl From<event::$event> for Event {
            fn from(event: event::$event) -> Self {
                Self::$event(event)
            }
        })*

        impl Event {
            /// The event's number and schema version on the wire.
            #[must_use]
            pub fn kind(&self) -> (KindNo, SchemaVersion) {
                match self {
                    $(Self::$event(_) => (KindNo($number), SchemaVersion($version)),)*
                    Self::Unknown(unknown) => (unknown.kind, unknown.schema),
                    Self::Erased { kind, schema, .. } => (*kind, *schema),
                }
            }

            /// Appends the encoded payload of an event to `out`. An unknown event gives back the bytes it came with. An erased
            /// one has none: it must not be appended as a new event, and no caller does.
            ///
            /// # Errors
            /// [`TooLarge`] if it is longer than [`PAYLOAD_LEN_MAX`](crate::limits::PAYLOAD_LEN_MAX): a part of it may then
            /// be in `out`.
            pub fn encode_into(&self, out: &mut Vec<u8>) -> Result<(), TooLarge> {
                match self {
                    $(Self::$event(event) => payload::encode_into(event, out),)*
                    Self::Unknown(unknown) => {
                        out.extend_from_slice(&unknown.payload.0);
                        Ok(())
                    }
                    Self::Erased { .. } => Ok(()),
                }
            }

            fn decode_known(kind: KindNo, schema: SchemaVersion, bytes: &[u8]) -> Option<Result<Self, DecodeError>> {
                match (kind.0, schema.0) {
                    $(($number, $version) => Some(payload::decode(bytes).map(Self::$event)),)*
                    _ => None,
                }
            }
        }
    };
}

registry! {
    1 "session.created" v 1 SessionCreated,
    2 "session.opened" v 1 SessionOpened,
    3 "session.titled" v 1 SessionTitled,
    4 "session.tagged" v 1 SessionTagged,
    5 "session.finished" v 1 SessionFinished,
    6 "session.closed" v 1 SessionClosed,
    7 "session.forked" v 1 SessionForked,
    10 "run.started" v 1 RunStarted,
    11 "turn.started" v 1 TurnStarted,
    12 "turn.ended" v 1 TurnEnded,
    20 "message.appended" v 1 MessageAppended,
    21 "message.extended" v 1 MessageExtended,
    22 "message.withdrawn" v 1 MessageWithdrawn,
    30 "call.started" v 1 CallStarted,
    31 "call.finished" v 1 CallFinished,
    32 "call.resolved" v 1 CallResolved,
    40 "context.compacted" v 1 ContextCompacted,
    41 "context.trimmed" v 1 ContextTrimmed,
    42 "context.reset" v 1 ContextReset,
    43 "head.moved" v 1 HeadMoved,
    44 "checkpoint.referenced" v 1 CheckpointReferenced,
    50 "replay.attached" v 1 ReplayAttached,
    51 "affinity.set" v 1 AffinitySet,
    52 "affinity.cleared" v 1 AffinityCleared,
    53 "usage.recorded" v 1 UsageRecorded,
    60 "node.opened" v 1 NodeOpened,
    61 "node.bound" v 1 NodeBound,
    62 "node.settled" v 1 NodeSettled,
    63 "node.deleted" v 1 NodeDeleted,
    70 "task.started" v 1 TaskStarted,
    71 "task.completed" v 1 TaskCompleted,
    80 "plan.approved" v 1 PlanApproved,
    81 "plan.advanced" v 1 PlanAdvanced,
    82 "plan.fact" v 1 PlanFact,
    83 "plan.resumed" v 1 PlanResumed,
    84 "plan.discarded" v 1 PlanDiscarded,
    85 "plan.completed" v 1 PlanCompleted,
    90 "question.asked" v 1 QuestionAsked,
    91 "question.answered" v 1 QuestionAnswered,
    92 "command.received" v 1 CommandReceived,
    93 "command.applied" v 1 CommandApplied,
    94 "change.recorded" v 1 ChangeRecorded,
    100 "learn.segment_closed" v 1 LearnSegmentClosed,
    101 "learn.job_started" v 1 LearnJobStarted,
    102 "learn.slot_pending" v 1 LearnSlotPending,
    103 "learn.slot_done" v 1 LearnSlotDone,
    104 "learn.committed" v 1 LearnCommitted,
    110 "redacted" v 1 Redacted,
    111 "import.started" v 1 ImportStarted,
    112 "imported.raw" v 1 ImportedRaw,
    113 "gap.marked" v 1 GapMarked,
    114 "host.event" v 1 HostEvent,
    200 "tree.registered" v 1 TreeRegistered,
    201 "tree.deleted" v 1 TreeDeleted,
    202 "memory.archived" v 1 MemoryArchived,
    203 "learning.switched" v 1 LearningSwitched,
    204 "artifact.put" v 1 ArtifactPut,
    205 "artifact.dropped" v 1 ArtifactDropped,
    206 "lease.granted" v 1 LeaseGranted,
    207 "lease.released" v 1 LeaseReleased,
    208 "gc.ran" v 1 GcRan,
    209 "vector.attached" v 1 VectorAttached,
    300 "root.registered" v 1 RootRegistered,
    301 "root.unregistered" v 1 RootUnregistered,
    310 "proposition.submitted" v 1 PropositionSubmitted,
    311 "proposition.decided" v 1 PropositionDecided,
    312 "proposition.applied" v 1 PropositionApplied,
    313 "proposition.failed" v 1 PropositionFailed,
    314 "proposition.deleted" v 1 PropositionDeleted,
}

/// An event's name by its number; `None` for one that this version does not know.
#[must_use]
pub fn name_of(kind: KindNo) -> Option<&'static str> {
    EVENTS.iter().find(|(number, ..)| *number == kind).map(|(_, name, _)| *name)
}

/// An event's number by its name.
#[must_use]
pub fn kind_named(name: &str) -> Option<KindNo> {
    EVENTS.iter().find(|(_, known, _)| *known == name).map(|(number, ..)| *number)
}

impl Event {
    /// The event's name, as in the registry.
    #[must_use]
    pub fn name(&self) -> &'static str {
        name_of(self.kind().0).unwrap_or("unknown")
    }

    /// Encodes the payload of an event.
    ///
    /// # Errors
    /// As [`encode_into`](Self::encode_into).
    pub fn encode(&self) -> Result<Vec<u8>, TooLarge> {
        let mut out = Vec::new();
        self.encode_into(&mut out)?;
        Ok(out)
    }

    /// Decodes a payload. A kind or version that this version does not know becomes [`Event::Unknown`], never an error.
    ///
    /// # Errors
    /// `Corrupt` if the payload of a known event does not decode, every byte of it.
    pub fn decode(kind: KindNo, schema: SchemaVersion, payload: Payload<'_>) -> Result<Self, DecodeError> {
        let bytes = match payload {
            Payload::Present(bytes) => bytes,
            Payload::Redacted(digest) => return Ok(Self::Erased { kind, schema, digest }),
        };
        Self::decode_known(kind, schema, bytes).unwrap_or_else(|| {
            Ok(Self::Unknown(UnknownEvent { kind, schema, payload: RawBytes(bytes.to_vec()) }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique_and_ascending() {
        for pair in EVENTS.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{:?} before {:?}", pair[0], pair[1]);
        }
        for (number, name, version) in EVENTS {
            assert_eq!(kind_named(name), Some(*number));
            assert_eq!(name_of(*number), Some(*name));
            assert!(version.0 >= 1);
        }
    }

    #[test]
    fn an_unknown_event_keeps_its_bytes() {
        let bytes = b"from the future";
        for (kind, schema) in [(KindNo(9_999), SchemaVersion(1)), (kind::MessageAppended, SchemaVersion(99))]
        {
            let event = Event::decode(kind, schema, Payload::Present(bytes)).unwrap();
            assert!(matches!(event, Event::Unknown(_)));
            assert_eq!(event.kind(), (kind, schema));
            assert_eq!(event.encode().unwrap(), bytes);
        }
    }
}
