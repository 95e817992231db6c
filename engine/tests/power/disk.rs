//! A disk whose power can be cut: loop devices in a mount namespace of their own.
//!
//! ```text
//! tmpfs  ground.img -> loop -> ext4 (can be frozen)  ground/disk.img -> loop B [-> loop C] -> the file system under test
//! ```
//!
//! `disk.img` is what the disk has. A cut freezes the file system that it lies on, so that no write of the loop device gets
//! through, not even half of a commit, copies it, and thaws. The copy is one moment.
//!
//! With [`Cache::Lost`] there is a second loop device, over the block device of the first, without direct I/O. What the file
//! system under test writes stays in that block device's page cache until the file system asks for a flush (or the kernel
//! finds the time): it is a disk with a cache of its own, and a cut empties it.
//!
//! Everything is gone when the last process of the namespace is, however it ends: loop devices are marked to be cleared with
//! their last user.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the disk is formatted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    fn mkfs(self) -> &'static str {
        match self {
            Self::Ext4 => "mkfs.ext4",
            Self::Xfs => "mkfs.xfs",
        }
    }
}

/// Whether a cut loses what the disk was given and not told to flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    Kept,
    Lost,
}

/// Why disks of a kind can't be made here; `None` if they can.
pub(crate) fn missing(fs: FileSystem) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1);
    if uid != Some("0") {
        return Some("it needs root".to_owned());
    }
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    for needed in ["ext4", fs.name()] {
        if !known.lines().any(|line| line.trim_start_matches("nodev").trim() == needed) {
            return Some(format!("the kernel has no {needed} loaded"));
        }
    }
    for program in ["unshare", "mount", "umount", "losetup", "fsfreeze", "mkfs.ext4", fs.mkfs(), "cp"] {
        if found(program).is_none() {
            return Some(format!("there is no {program}"));
        }
    }
    // Rights and devices can be missing in ways that only an attempt shows.
    let attempt = "d=$(mktemp -d); device=
        trap 'code=$?; set +e; fsfreeze -u \"$d/m\" 2>/dev/null; umount \"$d/m\" 2>/dev/null
            [ -z \"$device\" ] || losetup -d \"$device\" 2>/dev/null
            umount \"$d\" 2>/dev/null; rmdir \"$d\"; exit $code' EXIT; set -e
        mount -t tmpfs tmpfs \"$d\"; truncate -s 8M \"$d/image\"; mkdir \"$d/m\"; mkfs.ext4 -q \"$d/image\"
        device=$(losetup -f --show \"$d/image\"); mount -t ext4 \"$device\" \"$d/m\"
        fsfreeze -f \"$d/m\"; fsfreeze -u \"$d/m\"";
    let tried = in_own_namespace("sh")
        .args(["-c", attempt])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .unwrap();
    (!tried.status.success()).then(|| String::from_utf8_lossy(&tried.stderr).trim().replace('\n', "; "))
}

/// A command that runs in a mount namespace of its own.
pub(crate) fn in_own_namespace(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(program).env("PATH", path());
    command
}

fn path() -> String {
    format!("{}:/usr/local/sbin:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn found(program: &str) -> Option<PathBuf> {
    path().split(':').map(|dir| Path::new(dir).join(program)).find(|path| path.exists())
}

/// Runs a program to its end. What it printed, or what it complained of.
pub(crate) fn try_run(program: &str, args: &[&str]) -> Result<String, String> {
    let done = Command::new(program).args(args).env("PATH", path()).stdin(Stdio::null()).output().unwrap();
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned());
    }
    Err(format!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&done.stderr).trim()))
}

