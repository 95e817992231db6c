//! The roots of all workspaces in one list.
//!
//! What there is, the directory of the home says: there is no second list that could disagree with it. The user's log says
//! only what a directory can't: where the workspace of a session is now, if it was moved (`root.registered`), and which
//! sessions somebody does not want to see (`root.unregistered`). The newest of them counts for each session.
//!
//! A workspace that was moved keeps its directory in the home, which is named by the hash of its old path. Sessions that
//! are begun at the new path get a directory of their own, by the hash of that. Both are shown under the new path: the hash
//! is where a session is, the path is what it belongs to.

mod attach;
mod workspaces;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sessionlog_codec::event::{Event, LoggedEvent, RootRegistered, RootUnregistered};
use sessionlog_codec::ids::{KindNo, SessionId, Timestamp};
use sessionlog_codec::registry::kind;

pub use attach::{Reattached, Reattachment, WorkspaceName};
pub use workspaces::{RootWorkspace, WorkspaceState};

use super::listing::{SessionKind, SessionRow, text_of};
use super::shared_log::{Caught, SharedFold, SharedLog};
use super::{DeletedTrees, Home, SessionPlace, Store, StoreReader, WorkspaceHash, not_found, path_of_bytes};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::storage::EntryKind;
use workspaces::Workspaces;

/// What the user's log says of roots.
#[derive(Clone, Debug, Default)]
pub(super) struct Registrations {
    attached: BTreeMap<SessionId, Vec<u8>>,
    hidden: BTreeMap<SessionId, Hidden>,
}

impl Registrations {
    /// The path that the workspace of a session was attached to, if it was.
    pub(super) fn attached(&self, session: SessionId) -> Option<&[u8]> {
        self.attached.get(&session).map(Vec::as_slice)
    }

    /// The paths that workspaces were attached to, as text.
    pub(super) fn texts(&self) -> BTreeMap<SessionId, String> {
        self.attached.iter().map(|(session, path)| (*session, text_of(path))).collect()
    }
}

impl SharedFold for Registrations {
    const KINDS: &'static [KindNo] = &[kind::RootRegistered, kind::RootUnregistered];

    fn apply(&mut self, event: &LoggedEvent) {
        match &event.event {
            Event::RootRegistered(RootRegistered { session_id, workspace }) => {
                self.hidden.remove(session_id);
                self.attached.insert(*session_id, workspace.0.clone());
            }
            Event::RootUnregistered(RootUnregistered { session_id, reason }) => {
                let hidden = Hidden { reason: reason.clone(), since: event.timestamp };
                self.hidden.insert(*session_id, hidden);
            }
            _ => {}
        }
    }
}

/// Why a root is not listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// The reason that was given, for people.
    pub reason: String,
    /// When it was hidden.
    pub since: Timestamp,
}

/// One root session of a home.
#[derive(Clone, Debug)]
pub struct RootRow {
    /// The session. Its `workspace` is the text of [`RootWorkspace::path`].
    pub session: SessionRow,
    /// Its workspace, and how that stands.
    pub workspace: RootWorkspace,
    /// Why it is not to be listed, if it is not.
    pub hidden: Option<Hidden>,
}

/// Something of a home that should be a workspace, a session or the user's log, and can't be read as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootIssue {
    /// What it is, as a path below the home.
    pub place: String,
    /// What is wrong with it, and what to do.
    pub issue: String,
}

/// The roots of a home.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    /// Every root session, the newest activity first; hidden and broken ones are among them.
    pub rows: Vec<RootRow>,
    /// What could not be listed as a session.
    pub issues: Vec<RootIssue>,
}

/// Whether a registration changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Registered {
    /// It is so now. Durable.
    Now,
    /// It was so before; nothing was written.
    Already,
}

impl StoreReader {
    /// The root sessions of all workspaces of the home, hidden ones included, with how their workspaces stand. A session or a
    /// workspace that can't be read is a row or an issue; it keeps nothing else from being listed.
    ///
    /// Where registrations can't be read, each session is shown where it was begun, and none is hidden; that is an issue,
    /// too.
    ///
    /// # Errors
    /// `Io` if the home itself can't be read.
    pub fn roots(&self) -> Result<Roots> {
        let (places, issues) = scan(&self.home)?;
        let rows = self.list_of(&places);
        Ok(self.roots_of(&places, rows, issues))
    }

    /// Whether a session was deleted from the workspace of this path: its id is not used again there.
    ///
    /// # Errors
    /// `Corrupt` if the workspace's log is hurt; `Unsupported` if a newer version wrote there; `Io`.
    pub fn was_deleted(&self, workspace: &[u8], session: SessionId) -> Result<bool> {
        let hash = WorkspaceHash::of(&path_of_bytes(workspace));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let mut deleted = Caught::<DeletedTrees>::default();
        SharedLog::of_workspace(&self.home, &clock, &hash).catch_up(&mut deleted)?;
        Ok(deleted.get().has(session))
    }

