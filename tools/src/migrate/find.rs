//! Finds what is to be migrated: the directories that older agents keep in a workspace, and what is in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sessionlog::WorkspaceHash;
use sessionlog::codec::ids::SessionId;
use sessionlog::projections::time::parse_rfc3339;
use sessionlog::projections::views::q::{AGENT, PLAN_FILE, PlanFile, SESSION_FILE};
use sessionlog::store::canonical;

use super::scratchpad;
use super::unread::why_unread;
use crate::import::{
    DiscoverError, FileRole, Note, QPart, SessionFacts, SourceFile, SourceFormat, SourceSession, discover,
    session_id,
};
use crate::output::text::count;

/// Directories that hold no sessions, and much else.
const SKIPPED: &[&str] = &[".git", "node_modules", "shadow-git"];
/// What marks a home of ours.
const HOME_MARKER: &str = ".sessionlog";
/// How deep directories are searched.
const DEPTH_MAX: usize = 64;
/// The longest `path.txt` and plan that are read, in bytes.
const PATH_LEN_MAX: u64 = 64 << 10;
const PLAN_LEN_MAX: u64 = 8 << 20;

/// Something to be migrated.
#[derive(Clone, Debug)]
pub struct Found {
    /// What it is, and its files.
    pub source: SourceSession,
    /// The workspace that it belongs to, as far as its place tells.
    pub workspace: Option<Vec<u8>>,
    /// The directory that is its own, if it has one: to be removed with its files, it and what is below, once that is empty.
    pub own_dir: Option<PathBuf>,
    /// The first file of another source that says it is the same session, and is longer or comes before it.
    pub twin_of: Option<PathBuf>,
}

/// A file that should be a session by its place, and is none.
#[derive(Clone, Debug)]
pub struct Unread {
    /// The file.
    pub path: PathBuf,
    /// Why it is none.
    pub why: String,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What can be migrated, in the order of their paths.
    pub found: Vec<Found>,
    /// What can't.
    pub unread: Vec<Unread>,
    /// What else somebody should know.
    pub notes: Vec<Note>,
}

/// A directory or file that holds what older agents wrote.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// `.recursive` in a workspace, or the directory of a workspace in recursive's home.
    Recursive { dir: PathBuf, workspace: Option<Vec<u8>> },
    /// `.q` in a workspace.
    Q { dir: PathBuf, workspace: Vec<u8> },
    /// Whatever was given.
    Given(PathBuf),
}

/// Finds what is to be migrated at or below the paths. Symlinks below them are not followed; homes of ours are left alone.
///
/// # Errors
/// If one of the paths is not there or can't be read. What can't be read below it is noted.
pub fn find(paths: &[PathBuf]) -> Result<Findings, DiscoverError> {
    let mut findings = Findings::default();
    let mut places = BTreeSet::new();
    for path in paths {
        let error = |source| DiscoverError { path: path.clone(), source };
        // One spelling, so that what is below two of the paths is one thing.
        let path = fs::canonicalize(path).map_err(error)?;
        if in_home(&path) {
            note(&mut findings, &path, "is a sessionlog home or in one: nothing there is to be migrated");
            continue;
        }
        let mut below = BTreeSet::new();
        if fs::metadata(&path).map_err(error)?.is_dir() {
            fs::read_dir(&path).map_err(error)?;
            walk(&path, DEPTH_MAX, &mut below, &mut findings);
        }
        if below.is_empty() {
            below.insert(Place::Given(path));
        }
        places.append(&mut below);
    }
    for place in places {
        match place {
            Place::Recursive { dir, workspace } => recursive(&dir, workspace, &mut findings)?,
            Place::Q { dir, workspace } => q(&dir, &workspace, &mut findings)?,
            Place::Given(path) => given(&path, &mut findings)?,
        }
    }
    let mut seen = BTreeSet::new();
    let first = |found: &Found| found.source.files.first().map(|file| file.path.clone());
    findings.found.retain(|found| seen.insert(first(found)));
    findings.found.sort_by_key(first);
    pair_twins(&mut findings.found);
    Ok(findings)
}