pub(crate) fn run(program: &str, args: &[&str]) -> String {
    try_run(program, args).unwrap_or_else(|error| panic!("{error}"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn copy(from: &Path, to: &Path) {
    run("cp", &["--sparse=always", text(from), text(to)]);
}

/// Something that is mounted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Mount {
    at: PathBuf,
}

impl Mount {
    /// Mounts an image or a device.
    pub(crate) fn new(what: &Path, at: PathBuf, options: &str) -> Self {
        std::fs::create_dir_all(&at).unwrap();
        run("mount", &["-o", options, text(what), text(&at)]);
        Self { at }
    }

    pub(crate) fn tmpfs(at: PathBuf) -> Self {
        run("mount", &["-t", "tmpfs", "tmpfs", text(&at)]);
        Self { at }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A file system that broke is unmounted too; one that is still in use goes with the namespace.
        drop(try_run("umount", &[text(&self.at)]));
    }
}

/// A loop device, detached when its last user lets go of it.
struct Device(PathBuf);

impl Device {
    fn over(what: &Path) -> Self {
        Self(run("losetup", &["-f", "--show", text(what)]).into())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        drop(try_run("losetup", &["-d", text(&self.0)]));
    }
}

/// Thaws a frozen file system, whatever happens meanwhile.
struct Frozen<'a>(&'a Path);

impl<'a> Frozen<'a> {
    fn new(at: &'a Path) -> Self {
        run("fsfreeze", &["-f", text(at)]);
        Self(at)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        run("fsfreeze", &["-u", text(self.0)]);
    }
}

/// A disk and its cuts. Fields are dropped in order: the innermost first.
pub(crate) struct Disk {
    fs: FileSystem,
    under_test: Option<Mount>,
    ground: Mount,
    room: Mount,
    _dir: tempfile::TempDir,
}

impl Disk {
    /// A disk without power, and an image to begin with: see [`pristine`](Self::pristine).
    pub(crate) fn new(fs: FileSystem) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let room = Mount::tmpfs(dir.path().to_owned());
        let ground = room.path().join("ground.img");
        std::fs::File::create(&ground).unwrap().set_len(96 << 20).unwrap();
        // Without a journal it can be frozen too, and costs less.
        run("mkfs.ext4", &["-q", "-F", "-m0", "-O", "^has_journal", text(&ground)]);
        let ground = Mount::new(&ground, room.path().join("ground"), "loop");
        let disk = Self { fs, under_test: None, ground, room, _dir: dir };
        let pristine = disk.pristine();
        let image = std::fs::File::create(&pristine).unwrap();
        let path = text(&pristine);
        match fs {
            FileSystem::Ext4 => {
                image.set_len(16 << 20).unwrap();
                run("mkfs.ext4", &["-q", "-F", "-m0", "-b", "4096", "-J", "size=4", path]);
            }
            FileSystem::Xfs => {
                image.set_len(32 << 20).unwrap();
                // Newer versions refuse less than 300 MiB, older ones don't know that it can be asked for.
                let made = try_run("mkfs.xfs", &["--unsupported", "-q", "-f", "-l", "size=8m", path]);
                drop(made.or_else(|_| try_run("mkfs.xfs", &["-q", "-f", "-l", "size=8m", path])).unwrap());
            }
        }
        disk
    }

    /// A place for an image.
    pub(crate) fn image(&self, name: &str) -> PathBuf {
        self.room.path().join(name)
    }

    /// The image of an empty file system.
    pub(crate) fn pristine(&self) -> PathBuf {
        self.image("pristine.img")
    }

    fn disk(&self) -> PathBuf {
        self.ground.path().join("disk.img")
    }

    /// Begins with an image as the disk's content. Where it is mounted.
    pub(crate) fn power_on(&mut self, image: &Path, cache: Cache) -> PathBuf {
        self.power_off();
        copy(image, &self.disk());
        let platter = Device::over(&self.disk());
        let cached = (cache == Cache::Lost).then(|| Device::over(&platter.0));
        let device = cached.as_ref().unwrap_or(&platter);
        let at = self.image("under-test");
        self.under_test = Some(Mount::new(&device.0, at.clone(), "noatime"));
        at
    }

    /// What the disk would have if power went now.
    pub(crate) fn cut(&self, name: &str) -> PathBuf {
        let image = self.image(name);
        let frozen = Frozen::new(self.ground.path());
        copy(&self.disk(), &image);
        drop(frozen);
        image
    }

    /// Nobody may be using the disk any more. What it has then is of no interest.
    pub(crate) fn power_off(&mut self) {
        if let Some(mount) = self.under_test.take() {
            run("umount", &[text(mount.path())]);
            std::mem::forget(mount);
        }
    }

    /// Mounts a copy of an image, as a machine does that was switched on again.
    pub(crate) fn after_the_cut<T>(&self, image: &Path, look: impl FnOnce(&Path) -> T) -> T {
        let scratch = self.image("scratch.img");
        copy(image, &scratch);
        // A copy of a mounted xfs has the same uuid, and would be refused.
        let options = if self.fs == FileSystem::Xfs { "loop,nouuid" } else { "loop" };
        let mount = Mount::new(&scratch, self.image("after"), options);
        let seen = look(mount.path());
        drop(mount);
        seen
    }
}
