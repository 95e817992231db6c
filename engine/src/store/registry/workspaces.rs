//! How the workspaces of sessions stand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::storage::EntryKind;
use crate::store::{Home, WorkspaceHash, path_of_bytes};

/// How the workspace of a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkspaceState {
    /// The directory that the session was begun in is there.
    Present,
    /// It was attached to another directory, and that is there.
    Moved,
    /// Its directory is not there: it was removed, or moved and not attached yet, or is of another machine.
    Missing,
    /// Nothing says which directory it is.
    Unnamed,
    /// What `path.txt` names has another hash than the workspace: the file was changed, or directories of homes were mixed.
    Mismatched,
}

impl WorkspaceState {
    /// The state as one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Moved => "moved",
            Self::Missing => "missing",
            Self::Unnamed => "unnamed",
            Self::Mismatched => "mismatched",
        }
    }
}

/// The workspace of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootWorkspace {
    /// Which directory of the home the session is in.
    pub hash: WorkspaceHash,
    /// Where the workspace is now, as far as it is known: empty if it is not.
    pub path: PathBuf,
    /// Where it was when its first session was begun, if that is another place.
    pub begun: Option<PathBuf>,
    /// How it stands.
    pub state: WorkspaceState,
    /// What is wrong with it, and what to do.
    pub issue: Option<String>,
}

/// The workspaces of a home, each looked at once.
pub(super) struct Workspaces<'a> {
    home: &'a Home,
    recorded: BTreeMap<WorkspaceHash, Option<Vec<u8>>>,
    present: BTreeMap<PathBuf, bool>,
}

impl<'a> Workspaces<'a> {
    pub(super) fn new(home: &'a Home) -> Self {
        Self { home, recorded: BTreeMap::new(), present: BTreeMap::new() }
    }

    /// What `path.txt` says; `None` if it can't be read.
    pub(super) fn recorded(&mut self, hash: &WorkspaceHash) -> Option<&[u8]> {
        let home = self.home;
        self.recorded.entry(hash.clone()).or_insert_with(|| home.workspace_path(hash)).as_deref()
    }

    /// Whether a directory is there.
    fn is_present(&mut self, path: &Path) -> bool {
        if let Some(known) = self.present.get(path) {
            return *known;
        }
        let entry = self.home.storage.entry(path);
        let present = entry.is_ok_and(|entry| entry.is_some_and(|entry| entry.kind == EntryKind::Dir));
        self.present.insert(path.to_owned(), present);
        present
    }

    /// The workspace of a session of `hash` that was attached to `attached`.
    pub(super) fn of(&mut self, hash: &WorkspaceHash, attached: Option<&[u8]>) -> RootWorkspace {
        let recorded = self.recorded(hash).map(<[u8]>::to_vec);
        let begun = recorded.as_deref().filter(|bytes| !bytes.is_empty()).map(path_of_bytes);
        if let Some(attached) = attached.filter(|attached| recorded.as_deref() != Some(attached)) {
            return self.attached(hash, path_of_bytes(attached), begun);
        }
        let hash = hash.clone();
        let Some(path) = begun else {
            let issue = match recorded {
                None => Some("its path.txt is missing or can't be read"),
                // What an import of a session that names no directory makes.
                Some(_) if WorkspaceHash::of(Path::new("")) == hash => None,
                Some(_) => Some("its path.txt is empty"),
            };
            let issue = issue.map(|issue| format!("{issue}; {}", attach_it(&hash)));
            return RootWorkspace {
                hash,
                path: PathBuf::new(),
                begun: None,
                state: WorkspaceState::Unnamed,
                issue,
            };
        };
        let expected = WorkspaceHash::of(&path);
        let (state, issue) = if expected != hash {
            let found = path.display();
            let issue = format!("its path.txt names {found}, whose hash is {expected}; {}", attach_it(&hash));
            (WorkspaceState::Mismatched, Some(issue))
        } else if self.is_present(&path) {
            (WorkspaceState::Present, None)
        } else {
            (WorkspaceState::Missing, None)
        };
        RootWorkspace { hash, path, begun: None, state, issue }
    }

    fn attached(&mut self, hash: &WorkspaceHash, path: PathBuf, begun: Option<PathBuf>) -> RootWorkspace {
        let state = if self.is_present(&path) { WorkspaceState::Moved } else { WorkspaceState::Missing };
        RootWorkspace { hash: hash.clone(), path, begun, state, issue: None }
    }
}

fn attach_it(hash: &WorkspaceHash) -> String {
    format!("`logdump roots attach {hash} PATH` says where it is")
}
