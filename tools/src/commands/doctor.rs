//! `logdump doctor`: a look over a whole home, read-only: what is wrong, why it matters, what fixes it.

mod home;
mod session;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::output::safe::safe;
use crate::output::text::count;
use crate::output::{Context, Format, Paint, SCHEMA_VERSION};

/// Findings of one code that people are told one by one.
const TOLD: usize = 5;

/// One thing that was found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// How bad it is, as the exit code says it.
    pub exit: Exit,
    /// A stable word for machines.
    pub code: &'static str,
    /// What was found.
    pub what: String,
    /// Where.
    pub path: PathBuf,
    /// Why it matters.
    pub why: String,
    /// What fixes it: a command, or what a person does.
    pub fix: String,
}

/// All that is found, while a home is looked over.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<Finding>,
}

impl Findings {
    /// Adds a finding.
    pub fn add(
        &mut self,
        exit: Exit,
        code: &'static str,
        path: &Path,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let (what, why, fix) = (what.into(), why.into(), fix.into());
        self.list.push(Finding { exit, code, what, path: path.to_owned(), why, fix });
    }

    fn worst(&self) -> Exit {
        self.list.iter().map(|finding| finding.exit).max().unwrap_or_default()
    }
}

/// Runs the command.
///
/// # Errors
/// `Usage` if there is no directory at all; `Io` if it can't be listed; else if the output fails. What is wrong in the home
/// is a finding.
pub fn run(args: &DoctorArgs, context: &Context) -> Result<Exit, Failure> {
    let root = match &args.dir {
        Some(dir) => dir.as_path(),
        None => context.home()?,
    };
    let mut findings = Findings::default();
    let sessions = home::look(root, &mut findings)?;
    // The worst first; of equals, those of a kind together, in the order in which they were found.
    findings.list.sort_by_key(|finding| (std::cmp::Reverse(finding.exit), finding.code));
    let exit = findings.worst();
    match context.format() {
        Format::Json => context.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "verdict": exit.word(),
            "home": root.display().to_string(),
            "sessions": sessions,
            "findings": findings.list.iter().map(as_json).collect::<Vec<_>>(),
        }))?,
        Format::Human => {
            human(context, &findings)?;
            let looked = count(sessions, "session", "sessions");
            context.note(&format!(
                "{looked} in {} looked over: {}; nothing was changed",
                root.display(),
                exit.word()
            ));
        }
    }
    Ok(exit)
}

fn human(context: &Context, findings: &Findings) -> Result<(), Failure> {
    if findings.list.is_empty() {
        return context.line(&context.paint(Paint::Good, "ok: nothing is wrong"));
    }
    for group in findings.list.chunk_by(|a, b| a.code == b.code && a.exit == b.exit) {
        for finding in group.iter().take(TOLD) {
            let (paint, word) = match finding.exit {
                Exit::Clean => (Paint::Dim, "note"),
                Exit::Warnings => (Paint::Warning, "warning"),
                Exit::Repairable => (Paint::Warning, "repairable"),
                Exit::Lost => (Paint::Bad, "DATA LOST"),
                Exit::Usage | Exit::Locked | Exit::Io => (Paint::Bad, "ERROR"),
            };
            let head = context.paint(paint, &format!("{word} [{}]", finding.code));
            context.line(&format!("{head} {}", safe(&finding.what)))?;
            let path = finding.path.display().to_string();
            context.line(&context.paint(Paint::Dim, &format!("    at {}", safe(&path))))?;
            context.line(&format!("    {}", safe(&finding.why)))?;
            context.line(&format!("    → {}", safe(&finding.fix)))?;
        }
        if let (Some(more), Some(first)) =
            (group.len().checked_sub(TOLD).filter(|more| *more > 0), group.first())
        {
            context.line(&format!("  … {more} more of {}: --json lists all", first.code))?;
        }
    }
    Ok(())
}

fn as_json(finding: &Finding) -> Value {
    let severity = match finding.exit {
        Exit::Clean => "note",
        Exit::Warnings => "warning",
        other => other.word(),
    };
    json!({
        "severity": severity,
        "code": finding.code,
        "what": finding.what,
        "path": finding.path.display().to_string(),
        "why": finding.why,
        "fix": finding.fix,
    })
}
