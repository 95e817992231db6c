//! What the measurements ask of the system. Linux; elsewhere, less is known.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use crate::Result;

/// Writes everything back that waits, so that it does not disturb what is measured next.
pub(crate) fn write_back() {
    let done = Command::new("sync").status();
    debug_assert!(done.is_ok(), "where there is no `sync`, the figures are a little worse");
}

/// Drops the page cache; says whether that was allowed.
pub(crate) fn drop_caches() -> bool {
    write_back();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// Reads every file below a directory, so that it is in the page cache.
pub(crate) fn read_all(dir: &Path) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    for_each_file(dir, &mut |path| {
        let mut file = fs::File::open(path)?;
        while file.read(&mut buffer)? > 0 {}
        Ok(())
    })
}

/// Bytes that the files below a directory take on disk.
pub(crate) fn disk(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for_each_file(dir, &mut |path| {
        bytes += fs::metadata(path)?.blocks() * 512;
        Ok(())
    })?;
    Ok(bytes)
}

fn for_each_file(dir: &Path, visit: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { for_each_file(&path, visit)? } else { visit(&path)? }
    }
    Ok(())
}

/// The most memory that this process had so far, in bytes; 0 where that is not told.
pub(crate) fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The machine in a few words, for whoever reads the table.
pub(crate) fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo");
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().next().unwrap_or("?");
    format!("{processors} processors ({model}), Linux {}, load {load}", kernel.trim())
}
