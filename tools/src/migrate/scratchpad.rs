//! recursive's scratchpad: the working memory of a workspace. It belongs to no session, so it becomes one: of one file, with a
//! `host.event` for what it says.

use std::path::Path;
use std::time::UNIX_EPOCH;

use sessionlog::codec::ids::Timestamp;

use super::find::Found;
use crate::import::{FileRole, SessionFacts, SourceFile, SourceFormat, SourceSession, session_id};

/// The session that a scratchpad becomes: one for each workspace, whatever the file says at the time.
pub(super) fn found(path: &Path, workspace: Option<Vec<u8>>) -> Option<Found> {
    let metadata = path.symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
    let format = SourceFormat::RecursiveScratchpad;
    let of = workspace.clone().unwrap_or_else(|| path.as_os_str().as_encoded_bytes().to_vec());
    let hash: String = blake3::hash(&of).to_hex().chars().take(12).collect();
    let id = format!("scratchpad-{hash}");
    let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let began = since.and_then(|since| i64::try_from(since.as_micros()).ok()).map(Timestamp);
    let file = SourceFile {
        path: path.to_owned(),
        label: "scratchpad.json".to_owned(),
        role: FileRole::Scratchpad,
        len: metadata.len(),
    };
    let source = SourceSession {
        format,
        session_id: session_id(format.agent(), &id),
        agent_session_id: id,
        files: vec![file],
        facts: SessionFacts { began, ..SessionFacts::default() },
    };
    Some(Found { source, workspace, own_dir: None, twin_of: None })
}
