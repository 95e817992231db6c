//! `logdump artifact`: what is stored apart from the logs, looked into and put.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sessionlog::artifacts::{
    ARTIFACT_LEN_MAX, ArtifactLine, ArtifactLines, ArtifactMatches, ArtifactSlice, NamedArtifact, Shown,
    SliceContent,
};
use sessionlog::codec::ids::Digest;
use sessionlog::store::WorkspaceHash;
use sessionlog::{ArtifactReader, ErrorKind, NewArtifact, Store, StoreReader};

use super::Selected;
use super::gc::wanted;
use crate::args::{ArtifactAction, ArtifactArgs, LineRange};
use crate::exit::{Exit, Failure};
use crate::output::safe::safe;
use crate::output::text::{Align, Table, count, size};
use crate::output::{Context, Destination, Format, Paint, SCHEMA_VERSION};

/// Characters of a preview in a list.
const PREVIEW_CHARS: usize = 60;

/// Runs the command.
///
/// # Errors
/// `Usage` if the session, the digest or the request is wrong; `Lost` if the artifact is hurt; else if the store or the output
/// fails.
pub fn run(args: &ArtifactArgs, context: &Context) -> Result<Exit, Failure> {
    let store = context.reader()?;
    let workspaces = workspaces(args, &store)?;
    match &args.action {
        ArtifactAction::Ls { id: Some(id) } => of_session(&store, id, context),
        ArtifactAction::Ls { id: None } => all(&store, &workspaces, context),
        ArtifactAction::Show { digest } => show(&store, &workspaces, digest, context),
        ArtifactAction::Slice { digest, offset, len, lines } => {
            let (reader, digest) = find(&store, &workspaces, digest)?;
            match lines {
                None => slice(&reader.slice(&digest, *offset, *len)?, &digest, context),
                Some(LineRange { first, count }) => {
                    lines_of(&reader.lines(&digest, *first, *count)?, &digest, context)
                }
            }
        }
        ArtifactAction::Grep { digest, pattern, limit } => {
            let (reader, digest) = find(&store, &workspaces, digest)?;
            grep(&reader.grep(&digest, pattern, *limit)?, &digest, context)
        }
        ArtifactAction::Get { digest, pointer } => {
            let (reader, digest) = find(&store, &workspaces, digest)?;
            get(&reader.pointer(&digest, pointer)?, &digest, pointer, context)
        }
        ArtifactAction::Put { .. } => put(args, &workspaces, context),
    }
}

fn workspaces(args: &ArtifactArgs, store: &StoreReader) -> Result<Vec<WorkspaceHash>, Failure> {
    let mut all = store.workspaces()?;
    all.sort();
    if let Some(dir) = &args.workspace {
        let wanted = wanted(dir, &all)?;
        all.retain(|workspace| *workspace == wanted);
    }
    Ok(all)
}