/// Finds sources of the same session: copies of a workspace. The longest is the one that the others are compared with.
fn pair_twins(found: &mut [Found]) {
    let mut longest: BTreeMap<SessionId, (u64, PathBuf)> = BTreeMap::new();
    for one in found.iter() {
        let Some(main) = one.source.files.first() else { continue };
        let known = longest.entry(one.source.session_id).or_insert_with(|| (main.len, main.path.clone()));
        if main.len > known.0 {
            *known = (main.len, main.path.clone());
        }
    }
    for one in found {
        let known = longest.get(&one.source.session_id).map(|(_, path)| path);
        let own = one.source.files.first().map(|file| &file.path);
        one.twin_of = known.filter(|path| own != Some(path)).cloned();
    }
}

fn note(findings: &mut Findings, path: &Path, text: impl Into<String>) {
    findings.notes.push(Note { path: path.to_string_lossy().into_owned(), text: text.into() });
}

fn in_home(path: &Path) -> bool {
    path.ancestors().take(6).any(|dir| dir.join(HOME_MARKER).is_file())
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Searches a directory that is no link.
fn walk(dir: &Path, depth: usize, places: &mut BTreeSet<Place>, findings: &mut Findings) {
    if dir.join(HOME_MARKER).is_file() {
        note(findings, dir, "is a sessionlog home: nothing in it is to be migrated");
        return;
    }
    match name_of(dir) {
        ".recursive" => {
            let workspace = dir.parent().map(bytes_of);
            places.insert(Place::Recursive { dir: dir.to_owned(), workspace });
        }
        ".q" => {
            let workspace = dir.parent().map(bytes_of).unwrap_or_default();
            places.insert(Place::Q { dir: dir.to_owned(), workspace });
            return;
        }
        name if WorkspaceHash::parse(name).is_some() && dir.join("path.txt").is_file() => {
            let workspace = read_up_to(&dir.join("path.txt"), PATH_LEN_MAX).ok();
            let workspace = workspace.filter(|path| !path.is_empty());
            places.insert(Place::Recursive { dir: dir.to_owned(), workspace });
            return;
        }
        _ => {}
    }
    // Recursive's home has the same name as its directory in a workspace; nothing else in it is searched.
    let is_theirs = name_of(dir) == ".recursive";
    let below = if is_theirs { dir.join("workspaces") } else { dir.to_owned() };
    let dirs = match subdirectories(&below) {
        Ok(dirs) => dirs,
        Err(error) if is_theirs && error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => return note(findings, &below, format!("can't be read: {error}")),
    };
    if depth == 0 {
        return note(findings, dir, "is too deep: what is below it was not looked at");
    }
    for dir in dirs.iter().filter(|dir| !SKIPPED.contains(&name_of(dir))) {
        walk(dir, depth.saturating_sub(1), places, findings);
    }
}

/// The directories in a directory, in order; links are none.
fn subdirectories(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut dirs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            dirs.push(entry.path());
        }
    }
    dirs.sort();
    Ok(dirs)
}

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}

pub(super) fn read_up_to(path: &Path, len_max: u64) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(len_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a regular file is there; a link is none.
fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_file())
}

fn recursive(dir: &Path, workspace: Option<Vec<u8>>, findings: &mut Findings) -> Result<(), DiscoverError> {
    let sessions = dir.join("sessions");
    if sessions.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        take(&sessions, workspace.clone(), findings)?;
    }
    let pad = dir.join("scratchpad.json");
    if is_file(&pad) {
        findings.found.extend(scratchpad::found(&pad, workspace));
    }
    for (name, what) in [
        (
            "shadow-git",
            "holds the files that checkpoints name: it stays, and the migrated checkpoints name it",
        ),
        ("memory", "is memory of an agent and no session: it stays as it is"),
    ] {
        if dir.join(name).is_dir() {
            note(findings, &dir.join(name), what);
        }
    }
    Ok(())
}

