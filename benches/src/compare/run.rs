//! The runner: rounds, order, and what a commit asks of the kernel.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::measure::{Cache, Found, Work};
use crate::{Options, Result, system, table};

/// Everything that was measured of one kind of work: for each peer, its ratio to the limit and its figures, round by round.
pub(crate) struct Measured {
    pub(crate) work: Work,
    pub(crate) peers: Vec<(&'static str, Vec<Round>)>,
    pub(crate) limit: Vec<Found>,
}

/// One peer in one round.
pub(crate) struct Round {
    /// Its time over that of the limit just before it.
    pub(crate) ratio: f64,
    pub(crate) found: Found,
}

/// The calls that write and sync.
const CALLS: &str =
    "write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,sync_file_range,msync,ftruncate,rename";

pub(crate) fn run(options: &Options) -> Result<()> {
    let runner = Runner { options, prefix: prefix(options.realtime) };
    println!("{}", system::machine());
    let mut all = Vec::new();
    for work in Work::ALL.into_iter().filter(|work| wanted(&options.works, &work.name())) {
        all.push(runner.measure(work)?);
        println!("{}", table::of(all.last().ok_or("nothing")?));
    }
    let calls = if wanted(&options.works, "calls") { runner.calls()? } else { BTreeMap::new() };
    let report = table::report(&all, &calls, &runner.prefix.join(" "));
    println!("{report}");
    if options.write_readme {
        table::write_readme(&report)?;
    }
    std::fs::remove_dir_all(&options.dir)?;
    Ok(())
}

fn wanted(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|wanted| wanted == name)
}

/// Real-time scheduling, if it is asked for and allowed.
fn prefix(realtime: bool) -> Vec<String> {
    let chrt = ["chrt", "-r", "10"].map(str::to_owned).to_vec();
    let works =
        || Command::new("chrt").args(["-r", "10", "true"]).output().is_ok_and(|out| out.status.success());
    if realtime && works() { chrt } else { Vec::new() }
}

struct Runner<'a> {
    options: &'a Options,
    prefix: Vec<String>,
}

impl Runner<'_> {
    fn measure(&self, work: Work) -> Result<Measured> {
        let peers = work.peers();
        let limit = work.limit();
        let names = peers.iter().map(|peer| peer.name).filter(|name| *name != limit);
        let names: Vec<_> = names.filter(|name| wanted(&self.options.only, name)).collect();
        if work.reads() {
            for name in names.iter().copied().chain([limit]) {
                let dir = self.dir("long", name);
                if !dir.exists() {
                    self.one(work, name, &dir, &["--build"])?;
                }
            }
        }
        let mut measured = Measured {
            work,
            peers: names.iter().map(|name| (*name, Vec::new())).collect(),
            limit: Vec::new(),
        };
        for round in 0..self.options.rounds {
            for step in 0..names.len() {
                let index = (round * 3 + step) % names.len();
                let limit = self.once(work, limit)?;
                let found = self.once(work, names[index])?;
                let ratio = found.seconds / limit.seconds * (limit.messages as f64 / found.messages as f64);
                measured.limit.push(limit);
                measured.peers[index].1.push(Round { ratio, found });
            }
        }
        Ok(measured)
    }

    fn once(&self, work: Work, name: &str) -> Result<Found> {
        if work.reads() {
            return self.one(work, name, &self.dir("long", name), &[]);
        }
        let dir = self.fresh(name)?;
        let found = self.one(work, name, &dir, &[]);
        std::fs::remove_dir_all(&dir)?;
        found
    }

    fn dir(&self, kind: &str, name: &str) -> PathBuf {
        self.options.dir.join(format!("{kind}-{name}"))
    }

    fn fresh(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir("new", name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir_all(&self.options.dir)?;
        Ok(dir)
    }

    /// One measurement, in a process of its own.
    fn one(&self, work: Work, name: &str, dir: &Path, options: &[&str]) -> Result<Found> {
        let mut command: Vec<String> = self.prefix.clone();
        command.extend(self.command(work, name, dir, options)?);
        let out = Command::new(&command[0]).args(&command[1..]).output()?;
        if !out.status.success() {
            return Err(format!("{name}: {}", String::from_utf8_lossy(&out.stderr)).into());
        }
        Ok(serde_json::from_slice(&out.stdout)?)
    }

    fn command(&self, work: Work, name: &str, dir: &Path, options: &[&str]) -> Result<Vec<String>> {
        std::fs::create_dir_all(&self.options.dir)?;
        let program = std::env::current_exe()?.to_string_lossy().into_owned();
        let dir = dir.to_string_lossy().into_owned();
        let mut command = vec![program, "one".to_owned(), work.name(), name.to_owned(), dir];
        command.extend(options.iter().map(|option| (*option).to_owned()));
        command.extend(self.options.quick.then(|| "--quick".to_owned()));
        Ok(command)
    }

    /// What one durable commit of one message asks of the kernel: the difference between a long run and a short one, as
    /// `strace` counts. Empty where there is no `strace`.
    fn calls(&self) -> Result<BTreeMap<&'static str, String>> {
        let mut found = BTreeMap::new();
        if Command::new("strace").arg("-V").output().is_err() {
            println!("no strace here: the calls of a commit are not counted");
            return Ok(found);
        }
        for peer in Work::Append.peers().into_iter().filter(|peer| wanted(&self.options.only, peer.name)) {
            let (few, many) = (self.count(peer.name, 100)?, self.count(peer.name, 300)?);
            let mut text = Vec::new();
            for (call, count) in many {
                let each = (count - few.get(&call).copied().unwrap_or(0.0)) / 200.0;
                if each >= 0.01 {
                    text.push(format!("{call} {each:.2}"));
                }
            }
            found.insert(peer.name, text.join(", "));
        }
        Ok(found)
    }

    fn count(&self, name: &str, messages: usize) -> Result<BTreeMap<String, f64>> {
        let dir = self.fresh(name)?;
        let count = messages.to_string();
        let summary = self.options.dir.join("strace.txt");
        let out = Command::new("strace")
            .args(["-f", "-c", "-e", &format!("trace={CALLS}"), "-o"])
            .arg(&summary)
            .args(self.command(Work::Append, name, &dir, &["--messages", &count])?)
            .output()?;
        if !out.status.success() {
            return Err(format!("strace {name}: {}", String::from_utf8_lossy(&out.stderr)).into());
        }
        std::fs::remove_dir_all(&dir)?;
        let mut calls = BTreeMap::new();
        for line in std::fs::read_to_string(&summary)?.lines() {
            let fields: Vec<_> = line.split_whitespace().collect();
            if let (Some(count), Some(call)) = (fields.get(3), fields.last())
                && let Ok(count) = count.parse::<f64>()
                && CALLS.split(',').any(|known| known == *call)
            {
                calls.insert((*call).to_owned(), count);
            }
        }
        Ok(calls)
    }
}

/// Whether a cold read was one: `None` of what is not cold.
pub(crate) fn was_cold(measured: &Measured) -> Option<bool> {
    match measured.work {
        Work::Full(Cache::Cold) | Work::Last50(Cache::Cold) => {
            Some(measured.limit.iter().all(|found| found.dropped == Some(true)))
        }
        _ => None,
    }
}
