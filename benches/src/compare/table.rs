//! What was measured, as tables for people.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::measure::{Cache, Found, Work};
use crate::run::{Measured, Round, was_cold};
use crate::{Result, system};

const BEGIN: &str = "<!-- compare:begin -->";
const END: &str = "<!-- compare:end -->";

/// The median, and the least and the most.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    // Of an even number, half way between the two in the middle.
    let median = f64::midpoint(at(values.len().saturating_sub(1) / 2), at(values.len() / 2));
    (median, at(0), at(values.len().saturating_sub(1)))
}

fn figure(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn ratio(rounds: &[Round]) -> String {
    let (median, least, most) = spread(rounds.iter().map(|round| round.ratio).collect());
    format!("{} ({}-{})", figure(median), figure(least), figure(most))
}

fn median(found: &[&Found], what: impl Fn(&Found) -> f64) -> f64 {
    spread(found.iter().map(|found| what(found)).collect()).0
}

/// One work's table: every peer, the fastest first.
pub(crate) fn of(measured: &Measured) -> String {
    let mut text = format!("\n{}\n\n", title(measured));
    text.push_str(if measured.work.reads() {
        "| | time / limit | ms | memory MB | disk / bytes |\n|---|---|---|---|---|\n"
    } else {
        "| | time / limit | messages/s | p99 µs | disk / bytes |\n|---|---|---|---|---|\n"
    });
    let limit: Vec<&Found> = measured.limit.iter().collect();
    let mut rows: Vec<(f64, String)> = vec![(0.0, row(measured.work, measured.work.limit(), "1", &limit))];
    for (name, rounds) in measured.peers.iter().filter(|(_, rounds)| !rounds.is_empty()) {
        let found: Vec<&Found> = rounds.iter().map(|round| &round.found).collect();
        let order = spread(rounds.iter().map(|round| round.ratio).collect()).0;
        rows.push((order, row(measured.work, name, &ratio(rounds), &found)));
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    text.extend(rows.into_iter().map(|(_, row)| row));
    text
}

fn row(work: Work, name: &str, ratio: &str, found: &[&Found]) -> String {
    let disk = figure(median(found, |found| found.disk as f64 / found.bytes as f64));
    // Of what was read the bytes are not those of the whole store.
    let disk = if matches!(work, Work::Last50(_)) { String::new() } else { disk };
    let name = if name.starts_with("sessionlog") { format!("**{name}**") } else { name.to_owned() };
    let (first, second) = if work.reads() {
        (median(found, |found| found.seconds * 1e3), median(found, |found| found.memory as f64 / 1e6))
    } else {
        (median(found, |found| found.messages as f64 / found.seconds), median(found, |found| found.p99_us))
    };
    format!("| {name} | {ratio} | {} | {} | {disk} |\n", figure(first), figure(second))
}

fn title(measured: &Measured) -> String {
    let cold = match was_cold(measured) {
        Some(false) => " (the page cache could not be dropped here: this is warm)",
        _ => "",
    };
    let title = match measured.work {
        Work::Append => "durable append, one message per commit".to_owned(),
        Work::Turn => "durable append, four messages per commit".to_owned(),
        Work::Buffered => "append without a sync, one message per commit".to_owned(),
        Work::Sessions(count) => format!("durable append, {count} sessions at once, one message per commit"),
        Work::Full(Cache::Cold) => "open and read a whole session, cold".to_owned(),
        Work::Full(Cache::Warm) => "open and read a whole session, warm".to_owned(),
        Work::Last50(Cache::Cold) => "open and read its last 50 messages, cold".to_owned(),
        Work::Last50(Cache::Warm) => "open and read its last 50 messages, warm".to_owned(),
    };
    format!("**{title}**{cold}")
}

/// All of it, for the README: one line for each peer, one column for each work.
pub(crate) fn report(all: &[Measured], calls: &BTreeMap<&str, String>, scheduling: &str) -> String {
    let mut text = String::new();
    let scheduling =
        if scheduling.is_empty() { "ordinary scheduling".to_owned() } else { format!("`{scheduling}`") };
    let rounds = all.iter().flat_map(|measured| measured.peers.iter().map(|(_, rounds)| rounds.len())).max();
    // Writing to a string does not fail.
    let written = writeln!(
        text,
        "Time over that of the physical limit (the same bytes, encoded ahead, written to a file that is filled with \
         zeros already) in the same round: median of {} rounds (least-most). {}, {scheduling}.",
        rounds.unwrap_or(0),
        system::machine()
    );
    debug_assert!(written.is_ok(), "a string takes everything");
    for measured in all {
        text.push_str(&of(measured));
    }
    if !calls.is_empty() {
        text.push_str(
            "\n**what one durable commit of one message asks of the kernel**\n\n| | calls |\n|---|---|\n",
        );
        text.extend(calls.iter().map(|(name, calls)| format!("| {name} | {calls} |\n")));
    }
    text
}

/// Puts the report between its markers in the README.
pub(crate) fn write_readme(report: &str) -> Result<()> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md"));
    let readme = std::fs::read_to_string(path)?;
    let (before, rest) = readme.split_once(BEGIN).ok_or("the README has no place for the table")?;
    let (_, after) = rest.split_once(END).ok_or("the README's place for the table has no end")?;
    std::fs::write(path, format!("{before}{BEGIN}\n{report}{END}{after}"))?;
    println!("written into {}", path.display());
    Ok(())
}