    fn roots_of(&self, places: &[SessionPlace], rows: Vec<SessionRow>, mut issues: Vec<RootIssue>) -> Roots {
        let registrations = match registrations(&self.home) {
            Ok(registrations) => registrations,
            Err(error) => {
                let issue = format!("{error}; sessions are shown where they were begun, hidden ones too");
                issues.push(RootIssue { place: "user/log".to_owned(), issue });
                Registrations::default()
            }
        };
        let mut workspaces = Workspaces::new(&self.home);
        // The same id may be in two workspaces, if somebody copied directories by hand.
        let mut hashes: BTreeMap<SessionId, Vec<WorkspaceHash>> = BTreeMap::new();
        for place in places {
            hashes.entry(place.id).or_default().push(place.workspace.clone());
        }
        let mut roots = Vec::new();
        for mut session in rows.into_iter().filter(|row| row.kind == SessionKind::Root) {
            let attached = registrations.attached(session.root);
            let Some(left) = hashes.get_mut(&session.root).filter(|left| !left.is_empty()) else { continue };
            let is_it = |hash| text_of_path(&workspaces.of(hash, attached).path) == session.workspace;
            let nth = if left.len() == 1 { 0 } else { left.iter().position(is_it).unwrap_or(0) };
            let workspace = workspaces.of(&left.swap_remove(nth), attached);
            session.workspace = text_of_path(&workspace.path);
            let hidden = registrations.hidden.get(&session.root).cloned();
            roots.push(RootRow { session, workspace, hidden });
        }
        Roots { rows: roots, issues }
    }
}

impl Store {
    /// As [`StoreReader::roots`], with the catalog's help: see [`Store::list`].
    ///
    /// # Errors
    /// `Io` if the home itself can't be read.
    pub fn roots(&self) -> Result<Roots> {
        let reader = self.reader();
        let (places, issues) = scan(&reader.home)?;
        let rows = self.list_places(&places);
        Ok(reader.roots_of(&places, rows, issues))
    }

    /// Hides a root from lists of roots. Nothing else about it changes: it is found by its id, resumed, and listed by
    /// [`Store::list`] as before.
    ///
    /// Durable when it returns.
    ///
    /// # Errors
    /// `NotFound` if there is no such session; `Locked` if another process holds the user's log for too long; `Corrupt` if
    /// that is hurt; `Io` or `Full` if it can't be written.
    pub fn unregister(&self, session: SessionId, reason: &str) -> Result<Registered> {
        self.known_root(session)?;
        let event = RootUnregistered { session_id: session, reason: reason.to_owned() };
        self.registrations_log().transact(&mut Caught::default(), |known: &Registrations| {
            Ok(if known.hidden.contains_key(&session) {
                (Vec::new(), Registered::Already)
            } else {
                (vec![event.into()], Registered::Now)
            })
        })
    }

    /// Lists a root again that was hidden.
    ///
    /// Durable when it returns.
    ///
    /// # Errors
    /// As [`unregister`](Self::unregister).
    pub fn register(&self, session: SessionId) -> Result<Registered> {
        let place = self.known_root(session)?;
        let recorded = self.inner.home.workspace_path(&place.workspace).unwrap_or_default();
        self.registrations_log().transact(&mut Caught::default(), |known: &Registrations| {
            if !known.hidden.contains_key(&session) {
                return Ok((Vec::new(), Registered::Already));
            }
            let workspace = known.attached(session).map_or(recorded, <[u8]>::to_vec);
            let event = RootRegistered { session_id: session, workspace: workspace.into() };
            Ok((vec![event.into()], Registered::Now))
        })
    }

    fn known_root(&self, session: SessionId) -> Result<SessionPlace> {
        self.inner.home.find(session)?.ok_or_else(|| not_found(&session.to_string()))
    }

    fn registrations_log(&self) -> SharedLog {
        SharedLog::of_user(&self.inner.home, &self.inner.clock)
    }
}

/// What the user's log says of roots now; nothing, if there is no such log.
pub(super) fn registrations(home: &Home) -> Result<Registrations> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut caught = Caught::<Registrations>::default();
    SharedLog::of_user(home, &clock).catch_up(&mut caught)?;
    Ok(caught.get().clone())
}

impl Home {
    /// The workspace that work on a session goes on in: where it was attached, else where it was begun.
    pub(crate) fn workspace_now(&self, place: &SessionPlace) -> (WorkspaceHash, Vec<u8>) {
        let known = registrations(self).unwrap_or_default();
        match known.attached(place.id) {
            Some(path) => (WorkspaceHash::of(&path_of_bytes(path)), path.to_vec()),
            None => (place.workspace.clone(), self.workspace_path(&place.workspace).unwrap_or_default()),
        }
    }
}

/// Where every session is; and what is in the place of one, or of a workspace, and can't be.
fn scan(home: &Home) -> Result<(Vec<SessionPlace>, Vec<RootIssue>)> {
    let (mut places, mut issues) = (Vec::new(), Vec::new());
    for entry in home.list_workspaces()? {
        let name = entry.name.to_string_lossy().into_owned();
        let place = format!("workspaces/{name}");
        let hash = entry.name.to_str().and_then(WorkspaceHash::parse);
        let Some(hash) = hash.filter(|_| entry.kind == EntryKind::Dir) else {
            let issue = "it is not the directory of a workspace, so nothing in it is listed";
            issues.push(RootIssue { place, issue: issue.to_owned() });
            continue;
        };
        match home.list_sessions(&hash) {
            Ok(entries) => {
                for entry in entries {
                    let id = entry.name.to_str().and_then(|name| name.parse::<SessionId>().ok());
                    let Some(id) = id else { continue };
                    if entry.kind == EntryKind::Dir {
                        places.push(home.place(hash.clone(), id));
                    } else {
                        let place = format!("{place}/sessions/{id}");
                        let issue = "it is not a directory (links inside a home are not followed)";
                        issues.push(RootIssue { place, issue: issue.to_owned() });
                    }
                }
            }
            Err(error) => issues.push(RootIssue { place, issue: unlistable(&error) }),
        }
    }
    Ok((places, issues))
}

fn text_of_path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn unlistable(error: &Error) -> String {
    format!("its sessions can't be listed: {error}")
}
