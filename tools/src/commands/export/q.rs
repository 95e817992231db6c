//! `logdump export --format q`: a session as the directory that q has of it.
//!
//! The files are made in a new directory beside the one that they go to, which is then put in its place. So no link below
//! the target is followed, and an export that breaks off leaves what was there.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sessionlog::projections::Projection;
use sessionlog::projections::views::q::{QFile, QTree};
use sessionlog::{SessionKind, StoreReader};

use super::{refuse_below, walk, writing};
use crate::commands::Selected;
use crate::exit::{Exit, Failure};
use crate::output::text::size;
use crate::output::{Context, Format, SCHEMA_VERSION};

/// What an export leaves beside the sessions, to know itself again.
const MANIFEST: &str = ".sessionlog-export.json";
/// Where q has its sessions.
const SESSIONS: &str = "sessions";

/// A file that was written.
struct Written {
    path: String,
    bytes: u64,
    hash: blake3::Hash,
}

/// Writes the session's files below `to`.
///
/// # Errors
/// `Usage` if `to` is anything but a new or empty directory or an export of this session that nobody changed, or if a
/// delegated conversation is asked for; else if the log or the files fail.
pub(super) fn run(
    store: &StoreReader,
    selected: &Selected,
    to: &Path,
    context: &Context,
) -> Result<Exit, Failure> {
    if selected.row.kind == SessionKind::Child {
        let root = selected.row.root;
        let text = format!("q keeps a delegated conversation within its session: export session {root}");
        return Err(Failure::usage("export.child", text));
    }
    let absolute = std::path::absolute(to).unwrap_or_else(|_| to.to_owned());
    // Of a path that is not there yet, the part that is there decides.
    if let Some(there) = absolute.ancestors().find(|path| path.exists()) {
        refuse_below(store, to, there)?;
    }
    let mut tree = QTree::default();
    let health = walk(selected, &mut |event| {
        tree.apply(event);
        Ok(())
    })?;
    let target = Target::of(to, &tree.directory())?;
    let written = target.write(&tree)?;
    let left_out = tree.left_out();
    let paths = || written.iter().map(|file| target.place.join(&file.path).display().to_string());
    match context.format() {
        Format::Json => {
            let files: Vec<Value> = written
                .iter()
                .zip(paths())
                .map(|(file, path)| json!({ "path": path, "bytes": file.bytes }))
                .collect();
            context.json(&json!({
                "schema_version": SCHEMA_VERSION,
                "session": selected.row.root.to_string(),
                "directory": target.place.display().to_string(),
                "files": files,
                "left_out": left_out,
                "health": health.json(),
            }))?;
        }
        Format::Human => {
            written.iter().zip(paths()).for_each(|(file, path)| {
                context.note(&format!("{} written to {path}", size(file.bytes)));
            });
            left_out.iter().for_each(|text| context.warn(text));
        }
    }
    Ok(health.tell(context, &selected.row.id))
}

/// Where an export goes.
struct Target {
    /// The directory that was asked for.
    to: PathBuf,
    /// The session's directory in it.
    place: PathBuf,
    /// Where the files are made.
    made: PathBuf,
}

