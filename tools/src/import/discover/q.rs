//! Puts q's files together: the directory of a root, with one below it for each delegate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sessionlog_codec::ids::SessionId;
use sessionlog_projections::views::q::{
    AGENT, DELEGATIONS_FILE, PLAN_FILE, SESSION_FILE, STATE_FILE, is_valid_id,
};

use super::{FileRole, Looked, QPart, SourceFormat, SourceSession, note, tell_apart};
use crate::import::loose::session_id;
use crate::import::report::Note;
use crate::import::sniff::FileKind;

/// The directory of a conversation's delegates.
const DELEGATES: &str = "delegates";
/// How deep delegates are looked for: q itself stops at 4.
const DEPTH_MAX: usize = 64;

/// A file of a session.
struct Member<'a> {
    /// The ids of the delegates on the way to it.
    delegate: Vec<String>,
    part: QPart,
    looked: &'a Looked,
}

pub(super) fn sessions(looked_at: &[Looked], notes: &mut Vec<Note>) -> Vec<SourceSession> {
    let is_session = |looked: &&Looked| looked.is(FileKind::QSession);
    let mut roots: BTreeMap<&Path, Vec<Member<'_>>> = BTreeMap::new();
    let mut places = BTreeSet::new();
    for looked in looked_at.iter().filter(|looked| looked.name() == SESSION_FILE) {
        places.insert(looked.directory());
        if is_session(&looked) {
            roots.insert(looked.directory(), Vec::new());
        }
    }
    let mut delegates = Vec::new();
    for looked in looked_at {
        let Some(part) = part_of(looked.name()) else { continue };
        let Some((root, ids)) = root_of(looked.directory(), &places) else { continue };
        let is_delegate = !ids.is_empty() && looked.is(FileKind::QSession);
        if is_delegate {
            delegates.push(looked.file.path.as_path());
        }
        let files = roots.get_mut(root);
        if let Some(id) = ids.iter().find(|id| !is_valid_id(id)).filter(|_| files.is_some()) {
            let text = format!("is below {id:?}, which is no id of a delegation: skipped");
            note(notes, &looked.file.label, text);
        } else if let Some(files) = files {
            files.push(Member { delegate: ids, part, looked });
        } else if is_delegate {
            let text = "is a delegate of a session whose own file is none of q's any more: skipped";
            note(notes, &looked.file.label, text);
        }
    }
    let mains = looked_at
        .iter()
        .filter(is_session)
        .filter(|looked| !delegates.contains(&looked.file.path.as_path()))
        .map(|looked| (id_of(looked), looked));
    let mut sessions = Vec::new();
    for (id, main) in tell_apart(mains.collect(), notes) {
        let others = match main.name() {
            SESSION_FILE => roots.remove(main.directory()).unwrap_or_default(),
            _ => Vec::new(),
        };
        sessions.push(session(id, main, others));
    }
    sessions
}

fn part_of(name: &str) -> Option<QPart> {
    match name {
        SESSION_FILE => Some(QPart::Session),
        DELEGATIONS_FILE => Some(QPart::Delegations),
        STATE_FILE => Some(QPart::State),
        PLAN_FILE => Some(QPart::Plan),
        _ => None,
    }
}

/// The root that a directory belongs to, and the ids of the delegates on the way down. The outermost session file counts,
/// so that no delegate is taken for a root because a file above it is damaged.
fn root_of<'a>(directory: &'a Path, places: &BTreeSet<&Path>) -> Option<(&'a Path, Vec<String>)> {
    let mut ids: Vec<String> = Vec::new();
    let mut found = None;
    let mut at = directory;
    loop {
        if places.contains(at) {
            found = Some((at, ids.len()));
        }
        let delegates = at.parent().filter(|it| it.file_name().is_some_and(|name| name == DELEGATES));
        let Some(parent) = delegates.and_then(Path::parent).filter(|_| ids.len() < DEPTH_MAX) else { break };
        ids.push(at.file_name().unwrap_or_default().to_string_lossy().into_owned());
        at = parent;
    }
    let (root, depth) = found?;
    ids.truncate(depth);
    ids.reverse();
    Some((root, ids))
}

/// The session's own id: what its file says, else its directory's name, else its run.
fn id_of(looked: &Looked) -> String {
    let directory = looked.directory().file_name().map(|name| name.to_string_lossy().into_owned());
    let directory = directory.filter(|name| name.parse::<SessionId>().is_ok());
    let run = looked.sniffed.stream_session_id.as_deref();
    let run = run.map(|run| run.strip_prefix("run-").unwrap_or(run).to_owned());
    let own = looked.sniffed.session_id.clone();
    own.or(directory).or(run).unwrap_or_else(|| format!("{}-{}", looked.stem(), looked.mark()))
}

fn session(id: String, main: &Looked, mut others: Vec<Member<'_>>) -> SourceSession {
    let role = |delegate: Vec<String>, part| FileRole::Q { delegate, part };
    let mut files = vec![main.file.as_role(role(Vec::new(), QPart::Session))];
    others.sort_by(|a, b| (&a.delegate, a.part).cmp(&(&b.delegate, b.part)));
    others.retain(|member| member.looked.file.path != main.file.path);
    files.extend(others.into_iter().map(|it| it.looked.file.as_role(role(it.delegate, it.part))));
    SourceSession {
        format: SourceFormat::QSession,
        session_id: session_id(AGENT, &id),
        agent_session_id: id,
        files,
        facts: main.sniffed.facts.clone(),
    }
}
