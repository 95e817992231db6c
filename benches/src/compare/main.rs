//! sessionlog beside what one could use in its place, and beside the physical limit.
//!
//! ```text
//! cargo run --release -p sessionlog-benches --features compare --bin compare -- [--quick] [--rounds N] [--only a,b]
//!     [--works append,full] [--dir DIR] [--realtime] [--write-readme]
//! ```
//!
//! Each measurement is a process of its own. In a round every peer is measured once, directly behind the limit, and the
//! order rotates from round to round; what is shown is the ratio of the two, so that a disk whose speed drifts does not
//! matter much. Cold reads need root, to drop the page cache; the table says whether they could be had.
//!
//! On a machine that is busy, a process that was woken by the disk waits for a processor, and every peer shows the same
//! figure: `--realtime` runs them under `chrt -r 10`, where that is allowed.

#![allow(clippy::big_endian_bytes, reason = "keys of trees, which sort as their numbers do")]
#![allow(
    unreachable_pub,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement prints, and may fail loudly"
)]

mod data;
mod measure;
mod peers;
mod run;
mod system;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

/// What every fallible function here gives: whoever runs it reads the text.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What was asked for.
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) realtime: bool,
    pub(crate) write_readme: bool,
    pub(crate) rounds: usize,
    pub(crate) only: Vec<String>,
    pub(crate) works: Vec<String>,
    pub(crate) dir: PathBuf,
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        // One measurement: what the runner starts.
        Some("one") => measure::one(&arguments.split_off(1)),
        _ => options(&arguments).and_then(|options| run::run(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        quick: false,
        realtime: false,
        write_readme: false,
        rounds: 3,
        only: Vec::new(),
        works: Vec::new(),
        // Beside the build, since a temporary directory may be in memory, where a sync costs nothing.
        dir: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/compare")),
    };
    let list = |text: &str| text.split(',').map(str::to_owned).collect();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--quick" => (options.quick, options.rounds) = (true, 1),
            "--realtime" => options.realtime = true,
            "--write-readme" => options.write_readme = true,
            "--rounds" => options.rounds = value()?.parse()?,
            "--only" => options.only = list(value()?),
            "--works" => options.works = list(value()?),
            "--dir" => options.dir = PathBuf::from(value()?),
            other => return Err(format!("unknown argument `{other}`").into()),
        }
    }
    Ok(options)
}
