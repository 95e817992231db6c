//! Attaching the sessions of a workspace that was moved to the place where it is now.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sessionlog_codec::event::{Event, RootRegistered, RootUnregistered};
use sessionlog_codec::ids::SessionId;

use super::workspaces::Workspaces;
use super::{Registrations, registrations, scan};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::EntryKind;
use crate::store::shared_log::Caught;
use crate::store::{Home, SessionPlace, Store, StoreReader, WorkspaceHash, canonical, path_of_bytes};

/// What a workspace is called by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkspaceName {
    /// Its directory in the home: the sessions that were begun in one place, wherever they are attached now.
    Hash(WorkspaceHash),
    /// The path that sessions are shown under now: those that were begun there, and those that were attached there.
    Path(PathBuf),
}

/// A session whose workspace is somewhere else now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reattached {
    /// The session.
    pub session: SessionId,
    /// Where its workspace was, as far as it is known: empty if it is not.
    pub from: PathBuf,
}

/// What attaching a workspace to a path changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reattachment {
    /// Where the workspace is now.
    pub to: PathBuf,
    /// The sessions that are shown under another path from then on.
    pub sessions: Vec<Reattached>,
    /// How many are attached there already.
    pub already: usize,
}

impl StoreReader {
    /// What [`Store::reattach`] would change.
    ///
    /// # Errors
    /// As it; `Locked` and `Full` are not among them.
    pub fn reattachment(&self, from: &WorkspaceName, to: &Path) -> Result<Reattachment> {
        let found = Found::new(&self.home, from, to)?;
        let known = registrations(&self.home)?;
        found.reattachment(&known)
    }
}

impl Store {
    /// Says that a workspace is somewhere else now. Its sessions stay where they are in the home, and are shown under the new
    /// path from then on. Sessions that are begun at the new path are shown with them, and have a directory of their own in
    /// the home. Hidden ones stay hidden. What is attached there already is left alone, so it can be repeated.
    ///
    /// Durable when it returns: all of it, in one frame.
    ///
    /// # Errors
    /// `NotFound` if no session is of that workspace; `Invalid` if `to` is no directory; `Locked` if another process holds
    /// the user's log for too long; `Corrupt` if that is hurt; `Io` or `Full` if it can't be written.
    pub fn reattach(&self, from: &WorkspaceName, to: &Path) -> Result<Reattachment> {
        let found = Found::new(&self.inner.home, from, to)?;
        self.registrations_log().transact(&mut Caught::default(), |known: &Registrations| {
            let reattachment = found.reattachment(known)?;
            Ok((events(known, &reattachment), reattachment))
        })
    }

    /// As [`reattach`](Self::reattach), of one session, to a path by its bytes. It need not be a directory of this machine.
    ///
    /// Durable when it returns.
    ///
    /// # Errors
    /// `NotFound` if there is no such session; else as [`reattach`](Self::reattach).
    pub fn reattach_session(&self, session: SessionId, to: &[u8]) -> Result<Reattachment> {
        let place = self.known_root(session)?;
        let found = Found::of(&self.inner.home, vec![place], path_of_bytes(to), None);
        self.registrations_log().transact(&mut Caught::default(), |known: &Registrations| {
            let reattachment = found.reattachment(known)?;
            Ok((events(known, &reattachment), reattachment))
        })
    }
}

/// The events of a reattachment. What was hidden is hidden again: a registration alone would list it.
fn events(known: &Registrations, reattachment: &Reattachment) -> Vec<Event> {
    let to = reattachment.to.as_os_str().as_encoded_bytes();
    let mut events: Vec<Event> = Vec::new();
    for Reattached { session, .. } in &reattachment.sessions {
        events.push(RootRegistered { session_id: *session, workspace: to.to_vec().into() }.into());
        if let Some(hidden) = known.hidden.get(session) {
            let reason = hidden.reason.clone();
            events.push(RootUnregistered { session_id: *session, reason }.into());
        }
    }
    events
}

/// The sessions that may be meant, and where they were begun.
struct Found {
    places: Vec<SessionPlace>,
    begun: BTreeMap<WorkspaceHash, Vec<u8>>,
    /// How the path may be spelled under which they are shown now, if that decides.
    under: Option<Vec<PathBuf>>,
    to: PathBuf,
}

impl Found {
    fn new(home: &Home, from: &WorkspaceName, to: &Path) -> Result<Self> {
        let to = canonical(to);
        let entry = home.storage.entry(&to).map_err(|e| Error::io("looking at", &to, e))?;
        if entry.is_none_or(|entry| entry.kind != EntryKind::Dir) {
            let message = format!("{} is not a directory, so no workspace can be there", to.display());
            return Err(Error::invalid("workspace.missing", message));
        }
        let (mut places, _) = scan(home)?;
        let under = match from {
            WorkspaceName::Hash(hash) => {
                places.retain(|place| place.workspace == *hash);
                None
            }
            // A path that is gone can't be looked up any more, so it may have to be what was written down.
            WorkspaceName::Path(path) => Some(vec![path.clone(), canonical(path)]),
        };
        if places.is_empty() {
            return Err(nothing(from));
        }
        let found = Self::of(home, places, to, under);
        Ok(found)
    }

    fn of(home: &Home, places: Vec<SessionPlace>, to: PathBuf, under: Option<Vec<PathBuf>>) -> Self {
        let mut workspaces = Workspaces::new(home);
        let mut begun = BTreeMap::new();
        for place in &places {
            let path = workspaces.recorded(&place.workspace).unwrap_or_default();
            begun.entry(place.workspace.clone()).or_insert_with(|| path.to_vec());
        }
        Self { places, begun, under, to }
    }

    fn reattachment(&self, known: &Registrations) -> Result<Reattachment> {
        let (mut sessions, mut already) = (Vec::new(), 0_usize);
        for place in &self.places {
            let begun = self.begun.get(&place.workspace).map(Vec::as_slice).unwrap_or_default();
            let from = path_of_bytes(known.attached(place.id).unwrap_or(begun));
            let is_there = from == self.to;
            // Of what was attached before by the same request, nothing is under the old path any more.
            let is_meant = |under: &Vec<PathBuf>| {
                under.contains(&from) || (is_there && under.contains(&path_of_bytes(begun)))
            };
            if !self.under.as_ref().is_none_or(is_meant) {
                continue;
            }
            if is_there {
                already = already.saturating_add(1);
            } else {
                sessions.push(Reattached { session: place.id, from });
            }
        }
        if let Some(path) = self.under.as_ref().and_then(|under| under.first())
            && sessions.is_empty()
            && already == 0
        {
            return Err(nothing(&WorkspaceName::Path(path.clone())));
        }
        sessions.sort_by_key(|reattached| reattached.session);
        Ok(Reattachment { to: self.to.clone(), sessions, already })
    }
}

fn nothing(from: &WorkspaceName) -> Error {
    let what = match from {
        WorkspaceName::Hash(hash) => format!("in the workspace {hash}"),
        WorkspaceName::Path(path) => format!("under the path {}", path.display()),
    };
    let message = format!("no session is {what}; `logdump roots --all` shows the paths and hashes there are");
    Error::new(ErrorKind::NotFound, "workspace.unknown", message)
}