/// Takes every session below a directory; what should be one and is none is told.
fn take(dir: &Path, workspace: Option<Vec<u8>>, findings: &mut Findings) -> Result<(), DiscoverError> {
    let mut notes = Vec::new();
    let sources = discover(&[dir.to_owned()], &mut notes)?;
    // That other files are there is told one by one.
    findings.notes.extend(notes.into_iter().filter(|note| !note.path.is_empty()));
    let mut used = BTreeSet::new();
    for source in sources.into_iter().filter(|source| source.format != SourceFormat::ClaudeCode) {
        used.extend(source.files.iter().map(|file| file.path.clone()));
        findings.found.push(of(source, workspace.clone()));
    }
    let mut others = 0_u64;
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        let Ok(entries) = fs::read_dir(&next) else { continue };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() {
                dirs.extend((!SKIPPED.contains(&name_of(&path))).then_some(path));
            } else if kind.is_file() && !used.contains(&path) {
                if is_expected(&path, dir) {
                    let why = why_unread(&path);
                    findings.unread.push(Unread { path, why });
                } else {
                    others = others.saturating_add(1);
                }
            }
        }
    }
    if others > 0 {
        let others = count(others, "other file", "other files");
        note(findings, dir, format!("has {others} of no session: they stay as they are"));
    }
    findings.unread.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}

/// Whether a file should be a session, or a session's own file, by its name and place.
fn is_expected(path: &Path, sessions: &Path) -> bool {
    let name = name_of(path);
    let is_flat = path.parent() == Some(sessions) && !name.starts_with('.');
    matches!(name, "transcript.jsonl" | ".meta.json")
        || (is_flat && (name.ends_with(".json") || name.ends_with(".jsonl")))
}

fn of(source: SourceSession, workspace: Option<Vec<u8>>) -> Found {
    let dir = source.files.first().and_then(|file| file.path.parent());
    let own_dir = match source.format {
        // One that stands where sessions do has no directory of its own.
        SourceFormat::RecursiveSession => dir.filter(|dir| name_of(dir) != "sessions").map(Path::to_owned),
        SourceFormat::QSession => dir.map(|dir| dir.join("delegates")),
        _ => None,
    };
    Found { source, workspace, own_dir, twin_of: None }
}

/// Takes q's first layout: one session for the workspace, and a plan. Its present one is what `import` is for.
fn q(dir: &Path, workspace: &[u8], findings: &mut Findings) -> Result<(), DiscoverError> {
    let session = dir.join(SESSION_FILE);
    let plan = dir.join(PLAN_FILE);
    let names = [SESSION_FILE, PLAN_FILE, "delegations.json", "delegates"];
    let paths: Vec<PathBuf> = names.iter().map(|name| dir.join(name)).collect();
    let is_there = |path: &&PathBuf| is_file(path) || (path.is_dir() && !path.is_symlink());
    let paths: Vec<PathBuf> = paths.iter().filter(is_there).cloned().collect();
    let mut notes = Vec::new();
    let mut sources = if is_file(&session) { discover(&paths, &mut notes)? } else { Vec::new() };
    sources.retain(|source| {
        source.format == SourceFormat::QSession && source.files.first().is_some_and(|it| it.path == session)
    });
    findings.notes.extend(notes.into_iter().filter(|note| !note.path.is_empty()));
    if is_file(&session) && sources.is_empty() {
        let why = why_unread(&session);
        findings.unread.push(Unread { path: session.clone(), why });
    }
    let run = sources.first().and_then(run_of);
    if is_file(&plan)
        && let Some(alone) = plan_alone(&plan, run.as_deref(), findings)
    {
        for source in &mut sources {
            source.files.retain(|file| file.path != plan);
        }
        sources.push(alone);
    }
    let workspace = Some(workspace.to_vec());
    findings.found.extend(sources.into_iter().map(|source| of(source, workspace.clone())));
    let present = subdirectories(&dir.join("sessions")).unwrap_or_default();
    if !present.is_empty() {
        let text = "holds sessions in q's present layout: `logdump import` takes them";
        note(findings, &dir.join("sessions"), text);
    }
    Ok(())
}

