//! The real file system.

#[cfg(feature = "follow")]
mod watch;

use std::fs::{self, DirBuilder, File, FileType, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sessionlog_codec::ids::Timestamp;

use super::{Access, DirEntry, EntryKind, Lock, LockError, Locked, Stamp, Storage, StorageFile};

/// The operating system's file system.
///
/// Files are created with mode 0600 and directories with 0700 (the umask may take more away). A last path component
/// that is a symbolic link is refused for files; a directory may be reached through one, since a home that is a link
/// to another disk is the user's choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsStorage;

impl Storage for OsStorage {
    #[cfg(feature = "follow")]
    fn watch(&self, dir: &Path) -> io::Result<Option<Box<dyn super::Watch>>> {
        watch::watch(dir)
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let now = SystemTime::now();
        let metadata = path.symlink_metadata()?;
        let modified = metadata.modified()?;
        let (file, changed) = platform::identity(&metadata);
        let changed_at = UNIX_EPOCH + Duration::from_nanos(u64::try_from(changed).unwrap_or(0));
        let quiet = now.duration_since(modified.max(changed_at)).unwrap_or(Duration::ZERO);
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let modified = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        Ok(Some(Stamp { file, len: metadata.len(), modified, changed, quiet }))
    }

    fn native_path(&self, path: &Path) -> Option<PathBuf> {
        Some(path.to_owned())
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        // O_EXCL: nothing that exists is opened, be it a link or a FIFO.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        platform::private_file(&mut options);
        Ok(Arc::new(OsFile { file: options.open(path)? }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::ReadWrite);
        Ok(Arc::new(OsFile { file: open_regular(path, &mut options)? }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        platform::private_dir(&mut builder);
        match builder.create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            done => done,
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for found in fs::read_dir(dir)? {
            let found = found?;
            let kind = entry_kind(found.file_type()?);
            let len = match kind {
                EntryKind::File => match found.metadata() {
                    Ok(metadata) => metadata.len(),
                    // Removed since the directory was read.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                },
                EntryKind::Dir | EntryKind::Other => 0,
            };
            entries.push(DirEntry { name: found.file_name(), kind, len });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn entry(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        let metadata = match path.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let kind = entry_kind(metadata.file_type());
        let len = if kind == EntryKind::File { metadata.len() } else { 0 };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
        Ok(Some(DirEntry { name, kind, len }))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        // Of a link, the link itself would be named a second time.
        match self.entry(from)?.map(|entry| entry.kind) {
            Some(EntryKind::File) => fs::hard_link(from, to),
            Some(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn link_count(&self, path: &Path) -> io::Result<Option<u64>> {
        Ok(platform::link_count(&path.symlink_metadata()?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        #[cfg(feature = "seeded-bugs")]
        if sessionlog_codec::seeded::is("sync_dir_does_nothing") {
            return Ok(());
        }
        platform::sync_dir(dir)
    }

    fn try_lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        let file = open_lock(path).map_err(LockError::Io)?;
        locked(file.try_lock(), file)
    }

    fn try_lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        let file = open_lock(path).map_err(LockError::Io)?;
        locked(file.try_lock_shared(), file)
    }

    fn modified(&self, path: &Path) -> io::Result<Option<Timestamp>> {
        Ok(Some(timestamp(path.symlink_metadata()?.modified()?)))
    }

    fn touch(&self, path: &Path, at: Timestamp) -> io::Result<()> {
        open_regular(path, OpenOptions::new().read(true).write(true))?.set_modified(system_time(at))
    }

    /// Linux only: looks the file up in `/proc/locks`. `None` too if the kernel would not show every holder, which is
    /// so for [`Locked::Free`] in a container: holders outside its PID namespace are left out of that file.
    fn is_locked(&self, path: &Path) -> Option<Locked> {
        match open_regular(path, OpenOptions::new().read(true)) {
            Ok(file) => platform::is_locked(&file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Locked::Free),
            Err(_) => None,
        }
    }
}

/// How much is read at once, in bytes. The system reads ahead between two reads, while what was read is copied; one read of
/// a whole segment from a disk takes half as long again.
const READ_LEN: usize = 256 << 10;

/// An open regular file.
#[derive(Debug)]
struct OsFile {
    file: File,
}

impl StorageFile for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let len = rest.len().min(READ_LEN);
            let Some(part) = rest.get_mut(..len) else { break };
            match platform::read_at(&self.file, part, advance(offset, done)?) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while let Some(rest) = buf.get(done..).filter(|rest| !rest.is_empty()) {
            match platform::write_at(&self.file, rest, advance(offset, done)?) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                #[cfg(feature = "seeded-bugs")]
                Ok(_) if sessionlog_codec::seeded::is("short_write_is_whole") => return Ok(()),
                Ok(written) => done += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// A held lock.
#[derive(Debug)]
struct OsLock {
    file: OsFile,
}

impl Lock for OsLock {
    fn write_text(&self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_at(text.as_bytes(), 0)
    }
}

impl Drop for OsLock {
    fn drop(&mut self) {
        // Closing would release it too, but only once a child that is being spawned has closed its copy of the
        // descriptor. If this fails, closing is what is left.
        drop(self.file.file.unlock());
    }
}

/// Opens a regular file, and refuses anything else without waiting for it.
fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    if !platform::refuse_links(options) {
        // Opening would follow a link or wait for a FIFO's other end, so look first.
        match path.symlink_metadata() {
            Ok(found) if !found.is_file() => return Err(not_regular(found.file_type())),
            _ => {}
        }
    }
    match options.open(path) {
        Ok(file) => {
            let found = file.metadata()?;
            if found.is_file() { Ok(file) } else { Err(not_regular(found.file_type())) }
        }
        // Each kind of file fails in a way of its own (ELOOP, ENXIO, EISDIR), so the reason is looked up.
        Err(error) => match path.symlink_metadata() {
            Ok(found) if !found.is_file() => Err(not_regular(found.file_type())),
            _ => Err(error),
        },
    }
}

/// Opens a lock file, which may have to be made.
fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    platform::private_file(&mut options);
    open_regular(path, &mut options)
}

fn locked(tried: Result<(), TryLockError>, file: File) -> Result<Box<dyn Lock>, LockError> {
    match tried {
        Ok(()) => Ok(Box::new(OsLock { file: OsFile { file } })),
        Err(TryLockError::WouldBlock) => Err(LockError::Held),
        Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
    }
}

/// Microseconds since 1970; of what is out of range, the nearest.
fn timestamp(time: SystemTime) -> Timestamp {
    let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    Timestamp(match time.duration_since(UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => micros(before.duration()).saturating_neg(),
    })
}

fn system_time(time: Timestamp) -> SystemTime {
    let span = Duration::from_micros(time.0.unsigned_abs());
    let time = if time.0 < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) };
    time.unwrap_or(UNIX_EPOCH)
}

/// The error for something that is not a regular file.
fn not_regular(found: FileType) -> io::Error {
    let what = if found.is_symlink() {
        "a symbolic link"
    } else if found.is_dir() {
        "a directory"
    } else {
        platform::special_kind(found)
    };
    io::Error::new(io::ErrorKind::InvalidInput, format!("not a regular file but {what}"))
}

/// What a directory entry of this type is to the engine.
fn entry_kind(found: FileType) -> EntryKind {
    if found.is_file() {
        EntryKind::File
    } else if found.is_dir() {
        EntryKind::Dir
    } else {
        EntryKind::Other
    }
}

/// The position `done` bytes after `offset`.
fn advance(offset: u64, done: usize) -> io::Result<u64> {
    u64::try_from(done)
        .ok()
        .and_then(|done| offset.checked_add(done))
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Unix: positioned I/O, modes, and open flags.
#[cfg(unix)]
mod platform {
    use std::fs::{DirBuilder, File, FileType, OpenOptions};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
    use std::path::Path;

    #[cfg(target_os = "linux")]
    pub(super) use super::linux::is_locked;

    /// `O_NOFOLLOW | O_NONBLOCK`, or 0 where their values are not known here.
    ///
    /// They are part of each system's ABI; written out, they spare a dependency. On a regular file `O_NONBLOCK` does
    /// nothing.
    const NOFOLLOW_NONBLOCK: i32 = if cfg!(any(
        target_vendor = "apple",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd",
        target_os = "dragonfly"
    )) {
        0x100 | 0x4
    } else if cfg!(not(any(target_os = "linux", target_os = "android"))) {
        0
    } else if cfg!(any(
        target_arch = "x86_64",
        target_arch = "x86",
        target_arch = "riscv64",
        target_arch = "s390x",
        target_arch = "loongarch64"
    )) {
        0o400_000 | 0o4_000
    } else if cfg!(any(
        target_arch = "aarch64",
        target_arch = "arm",
        target_arch = "powerpc",
        target_arch = "powerpc64"
    )) {
        0o100_000 | 0o4_000
    } else {
        0
    };

    /// Lets an open fail on a link and not wait for a FIFO; false if that can't be done here.
    pub(super) fn refuse_links(options: &mut OpenOptions) -> bool {
        options.custom_flags(NOFOLLOW_NONBLOCK);
        NOFOLLOW_NONBLOCK != 0
    }

    pub(super) fn private_file(options: &mut OpenOptions) {
        options.mode(0o600);
    }

    pub(super) fn private_dir(builder: &mut DirBuilder) {
        builder.mode(0o700);
    }

    pub(super) fn link_count(metadata: &std::fs::Metadata) -> Option<u64> {
        Some(metadata.nlink())
    }

    /// Which file it is, and when its inode changed last, in nanoseconds since 1970.
    pub(super) fn identity(metadata: &std::fs::Metadata) -> (u64, i64) {
        let seconds = metadata.ctime().saturating_mul(1_000_000_000);
        (metadata.ino(), seconds.saturating_add(metadata.ctime_nsec()))
    }

    pub(super) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buf, offset)
    }

    pub(super) fn write_at(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(buf, offset)
    }

    pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
        // The dot makes the open itself refuse what is not a directory, so that a FIFO can't block it.
        File::open(dir.join("."))?.sync_all()
    }

    pub(super) fn special_kind(found: FileType) -> &'static str {
        if found.is_fifo() {
            "a FIFO"
        } else if found.is_socket() {
            "a socket"
        } else if found.is_block_device() || found.is_char_device() {
            "a device"
        } else {
            "something else"
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn is_locked(_file: &File) -> Option<crate::storage::Locked> {
        None
    }
}

/// Elsewhere: what std offers. Access rights come from the directory that the home is in.
#[cfg(not(unix))]
mod platform {
    use std::fs::{DirBuilder, File, FileType, OpenOptions};
    use std::io;
    use std::path::Path;

    pub(super) fn refuse_links(_options: &mut OpenOptions) -> bool {
        false
    }

    pub(super) fn private_file(_options: &mut OpenOptions) {}

    pub(super) fn private_dir(_builder: &mut DirBuilder) {}

    pub(super) fn link_count(_metadata: &std::fs::Metadata) -> Option<u64> {
        None
    }

    pub(super) fn identity(_metadata: &std::fs::Metadata) -> (u64, i64) {
        (0, 0)
    }

    #[cfg(windows)]
    pub(super) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(file, buf, offset)
    }

    #[cfg(windows)]
    pub(super) fn write_at(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(file, buf, offset)
    }

    #[cfg(not(windows))]
    pub(super) fn read_at(_file: &File, _buf: &mut [u8], _offset: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(not(windows))]
    pub(super) fn write_at(_file: &File, _buf: &[u8], _offset: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// std can't sync a directory here; on NTFS its names are journaled.
    pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
        if dir.metadata()?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    pub(super) fn special_kind(_found: FileType) -> &'static str {
        "something else"
    }

    pub(super) fn is_locked(_file: &File) -> Option<crate::storage::Locked> {
        None
    }
}

/// Who holds a lock, from `/proc`.
///
/// `/proc/locks` names a file by its file system's device and its inode. A file's own `st_dev` may be another number
/// (a btrfs subvolume, a file in an overlay), so the file system's device is looked up too: the descriptor's mount id
/// is in `/proc/self/fdinfo`, and that mount's device in `/proc/self/mountinfo`.
#[cfg(target_os = "linux")]
mod linux {
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    use crate::storage::Locked;

    /// A device as (major, minor).
    type Device = (u64, u64);

    /// How often a lock is looked for before nobody is said to hold it.
    const LOOKS: u32 = 4;

    /// The kernel's fixed name of the PID namespace that contains all others (`PROC_PID_INIT_INO`).
    const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

    pub(super) fn is_locked(file: &File) -> Option<Locked> {
        let metadata = file.metadata().ok()?;
        let mount = mount_device(file);
        let own = device(metadata.dev());
        let holds = |(found, inode)| inode == metadata.ino() && (found == own || Some(found) == mount);
        // The kernel gives the list page by page, and may leave a lock out when another one goes between two pages.
        for _ in 0..LOOKS {
            let locks = fs::read_to_string("/proc/locks").ok()?;
            if locks.lines().filter_map(write_lock).any(holds) {
                return Some(Locked::Held);
            }
        }
        // Not found means free only if the file's line could be recognised and no holder is hidden from here.
        (mount.is_some() && sees_every_process()).then_some(Locked::Free)
    }

    /// The file of a line such as `1: FLOCK  ADVISORY  WRITE 1234 fe:00:246951 0 EOF`; `None` for other lines, which
    /// are other kinds of locks and, with an arrow after the number, those who wait for one.
    pub(super) fn write_lock(line: &str) -> Option<(Device, u64)> {
        let mut fields = line.split_ascii_whitespace().skip(1);
        (fields.next()? == "FLOCK").then_some(())?;
        (fields.nth(1)? == "WRITE").then_some(())?;
        let mut file = fields.nth(1)?.split(':');
        let major = u64::from_str_radix(file.next()?, 16).ok()?;
        let minor = u64::from_str_radix(file.next()?, 16).ok()?;
        Some(((major, minor), file.next()?.parse().ok()?))
    }

    /// Splits a device number as glibc's `major` and `minor` do.
    pub(super) fn device(dev: u64) -> Device {
        let major = ((dev >> 8) & 0xfff) | ((dev >> 32) & 0xffff_f000);
        let minor = (dev & 0xff) | ((dev >> 12) & 0xffff_ff00);
        (major, minor)
    }

    /// The device of the file system that the file was opened on.
    fn mount_device(file: &File) -> Option<Device> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            (fields.next()? == id).then_some(())?;
            let (major, minor) = fields.nth(1)?.split_once(':')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        })
    }

    fn sees_every_process() -> bool {
        fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == INITIAL_PID_NAMESPACE)
    }
}

#[cfg(test)]
mod tests;
