//! Power is cut on the real kernel: a host appends to a session on ext4 and xfs, the disk is copied as it is at a random
//! moment, the copy is mounted as after a restart, and everything that was acknowledged before must be there, and nothing
//! that was never said. Reports of sessions that were empty, cut short or unreadable after a laptop's battery had died come
//! from stores that acknowledge what the page cache holds.
//!
//! How the power goes is in `power/disk.rs`. Half of the cuts lose what the disk had not been told to flush. After a cut
//! the next host often goes on with what the cut left, and is cut again, also in the middle of its recovery.
//!
//! The harness must see a lie: each run begins with hosts that acknowledge what they did not sync, and with an operating
//! system that does not sync, and fails if it does not catch them.
//!
//! The second story is that of `fsync` errors: a disk fails a sync once, says Ok to the next one, and goes on showing from the
//! page cache what it never wrote.
//!
//! It needs root, loop devices and `mkfs`; where they are missing it says so and does nothing. `SESSIONLOG_CUTS` is the
//! number of cuts of each file system, `SESSIONLOG_GATES` that of disks that fail a sync, `SESSIONLOG_SEED` the seed.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic"
)]
#![cfg(target_os = "linux")]

mod support;

#[path = "power/disk.rs"]
mod disk;
#[path = "power/gate.rs"]
mod gate;
#[path = "power/host.rs"]
mod host;
#[path = "power/oracle.rs"]
mod oracle;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use disk::{Cache, Disk, FileSystem};
use host::Lie;
use oracle::{Seen, Told};
use sessionlog::codec::ids::SessionId;
use support::Rng;

/// What this binary is run as, when it runs itself.
const ROLE: &str = "SESSIONLOG_POWER_ROLE";

/// How many cuts may go by before a lie is seen.
const LIE_CUTS: u64 = 40;

#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split('|').collect();
    match words[..] {
        ["cuts", "ext4"] => harness(FileSystem::Ext4),
        ["cuts", "xfs"] => harness(FileSystem::Xfs),
        ["gate"] => gate::harness(),
        ["host", home, id, seed, lie] => {
            let lie = Lie::ALL[lie.parse::<usize>().unwrap()];
            host::run(Path::new(home), id.parse().unwrap(), seed.parse().unwrap(), lie);
        }
        ["gate-host", home, id, fill, first] => {
            gate::host(Path::new(home), id.parse().unwrap(), Path::new(fill), first.parse().unwrap());
        }
        ["gate-heir", home, id] => gate::heir(Path::new(home), id.parse().unwrap()),
        _ => panic!("no role: {role}"),
    }
}