/// The artifact that a digest's beginning names, in whichever workspace. One that several workspaces have is the same in each.
fn find(
    store: &StoreReader,
    workspaces: &[WorkspaceHash],
    prefix: &str,
) -> Result<(ArtifactReader, Digest), Failure> {
    let mut found: BTreeMap<Digest, ArtifactReader> = BTreeMap::new();
    for workspace in workspaces {
        let reader = store.artifacts(workspace);
        match reader.find(prefix) {
            Ok(digest) => {
                // Of several files, one that is whole.
                if !found.contains_key(&digest) || reader.check(&digest).is_ok() {
                    found.insert(digest, reader);
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some((digest, reader)), None) => Ok((reader, digest)),
        (Some((one, _)), Some((other, _))) => {
            let message = format!("`{}` begins {one} and {other}, at least: give more digits", safe(prefix));
            Err(Failure::usage("artifact.ambiguous", message))
        }
        (None, _) => {
            let message = format!(
                "there is no artifact `{}` in this home; `logdump artifact ls` lists those there are",
                safe(prefix)
            );
            Err(Failure::usage("artifact.missing", message))
        }
    }
}

fn of_session(store: &StoreReader, id: &str, context: &Context) -> Result<Exit, Failure> {
    let selected = Selected::find(store, id)?;
    let mut named = selected.reader.named_artifacts()?;
    if selected.row.id != selected.row.root.to_string() {
        named.retain(|it| it.node == selected.row.node);
    }
    let artifacts = selected.reader.artifacts();
    let states: Vec<&'static str> = named.iter().map(|it| state(&artifacts, &it.receipt.digest)).collect();
    let exit = if states.iter().all(|state| *state == "whole") { Exit::Clean } else { Exit::Lost };
    match context.format() {
        Format::Json => {
            let artifacts: Vec<Value> =
                named.iter().zip(&states).map(|(it, state)| named_json(it, state)).collect();
            context.json(&json!({
                "schema_version": SCHEMA_VERSION, "session": selected.row.root.to_string(), "artifacts": artifacts,
            }))?;
        }
        Format::Human => {
            let mut table = Table::new(&[
                ("DIGEST", Align::Left),
                ("POSITION", Align::Right),
                ("NODE", Align::Right),
                ("SIZE", Align::Right),
                ("STATE", Align::Left),
                ("BEGINNING", Align::Left),
            ]);
            for (it, state) in named.iter().zip(&states) {
                let preview: String = it.receipt.preview.chars().take(PREVIEW_CHARS).collect();
                table.row(vec![
                    short(&it.receipt.digest),
                    it.position.to_string(),
                    it.node.to_string(),
                    size(it.receipt.len),
                    (*state).to_owned(),
                    safe(&preview.replace('\n', " ")).into_owned(),
                ]);
            }
            print(context, &table, named.len())?;
        }
    }
    Ok(exit)
}

fn state(artifacts: &ArtifactReader, digest: &Digest) -> &'static str {
    match artifacts.check(digest) {
        Ok(_) => "whole",
        Err(error) if error.kind() == ErrorKind::NotFound => "missing",
        Err(error) if error.kind() == ErrorKind::Corrupt => "hurt",
        Err(_) => "unreadable",
    }
}

fn named_json(it: &NamedArtifact, state: &str) -> Value {
    json!({
        "digest": it.receipt.digest.to_string(),
        "bytes": it.receipt.len,
        "media_type": it.receipt.media_type,
        "position": it.position.0,
        "node": it.node.0,
        "state": state,
        "preview": it.receipt.preview,
    })
}

/// The first digits of a digest, enough for people.
fn short(digest: &Digest) -> String {
    digest.to_string().chars().take(16).collect()
}

fn print(context: &Context, table: &Table, rows: usize) -> Result<(), Failure> {
    if rows == 0 {
        context.note("there is no artifact");
        return Ok(());
    }
    let mut lines = table.lines().into_iter();
    context.line(&context.paint(Paint::Dim, &lines.next().unwrap_or_default()))?;
    lines.try_for_each(|line| context.line(&line))
}

fn all(store: &StoreReader, workspaces: &[WorkspaceHash], context: &Context) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    for workspace in workspaces {
        rows.extend(store.artifacts(workspace).list()?.into_iter().map(|entry| (workspace, entry)));
    }
    match context.format() {
        Format::Json => {
            let artifacts: Vec<Value> = rows
                .iter()
                .map(|(workspace, entry)| {
                    json!({
                        "digest": entry.digest.to_string(), "bytes": entry.len, "workspace": workspace.as_str(),
                    })
                })
                .collect();
            context.json(&json!({ "schema_version": SCHEMA_VERSION, "artifacts": artifacts }))?;
        }
        Format::Human => {
            let columns = [("DIGEST", Align::Left), ("SIZE", Align::Right), ("WORKSPACE", Align::Left)];
            let mut table = Table::new(&columns);
            for (workspace, entry) in &rows {
                table.row(vec![short(&entry.digest), size(entry.len), workspace.to_string()]);
            }
            print(context, &table, rows.len())?;
        }
    }
    Ok(Exit::Clean)
}

fn show(
    store: &StoreReader,
    workspaces: &[WorkspaceHash],
    prefix: &str,
    context: &Context,
) -> Result<Exit, Failure> {
    let (reader, digest) = find(store, workspaces, prefix)?;
    let info = reader.inspect(&digest)?;
    let parents: Vec<String> = info.parents.iter().map(Digest::to_string).collect();
    let sessions: Vec<String> = info.sessions.iter().map(ToString::to_string).collect();
    let path = reader.path(&digest);
    match context.format() {
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "digest": digest.to_string(),
            "bytes": info.len,
            "kind": info.kind,
            "media_type": info.media_type,
            "parents": parents,
            "sessions": sessions,
            "path": path.display().to_string(),
            "state": "whole",
        }))?,
        Format::Human => {
            context.line(&context.paint(Paint::Heading, &digest.to_string()))?;
            context.line(&format!("  {}, whole", size(info.len)))?;
            let facts = [("kind", info.kind), ("type", info.media_type)];
            for (name, fact) in facts.into_iter().filter_map(|(name, fact)| Some((name, fact?))) {
                context.line(&format!("  {name}: {}", safe(&fact)))?;
            }
            for parent in parents {
                context.line(&format!("  derived from {parent}"))?;
            }
            for session in sessions {
                context.line(&format!("  put by session {session}"))?;
            }
            context.line(&format!("  {}", safe(&path.display().to_string())))?;
        }
    }
    Ok(Exit::Clean)
}

fn slice(slice: &ArtifactSlice, digest: &Digest, context: &Context) -> Result<Exit, Failure> {
    let more = slice.range.end < slice.len;
    match (context.format(), &slice.content) {
        (Format::Json, content) => {
            let (encoding, content) = match content {
                SliceContent::Text(text) => ("utf-8", text.clone()),
                SliceContent::Bytes(bytes) => {
                    ("hex", bytes.iter().map(|byte| format!("{byte:02x}")).collect())
                }
            };
            context.json(&json!({
                "schema_version": SCHEMA_VERSION,
                "digest": digest.to_string(),
                "offset": slice.range.start,
                "next_offset": more.then_some(slice.range.end),
                "bytes": slice.len,
                "encoding": encoding,
                "content": content,
                "whole_characters": slice.whole_characters.as_ref().map(|it| json!([it.start, it.end])),
            }))?;
        }
        (Format::Human, content) => {
            let bytes = match content {
                SliceContent::Text(text) => text.as_bytes(),
                SliceContent::Bytes(bytes) => bytes,
            };
            write(context, bytes)?;
            if more {
                context.note(&format!(
                    "{} of {} bytes; --offset {} goes on",
                    bytes.len(),
                    slice.len,
                    slice.range.end
                ));
            }
        }
    }
    Ok(Exit::Clean)
}