impl Target {
    fn of(to: &Path, directory: &str) -> Result<Self, Failure> {
        let place = to.join(SESSIONS).join(directory);
        let made = to.join(SESSIONS).join(format!(".{directory}.{}.tmp", std::process::id()));
        let target = Self { to: to.to_owned(), place, made };
        match fs::symlink_metadata(to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::io(&format!("reading {} failed", to.display()), &error)),
            Ok(metadata) if !metadata.is_dir() => {
                let text = format!("{} is no directory; name a new or an empty one", to.display());
                return Err(Failure::usage("export.exists", text));
            }
            Ok(_) => target.check_earlier(directory)?,
        }
        Ok(target)
    }

    /// What is there must be an earlier export of this session, and nothing else: it is replaced.
    fn check_earlier(&self, directory: &str) -> Result<(), Failure> {
        let io = |error: io::Error| Failure::io(&format!("reading {} failed", self.to.display()), &error);
        if fs::read_dir(&self.to).map_err(io)?.next().is_none() {
            return Ok(());
        }
        let refused = |why: &str| {
            let to = self.to.display();
            let text = format!("{to} is not empty, and {why}; name a new or an empty directory");
            Err(Failure::usage("export.exists", text))
        };
        let Some(manifest) = read_manifest(&self.to.join(MANIFEST)) else {
            return refused("no export of q files");
        };
        if manifest.get("session").and_then(Value::as_str) != Some(directory) {
            return refused("the export of another session");
        }
        for (path, hash) in files_below(&self.to).map_err(io)? {
            let name = path.to_string_lossy();
            let known = manifest.get("files").and_then(|files| files.get(&*name)).and_then(Value::as_str);
            let hash = hash.map(|hash| hash.to_hex().to_string());
            if path != Path::new(MANIFEST) && (hash.is_none() || known != hash.as_deref()) {
                return refused(&format!("{name} is not as the export left it"));
            }
        }
        Ok(())
    }

    /// Makes the files and puts them in their place.
    fn write(&self, tree: &QTree) -> Result<Vec<Written>, Failure> {
        let sessions = self.to.join(SESSIONS);
        directories(&sessions)?;
        let made = self.make(tree);
        let done = made.and_then(|written| self.put(&written).map(|()| written));
        if done.is_err() {
            // The error that brought us here is the one to tell.
            fs::remove_dir_all(&self.made).unwrap_or_default();
        }
        done
    }

    fn make(&self, tree: &QTree) -> Result<Vec<Written>, Failure> {
        // It must not be there: nothing that somebody else put there is written through.
        directory(&self.made)?;
        tree.files().iter().map(|file| write_file(&self.made, tree, file)).collect()
    }

    fn put(&self, written: &[Written]) -> Result<(), Failure> {
        let io = |error: io::Error| writing(&self.place, &error);
        let old = self.made.with_extension("old");
        let was_there = fs::symlink_metadata(&self.place).is_ok();
        if was_there {
            fs::rename(&self.place, &old).map_err(io)?;
        }
        fs::rename(&self.made, &self.place).map_err(io)?;
        self.write_manifest(written)?;
        if was_there {
            fs::remove_dir_all(&old).map_err(io)?;
        }
        sync_directory(&self.to.join(SESSIONS)).map_err(io)
    }

    fn write_manifest(&self, written: &[Written]) -> Result<(), Failure> {
        let place = self.place.strip_prefix(&self.to).unwrap_or(&self.place);
        let files: BTreeMap<String, String> = written
            .iter()
            .map(|file| {
                let path = place.join(&file.path).to_string_lossy().into_owned();
                (path, file.hash.to_hex().to_string())
            })
            .collect();
        let session = self.place.file_name().unwrap_or_default().to_string_lossy();
        let manifest = json!({ "schema_version": 1, "format": "q", "session": session, "files": files });
        let path = self.to.join(MANIFEST);
        let temporary = self.to.join(format!("{MANIFEST}.{}.tmp", std::process::id()));
        let io = |error: io::Error| writing(&path, &error);
        let mut file = new_file(&temporary)?;
        file.write_all(format!("{manifest:#}\n").as_bytes()).map_err(io)?;
        file.sync_all().map_err(io)?;
        fs::rename(&temporary, &path).map_err(io)
    }
}

fn write_file(made: &Path, tree: &QTree, file: &QFile) -> Result<Written, Failure> {
    let mut path = made.to_owned();
    let mut parts = file.path.iter().peekable();
    while let Some(part) = parts.next() {
        path.push(part);
        if parts.peek().is_some() && fs::symlink_metadata(&path).is_err() {
            directory(&path)?;
        }
    }
    let io = |error: io::Error| writing(&path, &error);
    let mut out = Hashed {
        out: BufWriter::with_capacity(64 << 10, new_file(&path)?),
        hasher: blake3::Hasher::new(),
        bytes: 0,
    };
    tree.write(file, &mut out).map_err(io)?;
    out.flush().map_err(io)?;
    out.out.get_ref().sync_all().map_err(io)?;
    let below = path.strip_prefix(made).unwrap_or(&path).to_string_lossy().into_owned();
    Ok(Written { path: below, bytes: out.bytes, hash: out.hasher.finalize() })
}

/// A file whose bytes are hashed as they are written.
struct Hashed {
    out: BufWriter<File>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.out.write(bytes)?;
        self.hasher.update(bytes.get(..len).unwrap_or(bytes));
        self.bytes = self.bytes.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn read_manifest(path: &Path) -> Option<Value> {
    let is_file = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
    serde_json::from_slice(&fs::read(path).ok().filter(|_| is_file)?).ok()
}

/// Every file below a directory with its hash; links and other things have none.
fn files_below(root: &Path) -> io::Result<BTreeMap<PathBuf, Option<blake3::Hash>>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            let below = path.strip_prefix(root).unwrap_or(&path).to_owned();
            if metadata.is_dir() {
                waiting.push(path);
                continue;
            }
            let mut hash = None;
            if metadata.is_file() {
                let mut hasher = blake3::Hasher::new();
                hasher.update_reader(File::open(&path)?)?;
                hash = Some(hasher.finalize());
            }
            found.insert(below, hash);
        }
    }
    Ok(found)
}

/// A directory that is there afterwards, and was no link.
fn directories(path: &Path) -> Result<(), Failure> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        let mut builder = builder();
        let created = builder.recursive(true).create(parent);
        created.map_err(|error| Failure::io(&format!("creating {} failed", parent.display()), &error))?;
    }
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => {
            let text = format!("{} is no directory; remove it or name another place", path.display());
            Err(Failure::usage("export.exists", text))
        }
        Err(_) => directory(path),
    }
}

/// A new directory for the owner alone.
fn directory(path: &Path) -> Result<(), Failure> {
    let created = builder().create(path);
    created.map_err(|error| Failure::io(&format!("creating {} failed", path.display()), &error))
}

fn builder() -> DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "modes are Unix's"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

fn new_file(path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|error| Failure::io(&format!("creating {} failed", path.display()), &error))
}

#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}
