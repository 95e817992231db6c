//! Records of memory as events of an archive, and back.

use serde::{Deserialize, Serialize};
use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{MemoryArchived, Role};
use sessionlog_codec::ids::Digest;

use super::record::{InvalidRecordId, MemoryKind, MemoryRecord, MemoryStatus, RecordId};

/// What [`MemoryArchived`] has no field for, as JSON. Unknown keys are left alone: a later version may add some.
#[derive(Serialize, Deserialize)]
struct Rest {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    tool: Option<String>,
    status: MemoryStatus,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    tags: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    artifacts: Vec<Digest>,
    text: String,
}

/// A record as the event that outlives its session.
#[must_use]
pub fn archived_of(record: &MemoryRecord) -> MemoryArchived {
    let rest = Rest {
        role: record.role,
        tool: record.tool.clone(),
        status: record.status,
        tags: record.tags.clone(),
        artifacts: record.artifacts.clone(),
        text: record.text.clone(),
    };
    MemoryArchived {
        record_id: record.id.to_string(),
        kind: record.kind.word().to_owned(),
        session_id: record.id.session,
        node: record.node,
        position: record.id.position,
        at: record.at,
        // A struct of texts and lists has no value that JSON can't hold.
        record: RawBytes(serde_json::to_vec(&rest).unwrap_or_default()),
    }
}

/// The record of an archive's event; `None` if it is not one that this version can read.
#[must_use]
pub fn record_of(archived: &MemoryArchived) -> Option<MemoryRecord> {
    let id: Result<RecordId, InvalidRecordId> = archived.record_id.parse();
    let id = id.ok().filter(|id| id.session == archived.session_id && id.position == archived.position)?;
    let rest: Rest = serde_json::from_slice(&archived.record.0).ok()?;
    Some(MemoryRecord {
        id,
        kind: MemoryKind::of_word(&archived.kind)?,
        node: archived.node,
        at: archived.at,
        role: rest.role,
        tool: rest.tool,
        status: rest.status,
        tags: rest.tags,
        artifacts: rest.artifacts,
        text: rest.text,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sessionlog_codec::ids::{NodeId, Position, SessionId, Timestamp};

    use super::*;

    fn record(text: &str, part: u32) -> MemoryRecord {
        MemoryRecord {
            id: RecordId { session: SessionId([7; 16]), position: Position(12), part },
            kind: MemoryKind::Result,
            node: NodeId(3),
            at: Timestamp(1_764_500_000_000_000),
            role: Some(Role::Tool),
            tool: Some("grep".to_owned()),
            status: MemoryStatus::NotStarted,
            tags: vec!["nightly".to_owned()],
            artifacts: vec![Digest([9; 32])],
            text: text.to_owned(),
        }
    }

    #[test]
    fn artifacts_are_64_hexadecimal_digits() {
        let json: serde_json::Value = serde_json::from_slice(&archived_of(&record("x", 0)).record.0).unwrap();
        assert_eq!(json["artifacts"][0], "09".repeat(32));
        assert_eq!(json["status"], "not_started");
        assert_eq!(json["role"], "tool");
    }

    #[test]
    fn what_contradicts_itself_is_no_record() {
        let sound = archived_of(&record("x", 1));
        assert!(record_of(&sound).is_some());
        for wrong in [
            MemoryArchived { session_id: SessionId([8; 16]), ..sound.clone() },
            MemoryArchived { position: Position(13), ..sound.clone() },
            MemoryArchived { kind: "dream".to_owned(), ..sound.clone() },
            MemoryArchived { record_id: "../../etc/passwd@1".to_owned(), ..sound.clone() },
            MemoryArchived { record: RawBytes(b"{".to_vec()), ..sound },
        ] {
            assert_eq!(record_of(&wrong), None);
        }
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = record("x", 2).id;
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string(), "07070707-0707-0707-0707-070707070707@12.2");
        for wrong in [
            "",
            "@",
            "x@1",
            "07070707-0707-0707-0707-070707070707@",
            "07070707-0707-0707-0707-070707070707@012",
            "07070707-0707-0707-0707-070707070707@12.0",
            "07070707-0707-0707-0707-070707070707@12.2.3",
        ] {
            assert_eq!(wrong.parse::<RecordId>(), Err(InvalidRecordId), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back(text in "\\PC{0,60}", part in 0_u32..5) {
            let record = record(&text, part);
            prop_assert_eq!(record_of(&archived_of(&record)), Some(record));
        }
    }
}