/// Content as it is; a terminal is shown no control characters.
fn write(context: &Context, bytes: &[u8]) -> Result<(), Failure> {
    match context.destination() {
        Destination::Elsewhere => context.bytes(bytes),
        Destination::Terminal => {
            String::from_utf8_lossy(bytes).lines().try_for_each(|line| context.line(&safe(line)))
        }
    }
}

fn lines_of(lines: &ArtifactLines, digest: &Digest, context: &Context) -> Result<Exit, Failure> {
    match context.format() {
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "digest": digest.to_string(),
            "lines": lines.lines.iter().map(line_json).collect::<Vec<_>>(),
            "total": lines.total,
            "next": lines.next,
        }))?,
        Format::Human => {
            for line in &lines.lines {
                write(context, format!("{}\n", line.text).as_bytes())?;
            }
            cut_note(&lines.lines, context);
            if let Some(next) = lines.next {
                context.note(&format!(
                    "{}; --lines {next}- goes on",
                    count(lines.total, "line", "lines in all")
                ));
            }
        }
    }
    Ok(Exit::Clean)
}

fn cut_note(lines: &[ArtifactLine], context: &Context) {
    let cut = lines.iter().filter(|line| line.shown == Shown::Part).count();
    if cut > 0 {
        let cut = count(u64::try_from(cut).unwrap_or(u64::MAX), "line is", "lines are");
        context.note(&format!("{cut} longer than what is shown; --json says where, and a slice shows them"));
    }
}

fn line_json(line: &ArtifactLine) -> Value {
    json!({
        "number": line.number,
        "offset": line.offset,
        "bytes": line.len,
        "text": line.text,
        "whole": line.shown == Shown::Whole,
    })
}

fn grep(matches: &ArtifactMatches, digest: &Digest, context: &Context) -> Result<Exit, Failure> {
    match context.format() {
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "digest": digest.to_string(),
            "lines": matches.lines.iter().map(line_json).collect::<Vec<_>>(),
            "total": matches.total,
        }))?,
        Format::Human => {
            for line in &matches.lines {
                write(context, format!("{}:{}\n", line.number, line.text).as_bytes())?;
            }
            cut_note(&matches.lines, context);
            let shown = u64::try_from(matches.lines.len()).unwrap_or(u64::MAX);
            if shown < matches.total {
                context.note(&format!("{shown} of {}", count(matches.total, "line", "lines")));
            }
        }
    }
    Ok(Exit::Clean)
}

fn get(value: &str, digest: &Digest, pointer: &str, context: &Context) -> Result<Exit, Failure> {
    match context.format() {
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "digest": digest.to_string(),
            "pointer": pointer,
            "value": serde_json::from_str::<Value>(value).unwrap_or(Value::Null),
        }))?,
        Format::Human => write(context, format!("{value}\n").as_bytes())?,
    }
    Ok(Exit::Clean)
}

fn put(args: &ArtifactArgs, workspaces: &[WorkspaceHash], context: &Context) -> Result<Exit, Failure> {
    let ArtifactAction::Put { file, kind, media_type, dry_run } = &args.action else {
        return Ok(Exit::Clean);
    };
    let [workspace] = workspaces else {
        let message = "several workspaces have sessions here: name the directory with --workspace DIR";
        return Err(Failure::usage("workspace.several", message));
    };
    let found = std::fs::metadata(file).map_err(|error| Failure::io("looking at the file failed", &error))?;
    if !found.is_file() || found.len() > ARTIFACT_LEN_MAX {
        let message = format!("{} is no file, or has more than {ARTIFACT_LEN_MAX} bytes", file.display());
        return Err(Failure::usage("artifact.file", message));
    }
    let content = std::fs::read(file).map_err(|error| Failure::io("reading the file failed", &error))?;
    let (digest, len) = (Digest::of(&content), content.len());
    if !dry_run {
        let new = NewArtifact::new(kind.clone(), content);
        let new = media_type.iter().fold(new, |new, media_type| new.media_type(media_type.clone()));
        Store::open(context.home()?)?.artifacts(workspace).put(new)?;
    }
    match context.format() {
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "digest": digest.to_string(),
            "bytes": len,
            "workspace": workspace.as_str(),
            "dry_run": dry_run,
        }))?,
        Format::Human => {
            context.line(&digest.to_string())?;
            context.note(if *dry_run {
                "nothing was changed"
            } else {
                "stored; a collection removes it after its grace period, unless a session names it by then"
            });
        }
    }
    Ok(Exit::Clean)
}