/// This binary, in a role.
fn this_binary(mut command: Command, role: &str) -> Command {
    command.args(["--exact", "role", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

/// Past the test harness, which shows nothing of a test that passes.
fn tell(what: &str) {
    std::io::stderr().write_all(format!("power_cuts: {what}\n").as_bytes()).unwrap();
}

/// Runs a role in a mount namespace of its own, if disks can be made here.
fn in_namespace(fs: FileSystem, role: &str) {
    if let Some(missing) = disk::missing(fs) {
        tell(&format!("SKIPPED {role}: {missing}"));
        return;
    }
    let command = disk::in_own_namespace(std::env::current_exe().unwrap());
    let done = this_binary(command, role).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    said.lines().filter_map(|line| line.strip_prefix("power_cuts: ")).for_each(tell);
    assert!(done.status.success(), "{role}: {said}");
}

#[test]
fn what_was_acknowledged_on_ext4_survives_a_power_cut() {
    in_namespace(FileSystem::Ext4, "cuts|ext4");
}

#[test]
fn what_was_acknowledged_on_xfs_survives_a_power_cut() {
    in_namespace(FileSystem::Xfs, "cuts|xfs");
}

#[test]
fn a_sync_that_failed_once_is_never_believed() {
    in_namespace(FileSystem::Ext4, "gate");
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().unwrap())
}

/// A host in a process of its own, and what it has said so far.
struct Running {
    child: Child,
    heard: Arc<(Mutex<Heard>, Condvar)>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Heard {
    told: Told,
    ended: bool,
}

impl Running {
    fn start(role: &str, told: Told) -> Self {
        let command = Command::new(std::env::current_exe().unwrap());
        let mut child = this_binary(command, role).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let heard = Arc::new((Mutex::new(Heard { told, ended: false }), Condvar::new()));
        let shared = Arc::clone(&heard);
        let listener = std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // The test harness prints the first line behind the test's name.
                let line = line.split_once(" ... ").map_or(line.as_str(), |(_, line)| line);
                shared.0.lock().unwrap().told.note(line);
                shared.1.notify_all();
            }
            shared.0.lock().unwrap().ended = true;
            shared.1.notify_all();
        });
        Self { child, heard, listener: Some(listener) }
    }

    /// Waits for so many acknowledgements more.
    fn wait_for(&self, acks: u64) {
        let mut heard = self.heard.0.lock().unwrap();
        let until = heard.told.acks + acks;
        while heard.told.acks < until {
            assert!(!heard.ended, "the host failed by itself");
            heard = self.heard.1.wait(heard).unwrap();
        }
    }

    fn told(&self) -> Told {
        self.heard.0.lock().unwrap().told.clone()
    }

    /// Everything that it said until it ended or was killed.
    fn end(mut self, kill: bool) -> Told {
        if kill {
            self.child.kill().unwrap();
        }
        let status = self.child.wait().unwrap();
        assert!(kill || status.success(), "the host failed: {status}");
        self.listener.take().unwrap().join().unwrap();
        self.told()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It would keep the disk busy.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[derive(Default)]
struct Figures {
    cuts: u64,
    cache_lost: u64,
    hosts: u64,
    acks: u64,
    seen: Seen,
}

/// What is wrong after a cut, and the disk as it was then.
struct Violation {
    what: String,
    image: PathBuf,
}

fn harness(fs: FileSystem) {
    let (wanted, seed) = (number("SESSIONLOG_CUTS", 12), number("SESSIONLOG_SEED", 1));
    let mut disk = Disk::new(fs);
    let mut rng = Rng(seed);
    let name = fs.name();
    for (lie, must_be_seen) in [(Lie::Buffered, true), (Lie::NoDataSync, true), (Lie::NoDirSync, false)] {
        let mut figures = Figures::default();
        let most = if must_be_seen { LIE_CUTS } else { wanted / 10 };
        match campaign(&mut disk, &mut rng, lie, most, &mut figures) {
            Err(Violation { what, .. }) => {
                tell(&format!("{name}: the lie {lie:?} was seen at cut {}: {what}", figures.cuts));
            }
            Ok(()) if must_be_seen => {
                panic!("{name}: the lie {lie:?} was not seen in {most} cuts (seed {seed})")
            }
            Ok(()) if most > 0 => tell(&format!("{name}: {lie:?} made no difference in {most} cuts")),
            Ok(()) => {}
        }
    }
    let (begun, mut figures) = (Instant::now(), Figures::default());
    if let Err(Violation { what, image }) = campaign(&mut disk, &mut rng, Lie::Honest, wanted, &mut figures) {
        let kept = std::env::temp_dir().join(format!("sessionlog-cut-{name}-{seed}-{}.img", figures.cuts));
        disk::copy(&image, &kept);
        panic!("{name}, seed {seed}, cut {}: {what}; the disk is kept in {}", figures.cuts, kept.display());
    }
    let Figures { cuts, cache_lost, hosts, acks, seen } = figures;
    let Seen { sessions, torn, unborn, unsaid } = seen;
    tell(&format!(
        "{name}: {cuts} cuts ({cache_lost} with the disk's cache lost) of {hosts} hosts in {} s, {acks} acknowledgements \
         looked for and there; {sessions} sessions resumed, {torn} torn tails, {unborn} half created, {unsaid} not yet told",
        begun.elapsed().as_secs()
    ));
}

/// Cuts the power until `wanted` cuts were made or one shows that something is wrong.
fn campaign(
    disk: &mut Disk,
    rng: &mut Rng,
    lie: Lie,
    wanted: u64,
    figures: &mut Figures,
) -> Result<(), Violation> {
    let mut begin = (disk.pristine(), Told::default(), sessionlog::new_session_id());
    while figures.cuts < wanted {
        let (image, told, id) = begin;
        let cuts = (1 + rng.below(4)).min(wanted - figures.cuts);
        let (last, told) = life(disk, rng, (&image, told, id), (lie, cuts), figures)?;
        // Power comes back: the next host finds what the last cut left, or a new disk.
        begin = if lie == Lie::Honest && rng.below(5) != 0 {
            let image = disk.image("found.img");
            std::fs::rename(last, &image).unwrap();
            (image, told, id)
        } else {
            (disk.pristine(), Told::default(), sessionlog::new_session_id())
        };
    }
    Ok(())
}

/// One host, from its start to the last of some cuts. The disk after that one, and what is known of it.
fn life(
    disk: &mut Disk,
    rng: &mut Rng,
    (image, told, id): (&Path, Told, SessionId),
    (lie, cuts): (Lie, u64),
    figures: &mut Figures,
) -> Result<(PathBuf, Told), Violation> {
    let cache = if rng.below(2) == 0 { Cache::Kept } else { Cache::Lost };
    let home = disk.power_on(image, cache).join("home");
    let nth = Lie::ALL.iter().position(|other| *other == lie).unwrap();
    let host = Running::start(&format!("host|{}|{id}|{}|{nth}", home.display(), rng.next()), told);
    figures.hosts += 1;
    let mut taken = Vec::new();
    for nth in 0..cuts {
        // None: in the middle of creation or recovery.
        host.wait_for(rng.below(12));
        a_moment(Duration::from_micros(rng.below(3000)));
        let before = host.told();
        taken.push((before, disk.cut(&format!("cut-{nth}.img"))));
    }
    let later = host.end(true);
    disk.power_off();
    let mut known = None;
    for (before, image) in taken {
        figures.cuts += 1;
        figures.cache_lost += u64::from(cache == Cache::Lost);
        figures.acks += before.acks;
        let found = disk.after_the_cut(&image, |root| before.check(&later, &root.join("home")));
        let seen = found.map_err(|what| Violation { what, image: image.clone() })?;
        figures.seen.add(seen);
        known = Some((image, before.with_attempts_of(&later)));
    }
    Ok(known.unwrap())
}

/// Lets a random time go by, to come upon the host anywhere.
fn a_moment(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}