/// The run that a session file stands for.
fn run_of(source: &SourceSession) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Run {
        run_id: String,
    }
    let bytes = fs::read(&source.files.first()?.path).ok()?;
    serde_json::from_slice::<Run>(&bytes).ok().map(|run| run.run_id)
}

/// A plan of another run than the session's is a session of its own: it was left when its conversation was cleared.
fn plan_alone(path: &Path, run: Option<&str>, findings: &mut Findings) -> Option<SourceSession> {
    let unread = |why: String| Unread { path: path.to_owned(), why };
    let bytes = match read_up_to(path, PLAN_LEN_MAX) {
        Ok(bytes) => bytes,
        Err(error) => {
            findings.unread.push(unread(format!("can't be read: {error}")));
            return None;
        }
    };
    let plan = match PlanFile::parse(&bytes, PLAN_FILE) {
        Ok(plan) => plan,
        Err(error) => {
            // Beside a session it is kept with that, unread.
            if run.is_none() {
                findings.unread.push(unread(error.to_string()));
            }
            return None;
        }
    };
    let checkpoint = &plan.checkpoint;
    if run.is_some_and(|run| run == checkpoint.run_id || checkpoint.run_id.is_empty()) {
        return None;
    }
    let ids = [&checkpoint.execution_id, &checkpoint.run_id];
    let id = ids.into_iter().find(|id| !id.is_empty()).cloned();
    let id = id.unwrap_or_else(|| blake3::hash(&bytes).to_hex().chars().take(16).collect());
    let id = format!("plan-execution/{id}");
    let facts = SessionFacts {
        agent_version: Some("plan file 1".to_owned()),
        goal: Some(checkpoint.objective.clone()).filter(|it| !it.is_empty()),
        began: parse_rfc3339(&plan.updated_at),
        ..SessionFacts::default()
    };
    let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let role = FileRole::Q { delegate: Vec::new(), part: QPart::Plan };
    let file = SourceFile { path: path.to_owned(), label: PLAN_FILE.to_owned(), role, len };
    Some(SourceSession {
        format: SourceFormat::QSession,
        session_id: session_id(AGENT, &id),
        agent_session_id: id,
        files: vec![file],
        facts,
    })
}

/// Takes what was given by itself: a file, or a directory with sessions.
fn given(path: &Path, findings: &mut Findings) -> Result<(), DiscoverError> {
    let workspace = workspace_above(path);
    if name_of(path) == "scratchpad.json" && is_file(path) {
        findings.found.extend(scratchpad::found(path, workspace));
        return Ok(());
    }
    if path.is_dir() {
        return take(path, workspace, findings);
    }
    // Beside a transcript, its session's other files are taken, too.
    let is_of_directory = matches!(name_of(path), "transcript.jsonl" | ".meta.json");
    let at = path.parent().filter(|_| is_of_directory).unwrap_or(path);
    let mut notes = Vec::new();
    let sources = discover(&[at.to_owned()], &mut notes)?;
    let is_it = |source: &SourceSession| source.files.iter().any(|file| file.path == path);
    let found: Vec<SourceSession> =
        sources.into_iter().filter(|it| it.format != SourceFormat::ClaudeCode && is_it(it)).collect();
    if found.is_empty() {
        findings.unread.push(Unread { path: path.to_owned(), why: why_unread(path) });
    }
    findings.found.extend(found.into_iter().map(|source| of(source, workspace.clone())));
    Ok(())
}

/// The workspace that a path within an agent's directory belongs to.
fn workspace_above(path: &Path) -> Option<Vec<u8>> {
    for dir in path.ancestors() {
        match name_of(dir) {
            ".recursive" | ".q" => return dir.parent().map(|workspace| bytes_of(&canonical(workspace))),
            name if WorkspaceHash::parse(name).is_some() && dir.join("path.txt").is_file() => {
                return read_up_to(&dir.join("path.txt"), PATH_LEN_MAX).ok().filter(|it| !it.is_empty());
            }
            _ => {}
        }
    }
    None
}
